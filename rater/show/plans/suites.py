"""Suites: the list of them, one of them, a check of one; documents and tables."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rater.plan.metric import Metric
from rater.plan.suite import Benchmark, InputFile, Size, Suite
from rater.show.screen.document import NUMBER, TEXT, Field, Line, Part, Row, ViewTable, facts
from rater.show.screen.format import format_number
from rater.text.values import JsonFields, to_json

if TYPE_CHECKING:
    from rater.show.documents.plan import ListedSuiteJson
    from rater.show.documents.suite import (
        InputFileJson,
        SizeJson,
        SuiteBenchmarkJson,
        SuiteDocument,
    )

_DETAILED = 3  # of so many benchmarks the commands are shown; of more, on demand
_LEFT_OUT = {"missing": "not installed", "unfit": "too big for the machine"}


def suite_document(suite: Suite) -> SuiteDocument:
    """Return one suite for JSON."""
    return {
        "name": suite.name,
        "description": suite.description,
        "path": str(suite.path),
        "reference_machine": suite.reference_machine,
        "setup": list(suite.setup),
        "environment": dict(suite.environment),
        "leave_out": list(suite.leave_out),
        "benchmarks": [_benchmark(benchmark) for benchmark in suite.benchmarks],
    }


def _benchmark(benchmark: Benchmark) -> SuiteBenchmarkJson:
    return {
        "name": benchmark.name,
        "category": benchmark.category,
        "description": benchmark.description,
        "sources": [str(source) for source in benchmark.sources],
        "libraries": list(benchmark.libraries),
        "flags": {tune: list(flags) for tune, flags in benchmark.flags.items()},
        "command": list(benchmark.command),
        "threads": benchmark.threads,
        "setup": list(benchmark.setup),
        "environment": dict(benchmark.environment),
        "metrics": to_json(benchmark.metrics, _METRIC),
        "sizes": [_size(benchmark, size) for size in benchmark.sizes.values()],
    }


# Which of several programs reports it is of `--metric` alone.
_METRIC = {Metric: JsonFields("name pattern unit better combine file scale is_sum")}


def _size(benchmark: Benchmark, size: Size) -> SizeJson:
    return {
        "name": size.name,
        "args": list(size.commands[0].args),
        "commands": [
            {
                # null: the program that was built
                "program": list(command.program or benchmark.command) or None,
                "args": list(command.args),
                "stdin": command.stdin,
                "stdout": command.stdout,
                "stderr": command.stderr,
            }
            for command in size.commands
        ],
        "environment": dict(size.environment),
        "reference_s": size.reference_s,
        "memory_bytes": size.memory_bytes,
        "total_memory_bytes": size.total_memory_bytes,
        "disk_bytes": size.disk_bytes,
        "inputs": [input_file.name for input_file in size.inputs],
        "input_files": [_input_file(input_file) for input_file in size.inputs],
        "checked": [expected.file for expected in size.expected],
        "expected": [
            {
                "file": expected.file,
                "absolute_tolerance": expected.absolute_tolerance,
                "relative_tolerance": expected.relative_tolerance,
                "sha256": expected.sha256,
                "ignore": expected.ignore,
            }
            for expected in size.expected
        ],
    }


def _input_file(input_file: InputFile) -> InputFileJson:
    return {
        "name": input_file.name,
        "path": None if input_file.path is None else str(input_file.path),
        "generator": to_json(input_file.generator),
        "made": input_file.made,
        "copy": input_file.private,
    }


def suite_parts(suite: SuiteDocument) -> Iterator[Part]:
    """Yield what the benchmarks are, then reference time and memory by size.

    Of few benchmarks the commands, inputs and answers of every size follow.
    """
    folder, benchmarks = Path(suite["path"]).parent, suite["benchmarks"]
    yield f"{suite['name']}: {suite['description']}" if suite["description"] else suite["name"]
    yield Line(f"file: {suite['path']}", whole=True)
    stated = " or ".join(_LEFT_OUT[word] for word in suite["leave_out"])
    for label, text in (
        ("reference times", suite["reference_machine"]),
        ("set-up, once a run", suite["setup"] and _command_words(suite["setup"], folder)),
        ("environment", _variables(suite["environment"])),
        ("left out of a run", stated and f"benchmarks that are {stated}"),
    ):
        yield f"{label}: {text}" if text else None

    name = Field(heading="benchmark", value="name", form=TEXT, flexible=True)
    columns = (
        name,
        Field(heading="category", value="category", form=TEXT),
        Field(heading="description", value=lambda it: [*_about(it, folder)], wrap=True),
    )
    yield ViewTable(title="", rows=benchmarks, fields=columns)
    sizes = dict.fromkeys(size["name"] for benchmark in benchmarks for size in benchmark["sizes"])
    pairs = [column for size in sizes for column in _size_fields(size)]
    title = "Reference seconds and MB of memory per copy, by size"
    yield ViewTable(title=title, rows=benchmarks, fields=(name, *pairs), repeated=1)
    if any(
        size["total_memory_bytes"] is not None
        for benchmark in benchmarks
        for size in benchmark["sizes"]
    ):
        yield "* of all copies together"
    if len(benchmarks) > _DETAILED:
        yield "commands, inputs and answers: `rater suites show SUITE/BENCHMARK`"
        return
    for it in benchmarks:
        for size in it["sizes"]:
            yield facts(_details(it, size, folder), f"{it['name']}, size {size['name']}")


def _about(benchmark: Row, folder: Path) -> Iterator[str]:
    """Yield what a benchmark is, and only what is out of the ordinary."""
    sources = [Path(source).name for source in benchmark["sources"]]
    yield (
        benchmark["description"]
        or " ".join(sources)
        or _command_words(benchmark["command"], folder)
    )
    if benchmark["threads"] > 1:
        yield f"threads: {benchmark['threads']}, each copy gets as many CPUs"
    for metric in benchmark["metrics"]:
        parts = [
            f"{metric['name']} in {metric['unit']}" if metric["unit"] else metric["name"],
            *([f"{metric['better']} is better"] if metric["better"] else []),
            f"{'sum' if metric['combine'] == 'sum' else 'mean'} of the copies",
        ]
        yield f"reports {', '.join(parts)}"
    if benchmark["setup"]:
        yield f"set-up, before each run of a copy: {_command_words(benchmark['setup'], folder)}"
    if benchmark["environment"]:
        yield f"environment: {_variables(benchmark['environment'])}"


def _size_fields(size: str) -> Iterator[Field]:
    def size_of(benchmark: Row) -> Row:
        return next((entry for entry in benchmark["sizes"] if entry["name"] == size), {})

    def megabytes(benchmark: Row) -> str | None:
        per_copy, of_all = (
            size_of(benchmark).get(f"{entry}memory_bytes") for entry in ("", "total_")
        )
        stated = per_copy if of_all is None else of_all
        if stated is None:
            return None
        number = format_number(stated / 1e6, 0 if stated >= 1e7 else 1)
        return number + ("" if of_all is None else "*")

    yield Field(
        heading=f"{size} s",
        value=lambda entry: size_of(entry).get("reference_s"),
        form=NUMBER,
        flexible=True,
    )
    yield Field(heading=f"{size} MB", value=megabytes, flexible=True)


def _details(benchmark: Row, size: Row, folder: Path) -> Iterator[tuple[str, object]]:
    """Yield what a copy of one size does: commands, inputs, what is checked."""
    yield "runs", [_command_line(benchmark, it, folder) for it in size["commands"]]
    yield "with", _variables(size["environment"])
    yield "finds", ", ".join(_input(it, folder) for it in size["input_files"])
    written = size["disk_bytes"]
    yield "writes", f"{format_number(written / 1e6)} MB" if written else ""
    answers = "; ".join(_answer(it) for it in size["expected"])
    yield "answers", answers or "anything: no output is expected"


def _command_line(benchmark: Row, command: Row, folder: Path) -> str:
    text = _command_words([*(command["program"] or [benchmark["name"]]), *command["args"]], folder)
    for sign, stream in (("<", "stdin"), (">", "stdout"), ("2>", "stderr")):
        text += f" {sign} {shlex.quote(command[stream])}" if command[stream] else ""
    return text


def _input(row: Row, folder: Path) -> str:
    if row["path"] is not None:
        origin = "" if Path(row["path"]).name == row["name"] else _near(row["path"], folder)
    elif row["generator"] is not None:
        origin = f"made by {Path(row['generator']['sources'][0]).name}"
    else:
        generator = row["made"] or ""
        origin = "from the set-up" if generator == row["name"] else f"{generator} from the set-up"
    remarks = [*([origin] if origin else []), *(["its own copy"] if row["copy"] else [])]
    return f"{row['name']} ({', '.join(remarks)})" if remarks else row["name"]


def _answer(want: Row) -> str:
    if want["sha256"] is not None:
        return f"{want['file']} with the SHA-256 stated"
    text = f"{want['file']} as expected"
    if want["absolute_tolerance"]:
        text += f", +-{want['absolute_tolerance']:g}"
    if want["relative_tolerance"]:
        text += f", relative {want['relative_tolerance']:g}"
    return text + (f', but not lines with "{want["ignore"]}"' if want["ignore"] else "")


def _command_words(command: Sequence[str], folder: Path) -> str:
    """Return a command line as a shell would take it, programs near the suite's file by `./`."""
    return _on_one_line(shlex.join([_near(command[0], folder), *command[1:]]))


