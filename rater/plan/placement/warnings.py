"""What a person should know of where copies are: shared CPUs and cores, unequal lgroups, kinds.

What a copy may use is its mask, which can be wider than the CPUs that it was given:
copies share a core when they have no choice, not when they were given the same one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rater.groups import grouped
from rater.plan.placement.memory_policy import MemoryPolicy
from rater.plan.placement.orders import Slot
from rater.plan.topology.model import Topology
from rater.text import cpuset
from rater.text.words import copies_text, count

type Mask = tuple[int, ...]  # OS numbers, ascending


@dataclass(frozen=True, slots=True)
class Pool:
    """Cores that some copies have among them, and no other copy."""

    copies: int
    cores: int
    pus: int  # in the masks of these copies


def pools(topology: Topology, masks: Sequence[Mask]) -> list[Pool]:
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
    return [Pool(copies[pool], cores_of[pool], len(pus[pool])) for pool in copies]


def unbound_warnings(pus: int, copies: int, threads: int) -> tuple[str, ...]:
    """Return what to know of copies that the kernel puts on any of `pus` usable PUs."""
    if threads > 1:
        return _crowd_of_threads(copies, pus, threads)
    return _crowd([copies // pus + (pu < copies % pus) for pu in range(pus)], pus)


def placement_warnings(
    topology: Topology,
    given: Sequence[Slot],
    masks: Sequence[Mask],
    *,
    threads: int,
    policy: MemoryPolicy,
    homes: Mapping[int, int] | None,
) -> tuple[str, ...]:
    """Return what to know of copies that have these PUs and may run on these CPUs.

    `topology` is what the layout leaves of the machine; `homes` are the lgroups of
    memory by PU where the policy takes memory from the copy's own, else None.
    """
    said = [
        *_crowded(topology, given, masks, threads),
        *_over_several_lgroups(given),
        *_unequal_nodes(topology, given, masks),
        *_kinds(topology, masks),
    ]
    homeless = {pu.os for slot in given for pu in slot if pu.node is None}
    if homeless and (homes is not None or policy in (MemoryPolicy.LOCAL, MemoryPolicy.NONE)):
        nodes = {node for cpu, node in (homes or {}).items() if cpu in homeless}
        source = f", from lgroup {cpuset.format_list(nodes)}" if nodes else ""
        said.append(
            f"{count(len(homeless), 'CPU')} without memory of an own NUMA node "
            f"({cpuset.format_list(homeless)}): all memory of the copies there is remote"
            f"{source}"
        )
    said += _having_few_cpus(masks, threads)
    if homes is not None:
        said += _wider_than_memory(topology, given, masks, policy, homes)
    return tuple(said)


def _crowded(
    topology: Topology, given: Sequence[Slot], masks: Sequence[Mask], threads: int
) -> list[str]:
    """Warn of CPUs and cores that copies share, the worst only."""
    usable = len(topology.pus)
    loads = Counter(pu.os for slot in given for pu in slot)
    wide = any(len(mask) > len(slot) for mask, slot in zip(masks, given, strict=True))
    shared = pools(topology, masks)
    if threads > 1:
        found = list(_crowd_of_threads(len(given), usable, threads))
        if not wide:
            found = found or _sharing_pus(given, loads, usable, threads)
            found = found or [
                *(_meeting_in_cores(given) or _having_fewer_cores(given)),
                *_leaving_cores_idle(topology, given),
            ]
        return found or (_sharing_cores(shared, threads) if wide else [])
    if wide:
        return _crowded_pools(shared, usable) or _sharing_cores(shared)
    return [*_crowd(loads.values(), usable)] or _sharing_cores(shared)


def _crowd(loads: Collection[int], usable: int) -> tuple[str, ...]:
    """Warn of PUs that have several copies; `loads` are the copies on each PU that has any."""
    if max(loads) == 1:
        return ()
    pus = count(usable, "usable PU")
    if len(loads) < usable:
        pus = f"{count(len(loads), 'PU')} of {usable} usable ones"
    shares = sorted(Counter(loads).items(), reverse=True)
    crowd = ", ".join(f"{each} on {count(on, 'PU')}" for each, on in shares)
    if len(shares) == 1:
        crowd = f"{copies_text(shares[0][0])} on each"
    return (f"{sum(loads)} copies share {pus}: {crowd}",)


def _crowded_pools(shared: Sequence[Pool], usable: int) -> list[str]:
    """Warn of CPUs among which more copies move than there are CPUs."""
    full = [pool for pool in shared if pool.copies > pool.pus]
    if not full:
        return []
    pus = sum(pool.pus for pool in full)
    which = count(pus, "usable PU") if pus == usable else f"{pus} PUs of {usable} usable ones"
    loads = [pool.copies / pool.pus for pool in full]
    each = f"{min(loads):.3g}"
    if max(loads) > min(loads):
        each += f" to {max(loads):.3g}"
    return [f"{sum(pool.copies for pool in full)} copies share {which}: {each} for each PU"]


def _crowd_of_threads(copies: int, pus: int, threads: int) -> tuple[str, ...]:
    """Warn of copies that have more threads together than there are PUs."""
    if copies * threads <= pus:
        return ()
    return (
        f"{copies_text(copies)} of {threads} threads on "
        f"{count(pus, 'usable PU')}: there are PUs with more than one thread to run",
    )


def _sharing_pus(
    given: Sequence[Slot], loads: Mapping[int, int], usable: int, threads: int
) -> list[str]:
    """Warn of copies of several threads that meet on PUs; `loads` are the copies by PU."""
    shared = sum(load > 1 for load in loads.values())
    if not shared:
        return []
    copies = sum(any(loads[pu.os] > 1 for pu in slot) for slot in given)
    return [
        f"{copies} copies of {threads} threads share {count(shared, 'PU')} of {usable} usable "
        "ones: there are PUs with more than one thread to run",
    ]


def _sharing_cores(shared: Sequence[Pool], threads: int = 1) -> list[str]:
    """Warn of copies that have less than a core while others have more of one."""
    tight = [pool for pool in shared if pool.copies * threads > pool.cores]
    loads = {pool.copies / pool.cores for pool in tight}
    alone = sum(pool.copies for pool in shared) - sum(pool.copies for pool in tight)
    if not tight or (len(loads) == 1 and not alone):
        return []
    copies, cores = (sum(pool.copies for pool in tight), sum(pool.cores for pool in tight))
    if threads > 1:
        return [
            f"{count(copies, 'copy has', 'copies have')} more threads than cores while {alone} "
            f"{'has' if alone == 1 else 'have'} not: they will not take equally long"
            if alone
            else f"{copies} copies of {threads} threads share cores, and not all equally many: "
            "they will not take equally long"
        ]
    return [
        f"{copies} copies share {count(cores, 'core')} while {alone} "
        f"{'runs' if alone == 1 else 'run'} on cores of their own: they will not take equally long"
        if alone
        else f"cores run {min(loads):.3g} to {max(loads):.3g} copies each: "
        "they will not take equally long"
    ]


def _meeting_in_cores(given: Sequence[Slot]) -> list[str]:
    """Warn of copies that share a core with another one while others do not."""
    cores = Counter(core for slot in given for core in {pu.core for pu in slot})
    meeting = sum(any(cores[pu.core] > 1 for pu in slot) for slot in given)
    if meeting in (0, len(given)):
        return []
    alone = len(given) - meeting
    return [
        f"{meeting} copies share a core with another one while {alone} "
        f"{'does' if alone == 1 else 'do'} not: they will not take equally long"
    ]


def _having_fewer_cores(given: Sequence[Slot]) -> list[str]:
    """Warn of copies whose threads have fewer cores than those of others."""
    cores = [len({pu.core for pu in slot}) for slot in given]
    fewer = sum(count < max(cores) for count in cores)
    if not fewer:
        return []
    return [
        f"{count(fewer, 'copy has', 'copies have')} fewer cores for the threads than "
        f"{len(given) - fewer} with {count(max(cores), 'core')} each: "
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


def _over_several_lgroups(given: Sequence[Slot]) -> list[str]:
    straying = sum(len({pu.domain for pu in slot}) > 1 for slot in given)
    if not straying:
        return []
    return [
        f"{count(straying, 'copy has', 'copies have')} CPUs in several lgroups: "
        "part of their memory is remote"
    ]


def _unequal_nodes(topology: Topology, given: Sequence[Slot], masks: Sequence[Mask]) -> list[str]:
    """Warn of lgroups that run more copies than others; those that run none do not matter.

    A copy whose mask was widened over several lgroups runs in none of them in particular.
    """
    inside: dict[int, bool] = {}
    for mask in masks:
        if id(mask) not in inside:
            inside[id(mask)] = len({topology.by_cpu[cpu].domain for cpu in mask}) == 1
    nodes = Counter(
        slot[0].node
        for slot, mask in zip(given, masks, strict=True)
        if slot[0].node is not None and (inside[id(mask)] or len(mask) == len(slot))
    )
    by_count = grouped((copies, node) for node, copies in nodes.items())
    if len(by_count) < 2:
        return []
    shares = ", ".join(
        f"{count} on {'lgroups' if len(nodes) > 1 else 'lgroup'} {cpuset.format_list(nodes)}"
        + (" each" if len(nodes) > 1 else "")
        for count, nodes in sorted(by_count.items(), reverse=True)
    )
    return [f"lgroups run unequal numbers of copies: {shares}"]


def _kinds(topology: Topology, masks: Sequence[Mask]) -> list[str]:
    """Warn of copies that run on CPUs of different speeds, or of different kinds at least."""
    unranked = topology.unranked_kinds
    kind_of = {pu.os: pu.kind for pu in topology.pus}
    kind_of |= {cpu: kind for kind, cpus in enumerate(unranked) for cpu in cpus}
    distinct = {id(mask): mask for mask in masks}
    kinds_of = {key: {kind_of[cpu] for cpu in mask} for key, mask in distinct.items()}
    what, unknown = ("kinds", ", and which is faster is not known") if unranked else ("speeds", "")
    found = []
    mixed = [kinds_of[id(mask)] for mask in masks if len(kinds_of[id(mask)]) > 1]
    if mixed:
        found.append(
            f"{copies_text(len(mixed))} may run on CPUs of {max(map(len, mixed))} "
            f"{what} each{unknown}: how long they take depends on where the kernel puts them"
        )
    one = Counter(min(kinds_of[id(mask)]) for mask in masks if len(kinds_of[id(mask)]) == 1)
    if len(one) > 1:
        shares = ", ".join(str(one[kind]) for kind in sorted(one, reverse=not unranked))
        order = unknown if unranked else ", from the fastest kind to the slowest"
        found.append(f"copies run on CPUs of {len(one)} {what}{order}: {shares} copies")
    return found


def _having_few_cpus(masks: Sequence[Mask], threads: int) -> list[str]:
    """Warn of copies whose mask has fewer CPUs than they have threads."""
    few = [len(mask) for mask in masks if len(mask) < threads]
    if not few:
        return []
    least, most = min(few), max(few)
    cpus = count(most, "CPU") if least == most else f"{least} to {most} CPUs"
    return [f"{count(len(few), 'copy has', 'copies have')} {cpus} for {threads} threads"]


def _wider_than_memory(
    topology: Topology,
    given: Sequence[Slot],
    masks: Sequence[Mask],
    policy: MemoryPolicy,
    homes: Mapping[int, int],
) -> list[str]:
    """Warn of copies that may run beside other memory than that of their own lgroup."""
    wide = 0
    for slot, mask in zip(given, masks, strict=True):
        if len(mask) == len(slot):
            continue
        nodes = {topology.by_cpu[cpu].node for cpu in mask}
        wide += len(nodes) > 1 and not nodes - {None} <= {homes[pu.os] for pu in slot}
    if not wide:
        return []
    return [
        f"{copies_text(wide)} may run on CPUs of several lgroups, and --mem {policy} "
        "takes memory of the first CPU's only: it is remote from the others"
    ]
