"""Runs and whole sweeps leave the database, with all that hangs on them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rater.errors import InputError
from rater.record import RunStatus
from rater.store.owner import Owner, is_alive
from rater.store.read import owner_of, run_heads

if TYPE_CHECKING:
    from rater.store.store import Store


def remove_runs(connection: sqlite3.Connection, run_ids: Iterable[int]) -> None:
    """Remove runs inside the caller's transaction; raises `InputError` while one still runs."""
    for run_id in run_ids:
        heads = run_heads(connection, run_id)
        if heads and heads[0].status is RunStatus.RUNNING:
            owner = owner_of(connection, run_id)
            pid = f" (rater's process {owner.pid})" if owner else ""
            raise InputError(f"run {run_id} is still running{pid}; end it first")
        connection.execute("DELETE FROM run WHERE id = ?", (run_id,))
    connection.execute("DELETE FROM host WHERE id NOT IN (SELECT host_id FROM run)")


def remove_sweeps(store: Store, sweeps: Sequence[int], runs: Iterable[int]) -> tuple[int, ...]:
    """Remove sweeps with every run made for them, and these runs too, all or none.

    Returns the runs that are gone: those named first, then the sweeps' own by number. Raises
    `InputError` while a sweep, or a run, still runs.
    """
    with store.writing("removing a sweep") as connection:
        gone = dict.fromkeys(runs)
        for sweep in sweeps:
            row = connection.execute(
                "SELECT status, pid, pid_start, boot_id FROM sweep WHERE id = ?", (sweep,)
            ).fetchone()
            if row is not None and row[0] == RunStatus.RUNNING and is_alive(Owner(*row[1:])):
                raise InputError(
                    f"sweep {sweep} is still running (rater's process {row[1]}); end it first"
                )
            gone |= dict.fromkeys(
                run
                for (run,) in connection.execute(
                    "SELECT run_id FROM sweep_run WHERE sweep_id = ? ORDER BY run_id", (sweep,)
                )
            )
        remove_runs(connection, gone)
        connection.executemany("DELETE FROM sweep WHERE id = ?", ((sweep,) for sweep in sweeps))
    return tuple(gone)
