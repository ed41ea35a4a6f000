"""Copies that part from the others, and benchmarks with a fast and a slow group; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rater.analysis.divots.model import limits
from rater.analysis.divots.model.finding import Kind
from rater.analysis.divots.model.fit import PartEffect
from rater.analysis.divots.model.noise import (
    Tail,
    TimeNoise,
    estimate_noise,
    fit_tail,
    shorth_spread,
    slot_medians,
)
from rater.analysis.divots.model.parts import Part, ln_choose, part_from_set, place_of
from rater.analysis.divots.model.table import UNKNOWN, Hit, Table
from rater.analysis.stats.robust import (
    Bools,
    Floats,
    Ints,
    median,
    overall_median,
    quantiles,
    untied,
)

# -- Benchmarks whose copies fall into two groups, fast and slow -----------------------------------
#
# The statistic is that of Hartigan's dip without the joining condition: sqrt(n) x min
# over the mode of the larger of two half distances, the points up to the mode from their greatest
# convex minorant, those from it on from their least concave majorant. Under a uniform
# distribution, the worst case of one mode, it exceeds .455 / .50 / .53 / .60 with at
# most 5 / 2 / 1 / .1 %, whatever n is (measured: 5 % .44 for 8 values to .445 for 1000).


@dataclass(frozen=True, slots=True, eq=False)
class TwoModes:
    """A benchmark in two modes; `slow` marks the copies of the slow one."""

    benchmark: int
    cells: Bools  # (I,)
    slow: Bools  # (I, S)
    size: float  # ln of the distance between the modes
    share: float  # of copies in the slow mode
    dip: float
    same: bool  # the same copies in every iteration


@dataclass(frozen=True, slots=True)
class _Cut:
    at: float
    gap: float
    sd: float
    slow: float
    few: bool  # slow ones apart from all others, fewer than a side: single copies


def find_modes(residuals: Floats, groups: Ints, steps: Floats, *, fixed: bool) -> list[TwoModes]:
    """Return the benchmarks in two modes that do not follow the groups of slots."""
    found = []
    for b in range(len(residuals)):
        one = _of_benchmark(residuals[b], groups, float(steps[b]), b, fixed=fixed)
        if one is not None:
            found.append(one)
        elif len(residuals[b]) > 1:
            found += _of_iterations(residuals[b], groups, float(steps[b]), b)
    return found


def _of_iterations(values: Floats, groups: Ints, step: float, b: int) -> list[TwoModes]:
    """Return single iterations in two modes that lie far apart, the other ones in one mode."""
    found = []
    for k, row in enumerate(values):
        known = row[~np.isnan(row)]
        if len(known) < limits.SEVERAL * limits.MANY:
            continue
        cut = _best_cut(known)
        apart = cut.gap >= max(limits.MODES_SD * cut.sd, limits.FAR + step)
        # A mode smaller than the least side is filled up from the other: those are single copies.
        if not apart or cut.few or cut.slow > limits.BIGGEST:
            continue
        found_dip = dip(untied(known, step))
        if found_dip < limits.DIP_ONCE:
            continue
        slow = np.zeros(values.shape, dtype=bool)
        slow[k] = row > cut.at
        bare = _bare(b, cut.gap, cut.slow, found_dip)
        one = _unless_groups(values, slow, groups, [k], found=bare)
        if one is not None:
            found.append(one)
    return found


def follows_groups(slow: Bools, known: Bools, groups: Ints) -> bool:
    """Tell whether nearly all copies are on the side that their group is on.

    `slow` and `known` are (I, S). With one group for all it is no.
    """
    names = [g for g in np.unique(groups) if g != UNKNOWN]
    if len(names) < 2:
        return False
    sided = whole = 0
    sides = set()
    for g in names:
        here = (groups == g)[None, :] & known
        for row, of in zip(slow, here, strict=True):
            n, k = int(of.sum()), int((row & of).sum())
            if n:
                sided += max(k, n - k)
                whole += n
                sides.add(2 * k > n)
    return whole > 0 and sided >= limits.SAME * whole and len(sides) == 2


def _of_benchmark(
    values: Floats, groups: Ints, step: float, b: int, *, fixed: bool
) -> TwoModes | None:
    rows = [k for k in range(len(values)) if np.sum(~np.isnan(values[k])) >= limits.MANY]
    if not rows:
        return None
    cuts = {k: _best_cut(values[k][~np.isnan(values[k])]) for k in rows}
    gap = float(np.median([c.gap for c in cuts.values()]))
    sd = float(np.median([c.sd for c in cuts.values()]))
    share = float(np.median([c.slow for c in cuts.values()]))
    if np.mean([c.few for c in cuts.values()]) > limits.HALF:
        return None
    if gap < limits.OF_ONE + step or gap < limits.MODES_SD * sd or share > 1 - limits.SIDE:
        return _of_means(values, groups, step, rows, b) if fixed and len(rows) > 1 else None
    dips = [dip(untied(values[k][~np.isnan(values[k])], step)) for k in rows]
    # One iteration in two modes is no benchmark in two modes: most show it.
    usual = sorted(dips)[(len(dips) - 1) // 2]
    if usual < limits.DIPS[min(len(rows), 3) - 1]:
        return _of_means(values, groups, step, rows, b) if fixed and len(rows) > 1 else None
    slow = np.zeros(values.shape, dtype=bool)
    for k in rows:
        slow[k] = values[k] > cuts[k].at
    return _unless_groups(values, slow, groups, rows, found=_bare(b, gap, share, usual))


def _of_means(
    values: Floats, groups: Ints, step: float, rows: list[int], b: int
) -> TwoModes | None:
    """Judge the copies' means over the iterations: a mode that each copy keeps."""
    means = np.mean(values[rows], axis=0)  # NaN where one is missing
    known = ~np.isnan(means)
    if known.sum() < limits.MANY:
        return None
    cut = _best_cut(means[known])
    apart = cut.gap >= max(limits.OF_ONE + step, limits.MODES_SD * cut.sd)
    if not apart or cut.few or cut.slow > 1 - limits.SIDE:
        return None
    found = dip(untied(means[known], step))
    if found < limits.DIPS[0] or _stays(values[rows], means, cut) < limits.SAME:
        return None
    slow = np.zeros(values.shape, dtype=bool)
    slow[rows] = (means > cut.at)[None, :]
    return _unless_groups(values, slow, groups, rows, found=_bare(b, cut.gap, cut.slow, found))


