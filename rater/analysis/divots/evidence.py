"""What differs between the copies of a finding and the others, and may tell why; pure.

A finding says where and how much; what was stored beside the times may say why. Every number
is compared between the finding's copies and the others of the same benchmark and iteration (for
what concerns whole iterations: each copy with itself in the other ones). It is evidence only
where it is known of most copies of both sides, where the medians differ by what matters in
practice and by more than the others differ among themselves, in most of the cells, and in the
direction that slows. Copies of the finding that do not show it are not accused of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.divots.model import formatting
from rater.analysis.divots.model.finding import PLACED, Evidence, Finding, Kind
from rater.analysis.results.account import TimeAccount, accounts_of
from rater.analysis.results.counters import metrics_of, rates_of, tables_of
from rater.analysis.results.cpu_use import CpuUse, run_counters
from rater.analysis.results.placement import CopyProof, PlacementVerdict, prove_run
from rater.analysis.stats.robust import MAD_TO_SD
from rater.plan.counter_tables import CounterTable
from rater.record.stored import StoredCopy, StoredRun, is_good
from rater.text.values import group_by_key

# -- What of a copy's run may tell why it was slow, and what difference of it matters --------------

_BASE_PAGE = 65536  # bytes; larger ones are huge pages (4, 16 or 64 KiB are not)
_MIB = 1 << 20


class EvidenceRow(Struct, frozen=True):
    """One copy's run with the numbers that are known of it; one that is not known is missing."""

    copy: StoredCopy
    numbers: Mapping[str, float]
    astray: str  # how it was not placed as planned, in words


def _row(
    copy: StoredCopy,
    proof: CopyProof | None,
    use: CpuUse | None,
    account: TimeAccount,
    tables: Mapping[str, CounterTable],
) -> EvidenceRow:
    """Return a copy's run with all that was seen of it, and of its CPU in its phase."""
    of_time = {
        "on-cpu": account.ran_s,
        "waited": account.waited_s,
        "quota": account.throttled_s,
        "stopped": account.stopped_s,
        "taken-off": copy.involuntary_switches,
    }
    values: dict[str, float | None] = {
        **{name: None if it is None else it / copy.elapsed_s for name, it in of_time.items()},
        "major-faults": copy.major_faults,
        "benchmarks-memory": copy.max_rss_bytes,
        **(counted_of(copy, tables) if copy.counts else {}),
    }
    if use is not None:
        values |= {
            "foreign": use.foreign,
            "steal": use.steal,
            "frequency": use.mean_mhz,
            "throttled": use.throttles,
            "interrupts": use.irq,
            "iowait": use.iowait,
            "interrupt-rate": use.interrupts_per_s,
        }
    if proof is not None:
        seen = proof.seen
        values |= {
            "swapped": seen.swap_bytes,
            "migrations": seen.migrations,
            "pages-moved": seen.pages_migrated,
        }
        if proof.verdict is not PlacementVerdict.NOT_KNOWN:  # else too little was seen of it
            pages = seen.page_bytes or ()
            total, huge = (
                sum(size for page, size in pages if page > least) for least in (0, _BASE_PAGE)
            )
            # Of the memory that the plan put on another node, too: it is as far away.
            local = None if copy.node is None else seen.share_on((copy.node,))
            values |= {
                "placement": float(proof.verdict is PlacementVerdict.NOT_MET),
                "remote": None if local is None else 1 - local,
                "huge-pages": huge / total if total else None,
            }
    known = {name: float(value) for name, value in values.items() if value is not None}
    return EvidenceRow(copy, known, proof.reasons[0] if proof and proof.reasons else "")


# Of evidence, which metric of the counters it is.
_COUNTED = {
    "counted-remote": "remote_dram_share",
    "cache-misses": "llc_mpki",
    "benchmarks-misses": "llc_mpki",
    "page-walks": "walk_cycles",
    "tlb-misses": "dtlb_mpki",
}


def counted_of(copy: StoredCopy, tables: Mapping[str, CounterTable]) -> dict[str, float]:
    """Return what the counters of a copy's run say, as far as they counted all the time."""
    found: dict[str, float] = {}
    for name, table in tables.items():
        rates = rates_of([copy], name, in_full=True)
        if rates is not None:
            found |= {"cpi": rates.cpi, "instructions": rates.instructions}
            found |= {} if rates.ghz is None else {"counted-frequency": rates.ghz}
            metrics = metrics_of(table, rates)
            found |= {name: metrics[it] for name, it in _COUNTED.items() if it in metrics}
    return found


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
_NEXT_TO_NOTHING = 0.005  # a share of the others that is not worth a word


