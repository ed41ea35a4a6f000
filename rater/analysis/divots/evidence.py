"""What differs between the copies of a finding and the others, and may tell why; pure.

A finding says where and how much; numbers stored beside the times may say why. Every number is
compared between the finding's copies and the others of the same benchmark and iteration (for a
finding of whole iterations: each copy with itself in the other ones). A number is evidence only
where it is known of most copies of both sides, where the medians differ by what matters in
practice and by more than the others differ among themselves, in most of the cells, and in the
direction that slows. Copies of the finding that do not show it are not accused of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from statistics import median

from msgspec import Struct, field
from msgspec.structs import replace

from rater.analysis.divots.model import formatting
from rater.analysis.divots.model.finding import (
    LEAST_MEASURED_WEIGHT,
    MOST_MEASURED_WEIGHT,
    PLACED,
    Evidence,
    EvidenceKind,
    Finding,
    Kind,
)
from rater.analysis.results.account import TimeAccount, time_accounts
from rater.analysis.results.counters import metrics_of, rates_of, tables_of
from rater.analysis.results.cpu_use import CpuUse, run_counters
from rater.analysis.results.placement import CopyProof, PlacementVerdict, prove_run
from rater.analysis.stats.robust import MAD_TO_SD
from rater.plan.counter_tables import CounterTable
from rater.record.events import CopyEnded
from rater.record.stored import StoredRun, is_good
from rater.text.values import group_by_key

# -- What of a copy's run may tell why it was slow, and what difference of it matters --------------

_BASE_PAGE = 65536  # bytes; larger ones are huge pages (4, 16 or 64 KiB are not)
_MIB = 1 << 20
_MISSES = "misses of the last cache in 1000 instructions"
_UNITS: Mapping[str, Callable[[float], str]] = {
    "share": lambda value: f"{value * 100:.{0 if value >= 0.0995 or value < 0.0005 else 1}f} %",
    "count": lambda value: f"{value:.0f}",
    "rate": lambda value: f"{value:.3g}",
    "ratio": lambda value: f"{value:.2f}",
    "MHz": lambda value: f"{value / 1000:.2f} GHz",
    "GHz": lambda value: f"{value:.2f} GHz",
    "MiB": lambda value: f"{value / _MIB:.0f} MiB",
    "work": lambda value: f"{value / 1e9:.4g} x 10^9",
}
_NEXT_TO_NOTHING = 0.005  # the others' share, if no larger, is not told


class _Measure(Struct, frozen=True, kw_only=True):
    """A number of a copy's run, and which difference of it matters."""

    name: str
    words: str  # around the number, where it is told
    least: float  # smallest difference that matters in practice, in the unit
    unit: str = "share"  # a key of `_UNITS`
    slower: int = 1  # 1: a copy with more of it is slower; -1: with less; 0: with either
    first: float = 1  # factor of its weight: numbers that say more about the cause stand first
    ratio: float = 1  # the larger number must be at least so many times the smaller one
    relative: bool = False  # `least` is a share of the larger number


