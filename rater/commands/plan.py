"""`rater plan`: what would run where, on this machine or on one that is only described."""

from __future__ import annotations

import argparse
import shutil
import sys

from rater.commands.common import add_common
from rater.workflow.common import print_json_rows
from rater.workflow.run.plan_view import plan_view
from rater.workflow.run_arguments import add_run_arguments, request_from


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `rater plan`."""
    parser = subparsers.add_parser(
        "plan",
        help="what would run where, on this machine or a described one",
        description="Show what `rater run` with the same arguments would run where: each copy's "
        "CPUs, core, last-level cache (LLC), lgroup, package and memory, each lgroup's part, and "
        "what is to be thought over. Nothing is started, locked or stored; a command need not "
        "exist.",
        epilog="--json: `copies`, `lgroups`, `warnings`, `orders`, ...; CPUs and lgroups by OS "
        "number, cores and LLCs by hwloc's logical indexes.",
    )
    add_run_arguments(parser)
    parser.add_argument(
        "--topology",
        metavar="MACHINE",
        help="hwloc XML file, a description such as 'pack:2 numa:4 core:8 pu:2', or nodes=4x24 "
        "(default: this machine)",
    )
    for option in ("--dry-run", "--quiet"):  # of `run`: they change nothing here
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS)
    add_common(parser)
    parser.set_defaults(run=_plan)


def _plan(args: argparse.Namespace) -> int:
    from rater.run.host import discover as machine
    from rater.show.plans.plan import plan_document, print_plan
    from rater.workflow.run.resolve import resolve

    request = request_from(args)
    topology = machine.discover() if args.topology is None else machine.load(args.topology)
    view = plan_view(resolve(request, topology))
    if args.json:
        print_json_rows(plan_document(view))
    else:
        print_plan(view, sys.stdout, shutil.get_terminal_size().columns)
    return 0
