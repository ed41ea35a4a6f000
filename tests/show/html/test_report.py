"""`rater report`: what the page holds, where it is written, and that names stay text."""

import base64
import hashlib
import json
import os
import re
import sqlite3
import stat
import sys
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from rater.analysis.compare.compare import compare
from rater.analysis.compare.scaling import scaling_curves
from rater.analysis.divots.model.finding import Analysis, Kind
from rater.analysis.results.copies import Point, PointRun, group_cells
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.score import summarise
from rater.record.run import CopyStatus, MachinePU
from rater.record.stored import StoredRun
from rater.show.charts import timeline as page_timeline
from rater.show.charts import vega as page_library
from rater.show.charts.comparison import throughput_charts
from rater.show.charts.machine import machine_rows
from rater.show.charts.measured import measured_cells
from rater.show.charts.picture import Label, picture_of
from rater.show.charts.timeline import timeline, timeline_svg
from rater.show.charts.vega import element
from rater.show.html.page import RunSet, report_html
from rater.show.html.shell import is_page, packed, table_html
from rater.show.html.story import ReportRun, run_data, score_lost
from rater.show.screen.console import Column
from tests.support.calls import Rater
from tests.support.counted_runs import counted_run
from tests.support.drawings import needs_vega
from tests.support.example_findings import finding_of
from tests.support.example_runs import S, copy_row, stored, with_energy
from tests.support.placement_samples import seen_run
from tests.support.report_runs import HOSTILE, Page, document, unpacked, written
from tests.support.series import busy_run


def page_run(run: StoredRun, *labels: Label, divots: Analysis | None = None) -> ReportRun:
    cells = group_cells(run)
    picture = picture_of(run.head, measured_cells(cells), labels)
    return ReportRun(
        run=run,
        summary=summarise(run),
        cells=cells,
        picture=picture,
        divots=divots,
        readings=run_counters(run),
    )


def page(*runs: StoredRun, divots: Analysis | None = None) -> Page:
    shown = [page_run(run, divots=divots) for run in runs]
    return Page(report_html(shown, "var vega;", together(*runs) if len(runs) > 1 else None))


def together(*runs: StoredRun) -> RunSet:
    points = [Point(f"run {run.head.run}", (), (PointRun(run, None),)) for run in runs]
    scaling = scaling_curves(points)
    return RunSet(comparison=compare(points), scaling=scaling if scaling.curves else None)


