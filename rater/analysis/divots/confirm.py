"""Whether a slow place is slow again: which CPUs against which, and what the pairs say; pure.

The copies of the finding's place run against as many on CPUs like them, in turn
(A B A B ...), so that what drifts over time hits both sides of a pair alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean, median, stdev

from msgspec import Struct

from rater.analysis.divots.model import formatting
from rater.analysis.divots.model.finding import PLACED, Finding, Kind
from rater.analysis.stats.estimate import t_quantile
from rater.record.run import Placement
from rater.record.stored import StoredRun, is_good

CONFIDENCE = 0.95
LEAST_PAIRS = 2
_HALF = 0.5  # of the effect that was found; a smaller one counts as another effect


class ConfirmPlan(Struct, frozen=True, kw_only=True):
    """What would confirm a finding: its benchmarks by so many copies here and there."""

    place: str
    benchmarks: tuple[str, ...]
    copies: int  # on each side
    here: tuple[int, ...]  # CPUs of the finding, ascending
    there: tuple[int, ...]  # as many others
    there_name: str
    slowdown: float  # as it was found


class ConfirmVerdict(StrEnum):
    """What the pairs say of a finding."""

    CONFIRMED = "confirmed"
    SMALLER = "confirmed in part"
    NOT_CONFIRMED = "not confirmed"
    OPEN = "open"  # too noisy to tell the effect from none
    CANNOT_TELL = "cannot tell"  # most runs were disturbed


class ConfirmResult(Struct, frozen=True, kw_only=True):
    """The slowdown over all pairs with its interval (Student, 95 %), as time over time."""

    answer: ConfirmVerdict
    slowdown: float
    low: float
    high: float
    pairs: tuple[float, ...]  # slowdown of each pair, in order


def next_commands(findings: Sequence[Finding], run: StoredRun, *, of_kit: bool) -> tuple[str, ...]:
    """Return what to type to see whether each divot of a run, as numbered, is there again.

    `of_kit`: in run directories of SPEC CPU, which are made for one number of copies.
    """
    number, again = run.head.run, f"rater rerun {run.head.run} && rater divots {run.head.run} last"
    divots = [finding for finding in findings if not finding.explained]
    return tuple(
        again
        if of_kit or isinstance(trial_of(divot, findings, run), str)
        else f"rater divots --confirm {number} --finding {place}"
        for place, divot in enumerate(divots, 1)
    )


def trial_of(finding: Finding, findings: Sequence[Finding], run: StoredRun) -> ConfirmPlan | str:
    """Return the trial of a finding, or why there is none.

    The other side is a part of the same kind that no finding is about: another
    lgroup with as many CPUs of the run, else CPUs of the same lgroup, nearest first.
    """
    if finding.explained or finding.kind not in PLACED:
        return (
            f"a divot of kind {finding.kind} has no place to compare with another; "
            f"`rater rerun {run.head.run}` shows whether it comes back"
        )
    threads = [benchmark.name for benchmark in run.benchmarks if benchmark.threads > 1]
    if threads:
        return f"a copy of {threads[0]} uses several CPUs"
    used = {placement.cpu: placement for placement in run.placements if placement.cpu is not None}
    own_cpus = tuple(sorted(set(finding.cpus) & used.keys()))
    bound = {(placement.copy, placement.cpu) for placement in run.placements}
    copies = sum((copy, cpu) in bound for copy in finding.copies for cpu in own_cpus)
    if not copies:
        moved = own_cpus or "moves" in dict(finding.details)
        return (
            f"its copies were {'on other CPUs in each iteration' if moved else 'not bound to CPUs'}"
        )
    suspects = {
        cpu
        for suspect in findings
        if not suspect.explained and suspect.kind in PLACED
        for cpu in suspect.cpus
    }
    like_cpus = _like(finding, own_cpus, used, suspects) or _like(finding, own_cpus, used, set())
    if not like_cpus:
        return f"the run had no other {len(own_cpus)} CPUs to compare with"
    whole = finding.kind is Kind.SLOW_LGROUP
    name = f"node {used[like_cpus[0]].node}" if whole else formatting.format_cpus(like_cpus)
    names = finding.benchmarks or tuple(used.name for used in run.benchmarks)
    return ConfirmPlan(
        place=finding.place,
        benchmarks=names,
        copies=copies,
        here=own_cpus,
        there=like_cpus,
        there_name=name,
        slowdown=finding.slowdown,
    )


def _like(
    finding: Finding, own_cpus: Sequence[int], used: dict[int, Placement], suspects: set[int]
) -> tuple[int, ...]:
    """Return as many CPUs like those of a finding, nearest first; empty if there are too few."""
    nodes = {used[cpu].node for cpu in own_cpus}
    cores = {used[cpu].core for cpu in own_cpus}
    free = [used[cpu] for cpu in sorted(used.keys() - suspects - {*own_cpus})]
    if finding.kind is Kind.SLOW_LGROUP:
        first = min((node for node in nodes if node is not None), default=0)
        package = used[own_cpus[0]].package
        free = [placement for placement in free if placement.node not in {None, *nodes}]
        of_node = Counter(placement.node for placement in free)
        free = [placement for placement in free if of_node[placement.node] >= len(own_cpus)]
        free.sort(
            key=lambda placement: (
                placement.package != package,
                abs((placement.node or 0) - first),
                placement.node,
            )
        )
    else:
        free = [
            placement for placement in free if placement.core is None or placement.core not in cores
        ]
        free.sort(
            key=lambda placement: (
                placement.node not in nodes,
                abs((placement.cpu or 0) - own_cpus[0]),
                placement.cpu,
            )
        )
    like_cpus = sorted(
        placement.cpu for placement in free[: len(own_cpus)] if placement.cpu is not None
    )
    return tuple(like_cpus) if len(like_cpus) == len(own_cpus) else ()


def times_of(run: StoredRun) -> dict[str, float]:
    """Return the median copy's seconds of each benchmark; a failed copy leaves its one out."""
    run = run.without_torn()
    names = {copy.benchmark for copy in run.copies}
    bad = {copy.benchmark for copy in run.copies if not is_good(copy)}
    return {
        name: median([copy.elapsed_s for copy in run.copies if copy.benchmark == name])
        for name in sorted(names - bad)
    }


