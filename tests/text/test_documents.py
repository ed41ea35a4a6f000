"""Documents: TOML and JSON read with every mistake named, and values written as JSON."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import stat
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

import rater
from rater.system.errors import InputError
from rater.text.documents import (
    MistakesError,
    TableReader,
    find_line,
    json_document,
    key_lines,
    read_text,
    toml_document,
)
from rater.text.kinds import (
    CPUS,
    FILLED_STRING,
    FLAG,
    LINE,
    STRING,
    WORD,
    ValueKind,
    choice,
    list_of,
    meaning,
    number,
    of_type,
    whole,
)
from rater.text.values import JsonFields, objects, to_json
from rater.wings import WINGS


def toml(text: str) -> TableReader:
    return toml_document(text, Path("f.toml")).root()


def of_json(value: object) -> TableReader:
    return json_document(json.dumps(value), "f.json").root()


def mistakes(table: TableReader) -> list[str]:
    return [str(mistake) for mistake in table.document.mistakes]


@pytest.mark.parametrize(
    ("kind", "value", "is_read"),
    [
        (STRING, "", ""),
        (FILLED_STRING, "a\nb", "a\nb"),
        (LINE, "é", "é"),
        (WORD, 1.5, "1.5"),
        (FLAG, False, False),
        (CPUS, "8,0-2,1", (0, 1, 2, 8)),
        (whole(1, 3), 3, 3),
        (number(), 2, 2.0),
        (choice(("a", "b")), "b", "b"),
        (meaning({"a": 0}), "a", 0),
        (list_of(whole()), [2, 1], (2, 1)),
    ],
)
def test_a_value_of_its_kind_is_read(kind: ValueKind[Any], value: object, is_read: object) -> None:
    found = of_json({"a": value}).get("a", kind)
    assert (found, type(found)) == (is_read, type(is_read))


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (STRING, 5, 'expected a string, got the number 5 (put it in quotes: "5")'),
        (STRING, 10**400, "expected a string, got a huge number"),
        (STRING, "a\0", "expected a string without NUL, got 'a\\x00'"),
        (STRING, ["x"], "expected a string, got a list"),
        (FILLED_STRING, "", "expected a string, got an empty one"),
        (LINE, "a\nb", "expected a text of printable characters, got 'a\\nb'"),
        (LINE, "\ud800", "expected a text of printable characters, got '\\ud800'"),
        (LINE, "", "expected a text of printable characters, got ''"),
        (WORD, True, "expected a string or a number, got true"),
        (WORD, 10**400, "expected a string or a number, got a huge number"),
        (FLAG, 1, "expected true or false, got the number 1"),
        (CPUS, "3-1", "the range 3-1 in '3-1' runs backwards"),
        (CPUS, 3, 'expected a string, got the number 3 (put it in quotes: "3")'),
        (whole(1, 3), 0, "expected a whole number from 1 to 3, got the number 0"),
        (whole(1, 3), True, "expected a whole number from 1 to 3, got true"),
        (whole(1, 3), 2.0, "expected a whole number from 1 to 3, got the number 2.0"),
        (whole(1, 3), 10**400, "expected a whole number from 1 to 3, got a huge number"),
        (number(), -1, "expected a number, 0 or more, got the number -1"),
        (number(), float("nan"), "expected a number, 0 or more, got the number nan"),
        (number(9), float("inf"), "expected a number of at most 9, got the number inf"),
        (number(9), 10**400, "expected a number of at most 9, got a huge number"),
        (number(positive=True), 0, "expected a number above 0, got the number 0"),
        (number(unit="seconds"), "1", "expected a number of seconds, 0 or more, got '1'"),
        (choice(("a", "b")), [], 'expected "a" or "b", got a list'),
        (choice(("a", "b")), "x" * 50, 'expected "a" or "b", got a long string'),
        (list_of(whole(0, 9)), {"b": 1}, "expected a list, got an object"),
    ],
)
def test_another_value_is_a_mistake_with_what_was_expected(
    kind: ValueKind[Any], value: object, said: str
) -> None:
    table = of_json({"a": value})
    assert table.get("a", kind, "default") == "default"
    assert table.get("a", kind) == kind.zero
    assert mistakes(table) == [f"f.json: a: {said}"]


def test_a_key_that_is_absent_or_null_has_its_default_or_is_missed() -> None:
    table = of_json({"null": None})
    assert (table.get("null", STRING, None), table.get("none", whole(), 7)) == (None, 7)
    assert "null" not in table
    assert (table.get("null", STRING), table.get("none", whole(3))) == ("", 3)
    assert mistakes(table) == [
        "f.json: null: expected a string, got null",
        "f.json: none: missing; expected a whole number from 3 to 2147483647",
    ]


def test_unknown_keys_are_named_with_the_nearest_known_one() -> None:
    table = toml("[t]\nspeed = 1\n\n[other]\n")
    table.table("t").get("speed", whole())
    table.table("t").finish()
    table.finish()
    assert mistakes(table) == [
        "f.toml:2: t.speed: unknown key; there are none",
        "f.toml:4: other: unknown key; there are: t",
    ]
    table = toml("sped = 1")
    table.get("speed", whole(), 0)
    table.finish()
    assert mistakes(table) == ["f.toml:1: sped: unknown key; did you mean speed?"]


def test_lists_and_tables_name_every_wrong_item() -> None:
    table = of_json({"names": ["a", 1, None], "rows": [{"x": 1}, 2], "one": {}, "text": "a"})
    assert table.strings("names") == ("a",)
    (row,) = table.tables("rows")
    assert row.get("x", whole()) == 1
    assert (table.tables("one"), len(table.tables("one", single=True))) == ([], 1)
    assert (table.strings("text"), table.strings("none")) == ((), ())
    assert (table.strings("gone", at_least_one=True), table.tables("away", required=True)) == (
        (),
        [],
    )
    assert mistakes(table) == [
        'f.json: names[1]: expected a string, got the number 1 (put it in quotes: "1")',
        "f.json: names[2]: expected a string, got null",
        "f.json: rows[1]: expected an object, got the number 2",
        "f.json: one: expected a list, got an object",
        'f.json: text: expected a list of strings, got \'a\' (["one", "two"])',
        "f.json: gone: missing; expected a list of strings",
        "f.json: away: missing; expected a list",
    ]


def test_a_required_key_may_be_empty_and_at_least_one_item_is_more() -> None:
    table = of_json({"words": [], "rows": [], "one": {}})
    assert table.tables("rows", required=True) == []
    assert table.table("one", required=True).names() == []
    assert mistakes(table) == []
    assert table.strings("words", at_least_one=True) == ()
    assert mistakes(table) == [
        "f.json: words: expected a list of strings, got an empty one",
    ]


def test_all_mistakes_stand_in_one_error_but_no_more_than_anyone_reads() -> None:
    table = of_json({"a": 1, "b": 2})
    table.mistake("odd", "a")
    table.mistake("odd", "a")
    table.mistake("odd too")
    with pytest.raises(InputError) as caught:
        table.document.raise_mistakes()
    assert str(caught.value) == "f.json has 2 mistakes:\nf.json: a: odd\nf.json: odd too"
    rows = of_json({"rows": [{}] * 10_000}).tables("rows")
    with pytest.raises(MistakesError, match=r"f\.json has 100 mistakes"):
        for row in rows:
            row.get("cpu", whole())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "f.json:1:1: not JSON (Expecting value); expected a run"),
        (b'{"rater": 1,\n "run": }', "f.json:2:9: not JSON (Expecting value); expected a run"),
        (b"\xff\xfe", "f.json: not UTF-8 text (byte 0); expected JSON"),
        (b"[" * 100_000, "f.json: not JSON that can be read"),
        (b'{"rater": ' + b"9" * 5000 + b"}", "f.json: not JSON that can be read"),
        (b"[]", "f.json: expected an object, got a list"),
        (b"null", "f.json: expected an object, got null"),
    ],
)
def test_what_is_no_json_object_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(InputError) as caught:
        json_document(data, "f.json", "a run").root()
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = \n", "f.toml:1: not valid TOML at column 5: invalid value"),
        ("a = [1,", "f.toml:1: not valid TOML at the end of the file: "),
        (f"a = 1{'0' * 5000}", "f.toml: not valid TOML: "),
        ("b = 1\na" + ".a" * 900_000 + " = 1", "f.toml:2: a key of more than 32 parts"),
        ("[a" + '."b"' * 400_000 + "]", "f.toml:1: a key of more than 32 parts"),
        ("x = {a=1, a" + " . a" * 400_000 + " = 1}", "f.toml:1: a key of more than 32 parts"),
        ("a=1\n" * 600_000, "f.toml: more than 2 MB of TOML: long texts can be files of their own"),
    ],
)
def test_what_is_no_toml_is_refused(text: str, said: str) -> None:
    with pytest.raises(MistakesError) as caught:
        toml(text)
    assert str(caught.value).startswith(said)


# -- dataclasses ----------------------------------------------------------------------------------


class Colour(StrEnum):
    RED = "red"


class Part(Struct, frozen=True):
    cpu: int | None
    share: float = 0.5


class Whole(Struct, frozen=True):
    name: str
    colour: Colour
    parts: tuple[Part, ...] = ()
    pairs: tuple[tuple[str, int], ...] = ()
    ready: bool = False


def test_a_dataclass_is_read_by_its_fields() -> None:
    value = {
        "name": "\udc80",  # an argument of a command that is no UTF-8
        "colour": "red",
        "parts": [{"cpu": 3, "share": 1}, {"cpu": None}],
        "pairs": [["a", 1]],
        "ready": True,
    }
    parts = (Part(3, 1), Part(None))
    assert of_type(Whole).read(value) == Whole(
        name="\udc80", colour=Colour.RED, parts=parts, pairs=(("a", 1),), ready=True
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": None}, "name: expected a string, got null"),
        ({"colour": "blue"}, "colour: invalid enum value 'blue'"),
        ({"parts": [{"cpu": 1}, {"cpu": True}]}, "parts[1].cpu: expected a whole number or null"),
        ({"parts": [{}]}, "parts[0]: object missing required field `cpu`"),
        ({"parts": [7]}, "parts[0]: expected an object, got a whole number"),
        ({"parts": [{"cpu": 1, "share": "x"}]}, "parts[0].share: expected a number, got a string"),
        ({"pairs": [["a"]]}, "pairs[0]: expected a list of length 2, got 1"),
        ({"pairs": [["a", "b"]]}, "pairs[0][1]: expected a whole number, got a string"),
        ({"ready": 1}, "ready: expected true or false, got a whole number"),
    ],
)
def test_a_field_of_another_type_is_named_with_its_place(
    change: dict[str, object], said: str
) -> None:
    value = {"name": "a", "colour": "red"} | change
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        of_type(Whole).read(value)


# -- lines of TOML keys ---------------------------------------------------------------------------


def test_text_inside_a_long_string_is_not_taken_for_keys() -> None:
    text = 'a = """\n[b]\nc = 1\n"""\n[b]\nc.d = 2\n"e f" = 3\n'
    assert key_lines(text) == {
        ("a",): 1,
        ("b",): 5,
        ("b", "c"): 6,
        ("b", "c", "d"): 6,
        ("b", "e f"): 7,
    }


@pytest.mark.parametrize(
    "start",
    [
        '# """ in a comment',
        'x = 1 # """ behind a value',
        "x = '#' # ''' and \"",
        'x = "\\"#" # """',
        'x = """a\\""" # " """ # \'\'\'',
        "x = ''''a''''' # [",
        'x = """#"""',
        'x = [ "]", # [ """\n["b"]\n]',
    ],
)
def test_quotes_and_brackets_in_comments_and_strings_open_nothing(start: str) -> None:
    tomllib.loads(start)  # these are no mistakes
    lines = key_lines(f"{start}\n[t]\ny = 1\n")
    behind = start.count("\n") + 2
    assert lines.pop(("x",), 1) == 1
    assert lines == {("t",): behind, ("t", "y"): behind + 1}


