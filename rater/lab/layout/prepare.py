"""`--pages` of a run: asked, refused, sizes of data learnt, made ready for copies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from rater.lab.layout.layout import (
    HUGETLB,
    REST,
    VARIABLE,
    Category,
    PageDirective,
    PageLayout,
    backing_of,
    clip_windows,
    page_windows,
    parse_pages,
    pool_pages,
    pool_pages_text,
)
from rater.lab.layout.pools import (
    fill_pools,
    gains_rights,
    huge_page_bytes,
    limit_problem,
    machine_problems,
    pool_needs,
    reserves,
    settings_for,
)
from rater.lab.layout.preload import (
    BEGIN,
    PageSetup,
    build_library,
    latest_reports,
    page_regions,
    read_reports,
)
from rater.plan.request import Request
from rater.plan.schedule import Step
from rater.record.run import MemoryPolicy
from rater.record.stored import StoredRun
from rater.run.launcher.guard import MARKER
from rater.run.programs.child_process import Limits, run_alone
from rater.run.programs.tuning import CopyTuning, executed, read_elf, unreached_reason
from rater.run.workplace.run_dirs import Program, RunFolders
from rater.store.store import Store
from rater.system.errors import InputError, RaterError
from rater.system.paths import sysroot
from rater.workflow.run.prepare import PreparedRun
from rater.workflow.run.session import PreparedPages

# -- `--pages`: the request, and whether this machine and these programs can have the layout -------


class PageRequest(Struct, frozen=True):
    """The options of a run about page sizes."""

    layout: PageLayout
    pooled: bool  # from the pool of huge pages
    heap_bytes: int | None  # how large the heap becomes; None when that is to be learnt


def pages_asked(request: Request) -> PageRequest | None:
    """Return the request for page sizes; None when they are not chosen.

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
    return PageRequest(layout, request.pages_backing == HUGETLB, request.pages_heap_bytes)


def pages_words(request: Request) -> tuple[str, ...]:
    """Describe the page sizes of data, and the copies that have to run first."""
    page_request = pages_asked(request)
    if page_request is None:
        return ()
    huge_bytes = huge_page_bytes(sysroot())
    is_pooled = HUGETLB in backing_of(
        page_request.layout, pooled=page_request.pooled, huge_bytes=huge_bytes
    )
    origin = "of the pool of huge pages" if is_pooled else "that the kernel gives transparently"
    words = f"{page_request.layout}, in pages {origin}; all else of a copy in base pages"
    first = "where it is not known how large its data becomes, one copy of a program runs first"
    return (
        (words, first)
        if page_request.layout.needs_extent and page_request.heap_bytes is None
        else (words,)
    )


def _contradicts(option: str, value: str) -> str:
    if option == "--alloc":
        reason = "--pages shapes the arena of glibc's malloc, which --alloc replaces"
    elif value == "off":
        reason = "the kernel then gives copies no huge pages at all, without a word"
    else:
        reason = "both choose the page sizes of copies"
    return f"--pages with {option} {value}: {reason}; leave one out"


def refuse_layout(request: Request, planned: Mapping[str, str] | None = None) -> None:
    """Raise `InputError` where this machine does not give the pages that were asked for.

    `planned`: kernel settings (by name) that will be set before the run, and their values.
    """
    page_request = pages_asked(request)
    if page_request is None or page_request.layout.best:
        return
    pooled, root = page_request.pooled, sysroot()
    problems = machine_problems(
        page_request.layout, pooled=pooled, root=root, planned=planned or {}
    )
    if problems:
        raise InputError(f"--pages {request.pages}: {'; '.join(problems)}")


def tied_settings(request: Request) -> dict[str, str]:
    """Return the kernel settings, by name, that a value of `--pages` stands for as well."""
    page_request = pages_asked(request)
    if page_request is None:
        return {}
    return settings_for(page_request.layout, pooled=page_request.pooled, root=sysroot())


def program_problems(programs: Iterable[Path], library: Path) -> list[str]:
    """Return which programs the library does not reach, and why."""
    tuning = CopyTuning(preload=str(library))
    problems = []
    for program in sorted(programs):
        executed_program = executed(program)
        reason = unreached_reason(tuning, program) or gains_rights(executed_program)
        elf = read_elf(executed_program)
        if reason is None and elf is not None and "musl" in (elf.interpreter or ""):
            reason = "uses musl, not glibc"
        if reason is not None:
            name = (
                str(program)
                if executed_program == program
                else f"{program} (which {executed_program} executes)"
            )
            problems.append(f"{name} {reason}")
    return problems


# -- Page sizes of the copies of one run made ready: sizes of data learnt, pools looked at ---------

