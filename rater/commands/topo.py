"""`rater topo`: this machine, or one from a file or a description."""

from __future__ import annotations

import argparse
import shutil
import sys

from rater.commands.common import add_common
from rater.workflow.common import print_json


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    topo.set_defaults(run=_topo)
    add_common(topo)


def _topo(args: argparse.Namespace) -> int:
    from rater.run.host import discover as machine
    from rater.run.host.memory import lgroups_now
    from rater.show.plans.topology import topo_lines
    from rater.show.plans.topology_json import topo_document
    from rater.show.plans.topology_view import TopoView

    if args.machine is None:
        view = TopoView(machine.discover(), lgroups_now())
    else:
        view = TopoView(machine.load(args.machine))
    if args.json:
        print_json(topo_document(view))
        return 0
    ascii_only = not (sys.stdout.encoding or "ascii").lower().startswith("utf")
    width = shutil.get_terminal_size().columns
    print("\n".join(topo_lines(view, width, ascii_only=ascii_only)))
    return 0
