"""What of a machine a layout leaves to its copies: exclusions, reserved cores, filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

from rater.errors import InputError
from rater.groups import grouped
from rater.plan.placement.layout import Layout, Parts
from rater.plan.placement.layout_options import options
from rater.plan.placement.orders import in_turn
from rater.plan.topology.model import PU, Topology, ranked
from rater.text import cpuset


@dataclass(frozen=True, slots=True)
class Filtered:
    """A machine as a layout sees it."""

    topology: Topology  # with the PUs that copies are given, ranks counted among these
    open: Topology  # before `only`, `exclude`, `kind` and `smt`: all but the reserved cores
    reserved: tuple[PU, ...]  # for the system and the supervisor, in logical order


def apply_filters(topology: Topology, layout: Layout) -> Filtered:
    """Return what a layout leaves of a machine.

    In this order: excluded CPUs go; the reserved cores are taken from the rest of
    the machine (so `--reserve` costs copies nothing where they do not run); `only`
    and `kind` choose among what is left; `smt` keeps the first threads of each core.
    Raises `InputError` for CPUs, lgroups, cores and kinds that the machine does not
    have, and when nothing is left.
    """
    _check_parts(topology, layout.only, f"layout {layout.name}")
    _check_parts(topology, layout.exclude, f"layout {layout.name}: exclude")
    may = _without(topology, layout.exclude) if layout.exclude else topology
    reserved = reserve(may, layout.reserve) if layout.reserve else ()
    taken = {pu.os for pu in reserved}
    pus = [pu for pu in may.pus if pu.os not in taken]
    if layout.only.cpus:
        cpus = set(layout.only.cpus)
        pus = [pu for pu in pus if pu.os in cpus]
    if layout.only.nodes:
        nodes = set(layout.only.nodes)
        pus = [pu for pu in pus if pu.node in nodes]
    if layout.kind:
        wanted = kind_number(topology, layout.kind)
        pus = [pu for pu in pus if pu.kind == wanted]
    left = keep(topology, pus)
    if layout.smt is not None:
        left = keep(topology, [pu for pu in left.pus if pu.rank < layout.smt])
    if not left.pus:
        raise InputError(
            f"layout {layout.name} ({', '.join(options(layout))}) leaves none of the "
            f"{len(topology.pus)} usable CPUs of {topology.source} to copies: ask for less"
        )
    rest = keep(topology, [pu for pu in topology.pus if pu.os not in taken]) if taken else topology
    return Filtered(left, rest, reserved)


def keep(topology: Topology, pus: Collection[PU]) -> Topology:
    """Return the machine with these of its usable PUs (in logical order) as the only ones.

    A PU's rank is counted anew among those of its core that are left.
    """
    if len(pus) == len(topology.pus):
        return topology
    return replace(topology, pus=ranked(pus), whole=topology.machine_pus)


def reserve(topology: Topology, cores: int) -> tuple[PU, ...]:
    """Return the PUs of `cores` whole cores to keep free of copies, in logical order.

    First the core of the lowest OS number, where interrupts arrive, then one of
    each other lgroup, and so on in turn; in each the cores of the lowest OS numbers.
    Raises `InputError` when that would leave no core.
    """
    if cores >= len(topology.cores):
        raise InputError(
            f"reserve {cores}: {topology.source} has {len(topology.cores)} usable cores "
            "that are not excluded: reserve fewer, so that one is left for copies"
        )
    by_number = sorted(topology.cores, key=lambda core: min(pu.os for pu in core))
    lgroups = grouped((core[0].domain, core) for core in by_number)
    taken = (pu for core in in_turn(lgroups.values())[:cores] for pu in core)
    return tuple(sorted(taken, key=lambda pu: pu.logical))


def kind_number(topology: Topology, kind: str) -> int:
    """Return the number (0 the slowest) of `fast`, `slow` or a number as text.

    Raises `InputError` for one that the usable CPUs are not of, and where nothing tells
    which of several kinds is faster.
    """
    unranked = topology.unranked_kinds
    if unranked:
        kinds = ", ".join(f"CPUs {cpuset.format_list(cpus)}" for cpus in unranked)
        raise InputError(
            f"kind {kind}: {topology.source} has CPUs of {len(unranked)} kinds ({kinds}) and does "
            "not tell which is faster: name the CPUs, as in --layout "
            f"list:{cpuset.format_list(unranked[0])}"
        )
    by_kind = grouped((pu.kind, pu.os) for pu in topology.pus)
    number = {"fast": max(by_kind), "slow": min(by_kind)}.get(kind)
    if number is None:
        number = int(kind)
    if number not in by_kind:
        kinds = ", ".join(f"{k} (CPUs {cpuset.format_list(by_kind[k])})" for k in sorted(by_kind))
        raise InputError(f"kind {kind}: the usable CPUs of {topology.source} are of kind {kinds}")
    return number


def check_asked(topology: Topology, *, smt: int | None, kind: str | None) -> None:
    """Refuse `--smt` and `--kind` where the machine has nothing for them to choose from.

    A layout's own are not held to it: it is for any machine. Raises `InputError`.
    """
    threads = max(Counter(pu.core for pu in topology.machine_pus).values())
    if smt is not None and smt > threads:
        has = "one thread" if threads == 1 else f"{threads} threads at most"
        most = "" if threads == 1 else f"use --smt {threads}, --smt 1, or "
        raise InputError(f"--smt {smt}: a core of {topology.source} has {has}: {most}leave it out")
    one_kind = len({pu.kind for pu in topology.machine_pus}) == 1 and not topology.unranked_kinds
    if kind in ("fast", "slow") and one_kind:
        raise InputError(
            f"--kind {kind}: all CPUs of {topology.source} are of one kind: leave it out"
        )


def _without(topology: Topology, parts: Parts) -> Topology:
    cpus, nodes, cores = set(parts.cpus), set(parts.nodes), set(parts.cores)
    return keep(
        topology,
        [
            pu
            for pu in topology.pus
            if pu.os not in cpus and pu.node not in nodes and pu.core not in cores
        ],
    )


def _check_parts(topology: Topology, parts: Parts, where: str) -> None:
    """Refuse a layout made for another machine; CPUs that are only offline may be named."""
    cpus = {pu.os for pu in topology.machine_pus} | set(topology.details.offline)
    for name, wanted, there in (
        ("CPUs", parts.cpus, cpus),
        ("lgroups", parts.nodes, set(topology.by_node)),
        ("cores", parts.cores, {pu.core for pu in topology.machine_pus}),
    ):
        absent = set(wanted) - there
        if absent:
            raise InputError(
                f"{where}: {topology.source} has no {name} {cpuset.format_list(absent)}; "
                f"it has {cpuset.format_list(there)}"
            )
