"""The database: found, sure to be ours, whole, and brought up to date."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from rater.store.rows import migrate, read_pragma
from rater.system.errors import InputError, RunError
from rater.system.files import (
    OpenedFile,
    UntrustedError,
    describe_shared_disk,
    inspect_file,
    open_file,
    read_file,
    user_name,
)
from rater.system.paths import data_folder, user_folder
from rater.system.process import print_error

# -- Open the database: find it, make sure it is ours, bring it up to date -------------------------

APPLICATION_ID = int.from_bytes(b"ratr", "big")

APPLICATION_ID_AT = 68  # sqlite.org/fileformat.html, section 1.3: big-endian, 4 bytes
_BUSY_TIMEOUT_S = 10.0
_DAMAGED = "SQLITE_(NOTADB|CORRUPT)"  # how such errors of SQLite begin
_NO_LOCKS = (
    "its file system has no locks, which a database needs; name one on a disk of this machine "
    "with --db or RATER_DB"
)
OWN_DISK = "one on a disk of this machine (--db, RATER_DB)"
# Above one phase's worth of commits: checkpoints (they fsync) then fall between phases, where
# `Store.append` asks for them, not into a phase where the disk would wake beside the copies.
_AUTOCHECKPOINT_PAGES = 16384


class StoreError(RunError):
    """The database could not take or give rows (I/O error, locked too long, damaged)."""


class StoreDamagedError(StoreError):
    """What is in the database cannot be: its file, or its rows, are not as rater left them."""


class StoreFullError(StoreError):
    """There is no room for another row; the store goes on when there is room again."""


def default_path(db_option: str | None) -> Path:
    """Return the database that is meant: `--db`, else RATER_DB, else the user's data folder."""
    chosen = db_option or os.environ.get("RATER_DB")
    if chosen:
        return Path(chosen)
    data = user_folder("DATA")
    if data is None:
        raise InputError(
            "no home directory (HOME) to keep the database in; name it with --db or RATER_DB"
        )
    return data / "rater.db"


