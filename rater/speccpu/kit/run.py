"""Benchmarks of an installed kit as what copies run."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.placement.memory_policy import Memory
from rater.plan.placement.place import PlacementPlan
from rater.plan.request import KIT_COPIES, Request
from rater.plan.suite import Benchmark, Command, Size
from rater.plan.topology import Topology
from rater.record.run import Placement, escape_undecodable
from rater.speccpu.kit.benchmark import (
    COMPARE,
    KitBenchmark,
    about_binding,
    bind_of,
    commands_bind,
    compared_files,
    places_of_file,
    problems_of,
    programs_of,
    read_benchmark,
)
from rater.speccpu.kit.files import (
    PREFIX,
    KitRun,
    SpecCommand,
    expanded,
    find_runs,
    is_simple,
    kit_run,
    newest_runs,
    words_of,
)
from rater.system.errors import InputError
from rater.text.values import truncate_list
from rater.workflow.run.workload import Workload

if TYPE_CHECKING:
    from rater.run.programs.compile import BuiltProgram
    from rater.run.programs.script import CommandLine
    from rater.run.workplace.run_dirs import Program


# As SPECrate sets them for every copy; -E of a command file wins.
_ENVIRONMENT = (("OMP_NUM_THREADS", "1"), ("OMP_THREAD_LIMIT", "1"))


class Kit(Struct, frozen=True):
    """The benchmarks of kits that a run asks for."""

    name: str  # as the run's suite
    benchmarks: tuple[KitBenchmark, ...]
    remarks: tuple[str, ...]


def read_kit(request: Request) -> Kit:
    """Find and read what a request names. Raises `InputError`."""
    size, tune = request.size or None, request.tune or None
    runs: list[KitRun] = []
    remarks: list[str] = []
    for selection in request.suites:
        folder = selection.removeprefix(PREFIX)
        there, closed = find_runs(folder)
        found, notes = newest_runs(there, size, tune, selection)
        runs += found
        remarks += [*closed, *notes]
    named_runs = [kit_run(Path(file)) for file in request.speccmds]
    kits = [read_benchmark(run) for run in (*runs, *named_runs)]
    _check_names_differ(kits)
    remarks += _benchmark_remarks(kits, from_file=request.bind_from_file)
    if any(kit.reference_s is not None for kit in kits):
        remarks.append("ratios are rater's own estimates, not SPEC metrics")
    names = [Path(selection.removeprefix(PREFIX)).resolve().name for selection in request.suites]
    names += [run.file.parent.name for run in named_runs]
    name = ", ".join(f"{PREFIX}{escape_undecodable(name)}" for name in dict.fromkeys(names))
    return Kit(name, tuple(kits), tuple(map(escape_undecodable, remarks)))


def _check_names_differ(kits: Sequence[KitBenchmark]) -> None:
    """Raise `InputError` if two benchmarks of one run have the same name."""
    repeated = [name for name, times in Counter(kit.name for kit in kits).items() if times > 1]
    if repeated:
        files = ", ".join(str(kit.run.file) for kit in kits if kit.name == repeated[0])
        raise InputError(
            f"benchmark {repeated[0]} is there more than once ({files}): one run needs different "
            "names; run them one after the other"
        )


def _benchmark_remarks(kits: Sequence[KitBenchmark], *, from_file: bool) -> list[str]:
    """Return each remark once, after the names of the benchmarks that it is true of."""
    names_by_remark: dict[str, list[str]] = {}
    for kit in kits:
        for remark in (*kit.remarks, *about_binding(kit, from_file=from_file)):
            names_by_remark.setdefault(remark.removeprefix(f"{kit.name}: "), []).append(kit.name)
    return [f"{truncate_list(names)}: {remark}" for remark, names in names_by_remark.items()]


def load_kit(request: Request) -> tuple[Request, str, tuple[Workload, ...], tuple[str, ...]]:
    """Return what a request names, and the request with what command files say besides."""
    kit = read_kit(request)
    request, remarks = with_file_defaults(request, kit.benchmarks)
    workloads = tuple(_kit_workload(benchmark) for benchmark in kit.benchmarks)
    return request, kit.name, workloads, (*kit.remarks, *remarks)


def _kit_workload(kit: KitBenchmark) -> Workload:
    benchmark, size = kit_benchmark(kit)
    return Workload(benchmark=benchmark, size=size, suite=None, named=True, kit=kit)


def kit_benchmark(kit: KitBenchmark) -> tuple[Benchmark, Size]:
    """Return a kit's benchmark in the words of suites, as far as they have words for it."""
    size = Size(
        name=kit.run.size or "speccmds",
        commands=(Command(),),
        reference_s=kit.reference_s,
    )
    benchmark = Benchmark(
        name=kit.name,
        command=("/bin/sh",),
        sizes={size.name: size},
        environment=tuple((dict(_ENVIRONMENT) | dict(kit.commands.environment)).items()),
    )
    return benchmark, size


