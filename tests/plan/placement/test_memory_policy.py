"""Where memory may come from: what is asked for, what a machine has, what a kernel has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rater.errors import InputError
from rater.plan.placement.layout import BindLevel, CpuOrder, Layout
from rater.plan.placement.memory_policy import Memory, MemoryPolicy, MemorySupport, parse_memory
from rater.plan.placement.place import Placement, apply_memory_support, plan_placements
from rater.plan.topology import RawNode, RawPU, Topology, build_topology
from rater.run.host import discover as machine
from tests.support.machines import real
from tests.support.places import needs_machines

BALANCED = Layout("balanced", "", CpuOrder.BALANCED, BindLevel.PU)
UNBOUND = Layout("none", "", CpuOrder.NONE, BindLevel.NONE)
FOUR = machine.parse_synthetic("nodes=4x2")
ALL = MemorySupport(frozenset(MemoryPolicy), preferred_many=True)
NONE_AT_ALL = MemorySupport(
    frozenset(), preferred_many=False, reason="[Errno 1] Operation not permitted"
)


def nodes(topology: Topology, text: str, copies: int = 4) -> list[tuple[int, ...]]:
    placed = plan_placements(topology, BALANCED, copies, parse_memory(text))
    return [p.memory_nodes for p in placed.placements]


def test_a_policy_is_a_word_or_a_word_and_nodes() -> None:
    assert parse_memory("local") == Memory(MemoryPolicy.LOCAL)
    assert parse_memory(" bind:nodes=3,1-2 ") == Memory(MemoryPolicy.BIND, (1, 2, 3))
    assert [str(parse_memory(t)) for t in ("weighted", "preferred:nodes=0,2,3,2")] == [
        "weighted",
        "preferred:nodes=0,2-3",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("near", "expected none, local, bind, preferred, interleave, weighted, or nodes by number"),
        ("", "expected none, local"),
        ("local:nodes=1", "local has no nodes of its own: use --mem local"),
        ("none:nodes=1", "none has no nodes of its own"),
        ("bind:1", "expected bind:nodes=LIST, as in bind:nodes=2,3"),
        ("bind:cpus=1", "expected bind:nodes=LIST"),
        ("bind:", "expected bind:nodes=LIST"),
        ("interleave:nodes=", "names no node"),
        ("bind:nodes=1,", "--mem bind:nodes=1,: "),
        ("bind:nodes=3-1", "runs backwards"),
        ("bind:nodes=-1", "--mem bind:nodes=-1: "),
        ("bind:nodes=99999999999", "--mem bind:nodes=99999999999: "),
    ],
)
def test_what_is_no_policy_is_refused_with_what_is(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        parse_memory(text)
    assert said in str(error.value)


def test_each_policy_has_its_nodes() -> None:
    assert nodes(FOUR, "local") == [()] * 4
    assert nodes(FOUR, "none") == [()] * 4
    assert nodes(FOUR, "bind") == nodes(FOUR, "preferred") == [(0,), (1,), (2,), (3,)]
    assert nodes(FOUR, "interleave") == nodes(FOUR, "weighted") == [(0, 1, 2, 3)] * 4
    for policy in ("bind", "preferred", "interleave", "weighted"):
        assert nodes(FOUR, f"{policy}:nodes=3,2") == [(2, 3)] * 4


@needs_machines
def test_interleaving_is_over_ordinary_memory_unless_nodes_are_named() -> None:
    # Nodes 252-255 have no CPUs.
    assert nodes(real("power9-2n+4gpun-44c-smt4"), "interleave", 1) == [(0, 8)]
    # Each CPU has DRAM and MCDRAM, nodes 4-7; on the Xeon nodes 4 and 5 are PMEM.
    knl = real("knl7250-snc4-flat-8n-68c-smt4")
    assert nodes(knl, "interleave", 1) == [(0, 1, 2, 3)]
    assert nodes(knl, "bind:nodes=4-7", 1) == [(4, 5, 6, 7)]
    assert nodes(real("xeon-snc2-pmem-6n-56c-smt2"), "weighted", 1) == [(0, 1, 2, 3)]


def test_nodes_that_are_not_there_or_forbidden_are_refused_with_those_that_are() -> None:
    with pytest.raises(InputError, match="nodes=4x2 has no node 4,7; expected numbers out of 0, 1"):
        nodes(FOUR, "bind:nodes=1,4,7")
    topology = build_topology(
        [RawPU(os, os, 0, None, None) for os in range(2)],
        [RawNode(0, 1, 0, None), RawNode(1, 2, 0, None), RawNode(5, 0, 0, "NVM")],
        usable=0b11,
        allowed_nodes=0b100001,
        source="made",
    )
    with pytest.raises(InputError) as error:
        nodes(topology, "interleave:nodes=0-1", 1)
    assert str(error.value) == (
        "--mem interleave:nodes=0-1: made does not let rater use the memory of node 1; "
        "expected numbers out of 0, 5 (NVM, no CPUs)"
    )
    assert nodes(topology, "interleave", 1) == [(0,)]
    assert nodes(topology, "preferred:nodes=5", 1) == [(5,)]
    none = build_topology(
        [RawPU(0, 0, 0, None, None)],
        [RawNode(0, 1, 0, None)],
        usable=1,
        allowed_nodes=0,
        source="made",
    )
    with pytest.raises(InputError, match="--mem weighted: made names no NUMA node with CPUs and"):
        nodes(none, "weighted", 1)


def test_copies_that_are_not_bound_have_memory_of_named_nodes_only() -> None:
    for text, found in (("bind:nodes=2,3", (2, 3)), ("interleave", (0, 1, 2, 3)), ("local", ())):
        placed = plan_placements(FOUR, UNBOUND, 2, parse_memory(text))
        assert [p.memory_nodes for p in placed.placements] == [found] * 2
    for policy in ("bind", "preferred"):
        with pytest.raises(InputError, match=f"no home node for --mem {policy}: use --mem local"):
            plan_placements(FOUR, UNBOUND, 2, parse_memory(policy))


def planned(policy: MemoryPolicy, *nodes: int) -> Placement:
    return Placement(0, None, None, None, None, None, None, policy, nodes)


def test_without_weights_memory_is_interleaved_evenly_with_one_warning() -> None:
    plan = tuple(planned(policy, 1, 2) for policy in MemoryPolicy)
    assert apply_memory_support(plan, ALL) == (
        plan,
        (),
    )  # a kernel that has every policy changes nothing
    older = replace(ALL, policies=ALL.policies - {MemoryPolicy.WEIGHTED})
    found, warnings = apply_memory_support([planned(MemoryPolicy.WEIGHTED, 0, 1)] * 3, older)
    assert found == (planned(MemoryPolicy.INTERLEAVE, 0, 1),) * 3
    assert warnings == (
        "--mem weighted: this kernel has no weighted interleaving (Linux 6.9 and newer): memory "
        "is interleaved evenly",
    )


def test_a_kernel_that_can_prefer_one_node_prefers_the_first_with_a_warning() -> None:
    older = replace(ALL, preferred_many=False)
    found, warnings = apply_memory_support([planned(MemoryPolicy.PREFERRED, 2, 3)], older)
    assert found == (planned(MemoryPolicy.PREFERRED, 2),)
    assert warnings == (
        "--mem preferred: this kernel has no MPOL_PREFERRED_MANY (Linux 5.15 and newer): node 2 is "
        "preferred with MPOL_PREFERRED, and not 3",
    )
    assert apply_memory_support([planned(MemoryPolicy.PREFERRED, 2)], older)[1][0].endswith(
        "MPOL_PREFERRED"
    )


def test_where_no_policy_can_be_set_local_is_left_to_the_kernel_and_all_else_refused() -> None:
    found, [warning] = apply_memory_support([planned(MemoryPolicy.LOCAL)], NONE_AT_ALL)
    assert found == (planned(MemoryPolicy.NONE),)
    assert "no memory policy ([Errno 1] Operation not permitted): copies keep the one" in warning
    assert apply_memory_support([planned(MemoryPolicy.NONE)], NONE_AT_ALL)[1] == ()
    for policy in ("bind", "preferred", "interleave", "weighted"):
        with pytest.raises(InputError, match=f"--mem {policy}: the kernel does not let rater set"):
            apply_memory_support([planned(MemoryPolicy(policy), 0)], NONE_AT_ALL)
