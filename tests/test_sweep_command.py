"""`rater sweep` on real processes: every point once a block, what is stored, what is refused."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from rater.analysis.points import Point
from rater.commands.sweep_ready import PointReady
from rater.commands.sweep_run import time_for
from rater.errors import InputError
from rater.plan.sweep import Slot
from rater.record import RunStatus
from rater.store.store import open_store
from rater.store.sweeps import begin_run, find_sweep, load_sweep
from tests.calls import Rater, rows
from tests.example_events import run_of
from tests.settings_tree import THP, make_tree, values
from tests.test_store_runs import HOST, PUS

TINY = ("--copies", "1", "--proof", "off", "--share", "--quiet")
ENV_AXES = ("--axis", "env:A=,x", "--axis", "env:B=1,2", "--rounds", "2")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who else works here is looked at twice before every run: no matter how soon, here."""
    monkeypatch.setattr("rater.run.quiet._LEAST_INTERVAL_S", 0.001)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of settings that is not this machine's."""
    root = make_tree(tmp_path / "machine")
    monkeypatch.setenv("RATER_SYSROOT", str(root))
    monkeypatch.setenv("RATER_JOURNAL", str(tmp_path / "settings.json"))
    return root


def execute(sql: str) -> None:
    with closing(sqlite3.connect(os.environ["RATER_DB"], autocommit=True)) as db:
        db.execute(sql)


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
    assert document["comparison"] is not None
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
    first, second = [line for line in said.splitlines() if "block 1 of 1" in line]
    assert "point 1 of 2: env:A=1: " in first
    assert first.endswith("left")
    assert "copies/hour" in second
    assert "left" not in second
    assert "env:A=2" in out
    assert max(map(len, out.splitlines())) <= 80


# -- settings of the machine ----------------------------------------------------------------------


def test_settings_are_set_for_each_point_and_put_back(
    rater: Rater, machine: Path, tmp_path: Path
) -> None:
    before = values(machine)
    copy = f"read it < {machine}/{THP}/enabled; echo $it >> {tmp_path}/seen"
    axes = ("--axis", "thp=never,always", "--rounds", "2", "--order", "abba")
    status, _, said = rater("sweep", *TINY, *axes, "--", "sh", "-c", copy)
    assert (status, said) == (0, "")
    assert (tmp_path / "seen").read_text().split() == ["never", "always", "always", "never"]
    assert values(machine) == before
    assert not (tmp_path / "settings.json").exists()


def test_settings_are_put_back_when_a_signal_ends_the_sweep(rater: Rater, machine: Path) -> None:
    before = values(machine)
    stop = f"kill -TERM {os.getpid()}; sleep 60"
    status, _, said = rater("sweep", *TINY, "--axis", "thp=never", "--", "sh", "-c", stop)
    assert status == 128 + signal.SIGTERM
    assert "sweep 1: stopped by SIGTERM; `rater sweep --resume 1` goes on" in said
    assert values(machine) == before
    assert rows("SELECT status FROM sweep") == [("interrupted",)]


