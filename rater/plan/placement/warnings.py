"""What a person should know of where copies are: shared CPUs and cores, unequal NUMA nodes, kinds.

What a copy may use is its mask, which can be wider than the CPUs that it was given:
copies share a core when they have no choice, not when they were given the same one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from rater.plan.placement.slots import Slot
from rater.plan.topology import Topology
from rater.record.run import MemoryPolicy, Placement
from rater.text import cpuset
from rater.text.values import copies_text, count, group_by_key

type Mask = tuple[int, ...]  # OS numbers, ascending


# -- Which copies share which cores ----------------------------------------------------------------


class CorePool(Struct, frozen=True):
    """Cores that some copies have among them, and no other copy."""

    copies: int
    cores: int
    pus: int  # in the masks of these copies


def pools(topology: Topology, masks: Sequence[Mask]) -> list[CorePool]:
    """Return the cores that copies (`masks` has one for each) share, each core in one pool.

    Cores are joined as in a union-find: cores of one mask are in one pool.
    """
    masks_by_id = {id(mask): mask for mask in masks}  # thousands of copies share one wide mask
    copies_by_id = Counter(map(id, masks))
    parents: dict[int, int] = {}  # core -> another core of its pool, itself at the root

    def root(core: int) -> int:
        while parents.setdefault(core, core) != core:
            parents[core] = core = parents[parents[core]]
        return core

    first_cores: dict[int, int] = {}
    for key, mask in masks_by_id.items():
        cores = {topology.by_cpu[cpu].core for cpu in mask}
        first_cores[key] = root(topology.by_cpu[mask[0]].core)
        for core in cores:
            parents[root(core)] = root(first_cores[key])
    copies: Counter[int] = Counter()
    pus: dict[int, set[int]] = defaultdict(set)
    for key, mask in masks_by_id.items():
        pool = root(first_cores[key])
        copies[pool] += copies_by_id[key]
        pus[pool].update(mask)
    cores_by_pool = Counter(map(root, list(parents)))
    return [CorePool(copies[pool], cores_by_pool[pool], len(pus[pool])) for pool in copies]


class _Copies(Struct, frozen=True, dict=True):
    """Copies with the PUs that they were given and the CPUs that they may run on."""

    topology: Topology  # what the layout leaves of the machine
    slots: Sequence[Slot]
    masks: Sequence[Mask]
    threads: int  # of each copy

    @cached_property
    def pools(self) -> list[CorePool]:
        return pools(self.topology, self.masks)

    @cached_property
    def loads(self) -> Counter[int]:
        """Copies by PU that they were given."""
        return Counter(pu.os for slot in self.slots for pu in slot)

    @cached_property
    def are_wide(self) -> list[bool]:
        """Whether each copy may run on more CPUs than it was given."""
        return [len(mask) > len(slot) for mask, slot in zip(self.masks, self.slots, strict=True)]

    @cached_property
    def cores_of_slots(self) -> list[set[int]]:
        return [{pu.core for pu in slot} for slot in self.slots]

    @property
    def usable_pus(self) -> int:
        return len(self.topology.pus)

    def by_mask[T](self, value: Callable[[Mask], T]) -> list[T]:
        """Return what is true of each copy's mask, computed once for each mask."""
        masks_by_id = {id(mask): mask for mask in self.masks}
        values = {key: value(mask) for key, mask in masks_by_id.items()}
        return [values[id(mask)] for mask in self.masks]


# -- The warnings, each of one question ------------------------------------------------------------


