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

# -- `--pages`: what was asked for, and whether this machine and these programs can have it --------


class PageRequest(Struct, frozen=True):
    """What a request says of page sizes."""

    layout: PageLayout
    pooled: bool  # from the pool of huge pages
    heap_bytes: int | None  # how large the heap becomes; None: that is to be learnt


def pages_asked(request: Request) -> PageRequest | None:
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
    return PageRequest(layout, request.pages_backing == HUGETLB, request.pages_heap_bytes)


def pages_words(request: Request) -> tuple[str, ...]:
    """Say what data would lie in, and what is run first."""
    asked = pages_asked(request)
    if asked is None:
        return ()
    huge = huge_page_bytes(sysroot())
    pool = HUGETLB in backing_of(asked.layout, pooled=asked.pooled, huge_bytes=huge)
    how = "of the pool of huge pages" if pool else "that the kernel gives transparently"
    words = f"{asked.layout}, in pages {how}; all else of a copy in base pages"
    first = "where it is not known how large its data becomes, one copy of a program runs first"
    return (words, first) if asked.layout.needs_extent and asked.heap_bytes is None else (words,)


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
    pooled, root = asked.pooled, sysroot()
    problems = machine_problems(asked.layout, pooled=pooled, root=root, planned=planned or {})
    if problems:
        raise InputError(f"--pages {request.pages}: {'; '.join(problems)}")


def program_problems(programs: Iterable[Path], library: Path) -> list[str]:
    """Return which programs the library does not reach, and why."""
    tuning = CopyTuning(preload=str(library))
    found = []
    for program in sorted(programs):
        runs = executed(program)
        why = unreached_reason(tuning, program) or gains_rights(runs)
        elf = read_elf(runs)
        if why is None and elf is not None and "musl" in (elf.interpreter or ""):
            why = "uses musl, not glibc"
        if why is not None:
            name = str(program) if runs == program else f"{program} (which {runs} executes)"
            found.append(f"{name} {why}")
    return found


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
    """Make the page sizes of copies ready; None where they are not chosen.

    `fill` sets pools of huge pages, by the names of their settings, until the run is over; it
    raises `RaterError` where it cannot. Raises `InputError` where the layout cannot be had, unless
    the best of it will do.
    """
    request, placements = ready.resolved.request, ready.resolved.placements
    asked = pages_asked(request)
    if asked is None:
        return None
    root = sysroot()
    huge = huge_page_bytes(root)
    library = build_library(cache, split=asked.layout.split)
    files = {Path(line.words[0]) for lines in ready.lines for line in lines}
    problems = machine_problems(asked.layout, pooled=asked.pooled, root=root, planned={})
    problems += program_problems(files, library.executable)
    reports = ready.work / "pages"
    reports.mkdir(mode=0o700)
    setup = PageSetup({}, huge, reports, library.executable)
    backing = backing_of(asked.layout, pooled=asked.pooled, huge_bytes=huge)
    sizes: dict[str, Extents] = {}
    if (not problems and asked.layout.needs_extent) or HUGETLB in backing:
        for used in start.benchmarks:
            seen = store.page_extents(used, split=asked.layout.split)
            if asked.heap_bytes is not None:
                sizes[used.name] = dict.fromkeys(Category, asked.heap_bytes)
            elif seen:  # in an earlier run
                sizes[used.name] = {Category(it): size for it, size in seen.items() if it != REST}
            else:
                say_text(
                    f"--pages: one copy of {used.name} alone, to learn how large its data becomes "
                    "(--pages-heap SIZE says so)"
                )
                sizes[used.name] = _learnt_sizes(ready, used.name, asked, setup)
    orders = {name: _order(asked, sizes.get(name, {}), huge) for name in ready.programs}
    limits = (limit_problem(order.heap_bytes, order.mmap_bytes) for order in orders.values())
    problems += filter(None, limits)
    pools: tuple[tuple[str, str], ...] = ()
    if not problems or asked.layout.best:
        windows = [order.windows for order in orders.values()]
        taken = [pool_pages(window, huge, pooled=asked.pooled) for window in windows]
        pools, lacking = fill_pools(pool_needs(placements, taken), fill, root)
        every = {pool_pages_text(window, huge, pooled=asked.pooled) for window in windows} - {""}
        why = f"; each category has pages of its own: {' or '.join(sorted(every))}" if every else ""
        problems += [text + why for text in lacking]
    problems = list(dict.fromkeys(problems))
    if problems and not asked.layout.best:
        raise InputError(f"--pages {request.pages}: {'; '.join(problems)}")
    return PreparedPages(
        setup=replace(setup, orders=orders),
        programs={
            name: _told(program, orders[name], reports) for name, program in ready.programs.items()
        },
        tuning=CopyTuning(preload=str(library.executable)),
        warnings=tuple(f"--pages {request.pages}: {text}" for text in problems),
        settings=(
            ("copies.pages", f"{asked.layout}, {backing}"),
            ("copies.pages.library", f"sha256 {(library.sha256 or '')[:12]}"),
            *pools,
        ),
    )


