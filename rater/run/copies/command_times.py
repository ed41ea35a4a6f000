"""What the scripts of copies tell while they run: which command ended when, and how.

One pipe for all copies of a phase. A line is `PID e N STATUS` when command N of the
script PID has ended, and `PID s N OWN` when it runs as process OWN. Times are those
at which the supervisor sees a line, as they are for ends of copies.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass

from rater.record.events import WorkloadTime
from rater.run.copies.gate import high_pipe

_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Told:
    """One line."""

    kind: str  # "s" or "e"
    workload: int  # from 1
    value: int  # process, or status as a shell has it
    at_ns: int  # CLOCK_MONOTONIC


class Teller:
    """The pipe. `write_end` is for the scripts, to be put on their `TELL_FD`."""

    def __init__(self) -> None:
        self.read_end, self.write_end = high_pipe()
        os.set_blocking(self.read_end, False)
        self._told: defaultdict[int, list[Told]] = defaultdict(list)
        self._rest = b""

    def close(self) -> None:
        """Close both ends."""
        os.close(self.read_end)
        os.close(self.write_end)

    def read(self, now_ns: int) -> None:
        """Take in what has been told by `now_ns`; returns at once."""
        with suppress(BlockingIOError):
            while block := os.read(self.read_end, _BLOCK):
                *lines, self._rest = (self._rest + block).split(b"\n")
                for line in lines:
                    self._take(line, now_ns)

    def take(self, pid: int) -> list[Told]:
        """Return what a script has told, in order, and forget it."""
        return self._told.pop(pid, [])

    def _take(self, line: bytes, now_ns: int) -> None:
        # A benchmark that opens its script's descriptors may write here too.
        with suppress(ValueError):
            pid, kind, workload, value = line.split()
            told = Told(kind.decode("ascii"), int(workload), int(value), now_ns)
            self._told[int(pid)].append(told)


def workload_times(
    told: list[Told],
    workloads: int,
    span_ns: tuple[int, int],
    exit_code: int | None,
    signal: int | None,
) -> tuple[WorkloadTime, ...]:
    """Return the times of the commands of a copy that began.

    `span_ns` is from its release to its end, on the clock of `told`; `exit_code` and
    `signal` are those that it ended with, as its last command did. Returned times
    count from the same zero.
    """
    pids = {it.workload: it.value for it in told if it.kind == "s"}
    ends = {it.workload: it for it in told if it.kind == "e"}
    start_ns, finish_ns = span_ns
    times = []
    for number in range(1, workloads + 1):
        end = ends.get(number)
        if end is None:
            times.append(
                WorkloadTime(
                    number,
                    start_ns,
                    finish_ns,
                    finish_ns - start_ns,
                    exit_code,
                    signal,
                    pids.get(number),
                )
            )
            break
        # The script ends with the one that failed.
        at_ns = finish_ns if end.value else min(max(end.at_ns, start_ns), finish_ns)
        code, by = _status(end.value)
        times.append(
            WorkloadTime(number, start_ns, at_ns, at_ns - start_ns, code, by, pids.get(number))
        )
        start_ns = at_ns
        if end.value:
            break
    return tuple(times)


def _status(value: int) -> tuple[int | None, int | None]:
    """Return exit code and signal for what a shell calls status (see `programs.script`)."""
    return (None, value - 128) if 128 < value <= 192 else (value, None)
