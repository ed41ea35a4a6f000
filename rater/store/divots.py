"""What was found slow in a run, in and out, and the narrow rows that the search reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rater.record.stored import TimeRow
from rater.store.read import named
from rater.store.rows import insert, read_table

_CHUNK = 65536


@dataclass(frozen=True, slots=True)
class DivotSearch:
    """How a run was searched: what is found is only as good as that."""

    version: int
    threshold_group: float
    threshold_copy: float
    copy_runs: int  # rows that there were then
    visible: dict[str, float]  # smallest effects this run could show
    failed: int  # rows left out, which did not end well
    others_cost: float | None = None  # of the score, what work of others cost; None: not recorded
    noise_cost: float | None = None  # the same of noise alone; None: there is no such score


@dataclass(frozen=True, slots=True)
class StoredDivot:
    """One finding: its attributes that are columns of `divot`, and it as text."""

    of: object
    evidence: str  # one line
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
    name, tune, *others = (column[0] for column in rows.description)
    assert (name, tune, *others) == ("benchmark", "tune", *TimeRow._fields[1:])
    while chunk := rows.fetchmany(_CHUNK):
        yield [
            TimeRow(numbers.setdefault((name, tune), len(numbers)), *values)
            for name, tune, *values in chunk
        ]


def copy_runs(connection: sqlite3.Connection, run_id: int) -> int:
    """Return how many copy runs are stored."""
    count: int = connection.execute(
        "SELECT count(*) FROM copy WHERE run_id = ?", (run_id,)
    ).fetchone()[0]
    return count


def keep_search(
    connection: sqlite3.Connection, run_id: int, search: DivotSearch, divots: Iterable[StoredDivot]
) -> None:
    """Store what was found, in the place of what was known before."""
    connection.execute("DELETE FROM divot_search WHERE run_id = ?", (run_id,))
    insert(connection, "divot_search", search, run_id=run_id)
    for position, it in enumerate(divots):
        insert(
            connection,
            "divot",
            it.of,
            run_id=run_id,
            position=position,
            evidence=it.evidence,
            finding=it.finding,
        )


def kept_search(
    connection: sqlite3.Connection, run_id: int
) -> tuple[DivotSearch, tuple[str, ...]] | None:
    """Return how a run was searched and its findings as JSON; None: it was not."""
    for search in read_table(connection, DivotSearch, "divot_search", run_id=run_id):
        found = connection.execute(
            "SELECT finding FROM divot WHERE run_id = ? ORDER BY position", (run_id,)
        )
        return search, tuple(text for (text,) in found)
    return None


@dataclass(frozen=True, slots=True)
class RunScore:
    """The one number of a run, as `run_score` keeps it."""

    value: float | None  # None: not every benchmark has a valid result
    unit: str | None
    copy_runs: int  # rows that there were then
    version: int  # of the formula


def keep_score(connection: sqlite3.Connection, run_id: int, score: RunScore) -> None:
    """Store the number of a run, in the place of what was known before."""
    insert(connection, "run_score", score, replace=True, run_id=run_id)


def kept_score(connection: sqlite3.Connection, run_id: int, version: int) -> RunScore | None:
    """Return the number of a run; None: not worked out yet, or from other rows than it has."""
    for score in read_table(connection, RunScore, "run_score", run_id=run_id, version=version):
        if score.copy_runs == copy_runs(connection, run_id):
            return score
    return None


def divot_count(connection: sqlite3.Connection, run_id: int) -> int | None:
    """Return how many divots were found in a run; None: it was not searched."""
    (count,) = connection.execute(
        "SELECT (SELECT count(*) FROM divot WHERE run_id = search.run_id AND NOT explained) "
        "FROM divot_search AS search WHERE run_id = ?",
        (run_id,),
    ).fetchone() or (None,)
    return count
