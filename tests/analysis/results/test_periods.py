"""Places in time: where in a phase something was, worked out by hand."""

from __future__ import annotations

import pytest

from rater.analysis.results.periods import (
    PeriodKind,
    find_period,
    notable_periods,
    period_text,
    phase_periods,
)
from rater.analysis.results.series import Values, phase_times
from tests.support.series import busy_run

EDGES = tuple(float(second) for second in range(11))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0, 0, 0, 0.5, 0.5, 0.5, 0, 0, 0, 0), (3, 6, 0.5)),
        # From 2.8 to 6.4: the first has a fifth of an interval, the last two fifths.
        ((0, 0, 0.1, 0.5, 0.5, 0.5, 0.2, 0, 0, 0), (2.8, 6.4, 0.5)),
        # From 3.4 to 6: six tenths of an interval are more than half of it.
        ((0, 0, 0, 0.3, 0.5, 0.5, 0, 0, 0, 0), (3.4, 6, 0.5)),
        ((0.8, 0.8, 0, 0, 0, 0, 0, 0, None, None), (0, 2, 0.8)),
        ((0, 0, 0, 0, 0, 0, 0, 0, 0.2, 0.2), (8, 10, 0.2)),
        # Throughout, now and then, or too little: no place in time.
        ((0.5,) * 10, None),
        ((0.5, 0, 0.5, 0, 0.5, 0, 0.5, 0, 0.5, 0), None),
        ((0, 0, 0, 0.09, 0.09, 0, 0, 0, 0, 0), None),
        ((None,) * 10, None),
        ((), None),
    ],
)
def test_a_period_is_where_most_of_something_was(
    values: Values, expected: tuple[float, float, float] | None
) -> None:
    period = find_period(EDGES, values)
    assert period == (None if expected is None else pytest.approx(expected))


def test_a_busy_loop_a_quota_and_a_start_up_have_their_places_in_time() -> None:
    [phase] = phase_times(busy_run())
    assert [(it.kind, it.begin_s, it.end_s) for it in phase_periods(phase)] == [
        (PeriodKind.OTHERS, 3.0, 6.0),
        (PeriodKind.QUOTA, 7.0, 8.0),
        (PeriodKind.STARTUP, 0.0, 1.0),
    ]


def test_periods_are_told_in_words_the_costliest_first() -> None:
    assert [period_text(it) for it in notable_periods(busy_run(iterations=2))] == [
        "CPU 1: others had 50 % from second 3 to 6 (a, iteration 2)",
        "start-up of copy 0: 0.3 of 1 s computed, 60 MB/s read (a, iteration 1)",
        "the CPU quota kept copies off 0.5 CPUs from second 7 to 8 (a, iteration 2)",
    ]
