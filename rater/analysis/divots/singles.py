"""CPUs, benchmarks in two modes and single copies as drafts of findings; pure."""

from __future__ import annotations

import math

import numpy as np

from rater.analysis.divots.copies import ALPHA, find_outliers, standing_apart
from rater.analysis.divots.cpus import find_among_few, find_cpus, units
from rater.analysis.divots.drafts import Draft, Part
from rater.analysis.divots.modes import find_modes
from rater.analysis.divots.persistence import Persistent, find_persistent
from rater.analysis.divots.robust import Bools, Ints, median, middle
from rater.analysis.divots.table import UNKNOWN, Table
from rater.analysis.divots.work import Work, beyond_layout
from rater.analysis.finding import Kind

_FAST_COPY = 0.10  # a copy this much faster is worth a line, whatever the threshold for slow ones
_FAST_ALPHA = 3e-5  # and it is rarer: tails on the fast side belong to healthy runs
_FEW_COPIES = 0.12
_LEAST_PATTERN = 3
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
        drafts.append(
            Draft(
                kind,
                parts,
                one.slots,
                one.size,
                everywhere=True,
                facts={
                    "showing": int(np.sum(one.benchmarks)),
                    "of": int(np.sum(~np.isnan(one.each))),
                    "z": one.z,
                },
            )
        )
    return drafts


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
    return drafts


def copy_drafts(work: Work) -> list[Draft]:
    """Return single copies: those that are off every time, then those that are once."""
    drafts = _persistent(work)
    return _of_one_cpu(work.table, drafts + _once(work))


def _once(work: Work) -> list[Draft]:
    table, r, thresholds = work.table, work.r, work.thresholds
    drafts = []
    for sign in (1.0, -1.0):
        scales = work.scales
        size = thresholds.copy if sign > 0 else -math.log1p(-max(_FAST_COPY, thresholds.copy))
        least = np.full(len(r), math.log1p(size) if sign > 0 else size) + work.steps
        scale = scales.right if sign > 0 else scales.left
        usable = beyond_layout(work.usable, work.allowed_alone)
        flagged, chance = find_outliers(
            sign * usable, scale, least, alpha=ALPHA if sign > 0 else _FAST_ALPHA
        )
        if sign < 0:
            flagged = standing_apart(-usable, flagged)
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
                facts={"chance": float(chance[b, i])},
            )
            if node is not None:
                draft.kind, draft.level, draft.group = Kind.SLOW_LGROUP, "node", node
            drafts.append(draft)
            r[b, i, slots] = 0.0
    return drafts


def _of_one_cpu(table: Table, drafts: list[Draft]) -> list[Draft]:
    """Return copies that are off in several benchmarks of a single iteration as one finding."""
    if table.shape[1] > 1:
        return drafts
    by_place: dict[tuple[int, bool], list[Draft]] = {}
    for draft in drafts:
        if draft.kind is Kind.OUTLIER_COPY and draft.slots.sum() == 1:
            slot = int(np.flatnonzero(draft.slots)[0])
            by_place.setdefault((slot, draft.size > 0), []).append(draft)
    joined: list[Draft] = []
    gone: set[int] = set()
    for members in by_place.values():
        benchmarks = {part.b for draft in members for part in draft.parts}
        if len(benchmarks) <= _SEVERAL:
            continue
        gone |= {id(draft) for draft in members}
        slots = members[0].slots
        known = bool((table.cpu[slots] != UNKNOWN).all())
        size = float(np.median([draft.size for draft in members]))
        joined.append(
            Draft(
                Kind.SLOW_CPU if known and size > 0 else Kind.OUTLIER_COPY,
                [part for draft in members for part in draft.parts],
                slots,
                size,
                facts={"showing": len(benchmarks), "of": table.shape[0]},
            )
        )
    return joined + [draft for draft in drafts if id(draft) not in gone]


