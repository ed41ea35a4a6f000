"""Copies ended before they end: time limits, signals, full disks, steady mode's window."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import trio

from rater.plan.schedule import Window
from rater.run.host.procfs import status_of
from rater.run.launcher.child_state import ChildState, Move, can_move
from rater.run.launcher.copies import Child, StopReason
from rater.run.launcher.guard import Guard
from rater.run.programs.child_process import cut, written_bytes
from rater.run.supervise.ends import MATTERS_PER
from rater.run.supervise.job import Job

# -- Copies that are to end: the time limit, SIGTERM, and SIGKILL after the grace ------------------

_DEATH_S = 5.0  # a copy that lives on for so long after SIGKILL is given up
_LAST_DEATH_S = 1.0  # the same where somebody waits for the end of rater


class Stopper:
    """Asks copies to end, and kills those that do not; `run` is a task beside the phase.

    `children` are the runs that are not over, by token. `give_up` is called for one that does not
    die of SIGKILL, `before_end` for one that is asked to end or killed.
    """

    def __init__(
        self,
        job: Job,
        children: Mapping[int, Child],
        give_up: Callable[[Child], None],
        before_end: Callable[[Child], None],
    ) -> None:
        self._job = job
        self._children = children
        self._give_up = give_up
        self._before_end = before_end
        self._wakes_s = math.inf  # time.monotonic(): no deadline lies before
        self._has_earlier_deadline = trio.Event()

    def hold_to_time_limit(self, child: Child) -> None:
        """Give a copy that was just released its time limit, if there is one."""
        if self._job.timeout_s is not None:
            assert child.start_ns is not None
            self._set_deadline(child, child.start_ns / 1e9 + self._job.timeout_s)

    def ask_to_end(self, child: Child) -> None:
        """Send SIGTERM; a copy that still lives after the grace is killed."""
        child.move(Move.ASK)
        self._before_end(child)
        child.send(signal.SIGTERM)
        child.send(signal.SIGCONT)  # a stopped process must run to take its SIGTERM
        self._set_deadline(child, time.monotonic() + self._job.grace_s)

    def kill(self, child: Child, *, last: bool = False) -> None:
        """Kill a copy, which is given up if it does not die of that. `last`: given up soon."""
        was_killed = _was_killed(child.state)
        self._send_kill(child)
        deadline_s = time.monotonic() + (_LAST_DEATH_S if last else _DEATH_S)
        # A second SIGKILL changes nothing, so it does not put off that the copy is given up.
        self._set_deadline(child, min(deadline_s, child.deadline_s) if was_killed else deadline_s)

    def kill_all(self, *, last: bool = False) -> None:
        """Kill every living copy."""
        for child in [*self._children.values()]:
            self.kill(child, last=last)

    def kill_freed(self, child: Child) -> None:
        """Kill a copy once more whose descendants were killed: now it may die of SIGKILL."""
        self._send_kill(child)
        self._set_deadline(child, time.monotonic() + _LAST_DEATH_S)

    def _send_kill(self, child: Child) -> None:
        child.move(Move.KILL)
        self._before_end(child)
        child.send(signal.SIGKILL)

    def pause(self, pause_s: float) -> None:
        """Move the time limits on by the time that copies were stopped (Ctrl-Z)."""
        for child in self._children.values():
            if child.stop_reason is None:
                child.deadline_s += pause_s

    def _set_deadline(self, child: Child, deadline_s: float) -> None:
        child.deadline_s = deadline_s
        if deadline_s < self._wakes_s:
            self._has_earlier_deadline.set()

    async def run(self) -> None:
        """Act at each copy's deadline, and sleep between them, until cancelled."""
        while True:
            now_s = time.monotonic()
            due = [child for child in self._children.values() if child.deadline_s <= now_s]
            for child in due:
                self._escalate(child)
            self._has_earlier_deadline = trio.Event()
            deadlines_s = (child.deadline_s for child in self._children.values())
            self._wakes_s = min(deadlines_s, default=math.inf)
            with trio.move_on_after(max(0.0, self._wakes_s - time.monotonic())):
                await self._has_earlier_deadline.wait()

    def _escalate(self, child: Child) -> None:
        """Take the next step with a copy whose deadline is over: ask, kill, or give up."""
        if _was_killed(child.state):
            self._give_up(child)
        elif child.stop_reason is not None:
            child.remarks.ignored_s = self._job.grace_s
            self.kill(child)
        else:
            child.stop_reason = StopReason.TIMEOUT
            child.remarks.notes.append(f"ran longer than {self._job.timeout_s:g} s")
            self.ask_to_end(child)


