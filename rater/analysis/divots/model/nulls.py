"""What healthy parts, copies and iterations differ by, and how unlikely more than that is; pure.

All in logarithms: "nats" are -ln of a probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from rater.analysis.stats.robust import Bools, Floats, median

HUBER: Final = 1.5  # standard deviations from which a value counts less: 96 % efficient if normal
_CAP: Final = 3.5  # of a squared value in a variance: one in 2,000 normal ones is beyond
_TO_SD: Final = 1.4826


def ln_tail(z: Floats) -> Floats:
    """Return ln P(Z > z) of a normal Z; Sampford's bound, within 1 % for z > 0."""
    z = np.maximum(z, 0.0)
    return -z * z / 2 - 0.5 * math.log(2 * math.pi) + np.log(4 / (3 * z + np.sqrt(z * z + 8)))


def normal_of(t: Floats, df: Floats | float) -> Floats:
    """Return the normal deviate that is as unlikely as Student's t; Wallace 1959."""
    df = np.maximum(df, 1.0)
    return (8 * df + 1) / (8 * df + 3) * np.sqrt(df * np.log1p(np.square(t) / df))


def nats_of_t(t: Floats, df: Floats | float) -> Floats:
    """Return -ln of the two-sided probability of Student's t."""
    return np.maximum(0.0, -ln_tail(normal_of(np.abs(t), df)) - math.log(2))


def ln_sum(ln: Floats, axis: int | tuple[int, ...], keep: bool = False) -> Floats:
    """Return ln of the sum along axes of what is given by its ln."""
    top = ln.max(axis=axis, keepdims=True)
    found: Floats = top + np.log(np.sum(np.exp(ln - top), axis=axis, keepdims=True))
    return found if keep else found.squeeze(axis)


def least_that(
    enough: Callable[[Floats], Bools], low: Floats, high: Floats, halvings: int = 10
) -> Floats:
    """Return the least of values between `low` and `high` that are enough, by halving."""
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = np.where(enough(middle), (low, middle), (middle, high))
    return high


# -- middles and spreads ---------------------------------------------------------------------------


def location(values: Floats, sd: Floats | float) -> Floats:
    """Return the middle along the last axis: the mean of what is near the median (Huber).

    Of fewer than three the mean. `sd` (broadcast, without the last axis) is that of one value.
    """
    if values.shape[-1] == 1:
        return values[..., 0]
    gaps = bool(np.isnan(values).any())
    if values.shape[-1] < 3 and not gaps:
        return values.mean(axis=-1)
    centre = median(values) if gaps else np.median(values, axis=-1)
    reach = HUBER * np.broadcast_to(np.asarray(sd), centre.shape)[..., None]
    off = np.clip(values - centre[..., None], -reach, reach)
    if not gaps:
        return centre + off.mean(axis=-1)
    known = np.sum(~np.isnan(values), axis=-1)
    found: Floats = centre + np.nansum(off, axis=-1) / np.maximum(known, 1)
    return found


def capped_squares(
    values: Floats, axis: int | tuple[int, ...], grain: Floats | float = 0.0
) -> tuple[Floats, Floats]:
    """Return the sum of squares about zero, large ones capped, and their number, along axes.

    `grain`: one tick of the clock (without those axes), below which a spread is no spread.
    """
    known = np.sum(~np.isnan(values), axis=axis)
    # Where nothing is known any number does: numpy would warn of the median of nothing.
    size = np.where(np.expand_dims(known, axis) > 0, np.abs(values), 0.0)
    of = np.nanmedian if np.isnan(size).any() else np.median
    middle = of(size, axis=axis, keepdims=True)
    few = np.expand_dims(known, axis) < 6
    tick = np.expand_dims(np.broadcast_to(grain, known.shape), axis)
    cap = np.where(few, np.inf, _CAP * np.maximum(_TO_SD * middle, tick / 2))
    return np.nansum(np.minimum(size, cap) ** 2, axis=axis), known.astype(float)


