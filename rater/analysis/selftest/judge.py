"""What was planted against what was found; pure.

The rules are those that detectors are scored by (the note on divots): a finding names
a planted divot when its kind and every place it gives agree; another true description
of the same divot is neither right nor wrong; everything else is false.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from rater.analysis.divots.data.finding import Finding, Kind
from rater.analysis.selftest.cpu_speed import STEADY, Costs, speeds_of
from rater.groups import grouped
from rater.plan.selftest import Fault, Injection

# A clean run whose copies differ by more can not tell what is planted from chance.
NOISIEST = 0.06
# So much of an undisturbed run must have run at a steady speed to say how noisy it is.
_LEAST_STEADY = 2 / 3
# What is judged: a machine does twice in an hour what it just did once. At most half of what is
# injected.
_LEAST_FLOOR = 0.05
_FLOOR_TIMES = 2.0
_CAME_TO = 0.5  # of what was aimed at: less and there is nothing to be found
_FOUND_SIZE = (0.5, 2.0)  # of the size that a plain comparison shows, on a scale of ratios
_FEW_COPIES = 2

# Benchmark, iteration, copy: seconds.
type Times = Mapping[tuple[str, int, int], float]


@dataclass(frozen=True, slots=True)
class Deviation:
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


@dataclass(frozen=True, slots=True)
class Judgement:
    """One planted divot and what was found in its run."""

    injection: Injection
    made: float | None  # time over undisturbed time, by a plain comparison with the clean run
    named: tuple[Finding, ...]
    secondary: tuple[Finding, ...]  # true as well, in other words
    false: tuple[Finding, ...]
    small: tuple[Finding, ...]  # below what this machine does by itself: not judged
    own: tuple[Finding, ...] = ()  # not planted, but so: the CPUs' own speed changed like that
    failed: bool = False  # its effect did not come: there was nothing to be found
    others: float | None = None  # share of a CPU that others took, where it was too much
    unsteady: float | None = None  # by how much a CPU's own speed changed, where it was too much
    disturbed: str = ""  # by whom and where, in words; "" where it was not, or not too much

    @property
    def verdict(self) -> Verdict:
        """Return what became of it. Named and nothing else is right, whatever others did."""
        named = self.injection.kind is Fault.NOTHING or bool(self.named)
        if named and not self.false and not self.failed:
            return Verdict.RIGHT
        if self.others is not None or self.unsteady is not None:
            return Verdict.NOT_JUDGED
        return Verdict.NO_EFFECT if self.failed else Verdict.WRONG


def spread_of(
    times: Times, costs: Costs | None = None, cpu_of: Mapping[int, int] | None = None
) -> Deviation | None:
    """Return by how much copies differ with nothing planted; None where no copy ended well.

    Copies whose CPU did not run at its usual speed are left out, unless there are too many
    of them: what slowed the CPU is not the copies' own difference.
    """
    usual = _usual(times, lambda name, _: name)
    found = [
        Deviation(abs(seconds / usual[name] - 1), name, iteration, copy)
        for (name, iteration, copy), seconds in times.items()
    ]
    if costs and cpu_of:
        speeds = speeds_of(costs)
        steady = [
            one
            for one in found
            if abs(speeds.get((one.benchmark, one.iteration, cpu_of[one.copy]), 0.0)) <= STEADY
        ]
        if len(steady) >= _LEAST_STEADY * len(found):
            found = steady
    return max(found, key=lambda one: one.size, default=None)


def floor_of(spread: float) -> float:
    """Return the smallest slowdown (as a share) that is judged on a machine this noisy."""
    return max(_LEAST_FLOOR, _FLOOR_TIMES * spread)


def made(injection: Injection, times: Times, clean: Times, iterations: int) -> float | None:
    """Return how much slower the planted copies ran than in the clean run, as a ratio.

    Over what the undisturbed ones of the same run did; None where there are none to
    compare with. Of drift, the last iteration over the first. A benchmark that the
    clean run lacks is compared inside its own run.
    """
    usual = _usual(clean, lambda name, copy: (name, copy))
    own = _usual(times, lambda name, _: name)
    inside, outside = [], []
    for (name, iteration, copy), seconds in times.items():
        ratio = seconds / usual.get((name, copy), own[name])
        if injection.kind is Fault.DRIFT:
            if iteration == iterations:
                inside.append(ratio)
            elif iteration == 1:
                outside.append(ratio)
        elif _concerns(injection, name, iteration, copy):
            inside.append(ratio)
        else:
            outside.append(ratio)
    return median(inside) / median(outside) if inside and outside else None


def judge(
    injection: Injection,
    effect: float | None,
    findings: Iterable[Finding],
    floor: float,
    iterations: int,
    *,
    others: float | None = None,
    unsteady: float | None = None,
    is_own: Callable[[Finding], bool] = lambda _: False,
) -> Judgement:
    """Sort what was found in the run of an injection; `effect` is what `made` says of it.

    `others`: the share of a CPU that others took meanwhile, `unsteady`: by how much a
    CPU's own speed changed, each where it was too much. `is_own` tells whether what was not
    planted is true of the machine all the same.
    """
    named, secondary, false, small, own = [], [], [], [], []
    for one in findings:
        if one.explained:
            continue
        if _names(one, injection, iterations) and _fits(one.slowdown, effect):
            named.append(one)
        elif _alias(one, injection, iterations):
            secondary.append(one)
        elif abs(one.slowdown - 1) < floor:
            small.append(one)
        elif is_own(one):
            own.append(one)
        else:
            false.append(one)
    failed = effect is not None and not _came(injection, effect, floor)
    return Judgement(
        *(
            injection,
            effect,
            tuple(named),
            tuple(secondary),
            tuple(false),
            tuple(small),
            tuple(own),
        ),
        *(failed, others, unsteady),
    )


def _came(injection: Injection, effect: float, floor: float) -> bool:
    if injection.kind is Fault.NOTHING:
        return True
    least = floor if injection.aimed is None else _CAME_TO * (injection.aimed - 1)
    return effect - 1 >= least


def _usual[K](times: Times, key: Callable[[str, int], K]) -> dict[K, float]:
    """Return the median over what has the same key; `key` takes benchmark and copy."""
    cells = grouped((key(name, copy), seconds) for (name, _, copy), seconds in times.items())
    return {where: median(values) for where, values in cells.items()}


def _concerns(injection: Injection, benchmark: str, iteration: int, copy: int) -> bool:
    return (
        injection.benchmark in (None, benchmark)
        and injection.iteration in (None, iteration)
        and (not injection.copies or copy in injection.copies)
    )


def _fits(slowdown: float, effect: float | None) -> bool:
    """Tell whether a finding's size is about that of the effect."""
    if slowdown <= 1:
        return False
    if effect is None or effect <= 1:
        return True
    low, high = _FOUND_SIZE
    return low <= math.log(slowdown) / math.log(effect) <= high


