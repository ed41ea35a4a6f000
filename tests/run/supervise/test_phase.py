"""A phase under records in any order: what is emitted, which runs go on, and what is refused."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rater.plan.schedule import make_plan
from rater.record.events import CopyEnded, CopyStarted, Event
from rater.run.launcher.child_state import ChildState, IllegalMoveError
from rater.run.launcher.launcher import Launcher
from rater.run.launcher.table import RECORD, ProcessEntry, Record, RecordKind, StartStep
from rater.run.supervise.job import Job, RunState
from rater.run.supervise.phase import PhaseRun
from rater.run.workplace.run_dirs import Program, RunFolders
from tests.support.rig import Rig, on_one_cpu

COPIES = 3
EMPTY = Record(*RECORD.unpack(bytes(RECORD.size)))
OVER = {ChildState.ENDED, ChildState.NOT_FORKED, ChildState.GIVEN_UP}


class SilentLauncher:
    """Takes tables and requests, and says nothing by itself."""

    pid = 1

    def __init__(self) -> None:
        self.tokens = count(1)

    async def start(self, entries: Sequence[ProcessEntry]) -> None:
        assert len(entries) == COPIES

    def ask(self, kind: int, token: int = 0, value: int = 0) -> None:
        pass


def forked_phase(folder: Path, events: list[Event]) -> PhaseRun:
    """A phase whose first runs are with a launcher that does not exist."""
    plan = make_plan(["a"], COPIES)
    placements = on_one_cpu(COPIES)
    program = Program(name="a", argv=("/bin/true",), inputs=(), expected=())
    folders = RunFolders(folder, "identity", {"a": program}, placements, (), keep=True)
    job = Job(plan=plan, placements=placements, workplace=folders, work=folder)
    guard: Any = SimpleNamespace(
        launcher=SilentLauncher(),
        groups=set(),
        immune=set(),
        kill_orphans=lambda pid, copy: copy == 1,
    )

    def stop(number: int | None, reason: str | None) -> None:
        again = state.stop_flag.is_set()
        state.stop_flag.set()
        if again:
            phase.kill_all(last=True)
        else:
            phase.begin_stop()

    state = RunState(job=job, guard=guard, emit=events.append, stop=stop)
    [number_one] = plan.phases
    phase = PhaseRun(state, number_one, folders.specs(number_one, lambda: False))
    trio.run(phase._copies.fork_first)
    return phase


@st.composite
def records(draw: st.DrawFn) -> Record:
    kind = draw(st.sampled_from(RecordKind))
    token = draw(st.integers(0, COPIES + 1))
    pid = draw(st.sampled_from((0, 900 + token)))
    step = draw(st.sampled_from((StartStep.FORKED, StartStep.DIRECTORY, StartStep.EXECUTE)))
    return EMPTY._replace(
        kind=kind,
        token=token,
        pid=pid,
        status=int(step) if kind == RecordKind.BROKEN else draw(st.sampled_from((0, 256, 9))),
        start_ns=10,
        at_ns=draw(st.integers(20, 40)),
    )


# Another signal of the user's may come between any two records.
STEPS = st.lists(st.one_of(records(), st.sampled_from(("stop", "escalate"))), max_size=40)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(STEPS)
def test_records_in_any_order_are_taken_once_or_refused_unchanged(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Record | str]
) -> None:
    events: list[Event] = []
    phase = forked_phase(tmp_path_factory.mktemp("phase"), events)
    runs = {child.token: child for child in phase._children.values()}
    for step in steps:
        states = {token: child.state for token, child in runs.items()}
        emitted = len(events)
        try:
            if step == "stop":
                phase._state.stop(signal.SIGINT, None)
            elif step == "escalate":
                for child in [*phase._children.values()]:
                    if child.deadline_s < float("inf"):
                        phase._stopper._escalate(child)
            else:
                assert isinstance(step, Record)
                phase._taker.take(step)
        except IllegalMoveError:
            assert isinstance(step, Record), "an act of rater itself is always legal"
            if step.kind != RecordKind.RELEASED:  # which is of several runs
                assert states == {token: child.state for token, child in runs.items()}
                assert len(events) == emitted
    starts = [event.copy for event in events if isinstance(event, CopyStarted)]
    ends = [event.copy for event in events if isinstance(event, CopyEnded)]
    assert len({*starts}) == len(starts)
    assert len({*ends}) == len(ends)
    assert {*ends} <= {*starts}
    assert {child.token for child in runs.values() if child.state not in OVER} == {*phase._children}
    for child in runs.values():
        assert child.has_begun == (child.copy in starts)
        assert (child.end_record is not None) == (child.state is ChildState.ENDED)


def test_a_run_whose_launcher_says_what_cannot_be_fails_and_nothing_lives_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = Launcher.receive

    async def twice(self: Launcher) -> list[Record]:
        found = await receive(self)
        return [record for record in found for _ in range(1 + (record.kind == RecordKind.READY))]

    monkeypatch.setattr(Launcher, "receive", twice)
    with pytest.raises(AssertionError) as failure:  # the rig does not let it pass
        Rig(tmp_path).run({"nap": "sleep 60"}, copies=2)
    assert "what is at its gate cannot be ready" in str(failure.value)
