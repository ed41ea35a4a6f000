"""The PUs of a machine in the order in which copies get them, one by one or in slots; pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain

from rater.plan.placement.layout import CpuOrder
from rater.plan.topology import PU, Cache, HwlocGroup, Topology
from rater.text.values import group_by_key, interleave

# The PUs of one copy are a *slot*: one PU, or several neighbouring ones. Orders work on
# *tiers* of slots, the best ones first: the first threads of all cores, those beside memory before
# those of nodes without any, faster kinds before slower ones, then the second threads, and so on.
# Each order is a permutation
# of the slots. A *domain* is the usable PUs of one NUMA node; PUs without a node form
# one domain a package. A slot counts where its first PU lies.

type Key = Callable[[PU], object]
type Slot = tuple[PU, ...]  # the PUs of one copy, in logical order
type Tiers = Sequence[Sequence[Slot]]  # slots in logical order in each


def singles(topology: Topology) -> Tiers:
    """Return each usable PU as a slot of its own."""
    tiers = group_by_key(((pu.rank, is_remote(pu), -pu.kind), (pu,)) for pu in topology.pus)
    return [tiers[tier] for tier in sorted(tiers)]


def is_remote(pu: PU) -> bool:
    """Whether all memory of a copy on a PU is remote, for its node is known to have none.

    Such PUs come after those of the same tier whose node has memory.
    """
    return pu.bare_node is not None


def along(slots: Iterable[Slot]) -> list[Slot]:
    """Return the slots by logical index: each as near as possible to the one before."""
    return sorted(slots, key=lambda slot: slot[0].logical)


def fill(tiers: Tiers) -> list[Slot]:
    """Return the slots domain by domain; inside one tier after tier."""
    place: dict[object, int] = {}
    for slot in along(chain(*tiers)):
        place.setdefault(slot[0].domain, len(place))
    return sorted(chain(*tiers), key=lambda slot: place[slot[0].domain])


def scatter(tiers: Tiers) -> list[Slot]:
    """Return the slots, each next one as far from those before as the machine allows.

    In each tier the domains take turns: one of each package, then the second one of
    each. Inside a domain packages and then LLCs take turns. A domain over several
    packages stands beside packages, so loose cores of a broken tree never count like
    one. As every domain has a turn in every round, equal domains differ by at most
    one slot at every prefix, however many of them a package holds.
    """
    packages: dict[object, set[int | None]] = {}
    for slot in chain(*tiers):
        packages.setdefault(slot[0].domain, set()).update(pu.package for pu in slot)

    def top(pu: PU) -> object:
        domain = pu.domain
        return pu.package if len(packages[domain]) == 1 else ("domain", domain)

    scattered: list[Slot] = []
    for tier in tiers:
        domains = group_by_key((slot[0].domain, slot) for slot in tier)
        turns = _round_robin([slots[0] for slots in domains.values()], (top,))
        queues = [domains[first[0].domain] for first in turns]
        inside: tuple[Key, ...] = (lambda pu: pu.package, lambda pu: pu.llc)
        scattered += interleave([_round_robin(queue, inside) for queue in queues])
    return scattered


# Every order that depends on nothing but the slots.
PERMUTATIONS: dict[CpuOrder, Callable[[Tiers], list[Slot]]] = {
    CpuOrder.OS: lambda tiers: sorted(chain(*tiers), key=lambda slot: slot[0].os),
    CpuOrder.COMPACT: lambda tiers: along(chain(*tiers)),
    CpuOrder.CORES: lambda tiers: [*chain(*tiers)],
    CpuOrder.FILL: fill,
    CpuOrder.SCATTER: scatter,
}


def _round_robin(slots: Sequence[Slot], keys: Sequence[Key]) -> Sequence[Slot]:
    """Take slots in turn from the groups of the first key, each ordered by the keys after it."""
    if not keys or len(slots) < 2:
        return slots
    groups = group_by_key((keys[0](slot[0]), slot) for slot in slots)
    return interleave([_round_robin(group, keys[1:]) for group in groups.values()])


# -- Slots of several neighbouring PUs, for copies that use several CPUs ---------------------------


def slots_of(topology: Topology, copies: int, threads: int) -> Tiers:
    """Return disjoint slots of `threads` neighbouring PUs, in tiers, best ones first.

    As many as the machine has, at least one: with all its PUs where it has too few.
    A slot lies in one NUMA node while any has room, and within one LLC if it fits.
    It is of separate cores as long as `copies` slots of such can be had, unless
    slots with siblings lie in one NUMA node where these do not.
    """
    if threads == 1:
        return singles(topology)
    crowded = _groups(topology.pus, threads)
    if not crowded:
        return [[topology.pus]]
    if copies * threads <= len(topology.cores):
        alone = _groups([pu for pu in topology.pus if pu.rank == 0], threads)
        if straying(scatter(alone)[:copies]) <= straying(scatter(crowded)[:copies]):
            return alone
    return crowded


def ordered_slots(topology: Topology, order: CpuOrder, copies: int, threads: int) -> list[Slot]:
    """Return the slots in an order along the machine.

    Slots over several NUMA nodes come last, as far as there are enough without them.
    """
    first: list[Sequence[Slot]] = []
    behind: list[Sequence[Slot]] = []
    for tier in slots_of(topology, copies, threads):
        enough = sum(map(len, first)) >= copies
        (behind if enough and straying(tier) else first).append(tier)
    return PERMUTATIONS[order](first) + PERMUTATIONS[order](behind)


def spread_slots(topology: Topology, copies: int, threads: int) -> list[Slot]:
    """Return disjoint slots of `threads` neighbouring PUs in the order of `scatter`.

    One a copy, or as many as the machine has; a single one with all its PUs where it
    has too few. A slot lies in one NUMA node while any has room, and within one LLC if it
    fits. Of each core so few PUs are taken as leave room for all copies of its NUMA node:
    only one as long as there are enough cores.
    """
    if threads == 1:
        return scatter(singles(topology))[:copies]
    wanted = min(copies, len(topology.pus) // threads)
    if not wanted:
        return [topology.pus]
    assigned = [
        scatter(_groups(pus, threads))[:wanted]
        for pus in _tiers_of_cores(topology.pus)
        if len(pus) >= wanted * threads
    ]
    return _loosened(topology, min(assigned, key=straying), threads)


def straying(slots: Iterable[Slot]) -> int:
    """Return how many slots lie in several NUMA nodes."""
    return sum(len({pu.domain for pu in slot}) > 1 for slot in slots)


def _tiers_of_cores(pus: Sequence[PU]) -> list[list[PU]]:
    most = max(pu.rank for pu in pus) + 1
    return [[pu for pu in pus if pu.rank < depth] for depth in range(1, most + 1)]


def _loosened(topology: Topology, slots: Sequence[Slot], threads: int) -> list[Slot]:
    """Give the copies of a NUMA node as many cores as it has: whole ones first, the rest crowded.

    That one NUMA node is full must not crowd the copies of all others, nor the last copy of
    a NUMA node those beside it. No copy gets more PUs of a core than it had to. NUMA nodes
    that a straying group reaches into stay as they are.
    """
    owned = group_by_key((pu.domain, pu) for pu in topology.pus)
    places = group_by_key(
        (domain, place) for place, slot in enumerate(slots) for domain in {pu.domain for pu in slot}
    )
    loosened = list(slots)
    for domain, slot_places in places.items():
        if not straying(slots[place] for place in slot_places):
            for place, slot in zip(
                slot_places, _cut(owned[domain], len(slot_places), threads), strict=True
            ):
                loosened[place] = slot
    return loosened


def _cut(pus: Sequence[PU], copies: int, threads: int) -> list[Slot]:
    """Cut the PUs of a NUMA node, which has room for all `copies`, into their groups."""
    tiers = _tiers_of_cores(pus)
    usable = next(tier for tier in tiers if len(tier) >= copies * threads)
    whole = scatter(_groups(tiers[0], threads))[:copies]
    while True:
        taken = {pu.core for slot in whole for pu in slot}
        rest = [pu for pu in usable if pu.core not in taken]
        missing = copies - len(whole)
        if len(rest) >= missing * threads:
            return whole + scatter(_groups(rest, threads))[:missing]
        whole.pop()


def _groups(pus: Sequence[PU], threads: int) -> list[list[Slot]]:
    """Cut PUs into groups; tiers of them, those that lie closest together first.

    What is left over in an LLC meets what is left over in others of its NUMA node, and so on up.
    """
    levels: tuple[Key, ...] = (
        lambda pu: (pu.domain, pu.llc, pu.kind),
        lambda pu: (pu.domain, pu.llc),
        lambda pu: pu.domain,
        lambda pu: pu.package,
        lambda pu: None,
    )
    tiers: list[list[Slot]] = []
    rest = list(pus)
    for key in levels:
        whole: list[Slot] = []
        left: list[PU] = []
        for group in group_by_key((key(pu), pu) for pu in rest).values():
            end = len(group) // threads * threads
            whole += [tuple(group[begin : begin + threads]) for begin in range(0, end, threads)]
            left += group[end:]
        rest = sorted(left, key=lambda pu: pu.logical)
        # By the PU that is worst off.
        cut = group_by_key(
            ((any(map(is_remote, slot)), -min(pu.kind for pu in slot)), slot) for slot in whole
        )
        tiers += [cut[merits] for merits in sorted(cut)]
    return tiers


# -- A machine cut into parts as `hwloc_distrib` cuts it -------------------------------------------

type _Span = tuple[int, int]  # positions among the usable PUs, the second one exclusive


def distrib(topology: Topology, sets: int) -> tuple[Slot, ...]:
    """Cut the usable PUs into `sets` (1 to their number) sets, each in logical order.

    From the top down, each object hands its sets to its children in proportion to
    their usable PUs, rounded so that earlier ones come first; a child that gets one
    keeps it whole, and one that gets none joins the set before it (hwloc 2.x,
    `include/hwloc/helper.h`). Objects are packages, groups, caches and cores, as in
    hwloc: NUMA nodes count where they hold CPUs of their own.
    """
    order = sorted((first, -end) for first, end in _spans(topology))
    slots: list[list[PU]] = []

    def children(first: int, end: int) -> Iterator[_Span]:
        """Yield the outermost objects inside one, and the PUs that lie in none of them."""
        position = first
        while position < end:
            place = bisect_left(order, (position, (position == first) - end))
            inner = place < len(order) and order[place][0] == position
            begin, position = position, -order[place][1] if inner else position + 1
            yield begin, position

    def cut(first: int, end: int, sets: int) -> None:
        for begin, end_of_child in children(first, end):
            share = _ceil((end_of_child - first) * sets, end - first)
            share -= _ceil((begin - first) * sets, end - first)
            if share > 1:
                cut(begin, end_of_child, share)
            elif share == 1:
                slots.append([*topology.pus[begin:end_of_child]])
            else:
                slots[-1] += topology.pus[begin:end_of_child]

    if sets == 1:
        return (topology.pus,)
    cut(0, len(topology.pus), sets)
    return tuple(map(tuple, slots))


def _spans(topology: Topology) -> set[_Span]:
    """Return what packages, groups, caches, cores and NUMA nodes cover, of more PUs than one."""
    machine, details = topology.machine_pus, topology.details
    before = [0, *accumulate(pu.os in topology.by_cpu for pu in machine)]

    def usable(spans: Iterable[_Span]) -> set[_Span]:
        positions = ((before[first], before[end]) for first, end in spans)
        return {(first, end) for first, end in positions if end - first > 1}

    objects: list[HwlocGroup | Cache] = [*details.groups, *details.caches]
    covered = usable((part.first, part.first + part.count) for part in objects)
    for numbers in zip(*((pu.package, pu.llc, pu.core) for pu in machine), strict=True):
        starts = [
            place
            for place, number in enumerate(numbers)
            if place == 0 or number != numbers[place - 1]
        ]
        runs = zip(starts, [*starts[1:], len(numbers)], strict=True)
        covered |= usable(run for run in runs if numbers[run[0]] is not None)
    # hwloc puts a group around the CPUs of a NUMA node where no other object has just these,
    # unless it crosses one. Of the spans around the gap between two PUs it is enough to know the
    # innermost one, so that thousands of NUMA nodes cost no more than their CPUs.
    position = {pu.os: place for place, pu in enumerate(machine)}
    places = [sorted(position[cpu] for cpu in node.cpus) for node in topology.nodes if node.cpus]
    node_spans = usable(
        (place[0], place[-1] + 1) for place in places if place[-1] - place[0] == len(place) - 1
    )
    inner: list[_Span] = [(0, len(topology.pus))] * (len(topology.pus) + 1)  # before each PU
    for first, end in sorted(covered, key=lambda span: span[0] - span[1]):  # the widest first
        inner[first + 1 : end] = [(first, end)] * (end - first - 1)
    for first, end in sorted(node_spans - covered):
        if inner[first][1] < end or inner[end][0] > first:
            continue
        covered.add((first, end))
        for gap in range(first + 1, end):
            if inner[gap][1] - inner[gap][0] > end - first:
                inner[gap] = (first, end)
    return covered


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)
