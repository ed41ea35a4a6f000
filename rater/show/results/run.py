"""Results of a run as tables: its head, its parts, its suite in a line."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace
from rich.console import Console

from rater.analysis.divots.model.finding import Analysis
from rater.analysis.results.cpu_use import MachineDisturbance
from rater.analysis.results.outcome import FailedCopy
from rater.analysis.results.rotated import RotatedScore, RunTail
from rater.analysis.results.score import BenchmarkScore, RunPages, SuiteScore, Summary
from rater.record.run import RunStatus
from rater.record.stored import RunHead
from rater.show.console import (
    Column,
    Columns,
    NotMet,
    Printer,
    Rows,
    benchmark_names,
    iteration_marks,
    names_with_tunes,
    not_met_column,
    not_met_columns,
    seconds_columns,
)
from rater.show.format import (
    crop,
    format_duration,
    format_number,
    needed_decimals,
    place_texts,
    run_title,
)
from rater.show.results.cpu_use import notable_text, on_cpu, print_accounts, print_energy
from rater.show.results.divots import print_findings
from rater.show.results.listing import STATUS_STYLE, details_text, started_text
from rater.show.results.placement import as_planned, print_memory, print_metrics, print_placement
from rater.show.results.steady import print_beside, print_mix, print_verdicts, print_windows
from rater.text.cpuset import format_list
from rater.text.values import copies_text, count, percent
from rater.wings import Hook


class PageTables[P: RunPages](Protocol):
    """How a wing shows page sizes that copies had."""

    def print_pages(self, pages: P | None, printer: Printer, *, every: bool = False) -> None:
        """Print them; `every`: of all copies and benchmarks."""

    def pages_document(self, pages: P | None, *, every: bool = True) -> dict[str, Any] | None:
        """Return the JSON document."""


PAGE_TABLES = Hook[PageTables[RunPages]]("page tables")

if TYPE_CHECKING:
    from rater.analysis.compare.barrier import BarrierComparison

# -- What a suite comes to, in a line --------------------------------------------------------------


def print_scores(summary: Summary, printer: Printer) -> None:
    """Print what the suite comes to; nothing of runs that have no such score."""
    if summary.rotated is not None or summary.mix is not None:
        return
    if summary.head.suite is not None or any(b.reference_s for b in summary.benchmarks):
        for tune in dict.fromkeys(score.tune for score in summary.suites):
            several = len({score.tune for score in summary.suites}) > 1
            scores = {score.kind: score for score in summary.suites if score.tune == tune}
            _print_suite(summary, scores, f"{tune} " if several and tune else "", printer)


def _print_suite(
    summary: Summary, scores: dict[str, SuiteScore], label: str, printer: Printer
) -> None:
    whole = scores["all"]
    places = needed_decimals([score.ratio for score in scores.values()])
    kinds = [scores[kind] for kind in ("int", "fp")]
    if whole.ratio is not None:
        parts = [f"{one.kind} {format_number(one.ratio, places)}" for one in kinds if one.over]
        printer.prose(
            f"{label}suite ratio {format_number(whole.ratio, places)}"
            f"{f' ({", ".join(parts)})' if parts else ''}{_over(summary, whole)}; "
            "1.00 = one copy on the reference machine",
            "bold",
        )
        return
    printer.prose(f"no {label}suite ratio: {whole.reason}", "bold")
    for one in kinds:
        if one.ratio is not None:
            printer.prose(
                f"{label}{one.kind} ratio {format_number(one.ratio, places)}, "
                f"over {count(len(one.over), 'benchmark')}"
            )


def _over(summary: Summary, whole: SuiteScore) -> str:
    """Return which benchmarks it is of where these are not all of the suite."""
    if not (summary.selected or summary.left_out):
        return ""
    text = f", over {count(len(whole.over), 'benchmark')}"
    if summary.selected:
        text += f" of the suite: {', '.join(whole.over)}"
    if summary.left_out:
        text += f" (left out: {', '.join(name for name, _ in summary.left_out)})"
    return text


# -- Results of the rotated order as a table and sentences -----------------------------------------


def print_rotated(rotated: RotatedScore, head: RunHead, not_met: NotMet, printer: Printer) -> None:
    """Print the table per benchmark and what else there is to say."""
    rows = rotated.benchmarks
    of = Columns(rows)
    spreads = [benchmark.times_s for benchmark in rows]
    shown = ("mean", "minimum", "lower_quartile", "median", "upper_quartile", "maximum")
    cells = seconds_columns(*([getattr(s, name) if s else None for s in spreads] for name in shown))
    mean, low, quarter, median, three_quarters, high = cells
    counts = [s.count if s else 0 for s in spreads]
    astray: dict[str, set[int]] = {benchmark.benchmark: set() for benchmark in rows}
    for (name, _), copies in not_met.items():
        astray.setdefault(name, set()).update(copies)
    differ = any(how_many != head.copies for how_many in counts)
    printer.table(
        [
            of.left("benchmark", lambda b: b.benchmark, flexible=True),
            *([Column("copies", [str(how_many) for how_many in counts])] if differ else []),
            of.numbers(
                "ratio|mean" if rotated.unit == "ratio" else "copies|/hour",
                lambda b: b.rates.mean if b.rates else None,
            ),
            Column("mean|s", mean),
            of.percent("CV|%", lambda b: b.times_s.cv if b.times_s else None),
            Column("min|s", low, optional=1),
            Column("q1|s", quarter, optional=3),
            Column("median|s", median, optional=2),
            Column("q3|s", three_quarters, optional=3),
            Column("max|s", high),
            of.place(lambda b: b.slowest, "slowest copy"),
            *not_met_column([len(astray[benchmark.benchmark]) for benchmark in rows]),
        ]
    )
    over = (
        "copies: how many count for the benchmark"
        if differ
        else (f"over {copies_text(head.copies)}")
    )
    printer.prose(
        f"{over}, each by its median over "
        f"{count(rotated.rounds, 'round')}; score lost is not "
        "given in rotated order"
    )
    for benchmark in rotated.benchmarks:
        if benchmark.reason:
            printer.prose(f"{benchmark.benchmark}: {benchmark.reason}")
    printer.line()
    _score(rotated, printer)
    _times(rotated, printer)


def _score(rotated: RotatedScore, printer: Printer) -> None:
    what = f"{rotated.unit}, geometric mean of each copy, {rotated.proposed_in}"
    if rotated.score is None:
        printer.prose(f"no score over copies ({what}): {rotated.reason}")
        return
    places = needed_decimals([copy.rate for copy in rotated.copies])
    printer.prose(
        f"mean over copies {format_number(rotated.score, places)}, CV {percent(rotated.cv)} % "
        f"({what})"
    )
    if len(rotated.copies) > 1:
        last = min(rotated.copies, key=lambda copy: copy.rate)
        printer.prose(
            f"the lowest of them: "
            f"{', '.join([f'copy {last.copy}', *place_texts(last.cpu, last.node)])}: "
            f"{format_number(last.rate, places)}"
        )


def _times(rotated: RotatedScore, printer: Printer) -> None:
    if rotated.tail is not None:
        tail = rotated.tail
        printer.prose(
            f"tail: the first copy finished {format_duration(tail.length_s)} before the last (of "
            f"{format_duration(tail.total_s)}); {_idle(tail)} was idle; "
            f"{count(tail.runs_in_tail, 'run')} ended there"
        )
    if rotated.gaps is not None:
        gaps = rotated.gaps
        printer.prose(
            f"between two steps of a copy: {gaps.median_s * 1e3:.1f} ms (median), "
            f"{gaps.longest_s * 1e3:.1f} ms at most, {percent(gaps.share)} % of the copies' time"
        )


def _idle(tail: RunTail) -> str:
    """Where the PUs of the copies are known, a PU is idle once its last copy is done."""
    if tail.core_idle_share is not None:
        return f"{percent(tail.core_idle_share)} % of core time"
    return f"{percent(tail.idle_share)} % of the copies' time"


# -- Results as tables on a terminal or in a file: one run, their head and their parts -------------

_MOST_ROWS = 8  # of iterations; of more benchmarks each has one line
_MEMORY_SHOWN = 3  # benchmarks whose memory is shown unasked


def print_summary(
    summary: Summary,
    console: Console,
    *,
    after_run: bool = True,
    beside: BarrierComparison | None = None,
    notable: Sequence[MachineDisturbance] = (),
    divots: Analysis | None = None,
    verbose: bool = False,
    warned: Sequence[str] = (),
) -> None:
    """Print what a run says: ten lines and a table, or `verbose` all there is.

    The verdict stands where it is seen: last `after_run`, else first. What is as it should be
    takes no line, and a remark of `warned`, which was on the screen before the run, one at most.
    `beside` is a steady run beside one of the same order with a barrier; `notable`: what the
    machine's readings say of it; `divots`: what was found slow.
    """
    printer = Printer(console)
    head = summary.head
    disturbed = divots is not None and bool(divots.disturbed)
    rows = sum(len(benchmark.iterations) for benchmark in summary.benchmarks)
    print_head(head, printer)
    if not after_run:
        _print_verdict(summary, divots, printer)
    printer.line()
    print_results(summary, printer, dense=not verbose and rows > _MOST_ROWS)
    print_energy(summary, printer)
    _print_where(summary, printer, verbose=verbose)
    if summary.pages is not None:
        PAGE_TABLES().print_pages(summary.pages, printer)
    beside_copies = notable_text(notable, head.run)
    if beside_copies is not None and (verbose or not disturbed):
        printer.prose(beside_copies, "yellow")
    if summary.metrics:
        printer.line()
        print_metrics(summary.metrics, printer)
    if beside is not None:
        print_beside(beside, printer)
    elif summary.steady and head.status is RunStatus.COMPLETE:
        printer.line()
        printer.prose(
            f"no complete {head.order} run of the same copies is stored to compare with; with one, "
            f"`rater show {head.run}` shows both"
        )
    print_failed(summary.failed, printer)
    short = warned if console.is_terminal and not verbose else ()
    said = not verbose and (disturbed or rows > _MOST_ROWS)
    remarks = [it for it in summary.remarks if not (said and it in warned)]
    if remarks:
        printer.line()
    printer.some([_note(remark, printer, short) for remark in remarks], "yellow")
    if after_run:
        printer.line()
        _print_verdict(summary, divots, printer, most_next=1)
        if divots is None or not (divots.rerun if disturbed else divots.confirm):
            printer.line(f"next: `{_next(summary)}`")


def _print_where(summary: Summary, printer: Printer, *, verbose: bool) -> None:
    """Print where copies were that were not where they should be; `verbose`: all."""
    if verbose:
        print_accounts(summary, printer)
    if not summary.proof.copies or (as_planned(summary.proof) and not verbose):
        return
    printer.line()
    print_placement(summary.proof, printer)
    if verbose and len(summary.proof.benchmarks) <= _MEMORY_SHOWN:
        print_memory(summary.proof, printer)
    elif verbose and any(benchmark.sampled for benchmark in summary.proof.benchmarks):
        printer.prose(f"memory by benchmark: `rater show {summary.head.run} --proof`")


def _print_verdict(
    summary: Summary, divots: Analysis | None, printer: Printer, most_next: int = 3
) -> None:
    print_scores(summary, printer)
    if divots is not None:
        print_findings(summary.head, divots, printer, most_next=most_next)


def print_proof(summary: Summary, printer: Printer) -> None:
    """Print where copies and their memory were: every benchmark, and each that was elsewhere."""
    printer.line()
    print_placement(summary.proof, printer, every=True)
    print_memory(summary.proof, printer)
    if summary.pages is not None:
        PAGE_TABLES().print_pages(summary.pages, printer, every=True)


def print_results(summary: Summary, printer: Printer, *, dense: bool = False) -> None:
    """Print the results of a run, of whatever mode; `dense`: as `print_benchmarks` has it."""
    if summary.rotated is not None:
        print_rotated(summary.rotated, summary.head, summary.proof.not_met(), printer)
    elif summary.mix is not None:
        print_mix(summary.mix, summary, printer)
        print_verdicts(summary, printer)
    else:
        print_benchmarks(summary, printer, dense=dense)


def _note(remark: str, printer: Printer, short: Container[str]) -> str:
    text = f"note: {remark}"
    return crop(text, printer.width, ascii_only=printer.ascii_only) if remark in short else text


def _next(summary: Summary) -> str:
    """Return the command that most would type next."""
    head = summary.head
    if head.status is RunStatus.INTERRUPTED and head.request is not None:
        return f"rater run --resume {head.run}"
    failed = summary.failed and len(summary.failed) >= len(summary.proof.copies)
    return f"rater show {head.run} -v" if failed else f"rater report {head.run}"


def print_head(head: RunHead, printer: Printer) -> None:
    """Print what ran, when and where, and how it ended if that was not well."""
    what, several = run_title(head.suite, head.benchmarks)
    words = [what + details_text(head), *([several] if several else [])]
    rotated = head.mode == "steady" and head.order == "rotated"
    mode = f"{head.mode} in rotated order" if rotated else head.mode
    words += [mode, copies_text(head.copies)]
    if head.window_s is not None:
        words.append(f"warm-up {head.warmup_s or 0:g} s, window {head.window_s:g} s")
    if head.stagger_ms:
        words.append(f"{head.stagger_ms:g} ms between starts")
    if head.iterations > 1:
        words.append(f"{head.iterations} iterations")
    if head.discard:
        words.append(f"the first {head.discard} not counted")
    printer.prose(f"run {head.run}: {', '.join(words)}", "bold")
    facts = [
        head.started_at and f"{started_text(head)} UTC",
        head.hostname and f"on {head.hostname}",
        head.layout and f"layout {head.layout}",
        head.memory and f"memory {head.memory}",
        "imported" if head.source == "import" else None,
        f"resumed {count(head.resumed, 'time')}" if head.resumed else None,
    ]
    if any(facts):
        printer.prose(", ".join(fact for fact in facts if fact))
    if head.status is RunStatus.RUNNING:
        printer.prose("not finished: it still runs", "bold yellow")
    elif head.status is not RunStatus.COMPLETE:
        reason = f": {head.reason}" if head.reason else ""
        printer.prose(f"{head.status.value}{reason}", STATUS_STYLE.get(head.status, ""))


def print_benchmarks(summary: Summary, printer: Printer, *, dense: bool = False) -> None:
    """Print the results of copies that waited for each other.

    `dense`: of each benchmark the iteration that counts.
    """
    several = any(len(b.iterations) > 1 for b in summary.benchmarks)
    benchmarks = [_alone(b) for b in summary.benchmarks] if dense else summary.benchmarks
    rows = [(b, it) for b in benchmarks for it in b.iterations]
    if rows and summary.steady:
        print_windows(rows, summary, printer)
    elif rows:
        styles = ["red" if it.reason else "" if it.counted else "dim" for _, it in rows]
        printer.table(_columns(rows, summary.proof.not_met()), styles)
    if summary.staggered and rows:
        printer.line()
        _print_stagger(rows, printer)
    if any(it.selected and len(b.iterations) > 1 for b, it in rows):
        discarded = "; ( ) discarded" if any(not it.counted for _, it in rows) else ""
        printer.prose(f"* the iteration that counts{discarded}")
    if dense and several:
        printer.prose(
            f"of each benchmark the iteration that counts; all: `rater show {summary.head.run} -v`"
        )
    if any(it.bracket_from_slowest for _, it in rows):
        printer.prose("Start times are unknown: the bracket is the slowest copy's time.")
    _print_missing(summary.benchmarks, printer)
    if summary.steady:
        print_verdicts(summary, printer)


def _alone(benchmark: BenchmarkScore) -> BenchmarkScore:
    """Return the benchmark with the iteration that counts alone, the last where none does."""
    its = benchmark.iterations
    return replace(benchmark, iterations=tuple(it for it in its if it.selected)[:1] or its[-1:])


def _print_missing(benchmarks: Sequence[BenchmarkScore], printer: Printer) -> None:
    """Say which benchmarks lack what; failed copies are only pointed at, their list comes last."""
    called = [
        (name.rstrip(), one)
        for name, one in zip(names_with_tunes(benchmarks), benchmarks, strict=True)
    ]
    failed = [name for name, b in called if any(it.counted and it.failed for it in b.iterations)]
    if failed:
        printer.prose(f"no result where a copy failed: {', '.join(failed)} (see below)", "red")
    reasons = [f"{name}: {b.reason}" for name, b in called if b.reason and name not in failed]
    printer.some(reasons, "yellow")


def _columns(rows: Rows, not_met: NotMet) -> list[Column]:
    brackets, medians, longest = seconds_columns(
        [it.bracket_s for _, it in rows],
        [it.median_copy_s for _, it in rows],
        [it.slowest.elapsed_s if it.slowest else None for _, it in rows],
    )
    of = Columns([it for _, it in rows])
    by_ratio = any(it.ratio is not None or b.reference_s for b, it in rows)
    return [
        Column("benchmark", benchmark_names(rows), right=False, flexible=True),
        Column("iter", iteration_marks(rows)),
        Column("bracket|s", brackets),
        of.numbers("ratio", lambda it: it.ratio)
        if by_ratio
        else of.numbers("copies|/hour", lambda it: it.per_hour),
        Column("median|copy s", medians, optional=1),
        Column("slowest|copy s", longest),
        of.place(lambda it: it.slowest),
        *(
            [of.percent("on CPU|%", on_cpu, optional=1)]
            if any(on_cpu(it) for _, it in rows)
            else []
        ),
        of.percent("score|lost %", lambda it: it.score_lost),
        *not_met_columns(rows, not_met),
    ]


def _print_stagger(rows: Rows, printer: Printer) -> None:
    brackets, overlaps = seconds_columns(
        [it.bracket_s for _, it in rows], [it.overlap_s for _, it in rows]
    )
    overlaps = [
        "none" if it.overlap_s is not None and it.overlap_s <= 0 else text
        for (_, it), text in zip(rows, overlaps, strict=True)
    ]
    printer.table(
        [
            Column("benchmark", benchmark_names(rows), right=False, flexible=True),
            Column("iter", iteration_marks(rows)),
            Column("first start to|last finish s", brackets),
            Column("last start to|first finish s", overlaps),
        ]
    )
    if "none" in overlaps:
        printer.prose("none: the copies never all ran at once")


def print_failed(failed: Sequence[FailedCopy], printer: Printer) -> None:
    """Print what happened to copies that did not end well, those alike in one line."""
    groups: dict[tuple[str, str | None, int, str], list[FailedCopy]] = {}
    for one in failed:
        groups.setdefault((one.benchmark, one.tune, one.iteration, one.what), []).append(one)
    if groups:
        several = len({one.tune for one in failed}) > 1
        printer.line()
        printer.some([_failed_text(group, several) for group in groups.values()], "red")


def _failed_text(group: Sequence[FailedCopy], several: bool) -> str:
    """Say what happened to copies alike; `several`: there are tunes to tell apart."""
    first = group[0]
    tune = f" {first.tune}" if several and first.tune else ""
    where = f"{first.benchmark}{tune}, iteration {first.iteration}, "
    copies = {one.copy for one in group}
    if len(group) > 1:
        where += f"copies {format_list(copies)}" if len(copies) > 1 else f"copy {first.copy}"
        where += f", {len(group)} runs" if len(group) > len(copies) else ""
    else:
        where += ", ".join([f"copy {first.copy}", *place_texts(first.cpu, first.node)])
        where += f", after {format_number(first.elapsed_s)} s"
    kept = next((one for one in group if one.run_dir), None)
    files = f"; files of copy {kept.copy}: {kept.run_dir}" if kept else ""
    return f"{where}: {first.what}{files}"
