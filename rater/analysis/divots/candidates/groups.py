"""Groups, runs of CPUs and patterns of runs as drafts of findings; pure."""

from __future__ import annotations

import math

import numpy as np

from rater.analysis.divots.candidates.state import Work
from rater.analysis.divots.data.candidate import Draft, Part
from rater.analysis.divots.data.finding import Kind
from rater.analysis.divots.data.noise_scales import Scales
from rater.analysis.divots.data.table import UNKNOWN
from rater.analysis.divots.detectors.cpu_runs import run_levels, two_classes
from rater.analysis.divots.detectors.groups import GroupHit, Level, find_groups
from rater.analysis.divots.detectors.layout import Predicted
from rater.analysis.divots.detectors.turns import Turns, find_turns
from rater.analysis.stats.robust import Bools, Floats, Ints, median, middle

_MOST_OF_RUN = 0.6  # a group of more copies than that is the run: the others are the odd ones
_ROUNDS = 8
_PLAIN = 5.0  # spreads: an effect that large shows who shares it
_TURN_TOLD = 0.009
_KEPT = 0.25  # what a copy that kept its speed takes off a group's explanation
_HALF = 0.4  # of all copies: nearly as many as the others
_SAME_PART = 0.8  # 7 of 8 copies are the lgroup: one kept its speed
_MOST_OF_PART = 0.5
_LGROUPS = ("node", "package", "llc")
_SEVERAL = ("node", "llc")
_PATTERN = 0.005
_PATTERN_SHOWS = 0.003
_PATTERN_SHARE = 0.3
_PATTERN_AGAINST = 0.1
_PATTERN_COVERED = 0.75
_PATTERN_ALONE = 8

# Groups found so far, by level, group or groups, and whether slow.
type _Found = dict[tuple[str, tuple[int, ...], bool], Draft]


def group_drafts(work: Work) -> list[Draft]:
    """Return parts of the machine, then runs of CPUs, then what only some iterations show."""
    found: _Found = {}
    runs = run_levels(work.usable, work.steps, work.levels)
    if runs:
        # What runs differ by is no noise.
        work.groups = runs[0].groups
    _groups(work, (*work.levels, *runs), found)
    pattern = _pattern(work, runs[0].groups) if runs else None
    drafts = []
    if pattern is not None:
        # Without it the copies of a part are more alike, and smaller effects can be seen.
        drafts.append(pattern)
        _groups(work, work.levels, found)
    found = _named(found, work.levels)
    for draft in found.values():
        _merge(draft)
    drafts += found.values()
    for level in work.levels[:1]:
        least = math.log1p(work.thresholds.group)
        for turns in find_turns(work.usable, level, work.scales, least):
            drafts.append(_turns_draft(work.r, turns))
    return drafts


def _merge(draft: Draft) -> None:
    """Make one part of those of one cell: taken out in two rounds, the time is lost once."""
    by_cell: dict[tuple[int, int], dict[int, float]] = {}
    for part in draft.parts:
        cell = by_cell.setdefault((part.b, part.i), {})
        for slot, effect in zip(part.slots.tolist(), part.effect.tolist(), strict=True):
            cell[slot] = cell.get(slot, 0.0) + effect
    if len(by_cell) == len(draft.parts):
        return
    draft.parts = [
        Part(
            b, i, np.array(sorted(cell), dtype=np.int64), np.array([cell[s] for s in sorted(cell)])
        )
        for (b, i), cell in by_cell.items()
    ]
    draft.size = float(
        np.median([np.median(part.effect) for part in draft.parts if len(part.slots)])
    )


def _turns_draft(r: Floats, turns: Turns) -> Draft:
    """Return a benchmark whose lgroups take turns, taken out of `r` with all of them."""
    parts = []
    said = []
    covered = np.zeros(r.shape[2], dtype=bool)
    for k in range(len(turns.once)):
        for g, name in enumerate(turns.names):
            effect = float(turns.once[k, g])
            slots = np.flatnonzero((turns.level.groups == name) & ~np.isnan(r[turns.benchmark, k]))
            if np.isnan(effect) or abs(effect) < _TURN_TOLD:
                continue
            if effect > 0:
                said.append((k, int(name), effect))
                covered[slots] = True
                parts.append(Part(turns.benchmark, k, slots, np.full(len(slots), effect)))
            r[turns.benchmark, k, slots] -= effect
        r[turns.benchmark, k] -= middle(r[turns.benchmark, k])
    return Draft(
        Kind.WANDERING,
        parts,
        covered,
        max(effect for _, _, effect in said),
        facts={"turns": " ".join(f"{k}:{name}:{effect:.4f}" for k, name, effect in said)},
    )


