"""Steady mode: what completes inside a window; pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from rater.analysis.results.outcome import failure_text
from rater.analysis.results.steadiness import Steadiness, TimedRun, compare_halves, rounded_up
from rater.analysis.stats.estimate import Spread, lower_median_index, spread
from rater.plan.schedule import ring_steps
from rater.record.run import BenchmarkUsed, CopyStatus, Validity
from rater.record.stored import RunHead, StoredBracket, StoredCopy, StoredRun, is_good
from rater.text.values import group_by_key

# -- How much of a window of steady mode its copies ran, and what lay between two runs -------------
#
# Between two runs of a copy lies rater's own start of the next one (milliseconds),
# and a set-up per copy or the laying out of its inputs where a suite has them: all
# that is inside the window and lowers the rate, and is not the program's doing.

ENOUGH = 0.95  # of the window; below, a rate says too much of rater and too little of the program


def occupied_share(
    rows: Sequence[StoredCopy], window_ns: tuple[int, int], copies: int
) -> float | None:
    """Return the share of the copies' time in the window in which their runs went, good or bad."""
    begin, end = window_ns
    if end <= begin or not copies:
        return None
    inside_ns = sum(
        max(0, min(row.finish_ns, end) - max(row.start_ns, begin))
        for row in rows
        if row.start_ns is not None and row.finish_ns is not None
    )
    return inside_ns / (copies * (end - begin))


def gaps_ns(rows: Sequence[StoredCopy]) -> list[tuple[int, int]]:
    """Return the end of each run of a copy with the start of its next, copy by copy."""
    runs = group_by_key(
        (row.copy, (row.start_ns, row.finish_ns))
        for row in rows
        if row.start_ns is not None and row.finish_ns is not None
    )
    return [
        (sooner[1], later[0])
        for times in runs.values()
        for sooner, later in pairwise(sorted(times))
    ]


def median_gap_s(rows: Sequence[StoredCopy], window_ns: tuple[int, int]) -> float | None:
    """Return the median time between two runs of a copy, of all gaps that reach into the window.

    None where no copy has two runs there. What a copy began after the window is not stored.
    """
    begin, end = window_ns
    inside = [
        max(0, start - finish) for finish, start in gaps_ns(rows) if finish < end and start > begin
    ]
    return statistics.median(inside) / 1e9 if inside else None


# -- Steady mode: what copies that run again and again complete inside a window --------------------
#
# A run that crosses an edge of the window counts by its share inside (time inside
# / its whole time). Over windows at any moment of a process that keeps its pace
# this is unbiased: a run contributes 1 / its time at each of its moments, hence 1
# in all. Counts of whole runs, given beside it, lack one run or so of each copy.
# Directly after a common start it is not quite: the first runs are no fair sample
# of what runs at a given moment (long ones fill more moments), and the rate is
# too high by the square of their CV. Hence a warm-up of one run at least.
#
# Completions per second x reference is comparable with homogeneous mode's
# copies x reference / bracket, where `copies` runs complete in one bracket.
#
# In rotated order one window has all benchmarks; a copy's rate is then the work
# it does in a second, its benchmarks' reference seconds summed up.

NO_WINDOW = "no complete window: stopped or suspended before all runs in it had ended"
_HOUR_S = 3600.0


class CopyRate(Struct, frozen=True):
    """What one copy completed inside the window, and where it ran."""

    copy: int
    cpu: int | None
    node: int | None
    completions: float  # runs across an edge by their share inside
    whole: int  # runs that lay inside
    rate: float  # in the window's unit


class NodeRate(Struct, frozen=True):
    """The copies of one lgroup together."""

    node: int | None
    copies: int
    rate: float  # sum over them, in the window's unit
    per_copy: float
    slowdown: float | None  # mean rate of all copies / theirs; above 1: slower


class SteadyRate(Struct, frozen=True):
    """One benchmark inside one window."""

    benchmark: str
    category: str | None
    reference_s: float | None
    completions: float
    whole: int
    per_hour: float
    ratio: float | None  # completions per second x reference
    median_run_s: float | None  # of the good runs that reach into the window


