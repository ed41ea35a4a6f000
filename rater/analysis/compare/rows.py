"""The rows of a comparison, each with an estimate for every side; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from rater.analysis.compare.model import Effect, EffectRow
from rater.analysis.results.rates import IterationRate, Key, RunRates
from rater.analysis.stats.estimate import (
    Basis,
    Estimate,
    geometric_mean,
    mean_estimate,
    paired_estimate,
    unpaired_estimate,
)
from rater.analysis.stats.independence import (
    DEPENDENT,
    LEAST_TESTED,
    MeasuredLog,
    autocorrelation,
    estimate_from_rounds,
    estimate_from_runs,
)
from rater.analysis.stats.intervals import Decision, RatioInterval, ratio_interval
from rater.text.values import group_by_key

# -- From the values of runs to one estimate of how far two sides lie apart ------------------------
#
# Best first: pairs in blocks, where both sides have a run in two blocks at least (runs without a
# partner are left out then) and the blocks were made one after the other; else runs against runs;
# else, of single runs, iterations against iterations (how runs differ from each other is not in
# that noise: no verdict stands on it).

type Stratum = tuple[Sequence[RunRates], Sequence[RunRates]]  # baseline's runs, the other's
type OfRun = Callable[[RunRates], float | None]  # a logarithm; None: not known
type OfIterations = Callable[[RunRates], Sequence[float]]

_FEWEST_BLOCKS = 2


def contrast(
    strata: Sequence[Stratum],
    of_run: OfRun,
    of_iterations: OfIterations,
    step_of: Callable[[RunRates], float] = lambda _: 0.0,
    correlated: float = 0.0,
) -> Estimate | None:
    """Return how far the other side is above the baseline; None where one has no values.

    Several strata (the same two values under other conditions) count alike; those in which
    a side has no values are left out. `step_of`: how coarse a run's value is, as a logarithm;
    `correlated`: see `correlated_rounds`.
    """
    found = [_in_stratum(stratum, of_run, of_iterations, step_of, correlated) for stratum in strata]
    known = [estimate for estimate in found if estimate is not None]
    return mean_estimate(known) if known else None


def in_pairs(stratum: Stratum) -> Stratum:
    """Return the runs that count: where they are compared in blocks, those in common blocks."""
    base, other = stratum
    both = _blocks(base, other)
    if not both:
        return stratum
    return (
        [run for run in base if run.block in both],
        [run for run in other if run.block in both],
    )


def correlated_rounds(strata: Iterable[Stratum], keys: Sequence[Key]) -> float:
    """Return the autocorrelation that all benchmarks show together in their rounds; 0: none.

    What stays with a point for several rounds often meets all of its benchmarks, of which each
    alone says little.
    """
    found = 0.0
    for base, other in strata:
        blocks = _blocks(base, other)
        if len(blocks) < LEAST_TESTED:
            continue
        series = [
            [here[block] - there[block] for block in blocks]
            for key in keys
            for here, there in [(_logs(other, key), _logs(base, key))]
            if here.keys() >= set(blocks) <= there.keys()
        ]
        if len(series) > 1:
            r, p = autocorrelation(series)
            found = max(found, r if p <= DEPENDENT / 2 else 0.0)
    return found


def _logs(runs: Sequence[RunRates], key: Key) -> dict[int | None, float]:
    """Return the values of a benchmark by block."""
    found = group_by_key(
        (run.block, value)
        for run in runs
        if key in run.rates
        and (value := run.rates[key].log(lambda sample: sample.per_hour)) is not None
    )
    return {block: statistics.fmean(values) for block, values in found.items()}


def _blocks(base: Sequence[RunRates], other: Sequence[RunRates]) -> list[int]:
    """Return the blocks in which both sides have runs, in order; none where most are no blocks.

    Blocks of which one begins before another has ended (A1 A2 A3 B1 B2 B3) are names only: what
    drifts meets the runs of one of them at different times.
    """
    both = ({run.block for run in base} & {run.block for run in other}) - {None}
    if len(both) < _FEWEST_BLOCKS:
        return []
    places: dict[int, list[int]] = {}
    for run in (*base, *other):
        if run.block in both and run.block is not None:
            if run.place is None:
                return sorted(block for block in both if block is not None)
            places.setdefault(run.block, []).append(run.place)
    spans = sorted((min(of_it), max(of_it), block) for block, of_it in places.items())
    apart = _apart(spans)
    return [block for *_, block in apart] if 2 * len(apart) > len(spans) else []


def _apart(spans: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the blocks without those that overlap others, the worst taken out first.

    A run that was made again later, after an interruption, spoils its own block only.
    """
    kept = list(spans)
    while True:
        overlaps = [sum(a[0] <= b[1] and b[0] <= a[1] for b in kept) for a in kept]
        if max(overlaps, default=1) == 1:  # itself
            return kept
        kept.pop(max(range(len(kept)), key=lambda i: (overlaps[i], kept[i][1] - kept[i][0])))


def _in_stratum(
    stratum: Stratum,
    of_run: OfRun,
    of_iterations: OfIterations,
    step_of: Callable[[RunRates], float],
    correlated: float,
) -> Estimate | None:
    base, other = stratum
    sides = [
        [(run, value) for run in side if (value := of_run(run)) is not None]
        for side in (other, base)
    ]
    if not all(sides):
        return None
    step = max(step_of(run) for side in sides for run, _ in side)
    blocks = _blocks([run for run, _ in sides[1]], [run for run, _ in sides[0]])
    if blocks:
        here, there = (_by_block(side) for side in sides)
        rounds = [(here[block], there[block]) for block in blocks]
        return estimate_from_rounds(rounds, step=step, correlated=correlated)
    mine, theirs = ([_timed([run], [value]) for run, value in side] for side in sides)
    if max(len(mine), len(theirs)) > 1:
        return estimate_from_runs(mine, theirs, step=step)
    ((my_run, my_value),), ((their_run, their_value),) = sides
    iterations = of_iterations(my_run), of_iterations(their_run)
    if all(iterations) and max(map(len, iterations)) > 1:
        return unpaired_estimate(*iterations, Basis.ITERATIONS, step=step)
    return paired_estimate([my_value - their_value])


def _by_block(side: Sequence[tuple[RunRates, float]]) -> dict[int, MeasuredLog]:
    found = group_by_key((run.block, (run, value)) for run, value in side if run.block is not None)
    return {block: _timed(*zip(*of_it, strict=True)) for block, of_it in found.items()}


def _timed(runs: Sequence[RunRates], values: Sequence[float]) -> MeasuredLog:
    places = [run.place for run in runs if run.place is not None]
    place = statistics.fmean(places) if len(places) == len(runs) else None
    return MeasuredLog(statistics.fmean(values), place, runs[0].session)


# -- The rows of a comparison: each benchmark, and suites, with an estimate for every side ---------

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
        return ratio_interval(
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
    return mean_estimate([one for one in each if one is not None])


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