class EvidenceMeasure(Struct, frozen=True):
    """A number of a copy's run, and what difference of it matters."""

    name: str
    least: float  # smallest difference
    relative: bool  # that is a share of the larger number
    ratio: float  # so many times the others' it must be as well (or they its)
    slower: int  # 1: more of it is slower, -1: less, 0: could be either
    prominence: float  # numbers that say more about the cause stand first
    unit: str
    words: str  # around the number, where it is told

    def number(self, value: float) -> str:
        """Return a value as text."""
        return _UNITS[self.unit](value)


def _measures(table: str) -> tuple[EvidenceMeasure, ...]:
    """Read a table of measures; `%` behind the least difference: of the larger number."""
    found = []
    for line in table.strip().splitlines():
        name, least, ratio, slower, first, unit, words = line.split(maxsplit=6)
        size = float(least.rstrip("%")) * (0.01 if least.endswith("%") else 1)
        sign = {"more": 1, "less": -1, "either": 0}[slower]
        numbers = (size, "%" in least, float(ratio), sign, float(first))
        found.append(EvidenceMeasure(name, *numbers, unit, words))
    return tuple(found)


# Name, smallest difference, ratio, what of it is slower, prominence, unit, words. A cause stands
# before what it makes: why a copy had no CPU before how long, misses and walks before cycles;
# what the copy counted itself before what was sampled on its CPU.
MEASURES = _measures("""
remote            0.05    1   more   1   share memory {} remote
placement         0.5     1   more   1   share not placed as planned
foreign           0.02    1   more   1   share other processes took {} of the CPU
steal             0.01    1   more   1   share the hypervisor took {} of the CPU
waited            0.02    1   more   0.9 share waited {} of the time for a CPU
quota             0.02    1   more   1   share kept from running {} of the time by a CPU quota
stopped           0.02    1   more   1   share was stopped {} of the time
frequency         2%      1   less   1.5 MHz   CPU at {}
throttled         1       2   more   1   count throttled {} times
interrupts        0.01    1   more   1   share interrupts took {} of the CPU
on-cpu            0.02    1   less   0.8 share was on a CPU {} of the time
huge-pages        0.1     1   either 0.9 share {} of the memory in huge pages
iowait            0.02    1   more   1   share the CPU waited for input or output {} of the time
major-faults      10      2   more   0.5 count {} major page faults
swapped           1048576 2   more   1   MiB   {} swapped out
migrations        5       2   more   0.2 count moved {} times between CPUs
pages-moved       256     2   more   0.2 count the kernel moved {} of its pages between nodes
taken-off         5       3   more   0.2 count taken off the CPU {} times a second
interrupt-rate    1000    3   more   0.1 count {} interrupts a second
counted-remote    0.05    1   more   1.2 share {} of its loads from DRAM were remote
counted-frequency 2%      1   less   2   GHz   ran at {}
cache-misses      10%     1   more   1   rate  {} misses of the last cache in 1000 instructions
page-walks        0.05    1.2 more   1   ratio {} cycles of page walks an instruction
tlb-misses        20%     1   more   1   rate  {} TLB misses in 1000 instructions
instructions      2%      1   more   1.5 work  did other work: {} instructions
cpi               3%      1   more   0.7 ratio {} cycles an instruction
""")
# What benchmarks are like, by which those that suffer may differ from the others.
SHARED = _measures("""
benchmarks-misses 0 2 more 1 rate these miss the last cache {} times in 1000 instructions
benchmarks-memory 0 2 more 1 MiB these use {} of memory each
""")


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

type _Cell = tuple[str, str | None, int]  # benchmark, tune, iteration
type _Rows = Mapping[_Cell, Sequence[EvidenceRow]]
type _Sides = tuple[list[EvidenceRow], list[EvidenceRow]]  # the finding's copies, the others


