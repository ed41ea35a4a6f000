"""One child at a time, outside any measurement: a compiler, a generator, a benchmark on trial."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

_PR_SET_PDEATHSIG = 1
_SHOWN_BYTES = 4000  # of each end of a long output
_prctl = ctypes.CDLL(None).prctl


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """How a compiler or generator ended, and what it said (both streams, long ones cut)."""

    status: int  # exit code; negative: the signal
    said: str


@dataclass(frozen=True, slots=True)
class AloneEnded:
    """One benchmark run alone, by the parent's clock."""

    elapsed_s: float
    exit_code: int | None  # None when a signal ended it
    signal: int | None
    timed_out: bool
    max_rss_bytes: int | None  # None when it is below our own peak, which a fork inherits


def run_tool(
    argv: Sequence[str], cwd: Path, environment: Mapping[str, str] | None = None
) -> ToolEnded:
    """Run a program to its end; raises `OSError` when it cannot be started.

    It has no standard input, stays in our process group (Ctrl-C at the terminal
    reaches it) and, unless we have several threads, is killed when we die.
    """
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=last_will(),
            check=False,
        )
        return ToolEnded(done.returncode, both_ends(output.fileno()))


def run_alone(
    argv: Sequence[str],
    run_dir: Path,
    environment: Mapping[str, str] | Mapping[bytes, bytes],
    timeout_s: float | None = None,
) -> AloneEnded:
    """Run a benchmark in its run directory, output to the files `stdout` and `stderr` there.

    Its whole process group is killed when the time is up, when it has ended, and
    when we are interrupted. Raises `OSError` when it cannot be started.
    """
    late = threading.Event()
    own_peak = getrusage(RUSAGE_SELF).ru_maxrss
    with (run_dir / "stdout").open("wb") as stdout, (run_dir / "stderr").open("wb") as stderr:
        start = time.monotonic()
        process = subprocess.Popen(
            argv,
            cwd=run_dir,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            process_group=0,
            preexec_fn=last_will(),  # noqa: PLW1509 (only where there are no other threads)
        )

    def stop() -> None:
        late.set()
        kill_group(process.pid)

    timer = threading.Timer(timeout_s, stop) if timeout_s is not None else None
    if timer:
        timer.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
        elapsed_s = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        if timer:
            timer.cancel()
        kill_group(process.pid)
        process.wait()
    code = process.returncode
    return AloneEnded(
        elapsed_s=elapsed_s,
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        timed_out=late.is_set(),
        max_rss_bytes=usage.ru_maxrss * 1024 if usage.ru_maxrss > own_peak else None,
    )


def kill_group(group: int) -> None:
    """Kill a process group, if it is still there."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def last_will() -> Callable[[], object] | None:
    """Return what makes a child die with us; None where Python between fork and exec is unsafe."""
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 (only the number matters)
        return None
    return lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def both_ends(file: int) -> str:
    """Return what a file of output says, the middle of a long one left out."""
    size = os.fstat(file).st_size
    if size <= 2 * _SHOWN_BYTES:
        said = os.pread(file, size, 0)
    else:
        begin, end = (os.pread(file, _SHOWN_BYTES, at) for at in (0, size - _SHOWN_BYTES))
        said = begin + b"\n[...]\n" + end
    return said.decode(errors="replace").strip()
