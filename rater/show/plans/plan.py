"""What a run would do: plan, places, order, time, memory and disk, as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO

from rater.plan.placement.place import Placement
from rater.plan.placement.summary import LgroupShare
from rater.plan.schedule.phases import Order, Plan
from rater.plan.topology.model import Topology
from rater.show.console.format import duration, gigabytes, plain
from rater.show.plans.commands import EXECUTED, Executed, executed_lines
from rater.show.plans.placements import copies_document, lgroups_document, place_lines
from rater.text.cpuset import format_list
from rater.text.to_json import Members, objects, to_json
from rater.text.words import copies_text, count

_LABEL = 9  # characters before the text of a line
_ORDERS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Estimates:
    """What a run on this machine would take of it."""

    memory_bytes: int
    memory_benchmark: str | None
    memory_available_bytes: int
    disk_bytes: int
    disk_available_bytes: int


@dataclass(frozen=True, slots=True)
class PlanView:
    """A resolved run; with estimates it is a dry run of it here, else only a plan."""

    suite: str | None
    size: str | None
    tune: str | None
    plan: Plan
    placements: tuple[Placement, ...]
    layout: str
    topology: Topology
    shares: tuple[LgroupShare, ...]
    orders: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]  # (copies, benchmarks in order)
    expected_s: float | None
    estimates: Estimates | None
    warnings: tuple[str, ...]
    refusals: tuple[str, ...]
    reserved: tuple[int, ...] = ()  # OS numbers of the CPUs kept free of copies
    threads: tuple[tuple[str, int], ...] = ()  # CPUs a copy uses, by benchmark
    cooldown_s: float = 0.0  # rest between phases
    until_idle_s: float | None = None  # longest wait for an idle machine between them; None: none
    executed: Executed | None = None  # of a dry run
    counters: tuple[str, ...] = ()  # groups of events, one an iteration


def print_plan(view: PlanView, out: TextIO, width: int) -> None:
    """Print the plan for people, in lines of at most `width` characters; paths stay whole."""
    for line in _lines(view, width):
        label = len(line) - len(line[_LABEL:].lstrip()) if line[_LABEL:].strip() else 0
        text = textwrap.fill(
            plain(line),
            width,
            subsequent_indent=" " * label,
            break_on_hyphens=False,
            break_long_words="/" not in line,  # a path can be copied
        )
        print(text, file=out)


def plan_document(view: PlanView) -> dict[str, Any]:
    """Return the JSON document of a plan."""
    document: dict[str, Any] = to_json(_DOCUMENT.of(view))
    if view.estimates is not None:
        document |= {"dry_run": True} | to_json(view.estimates)
    if view.executed is not None:
        document["executes"] = EXECUTED.of(view.executed)
    return document


_DOCUMENT = Members(
    "machine=topology.source layout plan.mode plan.benchmarks plan.iterations plan.order",
    {
        "phases": lambda view: len(view.plan.phases),
        "warmup_s": lambda view: view.plan.window.warmup_ns / 1e9 if view.plan.window else None,
        "window_s": lambda view: view.plan.window.length_ns / 1e9 if view.plan.window else None,
    },
    "threads{} cooldown_s until_idle_s",
    {
        "stagger_ms": lambda view: view.plan.stagger_ns / 1e6,
        "copies": lambda view: copies_document(
            view.topology, view.placements, view.plan.stagger_ns
        ),
        "lgroups": lambda view: lgroups_document(view.shares),
    },
    "reserved_cpus=reserved counters",
    {"orders": lambda view: objects("copies benchmarks", view.orders)},
    "expected_s warnings refused=refusals",
)


def _lines(view: PlanView, width: int) -> Iterator[str]:
    plan = view.plan
    what = (
        plan.benchmarks[0]
        if view.suite is None
        else f"suite {view.suite}, size {view.size}, tune {view.tune}: "
        f"{count(len(plan.benchmarks), 'benchmark')}"
    )
    if view.estimates is not None:
        yield "dry run: nothing is started, built or stored"
        yield ""
    yield f"what     {what}"
    rounds = f", {count(plan.iterations, 'iteration')}"
    if plan.discard:
        rounds += f" (the first {plan.discard} not counted)"
    rotated = plan.window is not None and plan.order is Order.ROTATED
    mode = f"{plan.mode} in rotated order" if rotated else plan.mode
    yield f"how      {mode}, {copies_text(plan.copies)}{rounds}"
    yield from _timing(view)
    yield f"where    layout {view.layout} on {view.topology.source}"
    if view.reserved:
        yield f"reserved CPUs {format_list(view.reserved)}, for the system and rater itself"
    yield ""
    yield from _places(view, width)
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
    if view.executed is not None:
        yield ""
        yield from executed_lines(view.executed)
    if view.estimates is not None:
        yield ""
        yield from _estimates(view, view.estimates)
    if view.estimates is None and (view.warnings or view.refusals):
        yield ""
    for warning in view.warnings:
        yield f"warning  {warning}"
    for refusal in view.refusals:
        yield f"REFUSED  as it stands, this run would be refused: {refusal}"


def _timing(view: PlanView) -> Iterator[str]:
    """What is between starts, in a phase and between phases, and what is counted."""
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
    if view.counters:
        yield f"counted  {', '.join(view.counters)}: one an iteration, in turn"
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


def _places(view: PlanView, width: int) -> Iterator[str]:
    if view.placements[0].cpus is None:
        yield "copies are not bound: the kernel puts them on any CPU, and moves them"
        return
    yield from place_lines(view.shares, view.topology, view.placements, width)


def _estimates(view: PlanView, estimates: Estimates) -> Iterator[str]:
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
    available = f"{gigabytes(estimates.memory_available_bytes)} available"
    if estimates.memory_benchmark is None:
        yield f"memory   not known ({available})"
    else:
        needed = f"{gigabytes(estimates.memory_bytes)} at most, in {estimates.memory_benchmark}"
        yield f"memory   {needed} ({available})"
    yield (
        f"disk     {gigabytes(estimates.disk_bytes)} for run directories, outputs apart "
        f"({gigabytes(estimates.disk_available_bytes)} free)"
    )


def _some(copies: tuple[int, ...]) -> str:
    shown = ",".join(str(copy) for copy in copies[:4])
    return shown if len(copies) <= 4 else f"{shown},...,{copies[-1]}"
