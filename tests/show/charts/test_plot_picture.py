"""What a picture of the copies' times consists of: places, axis, names of slow parts."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rater.analysis.divots.data.finding import CellEffect, Kind, Single
from rater.analysis.results.copies import cells_of
from rater.record.status import CopyStatus
from rater.record.stored import StoredCopy
from rater.show.charts.labels import (
    failed_text,
    label_text,
    labels_from,
    outside_text,
    percent_text,
    time_text,
)
from rater.show.charts.picture import Label, LgroupSpan, Picture, picture_of
from tests.support.example_findings import finding_of
from tests.support.example_runs import copy_row, in_turn, stored, windowed


def picture(
    rows: Sequence[StoredCopy], labels: Sequence[Label] = (), iteration: int | None = None
) -> Picture:
    run = stored(rows, copies=len({row.copy for row in rows}))
    return picture_of(run.head, cells_of(run), labels, iteration=iteration)


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
    assert shown.groups == (LgroupSpan(0, 0, 2), LgroupSpan(1, 2, 2))
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


def test_the_axis_goes_from_the_fastest_to_the_slowest_copy() -> None:
    (panel,) = picture(times(100.0, 100.0, 110.0, 125.0)).panels
    assert panel.median_s == 105.0
    assert panel.extent() == pytest.approx((100 / 105, 125 / 105))
    assert panel.low < 100 / 105 < 125 / 105 < panel.high


def test_copies_that_hardly_differ_look_level() -> None:
    (panel,) = picture(times(100.0, 100.0, 100.0, 100.1)).panels
    assert panel.high - panel.low > 0.02
    (panel,) = picture(times(5.0, 5.0)).panels
    assert panel.low < 1 < panel.high


def test_one_hung_copy_does_not_flatten_the_others() -> None:
    (panel,) = picture(times(*[100.0] * 15, 101.0, 100_000.0)).panels
    assert panel.high < 1.1
    beyond = panel.outside(above=True)
    assert [dot.copy for dot in beyond] == [16]
    assert outside_text(beyond) == "copy 16: 100000 s"
    assert panel.outside(above=False) == ()


def test_one_copy_that_gave_up_at_once_does_not_either() -> None:
    (panel,) = picture(times(*[100.0] * 16, 0.1)).panels
    assert panel.low > 0.9
    assert outside_text(panel.outside(above=False)) == "copy 16: 100.0 ms"


def test_half_of_the_copies_far_out_are_no_strays() -> None:
    (panel,) = picture(times(*[1.0] * 8, *[100.0] * 8)).panels
    assert len(panel.inside()) == 16


def test_many_far_out_are_told_together() -> None:
    (panel,) = picture(times(*[1.0] * 96, 10.0, 20.0, 30.0, 40.0)).panels
    assert outside_text(panel.outside(above=True)) == "4 copies: 10.00 s to 40.00 s"


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
    shown = picture_of(run.head, cells_of(run))
    assert shown.repeated
    assert shown.panels[0].extent() == pytest.approx((2 / 3, 4 / 3))
    (panel,) = picture_of(run.head, cells_of(run), ranges=False).panels
    assert panel.extent() == (1.0, 1.0)


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
    first, second = labels_from([FINDING])
    assert (first.benchmark, first.text, first.copies) == ("a", "lgroup 1: +12 %", (2, 3))
    assert (second.benchmark, second.text) == ("b", "lgroup 1: +25 %")


def test_what_the_layout_does_has_a_name_of_its_own_kind() -> None:
    explained = replace(
        FINDING, kind=Kind.LAYOUT, place="CPUs 0-6", benchmarks=(), cells=(), explained=True
    )
    (label,) = labels_from([explained])
    assert (label.text, label.explained, label.benchmark) == ("CPUs 0-6: by the layout", True, None)
    assert labels_from([replace(explained, slowdown=1.001)]) == ()


def test_copies_judged_singly_are_one_name_for_each_set_of_them() -> None:
    singles = (
        Single("a", None, 1, 9, 9, 1, 0.42),
        Single("a", None, 2, 9, 9, 1, 0.43),
        Single("b", None, 1, 3, 3, 0, 1.33),
        Single("b", None, 1, 5, 5, 0, 1.39),
    )
    first, second = labels_from([replace(FINDING, kind=Kind.OUTLIER_COPY, singles=singles)])
    assert first == Label(
        (9,), "copy 9 (lgroup 1): -57 to -58 %", (1, 2), "a", None, (9,), fast=True
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
def test_times_have_the_digits_that_tell_copies_apart(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


def test_distances_from_the_median() -> None:
    assert [percent_text(value) for value in (1.523, 0.996, 1.0)] == ["+52 %", "-0.4 %", "+0.0 %"]
