"""What a sweep over page layouts comes to: all that the page of `rater lab pages` tells; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rater.analysis.compare.compare import compare
from rater.analysis.compare.cpi import CpiChange, cpi_changes
from rater.analysis.compare.model import Comparison, Effect, EffectRow
from rater.analysis.models.axis import PAGES, share_of
from rater.analysis.models.models import SweepModel, models_of
from rater.analysis.models.observed import LayoutValue, ModelWanted, observe
from rater.analysis.models.quantity import OF_TIME, Effort, Explaining, Predicting
from rater.analysis.models.ranking import BenchmarkTrace, RankingCheck, misses_of, ranking_check
from rater.analysis.results.memory import MemoryRow, memory_rows
from rater.analysis.results.points import Point
from rater.errors import InputError
from rater.plan.pages.layout import parse_pages


@dataclass(frozen=True, slots=True)
class LabRow:
    """One benchmark, or the suite, without and with large pages."""

    row: EffectRow
    largest: Effect  # at the layout with the most large pages
    best: tuple[str, Effect] | None  # the fastest layout; None: no layout has a result


@dataclass(frozen=True, slots=True)
class PageLab:
    """A sweep over page layouts, put together."""

    sweep: int
    points: tuple[Point, ...]  # all in base pages first
    comparison: Comparison
    largest: int  # which of the comparison's sides has the most large pages
    rows: tuple[LabRow, ...]  # suite first, then benchmarks in their order
    memory: tuple[MemoryRow, ...]
    cpi: tuple[CpiChange, ...]
    models: tuple[SweepModel, ...]
    energy: tuple[SweepModel, ...]  # the same of joules; () where none were measured
    no_models: str | None  # why there are none, in words
    checks: tuple[RankingCheck, ...]  # of benchmarks that were traced (rater pages)
    missing: tuple[str, ...]  # points without runs


def page_lab(
    sweep: int,
    points: Sequence[Point],
    *,
    looks: int = 1,
    missing: Sequence[str] = (),
    predicting: Predicting = OF_TIME,
    traces: Mapping[str, BenchmarkTrace] | None = None,
) -> PageLab:
    """Put a sweep together; `looks` as `compare` has it, `predicting`: what the models are of,
    `traces`: by benchmark, what is known of its misses.

    The baseline is the layout all in base pages, else the first. Raises `InputError` for a sweep
    that has no axis `pages`, or other axes beside it.
    """
    axes = {name for point in points for name, _ in point.values}
    if axes != {PAGES}:
        named = ", ".join(sorted(axes)) or "none"
        raise InputError(f"sweep {sweep} is none over page layouts alone (its axes: {named})")
    if len(points) < 2:
        raise InputError(f"sweep {sweep}: one layout has runs; two or more can be compared")
    ordered = sorted(points, key=lambda point: not _is_base(point))
    comparison = compare(ordered, looks=looks)
    shares = [_share(point) for point in ordered]
    largest = max(range(1, len(shares)), key=lambda at: (shares[at], at))
    known = traces or {}
    models, no_models = _models(ordered, predicting, known)
    return PageLab(
        sweep,
        tuple(ordered),
        comparison,
        largest,
        tuple(
            LabRow(row, row.cells[largest - 1], _best(row, comparison))
            for row in (*comparison.suites[:1], *comparison.benchmarks)
        ),
        memory_rows(ordered),
        cpi_changes(comparison.sides),
        models,
        _models(ordered, Predicting(Effort.ENERGY), known)[0],
        no_models,
        _checks(ordered, predicting, known),
        tuple(missing),
    )


def _text(point: Point) -> str:
    return dict(point.values)[PAGES]


def _is_base(point: Point) -> bool:
    return parse_pages(_text(point)).is_base


def _share(point: Point) -> float:
    share = share_of(_text(point))
    return -1.0 if share is None else share


def _best(row: EffectRow, comparison: Comparison) -> tuple[str, Effect] | None:
    found = [
        (side.label, cell)
        for side, cell in zip(comparison.sides[1:], row.cells, strict=True)
        if cell.speedup is not None
    ]
    return max(found, key=lambda one: one[1].speedup.ratio if one[1].speedup else 0.0, default=None)


def _models(
    points: Sequence[Point], predicting: Predicting, traces: Mapping[str, BenchmarkTrace]
) -> tuple[tuple[SweepModel, ...], str | None]:
    try:
        return models_of(observe(points, ModelWanted(predicting), misses_of(traces))), None
    except InputError as error:
        return (), str(error)


def _checks(
    points: Sequence[Point], predicting: Predicting, traces: Mapping[str, BenchmarkTrace]
) -> tuple[RankingCheck, ...]:
    """Hold what traces predict of each layout against its runs."""
    try:
        found = observe(points, ModelWanted(predicting, Explaining.HUGE)) if traces else ()
    except InputError:
        return ()
    texts = {point.label: _text(point) for point in points}
    return tuple(
        ranking_check(
            data.benchmark,
            traces[data.benchmark],
            [(texts[one.label], one.values) for one in _base_first(points, data.layouts)],
        )
        for data in found
        if data.benchmark in traces
    )


def _base_first(points: Sequence[Point], layouts: Sequence[LayoutValue]) -> list[LayoutValue]:
    """Return layouts in the order of the points, the baseline first."""
    by_label = {one.label: one for one in layouts}
    return [by_label[point.label] for point in points if point.label in by_label]
