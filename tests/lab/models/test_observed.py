"""What x is: counted walks where there are some, predicted misses, else the axis."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rater.analysis.results.copies import Point, PointRun
from rater.lab.observed import EffortKind, ModelData, ModelRequest, PredictorKind, Response, observe
from rater.record.events import PageRegion
from rater.record.stored import StoredRun
from tests.support.counted_runs import counted_run

# Walks of a copy that does 1000 instructions, and what it takes with so many walks.
WALKS = {"0%": 400, "50%": 200, "100%": 0}


def point(text: str, run: StoredRun, axis: str = "pages") -> Point:
    return Point(f"{axis}={text}", ((axis, text),), (PointRun(run, None),))


def points(*groups: str) -> list[Point]:
    found = []
    for number, (text, walks) in enumerate(WALKS.items(), 1):
        events = {"walk_load": walks, "walk_store": 0} if "translation" in groups else {}
        made = counted_run(groups, copies=1, cycles=2000 + walks, **events)
        run = replace(made, head=replace(made.head, run=number, copies=1))
        found.append(point(text, run))
    return found


def observed(
    every: list[Point], wanted: ModelRequest | None = None, misses: float | None = None
) -> ModelData:
    predicted = None if misses is None else lambda _, text: misses * (1 + len(text))
    (found,) = observe(every, wanted or ModelRequest(), predicted)
    return found


def test_counted_walks_are_cycles_of_a_copy_and_come_first() -> None:
    data = observed(points("translation"), ModelRequest(Response(EffortKind.CYCLES)))
    assert (data.x.kind, data.x.source) == ("walks", "counted by the hardware")
    assert [one.x for one in data.layouts] == [0, 200, 400]
    assert [one.y for one in data.layouts] == pytest.approx([2000, 2200, 2400])


def test_without_counted_walks_x_is_predicted_else_the_share_of_the_axis() -> None:
    data = observed(points("pipeline"))
    assert (data.x.kind, [one.x for one in data.layouts]) == ("huge", [0, 50, 100])
    assert data.x.source == "the share that --pages planned"
    data = observed(points("pipeline"), misses=10.0)
    assert (data.x.kind, data.x.source) == ("misses", "predicted from a stored trace")
    assert [one.x for one in data.layouts] == [30, 40, 50]


def region(huge_bytes: int | None) -> PageRegion:
    """A heap of 100 bytes."""
    sizes = {"extent_bytes": 100, "resident_bytes": 100, "planned_bytes": 100}
    return PageRegion(
        category="heap",
        split=False,
        share_of_bytes=None,
        **sizes,
        touched_bytes=100,
        huge_bytes=huge_bytes,
        stray_bytes=0,
        page_bytes=(),
        largest_page_bytes=1 << 21,
        seen="exit",
        processes=1,
        forks=0,
        note=None,
    )


def with_pages(every: list[Point], *huge_bytes: int | None) -> list[Point]:
    found = []
    for one, size in zip(every, huge_bytes, strict=True):
        run = one.runs[0].run
        copies = tuple(replace(copy, pages=(region(size),)) for copy in run.copies)
        found.append(replace(one, runs=(PointRun(replace(run, copies=copies), None),)))
    return found


def test_the_share_that_copies_had_is_better_than_what_was_planned() -> None:
    data = observed(with_pages(points("pipeline"), 0, 40, 90))
    assert data.x.source == "the share that copies had, as proved"
    assert [one.x for one in data.layouts] == [0, 40, 90]
    data = observed(with_pages(points("pipeline"), 0, None, 90))
    assert (data.x.source, len(data.layouts)) == ("the share that --pages planned", 3)


def test_layouts_that_are_no_shares_have_the_share_that_copies_had() -> None:
    every = points("pipeline")
    every[1] = point("heap:huge", every[1].runs[0].run)
    assert [one.x for one in observed(with_pages(every, 0, 40, 90)).layouts] == [0, 40, 90]


def test_a_number_that_the_program_reports_can_be_y() -> None:
    every = []
    for one, updates in zip(points("pipeline"), (0.5, 0.75, 1.0), strict=True):
        run = one.runs[0].run
        copies = tuple(replace(copy, metrics=(("updates", updates),)) for copy in run.copies)
        every.append(replace(one, runs=(PointRun(replace(run, copies=copies), None),)))
    data = observed(every, ModelRequest(Response(EffortKind.METRIC, "updates")))
    assert data.y.name == "updates as a copy reports it"
    assert [one.y for one in data.layouts] == pytest.approx([0.5, 0.75, 1.0])


def test_user_time_leaves_out_what_the_kernel_did_for_a_copy() -> None:
    every = []
    for one, user_s in zip(points("pipeline"), (5, 4, 3), strict=True):
        run = one.runs[0].run
        copies = tuple(replace(it, cpu_ns=9 * 10**9, user_ns=user_s * 10**9) for it in run.copies)
        every.append(replace(one, runs=(PointRun(replace(run, copies=copies), None),)))
    cpu = observed(every, ModelRequest(Response(EffortKind.CPU)))
    assert [one.y for one in cpu.layouts] == pytest.approx([9, 9, 9])
    data = observed(every, ModelRequest(Response(EffortKind.USER)))
    assert data.y.name == "user time of a copy"
    assert [one.y for one in data.layouts] == pytest.approx([5, 4, 3])


def test_what_is_asked_for_by_name_is_x_though_better_is_there() -> None:
    data = observed(points("translation"), ModelRequest(explaining=PredictorKind.HUGE))
    assert data.x.kind == "huge"


def test_layouts_without_x_are_left_out_and_named_where_it_is_asked_for() -> None:
    every = points("translation")
    every[1] = replace(every[1], runs=points("pipeline")[1].runs)
    data = observed(every, ModelRequest(explaining=PredictorKind.WALKS))
    assert [one.label for one in data.layouts] == ["pages=100%", "pages=0%"]
    assert data.lacking == ("pages=50%: no page-walk cycles of a copy",)
    assert observed(every).x.kind == "huge"
