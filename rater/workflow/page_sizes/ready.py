"""Page sizes of copies made ready: the library built, sizes of data learnt, pools looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rater.errors import InputError
from rater.plan.pages.layout import Category, PageLayout
from rater.plan.pages.windows import page_windows
from rater.plan.pages.words import VARIABLE, PageOrder, capped, pool_pages, pool_pages_text
from rater.plan.placement.place import Placement
from rater.plan.pools.pools import (
    PoolNeed,
    largest_needs,
    pool_needs,
)
from rater.plan.request.request import Request
from rater.record.run import BenchmarkUsed
from rater.run.page_sizes.library import build_library
from rater.run.page_sizes.machine import huge_page_bytes, limit_problem, reserves
from rater.run.page_sizes.proof import PageSetup
from rater.run.programs.child_process import Limits
from rater.run.programs.memory_tuning import CopyTuning
from rater.run.workplace.program import Program
from rater.settings.paths import sysroot
from rater.workflow.page_sizes.layout import (
    PagesAsked,
    layout_problems,
    pages_asked,
    program_problems,
)
from rater.workflow.page_sizes.learn import learn_sizes
from rater.workflow.page_sizes.pools import filled

type Extents = Mapping[Category, int]


@dataclass(frozen=True, slots=True)
class PageCopies:
    """What copies run as, and where."""

    programs: Mapping[str, Program]  # by benchmark
    files: Mapping[str, tuple[Path, ...]]  # what they execute, by benchmark
    used: tuple[BenchmarkUsed, ...]
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class PagesReady:
    """Everything that copies need for their page sizes."""

    setup: PageSetup
    programs: dict[str, Program]  # with the layout in their environment
    tuning: CopyTuning
    warnings: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]  # kept with the run


def ready_pages(
    request: Request,
    copies: PageCopies,
    *,
    cache: Path,
    work: Path,
    known: Callable[[BenchmarkUsed, bool], Extents],
    say: Callable[[str], None],
    fill: Callable[[Mapping[str, str]], None],
) -> PagesReady | None:
    """Return what copies need; None where page sizes are not chosen.

    `fill` sets pools of huge pages, by the names of their settings, until the run is over; it
    raises `RaterError` where it cannot. `known` tells how large a program's data was in an earlier
    run (with large blocks apart or not). Raises `InputError` where the layout cannot be had, unless
    the best of it will do.
    """
    asked = pages_asked(request)
    if asked is None:
        return None
    root = sysroot()
    huge = huge_page_bytes(root)
    library = build_library(cache, split=asked.layout.split)
    problems = layout_problems(asked, {})
    every = {file for files in copies.files.values() for file in files}
    problems += program_problems(every, library.executable)
    reports = work / "pages"
    reports.mkdir(mode=0o700)
    tuning = CopyTuning(preload=str(library.executable))
    shares: dict[str, Extents] = {}
    if (not problems and asked.layout.needs_extent) or asked.pooled or _giant(asked.layout, huge):
        shares = _sizes(request, asked, copies, (work, reports, tuning, huge), known=known, say=say)
    orders = {}
    for name in copies.programs:
        orders[name] = _order(asked, shares.get(name, {}), huge, root)
        limit = limit_problem(orders[name].heap_bytes, orders[name].mmap_bytes)
        problems += [limit] if limit else []
    needs = _pool_needs(asked, orders.values(), copies.placements, huge)
    pools: tuple[tuple[str, str], ...] = ()
    if not problems or asked.layout.best:
        pools, lacking = filled(needs, fill, root)
        problems += [text + _by_category(asked, orders.values(), huge) for text in lacking]
    problems = list(dict.fromkeys(problems))
    if problems and not asked.layout.best:
        raise InputError(f"--pages {request.pages}: {'; '.join(problems)}")
    programs = {
        name: replace(
            program,
            environment=(
                *program.environment,
                (VARIABLE, orders[name].words(str(reports))),
            ),
        )
        for name, program in copies.programs.items()
    }
    return PagesReady(
        setup=PageSetup(orders, huge, reports),
        programs=programs,
        tuning=tuning,
        warnings=tuple(f"--pages {request.pages}: {text}" for text in problems),
        settings=(
            ("copies.pages", f"{asked.layout}, {'hugetlb' if asked.pooled else 'thp'}"),
            ("copies.pages.library", f"sha256 {(library.sha256 or '')[:12]}"),
            *pools,
        ),
    )


def _giant(layout: PageLayout, huge: int) -> bool:
    """Tell whether pages are asked for that are only of a pool, and taken at once."""
    return any(it.page_bytes > huge for it in page_windows(layout, {}, huge))


def _sizes(
    request: Request,
    asked: PagesAsked,
    copies: PageCopies,
    where: tuple[Path, Path, CopyTuning, int],
    *,
    known: Callable[[BenchmarkUsed, bool], Extents],
    say: Callable[[str], None],
) -> dict[str, Extents]:
    """Return how large each program's data becomes: as the user says, as seen, or tried now."""
    if asked.heap_bytes is not None:
        given = dict.fromkeys(Category, asked.heap_bytes)
        return dict.fromkeys(copies.programs, given)
    found: dict[str, Extents] = {}
    work, reports, tuning, huge = where
    for one in copies.used:
        seen = known(one, asked.layout.split)
        if not seen:
            say(
                f"--pages: one copy of {one.name} alone, to learn how large its data becomes "
                "(--pages-heap SIZE says so)"
            )
            order = _order(replace(asked, layout=_base(asked.layout)), {}, huge, sysroot())
            limit = limit_problem(order.heap_bytes, order.mmap_bytes)
            if limit:
                raise InputError(f"--pages {request.pages}: {limit}")
            limits = Limits(request.timeout_s, request.output_limit_bytes)
            seen = learn_sizes(
                copies.programs[one.name],
                order,
                huge,
                work=work,
                reports=reports,
                tuning=tuning,
                placement=copies.placements[0],
                environment=request.environment,
                limits=limits,
                best=asked.layout.best,
            )
        found[one.name] = seen
    return found


