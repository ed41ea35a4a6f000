"""Each part of a family against the others of the family, in one scope; pure.

The evidence that a part differs is a posterior predictive probability (`nulls.SpreadPrior`): how
much healthy parts differ is a prior, which the other parts of this run update. How much chance
adds comes from the copies inside the parts.

Shapes: R rows (benchmarks, cells or iterations), P parts.
"""

from __future__ import annotations

import math
from enum import StrEnum
from functools import cached_property
from typing import Final

import numpy as np
from msgspec import Struct, field

from rater.analysis.divots.model.effects import EffectKind
from rater.analysis.divots.model.families import Family
from rater.analysis.divots.model.nulls import ABOUT_NORMAL, SpreadPrior, evidence_of_t
from rater.analysis.divots.model.tails import SidedTail
from rater.analysis.stats.robust import MAD_TO_SD, Bools, Floats, Ints, median_without_gaps

# Chosen: the share of healthy runs in which a place may be named (family-wise error rate). The
# Bonferroni price is a bound: about a fifth of that share of the healthy runs of
# `benchmarks.divot_cases` has one.
ALPHA: Final = 0.03
# nats. Chosen: a fast part is as believable as a slow one with a twentieth of the chance. Few parts
# are fast, and a fast one costs no score.
FAST_PRICE: Final = math.log(20)
FAST_TIMES: Final = 2.0  # times the floor of a slow effect. Chosen: a fast one costs no score
# Chosen: 1 normal value in 370 is clipped.
_CLIP_SD: Final = 3.0  # levels of the other parts count no more than this in their mean
# Chosen, both: benchmarks whose copies differ so much by themselves are rare.
_IMPLAUSIBLE: Final = 0.65  # ln: half the time or nearly twice, no tail of noise goes so far
_NOISY_SD: Final = 0.03  # ln: but of noise as large as this it may
_OWN_TAIL_FROM: Final = 20  # values of a benchmark, of fewer no tail can be learnt
_TAIL_FROM: Final = 8  # values of all benchmarks
_MOST_JUDGED: Final = 4000  # differences whose evidence is computed, the largest first, for speed
# Chosen.
_PRIOR_DF: Final = 8.0  # weight of the prior in `sd`, the first approximation
_NEAR_HALF_SQUARES: Final = (
    0.0713  # mean of z^2 where |z| is below its median, 0 elsewhere (derived)
)
_OTHER_ROWS_SHARE: Final = 4  # rows of one part are not independent: four count as one
_OWN_ROWS_BELOW: Final = 3  # copies of a part, as of those that a tail limits
_LEAST_STEPS: Final = 1.5  # steps of the clock: a smaller difference is none

# Kinds of parts of which none is the usual one, however many copies are there.
_EQUAL_STANDING: Final = (EffectKind.NODE, EffectKind.PACKAGE, EffectKind.LLC)

type Cells = tuple[Ints, Ints]  # rows and parts (N,), to index arrays (R, P)


class ComparisonScope(StrEnum):
    """The benchmarks and iterations that each row of a comparison is of."""

    BENCHMARK = "benchmark"  # a row for each benchmark, over all iterations
    ALL_BENCHMARKS = "all-benchmarks"  # one row, over all iterations
    CELL = "cell"  # a row for each benchmark in each iteration
    ITERATION = "iteration"  # a row for each iteration, of all benchmarks


class PartLevels(Struct, frozen=True, eq=False, kw_only=True):
    """The levels of all parts of a family in one scope."""

    family: Family
    scope: ComparisonScope
    level: Floats  # (R, P) ln
    variance: Floats  # (R, P) of each level by chance
    df: Floats  # (R, P) degrees of freedom of the variance
    prior: SpreadPrior | None  # between parts; None: parts differ by chance alone
    price: float  # nats: ln(number of differences in all searches / ALPHA)
    floor: float  # ln, smallest size that is reported
    clock_step: Floats  # (R, 1) ln, of one slot
    are_copies: bool = False  # then a tail is learnt from them
    copy_tail: SidedTail | None = None  # of single copies, for parts of one or two
    # Benchmark of each row, where there are several benchmarks.
    benchmark: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


