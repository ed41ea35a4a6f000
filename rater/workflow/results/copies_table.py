"""The copies of a run as a table for other programs."""

from __future__ import annotations

from rater.analysis.results.account import time_accounts
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.waiting import WaitSplit, split_waits
from rater.record.stored import StoredRun
from rater.store.export import CopyTable, add_times, copy_table

# Where a copy's time went, beside what it ran: of a mean thread.
_WAITS = ("waited_s", "waited_own_s", "waited_others_s", "slept_s")


def table_of_copies(run: StoredRun) -> CopyTable:
    """Return the copies of a run as a table, with how long they waited for whom, and slept."""
    run = run.without_torn()
    accounts, splits = time_accounts(run), split_waits(run, run_counters(run).cpus)
    rows = []
    for copy in run.copies:
        key = (copy.phase, copy.copy, copy.step)
        account, split = accounts.get(key), splits.get(key, WaitSplit())
        seconds = (
            account.waited_s if account else None,
            split.for_own_s,
            split.for_others_s,
            account.slept_s if account else None,
        )
        rows.append([None if value is None else round(value * 1e9) for value in seconds])
    return add_times(copy_table(run), _WAITS, rows)
