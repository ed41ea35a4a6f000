"""OPERA D5.5: lines of time and energy over page walks, and how wrong they are with two points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rater.analysis.results.score import summarise
from rater.lab.layout.layout import Category, page_windows, parse_pages
from rater.lab.models.model import BenchmarkTrace, misses_of
from rater.lab.trace.costs import page_costs
from rater.plan.tlb import parse_tlb
from rater.settings.tuner import SettingsSession
from tests.support.calls import Rater
from tests.support.example_runs import copy_row, stored, with_energy
from tests.support.papers import json_of, suite_of
from tests.support.settings_tree import contents, make_tree
from tests.support.traces import COSTS, TLB, a_trace

MB = 1 << 20


def fitted(
    rater: Rater, folder: Path, text: str, x: str = "walks", y: str = "joules"
) -> dict[str, Any]:
    """Return the model of points in a CSV file."""
    path = folder / "points.csv"
    path.write_text(text)
    (model,) = json_of(rater, "lab", "model", "--csv", path, "--x", x, "--y", y)["models"]
    return dict(model)


def test_section_4_1_copies_are_bound_to_isolated_cpus_and_their_memory(
    rater: Rater, tmp_path: Path
) -> None:
    words = ("--layout", "list:2,6", "--copies", 2, "--mem", "bind")
    plan = json_of(rater, "plan", suite_of(tmp_path, ["a"]), "--topology", "nodes=2x4", *words)
    assert [copy["cpus"] for copy in plan["copies"]] == [[2], [6]]
    assert [copy["memory"] for copy in plan["copies"]] == [
        {"policy": "bind", "nodes": [0]},
        {"policy": "bind", "nodes": [1]},
    ]


def test_section_4_2_pools_of_huge_pages_are_set_and_put_back(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "machine")
    before = contents(root)
    with SettingsSession(root, tmp_path / "settings.json", "rater sweep") as tuner:
        tuner.set({"hugepages.2048kB": "100"})
        assert contents(root) != before
    assert contents(root) == before


def test_section_4_3_a_layout_mixes_page_sizes_in_one_program() -> None:
    """Of 8 MB of heap and 8 MB of mappings: the heap's first half in huge pages."""
    extents = {Category.HEAP: 8 * MB, Category.MMAP: 8 * MB}
    windows = page_windows(parse_pages("heap:50%;mmap:4k"), extents, 2 * MB)
    assert [(it.category, it.start, it.end) for it in windows] == [(Category.HEAP, 0, 4 * MB)]


def test_figures_1_to_3_and_7_a_line_through_points_has_its_slope_and_r2(
    rater: Rater, tmp_path: Path
) -> None:
    """By hand: .4, .6, 1.8 at 1, 2, 4: slope (15.2 - 3 x 7/3 x 14/15) / (21 - 49/3) = .4857."""
    model = fitted(rater, tmp_path, "walks,joules\n1,0.4\n2,0.6\n4,1.8\n")
    line = next(fit for fit in model["models"] if fit["degree"] == 1)
    parabola = next(fit for fit in model["models"] if fit["degree"] == 2)
    x, y = (1.0, 2.0, 4.0), (0.4, 0.6, 1.8)
    mean_x, mean_y = sum(x) / 3, sum(y) / 3
    squares = sum((at - mean_x) ** 2 for at in x)
    slope = sum((at - mean_x) * (value - mean_y) for at, value in zip(x, y, strict=True)) / squares
    assert line["coefficients"][1] == pytest.approx(slope)
    assert line["quality"]["r2"] == pytest.approx(
        slope**2 * squares / sum((value - mean_y) ** 2 for value in y)
    )
    assert parabola["quality"]["r2"] == pytest.approx(1)


def test_figures_1_to_3_have_walks_of_a_stored_trace_where_there_is_no_counter() -> None:
    traced = BenchmarkTrace(1, a_trace(), page_costs(COSTS, parse_tlb(TLB)))
    predicted = misses_of({"made": traced})
    assert predicted is not None
    assert [predicted("made", layout) for layout in ("0%", "100%")] == [3407, pytest.approx(9)]


def test_figures_4_to_6_have_joules_of_a_copy() -> None:
    """100 J of the package in 10 s, which two copies share."""
    rows = [copy_row(copy, 10.0, user_ns=10_000_000_000) for copy in (0, 1)]
    summary = summarise(with_energy(stored(rows), 100.0))
    (energy,) = summary.energies
    assert energy.joules == pytest.approx(100)
    assert energy.watts == pytest.approx(10)
    assert summary.scores[0].iterations[0].joules_per_copy == pytest.approx(50)


def test_table_1_lines_through_two_of_three_points_are_44_to_100_per_cent_off(
    rater: Rater, tmp_path: Path
) -> None:
    """By hand: 1.0 for 1.8 is -44.4 %, .8667 for .6 is +44.4 %, 0 for .4 is -100 %."""
    text = "layout,walks,joules\n2M,1,0.4\nmixed,2,0.6\n4k,4,1.8\n"
    model = fitted(rater, tmp_path, text)
    errors = {
        tuple(pair["fitted_on"]): [error for error in pair["errors"] if error is not None]
        for pair in model["two_point_models"]
    }
    assert errors == {
        ("2M", "mixed"): [pytest.approx(-0.444, abs=0.001)],
        ("2M", "4k"): [pytest.approx(0.444, abs=0.001)],
        ("mixed", "4k"): [pytest.approx(-1.0)],
    }


def test_points_of_ones_own_become_a_model_and_a_wrong_file_says_where(
    rater: Rater, tmp_path: Path
) -> None:
    """y = 45 + .1 x over five layouts, with what a researcher's table has beside."""
    rows = "".join(f"bfs;L{at};{at * 250};{45 + 25 * at};x\n" for at in range(5))
    model = fitted(rater, tmp_path, "benchmark;layout;cycles;joules;note\n" + rows, x="cycles")
    assert model["benchmark"] == "bfs"
    assert model["choice"]["warranted"] == "linear"
    assert model["models"][1]["coefficients"] == pytest.approx([45, 0.1])
    with_commas = "cycles;joules\n" + "".join(
        f"{at * 250},5;{45 + 25 * at},05\n" for at in range(5)
    )
    model = fitted(rater, tmp_path, with_commas, x="cycles")
    assert model["models"][1]["coefficients"] == pytest.approx([45, 0.1])
    path = tmp_path / "points.csv"
    path.write_text("walks,joules,big\n1,2,3e300\n2,two,1\n")
    wrong = {
        ("--x", "walks", "--y", "big"): "row 1: big: expected 0 or a size from 1e-30 to 1e+30",
        ("--x", "walks", "--y", "joules"): "row 2: joules: 'two' is no number",
        ("--x", "walk", "--y", "joules"): "--x walk: no such column; its first line has: walks",
        ("--y", "joules"): "expected --x COLUMN and --y COLUMN as well",
    }
    for words, said in wrong.items():
        status, out, err = rater("lab", "model", "--csv", path, *words)
        assert (status, out) == (2, "")
        assert said in err
    path.write_text('walks,joules\n1,"2,5"\n')
    _, _, err = rater("lab", "model", "--csv", path, "--x", "walks", "--y", "joules")
    assert "row 1: joules: '2,5' is no number; decimals follow a point here" in err
    path.write_bytes("walks,joules,é\n1,2,3\n".encode("latin-1"))
    for name, said in ((path, "byte 14 is not UTF-8"), (tmp_path, "cannot be read (")):
        status, _, err = rater("lab", "model", "--csv", name, "--x", "walks", "--y", "joules")
        assert (status, err.count("\n")) == (2, 1)
        assert said in err
