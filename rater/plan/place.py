"""Topology, layout and number of copies in; one `Placement` per copy out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rater.errors import InputError
from rater.plan import cpuset
from rater.plan.deal import deal
from rater.plan.layout import Bind, Layout, Order
from rater.plan.memory import (
    AT_HOME,
    Memory,
    MemoryPolicy,
    MemorySupport,
    home_nodes,
    named_nodes,
    settled,
)
from rater.plan.orders import Key, Slot, domain_of
from rater.plan.topology import PU, Topology

__all__ = [
    "MOST_COPIES",
    "MemoryPolicy",
    "Placed",
    "Placement",
    "default_memory",
    "place",
    "resolve_copies",
    "settle",
]

MOST_COPIES = 99_999


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
    memory_nodes: tuple[int, ...]  # OS numbers, ascending; empty for LOCAL and NONE


@dataclass(frozen=True, slots=True)
class Placed:
    """A placement per copy, in the order of copies, and what a person should know of it."""

    placements: tuple[Placement, ...]
    warnings: tuple[str, ...]
    reserved: tuple[int, ...] = ()  # OS numbers of the PUs kept for the system, ascending
    most: int = 0  # copies that there is room for before a PU gets a second one


def place(
    topology: Topology,
    layout: Layout,
    copies: int,
    memory: Memory | MemoryPolicy,
    threads: int = 1,
) -> Placed:
    """Return where each of `copies` (at least 1) copies goes; same input, same answer.

    A copy of several `threads` gets as many neighbouring PUs; of them the first is its `cpu`.
    A bare policy has the nodes that it has by itself.
    Raises `InputError` when memory is to come from the home node and a copy has none,
    when nodes are named that the machine does not have, when the layout widens masks
    to an object that the machine does not have, and when the machine does not fit the
    layout in another way.
    """
    asked = memory if isinstance(memory, Memory) else Memory(memory)
    policy = asked.policy
    named = named_nodes(topology, asked)
    at_home = policy in AT_HOME and not named
    if layout.order is Order.NONE:
        if at_home:
            raise InputError(
                f"layout {layout.name} does not bind copies to CPUs, so there is no home node "
                f"for --mem {policy}: use --mem local, name nodes as in {policy}:nodes=0, or use "
                "another layout"
            )
        pus = len(topology.pus)
        loads = [copies // pus + (pu < copies % pus) for pu in range(pus)]
        return Placed(
            tuple(
                Placement(copy, None, None, None, None, None, None, policy, named)
                for copy in range(copies)
            ),
            _crowd(loads, pus) if threads == 1 else _crowd_of_threads(copies, pus, threads),
            most=max(1, pus // threads),
        )
    dealt = deal(topology, layout, copies, threads)
    given = dealt.slots
    homes = home_nodes(topology, (pu for slot in given for pu in slot), policy) if at_home else {}
    masks = _masks(dealt.topology, layout)
    placements = tuple(
        Placement(
            copy=copy,
            cpus=_united([masks[pu.os] for pu in slot]),
            cpu=slot[0].os,
            core=slot[0].core,
            llc=slot[0].llc,
            node=slot[0].node,
            package=slot[0].package,
            policy=policy,
            memory_nodes=tuple(sorted({homes[pu.os] for pu in slot})) if at_home else named,
        )
        for copy, slot in enumerate(given)
    )
    return Placed(
        placements,
        (
            *dealt.warnings,
            *_warnings(dealt.topology, given, policy, threads, homes),
            *_having_few_cpus(placements, threads),
            *(_wider_than_memory(dealt.topology, placements, policy) if at_home else ()),
        ),
        reserved=tuple(sorted(pu.os for pu in dealt.reserved)),
        most=dealt.most,
    )


def settle(
    placements: Sequence[Placement], support: MemorySupport
) -> tuple[tuple[Placement, ...], tuple[str, ...]]:
    """Return the placements with memory policies that this kernel has, and warnings of the change.

    Raises `InputError` for a policy that it does not have and that nothing stands in for.
    """
    found, warnings = [], []
    for placement in placements:
        policy, nodes, warning = settled(placement.policy, placement.memory_nodes, support)
        found.append(replace(placement, policy=policy, memory_nodes=nodes))
        warnings += [warning] if warning else []
    return tuple(found), tuple(dict.fromkeys(warnings))


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
            f"{layout.bind.value} for CPUs {cpuset.format_list(groups[None])}: use --bind core, or "
            'bind = "core" in the layout'
        )
    masks = {group: tuple(sorted(cpus)) for group, cpus in groups.items()}
    return {pu.os: masks[of(pu)] for pu in topology.pus}


def _united(masks: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return what several ascending masks hold together."""
    return masks[0] if len(masks) == 1 else tuple(sorted({cpu for mask in masks for cpu in mask}))


