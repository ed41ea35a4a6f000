"""A signal that reaches copies before rater: their phase is not taken for a measurement."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rater.plan.schedule import make_plan
from rater.record.events import CopyStarted, Event, PhaseEnded, PhaseStarted, PhaseTorn
from rater.record.run import RunStatus
from rater.run.copies.guard import children
from rater.run.supervise.supervisor import Supervisor
from tests.support.rig import Rig, Seen

type OnEvent = Callable[[Event, Supervisor], None]


def told_when(kind: type[Event], phase: int = 0) -> OnEvent:
    """Stop rater, as who ends a job does, at the first event of this kind."""

    def send(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, kind) and getattr(event, "phase", None) == phase:
            os.kill(os.getpid(), signal.SIGTERM)

    return send


def torn(seen: Seen) -> list[int]:
    return [it.phase for it in seen.of(PhaseTorn)]


@pytest.mark.parametrize("death", ["kill -TERM $$", "kill -KILL $$", "exit 143"])
@pytest.mark.parametrize("iterations", [1, 2], ids=["last-phase", "one-follows"])
def test_a_phase_whose_copies_all_died_before_rater_heard_of_it_is_torn(
    tmp_path: Path, death: str, iterations: int
) -> None:
    plan = make_plan(["job"], 2, iterations=iterations)
    seen = Rig(tmp_path, on_event=told_when(PhaseEnded)).run({"job": death}, 2, plan)
    assert seen.brackets[0].complete
    assert torn(seen) == [0]
    assert seen.outcome.status is RunStatus.INTERRUPTED
    assert "phase 0 had died of a signal from outside" in seen.notes


def test_the_phase_before_the_one_that_runs_is_torn_too(tmp_path: Path) -> None:
    plan = make_plan(["job"], 1, iterations=2)
    script = 'case "$RATER_RUN_DIR" in *i1*) kill -TERM $$;; esac; exec sleep 10'
    seen = Rig(tmp_path, on_event=told_when(CopyStarted, 1)).run({"job": script}, 1, plan)
    assert 0 in torn(seen)
    assert [it.complete for it in seen.brackets] == [True, False]


@pytest.mark.parametrize("death", ["kill -SEGV $$", "exit 3", "kill -ABRT $$"])
def test_copies_that_crashed_were_measured(tmp_path: Path, death: str) -> None:
    seen = Rig(tmp_path, on_event=told_when(PhaseEnded)).run({"job": death}, 2)
    assert torn(seen) == []


def test_copies_that_somebody_killed_are_failed_ones_where_rater_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.run.supervise.job._WAIT_NS", 50_000_000)
    seen = Rig(tmp_path).run({"job": "kill -TERM $$"}, 2)
    assert (seen.outcome.status, seen.outcome.reason) == (RunStatus.FAILED, "2 copies failed")
    assert torn(seen) == []


def test_copies_that_died_long_before_rater_was_stopped_are_failed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.run.supervise.job._BEFORE_NS", -1)
    seen = Rig(tmp_path, on_event=told_when(PhaseEnded)).run({"job": "kill -TERM $$"}, 2)
    assert torn(seen) == []


def test_copies_that_died_at_their_gates_with_rater_make_an_interrupted_run(
    tmp_path: Path,
) -> None:
    def all_of_the_job(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, PhaseStarted):
            for pid in children():
                if b"rater-gate" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGTERM)

    seen = Rig(tmp_path, on_event=all_of_the_job).run({"job": "exit 0"}, 2)
    assert (seen.outcome.status, seen.outcome.reason) == (
        RunStatus.INTERRUPTED,
        "stopped by SIGTERM",
    )
