"""CPUs, benchmarks in two modes and single copies as drafts of findings; pure."""

from __future__ import annotations

import math

import numpy as np

from rater.analysis.divots.candidates.repeated import alike, persistent_drafts
from rater.analysis.divots.candidates.state import Work, beyond_layout
from rater.analysis.divots.data.candidate import Draft, Part
from rater.analysis.divots.data.finding import Kind
from rater.analysis.divots.data.table import UNKNOWN, Table
from rater.analysis.divots.detectors.copies import (
    ALPHA,
    find_outliers,
    lone_apart,
    many_apart,
    standing_apart,
)
from rater.analysis.divots.detectors.cpus import (
    FEWEST,
    find_among_few,
    find_cpus,
    find_in_pair,
    units,
)
from rater.analysis.divots.detectors.modes import find_modes
from rater.analysis.stats.robust import Ints, median, middle

_FAST_COPY = 0.10  # a copy this much faster is worth a line, whatever the threshold for slow ones
_FASTEST = 0.999  # no copy is 100 % faster
_FAST_ALPHA = 3e-5  # and it is rarer: tails on the fast side belong to healthy runs
_PAIR = 2
_SEVERAL = 2  # benchmarks in which a CPU stands out every time
_OF_NODE = 0.6
_OF_OUTLIERS = 0.7
_NODE_CHANCE = 1e-3


def cpu_drafts(work: Work) -> list[Draft]:
    """Return CPUs that are slow in nearly all benchmarks, taken out of the residuals."""
    table, r = work.table, work.r
    of_unit = units(table.cpu)
    drafts = []
    slow = find_cpus(r, of_unit, table.core, work.scales, work.left_out)
    few = find_among_few(r, of_unit, math.log1p(work.thresholds.copy), work.steps, work.left_out)
    of_node = few is None and not slow and _tiny_lgroups(table.node)
    if of_node:
        least = math.log1p(work.thresholds.group)
        few = find_among_few(r, table.node, least, work.steps, work.left_out)
    for one in slow if few is None else [few]:
        slots = np.flatnonzero(one.slots)
        parts = []
        for b in np.flatnonzero(~np.isnan(one.each)):
            for i in range(table.shape[1]):
                here = slots[~np.isnan(r[b, i, slots])]
                effect = float(one.each[b])
                parts.append(Part(int(b), i, here, np.full(len(here), effect)))
                rest = r[b, i, here] - effect
                # What is left below twice its usual slowness is no divot of its own.
                r[b, i, here] = np.where(rest < 2 * one.size, 0.0, rest)
        if few is not None:
            # Half of what two copies differ by is the slow one's, half the other's.
            r -= np.where(one.slots, 0.0, median(r[:, :, ~one.slots])[..., None])
        kind = Kind.SLOW_CPU if (table.cpu[slots] != UNKNOWN).all() else Kind.OUTLIER_COPY
        if of_node:
            kind = Kind.SLOW_LGROUP
        drafts.append(
            Draft(
                kind,
                parts,
                one.slots,
                one.size,
                "node" if of_node else "",
                int(table.node[slots[0]]) if of_node else -1,
                everywhere=True,
                facts={
                    "showing": int(np.sum(one.benchmarks)),
                    "of": int(np.sum(~np.isnan(one.each))),
                    "z": one.z,
                },
            )
        )
    return drafts


def _tiny_lgroups(node: Ints) -> bool:
    """Tell whether all copies are on two or three lgroups, two on each: too few to be groups."""
    names, sizes = np.unique(node, return_counts=True)
    return UNKNOWN not in names and len(names) > 1 and bool((sizes == _PAIR).all())


