"""Rotated plans: where copies meet their like, in words, and what would mix them."""

from __future__ import annotations

from collections import Counter

import pytest

from rater.plan.placement.layout import CpuOrder, Layout, load_layout, override_layout
from rater.plan.placement.memory_policy import MemoryPolicy
from rater.plan.placement.place import plan_placements
from rater.plan.schedule import Order, Plan, make_plan, remedies_for, rotation_warnings
from rater.plan.topology import Topology
from rater.run.host.discover import parse_synthetic
from tests.support.machines import generated, real
from tests.support.places import needs_machines

FOUR = "pack:1 numa:4 l3:1 core:6 pu:2"


def rotated(ring: int, copies: int, increment: int = 1) -> Plan:
    names = [f"b{number}" for number in range(ring)]
    return make_plan(names, copies, mode="rotated", order=Order.ROTATED, increment=increment)


def warned(
    machine: str | Topology, layout: str | Layout, copies: int, ring: int, increment: int = 1
) -> tuple[str, ...]:
    topology = parse_synthetic(machine) if isinstance(machine, str) else machine
    wanted = load_layout(layout) if isinstance(layout, str) else layout
    placements = plan_placements(topology, wanted, copies, MemoryPolicy.LOCAL).placements
    plan = rotated(ring, copies, increment)
    remedies = remedies_for(plan, placements, topology, wanted, 1)
    return rotation_warnings(plan, placements, topology, remedies)


def test_lgroups_that_run_one_benchmark_at_a_time_are_named_with_a_layout_that_mixes() -> None:
    # Copies 0, 4, 8, ... are all on lgroup 0.
    assert warned(FOUR, "scatter", 24, 4) == (
        "rotated: each of 4 lgroups runs only one of the 4 benchmarks at a time, the same in step "
        "on all of its 6 copies; --layout balanced mixes them",
    )
    assert warned(FOUR, "balanced", 24, 4) == ()


def test_pure_lgroups_with_different_benchmarks_are_not_said_to_run_the_same() -> None:
    # Lgroups 0 and 2 run b0 only, 1 and 3 b1 only.
    [said] = warned("pack:1 numa:4 l3:1 core:6 pu:1", "scatter", 24, 2)
    assert said.startswith("rotated: each of 4 lgroups runs only one of the 2 benchmarks")
    assert "same mix" not in said


def test_caches_that_run_one_benchmark_at_a_time_are_named_where_lgroups_are_mixed() -> None:
    [said] = warned("pack:1 l3:4 core:6 pu:1", "scatter", 24, 4)
    assert said.startswith("rotated: each of 4 LLCs runs only one of the 4 benchmarks at a time")


def test_a_stride_that_shares_a_factor_with_the_ring_halves_the_mix() -> None:
    # Lgroup 0 has copies 0, 4, 8, ...: starts 0, 4, 2 of 6.
    assert warned(FOUR, "scatter", 24, 6) == (
        "rotated: each of 4 lgroups runs no more than 3 of the 6 benchmarks at a time, in step on "
        "its 6 copies; --layout balanced mixes them",
    )


def test_siblings_of_a_core_that_run_in_step_are_named() -> None:
    # Siblings are 12 copies apart: a multiple of 2, 3 and 4.
    for ring in (2, 3, 4):
        assert warned("pack:1 core:12 pu:2", "cores", 24, ring) == (
            "rotated: on 12 of 12 cores copies run the same benchmark in step (their numbers "
            f"differ by multiples of the ring length {ring}); --layout balanced mixes them",
        )
    assert warned("pack:1 core:12 pu:2", "cores", 24, 5) == ()


def test_where_no_layout_mixes_a_ring_that_does_is_named() -> None:
    # Copies 0 and 16 are both on PU 0; 16 is a multiple of 4, not of 3.
    [said] = warned("pack:2 core:4 pu:2", "balanced", 32, 4)
    assert said.endswith("; a ring of 3 benchmarks mixes them")
    # The order of a list is the user's own.
    [said] = warned("nodes=4x4", "list:0,4,8,12,1,5,9,13,2,6,10,14,3,7,11,15", 16, 4)
    assert said.endswith("at a time, the same in step on all of its 4 copies; a ring of 3 "
                         "benchmarks mixes them")  # fmt: skip


