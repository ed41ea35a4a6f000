"""Where copies are, as tables and for JSON: copy by copy, and lgroup by lgroup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from rater.plan.placement.place import Placement
from rater.plan.placement.summary import LgroupShare, nodes_of_memory
from rater.plan.topology.model import Topology
from rater.show.console.format import gigabytes_column
from rater.show.console.table import Column, Columns, table_lines
from rater.text.cpuset import format_list
from rater.text.to_json import Members, to_json

_MOST_COPIES = 64  # shown one by one; so many runs of more
_MOST_LGROUPS = 64
_PERIODS = (1, 2, 4, 8)  # threads of a core


def copies_document(
    topology: Topology, placements: Sequence[Placement], stagger_ns: int
) -> list[dict[str, Any]]:
    """Return every copy for JSON, in ascending order."""
    distinct = {(p.policy, p.memory_nodes, id(p.cpus)): p for p in placements}
    nodes = {key: nodes_of_memory(p, topology) for key, p in distinct.items()}
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
                "nodes": list(nodes[p.policy, p.memory_nodes, id(p.cpus)]),
            },
            "start_ms": p.copy * stagger_ns / 1e6,
        }
        for p in placements
    ]


def lgroups_document(shares: Iterable[LgroupShare]) -> list[dict[str, Any]]:
    """Return every lgroup's part of a plan for JSON."""
    return [to_json(share, _TABLE) for share in shares]


_TABLE = {
    LgroupShare: Members(
        "node packages copies cpus pus cores_used cores memory_bytes memory_allowed=allowed"
        " need_bytes"
    )
}


def place_lines(
    shares: Sequence[LgroupShare],
    topology: Topology,
    placements: Sequence[Placement],
    width: int,
) -> list[str]:
    """Return where copies that are bound are, and each lgroup's part.

    Few copies have a line each. More have one for those whose CPUs follow each other;
    where that is one line for each lgroup at most, they stand in the lgroup's own.
    """
    lgroups = lgroup_lines(shares, width)
    if len(placements) <= _MOST_COPIES:
        return [*_copy_lines(topology, placements, width), "", *lgroups]
    runs = [run for share in shares for run in _runs(share, placements)]
    if len(runs) <= sum(bool(share.copies) for share in shares) <= _MOST_LGROUPS:
        whole = lgroup_lines(shares, width, (topology, placements))
        if not any("~" in line for line in whole):
            return whole
    if len(runs) <= _MOST_COPIES:
        found = _run_lines(runs, topology, width)
        if not any("~" in line for line in found):
            return [*found, "", *lgroups]
    return [
        *lgroup_lines(shares, width, (topology, placements)),
        f"{len(placements)} copies are not shown one by one (--json has all)",
    ]


def _runs(share: LgroupShare, placements: Sequence[Placement]) -> list[Sequence[Placement]]:
    """Cut the copies of an lgroup into runs in which numbers and CPUs rise in equal steps.

    Siblings may stand side by side: every second, fourth, ... copy can make a run.
    """
    own = [placements[copy] for copy in share.copies]
    found: list[Sequence[Placement]] = []
    for period in _PERIODS:
        runs = [run for first in range(period) for run in _rising(own[first::period])]
        found = runs if len(runs) < len(found) or not found else found
        if len(found) < 2:
            break
    return found


def _rising(placements: Sequence[Placement]) -> Iterator[Sequence[Placement]]:
    run: list[Placement] = []
    for placement in placements:
        if run:
            last = run[-1]
            step = _step(last, placement)
            if step is None or (len(run) > 1 and step != _step(run[-2], last)):
                yield run
                run = []
        run.append(placement)
    if run:
        yield run


def _step(one: Placement, other: Placement) -> tuple[int, int] | None:
    """Return by how much copy and CPU differ; None where CPUs are neither the same nor rising.

    None as well where memory comes from other lgroups; local memory is that of the CPUs.
    """
    if (one.policy, one.memory_nodes) != (other.policy, other.memory_nodes):
        return None
    if one.cpus is other.cpus or one.cpus == other.cpus:
        return other.copy - one.copy, 0
    if one.cpus is None or other.cpus is None or len(one.cpus) > 1 or len(other.cpus) > 1:
        return None
    rise = other.cpus[0] - one.cpus[0]
    return (other.copy - one.copy, rise) if rise > 0 else None


