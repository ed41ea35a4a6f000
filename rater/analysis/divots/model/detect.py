"""The search: layout and start-up, then the model of parts, then what moves over time; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rater.analysis.divots.model import limits
from rater.analysis.divots.model.copies import (
    always_different,
    merge_by_part,
    single_hits,
    split_of_four,
    two_modes,
    unstable_fast_copies,
)
from rater.analysis.divots.model.finding import PLACED, Kind, Thresholds
from rater.analysis.divots.model.fit import PartEffect, fit_parts, single_copies, told_alone
from rater.analysis.divots.model.layout import LayoutEffect, remove_layout_effects, sharing_classes
from rater.analysis.divots.model.noise import (
    TimeNoise,
    clock_steps,
    estimate_noise,
)
from rater.analysis.divots.model.over_time import iteration_hits, startup_hits
from rater.analysis.divots.model.parts import (
    SETS,
    Part,
    like_groups,
    machine_parts,
    part_from_set,
    place_of,
)
from rater.analysis.divots.model.table import UNKNOWN, Hit, Table, total_effect
from rater.analysis.stats.robust import Floats, Ints, mean, median

_OF_COPIES = (*PLACED, Kind.BIMODAL)


@dataclass(frozen=True, slots=True, eq=False)
class DetectionResult:
    """All that was found in a run, with what the words are made from."""

    table: Table
    hits: list[Hit]
    predicted: list[LayoutEffect]
    residuals: Floats  # (B, I, S) what nothing explains, NaN where a copy stands out singly
    left: Floats  # (B, I, S) times without what is told, and no more than that
    noise: TimeNoise
    machine: list[Part]
    groups: Ints  # (S,) inside of which copies are alike


def detect(table: Table, thresholds: Thresholds) -> DetectionResult:
    """Find what is slow, or fast, in a run."""
    explained = remove_layout_effects(table)
    classes = sharing_classes(table)[1]
    groups, steps = like_groups(table, classes), clock_steps(table)
    machine = machine_parts(table, classes)
    values = explained.residuals.copy()
    hits, judged = startup_hits(table, machine, values, groups, steps)
    values[~judged] = np.nan
    early, values = unstable_fast_copies(table, values, steps)
    modes, values = two_modes(table, machine, values, groups, steps, early=True)
    early += modes
    fitted = fit_parts(values, machine, groups, steps, thresholds)
    moving: list[Hit] = []
    if not table.fixed and table.shape[1] > 1:
        moving = _moving(table, values, steps, thresholds)
    if moving and len(fitted[0]) < len(moving) and not _left_by_places(moving, fitted[1]):
        moving = []  # fewer places, which those copies were on, have the same effect
    if moving:
        values = values - total_effect(table.shape, moving)
        fitted = fit_parts(values, machine, groups, steps, thresholds)
    entries, rest, noise = fitted
    halves = split_of_four(rest, steps, entries)
    rest = rest - sum((it.effect() for it in halves), np.zeros(rest.shape))
    found = [_hit_of(table, machine, it) for it in _joined(entries + halves, machine)]
    found += moving
    found = _turns(table, found, rest, noise)
    modes, rest = two_modes(table, machine, rest, groups, steps)
    hits += found + early + modes
    over_time, rest = iteration_hits(table, hits, rest, noise)
    hits = over_time
    noise = estimate_noise(rest, groups, steps, told_alone(entries, rest.shape))
    effects = single_copies(rest, groups, noise, thresholds)
    hits += single_hits(table, machine, hits, effects)
    hits = merge_by_part(machine, hits)
    rest = np.where(effects != 0, np.nan, rest)
    hits += always_different(table, rest, noise)
    hits = [hit for hit in hits if _counts(hit, thresholds)]
    # Those are out of `values` already, or are no effect of copies beside others.
    out = {id(hit) for hit in (*early, *moving)}
    told = [hit for hit in hits if hit.kind in _OF_COPIES and id(hit) not in out]
    left = values - total_effect(table.shape, told)
    return DetectionResult(table, hits, explained.predicted, rest, left, noise, machine, groups)


def _counts(hit: Hit, thresholds: Thresholds) -> bool:
    """Tell whether a hit shows somewhere as much as the user asked for.

    By default what is slow in nearly all benchmarks counts from less; a larger threshold is
    meant as it is said.
    """
    usual = Thresholds()
    if hit.kind in (Kind.OUTLIER_COPY, Kind.BIMODAL):
        least, by_default = thresholds.copy, usual.copy
    elif hit.level and hit.kind is not Kind.SLOW_ITERATION:
        least, by_default = thresholds.group, usual.group
    else:
        return True
    return least <= by_default or float(np.max(np.abs(np.expm1(hit.sizes())))) >= least


# -- parts ----------------------------------------------------------------------------------------


def _joined(entries: list[PartEffect], machine: list[Part]) -> list[PartEffect]:
    """Return entries with fragments of one cause as one.

    The same benchmarks, iterations and direction, and sizes alike: other copies of the same
    fault, if they are parts of one sort or together one part. What takes the effect back for a
    part of the copies is an exception to it.
    """
    kept: list[PartEffect] = []
    whole = {part.slots.tobytes() for part in machine}
    for it in sorted(entries, key=lambda one: -one.part.size):
        varying = next(
            ((at, one) for at, other in enumerate(kept) if (one := _of_same_part(it, other))), None
        )
        if varying is not None:
            kept[varying[0]] = varying[1]
            continue
        back = next((at for at, other in enumerate(kept) if _takes_back(it, other)), None)
        if back is not None:
            other = kept[back]
            if (it.benchmarks == other.benchmarks).all() and (
                it.iterations == other.iterations
            ).all():
                slots = other.part.slots & ~it.part.slots
                kept[back] = replace(other, part=part_from_set(slots))
            continue
        for place, other in enumerate(kept):
            if _same_cause(it, other, whole):
                both = other.benchmarks | it.benchmarks
                slots = other.part.slots | it.part.slots
                weight = np.array([other.part.size, it.part.size], dtype=float)
                size = (other.size * weight[0] + it.size * weight[1]) / weight.sum()
                only = (other.size == 0) | (it.size == 0)
                size = np.where(only, other.size + it.size, size)
                kept[place] = replace(
                    other,
                    part=part_from_set(slots),
                    benchmarks=both,
                    size=size,
                    everywhere=other.everywhere or it.everywhere,
                )
                break
        else:
            kept.append(it)
    if len(kept) < len(entries):  # what is one now may be a part together with another
        return _joined(kept, machine)
    return [_of_fewer(it) for it in kept]


def _of_same_part(it: PartEffect, other: PartEffect) -> PartEffect | None:
    """Return a part's effects in some iterations and in others as one that varies."""
    same = it.part.slots.tobytes() == other.part.slots.tobytes()
    if not same or (it.benchmarks != other.benchmarks).any():
        return None
    size, iterations = it.size + other.size, it.iterations | other.iterations
    signs = np.sign(size[np.ix_(it.benchmarks, iterations)])
    if (signs != signs[0, 0]).any() or (it.iterations == other.iterations).all():
        return None
    every = it.everywhere or other.everywhere
    return replace(other, iterations=iterations, size=size, everywhere=every)