# A cause stands before its consequence: why a copy had no CPU before how long, misses and walks
# before cycles. Numbers that the copy counted itself stand before those sampled on its CPU.
_MEASURES = (
    _Measure(name="remote", words="memory {} remote", least=0.05),
    _Measure(name="placement", words="not placed as planned", least=0.5),
    _Measure(name="foreign", words="other processes took {} of the CPU", least=0.02),
    _Measure(name="steal", words="the hypervisor took {} of the CPU", least=0.01),
    _Measure(name="waited", words="waited {} of the time for a CPU", least=0.02, first=0.9),
    _Measure(name="quota", words="kept from running {} of the time by a CPU quota", least=0.02),
    _Measure(name="stopped", words="was stopped {} of the time", least=0.02),
    _Measure(
        name="frequency",
        words="CPU at {}",
        least=0.02,
        unit="MHz",
        slower=-1,
        first=1.5,
        relative=True,
    ),
    _Measure(name="throttled", words="throttled {} times", least=1, unit="count", ratio=2),
    _Measure(name="interrupts", words="interrupts took {} of the CPU", least=0.01),
    _Measure(name="on-cpu", words="was on a CPU {} of the time", least=0.02, slower=-1, first=0.8),
    _Measure(
        name="huge-pages", words="{} of the memory in huge pages", least=0.1, slower=0, first=0.9
    ),
    _Measure(name="iowait", words="the CPU waited for input or output {} of the time", least=0.02),
    _Measure(
        name="major-faults",
        words="{} major page faults",
        least=10,
        unit="count",
        first=0.5,
        ratio=2,
    ),
    _Measure(name="swapped", words="{} swapped out", least=_MIB, unit="MiB", ratio=2),
    _Measure(
        name="migrations",
        words="moved {} times between CPUs",
        least=5,
        unit="count",
        first=0.2,
        ratio=2,
    ),
    _Measure(
        name="pages-moved",
        words="the kernel moved {} of its pages between nodes",
        least=256,
        unit="count",
        slower=1,
        first=0.2,
        ratio=2,
    ),
    _Measure(
        name="taken-off",
        words="taken off the CPU {} times a second",
        least=5,
        unit="count",
        first=0.2,
        ratio=3,
    ),
    _Measure(
        name="interrupt-rate",
        words="{} interrupts a second",
        least=1000,
        unit="count",
        first=0.1,
        ratio=3,
    ),
    _Measure(
        name="counted-remote", words="{} of its loads from DRAM were remote", least=0.05, first=1.2
    ),
    _Measure(
        name="counted-frequency",
        words="ran at {}",
        least=0.02,
        unit="GHz",
        slower=-1,
        first=2,
        relative=True,
    ),
    _Measure(name="cache-misses", words=f"{{}} {_MISSES}", least=0.1, unit="rate", relative=True),
    _Measure(
        name="page-walks",
        words="{} cycles of page walks an instruction",
        least=0.05,
        unit="ratio",
        ratio=1.2,
    ),
    _Measure(
        name="tlb-misses",
        words="{} TLB misses in 1000 instructions",
        least=0.2,
        unit="rate",
        relative=True,
    ),
    _Measure(
        name="instructions",
        words="did other work: {} instructions",
        least=0.02,
        unit="work",
        slower=1,
        first=1.5,
        relative=True,
    ),
    _Measure(
        name="cpi",
        words="{} cycles an instruction",
        least=0.03,
        unit="ratio",
        slower=1,
        first=0.7,
        relative=True,
    ),
)
# Properties of benchmarks, by which those that suffer may differ from the others.
_SHARED = (
    _Measure(
        name="benchmarks-misses", words=f"these have {{}} {_MISSES}", least=0, unit="rate", ratio=2
    ),
    _Measure(
        name="benchmarks-memory", words="these use {} of memory each", least=0, unit="MiB", ratio=2
    ),
)
# Metric of the counters by name of the measure.
_COUNTED = {
    "counted-remote": "remote_dram_share",
    "cache-misses": "llc_mpki",
    "benchmarks-misses": "llc_mpki",
    "page-walks": "walk_cycles",
    "tlb-misses": "dtlb_mpki",
}

type _CellKey = tuple[str, str | None, int]  # benchmark, tune, iteration


class _Row(Struct, frozen=True):
    """One copy's run with the numbers that are known of it; one that is not known is missing."""

    copy: CopyEnded
    numbers: Mapping[str, float]
    astray: str  # in which way it was not placed as planned, in words


type _Rows = Mapping[_CellKey, Sequence[_Row]]


class _Sides(Struct, frozen=True):
    """Rows that are compared: those of the finding, and others of the same work."""

    members: list[_Row] = field(default_factory=list)
    others: list[_Row] = field(default_factory=list)


def _rows_of(run: StoredRun) -> _Rows:
    """Return the good copies' runs that count, with what was seen of each and of its CPU."""
    run = run.without_torn()
    proofs = {(proof.phase, proof.copy, proof.step): proof for proof in prove_run(run).copies}
    uses = {(use.phase, use.cpu): use for use in run_counters(run).cpus}
    tables, accounts = tables_of(run), time_accounts(run)
    rows: defaultdict[_CellKey, list[_Row]] = defaultdict(list)
    for copy in run.copies:
        if not (copy.counted and is_good(copy) and copy.elapsed_ns > 0):
            continue
        key = (copy.phase, copy.copy, copy.step)
        proof = proofs.get(key)
        values = _times_of_copy(copy, accounts[key]) | _counts_of_copy(copy, tables)
        if copy.cpu is not None and (use := uses.get((copy.phase, copy.cpu))):
            values |= _use_of_cpu(use)
        if proof:
            values |= _placement_seen(copy, proof)
        numbers = {name: float(value) for name, value in values.items() if value is not None}
        astray = proof.reasons[0] if proof and proof.reasons else ""
        cell = (copy.benchmark, copy.tune or run.head.tune, copy.iteration)
        rows[cell].append(_Row(copy, numbers, astray))
    return rows


type _Values = dict[str, float | None]  # by name of a measure; None: not known


