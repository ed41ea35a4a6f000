"""An open database: transactions, errors to act on, and a file that may be lost."""

from __future__ import annotations

import os
import shlex
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self

from rater.errors import RaterError
from rater.files import open_file, resolve_trusted_folder
from rater.store.connection import StoreError, connect, translated

# -- A database whose file is removed, replaced or cut short while it is open: seen, and rescued ---
#
# SQLite goes on writing into a file that has no name any more, and says nothing of it; what it
# wrote is gone with the last descriptor. Until then all of it can be read through the open
# connection.

_WAL = "-wal"
_INDEX = "-shm"
_LOGS = (_WAL, _INDEX)
# Of the index of the log (sqlite.org/walformat.html, sections 2.1 and 2.2), which processes share:
# the log's salt, how many of its frames are in the database, and how many are meant to be by now.
_SALT, _FOLDED_IN, _MEANT = (slice(32, 40), slice(96, 100), slice(128, 132))
_OVERWRITTEN = "was written over by another program"


@dataclass(frozen=True, slots=True)
class _Rescued:
    """Where a lost database is now."""

    path: Path
    at_ns: int  # of `time.monotonic_ns`


_rescued: dict[tuple[int, int], _Rescued] = {}  # by device and inode of what was lost


class DatabaseFile:
    """The files of a database that was just opened, and what became of them since."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # whatever the current directory is later
        state = self.path.stat()
        self.file = (state.st_dev, state.st_ino)
        self._index: int | None = None
        self._folded = self._folded_in()
        self._mtime_ns = self.path.stat().st_mtime_ns
        self._opened_ns = time.monotonic_ns()
        self._bytes = state.st_size
        self._log_path = Path(f"{self.path}{_WAL}")
        self._log: tuple[int, int] | None = None

    def recover_if_lost(
        self, connection: sqlite3.Connection
    ) -> tuple[sqlite3.Connection, Path, str] | None:
        """Return where to go on when the files were lost: a database with all of it, and a word.

        None: they are where they were. Raises `StoreError` where no place takes it.
        """
        try:
            trouble = self._trouble(connection)
        except sqlite3.Error as error:
            raise translated(error, self.path, "looking after its file") from error
        if trouble is None:
            return None
        # Nothing of the old one may be folded into, or removed with, what is at its path now.
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
        target = self._rescued(connection, trouble).path
        if trouble == _OVERWRITTEN:  # a run of ours may be another one in there, or none
            raise StoreError(
                f"{self.path}: the database {trouble} while it was open; what could be read, "
                f"of both, is in {target}; `{shlex.join(['rm', *self._logs()])}` before the one "
                "that was put there is used: the log is of the one that is gone"
            )
        connection.close()
        way = f"`{shlex.join(['rater', '--db', str(target), 'list'])}` shows it"
        if not self.path.exists():
            # SQLite would take the log of the lost one for the log of what is put there.
            logs = self._logs()
            first = f"{shlex.join(['rm', *logs])} && " if logs else ""
            way += f"; `{first}{shlex.join(['mv', str(target), str(self.path)])}` puts it back"
        word = f"{self.path}: the database {trouble} while it was open; all of it is in {target}"
        return connect(target), target, f"{word}: {way}"

    def committed(self) -> None:
        """Take note that we wrote into the log: who does so first after a folding gives it salt."""
        folded = self._folded_in()
        with suppress(OSError):
            if self.path.stat().st_mtime_ns == self._mtime_ns:
                self._folded = folded

    def _trouble(self, connection: sqlite3.Connection) -> str | None:
        """Say what became of the files; None: they are where they were. A few system calls."""
        before = self._folded_in()
        try:
            state = self.path.stat()
        except OSError:
            return "was removed or moved"
        if (state.st_dev, state.st_ino) != self.file:
            return "was replaced by another file"
        if state.st_size < self._bytes and self._is_cut(connection, state.st_size):
            return f"was cut short, from {self._bytes} bytes to {state.st_size}"
        self._bytes = state.st_size
        # SQLite writes into the file only when it folds in the log, which its index tells.
        now = self._folded_in()
        if state.st_mtime_ns != self._mtime_ns and now == self._folded and b"" < now[1] == now[2]:
            return _OVERWRITTEN
        self._folded, self._mtime_ns = before, state.st_mtime_ns
        return self._trouble_with_log()

    def _trouble_with_log(self) -> str | None:
        try:
            log = self._log_path.stat()
        except OSError:
            return f"lost its write-ahead log ({self._log_path.name})" if self._log else None
        self._log = self._log or (log.st_dev, log.st_ino)
        if (log.st_dev, log.st_ino) != self._log:
            return f"got another write-ahead log ({self._log_path.name})"
        return None

    def _folded_in(self) -> tuple[bytes, ...]:
        """Return what the index of the log says of the file; nothing where it is not there yet."""
        if self._index is None:
            self._index = _opened(Path(f"{self.path}{_INDEX}"))
        index = b"" if self._index is None else os.pread(self._index, _MEANT.stop, 0)
        return index[_SALT], index[_FOLDED_IN], index[_MEANT]

    def _logs(self) -> list[str]:
        return [f"{self.path}{it}" for it in _LOGS if Path(f"{self.path}{it}").exists()]

    def _is_cut(self, connection: sqlite3.Connection, size: int) -> bool:
        """Tell that from a VACUUM, after which the pages are fewer too."""
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        return bool(size < pages * page_bytes)

    def _rescued(self, connection: sqlite3.Connection, trouble: str) -> _Rescued:
        """Return where all is that the connection can read: a new file, for us alone.

        Another connection of this process may have put it there.
        """
        before = _rescued.get(self.file)
        # One rescued before we opened ours was another file, with a number that was given again.
        if before and before.at_ns > self._opened_ns and before.path.exists():
            return before
        failed = []
        for folder in dict.fromkeys(self._folders()):
            try:
                target = _new_file(folder, self.path)
            except OSError as error:
                failed.append(f"{folder}: {error.strerror}")
                continue
            try:
                _copy(connection, target)
            except (sqlite3.Error, RaterError) as error:
                failed.append(f"{folder}: {error}")
                for left in (target, *(Path(f"{target}{it}") for it in _LOGS)):
                    with suppress(OSError):
                        left.unlink()
                continue
            found = _rescued[self.file] = _Rescued(target, time.monotonic_ns())
            return found
        raise StoreError(
            f"{self.path}: the database {trouble} while it was open, and no place took a copy: "
            f"{'; '.join(failed)}"
        )

    def _folders(self) -> Iterator[Path]:
        """Beside it, wherever that is by now, then where there may be room."""
        for number in _descriptors(self.file):
            with suppress(OSError):
                yield Path(f"/proc/self/fd/{number}").readlink().parent
        yield self.path.parent
        yield Path(tempfile.gettempdir())
        with suppress(RuntimeError):
            yield Path.home()


def _descriptors(file: tuple[int, int]) -> Iterator[int]:
    """Yield this process's descriptors of a file: SQLite's."""
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        with suppress(OSError):
            state = os.fstat(int(number))
            if (state.st_dev, state.st_ino) == file:
                yield int(number)


def _opened(path: Path) -> int | None:
    """Return SQLite's own descriptor: to open and close one more would drop its locks."""
    try:
        state = path.stat()
    except OSError:
        return None
    return next(_descriptors((state.st_dev, state.st_ino)), None)


