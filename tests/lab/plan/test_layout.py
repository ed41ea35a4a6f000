"""The text of `--pages`, and the windows it asks for."""

from __future__ import annotations

import pytest

from rater.errors import InputError
from rater.lab.layout import (
    ALL_HUGE,
    EVERYTHING,
    MOST_WINDOWS,
    NO_HUGE,
    Category,
    PageLayout,
    PageRange,
    PageRanges,
    PageShare,
    PageSpread,
    PageWindow,
    WholeCategory,
    huge_share,
    page_windows,
    parse_pages,
    planned_bytes,
)

K, M, G = 1 << 10, 1 << 20, 1 << 30
HUGE = 2 * M


def all_of(form: PageShare | WholeCategory | PageRanges) -> PageLayout:
    return PageLayout(form, form, form)


@pytest.mark.parametrize(
    ("text", "layout", "canonical"),
    [
        ("0%", PageLayout(), "0%"),
        ("base", PageLayout(), "0%"),
        ("4k", PageLayout(), "0%"),
        ("spread:0%", PageLayout(), "0%"),
        ("huge", all_of(ALL_HUGE), "100%"),
        ("random:100%:3", all_of(ALL_HUGE), "100%"),
        ("2M", all_of(WholeCategory(HUGE)), "2M"),
        ("2048kB", all_of(WholeCategory(HUGE)), "2M"),
        ("1G", all_of(WholeCategory(G)), "1G"),
        ("64K", all_of(WholeCategory(64 * K)), "64k"),
        (" 12.5% ", all_of(PageShare(12.5)), "12.5%"),
        ("50%@20%", all_of(PageShare(50, at_percent=20)), "50%@20%"),
        ("50%@0%", all_of(PageShare(50)), "50%"),
        ("spread:50%", all_of(PageShare(50, PageSpread.EVEN)), "spread:50%"),
        ("random:30%:7", all_of(PageShare(30, PageSpread.RANDOM, seed=7)), "random:30%:7"),
        (
            "2M@64M-128M+1G@1G-2G",
            all_of(PageRanges((PageRange(HUGE, 64 * M, 128 * M), PageRange(G, G, 2 * G)))),
            "2M@64M-128M+1G@1G-2G",
        ),
        ("2M@0-2M", all_of(PageRanges((PageRange(HUGE, 0, HUGE),))), "2M@0-2M"),
        (
            "50%:best",
            PageLayout(PageShare(50), PageShare(50), PageShare(50), best=True),
            "50%:best",
        ),
        (
            "heap:huge;mmap:base;static:huge",
            PageLayout(ALL_HUGE, NO_HUGE, ALL_HUGE, split=True),
            "heap:huge;static:huge",
        ),
        (
            "static : 2M ; heap : random:5%:2",
            PageLayout(
                PageShare(5, PageSpread.RANDOM, seed=2), NO_HUGE, WholeCategory(HUGE), split=True
            ),
            "heap:random:5%:2;static:2M",
        ),
        ("heap:0%", PageLayout(split=True), "heap:base"),
        ("mmap:base;static:base", PageLayout(split=True), "heap:base"),
        (
            "heap:huge;mmap:huge;static:huge",
            PageLayout(ALL_HUGE, ALL_HUGE, ALL_HUGE, split=True),
            "heap:huge;mmap:huge;static:huge",
        ),
        ("mmap:1G:best", PageLayout(mmap=WholeCategory(G), split=True, best=True), "mmap:1G:best"),
    ],
)
def test_a_layout_is_read_and_has_one_text(text: str, layout: PageLayout, canonical: str) -> None:
    assert parse_pages(text) == layout
    assert str(layout) == canonical
    assert parse_pages(canonical) == layout


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "nothing stands there"),
        (":best", "nothing stands there"),
        ("101%", "'101%' is no share from 0% to 100%"),
        ("-5%", "'-5%' is no share"),
        ("nan%", "'nan%' is no share"),
        ("60%@50%", "ends behind 100 %: 110 %"),
        ("random:50%", "has no seed; write random:50%:1"),
        ("random:50%:x", "has no seed"),
        ("3M", "3M is no page size"),
        ("2k", "2k is no page size"),
        ("0", "0 is no page size"),
        ("large", "'large' is no size"),
        ("2M@64M", "is no range of addresses as in 2M@64M-128M"),
        ("2M@1M-64M", "does not begin and end at multiples of 2M"),
        ("2M@64M-64M", "ends where it begins"),
        ("2M@0-8M+2M@4M-16M", "2M@0-8M and 2M@4M-16M overlap"),
        ("4k@0-8M", "base pages alone"),
        ("heap:huge;heap:base", "heap stands there twice"),
        (
            "heap:huge;stack:base",
            "'stack:base' does not begin with a category (heap, mmap, static)",
        ),
        ("heap:huge;50%", "'50%' does not begin with a category"),
    ],
)
def test_what_is_no_layout_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InputError) as error:
        parse_pages(text)
    assert why in str(error.value)
    assert "expected base, huge, a size (2M)" in str(error.value)