def _base(layout: PageLayout) -> PageLayout:
    return PageLayout(split=layout.split)


def _order(asked: PagesAsked, extents: Extents, huge: int, root: Path) -> PageOrder:
    heap, mmap = reserves(asked.heap_bytes, extents, root)
    windows = page_windows(asked.layout, extents, huge)
    if asked.pooled:
        windows = tuple(capped(windows, {it: extents.get(it, 0) for it in Category}, huge))
    else:
        giant = tuple(it for it in windows if it.page_bytes > huge)
        limits = {it: extents.get(it, 0) for it in Category}
        others = (it for it in windows if it not in giant)
        windows = tuple(sorted((*capped(giant, limits, huge), *others)))
    return PageOrder(
        windows=windows,
        heap_bytes=heap,
        mmap_bytes=mmap,
        split=asked.layout.split,
        pooled=asked.pooled,
        strict=not asked.layout.best,
        extents=tuple(extents.items()) if asked.layout.needs_extent else (),
    )


def _by_category(asked: PagesAsked, orders: Iterable[PageOrder], huge: int) -> str:
    """Say why a copy needs several pages where its data would fit into one."""
    every = {pool_pages_text(it.windows, huge, pooled=asked.pooled) for it in orders} - {""}
    return f"; each category has pages of its own: {' or '.join(sorted(every))}" if every else ""


def _pool_needs(
    asked: PagesAsked, orders: Iterable[PageOrder], placements: Sequence[Placement], huge: int
) -> tuple[PoolNeed, ...]:
    """Return what the program that needs most takes of each pool, with all copies."""
    per_copy = [pool_pages(order.windows, huge, pooled=asked.pooled) for order in orders]
    return largest_needs(
        pool_needs(placements, {placed.copy: pages for placed in placements}) for pages in per_copy
    )