class SteadyPhase(Struct, frozen=True):
    """One window: of one benchmark, or in rotated order of all."""

    phase: int
    iteration: int
    counted: bool
    warmup_s: float
    window_s: float
    benchmarks: tuple[SteadyRate, ...]  # in ring order
    # Of the copies' rates: "copies/hour" of the one benchmark; for several "reference s/s", or
    # "typical s/s" (median seconds of each run) where a reference time is missing.
    unit: str
    copies: tuple[CopyRate, ...]  # by number
    rates: Spread | None  # of the copies
    slowest: CopyRate | None
    lgroups: tuple[NodeRate, ...]  # by node; the copies whose node is not known last
    halves: Steadiness | None  # None: no good run reached into the window
    longest_warmup_run_s: float | None  # of the good runs that began before the window
    needed_warmup_s: float | None  # None: the warm-up is as long as the longest run in it
    occupied: float | None  # share of the copies' time in the window in which runs went
    gap_s: float | None  # median time between two runs of a copy; None: no copy had two there
    good_copies: int  # without a run that went wrong, in the window or across its edges
    failed_copies: int  # with one that failed, there or as their last one before
    reason: str | None  # why the rates are no result, in words

    @property
    def ratio(self) -> float | None:
        """Reference seconds of work per second, None where a reference is missing."""
        ratios = [rate.ratio for rate in self.benchmarks]
        known = [ratio for ratio in ratios if ratio is not None]
        return sum(known) if known and len(known) == len(ratios) else None

    @property
    def per_hour(self) -> float:
        """Completed runs an hour, whatever they are of."""
        return sum(rate.per_hour for rate in self.benchmarks)


class SteadyMix(Struct, frozen=True):
    """Steady mode in rotated order: windows with all benchmarks in them."""

    phases: tuple[SteadyPhase, ...]  # by iteration
    selected: SteadyPhase | None  # the median counted one by ratio, of two the slower
    reason: str | None  # what is missing, in words; may stand beside a result


def is_steady(head: RunHead) -> bool:
    """Tell whether a run has windows (imported ones of that mode have brackets at best)."""
    return head.mode == "steady" and head.window_s is not None


def share_inside(row: StoredCopy, bracket: StoredBracket) -> float:
    """Return the share of a run that lies inside the bracket's window, 0 for none."""
    begin, end = bracket.window_start_ns, bracket.window_finish_ns
    if begin is None or end is None or row.start_ns is None or row.finish_ns is None:
        return 0.0
    inside_ns = min(row.finish_ns, end) - max(row.start_ns, begin)
    return inside_ns / row.elapsed_ns if inside_ns > 0 and row.elapsed_ns > 0 else 0.0


def score_mix(run: StoredRun) -> SteadyMix:
    """Return the results of a steady run in rotated order."""
    rows = group_by_key((copy.phase, copy) for copy in run.copies)
    brackets = sorted(run.brackets, key=lambda bracket: bracket.iteration or 0)
    phases = [score_window(run.head, b, rows.get(b.phase, ()), run.benchmarks) for b in brackets]
    counted = [phase for phase in phases if phase.counted]
    valid = [phase for phase in counted if phase.reason is None]
    selected = None
    if valid and not any(phase.failed_copies for phase in counted):
        by_ratio = all(phase.ratio is not None for phase in valid)
        values = [(p.ratio or 0.0) if by_ratio else p.per_hour for p in valid]
        selected = valid[lower_median_index(values)]
    return SteadyMix(tuple(phases), selected, _missing(run.head, phases))


def _missing(head: RunHead, phases: Sequence[SteadyPhase]) -> str | None:
    counted = [phase for phase in phases if phase.counted]
    for phase in counted:
        if phase.reason:
            several = f"iteration {phase.iteration}: " if len(phases) > 1 else ""
            return several + phase.reason
    wanted = head.iterations - head.discard
    if len(counted) < wanted:
        return f"{len(counted)} of {wanted} counted iterations ran" if counted else "did not run"
    return None


