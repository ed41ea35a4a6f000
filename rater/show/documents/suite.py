"""Document of `rater suites show --json`."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rater.show.documents.common import Category

type Environment = Annotated[dict[str, str], "Variables that are set, by name."]


class CommandJson(TypedDict):
    """One of the commands that a copy runs in order."""

    program: Annotated[list[str] | None, "Words before `args`; null: the built program."]
    args: Annotated[list[str], "Arguments."]
    stdin: Annotated[str | None, "File that is its input; null: empty."]
    stdout: Annotated[str | None, "File that it writes to; null: the copy's output."]
    stderr: Annotated[str | None, "File that its errors go to; null: the copy's."]


class GeneratorJson(TypedDict):
    """A program of the suite that writes an input file."""

    sources: Annotated[list[str], "Its source files."]
    args: Annotated[list[str], "Its arguments; {output} stands for the file to write."]


class InputFileJson(TypedDict):
    """A file that every copy finds in its run directory."""

    name: Annotated[str, "Name in the run directory."]
    path: Annotated[str | None, "File of the suite; null: it is made."]
    generator: Annotated[GeneratorJson | None, "Program that makes it; null: none."]
    made: Annotated[str | None, "File that the suite's set-up makes; null: none."]
    copy: Annotated[bool, "true: each copy has its own, which it may write into."]


class ExpectedJson(TypedDict):
    """What a copy must have written."""

    file: Annotated[str, "stdout, or a file of the run directory."]
    absolute_tolerance: Annotated[float, "How far numbers may be off."]
    relative_tolerance: Annotated[float, "How far numbers may be off, as a share."]
    sha256: Annotated[str | None, "SHA-256 of the whole file; null: its text is compared."]
    ignore: Annotated[str | None, "Lines with this regular expression are not compared."]


class SizeJson(TypedDict):
    """One workload of a benchmark."""

    name: Annotated[str, "Name of the size."]
    args: Annotated[list[str], "Arguments of its first command."]
    commands: Annotated[list[CommandJson], "Commands in their order."]
    environment: Environment
    reference_s: Annotated[float | None, "Reference time; null: none is stated."]
    memory_bytes: Annotated[int | None, "Most resident memory of a copy; null: not stated."]
    total_memory_bytes: Annotated[int | None, "Memory of all copies together; null: not stated."]
    disk_bytes: Annotated[int, "What a copy writes."]
    inputs: Annotated[list[str], "Names of the input files."]
    input_files: Annotated[list[InputFileJson], "Input files."]
    checked: Annotated[list[str], "Files that are checked."]
    expected: Annotated[list[ExpectedJson], "What these must say."]


class SuiteMetricJson(TypedDict):
    """A number that a benchmark reports of itself."""

    name: Annotated[str, "Name of the number."]
    pattern: Annotated[str, "Regular expression that finds it; the last match counts."]
    unit: Annotated[str, "Its unit."]
    better: Annotated[str | None, "higher or lower; null: not said."]
    combine: Annotated[str, "Over copies: sum or mean."]
    file: Annotated[str, "stdout, stderr or a file of the run directory."]
    scale: Annotated[float, "What the number is multiplied by."]
    is_sum: Annotated[bool, "Whether the sum of all matches counts, not the last one."]


class SuiteBenchmarkJson(TypedDict):
    """One program of a suite."""

    name: Annotated[str, "Name of the benchmark."]
    category: Category
    description: Annotated[str, "What it is, in words."]
    sources: Annotated[list[str], "Source files; empty: a command."]
    libraries: Annotated[list[str], "Arguments of the linker."]
    flags: Annotated[dict[str, list[str]], "Flags of the compiler by tune."]
    command: Annotated[list[str], "Words of the command; empty: it is built."]
    threads: Annotated[int, "CPUs that a copy uses."]
    setup: Annotated[list[str], "Command before each run of a copy; empty: none."]
    environment: Environment
    metrics: Annotated[list[SuiteMetricJson], "Numbers that it reports."]
    sizes: Annotated[list[SizeJson], "Sizes of inputs."]


class SuiteDocument(TypedDict):
    """A suite with its benchmarks."""

    name: Annotated[str, "Name of the suite."]
    description: Annotated[str, "What it is, in words."]
    path: Annotated[str, "Its file."]
    reference_machine: Annotated[str | None, "Machine of the reference times; null: not said."]
    setup: Annotated[list[str], "Command once a run; empty: none."]
    environment: Environment
    leave_out: Annotated[list[str], "Benchmarks left out of a run: missing, unfit."]
    benchmarks: Annotated[list[SuiteBenchmarkJson], "Benchmarks in their order."]
