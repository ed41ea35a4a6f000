"""The divots of stored runs: found once and kept, shown, and judged by a gate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from rater.analysis.compare.hardware import hardware_differences
from rater.analysis.divots.confirm import next_commands
from rater.analysis.divots.gate import (
    ANY,
    GateLimit,
    JudgedRun,
    judge_recurring,
    judge_run,
    run_cases,
)
from rater.analysis.divots.model.finding import (
    VERSION,
    Analysis,
    CpuJudgement,
    Kind,
    RecurringDivot,
    Thresholds,
    from_json,
    nothing_to_compare,
    to_json,
)
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.disturbed import foreign_load_cost, is_too_disturbed
from rater.analysis.results.gates import GateAnswer, GateCase, gate_status, reasons_of
from rater.analysis.results.periods import Period, notable_periods
from rater.analysis.results.series import phase_times
from rater.plan.request import request_from_json
from rater.plan.topology import Topology
from rater.record.run import RunStatus
from rater.record.stored import RunHead, StoredRun, TimeRow
from rater.run.host import discover as machine
from rater.run.host.facts import host_facts
from rater.show.results.to_json import evidence_line
from rater.store.store import (
    DivotSearch,
    RunTimes,
    Store,
    StoredDivot,
    count_copy_runs,
)
from rater.system.errors import InputError
from rater.system.process import print_error
from rater.text.values import parse_percent, runs_text
from rater.workflow.arguments import Output, open_store_for_reading, print_view
from rater.workflow.results.ci import CI_FORMATS, print_gates

if TYPE_CHECKING:
    from rater.show.screen.document import Part

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
    """Return the stored analysis of a search with these thresholds, else search and store it.

    `run` is the run with its rows where the caller has them. If this machine can repeat the run,
    the analysis has the commands that confirm its findings.
    """
    analysis = _load_or_search(store, head, thresholds, fresh=fresh, run=run)
    if is_too_disturbed(analysis.others_cost):
        run = run or store.load(head.run)
        analysis = replace(analysis, disturber=run_counters(run).disturber)
    has_divots = any(not finding.explained for finding in analysis.findings)
    # Only runs that rater made have series, and an import may have millions of rows.
    if head.source == "run" and (run is not None or store.has_series(head.run)):
        run = run or store.load(head.run)
        analysis = replace(analysis, periods=_periods(run))
    if not (has_divots or analysis.disturbed) or not _is_repeatable(store, head):
        return analysis
    run = run or store.load(head.run)
    if refusal(run, machine.discover_topology()):
        return analysis
    of_kit = request_from_json(head.request or "{}", "").of_kit
    commands = next_commands(analysis.findings, run, of_kit=of_kit)
    return replace(analysis, rerun=f"rater rerun {head.run}", confirm=commands)


def _periods(run: StoredRun) -> tuple[Period, ...]:
    """Return a run's places in time, of which damaged series give none."""
    try:
        return notable_periods(phase_times(run))
    except InputError:
        return ()


def _is_repeatable(store: Store, head: RunHead) -> bool:
    """Tell whether this user may have a run of this database made again, and where it was made."""
    if head.source != "run" or head.request is None or store.is_copy or store.writer:
        return False
    return head.directory is not None and Path(head.directory).is_dir()