def _copy(connection: sqlite3.Connection, target: Path) -> None:
    """Copy page by page; raises `sqlite3.Error` where the copy is not sound."""
    with closing(sqlite3.connect(target, autocommit=True)) as new:
        connection.backup(new)
        if new.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("what is left of it is damaged")


def _new_file(folder: Path, lost: Path) -> Path:
    """Make a file in a folder that is there. Raises `OSError`."""
    folder = resolve_trusted_folder(folder)
    for number in range(1, 1000):
        target = folder / f"{lost.stem}-rescued-{number}{lost.suffix}"
        with suppress(FileExistsError):
            os.close(open_file(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            return target
    raise FileExistsError(17, "too many rescued databases", str(folder))


# -- An open database: transactions, errors that a person can act on, a file that may be lost ------


class OpenDatabase:
    """A connection, and the file it is of."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path
        self._file = DatabaseFile(path)
        self.lost: str | None = None  # what became of the file, and where all of it is now

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except StoreError as lost:
            if str(lost) not in str(error):
                both = f"{error}\n{lost}" if isinstance(error, RaterError) else lost
                raise StoreError(both) from error

    def close(self) -> None:
        """Close the database; the last one to do so folds the write-ahead log in.

        Raises `StoreError` where its file was lost since it was opened.
        """
        try:
            if self._connection.total_changes:
                self._leave_if_lost()
        finally:
            self._connection.close()
        if self.lost is not None:
            raise StoreError(self.lost)

    # -- for modules with tables of their own (`store.sweeps`) ------------------------------------

    @contextmanager
    def writing(self, doing: str) -> Iterator[sqlite3.Connection]:
        """Give the connection inside one transaction, all or nothing; `doing` is for errors."""
        with self._transaction(doing):
            yield self._connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give the connection inside one view of all tables."""
        with self._reading():
            yield self._connection

    @contextmanager
    def attached(self, path: Path, name: str) -> Iterator[None]:
        """Let `writing` and `reading` see another database, which nobody writes, under `name`."""
        where = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        try:
            self._connection.execute(f"ATTACH ? AS {name}", (where,))
        except sqlite3.DatabaseError as error:
            self._fail(error, "opening a copy")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):  # of a lost file another connection stands here
                self._connection.execute(f"DETACH {name}")

    def copy_to(self, target: Path) -> None:
        """Write all of it into a new file, without a write-ahead log. Raises `StoreError`."""
        try:
            self._connection.execute("VACUUM INTO ?", (str(target),))
        except sqlite3.DatabaseError as error:
            self._fail(error, "copying it")

    # -- inside ---------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, doing: str, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
        # Immediate: a reader that turns writer later may find itself locked out.
        if begin == "BEGIN IMMEDIATE":
            self._leave_if_lost()
        try:
            self._connection.execute(begin)
            try:
                yield
                self._connection.execute("COMMIT")
                self._file.committed()
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
        except sqlite3.DatabaseError as error:
            self._fail(error, doing)

    def _reading(self) -> AbstractContextManager[None]:
        """One view of all tables, whatever a running rater adds meanwhile."""
        return self._transaction("reading", "BEGIN")

    def _leave_if_lost(self) -> bool:
        """Go on in a copy where the file was removed or replaced: what is lost in it is lost."""
        left = self._file.recover_if_lost(self._connection)
        if left is None:
            return False
        self._connection, self.path, self.lost = left
        self._file = DatabaseFile(self.path)
        return True

    def _fail(self, error: sqlite3.DatabaseError, doing: str) -> NoReturn:
        if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
            raise error  # ours, and not the user's to mend
        raise translated(error, self.path, doing) from error

    def _checkpoint(self) -> None:
        """Fold the log into the database now, while no copy is timed: this is what fsyncs."""
        # Failing loses nothing: the rows are safe in the log, and the next time folds them in.
        with suppress(sqlite3.OperationalError):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
