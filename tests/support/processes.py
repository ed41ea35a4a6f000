"""Processes that tests look at."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 20.0  # for what takes milliseconds
MOST_S = 60.0  # for what takes seconds beside other tests


def state_of(pid: int) -> str | None:
    """Return field 3 of proc_pid_stat(5): T is stopped, S asleep, Z dead; None for no process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def wait_until_dead(pid: int) -> None:
    """Wait for what was killed: it may take a moment longer to be gone."""
    deadline_s = time.monotonic() + PATIENCE_S
    while state_of(pid) not in (None, "Z"):
        assert time.monotonic() < deadline_s, f"process {pid} still lives"
        time.sleep(0.01)


def session_members(session: int) -> list[str]:
    """Return the names of all processes of a session that are not dead."""
    names = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(") ")
        except OSError:
            continue
        fields = rest.split()
        if int(fields[3]) == session and fields[0] not in "ZX":
            names.append(head.partition("(")[2])
    return names


def wait_until[T](happened: Callable[[], T | None]) -> T:
    """Wait for something, and return what was returned then."""
    deadline_s = time.monotonic() + MOST_S
    while time.monotonic() < deadline_s:
        with suppress(OSError, StopIteration):
            if found := happened():
                return found
        time.sleep(0.01)
    raise AssertionError("it did not happen")
