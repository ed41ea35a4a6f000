"""Whether copies had the page sizes that `--pages` planned, and layouts beside each other; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
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
    """The judgement of a copy's page sizes."""

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
        """Its name in messages."""
        it = self.copy
        return f"copy {it.copy} of {it.benchmark}, iteration {it.iteration}"


class CategoryPages(Struct, frozen=True, kw_only=True):
    """One category of a benchmark's data, over its copies; shares are of resident memory."""

    benchmark: str
    category: str
    copies: int  # runs that were seen
    resident_bytes: float  # median
    planned_share: float  # median, 0 to 1: of what the data came to
    huge_share: float | None  # median share in large pages; None when it cannot be seen
    differ: int  # runs that had something else
    not_known: int


class RunPages(Struct, frozen=True, kw_only=True):
    """Page sizes of a run's copies."""

    reached: float | None  # median of the copies
    layout: str
    backing: str
    copies: tuple[CopyPages, ...]
    categories: tuple[CategoryPages, ...]  # in the order the benchmarks ran

    def copies_with(self, verdict: PageVerdict) -> tuple[CopyPages, ...]:
        """Return the copy runs with this verdict, in order."""
        return tuple(copy for copy in self.copies if copy.verdict is verdict)


def asked_pages(run: StoredRun) -> tuple[PageLayout, str] | None:
    """Return the layout and where its large pages come from; None: none was asked for."""
    return None if run.head.request is None else _pages_in(run.head.request)


@lru_cache(256)
def _pages_in(request_text: str) -> tuple[PageLayout, str] | None:
    """Return the same of a request's JSON: thousands of runs were asked for in the same words."""
    try:
        request = request_from_json(request_text, "the request")
        if request.pages is None:
            return None
        layout = parse_pages(request.pages)
        pooled = request.pages_backing == HUGETLB
        return layout, backing_of(layout, pooled=pooled, huge_bytes=_HUGE_BYTES)
    except InputError:  # of a newer rater
        return None


def prove_pages(run: StoredRun) -> RunPages | None:
    """Return the page sizes of a run's copies; None when the run did not choose them."""
    asked = asked_pages(run)
    if asked is None:
        return None
    layout, backing = asked
    copies = tuple(_proved(copy, layout) for copy in run.without_torn().copies)
    by_name = group_by_key((copy.copy.benchmark, copy) for copy in copies)
    categories = tuple(
        row for name, its_copies in by_name.items() for row in _categories(name, its_copies)
    )
    reached = [copy.reached for copy in copies if copy.reached is not None]
    return RunPages(
        reached=median(reached) if reached else None,
        layout=str(layout),
        backing=backing,
        copies=copies,
        categories=categories,
    )


def _proved(copy: CopyEnded, layout: PageLayout) -> CopyPages:
    reasons: list[str] = []
    verdict = PageVerdict.MET
    shaped_regions = [page for page in copy.pages if page.category != REST]
    for region in shaped_regions:
        differences = list(_differences(region, layout))
        if differences:
            verdict = PageVerdict.DIFFERS
            reasons += [f"{region.category}: {text}" for text in differences]
    notes = dict.fromkeys(region_seen.note for region_seen in shaped_regions if region_seen.note)
    reasons += notes
    if not copy.pages:
        verdict, reasons = PageVerdict.NOT_KNOWN, [_UNSEEN]
    elif verdict is PageVerdict.MET and any(
        region_seen.huge_bytes is None for region_seen in shaped_regions
    ):
        verdict = PageVerdict.NOT_KNOWN
        reasons.append("the kernel does not tell which memory lies in pages of that size")
    elif verdict is PageVerdict.MET and notes:
        verdict = PageVerdict.DIFFERS
    whole_bytes = _whole_bytes(copy)
    reached = min(1.0, sum(map(_data_bytes, shaped_regions)) / whole_bytes) if whole_bytes else None
    return CopyPages(copy, verdict, tuple(reasons), reached)


def large_share(copy: CopyEnded) -> float | None:
    """Return the per cent of a copy's memory, all of it, in large pages; None: not known."""
    whole_bytes = _whole_bytes(copy)
    if not whole_bytes or any(page.huge_bytes is None for page in copy.pages):
        return None
    large_bytes = (
        min((page.huge_bytes or 0) + page.stray_bytes, _data_bytes(page)) for page in copy.pages
    )
    return 100 * sum(large_bytes) / whole_bytes


def _data_bytes(region: PageRegion) -> int:
    """Return what of a region's memory is data: a page of 1 GB is there whole, with 5 MB in it."""
    return min(region.resident_bytes, region.extent_bytes or region.resident_bytes)


def _whole_bytes(copy: CopyEnded) -> int:
    """Return the memory of a copy's largest process, 0 where nothing was seen.

    What it gave back before anybody looked is in its largest resident memory, pools are not.
    """
    seen_bytes = sum(map(_data_bytes, copy.pages))
    return max(seen_bytes, copy.max_rss_bytes or 0) if seen_bytes else 0


