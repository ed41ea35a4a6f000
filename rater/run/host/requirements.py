"""Does a run fit? Memory and disk it needs against what there is, before it starts."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from rater.errors import InputError


@dataclass(frozen=True, slots=True)
class Load:
    """One benchmark as one phase runs it."""

    benchmark: str
    copies: int  # that run it at the same time
    runs: int  # run directories it has in the phase (copies x steps)
    memory_bytes: int | None  # per copy, None when the suite does not say
    disk_bytes: int  # written by one run
    input_bytes: int  # copied into each run directory; 0 when links work
    is_divided: bool = False  # all copies of the run share one amount: fewer do not need less


@dataclass(frozen=True, slots=True)
class Available:
    """What the machine (or our cgroup) has left."""

    memory_bytes: int
    memory_limit: str | None  # the cgroup that limits it, None when the machine does
    disk_bytes: int
    disk: str  # the directory that was looked at


@dataclass(frozen=True, slots=True)
class Needs:
    """What a run needs at its worst moment; empty `problems` means that it fits."""

    memory_bytes: int
    memory_benchmark: str | None  # the phase that needs most; None: no memory is stated
    disk_bytes: int
    available: Available
    unstated: tuple[str, ...]  # benchmarks whose memory the suite does not state
    problems: tuple[str, ...]


def estimate(phases: Iterable[Sequence[Load]], available: Available, *, keep: bool) -> Needs:
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
    return Needs(most, most_name, disk, available, tuple(unstated), tuple(problems))


def misfit(load: Load, available: Available) -> str | None:
    """Say why a benchmark does not fit even alone, None when it does."""
    memory = load.copies * (load.memory_bytes or 0)
    if memory > available.memory_bytes:
        left = f"{_gb(available.memory_bytes)} available{_limit(available)}"
        return f"{_gb(memory)} needed, {left}"
    disk = load.runs * (load.disk_bytes + load.input_bytes)
    if disk > available.disk_bytes:
        return f"{_gb(disk)} of disk needed, {_gb(available.disk_bytes)} free in {available.disk}"
    return None


def available(work: Path) -> Available:
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
    return Available(memory, limit, disk, str(work))


def cgroup_headroom(root: Path) -> tuple[int, str] | None:
    """Return (bytes left, cgroup) of the tightest memory limit above us, None without one.

    Every cgroup from ours to the top may have a limit. File pages that the kernel
    can drop count as left. `root` is `/`, or a copy of it in tests.
    """
    tightest: tuple[int, str] | None = None
    for group in limiting_groups(root, "memory"):
        left = _left_v1(group.folder) if group.is_v1 else _left_v2(group.folder)
        if left is not None and (tightest is None or left < tightest[0]):
            tightest = (left, group.name)
    return tightest


class LimitingGroup(NamedTuple):
    """A cgroup that we are in, or one above it."""

    folder: Path
    is_v1: bool
    name: str = ""  # within its hierarchy


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


def _mount_point(mountinfo: str, kind: str, controller: str) -> tuple[str, str] | None:
    """Return (mount point, root of the mount within its file system) of a hierarchy."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, described = before.split(), after.split()
        options = described[-1].split(",")
        if described[0] == kind and (kind == "cgroup2" or controller in options):
            return fields[4], fields[3]
    return None


def _left_v2(folder: Path) -> int | None:
    try:
        limit = (folder / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((folder / "memory.current").read_text())
        return max(0, int(limit) - used + _stat(folder, "inactive_file"))
    except (OSError, ValueError):
        return None


def _left_v1(folder: Path) -> int | None:
    try:
        limit = int((folder / "memory.limit_in_bytes").read_text())
        used = int((folder / "memory.usage_in_bytes").read_text())
        return max(0, limit - used + _stat(folder, "total_inactive_file"))
    except (OSError, ValueError):
        return None


def _stat(folder: Path, name: str) -> int:
    for line in (folder / "memory.stat").read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _limit(available: Available) -> str:
    return f" (the limit of cgroup {available.memory_limit})" if available.memory_limit else ""


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
