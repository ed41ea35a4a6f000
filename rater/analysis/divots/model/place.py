"""Which part of the machine a set of copies is, said as simply as it is true; pure."""

from __future__ import annotations

import numpy as np

from rater.analysis.divots.data.table import UNKNOWN, Table
from rater.analysis.divots.model import limits
from rater.analysis.divots.model.parts import Part
from rater.analysis.stats.robust import Bools

_WHOLE = ("node", "package", "llc", "core", "cpu")


def place_of(table: Table, machine: list[Part], slots: Bools) -> tuple[str, tuple[int, ...]]:
    """Return the level and the groups of it that the slots are; `("set", ())` for none.

    One part, or several of a level together, that shares at least four of five copies
    with them, the one that fits best; of equal ones the first in `machine_parts`.
    """
    best = limits.SAME
    found: tuple[str, tuple[int, ...]] = ("set", ())
    for part in machine:
        if part.kind == "copy":
            continue
        fit = _alike(part.slots, slots)
        if fit > best or (fit == best == 1.0 and found[0] == "set"):
            best, found = fit, (part.kind, (part.name,))
    several: tuple[str, tuple[int, ...]] = ("set", ())
    for level in _WHOLE:
        numbers = getattr(table, level)
        names = [
            int(name)
            for name in np.unique(numbers[slots])
            if name != UNKNOWN and np.mean(slots[numbers == name]) >= limits.SAME
        ]
        fit = _alike(np.isin(numbers, names), slots) if names else 0.0
        if fit > best and len(names) > 1 and (numbers == names[0]).sum() > 1:
            best, several = fit, (level, tuple(names))
    return several if several[1] else found


def _alike(left: Bools, right: Bools) -> float:
    both, either = int((left & right).sum()), int((left | right).sum())
    return both / max(1, either)
