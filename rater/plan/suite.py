"""A suite as values: benchmarks, sizes, inputs, outputs, read from TOML, every mistake noted."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from msgspec import Struct, field

from rater.plan.metric import Metric, check_groups, compile_pattern, local_path
from rater.system.patterns import compile_later
from rater.text.documents import (
    NAME,
    NAME_EXPECTED,
    REQUIRED,
    Mistake,
    MistakesError,
    TableReader,
    did_you_mean,
    toml_document,
)
from rater.text.kinds import FILLED_STRING, FLAG, STRING, choice, number, whole


class Expected(Struct, frozen=True, kw_only=True):
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


class Command(Struct, frozen=True, kw_only=True):
    """One of the commands that a copy runs in order."""

    program: tuple[str, ...] = ()  # words before `args`; empty for the benchmark's own program
    args: tuple[str, ...] = ()
    stdin: str | None = None  # a file of the run directory; None for an empty input
    stdout: str | None = None  # a file of the run directory; None for the copy's own output
    stderr: str | None = None


class Generator(Struct, frozen=True):
    """A program of the suite that writes an input file, built and run once per cache."""

    sources: tuple[Path, ...]
    args: tuple[str, ...]  # "{output}" stands for the file to write


class InputFile(Struct, frozen=True, kw_only=True):
    """A file that every copy finds in its run directory (hard-linked, copied when links fail)."""

    name: str
    path: Path | None  # a file of the suite, or
    generator: Generator | None  # a file made once, or
    made: str | None = None  # a file that the suite's set-up left in its folder
    private: bool = False  # each copy gets its own, which it may write into


class Size(Struct, frozen=True, kw_only=True):
    """One workload of a benchmark."""

    name: str
    commands: tuple[Command, ...]  # at least one, run in order
    environment: tuple[tuple[str, str], ...] = ()  # of the size; wins over the benchmark's
    reference_s: float | None = None
    memory_bytes: int | None = None  # resident memory per copy at its peak, None if not stated
    total_memory_bytes: int | None = None  # of all copies together, for programs that divide it
    disk_bytes: int = 0  # written into the run directory by one copy, besides linked inputs
    inputs: tuple[InputFile, ...] = ()
    expected: tuple[Expected, ...] = ()


class Benchmark(Struct, frozen=True, kw_only=True):
    """One program of a suite: built from `sources`, or an existing `command`."""

    name: str
    category: str | None = None  # "int", "fp" or None
    description: str = ""
    sources: tuple[Path, ...] = ()
    libraries: tuple[str, ...] = ()  # linker arguments after the sources, "-lm"
    flags: dict[str, tuple[str, ...]] = field(default_factory=dict)  # compiler flags by tune
    command: tuple[str, ...] = ()  # used when there are no sources; a program with "/" is absolute
    sizes: dict[str, Size] = field(default_factory=dict)
    environment: tuple[tuple[str, str], ...] = ()  # wins over the suite's
    threads: int = 1  # CPUs that one copy uses
    setup: tuple[str, ...] = ()  # before each run of a copy, in its run directory, not timed
    metrics: tuple[Metric, ...] = ()
    accept_exit: tuple[int, ...] = ()  # exit codes that are no failure, beside 0


class Suite(Struct, frozen=True, kw_only=True):
    """Benchmarks in the order of their declaration, which is the ring of rotated order."""

    name: str
    description: str
    path: Path
    reference_machine: str | None
    benchmarks: tuple[Benchmark, ...]
    environment: tuple[tuple[str, str], ...] = ()
    setup: tuple[str, ...] = ()  # once per run of rater, before the first phase, not timed
    leave_out: tuple[str, ...] = ()  # of "missing", "unfit": what does not stop the others


# -- TOML text to `Suite`; every mistake names file, line and key, and what was expected -----------

FORMAT = 1  # of the suite file
DEFAULT_FLAGS = {"base": ("-O2",), "peak": ("-O3", "-march=native")}
LEAVE_OUT = ("missing", "unfit")
_MB = 1e6  # bytes
_MOST = 1e12  # megabytes, so that bytes fit into 64 bits, and seconds
_LONGEST_NAME = 255  # bytes of one part of a path, on every usual file system
MOST_THREADS = 65536  # more CPUs than any Linux has


def read_suite(
    text: str,
    path: Path,
    problem_with: Callable[[Path], str | None],
    text_of: Callable[[Path], str],
) -> tuple[Suite, tuple[Mistake, ...]]:
    """Return what could be read of a suite file, and the mistakes in it.

    Raises `MistakesError` where nothing can be: it is not TOML, or of another format.
    """
    document = toml_document(text, path)
    root = document.root()
    head = root.table("suite", required=True)
    known = head.get("format", number(), None)
    if "format" not in head:
        head.unexpected(f"format = {FORMAT}", "format")
    elif known is not None and known != FORMAT:
        head.mistake(f"this rater reads format {FORMAT}, got {known:g}: update rater", "format")
        document.raise_mistakes()  # what follows may mean anything
    files = SuiteFiles(path.parent, problem_with, text_of)
    setup = files.program(head, "setup")
    flags = DEFAULT_FLAGS | _flags(root.table("flags"))
    reader = _Reader(files, flags, has_setup="setup" in head)
    benchmarks = root.table("benchmarks", required=True)
    suite = Suite(
        name=head.get("name", STRING, path.stem),
        description=head.get("description", STRING, ""),
        path=path,
        reference_machine=head.get("reference_machine", STRING, "") or None,
        benchmarks=tuple(reader.benchmark(name, part) for name, part in benchmarks.named_tables()),
        environment=environment(head.table("environment")),
        setup=setup,
        leave_out=_leave_out(head),
    )
    if not NAME.fullmatch(suite.name):
        head.mistake(NAME_EXPECTED, "name")
    if "benchmarks" in root and not benchmarks.names():
        benchmarks.mistake("a suite needs at least one [benchmarks.NAME]")
    head.finish()
    root.finish()
    return suite, MistakesError(document.mistakes).mistakes  # in the order of their lines


class _Reader(Struct, frozen=True):
    """What every benchmark of one file is read with."""

    files: SuiteFiles
    flags: dict[str, tuple[str, ...]]
    has_setup: bool  # the suite has, so that there may be files it made

    def benchmark(self, name: str, table: TableReader) -> Benchmark:
        has_sources, has_command = "sources" in table, "command" in table
        if has_sources == has_command:
            table.mistake("expected either sources = [...] or command = [...]")
        sources = self.files.paths(table, "sources") if has_sources else ()
        libraries, flags = table.strings("libraries"), _flags(table.table("flags"))
        if has_command and not has_sources:
            text = "a command is not compiled: expected sources beside this"
            _none_of(table, text, "libraries", "flags")
        sizes = table.table("sizes")
        benchmark = Benchmark(
            name=name,
            category=table.get("category", choice(("int", "fp")), None),
            description=table.get("description", STRING, ""),
            sources=sources,
            libraries=libraries,
            flags=self.flags | flags if has_sources else {},
            command=self.files.program(table, "command"),
            sizes={
                size_name: self._size(
                    size_name, part, is_built=has_sources, has_setup="setup" in table
                )
                for size_name, part in sizes.named_tables()
            },
            environment=environment(table.table("environment")),
            threads=table.get("threads", whole(1, MOST_THREADS), 1),
            setup=self.files.program(table, "setup"),
            metrics=metrics(table.table("metrics")),
            accept_exit=table.items("accept_exit", whole(1, 255), "a list of exit codes"),
        )
        if not sizes.names():
            where = f"[{'.'.join(table.key)}.sizes.test]"
            table.mistake(f"missing; expected at least one size, such as {where}", "sizes")
        table.finish()
        return benchmark

    def _size(self, name: str, table: TableReader, *, is_built: bool, has_setup: bool) -> Size:
        if "memory_mb" in table and "memory_total_mb" in table:
            text = "expected either memory_mb, of each copy, or memory_total_mb, of all"
            table.mistake(text, "memory_total_mb")
        inputs = tuple(self._input(part) for part in table.tables("inputs", single=True))
        _check_input_names(table, inputs)
        size = Size(
            name=name,
            commands=self._commands(table, inputs, is_built=is_built, has_setup=has_setup),
            environment=environment(table.table("environment")),
            reference_s=table.get("reference_s", number(_MOST, positive=True), None),
            memory_bytes=_megabytes(table, "memory_mb"),
            total_memory_bytes=_megabytes(table, "memory_total_mb"),
            disk_bytes=_megabytes(table, "disk_mb") or 0,
            inputs=inputs,
            expected=expected(table, self.files),
        )
        table.finish()
        return size

    def _commands(
        self, table: TableReader, inputs: tuple[InputFile, ...], *, is_built: bool, has_setup: bool
    ) -> tuple[Command, ...]:
        if "commands" not in table:
            if is_built and "command" in table:
                text = "the program is built from sources; another one may stand in commands"
                table.mistake(text, "command")
            _none_of(table, "expected inside one of commands = [{ ... }]", "stdout", "stderr")
            places = [(table, self._command(table, redirects=False))]
        else:
            text = "expected inside one of the commands, not beside them"
            _none_of(table, text, "command", "args", "stdin")
            parts = table.tables("commands", single=True)
            if table.is_a(list, "commands") and not parts:
                table.mistake("expected at least one command, got an empty list", "commands")
            places = [(part, self._command(part, redirects=True)) for part in parts]
            for part in parts:
                part.finish()
        _check_streams(places, inputs, has_setup=has_setup)
        return tuple(command for _, command in places)

    def _command(self, table: TableReader, *, redirects: bool) -> Command:
        return Command(
            program=self.files.program(table, "command"),
            args=table.strings("args"),
            stdin=_file_name(table, "stdin") or None,
            stdout=(_file_name(table, "stdout") or None) if redirects else None,
            stderr=(_file_name(table, "stderr") or None) if redirects else None,
        )

    def _input(self, table: TableReader) -> InputFile:
        name = _file_name(table, "name", required=True)
        _one_of(
            table,
            'path = "...", generator = { sources, args } and made = "..."',
            ("path", "generator", "made"),
        )
        path = generator = None
        if "path" in table:
            word = table.get("path", FILLED_STRING)
            path = self.files.checked_path(table, "path", word) if word else None
        if "generator" in table:
            generator = self._generator(table.table("generator"))
        made_name = local_name(table, "made") or None
        if "made" in table and not self.has_setup:
            text = "a file that the set-up of the suite makes: expected setup = [...] in [suite]"
            table.mistake(text, "made")
        private = table.get("copy", FLAG, default=False)
        table.finish()
        return InputFile(name=name, path=path, generator=generator, made=made_name, private=private)

    def _generator(self, table: TableReader) -> Generator:
        generator = Generator(
            self.files.paths(table, "sources"), table.strings("args", at_least_one=True)
        )
        if generator.args and not any("{output}" in arg for arg in generator.args):
            table.mistake('no argument has "{output}", the file to write', "args")
        table.finish()
        return generator


def _one_of(table: TableReader, expected: str, keys: tuple[str, ...]) -> None:
    given = [key for key in keys if key in table]
    if len(given) != 1:
        got = f", got {' and '.join(given)}" if given else ""
        table.mistake(f"expected one of {expected}{got}")


def _none_of(table: TableReader, text: str, *keys: str) -> None:
    for key in keys:
        if key in table:
            table.mistake(text, key)


def _file_name(table: TableReader, key: str, *, required: bool = False) -> str:
    """Read the name of a file that is not one of rater's own."""
    name = local_name(table, key, required=required)
    parts = PurePosixPath(name).parts
    if parts and parts[0] in RESERVED:
        table.mistake(f"{name!r} is where rater keeps the copy's own output", key)
    for part in parts:
        length = len(part.encode())
        if length > _LONGEST_NAME:
            text = f"expected at most {_LONGEST_NAME} bytes between slashes, got {length}"
            table.mistake(f"{text}: {part[:20]}...", key)
    return name