def mode_drafts(work: Work) -> list[Draft]:
    """Return benchmarks in two modes, the slow mode taken out of the residuals."""
    r = work.r
    drafts = []
    for one in find_modes(work.usable, work.groups, work.steps, fixed=work.table.fixed):
        parts = []
        for i in np.flatnonzero(one.cells):
            slots = np.flatnonzero(one.slow[i])
            parts.append(Part(one.benchmark, int(i), slots, np.full(len(slots), one.size)))
            r[one.benchmark, i, slots] -= one.size
            r[one.benchmark, i] -= middle(r[one.benchmark, i])
        drafts.append(
            Draft(
                Kind.BIMODAL,
                parts,
                one.slow.any(axis=0),
                one.size,
                facts={"share": one.share, "dip": one.dip, "same": float(one.same)},
            )
        )
    return _same_copies(drafts)


def _same_copies(drafts: list[Draft]) -> list[Draft]:
    """Return the drafts with those of the same slow copies, every time, as one group."""
    left = list(drafts)
    joined = []
    while left:
        first, *rest = left
        twins = [one for one in rest if alike(first.slots, one.slots) and one.facts["same"]]
        left = [one for one in rest if not any(one is other for other in twins)]
        if not twins or not first.facts["same"]:
            joined.append(first)
            left = rest
            continue
        members = [first, *twins]
        often = np.mean([one.slots for one in members], axis=0) > 0.5
        size = float(np.median([one.size for one in members]))
        parts = [part for one in members for part in one.parts]
        joined.append(Draft(Kind.SLOW_GROUP, parts, often, size, level="copies"))
    return joined


def copy_drafts(work: Work) -> list[Draft]:
    """Return single copies: those that are off every time, then those that are once."""
    drafts = _of_two(work)
    drafts += persistent_drafts(work)
    return _of_one_cpu(work, drafts + _once(work))


def _of_two(work: Work) -> list[Draft]:
    """Return benchmarks in which one of two copies is slow, taken out of the residuals.

    Against the middle of two either would be off by half of what they differ by.
    """
    table, r = work.table, work.r
    if table.shape[2] != FEWEST:
        return []
    usable = work.usable
    over = usable[:, :, 1] - usable[:, :, 0]  # (B, I)
    drafts = []
    for b, size in find_in_pair(over, math.log1p(work.thresholds.copy), work.steps):
        slot = np.array([1 if size > 0 else 0])
        cells = np.flatnonzero(~np.isnan(over[b]))
        facts: dict[str, float | str] = {}
        if len(cells) > 1:
            sizes = np.abs(over[b, cells])
            facts = {"repeat": float(np.std(sizes, ddof=1)), "low": abs(size), "high": abs(size)}
        parts = [Part(b, int(i), slot, np.abs(over[b, [i]])) for i in cells]
        drafts.append(
            Draft(Kind.OUTLIER_COPY, parts, np.arange(FEWEST) == slot[0], abs(size), facts=facts)
        )
        r[b, cells] = 0.0
    return drafts


def _once(work: Work) -> list[Draft]:
    table, r, thresholds = work.table, work.r, work.thresholds
    drafts = []
    for sign in (1.0, -1.0):
        scales = work.scales
        fast = min(max(_FAST_COPY, thresholds.copy), _FASTEST)
        size = thresholds.copy if sign > 0 else -math.log1p(-fast)
        least = np.full(len(r), math.log1p(size) if sign > 0 else size) + work.steps
        scale = scales.right if sign > 0 else scales.left
        usable = beyond_layout(work.usable, work.allowed_alone)
        flagged, chance = find_outliers(
            sign * usable, scale, least, alpha=ALPHA if sign > 0 else _FAST_ALPHA
        )
        many = np.zeros_like(flagged)
        if sign > 0:
            many = many_apart(np.where(flagged.any(axis=2)[..., None], np.nan, usable), least)
            flagged = flagged | many
        else:
            flagged = standing_apart(-usable, flagged)
        rest = np.where(flagged.any(axis=2)[..., None], np.nan, sign * usable)
        lone = lone_apart(rest, least, work.steps)
        flagged = flagged | lone
        many |= lone
        for b, i in np.argwhere(flagged.any(axis=2)):
            slots = np.flatnonzero(flagged[b, i])
            effect = r[b, i, slots].copy()
            node = _node_of(table, slots, int(b), int(i)) if sign > 0 else None
            mask = np.zeros(table.shape[2], dtype=bool)
            mask[slots] = True
            draft = Draft(
                Kind.OUTLIER_COPY,
                [Part(int(b), int(i), slots, effect)],
                mask,
                float(np.median(effect)),
                facts={} if many[b, i].any() else {"chance": float(chance[b, i])},
            )
            if node is not None:
                draft.kind, draft.level, draft.group = Kind.SLOW_LGROUP, "node", node
            drafts.append(draft)
            r[b, i, slots] = 0.0
    return drafts


