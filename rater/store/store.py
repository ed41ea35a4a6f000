"""The database as the rest of rater sees it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from rater.process_id import ProcessId, this_process
from rater.record.events import Event, Noted, PhaseEnded, RunEnded
from rater.record.run import BenchmarkUsed, Host, MachinePU, PlacedCopy, Run
from rater.record.status import RunStatus
from rater.record.stored import PlacementJudgement, RunHead, StoredCopy, StoredRun
from rater.store import resume
from rater.store.connection import connect
from rater.store.divots import (
    DivotSearch,
    RunTimes,
    StoredDivot,
    copy_runs,
    keep_search,
    kept_search,
    run_times,
)
from rater.store.find import RunFilter, find_all, find_one, matching
from rater.store.insert import (
    Context,
    append_events,
    context_of,
    has_several_rows,
    insert_imported,
    insert_run,
    store_judgements,
)
from rater.store.open_database import OpenDatabase
from rater.store.read import load_run, page_extents, run_heads
from rater.store.redact import redacted, redacted_head
from rater.store.remove import forget_removal, remove_runs
from rater.text.secrets import Redactor


def open_store(path: Path) -> Store:
    """Open the database at `path`, made with its folders when there is none.

    Raises `InputError` when it cannot be used: a directory, unreadable, read-only,
    not a database, another program's, or made by a newer rater. None of these is
    changed.
    """
    return Store(connect(path), path)


class Store(OpenDatabase):
    """The runs of an open database. Every method raises `StoreError` when SQLite fails.

    One thread at a time; it need not be the one that opened it.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        super().__init__(connection, path)
        self._contexts: dict[int, Context] = {}
        self._secrets: dict[tuple[str, str], str] = {}  # what stands for them

    # -- writing --------------------------------------------------------------------------------

    def begin(
        self,
        run: Run,
        host: Host,
        settings: Iterable[tuple[str, str]],
        pus: Iterable[MachinePU],
        owner: ProcessId | None = None,
    ) -> int:
        """Store the head of a run that begins now; return its number.

        `owner` is the process that makes the run (this one when not given): when it is
        gone and the run has no end, the run is called killed.
        """
        with self._transaction("beginning a run"):
            return insert_run(
                self._connection,
                run,
                host,
                settings=settings,
                pus=pus,
                owner=owner or this_process(),
            )

    def take_up(
        self,
        run_id: int,
        *,
        resumed: int,
        torn: Sequence[int],
        placements: Iterable[PlacedCopy],
        pus: Iterable[MachinePU],
        notes: Iterable[str],
        owner: ProcessId | None = None,
    ) -> None:
        """Make a stored run this process's own: it runs again; all or nothing.

        `torn` are phases that run again as a whole, `placements` and `pus` where copies
        will be; `resumed` is how often the run had been taken up when the caller looked
        at it. Raises `InputError` when another rater has it, or has had it since then.
        """
        with self._transaction("taking up a run"):
            resume.take_up(
                self._connection,
                run_id,
                resumed=resumed,
                torn=torn,
                placements=placements,
                pus=pus,
                notes=notes,
                owner=owner or this_process(),
            )
        self._contexts.pop(run_id, None)

    def close_run(
        self, run_id: int, *, resumed: int, status: RunStatus, reason: str | None, note: str
    ) -> None:
        """Say how a run ended of which nothing is missing; raises `InputError` as `take_up`."""
        with self._transaction("ending a run"):
            resume.close(
                self._connection,
                run_id,
                resumed=resumed,
                status=status,
                reason=reason,
                note=note,
            )

    def judge_placements(self, run_id: int, judged: Iterable[PlacementJudgement]) -> None:
        """Store with each copy run whether its placement was as planned."""
        with self._transaction("judging placements"):
            store_judgements(self._connection, run_id, judged)

    def append(self, run_id: int, *events: Event) -> None:
        """Store events in one transaction, all or none; after an error they may be tried again.

        What ends at the same time shares a transaction: it is in the database sooner
        than one after the other, at a fraction of the cost.
        """
        if self._leave_if_lost():
            events = (Noted(f"{self.lost}"), *events)
        try:
            context = self._contexts.get(run_id)
            if context is None:
                context = self._contexts[run_id] = context_of(self._connection, run_id)
            alone = len(events) == 1 and not has_several_rows(events[0])
            if alone:
                append_events(self._connection, run_id, events, context)
                self._file.committed()
        except sqlite3.DatabaseError as error:
            self._fail(error, "storing a result")
        if events and not alone:
            with self._transaction("storing results"):
                append_events(self._connection, run_id, events, context)
        if any(isinstance(event, PhaseEnded | RunEnded) for event in events):
            self._checkpoint()

    def add(
        self, stored: StoredRun, copies: Iterable[StoredCopy] | None = None
    ) -> tuple[int, bool]:
        """Store an imported run; return its number, and False when its uuid was there already.

        `copies` instead of the run's own: of a run too large to hold them all at once.
        """
        with self._transaction("importing a run"):
            known = self._connection.execute(
                "SELECT id FROM run WHERE uuid = ?", (stored.head.uuid,)
            ).fetchone()
            if known:
                return known[0], False
            forget_removal(self._connection, stored.head.uuid)  # named by hand: it is wanted back
            every = stored.copies if copies is None else copies
            return insert_imported(self._connection, stored, every), True

    def keep_divots(self, run_id: int, search: DivotSearch, divots: Sequence[StoredDivot]) -> None:
        """Store what was found slow in a run, in the place of what was known before."""
        with self._transaction("storing divots"):
            keep_search(self._connection, run_id, search, divots)

    def remove(self, *run_ids: int) -> None:
        """Remove runs with everything that hangs on them, all or none.

        Raises `InputError` while one of them still runs.
        """
        with self._transaction("removing a run"):
            remove_runs(self._connection, run_ids)
        for run_id in run_ids:
            self._contexts.pop(run_id, None)

    # -- reading --------------------------------------------------------------------------------

    def runs(self, numbers: Iterable[int] | None = None) -> tuple[RunHead, ...]:
        """Return the heads of runs (None: of all, as they were stored), without secrets."""
        with self._reading():
            heads = run_heads(self._connection, numbers)
        return tuple(redacted_head(head, Redactor(self._secrets)) for head in heads)

    def matching(self, wanted: RunFilter, limit: int | None) -> tuple[tuple[int, ...], int]:
        """Return the numbers of the latest `limit` runs that match, and how many match in all."""
        with self._reading():
            return matching(self._connection, wanted, limit)

    def load(self, run_id: int, *, secrets: bool = False) -> StoredRun:
        """Return a run with all its rows; raises `InputError` when there is none.

        With `secrets` to run it again; without them to show it.
        """
        with self._reading():
            run = load_run(self._connection, run_id)
        return run if secrets else redacted(run, Redactor(self._secrets))

    def find(self, spec: str) -> int:
        """Return the number of the one run that RUN means.

        RUN is a number, a uuid's start, `last`, `last~1` or `tag:K=V`; `last` is the
        run stored most recently, whenever it started. Raises `InputError` when
        nothing, or more than one run, is meant.
        """
        with self._reading():
            return find_one(self._connection, self.path, spec)

    def find_all(self, spec: str) -> tuple[int, ...]:
        """Return the same where several runs are allowed: `tag:K=V` means all that have the tag."""
        with self._reading():
            return find_all(self._connection, self.path, spec)

    def times(self, run_id: int) -> RunTimes:
        """Return the copy times of a run as narrow rows: all that the search for divots reads."""
        with self._reading():
            return run_times(self._connection, run_id)

    def divots(self, run_id: int) -> tuple[DivotSearch, tuple[str, ...]] | None:
        """Return how a run was searched for divots and what was found; None: not yet, or older.

        None as well where copy runs were added since (a resumed run).
        """
        with self._reading():
            kept = kept_search(self._connection, run_id)
            if kept is None or kept[0].copy_runs != copy_runs(self._connection, run_id):
                return None
            return kept

    def copy_runs(self, run_id: int) -> int:
        """Return how many copy runs of a run are stored."""
        with self._reading():
            return copy_runs(self._connection, run_id)

    def page_extents(self, used: BenchmarkUsed, *, split: bool) -> dict[str, int]:
        """Return how large a program's data was in its last run with `--pages`, by category.

        `split`: with large blocks apart. Empty: there was none.
        """
        with self._reading():
            return page_extents(self._connection, used, split=split)
