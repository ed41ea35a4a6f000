"""An installed kit's run directories and the command files of specinvoke, read."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

from rater.record.run import MOST_COPIES
from rater.system.errors import InputError
from rater.text.documents import did_you_mean, file_problem
from rater.text.values import truncate_list

# Run directories are made by `runcpu --action runsetup` (or `runspec`); a command
# file in the directory of copy 0 says what every copy runs, and where. Names:
# `run_TUNE_SIZE_LABEL.NNNN` (CPU2006 and later), plain numbers in CPU2000.

COMMANDS = "speccmds.cmd"
PREFIX = "spec:"
MADE_BY = (
    "make run directories first: `runcpu --action runsetup ...` (CPU2006: `runspec --action "
    "setup`), in a shell with the kit's shrc"
)
_RUN_DIR = re.compile(r"run_([^_.]+)_([^_.]+)_(.+)\.(\d{4,})")
# Where command files lie below a kit or --output_root, below benchspec, a suite, a benchmark, its
# `run`, and in a run directory itself.
_PLACES = ("benchspec/*/*/run/*", "*/*/run/*", "*/run/*", "run/*", "*", ".")
_SHOWN = 6  # names in an error


class KitRun(Struct, frozen=True, kw_only=True):
    """A command file, and the facts in the names of the folders around it."""

    file: Path  # absolute
    benchmark: str  # 429.mcf
    tune: str | None  # base or peak; None if the directory's name does not say it
    size: str | None  # test, train, ref, refrate; None likewise
    label: str | None
    number: int  # of the directory of copy 0
    made_ns: int  # when the file was written


def find_runs(folder: str) -> tuple[tuple[KitRun, ...], tuple[str, ...]]:
    """Return every command file below a kit, a part of it, or in one run directory.

    With them come words on folders that may not be looked into. The end of `folder` may name
    benchmarks: `KIT/429.mcf,403.gcc`. Raises `InputError` when there is none.
    """
    path = Path(folder)
    wanted: tuple[str, ...] = ()
    if not os.path.lexists(path) and path.parent.is_dir():
        wanted = tuple(name for name in path.name.split(",") if name)
        path = path.parent
    if path.is_file():
        raise InputError(
            f"{PREFIX}{folder}: a file; expected a kit, a run directory or a folder of them "
            f"(--speccmds {folder} takes a command file)"
        )
    if not path.is_dir():
        raise InputError(f"{PREFIX}{folder}: no such folder")
    ever: list[Path] = []
    for place in _PLACES:
        closed: list[Path] = []
        parts = [part for part in place.split("/") if part != "."]
        runs = [kit_run(file) for file in _below(path, parts, closed)]
        if runs:
            break
        ever += closed
    else:
        if ever:
            raise InputError(
                f"{PREFIX}{folder}: no {COMMANDS} found, and no permission to look into "
                f"{_listed(map(str, ever))}"
            )
        if wanted:
            raise InputError(f"{PREFIX}{folder}: no such folder")
        raise InputError(f"{PREFIX}{folder}: no {COMMANDS} in it or below; {MADE_BY}")
    notes: tuple[str, ...] = ()
    if closed:
        notes = (
            f"left out: no permission to look into {_listed(map(str, closed))}: what is there "
            "is not run",
        )
    known = sorted({run.benchmark for run in runs})
    for name in wanted:
        if name not in known:
            raise InputError(
                f"{PREFIX}{folder}: no such folder, and no run directory of {name} in {path}; "
                + (notes[0] if notes else did_you_mean(name, known))
            )
    return tuple(run for run in runs if not wanted or run.benchmark in wanted), notes


def _below(folder: Path, parts: Sequence[str], closed: list[Path]) -> list[Path]:
    """Return the command files in folders of these names (`*`: any), in order.

    What may not be looked into is added to `closed`: `Path.glob` would pass over it.
    """
    try:
        if not parts:
            return [folder / COMMANDS] if (folder / COMMANDS).is_file() else []
        if parts[0] != "*":
            inside = [folder / parts[0]] if (folder / parts[0]).is_dir() else []
        else:
            with os.scandir(folder) as entries:
                inside = sorted(Path(entry) for entry in entries if entry.is_dir())
    except PermissionError:
        closed.append(folder)
        return []
    except OSError:  # gone since, or no folder that can be read at all
        return []
    return [file for one in inside for file in _below(one, parts[1:], closed)]


def kit_run(file: Path) -> KitRun:
    """Return what path and name of a command file say of it; raises `InputError`."""
    problem = file_problem(file)
    if problem:
        raise InputError(f"{problem}; expected a command file of specinvoke")
    file = file.absolute()
    return named_run(file, file.parent, file.stat().st_mtime_ns)


def named_run(file: Path, directory: Path, made_ns: int) -> KitRun:
    """Return what the names of a command file and of its run directory say."""
    match = _RUN_DIR.fullmatch(directory.name)
    if directory.parent.name == "run":
        name = directory.parent.parent.name
    elif file.name == COMMANDS:
        name = directory.name
    else:
        name = file.name.removesuffix(".cmd").removesuffix(".speccmds")
    if match is None:
        number = int(directory.name) if directory.name.isdecimal() else 0
        return KitRun(
            file=file,
            benchmark=name or "speccmds",
            tune=None,
            size=None,
            label=None,
            number=number,
            made_ns=made_ns,
        )
    return KitRun(
        file=file,
        benchmark=name,
        tune=match[1],
        size=match[2],
        label=match[3],
        number=int(match[4]),
        made_ns=made_ns,
    )


def newest_runs(
    runs: Sequence[KitRun], size: str | None, tune: str | None, where: str
) -> tuple[tuple[KitRun, ...], tuple[str, ...]]:
    """Return the newest run of each benchmark, and in words where there were older ones.

    `size` and `tune` (None: not asked for) choose; `ref` means `refrate` as well.
    Raises `InputError` where there is a choice that nobody made.
    """
    fitting = [run for run in runs if _is(run.size, size, "rate") and _is(run.tune, tune)]
    if not fitting:
        asked = " ".join(
            f"--{name} {value}" for name, value in (("size", size), ("tune", tune)) if value
        )
        there = _listed(f"{run.tune} {run.size}" for run in runs if run.size)
        raise InputError(f"{where}: no run directory for {asked}; there are: {there or 'unnamed'}")
    for kind, values in (
        ("size", {run.size for run in fitting if run.size}),
        ("tune", {run.tune for run in fitting if run.tune}),
    ):
        if len(values) > 1:
            raise InputError(
                f"{where}: run directories of {kind}s {_listed(values)}; choose one with --{kind}"
            )
    by_name: dict[str, list[KitRun]] = {}
    for run in fitting:
        by_name.setdefault(run.benchmark, []).append(run)
    chosen, notes = [], []
    for name, several in by_name.items():
        *older, newest = sorted(several, key=lambda run: (run.made_ns, run.number))
        chosen.append(newest)
        if older:
            notes.append(
                f"{name}: {newest.file.parent.name} is the newest of {len(several)} run "
                "directories with a command file, and is the one that is run"
            )
    if len(notes) > 1:
        several = [run for run in chosen if len(by_name[run.benchmark]) > 1]
        names = [f"{run.benchmark}: {run.file.parent.name}" for run in several]
        notes = [
            f"{len(notes)} benchmarks have several run directories with a command file: the "
            f"newest of each is run ({_listed(names)})"
        ]
    return tuple(chosen), tuple(notes)


def _is(actual: str | None, expected: str | None, suffix: str = "") -> bool:
    return expected is None or actual is None or actual in (expected, expected + suffix)


def _listed(names: Iterable[str]) -> str:
    return truncate_list(sorted(set(names)), _SHOWN)


# -- Read the command files of SPEC's specinvoke: text to frozen values ----------------------------
#
# The format is known from real files and from SPEC's public pages on specinvoke
# (`notes/spec-formats.md` section 2.2; samples in `shared/spec-samples/speccmds`): a
# directive or a command a line. Command files of three generations are read:
# CPU2000 (-u, no -C), CPU2006 (-C -b -E -S -u) and CPU2017 and later (and -r -N).

KNOWN = "-C -b -i -o -e -E -N -r -S -u"
_VARIABLE = re.compile(r"\$(BIND|SPECCOPYNUM)(?![A-Za-z0-9_])")
# Whatever an environment can hold: shells export functions as `BASH_FUNC_which%%`.
_VALUED = re.compile(r"([^\s=]+)(?:\s+(.*))?", re.DOTALL)
_FUNCTION = re.compile(
    r"-E\s+BASH_FUNC_\S+\s+\(\)\s*\{(?!.*\}$)"
)  # and its end is not in this line
_QUOTED = re.compile(r"""(?:"([^"]*)"|'([^']*)'|(\S+))\s*""")
_LONGEST_STAGGER_MS = 86_400_000.0  # a day, as --stagger
_WHOLE_LINE = "CbE"
_FILES = "ioe"
_LETTERS = f"{_WHOLE_LINE}{_FILES}NrSu"
_STDIN = "CNZ"  # -N: closed, null device, file of no length
_REDIRECTION = re.compile(r"\d*(?:>>?|<)[&|]?")


