"""What else is known of slow copies, and what of it may tell why they were slow; pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from rater.analysis.divots.model.finding import PLACED, Evidence, Finding, Kind
from rater.analysis.results.counters import metrics_of, rates_of, tables_of
from rater.analysis.results.cpu_use import CpuUse, run_counters
from rater.analysis.results.placement import CopyProof, PlacementVerdict, prove_run
from rater.analysis.results.steady import is_good
from rater.plan.counter_tables import CounterTable
from rater.record.stored import StoredCopy, StoredRun

# -- What of a copy's run may tell why it was slow, and what difference of it matters --------------

_BASE_PAGE = 65536  # bytes; larger ones are huge pages (4, 16 or 64 KiB are not)


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """One copy's run with all that was seen of it."""

    copy: StoredCopy
    proof: CopyProof | None
    use: CpuUse | None  # of its CPU in its phase
    threads: int
    counted: Mapping[str, float]  # by its counters, where they counted in full


@dataclass(frozen=True, slots=True)
class EvidenceMeasure:
    """A number of a copy's run, and what difference of it matters."""

    name: str
    value: Callable[[EvidenceRow], float | None]
    least: float  # smallest difference
    words: Callable[[str], str]  # around the number as text
    number: Callable[[float], str]
    slower: int = 1  # 1: more of it is slower, -1: less, 0: could be either
    ratio: float = 1.0  # and so many times the others' (or they its)
    relative: bool = False  # the difference is a share of the larger one
    prominence: float = 1.0  # numbers that say more about the cause stand first
    zero: float = 0.0  # the others' number is not told up to this


def _remote(row: EvidenceRow) -> float | None:
    share = row.proof.local_share if row.proof else None
    return None if share is None else 1 - share


def _huge(row: EvidenceRow) -> float | None:
    pages = row.proof.seen.page_bytes if row.proof else None
    total = sum(size for _, size in pages or ())
    if not pages or not total:
        return None
    return sum(size for page, size in pages if page > _BASE_PAGE) / total


def _number(
    of: Callable[[EvidenceRow], object], name: str
) -> Callable[[EvidenceRow], float | None]:
    def value(row: EvidenceRow) -> float | None:
        holder = of(row)
        known = None if holder is None else getattr(holder, name)
        return None if known is None else float(known)

    return value


def _seen(name: str) -> Callable[[EvidenceRow], float | None]:
    return _number(lambda row: row.proof and row.proof.seen, name)


def _of_cpu(name: str) -> Callable[[EvidenceRow], float | None]:
    return _number(lambda row: row.use, name)


def _on_cpu(row: EvidenceRow) -> float | None:
    cpu_s = row.copy.cpu_s
    return None if cpu_s is None else cpu_s / (row.copy.elapsed_s * row.threads)


def _taken_off(row: EvidenceRow) -> float | None:
    switches = row.copy.involuntary_switches
    return None if switches is None else switches / row.copy.elapsed_s


def _counted(name: str) -> Callable[[EvidenceRow], float | None]:
    return lambda row: row.counted.get(name)


def counted_of(copy: StoredCopy, tables: Mapping[str, CounterTable]) -> dict[str, float]:
    """Return what the counters of a copy's run say, as far as they counted all the time."""
    found: dict[str, float] = {}
    for name, table in tables.items():
        rates = rates_of([copy], name, in_full=True)
        if rates is not None:
            found |= {"cpi": rates.cpi, "instructions": rates.instructions}
            found |= {} if rates.ghz is None else {"ghz": rates.ghz}
            found |= metrics_of(table, rates)
    return found


def _share(value: float) -> str:
    return f"{value * 100:.{0 if value >= 0.0995 or value < 0.0005 else 1}f} %"


def _whole(value: float) -> str:
    return f"{value:.0f}"


