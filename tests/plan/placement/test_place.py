"""Copies on CPUs, and what is said of shared cores and of CPU kinds."""

from __future__ import annotations

import functools
import re

import pytest
from msgspec.structs import replace

from rater.plan.hwloc_xml import parse_xml
from rater.plan.placement.layout import BindLevel, CpuOrder, Layout, load_layout
from rater.plan.placement.memory_policy import Memory
from rater.plan.placement.place import default_memory, plan_placements, resolve_copies
from rater.plan.placement.summary import remarks
from rater.plan.placement.warnings import CorePool, pools
from rater.plan.topology import (
    CpuKind,
    RawDistances,
    RawKind,
    RawNode,
    RawPU,
    Topology,
    build_topology,
)
from rater.record.run import MOST_COPIES, MemoryPolicy
from rater.run.host.discover import parse_synthetic
from rater.system.errors import InputError
from tests.support.machines import SMT, real, topology_of
from tests.support.orderings import scatter
from tests.support.places import MACHINES, needs_machines
from tests.support.small_machines import hybrid, two_kinds

BALANCED = Layout(name="balanced", description="", order=CpuOrder.BALANCED, bind=BindLevel.PU)
UNBOUND = Layout(name="none", description="", order=CpuOrder.NONE, bind=BindLevel.NONE)
LOCAL, BIND = MemoryPolicy.LOCAL, MemoryPolicy.BIND


def warnings(topology: Topology, copies: int, threads: int = 1) -> tuple[str, ...]:
    return plan_placements(topology, BALANCED, copies, LOCAL, threads).warnings


def flat(kinds: list[RawKind], cpus: int) -> Topology:
    """One lgroup of so many cores of these kinds."""
    return build_topology(
        [RawPU(os=os, core=os, package=0, l3=None, l2=None) for os in range(cpus)],
        [RawNode(0, (1 << cpus) - 1, 0, None)],
        usable=(1 << cpus) - 1,
        allowed_nodes=1,
        source="made",
        kinds=kinds,
    )


def half_filled(nodes_bytes: list[int], *, distances: bool = True) -> Topology:
    """Nodes of two cores; node 1 has CPUs 2 and 3."""
    number = len(nodes_bytes)
    matrix = tuple(
        tuple(10.0 if row == column else 20.0 for column in range(number)) for row in range(number)
    )
    return build_topology(
        [RawPU(os=os, core=os, package=0, l3=None, l2=None) for os in range(2 * number)],
        [
            RawNode(node, 3 << 2 * node, memory_bytes, None)
            for node, memory_bytes in enumerate(nodes_bytes)
        ],
        usable=(1 << 2 * number) - 1,
        allowed_nodes=(1 << number) - 1,
        source="made",
        distances=RawDistances(tuple(range(number)), matrix) if distances else None,
    )


GB = 1 << 30


def test_copies_go_beside_memory_first() -> None:
    topology = half_filled([GB, 0, GB])
    for order in (CpuOrder.BALANCED, CpuOrder.SCATTER):
        layout = Layout(name="x", description="", order=order, bind=BindLevel.PU)
        placed = plan_placements(topology, layout, 4, LOCAL)
        assert sorted(placement.cpu or 0 for placement in placed.placements) == [0, 1, 4, 5]
        assert placed.warnings == ()
    pairs = plan_placements(topology, BALANCED, 2, LOCAL, 2)
    assert [placement.cpus for placement in pairs.placements] == [(0, 1), (4, 5)]
    assert warnings(topology, 6) == (
        "node 1 has no memory (CPUs 2-3): all memory of copies 2-3 is remote",
    )


def test_memory_is_not_bound_to_a_node_without_any() -> None:
    topology = half_filled([GB, 0, GB])
    with pytest.raises(InputError, match=r"node 1 of made has no memory \(CPUs 2-3\)"):
        plan_placements(topology, BALANCED, 6, BIND)
    assert plan_placements(topology, BALANCED, 4, BIND).warnings == ()
    with pytest.raises(InputError, match="has no memory in node 1; expected numbers out of 0"):
        plan_placements(topology, BALANCED, 4, Memory(BIND, (1,)))
    spread = plan_placements(topology, BALANCED, 6, MemoryPolicy.INTERLEAVE)
    assert {placement.memory_nodes for placement in spread.placements} == {(0, 2)}