def test_advice_that_does_not_work_is_left_out() -> None:
    # Two copies on each PU, 60 apart: a multiple of 2, 3, 4, 5 and 6.
    text = "list:" + ",".join(str(cpu) for cpu in range(60))
    machine = parse_synthetic("pack:1 core:60 pu:1")
    placements = plan_placements(machine, load_layout(text), 120, MemoryPolicy.LOCAL).placements
    plan = rotated(4, 120)
    remedies = remedies_for(plan, placements, machine, load_layout(text), 1)
    [said] = rotation_warnings(plan, placements, machine, remedies)
    assert said.endswith("(their numbers differ by multiples of the ring length 4)")


def test_a_layout_of_one_s_own_is_told_what_to_write() -> None:
    own = Layout("./own.toml", "", CpuOrder.SCATTER, load_layout("scatter").bind)
    [said] = warned(FOUR, own, 24, 4)
    assert said.endswith('; order = "balanced" in the layout mixes them')


def test_lgroups_that_run_the_same_mix_in_step_are_named_without_advice() -> None:
    assert warned("nodes=2x14", "balanced", 28, 14) == (
        "rotated: both lgroups run the same mix of benchmarks in step (14 copies each, a multiple "
        "of the ring length 14), never another one",
    )
    assert warned("pack:2 numa:1 l3:2 core:3 pu:1", "balanced", 12, 3) == (
        "rotated: all 4 LLCs and both lgroups run the same mix of benchmarks in step (3 and 6 "
        "copies each, a multiple of the ring length 3), never another one",
    )


def test_copies_that_may_run_anywhere_meet_nobody_in_particular() -> None:
    wide = override_layout(load_layout("scatter"), bind="package")
    assert warned("pack:1 numa:4 core:6 pu:2", wide, 24, 4) == ()
    assert warned(FOUR, "none", 24, 4) == ()


def test_an_increment_that_skips_benchmarks_is_named() -> None:
    [said] = warned("nodes=1x1", "balanced", 1, 4, increment=2)
    assert said == (
        "--increment 2 shares a factor with the ring of 4 benchmarks: each copy runs only 2 of "
        "them, several times a round"
    )


@needs_machines
@pytest.mark.parametrize(
    ("name", "layout", "copies", "ring", "each"),
    [("epyc9555", "scatter", 120, 8, "8 lgroups"), ("xeon-snc2", "os", 56, 4, "4 lgroups")],
)
def test_aliasing_on_real_machines_is_named(
    name: str, layout: str, copies: int, ring: int, each: str
) -> None:
    [said] = warned(real(name), layout, copies, ring)
    assert said.startswith(f"rotated: each of {each} runs only one of the {ring} benchmarks")
    assert said.endswith("; --layout balanced mixes them")


def test_no_lgroup_of_one_benchmark_goes_unnamed_on_any_machine() -> None:
    named = 0
    for seed, topology in enumerate(generated()[:120]):
        layout = load_layout(("scatter", "os", "cores", "fill", "balanced")[seed % 5])
        copies, ring = len(topology.pus), 2 + seed % 7
        found = plan_placements(topology, layout, copies, MemoryPolicy.LOCAL).placements
        starts: dict[int, Counter[int]] = {}
        for p in found:
            if p.node is not None:
                starts.setdefault(p.node, Counter())[p.copy % ring] += 1
        pure = any(len(s) == 1 and s.total() > 1 for s in starts.values())
        said = rotation_warnings(rotated(ring, copies), found, topology)
        if pure:
            named += 1
            assert any("in step" in text and "lgroup" in text for text in said), topology.source
        if said and "all" in said[0] and "same mix" in said[0]:
            assert not pure, topology.source
    assert named > 5
