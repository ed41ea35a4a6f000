"""Who binds the copies of a kit: its command file's -b lines, its commands, or rater."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from functools import cache

from rater.errors import InputError
from rater.plan.placement.memory_policy import AT_HOME, Memory, MemoryPolicy, named_nodes
from rater.plan.placement.place import Placed, Placement
from rater.plan.topology.model import Topology
from rater.speccpu.config.binding import UNBOUND, Binding, read_binding
from rater.speccpu.kit.kit import KitBenchmark
from rater.speccpu.kit.speccmds import expanded, uses_bind
from rater.text.cpuset import format_list, parse_list

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
    """Return what the bind values of a command file are; asked for each of its copies."""
    return frozenset(map(bind_kind, binds))


def commands_bind(kits: Sequence[KitBenchmark]) -> str | None:
    """Return by what the commands of kits bind copies themselves, None where they do not."""
    for kit in kits:
        found = _own_binding(kit, 0, from_file=False)
        if found != UNBOUND:
            return found.by or "a command"
    return None


def about_binding(kit: KitBenchmark, *, from_file: bool) -> list[str]:
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


def bind_of(kit: KitBenchmark, placement: Placement, *, from_file: bool) -> str:
    """Return what stands for `$BIND` in the commands of a copy."""
    binds = kit.commands.binds
    kinds = _kinds(binds)
    if binds and (from_file or BindKind.WORDS in kinds):
        return binds[placement.copy]
    if BindKind.COMMAND in kinds:
        return ""
    return format_list(placement.cpus or sorted(os.sched_getaffinity(0)))