def _persistent(work: Work) -> list[Draft]:
    """Return copies that are off in a benchmark every time, those of one benchmark together."""
    least = math.log1p(work.thresholds.copy) + work.steps
    usable = beyond_layout(work.usable, work.allowed_alone)
    found = find_persistent(usable, least, work.steps)
    if found is None:
        return []
    drafts = _over_benchmarks(work, found)
    for bench in np.flatnonzero(found.stands_out.any(axis=1)):
        known = int(np.sum(~np.isnan(found.typical[bench])))
        alone = found.alone[bench]
        if alone.sum() > max(2, _FEW_COPIES * known):
            alone = np.zeros_like(alone)
        others = found.stands_out[bench] & ~alone
        if others.sum() < _LEAST_PATTERN:
            others[:] = False
        for mask, level in ((alone, ""), (others, "copies")):
            for sign in (1.0, -1.0):
                slots = np.flatnonzero(mask & (np.sign(found.typical[bench]) == sign))
                if len(slots):
                    drafts.append(_repeated(work, found, [int(bench)], slots, level))
    return drafts


def _over_benchmarks(work: Work, found: Persistent) -> list[Draft]:
    """Return copies that are off in several benchmarks every time: their CPU, or a run of them.

    Memory-bound benchmarks alone may show it: no average over all benchmarks would.
    Takes what it returns out of `found`.
    """
    drafts = []
    for sign in (1.0, -1.0):
        shows = found.alone & (np.sign(found.typical) == sign)  # (B, S)
        often = shows.sum(axis=0) >= _SEVERAL
        slots = np.flatnonzero(often)
        while len(slots):
            end = 1
            while (
                end < len(slots)
                and slots[end] == slots[end - 1] + 1
                and _alike(shows[:, slots[0]], shows[:, slots[end]])
            ):
                end += 1
            here, slots = slots[:end], slots[end:]
            benchmarks = np.flatnonzero(np.mean(shows[:, here], axis=1) > 0.5)
            if not len(benchmarks):
                benchmarks = np.flatnonzero(shows[:, here].any(axis=1))
            numbers = [int(b) for b in benchmarks]
            drafts.append(_repeated(work, found, numbers, here, "cpu"))
            for b in benchmarks:
                found.alone[b, here] = found.stands_out[b, here] = False
    return drafts


def _alike(left: Bools, right: Bools) -> bool:
    either = int(np.sum(left | right))
    return either > 0 and int(np.sum(left & right)) >= 0.6 * either


def _repeated(
    work: Work, found: Persistent, benchmarks: list[int], slots: Ints, level: str
) -> Draft:
    """Return copies that are off in every iteration, taken out of the residuals."""
    table, r = work.table, work.r
    parts = []
    for b in benchmarks:
        for k in range(table.shape[1]):
            here = slots[~np.isnan(r[b, k, slots])]
            if len(here) and not work.left_out[b, k]:
                parts.append(Part(b, k, here, r[b, k, here].copy()))
                r[b, k, here] = 0.0
    mask = np.zeros(table.shape[2], dtype=bool)
    mask[slots] = True
    typical = found.typical[np.ix_(benchmarks, slots)]
    size = float(np.median(typical))
    facts: dict[str, float | str] = {
        "repeat": float(np.median(found.repeat[benchmarks])),
        "low": float(np.nanmin(typical)),
        "high": float(np.nanmax(typical)),
    }
    kind = Kind.SLOW_GROUP if level else Kind.OUTLIER_COPY
    if level == "cpu":
        facts |= {"showing": len(benchmarks), "of": table.shape[0]}
        cores = np.unique(table.core[slots])
        one = len(slots) == 1 or (len(cores) == 1 and cores[0] != UNKNOWN)
        if one:
            known = bool((table.cpu[slots] != UNKNOWN).all())
            kind = Kind.SLOW_CPU if known and size > 0 else Kind.OUTLIER_COPY
        level = "" if one else "copies"
    return Draft(kind, parts, mask, size, level=level, facts=facts)


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
