"""TOML text to `Suite`; every mistake names file, line and key, and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rater.plan.suite import parse_parts as suite_parts
from rater.plan.suite.model import Benchmark, Command, Generator, InputFile, Size, Suite
from rater.plan.suite.parse_parts import Files, local_name, own_name
from rater.text.document import (
    NAME,
    NAME_EXPECTED,
    Mistake,
    MistakesError,
    TableReader,
    did_you_mean,
    toml_document,
)
from rater.text.kinds import FILLED_STRING, FLAG, STRING, choice, number, whole

FORMAT = 1  # of the suite file
DEFAULT_FLAGS = {"base": ("-O2",), "peak": ("-O3", "-march=native")}
LEAVE_OUT = ("missing", "unfit")
_MB = 1e6  # bytes
_MOST = 1e12  # megabytes, so that bytes fit into 64 bits, and seconds
_LONGEST_NAME = 255  # bytes of one part of a path, on every usual file system
_MOST_THREADS = 65536  # more CPUs than any Linux has


def parse_suite(
    text: str,
    path: Path,
    problem_with: Callable[[Path], str | None] = lambda _path: None,
    text_of: Callable[[Path], str] = lambda _path: "",
) -> Suite:
    """Turn the text of a suite file into a `Suite`.

    `path` names the file in messages, and relative paths start at its folder;
    `problem_with` says what is wrong with a file that the suite names, `text_of`
    reads one (`file_problem` and `read_text` look at the disk, the defaults
    believe). Raises `MistakesError` with all mistakes together.
    """
    suite, mistakes = read_suite(text, path, problem_with, text_of)
    if mistakes:
        raise MistakesError(mistakes)
    return suite


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
    files = Files(path.parent, problem_with, text_of)
    setup = files.program(head, "setup")
    flags = DEFAULT_FLAGS | _flags(root.table("flags"))
    reader = _Reader(files, flags, has_setup="setup" in head)
    benchmarks = root.table("benchmarks", required=True)
    suite = Suite(
        name=head.get("name", STRING, path.stem),
        description=head.get("description", STRING, ""),
        path=path,
        reference_machine=head.get("reference_machine", STRING, "") or None,
        benchmarks=tuple(reader.benchmark(n, t) for n, t in benchmarks.named_tables()),
        environment=suite_parts.environment(head.table("environment")),
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


@dataclass(frozen=True, slots=True)
class _Reader:
    """What every benchmark of one file is read with."""

    files: Files
    flags: dict[str, tuple[str, ...]]
    has_setup: bool  # the suite has, so that there may be files it made

    def benchmark(self, name: str, table: TableReader) -> Benchmark:
        has_sources, has_command = "sources" in table, "command" in table
        if has_sources == has_command:
            table.mistake("expected either sources = [...] or command = [...]")
        sources = self.files.several(table, "sources") if has_sources else ()
        libraries, flags = table.strings("libraries"), _flags(table.table("flags"))
        if has_command and not has_sources:
            for key in ("libraries", "flags"):
                if key in table:
                    table.mistake("a command is not compiled: expected sources beside this", key)
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
                n: self._size(n, t, is_built=has_sources, has_setup="setup" in table)
                for n, t in sizes.named_tables()
            },
            environment=suite_parts.environment(table.table("environment")),
            threads=table.get("threads", whole(1, _MOST_THREADS), 1),
            setup=self.files.program(table, "setup"),
            metrics=suite_parts.metrics(table.table("metrics")),
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
            environment=suite_parts.environment(table.table("environment")),
            reference_s=table.get("reference_s", number(_MOST, positive=True), None),
            memory_bytes=_megabytes(table, "memory_mb"),
            total_memory_bytes=_megabytes(table, "memory_total_mb"),
            disk_bytes=_megabytes(table, "disk_mb") or 0,
            inputs=inputs,
            expected=suite_parts.expected(table, self.files),
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
            for key in ("stdout", "stderr"):
                if key in table:
                    table.mistake("expected inside one of commands = [{ ... }]", key)
            places = [(table, self._command(table, redirects=False))]
        else:
            for key in ("command", "args", "stdin"):
                if key in table:
                    table.mistake("expected inside one of the commands, not beside them", key)
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
        given = [key for key in ("path", "generator", "made") if key in table]
        if len(given) != 1:
            got = f", got {' and '.join(given)}" if given else ""
            text = 'expected one of path = "...", generator = { sources, args } and made = "..."'
            table.mistake(text + got)
        path = generator = None
        if "path" in table:
            word = table.get("path", FILLED_STRING)
            path = self.files.one(table, "path", word) if word else None
        if "generator" in table:
            generator = self._generator(table.table("generator"))
        made = local_name(table, "made") or None
        if "made" in table and not self.has_setup:
            text = "a file that the set-up of the suite makes: expected setup = [...] in [suite]"
            table.mistake(text, "made")
        private = table.get("copy", FLAG, default=False)
        table.finish()
        return InputFile(name, path, generator, made, private)

    def _generator(self, table: TableReader) -> Generator:
        generator = Generator(
            self.files.several(table, "sources"), table.strings("args", required=True)
        )
        if generator.args and not any("{output}" in arg for arg in generator.args):
            table.mistake('no argument has "{output}", the file to write', "args")
        table.finish()
        return generator


def _file_name(table: TableReader, key: str, *, required: bool = False) -> str:
    """Read the name of a file that a copy finds or makes in its run directory."""
    name = own_name(table, key, required=required)
    for part in PurePosixPath(name).parts:
        length = len(part.encode())
        if length > _LONGEST_NAME:
            text = f"expected at most {_LONGEST_NAME} bytes between slashes, got {length}"
            table.mistake(f"{text}: {part[:20]}...", key)
    return name


def _check_input_names(table: TableReader, inputs: tuple[InputFile, ...]) -> None:
    """Two inputs can neither have one name nor one be the folder of the other."""
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
    """Every stream of a copy's commands is a file that can be there, written by one of them."""
    known = [wanted.name for wanted in inputs]
    shared = {wanted.name for wanted in inputs if not wanted.private}
    written: list[str] = []
    for position, (table, command) in enumerate(places):
        # What earlier commands leave is theirs to say: only the first can be judged.
        if position == 0 and command.stdin and command.stdin not in known and not has_setup:
            text = (
                f"{command.stdin!r} is none of the inputs, and no setup of the benchmark makes it"
            )
            hint = f"; {did_you_mean(command.stdin, known)}" if known else ""
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
                _check_folders(table, key, name, known, written)
            written.append(name)


def _check_folders(
    table: TableReader, key: str, name: str, known: list[str], written: list[str]
) -> None:
    """No file can be the folder of another one."""
    for others, what in ((known, "an input"), (written, "written too")):
        for other in dict.fromkeys(others):
            above, below = PurePosixPath(other), PurePosixPath(name)
            if above in below.parents and other:
                table.mistake(f"{other!r} is {what}, it cannot be the folder of {name!r}", key)
            elif below in above.parents:
                table.mistake(f"{name!r} is the folder of {other!r}, which is {what}", key)


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
