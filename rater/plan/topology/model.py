"""A machine as packages, NUMA nodes, last-level caches, cores and PUs.

The reader of hwloc's XML is `rater.plan.topology.xml`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property

from rater.groups import grouped


@dataclass(frozen=True, slots=True)
class PU:
    """One hardware thread that may be used."""

    os: int  # OS number, as in /sys/devices/system/cpu/cpuN
    logical: int  # hwloc logical index over all PUs of the machine
    core: int  # hwloc logical index of the core; without Core objects each PU is its own core
    rank: int  # position among the core's usable PUs by OS number: 0 is the first thread
    node: int | None  # OS number of the home NUMA node, None when no node holds it
    package: int | None  # hwloc logical index of the package
    llc: int | None  # logical index of the L3 (else the L2) above it; unique over the machine
    kind: int  # efficiency rank of the CPU kind, 0 is the slowest; 0 on homogeneous machines

    @property
    def domain(self) -> object:
        """What the PUs of one `Domain` have in common."""
        return self.node if self.node is not None else ("none", self.package)


def ranked(pus: Collection[PU]) -> tuple[PU, ...]:
    """Return PUs with ranks counted among these."""
    threads = grouped((pu.core, pu.os) for pu in pus)
    rank = {cpu: place for cpus in threads.values() for place, cpu in enumerate(sorted(cpus))}
    return tuple(pu if pu.rank == rank[pu.os] else replace(pu, rank=rank[pu.os]) for pu in pus)


@dataclass(frozen=True, slots=True)
class Node:
    """One NUMA node (lgroup)."""

    os: int
    logical: int
    cpus: tuple[int, ...]  # OS numbers of all PUs of its cpuset, usable or not, ascending
    memory_bytes: int  # 0 when unknown
    subtype: str | None  # "DRAM", "HBM", "MCDRAM", "NVM", ... or None
    default: bool  # ordinary memory: the node of its locality that "local" memory comes from
    allowed: bool = True  # False: a cpuset or the administrator forbids memory from it


@dataclass(frozen=True, slots=True)
class Domain:
    """Usable PUs with the same home node; PUs without a node form one domain a package."""

    node: int | None  # OS number of the home node
    package: int | None  # the package they share, None when they lie in several or in none
    pus: tuple[PU, ...]  # in logical order


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache: it serves `machine_pus[first : first + count]`."""

    level: int  # 1 is the nearest to the core
    type: str  # "unified" or "data"
    size_bytes: int  # 0 when unknown
    first: int  # logical index of its first PU
    count: int  # PUs


@dataclass(frozen=True, slots=True)
class HwlocGroup:
    """Something between machine and core that is no package or cache: a die, a book, a blade."""

    type: str  # "Die", or "Group" for what hwloc has no type for
    subtype: str | None  # "Book", "Drawer", "Cluster", ... or None
    of_memory: bool  # hwloc put it around CPUs only to hang a NUMA node on it
    first: int  # logical index of its first PU
    count: int  # PUs


@dataclass(frozen=True, slots=True)
class CpuKind:
    """CPUs of one kind in a machine that has several."""

    cpus: tuple[int, ...]  # OS numbers, ascending
    infos: tuple[tuple[str, str], ...]  # "CoreType", "FrequencyMaxMHz", "LinuxCapacity", ...


@dataclass(frozen=True, slots=True)
class Details:
    """What placement does not ask for and people do; all empty when not described."""

    cpu_models: tuple[str, ...] = ()  # each once, in the order of packages
    product: str | None = None  # maker and name of the whole machine
    architecture: str = ""  # as `uname -m` says
    has_cores: bool = False  # False: each PU was taken for a core of its own
    caches: tuple[Cache, ...] = ()
    groups: tuple[HwlocGroup, ...] = ()
    kinds: tuple[CpuKind, ...] = ()
    offline: tuple[int, ...] = ()  # OS numbers of CPUs that exist but have no PU
    forbidden: tuple[int, ...] = ()  # OS numbers of PUs that allowed_cpuset leaves out


@dataclass(frozen=True)
class Topology:
    """The usable part of a machine. `pus` is in logical order."""

    pus: tuple[PU, ...]
    nodes: tuple[Node, ...]  # in logical order, CPU-less and memory-only ones included
    distances: tuple[tuple[float, ...], ...] | None  # NUMALatency over `distance_nodes`
    distance_nodes: tuple[int, ...]  # OS numbers, in the order of the matrix
    is_this_system: bool  # False: from a file or a description; nothing can be bound
    source: str  # what a person calls it: "this machine", a path, a synthetic description
    # All PUs of the machine, the unusable included, with ranks counted over all of them;
    # empty when `pus` is the whole machine.
    whole: tuple[PU, ...] = ()
    details: Details = field(default=Details())

    @property
    def machine_pus(self) -> tuple[PU, ...]:
        """All PUs of the machine, usable or not, in logical order."""
        return self.whole or self.pus

    @cached_property
    def by_cpu(self) -> dict[int, PU]:
        """Usable PU by OS number."""
        return {pu.os: pu for pu in self.pus}

    @cached_property
    def by_node(self) -> dict[int, Node]:
        """Node by OS number."""
        return {node.os: node for node in self.nodes}

    @cached_property
    def unranked_kinds(self) -> tuple[tuple[int, ...], ...]:
        """Usable CPUs (OS numbers) by kind where there are several and none is known to be faster.

        Empty where there is one kind, and where each PU's `kind` tells its rank.
        """
        if len({pu.kind for pu in self.machine_pus}) > 1:
            return ()
        kinds = (tuple(c for c in kind.cpus if c in self.by_cpu) for kind in self.details.kinds)
        found = tuple(cpus for cpus in kinds if cpus)
        return found if len(found) > 1 else ()

    @cached_property
    def cores(self) -> tuple[tuple[PU, ...], ...]:
        """Usable PUs core by core; cores without a usable PU are left out."""
        return tuple(map(tuple, grouped((pu.core, pu) for pu in self.pus).values()))

    @cached_property
    def domains(self) -> tuple[Domain, ...]:
        """Lgroups with usable CPUs, in the order of their first PU."""
        found = []
        for pus in grouped((pu.domain, pu) for pu in self.pus).values():
            packages = {pu.package for pu in pus}
            package = packages.pop() if len(packages) == 1 else None
            found.append(Domain(pus[0].node, package, tuple(pus)))
        return tuple(found)

    def distance(self, start: int, end: int) -> float | None:
        """NUMALatency from node `start` to node `end` (OS numbers), None when not known."""
        if self.distances is None:
            return None
        try:
            row, column = self.distance_nodes.index(start), self.distance_nodes.index(end)
        except ValueError:
            return None
        return self.distances[row][column]