def _run_lines(runs: Sequence[Sequence[Placement]], topology: Topology, width: int) -> list[str]:
    """Return a line for each run of copies, by the number of its first."""
    shown = sorted(runs, key=lambda run: run[0].copy)
    of = Columns(shown)
    columns = [
        of.right("copies", lambda run: brief([p.copy for p in run])),
        of.left("CPUs", lambda run: brief(sorted(_cpus_of(run))), flexible=True),
        of.left("for each", lambda run: "all of them" if len(run[0].cpus or ()) > 1 else None),
        of.right("lgroup", lambda run: run[0].node),
        of.right("package", lambda run: run[0].package, optional=1),
        of.left("memory", lambda run: _memory(run[0], topology)),
    ]
    return table_lines(_known(columns), width, ascii_only=True)


def _cpus_of(run: Sequence[Placement]) -> set[int]:
    return {cpu for placement in run for cpu in placement.cpus or ()}


def _copy_lines(topology: Topology, placements: Sequence[Placement], width: int) -> list[str]:
    """Return a line for each copy, below a heading."""
    of = Columns(placements)
    columns = [
        of.right("copy", lambda p: p.copy),
        of.left("CPUs", lambda p: format_list(p.cpus or ()), flexible=True),
        of.right("core", lambda p: p.core),
        of.right("LLC", lambda p: p.llc),
        of.right("lgroup", lambda p: p.node),
        of.right("package", lambda p: p.package),
        of.left("memory", lambda p: _memory(p, topology), flexible=True),
    ]
    return table_lines(_known(columns), width, ascii_only=True)


def lgroup_lines(
    shares: Sequence[LgroupShare],
    width: int,
    whole: tuple[Topology, Sequence[Placement]] | None = None,
) -> list[str]:
    """Return a line for each lgroup; with the machine and all placements also which copies."""
    shown = shares[:_MOST_LGROUPS]
    of = Columns(shown)
    installed = [s.memory_bytes if s.allowed else None for s in shown]
    columns = [
        of.right("lgroup", lambda s: "none" if s.node is None else s.node),
        of.right("package", lambda s: format_list(s.packages) or None, optional=3),
        of.right("copies", lambda s: len(s.copies)),
        of.right("cores|used", lambda s: _of(s.cores_used, s.cores)),
        of.right("PUs|used", lambda s: _of(len(s.cpus), s.pus)),
        Column("memory|GB", gigabytes_column(installed, 2), optional=2),
        Column("copies|need GB", gigabytes_column([s.need_bytes for s in shown], 2), optional=1),
    ]
    if whole is not None:
        columns += [
            of.left("memory|from", lambda s: _policies(s, *whole), flexible=True),
            of.left("copy", lambda s: brief(s.copies), flexible=True),
            of.left("CPUs", lambda s: brief(s.cpus), flexible=True),
        ]
    lines = table_lines(_known(columns), width, ascii_only=True)
    if len(shares) > _MOST_LGROUPS:
        lines.append(f"and {len(shares) - _MOST_LGROUPS} more lgroups (--json has all)")
    forbidden = [s.node for s in shares if not s.allowed and s.node is not None]
    if forbidden:
        one = len(forbidden) == 1
        lines.append(
            f"lgroup{'' if one else 's'} {format_list(forbidden)}: memory not allowed (a cpuset), "
            f"for {'its' if one else 'their'} CPUs all memory is remote"
        )
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
    distinct = {
        (p.policy, p.memory_nodes, id(p.cpus)): p for p in (placements[c] for c in share.copies)
    }
    return ", ".join(dict.fromkeys(_memory(p, topology) for p in distinct.values()))


def _memory(placement: Placement, topology: Topology) -> str:
    nodes = nodes_of_memory(placement, topology)
    return f"{placement.policy} {format_list(nodes)}" if nodes else str(placement.policy)


def _known(columns: Iterable[Column]) -> list[Column]:
    """Leave out columns in which nothing is known."""
    return [column for column in columns if any(cell != "-" for cell in column.cells)]


def _of(used: int, there: int) -> str:
    return f"{used}/{there}" if there else "-"
