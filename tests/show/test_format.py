"""Numbers and other people's text as they are shown."""

import pytest

from rater.show.console.format import figures, plain


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