MEASURES = (
    EvidenceMeasure("remote", _remote, 0.05, lambda v: f"memory {v} remote", _share, zero=0.005),
    EvidenceMeasure(
        "foreign",
        _of_cpu("foreign"),
        0.02,
        lambda v: f"other processes took {v} of the CPU",
        _share,
        zero=0.005,
    ),
    EvidenceMeasure(
        "steal",
        _of_cpu("steal"),
        0.01,
        lambda v: f"the hypervisor took {v} of the CPU",
        _share,
        zero=0.005,
    ),
    EvidenceMeasure(
        "frequency",
        _of_cpu("mean_mhz"),
        0.02,
        lambda v: f"CPU at {v}",
        lambda v: f"{v / 1000:.2f} GHz",
        slower=-1,
        relative=True,
        prominence=1.5,
    ),
    EvidenceMeasure(
        "throttled",
        _of_cpu("throttles"),
        1.0,
        lambda v: f"throttled {v} times",
        _whole,
        ratio=2.0,
    ),
    EvidenceMeasure(
        "interrupts",
        _of_cpu("irq"),
        0.01,
        lambda v: f"interrupts took {v} of the CPU",
        _share,
        zero=0.005,
    ),
    EvidenceMeasure(
        "on-cpu",
        _on_cpu,
        0.02,
        lambda v: f"was on a CPU {v} of the time",
        _share,
        slower=-1,
        prominence=0.8,  # why it had none stands before it, where that is known
    ),
    EvidenceMeasure(
        "huge-pages",
        _huge,
        0.10,
        lambda v: f"{v} of the memory in huge pages",
        _share,
        slower=0,
        prominence=0.9,
    ),
    EvidenceMeasure(
        "iowait",
        _of_cpu("iowait"),
        0.02,
        lambda v: f"the CPU waited for input or output {v} of the time",
        _share,
        zero=0.005,
    ),
    EvidenceMeasure(
        "major-faults",
        _number(lambda row: row.copy, "major_faults"),
        10.0,
        lambda v: f"{v} major page faults",
        _whole,
        ratio=2.0,
        prominence=0.5,
    ),
    EvidenceMeasure(
        "swapped",
        _seen("swap_bytes"),
        float(1 << 20),
        lambda v: f"{v} swapped out",
        lambda v: f"{v / (1 << 20):.0f} MiB",
        ratio=2.0,
    ),
    EvidenceMeasure(
        "migrations",
        _seen("migrations"),
        5.0,
        lambda v: f"moved {v} times between CPUs",
        _whole,
        ratio=2.0,
        prominence=0.2,
    ),
    EvidenceMeasure(
        "pages-moved",
        _seen("pages_migrated"),
        256.0,
        lambda v: f"the kernel moved {v} of its pages between lgroups",
        _whole,
        ratio=2.0,
        prominence=0.2,
    ),
    EvidenceMeasure(
        "taken-off",
        _taken_off,
        5.0,
        lambda v: f"taken off the CPU {v} times a second",
        _whole,
        ratio=3.0,
        prominence=0.2,
    ),
    EvidenceMeasure(
        "interrupt-rate",
        _of_cpu("interrupts_per_s"),
        1000.0,
        lambda v: f"{v} interrupts a second",
        _whole,
        ratio=3.0,
        prominence=0.1,
    ),
    EvidenceMeasure(
        "counted-remote",
        _counted("remote_dram_share"),
        0.05,
        lambda v: f"{v} of its loads from DRAM were remote",
        _share,
        zero=0.005,
        prominence=1.2,
    ),
    EvidenceMeasure(
        "counted-frequency",
        _counted("ghz"),
        0.02,
        lambda v: f"ran at {v}",
        lambda v: f"{v:.2f} GHz",
        slower=-1,
        relative=True,
        prominence=2.0,  # of the copy itself, where `frequency` is sampled on its CPU
    ),
    EvidenceMeasure(
        "cache-misses",
        _counted("llc_mpki"),
        0.1,
        lambda v: f"{v} misses of the last cache in 1000 instructions",
        lambda v: f"{v:.3g}",
        relative=True,
    ),
    EvidenceMeasure(
        "page-walks",
        _counted("walk_cycles"),
        0.05,
        lambda v: f"{v} cycles of page walks an instruction",
        lambda v: f"{v:.2f}",
        ratio=1.2,
    ),
    EvidenceMeasure(
        "tlb-misses",
        _counted("dtlb_mpki"),
        0.2,
        lambda v: f"{v} TLB misses in 1000 instructions",
        lambda v: f"{v:.3g}",
        relative=True,
    ),
    EvidenceMeasure(
        "instructions",
        _counted("instructions"),
        0.02,
        lambda v: f"did other work: {v} instructions",
        lambda v: f"{v / 1e9:.4g} x 10^9",
        relative=True,
        prominence=1.5,
    ),
    EvidenceMeasure(
        "cpi",
        _counted("cpi"),
        0.03,
        lambda v: f"{v} cycles an instruction",
        lambda v: f"{v:.2f}",
        relative=True,
        prominence=0.7,  # what makes it so stands before it
    ),
)

