"""Living copies, and their ends: stamped the moment they come, handled when there is time."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Iterator

import trio

from rater.record.events import WorkloadTime
from rater.run.copies.command_times import CommandReports, workload_times
from rater.run.copies.launch import Child, Reaped

# Ends come in bursts, and a copy's end is handled on a CPU that others still run on: what ends
# within this time is only stamped at first. After a kill -9 it is missing, with what the recorder
# gathers (`sinks`).
_GATHER_S = 0.02
# Whoever waits cannot tell a late wake-up: so the ends are looked for this often, and where that
# too comes late by more, rater itself did not run (stopped, no CPU, the machine paused).
_BEAT_NS = 250_000_000
_LONGEST_BEAT_NS = 1_000_000_000
_LATE_NS = 750_000_000  # a full machine, a slow virtual one: half a second was seen
_PER_CENT = 100  # of a copy's time: beats and lateness below that do not matter to it


def asleep_ns() -> int:
    """Return for how long the machine has been suspended since it started, which no time has."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()


class Ends:
    """The living copies of a phase, by pidfd in `alive`; on the trio thread.

    `commands`: scripts report the commands they run. `at_once`: a copy's end is what its
    next run waits for.
    """

    def __init__(self, *, commands: bool, at_once: bool) -> None:
        self.alive: dict[int, Child] = {}
        self._gather_s = 0.0 if at_once else _GATHER_S
        self._epoll = select.epoll()
        self._seen_ns = time.monotonic_ns()  # what had ended until then is known,
        self._beat_ns = _BEAT_NS  # and so much later the next look is due
        self._newest_ns = 0  # when the youngest copy was taken in
        self._asleep_ns = asleep_ns()
        self.stalls: tuple[int, ...] = ()  # how long rater did not run, each time (ns)
        self._reports = CommandReports() if commands else None
        if self._reports:
            self._epoll.register(self._reports.read_end, select.EPOLLIN)

    @property
    def commands_fd(self) -> int | None:
        """The end of the pipe that scripts report their commands by."""
        return self._reports.write_end if self._reports else None

    def close(self) -> None:
        """Close descriptors of its own; living copies keep theirs."""
        self._epoll.close()
        if self._reports:
            self._reports.close()

    def expect(self, child: Child) -> None:
        """Take a copy in."""
        if self._reports:
            self._reports.expect(child.pid, child.spec.workloads)
        self.alive[child.pidfd] = child
        self._newest_ns = time.monotonic_ns()
        self._epoll.register(child.pidfd, select.EPOLLIN | select.EPOLLONESHOT)

    def forget(self, child: Child) -> None:
        """Expect the end of a copy no more."""
        del self.alive[child.pidfd]
        os.close(child.pidfd)  # which takes it out of the epoll as well

    @property
    def flooded(self) -> bool:
        """Tell whether a copy floods the pipe that scripts report by."""
        return self._reports is not None and self._reports.flooded

    @property
    def slept_ns(self) -> int:
        """How long the machine was suspended meanwhile; reading two clocks takes part of it."""
        return asleep_ns() - self._asleep_ns

    async def wait(self) -> None:
        """Wait for an end, or for a script's report."""
        await trio.lowlevel.wait_readable(self._epoll.fileno())

    def released(self) -> None:
        """Take note that no copy has ended until now."""
        self._seen_ns = time.monotonic_ns()

    async def beat(self) -> None:
        """Wait for the next look that is due though nothing may have ended."""
        age_ns = time.monotonic_ns() - self._newest_ns
        self._beat_ns = min(max(age_ns // _PER_CENT, _BEAT_NS), _LONGEST_BEAT_NS)
        await trio.sleep(self._beat_ns / 1e9)

    def gather(self) -> Iterator[tuple[Child, int]]:
        """Return the copies that have ended, and end in a moment, each with its time."""
        return self.take(self._gather_s)

    def take(self, gather_s: float = 0.0) -> Iterator[tuple[Child, int]]:
        """Return the copies that end within so long; those that end meanwhile are stamped too."""
        ended: deque[tuple[Child, int]] = deque()
        until_s = time.monotonic() + gather_s
        self._stamp(ended, 0)
        while ended and self.alive and (left_s := until_s - time.monotonic()) > 0:
            self._stamp(ended, left_s)
        while ended:
            yield ended.popleft()
            self._stamp(ended, 0)

    def _stamp(self, ended: deque[tuple[Child, int]], wait_s: float) -> None:
        """Add what has ended, with its time; wait for the first that does."""
        ready = self._epoll.poll(wait_s)
        now = time.monotonic_ns()
        stalled_ns = now - self._seen_ns - self._beat_ns
        if stalled_ns > _LATE_NS:
            self._stalled([self.alive[fd] for fd, _ in ready if fd in self.alive], now, stalled_ns)
        self._seen_ns = now
        for fd, _ in ready:
            child = self.alive.pop(fd, None)
            if child is not None:
                ended.append((child, now))
            else:
                assert self._reports is not None
                self._reports.read(now)

    def _stalled(self, ended: list[Child], now_ns: int, stalled_ns: int) -> None:
        """Mark what ended while rater did not run: since it was last looked for, or its start."""
        self.stalls += (stalled_ns,)
        for child in ended:
            if child.start_ns is not None and stalled_ns * _PER_CENT > now_ns - child.start_ns:
                child.late_ns = now_ns - max(self._seen_ns, child.start_ns)

    def workloads(
        self, child: Child, reaped: Reaped, now_ns: int, origin_ns: int
    ) -> tuple[WorkloadTime, ...]:
        """Return the times of an ended copy's commands, in the run's time."""
        if not self._reports or not child.spec.workloads:
            return ()
        assert child.start_ns is not None
        self._reports.read(now_ns)
        return workload_times(
            self._reports.take(child.pid),
            child.spec.workloads,
            (child.start_ns, now_ns),
            reaped.exit_code,
            reaped.signal,
            origin_ns=origin_ns,
        )
