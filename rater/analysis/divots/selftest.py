"""The self-test: planted divots against findings, steady CPUs, promises kept; pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from statistics import median

from msgspec import Struct

from rater.analysis.divots.model.finding import PLACED, Finding, Kind
from rater.plan.selftest import Injection, PlantKind
from rater.text.values import group_by_key

# -- How steady the CPUs of a run were, from the CPU time that the same work took on them ----------
#
# A cost is the CPU time that the copies of one CPU needed for one benchmark in one iteration, and
# others took there, in seconds. Processes that compete with a copy, and signals that stop it,
# lengthen its elapsed time and not its CPU time: what makes the CPU itself slower (another guest of
# the host, a busy neighbour on the core, the clock) lengthens both.

# A share: a CPU's speed varies so much by itself; beyond, something made it slower or faster.
STEADY = 0.04

# Benchmark, iteration, CPU: seconds, or (speeds) over what is usual of that CPU, as a share.
type Costs = Mapping[tuple[str, int, int], float]


def speeds_of(costs: Costs) -> dict[tuple[str, int, int], float]:
    """Return by how much more a benchmark cost than it usually does on its CPU, as shares."""
    usual = _usual(costs, lambda name, cpu: (name, cpu))
    return {
        (name, iteration, cpu): cost_s / usual[name, cpu] - 1
        for (name, iteration, cpu), cost_s in costs.items()
        if usual[name, cpu] > 0
    }


def largest_speed_change(costs: Costs) -> tuple[float, int | None]:
    """Return the largest change of a CPU's speed, with its sign, and the CPU; None: not known."""
    changes = ((change, cpu) for (_, _, cpu), change in speeds_of(costs).items())
    return max(changes, key=lambda change_and_cpu: abs(change_and_cpu[0]), default=(0.0, None))


# -- Planted divots against findings ---------------------------------------------------------------
#
# The rules are those that detectors are scored by (the note on divots): a finding names
# a planted divot when its kind and every place it gives agree; another true description
# of the same divot is neither right nor wrong; everything else is false.

# In a clean run whose copies differ by a larger share, a planted divot cannot be told from chance.
NOISIEST = 0.06
# So much of an undisturbed run must have run at a steady speed to say how noisy it is.
_LEAST_STEADY = 2 / 3
# The least slowdown that is judged (see `floor_of`), and how many times the spread of the clean run
# it is: a machine may show twice that spread within an hour. At most half of what is injected.
_LEAST_FLOOR = 0.05
_FLOOR_TIMES = 2.0
_CAME_TO = 0.5  # of what was aimed at: less and there is nothing to be found
_FOUND_SIZE = (0.5, 2.0)  # of the size that a plain comparison shows, on a scale of ratios
_FEW_COPIES = 2

# Benchmark, iteration, copy: seconds.
type Times = Mapping[tuple[str, int, int], float]


class Deviation(Struct, frozen=True):
    """By how much the copies of a run differ most from the median of their benchmark."""

    size: float  # as a share
    benchmark: str
    iteration: int
    copy: int


class Verdict(StrEnum):
    """What became of an injection."""

    RIGHT = "right"
    WRONG = "wrong"
    NO_EFFECT = "no effect"
    NOT_JUDGED = "not judged"


class Judgement(Struct, frozen=True, kw_only=True):
    """One planted divot and the findings of its run, sorted."""

    injection: Injection
    made: float | None  # time over undisturbed time, by a plain comparison with the clean run
    named: tuple[Finding, ...]
    secondary: tuple[Finding, ...]  # true as well, in other words
    false: tuple[Finding, ...]
    small: tuple[Finding, ...]  # below what this machine does by itself: not judged
    failed: bool = False  # its effect did not come: there was nothing to be found
    others: float | None = None  # share of a CPU that others took, where it was too much
    unsteady: float | None = None  # by how much a CPU's own speed changed, where it was too much
    disturbed: str = ""  # by whom and where, in words; "" where it was not, or not too much

    @property
    def verdict(self) -> Verdict:
        """Return what became of it. Named and nothing else is right, whatever others did."""
        named = self.injection.kind is PlantKind.NOTHING or bool(self.named)
        if named and not self.false and not self.failed:
            return Verdict.RIGHT
        if self.others is not None or self.unsteady is not None:
            return Verdict.NOT_JUDGED
        return Verdict.NO_EFFECT if self.failed else Verdict.WRONG


