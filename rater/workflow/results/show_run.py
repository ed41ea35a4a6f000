"""Print one run with all that is said below its results."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rater.workflow.common import print_json

if TYPE_CHECKING:
    from rater.analysis.divots.data.finding import Analysis
    from rater.analysis.placement.proof import RunProof
    from rater.record.stored import StoredRun
    from rater.show.results.copies import CopiesView
    from rater.store.store import Store


_MOST_PROOFS = 512  # copy runs listed in JSON unasked, half a kilobyte each


def judge_placements(store: Store, run: StoredRun) -> RunProof:
    """Store what was seen of each copy's placement as a verdict, for queries and exports."""
    from rater.analysis.placement.proof import judged, prove_run
    from rater.store.connection import StoreError

    proof = prove_run(run)
    try:
        store.judge_placements(run.head.run, judged(proof))
    except StoreError as error:  # the disk is full: `rater show` judges by the evidence
        print(f"rater: run {run.head.run}: {error}", file=sys.stderr)
    return proof


def print_result(
    args: argparse.Namespace,
    run: StoredRun,
    *,
    after_run: bool = True,
    beside: StoredRun | None = None,
    proof: bool = False,
    copies: CopiesView | None = None,
    cpus: bool = False,
    divots: Analysis | None = None,
    proved: RunProof | None = None,
) -> None:
    """Print what a run says, for people or as JSON; `after_run`: with what comes next.

    `beside`: what a steady run is compared with (`run_beside` finds it); `proof`: with all
    that was seen of where copies ran; `copies`: with the times of all copies; `cpus`: with
    what the CPUs did; `divots`: what was found slow, where it was searched for;
    `proved`: what is known of placements, where that was worked out.
    """
    from rater.analysis.compare.barrier import stand_beside
    from rater.analysis.counters.cpu_use import read_back
    from rater.analysis.results.score import summarise
    from rater.show.results.to_json import summary_document

    summary = summarise(run, proved)
    other = summarise(beside) if beside else None
    readings = read_back(run)
    if args.json:
        from rater.show.results.cpu_use import cpus_document, notable_document
        from rater.show.results.placement import proof_document

        pair = stand_beside(summary, other) if other else None
        document: dict[str, object] = {**summary_document(summary, pair)}
        every = proof or len(summary.proof.copies) <= _MOST_PROOFS
        document |= {"placement": proof_document(summary.proof, every=every)}
        document["notable"] = [*notable_document(readings.notable)]
        if cpus:
            document["readings"] = {**cpus_document(readings)}
        if copies is not None:
            from rater.show.results.copies import copies_document
            from rater.show.results.copy_runs import copy_runs_document

            document |= copies_document(copies)
            document["copy_runs"] = [*copy_runs_document(run)]
        if divots is not None:
            from rater.show.divots.to_json import divot_rows

            document["divots"] = divot_rows(divots.findings, run.head)
        print_json(document)
        return
    from rich.console import Console

    from rater.show.results.run import print_summary

    console = Console()
    print_summary(
        summary,
        console,
        after_run=after_run,
        beside=other,
        proof=proof,
        notable=readings.notable,
        divots=divots,
    )
    if cpus:
        from rater.show.console.printer import Printer
        from rater.show.results.cpu_use import print_cpus

        print_cpus(readings, Printer(console))
    if copies is not None:
        from rater.show.console.printer import Printer
        from rater.show.results.copies import print_copies
        from rater.show.results.copy_runs import print_copy_runs

        print_copies(copies, Printer(console))
        if any(copy.workloads for copy in run.copies):
            print_copy_runs(run, Printer(console))


def run_beside(store: Store, run: StoredRun) -> StoredRun | None:
    """Return the stored run that a steady one is compared with, None for others."""
    from rater.analysis.compare.barrier import comparable

    if run.head.mode != "steady":
        return None
    number = comparable(run.head, store.runs())
    return None if number is None else store.load(number)
