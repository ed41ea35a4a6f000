"""Stored rows as columns of numpy arrays, and from there as frames of other libraries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from rater.record.stored import StoredRun
from rater.store.export import CopyTable, join_tables
from rater.system.errors import InputError
from rater.system.process import pip_install
from rater.text.values import truncate_list
from rater.workflow.results.copies_table import table_of_copies

_MOST_NAMES = 6  # of columns, in a line for people


class ColumnTable(Mapping[str, npt.NDArray[Any]]):
    """Columns of equal length by name. Numbers that are not known are NaN, other values None."""

    def __init__(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        rows = len(next(iter(self._columns.values()), ()))
        return f"<{rows} rows of {truncate_list(list(self._columns), _MOST_NAMES)}>"

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame; `InputError` where pandas is not installed."""
        return library("pandas").DataFrame(self._columns)

    def to_polars(self) -> Any:
        """Return a polars.DataFrame; `InputError` where polars is not installed."""
        return library("polars").DataFrame(
            {name: it.tolist() if it.dtype == object else it for name, it in self.items()}
        )

    def to_arrow(self) -> Any:
        """Return a pyarrow.Table, NaN as null; `InputError` where pyarrow is not installed."""
        arrow = library("pyarrow")
        return arrow.table(
            {name: arrow.array(it, from_pandas=True) for name, it in self._columns.items()}
        )


def columns_of_copies(stored: StoredRun) -> ColumnTable:
    """Return the copies of a run as `rater export --format csv` has them, times in seconds."""
    return _columns_of(table_of_copies(stored))


def columns_of_points(runs: Iterable[tuple[str, StoredRun]]) -> ColumnTable:
    """Return the copies of several runs, each with the label of its point as first column."""
    return _columns_of(join_tables([(label, table_of_copies(run)) for label, run in runs]))


def _columns_of(table: CopyTable) -> ColumnTable:
    lines = (zip(line, table.timed, strict=True) for line in table.lines)
    return column_table(
        table.headings,
        [
            [value / 1e9 if is_s and value is not None else value for value, is_s in cells]
            for cells in lines
        ],
    )


def column_table(names: Sequence[str], lines: Sequence[Sequence[Any]]) -> ColumnTable:
    """Return lines of values as columns."""
    return ColumnTable(
        {name: _array([line[place] for line in lines]) for place, name in enumerate(names)}
    )


def _array(values: Sequence[Any]) -> npt.NDArray[Any]:
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known) and len(known) == len(values):
        return np.array(values, dtype=bool)
    if known and all(isinstance(value, int | float) for value in known):
        whole = len(known) == len(values) and all(isinstance(value, int) for value in known)
        if whole:
            return np.array(values, dtype=np.int64)
        return np.array([np.nan if value is None else value for value in values], dtype=float)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def library(name: str) -> Any:
    """Return a module that need not be installed; raises `InputError` where it is not."""
    try:
        return import_module(name)
    except ImportError:
        raise InputError(
            f"{name} is not installed: `{pip_install(name.partition('.')[0])}`"
        ) from None
