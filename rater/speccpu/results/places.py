"""Where the copies of a file were bound: its submit and bind lines, on a described machine."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.topology import Topology
from rater.record.run import MachinePU
from rater.speccpu.config.binding import Binding, binding_of
from rater.speccpu.config.config import Variant
from rater.speccpu.results.result import SpecFile, SpecIteration
from rater.text.cpuset import format_list
from rater.text.values import copies_text

_BY_COPY = re.compile(r"SPEC(?:COPY|USER)NUM")
_MOST_NOTES = 10  # bindings that are not understood
_MOST_NAMED = 5
_MOST_WORK = 20_000_000  # characters of commands that are worked out for copies, in all
_LONGEST_LIST = 40  # characters


class BoundPlace(Struct, frozen=True, kw_only=True):
    """Of one copy; None and empty for what is not known."""

    cpu: int | None = None
    core: int | None = None
    llc: int | None = None
    node: int | None = None  # OS number of the node of its CPUs
    package: int | None = None
    mem_nodes: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()  # all that it was allowed


NOWHERE = BoundPlace()
# Notes about places, in the order in which they are printed: their subject and their words.
_NOTES = {
    "missing": (
        "CPU",
        "the topology {machine} does not fit: copies were bound to {them}, which it lacks; their "
        "node is unknown",
    ),
    "missing nodes": (
        "node",
        "the topology does not fit: copies were bound to {them}, which it lacks",
    ),
    "far": ("copy", "memory was bound to another node than that of the CPU: {them}"),
    "against": (
        "CPU",
        "the topology and the file's sysinfo have {them} on different nodes: the file holds",
    ),
    "by file": ("", "nodes are those that the file's sysinfo names"),
    "no submit": (
        "",
        "the configuration inside has no submit line for what ran, and the file says that there "
        "was one: its bind lines are taken",
    ),
    "relative": (
        "",
        "numactl counts +N inside the CPUs that it may use: taken for CPU N; --topology supplies "
        "them",
    ),
    "by memory": (
        "",
        "nodes are those that copies' memory was bound to; --topology supplies those of their CPUs",
    ),
    "unknown nodes": (
        "",
        "the file tells copies' CPUs and not their NUMA nodes; --topology supplies them",
    ),
}
_TOO_MUCH = "so many and so long commands that the rest is left out"


class BindingResolver:
    """Answers where copies were, and gathers what is to be said about it."""

    def __init__(self, file: SpecFile, topology: Topology | None) -> None:
        self.file, self.topology = file, topology
        # By OS number, also those that may not be used.
        self._machine = {pu.os: pu for pu in topology.machine_pus} if topology else {}
        self._known: dict[tuple[str, str | None, int, int], BoundPlace] = {}
        self._submits: dict[tuple[str, str, Variant], tuple[str, tuple[str, ...]]] = {}
        # Copies that were bound to one CPU alone, by the bind lines of their bracket: at one time.
        self._users: dict[tuple[str, tuple[str, ...]], dict[int, set[int]]] = {}
        self._work = 0  # characters
        self._unclear = Counter[str]()  # problems of bindings: how many copies
        self._of_copy = defaultdict[int, set[BoundPlace]](set)
        self._by: dict[str, None] = {}
        self._policies: dict[str, None] = {}
        # What is to be said, by a key of `_NOTES`, and of which CPUs, nodes or copies.
        self._said = defaultdict[str, set[int]](set)

    def place_of(self, iteration: SpecIteration, copy: int) -> BoundPlace:
        """Return where a copy of an iteration was."""
        submit, binds = self._command_of(iteration)
        if not submit:
            return NOWHERE
        bind = binds[copy % len(binds)] if binds else None
        number = copy if _BY_COPY.search(submit) or (bind and _BY_COPY.search(bind)) else 0
        key = (submit, bind, number, iteration.threads or 1)
        place = self._known.get(key)
        if place is None:
            self._work += len(submit) + len(bind or "")
            if self._work > _MOST_WORK:
                self._unclear[_TOO_MUCH] += 1
                return NOWHERE
            place = self._known[key] = self._place(
                binding_of(submit, bind, copy), iteration.threads or 1, copy
            )
        if place is not NOWHERE:
            self._of_copy[copy].add(place)
            if place.cpu is not None and len(place.cpus) == 1:
                users = self._users.setdefault((submit, binds), {})
                users.setdefault(place.cpu, set()).add(copy)
            if place.node is not None and place.mem_nodes and place.node not in place.mem_nodes:
                self._said["far"].add(copy)
        return place

    def pus(self) -> tuple[MachinePU, ...]:
        """Return the machine's CPUs: of the topology, else those that copies are known to be on."""
        if self.topology is not None:
            node_by_cpu = self.file.node_of
            return tuple(
                MachinePU(
                    cpu=pu.os,
                    core=pu.core,
                    llc=pu.llc,
                    node=node_by_cpu.get(pu.os, pu.node),
                    package=pu.package,
                )
                for pu in sorted(self.topology.machine_pus, key=lambda pu: pu.os)
            )
        nodes: dict[int, int | None] = dict(self.file.node_of)
        for place in chain.from_iterable(self._of_copy.values()):
            for cpu in place.cpus:
                if nodes.get(cpu) is None:
                    nodes[cpu] = place.node
        return tuple(
            MachinePU(cpu=cpu, core=None, llc=None, node=nodes[cpu], package=None)
            for cpu in sorted(nodes)
        )

    def summary(self) -> str:
        """Say in a line where copies were, as far as is known."""
        if not self._of_copy:
            return "where copies ran is not in the file"
        places = set().union(*self._of_copy.values())
        cpus = {cpu for place in places for cpu in place.cpus}
        nodes = {place.node for place in places if place.node is not None}
        parts = []
        if cpus:
            parts.append(f"on {_named('CPU', cpus)}")
        if nodes:
            parts.append(_named("node", nodes))
        if self._policies:
            memory = {node for place in places for node in place.mem_nodes}
            where = f" on {_named('node', memory)}" if memory else ""
            parts.append(f"memory {', '.join(self._policies)}{where}")
        tools = f" (by {', '.join(self._by)})" if self._by else ""
        return f"{copies_text(len(self._of_copy))} bound: {', '.join(parts)}{tools}"

    def notes(self) -> list[str]:
        """Return what a reader of the results must know about it, a sentence each."""
        notes = [
            f"binding not understood ({_times(times)}): {problem}"
            for problem, times in list(self._unclear.items())[:_MOST_NOTES]
        ]
        known = any(place.node is not None for places in self._of_copy.values() for place in places)
        if self.topology is None and self._of_copy and not known:
            self._said["unknown nodes"] = set()
        machine = self.topology.source if self.topology else ""
        notes += [
            text.format(them=what and _named(what, self._said[kind]), machine=machine)
            for kind, (what, text) in _NOTES.items()
            if kind in self._said
        ]
        return [*notes, *self._shared()]

    def _shared(self) -> list[str]:
        twice = defaultdict[int, set[int]](set)
        for users in self._users.values():
            for cpu, copies in users.items():
                if len(copies) > 1:
                    twice[cpu] |= copies
        if not twice:
            return []
        some = "; ".join(
            f"CPU {cpu} to copies {_list(twice[cpu])}" for cpu in sorted(twice)[:_MOST_NAMED]
        )
        more = f"; and {len(twice) - _MOST_NAMED} more" if len(twice) > _MOST_NAMED else ""
        return [f"several copies were bound to the same CPU: {some}{more}"]

    # -- inside ---------------------------------------------------------------------------------

    def _command_of(self, iteration: SpecIteration) -> tuple[str, tuple[str, ...]]:
        if self.file.format == "log":
            return iteration.command or "", iteration.binds
        config = self.file.config
        if config is None or iteration.submit is False:
            return "", ()
        key = (iteration.benchmark, iteration.tune, Variant(iteration.label, iteration.machine))
        if key not in self._submits:
            submit = config.submit(*key)
            binds = tuple(bind.text for bind in config.binds(*key))
            command = submit[0] if submit else ""
            if not command and binds and iteration.submit:
                # The file says that there was one; what it binds by is in its bind lines.
                command = "$BIND $command"
                self._said["no submit"] = set()
            self._submits[key] = (command, binds)
        return self._submits[key]

    def _place(self, binding: Binding, threads: int, copy: int) -> BoundPlace:
        if binding.problem:
            self._unclear[binding.problem] += 1
        if not binding.is_bound:
            return NOWHERE
        if self.topology is not None:
            binding = binding.counted_on(self.topology)
        if binding.by:
            self._by[binding.by] = None
        if binding.policy:
            self._policies[binding.policy] = None
        cpus = binding.cpus or ()
        single = cpus[0] if cpus and len(cpus) <= max(1, threads) else None
        if self.topology is None:
            if binding.relative:
                self._said["relative"] = set()
            node = binding.cpu_nodes[0] if len(binding.cpu_nodes) == 1 else None
            nodes = {self.file.node_of.get(cpu) for cpu in cpus}
            if cpus and None not in nodes:
                self._said["by file"] = set()
                node = nodes.pop() if len(nodes) == 1 else None
            near = binding.policy in ("bind", "preferred") and len(binding.mem_nodes) == 1
            if near and cpus and not binding.cpu_nodes and not self.file.node_of:
                node = binding.mem_nodes[0]
                self._said["by memory"] = set()
            place = BoundPlace(cpu=single, node=node, cpus=cpus)
        else:
            place = self._on_machine(self.topology, binding, cpus, single)
        mem_nodes = binding.mem_nodes
        if binding.all_nodes:
            known = {it.os for it in self.topology.nodes} if self.topology else None
            mem_nodes = tuple(sorted(known or set(self.file.node_of.values())))
        if binding.policy == "local" and place.node is not None:
            mem_nodes = (place.node,)
        return replace(place, mem_nodes=mem_nodes)

    def _on_machine(
        self, topology: Topology, binding: Binding, cpus: tuple[int, ...], single: int | None
    ) -> BoundPlace:
        machine = self._machine
        named = {*binding.mem_nodes, *binding.cpu_nodes}
        if absent := named - topology.by_node.keys():
            self._said["missing nodes"] |= absent
        if not cpus and binding.cpu_nodes:
            cpus = tuple(cpu for cpu, pu in sorted(machine.items()) if pu.node in binding.cpu_nodes)
        if missing := set(cpus) - machine.keys():
            self._said["missing"] |= missing
        if not cpus or missing:
            return BoundPlace(cpu=single, cpus=cpus)
        pus = [machine[cpu] for cpu in cpus]
        known_nodes = self.file.node_of
        if against := {pu.os for pu in pus if known_nodes.get(pu.os, pu.node) != pu.node}:
            self._said["against"] |= against

        def common(values: set[int | None]) -> int | None:
            return values.pop() if len(values) == 1 else None

        return BoundPlace(
            cpu=single,
            core=common({pu.core for pu in pus}),
            llc=common({pu.llc for pu in pus}),
            node=common({known_nodes.get(pu.os, pu.node) for pu in pus}),
            package=common({pu.package for pu in pus}),
            cpus=cpus,
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _named(noun: str, numbers: set[int]) -> str:
    plural = {"copy": "copies"}.get(noun, f"{noun}s")
    return f"{noun if len(numbers) == 1 else plural} {_list(numbers)}"


def _list(numbers: Iterable[int]) -> str:
    ordered = sorted(set(numbers))
    text = format_list(ordered)
    if len(text) <= _LONGEST_LIST:
        return text
    step = ordered[1] - ordered[0]
    if ordered == list(range(ordered[0], ordered[-1] + 1, step)):
        return f"{ordered[0]}-{ordered[-1]}:{step}"
    first = text[:_LONGEST_LIST].rpartition(",")[0]
    return f"{first},...,{ordered[-1]} ({len(ordered)} in all)"
