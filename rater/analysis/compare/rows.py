"""The rows of a comparison, each with an estimate for every side; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.compare.model import CpuTimeValues, Effect, EffectRow
from rater.analysis.results.disturbed import FEWEST_ROUNDS, mostly_disturbed
from rater.analysis.results.measure import MetricMeasure
from rater.analysis.results.rates import Key, RunRates, mean_rate
from rater.analysis.results.result import Result
from rater.analysis.stats.estimate import Estimate, mean_estimate
from rater.analysis.stats.independence import (
    MeasuredLog,
    estimate_from_rounds,
    estimate_from_runs,
    serial_evidence,
)
from rater.analysis.stats.intervals import Decision, RatioInterval, ratio_interval
from rater.record.stored import CPU_RATIO, PER_CPU_HOUR, PER_HOUR, RATIO
from rater.text.values import group_by_key, percent

# -- From the values of runs to one estimate of how far two sides lie apart ------------------------
#
# Best first: pairs in blocks, where both sides have a run in two blocks at least (runs without a
# partner are left out then) and the blocks were made one after the other; else runs against runs.
# Of single runs there is no more than the ratio.

type Stratum = tuple[Sequence[RunRates], Sequence[RunRates]]  # baseline's runs, the other's
type _Value = Callable[[Result], float | None]  # one of a benchmark's in a run
type _OfRun = Callable[[RunRates], float | None]

_FEWEST_BLOCKS = 2


def in_pairs(stratum: Stratum) -> Stratum:
    """Return the runs that count: where they are compared in blocks, those in common blocks."""
    base, other = stratum
    both = set(_blocks(base, other))
    if not both:
        return stratum
    return (
        [run for run in base if run.block in both],
        [run for run in other if run.block in both],
    )


def rounds_evidence(
    strata: Iterable[Stratum], keys: Sequence[Key], measure: MetricMeasure | None = None
) -> float | None:
    """Return what all benchmarks say of whether their rounds hang together; None: nothing.

    What stays with a point for several rounds often meets all of its benchmarks, of which each
    alone says little.
    """
    evidence = []
    rate = _rate_of(measure)
    for base, other in strata:
        blocks = _blocks(base, other)
        series = [
            [here[block].log - there[block].log for block in blocks]
            for key in keys
            for here, there in [[_by_block(_values(side, [key], rate)) for side in (other, base)]]
            if blocks and here.keys() >= set(blocks) <= there.keys()
        ]
        evidence += [serial_evidence(series)] if series else []
    return sum(evidence) if evidence else None


def _rate_of(measure: MetricMeasure | None) -> _Value:
    """Return what sides are compared in: what rises as a benchmark gets better."""
    return _rate if measure is None else _merit


def _rate(rate: Result) -> float | None:
    return rate.per_hour


def _mean_of_metric(rates: Sequence[Result]) -> float | None:
    return mean_rate([rate.measured.value if rate.measured else None for rate in rates])


def _merit(rate: Result) -> float | None:
    return rate.measured.merit if rate.measured else None


def _blocks(base: Sequence[RunRates], other: Sequence[RunRates]) -> list[int]:
    """Return the blocks in which both sides have runs, in order; empty if most of them overlap.

    Blocks of which one begins before another has ended (A1 A2 A3 B1 B2 B3) are names only: what
    drifts meets the runs of one of them at different times.
    """
    common = ({run.block for run in base} & {run.block for run in other}) - {None}
    if len(common) < _FEWEST_BLOCKS:
        return []
    places: dict[int, list[int]] = {}
    for run in (*base, *other):
        if run.block in common and run.block is not None:
            if run.place is None:
                return sorted(block for block in common if block is not None)
            places.setdefault(run.block, []).append(run.place)
    spans = sorted((min(of_it), max(of_it), block) for block, of_it in places.items())
    apart = _apart(spans)
    return [block for *_, block in apart] if 2 * len(apart) > len(spans) else []


def _apart(spans: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the blocks without those that overlap others, the worst taken out first.

    A run that was made again later, after an interruption, spoils its own block only.
    """
    starts, ends, _ = np.array(spans).T
    overlaps = np.searchsorted(starts, ends, side="right") - np.searchsorted(np.sort(ends), starts)
    lengths, is_kept = ends - starts, np.ones(len(spans), dtype=bool)
    # One order of both: more overlaps first, and of those that have as many the longest.
    longer = int(lengths.max()) + 1
    while overlaps.max() > 1:  # 1: itself
        worst = int(np.argmax(overlaps * longer + lengths))
        overlaps[is_kept & (starts <= ends[worst]) & (ends >= starts[worst])] -= 1
        overlaps[worst], is_kept[worst] = 0, False
    return [span for span, kept in zip(spans, is_kept, strict=True) if kept]