def spread_of(
    times: Times, costs: Costs | None = None, cpu_of: Mapping[int, int] | None = None
) -> Deviation | None:
    """Return by how much copies differ with nothing planted; None if no copy ended well.

    Copies whose CPU did not run at its usual speed are left out, unless there are too many
    of them: what slowed the CPU is not the copies' own difference.
    """
    usual = _usual(times, lambda name, _: name)
    deviations = [
        Deviation(abs(seconds / usual[name] - 1), name, iteration, copy)
        for (name, iteration, copy), seconds in times.items()
    ]
    if costs and cpu_of:
        speeds = speeds_of(costs)
        steady = [
            deviation
            for deviation in deviations
            if abs(
                speeds.get((deviation.benchmark, deviation.iteration, cpu_of[deviation.copy]), 0.0)
            )
            <= STEADY
        ]
        if len(steady) >= _LEAST_STEADY * len(deviations):
            deviations = steady
    return max(deviations, key=lambda deviation: deviation.size, default=None)


def floor_of(spread: float) -> float:
    """Return the smallest slowdown (as a share) that is judged on a machine this noisy."""
    return max(_LEAST_FLOOR, _FLOOR_TIMES * spread)


def plant_size(
    injection: Injection, times: Times, clean: Times, second: Injection | None = None
) -> float | None:
    """Return how much slower the planted copies ran than in the clean run, as a ratio.

    Copies of the same run without a planted divot are the measure; None if there are none.
    `second` is planted in the same run: what it slows says nothing of this one.
    """
    usual = _usual(clean, lambda name, copy: (name, copy))
    sides: tuple[list[float], list[float]] = ([], [])
    for (name, iteration, copy), seconds in times.items():
        is_other = second is not None and second.concerns(name, iteration, copy)
        if (name, copy) in usual and not is_other:
            sides[injection.concerns(name, iteration, copy)].append(seconds / usual[name, copy])
    return median(sides[1]) / median(sides[0]) if all(sides) else None


def judge(
    injection: Injection,
    effect: float | None,
    findings: Iterable[Finding],
    floor: float,
    iterations: int,
    *,
    others: float | None = None,
    unsteady: float | None = None,
    disturbed: str = "",
    second: Injection | None = None,
) -> Judgement:
    """Sort the findings of the run of an injection; `effect` is its `plant_size`.

    `second` is planted in the same run, and is judged by itself: what names it is left out.

    `others`: the share of a CPU that others took meanwhile, `unsteady`: by how much a
    CPU's own speed changed, each where it was too much; `disturbed`: that in words.
    """

    def group_of(finding: Finding) -> str:
        if names(finding, injection, iterations) and _fits(finding.slowdown, effect):
            return "named"  # also where it is explained, as a first iteration is
        if finding.explained:
            return "explained"
        if _alias(finding, injection, iterations):
            return "secondary"
        return "small" if abs(finding.slowdown - 1) < floor else "false"

    def is_other(finding: Finding) -> bool:
        return second is not None and names(finding, second, iterations)

    grouped = group_by_key(
        (group_of(finding), finding) for finding in findings if not is_other(finding)
    )
    named, secondary, false, small = (
        tuple(grouped.get(name, ())) for name in ("named", "secondary", "false", "small")
    )
    came = effect is None or effect - 1 >= _CAME_TO * (injection.aimed - 1)
    return Judgement(
        injection=injection,
        made=effect,
        named=named,
        secondary=secondary,
        false=false,
        small=small,
        failed=not came,
        others=others,
        unsteady=unsteady,
        disturbed=disturbed,
    )


def _usual[K](times: Times, key: Callable[[str, int], K]) -> dict[K, float]:
    """Return the median over what has the same key; `key` takes benchmark and copy."""
    cells = group_by_key((key(name, copy), seconds) for (name, _, copy), seconds in times.items())
    return {where: median(values) for where, values in cells.items()}


def _fits(slowdown: float, effect: float | None) -> bool:
    if effect is None or effect <= 1:
        return True
    low, high = _FOUND_SIZE
    return low <= math.log(slowdown) / math.log(effect) <= high


