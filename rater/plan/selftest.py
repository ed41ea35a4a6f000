"""What `rater selftest` slows on purpose, where and by how much; pure."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rater.plan.placement.place import Placement

SLOW = 1.25  # parts and iterations: a fifth of their CPU time goes to others
SLOW_COPY = 1.4  # a single copy has to stand out from what single copies do by themselves
_LEAST_MEMBERS = 3  # copies of an lgroup to be judged as one
_LEAST_COPIES = 3  # of three one can be the odd one, of two either may be
_FEW_CPUS = 3  # fewer CPUs than this need several copies each
_SEVERAL = 8  # copies there


class Fault(StrEnum):
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

    kind: Fault
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

    kind: Fault
    why: str


CLEAN = Injection(Fault.NOTHING, "nothing", "nothing is disturbed")


def usual_copies(pus: int, lgroups: int) -> int:
    """Return how many copies a self-test runs: few, but enough to tell one part from others.

    A machine with one or two CPUs needs several copies on each.
    """
    if pus < _FEW_CPUS:
        return _SEVERAL
    return min(pus, max(_SEVERAL, 4 * lgroups))


def choose(
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
    on_cpu, on_node = _copies_by_cpu(placements), _copies_by_node(placements)
    plants: list[Injection] = []
    missing: list[NotInjected] = []
    nodes = sorted(node for node, copies in on_node.items() if len(copies) >= _LEAST_MEMBERS)
    share = _share(SLOW)
    if len(nodes) >= 2:
        node = choice.choice(nodes)
        cpus = _cpus_of(on_node[node], on_cpu)
        plants.append(
            Injection(
                Fault.SLOW_LGROUP,
                f"lgroup {node}",
                f"competing processes take {share:.0%} of its CPUs",
                copies=tuple(on_node[node]),
                cpus=cpus,
                node=node,
                aimed=SLOW,
                cells=_always(cells, cpus, share),
            )
        )
        home = choice.choice([it for it in nodes if it != node])
        away = choice.choice([it for it in nodes if it != home])
        plants.append(
            Injection(
                Fault.REMOTE_MEMORY,
                f"lgroup {home}",
                f"its copies get the memory of lgroup {away}",
                copies=tuple(on_node[home]),
                cpus=_cpus_of(on_node[home], on_cpu),
                node=home,
                remote=tuple((copy, away) for copy in on_node[home]),
            )
        )
    else:
        lgroups = len(on_node)
        why = (
            "this machine has one lgroup: there is no other to compare it with"
            if lgroups < 2
            else f"it takes two lgroups with {_LEAST_MEMBERS} copies or more: use more --copies"
        )
        missing.append(NotInjected(Fault.SLOW_LGROUP, why))
        missing.append(
            NotInjected(
                Fault.REMOTE_MEMORY,
                "all memory of this machine is equally near" if lgroups < 2 else why,
            )
        )
    if len(on_cpu) >= _FEW_CPUS or (len(on_cpu) == 2 and len(placements) >= _SEVERAL):
        cpu = choice.choice(sorted(on_cpu))
        plants.append(
            Injection(
                Fault.SLOW_CPU,
                f"CPU {cpu}",
                f"competing processes take {share:.0%} of it",
                copies=tuple(on_cpu[cpu]),
                cpus=(cpu,),
                aimed=SLOW,
                cells=_always(cells, [cpu], share),
            )
        )
    else:
        why = (
            "copies run on one CPU: there is no other to compare it with"
            if len(on_cpu) == 1
            else f"two CPUs need {_SEVERAL} copies"
        )
        missing.append(NotInjected(Fault.SLOW_CPU, why))
    if len(placements) >= _LEAST_COPIES:
        plants.append(_outlier(placements, on_cpu, cells, choice))
    else:
        why = f"of {len(placements)} copies either may be the odd one: it takes {_LEAST_COPIES}"
        missing.append(NotInjected(Fault.OUTLIER_COPY, why))
    odd = choice.randint(1, iterations)
    plants.append(
        Injection(
            Fault.SLOW_ITERATION,
            f"iteration {odd}",
            f"competing processes take {share:.0%} of all CPUs",
            iteration=odd,
            aimed=SLOW,
            cells=_always([it for it in cells if it[1] == odd], sorted(on_cpu), share),
        )
    )
    plants.append(
        Injection(
            Fault.DRIFT,
            f"iterations 1 to {iterations}",
            f"competing processes take more each time, {share:.0%} of all CPUs at last",
            aimed=SLOW,
            cells={
                cell: Disturbance(tuple((cpu, part) for cpu in sorted(on_cpu)))
                for cell in cells
                # Equal steps of the time, not of the share.
                if (part := _share(1 + (SLOW - 1) * (cell[1] - 1) / (iterations - 1))) > 0
            },
        )
    )
    return tuple(plants), tuple(missing)


def _outlier(
    placements: Sequence[Placement],
    on_cpu: Mapping[int, Sequence[int]],
    cells: Sequence[tuple[str, int]],
    choice: random.Random,
) -> Injection:
    placement = choice.choice(placements)
    cell = choice.choice(cells)
    assert placement.cpu is not None
    neighbours = len(on_cpu[placement.cpu])
    part = stopped_share(SLOW_COPY, neighbours)
    # Else the copies that it shares its CPU with would gain what it loses.
    instead = ((placement.cpu, part / neighbours),) if neighbours > 1 else ()
    return Injection(
        Fault.OUTLIER_COPY,
        f"copy {placement.copy} (CPU {placement.cpu}) in {cell[0]}, iteration {cell[1]}",
        f"it is stopped for {part:.0%} of the time",
        copies=(placement.copy,),
        cpus=(placement.cpu,),
        benchmark=cell[0],
        iteration=cell[1],
        aimed=SLOW_COPY,
        cells={cell: Disturbance(instead, ((placement.copy, part),))},
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


def _always(
    cells: Sequence[tuple[str, int]], cpus: Sequence[int], share: float
) -> dict[tuple[str, int], Disturbance]:
    return dict.fromkeys(cells, Disturbance(tuple((cpu, share) for cpu in cpus)))


def _copies_by_cpu(placements: Sequence[Placement]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for placement in placements:
        if placement.cpu is not None:
            found[placement.cpu].append(placement.copy)
    return dict(found)


def _cpus_of(copies: Sequence[int], on_cpu: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    return tuple(cpu for cpu in sorted(on_cpu) if not set(copies).isdisjoint(on_cpu[cpu]))


def _copies_by_node(placements: Sequence[Placement]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for placement in placements:
        if placement.node is not None:
            found[placement.node].append(placement.copy)
    return dict(found)
