"""Fleets step by step against a made scheduler, and end to end with the backend `local`."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rater.fleet.backends.local import LocalBackend
from rater.fleet.backends.scheduler import (
    FleetNode,
    JobRejectedError,
    JobSpec,
    SchedulerUnavailableError,
)
from rater.fleet.driver import FleetDriver, collect_published
from rater.fleet.plan import JobPhase, JobSeen, NodeVerdict, StoredFleet, VerdictStatus
from rater.fleet.shared_folder import SharedFolder
from rater.fleet.store import new_fleet
from rater.store.store import Store
from rater.system.files import Trusted
from tests.support.calls import Rater, query_rows
from tests.support.fleets import ASKED
from tests.support.processes import wait_until
from tests.support.strangers import give, needs_root

VERDICT = NodeVerdict(
    rater=1,
    fleet=ASKED.uuid,
    node="n1",
    attempt=1,
    job="1",
    status=VerdictStatus.COMPLETE,
    reason=None,
    ended_by=None,
    database=None,
    sha256=None,
    bytes=None,
    run="u",
    copies_done=2,
    copies_planned=2,
    started_at="2026-11-23T08:00:00Z",
    ended_at="2026-11-23T08:01:00Z",
    host={},
)


@dataclass
class Scheduler:
    """What is submitted is `seen`; `fails` is raised by the call of that name."""

    seen: dict[str, JobSeen] = field(default_factory=dict)
    fails: dict[str, Exception] = field(default_factory=dict)
    ended: list[tuple[tuple[str, ...], bool]] = field(default_factory=list)
    submitted: list[str] = field(default_factory=list)
    drained: str | None = None  # why the nodes are
    polled: list[list[str]] = field(default_factory=list)

    def _may_fail(self, call: str) -> None:
        if call in self.fails:
            raise self.fails[call]

    def nodes(self, names: Sequence[str], partition: str | None = None) -> tuple[FleetNode, ...]:
        word = "drained" if self.drained else "idle"
        return tuple(FleetNode(name, word, name == "n2", self.drained) for name in names)

    def submit(self, job: Trusted[JobSpec]) -> str:
        self._may_fail("submit")
        self.submitted.append(job.value.node)
        number = str(len(self.submitted))
        self.seen[job.value.name] = JobSeen(number, JobPhase.RUNNING, "RUNNING")
        return number

    def poll(self, jobs: Mapping[str, str | None]) -> Mapping[str, JobSeen]:
        self.polled.append([*jobs])
        self._may_fail("poll")
        return {name: self.seen[name] for name in jobs if name in self.seen}

    def cancel(self, ids: Sequence[str], *, gently: bool) -> None:
        self.ended.append((tuple(ids), gently))

    def now_all(self, phase: JobPhase, word: str, reason: str | None = None) -> None:
        """Let all jobs be so."""
        self.seen = {n: JobSeen(it.job, phase, word, reason) for n, it in self.seen.items()}


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


def begun(
    store: Store, scheduler: Scheduler, tmp_path: Path, nodes: int, **asked: object
) -> FleetDriver:
    """Steps of a fleet of which nothing was submitted yet."""
    folder = tmp_path / "fleet"
    wanted = replace(ASKED, folder=str(folder), **asked)
    number = new_fleet(store, wanted, [f"n{place}" for place in range(1, nodes + 1)])
    SharedFolder(folder).make(wanted)
    return FleetDriver(store, number, calls=scheduler)


def step(steps: FleetDriver) -> StoredFleet:
    return steps.act(steps.refresh())


def states(fleet: StoredFleet) -> dict[str, list[tuple[str, str | None]]]:
    return {
        node: [(it.state.value, it.reason) for it in tried]
        for node, tried in fleet.attempts.items()
    }


def test_the_plan_is_stored_before_a_job_is_submitted_and_silence_only_waits(
    store: Store, scheduler: Scheduler, tmp_path: Path
) -> None:
    steps = begun(store, scheduler, tmp_path, 2, parallel=1)
    scheduler.fails = {"submit": SchedulerUnavailableError("timed out")}
    it = step(steps)
    assert states(it) == {"n1": [], "n2": [("intent", "not submitted yet: timed out")]}
    assert steps.silent == "timed out"
    scheduler.fails = {"poll": SchedulerUnavailableError("timed out")}
    assert states(step(steps))["n2"][0][0] == "intent"
    assert scheduler.submitted == []
    scheduler.fails = {}
    assert states(step(steps)) == {"n1": [], "n2": [("submitted", None)]}
    assert states(step(steps)) == {"n1": [], "n2": [("running", None)]}
    assert scheduler.submitted == ["n2"]  # the idle one, one at a time


def test_what_is_published_is_read_first_and_the_scheduler_is_asked_for_the_rest(
    store: Store, scheduler: Scheduler, tmp_path: Path
) -> None:
    steps = begun(store, scheduler, tmp_path, 3)
    step(steps)
    for node in ("n1", "n2"):
        steps.folder.publish(replace(VERDICT, node=node), None)
    scheduler.polled.clear()
    assert states(steps.refresh())["n1"] == [("complete", None)]
    assert [len(names) for names in scheduler.polled] == [1]
    steps.folder.publish(replace(VERDICT, node="n3"), None)
    scheduler.fails = {"poll": SchedulerUnavailableError("timed out")}
    assert (steps.refresh().status, steps.silent) == ("complete", None)


def test_what_the_scheduler_does_not_take_is_refused_with_its_words(
    store: Store, scheduler: Scheduler, tmp_path: Path
) -> None:
    scheduler.fails = {"submit": JobRejectedError("invalid partition")}
    it = step(begun(store, scheduler, tmp_path, 1))
    assert states(it) == {"n1": [("refused", "not taken by the scheduler: invalid partition")]}
    assert it.is_settled


def test_a_job_that_waits_too_long_is_ended_with_what_is_wrong_with_its_node_and_not_tried_again(
    store: Store, scheduler: Scheduler, tmp_path: Path
) -> None:
    steps = begun(store, scheduler, tmp_path, 1, pending_limit_s=0.0)
    step(steps)
    scheduler.now_all(JobPhase.PENDING, "PENDING", "ReqNodeNotAvail")
    scheduler.drained = "bad DIMM in slot A1 (root, 2026-11-26T03:40)"
    why = f"n1 is drained: {scheduler.drained}; ReqNodeNotAvail"
    assert states(step(steps)) == {"n1": [("pending", why)]}
    assert scheduler.ended == [(("1",), True)]
    scheduler.now_all(JobPhase.ENDED, "CANCELLED")
    assert states(step(steps))["n1"] == [("never", f"pending too long; {why}")]
    assert states(step(steps))["n1"] == [("never", f"pending too long; {why}")]
    assert [text for text in states(steps.act(steps.refresh(), again=["n1"]))["n1"]][1:] == [
        ("submitted", None)
    ]


def test_a_node_that_another_rater_holds_is_waiting_for_whom_it_says(
    store: Store, scheduler: Scheduler, tmp_path: Path
) -> None:
    steps = begun(store, scheduler, tmp_path, 1)
    step(steps)
    assert steps.folder.claim("n1", 1, "1") is None
    steps.folder.mark_waiting("n1", 1, "for rater run ab12, process 7\x1b[31m\n; since 10:03")
    assert states(step(steps)) == {
        "n1": [("waiting", "for rater run ab12, process 7?[31m?; since 10:03")]
    }
    steps.folder.mark_waiting("n1", 1, "")
    assert states(step(steps)) == {"n1": [("running", None)]}


def test_a_lost_node_tells_the_last_line_of_its_log_and_where_that_is(
    store: Store, scheduler: Scheduler, tmp_path: Path
) -> None:
    steps = begun(store, scheduler, tmp_path, 1, attempts=1)
    step(steps)
    log = steps.folder.log("n1", 1)
    log.write_bytes(b"x" * 5000 + b"\nslurmstepd: error: execve(): \x1b[1mno python\n\n")
    scheduler.now_all(JobPhase.ENDED, "FAILED", "exit status 127")
    assert states(step(steps)) == {
        "n1": [
            (
                "lost",
                "the job ended (FAILED) and published nothing; exit status 127; its log "
                f"{log} ends: slurmstepd: error: execve(): ?[1mno python",
            )
        ]
    }


def test_what_is_published_late_makes_the_second_attempt_unneeded(
    store: Store, scheduler: Scheduler, tmp_path: Path
) -> None:
    steps = begun(store, scheduler, tmp_path, 1)
    step(steps)
    scheduler.now_all(JobPhase.ENDED, "NODE_FAIL")
    assert [state for state, _ in states(step(steps))["n1"]] == ["lost", "submitted"]
    SharedFolder(tmp_path / "fleet").publish(VERDICT, None)
    plan = step(steps)
    assert [state for state, _ in states(plan)["n1"]] == ["complete", "running"]
    assert scheduler.ended == [(("2",), True)]
    scheduler.now_all(JobPhase.ENDED, "COMPLETED")
    plan = step(steps)
    assert states(plan)["n1"][1] == ("cancelled", "an attempt before it has published everything")
    assert plan.is_settled


def test_a_published_file_that_is_no_database_is_set_aside_and_measured_again(
    store: Store, scheduler: Scheduler, tmp_path: Path
) -> None:
    steps = begun(store, scheduler, tmp_path, 1)
    step(steps)
    (tmp_path / "cut.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    put = SharedFolder(tmp_path / "fleet").publish(VERDICT, tmp_path / "cut.db")
    assert states(step(steps)) == {"n1": [("complete", None)]}
    assert collect_published(steps, quiet=True) == 1
    lost, again = states(step(steps))["n1"]
    assert lost[0] == "lost"
    assert str(lost[1]).startswith("the published database was set aside:")
    assert again == ("submitted", None)
    aside = {path.name for path in (tmp_path / "fleet" / "aside").iterdir()}
    assert aside == {"n1.1.json", put.database}


def test_a_database_that_was_changed_after_it_was_published_is_a_lost_attempt(
    store: Store, scheduler: Scheduler, tmp_path: Path
) -> None:
    steps = begun(store, scheduler, tmp_path, 1, attempts=1)
    step(steps)
    (tmp_path / "a.db").write_bytes(b"a" * 10)
    folder = SharedFolder(tmp_path / "fleet")
    put = folder.publish(VERDICT, tmp_path / "a.db")
    (folder.inbox / str(put.database)).write_bytes(b"b" * 10)
    [(state, reason)] = states(step(steps))["n1"]
    assert (state, "another sha256" in str(reason)) == ("lost", True)


PROGRAM = ("--copies", "1", "--energy", "off", "--proof", "off", "--preflight", "off")


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What every fleet here is asked for, with places of its own."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("RATER_FLEETS", str(tmp_path / "fleets"))
    monkeypatch.chdir(tmp_path)
    words = f"fleet run --backend local --scratch {tmp_path}/scratch --settle 0 --poll 0.05 --quiet"
    return words.split()


def agent_of(tmp_path: Path) -> int:
    """The process of the one job that has not ended."""
    [job] = [
        path.parent
        for path in tmp_path.glob("fleets/*/jobs/*/process")
        if not (path.parent / "end").exists()
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

    def killed(self: LocalBackend, job: Trusted[JobSpec]) -> str:
        submit(self, job)
        raise KeyboardInterrupt

    second = "[ $(wc -l < ran) -gt 1 -a ! -e go ]"  # waits, the first does not
    wait = f"echo x >> ran; while {second}; do sleep .01; done"
    command = ("--nodes", "n1", "--iterations", "2", *PROGRAM, "--", "sh", "-c", wait)
    with monkeypatch.context() as patch:
        patch.setattr(LocalBackend, "submit", killed)
        assert rater(*fleet, *command)[0] == 130
    intents = "SELECT node, attempt, state, job FROM fleet_attempt"
    assert query_rows(intents) == [("n1", 1, "intent", None)]
    with monkeypatch.context() as patch:  # the first job is found neither by its name nor its claim
        patch.setattr(LocalBackend, "poll", lambda self, jobs: {})
        patch.setattr(SharedFolder, "claimed_by", lambda *_: None)
        patch.setattr("rater.fleet.driver.time.sleep", interrupted)
        assert rater("fleet", "wait", "--quiet")[0] == 130
    jobs = list(tmp_path.glob("fleets/*/jobs/*-n1.1.*"))
    assert len(jobs) == 2
    wait_until(
        lambda: (tmp_path / "ran").read_text().count("x") == 2 and copies_on_node(tmp_path) == 1
    )
    wait_until(
        lambda: sum((job / "end").exists() for job in jobs) == 1
    )  # of the one that came too late
    os.kill(agent_of(tmp_path), signal.SIGKILL)
    # Before that its copy could see `go`, end, and be stored by a rater that was about to die.
    wait_until(lambda: all((job / "end").exists() for job in jobs))
    (tmp_path / "go").touch()

    document = shown(rater, "wait", "--poll", "0.05")
    [node] = document["nodes"]
    assert (document["status"], node["state"]) == ("complete", "complete")
    lost, resumed = node["attempts"]
    assert lost["state"] == "lost"
    assert lost["reason"].startswith(
        "the job ended (FAILED) and published nothing; signal 9; its log /"
    )
    assert (resumed["copies_done"], resumed["copies_planned"]) == (2, 2)
    assert resumed["notes"] == ["resumed: 1 copies were there"]
    assert resumed["collected"]
    assert (tmp_path / "ran").read_text().count("x") == 3  # runs that were stored did not run again
    assert not list((tmp_path / "scratch").glob("rater-fleet-*/*-n1"))
    before = query_rows("SELECT host, copy_runs, failed, sha256 FROM fleet_run")
    assert [(host, copies, failed) for host, copies, failed, _ in before] == [("n1", 2, 0)]
    assert shown(rater, "collect")["counts"] == {"complete": 1}
    assert query_rows("SELECT host, copy_runs, failed, sha256 FROM fleet_run") == before
    assert "nothing to try again" in rater("fleet", "retry")[2]
    told = query_rows("SELECT state FROM fleet_change WHERE attempt = 1 ORDER BY id")
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
        wait_until(lambda: list(home.glob("*-n1")))
        wait_until(lambda: shown(rater, "status")["counts"] == {"waiting": 1, "not submitted": 1})
        said = "another job of a fleet is on this machine; waits since 20"
        assert shown(rater, "status")["nodes"][0]["reason"].startswith(said)
        document = shown(rater, "cancel", "--wait")
    assert document["status"] == "cancelled"
    first, second = document["nodes"]
    assert (first["state"], first["reason"]) == ("cancelled", "`rater fleet cancel`")
    assert (second["state"], second["attempts"]) == ("not submitted", [])
    assert shown(rater, "collect")["status"] == "cancelled"
    document = shown(rater, "retry", "--nodes", "n1", "--wait", "--poll", "0.05")
    assert [node["state"] for node in document["nodes"]] == ["complete", "cancelled"]
    assert [len(node["attempts"]) for node in document["nodes"]] == [2, 1]
    assert "nothing to try again" in rater("fleet", "retry")[2]  # it was left out before
    document = shown(rater, "retry", "--nodes", "n2", "--wait", "--poll", "0.05")
    assert (document["status"], document["counts"]) == ("complete", {"complete": 2})


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
    assert query_rows("SELECT count(*) FROM fleet") == [(0,)]


def test_a_fleet_whose_nodes_are_all_refused_is_not_called_submitted(
    fleet: list[str], rater: Rater
) -> None:
    loud = [word for word in fleet if word != "--quiet"]
    status, out, err = rater(*loud, "--slurm-arg=--x", "--nodes", "n1", *PROGRAM, "--", "true")
    assert (status, "not taken by the scheduler" in out) == (1, True)
    assert "submitted" not in err


@needs_root
def test_a_plan_that_somebody_else_may_have_written_starts_and_removes_nothing(
    fleet: list[str], rater: Rater, database: Path, tmp_path: Path
) -> None:
    assert rater(*fleet, "--nodes", "n1", *PROGRAM, "--", "true")[0] == 0
    wait_until(lambda: list(tmp_path.glob("fleets/*/in/*.json")))
    before = query_rows("SELECT state FROM fleet_attempt")
    give(database)
    for verb in ("wait", "retry", "cancel", "collect"):
        status, _, err = rater("fleet", verb)
        assert (status, "rater cannot tell that fleet 1 is yours" in err) == (2, True), verb
    status, out, err = rater("fleet", "status")
    assert (status, "n1" in out, "cannot tell that fleet 1 is yours" in err) == (0, True, True)
    os.chown(database, 0, 0)
    assert query_rows("SELECT state FROM fleet_attempt") == before
    assert rater("fleet", "wait")[0] == 0
