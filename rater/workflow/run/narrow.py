"""Whether iterations of a run are enough: the intervals of its brackets are narrow; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rater.analysis.stats.estimate import paired_estimate, t_quantile
from rater.record.events import CopyEnded, Event, OutputChecked, PhaseEnded
from rater.record.run import CopyStatus, Validity
from rater.text.values import count, percent

FEWEST_ITERATIONS = 5  # fewer may be alike by chance
_CONFIDENCE = 0.95


class NarrowWatch:
    """Takes the events of a run, and tells after each iteration whether it may end.

    The interval is that of the geometric mean of a benchmark's brackets: Student's t of their
    logarithms. Its width is what lies between its ends, as a share of the mean.
    """

    def __init__(self, share: float, benchmarks: Iterable[str]) -> None:
        """`share`: how wide the interval of each benchmark may be, 0.02 for 2 %."""
        self._share = share
        self._logs: dict[str, list[float]] = {benchmark: [] for benchmark in benchmarks}
        self._has_failed = False
        self._last_iteration: int | None = None

    @property
    def iterations(self) -> int | None:
        """The last iteration that was made, once there are enough; None: there are not."""
        return self._last_iteration if self.is_over() else None

    def put(self, event: Event) -> None:
        """Take one event; those of iterations that do not count tell nothing."""
        if isinstance(event, PhaseEnded):
            bracket_s, self._last_iteration = event.bracket_s, event.iteration
            if event.counted and event.complete and event.benchmark in self._logs and bracket_s:
                self._logs[event.benchmark].append(math.log(bracket_s))
        elif isinstance(event, CopyEnded):
            self._has_failed = self._has_failed or event.status is not CopyStatus.OK
        elif isinstance(event, OutputChecked):
            self._has_failed = self._has_failed or event.validity is Validity.INVALID

    def is_over(self) -> bool:
        """Tell whether all benchmarks are known well enough, or a copy failed."""
        counts = {len(logs) for logs in self._logs.values()}
        if len(counts) > 1:  # amid an iteration
            return False
        return self._has_failed or self._is_narrow

    def remark(self) -> str:
        """Return how wide the intervals are, in a sentence."""
        iterations = count(min(map(len, self._logs.values())), "iteration")
        wide = f"{percent(self._share)} %"
        if self._has_failed:
            return f"--until: ended after {iterations}, as a copy failed"
        if self._is_narrow:
            return f"--until: after {iterations} every bracket is known within {wide}"
        width, benchmark = max((_width(logs), name) for name, logs in self._logs.items())
        how_wide = f"{percent(width)} % wide" if math.isfinite(width) else "not known"
        return f"--until: after {iterations} the interval of {benchmark} is {how_wide}, not {wide}"

    @property
    def _is_narrow(self) -> bool:
        return all(_width(logs) <= self._share for logs in self._logs.values())


def _width(logs: list[float]) -> float:
    """Return the width of the interval as a share; infinite for too few values."""
    if len(logs) < FEWEST_ITERATIONS:
        return math.inf
    error = paired_estimate(logs).error() or 0.0
    return 2 * math.sinh(t_quantile(_CONFIDENCE, len(logs) - 1) * error)
