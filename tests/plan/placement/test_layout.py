"""Layouts: their keys, the CPUs that they leave, and where memory may come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rater.plan.placement.layout import (
    NAMED_ORDERS,
    BindLevel,
    Counts,
    CpuOrder,
    Layout,
    MachineParts,
    layout_names,
    load_layout,
    options,
    override_layout,
    parse_layout,
)
from rater.plan.placement.memory_policy import (
    Memory,
    MemorySupport,
    apply_memory_support,
    parse_memory,
)
from rater.plan.placement.offer import offer_cpus, reserve, restrict_to
from rater.plan.placement.place import plan_placements
from rater.plan.topology import RawDistances, RawNode, RawPU, Topology, build_topology
from rater.record.run import MemoryPolicy, Placement
from rater.run.host import discover as machine
from rater.system.errors import InputError
from rater.text.documents import MistakesError
from tests.support.machines import SMT, real, topology_of
from tests.support.orderings import assign_cpus
from tests.support.places import needs_machines
from tests.support.small_machines import hybrid, two_kinds


def test_the_built_in_layouts_load_and_say_what_they_do() -> None:
    assert set(layout_names()) == set(NAMED_ORDERS)
    for name in layout_names():
        layout = load_layout(name)
        assert layout.order == name
        assert layout.description
        assert layout.equals
    balanced, none = load_layout("balanced"), load_layout("none")
    assert (balanced.order, balanced.bind) == (CpuOrder.BALANCED, BindLevel.PU)
    assert (none.order, none.bind) == (CpuOrder.NONE, BindLevel.NONE)


def test_a_path_works_where_a_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text('order = "balanced"\nbind = "core"\n')
    typed = str(tmp_path / "mine.toml")
    assert load_layout(typed) == Layout(
        name=typed, description="", order=CpuOrder.BALANCED, bind=BindLevel.CORE
    )
    monkeypatch.chdir(tmp_path)
    assert load_layout("mine.toml") == Layout(
        name="mine.toml", description="", order=CpuOrder.BALANCED, bind=BindLevel.CORE
    )
    (tmp_path / "plain").write_text('order = "scatter"\n')
    assert load_layout("plain") == Layout(
        name="plain", description="", order=CpuOrder.SCATTER, bind=BindLevel.PU
    )
    (tmp_path / "none").write_text('order = "balanced"\n')  # a name wins over a file like it
    assert load_layout("none").order is CpuOrder.NONE
    assert load_layout("./none").order is CpuOrder.BALANCED


def test_a_layout_of_one_s_own_can_say_everything() -> None:
    text = """
description = "node 0 is slow"
equals = "nothing"
order = "cores"
bind = "core"
smt = 2
kind = "1"
reserve = 3
nodes = "0-2,8"
cpus = "0-63"
[exclude]
cpus = "5"
nodes = "1"
cores = "7,3"
[counts]
0 = 4
1-2 = 2
rest = 1
"""
    assert parse_layout(text, Path("own.toml")) == Layout(
        name="own",
        description="node 0 is slow",
        order=CpuOrder.CORES,
        bind=BindLevel.CORE,
        equals="nothing",
        smt=2,
        kind="1",
        reserve=3,
        only=MachineParts(cpus=tuple(range(64)), nodes=(0, 1, 2, 8)),
        exclude=MachineParts(cpus=(5,), nodes=(1,), cores=(3, 7)),
        counts=Counts(((0, 4), (1, 2), (2, 2)), 1),
    )


def test_cpus_can_be_written_out_as_a_layout_or_in_a_file() -> None:
    found = load_layout("list:0,8,1,9")
    assert (found.name, found.order, found.text) == ("list:0,8,1,9", CpuOrder.LIST, "0,8,1,9")
    found = parse_layout('order = "expr:M:scatter"', Path("own.toml"))
    assert (found.name, found.order, found.text) == ("own", CpuOrder.EXPR, "M:scatter")
    assert found.bind is BindLevel.PU


def test_every_mistake_is_said_at_once() -> None:
    text = """order = "list:0-3,0"