def _stays(values: Floats, means: Floats, cut: _Cut) -> float:
    """Return how often a copy is on the side of the cut in an iteration that its mean is on."""
    known = ~np.isnan(values) & ~np.isnan(means)
    side = (values > cut.at) == (means > cut.at)
    return float(np.mean(side[known])) if known.any() else 0.0


def _bare(b: int, gap: float, share: float, statistic: float) -> TwoModes:
    nothing = np.zeros(0, dtype=bool)
    return TwoModes(b, nothing, nothing[None], gap, share, statistic, same=False)


def _unless_groups(
    values: Floats, slow: Bools, groups: Ints, rows: list[int], *, found: TwoModes
) -> TwoModes | None:
    """Return what was found with its cells and copies; None where the modes are groups."""
    known = ~np.isnan(values[rows])
    if follows_groups(slow[rows], known, groups):
        return None
    cells = np.zeros(len(values), dtype=bool)
    cells[rows] = True
    often = np.sum(slow[rows] & known, axis=0) / np.maximum(1, np.sum(known, axis=0))
    same = len(rows) > 1 and float(np.mean((often < 0.01) | (often > 0.99))) >= 0.8
    return replace(found, cells=cells, slow=slow & ~np.isnan(values), same=same)


def _best_cut(values: Floats) -> _Cut:
    """Return the cut in two with the least spread inside, each side at least 18 %.

    `few` tells that fewer stand apart on the slow side: the cut has filled them up with
    others, which are not fast ones of a slow mode.
    """
    x = np.sort(values)
    n = len(x)
    low, high = max(1, math.ceil(limits.SIDE * n)), n - max(1, math.ceil(limits.SIDE * n))
    sums, squares = np.cumsum(x), np.cumsum(x * x)
    k = np.arange(low, high + 1)
    left = squares[k - 1] - sums[k - 1] ** 2 / k
    right = (squares[-1] - squares[k - 1]) - (sums[-1] - sums[k - 1]) ** 2 / (n - k)
    inside = np.maximum(left + right, 0.0)
    best = int(np.argmin(inside))
    cut = int(k[best])
    fast, slow = float(np.median(x[:cut])), float(np.median(x[cut:]))
    gap = slow - fast
    sd = math.sqrt(float(inside[best]) / max(1, n - 2))
    tail = x[n - low :]
    widest = int(np.argmax(np.diff(tail))) if low > 1 else 0
    beyond = float(tail[widest + 1] - tail[widest]) if low > 1 else 0.0
    few = (
        beyond >= limits.HALF * max(gap, float(np.median(tail[widest + 1 :])) - fast)
        if low > 1
        else False
    )
    return _Cut(
        at=float(x[cut - 1] + x[cut]) / 2,
        gap=gap,
        sd=sd,
        slow=1 - cut / n,
        few=few,
    )


