"""Effects of parts of the machine, and of single copies, whose differences pay; pure.

Each part whose evidence exceeds its price is a candidate: in one benchmark, in those that show it,
or in all; throughout, from one iteration on, or in one.

Shapes: B benchmarks, I iterations, S slots, P parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from rater.analysis.divots.model.comparison import ComparisonScope, PartComparison
from rater.analysis.divots.model.effects import NO_PART, DivotEffect, EffectKind
from rater.analysis.divots.model.noise import CellNoise
from rater.analysis.divots.model.nulls import ln_choose, ln_normal_tail
from rater.analysis.divots.model.places import FamilyLevels
from rater.analysis.stats.robust import Bools, Floats, Ints, median, median_without_gaps

# Share of the floor from which a candidate may enter the model. Chosen: a small effect that is
# modelled blurs no other; it is not reported.
ENTERS: Final = 0.6
# Chosen, both.
_CLEAR_SD: Final = 2.0  # standard deviations of a benchmark that shows a part: 1 in 20 by chance
_LEAST_SHOWN: Final = 0.5  # of the floor, in each benchmark of several
_LEAST_OF_LARGEST: Final = 0.1  # of the largest size, in each benchmark of several
_MOST_OFFERED: Final = 60  # candidates of one comparison, for speed
_LEAST_TIMED: Final = 3  # iterations in which a part may differ from some time on
_TIMED_NATS: Final = 2.0  # beyond ln of the alternatives, by which a timing must fit better: e^2
_FEW_PARTS: Final = 64  # with more, the cell's median is that of the other parts
# Of the copies that a shift of all would move across. Of 8 copies that shift by 4 sd, 1 % of parts
# show less than 0.77; a fault of 3 of them shows 0.39 (simulated).
_BORNE: Final = 0.7
_LEAST_BORNE: Final = 3  # copies: of one or two the tail of single copies decides


def find_part_effects(
    levels: FamilyLevels, comparison: PartComparison, by_benchmark: PartComparison
) -> Iterator[DivotEffect]:
    """Yield the effects of a comparison that pay; `by_benchmark` has the size in each."""
    benchmarks, iterations, _ = levels.shape
    net, large = comparison.net_evidence, ENTERS * comparison.floor
    pays = (net > 0) & (np.abs(comparison.difference) > large)
    if comparison.scope is ComparisonScope.BENCHMARK:
        yield from _effects_in_some(levels, comparison, pays)
        return
    always, everywhere = np.ones(iterations), np.ones(benchmarks, dtype=bool)
    cells = np.argwhere(pays)
    best_first = np.argsort(-net[tuple(cells.T)])[:_MOST_OFFERED]
    for row, part in cells[best_first].tolist():
        where, when = everywhere, always
        size = comparison.difference[row, part]
        if comparison.scope is ComparisonScope.ALL_BENCHMARKS:
            size = by_benchmark.difference[:, part]
        elif comparison.scope is ComparisonScope.ITERATION:
            when = (np.arange(iterations) == row) * 1.0
        else:
            where, when = levels.noise.locate_cell(row, iterations)
        yield _make_effect(
            levels,
            part,
            benchmarks=where,
            iteration_weights=when,
            size=size,
            net_evidence=float(net[row, part]),
        )


def _make_effect(
    levels: FamilyLevels,
    part: int,
    *,
    benchmarks: Bools,
    iteration_weights: Floats,
    size: Floats | float,
    net_evidence: float,
) -> DivotEffect:
    """Return the effect of a part; one of all iterations only in those that fit better."""
    size = np.where(benchmarks, size, 0.0)
    if iteration_weights.all():
        iteration_weights, timed_size = _fit_timing(levels, part, benchmarks, size[benchmarks])
        size[benchmarks] = timed_size
    return levels.noise.make_effect(
        kind=levels.family.kind,
        slot_weights=levels.family.masks[part].astype(float),
        benchmarks=benchmarks,
        iteration_weights=iteration_weights,
        size=size,
        net_evidence=net_evidence,
        part=levels.family.names[part],
    )


def _fit_timing(
    levels: FamilyLevels, part: int, benchmarks: Bools, size: Floats
) -> tuple[Floats, Floats]:
    """Return the iterations (I,) in which a part differs, and its size in each benchmark.

    All iterations, from one on, up to one, or a single one: whichever has the largest sum over
    benchmarks of (sum of y)^2 / (m * v), for y the differences in its m iterations and v
    their variance. Half of that is the gain in ln likelihood.
    """
    iterations = levels.shape[1]
    y = _differences_by_iteration(levels, part, benchmarks)
    if iterations < _LEAST_TIMED or np.isnan(y).any():
        return np.ones(iterations), size
    of_part = levels.noise.repeat.variance[benchmarks, None] / levels.family.sizes[part]
    v = of_part * levels.huber_loss[part] + levels.prior_in_cell.typical**2
    # Sums from each iteration on, then up to each, then of single ones.
    later = np.cumsum(y[:, ::-1], axis=1)[:, ::-1]
    sums = np.concatenate((later, later[:, :1] - later[:, 1:], y[:, 1:-1]), axis=1)
    number = np.arange(iterations)
    m = np.concatenate((iterations - number, number[1:], np.ones(iterations - 2)))
    fit = (sums**2 / m / v).sum(axis=0)
    best = int(fit.argmax())
    # What is left per value, if it is more than chance, makes all fits less certain.
    rest = ((y**2 / v).sum() - fit[best]) / (iterations - 1) / len(y)
    required = 2 * max(1.0, rest) * (math.log(3 * iterations) + _TIMED_NATS)
    if fit[best] - fit[0] < required:
        return np.ones(iterations), size
    start = _first_iteration(best, iterations)
    weights = 1.0 * ((number >= start) & (number < start + m[best]))
    return weights, sums[:, best] / m[best]


def _differences_by_iteration(levels: FamilyLevels, part: int, benchmarks: Bools) -> Floats:
    """Return a part's levels less the median of the other parts, by benchmark and iteration."""
    of_all = levels.cell_levels[benchmarks]
    of_part = of_all[:, :, part]
    if levels.parts >= _FEW_PARTS:
        return of_part  # residuals are about the median of the cell
    return of_part - median_without_gaps(np.delete(of_all, part, axis=2), axis=2)


