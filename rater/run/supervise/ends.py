"""Ends of copies as the launcher stamped them, in the run's words, with times of commands."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from rater.record.events import CopyEnded, WorkloadTime
from rater.record.run import (
    LEFT_BEHIND,
    CopyStatus,
    Placement,
    Validity,
    escape_undecodable,
)
from rater.run.launcher.copies import Child, StopReason
from rater.run.launcher.limits import KernelKills
from rater.run.launcher.start_errors import cannot_execute
from rater.run.launcher.table import Record
from rater.run.observe.series import EndedUse
from rater.run.programs.script import failed_command

# -- Times of a copy's commands, by reports of its script: which command ended when, and how
#
# One pipe for all copies of a run. A line is `PID e N STATUS` when command N of the
# script PID has ended, and `PID s N CHILD` when it runs as process CHILD. The time of a
# line is when the launcher sees it, as for ends of copies.

_LONGEST_LINE_BYTES = 256
_MOST_STRANGE_BYTES = 1 << 20  # of lines that are no reports; more are a flood


class CommandReport(NamedTuple):
    """One line of a report."""

    kind: str  # "s": it started; "e": it ended
    workload: int  # from 1
    value: int  # "s": its process; "e": its status as a shell knows it
    at_ns: int  # CLOCK_MONOTONIC


class CommandReports:
    """What the scripts of a phase have reported, by the process of each."""

    def __init__(self) -> None:
        self._by_pid: dict[
            int, tuple[int, list[CommandReport]]
        ] = {}  # the most that may come, and those that came
        self._rest = b""
        self._strange_bytes = 0  # of lines that are no reports

    def expect(self, pid: int, workloads: int) -> None:
        """Listen to a script of so many commands, which reports at most two lines of each."""
        self._by_pid[pid] = (2 * workloads, [])

    @property
    def flooded(self) -> bool:
        """Tell whether lines that are no reports are so many that time stamps suffer from them."""
        return self._strange_bytes > _MOST_STRANGE_BYTES

    def read(self, block: bytes, now_ns: int) -> None:
        """Take in a piece of the pipe that was read at `now_ns`; a line may lie in two pieces."""
        if self.flooded:
            return
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            if not self._keep_line(line, now_ns):
                self._strange_bytes += len(line) + 1
        if len(self._rest) > _LONGEST_LINE_BYTES:
            self._strange_bytes += len(self._rest)
            self._rest = b""

    def _keep_line(self, line: bytes, now_ns: int) -> bool:
        """Keep a report; return False for a line that a benchmark wrote into its script's pipe."""
        try:
            pid, workload, value = map(int, (line.split()[place] for place in (0, 2, 3)))
            kind = line.split()[1].decode("ascii")
        except (ValueError, IndexError):
            return False
        most, kept = self._by_pid.get(pid, (0, []))
        if len(kept) < most:
            kept.append(CommandReport(kind, workload, value, now_ns))
            return True
        return False

    def take(self, pid: int) -> list[CommandReport]:
        """Return the reports of a script in order, and forget them."""
        return self._by_pid.pop(pid, (0, []))[1]


def workload_times(
    reports: list[CommandReport],
    workloads: int,
    span_ns: tuple[int, int],
    exit_code: int | None,
    signal: int | None,
    *,
    accepted: Sequence[int] = (0,),
    origin_ns: int = 0,
) -> tuple[WorkloadTime, ...]:
    """Return the times of the commands of a copy that began, from `origin_ns`.

    `span_ns` is from its release to its end; all are of CLOCK_MONOTONIC. `exit_code` and
    `signal` are those that it ended with, as its last command did. After a status of `well`
    the script goes on.
    """
    if not workloads:
        return ()
    pids = {report.workload: report.value for report in reports if report.kind == "s"}
    ends = {report.workload: report for report in reports if report.kind == "e"}
    start_ns, finish_ns = span_ns
    times = []
    for number in range(1, workloads + 1):
        end, at_ns, end_code, end_signal = ends.get(number), finish_ns, exit_code, signal
        if end is not None:
            end_code, end_signal = _decode_shell_status(end.value)
            if end.value in accepted:  # the script ends with the one that failed
                at_ns = min(max(end.at_ns, start_ns), finish_ns)
        times.append(
            WorkloadTime(
                workload=number,
                start_ns=start_ns - origin_ns,
                finish_ns=at_ns - origin_ns,
                elapsed_ns=at_ns - start_ns,
                exit_code=end_code,
                signal=end_signal,
                pid=pids.get(number),
            )
        )
        start_ns = at_ns
        if end is None or end.value not in accepted:
            break
    return tuple(times)