type Extents = Mapping[Category, int]  # bytes from the start of a category to its last page


def pages_of_run(
    ready: PreparedRun,
    start: StoredRun,
    store: Store,
    cache: Path,
    *,
    say_text: Callable[[str], None],
    fill: Callable[[Mapping[str, str]], None],
) -> PreparedPages | None:
    """Make the page sizes of copies ready; None when they are not chosen.

    `fill` sets pools of huge pages, by the names of their settings, until the run is over; it
    raises `RaterError` where it cannot. Raises `InputError` where the layout cannot be had, unless
    the best of it will do.
    """
    request = ready.resolved.request
    page_request = pages_asked(request)
    if page_request is None:
        return None
    layout = page_request.layout
    huge_bytes = huge_page_bytes(sysroot())
    library = build_library(cache, split=layout.split)
    problems = _layout_problems(ready, page_request, library.executable)
    reports = ready.work / "pages"
    reports.mkdir(mode=0o700)
    setup = PageSetup(orders={}, huge_bytes=huge_bytes, reports=reports, library=library.executable)
    backing = backing_of(layout, pooled=page_request.pooled, huge_bytes=huge_bytes)
    extents: dict[str, Extents] = {}
    if (not problems and layout.needs_extent) or HUGETLB in backing:
        extents = _data_extents(
            ready, start, store, page_request=page_request, setup=setup, say_text=say_text
        )
    orders = {
        name: _order(page_request, extents.get(name, {}), huge_bytes) for name in ready.programs
    }
    limits = (limit_problem(order.heap_bytes, order.mmap_bytes) for order in orders.values())
    problems += filter(None, limits)
    pools: tuple[tuple[str, str], ...] = ()
    if not problems or layout.best:
        pools, lacking = _fill_pools(ready, page_request, orders.values(), huge_bytes, fill)
        problems += lacking
    problems = list(dict.fromkeys(problems))
    if problems and not layout.best:
        raise InputError(f"--pages {request.pages}: {'; '.join(problems)}")
    return PreparedPages(
        setup=replace(setup, orders=orders),
        programs={
            name: _with_order(program, orders[name], reports)
            for name, program in ready.programs.items()
        },
        tuning=CopyTuning(preload=str(library.executable)),
        warnings=tuple(f"--pages {request.pages}: {text}" for text in problems),
        settings=(
            ("copies.pages", f"{layout}, {backing}"),
            ("copies.pages.library", f"sha256 {(library.sha256 or '')[:12]}"),
            *pools,
        ),
    )


def _layout_problems(ready: PreparedRun, page_request: PageRequest, library: Path) -> list[str]:
    """Return why this machine, or one of the programs, cannot have the layout."""
    files = {Path(line.words[0]) for lines in ready.lines for line in lines}
    problems = machine_problems(
        page_request.layout, pooled=page_request.pooled, root=sysroot(), planned={}
    )
    return problems + program_problems(files, library)


def _data_extents(
    ready: PreparedRun,
    start: StoredRun,
    store: Store,
    *,
    page_request: PageRequest,
    setup: PageSetup,
    say_text: Callable[[str], None],
) -> dict[str, Extents]:
    """Return by benchmark how large its data becomes.

    It is given (--pages-heap), known from an earlier run, or learnt from a copy that runs alone.
    """
    extents: dict[str, Extents] = {}
    for benchmark in start.benchmarks:
        stored = store.page_extents(benchmark, split=page_request.layout.split)
        if page_request.heap_bytes is not None:
            extents[benchmark.name] = dict.fromkeys(Category, page_request.heap_bytes)
        elif stored:
            extents[benchmark.name] = {
                Category(name): extent for name, extent in stored.items() if name != REST
            }
        else:
            say_text(
                f"--pages: one copy of {benchmark.name} alone, to learn how large its data becomes "
                "(--pages-heap SIZE says so)"
            )
            extents[benchmark.name] = _learnt_sizes(ready, benchmark.name, page_request, setup)
    return extents


def _fill_pools(
    ready: PreparedRun,
    page_request: PageRequest,
    orders: Iterable[PageDirective],
    huge_bytes: int,
    fill: Callable[[Mapping[str, str]], None],
) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """Return the settings of the pools that were filled, and descriptions of what is lacking."""
    pooled = page_request.pooled
    windows = [order.windows for order in orders]
    needed = [pool_pages(of_program, huge_bytes, pooled=pooled) for of_program in windows]
    pools, lacking = fill_pools(pool_needs(ready.resolved.placements, needed), fill, sysroot())
    pages = {pool_pages_text(of_program, huge_bytes, pooled=pooled) for of_program in windows}
    by_category = " or ".join(sorted(pages - {""}))
    reason = f"; each category has pages of its own: {by_category}" if by_category else ""
    return pools, [text + reason for text in lacking]


