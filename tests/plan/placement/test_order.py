"""Orders and counts: the CPUs of each layout, `list:` and `expr:`."""

from __future__ import annotations

from typing import Any

import pytest

from rater.plan.hwloc_xml import parse_xml
from rater.plan.placement.expression import (
    cpus_of,
    evaluate_expression,
    parse_cpus,
)
from rater.plan.placement.layout import (
    BindLevel,
    Counts,
    CpuOrder,
    Layout,
    load_layout,
)
from rater.plan.placement.offer import offer_cpus, reserve
from rater.plan.placement.place import PlacementPlan, plan_placements
from rater.plan.placement.slots import distrib
from rater.plan.topology import Details, RawNode, RawPU, Topology, build_topology
from rater.record.run import MemoryPolicy
from rater.run.host.discover import parse_synthetic
from rater.system.errors import InputError
from tests.support.machines import SMT, real, topology_of
from tests.support.orderings import assign_cpus, layout, numbers, scatter
from tests.support.places import needs_machines


def cpus(topology: Topology, order: CpuOrder, copies: int, **more: Any) -> list[int]:
    return [slot[0].os for slot in assign_cpus(topology, layout(order, **more), copies).slots]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (CpuOrder.OS, [0, 1, 2, 3, 4, 5, 6, 7]),
        (CpuOrder.COMPACT, [0, 4, 1, 5, 2, 6, 3, 7]),
        (CpuOrder.CORES, [0, 1, 2, 3, 4, 5, 6, 7]),
        (CpuOrder.FILL, [0, 1, 4, 5, 2, 3, 6, 7]),
        (CpuOrder.SCATTER, [0, 2, 1, 3, 4, 6, 5, 7]),
        (CpuOrder.BALANCED, [0, 4, 1, 5, 2, 6, 3, 7]),
        (CpuOrder.DISTRIB, [0, 4, 1, 5, 2, 6, 3, 7]),
    ],
)
def test_each_order_on_a_small_machine(order: CpuOrder, expected: list[int]) -> None:
    assert cpus(SMT, order, 8) == expected
    assert cpus(SMT, order, 19) == expected + expected + expected[:3]


def test_balanced_has_the_cpus_of_scatter_numbered_along_the_machine() -> None:
    wanted = [[0], [0, 2], [0, 1, 2], [0, 1, 2, 3], [0, 4, 1, 2, 3], [0, 4, 1, 2, 6, 3]]
    assert [cpus(SMT, CpuOrder.BALANCED, copies) for copies in range(1, 7)] == wanted


def test_fill_is_the_bind_list_of_published_results_of_two_sockets() -> None:
    two = topology_of([[[core, core + 28] for core in of] for of in (range(14), range(14, 28))])
    parts = (range(14), range(28, 42), range(14, 28), range(42, 56))
    assert cpus(two, CpuOrder.FILL, 56) == [cpu for part in parts for cpu in part]
    assert cpus(two, CpuOrder.CORES, 56) == cpus(two, CpuOrder.OS, 56) == list(range(56))


def test_os_is_what_the_firmware_makes_of_it() -> None:
    power = topology_of([[[0, 1], [2, 3]], [[4, 5], [6, 7]]])  # siblings are numbered side by side
    assert cpus(power, CpuOrder.OS, 4) == [0, 1, 2, 3]
    assert cpus(power, CpuOrder.CORES, 8) == [0, 2, 4, 6, 1, 3, 5, 7]


@needs_machines
@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("epyc9555", [0, 64, 16, 80, 32, 96, 48, 112, 8]),
        ("knl7250", [0, 18, 36, 52, 2]),
        ("power9", [0, 88, 8, 96]),
        ("s390", [0, 10, 3, 7, 13, 15, 16, 17, 1]),
        ("i7-1370p", [0, 2, 4, 6, 8, 10, 12, 13, 14, 15, 16, 17, 18, 19, 1, 3, 5, 7, 9, 11]),
    ],
)
def test_scatter_on_real_machines(name: str, first: list[int]) -> None:
    assert numbers(scatter(real(name)))[: len(first)] == first


