"""Dataclasses as values for JSON: all their fields, or the members that a table gives their class.

`{Usl: Members("sigma peak_copies=peak rms:5 law.limit", {"points": points_of})}` makes of every
`Usl`, however deep it lies in what is turned into JSON, an object of those members in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

type Json = dict[str, Json] | list[Json] | str | int | float | bool | None
type _Reader = Callable[[Any], object]


class Members:
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
                self._readers += [self._word(word) for word in part.split()]
            else:
                self._readers += part.items()

    def of(self, instance: object) -> dict[str, object]:
        """Return the members with their values, which need not be JSON yet."""
        found: dict[str, Any] = {}
        for key, reader in self._readers:
            value: Any = reader(instance)
            found |= value if key == "*" else {key: value}
        return found

    def _word(self, word: str) -> tuple[str, _Reader]:
        if word == "*":
            return word, all_fields
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


type Table = Mapping[Any, Members]  # by class


def all_fields(instance: Any) -> dict[str, Any]:
    """Return the fields of a dataclass with their values, as they are."""
    return {field.name: getattr(instance, field.name) for field in fields(instance)}


def objects(keys: str, rows: Iterable[Sequence[object]]) -> list[dict[str, object]]:
    """Return a JSON object for each row, its values under `keys`."""
    names = keys.split()
    return [dict(zip(names, row, strict=True)) for row in rows]


def to_json(value: object, table: Table | None = None) -> Any:
    """Return `value` as JSON: enums by value, paths as text, sets ascending, keys as strings."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    known = table or {}
    if (members := known.get(type(value))) is not None:
        value = members.of(value)
    elif is_dataclass(value):
        value = all_fields(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(one, known) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        value = sorted(value)
    if isinstance(value, Iterable):
        return [to_json(one, known) for one in value]
    raise TypeError(f"{type(value).__name__} has no place in JSON")
