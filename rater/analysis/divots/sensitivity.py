"""The smallest effects that a run could have shown, from its own shape and noise; pure.

What a part must differ by to pay for its description, by the rules of the search itself; and so
much more that four of five are found: the noise hides as often as it helps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rater.analysis.divots.data.finding import Thresholds
from rater.analysis.divots.model import limits
from rater.analysis.divots.model.detect import Detected
from rater.analysis.divots.model.effects import PartScope, scopes_of
from rater.analysis.divots.model.noise import gain, tail_of
from rater.analysis.divots.model.parts import arrays_of
from rater.analysis.divots.model.score import cost_of, freedom_of, to_name
from rater.analysis.stats.robust import Floats, middle

# Standard errors more than what just pays, with which four of five planted ones are found (by
# simulation; 0.84 of a normal distribution, the rest is what the plant does to the noise).
_POWER, _POWER_COPY = 1.2, 1.6
_MOST_SEEN = 1.0  # more is no promise: nothing was told from the noise
_GROUPS = ("node", "package", "llc", "memory", "half")


def visible(found: Detected, thresholds: Thresholds) -> dict[str, float]:
    """Return the slowdowns found four times in five, as shares (0.006 is 0.6 %), by what is slow.

    `group`: an lgroup (or what else divides the copies) in all benchmarks, with three
    benchmarks or more; `group-benchmark`: one in a typical benchmark; `cpu`: a CPU in all
    of a run of two or three copies; `copy`: a single copy in one cell of a typical
    benchmark. Missing where nothing could be seen at all: with too few copies, or
    without groups.
    """
    b, i, s = found.table.shape
    seen: dict[str, float] = {}
    if not found.machine:
        return seen
    parts = arrays_of(found.machine)
    scope = scopes_of(found.rest, parts, found.noise, thresholds)[0]
    kind = next(
        (k for k in _GROUPS if ((np.array(parts.kinds) == k) & (parts.sizes > 1)).any()), ""
    )
    if kind:
        place = _typical(parts.sizes, np.array([it == kind for it in parts.kinds]))
        seen["group-benchmark"] = _of_part(found, scope, place, thresholds.group)
        if b >= 3:
            seen["group"] = _of_all(found, scope, place, limits.EVERYWHERE)
    if s <= 3 and b >= 3:
        place = _typical(parts.sizes, parts.sizes == 1)
        seen["cpu"] = _of_all(found, scope, place, limits.COPY_ALWAYS)
    if s >= 3:
        scale = np.maximum(
            found.noise.repeat if i > 1 else found.noise.between, found.noise.between
        )
        tail = tail_of(found.rest / scale[:, None, None])
        cost = math.log(s * b * i) - math.log(limits.ALPHA_SINGLE)
        z = _least_z(lambda it: float(tail.gain(np.array(it), found.noise.freedom)), cost)
        least = max(math.log1p(thresholds.copy), z * middle(scale))
        seen["copy"] = least + _POWER_COPY * middle(found.noise.repeat)
    return {name: math.expm1(size) for name, size in seen.items() if size <= math.log1p(_MOST_SEEN)}


def _typical(sizes: Floats, among: Floats) -> int:
    """Return the part of usual size."""
    places = np.flatnonzero(among)
    return int(places[np.argsort(sizes[places], kind="stable")[len(places) // 2]])


def _of_part(found: Detected, scope: PartScope, place: int, least: float) -> float:
    part, error = found.machine[place], middle(scope.error[:, place])
    free = float(_freedom(found, scope, place))
    cost = cost_of(part, scope) + to_name(found.table.shape[0])
    z = _least_z(lambda it: float(gain(np.array(it), free)), cost)
    return max(math.log1p(least), z * error) + _POWER * error


def _of_all(found: Detected, scope: PartScope, place: int, least: float) -> float:
    error = float(scope.all_error[place])
    free = float(_freedom(found, scope, place)) * math.ceil(found.table.shape[0] / 2)
    z = _least_z(lambda it: float(gain(np.array(it), free)), cost_of(found.machine[place], scope))
    return max(least, z * error) + _POWER * error


def _freedom(found: Detected, scope: PartScope, place: int) -> float:
    tail = tail_of(scope.levels / scope.scale[:, None])
    count = np.array([float(found.machine[place].size)])
    return float(freedom_of(scope, count, found.noise, tail)[0])


def _least_z(nats: Callable[[float], float], cost: float) -> float:
    """Return the least z that wins so many nats, which grow with it."""
    low, high = 0.0, 1.0
    while nats(high) < cost and high < 1e4:
        low, high = high, 2 * high
    for _ in range(40):
        middle_z = (low + high) / 2
        low, high = (middle_z, high) if nats(middle_z) < cost else (low, middle_z)
    return high