def _of_one_cpu(work: Work, drafts: list[Draft]) -> list[Draft]:
    """Return copies that are off in several benchmarks of one iteration as one finding.

    With the other benchmarks that show half of it.
    """
    table, r = work.table, work.r
    by_place: dict[tuple[int, bool, int], list[Draft]] = {}
    for draft in drafts:
        if draft.kind is Kind.OUTLIER_COPY and draft.slots.sum() == 1 and len(draft.parts) == 1:
            slot = int(np.flatnonzero(draft.slots)[0])
            by_place.setdefault((slot, draft.size > 0, draft.parts[0].i), []).append(draft)
    joined: list[Draft] = []
    gone: set[int] = set()
    for (slot, slow, i), members in by_place.items():
        parts = [part for draft in members for part in draft.parts]
        benchmarks = {part.b for part in parts}
        if len(benchmarks) <= _SEVERAL:
            continue
        gone |= {id(draft) for draft in members}
        size = float(np.median([draft.size for draft in members]))
        scale = work.scales.right if slow else work.scales.left
        own = np.nan_to_num(work.usable[:, i, slot]) * (1.0 if slow else -1.0)
        also = (own >= 0.5 * abs(size)) & (own >= 2 * scale)
        for b in np.flatnonzero(also):
            if int(b) not in benchmarks:
                parts.append(Part(int(b), i, np.array([slot]), r[b, i, [slot]].copy()))
                r[b, i, slot] = 0.0
        slots = members[0].slots
        known = bool((table.cpu[slots] != UNKNOWN).all())
        effects = [float(part.effect[0]) for part in parts]
        joined.append(
            Draft(
                Kind.SLOW_CPU if known and size > 0 else Kind.OUTLIER_COPY,
                sorted(parts, key=lambda part: part.b),
                slots,
                float(np.median(effects)),
                facts={"showing": len(parts), "of": table.shape[0]},
            )
        )
    return joined + [draft for draft in drafts if id(draft) not in gone]


def _node_of(table: Table, slots: Ints, b: int, i: int) -> int | None:
    """Return the lgroup that the slow copies of a cell are: most of it, and most of them on it."""
    names, counts = np.unique(table.node[slots], return_counts=True)
    node, here = int(names[np.argmax(counts)]), int(counts.max())
    there = ~np.isnan(table.log_s[b, i])
    size = int(np.sum((table.node == node) & there))
    whole = int(there.sum())
    if node == UNKNOWN or size < 3 or size == whole:
        return None
    if here < _OF_NODE * size or here < _OF_OUTLIERS * len(slots):
        return None
    return node if _hypergeometric(here, len(slots), size, whole) < _NODE_CHANCE else None


def _hypergeometric(hits: int, drawn: int, marked: int, whole: int) -> float:
    """Return how often `drawn` of `whole` hold `hits` or more of `marked` by chance."""
    ways = math.comb(whole, drawn)
    most = min(drawn, marked)
    return (
        sum(
            math.comb(marked, k) * math.comb(whole - marked, drawn - k)
            for k in range(hits, most + 1)
        )
        / ways
    )
