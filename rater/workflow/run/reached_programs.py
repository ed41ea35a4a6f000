"""Programs that a preloaded library or a setting of memory does not reach."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from rater.errors import InputError
from rater.plan.request.request import Request
from rater.run.programs.memory_tuning import (
    HUGETLB,
    CopyTuning,
    untouched_by,
)
from rater.settings.paths import sysroot
from rater.workflow.run.memory_tuning import MEMINFO

if TYPE_CHECKING:
    from rater.workflow.run.prepare import Ready
    from rater.workflow.run.resolve import Resolved


_DIGEST_SHOWN = 12


def tuning_settings(resolved: Resolved) -> tuple[tuple[str, str], ...]:
    """Return what is kept with the run, beside the machine's settings."""
    from rater.run.programs.compile import sha256_of

    request, tuning = resolved.request, resolved.tuning
    found = []
    if tuning.preload is not None:
        path = Path(tuning.preload).resolve()
        digest = sha256_of(path)[:_DIGEST_SHOWN]
        found.append(("copies.alloc", f"{request.alloc}: {path} (sha256 {digest})"))
    if request.hugepages is not None:
        found.append(("copies.hugepages", request.hugepages))
    return tuple(found)


def untouched(ready: Ready, needed_bytes: int) -> tuple[str, ...]:
    """Return which programs and which memory the options do not reach, in words.

    `needed_bytes`: what all copies hold together at their peak; 0: not stated.

    Raises `InputError` where they reach none: the run would say of an allocator what it is not.
    """
    tuning, request = ready.resolved.tuning, ready.resolved.request
    if tuning.preload is None and tuning.tunable is None:
        return ()
    told = untouched_programs(tuning, programs_of(ready))
    before = (dict(os.environ) | dict(request.environment)).get("LD_PRELOAD")
    if tuning.preload is not None and before:
        told = (
            *told,
            f"LD_PRELOAD is {before}, which comes before --alloc {request.alloc}: an allocator "
            "there takes its place",
        )
    return told + _small_pool(request, needed_bytes)


def programs_of(ready: Ready) -> set[Path]:
    """Return the programs that copies are."""
    return {Path(line.words[0]) for lines in ready.lines for line in lines}


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
    from rater.run.host.sysfiles import meminfo

    if request.hugepages != HUGETLB:
        return ()
    memory = meminfo(sysroot() / MEMINFO)
    free_bytes = memory.get("HugePages_Free", 0) * memory.get("Hugepagesize", 0)
    if free_bytes >= needed_bytes:
        return ()
    return (
        f"--hugepages hugetlb: copies need {needed_bytes / 1e9:.2g} GB, free pages of the pool are "
        f"{free_bytes / 1e9:.2g} GB: what does not fit gets small pages",
    )
