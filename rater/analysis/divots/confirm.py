"""Whether a divot is there again, and whether it is of the place or of the copy; pure.

Two questions alternate. A: the copies of the finding, with their numbers, on its CPUs. B: the same
copies on CPUs like them (is it the place?). C: other copies on the CPUs of the finding (is it the
copy?). They run in turn (A B C A B C ...), so that what drifts over time hits all sides alike.
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
from rater.analysis.results.cpu_time import CpuTimeRule
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
    copies_of_run: int
    numbers: tuple[int, ...]  # of the finding's copies, in the order of the CPUs that they get
    other_numbers: tuple[int, ...]  # as many other copies, no finding is about; (): there are none


class ConfirmVerdict(StrEnum):
    """What the pairs say of a finding."""

    CONFIRMED = "confirmed"
    SMALLER = "confirmed in part"
    NOT_CONFIRMED = "not confirmed"
    OPEN = "open"  # too noisy to tell the effect from none
    CANNOT_TELL = "cannot tell"  # most runs were disturbed


class ConfirmCause(StrEnum):
    """What a divot is of, by both questions together."""

    PLACE = "place"
    COPY = "copy"
    NEITHER = "neither"
    CANNOT_TELL = "cannot tell"


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
    suspect_copies = {
        copy
        for suspect in findings
        if not suspect.explained and suspect.kind in PLACED
        for copy in suspect.copies
    }
    numbers = _in_order_of_cpus(run, own_cpus, set(finding.copies))
    return ConfirmPlan(
        place=finding.place,
        benchmarks=names,
        copies=copies,
        here=own_cpus,
        there=like_cpus,
        there_name=name,
        slowdown=finding.slowdown,
        copies_of_run=run.head.copies,
        numbers=numbers,
        other_numbers=_median_copies(run, names, suspect_copies, len(numbers)),
    )


def _in_order_of_cpus(run: StoredRun, cpus: Sequence[int], copies: set[int]) -> tuple[int, ...]:
    """Return copies in the order in which a list of CPUs gives them out, round after round."""
    by_cpu: dict[int, list[int]] = {cpu: [] for cpu in cpus}
    for placement in run.placements:
        if placement.copy in copies and placement.cpu in by_cpu:
            by_cpu[placement.cpu].append(placement.copy)
    rounds = max(map(len, by_cpu.values()), default=0)
    return tuple(
        of_cpu[turn] for turn in range(rounds) for of_cpu in by_cpu.values() if turn < len(of_cpu)
    )


def _median_copies(
    run: StoredRun, benchmarks: Sequence[str], without: set[int], count: int
) -> tuple[int, ...]:
    """Return so many copies whose times lie nearest to the median; empty if there are too few."""
    logs: dict[int, list[float]] = {}
    for copy in run.without_torn().copies:
        if copy.copy not in without and copy.benchmark in benchmarks and is_good(copy):
            logs.setdefault(copy.copy, []).append(math.log(max(copy.elapsed_ns, 1)))
    typical = {copy: median(of_copy) for copy, of_copy in logs.items()}
    if len(typical) < count:
        return ()
    middle = median(typical.values())
    nearest = sorted(typical, key=lambda copy: (abs(typical[copy] - middle), copy))
    return tuple(sorted(nearest[:count]))


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


def cpu_times_of(run: StoredRun) -> dict[str, float] | None:
    """Return the median copy's CPU seconds of each benchmark; None: CPU time may not judge."""
    run = run.without_torn()
    rule = CpuTimeRule(run)
    rows = [copy for copy in run.copies if copy.counted]
    keys = {(copy.benchmark, copy.tune) for copy in rows}
    if not keys or any(rule.why_not(key) is not None for key in keys):
        return None
    bad = {copy.benchmark for copy in rows if not is_good(copy)}
    return {
        name: median([(copy.cpu_ns or 0) / 1e9 for copy in rows if copy.benchmark == name])
        for name in sorted({copy.benchmark for copy in rows} - bad)
    }


def judge_cause(place: ConfirmResult, copy: ConfirmResult | None) -> ConfirmCause:
    """Return what a divot is of. A trial without other copies has no answer for the `copy`.

    Where both questions are answered with yes, the one with the larger effect counts.
    """
    there_again = (ConfirmVerdict.CONFIRMED, ConfirmVerdict.SMALLER)
    is_of_place = place.answer in there_again
    is_of_copy = copy is not None and copy.answer in there_again
    if is_of_place and is_of_copy and copy is not None:
        is_of_place = abs(math.log(place.slowdown)) >= abs(math.log(copy.slowdown))
        is_of_copy = not is_of_place
    if is_of_place or is_of_copy:
        return ConfirmCause.PLACE if is_of_place else ConfirmCause.COPY
    answers = {place.answer, *([copy.answer] if copy is not None else [])}
    is_neither = answers == {ConfirmVerdict.NOT_CONFIRMED}
    return ConfirmCause.NEITHER if is_neither else ConfirmCause.CANNOT_TELL


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
