"""A database of somebody else's: copied, checked, and which table hangs on which."""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from enum import StrEnum
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from rater.errors import InputError
from rater.files import OpenedFile, UntrustedError, is_trusted, opened
from rater.store.connection import (
    APPLICATION_ID,
    APPLICATION_ID_AT,
    MAGIC,
    check_ours,
    distrust,
    foreign,
    refuse_damaged,
)
from rater.store.rows import lacking, migrate, number_of
from rater.text.values import group_by_key, truncate_list

# -- Which table hangs on which, read from the schema itself: what merging and digests go by -------
#
# A *root* has a number (`id`) of its own database and a `uuid` of all databases: run, sweep. A
# *shared* table has a number, no uuid, and is the same where all its columns are: host. Every other
# table is *owned* by the root that its primary key begins with, and goes where that goes.

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


class Role(StrEnum):
    """What merging does with the rows of a table."""

    ROOT = "root"
    SHARED = "shared"
    OWNED = "owned"


class Reference(Struct, frozen=True):
    """A foreign key."""

    columns: tuple[str, ...]
    table: str
    target: tuple[str, ...]


class MergeTable(Struct, frozen=True):
    """A table as merging sees it."""

    name: str
    columns: tuple[str, ...]  # without a number of its own
    key: tuple[str, ...]  # of the primary key
    number: str | None  # the column with a number of its own
    nullable: frozenset[str]
    references: tuple[Reference, ...]
    has_uuid: bool
    numbers: dict[str, str] = field(default_factory=dict)  # column: table whose number it holds
    role: Role = Role.OWNED
    owner: str | None = None  # the root's name; of a root its own, of a shared table None

    @property
    def owner_column(self) -> str:
        """The column that holds the owner's number."""
        if self.role is Role.ROOT:
            return self.number or ""
        return next(name for name in self.numbers if self.numbers[name] == self.owner)


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
    every = {
        name: _table(connection, name, schema)
        for (name,) in connection.execute(
            "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = ? "
            "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
            (schema,),
        )
        if name not in LOCAL
    }
    after = {name: {it.table for it in table.references} for name, table in every.items()}
    return tuple(_placed(every[name], every) for name in TopologicalSorter(after).static_order())


def _table(connection: sqlite3.Connection, name: str, schema: str) -> MergeTable:
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
        for some in group_by_key((it[0], it) for it in rows).values()
    )
    types = {it[0]: it[1] for it in info}
    referring = {column for it in references for column in it.columns}
    numbered = len(key) == 1 and types[key[0]] == "INTEGER" and key[0] not in referring
    number = key[0] if numbered else None
    (has_uuid,) = connection.execute(
        'SELECT count(*) FROM pragma_index_list(:name, :schema) AS it WHERE "unique" AND NOT '
        "partial AND (SELECT group_concat(name) FROM pragma_index_info(it.name, :schema)) = 'uuid'",
        {"name": name, "schema": schema},
    ).fetchone()
    return MergeTable(
        name=name,
        columns=tuple(it for it in types if it != number),
        key=key,
        number=number,
        nullable=frozenset(it[0] for it in info if not it[2] and not it[3]),
        references=references,
        has_uuid=bool(has_uuid),
    )


def _placed(table: MergeTable, every: dict[str, MergeTable]) -> MergeTable:
    """Return a table with its role, and the tables whose numbers it holds."""
    numbers = {it: space for it in table.columns if (space := _space(table, it, every))}
    if table.number and table.has_uuid:
        return replace(table, role=Role.ROOT, owner=table.name, numbers=numbers)
    if table.number and any(
        it.table == table.name for one in every.values() for it in one.references
    ):
        return replace(table, role=Role.SHARED, numbers=numbers)
    owner = numbers.get(table.key[0]) if table.key else None
    if table.number:  # a number of its own: whose it is says its one reference
        owner = next(iter(numbers.values())) if len({*numbers.values()}) == 1 else None
    if owner is None or not (every[owner].has_uuid and every[owner].number):
        raise RuntimeError(
            f"table {table.name}: merging does not know whose it is: its primary key should begin "
            "with a reference to a run, a sweep or another table with a uuid (or name it in "
            "rater/fleet/merge_source.py, LOCAL)"
        )
    return replace(table, owner=owner, numbers=numbers)


