"""Groups of copies that share a part of the machine and are slow, or fast, together; pure.

The tests of `find_groups` are those of the note's section 3 (step 2), for any way
to divide the slots into groups; slow and fast alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.data.noise_scales import OWN_WEIGHT, Scales
from rater.analysis.divots.data.table import UNKNOWN
from rater.analysis.stats.robust import (
    MAD_TO_SD,
    MEDIAN_ERROR,
    Bools,
    Floats,
    Ints,
    binomial_tail,
    mad,
    median,
    middle,
    rank_sum_z,
)

TAU = 0.0025  # healthy groups differ by a quarter of a per cent
TAU_ALONE = 0.00375  # few groups in one iteration say little about that
_MOST_JITTER = 0.01
_LEAST_JITTER = 3e-4
_FEW_GROUPS = _THREE = 3
Z = 4.5
_Z_ONCE = 5.0
Z_STEADY = 4.0  # where each iteration shows it, which a chance finding does not
# Of the threshold: a single iteration must show more, nearly all benchmarks alike may show less.
ONCE_SHARE = 5 / 3
EVERYWHERE_SHARE = 2 / 3
_PLAIN = 4.0
_OTHERS = 0.1
_FOLLOWS = 0.88
_STEADY = 0.6
# Below the threshold is told only what is many times what the run's groups differ by anyway:
# lgroups of healthy servers do by .15 to .4 %, each time the same.
EXCEPTIONAL = 8.0
STEADY_LEAST = 0.8  # of the threshold
_LEAST_NATURAL = 0.001
_MOST_NATURAL = 0.0045
_VARIES = 1.25  # memory-bound benchmarks differ by more than the others
_LEAST_FOR_NATURAL = 12  # values
OWN_NOISE = 5.0
_RANK_Z = 3.3
_MEAN_T = 4.0
_VERY_FEW = 3
_CHANCE = 1e-6
_MANY = 0.25  # of all copies, too many to fall on one part of the machine by chance
_SAME = 0.8  # of the benchmarks ...
_SAME_SHARE = 0.3  # ... show this much of the typical effect
_MOST_GROUPS = 512
LEAST = 3
_COMMON = 0.05  # of the others are as far off: then so are some groups, by coincidence
_COINCIDENCE = 1e-3


@dataclass(frozen=True, slots=True)
class Level:
    """A way to divide the slots: what a group is, and the group of each slot."""

    name: str  # node, package, llc, memory, node+memory
    groups: Ints  # (S,) UNKNOWN: in none
    least: int = LEAST  # copies of a group to be judged
    # Groups of uneven size, found in what repeats: compared with all other slots, not groups,
    # and not judged in single iterations.
    weighted: bool = False
    covered: float = 0.6  # share of a group's copies that must show what is found of it
    alone: float = 1.0  # of the threshold, what a single iteration must show in one benchmark


@dataclass(frozen=True, slots=True, eq=False)
class GroupHit:
    """One group found slow or fast: in which cells, and how much in each benchmark."""

    level: str
    group: int
    slots: Bools
    cells: Bools  # (B, I)
    effect: Floats  # (B, I) ln slowdown there, 0 elsewhere
    rank_z: float  # the strongest Mann-Whitney z among its benchmarks
    z: float
    everywhere: bool = False

    @property
    def size(self) -> float:
        """Typical ln slowdown over its cells."""
        return middle(self.effect[self.cells])


@dataclass(frozen=True, slots=True, eq=False)
class _Effects:
    """What groups differ by: e (B, I, G), E (B, G), and what they naturally differ by."""

    once: Floats
    each: Floats
    tau: Floats  # (B,)
    natural: float  # what groups of this run differ by anyway, in any benchmark
    jitter: Floats  # (B,)
    sizes: Ints  # (G,)
    names: Ints


def measure(residuals: Floats, level: Level) -> _Effects | None:
    """Return how much each group differs from the others; None with fewer than two groups."""
    known = level.groups[level.groups != UNKNOWN]
    names, sizes = np.unique(known, return_counts=True)
    names, sizes = names[sizes >= level.least], sizes[sizes >= level.least]
    if not 2 <= len(names) <= _MOST_GROUPS:
        return None
    medians = np.stack([median(residuals[:, :, level.groups == g]) for g in names], axis=-1)
    if level.weighted:
        rests = [residuals[:, :, (level.groups != g) & (level.groups != UNKNOWN)] for g in names]
        once = medians - np.stack([median(rest) for rest in rests], axis=-1)
    else:
        once = medians - _median_of_others(medians)
    each = median(np.swapaxes(once, 1, 2))
    iterations = residuals.shape[1]
    if len(names) >= 5:
        tau = np.maximum(TAU, np.nan_to_num(mad(each)))
    else:
        tau = np.full(len(each), TAU_ALONE if iterations == 1 else TAU)
    natural = _natural(each)
    tau = np.maximum(tau, min(_VARIES * natural, _MOST_NATURAL))
    jitter = np.zeros(len(each))
    if iterations > 1:
        changes = (once - each[:, None, :]).reshape(len(each), -1)
        jitter = np.nan_to_num(mad(changes)) * math.sqrt(iterations / (iterations - 1))
        if iterations == 2 and len(names) <= _FEW_GROUPS:
            jitter = _borrowed(jitter, np.sum(~np.isnan(changes), axis=1))
    return _Effects(once, each, tau, natural, np.minimum(_MOST_JITTER, jitter), sizes, names)


def _natural(each: Floats) -> float:
    """Return what groups differ by in one benchmark and not in the next, from all (B, G)."""
    own = each - median(each.T)
    known = own[~np.isnan(own)]
    if len(known) < _LEAST_FOR_NATURAL or len(each) < _THREE:
        return _LEAST_NATURAL
    return max(_LEAST_NATURAL, MAD_TO_SD * float(np.median(np.abs(known))))


def _borrowed(own: Floats, count: Ints) -> Floats:
    """Return spreads (B,) from few values drawn to those of the other benchmarks.

    Where one of two lgroups is slow in one of two iterations, all that varies is that.
    """
    logs = np.log(np.maximum(own, _LEAST_JITTER))
    weight = count / (count + OWN_WEIGHT)
    return np.exp(weight * logs + (1 - weight) * float(np.median(logs)))


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """A group suspected of being slow; of a fast one all times are turned around."""

    residuals: Floats  # (B, I, S)
    once: Floats  # (B, I) by how much the group differs
    each: Floats  # (B,) the same, all iterations together
    tau: Floats  # (B,) what groups differ by anyway
    natural: float  # the same of the run
    own: Floats  # (B,) what noise makes of the group's median in one iteration
    slots: Bools
    rest: Bools  # other slots that are in a group
    sign: float
    covered: float  # share of its copies that must show it
    threshold: float
    alone: float
    by_repeats: bool
    pair: bool  # groups of two copies: both may be off by chance
    step: Floats  # (B,) of a coarse clock
    tests: int  # groups that could have been found, over all cells


@dataclass(slots=True, eq=False)
class _Verdict:
    """What was found of a case so far."""

    cells: Bools
    effect: Floats  # (B, I), the sign of the residuals
    z: float = 0.0
    rank_z: float = 0.0
    everywhere: bool = False


def find_groups(
    residuals: Floats, level: Level, scales: Scales, threshold: float, left_out: Bools
) -> list[GroupHit]:
    """Return the groups of one level that are slow or fast, the clearest first.

    `residuals` (B, I, S) are ln times over what is fair, `threshold` the smallest
    effect that counts, `left_out` (B, I) cells that are not looked at.
    """
    if left_out.any():
        residuals = np.where(left_out[:, :, None], np.nan, residuals)
    effects = measure(residuals, level)
    if effects is None:
        return []
    hits = []
    everywhere = _everywhere(residuals, effects, scales, threshold)
    known = level.groups != UNKNOWN
    # A run of CPUs may begin at any of them.
    tests = residuals.shape[0] * (int(known.sum()) if level.weighted else len(effects.names))
    for g, name in enumerate(effects.names):
        slots = level.groups == name
        error = MEDIAN_ERROR * scales.both / math.sqrt(int(effects.sizes[g]))
        for sign in (1.0, -1.0):
            case = _Case(
                residuals=sign * residuals,
                once=sign * effects.once[:, :, g],
                each=sign * effects.each[:, g],
                tau=effects.tau,
                natural=effects.natural,
                own=np.maximum(error, effects.jitter),
                slots=slots,
                rest=known & ~slots,
                sign=sign,
                covered=level.covered,
                threshold=threshold,
                alone=level.alone,
                by_repeats=level.weighted or level.least < LEAST,
                pair=level.least < LEAST,
                step=scales.step,
                tests=tests,
            )
            found = _judge(case, everywhere.get((g, sign)))
            if found.cells.any():
                hits.append(
                    GroupHit(
                        level.name,
                        int(name),
                        slots,
                        found.cells,
                        found.effect,
                        found.rank_z,
                        found.z,
                        found.everywhere,
                    )
                )
    return sorted(hits, key=lambda hit: -hit.z)


def _median_of_others(medians: Floats) -> Floats:
    """Return for each group the median of the other groups' medians (last axis).

    Of two others the nearer one: else the slow one of three makes the other two fast.
    """
    count = medians.shape[-1]
    others = np.empty_like(medians)
    for g in range(count):
        rest = np.delete(medians, g, axis=-1)
        others[..., g] = median(rest)
        if count == _THREE:
            far = np.abs(rest - medians[..., g : g + 1])
            both = ~np.isnan(far).any(axis=-1)
            nearer = np.where(far[..., 0] <= far[..., 1], rest[..., 0], rest[..., 1])
            others[..., g] = np.where(both, nearer, others[..., g])
    return others


def _judge(case: _Case, everywhere_z: float | None) -> _Verdict:
    """Judge a group benchmark by benchmark, iteration by iteration, and as a whole."""
    found = _Verdict(np.zeros(case.once.shape, dtype=bool), np.zeros(case.once.shape))
    largest = max(np.nanmax(case.each, initial=-1.0), np.nanmax(case.once, initial=-1.0))
    if largest < EVERYWHERE_SHARE * case.threshold:
        return found
    judged = _each_benchmark(case, found)
    if not case.by_repeats or (case.once.shape[1] == 1 and not case.pair):
        _each_iteration(case, found, judged)
    if everywhere_z is not None and _shared(case):
        # A benchmark that shows the opposite is not meant: the same group may be fast in it.
        found.cells = ~np.isnan(case.once) & (case.each > 0)[:, None]
        found.effect = np.where(found.cells, case.sign * case.once, 0.0)
        found.z, found.everywhere = max(found.z, everywhere_z), True
        typical = median(case.residuals.reshape(-1, case.residuals.shape[2]).T)
        known = ~np.isnan(typical)
        rank, _ = rank_sum_z(typical[case.slots & known], typical[case.rest & known])
        found.rank_z = max(found.rank_z, rank)
    return found


def _each_benchmark(case: _Case, found: _Verdict) -> Bools:
    """Add benchmarks that show it over the iterations; return (B,) which do."""
    b, i = case.once.shape
    own = case.own / math.sqrt(i)
    z = case.each / np.hypot(case.tau, own)
    least = case.threshold * (case.alone if i == 1 else 1.0) + case.step
    enough = np.full(b, Z)
    if i > 1 and case.sign > 0:
        # What every iteration shows may be smaller: repeating is evidence of its own.
        steady = np.nan_to_num(np.min(case.once, axis=1)) >= _STEADY * case.each
        steady &= case.each >= OWN_NOISE * own
        exceptional = steady & (case.each >= EXCEPTIONAL * case.natural)
        least = np.where(exceptional, STEADY_LEAST * case.threshold + case.step, least)
        enough = np.where(steady, Z_STEADY, Z)
    judged = np.zeros(b, dtype=bool)
    for bench in np.flatnonzero((case.each >= least) & (z >= enough)):
        rows = case.residuals[bench]
        ok, rank = _agrees(case, median(rows.T), rows, float(case.each[bench]))
        if ok:
            judged[bench] = True
            # Iterations that show nothing of it are not its: half of the effect is the line.
            shows = case.once[bench] >= 0.5 * case.each[bench]
            found.cells[bench] |= shows
            found.effect[bench, shows] = case.sign * case.once[bench, shows]
            found.z, found.rank_z = max(found.z, float(z[bench])), max(found.rank_z, rank)
    return judged


def _each_iteration(case: _Case, found: _Verdict, judged: Bools) -> None:
    """Add single iterations of benchmarks that do not show it as a whole."""
    z = case.once / np.hypot(case.tau, case.own)[:, None]
    large = case.once >= ONCE_SHARE * case.threshold + case.step[:, None]
    for bench, k in np.argwhere(large & (z >= _Z_ONCE) & ~judged[:, None]):
        row = case.residuals[bench, k]
        ok, rank = _agrees(case, row, row[None], float(case.once[bench, k]))
        if ok:
            found.cells[bench, k] = True
            found.effect[bench, k] = case.sign * case.once[bench, k]
            found.z, found.rank_z = max(found.z, float(z[bench, k])), max(found.rank_z, rank)


def _agrees(case: _Case, together: Floats, rows: Floats, size: float) -> tuple[bool, float]:
    """Return whether most of the group share the effect, and Mann-Whitney's z.

    Guards against two modes or a few outliers that fall on a group by chance: where
    many others are as slow, nearly all of the group must be.
    """
    inside, outside = together[case.slots], together[case.rest]
    inside, outside = inside[~np.isnan(inside)], outside[~np.isnan(outside)]
    if len(inside) < 2 or len(outside) < 2:
        return False, 0.0
    beyond = float(np.mean(inside - np.median(outside) > size / 2))
    others = float(np.mean(outside - np.median(outside) > size / 2))
    plain = size > _PLAIN * float(mad(outside))
    if beyond < case.covered or (plain and others >= _OTHERS and beyond < _FOLLOWS):
        return False, 0.0
    if plain and others >= _COMMON:
        chance = binomial_tail(round(beyond * len(inside)), len(inside), others)
        if chance * case.tests >= _COINCIDENCE:
            return False, 0.0
    rank, most = rank_sum_z(inside, outside)
    # Ranks say little of a group two of whose copies kept their speed: then chance is counted.
    often = max(others, 1 / len(outside))
    slow = round(beyond * len(inside))
    many = not others and slow >= _MANY * (len(inside) + len(outside))
    sure = plain and (many or binomial_tail(slow, len(inside), often) < _CHANCE)
    if rank < min(_RANK_Z, 0.7 * most) and not sure:
        return False, rank
    clipped = np.clip(rows, -2 * size, 2 * size)
    return _mean_t(clipped[:, case.slots], clipped[:, case.rest]) >= _MEAN_T, rank


def _mean_t(inside: Floats, outside: Floats) -> float:
    """Return t of the difference of means, within-group variances, over the rows together."""
    na, nc = np.sum(~np.isnan(inside), axis=1), np.sum(~np.isnan(outside), axis=1)
    usable = (na > 1) & (nc > 1)
    if not usable.any():
        return 0.0
    inside, outside, na, nc = inside[usable], outside[usable], na[usable], nc[usable]
    own, rest = np.nanvar(inside, axis=1, ddof=1), np.nanvar(outside, axis=1, ddof=1)
    # Two or three copies that happen to agree say little of what they vary by.
    own = np.where(na <= _VERY_FEW, np.maximum(own, rest), own)
    variance = own / na + rest / nc
    difference = float(np.mean(np.nanmean(inside, axis=1) - np.nanmean(outside, axis=1)))
    error = math.sqrt(float(np.mean(variance)) / len(na))
    return difference / error if error > 0 else math.inf


def _shared(case: _Case) -> bool:
    """Return whether enough of a group's copies are typically beyond half of its effect."""
    typical = median(case.residuals.reshape(-1, case.residuals.shape[2]).T)
    over = typical[case.slots] - middle(typical[case.rest])
    return bool(np.mean(over > middle(case.each) / 2) >= case.covered)


def _everywhere(
    residuals: Floats, effects: _Effects, scales: Scales, threshold: float
) -> dict[tuple[int, float], float]:
    """Return z of groups that are slow (1) or fast (-1) in nearly all benchmarks alike."""
    b, i = residuals.shape[:2]
    if b < 3:
        return {}
    whole = median(effects.each.T)
    tau = max(TAU, float(np.nan_to_num(mad(whole))) if len(whole) >= 5 else 0.0)
    found = {}
    for g in np.flatnonzero(~np.isnan(whole)):
        sign = 1.0 if whole[g] > 0 else -1.0
        size = abs(float(whole[g]))
        error = MEDIAN_ERROR * middle(scales.both) / math.sqrt(int(effects.sizes[g]) * b * i)
        z = size / math.hypot(tau, error)
        same = float(np.mean(sign * effects.each[:, g] > _SAME_SHARE * size))
        exceptional = sign > 0 and size >= EXCEPTIONAL * effects.natural
        least = threshold * (EVERYWHERE_SHARE if exceptional else 1.0)
        if size >= least and z >= Z and same >= _SAME:
            found[(int(g), sign)] = z
    return found
