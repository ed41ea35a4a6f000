"""Durations and sizes with units."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from rater.text.values import duration_ms, duration_s, size_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("500ms", 0.5), ("1m30s", 90), ("1.5h", 5400), ("2min", 120)]
    + [(".5", 0.5), ("250us", 0.00025), ("1d", 86400)],
)
def test_durations_are_seconds_unless_they_have_a_unit(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "ms"), [("6000", 6000), ("6s", 6000), ("500us", 0.5), ("1m", 60000)]
)
def test_a_stagger_is_milliseconds_unless_it_has_a_unit(text: str, ms: float) -> None:
    assert duration_ms(text) == pytest.approx(ms, rel=1e-12)


@pytest.mark.parametrize("text", ["", "m", "1x", "1m 30s", "s1", "1m30", "-1s", "1 s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="expected seconds or a number with a unit"):
        duration_s(text)


def test_sizes_are_powers_of_1024() -> None:
    assert [size_bytes(it) for it in ("4096", "2k", "1.5M", "2GiB")] == [
        *(4096, 2048, 1572864, 2147483648)
    ]
    with pytest.raises(ValueError, match="expected a size in bytes"):
        size_bytes("0")
