"""The rows of a comparison: each benchmark, and suites, with an estimate for every side; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from rater.analysis.compare.contrast import Stratum, contrast, in_pairs
from rater.analysis.compare.model import Effect, EffectRow
from rater.analysis.results.rates import IterationRate, Key, RunRates
from rater.analysis.stats.descriptive import geometric_mean
from rater.analysis.stats.estimate import Estimate, joined
from rater.analysis.stats.ratio_interval import Decision, RatioInterval, interval_of

_HOUR_S = 3600.0

type _Value = Callable[[IterationRate], float | None]
# By values of the axes that are held, the runs of every side; one entry where none are held.
type Grid = Sequence[Sequence[Sequence[RunRates]]]


@dataclass(frozen=True, slots=True)
class RowMaker:
    """Makes rows: what every estimate is told with."""

    margin: float
    confidence: float
    next_confidence: float  # once there are more runs
    correlated: tuple[float, ...]  # by side but the baseline: see `correlated_rounds`

    def benchmark(self, key: Key, grid: Grid) -> EffectRow:
        """Return one benchmark in all sides; all runs of the grid have it."""
        name, tune = key
        measured = [run.rates[key] for side in _sides(grid) for run in side]
        references = {one.reference_s for one in measured}
        reference_s = references.pop() if len(references) == 1 else None
        worth = reference_s / _HOUR_S if reference_s else 1.0

        def value(runs: Sequence[RunRates]) -> float | None:
            return _mean([run.rates[key].median_per_hour * worth for run in runs])

        unit = "ratio" if reference_s else "copies/hour"
        category = measured[0].category if measured else None
        return EffectRow(name, tune, category, unit, (), self._cells([key], grid, value))

    def suite(
        self,
        kind: str,
        category: str | None,
        common: Sequence[Key],
        grid: Grid,
    ) -> EffectRow | None:
        """Return a suite in all sides; None where it has not two benchmarks.

        All runs of the grid have all of `common`: `all`, `int` and `fp` are of the same runs.
        """
        every = [run for side in _sides(grid) for run in side]
        keys = [key for key in common if category is None or category in _categories(key, every)]
        if len(keys) < 2:
            return None
        scores = category is None and all(
            run.score and run.rates.keys() == set(common) for run in every
        )

        def value(runs: Sequence[RunRates]) -> float | None:
            if scores:
                return _mean([run.score or 0.0 for run in runs])
            return _suite_value(keys, runs)

        over = tuple(name for name, _ in keys)
        cells = self._cells(keys, grid, value, by_score=scores)
        return EffectRow(kind, None, category, "ratio", over, cells)

    def _cells(
        self,
        keys: Sequence[Key],
        grid: Grid,
        value: Callable[[Sequence[RunRates]], float | None],
        *,
        by_score: bool = False,
    ) -> tuple[Effect, ...]:
        cells = []
        for place in range(1, len(grid[0]) if grid else 0):
            strata = [in_pairs((at[0], at[place])) for at in grid]
            base, other = ([run for stratum in strata for run in stratum[i]] for i in (0, 1))
            cells.append(
                self._cell(
                    *(keys, strata, value(base), value(other)),
                    by_score=by_score,
                    correlated=self.correlated[place - 1],
                )
            )
        return tuple(cells)

    def _cell(
        self,
        keys: Sequence[Key],
        strata: Sequence[Stratum],
        baseline: float | None,
        value: float | None,
        *,
        by_score: bool,
        correlated: float,
    ) -> Effect:
        rate = _estimate(
            *(keys, strata, lambda sample: sample.per_hour),
            by_score=by_score,
            correlated=correlated,
        )
        speedup = self._tell(rate) if rate else None
        same = not any(mixed(stratum) or len(kinds(stratum)) > 1 for stratum in strata)
        median = _estimate(keys, strata, _median_copy_rate) if same else None
        slowest = (
            _estimate(keys, strata, lambda s: s.slowest_over_median, steps=2) if same else None
        )
        joules = _estimate(keys, strata, lambda sample: sample.joules_per_copy)
        return Effect(
            baseline=baseline,
            value=value,
            speedup=speedup,
            median_copy=self._tell(median) if median else None,
            slowest_over_median=self._tell(slowest, less_is_better=True) if slowest else None,
            joules_per_copy=self._tell(joules, less_is_better=True) if joules else None,
            p_holm=None,
            holds=False,
            reason=None if rate else "no valid result on one of the sides",
        )

    def _tell(self, estimate: Estimate, *, less_is_better: bool = False) -> RatioInterval:
        return interval_of(
            *(estimate, self.margin, self.confidence),
            less_is_better=less_is_better,
            next_confidence=self.next_confidence,
        )


def mixed(stratum: Stratum) -> bool:
    """Tell whether runs with other numbers of copies are compared."""
    return len({run.copies for side in stratum for run in side}) > 1


def kinds(stratum: Stratum) -> set[str]:
    """Return what the rates of a stratum's runs are."""
    return {run.kind for side in stratum for run in side}


