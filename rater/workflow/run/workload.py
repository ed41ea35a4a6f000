"""What is to run: the benchmarks that were asked for, and those that have to be left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rater.errors import InputError
from rater.plan.request.argument import LONGEST_NAME
from rater.plan.request.request import Request
from rater.plan.suite.find import load_suite, select, split_selection
from rater.plan.suite.model import Benchmark, Command, Size, Suite
from rater.record.run import storable
from rater.run.host.requirements import Load, available, misfit
from rater.run.programs.compile import missing_programs
from rater.run.programs.inputs import ReadyInput
from rater.speccpu.kit.kit import KitBenchmark
from rater.text.document import did_you_mean
from rater.text.words import printable
from rater.workflow.speccpu.kit import kit_benchmark


@dataclass(frozen=True, slots=True)
class Workload:
    """One benchmark in the size that was asked for."""

    benchmark: Benchmark
    size: Size
    suite: Suite | None  # None: a plain command
    named: bool = False  # by the user, not only as one of its suite
    kit: KitBenchmark | None = None  # of an installed SPEC CPU


def without_missing(workloads: Sequence[Workload]) -> tuple[tuple[Workload, ...], tuple[str, ...]]:
    """Leave out benchmarks whose programs are not installed, where their suite allows it.

    Returns the others, and in words what is left out and why.
    """

    def missing(workload: Workload) -> str | None:
        if workload.named:
            return None
        has_setup = workload.suite is not None and bool(workload.suite.setup)
        return "; ".join(missing_programs(workload.benchmark, workload.size, has_setup=has_setup))

    return _without(workloads, "missing", missing)


def without_unfit(
    workloads: Sequence[Workload], copies: int, work: Path
) -> tuple[tuple[Workload, ...], tuple[str, ...]]:
    """Leave out benchmarks that do not fit even alone, where their suite allows it."""
    left = available(work)
    return _without(workloads, "unfit", lambda it: misfit(load_of(it, copies), left))


def _without(
    workloads: Sequence[Workload], why: str, problem_of: Callable[[Workload], str | None]
) -> tuple[tuple[Workload, ...], tuple[str, ...]]:
    kept, notes = [], []
    for workload in workloads:
        may = workload.suite is not None and why in workload.suite.leave_out
        problem = problem_of(workload) if may else None
        if problem:
            notes.append(f"left out: {workload.benchmark.name}: {problem}")
        else:
            kept.append(workload)
    return tuple(kept), tuple(notes)


def load_of(
    workload: Workload,
    copies: int,
    inputs: Sequence[ReadyInput] | None = None,
    *,
    linked: bool = True,
) -> Load:
    """Return what `copies` copies of a benchmark need; `inputs` when they are there already.

    `linked`: inputs that copies share are hard-linked into run directories.
    """
    size = workload.size
    memory, total = size.memory_bytes, size.total_memory_bytes
    if inputs is None:
        copied = sum(_bytes_of(i.path) for i in size.inputs if i.private and i.path is not None)
    else:
        copied = sum(made.size_bytes for made in inputs if made.private or not linked)
    return Load(
        benchmark=workload.benchmark.name,
        copies=copies,
        runs=copies,
        memory_bytes=memory if total is None else -(-total // copies),
        disk_bytes=size.disk_bytes,
        input_bytes=copied,
        is_divided=total is not None,
    )


def _bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # told when the input is made
        return 0


def command_workload(request: Request) -> Workload:
    """Return the command behind `--` as a benchmark."""
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
        name=request.called or name_of(request.command[0]),
        category=None,
        description="",
        sources=(),
        libraries=(),
        flags={},
        command=request.command,
        sizes={"command": size},
    )
    return Workload(benchmark, size, None)


def kit_workloads(kits: Sequence[KitBenchmark]) -> tuple[Workload, ...]:
    """Return benchmarks of an installed SPEC CPU."""
    return tuple(Workload(*kit_benchmark(kit), None, named=True, kit=kit) for kit in kits)


def name_of(command: str) -> str:
    """Return a benchmark's name for a command: its basename, fit for a file name and a table."""
    name = storable(Path(command).name or command)
    return printable(name)[:LONGEST_NAME]


def suite_workloads(request: Request) -> tuple[str, tuple[Workload, ...]]:
    """Return the suites' names and what is wanted of them. Raises `InputError`."""
    suites: dict[str, Suite] = {}
    wanted: dict[str, set[str]] = {}
    named: set[tuple[str, str]] = set()
    for selection in request.suites:
        key = split_selection(selection)[0]
        if key not in suites:
            suites[key] = load_suite(key)
            wanted[key] = set()
        wanted[key] |= {b.name for b in select(suites[key], selection).benchmarks}
        named |= {(key, name) for name in split_selection(selection)[1]}
    workloads = [
        Workload(
            benchmark,
            _size(suite, benchmark, request.size),
            suite,
            named=(key, benchmark.name) in named,
        )
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
