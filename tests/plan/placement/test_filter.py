"""What layouts leave of a machine, and what the command line changes in them."""

from typing import Any

import pytest

from rater.errors import InputError
from rater.plan.placement.assign import assign_cpus
from rater.plan.placement.layout import (
    BindLevel,
    CpuOrder,
    Layout,
    MachineParts,
    load_layout,
    options,
    override_layout,
)
from rater.plan.placement.memory_policy import MemoryPolicy
from rater.plan.placement.order import apply_filters, reserve, restrict_to
from rater.plan.placement.place import plan_placements
from rater.plan.topology import Topology
from tests.support.machines import SMT, made
from tests.support.small_machines import hybrid, two_kinds


def layout(order: CpuOrder = CpuOrder.COMPACT, **more: Any) -> Layout:
    return Layout("mine", "", order, BindLevel.PU, **more)


def left(topology: Topology = SMT, **more: Any) -> list[int]:
    return [pu.os for pu in apply_filters(topology, layout(**more)).topology.pus]


def test_smt_keeps_the_first_threads_of_each_core() -> None:
    assert left(smt=1) == [0, 1, 2, 3]
    assert left(smt=2) == left(smt=64) == [0, 4, 1, 5, 2, 6, 3, 7]
    part = made([[[0, 4], [1, 5]]], usable={4, 1, 5})
    assert left(part, smt=1) == [4, 1]  # the first usable thread


def test_kinds_are_named_or_numbered() -> None:
    assert left(hybrid(), kind="fast") == left(hybrid(), kind="1") == [0, 1, 2, 3]
    assert left(hybrid(), kind="slow") == left(hybrid(), kind="0") == [4, 5, 6]
    assert left(hybrid(), kind="fast", smt=1) == [0, 2]
    assert left(SMT, kind="fast") == left(SMT, kind="slow") == left(SMT)
    with pytest.raises(InputError, match=r"kind 7: the usable CPUs of hybrid are of kind 0 \(CPUs"):
        left(hybrid(), kind="7")


def test_kinds_that_nothing_ranks_are_not_chosen_by_speed_or_number() -> None:
    unranked = two_kinds(hybrid(), "made")
    for kind in ("fast", "slow", "0", "1"):
        with pytest.raises(InputError) as caught:
            left(unranked, kind=kind)
        assert str(caught.value) == (
            f"kind {kind}: made has CPUs of 2 kinds (CPUs 0-3, CPUs 4-6) and does not tell which "
            "is faster: name the CPUs, as in --layout list:0-3"
        )
    assert left(restrict_to(unranked, unranked.pus[:3]), kind="fast") == [0, 1, 2]  # of one kind


def test_reserved_cores_are_whole_and_of_one_lgroup_after_the_other() -> None:
    found = [[pu.os for pu in reserve(SMT, cores)] for cores in (1, 2, 3)]
    assert found == [[0, 4], [0, 4, 2, 6], [0, 4, 1, 5, 2, 6]]
    shuffled = made([[[5], [6]], [[0], [3]], [[4], [1]]])
    found = [[pu.os for pu in reserve(shuffled, n)] for n in (1, 2, 3, 4)]
    assert found == [[0], [0, 1], [5, 0, 1], [5, 0, 3, 1]]
    with pytest.raises(InputError, match="made has 4 usable cores that are not excluded: reserve"):
        reserve(SMT, 4)


def test_copies_never_share_reserved_cores() -> None:
    placed = plan_placements(SMT, layout(reserve=1), 8, MemoryPolicy.LOCAL)
    assert placed.reserved == (0, 4)
    assert [p.cpu for p in placed.placements] == [1, 5, 2, 6, 3, 7, 1, 5]
    assert placed.warnings[0] == "8 copies share 6 usable PUs: 2 on 2 PUs, 1 on 4 PUs"
    wide = Layout("wide", "", CpuOrder.COMPACT, BindLevel.PACKAGE, reserve=1)
    assert plan_placements(SMT, wide, 1, MemoryPolicy.LOCAL).placements[0].cpus == (1, 5)


