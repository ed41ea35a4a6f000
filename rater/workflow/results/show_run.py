"""Print one run with all that stands below its results; `rater show`."""

from __future__ import annotations

import argparse

from rater.analysis.compare.barrier import can_compare, comparable, compare_with_barrier
from rater.analysis.conditions.disturbed import disturbed_members
from rater.analysis.counters.counted import run_counts
from rater.analysis.counters.cpu_use import run_counters
from rater.analysis.placement.proof import RunProof
from rater.analysis.results.copies import cells_of, normalise, ratio_pairs, yardsticks
from rater.analysis.results.score import summarise
from rater.errors import InputError
from rater.record.stored import StoredRun
from rater.show.console.printer import Printer
from rater.show.divots.to_json import divot_rows
from rater.show.results.copies import CopiesView, copies_document, print_copies
from rater.show.results.copy_runs import copy_runs_document, print_copy_runs
from rater.show.results.counters import counters_document, print_counters
from rater.show.results.cpu_use import cpus_document, notable_document, print_cpus
from rater.show.results.page_sizes import pages_document
from rater.show.results.placement import proof_document
from rater.show.results.run import print_summary
from rater.show.results.to_json import summary_document
from rater.store.store import Store
from rater.workflow.common import show, store_to_read
from rater.workflow.results.divots import analysis_beside_results
from rater.workflow.results.listing import latest_like

_MOST_PROOFS = 512  # copy runs listed in JSON unasked, half a kilobyte each


def print_result(
    args: argparse.Namespace,
    store: Store,
    run: StoredRun,
    *,
    after_run: bool = True,
    barrier: StoredRun | None = None,
    proof: bool = False,
    copies: CopiesView | None = None,
    cpus: bool = False,
    counters: bool = False,
    proved: RunProof | None = None,
) -> None:
    """Print a run with its divots, for people or as JSON; `after_run`: with what comes next.

    `barrier`: what a steady run is compared with, else `run_beside` finds it; `proof`: with all
    that was seen of where copies ran; `copies`: with the times of all copies; `cpus`: with what
    the CPUs did; `counters`: with what was counted; `proved`: what is known of placements, where
    that was worked out.
    """
    summary = summarise(run, proved)
    barrier = barrier or run_beside(store, run)
    other = summarise(barrier) if barrier else None
    readings = run_counters(run)
    divots = analysis_beside_results(store, run)

    def document() -> object:
        pair = compare_with_barrier(summary, other) if other else None
        found: dict[str, object] = {**summary_document(summary, pair)}
        every = proof or len(summary.proof.copies) <= _MOST_PROOFS
        found["placement"] = proof_document(summary.proof, every=every)
        if summary.pages is not None:
            found["pages"] = pages_document(summary.pages, every=proof)
        found["notable"] = [*notable_document(readings.notable)]
        if cpus:
            found["readings"] = {**cpus_document(readings)}
        if counters:
            found["counters"] = counters_document(run_counts(run))
        if copies is not None:
            found |= copies_document(copies)
            found["copy_runs"] = [*copy_runs_document(run)]
        if divots is not None:
            found["divots"] = divot_rows(divots.findings, run.head)
            found |= disturbed_members(divots)
        return found

    def text(printer: Printer) -> None:
        print_summary(
            summary,
            printer.console,
            after_run=after_run,
            beside=other,
            proof=proof,
            notable=readings.notable,
            divots=divots,
            brief=after_run and not getattr(args, "verbose", False),
            warned=run.warnings,
        )
        if cpus:
            print_cpus(readings, printer)
        if counters:
            print_counters(run_counts(run), printer)
        elif run.counted:
            printer.line()
            printer.prose(f"counters: rater show {run.head.run} --counters")
        if copies is not None:
            print_copies(copies, printer)
            if any(copy.workloads for copy in run.copies):
                print_copy_runs(run, printer)

    show(args, document, text)


def run_beside(store: Store, run: StoredRun) -> StoredRun | None:
    """Return the stored run that a steady one is compared with, None for others."""
    if run.head.mode != "steady":
        return None
    number = comparable(run.head, latest_like(store, run.head))
    return None if number is None else store.load(number)


def show_run(args: argparse.Namespace) -> int:
    """Print the results of a stored run."""
    _check_copies_options(args)
    with store_to_read(args) as store:
        run = store.load(store.find(args.which))
        barrier = None
        if args.beside is not None:
            run, barrier = _pair(run, store.load(store.find(args.beside)))
        baseline = None if args.baseline is None else store.load(store.find(args.baseline))
        print_result(
            args,
            store,
            run,
            after_run=False,
            barrier=barrier,
            proof=args.with_proof,
            copies=_copies_view(args, run, baseline) if args.with_copies else None,
            cpus=args.with_cpus,
            counters=args.with_counters,
        )
    return 0


def _check_copies_options(args: argparse.Namespace) -> None:
    if args.drop is not None and args.drop < 0:
        raise InputError(f"--drop {args.drop}: expected a number of copies, 0 or more")
    for option in ("baseline", "baseline_iteration", "drop"):
        if getattr(args, option) is not None and not args.with_copies:
            name = f"--{option.replace('_', '-')}"
            raise InputError(f"{name} belongs to --copies: `rater show {args.which} --copies ...`")


def _copies_view(
    args: argparse.Namespace, run: StoredRun, baseline: StoredRun | None
) -> CopiesView:
    cells = cells_of(run)
    theirs = cells if baseline is None else cells_of(baseline)
    head = run.head if baseline is None else baseline.head
    there = sorted({cell.iteration for cell in theirs})
    if args.baseline_iteration is not None and args.baseline_iteration not in there:
        known = ", ".join(map(str, there)) or "none"
        raise InputError(
            f"--baseline-iteration {args.baseline_iteration}: run {head.run} has not this "
            f"iteration; expected one of its own: {known}"
        )
    drop = args.drop or 0
    return CopiesView(
        head=run.head,
        baseline=head,
        baseline_iteration=args.baseline_iteration,
        drop=drop,
        times=normalise(cells, yardsticks(theirs, args.baseline_iteration), drop),
        pairs=ratio_pairs(summarise(run), summarise(baseline)) if baseline else (),
    )


def _pair(run: StoredRun, other: StoredRun) -> tuple[StoredRun, StoredRun]:
    """Return the steady one of two runs first; raises `InputError` where they are no such pair."""
    for steady, barrier in ((run, other), (other, run)):
        if can_compare(steady.head, barrier.head):
            return steady, barrier
    modes = " and ".join(
        f"run {one.head.run} is {one.head.mode}"
        + (" in rotated order" if one.head.mode == "steady" and one.head.order == "rotated" else "")
        for one in (run, other)
    )
    raise InputError(
        f"--with {other.head.run}: {modes}; expected a steady run and one in homogeneous mode "
        "(or rotated, where the steady one is in rotated order)"
    )
