import os
import tomllib
from pathlib import Path

import pytest

from rater.errors import InputError
from rater.plan.layout import load_layout
from rater.plan.suite import (
    Expected,
    load_suite,
    parse_suite,
    select,
    split_selection,
    suite_names,
)
from rater.plan.tomltable import MistakesError, key_lines

HEAD = '[suite]\nformat = 1\nname = "own"\n'
WHOLE = """\
[suite]
format = 1
name = "own"
description = "two programs"
reference_machine = "a laptop"
[flags]
base = ["-O1"]
[benchmarks.triad]
category = "fp"
description = "streams"
sources = ["src/triad.c"]
libraries = ["-lm"]
flags.peak = ["-O3"]
[benchmarks.triad.sizes.test]
args = ["100", "50"]
reference_s = 0.5
memory_mb = 12
disk_mb = 1.5
expected = "sum 1.5\\n"
relative_tolerance = 1e-6
[benchmarks.pack]
category = "int"
command = ["bin/pack", "-v"]
[benchmarks.pack.sizes.train]
inputs = [
  { name = "a.txt", path = "a.txt" },
  { name = "b.bin", generator = { sources = ["gen.c"], args = ["7", "{output}"] } },
]
expected = [ { text = "ok" }, { file = "out.txt", text = "1", absolute = 0.5 } ]
"""


def mistakes_of(text: str) -> list[str]:
    with pytest.raises(MistakesError) as caught:
        parse_suite(text, Path("/own/own.toml"))
    return [str(mistake) for mistake in caught.value.mistakes]


def with_benchmark(lines: str, size: str = "") -> str:
    return f"{HEAD}[benchmarks.a]\n{lines}\n[benchmarks.a.sizes.test]\n{size}\n"


def test_a_suite_is_read_whole_in_its_declared_order() -> None:
    suite = parse_suite(WHOLE, Path("/own/own.toml"))
    triad, pack = suite.benchmarks
    assert (suite.name, suite.reference_machine) == ("own", "a laptop")
    assert (triad.name, triad.category, triad.sources) == (
        "triad",
        "fp",
        (Path("/own/src/triad.c"),),
    )
    assert triad.flags == {"base": ("-O1",), "peak": ("-O3",)}
    size = triad.sizes["test"]
    assert (size.commands[0].args, size.reference_s, size.memory_bytes, size.disk_bytes) == (
        ("100", "50"),
        0.5,
        12_000_000,
        1_500_000,
    )
    assert size.expected == (Expected("stdout", "sum 1.5\n", 0.0, 1e-6),)
    assert (pack.command, pack.flags) == (("/own/bin/pack", "-v"), {})
    train = pack.sizes["train"]
    assert (train.reference_s, train.memory_bytes) == (None, None)
    assert [i.name for i in train.inputs] == ["a.txt", "b.bin"]
    assert train.inputs[0].path == Path("/own/a.txt")
    assert train.inputs[1].generator is not None
    assert train.inputs[1].generator.args == ("7", "{output}")
    assert train.expected == (
        Expected("stdout", "ok", 0.0, 0.0),
        Expected("out.txt", "1", 0.5, 0.0),
    )


def test_a_command_without_a_slash_is_left_for_the_path() -> None:
    suite = parse_suite(with_benchmark('command = ["xz", "-9"]'), Path("/own/own.toml"))
    assert suite.benchmarks[0].command == ("xz", "-9")


def test_a_syntax_error_names_file_and_line() -> None:
    assert mistakes_of("[suite]\nname = \n") == [
        "/own/own.toml:2: not valid TOML at column 8: invalid value"
    ]


def test_a_wrong_value_names_file_line_key_and_what_was_expected() -> None:
    text = with_benchmark('sources = ["a.c"]', "args = [100]\nreference_s = 0")
    assert mistakes_of(text) == [
        "/own/own.toml:7: benchmarks.a.sizes.test.args[0]: "
        'expected a string, got the number 100 (put it in quotes: "100")',
        "/own/own.toml:8: benchmarks.a.sizes.test.reference_s: "
        "expected a number above 0, got the number 0",
    ]


