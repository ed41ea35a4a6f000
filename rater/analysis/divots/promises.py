"""The smallest effects that a run could show, in closed form from the search's thresholds; pure.

What a part must differ by to be told is known from what it is judged by. It is promised where four
in five that are so large are: most of the thresholds, and the chance in what is seen of it.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

import numpy as np

from rater.analysis.divots.model.places import Scope
from rater.analysis.divots.model.search import Found
from rater.analysis.divots.model.times import visible_iteration
from rater.analysis.stats.robust import Floats, Ints

_FOUND: Final = 0.8  # of those that are so large
_MOST_TOLD: Final = 0.5  # ln(1.65): larger is no promise, nothing was told from the noise
_SAMPLED: Final = 48  # parts and rows that stand for all
_HALVINGS: Final = 10
_GROUPS: Final = ("node", "package", "llc", "memory")


def visible(found: Found) -> dict[str, float]:
    """Return the slowdowns found four times in five, as shares (0.006 is 0.6 %), by what is slow.

    `group`: the smallest lgroup (or what else divides the copies) in all benchmarks;
    `group-benchmark`: one in any one benchmark; `cpu`: a CPU in all of the run; `copy-benchmark`: a
    copy in all iterations of one benchmark; `copy`: one in any one cell; `iteration`: a slow
    iteration of all benchmarks. Missing where nothing could be told from the noise.
    """
    scopes = {(one.family.kind, one.name): one for one in found.scopes}
    kind = next((it for it in _GROUPS if (it, "one") in scopes), "")
    b, i, _ = found.table.shape
    wanted = {
        "group": scopes.get((kind, "all" if b > 1 else "one")),
        "group-benchmark": scopes.get((kind, "one")),
        "cpu": scopes.get(("copy", "all" if b > 1 else "one")),
        "copy-benchmark": scopes.get(("copy", "one")) if b > 1 and i > 1 else None,
        "copy": scopes.get(("copy", "cell" if i > 1 else "one")),
    }
    sizes = {name: _of(one) for name, one in wanted.items() if one is not None}
    iteration = visible_iteration(found.over_time, found.effects)
    if iteration is not None:
        sizes["iteration"] = iteration
    return {name: math.expm1(size) for name, size in sizes.items() if size <= _MOST_TOLD}


def _of(scope: Scope) -> float:
    """Return the size (ln) with which most of the smallest parts are found."""
    smallest = np.flatnonzero(scope.family.sizes == scope.family.sizes.min())
    rows, parts = np.meshgrid(np.arange(len(scope.d)), smallest, indexing="ij")
    step = max(1, rows.size // _SAMPLED)
    at = (rows.ravel()[::step], parts.ravel()[::step])
    price = scope.price + (math.log(2) if scope.name == "one" and len(scope.d) > 1 else 0.0)
    least = np.maximum(_thresholds(scope, at, price), scope.floor)
    error = scope.error[at]
    low, high = float(least.min()), float(least.max() + 6 * error.max())
    for _ in range(_HALVINGS):
        size = (low + high) / 2
        seen = np.mean([NormalDist().cdf(z) for z in ((size - least) / error).tolist()])
        low, high = (low, size) if seen >= _FOUND else (size, high)
    return high


def _thresholds(scope: Scope, at: tuple[Ints, Ints], price: float) -> Floats:
    """Return the difference (ln) from which each part is told."""
    low, high = np.zeros(len(at[0])), np.full(len(at[0]), 2 * _MOST_TOLD)
    for _ in range(_HALVINGS):
        size = (low + high) / 2
        told = scope.evidence(size, at) > price
        low, high = np.where(told, low, size), np.where(told, size, high)
    return high
