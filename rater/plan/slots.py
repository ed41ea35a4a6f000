"""Slots of several neighbouring PUs, for copies that use several CPUs."""

from __future__ import annotations

from collections.abc import Sequence

from rater.plan.orders import Key, Slot, Tiers, domain_of, scatter, singles
from rater.plan.topology import PU, Topology


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
        if _strays(scatter(alone)[:copies]) <= _strays(scatter(crowded)[:copies]):
            return alone
    return crowded


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


def _strays(slots: Sequence[Slot]) -> int:
    """Count the groups that lie in several lgroups."""
    return sum(len({domain_of(pu) for pu in slot}) > 1 for slot in slots)
