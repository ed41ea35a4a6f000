"""Benchmarks of an installed SPEC CPU: from their run directories to what copies run there."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from rater.errors import InputError
from rater.plan.placement.memory_policy import AT_HOME, Memory, MemoryPolicy, named_nodes
from rater.plan.placement.place import Placed, Placement
from rater.plan.request.request import KIT_COPIES, Request
from rater.plan.suite.model import Benchmark, Command, Size
from rater.plan.topology.model import Topology
from rater.record.run import storable
from rater.speccpu.config.binding import UNBOUND, Binding, read_binding
from rater.speccpu.kit.kit import (
    COMPARE,
    PREFIX,
    BindKind,
    KitBenchmark,
    KitRun,
    bind_kind,
    compared_files,
    find_runs,
    newest_runs,
    problems_of,
    programs_of,
    read_benchmark,
    run_of,
)
from rater.speccpu.kit.speccmds import SpecCommand, expanded, is_simple, uses_bind, words_of
from rater.text.cpuset import format_list, parse_list
from rater.text.words import some

if TYPE_CHECKING:
    from rater.run.programs.compile import Built
    from rater.run.programs.script import Line
    from rater.run.workplace.run_dirs import Program

# As SPECrate sets them for every copy; -E of a command file wins.
_ENVIRONMENT = (("OMP_NUM_THREADS", "1"), ("OMP_THREAD_LIMIT", "1"))
_BINDERS = re.compile(r"\b(?:numactl|taskset|dplace)\b")
_SHOWN = 60  # characters of a bind value


@dataclass(frozen=True, slots=True)
class Kit:
    """What was asked for of kits."""

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
    own = [run_of(Path(file)) for file in request.speccmds]
    kits = [read_benchmark(run) for run in (*runs, *own)]
    twice = [name for name, times in Counter(kit.name for kit in kits).items() if times > 1]
    if twice:
        files = ", ".join(str(kit.run.file) for kit in kits if kit.name == twice[0])
        raise InputError(
            f"benchmark {twice[0]} is there more than once ({files}): one run needs different "
            "names; run them one after the other"
        )
    said: dict[str, list[str]] = {}
    for kit in kits:
        for remark in (*kit.remarks, *_about_binding(kit, from_file=request.bind_from_file)):
            said.setdefault(remark.removeprefix(f"{kit.name}: "), []).append(kit.name)
    remarks += [f"{some(names)}: {remark}" for remark, names in said.items()]
    if any(kit.reference_s is not None for kit in kits):
        remarks.append("ratios are rater's own estimates, not SPEC metrics")
    names = [Path(selection.removeprefix(PREFIX)).resolve().name for selection in request.suites]
    names += [run.file.parent.name for run in own]
    name = ", ".join(f"{PREFIX}{storable(name)}" for name in dict.fromkeys(names))
    return Kit(name, tuple(kits), tuple(map(storable, remarks)))


def kit_benchmark(kit: KitBenchmark) -> tuple[Benchmark, Size]:
    """Return a kit's benchmark in the words of suites, as far as they have words for it."""
    size = Size(
        name=kit.run.size or "speccmds",
        commands=(Command((), (), None, None, None),),
        environment=(),
        reference_s=kit.reference_s,
        memory_bytes=None,
        total_memory_bytes=None,
        disk_bytes=0,
        inputs=(),
        expected=(),
    )
    benchmark = Benchmark(
        name=kit.name,
        category=None,
        description="",
        sources=(),
        libraries=(),
        flags={},
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
        said = ", ".join(f"{one:g}" for one in sorted(staggers))
        raise InputError(
            f"command files have different staggers (-S {said} ms): choose with --stagger MS, or "
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


def kit_problems(kits: Sequence[KitBenchmark], copies: int) -> list[str]:
    """Say what stands in the way of running these copies now."""
    return [said for kit in kits for said in problems_of(kit, copies)]


# -- where copies run ---------------------------------------------------------------------------


def _own_binding(kit: KitBenchmark, copy: int, *, from_file: bool) -> Binding:
    """Return where a copy's commands bind it to CPUs by themselves; unbound: they do not.

    A command that binds to what stands for `$BIND` is none of its own where rater puts a list
    of CPUs there.
    """
    binds = kit.commands.binds
    kinds = _kinds(binds)
    for command in kit.commands.commands:
        if not uses_bind(command.text):
            value = ""
        elif from_file or BindKind.WORDS in kinds:
            value = binds[copy]
        elif BindKind.COMMAND in kinds:
            value = ""
        else:
            continue
        text = expanded(command.text, copy, value)
        if _BINDERS.search(text):
            found = read_binding(text)
            if found.cpus or found.cpu_nodes or found.problem:
                return found
    return UNBOUND


@cache
def _kinds(binds: tuple[str, ...]) -> frozenset[BindKind]:
    """Return what the bind values of a command file are; asked for each of its copies."""
    return frozenset(map(bind_kind, binds))


def commands_bind(kits: Sequence[KitBenchmark]) -> str | None:
    """Return by what the commands of kits bind copies themselves, whatever rater does; None."""
    for kit in kits:
        found = _own_binding(kit, 0, from_file=False)
        if found != UNBOUND:
            return found.by or "a command"
    return None


def _about_binding(kit: KitBenchmark, *, from_file: bool) -> list[str]:
    """Say what a person should know of who binds copies."""
    binds = kit.commands.binds
    asked = any(uses_bind(command.text) for command in kit.commands.commands)
    first = next((it for it in binds if bind_kind(it) is not BindKind.CPUS), None)
    own = _own_binding(kit, 0, from_file=from_file)
    if from_file and first is not None:
        if not asked and own == UNBOUND:
            return [
                f"{kit.name}: copies are not bound: the commands have no $BIND for "
                f"{_cut(first)!r} of the command file to stand in"
            ]
        if asked:
            return [
                f"{kit.name}: {_cut(first)!r} of the command file binds copies, not rater: the "
                "placement shown is what it says; the samples tell where copies were"
            ]
    if own != UNBOUND and not (from_file and asked):
        known = "is not known" if own.problem or own.relative or not own.cpus else "is theirs"
        why = " (it fails inside another binding)" if own.by == "numactl" else ""
        return [
            f"{kit.name}: {own.by} in the commands binds copies, not rater{why}: --layout and "
            f"--bind have no effect, the placement shown {known}; the samples tell where copies "
            "were"
        ]
    if not from_file and asked and first is not None:
        return [
            f"{kit.name}: {_cut(first)!r} of the command file is left out: rater places copies "
            "itself (--bind-from-file uses it)"
        ]
    return []


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def places_of_file(
    kits: Sequence[KitBenchmark],
    copies: int,
    topology: Topology,
    memory: Memory,
    *,
    from_file: bool = True,
) -> Placed:
    """Return where command files put copies: by -b lines if `from_file`, else by commands alone.

    Raises `InputError`.
    """
    by_kit = []
    for kit in kits:
        own = commands_bind([kit])
        if from_file and not kit.commands.binds and own is None:
            raise InputError(
                f"--bind-from-file: {kit.run.file} has no -b lines (`bind` in the configuration "
                "makes them): leave the option out, and rater places copies"
            )
        by_kit.append(
            tuple(_placed(kit, copy, topology, memory, from_file) for copy in range(copies))
        )
        if by_kit[0] != by_kit[-1] or (not from_file and own is None):
            raise InputError(
                f"{'--bind-from-file: ' if from_file else ''}{kits[0].name} and {kit.name} bind "
                "their copies differently: run them one after the other"
            )
    placements = by_kit[0]
    used = Counter(cpu for it in placements for cpu in it.cpus or (it.cpu,) if cpu is not None)
    shared = sorted(cpu for cpu, times in used.items() if times > 1)
    warnings = (
        (f"the command file binds several copies to CPUs {format_list(shared)}",) if shared else ()
    )
    return Placed(placements, warnings, most=copies)


def _placed(
    kit: KitBenchmark, copy: int, topology: Topology, memory: Memory, from_file: bool
) -> Placement:
    own = _own_binding(kit, copy, from_file=from_file)
    bind = kit.commands.binds[copy] if from_file and kit.commands.binds else ""
    ours = own == UNBOUND and bind_kind(bind) is BindKind.CPUS
    try:
        cpus = parse_list(bind) if ours else own.cpus or ()
    except ValueError as error:
        raise InputError(f"{kit.run.file}: -b of copy {copy}: {error}") from error
    pus = {pu.os: pu for pu in topology.pus if pu.os in cpus}
    missing = sorted(set(cpus) - pus.keys())
    if missing and ours:
        raise InputError(
            f"{kit.run.file}: -b {bind} of copy {copy}: {topology.source} has no usable CPU "
            f"{format_list(missing)}; leave out --bind-from-file, and rater places copies"
        )
    home = pus.get(cpus[0]) if cpus and not own.relative else None
    if home is None:
        return Placement(copy, None, None, None, None, None, None, MemoryPolicy.NONE, ())
    place = (home.os, home.core, home.llc, home.node, home.package)
    if not ours:
        return Placement(copy, None, *place, MemoryPolicy.NONE, ())
    nodes = named_nodes(topology, memory)
    if memory.policy in AT_HOME and not nodes:
        nodes = tuple(sorted({pu.node for pu in pus.values() if pu.node is not None}))
    return Placement(copy, tuple(sorted(pus)), *place, memory.policy, nodes)


def _bind_of(kit: KitBenchmark, placement: Placement, *, from_file: bool) -> str:
    """Return what stands for `$BIND` in the commands of a copy."""
    binds = kit.commands.binds
    kinds = _kinds(binds)
    if binds and (from_file or BindKind.WORDS in kinds):
        return binds[placement.copy]
    if BindKind.COMMAND in kinds:
        return ""
    return format_list(placement.cpus or sorted(os.sched_getaffinity(0)))


# -- what copies run ----------------------------------------------------------------------------


def texts_of(kit: KitBenchmark, placement: Placement, *, from_file: bool) -> tuple[str, ...]:
    """Return the commands of one copy as a shell takes them, without their streams."""
    bind = _bind_of(kit, placement, from_file=from_file)
    return tuple(expanded(it.text, placement.copy, bind) for it in kit.commands.commands)


def kit_lines(kit: KitBenchmark) -> tuple[Line, ...]:
    """Return the commands with their streams, for people; words as they stand in the file."""
    return tuple(_line(kit, command) for command in kit.commands.commands)


def _line(kit: KitBenchmark, command: SpecCommand) -> Line:
    from rater.run.programs.script import Line

    words = words_of(command.text) or (command.text,)
    closes = kit.commands.stdin == "C"
    if kit.commands.no_redirection:
        return Line(words, closes_stdin=closes)
    return Line(words, command.stdin, command.stdout, command.stderr, True, closes)


def kit_program(
    request: Request, kit: KitBenchmark, placements: Sequence[Placement], wrap: Sequence[str]
) -> Program:
    """Return a kit's benchmark, ready to be started."""
    from rater.run.check.specdiff import KitComparison
    from rater.run.programs.script import Line, argv_of_texts
    from rater.run.workplace.run_dirs import Own, Program

    benchmark, _ = kit_benchmark(kit)
    lines = kit_lines(kit)
    streams = [(command.stdout, command.stderr) for command in kit.commands.commands]
    outputs = [[name for name in pair if name] for pair in streams]
    spec = (("SPEC", str(kit.root)),) if kit.root and "SPEC" not in os.environ else ()
    compared = compared_files(kit.comparison)
    own = []
    for placement in placements:
        bind = _bind_of(kit, placement, from_file=request.bind_from_file)
        comparison = KitComparison(
            tuple(
                Line(
                    ("/bin/sh", "-c", expanded(it.text, placement.copy, bind)),
                    it.stdin,
                    it.stdout,
                    it.stderr,
                )
                for it in kit.comparison
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
        own.append(Own(argv, directory, comparison if kit.comparison else None))
    return Program(
        name=kit.name,
        argv=(),
        inputs=(),
        expected=(),
        directory=None,
        environment=benchmark.environment,
        own=tuple(own),
    )


@cache
def _can_be_executed(text: str) -> bool:
    """Tell whether a shell may become the command: it then ends as the command does, by its signal.

    Names without a `/` may be builtins: only what is a program as well.
    """
    first = words_of(text)[:1] if is_simple(text) else ()
    return bool(first) and ("/" in first[0] or shutil.which(first[0]) is not None)


def kit_built(kit: KitBenchmark) -> Built:
    """Return a kit's program as something that was built."""
    from rater.run.programs.compile import Built, key_of, sha256_of

    programs = programs_of(kit)
    try:
        digests = [sha256_of(program) for program in programs]
    except OSError:
        digests = []
    if not digests:
        return Built(Path("/bin/sh"), None, None, None)
    sha256 = digests[0] if len(digests) == 1 else key_of(*digests)
    return Built(programs[0], sha256, None, None)


def kit_digest(kit: KitBenchmark, wrap: Sequence[str]) -> str:
    """Return a SHA-256 over what is run and compared: the command files, and a prefix."""
    from rater.run.programs.compile import key_of, sha256_of

    parts = ["speccmds", sha256_of(kit.run.file)]
    if kit.comparison:
        parts += ["compare", sha256_of(Path(kit.directories[0]) / COMPARE)]
    return key_of(*parts, *wrap)


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
    files = [storable(str(kit.run.file)) for kit in kits]
    return "\n".join(files), "\n".join(sha256_of(kit.run.file) for kit in kits)
