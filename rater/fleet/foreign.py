"""The door for databases of others: copied once, and every row taken as our own tables take it."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from msgspec import Struct

from rater.store.connection import MAGIC, check_ours, forbid_stored_sql
from rater.store.rows import migrate, missing_columns, read_pragma
from rater.system.errors import InputError
from rater.system.files import UntrustedError, inspect_file, is_trusted
from rater.text.values import group_by_key, truncate_list

# -- Which table hangs on which, read from the schema itself: what merging and digests go by -------
#
# A *root* has a number (`id`) of its own database and a `uuid` of all databases: run, sweep. A
# *shared* row is the same where all its columns are: host. Every other table is *owned* by the root
# that its primary key begins with, and goes where that goes.

# The index of the archive beside a database: `rater fleet collect` fills it from the same files.
ARCHIVE = ("fleet_setting", "fleet_run", "result")
# Jobs of the machine that submitted them: a fleet goes on, and is collected, in its own database.
FLEET = ("fleet", "fleet_node", "fleet_attempt", "fleet_change")
# What is true of one database alone: what was removed from it, merged into it, archived beside it.
LOCAL = {"removed", "merged_file", *ARCHIVE, *FLEET}
SHARED = {"host"}
# Worked out from other rows: they go along with those, and say nothing of how far a run has got.
DERIVED = {"run_score"}
# Numbers of runs that stand in a text column: of rows whose FIELD is WORD, VALUE is a number.
NUMBERS_AS_TEXT = {("tag", "value"): ("name", "replaced-by", "run")}
GONE = "removed"  # what stands there for a run that is in no database any more


class Reference(Struct, frozen=True):
    """A foreign key."""

    columns: tuple[str, ...]
    table: str
    target: tuple[str, ...]


class MergeTable(Struct, frozen=True, kw_only=True):
    """A table as merging sees it."""

    name: str
    columns: tuple[str, ...]  # without a number of its own
    key: tuple[str, ...]  # of the primary key
    number: str | None  # the column with a number of its own
    nullable: frozenset[str]
    references: tuple[Reference, ...]
    numbers: dict[str, str]  # column: table whose number it holds
    owner: str  # the root's name; of a root and of a shared table its own
    owner_column: str  # that holds the owner's number

    @property
    def is_root(self) -> bool:
        """Tell whether other tables may hang on it, under a uuid."""
        return self.owner == self.name and self.name not in SHARED

    @property
    def is_owned(self) -> bool:
        """Tell whether it goes where its root goes."""
        return self.owner != self.name


@cache
def _newest() -> tuple[tuple[MergeTable, ...], bytes]:
    with closing(sqlite3.connect(":memory:", autocommit=True)) as fresh:
        migrate(fresh, Path(":memory:"))
        return merge_tables(fresh), fresh.serialize()


def newest_tables() -> tuple[MergeTable, ...]:
    """Return the tables of the newest schema, without the local ones."""
    return _newest()[0]


def merge_tables(connection: sqlite3.Connection) -> tuple[MergeTable, ...]:
    """Return all tables but the local ones, each after those that it refers to.

    Raises `RuntimeError` for a table that belongs to nothing: one that is new wants a reference
    to a root at the beginning of its primary key, or a word in `LOCAL`.
    """
    references = {
        name: _references(connection, name)
        for (name,) in connection.execute(
            "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main' "
            "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
        )
        if name not in LOCAL
    }
    tables: dict[str, MergeTable] = {}
    after = {name: {it.table for it in of} for name, of in references.items()}
    for name in TopologicalSorter(after).static_order():
        tables[name] = _table(connection, name, references[name], tables)
    return tuple(tables.values())


def _references(connection: sqlite3.Connection, name: str) -> tuple[Reference, ...]:
    rows = connection.execute(
        'SELECT id, "from", "table", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq', (name,)
    )
    return tuple(
        Reference(tuple(it[1] for it in some), some[0][2], tuple(it[3] for it in some))
        for some in group_by_key((it[0], it) for it in rows).values()
    )


def _table(
    connection: sqlite3.Connection,
    name: str,
    references: tuple[Reference, ...],
    parents: dict[str, MergeTable],
) -> MergeTable:
    info = connection.execute(
        'SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (name,)
    ).fetchall()
    key = tuple(
        info_row[0] for info_row in sorted(info, key=lambda info_row: info_row[3]) if info_row[3]
    )
    referring = {column for info_row in references for column in info_row.columns}
    types = {info_row[0]: info_row[1] for info_row in info}
    numbered = len(key) == 1 and types[key[0]] == "INTEGER" and key[0] not in referring
    number = key[0] if numbered else None
    numbers = {}
    for reference in references:
        parent = parents[reference.table]
        for column, target in zip(reference.columns, reference.target, strict=True):
            space = parent.name if target == parent.number else parent.numbers.get(target)
            if space is not None:
                numbers[column] = space
    owner, owner_column = name, number
    if name not in SHARED and not (number and "uuid" in types):
        owners = {
            info_row: numbers[info_row]
            for info_row in ([*numbers] if number else key[:1])
            if info_row in numbers
        }
        if len({*owners.values()}) != 1 or not parents[next(iter(owners.values()))].is_root:
            raise RuntimeError(
                f"table {name}: merging does not know whose it is: its primary key should begin "
                "with a reference to a run, a sweep or another table with a uuid (or name it in "
                "rater/fleet/foreign.py, LOCAL)"
            )
        owner_column, owner = next(iter(owners.items()))
    assert owner_column is not None
    return MergeTable(
        name=name,
        columns=tuple(info_row for info_row in types if info_row != number),
        key=key,
        number=number,
        nullable=frozenset(info_row[0] for info_row in info if not info_row[2] and not info_row[3]),
        references=references,
        numbers=numbers,
        owner=owner,
        owner_column=owner_column,
    )


# -- The door: the file is copied, and its rows are taken as our own tables take them --------------
#
# The file itself is only read: SQLite never opens it, so nothing is made beside it and no lock is
# taken on it. What a killed rater left in its write-ahead log is copied with it, and counts. What
# comes out is a database that this rater has made, with rows that its types and constraints took:
# nothing behind the door doubts them again.

_PIECE_BYTES = 1 << 20
_ATTEMPTS = 20  # at a file that is being written
_PAUSE_S = 0.05
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW


class SourceRefusedError(InputError):
    """A database cannot be taken: what is wrong with it, in words; the others can."""


class ForeignCopy(Struct, frozen=True):
    """A copy of a database in a private folder, byte for byte, with its log beside it."""

    path: Path
    origin: Path  # what errors call it
    sha256: str  # of the file, and its log where it has one
    writer: str | None  # who but trusted users may have written the file

    @property
    def log(self) -> Path:
        """Where its log is, if it has one."""
        return Path(f"{self.path}-wal")


class ForeignDatabase(Struct, frozen=True):
    """A database of this rater's, of the newest schema, with the rows of a copy."""

    path: Path
    copy: ForeignCopy
    schema: int  # version of the schema that the file had
    left_out: tuple[str, ...]  # tables with rows that stay behind: of others, and of fleets


