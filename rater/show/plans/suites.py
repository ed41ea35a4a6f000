"""Suites: the list of them, one of them, a check of one; as text and as values for JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rater.plan.suite import Benchmark, Command, Expected, InputFile, Metric, Size, Suite
from rater.show.console import TextLayout
from rater.show.format import (
    align_columns,
    crop,
    format_number,
    needed_decimals,
    sanitize,
    wrap_text,
)
from rater.text.values import JsonFields, count, to_json

_LEAST_NAME = 8  # characters of a name that stay, however narrow the terminal
_DETAILED = 3  # of so many benchmarks the commands are shown; of more, on demand
_STATED = {"missing": "not installed", "unfit": "too big for the machine"}


def suite_text(suite: Suite, page: TextLayout) -> str:
    """Return one suite: what its benchmarks are, then reference time and memory by size.

    Of few benchmarks the commands, inputs and answers of every size follow.
    """
    head = f"{suite.name}: {sanitize(suite.description)}" if suite.description else suite.name
    lines = [*page.prose(head), f"file: {sanitize(str(suite.path))}"]
    if suite.reference_machine:
        lines += page.prose(f"reference times: {sanitize(suite.reference_machine)}")
    if suite.setup:
        lines += page.prose(f"set-up, once a run: {_words(suite.setup, suite)}")
    if suite.environment:
        lines += page.prose(f"environment: {_variables(suite.environment)}")
    if suite.leave_out:
        why = " or ".join(_STATED[word] for word in suite.leave_out)
        lines += page.prose(f"left out of a run: benchmarks that are {why}")
    lines += ["", *_about(suite, page), "", *_sizes_table(suite, page)]
    if len(suite.benchmarks) <= _DETAILED:
        for benchmark in suite.benchmarks:
            for size in benchmark.sizes.values():
                lines += ["", *_details(suite, benchmark, size, page)]
    else:
        where = "rater suites show SUITE/BENCHMARK"
        lines += ["", *page.prose(f"commands, inputs and answers: {where}")]
    return page.joined(lines)


_TABLE = {
    Suite: JsonFields(
        "name description path reference_machine setup environment{} leave_out",
        {"benchmarks": lambda suite: [_benchmark(one) for one in suite.benchmarks]},
    ),
    InputFile: JsonFields("name path generator made copy=private"),
    Expected: JsonFields("file absolute_tolerance relative_tolerance sha256 ignore"),
}
_BENCHMARK = JsonFields(
    "name category description sources libraries flags command threads setup environment{} metrics"
)
_SIZE = JsonFields(
    "environment{} reference_s memory_bytes total_memory_bytes disk_bytes",
    {"inputs": lambda size: [wanted.name for wanted in size.inputs]},
    "input_files=inputs",
    {"checked": lambda size: [want.file for want in size.expected]},
    "expected",
)


def suite_json(suite: Suite) -> dict[str, object]:
    """Return one suite for JSON."""
    document: dict[str, object] = to_json(suite, _TABLE)
    return document


def _benchmark(one: Benchmark) -> dict[str, object]:
    return _BENCHMARK.of(one) | {"sizes": [_size(one, size) for size in one.sizes.values()]}


def _size(benchmark: Benchmark, size: Size) -> dict[str, object]:
    return {
        "name": size.name,
        "args": size.commands[0].args,
        "commands": [
            {
                "program": (command.program or benchmark.command) or None,  # None: the built one
                "args": command.args,
                "stdin": command.stdin,
                "stdout": command.stdout,
                "stderr": command.stderr,
            }
            for command in size.commands
        ],
        **_SIZE.of(size),
    }


def size_names(suite: Suite) -> list[str]:
    """Return the names of all sizes, in the order in which they first appear."""
    return list({name: None for benchmark in suite.benchmarks for name in benchmark.sizes})


def _about(suite: Suite, page: TextLayout) -> list[str]:
    """Return the table of benchmarks; descriptions go on below themselves, never cut."""
    rows = [("benchmark", "category")]
    names = _names(suite, page)
    rows += [(n, b.category or "-") for n, b in zip(names, suite.benchmarks, strict=True)]
    texts = [["description"], *(_facts(suite, benchmark) for benchmark in suite.benchmarks)]
    margin = sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True))
    lines: list[str] = []
    for begin, facts in zip(align_columns(rows, (False, False)), texts, strict=True):
        lines += page.hang_indent(begin, margin, facts)
    return lines


def _facts(suite: Suite, benchmark: Benchmark) -> list[str]:
    """Return what a benchmark is, a sentence each; only what is out of the ordinary."""
    facts = [benchmark.description or _made_of(suite, benchmark)]
    if benchmark.threads > 1:
        facts.append(f"threads: {benchmark.threads}, each copy gets as many CPUs")
    facts += [f"reports {_metric(metric)}" for metric in benchmark.metrics]
    if benchmark.setup:
        facts.append(f"set-up, before each run of a copy: {_words(benchmark.setup, suite)}")
    if benchmark.environment:
        facts.append(f"environment: {_variables(benchmark.environment)}")
    return facts


def _metric(metric: Metric) -> str:
    parts = [f"{metric.name} in {metric.unit}" if metric.unit else metric.name]
    if metric.better:
        parts.append(f"{metric.better} is better")
    parts.append("sum of the copies" if metric.combine == "sum" else "mean of the copies")
    return ", ".join(parts)


def _details(suite: Suite, benchmark: Benchmark, size: Size, page: TextLayout) -> list[str]:
    """Return what a copy of one size does: commands, inputs, what is checked."""

    def line(label: str, text: str) -> list[str]:
        return wrap_text(f"  {label.ljust(8)} {sanitize(text)}", page.room(0), " " * 11)

    title = f"{benchmark.name}, size {size.name}"
    lines = [crop(title, page.room(0), ascii_only=page.ascii_only)]
    for position, command in enumerate(size.commands):
        lines += line("" if position else "runs", _command_line(suite, benchmark, command))
    if size.environment:
        lines += line("with", _variables(size.environment))
    if size.inputs:
        lines += line("finds", ", ".join(_input(suite, wanted) for wanted in size.inputs))
    if size.disk_bytes:
        lines += line("writes", f"{format_number(size.disk_bytes / 1e6)} MB")
    answer = "; ".join(_answer(want) for want in size.expected)
    return lines + line("answers", answer or "anything: no output is expected")


def _command_line(suite: Suite, benchmark: Benchmark, command: Command) -> str:
    program = command.program or benchmark.command or (benchmark.name,)
    text = _words((*program, *command.args), suite)
    for sign, name in (("<", command.stdin), (">", command.stdout), ("2>", command.stderr)):
        text += f" {sign} {shlex.quote(name)}" if name else ""
    return text


def _input(suite: Suite, wanted: InputFile) -> str:
    if wanted.path is not None:
        origin = "" if wanted.path.name == wanted.name else _near(str(wanted.path), suite)
    elif wanted.generator is not None:
        origin = f"made by {wanted.generator.sources[0].name}"
    else:
        made = wanted.made or ""
        origin = "from the set-up" if made == wanted.name else f"{made} from the set-up"
    remarks = [origin] if origin else []
    remarks += ["its own copy"] if wanted.private else []
    return f"{wanted.name} ({', '.join(remarks)})" if remarks else wanted.name


def _answer(want: Expected) -> str:
    if want.sha256 is not None:
        return f"{want.file} as its SHA-256 says"
    lines = len(want.text.strip("\n").split("\n")) if want.text.strip() else 0
    text = f"{want.file} as expected, {count(lines, 'line')}"
    if want.absolute_tolerance:
        text += f", +-{want.absolute_tolerance:g}"
    if want.relative_tolerance:
        text += f", relative {want.relative_tolerance:g}"
    return text + (f', but not lines with "{want.ignore}"' if want.ignore else "")


def _sizes_table(suite: Suite, page: TextLayout) -> list[str]:
    """Return reference seconds and megabytes per copy of every size, side by side.

    Sizes for which a line has no room follow in a table below.
    """
    names = ["benchmark", *_names(suite, page)]
    lines = page.prose("reference seconds and MB of memory per copy, by size")
    table = [names]
    for name in size_names(suite):
        # what two columns have, less their gaps and units
        room = max(_LEAST_NAME, (page.width - max(map(len, names)) - 9) // 2)
        heading = crop(name, room, ascii_only=page.ascii_only)
        wider = [*table, *_size_columns(suite, name, heading)]
        if len(table) > 1 and max(map(len, _table(wider))) > page.width:
            lines += [*_table(table), ""]
            wider = [names, *wider[-2:]]
        table = wider
    lines += _table(table)
    if any(s.total_memory_bytes is not None for b in suite.benchmarks for s in b.sizes.values()):
        lines += page.prose("* of all copies together")
    return lines


def _names(suite: Suite, page: TextLayout) -> list[str]:
    """Return the names of the benchmarks, cut where a table would be wider than the page."""
    # beside it there are the category and a description of 20 characters at least
    room = max(_LEAST_NAME, min(page.width // 2, page.width - len("category") - 24))
    return [crop(b.name, room, ascii_only=page.ascii_only) for b in suite.benchmarks]


def _table(columns: Sequence[Sequence[str]]) -> list[str]:
    right = [False] + [True] * (len(columns) - 1)
    return align_columns(list(zip(*columns, strict=True)), right)


def _size_columns(suite: Suite, name: str, heading: str) -> tuple[list[str], list[str]]:
    sizes = [benchmark.sizes.get(name) for benchmark in suite.benchmarks]
    seconds = [size.reference_s if size else None for size in sizes]
    places = min(2, needed_decimals(seconds))
    return (
        [f"{heading} s", *(format_number(value, places) for value in seconds)],
        [f"{heading} MB", *(_megabytes(size) for size in sizes)],
    )


def _megabytes(size: Size | None) -> str:
    if size is None:
        return "-"
    of_all = size.total_memory_bytes
    stated = size.memory_bytes if of_all is None else of_all
    if stated is None:
        return "-"
    return format_number(stated / 1e6, 0 if stated >= 1e7 else 1) + ("" if of_all is None else "*")


def _made_of(suite: Suite, benchmark: Benchmark) -> str:
    if benchmark.sources:
        return " ".join(source.name for source in benchmark.sources)
    return _words(benchmark.command, suite)


def _words(command: Sequence[str], suite: Suite) -> str:
    """Return a command line as a shell would take it, programs near the suite's file by `./`."""
    return _on_one_line(shlex.join([_near(command[0], suite), *command[1:]]))


