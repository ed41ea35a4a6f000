"""What a copy's end means: its status in the run's words, and the event that says so."""

from __future__ import annotations

import signal
from dataclasses import asdict

from rater.record.events import CopyEnded, ResidentMemory, WorkloadTime
from rater.record.run import storable
from rater.record.status import CopyStatus, Validity
from rater.run.copies.launch import Child, Reaped
from rater.run.programs.script import failed_command

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
    reaped: Reaped,
    phase: int,
    origin_ns: int,
    now_ns: int,
    *,
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
    status, note = _verdict(child, reaped)
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
        run_dir=storable(child.spec.files) if kept else None,
        validity=Validity.UNCHECKED if expects else Validity.NOT_CHECKED,
        gate=child.gate_facts,
        last_cpu=child.last_cpu,
        workloads=workloads,
        late_ns=child.late_ns,
        **(asdict(memory) if memory else {}),
    )


def how_it_ended(reaped: Reaped) -> str:
    """Return exit code or signal in words."""
    if reaped.signal is not None:
        return f"signal {reaped.signal}"
    return f"exit code {reaped.exit_code}"


def _verdict(child: Child, reaped: Reaped) -> tuple[CopyStatus, str | None]:
    notes = list(child.notes)
    if reaped.left_group:
        notes.append("left processes behind in its process group; they were killed")
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
    if reaped.exit_code == 0:
        return CopyStatus.OK if child.late_ns is None else CopyStatus.FAILED, "; ".join(
            notes
        ) or None
    ended_by = failed_command(child.spec.argv, child.spec.stderr, reaped.exit_code, reaped.signal)
    if ended_by:
        in_shared = child.spec.workloads and not child.spec.output.endswith("/")
        notes.append(ended_by + (f", in {storable(child.spec.directory)}" if in_shared else ""))
    if reaped.signal == signal.SIGKILL:
        notes.append("killed from outside (out of memory? see `dmesg`)")
    elif reaped.exit_code in _SHELL_CODES:
        notes.append(_SHELL_CODES[reaped.exit_code])
    return CopyStatus.FAILED, "; ".join(notes) or None
