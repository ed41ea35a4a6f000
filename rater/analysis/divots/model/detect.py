"""The search: layout and start-up, then the model of parts, then what moves over time; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rater.analysis.divots.data.finding import Kind, Thresholds
from rater.analysis.divots.data.hit import Hit, total_effect
from rater.analysis.divots.data.table import UNKNOWN, Table
from rater.analysis.divots.model import limits
from rater.analysis.divots.model.fit import Entry, fit_parts, single_copies
from rater.analysis.divots.model.layout import Predicted, explain, sharing_classes
from rater.analysis.divots.model.modes import find_modes
from rater.analysis.divots.model.noise import (
    Noise,
    Tail,
    clock_steps,
    levels_of,
    noise_of,
    shortest_half,
    tail_of,
)
from rater.analysis.divots.model.over_time import iteration_hits, startup_hits
from rater.analysis.divots.model.parts import Part, like_groups, machine_parts
from rater.analysis.divots.model.place import place_of
from rater.analysis.stats.robust import Bools, Floats, Ints, median


@dataclass(frozen=True, slots=True, eq=False)
class Detected:
    """All that was found in a run, with what the words are made from."""

    table: Table
    hits: list[Hit]
    predicted: list[Predicted]
    rest: Floats  # (B, I, S) what nothing explains
    noise: Noise
    machine: list[Part]


def detect(table: Table, thresholds: Thresholds) -> Detected:
    """Find what is slow, or fast, in a run."""
    explained = explain(table)
    classes = sharing_classes(table)[1]
    groups, steps = like_groups(table, classes), clock_steps(table)
    machine = machine_parts(table, classes)
    values = explained.residuals.copy()
    hits, judged = startup_hits(table, values, groups, steps)
    values[~judged] = np.nan
    values = _beyond_layout(values, explained.allowed)
    early, values = _modes(table, machine, values, groups, steps, early=True)
    moving: list[Hit] = []
    if not table.fixed and table.shape[1] > 1:
        moving = _moving(table, values, steps, thresholds)
        values = values - total_effect(table.shape, moving)
    entries, rest, noise = fit_parts(values, machine, groups, steps, thresholds)
    found = [_hit_of(table, machine, it) for it in _joined(entries, table)]
    found += moving
    found = _one_a_benchmark(_turns(table, found, rest, noise))
    modes, rest = _modes(table, machine, rest, groups, steps)
    hits += found + early + modes
    over_time, rest = iteration_hits(table, hits, rest, noise, judged)
    hits = over_time
    noise = noise_of(rest, groups, steps)
    effects, _ = single_copies(rest, noise, thresholds)
    lucky, effects = _lucky(table, rest, effects, noise)
    hits += lucky
    hits += _singles(table, machine, hits, effects)
    rest = np.where(effects != 0, np.nan, rest)
    hits += _spread(table, rest, noise)
    return Detected(table, hits, explained.predicted, rest, noise, machine)


def _beyond_layout(values: Floats, allowed: Floats) -> Floats:
    """Return residuals (B, I, S) with what the layout allows taken out of fast ones."""
    if not allowed.any():
        return values
    return np.where(values < 0, np.minimum(0.0, values - allowed[:, None, :]), values)


# -- parts ----------------------------------------------------------------------------------------


def _joined(entries: list[Entry], table: Table) -> list[Entry]:
    """Return entries with fragments of one cause as one.

    The same benchmarks, iterations and direction, and sizes alike: other copies of the same
    fault. What takes the effect back for a part of the copies is an exception to it.
    """
    kept: list[Entry] = []
    for it in sorted(entries, key=lambda one: -one.part.size):
        back = next((at for at, other in enumerate(kept) if _takes_back(it, other)), None)
        if back is not None:
            other = kept[back]
            if (it.benchmarks == other.benchmarks).all() and (
                it.iterations == other.iterations
            ).all():
                slots = other.part.slots & ~it.part.slots
                kept[back] = replace(other, part=Part("set", UNKNOWN, slots, 0.0))
            continue
        for place, other in enumerate(kept):
            if _same_cause(it, other):
                both = other.benchmarks | it.benchmarks
                slots = other.part.slots | it.part.slots
                weight = np.array([other.part.size, it.part.size], dtype=float)
                size = (other.size * weight[0] + it.size * weight[1]) / weight.sum()
                only = (other.size == 0) | (it.size == 0)
                size = np.where(only, other.size + it.size, size)
                kept[place] = replace(
                    other,
                    part=Part("set", UNKNOWN, slots, 0.0),
                    benchmarks=both,
                    size=size,
                    everywhere=other.everywhere or it.everywhere,
                )
                break
        else:
            kept.append(it)
    return [_of_fewer(it) for it in kept]


def _of_fewer(it: Entry) -> Entry:
    """Return an entry of more than half of the copies as the opposite of the others."""
    slots = it.part.slots
    if slots.mean() <= (limits.BIGGEST if _typical(it) > 0 else limits.HALF):
        return it
    return replace(it, part=Part("set", UNKNOWN, ~slots, 0.0), size=-it.size)


def _typical(it: Entry) -> float:
    return float(np.median(it.size[np.ix_(it.benchmarks, it.iterations)]))


def _takes_back(it: Entry, other: Entry) -> bool:
    inside = not (it.part.slots & ~other.part.slots).any()
    within = not (it.benchmarks & ~other.benchmarks).any()
    within = within and not (it.iterations & ~other.iterations).any()
    one, two = _typical(it), _typical(other)
    return inside and within and one * two < 0 and abs(one) <= 1.3 * abs(two)


def _same_cause(it: Entry, other: Entry) -> bool:
    if (it.iterations != other.iterations).any() or (it.part.slots & other.part.slots).any():
        return False
    shared = (it.benchmarks & other.benchmarks).sum() / (it.benchmarks | other.benchmarks).sum()
    one, two = _typical(it), _typical(other)
    if shared < limits.JOINED or one * two <= 0 or _sort(it) != _sort(other):
        return False
    return max(abs(one), abs(two)) <= limits.ALIKE * min(abs(one), abs(two))


def _sort(it: Entry) -> str:
    """Return what may be one cause together: parts of one kind, or copies here and there."""
    single = it.part.kind in ("copy", "cpu", "core", "set")
    return "copies" if single else it.part.kind


def _hit_of(table: Table, machine: list[Part], it: Entry) -> Hit:
    """Return a part of the model by its name and kind."""
    b, i, s = table.shape
    there = ~np.isnan(table.log_s)
    covered = (
        it.benchmarks[:, None, None] & it.iterations[None, :, None] & it.part.slots[None, None]
    ) & there
    effect = np.where(covered, it.size[:, :, None], 0.0)
    level, groups = it.part.kind, (it.part.name,)
    if level in ("set", "run", "copy"):
        level, groups = place_of(table, machine, it.part.slots)
        at = np.flatnonzero(it.part.slots)
        if level == "set" and len(at) >= limits.LEAST_RUN and np.ptp(at) == len(at) - 1:
            level = "run"
    hit = Hit(Kind.SLOW_GROUP, covered, effect, level, groups, everywhere=it.everywhere)
    return _kind(table, hit)


def _kind(table: Table, hit: Hit) -> Hit:
    """Give a hit its kind: by what its copies share, how many there are, and where they show."""
    slots, slow = hit.slots, hit.size > 0
    cells, many = len(hit.cells), int(slots.sum())
    few = many <= max(1, limits.FEW_COPIES * table.shape[2])
    known = bool((table.cpu[slots] != UNKNOWN).all())
    if hit.level in ("node", "package") and many > 1:
        hit.kind = Kind.SLOW_LGROUP if slow else Kind.SLOW_GROUP
    elif hit.level in ("cpu", "core") or (hit.level == "set" and few):
        often = cells >= 3 and len(hit.benchmarks) >= min(2, table.shape[0])
        if slow and known and often:
            hit.kind = Kind.SLOW_CPU
        elif hit.level == "set" or many == 1 or not known:
            hit.kind = Kind.OUTLIER_COPY
        else:
            hit.kind = Kind.SLOW_CPU if slow else Kind.OUTLIER_COPY
    elif hit.level == "set" and len(hit.benchmarks) == 1 and table.shape[0] > 1:
        hit.kind = Kind.BIMODAL if many >= limits.SIDE * table.shape[2] else Kind.OUTLIER_COPY
        hit.facts = {"share": many / table.shape[2], "same": 1.0}
    return hit


def _moving(table: Table, rest: Floats, steps: Floats, thresholds: Thresholds) -> list[Hit]:
    """Return copies that are slow, or fast, wherever they run."""
    b, i, _ = table.shape
    names = np.unique(table.copy[table.copy >= 0])
    by_copy = np.full((b, i, len(names)), np.nan)
    where = np.argwhere((table.copy >= 0) & ~np.isnan(rest))
    column = np.searchsorted(names, table.copy[tuple(where.T)])
    by_copy[where[:, 0], where[:, 1], column] = rest[tuple(where.T)]
    own = [
        Part("copy", int(c), np.arange(len(names)) == k, math.log(len(names)))
        for k, c in enumerate(names)
    ]
    groups = np.full(len(names), UNKNOWN)
    entries, _, _ = fit_parts(by_copy, own, groups, steps, thresholds, sets=False)
    found = []
    for it in entries:
        if it.iterations.sum() < 2:
            continue
        covered = (table.copy == it.part.name) & it.benchmarks[:, None, None]
        covered &= it.iterations[None, :, None] & ~np.isnan(rest)
        effect = np.where(covered, it.size[:, :, None], 0.0)
        hit = Hit(Kind.OUTLIER_COPY, covered, effect, "copy", everywhere=it.everywhere)
        hit.facts["moves"] = 1.0
        found.append(hit)
    return found


def _turns(table: Table, hits: list[Hit], rest: Floats, noise: Noise) -> list[Hit]:
    """Return hits with what does not repeat on lgroups as one hit for each benchmark.

    A benchmark whose lgroups change from iteration to iteration by more than chance, not in
    one cell only: no lgroup is slow there, the benchmark does not repeat.
    """
    i = table.shape[1]
    names = np.unique(table.node[table.node != UNKNOWN])
    if i < 2 or len(names) < 2 or np.median([np.sum(table.node == it) for it in names]) < 3:
        return hits
    members = [table.node == name for name in names]
    once = [hit for hit in hits if len(hit.iterations) == 1 and hit.level in _OF_LGROUPS]
    made: list[Hit] = []
    gone: set[int] = set()
    for b in range(table.shape[0]):
        own = [hit for hit in once if b in hit.benchmarks]
        back = rest[b] + sum((hit.effect[b] for hit in own), np.zeros(rest.shape[1:]))
        each = np.stack([median(back[:, here]) for here in members], axis=1)  # (I, N)
        error = noise.repeat[b] ** 2 * np.mean([1.57 / here.sum() for here in members])
        single = len(own) == 1
        if single:
            each = np.stack([median(rest[b][:, here]) for here in members], axis=1)
        moves = (
            each - np.nanmean(each, axis=0) - np.nanmean(each, axis=1)[:, None] + np.nanmean(each)
        )
        free = (i - 1) * (len(names) - 1)
        size = math.sqrt(float(np.nansum(moves**2)) / free)
        # Wilson and Hilferty's cube root of chi squared.
        ratio = size**2 / (error + limits.TAU**2)
        sure = (ratio ** (1 / 3) - 1 + 2 / (9 * free)) / math.sqrt(2 / (9 * free))
        several = len({(hit.iterations[0]) for hit in own}) > 1
        if not several and (single or size < limits.TURNS or sure < limits.TURNS_SURE):
            continue
        far = np.argwhere(np.abs(moves) >= max(0.5 * np.nanmax(np.abs(moves)), limits.TAU))
        told = " ".join(f"{k}:{names[n]}:{each[k, n]:.5f}" for k, n in far)
        covered = np.zeros(table.shape, dtype=bool)
        covered[b] = ~np.isnan(table.log_s[b])
        effect = np.zeros(table.shape)
        for n, here in enumerate(members):
            effect[b][:, here] = (each[:, n] - np.nanmin(each, axis=1))[:, None]
        effect = np.where(covered, np.nan_to_num(effect), 0.0)
        gone |= {id(hit) for hit in own if len(hit.benchmarks) == 1}
        facts: dict[str, float | str] = {"turns": told, "swing": size}
        made.append(Hit(Kind.WANDERING, covered, effect, "turns", facts=facts))
    return [hit for hit in hits if id(hit) not in gone] + made


_OF_LGROUPS = ("node", "package", "llc", "half of lgroup")


def _one_a_benchmark(hits: list[Hit]) -> list[Hit]:
    """Return hits with the two sorts of copies of a benchmark in several iterations as one."""
    kept: list[Hit] = []
    for hit in hits:
        same = [it for it in kept if it.kind is hit.kind and it.benchmarks == hit.benchmarks]
        if hit.kind is not Kind.BIMODAL or not same:
            kept.append(hit)
            continue
        first = same[0]
        first.covered = first.covered | hit.covered
        first.effect = np.where(hit.covered, hit.effect, first.effect)
        first.facts = {"share": float(first.facts["share"])}
    return kept


# -- copies ---------------------------------------------------------------------------------------


def _modes(
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
    z = rest / noise_of(rest, groups, steps).between[:, None, None]
    for one in find_modes(rest, groups, steps, fixed=table.fixed):
        b = one.benchmark
        others = np.delete(z, b, axis=0)  # its own slow copies are no tail
        tail = tail_of(others)
        clear = one.dip >= limits.DIP
        if early and not (clear and _of_no_part(table, machine, rest, one.slow, b)):
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


def _of_no_part(
    table: Table, machine: list[Part], rest: Floats, slow: Bools, benchmark: int
) -> bool:
    """Tell whether the slow copies (I, S) are no part of the machine, nor slow elsewhere."""
    often = slow.mean(axis=0) > 0.5
    if not often.any() or often.all():
        return True
    if place_of(table, machine, often)[1]:
        return False
    others = np.delete(levels_of(rest), benchmark, axis=0)
    if not len(others):
        return True
    apart = median(others[:, often]) - median(others[:, ~often])
    return bool(np.nanmax(np.abs(apart)) < limits.EVERYWHERE)


def _beyond_tail(values: Floats, slow: Bools, tail: Tail, benchmarks: int) -> bool:
    """Tell whether slow copies (I, S) are more than a long tail of the others, in most cells."""
    scale = shortest_half(values)
    won = []
    for row, mask, spread in zip(values, slow, scale, strict=True):
        n, m = int((~np.isnan(row)).sum()), int(mask.sum())
        if not 0 < m < n:
            continue
        far = np.nanquantile((row[mask] - np.nanmedian(row[~mask])) / spread, 0.25)
        ways = math.lgamma(n + 1) - math.lgamma(m + 1) - math.lgamma(n - m + 1)
        won.append(m * float(tail.gain(np.array(far), n)) - ways)
    return bool(won) and bool(np.median(won) > math.log(benchmarks / limits.ALPHA_SINGLE))


def _singles(table: Table, machine: list[Part], hits: list[Hit], effects: Floats) -> list[Hit]:
    """Return copies that stand out in single cells, those of a cell as one.

    A copy of a part that is slow there already, by less than that, is no finding of its own.
    """
    effects = effects.copy()
    for hit in hits:
        own = hit.covered & (np.abs(effects) <= np.abs(hit.effect))
        effects[own] = 0.0
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


def _of_cell(hits: list[Hit], cell: tuple[int, int], sign: int) -> list[Hit]:
    """Return hits of a few copies that are of that cell alone, slow or fast as `sign` says."""
    few = (Kind.SLOW_CPU, Kind.OUTLIER_COPY)
    return [it for it in hits if it.kind in few and it.cells == [cell] and sign * it.size > 0]


def _lucky(table: Table, rest: Floats, effects: Floats, noise: Noise) -> tuple[list[Hit], Floats]:
    """Return benchmarks of which some copies are fast, others each time: they do not repeat."""
    b, i, s = table.shape
    if i < 2 or s < limits.LEAST_MODES:
        return [], effects
    ordered = np.sort(rest, axis=2)
    most = int(limits.MOST_LUCKY * s)
    gaps = np.diff(ordered, axis=2)[:, :, :most]
    at = np.argmax(np.nan_to_num(gaps), axis=2)
    gap = np.take_along_axis(gaps, at[..., None], axis=2)[..., 0]
    edge = np.take_along_axis(ordered, at[..., None], axis=2)[..., 0]
    apart = (gap >= -limits.GAP * edge) & (gap >= limits.LUCKY_SURE * noise.repeat[:, None])
    hits, effects = [], effects.copy()
    for k in np.flatnonzero(apart.all(axis=1)):
        fast = rest[k] <= edge[k][:, None]
        always = fast.all(axis=0).sum() / max(1, fast.any(axis=0).sum())
        if always > 0.5 or fast.sum() < 2 * i:
            continue
        covered = np.zeros(table.shape, dtype=bool)
        covered[k] = fast
        effects[k][fast] = 0.0
        hits.append(Hit(Kind.WANDERING, covered, np.where(covered, rest, 0.0), "lucky"))
    if len(hits) > 1:
        covered = np.any([hit.covered for hit in hits], axis=0)
        effect = np.sum([hit.effect for hit in hits], axis=0)
        hits = [Hit(Kind.WANDERING, covered, effect, "lucky")]
    for hit in hits:
        cells = hit.covered.any(axis=2)[:, :, None] & ~np.isnan(rest)
        hit.facts["share"] = float(hit.covered.sum() / cells.sum())
    return hits, effects


def _spread(table: Table, rest: Floats, noise: Noise) -> list[Hit]:
    """Return benchmarks whose copies always differ, the same ones each time, as one hit."""
    b, i, s = table.shape
    if i < 2 or s < 8 or not table.fixed:
        return []
    wide = noise.between >= np.maximum(limits.SPREAD, 4 * noise.repeat / math.sqrt(i))
    if not wide.any():
        return []
    levels = levels_of(rest)
    covered = ~np.isnan(table.log_s) & wide[:, None, None]
    effect = np.where(covered, np.nan_to_num(levels)[:, None], 0.0)
    facts: dict[str, float | str] = {
        "spread": float(np.median(noise.between[wide])),
        "repeat": float(np.median(noise.repeat[wide])),
    }
    return [Hit(Kind.OUTLIER_COPY, covered, effect, "spread", facts=facts)]