def _load_or_search(
    store: Store, head: RunHead, thresholds: Thresholds, *, fresh: bool, run: StoredRun | None
) -> Analysis:
    kept = None if fresh else store.divots(head.run)
    asked = (VERSION, thresholds.group, thresholds.copy)
    if kept is not None:
        search, texts = kept
        if asked == (search.version, search.threshold_group, search.threshold_copy):
            with suppress(ValueError):  # damaged, or not rater's: found anew
                return _analysis_from_store(search, texts)
    with store.reading() as connection:  # before the search: what comes later is not in it
        copies = count_copy_runs(connection, head.run)
    if run is not None and nothing_to_compare(head):  # numpy is not loaded for that
        analysis = Analysis(
            findings=(), visible={}, others_cost=foreign_load_cost(run, run_counters(run))
        )
    else:
        analysis = _analyse_times(store, head, thresholds, run, copies)
    if head.status is not RunStatus.RUNNING:
        search = DivotSearch(
            version=VERSION,
            threshold_group=thresholds.group,
            threshold_copy=thresholds.copy,
            copy_runs=copies,
            visible=analysis.visible,
            failed=analysis.failed,
            others_cost=analysis.others_cost,
            noise_cost=analysis.noise_cost,
            cpu_others_took=analysis.by_cpu.others_took if analysis.by_cpu else None,
            cpu_noise_cost=analysis.by_cpu.noise_cost if analysis.by_cpu else None,
            not_by_cpu=analysis.not_by_cpu,
        )
        _keep(store, head, search, analysis)
    return analysis


def _analysis_from_store(search: DivotSearch, texts: Sequence[str]) -> Analysis:
    """Return a stored analysis; raises `ValueError` for findings that are not rater's."""
    others_took = search.cpu_others_took
    return Analysis(
        findings=tuple(from_json(text) for text in texts),
        visible=search.visible,
        failed=search.failed,
        others_cost=search.others_cost,
        noise_cost=search.noise_cost,
        by_cpu=None
        if others_took is None
        else CpuJudgement(others_took=others_took, noise_cost=search.cpu_noise_cost),
        not_by_cpu=search.not_by_cpu,
    )


def refusal(run: StoredRun, topology: Topology) -> str | None:
    """Return why this machine cannot repeat a run, or None if it can."""
    head = run.head
    if head.source != "run":
        return f"run {head.run} was imported: its times are known, not how to make them"
    this_host = host_facts(topology)
    if (this_host.fingerprint, this_host.machine_id_hash) != (
        run.host.fingerprint,
        run.host.machine_id_hash,
    ):
        return f"run {head.run} was made on another machine ({head.hostname or 'unknown'})"
    if this_host.hostname != run.host.hostname:
        return (
            f"run {head.run} was made on {head.hostname or 'a machine without a name'}, and this "
            f"is {this_host.hostname}: of the same model, but machine ids are copied with disk "
            "images"
        )
    return None


def _analyse_times(
    store: Store, head: RunHead, thresholds: Thresholds, run: StoredRun | None, copy_runs: int
) -> Analysis:
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
    counters = run_counters(rows)
    analysis = replace(analysis, others_cost=foreign_load_cost(rows, counters))
    if analysis.disturbed:
        from rater.analysis.divots.by_cpu_time import judge_by_cpu_time

        analysis = judge_by_cpu_time(
            analysis,
            rows,
            times.chunks,
            times.benchmarks,
            counters,
            thresholds=thresholds,
            core_pus=times.core_pus,
        )
    if all(finding.explained for finding in analysis.findings):
        return analysis
    from rater.analysis.divots.evidence import add_evidence
    from rater.analysis.divots.over_time import add_periods

    return replace(analysis, findings=add_periods(add_evidence(analysis.findings, rows), rows))


def find_recurring(
    store: Store, runs: Sequence[tuple[RunHead, Analysis]], *, every: bool = False
) -> tuple[RecurringDivot, ...]:
    """Return what several runs have in common; nothing where no divot was found in any.

    `every`: also those that were disturbed.
    """
    runs = [(head, analysis) for head, analysis in runs if every or not analysis.disturbed]
    if len(runs) < 2 or all(finding.explained for _, it in runs for finding in it.findings):
        return ()
    from rater.analysis.divots.model.table import Machine, build_table
    from rater.analysis.divots.recurring import SearchedRun, between_runs

    searched = []
    for head, analysis in runs:
        times = store.times(head.run)
        chunks = times.chunks if analysis.by_cpu is None else _cpu_chunks(store, head, times)
        table = build_table(chunks, times.benchmarks, machine=Machine(times.core_pus))
        if table is not None:
            searched.append(SearchedRun(head.run, analysis.findings, table))
    return between_runs(searched)


