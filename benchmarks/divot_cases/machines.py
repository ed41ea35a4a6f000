"""Machines of every odd shape, and copies on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

type Numbers = NDArray[np.int64]
type Chance = np.random.Generator


@dataclass(frozen=True)
class Machine:
    """Hardware threads, one an element: where each is."""

    cpu: Numbers  # OS number
    core: Numbers
    llc: Numbers
    node: Numbers
    package: Numbers
    thread: Numbers  # number within its core

    def places_of(self, pus: Numbers) -> Machine:
        """Return the places of copies bound to `pus`."""
        return Machine(*(getattr(self, name)[pus] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Shape:
    """A machine with copies on it."""

    machine: Machine
    copies: Machine  # by copy
    layout: str
    known: bool  # whether the document tells CPUs

    @property
    def size(self) -> int:
        return len(self.copies.cpu)


def build(
    cores_of_node: list[int], smt: int, packages: int, llcs: int, *, adjacent: bool
) -> Machine:
    """Return a machine; `adjacent`: threads of a core have consecutive CPU numbers.

    Else all first threads come first, as Linux numbers most x86 machines.
    """
    nodes = len(cores_of_node)
    node = np.repeat(np.arange(nodes), cores_of_node)
    within = np.concatenate([np.arange(number) for number in cores_of_node])
    of_node = np.array(cores_of_node)[node]
    slices = np.minimum(llcs, np.maximum(1, of_node // 2))
    llc = np.unique(node * 64 + within * slices // of_node, return_inverse=True)[1]
    package = node * packages // nodes
    cores = len(node)
    core = np.repeat(np.arange(cores), smt)
    thread = np.tile(np.arange(smt), cores)
    cpu = core * smt + thread if adjacent else thread * cores + core
    return Machine(cpu, core, llc[core], node[core], package[core], thread)


LAYOUTS = {
    "one per PU": 0.36,
    "one per core": 0.26,
    "half of each lgroup's cores": 0.08,
    "half of the lgroups": 0.05,
    "some second threads": 0.08,
    "two on some CPUs": 0.06,
    "two on every CPU": 0.03,
    "many on CPU 0": 0.08,
}


def _placed(rng: Chance, machine: Machine, layout: str) -> Numbers:
    """Return the PU of each copy, as places in the machine's list."""
    pus: Numbers = np.lexsort((machine.thread, machine.core))
    first: Numbers = pus[machine.thread[pus] == 0]
    node = machine.node[first]
    cores = len(first)
    if layout == "one per PU":
        first = pus
    elif layout == "half of each lgroup's cores":
        rank = np.array([np.sum(node[:number] == node[number]) for number in range(cores)])
        of = np.array([np.sum(node == one) for one in node])
        first = first[rank < (of + 1) // 2]
    elif layout == "half of the lgroups":
        first = first[node < (node.max() + 2) // 2]
    elif layout == "some second threads":
        extra = int(rng.integers(1, max(2, cores // 2 + 1)))
        first = np.concatenate([first, pus[machine.thread[pus] == 1][:extra]])
    elif layout == "two on some CPUs":
        extra = int(rng.integers(1, max(2, cores // 3 + 1)))
        first = np.concatenate([first, rng.choice(first, extra, replace=False)])
    elif layout == "two on every CPU":
        first = np.concatenate([first, first])
    elif layout == "many on CPU 0":
        first = np.concatenate([np.repeat(first[:1], int(rng.integers(3, 13))), first[1:]])
    return first


def draw(rng: Chance, most: int) -> Shape:
    """Return a shape of 2 to `most` copies, small ones as frequent as large ones."""
    while True:
        aim = round(2 * (most / 2) ** rng.random())
        layout = str(rng.choice(list(LAYOUTS), p=list(LAYOUTS.values())))
        smt = int(rng.choice([1, 2, 4, 8], p=[0.45, 0.4, 0.1, 0.05]))
        if layout == "some second threads":
            smt = max(smt, 2)
        most_nodes = max(1, min(18, aim // 2))
        nodes = int(
            rng.choice(
                [
                    number
                    for number in (1, 1, 2, 2, 3, 4, 4, 6, 8, 8, 12, 16, 18)
                    if number <= most_nodes
                ]
            )
        )
        cores = max(1, round(aim / nodes / (smt if layout == "one per PU" else 1)))
        each = [cores] * nodes
        if nodes > 1 and rng.random() < 0.2:
            each = [max(1, round(cores * rng.choice([1, 0.5]))) for _ in each]
        packages = int(rng.choice([number for number in (1, 2, 4, nodes) if nodes % number == 0]))
        machine = build(
            each, smt, packages, int(rng.choice([1, 2, 4])), adjacent=rng.random() < 0.4
        )
        pus = _placed(rng, machine, layout)
        if not 2 <= len(pus) <= most:
            continue
        order = rng.choice(["compact", "cpu", "spread"])
        if order == "cpu":
            pus = pus[np.argsort(machine.cpu[pus], kind="stable")]
        elif order == "spread":
            rank = np.zeros(len(pus), int)
            for node in np.unique(machine.node[pus]):
                here = machine.node[pus] == node
                rank[here] = np.arange(here.sum())
            pus = pus[np.lexsort((machine.node[pus], rank))]
        return Shape(machine, machine.places_of(pus), layout, known=bool(rng.random() > 0.1))


def small(rng: Chance, cores: int, smt: int = 1) -> Shape:
    """Return a machine of one lgroup with a copy on every PU."""
    machine = build([cores], smt, 1, 1, adjacent=bool(rng.random() < 0.5))
    return Shape(machine, machine, "one per PU", known=True)


def sharing(at: Machine) -> tuple[Numbers, Numbers, Numbers]:
    """Return for copies: copies on the CPU, busy threads of the core, busy CPUs of the lgroup."""
    return (
        np.array([np.sum(at.cpu == one) for one in at.cpu]),
        np.array([len(np.unique(at.cpu[at.core == one])) for one in at.core]),
        np.array([len(np.unique(at.cpu[at.node == one])) for one in at.node]),
    )


def layout_effect(rng: Chance, shape: Shape, benchmarks: int) -> NDArray[np.float64]:
    """Return what sharing costs, log of time by benchmark and copy, as physics has it.

    Copies on one CPU share its time (in proportion); threads of one core cost each other up to
    that; copies of a fuller lgroup wait for memory, in some benchmarks (of copies on one CPU one
    runs at a time).
    """
    on_cpu, threads, on_node = sharing(shape.copies)
    threading = rng.uniform(0.3, 0.9, benchmarks)[:, None]
    waiting = (rng.uniform(0, 0.3, benchmarks) * (rng.random(benchmarks) < 0.4))[:, None]
    effect: NDArray[np.float64] = (
        np.log(on_cpu)[None] + threading * np.log(threads)[None] + waiting * np.log(on_node)[None]
    )
    return effect
