"""Documents of `rater divots --json` and `rater confirm --json`."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from rater.analysis.divots.confirm import ConfirmCause, ConfirmVerdict
from rater.analysis.divots.model.finding import Kind, Presence
from rater.show.documents.common import AnyIteration, DisturbedJson, Phase, RunNumber, Tune


class EvidenceJson(TypedDict):
    """One thing that was measured beside the times."""

    name: Annotated[str, "Where it comes from."]
    value: Annotated[float | None, "Median of the finding's copies."]
    others: Annotated[float | None, "Median of the copies they are compared with."]
    text: Annotated[str, "The same in words."]
    during_s: Annotated[
        list[float] | None,
        "Begin and end of a period, from the bracket's first release; null: no place in time.",
    ]


class TimeSharesJson(TypedDict):
    """Shares of the time by which copies are slower; null: not known."""

    cpu: Annotated[float, "More CPU time: more work, or computed more slowly."]
    waited_own: Annotated[float | None, "Waited for a CPU that other copies of the run had."]
    waited_others: Annotated[float | None, "Waited for a CPU that other processes had."]
    waited: Annotated[float | None, "Waited for a CPU, where it is not known for whom."]
    slept: Annotated[float | None, "Slept, was stopped, or had no quota left."]


class DivotJson(TypedDict):
    """A slow (or fast) part of the machine or of the run; copies judged singly have one each."""

    kind: Annotated[str, "Kind of divot; explained-KIND: the layout explains it."]
    benchmark: Annotated[str | None, "The benchmark, where it is about exactly one."]
    benchmarks: Annotated[list[str], "Benchmarks; empty: all of the run."]
    tune: Tune
    iteration: Annotated[int | None, "The iteration, where it is about exactly one."]
    iterations: Annotated[list[int], "Iterations; empty: all of the run."]
    copy: Annotated[int | None, "The copy, where it is about exactly one."]
    cpu: Annotated[int | None, "The CPU, where it is about exactly one."]
    core: Annotated[int | None, "The core, where it is about one."]
    node: Annotated[int | None, "The NUMA node, where it is about exactly one."]
    nodes: Annotated[list[int], "NUMA nodes; empty: it is not about nodes."]
    package: Annotated[int | None, "The package, where it is about one."]
    place: Annotated[str, "Where it is, in words."]
    copies: Annotated[list[int], "Copies that are slow."]
    cpus: Annotated[list[int], "CPUs of these copies; empty for a finding that is of no place."]
    slowdown: Annotated[float, "Typical time over fair time; below 1: fast."]
    longer_s: Annotated[
        float | None,
        "Of a start-up: seconds by which the median copy took longer, or the last one started "
        "later; null: of another kind.",
    ]
    score_lost: Annotated[
        float | None,
        "Share of the run's score, 0 to 1; null: copies do not wait for each other. Rows with one "
        "`finding` share it: count it once for each.",
    ]
    time_lost: Annotated[float | None, "Share of all copies' time; null: there is a score lost."]
    share_lost: Annotated[float | None, "Its share of what all findings cost together."]
    explained: Annotated[bool, "true: the layout explains it, so it is no divot."]
    expectation: Annotated[str | None, "What the layout predicts, in words."]
    evidence: Annotated[str, "The finding in one line."]
    measured: Annotated[list[EvidenceJson], "What was measured, what differs most first."]
    by_cpu_time: Annotated[bool, "true: of CPU time, as are its size and its cost."]
    time_shares: Annotated[
        TimeSharesJson | None, "What the extra time is; null: not known, or not slower."
    ]
    finding: Annotated[int | None, "Number of the finding, from 1; null: it is explained."]
    next: Annotated[str | None, "Command that would confirm it; null: none."]
    together_with: NotRequired[Annotated[list[int], "Copies of the finding that it is one of."]]


class CpuJudgementJson(TypedDict):
    """What a judgement by CPU time stands on."""

    others_took: Annotated[float, "Share of their time that copies waited for others."]
    noise_cost: Annotated[float | None, "Share of the score by CPU time that noise costs."]


class PeriodJson(TypedDict):
    """A place in time: something that cost copies CPU time in a part of a bracket."""

    kind: Annotated[
        str,
        "others, steal, interrupts, heat, clock, quota, cpu, memory, disk or start-up.",
    ]
    phase: Phase
    benchmark: Annotated[str | None, "Name of the benchmark; null: all (rotated order)."]
    iteration: AnyIteration
    iterations: Annotated[list[int], "All that had it at about the same time."]
    from_s: Annotated[float, "Its begin, from the bracket's first release."]
    to_s: Annotated[float, "Its end."]
    level: Annotated[
        float,
        "Share of the CPUs or of the time; of a quota, CPUs kept off; of heat, times a second; of "
        "a clock, the share that it lacked; of start-up and disk, the share that was computed.",
    ]
    cpus: Annotated[list[int], "CPUs that had it; empty: it is not of CPUs."]
    copies: Annotated[list[int], "Copies that had it; empty: those on the CPUs."]
    read_bytes_per_s: Annotated[float | None, "Of start-up and disk: what these copies read."]
    written_bytes_per_s: Annotated[float | None, "What they wrote."]
    waited_s: Annotated[float | None, "How long some task waited for a disk meanwhile."]
    limit: Annotated[float | None, "The quota in CPUs, or the limit of memory in bytes."]
    text: Annotated[str, "The same in words."]


class DivotsDocument(DisturbedJson):
    """The divots of one run."""

    run: RunNumber
    divots: Annotated[list[DivotJson], "The most costly first, explained ones last."]
    visible: Annotated[dict[str, float], "Smallest slowdown that the run could show, by scope."]
    failed_left_out: Annotated[int, "Copy runs left out because they did not end well."]
    lost: Annotated[float, "What all divots cost together, share of the score (or time)."]
    by_cpu_time: Annotated[
        CpuJudgementJson | None, "CPU time judges a disturbed run; null: elapsed time, or nothing."
    ]
    not_by_cpu_time: Annotated[str | None, "Why CPU time does not judge a disturbed run."]
    periods: Annotated[
        list[PeriodJson], "Places in time, the costliest first; empty: none, or not known."
    ]


class PlaceJson(TypedDict):
    """Where one run has a divot."""

    run: RunNumber
    place: Annotated[str, "Where it is, in words."]


class FaultJson(TypedDict):
    """Whether one run has a divot that was found in another."""

    run: RunNumber
    there: Annotated[Presence, "Whether it is there."]
    place: Annotated[str, "Where it was looked for, in words."]
    benchmarks: Annotated[list[str], "Benchmarks; empty: all."]
    slowdown: Annotated[float | None, "Its size there; null: there is nothing to measure it by."]


class RecurringJson(TypedDict):
    """What several runs have in common."""

    kind: Annotated[Kind, "Whether it comes back: recurring, wandering or once."]
    of: Annotated[Kind, "Kind of divot that it is each time."]
    benchmarks: Annotated[list[str], "Benchmarks; empty: all."]
    places: Annotated[list[PlaceJson], "Runs that have it."]
    runs: Annotated[list[FaultJson], "What each run has of it."]
    copies: Annotated[list[int], "Copies."]
    nodes: Annotated[list[int], "NUMA nodes."]
    cpus: Annotated[list[int], "CPUs."]
    slowdown: Annotated[float, "Median size where it is."]
    evidence: Annotated[str, "The same in words."]


class HardwareValueJson(TypedDict):
    """A value of a fact, and the runs whose machines have it."""

    value: Annotated[str, "What is known."]
    runs: Annotated[list[RunNumber], "Runs whose machine has it."]


class HardwareDifferenceJson(TypedDict):
    """A fact in which the machines of runs differ."""

    what: Annotated[str, "What it is, in words."]
    values: Annotated[list[HardwareValueJson], "Its values."]


class SeveralDivotsDocument(TypedDict):
    """The divots of several runs, and those that recur."""

    runs: Annotated[list[DivotsDocument], "The runs, in the order in which they were named."]
    between: Annotated[list[RecurringJson], "What they have in common; empty: nothing."]
    hardware: Annotated[list[HardwareDifferenceJson], "In what their machines differ."]


# -- `rater confirm` -------------------------------------------------------------------------------


class TrialSideJson(TypedDict):
    """One side of a trial."""

    place: Annotated[str, "Part of the machine, in words."]
    cpus: Annotated[list[int], "CPUs of the copies."]
    copy_numbers: Annotated[list[int], "Numbers that the copies have, those of the run."]
    command: Annotated[str, "What runs there, as a command."]


class TrialJson(TypedDict):
    """What is run against what."""

    benchmarks: Annotated[list[str], "Benchmarks that run."]
    copies: Annotated[int, "Copies on each side."]
    pairs: Annotated[int, "Pairs of runs."]
    a: Annotated[TrialSideJson, "The part that was found slow."]
    b: Annotated[TrialSideJson, "The same copies on a part like it: is it the place?"]
    c: Annotated[TrialSideJson | None, "Other copies there: is it the copy? null: there are none."]
    slowdown: Annotated[float, "Slowdown as it was found."]


class RunPairJson(TypedDict):
    """Two runs of a trial."""

    a: Annotated[int, "Number of the run on the slow part."]
    b: Annotated[int, "Number of the run on the other."]
    c: Annotated[int | None, "Number of the run of other copies; null: none."]


class CopyVerdictJson(TypedDict):
    """What came of the question whether it is the copy."""

    answer: Annotated[ConfirmVerdict, "Whether these copies are slower than others there."]
    slowdown: Annotated[float, "Time of the copies over that of others in the same place."]
    pairs: Annotated[list[float], "Slowdown in each round, in order."]
    interval: Annotated[list[float], "95 % interval of the slowdown, low and high."]


class VerdictJson(TypedDict):
    """What came of a trial."""

    answer: Annotated[ConfirmVerdict, "Whether the divot is confirmed."]
    slowdown: Annotated[float, "Time on the slow part over time on the other."]
    pairs: Annotated[list[float], "Slowdown of each pair, in order."]
    interval: Annotated[list[float], "95 % interval of the slowdown, low and high."]
    foreign: Annotated[
        list[float] | None, "Median share of each side's CPUs that other processes took."
    ]
    disturbed: Annotated[str | None, "Why it cannot be judged, in words."]
    cause: Annotated[ConfirmCause, "What the divot is of: place, copy, neither, or cannot tell."]
    copy: Annotated[CopyVerdictJson | None, "Of the copy; null: there were no other copies."]
    by_cpu_time: Annotated[bool, "true: CPU time judges."]


class TrialDocument(TypedDict):
    """A trial of a divot."""

    run: Annotated[int, "Number of the run in which it was found."]
    finding: Annotated[int, "Number of the finding, from 1."]
    evidence: Annotated[str, "The finding in one line."]
    refused: Annotated[str | None, "Why it cannot be confirmed here, in words."]
    trial: Annotated[TrialJson | None, "What is run; null: it is refused."]
    runs: Annotated[list[RunPairJson], "Pairs of runs that were made."]
    verdict: Annotated[VerdictJson | None, "What came of it; null: it was not run."]