def copy_foreign(path: Path, folder: Path, origin: Path | None = None) -> ForeignCopy:
    """Copy a database with its write-ahead log into `folder`; `origin` is what errors call it.

    Raises `SourceRefusedError` for what is no regular file of SQLite, and for one that is written
    all the time.
    """
    target, called = folder / "foreign.db", origin or path
    try:
        for attempt in range(_ATTEMPTS):
            time.sleep(_PAUSE_S if attempt else 0.0)
            sha256, writer = _read(path, called, target)
            # Read twice: a time stamp does not tell two changes within one tick of the clock.
            if _read(path, called)[0] == sha256:
                return ForeignCopy(target, called, sha256, writer)
    except OSError as error:
        problem = (
            error.strerror if isinstance(error, UntrustedError) else os.strerror(error.errno or 0)
        )
        end = "-wal" if str(error.filename).endswith("-wal") else ""
        raise SourceRefusedError(f"{called}{end}: cannot be read ({problem})") from error
    raise SourceRefusedError(
        f"{called}: it is being written all the time; merge it when its run has ended, or a copy "
        "made by `sqlite3 FILE '.backup COPY'`"
    )


def _read(path: Path, called: Path, copy: Path | None = None) -> tuple[str, str | None]:
    """Return the checksum of a database and its log, and who may have written it; copy both.

    `called`: what errors call it.
    """
    digest = hashlib.sha256()
    with inspect_file(path) as file, ExitStack() as stack:
        if copy is not None:
            Path(f"{copy}-wal").unlink(missing_ok=True)
            if shutil.disk_usage(copy.parent).free < file.state.st_size:
                raise InputError(
                    f"{copy.parent}: no room for a copy of {called}; name another place with TMPDIR"
                )
        numbers = {"": file.reopen()}
        stack.callback(os.close, numbers[""])
        head = os.pread(numbers[""], len(MAGIC), 0)
        if head != MAGIC:
            problem = "not a SQLite database" if head else "an empty file, no database"
            raise SourceRefusedError(f"{called}: {problem}")
        with suppress(FileNotFoundError):
            # Playing back a rollback journal removes files that it names, and rater makes none.
            journal = f"{file.path.name}-journal"
            if os.stat(journal, dir_fd=file.folder, follow_symlinks=False).st_size:
                raise SourceRefusedError(
                    f"{called}: a transaction of another program was interrupted in it (there is a "
                    "-journal beside it); `sqlite3 FILE 'PRAGMA journal_mode = WAL'` undoes that"
                )
        with suppress(FileNotFoundError):
            log = os.open(f"{file.path.name}-wal", _READ, dir_fd=file.folder)
            stack.callback(os.close, log)
            state = os.fstat(log)
            ours = state.st_uid == file.state.st_uid or is_trusted(state.st_uid)
            if not (stat.S_ISREG(state.st_mode) and ours):
                raise SourceRefusedError(f"{called}-wal: SQLite did not make this: remove it")
            if state.st_size:
                numbers["-wal"] = log
        for end, number in numbers.items():
            out = stack.enter_context(open(f"{copy}{end}" if copy else os.devnull, "wb"))  # noqa: PTH123
            for piece in _pieces(number):
                digest.update(piece)
                out.write(piece)
        return digest.hexdigest(), file.writer


