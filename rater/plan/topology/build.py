"""From what a machine's description says of its parts to a `Topology`: home nodes, ranks, kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rater.plan.topology.model import PU, Details, Node, Topology, ranked
from rater.text import cpuset

_ORDINARY_MEMORY = (None, "DRAM")


@dataclass(frozen=True, slots=True)
class RawPU:
    """A PU and the indexes, each counted by type in tree order, of what it lies in."""

    os: int
    core: int | None
    package: int | None
    l3: int | None
    l2: int | None


@dataclass(frozen=True, slots=True)
class RawNode:
    """A NUMA node."""

    os: int
    cpus: int  # mask of OS numbers
    memory_bytes: int
    subtype: str | None


@dataclass(frozen=True, slots=True)
class RawKind:
    """CPUs of one kind, with what is known to rank it."""

    cpus: int  # mask of OS numbers
    forced_efficiency: int  # -1 when unknown
    infos: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RawDistances:
    """The NUMALatency matrix; `nodes` are OS numbers in its order."""

    nodes: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]


def build(
    pus: Sequence[RawPU],
    nodes: Sequence[RawNode],
    *,
    usable: int,
    allowed_nodes: int,
    source: str,
    kinds: Sequence[RawKind] = (),
    architecture: str = "",
    distances: RawDistances | None = None,
    is_this_system: bool = False,
    details: Details | None = None,
) -> Topology:
    """Return the topology of consistent parts: `pus` and `nodes` in logical order.

    `usable` and `allowed_nodes` are masks of OS numbers. A PU whose only nodes are
    forbidden has no home node: memory cannot come from there.
    """
    machine = cpuset.mask_of(pu.os for pu in pus)
    allowed = [node for node in nodes if allowed_nodes >> node.os & 1]
    taken = _default_nodes(allowed, machine)
    home: dict[int, int] = {}
    for node in taken:
        for cpu in cpuset.numbers_of(node.cpus):
            home.setdefault(cpu, node.os)
    efficiency = _efficiencies(kinds, architecture, machine)
    whole = ranked(_pus(pus, home, efficiency))
    default = {node.os for node in taken}
    return Topology(
        pus=whole if usable == machine else ranked([p for p in whole if usable >> p.os & 1]),
        nodes=tuple(
            Node(
                node.os,
                logical,
                cpuset.numbers_of(node.cpus),
                node.memory_bytes,
                node.subtype,
                default=node.os in default,
                allowed=bool(allowed_nodes >> node.os & 1),
            )
            for logical, node in enumerate(nodes)
        ),
        distances=distances.values if distances else None,
        distance_nodes=distances.nodes if distances else (),
        is_this_system=is_this_system,
        source=source,
        whole=() if usable == machine else whole,
        details=details or Details(),
    )


def _default_nodes(nodes: Sequence[RawNode], machine: int) -> list[RawNode]:
    """Return the nodes that "local" memory comes from, the first in the list before the others.

    The idea is that of hwloc's `hwloc_topology_get_default_nodeset`: in the order
    of OS numbers (the kernel numbers memory that came later, such as HBM or PMEM,
    later), ordinary memory first, a node counts when no node before it covers any
    of its CPUs. Nodes without CPUs never count.
    """
    ranked = sorted(nodes, key=lambda node: (node.subtype not in _ORDINARY_MEMORY, node.os))
    taken: dict[int, RawNode] = {}
    left = machine
    for may_overlap in (False, True):  # the second round is for CPUs that only a larger node holds
        for node in ranked:
            fits = bool(node.cpus & left) if may_overlap else node.cpus & left == node.cpus
            if node.cpus and fits and node.os not in taken:
                taken[node.os] = node
                left &= ~node.cpus
    return list(taken.values())


def _pus(pus: Sequence[RawPU], home: dict[int, int], efficiency: dict[int, int]) -> list[PU]:
    n_cores = 1 + max((pu.core for pu in pus if pu.core is not None), default=-1)
    n_l3 = 1 + max((pu.l3 for pu in pus if pu.l3 is not None), default=-1)
    found = []
    for logical, pu in enumerate(pus):
        core = pu.core if pu.core is not None else n_cores + logical
        llc = pu.l3 if pu.l3 is not None else None if pu.l2 is None else n_l3 + pu.l2
        kind = efficiency.get(pu.os, 0)
        found.append(PU(pu.os, logical, core, 0, home.get(pu.os), pu.package, llc, kind))
    return found


def _efficiencies(kinds: Sequence[RawKind], architecture: str, machine: int) -> dict[int, int]:
    """Return the efficiency rank of each CPU whose kind can be ranked, slowest 0.

    As hwloc ranks kinds: by the efficiency the operating system forces, else (not
    on ARM) by Intel's core type and then by frequency, base before maximum; each
    only when every kind has it, and only when no two kinds come out equal.
    """
    kinds = [kind for kind in kinds if kind.cpus & machine]
    if len(kinds) < 2:
        return {}
    values = [kind.forced_efficiency for kind in kinds]
    if min(values) < 0 or len(set(values)) < len(values):
        values = _speeds(kinds, arm=architecture.startswith(("arm", "aarch")))
    if len(set(values)) < len(values):
        return {}
    rank = {value: i for i, value in enumerate(sorted(values))}
    found: dict[int, int] = {}
    for kind, value in zip(kinds, values, strict=True):
        for cpu in cpuset.numbers_of(kind.cpus & machine):
            found.setdefault(cpu, rank[value])
    return found


def _speeds(kinds: Sequence[RawKind], *, arm: bool) -> list[int]:
    values = [0] * len(kinds)
    types = [{"IntelAtom": 1, "IntelCore": 2}.get(k.infos.get("CoreType", ""), 0) for k in kinds]
    if all(types) and not arm:
        values = [value << 20 for value in types]
    for name in ("FrequencyBaseMHz", "FrequencyMaxMHz"):
        text = [kind.infos.get(name, "") for kind in kinds]
        if all(t.isascii() and t.isdigit() and len(t) < 7 and int(t) for t in text):
            return [value + int(t) for value, t in zip(values, text, strict=True)]
    return values
