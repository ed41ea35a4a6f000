"""`rater sweep --resume` on real processes: what is missing is made, once, and nothing else."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from rater.analysis.results.copies import Point
from rater.errors import InputError
from rater.plan.sweep import SweepSlot
from rater.record.run import RunStatus
from rater.store.store import open_store
from rater.store.sweeps import create_slot_run, find_sweep, load_sweep
from rater.workflow.results.points import count_interim_looks, load_points
from tests.support.calls import Rater, rows
from tests.support.energy_tree import powercap
from tests.support.example_events import run_of
from tests.support.stored_runs import HOST, PUS

TINY = ("--copies", "1", "--proof", "off", "--share", "--quiet")


def execute(sql: str) -> None:
    with closing(sqlite3.connect(os.environ["RATER_DB"], autocommit=True)) as db:
        db.execute(sql)


def tags_of(run: int) -> dict[str, str]:
    return dict(rows(f"SELECT name, value FROM tag WHERE run_id = {run}"))


def interrupted(rater: Rater, folder: Path) -> None:
    """A sweep of two points and two rounds whose third run was interrupted."""
    ends = f"kill -INT {os.getpid()}; exec sleep 60"
    script = f"echo >> {folder}/n; [ $(wc -l < {folder}/n) != 3 ] || {{ {ends}; }}"
    words = ("--axis", "env:X=1,2", "--rounds", "2", "--order", "given")
    status, _, said = rater("sweep", *TINY, *words, "--", "sh", "-c", script)
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


def test_rounds_that_were_added_for_what_the_first_said_count_as_another_look(
    rater: Rater, database: Path
) -> None:
    words = ("--axis", "env:X=1,2", "--rounds", "2", "--seed", "5")
    assert rater("sweep", *TINY, *words, "--", "true")[0] == 0

    def looks() -> int:
        with open_store(database) as store:
            by_tag = count_interim_looks(store, load_points(store, ["tag:env:X=1", "tag:env:X=2"]))
            assert count_interim_looks(store, load_points(store, ["sweep:1"])) == by_tag
            return by_tag

    assert looks() == 1
    assert rater("sweep", "--resume", "1", "--rounds", "3", "--quiet")[0] == 0
    assert looks() == 2
    _, out, _ = rater("compare", "sweep:1", "--json")
    assert json.loads(out)["confidence"] == pytest.approx(1 - 0.02205)


def test_a_refused_resumption_leaves_the_sweep_as_it_was(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rater("sweep", *TINY, "--axis", "env:X=1,2", "--rounds", "1", "--", "true")[0] == 0
    before = rows("SELECT status, reason, ended_at, rounds, extended FROM sweep")
    slots = rows("SELECT * FROM sweep_slot")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    status, _, said = rater("sweep", "--resume", "1", "--rounds", "4")
    assert (status, "cannot go on" in said) == (2, True)
    assert rows("SELECT status, reason, ended_at, rounds, extended FROM sweep") == before
    assert rows("SELECT * FROM sweep_slot") == slots


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
        assert (sweep.status, sweep.missing[0]) == (RunStatus.INTERRUPTED, SweepSlot(2, 1, 0))

        def begin(slot: SweepSlot) -> int:
            return create_slot_run(store, 1, slot, run_of(1), HOST, settings=[], pus=PUS, phases=1)

        with pytest.raises(InputError, match="run 1 was made meanwhile"):
            begin(SweepSlot(1, 1, 0))
        assert begin(SweepSlot(2, 1, 0)) == 4
    with pytest.raises(sqlite3.IntegrityError):
        execute("INSERT INTO sweep_run VALUES (1, 1, 2, 0, 1, 0)")


@pytest.mark.parametrize("word", ["2", "last~1", "sweep:7", "nonsense"])
def test_a_sweep_that_is_not_there_is_told(rater: Rater, tmp_path: Path, word: str) -> None:
    assert rater("sweep", *TINY, "--axis", "env:X=1", "--rounds", "1", "--", "true")[0] == 0
    status, _, said = rater("sweep", "--show", word)
    assert (status, "no such sweep" in said) == (2, True)


@pytest.mark.parametrize("energy", [False, True])
def test_until_stops_after_a_block_from_the_third_on_when_all_is_decided(
    rater: Rater, machine: Path, monkeypatch: pytest.MonkeyPatch, energy: bool
) -> None:
    powercap(machine)
    asked: list[tuple[int, float, int, bool]] = []

    def decided(points: Sequence[Point], margin: float, looks: int, *, energy: bool) -> bool:
        asked.append((len(points[0].runs), margin, looks, energy))
        return True

    monkeypatch.setattr("rater.analysis.compare.compare.is_decided", decided)
    words = (
        "--axis",
        "env:X=1,2",
        "--rounds",
        "4",
        "--until",
        f"{'energy:' * energy}2%",
        "--",
        "true",
    )
    status, _, said = rater("sweep", *TINY, *words)
    assert (status, asked) == (0, [(3, 0.02, 2, energy)])
    assert json.loads(rater("sweep", "--show", "1", "--json")[1])["until_of"] == (
        "energy" if energy else "time"
    )
    assert "decided after block 3 of 4" in said
    assert len(rows("SELECT 1 FROM run")) == 6
    status, _, said = rater("sweep", "--resume", "1")
    assert (status, "nothing is missing (decided after block 3" in said) == (0, True)
    assert rater("sweep", "--resume", "1", "--rounds", "4", "--quiet")[0] == 0
    assert len(rows("SELECT 1 FROM run")) == 8


def test_runs_of_a_complete_sweep_that_were_removed_are_made_again(rater: Rater) -> None:
    words = ("--axis", "env:X=1,2", "--rounds", "2", "--", "true")
    assert rater("sweep", *TINY, *words)[0] == 0
    assert rater("rm", "2")[0] == 0
    assert rater("sweep", "--resume", "1", "--quiet") == (0, "", "")
    assert rows("SELECT count(*), sum(done) FROM sweep_progress") == [(4, 4)]
    _, _, said = rater("sweep", "--resume", "1")
    assert "None" not in said
    assert "nothing is missing" in said
