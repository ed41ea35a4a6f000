"""What an installed kit runs, and who binds its copies."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cache
from pathlib import Path

from msgspec import Struct

from rater.plan.placement.memory_policy import AT_HOME, Memory, named_nodes
from rater.plan.placement.place import PlacementPlan
from rater.plan.topology import PU, Topology
from rater.record.run import MemoryPolicy, Placement
from rater.speccpu.config.binding import UNBOUND, Binding, read_binding
from rater.speccpu.kit.files import (
    COMMANDS,
    MADE_BY,
    CommandFile,
    KitRun,
    SpecCommand,
    expanded,
    named_run,
    parse_speccmds,
    uses_bind,
    words_of,
)
from rater.system.errors import InputError
from rater.system.paths import is_file
from rater.text.cpuset import format_list, parse_list
from rater.text.documents import read_text

COMPARE = "compare.cmd"
_MOST_PROBLEMS = 6


class KitBenchmark(Struct, frozen=True, kw_only=True):
    """One benchmark of a kit, as its command file says it is to be run."""

    run: KitRun
    directories: tuple[str, ...]  # by copy, absolute
    commands: CommandFile
    comparison: tuple[SpecCommand, ...]  # of the kit's own compare.cmd; empty: there is none
    comparison_environment: tuple[tuple[str, str], ...]  # its -E
    root: Path | None  # the kit (what shrc calls $SPEC), where the path tells it
    reference_s: float | None
    remarks: tuple[str, ...]  # what a person should know of the above

    @property
    def name(self) -> str:
        """The benchmark's name."""
        return self.run.benchmark


def read_benchmark(run: KitRun) -> KitBenchmark:
    """Read a command file and what lies beside it; raises `InputError` naming file and line."""
    commands = parse_speccmds(_read_commands_text(run.file), str(run.file))
    directory = run.file.parent
    # `-C ../run_x.0001` is one directory
    named = [Path(os.path.normpath(directory / name)) for name in commands.directories]
    directories = named or [directory]
    remarks: list[str] = []
    if run.file.name != COMMANDS and run.tune is None:
        # A copied command file may lie anywhere: the directories that it names tell its benchmark.
        run = named_run(run.file, directories[0], run.made_ns)
    elif directories[0].name == directory.name and not _same([directories[0], directory]):
        directories, remark = _of_which_tree(directory, directories, commands)
        remarks.append(f"{run.benchmark}: its command file names {remark}")
    first = directories[0]
    twice = sorted(_same(directories))
    if twice:
        raise InputError(
            f"{run.file}: two copies have the run directory {twice[0]}: each would overwrite "
            "what the other writes; make the run directories again"
        )
    comparison, problem = _comparison(first / COMPARE)
    if problem:
        remarks.append(f"{run.benchmark}: outputs are not validated: {problem}")
    return KitBenchmark(
        run=run,
        directories=tuple(map(str, directories)),
        commands=commands,
        comparison=comparison.commands if comparison else (),
        comparison_environment=comparison.environment if comparison else (),
        root=_root(first),
        reference_s=_reference_s(first, run.size),
        remarks=tuple(remarks),
    )


def _of_which_tree(
    folder: Path, directories: list[Path], commands: CommandFile
) -> tuple[list[Path], str]:
    """Return the directories that are used where the tree was moved or copied, and a remark.

    All of a benchmark's run directories lie side by side.
    """
    first = directories[0]
    named = _root(first) or first.parent
    siblings = [folder.parent / directory.name for directory in directories]
    is_there = _is_folder(first)
    if is_there and not all(map(_is_folder, siblings)):
        return directories, (
            f"{named}, another tree: copies run there, not beside the file, where not all of "
            "these directories are"
        )
    there = "is another tree" if is_there else "is not there"
    text = f"{named}, which {there}; the directories of these names beside it are used"
    if any(str(named) in command.text for command in commands.commands):
        text += ", but commands still name files of that tree"
    return siblings, text


def problems_of(kit: KitBenchmark, copies: int) -> tuple[str, ...]:
    """Say what stands in the way of running the first `copies` copies now."""
    problems = []
    for copy, name in enumerate(kit.directories[:copies]):
        if not _is_folder(Path(name)):
            problems.append(f"copy {copy} of {kit.name}: no run directory {name}; {MADE_BY}")
        elif not os.access(name, os.W_OK | os.X_OK):
            problems.append(f"copy {copy} of {kit.name}: no permission to write into {name}")
        if len(problems) == _MOST_PROBLEMS:
            problems.append(f"{kit.name}: later copies were not looked at")
            break
    return tuple(problems)