def _effects_in_some(
    levels: FamilyLevels, comparison: PartComparison, pays: Bools
) -> Iterator[DivotEffect]:
    """Yield parts in the benchmarks that show them: the clearest m of B, for the best m.

    The evidence of the m benchmarks is added and pays for the choice: ln C(B, m) sets, twice
    as many since one benchmark is as likely as several, and m - 1 nats, since each further
    benchmark must be clear by itself. A sum of m values of -ln p is Gamma(m), not exponential;
    with these prices chance exceeds 3 nats in 2.6 % of cases, where 5 % are nominal (simulated).
    """
    evidence = comparison.net_evidence + comparison.price
    always = np.ones(levels.shape[1])
    for sign in (1, -1):
        evidence_of_sign = np.where(comparison.difference * sign > 0, evidence, 0.0)
        if not evidence_of_sign.any():
            continue
        order = np.argsort(-evidence_of_sign, axis=0)
        clear = _are_clear(comparison, sign, order)
        total = np.cumsum(np.take_along_axis(evidence_of_sign, order, axis=0), axis=0)
        price_of_choice = _price_of_subsets(levels.shape[0])
        net = np.where(clear, total - price_of_choice[:, None] - levels.price, -1.0)
        best = net.argmax(axis=0)
        for part in np.flatnonzero(net.max(axis=0) > 0).tolist():
            benchmarks = np.isin(np.arange(levels.shape[0]), order[: best[part] + 1, part])
            largest = float(np.abs(comparison.difference[benchmarks, part]).max())
            several = benchmarks.sum() > 1
            if largest >= ENTERS * comparison.floor and (several or pays[benchmarks, part].all()):
                yield _make_effect(
                    levels,
                    part,
                    benchmarks=benchmarks,
                    iteration_weights=always,
                    size=comparison.difference[:, part],
                    net_evidence=float(net[best[part], part]),
                )


def _first_iteration(timing: int, iterations: int) -> int:
    """Return the first iteration of a timing by its place in `_fit_timing`."""
    if timing < iterations:
        return timing
    if timing < 2 * iterations - 1:
        return 0
    return timing - 2 * iterations + 2


def _price_of_subsets(benchmarks: int) -> Floats:
    """Return the nats that the choice of the best m of B benchmarks costs (B,), for each m.

    ln C(B, m) for the set. One benchmark and several are equally likely, ln 2 each, and the B - 1
    numbers of several share theirs: ln 2 for m = 1, else ln(2 (B - 1)). Then m - 1.
    """
    count = np.arange(1, benchmarks + 1)
    price = np.array([ln_choose(benchmarks, m) for m in count.tolist()])
    if benchmarks > 1:
        price += np.where(count == 1, math.log(2), math.log(2 * (benchmarks - 1))) + (count - 1)
    return price


def _are_clear(comparison: PartComparison, sign: int, order: Ints) -> Bools:
    """Tell whether the first m benchmarks (m, P) in an order all show a part by themselves."""
    sizes = np.take_along_axis(comparison.difference * sign, order, axis=0)
    deviations = comparison.difference / comparison.sd * sign
    deviations = np.take_along_axis(deviations, order, axis=0)
    largest = np.maximum.accumulate(sizes, axis=0)
    least = np.maximum(_LEAST_SHOWN * comparison.floor, _LEAST_OF_LARGEST * largest)
    clear: Bools = np.cumprod((sizes > least) & (deviations > _CLEAR_SD), axis=0) > 0
    return clear


def is_borne_by_copies(effect: DivotEffect, residuals: Floats, noise: CellNoise) -> bool:
    """Tell whether most copies of a part show its difference, rather than a few of them.

    A copy shows it if it lies beyond half of the difference. If all copies were shifted by d with
    noise s, a share of 1 - 2 * P(Z > z) more would do so inside than outside, z = d / (2 s).
    """
    inside = effect.slot_weights > 0
    if effect.kind is EffectKind.SHARING and inside.mean() > 0.5:
        return False  # the way that most copies share is the usual one
    if not effect.has_fixed_slots or inside.sum() < _LEAST_BORNE or effect.part == NO_PART:
        return True
    rows, iterations = np.flatnonzero(effect.benchmarks), np.flatnonzero(effect.iteration_weights)
    values, size = residuals[np.ix_(rows, iterations)], effect.size[rows]
    others = median(values[:, :, ~inside])[..., None]
    in_cells = size[:, None] * effect.iteration_weights[iterations]
    half_way = others + in_cells[..., None] / 2
    beyond = (values - half_way) * np.sign(effect.typical) > 0
    z = np.abs(in_cells) / 2 / np.sqrt(noise.value.variance[rows, None])
    expected = float(np.mean(1 - 2 * np.exp(ln_normal_tail(z))))
    share = beyond[..., inside].mean() - beyond[..., ~inside].mean()
    return bool(share > _BORNE * expected)
