"""What all copies share over the iterations: single ones, steps, warm-ups, trends; pure.

A series is noise whose neighbours may be alike (first-order autoregressive) by an amount that is
not known: a few are weighed by how well they fit. Each pattern is estimated by generalised least
squares under each of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from rater.analysis.divots.model.nulls import Nature, Tail, nats_of_t
from rater.analysis.divots.model.places import LEAST_NOISE, Effect
from rater.analysis.stats.robust import Bools, Floats, Ints

ALPHA: Final = 0.025  # healthy runs with an iteration, step or trend named
COMMON: Final = Nature(0.003, 2.2)  # how iterations differ in what all benchmarks share
OWN: Final = Nature(0.008, 2.8)  # and one benchmark by itself
FLOOR_ALL: Final = 0.015
FLOOR_ONE: Final = 0.025
_KINDS: Final = 6  # single, step, trend; of all benchmarks or one
_ALIKE: Final = np.array([0.0, 0.4, 0.7, 0.85, 0.93, 0.98])
_ALIKE_WEIGHT: Final = np.log(np.array([0.5, 0.15, 0.1, 0.1, 0.1, 0.05]))
_MOST_TRIED: Final = 60  # patterns of a sort that are judged in full
_MOST_FOUND: Final = 12
_HALVINGS: Final = 8  # of what is visible: to a two-hundredth of the largest
_MOST_LENT: Final = 8.0  # degrees of freedom that other benchmarks lend to the size of one's noise
_LONGEST_FADING: Final = 512  # iterations: of more a step says the same
_VARIES: Final = 0.2  # of a size: benchmarks that differ by so much have one each
_MOST_ROWS: Final = 8
_TREND_FROM: Final = 4
_STEP_FROM: Final = 5  # iterations: fewer have no two sides of two


@dataclass(frozen=True, slots=True, eq=False)
class Patterns:
    """Products of patterns with a whitened series and the constant, for rows (R, H)."""

    effect: Floats  # (R, H) estimated size, ln
    den: Floats  # (H,) its information at unit variance
    left: Floats  # (R, H) sum of squares without it
    whole: Floats  # (R,) and with it
    evidence: float  # ln of what the whitening alone is worth


def _whitened(y: Floats, rho: float) -> Floats:
    out = y.copy()
    out[..., 1:] -= rho * y[..., :-1]
    out[..., 0] *= math.sqrt(1 - rho * rho)
    return out


def _products(y: Floats, rho: float, steps: bool) -> Patterns:
    """Return GLS of all single iterations, then of steps from k and the trend, on rows (R, I)."""
    i = y.shape[1]
    w, c = _whitened(y, rho), _whitened(np.ones(i), rho)
    first = math.sqrt(1 - rho * rho)
    head = np.ones(i)
    head[0] = first
    after = np.zeros_like(w)
    after[:, :-1] = w[:, 1:]
    c_after = np.append(c[1:], 0.0)
    last = np.append(np.full(i - 1, rho), 0.0)
    hy, hc, hh = head * w - last * after, head * c - last * c_after, head**2 + last**2
    x = _whitened(np.linspace(-0.5, 0.5, i), rho)
    if not steps and i >= _TREND_FROM:
        hy = np.concatenate((hy, (w @ x)[:, None]), axis=1)
        hc, hh = np.append(hc, c @ x), np.append(hh, x @ x)
    if steps:
        k = np.arange(2, i - 1)
        fades = _fades(i, rho)
        tail_y = np.cumsum(w[:, ::-1], axis=1)[:, ::-1]
        tail_n = np.arange(i, 0, -1.0)
        sy = w[:, k] + (1 - rho) * (tail_y[:, k] - w[:, k])
        sc = c[k] + (1 - rho) ** 2 * (tail_n[k] - 1)
        sh = 1 + (1 - rho) ** 2 * (tail_n[k] - 1)
        hy = np.concatenate((hy, sy, (w @ x)[:, None], w @ fades.T), axis=1)
        hc = np.concatenate((hc, sc, [c @ x], fades @ c))
        hh = np.concatenate((hh, sh, [x @ x], np.sum(fades**2, axis=1)))
    cc, cy = float(c @ c), w @ c
    num, den = hy - hc * (cy / cc)[:, None], hh - hc**2 / cc
    den = np.maximum(den, 1e-12)
    whole = np.sum(w**2, axis=1) - cy**2 / cc
    left = np.maximum(whole[:, None] - num**2 / den, 0.0)
    return Patterns(num / den, den, left, whole, math.log(first) - 0.5 * math.log(cc))


def _fading(n: int, i: int) -> Floats:
    found = np.zeros(i)
    found[:n] = 1 - np.arange(n) / (2 * n)
    return found


@lru_cache(maxsize=16)
def _fades(i: int, rho: float) -> Floats:
    """Return warm-ups of 2 to half of the iterations that wear off by half, whitened (K, I)."""
    if i > _LONGEST_FADING:
        return np.zeros((0, i))
    return np.stack([_whitened(_fading(n, i), rho) for n in range(2, i // 2 + 1)])


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Patterns of rows with their sizes and nats."""

    at: Ints  # (N, 2) row and pattern
    size: Floats  # (N,)
    error: Floats
    nats: Floats
    gain: Floats