def score_window(
    head: RunHead,
    bracket: StoredBracket,
    rows: Sequence[StoredCopy],
    used: Sequence[BenchmarkUsed],
) -> SteadyPhase:
    """Return what one window says; `rows` are its phase's, `used` the benchmarks that ran in it."""
    begin, end = bracket.window_start_ns, bracket.window_finish_ns
    closed = begin is not None and end is not None and end > begin
    window_ns = (begin or 0, (end or 0) if closed else (begin or 0))
    length_s = (window_ns[1] - window_ns[0]) / 1e9
    reach = [row for row in rows if _reaches(row, window_ns)] if closed else []
    good = [(row, share_inside(row, bracket)) for row in reach if is_good(row)]
    typical_s = _typical(row for row, _ in good)
    rates = tuple(_rate(one, good, typical_s, length_s) for one in used)
    unit, work = _work(used, typical_s)
    copies = _copy_rates(good, work, length_s)
    slowest = min(copies, key=lambda copy: (copy.rate, copy.copy), default=None)
    timed = [
        TimedRun(row.copy, row.start_ns or 0, row.finish_ns or 0, typical_s[row.benchmark])
        for row, _ in good
    ]
    numbers = [copy.copy for copy in copies]
    # A copy that fails does not start again: one that did before the window is missing in it.
    present = {row.copy for row in reach}
    last = {row.copy: row for row in sorted(rows, key=lambda row: row.step)}
    early = [row for copy, row in sorted(last.items()) if copy not in present and _failed(row)]
    failed = {row.copy for row in (*reach, *early) if _failed(row)}
    warmup_s = (window_ns[0] - (bracket.start_ns or 0)) / 1e9 if closed else head.warmup_s or 0.0
    longest_s = _longest_warmup_run(rows, window_ns[0]) if closed else None
    return SteadyPhase(
        phase=bracket.phase,
        iteration=bracket.iteration or 0,
        counted=bracket.counted,
        warmup_s=warmup_s,
        window_s=length_s if closed else head.window_s or 0.0,
        benchmarks=rates,
        unit=unit,
        copies=copies,
        rates=spread([copy.rate for copy in copies]),
        slowest=slowest,
        lgroups=_lgroups(copies),
        halves=compare_halves(timed, numbers, window_ns) if timed else None,
        longest_warmup_run_s=longest_s,
        needed_warmup_s=(
            rounded_up(longest_s) if longest_s is not None and longest_s > warmup_s else None
        ),
        occupied=occupied_share(rows, window_ns, head.copies) if closed else None,
        gap_s=median_gap_s(rows, window_ns) if closed else None,
        good_copies=len(present - {row.copy for row in reach if not is_good(row)}),
        failed_copies=len(failed),
        reason=(
            _why_no_result(head, bracket, (*early, *reach)) or _unseen(head, rates)
            if closed
            else _why_no_window(head, rows, early)
        ),
    )


def _failed(row: StoredCopy) -> bool:
    return not is_good(row) and row.status is not CopyStatus.INTERRUPTED


def _reaches(row: StoredCopy, window_ns: tuple[int, int]) -> bool:
    if row.start_ns is None or row.finish_ns is None:
        return False
    return row.start_ns < window_ns[1] and row.finish_ns > window_ns[0]


def _typical(rows: Iterable[StoredCopy]) -> dict[str, float]:
    times = group_by_key((row.benchmark, row.elapsed_ns) for row in rows)
    return {name: statistics.median(of) / 1e9 for name, of in times.items()}


def _rate(
    used: BenchmarkUsed,
    good: Sequence[tuple[StoredCopy, float]],
    typical_s: dict[str, float],
    length_s: float,
) -> SteadyRate:
    shares = [share for row, share in good if row.benchmark == used.name]
    completions = sum(shares)
    per_s = completions / length_s if length_s else 0.0
    return SteadyRate(
        benchmark=used.name,
        category=used.category,
        reference_s=used.reference_s,
        completions=completions,
        whole=sum(share == 1.0 for share in shares),
        per_hour=per_s * _HOUR_S,
        ratio=per_s * used.reference_s if used.reference_s and length_s else None,
        median_run_s=typical_s.get(used.name),
    )


def _work(
    used: Sequence[BenchmarkUsed], typical_s: dict[str, float]
) -> tuple[str, dict[str, float]]:
    """Return the unit of a copy's rate, and what one run of each benchmark is worth in a second."""
    if len(used) == 1:
        return "copies/hour", {used[0].name: _HOUR_S}
    references = {one.name: one.reference_s for one in used}
    known = {name: seconds for name, seconds in references.items() if seconds}
    if len(known) == len(references):
        return "reference s/s", known
    return "typical s/s", typical_s


