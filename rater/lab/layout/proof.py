"""Whether copies had the page sizes that `--pages` planned, and layouts beside each other; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from statistics import median

from msgspec import Struct

from rater.lab.layout.layout import (
    HUGETLB,
    REST,
    Category,
    PageLayout,
    PageShare,
    backing_of,
    parse_pages,
)
from rater.plan.request import request_from_json
from rater.record.events import CopyEnded, PageRegion
from rater.record.stored import StoredRun
from rater.system.errors import InputError
from rater.text.values import count, group_by_key, truncate_list

_HUGE_BYTES = 2 << 20  # of transparent pages, where base pages have 4 KB
_PAGES_OFF = 2  # so many of the largest pages may be missing: one at each end of the data
_UNSEEN = "nothing was seen of it: it ended before, or does not load the library"


class PageVerdict(StrEnum):
    """What is known of a copy's page sizes."""

    MET = "as planned"
    DIFFERS = "differs"
    NOT_KNOWN = "not known"


class CopyPages(Struct, frozen=True):
    """One run of a copy."""

    copy: CopyEnded
    verdict: PageVerdict
    reasons: tuple[str, ...]  # in words, why it is not as planned
    reached: float | None  # which part (0 to 1) of its memory the layout is of

    @property
    def name(self) -> str:
        """What messages call it."""
        it = self.copy
        return f"copy {it.copy} of {it.benchmark}, iteration {it.iteration}"


class CategoryPages(Struct, frozen=True, kw_only=True):
    """One category of a benchmark's data, over its copies; shares are of resident memory."""

    benchmark: str
    category: str
    copies: int  # runs that were seen
    resident_bytes: float  # median
    planned_share: float  # median, 0 to 1: of what the data came to
    huge_share: float | None  # the same that was had; None: it cannot be seen
    differ: int  # runs that had something else
    not_known: int


class RunPages(Struct, frozen=True):
    """Page sizes of a run's copies."""

    reached: float | None  # median of the copies
    layout: str
    backing: str
    copies: tuple[CopyPages, ...]
    categories: tuple[CategoryPages, ...]  # in the order the benchmarks ran

    def of(self, verdict: PageVerdict) -> tuple[CopyPages, ...]:
        """Return the copy runs with this verdict, in order."""
        return tuple(copy for copy in self.copies if copy.verdict is verdict)


def asked_pages(run: StoredRun) -> tuple[PageLayout, str] | None:
    """Return the layout and where its large pages come from; None: none was asked for."""
    if run.head.request is None:
        return None
    try:
        request = request_from_json(run.head.request, f"run {run.head.run}")
        if request.pages is None:
            return None
        layout = parse_pages(request.pages)
        pooled = request.pages_backing == HUGETLB
        return layout, backing_of(layout, pooled=pooled, huge_bytes=_HUGE_BYTES)
    except InputError:  # of a newer rater
        return None


def prove_pages(run: StoredRun) -> RunPages | None:
    """Return what the copies of a run had; None where page sizes were not chosen."""
    asked = asked_pages(run)
    if asked is None:
        return None
    layout, backing = asked
    copies = tuple(_proved(copy, layout) for copy in run.without_torn().copies)
    by_name = group_by_key((copy.copy.benchmark, copy) for copy in copies)
    categories = tuple(row for name, those in by_name.items() for row in _categories(name, those))
    reached = [copy.reached for copy in copies if copy.reached is not None]
    return RunPages(median(reached) if reached else None, str(layout), backing, copies, categories)


def _proved(copy: CopyEnded, layout: PageLayout) -> CopyPages:
    reasons: list[str] = []
    verdict = PageVerdict.MET
    shaped = [page for page in copy.pages if page.category != REST]
    for region in shaped:
        found = list(_differences(region, layout))
        if found:
            verdict = PageVerdict.DIFFERS
            reasons += [f"{region.category}: {text}" for text in found]
    notes = dict.fromkeys(it.note for it in shaped if it.note)
    reasons += notes
    if not copy.pages:
        verdict, reasons = PageVerdict.NOT_KNOWN, [_UNSEEN]
    elif verdict is PageVerdict.MET and any(it.huge_bytes is None for it in shaped):
        verdict = PageVerdict.NOT_KNOWN
        reasons.append("the kernel does not tell which memory lies in pages of that size")
    elif verdict is PageVerdict.MET and notes:
        verdict = PageVerdict.DIFFERS
    whole = _whole_bytes(copy)
    reached = min(1.0, sum(map(_data_bytes, shaped)) / whole) if whole else None
    return CopyPages(copy, verdict, tuple(reasons), reached)


def large_share(copy: CopyEnded) -> float | None:
    """Return the per cent of a copy's memory, all of it, in large pages; None: not known."""
    whole = _whole_bytes(copy)
    if not whole or any(page.huge_bytes is None for page in copy.pages):
        return None
    large = (
        min((page.huge_bytes or 0) + page.stray_bytes, _data_bytes(page)) for page in copy.pages
    )
    return 100 * sum(large) / whole


