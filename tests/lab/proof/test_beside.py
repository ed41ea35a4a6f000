"""Layouts are compared with 0 %, never with no library."""

from __future__ import annotations

import pytest

from rater.analysis.compare.compare import compare
from rater.analysis.results.copies import Point, PointRun
from rater.lab.proof import base_side, layout_warnings
from rater.plan.request import Request, request_to_json
from rater.record.stored import StoredRun
from tests.support.example_runs import copy_row, stored


def run(number: int, layout: str | None) -> StoredRun:
    request = request_to_json(Request(command=("x",), pages=layout))
    rows = [copy_row(copy, 1.0) for copy in (0, 1)]
    return stored(rows, request=request, run=number, uuid=f"u{number}")


@pytest.mark.parametrize(
    ("layouts", "place"),
    [
        (("50%", "0%", "100%"), 1),
        (("100%", "heap:base"), 1),
        (("50%", "100%"), None),
        ((None, "50%"), None),
        (("0%", None), None),  # no layout to compare with it
        ((None, "0%", "50%"), 1),
    ],
)
def test_the_baseline_is_the_layout_of_small_pages(
    layouts: tuple[str | None, ...], place: int | None
) -> None:
    assert base_side([[run(number, it)] for number, it in enumerate(layouts)]) == place


@pytest.mark.parametrize(
    ("layouts", "says"),
    [
        (("0%", "50%"), []),
        ((None, None), []),
        ((None, "50%"), ["b with --pages beside a without"]),
        (("0%", "heap:huge"), ["b keeps large blocks apart from small ones, a does not"]),
        (("heap:base", "mmap:huge"), []),
    ],
)
def test_what_is_no_fair_comparison_is_said(
    layouts: tuple[str | None, ...], says: list[str]
) -> None:
    sides = [("ab"[place], [run(place, it)]) for place, it in enumerate(layouts)]
    found = layout_warnings(sides)
    assert len(found) == len(says)
    assert all(text.startswith(start) for text, start in zip(found, says, strict=True))


def test_points_are_compared_with_the_layout_of_small_pages() -> None:
    points = [
        Point(f"pages={it}", (("pages", it),), (PointRun(run(number, it), 0),))
        for number, it in enumerate(("100%", "0%"))
    ]
    assert [side.label for side in compare(points).sides] == ["pages=0%", "pages=100%"]
    ordered = compare(points, baseline="pages=100%")
    assert [side.label for side in ordered.sides] == ["pages=100%", "pages=0%"]
    assert ordered.pages == ()
