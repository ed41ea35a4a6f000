"""Steady mode: what completes inside a window; pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from rater.analysis.results.result import (
    HOUR_S,
    CopyRate,
    CopyTime,
    Missing,
    NodeRate,
    Result,
    SteadyWindow,
    failures,
    why_failed,
    why_incomplete,
    why_missing,
)
from rater.analysis.results.steadiness import TimedRun, compare_halves, rounded_up
from rater.analysis.stats.estimate import lower_median_index, spread
from rater.plan.schedule import ring_steps
from rater.record.events import CopyEnded, PhaseEnded
from rater.record.run import BenchmarkUsed
from rater.record.stored import RunHead, StoredRun, is_good
from rater.text.cpuset import format_list
from rater.text.values import group_by_key

# -- How much of a window of steady mode its copies ran, and what lay between two runs -------------
#
# Between two runs of a copy lies rater's own start of the next one (milliseconds),
# and a set-up per copy or the laying out of its inputs where a suite has them: all
# that is inside the window and lowers the rate, and is not the program's doing.

ENOUGH = 0.95  # of the window; below, a rate says too much of rater and too little of the program


def occupied_share(
    rows: Sequence[CopyEnded], window_ns: tuple[int, int], copies: int
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


def gaps_ns(rows: Sequence[CopyEnded]) -> list[tuple[int, int]]:
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


def median_gap_s(rows: Sequence[CopyEnded], window_ns: tuple[int, int]) -> float | None:
    """Return the median time between two runs of a copy, of all gaps that reach into the window.

    None: no copy has two runs there. Runs that began after the window are not stored.
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


class Mix(Struct, frozen=True):
    """Steady mode in rotated order: windows with all benchmarks in them."""

    windows: tuple[SteadyWindow, ...]  # by iteration
    selected: SteadyWindow | None  # the median counted one by ratio, of two the slower
    reason: str | None  # what is missing; may stand beside a result


def is_steady(head: RunHead) -> bool:
    """Tell whether a run has windows (imported ones of that mode have brackets at best)."""
    return head.mode == "steady" and head.window_s is not None


def share_inside(row: CopyEnded, bracket: PhaseEnded) -> float:
    """Return the share of a run that lies inside the bracket's window, 0 for none."""
    begin, end = bracket.window_start_ns, bracket.window_finish_ns
    if begin is None or end is None or row.start_ns is None or row.finish_ns is None:
        return 0.0
    inside_ns = min(row.finish_ns, end) - max(row.start_ns, begin)
    return inside_ns / row.elapsed_ns if inside_ns > 0 and row.elapsed_ns > 0 else 0.0


def mix_of(run: StoredRun, windows: Sequence[SteadyWindow]) -> Mix:
    """Return the windows of a run in rotated order, and which of them stands for it."""
    counted = [window for window in windows if window.counted]
    valid = [window for window in counted if window.reason is None]
    selected = None
    if valid and not any(window.failed for window in counted):
        by_ratio = all(window.ratio is not None for window in valid)
        values = [(window.ratio or 0.0) if by_ratio else window.per_hour for window in valid]
        selected = valid[lower_median_index(values)]
    return Mix(tuple(windows), selected, why_incomplete(run.head, windows))


def window_results(run: StoredRun) -> Iterator[Result]:
    """Yield a result for each window and benchmark in it."""
    rows = group_by_key((copy.phase, copy) for copy in run.copies)
    for bracket in sorted(run.brackets, key=lambda bracket: bracket.iteration or 0):
        used = [
            benchmark for benchmark in run.benchmarks if bracket.benchmark in (None, benchmark.name)
        ]
        if used:
            runs = _window_runs(run.head, bracket, rows.get(bracket.phase, ()))
            yield from _results_in_window(runs, used)