def _of_fewer(it: PartEffect) -> PartEffect:
    """Return an entry of more than half of the copies as the opposite of the others."""
    slots = it.part.slots
    if slots.mean() <= (limits.BIGGEST if _typical(it) > 0 else 1 - limits.BIGGEST):
        return it
    return replace(it, part=part_from_set(~slots), size=-it.size)


def _typical(it: PartEffect) -> float:
    return float(np.median(it.size[np.ix_(it.benchmarks, it.iterations)]))


def _takes_back(it: PartEffect, other: PartEffect) -> bool:
    inside = not (it.part.slots & ~other.part.slots).any()
    within = not (it.benchmarks & ~other.benchmarks).any()
    within = within and not (it.iterations & ~other.iterations).any()
    one, two = _typical(it), _typical(other)
    least, most = sorted((abs(one), abs(two)))
    return inside and within and one * two < 0 and most <= limits.ALIKE * least


def _same_cause(it: PartEffect, other: PartEffect, whole: set[bytes]) -> bool:
    if (it.iterations != other.iterations).any() or (it.part.slots & other.part.slots).any():
        return False
    shared = (it.benchmarks & other.benchmarks).sum() / (it.benchmarks | other.benchmarks).sum()
    one, two = _typical(it), _typical(other)
    if shared < limits.BIGGEST or one * two <= 0:
        return False
    if _sort(it) != _sort(other) and (it.part.slots | other.part.slots).tobytes() not in whole:
        return False
    return max(abs(one), abs(two)) <= limits.ALIKE * min(abs(one), abs(two))


