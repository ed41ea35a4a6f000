"""What `rater doctor selftest` slows on purpose, where and by how much; pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from rater.record.run import Placement
from rater.text.cpuset import format_list
from rater.text.values import group_by_key

TAG = "selftest"  # of runs that are kept: selftest=KIND
SECONDS = 60.0  # that it takes, about
LEAST_ITERATIONS = 3
IDLE_S = 300.0  # that --until-idle waits, at most
SLOW = 1.25  # a fifth of the CPU time goes to others
SLOWER = 1.5  # a third of it
_LEAST_MEMBERS = 3  # copies of an lgroup to be judged as one
_FEW_CPUS = 3  # fewer CPUs than this need several copies each
_SEVERAL = 8  # copies there


class PlantKind(StrEnum):
    """Kinds of what is planted; where a divot has such a kind, by the same word."""

    NOTHING = "nothing"
    SLOW_LGROUP = "slow-lgroup"
    SLOW_CPU = "slow-cpu"
    OUTLIER_COPY = "outlier-copy"  # in made times only
    SLOW_ITERATION = "slow-iteration"


class Injection(Struct, frozen=True, kw_only=True):
    """One thing planted: what there is to find, and what is done for it."""

    kind: PlantKind
    place: str  # in the user's words
    copies: tuple[int, ...] = ()  # those that are slowed; empty: all
    cpus: tuple[int, ...] = ()
    node: int | None = None
    benchmark: str | None = None  # None: all
    iteration: int | None = None  # None: all
    aimed: float = 1.0  # time over undisturbed time

    @property
    def how(self) -> str:
        """What is done for it."""
        if self.kind is PlantKind.NOTHING:
            return "nothing is disturbed"
        cpus = f"CPU{'s' * (len(self.cpus) > 1)} {format_list(self.cpus)}"
        return f"competing processes take {1 - 1 / self.aimed:.0%} of {cpus}"

    def planted_beside(self, other: Injection) -> Injection:
        """Return the same, whose place says what else is planted in its run."""
        return replace(self, place=f"{self.place}, beside {other.place}")

    def concerns(self, benchmark: str, iteration: int, copy: int | None = None) -> bool:
        """Tell whether it slows a benchmark in an iteration, and that copy."""
        return (
            self.benchmark in (None, benchmark)
            and self.iteration in (None, iteration)
            and (copy is None or not self.copies or copy in self.copies)
        )

    def competing(self, benchmark: str, iteration: int) -> tuple[tuple[int, float], ...]:
        """Return CPUs with the share of their time that competing processes take then."""
        if not self.concerns(benchmark, iteration):
            return ()
        return tuple((cpu, 1 - 1 / self.aimed) for cpu in self.cpus)


class NotInjected(Struct, frozen=True):
    """What can not be planted here, and why."""

    kind: PlantKind
    why: str


CLEAN = Injection(kind=PlantKind.NOTHING, place="nothing")


def usual_copies(pus: int, lgroups: int) -> int:
    """Return how many copies a self-test runs: few, but enough to tell one part from others.

    A machine with one or two CPUs needs several copies on each.
    """
    if pus < _FEW_CPUS:
        return _SEVERAL
    return min(pus, max(_SEVERAL, 4 * lgroups))


def plan_injections(
    placements: Sequence[Placement], iterations: int, choice: random.Random
) -> tuple[tuple[Injection, ...], tuple[NotInjected, ...]]:
    """Return what is planted, one run each, and what can not be.

    `placements` are those of bound copies; `choice` decides which CPU, lgroup and iteration.
    """
    on_cpu = group_by_key(
        (placement.cpu, placement) for placement in placements if placement.cpu is not None
    )
    on_node = group_by_key(
        (placement.node, placement) for placement in placements if placement.node is not None
    )
    large = [node for node, members in on_node.items() if len(members) >= _LEAST_MEMBERS]
    injections: list[Injection] = []
    not_injected: list[NotInjected] = []
    if len(on_node) < 2:
        reason = "this machine has one NUMA node: there is no other to compare it with"
        not_injected.append(NotInjected(PlantKind.SLOW_LGROUP, reason))
    elif len(large) < 2:
        reason = f"it takes two NUMA nodes with {_LEAST_MEMBERS} copies or more: use more --copies"
        not_injected.append(NotInjected(PlantKind.SLOW_LGROUP, reason))
    else:
        node = choice.choice(sorted(large))
        injections.append(_slow(PlantKind.SLOW_LGROUP, f"node {node}", on_node[node]))
    if len(on_cpu) == 1:
        reason = "copies run on one CPU: there is no other to compare it with"
        not_injected.append(NotInjected(PlantKind.SLOW_CPU, reason))
    elif len(on_cpu) < _FEW_CPUS and len(placements) < _SEVERAL:
        not_injected.append(NotInjected(PlantKind.SLOW_CPU, f"two CPUs need {_SEVERAL} copies"))
    else:
        cpu = choice.choice(sorted(on_cpu))
        injections.append(_slow(PlantKind.SLOW_CPU, f"CPU {cpu}", on_cpu[cpu]))
    injections.append(_slow_iteration(placements, iterations, choice))
    return tuple(injections), tuple(not_injected)


def plan_pair(
    injections: Sequence[Injection], placements: Sequence[Placement], choice: random.Random
) -> tuple[Injection, Injection] | None:
    """Return two different things to plant in one run; none on a machine that has no room for two.

    A slow lgroup and a CPU of another one, which is slower; else a slow CPU and a slow iteration.
    """
    by_kind = {injection.kind: injection for injection in injections}
    group, cpu = by_kind.get(PlantKind.SLOW_LGROUP), by_kind.get(PlantKind.SLOW_CPU)
    if group is None:
        iteration = by_kind.get(PlantKind.SLOW_ITERATION)
        return (cpu, iteration) if cpu and iteration else None
    elsewhere = group_by_key(
        (placement.cpu, placement)
        for placement in placements
        if placement.cpu is not None and placement.node != group.node
    )
    number = choice.choice(sorted(elsewhere))
    single = _slow(PlantKind.SLOW_CPU, f"CPU {number}", elsewhere[number])
    return group, replace(single, aimed=SLOWER)


def promised_injections(
    visible: Mapping[str, float],
    placements: Sequence[Placement],
    benchmarks: Sequence[str],
    iterations: int,
    choice: random.Random,
) -> dict[str, Injection]:
    """Return for each size that a run promises to show something that is just so slow.

    `visible` has the sizes by scope, as the search for divots says them. Of the lgroups one with
    fewest copies is slowed: the promise is for each of them.
    """
    benchmark, copy = choice.choice(benchmarks), choice.choice(placements)
    on_node = group_by_key((placement.node, placement) for placement in placements)
    on_cpu = group_by_key((placement.cpu, placement) for placement in placements)
    node = min(on_node, key=lambda it: (len(on_node[it]), choice.random()))
    group = _slow(PlantKind.SLOW_LGROUP, f"node {node}", on_node[node])
    single = _slow(PlantKind.OUTLIER_COPY, f"copy {copy.copy}", [copy])
    scopes = {
        "group": group,
        "group-benchmark": replace(group, benchmark=benchmark),
        "cpu": _slow(PlantKind.SLOW_CPU, f"CPU {copy.cpu}", on_cpu[copy.cpu]),
        "copy-benchmark": replace(single, benchmark=benchmark),
        "copy": replace(single, benchmark=benchmark, iteration=choice.randint(1, iterations)),
        "iteration": _slow_iteration(placements, iterations, choice),
    }
    return {
        name: replace(injection, aimed=1 + visible[name])
        for name, injection in scopes.items()
        if name in visible and (injection.node is None or len(on_node) > 1)
    }


def _slow(kind: PlantKind, place: str, members: Sequence[Placement]) -> Injection:
    return Injection(
        kind=kind,
        place=place,
        copies=tuple(member.copy for member in members),
        cpus=tuple(sorted({member.cpu for member in members if member.cpu is not None})),
        node=members[0].node if kind is PlantKind.SLOW_LGROUP else None,
        aimed=SLOW,
    )


def _slow_iteration(
    placements: Sequence[Placement], iterations: int, choice: random.Random
) -> Injection:
    odd = choice.randint(1, iterations)
    one = _slow(PlantKind.SLOW_ITERATION, f"iteration {odd}", placements)
    return replace(one, copies=(), iteration=odd)
