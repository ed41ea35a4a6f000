"""What became of each part of the cycles per instruction; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rater.analysis.compare.model import Side
from rater.analysis.counters.rates import OTHER
from rater.analysis.results.counted import counts_of

TOTAL = "CPI"  # the row that the parts add up to


@dataclass(frozen=True, slots=True)
class CpiChange:
    """One part of a benchmark's CPI in all sides."""

    benchmark: str
    tune: str | None
    part: str  # or TOTAL
    cycles: tuple[float | None, ...]  # per instruction, the baseline first; None: not counted
    cpi: float  # of the baseline

    @property
    def changes(self) -> tuple[float | None, ...]:
        """What each other side adds to the baseline's CPI, as a share of that."""
        first = self.cycles[0]
        return tuple(
            None if first is None or value is None else (value - first) / self.cpi
            for value in self.cycles[1:]
        )


def cpi_changes(sides: Sequence[Side]) -> tuple[CpiChange, ...]:
    """Return the CPI and its parts of benchmarks that the baseline and another side counted."""
    return tuple(_changes([_stacks(side) for side in sides]))


# By benchmark, tune and whether user mode alone was counted: that is not compared with both.
type _Stacks = dict[tuple[str, str | None, bool], dict[str, float]]


def _stacks(side: Side) -> _Stacks:
    found: _Stacks = {}
    for it in counts_of(side.runs):
        if it.stack is not None and it.rates is not None and it.rates.cpi:
            parts = {part.name: part.cycles for part in it.stack.parts}
            found.setdefault((it.benchmark, it.tune, it.user_only), {TOTAL: it.rates.cpi, **parts})
    return found


def _changes(stacks: Sequence[_Stacks]) -> Iterator[CpiChange]:
    for key, first in stacks[0].items():
        sides = [first, *(it.get(key, {}) for it in stacks[1:])]
        if not any(sides[1:]):
            continue
        parts = dict.fromkeys(name for side in sides for name in side)
        for name in sorted(parts, key=lambda name: name == OTHER):
            cycles = tuple(side.get(name) for side in sides)
            yield CpiChange(*key[:2], name, cycles, first[TOTAL])