def test_equally_near_nodes_share_the_copies_of_nodes_without_memory() -> None:
    placed = plan_placements(half_filled([GB, 0, GB]), BALANCED, 6, MemoryPolicy.PREFERRED)
    assert [placement.memory_nodes for placement in placed.placements] == [
        (0,), (0,), (0,), (2,), (2,), (2,),
    ]  # fmt: skip
    assert placed.warnings == (
        "node 1 has no memory (CPUs 2-3): all memory of copies 2-3 is remote, from node 0,2",
    )


def test_more_copies_than_pus_go_round() -> None:
    placed = plan_placements(SMT, BALANCED, 18, LOCAL)
    assert [placement.cpu for placement in placed.placements] == [0, 4, 1, 5, 2, 6, 3, 7] * 2 + [
        0,
        4,
    ]
    assert placed.warnings == (
        "18 copies share 8 usable PUs: 3 on 2 PUs, 2 on 6 PUs",
        "NUMA nodes run unequal numbers of copies: 10 on node 0, 8 on node 1",
    )
    assert warnings(SMT, 16) == ("16 copies share 8 usable PUs: 2 copies on each",)
    assert plan_placements(SMT, UNBOUND, 9, LOCAL).warnings == (
        "9 copies share 8 usable PUs: 2 on 1 PU, 1 on 7 PUs",
    )


def test_a_placement_tells_all_of_its_pu() -> None:
    found = plan_placements(SMT, BALANCED, 8, LOCAL).placements[5]
    assert (found.copy, found.cpus, found.cpu, found.core) == (5, (6,), 6, 2)
    assert (found.node, found.package, found.llc) == (1, 1, None)
    assert (found.memory_policy, found.memory_nodes) == (LOCAL, ())


def test_unbound_copies_have_no_place() -> None:
    placed = plan_placements(SMT, UNBOUND, 3, MemoryPolicy.NONE)
    assert [placement.copy for placement in placed.placements] == [0, 1, 2]
    for placement in placed.placements:
        assert (
            placement.cpus,
            placement.cpu,
            placement.core,
            placement.llc,
            placement.node,
            placement.package,
        ) == (None,) * 6
        assert (placement.memory_policy, placement.memory_nodes) == (MemoryPolicy.NONE, ())
    assert placed.warnings == ()
    with pytest.raises(InputError, match="layout none does not bind copies to CPUs"):
        plan_placements(SMT, UNBOUND, 3, BIND)


def test_memory_is_local_by_default_where_copies_are_bound() -> None:
    assert default_memory(load_layout("balanced")) is LOCAL
    assert default_memory(load_layout("none")) is MemoryPolicy.NONE


@pytest.mark.parametrize(
    ("bind", "masks"),
    [
        (BindLevel.PU, [(0,), (4,), (1,)]),
        (BindLevel.CORE, [(0, 4), (0, 4), (1, 5)]),
        (BindLevel.NODE, [(0, 1, 4, 5)] * 3),
        (BindLevel.PACKAGE, [(0, 1, 4, 5)] * 3),
    ],
)
def test_a_mask_is_as_wide_as_the_layout_says(
    bind: BindLevel, masks: list[tuple[int, ...]]
) -> None:
    layout = Layout(name="wide", description="", order=CpuOrder.BALANCED, bind=bind)
    assert [placement.cpus for placement in plan_placements(SMT, layout, 8, LOCAL).placements][
        :3
    ] == masks


def test_a_mask_holds_what_may_be_used_and_an_object_that_the_machine_lacks_is_an_error() -> None:
    topology = topology_of([[[0, 4], [1, 5]], [[2, 6], [3, 7]]], usable={0, 1, 2, 3, 5})
    layout = Layout(name="wide", description="", order=CpuOrder.BALANCED, bind=BindLevel.NODE)
    assert {
        placement.cpus for placement in plan_placements(topology, layout, 5, LOCAL).placements
    } == {
        (0, 1, 5),
        (2, 3),
    }
    layout = Layout(name="wide", description="", order=CpuOrder.BALANCED, bind=BindLevel.LLC)
    with pytest.raises(InputError, match="made names no llc for CPUs 0-7"):
        plan_placements(SMT, layout, 2, LOCAL)


