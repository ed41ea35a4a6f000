"""Machines of a few CPUs."""

from __future__ import annotations

from msgspec.structs import replace

from rater.plan.topology import CpuKind, Details, RawKind, RawNode, RawPU, Topology, build_topology


def hybrid() -> Topology:
    """Two fast cores of two threads, three slow ones of one."""
    cores = [0, 0, 1, 1, 2, 3, 4]
    return build_topology(
        [RawPU(os=cpu, core=core, package=0, l3=None, l2=None) for cpu, core in enumerate(cores)],
        [RawNode(0, 0b1111111, 0, None)],
        usable=0b1111111,
        allowed_nodes=1,
        source="hybrid",
        kinds=[RawKind(0b1110000, 0), RawKind(0b0001111, 1)],
    )


def two_kinds(topology: Topology, source: str) -> Topology:
    """The same machine, its kinds described without anything that ranks them."""
    cpus = [tuple(pu.os for pu in topology.pus if pu.kind == kind) for kind in (1, 0)]
    return replace(
        topology,
        pus=tuple(replace(pu, kind=0) for pu in topology.pus),
        details=Details(kinds=tuple(CpuKind(own, ()) for own in cpus)),
        source=source,
    )


ONE = build_topology(
    [RawPU(os=cpu, core=None, package=None, l3=None, l2=None) for cpu in range(2)],
    [RawNode(0, 0b11, 0, None)],
    usable=0b11,
    allowed_nodes=1,
    source="this machine",
)
