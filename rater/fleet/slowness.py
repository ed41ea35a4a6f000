"""Hosts' times held against each other: which are slow beyond chance, and by how much."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from rater.analysis.stats.robust import Floats, median, quantiles

# The yardstick is what hosts repeat. Of a host's distances from the other hosts' median, iteration
# by iteration, the smallest counts: noise that hits one iteration of three moves a mean or a median
# of few, but the least of three hardly (with the tail of Student's t of 4 degrees, x^-4 becomes
# x^-12), while a host that is slow is slow every time. What that least distance does by chance is
# read off the fleet itself: its scale benchmark by benchmark, shrunk towards that of all, its tail
# (exponential, median excess over a high quantile) over all hosts and benchmarks together, as in
# `divots.model.copies`. docs/how-to/slow-hosts.md has it beside other rules, simulated.

FEWEST_HOSTS = 4  # of one kind: three others agree on what is usual
WHOLE = 0.015  # smallest effects that count, in ln time: of a host in all benchmarks,
ONE = 0.03  # in one of them
_ALPHA = 0.01  # hosts that a fleet without slow ones may name, by the fitted tail
_SHRINK = 12.0  # weight of the other benchmarks' scales, as a number of hosts
_LEAST_SCALE = 0.001  # ln time: no fleet is quieter
_NATURAL = 0.003  # ln time: how far hosts of one kind are apart as a whole, where few tell
_OF_LEAST = 0.75  # the deviation of the least of three over that of one (normal)
_SEVERAL = 3  # benchmarks: fewer are no more than each of them
_FEW = 2.2  # over hosts: half of the middle 68 % of few normal values falls short by that
_UNSURE = 3.0
_LEAST_CUT = 0.84  # the normal's at 80 %
_PRIOR_EXCESSES = 15.0
_PRIOR_TAIL = 0.45  # scale of the tail over the scale of the body, for few values
_AGREE = 0.5  # of the effect: what the least iteration must show
_SPREAD = 0.4  # of the whole host's effect: what a benchmark must show to be one of its kind
_MOST_OF = 0.5  # benchmarks that do so, of all
_LEAVE_ONE_OUT = 64  # hosts; of more, one hardly moves the median


class Slowness(Struct, frozen=True, kw_only=True):
    """A host slower than the others; effects are ln(time over the others' median)."""

    host: int  # its row
    effect: float  # in all benchmarks; 0 where it is level but for some
    benchmarks: tuple[int, ...]  # slow beyond that, the slowest first; empty: all alike
    effects: tuple[float, ...]  # of these, beyond `effect`
    by_chance: float  # hosts so slow that a fleet without slow ones would show

    @property
    def worst(self) -> float:
        """The largest effect, whole and in a benchmark together."""
        return self.effect + max(self.effects, default=0.0)


class HostsJudged(Struct, frozen=True, kw_only=True):
    """A fleet's hosts held against each other."""

    distances: Floats  # (hosts, benchmarks): median over iterations of ln(time / others' median)
    slow: tuple[Slowness, ...]  # the slowest first
    visible_whole: float  # the effects that four of five such hosts would show, ln
    visible_one: float
    error_whole: float  # standard deviation (ln) of a host's distance in all benchmarks, by chance
    error_each: Floats  # the same in each benchmark


def compare_hosts(logs: Floats) -> HostsJudged:
    """Compare hosts by ln of their times, (hosts, benchmarks, iterations), NaN where there is none.

    Raises `ValueError` for fewer than `FEWEST_HOSTS`.
    """
    if len(logs) < FEWEST_HOSTS:
        raise ValueError(f"{len(logs)} hosts, expected {FEWEST_HOSTS} or more")
    apart = logs - _usual(logs)
    whole = median(np.moveaxis(apart, 1, -1))  # (hosts, iterations)
    effect = median(whole)
    judged = _judge(_least(whole)[:, None], _expected(whole))
    floor = WHOLE if logs.shape[1] >= _SEVERAL else ONE
    is_slow = (judged.by_chance[:, 0] <= _ALPHA) & (effect >= floor)
    is_slow &= _least(whole) >= _AGREE * effect
    each = median(apart)
    alike = np.sum(each > _SPREAD * effect[:, None], axis=1)
    is_slow &= alike >= _MOST_OF * np.sum(~np.isnan(each), axis=1)
    # The effect of a host that is slow as a whole is taken out; other hosts keep their level.
    rest = np.where(is_slow[:, None, None], apart - effect[:, None, None], apart)
    cells = _judge(_least(rest), None)
    each_rest = median(rest)
    marked = (cells.by_chance <= _ALPHA) & (each_rest >= ONE)
    marked &= _least(rest) >= _AGREE * each_rest

    def slowness_of(host: int) -> Slowness:
        slow_benchmarks = sorted(
            np.flatnonzero(marked[host]), key=lambda benchmark: -each_rest[host, benchmark]
        )
        chances = [
            *cells.by_chance[host, slow_benchmarks],
            *judged.by_chance[host, is_slow[host : host + 1]],
        ]
        return Slowness(
            host=host,
            effect=float(effect[host]) if is_slow[host] else 0.0,
            benchmarks=tuple(map(int, slow_benchmarks)),
            effects=tuple(map(float, each_rest[host, slow_benchmarks])),
            by_chance=float(min(chances)),
        )

    slow = [slowness_of(int(host)) for host in np.flatnonzero(is_slow | marked.any(axis=1))]
    slow.sort(key=lambda slowness: (-float(np.nanmean(each[slowness.host])), slowness.host))
    visible_one = max(ONE, cells.visible)
    # What is slow in all benchmarks shows in each of them, too.
    visible_whole = min(max(floor, judged.visible), visible_one)
    return HostsJudged(
        distances=each,
        slow=tuple(slow),
        visible_whole=visible_whole,
        visible_one=visible_one,
        error_whole=float(judged.scale[0]),
        error_each=cells.scale,
    )


class _Judged(Struct, frozen=True):
    by_chance: Floats  # (hosts, columns): expected number of cells so far out in a clean fleet
    visible: float
    scale: Floats  # by column, ln


def _usual(logs: Floats) -> Floats:
    """Return the other hosts' median of each benchmark and iteration, for each host."""
    hosts = logs.shape[0]
    last = np.moveaxis(logs, 0, -1)
    if hosts > _LEAVE_ONE_OUT:
        return np.broadcast_to(median(last), logs.shape)
    return np.stack([median(np.delete(last, host, axis=-1)) for host in range(hosts)])


def _expected(whole: Floats) -> float | None:
    """Return how far hosts are expected to be apart: by nature, and by what iterations differ.

    Of values (hosts, iterations) in ln. None for one iteration: nothing tells what it repeats.
    """
    if whole.shape[1] < 2:
        return None
    rest = whole - median(whole)[:, None]
    count = np.sum(~np.isnan(whole))
    within = float(np.sqrt(np.nansum(rest**2) / max(count - whole.shape[0], 1)))
    return math.hypot(_NATURAL, _OF_LEAST * within)


def _least(apart: Floats) -> Floats:
    """Return what nearly every iteration has at least: the first of 4, the second of 8, ..."""
    ordered = np.sort(apart, axis=-1)  # NaN last
    known_count = np.sum(~np.isnan(apart), axis=-1)
    place = np.maximum(np.ceil(known_count / 4).astype(np.intp) - 1, 0)
    return np.take_along_axis(ordered, place[..., None], axis=-1)[..., 0]


def _judge(least: Floats, prior: float | None) -> _Judged:
    """Return how often chance does so much: each host by a fit to the others.

    `prior` is the scale (ln) that hosts of one kind are expected to have, as a twelve hosts' worth;
    None: that of the other columns.
    """
    hosts, columns = least.shape
    if hosts > _LEAVE_ONE_OUT:
        fit = _fit(least, prior)
        return _Judged(fit.by_chance(least, hosts), fit.visible(hosts, columns), fit.scale)
    fits = [_fit(np.delete(least, host, axis=0), prior) for host in range(hosts)]
    chances = [fit.by_chance(least[host], hosts) for host, fit in enumerate(fits)]
    # One slow host among few widens every fit but its own.
    last = int(np.argmax(np.nan_to_num(median(least), nan=-np.inf)))
    fit = fits[last]
    return _Judged(np.stack(chances), fit.visible(hosts, columns), fit.scale)


class _Fit(Struct, frozen=True, kw_only=True):
    """What some hosts' least distances do by chance."""

    centre: Floats  # by column, ln
    scale: Floats
    share: float  # of their standardised values that are below the cut
    cut: float
    tail: float  # mean of what is beyond
    low: float  # what four of five are above

    def by_chance(self, least: Floats, hosts: int) -> Floats:
        """Return how many cells so far out a clean fleet of so many hosts would show."""
        standardised = (least - self.centre) / self.scale
        cells = hosts * self.centre.size
        chance = (
            cells * (1 - self.share) * np.exp(-np.maximum(standardised - self.cut, 0) / self.tail)
        )
        return np.where(standardised > self.cut, chance, np.inf)  # NaN is not greater

    def visible(self, hosts: int, columns: int) -> float:
        """Return the effect (ln) that four of five slow hosts would show beyond chance."""
        odds = max(hosts * columns * (1 - self.share) / _ALPHA, 1.0)
        needed = self.cut + self.tail * math.log(odds)
        return float(median(self.scale)) * (needed - self.low)


def _fit(least: Floats, prior: float | None) -> _Fit:
    """Fit scales and a common tail to (hosts, columns)."""
    hosts = least.shape[0]
    low, centre, high = quantiles(least.T, 0.16, 0.5, 0.84)
    count = np.maximum(np.sum(~np.isnan(least), axis=0), 1)
    own_log_scale = np.log(np.maximum((high - low) / 2 * (1 + _FEW / count), _LEAST_SCALE))
    usual = median(own_log_scale) if prior is None else math.log(prior)
    weight = count / (count + _SHRINK)
    # A scale of few values is wrong by a factor, and their median is no point either.
    unsure = np.sqrt(1 + 1.57 / count) * (1 + _UNSURE / (hosts + 1))
    scale = np.exp(weight * own_log_scale + (1 - weight) * usual) * unsure
    pooled = ((least - centre) / scale).ravel()
    pooled = pooled[~np.isnan(pooled)]
    share = _share_below_cut(pooled.size)
    cut, below = quantiles(pooled, share, 0.2)
    return _Fit(
        centre=centre,
        scale=scale,
        share=share,
        cut=max(float(cut), _LEAST_CUT),
        tail=_mean_tail(pooled[pooled > cut] - cut),
        low=min(float(below), 0.0),
    )


def _share_below_cut(value_count: int) -> float:
    """Return the quantile where the tail begins: the more values, the farther out."""
    for fewer_than, share in ((500, 0.8), (2000, 0.9), (8000, 0.95)):
        if value_count < fewer_than:
            return share
    return 0.975


def _mean_tail(excess: Floats) -> float:
    """Return the mean of an exponential tail, from its median and what few values have."""
    weight = excess.size / (excess.size + _PRIOR_EXCESSES)
    mean_excess = float(median(excess)) / math.log(2) if excess.size else 0.0
    return float(max(weight * mean_excess + (1 - weight) * _PRIOR_TAIL, 0.9 * mean_excess))
