"""What pools of huge pages must hold for a placement, and what is set for it."""

from __future__ import annotations

import pytest

from rater.lab.pools import (
    PoolNeed,
    largest_needs,
    pool_needs,
    pool_settings,
    pool_shortages,
    shortage_text,
)
from rater.plan.placement.memory_policy import MemoryPolicy
from rater.plan.placement.place import Placement
from rater.plan.topology import PoolCapacity

MB, GB = 1 << 20, 1 << 30
HUGE = 2 * MB


def on(
    copy: int,
    node: int | None,
    policy: MemoryPolicy = MemoryPolicy.LOCAL,
    nodes: tuple[int, ...] = (),
) -> Placement:
    return Placement(copy, None, None, None, None, node, None, policy, nodes)


def room(node: int, total: int, free: int, most: int = 1000, size: int = HUGE) -> PoolCapacity:
    return PoolCapacity(node, size, total, free, None, most)


def test_each_lgroup_needs_the_pages_of_the_copies_that_are_on_it() -> None:
    copies = [on(0, 0), on(1, 0), on(2, 1), on(3, None)]
    needs = pool_needs(copies, {copy: {HUGE: 10, GB: 1} for copy in range(4)})
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
    assert {it.node: it.pages for it in pool_needs([placed], {0: {HUGE: 9}})} == by_node


def test_programs_that_run_one_after_the_other_need_what_the_largest_needs() -> None:
    first, second = [PoolNeed(0, HUGE, 9), PoolNeed(1, HUGE, 1)], [PoolNeed(0, HUGE, 4)]
    assert largest_needs([first, second]) == (PoolNeed(0, HUGE, 9), PoolNeed(1, HUGE, 1))
    assert largest_needs([second, first]) == (PoolNeed(0, HUGE, 9), PoolNeed(1, HUGE, 1))


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
        "the pool of 2M pages on lgroup 1 has 5 free, copies need 20; as root: echo 45 > "
        "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
    )


def test_what_an_lgroup_has_no_memory_for_is_not_set() -> None:
    (short,) = pool_shortages([PoolNeed(1, HUGE, 2000)], [room(1, 0, 0, most=1000)])
    assert pool_settings([short]) == {}
    assert shortage_text([short]) == (
        "the pool of 2M pages on lgroup 1 has 0 free, copies need 2000 (memory for 1000 more at "
        "most)"
    )
