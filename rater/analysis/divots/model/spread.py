"""Candidates that no part of the machine is: slopes, several copies at once, two sorts; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from rater.analysis.divots.model.nulls import Nature, capped_squares
from rater.analysis.divots.model.places import ALPHA, LEAST_NOISE, SLOPE, Effect, Noise, Scope
from rater.analysis.stats.robust import Bools, Floats

_BLOCKS: Final = 8  # of neighbours, which may share what is no slope
SLOPE_FLOOR: Final = 0.02  # from the first to the last
MODES_FLOOR: Final = 0.02
_LEAST_SHARE, _MOST_SHARE = 0.12, 0.60  # of the copies: fewer are single ones, more the usual sort
_LEAST_SORTED: Final = 12  # values of which two sorts can be told
_WIDER: Final = math.log(2.5)  # a cell whose copies lie so much further apart
WIDTH: Final = Nature(0.15, 1.8)  # by which the width of a cell differs, ln


def slopes(r: Floats, level: Floats, order: Floats, noise: Noise, kinds: int) -> Iterator[Effect]:
    """Return slopes over the order of start: of all benchmarks, of one, of one cell."""
    b, i, s = r.shape
    if s < 4:
        return
    x = order - 0.5
    price, repeat = math.log(kinds / ALPHA), noise.again / noise.count
    one, worth, error = _slope(level, x, repeat, noise.again_df)
    every, all_of = np.ones(i), np.ones(b, bool)
    sxx = float(x @ x)

    def effect(rows, when, size, scope, nats, sd):
        gain = 0.5 * sxx * when.sum() * float(np.sum(size[rows] ** 2 / noise.again[rows]))
        return Effect(
            "gradient", x, rows, when, np.where(rows, size, 0.0), scope, nats, gain - rows.sum(), sd
        )

    if b > 1:
        weight = 1 / error**2
        total = weight.sum()
        mean = float((weight * one).sum() / total)
        birge = max(1.0, (4 + float((weight * (one - mean) ** 2).sum())) / (3 + b))
        pooled = (weight[:, None] * level).sum(axis=0, keepdims=True) / total
        size, nats, sd = _slope(pooled, x, np.array([birge / total * sxx]), np.array([3.0 + b]))
        if nats[0] > price and abs(size[0]) > 0.6 * SLOPE_FLOOR:
            yield effect(all_of, every, one, "all", nats[0] - price, sd[0])
    for k in np.flatnonzero((worth > price + math.log(b)) & (np.abs(one) > 0.6 * SLOPE_FLOOR)):
        yield effect(
            np.arange(b) == k, every, one, "some", worth[k] - price - math.log(b), error[k]
        )
    if i > 1:
        rows = np.nan_to_num(r).reshape(b * i, s)
        size, nats, sd = _slope(rows, x, np.repeat(noise.again, i), np.repeat(noise.again_df, i))
        net = nats - price - math.log(b * i)
        for q in np.argsort(-net)[:20]:
            if net[q] > 0 and abs(size[q]) > SLOPE_FLOOR:
                k, j = divmod(int(q), i)
                here = np.arange(b) == k
                yield effect(
                    here,
                    (np.arange(i) == j) * 1.0,
                    np.where(here, size[q], 0.0),
                    "cell",
                    net[q],
                    sd[q],
                )


def _slope(y: Floats, x: Floats, chance: Floats, df: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the slope of rows (R, S), its nats and its error."""
    s = y.shape[1]
    y = y - y.mean(axis=1, keepdims=True)
    sxx = float(x @ x)
    slope = y @ x / sxx
    for _ in range(2):
        rest = y - slope[:, None] * x
        sd = np.sqrt(np.maximum(capped_squares(rest, 1)[0] / max(1, s - 2), chance))[:, None]
        slope = slope + np.clip(rest, -2.5 * sd, 2.5 * sd) @ x / sxx
    rest = y - slope[:, None] * x
    squares, n = capped_squares(rest, 1)
    lent = np.minimum(df, 12.0)
    var = (lent * np.maximum(chance, LEAST_NOISE**2) + squares) / (lent + n - 2)
    blocks = min(_BLOCKS, s // 2)
    at = np.array_split(np.argsort(x), blocks)
    middles = np.stack([rest[:, k].mean(axis=1) for k in at], axis=1)
    extra = np.maximum(0.0, np.sum(middles**2, axis=1) - var * blocks * blocks / s)
    squares, others = 1.5 * extra, float(max(0, blocks - 2))
    nats = SLOPE.nats(
        slope, var / sxx, lent + n - 2, squares=squares, others=np.full(len(y), others)
    )
    return slope, nats, np.sqrt(var / sxx)


def together(scope: Scope, r: Floats, noise: Noise, kinds: int) -> Iterator[Effect]:
    """Return several copies that are slow at once where each alone would not pay."""
    b, i, s = r.shape
    if scope.tail is None or s < 6:
        return
    z = scope.d / scope.sd
    rows, most = len(z), max(2, s // 5)
    base = math.log(kinds / ALPHA) + math.log(rows)
    top = -np.sort(-z, axis=1)[:, :most]  # a fast minority is no divot
    m = np.arange(1, top.shape[1] + 1)
    ln_lambda = math.log(s / 2) - scope.tail.nats(top)
    ways = np.array([math.lgamma(k + 1) for k in m.tolist()])
    nats = -(m * ln_lambda - ways) - math.log(2 * most)
    usable = (ln_lambda < np.log(m)) & (m > 1) & (top > 3.0)
    nats = np.where(usable & (scope.net.max(axis=1, keepdims=True) <= 0), nats, 0.0)
    best = nats.argmax(axis=1)
    net = nats[np.arange(rows), best] - base
    for row in np.argsort(-net)[:40]:
        if net[row] <= 0:
            break
        mine = np.argsort(-z[row])[: best[row] + 1]
        size = float(np.median(scope.d[row, mine]))
        k, j = divmod(int(row), i) if scope.name == "cell" else (int(row), -1)
        if abs(size) < max(scope.floor, 1.5 * noise.step[k]):
            continue
        when = (np.arange(i) == j) * 1.0 if j >= 0 else np.ones(i)
        slots = np.isin(np.arange(s), mine)
        here, n = np.arange(b) == k, len(mine)
        gain = 0.5 * n * (1 - n / s) * when.sum() * size**2 / noise.again[k]
        yield Effect(
            "copies",
            slots.astype(float),
            here,
            when,
            np.where(here, size, 0.0),
            "cell" if j >= 0 else "some",
            float(net[row]),
            float(gain),
            float(scope.sd[row].mean() / math.sqrt(n)),
        )


def two_sorts(r: Floats, noise: Noise, kinds: int) -> Iterator[Effect]:
    """Return benchmarks, and single cells, whose values are of two sorts that lie apart.

    The null is the flattest of single modes, uniform, and a tail that falls off exponentially: no
    gap of their spacings is so wide.
    """
    b, i, s = r.shape
    if s < 4:
        return
    base = math.log(kinds / ALPHA)
    for k, net, size, cut in _gaps(r.reshape(b, i * s), noise.step, base + math.log(b)):
        slow = np.where(np.isnan(r[k]), False, r[k] >= cut)
        held = slow.mean(axis=0)
        always = i > 2 and float(((held > 0.2) & (held < 0.8)).mean()) < 0.1
        here = np.arange(b) == k
        if always or i == 1:
            yield from _set(held > 0.5, here, np.ones(i), size, net, noise)
        elif slow.mean() <= _MOST_SHARE and slow.any(axis=1).all():
            gain = 0.5 * slow.sum() * (1 - slow.mean()) * size**2 / noise.one[k]
            slots, when = slow.astype(float), np.ones(i)
            yield Effect(
                "modes", slots, here, when, np.where(here, size, 0.0), "some", net, float(gain)
            )
    if i > 1:
        rows, steps = r.reshape(b * i, s), np.repeat(noise.step, i)
        for q, net, size, cut in _gaps(rows, steps, base + math.log(b * i)):
            k, j = divmod(q, i)
            when = (np.arange(i) == j) * 1.0
            slow = np.nan_to_num(r[k, j], nan=-np.inf) >= cut
            yield from _set(slow, np.arange(b) == k, when, size, net, noise)


def _set(
    slow: Bools, here: Bools, when: Floats, size: float, net: float, noise: Noise
) -> Iterator[Effect]:
    """Return the same copies each time: the smaller side is told."""
    sign = 1 if slow.mean() <= _MOST_SHARE else -1
    few = slow if sign > 0 else ~slow
    count, s = int(few.sum()), len(slow)
    if not 1 < count < s or (sign < 0 and when.sum() < 2):
        return
    gain = 0.5 * count * (1 - count / s) * when.sum() * size**2 / float(noise.again[here][0])
    scope = "some" if when.all() else "cell"
    sizes = np.where(here, sign * size, 0.0)
    yield Effect("modes", few.astype(float), here, when, sizes, scope, net, gain)


def _gaps(rows: Floats, steps: Floats, price: float) -> Iterator[tuple[int, float, float, float]]:
    """Return rows with a gap that pays: row, nats beyond the price, size, where the slow begin."""
    full = np.flatnonzero(~np.isnan(rows).any(axis=1))
    n = rows.shape[1]
    low, high = max(2, math.ceil(_LEAST_SHARE * n)), int(0.92 * n)
    cuts = np.arange(max(1, n - high), n - low + 1)
    if n < _LEAST_SORTED or not len(full) or not len(cuts):
        return
    v = np.sort(rows[full], axis=1)
    gaps = np.maximum(v[:, cuts] - v[:, cuts - 1] - steps[full, None], 0.0)  # ticks are no gaps
    best = gaps.argmax(axis=1)
    edge = max(1, n // 25)
    whole = np.maximum(v[:, -1 - edge // 2] - v[:, edge], 1e-12)
    at, widest = cuts[best], gaps[np.arange(len(v)), best]
    m = n - at
    body = v[np.arange(len(v)), at - 1] - v[:, n // 2]
    scale = np.maximum(body, 1e-12) / np.log(np.maximum(2.0, n / 2 / m))
    tail = np.where(m < n / 3, m * widest / scale, np.inf)
    nats = np.minimum(-n * np.log1p(-np.minimum(widest / whole, 0.98)), tail)
    for q in np.flatnonzero(nats > price + math.log(n)).tolist():
        size = float(np.median(v[q, at[q] :]) - np.median(v[q, : at[q]]))
        if size >= MODES_FLOOR + 2 * steps[full[q]]:
            net = float(nats[q] - price - math.log(n))
            yield int(full[q]), net, size, float(v[q, at[q]])


def unsettled(r: Floats, noise: Noise, kinds: int) -> Iterator[Effect]:
    """Return cells whose copies lie much further apart than in the benchmark's other iterations."""
    b, i, s = r.shape
    rows = np.flatnonzero(~np.isnan(r).any(axis=(1, 2)))
    if s < 8 or i < 2 or not len(rows):
        return
    x = r[rows]
    spread = np.quantile(np.abs(x - np.median(x, axis=2, keepdims=True)), 0.6827, axis=2)
    width = 0.5 * np.log(spread**2 + 1e-8 + noise.step[rows, None] ** 2 / 3)
    others = (width.sum(axis=1, keepdims=True) - width) / (i - 1)
    d = width - others
    rest = np.sum((width - width.mean(axis=1, keepdims=True)) ** 2, axis=1, keepdims=True)
    squares = np.maximum(0.0, rest - d**2 * (i - 1) / i)
    chance = np.full(d.shape, 1 / (1.2 * s))
    nats = WIDTH.nats(
        d, chance, 1e6, grow=i / (i - 1), squares=squares, others=np.full(d.shape, i - 2.0)
    )
    net = nats - math.log(kinds / ALPHA) - math.log(d.size)
    for k in np.flatnonzero((net > 0)[:, 0] & (d > _WIDER)[:, 0] & (spread > 0.02)[:, 0]).tolist():
        j = 0  # of a first iteration only: later ones have no start-up
        slots = np.zeros((i, s))
        slots[j] = x[k, j] * (1 - math.exp(-d[k, j]))
        bench = np.arange(b) == rows[k]
        gain = 0.5 * float(np.sum(slots[j] ** 2)) / noise.again[rows[k]]
        yield Effect(
            "unsettled",
            slots,
            bench,
            (np.arange(i) == j) * 1.0,
            bench * 1.0,
            "cell",
            float(net[k, j]),
            gain,
        )
