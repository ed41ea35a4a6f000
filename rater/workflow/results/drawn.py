"""What pictures of copies draw: times, or by `--by` CPU time or a number that copies report."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from msgspec import Struct

from rater.analysis.results.copies import Cell, group_cells
from rater.analysis.results.measure import (
    ValueOfRun,
    copy_values,
    declared_metric,
    value_reported,
)
from rater.record.stored import StoredRun
from rater.show.charts.measured import (
    CPU_SECONDS,
    TIME,
    DrawnMeasure,
    MeasuredCell,
    measure_of,
    measured_cells,
)
from rater.system.errors import InputError
from rater.workflow.results.compare import CPU_TIME
from rater.workflow.results.points import METRIC


class Drawn(Struct, frozen=True, kw_only=True):
    """A measure, and where the values of copies come from."""

    measure: DrawnMeasure = TIME
    value_of: ValueOfRun | None = None  # None: times

    def cells(self, run: StoredRun) -> tuple[MeasuredCell, ...]:
        """Return what is drawn of a run; raises `InputError` where no copy has a value."""
        return self.cells_of(run, group_cells(run))

    def cells_of(self, run: StoredRun, grouped: Sequence[Cell]) -> tuple[MeasuredCell, ...]:
        """Return the same of a run whose copies are grouped already."""
        values = None if self.value_of is None else copy_values(run, self.value_of)
        cells = measured_cells(grouped, values)
        if values == {} and any(cell.not_known for cell in cells):
            raise InputError(f"run {run.head.run}: {self.measure.name} of its copies is not known")
        return cells


TIMES = Drawn()


def drawn_by(by: str | None, runs: Sequence[StoredRun], benchmark: str | None) -> Drawn:
    """Return what `--by` means for runs, or for one benchmark of them; raises `InputError`.

    `metric:NAME` is a metric in any case, also where it is called cpu.
    """
    if by is None:
        return TIMES
    if by == CPU_TIME:
        return Drawn(measure=CPU_SECONDS, value_of=attrgetter("cpu_s"))
    metric = declared_metric(by.removeprefix(METRIC), runs, benchmark)
    return Drawn(measure=measure_of(metric), value_of=value_reported(metric.name))
