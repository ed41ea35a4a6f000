"""Rotated plans that are no mix where it matters: copies beside their like, on a core or lgroup.

Copies n and n + k have the same queue (k: length of the ring). Where the copies of a
core, an LLC or an lgroup lie multiples of k apart, or share a factor with it, they
run the same benchmark in step: what was to be a mix is homogeneous there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from rater.errors import InputError
from rater.plan.placement.layout import EXPLICIT, CpuOrder, Layout
from rater.plan.placement.place import Placement, trial_placements
from rater.plan.schedule.phases import Order, Plan
from rater.plan.topology.model import PU, Topology

# In the order in which they are tried where copies meet their like.
_LAYOUTS = (
    CpuOrder.BALANCED,
    CpuOrder.FILL,
    CpuOrder.CORES,
    CpuOrder.COMPACT,
    CpuOrder.SCATTER,
)
_RINGS = (-1, 1, -2, 2)

type Starts = Counter[int]  # copies by the place in the ring that they start at


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something that the user could change."""

    words: str  # what it is: "--layout balanced"
    ring: int
    placements: Sequence[Placement]


def rotation_warnings(
    plan: Plan,
    placements: Sequence[Placement],
    topology: Topology,
    remedies: Iterable[Remedy] = (),
) -> tuple[str, ...]:
    """Name the ways in which a rotated plan is locally homogeneous, and what would mix it.

    Of the `remedies` the first that leaves no copies beside their like is named.
    """
    ring = len(plan.benchmarks)
    if plan.order is not Order.ROTATED or ring < 2:
        return ()
    warnings = []
    if plan.increment and gcd(plan.increment, ring) > 1:
        seen = ring // gcd(plan.increment, ring)
        warnings.append(
            f"--increment {plan.increment} shares a factor with the ring of {ring} benchmarks: "
            f"each copy runs only {seen} of them, several times a round"
        )
    units = _starts(topology, placements, ring)
    same = _meeting_their_like(units, ring)
    if same:
        way_out = next(
            (
                f"; {remedy.words} mixes them"
                for remedy in remedies
                if not _meeting_their_like(
                    _starts(topology, remedy.placements, remedy.ring), remedy.ring
                )
            ),
            "",
        )
        warnings.append(f"rotated: {' and '.join(same)}{way_out}")
    else:
        warnings += _in_step(units, ring)
    return tuple(warnings)


def remedies_for(
    plan: Plan, placements: Sequence[Placement], topology: Topology, layout: Layout, threads: int
) -> Iterator[Remedy]:
    """Yield other orders of copies on the same CPUs, then other lengths of the ring."""
    ring = len(plan.benchmarks)
    if layout.order not in (*EXPLICIT, CpuOrder.NONE):
        cpus = Counter(p.cpu for p in placements)
        for order in _LAYOUTS:
            if order is layout.order:
                continue
            try:
                other = trial_placements(
                    topology, replace(layout, order=order), len(placements), threads
                )
            except InputError:
                continue  # a layout that cannot be is no way out
            if Counter(p.cpu for p in other) == cpus:
                built_in = layout.name == layout.order
                words = f"--layout {order}" if built_in else f'order = "{order}" in the layout'
                yield Remedy(words, ring, other)
    for other_ring in (ring + more for more in _RINGS):
        all_run = not plan.increment or gcd(plan.increment, other_ring) == 1
        if other_ring > 1 and all_run:
            yield Remedy(f"a ring of {other_ring} benchmarks", other_ring, placements)


def _starts(
    topology: Topology, placements: Sequence[Placement], ring: int
) -> dict[str, list[Starts]]:
    """Return, by level, where in the ring the copies of each core, LLC and lgroup start.

    A copy that may run in several of them counts for none.
    """
    levels: tuple[tuple[str, Callable[[PU], int | None]], ...] = (
        ("core", lambda pu: pu.core),
        ("LLC", lambda pu: pu.llc),
        ("lgroup", lambda pu: pu.node),
    )
    masks = {id(p.cpus): p.cpus for p in placements if p.cpus is not None}
    found = {}
    for name, unit_of in levels:
        own: dict[int, int | None] = {}
        for key, cpus in masks.items():
            inside = {unit_of(topology.by_cpu[cpu]) for cpu in cpus}
            own[key] = inside.pop() if len(inside) == 1 else None
        units: dict[int, Starts] = defaultdict(Counter)
        for placement in placements:
            unit = None if placement.cpus is None else own[id(placement.cpus)]
            if unit is not None:
                units[unit][placement.copy % ring] += 1
        found[name] = list(units.values())
    return found


def _meeting_their_like(units: dict[str, list[Starts]], ring: int) -> list[str]:
    """Return, in words, where copies are beside their like though it need not be so."""
    lines: list[str] = []
    for name in ("lgroup", "LLC"):
        poor = [starts for starts in units[name] if _is_poor(starts, ring)]
        if poor:
            lines.append(_poor(name, poor, len(units[name]), ring))
            if all(len(starts) == 1 for starts in poor):
                return lines  # so do smaller units inside
            break
    cores = units["core"]
    meeting = sum(max(starts.values()) > -(-starts.total() // ring) for starts in cores)
    if meeting:
        lines.append(
            f"on {meeting} of {len(cores)} cores copies run the same benchmark in step (their "
            f"numbers differ by multiples of the ring length {ring})"
        )
    return lines


def _is_poor(starts: Starts, ring: int) -> bool:
    """Tell whether copies run half of what they could at a time, or most of them the same."""
    copies, most = starts.total(), max(starts.values())
    fair = -(-copies // ring)
    if copies < 2:
        return False
    return 2 * len(starts) <= min(copies, ring) or (2 * most > copies and 2 * most >= 3 * fair)


def _poor(name: str, poor: Sequence[Starts], there: int, ring: int) -> str:
    each = f"each of {there} {name}s" if len(poor) == there else f"each of {len(poor)} {name}s"
    if there == 1:
        each = f"the {name}"
    elif len(poor) < there:
        each += f" (of {there})"
    kinds = [len(starts) for starts in poor]
    sizes = [starts.total() for starts in poor]
    copies = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
    if max(kinds) == 1:
        return (
            f"{each} runs only one of the {ring} benchmarks at a time, the same in step on all "
            f"of its {copies} copies"
        )
    if 2 * max(kinds) <= ring:
        return (
            f"{each} runs no more than {max(kinds)} of the {ring} benchmarks at a time, in step on "
            f"its {copies} copies"
        )
    most = [max(starts.values()) for starts in poor]
    return f"the same benchmark runs in step on up to {max(most)} of the {copies} copies of {each}"


def _in_step(units: dict[str, list[Starts]], ring: int) -> list[str]:
    """Name units that all run the same mix at any time."""
    same = {
        name: found
        for name, found in units.items()
        if name != "core" and len(found) > 1 and all(starts == found[0] for starts in found)
    }
    if "lgroup" in same and same.get("LLC") == same["lgroup"]:
        del same["LLC"]
    if not same:
        return []
    named = " and ".join(
        f"{'both' if len(found) == 2 else f'all {len(found)}'} {name}s"
        for name, found in same.items()
    )
    sizes = " and ".join(f"{found[0].total()}" for found in same.values())
    return [
        f"rotated: {named} run the same mix of benchmarks in step ({sizes} copies each, a multiple "
        f"of the ring length {ring}), never another one"
    ]
