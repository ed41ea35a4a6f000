"""A stored run that goes on: taken up by another process, or brought to its end as it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from rater.errors import InputError
from rater.process_id import ProcessId, is_alive
from rater.record.run import MachinePU, PlacedCopy
from rater.record.status import RunStatus
from rater.store.insert import place_copies
from rater.store.schema import refuse_drifted

_STATE = "SELECT source, status, resumed, pid, pid_start, boot_id FROM run WHERE id = ?"
_TEAR = "UPDATE bracket SET torn = 1 WHERE run_id = ? AND phase = ?"
_TAKE = (
    "UPDATE run SET status = ?, reason = NULL, resumed = resumed + 1, "
    "pid = ?, pid_start = ?, boot_id = ? WHERE id = ?"
)
_CLOSE = "UPDATE run SET status = ?, reason = ? WHERE id = ?"
_NOTE = "INSERT INTO note (run_id, kind, text) VALUES (?, 'note', ?)"


def take_up(
    connection: sqlite3.Connection,
    run_id: int,
    *,
    resumed: int,
    torn: Sequence[int],
    placements: Iterable[PlacedCopy],
    pus: Iterable[MachinePU],
    notes: Iterable[str],
    owner: ProcessId,
) -> None:
    """Give a run to `owner` and mark the brackets of `torn`, inside the caller's transaction.

    `resumed` is how often the run had been taken up when the caller looked at it;
    `placements` and `pus` are where its copies will be, which may not be where they
    were (the rows of copies that ended keep their own place). Raises `InputError`
    when another rater has, or has had, the run since then.
    """
    refuse_drifted(connection)
    _check_free(connection, run_id, resumed)
    connection.executemany(_TEAR, ((run_id, phase) for phase in torn))
    taken = (owner.pid, owner.pid_start, owner.boot_id)
    connection.execute(_TAKE, (RunStatus.RUNNING, *taken, run_id))
    place_copies(connection, run_id, placements, pus)
    connection.executemany(_NOTE, ((run_id, text) for text in notes))


def close(
    connection: sqlite3.Connection,
    run_id: int,
    *,
    resumed: int,
    status: RunStatus,
    reason: str | None,
    note: str,
) -> None:
    """Say how a run ended of which nothing is missing, inside the caller's transaction.

    Raises `InputError` as `take_up` does.
    """
    _check_free(connection, run_id, resumed)
    connection.execute(_CLOSE, (status, reason, run_id))
    connection.execute(_NOTE, (run_id, note))


def _check_free(connection: sqlite3.Connection, run_id: int, resumed: int) -> None:
    row = connection.execute(_STATE, (run_id,)).fetchone()
    if row is None:
        raise InputError(f"there is no run {run_id} any more; `rater list` shows what there is")
    source, status, times, *made_by = row
    if status == RunStatus.RUNNING and None not in made_by:
        owner = ProcessId(*made_by)
        if is_alive(owner):
            raise InputError(
                f"run {run_id} is still running (rater's process {owner.pid}); end it first"
            )
    if source != "run" or times != resumed:
        raise InputError(f"run {run_id} was taken up by another rater meanwhile; try again")
