"""`--alloc` and `--hugepages`: what they mean here, what they need, how runs remember them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rater.errors import InputError
from rater.plan.request.request import Request
from rater.run.programs.memory_tuning import (
    HUGETLB,
    MADVISE,
    THP,
    UNTUNED,
    CopyTuning,
    tuning_for,
)
from rater.settings.paths import sysroot

MEMINFO = Path("proc/meminfo")
_PMD_SIZE = Path("sys/kernel/mm/transparent_hugepage/hpage_pmd_size")


def tuning_of(request: Request) -> CopyTuning:
    """Return what copies are to find. Raises `InputError` for an allocator that is not here."""
    if request.alloc is None and request.hugepages is None:
        return UNTUNED
    from rater.run.programs.allocator import find_allocator

    library = None if request.alloc is None else find_allocator(request.alloc)
    environment = dict(os.environ) | dict(request.environment)
    return tuning_for(library, request.hugepages, environment, _libc())


def refuse_pages(request: Request, planned: Mapping[str, str] | None = None) -> None:
    """Raise `InputError` where the machine's settings do not give the pages that were asked for.

    `planned`: knobs (by `Knob.name`) that will be set before the run, and their values.
    """
    problem = pages_problem(request.hugepages, planned or {})
    if problem:
        raise InputError(f"--hugepages {request.hugepages}: {problem}")


def pages_problem(mode: str | None, planned: Mapping[str, str]) -> str | None:
    """Return what the machine lacks for a mode of --hugepages, and the way out; None: nothing."""
    from rater.settings.catalog import knobs

    if mode not in (MADVISE, THP, HUGETLB):
        return None
    root = sysroot()
    now = {knob.name: knob.read().text for knob in knobs(root)} | dict(planned)
    if mode == HUGETLB:
        return _pool_problem(now, _kilobytes(root / MEMINFO, "Hugepagesize"))
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
    from rater.run.host.sysfiles import meminfo

    found = meminfo(path).get(name)
    return None if found is None else found // 1024


def _pmd_kilobytes(root: Path) -> int:
    from rater.run.host.sysfiles import read_number

    return (read_number(root / _PMD_SIZE) or 2 << 20) // 1024


def _libc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):  # another C library
        return None
