"""A machine as its screens and its JSON see it: what belongs to which lgroup, core and cache."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from rater.plan.topology.lgroup_memory import LgroupMemory
from rater.plan.topology.model import PU, CpuKind, Node, Topology


@dataclass(frozen=True)
class TopoView:
    """A machine and, when it is this one, the memory of its lgroups now (by OS number)."""

    topology: Topology
    now: Mapping[int, LgroupMemory] = field(default_factory=dict)

    @cached_property
    def cores(self) -> dict[int, tuple[PU, ...]]:
        """All PUs by core, usable or not."""
        groups: dict[int, list[PU]] = defaultdict(list)
        for pu in self.topology.machine_pus:
            groups[pu.core].append(pu)
        return {core: tuple(pus) for core, pus in groups.items()}

    @cached_property
    def pus_of(self) -> dict[int | None, tuple[PU, ...]]:
        """All PUs by the node they belong to, None for those in no node.

        A node whose memory is forbidden is nobody's home but still has its CPUs.
        """
        forbidden = {
            cpu: node.os for node in self.topology.nodes if not node.allowed for cpu in node.cpus
        }
        groups: dict[int | None, list[PU]] = defaultdict(list)
        for pu in self.topology.machine_pus:
            home = pu.node if pu.node is not None else forbidden.get(pu.os)
            groups[home].append(pu)
        return {node: tuple(pus) for node, pus in groups.items()}

    @cached_property
    def llc_sizes(self) -> dict[int, int]:
        """Bytes of each last-level cache; 0 when not known."""
        pus = self.topology.machine_pus
        sizes = {pu.llc: 0 for pu in pus if pu.llc is not None}
        for level in (2, 3):  # an L3 is the last level where there is one
            for cache in self.topology.details.caches:
                llc = pus[cache.first].llc if cache.level == level and cache.count else None
                if llc is not None:
                    sizes[llc] = cache.size_bytes
        return sizes

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes by OS number."""
        return tuple(sorted(self.topology.nodes, key=lambda node: node.os))

    def memory_bytes(self, node: Node) -> int:
        """Return the installed memory of a node, 0 when not known."""
        now = self.now.get(node.os)
        return node.memory_bytes if now is None else now.total_bytes

    def kept_out(self) -> list[tuple[tuple[int, ...], str]]:
        """Return CPUs that cannot be used, by reason."""
        topology, details = self.topology, self.topology.details
        usable = set(topology.by_cpu) | set(details.forbidden)
        rest = tuple(sorted(pu.os for pu in topology.machine_pus if pu.os not in usable))
        here = topology.is_this_system
        found = [
            (details.offline, "offline" if here else "offline when the file was made"),
            (details.forbidden, "not allowed by a cpuset (cgroup, container, batch system)"),
            (rest, "not in the affinity of this process (taskset, or a parent that bound it)"),
        ]
        return [(cpus, why) for cpus, why in found if cpus]


def siblings(view: TopoView) -> Counter[tuple[int, ...]]:
    """Count cores by what their PUs' OS numbers are above the lowest of them."""
    found: Counter[tuple[int, ...]] = Counter()
    for pus in view.cores.values():
        numbers = sorted(pu.os for pu in pus)
        found[tuple(n - numbers[0] for n in numbers)] += 1
    return found


def kind_rank(view: TopoView, kind: CpuKind) -> int | None:
    """Return the rank of a kind among all, None when its CPUs have no common one or none has."""
    if view.topology.unranked_kinds:
        return None
    members = set(kind.cpus)
    ranks = {pu.kind for pu in view.topology.machine_pus if pu.os in members}
    return ranks.pop() if len(ranks) == 1 else None


def packages_of(pus: Iterable[PU]) -> list[int]:
    """Return the packages of some PUs, ascending."""
    return sorted({pu.package for pu in pus if pu.package is not None})
