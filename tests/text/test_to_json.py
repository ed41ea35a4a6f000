"""Dataclasses as values for JSON, and the tables that say which members they have."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

import rater
from rater.text.values import JsonFields, objects, to_json
from rater.wings import WINGS


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    share: float
    name: str = ""
    pairs: tuple[tuple[int, str], ...] | None = None


@dataclass(frozen=True)
class Outer:
    colour: Colour
    inner: Inner | None
    many: tuple[Inner, ...] = ()

    @property
    def size(self) -> int:
        return len(self.many)


def test_without_a_table_all_fields_are_members() -> None:
    value = Outer(Colour.RED, None, (Inner(0.5, "a", ((3, "x"),)),))
    many = [{"share": 0.5, "name": "a", "pairs": [[3, "x"]]}]
    assert to_json(value) == {"colour": "red", "inner": None, "many": many}
    assert json.dumps(to_json([Path("/a"), {2, 1}, {3: Colour.RED}, (1, 2.5, True)])) == (
        '["/a", [1, 2], {"3": "red"}, [1, 2.5, true]]'
    )


@pytest.mark.parametrize(
    ("words", "members"),
    [
        ("size colour", {"size": 1, "colour": "red"}),
        ("how_many=size", {"how_many": 1}),
        ("inner.share part=inner.share", {"share": 0.123456, "part": 0.123456}),
        ("share=inner.share:2", {"share": 0.12}),
        ("inner.name?", {"name": None}),
        ("inner.pairs{}", {"pairs": {"3": "x"}}),
        ("* size", {"colour": "red", "inner": "in", "many": ["in"], "size": 1}),
    ],
)
def test_words_name_members(words: str, members: dict[str, Any]) -> None:
    inner = Inner(0.123456, "", ((3, "x"),))
    table: dict[Any, JsonFields] = {Outer: JsonFields(words)}
    if "*" in words:
        table[Inner] = JsonFields({"*": lambda _: {"short": "in"}})
        members |= {"inner": {"short": "in"}, "many": [{"short": "in"}]}
    found = to_json(Outer(Colour.RED, inner, (inner,)), table)
    assert found == members
    assert list(found) == list(members)  # in this order


@pytest.mark.parametrize("words", ["inner.share", "share=inner.share:2", "share=inner.name?"])
def test_what_is_not_there_is_null(words: str) -> None:
    assert to_json(Outer(Colour.RED, None), {Outer: JsonFields(words)}) == {"share": None}


def test_functions_make_members_between_words() -> None:
    table = {
        Outer: JsonFields("size", {"*": lambda it: {"a": it.size, "b": it.inner}}, "colour"),
        Inner: JsonFields({"doubled": lambda it: it.share * 2}),
    }
    found = to_json(Outer(Colour.RED, Inner(0.25)), table)
    assert list(found.items()) == [
        ("size", 0),
        ("a", 0),
        ("b", {"doubled": 0.5}),
        ("colour", "red"),
    ]


def test_rows_become_objects() -> None:
    assert objects("run place", [(1, "a"), (2, "b")]) == [
        {"run": 1, "place": "a"},
        {"run": 2, "place": "b"},
    ]
    with pytest.raises(ValueError, match="zip"):
        objects("run place", [(1, "a", 2)])


def test_what_has_no_place_in_json_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no place in JSON"):
        to_json({"a": object()})


def tables() -> Iterator[tuple[str, type, JsonFields]]:
    """Every class with its members in the tables of the package."""
    found = (
        it
        for part in ("show", *WINGS)
        for it in pkgutil.walk_packages([f"{rater.__path__[0]}/{part}"], f"rater.{part}.")
    )
    for module in found:
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, dict):
                for key, members in value.items():
                    if isinstance(members, JsonFields):
                        yield f"{module.name}.{name}", key, members


def test_tables_name_attributes_that_their_classes_have() -> None:
    found = list(tables())
    assert len(found) > 30
    missing = [
        f"{where}: {cls.__name__}.{name}"
        for where, cls, members in found
        for name in members.names
        if not hasattr(cls, name)
        and not (is_dataclass(cls) and name in {field.name for field in fields(cls)})
    ]
    assert missing == []
