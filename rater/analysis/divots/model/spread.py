"""Candidates that no part of the machine is: slopes, several copies at once, two sorts; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from rater.analysis.divots.model.effects import (
    ALPHA,
    ENTERS,
    LEAST_NOISE,
    CellNoise,
    PartScope,
)
from rater.analysis.divots.model.nulls import Nature, capped_squares
from rater.analysis.divots.model.table import Effect
from rater.analysis.stats.robust import Bools, Floats

_BLOCKS: Final = 8  # of neighbours, which may share what is no slope
SLOPE: Final = Nature(0.004, 1.6)  # from the first copy to the last of healthy ones
SLOPE_FLOOR: Final = 0.02  # from the first to the last
MODES_FLOOR: Final = 0.02
_LEAST_SHARE, _MOST_SHARE = 0.12, 0.60  # of the copies: fewer are single ones, more the usual sort
_LEAST_SORTED: Final = 12  # values of which two sorts can be told
_LEAST_SLOPED, _LEAST_TOGETHER = 4, 6  # copies
_SHOWN: Final = 0.4  # of a size: benchmarks that have so much of it show it
_MOST_SETS: Final = 40
_FAR: Final = 3.0  # standard deviations of each of several copies
_MOST_SINGLE: Final = 0.2  # of the copies: more are a sort
_WIDER: Final = math.log(2.5)  # a cell whose copies lie so much further apart
WIDTH: Final = Nature(0.15, 1.8)  # by which the width of a cell differs, ln


def slopes(
    r: Floats, level: Floats, order: Floats, noise: CellNoise, kinds: int
) -> Iterator[Effect]:
    """Return slopes over the order of start: of all benchmarks, of one, of one cell."""
    b, i, s = r.shape
    if s < _LEAST_SLOPED:
        return
    x, every, repeat = order - 0.5, np.ones(i), noise.again / noise.count
    one, worth, error = _slope(level, x, repeat, noise.again_df)

    def offered(y: Floats, size: Floats, nats: Floats, floor: float) -> Iterator[tuple[int, float]]:
        net = nats - math.log(kinds / ALPHA) - math.log(len(y))
        rows = _even(y, x, (net > 0) & (np.abs(size) > floor))
        return zip(rows, net[rows].tolist(), strict=True)

    if b > 1:
        weight = 1 / error**2
        mean = (weight * one).sum() / weight.sum()
        agreed = max(1.0, (4 + float((weight * (one - mean) ** 2).sum())) / (3 + b))
        pooled = (weight[:, None] * level).sum(axis=0, keepdims=True) / weight.sum()
        var = np.array([agreed / weight.sum() * float(x @ x)])
        size, nats, _ = _slope(pooled, x, var, np.array([3.0 + b]))
        for _, net in offered(pooled, size, nats, ENTERS * SLOPE_FLOOR):
            yield noise.weighed(Effect("gradient", x, np.ones(b, bool), every, one, net))
    for k, net in offered(level, one, worth, ENTERS * SLOPE_FLOOR):
        yield noise.weighed(Effect("gradient", x, np.arange(b) == k, every, one, net))
    if i > 1:
        rows = np.nan_to_num(r).reshape(b * i, s)
        size, nats, _ = _slope(rows, x, np.repeat(noise.again, i), np.repeat(noise.again_df, i))
        for q, net in offered(rows, size, nats, SLOPE_FLOOR):
            here, when = noise.cell(q, i)
            yield noise.weighed(Effect("gradient", x, here, when, size[q] * here, net))


def _even(y: Floats, x: Floats, which: Bools) -> list[int]:
    """Return which rows (R, S) a slope over the order fits better than two levels, cut anywhere."""
    clear, cut = np.flatnonzero(which), np.arange(1, len(x))
    y = np.nan_to_num(y[clear])[:, np.argsort(x)]
    y = y - y.mean(axis=1, keepdims=True)
    levels = y.cumsum(axis=1)[:, :-1] ** 2 * len(x) / (cut * (len(x) - cut))
    even = (y @ np.sort(x)) ** 2 / (x @ x) >= levels.max(axis=1)
    return [int(row) for row in clear[even]]


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


def together(scope: PartScope, noise: CellNoise, kinds: int, times: int) -> Iterator[Effect]:
    """Return several copies that are slow at once where each alone would not pay."""
    rows, s = scope.d.shape
    if scope.tail is None or s < _LEAST_TOGETHER or scope.name not in ("one", "cell"):
        return
    b = len(noise.again)
    i = rows // b
    most = max(2, s // 5)
    base = math.log(kinds / ALPHA) + math.log(rows)
    z = scope.d / scope.sd
    top = -np.sort(-z, axis=1)[:, :most]  # a fast minority is no divot
    m = np.arange(1, top.shape[1] + 1)
    expected = math.log(s / 2) - scope.tail.nats(top)  # ln of how many are so far out by chance
    ways = np.array([math.lgamma(k + 1) for k in m.tolist()])
    nats = -(m * expected - ways) - math.log(2 * most)
    alone = scope.net.max(axis=1, keepdims=True) > 0
    nats = np.where((expected < np.log(m)) & (m > 1) & (top > _FAR) & ~alone, nats, 0.0)
    best = nats.argmax(axis=1)
    net = nats[np.arange(rows), best] - base
    for row in np.argsort(-net)[: int(np.sum(net > 0))][:_MOST_SETS].tolist():
        mine = np.argsort(-z[row])[: best[row] + 1]
        size = float(np.median(scope.d[row, mine]))
        here, when = noise.cell(row, i)
        if abs(size) < max(scope.floor, 1.5 * float(noise.step[here][0])):
            continue
        when = when if scope.name == "cell" else np.ones(times)
        yield from _set(np.isin(np.arange(s), mine), (here, when), size, float(net[row]), noise)


def two_sorts(r: Floats, level: Floats, noise: CellNoise, kinds: int) -> Iterator[Effect]:
    """Return benchmarks, and single cells, whose values are of two sorts that lie apart.

    The null is the flattest of single modes, uniform, and a tail that falls off exponentially: no
    gap of their spacings is so wide.
    """
    b, i, s = r.shape
    if s < 4:
        return
    base, every = math.log(kinds / ALPHA), np.ones(i)
    if b > 1:  # of all benchmarks, the same copies
        weight = noise.count / noise.again
        pooled = (weight[:, None] * level).sum(axis=0, keepdims=True) / weight.sum()
        for _, net, size, cut in _gaps(pooled, np.zeros(1), base):
            slow = pooled[0] >= cut
            d = np.median(level[:, slow], axis=1) - np.median(level[:, ~slow], axis=1)
            error = np.sqrt(noise.again / noise.count / min(slow.sum(), (~slow).sum()))
            here = (d > _SHOWN * size) & (d > 2 * error)
            if here.any():
                yield from _set(slow, (here, every), size, net, noise)
    for k, net, size, cut in _gaps(r.reshape(b, i * s), noise.step, base + math.log(b)):
        slow = np.where(np.isnan(r[k]), False, r[k] >= cut)
        held, here = slow.mean(axis=0), np.arange(b) == k
        always = i > 2 and float(((held > 0.2) & (held < 0.8)).mean()) < 0.1
        if always or i == 1:
            yield from _set(held > 0.5, (here, every), size, net, noise)
        elif slow.mean() <= _MOST_SHARE and slow.any(axis=1).all():
            yield noise.weighed(Effect("modes", slow.astype(float), here, every, size * here, net))
    if i > 1:
        rows, steps = r.reshape(b * i, s), np.repeat(noise.step, i)
        for q, net, size, cut in _gaps(rows, steps, base + math.log(b * i)):
            slow = np.nan_to_num(rows[q], nan=-np.inf) >= cut
            yield from _set(slow, noise.cell(q, i), size, net, noise)


def _set(
    slow: Bools, at: tuple[Bools, Floats], size: float, net: float, noise: CellNoise
) -> Iterator[Effect]:
    """Return the same copies each time, in benchmarks and iterations: the smaller side is told."""
    here, when = at
    sign = 1.0 if slow.mean() <= _MOST_SHARE else -1.0
    few = (slow if sign > 0 else ~slow).astype(float)
    if 1 < few.sum() < len(slow) and (sign > 0 or when.sum() > 1):
        kind = "modes" if few.sum() > _MOST_SINGLE * len(few) else "copies"
        sizes = np.where(here, sign * size, 0.0)
        yield noise.weighed(Effect(kind, few, here, when, sizes, net))


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


def unsettled(r: Floats, noise: CellNoise, kinds: int) -> Iterator[Effect]:
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
    when = 1.0 * (np.arange(i) == 0)  # of a first iteration only: later ones have no start-up
    for k in np.flatnonzero((net > 0)[:, 0] & (d > _WIDER)[:, 0] & (spread > 0.02)[:, 0]).tolist():
        slots = np.zeros((i, s))
        slots[0] = x[k, 0] * (1 - math.exp(-d[k, 0]))
        here = np.arange(b) == rows[k]
        yield noise.weighed(Effect("unsettled", slots, here, when, 1.0 * here, float(net[k, 0])))
