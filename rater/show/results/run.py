"""A run: what ran, its verdict, one table of results for every mode, and what there is to note."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from rater.analysis.divots.model.finding import Analysis
from rater.analysis.results.result import benchmarks_left_out, failure_text, is_selection
from rater.analysis.results.score import RunPages, Summary
from rater.analysis.results.steadiness import DriftVerdict
from rater.analysis.results.steady import ENOUGH
from rater.record.events import CopyEnded
from rater.record.run import RunStatus
from rater.record.stored import RunHead
from rater.show.results.cpu_use import account_parts, disturbance_facts, energy_parts
from rater.show.results.divots import finding_parts
from rater.show.results.listing import STATUS_STYLE, details_text, started_text
from rater.show.results.placement import (
    as_planned,
    memory_parts,
    metric_parts,
    placement_facts,
)
from rater.show.screen.document import (
    CHANGE,
    NUMBER,
    PERCENT,
    PLACE,
    SECONDS,
    TEXT,
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
from rater.text.cpuset import format_list
from rater.text.values import (
    copies_text,
    count,
    group_by_key,
    percent,
    signed_percent,
    truncate_list,
)
from rater.wings import Hook


class PageTables[P: RunPages](Protocol):
    """How a wing shows page sizes that copies had."""

    def page_parts(self, pages: P, *, every: bool = False) -> Iterator[Part]:
        """Yield them; `every`: of all copies and benchmarks."""

    def pages_document(self, pages: P | None, *, every: bool = True) -> dict[str, Any] | None:
        """Return the JSON document."""


PAGE_TABLES = Hook[PageTables[RunPages]]("page tables")
_MOST_ROWS = 8  # of iterations; of more, those that count, and all with -v
_MOST_FAILED = 10
_MEMORY_SHOWN = 3  # benchmarks whose memory is shown unasked


def run_parts(
    summary: Summary,
    document: Row,
    divots: Analysis | None,
    *,
    verbose: bool = False,
    after_run: bool = False,
    warned: Sequence[str] = (),
) -> Iterator[Part]:
    """Yield a run: ten lines and a table, or `verbose` all of it.

    The verdict stands where it is seen: last `after_run`, else first. `warned` are remarks that
    were on the screen before the run.
    """
    head = summary.head
    disturbed = divots is not None and bool(divots.disturbed)
    verdict = [*score_parts(summary, document)]
    if divots is not None:
        verdict += finding_parts(head, divots, every=verbose, most_next=1 if after_run else 3)
    yield from head_parts(head)
    if not after_run:
        yield from verdict
    yield from results_parts(summary, document, verbose=verbose)
    yield from energy_parts(document)
    if verbose:
        yield from account_parts(document)
    if not as_planned(summary.proof) or verbose:
        yield facts(placement_facts(summary.proof))
        few = len(summary.proof.benchmarks) <= _MEMORY_SHOWN
        yield from memory_parts(summary.proof) if verbose and few else ()
    if summary.pages is not None:
        yield from PAGE_TABLES().page_parts(summary.pages)
    yield from metric_parts(summary.metrics)
    if (pair := document.get("comparison")) is not None:
        yield from barrier_parts(pair)
    hidden: Container[str] = warned if after_run and not verbose else ()
    yield facts(
        (
            *(disturbance_facts(document.get("notable", ())) if verbose or not disturbed else ()),
            *failed_facts(summary.failed),
            *(("note", remark, "yellow") for remark in summary.remarks if remark not in hidden),
        )
    )
    if after_run:
        yield from verdict
        if divots is None or not (divots.rerun if disturbed else divots.confirm):
            yield Line(f"next: `{_next(summary)}`", whole=True)


def proof_parts(summary: Summary) -> Iterator[Part]:
    """Yield where copies and their memory were: every benchmark, and each that was elsewhere."""
    yield facts(placement_facts(summary.proof, every=True))
    yield from memory_parts(summary.proof)
    if summary.pages is not None:
        yield from PAGE_TABLES().page_parts(summary.pages, every=True)


def _next(summary: Summary) -> str:
    """Return the command that most would type next."""
    head = summary.head
    if head.status is RunStatus.INTERRUPTED and head.request is not None:
        return f"rater run --resume {head.run}"
    failed = summary.failed and len(summary.failed) >= len(summary.proof.copies)
    return f"rater show {head.run} -v" if failed else f"rater report {head.run}"


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
    yield ", ".join(it for it in where if it) or None
    if head.status is RunStatus.RUNNING:
        yield Line("not finished: it still runs", "bold yellow")
    elif head.status is not RunStatus.COMPLETE:
        reason = f": {head.reason}" if head.reason else ""
        yield Line(f"{head.status.value}{reason}", STATUS_STYLE.get(head.status, ""))


# -- The score -------------------------------------------------------------------------------------


def score_parts(summary: Summary, document: Row) -> Iterator[Part]:
    """Yield what all benchmarks come to: the suite's ratio, the mix's, the mean over copies."""
    rotated, mix = document.get("rotated"), document.get("mix")
    if rotated is not None:
        yield _rotated_score(rotated)
    elif mix is not None:
        yield from _mix_score(mix)
    elif summary.head.suite is not None or any(b.reference_s for b in summary.benchmarks):
        suites = group_by_key((score.tune, score) for score in summary.suites)
        for tune, scores in suites.items():
            label = f"{tune} " if len(suites) > 1 and tune else ""
            whole, *kinds = scores
            places = needed_decimals([score.ratio for score in scores])
            known = [kind for kind in kinds if kind.over and kind.ratio is not None]
            texts = [f"{it.kind} {format_number(it.ratio, places)}" for it in known]
            if whole.ratio is None:
                reasons = "; ".join([whole.reason or "", *texts])
                yield Line(f"no {label}suite ratio: {reasons}", "bold")
                continue
            over = ""
            if is_selection(summary.head) or benchmarks_left_out(summary.run.warnings):
                over = f" over {truncate_list(whole.over)} of the suite"
            yield Line(
                f"{label}suite ratio {format_number(whole.ratio, places)}"
                f"{f' ({", ".join(texts)})' if texts else ''}{over}; 1.00 = one copy on the "
                "reference machine",
                "bold",
            )


def _rotated_score(rotated: Row) -> Part:
    unit = f"{rotated['unit']}, geometric mean of each copy's benchmarks"
    if rotated["score"] is None:
        return Line(f"no score ({unit}): {rotated['reason']}", "bold")
    copies = rotated["copies"]
    places = needed_decimals([copy["rate"] for copy in copies])
    text = f"mean over copies {format_number(rotated['score'], places)} ({unit})"
    if len(copies) > 1:
        last = min(copies, key=lambda it: it["rate"])
        where = ", ".join([f"copy {last['copy']}", *place_texts(last["cpu"], last["node"])])
        text += f"; CV {percent(rotated['cv'])} %; lowest {format_number(last['rate'], places)}, "
        text += where
    return Line(text, "bold")


def _mix_score(mix: Row) -> Iterator[Part]:
    yield Line(f"no result: {mix['reason']}", "bold yellow") if mix["reason"] else None
    chosen = next((it for it in mix["windows"] if it["selected"]), None)
    if chosen is not None and chosen["copies_per_hour"] is not None:
        text = f"{format_number(chosen['copies_per_hour'])} copies/hour in all"
        if chosen["ratio"] is not None:
            ratio = format_number(chosen["ratio"])
            text = f"mix ratio {ratio} (reference seconds of work per second); {text}"
        yield Line(text, "bold")


# -- The results -----------------------------------------------------------------------------------


def results_parts(summary: Summary, document: Row, *, verbose: bool = True) -> Iterator[Part]:
    """Yield one table for every mode; not `verbose`: of many iterations those that count."""
    rows = document["benchmarks"]
    several = any((it["iteration"] or 0) > 1 for it in rows)
    counting = rows if verbose or len(rows) <= _MOST_ROWS else [*_counting(rows)]
    note = ""
    if len(counting) < len(rows):
        note = f"the iterations that count; all: `rater show {summary.head.run} -v`"
    elif several and any(it.get("selected") for it in rows):
        discarded = "; ( ) discarded" if any(not it["counted"] for it in rows) else ""
        note = f"* the iteration that counts{discarded}"
    yield _results_table(counting, note, staggered=summary.staggered)
    if any(it.get("bracket_from_slowest") for it in rows):
        yield "Start times are unknown: the bracket is the slowest copy's time."
    failed = {it["benchmark"] for it in rows if it.get("failed_copies") and it["counted"]}
    if failed:
        yield Line(f"no result where a copy failed: {', '.join(sorted(failed))}", "red")
    reasons = [(benchmark.benchmark, benchmark.reason) for benchmark in summary.benchmarks]
    if summary.rotated is not None:
        reasons = [(it["benchmark"], it["reason"]) for it in rows]
    yield facts((name, why, "yellow") for name, why in reasons if name not in failed)
    if (rotated := document.get("rotated")) is not None:
        yield facts(_rotated_facts(rotated))
    yield from window_parts(document)


def _counting(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the iteration of each benchmark that counts, the last if none does."""
    for own in group_by_key(((it["benchmark"], it.get("tune")), it) for it in rows).values():
        yield next((it for it in own if it.get("selected")), own[-1])