def _was_killed(state: ChildState) -> bool:
    return state in (ChildState.KILLED, ChildState.KILLED_AT_GATE, ChildState.KILLED_ALONE)


# -- No copy fills the disk: outputs are watched while copies run ----------------------------------

_CHECK_S = 1.0  # between two looks, of the disk and of traced copies
_RESERVE_BYTES = 64 << 20  # below this much free space the largest writer is stopped
_WORTH_STOPPING_BYTES = 1 << 20  # of output; a copy that wrote less does not fill the disk


async def watch_disk(
    job: Job,
    children: Mapping[int, Child],
    kill: Callable[[Child], None],
    free_before_bytes: int,
) -> None:
    """Stop a copy that writes more output than allowed, before the disk is full.

    One system call a second while the disk does not shrink by more than the limit since there
    were `free_before_bytes`.
    """
    while True:
        await trio.sleep(_CHECK_S)
        free_bytes = free_bytes_of(job.work)
        is_full = free_bytes < _RESERVE_BYTES
        if is_full or free_before_bytes - free_bytes >= job.output_limit_bytes:
            _stop_writers(job.output_limit_bytes, children, kill, is_full=is_full)


def _stop_writers(
    limit_bytes: int,
    children: Mapping[int, Child],
    kill: Callable[[Child], None],
    *,
    is_full: bool,
) -> None:
    """Stop copies beyond the limit; of a full disk the largest writer, though within the limit."""
    running = [child for child in children.values() if child.has_begun]
    sizes_bytes = {
        child.token: written_bytes((child.spec.stdout, child.spec.stderr)) for child in running
    }
    for child in sorted(running, key=lambda child: sizes_bytes[child.token], reverse=True):
        size_bytes = sizes_bytes[child.token]
        is_over_limit = size_bytes > limit_bytes
        fills_disk = is_full and size_bytes > _WORTH_STOPPING_BYTES
        if child.stop_reason is not None or not (is_over_limit or fills_disk):
            continue
        limit = (
            f"the limit of {limit_bytes / 1e6:.0f} MB (--output-limit)"
            if is_over_limit
            else "the disk can hold"
        )
        child.stop_reason = StopReason.OUTPUT
        child.remarks.notes.append(f"wrote {size_bytes / 1e6:.0f} MB of output, more than {limit}")
        kill(child)
        cut((child.spec.stdout, child.spec.stderr))
        is_full = False


def free_bytes_of(folder: Path) -> int:
    """Return the free space of the file system that a folder is on."""
    file_system = os.statvfs(folder)
    return file_system.f_bavail * file_system.f_frsize


# -- Dead copies that one of their descendants traces: until that dies nobody is told of their end -

_TRACED_LOOKS = 8  # copies that are looked at each second, so that thousands cost no more


async def free_traced(children: Mapping[int, Child], guard: Guard) -> None:
    """Kill the descendants of dead copies that one of them traces, a few copies at a time."""
    next_place = 0
    while True:
        await trio.sleep(_CHECK_S)
        running = [child for child in children.values() if child.has_begun]
        for place in range(next_place, next_place + min(_TRACED_LOOKS, len(running))):
            _free_if_traced(running[place % len(running)], guard)
        next_place += _TRACED_LOOKS


def _free_if_traced(child: Child, guard: Guard) -> None:
    status = status_of(child.pid)
    is_traced_zombie = status.tracer and status.state.startswith("Z")
    if not is_traced_zombie or not can_move(child.state, Move.FREE):
        return
    if guard.kill_orphans(child.pid, child.copy):
        child.move(Move.FREE)
        child.stop_reason = child.stop_reason or StopReason.TRACED
        child.remarks.notes.append(
            f"it was dead, and process {status.tracer} that it had started traced it: when it "
            "ended is not known"
        )