def _check_input_names(table: TableReader, inputs: tuple[InputFile, ...]) -> None:
    names = [wanted.name for wanted in inputs]
    for position, name in enumerate(names):
        if not name:
            continue  # a mistake already
        key = f"inputs[{position}]"
        if name in names[:position]:
            table.mistake(f"two inputs are called {name!r}", key)
        folders = {str(folder) for folder in PurePosixPath(name).parents}
        for other in set(names) & folders:
            table.mistake(f"{other!r} is an input, it cannot be the folder of {name!r}", key)


def _check_streams(
    places: list[tuple[TableReader, Command]], inputs: tuple[InputFile, ...], *, has_setup: bool
) -> None:
    input_names = [wanted.name for wanted in inputs]
    shared = {wanted.name for wanted in inputs if not wanted.private}
    written: list[str] = []
    for position, (table, command) in enumerate(places):
        # Earlier commands may write any file, so only the input of the first can be judged.
        if position == 0 and command.stdin and command.stdin not in input_names and not has_setup:
            text = (
                f"{command.stdin!r} is none of the inputs, and no setup of the benchmark makes it"
            )
            hint = f"; {did_you_mean(command.stdin, input_names)}" if input_names else ""
            table.mistake(text + hint, "stdin")
        for key, name in (("stdout", command.stdout), ("stderr", command.stderr)):
            if name is None:
                continue
            if name in shared:
                text = f"{name!r} is an input that all copies share: expected copy = true there"
                table.mistake(f"{text}, or another name", key)
            elif name == command.stdin:
                table.mistake(f"{name!r} is read and written at once: expected two files", key)
            elif name in written:
                table.mistake(f"{name!r} is written twice, the second replaces the first", key)
            else:
                _check_folders(table, key, name, input_names, written)
            written.append(name)