def test_an_unknown_key_is_an_error_with_the_nearest_known_one() -> None:
    text = with_benchmark('source = ["a.c"]\ncategory = "fp"')
    assert mistakes_of(text) == [
        "/own/own.toml:4: benchmarks.a: expected either sources = [...] or command = [...]",
        "/own/own.toml:5: benchmarks.a.source: unknown key; did you mean sources?",
    ]


def test_all_mistakes_are_told_together_each_on_its_own_line() -> None:
    text = HEAD.replace("1", '"1"') + 'other = 1\n[benchmarks."a b"]\ncommand = []\n[flag]\n'
    with pytest.raises(InputError) as caught:
        parse_suite(text, Path("own.toml"))
    message = str(caught.value)
    assert message.splitlines()[0] == "own.toml has 6 mistakes:"
    assert [line.split(": ")[1] for line in message.splitlines()[1:]] == [
        "suite.format",
        "suite.other",
        'benchmarks."a b"',
        'benchmarks."a b".sizes',
        'benchmarks."a b".command',
        "flag",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD, "benchmarks: missing; expected a table"),
        (HEAD + "[benchmarks]", "a suite needs at least one [benchmarks.NAME]"),
        (HEAD + "[benchmarks]\nx = 3", "benchmarks.x: expected a table, got the number 3"),
        (HEAD + '[benchmarks.a]\ncommand = ["a"]', "benchmarks.a.sizes: missing"),
        (HEAD.replace("1", "2"), "suite.format: this rater reads format 1, got 2: update rater"),
        ("[suite]", "suite.format: missing; expected format = 1"),
        (with_benchmark('command = ["a"]\nlibraries = ["-lm"]'), "a command is not compiled"),
        (with_benchmark('command = ["a"]\ncategory = "FP"'), 'expected "int" or "fp", got \'FP\''),
        (with_benchmark('command = "a"'), "expected a list of strings, got 'a'"),
        (with_benchmark('command = ["a\\u0000"]'), "expected a string without NUL"),
        (with_benchmark('command = ["a"]', "absolute_tolerance = 1"), "needs something expected"),
        (with_benchmark('command = ["a"]', "memory_mb = nan"), "got the number nan"),
        (with_benchmark('command = ["a"]', "memory_mb = true"), "got true"),
        (
            with_benchmark('command = ["a"]', f"memory_mb = 1{'0' * 400}"),
            "at most 1e+12, got a huge",
        ),
        (with_benchmark('command = ["a"]', f"memory_mb = 1{'0' * 5000}"), "not valid TOML"),
        (
            with_benchmark('command = ["a"]', 'inputs = [{ name = "../x", path = "x" }]'),
            "inputs[0].name: expected a path inside the run directory, got '../x'",
        ),
        (
            with_benchmark('command = ["a"]', 'inputs = [{ name = "stdout", path = "x" }]'),
            "is where rater keeps the copy's own output",
        ),
        (
            with_benchmark('command = ["a"]', 'inputs = [{ name = "x" }]'),
            "expected either path",
        ),
        (
            with_benchmark(
                'command = ["a"]',
                'inputs = [{ name = "x", generator = { sources = ["g.c"], args = ["3"] } }]',
            ),
            'no argument has "{output}"',
        ),
        (
            with_benchmark('command = ["a"]', 'expected = [{ text = "1" }, { text = "2" }]'),
            "'stdout' is expected twice",
        ),
    ],
)
def test_a_mistake_says_what_was_expected(text: str, said: str) -> None:
    lines = mistakes_of(text)
    assert len([line for line in lines if said in line]) == 1, lines


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


def test_a_mistake_behind_quotes_in_a_comment_keeps_its_line() -> None:
    text = with_benchmark('# """ is odd\ncommand = ["a"]', "reference_s = 0")
    assert mistakes_of(text) == [
        "/own/own.toml:8: benchmarks.a.sizes.test.reference_s: "
        "expected a number above 0, got the number 0"
    ]


def test_too_large_a_number_is_told_with_the_bound() -> None:
    text = with_benchmark('command = ["a"]', "reference_s = 1e308\nmemory_mb = inf")
    assert [line.split(": ", 2)[2] for line in mistakes_of(text)] == [
        "expected a number of at most 1e+12, got the number 1e+308",
        "expected a number of at most 1e+12, got the number inf",
    ]