def _times_of_copy(copy: CopyEnded, account: TimeAccount) -> _Values:
    """Return shares of a copy's time, its interruptions a second, its faults and its memory."""
    by_time = {
        "on-cpu": account.ran_s,
        "waited": account.waited_s,
        "quota": account.throttled_s,
        "stopped": account.stopped_s,
        "taken-off": copy.involuntary_switches,
    }
    shares = {
        name: None if value is None else value / copy.elapsed_s for name, value in by_time.items()
    }
    return {
        **shares,
        "major-faults": copy.major_faults,
        "benchmarks-memory": copy.max_rss_bytes,
    }


def _counts_of_copy(copy: CopyEnded, tables: Mapping[str, CounterTable]) -> _Values:
    """Return what the copy's own counters say, of groups that counted all of its time."""
    values: _Values = {}
    for group, table in tables.items() if copy.counts else ():
        if rates := rates_of([copy], group, in_full=True):
            metrics = metrics_of(table, rates)
            values |= {"cpi": rates.cpi, "instructions": rates.instructions}
            if rates.ghz is not None:
                values["counted-frequency"] = rates.ghz
            values |= {
                name: metrics[metric] for name, metric in _COUNTED.items() if metric in metrics
            }
    return values


def _use_of_cpu(use: CpuUse) -> _Values:
    """Return what was sampled on the CPU of a copy while it ran."""
    return {
        "foreign": use.foreign,
        "steal": use.steal,
        "frequency": use.mean_mhz,
        "throttled": use.throttles,
        "interrupts": use.irq,
        "iowait": use.iowait,
        "interrupt-rate": use.interrupts_per_s,
    }


def _placement_seen(copy: CopyEnded, proof: CopyProof) -> _Values:
    """Return where a copy and its memory were seen."""
    seen = proof.seen
    values: _Values = {
        "swapped": seen.swap_bytes,
        "migrations": seen.migrations,
        "pages-moved": seen.pages_migrated,
    }
    if proof.verdict is PlacementVerdict.NOT_KNOWN:  # too few samples to judge its memory
        return values
    pages = seen.page_bytes or ()
    total, huge = (sum(size for page, size in pages if page > least) for least in (0, _BASE_PAGE))
    # Memory that the plan itself put on another node counts as remote too: it is as far away.
    local = None if copy.node is None else seen.share_on((copy.node,))
    return values | {
        "placement": float(proof.verdict is PlacementVerdict.NOT_MET),
        "remote": None if local is None else 1 - local,
        "huge-pages": huge / total if total else None,
    }


# -- Whom to compare -------------------------------------------------------------------------------

# Of whole iterations, by what the copies are compared with.
_OVER_TIME = {
    Kind.SLOW_ITERATION: "other iterations",
    Kind.STARTUP: "other iterations",
    Kind.STEP: "other iterations",
    Kind.WARM_UP: "other iterations",
    Kind.DRIFT: "before",
}
_HALVES = (Kind.BIMODAL, Kind.GRADIENT)  # the slow half against the fast one
_NOT_COMPARED = (Kind.WANDERING, Kind.RECURRING, Kind.LAYOUT)


def _sides(finding: Finding, rows: _Rows) -> Iterable[_Sides]:
    """Return the finding's copies and those to compare with, cell by cell.

    Of whole iterations each copy's runs of a benchmark in the slow ones, and in its other ones.
    """
    cells = dict.fromkeys((cell.benchmark, cell.tune, cell.iteration) for cell in finding.cells)
    if finding.kind in _HALVES:
        return [_cut_in_halves(rows.get(cell, ())) for cell in cells]
    if finding.kind in _OVER_TIME:
        return _sides_over_time(finding, rows, cells.keys())
    singles = {
        (single.benchmark, single.tune, single.iteration, single.copy) for single in finding.singles
    }
    copies, cpus = frozenset(finding.copies), frozenset(finding.cpus)

    def is_member(cell: _CellKey, copy: CopyEnded) -> bool:
        if singles:
            return (*cell, copy.copy) in singles
        # With rotating binding a copy is one of the finding's only where it ran on its CPUs.
        return copy.copy in copies and (not cpus or copy.cpu is None or copy.cpu in cpus)

    sides = []
    for cell in cells:
        compared = _Sides()
        for row in rows.get(cell, ()):
            (compared.members if is_member(cell, row.copy) else compared.others).append(row)
        sides.append(compared)
    return sides


