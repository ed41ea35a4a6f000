"""TOML and JSON read strictly: every mistake with file, line, place and remedy."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rater.system.errors import InputError
from rater.system.files import read_file
from rater.system.patterns import compile_later
from rater.text import kinds
from rater.text.kinds import ValueKind, WrongKindError

# -- Read the files of suites and layouts: never blocked by a pipe, never flooded by a device ------

_PASSED = ("/dev/fd/", "/proc/self/fd/")  # descriptors that rater was started with
MOST_BYTES = 10_000_000  # of a suite, a layout or an expected output


def file_problem(path: Path, typed: str = "") -> str | None:
    """Say why `path`, which the user may have `typed` otherwise, is not a file to read."""
    typed_path = typed or str(path)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the path
        return f"no such file: {typed_path}"
    except OSError as error:
        return f"{typed_path}: {error.strerror}"
    if stat.S_ISDIR(mode):
        return f"{typed_path} is a directory, expected a file"
    if not stat.S_ISREG(mode):
        return f"{typed_path} is not a regular file but a pipe or a device"
    if not os.access(path, os.R_OK):
        return f"no permission to read {typed_path}"
    return None


def open_input(path: Path, most_bytes: int, expected: str) -> BinaryIO:
    """Open what a user named to be read: a regular file, or a pipe that their shell passed on.

    `<(zcat FILE)` is such a pipe; any other one is not waited for. What the kernel makes up as it
    is read (/proc/kmsg) is read at once, up to so many bytes. Raises `InputError` with what was
    `expected`.
    """
    is_passed = str(path).startswith(_PASSED)
    problem = None if is_passed else file_problem(path)
    try:
        if is_passed:
            return path.open("rb")
        if problem is None and file_size(path):
            # Not waiting for a pipe that was put in its place since.
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
            return os.fdopen(os.open(path, flags), "rb")
        if problem is None:
            return BytesIO(read_file(path, most_bytes))
    except OSError as error:
        problem = f"{path}: cannot be read ({error.strerror})"
    raise InputError(f"{problem}; expected {expected}")


def file_size(path: Path) -> int:
    """Return the size of a file; 0 for one that is not there: told when it is needed."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def read_text(path: Path, too_large_for: str = "a suite or a layout") -> str:
    """Return the text of a small regular file, without the mark that editors of Windows add.

    Raises `OSError` with a reason in words, `UnicodeDecodeError` when it is not
    UTF-8, and `ValueError` for a path with a NUL.
    """
    return decode_text(read_file(path, MOST_BYTES + 1), path, too_large_for)


def decode_text(data: bytes, path: Path, too_large_for: str) -> str:
    """Return as text what was read of a file, at most `MOST_BYTES` + 1. Raises the same."""
    if len(data) > MOST_BYTES:
        problem = f"larger than {MOST_BYTES // 10**6} MB, too large for {too_large_for}"
        raise OSError(errno.EFBIG, problem, str(path))
    return data.decode("utf-8-sig")


# -- Find the lines of keys in a TOML text, which tomllib does not tell ----------------------------

PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{PART}(?:\s*\.\s*{PART})*"
_HEADER = compile_later(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]\]?\s*(?:#.*)?$")
_ASSIGNMENT = compile_later(rf"\s*({_DOTTED})\s*=")
# What hides or nests line ends: strings (the long kinds first), comments, brackets.
_SIGN = compile_later(
    r'''"""(?:[^\\]|\\.)*?"{3,5}'''
    r"""|'{3}.*?'{3,5}"""
    r"""|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\#[^\n]*|[\[\]{}\n]""",
    re.DOTALL,
)
_INDEX = compile_later(r"\[\d+\]$")

type Key = tuple[str, ...]


def key_lines(text: str) -> dict[Key, int]:
    """Map every key and table header of a TOML text to its line (from 1).

    The tables of `[[name]]` are found as `name[0]`, `name[1]` and so on. Keys
    inside inline tables are not found: see `find_line`.
    """
    lines: dict[Key, int] = {}
    latest: dict[Key, Key] = {}  # the key of a [[name]] to that of its last table
    table: Key = ()
    statement_start, first_line = 0, 1  # of the statement we are in: its first character, its line
    line_number, open_brackets = 1, 0  # line and open brackets here
    for token in _SIGN.finditer(text + "\n"):
        line_number += token[0].count("\n")
        if token[0] in ("[", "{"):
            open_brackets += 1
        elif token[0] in ("]", "}"):
            open_brackets -= 1
        if token[0] != "\n" or open_brackets:
            continue
        statement = text[statement_start : token.start()]
        header, assignment = _HEADER.match(statement), _ASSIGNMENT.match(statement)
        key: Key = ()
        if header:
            key = table = _resolve_arrays(
                _split_key(header[2]), latest, opens_table=header[1] == "[["
            )
            lines.setdefault(_without_indices(key), first_line)
        elif assignment:
            key = table + _split_key(assignment[1])
        for length in range(1, len(key) + 1):
            lines.setdefault(key[:length], first_line)
        statement_start, first_line = token.end(), line_number
    return lines


def find_line(lines: Mapping[Key, int], key: Key) -> int | None:
    """Return the line of `key`, else that of the nearest key around it that has one.

    A part may end in an index, `args[2]`: then the line of the item counts, else
    that of its list.
    """
    plain = _without_indices(key)
    for length in range(len(key), 0, -1):
        exact = key[:length]
        for candidate in (exact, (*exact[:-1], plain[length - 1]), plain[:length]):
            if candidate in lines:
                return lines[candidate]
    return None


def _resolve_arrays(parts: Key, latest: dict[Key, Key], *, opens_table: bool) -> Key:
    key: Key = ()
    for part in parts[:-1]:
        key = latest.get((*key, part), (*key, part))
    whole_key = (*key, parts[-1])
    if opens_table:
        latest_table = latest.get(whole_key)
        position = 0 if latest_table is None else int(latest_table[-1][len(parts[-1]) + 1 : -1]) + 1
        latest[whole_key] = (*key, f"{parts[-1]}[{position}]")
    return latest.get(whole_key, whole_key)


def _without_indices(key: Key) -> Key:
    return tuple(_INDEX.sub("", part) for part in key)


def _split_key(dotted: str) -> Key:
    return tuple(part.strip("\"'") for part in re.findall(PART, dotted))


# -- Read TOML and JSON strictly: all mistakes together, each with file, place and remedy ----------
#
# The place is the line of a key in TOML and its path in both (`sizes.test.args[0]`).

# Names become names of files: neither "." nor "..", and not longer than a file system takes.
NAME = compile_later(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
NAME_EXPECTED = "expected a name of at most 100 letters, digits, '.', '_' and '-'"
REQUIRED: Any = object()  # the default of a key that must be there
_MOST_MISTAKES = 100
_MOST_TOML = 2_000_000  # characters: some 20,000 benchmarks, read in seconds
# A key of more parts than any format has: tomllib's time grows with the square of their number.
_DEEP_KEY = compile_later(rf"(?:^|[\[{{,])[ \t]*(?:{PART}\s*\.\s*){{32}}", re.MULTILINE)


class Mistake(NamedTuple):
    """One thing wrong in a file; `str()` is the line that a person reads."""

    path: Path | str
    line: int | None  # from 1
    key: str  # dotted; empty when the mistake is not about a key
    text: str

    def __str__(self) -> str:
        place = str(self.path) if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.key}: {self.text}" if self.key else f"{place}: {self.text}"


class MistakesError(InputError):
    """A file has mistakes; the message has one line for each."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(sorted(mistakes, key=lambda mistake: mistake.line or 0))
        lines = list(map(str, self.mistakes))
        if len(lines) > 1:
            lines.insert(0, f"{self.mistakes[0].path} has {len(lines)} mistakes:")
        super().__init__("\n".join(lines))


def did_you_mean(word: str, known_words: Iterable[str], *, list_all: bool = False) -> str:
    """Return what to add to "unknown WORD": the nearest known words, else all of them.

    `list_all`: they are so few that all of them are named behind the nearest, too.
    """
    names = list(known_words)
    from difflib import get_close_matches  # noqa: PLC0415 - for a misspelt name alone

    nearest = get_close_matches(word, names, n=3)
    all_known = f"there are: {', '.join(names)}" if names else "there are none"
    if not nearest:
        return all_known
    return f"did you mean {' or '.join(nearest)}?" + (f" {all_known}" if list_all else "")


class Document:
    """A parsed file and the mistakes found so far; `toml`: its text, where it is TOML."""

    def __init__(self, path: Path | str, data: Any, toml: str | None = None) -> None:
        self.path = path
        self.data = data
        self.toml = toml
        self.mistakes: list[Mistake] = []

    @cached_property
    def _lines(self) -> dict[Key, int]:
        return key_lines(self.toml or "")

    @property
    def table_word(self) -> str:
        """What the format calls a table."""
        return "an object" if self.toml is None else "a table"

    def root(self) -> TableReader:
        """Return the top level of the file; raises `MistakesError` when it is no table."""
        if not isinstance(self.data, dict):
            got = kinds.describe_value(self.data, self.table_word)
            self.mistake((), f"expected {self.table_word}, got {got}")
            self.raise_mistakes()
        return TableReader(self, (), self.data)

    def mistake(self, key: Key, text: str) -> None:
        """Note a mistake at `key`; its line is that of the nearest enclosing key with one.

        Raises `MistakesError` when there are so many that nobody reads more.
        """
        line = find_line(self._lines, key)
        mistake = Mistake(self.path, line, ".".join(map(_quote_part, key)), text)
        if mistake not in self.mistakes:
            self.mistakes.append(mistake)
        if len(self.mistakes) >= _MOST_MISTAKES:
            self.raise_mistakes()

    def raise_mistakes(self) -> None:
        """Raise `MistakesError` if there is any."""
        if self.mistakes:
            raise MistakesError(self.mistakes)


def toml_document(text: str, path: Path) -> Document:
    """Parse a TOML text; raises `MistakesError` with the line when it is none, or has no end."""
    if len(text) > _MOST_TOML:
        problem = (
            f"more than {_MOST_TOML // 10**6} MB of TOML: long texts can be files of their own"
        )
        raise MistakesError([Mistake(path, None, "", problem)])
    deep_key = _DEEP_KEY.search(text)
    if deep_key:
        line = text.count("\n", 0, deep_key.end()) + 1
        raise MistakesError([Mistake(path, line, "", "a key of more than 32 parts")])
    import tomllib  # noqa: PLC0415 - it compiles patterns, and most commands read no TOML

    try:
        return Document(path, tomllib.loads(text), text)
    except (ValueError, RecursionError) as error:  # tomllib's own, or a value beyond Python
        raise MistakesError([_syntax_mistake(str(error), text, path)]) from None


def json_document(text: bytes | str, path: Path | str, expected: str = "JSON") -> Document:
    """Parse a JSON text; raises `MistakesError` with the line when it is none."""
    try:
        return Document(
            path, json.loads(text if isinstance(text, str) else text.decode("utf-8-sig"))
        )
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 text (byte {error.start}); expected JSON"
    except json.JSONDecodeError as error:
        path = f"{path}:{error.lineno}:{error.colno}"
        problem = f"not JSON ({error.msg}); expected {expected}"
    except (ValueError, RecursionError) as error:  # a number of 4300 digits, or nested too deeply
        problem = f"not JSON that can be read ({error})"
    raise MistakesError([Mistake(path, None, "", problem)])


class TableReader:
    """One table (JSON: object) of a document.

    Every getter takes a key, most a `default` for when it is absent (JSON: or null);
    without one the key must be there. What is wrong is noted as a mistake, and
    something of the right type returned, so that reading goes on to the next mistake.
    """

    __slots__ = ("_asked", "_values", "document", "key")

    def __init__(self, document: Document, key: Key, values: Mapping[str, Any]) -> None:
        self.document = document
        self.key = key
        self._values = values
        self._asked: dict[str, None] = {}

    def __contains__(self, name: str) -> bool:
        self._asked[name] = None
        return self._values.get(name) is not None

    def mistake(self, text: str, name: str | None = None) -> None:
        """Note a mistake about this table, or about its key `name`."""
        self.document.mistake((*self.key, name) if name else self.key, text)

    def unexpected(self, expected: str, name: str) -> None:
        """Note that `name` has another value than was expected, or none."""
        if name in self._values:
            self._wrong(name, WrongKindError(expected, self._values[name]))
        else:
            self.mistake(f"missing; expected {expected}", name)

    def finish(self) -> None:
        """Report every key that nothing asked for."""
        for name in self.unread_names():
            self.mistake(f"unknown key; {did_you_mean(name, self._asked)}", name)

    def unread_names(self) -> list[str]:
        """Return the keys that nothing asked for."""
        return [name for name in self._values if name not in self._asked]

    def key_names(self) -> list[str]:
        """Return the keys that the table has, whatever they are."""
        return list(self._values)

    def value(self, name: str) -> Any:
        """Return the value of a key as it stands in the file; None: missing."""
        self._asked[name] = None
        return self._values.get(name)

    def read_names(self) -> list[str]:
        """Return the names that were asked for, whether or not the table has them."""
        return list(self._asked)

    def get[T, D](self, name: str, kind: ValueKind[T], default: D = REQUIRED) -> T | D:
        """Return the value of a key."""
        self._asked[name] = None
        value = self._values.get(name)
        if value is None and default is not REQUIRED:
            return default
        try:
            return kind.read(value)
        except WrongKindError as error:
            if value is None:
                self.unexpected(error.expected, name)
            else:
                self._wrong(name, error)
        except ValueError as error:
            self.mistake(str(error), name)
        return kind.zero if default is REQUIRED else default

    def is_a(self, kind: type, name: str) -> bool:
        """Tell whether the value at `name` is a `str`, `list` or `dict`, where several may be."""
        return isinstance(self._values.get(name), kind)

    def items[T](
        self, name: str, kind: ValueKind[T], expected: str, *, at_least_one: bool = False
    ) -> tuple[T, ...]:
        """Return a list, empty when the key is absent. Items of another kind are left out.

        `at_least_one`: an absent key and an empty list are mistakes.
        """
        values: list[T] = []
        for position, item in enumerate(self._list(name, expected, at_least_one=at_least_one)):
            try:
                values.append(kind.read(item))
            except WrongKindError as error:
                self._wrong(f"{name}[{position}]", error)
        return tuple(values)

    def strings(self, name: str, *, at_least_one: bool = False) -> tuple[str, ...]:
        """Return a list of strings, as `items` does."""
        return self.items(name, kinds.STRING, "a list of strings", at_least_one=at_least_one)

    def table(self, name: str, *, required: bool = False) -> TableReader:
        """Return the table at `name`, an empty one when the key is absent.

        `required`: an absent key is a mistake; the table may be empty.
        """
        self._asked[name] = None
        value = self._values.get(name)
        if not isinstance(value, dict):
            if required or value is not None:
                self.unexpected(self.document.table_word, name)
            value = {}
        return TableReader(self.document, (*self.key, name), value)

    def tables(
        self, name: str, *, single: bool = False, required: bool = False
    ) -> list[TableReader]:
        """Return the list of tables at `name`; `single`: a table counts as a list of one.

        `required`: an absent key is a mistake; the list may be empty.
        """
        if single and self.is_a(dict, name):
            return [self.table(name)]
        word = self.document.table_word
        expected = f"{word} or a list of {word.split()[1]}s" if single else "a list"
        tables = []
        for position, item in enumerate(self._list(name, expected)):
            part = f"{name}[{position}]"
            if isinstance(item, dict):
                tables.append(TableReader(self.document, (*self.key, part), item))
            else:
                self._wrong(part, WrongKindError(word, item))
        if required and name not in self:
            self.unexpected(expected, name)
        return tables

    def named_tables(self) -> list[tuple[str, TableReader]]:
        """Return (name, table) for every key of this table, in the order of the file."""
        tables = [(name, self.table(name)) for name in self.names()]
        return [(name, table) for name, table in tables if self.is_a(dict, name)]

    def names(self, fit: re.Pattern[str] = NAME, expected: str = NAME_EXPECTED) -> list[str]:
        """Return the keys, which the user chose; one that does not `fit` is a mistake."""
        for name in self._values:
            self._asked[name] = None
            if not fit.fullmatch(name):
                self.mistake(expected, name)
        return list(self._values)

    def _list(self, name: str, expected: str, *, at_least_one: bool = False) -> list[Any]:
        self._asked[name] = None
        value = self._values.get(name)
        if isinstance(value, list):
            if at_least_one and not value:
                self.mistake(f"expected {expected}, got an empty one", name)
            return value
        if at_least_one or value is not None:
            self.unexpected(expected, name)
        return []

    def _wrong(self, name: str, error: WrongKindError) -> None:
        expected, value = error.expected, error.value
        got = kinds.describe_value(value, self.document.table_word)
        hint = ""
        if expected == "a string" and kinds.is_number(value) and got != "a huge number":
            hint = f' (put it in quotes: "{value}")'
        elif expected == "a list of strings" and isinstance(value, str):
            hint = ' (["one", "two"])'
        self.mistake(f"expected {expected}, got {got}{hint}", name + error.at)


def _quote_part(part: str) -> str:
    return part if re.fullmatch(r"[A-Za-z0-9_-]+(\[\d+\])?", part) else f'"{part}"'


def _syntax_mistake(message: str, text: str, path: Path) -> Mistake:
    # tomllib before 3.14 has the position only inside its message
    position = re.search(r"\(at line (\d+), column (\d+)\)", message)
    last_line = text.count("\n") + 1
    at_end = "end of document" in message
    line = int(position[1]) if position else last_line if at_end else None
    place_text = (
        f" at column {position[2]}" if position else " at the end of the file" if at_end else ""
    )
    problem = message.split(" (at ", maxsplit=1)[0]
    return Mistake(path, line, "", f"not valid TOML{place_text}: {problem[0].lower()}{problem[1:]}")