def test_a_byte_order_mark_at_the_start_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(b"\xef\xbb\xbf" + with_benchmark('command = ["a"]').encode())
    assert load_suite(str(path)).name == "own"
    path.write_bytes(b"\xef\xbb\xbforder = 'scatter'")
    assert load_layout(str(path)).order == "scatter"


def test_a_pipe_or_a_device_given_as_a_file_is_an_error_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (str(tmp_path / "pipe.toml"), "/dev/zero"):
        for load in (load_suite, load_layout):
            with pytest.raises(InputError, match="not a regular file"):
                load(path)


def test_a_file_far_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    with path.open("wb") as file:
        file.truncate(10**10)  # sparse
    for load in (load_suite, load_layout):
        with pytest.raises(InputError, match="larger than 10 MB"):
            load(str(path))


def test_a_missing_source_is_found_when_the_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(with_benchmark('sources = ["a.c", "."]'))
    with pytest.raises(InputError) as caught:
        load_suite(str(path))
    assert f"benchmarks.a.sources[0]: no such file: {tmp_path}/a.c" in str(caught.value)
    assert "benchmarks.a.sources[1]" in str(caught.value)
    assert "is a directory" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("./nowhere.toml", "no such file"),
        ("./nosuite", "no such file: ./nosuite"),
        ("/nope/suite", "no such file: /nope/suite"),
        ("n" * 300 + "/x", "File name too long"),
        ("/tmp/", "/tmp/ is a directory"),
        ("no-such-suite", "unknown suite 'no-such-suite'; "),
    ],
)
def test_a_suite_that_cannot_be_read_is_the_users_error(name: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load_suite(name)
    assert said in str(caught.value)


def test_a_file_that_is_not_text_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(b"[suite]\nname = '\xff'\n")
    with pytest.raises(InputError, match=r"own\.toml:2: not UTF-8"):
        load_suite(str(path))


@pytest.mark.parametrize(
    ("selection", "parts"),
    [
        ("mini", ("mini", ())),
        ("mini/triad", ("mini", ("triad",))),
        ("mini/triad,gups", ("mini", ("triad", "gups"))),
        ("./own.toml", ("./own.toml", ())),
        ("./own.toml/triad", ("./own.toml", ("triad",))),
        ("/a/b/own.toml/x,y", ("/a/b/own.toml", ("x", "y"))),
        ("./nosuite", ("./nosuite", ())),
        ("../nosuite", ("../nosuite", ())),
        ("/nope/suite", ("/nope/suite", ())),
        ("nope/my/suite", ("nope/my/suite", ())),
        ("nope/triad", ("nope", ("triad",))),
    ],
)
def test_a_selection_is_suite_and_benchmarks(
    selection: str, parts: tuple[str, tuple[str, ...]]
) -> None:
    assert split_selection(selection) == parts


def test_an_existing_file_without_toml_in_its_name_is_a_suite_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own"
    path.write_text(WHOLE)
    assert split_selection(str(path)) == (str(path), ())
    assert split_selection(f"{path}/pack") == (str(path), ("pack",))
    path.write_text(with_benchmark('command = ["a"]'))
    monkeypatch.chdir(tmp_path)
    assert load_suite("own").path == path


def test_what_lies_in_a_folder_is_a_path_and_no_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert split_selection("mine/nosuite") == ("mine/nosuite", ())


def test_selected_benchmarks_keep_the_suites_order() -> None:
    suite = parse_suite(WHOLE, Path("own.toml"))
    assert [b.name for b in select(suite, "own/pack,triad,pack").benchmarks] == ["triad", "pack"]
    assert select(suite, "own") is suite


def test_an_unknown_benchmark_is_an_error_with_the_nearest_names() -> None:
    suite = parse_suite(WHOLE, Path("own.toml"))
    with pytest.raises(InputError) as caught:
        select(suite, "own/traid,zzz")
    assert str(caught.value).splitlines() == [
        "suite own has no benchmark 'traid'; did you mean triad?",
        "suite own has no benchmark 'zzz'; there are: triad, pack",
    ]


def test_every_built_in_suite_parses() -> None:
    for name in suite_names():
        suite = load_suite(name)
        assert suite.name == name
        assert suite.benchmarks
