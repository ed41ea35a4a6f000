"""What `rater selftest` slows on purpose, where and by how much; pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rater.plan.placement.place import Placement
from rater.text.values import group_by_key

SLOW = 1.25  # parts and iterations: a fifth of their CPU time goes to others
SLOW_COPY = 1.4  # a single copy has to stand out from what single copies do by themselves
_LEAST_MEMBERS = 3  # copies of an lgroup to be judged as one
_LEAST_COPIES = 3  # of three one can be the odd one, of two either may be
_FEW_CPUS = 3  # fewer CPUs than this need several copies each
_SEVERAL = 8  # copies there

# Copies by CPU or lgroup; benchmarks and iterations.
type Copies = Mapping[int, Sequence[int]]
type Cells = Sequence[tuple[str, int]]


class PlantKind(StrEnum):
    """Kinds of what is planted; where a divot has such a kind, by the same word."""

    NOTHING = "nothing"
    SLOW_LGROUP = "slow-lgroup"
    REMOTE_MEMORY = "remote-memory"
    SLOW_CPU = "slow-cpu"
    OUTLIER_COPY = "outlier-copy"
    SLOW_ITERATION = "slow-iteration"
    DRIFT = "drift"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What goes on while one benchmark runs once."""

    # CPU and the share of its time that competing processes take, 0 to 1.
    competing: tuple[tuple[int, float], ...] = ()
    # Copy and the share of the time that it is stopped.
    stopped: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Injection:
    """One thing planted: what there is to find, and what is done for it."""

    kind: PlantKind
    place: str  # in the user's words
    how: str
    copies: tuple[int, ...] = ()  # those that are slowed; empty: all
    cpus: tuple[int, ...] = ()
    node: int | None = None
    benchmark: str | None = None  # None: all
    iteration: int | None = None  # None: all
    aimed: float | None = None  # time over undisturbed time; None: not known beforehand
    # By benchmark and iteration.
    cells: Mapping[tuple[str, int], Disturbance] = field(default_factory=dict)
    remote: tuple[tuple[int, int], ...] = ()  # copy, node its memory is bound to


@dataclass(frozen=True, slots=True)
class NotInjected:
    """What can not be planted here, and why."""

    kind: PlantKind
    why: str


CLEAN = Injection(PlantKind.NOTHING, "nothing", "nothing is disturbed")


def usual_copies(pus: int, lgroups: int) -> int:
    """Return how many copies a self-test runs: few, but enough to tell one part from others.

    A machine with one or two CPUs needs several copies on each.
    """
    if pus < _FEW_CPUS:
        return _SEVERAL
    return min(pus, max(_SEVERAL, 4 * lgroups))


def plan_injections(
    placements: Sequence[Placement],
    benchmarks: Sequence[str],
    iterations: int,
    choice: random.Random,
) -> tuple[tuple[Injection, ...], tuple[NotInjected, ...]]:
    """Return what is planted, one run each, and what can not be.

    `placements` are those of bound copies; `choice` decides which copy, CPU, lgroup,
    benchmark and iteration.
    """
    cells = [(name, k) for name in benchmarks for k in range(1, iterations + 1)]
    on_cpu = group_by_key((it.cpu, it.copy) for it in placements if it.cpu is not None)
    on_node = group_by_key((it.node, it.copy) for it in placements if it.node is not None)
    found = (
        *_of_lgroups(on_node, on_cpu, cells, choice),
        _of_cpu(on_cpu, len(placements), cells, choice),
        _of_copy(placements, on_cpu, cells, choice),
        *_of_iterations(sorted(on_cpu), iterations, cells, choice),
    )
    return (
        tuple(it for it in found if isinstance(it, Injection)),
        tuple(it for it in found if isinstance(it, NotInjected)),
    )


def _of_lgroups(
    on_node: Copies, on_cpu: Copies, cells: Cells, choice: random.Random
) -> tuple[Injection | NotInjected, Injection | NotInjected]:
    nodes = sorted(node for node, copies in on_node.items() if len(copies) >= _LEAST_MEMBERS)
    if len(on_node) < 2:
        why = "this machine has one lgroup: there is no other to compare it with"
        near = "all memory of this machine is equally near"
        return NotInjected(PlantKind.SLOW_LGROUP, why), NotInjected(PlantKind.REMOTE_MEMORY, near)
    if len(nodes) < 2:
        why = f"it takes two lgroups with {_LEAST_MEMBERS} copies or more: use more --copies"
        return NotInjected(PlantKind.SLOW_LGROUP, why), NotInjected(PlantKind.REMOTE_MEMORY, why)
    node = choice.choice(nodes)
    home = choice.choice([it for it in nodes if it != node])
    away = choice.choice([it for it in nodes if it != home])
    cpus = {
        it: tuple(cpu for cpu in sorted(on_cpu) if not set(on_node[it]).isdisjoint(on_cpu[cpu]))
        for it in (node, home)
    }
    slow = Injection(
        PlantKind.SLOW_LGROUP,
        f"lgroup {node}",
        f"competing processes take {_share(SLOW):.0%} of its CPUs",
        copies=tuple(on_node[node]),
        cpus=cpus[node],
        node=node,
        aimed=SLOW,
        cells=_competing(cells, cpus[node]),
    )
    remote = Injection(
        PlantKind.REMOTE_MEMORY,
        f"lgroup {home}",
        f"its copies get the memory of lgroup {away}",
        copies=tuple(on_node[home]),
        cpus=cpus[home],
        node=home,
        remote=tuple((copy, away) for copy in on_node[home]),
    )
    return slow, remote


