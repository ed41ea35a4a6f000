import os
from pathlib import Path

import pytest

from rater.plan.metric import Metric
from rater.plan.placement.layout import load_layout
from rater.plan.suite import Command, Expected
from rater.plan.suite_find import load_suite, select_from_suite, suite_names
from rater.system.errors import InputError
from rater.text.documents import MistakesError
from tests.support.suite_text import parse_suite

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


def check_said(text: str, said: str) -> None:
    """One mistake of the text says so."""
    lines = mistakes_of(text)
    assert len([line for line in lines if said in line]) == 1, lines


def with_benchmark(lines: str, size: str = "") -> str:
    return f"{HEAD}[benchmarks.a]\n{lines}\n[benchmarks.a.sizes.test]\n{size}\n"


def test_a_suite_is_read_whole_in_its_declared_order() -> None:
    suite = parse_suite(WHOLE, Path("/own/own.toml"))
    triad, pack = suite.benchmarks
    assert (suite.name, suite.reference_machine) == ("own", "a laptop")
    assert (triad.name, triad.category) == ("triad", "fp")
    assert triad.sources == (Path("/own/src/triad.c"),)
    assert triad.flags == {"base": ("-O1",), "peak": ("-O3",)}
    size = triad.sizes["test"]
    assert (size.commands[0].args, size.reference_s) == (("100", "50"), 0.5)
    assert (size.memory_bytes, size.disk_bytes) == (12_000_000, 1_500_000)
    assert size.expected == (
        Expected(file="stdout", text="sum 1.5\n", absolute_tolerance=0.0, relative_tolerance=1e-6),
    )
    assert (pack.command, pack.flags) == (("/own/bin/pack", "-v"), {})
    train = pack.sizes["train"]
    assert (train.reference_s, train.memory_bytes) == (None, None)
    assert [input_item.name for input_item in train.inputs] == ["a.txt", "b.bin"]
    assert train.inputs[0].path == Path("/own/a.txt")
    assert train.inputs[1].generator is not None
    assert train.inputs[1].generator.args == ("7", "{output}")
    assert train.expected == (
        Expected(file="stdout", text="ok", absolute_tolerance=0.0, relative_tolerance=0.0),
        Expected(file="out.txt", text="1", absolute_tolerance=0.5, relative_tolerance=0.0),
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


def test_a_mistake_behind_quotes_in_a_comment_keeps_its_line() -> None:
    text = with_benchmark('# """ is odd\ncommand = ["a"]', "reference_s = 0")
    assert mistakes_of(text) == [
        "/own/own.toml:8: benchmarks.a.sizes.test.reference_s: "
        "expected a number above 0, got the number 0"
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


def test_a_file_that_is_not_text_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(b"[suite]\nname = '\xff'\n")
    with pytest.raises(InputError, match=r"own\.toml:2: not UTF-8"):
        load_suite(str(path))


def test_selected_benchmarks_keep_the_suites_order() -> None:
    suite = parse_suite(WHOLE, Path("own.toml"))
    assert [
        benchmark.name for benchmark in select_from_suite(suite, "own/pack,triad,pack").benchmarks
    ] == [
        "triad",
        "pack",
    ]
    assert select_from_suite(suite, "own") is suite


def test_an_unknown_benchmark_is_an_error_with_the_nearest_names() -> None:
    suite = parse_suite(WHOLE, Path("own.toml"))
    with pytest.raises(InputError) as caught:
        select_from_suite(suite, "own/traid,zzz")
    assert str(caught.value).splitlines() == [
        "suite own has no benchmark 'traid'; did you mean triad?",
        "suite own has no benchmark 'zzz'; there are: triad, pack",
    ]


def test_every_built_in_suite_parses() -> None:
    for name in suite_names():
        suite = load_suite(name)
        assert suite.name == name
        assert suite.benchmarks


NEW = """\
[suite]
format = 1
setup = ["./prepare.sh", "7"]
leave_out = ["missing", "unfit"]
environment = { LC_ALL = "C", EMPTY = "" }
[benchmarks.a]
command = ["./a", "-b"]
threads = 4
setup = ["bin/fresh", "1"]
environment = { OMP_NUM_THREADS = "4" }
[benchmarks.a.metrics.rate]
pattern = '^rate:\\s+(\\S+)'
unit = "GB/s"
better = "higher"
combine = "sum"
file = "out/log"
scale = 1e-3
[benchmarks.a.metrics.wait]
pattern = '(\\d+) ns'
[benchmarks.a.sizes.test]
command = ["./other"]
args = ["1"]
stdin = "./data.txt"
environment = { MODE = "test" }
memory_total_mb = 2048
inputs = [
  { name = "data.txt", path = "data.txt", copy = true },
  { name = "made", made = "sub/made.dat" },
]
expected = [
  { path = "want.txt", ignore = "^time" },
  { file = "back", sha256 = "ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef0123456789" },
]
relative_tolerance = 1e-3
[benchmarks.a.sizes.train]
[[benchmarks.a.sizes.train.commands]]
args = ["1"]
stdout = "a.out"
stderr = "a.err"
[[benchmarks.a.sizes.train.commands]]
command = ["cmp", "a.out"]
args = ["b.out"]
stdin = "a.out"
"""


def test_commands_metrics_setup_and_environment_are_read() -> None:
    suite = parse_suite(NEW, Path("/own/own.toml"), text_of=lambda path: f"text of {path}")
    (a,) = suite.benchmarks
    test, train = a.sizes["test"], a.sizes["train"]
    assert (suite.setup, suite.leave_out) == (("/own/prepare.sh", "7"), ("missing", "unfit"))
    assert suite.environment == (("LC_ALL", "C"), ("EMPTY", ""))
    assert (a.threads, a.setup) == (4, ("/own/bin/fresh", "1"))
    assert a.environment == (("OMP_NUM_THREADS", "4"),)
    assert test.environment == (("MODE", "test"),)
    assert a.metrics == (
        Metric(
            name="rate",
            pattern=r"^rate:\s+(\S+)",
            unit="GB/s",
            better="higher",
            combine="sum",
            file="out/log",
            scale=1e-3,
        ),
        Metric(
            name="wait",
            pattern=r"(\d+) ns",
            unit="",
            better=None,
            combine="mean",
            file="stdout",
            scale=1.0,
        ),
    )
    assert test.commands == (Command(program=("/own/other",), args=("1",), stdin="data.txt"),)
    assert (test.memory_bytes, test.total_memory_bytes) == (None, 2_048_000_000)
    assert [
        (input_item.path, input_item.made, input_item.private) for input_item in test.inputs
    ] == [
        (Path("/own/data.txt"), None, True),
        (None, "sub/made.dat", False),
    ]
    assert test.expected == (
        Expected(
            file="stdout",
            text="text of /own/want.txt",
            absolute_tolerance=0.0,
            relative_tolerance=1e-3,
            ignore="^time",
        ),
        Expected(
            file="back",
            text="",
            absolute_tolerance=0.0,
            relative_tolerance=0.0,
            sha256="abcdef0123456789" * 4,
        ),
    )
    assert train.commands == (
        Command(args=("1",), stdout="a.out", stderr="a.err"),
        Command(program=("cmp", "a.out"), args=("b.out",), stdin="a.out"),
    )


def test_a_suite_that_states_nothing_new_has_one_command_and_one_thread() -> None:
    (a,) = parse_suite(with_benchmark('command = ["a"]'), Path("/own/own.toml")).benchmarks
    assert (a.threads, a.setup, a.metrics, a.environment) == (1, (), (), ())
    assert a.sizes["test"].commands == (Command(),)


COMMAND = 'command = ["a"]'
METRIC = f"{COMMAND}\n[benchmarks.a.metrics.m]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD, "benchmarks: missing; expected a table"),
        (HEAD + "[benchmarks]", "a suite needs at least one [benchmarks.NAME]"),
        (HEAD + "[benchmarks]\nx = 3", "benchmarks.x: expected a table, got the number 3"),
        (HEAD + '[benchmarks.a]\ncommand = ["a"]', "benchmarks.a.sizes: missing"),
        (HEAD.replace("1", "2"), "suite.format: this rater reads format 1, got 2: update rater"),
        ("[suite]", "suite.format: missing; expected format = 1"),
        (with_benchmark('command = "a"'), "expected a list of strings, got 'a'"),
        (with_benchmark('command = ["a\\u0000"]'), "expected a string without NUL"),
        (
            HEAD + 'leave_out = ["unift"]',
            "suite.leave_out[0]: unknown word 'unift'; did you mean unfit?",
        ),
        (HEAD + 'setup = [""]', "suite.setup[0]: expected a program, got an empty string"),
        (HEAD + "setup = []", "suite.setup: expected a list of strings, got an empty one"),
        (HEAD + 'environment = { A-B = "1" }', "environment.A-B: expected the name"),
        (HEAD + 'environment = { "A=B" = "1" }', "expected the name of a variable"),
        (HEAD + "environment = { A = 1 }", 'got the number 1 (put it in quotes: "1")'),
        (HEAD + 'environment = { A = "a\\u0000" }', "A: expected a string without NUL"),
        (HEAD + 'environment = { RATER_COPY = "1" }', "are set by rater: expected another name"),
        (
            with_benchmark('sources = ["a.c"]', 'command = ["b"]'),
            "test.command: the program is built from sources",
        ),
    ],
)
def test_a_mistake_says_what_was_expected(text: str, said: str) -> None:
    check_said(text, said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('libraries = ["-lm"]', "a command is not compiled"),
        ('category = "FP"', 'expected "int" or "fp", got \'FP\''),
        ("threads = 0", "a whole number from 1 to 65536, got the"),
        ("thread = 2", "unknown key; did you mean threads?"),
    ],
)
def test_a_mistake_in_a_benchmark_says_what_was_expected(text: str, said: str) -> None:
    check_said(with_benchmark(f"{COMMAND}\n{text}"), said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "metrics.m.pattern: missing; expected a string"),
        ('pattern = ""', "expected a string, got an empty one"),
        ("pattern = '(a'", "got '(a': missing ), unterminated"),
        ("pattern = '[[a](.)'", "Possible nested set at position 1"),
        ("pattern = '.{99999999999}(.)'", "repetition number is too"),
        ("pattern = 'a'", "one group (...), the number, got 0"),
        ("pattern = '(a|b) (.)'", "got 2; write (?:...) for groups"),
        ("pattern = '(a)'\nbetter = 'more'", 'expected "higher" or "lower", got \'more\''),
        ("pattern = '(a)'\ncombine = 'max'", 'expected "sum" or "mean", got \'max\''),
        ("pattern = '(a)'\nscale = 0", "scale: expected a number above"),
        ("pattern = '(a)'\nfile = '/a'", "inside the run directory"),
        ("pattern = '(a)'\nunits = 's'", "did you mean unit?"),
    ],
)
def test_a_mistake_in_a_metric_says_what_was_expected(text: str, said: str) -> None:
    check_said(with_benchmark(f"{METRIC}{text}"), said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("absolute_tolerance = 1", "needs an expected text"),
        (f"memory_mb = 1{'0' * 400}", "at most 1e+12, got a huge"),
        (f"memory_mb = 1{'0' * 5000}", "not valid TOML"),
        (
            'inputs = [{ name = "../x", path = "x" }]',
            "inputs[0].name: expected a path inside the run directory, got '../x'",
        ),
        (
            'inputs = [{ name = "stdout", path = "x" }]',
            "is where rater keeps the copy's own output",
        ),
        ('inputs = [{ name = "x" }]', "expected one of path = "),
        (
            'inputs = [{ name = "x", generator = { sources = ["g.c"], args = ["3"] } }]',
            'no argument has "{output}"',
        ),
        ('expected = [{ text = "1" }, { text = "2" }]', "'stdout' is expected twice"),
        (
            'args = ["1"]\ncommands = [{ args = ["2"] }]',
            "test.args: expected inside one of the commands, not beside them",
        ),
        (
            'command = ["b"]\ncommands = [{ args = ["2"] }]',
            "test.command: expected inside one of the commands",
        ),
        ("commands = []", "expected at least one command"),
        ('stdin = ""', "expected a string, got an empty one"),
        ("commands = [{ arg = [] }]", "did you mean args?"),
        ('stdout = "a"', "stdout: expected inside one of commands"),
        ('stdin = "a"', "'a' is none of the inputs, and no setup"),
        ('stdin = "stdout"\n', "where rater keeps the copy's own output"),
        (
            'commands = [{ stdout = "a" }, { stdout = "a" }]',
            "commands[1].stdout: 'a' is written twice",
        ),
        (
            'commands = [{ stdout = "a", stderr = "./a" }]',
            "commands[0].stderr: 'a' is written twice",
        ),
        ('commands = [{}, { stdin = "a", stdout = "a" }]', "'a' is read and written at once"),
        (
            'commands = [{ stdout = "a" }]\ninputs = [{ name = "a", path = "a" }]',
            "'a' is an input that all copies share",
        ),
        (
            'commands = [{ stdout = "a" }, { stderr = "a/b" }]',
            "commands[1].stderr: 'a' is written too, it cannot be the folder of 'a/b'",
        ),
        (
            'commands = [{ stdout = "a/b", stderr = "a" }]',
            "commands[0].stderr: 'a' is the folder of 'a/b', which is written too",
        ),
        (
            'commands = [{ stdout = "d/b" }]\ninputs = [{ name = "d", path = "a", copy = true }]',
            "commands[0].stdout: 'd' is an input, it cannot be the folder of 'd/b'",
        ),
        (
            'commands = [{ stdout = "d" }]\ninputs = [{ name = "d/x", path = "a" }]',
            "commands[0].stdout: 'd' is the folder of 'd/x', which is an input",
        ),
        (
            f'commands = [{{ stdout = "x/{"ä" * 128}/y" }}]',
            "commands[0].stdout: expected at most 255 bytes between slashes, got 256",
        ),
        (
            f'inputs = [{{ name = "{"n" * 300}", path = "a" }}]',
            "inputs[0].name: expected at most 255 bytes between slashes, got 300",
        ),
        (
            "memory_mb = 1\nmemory_total_mb = 2",
            "memory_total_mb: expected either memory_mb, of each copy, or",
        ),
        (
            'inputs = [{ name = "x", made = "y" }]',
            "inputs[0].made: a file that the set-up of the suite makes: expected setup",
        ),
        (
            'inputs = [{ name = "x", path = "x", copy = 1 }]',
            "copy: expected true or false, got the number 1",
        ),
        (
            'inputs = [{ name = "x", path = "x" }, { name = "x/y", path = "x" }]',
            "'x' is an input, it cannot be the folder of 'x/y'",
        ),
        (
            'expected = { text = "a", path = "b" }',
            "expected: expected one of text, path and sha256, got text and path",
        ),
        ("expected = {}", "expected one of text, path and sha256"),
        ('expected = { sha256 = "12" }', "the 64 hexadecimal digits"),
        (
            f'expected = {{ sha256 = "{"0" * 64}", relative = 1 }}',
            "relative: sha256 is of the exact content",
        ),
        (
            f'absolute_tolerance = 1\nexpected = {{ sha256 = "{"0" * 64}" }}',
            "absolute_tolerance: a tolerance needs an expected text",
        ),
        (
            'expected = { text = "a", ignore = "*" }',
            "ignore: expected a regular expression of Python, got '*': nothing to repeat",
        ),
        (
            'expected = { text = "a", file = "a/../../b" }',
            "file: expected a path inside the run directory",
        ),
    ],
)
def test_a_mistake_in_a_size_says_what_was_expected(text: str, said: str) -> None:
    check_said(with_benchmark(COMMAND, text), said)


