"""The smallest effects that a run could have shown, from its own shape and noise; pure.

The search's own criterion is asked: effects of a size, with what the run's noise adds to them,
are judged as if they had been measured, and the size is told of which four in five are found.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from rater.analysis.divots.data.finding import Thresholds
from rater.analysis.divots.model import limits
from rater.analysis.divots.model.detect import Detected
from rater.analysis.divots.model.effects import PartScope, scopes_of
from rater.analysis.divots.model.fit import to_be_sure
from rater.analysis.divots.model.noise import group_centred, noise_of, noise_of_cells, tail_of
from rater.analysis.divots.model.parts import PartArrays, arrays_of
from rater.analysis.divots.model.score import tails_of, worth_of
from rater.analysis.stats.robust import MEDIAN_ERROR, Bools, Ints, mean, median, quantiles

_FOUND = 0.8  # of the planted ones: what is promised
_DRAWS, _SEED = 200, 1  # as many make that share known to 3 %
_PLANTS = 24  # of those whose noise is told again: its width to 5 %
_FAR = 10.0  # ln: beyond all others
_MOST_SEEN = 1.0  # more is no promise: nothing was told from the noise
_GROUPS = ("node", "package", "llc", "memory", "half")


def visible(found: Detected, thresholds: Thresholds) -> dict[str, float]:
    """Return the slowdowns found four times in five, as shares (0.006 is 0.6 %), by what is slow.

    `group`: an lgroup (or what else divides the copies) in all benchmarks, with three
    benchmarks or more; `group-benchmark`: one in any one benchmark; `cpu`: a CPU in all
    of a run of two or three copies; `copy`: a single copy in any one cell. Missing where
    nothing could be seen at all: with too few copies, or without groups.
    """
    b, _, s = found.table.shape
    seen: dict[str, float] = {}
    if not found.machine:
        return seen
    parts = arrays_of(found.machine)
    scope = scopes_of(found.rest, parts, found.noise, thresholds)[0]
    kinds, one, every = np.array(parts.kinds), np.arange(b)[:, None], np.ones((b, 1), dtype=bool)
    kind = next((k for k in _GROUPS if ((kinds == k) & (parts.sizes > 1)).any()), "")
    if kind:
        places = np.flatnonzero((kinds == kind) & (parts.sizes > 1))
        seen["group-benchmark"] = _found_at(
            found, scope, parts, places, one == np.arange(_DRAWS) % b
        )
        if b >= 3:
            seen["group"] = _found_at(found, scope, parts, places, every)
    if s <= 3 and b >= 3:
        seen["cpu"] = _found_at(found, scope, parts, np.flatnonzero(parts.sizes == 1), every)
    if s >= 3:
        seen["copy"] = _of_copy(found, thresholds)
    return {name: math.expm1(size) for name, size in seen.items() if size <= math.log1p(_MOST_SEEN)}


def _found_at(
    found: Detected, scope: PartScope, parts: PartArrays, places: Ints, planted: Bools
) -> float:
    """Return the effect (ln) with which most of any of the parts (`places`) are found.

    `planted` (B, draws) tells in which benchmarks it is.
    """
    random = np.random.default_rng(_SEED)
    at = random.choice(places, _DRAWS)
    error, chance = scope.error[:, at], scope.chance[:, at]
    # What parts differ by beyond the least that is allowed for was seen in this run.
    seen = np.maximum(0.0, error**2 * (1 - chance) - limits.TAU_FEW**2)
    # What the noise is told as is a guess: it may be more, and another run guesses it again.
    doubt = 1 / math.sqrt(2 * found.noise.freedom)
    true, told = np.exp(doubt * np.cumsum(random.standard_normal((2, *error.shape)), axis=0))
    scatter = np.sqrt((error * true) ** 2 * chance + seen) * random.standard_normal(error.shape)
    # Of two copies what both show is told: in each cell less, by half of what they differ by.
    cell = true * np.maximum(found.noise.between, found.noise.repeat)[:, None] / math.sqrt(2)
    apart = mean(np.abs(random.standard_normal((*error.shape, found.table.shape[1]))))
    scatter -= np.where(parts.sizes[at] == 2, cell * apart, 0.0)
    wider = _wider(found, parts, at, planted)
    error, narrow = error * np.sqrt(1 + chance * (wider**2 - 1)), error
    more = mean(error**2, axis=0) - mean(narrow**2, axis=0)
    all_error = np.sqrt(scope.all_error[at] ** 2 + MEDIAN_ERROR**2 / len(error) * more)
    error = error * np.sqrt(1 + chance * (told**2 - 1))
    drawn = PartArrays(
        tuple(parts.parts[place] for place in at),
        parts.index[at],
        parts.sizes[at],
        tuple(parts.kinds[place] for place in at),
    )
    tail = tails_of(scope, found.noise)[0]
    low, high = 0.0, math.log1p(_MOST_SEEN) * 1.01
    for _ in range(16):
        size = (low + high) / 2
        asked = replace(
            scope,
            effect=np.where(planted, size, 0.0) + scatter,
            error=error,
            chance=chance,
            all_error=all_error,
            shows=np.ones(error.shape, dtype=bool),
            least=scope.least[at],
            everywhere=scope.everywhere[at],
            need=scope.need[at],
        )
        won = worth_of(asked, drawn, found.noise, 1, tail).won > 0
        low, high = (size, high) if won.mean() < _FOUND else (low, size)
    return high


def _wider(found: Detected, parts: PartArrays, at: Ints, planted: Bools) -> float:
    """Return how much wider the noise is told where one of the parts (`at`) differs.

    Its copies are none of the half that lies closest together, if they are held to be like
    others: some are planted in the run's own noise, which is told again.
    """
    rest, groups, steps = found.rest, found.groups, found.noise.steps
    usual, ratios = noise_of(rest, groups, steps).between, []
    for place, there in list(zip(at, planted.T, strict=False))[:_PLANTS]:
        far = np.where(there[:, None, None] & parts.parts[place].slots, _FAR, 0.0)
        ratios.append((noise_of(rest + far, groups, steps).between / usual)[there])
    return math.exp(float(np.mean(np.log(np.concatenate(ratios)))))


def _of_copy(found: Detected, thresholds: Thresholds) -> float:
    """Return the effect (ln) with which most of any copies in any cells are found."""
    b, i, s = found.table.shape
    rest, steps, random = found.rest, found.noise.steps, np.random.default_rng(_SEED)
    spread, freedom = noise_of_cells(rest, found.groups, found.noise)
    scale, z = spread[:, None], np.linspace(0, 400, 4001)
    cost = math.log(s) + to_be_sure(rest, 1)
    own = np.minimum(rest, group_centred(rest, found.groups)) / scale[:, None]
    least_z = 0.0
    for _ in range(2):  # a planted one is in the tail that it is judged by
        own[0, 0, 0] = np.fmax(own[0, 0, 0], least_z)
        tail = tail_of(own, freedom)
        least_z = z[min(int(np.searchsorted(tail.gain(z, freedom), cost)), len(z) - 1)]
    # Another run's noise is another guess at the same, as this one's is.
    doubt = math.hypot(1 / math.sqrt(freedom), math.sqrt(2) * tail.doubt(cost))
    wider = scale * s * i / (s * i - 1)  # a planted one is none of the half that lies together
    sizes = []
    for _ in range(max(8, _DRAWS // (b * i))):
        planted, at = rest.copy(), random.integers(s, size=(b, i, 1))
        far = np.take_along_axis(planted, at, axis=2) + _FAR
        np.put_along_axis(planted, at, far, axis=2)
        planted -= median(planted)[..., None]
        seen = np.minimum(planted, group_centred(planted, found.groups))
        lost = _FAR - np.take_along_axis(seen, at, axis=2)[..., 0]
        asked = least_z * wider * np.exp(doubt * random.standard_normal((b, i)))
        least = np.maximum(math.log1p(thresholds.copy) + steps[:, None], asked)
        sizes.append(least + lost)
    return float(quantiles(np.array(sizes).ravel(), _FOUND)[0])
