"""An open database: transactions, errors to act on, and a file that may be lost."""

from __future__ import annotations

import os
import shlex
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NoReturn, Self

from rater.store.connection import StoreError, connect, store_error
from rater.store.rows import Database
from rater.system.errors import RaterError
from rater.system.files import Sourced, resolve_trusted_folder

# SQLite goes on writing into a file that has no name any more, and says nothing of it; what it
# wrote is gone with the last descriptor. Until then all of it can be copied through the open
# connection.

_LOGS = ("-wal", "-shm")

_rescued: dict[tuple[int, int], Path] = {}  # where what was lost is, by its device and inode


class OpenDatabase:
    """A connection, and the file it is of."""

    def __init__(self, path: Path) -> None:
        """Open the database at `path`, made with its folders when there is none.

        Raises `InputError` when it cannot be used: a directory, unreadable, read-only, not a
        database, another program's, or made by a newer rater. None of these is changed.
        """
        self._open(path)
        self.lost: str | None = None  # what became of the file, and where all of it is now

    def _open(self, path: Path) -> None:
        self.path = path
        self._place = path.absolute()  # whatever the current directory is later
        opened = connect(path)
        self._database = Database(opened.connection)
        self._file, self.writer = opened.file, opened.writer
        _rescued.pop(self._file, None)  # the number of one that was lost, given again

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except StoreError as lost_error:
            if str(lost_error) not in str(error):
                text = f"{error}\n{lost_error}" if isinstance(error, RaterError) else lost_error
                raise StoreError(text) from error

    def close(self) -> None:
        """Close the database; the last one to do so folds the write-ahead log in.

        Raises `StoreError` where its file was lost since it was opened.
        """
        try:
            if self._database.connection.total_changes:
                self._leave_if_lost()
        finally:
            self._database.connection.close()
        if self.lost is not None:
            raise StoreError(self.lost)

    def sourced[T](self, value: T) -> Sourced[T]:
        """Return something that was read from it with whether others may have written that."""
        doubt = self.writer and f"{self.path} may say what others want ({self.writer})"
        return Sourced(value, doubt)

    # -- for modules with tables of their own (`store.sweeps`) ------------------------------------

    def writing(self, doing: str) -> AbstractContextManager[Database]:
        """Give the database inside one transaction, all or nothing; `doing` is for errors."""
        # Immediate: a reader that turns writer later may find itself locked out.
        return self._transaction(doing, "BEGIN IMMEDIATE")

    def reading(self) -> AbstractContextManager[Database]:
        """Give the database inside one view of all tables, whatever a running rater adds."""
        return self._transaction("reading", "BEGIN")

    @contextmanager
    def attached(self, path: Path, name: str) -> Iterator[None]:
        """Let `writing` and `reading` see another database, which nobody writes, under `name`."""
        where = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        try:
            self._database.execute(f"ATTACH ? AS {name}", (where,))
        except sqlite3.DatabaseError as error:
            self._fail(error, "opening a copy")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):  # of a lost file another connection stands here
                self._database.execute(f"DETACH {name}")

    def copy_to(self, target: Path) -> None:
        """Write all of it into a new file, without a write-ahead log. Raises `StoreError`."""
        try:
            self._database.execute("VACUUM INTO ?", (str(target),))
        except sqlite3.DatabaseError as error:
            self._fail(error, "copying it")

    def forget_pages(self) -> None:
        """Have what is read next come from the file, not from the memory of SQLite."""
        self._database.execute("PRAGMA shrink_memory").fetchall()

    # -- inside ---------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, doing: str, begin: str) -> Iterator[Database]:
        try:
            self._database.execute(begin)
            try:
                yield self._database
                self._database.execute("COMMIT")
            finally:
                if self._database.connection.in_transaction:
                    self._database.execute("ROLLBACK")
        except sqlite3.DatabaseError as error:
            self._fail(error, doing)

    def _leave_if_lost(self) -> bool:
        """Go on in a copy where the file was removed or replaced.

        Raises `StoreError` where no place takes one.
        """
        trouble = self._trouble()
        if trouble is None:
            return False
        # Nothing of the old one may be folded into, or removed with, what is at its path now.
        self._database.connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
        lost_connection, place = self._database.connection, self._place
        target = _rescued.get(self._file) or self._rescue(trouble)
        remedy = f"`{shlex.join(['rater', '--db', str(target), 'list'])}` shows it"
        if not place.exists():
            # SQLite would take the log of the lost one for the log of what is put there.
            logs = [f"{place}{suffix}" for suffix in _LOGS if Path(f"{place}{suffix}").exists()]
            first = f"{shlex.join(['rm', *logs])} && " if logs else ""
            remedy += f"; `{first}{shlex.join(['mv', str(target), str(place)])}` puts it back"
        file = self._file
        self._open(target)
        _rescued[file] = target
        lost_connection.close()
        self.lost = f"{place}: the database {trouble} while it was open; all of it is in {target}"
        self.lost += f": {remedy}"
        return True

    def _trouble(self) -> str | None:
        try:
            state = self._place.stat()
        except OSError:
            return "was removed or moved"
        is_same = (state.st_dev, state.st_ino) == self._file
        return None if is_same else "was replaced by another file"

    def _rescue(self, trouble: str) -> Path:
        """Copy all that the connection can read to a new file, for us alone; return that."""

        def fill(target: Path) -> None:
            self._database.execute("VACUUM INTO ?", (str(target),))

        return make_rescue_file(self._place, f"{trouble} while it was open", fill)

    def _fail(self, error: sqlite3.DatabaseError, doing: str) -> NoReturn:
        if isinstance(error, sqlite3.ProgrammingError):
            raise error  # ours, and not the user's to mend
        raise store_error(error, self.path, doing) from error

    def _checkpoint(self) -> None:
        """Fold the log into the database now, while no copy is timed: this is what fsyncs."""
        try:
            self._database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.OperationalError:
            return  # nothing is lost: rows are safe in the log, and the next time folds them in
        except sqlite3.DatabaseError as error:
            self._fail(error, "folding its log in")


def make_rescue_file(place: Path, trouble: str, fill: Callable[[Path], None]) -> Path:
    """Make a new file beside a database, or where there is room; return what `fill` has filled.

    It is for us alone. `trouble` says what became of the database. Raises `StoreError` where no
    place takes it.
    """
    failures = []
    # Without a home this leaves "~" in place, where Path.home() would raise.
    home = os.path.expanduser("~")  # noqa: PTH111
    stem, end = f"{place.stem}-rescued-", place.suffix
    for folder in (place.parent, Path(tempfile.gettempdir()), Path(home)):
        try:
            descriptor, name = tempfile.mkstemp(end, stem, resolve_trusted_folder(folder))
            os.close(descriptor)
            try:
                fill(Path(name))
            except (sqlite3.Error, RaterError) as error:
                os.unlink(name)  # noqa: PTH108 - a text
                raise OSError(0, str(error)) from error
        except OSError as error:
            failures.append(f"{folder}: {error.strerror}")
        else:
            return Path(name)
    raise StoreError(
        f"{place}: the database {trouble}, and no place took a copy: {'; '.join(failures)}"
    )