bind = "sock"
smt = 0
kind = "quick"
reserve = 1.5
nodes = "0-"
cpus = ""
cpu = "3"
[exclude]
cores = 3
sockets = "1"
[counts]
0 = 4
x = 3
0-2 = -1
"""
    with pytest.raises(MistakesError) as caught:
        parse_layout(text, Path("own.toml"))
    found = [(mistake.line, mistake.key) for mistake in caught.value.mistakes]
    keys = ["order", "bind", "smt", "kind", "reserve", "nodes", "cpus", "cpu"]
    wanted = [(line, key) for line, key in enumerate(keys, 1)]
    wanted += [(10, "exclude.cores"), (11, "exclude.sockets")]
    wanted += [(14, "counts.x"), (15, "counts.0-2"), (15, "counts.0-2")]
    assert found == wanted


def test_an_unknown_name_or_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'description = "\xe9"')
    for path in (tmp_path / "missing.toml", tmp_path / "latin.toml", tmp_path / "a\0b.toml"):
        with pytest.raises(InputError, match="cannot read the layout file"):
            load_layout(str(path))
    with pytest.raises(InputError, match="not a regular file but a directory"):
        load_layout(str(tmp_path) + "/")
    with pytest.raises(InputError, match="unknown layout 'balancd'; did you mean balanced"):
        load_layout("balancd")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('order = "balanced', "own.toml:1"),
        ('ordr = "balanced"', "own.toml:1: ordr: unknown key; did you mean order?"),
        ('description = "x"', "own.toml: order: missing"),
        ('\norder = "scater"', "own.toml:2: order: expected"),
        ("order = 3", "own.toml:1: order: expected"),
        ('order = "balanced"\nbind = "socket"', 'own.toml:2: bind: expected "pu" or "core"'),
        ('order = "balanced"\nbind = "none"', "own.toml:2: bind: "),
        ('order = "none"\nbind = "pu"', "copies are bound by both or by neither"),
        ('order = "none"\nsmt = 1', 'own.toml:2: smt: does not go with order = "none"'),
        ('order = "list"', 'expected "none" or "os"'),
        ('order = "expr:Q"', "own.toml:1: order: expr:Q: 'Q' is none of its parts"),
        ('order = "list:CPUS"', "expected a number at character 1 of 'CPUS'"),
        ('order = "list:0"\n[counts]\nrest = 1', 'does not go with order = "list:..."'),
        ('order = "os"\n[counts]\n0 = 0', "own.toml:2: counts: no NUMA node gets a copy"),
        ('order = "os"\nnodes = 3', "nodes: expected a string, got the number 3 (put it in quot"),
        ('order = "os"\nsmt = 99999999', "expected a whole number from 1 to 65536"),
        ('order = "balanced"\ndescription = 1', "own.toml:2: description: expected a string"),
    ],
)
def test_a_wrong_layout_is_an_error_that_names_file_line_and_key(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_layout(text, Path("own.toml"))
    assert message in str(caught.value)


def layout(order: CpuOrder = CpuOrder.COMPACT, **more: Any) -> Layout:
    return Layout(name="mine", description="", order=order, bind=BindLevel.PU, **more)


def left(topology: Topology = SMT, **more: Any) -> list[int]:
    return [pu.os for pu in offer_cpus(topology, layout(**more)).topology.pus]


def test_smt_keeps_the_first_threads_of_each_core() -> None:
    assert left(smt=1) == [0, 1, 2, 3]
    assert left(smt=2) == left(smt=64) == [0, 4, 1, 5, 2, 6, 3, 7]
    part = topology_of([[[0, 4], [1, 5]]], usable={4, 1, 5})
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
    shuffled = topology_of([[[5], [6]], [[0], [3]], [[4], [1]]])
    found = [[pu.os for pu in reserve(shuffled, number)] for number in (1, 2, 3, 4)]
    assert found == [[0], [0, 1], [5, 0, 1], [5, 0, 3, 1]]
    with pytest.raises(InputError, match="made has 4 usable cores that are not excluded: reserve"):
        reserve(SMT, 4)


def test_copies_never_share_reserved_cores() -> None:
    placed = plan_placements(SMT, layout(reserve=1), 8, MemoryPolicy.LOCAL)
    assert placed.reserved == (0, 4)
    assert [placement.cpu for placement in placed.placements] == [1, 5, 2, 6, 3, 7, 1, 5]
    assert placed.warnings[0] == "8 copies share 6 usable PUs: 2 on 2 PUs, 1 on 4 PUs"
    wide = Layout(
        name="wide", description="", order=CpuOrder.COMPACT, bind=BindLevel.PACKAGE, reserve=1
    )
    assert plan_placements(SMT, wide, 1, MemoryPolicy.LOCAL).placements[0].cpus == (1, 5)


def test_reserve_costs_nothing_where_copies_do_not_run_anyway() -> None:
    offer = offer_cpus(SMT, layout(reserve=1, only=MachineParts(nodes=(1,))))
    assert [pu.os for pu in offer.topology.pus] == [2, 6, 3, 7]
    assert [pu.os for pu in offer.reserved] == [0, 4]
    # What is excluded is for nobody, the supervisor neither.
    offer = offer_cpus(SMT, layout(reserve=1, exclude=MachineParts(cpus=(0,))))
    assert [pu.os for pu in offer.reserved] == [1, 5]
    assert [pu.os for pu in offer.topology.pus] == [4, 2, 6, 3, 7]


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
        ({"only": MachineParts(nodes=(3,))}, "layout mine: made has no NUMA nodes 3; it has 0-1"),
        ({"only": MachineParts(cpus=(1, 96, 97))}, "made has no CPUs 96-97; it has 0-7"),
        (
            {"exclude": MachineParts(cores=(9,))},
            "layout mine: exclude: made has no cores 9; it has 0-3",
        ),
        (
            {"exclude": MachineParts(nodes=(0, 1))},
            r"layout mine \(without NUMA nodes 0-1\) leaves none of",
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


BALANCED = Layout(name="balanced", description="", order=CpuOrder.BALANCED, bind=BindLevel.PU)
UNBOUND = Layout(name="none", description="", order=CpuOrder.NONE, bind=BindLevel.NONE)
FOUR = machine.parse_synthetic("nodes=4x2")
ALL = MemorySupport(frozenset(MemoryPolicy), preferred_many=True)
NONE_AT_ALL = MemorySupport(
    frozenset(), preferred_many=False, reason="[Errno 1] Operation not permitted"
)


def nodes(topology: Topology, text: str, copies: int = 4) -> list[tuple[int, ...]]:
    placed = plan_placements(topology, BALANCED, copies, parse_memory(text))
    return [placement.memory_nodes for placement in placed.placements]


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


def test_the_hbm_near_each_copy_can_be_asked_for() -> None:
    """Beside the CPUs of a node, or a node of its own that distances tell."""
    memory = [(0, 0b0011, None), (1, 0b1100, None), (2, 0b0011, "HBM"), (3, 0, "MCDRAM")]
    near = build_topology(
        [RawPU(os=cpu, core=None, package=None, l3=None, l2=None) for cpu in range(4)],
        [RawNode(node, cpus, 1 << 30, subtype) for node, cpus, subtype in memory],
        usable=0b1111,
        allowed_nodes=0b1111,
        source="made",
        distances=RawDistances(
            (0, 1, 2, 3), ((10, 20, 13, 23), (20, 10, 23, 13), (13, 23, 10, 30), (23, 13, 30, 10))
        ),
    )
    assert nodes(near, "bind:hbm") == [(2,), (2,), (3,), (3,)]
    assert nodes(near, "bind") == [(0,), (0,), (1,), (1,)]
    assert str(parse_memory("preferred:HBM")) == "preferred:hbm"
    with pytest.raises(InputError, match=r"names no node of HBM that may be .* bind:nodes=3$"):
        nodes(FOUR, "bind:hbm")
    with pytest.raises(InputError, match="expected interleave:nodes=LIST"):
        parse_memory("interleave:hbm")


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
        [RawPU(os=os, core=os, package=0, l3=None, l2=None) for os in range(2)],
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
        [RawPU(os=0, core=0, package=0, l3=None, l2=None)],
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
        assert [placement.memory_nodes for placement in placed.placements] == [found] * 2
    for policy in ("bind", "preferred"):
        with pytest.raises(InputError, match=f"no home node for --mem {policy}: use --mem local"):
            plan_placements(FOUR, UNBOUND, 2, parse_memory(policy))


def test_copies_on_the_same_cpu_have_one_of_the_named_nodes_each_in_turn() -> None:
    two_cpus = load_layout("list:0,1")
    placed = plan_placements(FOUR, two_cpus, 5, parse_memory("bind:each=2-3"))
    assert [(it.cpu, it.memory_nodes) for it in placed.placements] == [
        *((0, (2,)), (1, (2,)), (0, (3,)), (1, (3,)), (0, (2,)))
    ]
    assert str(parse_memory("bind:each=2-3")) == "bind:each=2-3"
    with pytest.raises(InputError, match="none share one"):
        plan_placements(FOUR, UNBOUND, 2, parse_memory("bind:each=2-3"))
    with pytest.raises(InputError, match="expected interleave:nodes=LIST"):
        parse_memory("interleave:each=1")


def planned(policy: MemoryPolicy, *nodes: int) -> Placement:
    return Placement(
        copy=0,
        cpus=None,
        cpu=None,
        core=None,
        llc=None,
        node=None,
        package=None,
        memory_policy=policy,
        memory_nodes=nodes,
    )


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