def _told(program: Program, order: PageDirective, reports: Path) -> Program:
    told = (VARIABLE, order.words(str(reports)))
    return replace(program, environment=(*program.environment, told))


def _order(asked: PageRequest, extents: Extents, huge: int) -> PageDirective:
    heap, mmap = reserves(asked.heap_bytes, extents, sysroot())
    windows = page_windows(asked.layout, extents, huge)
    of_pool = [window for window in windows if asked.pooled or window.page_bytes > huge]
    clipped = clip_windows(of_pool, {it: extents.get(it, 0) for it in Category}, huge)
    giant = any(window.page_bytes > huge for window in windows)
    return PageDirective(
        windows=tuple(sorted((*clipped, *(window for window in windows if window not in of_pool)))),
        heap_bytes=heap,
        mmap_bytes=mmap,
        split=asked.layout.split,
        pooled=asked.pooled,
        strict=not asked.layout.best,
        extents=tuple(extents.items()) if asked.layout.needs_extent or giant else (),
    )


def _learnt_sizes(
    ready: PreparedRun, name: str, asked: PageRequest, setup: PageSetup
) -> dict[Category, int]:
    """Return how far the data of one copy goes that runs alone, all in base pages.

    Raises `InputError` where the copy does not end well or nothing can be seen of it, or where it
    takes memory that is in no category (not with `:best`).
    """
    request, best = ready.resolved.request, asked.layout.best
    base = PageLayout(split=asked.layout.split)
    order = _order(replace(asked, layout=base), {}, setup.huge_bytes)
    if limit := limit_problem(order.heap_bytes, order.mmap_bytes):
        raise InputError(f"--pages {request.pages}: {limit}")
    told = _told(ready.programs[name], order, setup.reports)
    alone = replace(
        ready.resolved.placements[0], copy=0, cpus=None, memory_policy=MemoryPolicy.NONE
    )
    mark = os.environ.get(MARKER) or str(uuid4())
    folders = RunFolders(
        *(ready.work, mark, {name: told}, (alone,), request.environment),
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
            how = f"by signal {signal}" if signal is not None else f"with exit code {code}"
            raise InputError(
                f"--pages: the copy of {name} alone, which was to tell how large its data becomes, "
                f"ended {how}: {_last_line(Path(spec.stderr))}; see whether it runs without "
                "--pages, or say --pages-heap SIZE"
            )
    except OSError as error:
        raise InputError(f"{name}: cannot be started: {error.strerror}") from error
    finally:
        with suppress(RaterError):
            folders.clear(spec)
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
    moved = max(process.moved_break for process in processes)
    if moved and not best:
        raise InputError(
            f"--pages: {name} moves the break itself ({moved} times), and that memory is in no "
            "category of the layout; with :best behind the layout it runs all the same"
        )
    return {
        Category(region.category): region.extent_bytes
        for region in regions
        if region.category != REST
    }


def _last_line(file: Path) -> str:
    try:
        lines = file.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1][:200] if lines else "it printed no error"
