"""Machines for tests: real ones, small ones by hand, and any number that nobody built, from a seed.

What the latter have in common with real ones: everything that ever broke a tool that
places processes. 1-16 packages of 1-8 lgroups, 1-8 threads a core, numbers with
holes and in any order, slow cores, memory without CPUs, CPUs without memory,
offline and forbidden CPUs, lgroups over several packages, cores in no package,
files without caches or cores. They come as hwloc XML, through rater's own reader.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rater.plan.hwloc_xml import parse_xml
from rater.plan.topology import RawNode, RawPU, Topology, build_topology
from rater.text import cpuset
from tests.support.bitmaps import format_bitmap
from tests.support.places import MACHINES


@dataclass
class Thing:
    """An object of the tree; its CPUs are its own and those of what lies in it."""

    type: str
    inside: list[Thing] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)  # OS numbers of ordinary lgroups on it
    extra: list[tuple[int, str]] = field(default_factory=list)  # (OS number, subtype) beside them
    cpu: int | None = None  # of a PU
    online: bool = True

    def cpus(self, *, offline: bool = False) -> int:
        mask = 0
        if self.cpu is not None and (self.online or offline):
            mask = 1 << self.cpu
        for thing in self.inside:
            mask |= thing.cpus(offline=offline)
        return mask

    def first(self) -> int:
        mask = self.cpus(offline=True)
        return (mask & -mask).bit_length()

    def memory(self) -> int:
        mask = cpuset.mask_of([*self.nodes, *(node for node, _ in self.extra)])
        for thing in self.inside:
            mask |= thing.memory()
        return mask

    def xml(self, above: int = 0, more: str = "") -> Iterator[str]:
        """Yield the lines of this object; `above` is the mask of the lgroups it lies in."""
        if not self.cpus():
            return  # all of it is offline: hwloc leaves it out
        own_nodes = cpuset.mask_of([*self.nodes, *(node for node, _ in self.extra)])
        sets = f'cpuset="{_bitmap(self)}" complete_cpuset="{_bitmap(self, offline=True)}"'
        number = "" if self.cpu is None else f' os_index="{self.cpu}"'
        if self.type.endswith("Cache"):
            number = f' depth="{self.type[1]}" cache_type="0" cache_size="0"'
        nodes = format_bitmap(above | self.memory())
        yield f'<object type="{self.type}"{number} {sets} {_nodesets(nodes)}{more}>'
        for node in self.nodes:
            yield _node(node, sets, "")
        for node, subtype in self.extra:
            yield _node(node, sets, f' subtype="{subtype}"')
        for thing in sorted(self.inside, key=Thing.first):
            yield from thing.xml(above | own_nodes)
        yield "</object>"


@functools.cache
def real_machines() -> tuple[Topology, ...]:
    """Return the 18 machines; empty if their files are missing."""
    return tuple(parse_xml(path.read_bytes(), path.stem) for path in sorted(MACHINES.glob("*.xml")))


def real(name: str) -> Topology:
    """Return the real machine whose name begins so."""
    [found] = [topology for topology in real_machines() if topology.source.startswith(name)]
    return found


@functools.cache
def generated() -> tuple[Topology, ...]:
    """Return the machines of the first 200 seeds."""
    return tuple(machine(seed) for seed in range(200))


def topology_of(
    lgroups: list[list[list[int]]], *, usable: set[int] | None = None, allowed_nodes: int = ~0
) -> Topology:
    """Return a machine from the OS numbers of the threads of the cores of each lgroup.

    Each lgroup is a package of its own; there are no caches.
    """
    pus, nodes, core = [], [], 0
    for number, cores in enumerate(lgroups):
        for threads in cores:
            pus += [RawPU(os=cpu, core=core, package=number, l3=None, l2=None) for cpu in threads]
            core += 1
        nodes.append(
            RawNode(number, cpuset.mask_of(cpu for core in cores for cpu in core), 0, None)
        )
    everything = cpuset.mask_of(pu.os for pu in pus)
    may = everything if usable is None else cpuset.mask_of(usable)
    return build_topology(pus, nodes, usable=may, allowed_nodes=allowed_nodes, source="made")


def machine(seed: int) -> Topology:
    """Return the machine of a seed: most have fewer than 150 PUs, some up to a thousand."""
    return parse_xml(machine_xml(seed), f"machine {seed}")


def machine_xml(seed: int) -> str:
    """Return the machine of a seed as hwloc writes it."""
    dice = random.Random(seed)
    most_pus = 1000 if seed % 25 == 0 else 150
    while True:
        tree, kinds, cpus = _tree(dice)
        if cpus <= most_pus:
            break
    everything = tree.cpus()
    allowed = everything
    if dice.random() < 0.15:
        allowed = cpuset.mask_of(
            cpu for cpu in cpuset.numbers_of(everything) if dice.random() < 0.7
        )
        allowed = allowed or everything
    empty = () if dice.random() < 0.7 else (900, 901)
    nodes = format_bitmap(tree.memory() | cpuset.mask_of(empty))
    cpus_ = format_bitmap(allowed)
    allowance = f' allowed_cpuset="{cpus_}" allowed_nodeset="{nodes}"'
    lines = list(tree.xml(cpuset.mask_of(empty), allowance))
    no_cpus = 'cpuset="0x0" complete_cpuset="0x0"'
    lines[1:1] = [_node(number, no_cpus, "") for number in empty]
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
            '<topology version="2.0">',
            *lines,
            *(
                f'<cpukind cpuset="{format_bitmap(mask)}" forced_efficiency="{kind}"/>'
                for kind, mask in enumerate(kinds)
                if mask & everything and len(kinds) > 1
            ),
            "</topology>",
        ]
    )


def _tree(dice: random.Random) -> tuple[Thing, list[int], int]:
    """Return a machine, the CPUs of each kind from the slowest, and how many CPUs there are."""
    threads = dice.choice((1, 1, 2, 2, 4, 8))
    n_packages = dice.choice((1, 1, 2, 2, 3, 4, 4, 8, 16))
    n_nodes = dice.choice((1, 1, 2, 3, 4, 8))
    n_cores = dice.choice((1, 2, 3, 4, 6))
    equal_nodes, equal_cores = dice.random() < 0.7, dice.random() < 0.7
    has_cores = dice.random() < 0.85
    hybrid = dice.random() < 0.25
    caches = dice.choice(("", "L2Cache", "L3Cache", "L3Cache", "halves"))
    packages: list[Thing] = []
    cores: list[tuple[Thing, bool]] = []
    for _ in range(n_packages):
        parts = []
        for _ in range(n_nodes if equal_nodes else dice.randint(1, n_nodes)):
            own_parts = []
            for _ in range(n_cores if equal_cores else dice.randint(1, n_cores)):
                slow = hybrid and dice.random() < 0.4
                core = Thing("Core", [Thing("PU") for _ in range(1 if slow else threads)])
                cores.append((core, slow))
                own_parts += [core] if has_cores else core.inside
            parts.append(Thing("Group", _cached(own_parts, caches)))
        packages.append(Thing("Package", parts))
    _number(dice, [core for core, _ in cores])
    machine = Thing("Machine", [*packages])
    _memory(dice, machine)
    if dice.random() < 0.2:
        for core, _ in cores:
            for pu in core.inside:
                pu.online = dice.random() < 0.85
        cores[0][0].inside[0].online = True
    if dice.random() < 0.1 and len(packages) > 1:
        machine.inside[-1:] = machine.inside[-1].inside  # the firmware forgot a package
    kinds = [0, 0] if hybrid else [0]
    for core, slow in cores:
        kinds[0 if slow or not hybrid else 1] |= core.cpus(offline=True)
    return machine, [mask for mask in kinds if mask], sum(len(core.inside) for core, _ in cores)


def _cached(things: list[Thing], caches: str) -> list[Thing]:
    if caches == "halves":
        half = (len(things) + 1) // 2
        parts = [part for part in (things[:half], things[half:]) if part]
        return [Thing("L3Cache", part) for part in parts]
    return [Thing(caches, things)] if caches else things


def _number(dice: random.Random, cores: Sequence[Thing]) -> None:
    """Give the PUs OS numbers: siblings side by side, siblings last, anyhow; holes or none."""
    how = dice.choice(("adjacent", "last", "last", "shuffled"))
    n_pus = sum(len(core.inside) for core in cores)
    numbers = list(range(n_pus))
    if dice.random() < 0.4:
        numbers = sorted(dice.sample(range(2 * n_pus + 3), n_pus))
    if how == "shuffled":
        dice.shuffle(numbers)
    pus = [pu for core in cores for pu in core.inside]
    if how == "last":
        ranked = [(rank, pu) for core in cores for rank, pu in enumerate(core.inside)]
        pus = [pu for _, pu in sorted(ranked, key=lambda pair: pair[0])]
    for number, pu in zip(numbers, pus, strict=True):
        pu.cpu = number


def _memory(dice: random.Random, machine: Thing) -> None:
    """Put lgroups on groups (or packages, pairs of packages, the machine), some left out."""
    level = dice.choice(("group", "group", "group", "group", "package", "pair", "machine"))
    groups = [group for package in machine.inside for group in package.inside]
    places = {"group": groups, "machine": [machine]}.get(level, machine.inside)
    if level == "pair":
        pairs = [machine.inside[number : number + 2] for number in range(0, len(machine.inside), 2)]
        places = machine.inside = [Thing("Group", pair) for pair in pairs]
    step = dice.choice((1, 1, 3))
    for index, place in enumerate(places):
        if index == 0 or dice.random() < 0.97:
            place.nodes.append(index * step)
        if dice.random() < 0.1:
            place.extra.append((500 + index, dice.choice(("HBM", "NVM"))))


def _node(number: int, sets: str, subtype: str) -> str:
    nodes = format_bitmap(1 << number)
    return f'<object type="NUMANode" os_index="{number}" {sets} {_nodesets(nodes)}{subtype}/>'


def _nodesets(nodes: str) -> str:
    return f'nodeset="{nodes}" complete_nodeset="{nodes}"'


def _bitmap(thing: Thing, *, offline: bool = False) -> str:
    return format_bitmap(thing.cpus(offline=offline))


# Two lgroups (packages) of two cores of two threads; siblings are numbered last, as on most x86.
SMT = topology_of([[[0, 4], [1, 5]], [[2, 6], [3, 7]]])
