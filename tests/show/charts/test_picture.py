"""The picture of the copies' times: its parts, in a terminal, in files, by `rater show plot`."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from rater.analysis.divots.model.finding import CellEffect, CopyEffect, Kind
from rater.analysis.results.copies import group_cells
from rater.analysis.results.measure import Better, copy_values, value_reported
from rater.record.events import CopyEnded
from rater.record.run import CopyStatus
from rater.show.charts.measured import (
    TIME,
    DrawnMeasure,
    measured_cells,
    percent_text,
    time_text,
)
from rater.show.charts.panels import (
    failed_text,
    label_text,
    labels_from,
    not_known_text,
    outside_text,
    picture_svg,
)
from rater.show.charts.picture import Label, NodeSpan, Picture, picture_of
from rater.show.charts.terminal import print_picture
from rater.show.charts.vega import rendered
from rater.show.screen.console import Printer, TextScreen
from rater.workflow.results.points import write_drawing
from tests.support.calls import Rater
from tests.support.drawings import marks, needs_vega, texts
from tests.support.example_findings import finding_of
from tests.support.example_runs import copy_row, in_turn, stored, windowed


def picture(
    rows: Sequence[CopyEnded], labels: Sequence[Label] = (), iteration: int | None = None
) -> Picture:
    run = stored(rows, copies=len({row.copy for row in rows}))
    return picture_of(run.head, measured_cells(group_cells(run)), labels, iteration=iteration)


def times(*seconds: float, per_node: int = 2, **changes: object) -> list[CopyEnded]:
    """A copy for each time, so many of them on one node."""
    return [
        copy_row(number, time_s, node=number // per_node, **changes)
        for number, time_s in enumerate(seconds)
    ]


FINDING = finding_of(
    Kind.SLOW_LGROUP,
    "node 1",
    (2, 3),
    benchmarks=("a", "b"),
    tune=None,
    nodes=(1,),
    package=None,
    cells=(
        CellEffect(benchmark="a", tune=None, iteration=1, slowdown=1.10, rate_lost=0.0),
        CellEffect(benchmark="a", tune=None, iteration=2, slowdown=1.14, rate_lost=0.0),
        CellEffect(benchmark="b", tune=None, iteration=1, slowdown=1.25, rate_lost=0.0),
    ),
)


def test_copies_stand_by_lgroup_then_by_number() -> None:
    rows = [copy_row(copy, 10.0, node=copy % 2) for copy in range(4)]
    shown = picture(rows)
    assert shown.names == (0, 2, 1, 3)
    assert shown.groups == (NodeSpan(0, 0, 2), NodeSpan(1, 2, 2))
    assert not shown.ascending
    assert [dot.place for dot in shown.panels[0].dots] == [0, 2, 1, 3]


def test_without_known_places_there_are_no_groups() -> None:
    shown = picture([copy_row(copy, 10.0, node=None, cpu=None) for copy in range(3)])
    assert (shown.axis, shown.names, shown.groups) == ("copy", (0, 1, 2), ())


def test_where_copies_move_the_places_are_cpus() -> None:
    """Two CPUs, one copy on each; they change places for the second iteration."""
    rows = [
        copy_row(copy, 10.0 + cpu, cpu=cpu, node=cpu, iteration=it, phase=it)
        for it in (1, 2)
        for copy, cpu in ((0, it - 1), (1, 2 - it))
    ]
    label = Label(copies=(0, 1), text="CPU 1: +10 %", cpus=(1,))
    shown = picture(rows, [label])
    assert (shown.axis, shown.names) == ("CPU", (0, 1))
    ((_, dots),) = shown.panels[0].parts()
    assert [(dot.cpu, dot.value) for dot in dots] == [(1, 11.0), (1, 11.0)]
    unbound = picture([replace(row, cpu=None, node=None) for row in rows])
    assert (unbound.axis, unbound.groups) == ("copy", ())


HUNDREDS = 16 * (100.0,)


@pytest.mark.parametrize(
    ("seconds", "extent", "above", "below"),
    [
        ((100.0, 100.0, 110.0, 125.0), (100.0, 125.0), "", ""),
        ((*HUNDREDS, 101.0, 100_000.0), (100.0, 101.0), "copy 17: 100000 s", ""),
        ((*HUNDREDS, 0.1), (100.0, 100.0), "", "copy 16: 100.0 ms"),
        ((*[1.0] * 96, 10.0, 20.0, 30.0, 40.0), (1.0, 1.0), "4 copies: 10.00 s to 40.00 s", ""),
        ((*[1.0] * 8, *[100.0] * 8), (1.0, 100.0), "", ""),  # half of them are no strays
    ],
)
def test_a_few_copies_far_out_do_not_flatten_the_others(
    seconds: Sequence[float], extent: tuple[float, float], above: str, below: str
) -> None:
    (panel,) = picture(times(*seconds)).panels
    assert panel.extent() == extent
    assert panel.low < extent[0]
    assert extent[1] < panel.high < 1.1 * extent[1]
    assert outside_text(panel.outside(above=True), TIME) == above
    assert outside_text(panel.outside(above=False), TIME) == below


@pytest.mark.parametrize("slowest", [100.0, 100.1])
def test_copies_that_hardly_differ_stand_level(slowest: float) -> None:
    (panel,) = picture(times(100.0, 100.0, 100.0, slowest)).panels
    assert panel.high - panel.low > 2.0
    assert panel.low < 99.5
    assert panel.high > 100.5


def test_discarded_iterations_are_shown_only_when_asked_for() -> None:
    rows = [
        *times(20.0, 20.0, iteration=1, phase=0, counted=False),
        *times(10.0, 10.0, iteration=2, phase=1),
    ]
    assert picture(rows).iterations == (2,)
    assert picture(rows, iteration=1).panels[0].median == 20.0


def test_each_benchmark_has_its_panel_and_each_tune_too() -> None:
    rows = [
        *times(20.0, 21.0, phase=0),
        *times(10.0, 11.0, phase=1, tune="peak"),
        *times(10.0, 11.0, phase=2, benchmark="b"),
    ]
    assert [panel.title for panel in picture(rows).panels] == ["a base", "b base", "a peak"]


def test_failed_copies_have_a_place_but_no_time() -> None:
    rows = times(10.0, 10.0, 10.0)
    rows[2] = replace(rows[2], status=CopyStatus.FAILED, exit_code=1)
    (panel,) = picture(rows).panels
    assert [(place, one.copy, one.iteration) for place, one in panel.failed] == [(2, 2, 1)]
    assert len(panel.dots) == 2
    assert failed_text(panel) == "copy 2 failed"


def test_steady_copies_are_their_median_run_with_a_range_or_without() -> None:
    run = windowed([*in_turn(0, (2.0, 3.0, 4.0)), *in_turn(1, (3.0, 3.0, 3.0))], 0.0, 9.0)
    shown = picture_of(run.head, measured_cells(group_cells(run)))
    assert shown.repeated
    assert shown.panels[0].extent() == (2.0, 4.0)
    (panel,) = picture_of(run.head, measured_cells(group_cells(run)), ranges=False).panels
    assert panel.extent() == (3.0, 3.0)


def test_a_name_covers_its_copies_in_its_iterations() -> None:
    rows = [
        *times(10.0, 10.0, 10.0, 13.0, iteration=1, phase=0),
        *times(10.0, 10.0, 10.0, 13.0, iteration=2, phase=1),
    ]
    slow, other = (
        Label(copies=(3,), text="copy 3: +30 %", iterations=(2,), benchmark="a"),
        Label(copies=(3,), text="not here", iterations=(), benchmark="b"),
    )
    whole = Label(copies=(), text="drift: +2 %")
    (panel,) = picture(rows, [slow, other, whole]).panels
    ((label, dots),) = panel.parts()
    assert label is slow
    assert [(dot.copy, dot.iteration) for dot in dots] == [(3, 2)]
    assert label_text(slow, panel) == "copy 3: +30 % (iteration 2)"
    assert panel.overall() == (whole,)
    (alone,) = picture(rows, [slow], iteration=2).panels
    assert label_text(slow, alone) == "copy 3: +30 %"
    assert picture(rows, [slow], iteration=1).panels[0].parts() == ()


def test_findings_become_names_benchmark_by_benchmark() -> None:
    layout = replace(
        FINDING, kind=Kind.LAYOUT, place="CPUs 0-6", benchmarks=(), cells=(), explained=True
    )
    unseen = replace(layout, slowdown=1.001)
    assert labels_from([FINDING, layout, unseen]) == (
        Label(copies=(2, 3), text="node 1: +12.0 %", benchmark="a", cpus=FINDING.cpus),
        Label(copies=(2, 3), text="node 1: +25.0 %", benchmark="b", cpus=FINDING.cpus),
        Label(copies=(2, 3), text="CPUs 0-6: by the layout", cpus=FINDING.cpus, explained=True),
    )


@pytest.mark.parametrize(
    ("kind", "place", "text"),
    [
        (Kind.STEP, "whole run", "step: +25.0 %"),
        (Kind.STEP, "node 1", "node 1: +25.0 %"),
        (Kind.GRADIENT, "all copies", "gradient: +18.0 %"),  # from end to end
        (Kind.NO_PLACE, "whole run", "a copy each time: +25.0 %"),
        (Kind.WARM_UP, "whole run", "warm-up: by the layout"),
    ],
)
def test_what_is_of_all_copies_is_called_by_its_kind(kind: Kind, place: str, text: str) -> None:
    one = replace(FINDING, kind=kind, place=place, slowdown=1.18, explained=kind is Kind.WARM_UP)
    assert labels_from([one])[-1].text == text


def test_copies_judged_singly_are_one_name_for_each_set_of_them() -> None:
    singles = (
        CopyEffect(benchmark="a", tune=None, iteration=1, copy=9, cpu=9, node=1, slowdown=0.42),
        CopyEffect(benchmark="a", tune=None, iteration=2, copy=9, cpu=9, node=1, slowdown=0.43),
        CopyEffect(benchmark="b", tune=None, iteration=1, copy=3, cpu=3, node=0, slowdown=1.33),
        CopyEffect(benchmark="b", tune=None, iteration=1, copy=5, cpu=5, node=0, slowdown=1.39),
    )
    first, second = labels_from([replace(FINDING, kind=Kind.OUTLIER_COPY, singles=singles)])
    assert first == Label(
        copies=(9,),
        text="copy 9 (NUMA node 1): -58 to -57 %",
        iterations=(1, 2),
        benchmark="a",
        tune=None,
        cpus=(9,),
        fast=True,
    )
    assert second == Label(
        copies=(3, 5),
        text="2 copies: +33 to +39 %",
        iterations=(1,),
        benchmark="b",
        tune=None,
        cpus=(3, 5),
    )


BANDWIDTH = DrawnMeasure(name="bandwidth", unit="MB/s", better=Better.HIGHER)


def by_bandwidth(*bandwidths: float | None, labels: Sequence[Label] = ()) -> Picture:
    """Copies on one node, each with what it reported; None: nothing."""
    rows = [
        copy_row(copy, 10.0, node=0, metrics=() if value is None else (("bandwidth", value),))
        for copy, value in enumerate(bandwidths)
    ]
    run = stored(rows, copies=len(rows), hostname="h")
    values = copy_values(run, value_reported("bandwidth"))
    cells = measured_cells(group_cells(run), values)
    return picture_of(run.head, cells, labels, measure=BANDWIDTH)


BY_BANDWIDTH = """\
bandwidth (MB/s) of each copy, higher is better, run 7 on h, 4 copies