def store_error(error: sqlite3.Error, path: Path, doing: str) -> StoreError:
    """Return what a person can do something about for an error of SQLite."""
    name = getattr(error, "sqlite_errorname", None) or ""
    if name == "SQLITE_FULL":
        return StoreFullError(
            f"{path}: the disk is full while {doing}; make room on its file system"
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_IOERR")) and not _has_locks(path.absolute().parent):
        return StoreError(f"{path}: {_NO_LOCKS}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreError(
            f"{path}: another program held the database for {_BUSY_TIMEOUT_S:g} s while {doing}; "
            "end its transaction"
        )
    if name.startswith("SQLITE_IOERR"):
        return StoreError(
            f"{path}: the file system failed while {doing} ({error}, {name}); "
            "see `df` and `dmesg`, or keep the database elsewhere with --db"
        )
    text = f"{path}: {error} ({name or type(error).__name__}) while {doing}"
    if isinstance(error, sqlite3.IntegrityError):
        text = (
            f"{path}: rows contradict each other while {doing} ({error}): another program changed "
            "the database, or this is a fault of rater's: please report it"
        )
    elif re.match(_DAMAGED, name):
        text = f"{path}: the database is damaged ({error}) while {doing}"
    else:
        return StoreError(text)
    return StoreDamagedError(text)


def _has_locks(folder: Path) -> bool:
    """Tell whether files in a folder can be locked, as far as one can be made there to try it."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
    return True


class DatabaseConnection(Struct, frozen=True):
    """A connection, and the file it is of as it was opened."""

    connection: sqlite3.Connection
    file: tuple[int, int]  # device and inode
    writer: str | None  # who may have written it, in words; None: nobody but trusted users


def connect(path: Path) -> DatabaseConnection:
    """Open the database at `path`, made (with its folders) when there is none, and migrate it.

    Raises `InputError` for anything that is not a database of this rater or an
    older one; a file that is not ours is left as it was.
    """
    file_made = False
    try:
        while True:
            try:
                with inspect_file(path) as file:
                    connection = _connect(path, file)
            except (FileNotFoundError, NotADirectoryError):
                if file_made:
                    raise
                _make_file(path)
                file_made, connection = True, None
            if connection is not None:
                return connection
    except OSError as error:
        text = f"cannot read the database ({error.strerror})"
        if isinstance(error, UntrustedError):
            problem = (error.strerror or "").removeprefix("not a regular file but ")
            text = f"{problem}, not a database"
        elif isinstance(error, FileNotFoundError):
            text = "the database vanished while it was opened"
        raise InputError(f"{path}: {text}; name a file with --db or RATER_DB") from error


def _connect(path: Path, file: OpenedFile) -> DatabaseConnection | None:
    """Return a connection to a file that was judged; None: its schema was made or changed."""
    beside_writer = _check_file(path, file)
    # Where the links lead that were judged, quoted because of `?` and `#`.
    uri = f"{file.path.as_uri()}?mode=rw"
    try:
        connection = sqlite3.connect(
            uri,
            uri=True,
            timeout=_BUSY_TIMEOUT_S,
            autocommit=True,
            # A run may hand its rows to a thread so that a slow disk cannot delay a time stamp.
            check_same_thread=False,
        )
    except sqlite3.Error as error:
        raise InputError(f"{path}: cannot open the database ({error}); see --db") from error
    if not _is_open_here(file):
        connection.close()
        raise InputError(f"{path}: somebody exchanged the database while it was opened")
    try:
        forbid_stored_sql(connection)
        check_ours(connection, path)
        if migrate(connection, path):
            # The connection that made a schema takes half as long again for a row of it.
            connection.close()
            return None
        _set_up(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise _unusable_error(error, path) from error
    except BaseException:
        connection.close()
        raise
    file_id = (file.state.st_dev, file.state.st_ino)
    return DatabaseConnection(connection, file_id, file.writer or beside_writer)


def forbid_stored_sql(connection: sqlite3.Connection) -> None:
    """Run no SQL that stands in a database: it may be somebody else's work.

    rater makes no triggers, and its views are for the `sqlite3` shell. What constraints call has no
    effects outside of it.
    """
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, False)
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_VIEW, False)
    connection.setconfig(sqlite3.SQLITE_DBCONFIG_TRUSTED_SCHEMA, False)


def _make_file(path: Path) -> None:
    """Make an empty file, with its folders: SQLite itself would do so wherever a link leads."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        os.close(open_file(path, flags, mode=_new_file_mode()))
        if not _has_locks(path.absolute().parent):
            path.unlink()
            raise InputError(f"{path}: {_NO_LOCKS}")
        trouble = describe_shared_disk(path, OWN_DISK)
        if trouble is not None:
            print_error(f"warning: {trouble}")
    except FileExistsError as error:  # another rater was faster, or it is no file
        if path.is_symlink() and not path.exists():
            raise InputError(
                f"{path}: a symbolic link to nothing, no database; name a file with --db"
            ) from error
    except OSError as error:
        raise InputError(
            f"{path}: cannot make the database ({error.strerror}: {error.filename}); "
            "name another with --db or RATER_DB"
        ) from error


def _new_file_mode() -> int:
    """Return the mode of a database that is made: its owner's, as an environment has secrets.

    SQLite gives the logs beside it the same.
    """
    mode_text = os.environ.get("RATER_DB_MODE") or "600"
    if not re.fullmatch("0?[67][0-7]{2}", mode_text):
        raise InputError(
            f"RATER_DB_MODE={mode_text!r}: expected a mode such as 600 or 660, in octal"
        )
    return int(mode_text, 8)  # the umask applies


def _check_file(path: Path, file: OpenedFile) -> str | None:
    """Refuse what SQLite should not even open; reading the header changes nothing.

    Return who but trusted users may have written what lies beside it.
    """
    if _is_open_here(file):
        return None  # it was looked at then
    head = file.read(100)
    if head and not head.startswith(MAGIC):
        raise InputError(
            f"{path}: not a SQLite database; it is left as it was. Name another file with --db"
        )
    number = int.from_bytes(head[APPLICATION_ID_AT : APPLICATION_ID_AT + 4], "big")
    if number not in (0, APPLICATION_ID):  # 0: fresh, or ours with all of it still in the WAL
        raise foreign_database_error(path)
    for place in (file.path, file.path.parent):  # the -wal and -shm files stand beside it
        if not os.access(place, os.W_OK):
            raise InputError(
                f"{path}: read-only for you ({place} cannot be written, which its write-ahead "
                "log needs); copy it to a folder of yours and name the copy with --db"
            )
    return _check_beside(file)


def _check_beside(file: OpenedFile) -> str | None:
    writer = None
    owners = (0, os.geteuid(), file.state.st_uid)
    is_shared = file.state.st_size > 0 and bool(os.fstat(file.folder).st_mode & stat.S_IWOTH)
    for suffix in ("-wal", "-shm", "-journal"):
        beside = file.path.with_name(f"{file.path.name}{suffix}")
        if is_shared and suffix != "-journal":
            # Ours from the start, so that nobody can make it between the look and the opening.
            flags, mode = os.O_RDWR | os.O_CREAT | os.O_EXCL, stat.S_IMODE(file.state.st_mode)
            with suppress(OSError):
                os.close(open_file(beside, flags, mode=mode))
        try:
            state = os.stat(beside.name, dir_fd=file.folder, follow_symlinks=False)
        except OSError:
            continue
        is_foreign = state.st_uid not in owners
        is_wrong_kind = not stat.S_ISREG(state.st_mode) or state.st_nlink > 1
        if is_wrong_kind or (is_foreign and (os.geteuid() == 0 or is_shared)):
            raise InputError(f"{beside}: SQLite did not make this for the database: remove it")
        if is_foreign:  # a group may share one
            writer = f"{beside} is a file of user {user_name(state.st_uid)}"
    return writer


def _is_open_here(file: OpenedFile) -> bool:
    """Tell whether this process has the file open already, and not only to look at it.

    Then it must not be opened and closed past SQLite: that drops all locks which the process has
    on it (fcntl(2)), another process takes itself for the last one, removes the write-ahead log
    that is in use, and the database is damaged (sqlite.org/howtocorrupt.html, section 2.2).
    """
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - numbers, not paths
        with suppress(OSError):  # the descriptor of the listing itself
            if number != file.number and os.path.samestat(os.fstat(number), file.state):
                return True
    return False


def check_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `InputError` for a database of another program; a fresh one is ours."""
    connection.execute("BEGIN")  # one view of all three, while another process may be migrating
    number = read_pragma(connection, "application_id")
    version = read_pragma(connection, "user_version")
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    connection.execute("COMMIT")
    fresh = number == 0 and version == 0 and objects == 0
    if not fresh and (number != APPLICATION_ID or version == 0):
        raise foreign_database_error(path)


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    # After the migrations, which may have to rebuild a table that others refer to.
    connection.execute("PRAGMA foreign_keys = ON")
    # WAL: readers and the writer do not wait for each other, and a commit is one append.
    mode = _until_free(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
    if mode != "wal":
        raise InputError(
            f"{path}: this file system cannot hold the database (no shared memory for SQLite's "
            "write-ahead log); name a file on a local disk with --db"
        )
    # NORMAL, not FULL: a commit is then a write() without fsync. What is written survives the death
    # of rater in any form (the kernel has it); only a power cut or kernel crash can take the last
    # phase's rows, and never the database's consistency. FULL would fsync once per finished copy,
    # milliseconds of disk each, beside the copies that are still being timed.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_AUTOCHECKPOINT_PAGES}")
    # The one view that rater itself reads, as our file has it.
    view = (data_folder("db") / "views" / "sweep_progress.sql").read_text(encoding="utf-8")
    connection.execute(view.replace("CREATE VIEW", "CREATE TEMP VIEW", 1))


def _until_free(attempt: Callable[[], str]) -> str:
    """Repeat while the database is locked: SQLite's own waiting does not cover this change."""
    deadline_s = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            locked = (error.sqlite_errorname or "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
            if not locked or time.monotonic() > deadline_s:
                raise
        time.sleep(0.005)


def _unusable_error(error: sqlite3.Error, path: Path) -> InputError:
    if re.match(_DAMAGED, getattr(error, "sqlite_errorname", None) or ""):
        return InputError(
            f"{path}: damaged, or not a database ({error}); it is left as it was. "
            "`sqlite3 FILE .recover` may save its rows; name another file with --db"
        )
    text = str(store_error(error, path, "opening it"))
    return InputError(text if "--db" in text else f"{text}; name another file with --db")


def foreign_database_error(path: Path) -> InputError:
    """Return the error for the database of another program."""
    return InputError(
        f"{path}: the SQLite database of another program; it is left as it was. "
        "Name another file with --db"
    )


MAGIC = b"SQLite format 3\x00"


def is_database(path: Path) -> bool:
    """Tell whether a regular file begins as SQLite's do; what cannot be read does not."""
    try:
        return read_file(path, len(MAGIC)) == MAGIC
    except OSError:
        return False
