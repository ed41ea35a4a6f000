"""Where copies are, as tables and for JSON: copy by copy, and lgroup by lgroup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from rater.plan.cpuset import format_list
from rater.plan.place import Placement
from rater.plan.summary import LgroupShare, nodes_of_memory
from rater.plan.topology import Topology
from rater.show.format import decimals, number
from rater.show.table import Column, table_lines

MOST_COPIES = 64  # shown one by one
_MOST_LGROUPS = 64


def copies_document(
    topology: Topology, placements: Sequence[Placement], stagger_ns: int
) -> list[dict[str, Any]]:
    """Return every copy for JSON, in ascending order."""
    return [
        {
            "copy": p.copy,
            "cpus": None if p.cpus is None else list(p.cpus),
            "core": p.core,
            "llc": p.llc,
            "node": p.node,
            "package": p.package,
            "memory": {
                "policy": str(p.policy),
                "nodes": list(nodes_of_memory(p, topology)),
            },
            "start_ms": p.copy * stagger_ns / 1e6,
        }
        for p in placements
    ]


def lgroups_document(shares: Iterable[LgroupShare]) -> list[dict[str, Any]]:
    """Return every lgroup's part of a plan for JSON."""
    return [
        {
            "node": share.node,
            "packages": list(share.packages),
            "copies": list(share.copies),
            "cpus": list(share.cpus),
            "pus": share.pus,
            "cores_used": share.cores_used,
            "cores": share.cores,
            "memory_bytes": share.memory_bytes,
            "need_bytes": share.need_bytes,
        }
        for share in shares
    ]


def copy_lines(topology: Topology, placements: Sequence[Placement], width: int) -> list[str]:
    """Return a line for each copy, below a heading."""
    columns = [
        Column(("copy", ""), [str(p.copy) for p in placements]),
        Column(
            ("CPUs", ""),
            [format_list(p.cpus or ()) for p in placements],
            right=False,
            flexible=True,
        ),
        Column(("core", ""), [_or_dash(p.core) for p in placements]),
        Column(("LLC", ""), [_or_dash(p.llc) for p in placements]),
        Column(("lgroup", ""), [_or_dash(p.node) for p in placements]),
        Column(("package", ""), [_or_dash(p.package) for p in placements]),
        Column(
            ("memory", ""),
            [_memory(p, topology) for p in placements],
            right=False,
            flexible=True,
        ),
    ]
    return table_lines(_known(columns), width, ascii_only=True)


def lgroup_lines(
    shares: Sequence[LgroupShare],
    topology: Topology,
    placements: Sequence[Placement],
    width: int,
) -> list[str]:
    """Return a line for each lgroup; which copies and CPUs when copies are not shown one by one."""
    shown = shares[:_MOST_LGROUPS]
    columns = [
        Column(("lgroup", ""), ["none" if s.node is None else str(s.node) for s in shown]),
        Column(("package", ""), [format_list(s.packages) or "-" for s in shown], optional=3),
        Column(("copies", ""), [str(len(s.copies)) for s in shown]),
        Column(("cores", "used"), [_of(s.cores_used, s.cores) for s in shown]),
        Column(("PUs", "used"), [_of(len(s.cpus), s.pus) for s in shown]),
        Column(("memory", "GB"), _gigabytes([s.memory_bytes for s in shown]), optional=2),
        Column(("copies", "need GB"), _gigabytes([s.need_bytes for s in shown]), optional=1),
    ]
    if len(placements) > MOST_COPIES:
        policies = [_policies(s, topology, placements) for s in shown]
        columns += [
            Column(("memory", "from"), policies, right=False, flexible=True),
            Column(("copy", ""), [brief(s.copies) for s in shown], right=False, flexible=True),
            Column(("CPUs", ""), [brief(s.cpus) for s in shown], right=False, flexible=True),
        ]
    lines = table_lines(_known(columns), width, ascii_only=True)
    if len(shares) > _MOST_LGROUPS:
        lines.append(f"and {len(shares) - _MOST_LGROUPS} more lgroups (--json has all)")
    return lines


def brief(numbers: Sequence[int]) -> str:
    """Return ascending numbers as a list of ranges, or `0-124:4` where they lie equally far apart.

    >>> brief((0, 4, 8, 12))
    '0-12:4'
    """
    steps = {later - earlier for earlier, later in pairwise(numbers)}
    if len(numbers) > 2 and len(steps) == 1 and steps != {1}:
        return f"{numbers[0]}-{numbers[-1]}:{steps.pop()}"
    return format_list(numbers) or "-"


def _policies(share: LgroupShare, topology: Topology, placements: Sequence[Placement]) -> str:
    """Return where the copies of an lgroup have their memory from."""
    if not share.copies:
        return "-"
    said = dict.fromkeys(_memory(placements[copy], topology) for copy in share.copies)
    return ", ".join(said)


def _memory(placement: Placement, topology: Topology) -> str:
    nodes = nodes_of_memory(placement, topology)
    return f"{placement.policy} {format_list(nodes)}" if nodes else str(placement.policy)


def _known(columns: Iterable[Column]) -> list[Column]:
    """Leave out columns in which nothing is known."""
    return [column for column in columns if any(cell != "-" for cell in column.cells)]


def _of(used: int, there: int) -> str:
    return f"{used}/{there}" if there else "-"


def _gigabytes(sizes: Sequence[int | None]) -> list[str]:
    values = [None if size is None else size / 1e9 for size in sizes]
    places = min(2, decimals(values, significant=2))
    return [number(value, places) if value is not None else "-" for value in values]


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