@pytest.mark.parametrize(
    ("description", "first"),
    [
        ("node:18 core:4 pu:2", [*range(0, 144, 8), 2, 10]),
        ("pack:2 numa:2 core:3 pu:2", [0, 12, 6, 18, 2, 14, 8, 20, 4, 16, 10, 22, 1, 13]),
    ],
)
def test_scatter_on_described_machines(description: str, first: list[int]) -> None:
    assert numbers(scatter(parse_synthetic(description)))[: len(first)] == first


def test_unequal_lgroups_are_equal_until_the_small_one_is_full() -> None:
    uneven = topology_of([[[0], [1], [2], [3]], [[4]], [[5], [6]]])
    assert cpus(uneven, CpuOrder.SCATTER, 7) == [0, 4, 5, 1, 6, 2, 3]
    assert cpus(uneven, CpuOrder.BALANCED, 5) == [0, 1, 4, 5, 6]


def test_lgroups_take_turns_however_many_of_them_a_package_holds() -> None:
    # Package 0 is one lgroup of two cores, package 1 has two such lgroups.
    text = _xml([[[0, 1]], [[2, 3], [4, 5]]])
    assert numbers(scatter(parse_xml(text, "lopsided"))) == [0, 2, 4, 1, 3, 5]


def test_cores_of_a_lost_package_do_not_count_like_a_package_each() -> None:
    packages = [0, 0, 0, 0, None, None, None, None]
    pus = [
        RawPU(os=cpu, core=cpu, package=package, l3=None, l2=None)
        for cpu, package in enumerate(packages)
    ]
    nodes = [RawNode(0, 0x0F, 0, None), RawNode(1, 0xF0, 0, None)]
    broken = build_topology(pus, nodes, usable=0xFF, allowed_nodes=3, source="broken")
    assert numbers(scatter(broken)) == [0, 4, 1, 5, 2, 6, 3, 7]


def _core(cpu: int) -> str:
    return (
        f'<object type="Core" cpuset="{1 << cpu:#x}"><object type="PU" os_index="{cpu}"/></object>'
    )


def _xml(packages: list[list[list[int]]]) -> str:
    """One-thread cores by package and lgroup."""
    lines, number = [], 0
    for lgroups in packages:
        mask = sum(1 << cpu for lgroup in lgroups for cpu in lgroup)
        lines.append(f'<object type="Package" cpuset="{mask:#x}">')
        for lgroup in lgroups:
            own = f'cpuset="{sum(1 << cpu for cpu in lgroup):#x}"'
            lines.append(f'<object type="Group" {own}>')
            lines.append(f'<object type="NUMANode" os_index="{number}" {own}/>')
            lines += [*map(_core, lgroup), "</object>"]
            number += 1
        lines.append("</object>")
    tree = "".join(lines)
    return f'<topology version="2.0"><object type="Machine">{tree}</object></topology>'


@needs_machines
def test_lgroups_without_cpus_get_no_copies_and_cpus_without_a_lgroup_do() -> None:
    power9 = real("power9")
    placed = plan_placements(power9, layout(CpuOrder.SCATTER), len(power9.pus), MemoryPolicy.LOCAL)
    assert {placement.node for placement in placed.placements} == {0, 8}
    haswell = real("haswell")
    placed = plan_placements(haswell, layout(CpuOrder.SCATTER), 4, MemoryPolicy.LOCAL)
    assert [placement.node for placement in placed.placements].count(None) == 2
    with pytest.raises(InputError, match="use --mem local"):
        plan_placements(haswell, layout(CpuOrder.SCATTER), 4, MemoryPolicy.BIND)


def test_counts_go_through_a_lgroup_again_where_it_has_fewer_cpus() -> None:
    counts = Counts(((0, 5),), 1)
    assert cpus(SMT, CpuOrder.SCATTER, 6, counts=counts) == [0, 2, 1, 4, 5, 0]
    assert cpus(SMT, CpuOrder.BALANCED, 6, counts=counts) == [0, 0, 4, 1, 5, 2]
    assert cpus(SMT, CpuOrder.CORES, 6, counts=counts) == [0, 1, 2, 4, 5, 0]
    assert cpus(SMT, CpuOrder.FILL, 3, counts=Counts(((0, 0),), 3)) == [2, 3, 6]
    slots = assign_cpus(SMT, layout(CpuOrder.DISTRIB, counts=Counts(((1, 2),), 1)), 3).slots
    assert [numbers(slot) for slot in slots] == [[0, 4, 1, 5], [2, 6], [3, 7]]


