"""Store whether copies of a run that has ended were where the plan put them."""

from __future__ import annotations

from rater.analysis.placement.proof import RunProof, judged, prove_run
from rater.record.stored import StoredRun
from rater.store.connection import StoreError
from rater.store.store import Store
from rater.streams import say


def judge_placements(store: Store, run: StoredRun) -> RunProof:
    """Store what was seen of each copy's placement as a verdict, for queries and exports."""
    proof = prove_run(run)
    try:
        store.judge_placements(run.head.run, judged(proof))
    except StoreError as error:  # the disk is full: `rater show` judges by the evidence
        say(f"run {run.head.run}: {error}")
    return proof