def _near(path: str, suite: Suite) -> str:
    folder = suite.path.parent
    if path.startswith("/") and Path(path).is_relative_to(folder):
        return f"./{Path(path).relative_to(folder)}"
    return path


def _variables(environment: Sequence[tuple[str, str]]) -> str:
    return _on_one_line(" ".join(f"{name}={shlex.quote(value)}" for name, value in environment))


def _on_one_line(words: str) -> str:
    # as ` | `, which `sanitize` makes of the end of a line, it would be another command
    return words.replace("\n", "\\n")


# -- The list of suites and what a check of one found, as text and as values for JSON --------------

_LEAST_DESCRIPTION = 20  # characters of a line


@dataclass(frozen=True, slots=True)
class ListedSuite:
    """A line of the list of suites: one that reads, or why it does not."""

    name: str
    path: Path
    suite: Suite | None
    trouble: str | None
    folder: Path | None = None  # None: it comes with rater
    instead: Path | None = None  # the file that the name stands for, when it is another one


def suites_text(suites: Sequence[ListedSuite], page: TextLayout) -> str:
    """Return the table of all suites by folder, descriptions broken between words.

    On a page too narrow for that they are cut.
    """
    meant = [listed for listed in suites if listed.instead is None]
    table = align_columns(
        [("suite", "benchmarks", "sizes", "description"), *map(_row, meant)],
        (False, True, False, False),
    )
    margin = table[0].index("description")
    lines = [table[0]]
    place = None
    for listed, line in zip(meant, table[1:], strict=True):
        if listed.folder is not None and listed.folder != place:
            place = listed.folder
            lines += ["", f"in {place}"]
        fits = page.width - margin >= _LEAST_DESCRIPTION
        lines += page.hang_indent(line[:margin], margin, [line[margin:]]) if fits else [line]
    lines = [crop(line, page.width, ascii_only=page.ascii_only) for line in lines]
    for hidden in suites:
        if hidden.instead is not None:
            built_in = _is_built_in(hidden, suites)
            first = "the suite that comes with rater" if built_in else str(hidden.instead)
            text = f"the name {hidden.name} means {first}, not {hidden.path}"
            lines += ["", *wrap_text(text, max(1, page.width))]
    more = ["more: rater suites show SUITE", "run one: rater run SUITE"]
    lines += ["", *page.prose("    ".join(more)), "begin your own: rater suites new NAME"]
    return page.joined(lines)


