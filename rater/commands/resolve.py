"""Resolve a `Request` against a machine and the suites: everything a run needs, nothing started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rater.commands.request import Request
from rater.errors import InputError
from rater.plan.layout import load_layout
from rater.plan.place import MemoryPolicy, Placement, default_memory, place, resolve_copies
from rater.plan.schedule import (
    Order,
    Plan,
    make_plan,
    resolve_mode,
    resolve_window,
    rotation_warnings,
)
from rater.plan.suite import Benchmark, Command, Size, Suite, load_suite, select, split_selection
from rater.plan.tomltable import did_you_mean
from rater.plan.topology import Topology
from rater.record import storable

if TYPE_CHECKING:
    from rater.run.needs import Needs
    from rater.run.prepare import ReadyInput


_LONGEST_NAME = 60  # characters; up to 4 bytes each, and a file name has 255


@dataclass(frozen=True, slots=True)
class Workload:
    """One benchmark in the size that was asked for."""

    benchmark: Benchmark
    size: Size


@dataclass(frozen=True, slots=True)
class Resolved:
    """A run as it will be."""

    request: Request
    topology: Topology
    plan: Plan
    placements: tuple[Placement, ...]
    memory: MemoryPolicy
    suite: str | None
    workloads: tuple[Workload, ...]  # in ring order
    warnings: tuple[str, ...]
    refusals: tuple[str, ...]  # why it will not run as it is
    expected_s: dict[str, float]  # by benchmark: a guess for one phase without stagger


def resolve(request: Request, topology: Topology) -> Resolved:
    """Plan a run on a machine. Raises `InputError` for what can not be planned at all."""
    mode, order, stagger_ms = resolve_mode(request.mode, request.stagger_ms, request.order)
    suites, workloads = (
        (None, (_command_workload(request),)) if request.command else _suite_workloads(request)
    )
    copies = resolve_copies(request.copies, topology)
    layout = load_layout(request.layout)
    memory = default_memory(layout) if request.memory is None else _memory(request.memory)
    placed = place(topology, layout, copies, memory)
    last_start_s = stagger_ms * (copies - 1) / 1e3
    window = resolve_window(mode, request.warmup_s, request.window_s, last_start_s)
    plan = make_plan(
        [workload.benchmark.name for workload in workloads],
        copies,
        mode=mode,
        order=order,
        iterations=request.iterations,
        discard=request.discard,
        stagger_ms=stagger_ms,
        increment=request.increment,
        window=window,
    )
    refusals = []
    if copies > len(topology.pus) and not request.oversubscribe:
        refusals.append(
            f"{copies} copies on {len(topology.pus)} usable PUs and --no-oversubscribe: "
            f"use --copies {len(topology.pus)} or leave the option out"
        )
    return Resolved(
        request=request,
        topology=topology,
        plan=plan,
        placements=placed.placements,
        memory=memory,
        suite=suites,
        workloads=workloads,
        warnings=placed.warnings + rotation_warnings(plan, placed.placements),
        refusals=tuple(refusals),
        expected_s=_expected(workloads, placed.placements, len(topology.pus)),
    )


def expected_total_s(resolved: Resolved) -> float | None:
    """Guess how long all phases take; None when a reference time is missing."""
    plan, expected = resolved.plan, resolved.expected_s
    if plan.window is not None:
        longest_s = max(expected.values(), default=0.0)  # runs that cross the window's end
        return len(plan.phases) * (plan.window.end_ns / 1e9 + longest_s)
    if any(name not in expected for name in plan.benchmarks):
        return None
    stagger_s = plan.stagger_ns * (plan.copies - 1) / 1e9
    if plan.order is Order.ROTATED:
        queues = (queue.steps for queue in plan.phases[0].queues)
        return stagger_s + max(sum(expected[s.benchmark] for s in steps) for steps in queues)
    return sum(stagger_s + expected[phase.benchmark or ""] for phase in plan.phases)


def needs_of(resolved: Resolved, work: Path, inputs: Sequence[tuple[ReadyInput, ...]]) -> Needs:
    """Estimate memory and disk; `inputs` by workload, when they are copied and not linked."""
    from rater.run.needs import Load, available, estimate

    plan = resolved.plan
    loads = {}
    for position, workload in enumerate(resolved.workloads):
        copied = sum(made.size_bytes for made in inputs[position]) if inputs else 0
        size = workload.size
        loads[workload.benchmark.name] = Load(
            benchmark=workload.benchmark.name,
            copies=plan.copies,
            runs=plan.copies,
            memory_bytes=size.memory_bytes,
            disk_bytes=size.disk_bytes,
            input_bytes=copied,
        )
    if plan.order is Order.ROTATED:
        # The mixes that the order goes through as long as copies keep step; the first one
        # stands for the run directories of all.
        ring = len(plan.benchmarks)
        phases = []
        for shift in range(ring if plan.increment else 1):
            mix = Counter((copy + shift * plan.increment) % ring for copy in range(plan.copies))
            runs = plan.copies * plan.iterations if shift == 0 else 0
            phases.append(
                [
                    replace(loads[name], copies=mix[position], runs=runs)
                    for position, name in enumerate(plan.benchmarks)
                ]
            )
    else:
        phases = [[loads[phase.benchmark or ""]] for phase in plan.phases]
    return estimate(phases, available(work), keep=resolved.request.keep)


def _command_workload(request: Request) -> Workload:
    size = Size(
        name="command",
        commands=(Command((), (), None, None, None),),
        environment=(),
        reference_s=None,
        memory_bytes=None,
        total_memory_bytes=None,
        disk_bytes=0,
        inputs=(),
        expected=(),
    )
    benchmark = Benchmark(
        name=_name_of(request.command[0]),
        category=None,
        description="",
        sources=(),
        libraries=(),
        flags={},
        command=request.command,
        sizes={"command": size},
    )
    return Workload(benchmark, size)


def _name_of(command: str) -> str:
    """Return a benchmark's name for a command: its basename, fit for a file name and a table."""
    name = storable(Path(command).name or command)
    return "".join(sign if sign.isprintable() else "?" for sign in name)[:_LONGEST_NAME]