def _contrast(
    sides: Sequence[Sequence[tuple[RunRates, float]]], step: float, evidence: float | None
) -> Estimate:
    """Return how far the first side's logarithms lie above the second's; both have some."""
    blocks = _blocks(*([run for run, _ in side] for side in reversed(sides)))
    if blocks:
        here, there = map(_by_block, sides)
        rounds = [(here[block], there[block]) for block in blocks]
        return estimate_from_rounds(rounds, step=step, evidence=evidence)
    mine, theirs = ([_timed([run], [value]) for run, value in side] for side in sides)
    return estimate_from_runs(mine, theirs, step=step)


def _by_block(side: Sequence[tuple[RunRates, float]]) -> dict[int, MeasuredLog]:
    found = group_by_key((run.block, (run, value)) for run, value in side if run.block is not None)
    return {block: _timed(*zip(*of_it, strict=True)) for block, of_it in found.items()}


def _timed(runs: Sequence[RunRates], values: Sequence[float]) -> MeasuredLog:
    places = [run.place for run in runs if run.place is not None]
    place = statistics.fmean(places) if len(places) == len(runs) else None
    return MeasuredLog(statistics.fmean(values), place, runs[0].session)


# -- The rows of a comparison: each benchmark, and suites, with an estimate for every side ---------

# By values of the axes that are held, the runs of every side; one entry where none are held.
type Grid = Sequence[Sequence[Sequence[RunRates]]]


class _RowValues(Struct, frozen=True, kw_only=True):
    """What the values of a row are, of each run that has all of the row's benchmarks."""

    unit: str
    value: _OfRun
    cpu_value: _OfRun  # the same by CPU time
    score: _OfRun | None = None  # of rotated order, what is compared in place of the mean

    def by_cpu_time(self, strata: Sequence[Stratum]) -> CpuTimeValues | None:
        """Return the values by CPU time of both sides, over the runs that are compared."""
        means = [
            mean_rate(
                [self.cpu_value(run) for stratum in strata for run in in_pairs(stratum)[side]]
            )
            for side in (0, 1)
        ]
        baseline, value = means
        if baseline is None or value is None:
            return None
        unit = CPU_RATIO if self.unit == RATIO else PER_CPU_HOUR
        return CpuTimeValues(baseline=baseline, value=value, unit=unit)


