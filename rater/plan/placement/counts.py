"""What a layout's counts give to each lgroup, and what is wrong with counts for another machine."""

from __future__ import annotations

from dataclasses import dataclass

from rater.errors import InputError
from rater.groups import grouped
from rater.plan.placement.layout import Counts, Layout
from rater.plan.topology.model import Domain, Topology
from rater.text import cpuset

MOST_COPIES = 99_999


@dataclass(frozen=True, slots=True)
class Full:
    """Lgroup that a layout's count gives more copies than it has CPUs for."""

    node: int | None  # OS number; None: CPUs that no lgroup holds
    copies: int
    room: int


def counted(topology: Topology, layout: Layout, counts: Counts) -> list[tuple[Domain, int]]:
    """Return the copies on each domain, in logical order.

    `topology` is what the layout leaves of the machine. Raises `InputError` for counts
    of lgroups where no copy can run, and when there is no copy, or more than can be.
    """
    by_node = dict(counts.by_node)
    absent = [node for node in by_node if node not in {domain.node for domain in topology.domains}]
    if absent:
        _refuse(topology, layout, absent)
    shares = [
        (domain, counts.rest if domain.node is None else by_node.get(domain.node, counts.rest))
        for domain in topology.domains
    ]
    total = sum(share for _, share in shares)
    if not 0 < total <= MOST_COPIES:
        raise InputError(
            f"layout {layout.name}: its counts add up to {total} copies on {topology.source}, "
            f"expected 1 to {MOST_COPIES}: change its counts"
        )
    return shares


def _refuse(topology: Topology, layout: Layout, absent: list[int]) -> None:
    """Say why copies cannot run on these lgroups."""
    machine = {pu.node for pu in topology.machine_pus}

    def reason(number: int) -> str:
        node = topology.by_node.get(number)
        if node is None:
            return "not there"
        if number in machine:
            return "without a CPU that the layout may give to copies"
        if not node.allowed:
            return "not allowed as memory here, so home of no CPU"
        return "extra memory of CPUs that have another home" if node.cpus else "without CPUs"

    reasons = grouped((reason(number), number) for number in absent)
    text = " and ".join(
        f"lgroup{'s' if len(nodes) > 1 else ''} {cpuset.format_list(nodes)} "
        f"{'are' if len(nodes) > 1 else 'is'} {why}"
        for why, nodes in reasons.items()
    )
    there = cpuset.format_list(d.node for d in topology.domains if d.node is not None)
    raise InputError(
        f"layout {layout.name}: its counts name lgroups where no copy can run: {text}; on "
        f"{topology.source} copies can run on lgroup {there or 'none'}: change its counts"
    )
