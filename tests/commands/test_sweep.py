"""`rater sweep` on real processes, and `rater scale`: what people read, JSON, pictures."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_NOFILE
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from rater.analysis.compare.scaling import Curve, scaling_curves
from rater.analysis.results.copies import Point, PointRun
from rater.analysis.stats.curves import LawScale
from rater.plan.sweep import SweepSlot
from rater.record.run import CopyStatus, MachinePU
from rater.record.stored import StoredRun
from rater.show.charts.comparison import curves_svg
from rater.show.compare.scaling import scaling_parts
from rater.show.screen.console import Printer, TextScreen
from rater.show.screen.document import print_parts
from rater.store.store import open_store
from rater.workflow.results import divots
from rater.workflow.sweep.runner import SweepEta
from tests.support.calls import Rater, query_rows
from tests.support.drawings import marks, needs_vega, texts
from tests.support.example_runs import copy_row, stored
from tests.support.json_schemas import closed, schema_of
from tests.support.settings_tree import values

TINY = ("--copies", "1", "--proof", "off", "--share", "--quiet")
ENV_AXES = ("--axis", "env:A=,x", "--axis", "env:B=1,2", "--rounds", "2")


def tags_of(run: int) -> dict[str, str]:
    return dict(query_rows(f"SELECT name, value FROM tag WHERE run_id = {run}"))


# -- a whole one ----------------------------------------------------------------------------------


def test_two_axes_by_two_rounds_run_every_point_once_a_block(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A", "of the shell")  # an axis whose empty value means: not set
    seen = tmp_path / "seen"
    seen.mkdir()
    script = f'echo "${{A-unset}} $B" > {seen}/$RATER_RUN'
    status, _, said = rater("sweep", *TINY, *ENV_AXES, "--", "sh", "-c", script)
    assert (status, said) == (0, "")
    progress = query_rows(
        "SELECT block, point, label, run_id, done FROM sweep_progress ORDER BY block, position"
    )
    assert sorted((block, point) for block, point, *_ in progress) == [
        (block, point) for block in (1, 2) for point in range(4)
    ]
    assert all(done for *_, done in progress)
    assert query_rows("SELECT status, reason FROM sweep") == [("complete", None)]
    words = {0: "unset 1", 1: "unset 2", 2: "x 1", 3: "x 2"}
    for block, point, label, run, _ in progress:
        tags = tags_of(run)
        assert (tags["sweep"], tags["block"]) == ("1", str(block))
        assert label == f"env:A={tags['env:A'] or '(none)'} env:B={tags['env:B']}"
        ((uuid,),) = query_rows(f"SELECT uuid FROM run WHERE id = {run}")
        assert (seen / uuid).read_text().strip() == words[point]
    assert os.environ["A"] == "of the shell"
    # Runs are made in the order of the plan, and a rerun is no part of the sweep.
    assert [run for *_, run, _ in progress] == sorted(run for *_, run, _ in progress)
    ((request,),) = query_rows("SELECT DISTINCT json_extract(request, '$.tags') FROM run")
    assert request == "[]"

    status, out, _ = rater("sweep", "--show", "last", "--json")
    document = json.loads(out)
    assert (status, document["runs_done"], document["runs_planned"]) == (0, 8, 8)
    assert [len(point["results"]) for point in document["points"]] == [2, 2, 2, 2]
    # The table and the comparison below it tell one number.
    _, out, _ = rater("sweep", "--show", "last")
    shown = [line.split() for line in out.splitlines() if line.split()[2:3] == ["2/2"]]
    (row,) = document["comparison"]["benchmarks"]
    speedups = [1.0, *(cell["speedup"]["ratio"] for cell in row["points"])]
    assert [float(line[-1]) for line in shown] == pytest.approx(speedups, abs=0.00051)
    status, out, _ = rater("sweep", "--list")
    assert "8/8 complete" in " ".join(out.split())
    status, out, _ = rater("sweep", "--resume", "1", "--quiet")
    assert (status, len(query_rows("SELECT 1 FROM run"))) == (0, 8)


def test_progress_says_block_point_result_and_what_is_left(rater: Rater) -> None:
    loud = [word for word in TINY if word != "--quiet"]
    status, out, said = rater(
        "sweep", *loud, "--axis", "env:A=1,2", "--rounds", "1", "--order", "given", "--", "true"
    )
    assert status == 0
    assert "sweep 1: 2 runs to make" in said
    first, second = [line for line in said.splitlines() if "block 1/1" in line]
    assert "point 1/2: env:A=1: " in first
    assert first.endswith("left")
    assert "copies/hour" in second
    assert "left" not in second
    assert "env:A=2" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_run_of_a_sweep_that_others_disturbed_too_much_is_marked_in_progress_and_list(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(divots, "foreign_load_cost", lambda *_: 0.5)
    loud = [word for word in TINY if word != "--quiet"]
    words = ("--axis", "env:A=1,2", "--rounds", "1", "--retries", "0", "--", "true")
    said = rater("sweep", *loud, *words)[2]
    assert said.count(" copies/hour, disturbed (") == 2
    listed = rater("list")[1].splitlines()[1:3]
    assert ["disturbed" in line.split() for line in listed] == [True, True]


def test_a_run_that_others_disturbed_is_made_again_at_once_and_the_last_one_counts(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = {6: 0.0}
    monkeypatch.setattr(divots, "foreign_load_cost", lambda it, _: costs.get(it.head.run, 0.5))
    loud = [word for word in TINY if word != "--quiet"]
    words = ("--axis", "env:A=1,2", "--rounds", "1", "--order", "given", "--retries", "2")
    said = rater("sweep", *loud, *words, "--", "true")[2]
    # Both are made three times: the first one stays disturbed, the second one is not at last.
    assert said.count("is made again: other processes on these CPUs lowered the score") == 4
    assert said.count("copies/hour, disturbed (") == 1
    counts = query_rows("SELECT run_id FROM sweep_run WHERE NOT replaced ORDER BY run_id")
    assert [run for (run,) in counts] == [3, 6]


def test_runs_that_stay_disturbed_are_not_made_again_for_ever(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(divots, "foreign_load_cost", lambda *_: 0.5)
    loud = [word for word in TINY if word != "--quiet"]
    words = ("--axis", "env:A=1,2", "--rounds", "2", "--retries", "1", "--", "true")
    said = rater("sweep", *loud, *words)[2]
    assert "runs stay disturbed: no more of them are made again" in said
    assert len(query_rows("SELECT 1 FROM run")) == 2 + 2 + 2 + 1
    assert rater("sweep", *TINY, *words[:4], "--retries", "-1", "--", "true")[0] == 2


# -- what is refused ------------------------------------------------------------------------------


def test_points_that_cannot_run_are_all_told_up_front_or_left_out(rater: Rater) -> None:
    words = ("--axis", "layout=balanced,nowhere,elsewhere", "--rounds", "1", "--", "true")
    status, _, said = rater("sweep", *TINY, *words)
    assert status == 2
    assert "2 of 3 points cannot run here" in said
    assert "layout=nowhere: " in said
    assert "layout=elsewhere: " in said
    assert "--skip-refused" in said
    assert not Path(os.environ["RATER_DB"]).exists()
    status, _, said = rater("sweep", *TINY, "--skip-refused", *words)
    assert status == 0
    assert query_rows("SELECT label, left_out IS NULL FROM sweep_point") == [
        ("layout=balanced", 1),
        ("layout=nowhere", 0),
        ("layout=elsewhere", 0),
    ]
    assert len(query_rows("SELECT 1 FROM run")) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "at least one axis"),
        (("--axis", "copies=1,2", "--copies", "2"), "--copies is an axis"),
        (("--axis", "env:X=1", "--env", "X=2"), "env:X is an axis"),
        (("--axis", "env:X=1", "--tag", "block=2"), "--tag block"),
        (("--axis", "env:X=1", "--rounds", "0"), "--rounds 0"),
        (("--axis", "env:X=1", "--until", "much"), "--until"),
        (("--axis", "env:X=1", "--until", "joules:1%"), "--until energy:1%"),
        (("--axis", "env:X=1", "--until", "energy:1%"), "this machine counts no energy"),
        (("--axis", "env:X=1", "--until", "1%", "--rounds", "2"), "from the third on"),
        (("--axis", "iterations=one"), "expected a whole number"),
        (("--axis", "hugepages=on"), "expected one of off"),
        (("--resume", "1", "--copies", "2"), "remove --copies"),
    ],
)
def test_what_does_not_go_together_is_the_users_mistake(
    rater: Rater, words: tuple[str, ...], said: str
) -> None:
    status, _, told = rater("sweep", *words, *(() if "--resume" in words else ("--", "true")))
    assert status == 2
    assert said in told


def test_a_dry_run_shows_points_order_and_settings_and_changes_nothing(
    rater: Rater, machine: Path
) -> None:
    before = values(machine)
    words = ("--axis", "thp=never,always", "--axis", "copies=1,999", "--no-oversubscribe")
    status, out, _ = rater("sweep", *words, "--rounds", "2", "--seed", "3", "--dry-run")
    assert status == 0
    assert "thp is madvise now, and will be restored to that" in out
    assert out.count("REFUSED: thp=") == 2
    assert "order shuffled, seed 3" in out
    assert max(map(len, out.splitlines())) <= 80
    status, out, _ = rater("sweep", *words, "--dry-run", "--json")
    assert (json.loads(out)["dry_run"], len(json.loads(out)["refused"])) == (True, 2)
    Draft202012Validator(closed(schema_of("sweep-dry-run"))).validate(json.loads(out))
    assert values(machine) == before
    assert not Path(os.environ["RATER_DB"]).exists()


def test_a_dry_run_of_a_sweep_that_could_make_no_run_has_the_status_of_a_refusal(
    rater: Rater,
) -> None:
    axes = ("--axis", "copies=900000,900001")
    status, out, _ = rater("sweep", *axes, "--dry-run", "--", "true")
    assert (status, out.count("REFUSED: copies=")) == (2, 2)
    status, out, _ = rater("sweep", "--axis", "copies=1,900000", "--dry-run", "--", "true")
    assert (status, out.count("REFUSED: copies=")) == (0, 1)


# -- failures -------------------------------------------------------------------------------------


def test_a_failed_copy_is_told_and_the_sweep_goes_on(rater: Rater) -> None:
    words = ("--axis", "env:X=1,0", "--rounds", "1", "--order", "given")
    status, _, said = rater("sweep", *TINY, *words, "--", "sh", "-c", "exit $X")
    assert status == 1
    assert "env:X=1: no result, FAILED: 1 copy failed (run 1)" in said
    assert "sweep 1: copies failed in 1 of 2 runs" in said
    assert query_rows("SELECT run_id, status, done FROM sweep_progress") == [
        (1, "failed", 1),
        (2, "complete", 1),
    ]
    status, out, _ = rater("sweep", "--show", "1")
    assert "no result (a copy failed in every run): env:X=1" in out
    # What was measured is not made again, well or not.
    assert rater("sweep", "--resume", "1", "--quiet")[0] == 1
    assert len(query_rows("SELECT 1 FROM run")) == 2


def test_stop_on_failure_ends_the_sweep_at_the_first_one(rater: Rater) -> None:
    words = ("--axis", "env:X=1,0", "--rounds", "1", "--order", "given", "--stop-on-failure")
    status, _, said = rater("sweep", *TINY, *words, "--", "sh", "-c", "exit $X")
    assert status == 1
    assert "stopped: env:X=1 failed" in said
    assert len(query_rows("SELECT 1 FROM run")) == 1


def test_a_sweep_whose_first_block_fails_as_a_whole_ends_with_what_the_program_said(
    rater: Rater,
) -> None:
    command = ("--", "sh", "-c", "echo no such option >&2; exit 3")
    words = ("--axis", "env:X=0,1", "--rounds", "3", "--copies", "1")
    status, out, err = rater("sweep", *words, *command)
    assert status == 1
    told = out.splitlines()
    assert told[told.index("No point has a result: copies failed in every run.") + 1 :] == [
        "  runs 1, 2: failed (1 copy failed), nothing of it counts",
        "  runs 1, 2: sh: copy 0: exit status 3",
        "How the copies ended: `rater show 1`. Once that is mended, sweep anew: runs in",
        "    which copies failed are not made again.",
    ]
    assert err.count("rater: its standard error:\n  no such option\n") == 1
    assert "all copies of all runs of the first block failed\n" in err  # and no `--resume`
    assert len(query_rows("SELECT run_id FROM sweep_run")) == 2  # of six


def test_runs_that_cannot_be_made_one_after_the_other_end_the_sweep(
    rater: Rater, tmp_path: Path
) -> None:
    (tmp_path / "sometimes").write_text("#!/bin/sh\nrm $0\n")
    (tmp_path / "sometimes").chmod(0o755)
    words = ("--axis", "env:X=1", "--rounds", "9", "--", str(tmp_path / "sometimes"))
    status, _, said = rater("sweep", *TINY, *words)
    assert status == 1
    assert said.count("not made: ") == 3
    assert "3 runs one after the other could not be made; `rater sweep --resume 1`" in said
    assert len(query_rows("SELECT 1 FROM run")) == 1


# -- from a file ----------------------------------------------------------------------------------


def test_a_sweep_from_a_file_is_kept_with_its_text(rater: Rater, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        '[sweep]\ncommand = ["true"]\nrounds = 1\norder = "given"\n'
        '[axes]\ncopies = [1, 2]\n[run]\nproof = "off"\nenv = ["A=1"]\nshare = true\n'
    )
    assert rater("sweep", file, "--quiet")[0] == 0
    assert query_rows("SELECT file, file_text, length(file_sha256) FROM sweep") == [
        (str(file), file.read_text(), 64)
    ]
    assert query_rows("SELECT copies FROM run") == [(1,), (2,)]
    assert query_rows("SELECT DISTINCT name, value FROM environment") == [("A", "1")]
    status, _, said = rater("sweep", file, "--size", "test")
    assert (status, "leave out --size" in said) == (2, True)


def test_a_mistake_in_the_file_is_told_with_its_line(rater: Rater, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('[axes]\ncopies = [1]\n[run]\nsise = "test"\n')
    status, _, said = rater("sweep", file)
    assert (status, f"{file}:4: run.sise: unknown key; did you mean size?" in said) == (2, True)


def test_the_example_is_printed(rater: Rater, tmp_path: Path) -> None:
    status, out, _ = rater("sweep", "--example")
    assert status == 0
    (tmp_path / "example.toml").write_text(out.replace("thp = ", "# thp = "))
    status, out, _ = rater("sweep", tmp_path / "example.toml", "--dry-run")
    assert (status, "6 points, 6 rounds" in out) == (0, True)


# -- the time left --------------------------------------------------------------------------------


def test_the_time_left_is_the_median_of_the_same_point_else_of_all() -> None:
    points: dict[int, None] = dict.fromkeys(range(3))
    slots = [SweepSlot(2, 1, 0), SweepSlot(2, 2, 1), SweepSlot(2, 3, 2)]
    times = SweepEta(points)
    assert times.left_s(slots) is None
    assert times.left_s([]) == 0.0
    for point, elapsed_s in ((0, 1.0), (0, 9.0), (0, 2.0), (1, 4.0)):
        times.add(point, elapsed_s)
    assert times.left_s(slots) == 2.0 + 4.0 + 3.0


# -- what is the same, what is not there ----------------------------------------------------------


@pytest.mark.parametrize(
    ("axes", "same"),
    [
        (("copies=1,01",), "axis copies: 1 and 01 are the same here"),
        (("env:X=1,2", "copies=1,01"), "axis copies: 1 and 01 are the same here"),
        (("copies=1,2", "layout=balanced,packed"), None),
    ],
)
def test_values_that_come_to_the_same_run_are_refused(
    rater: Rater, axes: tuple[str, ...], same: str | None
) -> None:
    words = [f"--axis={axis}" for axis in axes]
    status, out, _ = rater("sweep", *words, "--dry-run", "--json", "--", "true")
    refused = [text for text in json.loads(out)["refused"] if "are the same" in text]
    assert (status, bool(refused)) == (2 if same else 0, same is not None)
    if same is not None:
        status, _, said = rater("sweep", *words, "--quiet", "--", "true")
        assert (status, same in said) == (2, True)


def test_copies_for_which_no_files_can_be_opened_are_refused_before_the_first_run(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {RLIMIT_NOFILE: (256, 256)}
    monkeypatch.setattr("resource.getrlimit", lambda it: limits.get(it, (RLIM_INFINITY,) * 2))
    counted = ("--counters", "software", "--iterations", "2")
    words = ("--axis", "copies=1,500", "--share", "--proof", "off", *counted, "--", "true")
    status, _, said = rater("sweep", *words)
    assert (status, "500 copies with " in said, "hard limit here is 256" in said) == (2, True, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "own.toml: no such file"),
        ("[axes\n", "own.toml:1: not valid TOML at column 6"),
        ("a = 1\n", "own.toml: it has no table [axes]"),
    ],
)
def test_a_file_that_is_none_of_a_sweep_is_told(
    rater: Rater, tmp_path: Path, text: str | None, said: str
) -> None:
    if text is not None:
        (tmp_path / "own.toml").write_text(text)
    status, _, told = rater("sweep", tmp_path / "own.toml")
    assert (status, said in told) == (2, True)


def test_points_of_long_names_are_told_apart_in_eighty_columns(rater: Rater) -> None:
    axes = ("--axis", "env:A_VARIABLE_OF_A_LONG_NAME=1,2", "--axis", "env:ANOTHER_VARIABLE=1,2")
    status, out, _ = rater("sweep", *axes, "--dry-run", "--copies", "1", "--", "true")
    assert status == 0
    assert [row.split() for row in out.splitlines() if row.startswith("  4")] == [
        ["4", "2", "2", "1"]
    ]
    assert max(map(len, out.splitlines())) <= 80


# Four cores with two threads each, on one lgroup.
PUS = tuple(MachinePU(cpu=cpu, core=cpu % 4, llc=0, node=0, package=0) for cpu in range(8))
# Seconds of a copy of 10 s by copies: linear, and one that stops gaining at two.
FINE, STOPS = "fine", "stops"
RATES: dict[str, dict[int, float]] = {
    FINE: {1: 1.0, 2: 2.0, 3: 2.98, 4: 3.96, 8: 5.0},
    STOPS: {1: 1.0, 2: 1.6, 3: 1.6, 4: 1.6, 8: 1.2},
}


def run(copies: int, number: int, names: Sequence[str] = (FINE, STOPS)) -> StoredRun:
    rows = [
        copy_row(
            copy,
            10 * copies / RATES[name][copies],
            phase=phase,
            benchmark=name,
            cpu=copy % 8,
            core=copy % 4,
            node=0,
        )
        for phase, name in enumerate(names)
        for copy in range(copies)
    ]
    made = stored(
        rows, copies=copies, uuid=f"u-{number}", run=number, categories={FINE: "int", STOPS: "int"}
    )
    return replace(made, pus=PUS, warnings=(), notes=())


def curves(*runs: StoredRun, thp: Sequence[str] = ()) -> tuple[Curve, ...]:
    points = [
        Point("", (("thp", thp[number]),) if thp else (), (PointRun(run, None),))
        for number, run in enumerate(runs)
    ]
    return scaling_curves(points).curves


@pytest.fixture
def rater_with_runs(rater: Rater, database: Path) -> Rater:
    """Run `rater ...` on a database with runs of 1, 2, 4 and 8 copies."""
    with open_store(database) as store:
        for number, copies in enumerate((1, 2, 4, 8), 1):
            store.add(run(copies, number))
    return rater


def test_people_are_told_at_once_what_limits(rater_with_runs: Rater) -> None:
    status, out, err = rater_with_runs("scale", 1, 2, 3, 4)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "mini (test, base) on h, homogeneous: 1, 2, 4 and 8 copies, runs 1-4"
    assert lines[1] == "4 cores, 8 CPUs (hardware threads); 8 copies share cores."
    text = re.sub(r"\n +", " ", out)
    assert "Both benchmarks: 4 copies do 2.52 times the work of 1 copy, 0.629 of linear." in text
    assert "SMT: 2 copies a core against one on all 4 cores (run 3 and run 4)" in text
    assert "Assumed run-to-run noise: 5 %" in text
    assert max(map(len, lines)) <= 80


def test_the_tables_have_suites_first_and_say_what_copies_share(rater_with_runs: Rater) -> None:
    out = rater_with_runs("scale", 1, 2, 3, 4)[1]
    assert re.search(r"^ +8 +2 a core +2.45 +2.45 +0.306 +-0.017$", out, re.MULTILINE)
    assert re.search(r"^all \(2\) +1.00 +0.894 +0.629 +0.306 +\S+ +\S+ +\S+$", out, re.MULTILINE)
    assert re.search(r"^stops +1.00 +0.800 +0.400 +0.150 +2 +2 +8$", out, re.MULTILINE)
    assert re.search(r"^fine +1.00 +1.000 +0.990 +0.625 +4 +- +-$", out, re.MULTILINE)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = io.StringIO()
    printer = Printer(TextScreen(text, width=width))
    scaling = scaling_curves(
        [
            Point("", (), (PointRun(run(index, number), None),))
            for number, index in enumerate((1, 2, 4, 8), 1)
        ],
    )
    print_parts(scaling_parts(scaling, (), ()), printer)
    assert max(map(len, text.getvalue().splitlines())) <= width


def test_the_law_says_what_it_was_fitted_to_and_where_no_peak_is(
    rater_with_runs: Rater,
) -> None:
    text = io.StringIO()
    points = [
        Point("", (), (PointRun(run(index, number), None),))
        for number, index in enumerate((1, 2, 3, 4), 1)
    ]
    found = scaling_curves(points, law_on=LawScale.RATE)
    print_parts(scaling_parts(found, (), ()), Printer(TextScreen(text, width=140)))
    said = text.getvalue()
    assert "Universal Scalability Law over 1, 2, 3, 4 copies, fitted to X." in said
    assert re.search(
        r"^all +1\.02 +0\.1251 +<0\.7 +0\.021216 +<0\.2 .* none up to 4$", said, re.MULTILINE
    )
    assert rater_with_runs("scale", 1, 2, 3, 4, "--law", "rate")[0] == 0
    with pytest.raises(SystemExit):
        rater_with_runs("scale", 1, 2, "--law", "square")


def test_json_has_everything(rater_with_runs: Rater) -> None:
    status, out, _ = rater_with_runs("scale", 1, 2, 3, 4, "--json")
    document: dict[str, Any] = json.loads(out)
    assert status == 0
    Draft202012Validator(closed(schema_of("scale"))).validate(document)
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
    both = "Both benchmarks: 4 copies do 2.52 times the work of 1 copy"
    assert curve["limits"][0].startswith(both)


def test_runs_with_the_same_number_of_copies_are_no_curve(rater_with_runs: Rater) -> None:
    status, out, err = rater_with_runs("scale", 2)
    assert (status, out) == (2, "")
    assert "run 2: nothing else like it has another number of copies than 2" in err
    assert "--copies N" in err


def test_a_run_that_is_named_twice_counts_once(rater_with_runs: Rater) -> None:
    once = json.loads(rater_with_runs("scale", 1, 2, 3, "--json")[1])
    assert json.loads(rater_with_runs("scale", "1,2", "2,3", 1, "--json")[1]) == once
    status, _, err = rater_with_runs("scale", 1, 1)
    assert status == 2
    assert err.splitlines()[1] == (
        "  run 1: nothing else like it has another number of copies than 1"
    )


def test_why_there_is_no_curve_is_told_a_line_for_each_reason(
    rater_with_runs: Rater, database: Path
) -> None:
    with open_store(database) as store:
        for number, size in ((5, "ref"), (6, "train")):
            bad = run(2, number)
            rows = [replace(row, status=CopyStatus.FAILED, exit_code=1) for row in bad.copies]
            store.add(replace(bad, copies=tuple(rows), head=replace(bad.head, size=size)))
    status, _, err = rater_with_runs("scale", 1, 5, 6)
    assert status == 2
    assert err.splitlines()[1:3] == [
        "  run 1 (size=test): nothing else like it has another number of copies than 1",
        "  runs 5-6: no benchmark has a result",
    ]


def test_rounds_are_the_same_in_all_words(rater_with_runs: Rater, database: Path) -> None:
    with open_store(database) as store:
        for place in range(8):
            made, _ = store.add(run(1 + place % 2, 10 + place))
            tags = {"sweep": 3, "block": place // 2, "copies": 1 + place % 2}
            with store.writing("tagging") as connection:
                connection.executemany(
                    "INSERT INTO tag (run_id, name, value) VALUES (?, ?, ?)",
                    [(made, name, str(value)) for name, value in tags.items()],
                )
    document = json.loads(rater_with_runs("scale", "tag:copies=1", "tag:copies=2", "--json")[1])
    assert document["curves"][0]["benchmarks"][0]["noise"]["within_rounds"]


@needs_vega
def test_a_picture_has_a_panel_for_each_curve_with_its_knee(
    rater_with_runs: Rater, tmp_path: Path
) -> None:
    status, out, _ = rater_with_runs("scale", 1, 2, 3, 4, "-o", tmp_path / "a.svg")
    assert status == 0
    assert "a.svg: 3 panels" in out
    svg = (tmp_path / "a.svg").read_text()
    assert [len(marks(svg, name)) for name in ("dots", "linear", "knees")] == [3, 3, 3]
    assert [len(of) for of in marks(svg, "knees")] == [1, 1, 1]
    assert [len(of) for of in marks(svg, "shared")] == [1, 1, 1], "8 copies share cores"
    assert {"suite, ratio", f"{FINE}, ratio", "knee 2", "copies", "1.20 x"} <= set(texts(svg))


def test_a_file_of_no_known_format_is_refused_before_anything_is_read(
    rater_with_runs: Rater,
) -> None:
    status, _, err = rater_with_runs("scale", 1, 2, "-o", "a.gif")
    assert status == 2
    assert ".svg, .png or .pdf" in err


@needs_vega
def test_curves_of_several_conditions_share_panels_and_have_their_names() -> None:
    runs = [
        replace(run(index, index), head=replace(run(index, index).head, run=number))
        for number, index in enumerate((1, 2) * 2)
    ]
    found = curves(*runs, thp=("always", "always", "never", "never"))
    words = texts(curves_svg(found))
    assert {"thp=always  2.00 x", "thp=never  2.00 x"} & set(words)


@needs_vega
def test_names_of_other_people_do_no_harm() -> None:
    hostile = "$x^2 <&> \x1b[31m"
    RATES[hostile] = RATES[FINE]
    found = curves(*(run(number, number, (hostile,)) for number in (1, 2)))
    del RATES[hostile]
    assert "$x^2 <&> ?[31m, ratio" in texts(curves_svg(found))
