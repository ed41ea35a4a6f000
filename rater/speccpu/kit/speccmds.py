"""Read the command files of SPEC's specinvoke: text to frozen values; pure.

The format is known from real files and from SPEC's public pages on specinvoke
(`notes/spec-formats.md` section 2.2; samples in `shared/spec-samples/speccmds`): a
directive or a command a line. Command files of three generations are read:
CPU2000 (-u, no -C), CPU2006 (-C -b -E -S -u) and CPU2017 and later (and -r -N).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import NoReturn

from rater.errors import InputError
from rater.plan.placement.counts import MOST_COPIES

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


@dataclass(frozen=True, slots=True)
class SpecCommand:
    """One workload: run once by every copy, in the order of the file."""

    text: str  # for a shell; `$SPECCOPYNUM` and `$BIND` as they stand in the file
    stdin: str | None
    stdout: str | None  # truncated
    stderr: str | None  # appended to
    line: int  # of the file, from 1


@dataclass(frozen=True, slots=True)
class CommandFile:
    """What a command file says."""

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
        self._stagger_ms: float | None = None
        self._users: int | None = None
        self._no_redirection = False
        self._stdin = _STDIN[0]

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
        binds = [self._binds[n % len(self._binds)] for n in range(copies)] if self._binds else []
        return CommandFile(
            tuple(self._commands),
            tuple(self._directories),
            tuple(binds),
            tuple(self._environment.items()),
            self._stagger_ms,
            self._users,
            self._no_redirection,
            self._stdin,
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
                self._value(letter, rest)
                return
            if letter in _FILES:
                if letter in files:
                    self._wrong(f"-{letter} twice in a line")
                files[letter], rest = self._word(letter, rest)
            else:
                rest = self._switch(letter, rest)
        if rest:
            streams = (files.get("i"), files.get("o"), files.get("e"))
            self._commands.append(SpecCommand(rest, *streams, self._line))
        elif files:
            self._wrong("-i, -o or -e without a command behind it")

    def _value(self, letter: str, rest: str) -> None:
        """Take a directive that has the rest of its line for a value."""
        if not rest:
            self._wrong(f"-{letter} without a value")
        if letter == "C":
            self._directories.append(_unquoted(rest))
        elif letter == "b":
            self._binds.append(_unquoted(rest))
        else:
            self._variable(rest)

    def _switch(self, letter: str, rest: str) -> str:
        """Take a directive of one word at most; return what stands behind it."""
        if letter == "r":
            self._no_redirection = True
            return rest
        if letter == "S":
            self._stagger_ms, rest = self._milliseconds(rest)
        elif letter == "u":
            self._users, rest = self._count(rest)
        else:
            self._stdin, rest = self._word(letter, rest)
            if self._stdin not in _STDIN:
                self._wrong(f"-N {self._stdin}: expected C, N or Z")
        return rest

    def _word(self, letter: str, rest: str) -> tuple[str, str]:
        match = _QUOTED.match(rest)
        value = match and (match[1] or match[2] or match[3])
        if not match or not value:
            self._wrong(f"-{letter} without a value")
        return value, rest[match.end() :]

    def _variable(self, rest: str) -> None:
        found = _VALUED.fullmatch(rest)
        if not found:
            self._wrong(
                f"-E {rest[:60]}: expected the name of an environment variable and its value"
            )
        self._environment[found[1]] = _unquoted((found[2] or "").strip())

    def _milliseconds(self, rest: str) -> tuple[float, str]:
        word, rest = self._word("S", rest)
        try:
            value = float(word)
        except ValueError:
            value = -1.0
        if not 0 <= value <= _LONGEST_STAGGER_MS:
            self._wrong(f"-S {word}: expected milliseconds between the starts of copies")
        return value, rest

    def _count(self, rest: str) -> tuple[int, str]:
        word, rest = self._word("u", rest)
        if not (word.isascii() and word.isdigit() and 1 <= int(word[:9]) <= MOST_COPIES):
            self._wrong(f"-u {word}: expected a number of copies")
        return int(word), rest


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted and text[0] not in text[1:-1] else text