def _names(one: Finding, injection: Injection, iterations: int) -> bool:
    """Tell whether a finding is what was injected, at its place."""
    kind = injection.kind
    if kind is Fault.DRIFT:
        return one.kind is Kind.DRIFT
    if kind is Fault.SLOW_ITERATION:
        # Of a slow first one, also that its copies had to wait.
        waited = one.kind is Kind.STARTUP and one.iteration == 1
        slow = one.kind is Kind.SLOW_ITERATION or waited
        return slow and one.iteration == injection.iteration
    if kind is Fault.OUTLIER_COPY:
        where = (injection.benchmark, injection.iteration, injection.copies)
        same = (
            all((it.benchmark, it.iteration, (it.copy,)) == where for it in one.singles)
            if one.singles
            else (one.benchmark, one.iteration, one.copies) == where
        )
        return one.kind is Kind.OUTLIER_COPY and same
    always = not one.iterations or len(one.iterations) == iterations
    return kind is not Fault.NOTHING and always and _names_part(one, injection)


def _names_part(one: Finding, injection: Injection) -> bool:
    if one.kind is Kind.SLOW_GROUP:  # of exactly those copies: all of that part, no other
        return one.copies == tuple(sorted(injection.copies))
    if injection.kind is Fault.SLOW_CPU:
        return one.kind is Kind.SLOW_CPU and one.cpus == injection.cpus
    return one.kind is Kind.SLOW_LGROUP and one.nodes == (injection.node,)


def _alias(one: Finding, injection: Injection, iterations: int) -> bool:
    """Tell whether a finding is another true description of what was injected."""
    kind = injection.kind
    if one.slowdown <= 1 or kind is Fault.NOTHING:
        return False
    if kind is Fault.OUTLIER_COPY:
        cell = (injection.benchmark, injection.iteration)
        return one.kind is Kind.SLOW_ITERATION and (one.benchmark, one.iteration) == cell
    if kind is Fault.SLOW_ITERATION:
        startup = one.kind is Kind.STARTUP and injection.iteration == 1
        return startup or (one.kind is Kind.DRIFT and injection.iteration in (1, iterations))
    if kind is Fault.DRIFT:
        return one.kind is Kind.SLOW_ITERATION and one.iteration in (1, iterations)
    return _is_within(one, injection)


def _is_within(one: Finding, injection: Injection) -> bool:
    """Tell whether it is of the slowed part, benchmark by benchmark or copy by copy."""
    if one.kind in (Kind.OUTLIER_COPY, Kind.BIMODAL, Kind.SLOW_GROUP):
        return bool(one.copies) and set(one.copies) <= set(injection.copies)
    if one.kind is Kind.SLOW_CPU:
        return bool(one.cpus) and set(one.cpus) <= set(injection.cpus)
    is_part_of = set(injection.cpus) <= set(one.cpus) and len(one.copies) <= _FEW_COPIES
    return one.kind is Kind.SLOW_LGROUP and is_part_of


@dataclass(frozen=True, slots=True)
class Tally:
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
    judged = [it for it in judgements if it.verdict is not Verdict.NOT_JUDGED]
    there = [it for it in judged if it.injection.kind is not Fault.NOTHING and not it.failed]
    return Tally(
        planted=len(there),
        named=sum(bool(it.named) for it in there),
        false=sum(len(it.false) for it in judged),
        # How much remote memory costs is the machine's own affair.
        failed=sum(it.failed and it.injection.aimed is not None for it in judged),
        unjudged=len(judgements) - len(judged),
    )
