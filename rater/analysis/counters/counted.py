"""What the counters of a run came to, benchmark by benchmark; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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
from rater.record.events import EventCount
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
    user_only: bool  # without what the kernel did for the copies: no other counts go with it
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
        _counted(name, tune, kind, _only(copies, kind), tables.get(kind[0]))
        for (name, tune), copies in by_benchmark.items()
        for kind in dict.fromkeys(_kind(it) for copy in copies for it in copy.counts)
    ]
    copies = sum(it.copies for it in run.counted)
    cost_ns = sum(it.open_ns + it.read_ns + it.close_ns for it in run.counted)
    return RunCounts(
        tuple(found),
        any(it.user_only for it in found),
        cost_ns / copies / 1e3 if copies else None,
    )


type _Kind = tuple[str, bool]  # table, user mode only


def _kind(count: EventCount) -> _Kind:
    return count.group_name.partition(":")[0], count.user_only


def _only(copies: Iterable[StoredCopy], kind: _Kind) -> list[StoredCopy]:
    """Return runs of copies with only the counts of one kind."""
    found = (
        replace(copy, counts=tuple(it for it in copy.counts if _kind(it) == kind))
        for copy in copies
    )
    return [copy for copy in found if copy.counts]


def _counted(
    benchmark: str,
    tune: str | None,
    kind: _Kind,
    copies: Sequence[StoredCopy],
    known: CounterTable | None,
) -> BenchmarkCounts:
    table, user_only = kind
    rates = rates_of(copies, table)
    iterations: defaultdict[int, list[StoredCopy]] = defaultdict(list)
    for copy in copies:
        iterations[copy.iteration].append(copy)
    each = [it for some in iterations.values() if (it := rates_of(some, table))]
    return BenchmarkCounts(
        benchmark,
        tune,
        table,
        user_only,
        tuple(_groups(copies)),
        rates,
        spread([it.cpi for it in each]),
        stack_of(known, rates) if known and known.stack and rates else None,
        tuple(metrics_of(known, rates).items()) if known and rates else (),
    )


def _groups(copies: Sequence[StoredCopy]) -> Iterable[CountedGroup]:
    members: defaultdict[str, list[StoredCopy]] = defaultdict(list)
    for copy in copies:
        for name in groups_of(copy.counts):
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
