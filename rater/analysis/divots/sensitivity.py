"""The smallest effects that a run could have shown, from its own noise; pure."""

from __future__ import annotations

import math

import numpy as np

from rater.analysis.divots.data.finding import Thresholds
from rater.analysis.divots.detectors.copies import ALPHA, fit_tail, lone_needed
from rater.analysis.divots.detectors.cpus import (
    FEW_Z,
    FEWEST,
    LEAST_CELLS,
    few_error,
    units,
    visible_among_few,
)
from rater.analysis.divots.detectors.groups import (
    EVERYWHERE_SHARE,
    EXCEPTIONAL,
    OWN_NOISE,
    STEADY_LEAST,
    TAU,
    TAU_ALONE,
    Z_STEADY,
    Z,
    measure,
)
from rater.analysis.divots.pipeline import Detected
from rater.analysis.stats.robust import MEDIAN_ERROR, middle

_OWN_TAIL = 10  # of so few values a slow one makes up the tail it is judged by
_MOST_SEEN = 1.0
# Noise of what is slow hides as often as it helps: so many of its spreads more, and four of five
# are found (planted in noise of four kinds).
_OFTEN = 1.3
_FEW = 16  # copies, whose spread is known so badly that it counts twice


def visible(found: Detected, thresholds: Thresholds) -> dict[str, float]:
    """Return the slowdowns found four times in five, as shares (0.006 is 0.6 %), by what is slow.

    `group`: an lgroup (or what else divides the copies) in all benchmarks, with three
    benchmarks or more; `group-benchmark`: one in a typical benchmark; `cpu`: one of two
    or three CPUs (or copies, where CPUs are not known) in all of the run; `copy`: a
    single copy in one cell of a typical benchmark. Missing where nothing could be
    seen at all: with too few copies, or without groups.
    """
    b, i, s = found.table.shape
    scale = middle(found.scales.both)
    seen: dict[str, float] = {}
    for level in found.levels[:1]:
        effects = measure(found.residuals, level)
        if effects is None:
            continue
        size = float(np.median(effects.sizes))
        # What a group is compared with is noisy as well: of two, the other one.
        often = _OFTEN * math.sqrt(1 + 1 / (len(effects.names) - 1))
        floor = TAU if i > 1 or len(effects.names) >= 5 else TAU_ALONE
        tau = max(floor, middle(effects.tau))
        own = max(MEDIAN_ERROR * scale / math.sqrt(size), middle(effects.jitter)) / math.sqrt(i)
        least, far = thresholds.group, Z * math.hypot(tau, own)
        exceptional = math.expm1(EXCEPTIONAL * effects.natural)
        if i > 1:  # in every iteration alike
            least = min(least, max(STEADY_LEAST * least, exceptional))
            far = max(Z_STEADY * math.hypot(tau, own), OWN_NOISE * own)
        seen["group-benchmark"] = math.expm1(max(math.log1p(least), far) + often * own)
        if b >= 3:
            error = MEDIAN_ERROR * scale / math.sqrt(size * b * i)
            least = thresholds.group
            whole = min(least, max(EVERYWHERE_SHARE * least, exceptional))
            everywhere = max(math.log1p(whole), Z * math.hypot(TAU, error))
            seen["group"] = math.expm1(everywhere + often * error)
    few = visible_among_few(found.residuals, units(found.table.cpu), math.log1p(thresholds.copy))
    if few is not None:
        seen["cpu"] = math.expm1(few)
    if s >= 3:
        z = found.residuals / found.scales.right[:, None, None]
        tail = fit_tail(z[~np.isnan(z)])
        expected = ALPHA / (2 * b * i)
        needed = (tail.start + tail.beta * math.log(s * tail.share / expected)) * (1 + 2 / s)
        right = middle(found.scales.right)
        least = max(math.log1p(thresholds.copy), needed * right)
        if s * b * i <= _OWN_TAIL:
            least = max(least, lone_needed(found.residuals))
        seen["copy"] = math.expm1(least + _OFTEN * (1 + _FEW / s) * right)
    elif s == FEWEST and i == 1 and b >= LEAST_CELLS:  # of several iterations: in all of them
        error = few_error(found.residuals[..., 1] - found.residuals[..., 0])
        seen["copy"] = max(thresholds.copy, FEW_Z * (1 + 4 / (b * i)) * error)
    # More than that is no promise: nothing was told from the noise.
    return {name: size for name, size in seen.items() if size <= _MOST_SEEN}
