"""What a picture of the copies' times consists of: places, axis, names of slow parts."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rater.analysis.divots.model.finding import CellEffect, CopyEffect, Kind
from rater.analysis.results.copies import group_cells
from rater.record.run import CopyStatus
from rater.record.stored import StoredCopy
from rater.show.charts.panels import (
    failed_text,
    label_text,
    labels_from,
    outside_text,
    percent_text,
    time_text,
)
from rater.show.charts.picture import Label, NodeSpan, Picture, picture_of
from tests.support.example_findings import finding_of
from tests.support.example_runs import copy_row, in_turn, stored, windowed


def picture(
    rows: Sequence[StoredCopy], labels: Sequence[Label] = (), iteration: int | None = None
) -> Picture:
    run = stored(rows, copies=len({row.copy for row in rows}))
    return picture_of(run.head, group_cells(run), labels, iteration=iteration)


def times(*seconds: float, per_node: int = 2, **changes: object) -> list[StoredCopy]:
    """A copy for each time, so many of them on one node."""
    return [copy_row(n, s, node=n // per_node, **changes) for n, s in enumerate(seconds)]


FINDING = finding_of(
    Kind.SLOW_LGROUP,
    "lgroup 1",
    (2, 3),
    benchmarks=("a", "b"),
    tune=None,
    nodes=(1,),
    package=None,
    cells=(
        CellEffect("a", None, 1, 1.10, 0.0),
        CellEffect("a", None, 2, 1.14, 0.0),
        CellEffect("b", None, 1, 1.25, 0.0),
    ),
)


def test_copies_stand_by_lgroup_then_by_number() -> None:
    rows = [copy_row(n, 10.0, node=n % 2) for n in range(4)]
    shown = picture(rows)
    assert shown.names == (0, 2, 1, 3)
    assert shown.groups == (NodeSpan(0, 0, 2), NodeSpan(1, 2, 2))
    assert not shown.ascending
    assert [dot.place for dot in shown.panels[0].dots] == [0, 2, 1, 3]


def test_without_known_places_there_are_no_groups() -> None:
    shown = picture([copy_row(n, 10.0, node=None, cpu=None) for n in range(3)])
    assert (shown.axis, shown.names, shown.groups) == ("copy", (0, 1, 2), ())


def test_where_copies_move_the_places_are_cpus() -> None:
    """Two CPUs, one copy on each; they change places for the second iteration."""
    rows = [
        copy_row(copy, 10.0 + cpu, cpu=cpu, node=cpu, iteration=it, phase=it)
        for it in (1, 2)
        for copy, cpu in ((0, it - 1), (1, 2 - it))
    ]
    label = Label((0, 1), "CPU 1: +10 %", cpus=(1,))
    shown = picture(rows, [label])
    assert (shown.axis, shown.names) == ("CPU", (0, 1))
    ((_, dots),) = shown.panels[0].parts()
    assert [(dot.cpu, dot.elapsed_s) for dot in dots] == [(1, 11.0), (1, 11.0)]
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
    assert panel.extent_s() == extent
    assert panel.low_s < extent[0]
    assert extent[1] < panel.high_s < 1.1 * extent[1]
    assert outside_text(panel.outside(above=True)) == above
    assert outside_text(panel.outside(above=False)) == below


@pytest.mark.parametrize("slowest", [100.0, 100.1])
def test_copies_that_hardly_differ_stand_level(slowest: float) -> None:
    (panel,) = picture(times(100.0, 100.0, 100.0, slowest)).panels
    assert panel.high_s - panel.low_s > 2.0
    assert panel.low_s < 99.5
    assert panel.high_s > 100.5


def test_discarded_iterations_are_shown_only_when_asked_for() -> None:
    rows = [
        *times(20.0, 20.0, iteration=1, phase=0, counted=False),
        *times(10.0, 10.0, iteration=2, phase=1),
    ]
    assert picture(rows).iterations == (2,)
    assert picture(rows, iteration=1).panels[0].median_s == 20.0


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
    shown = picture_of(run.head, group_cells(run))
    assert shown.repeated
    assert shown.panels[0].extent_s() == (2.0, 4.0)
    (panel,) = picture_of(run.head, group_cells(run), ranges=False).panels
    assert panel.extent_s() == (3.0, 3.0)


def test_a_name_covers_its_copies_in_its_iterations() -> None:
    rows = [
        *times(10.0, 10.0, 10.0, 13.0, iteration=1, phase=0),
        *times(10.0, 10.0, 10.0, 13.0, iteration=2, phase=1),
    ]
    one, other = Label((3,), "copy 3: +30 %", (2,), "a"), Label((3,), "not here", (), "b")
    whole = Label((), "drift: +2 %")
    (panel,) = picture(rows, [one, other, whole]).panels
    ((label, dots),) = panel.parts()
    assert label is one
    assert [(dot.copy, dot.iteration) for dot in dots] == [(3, 2)]
    assert label_text(one, panel) == "copy 3: +30 % (iteration 2)"
    assert panel.overall() == (whole,)
    (alone,) = picture(rows, [one], iteration=2).panels
    assert label_text(one, alone) == "copy 3: +30 %"
    assert picture(rows, [one], iteration=1).panels[0].parts() == ()


def test_findings_become_names_benchmark_by_benchmark() -> None:
    layout = replace(
        FINDING, kind=Kind.LAYOUT, place="CPUs 0-6", benchmarks=(), cells=(), explained=True
    )
    unseen = replace(layout, slowdown=1.001)
    assert labels_from([FINDING, layout, unseen]) == (
        Label((2, 3), "lgroup 1: +12.0 %", benchmark="a", cpus=FINDING.cpus),
        Label((2, 3), "lgroup 1: +25.0 %", benchmark="b", cpus=FINDING.cpus),
        Label((2, 3), "CPUs 0-6: by the layout", cpus=FINDING.cpus, explained=True),
    )


def test_copies_judged_singly_are_one_name_for_each_set_of_them() -> None:
    singles = (
        CopyEffect("a", None, 1, 9, 9, 1, 0.42),
        CopyEffect("a", None, 2, 9, 9, 1, 0.43),
        CopyEffect("b", None, 1, 3, 3, 0, 1.33),
        CopyEffect("b", None, 1, 5, 5, 0, 1.39),
    )
    first, second = labels_from([replace(FINDING, kind=Kind.OUTLIER_COPY, singles=singles)])
    assert first == Label(
        (9,), "copy 9 (lgroup 1): -58 to -57 %", (1, 2), "a", None, (9,), fast=True
    )
    assert second == Label((3, 5), "2 copies: +33 to +39 %", (1,), "b", None, (3, 5))


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
