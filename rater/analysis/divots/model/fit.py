"""Parts enter the model one by one while they pay for it; all effects are estimated together."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.model import limits
from rater.analysis.divots.model.effects import Candidate, choices, part_scopes
from rater.analysis.divots.model.finding import Thresholds
from rater.analysis.divots.model.noise import (
    TimeNoise,
    estimate_noise,
    fit_tail,
    group_centred,
    noise_of_cells,
    slot_medians,
)
from rater.analysis.divots.model.parts import (
    SETS,
    Part,
    part_from_set,
    run_sets,
    split_sets,
    to_part_arrays,
)
from rater.analysis.stats.robust import Bools, Floats, Ints, mean, median, subtract_median


@dataclass(slots=True, eq=False)
class PartEffect:
    """A part in the model: where it differs, and by how much."""

    part: Part
    benchmarks: Bools  # (B,)
    iterations: Bools  # (I,)
    size: Floats  # (B, I) ln, 0 elsewhere
    won: float
    everywhere: bool

    def effect(self) -> Floats:
        """Return (B, I, S) what it does to the times."""
        whole: Floats = self.size[:, :, None] * self.part.slots
        return whole


def fit_parts(
    values: Floats,
    machine: list[Part],
    groups: Ints,
    steps: Floats,
    thresholds: Thresholds,
    *,
    sets: bool = True,
) -> tuple[list[PartEffect], Floats, TimeNoise]:
    """Return the parts in the model of (B, I, S), what is left, and how that varies.

    `sets`: sets of copies that only the times name are parts as well.
    """
    entries: list[PartEffect] = []
    rest = subtract_median(values)
    noise = estimate_noise(rest, groups, steps)
    for _ in range(limits.MOST_FINDINGS):
        best = _best(rest, machine, noise, thresholds, entries, sets=sets)
        if best is None:
            break
        size = np.zeros(values.shape[:2])
        entries.append(
            PartEffect(best.part, best.benchmarks, best.iterations, size, best.won, best.everywhere)
        )
        rest = _estimate(values, entries)
        noise = estimate_noise(rest, groups, steps, told_alone(entries, values.shape))
    return entries, rest, noise


def told_alone(entries: list[PartEffect], shape: tuple[int, ...]) -> Bools:
    """Return the copies (B, S) whose level is an effect of their own, of runs (B, I, S)."""
    told = np.zeros((shape[0], shape[2]), dtype=bool)
    for it in entries:
        if it.part.size == 1:
            told |= it.benchmarks[:, None] & it.part.slots
    return told


def _best(
    rest: Floats,
    machine: list[Part],
    noise: TimeNoise,
    thresholds: Thresholds,
    entries: list[PartEffect],
    *,
    sets: bool,
) -> Candidate | None:
    """Return the part that explains most of those that pay for themselves."""
    i = rest.shape[1]
    levels = slot_medians(rest)
    z = levels / noise.between_copy_sd[:, None]
    clipped = np.clip(z, -8, 8)
    pooled = median(levels.T)[None]
    profiles = np.concatenate((pooled, levels))
    seen = {part.slots.tobytes() for part in machine}
    found = [(mask, "set") for mask in split_sets(profiles)]
    if i > 1:
        found += [(mask, "set") for row in rest for mask in split_sets(row)]
    found = [
        (mask, "run") for mask in run_sets(np.concatenate((mean(clipped, axis=0)[None], clipped)))
    ] + found
    extra = []
    for mask, kind in found if sets else ():
        if mask.tobytes() not in seen and 2 <= mask.sum() < len(mask):
            seen.add(mask.tobytes())
            extra.append(part_from_set(mask, kind))
    if not machine:
        return None
    parts = to_part_arrays(machine + extra)
    offered = choices(list(part_scopes(rest, parts, noise, thresholds)), parts, noise)
    offered = [one for one in offered if not _is_modelled(one, entries)]
    best = max(offered, key=lambda one: one.explained, default=None)
    if best is None or best.part.kind not in SETS:
        return best
    # A part of the machine that is most of it comes first; what is left over follows.
    slots = best.part.slots
    inside = [
        one
        for one in offered
        if one.part.kind not in SETS
        and one.part.size >= max(2, best.part.size / 2)
        and (one.part.slots & slots).sum() >= limits.SAME * one.part.size
        and one.sign == best.sign
        and not (one.iterations & ~best.iterations).any()
        and 2 * (one.benchmarks & best.benchmarks).sum() >= best.benchmarks.sum()
    ]
    return max(inside, key=lambda one: one.explained, default=best)


def _is_modelled(one: Candidate, entries: list[PartEffect]) -> bool:
    """Tell whether a part is in the model already just there."""
    return any(
        it.part.slots.tobytes() == one.part.slots.tobytes()
        and not (one.benchmarks & ~it.benchmarks).any()
        and not (one.iterations & ~it.iterations).any()
        for it in entries
    )


def _estimate(values: Floats, entries: list[PartEffect]) -> Floats:
    """Estimate all effects together, in place, and return what is left."""
    total = np.zeros_like(values)
    for it in entries:
        total += it.effect()
    for _ in range(3 if len(entries) > 1 else 1):
        for it in entries:
            total -= it.effect()
            free = values - total
            cells = np.ix_(np.flatnonzero(it.benchmarks), np.flatnonzero(it.iterations))
            own = free[cells]
            apart = median(own[..., it.part.slots]) - median(own[..., ~it.part.slots])
            typical = np.nan_to_num(mean(apart, axis=1) if apart.shape[1] <= 2 else median(apart))
            if apart.shape[1] > 2:  # where it is not, it is not told
                usual = float(np.median(typical))
                shows = np.sign(usual) * median(apart.T) >= limits.SHOWS * abs(usual)
                places = np.flatnonzero(it.iterations)
                if shows.any() and not shows.all():
                    it.iterations = np.isin(np.arange(values.shape[1]), places[shows])
                    cells = np.ix_(np.flatnonzero(it.benchmarks), places[shows])
            it.size = np.zeros(values.shape[:2])
            it.size[cells] = typical[:, None]
            total += it.effect()
    return subtract_median(values - total)


def nearer(one: Floats, other: Floats) -> Floats:
    """Return what both show: the smaller of two deviations, 0 where they have two signs."""
    least = np.where(np.abs(one) <= np.abs(other), one, other)
    return np.where(one * other < 0, 0.0, least)


def to_be_sure(rest: Floats, sign: int) -> float:
    """Return the nats that slow (1) or fast (-1) copies of one cell of (B, I, S) must win."""
    share = 1 - limits.FAST_SHARE if sign > 0 else limits.FAST_SHARE
    cells = int((~np.isnan(rest)).any(axis=2).sum())
    return math.log(max(1, cells) / (share * limits.ALPHA_SINGLE))


def single_copies(rest: Floats, groups: Ints, noise: TimeNoise, thresholds: Thresholds) -> Floats:
    """Return effects (B, I, S) of copies that stand out in a cell.

    From all copies, and from those like them (`groups`): what a part of the machine does by
    nature is no fault of one copy. The m-th of a cell as far out as that is what Poisson's law
    seldom gives: m nats of its own less the ways to choose m of the copies.
    """
    s = rest.shape[2]
    effects = np.zeros_like(rest)
    if s < 3:
        return effects
    scale, freedom = noise_of_cells(rest, groups, noise)
    least = math.log1p(thresholds.copy) + noise.steps[:, None, None]
    left = nearer(rest, group_centred(rest, groups))
    for _ in range(3):  # those found no longer hide others
        z = left / scale[:, None, None]
        found = np.zeros(rest.shape, dtype=bool)
        for sign in (1, -1):
            # Fast ones count only with an empty gap behind them: a tail of fast copies is usual.
            tail = fit_tail(sign * z, freedom)
            nats = tail.log_evidence(np.nan_to_num(sign * z), freedom)
            small = sign * np.nan_to_num(left) < least
            nats = np.where(small, 0.0, nats)
            order = np.argsort(-np.nan_to_num(sign * z), axis=2, kind="stable")
            ranked = np.take_along_axis(nats, order, axis=2)
            most = max(1, int(limits.SIDE * s))
            ways = np.cumsum(np.log((s - np.arange(most)) / np.arange(1, most + 1)))
            place = np.arange(1, most + 1)
            # Of several, twice as many may be that far out as the tail says.
            ways = ways + np.where(place > 1, place * math.log(2), 0.0)
            won = place * ranked[:, :, :most] - ways - to_be_sure(rest, sign)
            won[ranked[:, :, :most] == 0] = -np.inf
            far = sign * np.take_along_axis(np.nan_to_num(left), order, axis=2)
            behind = far[:, :, :most] - far[:, :, 1 : most + 1]
            bare = behind >= limits.HALF * far[:, :, :most]
            if sign < 0:
                won[~bare] = -np.inf
            count = np.where((won > 0).any(axis=2), 1 + np.argmax(won, axis=2), 0)
            for at in np.argwhere(count > 0):
                cell = (at[0], at[1])
                found[(*cell, order[cell][: count[cell]])] = True
        if not found.any():
            break
        effects[found] = rest[found]
        left = subtract_median(np.where(found, np.nan, left))
    return effects
