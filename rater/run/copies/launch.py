"""A copy as a process: what it is started from, what the launcher does with it, how it ended."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rater.errors import RaterError
from rater.plan.schedule import Step
from rater.record.events import GateFacts
from rater.record.run import Placement
from rater.run.host.procfs import SchedTimes
from rater.run.launcher.inherited import (
    MODES,
    cannot_bind_cpus,
    cannot_bind_memory,
    cannot_fork,
    cannot_go,
)
from rater.run.launcher.launcher import Launcher
from rater.run.launcher.table import Flag, ProcessEntry, Record, Stage


@dataclass(frozen=True, slots=True)
class CopySpec:
    """Everything needed to start one step of one copy; paths as text."""

    argv: tuple[str, ...]
    shared: Mapping[bytes, bytes]  # variables; one object for all copies of a program
    directory: str  # working directory of the copy
    output: str  # what the names of its files begin with: "DIR/" of its own, or "DIR/name."
    workloads: int = 0  # commands that its script reports as they end; 0: it reports none
    own: Mapping[bytes, bytes] = field(default_factory=dict)  # variables of this copy
    accepted: tuple[int, ...] = ()  # exit codes that are no failure, beside 0
    transparent: bool | None = None  # huge pages of the kernel's own accord; None: as it is

    @property
    def environment(self) -> dict[bytes, bytes]:
        """All variables of the copy."""
        return {**self.shared, **self.own}

    @property
    def stdout(self) -> str:
        """The file of its standard output."""
        return f"{self.output}stdout"

    @property
    def stderr(self) -> str:
        """The file of its standard error."""
        return f"{self.output}stderr"

    @property
    def files(self) -> str:
        """Where its files are, for people: a directory, or a pattern of their names."""
        return self.output[:-1] if self.output.endswith("/") else f"{self.output}*"


class StartRequest(NamedTuple):
    """A step that is to be started."""

    copy: int
    position: int  # in the copy's queue
    step: Step
    spec: CopySpec
    after: int = 0  # token of the process whose end it begins with; 0: with all others
    offset_ns: int = 0


@dataclass(slots=True, eq=False)
class Child:
    """One process of a copy. Mutable: the supervisor's only state of it."""

    launcher: Launcher
    token: int  # what the launcher calls it
    copy: int
    position: int  # of the step in the copy's queue
    step: Step
    spec: CopySpec
    pid: int = 0  # 0: it is not at its gate yet
    after: int = 0  # token of the process that it follows; 0: it waits for the release
    shares_gate: bool = False  # with all others that begin at that instant
    planned_ns: int | None = None
    start_ns: int | None = None  # None: still behind the gate
    announced: bool = False  # its CopyStarted was emitted
    gate_facts: GateFacts | None = None  # None: not read
    other_threads: Sequence[SchedTimes] = ()  # of all but the first when they were seen last
    filler: bool = False  # steady mode: only keeps the load up, began after the window had closed
    stopped_for: str | None = None  # "timeout", "output", "stop": why rater ended it
    late_ns: int | None = None  # its end lies up to so long before its stamp; None: in time
    ignored_s: float | None = None  # so long it did not end after SIGTERM
    trouble: RaterError | None = None  # why it did not get to its gate
    not_executed: int | None = None  # errno of its exec
    notes: list[str] = field(default_factory=list)

    @property
    def who(self) -> str:
        """The copy in words."""
        return f"copy {self.copy} of {self.step.benchmark}"

    def send(self, number: int) -> None:
        """Send a signal to the copy's process group, and to the copy where it left that."""
        self.launcher.signal(self.token, number)


_A_TURN = 8


class Starts:
    """Makes processes of a run's copies."""

    def __init__(
        self,
        launcher: Launcher,
        placements: Sequence[Placement],
        *,
        proof: bool,
        ring: bool,
        held: bool,
    ) -> None:
        """`ring`: a copy that failed goes on; `held`: none begins before it is allowed to."""
        self._launcher = launcher
        self._placements = placements
        self._first = Flag.PROOF if proof else Flag(0)
        self._later = self._first | (Flag(0) if ring else Flag.WELL) | (Flag.HELD if held else 0)

    async def start(self, wanted: Sequence[StartRequest]) -> list[Child]:
        """Have the launcher fork them."""
        wanted = self._in_turns(wanted)
        born = [
            Child(
                *(self._launcher, self._launcher.next_token(), *it[:4]),
                after=it.after,
                shares_gate=not it.after and not it.offset_ns,
            )
            for it in wanted
        ]
        await self._launcher.start(
            [self._entry(child, it.offset_ns) for child, it in zip(born, wanted, strict=True)]
        )
        return born

    def _in_turns(self, wanted: Sequence[StartRequest]) -> list[StartRequest]:
        """Return them a few of each CPU in turn, as the launcher moves to the CPU of each.

        With one of each in turn moving is half of what a fork costs; with all of one CPU first,
        copies' first instructions lie twice as far apart (128 on 2 CPUs: 170 ms, not 89).
        """
        number: dict[tuple[int, ...] | None, int] = {}
        before: Counter[tuple[int, ...] | None] = Counter()
        keys = []
        for one in wanted:
            cpus = self._placements[one.copy].cpus
            keys.append((before[cpus] // _A_TURN, number.setdefault(cpus, len(number))))
            before[cpus] += 1
        return [wanted[at] for at in sorted(range(len(wanted)), key=keys.__getitem__)]

    def _entry(self, child: Child, offset_ns: int) -> ProcessEntry:
        spec, place = child.spec, self._placements[child.copy]
        return ProcessEntry(
            token=child.token,
            copy=child.copy,
            argv=[*map(os.fsencode, spec.argv)],
            shared=spec.shared,
            own=spec.own,
            directory=os.fsencode(spec.directory),
            output=os.fsencode(spec.stdout),
            error=os.fsencode(spec.stderr),
            cpus=place.cpus,
            policy=MODES[place.memory_policy],
            nodes=place.memory_nodes,
            transparent=spec.transparent,
            accepted=(0, *spec.accepted),
            after=child.after,
            flags=(self._later if child.after else self._first)
            | (Flag.REPORTS if spec.workloads else 0),
            offset_ns=offset_ns,
        )

    def take_trouble(self, child: Child, record: Record) -> None:
        """Take note of what a process could not do."""
        spec, place, number = child.spec, self._placements[child.copy], record.error
        stage = Stage(record.status)
        match stage:
            case Stage.EXECUTE:
                child.not_executed = number
            case Stage.CPUS | Stage.CPUS_GIVEN:
                child.trouble = cannot_bind_cpus(child.who, place, number, record.text)
            case Stage.MEMORY | Stage.MEMORY_GIVEN:
                refused = stage is Stage.MEMORY
                child.trouble = cannot_bind_memory(
                    child.who, place, number, record.text, refused=refused
                )
            case Stage.FORKED:
                child.trouble = cannot_fork(child.who, number, spec.argv)
            case _:
                where = {Stage.OUTPUT: spec.stdout, Stage.ERROR: spec.stderr}
                path = where.get(stage, spec.directory if stage is Stage.DIRECTORY else "")
                child.trouble = cannot_go(child.who, stage.name.lower(), number, path)
