"""Who runs what, where and when: the phases of a plan, and rotated ones that are no mix; pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from math import gcd

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.placement.layout import EXPLICIT, CpuOrder
from rater.plan.placement.offer import CpuOffer
from rater.plan.placement.place import assign, bound
from rater.plan.topology import PU, Topology
from rater.record.run import Placement
from rater.system.errors import InputError
from rater.text.values import group_by_key

_LONGEST_STAGGER_MS = 86_400_000.0
_MOST_RUNS = 5_000_000  # a plan is made as a whole: about a kilobyte of memory a run


class Order(StrEnum):
    """Who runs what."""

    HOMOGENEOUS = "homogeneous"  # all copies run one benchmark, barrier, next
    ROTATED = "rotated"  # copy n starts at benchmark n mod k and steps on, no barrier


class Step(Struct, frozen=True):
    """One run of one benchmark by one copy."""

    benchmark: str
    iteration: int  # counts from 1 (in rotated order: the round)


class Queue(Struct, frozen=True):
    """What one copy runs in a phase, in order, and when it is let go."""

    copy: int
    steps: tuple[Step, ...]
    offset_ns: int  # planned release of the first step after the phase's first release


class Window(Struct, frozen=True):
    """Steady mode: when completions count, from the phase's first release."""

    warmup_ns: int
    length_ns: int
    grows: bool = False  # it opens when every copy has run once, and half as much later

    @property
    def end_ns(self) -> int:
        """When it closes at the earliest, from the phase's first release."""
        return self.warmup_ns + self.length_ns


