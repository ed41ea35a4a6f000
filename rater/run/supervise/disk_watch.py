"""No copy fills the disk: outputs are watched while copies run."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import trio

from rater.run.copies.launch import Child, CopySpec
from rater.run.supervise.job import Job

_CHECK_S = 1.0
_RESERVE_BYTES = 64 << 20  # below this much free space the largest writer is stopped
_WORTH_STOPPING_BYTES = 1 << 20
_KEPT_BYTES = 1 << 20  # of a stopped copy's output: enough to see what it was


async def watch_disk(job: Job, alive: Mapping[int, Child]) -> None:
    """Stop a copy that writes more output than allowed, before the disk is full.

    One system call a second while the disk does not shrink by more than the limit.
    """
    free_before = _free_bytes(job)
    while True:
        await trio.sleep(_CHECK_S)
        free = _free_bytes(job)
        full = free < _RESERVE_BYTES
        if not full and free_before - free < job.output_limit_bytes:
            continue
        sizes = sorted(
            ((_output_bytes(child.spec), fd, child) for fd, child in alive.items()), reverse=True
        )
        for written, _, child in sizes:
            over = written > job.output_limit_bytes
            if child.stopped_for is None and (over or (full and written > _WORTH_STOPPING_BYTES)):
                limit = (
                    f"the limit of {job.output_limit_bytes / 1e6:.0f} MB (--output-limit)"
                    if over
                    else "the disk can hold"
                )
                child.stopped_for = "output"
                child.notes.append(f"wrote {written / 1e6:.0f} MB of output, more than {limit}")
                child.send(signal.SIGKILL)
                _truncate(child.spec)
                full = False


def _free_bytes(job: Job) -> int:
    now = os.statvfs(job.work)
    return now.f_bavail * now.f_frsize


def _output_bytes(spec: CopySpec) -> int:
    total = 0
    for path in (spec.stdout, spec.stderr):
        try:
            total += Path(path).stat().st_blocks * 512
        except OSError:
            continue
    return total


def _truncate(spec: CopySpec) -> None:
    for path in (spec.stdout, spec.stderr):
        try:
            os.truncate(path, min(Path(path).stat().st_size, _KEPT_BYTES))
        except OSError:
            continue