def test_a_setup_may_make_what_a_command_reads() -> None:
    lines = f'{COMMAND}\nsetup = ["b"]'
    (a,) = parse_suite(with_benchmark(lines, 'stdin = "made"'), Path("own.toml")).benchmarks
    assert a.sizes["test"].commands[0].stdin == "made"
    later = 'commands = [{}, { stdin = "left by the first" }]'
    parse_suite(with_benchmark(COMMAND, later), Path("own.toml"))
    # A copy may write over an input of its own.
    size = 'commands = [{ stdout = "a" }]\ninputs = [{ name = "a", path = "a", copy = true }]'
    parse_suite(with_benchmark(COMMAND, size), Path("own.toml"))


def test_mistakes_in_double_bracketed_tables_are_told_at_their_own_lines() -> None:
    text = with_benchmark(
        COMMAND,
        "[[benchmarks.a.sizes.test.commands]]\nargs = ['1']\n"
        "[[benchmarks.a.sizes.test.commands]]\nargs = ['1']\nstdin = ''\n"
        "[[benchmarks.a.sizes.test.expected]]\n"
        "[[benchmarks.a.sizes.test.expected]]\nfile = 'b'\ntext = 2",
    )
    assert [line.split(": ")[0] for line in mistakes_of(text)] == [
        "/own/own.toml:11",
        "/own/own.toml:12",
        "/own/own.toml:15",
    ]


def test_an_expected_output_is_read_from_a_file_of_the_suite(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    (tmp_path / "want.txt").write_text("1\n2\n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(10**10)  # sparse
    path.write_text(with_benchmark(COMMAND, 'expected = { path = "want.txt" }'))
    (a,) = load_suite(str(path)).benchmarks
    assert a.sizes["test"].expected[0].text == "1\n2\n"
    for name, said in (
        ("bytes", "is not UTF-8 text: for its exact content write sha256"),
        ("huge", "larger than 10 MB, too large for a comparison of text: for its exact"),
        ("none", "no such file"),
        (".", "is a directory"),
    ):
        path.write_text(with_benchmark(COMMAND, f'expected = {{ path = "{name}" }}'))
        with pytest.raises(MistakesError) as caught:
            load_suite(str(path))
        (mistake,) = caught.value.mistakes
        assert mistake.key == "benchmarks.a.sizes.test.expected.path"
        assert said in mistake.text
