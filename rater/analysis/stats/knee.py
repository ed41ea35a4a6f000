"""Where a curve of throughput against copies bends, flattens and falls; pure.

The knee is the smallest number of copies beyond which no measured number gives half of what a
copy gave at the start, for each copy added: the rate from the knee to every later point rises by
less than half of X(n0) / n0 a copy. That is a statement in the user's units, and its place depends
little on how far the curve was measured. (Kneedle, Satopaa et al., "Finding a 'kneedle' in a
haystack", ICDCS workshops 2011, was tried: it scales both axes to the range that was measured, so
every bent curve has a knee, whose place moves with the range, and with 5 % noise it named one on
94 of 100 straight lines of 16 points; `benchmarks/scaling.py` has both.)

Nothing is named that noise could have made: the rise to the last point must be below half by more
than noise, the places that were tried considered (Bonferroni, 1 % in all). A plateau is a knee
beyond which no point is better by more than noise; as noise can hide a rise, the rise to the last
point must also be below a quarter by more than noise. A fall is a later point below the peak by
more than noise, all pairs of points considered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rater.analysis.stats.noise import Noise

SHARE = 0.5  # of what a copy gave at the start; less is beyond the knee
LEAST_POINTS = 3
_ALPHA = 0.01  # a knee, or a fall, is named by chance
_FLAT = 0.25  # of what a copy gave at the start; a plateau is below that by more than noise
_BETTER_ALPHA = 0.025  # a point on a plateau counts as better by chance


@dataclass(frozen=True, slots=True)
class CurveShape:
    """What was found of a curve; numbers of copies, None where there is no such place."""

    knee: int | None  # beyond it a copy adds less than half of what it did at the start
    plateau: int | None  # beyond it no number of copies is better by more than noise
    peak: int  # where the rate is highest, by however little
    falls_at: int | None  # the first beyond the peak that is lower by more than noise
    reason: str | None  # why nothing can be said of knee and plateau, in words
    # Without a knee: where one would be, by the medians, if noise did not hide it. The numbers of
    # copies must at least double beyond it: over less, noise alone gives such medians.
    maybe: int | None = None


def shape_of(
    copies: Sequence[int],
    rates: Sequence[float],
    runs: Sequence[int],
    noise: Noise,
    fair: int | None = None,
) -> CurveShape:
    """Return the shape of a curve; `copies` ascend, `rates` are medians over so many `runs`.

    In the first `fair` points (None: all) each copy has a core. What second threads, or more copies
    than CPUs, do says nothing of a bend among those, so it is looked for among them alone, and
    with the others only at the last of them and beyond.
    """
    curve = _Measured(copies, rates, [noise.of_median(of_it) for of_it in runs])
    end = len(copies) - 1
    peak = max(range(end + 1), key=lambda i: (rates[i], -i))
    pairs = max(1, end * (end + 1) // 2)
    fallen = noise.quantile(_ALPHA / pairs)
    falls_at = next(
        (copies[i] for i in range(peak + 1, end + 1) if curve.above(peak, i) > fallen), None
    )
    if end + 1 < LEAST_POINTS:
        reason = f"{end + 1} numbers of copies; a knee needs {LEAST_POINTS}"
        return CurveShape(None, None, copies[peak], falls_at, reason)
    level, better = noise.quantile(_ALPHA / end), noise.quantile(_BETTER_ALPHA)
    border = end if fair is None else max(fair - 1, 0)
    # The last point has nothing behind it that could be less.
    reach = [border if i < border else end for i in range(end)]
    bent = [i for i in range(end) if curve.stays_below(SHARE, i, reach[i], level)]
    flat = [
        i
        for i in bent
        if curve.stays_below(_FLAT, i, reach[i], better)
        and all(curve.above(j, i) <= better for j in range(i + 1, end + 1))
    ]
    hidden = [
        i
        for i in range(end)
        if copies[reach[i]] >= 2 * copies[i] and curve.stays_below(SHARE, i, reach[i], 0.0)
    ]
    return CurveShape(
        knee=copies[bent[0]] if bent else None,
        plateau=copies[flat[0]] if flat else None,
        peak=copies[peak],
        falls_at=falls_at,
        reason=None,
        maybe=copies[hidden[0]] if hidden and not bent else None,
    )


@dataclass(frozen=True, slots=True)
class _Measured:
    copies: Sequence[int]
    rates: Sequence[float]
    errors: Sequence[float]  # standard errors of the logs of the rates

    def stays_below(self, share: float, i: int, last: int, level: float) -> bool:
        """Tell whether the rise from point i is below that share of the start's.

        To each later point as far as `last`, and to `last` by `level` standard errors.
        """
        if any(self._short(share, i, j) <= 0 for j in range(i + 1, last + 1)):
            return False
        # What it is short by is linear in three rates.
        weights = [0.0] * len(self.copies)
        weights[0] += share * (self.copies[last] - self.copies[i]) / self.copies[0]
        weights[i] += 1
        weights[last] -= 1
        parts = zip(weights, self.rates, self.errors, strict=True)
        return self._short(share, i, last) > level * math.hypot(*(w * x * e for w, x, e in parts))

    def _short(self, share: float, i: int, j: int) -> float:
        """Return by how much point j stays below so much of the start's rise from point i."""
        a_copy = share * self.rates[0] / self.copies[0]
        return self.rates[i] + a_copy * (self.copies[j] - self.copies[i]) - self.rates[j]

    def above(self, i: int, j: int) -> float:
        """Return how many standard errors the log of rate i lies above that of rate j."""
        error = math.hypot(self.errors[i], self.errors[j])
        difference = math.log(self.rates[i] / self.rates[j])
        return difference / error if error else math.inf * difference if difference else 0.0