def _judge(
    y: Floats, chance: Floats, df: Floats, nature: Nature, tailed: bool, taken: int
) -> Judged:
    """Judge the patterns of rows (R, I) whose values vary by chance (R,) at least."""
    rows, i = y.shape
    steps = i >= _STEP_FROM
    tried = (
        [_products(y, float(rho), steps) for rho in _ALIKE] if i > 3 else [_products(y, 0.0, steps)]
    )
    prior = _ALIKE_WEIGHT if i > 3 else np.zeros(1)
    free = max(0.5, i - 2 - 1.5 * taken)  # what was taken away took the noise beneath it along
    # Which patterns are worth a look: the best few of each row and sort.
    some: set[tuple[int, int]] = set()
    for one in tried:
        z2 = one.effect**2 * one.den / (one.left / max(1, free) + chance[:, None])
        for part in (slice(0, i), slice(i, None)):
            value = z2[:, part]
            if value.size:
                for q in np.argsort(-value, axis=None)[:_MOST_TRIED].tolist():
                    row, h = divmod(q, value.shape[1])
                    some.add((row, h + (part.start or 0)))
    at = np.array(sorted(some))
    row, h = at[:, 0], at[:, 1]
    # What the other rows say of the size of the noise, a little of it.
    lent = min(_MOST_LENT, (rows - 1) * (i - 1) / 2)
    middle = (i - 1) * (1 - 2 / 9 / (i - 1)) ** 3  # the median of chi squared
    whole = np.square(nature.sd)[None] + chance[row][:, None]  # (N, T)
    weights, values = [], []
    alone = np.full(len(at), -np.inf)  # evidence of no pattern at all, the best of it
    beside = np.full(len(at), -np.inf)
    for k, one in enumerate(tried):
        left = one.left[row, h][:, None]
        others = _of_others(one.whole) / middle * lent
        weight = nature.weight + prior[k] + one.evidence - 0.5 * np.log(one.den[h])[:, None]
        fit = nature.weight + prior[k] - 0.5 * (i - 1 + lent) * np.log(whole)
        alone = np.maximum(
            alone, (fit - (one.whole[row][:, None] + others[row][:, None]) / 2 / whole).max(axis=1)
        )
        beside = np.maximum(beside, (fit - (left + others[row][:, None]) / 2 / whole).max(axis=1))
        weight = (
            weight - 0.5 * (free + lent) * np.log(whole) - (left + others[row][:, None]) / 2 / whole
        )
        t = np.abs(one.effect[row, h])[:, None] * np.sqrt(one.den[h][:, None] / whole)
        freedom = np.minimum(1e6, df[row][:, None] * np.square(whole / chance[row][:, None]))
        weights.append(weight)
        values.append(nats_of_t(t, freedom))
    weight, value = np.stack(weights, 1), np.stack(values, 1)  # (N, A, T)
    top = weight.max(axis=(1, 2), keepdims=True)
    share = np.exp(weight - top)
    known = share.sum(axis=(1, 2), keepdims=True)
    share /= known
    ln_p = weight - top - np.log(known) - value
    most = ln_p.max(axis=(1, 2), keepdims=True)
    nats = np.maximum(0.0, -most[:, 0, 0] - np.log(np.sum(np.exp(ln_p - most), axis=(1, 2))))
    best = share.sum(axis=2)
    effects = np.stack([one.effect[row, h] for one in tried], 1)
    mode = best.argmax(axis=1)
    pick = (np.arange(len(at)), mode)
    error = np.sqrt(
        np.sum(
            share * (whole[:, None] / np.stack([one.den[h] for one in tried], 1)[:, :, None]),
            axis=(1, 2),
        )
    )
    size = effects[pick]
    if tailed and rows * i >= 12:
        usual = np.bincount(mode, minlength=len(tried)).argmax()
        one = tried[usual]
        others = _of_others(one.whole) / middle * lent
        spread = np.sqrt(
            (one.left[:, :i] + others[:, None] + chance[:, None] * 2) / (free + lent + 2)
        )
        z = one.effect[:, :i] * np.sqrt(one.den[:i]) / spread
        tail = Tail(z)
        single = h < i
        nats[single] = np.minimum(nats[single], tail.nats(z[row[single], h[single]]))
    gain = beside - alone
    return Judged(at, size, error, nats, gain)


