"""Places that are alike, measured in rounds: which one is worse than its peers; pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from statistics import fmean, median

from msgspec import Struct

from rater.analysis.stats.estimate import t_quantile
from rater.text.values import group_by_key

ALPHA = 0.01  # of all places together: so often one is named though none is worse
_POWER_Z = 0.84  # normal quantile of 80 %: the share of such differences that is found
FLOOR = 0.05  # smaller differences are named nowhere: distances within a mesh are real
# Of its mean a slow place has so much in each round. Of 700 made matrices with bursts in a tenth to
# a fifth of their readings 6 to 8 % had a place named without this rule, 1 % with it; as many slow
# places were found.
_LEAST_OF_MEAN = 0.5
FEWEST_ROUNDS = 3
MOST_VISIBLE = 1.0  # where a place twice as bad could hide, nothing is said


type LinesOf = Callable[[tuple[int, ...]], Sequence[Hashable]]


class PlaceValue(Struct, frozen=True, kw_only=True):
    """A place in what was measured of it."""

    place: tuple[int, ...]  # (CPUs' node, memory's node), (node, step) or (CPU,)
    value: float  # median over rounds, in the unit of the measure
    worse: float | None = None  # than its peers, as a share; None: no peers
    is_slow: bool = False


class CellsJudgement(Struct, frozen=True, kw_only=True):
    """All places of one measure."""

    cells: tuple[PlaceValue, ...]
    visible: float | None  # smallest difference that would be seen; None: nothing to compare

    @property
    def slow(self) -> tuple[PlaceValue, ...]:
        """The places that are worse than their peers."""
        return tuple(cell for cell in self.cells if cell.is_slow)


def judge_cells[Place: tuple[int, ...]](
    values: Mapping[Place, Sequence[float]],
    peers: Mapping[Place, Hashable],
    *,
    higher_is_worse: bool,
    lines_of: LinesOf = lambda _: (),
) -> CellsJudgement:
    """Compare each place, round by round, with the median of its peers in the same round.

    `values` has a number above 0 of each round; `peers` what a place has in common with its peers.
    `lines_of` returns the lines of a place, as its row and its column. A line is judged by the
    means over its places as a place is by its own; it makes all of them slow where each has half of
    their mean at least.
    """
    sign = 1.0 if higher_is_worse else -1.0
    differences: dict[Place, list[float]] = {}
    for place, place_values in values.items():
        others = [
            values[other] for other in values if other != place and peers[other] == peers[place]
        ]
        rounds = min(map(len, [place_values, *others]))
        if others and rounds:
            differences[place] = [
                sign * _log_ratio(place_values[number], [other[number] for other in others])
                for number in range(rounds)
            ]
    slow, visible = _find_slow(differences)
    lines = group_by_key(
        (line, place) for place in differences for line in enumerate(lines_of(place))
    )
    means = {
        line: [*map(fmean, zip(*(differences[place] for place in places), strict=False))]
        for line, places in lines.items()
        if len(places) > 1
    }
    for line in _find_slow(means)[0]:
        least = min(fmean(differences[place]) for place in lines[line])
        if least > _LEAST_OF_MEAN * fmean(means[line]):
            slow |= {*lines[line]}
    cells = tuple(
        PlaceValue(
            place=place,
            value=median(place_values),
            worse=math.expm1(fmean(differences[place])) if place in differences else None,
            is_slow=place in slow,
        )
        for place, place_values in values.items()
    )
    return CellsJudgement(cells=cells, visible=None if visible is None else max(visible, FLOOR))


def _find_slow[Name: Hashable](
    differences: Mapping[Name, Sequence[float]],
) -> tuple[set[Name], float | None]:
    """Return what is worse than its peers, and the smallest difference that would be seen.

    Something is slow if it is worse in every round, by `FLOOR` and half of its mean at least, and
    beyond chance: by Student's t of the mean over its rounds, with the variance between rounds of
    all together and Bonferroni's price for so many. None is where one twice as bad could hide:
    such noise has bursts of many times the usual, and Student's t holds for none.
    """
    error, critical = _standard_error([*differences.values()])
    if error is None:
        return set(), None
    visible = math.expm1((critical + _POWER_Z) * error)
    slow = {
        name
        for name, worse_by in differences.items()
        if visible <= MOST_VISIBLE
        and min(worse_by) > max(math.log1p(FLOOR), _LEAST_OF_MEAN * fmean(worse_by))
        and fmean(worse_by) > critical * error
    }
    return slow, visible


def cells_by_line(
    cells: Sequence[PlaceValue], lines_of: LinesOf
) -> Iterator[tuple[PlaceValue, ...]]:
    """Yield the cells in as few groups as they need, of which each is on one line."""
    rest = [*cells]
    while rest:
        lines = group_by_key(
            (line, cell) for cell in rest for line in enumerate(lines_of(cell.place))
        )
        longest = max(lines.values(), key=len)
        yield tuple(longest)
        rest = [cell for cell in rest if cell not in longest]


def mean_worse(cells: Sequence[PlaceValue]) -> float:
    """Return how much worse cells are together: the mean of their ratios to their peers."""
    return math.expm1(fmean(math.log1p(cell.worse or 0.0) for cell in cells))


def _log_ratio(value: float, others: Sequence[float]) -> float:
    return math.log(value) - median(math.log(other) for other in others)


def _standard_error(differences: Sequence[Sequence[float]]) -> tuple[float | None, float]:
    """Return the standard error of a place's mean, and how many of them are beyond chance."""
    several = [of_place for of_place in differences if len(of_place) >= FEWEST_ROUNDS]
    if not several:
        return None, 0.0
    squares = sum(sum((it - fmean(of_place)) ** 2 for it in of_place) for of_place in several)
    degrees = sum(len(of_place) - 1 for of_place in several)
    rounds = min(map(len, several))
    critical = t_quantile(1 - 2 * ALPHA / len(several), degrees)
    return math.sqrt(squares / degrees / rounds), critical