def _copy_rates(
    good: Sequence[tuple[StoredCopy, float]],
    work: dict[str, float],
    length_s: float,
) -> tuple[CopyRate, ...]:
    by_copy = group_by_key((row.copy, (row, share)) for row, share in good)
    return tuple(
        CopyRate(
            copy=number,
            cpu=runs[0][0].cpu,
            node=runs[0][0].node,
            completions=sum(share for _, share in runs),
            whole=sum(share == 1.0 for _, share in runs),
            rate=sum(share * work[row.benchmark] for row, share in runs) / length_s,
        )
        for number, runs in sorted(by_copy.items())
    )


def _lgroups(copies: Sequence[CopyRate]) -> tuple[NodeRate, ...]:
    members = group_by_key((copy.node, copy.rate) for copy in copies)
    mean = statistics.fmean(copy.rate for copy in copies) if copies else 0.0
    ordered = sorted(members.items(), key=lambda item: (item[0] is None, item[0] or 0))
    return tuple(
        NodeRate(
            node=node,
            copies=len(rates),
            rate=sum(rates),
            per_copy=statistics.fmean(rates),
            slowdown=mean / statistics.fmean(rates) if sum(rates) > 0 else None,
        )
        for node, rates in ordered
    )


def _longest_warmup_run(rows: Sequence[StoredCopy], begin_ns: int) -> float | None:
    return max(
        (
            row.elapsed_s
            for row in rows
            if is_good(row) and row.start_ns is not None and row.start_ns < begin_ns
        ),
        default=None,
    )


def _why_no_window(
    head: RunHead, rows: Sequence[StoredCopy], given_up: Sequence[StoredCopy]
) -> str:
    """Say why a phase has no window; `given_up`: the last runs of copies that failed."""
    if not given_up:
        return NO_WINDOW
    what = f"copy {given_up[0].copy}: {failure_text(given_up[0])}"
    release_ns = min(row.start_ns or 0 for row in rows)
    after_s = max((row.finish_ns or 0) - release_ns for row in given_up) / 1e9
    warmup_s = head.warmup_s or 0.0
    # A wrong output ends no copy. Copies that stood still for a while can have failed later.
    ended = sum(row.status in (CopyStatus.FAILED, CopyStatus.TIMEOUT) for row in given_up)
    if ended == head.copies and after_s < warmup_s + (head.window_s or 0.0):
        opened = " closed" if after_s >= warmup_s else ""
        return f"all copies failed before the window{opened}; {what}"
    if len(given_up) == 1:
        return what
    return f"{len(given_up)} of {head.copies} copies failed; {what}"


def _why_no_result(
    head: RunHead, bracket: StoredBracket, reach: Sequence[StoredCopy]
) -> str | None:
    """Say why the rates of a window that closed are no result.

    A run that ended before it counts only where its copy came no further.
    """
    bad = [row for row in reach if _failed(row)]
    if bad:
        first = bad[0]
        what = f"copy {first.copy}: {failure_text(first)}"
        return what if len(bad) == 1 else f"{len(bad)} of {len(reach)} runs failed; {what}"
    if not bracket.complete or not all(is_good(row) for row in reach):
        return NO_WINDOW
    missing = sorted(set(range(head.copies)) - {row.copy for row in reach})
    if missing:
        several = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        return f"copy {missing[0]}{several} has no run in the window"
    unchecked = sum(row.validity is Validity.UNCHECKED for row in reach)
    if unchecked:
        return f"the output of {unchecked} of {len(reach)} runs was not checked"
    return None


def _unseen(head: RunHead, rates: Sequence[SteadyRate]) -> str | None:
    """Say that a window was too short for the ring: what ran in it is no mix of all then."""
    ring = head.benchmarks
    if len(rates) < 2:
        return None
    queues = (ring_steps(copy, len(ring), head.increment) for copy in range(head.copies))
    queued = {ring[position] for positions in queues for position in positions}
    unseen = [r.benchmark for r in rates if r.benchmark in queued and not r.completions]
    if not unseen:
        return None
    return (
        f"{len(unseen)} of {len(queued)} benchmarks did not run in the window "
        f"({', '.join(unseen)}): it must be longer than a round of all, raise --window"
    )