def with_file_defaults(
    request: Request, kits: Sequence[KitBenchmark]
) -> tuple[Request, tuple[str, ...]]:
    """Return the request with what command files say where the user said nothing, and remarks.

    The number of copies, and the stagger of `-S`. Raises `InputError` where the files
    do not agree.
    """
    remarks = [
        f"{kit.name}: its command file is for {kit.commands.users} copies (-u) and has run "
        f"directories for {kit.commands.copies}: so many are run"
        for kit in kits
        if request.copies == KIT_COPIES and (kit.commands.users or 0) > kit.commands.copies
    ]
    if request.copies == KIT_COPIES:
        counts = {kit.name: kit.commands.copies_meant for kit in kits}
        if len(set(counts.values())) > 1:
            each = ", ".join(f"{name}: {count}" for name, count in counts.items())
            raise InputError(
                f"command files are for different numbers of copies ({each}): choose with "
                f"--copies {min(counts.values())}, or run them one after the other"
            )
        request = replace(request, copies=str(min(counts.values())))
    staggers = {kit.commands.stagger_ms or 0.0 for kit in kits}
    if request.stagger_ms is not None or staggers == {0.0}:
        return request, tuple(remarks)
    if request.mode not in (None, "staggered"):
        remarks.append(
            f"-S of the command files is not used: --mode {request.mode} starts copies as it says"
        )
        return request, tuple(remarks)
    if len(staggers) > 1:
        given = ", ".join(f"{stagger:g}" for stagger in sorted(staggers))
        raise InputError(
            f"command files have different staggers (-S {given} ms): choose with --stagger MS, or "
            "--mode homogeneous for none"
        )
    (stagger_ms,) = staggers
    remarks.append(f"--stagger {stagger_ms:g}: not given, taken from -S of the command files")
    return replace(request, stagger_ms=stagger_ms), tuple(remarks)


def check_copies(kits: Sequence[KitBenchmark], copies: int) -> None:
    """Raise `InputError` where a command file has not as many run directories as copies."""
    for kit in kits:
        there = kit.commands.copies
        if copies > there:
            raise InputError(
                f"--copies {copies}: {kit.run.file} has run directories for {there} "
                f"{'copy' if there == 1 else 'copies'} of {kit.name} (its -C lines): use --copies "
                f"{there}, or make more with `runcpu --action runsetup --copies {copies} ...`"
            )


def kit_placement(
    request: Request,
    kits: Sequence[KitBenchmark],
    copies: int,
    topology: Topology,
    memory: Memory,
) -> tuple[PlacementPlan | None, str | None]:
    """Return where command files put copies, and by what commands bind them themselves.

    None: rater places and binds them. Raises `InputError` for too few run directories.
    """
    check_copies(kits, copies)
    bound_by = commands_bind(kits)
    if not (request.bind_from_file or bound_by):
        return None, bound_by
    from_file = request.bind_from_file
    return places_of_file(kits, copies, topology, memory, from_file=from_file), bound_by


def kit_problems(kits: Sequence[KitBenchmark], copies: int) -> list[str]:
    """Say what stands in the way of running these copies now."""
    return [problem for kit in kits for problem in problems_of(kit, copies)]


# -- what copies run ----------------------------------------------------------------------------


def texts_of(kit: KitBenchmark, placement: Placement, *, from_file: bool) -> tuple[str, ...]:
    """Return the commands of one copy as a shell takes them, without their streams."""
    bind = bind_of(kit, placement, from_file=from_file)
    return tuple(expanded(command.text, placement.copy, bind) for command in kit.commands.commands)


def kit_lines(kit: KitBenchmark) -> tuple[CommandLine, ...]:
    """Return the commands with their streams, for people; words as they stand in the file."""
    return tuple(_line(kit, command) for command in kit.commands.commands)