def _with_order(program: Program, order: PageDirective, reports: Path) -> Program:
    variable = (VARIABLE, order.library_text(str(reports)))
    return replace(program, environment=(*program.environment, variable))


def _order(page_request: PageRequest, extents: Extents, huge_bytes: int) -> PageDirective:
    heap_bytes, mmap_bytes = reserves(page_request.heap_bytes, extents, sysroot())
    windows = page_windows(page_request.layout, extents, huge_bytes)
    pool_windows = [
        window for window in windows if page_request.pooled or window.page_bytes > huge_bytes
    ]
    clipped = clip_windows(
        pool_windows, {category: extents.get(category, 0) for category in Category}, huge_bytes
    )
    has_giant = any(window.page_bytes > huge_bytes for window in windows)
    return PageDirective(
        windows=tuple(
            sorted((*clipped, *(window for window in windows if window not in pool_windows)))
        ),
        heap_bytes=heap_bytes,
        mmap_bytes=mmap_bytes,
        split=page_request.layout.split,
        pooled=page_request.pooled,
        strict=not page_request.layout.best,
        extents=tuple(extents.items()) if page_request.layout.needs_extent or has_giant else (),
    )


def _learnt_sizes(
    ready: PreparedRun, name: str, page_request: PageRequest, setup: PageSetup
) -> dict[Category, int]:
    """Return the extents of the data of one copy that runs alone, all in base pages.

    Raises `InputError` when the copy does not end well or reports nothing, or when it
    takes memory that is in no category (not with `:best`).
    """
    request, layout = ready.resolved.request, page_request.layout
    base_request = replace(page_request, layout=PageLayout(split=layout.split))
    order = _order(base_request, {}, setup.huge_bytes)
    if limit := limit_problem(order.heap_bytes, order.mmap_bytes):
        raise InputError(f"--pages {request.pages}: {limit}")
    _run_one_copy(ready, name, _with_order(ready.programs[name], order, setup.reports), setup)
    file = setup.reports / "0"
    processes = [report for report in latest_reports(read_reports(file)) if report.event != BEGIN]
    with suppress(OSError):
        file.unlink()
    regions = page_regions(processes, order, setup.huge_bytes)
    if not regions:
        raise InputError(
            f"--pages: {name} reported no memory: it ignores LD_PRELOAD or skips exit "
            "handlers; give --pages-heap SIZE, or take a layout "
            "without shares (huge, 2M, 2M@64M-128M)"
        )
    moved_breaks = max(process.moved_break for process in processes)
    if moved_breaks and not layout.best:
        raise InputError(
            f"--pages: {name} moves the break itself ({moved_breaks} times), and that memory is in "
            "no category of the layout; with :best behind the layout it runs all the same"
        )
    return {
        Category(region.category): region.extent_bytes
        for region in regions
        if region.category != REST
    }


def _run_one_copy(ready: PreparedRun, name: str, program: Program, setup: PageSetup) -> None:
    """Run one copy alone, not bound; raises `InputError` when it does not end well."""
    request = ready.resolved.request
    placement = replace(
        ready.resolved.placements[0], copy=0, cpus=None, memory_policy=MemoryPolicy.NONE
    )
    folders = RunFolders(
        work=ready.work,
        uuid=os.environ.get(MARKER) or str(uuid4()),
        programs={name: program},
        placements=(placement,),
        added=request.environment,
        keep=False,
        tuning=CopyTuning(preload=str(setup.library)),
    )
    spec = folders.spec(0, 0, Step(name, 1))
    try:
        ended = run_alone(
            spec.argv,
            Path(spec.directory),
            spec.environment,
            Limits(request.timeout_s, request.output_limit_bytes),
            outputs=(spec.stdout, spec.stderr),
        )
        if ended.exit_code not in (0, *spec.accepted) or ended.excess is not None:
            code, signal = ended.exit_code, ended.signal
            ending = f"by signal {signal}" if signal is not None else f"with exit code {code}"
            raise InputError(
                f"--pages: the copy of {name} alone, which was to tell how large its data becomes, "
                f"ended {ending}: {_last_line(Path(spec.stderr))}; see whether it runs without "
                "--pages, or say --pages-heap SIZE"
            )
    except OSError as error:
        raise InputError(f"{name}: cannot be started: {error.strerror}") from error
    finally:
        with suppress(RaterError):
            folders.clear(spec)


def _last_line(file: Path) -> str:
    try:
        lines = file.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1][:200] if lines else "it printed no error"