def programs_of(kit: KitBenchmark) -> tuple[Path, ...]:
    """Return the programs of a benchmark that lie in the run directory of copy 0 or beside it."""
    first = kit.directories[0]
    programs: dict[Path, None] = {}
    for command in kit.commands.commands:
        for word in words_of(command.text):
            # In `echo "../run_x/exe args" > run.sh ; ...` the program stands inside a word.
            for part in word.split()[:1]:
                file = Path(os.path.normpath(os.path.join(first, part)))  # noqa: PTH118 - `..`
                if "/" in part and is_file(file) and os.access(file, os.X_OK):
                    programs[file] = None
    return tuple(programs)


def compared_files(comparison: Sequence[SpecCommand]) -> tuple[str, ...]:
    """Return the outputs that comparing commands look at: the last word of each.

    `specdiff [options] EXPECTED OUTPUT`; those outside of the run directory left out.
    """
    words = [words_of(command.text) for command in comparison]
    last = dict.fromkeys(some[-1] for some in words if len(some) > 1)
    return tuple(name for name in last if not name.startswith(("/", "../")))


def _comparison(file: Path) -> tuple[CommandFile | None, str | None]:
    """Return what a kit's compare.cmd says, else why outputs are not validated.

    Neither here nor in the kit does it keep a benchmark from being run.
    """
    if not is_file(file):
        return None, (
            f"no {COMPARE} in the run directory of copy 0 (the kit's own tools write it when they "
            "validate a run there)"
        )
    try:
        text = _read_commands_text(file)
        if not text.strip():
            return None, f"{COMPARE} in the run directory of copy 0 is empty"
        return parse_speccmds(text, str(file)), None
    except InputError as error:
        return None, str(error)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _same(directories: Sequence[Path]) -> set[str]:
    directory_by_key: dict[object, Path] = {}
    twice = set()
    for directory in directories:
        key: object = directory
        with suppress(OSError):
            stat = directory.stat()
            key = (stat.st_dev, stat.st_ino)
        if key in directory_by_key:
            twice.add(f"{directory}")
        directory_by_key[key] = directory
    return twice


def _read_commands_text(file: Path) -> str:
    try:
        # Names and values are bytes: what is no text to us may be one to the benchmark.
        return read_text(file, "a command file")
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error


def _root(directory: Path) -> Path | None:
    for folder in directory.parents:
        if folder.name == "benchspec":
            return folder.parent
    return None


def _reference_s(directory: Path, size: str | None) -> float | None:
    """Return the reference time in `data/SIZE/reftime` of a benchmark; None without that file.

    Two lines, `ref` and seconds (CPU2000, CPU2006), or `refrate SECONDS` (CPU2017), as a
    public runner reads them (github rrwhx/runspec).
    """
    if size is None or directory.parent.name != "run":
        return None
    file = directory.parent.parent / "data" / size / "reftime"
    try:
        words = read_text(file, "a reference time").split()
        value = float(words[words.index(size) + 1])
    except (OSError, ValueError, IndexError):
        return None
    return value if 0 < value < 1e9 else None


# -- Who binds the copies of a kit: its command file's -b lines, its commands, or rater ------------

_BINDERS = re.compile(r"\b(?:numactl|taskset|dplace)\b")
_SHOWN = 60  # characters of a bind value


class BindKind(StrEnum):
    """What a bind value is."""

    CPUS = "cpus"  # a list of CPUs, which others can stand for
    WORDS = "words"  # options or a mask: words of a binding command that stands around `$BIND`
    COMMAND = "command"  # a command that binds by itself