def _pieces(number: int) -> Iterator[bytes]:
    """Yield what a file has; no more than it had at first, as one may grow for ever."""
    left, at = os.fstat(number).st_size, 0
    while left > 0 and (piece := os.pread(number, min(left, _PIECE_BYTES), at)):
        yield piece
        at += len(piece)
        left -= len(piece)


def taken(copy: ForeignCopy) -> ForeignDatabase:
    """Take the rows of a copy into a database made here; the copy is brought up to date for it.

    Raises `SourceRefusedError` for the database of another program or a newer rater, for one that
    is damaged, and for rows that our tables do not take.
    """
    path, own_copy = copy.origin, copy.path.with_name("taken.db")
    try:
        own_copy.write_bytes(_newest()[1])
        with closing(sqlite3.connect(copy.path, autocommit=True)) as connection:
            forbid_stored_sql(connection)
            connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = DELETE")
            check_ours(connection, path)
            schema = read_pragma(connection, "user_version")
            (check,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if check != "ok":
                raise SourceRefusedError(f"{path}: damaged: {str(check).splitlines()[0]}")
            migrate(connection, path)
            left_out = _check_tables(connection, path, schema)
            connection.execute("ATTACH ? AS own", (str(own_copy),))
            connection.execute("PRAGMA own.synchronous = OFF")
            connection.execute("BEGIN")
            for table in newest_tables():
                columns = ", ".join((*filter(None, (table.number,)), *table.columns))
                connection.execute(
                    f"INSERT INTO own.{table.name} ({columns}) SELECT {columns} "
                    f"FROM main.{table.name}"
                )
            connection.execute("COMMIT")
            orphan = connection.execute("PRAGMA own.foreign_key_check").fetchone()
            if orphan is not None:
                problem = f"a row of {orphan[0]} belongs to no row of {orphan[2]}"
                raise SourceRefusedError(f"{path}: damaged: {problem}")
    except sqlite3.IntegrityError as error:
        raise SourceRefusedError(
            f"{path}: its rows are not as rater makes them ({error})"
        ) from error
    except sqlite3.Error as error:
        raise SourceRefusedError(f"{path}: damaged ({error})") from error
    except InputError as error:
        raise SourceRefusedError(str(error)) from error
    return ForeignDatabase(own_copy, copy, schema, left_out)


def _check_tables(connection: sqlite3.Connection, path: Path, schema: int) -> tuple[str, ...]:
    """Return the names of tables that stay behind; those whose rows are taken must be there."""
    if not schema:
        raise SourceRefusedError(f"{path}: a database with nothing in it")
    if lacks := missing_columns(connection):
        raise SourceRefusedError(
            f"{path}: made by a rater between two releases, without {truncate_list(lacks)}"
        )
    kinds: dict[str, str] = dict(
        connection.execute(
            "SELECT name, type FROM pragma_table_list WHERE schema = 'main' "
            "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        )
    )
    own_tables = LOCAL | {table.name for table in newest_tables()}
    if wrong := [name for name in sorted(own_tables) if kinds[name] != "table"]:
        raise SourceRefusedError(f"{path}: {wrong[0]} is no table in it, but a {kinds[wrong[0]]}")
    of_fleets = [
        table_name
        for table_name in (*FLEET, *ARCHIVE)
        if connection.execute(f"SELECT 1 FROM {table_name} LIMIT 1").fetchone()
    ]
    others = [kind for kind in kinds if kind not in own_tables and kinds[kind] != "view"]
    return tuple(sorted([*others, *of_fleets]))
