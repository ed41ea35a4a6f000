"""From the values of runs to one estimate of how far two sides lie apart; pure.

Best first: pairs in blocks, where both sides have a run in two blocks at least (runs without a
partner are left out then); else runs against runs; else, of single runs, iterations against
iterations (how runs differ from each other is not in that noise: no verdict stands on it).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from rater.analysis.results.rates import RunRates
from rater.analysis.stats.ratio_interval import Basis, Estimate, joined, paired, unpaired
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
) -> Estimate | None:
    """Return how far the other side is above the baseline; None where one has no values.

    Several strata (the same two values under other conditions) count alike; those in which
    a side has no values are left out. `step_of`: how coarse a run's value is, as a logarithm.
    """
    found = [_in_stratum(here, there, of_run, of_iterations, step_of) for here, there in strata]
    known = [estimate for estimate in found if estimate is not None]
    return joined(known) if known else None


def in_pairs(stratum: Stratum) -> Stratum:
    """Return the runs that count: where two blocks are common, those in common blocks."""
    base, other = stratum
    both = {run.block for run in base} & {run.block for run in other} - {None}
    if len(both) < _FEWEST_BLOCKS:
        return stratum
    return (
        [run for run in base if run.block in both],
        [run for run in other if run.block in both],
    )


def _in_stratum(
    base: Sequence[RunRates],
    other: Sequence[RunRates],
    of_run: OfRun,
    of_iterations: OfIterations,
    step_of: Callable[[RunRates], float],
) -> Estimate | None:
    sides = [
        [(run, value) for run in side if (value := of_run(run)) is not None]
        for side in (other, base)
    ]
    if not all(sides):
        return None
    step = max(step_of(run) for side in sides for run, _ in side)
    here, there = (_by_block(side) for side in sides)
    both = sorted(here.keys() & there.keys())
    if len(both) >= _FEWEST_BLOCKS:
        return paired([here[block] - there[block] for block in both], step=step)
    mine, theirs = ([value for _, value in side] for side in sides)
    if max(len(mine), len(theirs)) > 1:
        return unpaired(mine, theirs, Basis.RUNS, step=step)
    ((my_run, my_value),), ((their_run, their_value),) = sides
    iterations = of_iterations(my_run), of_iterations(their_run)
    if all(iterations) and max(map(len, iterations)) > 1:
        return unpaired(*iterations, Basis.ITERATIONS, step=step)
    return paired([my_value - their_value])


def _by_block(side: Sequence[tuple[RunRates, float]]) -> dict[int, float]:
    found = grouped((run.block, value) for run, value in side if run.block is not None)
    return {block: statistics.fmean(values) for block, values in found.items()}
