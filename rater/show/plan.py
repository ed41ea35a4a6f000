"""What a run would do: plan, order, time, memory and disk, as text and as JSON."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO

from rater.plan.cpuset import format_list
from rater.plan.place import Placement
from rater.plan.schedule import Order, Plan
from rater.show.format import count, duration, gigabytes, plain

_LABEL = 9  # characters before the text of a line
_ORDERS_SHOWN = 8
_COPIES_SHOWN = 16  # more are summarised per lgroup; --json has them all


@dataclass(frozen=True, slots=True)
class PlanView:
    """A resolved run with its estimates."""

    suite: str | None
    size: str | None
    tune: str | None
    plan: Plan
    placements: tuple[Placement, ...]
    layout: str
    machine: str
    orders: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]  # (copies, benchmarks in order)
    expected_s: float | None
    memory_bytes: int
    memory_benchmark: str | None
    memory_unstated: tuple[str, ...]
    memory_available_bytes: int
    disk_bytes: int
    disk_available_bytes: int
    warnings: tuple[str, ...]
    refusals: tuple[str, ...]
    threads: tuple[tuple[str, int], ...] = ()  # CPUs a copy uses, by benchmark
    cooldown_s: float = 0.0  # rest between phases
    until_idle_s: float | None = None  # longest wait for an idle machine between them; None: none


def print_plan(view: PlanView, out: TextIO, width: int) -> None:
    """Print the plan for people, in lines of at most `width` characters."""
    for line in _lines(view):
        label = len(line) - len(line[_LABEL:].lstrip()) if line[_LABEL:].strip() else 0
        print(textwrap.fill(plain(line), width, subsequent_indent=" " * label) or "", file=out)


def plan_document(view: PlanView) -> dict[str, Any]:
    """Return the JSON document of a plan."""
    plan = view.plan
    return {
        "dry_run": True,
        "mode": plan.mode,
        "benchmarks": list(plan.benchmarks),
        "iterations": plan.iterations,
        "order": str(plan.order),
        "phases": len(plan.phases),
        "warmup_s": plan.window.warmup_ns / 1e9 if plan.window else None,
        "window_s": plan.window.length_ns / 1e9 if plan.window else None,
        "threads": dict(view.threads),
        "cooldown_s": view.cooldown_s,
        "until_idle_s": view.until_idle_s,
        "stagger_ms": plan.stagger_ns / 1e6,
        "copies": [
            {
                "copy": p.copy,
                "cpus": None if p.cpus is None else list(p.cpus),
                "core": p.core,
                "node": p.node,
                "package": p.package,
                "memory": {"policy": str(p.policy), "nodes": list(p.memory_nodes)},
                "start_ms": p.copy * plan.stagger_ns / 1e6,
            }
            for p in view.placements
        ],
        "orders": [
            {"copies": list(copies), "benchmarks": list(names)} for copies, names in view.orders
        ],
        "expected_s": view.expected_s,
        "memory_bytes": view.memory_bytes,
        "memory_available_bytes": view.memory_available_bytes,
        "disk_bytes": view.disk_bytes,
        "disk_available_bytes": view.disk_available_bytes,
        "warnings": list(view.warnings),
        "refused": list(view.refusals),
    }


def _lines(view: PlanView) -> Iterator[str]:
    plan = view.plan
    what = (
        plan.benchmarks[0]
        if view.suite is None
        else f"suite {view.suite}, size {view.size}, tune {view.tune}: "
        f"{count(len(plan.benchmarks), 'benchmark')}"
    )
    yield "dry run: nothing is started, built or stored"
    yield ""
    yield f"what     {what}"
    rounds = f", {count(plan.iterations, 'iteration')}"
    if plan.discard:
        rounds += f" (the first {plan.discard} not counted)"
    rotated = plan.window is not None and plan.order is Order.ROTATED
    mode = f"{plan.mode} in rotated order" if rotated else plan.mode
    yield f"how      {mode}, {count(plan.copies, 'copy', 'copies')}{rounds}"
    yield from _timing(view)
    yield f"where    layout {view.layout} on {view.machine}"
    yield from _places(view)
    yield ""
    if plan.order is Order.ROTATED:
        yield "order    copies with the same queue, one round:"
        shown = [(_some(copies), " ".join(names)) for copies, names in view.orders[:_ORDERS_SHOWN]]
        width = max(len(copies) for copies, _ in shown)
        for copies, names in shown:
            yield f"           {copies:>{width}}  {names}"
        if len(view.orders) > _ORDERS_SHOWN:
            yield f"           and {len(view.orders) - _ORDERS_SHOWN} more orders (--json has all)"
    else:
        yield f"order    all copies: {' then '.join(plan.benchmarks)}"
    yield ""
    yield from _estimates(view)
    for warning in view.warnings:
        yield f"warning  {warning}"
    for refusal in view.refusals:
        yield f"REFUSED  as it stands, this run would be refused: {refusal}"


def _timing(view: PlanView) -> Iterator[str]:
    """What is between starts, in a phase and between phases."""
    plan = view.plan
    if plan.stagger_ns:
        last_s = plan.stagger_ns * (plan.copies - 1) / 1e9
        yield (
            f"stagger  {plan.stagger_ns / 1e6:g} ms between starts, "
            f"the last copy starts after {duration(last_s)}"
        )
    if plan.window is not None:
        windows = count(len(plan.phases), "window")
        yield (
            f"window   {windows} of {duration(plan.window.length_ns / 1e9)}, each after "
            f"{duration(plan.window.warmup_ns / 1e9)} of warm-up; copies repeat until every run "
            "that began before its end has ended"
        )
    several = [(name, threads) for name, threads in view.threads if threads > 1]
    if several:
        most = max(threads for _, threads in several)
        if len({threads for _, threads in view.threads}) == 1:
            yield f"threads  {most} CPUs for each copy"
        else:
            each = ", ".join(f"{name} {threads}" for name, threads in view.threads)
            yield f"threads  CPUs that a copy uses: {each}"
    if len(plan.phases) > 1 and (view.cooldown_s or view.until_idle_s is not None):
        rests = [f"{duration(view.cooldown_s)} of rest"] if view.cooldown_s else []
        if view.until_idle_s is not None:
            rests.append(f"at most {duration(view.until_idle_s)} until the machine is idle again")
        yield f"between  phases: {', then '.join(rests)}"


def _places(view: PlanView) -> Iterator[str]:
    if view.placements[0].cpus is None:
        yield "           copies are not bound"
        return
    if len(view.placements) <= _COPIES_SHOWN:
        yield "           copy  CPUs       core  lgroup  memory"
        for p in view.placements:
            memory = str(p.policy) + (f" {format_list(p.memory_nodes)}" if p.memory_nodes else "")
            yield (
                f"           {p.copy:4}  {format_list(p.cpus or ()):9}  {_or_dash(p.core):>4}  "
                f"{_or_dash(p.node):>6}  {memory}"
            )
        return
    groups: dict[int | None, list[Placement]] = defaultdict(list)
    for p in view.placements:
        groups[p.node].append(p)
    yield "           lgroup  copies  CPUs"
    for node, members in groups.items():
        cpus = format_list({cpu for p in members for cpu in p.cpus or ()})
        yield f"           {_or_dash(node):>6}  {len(members):6}  {cpus}"


def _estimates(view: PlanView) -> Iterator[str]:
    plan = view.plan
    if view.expected_s is None:
        least_s = plan.stagger_ns * (plan.copies - 1) / 1e9 * len(plan.phases)
        more = f"at least {duration(least_s)} of staggered starts" if least_s else "not known"
        yield f"time     {more} (no reference time to estimate from)"
    else:
        if plan.window is not None:
            basis = "the windows and the runs that cross their ends"
        else:
            basis = "if this machine is as fast as the reference"
        yield f"time     about {duration(view.expected_s)}, {basis}"
    available = f"{gigabytes(view.memory_available_bytes)} available"
    if view.memory_benchmark is None:
        yield f"memory   not known ({available})"
    else:
        yield (
            f"memory   {gigabytes(view.memory_bytes)} at most, in {view.memory_benchmark} "
            f"({available})"
        )
    yield (
        f"disk     {gigabytes(view.disk_bytes)} for run directories, outputs apart "
        f"({gigabytes(view.disk_available_bytes)} free)"
    )


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _some(copies: tuple[int, ...]) -> str:
    shown = ",".join(str(copy) for copy in copies[:4])
    return shown if len(copies) <= 4 else f"{shown},...,{copies[-1]}"
