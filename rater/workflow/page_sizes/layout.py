"""`--pages`: what was asked for, and whether this machine and these programs can have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rater.errors import InputError
from rater.plan.pages.layout import PageLayout, parse_pages
from rater.plan.request.request import Request
from rater.run.host.elf import read_elf
from rater.run.page_sizes.machine import gains_rights, machine_problems
from rater.run.programs.memory_tuning import CopyTuning, executed, untouched_by
from rater.settings.paths import sysroot

HUGETLB = "hugetlb"


@dataclass(frozen=True, slots=True)
class PagesAsked:
    """What a request says of page sizes."""

    layout: PageLayout
    pooled: bool  # from the pool of huge pages
    heap_bytes: int | None  # how large the heap becomes; None: that is to be learnt


def pages_asked(request: Request) -> PagesAsked | None:
    """Return what is asked for; None: page sizes are not chosen.

    Raises `InputError` for options that contradict each other.
    """
    if request.pages is None:
        if request.pages_backing is not None or request.pages_heap_bytes is not None:
            option = "--pages-heap" if request.pages_backing is None else "--pages-backing"
            raise InputError(f"{option} says something of --pages LAYOUT, which is not there")
        return None
    for option, value in (("--hugepages", request.hugepages), ("--alloc", request.alloc)):
        if value not in (None, "system"):
            raise InputError(_contradicts(option, str(value)))
    layout = parse_pages(request.pages)
    return PagesAsked(layout, request.pages_backing == HUGETLB, request.pages_heap_bytes)


def _contradicts(option: str, value: str) -> str:
    if option == "--alloc":
        why = "--pages shapes the arena of glibc's malloc, which --alloc replaces"
    elif value == "off":
        why = "the kernel then gives copies no huge pages at all, without a word"
    else:
        why = "both choose the page sizes of copies"
    return f"--pages with {option} {value}: {why}; leave one out"


def refuse_layout(request: Request, planned: Mapping[str, str] | None = None) -> None:
    """Raise `InputError` where this machine does not give the pages that were asked for.

    `planned`: kernel settings (by name) that will be set before the run, and their values.
    """
    asked = pages_asked(request)
    if asked is None or asked.layout.best:
        return
    problems = layout_problems(asked, planned or {})
    if problems:
        raise InputError(f"--pages {request.pages}: {'; '.join(problems)}")


def layout_problems(asked: PagesAsked, planned: Mapping[str, str]) -> list[str]:
    """Return why this machine does not give the pages that were asked for."""
    return machine_problems(asked.layout, pooled=asked.pooled, root=sysroot(), planned=planned)


def program_problems(programs: Iterable[Path], library: Path) -> list[str]:
    """Return which programs the library does not reach, and why."""
    tuning = CopyTuning(preload=str(library))
    found = []
    for program in sorted(programs):
        runs = executed(program)
        why = untouched_by(tuning, program) or gains_rights(runs)
        elf = read_elf(runs)
        if why is None and elf is not None and "musl" in (elf.interpreter or ""):
            why = "uses musl, not glibc"
        if why is not None:
            name = str(program) if runs == program else f"{program} (which {runs} executes)"
            found.append(f"{name} {why}")
    return found