def _results_table(rows: Sequence[Row], note: str, *, staggered: bool) -> ViewTable:
    steady = any(it.get("steady") for it in rows)

    def at_once(it: Row) -> str | None:
        text = format_number(it["overlap_s"])
        return "never" if it["overlap_s"] is not None and it["overlap_s"] <= 0 else text

    def on_cpu(it: Row) -> float | None:
        account = it.get("account") or {}
        return None if account.get("ran_s") is None else account["ran_s"] / account["elapsed_s"]

    def astray(it: Row) -> int | None:
        return len(it.get("placement_not_met", ())) or None

    by_ratio = any(it.get("ratio") is not None for it in rows)
    rate = ("ratio", "ratio") if by_ratio else ("copies|/hour", "copies_per_hour")
    columns = (
        *benchmark_fields(rows),
        Field(
            heading="first start to|last finish s" if staggered else "bracket|s",
            value="bracket_s",
            form=SECONDS,
        ),
        *([Field(heading="all ran|at once s", value=at_once)] if staggered else []),
        Field(*rate, NUMBER),
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

    def style(it: Row) -> str:
        return "red" if it["reason"] else "dim" if it.get("counted") is False else ""

    return ViewTable(title="", rows=rows, fields=columns, style=style, note=note)


def _rotated_facts(rotated: Row) -> Iterator[Fact]:
    copies = f"each by its median over {count(rotated['rounds'], 'round')}"
    yield "copies", f"{copies}; score lost is not given in rotated order"
    if (tail := rotated["tail"]) is not None:
        share, of = tail["core_idle_share"], "core time"
        if share is None:
            share, of = tail["idle_share"], "the copies' time"
        yield (
            "tail",
            f"the first copy finished {format_duration(tail['length_s'])} before the last (of "
            f"{format_duration(tail['total_s'])}); {percent(share)} % of {of} was idle; "
            f"{count(tail['runs_in_tail'], 'run')} ended there",
        )
    if (gaps := rotated["gaps"]) is not None:
        yield (
            "between runs",
            f"{gaps['median_s'] * 1e3:.1f} ms (median), {gaps['longest_s'] * 1e3:.1f} ms at most, "
            f"{percent(gaps['share'])} % of the copies' time",
        )


def failed_facts(failed: Sequence[CopyEnded]) -> Iterator[Fact]:
    """Yield what happened to copies that did not end well, those alike in one row."""
    several = len({one.tune for one in failed}) > 1
    groups = group_by_key(
        ((it.benchmark, it.tune, it.iteration, failure_text(it)), it) for it in failed
    )
    for place, group in enumerate(groups.values()):
        if place == _MOST_FAILED:
            yield "", f"and {len(groups) - place} more kinds of failure (--json has all)", "red"
            return
        yield "failed", _failed_text(group, several), "red"


def _failed_text(group: Sequence[CopyEnded], several: bool) -> str:
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
    return f"{where}: {failure_text(first)}{files}"


# -- Windows of steady mode ------------------------------------------------------------------------

_WORTH_NAMING = 1.02  # a node's slowdown
_MOST_NODES = 16


def window_parts(document: Row) -> Iterator[Part]:
    """Yield whether each counted window was steady, what it needs, and its NUMA nodes."""
    windows = [*_windows(document)]
    columns = (
        *benchmark_fields(windows),
        Field(heading="verdict", value="halves.verdict", form=TEXT),
        Field(heading="2nd half|vs 1st %", value="halves.difference", form=CHANGE),
        Field(heading="95 %|interval", value=_interval, optional=3),
        Field(heading="runs in|a half", value="halves.fewest_whole_runs", optional=4),
        Field(heading="copies|CV %", value="rates.cv", form=PERCENT, optional=5),
        Field(heading="copies|ran %", value="occupied", form=PERCENT),
        Field(
            heading="between|runs ms",
            value=lambda it: it["gap_s"] and it["gap_s"] * 1e3,
            form=decimals(1),
            optional=6,
        ),
        Field(heading="needs|--window", value="halves.needed_window_s", form=NUMBER),
        Field(heading="needs|--warmup", value="needed_warmup_s", form=NUMBER),
    )

    def style(it: Row) -> str:
        steady = it["halves"]["verdict"] == DriftVerdict.STEADY.value
        return "" if steady and not it["needed_warmup_s"] else "yellow"

    yield ViewTable(title="", rows=windows, fields=columns, style=style)
    if any(window["needed_warmup_s"] for window in windows):
        yield Line(
            "The warm-up was shorter than the longest run: copies still ran in step, so rates are "
            "too high, usually by 1 to 8 %. Repeat with the --warmup above.",
            "bold yellow",
        )
    if any(window["halves"]["needed_window_s"] for window in windows):
        yield "A longer --window (above) shows whether the rate was steady."
    least = min(
        (window["occupied"] for window in windows if window["occupied"] is not None), default=1.0
    )
    if least < ENOUGH:
        yield Line(
            f"Copies ran only {percent(least)} % of a window: starting and setting up runs "
            "took the rest. This lowers the rate: make each run longer.",
            "yellow",
        )
    yield _nodes(windows)


def _windows(document: Row) -> Iterator[Row]:
    """Yield the counted windows that have a result."""
    if "mix" in document:
        rows = document["mix"]["windows"]
    else:
        rows = [it | it["steady"] for it in document["benchmarks"] if it.get("steady")]
    return (it for it in rows if it["counted"] and not it["reason"] and it["halves"])


def _interval(it: Row) -> str | None:
    ends = it["halves"]["interval_95"]
    return ends and f"{signed_percent(ends[0])} to {signed_percent(ends[1])}"


def _nodes(windows: Sequence[Row]) -> ViewTable:
    """Return the NUMA nodes of one window, of several those that are slower."""
    rows = [
        window | group
        for window in windows
        for group in window["lgroups"]
        if len(window["lgroups"]) > 1
        and (len(windows) == 1 or (group["slowdown"] or 1) > _WORTH_NAMING)
    ]
    unit = rows[0]["unit"].removeprefix("copies") if rows else ""
    columns = (
        Field(
            heading="window",
            value=lambda it: it.get("benchmark") if len(windows) > 1 else None,
            form=TEXT,
        ),
        Field(heading="iter", value=lambda it: it["iteration"] if len(windows) > 1 else None),
        Field(heading="node", value="node"),
        Field(
            heading="copies",
            value=lambda it: it["copies"] if isinstance(it["copies"], int) else None,
        ),
        Field(heading=(unit, "together"), value="rate", form=NUMBER),
        Field(heading=(unit, "a copy"), value="per_copy", form=NUMBER),
        Field(
            heading="slowdown|%",
            value=lambda it: it["slowdown"] and it["slowdown"] - 1,
            form=CHANGE,
        ),
    )
    title = "" if len(windows) == 1 else "Slower NUMA nodes"
    return ViewTable(title=title, rows=rows, fields=columns, most=_MOST_NODES)


# -- A steady run beside one with a barrier --------------------------------------------------------


def barrier_parts(pair: Row) -> Iterator[Part]:
    """Yield both runs side by side, and what waiting for the slowest copy cost."""
    mode, sides = pair["other_mode"], pair["sides"]
    by_ratio = any(side["steady_ratio"] and side["other_ratio"] for side in sides)
    key, unit = ("ratio", "ratio") if by_ratio else ("per_hour", "/hour")
    whole = {**pair, "benchmark": "all"} if len(sides) > 1 or pair["order"] == "rotated" else None
    rows = [*sides, *([whole] if whole else [])]

    def rate(it: Row, side: str) -> float | None:
        value: float | None = it.get(f"{side}_{key}")
        return value

    columns = (
        *benchmark_fields(sides),
        Field(heading=("steady", unit), value=partial(rate, side="steady"), form=NUMBER),
        Field(heading=(mode, unit), value=partial(rate, side="other"), form=NUMBER),
        Field(heading="steady|is %", value="difference", form=CHANGE),
        Field(heading="score|lost %", value="score_lost", form=PERCENT),
        Field(heading="steady|run s", value="steady_run_s", form=SECONDS, optional=1),
        Field(heading=(mode, "copy s"), value="other_run_s", form=SECONDS, optional=1),
        Field(heading="a run is|longer %", value="longer", form=CHANGE, optional=2),
        Field(heading="not compared", value=lambda it: it.get("reason"), form=TEXT),
    )
    title = f"Run {pair['steady']}, steady, beside run {pair['other']}, {mode}"
    yield ViewTable(
        title=title,
        rows=rows,
        fields=columns,
        style=lambda it: "yellow" if it.get("reason") else "",
    )
    idle, occupied = pair["idle_share"], pair["steady_occupied"]
    lost = pair["score_lost"]
    yield facts(
        (
            ("they also differ in", list(pair["differences"]), "yellow"),
            (
                "waiting cost",
                lost is not None
                and f"{percent(lost)} % of the {mode} score; without it {mode} would complete "
                f"{percent(1 / (1 - lost) - 1)} % more",
            ),
            (
                "waiting cost",
                idle is not None and f"{percent(idle)} % of the copies' time at the end of {mode}",
            ),
            (
                "nothing ran",
                occupied is not None
                and occupied < ENOUGH
                and f"in {percent(1 - occupied)} % of a steady window (rater's starts, set-ups)",
            ),
        )
    )
