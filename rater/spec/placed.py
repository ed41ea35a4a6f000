"""Where the copies of a result file ran: its own submit lines, beside a described machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rater.plan.cpuset import format_list
from rater.plan.topology import Topology
from rater.record import MachinePU
from rater.spec.binding import UNBOUND, Binding, binding_of
from rater.spec.result import SpecFile, SpecIteration

_BY_COPY = re.compile(r"SPEC(?:COPY|USER)NUM")
_MOST_NOTES = 10  # bindings that are not understood
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Place:
    """Of one copy; None and empty for what is not known."""

    cpu: int | None = None
    core: int | None = None
    llc: int | None = None
    node: int | None = None  # OS number of the lgroup of its CPUs
    package: int | None = None
    mem_nodes: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()  # all that it was allowed


NOWHERE = Place()


@dataclass(slots=True)
class Places:
    """Answers where copies were, and gathers what is to be said about it."""

    file: SpecFile
    topology: Topology | None
    _known: dict[tuple[str, str | None, int, int], Place] = field(default_factory=dict)
    _submits: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    _unclear: dict[str, int] = field(default_factory=dict)  # problems of bindings: how many copies
    _of_copy: dict[int, set[Place]] = field(default_factory=dict)
    _missing: set[int] = field(default_factory=set)  # CPUs and nodes that the machine lacks
    _missing_nodes: set[int] = field(default_factory=set)
    _by: dict[str, None] = field(default_factory=dict)
    _policies: dict[str, None] = field(default_factory=dict)
    _from_memory: bool = False  # lgroups are the nodes that memory was bound to
    _far: set[int] = field(default_factory=set)  # copies with their memory on another lgroup

    def of(self, one: SpecIteration, copy: int) -> Place:
        """Return where a copy of an iteration was."""
        submit, binds = self._told(one)
        if not submit:
            return NOWHERE
        bind = binds[copy % len(binds)] if binds else None
        number = copy if _BY_COPY.search(submit) or (bind and _BY_COPY.search(bind)) else 0
        key = (submit, bind, number, one.threads or 1)
        place = self._known.get(key)
        if place is None:
            place = self._known[key] = self._place(
                binding_of(submit, bind, copy), one.threads or 1, copy
            )
        if place is not NOWHERE:
            self._of_copy.setdefault(copy, set()).add(place)
            if place.node is not None and place.mem_nodes and place.node not in place.mem_nodes:
                self._far.add(copy)
        return place

    def pus(self) -> tuple[MachinePU, ...]:
        """Return the machine's CPUs: of the topology, else those that copies are known to be on."""
        if self.topology is not None:
            return tuple(
                MachinePU(pu.os, pu.core, pu.llc, pu.node, pu.package)
                for pu in sorted(self.topology.machine_pus, key=lambda pu: pu.os)
            )
        nodes: dict[int, int | None] = {}
        for places in self._of_copy.values():
            for place in places:
                for cpu in place.cpus:
                    nodes[cpu] = (
                        place.node if nodes.setdefault(cpu, place.node) is None else nodes[cpu]
                    )
        return tuple(MachinePU(cpu, None, None, nodes[cpu], None) for cpu in sorted(nodes))

    def summary(self) -> str:
        """Say in a line where copies were, as far as is known."""
        cpus = {cpu for places in self._of_copy.values() for p in places for cpu in p.cpus}
        nodes = {p.node for places in self._of_copy.values() for p in places if p.node is not None}
        if not self._of_copy:
            return "where copies ran is not in the file"
        parts = []
        if cpus:
            parts.append(f"on {'CPU' if len(cpus) == 1 else 'CPUs'} {format_list(cpus)}")
        if nodes:
            parts.append(f"{'lgroup' if len(nodes) == 1 else 'lgroups'} {format_list(nodes)}")
        memory = {n for places in self._of_copy.values() for p in places for n in p.mem_nodes}
        if self._policies:
            where = (
                f" on {'node' if len(memory) == 1 else 'nodes'} {format_list(memory)}"
                if memory
                else ""
            )
            parts.append(f"memory {', '.join(self._policies)}{where}")
        told = f" (by {', '.join(self._by)})" if self._by else ""
        return f"{_copies(self._of_copy)} bound: {', '.join(parts)}{told}"

    def notes(self) -> list[str]:
        """Return what a reader of the results must know about it, a sentence each."""
        notes = [
            f"binding not understood ({_times(count)}): {problem}"
            for problem, count in list(self._unclear.items())[:_MOST_NOTES]
        ]
        if self._missing:
            assert self.topology is not None
            notes.append(
                f"the topology {self.topology.source} does not fit: copies were bound to "
                f"{'CPU' if len(self._missing) == 1 else 'CPUs'} {format_list(self._missing)}, "
                "which it lacks; their lgroup is not known"
            )
        if self._missing_nodes:
            notes.append(
                "the topology does not fit: copies were bound to "
                f"{'node' if len(self._missing_nodes) == 1 else 'nodes'} "
                f"{format_list(self._missing_nodes)}, which it lacks"
            )
        if self._far:
            notes.append(
                f"{_copies(self._far)} had memory bound to another lgroup than that of "
                f"{'its' if len(self._far) == 1 else 'their'} CPU: {_named(self._far)}"
            )
        if self._from_memory:
            notes.append(
                "lgroups are the nodes that copies' memory was bound to; --topology tells those "
                "of their CPUs"
            )
        if self.topology is None and self._of_copy and not self._from_memory:
            known = any(p.node is not None for places in self._of_copy.values() for p in places)
            if not known:
                notes.append(
                    "the file tells copies' CPUs and not their lgroups; --topology supplies them"
                )
        notes += self._shared()
        return notes

    def _shared(self) -> Iterable[str]:
        """Say which CPUs several copies were bound to."""
        users: dict[int, set[int]] = {}
        for copy, places in self._of_copy.items():
            for place in places:
                if place.cpu is not None and len(place.cpus) == 1:
                    users.setdefault(place.cpu, set()).add(copy)
        twice = {cpu: copies for cpu, copies in users.items() if len(copies) > 1}
        if not twice:
            return []
        some = "; ".join(
            f"CPU {cpu} to copies {format_list(twice[cpu])}" for cpu in sorted(twice)[:_MOST_NAMED]
        )
        more = f"; and {len(twice) - _MOST_NAMED} more" if len(twice) > _MOST_NAMED else ""
        return [f"several copies were bound to the same CPU: {some}{more}"]

    # -- inside ---------------------------------------------------------------------------------

    def _told(self, one: SpecIteration) -> tuple[str, tuple[str, ...]]:
        """Return the submit command (or any command with `$BIND`) and the values of `$BIND`."""
        if self.file.format == "log":
            return one.command or "", one.binds
        config = self.file.config
        if config is None or one.submit is False:
            return "", ()
        key = (one.benchmark, one.tune)
        if key not in self._submits:
            submit = config.submit(*key)
            binds = tuple(bind.text for bind in config.binds(*key))
            self._submits[key] = (submit[0] if submit else "", binds)
        return self._submits[key]

    def _place(self, binding: Binding, threads: int, copy: int) -> Place:
        if binding.problem:
            self._unclear[binding.problem] = self._unclear.get(binding.problem, 0) + 1
        if binding == UNBOUND or not binding.is_bound:
            return NOWHERE
        if binding.by:
            self._by[binding.by] = None
        if binding.policy:
            self._policies[binding.policy] = None
        cpus = binding.cpus or ()
        single = cpus[0] if cpus and len(cpus) <= max(1, threads) else None
        if self.topology is None:
            node = binding.cpu_nodes[0] if len(binding.cpu_nodes) == 1 else None
            near = binding.policy in ("bind", "preferred") and len(binding.mem_nodes) == 1
            if near and cpus and not binding.cpu_nodes:
                node = binding.mem_nodes[0]
                self._from_memory = True
            place = Place(cpu=single, node=node, cpus=cpus)
        else:
            place = self._on_machine(self.topology, binding, cpus, single)
        mem_nodes = binding.mem_nodes
        if binding.policy == "local" and place.node is not None:
            mem_nodes = (place.node,)
        return Place(
            place.cpu, place.core, place.llc, place.node, place.package, mem_nodes, place.cpus
        )

    def _on_machine(
        self, topology: Topology, binding: Binding, cpus: tuple[int, ...], single: int | None
    ) -> Place:
        machine = {pu.os: pu for pu in topology.machine_pus}
        known = {node.os for node in topology.nodes}
        self._missing_nodes |= {
            n for n in (*binding.mem_nodes, *binding.cpu_nodes) if n not in known
        }
        if not cpus and binding.cpu_nodes:
            cpus = tuple(cpu for cpu, pu in sorted(machine.items()) if pu.node in binding.cpu_nodes)
        self._missing |= {cpu for cpu in cpus if cpu not in machine}
        if not cpus or any(cpu not in machine for cpu in cpus):
            return Place(cpu=single, cpus=cpus)
        pus = [machine[cpu] for cpu in cpus]

        def common(values: set[int | None]) -> int | None:
            return values.pop() if len(values) == 1 else None

        return Place(
            cpu=single,
            core=common({pu.core for pu in pus}),
            llc=common({pu.llc for pu in pus}),
            node=common({pu.node for pu in pus}),
            package=common({pu.package for pu in pus}),
            cpus=cpus,
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _copies(copies: Iterable[int]) -> str:
    count = len(list(copies))
    return "1 copy" if count == 1 else f"{count} copies"


def _named(copies: set[int]) -> str:
    text = format_list(copies)
    return f"copy {text}" if len(copies) == 1 else f"copies {text}"
