"""`--mem`: where the memory of copies may come from, on which nodes, and what the kernel can do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.topology import PU, Node, Topology
from rater.record.run import MemoryPolicy, Placement
from rater.system.errors import InputError
from rater.text import cpuset
from rater.text.values import truncate_list

AT_HOME = (
    MemoryPolicy.BIND,
    MemoryPolicy.PREFERRED,
)  # on the copy's own node unless nodes are named
_NODES, _EACH = "nodes", "each"
_HBM, _HBM_SUBTYPES = "hbm", ("HBM", "MCDRAM")
SPREAD = (
    MemoryPolicy.INTERLEAVE,
    MemoryPolicy.WEIGHTED,
)  # over all ordinary nodes unless nodes are named


class Memory(Struct, frozen=True):
    """A value of `--mem`."""

    policy: MemoryPolicy
    nodes: tuple[int, ...] | None = None  # OS numbers, ascending; None for those of the policy
    hbm: bool = False  # from the node of HBM near each copy
    each: bool = False  # copies on the same CPUs have one node each, in turn

    def __str__(self) -> str:
        if self.hbm:
            return f"{self.policy}:{_HBM}"
        if self.nodes is None:
            return str(self.policy)
        return f"{self.policy}:{_EACH if self.each else _NODES}={cpuset.format_list(self.nodes)}"


class MemorySupport(Struct, frozen=True):
    """What the kernel lets a thread of this process set."""

    policies: frozenset[MemoryPolicy]
    preferred_many: bool  # whether several nodes can be preferred (from Linux 5.15 on), or one
    reason: str = ""  # the kernel's error for the first policy that it refuses


def parse_memory(text: str) -> Memory:
    """Return what `--mem POLICY`, `POLICY:nodes=2,3` or `POLICY:each=2,3` asks for.

    Raises `InputError`.
    """
    word, colon, rest = text.strip().partition(":")
    if word not in list(MemoryPolicy):
        raise InputError(
            f"--mem {text}: expected {', '.join(MemoryPolicy)}, or nodes by number as in "
            "bind:nodes=2,3, or bind:hbm"
        )
    policy = MemoryPolicy(word)
    if not colon:
        return Memory(policy)
    if policy not in (*AT_HOME, *SPREAD):
        raise InputError(
            f"--mem {text}: {policy} has no nodes of its own: use --mem {policy}, or "
            f"{', '.join((*AT_HOME, *SPREAD))} with nodes"
        )
    if rest.strip().lower() == _HBM and policy in AT_HOME:
        return Memory(policy, hbm=True)
    name, equals, numbers = rest.partition("=")
    is_each = name.strip() == _EACH and policy in AT_HOME
    if not equals or not (is_each or name.strip() == _NODES):
        raise InputError(f"--mem {text}: expected {policy}:nodes=LIST, as in {policy}:nodes=2,3")
    try:
        nodes = tuple(sorted(cpuset.parse_set(numbers)))
    except ValueError as error:
        raise InputError(f"--mem {text}: {error}") from error
    if not nodes:
        raise InputError(f"--mem {text}: names no node; expected numbers as in {policy}:nodes=2,3")
    return Memory(policy, nodes, each=is_each)


def named_nodes(topology: Topology, memory: Memory) -> tuple[int, ...]:
    """Return the nodes that a policy has whatever the copy: those named, else by the policy.

    Empty for local memory and for policies of a copy's own node. Interleaving goes over
    ordinary memory beside CPUs: HBM, PMEM and CPU-less nodes only by name. Raises
    `InputError` for nodes that the machine does not have or that are forbidden here.
    """
    if memory.nodes is None:
        if memory.policy not in SPREAD:
            return ()
        nodes = ordinary_nodes(topology)
        if not nodes:
            raise InputError(
                f"--mem {memory}: {topology.source} names no NUMA node with CPUs and memory to "
                f"use: name nodes as in {memory.policy}:nodes=0, or use --mem local"
            )
        return nodes
    by_node = topology.by_node
    _refuse(
        topology,
        memory,
        [number for number in memory.nodes if number not in by_node],
        "has no node",
    )
    bare = [number for number in memory.nodes if by_node[number].lacks_memory]
    _refuse(topology, memory, bare, "has no memory in node")
    forbidden = [number for number in memory.nodes if not by_node[number].allowed]
    _refuse(topology, memory, forbidden, "does not let rater use the memory of node")
    return memory.nodes


def ordinary_nodes(topology: Topology) -> tuple[int, ...]:
    """Return the nodes with ordinary memory beside CPUs that may be used, ascending."""
    nodes = (node for node in topology.nodes if node.default and node.gives_memory)
    return tuple(sorted(node.os for node in nodes if node.cpus))


def home_nodes(topology: Topology, pus: Iterable[PU], memory: Memory) -> dict[int, int]:
    """Return the node of memory by PU: home, else the nearest that the distances tell.

    Raises `InputError` for PUs that have neither, and where HBM is asked for and there is none.
    """
    home_by_cpu: dict[int, int] = {}
    homeless: list[int] = []
    candidates = [
        node for node in topology.nodes if node.gives_memory and (node.default or memory.hbm)
    ]
    if memory.hbm:
        candidates = [node for node in candidates if node.subtype in _HBM_SUBTYPES]
        if not candidates:
            raise InputError(
                f"--mem {memory}: {topology.source} names no node of HBM that may be used: name "
                f"nodes as in {memory.policy}:nodes={max(node.os for node in topology.nodes)}"
            )
    used_pus = tuple(dict.fromkeys(pus))
    if memory.policy is MemoryPolicy.BIND and not memory.hbm:
        _refuse_bare_nodes(topology, memory, used_pus)
    remote = Counter[int]()  # CPUs that a node gives memory to though it is not theirs
    for pu in used_pus:
        node = pu.node
        if memory.hbm or node is None:
            node = _nearest_node(topology, pu.os, candidates, remote)
        if node is None:
            homeless.append(pu.os)
        else:
            home_by_cpu[pu.os] = node
    if homeless:
        raise InputError(
            f"--mem {memory}: CPUs {cpuset.format_list(homeless)} of {topology.source} belong to "
            "no NUMA node with memory, and no distances tell which is nearest: use --mem local, or "
            "copies and a layout that leave these CPUs out"
        )
    return home_by_cpu


def _refuse_bare_nodes(topology: Topology, memory: Memory, pus: Iterable[PU]) -> None:
    """Refuse memory bound to the own node of CPUs whose node has none: the kernel cannot do it."""
    bare = {pu.os: pu.bare_node for pu in pus if pu.bare_node is not None}
    if not bare:
        return
    nodes = sorted(set(bare.values()))
    named, have, such = ("nodes", "have", "those") if len(nodes) > 1 else ("node", "has", "it")
    others = cpuset.format_list(ordinary_nodes(topology)) or "0"
    raise InputError(
        f"--mem {memory}: {named} {cpuset.format_list(nodes)} of {topology.source} {have} no "
        f"memory (CPUs {cpuset.format_list(bare)}), so copies there cannot be bound to {such}: "
        f"use --mem local or preferred (their memory is remote), --mem {memory.policy}:nodes="
        f"{others}, or copies and a layout that leave these CPUs out"
    )


def _nearest_node(
    topology: Topology, cpu: int, candidates: Sequence[Node], remote: Counter[int]
) -> int | None:
    """Return the node of memory nearest to a CPU; of equally near ones that with least to do."""
    holding = [
        (0.0, remote[node.os], node.logical, node.os) for node in candidates if cpu in node.cpus
    ]
    distances = holding or [
        (distance, remote[node.os], node.logical, node.os)
        for near in topology.nodes
        if cpu in near.cpus
        for node in candidates
        if (distance := topology.distance(near.os, node.os)) is not None
    ]
    if not distances:
        return None
    nearest = min(distances)[-1]
    remote[nearest] += 1
    return nearest


def apply_memory_support(
    placements: Sequence[Placement], support: MemorySupport
) -> tuple[tuple[Placement, ...], tuple[str, ...]]:
    """Return the placements with memory policies that this kernel has, and warnings of the change.

    Raises `InputError` for a policy that it does not have and that nothing stands in for.
    """
    adapted, warnings = [], dict[str, None]()
    for placement in placements:
        policy, nodes = placement.memory_policy, placement.memory_nodes
        takes_one_node = policy is MemoryPolicy.PREFERRED and not support.preferred_many
        if takes_one_node and policy in support.policies:
            several = f", and not {cpuset.format_list(nodes[1:])}" if nodes[1:] else ""
            warnings[
                "--mem preferred: this kernel has no MPOL_PREFERRED_MANY (Linux 5.15 and newer): "
                f"node {nodes[0]} is preferred with MPOL_PREFERRED{several}"
            ] = None
            nodes = nodes[:1]
        elif policy is MemoryPolicy.NONE or policy in support.policies:
            pass
        elif policy is MemoryPolicy.LOCAL:
            warnings[
                f"the kernel lets rater set no memory policy ({support.reason}): copies keep the "
                "one that rater was started with, which is local memory unless somebody changed it"
            ] = None
            policy, nodes = MemoryPolicy.NONE, ()
        elif policy is MemoryPolicy.WEIGHTED and MemoryPolicy.INTERLEAVE in support.policies:
            warnings[
                "--mem weighted: this kernel has no weighted interleaving (Linux 6.9 and newer): "
                "memory is interleaved evenly"
            ] = None
            policy = MemoryPolicy.INTERLEAVE
        else:
            raise InputError(
                f"--mem {policy}: the kernel does not let rater set it ({support.reason}): use "
                "--mem none; a container gets memory policies with the capability SYS_NICE"
            )
        adapted.append(replace(placement, memory_policy=policy, memory_nodes=nodes))
    return tuple(adapted), tuple(warnings)


def _refuse(topology: Topology, memory: Memory, numbers: Iterable[int], reason: str) -> None:
    listed = cpuset.format_list(numbers)
    if not listed:
        return
    nodes = []
    for node in sorted(topology.nodes, key=lambda node: node.os):
        if node.gives_memory:
            kind = node.subtype or ("" if node.default else "extra memory")
            marks = [kind] if kind and kind != "DRAM" else []
            marks += [] if node.cpus else ["no CPUs"]
            nodes.append(f"{node.os}{f' ({", ".join(marks)})' if marks else ''}")
    raise InputError(
        f"--mem {memory}: {topology.source} {reason} {listed}; expected numbers out of "
        f"{truncate_list(nodes, 20) or 'none'}"
    )
