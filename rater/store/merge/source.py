"""A database of somebody else's, copied to a private place, checked and brought up to date there.

The file itself is only read: SQLite never opens it, so nothing is made beside it and no lock is
taken on it. What a killed rater left in its write-ahead log is copied with it, and counts.
"""

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
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rater.errors import InputError
from rater.store.connection import (
    APPLICATION_ID,
    APPLICATION_ID_AT,
    MAGIC,
    check_ours,
    distrust,
    foreign,
)
from rater.store.intact import refuse_damaged
from rater.store.merge.tables import ARCHIVE, FLEET, LOCAL, newest_tables
from rater.store.schema import lacking, migrate, number_of
from rater.text.words import some
from rater.trusted_files import UntrustedError, is_trusted, meant_file, write_all

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


def copied(path: Path, folder: Path) -> tuple[Path, str]:
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


def is_database(path: Path) -> bool:
    """Tell whether a regular file begins as SQLite's do; what cannot be read does not."""
    try:
        number = os.open(path, _READ & ~os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(number).st_mode) and os.read(number, len(MAGIC)) == MAGIC
    except OSError:
        return False
    finally:
        os.close(number)


# -- copying ---------------------------------------------------------------------------------------


def _copy_once(path: Path, target: Path) -> str | None:
    """Return the SHA-256 of what was copied, None where it changed meanwhile."""
    with _opened(path) as (name, folder, number):
        _check_header(path, number)
        log = _open_beside(path, folder, f"{name}-wal", os.fstat(number))
        try:
            before = _states(folder, name)
            digest = hashlib.sha256()
            _copy(number, target, digest)
            if log is not None:
                _copy(log, Path(f"{target}-wal"), digest)
            # A file that others may write now is read twice: a time stamp does not tell two
            # changes within one tick of the kernel's clock.
            if log is not None and _digest(number, log) != digest.hexdigest():
                return None
            return digest.hexdigest() if _states(folder, name) == before else None
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise InputError(
                    f"{target.parent}: no room for a copy of {path}; name another place with TMPDIR"
                ) from error
            raise _unreadable(path, error) from error
        finally:
            if log is not None:
                os.close(log)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[str, int, int]]:
    """Give a file's name, and descriptors of its folder and itself."""
    try:
        real = meant_file(path)
        folder = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        try:
            number = os.open(real.name, _READ, dir_fd=folder)
        except OSError as error:
            raise _unreadable(path, error) from error
        try:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise SourceRefusedError(f"{path}: not a regular file; expected a database")
            yield real.name, folder, number
        finally:
            os.close(number)
    finally:
        os.close(folder)


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
            f"{path}: made by a rater between two releases, without {some(lacks)}"
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