# What benchmarks are like, by which those that suffer may differ from the others.
SHARED = (
    EvidenceMeasure(
        "benchmarks-misses",
        _counted("llc_mpki"),
        0.0,
        lambda v: f"these miss the last cache {v} times in 1000 instructions",
        lambda v: f"{v:.3g}",
        ratio=2.0,
    ),
    EvidenceMeasure(
        "benchmarks-memory",
        _number(lambda row: row.copy, "max_rss_bytes"),
        0.0,
        lambda v: f"these use {v} of memory each",
        lambda v: f"{v / (1 << 20):.0f} MiB",
        ratio=2.0,
    ),
)


# -- What else is known of slow copies: proof, samples, readings, against the other copies ---------
#
# A finding says where and how much; what was stored beside the times may say why. Every
# number is compared between the finding's copies and the others of the same benchmark
# and iteration (for what concerns a whole iteration: with the other iterations), and is
# told only where the medians differ by what matters in practice, by more than the others
# differ among themselves, in most of the cells, and in the direction that slows.

_OVER_TIME = (Kind.SLOW_ITERATION, Kind.STARTUP, Kind.DRIFT)
_NOT_COMPARED = (Kind.WANDERING, Kind.RECURRING, Kind.LAYOUT)
_SPREADS = 3.0  # of the others among themselves: less is their own noise
_MOST_CELLS = 2 / 3  # that must show it
_WAYS = 20  # of which one by chance is 5 %
_NOT_PLANNED = 0.5  # share of the copies, more than of the others
# Behind what it costs (100), before how likely it is by chance (10).
_LEAST_WEIGHT, _MOST_WEIGHT = 20.0, 80.0

type _Cell = tuple[str, str | None, int]  # benchmark, tune, iteration
type _Sides = tuple[list[EvidenceRow], list[EvidenceRow]]  # the finding's copies, the others


def add_evidence(findings: Sequence[Finding], run: StoredRun) -> tuple[Finding, ...]:
    """Return the findings, each with what differs between its copies and the others.

    What the layout explains stays as it is. Torn attempts, failed copies and
    iterations that do not count are left out. Nothing is added where the run has
    nothing beyond times.
    """
    rows = _rows_of(run) if any(not one.explained for one in findings) else {}
    return tuple(
        one if one.explained or one.kind in _NOT_COMPARED else _with(one, rows) for one in findings
    )


def _with(one: Finding, rows: Mapping[_Cell, list[EvidenceRow]]) -> Finding:
    shared = _shared(one, rows)
    cells = [sides for sides in _cells(one, rows) if sides[0] and sides[1]]
    if not cells:
        return replace(one, evidence=(*one.evidence, *shared))
    others = (
        "before"
        if one.kind is Kind.DRIFT
        else "other iterations"
        if one.kind in _OVER_TIME
        else "others"
    )
    found = [it for measure in MEASURES if (it := _compared(measure, cells, others, one.fast))]
    placed = _placement(cells) if not one.fast else None
    found += [*shared, placed] if placed else shared
    found.sort(key=lambda it: -it.weight)
    return replace(one, evidence=(*(it for it in one.evidence if it.others is None), *found))