def test_counts_that_do_not_fit_the_machine_or_the_copies_are_an_error() -> None:
    four = layout(CpuOrder.SCATTER, counts=Counts(((0, 4),), 1))
    with pytest.raises(InputError, match=r"counts for 5 copies on made .*not for 8: use --copi"):
        assign_cpus(SMT, four, 8)
    with pytest.raises(InputError, match="node 3 is not there; on made copies can run on node"):
        assign_cpus(SMT, layout(CpuOrder.SCATTER, counts=Counts(((3, 1),))), 1)


def test_copies_on_few_cpus_get_a_warning_with_the_numbers() -> None:
    few = Layout(
        name="list:0,2", description="", order=CpuOrder.LIST, bind=BindLevel.PU, text="0,2"
    )
    placed = plan_placements(SMT, few, 5, MemoryPolicy.LOCAL)
    assert [placement.cpu for placement in placed.placements] == [0, 2, 0, 2, 0]
    assert placed.warnings[0] == "5 copies share 2 PUs of 8 usable ones: 3 on 1 PU, 2 on 1 PU"
    assert placed.most == 2
    twice = Layout(
        name="expr", description="", order=CpuOrder.EXPR, bind=BindLevel.PU, text="N:0-1@N:0-1"
    )
    assert plan_placements(SMT, twice, 4, MemoryPolicy.LOCAL).warnings[0] == (
        "4 copies share 2 PUs of 8 usable ones: 2 copies on each"
    )


def test_a_part_of_distrib_is_the_mask_of_its_copy() -> None:
    placed = plan_placements(SMT, layout(CpuOrder.DISTRIB), 3, MemoryPolicy.BIND)
    assert [placement.cpus for placement in placed.placements] == [(0, 4), (1, 5), (2, 3, 6, 7)]
    assert [placement.cpu for placement in placed.placements] == [0, 1, 2]
    one = plan_placements(SMT, layout(CpuOrder.DISTRIB), 1, MemoryPolicy.BIND).placements[0]
    assert (one.cpus, one.memory_nodes) == (tuple(range(8)), (0, 1))
    wide = Layout(name="wide", description="", order=CpuOrder.DISTRIB, bind=BindLevel.NODE)
    assert plan_placements(SMT, wide, 3, MemoryPolicy.LOCAL).placements[0].cpus == (0, 1, 4, 5)


def test_lgroups_that_cross_each_other_are_objects_until_one_crosses_those_before() -> None:
    # Eight PUs; lgroups 0-2, 1-3, 2-4, ...: 0-2 counts, and 3-5 behind it.
    pus = [RawPU(os=cpu, core=None, package=None, l3=None, l2=None) for cpu in range(8)]
    nodes = [RawNode(number, 0b111 << number, 0, None) for number in range(6)]
    topology = build_topology(pus, nodes, usable=0xFF, allowed_nodes=~0, source="crossing")
    assert [numbers(part) for part in distrib(topology, 3)] == [[0], [1, 2], [3, 4, 5, 6, 7]]
    many = build_topology(
        [RawPU(os=cpu, core=None, package=None, l3=None, l2=None) for cpu in range(9000)],
        [RawNode(number, 0b111 << number, 0, None) for number in range(8998)],
        usable=(1 << 9000) - 1,
        allowed_nodes=~0,
        source="hostile",
    )
    assert len(distrib(many, 2)) == 2  # at once; it took seconds when each was tried with all


def test_distrib_cuts_as_hwloc_s_manual_shows() -> None:
    topology = parse_synthetic("pack:2 numa:2 core:3 pu:2")
    found = [numbers(part) for part in distrib(topology, 5)]
    assert found == [[0, 1], [2, 3, 4, 5], [*range(6, 12)], [*range(12, 18)], [*range(18, 24)]]
    assert [len(part) for part in distrib(topology, 3)] == [6, 6, 12]


def threaded(order: CpuOrder, text: str, copies: int, threads: int, **more: Any) -> PlacementPlan:
    written = Layout(
        name=order.value, description="", order=order, bind=BindLevel.PU, text=text, **more
    )
    return plan_placements(SMT, written, copies, MemoryPolicy.LOCAL, threads)


