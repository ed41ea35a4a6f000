"""A database with rows in every table that rater has, made from the schema: none is forgotten."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rater.fleet.foreign import MergeTable, newest_tables
from rater.store.store import open_store

_ROWS = 2  # of each table a root has, where its key allows it


def full_database(path: Path, *uuids: str, rows: int = _ROWS) -> Path:
    """Make a database with a root of every kind for each uuid, and rows in all that hangs on it."""
    open_store(path).close()
    with closing(sqlite3.connect(path, autocommit=True)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("BEGIN")
        for uuid in uuids:
            _root_of_every_kind(connection, uuid, rows)
        connection.execute("COMMIT")
    return path


def _root_of_every_kind(connection: sqlite3.Connection, uuid: str, rows: int) -> None:
    numbers: dict[str, int] = {}
    rows_by_table: dict[str, list[dict[str, object]]] = {}
    for table in newest_tables():
        checks = _checks(connection, table.name)
        # A key that is the owner's number alone allows one row.
        several = table.is_owned and (table.number or len(table.key) > 1)
        rows_by_table[table.name] = []
        for place in range(rows if several else 1):
            row = _row(table, checks, f"{uuid}.{place}", place, numbers)
            _refer(table, row, place, rows_by_table)
            if "uuid" in table.columns:
                row["uuid"] = f"{table.name}-{uuid}"
            marks = ", ".join(f":{it}" for it in row)
            cursor = connection.execute(
                f"INSERT INTO {table.name} ({', '.join(row)}) VALUES ({marks})", row
            )
            rows_by_table[table.name].append(row)
            if table.number:
                numbers[table.name] = cursor.lastrowid or 0


def _row(
    table: MergeTable,
    checks: dict[str, Sequence[object]],
    seed: str,
    place: int,
    numbers: dict[str, int],
) -> dict[str, object]:
    row: dict[str, object] = {}
    for at, column in enumerate(table.columns):
        allowed = checks.get(column)
        kind = _types[table.name][column]
        if column in table.numbers:
            row[column] = numbers[table.numbers[column]]
        elif allowed:
            row[column] = allowed[place % len(allowed)]
        elif kind == "TEXT":
            row[column] = f"{column} {seed}"
        elif kind == "BLOB":
            row[column] = f"{column} {seed}".encode()
        else:  # shares and counts: 1 is allowed everywhere, and what is between 0 and 1 in shares
            count = 1 + at + 10 * place
            row[column] = 1 / count if kind == "REAL" else count
    if {"start_ns", "finish_ns", "elapsed_ns"} <= row.keys():
        row |= {"start_ns": 5, "finish_ns": 12, "elapsed_ns": 7}
    return row


def _refer(
    table: MergeTable,
    row: dict[str, object],
    place: int,
    rows_by_table: dict[str, list[dict[str, object]]],
) -> None:
    """Let a row refer to one that was made before, the next one each time."""
    for reference in table.references:
        parents = rows_by_table[reference.table]
        if parents and reference.target[0] in parents[0]:
            parent = parents[place % len(parents)]
            for column, target in zip(reference.columns, reference.target, strict=True):
                row[column] = parent.get(target, row[column])


_types: dict[str, dict[str, str]] = {}


def _checks(connection: sqlite3.Connection, table: str) -> dict[str, Sequence[object]]:
    """Return the values that a column may have, by column; note the types."""
    info = connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,))
    _types[table] = dict(info.fetchall())
    (sql,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    found: dict[str, Sequence[object]] = {}
    for column, values in re.findall(r"CHECK \((\w+) IN \(([^)]*)\)\)", sql):
        found[column] = [
            int(it) if it.isdecimal() else it.strip("'") for it in re.split(r",\s*", values)
        ]
    return found
