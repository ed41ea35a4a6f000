"""A supervisor with real processes and no database, for the tests of `rater.run`."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from rater.plan.metric import Metric
from rater.plan.options import Cadence
from rater.plan.schedule import Plan, Window, make_plan
from rater.plan.suite import Expected
from rater.record.events import CopyEnded, CopyStarted, Event, Noted, OutputChecked, PhaseEnded
from rater.record.run import MemoryPolicy, Placement
from rater.run.host.idle import IdleWatch
from rater.run.launcher.guard import guard
from rater.run.observe.perf import CounterPlan
from rater.run.supervise.job import Job
from rater.run.supervise.supervisor import Outcome, Supervisor
from rater.run.workplace.run_dirs import Program, RunFolders
from rater.system.process import hold_stop_signals


@dataclass
class Seen:
    """What came of a run."""

    outcome: Outcome
    events: list[Event]

    def events_of[Kind](self, kind: type[Kind]) -> list[Kind]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def started(self) -> list[CopyStarted]:
        return self.events_of(CopyStarted)

    @property
    def ended(self) -> list[Any]:  # of rows of `CopyEnded` that were measured here
        return self.events_of(CopyEnded)

    @property
    def checked(self) -> list[OutputChecked]:
        return self.events_of(OutputChecked)

    @property
    def brackets(self) -> list[Any]:
        return self.events_of(PhaseEnded)

    @property
    def notes(self) -> str:
        return "\n".join(event.text for event in self.events_of(Noted))

    def by_copy(self, copy: int) -> Any:
        [one] = [event for event in self.ended if event.copy == copy]
        return one


CPU = min(os.sched_getaffinity(0))


def on_one_cpu(copies: int, policy: MemoryPolicy = MemoryPolicy.LOCAL) -> tuple[Placement, ...]:
    """All copies bound to the first CPU."""
    return tuple(
        Placement(
            copy=copy,
            cpus=(CPU,),
            cpu=CPU,
            core=0,
            llc=0,
            node=0,
            package=0,
            memory_policy=policy,
            memory_nodes=(),
        )
        for copy in range(copies)
    )


def wait_for(file: Path) -> Callable[[Event, Supervisor], None]:
    """Return what holds rater, once copies have started, until one of them has made a file.

    A time limit that began with them may be over by then.
    """

    def wait(event: Event, _: Supervisor) -> None:
        while isinstance(event, CopyStarted) and not file.exists():
            time.sleep(0.001)

    return wait


def in_window(
    folder: Path,
    window: Window,
    run: Callable[[Path, Window], Seen],
    enough: Callable[[Seen], bool],
) -> Seen:
    """Run in a window that is as long as it takes to see enough, on a busy machine too."""
    for tries in range(5):
        (folder / f"{tries}").mkdir()
        longer = Window(window.warmup_ns, window.length_ns * 3**tries)
        seen = run(folder / f"{tries}", longer)
        if enough(seen):
            return seen
    raise AssertionError("nothing repeats")


@dataclass
class Rig:
    """Runs shell scripts as benchmarks below one folder."""

    folder: Path
    keep: bool = False
    expected: str | None = None
    metrics: tuple[Metric, ...] = ()
    timeout_s: float | None = None
    grace_s: float = 5.0
    prepare: str | None = None
    conclude: str | None = None
    cooldown_s: float = 0.0
    until_idle: IdleWatch | None = None
    output_limit_bytes: int = 1 << 30
    environment: Sequence[tuple[str, str]] = ()
    proof: Cadence | None = None
    counters: CounterPlan | None = None
    series: Path | None = None  # below which series are read; None: there are none
    placements: tuple[Placement, ...] | None = None  # None: not bound
    directory: str | None = None  # where all copies work; None: each in its own
    on_event: Callable[[Event, Supervisor], None] = lambda event, supervisor: None
    work: Path = field(init=False)
    use_cgroup: bool = True

    def run(self, scripts: dict[str, str], copies: int, plan: Plan | None = None) -> Seen:
        """Run each script (by benchmark name) with `sh -c`, homogeneous unless a plan says else."""
        plan = plan or make_plan(list(scripts), copies)
        self.work = self.folder / "work"
        self.work.mkdir()
        identity = str(uuid.uuid4())
        placements = self.placements or tuple(
            Placement(
                copy=copy,
                cpus=None,
                cpu=None,
                core=None,
                llc=None,
                node=None,
                package=None,
                memory_policy=MemoryPolicy.NONE,
                memory_nodes=(),
            )
            for copy in range(copies)
        )
        expected = (
            ()
            if self.expected is None
            else (
                Expected(
                    file="stdout", text=self.expected, absolute_tolerance=0, relative_tolerance=0
                ),
            )
        )
        programs = {
            name: Program(
                name=name,
                argv=("/bin/sh", "-c", script),
                inputs=(),
                expected=expected,
                directory=self.directory,
                metrics=self.metrics,
            )
            for name, script in scripts.items()
        }
        folders = RunFolders(
            self.work, identity, programs, placements, self.environment, keep=self.keep
        )
        job = Job(
            plan=plan,
            placements=placements,
            workplace=folders,
            work=self.work,
            timeout_s=self.timeout_s,
            grace_s=self.grace_s,
            prepare=self.prepare,
            conclude=self.conclude,
            cooldown_s=self.cooldown_s,
            until_idle=self.until_idle,
            output_limit_bytes=self.output_limit_bytes,
            proof=self.proof,
            counters=self.counters,
            series=self.series,
        )
        events: list[Event] = []
        with (
            guard(identity, copies, use_cgroup=self.use_cgroup) as keeper,
            hold_stop_signals() as signals,
        ):

            def emit(event: Event) -> None:
                events.append(event)
                self.on_event(event, supervisor)

            supervisor = Supervisor(job, keeper, emit, signals)
            outcome = trio.run(supervisor.run)
        if "rater and its launcher disagree" in str(outcome.reason):
            raise AssertionError(outcome.reason)
        return Seen(outcome, events)