def test_a_signal_between_two_runs_ends_the_sweep_as_well(
    rater: Rater, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = values(machine)

    def hang_up(*_: object) -> None:
        assert values(machine) != before
        signal.raise_signal(signal.SIGHUP)

    monkeypatch.setattr("rater.commands.sweep_run.Runner._tell", hang_up)
    words = ("--axis", "thp=never", "--rounds", "2", "--", "true")
    status, _, said = rater("sweep", *TINY, *words)
    assert (status, "stopped by SIGHUP" in said) == (128 + signal.SIGHUP, True)
    assert values(machine) == before
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_a_rest_between_runs_can_be_interrupted(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endless(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)
        await trio.sleep_forever()

    monkeypatch.setattr("rater.run.idle.rest", endless)
    words = ("--axis", "env:X=1", "--rounds", "2", "--cooldown", "0.001", "--", "true")
    status, _, said = rater("sweep", *TINY, *words)
    assert (status, "stopped by SIGINT" in said) == (130, True)
    assert len(rows("SELECT 1 FROM run")) == 1


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        ("thp=never,sometimes", "thp=sometimes: expected one of"),
        ("tpp=never", "did you mean thp"),
        ("swappiness=much", "expected a whole number"),
        ("boost=1,on", "axis boost: 1 and on are the same"),
    ],
)
def test_settings_that_cannot_be_had_are_refused_before_the_first_run(
    rater: Rater, machine: Path, axis: str, said: str
) -> None:
    before = values(machine)
    status, _, told = rater("sweep", *TINY, "--axis", axis, "--", "true")
    assert status == 2
    assert said in told
    assert values(machine) == before
    assert rows("SELECT 1 FROM sqlite_master WHERE name = 'sweep'") == [] or (
        rows("SELECT 1 FROM sweep") == []
    )


def test_what_a_point_needs_of_a_setting_may_be_another_axis(rater: Rater, machine: Path) -> None:
    words = ("--axis", "hugepages=off,thp", "--axis", "thp=never,always", "--copies", "1")
    status, out, _ = rater("sweep", *words, "--dry-run", "--json", "--", "true")
    points = json.loads(out)["points"]
    assert status == 0
    assert [bool(point["left_out"]) for point in points] == [False, False, True, False]


def test_a_setting_that_takes_cpus_away_has_each_run_look_at_them_anew(
    rater: Rater, machine: Path
) -> None:
    before = values(machine)
    words = ("--axis", "cpu.smt.control=on,off", "--rounds", "1", "--", "true")
    assert rater("sweep", *TINY, *words) == (0, "", "")
    assert len(rows("SELECT 1 FROM sweep_progress WHERE done")) == 2
    assert values(machine) == before


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


# -- going on -------------------------------------------------------------------------------------


def interrupted(rater: Rater, folder: Path) -> None:
    """A sweep of two points and two rounds whose third run was interrupted."""
    script = f"echo >> {folder}/n; [ $(wc -l < {folder}/n) != 3 ] || kill -INT {os.getpid()}"
    words = ("--axis", "env:X=1,2", "--rounds", "2", "--order", "given")
    status, _, said = rater("sweep", *TINY, *words, "--", "sh", "-c", script + "; sleep 0.2")
    assert status == 130, said


