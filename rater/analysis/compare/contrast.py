"""From the values of runs to one estimate of how far two sides lie apart; pure.

Best first: pairs in blocks, where both sides have a run in two blocks at least (runs without a
partner are left out then) and the blocks were made one after the other; else runs against runs;
else, of single runs, iterations against iterations (how runs differ from each other is not in that
noise: no verdict stands on it).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

from rater.analysis.results.rates import Key, RunRates
from rater.analysis.stats.estimate import Basis, Estimate, joined, paired, unpaired
from rater.analysis.stats.independence import (
    DEPENDENT,
    LEAST_TESTED,
    MeasuredLog,
    correlation,
    of_rounds,
    of_runs,
)
from rater.groups import grouped

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
    return joined(known) if known else None


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
            r, p = correlation(series)
            found = max(found, r if p <= DEPENDENT / 2 else 0.0)
    return found


def _logs(runs: Sequence[RunRates], key: Key) -> dict[int | None, float]:
    """Return the values of a benchmark by block."""
    found = grouped(
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
        return of_rounds(rounds, step=step, correlated=correlated)
    mine, theirs = ([_timed([run], [value]) for run, value in side] for side in sides)
    if max(len(mine), len(theirs)) > 1:
        return of_runs(mine, theirs, step=step)
    ((my_run, my_value),), ((their_run, their_value),) = sides
    iterations = of_iterations(my_run), of_iterations(their_run)
    if all(iterations) and max(map(len, iterations)) > 1:
        return unpaired(*iterations, Basis.ITERATIONS, step=step)
    return paired([my_value - their_value])


def _by_block(side: Sequence[tuple[RunRates, float]]) -> dict[int, MeasuredLog]:
    found = grouped((run.block, (run, value)) for run, value in side if run.block is not None)
    return {block: _timed(*zip(*of_it, strict=True)) for block, of_it in found.items()}


def _timed(runs: Sequence[RunRates], values: Sequence[float]) -> MeasuredLog:
    places = [run.place for run in runs if run.place is not None]
    place = statistics.fmean(places) if len(places) == len(runs) else None
    return MeasuredLog(statistics.fmean(values), place, runs[0].session)