def unbound_warnings(pus: int, copies: int, threads: int) -> tuple[str, ...]:
    """Return what to know of copies that the kernel puts on any of `pus` usable PUs."""
    if threads > 1:
        warning = _describe_crowd_of_threads(copies, pus, threads)
    else:
        loads = [copies // pus + (pu < copies % pus) for pu in range(pus)]
        warning = _describe_crowd(loads, pus)
    return (warning,) if warning else ()


def placement_warnings(
    topology: Topology,
    slots: Sequence[Slot],
    placements: Sequence[Placement],
    threads: int,
    homes: Mapping[int, int] | None,
) -> tuple[str, ...]:
    """Return what to know of copies that have these PUs and may run on these CPUs.

    `topology` is what the layout leaves of the machine; `homes` are the NUMA nodes of
    memory by PU where the policy takes memory from the copy's own, else None.
    """
    policy = placements[0].memory_policy
    copies = _Copies(topology, slots, [placement.cpus or () for placement in placements], threads)
    warnings = (
        *_warn_of_shared_cpus(copies),
        _warn_of_slots_over_nodes(copies),
        _warn_of_unequal_nodes(copies),
        *_warn_of_kinds(copies),
        _warn_of_homeless_cpus(copies, policy, homes),
        _warn_of_few_cpus(copies),
        "" if homes is None else _warn_of_masks_wider_than_memory(copies, policy, homes),
    )
    return tuple(warning for warning in warnings if warning)


def _have(copies: int) -> str:
    """`1 copy has`, `2 copies have`."""
    return count(copies, "copy has", "copies have")


_UNEQUAL = ": they will not take equally long"
_SEVERAL_THREADS = "there are PUs with more than one thread to run"


def _warn_of_shared_cpus(copies: _Copies) -> list[str]:
    """Of several things that are shared only the worst is named: PUs before cores."""
    is_wide = any(copies.are_wide)
    if copies.threads == 1:
        crowd = (
            _describe_crowded_pools(copies)
            if is_wide
            else _describe_crowd(copies.loads.values(), copies.usable_pus)
        )
        return [crowd or _warn_of_shared_cores(copies)]
    crowd = _describe_crowd_of_threads(len(copies.slots), copies.usable_pus, copies.threads)
    if not crowd:
        crowd = _warn_of_shared_cores(copies) if is_wide else _warn_of_shared_pus(copies)
    if crowd:
        return [crowd]
    if is_wide:
        return []
    return [
        _warn_of_meetings_in_cores(copies) or _warn_of_fewer_cores(copies),
        _warn_of_idle_cores(copies),
    ]


def _describe_crowd(loads: Collection[int], usable_pus: int) -> str:
    """Return how many copies each PU has (`loads`, of those that have any); "" where it is one."""
    if max(loads) == 1:
        return ""
    pus = count(usable_pus, "usable PU")
    if len(loads) < usable_pus:
        pus = f"{count(len(loads), 'PU')} of {usable_pus} usable ones"
    pus_by_load = sorted(Counter(loads).items(), reverse=True)
    if len(pus_by_load) == 1:
        crowd = f"{copies_text(pus_by_load[0][0])} on each"
    else:
        crowd = ", ".join(f"{load} on {count(number, 'PU')}" for load, number in pus_by_load)
    return f"{sum(loads)} copies share {pus}: {crowd}"


def _describe_crowded_pools(copies: _Copies) -> str:
    full = [pool for pool in copies.pools if pool.copies > pool.pus]
    if not full:
        return ""
    pus, usable_pus = sum(pool.pus for pool in full), copies.usable_pus
    shared = f"{pus} PUs of {usable_pus} usable ones"
    if pus == usable_pus:
        shared = count(pus, "usable PU")
    loads = [pool.copies / pool.pus for pool in full]
    load = f"{min(loads):.3g}"
    if max(loads) > min(loads):
        load += f" to {max(loads):.3g}"
    return f"{sum(pool.copies for pool in full)} copies share {shared}: {load} for each PU"


def _describe_crowd_of_threads(copies: int, pus: int, threads: int) -> str:
    if copies * threads <= pus:
        return ""
    usable = count(pus, "usable PU")
    return f"{copies_text(copies)} of {threads} threads on {usable}: {_SEVERAL_THREADS}"


def _warn_of_shared_pus(copies: _Copies) -> str:
    shared = sum(load > 1 for load in copies.loads.values())
    if not shared:
        return ""
    sharing = sum(any(copies.loads[pu.os] > 1 for pu in slot) for slot in copies.slots)
    return (
        f"{sharing} copies of {copies.threads} threads share {count(shared, 'PU')} of "
        f"{copies.usable_pus} usable ones: {_SEVERAL_THREADS}"
    )


def _warn_of_shared_cores(copies: _Copies) -> str:
    """Warn where copies have no core of their own, unless all share equally."""
    tight = [pool for pool in copies.pools if pool.copies * copies.threads > pool.cores]
    sharing = sum(pool.copies for pool in tight)
    cores = sum(pool.cores for pool in tight)
    alone = len(copies.masks) - sharing
    loads = {pool.copies / pool.cores for pool in tight}
    if not tight or (len(loads) == 1 and not alone):
        return ""
    if copies.threads > 1 and alone:
        has = "has" if alone == 1 else "have"
        fact = f"{_have(sharing)} more threads than cores while {alone} {has} not"
    elif copies.threads > 1:
        fact = f"{sharing} copies of {copies.threads} threads share cores, and not all equally many"
    elif alone:
        runs = "runs" if alone == 1 else "run"
        shared = count(cores, "core")
        fact = f"{sharing} copies share {shared} while {alone} {runs} on cores of their own"
    else:
        fact = f"cores run {min(loads):.3g} to {max(loads):.3g} copies each"
    return fact + _UNEQUAL


def _warn_of_meetings_in_cores(copies: _Copies) -> str:
    slots_by_core = Counter(core for cores in copies.cores_of_slots for core in cores)
    meeting = sum(any(slots_by_core[core] > 1 for core in cores) for cores in copies.cores_of_slots)
    alone = len(copies.slots) - meeting
    if not meeting or not alone:
        return ""
    do = "does" if alone == 1 else "do"
    return f"{meeting} copies share a core with another one while {alone} {do} not{_UNEQUAL}"


def _warn_of_fewer_cores(copies: _Copies) -> str:
    cores = [len(cores) for cores in copies.cores_of_slots]
    most = max(cores)
    fewer = sum(number < most for number in cores)
    if not fewer:
        return ""
    return (
        f"{_have(fewer)} fewer cores for the threads than "
        f"{len(cores) - fewer} with {count(most, 'core')} each{_UNEQUAL}"
    )


def _warn_of_idle_cores(copies: _Copies) -> str:
    used, usable = len(set().union(*copies.cores_of_slots)), len(copies.topology.cores)
    has_core_each = [
        len(cores) == len(slot)
        for cores, slot in zip(copies.cores_of_slots, copies.slots, strict=True)
    ]
    if used == usable or all(has_core_each):
        return ""
    return f"copies use {used} of {usable} cores: threads share cores while others idle"


def _warn_of_slots_over_nodes(copies: _Copies) -> str:
    straying = sum(len({pu.domain for pu in slot}) > 1 for slot in copies.slots)
    if not straying:
        return ""
    return f"{_have(straying)} CPUs in several NUMA nodes: part of their memory is remote"


def _warn_of_unequal_nodes(copies: _Copies) -> str:
    """Warn of NUMA nodes that run more copies than others; those that run none do not matter.

    A copy whose mask was widened over several nodes runs in none of them in particular.
    """
    by_cpu = copies.topology.by_cpu
    are_inside = copies.by_mask(lambda mask: len({by_cpu[cpu].domain for cpu in mask}) == 1)
    copies_by_node = Counter(
        slot[0].node
        for slot, is_wide, is_inside in zip(copies.slots, copies.are_wide, are_inside, strict=True)
        if slot[0].node is not None and (is_inside or not is_wide)
    )
    nodes_by_load = group_by_key((load, node) for node, load in copies_by_node.items())
    if len(nodes_by_load) < 2:
        return ""
    loads = []
    for load, nodes in sorted(nodes_by_load.items(), reverse=True):
        text = f"{load} on node {cpuset.format_list(nodes)}"
        if len(nodes) > 1:
            text = f"{load} on nodes {cpuset.format_list(nodes)} each"
        loads.append(text)
    return f"NUMA nodes run unequal numbers of copies: {', '.join(loads)}"


def _warn_of_kinds(copies: _Copies) -> list[str]:
    """Warn of copies on CPUs of several speeds, or of several kinds whose speeds are not known."""
    unranked = copies.topology.unranked_kinds
    kind_of = {pu.os: pu.kind for pu in copies.topology.pus}
    kind_of |= {cpu: kind for kind, cpus in enumerate(unranked) for cpu in cpus}
    kinds_of_copies = copies.by_mask(lambda mask: {kind_of[cpu] for cpu in mask})
    kinds, unknown = ("kinds", ", and which is faster is not known") if unranked else ("speeds", "")
    warnings = []
    mixed = [len(kinds_of_copy) for kinds_of_copy in kinds_of_copies if len(kinds_of_copy) > 1]
    if mixed:
        warnings.append(
            f"{copies_text(len(mixed))} may run on CPUs of {max(mixed)} {kinds} each{unknown}: "
            "how long they take depends on where the kernel puts them"
        )
    copies_by_kind = Counter(
        min(kinds_of_copy) for kinds_of_copy in kinds_of_copies if len(kinds_of_copy) == 1
    )
    if len(copies_by_kind) > 1:
        kinds_in_order = sorted(copies_by_kind, reverse=not unranked)
        shares = ", ".join(str(copies_by_kind[kind]) for kind in kinds_in_order)
        order = unknown if unranked else ", from the fastest kind to the slowest"
        warnings.append(
            f"copies run on CPUs of {len(copies_by_kind)} {kinds}{order}: {shares} copies"
        )
    return warnings


def _warn_of_homeless_cpus(
    copies: _Copies, policy: MemoryPolicy, homes: Mapping[int, int] | None
) -> str:
    homeless = {pu.os: pu for slot in copies.slots for pu in slot if pu.node is None}
    if not homeless or (homes is None and policy not in (MemoryPolicy.LOCAL, MemoryPolicy.NONE)):
        return ""
    nodes = {node for cpu, node in (homes or {}).items() if cpu in homeless}
    source = f", from node {cpuset.format_list(nodes)}" if nodes else ""
    bare = {pu.bare_node for pu in homeless.values() if pu.bare_node is not None}
    if not bare or any(pu.bare_node is None for pu in homeless.values()):
        return (
            f"{count(len(homeless), 'CPU')} without memory of an own NUMA node "
            f"({cpuset.format_list(homeless)}): all memory of the copies there is remote{source}"
        )
    remote = [
        copy for copy, slot in enumerate(copies.slots) if any(pu.os in homeless for pu in slot)
    ]
    node, has = ("node", "has") if len(bare) == 1 else ("nodes", "have")
    whose = "copy" if len(remote) == 1 else "copies"
    return (
        f"{node} {cpuset.format_list(bare)} {has} no memory (CPUs {cpuset.format_list(homeless)}): "
        f"all memory of {whose} {cpuset.format_list(remote)} is remote{source}"
    )


def _warn_of_few_cpus(copies: _Copies) -> str:
    few = [len(mask) for mask in copies.masks if len(mask) < copies.threads]
    if not few:
        return ""
    least, most = min(few), max(few)
    cpus = count(most, "CPU") if least == most else f"{least} to {most} CPUs"
    return f"{_have(len(few))} {cpus} for {copies.threads} threads"


def _warn_of_masks_wider_than_memory(
    copies: _Copies, policy: MemoryPolicy, homes: Mapping[int, int]
) -> str:
    by_cpu = copies.topology.by_cpu
    nodes_of_copies = copies.by_mask(lambda mask: {by_cpu[cpu].node for cpu in mask})
    remote = 0
    for slot, nodes, is_wide in zip(copies.slots, nodes_of_copies, copies.are_wide, strict=True):
        memory_nodes = {homes[pu.os] for pu in slot}
        remote += is_wide and len(nodes) > 1 and not nodes - {None} <= memory_nodes
    if not remote:
        return ""
    return (
        f"{copies_text(remote)} may run on CPUs of several NUMA nodes, and --mem {policy} "
        "takes memory of the first CPU's only: it is remote from the others"
    )
