"""What a value of TOML or JSON must be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from rater.system.patterns import compile_later
from rater.text import cpuset

LARGEST = 2**31 - 1  # whole number, unless a reader says otherwise
_HUGE = 10**18  # beyond this Python may refuse to print a whole number
_SHOWN = 40  # characters of a value in a message


class WrongKindError(Exception):
    """A value of another kind than expected; `place` is within a list or an object: `[2].cpu`."""

    def __init__(self, expected: str, value: object, place: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.value = value
        self.at = place


class ValueKind[T](NamedTuple):
    """A kind of values."""

    expected: str  # "a whole number from 0 to 9"
    # The value, converted; None for one that is not of this kind. It may raise `WrongKindError`
    # itself, and `ValueError` with a whole message.
    convert: Callable[[Any], T | None]
    zero: T  # any value of this kind: with it reading goes on after a mistake

    def read(self, value: object, place: str = "") -> T:
        """Return the value, converted. Raises `WrongKindError`, `ValueError`."""
        try:
            converted = self.convert(value)
        except WrongKindError as error:
            raise WrongKindError(error.expected, error.value, place + error.at) from None
        if converted is None:
            raise WrongKindError(self.expected, value, place)
        return converted


def is_number(value: object) -> bool:
    """Tell whether a value is a number; true and false are none, though Python counts with them."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def describe_value(value: object, table: str = "a table") -> str:
    """Return what a value is, short enough for a message; `table` is the format's word."""
    match value:
        case None:
            text = "null"
        case bool():
            text = str(value).lower()
        case int() if abs(value) >= _HUGE:
            text = "a huge number"
        case int() | float():
            text = f"the number {value}"
        case str():
            text = repr(value) if len(value) <= _SHOWN else "a long string"
        case list():
            text = "a list"
        case dict():
            text = table
        case _:
            text = f"the {type(value).__name__} {value}"
    return text


def _string(value: Any) -> str | None:
    if isinstance(value, str) and "\0" in value:  # no argument or path can hold one
        raise WrongKindError("a string without NUL", value)
    return value if isinstance(value, str) else None


def _filled_string(value: Any) -> str | None:
    if value == "":
        raise ValueError("expected a string, got an empty one")
    return _string(value)


def _word(value: Any) -> str | None:
    is_word = is_number(value) and describe_value(value) != "a huge number"
    return str(value) if is_word else _string(value)


STRING = ValueKind("a string", _string, "")
FILLED_STRING = ValueKind("a string", _filled_string, "")
# A line can stand in a table: neither NUL nor half a surrogate pair of JSON is printable.
LINE = ValueKind(
    "a text of printable characters",
    lambda value: value if isinstance(value, str) and value and value.isprintable() else None,
    "",
)
WORD = ValueKind("a string or a number", _word, "")  # as text
FLAG = ValueKind(
    "true or false", lambda value: value if isinstance(value, bool) else None, zero=False
)
CPUS: ValueKind[tuple[int, ...]] = ValueKind(  # "0-3,8", ascending, each once
    "a string", lambda value: tuple(sorted(cpuset.parse_set(STRING.read(value)))), ()
)


def whole(least: int = 0, most: int = LARGEST) -> ValueKind[int]:
    """Return the kind of whole numbers from `least` to `most`."""
    return ValueKind(
        f"a whole number from {least} to {most}",
        lambda value: value if type(value) is int and least <= value <= most else None,
        least,
    )


def number(most: float = 1e300, *, positive: bool = False, unit: str = "") -> ValueKind[float]:
    """Return the kind of finite numbers from 0 (`positive`: above 0) to `most`."""
    name = f"a number of {unit}" if unit else "a number"

    def convert(value: Any) -> float | None:
        if not is_number(value):
            return None
        if value > most:  # compared before converted: a whole number has no limit
            raise WrongKindError(f"{name} of at most {most:g}", value)
        return float(value) if value > 0 or (value == 0 and not positive) else None

    return ValueKind(f"{name} above 0" if positive else f"{name}, 0 or more", convert, most)


def choice[V](choices: Iterable[V]) -> ValueKind[V]:
    """Return the kind of values that are named by their texts."""
    return meaning({str(member): member for member in choices})


def meaning[V](words: Mapping[str, V]) -> ValueKind[V]:
    """Return the kind of what some words stand for."""
    return ValueKind(
        " or ".join(f'"{word}"' for word in words),
        lambda value: words.get(value) if isinstance(value, str) else None,
        next(iter(words.values())),
    )


def list_of[T](kind: ValueKind[T], expected: str = "a list") -> ValueKind[tuple[T, ...]]:
    """Return the kind of lists of a kind."""

    def convert(value: Any) -> tuple[T, ...] | None:
        if not isinstance(value, list):
            return None
        return tuple(kind.read(item, f"[{position}]") for position, item in enumerate(value))

    return ValueKind(expected, convert, ())


@cache
def of_type(hint: Any) -> ValueKind[Any]:
    """Return the kind of an annotation as msgspec reads it; a mistake is a `ValueError`."""
    import msgspec  # noqa: PLC0415 - help does without it

    def convert(value: Any) -> Any:
        try:
            return msgspec.convert(value, hint)
        except msgspec.ValidationError as error:  # "Expected `int`, got `str` - at `$.cpus[2]`"
            problem, _, path = str(error).partition(" - at `$")
            problem = _TYPES.sub(lambda types: _describe_types(types[1]), problem)
            problem = problem[0].lower() + problem[1:]
            place = path.strip("`.").replace("[...]", "a value")
            raise ValueError(f"{place}: {problem}" if place else problem) from None

    return ValueKind("a value of another kind", convert, None)


_TYPES = compile_later(r"`((?:int|float|str|bool|array|object|null| \| )+)`")


def _describe_types(names: str) -> str:
    """Return the types of JSON in `int | null` in words."""
    return " or ".join(_describe_type(name) for name in names.split(" | "))


def _describe_type(name: str) -> str:
    return {
        "str": "a string",
        "bool": "true or false",
        "int": "a whole number",
        "float": "a number",
        "array": "a list",
        "object": "an object",
    }.get(name, name)


def from_json(hint: Any, text: str) -> Any:
    """Return what JSON text holds, as an annotation says. Raises `ValueError` for anything else."""
    try:
        return of_type(hint).convert(json.loads(text))
    except (RecursionError, TypeError) as error:  # nested too deep, or no text
        raise ValueError(str(error)) from None
