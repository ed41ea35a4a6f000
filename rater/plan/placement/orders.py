"""Orders in which the usable PUs of a machine are given to copies: pure, every tie decided.

What a copy gets is a *slot*: one PU, or several neighbouring ones. Orders work on
*tiers* of slots, the best ones first: the first threads of all cores, faster kinds
before slower ones, then the second threads, and so on. Each order is a permutation
of the slots. A *domain* is the usable PUs of one lgroup; PUs without a node form
one domain a package. A slot counts where its first PU lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

from rater.groups import grouped
from rater.plan.placement.layout import CpuOrder
from rater.plan.topology.model import PU, Topology

type Key = Callable[[PU], object]
type Slot = tuple[PU, ...]  # the PUs of one copy, in logical order
type Tiers = Sequence[Sequence[Slot]]  # slots in logical order in each


def in_turn[T](queues: Iterable[Sequence[T]]) -> list[T]:
    """Return one of each queue, then the second one of each, and so on."""
    return [one for row in zip_longest(*queues) for one in row if one is not None]


def singles(topology: Topology) -> Tiers:
    """Return each usable PU as a slot of its own."""
    tiers = grouped(((pu.rank, -pu.kind), (pu,)) for pu in topology.pus)
    return [tiers[tier] for tier in sorted(tiers)]


def by_number(tiers: Tiers) -> list[Slot]:
    """Return the slots by ascending OS number."""
    return sorted(_all(tiers), key=lambda slot: slot[0].os)


def compact(tiers: Tiers) -> list[Slot]:
    """Return the slots by logical index: each as near as possible to the one before."""
    return sorted(_all(tiers), key=lambda slot: slot[0].logical)


def cores(tiers: Tiers) -> list[Slot]:
    """Return tier after tier, each along the machine: every core once, then second threads."""
    return _all(tiers)


def fill(tiers: Tiers) -> list[Slot]:
    """Return the slots domain by domain; inside one as `cores` does."""
    place: dict[object, int] = {}
    for slot in compact(tiers):
        place.setdefault(slot[0].domain, len(place))
    return sorted(_all(tiers), key=lambda slot: place[slot[0].domain])


def scatter(tiers: Tiers) -> list[Slot]:
    """Return the slots, each next one as far from those before as the machine allows.

    In each tier the domains take turns: one of each package, then the second one of
    each. Inside a domain packages and then LLCs take turns. A domain over several
    packages stands beside packages, so loose cores of a broken tree never count like
    one. As every domain has a turn in every round, equal domains differ by at most
    one slot at every prefix, however many of them a package holds.
    """
    packages: dict[object, set[int | None]] = {}
    for slot in _all(tiers):
        packages.setdefault(slot[0].domain, set()).update(pu.package for pu in slot)

    def top(pu: PU) -> object:
        domain = pu.domain
        return pu.package if len(packages[domain]) == 1 else ("domain", domain)

    found: list[Slot] = []
    for tier in tiers:
        domains = grouped((slot[0].domain, slot) for slot in tier)
        turns = _round_robin([slots[0] for slots in domains.values()], (top,))
        queues = [domains[first[0].domain] for first in turns]
        found += in_turn([_round_robin(queue, _INSIDE) for queue in queues])
    return found


def balanced(tiers: Tiers, copies: int) -> list[Slot]:
    """Return the slots that `scatter` gives to so many copies, by logical index."""
    return sorted(scatter(tiers)[:copies], key=lambda slot: slot[0].logical)


# Every order that depends on nothing but the slots.
PERMUTATIONS: dict[CpuOrder, Callable[[Tiers], list[Slot]]] = {
    CpuOrder.OS: by_number,
    CpuOrder.COMPACT: compact,
    CpuOrder.CORES: cores,
    CpuOrder.FILL: fill,
    CpuOrder.SCATTER: scatter,
}

_INSIDE: tuple[Key, ...] = (lambda pu: pu.package, lambda pu: pu.llc)


def _all(tiers: Tiers) -> list[Slot]:
    return [slot for tier in tiers for slot in tier]


def _round_robin(slots: Sequence[Slot], keys: Sequence[Key]) -> Sequence[Slot]:
    """Take slots in turn from the groups of the first key, each ordered by the keys after it."""
    if not keys or len(slots) < 2:
        return slots
    groups = grouped((keys[0](slot[0]), slot) for slot in slots)
    return in_turn([_round_robin(group, keys[1:]) for group in groups.values()])
