"""Points of somebody else's measurements, from a CSV file, as what a model is fitted to; pure."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Sequence
from io import StringIO

from msgspec import Struct

from rater.analysis.stats.intervals import run_to_run_noise
from rater.lab.models.observed import LayoutValue, ModelData
from rater.lab.models.quantities import Quantity
from rater.system.errors import InputError
from rater.text.values import delimiter_of, group_by_key, printable, truncate_list

_NAMES = ("benchmark", "program", "name")  # columns that name what was measured
_LABELS = ("layout", "label", "point")  # and the layout that it had
_MOST_POINTS = 200_000
_MOST_LETTERS = 80  # of a name
_LARGEST = 1e30  # of a number, and one over it the smallest: powers of them are still numbers


class _CsvPoint(Struct, frozen=True, kw_only=True):
    """One row of the file."""

    row: int  # from 1, the heading not counted
    benchmark: str
    label: str
    x: float
    y: float


def points_of_csv(text: str, file: str, *, x: str, y: str) -> tuple[ModelData, ...]:
    """Return the layouts of each benchmark, from rows with a heading.

    `x` and `y` name columns of numbers, whose decimals may follow a comma where `;` divides
    the columns. A column `benchmark` divides rows into models, rows with
    the same `layout` are runs of one, of which the medians count. Raises `InputError` with the
    line for what is no number, and with the columns there are for one that is not there.
    """
    lines = [line for line in text.removeprefix("\ufeff").splitlines() if line.strip()]
    delimiter = delimiter_of(lines[0] if lines else "")
    try:
        rows = [*csv.reader(StringIO("\n".join(lines)), delimiter=delimiter)]
    except csv.Error as error:
        raise InputError(f"{file}: not CSV: {error}") from None
    columns = [column.strip() for column in rows[0]] if rows else []
    for option, name in (("--x", x), ("--y", y)):
        if columns.count(name) != 1:
            known = truncate_list([printable(column) for column in columns], 20) or "none"
            why = "two columns of that name" if name in columns else "no such column"
            raise InputError(f"{file}: {option} {name}: {why}; its first line has: {known}")
    points = [
        _read_point(
            row, number, columns=columns, file=file, axes=(x, y), has_commas=delimiter == ";"
        )
        for number, row in enumerate(rows[1:], 1)
    ]
    if not points or len(points) > _MOST_POINTS:
        raise InputError(f"{file}: {len(points)} points; expected 1 to {_MOST_POINTS}")
    source = f"column {x} of {file}", f"column {y} of {file}"
    return tuple(
        _model_data(
            benchmark,
            of_benchmark,
            predictor=Quantity(x, x, "", source[0]),
            effort=Quantity(y, y, "", source[1]),
        )
        for benchmark, of_benchmark in group_by_key(
            (point.benchmark, point) for point in points
        ).items()
    )


def _read_point(
    row: Sequence[str],
    number: int,
    *,
    columns: Sequence[str],
    file: str,
    axes: tuple[str, str],
    has_commas: bool,
) -> _CsvPoint:
    """Return a row as a point; `has_commas`: a comma may be the mark before decimals."""
    if len(row) != len(columns):
        raise InputError(
            f"{file}: row {number}: {len(row)} values; the first line has {len(columns)} columns"
        )
    cells = dict(zip(columns, (cell.strip() for cell in row), strict=True))
    values = []
    for name in axes:
        try:
            value = float(cells[name].replace(",", ".") if has_commas else cells[name])
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            cell = printable(cells[name], _MOST_LETTERS)
            way_out = "; decimals follow a point here (a comma where ; divides columns)"
            hint = way_out if "," in cell and not has_commas else ""
            raise InputError(f"{file}: row {number}: {name}: {cell!r} is no number{hint}")
        if value and not 1 / _LARGEST <= abs(value) <= _LARGEST:
            raise InputError(
                f"{file}: row {number}: {name}: expected 0 or a size from {1 / _LARGEST:g} to "
                f"{_LARGEST:g}, got {value:g}; take another unit"
            )
        values.append(value)
    if values[1] <= 0:
        raise InputError(f"{file}: row {number}: {axes[1]}: expected a number above 0")

    def named(names: Sequence[str], otherwise: str) -> str:
        column = next((name for name in names if name in cells and name not in axes), None)
        return printable(cells[column], _MOST_LETTERS) if column else otherwise

    return _CsvPoint(
        row=number,
        benchmark=named(_NAMES, file),
        label=named(_LABELS, f"row {number}"),
        x=values[0],
        y=values[1],
    )


def _model_data(
    benchmark: str, points: Sequence[_CsvPoint], *, predictor: Quantity, effort: Quantity
) -> ModelData:
    by_label = group_by_key((point.label, point) for point in points)
    layouts = [
        LayoutValue(
            label=label,
            x=statistics.median(point.x for point in runs),
            y=statistics.median(point.y for point in runs),
            values=tuple(point.y for point in runs),
            runs=tuple(point.row for point in runs),
            features=(),
        )
        for label, runs in by_label.items()
    ]
    return ModelData(
        benchmark=benchmark,
        tune=None,
        held="",
        x=predictor,
        y=effort,
        layouts=tuple(sorted(layouts, key=lambda layout: layout.x)),
        noise=run_to_run_noise([layout.values for layout in layouts]),
        lacking=(),
    )
