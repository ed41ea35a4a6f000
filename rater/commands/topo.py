"""`rater topo` and `rater counters`: this machine, or one from a file, and what it can count."""

from __future__ import annotations

from rater.commands.common import Subparsers, add_common, later


def register(subparsers: Subparsers) -> None:
    """Declare `rater topo` and `rater counters`."""
    topo = subparsers.add_parser(
        "topo",
        help="lgroups, CPUs, caches",
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
    counters = subparsers.add_parser(
        "counters",
        help="what it can count",
        description="Try the groups of events that `rater run --counters` takes, 10 ms each: those "
        "of this processor's table and the kernel's own; and where energy is read. What does not "
        "work is listed with the reason and the command that would allow it.",
    )
    counters.add_argument(
        "groups",
        metavar="GROUP",
        nargs="*",
        help="only these, as --counters takes them: numa, software, cpi, ./MINE.toml",
    )
    counters.set_defaults(run=later("counters", "counters"))
    add_common(counters)