# -- whom to compare ------------------------------------------------------------------------------


def _rows_of(run: StoredRun) -> dict[_Cell, list[EvidenceRow]]:
    run = run.without_torn()
    proofs = {(it.phase, it.copy, it.step): it for it in prove_run(run).copies}
    uses = {(use.phase, use.cpu): use for use in run_counters(run).cpus}
    tables = tables_of(run)
    threads = {used.name: used.threads for used in run.benchmarks}
    rows: defaultdict[_Cell, list[EvidenceRow]] = defaultdict(list)
    for copy in run.copies:
        if copy.counted and is_good(copy) and copy.elapsed_ns > 0:
            rows[copy.benchmark, copy.tune or run.head.tune, copy.iteration].append(
                EvidenceRow(
                    copy,
                    proofs.get((copy.phase, copy.copy, copy.step)),
                    None if copy.cpu is None else uses.get((copy.phase, copy.cpu)),
                    threads.get(copy.benchmark, 1),
                    counted_of(copy, tables) if copy.counts else {},
                )
            )
    return rows


def _cells(one: Finding, rows: Mapping[_Cell, list[EvidenceRow]]) -> Iterator[_Sides]:
    """Yield the finding's copies and those to compare with, a cell each."""
    cells = dict.fromkeys((it.benchmark, it.tune, it.iteration) for it in one.cells)
    if one.kind in _OVER_TIME:
        yield from _over_time(one, cells, rows)
        return
    singles = {(it.benchmark, it.tune, it.iteration, it.copy) for it in one.singles}
    copies, cpus = frozenset(one.copies), frozenset(one.cpus)
    for cell in cells:
        here = rows.get(cell, [])
        if one.kind is Kind.BIMODAL:
            yield _slow_half(here)
            continue
        sides: _Sides = ([], [])
        for row in here:
            it = row.copy
            if singles:
                own = (*cell, it.copy) in singles
            else:  # with rotating binding a copy is one of them only where it ran there
                own = it.copy in copies and (not cpus or it.cpu is None or it.cpu in cpus)
            sides[0 if own else 1].append(row)
        yield sides


def _over_time(
    one: Finding, cells: Mapping[_Cell, None], rows: Mapping[_Cell, list[EvidenceRow]]
) -> Iterator[_Sides]:
    """Yield each copy's runs of a benchmark in the slow iterations, and its other ones."""
    for benchmark, tune in dict.fromkeys(cell[:2] for cell in cells):
        there = sorted(it for name, label, it in rows if (name, label) == (benchmark, tune))
        own = [it for name, label, it in cells if (name, label) == (benchmark, tune)]
        if one.kind is Kind.DRIFT:
            own, fast = there[-1:], there[:1]
        else:
            fast = [it for it in there if it not in own]
        sides: defaultdict[int, _Sides] = defaultdict(lambda: ([], []))
        for side, numbers in enumerate((own, fast)):
            for number in numbers:
                for row in rows.get((benchmark, tune, number), []):
                    sides[row.copy.copy][side].append(row)
        if own != fast:
            yield from sides.values()


def _slow_half(here: list[EvidenceRow]) -> _Sides:
    """Cut in two where the squares inside of both halves are least."""
    ordered = sorted(here, key=lambda row: row.copy.elapsed_ns)
    times = [math.log(row.copy.elapsed_ns) for row in ordered]
    best, at = math.inf, 0
    total, squares, before, before_squares = sum(times), sum(t * t for t in times), 0.0, 0.0
    for k, value in enumerate(times[:-1], 1):
        before, before_squares = before + value, before_squares + value * value
        behind, count = total - before, len(times) - k
        inside = before_squares - before**2 / k + squares - before_squares - behind**2 / count
        if inside < best:
            best, at = inside, k
    return ordered[at:], ordered[:at] if at else []


