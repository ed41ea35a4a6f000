"""What pools of huge pages must hold for a placement, and what is set for it."""

from __future__ import annotations

import pytest

from rater.plan.pages.layout import Category, parse_pages
from rater.plan.placement.place import MemoryPolicy, Placement
from rater.plan.pools.pools import (
    PoolNeed,
    PoolShortage,
    pages_of_copy,
    pool_needs,
    pool_settings,
    pool_shortages,
    shortage_text,
)
from rater.plan.topology.lgroup_memory import PoolRoom

MB, GB = 1 << 20, 1 << 30
HUGE = 2 * MB


def on(
    copy: int,
    node: int | None,
    policy: MemoryPolicy = MemoryPolicy.LOCAL,
    nodes: tuple[int, ...] = (),
) -> Placement:
    return Placement(copy, None, None, None, None, node, None, policy, nodes)


def room(node: int, total: int, free: int, most: int = 1000, size: int = HUGE) -> PoolRoom:
    return PoolRoom(node, size, total, free, None, most)


@pytest.mark.parametrize(
    ("text", "extents", "pages"),
    [
        ("huge", {Category.HEAP: 64 * MB, Category.MMAP: 5 * MB}, {HUGE: 32 + 3}),
        ("50%", {Category.HEAP: 64 * MB}, {HUGE: 16}),
        ("base", {Category.HEAP: 64 * MB}, {}),
        ("heap:1G;mmap:2M", {Category.HEAP: GB + 1, Category.MMAP: 4 * MB}, {GB: 2, HUGE: 2}),
        ("2M@64M-128M", {Category.HEAP: 96 * MB}, {HUGE: 16}),  # as far as there is data
        ("2M@64M-128M", {Category.HEAP: 64 * MB}, {}),
    ],
)
def test_a_copy_takes_the_pages_that_its_windows_cover(
    text: str, extents: dict[Category, int], pages: dict[int, int]
) -> None:
    assert pages_of_copy(parse_pages(text), extents, HUGE) == pages


def test_each_lgroup_needs_the_pages_of_the_copies_that_are_on_it() -> None:
    copies = [on(0, 0), on(1, 0), on(2, 1)]
    needs = pool_needs(copies, {key: {HUGE: 10, GB: 1} for key in range(3)}, (0, 1))
    assert needs == (
        PoolNeed(0, HUGE, 20),
        PoolNeed(0, GB, 2),
        PoolNeed(1, HUGE, 10),
        PoolNeed(1, GB, 1),
    )


@pytest.mark.parametrize(
    ("placed", "by_node"),
    [
        (on(0, 0, MemoryPolicy.BIND, (1,)), {1: 9}),
        (on(0, 0, MemoryPolicy.INTERLEAVE, (0, 1)), {0: 5, 1: 5}),  # each part rounded up
        (on(0, 0, MemoryPolicy.PREFERRED, (1, 2)), {1: 9}),
        (on(0, None, MemoryPolicy.NONE), {0: 3, 1: 3, 2: 3}),  # may be anywhere
    ],
)
def test_memory_that_is_bound_elsewhere_takes_pages_there(
    placed: Placement, by_node: dict[int, int]
) -> None:
    needs = pool_needs([placed], {0: {HUGE: 9}}, (0, 1, 2))
    assert {need.node: need.pages for need in needs} == by_node


def test_pools_are_set_to_what_is_in_use_and_needed_and_only_where_they_lack_it() -> None:
    needs = [PoolNeed(0, HUGE, 20), PoolNeed(1, HUGE, 20), PoolNeed(2, GB, 1)]
    short = pool_shortages(needs, [room(0, 30, 20), room(1, 30, 5), room(2, 0, 0, size=GB)])
    assert [it.need.node for it in short] == [1, 2]
    assert pool_settings(short) == {
        "hugepages.2048kB.node1": "45",  # 25 in use
        "hugepages.1048576kB.node2": "1",
    }


def test_a_shortage_names_the_numbers_and_the_command() -> None:
    (short,) = pool_shortages([PoolNeed(1, HUGE, 20)], [room(1, 30, 5)])
    assert shortage_text([short]) == (
        "lgroup 1 has 5 free pages of 2 MB, its copies need 20; as root: echo 45 > "
        "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
    )
    few = PoolShortage(PoolNeed(1, HUGE, 2000), room(1, 0, 0, most=1000))
    none = PoolShortage(PoolNeed(1, GB, 1), None)
    assert (few.is_hopeless, none.is_hopeless, short.is_hopeless) == (True, True, False)
    assert shortage_text([few, none]) == (
        "lgroup 1 has 0 free pages of 2 MB, its copies need 2000 (memory for 1000 more at most), "
        "lgroup 1 has 0 free pages of 1 GB, its copies need 1: this kernel or CPU has no such pages"
    )
