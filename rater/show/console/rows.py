"""What stands at the left of tables with a row per benchmark and iteration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rater.analysis.results.model import BenchmarkScore, IterationScore
from rater.show.console.table import Column

type Rows = Sequence[tuple[BenchmarkScore, IterationScore]]
type NotMet = Mapping[tuple[str, int], tuple[int, ...]]  # copies by benchmark and iteration


class _OfBenchmark(Protocol):
    @property
    def benchmark(self) -> str: ...
    @property
    def tune(self) -> str | None: ...


def with_tunes(rows: Iterable[_OfBenchmark]) -> list[str]:
    """Return the names of benchmarks, with the tune where there are several."""
    shown = list(rows)
    several = len({one.tune for one in shown}) > 1
    return [f"{one.benchmark} {one.tune or ''}" if several else one.benchmark for one in shown]


def names(rows: Rows) -> list[str]:
    """Return the names, each in its first row only, with the tune where there are several."""
    found = with_tunes([benchmark for benchmark, _ in rows])
    return [
        name if it is benchmark.iterations[0] else ""
        for name, (benchmark, it) in zip(found, rows, strict=True)
    ]


def iteration_marks(rows: Rows) -> list[str]:
    """Return `2*` for the selected of several iterations, `(1)` for one that does not count."""
    if all(len(benchmark.iterations) == 1 for benchmark, _ in rows):
        return [str(it.iteration) for _, it in rows]
    return [
        f"{it.iteration}{'*' if it.selected else ' '}" if it.counted else f"({it.iteration})"
        for _, it in rows
    ]


def not_met_columns(rows: Rows, not_met: NotMet) -> list[Column]:
    """Return a column with how many copies were not placed as planned, where any was not."""
    return not_met_column([len(not_met.get((it.benchmark, it.iteration), ())) for _, it in rows])


def not_met_column(numbers: Sequence[int]) -> list[Column]:
    """Return the same for how many copies there were in each row."""
    if not any(numbers):
        return []
    return [Column("not as|planned", [str(number) if number else "" for number in numbers])]