class _WindowRuns(Struct, frozen=True, kw_only=True):
    """The runs of one phase, and which of them its window has."""

    head: RunHead
    bracket: PhaseEnded
    rows: Sequence[CopyEnded]  # all of the phase
    closed: bool  # False: the run was stopped before its window was over
    window_ns: tuple[int, int]  # begin and end; of no length where it did not close
    inside: Sequence[CopyEnded]  # runs that lie in the window at least in part
    good: Sequence[tuple[CopyEnded, float]]  # those of them that ended well, with the share inside
    # A copy that fails does not start again: one that did before the window is missing in it.
    failed_before: Sequence[CopyEnded]

    @property
    def length_s(self) -> float:
        """Length of the window."""
        return (self.window_ns[1] - self.window_ns[0]) / 1e9

    @property
    def warmup_s(self) -> float:
        """Time from the first release to the window, as planned where the window did not close."""
        if not self.closed:
            return self.head.warmup_s or 0.0
        return (self.window_ns[0] - (self.bracket.start_ns or 0)) / 1e9

    @property
    def longest_warmup_run_s(self) -> float | None:
        """Time of the longest good run that began before the window; None: there was none."""
        if not self.closed:
            return None
        begun_s = [
            row.elapsed_s
            for row in self.rows
            if is_good(row) and row.start_ns is not None and row.start_ns < self.window_ns[0]
        ]
        return max(begun_s, default=None)

    def timed(self, typical_s: Mapping[str, float]) -> list[TimedRun]:
        """Return the good runs as the comparison of the window's halves takes them."""
        return [
            TimedRun(
                copy=row.copy,
                start_ns=row.start_ns or 0,
                finish_ns=row.finish_ns or 0,
                typical_s=typical_s[row.benchmark],
            )
            for row, _ in self.good
        ]


def _window_runs(head: RunHead, bracket: PhaseEnded, rows: Sequence[CopyEnded]) -> _WindowRuns:
    begin_ns, end_ns = bracket.window_start_ns or 0, bracket.window_finish_ns or 0
    # A run that was stopped before its window was over has neither edge of it.
    closed = None not in (bracket.window_start_ns, bracket.window_finish_ns) and end_ns > begin_ns
    inside = [
        row
        for row in rows
        if closed
        and row.start_ns is not None
        and row.finish_ns is not None
        and row.start_ns < end_ns
        and row.finish_ns > begin_ns
    ]
    present = {row.copy for row in inside}
    last_rows = {row.copy: row for row in sorted(rows, key=lambda row: row.step)}
    return _WindowRuns(
        head=head,
        bracket=bracket,
        rows=rows,
        closed=closed,
        window_ns=(begin_ns, end_ns if closed else begin_ns),
        inside=inside,
        good=[(row, share_inside(row, bracket)) for row in inside if is_good(row)],
        failed_before=failures(
            [row for copy, row in sorted(last_rows.items()) if copy not in present]
        ),
    )


def _results_in_window(runs: _WindowRuns, used: Sequence[BenchmarkUsed]) -> Iterator[Result]:
    """Yield the results of the benchmarks that ran in one window."""
    times_ns = group_by_key((row.benchmark, row.elapsed_ns) for row, _ in runs.good)
    typical_s = {name: statistics.median(times) / 1e9 for name, times in times_ns.items()}
    shares = {
        benchmark.name: [share for row, share in runs.good if row.benchmark == benchmark.name]
        for benchmark in used
    }
    per_s = {
        name: sum(inside) / runs.length_s if runs.length_s else 0.0
        for name, inside in shares.items()
    }
    window = _steady_window(runs, used, typical_s=typical_s, shares=shares, per_s=per_s)
    alone = len(used) == 1 and runs.bracket.benchmark is not None
    for benchmark in used:
        yield Result(
            benchmark=benchmark.name,
            tune=runs.bracket.tune if alone else runs.head.tune,
            category=benchmark.category,
            reference_s=benchmark.reference_s,
            phase=window.phase,
            iteration=window.iteration,
            counted=window.counted,
            copies=runs.head.copies,
            good=window.good,
            failed=window.failed,
            per_s=None if window.reason else per_s[benchmark.name],
            reason=window.reason,
            median_copy_s=typical_s.get(benchmark.name),
            slowest=_slowest(window, runs.rows) if alone else None,
            steady=window,
            completions=sum(shares[benchmark.name]),
            whole=sum(share == 1.0 for share in shares[benchmark.name]),
        )