def dip(values: Floats) -> float:
    """Return sqrt(n) x the statistic of the module's head."""
    x = np.sort(values)
    n = len(x)
    low, high, best = 0, n - 1, math.inf
    # The left distance grows with the mode, the right one falls: they meet where the larger is
    # least. Both hold the mode itself, else a gap between two groups would be in neither.
    while low <= high:
        mode = (low + high) // 2
        left, right = _from_minorant(x[: mode + 1], n), _from_minorant(-x[mode:][::-1], n)
        best = min(best, max(left, right))
        if left < right:
            low = mode + 1
        else:
            high = mode - 1
    return math.sqrt(n) * best


def _from_minorant(x: Floats, n: int) -> float:
    """Return half the largest distance of a distribution (steps of 1/n) from its minorant."""
    points, counts = np.unique(x, return_counts=True)
    above = np.cumsum(counts)
    xs: list[float] = points.tolist()
    ys: list[int] = (above - counts).tolist()
    hull: list[int] = []
    for j in range(len(xs)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (ys[b] - ys[a]) * (xs[j] - xs[a]) < (ys[j] - ys[a]) * (xs[b] - xs[a]):
                break
            hull.pop()
        hull.append(j)
    line = np.interp(points, points[hull], np.array(ys, dtype=np.float64)[hull])
    return float(np.max(above - line)) / n / 2


# -- Copies that part from the others: in two modes, in single cells, now and then, or always ------

_ALIKE = math.log(limits.ALIKE)


def two_modes(
    table: Table,
    machine: list[Part],
    rest: Floats,
    groups: Ints,
    steps: Floats,
    *,
    early: bool = False,
) -> tuple[list[Hit], Floats]:
    """Return benchmarks whose copies fall into two groups, and what is left without them.

    `early`, before parts enter the model: only what is plainly of no part, and of one
    benchmark alone; halves of the machine differ by chance where copies have two modes.
    """
    hits = []
    noise = estimate_noise(rest, groups, steps)
    z = rest / noise.between_copy_sd[:, None, None]
    for one in find_modes(rest, groups, steps, fixed=table.fixed):
        b = one.benchmark
        others = np.delete(z, b, axis=0)  # its own slow copies are no tail
        tail = fit_tail(others, noise.dof)
        clear = one.dip >= limits.DIPS[0] and one.share >= 1 - limits.MOST
        if early and not (clear and _of_no_part(table, machine, rest, one.slow[one.cells], b)):
            continue
        cells = one.cells
        if not early and not _beyond_tail(rest[b][cells], one.slow[cells], tail, len(rest)):
            continue
        covered = np.zeros(rest.shape, dtype=bool)
        covered[b] = one.slow & one.cells[:, None]
        effect = np.where(covered, one.size, 0.0)
        rest = rest.copy()
        rest[b, one.cells] = np.nan
        facts: dict[str, float | str] = {"share": one.share, "dip": one.dip}
        facts |= {"same": 1.0} if one.same else {}
        hits.append(Hit(Kind.BIMODAL, covered, effect, "modes", facts=facts))
    return hits, rest


def split_of_four(rest: Floats, steps: Floats, entries: list[PartEffect]) -> list[PartEffect]:
    """Return what parts four copies of one iteration two and two, by who the slow ones are.

    Not in benchmarks that the model has an entry of: what that leaves is two pairs about zero.

    The spread of four is that of three of them, which reaches over both levels. Of four values
    of one level the middle gap is k times the other two together in (1 + k)^-2 of cases at most
    (even density; a peak in the middle makes it rarer).
    """
    b, i, s = rest.shape
    if i != 1 or s != 4 or np.isnan(rest).any():
        return []
    low, middle_gap, high = np.diff(np.sort(rest[:, 0]), axis=1).T
    inside = np.maximum(low + high, np.maximum(2 * steps, limits.NOISE_FLOOR))
    won = 2 * np.log1p(middle_gap / inside) - math.log(b / limits.ALPHA)
    told = np.any([np.zeros(b, dtype=bool), *(it.benchmarks for it in entries)], axis=0)
    apart = (won > 0) & (middle_gap >= limits.OF_ONE + steps) & ~told
    slow = rest[:, 0] > median(rest[:, 0])[:, None]
    found = []
    for slots in np.unique(slow[apart], axis=0):
        here = apart & (slow == slots).all(axis=1)
        size = np.where(here, middle_gap + inside / 2, 0.0)[:, None]
        every = bool(here.mean() >= limits.MOST)
        part = part_from_set(slots)
        found.append(PartEffect(part, here, np.ones(1, dtype=bool), size, won.max(), every))
    return found


def _of_no_part(
    table: Table, machine: list[Part], rest: Floats, slow: Bools, benchmark: int
) -> bool:
    """Tell whether the slow copies (I, S) are no part of the machine, nor slow elsewhere."""
    often = slow.mean(axis=0) > 0.5
    if not often.any() or often.all():
        return True
    if place_of(table, machine, often)[1]:
        return False
    others = np.delete(slot_medians(rest), benchmark, axis=0)
    if not len(others):
        return True
    apart = median(others[:, often]) - median(others[:, ~often])
    return bool(np.max(np.nan_to_num(np.abs(apart))) < limits.EVERYWHERE)


def _beyond_tail(values: Floats, slow: Bools, tail: Tail, benchmarks: int) -> bool:
    """Tell whether slow copies (I, S) are more than a long tail of the others, in most cells."""
    # Of a coarse clock most are equal.
    scale = np.maximum(limits.NOISE_FLOOR, shorth_spread(values))
    won = []
    for row, mask, spread in zip(values, slow, scale, strict=True):
        n, m = int((~np.isnan(row)).sum()), int(mask.sum())
        if not 0 < m < n:
            continue
        far = quantiles((row[mask] - overall_median(row[~mask])) / spread, 0.25)[0]
        # Of many a tail that is known too light adds up: four times as many may be there.
        won.append(m * (float(tail.log_evidence(far, n)) - math.log(4)) - ln_choose(n, m))
    return bool(won) and bool(np.median(won) > math.log(benchmarks / limits.ALPHA_SINGLE))


def single_hits(table: Table, machine: list[Part], hits: list[Hit], effects: Floats) -> list[Hit]:
    """Return copies that stand out in single cells, those of a cell as one.

    A copy of a part that is slow there already, by less than that, is no finding of its own, and
    one that kept its speed there is none of the part's.
    """
    effects = effects.copy()
    for hit in hits:
        back = hit.covered & (effects * hit.effect < 0)
        kept = back & (np.abs(effects + hit.effect) <= limits.SHOWS * np.abs(hit.effect))
        effects[kept | (hit.covered & (np.abs(effects) <= np.abs(hit.effect)))] = 0.0
        if hit.level and not (hit.covered & ~kept).any(axis=2)[hit.covered.any(axis=2)].all():
            continue  # all of a cell
        if hit.level:
            hit.covered = hit.covered & ~kept
            hit.effect = np.where(kept, 0.0, hit.effect)
    found = []
    for b, i in np.argwhere((effects != 0).any(axis=2)):
        for sign in (1, -1):
            here = sign * effects[b, i] > 0
            if not here.any():
                continue
            for hit in _of_cell(hits, (int(b), int(i)), sign):
                hits.remove(hit)  # fragments of one cause are one finding
                effects[b, i][hit.slots] = hit.effect[b, i][hit.slots]
                here |= hit.slots
            covered = np.zeros(effects.shape, dtype=bool)
            covered[b, i] = here
            level, groups = place_of(table, machine, here)
            hit = Hit(Kind.OUTLIER_COPY, covered, np.where(covered, effects, 0.0), level, groups)
            if level in ("node", "package") and here.sum() > 2:
                hit.kind = Kind.SLOW_LGROUP if sign > 0 else Kind.SLOW_GROUP
            found.append(hit)
    return found


def merge_by_part(machine: list[Part], hits: list[Hit]) -> list[Hit]:
    """Return the hits, those of now these and now other copies of one part as one finding.

    Where they are slow, or fast, by as much, what they share is the cause. That so many of all
    are of one of n parts by chance is as likely as Chernoff's bound of a binomial tail, n times.
    """
    kinds = (Kind.OUTLIER_COPY, Kind.SLOW_GROUP, Kind.WANDERING)
    for sign in (1, -1):
        few = [it for it in hits if it.kind in kinds and sign * it.size > 0]
        most = -math.log(limits.ALPHA)
        best: tuple[Part, list[Hit]] | None = None
        for part in machine:
            inside = [it for it in few if _few_of(it, part.slots)]
            if len(inside) < limits.SEVERAL:
                continue
            usual = float(np.median([it.size for it in inside]))
            inside = [it for it in inside if abs(math.log(it.size / usual)) <= _ALIKE]
            nats = _in_one(len(inside), len(few), part.size / len(part.slots))
            nats -= math.log(len(machine))
            cells = np.any([it.covered for it in inside], axis=0)
            changing = 2 * cells.sum(axis=(0, 1)).max() <= cells.any(axis=2).sum()
            if len(inside) >= limits.SEVERAL and nats > most and changing:
                most, best = nats, (part, inside)
        if best is not None:
            part, inside = best
            covered = np.any([it.covered for it in inside], axis=0)
            effect = np.sum([it.effect for it in inside], axis=0)
            one = Hit(Kind.OUTLIER_COPY, covered, effect, part.kind, (part.name,))
            one.facts = {"changing": float(len(inside))}
            hits = [it for it in hits if it not in inside] + [one]
    return hits


def _in_one(inside: int, of: int, share: float) -> float:
    """Return the nats against so many of all being where only a share of them would be."""
    own = inside / of
    if own <= share:
        return 0.0
    rest = (1 - own) * math.log((1 - own) / (1 - share)) if own < 1 else 0.0
    return of * (own * math.log(own / share) + rest)


def _few_of(hit: Hit, slots: Bools) -> bool:
    """Tell whether a hit is of some copies of these slots, not of all in any of its cells."""
    within = not (hit.slots & ~slots).any() and not hit.everywhere
    return within and bool(hit.covered.sum(axis=2).max() < slots.sum())


def _of_cell(hits: list[Hit], cell: tuple[int, int], sign: int) -> list[Hit]:
    """Return hits of a few copies that are of that cell alone, slow or fast as `sign` says."""
    few = (Kind.SLOW_CPU, Kind.OUTLIER_COPY)
    return [it for it in hits if it.kind in few and it.cells == [cell] and sign * it.size > 0]


def unstable_fast_copies(table: Table, rest: Floats, steps: Floats) -> tuple[list[Hit], Floats]:
    """Return benchmarks of which some copies are fast, others each time: they do not repeat.

    And what is left of (B, I, S) without those. An empty gap lies behind the fast copies, wider
    than the heaviest tail has one, Student's t of three degrees: of values beyond which a share u
    of it lies, the m-th is q times the next with probability q^m (Renyi's representation). The
    nats of that are exponentially distributed, and over the iterations they are a sum of such.
    """
    b, i, s = table.shape
    if i < 2 or s < limits.MANY:
        return [], rest
    ordered = np.sort(rest, axis=2)
    most = int((1 - limits.MOST) * s)
    gaps = np.diff(ordered, axis=2)[:, :, :most]
    at = np.argmax(np.nan_to_num(gaps), axis=2)
    gap = np.take_along_axis(gaps, at[..., None], axis=2)[..., 0]
    edge = np.take_along_axis(ordered, at[..., None], axis=2)[..., 0]
    apart = (gap >= -limits.HALF * edge) & (edge < -limits.EVERYWHERE - steps[:, None])
    scale = np.nan_to_num(shorth_spread(rest.reshape(b * i, s))).reshape(b, i)
    scale = np.maximum(scale, np.maximum(steps[:, None], limits.NOISE_FLOOR))
    nearer, farther = _beyond_of_three((edge + gap) / -scale), _beyond_of_three(edge / -scale)
    nats = (at + 1.0) * np.log(nearer / farther) - math.log(most)
    total = np.maximum(nats, 0.0).sum(axis=1)
    # How seldom i exponential values have such a sum (Erlang's distribution).
    ways = sum(total**k / math.factorial(k) for k in range(i))
    sure = total - np.log(ways) >= math.log(b / limits.ALPHA_SINGLE)
    hits, rest = [], rest.copy()
    for k in np.flatnonzero(apart.all(axis=1) & sure):
        fast = rest[k] <= edge[k][:, None]
        always = fast.all(axis=0).sum() / max(1, fast.any(axis=0).sum())
        if always > 0.5 or fast.sum() < 2 * i:
            continue
        covered = np.zeros(table.shape, dtype=bool)
        covered[k] = fast
        hits.append(Hit(Kind.WANDERING, covered, np.where(covered, rest, 0.0), "lucky"))
    if len(hits) > 1:
        covered = np.any([hit.covered for hit in hits], axis=0)
        effect = np.sum([hit.effect for hit in hits], axis=0)
        hits = [Hit(Kind.WANDERING, covered, effect, "lucky")]
    for hit in hits:
        cells = hit.covered.any(axis=2)[:, :, None] & ~np.isnan(rest)
        hit.facts["share"] = float(hit.covered.sum() / cells.sum())
        rest[hit.covered] = np.nan
    return hits, rest


def _beyond_of_three(z: Floats) -> Floats:
    """Return the share of Student's t of three degrees beyond z times its middle half as a sd."""
    x = z * (0.7649 / 0.6745) / math.sqrt(3)  # quartiles of it, and of a normal distribution
    share: Floats = 0.5 - (x / (1 + x * x) + np.arctan(x)) / math.pi
    return share


def always_different(table: Table, rest: Floats, noise: TimeNoise) -> list[Hit]:
    """Return benchmarks whose copies always differ, the same ones each time, as one hit."""
    _, i, s = table.shape
    if i < 2 or s < 8 or not table.fixed:
        return []
    wide = noise.between_copy_sd >= np.maximum(
        limits.OF_MANY, 4 * noise.within_copy_sd / math.sqrt(i)
    )
    if not wide.any():
        return []
    levels = slot_medians(rest)
    covered = ~np.isnan(table.log_s) & wide[:, None, None]
    effect = np.where(covered, np.nan_to_num(levels)[:, None], 0.0)
    facts: dict[str, float | str] = {
        "spread": float(np.median(noise.between_copy_sd[wide])),
        "repeat": float(np.median(noise.within_copy_sd[wide])),
    }
    return [Hit(Kind.OUTLIER_COPY, covered, effect, "spread", facts=facts)]
