"""What an agent refuses on its node, and what it does with what it finds there."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rater import __version__
from rater.fleet import agent, shared_folder
from rater.fleet.agent import Agent, JobSignals, ending_signals
from rater.fleet.plan import VerdictStatus
from rater.fleet.shared_folder import SPEC_VERSION, FleetSpec, SharedFolder
from rater.record.events import RunEnded
from rater.record.run import RunStatus
from rater.store.store import open_store
from tests.support.example_events import ended, over, phase, run_of
from tests.support.stored_runs import begin


@pytest.fixture
def signals() -> Iterator[JobSignals]:
    with ending_signals() as it:
        yield it


@pytest.fixture
def it(tmp_path: Path, signals: JobSignals) -> Agent:
    (tmp_path / "scratch").mkdir()
    folder = SharedFolder(tmp_path / "fleet")
    words = ("--copies=1", "--energy=off", "--proof=off", "--preflight=off")
    spec = FleetSpec(
        *(SPEC_VERSION, "0123456789abcdef", __version__, words, ("true",), str(tmp_path)),
        *(str(tmp_path / "scratch"), False, str(tmp_path / "lock")),
    )
    folder.make(spec)
    return Agent(folder, spec, "n1", 1, "17.0", signals)


def refused(it: Agent, **changed: object) -> str:
    """Why a node is refused whose spec differs so."""
    spec = replace(it.spec, **changed)  # type: ignore[arg-type]
    verdict = Agent(it.folder, spec, "n1", 1, "17.0", it.signals).run()
    assert verdict.status is VerdictStatus.REFUSED
    assert verdict.database is None
    return str(verdict.reason)


def test_another_rater_directory_or_disk_is_refused_with_the_reason(it: Agent) -> None:
    assert "is on this node, 0.0 on the submit host" in refused(it, version="0.0")
    assert "/nowhere is not on this node" in refused(it, directory="/nowhere")
    assert "name a folder on its own disk with --scratch" in refused(it, scratch="/nowhere")


def test_a_disk_of_several_machines_and_a_narrow_mask_are_refused(
    it: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "shared_disk", lambda _: "on a file system of several machines")
    assert refused(it) == "on a file system of several machines"
    monkeypatch.setattr(agent, "partial_mask", lambda: "the job may use CPUs 0 of 0-1")
    assert refused(it) == "the job may use CPUs 0 of 0-1"
    # Allowed, and told all the same.
    assert "several machines" in refused(it, allow_partial=True)
    assert shared_folder.partial_mask(mask=set(range(4096))) is None


def test_a_cancelled_fleet_is_not_begun(it: Agent) -> None:
    it.folder.mark_cancelled()
    assert it.run().status is VerdictStatus.CANCELLED
    assert not it.database.exists()


def test_a_damaged_database_of_the_node_is_set_aside(
    it: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    it.scratch.mkdir(parents=True)
    it.database.write_bytes(b"SQLite format 3\0" + bytes(5000))
    monkeypatch.setattr(Agent, "_rater", lambda *_, **__: (2, "rater: refused all the same"))
    verdict = it.run()
    assert (verdict.status, verdict.reason) == (VerdictStatus.REFUSED, "refused all the same")
    assert verdict.notes[0].startswith("set aside, a new run:")
    assert it.database.with_name("damaged-node.db").stat().st_size == 5016


def test_a_node_that_has_published_everything_does_nothing_more(it: Agent, tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    whole.write_bytes(b"x")
    it.folder.publish(it.verdict(VerdictStatus.COMPLETE, None), whole)
    again = Agent(it.folder, it.spec, "n1", 2, "18.0", it.signals).run()
    assert (again.status, again.reason) == (
        VerdictStatus.NOT_NEEDED,
        "attempt 1 has published everything",
    )


def ran_a_half(it: Agent, *words: str, **_: object) -> tuple[int, str]:
    """What `rater run` leaves that was told to end after the first of two phases."""
    with open_store(it.database) as store:
        number = begin(store, run_of(2, iterations=2))
        store.append(number, phase(total=2), ended(0, 1.0), ended(1, 1.0), over(0.0, 1.0))
        store.append(number, RunEnded(RunStatus.INTERRUPTED, "SIGTERM"))
    it.signals.take(signal.SIGUSR1, None)
    return 143, ""


def test_what_was_measured_before_the_time_limit_is_published_and_resumed_elsewhere(
    it: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Agent, "_rater", ran_a_half)
    verdict = it.run()
    assert (verdict.status, verdict.ended_by) == (VerdictStatus.PARTIAL, "USR1")
    assert (verdict.copies_done, verdict.copies_planned) == (2, 4)
    found = it.folder.looked_up(it.spec.fleet, "n1", 1)
    assert found is not None
    assert (found.verdict, found.damaged) == (verdict, None)

    it.database.unlink()  # the node came back without its disk
    asked: list[tuple[str, ...]] = []

    def no(_: Agent, *words: str, **__: object) -> tuple[int, str]:
        asked.append(words)
        return 1, "no"

    monkeypatch.setattr(Agent, "_rater", no)
    it.signals.first = None
    again = Agent(it.folder, it.spec, "n1", 2, "18.0", it.signals).run()
    assert asked == [("--resume", "1")]
    assert again.notes == (
        "goes on with what attempt 1 published",
        "resumed: 2 copies were there",
    )
    assert (again.status, again.reason, again.copies_done) == (VerdictStatus.PARTIAL, "no", 2)
