"""What copies had in page sizes, held against what `--pages` planned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rater.lab.proof import PageVerdict, RunPages, prove_pages
from rater.plan.request import Request, request_to_json
from rater.record.events import PageRegion
from tests.support.example_runs import copy_row, stored

MB = 1 << 20
HALF = PageRegion(
    category="heap",
    split=False,
    share_of_bytes=100 * MB,
    extent_bytes=100 * MB,
    resident_bytes=100 * MB,
    planned_bytes=50 * MB,
    touched_bytes=50 * MB,
    huge_bytes=50 * MB,
    stray_bytes=0,
    page_bytes=((4096, 50 * MB), (2 * MB, 50 * MB)),
    largest_page_bytes=2 * MB,
    seen="exit",
    processes=1,
    forks=0,
    note=None,
)


def proved(region: PageRegion | None, layout: str = "50%") -> RunPages:
    request = request_to_json(Request(command=("x",), pages=layout))
    regions = () if region is None else (region,)
    run = stored([copy_row(number, 1.0, pages=regions) for number in (0, 1)], request=request)
    found = prove_pages(run)
    assert found is not None
    return found


def test_a_run_without_the_option_has_no_proof() -> None:
    assert prove_pages(stored([copy_row(0, 1.0)])) is None


def test_what_was_planned_and_had_is_a_share_of_what_there_was() -> None:
    found = proved(HALF)
    assert {it.verdict for it in found.copies} == {PageVerdict.MET}
    [row] = found.categories
    assert (row.planned_share, row.huge_share, row.differ) == (0.5, 0.5, 0)
    assert row.copies == len(found.copies)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"huge_bytes": 46 * MB}, None),  # two pages
        ({"huge_bytes": 44 * MB}, "heap: 46.1 MB of 52.4 MB in large pages"),
        ({"huge_bytes": 0, "forks": 3}, "heap: 0 MB of 52.4 MB in large pages, 3 times forked"),
        (
            {"touched_bytes": 20 * MB, "huge_bytes": 20 * MB},
            "heap: 31.5 MB of 52.4 MB planned were never touched",
        ),
        ({"stray_bytes": 6 * MB}, "heap: 6.29 MB in large pages that were not planned"),
        (
            {"extent_bytes": 200 * MB},
            "heap: shares are of 105 MB, it has 210 MB: 25 % planned of it",
        ),
        ({"note": "it moved the break itself"}, "it moved the break itself"),
    ],
)
def test_more_than_a_page_or_two_off_differs_with_the_reason(
    changes: dict[str, object], reason: str | None
) -> None:
    found = proved(replace(HALF, **changes))  # type: ignore[arg-type]
    verdict = PageVerdict.MET if reason is None else PageVerdict.DIFFERS
    assert {it.verdict for it in found.copies} == {verdict}
    assert found.copies[0].reasons == (() if reason is None else (reason,))


def test_what_cannot_be_seen_is_not_known() -> None:
    assert proved(None).copies[0].verdict is PageVerdict.NOT_KNOWN
    hidden = proved(replace(HALF, huge_bytes=None), "64k")
    assert hidden.copies[0].verdict is PageVerdict.NOT_KNOWN
    assert hidden.categories[0].huge_share is None