def _space(table: MergeTable, column: str, every: dict[str, MergeTable]) -> str | None:
    """Return the table whose number a column holds, through however many references."""
    for it in table.references:
        if column in it.columns:
            target, name = every[it.table], it.target[it.columns.index(column)]
            found = target.name if name == target.number else _space(target, name, every)
            if found:
                return found
    return None


# -- A database of somebody else's, copied to a private place, checked and brought up to date there
#
# The file itself is only read: SQLite never opens it, so nothing is made beside it and no lock is
# taken on it. What a killed rater left in its write-ahead log is copied with it, and counts.

_PIECE_BYTES = 1 << 20
_ATTEMPTS = 20  # at a file that is being written
_PAUSE_S = 0.05
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW


class SourceRefusedError(InputError):
    """A database cannot be merged: what is wrong with it, in words; the others can."""


class SourceCopy(Struct, frozen=True):
    """A checked copy, of the newest schema, with no log beside it."""

    path: Path  # of the copy
    sha256: str  # of the file, and its log where it has one, as they were
    schema: int  # version of the schema it had
    left_out: tuple[str, ...]  # tables in it that are none of rater's


def copy_source(path: Path, folder: Path) -> tuple[Path, str, str | None]:
    """Copy a database with its write-ahead log into `folder`.

    Return the copy, its SHA-256, and who but trusted users may have written the file.
    Raises `SourceRefusedError` for what is no database of rater by its header, and for one that
    is written all the time.
    """
    target = folder / "source.db"
    try:
        for attempt in range(_ATTEMPTS):
            time.sleep(_PAUSE_S if attempt else 0.0)
            with opened(path) as file, _read_with_log(path, file) as numbers:
                before = _states(file)
                sha256 = _digest(numbers, target)
                # It is read twice: a time stamp does not tell two changes within one tick of the
                # kernel's clock.
                if _digest(numbers) == sha256 and _states(file) == before:
                    return target, sha256, file.writer
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise InputError(
                f"{folder}: no room for a copy of {path}; name another place with TMPDIR"
            ) from error
        what = (
            error.strerror if isinstance(error, UntrustedError) else os.strerror(error.errno or 0)
        )
        end = "-wal" if str(error.filename).endswith("-wal") else ""
        raise SourceRefusedError(f"{path}{end}: cannot be read ({what})") from error
    raise SourceRefusedError(
        f"{path}: it is being written all the time; merge it when its run has ended, or a copy "
        "made by `sqlite3 FILE '.backup COPY'`"
    )


def checked(path: Path, copy: Path, sha256: str) -> SourceCopy:
    """Check a copy as a whole and bring it up to date; `path` is what errors call it.

    Raises `SourceRefusedError` for the database of another program or a newer rater, and for one
    that is damaged.
    """
    try:
        if Path(f"{copy}-wal").exists():
            with _opened_copy(copy):
                pass  # which folds it in: only then the header is true
        refuse_damaged(copy)
        with _opened_copy(copy) as connection:
            check_ours(connection, path)
            schema = number_of(connection, "user_version")
            migrate(connection, path)
            left_out = _check_tables(connection, path, schema)
    except sqlite3.Error as error:
        raise SourceRefusedError(f"{path}: damaged ({error})") from error
    except SourceRefusedError:
        raise
    except InputError as error:
        text = str(error)
        raise SourceRefusedError(
            text if text.startswith(str(path)) else f"{path}: {text}"
        ) from error
    return SourceCopy(copy, sha256, schema, left_out)


# -- copying ---------------------------------------------------------------------------------------


