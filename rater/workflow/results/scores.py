"""The one number of a run: worked out when it has ended, kept, and asked for by lists."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rater.errors import RaterError
from rater.record.status import RunStatus
from rater.record.stored import RunHead, StoredRun
from rater.store.connection import StoreError
from rater.store.divots import RunScore, keep_score, kept_score
from rater.store.store import Store
from rater.streams import say

_VERSION = 1  # of the formula
_LONGEST_S = 1.0  # that a list works out what nobody has; the next list goes on


def store_score(store: Store, run: StoredRun) -> RunScore:
    """Work out the number of a run, and keep it."""
    from rater.analysis.results.rates import overall  # lists that know all numbers start without

    found = overall(run)
    score = RunScore(
        value=found.value if found else None,
        unit=found.unit if found else None,
        copy_runs=len(run.copies),
        version=_VERSION,
    )
    try:
        with store.writing("storing a score") as connection:
            keep_score(connection, run.head.run, score)
    except StoreError as error:  # the disk is full: it is worked out again
        say(f"run {run.head.run}: {error}")
    return score


def scores_of(store: Store, heads: Sequence[RunHead]) -> dict[int, RunScore]:
    """Return the numbers of runs by run: what is kept, else the latest runs' for a second."""
    found: dict[int, RunScore] = {}
    with store.reading() as connection:
        for head in heads:
            score = kept_score(connection, head.run, _VERSION)
            if score is not None:
                found[head.run] = score
    until_s = time.monotonic() + _LONGEST_S
    for head in reversed(heads):
        if time.monotonic() > until_s:
            break
        if head.run not in found and head.status is not RunStatus.RUNNING:
            try:
                found[head.run] = store_score(store, store.load(head.run))
            except (RaterError, ArithmeticError, ValueError) as error:
                if isinstance(error, StoreError):
                    raise
                continue  # damaged rows: `rater show` says which
    return found
