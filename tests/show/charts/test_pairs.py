"""Two runs over one axis: by CPU, else by copy, else refused; what changed, and where."""

from __future__ import annotations

from io import StringIO
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from rater.analysis.results.copies import group_cells
from rater.record.events import CopyEnded
from rater.record.run import CopyStatus
from rater.record.stored import StoredRun
from rater.show.charts.measured import measured_cells
from rater.show.charts.pairs import (
    BenchmarkPair,
    PairedRun,
    PlaceValues,
    pair_document,
    pair_parts,
    pair_runs,
    scatter_svg,
)
from rater.show.charts.panels import failed_text
from rater.show.charts.picture import Label
from rater.show.charts.terminal import print_picture
from rater.show.screen.console import Printer, TextScreen
from rater.system.errors import InputError
from tests.support.drawings import needs_vega
from tests.support.example_runs import copy_row, stored


def side(number: int, rows: list[CopyEnded], copies: int = 4, *labels: Label) -> PairedRun:
    run: StoredRun = stored(rows, copies=copies)
    head = replace(run.head, run=number)
    return PairedRun(
        head=head, cells=measured_cells(group_cells(replace(run, head=head))), labels=labels
    )


def rows_on(cpus: list[int | None], seconds: float = 10.0) -> list[CopyEnded]:
    return [
        copy_row(copy, seconds + copy, cpu=cpu, node=None if cpu is None else cpu // 2)
        for copy, cpu in enumerate(cpus)
    ]


def test_copies_on_the_same_cpus_are_laid_over_each_other_by_cpu() -> None:
    """Copy 0 is on CPU 3 in the second run: it stands beside copy 3 of the first."""
    pair = pair_runs(side(1, rows_on([0, 1, 2, 3])), side(2, rows_on([3, 2, 1, 0])))
    (row,) = pair.benchmarks
    assert pair.axis == "CPU"
    assert [(place.name, place.before, place.after) for place in row.places] == [
        (0, 10.0, 13.0),
        (1, 11.0, 12.0),
        (2, 12.0, 11.0),
        (3, 13.0, 10.0),
    ]
    assert pair.picture.series == ("run 1", "run 2")


def test_a_mark_says_which_iterations_it_is_of() -> None:
    """Dots are medians over iterations: a mark of one of two is not seen in them."""
    rows = [copy_row(copy, 10.0, cpu=copy, iteration=it) for copy in range(4) for it in (1, 2)]
    slow = Label(copies=(), text="all copies: +59 %", iterations=(2,))
    every = Label(copies=(3,), text="copy 3: +9 %", iterations=(1, 2))

    pair = pair_runs(side(1, rows, 4, slow, every), side(2, rows))

    texts = [label.text for label in pair.picture.panels[0].labels]
    assert texts == ["run 1: all copies: +59 % (iteration 2)", "run 1: copy 3: +9 %"]


def test_unbound_copies_and_others_cpus_are_laid_over_each_other_by_copy() -> None:
    unbound = pair_runs(side(1, rows_on([None] * 4)), side(2, rows_on([0, 1, 2, 3])))
    elsewhere = pair_runs(side(1, rows_on([0, 1, 2, 3])), side(2, rows_on([4, 5, 6, 7])))
    assert (unbound.axis, elsewhere.axis) == ("copy", "copy")
    assert [place.change for place in elsewhere.benchmarks[0].places] == [0.0] * 4


def test_copies_that_two_runs_had_on_other_nodes_have_none_in_their_picture() -> None:
    """Aligned by copy: the nodes of one run say nothing of the other's copies."""
    pair = pair_runs(side(1, rows_on([0, 1, 2, 3])), side(2, rows_on([4, 5, 6, 7])))
    assert pair.picture.groups == ()
    assert {place.node for place in pair.benchmarks[0].places} == {None}


def test_copies_that_failed_in_one_run_are_crosses_of_that_run() -> None:
    """CPU 3 has no time in run 2, and benchmark z none at all: neither is left out in silence."""
    names = ("a", "z")
    good = [copy_row(copy, 10.0, cpu=copy, benchmark=name) for name in names for copy in range(4)]
    bad = [
        copy_row(
            row.copy,
            10.0,
            cpu=row.cpu,
            benchmark=row.benchmark,
            status=CopyStatus.FAILED if "z" in row.benchmark or row.copy == 3 else CopyStatus.OK,
        )
        for row in good
    ]
    pair = pair_runs(side(1, good), side(2, bad))
    (panel,) = pair.picture.panels
    assert failed_text(panel) == "run 2: copy 3 failed"
    assert [place for place, _ in panel.failed] == [3]
    assert (pair.unmatched, pair.left_out, pair.alone) == (("z base",), (), ((3,), ()))
    said = [part for part in pair_parts(pair) if isinstance(part, str)]
    assert said == ["no CPU whose copies ended well in both: z base", "drawn of run 1 alone: CPU 3"]
    with pytest.raises(InputError, match="have no CPU in common whose copies ended well"):
        pair_runs(side(1, good), side(2, bad), benchmark="z")


def test_a_copy_that_failed_in_one_of_its_iterations_keeps_its_sign() -> None:
    """Copy 0 of run 2 failed in iteration 2, copy 1 in both: a sign of its median, and a cross."""
    good = [copy_row(copy, 10.0, cpu=copy, iteration=it) for copy in range(2) for it in (1, 2)]
    bad = [
        copy_row(
            row.copy,
            10.0,
            cpu=row.cpu,
            iteration=row.iteration,
            status=CopyStatus.OK if (row.copy, row.iteration) == (0, 1) else CopyStatus.FAILED,
        )
        for row in good
    ]
    pair = pair_runs(side(1, good, 2), side(2, bad, 2))
    out = StringIO()
    print_picture(pair.picture, Printer(TextScreen(out, width=60)))
    (line,) = (line for line in out.getvalue().splitlines() if "run 2  10.00 s" in line)
    assert line.count("\u00d7") == 4, "as wide as the signs of copy 0"
    assert "run 2: copies 0-1 failed" in out.getvalue()


def test_runs_with_other_numbers_of_copies_say_both_and_which_cpus_one_has_alone() -> None:
    pair = pair_runs(side(1, rows_on([0, 1]), 2), side(2, rows_on([0, 1, 2, 3]), 4))
    assert pair.picture.title.endswith("run 1 and run 2 on h, 2 and 4 copies")
    assert (pair.axis, pair.alone) == ("CPU", ((), (2, 3)))
    assert "drawn of run 2 alone: CPUs 2-3" in list(pair_parts(pair))


def test_runs_with_neither_cpus_nor_copies_in_common_are_refused() -> None:
    with pytest.raises(InputError, match="neither the same CPUs nor the same number of copies"):
        pair_runs(side(1, rows_on([0, 1, 2, 3])), side(2, rows_on([8, 9]), copies=2))
    other = [copy_row(copy, 1.0, cpu=copy, benchmark="other") for copy in range(4)]
    with pytest.raises(InputError, match="no benchmark in common"):
        pair_runs(side(1, rows_on([0, 1, 2, 3])), side(2, other))


def test_a_run_whose_copies_all_failed_has_its_cpus_and_no_value() -> None:
    bad = [replace(row, status=CopyStatus.FAILED) for row in rows_on([0, 1])]
    with pytest.raises(InputError, match="no CPU in common whose copies ended well"):
        pair_runs(side(1, rows_on([0, 1, 2, 3])), side(2, bad, copies=2))


@needs_vega
def test_an_axis_of_tiny_values_has_powers_of_ten() -> None:
    """`0.00000001` was cut off at the left."""

    def in_nanoseconds(run: PairedRun) -> PairedRun:
        cells = [
            replace(
                cell,
                points=tuple(replace(point, value=point.value * 1e-9) for point in cell.points),
            )
            for cell in run.cells
        ]
        return replace(run, cells=cells)

    rows = rows_on([0, 1, 2, 3])
    pair = pair_runs(in_nanoseconds(side(1, rows)), in_nanoseconds(side(2, rows)))
    words = [text for text in ElementTree.fromstring(scatter_svg(pair)).itertext() if "e-8" in text]
    assert words.count("1.2e-8") == 2


def test_a_node_that_changed_otherwise_than_the_others_stands_out() -> None:
    """Four nodes of two CPUs; those of node 2 take a third less time than before."""
    places = tuple(
        PlaceValues(
            name=cpu,
            node=cpu // 2,
            before=10.0,
            after=(6.667 if cpu // 2 == 2 else 10.0) * (1 + cpu % 3 / 1000),
        )
        for cpu in range(8)
    )
    pair = BenchmarkPair(benchmark="a", tune=None, places=places)
    assert [node.node for node in pair.nodes() if node.stands_out] == [2]
    assert pair.nodes()[2].change == pytest.approx(-1 / 3, abs=0.01)
    assert pair.median_change == pytest.approx(0, abs=0.01)


def test_times_that_nothing_of_is_left_are_still_compared() -> None:
    """A billion seconds before, a nanosecond after: as a share nothing is left."""
    places = tuple(PlaceValues(name=cpu, node=cpu, before=1e9, after=1e-9) for cpu in range(2))
    pair = BenchmarkPair(benchmark="a", tune=None, places=places)
    assert [node.change for node in pair.nodes()] == [-1.0, -1.0]


def test_the_document_has_each_place_before_and_after() -> None:
    pair = pair_runs(side(1, rows_on([0, 1, 2, 3])), side(2, rows_on([0, 1, 2, 3], 20.0)))
    document = pair_document(pair, None)
    assert (document["runs"], document["axis"]) == ([1, 2], "CPU")
    assert isinstance(document["benchmarks"], list)
    (row,) = document["benchmarks"]
    assert row["places"][0] == {"cpu": 0, "node": 0, "before_s": 10.0, "after_s": 20.0}
    assert row["slowest_change"] == pytest.approx(23 / 13 - 1)