def test_memory_is_bound_to_the_home_node_else_to_the_nearest_or_refused() -> None:
    placed = [
        (placement.cpu, placement.memory_nodes)
        for placement in plan_placements(SMT, BALANCED, 4, BIND).placements
    ]
    assert placed == [(0, (0,)), (1, (0,)), (2, (1,)), (3, (1,))]
    # Node 0 is forbidden, and node 2 is nearer to it than node 1.
    values = ((10.0, 30.0, 20.0), (30.0, 10.0, 30.0), (20.0, 30.0, 10.0))
    parts = [RawPU(os=os, core=os, package=0, l3=None, l2=None) for os in range(3)]
    nodes = [RawNode(os, 1 << os, 0, None) for os in range(3)]
    topology_with = functools.partial(
        build_topology, parts, nodes, usable=0b111, allowed_nodes=0b110, source="made"
    )
    remote = (
        "1 CPU without memory of an own NUMA node (0): all memory of the copies there is remote"
    )
    topology = topology_with(distances=RawDistances((0, 1, 2), values))
    found = plan_placements(topology, BALANCED, 3, BIND)
    assert [placement.memory_nodes for placement in found.placements] == [(2,), (1,), (2,)]
    assert found.warnings[-1] == f"{remote}, from node 2"
    with pytest.raises(InputError, match="--mem bind: CPUs 0 of made belong to no NUMA"):
        plan_placements(topology_with(), BALANCED, 3, BIND)
    assert warnings(topology_with(), 3) == (remote,)


def test_copies_that_share_a_core_beside_others_that_do_not_get_a_warning() -> None:
    assert warnings(SMT, 4) == ()
    assert warnings(SMT, 8) == ()
    assert warnings(SMT, 6) == (
        "4 copies share 2 cores while 2 run on cores of their own: they will not take equally long",
    )


def test_unequal_lgroups_get_a_warning_with_their_numbers() -> None:
    uneven = topology_of([[[0], [1], [2]], [[3]], [[4]]])
    assert warnings(uneven, 3) == ()
    assert warnings(uneven, 5) == (
        "NUMA nodes run unequal numbers of copies: 3 on node 0, 1 on nodes 1-2 each",
    )
    assert [
        placement.cpu for placement in plan_placements(uneven, BALANCED, 4, LOCAL).placements
    ] == [0, 1, 3, 4]


def test_cpus_of_different_speeds_get_a_warning_and_are_not_mixed_without_need() -> None:
    topology = flat([RawKind(0b001, 1), RawKind(0b110, 2)], 3)
    assert slots(topology, 2, 1) == [(1,), (2,)]
    assert warnings(topology, 3) == (
        "copies run on CPUs of 2 speeds, from the fastest kind to the slowest: 2, 1 copies",
    )
    # They are not mixed in one copy without need.
    topology = flat([RawKind(0b0000111, 2), RawKind(0b1111000, 1)], 7)
    assert slots(topology, 1, 2) == [(0, 1)]
    assert slots(topology, 3, 2) == [(0, 1), (3, 4), (5, 6)]


