"""Numbers and other people's text as they are shown."""

import pytest

from rater.show.console import Column, Columns, TextLayout, table_lines
from rater.show.format import (
    align_columns,
    crop,
    format_clock,
    format_duration,
    format_gigabytes,
    format_number,
    format_together,
    gigabytes_column,
    needed_decimals,
    place_texts,
    run_title,
    sanitize,
    wrap_text,
)


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
    assert format_together(values) == written


def test_several_lines_become_one_that_shows_where_they_end() -> None:
    assert sanitize("set-up ended with status 2: make\ncc: no\r\n\nstop\n") == (
        "set-up ended with status 2: make | cc: no | stop"
    )
    assert sanitize("a\tb\x1b[1m\x9b") == "a?b?[1m?"


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
    assert TextLayout(24).hang_indent("name", 6, ["one two three four five", "six"]) == [
        "name  one two three four",
        "      five",
        "      six",
    ]
    assert TextLayout(24).hang_indent("name", 6, []) == ["name"]


def test_sizes_and_places_are_as_short_as_they_can_be() -> None:
    assert gigabytes_column([4_000_000_000, None, 250_000_000]) == ["4.00", "-", "0.25"]
    assert (place_texts(3, 1), place_texts(None, 1)) == (["CPU 3", "lgroup 1"], ["lgroup 1"])
    assert place_texts(3, None) == ["CPU 3"]


def test_a_table_cuts_names_before_it_leaves_out_columns() -> None:
    columns = [
        Column("name", ["n" * 40], right=False, flexible=True),
        Column("x|s", ["1" * 10], optional=1),
        Column("y|s", ["2" * 10]),
    ]
    whole = table_lines(columns, 64, ascii_only=True)
    assert whole[2] == f"{'n' * 40}  {'1' * 10}  {'2' * 10}"
    assert table_lines(columns, 40, ascii_only=True)[2] == f"{'n' * 17}~ {'1' * 10} {'2' * 10}"
    assert table_lines(columns, 30, ascii_only=True)[2] == f"{'n' * 18}~ {'2' * 10}"
    assert max(len(line) for line in table_lines(columns, 12, ascii_only=True)) <= 12


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ([0.000912, 0.00096], 6),
        ([0.0009, 12.0], 4),
        ([5.0], 2),
        ([0.123, 60.0], 3),
        ([12.0], 1),
        ([55385.0], 0),
        ([0.0001, 99999.0], 1),
        ([], 1),
    ],
)
def test_a_column_has_the_decimals_its_smallest_number_needs(
    values: list[float], places: int
) -> None:
    assert needed_decimals(values) == places


def test_times_and_bytes_read_as_people_say_them() -> None:
    assert [format_clock(s) for s in (7, 725, 3723)] == ["0:07", "12:05", "1:02:03"]
    durations = [format_duration(s) for s in (0.0, 0.0062, 0.44, 42, 725, 11100)]
    assert durations == ["0.0 s", "6.2 ms", "0.4 s", "42 s", "12 min", "3 h 05 min"]
    assert [format_gigabytes(b) for b in (12.34e9, 4e6)] == ["12 GB", "0.0040 GB"]
    assert (format_number(None), format_number(float("nan"))) == ("-", "-")


def test_wide_signs_take_two_cells_of_a_column() -> None:
    wide = "\u6027\u80fd"  # two signs, four cells
    assert align_columns([[wide, "1"], ["abcd", "2"]], [False, True]) == [f"{wide}  1", "abcd  2"]
    cropped = [crop(wide, cells) for cells in (4, 3, 2, 1)]
    assert cropped == [wide, "\u6027\u2026", "\u2026", "\u2026"]
    assert wrap_text(f"{wide} {wide} {wide}", 9) == [f"{wide} {wide}", f"    {wide}"]


def test_sentences_break_between_words_and_keep_their_blanks() -> None:
    assert wrap_text("", 20) == [""]
    assert wrap_text("line 3: 'a  b' is not", 20) == ["line 3: 'a  b' is", "    not"]
    assert wrap_text("/a/very/long/path and more", 10) == [
        "/a/very/long/path",
        "    and",
        "    more",
    ]


def test_what_ran_names_one_benchmark_and_counts_several() -> None:
    assert run_title("mini", ["lu"]) == ("mini/lu", "")
    assert run_title("mini", ["lu", "sort", "rays"]) == ("mini", "3 benchmarks")
    assert run_title("mini, mini, other", ["lu", "x"]) == ("mini, other", "2 benchmarks")
    assert run_title(None, ["gups"]) == ("gups", "")
