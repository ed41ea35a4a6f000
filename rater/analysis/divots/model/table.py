"""Copy times of a run as arrays, and what the model found in them; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from rater.analysis.stats.robust import Bools, Floats, Ints
from rater.record.stored import TimeRow

# A *slot* is a place that a copy had: with fixed binding one per copy, with binding
# that rotates over the iterations one per CPU (and one more for each further copy on
# the same CPU), for unbound copies one per copy. What a place is part of (core, LLC,
# lgroup, package, memory) is then one number a slot whatever the binding.

UNKNOWN = -1
SEVERAL = -2  # memory on more than one node

_TICKS_S = (1.0, 0.1, 0.01, 0.001, 1e-4)  # clocks and printed digits that there are

type Row = tuple[float | None, ...]  # the columns of `TimeRow`
_COLUMNS = len(TimeRow._fields)
_START, _ELAPSED, _CPU_TIME, _GOOD = map(
    TimeRow._fields.index, ("start_ns", "elapsed_ns", "cpu_ns", "good")
)


class Machine(Struct, frozen=True, eq=False):
    """What is known of the CPUs beyond those that copies ran on: PUs of a core, by CPU."""

    core_pus: tuple[tuple[int, int], ...] = ()


class Table(Struct, frozen=True, eq=False, kw_only=True):
    """Times of one run; B benchmarks (each tune its own), I iterations, S slots."""

    benchmarks: tuple[tuple[str, str | None], ...]  # name and tune
    iterations: tuple[int, ...]  # as recorded, ascending
    log_s: Floats  # (B, I, S) ln of seconds, NaN where no copy ended well
    copy: Ints  # (B, I, S) copy number, -1 where none ran
    start_s: Floats  # (B, I, S) NaN: not known
    idle: Floats  # (B, I, S) 1 - CPU time / elapsed; NaN: not known
    cpu: Ints  # (S,) these and the following: UNKNOWN where not known
    core: Ints
    llc: Ints
    node: Ints
    package: Ints
    memory: Ints  # node that its memory was bound to or found on; SEVERAL
    core_width: Ints  # PUs that its core has in the machine, 0: not known
    fixed: bool  # every copy kept its place over the run
    barrier: bool  # all copies run one benchmark at a time
    staggered: bool  # started one after the other on purpose
    failed: int  # copy runs left out because they did not end well

    @property
    def ran(self) -> Bools:
        """Where a copy ran, well or not."""
        return self.copy >= 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """Benchmarks, iterations, slots."""
        b, i, s = self.log_s.shape
        return b, i, s

    @property
    def copies(self) -> int:
        """Different copies that ran."""
        return len(np.unique(self.copy[self.copy >= 0]))

    def name(self, b: int) -> str:
        """What to call a benchmark: with its tune where the run has it in several."""
        name, tune = self.benchmarks[b]
        twice = sum(other == name for other, _ in self.benchmarks) > 1
        return f"{name} ({tune})" if twice and tune else name


class DivotEffect(Struct, eq=False, kw_only=True):
    """One cause: ln time = size of the benchmark x weight of the iteration x weight of the slot."""

    # The family's, or gradient, modes, copies, moving, iterations, unsettled; of what the layout
    # makes sharing-cpu, sharing-core, core-kind, load.
    kind: str
    slots: Floats  # (S,), or (I, S) or (B, I, S) where other slots each time: 0 or 1, or a slope
    benchmarks: Bools  # (B,)
    when: Floats  # (I,)
    size: Floats  # (B,) ln
    nats: float  # of evidence beyond its price
    scope: str = "all"  # some, cell, step, trend
    gain: float = 0.0  # nats of likelihood: which of those that pay comes first
    name: int = -1  # of the part
    counts: tuple[float, float] = (0.0, 0.0)  # of what the layout makes: copies here, elsewhere

    @property
    def typical(self) -> float:
        """The middle size of its benchmarks, ln."""
        return float(np.median(self.size[self.benchmarks]))

    @property
    def key(self) -> tuple[bytes, bytes, bytes]:
        """What tells it from other effects."""
        return self.slots.tobytes(), self.benchmarks.tobytes(), self.when.tobytes()

    @property
    def at(self) -> tuple[str, str, bytes, bool]:
        """In which iterations it is what, slow or fast."""
        return self.kind, self.scope, (self.when != 0).tobytes(), self.typical > 0

    @property
    def cells(self) -> Bools:
        """Which cells (B, I) it is in."""
        return np.outer(self.benchmarks, self.when != 0)

    def add_to(self, cube: Floats, sign: float = 1.0) -> None:
        """Add its field to ln times (B, I, S) in place."""
        rows = np.flatnonzero(self.benchmarks)
        field = self.size[rows][:, None, None] * self.when[None, :, None] * sign
        cube[rows] += field * (self.slots if self.slots.ndim < 3 else self.slots[rows])


def build_table(
    chunks: Iterable[Sequence[Row]],
    benchmarks: Sequence[tuple[str, str | None]],
    *,
    machine: Machine | None = None,
    barrier: bool = True,
    staggered: bool = False,
) -> Table | None:
    """Return the table of rows (`Row`), None where no copy ended well.

    Several runs of a benchmark by one copy in one iteration (steady mode, rotated
    rounds) count as their median.
    """
    parts = [np.array(chunk, dtype=np.float64).reshape(-1, _COLUMNS) for chunk in chunks]
    rows = np.concatenate([*parts, np.zeros((0, _COLUMNS))])
    del parts
    good = (rows[:, _GOOD] > 0) & (rows[:, _ELAPSED] > 0)
    if not good.any():
        return None
    elapsed = np.where(good, rows[:, _ELAPSED], np.nan)
    kept, of_benchmark = np.unique(rows[:, 0], return_inverse=True)
    iterations, of_iteration = np.unique(rows[:, 1], return_inverse=True)
    places = np.where(np.isnan(rows[:, 4:10]), UNKNOWN, rows[:, 4:10]).astype(np.int64)
    copy = rows[:, 2].astype(np.int64)
    slot, places, fixed = _slots(of_benchmark * len(iterations) + of_iteration, copy, places)
    shape = (len(kept), len(iterations), int(slot.max()) + 1)
    where = np.ravel_multi_index((of_benchmark, of_iteration, slot), shape)

    def cube(values: Floats, empty: float = np.nan) -> Floats:
        found = np.full(shape, empty)
        found.ravel()[where] = values
        return found

    log_s = cube(np.log(elapsed / 1e9))
    if len(np.unique(where)) < len(where):
        _take_medians(log_s.reshape(-1), where, np.log(elapsed / 1e9))
    alive = ~np.isnan(log_s).all(axis=(1, 2))
    names = [benchmarks[int(b)] for b in kept]
    for b, (name, _) in enumerate(names):  # base that counts as peak is one measurement
        alive[b] &= not any(
            name == other and np.array_equal(log_s[a], log_s[b], equal_nan=True)
            for a, (other, _) in enumerate(names[:b])
        )
    widths = dict(machine.core_pus) if machine else {}
    cpu, core, llc, node, package, memory = places.T
    return Table(
        benchmarks=tuple(name for name, ok in zip(names, alive, strict=True) if ok),
        iterations=tuple(int(i) for i in iterations),
        log_s=log_s[alive],
        copy=cube(rows[:, 2], UNKNOWN)[alive].astype(np.int64),
        start_s=cube(rows[:, _START] / 1e9)[alive],
        idle=cube(1 - rows[:, _CPU_TIME] / elapsed)[alive],
        cpu=cpu,
        core=core,
        llc=llc,
        node=node,
        package=package,
        memory=memory,
        core_width=np.array([widths.get(u, 0) for u in cpu.tolist()], dtype=np.int64),
        fixed=fixed,
        barrier=barrier,
        staggered=staggered,
        failed=int(np.sum(~good)),
    )


def _slots(cell: Ints, copy: Ints, places: Ints) -> tuple[Ints, Ints, bool]:
    """Return the slot of each row, the places of the slots (S, 6), and whether binding is fixed."""
    _, first, of_copy = np.unique(copy, return_index=True, return_inverse=True)
    if (places == places[first][of_copy]).all():
        # In the order of the machine: neighbours in a run of CPUs are neighbours here.
        own = places[first]
        order = np.lexsort((np.unique(copy), own[:, 0]))
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return rank[of_copy], own[order], True
    bound = places[:, 0] != UNKNOWN
    key = np.where(bound, places[:, 0], -2 - copy)
    _, of_key = np.unique(key, return_inverse=True)
    order = np.lexsort((copy, of_key, cell))
    same = np.zeros(len(order), dtype=bool)
    c, k, u = cell[order], of_key[order], copy[order]
    same[1:] = (c[1:] == c[:-1]) & (k[1:] == k[:-1])
    # Place in the queue of copies that share a CPU in a cell; a copy's own repeats share one.
    fresh = same & np.concatenate(([False], u[1:] != u[:-1]))
    counter = np.cumsum(fresh)
    begin = np.maximum.accumulate(np.where(~same, np.arange(len(order)), 0))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = counter - counter[begin]
    whole = of_key * (int(rank.max()) + 1) + rank
    _, first, slot = np.unique(whole, return_index=True, return_inverse=True)
    own = places[first].copy()
    for column in range(1, places.shape[1]):
        # A place that changes while the CPU does not (memory, mostly) is not one of the slot.
        differs = places[:, column] != own[slot, column]
        own[np.unique(slot[differs]), column] = UNKNOWN
    return slot, own, False


def _take_medians(cube: Floats, where: Ints, values: Floats) -> None:
    order = np.lexsort((values, where))
    at, first, counts = np.unique(where[order], return_index=True, return_counts=True)
    ordered = values[order]
    good = np.add.reduceat(~np.isnan(ordered), first)  # NaN sorts last
    counts = np.maximum(good, 1)
    low, high = first + (counts - 1) // 2, first + counts // 2
    cube[at] = (ordered[low] + ordered[high]) / 2


def clock_steps(table: Table) -> Floats:
    """Return the tick of the clock over the median time, by benchmark; 0 for a fine one.

    Times are whole multiples of a tick, or few of them are distinct.
    """
    steps = np.zeros(table.shape[0])
    for b in range(table.shape[0]):
        seconds = np.exp(table.log_s[b][~np.isnan(table.log_s[b])])
        # exp(ln t) is not t to the last digit: nanoseconds are what was recorded.
        distinct = np.unique(np.round(seconds, 9))
        several = len(distinct) > 1
        tick = next((unit for unit in _TICKS_S if several and _whole(distinct, unit)), 0.0)
        if not tick and several and 2 * len(distinct) < len(seconds):
            gaps = np.diff(distinct)
            # No clock is coarser than a second: two times ten seconds apart are two times.
            tick = float(gaps[gaps > 1e-8].min(initial=_TICKS_S[0]))
        steps[b] = tick / float(np.median(seconds))
    return steps


def _whole(seconds: Floats, unit: float) -> bool:
    ticks = seconds / unit
    return bool(np.abs(ticks - np.round(ticks)).max() < 1e-6 * max(1.0, float(ticks.max())))
