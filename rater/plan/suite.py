"""TOML text to `Suite` and `Benchmark`; errors name file, line or key, and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from rater.errors import InputError
from rater.plan.textfile import file_problem, is_file, read_text
from rater.plan.tomltable import NAME, NAME_SAID, Document, Table, did_you_mean
from rater.resources import folder

FORMAT = 1  # of the suite file
DEFAULT_FLAGS = {"base": ("-O2",), "peak": ("-O3", "-march=native")}
_MB = 1e6  # bytes
_MOST = 1e12  # megabytes, so that bytes fit into 64 bits, and seconds
_RESERVED = ("stdout", "stderr")  # rater's own files in a run directory


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


def suite_names() -> list[str]:
    """Return the names of the built-in suites, sorted."""
    return sorted(path.stem for path in folder("suites").glob("*.toml"))


def load_suite(name_or_path: str) -> Suite:
    """Read a built-in suite by name, or a file; a name wins over a file called like it.

    Raises `InputError` for an unknown name or an unreadable file, and
    `MistakesError` with every mistake in it.
    """
    names = suite_names()
    if name_or_path in names:
        path = folder("suites") / f"{name_or_path}.toml"
    elif name_or_path.endswith(".toml") or "/" in name_or_path or is_file(name_or_path):
        path = Path(name_or_path).absolute()
    else:
        raise InputError(
            f"unknown suite {name_or_path!r}; {did_you_mean(name_or_path, names)} "
            "(a suite of your own is given by its path: ./NAME.toml)"
        )
    problem = file_problem(path, name_or_path)
    if problem:
        raise InputError(f"suite: {problem} (suites that come with rater: {', '.join(names)})")
    return parse_suite(_read(path), path, file_problem)


def split_selection(selection: str) -> tuple[str, tuple[str, ...]]:
    """Split `SUITE/BENCHMARK,BENCHMARK` into suite (name or path) and benchmark names.

    `./my.toml` and `./my.toml/triad` are paths; so is any existing file, and
    whatever cannot be the name of a suite and those of benchmarks.
    """
    suite, found, names = selection.partition(".toml/")
    if found:
        return f"{suite}.toml", _split_names(names)
    if selection.endswith(".toml") or is_file(selection):
        return selection, ()
    if is_file(Path(selection).parent):
        suite, _, names = selection.rpartition("/")
        return suite, _split_names(names)
    suite, slash, names = selection.partition("/")
    if slash and suite not in suite_names() and ("/" in names or not _could_be_suite(suite)):
        return selection, ()
    return suite, _split_names(names)


def _could_be_suite(word: str) -> bool:
    return NAME.fullmatch(word) is not None and not Path(word).is_dir()


def _split_names(names: str) -> tuple[str, ...]:
    return tuple(name for name in names.split(",") if name)


def select(suite: Suite, selection: str) -> Suite:
    """Return the suite with only the benchmarks a `SUITE/BENCHMARK,...` argument names.

    They keep the suite's order, which is the ring of rotated order. Raises
    `InputError` for names the suite does not have.
    """
    wanted = split_selection(selection)[1]
    if not wanted:
        return suite
    known = [benchmark.name for benchmark in suite.benchmarks]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise InputError(
            "\n".join(
                f"suite {suite.name} has no benchmark {name!r}; {did_you_mean(name, known)}"
                for name in unknown
            )
        )
    return replace(suite, benchmarks=tuple(b for b in suite.benchmarks if b.name in wanted))


def load_selection(selection: str) -> Suite:
    """Read the suite a `SUITE/BENCHMARK,...` argument names, with only those benchmarks."""
    return select(load_suite(split_selection(selection)[0]), selection)


def parse_suite(
    text: str, path: Path, problem_with: Callable[[Path], str | None] = lambda _path: None
) -> Suite:
    """Turn the text of a suite file into a `Suite`.

    `path` names the file in messages, and relative paths start at its folder;
    `problem_with` says what is wrong with a source or input file (`file_problem`
    looks at the disk, the default believes). Raises `MistakesError` with all
    mistakes together.
    """
    document = Document(text, path)
    root = document.root()
    head = root.table("suite", required=True)
    number = head.number("format")
    if "format" not in head:
        head.mistake(f"missing; expected format = {FORMAT}", "format")
    elif number is not None and number != FORMAT:
        head.mistake(f"this rater reads format {FORMAT}, got {number:g}: update rater", "format")
        document.raise_mistakes()  # what follows may mean anything
    reader = _Reader(path.parent, problem_with, DEFAULT_FLAGS | _flags(root.table("flags")))
    benchmarks = root.table("benchmarks", required=True)
    suite = Suite(
        name=head.string("name", path.stem),
        description=head.string("description"),
        path=path,
        reference_machine=head.string("reference_machine") or None,
        benchmarks=tuple(reader.benchmark(n, t) for n, t in benchmarks.named_tables()),
    )
    if not NAME.fullmatch(suite.name):
        head.mistake(NAME_SAID, "name")
    if "benchmarks" in root and not benchmarks.names():
        benchmarks.mistake("a suite needs at least one [benchmarks.NAME]")
    head.finish()
    root.finish()
    document.raise_mistakes()
    return suite


@dataclass(frozen=True, slots=True)
class _Reader:
    """What every benchmark of one file is read with."""

    directory: Path
    problem_with: Callable[[Path], str | None]
    flags: dict[str, tuple[str, ...]]

    def benchmark(self, name: str, table: Table) -> Benchmark:
        has_sources, has_command = "sources" in table, "command" in table
        if has_sources == has_command:
            table.mistake("expected either sources = [...] or command = [...]")
        sources = self.files(table, "sources") if has_sources else ()
        command = table.strings("command", required=has_command)
        libraries, flags = table.strings("libraries"), _flags(table.table("flags"))
        if has_command and not has_sources:
            for key in ("libraries", "flags"):
                if key in table:
                    table.mistake("a command is not compiled: expected sources beside this", key)
        if command and "/" in command[0]:
            command = (str(self.directory / command[0]), *command[1:])
        sizes = table.table("sizes")
        benchmark = Benchmark(
            name=name,
            category=table.choice("category", ("int", "fp")),
            description=table.string("description"),
            sources=sources,
            libraries=libraries,
            flags=self.flags | flags if has_sources else {},
            command=command,
            sizes={n: self.size(n, t) for n, t in sizes.named_tables()},
        )
        if not sizes.names():
            where = f"[{'.'.join(table.key)}.sizes.test]"
            table.mistake(f"missing; expected at least one size, such as {where}", "sizes")
        table.finish()
        return benchmark

    def size(self, name: str, table: Table) -> Size:
        memory_mb = table.number("memory_mb", most=_MOST)
        size = Size(
            name=name,
            commands=(Command((), table.strings("args"), None, None, None),),
            environment=(),
            reference_s=table.number("reference_s", positive=True, most=_MOST),
            memory_bytes=None if memory_mb is None else round(memory_mb * _MB),
            total_memory_bytes=None,
            disk_bytes=round((table.number("disk_mb", most=_MOST) or 0) * _MB),
            inputs=tuple(self.input(t) for t in table.tables("inputs")),
            expected=_expected(table),
        )
        names = [i.name for i in size.inputs]
        for position, input_name in enumerate(names):
            if input_name in names[:position]:
                table.mistake(f"two inputs are called {input_name!r}", f"inputs[{position}]")
        table.finish()
        return size

    def input(self, table: Table) -> InputFile:
        name = _local_name(table, "name", table.string("name", required=True))
        if name in _RESERVED:
            table.mistake(f"{name!r} is where rater keeps the copy's own output", "name")
        has_path, has_generator = "path" in table, "generator" in table
        path = generator = None
        if has_path == has_generator:
            table.mistake('expected either path = "..." or generator = { sources, args }')
        elif has_path:
            path = self.file(table, "path", table.string("path"))
        else:
            made = table.table("generator")
            generator = Generator(self.files(made, "sources"), made.strings("args", required=True))
            if generator.args and not any("{output}" in arg for arg in generator.args):
                made.mistake('no argument has "{output}", the file to write', "args")
            made.finish()
        table.finish()
        return InputFile(name, path, generator)

    def files(self, table: Table, name: str) -> tuple[Path, ...]:
        words = table.strings(name, required=True)
        return tuple(self.file(table, f"{name}[{i}]", word) for i, word in enumerate(words))

    def file(self, table: Table, key: str, word: str) -> Path:
        path = self.directory / word
        problem = self.problem_with(path)
        if problem:
            table.mistake(problem, key)
        return path


def _flags(table: Table) -> dict[str, tuple[str, ...]]:
    return {tune: table.strings(tune) for tune in table.names()}


def _expected(table: Table) -> tuple[Expected, ...]:
    """Read `expected`: a string for standard output, a table, or a list of tables."""
    absolute = table.number("absolute_tolerance")
    relative = table.number("relative_tolerance")
    if "expected" not in table:
        for key in ("absolute_tolerance", "relative_tolerance"):
            if key in table:
                table.mistake("a tolerance needs something expected beside it", key)
        return ()
    if table.is_string("expected"):
        text = table.string("expected")
        return (Expected("stdout", text, absolute or 0.0, relative or 0.0),)
    found: list[Expected] = []
    for part in table.tables("expected"):
        own_absolute, own_relative = part.number("absolute"), part.number("relative")
        file = _local_name(part, "file", part.string("file", "stdout"))
        if any(file == other.file for other in found):
            part.mistake(f"{file!r} is expected twice", "file")
        found.append(
            Expected(
                file=file,
                text=part.string("text", required=True),
                absolute_tolerance=(absolute or 0.0) if own_absolute is None else own_absolute,
                relative_tolerance=(relative or 0.0) if own_relative is None else own_relative,
            )
        )
        part.finish()
    return tuple(found)


def _local_name(table: Table, key: str, name: str) -> str:
    """Check that a file's name stays inside the run directory."""
    path = PurePosixPath(name)
    if name and (path.is_absolute() or ".." in path.parts or path == PurePosixPath()):
        table.mistake(f"expected a path inside the run directory, got {name!r}", key)
    return str(path) if name else name


def _read(path: Path) -> str:
    try:
        return read_text(path)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: not UTF-8 text, expected a suite in TOML") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
