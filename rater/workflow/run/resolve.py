"""Resolve a `Request` against a machine and the suites: everything a run needs, nothing started."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.command_words import DIVIDER
from rater.plan.count import CountSource
from rater.plan.counter_choice import CounterChoice
from rater.plan.placement.layout import Layout, called, load_layout, override_layout
from rater.plan.placement.memory_policy import Memory, apply_memory_support, parse_memory
from rater.plan.placement.offer import CpuOffer, check_asked, offer_cpus
from rater.plan.placement.place import (
    PlacementPlan,
    default_memory,
    implied_copies,
    place,
    resolve_copies,
)
from rater.plan.request import DEFAULT_COPIES, Request, copy_numbers_of, iterations_of
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
from rater.text.values import copies_text, count, truncate_list
from rater.workflow.counters import (
    count_source_of,
    count_warnings,
    counter_warnings,
    counters_of,
)
from rater.workflow.run.narrow import FEWEST_ITERATIONS
from rater.workflow.run.workload import (
    KITS,
    KitBenchmark,
    Workload,
    command_workloads,
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
    memory: Memory  # the policy of `--mem`; placements have the policies that this kernel gives
    layout: str  # its name and what the user changed of it
    reserved: tuple[int, ...]  # OS numbers of the PUs kept free of copies, ascending
    suite: str | None
    workloads: tuple[Workload, ...]  # in ring order
    warnings: tuple[str, ...]
    refusals: tuple[str, ...]  # why the run will not be made, as planned here
    expected_s: dict[str, float]  # by benchmark: a guess for one phase without stagger
    tuning: CopyTuning = UNTUNED
    counters: CounterChoice | None = None  # None: nothing is counted
    count: CountSource | None = None  # None: instructions are not counted

    @property
    def counted_events(self) -> int:
        """How many counters a copy has open at most."""
        return self.counters.most_events if self.counters else 0


# -- The steps of `resolve`, and the value that each makes -----------------------------------------


class LoadedWorkloads(Struct, frozen=True, kw_only=True):
    """What a request names, read from suites, command files or the command line."""

    request: Request  # with what command files add to it
    suite: str | None  # names of the suites; None: a plain command
    workloads: tuple[Workload, ...]
    remarks: tuple[str, ...]

    @property
    def kits(self) -> list[KitBenchmark]:
        """The benchmarks of an installed SPEC CPU."""
        return [workload.kit for workload in self.workloads if workload.kit]


class CopyTiming(Struct, frozen=True, kw_only=True):
    """How copies are to start beside each other."""

    mode: str
    order: Order
    stagger_ms: float  # between the starts of consecutive copies

    @staticmethod
    def from_request(request: Request) -> CopyTiming:
        """Return what `--mode`, `--order` and `--stagger` mean together; raises `InputError`."""
        mode, order, stagger_ms = resolve_mode(request.mode, request.stagger_ms, request.order)
        return CopyTiming(mode=mode, order=order, stagger_ms=stagger_ms)


class LayoutOffer(Struct, frozen=True, kw_only=True):
    """The CPUs that the layout lets copies have."""

    layout: Layout
    offer: CpuOffer
    counted: Topology  # the part of the machine whose PUs, cores and nodes `--copies` counts
    called: str  # the layout's name and what options changed of it


class ChosenCopies(Struct, frozen=True, kw_only=True):
    """Which benchmarks run here, and in how many copies."""

    request: Request  # with the number of copies
    workloads: tuple[Workload, ...]  # those that are there and fit
    left_out: tuple[str, ...]  # why the others do not run
    copies: int

    @property
    def threads(self) -> int:
        """Threads of a copy: those of the benchmark that has most."""
        return _most_threads(self.workloads)


class PlacedCopies(Struct, frozen=True, kw_only=True):
    """Where the copies run and get their memory."""

    offer: CpuOffer  # of the layout, as these copies count it
    planned: PlacementPlan
    placements: tuple[Placement, ...]  # as planned, with the memory policies that this kernel has
    memory: Memory  # the policy of `--mem`, or of the layout
    bound_by: str | None  # commands of a kit that bind copies themselves
    warnings: tuple[str, ...]


class RunSchedule(Struct, frozen=True, kw_only=True):
    """What runs when, and what is counted meanwhile."""

    plan: Plan
    counters: CounterChoice | None  # None: nothing is counted
    count: CountSource | None  # None: instructions are not counted


def resolve(request: Request, topology: Topology) -> RunPlan:
    """Plan a run on a machine. Raises `InputError` for what can not be planned at all."""
    loaded = load_workloads(request)
    timing = CopyTiming.from_request(loaded.request)
    offered = _offer_layout(loaded.request, topology)
    chosen = _choose_copies(loaded, offered, topology)
    placed = _place_copies(chosen, offered, loaded.kits, topology)
    schedule = _schedule(chosen, timing, topology)
    layout = _describe_layout(chosen.request, offered, placed)
    return RunPlan(
        request=chosen.request,
        topology=topology,
        plan=schedule.plan,
        placements=placed.placements,
        memory=placed.memory,
        layout=layout,
        reserved=placed.planned.reserved,
        suite=loaded.suite,
        workloads=chosen.workloads,
        warnings=(
            *loaded.remarks,
            *chosen.left_out,
            *_warn_of_several_programs(chosen.request.command, schedule.plan),
            *_unequal_threads(chosen.workloads),
            *_made_in_window(chosen.workloads, schedule.plan),
            *_overwritten(schedule.plan, loaded.kits),
            *placed.warnings,
            *counter_warnings(schedule.counters, schedule.plan),
            *count_warnings(schedule.count),
            *rotation_warnings(
                schedule.plan,
                placed.placements,
                topology,
                remedies_for(schedule.plan, placed.placements, placed.offer, chosen.threads),
            ),
        ),
        refusals=(
            *_refuse_programs_to_rotate(chosen.request.command, schedule.plan),
            *_crowded(chosen, placed, layout, len(offered.counted.pus)),
        ),
        expected_s=_expected_times(chosen, placed, len(offered.counted.pus)),
        tuning=tuning_of(chosen.request) if topology.is_this_system else UNTUNED,
        counters=schedule.counters,
        count=schedule.count,
    )


def load_workloads(request: Request) -> LoadedWorkloads:
    """Return the benchmarks that a request names. Raises `InputError`."""
    if request.command:
        return LoadedWorkloads(
            request=request, suite=None, workloads=command_workloads(request), remarks=()
        )
    if request.threads != 1:
        raise InputError(
            f"--threads {request.threads} is of a command behind --; in a suite each benchmark has "
            "its own: `threads` in the suite's file"
        )
    if not request.of_kit:
        suite, workloads = suite_workloads(request)
        return LoadedWorkloads(request=request, suite=suite, workloads=workloads, remarks=())
    request, suite, workloads, remarks = KITS().load_kit(request)
    return LoadedWorkloads(request=request, suite=suite, workloads=workloads, remarks=remarks)


def _offer_layout(request: Request, topology: Topology) -> LayoutOffer:
    changes: dict[str, Any] = {
        name: getattr(request, name) for name in ("bind", "smt", "kind", "reserve")
    }
    check_asked(topology, smt=request.smt, kind=request.kind)
    layout = override_layout(load_layout(request.layout), **changes)
    offer = offer_cpus(topology, layout)
    return LayoutOffer(
        layout=layout,
        offer=offer,
        counted=offer.counted,
        called=called(request.layout, **changes),
    )


def _choose_copies(
    loaded: LoadedWorkloads, offered: LayoutOffer, topology: Topology
) -> ChosenCopies:
    request = loaded.request
    numbers = copy_numbers_of(request)
    if numbers is not None and request.copies is None:
        request = replace(request, copies=str(len(numbers.numbers)))

    def copies_of(threads: int) -> int:
        """Return how many copies of so many threads there are to be."""
        if request.copies is None:
            implied_here = implied_copies(offered.offer, threads)
            if implied_here is not None:
                return implied_here
        return resolve_copies(request.copies or DEFAULT_COPIES, offered.counted, threads)

    workloads, copies, left_out = _what_fits(request, loaded.workloads, copies_of, topology)
    if numbers is not None and len(numbers.numbers) != copies:
        named = count(len(numbers.numbers), "number")
        raise InputError(
            f"--copy-numbers {request.copy_numbers}: {named} for {copies_text(copies)}; expected "
            "one for each copy"
        )
    if request.copies is None:
        is_implied = implied_copies(offered.offer) is not None
        request = replace(request, copies=str(copies) if is_implied else DEFAULT_COPIES)
    return ChosenCopies(request=request, workloads=workloads, left_out=left_out, copies=copies)


def _place_copies(
    chosen: ChosenCopies, offered: LayoutOffer, kits: Sequence[KitBenchmark], topology: Topology
) -> PlacedCopies:
    request, offer = chosen.request, offered.offer
    if (request.copies or "").strip() == "nodes":
        offer = offer.of_nodes()
    memory = (
        Memory(default_memory(offered.layout))
        if request.memory is None
        else parse_memory(request.memory)
    )
    planned, bound_by = None, None
    if kits:
        planned, bound_by = KITS().kit_placement(request, kits, chosen.copies, topology, memory)
    if planned is None:
        planned = place(offer, chosen.copies, memory, chosen.threads)
    else:
        memory = _memory_beside_kit(request, planned, memory)
    placements, not_had = planned.placements, tuple[str, ...]()
    has_policy = any(placement.memory_policy != "none" for placement in placements)
    if topology.is_this_system and has_policy:
        placements, not_had = apply_memory_support(placements, memory_support())
    return PlacedCopies(
        offer=offer,
        planned=planned,
        placements=placements,
        memory=memory,
        bound_by=bound_by,
        warnings=(*planned.warnings, *not_had),
    )


def _memory_beside_kit(request: Request, planned: PlacementPlan, memory: Memory) -> Memory:
    """Return the memory policy of copies that a command file places.

    Where the file leaves rater no policy to set there is none; raises `InputError` where one was
    asked for.
    """
    is_left_to_kit = all(
        placement.memory_policy is MemoryPolicy.NONE for placement in planned.placements
    )
    if not is_left_to_kit or memory.policy is MemoryPolicy.NONE:
        return memory
    if request.memory is not None:
        raise InputError(
            f"--mem {request.memory}: the command file already sets the memory policy: remove --mem"
        )
    return Memory(MemoryPolicy.NONE)


def _schedule(chosen: ChosenCopies, timing: CopyTiming, topology: Topology) -> RunSchedule:
    request = chosen.request
    last_start_s = timing.stagger_ms * (chosen.copies - 1) / 1e3
    is_steady = timing.mode == "steady"
    uncounted = 0 if is_steady else int(request.warmup_s or 0)  # iterations that come first
    warmup_s = request.warmup_s if is_steady else None
    _refuse_until(request, timing)
    plan = make_plan(
        [workload.benchmark.name for workload in chosen.workloads],
        chosen.copies,
        mode=timing.mode,
        order=timing.order,
        iterations=iterations_of(request) + uncounted,
        discard=request.discard + uncounted,
        stagger_ms=timing.stagger_ms,
        increment=request.increment,
        window=resolve_window(timing.mode, warmup_s, request.window_s, last_start_s),
    )
    count = count_source_of(request, topology)
    counters = counters_of(request, topology, plan, count)
    return RunSchedule(plan=plan, counters=counters, count=count)


def _refuse_until(request: Request, timing: CopyTiming) -> None:
    """Raise `InputError` where no bracket of an iteration can tell whether there are enough."""
    if request.until is None:
        return
    if timing.order is Order.ROTATED or timing.mode == "steady":
        raise InputError(
            f"--until {request.until}: --mode {timing.mode} has no bracket for each benchmark and "
            "iteration; leave it out, or use --mode homogeneous"
        )
    if request.count is not None:
        raise InputError(
            f"--until {request.until}: times of copies that are counted are no measure; leave it "
            "out"
        )
    if iterations_of(request) < FEWEST_ITERATIONS:
        raise InputError(
            f"--until {request.until} --iterations {request.iterations}: expected "
            f"{FEWEST_ITERATIONS} iterations or more, as fewer may be alike by chance"
        )


def _describe_layout(request: Request, offered: LayoutOffer, placed: PlacedCopies) -> str:
    if request.bind_from_file:
        return "-b of the command file"
    if placed.bound_by:
        return f"{placed.bound_by} of the commands"
    return offered.called


def _crowded(chosen: ChosenCopies, placed: PlacedCopies, layout: str, pus: int) -> tuple[str, ...]:
    """Refuse more copies than there is room for, where `--no-oversubscribe` asks for that."""
    copies, threads, planned = chosen.copies, chosen.threads, placed.planned
    has_room = copies <= planned.most and threads <= pus
    if has_room or chosen.request.oversubscribe:
        return ()
    each = f" of {threads} threads" if threads > 1 else ""
    fewer = f"use --copies {planned.most} or " if pus >= threads else ""
    if planned.full:  # the number of copies is that of the layout's counts
        fewer = f"lower the counts in the layout ({truncate_list(planned.full)}) or "
    return (
        f"{copies} {'copy' if copies == 1 else 'copies'}{each} on the {pus} PUs of layout "
        f"{layout} and --no-oversubscribe: {fewer}leave the option out",
    )


def _expected_times(chosen: ChosenCopies, placed: PlacedCopies, pus: int) -> dict[str, float]:
    """Guess seconds of a copy by benchmark: its reference time x the copies that share a PU.

    It is a guess, since the reference times are of another machine.
    """
    placements = placed.planned.placements
    if placements[0].cpu is None:
        copies_per_pu = -(-len(placements) * chosen.threads // max(1, pus))
    else:
        copies_per_pu = max(Counter(placement.cpu for placement in placements).values())
    return {
        workload.benchmark.name: workload.size.reference_s * copies_per_pu
        for workload in chosen.workloads
        # The reference machine of SPEC CPU is many times slower than any that is rated now.
        if workload.size.reference_s is not None and workload.kit is None
    }


# -- Which workloads fit, and what a user is warned of ---------------------------------------------


def _programs_of(command: Sequence[str]) -> list[str]:
    """Return the programs of `-- ./a -- ./b`, each with its arguments; of `-- ./a` one or none."""
    programs = [shlex.join(words.split("\0")) for words in "\0".join(command).split("\0--\0")]
    are_programs = all(shutil.which(shlex.split(program)[0]) for program in programs if program)
    return programs if are_programs and all(programs) else []


def _command_axis(programs: Sequence[str]) -> str:
    return shlex.quote("command=" + ",".join(program.replace(",", "\\,") for program in programs))


def _divided(programs: Sequence[str]) -> str:
    return f" {DIVIDER} ".join(programs)


def _warn_of_several_programs(command: Sequence[str], plan: Plan) -> tuple[str, ...]:
    """Say that one program runs where several are typed."""
    programs = _programs_of(command)
    if len(programs) < 2 or plan.order is Order.ROTATED:
        return ()
    return (
        f"one program runs, with all behind {command[0]} as its arguments; a lone `:` between "
        f"programs runs each: `rater run -- {_divided(programs)}`; "
        f"`rater sweep --axis {_command_axis(programs)}` compares them",
    )


def _refuse_programs_to_rotate(command: Sequence[str], plan: Plan) -> tuple[str, ...]:
    """Refuse several programs in rotated order: they would be the arguments of the first."""
    programs = _programs_of(command)
    if len(programs) < 2 or plan.order is not Order.ROTATED:
        return ()
    return (
        f"{len(programs)} programs are divided by --, which are arguments of the first one; a lone "
        f"`:` divides them: `rater run --mode rotated -- {_divided(programs)}`",
    )


def _overwritten(plan: Plan, kits: Sequence[KitBenchmark]) -> tuple[str, ...]:
    """Say which outputs of a kit are not validated, since a later run writes over them."""
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

    `copies_of` tells how many copies of so many threads there are to be. Copies that are counted
    (`pus`, `cores`) become more when a benchmark of many threads is left out, so that others may
    not fit any more. This is repeated until nothing changes.
    """
    if not topology.is_this_system:
        return workloads, copies_of(_most_threads(workloads)), ()
    fitting, left_out = without_missing(workloads)
    while fitting:
        copies = copies_of(_most_threads(fitting))
        if request.force:
            return fitting, copies, left_out
        smaller, unfit = without_unfit(fitting, copies, cache_root() / "work")
        if not unfit:
            return fitting, copies, left_out
        fitting, left_out = smaller, left_out + unfit
    raise InputError("\n".join(["nothing is left to run", *left_out]))


