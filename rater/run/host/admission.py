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

from msgspec import Struct

from rater.run.host.procfs import counted, meminfo, read_number, read_text
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
    """Hold the machine's lock; `holder` names its process to a second rater.

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
                lock_file = _take_lock(stack, path, share=share)
                break
            except MachineTakenError as error:
                stack.close()
                if time.monotonic() >= deadline_s:
                    raise
                if not waiting:
                    report(f"waiting up to {wait_s:g} s for {error.first}")
                    waiting = True
                time.sleep(min(_RETRY_S, max(0.0, deadline_s - time.monotonic())))
        if lock_file is None:  # shared with one that holds it
            yield
            return
        if (
            os.fstat(lock_file).st_uid == os.geteuid()
        ):  # else the lock holds, and nothing is written
            with suppress(OSError):
                os.ftruncate(lock_file, 0)
                os.pwrite(lock_file, f"{holder}\n".encode(), 0)
        if share:  # beside others anyway: nothing is lost with the file
            yield
            return
        _held.append((lock_file, path.absolute()))
        stack.callback(_held.pop)
        yield
        warning = lost_lock_warning()
        if warning is not None:
            raise RunError(warning)


def _take_lock(stack: ExitStack, path: Path, *, share: bool) -> int | None:
    """Take the lock, which `stack` lets go; return None when another holds it and it is shared.

    Raises `MachineTakenError`, `InputError`.
    """
    try:
        lock_file = _open_lock_file(path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot open the machine's lock ({error.strerror}); "
            "set RATER_LOCK to a file you may write, or use --share to run without it"
        ) from error
    stack.callback(os.close, lock_file)
    try:
        fcntl.flock(lock_file, (fcntl.LOCK_SH if share else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError as error:
        if share:
            return None
        raise MachineTakenError(path, _read_holder(lock_file)) from error
    except OSError as error:
        raise InputError(
            f"{path}: its file system has no locks ({error.strerror}); set RATER_LOCK to a file on "
            "a disk of this machine, or use --share to run without it"
        ) from error
    name_socket = stack.enter_context(socket.socket(socket.AF_UNIX))
    try:
        name_socket.bind(_socket_name(path))
        name_socket.listen()
    except OSError as error:
        if error.errno == errno.EADDRINUSE and not share:
            raise MachineTakenError(path, _describe_listener(path)) from error
    return lock_file


def lost_lock_warning() -> str | None:
    """Say that the file of the lock that this process holds is not there any more, if so."""
    for lock_file, path in _held:
        try:
            is_same = os.path.samestat(os.fstat(lock_file), path.stat())
        except OSError:
            is_same = False
        if not is_same:
            return (
                f"the machine's lock {path} was removed or replaced during the run: another run "
                "may have gone on beside it"
            )
    return None


def _socket_name(path: Path) -> str:
    """Return a name of an abstract socket (unix(7)), which is gone with its process."""
    return f"\0rater-lock-{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]}"


def _describe_listener(path: Path) -> str:
    """Describe the process that holds the name but not the file.

    It may be a rater whose file was removed, or any other program.
    """
    description = "somebody"
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.setblocking(False)
        connection.connect(_socket_name(path))
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        pid, user, _ = _PEER.unpack(credentials)
        description = f"process {pid or 'of another container'} of user {user_name(user)}"
    return f"{description}, whose lock file was removed unless that is no rater"


def _open_lock_file(path: Path) -> int:
    try:
        descriptor = open_file(path, os.O_CREAT | os.O_RDWR, mode=_MODE, of_any_user=True)
    except PermissionError:
        return open_file(path, os.O_RDONLY, of_any_user=True)
    if os.fstat(descriptor).st_uid == os.geteuid():
        os.fchmod(descriptor, _MODE)  # whatever the umask, or an earlier rater's mode
    return descriptor


def _read_holder(lock_file: int) -> str:
    """Return the text of the lock file, which names its holder, unless that process has ended.

    A rater that holds another user's lock file could not write into the file.
    """
    text = os.pread(lock_file, 500, 0).decode(errors="replace").strip()
    process_named = re.search(r"process (\d{1,9})", text)
    has_ended = process_named is not None and not Path(f"/proc/{process_named[1]}").exists()
    return "another user's rater" if has_ended or not text else text


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
    most_bytes, largest_name, most_copies, is_divided = 0, None, 0, False
    disk_bytes = 0
    unstated: dict[str, None] = {}
    for demands in phases:
        memory_bytes = sum(demand.copies * (demand.memory_bytes or 0) for demand in demands)
        unstated |= {demand.benchmark: None for demand in demands if demand.memory_bytes is None}
        if memory_bytes > most_bytes:
            most_bytes, most_copies = memory_bytes, sum(demand.copies for demand in demands)
            largest_name = demands[0].benchmark if len(demands) == 1 else "the ring"
            is_divided = any(demand.is_divided for demand in demands)
        written_bytes = sum(
            demand.runs * (demand.disk_bytes + demand.input_bytes) for demand in demands
        )
        disk_bytes = disk_bytes + written_bytes if keep else max(disk_bytes, written_bytes)
    problems = []
    if most_bytes > available.memory_bytes:
        limit_text = _limit_text(available)
        fitting_copies = 0 if is_divided else most_copies * available.memory_bytes // most_bytes
        copies_text = f"{most_copies} {'copy' if most_copies == 1 else 'copies'} of {largest_name}"
        problems.append(
            f"memory: {_format_bytes(most_bytes)} needed ({copies_text}), "
            f"{_format_bytes(available.memory_bytes)} available{limit_text}; "
            + (f"--copies {fitting_copies} would fit, or a" if fitting_copies else "take a")
            + " smaller --size, or --force"
        )
    if disk_bytes > available.disk_bytes:
        problems.append(
            f"disk: {_format_bytes(disk_bytes)} needed by run directories, "
            f"{_format_bytes(available.disk_bytes)} free in {available.disk}; set RATER_CACHE to "
            "a larger disk, use fewer copies, or --force"
        )
    return ResourceNeeds(
        memory_bytes=most_bytes,
        memory_benchmark=largest_name,
        disk_bytes=disk_bytes,
        available=available,
        unstated=tuple(unstated),
        problems=tuple(problems),
    )


def misfit(demand: MemoryDemand, available: AvailableResources) -> str | None:
    """Say why a benchmark does not fit even alone, None when it does."""
    memory_bytes = demand.copies * (demand.memory_bytes or 0)
    if memory_bytes > available.memory_bytes:
        available_text = (
            f"{_format_bytes(available.memory_bytes)} available{_limit_text(available)}"
        )
        return f"{_format_bytes(memory_bytes)} needed, {available_text}"
    disk_bytes = demand.runs * (demand.disk_bytes + demand.input_bytes)
    if disk_bytes > available.disk_bytes:
        free = f"{_format_bytes(available.disk_bytes)} free in {available.disk}"
        return f"{_format_bytes(disk_bytes)} of disk needed, {free}"
    return None


def available(work: Path) -> AvailableResources:
    """Measure what is left: memory of the machine or our cgroup's if less, disk at `work`.

    `work` need not exist yet. Raises `InputError` when no folder above it can be read.
    """
    memory_bytes = meminfo(Path("/proc/meminfo")).get("MemAvailable", _free_bytes())
    limiting_group = None
    headroom = cgroup_headroom(Path("/"))
    if headroom is not None and headroom[0] < memory_bytes:
        memory_bytes, limiting_group = headroom
    existing_folder = next(
        (folder for folder in (work, *work.parents) if folder.is_dir()), Path("/")
    )
    try:
        disk_bytes = shutil.disk_usage(existing_folder).free
    except OSError as error:
        raise InputError(f"{existing_folder}: {error.strerror}") from None
    return AvailableResources(memory_bytes, limiting_group, disk_bytes, str(work))


def _free_bytes() -> int:
    """Return the memory that nothing uses, for a /proc that does not say what is available."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def cgroup_headroom(root: Path) -> tuple[int, str] | None:
    """Return (bytes left, cgroup) of the tightest memory limit above us, None without one.

    Every cgroup from ours to the top may have a limit. File pages that the kernel
    can drop count as left. `root` is `/`, or a copy of it in tests.
    """
    headrooms = []
    for group in limiting_groups(root, "memory"):
        counter_name = "total_inactive_file" if group.is_v1 else "inactive_file"
        left_bytes, droppable_bytes = (
            group.left("memory"),
            counted(group.folder / "memory.stat", counter_name),
        )
        headrooms += (
            []
            if left_bytes is None
            else [(max(0, left_bytes + (droppable_bytes or 0)), group.name)]
        )
    return min(headrooms, key=lambda headroom: headroom[0], default=None)


