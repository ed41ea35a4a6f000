"""Numbers and other people's text as they are shown."""

import pytest

from rater.show.console.format import figures, gigabytes_column, place, plain
from rater.show.console.page import Page
from rater.show.console.table import Columns


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ([12.5, 12.04], ["12.5", "12.0"]),
        ([3.2e-9], ["3.200e-09"]),
        ([1.8e19, 9e18], ["1.800e+19", "9.000e+18"]),
        ([1e200], ["1.000e+200"]),
        ([0.0001, None], ["0.000100", "-"]),
        ([0.0, 5e-5, -1e-4], ["0", "5.000e-05", "-1.000e-04"]),
        ([999999999.0], ["999999999"]),
        ([1e9, 5e8], ["1.000e+09", "5.000e+08"]),
        ([0.5, 2e6], ["5.000e-01", "2.000e+06"]),
        ([0.0, None], ["0", "-"]),
        ([], []),
    ],
)
def test_numbers_beside_each_other_are_written_alike(
    values: list[float | None], written: list[str]
) -> None:
    assert figures(values) == written


def test_several_lines_become_one_that_shows_where_they_end() -> None:
    assert plain("set-up ended with status 2: make\ncc: no\r\n\nstop\n") == (
        "set-up ended with status 2: make | cc: no | stop"
    )
    assert plain("a\tb\x1b[1m") == "a?b?[1m"


def test_columns_are_made_of_what_the_rows_are_of() -> None:
    of = Columns([(1, 0.25), None, (20, None)])
    assert of.right("a|b", lambda row: row[0]).cells == ["1", "-", "20"]
    assert of.left("a", lambda row: row[1]).right is False
    assert of.numbers("a", lambda row: row[1]).cells == ["0.250", "-", "-"]
    assert of.percent("a", lambda row: row[1], 0).cells == ["25", "-", "-"]
    assert of.change("a", lambda row: row[1]).cells == ["+25.0", "-", "-"]
    assert of.right("a|b", lambda row: row[0]).lines == ("a", "b")
    assert of.right(("a|b", "c"), lambda row: row[0]).lines == ("a|b", "c")


def test_sentences_stand_below_each_other_behind_their_margin() -> None:
    assert Page(24).beside("name", 6, ["one two three four five", "six"]) == [
        "name  one two three four",
        "      five",
        "      six",
    ]
    assert Page(24).beside("name", 6, []) == ["name"]


def test_sizes_and_places_are_as_short_as_they_can_be() -> None:
    assert gigabytes_column([4_000_000_000, None, 250_000_000]) == ["4.00", "-", "0.25"]
    assert (place(3, 1), place(None, 1), place(3, None)) == (
        ["CPU 3", "lgroup 1"],
        ["lgroup 1"],
        ["CPU 3"],
    )
