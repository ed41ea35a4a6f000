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


class Ends:
    """The living copies of a phase, by pidfd in `alive`; on the trio thread.

    `commands`: scripts report the commands they run. `at_once`: a copy's end is what its
    next run waits for.
    """

    def __init__(self, *, commands: bool, at_once: bool) -> None:
        self.alive: dict[int, Child] = {}
        self._gather_s = 0.0 if at_once else _GATHER_S
        self._epoll = select.epoll()
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
        self._epoll.register(child.pidfd, select.EPOLLIN | select.EPOLLONESHOT)

    def forget(self, child: Child) -> None:
        """Expect the end of a copy no more."""
        del self.alive[child.pidfd]
        os.close(child.pidfd)  # which takes it out of the epoll as well

    @property
    def flooded(self) -> bool:
        """Tell whether a copy floods the pipe that scripts report by."""
        return self._reports is not None and self._reports.flooded

    async def wait(self) -> None:
        """Wait for an end, or for a script's report."""
        await trio.lowlevel.wait_readable(self._epoll.fileno())

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
        for fd, _ in ready:
            child = self.alive.pop(fd, None)
            if child is not None:
                ended.append((child, now))
            else:
                assert self._reports is not None
                self._reports.read(now)

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