def huge_pages_left_bytes(root: Path, page_bytes: int) -> int | None:
    """Return how much of the pool of a page size our cgroups allow; None without a limit."""
    controller = (
        f"hugetlb.{page_bytes >> 30}GB"
        if page_bytes >= 1 << 30
        else f"hugetlb.{page_bytes >> 20}MB"
    )
    left_by_group = (group.left(controller) for group in limiting_groups(root, "hugetlb"))
    return min(
        (max(0, left_bytes) for left_bytes in left_by_group if left_bytes is not None), default=None
    )


_NO_LIMIT_BYTES = 1 << 62


class LimitingGroup(NamedTuple):
    """A cgroup that we are in, or one above it."""

    folder: Path
    is_v1: bool
    name: str = ""  # within its hierarchy

    def limit(self, controller: str) -> int | None:
        """Return the limit in bytes of `memory` or `hugetlb.2MB`; None when there is none."""
        limit_bytes = read_number(
            self.folder / f"{controller}.{'limit_in_bytes' if self.is_v1 else 'max'}"
        )
        # Version 1 has no word for "no limit": its files hold a number near 2^63 then.
        return None if limit_bytes is None or limit_bytes >= _NO_LIMIT_BYTES else limit_bytes

    def left(self, controller: str) -> int | None:
        """Return the bytes between that limit and the present use."""
        used_bytes = read_number(
            self.folder / f"{controller}.{'usage_in_bytes' if self.is_v1 else 'current'}"
        )
        limit_bytes = self.limit(controller)
        return None if limit_bytes is None or used_bytes is None else limit_bytes - used_bytes

    def memory_limit_hits(self) -> int | None:
        """Return how often tasks had to free memory to stay below its limit; None: not counted."""
        if self.is_v1:
            return read_number(self.folder / "memory.failcnt")
        return counted(self.folder / "memory.events", "max")