class SpecCommand(Struct, frozen=True, kw_only=True):
    """One workload: run once by every copy, in the order of the file."""

    text: str  # for a shell; `$SPECCOPYNUM` and `$BIND` as they stand in the file
    stdin: str | None
    stdout: str | None  # truncated
    stderr: str | None  # appended to
    line: int  # of the file, from 1


class CommandFile(Struct, frozen=True, kw_only=True):
    """The content of a command file."""

    commands: tuple[SpecCommand, ...]
    directories: tuple[str, ...] = ()  # -C, by copy; empty: the one that holds the file
    binds: tuple[str, ...] = ()  # -b, as many as there are copies, or none
    environment: tuple[tuple[str, str], ...] = ()  # -E
    stagger_ms: float | None = None  # -S
    users: int | None = None  # -u
    no_redirection: bool = False  # -r: commands hold their redirections
    stdin: str = "C"  # -N: what a command without -i reads; closed is specinvoke's own default

    @property
    def copies(self) -> int:
        """How many copies there are directories for."""
        return len(self.directories) or 1

    @property
    def copies_meant(self) -> int:
        """How many copies the file is for."""
        return self.copies if self.users is None else min(self.users, self.copies)


def parse_speccmds(text: str, where: str) -> CommandFile:
    """Return what a command file says; raises `InputError` naming `where` and the line."""
    return _Reader(where).read(text)


