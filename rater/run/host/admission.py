"""Whether a run may begin: one at a time on a machine, and it has to fit."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import psutil
from msgspec import Struct

from rater.run.host.procfs import counted, read_number
from rater.system.errors import InputError, RunError
from rater.system.files import open_file, user_name

# -- One run at a time on a machine: a kernel lock that dies with its holder -----------------------

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
        lost = lost_lock_warning()
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
    except OSError as error:
        raise InputError(
            f"{path}: its file system has no locks ({error.strerror}); set RATER_LOCK to a file on "
            "a disk of this machine, or use --share to run without it"
        ) from error
    name = stack.enter_context(socket.socket(socket.AF_UNIX))
    try:
        name.bind(_name(path))
        name.listen()
    except OSError as error:
        if error.errno == errno.EADDRINUSE and not share:
            raise MachineTakenError(path, _listener(path)) from error
    return file


def lost_lock_warning() -> str | None:
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


# -- Does a run fit? Memory and disk it needs against what there is, before it starts --------------


class MemoryDemand(Struct, frozen=True, kw_only=True):
    """One benchmark as one phase runs it."""

    benchmark: str
    copies: int  # that run it at the same time
    runs: int  # run directories it has in the phase (copies x steps)
    memory_bytes: int | None  # per copy, None when the suite does not say
    disk_bytes: int  # written by one run
    input_bytes: int  # copied into each run directory; 0 when links work
    is_divided: bool = False  # all copies of the run share one amount: fewer do not need less


class AvailableResources(Struct, frozen=True):
    """What the machine (or our cgroup) has left."""

    memory_bytes: int
    memory_limit: str | None  # the cgroup that limits it, None when the machine does
    disk_bytes: int
    disk: str  # the directory that was looked at


class ResourceNeeds(Struct, frozen=True, kw_only=True):
    """What a run needs at its worst moment; empty `problems` means that it fits."""

    memory_bytes: int
    memory_benchmark: str | None  # the phase that needs most; None: no memory is stated
    disk_bytes: int
    available: AvailableResources
    unstated: tuple[str, ...]  # benchmarks whose memory the suite does not state
    problems: tuple[str, ...]


def estimate_needs(
    phases: Iterable[Sequence[MemoryDemand]], available: AvailableResources, *, keep: bool
) -> ResourceNeeds:
    """Add up the phases of a run (pure).

    Loads of one phase run side by side, phases one after another; run directories
    live to the end of their phase, with `keep` to the end of the run.
    """
    most, most_name, most_copies, divided = 0, None, 0, False
    disk = 0
    unstated: dict[str, None] = {}
    for loads in phases:
        memory = sum(load.copies * (load.memory_bytes or 0) for load in loads)
        unstated |= {load.benchmark: None for load in loads if load.memory_bytes is None}
        if memory > most:
            most, most_copies = memory, sum(load.copies for load in loads)
            most_name = loads[0].benchmark if len(loads) == 1 else "the ring"
            divided = any(load.is_divided for load in loads)
        written = sum(load.runs * (load.disk_bytes + load.input_bytes) for load in loads)
        disk = disk + written if keep else max(disk, written)
    problems = []
    if most > available.memory_bytes:
        limit = _limit(available)
        fitting = 0 if divided else most_copies * available.memory_bytes // most
        copies = f"{most_copies} {'copy' if most_copies == 1 else 'copies'} of {most_name}"
        problems.append(
            f"memory: {_gb(most)} needed ({copies}), {_gb(available.memory_bytes)} "
            f"available{limit}; "
            + (f"--copies {fitting} would fit, or a" if fitting else "take a")
            + " smaller --size, or --force"
        )
    if disk > available.disk_bytes:
        problems.append(
            f"disk: {_gb(disk)} needed by run directories, {_gb(available.disk_bytes)} free in "
            f"{available.disk}; set RATER_CACHE to a larger disk, use fewer copies, or --force"
        )
    return ResourceNeeds(
        memory_bytes=most,
        memory_benchmark=most_name,
        disk_bytes=disk,
        available=available,
        unstated=tuple(unstated),
        problems=tuple(problems),
    )


def misfit(load: MemoryDemand, available: AvailableResources) -> str | None:
    """Say why a benchmark does not fit even alone, None when it does."""
    memory = load.copies * (load.memory_bytes or 0)
    if memory > available.memory_bytes:
        left = f"{_gb(available.memory_bytes)} available{_limit(available)}"
        return f"{_gb(memory)} needed, {left}"
    disk = load.runs * (load.disk_bytes + load.input_bytes)
    if disk > available.disk_bytes:
        return f"{_gb(disk)} of disk needed, {_gb(available.disk_bytes)} free in {available.disk}"
    return None


def available(work: Path) -> AvailableResources:
    """Measure what is left: memory of the machine or our cgroup's if less, disk at `work`.

    `work` need not exist yet. Raises `InputError` when no folder above it can be read.
    """
    memory = psutil.virtual_memory().available
    limit = None
    headroom = cgroup_headroom(Path("/"))
    if headroom is not None and headroom[0] < memory:
        memory, limit = headroom
    there = next((p for p in (work, *work.parents) if p.is_dir()), Path("/"))
    try:
        disk = shutil.disk_usage(there).free
    except OSError as error:
        raise InputError(f"{there}: {error.strerror}") from None
    return AvailableResources(memory, limit, disk, str(work))


def cgroup_headroom(root: Path) -> tuple[int, str] | None:
    """Return (bytes left, cgroup) of the tightest memory limit above us, None without one.

    Every cgroup from ours to the top may have a limit. File pages that the kernel
    can drop count as left. `root` is `/`, or a copy of it in tests.
    """
    found = []
    for group in limiting_groups(root, "memory"):
        name = "total_inactive_file" if group.is_v1 else "inactive_file"
        left, free = group.left("memory"), counted(group.folder / "memory.stat", name)
        found += [] if left is None else [(max(0, left + (free or 0)), group.name)]
    return min(found, key=lambda it: it[0], default=None)


def huge_pages_left_bytes(root: Path, size: int) -> int | None:
    """Return what our cgroups let us have of the pool of a page size; None: all of it."""
    name = f"hugetlb.{size >> 30}GB" if size >= 1 << 30 else f"hugetlb.{size >> 20}MB"
    found = (group.left(name) for group in limiting_groups(root, "hugetlb"))
    return min((max(0, left) for left in found if left is not None), default=None)


class LimitingGroup(NamedTuple):
    """A cgroup that we are in, or one above it."""

    folder: Path
    is_v1: bool
    name: str = ""  # within its hierarchy

    def limit(self, what: str) -> int | None:
        """Return the most that it may have of `memory`, or of `hugetlb.2MB`; None: no limit."""
        most = read_number(self.folder / f"{what}.{'limit_in_bytes' if self.is_v1 else 'max'}")
        return None if most is None or most >= 1 << 62 else most  # version 1 has no word for it

    def left(self, what: str) -> int | None:
        """Return the bytes between that and what it has."""
        used = read_number(self.folder / f"{what}.{'usage_in_bytes' if self.is_v1 else 'current'}")
        most = self.limit(what)
        return None if most is None or used is None else most - used


def limiting_groups(root: Path, controller: str) -> Iterator[LimitingGroup]:
    """Yield the cgroups, from ours to the top, that may limit what a controller gives us."""
    try:
        mounts = (root / "proc/self/mountinfo").read_text()
        memberships = (root / "proc/self/cgroup").read_text()
    except OSError:
        return
    for line in memberships.splitlines():
        _, controllers, group = line.split(":", 2)
        kind = "cgroup" if controller in controllers.split(",") else "cgroup2"
        if controllers and kind == "cgroup2":
            continue
        mounted = _mount_point(mounts, kind, controller)
        if mounted is None:
            continue
        top, mount_root = root / mounted[0].lstrip("/"), mounted[1]
        inside = group.removeprefix(mount_root) if mount_root != "/" else group
        folder = top / inside.lstrip("/")
        while folder.is_relative_to(top):
            name = f"/{folder.relative_to(top)}".removesuffix(".")
            yield LimitingGroup(folder, kind == "cgroup", name)
            folder = folder.parent


@lru_cache  # asked for anew in each phase, and seldom different
def _mount_point(mountinfo: str, kind: str, controller: str) -> tuple[str, str] | None:
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, described = before.split(), after.split()
        options = described[-1].split(",")
        if described[0] == kind and (kind == "cgroup2" or controller in options):
            return fields[4], fields[3]
    return None


def _limit(available: AvailableResources) -> str:
    return f" (the limit of cgroup {available.memory_limit})" if available.memory_limit else ""


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
