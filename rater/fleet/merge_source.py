"""A database of somebody else's: copied, checked, and which table hangs on which."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from rater.errors import InputError
from rater.files import UntrustedError, is_trusted, opened, write_all
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
        for some in group_by_key((it[0], it) for it in rows).values()
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
                "it in rater/fleet/merge_source.py, LOCAL)"
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


# -- A database of somebody else's, copied to a private place, checked and brought up to date there
#
# The file itself is only read: SQLite never opens it, so nothing is made beside it and no lock is
# taken on it. What a killed rater left in its write-ahead log is copied with it, and counts.

_PIECE_BYTES = 1 << 20
_ATTEMPTS = 20  # at a file that is being written
_PAUSE_S = 0.05
_PREFIX = "rater-merge-"
_LEFT_S = 60.0  # nobody takes so long from making a folder to locking it
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW

type _State = tuple[int, int, int, int]  # what changes with a file's content


class SourceRefusedError(InputError):
    """A database cannot be merged: what is wrong with it, in words; the others can."""


@dataclass(frozen=True, slots=True)
class SourceCopy:
    """A checked copy, of the newest schema, with no log beside it."""

    path: Path  # of the copy
    sha256: str  # of the file, and its log where it has one, as they were
    schema: int  # version of the schema it had
    left_out: tuple[str, ...]  # tables in it that are none of rater's


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give a private folder that is removed afterwards; those that killed raters left go too."""
    place = Path(tempfile.gettempdir())
    for left in place.glob(f"{_PREFIX}*"):
        with suppress(OSError), _locked(left):
            found = left.lstat()
            # A new one may be another rater's that has not locked it yet.
            if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _LEFT_S:
                shutil.rmtree(left)
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    except OSError as error:
        raise InputError(f"{place}: no place for copies ({error.strerror}); see TMPDIR") from error
    try:
        with _locked(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder as its user; raises `OSError` where another process does."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(number)


def copy_source(path: Path, folder: Path) -> tuple[Path, str]:
    """Copy a database with its write-ahead log into `folder`; return the copy and its SHA-256.

    Raises `SourceRefusedError` for what is no database of rater by its header, and for one that is
    written all the time.
    """
    target = folder / "source.db"
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_S)
        for name in (target, Path(f"{target}-wal")):
            name.unlink(missing_ok=True)
        sha256 = _copy_once(path, target)
        if sha256:
            return target, sha256
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


def _copy_once(path: Path, target: Path) -> str | None:
    """Return the SHA-256 of what was copied, None where it changed meanwhile."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(opened(path))
            number = file.reopen()
        except OSError as error:
            raise _unreadable(path, error) from error
        stack.callback(os.close, number)
        _check_header(path, number)
        log = _open_beside(path, file.folder, f"{file.path.name}-wal", file.state)
        if log is not None:
            stack.callback(os.close, log)
        try:
            before = _states(file.folder, file.path.name)
            digest = hashlib.sha256()
            _copy(number, target, digest)
            if log is not None:
                _copy(log, Path(f"{target}-wal"), digest)
            # A file that others may write now is read twice: a time stamp does not tell two
            # changes within one tick of the kernel's clock.
            if log is not None and _digest(number, log) != digest.hexdigest():
                return None
            unchanged = _states(file.folder, file.path.name) == before
            return digest.hexdigest() if unchanged else None
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise InputError(
                    f"{target.parent}: no room for a copy of {path}; name another place with TMPDIR"
                ) from error
            raise _unreadable(path, error) from error


def _open_beside(path: Path, folder: int, log: str, of: os.stat_result) -> int | None:
    """Return a descriptor of the write-ahead log, None where there is none with anything in it.

    Raises `SourceRefusedError` for a rollback journal: playing one back removes files that it
    names, and rater makes none.
    """
    with suppress(FileNotFoundError):
        if os.stat(f"{log[:-4]}-journal", dir_fd=folder, follow_symlinks=False).st_size:
            raise SourceRefusedError(
                f"{path}: a transaction of another program was interrupted in it (there is a "
                "-journal beside it); `sqlite3 FILE 'PRAGMA journal_mode = WAL'` undoes that"
            )
    try:
        number = os.open(log, _READ, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path.with_name(log), error) from error
    found = os.fstat(number)
    if not found.st_size:
        os.close(number)
        return None
    if not stat.S_ISREG(found.st_mode) or not (
        found.st_uid == of.st_uid or is_trusted(found.st_uid)
    ):
        os.close(number)
        raise SourceRefusedError(f"{path.with_name(log)}: SQLite did not make this: remove it")
    return number


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


def _copy(number: int, target: Path, digest: hashlib._Hash) -> None:
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        for piece in _pieces(number):
            digest.update(piece)
            write_all(out, piece)
    finally:
        os.close(out)


def _digest(*numbers: int) -> str:
    digest = hashlib.sha256()
    for number in numbers:
        for piece in _pieces(number):
            digest.update(piece)
    return digest.hexdigest()


def _pieces(number: int) -> Iterator[bytes]:
    """Yield what a file has; no more than it had at first, as one may grow for ever."""
    left, at = os.fstat(number).st_size, 0
    while left > 0 and (piece := os.pread(number, min(left, _PIECE_BYTES), at)):
        yield piece
        at += len(piece)
        left -= len(piece)


def _states(folder: int, name: str) -> list[_State | None]:
    found: list[_State | None] = []
    for one in (name, f"{name}-wal", f"{name}-journal"):
        try:
            it = os.stat(one, dir_fd=folder, follow_symlinks=False)
        except OSError:
            found.append(None)
        else:
            found.append((it.st_dev, it.st_ino, it.st_size, it.st_mtime_ns))
    return found


def _unreadable(path: Path, error: OSError) -> SourceRefusedError:
    what = error.strerror if isinstance(error, UntrustedError) else os.strerror(error.errno or 0)
    return SourceRefusedError(f"{path}: cannot be read ({what})")


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
