"""`rater lab pages` on stored sweeps with exact answers: the summary, JSON, the page; refusals."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from rater.lab.study import LabPage, tell_ended
from rater.store.store import open_store
from tests.support.calls import Rater
from tests.support.made_sweeps import make_sweep
from tests.support.pages import VEGA

needs_vega = pytest.mark.skipif(not VEGA, reason="vl-convert-python (rater[report]) is missing")
# Seconds at 0, 25, 50, 75, 100 %: twice as fast at the end, and never any faster.
GUPS = {0: 8.0, 25: 7.0, 50: 6.0, 75: 5.0, 100: 4.0}
TIMES = {f"{share}%": [{"gups": time_s, "lu": 3.0}] * 3 for share, time_s in GUPS.items()}


@pytest.fixture
def swept(database: Path) -> Path:
    make_sweep(
        database, "pages", {text: TIMES[text] for text in ("25%", "0%", "50%", "75%", "100%")}
    )
    return database


@needs_vega
def test_a_stored_sweep_becomes_a_summary_and_a_page(
    rater: Rater, swept: Path, tmp_path: Path
) -> None:
    page = tmp_path / "lab.html"
    status, out, err = rater("lab", "pages", "--show", "last", "-o", page)
    assert (status, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert out.startswith("Page sizes, sweep 1: 5 layouts, 15 runs\n\n100% in large pages over 0%:")
    # A speedup of 2 is an improvement of 100 % and a reduction of 50 %; the mean is sqrt(2).
    assert ["gups", "2.000", "2.000-2.000", "better", "+100.0", "+50.0", "100%", "2.000"] in lines
    assert ["geometric", "mean", "(2)", "1.069", "1.155", "1.265", "1.414"] in lines
    assert ["gups", "linear", "-66.7", "1.000", "0.0", "0.0", "0.0", "-"] in lines
    assert ["lu", "nothing", "+0.0", "-", "-", "-", "0.0", "-"] in lines
    text = page.read_text()
    assert "<h1>Page sizes, sweep 1</h1>" in text
    assert text.count('"title":"gups, time of a copy, s"') == 1
    assert "The memory of these copies was not observed." in text


def test_its_json_has_all_of_it(rater: Rater, swept: Path) -> None:
    status, out, _ = rater("lab", "pages", "--show", 1, "--json")
    assert status == 0
    document = json.loads(out)
    assert document["layouts"] == ["0%", "25%", "50%", "75%", "100%"]
    assert document["most_large_pages"] == "100%"
    assert [one["choice"]["warranted"] for one in document["models"]] == ["linear", None]
    assert [row["benchmark"] for row in document["memory"]] == ["gups", "lu"]
    assert document["file"] is None


def test_what_is_no_sweep_of_layouts_is_refused(rater: Rater, database: Path) -> None:
    make_sweep(database, "thp", {"never": [1.0], "always": [2.0]})
    status, _, err = rater("lab", "pages", "--show", "last")
    assert status == 2
    assert "sweep 1 is none over page layouts alone (its axes: thp)" in err
    status, _, err = rater("lab", "pages", "--show", "last", "--rounds", 3)
    assert status == 2
    assert "--show last runs nothing: leave out --rounds" in err


def test_a_sweep_that_was_stopped_at_its_first_layout_is_shown_as_it_is(
    rater: Rater, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_sweep(database, "pages", {"0%": [1.0], "100%": []})
    status, _, err = rater("lab", "pages", "--show", "last", "--json")
    assert (status, err) == (
        2,
        "rater: sweep 1: one layout has runs; two or more can be compared\n",
    )
    with open_store(database) as store:
        tell_ended(LabPage(None, None), Namespace(json=False), store, 1)
    assert "1 of 2 runs done" in capsys.readouterr().out


def test_layouts_without_base_pages_and_texts_that_are_no_layouts_are_refused(
    rater: Rater,
) -> None:
    status, _, err = rater("lab", "pages", "--layouts", "50%,100%", "--dry-run")
    assert status == 2
    assert "layouts are compared with 0%, which is none of them" in err
    status, _, err = rater("lab", "pages", "--layouts", "0%,half", "--dry-run")
    assert status == 2
    assert "--pages 'half'" in err
