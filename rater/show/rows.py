"""What stands at the left of tables with a row per benchmark and iteration."""

from __future__ import annotations

from collections.abc import Sequence

from rater.analysis.score import BenchmarkScore, IterationScore

type Rows = Sequence[tuple[BenchmarkScore, IterationScore]]


def names(rows: Rows) -> list[str]:
    """Return the names, each in its first row only, with the tune where there are several."""
    several = len({benchmark.tune for benchmark, _ in rows}) > 1
    found = []
    for benchmark, it in rows:
        name = f"{benchmark.benchmark} {benchmark.tune or ''}" if several else benchmark.benchmark
        found.append(name if it is benchmark.iterations[0] else "")
    return found


def iteration_marks(rows: Rows) -> list[str]:
    """Return `2*` for the selected of several iterations, `(1)` for one that does not count."""
    if all(len(benchmark.iterations) == 1 for benchmark, _ in rows):
        return [str(it.iteration) for _, it in rows]
    return [
        f"{it.iteration}{'*' if it.selected else ' '}" if it.counted else f"({it.iteration})"
        for _, it in rows
    ]
