"""A run: what ran, its verdict, one table of results for every mode, and what there is to note."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from rater.analysis.divots.model.finding import Analysis
from rater.analysis.results.counters import RunCounts
from rater.analysis.results.cpu_use import RunCounters
from rater.analysis.results.placement import RunProof
from rater.analysis.results.result import is_selection, stored_request
from rater.analysis.results.score import RunPages
from rater.plan.request import options_beyond_defaults
from rater.record.run import RunStatus
from rater.record.stored import RunHead
from rater.show.results.by_tune import tune_table
from rater.show.results.cpu_use import account_parts, disturbance_facts, energy_parts
from rater.show.results.divots import can_judge, finding_parts
from rater.show.results.listing import STATUS_STYLE, details_text, started_text
from rater.show.results.placement import (
    as_planned,
    memory_parts,
    metric_parts,
    placement_facts,
)
from rater.show.results.windows import barrier_parts, window_parts
from rater.show.screen.document import (
    NUMBER,
    PERCENT,
    PLACE,
    SECONDS,
    Fact,
    Field,
    Line,
    Part,
    Row,
    ViewTable,
    benchmark_fields,
    decimals,
    facts,
)
from rater.show.screen.format import (
    format_duration,
    format_number,
    needed_decimals,
    place_texts,
    run_title,
)
from rater.text.cpuset import copy_numbers_text
from rater.text.values import (
    copies_text,
    count,
    group_by_key,
    percent,
    truncate_list,
)
from rater.wings import Hook

if TYPE_CHECKING:
    from rater.show.documents.run import (
        FailedCopyJson,
        MixJson,
        RotatedJson,
        RunDocument,
        SummaryDocument,
    )


class PageTables[P: RunPages](Protocol):
    """How a wing shows page sizes that copies had."""

    def page_parts(self, pages: P, *, every: bool = False) -> Iterator[Part]:
        """Yield them; `every`: of all copies and benchmarks."""

    def pages_document(self, pages: P | None, *, every: bool = True) -> dict[str, Any] | None:
        """Return the JSON document."""


PAGE_TABLES = Hook[PageTables[RunPages]]("page tables")
_NO_READINGS = RunCounters(cpus=(), machine=(), notable=())
_MOST_ROWS = 8  # of iterations; of more, those that count, and all with -v
_MOST_FAILED = 10
_ITERATIONS_WORTH = 5  # from which a copy that stands out in some is told from noise
_MEMORY_SHOWN = 3  # benchmarks whose memory is shown unasked


class ShownRun(Struct, frozen=True, kw_only=True):
    """The document of a run, and what its page needs besides."""

    head: RunHead
    document: RunDocument  # everything that is known of its results
    proof: RunProof  # where copies ran, of which the document may have only a part
    pages: RunPages | None  # page sizes that copies had; None: they were not chosen
    divots: Analysis | None = None  # None: not searched, because it has not ended
    readings: RunCounters = _NO_READINGS  # what CPUs and machine did
    counts: RunCounts | None = None  # None: not asked for


def run_parts(
    shown: ShownRun,
    *,
    verbose: bool = False,
    after_run: bool = False,
    warned: Sequence[str] = (),
) -> Iterator[Part]:
    """Yield a run: ten lines and a table, or `verbose` all of it.

    The verdict stands where it is seen: last `after_run`, else first. `warned` are remarks that
    were on the screen before the run.
    """
    head, document, divots = shown.head, shown.document, shown.divots
    disturbed = divots is not None and bool(divots.disturbed)
    verdict = [*score_parts(head, document)]
    if divots is not None:
        verdict += finding_parts(head, divots, every=verbose, most_next=1 if after_run else 3)
    yield from head_parts(head)
    if not after_run:
        yield asked_line(head)
        yield from verdict
    yield from results_parts(document, verbose=verbose)
    yield from energy_parts(document)
    if verbose:
        yield from account_parts(document)
    if not as_planned(shown.proof) or verbose:
        yield facts(placement_facts(shown.proof))
        few = len(shown.proof.benchmarks) <= _MEMORY_SHOWN
        yield from memory_parts(shown.proof) if verbose and few else ()
    if shown.pages is not None:
        yield from PAGE_TABLES().page_parts(shown.pages)
    yield from metric_parts(document["metrics"])
    if (pair := document.get("comparison")) is not None:
        yield from barrier_parts(pair)
    hidden: Container[str] = warned if after_run and not verbose else ()
    yield facts(
        (
            *(disturbance_facts(document["notable"]) if verbose or not disturbed else ()),
            *failed_facts(document["failed"]),
            *(("note", text, "yellow") for text in document["remarks"] if text not in hidden),
        )
    )
    if after_run:
        yield from verdict
        if divots is None or not (divots.rerun if disturbed else divots.confirm):
            yield Line(f"next: `{_next_command(shown)}`", whole=True)


def proof_parts(shown: ShownRun) -> Iterator[Part]:
    """Yield where copies and their memory were: every benchmark, and each that was elsewhere."""
    yield facts(placement_facts(shown.proof, every=True))
    yield from memory_parts(shown.proof)
    if shown.pages is not None:
        yield from PAGE_TABLES().page_parts(shown.pages, every=True)


def _next_command(shown: ShownRun) -> str:
    """Return the command that most would type next."""
    head, failed = shown.head, shown.document["failed"]
    if head.status is RunStatus.INTERRUPTED and head.request is not None:
        return f"rater run --resume {head.run}"
    if _needs_iterations(shown) and (longer := _with_iterations(head)):
        return longer
    all_failed = failed and len(failed) >= len(shown.proof.copies)
    return f"rater show {head.run} -v" if all_failed else f"rater report {head.run}"


def _needs_iterations(shown: ShownRun) -> bool:
    """Tell whether a run of one iteration shows too little for a verdict."""
    head, divots = shown.head, shown.divots
    is_single = head.status is RunStatus.COMPLETE and head.iterations - head.discard == 1
    has_verdict = divots is None or bool(divots.findings) or can_judge(divots)
    return is_single and not has_verdict and head.mode != "steady"


def _with_iterations(head: RunHead) -> str | None:
    """Return the command of a run as typed, with more iterations; None for what cannot be typed."""
    typed = head.command_line or ""
    words = shlex.split(typed)
    if words[:2] != ["rater", "run"] or "[redacted" in typed or "--resume" in words:
        return None
    end = words.index("--") if "--" in words else len(words)
    options = [
        word
        for before, word in pairwise(["", *words[2:end]])
        if "--iterations" not in (before, word.partition("=")[0])
    ]
    more = str(head.discard + _ITERATIONS_WORTH)
    return shlex.join(["rater", "run", *options, "--iterations", more, *words[end:]])


def run_words(head: RunHead) -> list[str]:
    """Return what ran, and how."""
    what, several = run_title(head.suite, head.benchmarks)
    rotated = head.mode == "steady" and head.order == "rotated"
    words = [
        what + details_text(head),
        several,
        f"{head.mode} in rotated order" if rotated else head.mode,
        copies_text(head.copies),
        head.window_s and f"warm-up {head.warmup_s or 0:g} s, window {head.window_s:g} s",
        head.stagger_ms and f"{head.stagger_ms:g} ms between starts",
        head.iterations > 1 and f"{head.iterations} iterations",
        head.discard and f"the first {head.discard} not counted",
    ]
    return [word for word in words if word]


def head_parts(head: RunHead) -> Iterator[Part]:
    """Yield what ran, when and where, and how it ended if that was not well."""
    yield Line(f"run {head.run}: {', '.join(run_words(head))}", "bold")
    where = [
        head.started_at and f"{started_text(head.started_at)} UTC",
        head.hostname and f"on {head.hostname}",
        head.layout and f"layout {head.layout}",
        head.memory and f"memory {head.memory}",
        "imported" if head.source == "import" else None,
        f"resumed {count(head.resumed, 'time')}" if head.resumed else None,
    ]
    yield ", ".join(fact for fact in where if fact) or None
    if head.status is RunStatus.RUNNING:
        yield Line("not finished: it still runs", "bold yellow")
    elif head.status is not RunStatus.COMPLETE:
        reason = f": {head.reason}" if head.reason else ""
        yield Line(f"{head.status.value}{reason}", STATUS_STYLE.get(head.status, ""))


def asked_line(head: RunHead) -> Line | None:
    """Return the options of a run that are not the default, as typed; None: there are none."""
    request = stored_request(head)
    if request is None:
        return None
    typed = [
        f"--{name}" if value == "yes" else f"--{name} {value}"
        for name, value in options_beyond_defaults(request).items()
    ]
    return Line(f"asked: {' '.join(typed)}", "dim") if typed else None


# -- The score -------------------------------------------------------------------------------------


class _TuneScore(Struct, frozen=True, kw_only=True):
    """The suite's ratios of one tune."""

    label: str  # "base " before the words, where several tunes ran
    ratio: float | None  # of all benchmarks
    kinds: Mapping[str, float | None]  # "int" and "fp"
    benchmarks: Sequence[str]  # that the ratio is over
    reason: str | None  # why there is no ratio


