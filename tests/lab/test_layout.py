"""The text of `--pages`, TLBs, pools of huge pages, and what copies had of what was planned."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rater.analysis.compare.compare import compare
from rater.analysis.results.copies import Point, PointRun
from rater.lab.layout.layout import (
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
    huge_share,
    page_windows,
    parse_pages,
    planned_bytes,
)
from rater.lab.layout.pools import (
    PoolNeed,
    pool_needs,
    pool_settings,
    pool_shortages,
    shortage_text,
)
from rater.lab.layout.proof import (
    PageVerdict,
    RunPages,
    base_side,
    large_share,
    layout_warnings,
    prove_pages,
)
from rater.lab.layout.table import page_parts
from rater.lab.trace.tlb import mapping_layout, page_mappings, parse_page_sizes
from rater.plan.request import Request, request_to_json
from rater.plan.tlb import parse_tlb, tlb_facts, tlb_of_cpuid
from rater.plan.topology import PoolCapacity
from rater.record.events import PageRegion
from rater.record.run import MemoryPolicy, Placement
from rater.record.stored import StoredRun
from rater.system.errors import InputError
from tests.support.example_runs import copy_row, stored
from tests.support.printed import in_words, text_of

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30
HUGE = 2 * MB


def whole(size: int) -> PageRanges:
    return PageRanges((PageRange(size, 0, EVERYTHING),))


def all_of(form: PageShare | PageRanges) -> PageLayout:
    return PageLayout(heap=form, mmap=form, static=form)


@pytest.mark.parametrize(
    ("text", "layout", "canonical"),
    [
        ("0%", PageLayout(), "0%"),
        ("base", PageLayout(), "0%"),
        ("4k", PageLayout(), "0%"),
        ("spread:0%", PageLayout(), "0%"),
        ("huge", all_of(ALL_HUGE), "100%"),
        ("random:100%:3", all_of(ALL_HUGE), "100%"),
        ("2M", all_of(whole(HUGE)), "2M"),
        ("2048kB", all_of(whole(HUGE)), "2M"),
        ("1G", all_of(whole(GB)), "1G"),
        ("64K", all_of(whole(64 * KB)), "64k"),
        (" 12.5% ", all_of(PageShare(12.5)), "12.5%"),
        ("50%@20%", all_of(PageShare(50, at_percent=20)), "50%@20%"),
        ("50%@0%", all_of(PageShare(50)), "50%"),
        ("spread:50%", all_of(PageShare(50, PageSpread.EVEN)), "spread:50%"),
        ("random:30%:7", all_of(PageShare(30, PageSpread.RANDOM, seed=7)), "random:30%:7"),
        (
            "2M@64M-128M+1G@1G-2G",
            all_of(PageRanges((PageRange(HUGE, 64 * MB, 128 * MB), PageRange(GB, GB, 2 * GB)))),
            "2M@64M-128M+1G@1G-2G",
        ),
        ("2M@0-2M", all_of(PageRanges((PageRange(HUGE, 0, HUGE),))), "2M@0-2M"),
        (
            "50%:best",
            PageLayout(heap=PageShare(50), mmap=PageShare(50), static=PageShare(50), best=True),
            "50%:best",
        ),
        (
            "heap:huge;mmap:base;static:huge",
            PageLayout(heap=ALL_HUGE, mmap=NO_HUGE, static=ALL_HUGE, split=True),
            "heap:huge;static:huge",
        ),
        (
            "static : 2M ; heap : random:5%:2",
            PageLayout(
                heap=PageShare(5, PageSpread.RANDOM, seed=2),
                mmap=NO_HUGE,
                static=whole(HUGE),
                split=True,
            ),
            "heap:random:5%:2;static:2M",
        ),
        ("heap:0%", PageLayout(split=True), "heap:base"),
        ("mmap:base;static:base", PageLayout(split=True), "heap:base"),
        (
            "heap:huge;mmap:huge;static:huge",
            PageLayout(heap=ALL_HUGE, mmap=ALL_HUGE, static=ALL_HUGE, split=True),
            "heap:huge;mmap:huge;static:huge",
        ),
        ("mmap:1G:best", PageLayout(mmap=whole(GB), split=True, best=True), "mmap:1G:best"),
    ],
)
def test_a_layout_is_read_and_has_one_text(text: str, layout: PageLayout, canonical: str) -> None:
    assert parse_pages(text) == layout
    assert str(layout) == canonical
    assert parse_pages(canonical) == layout


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        (":best", "it is empty"),
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
        ("heap:huge;heap:base", "heap is given twice"),
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
    assert {window.category for window in windows} <= {Category.HEAP}
    return [(window.start // HUGE, window.end // HUGE) for window in windows]


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
        PageWindow(Category.MMAP, 0, EVERYTHING, GB),
        PageWindow(Category.STATIC, 0, EVERYTHING, 64 * KB),
    )
    assert page_windows(parse_pages("0%"), {Category.HEAP: GB}, HUGE) == ()


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
    assert planned_bytes(windows, Category.MMAP, 3 * MB) == MB
    assert planned_bytes(windows, Category.MMAP, MB) == 0


def test_a_layout_knows_what_it_is() -> None:
    assert parse_pages("heap:base").is_base
    assert not parse_pages("static:2M").is_base
    assert parse_pages("heap:base").split
    assert not parse_pages("0%").split
    assert parse_pages("static:50%").needs_extent
    assert not parse_pages("heap:huge;mmap:2M@0-2M").needs_extent


def test_an_amd_zen_4_tells_one_array_a_level_for_small_and_huge_pages() -> None:
    leaves = {
        "80000005": (0xFF48FF40, 0xFF48FF40, 0, 0),  # 72 entries, fully associative
        "80000006": (0x5C002200, 0x6C004200, 0, 0),  # 3072, 6 and 8 ways
        "80000019": (0, 0, 0, 0),
    }
    tlb = tlb_of_cpuid(leaves)
    assert str(tlb) == "72x72,4k/64k/2M:3072x8"
    assert tlb is not None
    assert tlb.entries(4 * KB) == (72, 3072)
    assert tlb.entries(GB) == (72, 72)  # not told: where the first level has 2 MB pages


def test_facts_of_tlbs_are_what_cpuid_tells_and_no_more() -> None:
    """Ways that differ by page size stay apart; nothing is told of pages of 1 GB or 64 KB."""
    zen_4 = {"80000005": (0xFF48FF40, 0xFF48FF40, 0, 0), "80000006": (0x5C002200, 0x6C004200, 0, 0)}
    assert dict(tlb_facts(zen_4)) == {
        "tlb.level1 4k": "72 entries, 72 ways",
        "tlb.level1 2M": "72 entries, 72 ways",
        "tlb.level2 4k": "3072 entries, 8 ways",
        "tlb.level2 2M": "3072 entries, 6 ways",
    }
    with_giga = zen_4 | {
        "80000006": (0, 0x9C004200, 0, 0),
        "80000019": (0xF0400000, 0x10400000, 0, 0),
    }
    assert dict(tlb_facts(with_giga)) == {
        "tlb.level1 4k": "72 entries, 72 ways",
        "tlb.level1 2M": "72 entries, 72 ways",
        "tlb.level2 4k": "3072 entries",  # the ways stand in another leaf
        "tlb.level1 1G": "64 entries, 64 ways",
        "tlb.level2 1G": "64 entries, 1 way",
    }
    assert dict(tlb_facts({"2": (0x76036301, 0x00F0B5FF, 0, 0x00C30000)})) == {
        "tlb.level1 4k": "64 entries, 4 ways",
        "tlb.level1 2M": "32 entries, 4 ways",
        "tlb.level1 1G": "4 entries, 4 ways",
        "tlb.level2 4k/2M": "1536 entries, 6 ways",
        "tlb.level2 1G": "16 entries, 4 ways",
    }


def test_an_intel_skylake_tells_descriptors() -> None:
    # 0x63: 2 MB 32x4, 1 GB 4x4; 0x64 is not there; 0xC3: shared 1536x6, 1 GB 16x4; 0x03: 4 KB 64x4
    tlb = tlb_of_cpuid({"2": (0x76036301, 0x00F0B5FF, 0, 0x00C30000)})
    assert str(tlb) == "4k/64k:64x4+2M:32x4+1G:4x4,4k/64k/2M:1536x6+1G:16x4"


def test_an_intel_with_leaf_18_tells_loads_and_shared_ones() -> None:
    leaves = {
        "2": (0x00FEFF01, 0xF0, 0, 0),
        "18.0": (5, 0, 0, 0),
        "18.1": (0, (6 << 16) | 1, 16, (1 << 5) | 4),  # 4 KB, 6 ways, 16 sets, loads, level 1
        "18.2": (0, (4 << 16) | 2, 8, (1 << 5) | 4),  # 2 MB, 4 ways, 8 sets
        "18.3": (0, (8 << 16) | 1, 64, (1 << 5) | 2),  # of instructions
        "18.5": (0, (4 << 16) | 8, 256, (2 << 5) | 3),  # 1 GB, 4 ways, 256 sets, level 2
        "18.4": (0, (16 << 16) | 3, 128, (2 << 5) | 3),  # 4 KB and 2 MB, level 2, shared
    }
    assert str(tlb_of_cpuid(leaves)) == "4k/64k:96x6+2M:32x4,4k/64k/2M:2048x16+1G:1024x4"
    without_giga = {name: leaf for name, leaf in leaves.items() if name != "18.5"}
    assert str(tlb_of_cpuid(without_giga)) == "4k/64k:96x6+2M/1G:32x4,4k/64k/2M:2048x16"
    assert dict(tlb_facts(without_giga)) == {
        "tlb.level1 4k": "96 entries, 6 ways",
        "tlb.level1 2M": "32 entries, 4 ways",
        "tlb.level2 4k/2M": "2048 entries, 16 ways",
    }


def test_a_processor_that_tells_nothing_has_no_tlb_to_model() -> None:
    assert tlb_of_cpuid({}) is None
    assert tlb_of_cpuid({"2": (0, 0, 0, 0), "80000005": (0, 0, 0, 0)}) is None


@pytest.mark.parametrize(
    "text", ["64x4,1536x12", "4k/64k:64x4+2M:32x4,4k/64k/2M:1536x12+1G:16x4", "48x48"]
)
def test_a_described_tlb_prints_as_it_was_typed(text: str) -> None:
    assert str(parse_tlb(text)) == text


def test_a_level_without_an_array_for_a_size_misses_there() -> None:
    assert parse_tlb("4k:64x4,4k:1536x12").entries(2 * MB) == (0, 0)
    assert parse_tlb("64x4").entries(4 * KB) == (64, 64)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("64", "no array of entries x ways"),
        ("64x5", "no multiple"),
        ("64x0", "no multiple"),
        ("1x1,1x1,1x1", "more than two levels"),
        ("3k:64x4", "page sizes are 4k, 64k, 2M, 1G"),
        ("x:64x4", "expected a size"),
        ("4k:64x4+4k:8x8", "two arrays for one page size"),
    ],
)
def test_what_is_no_tlb_is_refused_with_the_way_out(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_tlb(text)


def test_mappings_are_all_ways_to_give_three_categories_a_size() -> None:
    found = page_mappings(parse_page_sizes("2M,4k"))
    assert found[0] == (4 * KB, 4 * KB, 4 * KB)
    assert len(found) == len(set(found)) == 8
    assert mapping_layout(found[1]) == "heap:2M;mmap:4k;static:4k"


@pytest.mark.parametrize("text", ["4k", "2M", "4k,8k", "4k,x", ""])
def test_page_sizes_that_leave_no_choice_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--sizes"):
        parse_page_sizes(text)


def on(
    copy: int,
    node: int | None,
    policy: MemoryPolicy = MemoryPolicy.LOCAL,
    nodes: tuple[int, ...] = (),
) -> Placement:
    return Placement(
        copy=copy,
        cpus=None,
        cpu=None,
        core=None,
        llc=None,
        node=node,
        package=None,
        memory_policy=policy,
        memory_nodes=nodes,
    )


def room(node: int, total: int, free: int, most: int = 1000, size: int = HUGE) -> PoolCapacity:
    return PoolCapacity(node=node, size_bytes=size, total=total, free=free, ready=None, most=most)


def test_each_lgroup_needs_the_pages_of_the_copies_that_are_on_it() -> None:
    copies = [on(0, 0), on(1, 0), on(2, 1), on(3, None)]
    needs = pool_needs(copies, [{HUGE: 10, GB: 1}])
    assert needs == (
        *(PoolNeed(0, HUGE, 20), PoolNeed(1, HUGE, 10), PoolNeed(None, HUGE, 10)),
        *(PoolNeed(0, GB, 2), PoolNeed(1, GB, 1), PoolNeed(None, GB, 1)),
    )


@pytest.mark.parametrize(
    ("placed", "by_node"),
    [
        (on(0, 0, MemoryPolicy.BIND, (1,)), {1: 9}),
        (on(0, 0, MemoryPolicy.INTERLEAVE, (0, 1)), {0: 5, 1: 5}),  # each part rounded up
        (on(0, 0, MemoryPolicy.PREFERRED, (1, 2)), {1: 9}),
        (on(0, None, MemoryPolicy.NONE), {None: 9}),
    ],
)
def test_memory_that_is_bound_elsewhere_takes_pages_there(
    placed: Placement, by_node: dict[int | None, int]
) -> None:
    assert {
        page_need.node: page_need.pages for page_need in pool_needs([placed], [{HUGE: 9}])
    } == by_node


def test_programs_that_run_one_after_the_other_need_what_the_largest_needs() -> None:
    programs: list[dict[int, int]] = [{HUGE: 9}, {HUGE: 4, GB: 1}]
    needs = (PoolNeed(0, HUGE, 9), PoolNeed(0, GB, 1))
    assert pool_needs([on(0, 0)], programs) == pool_needs([on(0, 0)], programs[::-1]) == needs


def test_pools_are_set_to_what_is_in_use_and_needed_and_only_where_they_lack_it() -> None:
    needs = [PoolNeed(0, HUGE, 20), PoolNeed(1, HUGE, 20), PoolNeed(2, GB, 1), PoolNeed(3, GB, 1)]
    rooms = [room(0, 30, 20), room(1, 30, 5), room(2, 0, 0, size=GB)]
    assert pool_settings(pool_shortages(needs, rooms)) == {
        "hugepages.2048kB.node1": "45",  # 25 in use
        "hugepages.1048576kB.node2": "1",
    }


@pytest.mark.parametrize(
    ("free", "promised", "on_demand", "set_to"),
    [
        ((10, 0), 0, 0, {}),  # all of one pool will do
        ((4, 0), 0, 0, {0: 7, 1: 3}),  # 6 lack: 3 more of each
        ((10, 0), 4, 0, {0: 12, 1: 2}),  # others have reserved 4 of them
        ((4, 0), 0, 6, {}),  # the kernel makes them when asked
    ],
)
def test_what_is_needed_of_any_lgroup_may_lie_on_one_and_is_taken_from_all_alike(
    free: tuple[int, int], promised: int, on_demand: int, set_to: dict[int, int]
) -> None:
    rooms = [room(node, pages, pages) for node, pages in enumerate(free)]
    short = pool_shortages(
        [PoolNeed(None, HUGE, 10)], rooms, promised={HUGE: promised}, on_demand={HUGE: on_demand}
    )
    assert {it.room.node: it.total for it in short} == set_to


def test_a_shortage_names_the_numbers_and_the_command() -> None:
    (short,) = pool_shortages([PoolNeed(1, HUGE, 20)], [room(1, 30, 5)])
    assert shortage_text([short]) == (
        "the pool of 2M pages on node 1 has 5 free, copies need 20; as root: echo 45 > "
        "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
    )


def test_what_an_lgroup_has_no_memory_for_is_not_set() -> None:
    (short,) = pool_shortages([PoolNeed(1, HUGE, 2000)], [room(1, 0, 0, most=1000)])
    assert pool_settings([short]) == {}
    assert shortage_text([short]) == (
        "the pool of 2M pages on node 1 has 0 free, copies need 2000 (memory for 1000 more at most)"
    )


def run(number: int, layout: str | None) -> StoredRun:
    request = request_to_json(Request(command=("x",), pages=layout))
    rows = [copy_row(copy, 1.0) for copy in (0, 1)]
    return stored(rows, request=request, run=number, uuid=f"u{number}")


@pytest.mark.parametrize(
    ("layouts", "place"),
    [
        (("50%", "0%", "100%"), 1),
        (("100%", "heap:base"), 1),
        (("50%", "100%"), None),
        ((None, "50%"), None),
        (("0%", None), None),  # no layout to compare with it
        ((None, "0%", "50%"), 1),
    ],
)
def test_the_baseline_is_the_layout_of_small_pages(
    layouts: tuple[str | None, ...], place: int | None
) -> None:
    assert base_side([[run(number, layout)] for number, layout in enumerate(layouts)]) == place


@pytest.mark.parametrize(
    ("layouts", "says"),
    [
        (("0%", "50%"), []),
        ((None, None), []),
        ((None, "50%"), ["b with --pages beside a without"]),
        (("0%", "heap:huge"), ["b keeps large blocks apart from small ones, a does not"]),
        (("heap:base", "mmap:huge"), []),
    ],
)
def test_what_is_no_fair_comparison_is_said(
    layouts: tuple[str | None, ...], says: list[str]
) -> None:
    sides = [("ab"[place], [run(place, layout)]) for place, layout in enumerate(layouts)]
    found = layout_warnings(sides)
    assert len(found) == len(says)
    assert all(text.startswith(start) for text, start in zip(found, says, strict=True))


def test_points_are_compared_with_the_layout_of_small_pages() -> None:
    points = [
        Point(f"pages={it}", (("pages", it),), (PointRun(run(number, it), 0),))
        for number, it in enumerate(("100%", "0%"))
    ]
    assert [side.label for side in compare(points).sides] == ["pages=0%", "pages=100%"]
    ordered = compare(points, baseline="pages=100%")
    assert [side.label for side in ordered.sides] == ["pages=100%", "pages=0%"]
    assert ordered.pages == ()


HALF = PageRegion(
    category="heap",
    split=False,
    share_of_bytes=100 * MB,
    extent_bytes=100 * MB,
    resident_bytes=100 * MB,
    planned_bytes=50 * MB,
    touched_bytes=50 * MB,
    huge_bytes=50 * MB,
    stray_bytes=0,
    page_bytes=((4096, 50 * MB), (2 * MB, 50 * MB)),
    largest_page_bytes=2 * MB,
    seen="exit",
    processes=1,
    forks=0,
    note=None,
)


REST = replace(
    HALF,
    category="rest",
    share_of_bytes=None,
    extent_bytes=0,
    resident_bytes=300 * MB,
    planned_bytes=0,
    touched_bytes=0,
    huge_bytes=0,
    stray_bytes=150 * MB,
    note="shared 300 MB",
)


def proved(
    *regions: PageRegion | None, layout: str = "50%", rss_bytes: int | None = None
) -> RunPages:
    request = request_to_json(Request(command=("x",), pages=layout))
    had = tuple(region for region in regions if region is not None)
    rows = [copy_row(number, 1.0, pages=had, max_rss_bytes=rss_bytes) for number in (0, 1)]
    run = stored(rows, request=request)
    found = prove_pages(run)
    assert found is not None
    return found


def test_a_run_without_the_option_has_no_proof() -> None:
    assert prove_pages(stored([copy_row(0, 1.0)])) is None


def test_what_was_planned_and_had_is_a_share_of_what_there_was() -> None:
    found = proved(HALF)
    assert {copy.verdict for copy in found.copies} == {PageVerdict.MET}
    [row] = found.categories
    assert (row.planned_share, row.huge_share, row.differ) == (0.5, 0.5, 0)
    assert row.copies == len(found.copies)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"huge_bytes": 46 * MB}, None),  # two pages
        ({"huge_bytes": 44 * MB}, "heap: 46.1 MB of 52.4 MB in large pages"),
        ({"huge_bytes": 0, "forks": 3}, "heap: 0 MB of 52.4 MB in large pages, 3 times forked"),
        (
            {"touched_bytes": 20 * MB, "huge_bytes": 20 * MB},
            "heap: 31.5 MB of 52.4 MB planned were never touched",
        ),
        ({"stray_bytes": 6 * MB}, "heap: 6.29 MB in large pages that were not planned"),
        (
            {"extent_bytes": 200 * MB},
            "heap: shares are of 105 MB, it has 210 MB: 25 % planned of it",
        ),
        ({"note": "it moved the break itself"}, "it moved the break itself"),
    ],
)
def test_more_than_a_page_or_two_off_differs_with_the_reason(
    changes: dict[str, object], reason: str | None
) -> None:
    found = proved(replace(HALF, **changes))
    verdict = PageVerdict.MET if reason is None else PageVerdict.DIFFERS
    assert {copy.verdict for copy in found.copies} == {verdict}
    assert found.copies[0].reasons == (() if reason is None else (reason,))


def test_what_cannot_be_seen_is_not_known() -> None:
    assert proved(None).copies[0].verdict is PageVerdict.NOT_KNOWN
    hidden = proved(replace(HALF, huge_bytes=None), layout="64k")
    assert hidden.copies[0].verdict is PageVerdict.NOT_KNOWN
    assert hidden.categories[0].huge_share is None


def test_the_rest_of_the_process_has_a_row_and_is_no_difference() -> None:
    proof = proved(HALF, REST)
    assert {copy.verdict for copy in proof.copies} == {PageVerdict.MET}
    assert [
        (category.category, category.planned_share, category.huge_share)
        for category in proof.categories
    ] == [
        ("heap", 0.5, 0.5),
        ("rest", 0.0, 0.5),
    ]
    assert proof.reached == 0.25
    assert large_share(copy_row(0, 1.0, pages=(HALF, REST))) == 50.0


def test_memory_that_was_given_back_before_anybody_looked_is_of_the_whole() -> None:
    assert proved(HALF, rss_bytes=400 * MB).reached == 0.25
    assert proved(HALF, rss_bytes=40 * MB).reached == 1.0  # huge pages of pools are in no RSS
    assert proved(None).reached is None
    lean = copy_row(0, 1.0, pages=(HALF,), max_rss_bytes=200 * MB)
    assert large_share(lean) == 25.0


def test_a_page_of_1_gb_with_5_mb_in_it_reached_5_mb() -> None:
    """It was "reached 91 % of this program's memory" with 95 MB of it elsewhere."""
    sizes = ("resident_bytes", "planned_bytes", "touched_bytes", "huge_bytes", "largest_page_bytes")
    giant = replace(HALF, extent_bytes=5 * MB, **dict.fromkeys(sizes, 1 << 30))
    rest = replace(REST, resident_bytes=95 * MB, stray_bytes=0)
    found = proved(giant, rest, layout="1G")
    assert (found.reached, found.copies_with(PageVerdict.DIFFERS)) == (0.05, ())
    assert large_share(copy_row(0, 1.0, pages=(giant, rest))) == 5.0


def test_the_verdict_says_how_much_was_reached() -> None:
    words = in_words(text_of(page_parts(proved(HALF, REST))))
    assert "2 of 2 copy runs as planned; reached 25 % of this program's memory" in words
    assert "shared 300 MB" in words