class PartComparison:
    """Differences between each part and the others of its family, and the evidence of each."""

    def __init__(self, parts: PartLevels) -> None:
        """Hold each level x_p against the mean of the others, clipped at 3 sd.

        d_p = x_p - mean of x_q over q != p, from the row's median. Its variance by chance is
        g_p * v_p, where g_p = 1 + (sum of v_q over q != p) / (P - 1)^2 / v_p.
        """
        self.parts, self.family, self.scope = parts, parts.family, parts.scope
        self.price, self.floor = parts.price, parts.floor
        others = parts.level.shape[1] - 1
        offset = parts.level - median_without_gaps(parts.level, axis=1, keepdims=True)
        clipped = _clip_levels(offset, parts)
        mean_of_others = (clipped.sum(axis=1, keepdims=True) - clipped) / others
        self.difference: Floats = offset - mean_of_others
        # Squares of the others about their mean: of all, less that of the part and of the mean.
        total = np.square(clipped).sum(axis=1, keepdims=True)
        squares = np.maximum(0.0, total - clipped**2 - others * mean_of_others**2)
        df = np.full(parts.level.shape, float(others - 1))
        variance_of_others = (
            parts.variance.sum(axis=1, keepdims=True) - parts.variance
        ) / others**2
        self.variance_ratio: Floats = 1 + variance_of_others / parts.variance
        between = 0.0 if parts.prior is None else parts.prior.typical**2
        self.typical_variance: Floats = between + parts.variance
        prior_df = parts.df if parts.prior is None else _PRIOR_DF
        pooled = (prior_df * self.typical_variance + squares) / (prior_df + df)
        # A first approximation of the standard deviation of each difference.
        least = self.typical_variance / 4
        self.sd: Floats = np.sqrt(np.maximum(pooled, least) * self.variance_ratio)
        squares_of_rows, df_of_rows = self._squares_of_rows()
        self.other_squares: Floats = squares + squares_of_rows
        self.other_df: Floats = df + df_of_rows
        self._own_tails: dict[int, SidedTail] = {}

    def _squares_of_rows(self) -> tuple[Floats | float, Floats | float]:
        """Return what the rows of the parts add to the squares of the others, and to df, (P,).

        A part says nothing of how much healthy ones differ while it is judged itself, so that the
        rows of the other parts count; of two parts the prior alone does. One or two copies differ
        in ways of their own, alike in all benchmarks, so that of them the own rows count. Of each
        part the half of the rows nearest to zero is taken, since it may be slow in some benchmarks.
        Of normal values that half has 7.13 % of the squares.
        """
        rows, parts = self.difference.shape
        # Copies have a tail that is learnt from the run instead of this prior.
        if self.parts.prior is None or self.parts.are_copies or rows <= 2:
            return 0.0, 0.0
        ordered = np.sort(self.difference**2 / self.variance_ratio, axis=0)
        near_half = ordered[: (rows + 1) // 2].sum(axis=0)
        of_others = (near_half.sum() - near_half) / (parts - 1)
        few = self.family.sizes < _OWN_ROWS_BELOW
        df = np.where(few | (parts > 2), (rows - 1) / _OTHER_ROWS_SHARE, 0.0)
        return df * np.where(few, near_half, of_others) / _NEAR_HALF_SQUARES / rows, df

    @property
    def error(self) -> Floats:
        """Standard error of each difference by chance alone (R, P)."""
        return np.sqrt(self.parts.variance * self.variance_ratio)

    @cached_property
    def deviations(self) -> Floats:
        """Differences in standard deviations (R, P), less half a clock step, which is no tail."""
        half_step = np.minimum(np.abs(self.difference), self.parts.clock_step / 2)
        deviations: Floats = (self.difference - np.copysign(half_step, self.difference)) / self.sd
        return deviations

    @cached_property
    def tail(self) -> SidedTail | None:
        """The tail of single copies, where there are enough of them."""
        least = _TAIL_FROM * (2 if self.scope is ComparisonScope.ALL_BENCHMARKS else 1)
        enough = self.parts.are_copies and self.difference.size >= least
        return SidedTail(self.deviations) if enough else None

    @cached_property
    def net_evidence(self) -> Floats:
        """Evidence beyond the price (R, P), nats; of two parts only the slow one has any."""
        evidence = np.zeros(self.difference.shape)
        # Twice the difference: a part that is not significant then is not so by the full test.
        scale = np.sqrt(self.typical_variance * self.variance_ratio)
        promising = evidence_of_t(2 * self.difference / scale, ABOUT_NORMAL) > self.price
        row, part = np.nonzero(promising)
        order = np.argsort(-np.abs(self.deviations[row, part]))[:_MOST_JUDGED]
        cells: Cells = (row[order], part[order])
        evidence[cells] = self.evidence(self.difference[cells], cells)
        is_fast = self.difference < 0
        evidence[is_fast] = evidence[is_fast] - FAST_PRICE
        if self.difference.shape[1] == 2:
            evidence = np.where(self._other_deviates(), 0.0, evidence)
        return evidence - self.price

    def _other_deviates(self) -> Bools:
        """Tell of each of two parts (R, 2) whether the other one is what deviates.

        One is as fast as the other is slow: of two nodes the slow one deviates. Where the parts are
        ways to be placed, most copies are placed in the usual way, and the others deviate.
        """
        sizes = self.family.sizes
        if self.family.kind in _EQUAL_STANDING or sizes[0] == sizes[1]:
            return self.difference < 0
        usual: Bools = np.broadcast_to(sizes == sizes.max(), self.difference.shape)
        return usual

    def evidence(self, difference: Floats, cells: Cells) -> Floats:
        """Return the evidence, nats, of differences (N,) of some parts, before any price."""
        if len(difference) == 0:  # tails, which take long, are learnt for nothing
            return difference
        deviations = difference / self.sd[cells]
        row, part = cells
        if self.parts.prior is None:
            evidence = evidence_of_t(deviations, self.parts.df[cells] + self.other_df[cells])
        else:
            evidence = self.parts.prior.evidence(
                difference,
                self.parts.variance[cells],
                self.parts.df[cells],
                variance_ratio=self.variance_ratio[cells],
                other_squares=self.other_squares[cells],
                other_df=self.other_df[cells],
            )
        plausible = (np.abs(difference) < _IMPLAUSIBLE) | (self.sd[cells] > _NOISY_SD)
        if self.tail is not None:
            by_tail = np.minimum(evidence, self.tail.evidence(deviations))
            evidence = np.where(plausible, by_tail, evidence)
            evidence = self._limit_by_own_tail(evidence, deviations, row, plausible)
        if self.parts.copy_tail is not None:
            evidence = self._limit_by_copy_tail(self.parts.copy_tail, evidence, deviations, part)
        steps = self.parts.clock_step / np.sqrt(self.family.sizes)
        least = _LEAST_STEPS * np.broadcast_to(steps, self.difference.shape)
        return np.where(np.abs(difference) < least[cells], 0.0, evidence)

    def _limit_by_own_tail(
        self, evidence: Floats, deviations: Floats, row: Ints, plausible: Bools
    ) -> Floats:
        """Return evidence of at most what a benchmark's own tail gives, where any pays."""
        limited = evidence.copy()
        benchmark = self.parts.benchmark
        for number in np.unique(benchmark[row]).tolist() if len(benchmark) else ():
            is_own = (benchmark[row] == number) & plausible
            own_rows = benchmark == number
            count = own_rows.sum() * self.difference.shape[1]
            if count < _OWN_TAIL_FROM or not (evidence[is_own] > self.price).any():
                continue
            if number not in self._own_tails:
                self._own_tails[number] = SidedTail(self.deviations[own_rows], self.tail)
            by_tail = self._own_tails[number].evidence(deviations[is_own])
            limited[is_own] = np.minimum(evidence[is_own], by_tail)
        return limited

    def _limit_by_copy_tail(
        self, copy_tail: SidedTail, evidence: Floats, deviations: Floats, part: Ints
    ) -> Floats:
        """Return evidence of parts of one or two copies of at most that of one late copy.

        The mean of k copies is off by d / sqrt(k) if one of them is off by d, and each of the k may
        be that one: its evidence is less by ln k.
        """
        sizes = self.family.sizes
        # Of two parts the smaller makes the difference of both.
        k = sizes[part] if len(sizes) > 2 else np.full(len(deviations), sizes.min())
        by_one_copy = np.maximum(0.0, copy_tail.evidence(deviations * np.sqrt(k)) - np.log(k))
        return np.where(k < 3, np.minimum(evidence, by_one_copy), evidence)


def _clip_levels(offset: Floats, parts: PartLevels) -> Floats:
    """Return levels about their row's median, clipped at 3 sd: the robust sd or that of chance."""
    middle = median_without_gaps(np.abs(offset), axis=1, keepdims=True)
    by_chance = np.sqrt(median_without_gaps(parts.variance, axis=1, keepdims=True))
    sd = np.maximum(np.maximum(MAD_TO_SD * middle, by_chance), parts.clock_step / 2)
    return np.clip(offset, -_CLIP_SD * sd, _CLIP_SD * sd)