# -- what to compare ------------------------------------------------------------------------------


def _compared(
    measure: EvidenceMeasure, cells: Sequence[_Sides], others: str, fast: bool
) -> Evidence | None:
    """Return a measure that differs notably, None where it does not or is not known."""
    own: list[float] = []
    usual: list[float] = []
    noise: list[float] = []
    for mine, theirs in cells:
        values = [v for row in mine if (v := measure.value(row)) is not None]
        beside = [v for row in theirs if (v := measure.value(row)) is not None]
        if values and beside:
            own.append(median(values))
            usual.append(median(beside))
            noise += [abs(value - usual[-1]) for value in beside]
    if not own:
        return None
    differences = [a - b for a, b in zip(own, usual, strict=True)]
    difference, value, other = median(differences), median(own), median(usual)
    spread = 1.4826 * median(noise)
    least = measure.least * max(abs(value), abs(other)) if measure.relative else measure.least
    if abs(difference) < max(least, _SPREADS * spread):
        return None
    sign = math.copysign(1.0, difference)
    if measure.slower and sign != measure.slower * (-1 if fast else 1):
        return None
    low, high = sorted((value, other))
    shown = sum(sign * it >= abs(difference) / 2 for it in differences)
    if high < measure.ratio * low or shown < _MOST_CELLS * len(differences):
        return None
    distance = abs(difference) if not measure.relative and high <= 1 else 1 - low / high
    text = measure.words(measure.number(value))
    if other > measure.zero or value <= measure.zero:
        text += f" ({others} {measure.number(other)})"
    return Evidence(measure.name, text, _weight(distance * measure.prominence), value, other)


def _shared(one: Finding, rows: Mapping[_Cell, list[EvidenceRow]]) -> list[Evidence]:
    """Return what the benchmarks of a slow part have in common, and no other of the run has.

    All of k of n benchmarks lie above all others by chance in one of (n over k) cases.
    """
    names = {cell[0] for cell in rows}
    ways = math.comb(len(names), len(one.benchmarks))
    if one.kind not in PLACED or one.fast or not one.benchmarks or ways < _WAYS:
        return []
    for measure in SHARED:
        values: defaultdict[str, list[float]] = defaultdict(list)
        for (name, _, _), copies in rows.items():
            values[name] += [v for row in copies if (v := measure.value(row)) is not None]
        own = [median(known) for name, known in values.items() if known and name in one.benchmarks]
        rest = [
            median(known) for name, known in values.items() if known and name not in one.benchmarks
        ]
        if len(own) + len(rest) == len(names) and min(own) >= measure.ratio * max(rest):
            least, most = measure.number(min(own)), measure.number(max(rest))
            text = f"{measure.words(least)} or more (other benchmarks at most {most})"
            return [Evidence(measure.name, text, _LEAST_WEIGHT, min(own), max(rest))]
    return []


def _weight(distance: float) -> float:
    return _LEAST_WEIGHT + (_MOST_WEIGHT - _LEAST_WEIGHT) * min(1.0, distance)


def _placement(cells: Sequence[_Sides]) -> Evidence | None:
    """Return that the copies were not where they were planned, unlike the others."""
    shares = []
    reasons: list[str] = []
    for side in (0, 1):
        known = [row.proof for cell in cells for row in cell[side] if row.proof]
        known = [it for it in known if it.verdict is not PlacementVerdict.NOT_KNOWN]
        missed = [it for it in known if it.verdict is PlacementVerdict.NOT_MET]
        shares.append(len(missed) / len(known) if known else 0.0)
        reasons += [reason for it in missed[:1] for reason in it.reasons[:1]] if not side else []
    if shares[0] - shares[1] < _NOT_PLANNED:
        return None
    text = "not placed as planned" + "".join(f": {reason}" for reason in reasons)
    return Evidence("placement", text, _weight(shares[0] - shares[1]), *shares)
