"""One copy alone, to learn how large its data becomes: what shares of a layout are taken of."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from rater.errors import InputError, RaterError
from rater.plan.pages.layout import Category
from rater.plan.pages.words import VARIABLE, PageOrder
from rater.plan.placement.place import MemoryPolicy, Placement
from rater.plan.schedule.phases import Step
from rater.run.copies.watch import MARKER
from rater.run.page_sizes.report import BEGIN, last_of_each, page_regions, read_reports
from rater.run.programs.child_process import Limits, run_alone
from rater.run.programs.memory_tuning import CopyTuning
from rater.run.workplace.program import Program
from rater.run.workplace.run_dirs import RunFolders


def learn_sizes(
    program: Program,
    order: PageOrder,
    huge_bytes: int,
    *,
    work: Path,
    reports: Path,
    tuning: CopyTuning,
    placement: Placement,
    environment: tuple[tuple[str, str], ...],
    limits: Limits,
    best: bool,
) -> dict[Category, int]:
    """Return bytes from the start of each category to its last page, all in base pages.

    Raises `InputError` where the copy does not end well or nothing can be seen of it, or where it
    takes memory that is in no category (not with `best`).
    """
    name = program.name
    told = replace(
        program, environment=(*program.environment, (VARIABLE, order.words(str(reports))))
    )
    alone = replace(placement, copy=0, cpus=None, policy=MemoryPolicy.NONE)
    mark = os.environ.get(MARKER) or str(uuid4())
    folders = RunFolders(work, mark, {name: told}, (alone,), environment, keep=False, tuning=tuning)
    spec = folders.spec(0, 0, Step(name, 1))
    try:
        ended = run_alone(
            spec.argv,
            Path(spec.directory),
            spec.environment | spec.late,
            limits,
            outputs=(Path(spec.stdout), Path(spec.stderr)),
        )
        if ended.exit_code != 0 or ended.excess is not None:
            raise InputError(
                f"--pages: the copy of {name} alone, which was to tell how large its data becomes, "
                f"ended {_how(ended.exit_code, ended.signal)}: {_last_line(Path(spec.stderr))}; "
                "see whether it runs without --pages, or say --pages-heap SIZE"
            )
    except OSError as error:
        raise InputError(f"{name}: cannot be started: {error.strerror}") from error
    finally:
        with suppress(RaterError):
            folders.clear(spec)
    file = reports / "0"
    processes = [it for it in last_of_each(read_reports(file)) if it.event != BEGIN]
    with suppress(OSError):
        file.unlink()
    regions = page_regions(processes, order, huge_bytes)
    if not regions:
        raise InputError(
            f"--pages: nothing could be seen of the memory of {name}: it does not load libraries "
            "that are preloaded, or ends without exit; say --pages-heap SIZE, or take a layout "
            "without shares (huge, 2M, 2M@64M-128M)"
        )
    moved = max(it.moved_break for it in processes)
    if moved and not best:
        raise InputError(
            f"--pages: {name} moves the break itself ({moved} times), and that memory is in no "
            "category of the layout; with :best behind the layout it runs all the same"
        )
    return {Category(it.category): it.extent_bytes for it in regions}


def _how(code: int | None, number: int | None) -> str:
    return f"by signal {number}" if number is not None else f"with exit code {code}"


def _last_line(file: Path) -> str:
    try:
        lines = file.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1][:200] if lines else "it printed no error"
