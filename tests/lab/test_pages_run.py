"""`--pages` through whole runs: what was planned and what copies had, and what is refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rater.lab.layout import parse_pages
from rater.lab.pools import machine_problems
from tests.support.calls import Rater, rows

MB = 1 << 20
HUGE = 2 * MB
# Touches so many MB of one block.
PROGRAM = "import sys; x = bytearray(b'1') * (int(sys.argv[1]) << 20)"
_NONE = machine_problems(parse_pages("2M"), pooled=False, root=Path("/"), planned={})
huge_pages = pytest.mark.skipif(bool(_NONE), reason=f"no huge pages here: {_NONE}")


def had(run: int) -> dict[tuple[int, str], tuple[int, int, int, int]]:
    """Extent, planned, touched and huge bytes by copy and category."""
    found = rows(
        "SELECT copy, category, extent_bytes, planned_bytes, touched_bytes, huge_bytes "
        f"FROM page_region WHERE run_id = {run}"
    )
    return {(copy, category): tuple(rest) for copy, category, *rest in found}


@huge_pages
@pytest.mark.usefixtures("nobody_else")
def test_half_of_the_heap_lies_in_huge_pages_where_that_was_asked_for(rater: Rater) -> None:
    """The first run learns how large the heap becomes, the second knows it from there."""
    command = ("--copies", 2, "--", sys.executable, "-c", PROGRAM, "32")
    status, _, err = rater("run", "--pages", "50%", *command)
    assert (status, "one copy of python" in err) == (0, True)
    status, _, err = rater("run", "--pages", "0%", *command)
    assert (status, "one copy of" in err) == (0, False)
    for copy in (0, 1):
        extent, planned, touched, huge = had(1)[copy, "heap"]
        assert 32 * MB < extent < 64 * MB
        assert abs(planned - extent / 2) <= HUGE
        assert abs(touched - planned) <= HUGE
        assert abs(huge - planned) <= HUGE
        assert had(2)[copy, "heap"][1:] == (0, 0, 0)
    assert list((Path(os.environ["RATER_CACHE"]) / "work").iterdir()) == []


@huge_pages
@pytest.mark.usefixtures("nobody_else")
def test_large_blocks_are_of_the_mappings_where_categories_are_named(rater: Rater) -> None:
    command = ("--copies", 1, "--", sys.executable, "-c", PROGRAM, "32")
    status, _, err = rater("run", "--quiet", "--pages", "mmap:huge", *command)
    assert status == 0, err
    heap, mmap = had(1)[0, "heap"], had(1)[0, "mmap"]
    assert heap[3] == 0
    assert heap[0] < 16 * MB
    assert mmap[3] >= 32 * MB


def test_what_cannot_have_a_layout_is_refused_before_it_runs(rater: Rater, tmp_path: Path) -> None:
    static = tmp_path / "static"
    head = bytearray(64)
    head[:7] = b"\x7fELF\x02\x01\x01"
    head[16], head[18], head[54] = 2, 62, 56  # a program, x86-64, of no segments
    static.write_bytes(head)
    static.chmod(0o755)
    status, _, err = rater("run", "--pages", "0%", "--copies", 1, "--", static)
    assert (status, "is statically linked" in err) == (2, True)
    for words, why in (
        (("--pages", "0%", "--hugepages", "off"), "gives copies no huge pages at all"),
        (("--pages", "0%", "--alloc", "jemalloc"), "which --alloc replaces"),
        (("--pages-heap", "1G"), "--pages-heap says something of --pages LAYOUT"),
        (("--pages", "50"), "expected base, huge, a size (2M), 50%"),
        (("--pages", "8k", "--pages-backing", "hugetlb"), "no pool of pages of 8k"),
    ):
        status, _, err = rater("run", "--copies", 1, *words, "--", "true")
        assert status == 2, (words, err)
        assert why in " ".join(err.split()), err
