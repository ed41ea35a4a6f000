"""The machine as a file, and cycles per instruction as stacked bars."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from rater.analysis.results.counters import run_counts
from rater.analysis.results.measure import Better
from rater.record.events import CopyEnded
from rater.show.charts.comparison import cpi_chart, cpi_lines, cpi_svg
from rater.show.charts.machine import machine_rows, machine_svg
from rater.show.charts.measured import DrawnMeasure
from rater.show.charts.vega import page_colours
from rater.system.errors import InputError
from tests.support.counted_runs import STACK, counted_run
from tests.support.drawings import needs_vega, texts
from tests.support.example_runs import copy_row, stored

_SVG = "{http://www.w3.org/2000/svg}"


def drawn(rows: list[CopyEnded], *panels: dict[str, Any]) -> str:
    """A run of these copies with these times, as `run_data` has them."""
    return machine_svg(7, machine_rows(stored(rows)), panels)


def panel(
    *dots: tuple[int | None, int | None, float],
    median: float | None = 10.0,
    failed: int | None = None,
) -> dict[str, Any]:
    """CPU, lgroup and seconds of copies; `failed`: the CPU of one that did."""
    bad = [] if failed is None else [[0, 0, 1, failed, 0, 1.0, "exit status 3"]]
    names = ("cpu", "node", "s")
    columns = {name: [dot[at] for dot in dots] for at, name in enumerate(names)}
    return {"median": median, "failed": bad, "dots": columns}


def titles(svg: str) -> list[str]:
    return texts(svg, "title")


def cpu_row(cpu: int, **place: int | None) -> CopyEnded:
    return copy_row(cpu, 10.0, **({"core": None, "llc": None, "node": 0} | place))


@pytest.mark.parametrize(
    ("rows", "panels", "shares", "lgroup"),
    [
        # Of two benchmarks, +0 % and +20 %, the middle.
        (1, [[(0, 0, 10.0)], [(0, 0, 12.0)]], ["+10 %"], "+10 %"),
        # CPU 0: one time. CPU 1: three. The lgroup is the median of all four, not of its CPUs.
        (
            2,
            [[(0, 0, 14.0), (1, 0, 10.0), (1, 0, 11.0), (1, 0, 12.0)]],
            ["+40 %", "+10 %"],
            "+15 %",
        ),
        # As the page writes numbers: JavaScript's toFixed takes 12.5 to 13.
        (1, [[(0, 0, 9.9)]], ["\u22121.0 %"], "\u22121.0 %"),
        (1, [[(0, 0, 10.0004)]], ["\u00b10.0 %"], "\u00b10.0 %"),
        (1, [[(0, 0, 11.25)]], ["+13 %"], "+13 %"),
    ],
)
def test_a_cpu_and_an_lgroup_are_the_medians_of_their_times(
    rows: int, panels: list[list[tuple[int, int, float]]], shares: list[str], lgroup: str
) -> None:
    svg = drawn([cpu_row(cpu) for cpu in range(rows)], *(panel(*dots) for dots in panels))

    assert titles(svg) == [f"CPU {cpu}: {share}" for cpu, share in enumerate(shares)]
    assert f"NUMA node 0 {lgroup}" in texts(svg)


def test_of_a_number_that_is_better_higher_the_lowest_cpu_is_orange() -> None:
    """A bandwidth of 8 beside 10 is worse: -20 % is orange as a time of +20 % is."""
    bandwidth = DrawnMeasure(name="bandwidth", unit="MB/s", better=Better.HIGHER)
    rows = machine_rows(stored([cpu_row(cpu) for cpu in range(3)]))
    values = [panel((0, 0, 10.0), (1, 0, 8.0), (2, 0, 12.0))]
    svg = machine_svg(7, rows, values, bandwidth)
    assert titles(svg) == ["CPU 0: \u00b10.0 %", "CPU 1: \u221220 %", "CPU 2: +20 %"]
    _, worst, best = re.findall(r'<g class="cpu".*?fill="(#\w+)"', svg, re.DOTALL)
    colours = page_colours()
    assert (worst, best) == (colours["hot"], colours["cool"])
    assert {"better, +20 %", "\u221220 %, worse"} <= set(texts(svg))
    with pytest.raises(InputError, match="no CPU is known whose copies have bandwidth above 0"):
        machine_svg(7, rows, [panel((0, 0, -1.0), median=-1.0)], bandwidth)


@pytest.mark.parametrize(
    ("times", "end"),
    [
        ((99.0, *[11.0] * 99), "10 %"),  # one of a hundred does not take the colours from others
        ((10.0, 13.0), "30 %"),
    ],
)
def test_the_colours_reach_to_the_cpu_that_is_farthest_out(
    times: Sequence[float], end: str
) -> None:
    dots = [(cpu, 0, seconds) for cpu, seconds in enumerate(times)]

    svg = drawn([cpu_row(cpu) for cpu, *_ in dots], panel(*dots))

    assert {f"faster, \u2212{end}", f"+{end}, slower"} <= set(texts(svg))
    assert 'fill="#d55e00"' in svg


def test_a_cpu_whose_copies_failed_is_struck_out_not_unused() -> None:
    rows = [cpu_row(cpu) for cpu in range(4)]

    svg = drawn(rows, panel((0, 0, 10.0), failed=1), panel((0, 0, 10.0), (2, 0, 10.0), failed=2))

    assert titles(svg) == [
        "CPU 0: \u00b10.0 %",
        "CPU 1: a copy failed",
        "CPU 2: \u00b10.0 %, a copy failed",
        "CPU 3: not used",
    ]
    assert {"a copy failed", "not used"} <= set(texts(svg)), "in the key"
    assert svg.count('class="strike"') == 3, "two CPUs and the key"


def test_a_benchmark_without_a_median_still_shows_what_failed() -> None:
    assert titles(drawn([cpu_row(0)], panel(median=None, failed=0))) == ["CPU 0: a copy failed"]


def test_the_ground_is_white() -> None:
    svg = drawn([cpu_row(0)], panel((0, 0, 10.0)))

    first = next(iter(ElementTree.fromstring(svg)))
    whole = ElementTree.fromstring(svg).attrib
    assert (first.tag, first.attrib["fill"]) == (f"{_SVG}rect", "#ffffff")
    assert (first.attrib["width"], first.attrib["height"]) == (whole["width"], whole["height"])


def test_the_cpus_of_a_core_touch_and_those_of_an_llc_have_a_frame() -> None:
    # Two LLCs of a core each, a core of two CPUs.
    rows = [cpu_row(cpu, core=cpu // 2, llc=cpu // 2) for cpu in range(4)]

    svg = drawn(rows, panel(*((cpu, 0, 10.0) for cpu in range(4))))

    assert titles(svg) == [
        "LLC",
        "CPU 0: \u00b10.0 %",
        "CPU 1: \u00b10.0 %",
        "LLC",
        "CPU 2: \u00b10.0 %",
        "CPU 3: \u00b10.0 %",
    ]
    assert "CPUs that touch are a core; a frame is a last-level cache (LLC)" in texts(svg)
    assert svg.count('<g transform="translate(16 0)"><g class="cpu"') == 2, "beside its sibling"


def test_what_is_not_known_of_a_machine_and_did_not_happen_is_not_drawn() -> None:
    svg = drawn([cpu_row(cpu) for cpu in range(2)], panel((0, 0, 10.0), (1, 0, 10.0)))

    assert not any(words in svg for words in ("LLC", "are a core", "a copy failed", "not used"))


def test_the_name_of_a_small_lgroup_fits_into_its_box() -> None:
    rows = [cpu_row(0, node=17)]

    svg = drawn(rows, panel((0, 17, 11.7)))

    (box,) = re.findall(r'width="([\d.]+)" height="[\d.]+" fill="#f3f3f1"', svg)
    assert float(box) >= 6.4 * len("NUMA node 17 +17 %")


def test_an_lgroup_that_spans_packages_holds_them() -> None:
    rows = [cpu_row(cpu, package=cpu) for cpu in range(2)]

    svg = drawn(rows, panel((0, 0, 10.0), (1, 0, 10.0)))

    assert [text for text in texts(svg) if text.startswith(("NUMA", "package"))] == [
        "NUMA node 0 \u00b10.0 %",
        "package 0",
        "package 1",
    ]


SLOW = counted_run(cycles=3000)


def test_bars_stand_on_each_other_up_to_the_cpi() -> None:
    chart = cpi_chart([("run 1", run_counts(counted_run()).benchmarks)])
    assert chart
    bars = chart["data"]["bars"]
    assert [bar["part"] for bar in bars] == list(STACK)
    assert all(a["to"] == b["from"] for a, b in pairwise(bars))
    assert (bars[0]["from"], bars[-1]["to"]) == (0.0, pytest.approx(2.0))
    assert [total["text"] for total in chart["data"]["totals"]] == ["2.00"]
    assert len({bar["colour"] for bar in bars}) == len(bars)


@needs_vega
def test_two_points_are_in_per_cent_of_the_first() -> None:
    points = [
        (name, run_counts(run).benchmarks) for name, run in (("A", counted_run()), ("B", SLOW))
    ]
    chart = cpi_chart(points)
    assert chart
    assert [mark["text"] for mark in chart["data"]["titles"]] == ["a base: A", "B"]
    assert [mark["text"] for mark in chart["data"]["totals"]] == ["100 %", "150 %"]
    svg = cpi_svg(chart, "A and B")
    for word in ("A and B, % of the first point", "bad speculation", "150 %"):
        assert word in svg
    user = run_counts(counted_run(end=":u")).benchmarks
    alone = cpi_chart([points[0], ("user mode", user)])
    assert alone
    assert [mark["text"] for mark in alone["data"]["titles"]] == ["a base: A"]


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