def _of_cpu(
    on_cpu: Copies, copies: int, cells: Cells, choice: random.Random
) -> Injection | NotInjected:
    if len(on_cpu) == 1:
        why = "copies run on one CPU: there is no other to compare it with"
        return NotInjected(PlantKind.SLOW_CPU, why)
    if len(on_cpu) < _FEW_CPUS and copies < _SEVERAL:
        return NotInjected(PlantKind.SLOW_CPU, f"two CPUs need {_SEVERAL} copies")
    cpu = choice.choice(sorted(on_cpu))
    return Injection(
        PlantKind.SLOW_CPU,
        f"CPU {cpu}",
        f"competing processes take {_share(SLOW):.0%} of it",
        copies=tuple(on_cpu[cpu]),
        cpus=(cpu,),
        aimed=SLOW,
        cells=_competing(cells, [cpu]),
    )


def _of_copy(
    placements: Sequence[Placement], on_cpu: Copies, cells: Cells, choice: random.Random
) -> Injection | NotInjected:
    if len(placements) < _LEAST_COPIES:
        why = f"of {len(placements)} copies either may be the odd one: it takes {_LEAST_COPIES}"
        return NotInjected(PlantKind.OUTLIER_COPY, why)
    placement = choice.choice(placements)
    cell = choice.choice(cells)
    assert placement.cpu is not None
    neighbours = len(on_cpu[placement.cpu])
    part = stopped_share(SLOW_COPY, neighbours)
    # Else the copies that it shares its CPU with would gain what it loses.
    instead = ((placement.cpu, part / neighbours),) if neighbours > 1 else ()
    return Injection(
        PlantKind.OUTLIER_COPY,
        f"copy {placement.copy} (CPU {placement.cpu}) in {cell[0]}, iteration {cell[1]}",
        f"it is stopped for {part:.0%} of the time",
        copies=(placement.copy,),
        cpus=(placement.cpu,),
        benchmark=cell[0],
        iteration=cell[1],
        aimed=SLOW_COPY,
        cells={cell: Disturbance(instead, ((placement.copy, part),))},
    )


def _of_iterations(
    cpus: Sequence[int], iterations: int, cells: Cells, choice: random.Random
) -> tuple[Injection, Injection]:
    odd = choice.randint(1, iterations)
    slow = Injection(
        PlantKind.SLOW_ITERATION,
        f"iteration {odd}",
        f"competing processes take {_share(SLOW):.0%} of all CPUs",
        iteration=odd,
        aimed=SLOW,
        cells=_competing([it for it in cells if it[1] == odd], cpus),
    )
    # Equal steps of the time, not of the share; the first iteration is not disturbed.
    drift: dict[tuple[str, int], Disturbance] = {}
    for cell in cells:
        if cell[1] > 1:
            drift |= _competing([cell], cpus, 1 + (SLOW - 1) * (cell[1] - 1) / (iterations - 1))
    return slow, Injection(
        PlantKind.DRIFT,
        f"iterations 1 to {iterations}",
        f"competing processes take more each time, {_share(SLOW):.0%} of all CPUs at last",
        aimed=SLOW,
        cells=drift,
    )


def stopped_share(slowdown: float, copies: int) -> float:
    """Return for how much of the time a copy must be stopped to be slower by `slowdown`.

    Of `copies` on its CPU, all but this one run for a time T, and something else takes
    the turns that it misses. It has then done 1 - d of its work (d the share
    that is asked for) and does the rest alone, at a rate of 1 - d:
    slowdown = 1 + d / (copies (1 - d)).
    """
    more = copies * (slowdown - 1)
    return more / (1 + more)


def _share(slowdown: float) -> float:
    """Return the share of a CPU's time to take for a slowdown."""
    return 1 - 1 / slowdown


def _competing(
    cells: Cells, cpus: Sequence[int], slowdown: float = SLOW
) -> dict[tuple[str, int], Disturbance]:
    return dict.fromkeys(cells, Disturbance(tuple((cpu, _share(slowdown)) for cpu in cpus)))
