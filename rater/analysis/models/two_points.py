"""Lines through two layouts, and how wrong they are about all the others; pure.

Studies of page sizes often measure 4 KB and large pages and draw a line between them. OPERA D5.5
(Table 1) fits such lines to pairs of layouts and predicts the rest; so is it done here, for every
pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from rater.analysis.stats.robust import Floats


@dataclass(frozen=True, slots=True)
class TwoPointModel:
    """The line through two layouts."""

    first: int  # places of its layouts, the smaller x first
    second: int
    errors: tuple[float | None, ...]  # (prediction - y) / y of each layout; None: it is one of them
    outside: tuple[bool, ...]  # whether a layout lies beyond both: extrapolated

    @property
    def _sizes(self) -> list[float]:
        return [abs(error) for error in self.errors if error is not None]

    @property
    def mean_error(self) -> float:
        """Mean size of the errors: 0.02 is 2 %."""
        return float(np.mean(self._sizes))

    @property
    def maximum_error(self) -> float:
        """Largest of them."""
        return max(self._sizes)


def two_point_models(x: Floats, y: Floats) -> tuple[TwoPointModel, ...]:
    """Return the lines through all pairs of layouts of different x; () for fewer than three.

    The pair of the smallest and the largest x stands first, the others follow by how far they lie
    apart.
    """
    if len(x) < 3 or np.any(y == 0):
        return ()
    order = np.argsort(x, kind="stable")
    pairs = [(int(a), int(b)) for a, b in combinations(order, 2) if x[a] < x[b]]
    pairs.sort(key=lambda pair: -abs(float(x[pair[1]] - x[pair[0]])))
    return tuple(_line(x, y, a, b) for a, b in pairs)


def shown_pairs(models: Sequence[TwoPointModel], x: Floats) -> list[TwoPointModel]:
    """Return the pairs that a table has room for: ends, each end with the middle, quarters.

    As OPERA's Table 1 has its few layouts; JSON has all of them.
    """
    if not models:
        return []
    order = [int(place) for place in np.argsort(x, kind="stable")]
    last = len(order) - 1
    marks = [order[round(share * last)] for share in (0, 0.25, 0.5, 0.75, 1)]
    wanted = {frozenset(pair) for pair in combinations(dict.fromkeys(marks), 2)}
    return [one for one in models if frozenset((one.first, one.second)) in wanted]


def _line(x: Floats, y: Floats, a: int, b: int) -> TwoPointModel:
    slope = (y[b] - y[a]) / (x[b] - x[a])
    errors = (y[a] + slope * (x - x[a]) - y) / y
    return TwoPointModel(
        a,
        b,
        tuple(None if i in (a, b) else float(error) for i, error in enumerate(errors)),
        tuple(bool(value < x[a] or value > x[b]) for value in x),
    )