def lent_variance(squares: Floats, df: Floats, least: Floats | float) -> tuple[float, float]:
    """Return the usual variance of rows and how many degrees of freedom it is worth to each.

    Empirical Bayes on the logarithm: rows that differ by no more than chance are one.
    """
    n = np.maximum(df, 0.5)
    own = np.log(np.maximum(squares / n, np.square(least)))
    centre = float(np.median(own)) if len(own) > 2 else float(np.sum(n * own) / np.sum(n))
    off = np.sort((own - centre) ** 2 - 2 / n)
    # What stands out is no usual row.
    kept = off[: max(1, len(off) - max(len(off) // 8, len(off) > 2))]
    return math.exp(centre), min(2 / max(float(np.mean(kept)), 1e-9), float(np.sum(n)))


def pooled_variances(squares: Floats, df: Floats, least: Floats | float) -> tuple[Floats, Floats]:
    """Return variances of rows that lend each other what they know, and their freedom."""
    if len(squares) == 1:
        n = np.maximum(df, 1.0)
        return np.maximum(squares / n, np.square(least)), n
    usual, lent = lent_variance(squares, df, least)
    n = np.maximum(df, 0.5)
    return np.maximum((squares + lent * usual) / (n + lent), np.square(least)), n + lent


# -- nature: the spread of healthy parts is not known but guessed, and learnt from the others ------


class Nature:
    """A prior of how much healthy parts differ by: a grid of standard deviations with weights."""

    def __init__(self, typical: float, factor: float) -> None:
        """Take the usual sd, ln, and how many times more or less one sd of machines is."""
        self.sd = np.geomspace(typical / 8, 0.3, 14)
        away = np.log(self.sd / typical) / math.log(factor)
        self.weight = -0.5 * away**2 - ln_sum(-0.5 * away**2, 0)
        self.typical = typical

    def nats(
        self,
        d: Floats,
        variance: Floats,
        df: Floats | float,
        *,
        grow: Floats | float = 1.0,
        squares: Floats | float = 0.0,
        others: Floats | float = 0.0,
    ) -> Floats:
        """Return the nats of differences d, two-sided.

        `variance` (with `df` degrees) is what is known of chance in one part; `grow` times that
        and nature is d's own. `squares` is the sum of squares of `others` degrees that tell of
        nature.
        """
        d, variance = np.asarray(d, float), np.asarray(variance, float)
        whole = np.square(self.sd) + variance[..., None]
        squares, others = np.asarray(squares, float), np.asarray(others, float)
        weight = self.weight - 0.5 * (
            others[..., None] * np.log(whole) + squares[..., None] / whole
        )
        weight = weight - ln_sum(weight, -1, keep=True)
        # Only chance has few degrees of freedom; nature's own doubt is in the grid.
        free = np.asarray(df, float)[..., None] * np.square(
            whole / np.maximum(variance[..., None], 1e-30)
        )
        width = np.sqrt(whole * np.asarray(grow, float)[..., None])
        nats = weight - nats_of_t(d[..., None] / width, np.minimum(free, 1e6))
        return np.maximum(0.0, -ln_sum(nats, -1))


# -- single values: a tail learnt from the run -----------------------------------------------------

_DF: Final = np.array([3.0, 4.0, 5.0, 7.0, 10.0, 16.0, 30.0, 1e5])
# And two whose tails are exponential, as those of what can only be late: logistic, Laplace.
_LOGISTIC, _LAPLACE = math.pi / math.sqrt(3), math.sqrt(2)
_WEIGHT: Final = np.log(np.array([0.01, 0.03, 0.03, 0.05, 0.07, 0.10, 0.16, 0.35, 0.15, 0.05]))
_SCALES: Final = np.exp(np.linspace(-0.7, 0.5, 13))
_SIDED: Final = 60  # values from which each side tells its own tail
_MOST_POINTS: Final = 600
_OWN_TAIL: Final = 0.4  # of the benchmarks have a tail that is not that of the others
_STANDS_APART: Final = 7.0  # nats of a gap beyond which values are left out of their own tail


_LN_GAMMAS: Final = np.array(
    [
        math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
        for df in _DF.tolist()
    ]
)
_GRID: Final = np.concatenate((np.linspace(0, 12, 97), np.geomspace(12.2, 1e5, 150)))


class Tail:
    """How often single values lie far out: a mixture of Student's t, weighed by the run itself.

    What stands apart is left out of what it is judged by: the largest, and all above a gap.
    """

    def __init__(self, z: Floats, of_all: Tail | None = None) -> None:
        """Learn from standardised values about zero, of either sign.

        `of_all`: what the values of all benchmarks say, of which one may differ.
        """
        size = np.sort(np.abs(z[~np.isnan(z)]).ravel())[::-1]
        left_out = _standing_apart(size)
        points = size[left_out:]
        count = np.ones(len(points))
        cut = math.sqrt(size[left_out - 1] * max(points[0], 1e-9)) if len(points) else 1e9
        if len(points) > _MOST_POINTS:  # the far ones one by one, of the others every n-th
            far, rest = np.split(points, [_MOST_POINTS // 2])
            near = rest[:: -(-len(rest) // (_MOST_POINTS // 2))]
            points = np.concatenate((far, near))
            count = np.repeat((1.0, len(rest) / len(near)), (len(far), len(near)))
        x = points[None] / _SCALES[:, None]
        fit = np.sum(count * (_ln_densities(x) - np.log(_SCALES)[:, None]), axis=2)
        # Those beyond the cut are not seen: what is not out there is no evidence.
        beyond = np.exp(-_tails(cut / _SCALES))
        fit -= float(np.sum(count)) * np.log1p(-np.minimum(beyond, 0.99))
        prior = _WEIGHT[:, None] - 0.5 * np.square(np.log(_SCALES) / 0.25)
        prior = prior - ln_sum(prior, (0, 1))
        if of_all is not None:
            prior = np.logaddexp(of_all._weight, prior + math.log(_OWN_TAIL))
        self._weight: Floats = fit + prior - ln_sum(fit + prior, (0, 1))
        nats = self._weight[..., None] - _tails(_GRID / _SCALES[:, None])
        self._nats = -ln_sum(nats, (0, 1))

    def nats(self, z: Floats) -> Floats:
        """Return -ln of the two-sided probability of one value as far out as z."""
        return np.maximum(0.0, np.interp(np.abs(z), _GRID, self._nats))


class SidedTail:
    """Tails of what is slow and of what is fast, each by itself where there are many values."""

    def __init__(self, z: Floats, of_all: SidedTail | None = None) -> None:
        """Learn from standardised values about zero."""
        if of_all is None:  # both sides are alike, unless they show that they are not
            self.slow = self.fast = Tail(z)
        else:
            self.slow, self.fast = of_all.slow, of_all.fast
        if of_all is not None or np.sum(~np.isnan(z)) >= _SIDED:
            self.slow, self.fast = Tail(z[z > 0], self.slow), Tail(z[z < 0], self.fast)

    def nats(self, z: Floats) -> Floats:
        """Return -ln of the two-sided probability of one value as far out as z, by its side."""
        return np.where(z > 0, self.slow.nats(z), self.fast.nats(z))


def _ln_densities(x: Floats) -> Floats:
    """Return ln of the densities of all sorts (10, ...) at x."""
    df = _DF.reshape(-1, *(1,) * x.ndim)
    student = _LN_GAMMAS.reshape(df.shape) - (df + 1) / 2 * np.log1p(x * x / df)
    logistic = math.log(_LOGISTIC) - _LOGISTIC * x - 2 * np.log1p(np.exp(-_LOGISTIC * x))
    return np.concatenate((student, logistic[None], (math.log(_LAPLACE / 2) - _LAPLACE * x)[None]))


def _tails(x: Floats) -> Floats:
    """Return the nats of all sorts (10, ...) at x: -ln of the two-sided probability."""
    student = nats_of_t(x, _DF.reshape(-1, *(1,) * x.ndim))
    logistic = _LOGISTIC * x - math.log(2) + np.log1p(np.exp(-_LOGISTIC * x))
    return np.concatenate((student, logistic[None], (_LAPLACE * x)[None]))


def _standing_apart(size: Floats) -> int:
    """Return how many of values, the largest first, stand apart from the rest: one at least."""
    n = len(size)
    if n < 2:
        return n
    most = max(1, min(n // 5, 60, n - 1))
    m = np.arange(1, most + 1)
    rest = size[most:]
    usual = max(float(np.quantile(size, 0.6827)), 1e-9)
    spacing = np.log(np.maximum(size[:most], 1e-9) / np.maximum(size[1 : most + 1], 1e-9))
    # Of a power law of index 3, the heaviest here, m times the spacing is exponential of 1/3.
    apart = 3.0 * m * spacing
    far = (apart > _STANDS_APART + np.log(m)) & (size[:most] > max(4 * usual, 3.0))
    return int(m[far].max()) if far.any() and len(rest) > 2 else 1
