"""Topology, layout and number of copies in; one `Placement` per copy out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rater.errors import InputError
from rater.plan import cpuset
from rater.plan.layout import Bind, Layout, Order
from rater.plan.spread import Key, Slot, domain_of, scatter_slots
from rater.plan.topology import PU, Topology

MOST_COPIES = 99_999


class MemoryPolicy(StrEnum):
    """Where a copy's memory may come from."""

    NONE = "none"  # whatever rater inherited
    LOCAL = "local"  # MPOL_LOCAL: the node of the running CPU
    BIND = "bind"  # MPOL_BIND on the home node: strict, out of memory rather than remote


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one copy runs and where its memory comes from."""

    copy: int
    cpus: tuple[int, ...] | None  # affinity mask, OS numbers ascending; None: not bound
    cpu: int | None  # the PU it was given (the mask may be wider); None when not bound
    core: int | None
    llc: int | None
    node: int | None
    package: int | None
    policy: MemoryPolicy
    memory_nodes: tuple[int, ...]  # for BIND; empty otherwise


@dataclass(frozen=True, slots=True)
class Placed:
    """A placement per copy, in the order of copies, and what a person should know of it."""

    placements: tuple[Placement, ...]
    warnings: tuple[str, ...]


def place(
    topology: Topology, layout: Layout, copies: int, memory: MemoryPolicy, threads: int = 1
) -> Placed:
    """Return where each of `copies` (at least 1) copies goes; same input, same answer.

    A copy of several `threads` gets as many neighbouring PUs; of them the first is its `cpu`.
    Raises `InputError` when memory is to be bound and a copy has no node to bind
    to, or when the layout widens masks to an object that the machine does not have.
    """
    if layout.order is Order.NONE:
        if memory is MemoryPolicy.BIND:
            raise InputError(
                f"layout {layout.name} does not bind copies to CPUs, so there is no home node "
                "to bind their memory to: use --mem local or another layout"
            )
        return Placed(
            tuple(
                Placement(copy, None, None, None, None, None, None, memory, ())
                for copy in range(copies)
            ),
            _oversubscribed(topology, copies, threads),
        )
    given = ORDERS[layout.order](topology, copies, threads)
    nodes = _memory_nodes(topology, given) if memory is MemoryPolicy.BIND else {}
    masks = _masks(topology, layout)
    placements = tuple(
        Placement(
            copy=copy,
            cpus=tuple(sorted({cpu for pu in slot for cpu in masks[pu.os]})),
            cpu=slot[0].os,
            core=slot[0].core,
            llc=slot[0].llc,
            node=slot[0].node,
            package=slot[0].package,
            policy=memory,
            memory_nodes=tuple(sorted({nodes[pu.os] for pu in slot})) if nodes else (),
        )
        for copy, slot in enumerate(given)
    )
    return Placed(placements, _warnings(topology, given, memory, threads))


def default_memory(layout: Layout) -> MemoryPolicy:
    """Return the memory policy of a layout when the user asks for none: local, if it binds."""
    return MemoryPolicy.NONE if layout.order is Order.NONE else MemoryPolicy.LOCAL


def resolve_copies(text: str, topology: Topology, threads: int = 1) -> int:
    """Return the number that `--copies N|pus|cores|nodes` means on a machine.

    `pus` and `cores` give each copy as many as it has threads, `cores` of one lgroup
    where any has so many; `nodes` counts lgroups with usable CPUs. Raises `InputError`
    for anything else and for numbers outside 1 to `MOST_COPIES`.
    """
    word = text.strip()
    if word == "pus":
        return max(1, len(topology.pus) // threads)
    if word == "cores":
        cores = Counter(domain_of(core[0]) for core in topology.cores)
        inside = sum(count // threads for count in cores.values())
        return max(1, inside or len(topology.cores) // threads)
    if word == "nodes":
        nodes = sum(domain.node is not None for domain in topology.domains)
        if not nodes:
            raise InputError(
                f"--copies nodes: no NUMA node of {topology.source} has usable CPUs, "
                "expected a number, pus or cores"
            )
        return nodes
    digits = word.lstrip("0")
    if not (word.isascii() and word.isdigit() and 0 < len(digits) <= len(str(MOST_COPIES))):
        raise InputError(
            f"--copies {text!r}: expected a number from 1 to {MOST_COPIES}, pus, cores or nodes"
        )
    return int(digits)


def _scattered(topology: Topology, copies: int, threads: int) -> tuple[Slot, ...]:
    slots = scatter_slots(topology, copies, threads)
    return tuple(slots[copy % len(slots)] for copy in range(copies))


def _balanced(topology: Topology, copies: int, threads: int) -> tuple[Slot, ...]:
    chosen = scatter_slots(topology, copies, threads)[:copies]
    slots = sorted(chosen, key=lambda slot: slot[0].logical)
    return tuple(slots[copy % len(slots)] for copy in range(copies))


# The PUs of each copy. Every order of `layout.Order` but NONE is here.
ORDERS: dict[Order, Callable[[Topology, int, int], tuple[Slot, ...]]] = {
    Order.BALANCED: _balanced,
    Order.SCATTER: _scattered,
}


def _masks(topology: Topology, layout: Layout) -> dict[int, tuple[int, ...]]:
    """Return the affinity mask of the copy that is given each PU, by its OS number."""
    key: dict[Bind, Key] = {
        Bind.PU: lambda pu: pu.os,
        Bind.CORE: lambda pu: pu.core,
        Bind.LLC: lambda pu: pu.llc,
        Bind.NODE: domain_of,
        Bind.PACKAGE: lambda pu: pu.package,
    }
    of = key[layout.bind]
    groups: dict[object, list[int]] = {}
    for pu in topology.pus:
        groups.setdefault(of(pu), []).append(pu.os)
    if None in groups:
        raise InputError(
            f"layout {layout.name}: bind = {layout.bind.value!r}, but {topology.source} names no "
            f"{layout.bind.value} for CPUs {cpuset.format_list(groups[None])}: use bind = 'core'"
        )
    masks = {group: tuple(sorted(cpus)) for group, cpus in groups.items()}
    return {pu.os: masks[of(pu)] for pu in topology.pus}


def _memory_nodes(topology: Topology, given: Sequence[Slot]) -> dict[int, int]:
    """Return the node to bind to by PU: home, else the nearest that the distances tell."""
    found: dict[int, int] = {}
    lost: list[int] = []
    for pu in dict.fromkeys(pu for slot in given for pu in slot):
        node = pu.node if pu.node is not None else _nearest_node(topology, pu.os)
        if node is None:
            lost.append(pu.os)
        else:
            found[pu.os] = node
    if lost:
        raise InputError(
            f"--mem bind: CPUs {cpuset.format_list(lost)} of {topology.source} belong to no NUMA "
            "node with memory, and no distances tell which is nearest: use --mem local, or "
            "copies and a layout that leave these CPUs out"
        )
    return found


def _nearest_node(topology: Topology, cpu: int) -> int | None:
    """Return the allowed ordinary node nearest to a CPU that lies in a forbidden one."""
    distances = [
        (distance, node.logical, node.os)
        for own in topology.nodes
        if cpu in own.cpus
        for node in topology.nodes
        if node.default and (distance := topology.distance(own.os, node.os)) is not None
    ]
    return min(distances)[2] if distances else None


def _warnings(
    topology: Topology, given: Sequence[Slot], memory: MemoryPolicy, threads: int
) -> tuple[str, ...]:
    firsts = [slot[0] for slot in given]
    warnings = list(_oversubscribed(topology, len(given), threads))
    if not warnings:
        if threads == 1:
            warnings += _sharing_cores(firsts)
        else:
            warnings += _meeting_in_cores(given) or _having_fewer_cores(given)
            warnings += _leaving_cores_idle(topology, given)
    astray = sum(len({domain_of(pu) for pu in slot}) > 1 for slot in given)
    if astray:
        warnings.append(
            f"{_count(astray, 'copy has', 'copies have')} CPUs in several lgroups: "
            "part of their memory is remote"
        )
    warnings += _unequal_nodes(firsts)
    kinds = Counter(pu.kind for pu in firsts)
    if len(kinds) > 1:
        shares = ", ".join(str(kinds[kind]) for kind in sorted(kinds, reverse=True))
        warnings.append(
            f"copies run on CPUs of {len(kinds)} speeds, from the fastest kind to the slowest: "
            f"{shares} copies"
        )
    homeless = {pu.os for slot in given for pu in slot if pu.node is None}
    if homeless and memory is not MemoryPolicy.BIND:
        warnings.append(
            f"{_count(len(homeless), 'CPU')} without memory of an own NUMA node "
            f"({cpuset.format_list(homeless)}): all memory of the copies there is remote"
        )
    return tuple(warnings)


def _oversubscribed(topology: Topology, copies: int, threads: int) -> tuple[str, ...]:
    pus = len(topology.pus)
    if copies * threads <= pus:
        return ()
    if threads > 1:
        return (
            f"{_count(copies, 'copy', 'copies')} of {threads} threads on "
            f"{_count(pus, 'usable PU')}: there are PUs with more than one thread to run",
        )
    each, more = divmod(copies, pus)
    crowd = f"{_count(each, 'copy', 'copies')} on each"
    if more:
        crowd = f"{each + 1} on {_count(more, 'PU')}, {each} on {_count(pus - more, 'PU')}"
    return (f"{copies} copies share {_count(pus, 'usable PU')}: {crowd}",)


def _sharing_cores(given: Sequence[PU]) -> list[str]:
    """Warn of copies that have half a core while others have a whole one."""
    cores = Counter(pu.core for pu in given)
    alone = sum(count == 1 for count in cores.values())
    if len(set(cores.values())) < 2:
        return []
    return [
        f"{len(given) - alone} copies share {_count(len(cores) - alone, 'core')} while {alone} run "
        "on cores of their own: they will not take equally long"
        if alone
        else f"cores run {min(cores.values())} to {max(cores.values())} copies each: "
        "they will not take equally long"
    ]


def _meeting_in_cores(given: Sequence[Slot]) -> list[str]:
    """Warn of copies that share a core with another one while others do not."""
    cores = Counter(core for slot in given for core in {pu.core for pu in slot})
    meeting = sum(any(cores[pu.core] > 1 for pu in slot) for slot in given)
    if meeting in (0, len(given)):
        return []
    return [
        f"{meeting} copies share a core with another one while {len(given) - meeting} do not: "
        "they will not take equally long"
    ]


def _having_fewer_cores(given: Sequence[Slot]) -> list[str]:
    """Warn of copies whose threads have fewer cores than those of others."""
    cores = [len({pu.core for pu in slot}) for slot in given]
    fewer = sum(count < max(cores) for count in cores)
    if not fewer:
        return []
    return [
        f"{_count(fewer, 'copy has', 'copies have')} fewer cores for the threads than "
        f"{len(given) - fewer} with {_count(max(cores), 'core')} each: "
        "they will not take equally long"
    ]


def _leaving_cores_idle(topology: Topology, given: Sequence[Slot]) -> list[str]:
    used = len({pu.core for slot in given for pu in slot})
    if used == len(topology.cores) or all(
        len({pu.core for pu in slot}) == len(slot) for slot in given
    ):
        return []
    return [
        f"copies use {used} of {len(topology.cores)} cores: threads share cores while others idle"
    ]


def _unequal_nodes(given: Sequence[PU]) -> list[str]:
    """Warn of lgroups that run more copies than others; those that run none do not matter."""
    by_count: dict[int, list[int]] = {}
    for node, count in Counter(pu.node for pu in given if pu.node is not None).items():
        by_count.setdefault(count, []).append(node)
    if len(by_count) < 2:
        return []
    shares = ", ".join(
        f"{count} on {'lgroups' if len(nodes) > 1 else 'lgroup'} {cpuset.format_list(nodes)}"
        + (" each" if len(nodes) > 1 else "")
        for count, nodes in sorted(by_count.items(), reverse=True)
    )
    return [f"lgroups run unequal numbers of copies: {shares}"]


def _count(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"
