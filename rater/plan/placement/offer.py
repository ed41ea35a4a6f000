"""What a layout leaves of a machine to copies: filters, reserved cores, CPUs by name, counts; pure.

`offer_cpus` makes the `CpuOffer` that `rater.plan.placement.place` then deals out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.placement.expression import cpus_of, evaluate_expression, parse_cpus
from rater.plan.placement.layout import EXPLICIT, CpuOrder, Layout, MachineParts, options
from rater.plan.topology import PU, Domain, Topology, ranked
from rater.record.run import MOST_COPIES
from rater.system.errors import InputError
from rater.text import cpuset
from rater.text.values import group_by_key, interleave


class DomainShare(Struct, frozen=True):
    """How many copies the counts of a layout give to a domain."""

    domain: Domain
    copies: int

    @property
    def place(self) -> str:
        """The domain as people call it."""
        node = self.domain.node
        return "CPUs without a node" if node is None else f"node {node}"


class CpuOffer(Struct, frozen=True, kw_only=True):
    """A layout, and what it leaves of a machine to copies."""

    layout: Layout
    topology: Topology  # its `pus` are those for copies, with ranks counted among these
    reserved: tuple[PU, ...] = ()  # for the system and the supervisor, in logical order
    named: tuple[PU, ...] = ()  # by `list:` or `expr:`, in its order; filters may exclude some
    shares: tuple[DomainShare, ...] = ()  # by the layout's counts, in logical order

    @property
    def counted(self) -> Topology:
        """The machine that `--copies pus`, `cores` and `nodes` count: of named CPUs only these."""
        named = {pu.os for pu in self.named}
        pus = [pu for pu in self.topology.pus if pu.os in named]
        return restrict_to(self.topology, pus) if pus else self.topology

    def of_nodes(self) -> CpuOffer:
        """Return the offer without CPUs that no NUMA node holds, for `--copies nodes`.

        Layouts that say themselves which CPUs are for copies stay unchanged.
        """
        pus = [pu for pu in self.topology.pus if pu.node is not None]
        if self.layout.order in (CpuOrder.NONE, *EXPLICIT) or self.layout.counts or not pus:
            return self
        return replace(self, topology=restrict_to(self.topology, pus))


def offer_cpus(topology: Topology, layout: Layout) -> CpuOffer:
    """Return what a layout leaves of a machine.

    In this order: CPUs that the layout names are usable; excluded CPUs go; the reserved cores are
    taken from the rest of the machine (so `--reserve` costs copies nothing where they do not run);
    `only` and `kind` choose among the others; `smt` keeps the first threads of each core.
    Raises `InputError` for CPUs, NUMA nodes, cores and kinds that the machine does not have, and
    where no CPU remains.
    """
    order = layout.order
    if order is CpuOrder.NONE:
        return CpuOffer(layout=layout, topology=topology)
    listed = parse_cpus(layout.text) if order is CpuOrder.LIST else ()
    topology = topology.with_cpus((*listed, *layout.only.cpus))
    _check_parts(topology, layout.only, f"layout {layout.name}")
    _check_parts(topology, layout.exclude, f"layout {layout.name}: exclude")
    included = _without_excluded(topology, layout.exclude)
    reserved: tuple[PU, ...] = ()
    if layout.reserve:
        reserved = reserve(restrict_to(topology, included), layout.reserve)
    reserved_cpus = {pu.os for pu in reserved}
    chosen = _chosen(topology, layout, [pu for pu in included if pu.os not in reserved_cpus])
    if not chosen.pus:
        raise InputError(
            f"layout {layout.name} ({', '.join(options(layout))}) leaves none of the "
            f"{len(topology.pus)} usable CPUs of {topology.source} to copies: ask for less"
        )
    named: tuple[PU, ...] = ()
    if order is CpuOrder.LIST:
        # A list may name CPUs that `only`, `kind` or `smt` exclude: they are left out with a
        # warning. A reserved one is an error.
        unreserved = [pu for pu in topology.pus if pu.os not in reserved_cpus]
        named = cpus_of(restrict_to(topology, unreserved), layout.text)
    elif order is CpuOrder.EXPR:
        named = evaluate_expression(chosen, layout.text)
    shares = _count_shares(chosen, layout)
    return CpuOffer(layout=layout, topology=chosen, reserved=reserved, named=named, shares=shares)


def _without_excluded(topology: Topology, exclude: MachineParts) -> list[PU]:
    return [
        pu
        for pu in topology.pus
        if pu.os not in exclude.cpus
        and pu.node not in exclude.nodes
        and pu.core not in exclude.cores
    ]


def _chosen(topology: Topology, layout: Layout, pus: Sequence[PU]) -> Topology:
    """Return the machine with those of `pus` that `only`, `kind` and `smt` of a layout choose."""
    only = layout.only
    cpus = frozenset(only.cpus)
    kind = kind_number(topology, layout.kind) if layout.kind else None
    chosen = [
        pu
        for pu in pus
        if (not cpus or pu.os in cpus)
        and (not only.nodes or pu.node in only.nodes)
        and kind in (None, pu.kind)
    ]
    remaining = restrict_to(topology, chosen)
    if layout.smt is None:
        return remaining
    return restrict_to(remaining, [pu for pu in remaining.pus if pu.rank < layout.smt])


def restrict_to(topology: Topology, pus: Collection[PU]) -> Topology:
    """Return the machine with these of its usable PUs (in logical order) as the only ones.

    A PU's rank is counted anew among those of its core that remain.
    """
    if len(pus) == len(topology.pus):
        return topology
    return replace(topology, pus=ranked(pus), whole=topology.machine_pus)


def reserve(topology: Topology, cores: int) -> tuple[PU, ...]:
    """Return the PUs of `cores` whole cores to keep free of copies, in logical order.

    First the core of the lowest OS number, where interrupts arrive, then one of
    each other NUMA node, and so on in turn; in each the cores of the lowest OS numbers.
    Raises `InputError` when that would leave no core.
    """
    if cores >= len(topology.cores):
        raise InputError(
            f"reserve {cores}: {topology.source} has {len(topology.cores)} usable cores "
            "that are not excluded: reserve fewer, so that one is left for copies"
        )
    by_number = sorted(topology.cores, key=lambda core: min(pu.os for pu in core))
    domains = group_by_key((core[0].domain, core) for core in by_number)
    reserved = chain(*interleave(domains.values())[:cores])
    return tuple(sorted(reserved, key=lambda pu: pu.logical))


def kind_number(topology: Topology, kind: str) -> int:
    """Return the number (0 the slowest) of `fast`, `slow` or a number as text.

    Raises `InputError` for a kind that no usable CPU has, and where nothing tells which of several
    kinds is faster.
    """
    unranked = topology.unranked_kinds
    if unranked:
        kinds = ", ".join(f"CPUs {cpuset.format_list(cpus)}" for cpus in unranked)
        raise InputError(
            f"kind {kind}: {topology.source} has CPUs of {len(unranked)} kinds ({kinds}) and does "
            "not tell which is faster: name the CPUs, as in --layout "
            f"list:{cpuset.format_list(unranked[0])}"
        )
    by_kind = group_by_key((pu.kind, pu.os) for pu in topology.pus)
    number = {"fast": max(by_kind), "slow": min(by_kind)}.get(kind)
    if number is None:
        number = int(kind)
    if number not in by_kind:
        kinds = ", ".join(
            f"{usable} (CPUs {cpuset.format_list(by_kind[usable])})" for usable in sorted(by_kind)
        )
        raise InputError(f"kind {kind}: the usable CPUs of {topology.source} are of kind {kinds}")
    return number


def check_asked(topology: Topology, *, smt: int | None, kind: str | None) -> None:
    """Refuse `--smt` and `--kind` where the machine has nothing for them to choose from.

    `smt` and `kind` of a layout are not refused: a layout is for any machine. Raises `InputError`.
    """
    threads = max(Counter(pu.core for pu in topology.machine_pus).values())
    if smt is not None and smt > threads:
        has = "one thread" if threads == 1 else f"{threads} threads at most"
        most = "" if threads == 1 else f"use --smt {threads}, --smt 1, or "
        raise InputError(f"--smt {smt}: a core of {topology.source} has {has}: {most}leave it out")
    one_kind = len({pu.kind for pu in topology.machine_pus}) == 1 and not topology.unranked_kinds
    if kind in ("fast", "slow") and one_kind and not topology.details.has_kinds:
        raise InputError(
            f"--kind {kind}: {topology.source} does not tell the kinds of its CPUs: name CPUs "
            "(--layout list:0-3), or give an hwloc XML file (lstopo FILE.xml) or what "
            "`lscpu -e=CPU,NODE,SOCKET,CORE,CACHE,MAXMHZ` prints"
        )
    if kind in ("fast", "slow") and one_kind:
        raise InputError(
            f"--kind {kind}: all CPUs of {topology.source} are of one kind: leave it out"
        )


def _check_parts(topology: Topology, parts: MachineParts, where: str) -> None:
    """Refuse a layout made for another machine; CPUs that are only offline may be named."""
    existing = {
        "CPUs": {pu.os for pu in topology.machine_pus} | set(topology.details.offline),
        "NUMA nodes": set(topology.by_node),
        "cores": {pu.core for pu in topology.machine_pus},
    }
    for name, numbers in parts.named().items():
        absent = set(numbers) - existing[name]
        if absent:
            raise InputError(
                f"{where}: {topology.source} has no {name} {cpuset.format_list(absent)}; "
                f"it has {cpuset.format_list(existing[name])}"
            )


# -- What a layout's counts give to each domain, and what is wrong with counts for another machine -


def _count_shares(topology: Topology, layout: Layout) -> tuple[DomainShare, ...]:
    """Return the copies on each domain by the layout's counts, in logical order; () without.

    Raises `InputError` for counts of NUMA nodes where no copy can run, and when there is no
    copy, or more than can be.
    """
    counts = layout.counts
    if counts is None:
        return ()
    by_node = dict(counts.by_node)
    absent = by_node.keys() - {domain.node for domain in topology.domains}
    if absent:
        raise InputError(
            f"layout {layout.name}: its counts name NUMA nodes where no copy can run: "
            f"{_explain_absence(topology, [node for node in by_node if node in absent])}: "
            "change its counts"
        )
    shares = tuple(
        DomainShare(
            domain, counts.rest if domain.node is None else by_node.get(domain.node, counts.rest)
        )
        for domain in topology.domains
    )
    total = sum(share.copies for share in shares)
    if not 0 < total <= MOST_COPIES:
        raise InputError(
            f"layout {layout.name}: its counts add up to {total} copies on {topology.source}, "
            f"expected 1 to {MOST_COPIES}: change its counts"
        )
    return shares


def _explain_absence(topology: Topology, absent: Sequence[int]) -> str:
    reasons = group_by_key((_why_no_copies(topology, node), node) for node in absent)
    text = " and ".join(
        f"{cpuset.nodes_text(nodes)} {'are' if len(nodes) > 1 else 'is'} {reason}"
        for reason, nodes in reasons.items()
    )
    usable = cpuset.format_list(
        domain.node for domain in topology.domains if domain.node is not None
    )
    return f"{text}; on {topology.source} copies can run on node {usable or 'none'}"


def _why_no_copies(topology: Topology, number: int) -> str:
    node = topology.by_node.get(number)
    if node is None:
        return "not there"
    if any(pu.node == number for pu in topology.machine_pus):
        return "without a CPU that the layout may give to copies"
    if node.lacks_memory:
        return "without memory, so home of no CPU"
    if not node.allowed:
        return "not allowed as memory here, so home of no CPU"
    return "extra memory of CPUs that have another home" if node.cpus else "without CPUs"