def _of_others(whole: Floats) -> Floats:
    """Return what the other rows' sums of squares usually are (R,)."""
    rows = len(whole)
    if rows < 2:
        return np.zeros(rows)
    if rows > _MOST_ROWS:  # of many one makes no difference to the median
        return np.full(rows, np.median(whole))
    return np.array([np.median(np.delete(whole, k)) for k in range(rows)])


def _by_row(own: Floats, size: float) -> Floats:
    """Return the size of each row: its own where rows differ by more than half of the size."""
    apart = float(np.median(np.abs(own - size)))
    return own if apart > _VARIES * abs(size) else np.full(len(own), size)


def _pattern(h: int, i: int) -> tuple[Floats, str]:
    """Return the weights of a pattern by its number, and its scope."""
    if h < i:
        return (np.arange(i) == h) * 1.0, "cell"
    k = h - i + 2 if i >= _STEP_FROM else i - 1
    if k < i - 1:
        return (np.arange(i) >= k) * 1.0, "step"
    if k == i - 1:
        return np.linspace(-0.5, 0.5, i), "trend"
    return _fading(k - i + 2, i), "step"


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Middles of the cells over the iterations."""

    middles: Floats  # (B, I) ln, NaN where not run
    chance: Floats  # (B,) variance of one by the noise of its copies
    df: Floats  # (B,) degrees of freedom of that
    step: Floats  # (B,) tick of the clock, ln

    def whole(self) -> tuple[Ints, Floats, Floats]:
        """Return the benchmarks that ran every iteration, their series and its least variance."""
        rows = np.flatnonzero(~np.isnan(self.middles).any(axis=1))
        y = self.middles[rows]
        chance = self.chance[rows] + LEAST_NOISE**2 + self.step[rows] ** 2 / 6
        return rows, y - np.median(y, axis=1, keepdims=True), chance


def search_times(series: Series, slots: int) -> list[Effect]:
    """Find what all copies have over the iterations."""
    b, i = series.middles.shape
    found: list[Effect] = []
    rows, y, chance = series.whole()
    if i < 2 or not len(rows):
        return found
    base = math.log(_KINDS / ALPHA)
    for _ in range(_MOST_FOUND):
        best = _best(y, chance, series.df[rows], series.step[rows], base, len(found))
        if best is None:
            break
        own, h, size, nats, gain, error = best
        when, scope = _pattern(h, i)
        y = y - np.where(own, size, 0.0)[:, None] * when
        y -= np.median(y, axis=1, keepdims=True)
        if scope == "step" and size[own].mean() < 0 and when[-1] > 0:
            when, size = 1 - when, -size
        whole, benchmarks = np.zeros(b), np.zeros(b, bool)
        whole[rows], benchmarks[rows] = np.where(own, size, 0.0), own
        found.append(
            Effect("iterations", np.ones(slots), benchmarks, when, whole, scope, nats, gain, error)
        )
    return found


def visible_iteration(series: Series, effects: list[Effect]) -> float | None:
    """Return the size (ln) from which four in five slow iterations of all benchmarks are found.

    None where there are too few to tell.
    """
    rows, y, chance = series.whole()
    i = y.shape[1]
    if i < 3 or not len(rows):
        return None
    for one in effects:
        if one.kind == "iterations":
            y = y - one.size[rows][:, None] * one.when
    y = y - np.median(y, axis=1, keepdims=True)
    typical = np.abs(y.mean(axis=0))
    at = int(np.argsort(typical)[i // 2])
    low, high = 0.0, 0.5
    error = 0.0
    for _ in range(_HALVINGS):
        size = (low + high) / 2
        planted = y.copy()
        planted[:, at] = size
        best = _best(
            planted,
            chance,
            series.df[rows],
            series.step[rows],
            math.log(_KINDS / ALPHA),
            0,
            alone=len(y) == 1,
        )
        seen = best is not None and best[1] == at and best[0].all()
        error = best[5] if best is not None and seen else error
        low, high = (low, size) if seen else (size, high)
    return high + 0.84 * error if high < 0.5 else None


type _Best = tuple[Bools, int, Floats, float, float, float]


def _best(
    y: Floats,
    chance: Floats,
    df: Floats,
    step: Floats,
    base: float,
    taken: int,
    *,
    alone: bool = True,
) -> _Best | None:
    """Return the pattern that gains most of those that pay."""
    rows, i = y.shape
    best: _Best | None = None
    if rows > 1:
        middle = y.mean(axis=0)
        apart = np.sum((y - middle) ** 2, axis=1) * rows / (rows - 1) / (i - 1)
        var = np.maximum(apart, chance)
        # A benchmark that varies little for once is not believed to: the others lend.
        var = (var * (i - 1) + np.median(var) * 4) / (i + 3)
        weight = 1 / var
        g = (weight[:, None] * y).sum(axis=0) / weight.sum()
        known = np.array([1 / weight.sum()])
        judged = _judge(g[None], known, np.array([(rows - 1.0) * (i - 1)]), COMMON, i > 12, taken)
        each = _products(y, 0.0, i >= _STEP_FROM).effect
        best = _pick(judged, i, base, np.array([0.0]), FLOOR_ALL, best, each, everyone=True)
    views = [y]
    if rows > 2:
        total = y.sum(axis=0)
        views.append(y - (total - y) / (rows - 1))
    if not alone:
        return best
    sizes = [_products(view, 0.0, i >= _STEP_FROM).effect for view in views]
    for view in views:
        judged = _judge(view, chance, df, OWN, True, taken)
        # One benchmark's own shows by itself and beside the others.
        least = np.minimum(np.abs(sizes[0]), np.abs(sizes[-1])) * (sizes[0] * sizes[-1] > 0)
        best = _pick(
            judged, i, base + math.log(len(views)), step, FLOOR_ONE, best, least, everyone=False
        )
    return best


def _pick(
    judged: Judged,
    i: int,
    base: float,
    step: Floats,
    floor: float,
    best: _Best | None,
    each: Floats,
    *,
    everyone: bool,
) -> _Best | None:
    """Return the better of a pattern and the best that pays; `each`: its sizes by row (R, H)."""
    of = len(each)
    rows = 1 if everyone else of
    for k in np.argsort(-judged.nats).tolist():
        row, h = judged.at[k]
        trend = i + max(0, i - 3) if i >= _STEP_FROM else i
        many = i if h < i else 1 if h == trend else max(1, i - 3)
        net = judged.nats[k] - base - math.log(rows * many)
        if judged.nats[k] < base:
            break
        size = float(judged.size[k])
        if h > trend and size < 0:  # what wears off was slow
            continue
        tick = step[row] * (1.5 if h < i else 0.75)
        if net <= 0 or abs(size) < max(floor, tick):
            continue
        shown = float(np.median(each[:, h])) if everyone else math.copysign(each[row, h], size)
        if shown * math.copysign(1, size) < 0.4 * abs(size):
            continue
        gain = float(judged.gain[k])
        if best is not None and gain <= best[4]:
            continue
        if everyone:
            own = np.ones(of, bool)
            sizes = _by_row(each[:, h], size)
        else:
            own = np.arange(of) == row
            sizes = np.where(own, size, 0.0)
        best = (own, int(h), sizes, float(net), gain, float(judged.error[k]))
    return best
