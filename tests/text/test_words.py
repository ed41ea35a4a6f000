"""Numbers and lists in sentences."""

import pytest

from rater.text.values import (
    copies_text,
    count,
    parse_percent,
    percent,
    runs_text,
    signed_percent,
    truncate_list,
)


def test_numbers_and_lists_read_as_people_say_them() -> None:
    assert (count(1, "run"), count(2, "run"), copies_text(3)) == ("1 run", "2 runs", "3 copies")
    assert truncate_list(["a", "b", "c"], 2) == "a, b and 1 more"
    assert (runs_text([7]), runs_text([7, 8, 9], 2)) == ("run 7", "runs 7, 8 and 1 more")


@pytest.mark.parametrize(
    ("share", "plain", "signed"),
    [(None, "-", "-"), (0.1234, "12.3", "+12.3"), (-0.05, "-5.0", "-5.0"), (-1e-9, "-0.0", "+0.0")],
)
def test_shares_are_written_in_per_cent(share: float | None, plain: str, signed: str) -> None:
    assert (percent(share), signed_percent(share)) == (plain, signed)


@pytest.mark.parametrize(
    ("text", "share"),
    [("1%", 0.01), (" 1.5 % ", 0.015), ("0", 0.0), ("100%", None), ("-1", None), ("nan", None)],
)
def test_per_cent_are_read(text: str, share: float | None) -> None:
    assert parse_percent(text) == (None if share is None else pytest.approx(share))