class RowMaker(Struct, frozen=True, kw_only=True):
    """Makes rows: what every estimate is told with."""

    margin: float
    confidence: float
    next_confidence: float  # once there are more runs
    evidence: Sequence[float | None]  # by side but the baseline: see `rounds_evidence`
    by_cpu: bool = False  # CPU time has to judge, whether or not runs were disturbed
    measure: MetricMeasure | None = None  # the metric that judges in place of times

    def benchmark(self, key: Key, grid: Grid) -> EffectRow:
        """Return one benchmark in all sides; all runs of the grid have it."""
        name, tune = key
        measured = [run.rates[key] for side in _sides(grid) for run in side]
        references = {result.reference_s for result in measured}
        by_ratio = len(references) == 1 and None not in references

        def value(run: RunRates) -> float | None:
            rate = run.rates[key]
            if rate.measured is not None:
                return rate.measured.value
            return rate.ratio if by_ratio else rate.per_hour

        def cpu_value(run: RunRates) -> float | None:
            rate = run.rates[key]
            return rate.cpu_ratio if by_ratio else rate.per_cpu_hour

        unit = self._unit(by_ratio=by_ratio)
        category = measured[0].category if measured else None
        return EffectRow(
            name=name,
            tune=tune,
            category=category,
            unit=unit,
            over=(),
            cells=self._cells([key], grid, _RowValues(unit=unit, value=value, cpu_value=cpu_value)),
        )

    def suite(
        self,
        kind: str,
        category: str | None,
        common: Sequence[Key],
        grid: Grid,
    ) -> EffectRow | None:
        """Return a suite in all sides; None if it has fewer than two benchmarks.

        All runs of the grid have all of `common`: `all`, `int` and `fp` are of the same runs.
        """
        every = [run for side in _sides(grid) for run in side]
        keys = [
            key
            for key in common
            if category is None or any(run.rates[key].category == category for run in every)
        ]
        if len(keys) < 2:
            return None
        scores = category is None and all(
            run.score and run.rates.keys() == set(common) for run in every
        )
        references = {key: {run.rates[key].reference_s for run in every} for key in keys}
        by_hour = all(of_key == {None} for of_key in references.values())
        is_one_unit = by_hour or all(len(of_key) == 1 for of_key in references.values())

        def score(run: RunRates) -> float | None:
            return run.score

        def value(run: RunRates) -> float | None:
            rates = [run.rates[key] for key in keys]
            if self.measure is not None:
                return _mean_of_metric(rates)
            if not is_one_unit:
                return None
            return mean_rate([rate.per_hour if by_hour else rate.ratio for rate in rates])

        def cpu_value(run: RunRates) -> float | None:
            if not is_one_unit:
                return None
            rates = [run.rates[key] for key in keys]
            return mean_rate([rate.per_cpu_hour if by_hour else rate.cpu_ratio for rate in rates])

        unit = self._unit(by_ratio=not by_hour)
        row_values = _RowValues(
            unit=unit,
            value=score if scores else value,
            cpu_value=cpu_value,
            score=score if scores else None,
        )
        return EffectRow(
            name=kind,
            tune=None,
            category=category,
            unit=unit,
            over=tuple(name for name, _ in keys),
            cells=self._cells(keys, grid, row_values),
        )

    def _unit(self, *, by_ratio: bool) -> str:
        if self.measure is not None:
            return self.measure.unit or self.measure.name
        return RATIO if by_ratio else PER_HOUR

    def _cells(self, keys: Sequence[Key], grid: Grid, values: _RowValues) -> tuple[Effect, ...]:
        return tuple(
            self._cell(keys, [(at[0], at[place]) for at in grid], values, known)
            for place, known in enumerate(self.evidence, 1)
        )

    def _cell(
        self,
        keys: Sequence[Key],
        strata: Sequence[Stratum],
        values: _RowValues,
        evidence: float | None,
    ) -> Effect:
        # What all benchmarks have in common, their mean shows best.
        known = None if keys[1:] else evidence
        rate = _estimate(keys, strata, _rate_of(self.measure), values.score, known)
        may_be_unfit = rate and (self.measure is None or self.measure.is_disturbable)
        unfit = _disturbed(strata) if may_be_unfit else None
        speedup = self._speedup(keys, strata, rate, unfit) if rate else None
        is_of_times = self.measure is None and not (unfit or self.by_cpu)
        same = is_of_times and not any(mixed(of) or len(kinds(of)) > 1 for of in strata)
        median = _estimate(keys, strata, _median_copy_rate) if same else None
        slowest = (
            _estimate(keys, strata, lambda it: it.slowest_over_median, steps=2) if same else None
        )
        joules = None if unfit else _estimate(keys, strata, lambda it: it.joules_per_copy)
        base, other = ([values.value(run) for of in strata for run in of[side]] for side in (0, 1))
        return Effect(
            baseline=mean_rate(base),
            value=mean_rate(other),
            by_cpu=values.by_cpu_time(strata) if speedup and speedup.by_cpu else None,
            speedup=speedup,
            median_copy=self._tell(median) if median else None,
            slowest_over_median=self._tell(slowest, less_is_better=True) if slowest else None,
            joules_per_copy=self._tell(joules, less_is_better=True) if joules else None,
            p_holm=None,
            holds=False,
            reason=None if rate else "no valid result on one of the sides",
        )

    def _speedup(
        self, keys: Sequence[Key], strata: Sequence[Stratum], rate: Estimate, unfit: str | None
    ) -> RatioInterval:
        """Return the speedup; `unfit`: why times do not tell it, so that CPU time has to."""
        if not unfit and not self.by_cpu:
            return self._tell(rate)
        if self.measure is not None:  # no CPU time stands for what a program reports
            interval = self._tell(replace(rate, refused=rate.refused or unfit or ""))
            return replace(interval, verdict=Decision.CANNOT_TELL)
        sides = [[run for stratum in strata for run in in_pairs(stratum)[side]] for side in (0, 1)]
        results = [
            [run.rates[key] for run in runs for key in keys if key in run.rates] for runs in sides
        ]
        lacking = next(
            (
                result.not_by_cpu
                for of_side in results
                for result in of_side
                if not result.cpu_per_s
            ),
            None,
        )
        by_cpu = None if lacking else _estimate(keys, strata, lambda result: result.cpu_per_s)
        if by_cpu is None:
            why = [f"not by CPU time: {lacking}"] if lacking else []
            refused = "; ".join([*([unfit] if unfit else []), *why])
            interval = self._tell(replace(rate, refused=rate.refused or refused))
            return replace(interval, verdict=Decision.CANNOT_TELL)
        took = max(
            statistics.fmean(result.others_took or 0.0 for result in of_side) for of_side in results
        )
        return replace(self._tell(by_cpu), by_cpu=f"others took {percent(took, 0)} % of the CPU")

    def _tell(self, estimate: Estimate, *, less_is_better: bool = False) -> RatioInterval:
        return ratio_interval(
            estimate,
            self.margin,
            confidence=self.confidence,
            less_is_better=less_is_better,
            next_confidence=self.next_confidence,
        )


