"""Read TOML strictly: all mistakes are collected, each with file, line, dotted key and remedy."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from rater.errors import InputError
from rater.text.toml_lines import Key, find_line, key_lines

# Names become names of files: neither "." nor "..", and not longer than a file system takes.
NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
NAME_SAID = "expected a name of at most 100 letters, digits, '.', '_' and '-'"
_HUGE = 10**18  # beyond this Python may refuse to print an integer of a TOML file


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing wrong in a file; `str()` is the line that a person reads."""

    path: Path
    line: int | None  # from 1
    key: str  # dotted; empty when the mistake is not about a key
    text: str

    def __str__(self) -> str:
        place = str(self.path) if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.key}: {self.text}" if self.key else f"{place}: {self.text}"


class MistakesError(InputError):
    """A file has mistakes; the message has one line for each."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(sorted(mistakes, key=lambda m: m.line or 0))
        lines = [str(mistake) for mistake in self.mistakes]
        if len(lines) > 1:
            lines.insert(0, f"{self.mistakes[0].path} has {len(lines)} mistakes:")
        super().__init__("\n".join(lines))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return what to add to "unknown WORD": the nearest known words, else all of them."""
    names = list(known)
    near = get_close_matches(word, names, n=3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there are: {', '.join(names)}" if names else "there are none"


class Document:
    """A parsed TOML file with the lines of its keys and the mistakes found so far."""

    def __init__(self, text: str, path: Path) -> None:
        """Parse `text`; raises `MistakesError` with the line when it is not TOML."""
        self.path = path
        self.mistakes: list[Mistake] = []
        try:
            self.data: dict[str, object] = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # tomllib's own, or a value beyond Python
            raise MistakesError([_syntax_mistake(str(error), text, path)]) from None
        self._lines = key_lines(text)

    def root(self) -> Table:
        """Return the top level of the file."""
        return Table(self, (), self.data)

    def mistake(self, key: Key, text: str) -> None:
        """Note a mistake at `key`; its line is that of the nearest enclosing key with one."""
        line = find_line(self._lines, key)
        mistake = Mistake(self.path, line, ".".join(map(_shown, key)), text)
        if mistake not in self.mistakes:
            self.mistakes.append(mistake)

    def raise_mistakes(self) -> None:
        """Raise `MistakesError` if there is any."""
        if self.mistakes:
            raise MistakesError(self.mistakes)


class Table:
    """One table of a document. Every getter notes a mistake and returns its default.

    `finish` reports the keys that no getter asked for.
    """

    def __init__(self, document: Document, key: Key, data: dict[str, object]) -> None:
        self.document = document
        self.key = key
        self._data = data
        self._asked: dict[str, None] = {}

    def __contains__(self, name: str) -> bool:
        self._asked[name] = None
        return name in self._data

    def mistake(self, text: str, name: str | None = None) -> None:
        """Note a mistake about this table, or about its key `name`."""
        self.document.mistake((*self.key, name) if name else self.key, text)

    def string(
        self, name: str, default: str = "", *, required: bool = False, empty: bool = True
    ) -> str:
        """Return the string at `name`; unless `empty` is allowed, "" is a mistake."""
        value = self._value(name, "a string" if required else None)
        if value is None:
            return default
        if not isinstance(value, str):
            self._unexpected(name, "a string", value)
            return default
        if not value and not empty:
            self.mistake("expected a string, got an empty one", name)
            return default
        return value

    def flag(self, name: str) -> bool:
        """Return the true or false at `name`, false when absent."""
        value = self._value(name)
        if value is None or isinstance(value, bool):
            return value or False
        self._unexpected(name, "true or false", value)
        return False

    def whole(self, name: str, default: int, *, least: int, most: int) -> int:
        """Return the whole number at `name`, from `least` to `most`."""
        value = self._value(name)
        if value is None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        self._unexpected(name, f"a whole number from {least} to {most}", value)
        return default

    def choice(self, name: str, choices: Sequence[str]) -> str | None:
        """Return the string at `name` when it is one of `choices`, None when absent."""
        value = self._value(name)
        if value is None or value in choices:
            return value if isinstance(value, str) else None
        self._unexpected(name, " or ".join(f'"{choice}"' for choice in choices), value)
        return None

    def number(self, name: str, *, positive: bool = False, most: float = 1e300) -> float | None:
        """Return the number at `name`, from 0 (`positive`: above 0) to `most`; None if absent."""
        value = self._value(name)
        if value is None:
            return None
        wanted = "a number above 0" if positive else "a number, 0 or more"
        if isinstance(value, int | float) and not isinstance(value, bool):
            if value > most:  # compared before converted: a TOML integer has no limit
                wanted = f"a number of at most {most:g}"
            elif value > 0 or (value == 0 and not positive):
                return float(value)
        self._unexpected(name, wanted, value)
        return None

    def strings(self, name: str, *, required: bool = False) -> tuple[str, ...]:
        """Return the list of strings at `name`, empty when absent.

        NUL characters are a mistake: no argument or path can hold one.
        """
        wanted = "a list of strings"
        value = self._value(name, wanted if required else None)
        if value is None:
            return ()
        if not isinstance(value, list):
            self._unexpected(name, wanted, value)
            return ()
        found: list[str] = []
        for position, item in enumerate(value):
            if isinstance(item, str) and "\0" not in item:
                found.append(item)
            else:
                wanted_item = "a string without NUL" if isinstance(item, str) else "a string"
                self._unexpected(f"{name}[{position}]", wanted_item, item)
        if required and not value:
            self.mistake(f"expected {wanted}, got an empty one", name)
        return tuple(found)

    def word(self, name: str) -> str | None:
        """Return the string or number at `name` as text, None when absent."""
        value = self._value(name)
        if value is None or _is_word(value):
            return None if value is None else str(value)
        self._unexpected(name, "a string or a number", value)
        return None

    def words(self, name: str) -> tuple[str, ...]:
        """Return the list of strings and numbers at `name` as texts, empty when absent.

        NUL characters are a mistake, as in `strings`.
        """
        value = self._value(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            self._unexpected(name, "a list of strings or numbers", value)
            return ()
        found: list[str] = []
        for position, item in enumerate(value):
            if _is_word(item) and "\0" not in str(item):
                found.append(str(item))
            else:
                self._unexpected(f"{name}[{position}]", "a string or a number", item)
        return tuple(found)

    def table(self, name: str, *, required: bool = False) -> Table:
        """Return the table at `name`, an empty one when absent."""
        value = self._value(name, "a table" if required else None)
        if isinstance(value, dict):
            return Table(self.document, (*self.key, name), value)
        if value is not None:
            self._unexpected(name, "a table", value)
        return Table(self.document, (*self.key, name), {})

    def tables(self, name: str) -> list[Table]:
        """Return the list of tables at `name`; a single table counts as a list of one."""
        value = self._value(name)
        if value is None:
            return []
        if isinstance(value, dict):
            return [Table(self.document, (*self.key, name), value)]
        if not isinstance(value, list):
            self._unexpected(name, "a table or a list of tables", value)
            return []
        found: list[Table] = []
        for position, item in enumerate(value):
            part = f"{name}[{position}]"
            if isinstance(item, dict):
                found.append(Table(self.document, (*self.key, part), item))
            else:
                self._unexpected(part, "a table", item)
        return found

    def named_tables(self) -> list[tuple[str, Table]]:
        """Return (name, table) for every key of this table, in the order of the file."""
        return [(name, self.table(name)) for name in self.names() if self._is_table(name)]

    def names(self, fit: re.Pattern[str] = NAME, said: str = NAME_SAID) -> list[str]:
        """Return the keys, which the user chose; one that does not `fit` is a mistake."""
        for name in self._data:
            self._asked[name] = None
            if not fit.fullmatch(name):
                self.mistake(said, name)
        return list(self._data)

    def is_string(self, name: str) -> bool:
        """Tell whether the value at `name` is a string, where several types are allowed."""
        return isinstance(self._data.get(name), str)

    def is_list(self, name: str) -> bool:
        """Tell whether the value at `name` is a list."""
        return isinstance(self._data.get(name), list)

    def finish(self) -> None:
        """Report every key that nothing asked for."""
        for name in self._data:
            if name not in self._asked:
                self.mistake(f"unknown key; {did_you_mean(name, self._asked)}", name)

    def _is_table(self, name: str) -> bool:
        if isinstance(self._data[name], dict):
            return True
        self._unexpected(name, "a table", self._data[name])
        return False

    def _value(self, name: str, required: str | None = None) -> object:
        self._asked[name] = None
        value = self._data.get(name)
        if value is None and required:
            self.mistake(f"missing; expected {required}", name)
        if isinstance(value, str) and "\0" in value:
            self.mistake("expected a string without NUL", name)
            return None
        return value

    def _unexpected(self, name: str, wanted: str, value: object) -> None:
        hint = ""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if (
            "string" in wanted
            and "number" not in wanted
            and is_number
            and _described(value) != "a huge number"
        ):
            hint = f' (put it in quotes: "{value}")'
        elif wanted == "a list of strings" and isinstance(value, str):
            hint = ' (["one", "two"])'
        self.mistake(f"expected {wanted}, got {_described(value)}{hint}", name)


def _is_word(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str) or (is_number and _described(value) != "a huge number")


def _shown(part: str) -> str:
    return part if re.fullmatch(r"[A-Za-z0-9_-]+(\[\d+\])?", part) else f'"{part}"'


def _described(value: object) -> str:
    match value:
        case bool():
            said = str(value).lower()
        case int() if abs(value) >= _HUGE:
            said = "a huge number"
        case int() | float():
            said = f"the number {value}"
        case str():
            said = repr(value) if len(value) <= 40 else "a long string"
        case list():
            said = "a list"
        case dict():
            said = "a table"
        case _:
            said = f"the {type(value).__name__} {value}"
    return said


def _syntax_mistake(message: str, text: str, path: Path) -> Mistake:
    # tomllib before 3.14 tells the position only inside its message
    found = re.search(r"\(at line (\d+), column (\d+)\)", message)
    last_line = text.count("\n") + 1
    line = int(found[1]) if found else last_line if "end of document" in message else None
    at_end = " at the end of the file" if "end of document" in message else ""
    column = f" at column {found[2]}" if found else at_end
    said = message.split(" (at ", maxsplit=1)[0]
    return Mistake(path, line, "", f"not valid TOML{column}: {said[0].lower()}{said[1:]}")