def _differences(region: PageRegion, layout: PageLayout) -> Iterator[str]:
    slack_bytes = _PAGES_OFF * region.largest_page_bytes
    form = layout.form_of(Category(region.category))
    if isinstance(form, PageShare) and region.share_of_bytes is not None:
        wanted_bytes = form.percent / 100 * region.extent_bytes
        if abs(wanted_bytes - region.planned_bytes) > slack_bytes:
            yield (
                f"shares are of {_mb(region.share_of_bytes)}, it has {_mb(region.extent_bytes)}: "
                f"{_percent(region.planned_bytes, region.extent_bytes)} planned of it"
            )
    if region.huge_bytes is not None and region.touched_bytes - region.huge_bytes > slack_bytes:
        forked = f", {region.forks} times forked" if region.forks else ""
        yield (f"{_mb(region.huge_bytes)} of {_mb(region.touched_bytes)} in large pages{forked}")
    if region.planned_bytes - region.touched_bytes > slack_bytes:
        untouched_bytes = region.planned_bytes - region.touched_bytes
        yield f"{_mb(untouched_bytes)} of {_mb(region.planned_bytes)} planned were never touched"
    if region.stray_bytes > slack_bytes:
        yield f"{_mb(region.stray_bytes)} in large pages that were not planned"


def _categories(name: str, copies: Sequence[CopyPages]) -> Iterator[CategoryPages]:
    regions = group_by_key(
        (page.category, (copy, page)) for copy in copies for page in copy.copy.pages
    )
    for category in (*Category, REST):
        rows = [
            (copy, region) for copy, region in regions.get(category, ()) if region.resident_bytes
        ]
        if not rows:
            continue
        regions_seen = [region for _, region in rows if region.huge_bytes is not None]
        verdicts = [copy.verdict for copy, _ in rows]
        yield CategoryPages(
            benchmark=name,
            category=category,
            copies=len(rows),
            resident_bytes=median(region.resident_bytes for _, region in rows),
            planned_share=median(
                min(1.0, region.planned_bytes / region.extent_bytes) if region.extent_bytes else 0.0
                for _, region in rows
            ),
            huge_share=median(
                ((region.huge_bytes or 0) + region.stray_bytes) / region.resident_bytes
                for region in regions_seen
            )
            if regions_seen
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
    """Return the place of the side with all in base pages, which layouts are compared with.

    None when no side has that layout in all its runs, or no side has another one.
    """
    layouts = [_layouts(runs) for runs in sides]
    if not any(
        layout is not None and not layout.is_base
        for side_layouts in layouts
        for layout in side_layouts
    ):
        return None
    return next(
        (
            place
            for place, side_layouts in enumerate(layouts)
            if side_layouts
            and all(layout is not None and layout.is_base for layout in side_layouts)
        ),
        None,
    )


def layout_warnings(sides: Sequence[tuple[str, SideRuns]]) -> tuple[str, ...]:
    """Return what is wrong with comparing these sides, the first of which is the baseline."""
    return tuple(_warnings(sides))


def _warnings(sides: Sequence[tuple[str, SideRuns]]) -> Iterator[str]:
    layouts = {label: _layouts(runs) for label, runs in sides}
    labels_without = [label for label, side_layouts in layouts.items() if None in side_layouts]
    labels_with = [label for label, side_layouts in layouts.items() if any(side_layouts)]
    if labels_without and labels_with:
        yield (
            f"{truncate_list(labels_with)} with --pages beside {truncate_list(labels_without)} "
            "without: --pages alone changes "
            "times (one arena of malloc, no memory given back); compare layouts with --pages 0%"
        )
    labels_split = [
        label
        for label, side_layouts in layouts.items()
        if any(layout and layout.split for layout in side_layouts)
    ]
    labels_whole = [
        label
        for label, side_layouts in layouts.items()
        if any(layout and not layout.split for layout in side_layouts)
    ]
    if labels_split and labels_whole:
        yield (
            f"{truncate_list(labels_split)} keeps large blocks apart from small ones, "
            f"{truncate_list(labels_whole)} does not: "
            "compare layouts by category with --pages heap:base"
        )
    for label, runs in sides:
        proofs = [run_pages for run_pages in map(prove_pages, runs) if run_pages is not None]
        differ = sum(len(proof.copies_with(PageVerdict.DIFFERS)) for proof in proofs)
        if differ:
            whole_number = sum(len(proof.copies) for proof in proofs)
            yield (
                f"{label}: {count(differ, 'copy run')} of {whole_number} had other page sizes "
                "than planned (`rater show RUN` says which, and why)"
            )


def _layouts(runs: SideRuns) -> list[PageLayout | None]:
    return [asked[0] if (asked := asked_pages(run)) else None for run in runs]