def score_parts(head: RunHead, document: SummaryDocument) -> Iterator[Part]:
    """Yield what all benchmarks come to: the suite's ratio, the mix's, the mean over copies."""
    rotated, mix = document.get("rotated"), document.get("mix")
    if rotated is not None:
        yield _rotated_score(rotated)
    elif mix is not None:
        yield from _mix_score(mix)
    elif head.suite is not None or any(row["reference_s"] for row in document["results"]):
        in_part = is_selection(head) or bool(document["suite"]["left_out"])
        yield from (_suite_line(score, in_part=in_part) for score in _tune_scores(document))


def _tune_scores(document: SummaryDocument) -> Iterator[_TuneScore]:
    suite, results = document["suite"], document["results"]
    if not suite["over"] and suite["reason"] is None:  # nothing was scored
        return
    if "tunes" not in suite:
        kinds = {"int": suite["int"], "fp": suite["fp"]}
        yield _TuneScore(
            label="",
            ratio=suite["ratio"],
            kinds=kinds,
            benchmarks=suite["over"],
            reason=suite["reason"],
        )
        return
    for tune, scores in group_by_key((row["tune"], row) for row in suite["tunes"]).items():
        ratios = {score["kind"]: score["ratio"] for score in scores}
        reasons = {score["kind"]: score["reason"] for score in scores}
        yield _TuneScore(
            label=f"{tune} " if tune else "",
            ratio=ratios["all"],
            kinds={kind: ratios[kind] for kind in ("int", "fp")},
            benchmarks=[row["benchmark"] for row in results if row["tune"] == tune],
            reason=reasons["all"],
        )


