"""Results as tables on a terminal or in a file: one run, or the list of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from rater.analysis.outcome import FailedCopy
from rater.analysis.score import BenchmarkScore, IterationScore, SuiteScore, Summary
from rater.plan.cpuset import format_list
from rater.record import RunHead, RunStatus
from rater.show.format import clock, count, decimals, number, percent, plain, what_ran, wrapped
from rater.show.rotated import rotated_lines
from rater.show.table import Column, place_text, seconds_columns, table_lines

_MOST_REMARKS = 10  # lines of failed copies, and of warnings and notes
_STATUS_STYLE = {
    RunStatus.FAILED: "bold red",
    RunStatus.INTERRUPTED: "bold yellow",
    RunStatus.KILLED: "bold yellow",
}


class Printer:
    """Lines of text on a console, none of it read as rich's markup, none of it wrapped there."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = console.width
        self.ascii_only = not console.encoding.lower().startswith("utf")

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line as it is."""
        text = plain(text, ascii_only=self.ascii_only)
        self.console.print(Text(text, style), soft_wrap=True, highlight=False)

    def prose(self, text: str, style: str = "") -> None:
        """Print a sentence, broken between words where the console ends."""
        clean = plain(text, ascii_only=self.ascii_only)
        for line in wrapped(clean, max(20, self.width)):
            self.line(line, style)

    def table(self, columns: Sequence[Column], styles: Sequence[str] = ()) -> None:
        """Print a table; `styles` are those of its rows."""
        clean = [
            Column(
                column.heading,
                [plain(cell, ascii_only=self.ascii_only) for cell in column.cells],
                column.right,
                column.flexible,
                column.optional,
            )
            for column in columns
        ]
        lines = table_lines(clean, self.width, ascii_only=self.ascii_only)
        heading = len(lines) - max(len(column.cells) for column in columns)
        for place, line in enumerate(lines):
            row = place - heading
            style = "bold" if row < 0 else styles[row] if row < len(styles) else ""
            self.line(line, style)


def print_summary(summary: Summary, console: Console, *, after_run: bool = True) -> None:
    """Print what a run says; `after_run`: with the commands that come next."""
    printer = Printer(console)
    head = summary.head
    _print_head(head, printer)
    printer.line()
    if summary.rotated is not None:
        rotated_lines(summary.rotated, head, printer.table, printer.prose)
    else:
        _print_benchmarks(summary, printer)
    _print_failed(summary.failed, printer)
    if summary.remarks:
        printer.line()
        _print_some([f"note: {remark}" for remark in summary.remarks], printer, "yellow")
    if after_run:
        printer.line()
        printer.line(f"This was run {head.run}. What comes next:")
        printer.line(f"  rater show {head.run}")
        printer.line(f"  rater export {head.run} --format csv")
        printer.line("  rater list")


def print_list(heads: Sequence[RunHead], console: Console) -> None:
    """Print one line per run."""
    printer = Printer(console)
    if not heads:
        printer.line("no runs yet: rater run makes one")
        return
    columns = [
        Column(("run", ""), [str(head.run) for head in heads]),
        Column(("started (UTC)", ""), [_started(head) for head in heads], False, optional=2),
        Column(("status", ""), [_status(head) for head in heads], right=False),
        Column(("mode", ""), [head.mode for head in heads], right=False),
        Column(("copies", ""), [str(head.copies) for head in heads]),
        Column(("what", ""), [_what(head) for head in heads], right=False, flexible=True),
        Column(
            ("time", ""),
            ["-" if head.elapsed_s is None else clock(head.elapsed_s) for head in heads],
            optional=1,
        ),
    ]
    tags = [" ".join(f"{key}={value}" for key, value in head.tags) for head in heads]
    if any(tags):
        columns.append(Column(("tags", ""), tags, right=False, flexible=True, optional=3))
    printer.table(columns, [_STATUS_STYLE.get(head.status, "") for head in heads])


def _started(head: RunHead) -> str:
    return "-" if head.started_at is None else head.started_at[:16].replace("T", " ")


def _status(head: RunHead) -> str:
    return head.status.value


def _details(head: RunHead) -> str:
    details = ", ".join(detail for detail in (head.size, head.tune) if detail)
    return f" ({details})" if details else ""


def _what(head: RunHead) -> str:
    """Return `mini/lu (test, base)` or `3 of mini (test, base)`, which can be cut at its end."""
    what, several = what_ran(head.suite, head.benchmarks)
    return f"{len(head.benchmarks)} of {what}{_details(head)}" if several else what + _details(head)


def _print_head(head: RunHead, printer: Printer) -> None:
    what, several = what_ran(head.suite, head.benchmarks)
    words = [what + _details(head), *([several] if several else [])]
    words += [head.mode, count(head.copies, "copy", "copies")]
    if head.stagger_ms:
        words.append(f"{head.stagger_ms:g} ms between starts")
    if head.iterations > 1:
        words.append(f"{head.iterations} iterations")
    if head.discard:
        words.append(f"the first {head.discard} not counted")
    printer.prose(f"run {head.run}: {', '.join(words)}", "bold")
    facts = [] if head.started_at is None else [f"{_started(head)} UTC"]
    facts += [f"on {head.hostname}"] if head.hostname else []
    facts += [f"layout {head.layout}"] if head.layout else []
    facts += [f"memory {head.memory}"] if head.memory else []
    facts += ["imported"] if head.source == "import" else []
    if facts:
        printer.prose(", ".join(facts))
    if head.status is RunStatus.RUNNING:
        printer.prose("not finished: it still runs", "bold yellow")
    elif head.status is not RunStatus.COMPLETE:
        reason = f": {head.reason}" if head.reason else ""
        printer.prose(f"{head.status.value}{reason}", _STATUS_STYLE.get(head.status, ""))


def _print_benchmarks(summary: Summary, printer: Printer) -> None:
    rows = [(b, it) for b in summary.benchmarks for it in b.iterations]
    if rows:
        styles = ["red" if it.reason else "" if it.counted else "dim" for _, it in rows]
        printer.table(_columns(rows), styles)
    if summary.staggered and rows:
        printer.line()
        _print_stagger(rows, printer)
    if any(it.selected and len(b.iterations) > 1 for b, it in rows):
        discarded = ", ( ) not counted" if any(not it.counted for _, it in rows) else ""
        printer.prose(f"* the iteration that stands for the benchmark{discarded}")
    if any(it.bracket_from_slowest for _, it in rows):
        printer.prose("start times are not known: the slowest copy stands for the bracket")
    _print_missing(summary.benchmarks, printer)
    if summary.head.suite is not None or any(b.reference_s for b in summary.benchmarks):
        printer.line()
        for tune in dict.fromkeys(score.tune for score in summary.suites):
            several = len({score.tune for score in summary.suites}) > 1
            scores = {score.kind: score for score in summary.suites if score.tune == tune}
            _print_suite(scores, f"{tune} " if several and tune else "", printer)


def _print_missing(benchmarks: Sequence[BenchmarkScore], printer: Printer) -> None:
    """Say which benchmarks lack what; failed copies are only pointed at, their list comes last."""
    failed = [b for b in benchmarks if any(it.counted and it.failed for it in b.iterations)]
    if failed:
        names = ", ".join(benchmark.benchmark for benchmark in failed)
        printer.prose(f"no result where a copy failed: {names} (see below)", "red")
    reasons = [f"{b.benchmark}: {b.reason}" for b in benchmarks if b.reason and b not in failed]
    _print_some(reasons, printer, "yellow")


def _columns(rows: Sequence[tuple[BenchmarkScore, IterationScore]]) -> list[Column]:
    brackets, medians, longest = seconds_columns(
        [it.bracket_s for _, it in rows],
        [it.median_copy_s for _, it in rows],
        [it.slowest.elapsed_s if it.slowest else None for _, it in rows],
    )
    if any(it.ratio is not None or b.reference_s for b, it in rows):
        ratios, heading = [it.ratio for _, it in rows], ("ratio", "")
    else:
        ratios, heading = [it.per_hour for _, it in rows], ("copies", "/hour")
    ratio_places = decimals(ratios)
    return [
        Column(("benchmark", ""), _names(rows), right=False, flexible=True),
        Column(("iter", ""), _iteration_marks(rows)),
        Column(("bracket", "s"), brackets),
        Column(heading, [number(ratio, ratio_places) for ratio in ratios]),
        Column(("median", "copy s"), medians, optional=1),
        Column(("slowest", "copy s"), longest),
        Column(("copy/CPU", "/lgroup"), [place_text(it.slowest) for _, it in rows]),
        Column(("score", "lost %"), [percent(it.score_lost) for _, it in rows]),
    ]


def _names(rows: Sequence[tuple[BenchmarkScore, IterationScore]]) -> list[str]:
    """Return the names, each in its first row only, with the tune where there are several."""
    several = len({benchmark.tune for benchmark, _ in rows}) > 1
    names = []
    for benchmark, it in rows:
        name = f"{benchmark.benchmark} {benchmark.tune or ''}" if several else benchmark.benchmark
        names.append(name if it is benchmark.iterations[0] else "")
    return names


def _iteration_marks(rows: Sequence[tuple[BenchmarkScore, IterationScore]]) -> list[str]:
    """Return `2*` for the selected of several iterations, `(1)` for one that does not count."""
    if all(len(benchmark.iterations) == 1 for benchmark, _ in rows):
        return [str(it.iteration) for _, it in rows]
    return [
        f"{it.iteration}{'*' if it.selected else ' '}" if it.counted else f"({it.iteration})"
        for _, it in rows
    ]


def _print_stagger(rows: Sequence[tuple[BenchmarkScore, IterationScore]], printer: Printer) -> None:
    brackets, overlaps = seconds_columns(
        [it.bracket_s for _, it in rows], [it.overlap_s for _, it in rows]
    )
    overlaps = [
        "none" if it.overlap_s is not None and it.overlap_s <= 0 else text
        for (_, it), text in zip(rows, overlaps, strict=True)
    ]
    printer.table(
        [
            Column(("benchmark", ""), _names(rows), right=False, flexible=True),
            Column(("iter", ""), _iteration_marks(rows)),
            Column(("first start to", "last finish s"), brackets),
            Column(("last start to", "first finish s"), overlaps),
        ]
    )
    if "none" in overlaps:
        printer.prose("none: the copies never all ran at once")


def _print_suite(scores: dict[str, SuiteScore], label: str, printer: Printer) -> None:
    whole = scores["all"]
    values = [score.ratio for score in scores.values()]
    places = decimals(values)
    parts = [
        f"{kind} {number(scores[kind].ratio, places)}"
        for kind in ("int", "fp")
        if scores[kind].over
    ]
    if whole.ratio is not None:
        kinds = f" ({', '.join(parts)})" if parts else ""
        over = count(len(whole.over), "benchmark")
        printer.prose(
            f"{label}suite ratio {number(whole.ratio, places)}{kinds}, "
            f"the geometric mean over {over}",
            "bold",
        )
        return
    printer.prose(f"no {label}suite ratio: {whole.reason}", "bold")
    for kind in ("int", "fp"):
        if scores[kind].ratio is not None:
            over = count(len(scores[kind].over), "benchmark")
            printer.prose(
                f"{label}{kind} ratio {number(scores[kind].ratio, places)}, "
                f"the geometric mean over {over}"
            )


def _print_failed(failed: Sequence[FailedCopy], printer: Printer) -> None:
    alike: dict[tuple[str, str | None, int, str], list[FailedCopy]] = {}
    for one in failed:
        alike.setdefault((one.benchmark, one.tune, one.iteration, one.what), []).append(one)
    if alike:
        printer.line()
        _print_some([_failed_text(group) for group in alike.values()], printer, "red")


def _failed_text(group: Sequence[FailedCopy]) -> str:
    first = group[0]
    where = f"{first.benchmark}, iteration {first.iteration}, "
    if len(group) > 1:
        where += f"copies {format_list(one.copy for one in group)}"
    else:
        where += f"copy {first.copy}"
        where += "" if first.cpu is None else f", CPU {first.cpu}"
        where += "" if first.node is None else f", lgroup {first.node}"
        where += f", after {number(first.elapsed_s)} s"
    kept = next((one for one in group if one.run_dir), None)
    files = f"; files of copy {kept.copy}: {kept.run_dir}" if kept else ""
    return f"{where}: {first.what}{files}"


def _print_some(texts: Iterable[str], printer: Printer, style: str) -> None:
    shown = list(texts)
    for text in shown[:_MOST_REMARKS]:
        printer.prose(text, style)
    if len(shown) > _MOST_REMARKS:
        printer.prose(f"and {len(shown) - _MOST_REMARKS} more (--json has them all)", style)
