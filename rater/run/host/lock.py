"""One run at a time on a machine: a kernel lock that dies with its holder."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rater.errors import InputError, RunError
from rater.trusted_files import open_file, user_name

# Any user's rater must be able to take the lock after another user's, for which reading will do.
_MODE = 0o644
_PEER = struct.Struct("3i")  # of SO_PEERCRED: pid, uid, gid

_RETRY_S = 0.5  # how often a lock that is waited for is tried

_held: list[tuple[int, Path]] = []  # locks of this process: descriptor, and where it was opened


class MachineTakenError(InputError):
    """Another run, `first`, holds this machine."""

    def __init__(self, path: Path, first: str) -> None:
        super().__init__(
            f"another run holds this machine: {first} (lock {path}). Two runs at once would "
            "slow each other; --wait waits for it, --share runs beside it"
        )
        self.first = first


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
def machine_lock(
    path: Path,
    holder: str,
    *,
    share: bool = False,
    wait_s: float = 0.0,
    report: Callable[[str], object] = lambda text: None,
) -> Iterator[None]:
    """Hold the machine's lock; `holder` tells a second rater who has it.

    The lock belongs to our open file: the kernel frees it when we die, however we
    die, and copies do not inherit it (the descriptor is closed on exec). As files can be
    removed, a name that cannot is held with it. With `share` a run goes on beside another, and
    is not in its way either. Where the machine is taken it is waited for up to `wait_s` seconds,
    and `report` is told once for whom.

    Raises `InputError` naming the other run when the machine is taken, `RunError` at the end when
    the file was removed or replaced meanwhile.
    """
    deadline_s, waiting = time.monotonic() + wait_s, False
    with ExitStack() as stack:
        while True:
            try:
                file = _take(stack, path, share=share)
                break
            except MachineTakenError as error:
                stack.close()
                if time.monotonic() >= deadline_s:
                    raise
                if not waiting:
                    report(f"waiting up to {wait_s:g} s for {error.first}")
                    waiting = True
                time.sleep(min(_RETRY_S, max(0.0, deadline_s - time.monotonic())))
        if file is None:  # shared with one that holds it
            yield
            return
        if os.fstat(file).st_uid == os.geteuid():  # else the lock holds, and nothing is written
            with suppress(OSError):
                os.ftruncate(file, 0)
                os.pwrite(file, f"{holder}\n".encode(), 0)
        if share:  # beside others anyway: nothing is lost with the file
            yield
            return
        _held.append((file, path.absolute()))
        stack.callback(_held.pop)
        yield
        lost = lost_lock()
        if lost is not None:
            raise RunError(lost)


def _take(stack: ExitStack, path: Path, *, share: bool) -> int | None:
    """Take the lock, let go by `stack`; None: another has it, and it is shared.

    Raises `MachineTakenError`, `InputError`.
    """
    try:
        file = _open(path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot open the machine's lock ({error.strerror}); "
            "set RATER_LOCK to a file you may write, or use --share to run without it"
        ) from error
    stack.callback(os.close, file)
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if share else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError as error:
        if share:
            return None
        raise MachineTakenError(path, _holder(file)) from error
    name = stack.enter_context(socket.socket(socket.AF_UNIX))
    try:
        name.bind(_name(path))
        name.listen()
    except OSError as error:
        if error.errno == errno.EADDRINUSE and not share:
            raise MachineTakenError(path, _listener(path)) from error
    return file


def lost_lock() -> str | None:
    """Say that the file of the lock that this process holds is not there any more, if so."""
    for file, path in _held:
        try:
            same = os.path.samestat(os.fstat(file), path.stat())
        except OSError:
            same = False
        if not same:
            return (
                f"the machine's lock {path} was removed or replaced during the run: another run "
                "may have gone on beside it"
            )
    return None


def _name(path: Path) -> str:
    """Return a name in no file system (unix(7), abstract), which is gone with its process."""
    return f"\0rater-lock-{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]}"


def _listener(path: Path) -> str:
    """Say who holds the name and not the file: a rater whose file was removed, or anybody."""
    who = "somebody"
    with socket.socket(socket.AF_UNIX) as asking, suppress(OSError):
        asking.setblocking(False)
        asking.connect(_name(path))
        told = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        pid, user, _ = _PEER.unpack(told)
        who = f"process {pid or 'of another container'} of user {user_name(user)}"
    return f"{who}, whose lock file was removed unless that is no rater"


def _open(path: Path) -> int:
    """Open the lock file, which may be another user's: that is not written into."""
    try:
        file = open_file(path, os.O_CREAT | os.O_RDWR, mode=_MODE, anyones=True)
    except PermissionError:
        return open_file(path, os.O_RDONLY, anyones=True)
    if os.fstat(file).st_uid == os.geteuid():
        os.fchmod(file, _MODE)  # whatever the umask, or an earlier rater's mode
    return file


def _holder(file: int) -> str:
    """Return who has the lock: what stands in it, unless that process is gone by now.

    Who holds another user's lock file could not write into it.
    """
    text = os.pread(file, 500, 0).decode(errors="replace").strip()
    named = re.search(r"process (\d{1,9})", text)
    gone = named is not None and not Path(f"/proc/{named[1]}").exists()
    return "another user's rater" if gone or not text else text