def _sort(it: PartEffect) -> str:
    """Return what may be one cause together: parts of one kind, or copies here and there."""
    # A half of an lgroup is no piece of hardware.
    single = it.part.kind in ("copy", "cpu", "core", *SETS) or it.part.kind.startswith("half")
    return "copies" if single else it.part.kind


def _hit_of(table: Table, machine: list[Part], it: PartEffect) -> Hit:
    """Return a part of the model by its name and kind."""
    there = ~np.isnan(table.log_s)
    covered = (
        it.benchmarks[:, None, None] & it.iterations[None, :, None] & it.part.slots[None, None]
    ) & there
    effect = np.where(covered, it.size[:, :, None], 0.0)
    level: str = it.part.kind
    groups: tuple[int, ...] = (it.part.name,)
    if level in ("set", "run", "copy"):
        level, groups = place_of(table, machine, it.part.slots)
        at = np.flatnonzero(it.part.slots)
        if level == "set" and len(at) >= limits.SEVERAL and np.ptp(at) == len(at) - 1:
            level = "run"
    hit = Hit(Kind.SLOW_GROUP, covered, effect, level, groups, everywhere=it.everywhere)
    return _kind(table, hit)


def _kind(table: Table, hit: Hit) -> Hit:
    """Give a hit its kind: by what its copies share, how many there are, and where they show."""
    slots, slow = hit.slots, hit.size > 0
    cells, many = len(hit.cells), int(slots.sum())
    few = many <= max(1, limits.SIDE * table.shape[2])
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
        hit.facts = {"share": many / table.shape[2]}
        if cells > 1:
            hit.facts["same"] = 1.0
    return hit


def values_by_copy(table: Table, values: Floats) -> tuple[Ints, Floats]:
    """Return copies' numbers (C,) ascending, and values (B, I, S) by copy: (B, I, C)."""
    names = np.unique(table.copy[table.copy >= 0])
    by_copy = np.full((*table.shape[:2], len(names)), np.nan)
    where = np.argwhere((table.copy >= 0) & ~np.isnan(values))
    column = np.searchsorted(names, table.copy[tuple(where.T)])
    by_copy[where[:, 0], where[:, 1], column] = values[tuple(where.T)]
    return names, by_copy


def _moving(table: Table, rest: Floats, steps: Floats, thresholds: Thresholds) -> list[Hit]:
    """Return copies that are slow, or fast, wherever they run."""
    names, by_copy = values_by_copy(table, rest)
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


def _left_by_places(moving: list[Hit], rest: Floats) -> bool:
    """Tell whether effects of copies that move are in what places of the machine leave over."""
    shows = [
        float(median((rest[it.covered] / it.effect[it.covered])[None])[0]) >= limits.SHOWS
        for it in moving
    ]
    return 2 * sum(shows) >= len(shows)