def _steady_window(
    runs: _WindowRuns,
    used: Sequence[BenchmarkUsed],
    *,
    typical_s: dict[str, float],
    shares: Mapping[str, Sequence[float]],
    per_s: Mapping[str, float],
) -> SteadyWindow:
    """Return what one window says.

    By name of the benchmarks `used`: `typical_s` has the median time of their runs, `shares` which
    part of each run lies inside, `per_s` completed runs a second.
    """
    head, bracket = runs.head, runs.bracket
    unit, work = _work(used, typical_s)
    copies = _copy_rates(runs.good, work, runs.length_s)
    timed = runs.timed(typical_s)
    numbers = [copy.copy for copy in copies]
    has_references = all(benchmark.reference_s for benchmark in used)
    ratio = sum(per_s[benchmark.name] * (benchmark.reference_s or 0.0) for benchmark in used)
    longest_s = runs.longest_warmup_run_s
    is_too_short = longest_s is not None and longest_s > runs.warmup_s
    bad_copies = {row.copy for row in runs.inside if not is_good(row)}
    return SteadyWindow(
        phase=bracket.phase,
        iteration=bracket.iteration or 0,
        counted=bracket.counted,
        warmup_s=runs.warmup_s,
        window_s=runs.length_s if runs.closed else head.window_s or 0.0,
        ratio=ratio if runs.length_s and has_references else None,
        per_hour=sum(completions * HOUR_S for completions in per_s.values()),
        unit=unit,
        copies=copies,
        rates=spread([copy.rate for copy in copies]),
        slowest=min(copies, key=lambda copy: (copy.rate, copy.copy), default=None),
        lgroups=_lgroups(copies),
        halves=compare_halves(timed, numbers, runs.window_ns) if timed else None,
        longest_warmup_run_s=longest_s,
        needed_warmup_s=rounded_up(longest_s or 0.0) if is_too_short else None,
        occupied=occupied_share(runs.rows, runs.window_ns, head.copies) if runs.closed else None,
        gap_s=median_gap_s(runs.rows, runs.window_ns) if runs.closed else None,
        good=len({row.copy for row in runs.inside} - bad_copies),
        failed=len({row.copy for row in (*runs.failed_before, *failures(runs.inside))}),
        reason=_why_no_rates(runs, shares),
    )


def _why_no_rates(runs: _WindowRuns, shares: Mapping[str, Sequence[float]]) -> str | None:
    """Return why the rates of a window are no result; None: they are."""
    head = runs.head
    if runs.closed:
        ran = (*runs.failed_before, *runs.inside)
        return _why_no_result(head, runs.bracket, ran) or _why_short(head, shares)
    if runs.failed_before:
        return why_failed(runs.failed_before, head.copies)
    return Missing.NO_WINDOW


def _slowest(window: SteadyWindow, rows: Sequence[CopyEnded]) -> CopyTime | None:
    """Return the copy with the lowest rate, with its median run."""
    if (slowest := window.slowest) is None:
        return None
    times_s = [row.elapsed_s for row in rows if row.copy == slowest.copy and is_good(row)]
    return CopyTime(slowest.copy, slowest.cpu, slowest.node, statistics.median(times_s))


def _work(
    used: Sequence[BenchmarkUsed], typical_s: dict[str, float]
) -> tuple[str, dict[str, float]]:
    """Return the unit of a copy's rate, and what one run of each benchmark is worth in a second."""
    if len(used) == 1:
        return "copies/hour", {used[0].name: HOUR_S}
    references = {benchmark.name: benchmark.reference_s for benchmark in used}
    known_references = {name: seconds for name, seconds in references.items() if seconds}
    if len(known_references) == len(references):
        return "reference s/s", known_references
    return "typical s/s", typical_s


def _copy_rates(
    good: Sequence[tuple[CopyEnded, float]],
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


def _why_no_result(head: RunHead, bracket: PhaseEnded, reach: Sequence[CopyEnded]) -> str | None:
    """Return why the rates of a window that closed are no result.

    A run that ended before it counts only where its copy came no further.
    """
    if failed := failures(reach):
        return why_failed(failed, len(reach), "runs")
    if not bracket.complete or not all(is_good(row) for row in reach):
        return Missing.NO_WINDOW
    if lacking := set(range(head.copies)) - {row.copy for row in reach}:
        return Missing.NOT_IN_WINDOW.describe(names=format_list(lacking))
    return why_missing(reach, len(reach), unit="runs")


def _why_short(head: RunHead, shares: Mapping[str, Sequence[float]]) -> str | None:
    """Return that a window was too short for the ring: what ran in it is no mix of all then."""
    ring = head.benchmarks
    if len(shares) < 2:
        return None
    queues = (ring_steps(copy, len(ring), head.increment) for copy in range(head.copies))
    queued = {ring[position] for positions in queues for position in positions}
    unseen = [
        name
        for name, benchmark_shares in shares.items()
        if name in queued and not sum(benchmark_shares)
    ]
    names = ", ".join(unseen)
    how_many = len(unseen)
    return (
        Missing.SHORT_WINDOW.describe(many=how_many, of=len(queued), names=names)
        if how_many
        else None
    )
