"""What the steps of the detector share: the residuals, which shrink, and how to judge them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.data.finding import Thresholds
from rater.analysis.divots.data.noise_scales import Scales, clock_steps, scales_of
from rater.analysis.divots.data.table import UNKNOWN, Table
from rater.analysis.divots.detectors.groups import Level
from rater.analysis.divots.detectors.layout import Explained, Predicted, sharing_classes
from rater.analysis.stats.robust import Bools, Floats, Ints

__all__ = ["Thresholds", "Work", "begin", "beyond_layout"]

_LEAST_FINE = 6
_LEAST_COARSE = 3
_PAIR = 2
LOCAL = 0  # group of the level `remote`: memory on the node of the CPU
_REMOTE = 1


@dataclass(slots=True, eq=False)
class Work:
    """A run while it is searched: each step takes what it found out of `r`, in place."""

    table: Table
    thresholds: Thresholds
    r: Floats  # (B, I, S) ln of time over what is explained so far
    levels: tuple[Level, ...]
    groups: Ints  # (S,) inside of which copies should be alike
    steps: Floats  # (B,) of a coarse clock
    left_out: Bools  # (B, I) cells that are not judged any more
    ramps: Bools  # (B, I) cells in which groups are not
    started: Bools  # (B, I) cells whose slow start is told as that
    # (B, S) how much faster the layout allows copies to be, 0 or below: for groups, and for
    # single copies.
    allowed: Floats
    allowed_alone: Floats
    predicted: list[Predicted]  # what the layout explains

    @property
    def scales(self) -> Scales:
        """Spreads of the residuals as they are now."""
        return scales_of(self.r, self.groups, self.steps)

    @property
    def usable(self) -> Floats:
        """The residuals without the cells that are left out."""
        return np.where(self.left_out[:, :, None], np.nan, self.r)


def beyond_layout(values: Floats, allowed: Floats) -> Floats:
    """Return residuals (B, I, S) with what the layout allows taken out of fast ones."""
    if not allowed.any():
        return values
    return np.where(values < 0, np.minimum(0.0, values - allowed[:, None, :]), values)


def begin(table: Table, explained: Explained, thresholds: Thresholds) -> Work:
    """Return the work on a run's residuals, all cells with a time in it."""
    empty = np.isnan(table.log_s).all(axis=2)
    return Work(
        table=table,
        thresholds=thresholds,
        r=explained.residuals,
        levels=levels_of(table),
        groups=noise_groups(table),
        steps=clock_steps(table),
        left_out=empty,
        ramps=np.zeros_like(empty),
        started=np.zeros_like(empty),
        allowed=explained.allowed,
        allowed_alone=explained.allowed_alone,
        predicted=explained.predicted,
    )


def levels_of(table: Table) -> tuple[Level, ...]:
    """Return the ways to divide the slots by the machine, each division once."""
    pair = np.full(len(table.node), UNKNOWN)
    both = (table.node >= 0) & (table.memory >= 0)
    pair[both] = table.node[both] * 100_000 + table.memory[both]
    remote = np.where(both, np.where(table.memory == table.node, LOCAL, _REMOTE), UNKNOWN)
    wanted = (
        Level("node", table.node, least=_PAIR if _in_pairs(table.node) else 3),
        Level("package", table.package),
        Level("llc", table.llc),
        Level("node+memory", pair),
        Level("memory", np.where(table.memory >= 0, table.memory, UNKNOWN)),
        Level("remote", remote),
        Level("sharing", sharing_classes(table)[1]),
    )
    kept: list[Level] = []
    for level in wanted:
        known = level.groups[level.groups != UNKNOWN]
        if len(np.unique(known)) < 2:
            continue
        if not any(_same_division(level.groups, other.groups) for other in kept):
            kept.append(level)
    return tuple(kept)


def _in_pairs(node: Ints) -> bool:
    """Tell whether lgroups have two copies each, and are enough to judge one by the others."""
    _, sizes = np.unique(node[node != UNKNOWN], return_counts=True)
    return len(sizes) > _PAIR and float(np.median(sizes)) == _PAIR


def _same_division(left: Ints, right: Ints) -> bool:
    pairs = len(np.unique(np.stack((left, right)), axis=1).T)
    return pairs == len(np.unique(left)) == len(np.unique(right))


def noise_groups(table: Table) -> Ints:
    """Return groups inside of which copies should be alike.

    Copies that share lgroup, LLC, memory and the sharing of CPUs, where they are six or
    more; else those of three or more that share lgroup and memory. A median of fewer
    takes their noise with it, which `scales_of` knows of lgroups of two.
    """
    parts = (table.node, table.llc, table.memory, sharing_classes(table)[1])
    _, fine, members = np.unique(
        np.stack(parts, axis=1), axis=0, return_inverse=True, return_counts=True
    )
    fine = fine.reshape(-1)
    _, coarse, on_node = np.unique(
        np.stack((table.node, table.memory), axis=1),
        axis=0,
        return_inverse=True,
        return_counts=True,
    )
    coarse = coarse.reshape(-1)
    enough = _PAIR if _in_pairs(table.node) else _LEAST_COARSE
    usual = np.where(on_node[coarse] >= enough, coarse, UNKNOWN)
    return np.where(members[fine] >= _LEAST_FINE, len(on_node) + fine, usual)
