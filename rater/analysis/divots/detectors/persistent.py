"""Copies that are slow, or fast, in a benchmark every time it runs; pure.

On a quiet machine a copy's time repeats to a few tenths of a per cent while copies
differ by several per cent, in a pattern that is the same every time. The yardstick
is then how well a copy repeats, not how much all copies differ (the note's section
9.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.data.noise_scales import least_spread
from rater.analysis.divots.detectors.copies import poisson_tail
from rater.analysis.stats.robust import MAD_TO_SD, MEDIAN_ERROR, Bools, Floats, mad, median

_Z = 8.0
_ALONE = 5.5  # spreads of the others' typical times
_COINCIDENCE = 0.01
_ALIKE = 0.5  # of the typical effect, what each iteration shows at least


@dataclass(frozen=True, slots=True, eq=False)
class Persistent:
    """What repeats and what does not, by benchmark."""

    typical: Floats  # (B, S) median over the iterations
    repeat: Floats  # (B,) standard deviation of a copy from iteration to iteration
    spread: Floats  # (B,) of the copies' typical times, what is left after the repeats' part
    stands_out: Bools  # (B, S)
    alone: Bools  # (B, S) of these, those far beyond the others' own pattern


def _coincide(usable: Floats, typical: Floats, alike: Bools, stands_out: Bools) -> Bools:
    """Return which copies (B, S) may be off every time by chance.

    Where copies that do not repeat are as far off, now this one, now that one, some are
    so in every iteration: with a share q of such times, q ^ iterations of the copies.
    """
    chance = np.zeros_like(stands_out)
    for b, s in np.argwhere(stands_out):
        sign, size = np.sign(typical[b, s]), abs(typical[b, s])
        known = ~np.isnan(usable[b])
        others = known & ~alike[b]
        off = int(np.sum(others & (sign * usable[b] >= _ALIKE * size)))
        if not off:
            continue
        here = known[:, s].sum()
        expected = known.any(axis=0).sum() * (off / max(1, int(known.sum()))) ** float(here)
        as_far = int(np.sum(stands_out[b] & (sign * typical[b] >= size)))
        chance[b, s] = poisson_tail(float(expected), as_far) > _COINCIDENCE
    return chance


def find_persistent(usable: Floats, least: Floats, steps: Floats) -> Persistent | None:
    """Return which slots are off by `least` (B,) or more in every iteration; None for one."""
    if usable.shape[1] < 2:
        return None
    typical = median(np.swapaxes(usable, 1, 2))
    changes = np.abs(np.diff(usable, axis=1)).reshape(len(usable), -1)
    repeat = MAD_TO_SD * np.nan_to_num(median(changes)) / math.sqrt(2)
    repeat = np.maximum(repeat, least_spread(steps))
    known = ~np.isnan(usable)
    count = np.sum(known, axis=1)
    agrees = np.sign(typical)[:, None, :] * usable >= _ALIKE * np.abs(typical)[:, None, :]
    alike = (np.sum(agrees & known, axis=1) == count) & (count >= 2)
    error = MEDIAN_ERROR * repeat[:, None] / np.sqrt(np.maximum(count, 1))
    size = np.abs(typical)
    stands_out = alike & (size >= least[:, None]) & (size >= _Z * error)
    stands_out &= ~_coincide(usable, typical, alike, stands_out)
    own = mad(typical)
    part = MEDIAN_ERROR**2 * repeat**2 / usable.shape[1]
    spread = np.sqrt(np.maximum(0.0, own**2 - part))
    spread = np.nan_to_num(spread)
    alone = stands_out & (size >= _ALONE * spread[:, None])
    return Persistent(typical, repeat, spread, stands_out, alone)
