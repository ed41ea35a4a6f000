"""`rater scale`: what people read, JSON, pictures, and what cannot be drawn."""

import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rater.analysis.compare.scaling import Curve, scaling_curves
from rater.analysis.results.copies import Point, PointRun
from rater.analysis.stats.curves import LawScale, fit_usl
from rater.analysis.stats.intervals import Noise
from rater.record.run import CopyStatus, MachinePU
from rater.record.stored import StoredRun
from rater.show.charts.scaling import curves_svg
from rater.show.compare.scaling import print_scaling
from rater.show.compare.scaling_words import law_text
from rater.show.console import Printer
from rater.store.store import open_store
from tests.support.calls import Rater
from tests.support.drawings import marks, needs_vega, texts
from tests.support.example_runs import copy_row, stored

# Four cores with two threads each, on one lgroup.
PUS = tuple(MachinePU(cpu, cpu % 4, 0, 0, 0) for cpu in range(8))
# Seconds of a copy of 10 s by copies: linear, and one that stops gaining at two.
FINE, STOPS = "fine", "stops"
RATES: dict[str, dict[int, float]] = {
    FINE: {1: 1.0, 2: 2.0, 4: 3.96, 8: 5.0},
    STOPS: {1: 1.0, 2: 1.6, 4: 1.6, 8: 1.2},
}


def run(copies: int, number: int, names: Sequence[str] = (FINE, STOPS)) -> StoredRun:
    rows = [
        copy_row(
            n,
            10 * copies / RATES[name][copies],
            phase=phase,
            benchmark=name,
            cpu=n % 8,
            core=n % 4,
            node=0,
        )
        for phase, name in enumerate(names)
        for n in range(copies)
    ]
    made = stored(
        rows, copies=copies, uuid=f"u-{number}", run=number, categories={FINE: "int", STOPS: "int"}
    )
    return replace(made, pus=PUS, warnings=(), notes=())


def curves(*runs: StoredRun, thp: Sequence[str] = ()) -> tuple[Curve, ...]:
    points = [
        Point("", (("thp", thp[i]),) if thp else (), (PointRun(one, None),))
        for i, one in enumerate(runs)
    ]
    return scaling_curves(points).curves


@pytest.fixture
def rater(rater: Rater, database: Path) -> Rater:
    """Run `rater ...` on a database with runs of 1, 2, 4 and 8 copies."""
    with open_store(database) as store:
        for number, copies in enumerate((1, 2, 4, 8), 1):
            store.add(run(copies, number))
    return rater


def test_people_are_told_at_once_what_limits(rater: Rater) -> None:
    status, out, err = rater("scale", 1, 2, 3, 4)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "mini (test, base) on h, homogeneous: 1, 2, 4 and 8 copies, runs 1-4"
    assert lines[1] == "4 cores, 8 CPUs (hardware threads); 8 copies share cores."
    text = re.sub(r"\n +", " ", out)
    assert "Both benchmarks: 2.52 times 1 copy with 4 copies, 0.63 of linear." in text
    assert "Stop gaining early: stops at 2 copies." in text
    assert "Furthest from linear with 4 copies: stops 0.40; 1 at 0.95 or above." in text
    assert "Fall again: stops beyond 2 copies (-25 % at 8)." in text
    assert "SMT: 2 copies a core against one on all 4 cores (run 3 and run 4)" in text
    assert "Noise of a run is taken to be 5 %" in text
    assert max(map(len, lines)) <= 80


def test_the_tables_have_suites_first_and_say_what_copies_share(rater: Rater) -> None:
    out = rater("scale", 1, 2, 3, 4)[1]
    assert re.search(r"^ +8 +2 a core +2.45 +2.45 +0.31 +-0.02$", out, re.MULTILINE)
    assert re.search(r"^all \(2\) +1.00 +0.89 +0.63 +0.31 +\S+ +\S+ +\S+$", out, re.MULTILINE)
    assert re.search(r"^stops +1.00 +0.80 +0.40 +0.15 +2 +2 +8$", out, re.MULTILINE)
    assert re.search(r"^fine +1.00 +1.00 +0.99 +0.62 +4 +- +-$", out, re.MULTILINE)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = io.StringIO()
    printer = Printer(Console(file=text, width=width))
    found = scaling_curves(
        [Point("", (), (PointRun(run(n, i), None),)) for i, n in enumerate((1, 2, 4, 8), 1)],
    )
    print_scaling(found, (), (), printer)
    assert max(map(len, text.getvalue().splitlines())) <= width


def test_the_law_says_what_it_was_fitted_to_and_promises_no_peak_far_away(rater: Rater) -> None:
    copies = (1, 2, 4, 8, 16)
    for law_on in LawScale:
        rates = [n / (1 + 0.1 * (n - 1) + 4e-18 * n * (n - 1)) for n in copies]
        law = fit_usl(copies, rates, [1] * 5, Noise(0.01, None), law_on)
        text = law_text(law, "ratio")
        assert f"; fitted to {law_on}, residuals 0.0 % " in text
        assert "no peak in the measured range, 1 to 16 copies" in text
        assert "±" in text
    assert rater("scale", 1, 2, 3, 4, "--law", "rate")[0] == 0
    with pytest.raises(SystemExit):
        rater("scale", 1, 2, "--law", "square")


