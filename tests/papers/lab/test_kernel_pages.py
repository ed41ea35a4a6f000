"""Kernels of 4 and 64 KB compared: improvements and reductions, TLB coverage, a JVM a chip."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from rater.analysis.compare.compare import compare
from rater.analysis.compare.differences import point_differences
from rater.analysis.compare.model import IPC, counted_changes
from rater.analysis.results.copies import Point, PointRun
from rater.lab.trace.ranking import tlb_coverage
from rater.lab.trace.tlb import PageReuse
from rater.plan.tlb import parse_tlb
from rater.record.stored import StoredRun
from rater.text.values import percent
from tests.support.calls import Rater
from tests.support.counted_runs import counted_run
from tests.support.made_sweeps import make_sweep
from tests.support.papers import json_of, suite_of

NOBODY = (0, 0, 0, 0, 0, 0)


def points_of(*runs: StoredRun) -> list[Point]:
    """Return each run as a point of its own."""
    points = []
    for number, run in enumerate(runs, 1):
        head = replace(run.head, run=number, uuid=f"{number}")
        points.append(Point(f"run {number}", (), (PointRun(replace(run, head=head), None),)))
    return points


def test_gigabytes_operations_and_time_have_improvement_and_reduction(
    rater: Rater, database: Path
) -> None:
    """2 s become 1.6 s: an improvement of 25 %, a reduction of 20 %."""
    make_sweep(database, "pages", {"0%": [2.0, 2.002, 1.998], "100%": [1.6, 1.6016, 1.5984]})
    document = json_of(rater, "lab", "pages", "--show", "last")
    (row,) = document["comparison"]["benchmarks"]
    assert row["points"][0]["improvement"] == pytest.approx(0.25)
    assert row["points"][0]["reduction"] == pytest.approx(0.20)


def test_ipc_improves_by_12_6_and_misses_fall_by_98_4_per_cent_in_one_table() -> None:
    """Cycles fall to 1 / 1.126, walks of loads and stores to 1.6 %."""
    before = counted_run(walks_load=90_000, walks_store=10_000, stlb_hit_load=0, stlb_hit_store=0)
    after = counted_run(
        cycles=round(2000 / 1.126),
        walks_load=1_440,
        walks_store=160,
        stlb_hit_load=0,
        stlb_hit_store=0,
    )
    sides = compare(points_of(before, after)).sides
    changes = {change.name: change for change in counted_changes(sides)}
    assert changes[IPC].improvements[0] == pytest.approx(0.126, abs=0.0005)
    assert changes[IPC].reductions == (None,)
    assert changes["walks_mpki"].reductions[0] == pytest.approx(0.984, abs=0.0005)
    assert changes["walks_mpki"].improvements == (None,)


def test_a_tlb_of_2048_entries_covers_8_mb_of_16_gb_which_is_a_twentieth_of_a_per_cent() -> None:
    pages = 16 << 30 >> 12
    touched = PageReuse(
        page_bytes=4096, faults=NOBODY, pages=(0, pages, 0, 0, 0, 0), histogram=((),) * 6
    )
    covered_bytes, share = tlb_coverage(parse_tlb("64x4,2048x8"), touched)
    assert covered_bytes == 8 << 20
    assert percent(share, 2) == "0.05"


def test_kernels_with_base_pages_of_4_and_of_64_kb_are_told_apart() -> None:
    small, large = (("kernel.page_bytes", size) for size in ("4096", "65536"))
    kernels = [replace(counted_run(), settings=(setting,)) for setting in (small, large)]
    differences = {one.what: one for one in point_differences(points_of(*kernels))}
    (page_size,) = [one for what, one in differences.items() if "page" in what]
    assert {value for value, _ in page_size.values} == {"4096", "65536"}


def test_one_virtual_machine_for_each_of_16_chips(rater: Rater, tmp_path: Path) -> None:
    suite = suite_of(tmp_path, ["jbb"])
    machine = ("--topology", "pack:16 numa:1 core:2 pu:2")
    plan = json_of(rater, "plan", suite, *machine, "--copies", 16, "--bind", "package")
    assert [copy["cpus"] for copy in plan["copies"]] == [
        [4 * chip, 4 * chip + 1, 4 * chip + 2, 4 * chip + 3] for chip in range(16)
    ]
