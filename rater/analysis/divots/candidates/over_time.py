"""Start-up, slow iterations and drift as drafts of findings; pure."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from rater.analysis.divots.candidates.state import Work
from rater.analysis.divots.data.candidate import Draft, Part
from rater.analysis.divots.data.finding import Kind
from rater.analysis.divots.data.noise_scales import Scales
from rater.analysis.divots.data.table import Table
from rater.analysis.divots.detectors.iterations import (
    Drift,
    SlowIteration,
    find_iterations,
    keepers,
    typical_change,
)
from rater.analysis.divots.detectors.startup import StartUp, find_startup, leaning
from rater.analysis.stats.robust import Floats, Ints, median

_MOST_STAY = 0.5
_MOST_CELLS = 0.7  # of a slow iteration's, in which a part kept its speed
_AS_MUCH = 0.4  # of the iteration's slowness, by which the part's own may differ


def startup_drafts(work: Work) -> list[Draft]:
    """Return start-up trouble; cells of a convoy are not judged any more.

    In those of a ramp groups are not: they start one after the other, and what a
    straight line leaves of a ramp would look like one of them.
    """
    drafts = []
    work.ramps |= leaning(work.table, work.r, work.groups)[:, None]
    for start in find_startup(work.table, work.r, work.groups, work.steps):
        drafts.append(_startup_draft(work.table, start))
        if start.mode in ("convoy", "input-wait"):
            work.started |= start.cells
        if start.mode == "convoy":
            work.left_out |= start.cells
        elif start.mode == "ramp":
            work.ramps |= start.cells.any(axis=1)[:, None]
    return drafts


def slots_of(table: Table, b: int, i: int) -> Ints:
    """Return the slots that have a time in a cell."""
    return np.flatnonzero(~np.isnan(table.log_s[b, i]))


def _startup_draft(table: Table, start: StartUp) -> Draft:
    late = start.mode == "late-start"
    parts = []
    for b, i in np.argwhere(start.cells):
        slots = slots_of(table, int(b), int(i))
        if start.effect is not None:
            effect = start.effect[b, i, slots]
        else:
            # What all copies lost; which of them lost how much is the start-up's own pattern.
            size = 0.0 if late else math.log1p(float(start.size[b, i]))
            effect = np.full(len(slots), size)
        parts.append(Part(int(b), int(i), slots, effect))
    return Draft(
        Kind.STARTUP,
        parts,
        np.ones(table.shape[2], dtype=bool),
        math.log1p(float(np.median(start.size[start.cells]))),
        facts={"mode": start.mode},
        skew=start.size if late else None,
    )


def iteration_drafts(work: Work, fair: Floats) -> list[Draft]:
    """Return slow iterations and drift; copies that kept their speed leave `work.r`.

    `fair` are ln times with what was found of groups taken out.
    """
    table, scales = work.table, work.scales
    medians = _cell_levels(fair)
    copies = np.sum(~np.isnan(table.log_s), axis=2).astype(np.float64)
    slow, drifts = find_iterations(medians, scales, copies, work.left_out | work.started)
    drafts = [
        draft for one in slow if (draft := _iteration_draft(work, fair, one, scales)) is not None
    ]
    return drafts + [_drift_draft(table, drift) for drift in drifts]


def with_spared(drafts: list[Draft], slow: list[Draft]) -> list[Draft]:
    """Return both together; a part that kept its speed in a slow iteration is said there only.

    Compared with the others it was fast, then and only then, by what they were slower.
    """
    gone: set[int] = set()
    for one in slow:
        cells = set(one.cells)
        for draft in drafts:
            own = set(draft.cells)
            spared = one.kind is Kind.SLOW_ITERATION and one.size > 0 and draft.level
            if (
                not spared
                or not own
                or not own <= cells
                or len(own) < _MOST_CELLS * len(cells)
                or abs(draft.size + one.size) > _AS_MUCH * one.size
            ):
                continue
            gone.add(id(draft))
            one.parts = [
                replace(part, slots=part.slots[keep], effect=part.effect[keep])
                for part in one.parts
                for keep in (~draft.slots[part.slots],)
            ]
            one.slots = one.slots & ~draft.slots
            one.facts["kept"] = float(one.facts["kept"]) + float(draft.slots.sum())
            if draft.level == "node":
                names = str(one.facts.get("spared", ""))
                one.facts["spared"] = f"{names} {draft.group}".strip()
    return [draft for draft in drafts if id(draft) not in gone] + slow


def _cell_levels(fair: Floats) -> Floats:
    """Return (B, I) cell medians, each copy against its own mean over the iterations.

    Where some copies failed, the median of the others is that of other copies: only
    those that are there every time count, unless they are less than half.
    """
    level = np.mean(fair, axis=1)  # (B, S) NaN where an iteration is missing
    own = median(fair - level[:, None, :]) + median(level)[:, None]
    present = np.sum(~np.isnan(fair).all(axis=1), axis=1)
    enough = 2 * np.sum(~np.isnan(level), axis=1) >= present
    return np.where(enough[:, None], own, median(fair))


def _iteration_draft(work: Work, fair: Floats, one: SlowIteration, scales: Scales) -> Draft | None:
    """Return a slow iteration; None where most copies of its benchmark kept their speed."""
    table = work.table
    benchmarks = range(table.shape[0]) if one.benchmark is None else (one.benchmark,)
    parts = []
    covered = np.zeros(table.shape[2], dtype=bool)
    away = 0
    for b in benchmarks:
        if work.left_out[b, one.iteration]:
            continue
        slots = slots_of(table, b, one.iteration)
        if one.benchmark is not None:
            own = typical_change(fair, b, one.iteration)
            stayed = keepers(own, one.size, float(scales.both[b]))
            if stayed[slots].mean() > _MOST_STAY:
                return None
            work.r[b, one.iteration, stayed] = np.nan
            away += int(stayed.sum())
            slots = slots[~stayed[slots]]
        covered[slots] = True
        parts.append(Part(b, one.iteration, slots, np.full(len(slots), one.size)))
    return Draft(
        Kind.SLOW_ITERATION,
        parts,
        covered,
        one.size,
        benchmark_wide=one.benchmark is None,
        facts={"agreeing": one.agreeing, "of": one.of, "z": one.z, "kept": away},
    )


def _drift_draft(table: Table, drift: Drift) -> Draft:
    b, i, s = table.shape
    parts = []
    for bench in range(b) if drift.benchmark is None else (drift.benchmark,):
        for k in range(i):
            slots = slots_of(table, bench, k)
            step = drift.size / (i - 1) * (k if drift.size > 0 else k - i + 1)
            parts.append(Part(bench, k, slots, np.full(len(slots), step)))
    return Draft(
        Kind.DRIFT,
        parts,
        np.ones(s, dtype=bool),
        drift.size,
        benchmark_wide=drift.benchmark is None,
        facts={"fit": drift.fit},
    )