def _check_folders(
    table: TableReader, key: str, name: str, input_names: list[str], written: list[str]
) -> None:
    for others, description in ((input_names, "an input"), (written, "written too")):
        for other in dict.fromkeys(others):
            above, below = PurePosixPath(other), PurePosixPath(name)
            if above in below.parents and other:
                table.mistake(
                    f"{other!r} is {description}, it cannot be the folder of {name!r}", key
                )
            elif below in above.parents:
                table.mistake(f"{name!r} is the folder of {other!r}, which is {description}", key)


def _megabytes(table: TableReader, key: str) -> int | None:
    megabytes = table.get(key, number(_MOST), None)
    return None if megabytes is None else round(megabytes * _MB)


def _leave_out(table: TableReader) -> tuple[str, ...]:
    words = table.strings("leave_out")
    for position, word in enumerate(words):
        if word not in LEAVE_OUT:
            text = f"unknown word {word!r}; {did_you_mean(word, LEAVE_OUT)}"
            table.mistake(text, f"leave_out[{position}]")
    return words


def _flags(table: TableReader) -> dict[str, tuple[str, ...]]:
    return {tune: table.strings(tune) for tune in table.names()}


# -- The small parts of a suite file, each read from its table with every mistake noted ------------

RESERVED = ("stdout", "stderr", "setup.out")  # rater's own files in a run directory
_VARIABLE = compile_later(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE_SAID = "expected the name of a variable: letters, digits and '_', no digit first"
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


class SuiteFiles(Struct, frozen=True):
    """The other files of a suite: where they are and how they are looked at."""

    directory: Path  # of the suite file
    problem_with: Callable[[Path], str | None]
    text_of: Callable[[Path], str]  # raises OSError or UnicodeDecodeError

    def paths(self, table: TableReader, name: str) -> tuple[Path, ...]:
        """Read a list of paths at `name`, at least one."""
        words = table.strings(name, at_least_one=True)
        return tuple(
            self.checked_path(table, f"{name}[{position}]", word)
            for position, word in enumerate(words)
        )

    def checked_path(self, table: TableReader, key: str, word: str) -> Path:
        """Return the path of a file of the suite; that it cannot be read is a mistake."""
        path = self.directory / word
        problem = self.problem_with(path)
        if problem:
            table.mistake(problem, key)
        return path

    def content(self, table: TableReader, key: str, word: str) -> str:
        """Return the text of a file of the suite, for comparison."""
        path = self.directory / word
        problem = self.problem_with(path)
        if not problem:
            try:
                return self.text_of(path)
            except UnicodeDecodeError:
                problem = f"{path} is not UTF-8 text: for its exact content write sha256"
            except OSError as error:
                problem = f"{path}: {error.strerror}: for its exact content write sha256"
        table.mistake(problem, key)
        return ""

    def program(self, table: TableReader, key: str, *, required: bool = False) -> tuple[str, ...]:
        """Read a command line, empty when absent; a program with "/" becomes absolute."""
        words = table.strings(key, at_least_one=required or key in table)
        if words and not words[0]:
            table.mistake("expected a program, got an empty string", f"{key}[0]")
        if words and "/" in words[0]:
            return (str(self.directory / words[0]), *words[1:])
        return words


def local_name(table: TableReader, key: str, default: str = "", *, required: bool = False) -> str:
    """Read the name of a file, which must stay inside the run directory."""
    name = table.get(key, FILLED_STRING, REQUIRED if required else "")
    if not name:
        return default
    path = local_path(name)
    if path is None:
        table.mistake(f"expected a path inside the run directory, got {name!r}", key)
    return path or name


def pattern(table: TableReader, key: str, *, required: bool = False) -> re.Pattern[str] | None:
    """Read a regular expression; None when it is absent or does not compile."""
    text = table.get(key, FILLED_STRING, REQUIRED if required else "")
    if not text:
        return None
    try:
        return compile_pattern(text)
    except ValueError as error:
        table.mistake(str(error), key)
        return None


def environment(table: TableReader) -> tuple[tuple[str, str], ...]:
    """Read variables for the environment of copies."""
    variables = []
    for name in table.names(_VARIABLE, _VARIABLE_SAID):
        if name.startswith("RATER_"):
            table.mistake("RATER_... are set by rater: expected another name", name)
        variables.append((name, table.get(name, STRING)))
    return tuple(variables)


def metrics(table: TableReader) -> tuple[Metric, ...]:
    """Read the numbers that a benchmark reports, in the order of the file."""
    return tuple(_metric(name, part) for name, part in table.named_tables())


def expected(table: TableReader, files: SuiteFiles) -> tuple[Expected, ...]:
    """Read `expected`: a string for standard output, a table, or a list of tables."""
    absolute = table.get("absolute_tolerance", number(), None)
    relative = table.get("relative_tolerance", number(), None)
    expectations: list[Expected] = []
    if table.is_a(str, "expected"):
        text = table.get("expected", STRING)
        expectations.append(
            Expected(
                file="stdout",
                text=text,
                absolute_tolerance=absolute or 0.0,
                relative_tolerance=relative or 0.0,
            )
        )
    else:
        for part in table.tables("expected", single=True):
            expectation = _expected(part, files, absolute or 0.0, relative or 0.0)
            if any(expectation.file == other.file for other in expectations):
                part.mistake(f"{expectation.file!r} is expected twice", "file")
            expectations.append(expectation)
    if all(expectation.sha256 for expectation in expectations):
        text = "a tolerance needs an expected text beside it"
        _none_of(table, text, "absolute_tolerance", "relative_tolerance")
    return tuple(expectations)


def _metric(name: str, table: TableReader) -> Metric:
    regex = pattern(table, "pattern", required=True)
    if regex is not None and (problem := check_groups(regex)):
        table.mistake(problem, "pattern")
    metric = Metric(
        name=name,
        pattern=regex.pattern if regex else "",
        unit=table.get("unit", STRING, ""),
        better=table.get("better", choice(("higher", "lower")), None),
        combine=table.get("combine", choice(("sum", "mean")), "mean"),
        file=local_name(table, "file", "stdout"),
        scale=table.get("scale", number(positive=True), 1.0),
    )
    table.finish()
    return metric


def _expected(table: TableReader, files: SuiteFiles, absolute: float, relative: float) -> Expected:
    _one_of(table, "text, path and sha256", ("text", "path", "sha256"))
    own_absolute = table.get("absolute", number(), absolute)
    own_relative = table.get("relative", number(), relative)
    ignore = pattern(table, "ignore")
    text, sha256 = table.get("text", STRING, ""), table.get("sha256", STRING, "")
    if "path" in table:
        word = table.get("path", FILLED_STRING)
        text = files.content(table, "path", word) if word else ""
    if "sha256" in table:
        if sha256 and not _SHA256.fullmatch(sha256):
            table.mistake("expected the 64 hexadecimal digits that sha256sum prints", "sha256")
        text_only = "sha256 is of the exact content: expected no such key beside it"
        _none_of(table, text_only, "absolute", "relative", "ignore")
    exact = "sha256" in table
    want = Expected(
        file=local_name(table, "file", "stdout"),
        text=text,
        absolute_tolerance=0.0 if exact else own_absolute,
        relative_tolerance=0.0 if exact else own_relative,
        sha256=sha256.lower() if exact else None,
        ignore=ignore.pattern if ignore else None,
    )
    table.finish()
    return want
