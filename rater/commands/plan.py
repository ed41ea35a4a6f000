"""`rater plan`: what would run where, on this machine or on one that is only described."""

from __future__ import annotations

import argparse
import shutil
import sys
from typing import TYPE_CHECKING

from rater.commands.common import add_common, print_json_rows
from rater.commands.request import add_run_arguments, request_from

if TYPE_CHECKING:
    from rater.commands.resolve import Resolved
    from rater.show.plan import Estimates, PlanView


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
    from rater.commands.resolve import resolve
    from rater.run import machine
    from rater.show.plan import plan_document, print_plan

    request = request_from(args)
    topology = machine.discover() if args.topology is None else machine.load(args.topology)
    view = plan_view(resolve(request, topology))
    if args.json:
        print_json_rows(plan_document(view))
    else:
        print_plan(view, sys.stdout, shutil.get_terminal_size().columns)
    return 0


def plan_view(
    resolved: Resolved,
    estimates: Estimates | None = None,
    *,
    warnings: tuple[str, ...] = (),
    refusals: tuple[str, ...] = (),
) -> PlanView:
    """Return a resolved run as its screen and its JSON see it; more warnings may be added."""
    from rater.commands.resolve import expected_total_s, most_bytes, size_of, tune_of
    from rater.plan.schedule import order_table
    from rater.plan.summary import remarks, shares
    from rater.run.lgroups import lgroups_now
    from rater.run.memory import bound_to_memory, capacity_warnings, needs_by_node
    from rater.show.plan import PlanView

    topology, placements = resolved.topology, resolved.placements
    per_copy = most_bytes(resolved)
    needs = needs_by_node(placements, {p.copy: per_copy for p in placements})
    installed = {node.os: node.memory_bytes for node in topology.nodes}
    if topology.is_this_system:  # memory may have been plugged in since the firmware counted it
        installed |= {node: memory.total_bytes for node, memory in lgroups_now().items()}
    threads = tuple((w.benchmark.name, w.benchmark.threads) for w in resolved.workloads)
    return PlanView(
        suite=resolved.suite,
        size=size_of(resolved),
        tune=tune_of(resolved),
        plan=resolved.plan,
        placements=placements,
        layout=resolved.layout,
        topology=topology,
        shares=shares(topology, placements, installed, needs if per_copy else None),
        orders=tuple(order_table(resolved.plan)),
        expected_s=expected_total_s(resolved),
        estimates=estimates,
        warnings=(
            *resolved.warnings,
            *remarks(topology, placements, max(used for _, used in threads)),
            *capacity_warnings(needs, installed, strict=bound_to_memory(placements)),
            *warnings,
        ),
        refusals=(*resolved.refusals, *refusals),
        reserved=resolved.reserved,
        threads=threads,
        cooldown_s=resolved.request.cooldown_s,
        until_idle_s=resolved.request.until_idle_s,
    )
