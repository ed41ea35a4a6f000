"""What killed attempts at a run may have left: ended before the run goes on."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from rater.record.run import storable
from rater.run.copies.watch import MARKER
from rater.run.copies.watchdog import kill_marked
from rater.run.host.sysfiles import listed
from rater.run.programs.inputs import remove_run_dir

_PATIENCE_S = 2.0
_PAUSE_S = 0.01


def end_leftovers(uuid: str, own: str) -> int:
    """Kill what earlier attempts at a run left, wait until it is gone; return how much there was.

    Their watchdogs do the same, in their own time. Every attempt marks its
    processes with the run's uuid and something of its own; `own` is ours.
    """
    begin, ours = f"{MARKER}={uuid}".encode(), f"{MARKER}={own}".encode()
    deadline = time.monotonic() + _PATIENCE_S
    found: set[int] = set()
    while left := kill_marked(lambda entry: entry.startswith(begin) and entry != ours):
        found |= left
        if time.monotonic() > deadline:
            break
        time.sleep(_PAUSE_S)
    return len(found)


def remove_unnamed(folder: Path, named: Collection[str], own: Path) -> None:
    """Remove from a run's folder what killed attempts left, but the files that `named` names.

    `named` are directories, or patterns of files that end in `*`; `own` is the folder of
    the attempt that is being made. No symbolic link is followed: links themselves go.
    """
    patterns = [name.removesuffix("*") for name in named if name.endswith("*")]
    for attempt in (folder, *listed(folder, "resume-*")):
        if attempt == own or attempt.is_symlink():
            continue
        for entry in listed(attempt):
            text = storable(str(entry))
            kept = text in named or any(text.startswith(begin) for begin in patterns)
            is_attempt = attempt == folder and entry.name.startswith("resume-")
            if kept or (is_attempt and not entry.is_symlink()):
                continue
            if entry.is_dir() or entry.is_symlink():
                remove_run_dir(entry)
            else:
                with suppress(OSError):
                    entry.unlink()
        if attempt != folder:
            with suppress(OSError):  # something of it is kept
                attempt.rmdir()