def names(finding: Finding, injection: Injection, iterations: int) -> bool:
    """Tell whether a finding is what was injected, at its place and time."""
    at, kind = injection.iteration, injection.kind
    times = {single.iteration for single in finding.singles} or set(finding.iterations)
    if finding.slowdown <= 1 or kind is PlantKind.NOTHING:
        return False
    if kind is PlantKind.SLOW_ITERATION:
        kinds = {Kind.SLOW_ITERATION}
        kinds |= {Kind.STARTUP, Kind.WARM_UP} if at == 1 else set()  # its copies had to wait
        kinds |= {Kind.STEP} if at == iterations else set()  # from the last one on
        return finding.kind in kinds and times == {at}
    named = {single.benchmark for single in finding.singles} or set(finding.benchmarks)
    copies = {single.copy for single in finding.singles} or set(finding.copies)
    of_lgroup = finding.kind is Kind.SLOW_LGROUP and finding.nodes == (injection.node,)
    here = of_lgroup or (finding.kind in PLACED and copies == set(injection.copies))
    when = times == {at} if at else len(times) in (0, iterations)
    return here and when and (injection.benchmark is None or named == {injection.benchmark})


def _alias(finding: Finding, injection: Injection, iterations: int) -> bool:
    """Tell whether a finding is another true description of what was injected."""
    at, kind = injection.iteration, injection.kind
    if finding.slowdown <= 1 or kind is PlantKind.NOTHING:
        return False
    if kind is PlantKind.SLOW_ITERATION:
        first = finding.kind in (Kind.STARTUP, Kind.WARM_UP) and at == 1
        return first or (finding.kind in (Kind.DRIFT, Kind.STEP) and at in (1, iterations))
    if finding.kind is Kind.SLOW_ITERATION:
        return at is not None and (finding.benchmark, finding.iteration) == (
            injection.benchmark,
            at,
        )
    # The slowed part, benchmark by benchmark or copy by copy, or an lgroup of little more.
    lgroup = finding.kind is Kind.SLOW_LGROUP and len(finding.copies) <= _FEW_COPIES
    inside = bool(finding.copies) and {*finding.copies} <= {*injection.copies}
    around = lgroup and {*injection.cpus} <= {*finding.cpus}
    return finding.kind in (*PLACED, Kind.BIMODAL) and (inside or around)


class Tally(Struct, frozen=True, kw_only=True):
    """What a self-test came to."""

    planted: int  # divots that there were to be found, in runs that nobody disturbed
    named: int
    false: int  # findings that were wrong, those of the clean run too
    failed: int  # planted, but without effect
    unjudged: int  # runs that others disturbed too much to tell

    @property
    def right(self) -> bool:
        """Whether all was named and nothing else."""
        return self.named == self.planted and not (self.false or self.failed or self.unjudged)


def tally(judgements: Sequence[Judgement]) -> Tally:
    """Count what was planted and named."""
    judged = [judgement for judgement in judgements if judgement.verdict is not Verdict.NOT_JUDGED]
    there = [it for it in judged if it.injection.kind is not PlantKind.NOTHING and not it.failed]
    return Tally(
        planted=len(there),
        named=sum(bool(it.named) for it in there),
        false=sum(len(it.false) for it in judged),
        failed=sum(it.failed for it in judged),
        unjudged=len(judgements) - len(judged),
    )


# -- What a run promises to show -------------------------------------------------------------------

# Share of divots of the promised size that are found: four in five are promised, less a tolerance.
_PROMISED = 0.75
_UNLIKELY = 0.001  # probability of so few hits by chance below which the promise is broken


class PromiseTrials(Struct, frozen=True):
    """How often something just so slow as a run promises to show was found in runs like it."""

    scope: str  # as the search for divots names its promises
    injection: Injection  # the first of them
    trials: int
    found: int

    @property
    def kept(self) -> bool:
        """Whether so few hits come by chance with probability `_UNLIKELY` or more (binomial)."""
        probabilities = (
            math.comb(self.trials, hits) * _PROMISED**hits * (1 - _PROMISED) ** (self.trials - hits)
            for hits in range(self.found + 1)
        )
        return sum(probabilities) >= _UNLIKELY