def test_copies_of_threads_that_share_their_cpus_get_a_warning() -> None:
    assert threaded(CpuOrder.LIST, "0,1", 2, 2).warnings[0] == (
        "2 copies of 2 threads share 2 PUs of 8 usable ones: there are PUs with more than one "
        "thread to run"
    )
    twice = threaded(CpuOrder.EXPR, "N:0-1@N:1-2@N:3-4", 3, 2)
    assert twice.warnings[0].startswith("2 copies of 2 threads share 1 PU of 8 usable ones")
    assert twice.most == 2
    counted = threaded(CpuOrder.SCATTER, "", 3, 2, counts=Counts(((0, 3),)))
    assert counted.warnings[0].startswith("2 copies of 2 threads share 2 PUs of 8 usable ones")
    # Written copies have each CPU once.
    with pytest.raises(InputError, match=r"copy 0 of 2 threads would have a CPU twice \(0,0\)"):
        threaded(CpuOrder.EXPR, "N:0,0,1,1", 2, 2)


def test_parts_of_distrib_that_are_smaller_than_a_copy_get_a_warning() -> None:
    one = topology_of([[[0], [1], [2]], [[3], [4], [5]]])
    placed = plan_placements(one, layout(CpuOrder.DISTRIB), 3, MemoryPolicy.LOCAL, 2)
    assert [placement.cpus for placement in placed.placements] == [(0,), (1, 2), (3, 4, 5)]
    assert "1 copy has 1 CPU for 2 threads" in placed.warnings
    assert placed.most == 2
    assert plan_placements(one, layout(CpuOrder.DISTRIB), 2, MemoryPolicy.LOCAL, 3).most == 2


@pytest.mark.parametrize("order", [CpuOrder.COMPACT, CpuOrder.OS, CpuOrder.FILL])
def test_copies_lie_in_one_lgroup_while_such_room_is_free(order: CpuOrder) -> None:
    two = topology_of([[[0], [1], [2]], [[3], [4], [5]]])
    cut = [
        [numbers(slot) for slot in assign_cpus(two, layout(order), copies, 2).slots]
        for copies in (2, 3)
    ]
    assert cut == [[[0, 1], [3, 4]], [[0, 1], [2, 5], [3, 4]]]


def test_a_full_lgroup_of_counts_does_not_crowd_the_others() -> None:
    counts = Counts(((0, 2), (1, 1)))
    slots = assign_cpus(SMT, layout(CpuOrder.COMPACT, counts=counts), 3, 2).slots
    assert [numbers(slot) for slot in slots] == [[0, 4], [1, 5], [2, 3]]
    with pytest.raises(InputError, match="node 0 has 4 usable CPUs, and one copy uses 5"):
        assign_cpus(SMT, layout(CpuOrder.COMPACT, counts=Counts(((0, 1),))), 1, 5)


def test_cpus_of_a_list_that_no_copy_gets_are_named_with_the_reason() -> None:
    assert threaded(CpuOrder.LIST, "0,4,1,2,3", 1, 3, smt=1).warnings[:2] == (
        "CPU 4 of the list is left out: the layout's filters (smt 1) take it away",
        "CPU 3 at the end of the list is left over: each copy uses 3",
    )
    assert threaded(CpuOrder.EXPR, "N:0-4", 1, 2).warnings[0] == (
        "CPU 4 at the end of the list is left over: each copy uses 2"
    )
    assert threaded(CpuOrder.LIST, "0,1,2,3", 1, 2).warnings == ()


def test_a_mask_wider_than_the_memory_it_is_bound_to_gets_a_warning() -> None:
    topology = parse_synthetic("pack:1 numa:2 core:2 pu:1")
    package = Layout(name="package", description="", order=CpuOrder.COMPACT, bind=BindLevel.PACKAGE)
    assert plan_placements(topology, package, 1, MemoryPolicy.BIND).warnings == (
        "1 copy may run on CPUs of several NUMA nodes, and --mem bind takes memory of the first "
        "CPU's only: it is remote from the others",
    )
    assert plan_placements(topology, package, 1, MemoryPolicy.LOCAL).warnings == ()