def test_what_is_missing_is_made_and_what_was_interrupted_is_kept_and_made_again(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    interrupted(rater, tmp_path)
    assert rows("SELECT run_id, done FROM sweep_progress") == [(1, 1), (2, 1), (3, 0), (None, 0)]
    monkeypatch.chdir("/")  # it goes on where it was made
    _, out, _ = rater("sweep", "--resume", "last", "--dry-run")
    assert "run 3 is kept, made again" in out
    assert rater("sweep", "--resume", "last", "--quiet") == (0, "", "")
    assert rows("SELECT run_id, done FROM sweep_progress") == [(1, 1), (2, 1), (4, 1), (5, 1)]
    assert tags_of(3)["replaced-by"] == "4"
    assert [status for (status,) in rows("SELECT status FROM run")] == [
        *("complete", "complete", "interrupted", "complete", "complete")
    ]
    assert rows("SELECT status, resumed FROM sweep") == [("complete", 1)]


def test_more_rounds_can_be_added(rater: Rater) -> None:
    words = ("--axis", "env:X=1,2", "--rounds", "1", "--seed", "5")
    assert rater("sweep", *TINY, *words, "--", "true")[0] == 0
    assert rater("sweep", "--resume", "1", "--rounds", "2", "--quiet")[0] == 0
    assert rows("SELECT block, done FROM sweep_progress") == [(1, 1), (1, 1), (2, 1), (2, 1)]
    status, _, said = rater("sweep", "--resume", "1", "--rounds", "1")
    assert (status, "has 2; more can be added" in said) == (2, True)


def test_a_changed_environment_is_refused_unless_forced(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(rater, tmp_path)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    status, _, said = rater("sweep", "--resume", "1", "--quiet")
    assert status == 2
    assert "sweep 1 cannot go on" in said
    assert "environment variable MALLOC_ARENA_MAX: was not there, is 1" in said
    assert len(rows("SELECT 1 FROM run")) == 3
    assert rater("sweep", "--resume", "1", "--quiet", "--force")[0] == 0


def test_a_sweep_whose_rater_lives_is_not_taken_up(rater: Rater, tmp_path: Path) -> None:
    interrupted(rater, tmp_path)
    execute("UPDATE sweep SET status = 'running'")  # by this process, which lives
    status, _, said = rater("sweep", "--resume", "1")
    assert (status, "sweep 1 is still running" in said) == (2, True)


def test_a_slot_has_one_run_that_counts_and_the_database_holds_that(
    rater: Rater, database: Path, tmp_path: Path
) -> None:
    interrupted(rater, tmp_path)
    with open_store(database) as store:
        sweep = load_sweep(store, find_sweep(store, "sweep:last"))
        assert (sweep.status, sweep.missing[0]) == (RunStatus.INTERRUPTED, Slot(2, 1, 0))

        def begin(slot: Slot) -> int:
            return begin_run(store, 1, slot, run_of(1), HOST, settings=[], pus=PUS, phases=1)

        with pytest.raises(InputError, match="run 1 was made meanwhile"):
            begin(Slot(1, 1, 0))
        assert begin(Slot(2, 1, 0)) == 4
    with pytest.raises(sqlite3.IntegrityError):
        execute("INSERT INTO sweep_run VALUES (1, 1, 2, 0, 1, 0)")


@pytest.mark.parametrize("word", ["2", "last~1", "sweep:7", "nonsense"])
def test_a_sweep_that_is_not_there_is_told(rater: Rater, tmp_path: Path, word: str) -> None:
    assert rater("sweep", *TINY, "--axis", "env:X=1", "--rounds", "1", "--", "true")[0] == 0
    status, _, said = rater("sweep", "--show", word)
    assert (status, "no such sweep" in said) == (2, True)


def test_until_stops_after_a_block_from_the_third_on_when_all_is_decided(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, float, int]] = []

    def decided(points: Sequence[Point], margin: float, looks: int) -> bool:
        asked.append((len(points[0].runs), margin, looks))
        return True

    monkeypatch.setattr("rater.analysis.compare.decided", decided)
    words = ("--axis", "env:X=1,2", "--rounds", "4", "--until", "2%", "--", "true")
    status, _, said = rater("sweep", *TINY, *words)
    assert (status, asked) == (0, [(3, 0.02, 2)])
    assert "decided after block 3 of 4" in said
    assert len(rows("SELECT 1 FROM run")) == 6
    status, _, said = rater("sweep", "--resume", "1")
    assert (status, "nothing is missing (decided after block 3" in said) == (0, True)
    assert rater("sweep", "--resume", "1", "--rounds", "4", "--quiet")[0] == 0
    assert len(rows("SELECT 1 FROM run")) == 8


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
    assert (status, "6 points, 5 rounds" in out) == (0, True)


# -- the time left --------------------------------------------------------------------------------


def test_the_time_left_is_the_median_of_the_same_point_else_of_all() -> None:
    points: dict[int, Any] = {
        number: PointReady(number, (), {}, None, None, ()) for number in range(3)
    }
    slots = [Slot(2, 1, 0), Slot(2, 2, 1), Slot(2, 3, 2)]
    assert time_for(slots, points, {}) is None
    assert time_for(slots, points, {0: [1.0, 9.0, 2.0], 1: [4.0]}) == 2.0 + 4.0 + 3.0
    assert time_for([], points, {}) == 0.0
