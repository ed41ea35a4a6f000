"""One cause as an effect on ln times: its kind, its place and its size; pure.

Shapes: B benchmarks, I iterations, S slots; a *cell* is one benchmark in one iteration. Sizes are
natural logarithms: 0.02 is 2 %. The terms are in docs/develop/detector-terms.md.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import numpy as np
from msgspec import Struct

from rater.analysis.stats.robust import Bools, Floats, median_without_gaps

NO_PART: Final = -1  # number of the part of an effect that is of none


class EffectKind(StrEnum):
    """The sort of slots that an effect is of."""

    # A part of the machine, by the family that has it.
    NODE = "node"
    PACKAGE = "package"
    LLC = "llc"
    MEMORY = "memory"  # all copies whose memory is on one node
    NODE_AND_MEMORY = "node+memory"
    REMOTE = "remote"  # part 0: memory on the node of the CPU; part 1: elsewhere
    THREAD = "thread"  # which hardware thread of its core a CPU is
    HALF = "half"  # the lower or upper CPUs of every node
    HALF_OF_NODE = "half of lgroup"
    SHARING = "sharing"  # how many copies share CPU and core
    CORE = "core"
    CPU = "cpu"
    COPY = "copy"
    # A pattern.
    MOVING = "moving"  # one copy, which has another slot in each iteration
    COPIES = "copies"  # a few copies that are no part
    MODES = "modes"  # one of two sorts of copies
    GRADIENT = "gradient"  # a slope over the order of start
    UNSETTLED = "unsettled"  # a first iteration whose copies lie far apart
    UNSTEADY = "unsteady"  # copies whose times vary more than those of others
    ITERATIONS = "iterations"  # all copies
    # Predicted by the layout.
    SHARING_CPU = "sharing-cpu"
    SHARING_CORE = "sharing-core"
    CORE_KIND = "core-kind"
    LOAD = "load"


class EffectScope(StrEnum):
    """The benchmarks and iterations that an effect is in."""

    ALL = "all"  # all benchmarks
    SOME = "some"  # some benchmarks
    CELL = "cell"  # one iteration
    STEP = "step"  # all iterations from one on, or up to one
    TREND = "trend"  # more in each iteration


class DivotEffect(Struct, frozen=True, eq=False, kw_only=True):
    """An effect on ln times: size(b) * iteration_weight(i) * slot_weight(s)."""

    kind: EffectKind
    # (S,), or (I, S) or (B, I, S) where the slots change: 0 or 1, of a gradient -0.5 to 0.5.
    slot_weights: Floats
    benchmarks: Bools  # (B,) which have the effect
    iteration_weights: Floats  # (I,)
    size: Floats  # (B,) ln
    net_evidence: float  # nats beyond the Bonferroni price
    scope: EffectScope = EffectScope.ALL
    likelihood_gain: float = 0.0  # nats; the candidate that gains most enters first
    part: int = NO_PART  # number of the node, CPU, copy ...
    counts: tuple[float, float] = (0.0, 0.0)  # of the layout: copies on this part and elsewhere

    @property
    def typical(self) -> float:
        """The median size of its benchmarks, ln."""
        return float(median_without_gaps(self.size[self.benchmarks]))

    @property
    def key(self) -> tuple[bytes, bytes, bytes]:
        """Slots, benchmarks and iterations: two effects with one key are the same candidate."""
        slots, benchmarks = self.slot_weights.tobytes(), self.benchmarks.tobytes()
        return slots, benchmarks, self.iteration_weights.tobytes()

    @property
    def cells(self) -> Bools:
        """The cells (B, I) that it is in."""
        return np.outer(self.benchmarks, self.iteration_weights != 0)

    @property
    def has_fixed_slots(self) -> bool:
        """Whether its slots are the same in each cell."""
        return self.slot_weights.ndim == 1

    def add_to(self, cube: Floats, sign: float = 1.0) -> None:
        """Add the effect to ln times (B, I, S) in place; `sign` -1 takes it away."""
        rows = np.flatnonzero(self.benchmarks)
        weights = self.slot_weights
        field = self.size[rows][:, None, None] * self.iteration_weights[None, :, None] * sign
        cube[rows] += field * (weights if weights.ndim < 3 else weights[rows])