def _cpu_chunks(store: Store, head: RunHead, times: RunTimes) -> Sequence[Any]:
    """Return the rows of a run that CPU time judges; no rows where it may not any more."""
    from rater.analysis.divots.by_cpu_time import cpu_rows

    rows = cpu_rows(store.load(head.run), times.chunks, times.benchmarks)
    return () if isinstance(rows, str) else rows.chunks


def _has_cpu_times(times: RunTimes) -> bool:
    """Tell whether an imported run has CPU times, the one thing there to compare."""
    column = TimeRow._fields.index("cpu_ns")
    return any(ns >= 0 for chunk in times.chunks[:1] for ns in chunk[:_SOME, column])


def _keep(store: Store, head: RunHead, search: DivotSearch, analysis: Analysis) -> None:
    store.keep_divots(
        head.run,
        search,
        [
            StoredDivot(finding, evidence=evidence_line(finding), finding=to_json(finding))
            for finding in analysis.findings
        ],
    )


def analysis_for_results(
    store: Store, run: StoredRun, *, however_it_ended: bool = False
) -> Analysis | None:
    """Return the divots of a run that is being shown; None if it has not ended.

    None as well if the search fails, which is a line on standard error: the results are shown.
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


# -- `rater divots`: what is slow in runs, and what comes back in the same place -------------------

MOST_PER_CENT = 1000
_KINDS = tuple(str(kind) for kind in Kind if kind is not Kind.LAYOUT)


def _numbers_of(store: Store, run_words: Sequence[str]) -> list[int]:
    """Return the numbers of the runs that words mean, each once."""
    return list(dict.fromkeys(number for word in run_words for number in store.find_all(word)))


def find_divots(
    output: Output,
    *,
    run_words: tuple[str, ...],
    fail_on: tuple[str, ...],
    threshold_group: float,
    threshold_copy: float,
    fresh: bool,
) -> int:
    """Print what is slow in the runs; 1 where --fail-on says so, 3 where that cannot be judged."""
    from rater.show.results.divots import between_parts, divot_parts, hardware_parts
    from rater.show.results.to_json import divots_document

    limits = [parse_limit(text) for text in fail_on]
    thresholds = Thresholds(threshold_group, threshold_copy)
    with open_store_for_reading(output, run_words) as store:
        numbers = _numbers_of(store, run_words or ("last",))
        heads = {head.run: head for head in store.runs(numbers)}
        for number in numbers:
            if number not in heads:
                store.load(number)  # which says that it is not there
        runs = [
            (heads[number], load_or_analyse(store, heads[number], thresholds, fresh=fresh))
            for number in numbers
        ]
        between = find_recurring(store, runs, every=True)
        failed = [
            head.run
            for head, analysis in runs
            if analysis.failed and not _any_good(store, head.run)
        ]
        is_ci = output.format in CI_FORMATS and not output.json
        judged_runs = [
            _judged_run(store, *pair, is_alone=len(runs) == 1) for pair in runs if limits or is_ci
        ]
        judged = [(head, analysis) for head, analysis in runs if not analysis.disturbed]
        hardware = hardware_differences(store.machines_of(numbers))
        sure = between if len(judged) == len(runs) else find_recurring(store, runs)

    def parts(_: object) -> Iterator[Part]:
        for head, analysis in runs:
            yield from divot_parts(head, analysis, every=output.verbose)
        shown = (between, len(runs)) if output.verbose else (sure, len(judged))
        if shown[1] > 1:
            yield from between_parts(*shown)
        yield from hardware_parts(hardware)

    if is_ci:
        print_gates(
            output,
            " ".join(["rater divots", *run_words]),
            _cases(judged_runs, sure, failed, limits or [GateLimit(ANY, 0.0)]),
            parts(None),
        )
    else:
        print_view(output, divots_document(runs, between, hardware), parts)
    if limits and failed:
        print_error(f"--fail-on: every copy of {runs_text(failed)} failed")
        return 1
    return _gate(judged_runs, limits, sure) if limits else 0


def _cases(
    runs: Sequence[JudgedRun],
    between: Sequence[RecurringDivot],
    failed: Sequence[int],
    limits: Sequence[GateLimit],
) -> list[GateCase]:
    """Return a case for each run and limit, and one for each divot that several runs share."""
    cases = [case for run in runs for case in run_cases(run, limits)]
    cases += [
        GateCase(
            gate="divots",
            name=limit.limit_text,
            place="several runs",
            answer=verdict.answer,
            reason=verdict.reason,
        )
        for limit in limits
        for verdict in judge_recurring(between, [limit])
    ]
    return cases + [
        GateCase(
            gate="divots",
            name="copies",
            place=f"run {number}",
            answer=GateAnswer.FOUND,
            reason="every copy failed",
        )
        for number in failed
    ]


def _gate(
    runs: Sequence[JudgedRun],
    limits: Sequence[GateLimit],
    between: Sequence[RecurringDivot],
) -> int:
    """Say on stderr why a gate fails, or cannot be judged; return the exit status."""
    verdicts = [verdict for run in runs for verdict in judge_run(run, limits)]
    verdicts += judge_recurring(between, limits)
    for answer in (GateAnswer.FOUND, GateAnswer.OPEN):
        if reasons := reasons_of(verdicts, answer):
            colon = "" if answer is GateAnswer.FOUND else ":"
            for reason in reasons:
                print_error(f"--fail-on{colon} {reason}")
            break
    return gate_status(verdicts)


def _judged_run(store: Store, head: RunHead, analysis: Analysis, *, is_alone: bool) -> JudgedRun:
    chunks = store.times(head.run).chunks
    places = _places_used(chunks)
    start = TimeRow._fields.index("start_ns")
    return JudgedRun(
        head=head,
        analysis=analysis,
        nodes=_most_known(places["node"], places["package"]),
        cpus=places["cpu"],
        has_starts=any(
            not math.isnan(value) for chunk in chunks for value in chunk[:, start].tolist()
        ),
        is_alone=is_alone,
    )


def _places_used(chunks: Sequence[Any]) -> dict[str, int | None]:
    """Return on how many CPUs, nodes and packages copies of a run were; None: not known of all.

    `chunks` are arrays of `TimeRow` (N, fields).
    """
    places: dict[str, int | None] = {}
    for name in ("cpu", "node", "package"):
        column = TimeRow._fields.index(name)
        used = {place for chunk in chunks for place in chunk[:, column].tolist()}
        known = {place for place in used if not math.isnan(place)}
        places[name] = len(known) if len(known) == len(used) or not known else None
    return places


def _most_known(nodes: int | None, packages: int | None) -> int | None:
    """Return how many of a run's nodes or packages there are, whichever has more of them."""
    counts = [number for number in (nodes, packages) if number is not None]
    most = max(counts, default=0)
    return most if most > 1 or len(counts) > 1 else None


def _any_good(store: Store, run: int) -> bool:
    column = TimeRow._fields.index("good")
    return any(chunk[:, column].any() for chunk in store.times(run).chunks)


def parse_limit(text: str, kinds: Sequence[str] = _KINDS) -> GateLimit:
    """Return the limit that `slow-lgroup:2%` names; raises `InputError`."""
    kind, colon, size = text.partition(":")
    if kind not in (*kinds, ANY):
        raise InputError(f"--fail-on {text}: no kind of divot; expected {ANY}, {', '.join(kinds)}")
    least = parse_percent(size, MOST_PER_CENT) if colon else 0.0
    if least is None or (colon and not least):
        raise InputError(f"--fail-on {text}: {size!r}: expected per cent above 0, such as 1.5")
    return GateLimit(kind, least)
