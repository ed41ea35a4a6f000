"""The head of a run, as it is stored before the first phase."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path

from rater import __version__
from rater.commands.ready import Ready
from rater.commands.resolve import Resolved
from rater.record import BenchmarkUsed, MachinePU, PlacedCopy, Run, storable


def head_of(identity: str, ready: Ready) -> Run:
    """Return the head of a run that begins now."""
    resolved, built = ready.resolved, ready.built
    request, plan = resolved.request, resolved.plan
    suite = resolved.suite
    return Run(
        uuid=identity,
        started_at=now_utc(),
        mode=plan.mode,
        order=str(plan.order),
        copies=plan.copies,
        iterations=plan.iterations,
        discard=plan.discard,
        stagger_ms=plan.stagger_ns / 1e6,
        increment=plan.increment,
        suite=suite,
        size=request.size if suite else None,
        tune=request.tune if suite else None,
        layout=storable(request.layout),
        memory=str(resolved.memory),
        timeout_s=request.timeout_s,
        wrap=storable(shlex.join(request.wrap)) or None,
        command_line=storable(shlex.join(["rater", *sys.argv[1:]])),
        rater_version=__version__,
        warmup_s=plan.window.warmup_ns / 1e9 if plan.window else None,
        window_s=plan.window.length_ns / 1e9 if plan.window else None,
        directory=storable(str(Path.cwd())),
        tags=_storable_pairs(request.tags),
        environment=_storable_pairs(request.environment),
        benchmarks=tuple(
            BenchmarkUsed(
                name=workload.benchmark.name,
                category=workload.benchmark.category,
                command=storable(shlex.join(program.argv(workload.size))),
                reference_s=workload.size.reference_s,
                binary_sha256=program.sha256,
                compiler=program.compiler,
                flags=program.flags,
            )
            for workload, program in zip(resolved.workloads, built, strict=True)
        ),
        placements=tuple(
            PlacedCopy(
                copy=p.copy,
                cpus=p.cpus,
                cpu=p.cpu,
                core=p.core,
                llc=p.llc,
                node=p.node,
                package=p.package,
                memory_policy=str(p.policy),
                memory_nodes=p.memory_nodes,
            )
            for p in resolved.placements
        ),
        warnings=resolved.warnings,
    )


def _storable_pairs(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((storable(name), storable(value)) for name, value in pairs)


def machine_pus(resolved: Resolved) -> list[MachinePU]:
    """Return the PUs that the run could have used."""
    return [
        MachinePU(cpu=pu.os, core=pu.core, llc=pu.llc, node=pu.node, package=pu.package)
        for pu in resolved.topology.pus
    ]


def now_utc() -> str:
    """Return the time of day as runs are stored with it."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
