"""Slow hosts in words."""

from __future__ import annotations

import pytest

from rater.fleet.model import SlowBenchmark, SlowHost
from rater.fleet.show import finding_text, part_lines


def slow(whole: float, alike: int, *benchmarks: tuple[str, float], typical: float) -> SlowHost:
    each = tuple(SlowBenchmark(name, size, typical) for name, size in benchmarks)
    return SlowHost("n1", 1, whole, typical, alike, 14, each, 1e-6, ())


@pytest.mark.parametrize(
    ("host", "text"),
    [
        (slow(1.05, 14, typical=1.05), "+5.0 % in all benchmarks (median)"),
        (
            slow(1.05, 12, typical=1.05),
            "+5.0 % in all benchmarks (median, 12 of 14 benchmarks)",
        ),
        (
            slow(1.05, 14, ("lu", 1.2), typical=1.05),
            "+5.0 % in all benchmarks (median); most of all lu +20.0 %",
        ),
        (
            slow(1.0, 0, ("gups", 1.093), ("vm", 1.04), typical=1.04),
            "gups +9.3 % and vm +4.0 %; level in the other 12",
        ),
    ],
)
def test_a_finding_says_where_and_how_much(host: SlowHost, text: str) -> None:
    assert finding_text(host) == text


def test_a_level_median_copy_says_that_a_part_is_slow() -> None:
    assert part_lines(slow(1.05, 14, typical=1.05)) == []
    assert part_lines(slow(1.05, 14, typical=1.001)) == [
        "its median copy is at +0.1 %: a part of it is slow, or a few copies are"
    ]