def heap_of(text: str, extent: int) -> list[tuple[int, int]]:
    """First and last huge page of each window, counted in huge pages."""
    windows = page_windows(parse_pages(f"heap:{text}"), {Category.HEAP: extent}, HUGE)
    assert {it.category for it in windows} <= {Category.HEAP}
    return [(it.start // HUGE, it.end // HUGE) for it in windows]


@pytest.mark.parametrize(
    ("text", "slots", "windows"),
    [
        ("50%", 8, [(0, 4)]),
        ("50%", 9, [(0, 4)]),
        ("1%", 8, []),
        ("50%", 0, []),
        ("25%@50%", 8, [(4, 6)]),
        ("40%@60%", 9, [(5, 9)]),  # 4 of 9: not behind the end
        ("spread:50%", 8, [(0, 1), (2, 3), (4, 5), (6, 7)]),
        ("spread:25%", 8, [(1, 2), (5, 6)]),
        ("spread:75%", 4, [(0, 2), (3, 4)]),
        ("2M@4M-8M+2M@8M-10M", 1, [(2, 5)]),
    ],
)
def test_a_share_is_of_whole_huge_pages(
    text: str, slots: int, windows: list[tuple[int, int]]
) -> None:
    assert heap_of(text, slots * HUGE) == windows
    assert heap_of(text, max(0, slots * HUGE - 4096)) == windows  # a page begun counts


def test_all_of_a_category_has_no_end() -> None:
    windows = page_windows(parse_pages("heap:huge;mmap:1G;static:64k"), {}, HUGE)
    assert windows == (
        PageWindow(Category.HEAP, 0, EVERYTHING, HUGE),
        PageWindow(Category.MMAP, 0, EVERYTHING, G),
        PageWindow(Category.STATIC, 0, EVERYTHING, 64 * K),
    )
    assert page_windows(parse_pages("0%"), {Category.HEAP: G}, HUGE) == ()


def test_random_pages_follow_from_the_seed_and_are_as_many_as_asked() -> None:
    one, again, other = (heap_of(f"random:30%:{seed}", 100 * HUGE) for seed in (7, 7, 8))
    assert one == again != other
    assert sum(end - start for start, end in one) == 30


@pytest.mark.parametrize("text", ["spread:50%", "random:50%:1", "spread:12.5%"])
def test_windows_are_bounded_and_keep_their_share(text: str) -> None:
    slots = 100_003
    windows = heap_of(text, slots * HUGE)
    assert len(windows) <= MOST_WINDOWS
    share = sum(end - start for start, end in windows) / slots
    assert share == pytest.approx(float(text.split(":")[1].rstrip("%")) / 100, abs=0.001)
    assert windows[-1][1] <= slots


def test_the_share_of_all_data_weighs_categories_by_their_size() -> None:
    extents = {Category.HEAP: 30 * HUGE, Category.MMAP: 10 * HUGE, Category.STATIC: 0}
    assert huge_share(parse_pages("heap:huge"), extents, HUGE) == 0.75
    assert huge_share(parse_pages("50%"), extents, HUGE) == 0.5
    assert huge_share(parse_pages("100%"), {}, HUGE) == 0.0


def test_planned_bytes_are_those_of_the_data_alone() -> None:
    windows = page_windows(parse_pages("2M@2M-6M"), {}, HUGE)
    assert planned_bytes(windows, Category.MMAP, 3 * M) == M
    assert planned_bytes(windows, Category.MMAP, M) == 0


def test_a_layout_knows_what_it_is() -> None:
    assert parse_pages("heap:base").is_base
    assert not parse_pages("static:2M").is_base
    assert parse_pages("heap:base").split
    assert not parse_pages("0%").split
    assert parse_pages("static:50%").needs_extent
    assert not parse_pages("heap:huge;mmap:2M@0-2M").needs_extent
