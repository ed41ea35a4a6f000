"""Values that hang together: in closed form as with whole matrices, and of ten thousand runs."""

from __future__ import annotations

import math
import random
import tracemalloc

import numpy as np
import pytest

from rater.analysis.stats.independence import MeasuredLog, estimate_from_runs, serial_evidence

RHO = 0.9


def log_likelihood(values: list[float], correlation: np.ndarray) -> float:
    """Return that of a mean and noise with these correlations, both integrated out (Harville)."""
    inverse, ones = np.linalg.inv(correlation), np.ones(len(values))
    mean = (ones @ inverse @ values) / (ones @ inverse @ ones)
    rest = np.array(values) - mean
    logs = np.linalg.slogdet(correlation)[1] + math.log(ones @ inverse @ ones)
    return float(-(logs + (len(values) - 1) * math.log(rest @ inverse @ rest)) / 2)


@pytest.mark.parametrize("count", [2, 3, 12, 40])
def test_evidence_of_states_is_that_of_the_matrix_of_all_pairs(count: int) -> None:
    chance = random.Random(count)
    values = [chance.gauss() for _ in range(count)]
    places = np.arange(count)
    serial = RHO ** np.abs(places[:, None] - places)
    expected = log_likelihood(values, serial) - log_likelihood(values, np.eye(count))
    assert serial_evidence([values]) == pytest.approx(expected, rel=1e-9)


def test_ten_thousand_runs_take_little_memory() -> None:
    chance = random.Random(7)
    runs = [MeasuredLog(chance.gauss(0, 0.01), float(place)) for place in range(10_000)]
    tracemalloc.start()
    try:
        estimate = estimate_from_runs(runs[::2], runs[1::2])
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert abs(estimate.log_ratio) < 0.001
    assert peak_bytes < 20e6  # a matrix of all pairs has 800 MB