# -- Steady mode's window: which runs count, and when none of these goes on any more ---------------
#
# A run that began before the window closed counts by its share inside, which is known once the
# run has ended. Copies that end before the last of these runs begin once more, as fillers, so
# that this run ends under the same load as the others.


class WindowWatch:
    """The window of one phase; on the trio thread."""

    def __init__(self, window: Window, copies: int) -> None:
        self._window = window
        self._copies_to_warm_up = copies if window.grows else 0  # those that have not run once
        self._begin_ns: int | None = None  # CLOCK_MONOTONIC of the phase's first release
        self._opens_ns: int | None = None  # None: not known yet
        self.runs_that_count = 0  # of those that have not ended
        self.closed = False  # nothing that counts runs any more
        self._is_over = False  # by the clock; records of ends before that may still be on their way
        self._spoiled = False
        self._stalled_ns = 0  # for which the launcher began no run that was due

    def note_start(self, now_ns: int) -> bool:
        """Take the time of a start; tell whether the run is a filler, which does not count.

        The first start sets the window. A run is a filler where the window has closed, or was
        taken for closed before rater read of this start.
        """
        if self._begin_ns is None:
            self._begin_ns = now_ns
            if not self._copies_to_warm_up:
                self._opens_ns = now_ns + self._window.warmup_ns
        if self.closed or self.is_past(now_ns):
            return True
        self.runs_that_count += 1
        return False

    def is_past(self, now_ns: int) -> bool:
        """Tell whether the window has closed: what starts now does not count."""
        return self._opens_ns is not None and now_ns >= self._opens_ns + self._window.length_ns

    def note_end(self, now_ns: int, *, first: bool) -> bool:
        """Take note that a run (`first`: of its copy) has ended; tell whether it was the last."""
        self.runs_that_count -= 1
        self._copies_to_warm_up -= first
        if self._opens_ns is None and not self._copies_to_warm_up and self._begin_ns is not None:
            grown_ns = (now_ns - self._begin_ns) * 3 // 2  # the next runs can be longer
            self._opens_ns = self._begin_ns + max(self._window.warmup_ns, grown_ns)
        return not self.runs_that_count and (self._is_over or self.is_past(now_ns))

    def note_suspension(self) -> bool:
        """Take note that copies stood still; tell whether the window is spoiled by that."""
        self._spoiled |= self._begin_ns is not None and not self.closed
        return self._spoiled

    def note_stall(self, stall_ns: int) -> None:
        """Take note that the launcher did not run; the window is spoiled where that matters."""
        if self._begin_ns is not None and not self.closed:
            self._stalled_ns += stall_ns
            self._spoiled |= self._stalled_ns * MATTERS_PER > self._window.length_ns

    @property
    def stalled_ns(self) -> int | None:
        """For how long the launcher did not run in a window that is spoiled by that."""
        is_much = self._stalled_ns * MATTERS_PER > self._window.length_ns
        return self._stalled_ns if is_much else None

    def bounds_ns(self, origin_ns: int) -> tuple[int, int] | None:
        """Return begin and end of the window in the run's time.

        None if it did not close, or copies or the launcher stood still in it.
        """
        if self._spoiled or self._opens_ns is None or not self.is_past(time.monotonic_ns()):
            return None
        opens_ns = self._opens_ns - origin_ns
        return opens_ns, opens_ns + self._window.length_ns

    async def run(self, close: Callable[[], None]) -> None:
        """Call `close` at the window's end if no run that counts goes on then."""
        while not self.is_past(now_ns := time.monotonic_ns()):
            opens_ns = now_ns if self._opens_ns is None else self._opens_ns  # or later
            await trio.sleep(max(0, opens_ns + self._window.length_ns - now_ns) / 1e9)
        self._is_over = True
        if not self.runs_that_count and not self.closed:
            close()
