"""Resolve a `Request` against a machine and the suites: everything a run needs, nothing started."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.counter_choice import CounterChoice
from rater.plan.placement.layout import called, load_layout, override_layout
from rater.plan.placement.memory_policy import Memory, apply_memory_support, parse_memory
from rater.plan.placement.offer import check_asked, offer_cpus
from rater.plan.placement.place import default_memory, implied_copies, place, resolve_copies
from rater.plan.request import DEFAULT_COPIES, Request
from rater.plan.schedule import (
    Order,
    Plan,
    make_plan,
    remedies_for,
    resolve_mode,
    resolve_window,
    rotation_warnings,
)
from rater.plan.topology import Topology
from rater.record.run import MemoryPolicy, Placement
from rater.run.host.thread_binding import memory_support
from rater.run.programs.compile import cache_root
from rater.run.programs.tuning import UNTUNED, CopyTuning
from rater.system.errors import InputError
from rater.text.values import truncate_list
from rater.workflow.machine import counter_warnings, counters_of
from rater.workflow.run.workload import (
    KITS,
    KitBenchmark,
    Workload,
    command_workload,
    suite_workloads,
    tuning_of,
    without_missing,
    without_unfit,
)


class RunPlan(Struct, frozen=True, kw_only=True):
    """A run as it will be."""

    request: Request
    topology: Topology
    plan: Plan
    placements: tuple[Placement, ...]
    memory: Memory  # what was asked for; placements say what this kernel can have of it
    layout: str  # its name and what the user changed of it
    reserved: tuple[int, ...]  # OS numbers of the PUs kept free of copies, ascending
    suite: str | None
    workloads: tuple[Workload, ...]  # in ring order
    warnings: tuple[str, ...]
    refusals: tuple[str, ...]  # why it will not run as it is
    expected_s: dict[str, float]  # by benchmark: a guess for one phase without stagger
    tuning: CopyTuning = UNTUNED
    counters: CounterChoice | None = None  # None: nothing is counted

    @property
    def counted_events(self) -> int:
        """How many counters a copy has open at most."""
        return self.counters.most_events if self.counters else 0


def resolve(request: Request, topology: Topology) -> RunPlan:
    """Plan a run on a machine. Raises `InputError` for what can not be planned at all."""
    request, suites, workloads, remarks = load_workloads(request)
    kits = [workload.kit for workload in workloads if workload.kit]
    mode, order, stagger_ms = resolve_mode(request.mode, request.stagger_ms, request.order)
    changes: dict[str, Any] = {
        it: getattr(request, it) for it in ("bind", "smt", "kind", "reserve")
    }
    check_asked(topology, smt=request.smt, kind=request.kind)
    layout = override_layout(load_layout(request.layout), **changes)
    offer = offer_cpus(topology, layout)
    usable = offer.counted

    def copies_of(threads: int) -> int:
        if request.copies is None and (implied := implied_copies(offer, threads)) is not None:
            return implied
        return resolve_copies(request.copies or DEFAULT_COPIES, usable, threads)

    workloads, copies, left_out = _what_fits(request, workloads, copies_of, usable)
    if request.copies is None:
        counted = implied_copies(offer) is None
        request = replace(request, copies=DEFAULT_COPIES if counted else str(copies))
    elif request.copies.strip() == "nodes":
        offer = offer.of_nodes()
    threads = _threads(workloads)
    memory = (
        Memory(default_memory(layout)) if request.memory is None else parse_memory(request.memory)
    )
    placed, bound_by = (
        KITS().kit_placement(request, kits, copies, topology, memory) if kits else (None, None)
    )
    if placed is not None:
        nowhere = all(
            placement.memory_policy is MemoryPolicy.NONE for placement in placed.placements
        )
        if nowhere and memory.policy is not MemoryPolicy.NONE:
            if request.memory is not None:
                raise InputError(
                    f"--mem {request.memory}: the command file already sets the memory policy: "
                    "remove --mem"
                )
            memory = Memory(MemoryPolicy.NONE)
    else:
        placed = place(offer, copies, memory, threads)
    placements, not_had = placed.placements, tuple[str, ...]()
    if topology.is_this_system and any(
        placement.memory_policy != "none" for placement in placements
    ):
        placements, not_had = apply_memory_support(placements, memory_support())
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
    counters = counters_of(request, topology, plan)
    refusals = []
    pus = len(usable.pus)
    called_so = called(request.layout, **changes)
    if request.bind_from_file:
        called_so = "-b of the command file"
    elif bound_by:
        called_so = f"{bound_by} of the commands"
    if (copies > placed.most or threads > pus) and not request.oversubscribe:
        each = f" of {threads} threads" if threads > 1 else ""
        fewer = f"use --copies {placed.most} or " if pus >= threads else ""
        if placed.full:  # the number of copies is that of the layout's counts
            fewer = f"lower the counts in the layout ({truncate_list(placed.full)}) or "
        refusals.append(
            f"{copies} {'copy' if copies == 1 else 'copies'}{each} on the {pus} PUs of layout "
            f"{called_so} and --no-oversubscribe: {fewer}leave the option out"
        )
    return RunPlan(
        request=request,
        topology=topology,
        plan=plan,
        placements=placements,
        memory=memory,
        layout=called_so,
        reserved=placed.reserved,
        suite=suites,
        workloads=workloads,
        warnings=(
            *remarks,
            *left_out,
            *_several_programs(request.command),
            *_unequal_threads(workloads),
            *(_made_in_window(workloads) if window is not None else ()),
            *_overwritten(plan, kits),
            *placed.warnings,
            *not_had,
            *counter_warnings(counters, plan),
            *rotation_warnings(
                plan,
                placements,
                topology,
                remedies_for(plan, placements, offer, threads),
            ),
        ),
        refusals=tuple(refusals),
        expected_s=_expected(workloads, placed.placements, pus, threads),
        tuning=tuning_of(request) if topology.is_this_system else UNTUNED,
        counters=counters,
    )


def _several_programs(command: Sequence[str]) -> tuple[str, ...]:
    """Say that one program runs where several are typed, `-- ./a -- ./b`."""
    programs = [shlex.join(one.split("\0")) for one in "\0".join(command).split("\0--\0")]
    if len(programs) < 2 or not all(shutil.which(shlex.split(program)[0]) for program in programs):
        return ()
    axis = "command=" + ",".join(program.replace(",", "\\,") for program in programs)
    return (
        f"one program runs, with all behind {command[0]} as its arguments; "
        f"`rater sweep --axis {shlex.quote(axis)}` compares several",
    )


def load_workloads(
    request: Request,
) -> tuple[Request, str | None, tuple[Workload, ...], tuple[str, ...]]:
    """Return the request with what command files add to it, and what it is of, in words."""
    if request.command:
        return request, None, (command_workload(request),), ()
    if not request.of_kit:
        return request, *suite_workloads(request), ()
    return KITS().load_kit(request)


def _overwritten(plan: Plan, kits: Sequence[KitBenchmark]) -> tuple[str, ...]:
    if not any(kit.comparison for kit in kits):
        return ()
    if plan.window is not None:
        return (
            "steady: outputs of the kit are not validated: a copy's next run writes into the same "
            "run directory at once",
        )
    if plan.order is Order.ROTATED and plan.iterations > 1:
        return (
            "rotated: outputs of the kit are validated for the last round only: each round of a "
            "copy writes into the same run directory",
        )
    return ()


def _what_fits(
    request: Request,
    workloads: tuple[Workload, ...],
    copies_of: Callable[[int], int],
    topology: Topology,
) -> tuple[tuple[Workload, ...], int, tuple[str, ...]]:
    """Return what can run here, with how many copies, and what is left out, in words.

    `copies_of` tells how many copies of so many threads there are to be.
    Copies that are counted (`pus`, `cores`) become more when a benchmark of many threads is
    left out, so that others may not fit any more: until nothing changes.
    """
    if not topology.is_this_system:
        return workloads, copies_of(_threads(workloads)), ()
    fitting, left_out = without_missing(workloads)
    while fitting:
        copies = copies_of(_threads(fitting))
        if request.force:
            return fitting, copies, left_out
        fewer, more = without_unfit(fitting, copies, cache_root() / "work")
        if not more:
            return fitting, copies, left_out
        fitting, left_out = fewer, left_out + more
    raise InputError("\n".join(["nothing is left to run", *left_out]))


def _threads(workloads: Sequence[Workload]) -> int:
    return max(workload.benchmark.threads for workload in workloads)


def _unequal_threads(workloads: Sequence[Workload]) -> tuple[str, ...]:
    found = {workload.benchmark.threads for workload in workloads}
    if len(found) == 1:
        return ()
    return (
        f"benchmarks have {min(found)} to {max(found)} threads a copy: every copy gets "
        f"{max(found)} CPUs, those with fewer threads leave some idle",
    )


def _made_in_window(workloads: Sequence[Workload]) -> tuple[str, ...]:
    found = []
    for workload in workloads:
        what = []
        if workload.benchmark.setup:
            what.append("a set-up")
        if any(wanted.private for wanted in workload.size.inputs):
            what.append("private inputs")
        if what:
            found.append(
                f"steady: {workload.benchmark.name} has {' and '.join(what)} for each run: made "
                "between runs, inside the window, which lowers the rate"
            )
    return tuple(found)


def size_and_tune(resolved: RunPlan) -> tuple[str | None, str | None]:
    """Return size and tune of what runs, for people; None: a command's, and what a kit has not."""
    if resolved.suite is None:
        return None, None
    kits = [workload.kit.run for workload in resolved.workloads if workload.kit]
    if not kits:
        return resolved.request.size, resolved.request.tune
    sizes = dict.fromkeys(kit.size for kit in kits if kit.size)
    tunes = dict.fromkeys(kit.tune for kit in kits if kit.tune)
    return ", ".join(sizes) or None, ", ".join(tunes) or None


def expected_total_s(resolved: RunPlan) -> float | None:
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


def most_bytes(resolved: RunPlan) -> int:
    """Return what one copy holds at its peak in the benchmark that needs most; 0: not stated."""
    sizes = [workload.size for workload in resolved.workloads]
    return max(
        size.memory_bytes or (size.total_memory_bytes or 0) // resolved.plan.copies
        for size in sizes
    )


def _expected(
    workloads: tuple[Workload, ...], placements: tuple[Placement, ...], pus: int, threads: int
) -> dict[str, float]:
    """Reference time x copies that share a PU: a guess, the machine is not the reference one."""
    if placements[0].cpu is None:
        crowd = -(-len(placements) * threads // max(1, pus))
    else:
        crowd = max(Counter(placement.cpu for placement in placements).values())
    return {
        workload.benchmark.name: workload.size.reference_s * crowd
        for workload in workloads
        # The reference machine of SPEC CPU is many times slower than any that is rated now.
        if workload.size.reference_s is not None and workload.kit is None
    }
