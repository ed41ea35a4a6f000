"""Runs that are compared, and what the only row of a comparison says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from rater.analysis.compare.model import Comparison, EffectRow
from rater.analysis.results.copies import Point, PointRun
from rater.analysis.stats.intervals import RatioInterval
from rater.record.events import CopyEnded
from rater.record.stored import StoredRun
from tests.support.cpu_readings import computed, read_run
from tests.support.example_runs import S, copy_row, reading, stored

CATEGORIES = {"a": "int", "b": "int", "c": "fp"}


def run(number: int, seconds: dict[str, Sequence[Sequence[float]]], **head: Any) -> StoredRun:
    """A run whose iterations of each benchmark have copies of these seconds."""
    rows: list[CopyEnded] = []
    for name, iterations in seconds.items():
        for index, copies in enumerate(iterations):
            phase = len({row.phase for row in rows})
            rows += [
                copy_row(copy, time_s, benchmark=name, phase=phase, iteration=index + 1)
                for copy, time_s in enumerate(copies)
            ]
    most = max(len(iterations) for iterations in seconds.values())
    many = len(next(iter(seconds.values()))[0])
    given: dict[str, Any] = {"uuid": f"u-{number}", "copies": many, "iterations": most}
    return stored(rows, categories=CATEGORIES, run=number, **given, **head)


def point(label: str, *runs: StoredRun, blocks: bool = True, **values: str) -> Point:
    members = [
        PointRun(made_at(run, place), place) if blocks else PointRun(run, None)
        for place, run in enumerate(runs)
    ]
    return Point(label, tuple(values.items()), tuple(members))


def made_at(run: StoredRun, minute: int) -> StoredRun:
    return replace(run, head=replace(run.head, started_at=f"2026-11-20T12:{minute:02}:00Z"))


def brackets(first: int, seconds: Sequence[float], name: str = "a") -> list[StoredRun]:
    """Runs of two copies that take these seconds, an iteration each."""
    return [
        run(first + number, {name: [[time_s, time_s]]}) for number, time_s in enumerate(seconds)
    ]


def only(comparison: Comparison) -> EffectRow:
    (row,) = comparison.benchmarks
    return row


def known(interval: RatioInterval | None) -> RatioInterval:
    assert interval is not None
    return interval


def speedup_of(comparison: Comparison) -> RatioInterval:
    return known(only(comparison).cells[0].speedup)


def speedup_words(comparison: Comparison) -> str:
    return speedup_of(comparison).verdict_text


SIX = [6.0, 6.01, 6.02, 5.99, 6.01, 6.0]


def beside_others(
    first: int, cpu_s: Sequence[float], others_s: float, asleep_s: float = 0.0, sibling_s: float = 0
) -> list[StoredRun]:
    """Runs of a copy on CPU 0 that needs so long, waits for others there, and sleeps.

    CPU 1 is the other thread of its core.
    """
    runs = []
    for number, own_s in enumerate(cpu_s):
        known = {"run_delay_ns": round(others_s * S), "run_delay_cpu_ns": round(own_s * S)}
        took_ns = round((own_s + others_s + asleep_s) * S)
        times: dict[str, Any] = {"elapsed_ns": took_ns, "finish_ns": took_ns}
        copy = replace(computed(0, own_s, cpu=0, **known), **times)
        rows = reading(0, own_s + others_s), reading(1, sibling_s)
        it = read_run([copy], *rows, elapsed_ns=took_ns)
        it = replace(
            it, head=replace(it.head, run=first + number, uuid=f"u-{first + number}", copies=1)
        )
        runs.append(it)
    return runs