def _data_bytes(region: PageRegion) -> int:
    """Return what of a region's memory is data: a page of 1 GB is there whole, with 5 MB in it."""
    return min(region.resident_bytes, region.extent_bytes or region.resident_bytes)


def _whole_bytes(copy: CopyEnded) -> int:
    """Return the memory of a copy's largest process, 0 where nothing was seen.

    What it gave back before anybody looked is in its largest resident memory, pools are not.
    """
    seen = sum(map(_data_bytes, copy.pages))
    return max(seen, copy.max_rss_bytes or 0) if seen else 0


def _differences(region: PageRegion, layout: PageLayout) -> Iterator[str]:
    slack = _PAGES_OFF * region.largest_page_bytes
    form = layout.of(Category(region.category))
    if isinstance(form, PageShare) and region.share_of_bytes is not None:
        wanted = form.percent / 100 * region.extent_bytes
        if abs(wanted - region.planned_bytes) > slack:
            yield (
                f"shares are of {_mb(region.share_of_bytes)}, it has {_mb(region.extent_bytes)}: "
                f"{_percent(region.planned_bytes, region.extent_bytes)} planned of it"
            )
    if region.huge_bytes is not None and region.touched_bytes - region.huge_bytes > slack:
        forked = f", {region.forks} times forked" if region.forks else ""
        yield (f"{_mb(region.huge_bytes)} of {_mb(region.touched_bytes)} in large pages{forked}")
    if region.planned_bytes - region.touched_bytes > slack:
        rest = region.planned_bytes - region.touched_bytes
        yield f"{_mb(rest)} of {_mb(region.planned_bytes)} planned were never touched"
    if region.stray_bytes > slack:
        yield f"{_mb(region.stray_bytes)} in large pages that were not planned"


def _categories(name: str, copies: Sequence[CopyPages]) -> Iterator[CategoryPages]:
    regions = group_by_key(
        (page.category, (copy, page)) for copy in copies for page in copy.copy.pages
    )
    for category in (*Category, REST):
        rows = [(copy, it) for copy, it in regions.get(category, ()) if it.resident_bytes]
        if not rows:
            continue
        seen = [it for _, it in rows if it.huge_bytes is not None]
        verdicts = [copy.verdict for copy, _ in rows]
        yield CategoryPages(
            benchmark=name,
            category=category,
            copies=len(rows),
            resident_bytes=median(it.resident_bytes for _, it in rows),
            planned_share=median(
                min(1.0, it.planned_bytes / it.extent_bytes) if it.extent_bytes else 0.0
                for _, it in rows
            ),
            huge_share=median(
                ((it.huge_bytes or 0) + it.stray_bytes) / it.resident_bytes for it in seen
            )
            if seen
            else None,
            differ=verdicts.count(PageVerdict.DIFFERS),
            not_known=verdicts.count(PageVerdict.NOT_KNOWN),
        )


def _mb(size: float) -> str:
    return f"{size / 1e6:.3g} MB"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


# -- Page layouts beside each other: which one the others are compared with, and doubts ------------

type SideRuns = Sequence[StoredRun]


def base_side(sides: Sequence[SideRuns]) -> int | None:
    """Return which side has all in base pages with the library: what layouts are compared with.

    None where no side has that alone, or none has a layout.
    """
    layouts = [_layouts(runs) for runs in sides]
    if not any(it is not None and not it.is_base for found in layouts for it in found):
        return None
    return next(
        (
            place
            for place, found in enumerate(layouts)
            if found and all(it is not None and it.is_base for it in found)
        ),
        None,
    )


def layout_warnings(sides: Sequence[tuple[str, SideRuns]]) -> tuple[str, ...]:
    """Return what is wrong with comparing these sides, the first of which is the baseline."""
    return tuple(_warnings(sides))


def _warnings(sides: Sequence[tuple[str, SideRuns]]) -> Iterator[str]:
    layouts = {label: _layouts(runs) for label, runs in sides}
    without = [label for label, found in layouts.items() if None in found]
    having = [label for label, found in layouts.items() if any(found)]
    if without and having:
        yield (
            f"{truncate_list(having)} with --pages beside {truncate_list(without)} without: "
            "--pages alone changes "
            "times (one arena of malloc, no memory given back); compare layouts with --pages 0%"
        )
    apart = [label for label, found in layouts.items() if any(it and it.split for it in found)]
    whole = [label for label, found in layouts.items() if any(it and not it.split for it in found)]
    if apart and whole:
        yield (
            f"{truncate_list(apart)} keeps large blocks apart from small ones, "
            f"{truncate_list(whole)} does not: "
            "compare layouts by category with --pages heap:base"
        )
    for label, runs in sides:
        proofs = [it for it in map(prove_pages, runs) if it is not None]
        differ = sum(len(proof.of(PageVerdict.DIFFERS)) for proof in proofs)
        if differ:
            whole_number = sum(len(proof.copies) for proof in proofs)
            yield (
                f"{label}: {count(differ, 'copy run')} of {whole_number} had other page sizes "
                "than planned (`rater show RUN` says which, and why)"
            )


def _layouts(runs: SideRuns) -> list[PageLayout | None]:
    return [asked[0] if (asked := asked_pages(run)) else None for run in runs]
