"""One point has one rate: the same in every view of one made sweep, in text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path

import pytest

from tests.support.calls import Rater
from tests.support.made_sweeps import make_sweep

# One copy in 10, 20 and 16 s, two in 25, 40 and 30 s, of work worth 10 s: ratios by round.
TIMES = {"1": [10.0, 20.0, 16.0], "2": [25.0, 40.0, 30.0]}
RATES = [(10 / 10 * 10 / 20 * 10 / 16) ** (1 / 3), (20 / 25 * 20 / 40 * 20 / 30) ** (1 / 3)]


@pytest.fixture
def sweep(database: Path) -> str:
    return f"sweep:{make_sweep(database, 'copies', TIMES)}"


def test_programs_read_the_same_rate_in_every_document(sweep: str, rater: Rater) -> None:
    swept = json.loads(rater("sweep", "--show", "1", "--json")[1])
    assert [point["geomean"] for point in swept["points"]] == pytest.approx(RATES)
    compared = json.loads(rater("compare", sweep, "--json")[1])["benchmarks"][0]
    assert [compared["baseline"], compared["points"][0]["value"]] == pytest.approx(RATES)
    ratio = compared["points"][0]["speedup"]["ratio"]
    assert ratio == pytest.approx(RATES[1] / RATES[0])
    (curve,) = json.loads(rater("scale", sweep, "--json")[1])["curves"]
    (series,) = curve["benchmarks"]
    assert [point["rate"] for point in series["points"]] == pytest.approx(RATES)
    # Runs have a rate each, whose geometric mean is the point's.
    listed = {one["run"]: one["score"] for one in json.loads(rater("list", "--json")[1])}
    for point, rate in zip(swept["points"], RATES, strict=True):
        shown = [json.loads(rater("show", str(run), "--json")[1]) for run in point["runs"]]
        ratios = [one["benchmarks"][0]["ratio"] for one in shown]
        assert math.prod(ratios) ** (1 / 3) == pytest.approx(rate)
        assert [listed[run] for run in point["runs"]] == pytest.approx(ratios)
        rows = [
            list(csv.DictReader(io.StringIO(rater("export", str(run), "--format", "csv")[1])))
            for run in point["runs"]
        ]
        brackets = [max(float(row["elapsed_s"]) for row in of_run) for of_run in rows]
        by_hand = [len(of_run) * 10 / s for of_run, s in zip(rows, brackets, strict=True)]
        assert by_hand == pytest.approx(ratios)


def test_people_read_the_same_rate_under_the_same_name(
    sweep: str, rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    one, two = (f"{rate:.3f}" for rate in RATES)
    for command in (("sweep", "--show", "1"), ("compare", sweep), ("scale", sweep)):
        out = rater(*command)[1]
        assert "geomean" in out, command
        assert one in out, command
        assert two in out, command
    page = rater("report", sweep, "-o", "-")[1]
    text = re.sub(r"<[^>]+>", " ", page)
    assert "geomean" in text
    assert one in text
    assert two in text
