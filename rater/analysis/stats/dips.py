"""Numbers of copies that are slower than fewer and more of them: dips of a curve; pure.

Copies that share a machine slow each other. So the rate a copy does not rise with their number
where they have no more room, and the rate of all together rises to one peak and falls from there.
A point whose neighbours on both sides are better contradicts this: something was wrong when it
was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from rater.analysis.stats.intervals import Noise

_ALPHA: Final = 0.01  # probability that noise alone makes a dip anywhere on the curve
_LEAST_RISE: Final = math.log1p(0.03)  # chosen: a later point that is better by less says nothing


class Dip(Struct, frozen=True, kw_only=True):
    """A number of copies that is slower than fewer and more of them."""

    copies: int
    fewer: int  # copies, of the last point before that is no dip
    more: int  # copies, of the best later point that can be compared
    in_all: bool  # all copies together do less than at both; else for each copy alone


class DipComparison(Struct, frozen=True, kw_only=True):
    """Which points of a curve can be compared, by their indices."""

    has_no_more_room: Callable[[int, int], bool]  # of a copy at the second against the first
    has_same_parts: Callable[[int, int], bool]  # as many nodes are in use at both


def find_dips(
    copies: Sequence[int],
    rates: Sequence[float],
    runs: Sequence[int],
    noise: Noise,
    comparison: DipComparison,
) -> tuple[Dip, ...]:
    """Return the dips of a curve; `copies` ascend, `rates` are means over so many `runs`.

    Noise must explain neither the fall nor the rise, all pairs of points considered (Bonferroni).
    """
    last = len(copies) - 1
    if last < 2:
        return ()
    level = noise.quantile(_ALPHA / (last * (last + 1) // 2))
    of_all = [math.log(rate) for rate in rates]
    of_copy = [math.log(rate / number) for rate, number in zip(rates, copies, strict=True)]
    errors = [noise.of_mean(count) for count in runs]

    def rises(values: Sequence[float], low: int, high: int, least: float = 0.0) -> bool:
        error = math.hypot(errors[low], errors[high])
        return values[high] - values[low] > max(level * error, least)

    def best_later(values: Sequence[float], point: int, sound: int) -> int | None:
        """Return the best later point that is better, as the last sound one is; None: no dip."""
        later = [
            other
            for other in range(point + 1, last + 1)
            if comparison.has_no_more_room(point, other)
            and (
                values is of_copy
                or (
                    comparison.has_same_parts(point, other)
                    and comparison.has_same_parts(point, sound)
                )
            )
        ]
        best = max(later, key=lambda other: values[other], default=None)
        is_dip = best is not None and rises(values, point, best, _LEAST_RISE)
        return best if is_dip and rises(values, point, sound) else None

    dips: list[Dip] = []
    sound = 0
    for point in range(1, last):
        more_in_all = best_later(of_all, point, sound)
        more = more_in_all if more_in_all is not None else best_later(of_copy, point, sound)
        if more is None:
            sound = point
            continue
        dips.append(
            Dip(
                copies=copies[point],
                fewer=copies[sound],
                more=copies[more],
                in_all=more_in_all is not None,
            )
        )
    return tuple(dips)
