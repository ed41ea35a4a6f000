"""What was found slow in a run, in and out, and the narrow rows that the search reads."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rater.store.read import named
from rater.text.cpuset import format_list

_CHUNK = 65536

# Number of its benchmark and tune in `RunTimes.benchmarks`, then as `times.sql` has them.
type TimeRow = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class DivotSearch:
    """How a run was searched: what is found is only as good as that."""

    version: int
    threshold_group: float
    threshold_copy: float
    copy_runs: int  # rows that there were then
    visible: dict[str, float]  # smallest effects this run could show
    failed: int  # rows left out, which did not end well


@dataclass(frozen=True, slots=True)
class StoredDivot:
    """One finding, flat: the database's `divot` row."""

    kind: str
    explained: bool
    place: str
    benchmarks: tuple[str, ...]
    tune: str | None
    iterations: tuple[int, ...]
    copies: tuple[int, ...]
    cpus: tuple[int, ...]
    nodes: tuple[int, ...]
    package: int | None
    core: int | None
    slowdown: float
    score_lost: float | None
    evidence: str
    finding: str  # all of it, as JSON


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Copy times of a run for the search, a few numbers a row."""

    benchmarks: tuple[tuple[str, str | None], ...]  # name and tune, in the order of the rows
    chunks: tuple[Sequence[TimeRow], ...]
    core_pus: tuple[tuple[int, int], ...]  # CPU, hardware threads of its core


def run_times(connection: sqlite3.Connection, run_id: int) -> RunTimes:
    """Return the times of a run; a million rows take a few seconds, not objects."""
    numbers: dict[tuple[str, str | None], int] = {}
    chunks = tuple(_chunks(connection, run_id, numbers))
    cores = connection.execute(
        "SELECT cpu, count(*) OVER (PARTITION BY core) FROM pu "
        "WHERE run_id = ? AND core IS NOT NULL ORDER BY cpu",
        (run_id,),
    )
    return RunTimes(tuple(numbers), chunks, tuple(cores))


def _chunks(
    connection: sqlite3.Connection, run_id: int, numbers: dict[tuple[str, str | None], int]
) -> Iterator[Sequence[TimeRow]]:
    rows = connection.execute(named("times"), {"run": run_id})
    while chunk := rows.fetchmany(_CHUNK):
        yield [
            (numbers.setdefault((name, tune), len(numbers)), *values)
            for name, tune, *values in chunk
        ]


def copy_runs(connection: sqlite3.Connection, run_id: int) -> int:
    """Return how many copy runs are stored."""
    count: int = connection.execute(
        "SELECT count(*) FROM copy WHERE run_id = ?", (run_id,)
    ).fetchone()[0]
    return count


def keep_search(
    connection: sqlite3.Connection, run_id: int, search: DivotSearch, divots: Sequence[StoredDivot]
) -> None:
    """Store what was found, in the place of what was known before."""
    connection.execute("DELETE FROM divot_search WHERE run_id = ?", (run_id,))
    connection.execute(
        "INSERT INTO divot_search "
        "(run_id, version, threshold_group, threshold_copy, copy_runs, visible, failed) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            run_id,
            search.version,
            search.threshold_group,
            search.threshold_copy,
            search.copy_runs,
            json.dumps(search.visible),
            search.failed,
        ),
    )
    connection.executemany(
        f"INSERT INTO divot VALUES ({', '.join('?' * 17)})",
        [(run_id, position, *_values(it)) for position, it in enumerate(divots)],
    )


def _values(it: StoredDivot) -> tuple[Any, ...]:
    return (
        it.kind,
        it.explained,
        it.place,
        json.dumps(it.benchmarks),
        it.tune,
        format_list(it.iterations),
        format_list(it.copies),
        format_list(it.cpus),
        format_list(it.nodes),
        it.package,
        it.core,
        it.slowdown,
        it.score_lost,
        it.evidence,
        it.finding,
    )


def kept_search(
    connection: sqlite3.Connection, run_id: int
) -> tuple[DivotSearch, tuple[str, ...]] | None:
    """Return how a run was searched and its findings as JSON; None: it was not."""
    row = connection.execute(
        "SELECT version, threshold_group, threshold_copy, copy_runs, failed, visible "
        "FROM divot_search WHERE run_id = ?",
        (run_id,),
    ).fetchone()
    if row is None:
        return None
    version, group, copy, rows, failed, visible = row
    found = connection.execute(
        "SELECT finding FROM divot WHERE run_id = ? ORDER BY position", (run_id,)
    )
    search = DivotSearch(version, group, copy, rows, json.loads(visible), failed)
    return search, tuple(text for (text,) in found)
