"""What the model found, as arrays: which copy runs, how much slower; pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rater.analysis.divots.data.finding import Kind
from rater.analysis.stats.robust import Bools, Floats


@dataclass(slots=True, eq=False)
class Hit:
    """A finding with array indices instead of names."""

    kind: Kind
    covered: Bools  # (B, I, S) the copy runs that it is about
    effect: Floats  # (B, I, S) ln slowdown, 0 elsewhere
    level: str = ""  # what its copies share: node, package, llc, cpu, core, thread, ...
    groups: tuple[int, ...] = ()  # which of that level
    everywhere: bool = False  # nearly all benchmarks
    facts: dict[str, float | str] = field(default_factory=dict)
    skew: Floats | None = None  # (B, I): late start, as share of the median time

    @property
    def benchmarks(self) -> list[int]:
        """Indices of the benchmarks that it covers, ascending."""
        return [int(b) for b in np.flatnonzero(self.covered.any(axis=(1, 2)))]

    @property
    def iterations(self) -> list[int]:
        """Indices of the iterations that it covers, ascending."""
        return [int(i) for i in np.flatnonzero(self.covered.any(axis=(0, 2)))]

    @property
    def slots(self) -> Bools:
        """Slots (S,) that it covers anywhere."""
        found: Bools = self.covered.any(axis=(0, 1))
        return found

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Benchmark and iteration of all that it covers."""
        return [(int(b), int(i)) for b, i in np.argwhere(self.covered.any(axis=2))]

    def sizes(self) -> Floats:
        """Return the ln slowdown of each of its benchmarks, the median of its copies' runs."""
        found = [float(np.median(self.effect[b][self.covered[b]])) for b in self.benchmarks]
        return np.array(found)

    @property
    def size(self) -> float:
        """Typical ln slowdown: the median of its benchmarks."""
        if self.skew is not None:
            return float(np.log1p(np.median(self.skew[self.skew > 0])))
        return float(np.median(self.sizes()))


def total_effect(shape: tuple[int, int, int], hits: list[Hit]) -> Floats:
    """Return (B, I, S) the sum of all that was found."""
    total = np.zeros(shape)
    for hit in hits:
        total += hit.effect
    return total
