"""What a comparison of points says, as values; `rater.analysis.compare.compare` makes them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from rater.analysis.conditions.differences import PointDifference
from rater.analysis.conditions.disturbances import DisturbedRun
from rater.analysis.doctor.differences import DoctorDifference
from rater.analysis.results.points import Point, PointRun
from rater.analysis.stats.ratio_interval import CONFIDENCE, RatioInterval


@dataclass(frozen=True, slots=True)
class Side:
    """One column: a point, or with `by` all points with one value of an axis."""

    label: str
    points: tuple[Point, ...]  # one; with `by` one for each combination of the other axes' values

    @property
    def runs(self) -> tuple[PointRun, ...]:
        """All its runs."""
        return tuple(chain.from_iterable(point.runs for point in self.points))


@dataclass(frozen=True, slots=True)
class Effect:
    """One benchmark (or suite) of a side against the baseline's."""

    # Results, in the row's unit: geometric means over the runs that are compared, of the
    # score of each (`rater show`); None: no valid result.
    baseline: float | None
    value: float | None
    speedup: RatioInterval | None  # of rates; None: see `reason`
    # The inside of a run: median copies (above 1: faster) and slowest over median copy (above 1:
    # the slow copies are slower); None: one copy, other numbers of copies, rates of other kinds,
    # or no such thing.
    median_copy: RatioInterval | None
    slowest_over_median: RatioInterval | None
    joules_per_copy: RatioInterval | None  # above 1: takes more energy; None: not known
    p_holm: float | None  # p with all comparisons of the table considered (Holm)
    holds: bool  # whether better or worse holds up with all of them considered
    reason: str | None  # why there is no comparison

    @property
    def improvement(self) -> float | None:
        """(T_baseline - T) / T, a share."""
        return self.speedup.ratio - 1 if self.speedup else None

    @property
    def reduction(self) -> float | None:
        """(T_baseline - T) / T_baseline, a share."""
        return 1 - 1 / self.speedup.ratio if self.speedup else None


@dataclass(frozen=True, slots=True)
class EffectRow:
    """A benchmark, or a suite, in all sides."""

    name: str  # of the benchmark; "all", "int" or "fp"
    tune: str | None  # None: there is one only
    category: str | None
    unit: str  # of the values: "ratio", or "copies/hour" where a reference is missing or differs
    over: tuple[str, ...]  # of a suite: its benchmarks
    cells: tuple[Effect, ...]  # one for each side but the baseline

    @property
    def decided(self) -> bool:
        """Whether every side is better, worse or the same as the baseline."""
        return all(cell.speedup and cell.speedup.decided for cell in self.cells)

    @property
    def energy_decided(self) -> bool:
        """Whether every side takes more, less or the same energy as the baseline."""
        return all(cell.joules_per_copy and cell.joules_per_copy.decided for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Points beside the first of them."""

    sides: tuple[Side, ...]  # the baseline first
    by: str | None  # the axis that is compared, the others held; None: points as they are
    differences: tuple[PointDifference, ...]  # what differs beside the axes
    copies: tuple[int, ...]  # numbers of copies that runs have
    mixed_copies: bool  # whether runs with other numbers of copies are compared with each other
    # What the rates are, and the runs: several that are compared with each other are not alike.
    kinds: tuple[tuple[str, tuple[int, ...]], ...]
    mixed_kinds: bool
    benchmarks: tuple[EffectRow, ...]
    suites: tuple[EffectRow, ...]  # all, int, fp: those with two benchmarks at least
    left_out: tuple[str, ...]  # what does not count, and why
    # Benchmarks that have a valid result in a point of the baseline and none in its counterpart,
    # with the label of that point.
    lost: tuple[tuple[str, str], ...]
    margin: float
    confidence: float  # of the intervals
    looks: int  # how often was looked before it was decided to stop, at most
    compared: int  # benchmarks x sides that have a p value
    troubles: tuple[DisturbedRun, ...]  # what disturbed runs, as it was recorded
    # In what the doctor would have said of the machine that they were made on.
    doctor: tuple[DoctorDifference, ...]
    pages: tuple[str, ...] = ()  # what is wrong with comparing these page layouts

    @property
    def is_empty(self) -> bool:
        """Whether no benchmark has a valid result in the baseline and in another side."""
        return not any(cell.speedup for row in self.benchmarks for cell in row.cells)

    @property
    def by_chance(self) -> float:
        """How many of them say better or worse where nothing differs, on average."""
        # All looks together err as one at the usual level does.
        return self.compared * (1 - CONFIDENCE)

    @property
    def overall(self) -> EffectRow | None:
        """The one row that stands for all: the suite, or the only benchmark."""
        rows = self.suites[:1] or (self.benchmarks if len(self.benchmarks) == 1 else ())
        return rows[0] if rows else None

    def unjudged(self) -> list[tuple[EffectRow, Side, str]]:
        """Return what both sides have, but so that no verdict can stand on it, and why."""
        return [
            (row, side, cell.speedup.refused)
            for row in self.benchmarks
            for side, cell in zip(self.sides[1:], row.cells, strict=True)
            if cell.speedup and cell.speedup.refused
        ]

    def verdicts(self) -> list[tuple[EffectRow, Side, Effect]]:
        """Return every cell with its row and side, suites last."""
        return [
            (row, side, cell)
            for row in (*self.benchmarks, *self.suites)
            for side, cell in zip(self.sides[1:], row.cells, strict=True)
        ]