def _suite_line(score: _TuneScore, *, in_part: bool) -> Line:
    """Return the ratio of a tune; `in_part`: not all benchmarks of the suite ran."""
    places = needed_decimals([score.ratio, *score.kinds.values()])
    kinds = [
        f"{kind} {format_number(ratio, places)}"
        for kind, ratio in score.kinds.items()
        if ratio is not None
    ]
    if score.ratio is None:
        reasons = "; ".join([score.reason or "", *kinds])
        return Line(f"no {score.label}suite ratio: {reasons}", "bold")
    of_kinds = f" ({', '.join(kinds)})" if kinds else ""
    over = f" over {truncate_list(score.benchmarks)} of the suite" if in_part else ""
    return Line(
        f"{score.label}suite ratio {format_number(score.ratio, places)}{of_kinds}{over}; "
        "1.00 = one copy on the reference machine",
        "bold",
    )


def _rotated_score(rotated: RotatedJson) -> Part:
    unit = f"{rotated['unit']}, geometric mean of each copy's benchmarks"
    if rotated["score"] is None:
        return Line(f"no score ({unit}): {rotated['reason']}", "bold")
    copies = rotated["copies"]
    places = needed_decimals([copy["rate"] for copy in copies])
    text = f"mean over copies {format_number(rotated['score'], places)} ({unit})"
    if len(copies) > 1:
        lowest = min(copies, key=lambda copy: copy["rate"])
        where = ", ".join([f"copy {lowest['copy']}", *place_texts(lowest["cpu"], lowest["node"])])
        rate = format_number(lowest["rate"], places)
        text += f"; CV {percent(rotated['cv'])} %; lowest {rate}, {where}"
    return Line(text, "bold")


def _mix_score(mix: MixJson) -> Iterator[Part]:
    yield Line(f"no result: {mix['reason']}", "bold yellow") if mix["reason"] else None
    selected = next((window for window in mix["windows"] if window["selected"]), None)
    if selected is not None and selected["copies_per_hour"] is not None:
        text = f"{format_number(selected['copies_per_hour'])} copies/hour in all"
        if selected["ratio"] is not None:
            ratio = format_number(selected["ratio"])
            text = f"mix ratio {ratio} (reference seconds of work per second); {text}"
        yield Line(text, "bold")