def tightest_memory_group(root: Path) -> LimitingGroup | None:
    """Return the cgroup that gives us the least memory; None: none limits it."""
    limits = [(group.limit("memory"), group) for group in limiting_groups(root, "memory")]
    known = [(limit_bytes, group) for limit_bytes, group in limits if limit_bytes is not None]
    return min(known, key=lambda pair: pair[0])[1] if known else None


def limiting_groups(root: Path, controller: str) -> Iterable[LimitingGroup]:
    """Return the cgroups, from ours to the top, that may limit what a controller gives us."""
    memberships = read_text(root / "proc/self/cgroup")
    mounts = read_text(root / "proc/self/mountinfo")
    if mounts is None or memberships is None:
        return ()
    return _limiting_groups(root, controller, memberships, mounts)


@lru_cache  # asked for dozens of times in a run, and neither groups nor mounts often change
def _limiting_groups(
    root: Path, controller: str, memberships: str, mounts: str
) -> Sequence[LimitingGroup]:
    groups = []
    for line in memberships.splitlines():
        _, controllers, group = line.split(":", 2)
        hierarchy = "cgroup" if controller in controllers.split(",") else "cgroup2"
        if controllers and hierarchy == "cgroup2":
            continue
        mounted = _mount_point(mounts, hierarchy, controller)
        if mounted is None:
            continue
        mount_folder, mount_root = root / mounted[0].lstrip("/"), mounted[1]
        path_inside = group.removeprefix(mount_root) if mount_root != "/" else group
        folder = mount_folder / path_inside.lstrip("/")
        while folder.is_relative_to(mount_folder):
            name = f"/{folder.relative_to(mount_folder)}".removesuffix(".")
            groups.append(LimitingGroup(folder, hierarchy == "cgroup", name))
            folder = folder.parent
    return groups


def _mount_point(mountinfo: str, hierarchy: str, controller: str) -> tuple[str, str] | None:
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, described = before.split(), after.split()
        options = described[-1].split(",")
        if described[0] == hierarchy and (hierarchy == "cgroup2" or controller in options):
            return fields[4], fields[3]
    return None


def _limit_text(available: AvailableResources) -> str:
    return f" (the limit of cgroup {available.memory_limit})" if available.memory_limit else ""


def _format_bytes(byte_count: int) -> str:
    return f"{byte_count / 1e9:.1f} GB" if byte_count >= 1e8 else f"{byte_count / 1e6:.1f} MB"
