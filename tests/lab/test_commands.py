"""`rater lab pages` and `rater lab model` on sweeps with exact answers."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from rater.lab.layout.layout import parse_pages
from rater.lab.layout.pools import machine_problems
from rater.lab.models.study import LabPage, tell_ended
from rater.lab.trace.store import keep_trace
from rater.store.store import Store, open_store
from rater.workflow.arguments import Output
from tests.support.calls import Rater
from tests.support.drawings import marks, needs_vega, texts
from tests.support.made_runs import make_run
from tests.support.made_sweeps import make_sweep
from tests.support.report_runs import Page
from tests.support.traces import COSTS, a_trace

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
    assert ["suite", "(2)", "1.069", "1.155", "1.265", "1.414"] in lines
    assert ["gups", "linear", "-66.7", "1.000", "0.0", "0.0", "0.0"] in lines
    assert ["lu", "nothing", "+0.0", "-", "-", "-", "0.0"] in lines
    text = page.read_text()
    assert "<h1>Page sizes, sweep 1</h1>" in text
    drawn = json.dumps(Page(text).data)
    assert drawn.count('"title": "gups, time of a copy, s"') == 1
    assert "The memory of these copies was not sampled." in text


def test_its_json_has_all_of_it(rater: Rater, swept: Path) -> None:
    status, out, _ = rater("lab", "pages", "--show", 1, "--json")
    assert status == 0
    document = json.loads(out)
    assert document["layouts"] == ["0%", "25%", "50%", "75%", "100%"]
    assert document["most_large_pages"] == "100%"
    assert [model["choice"]["warranted"] for model in document["models"]] == ["linear", None]
    assert [row["benchmark"] for row in document["memory"]] == ["gups", "lu"]
    assert document["file"] is None


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
        tell_ended(LabPage(None, None), "time", Output(), store, 1)
    assert "1 of 2 runs done" in capsys.readouterr().out


SHARES = (0, 12.5, 25, 50, 75, 87.5, 100)
LINE = {f"{share}%": [10 - 0.04 * share] * 2 for share in SHARES}
# 10 s at 0 %, 6 s at 100 %, 1.2 s under the chord between them.
PARABOLA = {f"{share}%": [10 - 0.088 * share + 0.00048 * share**2] * 2 for share in SHARES}
DRIFTING = {f"{share}%": [(10 - 0.04 * share) * f for f in (1, 1.5)] for share in SHARES}


def document(rater: Rater, *words: object) -> dict[str, object]:
    status, out, err = rater("lab", "model", *words, "--json")
    assert (status, err) == (0, "")
    found: dict[str, object] = json.loads(out)["models"][0]
    return found


def test_a_line_is_found_as_a_line(rater: Rater, database: Path) -> None:
    make_sweep(database, "pages", LINE)
    status, out, err = rater("lab", "model", "last")
    assert (status, err) == (0, "")
    assert out.splitlines()[:4] == [
        "gups: 7 layouts, 14 runs",
        "x: large pages (%), the share that --pages planned. y: time of a copy (s),",
        "    median copy of a run.",
        "Warranted: linear, y = 10 - 0.04 x.",
    ]
    (fitted,) = [line.split() for line in out.splitlines() if line.startswith("linear *")]
    assert fitted[2:4] + fitted[5:7] == ["1.000", "1.000", "0.0", "0.0"]  # R2s, errors left out
    model = document(rater, "1")
    assert model["x_is"] == {
        "kind": "huge",
        "name": "large pages",
        "unit": "%",
        "source": "the share that --pages planned",
    }


def test_a_parabola_is_found_and_its_two_point_line_is_wrong_by_what_the_chord_is(
    rater: Rater, database: Path
) -> None:
    make_sweep(database, "pages", PARABOLA)
    model = document(rater, 1)
    assert isinstance(model["choice"], dict)
    assert model["choice"]["warranted"] == "quadratic"
    assert isinstance(model["two_point_models"], list)
    ends = model["two_point_models"][0]
    assert ends["fitted_on"] == ["pages=0%", "pages=100%"]
    assert ends["maximum_error"] == pytest.approx(1.2 / 6.8)  # at 50 %: 8 by the chord, 6.8 true


def test_what_a_round_does_to_all_layouts_is_taken_off(rater: Rater, database: Path) -> None:
    make_sweep(database, "pages", DRIFTING)
    model = document(rater, 1)
    assert isinstance(model["choice"], dict)
    assert model["choice"]["warranted"] == "linear"
    assert isinstance(model["models"], list)
    assert model["models"][1]["coefficients"] == pytest.approx([10 * 1.5**0.5, -0.04 * 1.5**0.5])


def test_any_axis_of_numbers_will_do(rater: Rater, database: Path) -> None:
    make_sweep(database, "env:SIZE", {"1M": [1.0], "2M": [2.0], "4M": [4.0], "8M": [8.0]})
    model = document(rater, 1, "--x", "axis")
    assert isinstance(model["x_is"], dict)
    assert (model["x_is"]["name"], model["x_is"]["unit"]) == ("env:SIZE", "bytes")
    assert isinstance(model["layouts"], list)
    assert [layout["x"] for layout in model["layouts"]] == [1 << 20, 2 << 20, 4 << 20, 8 << 20]
    _, out, _ = rater("lab", "model", 1)
    assert "Too few runs were repeated to know how much they differ: 5 % is" in out


def test_without_a_sweep_there_is_none(rater: Rater, database: Path) -> None:
    make_run(database)
    status, _, err = rater("lab", "model", "last")
    assert status == 2
    assert "no sweeps stored yet" in err


@needs_vega
def test_a_picture_has_layouts_fits_and_the_band_of_what_is_warranted(
    rater: Rater, database: Path, tmp_path: Path
) -> None:
    make_sweep(database, "pages", PARABOLA)
    file = tmp_path / "m.svg"
    assert rater("lab", "model", "last", "-o", file)[0] == 0
    svg = file.read_text()
    assert len(marks(svg, "band")[0]) == 1
    assert {"linear", "quadratic", "large pages, %"} <= set(texts(svg))


def test_a_quick_study_of_a_command_has_no_size(rater: Rater) -> None:
    status, _, err = rater("lab", "pages", "--quick", "--copies", 1, "--dry-run", "--", "true")
    assert (status, "--size" in err) == (0, False)


def test_a_dry_run_says_what_pages_would_do(rater: Rater) -> None:
    def dry_run_output(*words: str) -> str:
        return rater("run", *words, "--dry-run", "--", "true")[1]

    assert "pages   heap:50%, in pages that the kernel gives transparently" in dry_run_output(
        "--pages", "heap:50%"
    )
    assert "pages   1G, in pages of the pool of huge pages" in dry_run_output("--pages", "1G")
    assert "pages  " not in dry_run_output()


def test_a_sweep_with_too_few_layouts_for_a_model_is_not_drawn(
    rater: Rater, database: Path, tmp_path: Path
) -> None:
    make_sweep(database, "pages", {"0%": [8.0], "100%": [4.0]})
    status, _, err = rater("lab", "model", "last", "-o", tmp_path / "fits.svg")
    assert (status, "nothing to draw: a model needs 3 values of x" in err) == (2, True)


def test_where_the_host_takes_memory_back_y_is_user_time_unless_one_is_named(
    rater: Rater, database: Path
) -> None:
    make_sweep(database, "pages", LINE)
    with closing(sqlite3.connect(database)) as db, db:
        db.execute(
            "INSERT INTO setting (run_id, name, value) "
            "SELECT id, 'virtualization.free_memory', 'reported' FROM run"
        )
        db.execute("UPDATE copy SET user_ns = 5000000000")
    status, out, _ = rater("lab", "model", "last")
    assert status == 0
    assert "y is user time: the host of this virtual machine takes free memory back" in " ".join(
        out.split()
    )
    assert "y: user time of a copy (s)" in " ".join(out.split())
    _, out, _ = rater("lab", "model", "last", "--y", "time")
    assert "y: time of a copy (s)" in " ".join(out.split())


TOUCHING = """
#include <stdlib.h>
int main(void)
{
    volatile char *array = malloc(6 << 20);
    for (int at = 0; at < 6 << 20; at += 4096) array[at] = 1;
    return array[4096] - 1;
}
"""
_REFUSED = machine_problems(parse_pages("2M"), pooled=False, root=Path("/"), planned={})


@pytest.mark.skipif(bool(_REFUSED), reason="; ".join(_REFUSED))
def test_a_check_runs_the_mappings_and_keeps_their_times_with_the_trace(
    rater: Rater, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, program = tmp_path / "touch.c", tmp_path / "touch"
    source.write_text(TOUCHING)
    subprocess.run(["cc", "-o", program, source], check=True)
    with open_store(database) as store:
        trace = replace(a_trace(), command=(str(program),))
        keep_trace(store, trace, COSTS, host="here", traced_at="2026-01-01")
    # Measuring costs takes seconds of CPU time: those of the made trace stand for them.
    monkeypatch.setattr("rater.lab.trace.pages.costs_beside", lambda *_: COSTS)
    status, out, err = rater("lab", "trace", "--show", "last", "--check", "--rounds", 1, "--json")
    assert status == 0, err
    check = json.loads(out)["check"]
    base, best = check["mappings"]
    # The predicted best has the largest pages for all, and nothing costs: two layouts ran.
    assert base["layout"] == "heap:4k;mmap:4k;static:4k"
    assert best["layout"] == "heap:2M;mmap:2M;static:4k"
    assert [len(mapping["times_s"]) for mapping in check["mappings"]] == [1, 1]
    assert best["saved_s"] == pytest.approx(base["median_s"] - best["median_s"])
    assert (check["rounds"], check["told"], best["noise_s"]) == (1, False, None)
    with closing(sqlite3.connect(database)) as connection:
        [(runs,)] = connection.execute("SELECT count(*) FROM run").fetchall()
    assert runs == 2
    status, out, _ = rater("lab", "trace", "--show", 1)
    assert "One round: how far runs differ is not known, so these runs cannot judge." in out


@pytest.mark.parametrize(
    ("huge_ns", "coverage_text"),
    [
        (10.0, "2.10 MB in 4 KB pages (25.55 %), 33.6 MB in 64 KB pages (all), 1074 MB"),
        (14.0, "2.10 MB in 4 KB pages (25.55 %) of what is touched."),
    ],
)
def test_a_tlb_that_splits_huge_pages_covers_no_more_in_them(
    rater: Rater, store: Store, huge_ns: float, coverage_text: str
) -> None:
    loads: list[dict[str, float]] = COSTS["loads"]  # type: ignore[assignment]
    # 256 pages in base pages cost 14 ns, 16 of them cost 10.
    loads = [
        load | {"dependent_huge_ns": huge_ns} if load["pages"] == 256 else load for load in loads
    ]
    keep_trace(store, a_trace(), COSTS | {"loads": loads}, host="here", traced_at="2026-01-01")
    status, out, err = rater("lab", "trace", "--show", "last")
    said = " ".join(out.split())
    assert (status, err, coverage_text in said) == (0, "", True), out
    assert ("walks get shorter, and no rarer" in said) is (huge_ns == 14.0)