def test_reserve_costs_nothing_where_copies_do_not_run_anyway() -> None:
    found = apply_filters(SMT, layout(reserve=1, only=MachineParts(nodes=(1,))))
    assert [pu.os for pu in found.topology.pus] == [2, 6, 3, 7]
    assert [pu.os for pu in found.reserved] == [0, 4]
    # What is excluded is for nobody, the supervisor neither.
    found = apply_filters(SMT, layout(reserve=1, exclude=MachineParts(cpus=(0,))))
    assert [pu.os for pu in found.reserved] == [1, 5]
    assert [pu.os for pu in found.topology.pus] == [4, 2, 6, 3, 7]


def test_cpus_lgroups_and_cores_are_chosen_and_excluded() -> None:
    assert left(only=MachineParts(nodes=(1,))) == [2, 6, 3, 7]
    assert left(only=MachineParts(cpus=(0, 3, 4))) == [0, 4, 3]
    assert left(only=MachineParts(cpus=(0, 3, 4), nodes=(0,))) == [0, 4]
    assert left(exclude=MachineParts(cpus=(0,), nodes=(1,))) == [4, 1, 5]
    assert left(exclude=MachineParts(cores=(1, 2))) == [0, 4, 3, 7]


def test_ranks_count_anew_so_that_a_core_s_only_thread_left_is_its_first() -> None:
    found = assign_cpus(SMT, layout(CpuOrder.CORES, exclude=MachineParts(cpus=(0,))), 4)
    assert [slot[0].os for slot in found.slots] == [4, 1, 2, 3]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"only": MachineParts(nodes=(3,))}, "layout mine: made has no lgroups 3; it has 0-1"),
        ({"only": MachineParts(cpus=(1, 96, 97))}, "made has no CPUs 96-97; it has 0-7"),
        (
            {"exclude": MachineParts(cores=(9,))},
            "layout mine: exclude: made has no cores 9; it has 0-3",
        ),
        (
            {"exclude": MachineParts(nodes=(0, 1))},
            r"layout mine \(without lgroups 0-1\) leaves none of",
        ),
        (
            {"exclude": MachineParts(nodes=(0, 1)), "reserve": 1},
            "made has 0 usable cores that are not",
        ),
        (
            {"only": MachineParts(cpus=(0,)), "reserve": 1},
            r"\(CPUs 0, reserve 1\) leaves none of the 8",
        ),
    ],
)
def test_a_layout_of_another_machine_is_an_error(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        left(**more)


def test_the_command_line_changes_a_layout() -> None:
    base = load_layout("balanced")
    changed = override_layout(base, bind="core", smt=1, kind="fast", reserve=2)
    assert (changed.bind, changed.smt) == (BindLevel.CORE, 1)
    assert (changed.kind, changed.reserve) == ("fast", 2)
    assert changed.order is CpuOrder.BALANCED
    assert override_layout(base) == base
    assert override_layout(override_layout(base, reserve=2), reserve=0) == base
    unbound = override_layout(load_layout("list:0,1"), bind="none")
    assert (unbound.order, unbound.bind, unbound.text) == (CpuOrder.NONE, BindLevel.NONE, "")
    assert options(changed) == ["reserve 2", "kind fast", "smt 1"]


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("balanced", {"bind": "socket"}, "--bind socket: expected pu, core, llc, node, package"),
        ("balanced", {"smt": 0}, "--smt 0: expected the number of threads of a core to use, 1 or"),
        ("balanced", {"kind": "quick"}, "--kind quick: expected fast, slow, or a number"),
        ("balanced", {"kind": "²"}, "--kind ²: expected fast"),
        ("balanced", {"reserve": -1}, "--reserve -1: expected a number of cores, 0 to 65536"),
        ("none", {"bind": "core"}, "--bind core: layout none does not bind copies"),
        (
            "none",
            {"smt": 1, "reserve": 1},
            "layout none with reserve 1, smt 1: copies that are not",
        ),
        ("balanced", {"bind": "none", "smt": 1}, "layout balanced with smt 1: copies that are not"),
    ],
)
def test_options_that_mean_nothing_are_an_error(
    name: str, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        override_layout(load_layout(name), **more)
