"""Copy times of a run as arrays; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from rater.analysis.stats.robust import Bools, Floats, Ints, median_without_gaps
from rater.record.stored import TimeRow

# A *slot* is a place that a copy had: with fixed binding one per copy, with binding
# that rotates over the iterations one per CPU (and one more for each further copy on
# the same CPU), for unbound copies one per copy. The core, LLC, node, package and memory
# of a place are then one number a slot whatever the binding.

UNKNOWN: Final = -1
SEVERAL: Final = -2  # memory on more than one node

_CLOCK_STEPS_S: Final = (1.0, 0.1, 0.01, 0.001, 1e-4)  # of clocks and of printed digits
_STEPS_OFF: Final = 1e-6  # steps: a time further from a whole number of them is no multiple
_LEAST_GAP_S: Final = 1e-8  # distinct times closer than this are one, rounded twice
_NS_PER_S: Final = 1e9
_RECORDED_DIGITS: Final = 9  # of seconds: nanoseconds

type Row = tuple[float | None, ...]  # the columns of `TimeRow`
_COLUMNS: Final = len(TimeRow._fields)
_BENCHMARK, _ITERATION, _COPY, _CPU, _MEMORY, _START, _ELAPSED, _CPU_TIME, _GOOD = map(
    TimeRow._fields.index,
    (
        "benchmark",
        "iteration",
        "copy",
        "cpu",
        "memory",
        "start_ns",
        "elapsed_ns",
        "cpu_ns",
        "good",
    ),
)
_PLACES: Final = slice(_CPU, _MEMORY + 1)  # CPU, core, LLC, node, package, memory


class Machine(Struct, frozen=True, eq=False):
    """The machine's CPUs beyond those that copies ran on: PUs of a core, by CPU."""

    core_pus: tuple[tuple[int, int], ...] = ()


class Table(Struct, frozen=True, eq=False, kw_only=True):
    """Times of one run; B benchmarks (each tune its own), I iterations, S slots."""

    benchmarks: tuple[tuple[str, str | None], ...]  # name and tune
    iterations: tuple[int, ...]  # as recorded, ascending
    log_s: Floats  # (B, I, S) ln of seconds, NaN where no copy ended well
    copy: Ints  # (B, I, S) copy number, -1 where none ran
    start_s: Floats  # (B, I, S) NaN: not known
    idle: Floats  # (B, I, S) 1 - CPU time / elapsed; NaN: not known
    cpu: Ints  # (S,) here and below: UNKNOWN where not recorded
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
        benchmarks, iterations, slots = self.log_s.shape
        return benchmarks, iterations, slots

    @property
    def copies(self) -> int:
        """Different copies that ran."""
        return len(np.unique(self.copy[self.copy >= 0]))

    def name(self, benchmark: int) -> str:
        """Return the name of a benchmark, with its tune where the run has it in several."""
        name, tune = self.benchmarks[benchmark]
        twice = sum(other == name for other, _ in self.benchmarks) > 1
        return f"{name} ({tune})" if twice and tune else name


class _CubeIndex(Struct, frozen=True, eq=False):
    """The place of each row in arrays (benchmark, iteration, slot)."""

    shape: tuple[int, int, int]
    cell_of_row: Ints  # (N,) index into the flat array

    def fill(self, values: Floats, empty: float = np.nan) -> Floats:
        """Return an array with the values of rows (N,); the last of several in one cell."""
        cube = np.full(self.shape, empty)
        cube.ravel()[self.cell_of_row] = values
        return cube

    def fill_medians(self, values: Floats) -> Floats:
        """Return an array with the median of the rows of each cell, without NaN."""
        cube = self.fill(values)
        if len(np.unique(self.cell_of_row)) == len(self.cell_of_row):
            return cube
        order = np.lexsort((values, self.cell_of_row))
        cells, first = np.unique(self.cell_of_row[order], return_index=True)
        ordered = values[order]
        good = np.add.reduceat(~np.isnan(ordered), first)  # NaN sorts last
        counts = np.maximum(good, 1)
        low, high = first + (counts - 1) // 2, first + counts // 2
        cube.ravel()[cells] = (ordered[low] + ordered[high]) / 2
        return cube