def expanded(text: str, copy: int, bind: str) -> str:
    """Return a command with `$BIND` and `$SPECCOPYNUM` replaced, as specinvoke does.

    Written with braces they are the shell's. A bind value may hold the copy's number.
    """
    values = {"SPECCOPYNUM": str(copy)}
    values["BIND"] = _VARIABLE.sub(lambda it: values.get(it[1], it[0]), bind)
    return _VARIABLE.sub(lambda it: values[it[1]], text)


def uses_bind(text: str) -> bool:
    """Tell whether a command has a `$BIND` to be replaced."""
    return any(found[1] == "BIND" for found in _VARIABLE.finditer(text))


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a command in front of its redirections; () for what is no plain one."""
    try:
        words = shlex.split(text)
    except ValueError:  # quotes that only a shell with a context understands
        return ()
    for position, word in enumerate(words):
        if _REDIRECTION.match(word):
            return tuple(words[:position])
    return tuple(words)


def is_simple(text: str) -> bool:
    """Tell whether a text is one program with arguments and redirections, nothing else.

    Such a text may stand behind `exec`, if its first word is no builtin of the shell.
    """
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace = " \t\r"
    lexer.commenters = ""
    try:
        tokens = list(lexer)
    except ValueError:
        return False
    if not tokens or "=" in tokens[0] or _REDIRECTION.match(tokens[0]) or "`" in text:
        return False
    return all(token.strip(";&|()\n") for token in tokens if token)


class _Reader:
    """One command file; mutable while it is read."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._line = 0
        self._commands: list[SpecCommand] = []
        self._directories: list[str] = []
        self._binds: list[str] = []
        self._environment: dict[str, str] = {}
        self._said: dict[str, Any] = {}  # of other fields

    def read(self, text: str) -> CommandFile:
        if "\0" in text:
            at = text[: text.index("\0")].count("\n") + 1
            raise InputError(f"{self._where}:{at}: a NUL byte; expected the text of specinvoke")
        lines = [line.strip() for line in text.split("\n")]
        after = 0
        for number, line in enumerate(lines, 1):
            if number <= after:
                continue
            self._line = number
            if _FUNCTION.match(line) and "}" in lines[number:]:
                after = lines.index("}", number) + 1
                line = "\n".join(lines[number - 1 : after])  # noqa: PLW2901 - one variable of many lines
            if line and not line.startswith("#"):
                self._take(line)
        if not self._commands:
            raise InputError(
                f"{self._where}: no command in it; expected a line such as "
                "'-o out -e err ../run_base_ref_x.0000/mcf_base.x inp.in'"
            )
        copies = len(self._directories) or 1
        # The tools use a short list of bind values in a circle (runcpu's `bind`).
        binds = (
            [self._binds[copy % len(self._binds)] for copy in range(copies)] if self._binds else []
        )
        return CommandFile(
            commands=tuple(self._commands),
            directories=tuple(self._directories),
            binds=tuple(binds),
            environment=tuple(self._environment.items()),
            **self._said,
        )

    def _wrong(self, problem: str) -> NoReturn:
        raise InputError(f"{self._where}:{self._line}: {problem}")

    def _take(self, line: str) -> None:
        files: dict[str, str] = {}
        rest = line
        while rest.startswith("-"):
            letter, rest = rest[1:2], rest[2:]
            if not letter or letter not in _LETTERS or (rest and not rest[0].isspace()):
                self._wrong(f"{f'-{letter}{rest}'.split()[0]}: expected one of {KNOWN}")
            rest = rest.strip()
            if letter in _WHOLE_LINE:
                self._whole_line(letter, rest)
                return
            if letter == "r":
                self._said["no_redirection"] = True
                continue
            match = _QUOTED.match(rest)
            value = match and (match[1] or match[2] or match[3])
            if not match or not value:
                self._wrong(f"-{letter} without a value")
            rest = rest[match.end() :]
            if letter not in _FILES:
                self._switch(letter, value)
            elif letter in files:
                self._wrong(f"-{letter} twice in a line")
            else:
                files[letter] = value
        if rest:
            command = SpecCommand(
                text=rest,
                stdin=files.get("i"),
                stdout=files.get("o"),
                stderr=files.get("e"),
                line=self._line,
            )
            self._commands.append(command)
        elif files:
            self._wrong("-i, -o or -e without a command behind it")

    def _whole_line(self, letter: str, rest: str) -> None:
        if not rest:
            self._wrong(f"-{letter} without a value")
        if letter != "E":
            (self._directories if letter == "C" else self._binds).append(_unquoted(rest))
            return
        found = _VALUED.fullmatch(rest)
        if not found:
            self._wrong(
                f"-E {rest[:60]}: expected the name of an environment variable and its value"
            )
        self._environment[found[1]] = _unquoted((found[2] or "").strip())

    def _switch(self, letter: str, word: str) -> None:
        if letter == "N":
            if word not in _STDIN:
                self._wrong(f"-N {word}: expected C, N or Z")
            self._said["stdin"] = word
        elif letter == "u":
            if not (word.isascii() and word.isdigit() and 1 <= int(word[:9]) <= MOST_COPIES):
                self._wrong(f"-u {word}: expected a number of copies")
            self._said["users"] = int(word)
        else:
            with suppress(ValueError):
                if 0 <= (value := float(word)) <= _LONGEST_STAGGER_MS:
                    self._said["stagger_ms"] = value
                    return
            self._wrong(f"-S {word}: expected milliseconds between the starts of copies")


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted and text[0] not in text[1:-1] else text
