"""What the height of a dot stands for: time, CPU time, or a number that a copy reports; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from rater.analysis.results.copies import Cell, CopyPoint
from rater.analysis.results.measure import Better, CopyKey
from rater.record.events import CopyEnded
from rater.record.run import MetricUsed


class DrawnMeasure(Struct, frozen=True, kw_only=True):
    """What is drawn of each copy."""

    name: str
    unit: str  # "": none; "s": written in the unit that fits a value's size
    better: Better | None  # None: neither direction
    ends: tuple[str, str] = ("lowest", "highest")  # what the copies at both ends are called

    @property
    def is_time(self) -> bool:
        """Whether it is the time that copies take, as of all pictures without another measure."""
        return self == TIME

    @property
    def highest_is_worst(self) -> bool:
        """Whether of neighbours that share a sign the one with the largest value shows."""
        return self.better is not Better.HIGHER

    @property
    def worst(self) -> str:
        """What the copy at the worse end is called."""
        return self.ends[self.highest_is_worst]

    @property
    def quantity(self) -> str:
        """Its name with the unit: `bandwidth (MB/s)`; times have theirs beside each value."""
        return f"{self.name} ({self.unit})" if self.unit and self.unit != "s" else self.name

    @property
    def direction(self) -> str:
        """What follows a quantity where it is not clear which direction is better."""
        return "" if self.is_time or self.better is None else f", {self.better} is better"

    @property
    def caption(self) -> str:
        """What an axis is of: `bandwidth (MB/s) of each copy, higher is better`."""
        return f"{self.quantity} of each copy{self.direction}"

    def value_text(self, value: float) -> str:
        """Return a value as it stands at an axis."""
        if self.unit == "s" and value >= 0:
            return time_text(value)
        return number_text(value)


TIME = DrawnMeasure(name="time", unit="s", better=Better.LOWER, ends=("fastest", "slowest"))
CPU_SECONDS = DrawnMeasure(name="CPU time", unit="s", better=Better.LOWER)


def measure_of(metric: MetricUsed) -> DrawnMeasure:
    """Return a number that copies report as what is drawn of them."""
    better = None if metric.better is None else Better(metric.better)
    return DrawnMeasure(name=metric.name, unit=metric.unit, better=better)


class MeasuredPoint(Struct, frozen=True, kw_only=True):
    """One copy in one iteration; the value of a copy that ran several times is its median run's."""

    copy: int
    cpu: int | None
    core: int | None
    node: int | None  # OS number of its lgroup
    value: float
    lowest: float  # of its runs
    highest: float


class MeasuredCell(Struct, frozen=True, kw_only=True):
    """One benchmark in one iteration, copy by copy."""

    benchmark: str
    tune: str | None
    iteration: int
    counted: bool  # False: discarded
    points: tuple[MeasuredPoint, ...]
    not_known: tuple[CopyPoint, ...] = ()  # copies that ran well and have no value
    failed: tuple[CopyEnded, ...] = ()
    repeated: bool = False  # a copy ran several times

    @property
    def key(self) -> tuple[str, str | None]:
        """Benchmark and tune."""
        return self.benchmark, self.tune


def measured_cells(
    cells: Iterable[Cell], values: Mapping[CopyKey, Sequence[float]] | None = None
) -> tuple[MeasuredCell, ...]:
    """Return what is drawn of cells: times, or else `values` of copies, as of `copy_values`."""
    return tuple(_measured_cell(cell, values) for cell in cells)


def _measured_cell(cell: Cell, values: Mapping[CopyKey, Sequence[float]] | None) -> MeasuredCell:
    values_of_points = [(point, _values_of(point, cell, values)) for point in cell.points]
    return MeasuredCell(
        benchmark=cell.benchmark,
        tune=cell.tune,
        iteration=cell.iteration,
        counted=cell.counted,
        points=tuple(_point(point, known) for point, known in values_of_points if known),
        not_known=tuple(point for point, known in values_of_points if not known),
        failed=cell.failed,
        repeated=any(point.runs > 1 for point in cell.points),
    )


def _values_of(
    point: CopyPoint, cell: Cell, values: Mapping[CopyKey, Sequence[float]] | None
) -> Sequence[float]:
    if values is None:
        return (point.fastest_s, point.elapsed_s, point.slowest_s)
    return values.get((*cell.key, cell.iteration, point.copy), ())


def _point(point: CopyPoint, values: Sequence[float]) -> MeasuredPoint:
    return MeasuredPoint(
        copy=point.copy,
        cpu=point.cpu,
        core=point.core,
        node=point.node,
        value=statistics.median(values),
        lowest=min(values),
        highest=max(values),
    )


# -- Values as text --------------------------------------------------------------------------------


def time_text(seconds: float) -> str:
    """Return a time with the digits that its size deserves: `2408 s`, `12.3 s`, `4.56 ms`."""
    if seconds >= 1000:
        return f"{seconds:.0f} s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= size or unit == "ns":
            value = seconds / size
            break
    # Four digits: copies of a quiet machine differ by a thousandth.
    return f"{value:.{max(0, 4 - len(str(int(value))))}f} {unit}"


def number_text(value: float) -> str:
    """Return a number with four digits that tell copies apart: `12.50`, `4096`, `32.70e6`."""
    size = abs(value)
    if not size:
        return "0"
    if not 1e-3 <= size < 1e6:
        exponent = 3 * math.floor(math.log10(size) / 3)
        return f"{number_text(value / 10.0**exponent)}e{exponent}"
    whole_digits = len(str(int(size))) if size >= 1 else 0
    return f"{value:.{max(0, 4 - whole_digits)}f}"


def percent_text(share: float) -> str:
    """Return a share of the median as its distance: `+52 %`, `-0.4 %`."""
    size = (share - 1) * 100
    return f"{size:+.0f} %" if abs(size) >= 10 else f"{size:+.1f} %"


def distance_text(value: float, median: float) -> str:
    """Return how far a value is from the median; "" where that is no share of it."""
    return percent_text(value / median) if median > 0 else ""
