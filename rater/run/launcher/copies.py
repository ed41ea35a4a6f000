"""A copy of a phase, and its runs as processes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from rater.plan.schedule import Step
from rater.record.events import GateFacts
from rater.run.launcher.child_state import ChildState, IllegalMoveError, Move, next_state
from rater.run.launcher.launcher import Launcher
from rater.run.launcher.table import Record, RequestKind


class CopySpec(Struct, frozen=True, kw_only=True):
    """Everything needed to start one step of one copy; paths as text."""

    argv: tuple[str, ...]
    shared_variables: Mapping[bytes, bytes]  # one object for all copies of a program
    directory: str  # working directory of the copy
    output: str  # begin of the names of its files: "DIR/" of its own, or "DIR/name."
    workloads: int = 0  # commands whose ends its script reports
    own_variables: Mapping[bytes, bytes] = field(default_factory=dict)
    accepted: tuple[int, ...] = ()  # exit codes that are no failure, beside 0
    # Huge pages by the kernel's setting, or none; None: the copy keeps the setting of rater.
    transparent: bool | None = None
    # Its files serve every second run of the copy, which the launcher starts by itself: they are
    # cleared when the phase is over.
    has_lasting_files: bool = False

    @property
    def environment(self) -> dict[bytes, bytes]:
        """All variables of the copy."""
        return {**self.shared_variables, **self.own_variables}

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


class StopReason(StrEnum):
    """Why rater ended a copy, or had to kill what the copy had started."""

    TIMEOUT = "timeout"
    OUTPUT = "output"  # it wrote more than allowed
    STOP = "stop"  # the run ended
    TRACED = "traced"  # it was dead, and a process of its own that traced it held its end back


class EndRemarks(Struct, eq=False):
    """What people are told of one run's end beside its exit code or signal."""

    late_ns: int | None = None  # the end lies up to so long before its stamp; None: in time
    ignored_s: float | None = None  # the run went on for so long after SIGTERM
    exec_errno: int | None = None  # why its program could not be executed
    notes: list[str] = field(default_factory=list)


class Child(Struct, eq=False, kw_only=True):
    """One run of a copy as a process; mutable, on the trio thread.

    `move` alone changes its state. `start_ns` is there from `Move.START` on, `end_record` from
    `Move.END` on.
    """

    # Which run of which copy it is, and what is started.
    launcher: Launcher
    token: int = 0  # its name in records; 0: the launcher has not heard of this run
    copy: int
    position: int  # of the step in the copy's queue
    step: Step
    spec: CopySpec
    # With it the launcher starts a run by itself once this one has begun; it starts none without.
    next_spec: CopySpec | None = None
    phase: int = 0
    repeats: bool = False  # the copy ran this step before in this phase
    after: int = 0  # token of the run with whose end it begins; 0: it begins with the release
    offset_ns: int = 0  # from that release
    # What becomes of it.
    state: ChildState = ChildState.MADE
    pid: int = 0  # 0: the launcher has not said it yet
    planned_ns: int | None = None  # CLOCK_MONOTONIC, as are the next one and those of the record
    start_ns: int | None = None
    end_record: Record | None = None
    is_filler: bool = False  # steady mode: it began after the window had closed, as load for others
    stop_reason: StopReason | None = None
    deadline_s: float = math.inf  # of time.monotonic(): rater's next act is due
    gate_facts: GateFacts | None = None  # None: nobody looked at its gate
    remarks: EndRemarks = field(default_factory=EndRemarks)

    def move(self, move: Move) -> None:
        """Take a move to the next state; raises `IllegalMoveError`, and stays as before then."""
        try:
            self.state = next_state(self.state, move)
        except IllegalMoveError as error:
            raise IllegalMoveError(f"{self.label}: {error}") from error

    @property
    def has_begun(self) -> bool:
        """Tell whether it was released, though it may have ended since."""
        return self.start_ns is not None

    @property
    def label(self) -> str:
        """The copy in words."""
        return f"copy {self.copy} of {self.step.benchmark}"

    @property
    def exit_code(self) -> int | None:
        """Its exit code, if no signal ended it."""
        assert self.end_record is not None
        code = os.waitstatus_to_exitcode(self.end_record.status)
        return code if code >= 0 else None

    @property
    def signal(self) -> int | None:
        """The signal that ended it."""
        assert self.end_record is not None
        code = os.waitstatus_to_exitcode(self.end_record.status)
        return -code if code < 0 else None

    @property
    def ended_well(self) -> bool:
        """Tell whether it ended with an exit code that is no failure."""
        return self.exit_code in (0, *self.spec.accepted)

    def send(self, number: int) -> None:
        """Send a signal to the copy's process group, and to the copy where it left that."""
        self.launcher.ask(RequestKind.SIGNAL, self.token, number)


class Copy(Struct, eq=False, kw_only=True):
    """One copy in one phase: its queue, the run that goes on, and the one that follows it."""

    number: int
    steps: tuple[Step, ...]
    repeats: bool  # steady mode: the queue begins anew
    child: Child | None = None  # the run that goes on
    latest: Child | None = None  # the run that began last, and may have ended
    coming: Child | None = None  # a run that was sent to the launcher, and has not begun
    is_being_made: bool = False  # a thread makes what the next run needs
    is_last: bool = False  # no further run is to begin
    start_ns: int | None = None  # of its first run, in the run's time
    finish_ns: int | None = None  # of its last run that counts, in the run's time

    @property
    def next_position(self) -> int:
        """The position in the queue that follows the run which began last, from 0."""
        return 0 if self.latest is None else self.latest.position + 1

    @property
    def next_step(self) -> Step:
        """The step at that position, of a copy that is not through."""
        return self.steps[self.next_position % len(self.steps)]

    @property
    def has_own_directory(self) -> bool:
        """Tell whether a directory is made for each run."""
        return self.latest is not None and self.latest.spec.output.endswith("/")

    @property
    def is_through(self) -> bool:
        """Tell whether the last run of the queue has begun."""
        return not self.repeats and self.next_position == len(self.steps)