def test_json_has_everything(rater: Rater) -> None:
    status, out, _ = rater("scale", 1, 2, 3, 4, "--json")
    document: dict[str, Any] = json.loads(out)
    assert status == 0
    (curve,) = document["curves"]
    assert curve["copies"] == [1, 2, 4, 8]
    assert curve["compared_at_copies"] == 4
    assert curve["placements"][3]["copies_per_core"] == [2, 2]
    fine, stops = curve["benchmarks"]
    assert fine["benchmark"] == FINE
    assert (stops["knee_copies"], stops["plateau_from_copies"], stops["falls_at_copies"]) == (
        2,
        2,
        8,
    )
    assert fine["points"][1]["speedup"] == pytest.approx(2.0)
    assert fine["points"][1]["runs"] == [{"run": 2, "rate": pytest.approx(2.0)}]
    assert "three coefficients need 4 numbers of copies, not 3" in fine["usl"]["refused"]
    assert curve["suites"][0]["over"] == [FINE, STOPS]
    (smt,) = document["smt"]
    assert smt["copies_per_hour"][1]["change"] == pytest.approx(5 / 3.96 - 1)
    assert "Stop gaining early: stops at 2 copies." in curve["limits"]


def test_runs_with_the_same_number_of_copies_are_no_curve(rater: Rater) -> None:
    status, out, err = rater("scale", 2)
    assert (status, out) == (2, "")
    assert "run 2: nothing else like it has another number of copies than 2" in err
    assert "--copies N" in err


def test_a_run_that_is_named_twice_counts_once(rater: Rater) -> None:
    once = json.loads(rater("scale", 1, 2, 3, "--json")[1])
    assert json.loads(rater("scale", "1,2", "2,3", 1, "--json")[1]) == once
    status, _, err = rater("scale", 1, 1)
    assert status == 2
    assert err.splitlines()[1] == (
        "  run 1: nothing else like it has another number of copies than 1"
    )


def test_why_there_is_no_curve_is_told_a_line_for_each_reason(rater: Rater, database: Path) -> None:
    with open_store(database) as store:
        for number, size in ((5, "ref"), (6, "train")):
            bad = run(2, number)
            rows = [replace(row, status=CopyStatus.FAILED, exit_code=1) for row in bad.copies]
            store.add(replace(bad, copies=tuple(rows), head=replace(bad.head, size=size)))
    status, _, err = rater("scale", 1, 5, 6)
    assert status == 2
    assert err.splitlines()[1:3] == [
        "  run 1 (size=test): nothing else like it has another number of copies than 1",
        "  runs 5-6: no benchmark has a result",
    ]


def test_rounds_are_the_same_in_all_words(rater: Rater, database: Path) -> None:
    with open_store(database) as store:
        for place in range(8):
            made, _ = store.add(run(1 + place % 2, 10 + place))
            tags = {"sweep": 3, "block": place // 2, "copies": 1 + place % 2}
            with store.writing("tagging") as connection:
                connection.executemany(
                    "INSERT INTO tag (run_id, name, value) VALUES (?, ?, ?)",
                    [(made, name, str(value)) for name, value in tags.items()],
                )
    document = json.loads(rater("scale", "tag:copies=1", "tag:copies=2", "--json")[1])
    assert document["curves"][0]["benchmarks"][0]["noise"]["within_rounds"]


@needs_vega
def test_a_picture_has_a_panel_for_each_curve_with_its_knee(rater: Rater, tmp_path: Path) -> None:
    status, out, _ = rater("scale", 1, 2, 3, 4, "-o", tmp_path / "a.svg")
    assert status == 0
    assert "a.svg: 3 panels" in out
    svg = (tmp_path / "a.svg").read_text()
    assert [len(marks(svg, name)) for name in ("dots", "linear", "knees")] == [3, 3, 3]
    assert [len(of) for of in marks(svg, "knees")] == [1, 1, 1]
    assert [len(of) for of in marks(svg, "shared")] == [1, 1, 1], "8 copies share cores"
    assert {"suite, ratio", f"{FINE}, ratio", "knee 2", "copies", "1.20 x"} <= set(texts(svg))


def test_a_file_of_no_known_format_is_refused_before_anything_is_read(rater: Rater) -> None:
    status, _, err = rater("scale", 1, 2, "-o", "a.gif")
    assert status == 2
    assert ".svg, .png or .pdf" in err


@needs_vega
def test_curves_of_several_conditions_share_panels_and_have_their_names() -> None:
    runs = [
        replace(run(n, n), head=replace(run(n, n).head, run=i)) for i, n in enumerate((1, 2) * 2)
    ]
    found = curves(*runs, thp=("always", "always", "never", "never"))
    words = texts(curves_svg(found))
    assert {"thp=always  2.00 x", "thp=never  2.00 x"} & set(words)


@needs_vega
def test_names_of_other_people_do_no_harm() -> None:
    hostile = "$x^2 <&> \x1b[31m"
    RATES[hostile] = RATES[FINE]
    found = curves(*(run(n, n, (hostile,)) for n in (1, 2)))
    del RATES[hostile]
    assert "$x^2 <&> ?[31m, ratio" in texts(curves_svg(found))
