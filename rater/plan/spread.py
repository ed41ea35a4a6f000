"""Which PUs copies are dealt: one after the other, or in groups of neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from rater.plan.topology import PU, Topology

type Key = Callable[[PU], object]
type Slot = tuple[PU, ...]  # the PUs of one copy, in logical order


def domain_of(pu: PU) -> object:
    """Return what tells a PU's lgroup from others; PUs without a node form one a package."""
    return pu.node if pu.node is not None else ("none", pu.package)


def scatter(topology: Topology) -> tuple[PU, ...]:
    """Return all usable PUs, each next one as far from those before as the machine allows.

    Tier by tier (first threads of all cores, faster kinds before slower, then
    second threads, ...) a nested round robin over packages, lgroups and LLCs. The
    lgroup is on top where one spans several packages; loose cores of a broken
    tree never count like a package.
    """
    tiers: dict[tuple[int, int], list[PU]] = {}
    for pu in topology.pus:
        tiers.setdefault((pu.rank, -pu.kind), []).append(pu)
    keys = _keys(_top(topology))
    return tuple(pu for tier in sorted(tiers) for pu in _round_robin(tiers[tier], keys))


def scatter_slots(topology: Topology, copies: int, threads: int) -> tuple[Slot, ...]:
    """Return disjoint groups of `threads` neighbouring PUs, spread like `scatter`.

    One a copy, or as many as the machine has; a single one with all its PUs where it
    has too few. A group lies in one lgroup while any has room, and within one LLC if it
    fits. Of each core so few PUs are taken as leave room for all copies of its lgroup:
    only one as long as there are enough cores.
    """
    if threads == 1:
        return tuple((pu,) for pu in scatter(topology)[:copies])
    wanted = min(copies, len(topology.pus) // threads)
    if not wanted:
        return (topology.pus,)
    top = _top(topology)
    dealt = [
        _spread(_groups(pus, threads), top)[:wanted]
        for pus in _tiers_of_cores(topology.pus)
        if len(pus) >= wanted * threads
    ]
    return tuple(_loosened(topology, min(dealt, key=_strays), threads, top))


def _tiers_of_cores(pus: Sequence[PU]) -> list[list[PU]]:
    """Return the first PUs of all cores, then the first two of each, and so on up to all."""
    most = max(pu.rank for pu in pus) + 1
    return [[pu for pu in pus if pu.rank < depth] for depth in range(1, most + 1)]


def _loosened(topology: Topology, slots: Sequence[Slot], threads: int, top: Key) -> list[Slot]:
    """Give the copies of an lgroup as many cores as it has: whole ones first, the rest crowded.

    That one lgroup is full must not crowd the copies of all others, nor the last copy of
    an lgroup those beside it. No copy gets more PUs of a core than it had to. Lgroups
    that a straying group reaches into stay as they are.
    """
    owned: dict[object, list[PU]] = {}
    for pu in topology.pus:
        owned.setdefault(domain_of(pu), []).append(pu)
    places: dict[object, list[int]] = {}
    for place, slot in enumerate(slots):
        for domain in {domain_of(pu) for pu in slot}:
            places.setdefault(domain, []).append(place)
    found = list(slots)
    for domain, own in places.items():
        if not _strays([slots[place] for place in own]):
            for place, slot in zip(own, _fill(owned[domain], len(own), threads, top), strict=True):
                found[place] = slot
    return found


def _fill(pus: Sequence[PU], copies: int, threads: int, top: Key) -> list[Slot]:
    """Cut the PUs of an lgroup, which has room for all `copies`, into their groups."""
    tiers = _tiers_of_cores(pus)
    usable = next(tier for tier in tiers if len(tier) >= copies * threads)
    whole = _spread(_groups(tiers[0], threads), top)[:copies]
    while True:
        taken = {pu.core for slot in whole for pu in slot}
        rest = [pu for pu in usable if pu.core not in taken]
        missing = copies - len(whole)
        if len(rest) >= missing * threads:
            return whole + _spread(_groups(rest, threads), top)[:missing]
        whole.pop()


def _groups(pus: Sequence[PU], threads: int) -> list[list[Slot]]:
    """Cut PUs into groups; tiers of them, those that lie closest together first.

    What is left over in an LLC meets what is left over in others of its lgroup, and so on up.
    """
    levels: tuple[Key, ...] = (
        lambda pu: (domain_of(pu), pu.llc, pu.kind),
        lambda pu: (domain_of(pu), pu.llc),
        domain_of,
        lambda pu: pu.package,
        lambda pu: None,
    )
    tiers: list[list[Slot]] = []
    rest = list(pus)
    for key in levels:
        groups: dict[object, list[PU]] = {}
        for pu in rest:
            groups.setdefault(key(pu), []).append(pu)
        rest = []
        cut: dict[int, list[Slot]] = {}  # by the slowest kind of PU in it
        for group in groups.values():
            whole = len(group) // threads * threads
            for begin in range(0, whole, threads):
                slot = tuple(group[begin : begin + threads])
                cut.setdefault(min(pu.kind for pu in slot), []).append(slot)
            rest += group[whole:]
        rest.sort(key=lambda pu: pu.logical)
        tiers += [cut[kind] for kind in sorted(cut, reverse=True)]
    return tiers


def _spread(tiers: Sequence[Sequence[Slot]], top: Key) -> list[Slot]:
    """Deal groups tier by tier, round robin over packages, lgroups and LLCs."""
    found: list[Slot] = []
    for tier in tiers:
        by_first = {slot[0].os: slot for slot in tier}
        firsts = sorted((slot[0] for slot in tier), key=lambda pu: pu.logical)
        found += [by_first[pu.os] for pu in _round_robin(firsts, _keys(top))]
    return found


def _strays(slots: Sequence[Slot]) -> int:
    """Count the groups that lie in several lgroups."""
    return sum(len({domain_of(pu) for pu in slot}) > 1 for slot in slots)


def _top(topology: Topology) -> Key:
    packages: dict[object, set[int | None]] = {}
    for pu in topology.pus:
        packages.setdefault(domain_of(pu), set()).add(pu.package)

    def top(pu: PU) -> object:
        domain = domain_of(pu)
        return pu.package if len(packages[domain]) == 1 else ("domain", domain)

    return top


def _keys(top: Key) -> tuple[Key, ...]:
    return (top, domain_of, lambda pu: pu.package, lambda pu: pu.llc)


def _round_robin(pus: Sequence[PU], keys: Sequence[Key]) -> list[PU]:
    if not keys or len(pus) < 2:
        return list(pus)
    groups: dict[object, list[PU]] = {}
    for pu in pus:
        groups.setdefault(keys[0](pu), []).append(pu)
    rows = zip_longest(*(_round_robin(group, keys[1:]) for group in groups.values()))
    return [pu for row in rows for pu in row if pu is not None]
