"""Sweeps as they are shown: stored ones with their results, and those that are not made."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rater.plan.request import Request, request_from_json
from rater.plan.sweep import AxisKind, StoredSweep, Values
from rater.show.compare.sweep import (
    AxisView,
    PointView,
    SweepView,
    sweep_document,
    sweep_parts,
)
from rater.system.errors import InputError
from rater.text.secrets import command_text
from rater.workflow.arguments import Output, print_view

if TYPE_CHECKING:
    from rater.analysis.compare.model import Comparison
    from rater.analysis.results.score import Overall
    from rater.show.documents.sweep import SweepDocument, SweepResultDocument
    from rater.store.store import Store
    from rater.workflow.sweep.request import GridPoint, SweepRequest


def show_sweep(output: Output, store: Store, number: int) -> None:
    """Print a sweep with its points' results and their comparison with the first.

    At its end on a terminal what a screen has room for, unless `-v` asks for all.
    """
    from rater.store.sweeps import load_sweep

    sweep = load_sweep(store, number)
    view = view_of(sweep, results_of(store, sweep))
    comparison = comparison_of(store, sweep)
    detailed = output.verbose or not sys.stdout.isatty()
    document: SweepDocument = sweep_document(view)
    if output.json:
        from rater.show.compare.comparison import comparison_document

        compared = None if comparison is None else comparison_document(comparison)
        result: SweepResultDocument = {**document, "comparison": compared}
        document = result
    print_view(output, document, lambda _: sweep_parts(view, comparison, detailed=detailed))


def view_of(
    sweep: StoredSweep, results: Mapping[int, Sequence[Overall | None]] | None = None
) -> SweepView:
    """Return a stored sweep; `results` of its runs that are done, by point, in order."""
    runs: dict[int, list[int]] = {}
    failed: dict[int, int] = {}
    for slot_run in sweep.slots:
        if slot_run.done and slot_run.run is not None:
            runs.setdefault(slot_run.slot.point, []).append(slot_run.run)
            failed[slot_run.slot.point] = failed.get(slot_run.slot.point, 0) + slot_run.failed
    return SweepView(
        sweep=sweep,
        what=_describe_sweep(sweep),
        axes=_axes(dict(sweep.axes), [point.values for point in sweep.points]),
        points=tuple(
            PointView(
                point=point.point,
                label=point.label,
                values=point.values,
                left_out=point.left_out,
                runs=tuple(runs.get(point.point, ())),
                failed=failed.get(point.point, 0),
                results=tuple(
                    result for result in (results or {}).get(point.point, ()) if result is not None
                ),
            )
            for point in sweep.points
        ),
    )


def results_of(store: Store, sweep: StoredSweep) -> dict[int, list[Overall | None]]:
    """Return what the runs of each point came to."""
    from rater.analysis.results.rates import overall

    results: dict[int, list[Overall | None]] = {}
    for slot_run in sweep.slots:
        if slot_run.done and slot_run.run is not None:
            results.setdefault(slot_run.slot.point, []).append(overall(store.load(slot_run.run)))
    return results


def comparison_of(store: Store, sweep: StoredSweep) -> Comparison | None:
    """Return the points compared with the first that has runs; None for fewer than two."""
    from rater.analysis.compare.compare import MARGIN, compare
    from rater.workflow.results.points import count_interim_looks, load_points

    words = [f"sweep:{sweep.number}"]
    if len({slot.slot.point for slot in sweep.slots if slot.done}) < 2:
        return None
    points = load_points(store, words)
    return compare(
        points,
        margin=MARGIN if sweep.asked.until is None else sweep.asked.until,
        looks=count_interim_looks(store, points),
    )


def dry_view(sweep_request: SweepRequest, points: Sequence[GridPoint]) -> SweepView:
    """Return a sweep that is not made."""
    from rater.settings.tuner import find_setting
    from rater.system.paths import sysroot
    from rater.workflow.run.resolve import expected_total_s
    from rater.workflow.sweep.request import planned_sweep
    from rater.workflow.sweep.runner import SweepEta

    planned = planned_sweep(sweep_request, points)
    view, plans = view_of(planned), {point.point: point.plan for point in points}
    axes = _axes(sweep_request.kinds, [point.shown for point in points])
    obstacles: list[str] = []
    shown = []
    for axis in axes:
        if axis.kind != AxisKind.SETTING:
            shown.append(axis)
            continue
        setting = find_setting(axis.name, sysroot())
        for value in axis.values:
            try:
                setting.accept(value)
            except InputError as error:
                obstacles.append(str(error))
        problem = setting.obstacle()
        if problem:
            obstacles.append(f"{axis.name} cannot be set: {problem}")
        shown.append(AxisView(axis.name, axis.kind, axis.values, setting.read().description))
    return replace(
        view,
        what=_describe_requests(point.request for point in points),
        axes=tuple(shown),
        points=tuple(
            replace(
                point,
                values=grid_point.shown,
                copies=None if grid_point.plan is None else grid_point.plan.plan.copies,
                expected_s=None if grid_point.plan is None else expected_total_s(grid_point.plan),
            )
            for point, grid_point in zip(view.points, points, strict=True)
        ),
        total_s=SweepEta(plans).left_s([slot.slot for slot in planned.slots]),
        obstacles=tuple(obstacles),
    )


def _axes(kinds: Mapping[str, AxisKind], points: Sequence[Values]) -> tuple[AxisView, ...]:
    values: dict[str, dict[str, None]] = {name: {} for name in kinds}
    for point in points:
        for name, value in point:
            values[name][value] = None
    return tuple(AxisView(name, str(kind), tuple(values[name])) for name, kind in kinds.items())


def _describe_sweep(sweep: StoredSweep) -> str:
    requests = (
        request_from_json(point.request, f"sweep {sweep.number}")
        for point in sweep.points
        if point.left_out is None
    )
    return _describe_requests(requests)


def _describe_requests(requests: Iterable[Request | None]) -> str:
    real_requests = [request for request in requests if request is not None]
    if not real_requests:
        return "nothing that can run"
    first_request, commands = real_requests[0], len({request.command for request in real_requests})
    if commands > 1:
        return f"{commands} commands"
    return " ".join(first_request.suites) or command_text(first_request.command)
