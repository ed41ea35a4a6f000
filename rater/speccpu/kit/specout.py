"""Write what specinvoke leaves in `speccmds.out`, so that scripts that read it go on working; pure.

Field by field and blank by blank as the `speccmds.out` texts in the CPU2017 sample log
(`notes/spec-formats.md` section 2.3), but for the first line, which says who wrote it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

OUT = "speccmds.out"


@dataclass(frozen=True, slots=True)
class ChildRun:
    """One workload run once by one copy; times in nanoseconds since the epoch."""

    copy: int
    start_ns: int
    finish_ns: int
    pid: int | None
    wait_status: int  # as wait(2) gives it: exit code x 256, or the signal
    command: str


def raw_status(exit_code: int | None, signal: int | None) -> int:
    """Return a wait status (the core bit is not known); 0 where neither is known."""
    return signal if signal is not None else (exit_code or 0) << 8


def speccmds_out(runs: Sequence[Sequence[ChildRun]], *, by: str, file: str) -> str:
    """Return the text for one benchmark, whose iterations are `runs`, none of them empty.

    `by` says who writes it and is the first line; `file` is the command file's name.
    """
    lines = [by, "timer ticks over every 1000 ns", f"running commands in {file} {len(runs)} times"]
    first = min(child.start_ns for children in runs for child in children)
    last = max(child.finish_ns for children in runs for child in children)
    lines.append(f"runs started at\t\t{_when(first)}")
    for number, children in enumerate(runs, 1):
        start_ns = min(child.start_ns for child in children)
        finish_ns = max(child.finish_ns for child in children)
        lines.append(f"run {number} started at\t{_when(start_ns)}")
        # As they happen; the sort is stable, so that each copy's own stay in order.
        ordered = sorted(children, key=lambda it: (it.copy, it.start_ns))
        events = [(at, n, it) for it in ordered for n, at in ((1, it.start_ns), (0, it.finish_ns))]
        events.sort(key=lambda it: it[0])
        lines += [_started(child) if begins else _finished(child) for _, begins, child in events]
        lines.append(f"run {number} finished at:\t{_when(finish_ns)}")
        lines.append(f"run {number} elapsed time:\t{_span(finish_ns - start_ns)}")
    lines.append(f"runs finished at\t{_when(last)}")
    lines.append(f"runs elapsed time:\t{_span(last - first)}")
    failed = sum(child.wait_status != 0 for children in runs for child in children)
    if failed:
        lines.append(f"error: a total of {failed} children finished with errors")
    lines.append("specinvoke exit: rc=0")
    return "\n".join(lines) + "\n"


def _started(child: ChildRun) -> str:
    at = _time(child.start_ns)
    return f"child started: {child.copy},\t{at}, pid={child.pid or 0}, '{child.command}'"


def _finished(child: ChildRun) -> str:
    seconds, rest = divmod(child.finish_ns - child.start_ns, 10**9)
    return (
        f"child finished: {child.copy},\t{_time(child.finish_ns)}, sec={seconds}, nsec={rest}, "
        f"pid={child.pid or 0}, rc={child.wait_status}"
    )


def _time(at_ns: int) -> str:
    seconds, rest = divmod(at_ns, 10**9)
    return f"{seconds}, {rest:09}"


def _when(at_ns: int) -> str:
    return f"{_time(at_ns)}, {time.ctime(at_ns // 10**9)}"


def _span(span_ns: int) -> str:
    seconds, rest = divmod(span_ns, 10**9)
    return f"{seconds:10}, {rest:09}, {seconds}.{rest:09}"