def test_tables_in_double_brackets_are_counted() -> None:
    lines = key_lines("[[a]]\nb = 1\n[[a]]\nb = 2\n[a.c]\nd = 3\n[[a.e]]\n[[a.e]]\nf = 4\n")
    assert lines["a[0]", "b"] == 2
    assert lines["a[1]", "b"] == 4
    assert lines["a[1]", "c", "d"] == 6
    assert lines["a[1]", "e[1]", "f"] == 9
    assert find_line(lines, ("a[1]", "b[7]")) == 4
    assert find_line(lines, ("a[0]", "unknown")) == 1
    assert find_line(lines, ("a",)) == 1
    assert find_line(lines, ("z",)) is None


def test_a_file_that_has_nothing_to_be_read_yet_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    # /proc/kmsg is such a regular file; to read it would take the kernel's messages from others.
    monkeypatch.setattr(stat, "S_ISREG", stat.S_ISFIFO)
    writer = os.open(path, os.O_RDWR)
    try:
        with pytest.raises(OSError, match="Resource temporarily unavailable"):
            read_text(path)
    finally:
        os.close(writer)


class Inner(Struct, frozen=True):
    share: float
    name: str = ""
    pairs: tuple[tuple[int, str], ...] | None = None


class Outer(Struct, frozen=True):
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
        package
        for part in ("show", *WINGS)
        for package in pkgutil.walk_packages([f"{rater.__path__[0]}/{part}"], f"rater.{part}.")
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
        and not (issubclass(cls, Struct) and name in cls.__struct_fields__)
    ]
    assert missing == []
