"""One run at a time on a machine: a kernel lock that dies with its holder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rater.errors import InputError

_SHARED_MODE = 0o666  # any user's rater must be able to take the lock after another user's


def default_lock_path() -> Path:
    """Return `RATER_LOCK`, else a file in /run/lock, else one in $XDG_RUNTIME_DIR or /tmp."""
    named = os.environ.get("RATER_LOCK")
    if named:
        return Path(named)
    machine = Path("/run/lock")
    if machine.is_dir() and os.access(machine, os.W_OK | os.X_OK):
        return machine / "rater.lock"
    return Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp") / "rater.lock"


@contextmanager
def machine_lock(path: Path, holder: str, *, share: bool = False) -> Iterator[None]:
    """Hold the machine's lock; `holder` tells a second rater who has it.

    The lock belongs to our open file: the kernel frees it when we die, however we
    die, and copies do not inherit it (the descriptor is closed on exec). With
    `share` a run goes on beside another, and is not in its way either.

    Raises `InputError` naming the other run when the machine is taken.
    """
    try:
        file = _open(path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot open the machine's lock ({error.strerror}); "
            "set RATER_LOCK to a file you may write, or use --share to run without it"
        ) from error
    try:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if share else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if share:
                yield
                return
            first = os.pread(file, 500, 0).decode(errors="replace").strip() or "another rater"
            raise InputError(
                f"another run holds this machine: {first} (lock {path}). Two runs at once would "
                "slow each other; wait for it, or use --share to run beside it"
            ) from error
        with suppress(OSError):  # read-only when another user made the file: the lock holds
            os.ftruncate(file, 0)
            os.pwrite(file, f"{holder}\n".encode(), 0)
        yield
    finally:
        os.close(file)


def _open(path: Path) -> int:
    """Open the lock file; in sticky directories O_CREAT on another user's file is refused."""
    for flags in (os.O_RDWR, os.O_RDONLY):
        with suppress(FileNotFoundError, PermissionError):
            return os.open(path, flags | os.O_CLOEXEC)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _SHARED_MODE)
    with suppress(OSError):
        os.fchmod(file, _SHARED_MODE)
    return file
