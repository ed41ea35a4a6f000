"""Values in text: groups, durations, sizes, numbers in sentences, and Structs for JSON."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rater.system.patterns import compile_later


def group_by_key[K, V](pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values by key; keys and values stand in the order in which they come."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def interleave[T](queues: Iterable[Sequence[T]]) -> list[T]:
    """Return one of each queue, then the second one of each, and so on."""
    return [item for row in zip_longest(*queues) for item in row if item is not None]


# -- How a process ended ---------------------------------------------------------------------------


def signal_name(number: int) -> str:
    """Return the name of a signal, as in `SIGKILL`; most real-time signals are `signal 40`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ending_text(status: int) -> str:
    """Say how a process ended by its exit status, which is negative where a signal killed it."""
    return f"ended with status {status}" if status >= 0 else f"was killed by {signal_name(-status)}"


# -- Durations and sizes with units, as people type them: `90`, `500ms`, `1m30s`, `2G` -------------

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = compile_later(
    rf"(?<!\d)(\d++(?:\.\d++)?|\.\d++)({'|'.join(sorted(_UNITS_S, key=len, reverse=True))})"
)
_SIZE = compile_later(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)(?:i?[bB])?")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def duration_s(text: str) -> float:
    """Return seconds of `90`, `90s`, `500ms`, `1.5h`, `1m30s`; raises `ValueError`."""
    return _duration(text, "seconds", 1.0)


def duration_ms(text: str) -> float:
    """Return milliseconds of `6000`, `6s`, `500us`; raises `ValueError`."""
    return _duration(text, "milliseconds", 1e-3)


def size_bytes(text: str) -> int:
    """Return bytes of `4096`, `500M`, `2G`, `2GiB` (powers of 1024); raises `ValueError`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise ValueError(f"expected a size in bytes, as in 500M or 2G, got {text!r}")
    scale: int = 1024 ** _POWERS[match[2].lower()]
    return int(float(match[1]) * scale)


def _duration(text: str, plain_unit: str, unit_s: float) -> float:
    try:
        return float(text)  # of the plain unit; the option itself judges nan, inf and less than 0
    except ValueError:
        pass
    word = text.strip()
    parts = list(_PART.finditer(word))
    if not parts or "".join(part[0] for part in parts) != word:
        raise ValueError(
            f"expected {plain_unit} or a number with a unit (500ms, 90s, 2m, 1h30m), got {text!r}"
        )
    return sum(float(part[1]) * (_UNITS_S[part[2]] / unit_s) for part in parts)


# -- Numbers and lists in sentences, and per cent as people write it -------------------------------


def count(how_many: int, singular: str, plural: str | None = None) -> str:
    """Return `1 copy`, `2 copies`."""
    return f"{how_many} {singular if how_many == 1 else plural or singular + 's'}"


def copies_text(how_many: int) -> str:
    """Return `1 copy`, `2 copies`."""
    return count(how_many, "copy", "copies")


def truncate_list(texts: Sequence[str], most: int = 4) -> str:
    """Return the first `most` texts, and how many more there are: `a, b and 3 more`."""
    rest = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + rest


def join_and(texts: Sequence[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else "".join(texts)


def delimiter_of(heading: str) -> str:
    """Return what divides the cells of a table's first line: a comma, semicolon or tabulator."""
    return max(",;\t", key=heading.count)


def printable(text: str, most: int | None = None, instead: str = "?") -> str:
    """Return text of others for one line of a message, cut to `most` characters."""
    clean = "".join(sign if sign.isprintable() else instead for sign in text)
    return clean if most is None or len(clean) <= most else f"{clean[: most - 3]}..."


def printable_lines(text: str) -> str:
    """Return lines of text without what moves the cursor, or turns the direction of writing.

    Tabulators stay, and half surrogate pairs, which streams escape.
    """
    return text if text.isprintable() else text.translate(_LINES)


