"""Slots of several neighbouring PUs, for copies that use several CPUs."""

from __future__ import annotations

from collections.abc import Sequence

from rater.groups import grouped
from rater.plan.placement.orders import Key, Slot, Tiers, scatter, singles
from rater.plan.topology.model import PU, Topology


def slots_of(topology: Topology, copies: int, threads: int) -> Tiers:
    """Return disjoint slots of `threads` neighbouring PUs, in tiers, best ones first.

    As many as the machine has, at least one: with all its PUs where it has too few.
    A slot lies in one lgroup while any has room, and within one LLC if it fits.
    It is of separate cores as long as `copies` slots of such can be had, unless
    slots with siblings lie in one lgroup where these do not.
    """
    if threads == 1:
        return singles(topology)
    crowded = _groups(topology.pus, threads)
    if not crowded:
        return [[topology.pus]]
    if copies * threads <= len(topology.cores):
        firsts = [pu for pu in topology.pus if pu.rank == 0]
        alone = _groups(firsts, threads)
        if _straying(scatter(alone)[:copies]) <= _straying(scatter(crowded)[:copies]):
            return alone
    return crowded


def whole_first(tiers: Tiers, copies: int) -> tuple[Tiers, Tiers]:
    """Return the slots for `copies`, and those that orders may use only behind them.

    Behind are slots over several lgroups, as far as there are enough without them.
    """
    first: list[Sequence[Slot]] = []
    behind: list[Sequence[Slot]] = []
    for tier in tiers:
        enough = sum(map(len, first)) >= copies
        (behind if enough and _straying(tier) else first).append(tier)
    return first, behind


def spread_slots(topology: Topology, copies: int, threads: int) -> list[Slot]:
    """Return disjoint slots of `threads` neighbouring PUs in the order of `scatter`.

    One a copy, or as many as the machine has; a single one with all its PUs where it
    has too few. A slot lies in one lgroup while any has room, and within one LLC if it
    fits. Of each core so few PUs are taken as leave room for all copies of its lgroup:
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
    return _loosened(topology, min(assigned, key=_straying), threads)


def _tiers_of_cores(pus: Sequence[PU]) -> list[list[PU]]:
    """Return the first PUs of all cores, then the first two of each, and so on up to all."""
    most = max(pu.rank for pu in pus) + 1
    return [[pu for pu in pus if pu.rank < depth] for depth in range(1, most + 1)]


def _loosened(topology: Topology, slots: Sequence[Slot], threads: int) -> list[Slot]:
    """Give the copies of an lgroup as many cores as it has: whole ones first, the rest crowded.

    That one lgroup is full must not crowd the copies of all others, nor the last copy of
    an lgroup those beside it. No copy gets more PUs of a core than it had to. Lgroups
    that a straying group reaches into stay as they are.
    """
    owned = grouped((pu.domain, pu) for pu in topology.pus)
    places = grouped(
        (domain, place) for place, slot in enumerate(slots) for domain in {pu.domain for pu in slot}
    )
    found = list(slots)
    for domain, own in places.items():
        if not _straying([slots[place] for place in own]):
            for place, slot in zip(own, _fill(owned[domain], len(own), threads), strict=True):
                found[place] = slot
    return found


def _fill(pus: Sequence[PU], copies: int, threads: int) -> list[Slot]:
    """Cut the PUs of an lgroup, which has room for all `copies`, into their groups."""
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

    What is left over in an LLC meets what is left over in others of its lgroup, and so on up.
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
        for group in grouped((key(pu), pu) for pu in rest).values():
            end = len(group) // threads * threads
            whole += [tuple(group[begin : begin + threads]) for begin in range(0, end, threads)]
            left += group[end:]
        rest = sorted(left, key=lambda pu: pu.logical)
        cut = grouped((min(pu.kind for pu in slot), slot) for slot in whole)  # by the slowest
        tiers += [cut[kind] for kind in sorted(cut, reverse=True)]
    return tiers


def _straying(slots: Sequence[Slot]) -> int:
    """Count the groups that lie in several lgroups."""
    return sum(len({pu.domain for pu in slot}) > 1 for slot in slots)
