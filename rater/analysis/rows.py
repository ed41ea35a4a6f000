"""The rows of a comparison: each benchmark, and suites, with an estimate for every side; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from rater.analysis.comparison import Cell, Row
from rater.analysis.contrast import Stratum, contrast
from rater.analysis.interval import Estimate, Verdict, joined, tell
from rater.analysis.measures import Key, RunMeasures, Sample, log_of, of_run
from rater.analysis.stats import geometric_mean

_HOUR_S = 3600.0

type _Value = Callable[[Sample], float | None]


@dataclass(frozen=True, slots=True)
class Telling:
    """Makes rows: what every estimate is told with."""

    margin: float
    confidence: float

    def benchmark(
        self, key: Key, runs: Sequence[Sequence[RunMeasures]], pairs: Sequence[Sequence[Stratum]]
    ) -> Row:
        """Return one benchmark in all sides."""
        name, tune = key
        measured = [run.benchmarks[key] for side in runs for run in side if key in run.benchmarks]
        references = {one.reference_s for one in measured}
        reference_s = references.pop() if len(references) == 1 else None
        worth = reference_s / _HOUR_S if reference_s else 1.0
        values = [_mean_rate(key, side, worth) for side in runs]
        cells = [
            self._cell([key], values[0], value, strata)
            for value, strata in zip(values[1:], pairs, strict=True)
        ]
        unit = "ratio" if reference_s else "copies/hour"
        return Row(name, tune, measured[0].category, unit, (), tuple(cells))

    def suite(
        self,
        kind: str,
        category: str | None,
        common: Sequence[Key],
        runs: Sequence[Sequence[RunMeasures]],
        pairs: Sequence[Sequence[Stratum]],
    ) -> Row | None:
        """Return a suite in all sides; None where it has not two benchmarks."""
        every = [run for side in runs for run in side]
        keys = [key for key in common if category is None or category in _categories(key, every)]
        if len(keys) < 2:
            return None
        scores = category is None and all(run.score for run in every)
        values = [_suite_value(keys, side, by_score=scores) for side in runs]
        cells = [
            self._cell(keys, values[0], value, strata, by_score=scores)
            for value, strata in zip(values[1:], pairs, strict=True)
        ]
        over = tuple(name for name, _ in keys)
        return Row(kind, None, category, "ratio", over, tuple(cells))

    def _cell(
        self,
        keys: Sequence[Key],
        baseline: float | None,
        value: float | None,
        strata: Sequence[Stratum],
        *,
        by_score: bool = False,
    ) -> Cell:
        rate = _estimate(keys, strata, lambda sample: sample.per_hour, by_score=by_score)
        speedup = tell(rate, self.margin, self.confidence) if rate else None
        alike = not any(mixed(stratum) for stratum in strata)
        median = _estimate(keys, strata, _median_copy_rate) if alike else None
        slowest = _estimate(keys, strata, lambda s: s.slowest_over_median) if alike else None
        return Cell(
            baseline=baseline,
            value=value,
            speedup=speedup,
            median_copy=tell(median, self.margin, self.confidence) if median else None,
            slowest_over_median=tell(slowest, self.margin, self.confidence, less_is_better=True)
            if slowest
            else None,
            p_holm=None,
            holds=False,
            reason=None if rate else "no valid result on one of the sides",
        )


def mixed(stratum: Stratum) -> bool:
    """Tell whether runs with other numbers of copies are compared."""
    return len({run.copies for side in stratum for run in side}) > 1


def _median_copy_rate(sample: Sample) -> float | None:
    return 1 / sample.median_copy_s if sample.median_copy_s else None


def _estimate(
    keys: Sequence[Key], strata: Sequence[Stratum], value: _Value, *, by_score: bool = False
) -> Estimate | None:
    """Return how far the sides lie apart in the mean over benchmarks of a value's logarithm."""

    def run_value(run: RunMeasures) -> float | None:
        if by_score:
            return math.log(run.score) if run.score else None
        logs = [of_run(run.benchmarks[key], value) for key in keys if key in run.benchmarks]
        known = [log for log in logs if log is not None]
        return statistics.fmean(known) if len(known) == len(keys) else None

    if len(keys) == 1:
        (key,) = keys
        return contrast(strata, run_value, lambda run: log_of(run.benchmarks[key], value))
    found = contrast(strata, run_value, lambda _: ())
    if found is None or found.parts or by_score:
        return found
    # Single runs: the noise that iterations show in each benchmark.
    each = [_estimate([key], strata, value) for key in keys]
    return joined([one for one in each if one is not None])


def _mean_rate(key: Key, side: Sequence[RunMeasures], worth: float) -> float | None:
    logs = [
        of_run(run.benchmarks[key], lambda s: s.per_hour) for run in side if key in run.benchmarks
    ]
    known = [log for log in logs if log is not None]
    return math.exp(statistics.fmean(known)) * worth if known else None


def _suite_value(
    keys: Sequence[Key], side: Sequence[RunMeasures], *, by_score: bool
) -> float | None:
    """Return the geometric mean of ratios over benchmarks and runs; None without references."""
    if by_score:
        return geometric_mean([run.score or 0.0 for run in side])
    ratios = []
    for key in keys:
        measured = [run.benchmarks[key] for run in side if key in run.benchmarks]
        references = {one.reference_s for one in measured}
        reference_s = references.pop() if len(references) == 1 else None
        ratios.append(_mean_rate(key, side, reference_s / _HOUR_S) if reference_s else None)
    known = [ratio for ratio in ratios if ratio is not None]
    return geometric_mean(known) if len(known) == len(keys) else None


def _categories(key: Key, runs: Iterable[RunMeasures]) -> set[str | None]:
    return {run.benchmarks[key].category for run in runs if key in run.benchmarks}


def with_holm(rows: Sequence[Row], confidence: float) -> list[Row]:
    """Set what every cell's p is with all of them considered (S. Holm, 1979).

    In the order of p, each times the number that are left, and never below the one before.
    """
    places = [(i, j) for i, row in enumerate(rows) for j in range(len(row.cells))]
    known = {
        place: p for place in places if (p := p_of(rows[place[0]].cells[place[1]])) is not None
    }
    adjusted: dict[tuple[int, int], float] = {}
    highest = 0.0
    for rank, place in enumerate(sorted(known, key=lambda place: known[place])):
        highest = max(highest, min(1.0, known[place] * (len(known) - rank)))
        adjusted[place] = highest
    return [
        replace(
            row,
            cells=tuple(
                replace(
                    cell,
                    p_holm=adjusted.get((i, j)),
                    holds=_one_way(cell) and adjusted.get((i, j), 1.0) < 1 - confidence,
                )
                for j, cell in enumerate(row.cells)
            ),
        )
        for i, row in enumerate(rows)
    ]


def p_of(cell: Cell) -> float | None:
    """Return p of a cell's speedup, None where nothing is known of the noise."""
    return cell.speedup.p if cell.speedup else None


def _one_way(cell: Cell) -> bool:
    return cell.speedup is not None and cell.speedup.verdict in (Verdict.BETTER, Verdict.WORSE)
