"""Times of a copy's commands, by what its script reports while it runs: which ended when, and how.

One pipe for all copies of a phase. A line is `PID e N STATUS` when command N of the
script PID has ended, and `PID s N OWN` when it runs as process OWN. Times are those
at which the supervisor sees a line, as they are for ends of copies.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from rater.record.events import WorkloadTime
from rater.run.copies.open_files import high_pipe

_BLOCK = 1 << 16  # bytes: all that the pipe holds
_LONGEST_LINE = 256
_MOST_STRANGE = 1 << 20  # bytes that no script has to report


class CommandReport(NamedTuple):
    """One line."""

    kind: str  # "s" or "e"
    workload: int  # from 1
    value: int  # process, or status as a shell has it
    at_ns: int  # CLOCK_MONOTONIC


class CommandReports:
    """The pipe. `write_end` is for the scripts, to be put on their `REPORT_FD`."""

    def __init__(self) -> None:
        self.read_end, self.write_end = high_pipe()
        os.set_blocking(self.read_end, False)
        self._by_pid: dict[int, list[CommandReport]] = {}
        self._due: dict[int, int] = {}  # lines that a script has still to write, by its process
        self._rest = b""
        self._strange = 0  # bytes that are none of these

    def close(self) -> None:
        """Close both ends."""
        os.close(self.read_end)
        os.close(self.write_end)

    def expect(self, pid: int, workloads: int) -> None:
        """Listen to a script of so many commands, which reports two lines of each at most."""
        self._by_pid[pid], self._due[pid] = [], 2 * workloads

    @property
    def flooded(self) -> bool:
        """Tell whether so much came that no script has to report that it is a flood."""
        return self._strange > _MOST_STRANGE

    def read(self, now_ns: int) -> None:
        """Take in what has been reported by `now_ns`; returns at once, whoever goes on writing."""
        with suppress(BlockingIOError):
            block = os.read(self.read_end, _BLOCK)
            if self.flooded:
                return
            *lines, self._rest = (self._rest + block).split(b"\n")
            for line in lines:
                if not self._report(line, now_ns):
                    self._strange += len(line) + 1
            if len(self._rest) > _LONGEST_LINE:
                self._strange += len(self._rest)
                self._rest = b""

    def _report(self, line: bytes, now_ns: int) -> bool:
        """Keep one line; False for one that a benchmark wrote, which opened its script's pipe."""
        try:
            pid, workload, value = map(int, (line.split()[n] for n in (0, 2, 3)))
            kind = line.split()[1].decode("ascii")
        except (ValueError, IndexError):
            return False
        if not self._due.get(pid):
            return False
        self._due[pid] -= 1
        self._by_pid[pid].append(CommandReport(kind, workload, value, now_ns))
        return True

    def take(self, pid: int) -> list[CommandReport]:
        """Return what a script has reported, in order, and forget it."""
        self._due.pop(pid, None)
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
