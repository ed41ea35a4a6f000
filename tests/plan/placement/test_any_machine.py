"""What holds for orders and plans on any machine, and what is planned on 30 of them.

After a change that is meant: `python -m tests.plan.placement.test_any_machine` writes
`golden_plans.json` anew; read the difference before it is committed.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import pytest

from rater.plan.placement.layout import (
    EXPLICIT,
    NAMED_ORDERS,
    BindLevel,
    Counts,
    CpuOrder,
    Layout,
    MachineParts,
    load_layout,
    override_layout,
)
from rater.plan.placement.memory_policy import Memory
from rater.plan.placement.place import PlacementPlan, plan_placements
from rater.plan.placement.slots import PERMUTATIONS, distrib, slots_of
from rater.plan.placement.slots import scatter as in_scatter
from rater.plan.topology import (
    PU,
    RawKind,
    RawNode,
    RawPU,
    Topology,
    build_topology,
    merge_kinds,
)
from rater.record.run import MemoryPolicy, Placement
from rater.run.host.discover import own_environment, parse_synthetic
from rater.system.errors import InputError
from rater.text.cpuset import mask_of
from rater.text.values import to_dict
from tests.support.machines import generated, machine, machine_xml, real, real_machines
from tests.support.orderings import assign_cpus, numbers, scatter, sequence
from tests.support.orderings import layout as layout_with
from tests.support.places import MACHINES, needs_machines

DESCRIBED = (
    "node:4 pu:2",
    "pack:2 numa:2 core:3 pu:2",
    "node:18 core:4 pu:2",
    "nodes=7x5",
    "2 3 2",
)
THREADS = (2, 3, 4, 7, 16)
PLACED = [order for order in CpuOrder if order not in (CpuOrder.NONE, *EXPLICIT)]


# The reference of the notes on topologies, section 4.
def rr(seq: Any, keys: Any) -> Any:
    if not keys:
        return list(seq)
    g: Any = {}
    for p in seq:
        g.setdefault(keys[0](p), []).append(p)
    return [p for row in zip_longest(*(rr(v, keys[1:]) for v in g.values())) for p in row if p]


def reference(pus: Sequence[PU]) -> list[PU]:
    span: Any = {}
    tiers: Any = {}

    def dom(p: PU) -> object:
        return p.node if p.node is not None else ("none", p.package)

    for p in pus:
        span.setdefault(dom(p), set()).add(p.package)
        tiers.setdefault((p.rank, -p.kind), []).append(p)

    def top(p: PU) -> object:
        return p.package if len(span[dom(p)]) == 1 else ("dom", dom(p))

    keys = [top, dom, lambda p: p.package, lambda p: p.llc]
    return [p for tier in sorted(tiers) for p in rr(tiers[tier], keys)]


def packages_are_alike(topology: Topology) -> bool:
    """All lgroups are equal, and each package that has some of its own has equally many."""
    tops: dict[object, set[object]] = {}
    for domain in topology.domains:
        packages = {pu.package for pu in domain.pus}
        own = domain.pus[0].domain
        tops.setdefault(packages.pop() if len(packages) == 1 else ("domain", own), set()).add(own)
    return len(set(shapes(topology).values())) == 1 and len(set(map(len, tops.values()))) == 1


def shapes(topology: Topology) -> dict[object, frozenset[tuple[tuple[int, int], int]]]:
    """How many PUs of each rank and kind each domain has."""
    found: dict[object, Counter[tuple[int, int]]] = {}
    for pu in topology.pus:
        found.setdefault(pu.domain, Counter())[pu.rank, pu.kind] += 1
    return {domain: frozenset(tiers.items()) for domain, tiers in found.items()}


@pytest.mark.slow
def test_scatter_is_the_reference_where_packages_are_alike() -> None:
    compared = 0
    for topology in (*real_machines(), *map(parse_synthetic, DESCRIBED), *generated()):
        if packages_are_alike(topology):
            assert scatter(topology) == reference(topology.pus), topology.source
            compared += 1
    assert compared > 80


@needs_machines
def test_scatter_is_the_reference_on_every_real_machine() -> None:
    for topology in real_machines():
        assert scatter(topology) == reference(topology.pus), topology.source


def check_scatter(topology: Topology) -> None:
    """Equal lgroups differ by at most one copy at every prefix; cores first, fast ones first."""
    scattered = scatter(topology)
    shape = shapes(topology)
    alike: dict[object, list[object]] = {}
    for domain in shape:
        alike.setdefault(shape[domain], []).append(domain)
    counts = Counter(dict.fromkeys(shape, 0))
    for pu in scattered:
        counts[pu.domain] += 1
        same = [counts[domain] for domain in alike[shape[pu.domain]]]
        assert max(same) - min(same) <= 1, topology.source
    check_cores_first(topology, scattered)


def check_cores_first(topology: Topology, pus: Sequence[PU]) -> None:
    n_cores = len(topology.cores)
    assert len({pu.core for pu in pus[:n_cores]}) == n_cores, topology.source
    assert [pu.rank for pu in pus] == sorted(pu.rank for pu in pus), topology.source
    kinds = [pu.kind for pu in pus[:n_cores]]
    assert kinds == sorted(kinds, reverse=True), topology.source


@pytest.mark.parametrize("seed", range(12))
def test_equal_parts_get_equal_copies_where_every_core_has_a_clock_of_its_own(seed: int) -> None:
    dice = random.Random(seed)
    n_nodes, n_caches, n_cores = dice.randint(1, 3), dice.randint(1, 3), dice.randint(2, 8)
    everything = range(n_nodes * n_caches * n_cores)
    clocks = [dice.randint(5200, 5759) for _ in everything]
    topology = build_topology(
        [RawPU(os=cpu, core=cpu, package=None, l3=cpu // n_cores, l2=None) for cpu in everything],
        [
            RawNode(node, mask_of(range(node * width, (node + 1) * width)), 1 << 30, None)
            for width in [n_caches * n_cores]
            for node in range(n_nodes)
        ],
        usable=mask_of(everything),
        allowed_nodes=(1 << n_nodes) - 1,
        source=f"seed {seed}",
        kinds=merge_kinds(
            [
                RawKind(1 << cpu, -1, {"FrequencyMaxMHz": str(clock)})
                for cpu, clock in enumerate(clocks)
            ]
        ),
    )
    balanced = load_layout("balanced")
    for copies in range(1, len(everything) + 1):
        placed = plan_placements(topology, balanced, copies, MemoryPolicy.LOCAL).placements
        cpus = [placement.cpus[0] for placement in placed if placement.cpus]
        for width, parts in ((n_cores, n_nodes * n_caches), (n_cores * n_caches, n_nodes)):
            counts = Counter(cpu // width for cpu in cpus)
            each = [counts[part] for part in range(parts)]
            assert max(each) - min(each) <= 1, (copies, each)


def check_fill(topology: Topology, pus: Sequence[PU]) -> None:
    domains = [pu.domain for pu in pus]
    changes = sum(one != other for one, other in pairwise(domains))
    assert changes == len(set(domains)) - 1, topology.source
    for domain in set(domains):
        tiers = [(pu.rank, -pu.kind, pu.logical) for pu in pus if pu.domain == domain]
        assert tiers == sorted(tiers), topology.source


def check_orders(topology: Topology) -> None:
    for order in PERMUTATIONS:
        found = sequence(topology, order)
        assert sorted(pu.logical for pu in found) == [pu.logical for pu in topology.pus]
    os = numbers(sequence(topology, CpuOrder.OS))
    assert os == sorted(os)
    check_scatter(topology)
    check_cores_first(topology, sequence(topology, CpuOrder.CORES))
    check_fill(topology, sequence(topology, CpuOrder.FILL))
    spread = scatter(topology)
    for copies in range(1, len(spread) + 1, max(1, len(spread) // 12)):
        assigned = assign_cpus(topology, layout_with(CpuOrder.BALANCED), copies)
        wanted = sorted(spread[:copies], key=lambda pu: pu.logical)
        assert [slot[0] for slot in assigned.slots] == wanted, topology.source
        parts = distrib(topology, copies)
        assert len(parts) == copies
        assert tuple(pu for part in parts for pu in part) == topology.pus, topology.source


@pytest.mark.slow
def test_the_orders_hold_what_they_promise_on_any_machine() -> None:
    for topology in (*map(parse_synthetic, DESCRIBED), *generated()):
        check_orders(topology)


@needs_machines
def test_the_orders_hold_what_they_promise_on_every_real_machine() -> None:
    for topology in real_machines():
        check_orders(topology)


def any_layout(topology: Topology, seed: int) -> Layout:
    """A layout with options that the machine has, another one for each seed."""
    order = PLACED[seed % len(PLACED)]
    nodes = sorted({pu.node for pu in topology.pus if pu.node is not None})
    return layout_with(
        order,
        smt=(None, 1, 2)[seed % 3],
        kind=("", "", "fast", "slow")[seed % 4],
        reserve=min(seed % 3, len(topology.cores) - 1),
        only=MachineParts(nodes=tuple(nodes)) if seed % 5 == 1 else MachineParts(),
        exclude=MachineParts(cores=(topology.pus[-1].core,)) if seed % 7 == 1 else MachineParts(),
    )


def test_plans_keep_what_a_layout_asks_on_any_machine() -> None:
    placed_on = 0
    for seed, topology in enumerate(generated()):
        wanted = any_layout(topology, seed)
        copies = 1 + seed % (len(topology.pus) + len(topology.pus) // 2 + 1)
        try:
            placed = plan_placements(topology, wanted, copies, MemoryPolicy.LOCAL)
        except InputError as error:
            assert "leaves none of the" in str(error) or "reserve fewer" in str(error)
            continue
        placed_on += 1
        check_plan(topology, wanted, placed)
        if seed % 8 == 0:
            assert plan_placements(machine(seed), wanted, copies, MemoryPolicy.LOCAL) == placed
    assert placed_on > 150


def check_plan(topology: Topology, layout: Layout, placed: PlacementPlan) -> None:
    used = [cpu for placement in placed.placements for cpu in placement.cpus or ()]
    pus = [topology.by_cpu[cpu] for cpu in used]
    given = Counter(placement.cpu for placement in placed.placements)
    if len(placed.placements) <= placed.most:
        assert max(Counter(used).values()) == 1, topology.source
    elif layout.order is not CpuOrder.DISTRIB:
        assert len(given) == placed.most
    assert max(given.values()) - min(given.values()) <= 1, topology.source
    assert not set(used) & set(placed.reserved), topology.source
    whole = {pu.core for pu in topology.pus if pu.os in placed.reserved}
    assert len(whole) == layout.reserve, topology.source
    assert not whole & {pu.core for pu in pus}, topology.source
    assert not {pu.core for pu in pus} & set(layout.exclude.cores), topology.source
    if layout.smt is not None:
        assert max(Counter(pu.core for pu in set(pus)).values()) <= layout.smt
    if layout.kind:
        assert len({pu.kind for pu in pus}) == 1
    if layout.only.nodes:
        assert {pu.node for pu in pus} <= set(layout.only.nodes)


def test_counts_give_each_lgroup_its_copies_on_any_machine() -> None:
    for seed, topology in enumerate(generated()):
        first = topology.domains[0]
        if first.node is None:
            continue
        share = 1 + seed % 5
        copies = share + len(topology.domains) - 1
        counts = Counts(((first.node, share),), 1)
        order = PLACED[seed % len(PLACED)]
        slots = assign_cpus(topology, layout_with(order, counts=counts), copies).slots
        found = Counter(slot[0].domain for slot in slots)
        assert found.pop(first.node) == share, topology.source
        assert set(found.values()) <= {1}
        assert len(found) == len(topology.domains) - 1
        own = [slot for slot in slots if slot[0].domain == first.node]
        assert len({slot[0].os for slot in own}) == min(share, len(first.pus)), topology.source


@needs_machines
def test_distrib_is_hwloc_s_own_on_every_real_machine() -> None:
    for topology in real_machines():
        with loaded("from_xml_file", MACHINES / f"{topology.source}.xml") as hwloc:
            check_distrib(topology, hwloc)


def test_distrib_is_hwloc_s_own_on_described_and_generated_machines() -> None:
    for description in ("node:4 pu:2", "pack:2 numa:3 l3:2 core:2 pu:4"):
        with loaded("from_synthetic", description) as hwloc:
            check_distrib(parse_synthetic(description), hwloc)
    for seed, topology in enumerate(generated()[:60]):
        with loaded("from_xml_buffer", machine_xml(seed)) as hwloc:
            check_distrib(topology, hwloc)


def loaded(how: str, source: object) -> Any:
    with own_environment():
        pyhwloc = importlib.import_module("pyhwloc")  # 50 ms, and it changes the environment
    return getattr(pyhwloc, how)(source)


def check_distrib(topology: Topology, hwloc: Any) -> None:
    pus = len(topology.pus)
    for sets in sorted({*range(1, min(pus, 12) + 1), pus // 2 or 1, pus * 2 // 3 or 1, pus}):
        ours = [set(numbers(part)) for part in distrib(topology, sets)]
        assert ours == list(hwloc_distrib(hwloc, sets)), f"{topology.source}: {sets} sets"


def hwloc_distrib(hwloc: Any, sets: int) -> Iterator[set[int]]:
    bitmap = importlib.import_module("pyhwloc.bitmap").Bitmap
    low = importlib.import_module("pyhwloc.hwloc.core")
    found = (low.hwloc_cpuset_t * sets)()
    roots = (low.obj_t * 1)(hwloc.get_root_obj().native_handle)
    low.distrib(hwloc.native_handle, roots, 1, found, sets, 2**31 - 1, 0)
    return (bitmap.from_native_handle(one).to_sched_set() for one in found)


@pytest.mark.parametrize(
    "description", ["pack:16 numa:2 l3:4 core:4 pu:8", "nodes=1024x4", "nodes=1x4096"]
)
def test_4096_pus_are_all_given_out(description: str) -> None:
    topology = parse_synthetic(description)
    for order in PLACED:
        for copies in (4096, 2500):
            assigned = assign_cpus(topology, layout_with(order, smt=8), copies)
            assert len({slot[0].os for slot in assigned.slots}) == copies


def wide(topology: Topology, bind: BindLevel, cpu: int) -> set[int]:
    """What a copy that is given a CPU may run on, from the PUs one by one."""
    own_pu = topology.by_cpu[cpu]
    key: dict[BindLevel, Callable[[PU], object]] = {
        BindLevel.PU: lambda pu: pu.os,
        BindLevel.CORE: lambda pu: pu.core,
        BindLevel.LLC: lambda pu: pu.llc,
        BindLevel.NODE: lambda pu: pu.domain,
        BindLevel.PACKAGE: lambda pu: pu.package,
    }
    return {pu.os for pu in topology.pus if key[bind](pu) == key[bind](own_pu)}


def test_masks_are_the_whole_object_and_nothing_else_on_any_machine() -> None:
    bound = 0
    for seed, topology in enumerate(generated()):
        bind = [BindLevel.PU, BindLevel.CORE, BindLevel.LLC, BindLevel.NODE, BindLevel.PACKAGE][
            seed % 5
        ]
        order = PLACED[seed // 5 % len(PLACED)]
        threads = (1, 2, 3)[seed % 3]
        wanted = Layout(name="any", description="", order=order, bind=bind)
        copies = 1 + seed % max(1, len(topology.pus) // threads)
        try:
            placed = plan_placements(topology, wanted, copies, MemoryPolicy.LOCAL, threads)
        except InputError as error:
            assert f"names no {bind}" in str(error)  # not every machine has them
            continue
        bound += 1
        slots = assign_cpus(topology, wanted, copies, threads).slots
        for placement, slot in zip(placed.placements, slots, strict=True):
            masks = [wide(topology, bind, pu.os) for pu in slot]
            assert set(placement.cpus or ()) == set().union(*masks), topology.source
            assert placement.cpu == slot[0].os
    assert bound > 150


def test_copies_of_threads_have_cpus_of_their_own_while_there_are_enough_on_any_machine() -> None:
    for seed, topology in enumerate(generated()):
        threads = (2, 3, 4)[seed % 3]
        most = len(topology.pus) // threads
        order = PLACED[seed % len(PLACED)]
        if not most or order is CpuOrder.DISTRIB:  # its parts are as large as they come
            continue
        copies = 1 + seed % most
        slots = assign_cpus(topology, layout_with(order), copies, threads).slots
        used = [pu.os for slot in slots for pu in slot]
        assert len(used) == len(set(used)) == copies * threads, topology.source


def check_threads(topology: Topology, threads: int) -> None:
    """What must hold of copies of several threads on any machine."""
    pus = len(topology.pus)
    most = max(1, pus // threads)
    rooms = Counter(pu.domain for pu in topology.pus)
    inside = sum(count // threads for count in rooms.values())
    in_cores = Counter(core[0].domain for core in topology.cores)
    alone = sum(count // threads for count in in_cores.values())
    caches = Counter((core[0].domain, core[0].llc) for core in topology.cores)
    in_caches = sum(count // threads for count in caches.values())
    alike = len({pu.kind for pu in topology.pus}) == 1
    for copies in range(1, most + 1, max(1, most // 12)):
        placements = plan_placements(
            topology, layout_with(CpuOrder.BALANCED), copies, MemoryPolicy.LOCAL, threads
        ).placements
        about = (topology.source, copies, threads)
        given = [[topology.by_cpu[cpu] for cpu in placement.cpus or ()] for placement in placements]
        assert all(len(slot) == min(threads, pus) for slot in given), about
        assert len({pu.os for slot in given for pu in slot}) == sum(map(len, given)), about
        firsts = [
            topology.by_cpu[placement.cpu].logical
            for placement in placements
            if placement.cpu is not None
        ]
        assert firsts == sorted(set(firsts)), about
        assert firsts == [min(pu.logical for pu in slot) for slot in given], about
        if copies <= inside:
            assert all(len({pu.domain for pu in slot}) == 1 for slot in given), about
        if copies <= alone:
            assert all(len({pu.core for pu in slot}) == threads for slot in given), about
        if copies <= in_caches and alike:
            assert all(len({pu.llc for pu in slot}) == 1 for slot in given), about
    assert len(in_scatter(slots_of(topology, most, threads))) == most


def test_copies_of_threads_stay_together_on_any_machine() -> None:
    machines = (*map(parse_synthetic, DESCRIBED), *generated()[:80])
    for number, topology in enumerate(machines):
        check_threads(topology, THREADS[number % len(THREADS)])


@pytest.mark.slow
@needs_machines
def test_copies_of_threads_stay_together_on_every_real_machine() -> None:
    for topology in real_machines():
        for threads in THREADS:
            check_threads(topology, threads)


def test_what_a_user_writes_down_is_what_copies_get_on_any_machine() -> None:
    for seed, topology in enumerate(generated()):
        cpus = numbers(topology.pus)
        random.Random(seed).shuffle(cpus)
        cpus = cpus[: 1 + seed % len(cpus)]
        text = ",".join(map(str, cpus))
        listed = Layout(
            name=f"list:{text}", description="", order=CpuOrder.LIST, bind=BindLevel.PU, text=text
        )
        placements = plan_placements(topology, listed, 2 * len(cpus), MemoryPolicy.LOCAL).placements
        assert [placement.cpu for placement in placements] == cpus * 2, topology.source
        places = [seed % len(topology.pus), 0, seed % len(topology.pus)]
        text = f"N:{','.join(map(str, places))}"
        first = sorted(topology.pus, key=lambda pu: (pu.rank, pu.logical))
        again = Layout(
            name=f"expr:{text}", description="", order=CpuOrder.EXPR, bind=BindLevel.PU, text=text
        )
        placements = plan_placements(topology, again, 3, MemoryPolicy.LOCAL).placements
        assert [placement.cpu for placement in placements] == [
            first[place].os for place in places
        ], topology.source


GOLDEN = Path(__file__).with_name("golden_plans.json")
FIRST = 12  # CPUs that are written out
MADE = 12  # machines that nobody built: any clone has them


def asked() -> dict[str, tuple[Layout, Memory]]:
    """Every layout that binds, two with options, and other memory than local."""
    local = Memory(MemoryPolicy.LOCAL)
    layouts = {
        order.value: load_layout(order) for order in NAMED_ORDERS if order is not CpuOrder.NONE
    }
    balanced = layouts["balanced"]
    layouts["balanced, bind core, smt 1"] = override_layout(balanced, bind="core", smt=1)
    layouts["fill, bind node, reserve 2"] = override_layout(layouts["fill"], bind="node", reserve=2)
    return {name: (layout, local) for name, layout in layouts.items()} | {
        "balanced, mem bind": (balanced, Memory(MemoryPolicy.BIND)),
        "balanced, mem interleave": (balanced, Memory(MemoryPolicy.INTERLEAVE)),
    }


def plans(topology: Topology) -> dict[str, str]:
    """By layout: the first CPUs of a third as many copies as PUs, digests of whole plans."""
    pus = len(topology.pus)
    refusals: dict[str, str] = {}
    for name, (layout, memory) in asked().items():
        try:
            by_copies = {
                copies: plan_placements(topology, layout, copies, memory)
                for copies in (-(-pus // 3), pus, pus + pus // 2)
            }
        except InputError as error:  # CPUs without memory that could be bound
            refusals[name] = str(error)
            continue
        first = next(iter(by_copies.values())).placements[:FIRST]
        digests = [f"{copies}:{digest(found)}" for copies, found in by_copies.items()]
        refusals[name] = " ".join([*map(_cpus, first), "|", *digests])
    return refusals


def _cpus(placement: Placement) -> str:
    """`0`, or `0..7(4)` for a mask of four CPUs."""
    cpus = placement.cpus or ()
    return str(cpus[0]) if len(cpus) == 1 else f"{cpus[0]}..{cpus[-1]}({len(cpus)})"


def digest(placed: PlacementPlan) -> str:
    """Of all that a plan says: places, memory, reserved CPUs, warnings."""
    return hashlib.sha256(json.dumps(to_dict(placed)).encode()).hexdigest()[:12]


def all_plans() -> dict[str, dict[str, str]]:
    every = (*real_machines(), *generated()[:MADE])
    return {topology.source: plans(topology) for topology in every}


def golden() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(GOLDEN.read_text())
    return found


@needs_machines
@pytest.mark.parametrize("name", [it for it in sorted(golden()) if "machine " not in it])
def test_the_plans_for_a_real_machine_are_the_golden_ones(name: str) -> None:
    assert plans(real(name)) == golden()[name]


@pytest.mark.parametrize("seed", range(MADE))
def test_the_plans_for_a_made_machine_are_the_golden_ones(seed: int) -> None:
    assert plans(generated()[seed]) == golden()[f"machine {seed}"]


def test_there_are_golden_plans_for_all_machines_and_all_layouts() -> None:
    assert len(golden()) == 18 + MADE
    assert all(set(told) == set(asked()) for told in golden().values())


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(all_plans(), indent=1) + "\n")