class _Slots(Struct, frozen=True, eq=False):
    """The slots of a run."""

    of_row: Ints  # (N,)
    places: Ints  # (S, 6) CPU, core, LLC, node, package, memory
    fixed: bool  # whether each copy has one slot


def build_table(
    chunks: Iterable[Sequence[Row]],
    benchmarks: Sequence[tuple[str, str | None]],
    *,
    machine: Machine | None = None,
    barrier: bool = True,
    staggered: bool = False,
) -> Table | None:
    """Return the table of rows (`Row`), or none if no copy ended well.

    Several runs of a benchmark by one copy in one iteration (steady mode, rotated
    rounds) count as their median.
    """
    rows = _join_chunks(chunks)
    succeeded = (rows[:, _GOOD] > 0) & (rows[:, _ELAPSED] > 0)
    if not succeeded.any():
        return None
    elapsed_ns = np.where(succeeded, rows[:, _ELAPSED], np.nan)
    numbers, benchmark_of_row = np.unique(rows[:, _BENCHMARK], return_inverse=True)
    iterations, iteration_of_row = np.unique(rows[:, _ITERATION], return_inverse=True)
    slots = _assign_slots(rows, benchmark_of_row * len(iterations) + iteration_of_row)
    shape = (len(numbers), len(iterations), int(slots.of_row.max()) + 1)
    index = _CubeIndex(
        shape, np.ravel_multi_index((benchmark_of_row, iteration_of_row, slots.of_row), shape)
    )
    log_s = index.fill_medians(np.log(elapsed_ns / _NS_PER_S))
    names = [benchmarks[int(number)] for number in numbers]
    kept = _distinct_benchmarks(names, log_s)
    widths = dict(machine.core_pus) if machine else {}
    places = slots.places
    return Table(
        benchmarks=tuple(name for name, is_kept in zip(names, kept, strict=True) if is_kept),
        iterations=tuple(int(iteration) for iteration in iterations),
        log_s=log_s[kept],
        copy=index.fill(rows[:, _COPY], UNKNOWN)[kept].astype(np.int64),
        start_s=index.fill(rows[:, _START] / _NS_PER_S)[kept],
        idle=index.fill(1 - rows[:, _CPU_TIME] / elapsed_ns)[kept],
        cpu=places[:, 0],
        core=places[:, 1],
        llc=places[:, 2],
        node=places[:, 3],
        package=places[:, 4],
        memory=places[:, 5],
        core_width=np.array(
            [widths.get(number, 0) for number in places[:, 0].tolist()], dtype=np.int64
        ),
        fixed=slots.fixed,
        barrier=barrier,
        staggered=staggered,
        failed=int(np.sum(~succeeded)),
    )


def _join_chunks(chunks: Iterable[Sequence[Row]]) -> Floats:
    """Return all rows as one array (N, columns), NaN where a value is not known."""
    parts = [np.array(chunk, dtype=np.float64).reshape(-1, _COLUMNS) for chunk in chunks]
    return np.concatenate([*parts, np.zeros((0, _COLUMNS))])


def _distinct_benchmarks(names: Sequence[tuple[str, str | None]], log_s: Floats) -> Bools:
    """Tell of each benchmark (B,) whether it has times, and times of its own.

    A measurement of base that counts as peak as well is one measurement.
    """
    kept: Bools = ~np.isnan(log_s).all(axis=(1, 2))
    for number, (name, _) in enumerate(names):
        kept[number] &= not any(
            name == earlier_name and np.array_equal(log_s[earlier], log_s[number], equal_nan=True)
            for earlier, (earlier_name, _) in enumerate(names[:number])
        )
    return kept