# -- The results -----------------------------------------------------------------------------------


def results_parts(document: SummaryDocument, *, verbose: bool = True) -> Iterator[Part]:
    """Yield one table for every mode; not `verbose`: of many iterations those that count."""
    rows: Sequence[Row] = document["benchmarks"]
    several = any((row["iteration"] or 0) > 1 for row in rows)
    shown = rows if verbose or len(rows) <= _MOST_ROWS else [*_counting(rows)]
    note = ""
    if len(shown) < len(rows):
        note = f"the iterations that count; all: `rater show {document['run']} -v`"
    elif several and any(row.get("selected") for row in rows):
        discarded = "; ( ) discarded" if any(not row["counted"] for row in rows) else ""
        note = f"* the iteration that counts{discarded}"
    staggered = _is_staggered(document)
    rotated = document.get("rotated")
    table_rows = [*shown, *_whole_ring(rotated)] if rotated else shown
    yield _results_table(table_rows, note, staggered=staggered)
    yield tune_table(rows)
    if starts := document.get("starts"):
        late_s = starts["most_late_s"]
        late = f"at most {format_duration(late_s)} late" if late_s else "none of them late"
        yield f"Copies started {starts['apart_s']:.3f} s apart, {late}."
    if staggered and (text := _never_overlapped(rows, document["stagger_ms"])):
        yield Line(text, "yellow")
    if any(row.get("bracket_from_slowest") for row in rows):
        yield "Start times are unknown: the bracket is the slowest copy's time."
    failed = {row["benchmark"] for row in rows if row.get("failed_copies") and row["counted"]}
    if failed:
        yield Line(f"no result where a copy failed: {', '.join(sorted(failed))}", "red")
    incomplete: Sequence[Row] = document["results"] if rotated is None else rows
    yield facts(
        (row["benchmark"], row["reason"], "yellow")
        for row in incomplete
        if row["benchmark"] not in failed
    )
    if rotated is not None:
        yield facts(_rotated_facts(rotated))
    yield from window_parts(document)


def _is_staggered(document: SummaryDocument) -> bool:
    """Tell whether copies were released one after another; only steady mode has a window."""
    in_order = "rotated" not in document and "window_s" not in document
    return in_order and document["stagger_ms"] > 0


def _never_overlapped(rows: Sequence[Row], stagger_ms: float) -> str | None:
    """Say that each copy ended before the next began; None: they met, or it is not known."""
    slowest = [row["slowest"]["elapsed_s"] for row in rows if row.get("slowest")]
    is_known = len(slowest) == len(rows) and all(row["overlap_s"] is not None for row in rows)
    if not rows or not is_known or max(slowest) * 1e3 >= stagger_ms:
        return None
    return (
        f"Copies never overlapped, so this measures single copies: the slowest took "
        f"{format_duration(max(slowest))}, and starts were {format_duration(stagger_ms / 1e3)} "
        "apart. A shorter --stagger has them meet."
    )