def _suite_workloads(request: Request) -> tuple[str, tuple[Workload, ...]]:
    suites: dict[str, Suite] = {}
    wanted: dict[str, set[str]] = {}
    for selection in request.suites:
        key = split_selection(selection)[0]
        if key not in suites:
            suites[key] = load_suite(key)
            wanted[key] = set()
        wanted[key] |= {b.name for b in select(suites[key], selection).benchmarks}
    workloads = [
        Workload(benchmark, _size(suite, benchmark, request.size))
        for key, suite in suites.items()
        for benchmark in suite.benchmarks
        if benchmark.name in wanted[key]
    ]
    twice = [n for n, times in Counter(w.benchmark.name for w in workloads).items() if times > 1]
    if twice:
        raise InputError(
            f"benchmark {twice[0]} is in two of the suites {', '.join(suites)}: "
            "one run needs different names; run the suites one after the other"
        )
    if any(workload.benchmark.sources for workload in workloads):
        _check_tune(workloads, request.tune)
    names = dict.fromkeys(suite.name for suite in suites.values())
    return ", ".join(names), tuple(workloads)


def _check_tune(workloads: list[Workload], tune: str) -> None:
    for workload in workloads:
        benchmark = workload.benchmark
        if benchmark.sources and tune not in benchmark.flags:
            raise InputError(
                f"--tune {tune}: benchmark {benchmark.name} has no flags for it; "
                f"{did_you_mean(tune, benchmark.flags)}"
            )


def _size(suite: Suite, benchmark: Benchmark, name: str) -> Size:
    try:
        return benchmark.sizes[name]
    except KeyError:
        raise InputError(
            f"--size {name}: benchmark {benchmark.name} of suite {suite.name} has no such size; "
            f"{did_you_mean(name, benchmark.sizes)}"
        ) from None


def _memory(text: str) -> MemoryPolicy:
    try:
        return MemoryPolicy(text)
    except ValueError:
        raise InputError(f"--mem {text}: expected local, bind or none") from None


def _expected(
    workloads: tuple[Workload, ...], placements: tuple[Placement, ...], pus: int
) -> dict[str, float]:
    """Reference time x copies that share a PU: a guess, the machine is not the reference one."""
    if placements[0].cpu is None:
        crowd = -(-len(placements) // max(1, pus))
    else:
        crowd = max(Counter(placement.cpu for placement in placements).values())
    return {
        workload.benchmark.name: workload.size.reference_s * crowd
        for workload in workloads
        if workload.size.reference_s is not None
    }
