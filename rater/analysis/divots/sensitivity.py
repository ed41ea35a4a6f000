"""The smallest effects that a run could have shown, from its own shape and noise; pure.

Runs like it are made of its own residuals. The search's own criterion judges what is planted in
them, and the size is told of which four in five are found.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from rater.analysis.divots.model import limits
from rater.analysis.divots.model.detect import DetectionResult
from rater.analysis.divots.model.effects import PartScope, part_scopes, tails_of, worth_of
from rater.analysis.divots.model.finding import Thresholds
from rater.analysis.divots.model.fit import nearer, to_be_sure
from rater.analysis.divots.model.noise import (
    Tail,
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
    PartArrays,
    part_from_set,
    run_sets,
    split_sets,
    to_part_arrays,
)
from rater.analysis.stats.robust import Bools, Floats, mean, median, quantiles, subtract_median

_FOUND = 0.8  # of the planted ones: what is promised
_SEED = 1
_FEWEST, _MOST, _COPY_RUNS = 16, 24, 40_000  # runs made: so many copy runs, within those
_HALVINGS = 7  # of what an effect may be, at last from a quarter of a guess to half as much more
_FAR = 10.0  # ln: beyond all others
_MOST_SEEN = 1.0  # more is no promise: nothing was told from the noise
_GROUPS = ("node", "package", "llc", "memory", "half")


def visible(found: DetectionResult, thresholds: Thresholds) -> dict[str, float]:
    """Return the slowdowns found four times in five, as shares (0.006 is 0.6 %), by what is slow.

    `group`: an lgroup (or what else divides the copies) in all benchmarks, with three
    benchmarks or more; `group-benchmark`: one in any one benchmark; `cpu`: a CPU in all
    of a run of two or three copies; `copy`: a single copy in any one cell. Missing where
    nothing could be seen at all: with too few copies, or without groups.
    """
    b, _, s = found.table.shape
    seen: dict[str, float] = {}
    if not found.machine or np.isnan(found.residuals).all():
        return seen
    several = [part for part in found.machine if part.size > 1]
    kind = next((kind for kind in _GROUPS if any(part.kind == kind for part in several)), "")
    groups = [part for part in several if part.kind == kind]
    runs = _runs_like(found, groups, thresholds)
    if groups:
        seen["group-benchmark"] = _of_parts(found, groups, runs, thresholds, every=False)
        if b >= 3:
            seen["group"] = _of_parts(found, groups, runs, thresholds, every=True)
    if s <= 3 and b >= 3:
        single = [part for part in found.machine if part.size == 1]
        seen["cpu"] = _of_parts(found, single, runs, thresholds, every=True)
    if s >= 3:
        seen["copy"] = _of_copy(found, thresholds)
    return {name: math.expm1(size) for name, size in seen.items() if size <= math.log1p(_MOST_SEEN)}


def _runs_like(found: DetectionResult, groups: list[Part], thresholds: Thresholds) -> list[Floats]:
    """Return residuals (B, I, S) of runs like this one: its own, drawn anew.

    A copy's iterations stay together; copies change places, over the benchmarks. The noise is
    told as this run's is, and is more or less by how well all benchmarks together tell it.
    """
    b, i, s = found.residuals.shape
    random, noise = np.random.default_rng(_SEED), found.noise
    own = np.swapaxes(found.residuals / noise.between_copy_sd[:, None, None], 1, 2).reshape(
        b * s, i
    )
    own = own[~np.isnan(own).all(axis=1)]
    differ = _differences(found, groups, thresholds)
    runs, told = [], []
    for _ in range(_runs(found.residuals)):
        drawn = random.permutation(np.resize(own, (b * s, i))).reshape(b, s, i)
        doubt = math.exp(random.standard_normal() / math.sqrt(2 * noise.dof * b))
        drawn *= (noise.between_copy_sd * doubt)[:, None, None]
        runs.append(np.swapaxes(drawn, 1, 2))
        again = estimate_noise(subtract_median(runs[-1]), found.groups, noise.steps).between_copy_sd
        told.append(np.log(again / noise.between_copy_sd))
    less = math.exp(-float(np.mean(told)))
    slots = np.array([part.slots for part in groups]).reshape(len(groups), s)
    apart = [(differ * random.standard_normal(differ.shape)) @ slots for _ in runs]
    return [less * run + more[:, None] for run, more in zip(runs, apart, strict=True)]


def _runs(rest: Floats) -> int:
    return min(_MOST, max(_FEWEST, _COPY_RUNS // rest.size))


def _differences(found: DetectionResult, groups: list[Part], thresholds: Thresholds) -> Floats:
    """Return (B, P) what parts differ by beyond the least that is allowed for, as a sd."""
    if not groups:
        return np.zeros((len(found.residuals), 0))
    scope = next(part_scopes(found.residuals, to_part_arrays(groups), found.noise, thresholds))
    more: Floats = scope.error**2 * (1 - scope.chance) - limits.TAU_FEW**2
    return np.sqrt(np.maximum(0.0, more))


def _of_parts(
    found: DetectionResult,
    places: list[Part],
    runs: list[Floats],
    thresholds: Thresholds,
    *,
    every: bool,
) -> float:
    """Return the effect (ln) with which most of any of the places are found.

    In all benchmarks (`every`) or any one.
    """
    b, random = len(found.residuals), np.random.default_rng(_SEED)
    usual = next(part_scopes(found.residuals, to_part_arrays(places), found.noise, thresholds))
    tail = tails_of(usual, found.noise)[0]
    at = random.integers(len(places), size=len(runs))
    size = most = 1.01 * math.log1p(_MOST_SEEN)
    for first, low, high in ((len(runs) // 2, 0.001 / most, 1.0), (0, 0.25, 1.5)):
        least = []
        for k in range(first, len(runs)):
            there = (np.arange(b) == k % b) | every
            parts = [places[at[k]], *(it for it in places if it is not places[at[k]])]
            planted = size * there[:, None, None] * parts[0].slots
            seen = _seen(found, runs[k] + planted, parts, there, thresholds)
            least.append(_least(*seen, tail, planted=planted, between=(low * size, high * size)))
        size = _most_of(np.array(least))
    return size


def _most_of(least: Floats) -> float:
    """Return the effect with which most are found in yet another run, of the least by run (N, ...).

    The k-th of N is above the next one with probability k / (N + 1).
    """
    n = len(least)
    return float(quantiles(least.ravel(), (_FOUND * (n + 1) - 1) / (n - 1))[0])


def _seen(
    found: DetectionResult, run: Floats, parts: list[Part], there: Bools, thresholds: Thresholds
) -> tuple[PartScope, PartArrays, TimeNoise]:
    """Return what the search sees of parts, and of sets of copies that are nearly the first.

    As it names them, by some benchmarks (`there`); and the noise that it tells.
    """
    values = subtract_median(run)
    noise = estimate_noise(values, found.groups, found.noise.steps)
    levels = slot_medians(values)[there]
    z = np.clip(levels / noise.between_copy_sd[there, None], -8, 8)
    split = split_sets(np.concatenate((median(levels.T)[None], levels)))
    runs = run_sets(np.concatenate((mean(z.T)[None], z)))
    told = {one.tobytes(): part_from_set(one) for one in split if _nearly(one, parts[0].slots)}
    told |= {
        one.tobytes(): part_from_set(one, "run") for one in runs if _nearly(one, parts[0].slots)
    }
    arrays = to_part_arrays([parts[0], *told.values(), *parts[1:]])
    return next(part_scopes(values, arrays, noise, thresholds)), arrays, noise


def _least(
    scope: PartScope,
    arrays: PartArrays,
    noise: TimeNoise,
    tail: Tail,
    *,
    planted: Floats,
    between: tuple[float, float],
) -> float:
    """Return the least effect (ln) with which the first part, or nearly it, is found.

    What is seen is that with one planted (B, 1, S).
    """
    size, own = planted.max(), 1 + sum(kind in SETS for kind in arrays.kinds)
    share = planted[:, 0] / size
    low, high = map(math.log, between)
    for _ in range(_HALVINGS):
        more = math.exp((low + high) / 2) - size
        effect = scope.effect + more * share.max(axis=1, keepdims=True)
        asked = replace(scope, effect=effect, slot_medians=scope.slot_medians + more * share)
        won = (worth_of(asked, arrays, noise, 1, tail).won[:own] > 0).any()
        low, high = (low, (low + high) / 2) if won else ((low + high) / 2, high)
    return math.exp((low + high) / 2)


def _nearly(one: Bools, other: Bools) -> bool:
    """Tell whether two sets of copies are nearly, but not just, the same."""
    both = (one & other).sum()
    return bool(both >= limits.SAME * max(one.sum(), other.sum()) and (one != other).any())


def _of_copy(found: DetectionResult, thresholds: Thresholds) -> float:
    """Return the effect (ln) with which most of any copies in any cells are found.

    The tail and the spread of the noise are drawn anew: which this run is of, and which a
    fresh one shows.
    """
    rest, noise, random = found.residuals, found.noise, np.random.default_rng(_SEED)
    b, i, s = rest.shape
    spread, freedom = noise_of_cells(rest, found.groups, noise)
    z = nearer(rest, group_centred(rest, found.groups)) / spread[:, None, None]
    z, cost = z[~np.isnan(z)], math.log(s) + to_be_sure(rest, 1)
    told, lost = [], []
    for _ in range(_runs(rest)):
        told.append(_least_z(random.choice(random.choice(z, len(z)), len(z)), freedom, cost))
        far, at = rest.copy(), random.integers(s, size=(b, i, 1))
        np.put_along_axis(far, at, np.take_along_axis(far, at, axis=2) + _FAR, axis=2)
        far = subtract_median(far)
        seen = nearer(far, group_centred(far, found.groups))
        lost.append(_FAR - np.take_along_axis(seen, at, axis=2)[..., 0])
    # Drawn anew a heavy tail is lighter: what is left out is not drawn.
    least = np.array(told) * _least_z(z, freedom, cost) / math.exp(float(np.mean(np.log(told))))
    wider = s * i / (s * i - 1)  # a planted one is none of the half that lies together
    doubt = np.exp(random.standard_normal((len(told), b)) / math.sqrt(freedom))
    asked = np.maximum(
        math.log1p(thresholds.copy) + noise.steps, least[:, None] * wider * spread * doubt
    )
    return _most_of(asked[..., None] + lost)


def _least_z(z: Floats, freedom: float, cost: float) -> float:
    """Return how far out one must be to win so many nats against the tail of residuals."""
    z, places, least = z.copy(), np.linspace(0, 400, 4001), 0.0
    for _ in range(2):  # a planted one is in the tail that it is judged by
        z[0] = max(z[0], least)
        nats = fit_tail(z, freedom).log_evidence(places, freedom)
        least = places[min(int(np.searchsorted(nats, cost)), len(places) - 1)]
    return float(least)