def _sides_over_time(
    finding: Finding, rows: _Rows, cells: Collection[_CellKey]
) -> Iterable[_Sides]:
    """Return each copy's runs of a benchmark in a finding's iterations, and in its other ones.

    Of a drift, those of its last and of its first iteration.
    """
    benchmarks = {cell[:2] for cell in cells}
    iterations = {iteration for *_, iteration in cells}
    sides: defaultdict[object, _Sides] = defaultdict(_Sides)
    for cell, in_cell in rows.items():
        benchmark, iteration = cell[:2], cell[2]
        is_member = cell in cells
        if finding.kind is Kind.DRIFT:
            if iteration not in (min(iterations), max(iterations)):
                continue
            is_member = iteration == max(iterations)
        for row in in_cell if benchmark in benchmarks else ():
            compared = sides[benchmark, row.copy.copy]
            (compared.members if is_member else compared.others).append(row)
    return sides.values()


def _cut_in_halves(rows: Sequence[_Row]) -> _Sides:
    """Return the slow and the fast rows of a cell, cut where both vary least inside.

    Of n values in order, cut after the k-th, the squares between the two parts are
    before^2 / k + (total - before)^2 / (n - k) with `before` the sum of the first k: where these
    are largest the squares inside are least (W. D. Fisher, JASA 53, 1958).
    """
    ordered = sorted(rows, key=lambda row: row.copy.elapsed_ns)
    times = [math.log(row.copy.elapsed_ns) for row in ordered]
    n, total, before = len(times), sum(times), 0.0
    best, cut = -math.inf, 0
    for k, value in enumerate(times[:-1], 1):
        before += value
        between = before**2 / k + (total - before) ** 2 / (n - k)
        best, cut = max((best, cut), (between, k))
    return _Sides(members=ordered[cut:], others=ordered[:cut])


# -- What to compare -------------------------------------------------------------------------------

_SPREADS = 3.0  # standard deviations of the others among themselves; less is their own noise
_HALF = 0.5  # of the typical difference: a cell, or a copy, with as much shows it
_MOST = 2 / 3  # of copies, that a number must be known of; of cells, that must show it
_MOST_NAMED = 8  # copies; of more their number is told
_WAYS = 20  # equally likely ones, of which one comes by chance in 5 %


def add_evidence(findings: Sequence[Finding], run: StoredRun) -> tuple[Finding, ...]:
    """Return the findings, each with what differs between its copies and the others.

    Findings that the layout explains are not changed. Torn attempts, failed copies and
    iterations that do not count are left out. Nothing is added where the run has
    nothing beyond times.
    """
    rows = _rows_of(run) if any(not finding.explained for finding in findings) else {}
    return tuple(
        finding
        if finding.explained or finding.kind in _NOT_COMPARED
        else _with_evidence(finding, rows)
        for finding in findings
    )


def _with_evidence(finding: Finding, rows: _Rows) -> Finding:
    cells = [sides for sides in _sides(finding, rows) if sides.members and sides.others]
    candidates = [
        _compare(measure, cells, finding)
        for measure in _MEASURES
        # Of a measure without a number, words cannot say that fast copies lack it.
        if cells and ("{}" in measure.words or not finding.fast)
    ]
    candidates.append(_shared_by_benchmarks(finding, rows))
    measured = [evidence for evidence in candidates if evidence]
    measured.sort(key=lambda evidence: -evidence.weight)
    recorded = {name for sides in cells for row in sides.members for name in row.numbers}
    if not measured and any(measure.name in recorded for measure in _MEASURES):
        measured.append(EvidenceKind.UNEXPLAINED.evidence("nothing recorded explains it"))
    of_times = [evidence for evidence in finding.evidence if evidence.others is None]
    return replace(finding, evidence=(*of_times, *measured))


def _by_copy(name: str, rows: Sequence[_Row]) -> dict[int, list[float]]:
    """Return a number of the rows by copy; empty where too few rows have it."""
    values = [(row.copy.copy, row.numbers[name]) for row in rows if name in row.numbers]
    return group_by_key(values) if len(values) >= _MOST * len(rows) else {}


class _Contrast(Struct, frozen=True, kw_only=True):
    """A number of a finding's copies beside that of the others, in the cells that have it of both.

    Medians of each cell; `deviations` are those of each of the others from their median.
    """

    members: list[float]
    others: list[float]
    deviations: list[float]
    excess: Mapping[int, list[float]]  # by copy of the finding: its value less the others' median

    @property
    def differences(self) -> list[float]:
        """Of the medians, cell by cell."""
        return [member - other for member, other in zip(self.members, self.others, strict=True)]

    def copies_that_show(self, difference: float) -> list[int]:
        """Return the finding's copies that have at least half of a difference."""
        return sorted(
            copy for copy, values in self.excess.items() if median(values) / difference >= _HALF
        )


