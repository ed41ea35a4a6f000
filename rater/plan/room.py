"""How many copies `--copies pus`, `cores` and `nodes` mean on what a layout leaves of a machine."""

from __future__ import annotations

from rater.errors import InputError
from rater.plan import cpuset
from rater.plan.layout import WRITTEN, Layout, Order
from rater.plan.narrow import Narrowed, keep, narrow
from rater.plan.topology import PU, Topology
from rater.plan.written import cpus_of, evaluate


def offered(topology: Topology, layout: Layout) -> Topology:
    """Return the machine with only the PUs that the layout gives to copies.

    What `list:` and `expr:` do not name is not among them. Raises `InputError` as
    `rater.plan.narrow.narrow` does, and for CPUs that are not there.
    """
    if layout.order is Order.NONE:
        return topology
    narrowed = narrow(topology, layout)
    left = narrowed.topology
    if layout.order not in WRITTEN:
        return left
    named = {pu.os for pu in _named(narrowed, layout)}
    pus = [pu for pu in left.pus if pu.os in named]
    return keep(left, pus) if pus else left  # without any, placing says what is wrong


def copies_counted(layout: Layout, topology: Topology) -> int | None:
    """Return the copies that a layout's own counts add up to, None when it has none.

    `topology` is what the layout leaves of the machine. Raises `InputError` when the
    lgroups that are to get copies are not among it.
    """
    if layout.counts is None:
        return None
    by_node, rest = dict(layout.counts.by_node), layout.counts.rest
    total = sum(
        rest if domain.node is None else by_node.get(domain.node, rest)
        for domain in topology.domains
    )
    if total:
        return total
    counted = cpuset.format_list(node for node, copies in by_node.items() if copies)
    left = cpuset.format_list(d.node for d in topology.domains if d.node is not None)
    raise InputError(
        f"layout {layout.name}: its counts give copies to lgroup {counted} only, and of "
        f"{topology.source} it leaves lgroup {left or 'none'}: change its counts, or what it "
        "names and excludes"
    )


def _named(narrowed: Narrowed, layout: Layout) -> tuple[PU, ...]:
    if layout.order is Order.LIST:
        return cpus_of(narrowed.open, layout.text)
    return evaluate(narrowed.topology, layout.text)