def test_a_node_over_several_packages_has_its_turn_before_them() -> None:
    # Node 0 spans packages 0 and 1; node 1 is package 2.
    pus = [RawPU(os=os, core=os, package=os // 2, l3=None, l2=None) for os in range(6)]
    nodes = [RawNode(0, 0b001111, 0, None), RawNode(1, 0b110000, 0, None)]
    topology = build_topology(pus, nodes, usable=0b111111, allowed_nodes=3, source="made")
    assert [pu.os for pu in scatter(topology)] == [0, 4, 2, 5, 1, 3]


def slots(topology: Topology, copies: int, threads: int) -> list[tuple[int, ...] | None]:
    return [
        placement.cpus
        for placement in plan_placements(topology, BALANCED, copies, LOCAL, threads).placements
    ]


def test_a_copy_of_several_threads_gets_neighbours() -> None:
    # Cores of their own while there are enough, then with their siblings.
    assert slots(SMT, 1, 2) == [(0, 1)]
    assert slots(SMT, 2, 2) == [(0, 1), (2, 3)]
    assert slots(SMT, 3, 2) == [(0, 4), (1, 5), (2, 3)]
    assert slots(SMT, 4, 2) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert slots(SMT, 2, 4) == [(0, 1, 4, 5), (2, 3, 6, 7)]
    # An lgroup has 3 PUs only with siblings: better than 3 cores in two of them.
    assert slots(SMT, 1, 3) == [(0, 1, 4)]
    first = plan_placements(SMT, BALANCED, 2, LOCAL, 2).placements[1]
    assert (first.cpu, first.core, first.node, first.package) == (2, 2, 1, 1)


def test_a_copy_of_several_threads_lies_in_one_cache_if_it_fits() -> None:
    # A node of two LLCs of three cores, numbered 0-2 and 3-5.
    pus = [RawPU(os=os, core=os, package=0, l3=os // 3, l2=None) for os in range(6)]
    nodes = [RawNode(0, 0b111111, 0, None)]
    topology = build_topology(pus, nodes, usable=0b111111, allowed_nodes=1, source="made")
    assert slots(topology, 2, 2) == [(0, 1), (3, 4)]
    assert slots(topology, 3, 2) == [(0, 1), (2, 5), (3, 4)]
    assert warnings(topology, 3, 2) == ()


def test_more_threads_than_pus_share_them_with_a_warning() -> None:
    assert slots(SMT, 2, 9) == [tuple(range(8))] * 2
    assert slots(SMT, 5, 2)[4] == (0, 4)
    assert warnings(SMT, 5, 2)[0] == (
        "5 copies of 2 threads on 8 usable PUs: there are PUs with more than one thread to run"
    )
    assert plan_placements(SMT, UNBOUND, 4, LOCAL, 2).warnings == ()
    assert plan_placements(SMT, UNBOUND, 1, LOCAL, 9).warnings == (
        "1 copy of 9 threads on 8 usable PUs: there are PUs with more than one thread to run",
    )


def test_a_copy_in_two_lgroups_gets_memory_of_both_and_a_warning() -> None:
    two = topology_of([[[0], [1], [2]], [[3], [4], [5]]])
    placed = plan_placements(two, BALANCED, 3, BIND, 2)
    assert [(placement.cpus, placement.memory_nodes) for placement in placed.placements] == [
        ((0, 1), (0,)),
        ((2, 5), (0, 1)),
        ((3, 4), (1,)),
    ]
    assert placed.warnings[0] == (
        "1 copy has CPUs in several NUMA nodes: part of their memory is remote"
    )


def test_copies_of_threads_that_meet_in_a_core_beside_others_get_a_warning() -> None:
    topology = topology_of([[[0, 6], [1, 7], [2, 8]], [[3, 9], [4, 10], [5, 11]]])
    assert slots(topology, 4, 3) == [(0, 1, 6), (2, 7, 8), (3, 4, 9), (5, 10, 11)]
    assert warnings(topology, 4, 3) == ()
    assert warnings(topology, 3, 3)[0] == (
        "2 copies share a core with another one while 1 does not: they will not take equally long"
    )


def test_only_copies_that_would_stray_are_crowded_into_fewer_cores() -> None:
    # Two nodes of five cores of four threads, siblings next to each other.
    two = topology_of(
        [
            [[4 * core + thread for thread in range(4)] for core in range(number, number + 5)]
            for number in (0, 5)
        ]
    )
    assert resolve_copies("cores", two, 3) == 2
    assert slots(two, 2, 3) == [(0, 4, 8), (20, 24, 28)]
    assert warnings(two, 2, 3) == ()
    # The third has what is left of its node: two cores, and no more of each than it must.
    assert slots(two, 3, 3) == [(0, 4, 8), (12, 13, 16), (20, 24, 28)]
    assert warnings(two, 3, 3)[:2] == (
        "1 copy has fewer cores for the threads than 2 with 3 cores each: "
        "they will not take equally long",
        "copies use 8 of 10 cores: threads share cores while others idle",
    )
    # No node has seven cores, but two threads of each will do.
    assert resolve_copies("cores", two, 7) == 1
    assert slots(two, 1, 7) == [(0, 1, 4, 5, 8, 9, 12)]


@needs_machines
@pytest.mark.parametrize(
    ("name", "threads", "copies", "cores", "more_cores"),
    [
        ("power8-2n-20c-smt8", 4, 4, 16, 18),
        ("knl7250-snc4-flat-8n-68c-smt4", 4, 16, 64, 66),
        ("thunderx2-2n-64c-smt4", 4, 16, 64, 64),
        ("xeon-snc2-pmem-6n-56c-smt2", 4, 12, 48, 50),
    ],
)
def test_one_copy_more_than_fits_on_whole_cores_leaves_no_others_idle(
    name: str, threads: int, copies: int, cores: int, more_cores: int
) -> None:
    topology = real(name)
    assert resolve_copies("cores", topology, threads) == copies
    for wanted, used in ((copies, cores), (copies + 1, more_cores)):
        given = [cpu for cpus in slots(topology, wanted, threads) for cpu in cpus or ()]
        assert len(set(given)) == wanted * threads
        assert len({topology.by_cpu[cpu].core for cpu in given}) == used


@pytest.mark.parametrize(
    ("text", "threads", "copies"),
    [("pus", 2, 4), ("pus", 3, 2), ("cores", 3, 1), ("cores", 9, 1), ("pus", 9, 1), ("nodes", 2, 2),
     ("5", 2, 5)],
)  # fmt: skip
def test_counted_copies_of_threads_have_room(text: str, threads: int, copies: int) -> None:
    assert resolve_copies(text, SMT, threads) == copies


@pytest.mark.parametrize(
    ("text", "copies"), [("3", 3), (" 12 ", 12), ("007", 7), ("pus", 8), ("cores", 4), ("nodes", 2)]
)
def test_copies_are_a_number_or_counted(text: str, copies: int) -> None:
    assert resolve_copies(text, SMT) == copies


def test_counted_copies_count_what_may_be_used() -> None:
    part = topology_of([[[0, 4], [1, 5]], [[2, 6], [3, 7]]], usable={0, 1, 5})
    assert [resolve_copies(text, part) for text in ("pus", "cores", "nodes")] == [3, 2, 1]
    # Where no lgroup has cores enough for a copy, all cores count.
    assert resolve_copies("cores", topology_of([[[0]], [[1]], [[2]], [[3]]]), 2) == 2
    homeless = topology_of([[[0]], [[1]]], allowed_nodes=0)
    with pytest.raises(InputError, match="no NUMA node of made has usable CPUs"):
        resolve_copies("nodes", homeless)


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "+3", "1.5", "1e3", "many", "PUS", "٣", "9" * 5000, "100000", "1 2"]
)
def test_wrong_copies_are_an_error(text: str) -> None:
    with pytest.raises(InputError, match=f"expected a number from 1 to {MOST_COPIES}, pus"):
        resolve_copies(text, SMT)


def warned(
    topology: Topology,
    copies: int,
    bind: BindLevel = BindLevel.PU,
    *,
    order: CpuOrder = CpuOrder.BALANCED,
    threads: int = 1,
) -> list[str]:
    layout = Layout(name="mine", description="", order=order, bind=bind)
    placed = plan_placements(topology, layout, copies, MemoryPolicy.LOCAL, threads)
    return [*placed.warnings, *remarks(topology, placed.placements, threads)]


def test_cores_that_copies_share_are_found_by_their_masks() -> None:
    # PUs 0 and 4 are of core 0, 1 and 5 of core 1.
    assert pools(SMT, [(0,), (4,), (1,)]) == [CorePool(2, 1, 2), CorePool(1, 1, 1)]
    node = (0, 1, 4, 5)
    assert pools(SMT, [node, node, (2,)]) == [CorePool(2, 2, 4), CorePool(1, 1, 1)]
    assert pools(SMT, [(0, 4), (4, 5), (3,)]) == [CorePool(2, 2, 3), CorePool(1, 1, 1)]


def test_copies_on_a_wide_mask_share_cores_only_where_they_have_no_choice() -> None:
    assert warned(SMT, 6) == [
        "4 copies share 2 cores while 2 run on cores of their own: they will not take equally long"
    ]
    # Three copies move over the two cores of each lgroup: all are alike.
    assert warned(SMT, 6, BindLevel.NODE) == [
        "6 copies share 4 cores, a thread for every copy: --smt 1 and fewer copies give each a "
        "core of its own"
    ]
    assert warned(SMT, 4, BindLevel.NODE) == []
    # Lgroup 0 has four copies for its two cores, lgroup 1 a core for each.
    assert warned(SMT, 6, BindLevel.NODE, order=CpuOrder.COMPACT) == [
        "4 copies share 2 cores while 2 run on cores of their own: they will not take equally long",
        "NUMA nodes run unequal numbers of copies: 4 on node 0, 2 on node 1",
    ]
    assert warned(SMT, 5, BindLevel.CORE)[0] == (
        "2 copies share 1 core while 3 run on cores of their own: they will not take equally long"
    )
    # One copy alone is spoken of in the singular.
    assert warned(SMT, 3, order=CpuOrder.COMPACT)[0] == (
        "2 copies share 1 core while 1 runs on cores of their own: they will not take equally long"
    )


def test_copies_and_threads_on_a_wide_mask_are_counted_by_mask() -> None:
    said = warned(SMT, 18, BindLevel.NODE)
    assert said[0] == "18 copies share 8 usable PUs: 2 to 2.5 for each PU"
    assert warned(SMT, 16, BindLevel.NODE) == ["16 copies share 8 usable PUs: 2 for each PU"]
    assert warned(SMT, 2, BindLevel.NODE, threads=2) == []
    assert warned(SMT, 3, BindLevel.NODE, threads=2)[0] == (
        "2 copies have more threads than cores while 1 has not: they will not take equally long"
    )


def test_a_mask_over_cpus_of_several_speeds_is_the_warning() -> None:
    assert warned(hybrid(), 7) == [
        "4 copies share 2 cores while 3 run on cores of their own: they will not take equally long",
        "copies run on CPUs of 2 speeds, from the fastest kind to the slowest: 4, 3 copies",
    ]
    mixed = (
        "copies may run on CPUs of 2 speeds each: how long they take depends on where the kernel "
        "puts them"
    )
    assert warned(hybrid(), 3, BindLevel.NODE) == [f"3 {mixed}"]
    assert warned(hybrid(), 7, BindLevel.PACKAGE) == [
        f"7 {mixed}",
        "7 copies share 5 cores, a thread for every copy: --smt 1 and fewer copies give each a "
        "core of its own",
    ]


def test_kinds_that_nothing_ranks_get_a_warning_too() -> None:
    unranked = two_kinds(hybrid(), "made")
    assert warned(unranked, 7)[1] == (
        "copies run on CPUs of 2 kinds, and which is faster is not known: 4, 3 copies"
    )
    assert warned(unranked, 2, BindLevel.NODE) == [
        "2 copies may run on CPUs of 2 kinds each, and which is faster is not known: how long they "
        "take depends on where the kernel puts them"
    ]
    one = replace(unranked, details=replace(unranked.details, kinds=(CpuKind((0, 1), ()),)))
    assert one.unranked_kinds == ()


@needs_machines
def test_a_hybrid_without_frequencies_is_of_unknown_speeds() -> None:
    text = (MACHINES / "i7-1370p-hybrid-6p8e.xml").read_text()
    bare = re.sub(r'<info name="(CoreType|Frequency\w+)"[^>]*/>|forced_efficiency="\d+"', "", text)
    unranked = parse_xml(bare, "bare")
    assert unranked.unranked_kinds == (tuple(range(12, 20)), tuple(range(12)))
    assert any("2 kinds, and which is faster is not known" in said for said in warned(unranked, 20))
    assert real("i7-1370p").unranked_kinds == ()


@needs_machines
def test_a_hybrid_whose_copies_float_is_not_said_to_have_copies_on_cores_of_their_own() -> None:
    for bind in (BindLevel.LLC, BindLevel.NODE, BindLevel.PACKAGE):
        found = warned(real("i7-1370p"), 20, bind)
        assert [said.split(":")[0] for said in found] == [
            "20 copies may run on CPUs of 2 speeds each",
            "20 copies share 14 cores, a thread for every copy",
        ]


def test_copies_that_float_over_lgroups_are_in_none_of_them() -> None:
    topology = parse_synthetic("pack:1 numa:2 core:2 pu:1")
    assert warned(topology, 3, BindLevel.PACKAGE) == []
    assert warned(topology, 3) == [
        "NUMA nodes run unequal numbers of copies: 2 on node 0, 1 on node 1"
    ]