def _contrast(name: str, cells: Sequence[_Sides]) -> _Contrast:
    """Return a number of both sides, of the cells in which it is known of most copies of both."""
    members, others, deviations = [], [], []
    excess: defaultdict[int, list[float]] = defaultdict(list)
    for sides in cells:
        of_members, of_others = _by_copy(name, sides.members), _by_copy(name, sides.others)
        if not of_members or not of_others:
            continue
        other_values = [*chain(*of_others.values())]
        usual = median(other_values)
        members.append(median(chain(*of_members.values())))
        others.append(usual)
        deviations += [abs(value - usual) for value in other_values]
        for copy, values in of_members.items():
            excess[copy] += [value - usual for value in values]
    return _Contrast(members=members, others=others, deviations=deviations, excess=excess)


def _compare(measure: _Measure, cells: Sequence[_Sides], finding: Finding) -> Evidence | None:
    """Return a measure that differs notably; None if it differs little or too few cells have it."""
    contrast = _contrast(measure.name, cells)
    if len(contrast.members) < max(1.0, _MOST * len(cells)):
        return None
    differences = contrast.differences
    difference, value = median(differences), median(contrast.members)
    other = median(contrast.others)
    low, high = sorted((value, other))
    least = measure.least * high if measure.relative else measure.least
    noise = MAD_TO_SD * median(contrast.deviations)
    if not difference or abs(difference) < max(least, _SPREADS * noise):
        return None
    cells_that_show = sum(cell / difference >= _HALF for cell in differences)
    helps = difference * measure.slower * (-1 if finding.fast else 1) < 0
    if helps or high < measure.ratio * low or cells_that_show < _MOST * len(differences):
        return None
    distance = 1 - low / high if measure.relative or high > 1 else abs(difference)
    weight_range = MOST_MEASURED_WEIGHT - LEAST_MEASURED_WEIGHT
    return Evidence(
        name=measure.name,
        text=_describe_measure(
            measure,
            value=value,
            other=other,
            members=[row for sides in cells for row in sides.members],
            compared_with=_OVER_TIME.get(finding.kind, "others"),
            shown_by=contrast.copies_that_show(difference),
        ),
        weight=LEAST_MEASURED_WEIGHT + weight_range * min(1.0, distance * measure.first),
        value=value,
        others=other,
    )


def _describe_measure(
    measure: _Measure,
    *,
    value: float,
    other: float,
    members: Sequence[_Row],
    compared_with: str,
    shown_by: Sequence[int],
) -> str:
    """Return a measure in words, both values of it, and which copies of the finding show it."""
    number = _UNITS[measure.unit]
    text = measure.words.format(number(value))
    cpus = {row.copy.cpu if row.copy.last_cpu is None else row.copy.last_cpu for row in members}
    if measure.name == "waited" and len(cpus) == 1:
        text = text.replace("a CPU", f"CPU {cpus.pop()}")
    if measure.name == "placement":
        misplaced = next(row for row in members if row.numbers.get("placement"))
        text += f": copy {misplaced.copy.copy} {misplaced.astray}"
    elif other > (_NEXT_TO_NOTHING if measure.unit == "share" else 0) or not value:
        text += f" ({compared_with} {number(other)})"
    copies = len({row.copy.copy for row in members})
    if len(shown_by) < copies:  # copies of the finding that do not show it are not accused
        named = formatting.format_copies(shown_by)
        if len(shown_by) > _MOST_NAMED:
            named = f"{len(shown_by)} of {copies} copies"
        text = f"{named}: {text}"
    return text


def _shared_by_benchmarks(finding: Finding, rows: _Rows) -> Evidence | None:
    """Return what the benchmarks of a slow part have in common, and no other of the run has.

    All of k of n benchmarks lie above all others by chance in one of (n over k) cases.
    """
    names = {name for name, _, _ in rows}
    ways = math.comb(len(names), len(finding.benchmarks))
    if finding.kind not in PLACED or finding.fast or ways < _WAYS:
        return None
    for measure in _SHARED:
        values: defaultdict[str, list[float]] = defaultdict(list)
        for (name, _, _), in_cell in rows.items():
            values[name] += chain(*_by_copy(measure.name, in_cell).values())
        typical = {name: median(of_name) for name, of_name in values.items() if of_name}
        suffering = [typical.pop(name) for name in finding.benchmarks if name in typical]
        if len(suffering) + len(typical) < len(names):
            continue
        least, most = min(suffering), max(typical.values())
        if least < measure.ratio * most:
            continue
        number = _UNITS[measure.unit]
        text = f"{measure.words.format(number(least))} or more"
        text += f" (other benchmarks at most {number(most)})"
        return Evidence(
            name=measure.name, text=text, weight=LEAST_MEASURED_WEIGHT, value=least, others=most
        )
    return None