def _groups(work: Work, levels: tuple[Level, ...], found: _Found) -> None:
    """Add the groups of these levels to `found`, the best explanation first."""
    r, left_out, scales = work.r, work.left_out | work.ramps, work.scales
    most = _MOST_OF_RUN * r.shape[2]
    least = math.log1p(work.thresholds.group)
    for _ in range(_ROUNDS):
        hits = [
            hit
            for level in levels
            for hit in find_groups(r, level, scales, least, left_out)
            if hit.slots.sum() <= most
        ]
        taken = np.zeros(left_out.shape, dtype=bool)
        gains = {id(hit): _gain(r, hit) for hit in hits}
        order = sorted(hits, key=lambda hit: (-gains[id(hit)], hit.level, hit.group))
        accepted = []
        for hit in order:
            # One a cell: what is taken out changes what the other groups are compared with.
            if gains[id(hit)] > 0 and not (taken & hit.cells).any():
                taken |= hit.cells
                accepted.append(hit)
        if not accepted:
            break
        for hit in accepted:
            if _beyond(hit, work.allowed):
                _take_group(r, hit, scales, found)
            else:
                _take_allowed(work, hit)
        r -= median(r)[..., None]


def _beyond(hit: GroupHit, allowed: Floats) -> bool:
    """Tell whether a group is slow, or faster than the layout allows its copies to be."""
    if hit.size > 0:
        return True
    least = median(allowed[:, hit.slots])[:, None]
    return bool(np.median((hit.effect - least)[hit.cells]) < 0.5 * hit.size)


def _take_allowed(work: Work, hit: GroupHit) -> None:
    """Take a group out that is faster than others as the layout allows it to be."""
    effect = np.zeros(len(work.r))
    for b in np.flatnonzero(hit.cells.any(axis=1)):
        effect[b] = middle(hit.effect[b, hit.cells[b]])
    work.r[:, :, hit.slots] -= np.where(hit.cells, hit.effect, 0.0)[:, :, None]
    work.predicted.append(Predicted("lighter", hit.slots, effect, 0.0, 0.0))


def _named(found: _Found, levels: tuple[Level, ...]) -> _Found:
    """Return the findings with runs that are a part of the machine named as that part."""
    named: _Found = {}
    for (_, _, slow), draft in found.items():
        one = _renamed(draft, levels) if draft.level == "run" else draft
        known = named.setdefault((one.level, one.members or (one.group,), slow), one)
        if known is not one:
            known.parts += one.parts
    return named


def _renamed(draft: Draft, levels: tuple[Level, ...]) -> Draft:
    """Name a run that is a part of the machine, or several lgroups or LLCs, as that."""
    for level in levels:
        for group in np.unique(level.groups[draft.slots]):
            members = level.groups == group
            if group != UNKNOWN and _same_slots(members, draft.slots):
                return _as_part(draft, level, (int(group),))
    for level in levels:
        if level.name in _SEVERAL:
            names = tuple(
                int(group)
                for group in np.unique(level.groups[draft.slots])
                if group != UNKNOWN and np.mean(draft.slots[level.groups == group]) > _MOST_OF_PART
            )
            if len(names) > 1 and _same_slots(np.isin(level.groups, names), draft.slots):
                return _as_part(draft, level, names)
    return draft


def _same_slots(left: Bools, right: Bools) -> bool:
    return bool(np.sum(left & right) >= _SAME_PART * np.sum(left | right))


def _as_part(draft: Draft, level: Level, names: tuple[int, ...]) -> Draft:
    draft.level, draft.group = level.name, names[0]
    draft.members = names if len(names) > 1 else ()
    if level.name in _LGROUPS and draft.size > 0:
        draft.kind = Kind.SLOW_LGROUP
    return draft


