"""Which table hangs on which, read from the schema itself: what merging and digests go by.

A *root* has a number (`id`) of its own database and a `uuid` of all databases: run, sweep. A
*shared* table has a number, no uuid, and is the same where all its columns are: host. Every other
table is *owned* by the root that its primary key begins with, and goes where that goes.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from rater.groups import grouped
from rater.store.schema import migrate

# The index of the archive beside a database: `rater fleet collect` fills it from the same files.
ARCHIVE = ("fleet_setting", "fleet_run", "result")
# Jobs of the machine that submitted them: a fleet goes on, and is collected, in its own database.
FLEET = ("fleet", "fleet_node", "fleet_attempt", "fleet_change")
# What is true of one database alone: what was removed from it, merged into it, archived beside it.
LOCAL = {"removed", "merged_file", *ARCHIVE, *FLEET}
# Worked out from other rows: they go along with those, and say nothing of how far a run has got.
DERIVED = {"run_score"}
# Numbers of runs that stand in a text column: of rows whose FIELD is WORD, VALUE is a number.
NUMBERS_AS_TEXT = {("tag", "value"): ("name", "replaced-by", "run")}
GONE = "removed"  # what stands there for a run that is in no database any more
_UUID = "uuid"


class Role(StrEnum):
    """What merging does with the rows of a table."""

    ROOT = "root"
    SHARED = "shared"
    OWNED = "owned"


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key."""

    columns: tuple[str, ...]
    table: str
    target: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MergeTable:
    """A table as merging sees it."""

    name: str
    role: Role
    columns: tuple[str, ...]  # without a number of its own
    key: tuple[str, ...]  # of the primary key
    number: str | None  # the column with a number of its own
    numbers: dict[str, str]  # column: table whose number it holds
    nullable: frozenset[str]
    references: tuple[Reference, ...]
    owner: str | None  # the root's name; of a root its own, of a shared table None

    @property
    def owner_column(self) -> str:
        """The column that holds the owner's number."""
        if self.role is Role.ROOT:
            return self.number or ""
        return next(name for name in self.numbers if self.numbers[name] == self.owner)


@dataclass(frozen=True, slots=True)
class _Raw:
    name: str
    columns: tuple[str, ...]
    nullable: frozenset[str]
    key: tuple[str, ...]
    references: tuple[Reference, ...]
    has_uuid: bool
    number: str | None


@cache
def newest_tables() -> tuple[MergeTable, ...]:
    """Return the tables of the newest schema, without the local ones."""
    with closing(sqlite3.connect(":memory:", autocommit=True)) as fresh:
        migrate(fresh, Path(":memory:"))
        return merge_tables(fresh)


def merge_tables(connection: sqlite3.Connection, schema: str = "main") -> tuple[MergeTable, ...]:
    """Return all tables but the local ones, each after those that it refers to.

    Raises `RuntimeError` for a table that belongs to nothing: one that is new wants a reference
    to a root at the beginning of its primary key, or a word in `LOCAL`.
    """
    raw = {
        name: _raw(connection, name, schema)
        for (name,) in connection.execute(
            "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = ? "
            "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
            (schema,),
        )
        if name not in LOCAL
    }
    tables = {name: _table(it, raw) for name, it in raw.items()}
    return _in_order(tables)


def _raw(connection: sqlite3.Connection, name: str, schema: str) -> _Raw:
    info = connection.execute(
        'SELECT name, type, "notnull", pk FROM pragma_table_info(?, ?)', (name, schema)
    ).fetchall()
    key = tuple(it[0] for it in sorted(info, key=lambda it: it[3]) if it[3])
    rows = connection.execute(
        'SELECT id, "from", "table", "to" FROM pragma_foreign_key_list(?, ?) ORDER BY id, seq',
        (name, schema),
    ).fetchall()
    references = tuple(
        Reference(tuple(it[1] for it in some), some[0][2], tuple(it[3] for it in some))
        for some in grouped((it[0], it) for it in rows).values()
    )
    types = {it[0]: it[1] for it in info}
    referring = {column for it in references for column in it.columns}
    numbered = len(key) == 1 and types[key[0]] == "INTEGER" and key[0] not in referring
    unique = {
        tuple(
            column
            for (column,) in connection.execute(
                "SELECT name FROM pragma_index_info(?, ?) ORDER BY seqno", (index, schema)
            )
        )
        for (index,) in connection.execute(
            'SELECT name FROM pragma_index_list(?, ?) WHERE "unique" AND NOT partial',
            (name, schema),
        )
    }
    return _Raw(
        name=name,
        columns=tuple(types),
        nullable=frozenset(it[0] for it in info if not it[2] and not it[3]),
        key=key,
        references=references,
        has_uuid=(_UUID,) in unique,
        number=key[0] if numbered else None,
    )


def _table(raw: _Raw, every: dict[str, _Raw]) -> MergeTable:
    numbers = {
        column: space
        for column in raw.columns
        if column != raw.number and (space := _space(raw, column, every))
    }
    if raw.number and raw.has_uuid:
        role, owner = Role.ROOT, raw.name
    elif raw.number and any(
        it.table == raw.name for one in every.values() for it in one.references
    ):
        role, owner = Role.SHARED, None
    else:
        role, owner = Role.OWNED, _owner(raw, numbers)
        if owner is None or not (every[owner].has_uuid and every[owner].number):
            raise RuntimeError(
                f"table {raw.name}: merging does not know whose it is: its primary key should "
                "begin with a reference to a run, a sweep or another table with a uuid (or name "
                "it in rater/store/merge/tables.py, LOCAL)"
            )
    return MergeTable(
        name=raw.name,
        role=role,
        columns=tuple(it for it in raw.columns if it != raw.number),
        key=raw.key,
        number=raw.number,
        numbers=numbers,
        nullable=raw.nullable,
        references=raw.references,
        owner=owner,
    )


def _owner(raw: _Raw, numbers: dict[str, str]) -> str | None:
    if raw.number:  # a number of its own: whose it is says its one reference
        spaces = set(numbers.values())
        return spaces.pop() if len(spaces) == 1 else None
    return numbers.get(raw.key[0]) if raw.key else None


def _space(raw: _Raw, column: str, every: dict[str, _Raw]) -> str | None:
    """Return the table whose number a column holds, through however many references."""
    for it in raw.references:
        if column in it.columns:
            target, name = every[it.table], it.target[it.columns.index(column)]
            if name == target.number:
                return target.name
            found = _space(target, name, every)
            if found:
                return found
    return None


def _in_order(tables: dict[str, MergeTable]) -> tuple[MergeTable, ...]:
    done: dict[str, MergeTable] = {}
    while len(done) < len(tables):
        ready = {
            name: it
            for name, it in tables.items()
            if name not in done and all(one.table in done for one in it.references)
        }
        if not ready:
            raise RuntimeError(f"tables refer to each other in a circle: {sorted(tables)}")
        done |= ready
    return tuple(done.values())
