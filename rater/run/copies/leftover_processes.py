"""What killed attempts at a run may have left: ended before the run goes on beside it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from rater.record.run import storable
from rater.run.copies.guard import MARKER
from rater.run.host.sysfiles import listed
from rater.run.programs.inputs import remove_run_dir

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


def remove_unnamed(folder: Path, named: Collection[str], own: Path) -> None:
    """Remove from a run's folder what killed attempts left, but the files that `named` names.

    `named` are directories, or patterns of files that end in `*`; `own` is the folder of
    the attempt that is being made.
    """
    patterns = [name.removesuffix("*") for name in named if name.endswith("*")]
    for attempt in (folder, *listed(folder, "resume-*")):
        if attempt == own:
            continue
        for entry in listed(attempt):
            text = storable(str(entry))
            kept = text in named or any(text.startswith(begin) for begin in patterns)
            if kept or (attempt == folder and entry.name.startswith("resume-")):
                continue
            if entry.is_dir() and not entry.is_symlink():
                remove_run_dir(entry)
            else:
                with suppress(OSError):
                    entry.unlink()
        if attempt != folder:
            with suppress(OSError):  # something of it is kept
                attempt.rmdir()


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