def _line(kit: KitBenchmark, command: SpecCommand) -> CommandLine:
    from rater.run.programs.script import CommandLine

    words = words_of(command.text) or (command.text,)
    closes = kit.commands.stdin == "C"
    if kit.commands.no_redirection:
        return CommandLine(words=words, closes_stdin=closes)
    return CommandLine(
        words=words,
        stdin=command.stdin,
        stdout=command.stdout,
        stderr=command.stderr,
        appends=True,
        closes_stdin=closes,
    )


def kit_program(
    request: Request, kit: KitBenchmark, placements: Sequence[Placement], wrap: Sequence[str]
) -> Program:
    """Return a kit's benchmark, ready to be started."""
    from rater.run.programs.script import CommandLine, argv_of_texts
    from rater.run.workplace.run_dirs import KitCopy, Program
    from rater.speccpu.kit.outputs import KitComparison

    benchmark, _ = kit_benchmark(kit)
    lines = kit_lines(kit)
    streams = [(command.stdout, command.stderr) for command in kit.commands.commands]
    outputs = [[name for name in pair if name] for pair in streams]
    spec = (("SPEC", str(kit.root)),) if kit.root and "SPEC" not in os.environ else ()
    compared = compared_files(kit.comparison)
    copies = []
    for placement in placements:
        bind = bind_of(kit, placement, from_file=request.bind_from_file)
        comparison = KitComparison(
            tuple(
                CommandLine(
                    words=("/bin/sh", "-c", expanded(command.text, placement.copy, bind)),
                    stdin=command.stdin,
                    stdout=command.stdout,
                    stderr=command.stderr,
                )
                for command in kit.comparison
            ),
            compared,
            spec + kit.comparison_environment,
        )
        texts = [
            f"exec {text}" if _can_be_executed(text) else text
            for text in texts_of(kit, placement, from_file=request.bind_from_file)
        ]
        argv = argv_of_texts(texts, lines, outputs, wrap)
        directory = kit.directories[placement.copy]
        copies.append(KitCopy(argv, directory, comparison if kit.comparison else None))
    return Program(
        name=kit.name,
        argv=(),
        environment=benchmark.environment,
        own=tuple(copies),
    )


@cache
def _can_be_executed(text: str) -> bool:
    """Tell whether a shell may become the command: it then ends as the command does, by its signal.

    Names without a `/` may be builtins: only what is a program as well.
    """
    first = words_of(text)[:1] if is_simple(text) else ()
    return bool(first) and ("/" in first[0] or shutil.which(first[0]) is not None)


def kit_built(kit: KitBenchmark) -> BuiltProgram:
    """Return a kit's program as something that was built."""
    from rater.run.programs.compile import BuiltProgram, cache_key, sha256_of

    programs = programs_of(kit)
    try:
        digests = [sha256_of(program) for program in programs]
    except OSError:
        digests = []
    if not digests:
        return BuiltProgram(executable=Path("/bin/sh"), sha256=None, compiler=None, flags=None)
    sha256 = digests[0] if len(digests) == 1 else cache_key(*digests)
    return BuiltProgram(executable=programs[0], sha256=sha256, compiler=None, flags=None)


def kit_digest(kit: KitBenchmark, wrap: Sequence[str]) -> str:
    """Return a SHA-256 over what is run and compared: the command files, and a prefix."""
    from rater.run.programs.compile import cache_key, sha256_of

    parts = ["speccmds", sha256_of(kit.run.file)]
    if kit.comparison:
        parts += ["compare", sha256_of(Path(kit.directories[0]) / COMPARE)]
    return cache_key(*parts, *wrap)


def kit_command(kit: KitBenchmark) -> str:
    """Return the commands as one line, for people."""
    return " && ".join(
        command.text + line.streams
        for command, line in zip(kit.commands.commands, kit_lines(kit), strict=True)
    )


def kit_files(request: Request) -> tuple[str | None, str | None]:
    """Return paths and hashes of the command files that a request means, a line each."""
    from rater.run.programs.compile import sha256_of

    kits = read_kit(request).benchmarks
    files = [escape_undecodable(str(kit.run.file)) for kit in kits]
    return "\n".join(files), "\n".join(sha256_of(kit.run.file) for kit in kits)
