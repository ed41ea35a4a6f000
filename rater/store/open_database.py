"""An open database: transactions, errors that a person can act on, a file that may be lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NoReturn, Self

from rater.errors import RaterError
from rater.store.connection import StoreError, translated
from rater.store.lost import DatabaseFile


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
    def beside(self, path: Path, name: str) -> Iterator[None]:
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
        left = self._file.left(self._connection)
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
