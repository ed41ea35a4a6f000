"""What became of each part of the CPI."""

from __future__ import annotations

import pytest

from rater.analysis.compare.model import TOTAL, Side, cpi_changes
from rater.analysis.results.copies import Point, PointRun
from rater.record.stored import StoredRun
from rater.show.compare.notes import cpi_document, print_cpi_changes
from tests.support.counted_runs import STACK, counted_run
from tests.support.example_runs import stored
from tests.support.printed import printed_by


def side(label: str, *runs: StoredRun) -> Side:
    return Side(label, (Point(label, (), tuple(PointRun(run, None) for run in runs)),))


def test_parts_change_by_a_share_of_the_baselines_cpi() -> None:
    sides = (side("4 KiB", counted_run()), side("2 MiB", counted_run(cycles=3000), stored([])))
    rows = {row.part: row for row in cpi_changes(sides)}
    assert list(rows) == [TOTAL, *STACK]
    assert rows[TOTAL].cycles == pytest.approx((2.0, 3.0))
    assert rows[TOTAL].changes == pytest.approx((0.5,))
    assert rows["dram"].changes == pytest.approx((0.0,))
    assert rows["other"].changes == pytest.approx((0.5,))
    shown = printed_by(lambda printer: print_cpi_changes(list(rows.values()), sides, printer))
    assert "CPI              2.000  3.000     +50.0" in shown, shown
    assert len(cpi_document(list(rows.values()))) == len(rows)


def test_what_one_side_alone_has_counted_is_no_change() -> None:
    assert cpi_changes((side("A", counted_run()), side("B", stored([])))) == ()
    assert cpi_changes((side("A", stored([])), side("B", counted_run()))) == ()


def test_counts_of_user_mode_alone_are_not_compared_with_those_of_both() -> None:
    both, user = counted_run(), counted_run(end=":u")
    assert cpi_changes((side("A", both), side("B", user))) == ()
    [total, *_] = cpi_changes((side("A", user, both), side("B", user)))
    assert total.cycles == (2.0, 2.0)