def _decode_shell_status(value: int) -> tuple[int | None, int | None]:
    """Return exit code and signal of a shell's status (see `programs.script`)."""
    return (None, value - 128) if 128 < value <= 192 else (value, None)


# -- The end of a copy: its status in the run's words, and the event that says so ------------------

_STATUS_BY_STOP_REASON = {
    StopReason.TIMEOUT: CopyStatus.TIMEOUT,
    StopReason.STOP: CopyStatus.INTERRUPTED,
    StopReason.OUTPUT: CopyStatus.FAILED,
    StopReason.TRACED: CopyStatus.FAILED,
}
# An end may be late by a hundredth of the copy's time: less does not change a verdict. The same
# holds of a window in which the launcher did not run.
MATTERS_PER = 100
# The kernel counts resident pages per CPU and adds these counts up lazily, so a peak may be read
# somewhat too high or low.
_RSS_MARGIN = 1.1
_SHELL_CODES = {
    126: "exit code 126: it could not be executed, or says so itself; see its stderr",
    127: "exit code 127: a program was not found; see its stderr",
}


def peak_bytes(record: Record) -> int | None:
    """Return the peak of a copy's memory if it is known.

    It is not known where it lies below the peak of the child at its gate, as exec adds the old
    memory map's peak to the new one's (fs/exec.c).
    """
    peak = record.peak_bytes
    return peak if peak > record.gate_peak_bytes * _RSS_MARGIN else None


def lateness_ns(record: Record) -> int | None:
    """Return how long before its stamp a copy may have ended; None: too short to matter."""
    elapsed_ns, late_ns = record.at_ns - record.start_ns, record.at_ns - record.seen_ns
    matters = min(record.stalled_ns, late_ns) * MATTERS_PER > elapsed_ns
    return late_ns if matters else None


def ended_use(record: Record) -> EndedUse:
    """Return what the kernel counted of a copy's run."""
    return EndedUse(
        cpu_ns=record.user_ns + record.system_ns,
        read_bytes=record.read_bytes,
        written_bytes=record.written_bytes,
    )


def ended_event(
    child: Child,
    origin_ns: int,  # CLOCK_MONOTONIC of the run's first release
    place: Placement,
    *,
    counted: bool,
    kills: KernelKills,
    expects: bool,  # its output will be judged
    keeps: bool,  # files of good copies stay
    workloads: tuple[WorkloadTime, ...] = (),
) -> CopyEnded:
    """Return the event of a released copy that has ended."""
    record = child.end_record
    assert child.start_ns is not None and record is not None
    status, notes = _judge_end(child, record, kills)
    delay_ns, delay_cpu_ns = _scheduler_times(child, record)
    keeps_files = keeps or status not in (CopyStatus.OK, CopyStatus.INTERRUPTED)
    return CopyEnded(
        phase=child.phase,
        benchmark=child.step.benchmark,
        tune=None,
        iteration=child.step.iteration,
        copy=child.copy,
        step=child.position,
        counted=counted,
        cpu=place.cpu,
        core=place.core,
        llc=place.llc,
        node=place.node,
        package=place.package,
        mem_nodes=place.memory_nodes,
        planned_start_ns=None if child.planned_ns is None else child.planned_ns - origin_ns,
        start_ns=child.start_ns - origin_ns,
        finish_ns=record.at_ns - origin_ns,
        elapsed_ns=record.at_ns - child.start_ns,
        status=status,
        exit_code=child.exit_code,
        signal=child.signal,
        validity=Validity.UNCHECKED if expects else Validity.NOT_CHECKED,
        validity_detail=None,
        cpu_ns=max(0, record.user_ns + record.system_ns - record.gate_cpu_ns),
        user_ns=record.user_ns,
        system_ns=record.system_ns,
        gate_cpu_ns=record.gate_cpu_ns,
        max_rss_bytes=peak_bytes(record),
        minor_faults=record.minor_faults,
        major_faults=record.major_faults,
        voluntary_switches=record.voluntary,
        involuntary_switches=record.involuntary,
        pid=child.pid,
        note="; ".join(notes) or None,
        run_dir=escape_undecodable(child.spec.files) if keeps_files else None,
        gate=child.gate_facts,
        last_cpu=None if record.last_cpu < 0 else record.last_cpu,
        workloads=workloads,
        late_ns=child.remarks.late_ns,
        run_delay_ns=delay_ns,
        run_delay_cpu_ns=delay_cpu_ns,
        **_resident_memory(record),
    )


