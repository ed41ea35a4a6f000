"""The levels of parts of the machine, and of single copies, compared in four scopes; pure.

A level is a robust mean of the slots of a part. `part_effects.py` makes effects of the parts whose
differences pay. Shapes: B benchmarks, I iterations, S slots, P parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from rater.analysis.divots.model.comparison import (
    ALPHA,
    ComparisonScope,
    PartComparison,
    PartLevels,
)
from rater.analysis.divots.model.effects import EffectKind
from rater.analysis.divots.model.families import Family
from rater.analysis.divots.model.noise import LEAST_SD, CellNoise
from rater.analysis.divots.model.nulls import (
    SpreadPrior,
    capped_squares,
    huber_mean,
    pool_variance,
    shrink_variances,
)
from rater.analysis.divots.model.tails import SidedTail
from rater.analysis.stats.robust import Floats, Ints, median_without_gaps

# -- Priors: standard deviations (ln) between healthy parts, and by what factor machines differ ----

# Nodes of healthy servers differ by 0.2 to 0.4 %. TODO(source): the published results are not
# named; their sensitivity is simulated.
PARTS: Final = SpreadPrior(0.002, 1.5)
# In one iteration by up to 0.6 %, where benchmarks are bound by memory.
PARTS_IN_CELL: Final = SpreadPrior(0.005, 1.6)
# Chosen: copies differ by more than nodes, which are means of many, and by less from one
# iteration to the next than repeats do (sensitivity simulated).
COPIES: Final = SpreadPrior(0.003, 1.8)
COPIES_IN_CELL: Final = SpreadPrior(0.0005, 2.0)

# -- Sizes (ln) from which effects are reported: the user's thresholds, less in all benchmarks -----

FLOOR_PART: Final = 0.015
FLOOR_PART_IN_ALL: Final = 0.010
FLOOR_COPY: Final = 0.030
FLOOR_COPY_IN_ALL: Final = 0.015

_UNKNOWN_SD: Final = 0.01  # ln, of copies that ran once, in one benchmark. Chosen, weight one value
# Variance of a Huber mean over that of a mean. 1.02 to 1.06 if normal (simulated); chosen larger.
_HUBER_LOSS: Final = 1.1
# Prior degrees of freedom for agreement of benchmarks. Chosen (sensitivity simulated).
_AGREEMENT_DF: Final = 4.0
# Most degrees of freedom of repeats in a part's variance. Chosen: more repeats say nothing of how
# copies differ lastingly (sensitivity simulated).
_MOST_REPEAT_DF: Final = 12.0
_LEAST_SPREAD: Final = 2.0  # times the variance by chance: then parts differ lastingly


class _LastingLevels(Struct, frozen=True, eq=False, kw_only=True):
    """The levels of parts over all iterations."""

    level: Floats  # (B, P) ln
    variance: Floats  # (B, P) by chance
    df: Floats  # (B,)
    prior: SpreadPrior | None


class FamilyLevels:
    """The levels of the parts of one family, and the comparisons of each part with the others."""

    def __init__(
        self,
        *,
        residuals: Floats,
        slot_levels: Floats,
        family: Family,
        noise: CellNoise,
        searches: int,
    ) -> None:
        """Take residuals (B, I, S), their means over iterations (B, S) and the number of searches.

        The Bonferroni price is ln(searches * tests / ALPHA), where tests is the number of
        differences in this search: P parts times the rows of the comparison.
        """
        self.shape, self.family, self.noise = residuals.shape, family, noise
        self.slot_levels, self.parts = slot_levels, len(family.names)
        self.are_copies = family.kind in (EffectKind.COPY, EffectKind.MOVING)
        self.price = math.log(searches / ALPHA) + math.log(self.parts)
        self.floor = FLOOR_COPY if self.are_copies else FLOOR_PART
        self.floor_in_all = FLOOR_COPY_IN_ALL if self.are_copies else FLOOR_PART_IN_ALL
        self.prior_in_cell = COPIES_IN_CELL if self.are_copies else PARTS_IN_CELL
        self.huber_loss = np.where(family.sizes == 1, 1.0, _HUBER_LOSS)
        self.value_sd = np.sqrt(noise.value.variance) + noise.clock_step
        self.cell_levels = self._mean_of_slots(residuals)

    def _mean_of_slots(self, residuals: Floats) -> Floats:
        """Return the robust mean of each part's slots in each cell (B, I, P)."""
        if self.are_copies:
            return residuals
        levels = np.empty((*residuals.shape[:2], self.parts))
        for parts, slots in self.family.members:
            levels[:, :, parts] = huber_mean(residuals[:, :, slots], self.value_sd[:, None, None])
        return levels

    def compare(
        self, copy_tails: Mapping[ComparisonScope, SidedTail | None]
    ) -> Iterator[PartComparison]:
        """Yield the comparisons of the family: by benchmark, of all, by cell, by iteration.

        `copy_tails` are the tails of single copies, for parts of one or two copies.
        """
        benchmarks, iterations, _ = self.shape
        lasting = self._copy_levels() if self.are_copies else self._part_levels()
        few_iterations = iterations < 3
        by_benchmark = PartComparison(
            PartLevels(
                family=self.family,
                scope=ComparisonScope.BENCHMARK,
                level=lasting.level,
                variance=lasting.variance,
                df=np.repeat(lasting.df[:, None], self.parts, 1),
                prior=lasting.prior,
                price=self.price + math.log(benchmarks),
                floor=self.floor,
                clock_step=(self.noise.clock_step / np.sqrt(self.noise.iterations_run))[:, None],
                are_copies=self.are_copies,
                copy_tail=copy_tails.get(ComparisonScope.BENCHMARK) if few_iterations else None,
                benchmark=self._number_rows(1),
            )
        )
        yield by_benchmark
        if benchmarks > 1:
            yield self._compare_in_all(lasting, by_benchmark)
        if iterations > 1:
            by_cell = self._compare_cells(lasting, copy_tails.get(ComparisonScope.CELL))
            yield by_cell
            if benchmarks > 1 and not np.isnan(self.cell_levels).all(axis=2).any():
                yield self._compare_iterations(by_cell)

    def _number_rows(self, rows_per_benchmark: int) -> Ints:
        """Return the benchmark of each row, or an empty array where there is one benchmark."""
        benchmarks = self.shape[0]
        if benchmarks < 2:
            return np.zeros(0, dtype=np.int64)
        return np.repeat(np.arange(benchmarks), rows_per_benchmark)

    def _copy_levels(self) -> _LastingLevels:
        """Return the levels of single copies, and their variance from iteration to iteration."""
        (benchmarks, iterations, slots), noise = self.shape, self.noise
        if iterations > 1:
            repeat = noise.repeat.variance / noise.iterations_run
            variance = np.repeat(repeat[:, None], slots, 1) * self._ratios()
            df, prior = noise.repeat.df, COPIES
        else:
            # Without repeats, chance and lasting differences of copies are one: each copy is held
            # against the spread of the others, and of those in other benchmarks.
            prior = None
            if benchmarks == 1:
                typical, prior_df = _UNKNOWN_SD**2, 1.0
            else:
                value = noise.value
                pooled = pool_variance(value.variance * value.df, value.df, LEAST_SD)
                typical, prior_df = pooled.variance, pooled.df
            variance = np.full((benchmarks, slots), typical)
            df = np.full(benchmarks, prior_df)
        variance = variance + LEAST_SD**2
        return _LastingLevels(level=self.slot_levels, variance=variance, df=df, prior=prior)

    def _ratios(self) -> Floats | float:
        """Return the variance of each single copy over that of the others (S,), 1 of parts."""
        ratios = self.noise.slot_ratios
        return ratios if self.are_copies and ratios is not None else 1.0

    def _part_levels(self) -> _LastingLevels:
        """Return the levels of parts, and their variance from the copies inside them.

        The variance of a mean of k copies is h * v / k, h the loss of the Huber mean; v is the
        variance of copies about their part, pooled with what repeats and `PARTS` predict.
        """
        (benchmarks, iterations), noise = self.shape[:2], self.noise
        part_of_slot = self.family.part_of_slot
        sd = self.value_sd[:, None] / np.sqrt(self.family.sizes)
        level = np.nan_to_num(huber_mean(np.swapaxes(self.cell_levels, 1, 2), sd))
        in_part = part_of_slot >= 0
        squares = capped_squares(
            self.slot_levels[:, in_part] - level[:, part_of_slot[in_part]], 1
        ).squares
        free = max(0, int(in_part.sum()) - self.parts)
        if iterations > 1:
            predicted = noise.repeat.variance / noise.iterations_run + PARTS.typical**2
            prior_df = np.minimum(noise.repeat.df, _MOST_REPEAT_DF)
            df = prior_df + free
            of_slot = (prior_df * predicted + squares) / df
        elif free > 2:
            pooled = shrink_variances(squares, np.full(benchmarks, float(free)), LEAST_SD)
            of_slot, df = pooled.variance, pooled.df
        else:
            of_slot, df = noise.value.variance, noise.value.df
        variance = of_slot[:, None] / self.family.sizes * self.huber_loss + LEAST_SD**2
        return _LastingLevels(level=level, variance=variance, df=df, prior=PARTS)

    def _compare_in_all(
        self, lasting: _LastingLevels, by_benchmark: PartComparison
    ) -> PartComparison:
        """Compare the weighted means over all benchmarks: weights are 1 / variance."""
        benchmarks, iterations, _ = self.shape
        # The variance of copies that ran once contains their lasting differences: weights by it
        # would count these twice, so every benchmark has the least variance there.
        only_chance = iterations > 1 or not self.are_copies
        by_chance = lasting.variance if only_chance else np.full_like(lasting.variance, LEAST_SD**2)
        prior = COPIES if self.are_copies else PARTS
        weight = 1 / (by_chance + prior.typical**2)
        ratio = self.parts / (self.parts - 1)
        variance = _agreement_variance(weight, by_benchmark.difference, ratio)
        about_median = lasting.level - median_without_gaps(lasting.level, axis=1, keepdims=True)
        mean = (weight * about_median).sum(axis=0) / weight.sum(axis=0)
        return PartComparison(
            PartLevels(
                family=self.family,
                scope=ComparisonScope.ALL_BENCHMARKS,
                level=mean[None],
                variance=variance[None],
                df=np.full((1, self.parts), _AGREEMENT_DF + benchmarks - 1),
                prior=prior,
                price=self.price,
                floor=self.floor_in_all,
                clock_step=np.zeros((1, 1)),
                are_copies=self.are_copies,
            )
        )

    def _compare_cells(
        self, lasting: _LastingLevels, copy_tail: SidedTail | None
    ) -> PartComparison:
        """Compare the parts of each cell, less what the other iterations show of each part.

        Of a level x in one of n iterations, c times the mean of the others is taken away, where
        c = between / (between + chance) is the shrinkage of a lasting difference (James and
        Stein 1961). The variance of x grows by the factor 1 + c^2 / (n - 1).
        """
        (benchmarks, iterations), noise, sizes = self.shape[:2], self.noise, self.family.sizes
        n = noise.iterations_run[:, None, None]
        between = self._variance_between(lasting.level)
        chance = noise.repeat.variance / noise.iterations_run * float(np.mean(1 / sizes))
        lasts = between > _LEAST_SPREAD * chance
        c = np.where(lasts, between / np.maximum(between + chance, 1e-12), 0.0)[:, None, None]
        levels = np.nan_to_num(self.cell_levels)
        others = (n * lasting.level[:, None] - levels) / np.maximum(n - 1, 1)
        # Where slots differ lastingly, a cell's value varies only by what its repeats do.
        of_value = np.where(lasts, noise.repeat.variance, noise.value.variance)[:, None, None]
        variance = (
            self._ratios() * of_value / sizes * (1 + c**2 / np.maximum(n - 1, 1)) * self.huber_loss
        )
        variance = variance + noise.clock_step[:, None, None] ** 2 / 12 / sizes
        rows = benchmarks * iterations
        level = np.nan_to_num(self.cell_levels - c * others)
        return PartComparison(
            PartLevels(
                family=self.family,
                scope=ComparisonScope.CELL,
                level=level.reshape(rows, -1),
                variance=np.broadcast_to(variance, level.shape).reshape(rows, -1),
                df=np.repeat(np.repeat(noise.repeat.df, iterations)[:, None], self.parts, 1),
                prior=self.prior_in_cell,
                price=self.price + math.log(rows),
                floor=self.floor,
                clock_step=np.repeat(noise.clock_step, iterations)[:, None],
                are_copies=self.are_copies,
                copy_tail=copy_tail,
                benchmark=self._number_rows(iterations),
            )
        )

    def _variance_between(self, level: Floats) -> Floats:
        """Return the variance between the parts (B,), of their levels (B, P)."""
        about_median = level - median_without_gaps(level, axis=1, keepdims=True)
        return capped_squares(about_median, 1).squares / max(1, self.parts - 1)

    def _compare_iterations(self, by_cell: PartComparison) -> PartComparison:
        """Compare the weighted means over all benchmarks in each iteration."""
        benchmarks, iterations, _ = self.shape
        cube = benchmarks, iterations, -1
        difference = by_cell.difference.reshape(cube)
        weight = 1 / by_cell.sd.reshape(cube) ** 2
        share = (self.parts - 1) / self.parts  # a level is off its own mean by this part of d
        mean = (weight * difference).sum(axis=0) / weight.sum(axis=0) * share
        return PartComparison(
            PartLevels(
                family=self.family,
                scope=ComparisonScope.ITERATION,
                level=mean,
                variance=_agreement_variance(weight, difference, 1.0) * share,
                df=np.full(mean.shape, _AGREEMENT_DF + benchmarks - 1),
                prior=self.prior_in_cell,
                price=self.price + math.log(iterations),
                floor=self.floor,
                clock_step=np.zeros((1, 1)),
            )
        )


def _agreement_variance(weight: Floats, difference: Floats, ratio: float) -> Floats:
    """Return the variance of a weighted mean over benchmarks, by how well they agree.

    1 / sum of weights, times Birge's ratio (1932, Physical Review 40) if that exceeds 1: chi
    squared over its degrees of freedom. Four prior degrees of freedom say that benchmarks agree.
    `ratio` is the variance of a difference over that of a level.
    """
    total = weight.sum(axis=0)
    mean = (weight * difference).sum(axis=0) / total
    chi_squared = (weight * (difference - mean) ** 2).sum(axis=0) / ratio
    df = _AGREEMENT_DF + len(difference) - 1
    return np.maximum(1.0, (_AGREEMENT_DF + chi_squared) / df) / total
