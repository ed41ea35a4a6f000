"""Start-up, slow iterations and drift as hits; pure."""

from __future__ import annotations

import numpy as np

from rater.analysis.divots.data.finding import Kind
from rater.analysis.divots.data.hit import Hit, total_effect
from rater.analysis.divots.data.table import Table
from rater.analysis.divots.model import limits
from rater.analysis.divots.model.iterations import (
    ALL,
    Drift,
    SlowIteration,
    find_iterations,
    keepers,
    typical_change,
)
from rater.analysis.divots.model.noise import TimeNoise
from rater.analysis.divots.model.parts import Part
from rater.analysis.divots.model.startup import find_startup
from rater.analysis.stats.robust import Bools, Floats, Ints, median


def startup_hits(
    table: Table, machine: list[Part], values: Floats, groups: Ints, steps: Floats
) -> tuple[list[Hit], Bools]:
    """Return start-up trouble and which cells (B, I) can be judged beyond it.

    Takes ramps out of `values`, in place. A cell with a ramp is not judged by parts: they start
    one after the other, and what a line leaves of a ramp would look like one.
    """
    judged = ~np.isnan(table.log_s).all(axis=2)
    hits = []
    there = ~np.isnan(table.log_s)
    for start in find_startup(table, machine, values, groups, steps):
        covered = there & start.cells[:, :, None]
        late = start.mode == "late-start"
        if start.effect is not None:
            effect = np.where(covered, start.effect, 0.0)
        else:
            # What all copies lost; which of them lost how much is the start-up's own pattern.
            lost = 0.0 if late else np.log1p(start.size)[:, :, None]
            effect = np.where(covered, lost, 0.0)
        hits.append(
            Hit(
                Kind.STARTUP,
                covered,
                effect,
                facts={"mode": start.mode},
                skew=start.size if late or start.effect is not None else None,
            )
        )
        if start.mode in ("convoy", "ramp"):
            judged &= ~start.cells
    return hits, judged


def iteration_hits(
    table: Table, hits: list[Hit], rest: Floats, noise: TimeNoise
) -> tuple[list[Hit], Floats]:
    """Return the hits with slow iterations and drift, and what is left of `rest` (B, I, S).

    Copies that kept their speed in a slow iteration are not judged there; a part that did
    is said there only.
    """
    fair = table.log_s - total_effect(table.shape, hits)
    for hit in hits:
        if hit.kind in (Kind.BIMODAL, Kind.WANDERING):
            # Which copies are in which mode changes the middle of all: the others have a level.
            moved = hit.covered & (hit.level != "turns")
            fair[moved] = np.nan
    started = np.zeros(rest.shape[:2], dtype=bool)
    for hit in hits:
        if hit.kind is Kind.STARTUP and hit.facts["mode"] in ("convoy", "input-wait", "ramp"):
            started |= hit.covered.any(axis=2)
    copies = np.sum(~np.isnan(table.log_s), axis=2).astype(np.float64)
    empty = np.isnan(table.log_s).all(axis=2)
    slow, drifts = find_iterations(_cell_levels(fair), noise, copies, empty | started)
    rest = rest.copy()
    made = []
    for one in slow:
        found = _iteration_hit(table, fair, one, rest, noise)
        if found is not None:
            made.append(found)
    return _with_spared(hits, made) + [_drift_hit(table, one) for one in drifts], rest


def _with_spared(hits: list[Hit], slow: list[Hit]) -> list[Hit]:
    """Return both; a part that kept its speed in a slow iteration is said there only."""
    gone: set[int] = set()
    for one in slow:
        cells = set(one.cells)
        for hit in hits:
            own = set(hit.cells)
            if (
                one.size <= 0
                or not hit.level
                or not own <= cells
                or len(own) < limits.MOST * len(cells)
                or abs(hit.size + one.size) > limits.SHOWS * one.size
            ):
                continue
            gone.add(id(hit))
            one.covered &= ~hit.covered
            one.effect = np.where(one.covered, one.effect, 0.0)
            one.facts["kept"] = float(one.facts["kept"]) + float(hit.slots.sum())
            if hit.level == "node":
                names = " ".join(str(name) for name in hit.groups)
                one.facts["spared"] = f"{one.facts.get('spared', '')} {names}".strip()
    return [hit for hit in hits if id(hit) not in gone] + slow


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


def _iteration_hit(
    table: Table, fair: Floats, one: SlowIteration, rest: Floats, noise: TimeNoise
) -> Hit | None:
    """Return a slow iteration; None where most copies of its benchmark kept their speed."""
    covered = np.zeros(table.shape, dtype=bool)
    away, k = 0, one.iteration
    sizes = np.full(table.shape[0], np.nan)
    sizes[one.benchmark] = one.size
    if one.benchmark == ALL:
        sizes = np.array(one.sizes)
    for b in np.flatnonzero(~np.isnan(sizes)).tolist():
        there = ~np.isnan(table.log_s[b, k])
        if one.benchmark != ALL:
            own = typical_change(fair, b, k)
            stayed = keepers(own, one.size, float(noise.repeat[b])) & there
            known = there & ~np.isnan(own)  # not of copies that failed in the other iterations
            if stayed.sum() > limits.HALF * known.sum():
                return None
            rest[b, k, stayed] = np.nan
            away += int(stayed.sum())
            if known.any():
                sizes[b] += float(np.median(own[known & ~stayed]) - np.median(own[known]))
            there &= ~stayed
        covered[b, k] = there
    return Hit(
        Kind.SLOW_ITERATION,
        covered,
        np.where(covered, sizes[:, None, None], 0.0),
        everywhere=one.benchmark == ALL,
        facts={"agreeing": one.agreeing, "of": one.of, "kept": away},
    )


def _drift_hit(table: Table, drift: Drift) -> Hit:
    b, i, _ = table.shape
    covered = ~np.isnan(table.log_s)
    if drift.benchmark is not None:
        covered &= (np.arange(b) == drift.benchmark)[:, None, None]
    steps = drift.size / (i - 1) * (np.arange(i) if drift.size > 0 else np.arange(i) - i + 1)
    return Hit(
        Kind.DRIFT,
        covered,
        np.where(covered, steps[None, :, None], 0.0),
        everywhere=drift.benchmark is None,
        facts={"fit": drift.fit, "rise": drift.size},
    )