def _rows_of(run: StoredRun) -> _Rows:
    run = run.without_torn()
    proofs = {(it.phase, it.copy, it.step): it for it in prove_run(run).copies}
    uses = {(use.phase, use.cpu): use for use in run_counters(run).cpus}
    tables = tables_of(run)
    accounts = accounts_of(run)
    rows: defaultdict[_Cell, list[EvidenceRow]] = defaultdict(list)
    for copy in run.copies:
        if copy.counted and is_good(copy) and copy.elapsed_ns > 0:
            rows[copy.benchmark, copy.tune or run.head.tune, copy.iteration].append(
                _row(
                    copy,
                    proofs.get((copy.phase, copy.copy, copy.step)),
                    None if copy.cpu is None else uses.get((copy.phase, copy.cpu)),
                    accounts[copy.phase, copy.copy, copy.step],
                    tables,
                )
            )
    return rows


def _sides(one: Finding, rows: _Rows) -> Iterable[_Sides]:
    """Return the finding's copies and those to compare with, cell by cell.

    Of whole iterations each copy's runs of a benchmark in the slow ones, and in its other ones.
    """
    cells = dict.fromkeys((it.benchmark, it.tune, it.iteration) for it in one.cells)
    if one.kind in _HALVES:
        return [_slow_half(rows.get(cell, ())) for cell in cells]
    benchmarks, numbers = {cell[:2] for cell in cells}, {cell[2] for cell in cells}
    singles = {(it.benchmark, it.tune, it.iteration, it.copy) for it in one.singles}
    copies, cpus = frozenset(one.copies), frozenset(one.cpus)
    sides: defaultdict[object, _Sides] = defaultdict(lambda: ([], []))
    for cell, here in rows.items():
        for it in here if cell[:2] in benchmarks else ():
            copy = it.copy
            if one.kind is Kind.DRIFT:
                if cell[2] in (min(numbers), max(numbers)):
                    sides[cell[:2], copy.copy][cell[2] != max(numbers)].append(it)
            elif one.kind in _OVER_TIME:
                sides[cell[:2], copy.copy][cell not in cells].append(it)
            elif cell in cells:
                # With rotating binding a copy is one of them only where it ran there.
                own = copy.copy in copies and (not cpus or copy.cpu is None or copy.cpu in cpus)
                sides[cell][(*cell, copy.copy) not in singles if singles else not own].append(it)
    return sides.values()


def _slow_half(here: Sequence[EvidenceRow]) -> _Sides:
    """Cut in two where the squares inside of both halves are least."""
    ordered = sorted(here, key=lambda row: row.copy.elapsed_ns)
    times = [math.log(row.copy.elapsed_ns) for row in ordered]
    total, before, best, at = sum(times), 0.0, -math.inf, 0
    for k, value in enumerate(times[:-1], 1):
        before += value
        between = before**2 / k + (total - before) ** 2 / (len(times) - k)
        best, at = max((best, at), (between, k))
    return ordered[at:], ordered[:at]


# -- What to compare -------------------------------------------------------------------------------

_SPREADS = 3.0  # of the others among themselves: less is their own noise
_HALF = 0.5  # of the difference: a cell, or a copy, shows it
_MOST = 2 / 3  # of copies, that it must be known of; of cells, that must show it
_LONGEST_LIST = 24  # letters; of more copies their number is told
_WAYS = 20  # of which one by chance is 5 %
# Behind what it costs (100), before how likely it is by chance (10).
_LEAST_WEIGHT, _MOST_WEIGHT = 20.0, 80.0


def add_evidence(findings: Sequence[Finding], run: StoredRun) -> tuple[Finding, ...]:
    """Return the findings, each with what differs between its copies and the others.

    What the layout explains stays as it is. Torn attempts, failed copies and
    iterations that do not count are left out. Nothing is added where the run has
    nothing beyond times.
    """
    rows = _rows_of(run) if any(not one.explained for one in findings) else {}
    return tuple(
        one if one.explained or one.kind in _NOT_COMPARED else _with_evidence(one, rows)
        for one in findings
    )


def _with_evidence(one: Finding, rows: _Rows) -> Finding:
    cells = [sides for sides in _sides(one, rows) if sides[0] and sides[1]]
    others = _OVER_TIME.get(one.kind, "others")
    found = [
        _compared(measure, cells, others, one.fast)
        for measure in MEASURES
        if cells and ("{}" in measure.words or not one.fast)  # words alone cannot say "not"
    ]
    measured = [it for it in (*found, _shared(one, rows)) if it]
    measured.sort(key=lambda it: -it.weight)
    known = {name for mine, _ in cells for row in mine for name in row.numbers}
    if not measured and any(measure.name in known for measure in MEASURES):
        measured.append(Evidence("cause", "nothing recorded explains it"))
    return replace(one, evidence=(*(it for it in one.evidence if it.others is None), *measured))