def _most_threads(workloads: Sequence[Workload]) -> int:
    return max(workload.benchmark.threads for workload in workloads)


def _unequal_threads(workloads: Sequence[Workload]) -> tuple[str, ...]:
    counts = {workload.benchmark.threads for workload in workloads}
    if len(counts) == 1:
        return ()
    return (
        f"benchmarks have {min(counts)} to {max(counts)} threads a copy: every copy gets "
        f"{max(counts)} CPUs, those with fewer threads leave some idle",
    )


def _made_in_window(workloads: Sequence[Workload], plan: Plan) -> tuple[str, ...]:
    """Warn of set-ups and inputs that are made between the runs of a steady window."""
    if plan.window is None:
        return ()
    warnings = []
    for workload in workloads:
        parts = ["a set-up"] if workload.benchmark.setup else []
        if any(wanted.private for wanted in workload.size.inputs):
            parts.append("private inputs")
        if parts:
            warnings.append(
                f"steady: {workload.benchmark.name} has {' and '.join(parts)} for each run: made "
                "between runs, inside the window, which lowers the rate"
            )
    return tuple(warnings)


def size_and_tune(resolved: RunPlan) -> tuple[str | None, str | None]:
    """Return size and tune of what runs, for people; a command has neither, a kit may lack them."""
    if resolved.suite is None:
        return None, None
    kits = [workload.kit.run for workload in resolved.workloads if workload.kit]
    if not kits:
        return resolved.request.size, resolved.request.tune
    sizes = dict.fromkeys(kit.size for kit in kits if kit.size)
    tunes = dict.fromkeys(kit.tune for kit in kits if kit.tune)
    return ", ".join(sizes) or None, ", ".join(tunes) or None


def expected_total_s(resolved: RunPlan) -> float | None:
    """Guess seconds of all phases; None when a reference time is missing."""
    plan, expected = resolved.plan, resolved.expected_s
    if plan.window is not None:
        longest_s = max(expected.values(), default=0.0)  # runs that cross the window's end
        return len(plan.phases) * (plan.window.end_ns / 1e9 + longest_s)
    if any(name not in expected for name in plan.benchmarks):
        return None
    stagger_s = plan.stagger_ns * (plan.copies - 1) / 1e9
    if plan.order is Order.ROTATED:
        queues = plan.phases[0].queues
        return stagger_s + max(
            sum(expected[step.benchmark] for step in queue.steps) for queue in queues
        )
    return sum(stagger_s + expected[phase.benchmark or ""] for phase in plan.phases)


def most_bytes(resolved: RunPlan) -> int:
    """Return the peak bytes of one copy in the benchmark that needs most; 0: none is stated."""
    sizes = [workload.size for workload in resolved.workloads]
    return max(
        size.memory_bytes or (size.total_memory_bytes or 0) // resolved.plan.copies
        for size in sizes
    )
