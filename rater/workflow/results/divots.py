"""What is kept of a run that has ended: divots, score, placements."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from rater.analysis.divots.model.finding import (
    VERSION,
    Analysis,
    RecurringDivot,
    Thresholds,
    from_json,
    nothing_to_compare,
    to_json,
)
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.disturbed import foreign_load_cost
from rater.analysis.results.placement import RunProof, judged, prove_run
from rater.process import print_error
from rater.record.run import RunStatus
from rater.record.stored import RunHead, StoredRun
from rater.show.results.to_json import evidence_line
from rater.store.connection import StoreError
from rater.store.store import (
    DivotSearch,
    RunTimes,
    Store,
    StoredDivot,
)

# -- Store whether copies of a run that has ended were where the plan put them ---------------------


def store_placement_verdicts(store: Store, run: StoredRun) -> RunProof:
    """Store what was seen of each copy's placement as a verdict, for queries and exports."""
    proof = prove_run(run)
    try:
        store.judge_placements(run.head.run, judged(proof))
    except StoreError as error:  # the disk is full: `rater show` judges by the evidence
        print_error(f"run {run.head.run}: {error}")
    return proof


# -- The search for a run's divots: what is stored of it, else made and stored; beside results too -
#
# The search itself is imported where it begins: it loads numpy, which has no place near copies that
# are timed.

_MOST_LOADED = 20_000  # copy runs of an imported run, of which little more than times is known
_SOME = 1000


def load_or_analyse(
    store: Store,
    head: RunHead,
    thresholds: Thresholds,
    *,
    fresh: bool,
    run: StoredRun | None = None,
) -> Analysis:
    """Return what is stored of a search with these thresholds, else search and store it.

    `run` is the run with its rows where the caller has them.
    """
    kept = None if fresh else store.divots(head.run)
    asked = (VERSION, thresholds.group, thresholds.copy)
    if kept is not None:
        search, texts = kept
        if asked == (search.version, search.threshold_group, search.threshold_copy):
            with suppress(ValueError):  # damaged, or not rater's: found anew
                found = tuple(from_json(text) for text in texts)
                costs = (search.others_cost, search.noise_cost)
                return Analysis(found, search.visible, search.failed, *costs)
    copy_runs = store.copy_runs(head.run)  # before the search: what comes later is not in it
    if run is not None and nothing_to_compare(head):  # numpy is not loaded for that
        analysis = Analysis((), {}, others_cost=foreign_load_cost(run, run_counters(run)))
    else:
        analysis = _found(store, head, thresholds, run, copy_runs)
    if head.status is not RunStatus.RUNNING:
        costs = (analysis.others_cost, analysis.noise_cost)
        search = DivotSearch(*asked, copy_runs, analysis.visible, analysis.failed, *costs)
        _keep(store, head, search, analysis)
    return analysis


def _found(
    store: Store, head: RunHead, thresholds: Thresholds, run: StoredRun | None, copy_runs: int
) -> Analysis:
    """Search, then look what else is known of the copies that were found."""
    from rater.analysis.divots.findings import analyse

    times = store.times(head.run)
    analysis = analyse(
        times.chunks,
        times.benchmarks,
        thresholds,
        core_pus=times.core_pus,
        barrier=head.order == "homogeneous" and head.mode != "steady",
        staggered=head.stagger_ms > 0 or head.mode == "staggered",
    )
    if head.source != "run" and (copy_runs > _MOST_LOADED or not _has_cpu_times(times)):
        return analysis
    rows = run or store.load(head.run)
    analysis = replace(analysis, others_cost=foreign_load_cost(rows, run_counters(rows)))
    if all(one.explained for one in analysis.findings):
        return analysis
    from rater.analysis.divots.evidence import add_evidence

    return replace(analysis, findings=add_evidence(analysis.findings, rows))


def find_recurring(
    store: Store, runs: Sequence[tuple[RunHead, Analysis]]
) -> tuple[RecurringDivot, ...]:
    """Return what several runs have in common; nothing where no divot was found in any."""
    if len(runs) < 2 or all(one.explained for _, it in runs for one in it.findings):
        return ()
    from rater.analysis.divots.model.table import Machine, build_table
    from rater.analysis.divots.recurring import SearchedRun, between_runs

    made = []
    for head, analysis in runs:
        times = store.times(head.run)
        table = build_table(times.chunks, times.benchmarks, machine=Machine(times.core_pus))
        if table is not None:
            made.append(SearchedRun(head.run, analysis.findings, table))
    return between_runs(made)


def _has_cpu_times(times: RunTimes) -> bool:
    """Tell whether an imported run has CPU times, the one thing there to compare."""
    return any(row.cpu_ns is not None for chunk in times.chunks[:1] for row in chunk[:_SOME])


def _keep(store: Store, head: RunHead, search: DivotSearch, analysis: Analysis) -> None:
    store.keep_divots(
        head.run,
        search,
        [
            StoredDivot(one, evidence=evidence_line(one), finding=to_json(one))
            for one in analysis.findings
        ],
    )


def analysis_for_results(
    store: Store, run: StoredRun, *, however_it_ended: bool = False
) -> Analysis | None:
    """Return the divots of a run that is being shown; None: it has not ended, or see below.

    Whatever goes wrong in the search is a line on standard error: the results are there.
    """
    head = run.head
    ended = head.status in (RunStatus.COMPLETE, RunStatus.FAILED) or head.source == "import"
    if not ended and not however_it_ended:
        return None
    try:
        return load_or_analyse(store, head, Thresholds(), fresh=False, run=run)
    except Exception as error:  # of any kind: a search must not cost a result
        print_error(
            f"run {head.run}: no divots, the search for them failed "
            f"({type(error).__name__}: {error}); `rater divots {head.run}` tries again"
        )
        return None
