"""Single copies far out on the slow or the fast side; pure.

An exponential tail is fitted to the run's own residuals, and several copies of a
cell are tested together: the m-th largest against how many so large there would be
by chance (Poisson). The note's section 3, step 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rater.analysis.stats.robust import MAD_TO_SD, Bools, Floats, Ints, median

ALPHA = 0.0003
_LEAST_Z_TOGETHER = 4.5
_MOST_SHARE = 0.12
_LEAST_FOR_TWO = 8
# More values reach further into the tail: (below this many values, quantile, usual beta).
_TAILS = ((500, 0.80, 0.64), (2000, 0.90, 0.53), (8000, 0.95, 0.43), (math.inf, 0.975, 0.38))
# A tail that is so many times as long as the next wider one, and as usual, is not noise's: slow
# copies make up half of it. Tails of healthy runs grow, too, but not by that much.
_OUTGROWS = 2.5
_UNUSUAL = 4.0
_SHRINK = 15  # so many excesses weigh as much as the usual tail
_LEAST_BETA = 0.9
_ROUNDS = 3
_APART = 1.5
_TOO_MANY, _MODE_SHARE = 0.09, 0.18  # of more than that it is a mode (`modes`)
_LEAST_FOR_MANY = 24
_EMPTY = 0.5  # of what they are slower by
_FAR_APART = 6.0
_FEWEST_OF_MANY = 4
# One copy of a few, or two of many: beyond all others by so many times what those differ by.
_GAPS, _GAPS_OF_FEW = 5.0, 8.0
_FEW = 6
_LONE = math.log(1.08)
_FEWEST_LONE = 4


@dataclass(frozen=True, slots=True)
class Tail:
    """Beyond `start` standard deviations, exponential with `beta`; `share` of values lie there."""

    start: float
    beta: float
    share: float


def fit_tail(z: Floats) -> Tail:
    """Return the tail of standardised residuals on their upper side.

    Of the narrowest share of the values that is not mostly slow copies: where many
    copies are slow, here and there, the tail of the others begins further in.
    """
    values = z[~np.isnan(z)]
    last = next(k for k, (below, _, _) in enumerate(_TAILS) if len(values) < below)
    fit = _fitted(values, *_TAILS[0][1:])
    for _, share, usual in _TAILS[1 : last + 1]:
        narrower = _fitted(values, share, usual)
        if narrower.beta > max(_OUTGROWS * fit.beta, _UNUSUAL * usual):
            break
        fit = narrower
    return fit


def _fitted(values: Floats, share: float, usual: float) -> Tail:
    start = float(np.quantile(values, share)) if len(values) else 1.0
    # As many as lie beyond the quantile, ties with it included: where most times are equal, one
    # that is off is no tail.
    beyond = math.ceil((1 - share) * len(values))
    excess = np.sort(values)[len(values) - beyond :] - start
    own = max(0.0, float(np.median(excess))) / math.log(2) if len(excess) else usual
    beta = (len(excess) * own + _SHRINK * usual) / (len(excess) + _SHRINK)
    return Tail(start, max(beta, _LEAST_BETA * usual), 1 - share)


def find_outliers(
    usable: Floats, scale: Floats, least: Floats, alpha: float = ALPHA
) -> tuple[Bools, Floats]:
    """Return which copies (B, I, S) are far above the others, and by chance how often per cell.

    `usable` are residuals, turned around for the fast side, cells that are not judged
    without values; `scale` and `least` (B,) are the spread on that side and the
    smallest effect that counts.
    """
    b, i, _ = usable.shape
    flagged = np.zeros(usable.shape, dtype=bool)
    chance = np.ones((b, i))
    for _ in range(_ROUNDS):
        values = np.where(flagged, np.nan, usable)
        centre = median(values.reshape(b, -1))
        z = (usable - centre[:, None, None]) / scale[:, None, None]
        tail = fit_tail(np.where(flagged, np.nan, z).ravel())
        z[flagged] = np.nan
        fresh, odds = _together(z, usable, least, tail, np.sum(flagged, axis=2), alpha=alpha)
        chance = np.minimum(chance, odds)
        if not fresh.any():
            break
        flagged |= fresh
        scale = _without(usable, flagged, scale)
    return flagged, chance


def many_apart(usable: Floats, least: Floats) -> Bools:
    """Return the slow copies (B, I, S) of cells where too many are slow for a tail.

    Of some 10 to 18 % no spread on the slow side is left that is not theirs: they count
    where nothing lies between them and the others, who are close together.
    """
    flagged = np.zeros(usable.shape, dtype=bool)
    for b, i in np.argwhere(np.sum(~np.isnan(usable), axis=2) >= _LEAST_FOR_MANY):
        row = usable[b, i]
        ordered = np.sort(row[~np.isnan(row)])
        n = len(ordered)
        fewest = max(_FEWEST_OF_MANY, math.ceil(_TOO_MANY * n))
        most = math.ceil(_MODE_SHARE * n) - 1
        gaps = np.diff(ordered)[n - 1 - most : n - fewest]
        if not len(gaps):
            continue
        m = most - int(np.argmax(gaps))
        rest, slow = ordered[: n - m], ordered[n - m :]
        size = float(np.median(slow) - np.median(rest))
        spread = MAD_TO_SD * float(np.median(np.abs(rest - np.median(rest))))
        empty = float(gaps.max()) >= max(_EMPTY * size, _FAR_APART * spread)
        if empty and size >= least[b]:
            flagged[b, i] = row >= slow[0]
    return flagged


def lone_apart(usable: Floats, least: Floats, steps: Floats) -> Bools:
    """Return copies (B, I, S) so far beyond all others of their cell that no tail is needed.

    Of a small run the tail that is fitted is the outlier's own: it would set its own yardstick.
    A gap of several times the range of all others, as in W. J. Dixon's ratio (Annals of
    Mathematical Statistics 21, 1950), needs none. `steps` (B,): how coarse the times are.
    """
    flagged = np.zeros(usable.shape, dtype=bool)
    cells = np.argwhere(np.sum(~np.isnan(usable), axis=2) >= _FEWEST_LONE)
    for b, i in cells:
        row = usable[b, i]
        ordered = np.sort(row[~np.isnan(row)])
        n = len(ordered)
        gaps = _gaps(n, len(cells))
        for m in range(max(1, math.floor(_MOST_SHARE * n)), 0, -1):
            rest, far = ordered[: n - m], ordered[n - m :]
            size = float(far[0] - np.median(rest))
            wide = max(float(rest[-1] - rest[0]), float(steps[b]))
            if far[0] - rest[-1] >= gaps * wide and size >= max(least[b], _LONE):
                flagged[b, i] = row >= far[0]
                break
    return flagged


def lone_needed(residuals: Floats) -> float:
    """Return how slow a copy (ln time) must be for `lone_apart` in cells as wide as these."""
    b, i, s = residuals.shape
    wide = float(np.nanmedian(np.nanmax(residuals, axis=2) - np.nanmin(residuals, axis=2)))
    return max(_LONE, (_gaps(s, b * i) + 0.5) * wide)


def _gaps(copies: int, cells: int) -> float:
    """Return how many ranges of the others are far: more where there are more cells to be odd."""
    return (_GAPS if copies >= _FEW else _GAPS_OF_FEW) * (1 + 0.5 * math.log2(max(1, cells)))


def standing_apart(values: Floats, flagged: Bools) -> Bools:
    """Return which of the flagged copies of each cell lie far beyond all that are not.

    For fast copies: many benchmarks have a fast minority with a long tail, the end of
    which is no divot (Table 4 of the SPECrate2006 paper, run 2: one copy in six).
    """
    kept = np.zeros_like(flagged)
    for b, i in np.argwhere(flagged.any(axis=2)):
        order = np.argsort(np.where(np.isnan(values[b, i]), -np.inf, values[b, i]))[::-1]
        sizes = values[b, i, order]
        for m in range(int(flagged[b, i].sum()), 0, -1):
            beyond = sizes[m] if m < len(sizes) and not np.isnan(sizes[m]) else 0.0
            if sizes[m - 1] >= _APART * max(0.0, float(beyond)):
                kept[b, i, order[:m]] = True
                break
    return kept & flagged


def _without(residuals: Floats, flagged: Bools, scale: Floats) -> Floats:
    """Return the spread with what was flagged left out, never more than it was."""
    values = np.where(flagged, np.nan, residuals).reshape(len(residuals), -1)
    centre = median(values)[:, None]
    upper = np.where(values > centre, values - centre, np.nan)
    touched = flagged.any(axis=(1, 2))
    return np.where(touched, np.fmin(scale, np.fmax(MAD_TO_SD * median(upper), 0.7 * scale)), scale)


def _together(
    z: Floats, usable: Floats, least: Floats, tail: Tail, already: Ints, *, alpha: float
) -> tuple[Bools, Floats]:
    b, i, _ = z.shape
    flagged = np.zeros(z.shape, dtype=bool)
    odds = np.ones((b, i))
    cells = int(np.sum(~np.isnan(usable).all(axis=2)))
    large = (z >= min(_LEAST_Z_TOGETHER, tail.start)) & (usable >= least[:, None, None])
    for bench, k in np.argwhere(large.any(axis=2)):
        row = z[bench, k]
        known = ~np.isnan(row)
        n = int(known.sum()) + int(already[bench, k])
        most = max(2 if n >= _LEAST_FOR_TWO else 1, math.floor(_MOST_SHARE * n))
        most -= int(already[bench, k])
        if most < 1:
            continue
        order = np.argsort(np.where(large[bench, k], -row, np.inf), kind="stable")
        candidates = order[: min(most, int(large[bench, k].sum()))]
        if large[bench, k].sum() > most:
            # More than a few: no longer single copies, unless the first ones stand far apart.
            candidates = order[:most]
        best = 0
        far = row[candidates]
        for m in range(1, len(candidates) + 1):
            if m > 1 and far[m - 1] < _LEAST_Z_TOGETHER:
                break
            p = _chance(float(far[m - 1]), m, n, tail) * cells * (2 if m == 1 else 2 * most)
            if p <= alpha:
                best = m
                odds[bench, k] = min(odds[bench, k], p)
        for m in range(best - 1, 0, -1):
            # Those far behind the first ones are not told for their sake.
            if far[m - 1] >= _APART * far[m]:
                rest = _chance(float(far[best - 1]), best - m, n, tail)
                if rest * cells * 2 * most > alpha:
                    best = m
        if best == most and large[bench, k].sum() > most:
            # The others that are as slow belong to them: all or none.
            best = _as_large(row[order], best, n)
        flagged[bench, k, order[:best]] = True
    return flagged, odds


def _chance(z: float, least: int, n: int, tail: Tail) -> float:
    """Return how often `least` or more of a cell of n are beyond z."""
    out = -(z / (1 + 2 / n) - tail.start) / tail.beta
    return poisson_tail(n * tail.share * math.exp(min(50.0, out)), least)


def _as_large(ordered: Floats, least: int, n: int) -> int:
    """Return how many of a cell, `least` or more, lie far beyond all others; 0: no such gap."""
    for m in range(least, min(n // 2, len(ordered) - 1) + 1):
        if ordered[m - 1] >= _APART * max(_LEAST_Z_TOGETHER / 2, float(ordered[m])):
            return m
    return 0


def poisson_tail(mean: float, least: int) -> float:
    """Return how often a Poisson variable is `least` or more."""
    if mean <= 0:
        return 0.0
    if mean < 1e-3 * least:  # the first term, where 1 - sum would cancel
        return math.exp(least * math.log(mean) - math.lgamma(least + 1) - mean)
    below = sum(math.exp(j * math.log(mean) - math.lgamma(j + 1) - mean) for j in range(least))
    return max(0.0, 1 - below)