_LISTED = JsonFields(
    "name path folder instead suite.description",
    {
        "benchmarks": lambda it: [b.name for b in it.suite.benchmarks] if it.suite else [],
        "sizes": lambda it: size_names(it.suite) if it.suite else [],
    },
    "error=trouble",
)


def suites_json(suites: Sequence[ListedSuite]) -> list[dict[str, object]]:
    """Return the list of suites for JSON."""
    return [to_json(_LISTED.of(listed)) for listed in suites]


def trial_text(
    name: str,
    page: TextLayout,
    *,
    error: str | None,
    left_out: str | None,
    is_built: bool,
    executable: str | None,
    size: str | None,
    elapsed_s: float | None,
    max_rss_bytes: int | None,
    checked: bool,
    run_dir: str | None,
    remarks: Sequence[str],
) -> str:
    """Return what a trial of one benchmark showed: a line, and one more for each remark.

    `name` is as wide as its column; `left_out` says why a run goes on without the benchmark.
    """
    more: list[str] = []
    if error is not None:
        first, *more = error.splitlines()
        facts = f"FAILED  {first}"
        if run_dir is not None:
            more.append(f"its files are in {run_dir}")
    elif left_out is not None:
        facts = f"left out of a run: {left_out}"
    elif elapsed_s is None:
        facts = f"{'built' if is_built else 'found'}   {executable}"
    else:
        rss = "" if max_rss_bytes is None else f"{max_rss_bytes / 1e6:8.0f} MB"
        answer = "answer right" if checked else "answer not checked"
        facts = f"ok      {size} {elapsed_s:8.2f} s{rss}  {answer}"
    width = max(1, page.width)
    lines = [*wrap_text(f"{name}  {facts}", width), *(f"    {line}" for line in more)]
    for remark in remarks:
        lines += wrap_text(f"    note: {remark}", width, " " * 10)
    return page.joined(lines)


def suite_warnings_text(suite_warnings: Sequence[str], page: TextLayout) -> str:
    """Return what is allowed but probably not meant, a paragraph each."""
    return page.joined(
        [line for warning in suite_warnings for line in page.prose(f"warning: {warning}")]
    )


def _row(listed: ListedSuite) -> tuple[str, str, str, str]:
    if listed.suite is None:
        return listed.name, "-", "-", f"broken: see rater suites check {listed.name}"
    sizes = ",".join(size_names(listed.suite))
    benchmarks = str(len(listed.suite.benchmarks))
    return listed.name, benchmarks, sizes, sanitize(listed.suite.description)


def _is_built_in(hidden: ListedSuite, suites: Sequence[ListedSuite]) -> bool:
    return any(other.path == hidden.instead and other.folder is None for other in suites)