# likwid's example: two sockets of two cores; siblings are numbered last.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("E:N:2", [0, 4]),
        ("E:N:2:1:2", [0, 1]),
        ("E:N:4:2:4", [0, 4, 2, 6]),
        ("E:N:8", [0, 4, 1, 5, 2, 6, 3, 7]),
        ("E:N", [0, 4, 1, 5, 2, 6, 3, 7]),
        ("E:S1:2:1:2", [2, 3]),
        ("E:N:2:1:2:1", [4, 5]),
        ("E:S0:6", [0, 4, 1, 5, 0, 4]),  # begins again at the end, as likwid does
        ("E:N:3:2:4", [0, 4, 2]),
        ("N", [0, 4, 1, 5, 2, 6, 3, 7]),
        ("M1", [2, 6, 3, 7]),
        ("D0", [0, 4, 1, 5]),  # no dies: packages
        ("N:0-7", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("L:N:1,4-6", [1, 4, 5, 6]),
        ("N:0-6:2", [0, 2, 4, 6]),
        ("S0:0-3@S1:2-3", [0, 1, 4, 5, 6, 7]),
        (" S0 : 0 - 1 @ E:S1:2 ", [0, 1, 2, 6]),
        ("S:scatter", [0, 2, 1, 3, 4, 6, 5, 7]),
        ("S:scatter:3", [0, 2, 1]),
        ("S:balanced:4", [0, 4, 2, 6]),
        ("S:cbalanced:4", [0, 1, 2, 3]),
        ("S:cbalanced:6", [0, 4, 1, 2, 6, 3]),
        ("M:balanced:3", [0, 4, 2]),
        ("N:scatter:2", [0, 1]),
        ("N:0@N:0", [0, 0]),
    ],
)
def test_expressions_mean_what_they_mean_to_likwid(text: str, expected: list[int]) -> None:
    assert [pu.os for pu in evaluate_expression(SMT, text)] == expected


def test_caches_and_dies_are_counted_over_the_machine() -> None:
    topology = parse_synthetic("pack:2 die:2 l3:2 core:2 pu:1")
    assert [pu.os for pu in evaluate_expression(topology, "C3@D1@S1:0")] == [6, 7, 4, 5, 6, 7, 8]
    assert [pu.os for pu in evaluate_expression(topology, "C:scatter:9")] == [*range(0, 16, 2), 1]
    assert [pu.os for pu in evaluate_expression(topology, "D:scatter:4")] == [0, 4, 8, 12]


def test_lgroups_are_counted_where_the_system_s_numbers_have_gaps() -> None:
    some = build_topology(
        [RawPU(os=cpu, core=None, package=None, l3=None, l2=None) for cpu in range(6)],
        [RawNode(node, 3 << 2 * place, 0, None) for place, node in enumerate((0, 2, 3))],
        usable=0b111111,
        allowed_nodes=0b1101,
        source="made",
    )
    assert [pu.os for pu in evaluate_expression(some, "M2:0-1@M1:0")] == [4, 5, 2]
    with pytest.raises(InputError, match=r"made has no M3 with usable CPUs.*: M0-2"):
        evaluate_expression(some, "M3:0")


