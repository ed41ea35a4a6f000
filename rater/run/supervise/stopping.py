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
from rater.run.launcher.copies import Child
from rater.run.launcher.guard import Guard
from rater.run.programs.child_process import cut, written_bytes
from rater.run.supervise.job import Job

# -- Ending copies before they end: the time limit, SIGTERM, and SIGKILL after the grace -----------

_DEATH_S = 5.0  # so long a copy may take to die of SIGKILL,
_LAST_DEATH_S = 1.0  # or so long when the user has asked twice


class Stopper:
    """Asks copies to end, and makes them; `run` is a task beside the phase.

    `children` are those that are not over, by token. `give_up` is told of one that cannot be
    killed, `ending` of one that is asked to end.
    """

    def __init__(
        self,
        job: Job,
        children: Mapping[int, Child],
        give_up: Callable[[Child], None],
        ending: Callable[[Child], None],
    ) -> None:
        self._job = job
        self._children = children
        self._give_up = give_up
        self._before_end = ending
        self._until_s = math.inf  # nothing is due before
        self._changed = trio.Event()

    def hold_to_time_limit(self, child: Child) -> None:
        """Hold a copy that was just released to the time limit, if there is one."""
        if self._job.timeout_s is not None:
            assert child.start_ns is not None
            self._set_due(child, child.start_ns / 1e9 + self._job.timeout_s)

    def ask_to_end(self, child: Child) -> None:
        """Send SIGTERM; what still lives after the grace is killed."""
        self._before_end(child)
        child.send(signal.SIGTERM)
        child.send(signal.SIGCONT)  # a stopped process must run to take its SIGTERM
        self._set_due(child, time.monotonic() + self._job.grace_s)

    def kill(self, child: Child, *, last: bool = False) -> None:
        """Kill a copy; one that does not die of it is given up. `last`: soon."""
        self._before_end(child)
        child.send(signal.SIGKILL)
        due_s = time.monotonic() + (_LAST_DEATH_S if last else _DEATH_S)
        self._set_due(child, min(due_s, child.due_s) if child.killed else due_s)
        child.killed = True

    def pause(self, pause_s: float) -> None:
        """Move the time limits on by the time that copies were stopped (Ctrl-Z)."""
        for child in self._children.values():
            if child.stop_reason is None:
                child.due_s += pause_s

    def _set_due(self, child: Child, due_s: float) -> None:
        child.due_s = due_s
        if due_s < self._until_s:
            self._changed.set()

    async def run(self) -> None:
        """Sleep until the next copy is due, until cancelled."""
        while True:
            now_s = time.monotonic()
            for child in [it for it in self._children.values() if it.due_s <= now_s]:
                self._escalate(child)
            self._changed = trio.Event()
            self._until_s = min((it.due_s for it in self._children.values()), default=math.inf)
            with trio.move_on_after(max(0.0, self._until_s - time.monotonic())):
                await self._changed.wait()

    def _escalate(self, child: Child) -> None:
        if child.killed:
            self._give_up(child)
        elif child.stop_reason is not None:
            child.ignored_s = self._job.grace_s
            self.kill(child)
        else:
            child.stop_reason = "timeout"
            child.notes.append(f"ran longer than {self._job.timeout_s:g} s")
            self.ask_to_end(child)


# -- No copy fills the disk: outputs are watched while copies run ----------------------------------

_CHECK_S = 1.0
_RESERVE_BYTES = 64 << 20  # below this much free space the largest writer is stopped
_WORTH_STOPPING_BYTES = 1 << 20


async def watch_disk(
    job: Job, children: Mapping[int, Child], kill: Callable[[Child], None]
) -> None:
    """Stop a copy that writes more output than allowed, before the disk is full.

    One system call a second while the disk does not shrink by more than the limit.
    """
    free_before = _free_bytes(job.work)
    while True:
        await trio.sleep(_CHECK_S)
        free = _free_bytes(job.work)
        full = free < _RESERVE_BYTES
        if not full and free_before - free < job.output_limit_bytes:
            continue
        running = [it for it in children.values() if it.start_ns is not None]
        sizes = [(written_bytes((it.spec.stdout, it.spec.stderr)), it.token, it) for it in running]
        for written, _, child in sorted(sizes, reverse=True):
            over = written > job.output_limit_bytes
            if child.stop_reason is None and (over or (full and written > _WORTH_STOPPING_BYTES)):
                limit = (
                    f"the limit of {job.output_limit_bytes / 1e6:.0f} MB (--output-limit)"
                    if over
                    else "the disk can hold"
                )
                child.stop_reason = "output"
                child.notes.append(f"wrote {written / 1e6:.0f} MB of output, more than {limit}")
                kill(child)
                cut((child.spec.stdout, child.spec.stderr))
                full = False


def _free_bytes(folder: Path) -> int:
    now = os.statvfs(folder)
    return now.f_bavail * now.f_frsize


# -- Dead copies that something of their own traces: until that dies their end is told to nobody --

_LOOKED_AT = 8  # copies, each second


async def free_traced(children: Mapping[int, Child], guard: Guard) -> None:
    """Kill what a dead copy left, where it traces the copy; a few are looked at each time."""
    at = 0
    while True:
        await trio.sleep(_CHECK_S)
        running = [it for it in children.values() if it.start_ns is not None]
        for number in range(at, at + min(_LOOKED_AT, len(running))):
            child = running[number % len(running)]
            status = status_of(child.pid)
            if not (status.tracer and status.state.startswith("Z")) or child.orphaned:
                continue
            if guard.kill_orphans(child.pid, child.copy):
                child.orphaned = True
                child.stop_reason = child.stop_reason or "traced"
                child.notes.append(
                    f"it was dead, and process {status.tracer} that it had started traced it: when "
                    "it ended is not known"
                )
        at += _LOOKED_AT


# -- Steady mode's window: which runs count, and when nothing that counts runs any more ------------
#
# A run that began before the window closed counts, by its share inside; it has to
# end for that share to be known. Copies that end before the last of these begin
# once more (fillers), so that it ends under the same load as the others.


class WindowWatch:
    """The window of one phase; on the trio thread."""

    def __init__(self, window: Window, copies: int) -> None:
        self._window = window
        self._copies_to_warm_up = copies if window.grows else 0  # copies that have not run once
        self._begin_ns: int | None = None  # CLOCK_MONOTONIC of the phase's first release
        self._opens_ns: int | None = None  # None: not known yet
        self.runs_that_count = 0  # runs that count and still go
        self.closed = False  # nothing that counts runs any more
        self._is_over = False  # the clock says so; ends before that may still be on their way here
        self._spoiled = False

    def note_start(self, now_ns: int) -> bool:
        """Take the time of a release, the first one sets the window; tell whether it is a filler's.

        Fillers do not count: the window has closed, or was taken for closed before this was told.
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
        """Take note that copies stood still; tell whether the window says nothing for it."""
        self._spoiled |= self._begin_ns is not None and not self.closed
        return self._spoiled

    def bounds_ns(self, origin_ns: int) -> tuple[int, int] | None:
        """Return begin and end of the window in the run's time.

        None if it did not close, or copies stood still in it.
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