def bind_kind(bind: str) -> BindKind:
    """Return what a bind value is."""
    bind = bind.strip()
    if re.fullmatch(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*", bind, re.ASCII):
        return BindKind.CPUS
    if re.match(r"[-+!,\d]|all\b|0x", bind):
        return BindKind.WORDS
    return BindKind.COMMAND


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
    return frozenset(map(bind_kind, binds))


def commands_bind(kits: Sequence[KitBenchmark]) -> str | None:
    """Return by what the commands of kits bind copies themselves; None if they do not."""
    for kit in kits:
        found = _own_binding(kit, 0, from_file=False)
        if found != UNBOUND:
            return found.by or "a command"
    return None


def about_binding(kit: KitBenchmark, *, from_file: bool) -> list[str]:
    """Say what a person should know of who binds copies."""
    binds = kit.commands.binds
    asked = any(uses_bind(command.text) for command in kit.commands.commands)
    first = next((bind for bind in binds if bind_kind(bind) is not BindKind.CPUS), None)
    binding = _own_binding(kit, 0, from_file=from_file)
    if from_file and first is not None:
        if not asked and binding == UNBOUND:
            return [
                f"{kit.name}: copies are not bound: the commands have no $BIND for "
                f"{_cut(first)!r} of the command file to stand in"
            ]
        if asked:
            return [
                f"{kit.name}: {_cut(first)!r} of the command file binds copies, not rater: the "
                "placement shown is what it says; the samples tell where copies were"
            ]
    if binding != UNBOUND and not (from_file and asked):
        placement_state = (
            "is not known"
            if binding.problem or binding.relative or not binding.cpus
            else "is theirs"
        )
        why = " (it fails inside another binding)" if binding.by == "numactl" else ""
        return [
            f"{kit.name}: {binding.by} in the commands binds copies, not rater{why}: --layout and "
            f"--bind have no effect, the placement shown {placement_state}; the samples "
            "tell where copies were"
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
) -> PlacementPlan:
    """Return where command files put copies: by -b lines if `from_file`, else by commands alone.

    Raises `InputError`.
    """
    by_kit = []
    for kit in kits:
        bound_by = commands_bind([kit])
        if from_file and not kit.commands.binds and bound_by is None:
            raise InputError(
                f"--bind-from-file: {kit.run.file} has no -b lines (`bind` in the configuration "
                "makes them): leave the option out, and rater places copies"
            )
        by_kit.append(
            tuple(_placed(kit, copy, topology, memory, from_file) for copy in range(copies))
        )
        if by_kit[0] != by_kit[-1] or (not from_file and bound_by is None):
            raise InputError(
                f"{'--bind-from-file: ' if from_file else ''}{kits[0].name} and {kit.name} bind "
                "their copies differently: run them one after the other"
            )
    placements = by_kit[0]
    used = Counter(
        cpu
        for placement in placements
        for cpu in placement.cpus or (placement.cpu,)
        if cpu is not None
    )
    shared = sorted(cpu for cpu, times in used.items() if times > 1)
    warnings = (
        (f"the command file binds several copies to CPUs {format_list(shared)}",) if shared else ()
    )
    return PlacementPlan(placements=placements, warnings=warnings, most=copies)


def _placed(
    kit: KitBenchmark, copy: int, topology: Topology, memory: Memory, from_file: bool
) -> Placement:
    binding = _own_binding(kit, copy, from_file=from_file)
    bind = kit.commands.binds[copy] if from_file and kit.commands.binds else ""
    ours = binding == UNBOUND and bind_kind(bind) is BindKind.CPUS
    try:
        cpus = parse_list(bind) if ours else binding.cpus or ()
    except ValueError as error:
        raise InputError(f"{kit.run.file}: -b of copy {copy}: {error}") from error
    pus = {pu.os: pu for pu in topology.pus if pu.os in cpus}
    missing = sorted(set(cpus) - pus.keys())
    if missing and ours:
        raise InputError(
            f"{kit.run.file}: -b {bind} of copy {copy}: {topology.source} has no usable CPU "
            f"{format_list(missing)}; leave out --bind-from-file, and rater places copies"
        )
    home = pus.get(cpus[0]) if cpus and not binding.relative else None
    if home is None:
        return Placement.unbound(copy=copy)
    if not ours:
        # The command binds itself: rater sets no mask, but knows where the copy will run.
        return _placed_at(home, copy=copy, cpus=None, memory_policy=MemoryPolicy.NONE)
    nodes = named_nodes(topology, memory)
    if memory.policy in AT_HOME and not nodes:
        nodes = tuple(sorted({pu.node for pu in pus.values() if pu.node is not None}))
    return _placed_at(
        home,
        copy=copy,
        cpus=tuple(sorted(pus)),
        memory_policy=memory.policy,
        memory_nodes=nodes,
    )


def _placed_at(
    home: PU,
    *,
    copy: int,
    cpus: tuple[int, ...] | None,
    memory_policy: MemoryPolicy,
    memory_nodes: tuple[int, ...] = (),
) -> Placement:
    return Placement(
        copy=copy,
        cpus=cpus,
        cpu=home.os,
        core=home.core,
        llc=home.llc,
        node=home.node,
        package=home.package,
        memory_policy=memory_policy,
        memory_nodes=memory_nodes,
    )


def bind_of(kit: KitBenchmark, placement: Placement, *, from_file: bool) -> str:
    """Return what stands for `$BIND` in the commands of a copy."""
    binds = kit.commands.binds
    kinds = _kinds(binds)
    if binds and (from_file or BindKind.WORDS in kinds):
        return binds[placement.copy]
    if BindKind.COMMAND in kinds:
        return ""
    return format_list(placement.cpus or sorted(os.sched_getaffinity(0)))
