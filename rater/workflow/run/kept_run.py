"""A run while it is made: its rows in the database, and all of them once more.

Others write into a file as they like. Where the database is damaged meanwhile, the run goes on in
a new one: its head is known, and its events are kept. Rows of other runs are not touched.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rater.record.events import CopyEnded, Event, Noted
from rater.record.stored import StoredRun
from rater.store.connection import StoreDamagedError, StoreError
from rater.store.open_database import make_rescue_file
from rater.store.store import Store, open_store
from rater.system.errors import RaterError

# Events beyond these go, packed, to a file without a name in $TMPDIR, in memory up to its limit:
# some 70,000 ends of copies.
_MOST_EVENTS = 4096
_MOST_BYTES_IN_MEMORY = 8 << 20


class KeptRun:
    """Rows of one run that was entered in a store. One thread at a time."""

    def __init__(self, store: Store, number: int, start: StoredRun) -> None:
        self.store = store  # that has the run: the caller's, or a new one of ours
        self.number = number
        self.damage: str | None = None  # what became of the caller's database, in a sentence
        self._callers_store = store
        self._start = start
        self._file = tempfile.SpooledTemporaryFile(_MOST_BYTES_IN_MEMORY)  # noqa: SIM115 - `close`
        self._latest: list[Event] = []  # that are not in the file
        self._copies = 0
        self._forgotten: str | None = None  # why not all events are kept

    def append(self, *events: Event) -> None:
        """Store events, in a new database where this one is damaged; raises `StoreError`."""
        try:
            self.store.append(self.number, *events)
        except StoreDamagedError as error:
            self.leave(error)
            self.store.append(self.number, *events)
        self._keep(events)

    def load(self) -> StoredRun:
        """Return the run from the disk, or else from what is kept; raises `StoreError`."""
        try:
            self.store.forget_pages()
            run = self.store.load(self.number)
            self._refuse_missing(len(run.copies))
        except Exception as error:  # of any kind: garbage may be read as anything
            if isinstance(error, StoreError) and not isinstance(error, StoreDamagedError):
                raise
            self.leave(error)
            run = self.store.load(self.number)
        return run

    def events(self) -> Iterator[Event]:
        """Yield the events that were stored and are kept, in their order."""
        import pickle

        self._file.seek(0)
        with suppress(EOFError):
            while True:
                yield from pickle.load(self._file)
        yield from self._latest

    def leave(self, error: Exception) -> None:
        """Go on in a new database that has this run alone; raises `StoreError` where none can be.

        The new one stands beside the damaged one, or where there is room.
        """
        place = self._callers_store.path.absolute()
        self.damage = str(error)
        if not isinstance(error, RaterError):  # SQLite's words, or what garbage looks like
            self.damage = f"{place}: the database is damaged ({error})"
        if self.store is not self._callers_store:
            raise StoreError(f"{error}; it was made in place of {place}, which is damaged too")
        target = make_rescue_file(place, "was damaged", self._fill)
        self.store = open_store(target)
        self.number = self.store.find("last")
        show = shlex.join(["rater", "--db", str(target), "show", "last"])
        self.damage += f"\nthis run is in {target}: `{show}` shows it"
        if self._forgotten:
            self.damage += f", but for copies since its temporary file failed ({self._forgotten})"
        recover = f"`{shlex.join(['sqlite3', str(place)])} .recover`"
        self.damage += f"; {recover} may save what else was in {place.name}"
        self.store.append(self.number, Noted(f"stored anew: {self.damage}"))

    def close(self) -> None:
        """Close what was opened here, and let go of the events."""
        self._file.close()
        if self.store is not self._callers_store:
            self.store.close()

    def _refuse_missing(self, copies: int) -> None:
        if copies < self._copies:
            raise StoreDamagedError(
                f"{self.store.path}: the database is damaged: {copies} of {self._copies} copy "
                "runs can be read"
            )

    def _fill(self, target: Path) -> None:
        with open_store(target) as store:
            number = store.create_run(self._start)
            store.append(number, *self.events())

    def _keep(self, events: tuple[Event, ...]) -> None:
        self._copies += sum(isinstance(event, CopyEnded) for event in events)
        if self._forgotten is not None:
            return
        self._latest += events
        if len(self._latest) > _MOST_EVENTS:
            import pickle  # few runs have so many

            try:
                pickle.dump(self._latest, self._file, pickle.HIGHEST_PROTOCOL)
                self._latest = []
            except OSError as error:  # the disk is full: what is stored is stored
                self._forgotten = str(error.strerror)
