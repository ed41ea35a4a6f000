"""How long the runs of a sweep take, and those that are left."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from rater.plan.sweep.grid import Slot
from rater.workflow.run.resolve import expected_total_s
from rater.workflow.sweep.ready import PointReady


class TimeLeft:
    """What runs of each point took, and what others of them will."""

    def __init__(self, points: Mapping[int, PointReady]) -> None:
        self._expected = {
            number: one_s
            for number, point in points.items()
            if point.resolved is not None and (one_s := expected_total_s(point.resolved))
        }
        self._seconds: dict[int, list[float]] = {}  # by point, as stored
        self._besides_s: list[float] = []  # of runs made here: what took longer

    def add(self, point: int, elapsed_s: float | None, took_s: float | None = None) -> None:
        """Take a run's stored time, and how long it took with all that is no part of it."""
        if elapsed_s is not None:
            self._seconds.setdefault(point, []).append(elapsed_s)
            if took_s is not None:
                self._besides_s.append(max(0.0, took_s - elapsed_s))

    def left_s(self, ahead: Sequence[Slot]) -> float | None:
        """Estimate the runs ahead: the median of the same point, else what is expected of it.

        What is expected is corrected by how others took longer or less; where nothing is
        expected, the median of all points. None where nothing is known. A stored run tells
        the time from its first release to its last finish: what is beside that (set-up, a
        rest, sampling the machine) is known of those made here.
        """
        known = {point: statistics.median(times) for point, times in self._seconds.items()}
        expected = self._expected
        factors = [known[point] / expected[point] for point in known.keys() & expected.keys()]
        factor = statistics.median(factors) if factors else 1.0
        usual = statistics.median(known.values()) if known else None
        corrected = {point: one_s * factor for point, one_s in expected.items()}
        times = [known.get(it.point, corrected.get(it.point, usual)) for it in ahead]
        beside_s = statistics.median(self._besides_s) if self._besides_s else 0.0
        total_s = 0.0
        for time_s in times:
            if time_s is None:
                return None
            total_s += time_s + beside_s
        return total_s
