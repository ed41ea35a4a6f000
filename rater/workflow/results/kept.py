"""What is kept of a run that has ended: its score, where its copies were, what others cost it.

It stands apart from what lists and searches: a run that is made needs none of that, and lists
need none of what judges a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rater.record.stored import StoredRun
from rater.store.connection import StoreError
from rater.store.store import NOT_SEARCHED, DivotSearch, RunScore, Store, save_score
from rater.system.process import print_error

if TYPE_CHECKING:
    from rater.analysis.results.placement import RunProof

SCORE_VERSION = 1  # of the formula


def store_placement_verdicts(store: Store, run: StoredRun) -> RunProof:
    """Store what was seen of each copy's placement as a verdict, for queries and exports."""
    from rater.analysis.results.placement import placement_judgements, prove_run

    proof = prove_run(run)
    try:
        store.judge_placements(run.head.run, placement_judgements(proof))
    except StoreError as error:  # the disk is full: `rater show` judges by the evidence
        print_error(f"run {run.head.run}: {error}")
    return proof


def store_disturbance(store: Store, run: StoredRun) -> float | None:
    """Store what others cost a run that has ended, so that lists know before it is searched."""
    from rater.analysis.results.cpu_use import run_counters
    from rater.analysis.results.disturbed import foreign_load_cost

    cost = foreign_load_cost(run, run_counters(run))
    try:
        search = DivotSearch(
            version=NOT_SEARCHED,
            threshold_group=0.0,
            threshold_copy=0.0,
            copy_runs=len(run.copies),
            visible={},
            failed=0,
            others_cost=cost,
        )
        store.keep_divots(run.head.run, search, ())
    except StoreError as error:  # the disk is full: `rater show` works it out
        print_error(f"run {run.head.run}: {error}")
    return cost


def store_score(store: Store, run: StoredRun) -> RunScore:
    """Work out the number of a run, and keep it."""
    from rater.analysis.results.rates import overall  # lists that know all numbers start without

    overall_rate = overall(run)
    score = RunScore(
        value=overall_rate.value if overall_rate else None,
        unit=overall_rate.unit if overall_rate else None,
        copy_runs=len(run.copies),
        version=SCORE_VERSION,
    )
    try:
        with store.writing("storing a score") as connection:
            save_score(connection, run.head.run, score)
    except StoreError as error:  # the disk is full: it is worked out again
        print_error(f"run {run.head.run}: {error}")
    return score