def _median_copy_rate(sample: IterationRate) -> float | None:
    return 1 / sample.median_copy_s if sample.median_copy_s else None


def _estimate(
    keys: Sequence[Key],
    strata: Sequence[Stratum],
    value: _Value,
    *,
    by_score: bool = False,
    steps: int = 1,
    correlated: float = 0.0,
) -> Estimate | None:
    """Return how far the sides lie apart in the mean over benchmarks of a value's logarithm.

    `steps`: how many recorded times go into a value, each with the step it is known to;
    `correlated`: see `correlated_rounds`.
    """

    def run_value(run: RunRates) -> float | None:
        if by_score:
            return math.log(run.score) if run.score else None
        logs = [run.rates[key].log(value) for key in keys if key in run.rates]
        known = [log for log in logs if log is not None]
        return statistics.fmean(known) if len(known) == len(keys) else None

    def step(run: RunRates) -> float:
        return steps * statistics.fmean(run.step(key) for key in keys)

    if len(keys) == 1:
        (key,) = keys
        return contrast(strata, run_value, lambda run: run.rates[key].logs(value), step, correlated)
    found = contrast(strata, run_value, lambda _: (), step, correlated)
    if found is None or found.parts or by_score:
        return found
    # Single runs: the noise that iterations show in each benchmark.
    each = [_estimate([key], strata, value, steps=steps) for key in keys]
    return joined([one for one in each if one is not None])


def _mean(values: Sequence[float]) -> float | None:
    return geometric_mean(values) if values else None


def _suite_value(keys: Sequence[Key], runs: Sequence[RunRates]) -> float | None:
    """Return the geometric mean of ratios over benchmarks and runs; None without references."""
    ratios = [
        it.median_per_hour * it.reference_s / _HOUR_S if it.reference_s else None
        for run in runs
        for it in (run.rates[key] for key in keys)
    ]
    known = [ratio for ratio in ratios if ratio is not None]
    references = {(key, run.rates[key].reference_s) for run in runs for key in keys}
    same = len(references) == len(keys)
    return _mean(known) if same and len(known) == len(ratios) else None


def _sides(grid: Grid) -> Iterable[Sequence[RunRates]]:
    return (side for at in grid for side in at)


def _categories(key: Key, runs: Iterable[RunRates]) -> set[str | None]:
    return {run.rates[key].category for run in runs if key in run.rates}


def with_holm(rows: Sequence[EffectRow], confidence: float) -> list[EffectRow]:
    """Set what every cell's p is with all of them considered (S. Holm, 1979).

    In the order of p, each times the number that are left, and never below the one before.
    """
    known = sorted(p for row in rows for cell in row.cells if (p := p_of(cell)) is not None)
    adjusted: dict[float | None, float] = {}
    highest = 0.0
    for rank, p in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - rank)))
        adjusted.setdefault(p, highest)

    def judged(cell: Effect) -> Effect:
        p = adjusted.get(p_of(cell))
        one_way = cell.speedup and cell.speedup.verdict in (Decision.BETTER, Decision.WORSE)
        return replace(cell, p_holm=p, holds=bool(one_way and p is not None and p < 1 - confidence))

    return [replace(row, cells=tuple(map(judged, row.cells))) for row in rows]


def p_of(cell: Effect) -> float | None:
    """Return p of a cell's speedup, None where the noise of runs is not known."""
    return cell.speedup.p if cell.speedup else None
