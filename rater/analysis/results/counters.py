"""Counters of a run as rates for each instruction, CPI stacks and metrics; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from math import fsum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.counter_tables import (
    CYCLES,
    INSTRUCTIONS,
    MISS_CYCLES,
    OTHER,
    CounterTable,
    Formula,
    counter_tables,
    parse_table,
)
from rater.record.events import CopyEnded, EventCount
from rater.record.run import CopyStatus
from rater.record.stored import StoredRun
from rater.system.errors import InputError
from rater.text.values import group_by_key

# -- Counts of copies as rates: events per instruction, cycles per instruction, clock --------------
#
# Every count is divided by the instructions of its own run, so that groups which were counted in
# different iterations go together (Korn and Chang count 19 groups in as many runs).

_MOST_CYCLES = 1e6  # of a miss
TRANSLATION = "translation"  # the part of a CPI that page walks take
# Cycles of page walks where no event counts them: misses x what one costs.
ESTIMATED_WALKS = "estimated_walk_cycles"


class StackPart(Struct, frozen=True):
    """One part of the cycles per instruction."""

    name: str
    cycles: float  # per instruction


class CpiStack(Struct, frozen=True, kw_only=True):
    """Where the cycles of an instruction go; the parts add up to the CPI."""

    parts: tuple[StackPart, ...]  # bottom to top, `other` last
    excess: float  # share of the CPI that the parts were too large together, and were scaled by
    missing: tuple[str, ...]  # parts whose events were not counted: in `other`
    estimated: tuple[str, ...] = ()  # parts that are misses x what one costs, and no count
    not_estimated: tuple[str, ...] = ()  # parts that would be, had somebody measured that cost


class Rates(Struct, frozen=True):
    """Events of some runs of copies per instruction."""

    by_event: Mapping[str, float]
    instructions: float  # a copy's run
    ghz: float | None  # cycles by the time that they were counted; None: in user mode alone

    @property
    def cpi(self) -> float:
        """Cycles per instruction."""
        return self.by_event[CYCLES]


def tables_of(run: StoredRun) -> dict[str, CounterTable]:
    """Return the tables that a run counted by, by name; those that are damaged are left out."""
    tables = {}
    for name, text in counter_tables(run.settings).items():
        with suppress(InputError):
            tables[name] = parse_table(text, Path(f"{name}.toml"))
    return tables


def groups_of(counts: Iterable[EventCount]) -> dict[str, dict[str, EventCount]]:
    """Return the counts of a copy's run by group and event."""
    return {
        name: {member.event: member for member in members}
        for name, members in groupby(counts, key=lambda count: count.group_name)
    }


def rates_of(
    copies: Iterable[CopyEnded], table_or_group: str, *, in_full: bool = False
) -> Rates | None:
    """Return the rates of runs of copies by a table, or one group; None: nothing was counted.

    `in_full`: without groups that others had the counters of for a part of the time.
    """
    sums: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)  # count, instructions
    runs: list[float] = []
    clock: list[tuple[float, float]] = []
    for copy in copies:
        for name, events in groups_of(copy.counts).items():
            counts_by_event = _group_sums(name, events, table_or_group, in_full=in_full)
            if counts_by_event is None:
                continue
            instructions = counts_by_event[INSTRUCTIONS]
            runs.append(instructions)
            cycles = events[CYCLES]
            if not cycles.user_only:  # the time is that of the kernel's part too
                clock.append((float(cycles.value or 0), float(cycles.running_ns)))
            for event, value in counts_by_event.items():
                sums[event].append((value, instructions))
    if not runs or not fsum(runs):
        return None
    by_event = {
        event: fsum(value for value, _ in pairs) / fsum(count for _, count in pairs)
        for event, pairs in sums.items()
        if any(count for _, count in pairs)
    }
    running_ns = fsum(ns for _, ns in clock)
    ghz = fsum(cycles for cycles, _ in clock) / running_ns if running_ns else None
    return Rates(by_event, fsum(runs) / len(runs), ghz)


def _group_sums(
    name: str, events: Mapping[str, EventCount], table_or_group: str, *, in_full: bool
) -> dict[str, float] | None:
    if (
        not f"{name}:".startswith(f"{table_or_group}:")
        or not {CYCLES, INSTRUCTIONS} <= events.keys()
    ):
        return None
    values = {}
    for event, count in events.items():
        value = count.estimate
        if value is None or (in_full and not count.in_full):
            return None
        values[event] = value
    return values


def miss_cycles_of(run: StoredRun) -> float | None:
    """Return what a TLB miss cost on the machine of a run, in cycles; None: nobody measured it."""
    with suppress(KeyError, ValueError):
        cycles = float(dict(run.settings)[MISS_CYCLES])
        return cycles if 0 < cycles < _MOST_CYCLES else None
    return None


