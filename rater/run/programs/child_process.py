"""One child at a time, outside any measurement: a compiler, a generator, a benchmark on trial."""

from __future__ import annotations

import ctypes
import math
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import IO

from msgspec import Struct

_PR_SET_PDEATHSIG = 1
_SHOWN_BYTES = 4000  # of each end of a long output
_POLL_MS = 100  # how often a child is asked whether it has taken too much
_KEPT_BYTES = 1 << 20  # of an output that became too long: enough to recognise it
_prctl = ctypes.CDLL(None).prctl


class Limits(Struct, frozen=True):
    """The most that a child may take; None is no limit."""

    time_s: float | None = None
    output_bytes: int | None = None  # in the files of its standard output and error


NO_LIMITS = Limits()


class LimitExceeded(StrEnum):
    """Why a child was not waited for any longer."""

    TIME = "time"
    OUTPUT = "output"
    STOPPED = "stopped"  # somebody does not want it any more


class ToolEnded(Struct, frozen=True):
    """How a compiler or generator ended, and what it printed (both streams, long ones cut)."""

    status: int  # exit code; negative: the signal
    output: str


class ChildEnded(Struct, frozen=True, kw_only=True):
    """How a child ended that was given limits, by our clock."""

    status: int  # exit code; negative: the signal
    excess: LimitExceeded | None  # why it was killed
    elapsed_s: float
    cpu_s: float  # user and system time of it and of the children that it waited for
    max_rss_bytes: int | None  # None when it is below our own peak, which a fork inherits

    @property
    def exit_code(self) -> int | None:
        """The exit code; None when a signal ended the child."""
        return self.status if self.status >= 0 else None

    @property
    def signal(self) -> int | None:
        """The signal that ended it."""
        return -self.status if self.status < 0 else None


def run_tool(
    argv: Sequence[str], cwd: Path, environment: Mapping[str, str] = os.environ
) -> ToolEnded:
    """Run a program to its end; raises `OSError` when it cannot be started."""
    with tempfile.TemporaryFile() as output:
        ended = run_child(argv, cwd, environment, (output, output))
        return ToolEnded(ended.status, both_ends(output.fileno()))


def run_child(
    argv: Sequence[str],
    cwd: str | Path,
    environment: Mapping[str, str] | Mapping[bytes, bytes],
    outputs: tuple[IO[bytes], IO[bytes]],
    limits: Limits = NO_LIMITS,
    *,
    stop: Callable[[], bool] = lambda: False,
    descriptors: Sequence[int] = (),
    leaves: bool = False,
) -> ChildEnded:
    """Run a program in a process group of its own; raises `OSError` when it cannot be started.

    `outputs` are the files of its standard output and error, which may be the same; of too much
    output the beginning is kept. `descriptors`: that it inherits. Its group is killed when it
    takes more than `limits`, `stop` is true, we are interrupted, and when it has ended; where it
    `leaves` something running, not when it has ended well.
    """
    own_peak_kib = getrusage(RUSAGE_SELF).ru_maxrss
    begin_s = time.monotonic()
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=outputs[0],
        stderr=outputs[1],
        pass_fds=descriptors,
        process_group=0,
        preexec_fn=die_with_parent(),  # noqa: PLW1509 (only where there are no other threads)
    )
    excess, ended_well, written = None, False, {output.fileno() for output in outputs}
    try:
        excess = _wait_within(process.pid, limits, written, stop)
        elapsed_s = time.monotonic() - begin_s
        if excess is None:
            ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            ended_well = ended is not None and ended.si_status == 0
    finally:
        if not (leaves and ended_well):  # before it is reaped: its number is no other group's yet
            kill_group(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if excess is LimitExceeded.OUTPUT:
        cut(written)
    peak_kib = usage.ru_maxrss
    return ChildEnded(
        status=process.returncode,
        excess=excess,
        elapsed_s=elapsed_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        max_rss_bytes=peak_kib * 1024 if peak_kib > own_peak_kib else None,
    )


def run_alone(
    argv: Sequence[str],
    run_dir: Path,
    environment: Mapping[str, str] | Mapping[bytes, bytes],
    limits: Limits = NO_LIMITS,
    *,
    outputs: tuple[str | Path, str | Path] | None = None,
    descriptors: Sequence[int] = (),
) -> ChildEnded:
    """Run a benchmark in its run directory, output to the files `stdout` and `stderr` there.

    `outputs` are other files for that; see `run_child`.
    """
    stdout_path, stderr_path = map(Path, outputs or (run_dir / "stdout", run_dir / "stderr"))
    with stdout_path.open("wb") as stdout, stderr_path.open("wb") as stderr:
        return run_child(
            argv, run_dir, environment, (stdout, stderr), limits, descriptors=descriptors
        )


def excess_text(excess: LimitExceeded, limits: Limits) -> str:
    """Describe the limit that a child exceeded."""
    if excess is LimitExceeded.TIME:
        return f"was not done after {limits.time_s:g} s (--timeout)"
    limit_mb = (limits.output_bytes or 0) / 1e6
    return f"wrote more than {limit_mb:.0f} MB of output (--output-limit of rater run)"


def _wait_within(
    pid: int,
    limits: Limits,
    outputs: Iterable[int],
    stop: Callable[[], bool],
) -> LimitExceeded | None:
    """Wait until a child of ours has ended or exceeded a limit; an ended one is not reaped.

    `outputs` are the files that it writes to; `stop` is called a few times a second.
    Returns the limit that was exceeded, None when the child has ended.
    """
    deadline_s = math.inf if limits.time_s is None else time.monotonic() + limits.time_s
    process_fd = os.pidfd_open(pid)
    try:
        process_end = select.poll()
        process_end.register(process_fd, select.POLLIN)
        while True:
            left_ms = max(0.0, (deadline_s - time.monotonic()) * 1e3)
            if process_end.poll(min(_POLL_MS, left_ms)):
                return None
            if stop():
                return LimitExceeded.STOPPED
            if limits.output_bytes is not None and written_bytes(outputs) > limits.output_bytes:
                return LimitExceeded.OUTPUT
            if time.monotonic() >= deadline_s:
                return LimitExceeded.TIME
    finally:
        os.close(process_fd)


def written_bytes(outputs: Iterable[int | str]) -> int:
    """Return what files of output hold together, holes in them not counted; by path or open."""
    total = 0
    for output in outputs:
        with suppress(OSError):
            total += os.stat(output).st_blocks * 512  # noqa: PTH116 - or a descriptor
    return total


def cut(outputs: Iterable[int | str]) -> None:
    """Keep the beginning of files of output; by path or open."""
    for output in outputs:
        with suppress(OSError):
            os.truncate(output, min(os.stat(output).st_size, _KEPT_BYTES))  # noqa: PTH116


def kill_group(group: int) -> None:
    """Kill a process group, if it is still there."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def die_with_parent() -> Callable[[], object] | None:
    """Return a hook for a child, so that it dies with us.

    None when this process has more threads: Python between fork and exec is unsafe then.
    """
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 (only the number matters)
        return None
    return lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def both_ends(descriptor: int) -> str:
    """Return the text of a file of output; the middle of a long one is left out."""
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes <= 2 * _SHOWN_BYTES:
        content = os.pread(descriptor, size_bytes, 0)
    else:
        begin, end = (
            os.pread(descriptor, _SHOWN_BYTES, position)
            for position in (0, size_bytes - _SHOWN_BYTES)
        )
        content = begin + b"\n[...]\n" + end
    return content.decode(errors="replace").strip()
