"""Ends of copies: stamped the moment they come, in the run's words, with times of commands."""

from __future__ import annotations

import os
import select
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import trio

from rater.record.events import CopyEnded, ResidentMemory, WorkloadTime
from rater.record.run import LEFT_BEHIND, CopyStatus, Validity, escape_undecodable
from rater.run.copies.launch import Child, ExitInfo
from rater.run.copies.limits import KernelKills, pipe_above_gate_descriptors
from rater.run.programs.script import failed_command
from rater.text.values import to_dict

# -- Times of a copy's commands, by what its script reports while it runs: which ended when, and how
#
# One pipe for all copies of a phase. A line is `PID e N STATUS` when command N of the
# script PID has ended, and `PID s N OWN` when it runs as process OWN. Times are those
# at which the supervisor sees a line, as they are for ends of copies.

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
        self.read_end, self.write_end = pipe_above_gate_descriptors()
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
    well: Sequence[int] = (0,),
    origin_ns: int = 0,
) -> tuple[WorkloadTime, ...]:
    """Return the times of the commands of a copy that began, from `origin_ns`.

    `span_ns` is from its release to its end; all are of CLOCK_MONOTONIC. `exit_code` and
    `signal` are those that it ended with, as its last command did. After a status of `well`
    the script goes on.
    """
    pids = {it.workload: it.value for it in reports if it.kind == "s"}
    ends = {it.workload: it for it in reports if it.kind == "e"}
    start_ns, finish_ns = span_ns
    times = []
    for number in range(1, workloads + 1):
        end, at_ns, code, by = ends.get(number), finish_ns, exit_code, signal
        if end is not None:
            code, by = _status(end.value)
            if end.value in well:  # the script ends with the one that failed
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
        if end is None or end.value not in well:
            break
    return tuple(times)


def _status(value: int) -> tuple[int | None, int | None]:
    """Return exit code and signal for what a shell calls status (see `programs.script`)."""
    return (None, value - 128) if 128 < value <= 192 else (value, None)


# -- What a copy's end means: its status in the run's words, and the event that says so ------------

_STOPPED = {  # by why rater ended a copy
    "timeout": CopyStatus.TIMEOUT,
    "stop": CopyStatus.INTERRUPTED,
    "output": CopyStatus.FAILED,
}
_SHELL_CODES = {
    126: "exit code 126: it could not be executed, or says so itself; see its stderr",
    127: "exit code 127: a program was not found; see its stderr",
}


def ended_event(
    child: Child,
    reaped: ExitInfo,
    phase: int,
    origin_ns: int,
    now_ns: int,
    *,
    kills: KernelKills,
    expects: bool,
    keeps: bool,
    workloads: tuple[WorkloadTime, ...] = (),
    memory: ResidentMemory | None = None,
) -> CopyEnded:
    """Return the event of a released copy that was reaped.

    `origin_ns` (the run's first release) and `now_ns` (the copy's end) are of
    CLOCK_MONOTONIC; `expects`: its output will be judged; `keeps`: files of good
    copies stay.
    """
    assert child.start_ns is not None
    usage = reaped.usage
    status, note = _verdict(child, reaped, kills)
    delay_ns = delay_cpu_ns = None
    if child.sched is not None:
        times = (child.sched, *child.other_threads)
        delay_ns = max(0, sum(it.delay_ns for it in times) - child.gate_delay_ns)
        delay_cpu_ns = max(0, sum(it.cpu_ns for it in times) - child.gate_cpu_ns)
    kept = keeps or status not in (CopyStatus.OK, CopyStatus.INTERRUPTED)
    return CopyEnded(
        phase=phase,
        benchmark=child.step.benchmark,
        iteration=child.step.iteration,
        copy=child.copy,
        step=child.position,
        pid=child.pid,
        start_ns=child.start_ns - origin_ns,
        planned_start_ns=None if child.planned_ns is None else child.planned_ns - origin_ns,
        finish_ns=now_ns - origin_ns,
        status=status,
        exit_code=reaped.exit_code,
        signal=reaped.signal,
        user_ns=round(usage.ru_utime * 1e9),
        system_ns=round(usage.ru_stime * 1e9),
        gate_cpu_ns=child.gate_cpu_ns,
        max_rss_bytes=reaped.max_rss_bytes,
        minor_faults=usage.ru_minflt,
        major_faults=usage.ru_majflt,
        voluntary_switches=usage.ru_nvcsw,
        involuntary_switches=usage.ru_nivcsw,
        note=note,
        run_dir=escape_undecodable(child.spec.files) if kept else None,
        validity=Validity.UNCHECKED if expects else Validity.NOT_CHECKED,
        gate=child.gate_facts,
        last_cpu=child.last_cpu,
        workloads=workloads,
        late_ns=child.late_ns,
        run_delay_ns=delay_ns,
        run_delay_cpu_ns=delay_cpu_ns,
        **(to_dict(memory) if memory else {}),
    )


def how_it_ended(reaped: ExitInfo) -> str:
    """Return exit code or signal in words."""
    if reaped.signal is not None:
        return f"signal {reaped.signal}"
    return f"exit code {reaped.exit_code}"


def _verdict(child: Child, reaped: ExitInfo, kills: KernelKills) -> tuple[CopyStatus, str | None]:
    notes = list(child.notes)
    if reaped.left_group:
        notes.append(f"{LEFT_BEHIND} in its process group; they were killed")
    if child.ignored_s is not None:
        killed = ", killed" if reaped.signal == signal.SIGKILL else ""
        notes.append(f"ignored SIGTERM for {child.ignored_s:g} s{killed}")
    if child.late_ns is not None:
        notes.append(
            f"rater itself did not run when it ended: that was up to {child.late_ns / 1e9:.3g} s "
            "before it was stamped"
        )
    if child.stopped_for is not None:
        return _STOPPED[child.stopped_for], "; ".join(notes) or None
    if reaped.exit_code in (0, *child.spec.accepted):
        return CopyStatus.OK if child.late_ns is None else CopyStatus.FAILED, "; ".join(
            notes
        ) or None
    ended_by = failed_command(child.spec.argv, child.spec.stderr, reaped.exit_code, reaped.signal)
    if ended_by:
        in_shared = child.spec.workloads and not child.spec.output.endswith("/")
        notes.append(
            ended_by + (f", in {escape_undecodable(child.spec.directory)}" if in_shared else "")
        )
    # A shell and our script hand on the signal that their command had, whoever sent that.
    number = reaped.signal or (reaped.exit_code or 0) - 128
    cpu_s = reaped.usage.ru_utime + reaped.usage.ru_stime
    handed_on = reaped.signal is None or ended_by is not None
    cause = kills.cause(number, cpu_s, reaped.limits, handed_on=handed_on)
    cause = cause or _SHELL_CODES.get(reaped.exit_code or 0)
    notes += [cause] if cause else []
    return CopyStatus.FAILED, "; ".join(notes) or None


# -- Living copies, and their ends: stamped the moment they come, handled when there is time -------

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


class ExitWatcher:
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
        self, child: Child, reaped: ExitInfo, now_ns: int, origin_ns: int
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
            well=(0, *child.spec.accepted),
            origin_ns=origin_ns,
        )