def stack_of(table: CounterTable, rates: Rates, miss_cycles: float | None = None) -> CpiStack:
    """Return the parts of the CPI; they add up to it. `miss_cycles`: what a TLB miss costs.

    What no event accounts for is `other`. Parts are counted by different means: where together they
    are more than the CPI each is scaled, and `excess` says by how much.
    """
    parts: list[StackPart] = []
    missing = []
    for name, formula in table.stack:
        if _counted(formula, rates):
            parts.append(StackPart(name, max(0.0, _value(formula, rates) or 0.0)))
        else:
            missing.append(name)
    total = fsum(part.cycles for part in parts)
    excess = 0.0
    if total > rates.cpi:
        excess = total / rates.cpi - 1 if rates.cpi else 0.0
        scale = rates.cpi / total
        parts = [StackPart(part.name, part.cycles * scale) for part in parts]
        total = fsum(part.cycles for part in parts)
    rest = StackPart(OTHER, max(0.0, rates.cpi - total))
    measured = CpiStack(parts=(*parts, rest), excess=excess, missing=tuple(missing))
    return _with_estimates(measured, table, rates, miss_cycles)


def _with_estimates(
    stack: CpiStack, table: CounterTable, rates: Rates, miss_cycles: float | None
) -> CpiStack:
    """Take estimated parts off those that they lie in, of which they are all at most."""
    parts = list(stack.parts)
    estimated, not_estimated = [], []
    for estimate in table.estimates:
        misses = _value(estimate.misses, rates) if _counted(estimate.misses, rates) else None
        place = next((place for place, it in enumerate(parts) if it.name == estimate.inside), None)
        if misses is None or miss_cycles is None or place is None:
            not_estimated.append(estimate.name)
            continue
        whole = parts[place]
        cycles = min(misses * miss_cycles, whole.cycles)
        rest = StackPart(whole.name, whole.cycles - cycles)
        parts[place : place + 1] = StackPart(estimate.name, cycles), rest
        estimated.append(estimate.name)
    return replace(
        stack,
        parts=tuple(parts),
        estimated=tuple(estimated),
        not_estimated=tuple(not_estimated),
    )


def _counted(formula: Formula, rates: Rates) -> bool:
    return formula.names <= rates.by_event.keys()


def metrics_of(
    table: CounterTable, rates: Rates, miss_cycles: float | None = None
) -> dict[str, float]:
    """Return the metrics of a table that were counted, by name; shares of nothing are left out."""
    metrics = {}
    for name, formula in table.metrics:
        if _counted(formula, rates):
            value = _value(formula, rates)
            if value is not None:
                metrics[name] = value
    for estimate in table.estimates:
        if estimate.name == TRANSLATION and miss_cycles and _counted(estimate.misses, rates):
            misses = _value(estimate.misses, rates)
            if misses is not None:
                metrics[ESTIMATED_WALKS] = misses * miss_cycles
    return metrics


def _value(formula: Formula, rates: Rates) -> float | None:
    """Return the value of a formula; None: no number, as where an event never happened."""
    try:
        return formula.value(rates.by_event)
    except ArithmeticError:
        return None


def spread(values: Sequence[float]) -> float | None:
    """Return how far values lie apart: (largest - smallest) / mean; None for fewer than two."""
    if len(values) < 2 or not fsum(values):
        return None
    return (max(values) - min(values)) * len(values) / fsum(values)


# -- What the counters of a run came to, benchmark by benchmark ------------------------------------


class CountedGroup(Struct, frozen=True, kw_only=True):
    """One group of a benchmark's runs."""

    name: str  # intel-skx:pipeline
    iterations: tuple[int, ...]
    runs: int  # of copies
    share: float  # of their CPU time that it was counted; below 1: multiplexed, and scaled
    cpi: float | None
    means: tuple[tuple[str, float], ...]  # of a copy's run, by event


class CpuCounts(Struct, frozen=True, kw_only=True):
    """What the copies came to that ran on one CPU."""

    cpu: int
    node: int | None
    runs: int  # of copies
    cpi: float
    translation: float | None  # share of the cycles in page walks; None: the table cannot tell
    metrics: tuple[tuple[str, float], ...]


class BenchmarkCounts(Struct, frozen=True, kw_only=True):
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
    cpus: tuple[CpuCounts, ...] = ()  # of copies that were bound; ascending
    miss_cycles: float | None = None  # that a TLB miss cost there, measured; None: not known


class RunCounts(Struct, frozen=True):
    """The counters of a run by benchmark, and the cost of reading them."""

    benchmarks: tuple[BenchmarkCounts, ...]
    user_only: bool  # without what the kernel did for the copies
    # CPU time of rater for a copy's run, which is no part of the run's own time; None: not known.
    cost_us: float | None