NUMA node     0
     copy 0   1   2   3
   median                    lowest  highest
a    1000 ____????====####  -10.0 %    +10 %
          copy 0: -9 % (time)
          copy 1: bandwidth is not known

One sign: a copy, from _ (lowest of the benchmark) to # (highest); ^ v
    farther out, x failed, ? not known.
"""


def strip_of(shown: Picture) -> list[str]:
    """The words of the line that has the strip of benchmark a."""
    lines = picture_text(shown, width=70, encoding="ascii").splitlines()
    return next(line for line in lines if line.startswith("a ")).split()


def test_a_picture_by_a_metric_has_its_unit_and_direction_and_who_lacks_it() -> None:
    slow = Label(copies=(0,), text="copy 0: -9 %")
    shown = by_bandwidth(900.0, None, 1000.0, 1100.0, labels=[slow])
    (panel,) = shown.panels
    assert (panel.median, panel.extent()) == (1000.0, (900.0, 1100.0))
    assert not_known_text(panel) == "copy 1: bandwidth is not known"
    assert picture_text(shown, width=70, encoding="ascii") == BY_BANDWIDTH


def test_of_neighbours_that_share_a_sign_the_worst_by_the_metric_shows() -> None:
    shown = by_bandwidth(*(40.0 if copy == 70 else 100.0 for copy in range(128)))
    strip = strip_of(shown)[2]
    assert (strip.count("_"), strip.count("#")) == (1, len(strip) - 1)
    assert "the lowest of up to" in picture_text(shown, width=70)


def test_values_below_nought_have_an_axis_and_no_shares_of_the_median() -> None:
    shown = by_bandwidth(-2.0, 0.0, 3.0)
    (panel,) = shown.panels
    assert panel.low < -2.0
    assert panel.high > 3.0
    assert panel.outside(above=True) == panel.outside(above=False) == ()
    assert strip_of(shown)[1] == "0"
    assert strip_of(shown)[-2:] == ["-2.000", "3.000"]


def test_a_benchmark_that_no_copy_has_a_value_of_says_so() -> None:
    shown = by_bandwidth(None, None)
    assert "bandwidth is not known" in picture_text(shown, width=70)
    assert "no copy ran well" not in picture_text(shown, width=70)


def test_an_iteration_without_any_value_says_so_beside_one_that_has_them() -> None:
    rows = [
        copy_row(copy, 10.0, iteration=iteration, metrics=(("bandwidth", 5.0),) * (iteration == 1))
        for iteration in (1, 2)
        for copy in range(2)
    ]
    run = stored(rows, copies=2)
    cells = measured_cells(group_cells(run), copy_values(run, value_reported("bandwidth")))
    words = picture_text(picture_of(run.head, cells, measure=BANDWIDTH), width=70).split("\n")
    (line,) = (line for line in words if "iteration 2" in line)
    assert line.endswith("bandwidth is not known")


@pytest.mark.parametrize("value", [1e290, 1e-290, 5e-324])
def test_a_value_that_no_axis_has_room_for_is_not_known(value: float) -> None:
    shown = by_bandwidth(5.0, value)
    assert not_known_text(shown.panels[0]) == "copy 1: bandwidth is not known"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (12.5, "12.50"), (123456.0, "123456"), (32699567.0, "32.70e6")],
)
def test_numbers_have_four_digits_that_tell_copies_apart(value: float, text: str) -> None:
    assert BANDWIDTH.value_text(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2408.4, "2408 s"),
        (801.23, "801.2 s"),
        (9.5, "9.500 s"),
        (0.0125, "12.50 ms"),
        (2e-9, "2.000 ns"),
        (0.0, "0.000 ns"),
    ],
)
def test_times_have_the_digits_that_distinguish_copies(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


def test_distances_from_the_median() -> None:
    assert [percent_text(value) for value in (1.523, 0.996, 1.0)] == ["+52 %", "-0.4 %", "+0.0 %"]


def drawn_picture(rows: Sequence[CopyEnded], *labels: Label) -> Picture:
    run = stored(rows, copies=len({row.copy for row in rows}), hostname="h")
    return picture_of(run.head, measured_cells(group_cells(run)), labels)


def times_of_four(*seconds: float, **changes: object) -> list[CopyEnded]:
    return [
        copy_row(number, time_s, node=number // 4, **changes)
        for number, time_s in enumerate(seconds)
    ]


SLOW = (100.0, 100.0, 100.0, 100.0, 130.0, 130.0, 130.0, 130.0, 100.0, 100.0, 100.0, 100.0)
NAMED = Label(copies=(4, 5, 6, 7), text="node 1: +30 %", iterations=(), benchmark="a")


def picture_text(
    shown: Picture, width: int = 48, encoding: str = "utf-8", terminal: bool | None = None
) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    screen = TextScreen(stream, width=width, is_terminal=terminal)
    print_picture(shown, Printer(screen))
    stream.flush()
    return raw.getvalue().decode(encoding)


def dots(svg: str) -> list[list[tuple[int, str, str]]]:
    """How many dots of which colour and opacity each panel has."""
    return [
        [(one["d"].count("M"), one["stroke"], one.get("opacity", "1")) for one in panel]
        for panel in marks(svg, "dots")
    ]


GREY, SLOW_DOT = "#3a3a3a", "#d55e00"

ASCII = """\
time of each copy, run 7 on h, 12 copies

 NUMA node  0    1    2
      copy 0    4    8 11
    median                 fastest  slowest
