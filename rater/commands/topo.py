"""`rater topo`: this machine, or one from a file or a description."""

from __future__ import annotations

from rater.commands.common import Subparsers, add_common, later


def register(subparsers: Subparsers) -> None:
    """Declare `rater topo`."""
    topo = subparsers.add_parser(
        "topo",
        help="the machine: lgroups, CPUs, caches, memory, distances",
        description="Show the machine: lgroups (NUMA nodes) with their CPUs, cores, last-level "
        "caches (LLC) and memory, threads of a core, CPU kinds, distances, CPUs that may not be "
        "used; of this machine also what memory is free, page cache, or in huge pages.",
        epilog="--json has all of it: `counts`, `nodes` (lgroups), `cpus`, `siblings`, `caches`, "
        "`kinds`, `groups`, `distances`, `not_usable`; CPUs and nodes by OS number, the rest by "
        "hwloc's logical indexes.",
    )
    topo.add_argument(
        "machine",
        metavar="MACHINE",
        nargs="?",
        help="hwloc XML file, a description such as 'pack:2 numa:4 core:8 pu:2', or nodes=4x24 "
        "(default: this machine)",
    )
    topo.set_defaults(run=later("machine", "topo"))
    add_common(topo)
