"""Runs and whole sweeps leave the database, with all that hangs on them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from rater.errors import InputError
from rater.process_id import is_alive
from rater.record.status import RunStatus
from rater.store.read import owner_of


def remove_runs(connection: sqlite3.Connection, run_ids: Iterable[int]) -> None:
    """Remove runs inside the caller's transaction; raises `InputError` while one still runs."""
    for run_id in run_ids:
        # Nothing more of it is read: a run with damaged rows has to go as well.
        running = "SELECT 1 FROM run WHERE id = ? AND status = ?"
        if connection.execute(running, (run_id, RunStatus.RUNNING)).fetchone():
            owner = owner_of(connection, run_id)
            if owner and is_alive(owner):
                raise InputError(
                    f"run {run_id} is still running (rater's process {owner.pid}); end it first"
                )
        keep_removed(connection, "run", run_id)
        connection.execute("DELETE FROM run WHERE id = ?", (run_id,))
    connection.execute("DELETE FROM host WHERE id NOT IN (SELECT host_id FROM run)")


def keep_removed(connection: sqlite3.Connection, table: str, number: int) -> None:
    """Note that a run or sweep is to be removed: merging and importing leave it out from now on."""
    connection.execute(
        f"INSERT OR IGNORE INTO removed (uuid, kind) SELECT uuid, '{table}' FROM {table} "
        "WHERE id = ?",
        (number,),
    )


def forget_removal(connection: sqlite3.Connection, uuid: str) -> None:
    """Let a run that was removed be stored again."""
    connection.execute("DELETE FROM removed WHERE uuid = ?", (uuid,))
