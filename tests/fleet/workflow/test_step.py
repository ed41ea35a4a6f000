"""Steps of a fleet against a scheduler that says what it is told: what is stored, what is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from rater.fleet.backends import FleetNode, JobRejectedError, JobSpec, SchedulerUnavailableError
from rater.fleet.driver import FleetDriver, collect_published
from rater.fleet.plan import JobPhase, JobSeen, NodeVerdict, VerdictStatus
from rater.fleet.shared_folder import SPEC_VERSION, FleetSpec, SharedFolder
from rater.fleet.store import FleetRequest, StoredFleet, new_fleet
from rater.store.store import Store

ASKED = FleetRequest(
    uuid="0123456789ab-cdef",
    started_at="2026-11-23T08:00:00Z",
    backend="slurm",
    folder="",
    scratch="/var/tmp",
    directory="/",
    words=("mini",),
    command=None,
    command_line="rater fleet run",
    rater_version="0.1",
    parallel=None,
    attempts=2,
    minutes=None,
    pending_limit_s=None,
    settle_s=0.0,
    arguments=(),
    allow_partial=False,
)
VERDICT = NodeVerdict(
    *(1, ASKED.uuid, "n1", 1, "1", VerdictStatus.COMPLETE, None, None, None, None, None, "u", 2, 2),
    *("2026-11-23T08:00:00Z", "2026-11-23T08:01:00Z", {}),
)


@dataclass
class Scheduler:
    """What is submitted is `seen`; `fails` is raised by the call of that name."""

    seen: dict[str, JobSeen] = field(default_factory=dict)
    fails: dict[str, Exception] = field(default_factory=dict)
    ended: list[tuple[tuple[str, ...], bool]] = field(default_factory=list)
    submitted: list[str] = field(default_factory=list)

    def _may_fail(self, call: str) -> None:
        if call in self.fails:
            raise self.fails[call]

    def nodes(self, names: Sequence[str]) -> tuple[FleetNode, ...]:
        return tuple(FleetNode(name, "idle", name == "n2") for name in names)

    def submit(self, order: JobSpec) -> str:
        self._may_fail("submit")
        self.submitted.append(order.node)
        number = str(len(self.submitted))
        self.seen[order.name] = JobSeen(number, JobPhase.RUNNING, "RUNNING")
        return number

    def poll(self, jobs: Mapping[str, str | None]) -> Mapping[str, JobSeen]:
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
    wanted = replace(ASKED, folder=str(folder), **asked)  # type: ignore[arg-type]
    number = new_fleet(store, wanted, [f"n{place}" for place in range(1, nodes + 1)])
    spec = FleetSpec(SPEC_VERSION, ASKED.uuid, "0.1", ("mini",), None, "/", "/var/tmp", False, None)
    SharedFolder(folder).make(spec)
    return FleetDriver(store, number, _backend=scheduler)


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


def test_what_the_scheduler_does_not_take_is_refused_with_its_words(
    store: Store, scheduler: Scheduler, tmp_path: Path
) -> None:
    scheduler.fails = {"submit": JobRejectedError("invalid partition")}
    it = step(begun(store, scheduler, tmp_path, 1))
    assert states(it) == {"n1": [("refused", "not taken by the scheduler: invalid partition")]}
    assert it.is_settled


def test_a_job_that_waits_too_long_is_ended_and_the_node_tried_again(
    store: Store, scheduler: Scheduler, tmp_path: Path
) -> None:
    steps = begun(store, scheduler, tmp_path, 1, pending_limit_s=0.0)
    step(steps)
    scheduler.now_all(JobPhase.PENDING, "PENDING", "ReqNodeNotAvail")
    assert states(step(steps)) == {"n1": [("pending", "ReqNodeNotAvail")]}
    assert scheduler.ended == [(("1",), True)]
    scheduler.now_all(JobPhase.ENDED, "CANCELLED")
    assert states(step(steps))["n1"] == [
        ("never", "pending too long; ReqNodeNotAvail"),
        ("submitted", None),
    ]


def test_what_is_published_late_makes_the_second_attempt_unneeded(
    store: Store, scheduler: Scheduler, tmp_path: Path
) -> None:
    steps = begun(store, scheduler, tmp_path, 1)
    step(steps)
    scheduler.now_all(JobPhase.ENDED, "NODE_FAIL")
    assert [state for state, _ in states(step(steps))["n1"]] == ["lost", "submitted"]
    SharedFolder(tmp_path / "fleet").publish(VERDICT, None)
    it = step(steps)
    assert [state for state, _ in states(it)["n1"]] == ["complete", "running"]
    assert scheduler.ended == [(("2",), True)]
    scheduler.now_all(JobPhase.ENDED, "COMPLETED")
    it = step(steps)
    assert states(it)["n1"][1] == ("cancelled", "an attempt before it has published everything")
    assert it.is_settled


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
    aside = {it.name for it in (tmp_path / "fleet" / "aside").iterdir()}
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
