"""What the counters of a run came to, benchmark by benchmark; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from rater.analysis.counters.rates import (
    CpiStack,
    Rates,
    groups_of,
    metrics_of,
    rates_of,
    spread,
    stack_of,
    tables_of,
)
from rater.plan.counters.table import CounterTable
from rater.record.status import CopyStatus
from rater.record.stored import StoredCopy, StoredRun


@dataclass(frozen=True, slots=True)
class CountedGroup:
    """One group of a benchmark's runs."""

    name: str  # intel-skx:pipeline
    iterations: tuple[int, ...]
    runs: int  # of copies
    share: float  # of their CPU time that it was counted; below 1: multiplexed, and scaled
    cpi: float | None
    means: tuple[tuple[str, float], ...]  # of a copy's run, by event


@dataclass(frozen=True, slots=True)
class BenchmarkCounts:
    """What the counters of a benchmark's copies came to by one table."""

    benchmark: str
    tune: str | None
    table: str
    groups: tuple[CountedGroup, ...]
    rates: Rates | None  # None: no group with cycles and instructions
    cpi_spread: float | None  # between the iterations: the groups of these were put together
    stack: CpiStack | None
    metrics: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class RunCounts:
    """What the counters of a run came to, and what they cost."""

    benchmarks: tuple[BenchmarkCounts, ...]
    user_only: bool  # without what the kernel did for the copies
    cost_us: (
        float | None
    )  # CPU time of rater for a copy's run, outside of its time; None: not known


def run_counts(run: StoredRun) -> RunCounts:
    """Return the counts of all runs of copies that count and ended well."""
    run = run.without_torn()
    tables = tables_of(run)
    by_benchmark: defaultdict[tuple[str, str | None], list[StoredCopy]] = defaultdict(list)
    for copy in run.copies:
        if copy.counts and copy.counted and copy.status is CopyStatus.OK:
            by_benchmark[copy.benchmark, copy.tune].append(copy)
    found = [
        _counted(name, tune, table, copies, tables.get(table))
        for (name, tune), copies in by_benchmark.items()
        for table in _tables_in(copies)
    ]
    copies = sum(it.copies for it in run.counted)
    cost_ns = sum(it.open_ns + it.read_ns + it.close_ns for it in run.counted)
    return RunCounts(
        tuple(found),
        any(it.user_only for copy in run.copies for it in copy.counts),
        cost_ns / copies / 1e3 if copies else None,
    )


def _tables_in(copies: Iterable[StoredCopy]) -> list[str]:
    names = (it.group_name.partition(":")[0] for copy in copies for it in copy.counts)
    return list(dict.fromkeys(names))


def _counted(
    benchmark: str,
    tune: str | None,
    table: str,
    copies: Sequence[StoredCopy],
    known: CounterTable | None,
) -> BenchmarkCounts:
    rates = rates_of(copies, table)
    iterations: defaultdict[int, list[StoredCopy]] = defaultdict(list)
    for copy in copies:
        iterations[copy.iteration].append(copy)
    each = [it for some in iterations.values() if (it := rates_of(some, table))]
    return BenchmarkCounts(
        benchmark,
        tune,
        table,
        tuple(_groups(copies, table)),
        rates,
        spread([it.cpi for it in each]),
        stack_of(known, rates) if known and known.stack and rates else None,
        tuple(metrics_of(known, rates).items()) if known and rates else (),
    )


def _groups(copies: Sequence[StoredCopy], table: str) -> Iterable[CountedGroup]:
    members: defaultdict[str, list[StoredCopy]] = defaultdict(list)
    for copy in copies:
        for name in groups_of(copy.counts):
            if name.startswith(f"{table}:"):
                members[name].append(copy)
    for name, some in members.items():
        counts = [it for copy in some for it in copy.counts if it.group_name == name]
        enabled_ns = sum(it.enabled_ns for it in counts)
        values: defaultdict[str, list[float]] = defaultdict(list)
        for it in counts:
            if it.estimate is not None:
                values[it.event].append(it.estimate)
        own = rates_of(some, name)
        yield CountedGroup(
            name,
            tuple(sorted({copy.iteration for copy in some})),
            len(some),
            sum(it.running_ns for it in counts) / enabled_ns if enabled_ns else 0.0,
            own.cpi if own else None,
            tuple((event, fsum(them) / len(them)) for event, them in values.items()),
        )
