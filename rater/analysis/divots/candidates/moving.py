"""Copies that are slow on every CPU they run on, where the binding rotates; pure.

What stays with the copy while its CPU changes is its data or its files, not the CPU.
"""

from __future__ import annotations

import math

import numpy as np

from rater.analysis.divots.candidates.state import Work
from rater.analysis.divots.data.candidate import Draft, Part
from rater.analysis.divots.data.finding import Kind
from rater.analysis.divots.data.table import UNKNOWN
from rater.analysis.divots.detectors.cpus import find_cpus
from rater.analysis.divots.detectors.persistent import find_persistent
from rater.analysis.stats.robust import Bools, Floats, Ints

# What `Draft.facts` holds.
type _Facts = dict[str, float | str]


def moving_drafts(work: Work) -> list[Draft]:
    """Return copies that are slow wherever they run, taken out of the residuals."""
    table = work.table
    if table.fixed or table.shape[1] < 2:
        return []
    slots, copies = _slots_of_copies(table.copy)
    moved = np.array(
        [len(np.unique(own[own >= 0])) > 1 for own in slots.reshape(-1, len(copies)).T]
    )
    times = _by_copy(work.usable, slots)
    drafts = []
    for one in find_cpus(times, copies, np.full(len(copies), UNKNOWN), work.scales, work.left_out):
        if moved[one.slots].all() and one.size >= math.log1p(work.thresholds.copy):
            cells = np.broadcast_to(~np.isnan(one.each)[:, None], times.shape[:2])
            facts: _Facts = {"showing": int(np.sum(one.benchmarks)), "of": len(one.each)}
            drafts.append(_taken(work, slots, int(np.argmax(one.slots)), cells, facts))
    found = find_persistent(
        _by_copy(work.usable, slots), math.log1p(work.thresholds.copy) + work.steps, work.steps
    )
    if found is None:
        return drafts
    for b, c in np.argwhere(found.alone & (found.typical > 0) & moved):
        cells = np.zeros(times.shape[:2], dtype=bool)
        cells[b] = True
        size = float(found.typical[b, c])
        facts = {"repeat": float(found.repeat[b]), "low": size, "high": size}
        drafts.append(_taken(work, slots, int(c), cells, facts))
    return drafts


def _slots_of_copies(copy: Ints) -> tuple[Ints, Ints]:
    """Return the slot of each copy in each cell (B, I, C), -1 where it did not run; the copies."""
    names = np.unique(copy[copy >= 0])
    slots = np.full((*copy.shape[:2], len(names)), -1)
    b, i, s = np.nonzero(copy >= 0)
    slots[b, i, np.searchsorted(names, copy[b, i, s])] = s
    return slots, names


def _by_copy(values: Floats, slots: Ints) -> Floats:
    taken = np.take_along_axis(values, np.maximum(slots, 0), axis=2)
    return np.where(slots >= 0, taken, np.nan)


def _taken(work: Work, slots: Ints, c: int, cells: Bools, facts: _Facts) -> Draft:
    parts = []
    mask = np.zeros(work.table.shape[2], dtype=bool)
    for b, i in np.argwhere(cells):
        s = int(slots[b, i, c])
        if s < 0 or np.isnan(work.r[b, i, s]) or work.left_out[b, i]:
            continue
        parts.append(Part(int(b), int(i), np.array([s]), work.r[b, i, [s]].copy()))
        work.r[b, i, s] = 0.0
        mask[s] = True
    size = float(np.median([part.effect[0] for part in parts]))
    return Draft(Kind.OUTLIER_COPY, parts, mask, size, facts=facts | {"moves": 1.0})
