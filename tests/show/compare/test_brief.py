"""A sweep at its end on a terminal: what a reader needs, within a screen."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from rater.analysis.compare.compare import MARGIN, compare
from rater.analysis.compare.model import Comparison
from rater.cli import main
from rater.show.compare.table import print_comparison
from rater.store.store import Store
from rater.workflow.results.points import count_interim_looks, load_points
from tests.support.calls import Rater
from tests.support.made_runs import make
from tests.support.printed import printed_by

NAMES = [f"kernel{number}" for number in range(14)]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def compared(store: Store, *words: str) -> Comparison:
    points = load_points(store, list(words))
    return compare(points, margin=MARGIN, looks=count_interim_looks(store, points))


def test_of_fourteen_benchmarks_those_that_changed_stand_in_the_table(
    database: Path, store: Store
) -> None:
    make(database, [(9.99, 10.0)] * 6, names=NAMES)
    for name, time_s in (("kernel3", 8.0), ("kernel9", 12.0)):
        assert name in NAMES
        make(database, [(time_s - 0.01, time_s)] * 6, names=[name])
    same = [name for name in NAMES if name not in ("kernel3", "kernel9")]
    make(database, [(9.99, 10.0)] * 6, names=same)
    words = ("1,2,3,4,5,6", ",".join(str(run) for run in range(7, 25)))
    text = printed_by(
        lambda printer: print_comparison(compared(store, *words), printer, brief=True), 80
    )
    lines = text.splitlines()
    table = [line.split()[0] for line in lines if line.startswith("kernel")]
    assert {"kernel3", "kernel9"} < set(table)
    assert len(table) < 8
    assert f"and {len(NAMES) - len(table)} benchmarks that changed less" in lines
    assert "Compared:" not in lines
    assert len(lines) <= 20


def test_a_sweep_of_two_points_ends_within_a_screen_and_v_says_the_rest(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ("sweep", "--axis", "env:X=0,1", "--rounds", "2", "--copies", "1", "--share")
    shown = []
    for more in ((), ("-v",)):
        out = _Terminal()
        monkeypatch.setattr(sys, "stdout", out)
        assert main([*words, *more, "--", "true"]) == 0
        shown.append(out.getvalue())
    brief, whole = shown
    assert len(brief.splitlines()) <= 17  # the rest of 24 is of progress
    assert "speed-" in brief
    assert brief.rstrip().endswith("rater sweep --show 1")
    assert "Compared:" not in brief
    assert "Compared:" in whole
    assert "paired within 2 blocks" in whole
