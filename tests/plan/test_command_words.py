"""What stands behind `--`: several programs, placeholders, short names; ranges of axes."""

from __future__ import annotations

import pytest

from rater.plan.command_words import (
    COPY_PLACEHOLDERS,
    distinct_names,
    fill,
    fill_all,
    placeholders_in,
    programs_of,
)
from rater.plan.request import Request
from rater.plan.sweep import expand_ranges, kinds_of, parse_axis
from rater.system.errors import InputError
from rater.workflow.arguments import RunArguments
from rater.workflow.run.workload import command_workloads
from rater.workflow.sweep.request import SweepOptions, sweep_request_from

VALUES = {"copy": "3", "cpus": "0-1", "node": ""}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("in{copy}.txt", "in3.txt"),
        ("{copy}{copy}:{cpus}", "33:0-1"),
        ("n{node}", "n"),
        ("{{copy}}", "{copy}"),
        ('{"copy": {copy}}', '{"copy": 3}'),
        ('{"id": "{{copy}}"}', '{"id": "{copy}"}'),
        ("{print $1}", "{print $1}"),
        ("{}", "{}"),
        ("{{}}", "{{}}"),
        ("{Copy} { copy } {copy", "{Copy} { copy } {copy"),
        ("{iteration} {{iteration}}", "{iteration} {{iteration}}"),  # here it has no value
        ("{{unknown}}", "{{unknown}}"),
        ("${copy}", "$3"),
        ("a\n{copy}\n", "a\n3\n"),
    ],
)
def test_only_known_names_in_braces_are_replaced(text: str, filled: str) -> None:
    assert fill(text, VALUES) == filled


def test_words_without_placeholders_are_left_as_they_are() -> None:
    words = ("find", ".", "-exec", "{}", ";", "awk", "{s+=$1} END {print s}")
    assert fill_all(words, VALUES) == words
    assert placeholders_in(words, COPY_PLACEHOLDERS) == set()
    assert placeholders_in(("{copy}x", "{{cpu}}"), COPY_PLACEHOLDERS) == {"copy", "cpu"}


def test_a_lone_colon_divides_programs_and_a_backslash_makes_it_an_argument() -> None:
    assert programs_of(["./a", ":", "./b", "-x", ":", "./c"]) == (("./a",), ("./b", "-x"), ("./c",))
    assert programs_of(["sh", "-c", ":"]) == (("sh", "-c", ":"),)
    assert programs_of(["./a", r"\:", r"\\:", "a:b", "::"]) == (("./a", ":", r"\:", "a:b", "::"),)


def test_each_program_is_a_benchmark_with_a_name_of_its_own() -> None:
    request = Request(suites=(), command=("./a/mb", "-1", ":", "./b/mb", "-2", ":", "wc"))
    workloads = command_workloads(request)
    assert [workload.benchmark.name for workload in workloads] == ["a_mb", "b_mb", "wc"]
    assert workloads[1].benchmark.command == ("./b/mb", "-2")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("./a", ":", ":", "./b"), "one of them is empty; write '\\:' for an argument `:`"),
        (("mpirun", "./a", ":", "-n", "2", "./b"), "-n behind a lone `:` is no program"),
    ],
)
def test_a_colon_that_divides_nothing_says_how_to_write_an_argument(
    command: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InputError) as error:
        command_workloads(Request(suites=(), command=command))
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("commands", "names"),
    [
        (["./old -x", "./new -x"], ["old", "new"]),
        (["O1/mb 16", "O3/mb 16"], ["O1/mb", "O3/mb"]),
        (["mb -O1 16", "mb -O3 16"], ["-O1", "-O3"]),
        (["mb", "mb -v"], ["mb", "mb -v"]),
        (["mb", "mb"], ["mb 1", "mb 2"]),
    ],
)
def test_commands_are_called_by_what_tells_them_apart(
    commands: list[str], names: list[str]
) -> None:
    assert distinct_names([command.split() for command in commands], 60) == tuple(names)


@pytest.mark.parametrize(
    ("values", "expanded"),
    [
        ("1..4", "1 2 3 4"),
        ("1,2,4..64", "1 2 4 8 16 32 64"),
        ("1,2..8", "1 2 4 8"),
        ("1,3..9", "1 3 5 7 9"),
        ("10,20,30..50", "10 20 30 40 50"),
        ("a,1..2", "a 1 2"),
        ("4", "4"),
        (r"1\..4", "1..4"),
        ("0..2", "0 1 2"),
    ],
)
def test_a_range_goes_on_as_the_values_before_it_do(values: str, expanded: str) -> None:
    assert expand_ranges("n", values.split(",")) == expanded.split()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            "10,20..50",
            "doubles, as 20 is twice 10, and does not meet 50: expected an end such as 40",
        ),
        ("1,4..9", "goes on by 3, and does not meet 9: expected an end such as 7 or 10"),
        ("1..999999", "more than 10000 values, which no sweep has"),
        ("4..1", "expected a range that rises"),
        ("4,4..8", "expected a range that rises"),
    ],
)
def test_a_range_that_does_not_meet_its_end_is_refused(values: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        parse_axis(f"n={values}")
    assert words in str(error.value)


def test_an_axis_that_the_command_names_changes_the_command() -> None:
    typed = RunArguments(command=("./a", "--size={n}", "{copy}", "{{n}}"))
    sweep = sweep_request_from(typed, SweepOptions(axis=("n=1,2",)), [])
    assert [point.request and point.request.command for point in sweep.points] == [
        ("./a", "--size=1", "{copy}", "{n}"),
        ("./a", "--size=2", "{copy}", "{n}"),
    ]
    with pytest.raises(InputError, match=r"axis copy: .copy. is each copy's own value"):
        sweep_request_from(typed, SweepOptions(axis=("copy=1,2",)), [])
    with pytest.raises(InputError, match=r"axis m: neither an option .* .m. in the command"):
        kinds_of([parse_axis("m=1,2")], ["copies"], [])
