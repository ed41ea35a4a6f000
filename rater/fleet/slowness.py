"""Hosts' times held against each other: which are slow beyond chance, and by how much."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from rater.analysis.stats.robust import Bools, Floats, median, quantiles

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
_MOST_SLOW = 0.4  # of the hosts: most are usual, with some room
_MOST_ROUNDS = 8  # each with more slow hosts than the one before; two or three do
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
    visible_one: float  # in the benchmark of typical noise
    visible_each: Floats  # in each benchmark
    error_whole: float  # standard deviation (ln) of a host's distance in all benchmarks, by chance
    error_each: Floats  # the same in each benchmark


def compare_hosts(logs: Floats) -> HostsJudged:
    """Compare hosts by ln of their times, (hosts, benchmarks, iterations), NaN where there is none.

    Judged again without the slow hosts until no other is found: they are no measure of what is
    usual. Raises `ValueError` for fewer than `FEWEST_HOSTS`.
    """
    if len(logs) < FEWEST_HOSTS:
        raise ValueError(f"{len(logs)} hosts, expected {FEWEST_HOSTS} or more")
    return _search(logs).judged()


def compare_against(logs: Floats, reference: Floats) -> HostsJudged:
    """Compare hosts with those of another fleet, by ln of times as `compare_hosts` takes them.

    What is usual, and what chance does, are of the other fleet without its slow hosts. So one host
    can be judged, and a fleet that is slow as a whole. Raises `ValueError` for a reference of fewer
    than `FEWEST_HOSTS`.
    """
    if len(reference) < FEWEST_HOSTS:
        raise ValueError(f"{len(reference)} hosts, expected {FEWEST_HOSTS} or more")
    search = _search(reference)
    healthy = np.moveaxis(np.where(search.slow_cells[:, :, None], np.nan, reference), 0, -1)
    usual = median(healthy)  # (benchmarks, iterations)
    if usual.shape[1] != logs.shape[2]:
        usual = median(usual)[:, None]
    return _find(logs - usual, search).judged()


def _search(logs: Floats) -> _Search:
    """Search again without the slow hosts until no other is found."""
    slow = np.zeros(logs.shape[:2], dtype=bool)
    search = _find(logs - _usual_without(slow, logs))
    for _ in range(_MOST_ROUNDS):
        if not np.any(search.slow_cells & ~slow):
            break
        slow |= search.slow_cells
        search = _find(logs - _usual_without(slow, logs))
    return search


class _Search(Struct, frozen=True, kw_only=True):
    """Slow hosts by one yardstick; arrays are of hosts, or (hosts, benchmarks), and ln."""

    each: Floats  # distance from the others' median
    effect: Floats  # its median over benchmarks
    is_slow: Bools  # in all benchmarks
    rest: Floats  # `each` beyond that
    marked: Bools  # slow in these benchmarks beyond that
    of_hosts: _Judged
    of_cells: _Judged

    @property
    def slow_cells(self) -> Bools:
        """Cells that are slow for one reason or the other."""
        return np.asarray(self.is_slow[:, None] | self.marked)

    def judged(self) -> HostsJudged:
        """Return the slow hosts in their order, and what can be seen."""
        hosts = np.flatnonzero(self.is_slow | self.marked.any(axis=1))
        slow = [self._slowness(int(host)) for host in hosts]
        slow.sort(
            key=lambda slowness: (-float(np.nanmean(self.each[slowness.host])), slowness.host)
        )
        visible_one = max(ONE, self.of_cells.visible)
        floor = least_effect(self.each.shape[1])
        return HostsJudged(
            distances=self.each,
            slow=tuple(slow),
            # What is slow in all benchmarks shows in each of them, too.
            visible_whole=min(max(floor, self.of_hosts.visible), visible_one),
            visible_one=visible_one,
            visible_each=np.maximum(self.of_cells.fit.visible(*self.each.shape), ONE),
            error_whole=float(self.of_hosts.fit.scale[0]),
            error_each=self.of_cells.fit.scale,
        )

    def _slowness(self, host: int) -> Slowness:
        benchmarks = sorted(
            np.flatnonzero(self.marked[host]), key=lambda benchmark: -self.rest[host, benchmark]
        )
        chances = [*self.of_cells.by_chance[host, benchmarks], self.of_hosts.by_chance[host, 0]]
        return Slowness(
            host=host,
            effect=float(self.effect[host]) if self.is_slow[host] else 0.0,
            benchmarks=tuple(map(int, benchmarks)),
            effects=tuple(map(float, self.rest[host, benchmarks])),
            by_chance=float(min(chances)),
        )


def least_effect(benchmarks: int) -> float:
    """Return the least effect (ln) of a whole host that counts; of few benchmarks that of one."""
    return WHOLE if benchmarks >= _SEVERAL else ONE


def _find(apart: Floats, reference: _Search | None = None) -> _Search:
    """Find slow hosts by ln of time over what is usual, (hosts, benchmarks, iterations).

    What chance does is read off these hosts, or else was read off a `reference`.
    """
    each = median(apart)
    whole = median(np.moveaxis(apart, 1, -1))  # (hosts, iterations)
    effect = median(whole)
    most_columns = _MOST_OF * np.sum(~np.isnan(each), axis=1)
    can_be_slow = np.sum(each > _SPREAD * effect[:, None], axis=1) >= most_columns
    can_be_slow &= (effect >= least_effect(each.shape[1])) & (_least(whole) >= _AGREE * effect)
    of_hosts = (
        _judge(_least(whole)[:, None], can_be_slow[:, None], _expected(whole))
        if reference is None
        else _judge_by(reference.of_hosts.fit, _least(whole)[:, None], can_be_slow[:, None])
    )
    is_slow = of_hosts.by_chance[:, 0] <= _ALPHA
    for _ in range(2):
        # The effect of a host that is slow as a whole is taken out; other hosts keep their level.
        beyond = np.where(is_slow[:, None, None], apart - effect[:, None, None], apart)
        rest, least = median(beyond), _least(beyond)
        candidates = (rest >= ONE) & (least >= _AGREE * rest)
        of_cells = (
            _judge(least, candidates, None)
            if reference is None
            else _judge_by(reference.of_cells.fit, least, candidates)
        )
        marked = of_cells.by_chance <= _ALPHA
        # Slow in most benchmarks, one by one, is slow in all: others may hide it as a whole.
        in_most = can_be_slow & (marked.sum(axis=1) > most_columns) & ~is_slow
        if not in_most.any() or each.shape[1] < _SEVERAL:
            break
        is_slow = is_slow | in_most
    return _Search(
        each=each,
        effect=effect,
        is_slow=is_slow,
        rest=rest,
        marked=marked,
        of_hosts=of_hosts,
        of_cells=of_cells,
    )


class _Judged(Struct, frozen=True):
    # (hosts, columns): cells so far out that a clean fleet would show; infinite: it is no candidate
    by_chance: Floats
    visible: float
    fit: _Fit  # of healthy hosts


def _usual_without(slow: Bools, logs: Floats) -> Floats:
    """Return the others' median without slow cells; with them where no healthy one is left."""
    usual = _usual(np.where(slow[:, :, None], np.nan, logs))
    return np.where(np.isnan(usual), _usual(logs), usual) if slow.any() else usual


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