a  100.0 s ____ #### ____   +0.0 %    +30 %
           node 1: +30 %

One sign: a copy, from _ (fastest of the benchmark)
    to # (slowest); ^ v farther out, x failed.
"""


def test_a_slow_lgroup_in_plain_ascii() -> None:
    shown = drawn_picture(times_of_four(*SLOW), NAMED)
    assert picture_text(shown, width=52, encoding="ascii") == ASCII


def test_the_height_of_a_sign_is_the_time_of_its_copy() -> None:
    seconds = [100.0 + 10 * number for number in range(8)]
    lines = picture_text(drawn_picture(times_of_four(*seconds)), width=52).splitlines()
    assert lines[5] == "a  135.0 s ▁▁▂▂▃▃▄▄ ▅▅▆▆▇▇██    -26 %    +26 %"


def test_neighbours_that_share_a_sign_are_of_one_numa_node_and_the_slowest_shows() -> None:
    rows = [copy_row(copy, 130.0 if copy == 70 else 100.0, node=copy // 64) for copy in range(128)]
    lines = picture_text(drawn_picture(rows), width=52, encoding="ascii").splitlines()
    assert lines[5].split()[3:5] == ["___________", "_#_________"]
    assert lines[-3].startswith("One sign: the slowest of up to 6 neighbours, from _")


def test_of_several_iterations_a_sign_is_the_median() -> None:
    """Copy 1 is slow in one iteration of three, copy 2 in all."""
    rows = [
        row
        for it in (1, 2, 3)
        for name in "ab"
        for row in times_of_four(
            *(10.0, 13.0 if it == 2 else 10.0, 13.0, 10.0),
            iteration=it,
            phase=2 * it + (name == "b"),
            benchmark=name,
        )
    ]
    shown = picture_text(drawn_picture(rows), width=52, encoding="ascii")
    assert "a  10.00 s ________####____" in shown
    assert "a copy (median of its iterations)" in shown


@pytest.mark.parametrize("width", [20, 40, 57, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    rows = [replace(row, benchmark="a" * 300) for row in times_of_four(*SLOW, 9000.0)]
    many = Label(copies=(4,), text="a name that is much too long for a narrow terminal, really")
    for encoding in ("ascii", "utf-8"):
        shown = picture_text(drawn_picture(rows, NAMED, many), width=width, encoding=encoding)
        assert max(map(len, shown.splitlines())) <= max(50, width)


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = drawn_picture(times_of_four(*SLOW), NAMED)
    assert "\x1b[" not in picture_text(shown)
    assert "\x1b[1;31mnode 1: +30 %" in picture_text(shown, terminal=True)


def test_iterations_of_one_benchmark_stand_one_below_the_other() -> None:
    rows = [*times_of_four(10.0, 10.0), *times_of_four(10.0, 12.0, iteration=2, phase=1)]
    label = Label(copies=(1,), text="copy 1: +20 %", iterations=(2,), benchmark="a")
    lines = picture_text(drawn_picture(rows, label)).splitlines()
    assert [line.split()[:6] for line in lines if "iteration" in line] == [
        ["a,", "iteration", "1", "10.00", "s", "▁▁▁▁▁▁▁▁"],
        ["a,", "iteration", "2", "10.00", "s", "▁▁▁▁████"],
    ]
    assert [line.strip() for line in lines].count("copy 1: +20 %") == 1


def test_stray_and_failed_copies_are_marked() -> None:
    rows = times_of_four(*[100.0] * 14, 90_000.0, 1.0)
    rows[3] = replace(rows[3], status=CopyStatus.FAILED, exit_code=1)
    for encoding, signs in (("ascii", "^vx"), ("utf-8", "▲▼×")):
        lines = picture_text(drawn_picture(rows), width=80, encoding=encoding).splitlines()
        assert lines[6].strip() == "copy 14: 90000 s; copy 15: 1.000 s; copy 3 failed"
        assert all(sign in lines[5] for sign in signs)


@needs_vega
def test_a_run_in_which_all_failed_says_so() -> None:
    rows = [replace(row, status=CopyStatus.FAILED, exit_code=1) for row in times_of_four(1.0, 1.0)]
    assert "no copy ran well" in picture_text(drawn_picture(rows))
    assert {"no copy ran well", "× copies 0-1 failed"} <= set(
        texts(picture_svg(drawn_picture(rows)))
    )


@needs_vega
def test_a_file_has_real_text_and_every_dot() -> None:
    svg = picture_svg(drawn_picture(times_of_four(*SLOW), NAMED))
    words = texts(svg)
    assert {"time of each copy, run 7 on h, 12 copies", "a", "node 1: +30 %"} <= set(words)
    assert {"100.0 s", "130.0 s", "median", "+30 %", "NUMA node", "copy", "11"} <= set(words)
    assert "iteration" not in words, "there is one"
    assert dots(svg) == [[(8, GREY, "1"), (4, SLOW_DOT, "1")]]
    assert len(marks(svg, "grid")[0]) == 2, "a line where a NUMA node ends"


@needs_vega
def test_iterations_are_told_apart_by_shade_with_a_key() -> None:
    rows = [
        row for it in (1, 2, 3) for row in times_of_four(10.0, 10.1, 13.0, iteration=it, phase=it)
    ]
    svg = picture_svg(drawn_picture(rows, Label(copies=(2,), text="copy 2: +30 %")))
    assert texts(svg)[1:5] == ["3", "2", "1", "iteration"]
    assert dots(svg) == [
        [
            *((2, grey, "1") for grey in ("#929292", "#6f6f6f", GREY)),
            *((1, SLOW_DOT, opacity) for opacity in ("0.6", "0.8", "1")),
        ]
    ]


@needs_vega
def test_a_file_has_a_panel_for_each_benchmark_with_all_its_dots() -> None:
    rows = [
        row
        for phase in range(29)
        for row in times_of_four(*SLOW, benchmark=f"b{phase}", phase=phase)
    ]
    svg = picture_svg(drawn_picture(rows))
    assert set(texts(svg)) >= {f"b{number}" for number in range(29)}
    assert dots(svg) == 29 * [[(12, GREY, "1")]]


@needs_vega
def test_copies_of_unknown_lgroups_have_no_lines_between_them() -> None:
    svg = picture_svg(drawn_picture([replace(row, node=None) for row in times_of_four(*SLOW)]))
    assert marks(svg, "grid") == [[]]
    assert "NUMA node" not in texts(svg)


@needs_vega
def test_a_file_has_strays_at_its_edge_with_their_times_and_crosses_for_failed_copies() -> None:
    rows = times_of_four(*[100.0] * 15, 90_000.0)
    rows[3] = replace(rows[3], status=CopyStatus.FAILED, exit_code=1)
    svg = picture_svg(drawn_picture(rows))
    assert {"copy 15: 90000 s", "× copy 3 failed"} <= set(texts(svg))
    assert dots(svg) == [[(14, GREY, "1")]]
    assert [len(marks(svg, name)[0]) for name in ("outside", "failed")] == [1, 1]


@needs_vega
def test_names_stand_below_each_other_above_their_panel_and_many_are_counted() -> None:
    parts = [
        Label(copies=(number,), text=f"copy {number}: +30 %", iterations=(), benchmark="a")
        for number in range(8)
    ]
    rows = times_of_four(*[13.0] * 8, *[10.0] * 16)
    svg = picture_svg(drawn_picture(rows, *parts))
    named = re.findall(r'translate\(0,(-[\d.]+)\)"[^>]*>(copy \d: |and 2 more)', svg)
    assert [text for _, text in named] == [
        *(f"copy {number}: " for number in range(6)),
        "and 2 more",
    ]
    heights = [float(height) for height, _ in named]
    assert all(b - a > 12 for a, b in pairwise(heights)), heights


@needs_vega
def test_names_of_other_people_do_no_harm() -> None:
    name = "$x^2 <&> \x1b[31m"
    assert "$x^2 <&> ?[31m" in texts(
        picture_svg(drawn_picture(times_of_four(1.0, 2.0, benchmark=name)))
    )
    rendered(picture_svg(drawn_picture(times_of_four(1.0, 2.0, benchmark="測定"))), "png")


@needs_vega
@pytest.mark.parametrize("form", ["svg", "png"])
def test_files_are_the_same_for_the_same_run(form: str) -> None:
    shown = drawn_picture(times_of_four(*SLOW, 90_000.0), NAMED)
    assert rendered(picture_svg(shown), form) == rendered(picture_svg(shown), form)


@needs_vega
def test_thousands_of_dots_make_a_small_file() -> None:
    rows = [
        row for it in range(3) for row in times_of_four(*range(1000, 2000), iteration=it, phase=it)
    ]
    assert len(picture_svg(drawn_picture(rows))) < 40 * 3000


@needs_vega
def test_the_formats_are_what_their_names_say(tmp_path: Path) -> None:
    svg = picture_svg(drawn_picture(times_of_four(1.0, 2.0)))
    for name, begin in (("a.svg", b"<svg"), ("a.png", b"\x89PNG"), ("a.PDF", b"%PDF")):
        write_drawing(svg, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begin)


@pytest.fixture
def rater(rater: Rater, tmp_path: Path) -> Rater:
    """Run `rater ...` on a database with one run of 16 copies, one lgroup of which is slow."""
    document = {
        "rater": 1,
        "run": {
            "uuid": "u",
            "host": "h",
            "mode": "homogeneous",
            "copies": 16,
            "metrics": [{"name": "bandwidth", "unit": "MB/s", "better": "higher"}],
        },
        "topology": {
            "nodes": {str(number): list(range(4 * number, 4 * number + 4)) for number in range(4)}
        },
        "observations": [
            {
                "benchmark": benchmark,
                "iteration": iteration,
                "copy": copy,
                "cpu": copy,
                "core": copy,
                "node": copy // 4,
                "package": 0,
                "start_s": None,
                "elapsed_s": 100 + copy % 3 / 10 + (40 if copy // 4 == 2 else 0),
                "metrics": {"bandwidth": 500.0 + copy} if copy and benchmark == "429.mcf" else {},
            }
            for benchmark in ("429.mcf", "470.lbm")
            for iteration in (0, 1, 2)
            for copy in range(16)
        ],
    }
    (tmp_path / "one.json").write_text(json.dumps(document))
    assert rater("import", tmp_path / "one.json")[0] == 0
    return rater


@needs_vega
def test_the_slow_lgroup_is_named_in_the_terminal_and_in_the_file(
    rater: Rater, tmp_path: Path
) -> None:
    status, out, _ = rater("show", "plot", "--benchmark", "mcf")
    assert status == 0
    assert out.count("429.mcf, iteration ") == 3
    assert "470.lbm" not in out
    assert "node 2: +40." in out

    file = tmp_path / "a.svg"
    status, out, err = rater("show", "plot", "-o", file)
    assert (status, err) == (0, "")
    assert out == f"{file}: time of each copy, run 1 on h, 16 copies, 2 benchmarks\n"
    assert any(text.startswith("node 2: +40.") for text in texts(file.read_text()))


@needs_vega
def test_the_json_has_what_is_drawn(rater: Rater, tmp_path: Path) -> None:
    file = tmp_path / "a.svg"
    status, out, err = rater("show", "plot", "--iteration", 1, "-o", file, "--json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert (document["run"], document["file"]) == (1, str(file))
    assert document["places"] == list(range(16))
    assert document["lgroups"][2] == {"node": 2, "first": 8, "size": 4}
    first = document["benchmarks"][0]
    assert (first["benchmark"], len(first["dots"])) == ("429.mcf", 16)
    assert first["dots"][8]["elapsed_s"] == 140.2
    assert first["labels"][0]["copies"] == [8, 9, 10, 11]


@needs_vega
def test_a_metric_takes_the_place_of_times(rater: Rater, tmp_path: Path) -> None:
    file = tmp_path / "a.svg"
    words = ("show", "plot", "--by", "bandwidth", "--iteration", 1)
    status, out, err = rater(*words, "-o", file, "--json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert document["measure"] == {"name": "bandwidth", "unit": "MB/s", "better": "higher"}
    mcf, lbm = document["benchmarks"]
    assert [dot["value"] for dot in mcf["dots"]] == [500.0 + copy for copy in range(1, 16)]
    assert mcf["not_known"] == [{"copy": 0, "iteration": 1}]
    assert (lbm["median"], lbm["axis_ends"], len(lbm["not_known"])) == (None, None, 16)
    written = [*texts(file.read_text())]
    assert "bandwidth (MB/s) of each copy, higher is better, run 1 on h, 16 copies" in written
    assert {"copy 0: bandwidth is not known", "bandwidth is not known"} <= set(written)
    assert written.count("MB/s") == 2, "above the axis of each panel"


@needs_vega
def test_a_report_by_a_metric_says_so_and_refuses_what_no_copy_has(
    rater: Rater, tmp_path: Path
) -> None:
    page = tmp_path / "r.html"
    assert rater("report", "--by", "bandwidth", "-o", page)[0] == 0
    assert "A dot is a copy&#x27;s bandwidth (MB/s), higher is better." in page.read_text()
    status, _, err = rater("report", "--by", "cpu", "-o", page)
    assert (status, err) == (2, "rater: run 1: CPU time of its copies is not known\n")


def test_two_runs_by_a_metric_are_one_picture(rater: Rater) -> None:
    status, out, err = rater("show", "plot", 1, 1, "--by", "bandwidth")
    assert (status, err) == (0, "")
    assert "bandwidth (MB/s) of each copy, higher is better, run 1 and run 1 on h" in out
    assert "median MB/s" in out
    status, out, _ = rater("show", "plot", 1, 1, "--by", "bandwidth", "--json")
    (row,) = json.loads(out)["benchmarks"]
    assert row["lowest_change"] == 0.0
    assert row["places"][0] == {"cpu": 1, "node": 0, "before": 501.0, "after": 501.0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--by", "latency"), "--by latency: no metric of run 1; expected cpu, or a metric"),
        (("--by", "cpu"), "run 1: CPU time of its copies is not known"),
        (("--by", "cpu", "--time"), "--by cpu: --time draws no other measure"),
        (("--benchmark", "4"), "--benchmark 4: is in the names of several"),
        (("--benchmark", "milc"), "expected one of 429.mcf, 470.lbm"),
        (("--iteration", 9), "--iteration 9: run 1 has not this iteration"),
        (("-o", "a.gif"), "-o a.gif: expected a name that ends in .svg, .png or .pdf"),
        (("-o", "nowhere/a.svg"), "there is no directory nowhere"),
        (("-o", "/dev/full/a.svg"), "there is no directory /dev/full"),
        ((9,), "no such run"),
    ],
)
def test_mistakes_are_named(rater: Rater, words: tuple[object, ...], message: str) -> None:
    status, out, err = rater("show", "plot", *words)
    assert (status, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    "words",
    [
        ("show", "plot", 99),
        ("show", "plot", "--machine"),
        ("show", "plot", "--timeline"),
        ("scale", 1),
        ("compare", 1, 1),
    ],
)
def test_without_the_extra_the_error_says_what_to_install_before_anything_is_read(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    status, out, err = rater(*words, "-o", tmp_path / "a.svg")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "needs vl-convert-python" in err
    assert " -m pip install 'rater-bench[report]'` installs it" in err
    assert rater("show", "plot", "--benchmark", "mcf")[0] == 0, "the terminal needs none"


@needs_vega
def test_a_file_that_cannot_be_written_is_no_traceback(rater: Rater, tmp_path: Path) -> None:
    full = tmp_path / "full.svg"
    full.symlink_to("/dev/full")
    status, out, err = rater("show", "plot", "-o", full)
    assert (status, out) == (2, "")
    assert "cannot be written (No space left on device)" in err
