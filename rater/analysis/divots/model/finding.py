"""Findings of the divot detector: of one run, and of a fault over several runs; pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum, StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from rater.analysis.divots.model import formatting
from rater.analysis.results.disturbed import disturbance_reasons
from rater.record.events import ForeignProcess
from rater.record.stored import RunHead
from rater.text import kinds
from rater.text.values import to_dict

if TYPE_CHECKING:
    from rater.analysis.results.periods import Period

# So few differences say nothing of noise: of three copies two, of two benchmarks one.
_FEW_COPIES, _FEW_BENCHMARKS = 3, 2


class Kind(StrEnum):
    """What a finding is about; the words of the divots document."""

    OUTLIER_COPY = "outlier-copy"  # single copies, slow or fast
    SLOW_LGROUP = "slow-lgroup"  # an lgroup, or a package of several
    SLOW_GROUP = "slow-group"  # copies that share something else; fast lgroups as well
    SLOW_CPU = "slow-cpu"  # a CPU or core, over benchmarks and iterations
    SLOW_ITERATION = "slow-iteration"
    DRIFT = "drift"
    BIMODAL = "bimodal"
    STARTUP = "startup"
    STEP = "step"  # from an iteration on
    WARM_UP = "warm-up"  # the first iterations; explained, as a rule
    GRADIENT = "gradient"  # the later a copy starts, or the higher its number, the slower
    NO_PLACE = "no-place"  # one copy each time, by chance another one
    RECURRING = "recurring"  # the same part in several runs
    WANDERING = "wandering"  # another part each time
    ONCE = "once"  # of several runs in one only
    UNSTEADY = "unsteady"  # copies of a place vary far more than others, about the same mean
    LAYOUT = "layout"  # explained only: sharing, load, kinds of cores


# Those that are somewhere: a part of the machine, or copies.
PLACED = (Kind.SLOW_LGROUP, Kind.SLOW_GROUP, Kind.SLOW_CPU, Kind.OUTLIER_COPY)
# Those that may be of a part of the machine or of all copies.
_EITHER = (Kind.STEP, Kind.WARM_UP, Kind.LAYOUT, Kind.UNSTEADY)
_ALL_COPIES = ("whole run", "all copies")


# Evidence is told by falling weight. Numbers that were recorded beside the times lie in this range,
# by how far the finding's copies differ from the others.
LEAST_MEASURED_WEIGHT, MOST_MEASURED_WEIGHT = 20.0, 80.0


class EvidenceKind(Enum):
    """Evidence that is no recorded number: its stored name, its weight, its meaning.

    `of_cause`: it says something of the cause, if only that nothing explains it. A finding without
    any such evidence is told with "cause not recorded".
    """

    COST = ("cost", 100.0, False)
    OUTPUT = ("output", 90.0, True)  # copies so fast that they cannot have done their work
    LAYOUT = ("layout", 60.0, True)  # how much of it the layout may have made
    TIME = ("time", 15.0, True)  # which share each cause has in the extra time
    MEMORY = ("memory", 50.0, True)  # the memory of a node's copies is on another one
    PERIOD = ("period", 55.0, True)  # when others had the CPUs, a quota was used up, or copies read
    TRAFFIC = ("traffic", 52.0, True)  # a node's memory moved less than that of others
    UNEXPLAINED = ("cause", 0.0, True)  # numbers were recorded, and none of them differs

    def __init__(self, label: str, weight: float, of_cause: bool) -> None:
        self.label, self.weight, self.of_cause = label, weight, of_cause

    def evidence(self, text: str, *, during: tuple[float, float] | None = None) -> Evidence:
        """Return evidence of this kind in these words; `during`: see `Evidence`."""
        return Evidence(name=self.label, text=text, weight=self.weight, during=during)


class Evidence(Struct, frozen=True, kw_only=True):
    """One fact beside a finding, as a value and as words.

    `weight` orders: the largest difference from the others comes first. `name` is the label of an
    `EvidenceKind`, or that of a number that `divots/evidence.py` compared. Only such a number has
    `value`, the median of the finding's copies, and `others`, that of those they are compared with.
    `during` has begin and end of a period, in seconds from the first release of its bracket.
    """

    name: str
    text: str
    weight: float = 0.0
    value: float | None = None
    others: float | None = None
    during: tuple[float, float] | None = None

    @property
    def of_cause(self) -> bool:
        """Whether it says something of the cause: a number that no kind names always does."""
        kind = next((kind for kind in EvidenceKind if kind.label == self.name), None)
        return kind is None or kind.of_cause


class TimeShares(Struct, frozen=True, kw_only=True):
    """Shares of the time by which a finding's copies are slower, 0 to 1; together they are 1.

    None: not known. `waited` is known where it is not known for whom.
    """

    cpu: float  # more CPU time: more work, or computed more slowly
    waited_own: float | None = None  # for a CPU that other copies of the run had
    waited_others: float | None = None  # for a CPU that other processes had
    waited: float | None = None
    slept: float | None = None  # slept, was stopped, or had no quota left


class CellEffect(Struct, frozen=True, kw_only=True):
    """The effect of a finding on one benchmark in one iteration."""

    benchmark: str
    tune: str | None
    iteration: int
    slowdown: float  # time over fair time of the copies that it covers
    rate_lost: float  # share of this benchmark's rate in this iteration, 0 for fast ones


class CopyEffect(Struct, frozen=True, kw_only=True):
    """The effect on one copy in one cell, of a finding about single copies."""

    benchmark: str
    tune: str | None
    iteration: int
    copy: int
    cpu: int | None
    node: int | None
    slowdown: float


class Finding(Struct, frozen=True, kw_only=True):
    """One divot, or (`explained`) something slow that the layout predicts.

    Lists are ascending and name all that the finding covers. `place` names the
    smallest part that explains it in the user's words, such as `lgroup 3` or
    `CPUs 8-15,24-31`.
    """

    kind: Kind
    place: str
    benchmarks: tuple[str, ...]  # empty: all of the run
    tune: str | None  # where the finding is of one tune only
    iterations: tuple[int, ...]  # empty: all of the run
    copies: tuple[int, ...]
    cpus: tuple[int, ...]
    nodes: tuple[int, ...]  # lgroups it is made of; empty where it is not about lgroups
    package: int | None
    core: int | None
    slowdown: float  # typical time over fair time; below 1: fast
    # Of the whole run's score, 0 to 1. If copies do not wait for each other (rotated order,
    # steady mode) there is none, but `time_lost`.
    score_lost: float | None
    explained: bool
    expectation: str | None  # the prediction of the layout, if explained
    summary: str  # benchmarks, size and how many of how many, in words
    evidence: tuple[Evidence, ...]
    cells: tuple[CellEffect, ...] = ()
    details: tuple[tuple[str, float | str], ...] = ()  # numbers behind the finding, by name
    singles: tuple[CopyEffect, ...] = ()  # empty for findings of groups
    time_lost: float | None = None  # of all copies' time, 0 to 1; where there is no score lost
    # Its share in the cost of all findings together: the costliest is taken away first.
    share_lost: float | None = None
    by_cpu: bool = False  # of CPU time in place of elapsed time, as are its size and cost
    time_shares: TimeShares | None = None  # None: not known, or it is not slower

    @property
    def cost(self) -> float:
        """The cost by which findings are ordered: of the score, or of the copies' time."""
        return self.score_lost if self.score_lost is not None else self.time_lost or 0.0

    @property
    def has_place(self) -> bool:
        """Whether it is of a part of the machine, or of some copies, that `place` names."""
        return self.kind in PLACED or (self.kind in _EITHER and self.place not in _ALL_COPIES)

    @property
    def longer_s(self) -> float | None:
        """Seconds by which a start-up made the median copy, or the last start, later."""
        seconds = dict(self.details).get("seconds")
        return float(seconds) if seconds is not None else None

    @property
    def fast(self) -> bool:
        """Whether these copies were faster than the others."""
        return self.slowdown < 1

    @property
    def benchmark(self) -> str | None:
        """The benchmark, where it is about exactly one."""
        return self.benchmarks[0] if len(self.benchmarks) == 1 else None

    @property
    def iteration(self) -> int | None:
        """The iteration, where it is about exactly one."""
        return self.iterations[0] if len(self.iterations) == 1 else None

    @property
    def node(self) -> int | None:
        """The lgroup, where it is exactly one."""
        return self.nodes[0] if len(self.nodes) == 1 else None


