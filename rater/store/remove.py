"""Runs and whole sweeps leave the database, with all that hangs on them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from rater.errors import InputError
from rater.record.status import RunStatus
from rater.store.read import owner_of, run_heads


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
