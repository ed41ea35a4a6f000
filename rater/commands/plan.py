"""`rater plan`: what would run where, on this machine or on one that is only described."""

from __future__ import annotations

import argparse

from rater.commands.common import Subparsers, add_common, add_doing, add_topology, later
from rater.workflow.run_arguments import add_run_arguments


def register(subparsers: Subparsers) -> None:
    """Declare `rater plan`."""
    parser = subparsers.add_parser(
        "plan",
        help="what would run where",
        description="Show what `rater run` with the same arguments would run where: each copy's "
        "CPUs, core, last-level cache (LLC), lgroup, package and memory, each lgroup's part, and "
        "what is to be thought over. Nothing is started, locked or stored; a command need not "
        "exist.",
        epilog="--json: `copies`, `lgroups`, `warnings`, `orders`, ...; CPUs and lgroups by OS "
        "number, cores and LLCs by hwloc's logical indexes.",
    )
    add_run_arguments(parser)
    add_topology(
        parser,
        "hwloc XML file, a description such as 'pack:2 numa:4 core:8 pu:2', or nodes=4x24 "
        "(default: this machine)",
    )
    # Those of `run` change nothing here.
    add_doing(parser, dry_run=argparse.SUPPRESS, quiet=argparse.SUPPRESS)
    add_common(parser)
    parser.set_defaults(run=later("run.plan_view", "plan"))