def _turns(table: Table, hits: list[Hit], rest: Floats, noise: TimeNoise) -> list[Hit]:
    """Return hits with what does not repeat on lgroups as one hit for each benchmark.

    A benchmark whose lgroups change from iteration to iteration by more than chance, not in
    one cell only: no lgroup is slow there, the benchmark does not repeat.
    """
    i = table.shape[1]
    names = np.unique(table.node[table.node != UNKNOWN])
    if i < 2 or len(names) < 2 or np.median([np.sum(table.node == it) for it in names]) < 3:
        return hits
    members = [table.node == name for name in names]
    of_lgroups = [hit for hit in hits if hit.level in _OF_LGROUPS]
    once = [hit for hit in of_lgroups if len(hit.iterations) < i]
    always = total_effect(table.shape, [hit for hit in of_lgroups if len(hit.iterations) == i])
    made: list[Hit] = []
    gone: set[int] = set()
    for b in range(table.shape[0]):
        own = [hit for hit in once if b in hit.benchmarks]
        single = len(own) == 1
        back = (
            rest[b]
            if single
            else rest[b] + sum((hit.effect[b] for hit in own), np.zeros(rest.shape[1:]))
        )
        each = np.stack([median(back[:, here]) for here in members], axis=1)  # (I, N)
        error = noise.within_copy_sd[b] ** 2 * np.mean([1.57 / here.sum() for here in members])
        moves = each - mean(each, axis=0) - mean(each)[:, None] + mean(each.ravel())
        if np.isnan(moves).any():
            continue
        free = (i - 1) * (len(names) - 1)
        size = math.sqrt(float(np.nansum(moves**2)) / free)
        # Wilson and Hilferty's cube root of chi squared.
        ratio = size**2 / (error + limits.TAU**2)
        sure = (ratio ** (1 / 3) - 1 + 2 / (9 * free)) / math.sqrt(2 / (9 * free))
        several = len({hit.groups for hit in own}) > 1 and len({*map(_when, own)}) > 1
        if not several and (single or size < limits.EVERYWHERE or sure < limits.SURE):
            continue
        had = each + np.stack([median(always[b][:, here]) for here in members], axis=1)
        each, had = _above_middle(each), _above_middle(had)
        least = max(0.5 * np.max(np.abs(each)), limits.TAU)
        # A turn is of who is slow then, with what it always has, not of who is less slow than ever.
        far = np.argwhere((np.abs(each) >= least) & (had * np.sign(each) >= least))
        whose = np.unique(far[:, 1])
        if len(np.unique(far[:, 0])) < 2:
            continue  # that lgroup is slow in that iteration
        is_always = always[b][:, members[whose[0]]].any()
        if len(whose) < 2 and (is_always or (len(own) > 1 and not several)):
            continue  # it is always slow, now more, now less
        told = " ".join(f"{k}:{names[n]}:{each[k, n]:.5f}" for k, n in far)
        covered = np.zeros(table.shape, dtype=bool)
        covered[b] = ~np.isnan(table.log_s[b])
        effect = np.zeros(table.shape)
        for n, here in enumerate(members):
            effect[b][:, here] = (each[:, n] - np.min(each, axis=1))[:, None]
        effect = np.where(covered, np.nan_to_num(effect), 0.0)
        gone |= {id(hit) for hit in own if len(hit.benchmarks) == 1}
        facts: dict[str, float | str] = {"turns": told, "swing": size}
        made.append(Hit(Kind.WANDERING, covered, effect, "turns", facts=facts))
    return [hit for hit in hits if id(hit) not in gone] + made


def _above_middle(levels: Floats) -> Floats:
    """Return levels (I, N) above one that a group had: their middle, of two and four the faster."""
    return levels - np.sort(levels, axis=1)[:, (levels.shape[1] - 1) // 2, None]


def _when(hit: Hit) -> tuple[int, ...]:
    return tuple(hit.iterations)


_OF_LGROUPS = ("node", "package", "llc", "half of lgroup")
