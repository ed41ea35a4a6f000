"""What a person should know of where copies are: shared CPUs and cores, unequal lgroups, kinds.

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
_UNEQUAL = ": they will not take equally long"


class CorePool(Struct, frozen=True):
    """Cores that some copies have among them, and no other copy."""

    copies: int
    cores: int
    pus: int  # in the masks of these copies


def pools(topology: Topology, masks: Sequence[Mask]) -> list[CorePool]:
    """Return the cores that copies (`masks` has one for each) share, each core in one pool."""
    distinct = {id(mask): mask for mask in masks}  # thousands of copies have the same wide mask
    count = Counter(map(id, masks))
    joined: dict[int, int] = {}  # core -> another core of its pool, itself at the root

    def root(core: int) -> int:
        while joined.setdefault(core, core) != core:
            joined[core] = core = joined[joined[core]]
        return core

    firsts: dict[int, int] = {}
    for key, mask in distinct.items():
        cores = {topology.by_cpu[cpu].core for cpu in mask}
        firsts[key] = root(topology.by_cpu[mask[0]].core)
        for core in cores:
            joined[root(core)] = root(firsts[key])
    copies: Counter[int] = Counter()
    pus: dict[int, set[int]] = defaultdict(set)
    for key, mask in distinct.items():
        pool = root(firsts[key])
        copies[pool] += count[key]
        pus[pool].update(mask)
    cores_of = Counter(map(root, list(joined)))
    return [CorePool(copies[pool], cores_of[pool], len(pus[pool])) for pool in copies]


class _Copies(Struct, frozen=True, dict=True):
    """Copies with the PUs that they were given and the CPUs that they may run on."""

    topology: Topology  # what the layout leaves of the machine
    given: Sequence[Slot]
    masks: Sequence[Mask]
    threads: int

    @cached_property
    def pools(self) -> list[CorePool]:
        return pools(self.topology, self.masks)

    @cached_property
    def loads(self) -> Counter[int]:
        """Copies by PU that they were given."""
        return Counter(pu.os for slot in self.given for pu in slot)

    @cached_property
    def wide(self) -> list[bool]:
        """Whether each copy may run on more CPUs than it was given."""
        return [len(mask) > len(slot) for mask, slot in zip(self.masks, self.given, strict=True)]

    @property
    def usable(self) -> int:
        return len(self.topology.pus)

    def by_mask[T](self, value: Callable[[Mask], T]) -> list[T]:
        """Return what is true of each copy's mask, computed once for each mask."""
        values = {key: value(mask) for key, mask in {id(m): m for m in self.masks}.items()}
        return [values[id(mask)] for mask in self.masks]


