"""What killed attempts at a run may have left: ended before the run goes on beside it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from rater.run.guard import MARKER
from rater.run.sysfiles import listed

_PROC = Path("/proc")
_PATIENCE_S = 2.0
_PAUSE_S = 0.01


def end_leftovers(uuid: str, own: str) -> int:
    """Kill what earlier attempts at a run left, wait until it is gone; return how much there was.

    Their watchdogs do the same, in their own time. Every attempt marks its
    processes with the run's uuid and something of its own; `own` is ours.
    """
    deadline = time.monotonic() + _PATIENCE_S
    found: set[int] = set()
    while left := _marked(uuid, own):
        found |= left
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_S)
    return len(found)


def _marked(uuid: str, own: str) -> set[int]:
    begin, ours = f"{MARKER}={uuid}".encode(), f"{MARKER}={own}".encode()
    found = set()
    for process in listed(_PROC, "[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(entry.startswith(begin) and entry != ours for entry in environment):
            found.add(int(process.name))
    return found - {os.getpid()}