class Thresholds(Struct, frozen=True):
    """Smallest effects that count, as shares of a time."""

    group: float = 0.015
    copy: float = 0.03


VERSION = 21  # of the detector: stored findings of another version are searched again


class CpuJudgement(Struct, frozen=True, kw_only=True):
    """That CPU time judges a run that others disturbed, and what it stands on."""

    others_took: float  # share of the copies' time that they waited for others, on average
    noise_cost: float | None  # of the score by CPU time, 0 to 1, that noise alone costs


class Analysis(Struct, frozen=True, kw_only=True):
    """The findings of a run, and the smallest effects that it would have shown."""

    findings: tuple[Finding, ...]  # the most costly first, explained ones last
    visible: dict[str, float]
    failed: int = 0  # copy runs left out because they did not end well
    # Costs of the score, 0 to 1: by other processes (None if not recorded), and by noise alone.
    others_cost: float | None = None
    noise_cost: float | None = None
    by_cpu: CpuJudgement | None = None  # None: elapsed time judges, or nothing does
    not_by_cpu: str | None = None  # why CPU time does not judge a disturbed run
    disturber: ForeignProcess | None = None  # that took most of a CPU of copies; None: not known
    periods: tuple[Period, ...] = ()  # places in time of what cost CPU time; (): none, or not known
    # Commands that make the run again, and that confirm each divot; none for imported runs.
    rerun: str | None = None
    confirm: tuple[str, ...] = ()

    @property
    def disturbed(self) -> tuple[str, ...]:
        """The reasons why the run was too disturbed to judge; empty if it was not.

        What others did to elapsed times is no reason where CPU time judges.
        """
        if self.by_cpu is not None:
            return disturbance_reasons(None, self.by_cpu.noise_cost)
        return self.disturbed_times

    @property
    def disturbed_times(self) -> tuple[str, ...]:
        """The reasons why elapsed times are too disturbed to judge; empty if they are not."""
        return disturbance_reasons(self.others_cost, self.noise_cost, self.disturber)

    @property
    def sure(self) -> tuple[Finding, ...]:
        """The findings, none if the run was disturbed."""
        return () if self.disturbed else self.findings

    @property
    def lost(self) -> float:
        """The cost of all findings together, of the score or the copies' time."""
        return sum(finding.share_lost or 0.0 for finding in self.findings)


