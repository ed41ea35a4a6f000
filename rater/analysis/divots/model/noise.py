"""The noise of single values, from a run's own residuals; pure."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from rater.analysis.divots.model.effects import NO_PART, DivotEffect, EffectKind, EffectScope
from rater.analysis.divots.model.nulls import (
    Variances,
    capped_squares,
    huber_mean,
    shrink_variances,
)
from rater.analysis.stats.robust import Bools, Floats

# ln: a third of 0.1 %, the best that copies repeated in published results of three servers.
LEAST_SD: Final = 3e-4


class CellNoise(Struct, frozen=True, eq=False, kw_only=True):
    """Variances of single values by chance, of B benchmarks."""

    repeat: Variances  # of one slot from iteration to iteration; of one iteration as `value`
    value: Variances  # of one value about the median of its cell
    iterations_run: Floats  # (B,)
    clock_step: Floats  # (B,) ln
    # (S,) variance of an unsteady slot over that of the others, 1 of steady ones; None: of all.
    slot_ratios: Floats | None = None

    def make_effect(
        self,
        *,
        kind: EffectKind,
        slot_weights: Floats,
        benchmarks: Bools,
        iteration_weights: Floats,
        size: Floats,
        net_evidence: float,
        part: int = NO_PART,
    ) -> DivotEffect:
        """Return an effect with its scope and its likelihood gain.

        The gain is half of chi squared, sum of (size * weight about the cell's mean)^2 / variance,
        less 1 nat for each size: the gain of Akaike's criterion (1974).
        """
        size = np.where(benchmarks, size, 0.0)
        fixed = slot_weights.ndim == 1
        weights = np.outer(iteration_weights, slot_weights) if fixed else slot_weights
        about_mean = np.sum(weights**2) - np.sum(weights.sum(axis=1) ** 2) / weights.shape[1]
        noise = self.repeat if fixed else self.value
        chi_squared = float(about_mean) * float(np.sum(size**2 / noise.variance))
        scope = EffectScope.ALL
        if not benchmarks.all() or len(benchmarks) == 1:
            scope = EffectScope.SOME
        if iteration_weights.sum() == 1 < len(iteration_weights):
            scope = EffectScope.CELL
        return DivotEffect(
            kind=kind,
            slot_weights=slot_weights,
            benchmarks=benchmarks,
            iteration_weights=iteration_weights,
            size=size,
            net_evidence=net_evidence,
            scope=scope,
            likelihood_gain=0.5 * chi_squared - float(benchmarks.sum()),
            part=part,
        )

    def locate_cell(self, cell: int, iterations: int) -> tuple[Bools, Floats]:
        """Return the benchmark (B,) and the iteration (I,) of a cell by its number."""
        benchmark, iteration = divmod(cell, iterations)
        is_benchmark = np.arange(len(self.clock_step)) == benchmark
        return is_benchmark, 1.0 * (np.arange(iterations) == iteration)


def estimate_noise(residuals: Floats, clock_step: Floats) -> tuple[CellNoise, Floats]:
    """Return the noise of residuals (B, I, S), and the mean of each slot over iterations (B, S).

    A cell's median takes one of S values, and a slot's mean one of I, from the degrees of freedom.
    """
    _, iterations, slots = residuals.shape
    least_sd = np.sqrt(LEAST_SD**2 + clock_step**2 / 12)  # of rounding to a step: step^2 / 12
    total = capped_squares(residuals, (1, 2), clock_step)
    rough_sd = np.sqrt(total.squares / max(1, iterations * slots)) + clock_step
    by_slot = np.swapaxes(residuals, 1, 2)
    levels = np.nan_to_num(huber_mean(by_slot, rough_sd[:, None]))
    has_run = ~np.isnan(residuals).all(axis=2)
    iterations_run = np.maximum(np.sum(has_run, axis=1), 1).astype(float)
    value = shrink_variances(total.squares, total.count * (slots - 1) / slots, least_sd)
    repeat = value
    if iterations > 1:
        total = capped_squares(residuals - levels[:, None], (1, 2), clock_step)
        df = total.count * (slots - 1) / slots * (iterations_run - 1) / iterations_run
        repeat = shrink_variances(total.squares, df, least_sd)
    noise = CellNoise(
        repeat=repeat, value=value, iterations_run=iterations_run, clock_step=clock_step
    )
    return noise, levels