def _judge(least: Floats, can_be_slow: Bools, prior: float | None) -> _Judged:
    """Return how often chance does so much: each host by a fit to those that are less far out.

    Of candidates (cells `can_be_slow`) the nearest is judged first, by a fit to all hosts below it:
    a fit to the farther ones as well would hide it behind its like (B. Rosner, Technometrics 25,
    1983, judges outliers in this order). From the first that is beyond chance on, all are judged
    by that fit. `prior` is the scale (ln) that hosts of one kind are expected to have, as a twelve
    hosts' worth; None: that of the other columns.
    """
    hosts = least.shape[0]
    everything = _fit(least, prior)
    far = np.nan_to_num((least - everything.centre) / everything.scale, nan=-np.inf)
    of_candidates = np.where(can_be_slow, far, -np.inf).max(axis=1)
    order = np.lexsort((far.max(axis=1), of_candidates))
    most = max(1, min(int(_MOST_SLOW * hosts), hosts - FEWEST_HOSTS + 1))
    first = max(hosts - most, int(np.sum(np.isneginf(of_candidates))))
    narrowest = _fit(least[order[:first]], prior) if first < hosts else everything
    nearest = hosts - 1
    for place in range(first, hosts):
        # Only what is beyond chance by the narrowest fit may be so by a wider one.
        if _is_beyond(narrowest, least, can_be_slow, order[place]) and _is_beyond(
            _fit(least[order[:place]], prior), least, can_be_slow, order[place]
        ):
            nearest = place
            break
    fit = _fit(least[order[:nearest]], prior)
    far_enough = np.zeros(hosts, dtype=bool)
    far_enough[order[nearest:]] = True
    return _judge_by(fit, least, can_be_slow & far_enough[:, None])


def _judge_by(fit: _Fit, least: Floats, can_be_slow: Bools) -> _Judged:
    """Return how often chance does so much, by a fit to healthy hosts."""
    hosts, columns = least.shape
    by_chance = np.where(can_be_slow, fit.by_chance(least, hosts), np.inf)
    return _Judged(by_chance, float(median(fit.visible(hosts, columns))), fit)


def _is_beyond(fit: _Fit, least: Floats, can_be_slow: Bools, host: int) -> bool:
    """Tell whether a cell of a host is slower than chance makes it."""
    by_chance = fit.by_chance(least[host], least.shape[0])
    return bool(np.any(can_be_slow[host] & (by_chance <= _ALPHA)))


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

    def visible(self, hosts: int, columns: int) -> Floats:
        """Return the effects (ln) that four of five slow hosts would show, by column."""
        odds = max(hosts * columns * (1 - self.share) / _ALPHA, 1.0)
        needed = self.cut + self.tail * math.log(odds)
        return self.scale * (needed - self.low)


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
