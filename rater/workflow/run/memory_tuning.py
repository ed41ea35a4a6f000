"""`--alloc` and `--hugepages`: what they mean here, what they need, how runs remember them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from rater.errors import InputError
from rater.plan.request.request import Request
from rater.run.host.sysfiles import meminfo, read_number
from rater.run.programs.allocator import find_allocator
from rater.run.programs.compile import sha256_of
from rater.run.programs.memory_tuning import (
    HUGETLB,
    MADVISE,
    THP,
    UNTUNED,
    CopyTuning,
    tuning_for,
    untouched_by,
)
from rater.settings.catalog import present_settings
from rater.settings.paths import sysroot

_MEMINFO = Path("proc/meminfo")
_DIGEST_SHOWN = 12
_PMD_SIZE = Path("sys/kernel/mm/transparent_hugepage/hpage_pmd_size")


def tuning_of(request: Request) -> CopyTuning:
    """Return what copies are to find. Raises `InputError` for an allocator that is not here."""
    if request.alloc is None and request.hugepages is None:
        return UNTUNED
    library = None if request.alloc is None else find_allocator(request.alloc)
    environment = dict(os.environ) | dict(request.environment)
    return tuning_for(library, request.hugepages, environment, _libc())


def refuse_pages(request: Request, planned: Mapping[str, str] | None = None) -> None:
    """Raise `InputError` where the machine's settings do not give the pages that were asked for.

    `planned`: kernel settings (by name) that will be set before the run, and their values.
    """
    problem = pages_problem(request.hugepages, planned or {})
    if problem:
        raise InputError(f"--hugepages {request.hugepages}: {problem}")


def pages_problem(mode: str | None, planned: Mapping[str, str]) -> str | None:
    """Return what the machine lacks for a mode of --hugepages, and the way out; None: nothing."""
    if mode not in (MADVISE, THP, HUGETLB):
        return None
    root = sysroot()
    now = {setting.name: setting.read().text for setting in present_settings(root)} | dict(planned)
    if mode == HUGETLB:
        return _pool_problem(now, _kilobytes(root / _MEMINFO, "Hugepagesize"))
    wanted = ("always",) if mode == THP else ("always", "madvise")
    present = now.get("thp")
    if present is None:
        return "this kernel has no transparent huge pages"
    if present not in wanted:
        own = ", or --hugepages madvise, which needs no root" if present == "madvise" else ""
        return (
            f"the machine's setting thp is {present}, and this takes {' or '.join(wanted)}; as "
            f"root: rater sweep --axis thp={wanted[-1]}, or echo {wanted[-1]} > "
            f"/sys/kernel/mm/transparent_hugepage/enabled{own}"
        )
    size = f"thp.{_pmd_kilobytes(root)}kB"
    if now.get(size, "inherit") not in ("inherit", *wanted):
        return f"the machine's setting {size} is {now[size]}; as root: --axis {size}=inherit"
    return None


def _pool_problem(now: Mapping[str, str], kilobytes: int | None) -> str | None:
    if kilobytes is None:
        return "this kernel has no huge pages"
    pool = f"hugepages.{kilobytes}kB"
    of_nodes = [int(value) for name, value in now.items() if name.startswith(f"{pool}.node")]
    if int(now.get(pool, "0")) or any(of_nodes):
        return None
    mega = kilobytes / 1024
    return (
        f"the pool has 0 pages of {mega:g} MB, and glibc would quietly take small ones; as root: "
        f"rater sweep --axis {pool}=N, or echo N > /proc/sys/vm/nr_hugepages (N x {mega:g} MB "
        "for all copies)"
    )


def _kilobytes(path: Path, name: str) -> int | None:
    found = meminfo(path).get(name)
    return None if found is None else found // 1024


def _pmd_kilobytes(root: Path) -> int:
    return (read_number(root / _PMD_SIZE) or 2 << 20) // 1024


def _libc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):  # another C library
        return None


def tuning_settings(request: Request, tuning: CopyTuning) -> tuple[tuple[str, str], ...]:
    """Return what is kept with the run, beside the machine's settings."""
    found = []
    if tuning.preload is not None:
        path = Path(tuning.preload).resolve()
        digest = sha256_of(path)[:_DIGEST_SHOWN]
        found.append(("copies.alloc", f"{request.alloc}: {path} (sha256 {digest})"))
    if request.hugepages is not None:
        found.append(("copies.hugepages", request.hugepages))
    return tuple(found)


def untouched(
    request: Request, tuning: CopyTuning, programs: Collection[Path], needed_bytes: int
) -> tuple[str, ...]:
    """Return which programs and which memory the options do not reach, in words.

    `needed_bytes`: what all copies hold together at their peak; 0: not stated.

    Raises `InputError` where they reach none: the run would say of an allocator what it is not.
    """
    if tuning.preload is None and tuning.tunable is None:
        return ()
    found = untouched_programs(tuning, programs)
    before = (dict(os.environ) | dict(request.environment)).get("LD_PRELOAD")
    if tuning.preload is not None and before:
        found = (
            *found,
            f"LD_PRELOAD is {before}, which comes before --alloc {request.alloc}: an allocator "
            "there takes its place",
        )
    return found + _small_pool(request, needed_bytes)


def untouched_programs(tuning: CopyTuning, programs: Collection[Path]) -> tuple[str, ...]:
    """Return which programs the options do not reach. Raises `InputError` where that is all."""
    if tuning.preload is None and tuning.tunable is None:
        return ()
    whys = {program: untouched_by(tuning, program) for program in sorted(programs)}
    told = tuple(f"{program} {why}" for program, why in whys.items() if why)
    option = "--hugepages" if tuning.preload is None else "--alloc"
    if told and len(told) == len(programs):
        raise InputError(f"{option} would change nothing: {'; '.join(told)}")
    return tuple(f"{option} changes nothing for {text}" for text in told)


def _small_pool(request: Request, needed_bytes: int) -> tuple[str, ...]:
    """Say so where the pool of huge pages is too small for all copies."""
    if request.hugepages != HUGETLB:
        return ()
    memory = meminfo(sysroot() / _MEMINFO)
    free_bytes = memory.get("HugePages_Free", 0) * memory.get("Hugepagesize", 0)
    if free_bytes >= needed_bytes:
        return ()
    return (
        f"--hugepages hugetlb: copies need {needed_bytes / 1e9:.2g} GB, free pages of the pool are "
        f"{free_bytes / 1e9:.2g} GB: what does not fit gets small pages",
    )