def _counting(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the iteration of each benchmark that counts, the last if none does."""
    groups = group_by_key(((row["benchmark"], row.get("tune")), row) for row in rows)
    for iterations in groups.values():
        yield next((row for row in iterations if row.get("selected")), iterations[-1])


def _results_table(rows: Sequence[Row], note: str, *, staggered: bool) -> ViewTable:
    steady = any(row.get("steady") for row in rows)

    def at_once(row: Row) -> str | None:
        text = format_number(row["overlap_s"])
        return "never" if row["overlap_s"] is not None and row["overlap_s"] <= 0 else text

    def on_cpu(row: Row) -> float | None:
        account = row.get("account") or {}
        return None if account.get("ran_s") is None else account["ran_s"] / account["elapsed_s"]

    def astray(row: Row) -> int | None:
        return len(row.get("placement_not_met", ())) or None

    by_ratio = any(row.get("ratio") is not None for row in rows)
    if by_ratio:
        rate = Field(heading="ratio", value="ratio", form=NUMBER)
    else:
        rate = Field(heading="copies|/hour", value="copies_per_hour", form=NUMBER)
    columns = (
        *benchmark_fields(rows),
        Field(
            heading="first start to|last finish s" if staggered else "bracket|s",
            value="bracket_s",
            form=SECONDS,
        ),
        *([Field(heading="all ran|at once s", value=at_once)] if staggered else []),
        rate,
        Field(heading="rate|mean", value="rates.mean", form=NUMBER),
        Field(heading="runs in|window", value="steady.completions", form=decimals(1)),
        Field(heading="whole|runs", value="steady.whole_runs", optional=2),
        Field(heading="mean|s", value="times_s.mean", form=SECONDS),
        Field(heading="CV|%", value="times_s.cv", form=PERCENT),
        Field(heading="min|s", value="times_s.minimum", form=SECONDS, optional=2),
        Field(heading="q1|s", value="times_s.lower_quartile", form=SECONDS, optional=4),
        Field(
            heading="median|run s" if steady else "median|copy s",
            value="median_copy_s",
            form=SECONDS,
            optional=1,
        ),
        Field(heading="q3|s", value="times_s.upper_quartile", form=SECONDS, optional=4),
        Field(heading="slowest|copy s", value="slowest.elapsed_s", form=SECONDS),
        Field(heading="which copy,|CPU, node", value="slowest", form=PLACE),
        Field(heading="on CPU|%", value=on_cpu, form=PERCENT, optional=1),
        Field(heading="score|lost %", value="score_lost", form=PERCENT),
        Field(heading="not as|planned", value=astray),
    )

    def style(row: Row) -> str:
        return "red" if row["reason"] else "dim" if row.get("counted") is False else ""

    return ViewTable(title="", rows=rows, fields=columns, style=style, note=note)


def _whole_ring(rotated: RotatedJson) -> Iterator[Row]:
    """Yield the row of all benchmarks together, whose bracket is that of the whole run."""
    if (tail := rotated["tail"]) is not None:
        yield {"benchmark": "whole run", "bracket_s": tail["total_s"], "reason": None}


def _rotated_facts(rotated: RotatedJson) -> Iterator[Fact]:
    copies = f"each by its median over {count(rotated['rounds'], 'round')}"
    yield "copies", f"{copies}; score lost is not given in rotated order"
    if (tail := rotated["tail"]) is not None:
        share, time_of = tail["core_idle_share"], "core time"
        if share is None:
            share, time_of = tail["idle_share"], "the copies' time"
        yield (
            "tail",
            f"the first copy finished {format_duration(tail['length_s'])} before the last (of "
            f"{format_duration(tail['total_s'])}); {percent(share)} % of {time_of} was idle; "
            f"{count(tail['runs_in_tail'], 'run')} ended there",
        )
    if (gaps := rotated["gaps"]) is not None:
        yield (
            "between runs",
            f"{gaps['median_s'] * 1e3:.1f} ms (median), {gaps['longest_s'] * 1e3:.1f} ms at most, "
            f"{percent(gaps['share'])} % of the copies' time",
        )


def failed_facts(failed: Sequence[FailedCopyJson]) -> Iterator[Fact]:
    """Yield what happened to copies that did not end well, those alike in one row."""
    several_tunes = len({copy["tune"] for copy in failed}) > 1
    groups = group_by_key(
        ((copy["benchmark"], copy["tune"], copy["iteration"], copy["what"]), copy)
        for copy in failed
    )
    for place, group in enumerate(groups.values()):
        if place == _MOST_FAILED:
            yield "", f"and {len(groups) - place} more kinds of failure (--json has all)", "red"
            return
        yield "failed", _failed_text(group, several_tunes=several_tunes), "red"


def _failed_text(group: Sequence[FailedCopyJson], *, several_tunes: bool) -> str:
    """Say what happened to copies alike."""
    first = group[0]
    tune = f" {first['tune']}" if several_tunes and first["tune"] else ""
    where = f"{first['benchmark']}{tune}, iteration {first['iteration']}, "
    copies = {copy["copy"] for copy in group}
    if len(group) > 1:
        where += copy_numbers_text(copies)
        where += f", {len(group)} runs" if len(group) > len(copies) else ""
    else:
        where += ", ".join([f"copy {first['copy']}", *place_texts(first["cpu"], first["node"])])
        where += f", after {format_number(first['elapsed_s'])} s"
    kept = next((copy for copy in group if copy["run_dir"]), None)
    files = f"; files of copy {kept['copy']}: {kept['run_dir']}" if kept else ""
    return f"{where}: {first['what']}{files}"