def _warnings(
    topology: Topology,
    given: Sequence[Slot],
    memory: MemoryPolicy,
    threads: int,
    homes: Mapping[int, int],
) -> tuple[str, ...]:
    firsts = [slot[0] for slot in given]
    loads = Counter(pu.os for slot in given for pu in slot)
    warnings = list(
        _crowd(loads.values(), len(topology.pus))
        if threads == 1
        else _crowd_of_threads(len(given), len(topology.pus), threads)
        or _sharing_pus(given, loads, len(topology.pus), threads)
    )
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
    if homeless and (homes or memory in (MemoryPolicy.LOCAL, MemoryPolicy.NONE)):
        nodes = {homes[cpu] for cpu in homeless & homes.keys()}
        source = f", from lgroup {cpuset.format_list(nodes)}" if nodes else ""
        warnings.append(
            f"{_count(len(homeless), 'CPU')} without memory of an own NUMA node "
            f"({cpuset.format_list(homeless)}): all memory of the copies there is remote"
            f"{source}"
        )
    return tuple(warnings)


def _crowd(loads: Collection[int], usable: int) -> tuple[str, ...]:
    """Warn of PUs that have several copies; `loads` are the copies on each PU that has any."""
    if max(loads) == 1:
        return ()
    pus = _count(usable, "usable PU")
    if len(loads) < usable:
        pus = f"{_count(len(loads), 'PU')} of {usable} usable ones"
    shares = sorted(Counter(loads).items(), reverse=True)
    crowd = ", ".join(f"{each} on {_count(on, 'PU')}" for each, on in shares)
    if len(shares) == 1:
        crowd = f"{_count(shares[0][0], 'copy', 'copies')} on each"
    return (f"{sum(loads)} copies share {pus}: {crowd}",)


def _crowd_of_threads(copies: int, pus: int, threads: int) -> tuple[str, ...]:
    """Warn of copies that have more threads together than there are PUs."""
    if copies * threads <= pus:
        return ()
    return (
        f"{_count(copies, 'copy', 'copies')} of {threads} threads on "
        f"{_count(pus, 'usable PU')}: there are PUs with more than one thread to run",
    )


def _sharing_pus(
    given: Sequence[Slot], loads: Mapping[int, int], usable: int, threads: int
) -> tuple[str, ...]:
    """Warn of copies of several threads that meet on PUs; `loads` are the copies by PU."""
    shared = sum(load > 1 for load in loads.values())
    if not shared:
        return ()
    copies = sum(any(loads[pu.os] > 1 for pu in slot) for slot in given)
    return (
        f"{copies} copies of {threads} threads share {_count(shared, 'PU')} of {usable} usable "
        "ones: there are PUs with more than one thread to run",
    )


def _having_few_cpus(placements: Sequence[Placement], threads: int) -> list[str]:
    """Warn of copies whose mask has fewer CPUs than they have threads."""
    few = [len(p.cpus) for p in placements if p.cpus is not None and len(p.cpus) < threads]
    if not few:
        return []
    least, most = min(few), max(few)
    cpus = _count(most, "CPU") if least == most else f"{least} to {most} CPUs"
    return [f"{_count(len(few), 'copy has', 'copies have')} {cpus} for {threads} threads"]


def _wider_than_memory(
    topology: Topology, placements: Sequence[Placement], memory: MemoryPolicy
) -> list[str]:
    """Warn of copies that may run beside other memory than that of their own lgroup."""
    node_of = {pu.os: pu.node for pu in topology.pus if pu.node is not None}
    wide = sum(
        not {node_of[cpu] for cpu in p.cpus or () if cpu in node_of} <= set(p.memory_nodes)
        and len({node_of.get(cpu) for cpu in p.cpus or ()}) > 1
        for p in placements
    )
    if not wide:
        return []
    return [
        f"{_count(wide, 'copy', 'copies')} may run on CPUs of several lgroups, and --mem {memory} "
        "takes memory of the first CPU's only: it is remote from the others"
    ]


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