def _near(path: str, folder: Path) -> str:
    if path.startswith("/") and Path(path).is_relative_to(folder):
        return f"./{Path(path).relative_to(folder)}"
    return path


def _variables(environment: Mapping[str, str]) -> str:
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    return _on_one_line(words)


def _on_one_line(words: str) -> str:
    # as ` | `, which `sanitize` makes of the end of a line, it would be another command
    return words.replace("\n", "\\n")


# -- The list of suites, and what a check of one found ---------------------------------------------


def listed_document(
    name: str, path: Path, folder: Path | None, instead: Path | None, suite: Suite | None
) -> ListedSuiteJson:
    """Return a line of the list of suites; without a `folder` the suite comes with rater.

    `instead`: the file that the name stands for, when it is another one; no `suite`: it does not
    read.
    """
    benchmarks = suite.benchmarks if suite else ()
    document: ListedSuiteJson = to_json(
        {
            "name": name,
            "path": path,
            "folder": folder,
            "instead": instead,
            "description": suite and suite.description,
            "benchmarks": [benchmark.name for benchmark in benchmarks],
            "sizes": list(
                dict.fromkeys(size for benchmark in benchmarks for size in benchmark.sizes)
            ),
            "error": None,
        }
    )
    return document


def suites_parts(suites: Sequence[ListedSuiteJson]) -> Iterator[Part]:
    """Yield all suites by folder, and which are hidden by others of their names."""
    columns = (
        Field(heading="suite", value="name", form=TEXT),
        Field(
            heading="benchmarks",
            value=lambda suite_row: None if suite_row["error"] else len(suite_row["benchmarks"]),
        ),
        Field(
            heading="sizes", value=lambda suite_row: ",".join(suite_row["sizes"]) or None, form=TEXT
        ),
        Field(
            heading="description",
            value=lambda suite_row: (
                f"broken: `rater suites check {suite_row['name']}`"
                if suite_row["error"]
                else suite_row["description"]
            ),
            wrap=True,
        ),
    )
    listed = [suite for suite in suites if suite["instead"] is None]
    yield ViewTable(
        title="",
        rows=listed,
        fields=columns,
        group=lambda suite_row: f"in {suite_row['folder']}" if suite_row["folder"] else "",
    )
    for suite_row in suites:
        if suite_row["instead"] is not None:
            ours = any(
                suite["path"] == suite_row["instead"] and not suite["folder"] for suite in suites
            )
            first = "the suite that comes with rater" if ours else suite_row["instead"]
            yield f"the name {suite_row['name']} means {first}, not {suite_row['path']}"
    yield "more: `rater suites show SUITE`    run one: `rater run SUITE`"
    yield "begin your own: `rater suites new NAME`"


def trial_parts(trial: Row, name: str, *, is_built: bool) -> Iterator[Part]:
    """Yield what a trial of one benchmark showed; `name` is as wide as its column."""
    more: list[str] = []
    if trial["error"] is not None:
        first, *more = trial["error"].splitlines()
        said = f"FAILED  {first}"
        more += [f"its files are in {trial['run_dir']}"] if trial["run_dir"] else []
    elif trial["left_out"] is not None:
        said = f"left out of a run: {trial['left_out']}"
    elif trial["elapsed_s"] is None:
        said = f"{'built' if is_built else 'found'}   {trial['executable']}"
    else:
        rss = trial["max_rss_bytes"]
        memory = "" if rss is None else f"{rss / 1e6:8.0f} MB"
        answer = "answer right" if trial["checked"] else "answer not checked"
        said = f"ok      {trial['size']} {trial['elapsed_s']:8.2f} s{memory}  {answer}"
    yield f"{name}  {said}"
    yield from (f"    {line}" for line in more)
    yield from (f"    note: {remark}" for remark in trial["remarks"])