def run_counts(run: StoredRun) -> RunCounts:
    """Return the counts of all runs of copies that count and ended well."""
    run = run.without_torn()
    tables = tables_of(run)
    by_benchmark: defaultdict[tuple[str, str | None], list[CopyEnded]] = defaultdict(list)
    for copy in run.copies:
        if copy.counts and copy.counted and copy.status is CopyStatus.OK:
            by_benchmark[copy.benchmark, copy.tune].append(copy)
    miss_cycles = miss_cycles_of(run)
    benchmarks = [
        _count_benchmark(
            (name, tune), kind, _keep_kind(copies, kind), tables.get(kind[0]), miss_cycles
        )
        for (name, tune), copies in by_benchmark.items()
        for kind in dict.fromkeys(_kind(count) for copy in copies for count in copy.counts)
    ]
    copies = sum(phase.copies for phase in run.counted)
    cost_ns = sum(phase.open_ns + phase.read_ns + phase.close_ns for phase in run.counted)
    return RunCounts(
        tuple(benchmarks),
        any(benchmark.user_only for benchmark in benchmarks),
        cost_ns / copies / 1e3 if copies else None,
    )


type _Kind = tuple[str, bool]  # table, user mode only


def _kind(count: EventCount) -> _Kind:
    return count.group_name.partition(":")[0], count.user_only


def _keep_kind(copies: Iterable[CopyEnded], kind: _Kind) -> list[CopyEnded]:
    kept = (
        replace(copy, counts=tuple(count for count in copy.counts if _kind(count) == kind))
        for copy in copies
    )
    return [copy for copy in kept if copy.counts]


def _count_benchmark(
    key: tuple[str, str | None],
    kind: _Kind,
    copies: Sequence[CopyEnded],
    parsed_table: CounterTable | None,
    miss_cycles: float | None,
) -> BenchmarkCounts:
    (benchmark, tune), (table, user_only) = key, kind
    rates = rates_of(copies, table)
    iterations: defaultdict[int, list[CopyEnded]] = defaultdict(list)
    for copy in copies:
        iterations[copy.iteration].append(copy)
    iteration_rates = [
        it for iteration_copies in iterations.values() if (it := rates_of(iteration_copies, table))
    ]
    return BenchmarkCounts(
        benchmark=benchmark,
        tune=tune,
        table=table,
        user_only=user_only,
        groups=tuple(_groups(copies)),
        rates=rates,
        cpi_spread=spread([iteration.cpi for iteration in iteration_rates]),
        stack=stack_of(parsed_table, rates, miss_cycles)
        if parsed_table and parsed_table.stack and rates
        else None,
        metrics=_metrics(parsed_table, rates, miss_cycles),
        miss_cycles=miss_cycles,
        cpus=tuple(_cpus(copies, table, parsed_table, miss_cycles)),
    )


def _metrics(
    table: CounterTable | None, rates: Rates | None, miss_cycles: float | None
) -> tuple[tuple[str, float], ...]:
    return tuple(metrics_of(table, rates, miss_cycles).items()) if table and rates else ()


def _cpus(
    copies: Sequence[CopyEnded],
    table: str,
    parsed_table: CounterTable | None,
    miss_cycles: float | None,
) -> Iterator[CpuCounts]:
    """Yield the rates of the copies of each CPU, as `trapstat` has them."""
    by_cpu = group_by_key((copy.cpu, copy) for copy in copies if copy.cpu is not None)
    for cpu, on_cpu in sorted(by_cpu.items()):
        rates = rates_of(on_cpu, table)
        if rates is None:
            continue
        parts: dict[str, float] = {}
        if parsed_table is not None and parsed_table.stack:
            stack = stack_of(parsed_table, rates, miss_cycles)
            parts = {part.name: part.cycles for part in stack.parts}
        walks = parts.get(TRANSLATION)
        yield CpuCounts(
            cpu=cpu,
            node=on_cpu[0].node,
            runs=len(on_cpu),
            cpi=rates.cpi,
            translation=walks / rates.cpi if walks is not None and rates.cpi else None,
            metrics=_metrics(parsed_table, rates, miss_cycles),
        )


def _groups(copies: Sequence[CopyEnded]) -> Iterable[CountedGroup]:
    members: defaultdict[str, list[CopyEnded]] = defaultdict(list)
    for copy in copies:
        for name in groups_of(copy.counts):
            members[name].append(copy)
    for name, group_copies in members.items():
        counts = [
            count for copy in group_copies for count in copy.counts if count.group_name == name
        ]
        enabled_ns = sum(count.enabled_ns for count in counts)
        values: defaultdict[str, list[float]] = defaultdict(list)
        for count in counts:
            if count.estimate is not None:
                values[count.event].append(count.estimate)
        group_rates = rates_of(group_copies, name)
        yield CountedGroup(
            name=name,
            iterations=tuple(sorted({copy.iteration for copy in group_copies})),
            runs=len(group_copies),
            share=sum(count.running_ns for count in counts) / enabled_ns if enabled_ns else 0.0,
            cpi=group_rates.cpi if group_rates else None,
            means=tuple(
                (event, fsum(estimates) / len(estimates)) for event, estimates in values.items()
            ),
        )
