"""`rater lab trace`: trace, rank, draw, store, and hold the prediction against runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from rater.lab.layout.preload import build_library
from rater.lab.layout.prepare import program_problems
from rater.lab.trace.costs import (
    Loads,
    costs_beside_runs,
    each_page_costs,
    page_costs,
)
from rater.lab.trace.machine import machine_tlb
from rater.lab.trace.ranking import (
    BenefitCheck,
    RankedMapping,
    check_benefits,
    mappings_to_check,
    rank_mappings,
    saved_ranges_ns,
)
from rater.lab.trace.show import (
    TraceView,
    heads_parts,
    pages_document,
    reuse_svg,
    trace_parts,
)
from rater.lab.trace.show_costs import costs_document, costs_parts
from rater.lab.trace.store import (
    StoredTrace,
    find_trace,
    keep_check,
    keep_trace,
    load_trace,
    trace_heads,
)
from rater.lab.trace.tlb import (
    BASE_PAGE,
    CheckTimes,
    PageTrace,
    mapping_argument,
    mapping_layout,
    page_mappings,
    parse_page_sizes,
)
from rater.lab.trace.tracer import (
    TraceAnalysis,
    TraceRun,
    TraceTools,
    build_tools,
    costs_beside,
    find_valgrind,
    machine_costs,
    read_trace,
    run_to_end,
    run_traced,
)
from rater.plan.schedule import Step
from rater.plan.suite_find import load_suite, select_from_suite, split_selection
from rater.plan.tlb import PAGE_SIZES, Tlb, parse_tlb
from rater.record.run import CopyStatus, Placement
from rater.record.stored import StoredRun, wants_user_time
from rater.run.launcher.copies import CopySpec
from rater.run.launcher.guard import guard
from rater.run.programs.child_process import ChildEnded, Limits
from rater.run.programs.compile import build, cache_root, find_command
from rater.run.programs.inputs import ready_inputs
from rater.run.programs.script import (
    CommandLine,
    benchmark_environment,
    command_lines,
    folders_of,
    setup_argv,
    to_argv,
)
from rater.run.workplace.checker import Checker
from rater.run.workplace.run_dirs import Program, RunFolders
from rater.run.workplace.trial import pick_size, trial_folder, try_setup
from rater.show.screen.document import Line, Part
from rater.store.connection import default_path
from rater.store.store import Store, open_store
from rater.store.sweeps import PREFIX
from rater.system.errors import InputError, RunError
from rater.system.process import print_error
from rater.text.values import ending_text, to_dict
from rater.workflow.arguments import (
    Output,
    RunArguments,
    check_current_directory,
    open_existing_store,
    print_view,
)
from rater.workflow.results.points import drawing_file, load_points, write_drawing
from rater.workflow.sweep.execute import run_sweep
from rater.workflow.sweep.request import SweepOptions

# -- `rater lab trace`: trace, rank, draw, store, and hold the prediction against runs -------------

_HUGE = PAGE_SIZES[2]


class TraceOptions(Struct, frozen=True, kw_only=True):
    """The options of `rater lab trace`."""

    which: str | None  # SUITE/BENCHMARK
    command: tuple[str, ...] | None
    trace: str | None  # a stored one
    size: str | None
    tune: str
    tlb: str | None
    sizes: str
    budget: int | None
    loads: str
    sample: float
    check: str | None
    rounds: int
    measure: bool
    timeout: float  # seconds
    file: str | None


def pages(output: Output, options: TraceOptions, listing: bool) -> int:
    """Trace one program and rank the mappings of its data to page sizes; or show what there is."""
    file = drawing_file(options.file)
    if listing:
        with open_existing_store(output) as store:
            heads = trace_heads(store)
        print_view(output, [to_dict(head) for head in heads], lambda _: heads_parts(heads))
        return 0
    if options.measure and not (options.which or options.command or options.trace):
        _measure_machine(output, options)
        return 0
    if options.trace is not None:
        has_path = options.which is not None and options.check is not None
        if options.command is not None or (options.which is not None and not has_path):
            raise InputError("--show names a trace that is there: leave the program out")
        with open_existing_store(output) as store:
            stored = load_trace(store, find_trace(store, options.trace))
        if has_path:
            check_program(stored.trace, options.which or "")
        if options.measure:
            stored = replace(stored, costs=machine_costs(cache_root(), anew=True))
    else:
        stored = _record_trace(output, options)
    _present(output, options, stored, file)
    return 0


def _measure_machine(output: Output, options: TraceOptions) -> None:
    """Measure what misses cost here, for counters that tell misses and no time."""
    tlb = parse_tlb(options.tlb) if options.tlb else machine_tlb()[0]
    costs = page_costs(machine_costs(cache_root(), anew=True), tlb)
    print_view(output, costs_document(costs), lambda _: costs_parts(costs))


def _record_trace(output: Output, options: TraceOptions) -> StoredTrace:
    check_current_directory()
    sizes = parse_page_sizes(options.sizes)
    cache, limits = cache_root(), Limits(options.timeout, _OUTPUT_LIMIT_BYTES)
    # Before anything is built.
    tlb, tlb_notes = (parse_tlb(options.tlb), ()) if options.tlb else machine_tlb()
    tools = build_tools(find_valgrind(), cache)
    with open_store(default_path(output.db)) as store:  # what cannot be stored is not traced
        with guard(str(uuid4()), 1):
            subject = subject_of(options, cache, limits)
            costs = machine_costs(cache, anew=options.measure)
            with trial_folder(cache) as work:
                stage = Sandbox(subject, work, limits)
                trace = _traced(stage, tools, tlb, sizes, options.sample)
        trace = replace(trace, notes=(*tlb_notes, *trace.notes))
        traced_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        number = keep_trace(store, trace, costs, host=os.uname().nodename, traced_at=traced_at)
        return load_trace(store, number)


def _present(output: Output, options: TraceOptions, stored: StoredTrace, file: Path | None) -> None:
    loads = Loads(options.loads)
    if options.check:
        stored = run_check(output, options, stored)
    trace = stored.trace
    tlb = parse_tlb(trace.tlb)
    costs = page_costs(stored.costs, tlb)
    ranked = rank_mappings(trace, costs)
    check = checked(stored, ranked, loads)
    view = TraceView(
        number=stored.number,
        trace=trace,
        tlb=tlb,
        costs=costs,
        ranked=ranked,
        loads=loads,
        budget=options.budget,
        check=check,
        of_user_time=stored.checks.of_user_time,
    )
    if file is not None:
        write_drawing(reuse_svg(trace), file)

    def parts(_: object) -> Iterator[Part]:
        yield from trace_parts(view)
        if file is not None:
            yield Line(f"{options.file}: {len(trace.reuse)} panels", whole=True)

    print_view(output, pages_document(view), parts)


def _traced(
    stage: Sandbox, tools: TraceTools, tlb: Tlb, sizes: tuple[int, ...], rate: float
) -> PageTrace:
    subject = stage.subject
    native = stage.native()
    if _HUGE not in sizes:
        sizes = (*sizes, _HUGE)  # what predictions for layouts are made of
    analysis = TraceAnalysis(
        tuple(array.argument for array in tlb.arrays),
        tuple(mapping_argument(mapping) for mapping in page_mappings(sizes)),
        rate,
        max(1, len(os.sched_getaffinity(0))),
    )
    print_error(
        f"tracing {subject.name}: {native.elapsed_s:.1f} s by itself, 5 to 80 times as long traced"
    )

    library = build_library(cache_root(), split=True).executable
    problems = program_problems(subject.files, library)
    traced = run_traced(tools, stage.run, analysis, stage.limits, None if problems else library)
    if traced.status != 0:
        raise RunError(
            f"{subject.name} {ending_text(traced.status)} under the tracer (by itself it did not)"
        )
    return read_trace(
        traced.document,
        huge_bytes=_HUGE,
        has_ranges=not problems,
        elapsed_s=traced.elapsed_s,
        native_s=native.elapsed_s,
        native_cpu_s=native.cpu_s,
        tlb=str(tlb),
        engine=tools.engine,
        name=subject.name,
        command=subject.command,
        suite=subject.suite,
        size=subject.size,
        notes=_notes(traced, problems),
    )


def _notes(traced: TraceRun, problems: list[str]) -> tuple[str, ...]:
    document, notes = traced.document, []
    if document["forks"]:
        notes.append(
            f"it started {document['forks']} processes, which are not traced: trace the one that "
            "does the work by itself"
        )
    notes += [
        f"{problem}: `rater run --pages` does not reach it, and its heap is told apart from its "
        "mappings only below the break"
        for problem in problems
    ]
    return tuple(notes)


def check_program(trace: PageTrace, selection: str) -> None:
    """Raise `InputError` where a benchmark of a suite is not the one that was traced.

    A trace knows its suite by name: to run it again, one that was given by its path is named anew.
    """
    suite = select_from_suite(load_suite(split_selection(selection)[0]), selection)
    names = [benchmark.name for benchmark in suite.benchmarks]
    if (suite.name, names) != (trace.suite, [trace.name]):
        traced = f"{trace.suite}/{trace.name}" if trace.suite else trace.name
        raise InputError(f"{selection}: the trace is of {traced}; name that one, or nothing")


# -- What is traced: one benchmark of a suite, or a command, ready to be started -------------------

_UNBOUND = Placement.unbound(copy=0)
_OUTPUT_LIMIT_BYTES = 1 << 30  # as `rater run` has it unless told otherwise


class TraceTarget(Struct, frozen=True, kw_only=True):
    """One program to trace."""

    name: str
    suite: str | None
    size: str | None
    command: tuple[str, ...]  # for people
    files: tuple[Path, ...]  # what its commands execute
    program: Callable[[tuple[str, ...]], Program]  # what stands in front of each command


def subject_of(options: TraceOptions, cache: Path, limits: Limits) -> TraceTarget:
    """Build, find and set up the program of the command line; raises `InputError`."""
    if options.command is not None and options.which is not None:
        raise InputError(
            f"both a benchmark ({options.which}) and a command behind `--`: one trace is of one"
        )
    if options.command is not None:
        return _of_command(options.command)
    if options.which is None:
        raise InputError(
            "what is to be traced? SUITE/BENCHMARK, as in `rater lab trace mini/gups`, or a "
            "command: `rater lab trace -- ./program`"
        )
    return _of_suite(options, cache, limits)


def _of_command(command: Sequence[str]) -> TraceTarget:
    if not command:
        raise InputError(
            "nothing behind `--`; expected a command, as in `rater lab trace -- ./bench`"
        )
    executable = find_command(command[0])
    lines = (CommandLine(words=(str(executable), *command[1:])),)
    name = "".join(
        character if character.isalnum() or character in "._-" else "_"
        for character in executable.name
    )[:60]

    def program(wrap: tuple[str, ...]) -> Program:
        return Program(
            name=name, argv=to_argv(lines, wrap), inputs=(), expected=(), directory=str(Path.cwd())
        )

    return TraceTarget(
        name=name,
        suite=None,
        size=None,
        command=tuple(command),
        files=(executable,),
        program=program,
    )


def _of_suite(options: TraceOptions, cache: Path, limits: Limits) -> TraceTarget:
    selection = options.which or ""
    suite = select_from_suite(load_suite(split_selection(selection)[0]), selection)
    if len(suite.benchmarks) != 1:
        names = ", ".join(benchmark_found.name for benchmark_found in suite.benchmarks[:20])
        raise InputError(f"{selection} is {len(suite.benchmarks)} benchmarks, trace one: {names}")
    [benchmark] = suite.benchmarks
    size = pick_size(benchmark, options.size)
    if size is None:
        size_names = ", ".join(benchmark.sizes)
        raise InputError(
            f"benchmark {benchmark.name} has no size {options.size}; there are: {size_names}"
        )
    setup_files = try_setup(suite, size.name, cache, limits)
    built = build(benchmark, options.tune, cache, size)
    lines = command_lines(benchmark, size, built)
    inputs = ready_inputs(benchmark, size, cache, setup_files)
    environment = benchmark_environment(suite, benchmark, size, cache)

    def program(wrap: tuple[str, ...]) -> Program:
        return Program(
            name=benchmark.name,
            argv=to_argv(lines, wrap, accepted=benchmark.accept_exit),
            inputs=inputs,
            expected=size.expected,
            environment=environment,
            threads=benchmark.threads,
            setup=setup_argv(benchmark),
            setup_limits=limits,
            folders=folders_of(lines),
        )

    words = tuple(word for line in lines for word in shlex.split(line.shell()))
    files = tuple(dict.fromkeys(Path(line.words[0]) for line in lines))
    return TraceTarget(
        name=benchmark.name,
        suite=suite.name,
        size=size.name,
        command=words,
        files=files,
        program=program,
    )


class Sandbox:
    """Run directories for one subject, one run after the other."""

    def __init__(self, subject: TraceTarget, work: Path, limits: Limits) -> None:
        self.subject, self.limits, self._work = subject, limits, work
        self._mark = str(uuid4())
        self._runs = 0

    def run[T](self, wrap: tuple[str, ...], doing: Callable[[CopySpec], T]) -> T:
        """Make a run directory, do it there, hold the output to what is expected, remove it."""
        self._runs += 1
        program = self.subject.program(wrap)
        folders = RunFolders(
            work=self._work,
            uuid=self._mark,
            programs={program.name: program},
            placements=(_UNBOUND,),
            added=(),
            keep=False,
        )
        step = Step(program.name, self._runs)
        spec = folders.spec(0, 0, step)
        try:
            done = doing(spec)
            if program.expected:
                with Checker() as checker:
                    [judged] = folders.judge([(step, spec)], checker)
                if judged.detail is not None:
                    raise RunError(f"{program.name} gave a wrong answer: {judged.detail}")
        finally:
            folders.clear(spec)
        return done

    def native(self) -> ChildEnded:
        """Run it by itself; return its times. Raises `RunError` where it fails."""

        def run(spec: CopySpec) -> ChildEnded:
            ended = run_to_end(spec, spec.environment, self.limits)
            if ended.status != 0:
                raise RunError(f"{self.subject.name} {ending_text(ended.status)}, run by itself")
            return ended

        return self.run((), run)


# -- `rater lab trace --check`: mappings run as a sweep over `--pages`, held against the prediction

_ITERATIONS = 3  # of a run, of which the fastest counts: other load only adds


def run_check(output: Output, trace_options: TraceOptions, stored: StoredTrace) -> StoredTrace:
    """Run mappings turn by turn and store the CPU times of a copy, by layout and round.

    What misses cost is measured before and after the runs: it changes with other load, and in a
    virtual machine with how scattered free memory is. Raises `InputError` where a layout is
    refused, `RunError` where runs did not end well.
    """
    trace = stored.trace
    ranked = rank_mappings(trace, page_costs(stored.costs, parse_tlb(trace.tlb)))
    saved_ns = [mapping.saved_ns(Loads(trace_options.loads)) for mapping in ranked]
    places = mappings_to_check(trace, ranked, saved_ns, every=trace_options.check == "all")
    if len(places) == 1:
        raise InputError("--check: the program touches no data that could have larger pages")
    layouts = [mapping_layout(ranked[place].mapping.sizes) for place in places]
    runs_by_layout: dict[str, list[StoredRun]] = {}

    def keep(_: Output, store: Store, sweep: int) -> None:
        for point in load_points(store, [f"{PREFIX}{sweep}"]):
            layout = dict(point.values)["pages"]
            runs = sorted(point.runs, key=lambda point_run: point_run.block or 0)
            runs_by_layout[layout] = [point_run.run for point_run in runs]

    options = {"copies": "1", "iterations": _ITERATIONS, "timeout": trace_options.timeout}
    typed = RunArguments(command=trace.command, options=options)
    if trace.suite is not None:
        options |= {"tune": trace_options.tune, **({"size": trace.size} if trace.size else {})}
        # A suite that was given by its path is known by that alone.
        which = trace_options.which or f"{trace.suite}/{trace.name}"
        typed = RunArguments((which,), options=options)
    # CPU time judges: a run beside other load is not made again.
    sweep_options = SweepOptions(
        axis=(f"pages={','.join(layouts)}",),
        rounds=trace_options.rounds,
        stop_on_failure=True,
        retries=0,
    )
    touched_bytes = sum(trace.of_size(BASE_PAGE).pages) * BASE_PAGE
    before = costs_beside(cache_root(), touched_bytes)
    status = run_sweep(typed, sweep_options, Output(db=output.db, json=output.json), keep)
    if status != 0 or set(runs_by_layout) != set(layouts):
        raise RunError("--check: not all runs ended well (`rater sweep --show last`)")
    checked_trace = replace(
        stored,
        costs=costs_beside_runs(before, costs_beside(cache_root(), touched_bytes)),
        checks=_check_times({layout: runs_by_layout[layout] for layout in layouts}),
    )
    with open_existing_store(output) as store:
        keep_check(store, stored.number, checked_trace.checks, checked_trace.costs)
    return checked_trace


def _check_times(runs_by_layout: Mapping[str, Sequence[StoredRun]]) -> CheckTimes:
    every_run = [run for runs in runs_by_layout.values() for run in runs]

    def times_s(*, user: bool) -> dict[str, tuple[float, ...]]:
        return {
            layout: tuple(_time_s(run, user=user) for run in runs)
            for layout, runs in runs_by_layout.items()
        }

    has_user_time = wants_user_time(every_run)
    return CheckTimes(cpu_s=times_s(user=False), user_s=times_s(user=True) if has_user_time else {})


def checked(
    stored: StoredTrace, ranked: Sequence[RankedMapping], loads: Loads
) -> BenefitCheck | None:
    """Return times of runs against the prediction; None with fewer than two layouts that ran.

    User time has no page faults in it, and neither has the prediction then.
    """
    times = stored.checks
    layouts = [mapping_layout(mapping.mapping.sizes) for mapping in ranked]
    times_s = times.times_s
    places = [place for place, layout in enumerate(layouts) if layout in times_s]
    if len(places) < 2 or places[0] != 0:
        return None
    has_faults = not times.of_user_time
    saved_ns = [mapping.saved_ns(loads, faults=has_faults) for mapping in ranked]
    every_costs = each_page_costs(stored.costs, parse_tlb(stored.trace.tlb))
    ranges_ns = saved_ranges_ns(stored.trace, every_costs, faults=has_faults)
    return check_benefits(
        [layouts[place] for place in places],
        [saved_ns[place] for place in places],
        [times_s[layouts[place]] for place in places],
        [ranges_ns[place] for place in places],
    )


def _time_s(run: StoredRun, *, user: bool) -> float:
    times = [
        (copy.user_ns if user else copy.cpu_ns) or copy.elapsed_ns
        for copy in run.copies
        if copy.status is CopyStatus.OK
    ]
    if not times:
        command = f"`rater show {run.head.run}`"
        raise RunError(f"--check: no copy of run {run.head.run} ended well ({command})")
    return min(times) * 1e-9