def _resident_memory(record: Record) -> dict[str, Any]:
    """Return what looks saw of a copy's memory; nothing of one that was not seen."""
    if not record.looks:
        return {}
    return {
        "mean_rss_bytes": record.mean_bytes,
        "peak_rss_bytes": record.most_bytes,
        "rss_looks": record.looks,
        "stopped_ns": record.stopped_ns,
    }


def _scheduler_times(child: Child, record: Record) -> tuple[int | None, int | None]:
    """Return waiting time and CPU time of all threads as the scheduler counts them, if it does.

    Both are without the time at the gate.
    """
    if record.cpu_ns < 0:
        return None, None
    delay_ns = record.delay_ns + record.other_delay_ns - max(0, record.gate_delay_ns)
    cpu_ns = record.cpu_ns + record.other_cpu_ns - record.gate_cpu_ns
    return max(0, delay_ns), max(0, cpu_ns)


def describe_exit(child: Child) -> str:
    """Return exit code or signal in words."""
    return f"exit code {child.exit_code}" if child.signal is None else f"signal {child.signal}"


def _judge_end(child: Child, record: Record, kills: KernelKills) -> tuple[CopyStatus, list[str]]:
    notes, exit_code = list(child.remarks.notes), child.exit_code
    if record.left_group:
        notes.append(f"{LEFT_BEHIND} in its process group; they were killed")
    if child.remarks.ignored_s is not None:
        killed = ", killed" if child.signal == signal.SIGKILL else ""
        notes.append(f"ignored SIGTERM for {child.remarks.ignored_s:g} s{killed}")
    if child.remarks.late_ns is not None:
        notes.append(
            "rater's launcher did not run when it ended: that was up to "
            f"{child.remarks.late_ns / 1e9:.3g} s before it was stamped, so its time is not known"
        )
    if child.stop_reason is not None:
        return _STATUS_BY_STOP_REASON[child.stop_reason], notes
    if child.ended_well:
        return CopyStatus.OK if child.remarks.late_ns is None else CopyStatus.FAILED, notes
    if child.remarks.exec_errno is not None:
        notes.append(cannot_execute(child.remarks.exec_errno, child.spec.argv))
        return CopyStatus.FAILED, notes
    command_note = failed_command(child.spec.argv, child.spec.stderr, exit_code, child.signal)
    if command_note:
        in_shared = child.spec.workloads and not child.spec.output.endswith("/")
        where = f", in {escape_undecodable(child.spec.directory)}" if in_shared else ""
        notes.append(command_note + where)
    # A shell and our script hand on the signal that their command had, whoever sent that.
    cause = kills.cause(
        child.signal or (exit_code or 0) - 128,
        (record.user_ns + record.system_ns) / 1e9,
        {
            "cpu time": (record.soft_cpu_s, record.hard_cpu_s),
            "file size": (record.soft_file_bytes, record.hard_file_bytes),
        },
        handed_on=child.signal is None or command_note is not None,
    )
    cause = cause or _SHELL_CODES.get(exit_code or 0)
    return CopyStatus.FAILED, notes + ([cause] if cause else [])


def suspended_ns() -> int:
    """Return how long the machine has been suspended since it started: no time includes that."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