def _pattern(work: Work, of_run: Ints) -> Draft | None:
    """Return what slow runs have in common where runs are of two sorts, all over the machine."""
    usable, r = work.usable, work.r
    classes = two_classes(usable, of_run)
    b, i, s = work.table.shape
    if classes is None or b < 3:
        return None
    slow = classes == 1
    once = median(usable[:, :, slow]) - median(usable[:, :, ~slow])  # (B, I)
    each = median(once)
    lowest, highest = np.nan_to_num(np.min(once, axis=1)), np.nan_to_num(np.max(once, axis=1))
    shows = lowest >= _PATTERN_SHOWS
    if shows.sum() < max(3, _PATTERN_SHARE * b) or (i == 1 and b < _PATTERN_ALONE):
        return None
    if np.mean(highest <= -_PATTERN_SHOWS) > _PATTERN_AGAINST:
        return None
    whole = middle(each[shows])
    if whole < _PATTERN:
        return None
    typical = median(median(np.swapaxes(usable, 1, 2)).T)
    line = (middle(typical[slow]) + middle(typical[~slow])) / 2
    if min(np.mean(typical[slow] > line), np.mean(typical[~slow] < line)) < _PATTERN_COVERED:
        return None
    sign = 1.0
    if slow.sum() > _MOST_OF_RUN * s:
        slow, once, sign = ~slow, -once, -1.0
    slots = np.flatnonzero(slow)
    parts = []
    for bench in np.flatnonzero(shows):
        for k in range(i):
            effect = float(once[bench, k])
            here = slots[~np.isnan(r[bench, k, slots])]
            if np.isnan(effect) or not len(here):
                continue
            parts.append(Part(int(bench), k, here, np.full(len(here), effect)))
            r[bench, k, here] -= effect
            r[bench, k] -= middle(r[bench, k])
    return Draft(Kind.SLOW_GROUP, parts, slow, sign * whole, "pattern", 0)


def _gain(r: Floats, hit: GroupHit) -> float:
    """Return how much nearer to their cell's median all copies come when the group is taken out.

    All, not its own: one fast lgroup of four makes the other package look slow, but
    taking that one out brings no copy nearer to the others.
    """
    rows = np.flatnonzero(hit.cells.any(axis=1))
    cells = r[rows]
    before = np.abs(cells - np.nan_to_num(median(cells))[..., None])
    cells[:, :, hit.slots] -= hit.effect[rows][..., None]
    change = before - np.abs(cells - np.nan_to_num(median(cells))[..., None])
    # A part of the machine explains its slow copies even where one or two kept their speed.
    change = np.where((change < 0) & hit.slots, _KEPT * change, change)
    whole = float(np.nansum(np.where(hit.cells[rows][..., None], change, 0.0)))
    # Of two halves either may be called the odd one: the slow one is.
    half = hit.slots.sum() >= _HALF * r.shape[2]
    return whole if hit.size > 0 or not half else 0.5 * whole


def _take_group(
    r: Floats,
    hit: GroupHit,
    scales: Scales,
    found: _Found,
) -> None:
    slots = np.flatnonzero(hit.slots)
    key = (hit.level, (hit.group,), hit.size > 0)
    draft = found.get(key)
    if draft is None:
        kind = Kind.SLOW_LGROUP if hit.level in _LGROUPS else Kind.SLOW_GROUP
        if hit.size < 0:
            kind = Kind.SLOW_GROUP
        draft = found[key] = Draft(kind, [], hit.slots, hit.size, hit.level, hit.group)
    for b in np.flatnonzero(hit.cells.any(axis=1)):
        iterations = np.flatnonzero(hit.cells[b])
        typical = middle(hit.effect[b, iterations])
        # A copy that plainly does not share a large effect kept its speed: it is not judged.
        # In each iteration for itself where that is plain, else in all together.
        over = np.sign(typical) * (r[b] - median(r[b][:, ~hit.slots])[:, None])[:, slots]
        spread = float(scales.both[b])
        if abs(typical) > _PLAIN * spread:
            away = over < abs(typical) / 2
        else:
            plain = abs(typical) > _PLAIN * spread / math.sqrt(len(iterations))
            away = (median(over[iterations].T) < abs(typical) / 2)[None, :] & plain
            away = np.broadcast_to(away, over.shape)
        for i in iterations:
            effect = float(hit.effect[b, i])
            here = slots[~np.isnan(r[b, i, slots]) & ~away[i]]
            draft.parts.append(Part(int(b), int(i), here, np.full(len(here), effect)))
            r[b, i, here] -= effect
            r[b, i, slots[away[i] & (over[i] > -abs(typical))]] = np.nan
    draft.everywhere |= hit.everywhere
    draft.size = float(np.median([part.effect[0] for part in draft.parts if len(part.effect)]))
    draft.facts["z"] = max(float(draft.facts.get("z", 0.0)), hit.z)
    draft.facts["rank_z"] = max(float(draft.facts.get("rank_z", 0.0)), hit.rank_z)
