"""Documents of `rater doctor selftest --json`."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rater.analysis.divots.model.finding import Kind
from rater.analysis.divots.selftest import Verdict
from rater.plan.selftest import PlantKind


class FoundJson(TypedDict):
    """A finding of the detector."""

    kind: Annotated[Kind, "Kind of divot."]
    place: Annotated[str, "Where it is, in words."]
    slowdown: Annotated[float, "Typical time over fair time."]
    copies: Annotated[list[int], "Copies that are slow."]
    evidence: Annotated[str, "The finding in one line."]


class PlantJson(TypedDict):
    """A slowdown that was planted, and what the detector said of it."""

    kind: Annotated[PlantKind, "What was planted."]
    place: Annotated[str, "Where, in words."]
    how: Annotated[str, "By what, in words."]
    copies: Annotated[list[int], "Copies that it slowed."]
    cpus: Annotated[list[int], "CPUs of these copies."]
    node: Annotated[int | None, "NUMA node, where it is of one."]
    benchmark: Annotated[str | None, "Benchmark; null: all."]
    iteration: Annotated[int | None, "Iteration; null: all."]
    aimed: Annotated[float, "Slowdown that was aimed for."]
    slowdown: Annotated[float | None, "Slowdown that was reached; null: nothing was planted."]
    verdict: Annotated[Verdict, "Whether the detector was right."]
    others: Annotated[float | None, "Share of the CPUs that other processes took."]
    unsteady: Annotated[float | None, "By how much the CPUs' speed changed by itself."]
    disturbed: Annotated[str, "What disturbed it, in words; empty: nothing, or not much."]
    named: Annotated[list[FoundJson], "Findings that name it."]
    also_true: Annotated[list[FoundJson], "Findings that follow from it."]
    false: Annotated[list[FoundJson], "Findings of what was not planted."]
    too_small: Annotated[list[FoundJson], "Findings too small to be judged."]


class NotPlantedJson(TypedDict):
    """What cannot be planted on this machine."""

    kind: Annotated[PlantKind, "What would be planted."]
    why: Annotated[str, "Why it cannot be, in words."]


class PromiseJson(TypedDict):
    """How often a slowdown that runs promise to show was found."""

    scope: Annotated[str, "Scope of the slowdown."]
    kind: Annotated[PlantKind, "What was planted."]
    size: Annotated[float, "Slowdown that was planted."]
    trials: Annotated[int, "Runs in which it was planted."]
    found: Annotated[int, "Runs in which it was found."]
    kept: Annotated[bool, "Whether it was found as often as promised."]


class SelfTestDocument(TypedDict):
    """A self-test that came to its end."""

    right: Annotated[bool, "Whether all was named and nothing else."]
    summary: Annotated[str, "The result in one line."]
    planted: Annotated[int, "Slowdowns that were planted."]
    named: Annotated[int, "Slowdowns that were named."]
    false: Annotated[int, "Findings of what was not planted."]
    copies: Annotated[int, "Number of copies."]
    cpus: Annotated[list[int], "CPUs of the copies."]
    benchmarks: Annotated[list[str], "Benchmarks that ran."]
    iterations: Annotated[int, "Iterations of each benchmark."]
    seed: Annotated[int, "Seed of what is planted."]
    spread: Annotated[float, "By how much copies differ with nothing planted, as a share."]
    floor: Annotated[float, "Smaller slowdowns are not judged."]
    made_noise: Annotated[float | None, "Noise of simulated times; null: copies ran."]
    not_judged: Annotated[int, "Plants that could not be judged."]
    made_again: Annotated[int, "Runs that were repeated because something disturbed them."]
    plants: Annotated[list[PlantJson], "What was planted; the clean run first."]
    not_planted: Annotated[list[NotPlantedJson], "What cannot be planted here."]
    promised: Annotated[list[PromiseJson], "What runs promise to show (simulated times)."]


class SelfTestRefusedDocument(TypedDict):
    """A self-test on a machine that is too noisy."""

    right: Annotated[bool, "false."]
    refused: Annotated[str, "Why nothing is planted, in words."]
    seed: Annotated[int, "Seed of what would be planted."]
    spread: Annotated[float, "By how much copies differ with nothing planted, as a share."]
    others: Annotated[float, "Share of the CPUs that other processes took."]