@contextmanager
def _read_with_log(path: Path, file: OpenedFile) -> Iterator[dict[str, int]]:
    """Give descriptors of a database, and of its log where that has anything, by their ends.

    Raises `SourceRefusedError` for a rollback journal too: playing one back removes files that it
    names, and rater makes none.
    """
    name = file.path.name
    with ExitStack() as stack:
        files = {"": file.reopen()}
        stack.callback(os.close, files[""])
        _check_header(path, files[""])
        with suppress(FileNotFoundError):
            if os.stat(f"{name}-journal", dir_fd=file.folder, follow_symlinks=False).st_size:
                raise SourceRefusedError(
                    f"{path}: a transaction of another program was interrupted in it (there is a "
                    "-journal beside it); `sqlite3 FILE 'PRAGMA journal_mode = WAL'` undoes that"
                )
        with suppress(FileNotFoundError):
            log = os.open(f"{name}-wal", _READ, dir_fd=file.folder)
            stack.callback(os.close, log)
            state = os.fstat(log)
            ours = state.st_uid == file.state.st_uid or is_trusted(state.st_uid)
            if not (stat.S_ISREG(state.st_mode) and ours):
                raise SourceRefusedError(f"{path}-wal: SQLite did not make this: remove it")
            if state.st_size:
                files["-wal"] = log
        yield files


def _check_header(path: Path, number: int) -> None:
    """Refuse by the first 100 bytes what need not be copied at all."""
    head = os.pread(number, 100, 0)
    size = os.fstat(number).st_size
    if not size:
        raise SourceRefusedError(f"{path}: an empty file, no database")
    if not head.startswith(MAGIC):
        raise SourceRefusedError(f"{path}: not a SQLite database")
    if len(head) < 100:
        raise SourceRefusedError(f"{path}: cut short: {size} bytes are no database")
    mark = int.from_bytes(head[APPLICATION_ID_AT : APPLICATION_ID_AT + 4], "big")
    if mark not in (0, APPLICATION_ID):  # 0: all of it may still be in the log
        raise SourceRefusedError(str(foreign(path)))


def _digest(files: dict[str, int], copy: Path | None = None) -> str:
    """Return the checksum of all of them; write them to a copy as well."""
    digest = hashlib.sha256()
    if copy is not None:
        Path(f"{copy}-wal").unlink(missing_ok=True)
    for end, number in files.items():
        with ExitStack() as stack:
            out = None if copy is None else stack.enter_context(Path(f"{copy}{end}").open("wb"))
            for piece in _pieces(number):
                digest.update(piece)
                if out is not None:
                    out.write(piece)
    return digest.hexdigest()


def _pieces(number: int) -> Iterator[bytes]:
    """Yield what a file has; no more than it had at first, as one may grow for ever."""
    left, at = os.fstat(number).st_size, 0
    while left > 0 and (piece := os.pread(number, min(left, _PIECE_BYTES), at)):
        yield piece
        at += len(piece)
        left -= len(piece)


def _states(file: OpenedFile) -> list[tuple[int, ...] | None]:
    """Return what changes with the content of a database, its log and its journal."""
    found: list[tuple[int, ...] | None] = [None] * 3
    for place, end in enumerate(("", "-wal", "-journal")):
        with suppress(OSError):
            it = os.stat(f"{file.path.name}{end}", dir_fd=file.folder, follow_symlinks=False)
            found[place] = it.st_dev, it.st_ino, it.st_size, it.st_mtime_ns
    return found


# -- checking --------------------------------------------------------------------------------------


@contextmanager
def _opened_copy(copy: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(copy, autocommit=True)) as connection:
        distrust(connection)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = DELETE")
        yield connection


def _check_tables(connection: sqlite3.Connection, path: Path, schema: int) -> tuple[str, ...]:
    """Return the names of tables that stay behind; those that are merged have to be all there."""
    if not schema:
        raise SourceRefusedError(f"{path}: a database with nothing in it")
    lacks = lacking(connection)
    if lacks:
        raise SourceRefusedError(
            f"{path}: made by a rater between two releases, without {truncate_list(lacks)}"
        )
    kinds: dict[str, str] = dict(
        connection.execute(
            "SELECT name, type FROM pragma_table_list WHERE schema = 'main' "
            "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        )
    )
    own = LOCAL | {it.name for it in newest_tables()}
    for name in sorted(own):
        if kinds.get(name) != "table":
            raise SourceRefusedError(f"{path}: {name} is no table in it, but a {kinds.get(name)}")
    others = [it for it in kinds if it not in own and kinds[it] != "view"]
    of_fleets = [
        it
        for it in (*FLEET, *ARCHIVE)
        if connection.execute(f"SELECT 1 FROM {it} LIMIT 1").fetchone()
    ]
    return tuple(sorted([*others, *of_fleets]))
