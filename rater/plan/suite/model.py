"""What a suite is: its benchmarks, their sizes, commands, inputs and expected outputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Expected:
    """What a copy's standard output (or a file it writes) must say.

    Lines are compared token by token; a token that is a number on both sides
    passes when |got - want| <= absolute_tolerance or <= relative_tolerance * |want|
    (as SPEC's specdiff --abstol/--reltol); any other token must be equal.
    """

    file: str  # "stdout" or a path relative to the run directory
    text: str  # "" where `sha256` is what is expected
    absolute_tolerance: float
    relative_tolerance: float
    sha256: str | None = None  # of the whole file, in lower-case hexadecimal
    ignore: str | None = None  # lines of the output that this regex is found in are not compared


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a benchmark reports of itself, read from what a copy wrote."""

    name: str
    pattern: str  # a regex (re.MULTILINE) with one group, the number; the last match counts
    unit: str
    better: str | None  # "higher", "lower" or None: neither
    combine: str  # over copies: "sum" or "mean"
    file: str  # "stdout", "stderr" or a path relative to the run directory
    scale: float  # the value is the number found x scale


@dataclass(frozen=True, slots=True)
class Command:
    """One of the commands that a copy runs in order."""

    program: tuple[str, ...]  # words before `args`; empty: the benchmark's own program
    args: tuple[str, ...]
    stdin: str | None  # a file of the run directory; None: empty
    stdout: str | None  # the same; None: the copy's own standard output
    stderr: str | None


@dataclass(frozen=True, slots=True)
class Generator:
    """A program of the suite that writes an input file, built and run once per cache."""

    sources: tuple[Path, ...]
    args: tuple[str, ...]  # "{output}" stands for the file to write


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that every copy finds in its run directory (hard-linked, copied when links fail)."""

    name: str
    path: Path | None  # a file of the suite, or
    generator: Generator | None  # a file made once, or
    made: str | None = None  # a file that the suite's set-up left in its folder
    private: bool = False  # each copy gets its own, which it may write into


@dataclass(frozen=True, slots=True)
class Size:
    """One workload of a benchmark."""

    name: str
    commands: tuple[Command, ...]  # at least one, run in order
    environment: tuple[tuple[str, str], ...]  # of the size; wins over the benchmark's
    reference_s: float | None
    memory_bytes: int | None  # resident memory per copy at its peak, None when not stated
    total_memory_bytes: int | None  # of all copies together, for programs that divide it
    disk_bytes: int  # written into the run directory by one copy, besides linked inputs
    inputs: tuple[InputFile, ...]
    expected: tuple[Expected, ...]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One program of a suite: built from `sources`, or an existing `command`."""

    name: str
    category: str | None  # "int", "fp" or None
    description: str
    sources: tuple[Path, ...]
    libraries: tuple[str, ...]  # linker arguments after the sources, "-lm"
    flags: dict[str, tuple[str, ...]]  # compiler flags by tune
    command: tuple[str, ...]  # used when there are no sources; a program with "/" is absolute
    sizes: dict[str, Size]
    environment: tuple[tuple[str, str], ...] = ()  # wins over the suite's
    threads: int = 1  # CPUs that one copy uses
    setup: tuple[str, ...] = ()  # before each run of a copy, in its run directory, not timed
    metrics: tuple[Metric, ...] = ()


@dataclass(frozen=True, slots=True)
class Suite:
    """Benchmarks in the order of their declaration, which is the ring of rotated order."""

    name: str
    description: str
    path: Path
    reference_machine: str | None
    benchmarks: tuple[Benchmark, ...]
    environment: tuple[tuple[str, str], ...] = ()
    setup: tuple[str, ...] = ()  # once per run of rater, before the first phase, not timed
    leave_out: tuple[str, ...] = ()  # of "missing", "unfit": what does not stop the others
