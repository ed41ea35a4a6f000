"""How many copies a layout means by itself, and what `--copies pus`, `cores` and `nodes` count."""

from __future__ import annotations

from dataclasses import replace

from rater.plan.placement.assign import named_by
from rater.plan.placement.counts import counted
from rater.plan.placement.filter import apply_filters, keep
from rater.plan.placement.layout import EXPLICIT, CpuOrder, Layout
from rater.plan.topology.model import Topology


def pus_offered(topology: Topology, layout: Layout) -> Topology:
    """Return the machine with only the PUs that the layout gives to copies.

    What `list:` and `expr:` do not name is not among them. Raises `InputError` as
    `rater.plan.placement.filter.apply_filters` does, and for CPUs that are not there.
    """
    if layout.order is CpuOrder.NONE:
        return topology
    filtered = apply_filters(topology, layout)
    left = filtered.topology
    if layout.order not in EXPLICIT:
        return left
    named = {pu.os for pu in named_by(filtered, layout)}
    pus = [pu for pu in left.pus if pu.os in named]
    return keep(left, pus) if pus else left  # without any, placing says what is wrong


def copies_counted(layout: Layout, topology: Topology) -> int | None:
    """Return the copies that a layout's own counts add up to, None when it has none.

    `topology` is what the layout leaves of the machine. Raises `InputError` when the
    lgroups that are to get copies are not among it.
    """
    if layout.counts is None:
        return None
    return sum(share for _, share in counted(topology, layout, layout.counts))


def explicit_cpus(layout: Layout, topology: Topology) -> int | None:
    """Return how many CPUs an expression lists, None for other layouts.

    A CPU that stands there twice counts twice: it is to have two copies.
    """
    if layout.order is not CpuOrder.EXPR:
        return None
    return len(named_by(apply_filters(topology, layout), layout))


def one_a_lgroup(layout: Layout, usable: Topology) -> Layout:
    """Return the layout without CPUs that no lgroup holds, for `--copies nodes`.

    `usable` is what the layout leaves of the machine. Layouts that say themselves
    which CPUs are for copies stay as they are.
    """
    if layout.order in (CpuOrder.NONE, *EXPLICIT) or layout.counts is not None:
        return layout
    nodes = tuple(sorted({pu.node for pu in usable.pus if pu.node is not None}))
    if not nodes or all(pu.node is not None for pu in usable.pus):
        return layout
    return replace(layout, only=replace(layout.only, nodes=nodes))
