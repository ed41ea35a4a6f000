"""Counts of copies as rates: events per instruction, cycles per instruction, clock; pure.

Every count is divided by the instructions of its own run, so that groups which were counted in
different iterations go together (Korn and Chang count 19 groups in as many runs).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from math import fsum
from pathlib import Path

from rater.errors import InputError
from rater.plan.counters.formula import Formula
from rater.plan.counters.table import (
    CYCLES,
    INSTRUCTIONS,
    CounterTable,
    counter_tables,
    parse_table,
)
from rater.record.events import EventCount
from rater.record.stored import StoredCopy, StoredRun

OTHER = "other"  # the part of a CPI that no event accounts for


@dataclass(frozen=True, slots=True)
class StackPart:
    """One part of the cycles per instruction."""

    name: str
    cycles: float  # per instruction


@dataclass(frozen=True, slots=True)
class CpiStack:
    """Where the cycles of an instruction go; the parts add up to the CPI."""

    parts: tuple[StackPart, ...]  # bottom to top, `other` last
    excess: float  # share of the CPI that the parts were too large together, and were scaled by
    missing: tuple[str, ...]  # parts whose events were not counted: in `other`


@dataclass(frozen=True, slots=True)
class Rates:
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
    found = {}
    for name, text in counter_tables(run.settings).items():
        with suppress(InputError):
            found[name] = parse_table(text, Path(f"{name}.toml"))
    return found


def groups_of(counts: Iterable[EventCount]) -> dict[str, dict[str, EventCount]]:
    """Return the counts of a copy's run by group and event."""
    return {
        name: {it.event: it for it in members}
        for name, members in groupby(counts, key=lambda it: it.group_name)
    }


def rates_of(copies: Iterable[StoredCopy], of: str, *, in_full: bool = False) -> Rates | None:
    """Return the rates of runs of copies by a table, or one group; None: nothing was counted.

    `in_full`: without groups that others had the counters of for a part of the time.
    """
    sums: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)  # count, instructions
    runs: list[float] = []
    clock: list[tuple[float, float]] = []
    for copy in copies:
        for name, events in groups_of(copy.counts).items():
            rate = _group_sums(name, events, of, in_full=in_full)
            if rate is None:
                continue
            instructions = rate[INSTRUCTIONS]
            runs.append(instructions)
            cycles = events[CYCLES]
            if not cycles.user_only:  # the time is that of the kernel's part too
                clock.append((float(cycles.value or 0), float(cycles.running_ns)))
            for event, value in rate.items():
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
    name: str, events: Mapping[str, EventCount], of: str, *, in_full: bool
) -> dict[str, float] | None:
    if not f"{name}:".startswith(f"{of}:") or not {CYCLES, INSTRUCTIONS} <= events.keys():
        return None
    found = {}
    for event, count in events.items():
        value = count.estimate
        if value is None or (in_full and not count.in_full):
            return None
        found[event] = value
    return found


def stack_of(table: CounterTable, rates: Rates) -> CpiStack:
    """Return the parts of the CPI; they add up to it.

    What no event accounts for is `other`. Parts are counted by different means: where together they
    are more than the CPI each is scaled, and `excess` says by how much.
    """
    parts: list[StackPart] = []
    missing = []
    for name, formula in table.stack:
        if formula.names <= rates.by_event.keys():
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
    return CpiStack((*parts, rest), excess, tuple(missing))


def metrics_of(table: CounterTable, rates: Rates) -> dict[str, float]:
    """Return the metrics of a table that were counted, by name; shares of nothing are left out."""
    found = {}
    for name, formula in table.metrics:
        if formula.names <= rates.by_event.keys():
            value = _value(formula, rates)
            if value is not None:
                found[name] = value
    return found


def _value(formula: Formula, rates: Rates) -> float | None:
    """Return what a formula comes to; None: it divides by what never happened, or is no rate."""
    try:
        return formula.value(rates.by_event)
    except ArithmeticError:
        return None


def spread(values: Sequence[float]) -> float | None:
    """Return how far values lie apart: (largest - smallest) / mean; None for fewer than two."""
    if len(values) < 2 or not fsum(values):
        return None
    return (max(values) - min(values)) * len(values) / fsum(values)
