"""A row a copy: where it ran, its time, where the time went, its memory, and how it ended; pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from rater.analysis.results.account import TimeAccount, time_accounts
from rater.analysis.results.cpu_use import RunCounters, run_counters
from rater.analysis.results.waiting import WaitSplit, split_waits
from rater.record.events import CopyEnded
from rater.record.run import CopyStatus
from rater.record.stored import StoredRun, is_good
from rater.text.values import count, group_by_key


class CopyRow(Struct, frozen=True, kw_only=True):
    """One copy of one benchmark, in one iteration or over those that count; None: not known.

    Over several runs numbers are medians of those that are known. Shares are of the copy's time.
    """

    benchmark: str
    tune: str | None
    iteration: int | None  # None: over all that count
    counted: bool
    copy: int
    cpu: int | None  # None as well where it was on several
    node: int | None
    elapsed_s: float
    over_median: float | None  # against the median copy of the same iteration
    cpu_s: float | None
    waited: float | None  # for a CPU, for whomever
    waited_own: float | None  # for a CPU that other copies of the run had
    waited_others: float | None  # for a CPU that other processes had
    slept: float | None  # slept, was stopped, or had no quota left
    memory_bytes: int | None  # most that was resident
    faults: int | None  # page faults, major and minor
    exit: str  # "ok", or how it ended
    good: bool
    metrics: tuple[tuple[str, float], ...]


def copy_rows(
    run: StoredRun, *, each: bool = False, counters: RunCounters | None = None
) -> list[CopyRow]:
    """Return the copies of a run, torn attempts left out; `each`: with a row for each iteration.

    Else discarded iterations are left out, unless there are no others.
    """
    run = run.without_torn()
    accounts = time_accounts(run)
    uses = (run_counters(run) if counters is None else counters).cpus
    splits = split_waits(run, uses)
    cells = group_by_key(
        ((copy.benchmark, copy.tune, copy.iteration, copy.phase), copy) for copy in run.copies
    )
    rows = []
    for copies in cells.values():
        times = [copy.elapsed_s for copy in copies if is_good(copy)]
        typical_s = median(times) if times else None
        for copy in copies:
            key = (copy.phase, copy.copy, copy.step)
            rows.append(_row(copy, accounts.get(key), splits.get(key, WaitSplit()), typical_s))
    if each:
        return rows
    counted = [row for row in rows if row.counted] or rows
    by_copy = group_by_key(((row.benchmark, row.tune, row.copy), row) for row in counted)
    return [_median_row(of_copy) for of_copy in by_copy.values()]


def _row(
    copy: CopyEnded, account: TimeAccount | None, split: WaitSplit, typical_s: float | None
) -> CopyRow:
    def share(seconds: float | None) -> float | None:
        return None if seconds is None or not copy.elapsed_s else seconds / copy.elapsed_s

    asleep = None
    if account is not None and account.slept_s is not None:
        asleep = account.slept_s + (account.stopped_s or 0.0) + (account.throttled_s or 0.0)
    faults = [count for count in (copy.major_faults, copy.minor_faults) if count is not None]
    sizes = [size for size in (copy.peak_rss_bytes, copy.max_rss_bytes) if size is not None]
    return CopyRow(
        benchmark=copy.benchmark,
        tune=copy.tune,
        iteration=copy.iteration,
        counted=copy.counted,
        copy=copy.copy,
        cpu=copy.cpu if copy.cpu is not None else copy.last_cpu,
        node=copy.node,
        elapsed_s=copy.elapsed_s,
        over_median=copy.elapsed_s / typical_s if typical_s else None,
        cpu_s=copy.cpu_s,
        waited=share(account.waited_s) if account else None,
        waited_own=share(split.for_own_s),
        waited_others=share(split.for_others_s),
        slept=share(asleep),
        memory_bytes=max(sizes, default=None),
        faults=sum(faults) if faults else None,
        exit=_how_ended(copy),
        good=is_good(copy),
        metrics=copy.metrics,
    )


def _how_ended(copy: CopyEnded) -> str:
    if is_good(copy):
        return "ok"
    if copy.status is not CopyStatus.FAILED:
        return str(copy.status)
    return f"signal {copy.signal}" if copy.signal is not None else f"exit code {copy.exit_code}"


def _median_row(rows: Sequence[CopyRow]) -> CopyRow:
    """Return one row for a copy's runs of a benchmark; those that did not end well only say how."""
    good = [row for row in rows if row.good] or [*rows]
    bad = [row for row in rows if not row.good]
    first = good[0]

    def middle(name: str) -> float | None:
        known = [value for row in good if (value := getattr(row, name)) is not None]
        return median(known) if known else None

    def only(name: str) -> int | None:
        values = {getattr(row, name) for row in good}
        return values.pop() if len(values) == 1 else None

    names = dict.fromkeys(name for row in good for name, _ in row.metrics)
    metrics = tuple(
        (name, median([value for row in good for metric, value in row.metrics if metric == name]))
        for name in names
    )
    memory, faults = middle("memory_bytes"), middle("faults")
    some = f"{bad[0].exit}, {count(len(bad), 'time')} of {len(rows)}" if bad else "ok"
    return CopyRow(
        benchmark=first.benchmark,
        tune=first.tune,
        iteration=None,
        counted=first.counted,
        copy=first.copy,
        cpu=only("cpu"),
        node=only("node"),
        elapsed_s=middle("elapsed_s") or 0.0,
        over_median=middle("over_median"),
        cpu_s=middle("cpu_s"),
        waited=middle("waited"),
        waited_own=middle("waited_own"),
        waited_others=middle("waited_others"),
        slept=middle("slept"),
        memory_bytes=None if memory is None else round(memory),
        faults=None if faults is None else round(faults),
        exit=some if len(rows) > 1 else first.exit,
        good=not bad,
        metrics=metrics,
    )
