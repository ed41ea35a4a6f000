"""Processes that we adopted, as a child subreaper: who they are."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rater.process_id import stat_fields

_PAUSE_S = 0.0005
_EXEC_PATIENCE_S = 0.1


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that outlived its copy and was sent SIGKILL."""

    pid: int
    command: str
    copy: str | None  # RATER_COPY of its environment
    killed: bool = True  # False: it lives on, as another user's or in the midst of a system call


def reap_dead(pids: Iterable[int]) -> None:
    """Reap those of our children that have ended."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def children() -> list[int]:
    """Return the process numbers of all our children, orphans we adopted included."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found += [int(word) for word in (task / "children").read_text().split()]
    return found


def describe(pid: int) -> Leftover | None:
    """Return what a child is, or None when it is dead already."""
    deadline = time.monotonic() + _EXEC_PATIENCE_S
    try:
        while True:
            before = _arguments_at(pid)
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
            environment = _environment_of(pid)
            name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
            after = _arguments_at(pid)
            if after is None:
                return None
            if (before == after and after[-1] != b"0") or time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S)
    except OSError:
        return None
    copies = [v.removeprefix(b"RATER_COPY=") for v in environment if v.startswith(b"RATER_COPY=")]
    return Leftover(
        pid,
        # Programs may empty their own command line.
        command.decode(errors="replace")[:80] if command else f"[{name}]",
        copies[0].decode(errors="replace") if copies else None,
    )


def _environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except PermissionError:  # another user's by now
        return []


def _arguments_at(pid: int) -> list[bytes] | None:
    """Return where a process's arguments and environment lie; None when it is dead.

    In the midst of an exec there is new memory and nothing in it yet: the process looks
    as empty as a dead one, and env_end, the last to be set, is 0 (proc_pid_stat(5): state
    is field 3, arg_start to env_end are 48 to 51).
    """
    fields = stat_fields(Path(f"/proc/{pid}/stat").read_bytes())
    return None if fields[3] in b"ZX" else fields[48:52]