def a_run(**head: object) -> StoredRun:
    rows = [copy_row(copy, 10.0 + copy, node=copy // 2) for copy in range(4)]
    return stored(rows, copies=4, **head)  # type: ignore[arg-type] # any of a head's fields


def test_the_energy_of_phases_stands_on_the_page() -> None:
    """30 J in 10 s between four copies that took 13 s, and nothing of it where it was not read."""
    assert "a 1 30.0 7.50 3.00 390" in page(with_energy(a_run(), 30)).visible_text
    assert "J /copy" not in page(a_run()).visible_text


# -- the command --------------------------------------------------------------------------


@needs_vega
def test_a_page_is_written_in_the_current_directory(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rater("import", written(tmp_path, document()))

    status, out, err = rater("report")

    file = tmp_path / "rater-report-1.html"
    assert (status, err) == (0, "")
    assert out.startswith(f"{file}: report on run 1, ")
    shown = Page(file.read_text(encoding="utf-8"))
    assert "node 1 : all benchmarks +30.0 %" in shown.visible_text
    assert len(shown.data["runs"][0]["panels"]) == 3
    assert [path.name for path in tmp_path.glob(".rater-report-*")] == []
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~_umask()


@needs_vega
def test_each_divot_leads_to_the_pictures_of_its_benchmarks(rater: Rater, tmp_path: Path) -> None:
    rater("import", written(tmp_path, document()))
    file = tmp_path / "page.html"

    status, out, _ = rater("report", "1", "-o", file, "--json")

    assert status == 0
    assert json.loads(out) == {
        "rater": 1,
        "runs": [1],
        "file": str(file),
        "bytes": file.stat().st_size,
    }
    links = [one for one in Page(file.read_text()).find("a") if "data-pick" in one]
    assert [link["href"] for link in links] == ["#panel-1-0", "#panel-1-1", "#panel-1-2"]
    assert json.loads(links[0]["data-pick"] or "") == {
        "field": "copy",
        "values": [4, 5, 6, 7],
        "text": "divot: node 1",
        "run": 1,
    }


@needs_vega
def test_a_file_that_rater_did_not_make_stays(rater: Rater, tmp_path: Path) -> None:
    rater("import", written(tmp_path, document()))
    file = tmp_path / "thesis.html"
    file.write_text("<html>years of work</html>")

    status, _, err = rater("report", "-o", file)

    assert status == 2
    assert "was not written by rater" in err
    assert file.read_text() == "<html>years of work</html>"
    assert rater("report", "-o", file, "--force")[0] == 0
    assert is_page(file.read_text()[:4096])
    assert rater("report", "-o", file)[0] == 0, "a page of its own it writes again"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-o", "/nowhere/at/all.html"), "there is no directory /nowhere/at"),
        (("-o", "/"), "is a directory"),
        (("-o", ""), "-o '': expected the name of a page, or - for standard output"),
        (("-o", "/dev/null"), "is no regular file"),
        (("99",), "no such run"),
        (("-o", "/proc/version"), "was not written by rater"),
        (("-o", f"/tmp/{300 * 'n'}.html"), "cannot be written (File name too long)"),
        pytest.param(("-o", "/proc/page.html"), "-o /proc/page.html: cannot be", marks=needs_vega),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    rater: Rater, tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    rater("import", written(tmp_path, document(benchmarks=1)))

    status, out, err = rater("report", *words)

    assert (status, out) == (2, "")
    assert why in err
    assert err.count("\n") == 1


@needs_vega
def test_a_link_stays_a_link(rater: Rater, tmp_path: Path) -> None:
    rater("import", written(tmp_path, document(benchmarks=1)))
    link = tmp_path / "latest.html"
    link.symlink_to(tmp_path / "real.html")

    assert rater("report", "-o", link)[0] == 0

    assert link.is_symlink()
    assert is_page((tmp_path / "real.html").read_text()[:4096])


@needs_vega
@pytest.mark.parametrize("mode", [0o600, 0o444, 0o664])
def test_a_page_that_is_written_again_keeps_who_may_read_it(
    rater: Rater, tmp_path: Path, mode: int
) -> None:
    rater("import", written(tmp_path, document(benchmarks=1)))
    file = tmp_path / "p.html"
    rater("report", "-o", file)
    file.chmod(mode)
    before = file.stat().st_ino

    assert rater("report", "-o", file)[0] == 0

    assert file.stat().st_ino != before, "it is another file"
    assert stat.S_IMODE(file.stat().st_mode) == mode


def test_without_the_extra_the_error_names_it(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rater("import", written(tmp_path, document(benchmarks=1)))
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    page_library.library.cache_clear()

    status, _, err = rater("report", "-o", tmp_path / "p.html")

    assert status == 2
    assert "pip install 'rater-bench[report]'" in err
    assert not (tmp_path / "p.html").exists()


@needs_vega
def test_a_database_without_an_ended_copy_still_makes_a_page(rater: Rater, tmp_path: Path) -> None:
    empty = document(benchmarks=0)
    rater("import", written(tmp_path, empty))

    status, _, err = rater("report", "-o", tmp_path / "p.html")

    assert (status, err) == (0, "")
    assert Page((tmp_path / "p.html").read_text()).data["runs"][0]["panels"] == []


@needs_vega
def test_a_run_that_was_cut_off_is_searched_all_the_same(rater: Rater, tmp_path: Path) -> None:
    rater("import", written(tmp_path, document()))
    with closing(sqlite3.connect(os.environ["RATER_DB"], autocommit=True)) as base:
        base.execute("UPDATE run SET status = 'interrupted', source = 'run'")

    rater("report", "-o", tmp_path / "p.html")

    shown = Page((tmp_path / "p.html").read_text(encoding="utf-8"))
    assert "node 1 : all benchmarks +30.0 %" in shown.visible_text
    assert "divot 1 " in shown.visible_text


@needs_vega
def test_points_of_several_runs_stand_beside_each_other(rater: Rater, tmp_path: Path) -> None:
    for number in range(1, 5):
        slow = 1.2 if number > 2 else 1.0
        rater("import", written(tmp_path, document(uuid=f"u-{number}", slow=slow)))

    status, out, err = rater("report", "1,2", "3,4", "4", "-o", tmp_path / "p.html", "--json")
    again, _, _ = rater("report", "1,2", "3,4", "-o", tmp_path / "p.html", "--json")

    assert (status, out) == (2, "")
    assert "run 4 is in two points (runs 3, 4; run 4)" in err
    assert again == 0
    page = Page((tmp_path / "p.html").read_text(encoding="utf-8"))
    data = page.data
    assert [run["run"] for run in data["runs"]] == [2, 4]
    assert "those of the last run of each point" in page.visible_text
    assert page.visible_text.count("A NUMA node is a group of CPUs") == 1
    assert len(data["comparison"]["data"]["titles"]) == 4


@needs_vega
def test_a_page_can_go_to_standard_output_and_the_same_run_twice_is_one(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rater("import", written(tmp_path, document(benchmarks=1)))

    status, out, err = rater("report", "1", "last", "-o", "-")

    assert (status, err) == (0, "")
    assert is_page(out[:4096])
    assert [run["run"] for run in Page(out).data["runs"]] == [1]
    assert list(tmp_path.glob("*.html")) == []
    assert not (tmp_path / "-").exists()


@needs_vega
@pytest.mark.parametrize("option", ["--machine", "--timeline"])
def test_pictures_of_the_page_are_files_too(rater: Rater, tmp_path: Path, option: str) -> None:
    rater("import", written(tmp_path, document(benchmarks=1, name="<b>")))
    file = tmp_path / "p.svg"

    assert rater("show", "plot", option, "-o", file)[0] == 0

    text = file.read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert "var(--" not in text
    assert "run 1" in text
    status, _, err = rater("show", "plot", option)
    assert (status, f"{option}: expected -o FILE" in err) == (2, True)


@needs_vega
def test_speedups_are_drawn_into_a_file(rater: Rater, tmp_path: Path) -> None:
    for number in (1, 2):
        made = document(uuid=f"u-{number}", benchmarks=1)
        made["run"]["started_at"] = f"2026-11-20T1{number}:00:00Z"
        rater("import", written(tmp_path, made))
    file = tmp_path / "c.svg"

    assert rater("compare", "1", "2", "-o", file)[0] == 0

    assert "speedup over run 1" in file.read_text(encoding="utf-8")


# -- the page -----------------------------------------------------------------------------


def test_the_page_asks_nothing_of_the_network() -> None:
    shown = page(a_run())

    (policy,) = [m["content"] for m in shown.find("meta") if m.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1]
    for name, attributes in shown.elements:
        assert name not in ("link", "iframe", "object", "embed")
        assert not (attributes.get("src") or "").startswith("http")


def test_only_the_scripts_of_the_page_may_run() -> None:
    text = report_html([page_run(a_run())], "var vega = '</script>';")
    shown = Page(text)

    data, *scripts = shown.scripts
    assert unpacked(data)
    assert scripts[0] == "var vega = '<\\/script>';"
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in text or html_escaped(digest) in text


@pytest.mark.parametrize(
    ("divots", "texts"),
    [
        (
            Analysis(findings=(), visible={"group": 0.011, "copy": 0.03}, others_cost=0.0),
            [
                "What is slow No divots: no copy and no part of the machine stands out. Smallest "
                "detectable slowdown: a node 1.1 % in all benchmarks; a copy 3.0 % in one "
                "iteration. The machine"
            ],
        ),
        (
            None,
            [
                "The search for divots failed; `rater divots 7` makes it once more.",
                "divots not known",
            ],
        ),
        (
            Analysis(findings=(), visible={"copy": 0.3}),
            ["divots not known", "Smallest detectable slowdown: a copy 30.0 % in one iteration."],
        ),
    ],
    ids=["healthy", "failed search", "sees little"],
)
def test_a_run_without_divots_says_what_that_means(
    divots: Analysis | None, texts: list[str]
) -> None:
    shown = page(a_run(), divots=divots).visible_text

    assert [text for text in texts if text not in shown] == []
    assert ("No divots" in shown) is (len(texts) == 1)


def test_a_disturbed_run_shows_its_verdict_first_and_larger_than_its_loss() -> None:
    shown = page(
        stored([copy_row(0, 10.0), copy_row(1, 12.0)], copies=2),
        divots=Analysis(findings=(), visible={"copy": 0.03}, others_cost=0.4),
    )
    figures = [one["class"] for one in shown.find("div") if "figure" in (one.get("class") or "")]

    head = shown.visible_text.partition("of the score lost")[0]
    assert "to judge what is slow too disturbed suite ratio" in head
    assert figures == ["figure", "figure", "figure lesser", "figure"]


def test_what_is_fast_does_not_stand_under_what_is_slow() -> None:
    slow = finding_of(Kind.SLOW_CPU, "CPU 0", (0,), summary="+20 %")
    fast = finding_of(Kind.SLOW_GROUP, "CPU 1", (1,), summary="-20 %", slowdown=0.8)

    page_of_slow = page(
        a_run(), divots=Analysis(findings=(slow,), visible={"copy": 0.03})
    ).visible_text
    page_of_both = page(
        a_run(), divots=Analysis(findings=(slow, fast), visible={"copy": 0.03})
    ).visible_text

    assert "What is slow CPU 0 : +20 %" in page_of_slow
    assert "What stands out, slow or fast CPU 0 : +20 %" in page_of_both
    assert "What is slow " not in page_of_both
    assert "A divot is a part of the machine, a copy or an iteration" in " ".join(
        page_of_both.split()
    )


def test_copies_that_rater_stopped_are_not_said_to_have_failed() -> None:
    stopped = [
        copy_row(copy, 1.0, status=CopyStatus.INTERRUPTED, iteration=2, phase=1)
        for copy in range(4)
    ]
    crashed = replace(stopped[3], status=CopyStatus.FAILED, exit_code=3)
    run, good = a_run(iterations=2), [copy_row(copy, 10.0, node=copy // 2) for copy in range(4)]
    seen = Analysis(findings=(), visible={"copy": 0.03}, failed=4)

    all_four = page(replace(run, copies=(*good, *stopped)), divots=seen).visible_text
    some = page(replace(run, copies=(*good, *stopped[:3], crashed)), divots=seen)
    mixed = some.visible_text
    text = page(replace(run, copies=(*good, crashed)), divots=replace(seen, failed=1)).visible_text

    assert "copy runs interrupted 4 " in all_four
    assert "4 copy runs that did not are not judged." in all_four
    assert "copy run failed" not in all_four
    assert "copy runs failed" not in all_four
    assert "copy run failed 1 copy runs interrupted 3 " in mixed
    assert "4 copy runs that did not are not judged." in mixed
    (panel,) = some.data["runs"][0]["panels"]
    assert panel["failedText"] == "copy 3 failed; copies 0-2 interrupted"
    assert "copy run failed 1 " in text
    assert "1 copy run that did not is not judged." in text


@pytest.mark.parametrize(
    ("elapsed_s", "shown"),
    [(0.0031, "3.1 ms"), (0.0994, "99 ms"), (0.12, "0.12 s"), (0.996, "1.00 s"), (7.9, "0:07")],
)
def test_a_run_below_a_second_is_not_said_to_take_no_time(elapsed_s: float, shown: str) -> None:
    text = page(a_run(elapsed_s=elapsed_s)).visible_text

    assert f"from first start to last finish {shown} " in text


def test_dots_carry_what_a_reader_may_ask_of_them() -> None:
    rows = [
        copy_row(0, 10.0, cpu=4, core=2, node=1, cpu_ns=9 * S),
        copy_row(1, 12.0, cpu=0, core=0, node=0, start_ns=S, cpu_ns=None),
    ]

    (panel,) = run_data(page_run(stored(rows)), {})["panels"]

    assert panel["dots"] == {
        "place": [1, 0],
        "copy": [0, 1],
        "cpu": [4, 0],
        "core": [2, 0],
        "node": [1, 0],
        "it": [1, 1],
        "s": [10.0, 12.0],
        "kind": [0, 0],
        "start": [0.0, 1.0],
        "local": [None, None],
        "more": ["CPU time 9 s", ""],
    }


def test_a_dot_knows_how_much_of_its_memory_was_local() -> None:
    (panel,) = run_data(page_run(seen_run(remote=1)), {})["panels"]

    local = dict(
        zip(
            zip(*(panel["dots"][number] for number in ("copy", "it")), strict=True),
            panel["dots"]["local"],
            strict=True,
        )
    )
    assert local[1, 1] == 0.25
    assert local[1, 2] == 1.0


def test_slow_parts_are_marked_as_in_the_other_pictures() -> None:
    rows = [copy_row(copy, 10.0 if copy else 13.0, node=0) for copy in range(4)]
    labels = (
        Label(copies=(0,), text="copy 0: +30 %"),
        Label(copies=(1,), text="copy 1: by the layout", explained=True),
    )

    (panel,) = run_data(page_run(stored(rows, copies=4), *labels), {})["panels"]

    assert panel["dots"]["kind"] == [1, 2, 0, 0]
    assert panel["labels"] == [
        {"text": "copy 0: +30 %", "explained": False, "copies": [0], "its": []},
        {"text": "copy 1: by the layout", "explained": True, "copies": [1], "its": []},
    ]


def test_an_iteration_that_is_slow_at_large_is_marked_and_chosen_alone() -> None:
    rows = [copy_row(copy, 10.0 * it, iteration=it, phase=it) for copy in range(4) for it in (1, 2)]
    label = Label(copies=(0, 1, 2, 3), text="iteration 2: +100 %", iterations=(2,))

    (panel,) = run_data(page_run(stored(rows, copies=4, iterations=2), label), {})["panels"]

    kinds = dict(zip(panel["dots"]["it"], panel["dots"]["kind"], strict=True))
    assert kinds == {1: 0, 2: 1}
    assert panel["labels"][0]["its"] == [2]


def test_the_timeline_marks_what_the_panels_mark_in_the_same_tune() -> None:
    rows = [
        copy_row(copy, 10.0, tune=tune, phase=number)
        for copy in range(3)
        for number, tune in enumerate("bp")
    ]
    slow = Label(copies=(1,), text="copy 1: +30 %", tune="p")

    brackets = run_data(page_run(stored(rows), slow), {})["timeline"]["brackets"]

    assert [(bracket["tune"], bracket["bars"]["kind"]) for bracket in brackets] == [
        ("b", []),
        ("p", [[1, 1]]),
    ]


def test_places_in_time_are_bands_of_their_bracket_with_their_words() -> None:
    run = busy_run(iterations=2)
    found = run_data(page_run(run), {})["timeline"]["brackets"]
    others = "CPU 1: others had 50 % from second 3 to 6"
    bands = [[(band["from"], band["to"], band["text"]) for band in one["bands"]] for one in found]
    assert (3.0, 6.0, others) in bands[1]
    assert others not in [text for _, _, text in bands[0]]


@needs_vega
def test_a_picture_over_time_has_the_words_of_its_bands() -> None:
    data = run_data(page_run(busy_run()), {})
    words = ElementTree.fromstring(timeline_svg(data, 0)).itertext()
    assert "CPU 1: others had 50 % from second 3 to 6" in set(words)


def test_a_copy_that_failed_is_in_the_timeline_but_no_dot() -> None:
    rows = [copy_row(0, 10.0), copy_row(1, 4.0, status=CopyStatus.FAILED, exit_code=3)]
    shown = page_run(stored(rows))

    data = run_data(shown, {})

    assert data["panels"][0]["dots"]["copy"] == [0]
    assert data["panels"][0]["failed"] == [[1, 1, 1, 1, 1, 4.0, "exit status 3"]]
    assert data["timeline"]["brackets"][0]["bars"]["bad"] == [[1, "exit status 3"]]


@pytest.mark.parametrize("starts_known", [True, False])
def test_bars_count_from_the_first_start_of_their_bracket_or_begin_together(
    starts_known: bool,
) -> None:
    rows = [copy_row(copy, 2.0 + copy, start_ns=5 * S + copy * S) for copy in range(2)]
    if not starts_known:
        rows = [replace(row, start_ns=None, finish_ns=None) for row in rows]
    run = stored(rows, closed=starts_known, source="run" if starts_known else "import")

    (bracket,) = timeline(summarise(run), run, {})["brackets"]

    assert bracket["known"] is starts_known
    assert bracket["bars"]["from"] == ([0.0, 1.0] if starts_known else [0.0, 0.0])
    assert bracket["bars"]["s"] == [2.0, 3.0]


def test_more_runs_than_can_be_drawn_are_a_bar_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_timeline, "_MOST_BARS", 5)
    rows = [
        copy_row(copy, 2.0, step=step, start_ns=3 * step * S)
        for copy in range(2)
        for step in range(3)
    ]
    run = stored(rows)

    found = timeline(summarise(run), run, {})

    assert found["brackets"][0]["folded"] is True
    assert found["brackets"][0]["bars"]["copy"] == [0, 1]
    assert found["brackets"][0]["bars"]["s"] == [8.0, 8.0]


def test_the_machine_is_what_is_known_of_it_and_what_copies_say() -> None:
    rows = [
        copy_row(copy, 2.0, cpu=copy, core=copy, llc=None, node=copy, package=None)
        for copy in range(2)
    ]
    run = replace(
        stored(rows),
        pus=(
            MachinePU(cpu=0, core=0, llc=7, node=0, package=0),
            MachinePU(cpu=9, core=9, llc=7, node=0, package=0),
        ),
    )

    # CPU, package, lgroup, LLC, core: what is not known comes last.
    assert machine_rows(run) == [[0, 0, 0, 7, 0], [9, 0, 0, 7, 9], [1, None, 1, None, 1]]


def test_the_page_holds_the_machine_with_its_slowdowns() -> None:
    rows = [copy_row(copy, 10.0 + copy, node=copy // 2, core=copy // 2) for copy in range(4)]
    shown = page(stored(rows, copies=4))

    cpus = [one["data-cpu"] for one in shown.find("g") if one.get("class") == "cpu"]
    nodes = [one["data-node"] for one in shown.find("g") if "data-node" in one]
    assert (cpus, nodes) == (["0", "1", "2", "3"], ["0", "1"])
    (all_of_them, alone) = shown.data["runs"][0]["slowdowns"]
    assert all_of_them == alone
    assert all_of_them["nodes"] == {"0": round(10.5 / 11.5, 6), "1": round(12.5 / 11.5, 6)}
    assert shown.data["spans"] == {"": pytest.approx(0.130435), "a": pytest.approx(0.130435)}


@pytest.mark.parametrize(
    ("failed", "text"),
    [((), "half had finished after 3.000 s"), ((3,), "half of those that ended well: 3.000 s")],
)
def test_a_bracket_knows_when_half_of_its_copies_had_ended(
    failed: tuple[int, ...], text: str
) -> None:
    rows = [copy_row(copy, 2.0 + copy) for copy in range(4)]
    for copy in failed:
        rows[copy] = replace(rows[copy], status=CopyStatus.FAILED, exit_code=1)
    run = stored(rows, copies=4)

    (bracket,) = timeline(summarise(run), run, {})["brackets"]

    assert bracket["half"] == {"at": 3.0, "text": text, "wide": pytest.approx(5.6 * len(text))}


def test_a_run_without_known_lgroups_is_not_said_to_stand_by_them() -> None:
    known = stored([copy_row(copy, 10.0 + copy, node=copy // 2) for copy in range(4)], copies=4)
    unknown = stored([copy_row(copy, 10.0 + copy, node=None) for copy in range(4)], copies=4)
    order = "Copies are grouped by NUMA node"
    assert order in page(known).visible_text
    assert order not in page(unknown).visible_text


def test_score_lost_of_the_suite_is_what_its_ratio_lacks() -> None:
    # Half of one benchmark's and none of the other's: the geometric mean of 1/2 and 1.
    rows = [copy_row(number, time_s) for number, time_s in enumerate((1.0, 1.0, 2.0))]
    rows += [copy_row(copy, 1.0, benchmark="b", phase=1, start_ns=9 * S) for copy in range(3)]

    lost = score_lost(summarise(stored(rows, copies=3)))

    assert lost == pytest.approx(1 - 0.5**0.5)


def test_several_runs_stand_beside_the_first_with_one_axis() -> None:
    runs = [a_run(), replace(a_run(run=8), settings=(("thp", "never"),))]
    slower = [replace(row, elapsed_ns=row.elapsed_ns * 2) for row in runs[1].copies]

    shown = page(runs[0], replace(runs[1], copies=tuple(slower)))

    assert shown.visible_text.count("run 7; run 8 ") == 1
    assert "setting thp" in shown.visible_text
    assert ("details", {"class": "settings"}) in shown.elements, "in columns on paper"
    (line,) = shown.data["comparison"]["data"]["lines"]
    assert (line["kind"], line["card"][1]) == ("unknown", "inconclusive: one run each")
    first, second = (run["panels"][0] for run in shown.data["runs"])
    assert (first["low"], first["high"]) == (second["low"], second["high"])


def test_what_ran_and_where_stands_below_the_title_of_several_runs() -> None:
    runs = [
        stored([copy_row(copy, 10.0) for copy in range(many)], run=number, copies=many)
        for number, many in ((1, 1), (2, 4), (3, 4))
    ]
    elsewhere = replace(runs[2], head=replace(runs[2].head, hostname="other"))

    on_one, on_two = page(*runs[:2]).visible_text, page(*runs[:2], elsewhere).visible_text

    machine = "1 package, 2 NUMA nodes, 2 cores, 2 CPUs"
    assert (
        f"run 1; run 2 mini/a (test, base), homogeneous; run 1: 1 copy; run 2: 4 copies "
        f"on h, {machine} Beside each other"
    ) in on_one
    assert (
        f"run 1: 1 copy; runs 2, 3: 4 copies {machine}; runs 1, 2: on h; run 3: on other Beside"
    ) in on_two


def test_runs_with_other_numbers_of_copies_have_curves() -> None:
    runs = [
        stored([copy_row(copy, 10.0 + many) for copy in range(many)], run=many, copies=many)
        for many in (1, 2, 4)
    ]

    speedup, rate = page(*runs).data["scaling"]

    assert speedup["title"] == "speedup over 1 copy"
    assert [point["x"] for point in rate["data"]["points"]] == [1.0, 2.0, 4.0]
    # 4 copies in 14 s each against 1 in 11 s.
    assert speedup["data"]["dots"][-1]["y"] == pytest.approx(4 * 11 / 14)


def test_a_dot_of_the_scaling_is_the_mean_that_the_table_has() -> None:
    """Two runs of 2 copies with ratios of 2 and 0.5: their geometric mean is 1, the median 1.25."""
    once, *twice = (
        stored([copy_row(copy, seconds) for copy in range(copies)], run=run, copies=copies)
        for run, (copies, seconds) in enumerate([(1, 10.0), (2, 10.0), (2, 40.0)], 1)
    )
    points = [
        Point(str(copies), (), tuple(PointRun(run, block) for block, run in enumerate(runs)))
        for copies, runs in ((1, [once]), (2, twice))
    ]

    (panel,) = throughput_charts(scaling_curves(points).curves)

    dot = panel["data"]["dots"][-1]
    assert (dot["low"], dot["y"], dot["high"]) == pytest.approx((0.5, 1, 2))


def test_a_run_that_was_counted_has_the_bars_of_its_cycles() -> None:
    counted = page(counted_run())
    assert counted.data["cpi"]["data"]["totals"] == [{"row": 0, "at": 2.0, "text": "2.00"}]
    assert "Where the cycles go" in counted.visible_text
    assert "bad speculation" in counted.visible_text
    assert page(a_run()).data["cpi"] is None


# -- text that is not HTML ----------------------------------------------------------------


def test_elements_escape_what_is_not_html() -> None:
    text = element("p", "<b>&", element("i", '"'), title="a\"'<\x1b")

    assert text == '<p title="a&quot;&#x27;&lt;?">&lt;b&gt;&amp;<i>&quot;</i></p>'


def test_data_in_a_script_cannot_end_it() -> None:
    text = packed({"name": "</script><!--\u2028\u2029&"})

    assert re.fullmatch("[A-Za-z0-9+/=]+", text)
    assert unpacked(text) == {"name": "</script><!--\u2028\u2029&"}


def test_the_data_of_many_copies_take_a_fifth_of_their_json() -> None:
    rows = [copy_row(copy, 10 + copy % 7 / 7) for copy in range(1000)]
    text = report_html([page_run(stored(rows, copies=1000))], "")

    data = Page(text).scripts[0]
    assert len(data) * 5 < len(json.dumps(unpacked(data), separators=(",", ":")))


def test_a_name_that_stands_for_several_rows_stays_with_each() -> None:
    text = table_html(
        [
            Column(heading=("benchmark", ""), cells=["lu", ""], right=False),
            Column(heading=("s", ""), cells=["1", "2"]),
        ]
    )

    assert '<td class="again">lu</td><td class="r">2</td>' in text


def test_hostile_names_stay_text_in_every_part_of_the_page() -> None:
    bad = HOSTILE + "\x00\x1b[31m\u202e\u2028\r\n"
    rows = [copy_row(copy, 10.0 + copy, benchmark=bad, note=bad) for copy in range(3)]
    rows += [copy_row(3, 1.0, benchmark=bad, status=CopyStatus.FAILED, validity_detail=bad)]
    run = stored(rows, copies=4, hostname=bad, suite=bad, command_line=bad, tags=((bad, bad),))
    run = replace(run, settings=((bad, bad),), warnings=(bad,), environment=((bad, bad),))

    again = replace(run, head=replace(run.head, run=8))
    text = report_html([page_run(run), page_run(again)], "", together(run, again))

    shown = Page(text)
    assert len(shown.scripts) == 3, "data, library and script; no other"
    assert not shown.find("img")
    assert not shown.find("b", onerror="alert(2)")
    assert shown.data["runs"][0]["panels"][0]["title"].startswith("</script>")
    assert not re.search("[\x00\x1b\u202e\u2028\r]", text)
    for _, attributes in shown.elements:
        assert not any(name.startswith("on") for name in attributes)


def html_escaped(text: str) -> str:
    return element("x", text)[3:-4]


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now
