"""`rater topo`: what a machine is."""

from __future__ import annotations

import argparse

from rater.run.host import discover as machine
from rater.run.host.memory import lgroups_now
from rater.show.console.page import standard_page
from rater.show.plans.topology import topo_lines
from rater.show.plans.topology_json import topo_document
from rater.show.plans.topology_view import TopoView
from rater.workflow.common import print_json


def topo(args: argparse.Namespace) -> int:
    """Print this machine, or one from a file or a description."""
    if args.machine is None:
        view = TopoView(machine.discover(), lgroups_now())
    else:
        view = TopoView(machine.load(args.machine))
    if args.json:
        print_json(topo_document(view))
    else:
        page = standard_page()
        print("\n".join(topo_lines(view, page.width, ascii_only=page.ascii_only)))
    return 0
