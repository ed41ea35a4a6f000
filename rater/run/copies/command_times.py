"""Times of a copy's commands, by what its script reports while it runs: which ended when, and how.

One pipe for all copies of a phase. A line is `PID e N STATUS` when command N of the
script PID has ended, and `PID s N OWN` when it runs as process OWN. Times are those
at which the supervisor sees a line, as they are for ends of copies.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from typing import NamedTuple

from rater.record.events import WorkloadTime
from rater.run.copies.open_files import high_pipe

_BLOCK = 1 << 16


class CommandReport(NamedTuple):
    """One line."""

    kind: str  # "s" or "e"
    workload: int  # from 1
    value: int  # process, or status as a shell has it
    at_ns: int  # CLOCK_MONOTONIC


class CommandReports:
    """The pipe. `write_end` is for the scripts, to be put on their `TELL_FD`."""

    def __init__(self) -> None:
        self.read_end, self.write_end = high_pipe()
        os.set_blocking(self.read_end, False)
        self._by_pid: defaultdict[int, list[CommandReport]] = defaultdict(list)
        self._rest = b""

    def close(self) -> None:
        """Close both ends."""
        os.close(self.read_end)
        os.close(self.write_end)

    def read(self, now_ns: int) -> None:
        """Take in what has been reported by `now_ns`; returns at once."""
        with suppress(BlockingIOError):
            while block := os.read(self.read_end, _BLOCK):
                *lines, self._rest = (self._rest + block).split(b"\n")
                for line in lines:
                    # A benchmark that opens its script's descriptors may write here too.
                    with suppress(ValueError):
                        pid, kind, workload, value = line.split()
                        self._by_pid[int(pid)].append(
                            CommandReport(kind.decode("ascii"), int(workload), int(value), now_ns)
                        )

    def take(self, pid: int) -> list[CommandReport]:
        """Return what a script has reported, in order, and forget it."""
        return self._by_pid.pop(pid, [])


def workload_times(
    reports: list[CommandReport],
    workloads: int,
    span_ns: tuple[int, int],
    exit_code: int | None,
    signal: int | None,
    *,
    origin_ns: int = 0,
) -> tuple[WorkloadTime, ...]:
    """Return the times of the commands of a copy that began, from `origin_ns`.

    `span_ns` is from its release to its end; all are of CLOCK_MONOTONIC. `exit_code` and
    `signal` are those that it ended with, as its last command did.
    """
    pids = {it.workload: it.value for it in reports if it.kind == "s"}
    ends = {it.workload: it for it in reports if it.kind == "e"}
    start_ns, finish_ns = span_ns
    times = []
    for number in range(1, workloads + 1):
        end, at_ns, code, by = ends.get(number), finish_ns, exit_code, signal
        if end is not None:
            code, by = _status(end.value)
            if not end.value:  # the script ends with the one that failed
                at_ns = min(max(end.at_ns, start_ns), finish_ns)
        times.append(
            WorkloadTime(
                number,
                start_ns - origin_ns,
                at_ns - origin_ns,
                at_ns - start_ns,
                code,
                by,
                pids.get(number),
            )
        )
        start_ns = at_ns
        if end is None or end.value:
            break
    return tuple(times)


def _status(value: int) -> tuple[int | None, int | None]:
    """Return exit code and signal for what a shell calls status (see `programs.script`)."""
    return (None, value - 128) if 128 < value <= 192 else (value, None)