def nothing_to_compare(head: RunHead) -> bool:
    """Tell whether a run is so small that nothing could stand out, whatever it did."""
    few = head.copies <= _FEW_COPIES and len(head.benchmarks) <= _FEW_BENCHMARKS
    return few and head.iterations - head.discard <= 1


def to_json(finding: Finding) -> str:
    """Return a finding as JSON text, for the store."""
    return json.dumps(to_dict(finding), allow_nan=False)


def from_json(text: str) -> Finding:
    """Return the finding of `to_json`'s text. Raises `ValueError` for anything else."""
    finding: Finding = kinds.from_json(Finding, text)
    return finding


# -- A fault over several runs: in each, in another place each time, or in one run ----------------

_MOST_LISTED = 8  # runs that are listed one by one


class Presence(StrEnum):
    """Whether a run has a fault that was found in another."""

    YES = "yes"
    SMALLER = "smaller"  # something is there, much smaller
    NO = "no"
    OPEN = "too noisy to tell"
    NOT_RUN = "not run"  # no copies there, or none of the benchmarks


_OF_A_RUN = {
    Presence.YES: "run {run}{where} {size}",
    Presence.SMALLER: "smaller in run {run} ({size})",
    Presence.NO: "not in run {run} ({size})",
    Presence.OPEN: "run {run} is too noisy to tell ({size})",
    Presence.NOT_RUN: "run {run} did not run these benchmarks there",
}
_FOLLOWS = {
    Kind.RECURRING: "it comes back",
    Kind.WANDERING: "each time in another place",
    Kind.ONCE: "in one run only",
}


class FaultMeasurement(Struct, frozen=True, kw_only=True):
    """The size of a fault in one run, by that run's own times."""

    run: int
    there: Presence
    place: str
    benchmarks: tuple[str, ...]  # empty: all
    slowdown: float | None  # None if the run has no times to measure it by


class RecurringDivot(Struct, frozen=True, kw_only=True):
    """One sort of divot over several runs."""

    kind: Kind  # RECURRING, WANDERING or ONCE
    of: Kind  # the kind of finding in each run
    benchmarks: tuple[str, ...]  # empty: all
    looks: tuple[FaultMeasurement, ...]  # one a run
    slowdown: float  # median of the runs that have it
    copies: tuple[int, ...]
    nodes: tuple[int, ...]
    cpus: tuple[int, ...]

    @property
    def places(self) -> tuple[FaultMeasurement, ...]:
        """The runs that have it."""
        return tuple(look for look in self.looks if look.there is Presence.YES)

    @property
    def summary(self) -> str:
        """Place, benchmarks, size in each run, and the conclusion, in words."""
        places = self.places
        moves = len({run.place for run in places}) > 1
        runs = [self._describe_run(run, with_place=moves) for run in self.looks[:_MOST_LISTED]]
        if len(self.looks) > _MOST_LISTED:
            runs.append(f"and {len(self.looks) - _MOST_LISTED} more")
        sizes = formatting.sizes([run.slowdown or 1.0 for run in places])
        return (
            f"{'' if moves else f'{places[0].place}: '}{_names(self.benchmarks)} {sizes} in "
            f"{len(places)} of {len(self.looks)} runs: {', '.join(runs)}; {_FOLLOWS[self.kind]}"
        )

    def _describe_run(self, run: FaultMeasurement, *, with_place: bool) -> str:
        where = f" {run.place}" if with_place else ""
        where += f" in {_names(run.benchmarks)}" if run.benchmarks != self.benchmarks else ""
        size = formatting.format_slowdown(run.slowdown or 1.0)
        return _OF_A_RUN[run.there].format(run=run.run, where=where, size=size)


def _names(benchmarks: Sequence[str]) -> str:
    return ", ".join(benchmarks) or "all benchmarks"
