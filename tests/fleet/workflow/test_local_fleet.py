"""Fleets end to end with the backend `local`: real jobs, real signals, a database on each node."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from rater.fleet.backends import JobSpec, LocalBackend
from rater.fleet.shared_folder import SharedFolder
from tests.support.calls import Rater, rows

PROGRAM = ("--copies", "1", "--energy", "off", "--proof", "off", "--preflight", "off")
MOST_S = 60.0


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What every fleet here is asked for, with places of its own."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("RATER_FLEETS", str(tmp_path / "fleets"))
    monkeypatch.chdir(tmp_path)
    words = f"fleet run --backend local --scratch {tmp_path}/scratch --settle 0 --poll 0.05 --quiet"
    return words.split()


def until(happened: Callable[[], Any]) -> Any:
    """Wait for it, and return what it returned."""
    deadline_s = time.monotonic() + MOST_S
    while time.monotonic() < deadline_s:
        with suppress(OSError, StopIteration):
            if found := happened():
                return found
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def agent_of(tmp_path: Path) -> int:
    """The process of the one job that has not ended."""
    [job] = [
        it.parent
        for it in tmp_path.glob("fleets/*/jobs/*/process")
        if not (it.parent / "end").exists()
    ]
    return int((job / "process").read_text().split()[0])


def shown(rater: Rater, *words: str) -> dict[str, Any]:
    status, out, err = rater("fleet", *words, "--json")
    assert status in (0, 1), err
    document: dict[str, Any] = json.loads(out)
    return document


def test_a_node_that_was_submitted_twice_and_lost_is_measured_once(
    fleet: list[str], rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = LocalBackend.submit

    def killed(self: LocalBackend, order: JobSpec) -> str:
        submit(self, order)
        raise KeyboardInterrupt

    second = "[ $(wc -l < ran) -gt 1 -a ! -e go ]"  # waits, the first does not
    wait = f"echo x >> ran; while {second}; do sleep .01; done"
    command = ("--nodes", "n1", "--iterations", "2", *PROGRAM, "--", "sh", "-c", wait)
    with monkeypatch.context() as patch:
        patch.setattr(LocalBackend, "submit", killed)
        assert rater(*fleet, *command)[0] == 130
    intents = "SELECT node, attempt, state, job FROM fleet_attempt"
    assert rows(intents) == [("n1", 1, "intent", None)]
    with monkeypatch.context() as patch:  # the first job is found neither by its name nor its claim
        patch.setattr(LocalBackend, "poll", lambda self, jobs: {})
        patch.setattr(SharedFolder, "claimed_by", lambda *_: None)
        patch.setattr("rater.fleet.driver.time.sleep", interrupted)
        assert rater("fleet", "wait", "--quiet")[0] == 130
    jobs = list(tmp_path.glob("fleets/*/jobs/*-n1.1.*"))
    assert len(jobs) == 2
    until(lambda: (tmp_path / "ran").read_text().count("x") == 2 and copies_on_node(tmp_path) == 1)
    until(lambda: sum((it / "end").exists() for it in jobs) == 1)  # of the one that came too late
    os.kill(agent_of(tmp_path), signal.SIGKILL)
    # Before that its copy could see `go`, end, and be stored by a rater that was about to die.
    until(lambda: all((it / "end").exists() for it in jobs))
    (tmp_path / "go").touch()

    document = shown(rater, "wait", "--poll", "0.05")
    [node] = document["nodes"]
    assert (document["status"], node["state"]) == ("complete", "complete")
    lost, resumed = node["attempts"]
    assert lost["state"] == "lost"
    assert lost["reason"] == "the job ended (FAILED) and published nothing; signal 9"
    assert (resumed["copies_done"], resumed["copies_planned"]) == (2, 2)
    assert resumed["notes"] == ["resumed: 1 copies were there"]
    assert resumed["collected"]
    assert (tmp_path / "ran").read_text().count("x") == 3  # what was there did not run again
    assert not list((tmp_path / "scratch").glob("rater-fleet-*/*-n1"))
    before = rows("SELECT host, copy_runs, failed, sha256 FROM fleet_run")
    assert [(host, copies, failed) for host, copies, failed, _ in before] == [("n1", 2, 0)]
    assert shown(rater, "collect")["counts"] == {"complete": 1}
    assert rows("SELECT host, copy_runs, failed, sha256 FROM fleet_run") == before
    assert "nothing to try again" in rater("fleet", "retry")[2]
    told = rows("SELECT state FROM fleet_change WHERE attempt = 1 ORDER BY id")
    assert (told[0], told[-1]) == (("intent",), ("lost",))


def interrupted(_: float) -> None:
    """What Ctrl-C makes of a pause."""
    raise KeyboardInterrupt


def test_a_cancelled_fleet_ends_its_jobs_and_takes_no_more(
    fleet: list[str], rater: Rater, tmp_path: Path
) -> None:
    home = tmp_path / "scratch" / f"rater-fleet-{os.geteuid()}"
    home.mkdir()
    with (home / "turn").open("w") as turn:
        (home / "turn").chmod(0o600)
        fcntl.flock(turn, fcntl.LOCK_EX)  # another job of this machine: this one waits for it
        words = ("--nodes", "n[1-2]", "--parallel", "1", *PROGRAM, "--", "true")
        assert rater(*fleet, *words)[0] == 0
        until(lambda: list(home.glob("*-n1")))
        document = shown(rater, "cancel", "--wait")
    assert document["status"] == "cancelled"
    first, second = document["nodes"]
    assert (first["state"], first["reason"]) == ("cancelled", "`rater fleet cancel`")
    assert (second["state"], second["attempts"]) == ("waiting", [])
    assert shown(rater, "collect")["status"] == "cancelled"
    status, _, err = rater("fleet", "retry")
    assert (status, "was cancelled" in err) == (2, True)


def copies_on_node(tmp_path: Path) -> int:
    """Copies of phases that are over, in the database of whichever node runs."""
    [database] = tmp_path.glob("scratch/rater-fleet-*/*/node.db")
    asked = "SELECT count(*) FROM copy JOIN bracket USING (phase) WHERE complete"
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as found,
    ):
        return int(found.execute(asked).fetchone()[0])
    return 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nodes", "n[2-1]"), "runs backwards"),
        ((), "--nodes is missing"),
        (("--nodes", "n1", "nosuch"), "nosuch"),
        (("--nodes", "n1", "mini/nosuch"), "nosuch"),
        (("--nodes", "n1", "--layout", "nosuch"), "nosuch"),
        (("--nodes", "n1", "--mode", "staggered"), "stagger"),
        (("--nodes", "n1", "--mem", "everywhere"), "everywhere"),
        (("--nodes", "n1", "--parallel", "0"), "--parallel 0"),
        (("--nodes", "n1", "--size", "huge"), "huge"),
        (("--nodes", "n1", "--copies", "many"), "--copies 'many'"),
    ],
)
def test_what_every_node_would_refuse_is_refused_before_anything_is_stored(
    fleet: list[str], rater: Rater, words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    status, _, err = rater(*fleet, *words)
    assert status == 2
    assert said in err
    assert not (tmp_path / "fleets").exists()
    assert not (tmp_path / "rater.db").exists()


def test_a_folder_that_cannot_be_made_leaves_no_fleet(fleet: list[str], rater: Rater) -> None:
    words = ("--nodes", "n1", "--folder", "/proc/fleets", *PROGRAM, "--", "true")
    status, _, err = rater(*fleet, *words)
    assert (status, "cannot make the fleet's folder" in err) == (2, True)
    assert rows("SELECT count(*) FROM fleet") == [(0,)]


def test_a_fleet_whose_nodes_are_all_refused_is_not_called_submitted(
    fleet: list[str], rater: Rater
) -> None:
    loud = [word for word in fleet if word != "--quiet"]
    status, out, err = rater(*loud, "--slurm-arg=--x", "--nodes", "n1", *PROGRAM, "--", "true")
    assert (status, "not taken by the scheduler" in out) == (1, True)
    assert "submitted" not in err