def mixed(stratum: Stratum) -> bool:
    """Tell whether runs with other numbers of copies are compared."""
    return len({run.copies for side in stratum for run in side}) > 1


def kinds(stratum: Stratum) -> set[str]:
    """Return what the rates of a stratum's runs are."""
    return {run.kind for side in stratum for run in side}


def _disturbed(strata: Sequence[Stratum]) -> str | None:
    """Return why no verdict can stand on these runs: most of a side's were disturbed."""
    sides = [[run.taken for run in in_pairs(of)[side]] for of in strata for side in (0, 1)]
    reasons = (mostly_disturbed(taken) for taken in sorted(sides, key=sum, reverse=True))
    return next(filter(None, reasons), None)


def _median_copy_rate(rate: Result) -> float | None:
    return 1 / rate.median_copy_s if rate.median_copy_s else None


def _estimate(
    keys: Sequence[Key],
    strata: Sequence[Stratum],
    of: _Value,
    score: _OfRun | None = None,
    evidence: float | None = None,
    *,
    steps: int = 1,
) -> Estimate | None:
    """Return how far the other side is above the baseline; None if a side has no values.

    In the mean over benchmarks of a value's logarithm, or in a score of the run. Several strata
    (the same two values under other conditions) count alike; those in which a side has no values
    are left out. `steps`: how many recorded times go into a value, each with the step it is known
    to; `evidence`: see `rounds_evidence`.
    """
    estimates = []
    for base, other in strata:
        sides = [_values(side, keys, of, score) for side in (other, base)]
        if all(sides):
            known = {run.run: run for side in sides for run, _ in side}.values()
            coarse = (statistics.fmean(run.step(key) for key in keys) for run in known)
            estimates.append(_contrast(sides, steps * max(coarse), evidence))
    return mean_estimate(estimates) if estimates else None


def _values(
    runs: Sequence[RunRates], keys: Sequence[Key], of: _Value, score: _OfRun | None = None
) -> list[tuple[RunRates, float]]:
    """Return the runs that have a value, and its logarithm (several benchmarks': the mean)."""
    values = []
    for run in runs:
        rates = [run.rates[key] for key in keys if key in run.rates]
        whole = len(rates) == len(keys)
        value = score(run) if score else mean_rate([of(rate) for rate in rates]) if whole else None
        if value:
            values.append((run, math.log(value)))
    return values


def _sides(grid: Grid) -> Iterable[Sequence[RunRates]]:
    return (side for at in grid for side in at)


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
        told = cell.speedup
        apart = told and told.verdict in (Decision.BETTER, Decision.WORSE)
        enough = told is not None and told.count >= FEWEST_ROUNDS
        holds = bool(apart and enough and p is not None and p < 1 - confidence)
        return replace(cell, p_holm=p, holds=holds)

    return [replace(row, cells=tuple(map(judged, row.cells))) for row in rows]


def p_of(cell: Effect) -> float | None:
    """Return p of a cell's speedup, None if the noise of its runs is not known."""
    return cell.speedup.p if cell.speedup else None
