"""`rater compare` on the command line, and two builds of a program beside each other."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.compare.differences import DisturbedRun
from rater.analysis.results.cpu_use import DisturbanceKind, MachineDisturbance
from rater.show.compare.differences import trouble_parts
from rater.show.screen.document import print_parts
from tests.support.calls import Rater, query_rows
from tests.support.drawings import needs_vega
from tests.support.made_runs import make
from tests.support.made_sweeps import make_sweep
from tests.support.printed import printed_by

SLOW = (10.0, 10.05, 9.95, 10.02, 9.98)
FAST = (9.0, 9.05, 8.94, 9.02, 8.98)


def both(times: Sequence[float]) -> list[tuple[float, float]]:
    return [(time_s - 0.01, time_s) for time_s in times]


def test_json_has_everything(database: Path, rater: Rater) -> None:
    make(database, both(SLOW), {"x": "0"}, {"vm.swappiness": "60"})
    make(database, both(FAST), {"x": "1"}, {"vm.swappiness": "10"})
    status, out, _ = rater("compare", "tag:x=0", "tag:x=1", "--json", "--within", "2%")
    document: dict[str, Any] = json.loads(out)
    assert status == 0
    assert document["margin"] == pytest.approx(0.02)
    assert [point["label"] for point in document["points"]] == ["x=0", "x=1"]
    assert document["points"][0]["runs"][0]["run"] == 1
    assert document["differences"] == [
        {
            "what": "setting vm.swappiness",
            "weighs": True,
            "differs_within": [],
            "values": [
                {"value": "60", "runs": [1, 2, 3, 4, 5]},
                {"value": "10", "runs": [6, 7, 8, 9, 10]},
            ],
        }
    ]
    (row,) = document["benchmarks"]
    (cell,) = row["points"]
    assert (row["benchmark"], row["unit"], cell["label"]) == ("gups", "ratio", "x=1")
    assert cell["speedup"]["verdict"] == "better"
    assert cell["speedup"]["words"] == "better (5 rounds)"
    assert cell["speedup"]["doubts"] == ["5 rounds"]
    assert cell["speedup"]["basis"] == "blocks"
    assert cell["speedup"]["interval"][0] < cell["speedup"]["ratio"]
    assert cell["improvement"] == pytest.approx(cell["speedup"]["ratio"] - 1)
    assert cell["reduction"] == pytest.approx(1 - 1 / cell["speedup"]["ratio"])
    assert cell["holds"] is True
    assert document["suite"] == {}


def test_a_comparison_is_markdown_and_csv_too(database: Path, rater: Rater) -> None:
    make(database, both(SLOW), {"x": "0"})
    make(database, both(FAST), {"x": "1"})
    words = ("compare", "tag:x=0", "tag:x=1", "--format")
    lines = rater(*words, "md")[1].splitlines()
    assert "**Compared:**" in lines
    assert "| benchmark (ratio) | 0 geomean | 1 geomean | speedup | 95 % interval |" in (
        next(line for line in lines if line.startswith("| benchmark"))
    )
    (row,) = csv.DictReader(io.StringIO(rater(*words, "csv")[1]))
    assert (row["benchmark (ratio)"], row["verdict"]) == ("gups", "better (5 rounds)")
    assert float(row["1 geomean"]) / float(row["0 geomean"]) == pytest.approx(1.111, abs=0.001)


def break_copy(database: Path, run: int) -> None:
    """Let one copy of a run have crashed."""
    with sqlite3.connect(database) as connection:
        connection.execute(
            "UPDATE copy SET status = 'failed', exit_code = 3 WHERE run_id = ? AND copy = 0", (run,)
        )
    connection.close()


def test_a_candidate_that_crashes_fails_and_what_cannot_be_judged_is_no_success(
    database: Path, rater: Rater
) -> None:
    make(database, both(SLOW[:2]))
    make(database, both(SLOW[:2]))
    gate = ("--fail-on", "worse")
    # Of two runs a side the interval is wide, and nothing is excluded.
    status, _, err = rater("compare", "1,2", "3,4", *gate)
    assert (status, "% worse is possible, 1.0 % was asked" in err) == (3, True)
    # One run each: how runs differ is not known.
    status, out, err = rater("compare", "1", "3", *gate)
    assert (status, "inconclusive: one run each" in out) == (3, True)
    assert "cannot be judged: gups (run 3): one run each; make several" in err
    for run in (3, 4):
        break_copy(database, run)
    status, _, err = rater("compare", "1,2", "3,4", *gate)
    assert status == 1
    assert "no valid result, where the baseline has one: gups (runs 3, 4)" in err
    status, _, err = rater("compare", "3,4", "1,2", *gate)
    assert status == 3
    assert "the baseline has no valid result" in err
    _, out, _ = rater("compare", "1,2", "3,4", "--json")
    assert json.loads(out)["lost"] == [{"benchmark": "gups", "point": "runs 3, 4"}]


def test_ups_and_downs_are_counted_beside_the_suite(database: Path, rater: Rater) -> None:
    names = ("gups", "lu", "vm", "words")
    make(database, both(SLOW), names=names)
    make(database, both(FAST), names=names)
    _, out, _ = rater("compare", "1,2,3,4,5", "6,7,8,9,10")
    assert "runs 6, 7, 8, 9, 10: of 4 benchmarks: 4 better (4 hold up)" in out


def test_disturbances_are_a_line_for_each_kind_with_the_worst_runs_first() -> None:
    def taken(run: int, share: float) -> DisturbedRun:
        disturbance = MachineDisturbance(
            matter=DisturbanceKind.FOREIGN,
            phase=0,
            benchmark="lu",
            iteration=1,
            cpu=1,
            share=share,
            times=None,
            cpus=(1,),
            phases=1,
        )
        return DisturbedRun(
            run=run,
            notable=(disturbance,),
            not_met=(),
            warnings=("busy before the start: rm (pid 7)",),
            shared=run == 3,
        )

    troubles = [
        taken(3, 0.03),
        replace(taken(4, 0.41), too_disturbed=("others cost 44 % of the score",)),
        DisturbedRun(run=5, notable=(), not_met=(0, 1, 2), warnings=(), shared=False),
    ]
    assert printed_by(partial(print_parts, trouble_parts(troubles)), 90).splitlines() == [
        "Disturbed runs (`rater show RUN` has the rest):",
        "  too disturbed to judge:                run 4",
        "  other processes:                       41.0 % of CPU 1 (run 4), 3.0 % of CPU 1 (run 3)",
        "  copies not placed as planned:          run 5 (copies 0-2)",
        "  made with --share, beside other runs:  run 3",
        "  busy before the start:                 runs 3, 4",
    ]
    assert not printed_by(partial(print_parts, trouble_parts([])))


def test_a_real_sweep_of_two_values(database: Path, rater: Rater) -> None:
    for block in (1, 2):
        for value in ("0", "1"):
            words = ("--env", f"X={value}", "--tag", f"env:X={value}", "--tag", f"block={block}")
            assert rater("run", "--copies", "1", "--quiet", *words, "--", "true")[0] == 0
    status, out, _ = rater("compare", "tag:env:X=0", "tag:env:X=1")
    assert status == 0
    assert "The runs differ" not in out  # the axis is no difference
    assert "paired within 2 blocks" in out


TINY = ("--copies", "1", "--proof", "off", "--share", "--quiet")


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("old", "new"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/ran\n')
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_an_axis_of_commands_runs_each_and_compares_them_as_one_benchmark(
    rater: Rater, builds: Path
) -> None:
    axis = ("--axis", "command=./old -x 'a b',./new")
    assert rater("sweep", *TINY, *axis, "--rounds", "2") == (0, "", "")
    assert sorted((builds / "ran").read_text().splitlines()) == ["new "] * 2 + ["old -x a b"] * 2
    document = json.loads(rater("compare", "sweep:1", "--json")[1])
    assert [benchmark["benchmark"] for benchmark in document["benchmarks"]] == ["command"]
    assert [point["label"] for point in document["benchmarks"][0]["points"]] == ["command=./new"]
    assert document["differences"] == []  # which command it was is the axis
    shown = rater("sweep", "--show", "1")[1].splitlines()
    assert shown[0] == "sweep 1 of 2 commands: 2 points, 2 rounds"
    assert shown[1] == "  command (option): ./old -x 'a b', ./new"


def test_flags_of_one_program_keep_its_name_and_a_file_can_have_the_axis(
    rater: Rater, builds: Path
) -> None:
    (builds / "s.toml").write_text(
        '[sweep]\nrounds = 1\n[axes]\ncommand = ["./old -a", "./old -b"]\n'
        '[run]\ncopies = "1"\nproof = "off"\nshare = true\n'
    )
    assert rater("sweep", "s.toml", "--quiet")[0] == 0
    assert query_rows("SELECT DISTINCT name FROM benchmark") == [("old",)]
    assert sorted((builds / "ran").read_text().splitlines()) == ["old -a", "old -b"]


def test_runs_of_one_name_are_compared_and_a_rerun_keeps_it(rater: Rater, builds: Path) -> None:
    for build in ("old", "new"):
        assert rater("run", *TINY, "--name", "mine", "--", f"./{build}")[0] == 0
    assert rater("rerun", "2", "--quiet", "--share")[0] == 0
    assert query_rows("SELECT DISTINCT name FROM benchmark") == [("mine",)]
    status, out, _ = rater("compare", "1", "2")
    assert status == 0
    assert "  command of mine:" in out  # told above the table: it is no axis
    assert [line.split()[0] for line in out.splitlines() if line.startswith("mine")] == ["mine"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "mini", "--name", "x"], "--name x is for a command behind `--`: leave it out"),
        (["run", "--name", "a/b", "--", "./old"], "--name 'a/b': expected 1 to 60 printable"),
        (["run", "--name", " ", "--", "./old"], "--name ' ': expected 1 to 60 printable"),
        (
            ["sweep", "--axis", "command=./old,./new", "--", "./old"],
            "command is an axis of this sweep: leave what follows `--` out",
        ),
        (["sweep", "--axis", 'command=./old ",./new'], "axis command './old \"': No closing"),
        (["sweep", "--axis", "command=./old,"], "command=(none): nothing behind `--`"),
        (["sweep", "--axis", "command=./old,./gone"], "1 of 2 points cannot run here"),
        (["sweep", "mini", "--axis", "command=./old,./new"], "both a suite (mini) and a command"),
    ],
)
def test_what_is_no_command_or_name_is_refused_before_anything_runs(
    rater: Rater, builds: Path, words: list[str], said: str
) -> None:
    status, _, err = rater(*words)
    assert status == 2
    assert said in err
    assert not (builds / "ran").exists()


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
    listed = {load["run"]: load["score"] for load in json.loads(rater("list", "--json")[1])}
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
        by_hand = [len(of_run) * 10 / time_s for of_run, time_s in zip(rows, brackets, strict=True)]
        assert by_hand == pytest.approx(ratios)


@needs_vega
def test_people_read_the_same_rate_under_the_same_name(
    sweep: str, rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    first, second = (f"{rate:.3f}" for rate in RATES)
    for command in (("sweep", "--show", "1"), ("compare", sweep), ("scale", sweep)):
        out = rater(*command)[1]
        assert "geomean" in out, command
        assert first in out, command
        assert second in out, command
    page = rater("report", sweep, "-o", "-")[1]
    text = re.sub(r"<[^>]+>", " ", page)
    assert "geomean" in text
    assert first in text
    assert second in text


def test_the_page_of_a_history_goes_over_no_file_of_others(rater: Rater, tmp_path: Path) -> None:
    (tmp_path / "notes.html").write_text("mine")
    status, out, err = rater("history", "lu", "-o", tmp_path / "notes.html")
    assert (status, out) == (2, "")
    assert "already exists and was not written by rater; name another file, or --force" in err
    assert (tmp_path / "notes.html").read_text() == "mine"
