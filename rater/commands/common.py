"""What every family of subcommands shares."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rater.errors import InputError

if TYPE_CHECKING:
    from rater.analysis.finding import Analysis
    from rater.analysis.proof import RunProof
    from rater.record import StoredRun
    from rater.show.copies import CopiesView
    from rater.store.store import Store

_MOST_PROOFS = 512  # copy runs listed in JSON unasked, half a kilobyte each


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add `--db` and `--json`, which may also stand before the subcommand.

    They have no default here: one would overwrite what stood there.
    """
    parser.add_argument(
        "--db", metavar="PATH", default=argparse.SUPPRESS, help="the database (else RATER_DB)"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="one JSON document on stdout",
    )


def existing_store(args: argparse.Namespace) -> Store:
    """Open the database, which there must be."""
    from rater.store.database import default_path, is_there
    from rater.store.store import open_store

    path = default_path(args.db)
    if not is_there(path):
        raise InputError(
            f"there is no database {path}; `rater run` makes it, or name another with --db"
        )
    return open_store(path)


def judge_placements(store: Store, run: StoredRun) -> RunProof:
    """Store what was seen of each copy's placement as a verdict, for queries and exports."""
    from rater.analysis.proof import judged, prove_run
    from rater.store.database import StoreError

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
    from rater.analysis.beside import stand_beside
    from rater.analysis.document import to_json
    from rater.analysis.readings import read_back
    from rater.analysis.score import summarise

    summary = summarise(run, proved)
    other = summarise(beside) if beside else None
    readings = read_back(run)
    if args.json:
        from rater.show.proof import proof_document
        from rater.show.readings import cpus_document, notable_document

        pair = stand_beside(summary, other) if other else None
        document: dict[str, object] = {**to_json(summary, pair)}
        every = proof or len(summary.proof.copies) <= _MOST_PROOFS
        document |= {"placement": proof_document(summary.proof, every=every)}
        document["notable"] = [*notable_document(readings.notable)]
        if cpus:
            document["readings"] = {**cpus_document(readings)}
        if copies is not None:
            from rater.show.copies import copies_document
            from rater.show.copy_runs import copy_runs_document

            document |= copies_document(copies)
            document["copy_runs"] = [*copy_runs_document(run)]
        if divots is not None:
            from rater.analysis.divots.document import divot_rows

            document["divots"] = divot_rows(divots.findings, run.head)
        print_json(document)
        return
    from rich.console import Console

    from rater.show.terminal import print_summary

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
        from rater.show.printer import Printer
        from rater.show.readings import print_cpus

        print_cpus(readings, Printer(console))
    if copies is not None:
        from rater.show.copies import print_copies
        from rater.show.copy_runs import print_copy_runs
        from rater.show.printer import Printer

        print_copies(copies, Printer(console))
        if any(copy.workloads for copy in run.copies):
            print_copy_runs(run, Printer(console))


def run_beside(store: Store, run: StoredRun) -> StoredRun | None:
    """Return the stored run that a steady one is compared with, None for others."""
    from rater.analysis.beside import comparable

    if run.head.mode != "steady":
        return None
    number = comparable(run.head, store.runs())
    return None if number is None else store.load(number)


def print_json(value: object) -> None:
    """Print the one JSON document of a `--json` command."""
    json.dump(value, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def print_json_rows(document: Mapping[str, object]) -> None:
    """Print the one JSON document of a `--json` command, an element of its lists a line.

    Ten times as fast as `print_json`, which matters for thousands of copies.
    """
    told = []
    for key, value in document.items():
        text = json.dumps(value, allow_nan=False)
        if isinstance(value, list) and value and not isinstance(value[0], int):
            rows = [f"    {json.dumps(one, allow_nan=False)}" for one in value]
            text = "[\n" + ",\n".join(rows) + "\n  ]"
        told.append(f"  {json.dumps(key)}: {text}")
    sys.stdout.write("{\n" + ",\n".join(told) + "\n}\n")