class Phase(Struct, frozen=True, kw_only=True):
    """Copies that are released together (or staggered) and waited for together."""

    number: int
    benchmark: str | None  # None in rotated order
    iteration: int | None
    counted: bool
    queues: tuple[Queue, ...]
    # Steady mode: queues are one round, repeated until every run that began before the window
    # closed has ended.
    window: Window | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that will run, in order."""

    mode: str
    order: Order
    benchmarks: tuple[str, ...]  # the ring, in the suite's declared order
    copies: int
    iterations: int
    discard: int
    stagger_ns: int
    increment: int
    phases: tuple[Phase, ...]
    window: Window | None = None  # of every phase, steady mode

    def counted(self, iteration: int) -> bool:
        """Tell whether an iteration (from 1) counts in the result."""
        return iteration > self.discard


def resolve_mode(
    mode: str | None, stagger_ms: float | None, order: str | None = None
) -> tuple[str, Order, float]:
    """Turn the user's shorthand into (name of the mode, order, stagger in ms).

    `--stagger` alone means `staggered`; `staggered` without it is an error;
    `rotated` and `steady` may have one. `heterogeneous` is accepted for `rotated`.
    `--order` belongs to `steady`, whose default is homogeneous; elsewhere it may
    only say what the mode says.
    """
    if stagger_ms is not None and not 0 <= stagger_ms <= _LONGEST_STAGGER_MS:
        raise InputError(
            f"--stagger {stagger_ms:g}: expected milliseconds between the starts of consecutive "
            f"copies, 0 or more and at most {_LONGEST_STAGGER_MS:g} (a day)"
        )
    named = {None: "homogeneous" if stagger_ms is None else "staggered"}
    name = (named | {"heterogeneous": "rotated"}).get(mode, mode)
    if name == "staggered" and stagger_ms is None:
        raise InputError(
            "--mode staggered needs --stagger MS, the milliseconds between the starts of "
            "consecutive copies (SPEC's example: --stagger 6000)"
        )
    if name == "homogeneous" and stagger_ms:
        raise InputError(
            "--mode homogeneous releases all copies at once: leave out --stagger, "
            "or use --mode staggered"
        )
    if name not in ("homogeneous", "staggered", "rotated", "steady"):
        raise InputError(
            f"--mode {mode}: expected homogeneous, rotated (or heterogeneous), staggered or steady"
        )
    wanted = "rotated" if order == "heterogeneous" else order
    if wanted not in (None, *Order):
        raise InputError(f"--order {order}: expected homogeneous or rotated")
    meant = Order.ROTATED if name == "rotated" else Order.HOMOGENEOUS
    if wanted is not None and wanted != meant and name != "steady":
        way = "for a rotated run use --mode rotated"
        way = way if mode is None else f"--mode {name} says the order itself"
        raise InputError(f"--order {order} goes with --mode steady; {way}")
    return name, meant if wanted is None else Order(wanted), stagger_ms or 0.0


def resolve_window(
    mode: str, warmup_s: float | None, window_s: float | None, stagger_s: float = 0.0
) -> Window | None:
    """Return the window of steady mode, None in every other.

    Without `--warmup` a tenth of the window, and at least one and a half times as long as it
    takes until every copy has run once. Raises `InputError`.
    """
    if mode != "steady":
        for option, value in (("--warmup", warmup_s), ("--window", window_s)):
            if value is not None:
                raise InputError(f"{option} {value:g} belongs to --mode steady: add it")
        return None
    if window_s is None:
        raise InputError(
            "--mode steady needs --window S, the seconds in which completions count; at least ten "
            "times as long as one run of the longest benchmark"
        )
    grows = warmup_s is None
    if warmup_s is None:
        warmup_s = max(window_s / 10, stagger_s)
    elif warmup_s < stagger_s:
        raise InputError(
            f"--warmup {warmup_s:g}: the last copy starts {stagger_s:g} s after the first "
            "(--stagger), and the window must not open before: raise --warmup"
        )
    return Window(round(warmup_s * 1e9), round(window_s * 1e9), grows)


def ring_steps(copy: int, length: int, increment: int) -> tuple[int, ...]:
    """Return the ring positions one copy runs in one round.

    Copy n starts at n mod k and steps on by `increment` modulo k, k steps a
    round; increment 0 runs only the first (SPEC CPU 2026's rolling round-robin
    order as public write-ups give it).
    """
    steps = length if increment else 1
    return tuple((copy + step * increment) % length for step in range(steps))


def make_plan(
    benchmarks: Sequence[str],
    copies: int,
    *,
    mode: str = "homogeneous",
    order: Order = Order.HOMOGENEOUS,
    iterations: int = 1,
    discard: int = 0,
    stagger_ms: float = 0.0,
    increment: int = 1,
    window: Window | None = None,
) -> Plan:
    """Lay out every phase. Homogeneous order is iteration by iteration, as SPEC's tools do.

    With a window (steady mode) an iteration of rotated order is a phase, and its
    queues are one round, to be repeated.

    Raises `InputError` for counts that make no run.
    """
    _check_counts(len(benchmarks), copies, iterations, discard, increment)
    stagger_ns = round(stagger_ms * 1e6)
    if order is Order.ROTATED:
        parts = _rotated_parts(
            benchmarks, copies, iterations, increment, in_one_phase=window is None
        )
    else:
        parts = _homogeneous_parts(benchmarks, copies, iterations)
    phases = tuple(
        Phase(
            number=number,
            benchmark=part.benchmark,
            iteration=part.iteration,
            counted=part.iteration is None or part.iteration > discard,
            queues=tuple(
                Queue(copy, steps, copy * stagger_ns) for copy, steps in enumerate(part.steps)
            ),
            window=window,
        )
        for number, part in enumerate(parts)
    )
    return Plan(
        mode=mode,
        order=order,
        benchmarks=tuple(benchmarks),
        copies=copies,
        iterations=iterations,
        discard=discard,
        stagger_ns=stagger_ns,
        increment=increment,
        phases=phases,
        window=window,
    )


def _check_counts(
    benchmarks: int, copies: int, iterations: int, discard: int, increment: int
) -> None:
    if iterations < 1:
        raise InputError(f"--iterations {iterations}: expected 1 or more")
    if not 0 <= discard < iterations:
        raise InputError(
            f"--discard {discard}: expected 0 to {iterations - 1}: at least one of the "
            f"{iterations} iterations must count (raise --iterations)"
        )
    if increment < 0:
        raise InputError(f"--increment {increment}: expected 0 or more")
    runs = copies * iterations * benchmarks
    if runs > _MOST_RUNS:
        raise InputError(
            f"{copies} copies x {iterations} iterations x {benchmarks} benchmarks are "
            f"{runs} copy runs, expected at most {_MOST_RUNS}: take fewer --iterations"
        )


class _PhasePart(Struct, frozen=True):
    """What the copies of one phase run."""

    benchmark: str | None  # None in rotated order
    iteration: int | None  # None in a phase of all iterations
    steps: tuple[tuple[Step, ...], ...]  # by copy


def _homogeneous_parts(
    benchmarks: Sequence[str], copies: int, iterations: int
) -> Iterator[_PhasePart]:
    """Yield a phase for each benchmark, iteration by iteration."""
    for iteration in range(1, iterations + 1):
        for benchmark in benchmarks:
            steps = (Step(benchmark, iteration),)
            yield _PhasePart(benchmark, iteration, (steps,) * copies)


def _rotated_parts(
    benchmarks: Sequence[str], copies: int, iterations: int, increment: int, *, in_one_phase: bool
) -> Iterator[_PhasePart]:
    """Yield one phase of all rounds, or a phase for each round."""
    rings = [ring_steps(copy, len(benchmarks), increment) for copy in range(copies)]

    def steps_of(ring: tuple[int, ...], rounds: Iterable[int]) -> tuple[Step, ...]:
        return tuple(Step(benchmarks[place], number) for number in rounds for place in ring)

    rounds = range(1, iterations + 1)
    if in_one_phase:
        yield _PhasePart(None, None, tuple(steps_of(ring, rounds) for ring in rings))
        return
    for number in rounds:
        yield _PhasePart(None, number, tuple(steps_of(ring, [number]) for ring in rings))


def order_table(plan: Plan) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
    """Return (copies, benchmarks in order of one round); copies with the same queue share a row."""
    if plan.order is not Order.ROTATED:
        return [(tuple(range(plan.copies)), plan.benchmarks)]
    queues = group_by_key(
        (tuple(step.benchmark for step in queue.steps if step.iteration == 1), queue.copy)
        for queue in plan.phases[0].queues
    )
    return [(tuple(copies), names) for names, copies in queues.items()]


# -- Rotated plans that are no mix where it matters: copies beside their like, on a core or lgroup -
#
# Copies n and n + k have the same queue (k: length of the ring). Where the copies of a
# core, an LLC or an lgroup lie multiples of k apart, or share a factor with it, they
# run the same benchmark in step: what was to be a mix is homogeneous there.

# In the order in which they are tried where copies meet their like.
_LAYOUTS = tuple(map(CpuOrder, ("balanced", "fill", "cores", "compact", "scatter")))

type Starts = Counter[int]  # copies by the place in the ring that they start at


type Remedy = tuple[str, int, Sequence[Placement]]  # what to change, the ring and places then


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
    if plan.order is not Order.ROTATED:
        return ()
    if ring == 1:
        return (f"rotated: there is no benchmark but {plan.benchmarks[0]}, so nothing rotates",)
    warnings = []
    if plan.increment and gcd(plan.increment, ring) > 1:
        seen = ring // gcd(plan.increment, ring)
        warnings.append(
            f"--increment {plan.increment} shares a factor with the ring of {ring} benchmarks: "
            f"each copy runs only {seen} of them, several times a round"
        )
    units = _starts(topology, placements, ring)
    same = _meeting_their_like(units, ring)
    mixing = (
        f"; {words} mixes them"
        for words, length, places in remedies
        if not _meeting_their_like(_starts(topology, places, length), length)
    )
    if same:
        warnings.append(f"rotated: {' and '.join(same)}{next(mixing, '')}")
    else:
        warnings += _in_step(units, ring)
    return tuple(warnings)


def remedies_for(
    plan: Plan, placements: Sequence[Placement], offer: CpuOffer, threads: int
) -> Iterator[Remedy]:
    """Yield other orders of copies on the same CPUs, then other lengths of the ring."""
    ring, layout = len(plan.benchmarks), offer.layout
    if layout.order not in (*EXPLICIT, CpuOrder.NONE):
        cpus = Counter(placement.cpu for placement in placements)
        for order in _LAYOUTS:
            if order is layout.order:
                continue
            other = replace(offer, layout=replace(layout, order=order))
            try:
                slots = assign(other, len(placements), threads).slots
                placed = tuple(bound(other, slots))
            except InputError:
                continue  # a layout that cannot be is no way out
            if Counter(placement.cpu for placement in placed) == cpus:
                built_in = layout.name == layout.order
                words = f"--layout {order}" if built_in else f'order = "{order}" in the layout'
                yield words, ring, placed
    for other_ring in (ring + more for more in (-1, 1, -2, 2)):
        all_run = not plan.increment or gcd(plan.increment, other_ring) == 1
        if other_ring > 1 and all_run:
            yield f"a ring of {other_ring} benchmarks", other_ring, placements


def _starts(
    topology: Topology, placements: Sequence[Placement], ring: int
) -> dict[str, list[Starts]]:
    """Return, by level, where in the ring the copies of each core, LLC and lgroup start.

    A copy that may run in several of them counts for none.
    """
    levels: dict[str, Callable[[PU], int | None]] = {
        "core": lambda pu: pu.core,
        "LLC": lambda pu: pu.llc,
        "NUMA node": lambda pu: pu.node,
    }
    pus_by_mask = {  # copies share masks: thousands have the same wide one
        id(placement.cpus): [topology.by_cpu[cpu] for cpu in placement.cpus]
        for placement in placements
        if placement.cpus
    }
    starts_by_level = {}
    for name, unit_of in levels.items():
        units_by_mask = {key: {unit_of(pu) for pu in pus} for key, pus in pus_by_mask.items()}
        starts_by_unit: dict[int, Starts] = defaultdict(Counter)
        for placement in placements:
            units = units_by_mask.get(id(placement.cpus), set())
            unit = next(iter(units)) if len(units) == 1 else None
            if unit is not None:
                starts_by_unit[unit][placement.copy % ring] += 1
        starts_by_level[name] = list(starts_by_unit.values())
    return starts_by_level


def _meeting_their_like(units: dict[str, list[Starts]], ring: int) -> list[str]:
    lines: list[str] = []
    for name in ("NUMA node", "LLC"):
        poor = [starts for starts in units[name] if _is_poor(starts, ring)]
        if poor:
            lines.append(_describe_poor(name, poor, len(units[name]), ring))
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
    """Tell whether a unit runs half of the possible benchmarks or fewer, or one on most copies.

    An even mix has each benchmark on copies / ring copies, rounded up; "most" is half of the
    copies, and one and a half times as many as that.
    """
    copies, most = starts.total(), max(starts.values())
    fair = -(-copies // ring)
    if copies < 2:
        return False
    return 2 * len(starts) <= min(copies, ring) or (2 * most > copies and 2 * most >= 3 * fair)


def _describe_poor(name: str, poor: Sequence[Starts], units: int, ring: int) -> str:
    each = f"each of {units} {name}s" if len(poor) == units else f"each of {len(poor)} {name}s"
    if units == 1:
        each = f"the {name}"
    elif len(poor) < units:
        each += f" (of {units})"
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
    same = {
        name: starts_of_units
        for name, starts_of_units in units.items()
        if name != "core"
        and len(starts_of_units) > 1
        and all(starts == starts_of_units[0] for starts in starts_of_units)
    }
    if "NUMA node" in same and same.get("LLC") == same["NUMA node"]:
        del same["LLC"]
    if not same:
        return []
    named = " and ".join(
        f"{'both' if len(starts_of_units) == 2 else f'all {len(starts_of_units)}'} {name}s"
        for name, starts_of_units in same.items()
    )
    sizes = " and ".join(f"{starts_of_units[0].total()}" for starts_of_units in same.values())
    return [
        f"rotated: {named} run the same mix of benchmarks in step ({sizes} copies each, a multiple "
        f"of the ring length {ring}), never another one"
    ]
