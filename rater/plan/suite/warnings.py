"""What is allowed in a suite but probably not meant."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from rater.plan.suite.model import Benchmark, Size, Suite

_LARGE_BYTES = 100_000_000  # to copy for every copy


def suite_warnings(
    suite: Suite,
    default_size: str,
    bytes_of: Callable[[Path], int],
    answered: Collection[tuple[str, str]] = (),
) -> list[str]:
    """Return a sentence for each kind of doubt, with the benchmarks it is about.

    `bytes_of` tells how large an input file is. Sizes `answered`, as (benchmark,
    size), are not told again to have no expected output.
    """

    def lacking(lacks: Callable[[Benchmark, Size], bool]) -> str:
        return _places(suite, lacks)

    found = [
        (
            "no expected output, so any answer passes",
            lacking(lambda b, s: not s.expected and (b.name, s.name) not in answered),
        ),
        ("no reference_s, so no ratio", lacking(lambda _, s: s.reference_s is None)),
        (
            "no memory_mb or memory_total_mb, so a run that cannot fit is not refused",
            lacking(lambda _, s: s.memory_bytes is None and s.total_memory_bytes is None),
        ),
    ]
    lines = [f"{what}: {where}" for what, where in found if where]
    return lines + _size_doubts(suite, default_size) + _copied(suite, bytes_of)


def _places(suite: Suite, lacks: Callable[[Benchmark, Size], bool]) -> str:
    """Return `all`, or benchmarks by name, with their sizes where only some lack it."""
    places = []
    complete = True
    for benchmark in suite.benchmarks:
        sizes = [size.name for size in benchmark.sizes.values() if lacks(benchmark, size)]
        if len(sizes) == len(benchmark.sizes):
            places.append(benchmark.name)
        else:
            complete = False
            if sizes:
                places.append(f"{benchmark.name} ({', '.join(sizes)})")
    return "all" if complete and len(places) > 1 else ", ".join(places)


def _size_doubts(suite: Suite, default_size: str) -> list[str]:
    """Sizes that only some benchmarks have stop a run of the whole suite."""
    lines = []
    names = list({name: None for benchmark in suite.benchmarks for name in benchmark.sizes})
    if default_size not in names and names:
        lines.append(
            f"no size {default_size}, which `rater run` takes unless it is given "
            f"--size {' or --size '.join(names)}"
        )
    for name in names:
        lacking = [b.name for b in suite.benchmarks if name not in b.sizes]
        if lacking:
            lines.append(
                f"no size {name}, so a run of the whole suite in it is refused: "
                f"{', '.join(lacking)}"
            )
    return lines


def _copied(suite: Suite, bytes_of: Callable[[Path], int]) -> list[str]:
    lines: dict[str, None] = {}
    for benchmark in suite.benchmarks:
        for size in benchmark.sizes.values():
            for wanted in size.inputs:
                if not wanted.private or wanted.path is None:
                    continue
                size_bytes = bytes_of(wanted.path)
                if size_bytes > _LARGE_BYTES:
                    lines[
                        f"copy = true: {benchmark.name} gets {size_bytes / 1e6:.0f} MB of "
                        f"{wanted.name} for each copy before every run"
                    ] = None
    return list(lines)