def test_lgroups_without_usable_cpus_are_counted() -> None:
    some = topology_of([[[0], [1]], [[2], [3]], [[4], [5]]], usable={0, 3, 4, 5})
    assert [pu.os for pu in evaluate_expression(some, "M2@M1")] == [4, 5, 3]
    assert [slot[0].os for slot in assign_cpus(some, load_layout("expr:N"), 4).slots] == [
        0,
        3,
        4,
        5,
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expr:: '' is none of its parts: expected a domain (N, S0, D0, C0, M0), N:0-3, E:N:8"),
        *((wrong, f"{wrong!r} is none of its parts: ") for wrong in ("Q:3", "E:N:0", "E:N:x")),
        *((wrong, f"{wrong!r} is none of its parts: ") for wrong in ("E:N:4:2", "E N", "S")),
        *((wrong, f"{wrong!r} is none of its parts: ") for wrong in ("S:spread", "N:٣", "L:N")),
        ("N:3-1", "expr:N:3-1: the range 3-1 in '3-1' runs backwards"),
        ("N:1,", "'' is no number or range, as in 7, 0-3 or 0-62:2"),
        ("N:1@", "expr:N:1@: '' is none of its parts"),
        ("N:1 2", "unexpected '2' at character 3 of '1 2'"),
        ("N:0-6:0", "'0-6:0' is no number or range"),
        ("N:" + "9" * 5000, "is above 65535"),
        ("N:0-65535,0-65535", "expected no more than 99999 numbers"),
    ],
)
def test_a_wrong_expression_is_an_error_that_names_the_part(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_layout(f"expr:{text}")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("S3", "made has no S3 with usable CPUs; packages with some: S0-1"),
        ("C0", "C stands for caches, and made names none for its usable CPUs: use N"),
        ("M0:0,4", "M0 has no position 4 on made: its 4 usable CPUs are at 0-3"),
        ("E:M0:1:1:1:4", "the offset 4 lies behind the 4 usable CPUs of M0"),
        ("S:scatter:9", "S:scatter:9 wants 9 CPUs, and packages of made have 8"),
        ("E:N:99999@E:N:1", "100000 CPUs, expected at most 99999"),
    ],
)
def test_an_expression_that_the_machine_does_not_fit_is_an_error(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        evaluate_expression(SMT, text)
    assert message in str(caught.value)


def test_a_list_is_taken_in_its_own_order() -> None:
    assert parse_cpus("0,8,1,9") == (0, 8, 1, 9)
    assert parse_cpus(" 7, 0-6:3 ,4-5") == (7, 0, 3, 6, 4, 5)
    assert [pu.os for pu in cpus_of(SMT, "7,0-2")] == [7, 0, 1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1,0-2", "list:0,1,0-2 names CPUs 0-1 more than once: name each once"),
        ("", "'' is no number or range, as in 7, 0-3 or 0-62:2"),
        ("0;1", "unexpected ';' at character 2 of '0;1'"),
        ("3-1", "the range 3-1 in '3-1' runs backwards"),
        ("0-8:0", "'0-8:0' is no number or range"),
        ("70000", "is above 65535"),
        ("0,\x1b[2J", "expected a number at character 1 of '\\x1b[2J'"),
    ],
)
def test_a_wrong_list_is_an_error_that_names_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_layout(f"list:{text}")
    assert message in str(caught.value)
    assert "\x1b" not in str(caught.value).replace("\\x1b", "")


def test_cpus_that_the_machine_lacks_are_named_with_what_there_is() -> None:
    part = topology_of([[[0, 4], [1, 5]], [[2, 6], [3, 7]]], usable={0, 1, 4, 5})
    with pytest.raises(InputError) as caught:
        cpus_of(part, "0,2-3,8,96-97")
    assert str(caught.value) == (
        "list:0,2-3,8,96-97: on made CPUs 8,96-97 are not there and CPUs 2-3 are not free to use: "
        "use some of 0-1,4-5"
    )


def test_a_list_may_name_what_the_cpuset_has_beyond_our_own_affinity() -> None:
    # isolcpus=2-3: a shell, and rater, are started on the others.
    raw = [RawPU(os=cpu, core=cpu, package=0, l3=0, l2=cpu) for cpu in range(5)]
    bound = build_topology(
        *(raw, [RawNode(0, 0b11111, 0, None)]),
        usable=0b00011,
        allowed_nodes=1,
        source="this machine",
        is_this_system=True,
        details=Details(forbidden=(4,)),
    )
    slots = assign_cpus(bound, load_layout("list:2-3,0"), 3).slots
    assert [slot[0].os for slot in slots] == [2, 3, 0]
    assert len(offer_cpus(bound, load_layout("balanced")).topology.pus) == 2
    with pytest.raises(InputError, match="CPU 4 is not free to use: use some of 0-2"):
        assign_cpus(bound, load_layout("list:2,4"), 2)


def test_filters_take_cpus_out_of_a_list_and_reserved_ones_must_not_be_in_it() -> None:
    base = load_layout("list:0-7")
    first = Layout(
        name=base.name, description="", order=base.order, bind=base.bind, text=base.text, smt=1
    )
    assert [slot[0].os for slot in assign_cpus(SMT, first, 4).slots] == [0, 1, 2, 3]
    kept = Layout(
        name=base.name, description="", order=base.order, bind=base.bind, text=base.text, reserve=1
    )
    assert [pu.os for pu in reserve(SMT, 1)] == [0, 4]
    with pytest.raises(InputError, match="CPUs 0,4 are not free to use: use some of 1-3,5-7"):
        assign_cpus(SMT, kept, 4)
