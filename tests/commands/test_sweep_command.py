"""`rater sweep` on real processes: every point once a block, what is stored, what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_NOFILE
from typing import Any

import pytest

from rater.plan.sweep import SweepSlot
from rater.workflow.results import divots
from rater.workflow.sweep.request import ResolvedPoint
from rater.workflow.sweep.runner import SweepEta
from tests.support.calls import Rater, rows
from tests.support.settings_tree import values

TINY = ("--copies", "1", "--proof", "off", "--share", "--quiet")
ENV_AXES = ("--axis", "env:A=,x", "--axis", "env:B=1,2", "--rounds", "2")


def tags_of(run: int) -> dict[str, str]:
    return dict(rows(f"SELECT name, value FROM tag WHERE run_id = {run}"))


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
    progress = rows(
        "SELECT block, point, label, run_id, done FROM sweep_progress ORDER BY block, position"
    )
    assert sorted((block, point) for block, point, *_ in progress) == [
        (block, point) for block in (1, 2) for point in range(4)
    ]
    assert all(done for *_, done in progress)
    assert rows("SELECT status, reason FROM sweep") == [("complete", None)]
    words = {0: "unset 1", 1: "unset 2", 2: "x 1", 3: "x 2"}
    for block, point, label, run, _ in progress:
        tags = tags_of(run)
        assert (tags["sweep"], tags["block"]) == ("1", str(block))
        assert label == f"env:A={tags['env:A'] or '(none)'} env:B={tags['env:B']}"
        ((uuid,),) = rows(f"SELECT uuid FROM run WHERE id = {run}")
        assert (seen / uuid).read_text().strip() == words[point]
    assert os.environ["A"] == "of the shell"
    # Runs are made in the order of the plan, and a rerun is no part of the sweep.
    assert [run for *_, run, _ in progress] == sorted(run for *_, run, _ in progress)
    ((request,),) = rows("SELECT DISTINCT json_extract(request, '$.tags') FROM run")
    assert request == "[]"

    status, out, _ = rater("sweep", "--show", "last", "--json")
    document = json.loads(out)
    assert (status, document["runs_done"], document["runs_planned"]) == (0, 8, 8)
    assert [len(point["results"]) for point in document["points"]] == [2, 2, 2, 2]
    # The table and the comparison below it tell one number.
    _, out, _ = rater("sweep", "--show", "last")
    shown = [line.split() for line in out.splitlines() if line.split()[2:3] == ["2/2"]]
    (row,) = document["comparison"]["benchmarks"]
    improved = [0.0, *(cell["improvement"] * 100 for cell in row["points"])]
    assert [float(line[-1]) for line in shown] == pytest.approx(improved, abs=0.051)
    status, out, _ = rater("sweep", "--list")
    assert "8/8 complete" in " ".join(out.split())
    status, out, _ = rater("sweep", "--resume", "1", "--quiet")
    assert (status, len(rows("SELECT 1 FROM run"))) == (0, 8)


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
    words = ("--axis", "env:A=1,2", "--rounds", "1", "--", "true")
    said = rater("sweep", *loud, *words)[2]
    assert said.count(" copies/hour, disturbed (") == 2
    listed = rater("list")[1].splitlines()[1:3]
    assert ["disturbed" in line.split() for line in listed] == [True, True]


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
    assert rows("SELECT label, left_out IS NULL FROM sweep_point") == [
        ("layout=balanced", 1),
        ("layout=nowhere", 0),
        ("layout=elsewhere", 0),
    ]
    assert len(rows("SELECT 1 FROM run")) == 1


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
        (("--resume", "1", "--copies", "2"), "leave out --copies"),
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
    assert "thp is madvise now, and will be put back to that" in out
    assert out.count("REFUSED: thp=") == 2
    assert "order shuffled, seed 3" in out
    assert max(map(len, out.splitlines())) <= 80
    status, out, _ = rater("sweep", *words, "--dry-run", "--json")
    assert (json.loads(out)["dry_run"], len(json.loads(out)["refused"])) == (True, 2)
    assert values(machine) == before
    assert not Path(os.environ["RATER_DB"]).exists()


# -- failures -------------------------------------------------------------------------------------


def test_a_failed_copy_is_told_and_the_sweep_goes_on(rater: Rater) -> None:
    words = ("--axis", "env:X=1,0", "--rounds", "1", "--order", "given")
    status, _, said = rater("sweep", *TINY, *words, "--", "sh", "-c", "exit $X")
    assert status == 1
    assert "env:X=1: no result, FAILED: 1 copy failed (run 1)" in said
    assert "sweep 1: copies failed in 1 of 2 runs" in said
    assert rows("SELECT run_id, status, done FROM sweep_progress") == [
        (1, "failed", 1),
        (2, "complete", 1),
    ]
    status, out, _ = rater("sweep", "--show", "1")
    assert "no result (a copy failed in every run): env:X=1" in out
    # What was measured is not made again, well or not.
    assert rater("sweep", "--resume", "1", "--quiet")[0] == 1
    assert len(rows("SELECT 1 FROM run")) == 2


def test_stop_on_failure_ends_the_sweep_at_the_first_one(rater: Rater) -> None:
    words = ("--axis", "env:X=1,0", "--rounds", "1", "--order", "given", "--stop-on-failure")
    status, _, said = rater("sweep", *TINY, *words, "--", "sh", "-c", "exit $X")
    assert status == 1
    assert "stopped: env:X=1 failed" in said
    assert len(rows("SELECT 1 FROM run")) == 1


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
        "How the copies ended: rater show 1. Once that is mended, sweep anew: runs in",
        "    which copies failed are not made again.",
    ]
    assert err.count("rater: end of its standard error:\n  no such option\n") == 1
    assert "all copies of all runs of the first block failed\n" in err  # and no `--resume`
    assert len(rows("SELECT run_id FROM sweep_run")) == 2  # of six


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
    assert len(rows("SELECT 1 FROM run")) == 1


# -- from a file ----------------------------------------------------------------------------------


def test_a_sweep_from_a_file_is_kept_with_its_text(rater: Rater, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        '[sweep]\ncommand = ["true"]\nrounds = 1\norder = "given"\n'
        '[axes]\ncopies = [1, 2]\n[run]\nproof = "off"\nenv = ["A=1"]\nshare = true\n'
    )
    assert rater("sweep", file, "--quiet")[0] == 0
    assert rows("SELECT file, file_text, length(file_sha256) FROM sweep") == [
        (str(file), file.read_text(), 64)
    ]
    assert rows("SELECT copies FROM run") == [(1,), (2,)]
    assert rows("SELECT DISTINCT name, value FROM environment") == [("A", "1")]
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
    points: dict[int, Any] = {
        number: ResolvedPoint(number, (), (), {}, None, None, ()) for number in range(3)
    }
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
    assert (status, bool(refused)) == (0, same is not None)
    if same is not None:
        status, _, said = rater("sweep", *words, "--quiet", "--", "true")
        assert (status, same in said) == (2, True)


def test_copies_for_which_no_files_can_be_opened_are_refused_before_the_first_run(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {RLIMIT_NOFILE: (256, 256)}
    monkeypatch.setattr("resource.getrlimit", lambda it: limits.get(it, (RLIM_INFINITY,) * 2))
    words = ("--axis", "copies=1,500", "--share", "--proof", "off", "--", "true")
    status, _, said = rater("sweep", *words)
    assert (status, "500 copies need" in said, "hard limit here is 256" in said) == (2, True, True)


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
    assert "\nD  env:A_VARIABLE_OF_A_LONG_NAME=2 env:ANOTHER_VARIABLE=2\n" in out
    assert [row.split()[:2] for row in out.splitlines() if row.startswith("  4")] == [["4", "D"]]
    assert max(map(len, out.splitlines())) <= 80