def slowdown_of(times_s: dict[str, float], other_times_s: dict[str, float]) -> float | None:
    """Return the geometric mean of time over time of one pair; None if they share no benchmark."""
    log_ratios = [
        math.log(times_s[name] / other_times_s[name])
        for name in times_s.keys() & other_times_s.keys()
    ]
    return math.exp(fmean(log_ratios)) if log_ratios else None


def judge_pairs(slowdowns: Sequence[float], found_slowdown: float) -> ConfirmResult:
    """Return what two pairs or more say of a finding whose slowdown was `found_slowdown`.

    Confirmed: the interval is all on the finding's side of 1, and the effect is half of
    the one found or more. Open: the interval holds 1 as well as that half.
    """
    logs = [math.log(slowdown) for slowdown in slowdowns]
    mean = fmean(logs)
    reach = t_quantile(CONFIDENCE, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    side = math.copysign(1.0, math.log(found_slowdown))
    half = _HALF * abs(math.log(found_slowdown))
    nearest, farthest = side * mean - reach, side * mean + reach
    if nearest > 0:
        answer = ConfirmVerdict.CONFIRMED if side * mean >= half else ConfirmVerdict.SMALLER
    else:
        answer = ConfirmVerdict.OPEN if farthest >= half else ConfirmVerdict.NOT_CONFIRMED
    return ConfirmResult(
        answer=answer,
        slowdown=math.exp(mean),
        low=math.exp(mean - reach),
        high=math.exp(mean + reach),
        pairs=tuple(slowdowns),
    )