class _Lines(dict[int, str]):
    """What each character becomes, filled as they come: large exports go through it."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        clean = sign.isprintable() or sign in "\n\t" or "\ud800" <= sign <= "\udfff"
        return self.setdefault(code, sign if clean else "?")


_LINES = _Lines()


def runs_text(numbers: Sequence[int], most: int = 6) -> str:
    """Return `run 7`, or `runs 7, 8 and 9 more`."""
    return (
        f"run{'s' * (len(numbers) > 1)} {truncate_list([str(number) for number in numbers], most)}"
    )


def percent(share: float | None, places: int = 1) -> str:
    """Return a share (0.123) as the number of per cent (`12.3`), without the sign of per cent."""
    return "-" if share is None else f"{share * 100:.{places}f}"


def signed_percent(share: float | None, places: int = 1) -> str:
    """Return a change (0.123) as `+12.3`; what is rounded to nothing has no sign of less."""
    return "-" if share is None else f"{round(share * 100, places) + 0.0:+.{places}f}"


def parse_percent(text: str, below: float = 100) -> float | None:
    """Read `1%` or `1` as 0.01; None for what is no number from 0 to `below`."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        return None
    return value / 100 if 0 <= value < below else None


# -- Structs as values for JSON: all their fields, or the members that a table gives their class
#
# `{Usl: Members("sigma peak_copies=peak rms:5 law.limit", {"points": points_of})}` makes of every
# `Usl`, however deep it lies in what is turned into JSON, an object of those members in that order.

type Json = dict[str, Json] | list[Json] | str | int | float | bool | None
type _Reader = Callable[[Any], object]


class JsonFields:
    """The members of the JSON object that stands for an instance of a class.

    Made from mappings (key to a function of the instance) and strings of words:
    `name` an attribute, `key=name` the same under another key, `key=a.b` an attribute of
    an attribute (null where that is None), `name:5` rounded to so many decimals, `name?`
    null where it is empty or 0, `name{}` an object of the pairs it has, `*` all fields.
    What a mapping has under `*` are members too.
    """

    def __init__(self, *parts: str | Mapping[str, _Reader]) -> None:
        self.names: list[str] = []  # the attributes that an instance needs
        self._readers: list[tuple[str, _Reader]] = []
        for part in parts:
            if isinstance(part, str):
                self._readers += [self._parse_word(word) for word in part.split()]
            else:
                self._readers += part.items()

    def read(self, instance: object) -> dict[str, object]:
        """Return the members with their values, which need not be JSON yet."""
        members: dict[str, Any] = {}
        for key, reader in self._readers:
            value: Any = reader(instance)
            members |= value if key == "*" else {key: value}
        return members

    def _parse_word(self, word: str) -> tuple[str, _Reader]:
        if word == "*":
            return word, struct_fields
        shape: _Reader | None = None
        if word.endswith("{}"):
            word, shape = word[:-2], dict
        elif word.endswith("?"):
            word, shape = word[:-1], lambda value: value or None
        elif ":" in word:
            word, _, places = word.partition(":")

            def shape(value: float) -> float:
                return round(value, int(places))

        key, _, path = word.rpartition("=")
        attributes = path.split(".")
        self.names.append(attributes[0])

        def read(instance: object) -> object:
            value: Any = instance
            for attribute in attributes:
                value = None if value is None else getattr(value, attribute)
            return value if value is None or shape is None else shape(value)

        return key or attributes[-1], read


type Table = Mapping[Any, JsonFields]  # by class


def struct_fields(instance: Any) -> dict[str, Any]:
    """Return the fields of a Struct as they are; msgspec, of milliseconds, is not imported here."""
    return {name: getattr(instance, name) for name in instance.__struct_fields__}


def to_dict(instance: Any) -> dict[str, Any]:
    """Return a Struct as a dict of its fields, with those that they hold."""
    return {name: _to_plain(value) for name, value in struct_fields(instance).items()}


def _to_plain(value: Any) -> Any:
    if hasattr(type(value), "__struct_fields__"):
        return to_dict(value)
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    return type(value)(map(_to_plain, value)) if type(value) in (list, tuple) else value


def objects(keys: str, rows: Iterable[Sequence[object]]) -> list[dict[str, object]]:
    """Return a JSON object for each row, its values under `keys`."""
    names = keys.split()
    return [dict(zip(names, row, strict=True)) for row in rows]


def to_json(value: object, table: Table | None = None) -> Any:
    """Return `value` as JSON: enums by value, paths as text, sets ascending, keys as strings."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    members_by_class = table or {}
    if (members := members_by_class.get(type(value))) is not None:
        value = members.read(value)
    elif hasattr(type(value), "__struct_fields__"):
        value = struct_fields(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(member, members_by_class) for key, member in value.items()}
    if isinstance(value, set | frozenset):
        value = sorted(value)
    if isinstance(value, Iterable):
        return [to_json(member, members_by_class) for member in value]
    raise TypeError(f"{type(value).__name__} has no place in JSON")