def _known(name: str, rows: Sequence[EvidenceRow]) -> dict[int, list[float]]:
    """Return a number of the rows by copy; empty where it is known of too few."""
    known = [(row.copy.copy, row.numbers[name]) for row in rows if name in row.numbers]
    return group_by_key(known) if len(known) >= _MOST * len(rows) else {}


def _compared(
    measure: EvidenceMeasure, cells: Sequence[_Sides], others: str, fast: bool
) -> Evidence | None:
    """Return a measure that differs notably, None where it does not or is not known."""
    own, usual, noise = [], [], []
    shows: defaultdict[int, list[float]] = defaultdict(list)  # by copy, over the others
    for mine, theirs in cells:
        known, beside = (_known(measure.name, side) for side in (mine, theirs))
        if known and beside:
            there = [*chain(*beside.values())]
            own.append(median(chain(*known.values())))
            usual.append(median(there))
            noise += [abs(value - usual[-1]) for value in there]
            for copy, values in known.items():
                shows[copy] += [value - usual[-1] for value in values]
    if len(own) < max(1.0, _MOST * len(cells)):
        return None
    differences = [a - b for a, b in zip(own, usual, strict=True)]
    difference, value, other = median(differences), median(own), median(usual)
    low, high = sorted((value, other))
    least = measure.least * high if measure.relative else measure.least
    if not difference or abs(difference) < max(least, _SPREADS * MAD_TO_SD * median(noise)):
        return None
    if measure.slower and difference * measure.slower * (-1 if fast else 1) < 0:
        return None
    shown = sum(it / difference >= _HALF for it in differences)
    if high < measure.ratio * low or shown < _MOST * len(differences):
        return None
    text = measure.words.format(measure.number(value))
    its = [row.copy for mine, _ in cells for row in mine]
    cpus = {it.cpu if it.last_cpu is None else it.last_cpu for it in its}
    if measure.name == "waited" and len(cpus) == 1:
        text = text.replace("a CPU", f"CPU {cpus.pop()}")
    if measure.name == "placement":
        row = next(it for mine, _ in cells for it in mine if it.numbers.get("placement"))
        text += f": copy {row.copy.copy} {row.astray}"
    elif other > (_NEXT_TO_NOTHING if measure.unit == "share" else 0) or not value:
        text += f" ({others} {measure.number(other)})"
    who = sorted(copy for copy, over in shows.items() if median(over) / difference >= _HALF)
    copies = {it.copy for it in its}
    if len(who) < len(copies):  # the others of the finding are not accused
        named, many = formatting.format_copies(who), f"{len(who)} of {len(copies)} copies"
        text = f"{named if len(named) <= _LONGEST_LIST else many}: {text}"
    distance = abs(difference) if not measure.relative and high <= 1 else 1 - low / high
    more = (_MOST_WEIGHT - _LEAST_WEIGHT) * min(1.0, distance * measure.prominence)
    return Evidence(measure.name, text, _LEAST_WEIGHT + more, value, other)


def _shared(one: Finding, rows: _Rows) -> Evidence | None:
    """Return what the benchmarks of a slow part have in common, and no other of the run has.

    All of k of n benchmarks lie above all others by chance in one of (n over k) cases.
    """
    names = {name for name, _, _ in rows}
    if one.kind not in PLACED or one.fast or math.comb(len(names), len(one.benchmarks)) < _WAYS:
        return None
    for measure in SHARED:
        values: defaultdict[str, list[float]] = defaultdict(list)
        for (name, _, _), copies in rows.items():
            values[name] += chain(*_known(measure.name, copies).values())
        typical = {name: median(known) for name, known in values.items() if known}
        own = [typical.pop(name) for name in one.benchmarks if name in typical]
        if len(own) + len(typical) < len(names) or min(own) < measure.ratio * max(typical.values()):
            continue
        least, most = min(own), max(typical.values())
        text = f"{measure.words.format(measure.number(least))} or more"
        text += f" (other benchmarks at most {measure.number(most)})"
        return Evidence(measure.name, text, _LEAST_WEIGHT, least, most)
    return None
