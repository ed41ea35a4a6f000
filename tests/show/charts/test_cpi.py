"""Cycles per instruction as stacked bars."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rater.analysis.results.counters import run_counts
from rater.show.charts.comparison import cpi_chart, cpi_lines, cpi_svg
from tests.support.counted_runs import STACK, counted_run
from tests.support.example_runs import stored

SLOW = counted_run(cycles=3000)


def test_bars_stand_on_each_other_up_to_the_cpi() -> None:
    chart = cpi_chart([("run 1", run_counts(counted_run()).benchmarks)])
    assert chart
    bars = chart["data"]["bars"]
    assert [bar["part"] for bar in bars] == list(STACK)
    assert all(a["to"] == b["from"] for a, b in pairwise(bars))
    assert (bars[0]["from"], bars[-1]["to"]) == (0.0, pytest.approx(2.0))
    assert [one["text"] for one in chart["data"]["totals"]] == ["2.00"]
    assert len({bar["colour"] for bar in bars}) == len(bars)


def test_two_points_are_in_per_cent_of_the_first() -> None:
    points = [
        (name, run_counts(run).benchmarks) for name, run in (("A", counted_run()), ("B", SLOW))
    ]
    chart = cpi_chart(points)
    assert chart
    assert [one["text"] for one in chart["data"]["titles"]] == ["a base: A", "B"]
    assert [one["text"] for one in chart["data"]["totals"]] == ["100 %", "150 %"]
    svg = cpi_svg(chart, "A and B")
    for word in ("A and B, % of the first point", "bad speculation", "150 %"):
        assert word in svg
    user = run_counts(counted_run(end=":u")).benchmarks
    alone = cpi_chart([points[0], ("user mode", user)])
    assert alone
    assert [one["text"] for one in alone["data"]["titles"]] == ["a base: A"]


def test_the_terminal_has_a_letter_for_each_part() -> None:
    chart = cpi_chart([("run 1", run_counts(counted_run()).benchmarks)])
    assert chart
    legend, bar = cpi_lines(chart, 60)
    assert legend == (
        "cycles per instruction: b base, f front end, a bad speculation, t translation, 1 l1, "
        "2 l2, 3 l3, d dram, o other"
    )
    assert bar == "a base bbbbbbbffatttt11222223333dddddddddddoooooooo 2.00"


def test_a_run_without_a_stack_has_no_picture() -> None:
    assert cpi_chart([("run 1", run_counts(stored([])).benchmarks)]) is None