def _assign_slots(rows: Floats, cell: Ints) -> _Slots:
    """Return the slots of rows; `cell` (N,) numbers benchmark and iteration of each."""
    copy = rows[:, _COPY].astype(np.int64)
    recorded = rows[:, _PLACES]
    places = np.where(np.isnan(recorded), UNKNOWN, recorded).astype(np.int64)
    copies, first, copy_of_row = np.unique(copy, return_index=True, return_inverse=True)
    if not (places == places[first][copy_of_row]).all():
        return _assign_slots_of_cpus(cell, copy, places)
    # In the order of the machine: neighbours in a run of CPUs are neighbours here.
    places_of_copies = places[first]
    order = np.lexsort((copies, places_of_copies[:, 0]))
    slot_of_copy = np.empty_like(order)
    slot_of_copy[order] = np.arange(len(order))
    return _Slots(slot_of_copy[copy_of_row], places_of_copies[order], True)


def _assign_slots_of_cpus(cell: Ints, copy: Ints, places: Ints) -> _Slots:
    """Return slots where binding changes: of CPUs, and of copies that are not bound."""
    is_bound = places[:, 0] != UNKNOWN
    _, holder = np.unique(np.where(is_bound, places[:, 0], -2 - copy), return_inverse=True)
    rank = _rank_in_cells(cell, holder, copy)
    _, first, slot = np.unique(
        holder * (int(rank.max()) + 1) + rank, return_index=True, return_inverse=True
    )
    places_of_slots = places[first].copy()
    for column in range(1, places.shape[1]):
        # A place that changes while the CPU does not (memory, mostly) is not one of the slot.
        differs = places[:, column] != places_of_slots[slot, column]
        places_of_slots[np.unique(slot[differs]), column] = UNKNOWN
    return _Slots(slot, places_of_slots, False)


def _rank_in_cells(cell: Ints, holder: Ints, copy: Ints) -> Ints:
    """Return the rank (N,) of a row's copy among those with one CPU in one cell; repeats share it.

    `holder` (N,) numbers the CPU, or the copy where it is not bound.
    """
    order = np.lexsort((copy, holder, cell))
    cells, holders, copies = cell[order], holder[order], copy[order]
    continues = np.zeros(len(order), dtype=bool)
    continues[1:] = (cells[1:] == cells[:-1]) & (holders[1:] == holders[:-1])
    next_copy = continues & np.concatenate(([False], copies[1:] != copies[:-1]))
    counter = np.cumsum(next_copy)
    group_start = np.maximum.accumulate(np.where(~continues, np.arange(len(order)), 0))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = counter - counter[group_start]
    return rank


def clock_steps(table: Table) -> Floats:
    """Return the step of the clock over the median time, by benchmark; 0 for a fine clock.

    A clock is coarse if all times are multiples of a usual step, or if less than half of them
    are distinct.
    """
    steps = np.zeros(table.shape[0])
    for benchmark in range(table.shape[0]):
        log_s = table.log_s[benchmark]
        seconds = np.exp(log_s[~np.isnan(log_s)])
        steps[benchmark] = _clock_step_s(seconds) / float(median_without_gaps(seconds))
    return steps


def _clock_step_s(seconds: Floats) -> float:
    """Return the step of the clock that times (N,) were taken with, in seconds, or 0."""
    # exp(ln t) differs from t in the last digit, while nanoseconds were recorded.
    distinct = np.unique(np.round(seconds, _RECORDED_DIGITS))
    if len(distinct) < 2:
        return 0.0
    for step_s in _CLOCK_STEPS_S:
        if _are_multiples(distinct, step_s):
            return step_s
    if 2 * len(distinct) >= len(seconds):
        return 0.0
    gaps = np.diff(distinct)
    # No clock is coarser than a second: two times ten seconds apart are two times.
    return float(gaps[gaps > _LEAST_GAP_S].min(initial=_CLOCK_STEPS_S[0]))


def _are_multiples(seconds: Floats, step_s: float) -> bool:
    steps = seconds / step_s
    rounding = _STEPS_OFF * max(1.0, float(steps.max()))
    return bool(np.abs(steps - np.round(steps)).max() < rounding)