def unbound_warnings(pus: int, copies: int, threads: int) -> tuple[str, ...]:
    """Return what to know of copies that the kernel puts on any of `pus` usable PUs."""
    if threads > 1:
        warning = _crowd_of_threads(copies, pus, threads)
    else:
        warning = _crowd([copies // pus + (pu < copies % pus) for pu in range(pus)], pus)
    return (warning,) if warning else ()


def placement_warnings(
    topology: Topology,
    given: Sequence[Slot],
    placements: Sequence[Placement],
    threads: int,
    homes: Mapping[int, int] | None,
) -> tuple[str, ...]:
    """Return what to know of copies that have these PUs and may run on these CPUs.

    `topology` is what the layout leaves of the machine; `homes` are the lgroups of
    memory by PU where the policy takes memory from the copy's own, else None.
    """
    policy = placements[0].memory_policy
    copies = _Copies(topology, given, [placement.cpus or () for placement in placements], threads)
    found = (
        *_crowded(copies),
        _over_several_lgroups(copies),
        _unequal_lgroups(copies),
        *_kinds(copies),
        _homeless(copies, policy, homes),
        _having_few_cpus(copies),
        "" if homes is None else _wider_than_memory(copies, policy, homes),
    )
    return tuple(warning for warning in found if warning)


def _crowded(it: _Copies) -> list[str]:
    wide = any(it.wide)
    if it.threads == 1:
        crowd = _crowded_pools(it) if wide else _crowd(it.loads.values(), it.usable)
        return [crowd or _sharing_cores(it)]
    crowd = _crowd_of_threads(len(it.given), it.usable, it.threads)
    if crowd := crowd or (_sharing_cores(it) if wide else _sharing_pus(it)):
        return [crowd]
    return (
        [] if wide else [_meeting_in_cores(it) or _having_fewer_cores(it), _leaving_cores_idle(it)]
    )


def _crowd(loads: Collection[int], usable: int) -> str:
    if max(loads) == 1:
        return ""
    pus = count(usable, "usable PU")
    if len(loads) < usable:
        pus = f"{count(len(loads), 'PU')} of {usable} usable ones"
    shares = sorted(Counter(loads).items(), reverse=True)
    crowd = ", ".join(f"{each} on {count(on, 'PU')}" for each, on in shares)
    if len(shares) == 1:
        crowd = f"{copies_text(shares[0][0])} on each"
    return f"{sum(loads)} copies share {pus}: {crowd}"


def _crowded_pools(it: _Copies) -> str:
    full = [pool for pool in it.pools if pool.copies > pool.pus]
    if not full:
        return ""
    pus = sum(pool.pus for pool in full)
    which = count(pus, "usable PU") if pus == it.usable else f"{pus} PUs of {it.usable} usable ones"
    loads = [pool.copies / pool.pus for pool in full]
    each = f"{min(loads):.3g}"
    if max(loads) > min(loads):
        each += f" to {max(loads):.3g}"
    return f"{sum(pool.copies for pool in full)} copies share {which}: {each} for each PU"


def _crowd_of_threads(copies: int, pus: int, threads: int) -> str:
    if copies * threads <= pus:
        return ""
    return (
        f"{copies_text(copies)} of {threads} threads on "
        f"{count(pus, 'usable PU')}: there are PUs with more than one thread to run"
    )


def _sharing_pus(it: _Copies) -> str:
    shared = sum(load > 1 for load in it.loads.values())
    if not shared:
        return ""
    copies = sum(any(it.loads[pu.os] > 1 for pu in slot) for slot in it.given)
    return (
        f"{copies} copies of {it.threads} threads share {count(shared, 'PU')} of {it.usable} "
        "usable ones: there are PUs with more than one thread to run"
    )


def _sharing_cores(it: _Copies) -> str:
    tight = [pool for pool in it.pools if pool.copies * it.threads > pool.cores]
    loads = {pool.copies / pool.cores for pool in tight}
    copies, cores = (sum(pool.copies for pool in tight), sum(pool.cores for pool in tight))
    alone = len(it.masks) - copies
    if not tight or (len(loads) == 1 and not alone):
        return ""
    if it.threads > 1 and alone:
        has = "has" if alone == 1 else "have"
        what = f"{count(copies, 'copy has', 'copies have')} more threads than cores while {alone} "
        what += f"{has} not"
    elif it.threads > 1:
        what = f"{copies} copies of {it.threads} threads share cores, and not all equally many"
    elif alone:
        runs = "runs" if alone == 1 else "run"
        what = f"{copies} copies share {count(cores, 'core')} while {alone} {runs} on cores of "
        what += "their own"
    else:
        what = f"cores run {min(loads):.3g} to {max(loads):.3g} copies each"
    return what + _UNEQUAL


def _meeting_in_cores(it: _Copies) -> str:
    cores = Counter(core for slot in it.given for core in {pu.core for pu in slot})
    meeting = sum(any(cores[pu.core] > 1 for pu in slot) for slot in it.given)
    alone = len(it.given) - meeting
    if not meeting or not alone:
        return ""
    do = "does" if alone == 1 else "do"
    return f"{meeting} copies share a core with another one while {alone} {do} not{_UNEQUAL}"


def _having_fewer_cores(it: _Copies) -> str:
    cores = [len({pu.core for pu in slot}) for slot in it.given]
    fewer = sum(own < max(cores) for own in cores)
    if not fewer:
        return ""
    return (
        f"{count(fewer, 'copy has', 'copies have')} fewer cores for the threads than "
        f"{len(it.given) - fewer} with {count(max(cores), 'core')} each{_UNEQUAL}"
    )


def _leaving_cores_idle(it: _Copies) -> str:
    used, there = len({pu.core for slot in it.given for pu in slot}), len(it.topology.cores)
    if used == there or all(len({pu.core for pu in slot}) == len(slot) for slot in it.given):
        return ""
    return f"copies use {used} of {there} cores: threads share cores while others idle"


def _over_several_lgroups(it: _Copies) -> str:
    straying = sum(len({pu.domain for pu in slot}) > 1 for slot in it.given)
    if not straying:
        return ""
    return (
        f"{count(straying, 'copy has', 'copies have')} CPUs in several NUMA nodes: "
        "part of their memory is remote"
    )


def _unequal_lgroups(it: _Copies) -> str:
    """Warn of lgroups that run more copies than others; those that run none do not matter.

    A copy whose mask was widened over several lgroups runs in none of them in particular.
    """
    inside = it.by_mask(lambda mask: len({it.topology.by_cpu[cpu].domain for cpu in mask}) == 1)
    copies = Counter(
        slot[0].node
        for slot, wide, in_one in zip(it.given, it.wide, inside, strict=True)
        if slot[0].node is not None and (in_one or not wide)
    )
    by_count = group_by_key((copies, node) for node, copies in copies.items())
    if len(by_count) < 2:
        return ""
    shares = ", ".join(
        f"{each} on {'nodes' if len(nodes) > 1 else 'node'} {cpuset.format_list(nodes)}"
        + (" each" if len(nodes) > 1 else "")
        for each, nodes in sorted(by_count.items(), reverse=True)
    )
    return f"NUMA nodes run unequal numbers of copies: {shares}"


def _kinds(it: _Copies) -> list[str]:
    unranked = it.topology.unranked_kinds
    kind_of = {pu.os: pu.kind for pu in it.topology.pus}
    kind_of |= {cpu: kind for kind, cpus in enumerate(unranked) for cpu in cpus}
    kinds_of = it.by_mask(lambda mask: {kind_of[cpu] for cpu in mask})
    what, unknown = ("kinds", ", and which is faster is not known") if unranked else ("speeds", "")
    found = []
    mixed = [len(kinds) for kinds in kinds_of if len(kinds) > 1]
    if mixed:
        found.append(
            f"{copies_text(len(mixed))} may run on CPUs of {max(mixed)} "
            f"{what} each{unknown}: how long they take depends on where the kernel puts them"
        )
    one = Counter(min(kinds) for kinds in kinds_of if len(kinds) == 1)
    if len(one) > 1:
        shares = ", ".join(str(one[kind]) for kind in sorted(one, reverse=not unranked))
        order = unknown if unranked else ", from the fastest kind to the slowest"
        found.append(f"copies run on CPUs of {len(one)} {what}{order}: {shares} copies")
    return found


def _homeless(it: _Copies, policy: MemoryPolicy, homes: Mapping[int, int] | None) -> str:
    homeless = {pu.os for slot in it.given for pu in slot if pu.node is None}
    if not homeless or (homes is None and policy not in (MemoryPolicy.LOCAL, MemoryPolicy.NONE)):
        return ""
    nodes = {node for cpu, node in (homes or {}).items() if cpu in homeless}
    source = f", from node {cpuset.format_list(nodes)}" if nodes else ""
    return (
        f"{count(len(homeless), 'CPU')} without memory of an own NUMA node "
        f"({cpuset.format_list(homeless)}): all memory of the copies there is remote{source}"
    )


def _having_few_cpus(it: _Copies) -> str:
    few = [len(mask) for mask in it.masks if len(mask) < it.threads]
    if not few:
        return ""
    least, most = min(few), max(few)
    cpus = count(most, "CPU") if least == most else f"{least} to {most} CPUs"
    return f"{count(len(few), 'copy has', 'copies have')} {cpus} for {it.threads} threads"


def _wider_than_memory(it: _Copies, policy: MemoryPolicy, homes: Mapping[int, int]) -> str:
    nodes_of = it.by_mask(lambda mask: {it.topology.by_cpu[cpu].node for cpu in mask})
    wide = sum(
        wide and len(nodes) > 1 and not nodes - {None} <= {homes[pu.os] for pu in slot}
        for slot, nodes, wide in zip(it.given, nodes_of, it.wide, strict=True)
    )
    if not wide:
        return ""
    return (
        f"{copies_text(wide)} may run on CPUs of several NUMA nodes, and --mem {policy} "
        "takes memory of the first CPU's only: it is remote from the others"
    )
