"""JSON objects of other people's files: every value checked, every error with its way there."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, NoReturn

from rater.errors import InputError
from rater.text.cpuset import MAX_NUMBER

LARGEST = 2**31 - 1  # iterations, copies
LONGEST_S = 1e9  # about 30 years; keeps start + elapsed in 64-bit nanoseconds
_SHOWN = 40


def parse_json(data: bytes, file: str) -> Any:
    """Return the value of a JSON text; raises `InputError` naming `file` and the line."""
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 text (byte {error.start}); expected JSON") from error
    except json.JSONDecodeError as error:
        raise InputError(
            f"{file}:{error.lineno}:{error.colno}: not JSON ({error.msg}); expected an "
            "observations document as `rater export RUN --format observations` writes it "
            "(raw files and logs of SPEC CPU: `rater import spec FILE`)"
        ) from error
    except (ValueError, RecursionError) as error:  # a number of 4300 digits, or nested too deeply
        raise InputError(f"{file}: not JSON that can be read ({error})") from error


class JsonObject:
    """One JSON object and the path of keys that led to it.

    Every method takes a key and returns its value, checked; it raises `InputError`
    with file, path and what was expected.
    """

    __slots__ = ("_file", "_path", "_values")

    def __init__(self, value: Any, file: str, path: str = "") -> None:
        self._file = file
        self._path = path
        if type(value) is not dict:
            where = f"{file}: {path}" if path else file
            raise InputError(f"{where}: expected an object, found {_shown(value)}")
        self._values: dict[str, Any] = value

    def wrong(self, key: str, expected: str) -> NoReturn:
        """Raise the error for the value of `key`."""
        path = f"{self._path}.{key}" if self._path else key
        found = _shown(self._values[key]) if key in self._values else "nothing"
        raise InputError(f"{self._file}: {path}: expected {expected}, found {found}")

    def names(self) -> list[str]:
        """Return the keys in the order of the document."""
        return list(self._values)

    def object(self, key: str) -> JsonObject:
        """Return an object."""
        path = f"{self._path}.{key}" if self._path else key
        return JsonObject(self._values.get(key), self._file, path)

    def object_or_none(self, key: str) -> JsonObject | None:
        """Return an object, None for null or nothing."""
        return None if self._values.get(key) is None else self.object(key)

    def objects(self, key: str) -> list[JsonObject]:
        """Return a list of objects."""
        values = self._values.get(key)
        if type(values) is not list:
            self.wrong(key, "a list")
        path = f"{self._path}.{key}" if self._path else key
        return [JsonObject(it, self._file, f"{path}[{n}]") for n, it in enumerate(values)]

    def text(self, key: str) -> str:
        """Return a text that can stand in a table: printable, not empty."""
        value = self._values.get(key)
        if type(value) is not str or not value or not value.isprintable():
            self.wrong(key, "a text of printable characters")
        return value

    def text_or_none(self, key: str) -> str | None:
        """Return the same, None for null or nothing."""
        return None if self._values.get(key) is None else self.text(key)

    def choice(self, key: str, choices: dict[str, Any]) -> Any:
        """Return what `choices` has for the text of `key`."""
        value = self._values.get(key)
        if type(value) is not str or value not in choices:
            self.wrong(key, f"one of {', '.join(choices)}")
        return choices[value]

    def one_of(self, key: str, choices: Collection[str]) -> str | None:
        """Return the text of `key` if it is one of `choices`: others may mean something else."""
        value = self._values.get(key)
        return value if type(value) is str and value in choices else None

    def has(self, key: str) -> bool:
        """Tell whether `key` has a value other than null."""
        return self._values.get(key) is not None

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false, `default` for nothing."""
        value = self._values.get(key, default)
        if type(value) is not bool:
            self.wrong(key, "true or false")
        return value

    def whole(self, key: str, least: int = 0) -> int:
        """Return a whole number."""
        value = self._values.get(key)
        if type(value) is not int or not least <= value <= LARGEST:
            self.wrong(key, f"a whole number from {least} to {LARGEST}")
        return value

    def place(self, key: str) -> int | None:
        """Return the number of a CPU, core, node or package, None where it is not known."""
        value = self._values.get(key)
        if value is None:
            return None
        if type(value) is not int or not 0 <= value <= MAX_NUMBER:
            self.wrong(key, f"null or a whole number from 0 to {MAX_NUMBER}")
        return value

    def places(self, key: str) -> tuple[int, ...]:
        """Return a list of such numbers, empty for null or nothing."""
        values = self._values.get(key)
        if values is None:
            return ()
        if type(values) is not list or not all(
            type(it) is int and 0 <= it <= MAX_NUMBER for it in values
        ):
            self.wrong(key, f"a list of whole numbers from 0 to {MAX_NUMBER}")
        return tuple(values)

    def number(self, key: str, unit: str) -> float:
        """Return a number from 0 that is neither NaN nor infinite."""
        value = self._values.get(key)
        # NaN is not at least 0; true is of another type, though it is an int.
        fits = (type(value) is float or type(value) is int) and 0 <= value <= LONGEST_S
        if not fits:
            self.wrong(key, f"a number of {unit} from 0 to {LONGEST_S:.0f}")
        return float(self._values[key])

    def nanoseconds(self, key: str) -> int:
        """Return a number of seconds as nanoseconds."""
        return round(self.number(key, "seconds") * 1e9)

    def nanoseconds_or_none(self, key: str) -> int | None:
        """Return the same, None for null or nothing."""
        return None if self._values.get(key) is None else self.nanoseconds(key)


def _shown(value: Any) -> str:
    if type(value) in (dict, list):
        return f"{'an object' if type(value) is dict else 'a list'} of {len(value)}"
    if type(value) is int and abs(value) > LARGEST**4:  # too long to write out
        return "a whole number of many digits"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
