"""A machine as packages, NUMA nodes, caches, cores and PUs, from what describes it; pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from rater.system.errors import InputError
from rater.system.patterns import compile_later
from rater.text import cpuset
from rater.text.values import group_by_key

# The reader of hwloc's XML is `rater.plan.hwloc_xml`.


class PU(Struct, frozen=True, kw_only=True):
    """One hardware thread that may be used."""

    os: int  # OS number, as in /sys/devices/system/cpu/cpuN
    logical: int  # hwloc logical index over all PUs of the machine
    core: int  # hwloc logical index of the core; without Core objects each PU is its own core
    rank: int  # position among the core's usable PUs by OS number: 0 is the first thread
    node: int | None  # OS number of the home NUMA node, None when no node holds it
    package: int | None  # hwloc logical index of the package
    llc: int | None  # logical index of the L3 (else the L2) above it; unique over the machine
    kind: int  # efficiency rank of the CPU kind, 0 is the slowest; 0 on homogeneous machines
    bare_node: int | None = None  # OS number of the node without memory that holds it, if any

    @property
    def domain(self) -> object:
        """What the PUs of one `Domain` have in common."""
        if self.node is not None:
            return self.node
        return ("none", self.package, self.bare_node)


def ranked(pus: Collection[PU]) -> tuple[PU, ...]:
    """Return PUs with ranks counted among these."""
    threads = group_by_key((pu.core, pu.os) for pu in pus)
    rank = {cpu: place for cpus in threads.values() for place, cpu in enumerate(sorted(cpus))}
    return tuple(pu if pu.rank == rank[pu.os] else replace(pu, rank=rank[pu.os]) for pu in pus)


class Node(Struct, frozen=True, kw_only=True):
    """One NUMA node (lgroup)."""

    os: int
    logical: int
    cpus: tuple[int, ...]  # OS numbers of all PUs of its cpuset, usable or not, ascending
    memory_bytes: int | None  # 0: it has none; None: not known
    subtype: str | None  # "DRAM", "HBM", "MCDRAM", "NVM", ... or None
    default: bool  # ordinary memory: the node of its locality that "local" memory comes from
    allowed: bool = True  # False: a cpuset or the administrator forbids memory from it

    @property
    def lacks_memory(self) -> bool:
        """Whether it is known to have no memory: the kernel refuses every policy that names it."""
        return self.memory_bytes == 0

    @property
    def gives_memory(self) -> bool:
        """Whether memory can come from it, as far as is known."""
        return self.allowed and not self.lacks_memory


class Domain(Struct, frozen=True):
    """Usable PUs with the same home node.

    PUs without one form a domain for each package and each node without memory.
    """

    node: int | None  # OS number of the home node
    pus: tuple[PU, ...]  # in logical order


class Cache(Struct, frozen=True, kw_only=True):
    """One cache: it serves `machine_pus[first : first + count]`."""

    level: int  # 1 is the nearest to the core
    type: str  # "unified" or "data"
    size_bytes: int  # 0 when unknown
    first: int  # logical index of its first PU
    count: int  # PUs


class HwlocGroup(Struct, frozen=True, kw_only=True):
    """Something between machine and core that is no package or cache: a die, a book, a blade."""

    type: str  # "Die", or "Group" for what hwloc has no type for
    subtype: str | None  # "Book", "Drawer", "Cluster", ... or None
    of_memory: bool  # hwloc put it around CPUs only to hang a NUMA node on it
    first: int  # logical index of its first PU
    count: int  # PUs


class CpuKind(Struct, frozen=True):
    """CPUs of one kind in a machine that has several."""

    cpus: tuple[int, ...]  # OS numbers, ascending
    infos: tuple[tuple[str, str], ...]  # "CoreType", "FrequencyMaxMHz", "LinuxCapacity", ...


class Details(Struct, frozen=True, kw_only=True):
    """What placement does not ask for and people do; all empty when not described."""

    cpu_models: tuple[str, ...] = ()  # each once, in the order of packages
    product: str | None = None  # maker and name of the whole machine
    architecture: str = ""  # as `uname -m` says
    has_cores: bool = False  # False: each PU was taken for a core of its own
    caches: tuple[Cache, ...] = ()
    groups: tuple[HwlocGroup, ...] = ()
    kinds: tuple[CpuKind, ...] = ()
    has_kinds: bool = False  # False: nothing tells whether its CPUs are of one kind
    offline: tuple[int, ...] = ()  # OS numbers of CPUs that exist but have no PU
    forbidden: tuple[int, ...] = ()  # OS numbers of PUs that allowed_cpuset leaves out


class Topology(Struct, frozen=True, dict=True, kw_only=True):
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

    def with_cpus(self, cpus: Collection[int]) -> Topology:
        """Return the same with these CPUs as well, where the cpuset of this process has them.

        Its affinity (taskset, isolcpus) is no limit: copies may be bound to others.
        """
        may = set(cpus) - self.by_cpu.keys() - set(self.details.forbidden)
        more = [pu for pu in self.machine_pus if pu.os in may] if self.is_this_system else []
        pus = sorted([*self.pus, *more], key=lambda pu: pu.logical)
        return replace(self, pus=ranked(pus)) if more else self

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
        kinds = (
            tuple(cpu for cpu in kind.cpus if cpu in self.by_cpu) for kind in self.details.kinds
        )
        usable_kinds = tuple(cpus for cpus in kinds if cpus)
        return usable_kinds if len(usable_kinds) > 1 else ()

    @cached_property
    def cores(self) -> tuple[tuple[PU, ...], ...]:
        """Usable PUs core by core; cores without a usable PU are left out."""
        return tuple(map(tuple, group_by_key((pu.core, pu) for pu in self.pus).values()))

    @cached_property
    def domains(self) -> tuple[Domain, ...]:
        """Lgroups with usable CPUs, in the order of their first PU."""
        groups = group_by_key((pu.domain, pu) for pu in self.pus)
        return tuple(Domain(pus[0].node, tuple(pus)) for pus in groups.values())

    def distance(self, start: int, end: int) -> float | None:
        """NUMALatency from node `start` to node `end` (OS numbers), None when not known."""
        if self.distances is None:
            return None
        try:
            row, column = self.distance_nodes.index(start), self.distance_nodes.index(end)
        except ValueError:
            return None
        return self.distances[row][column]


# -- From what a machine's description says of its parts to a `Topology`: home nodes, ranks, kinds -

_ORDINARY_MEMORY = (None, "DRAM")


class RawPU(Struct, frozen=True, kw_only=True):
    """A PU and the indexes, each counted by type in tree order, of what it lies in."""

    os: int
    core: int | None
    package: int | None
    l3: int | None
    l2: int | None


class RawNode(Struct, frozen=True):
    """A NUMA node."""

    os: int
    cpus: int  # mask of OS numbers
    memory_bytes: int | None  # 0: it has none; None: not known
    subtype: str | None


class RawKind(Struct, frozen=True):
    """CPUs of one kind, with the facts that rank it."""

    cpus: int  # mask of OS numbers
    forced_efficiency: int  # by the operating system; -1 when unknown
    infos: Mapping[str, str] = field(default_factory=dict)


class RawDistances(Struct, frozen=True):
    """The NUMALatency matrix; `nodes` are OS numbers in its order."""

    nodes: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]


def build_topology(
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
    forbidden, or have no memory, has no home node: memory cannot come from there.
    """
    machine = cpuset.mask_of(pu.os for pu in pus)
    nodes = _with_known_memory(nodes)
    giving = [node for node in nodes if allowed_nodes >> node.os & 1 and node.memory_bytes != 0]
    taken = _default_nodes(giving, machine)
    home = _node_by_cpu(taken)
    bare = _node_by_cpu(node for node in nodes if node.memory_bytes == 0)
    efficiency = _efficiencies(kinds, architecture, machine)
    whole = ranked(
        [
            pu if pu.node is not None else replace(pu, bare_node=bare.get(pu.os))
            for pu in _pus(pus, home, efficiency)
        ]
    )
    default = {node.os for node in taken}
    return Topology(
        pus=whole if usable == machine else ranked([pu for pu in whole if usable >> pu.os & 1]),
        nodes=tuple(
            Node(
                os=node.os,
                logical=logical,
                cpus=cpuset.numbers_of(node.cpus),
                memory_bytes=node.memory_bytes,
                subtype=node.subtype,
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


def _with_known_memory(nodes: Sequence[RawNode]) -> Sequence[RawNode]:
    """Return the nodes; where all have no memory nothing was read, and it is not known."""
    if any(node.memory_bytes for node in nodes):
        return nodes
    return [replace(node, memory_bytes=None) for node in nodes]


def _node_by_cpu(nodes: Iterable[RawNode]) -> dict[int, int]:
    """Return by CPU the first node that holds it, both as OS numbers."""
    node_by_cpu: dict[int, int] = {}
    for node in nodes:
        for cpu in cpuset.numbers_of(node.cpus):
            node_by_cpu.setdefault(cpu, node.os)
    return node_by_cpu


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
    pus_of_topology = []
    for logical, pu in enumerate(pus):
        core = pu.core if pu.core is not None else n_cores + logical
        llc = pu.l3 if pu.l3 is not None else None if pu.l2 is None else n_l3 + pu.l2
        kind = efficiency.get(pu.os, 0)
        pus_of_topology.append(
            PU(
                os=pu.os,
                logical=logical,
                core=core,
                rank=0,
                node=home.get(pu.os),
                package=pu.package,
                llc=llc,
                kind=kind,
            )
        )
    return pus_of_topology


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
    rank = {value: place for place, value in enumerate(sorted(values))}
    rank_by_cpu: dict[int, int] = {}
    for kind, value in zip(kinds, values, strict=True):
        for cpu in cpuset.numbers_of(kind.cpus & machine):
            rank_by_cpu.setdefault(cpu, rank[value])
    return rank_by_cpu


# Cores of one kind differ by what each die clocks to: preferred cores of one chip by 5 %, the
# cores of two kinds by 20 % and more.
_SAME_SPEED = 0.9
_BASE_CLOCK, TOP_CLOCK, _CAPACITY = "FrequencyBaseMHz", "FrequencyMaxMHz", "LinuxCapacity"


def merge_kinds(kinds: Sequence[RawKind]) -> list[RawKind]:
    """Return kinds that differ in nothing but clocks close to each other as one, the fastest."""
    fastest: dict[int, RawKind] = {}  # by its place
    speeds = [(_figure(kind, _CAPACITY), _figure(kind, TOP_CLOCK)) for kind in kinds]
    for place in sorted(range(len(kinds)), key=speeds.__getitem__, reverse=True):
        first = next((it for it, merged in fastest.items() if _alike(kinds[place], merged)), place)
        merged = fastest.get(first, kinds[place])
        fastest[first] = replace(merged, cpus=merged.cpus | kinds[place].cpus)
    return [fastest[place] for place in sorted(fastest)]


def _alike(kind: RawKind, faster: RawKind) -> bool:
    """Tell whether type or base clock is one, and clocks and capacities are close.

    The efficiency that the system forces is no sign: Linux ranks every capacity by it.
    """
    kinds = (kind, faster)
    types = {member.infos.get("CoreType") for member in kinds}
    bases = {_figure(member, _BASE_CLOCK) for member in kinds} - {0}
    if len(types) > 1 or (None in types and len(bases) > 1):
        return False
    names = (TOP_CLOCK, _CAPACITY, _BASE_CLOCK)
    pairs = [sorted(_figure(member, name) for member in kinds) for name in names]
    known = [(low, high) for low, high in pairs if low]
    return bool(known) and all(low > _SAME_SPEED * high for low, high in known)


def _figure(kind: RawKind, name: str) -> int:
    text = kind.infos.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0


def _speeds(kinds: Sequence[RawKind], *, arm: bool) -> list[int]:
    values = [0] * len(kinds)
    types = [
        {"IntelAtom": 1, "IntelCore": 2}.get(kind.infos.get("CoreType", ""), 0) for kind in kinds
    ]
    if all(types) and not arm:
        values = [value << 20 for value in types]
    for name in (_BASE_CLOCK, TOP_CLOCK):
        clocks = [_figure(kind, name) for kind in kinds]
        ranked = [value + clock for value, clock in zip(values, clocks, strict=True)]
        if all(clocks) and len(set(ranked)) == len(ranked):
            return ranked
    return values


# -- What an lgroup has at one moment, as the kernel of this machine tells it ----------------------


class HugePages(Struct, frozen=True):
    """The pool of huge pages of one size (hugetlb), which only programs that ask for it use."""

    size_bytes: int
    total: int  # pages
    free: int  # pages

    @property
    def free_bytes(self) -> int:
        """Bytes that no program uses, and that no other program can have."""
        return self.free * self.size_bytes


class PoolCapacity(Struct, frozen=True, kw_only=True):
    """What a pool of huge pages of one lgroup has, and could have now."""

    node: int  # OS number
    size_bytes: int
    total: int  # pages
    free: int  # pages
    ready: int | None  # more pages that lie in one piece; None: larger than pieces are counted
    most: int  # more pages that all free memory and droppable page cache would make

    @property
    def path(self) -> str:
        """The file that holds, and takes, how many pages it has."""
        return (
            f"/sys/devices/system/node/node{self.node}/hugepages/"
            f"hugepages-{self.size_bytes >> 10}kB/nr_hugepages"
        )

    @property
    def setting(self) -> str:
        """The name of the setting that it is."""
        return f"hugepages.{self.size_bytes >> 10}kB.node{self.node}"


class NodeMemory(Struct, frozen=True, kw_only=True):
    """The memory of one lgroup; None for what the kernel does not tell."""

    node: int  # OS number
    total_bytes: int
    free_bytes: int
    page_cache_bytes: int  # file pages; shared memory is not among them
    dirty_bytes: int  # of the page cache: not on disk yet, or on its way; not droppable
    free_huge_order_bytes: int | None  # free in blocks of a transparent huge page or larger
    huge_pages: tuple[HugePages, ...]  # by size, ascending

    @property
    def droppable_bytes(self) -> int:
        """Page cache that the kernel can drop at once (mapped pages it drops late)."""
        return max(0, self.page_cache_bytes - self.dirty_bytes)

    @property
    def pooled_bytes(self) -> int:
        """Bytes in free huge pages: neither free nor page cache."""
        return sum(pool.free_bytes for pool in self.huge_pages)


# -- hwloc's synthetic descriptions of machines, read as far as a wrong one can be told ------------
#
# The form: one level per word, outermost first, `[type:]count[(attributes)]`, memory in brackets
# (hwloc's documentation, "Synthetic topologies"). hwloc itself makes the machine; mistakes
# that it would overlook are refused here.

_LONGEST_SHOWN = 200  # characters of a description in a message
MOST_PUS = 16384  # twice what Linux can have; hwloc's time grows with the square
EXAMPLE = "such as 'pack:2 numa:4 l3:2 core:8 pu:2', or nodes=4x24 for 4 nodes of 24 CPUs"
# One level: `pack:2`, `l3:2(size=32MB)`, `2`, `[numa]`.
_LEVEL = compile_later(
    r"\s*(?:(?:([A-Za-z0-9]+):)?([0-9]+)(?:\([^()]*\))?|\[[^\[\]]*\])(?=\s|\[|$)", re.ASCII
)
_INDEXES = compile_later(r"(?<=[(\s])indexes=([^)\s]*)")
_KINDS = ("package", "socket", "numanode", "node", "die", "group", "core", "pu", "machine")
_SAME = {"socket": "package", "node": "numanode"}


def without_types(text: str) -> str:
    """Return a description with every `indexes=` by types (`core:pack:pu`) as `step*count` loops.

    hwloc (2.11 as pyhwloc 3.0.1 has it) looks for the last level before it has set a field of it,
    and where that is 0 by chance it numbers the CPUs as they lie, without a word. Raises
    `InputError` when the text describes no machine, or its numbers are not those of a level.
    """
    widths: dict[str, int] = {}  # of the levels that have a type, outermost first
    levels: list[tuple[str, int]] = []
    position, width = 0, 1
    while position < len(text.rstrip()):
        level = _LEVEL.match(text, position)
        if level is None:
            raise InputError(
                f"{shown(text)} is neither a file nor a description of a machine (stuck at "
                f"{text[position:].strip()[:20]!r}): expected a path or a description {EXAMPLE}"
            )
        position = level.end()
        if level[2] is not None:
            width *= int(level[2]) if len(level[2]) < 7 else 10**7
            widths[_kind(level[1] or "")] = width
        if not 1 <= width <= MOST_PUS:
            raise InputError(
                f"{shown(text)} does not describe a machine of 1 to {MOST_PUS} PUs: "
                f"expected one {EXAMPLE}"
            )
        levels.append((level[0], width if level[2] is not None else 0))
    widths["pu"] = width
    return "".join(_with_loops(level, width, widths) for level, width in levels)


def shown(text: str) -> str:
    """Return a description as a message quotes it: no longer than anybody reads."""
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}...")


def _with_loops(level: str, width: int, widths: dict[str, int]) -> str:
    if not width:
        return level
    return _INDEXES.sub(lambda match: f"indexes={_loops(match[1], width, widths)}", level)


def _loops(indexes: str, total: int, widths: dict[str, int]) -> str:
    if re.fullmatch(r"[0-9,]+", indexes):
        numbers = [int(number) for number in indexes.split(",") if number]
        if len(numbers) != total or len(set(numbers)) != total:
            raise InputError(
                f"indexes={indexes[:40]} has {len(set(numbers))} different numbers for {total} "
                f"parts of its level, expected {total}"
            )
        return indexes
    if "*" in indexes:
        _check_loops(indexes, total)
        return indexes
    named = [_kind(word) for word in indexes.split(":")]
    known = [kind for kind in widths if kind and total % widths[kind] == 0]
    for word, kind in zip(indexes.split(":"), named, strict=True):
        if kind not in known or named.count(kind) > 1:
            raise InputError(
                f"indexes={indexes[:40]}: {word!r} is no level at or above this one, or is named "
                f"twice, expected types of levels in any order, once each, such as core:pack:pu"
            )
    loops = []
    inwards = [kind for kind in widths if kind in named]
    for kind in named:
        above = ([1] + [widths[inward] for inward in inwards])[inwards.index(kind)]
        loops.append(f"{total // widths[kind]}*{widths[kind] // above}")
    return ":".join(loops)


def _check_loops(indexes: str, total: int) -> None:
    pairs = [
        re.fullmatch(r"([1-9][0-9]{0,8})\*([1-9][0-9]{0,8})", loop) for loop in indexes.split(":")
    ]
    loops = [(int(pair[1]), int(pair[2])) for pair in pairs if pair]
    # hwloc adds the innermost loop itself where none has a step of 1.
    reached = math.prod(count for _, count in loops) * min((step for step, _ in loops), default=1)
    if len(loops) != len(pairs) or reached != total:
        raise InputError(
            f"indexes={indexes[:40]} makes {reached} numbers for {total} parts of its level, "
            "expected loops step*count whose counts have that product, such as 2*8:16*2:1*2"
        )


def _kind(word: str) -> str:
    cache = re.fullmatch(r"(l[1-5]i?)[du]?(?:cache)?", word.lower())
    if cache:
        return cache[1]
    letters = word.lower().rstrip("0123456789")
    for kind in _KINDS:
        if len(letters) >= 2 and kind.startswith(letters):
            return _SAME.get(kind, kind)
    return ""
