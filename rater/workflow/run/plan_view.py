"""What would run where, as `rater plan` and `--dry-run` show it."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys

from rater.plan.placement.memory_needs import bound_to_memory, capacity_warnings, needs_by_node
from rater.plan.placement.summary import remarks, shares
from rater.plan.schedule.phases import order_table
from rater.run.host import discover as machine
from rater.run.host.memory import lgroups_now
from rater.run.programs.script import Line, shown
from rater.show.plans.commands import Executed
from rater.show.plans.plan import Estimates, PlanView, plan_document, print_plan
from rater.workflow.common import print_json_rows
from rater.workflow.doctor.mend import tuned_settings_of
from rater.workflow.run.head import directory_here
from rater.workflow.run.resolve import (
    Resolved,
    expected_total_s,
    most_bytes,
    resolve,
    size_and_tune,
)
from rater.workflow.run.workload import Workload
from rater.workflow.run_arguments import request_from
from rater.workflow.speccpu.kit import kit_command


def plan(args: argparse.Namespace) -> int:
    """Print what would run where, on this machine or on one that is only described."""
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
    topology, placements = resolved.topology, resolved.placements
    per_copy = most_bytes(resolved)
    needs = needs_by_node(placements, {p.copy: per_copy for p in placements})
    installed = {node.os: node.memory_bytes for node in topology.nodes}
    if topology.is_this_system:  # memory may have been plugged in since the firmware counted it
        installed |= {node: memory.total_bytes for node, memory in lgroups_now().items()}
    threads = tuple((w.benchmark.name, w.benchmark.threads) for w in resolved.workloads)
    size, tune = size_and_tune(resolved)
    return PlanView(
        suite=resolved.suite,
        size=size,
        tune=tune,
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
        executed=None if estimates is None else executed(resolved),
        counters=resolved.counters.names if resolved.counters else (),
    )


def executed(resolved: Resolved) -> Executed:
    """Return all that a run executes, before anything is built or looked for."""
    request, workloads = resolved.request, resolved.workloads
    environment: dict[str, str] = {}
    setups = []
    for it in workloads:
        if it.suite is not None:
            setups.append(it.suite.setup)
            environment |= dict(it.suite.environment)
        setups.append(it.benchmark.setup)
        environment |= dict(it.benchmark.environment) | dict(it.size.environment)
    environment |= dict(request.environment)
    added = resolved.tuning.added({os.fsencode(k): os.fsencode(v) for k, v in environment.items()})
    environment |= {os.fsdecode(name): os.fsdecode(value) for name, value in added.items()}
    return Executed(
        directory=directory_here(),
        setups=tuple(dict.fromkeys(shlex.join(setup) for setup in setups if setup)),
        commands=tuple((it.benchmark.name, _command(it)) for it in workloads),
        wrap=shlex.join(request.wrap) or None,
        prepare=request.prepare,
        environment=tuple(environment.items()),
        settings=tuple(tuned_settings_of(request).items()),
    )


def _command(it: Workload) -> str:
    if it.kit:
        return kit_command(it.kit)
    own = it.benchmark.command or (it.benchmark.name,)
    return shown(
        [
            Line((*(one.program or own), *one.args), one.stdin, one.stdout, one.stderr)
            for one in it.size.commands
        ]
    )
