"""Copies that are off in a benchmark every time it runs, as drafts of findings; pure."""

from __future__ import annotations

import math

import numpy as np

from rater.analysis.divots.candidates.state import Work, beyond_layout
from rater.analysis.divots.data.candidate import Draft, Part
from rater.analysis.divots.data.finding import Kind
from rater.analysis.divots.data.table import UNKNOWN
from rater.analysis.divots.detectors.persistent import Persistent, find_persistent
from rater.analysis.stats.robust import Bools, Ints, median

_FEW_COPIES = 0.12
_LEAST_PATTERN = 3
_PAIR = 2
_VERY_FEW = 6  # copies
_NEARLY_ALL = 0.75
_GOES_ON = 0.7  # of the least of those that stand out, what the next one is off by
_OF_SPREAD = 5.5  # spreads, as far as such an end reaches
_SEVERAL = 2  # benchmarks in which a CPU stands out every time


def persistent_drafts(work: Work) -> list[Draft]:
    """Return copies that are off in a benchmark every time, those of one benchmark together."""
    least = math.log1p(work.thresholds.copy) + work.steps
    usable = beyond_layout(work.usable, work.allowed_alone)
    found = find_persistent(usable, least, work.steps)
    if found is None:
        return []
    drafts = _over_benchmarks(work, found)
    continuous: list[Draft] = []
    near: list[Draft] = []  # no farther than such a spread reaches
    for bench in np.flatnonzero(found.stands_out.any(axis=1)):
        known = int(np.sum(~np.isnan(found.typical[bench])))
        alone = found.alone[bench]
        if alone.sum() > max(2, _FEW_COPIES * known):
            alone = np.zeros_like(alone)
        others = found.stands_out[bench] & ~alone
        both = alone | others
        if known <= _VERY_FEW and both.sum() >= _NEARLY_ALL * known:
            # Of one difference between halves either may be called odd: the slow one is.
            fast = both & (found.typical[bench] < 0)
            if fast.any() and not fast.all() and (both & ~fast).any():
                work.r[bench] -= np.nan_to_num(median(work.r[bench][:, fast]))[:, None]
                found.typical[bench] -= median(found.typical[bench, fast])
                alone, others = both & ~fast, np.zeros_like(both)
                if alone.sum() > 1:
                    alone, others = others, alone
        if others.sum() < (_LEAST_PATTERN if known > _VERY_FEW else _PAIR):
            others[:] = False
        for mask, level in ((alone, ""), (others, "copies")):
            for sign in (1.0, -1.0):
                slots = np.flatnonzero(mask & (np.sign(found.typical[bench]) == sign))
                if len(slots):
                    within = bool(level) and _within_spread(found, int(bench), slots)
                    cut = within and _is_cut(found, int(bench), slots)
                    one = _repeated(work, found, [int(bench)], slots, level * (len(slots) > 1))
                    (continuous if cut else near if within else drafts).append(one)
    if len(continuous) < _SEVERAL:
        return drafts + continuous + near
    return drafts + _as_one(found, continuous + near)


def _within_spread(found: Persistent, b: int, slots: Ints) -> bool:
    return bool(np.max(np.abs(found.typical[b, slots])) < _OF_SPREAD * found.spread[b])


def _is_cut(found: Persistent, b: int, slots: Ints) -> bool:
    """Tell whether copies that stand out are the end of a spread that goes on below them."""
    sign = np.sign(found.typical[b, slots[0]])
    size = sign * found.typical[b]
    rest = np.delete(size, slots)
    rest = rest[~np.isnan(rest)]
    least = float(np.min(size[slots]))
    below = float(np.max(rest, initial=0.0))
    return below >= _GOES_ON * least


def _as_one(found: Persistent, drafts: list[Draft]) -> list[Draft]:
    """Return what copies of several benchmarks always differ by as one finding."""
    benchmarks = sorted({part.b for draft in drafts for part in draft.parts})
    slow = [draft for draft in drafts if draft.size > 0]
    if not slow:
        return drafts
    by_cell: dict[tuple[int, int], Part] = {(p.b, p.i): p for d in slow for p in d.parts}
    return [
        Draft(
            Kind.SLOW_GROUP,
            [by_cell[cell] for cell in sorted(by_cell)],
            np.logical_or.reduce([draft.slots for draft in slow]),
            float(np.median([draft.size for draft in slow])),
            level="copies",
            facts={
                "repeat": float(np.median(found.repeat[benchmarks])),
                "spread": float(np.median(found.spread[benchmarks])),
            },
        )
    ]


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
                and alike(shows[:, slots[0]], shows[:, slots[end]])
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


def alike(left: Bools, right: Bools) -> bool:
    """Tell whether two sets of slots have most of their members in common."""
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
