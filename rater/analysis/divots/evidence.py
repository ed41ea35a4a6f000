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
from rater.analysis.divots.model.finding import (
    LEAST_MEASURED_WEIGHT,
    MOST_MEASURED_WEIGHT,
    PLACED,
    Evidence,
    EvidenceKind,
    Finding,
    Kind,
)
from rater.analysis.results.account import accounts_of
from rater.analysis.results.counters import metrics_of, rates_of, tables_of
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.placement import CopyProof, PlacementVerdict, prove_run
from rater.analysis.stats.robust import MAD_TO_SD
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
_NEXT_TO_NOTHING = 0.005  # a share of the others that is not worth a word


class _Measure(Struct, frozen=True, kw_only=True):
    """A number of a copy's run, and what difference of it matters."""

    name: str
    words: str  # around the number, where it is told
    least: float  # smallest difference
    unit: str = "share"
    slower: int = 1  # more of it is slower; -1: less, 0: either
    first: float = 1  # numbers that say more about the cause stand first
    ratio: float = 1  # so many times the others' it must be as well (or they its)
    relative: bool = False  # the smallest difference is a share of the larger number


# A cause stands before what it makes: why a copy had no CPU before how long, misses and walks
# before cycles; what the copy counted itself before what was sampled on its CPU.
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
# What benchmarks are like, by which those that suffer may differ from the others.
_SHARED = (
    _Measure(
        name="benchmarks-misses", words=f"these have {{}} {_MISSES}", least=0, unit="rate", ratio=2
    ),
    _Measure(
        name="benchmarks-memory", words="these use {} of memory each", least=0, unit="MiB", ratio=2
    ),
)
# Of evidence, which metric of the counters it is.
_COUNTED = {
    "counted-remote": "remote_dram_share",
    "cache-misses": "llc_mpki",
    "benchmarks-misses": "llc_mpki",
    "page-walks": "walk_cycles",
    "tlb-misses": "dtlb_mpki",
}

type _Cell = tuple[str, str | None, int]  # benchmark, tune, iteration


class _Row(Struct, frozen=True):
    """One copy's run with the numbers that are known of it; one that is not known is missing."""

    copy: CopyEnded
    numbers: Mapping[str, float]
    astray: str  # how it was not placed as planned, in words


type _Rows = Mapping[_Cell, Sequence[_Row]]
type _Sides = tuple[list[_Row], list[_Row]]  # the finding's copies, the others


def _rows_of(run: StoredRun) -> _Rows:
    """Return the good copies' runs that count, with what was seen of each and of its CPU."""
    run = run.without_torn()
    proofs = {(it.phase, it.copy, it.step): it for it in prove_run(run).copies}
    uses = {(use.phase, use.cpu): use for use in run_counters(run).cpus}
    tables, accounts = tables_of(run), accounts_of(run)
    rows: defaultdict[_Cell, list[_Row]] = defaultdict(list)
    for copy in run.copies:
        if not (copy.counted and is_good(copy) and copy.elapsed_ns > 0):
            continue
        account = accounts[copy.phase, copy.copy, copy.step]
        proof = proofs.get((copy.phase, copy.copy, copy.step))
        use = None if copy.cpu is None else uses.get((copy.phase, copy.cpu))
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
        }
        for name, table in tables.items() if copy.counts else ():  # that counted all the time
            if rates := rates_of([copy], name, in_full=True):
                metrics = metrics_of(table, rates)
                values |= {"cpi": rates.cpi, "instructions": rates.instructions}
                values |= {"counted-frequency": rates.ghz} if rates.ghz is not None else {}
                values |= {name: metrics[it] for name, it in _COUNTED.items() if it in metrics}
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
        values |= _seen(copy, proof) if proof else {}
        known = {name: float(value) for name, value in values.items() if value is not None}
        astray = proof.reasons[0] if proof and proof.reasons else ""
        rows[copy.benchmark, copy.tune or run.head.tune, copy.iteration].append(
            _Row(copy, known, astray)
        )
    return rows


def _seen(copy: CopyEnded, proof: CopyProof) -> dict[str, float | None]:
    seen = proof.seen
    values: dict[str, float | None] = {
        "swapped": seen.swap_bytes,
        "migrations": seen.migrations,
        "pages-moved": seen.pages_migrated,
    }
    if proof.verdict is PlacementVerdict.NOT_KNOWN:  # too little was seen of it
        return values
    pages = seen.page_bytes or ()
    total, huge = (sum(size for page, size in pages if page > least) for least in (0, _BASE_PAGE))
    # Of the memory that the plan put on another node, too: it is as far away.
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


def _sides(one: Finding, rows: _Rows) -> Iterable[_Sides]:
    """Return the finding's copies and those to compare with, cell by cell.

    Of whole iterations each copy's runs of a benchmark in the slow ones, and in its other ones.
    """
    cells = dict.fromkeys((it.benchmark, it.tune, it.iteration) for it in one.cells)
    if one.kind in _HALVES:
        return [_slow_half(rows.get(cell, ())) for cell in cells]
    benchmarks, numbers = {cell[:2] for cell in cells}, {cell[2] for cell in cells}
    singles = {
        (single.benchmark, single.tune, single.iteration, single.copy) for single in one.singles
    }
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


def _slow_half(here: Sequence[_Row]) -> _Sides:
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
_MOST_NAMED = 8  # copies; of more their number is told
_WAYS = 20  # of which one by chance is 5 %


def add_evidence(findings: Sequence[Finding], run: StoredRun) -> tuple[Finding, ...]:
    """Return the findings, each with what differs between its copies and the others.

    What the layout explains stays as it is. Torn attempts, failed copies and
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


def _with_evidence(one: Finding, rows: _Rows) -> Finding:
    cells = [sides for sides in _sides(one, rows) if sides[0] and sides[1]]
    found = [
        _compared(measure, cells, one)
        for measure in _MEASURES
        if cells and ("{}" in measure.words or not one.fast)  # words alone cannot say "not"
    ]
    measured = [it for it in (*found, _shared(one, rows)) if it]
    measured.sort(key=lambda it: -it.weight)
    known = {name for mine, _ in cells for row in mine for name in row.numbers}
    if not measured and any(measure.name in known for measure in _MEASURES):
        measured.append(EvidenceKind.UNEXPLAINED.evidence("nothing recorded explains it"))
    return replace(one, evidence=(*(it for it in one.evidence if it.others is None), *measured))


def _known(name: str, rows: Sequence[_Row]) -> dict[int, list[float]]:
    """Return a number of the rows by copy; empty where it is known of too few."""
    known = [(row.copy.copy, row.numbers[name]) for row in rows if name in row.numbers]
    return group_by_key(known) if len(known) >= _MOST * len(rows) else {}


def _compared(measure: _Measure, cells: Sequence[_Sides], one: Finding) -> Evidence | None:
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
    shown = sum(it / difference >= _HALF for it in differences)
    helps = difference * measure.slower * (-1 if one.fast else 1) < 0
    if helps or high < measure.ratio * low or shown < _MOST * len(differences):
        return None
    who = sorted(copy for copy, over in shows.items() if median(over) / difference >= _HALF)
    text = _text(measure, (value, other), cells, one, who)
    distance = 1 - low / high if measure.relative or high > 1 else abs(difference)
    weight_range = MOST_MEASURED_WEIGHT - LEAST_MEASURED_WEIGHT
    more = weight_range * min(1.0, distance * measure.first)
    return Evidence(
        name=measure.name, text=text, weight=LEAST_MEASURED_WEIGHT + more, value=value, others=other
    )


def _text(
    measure: _Measure,
    values: tuple[float, float],
    cells: Sequence[_Sides],
    one: Finding,
    who: Sequence[int],
) -> str:
    """Return a measure in words, its own and the others' value, and which copies show it."""
    number, (value, other) = _UNITS[measure.unit], values
    text = measure.words.format(number(value))
    rows = [row for mine, _ in cells for row in mine]
    cpus = {it.copy.cpu if it.copy.last_cpu is None else it.copy.last_cpu for it in rows}
    if measure.name == "waited" and len(cpus) == 1:
        text = text.replace("a CPU", f"CPU {cpus.pop()}")
    if measure.name == "placement":
        row = next(it for it in rows if it.numbers.get("placement"))
        text += f": copy {row.copy.copy} {row.astray}"
    elif other > (_NEXT_TO_NOTHING if measure.unit == "share" else 0) or not value:
        text += f" ({_OVER_TIME.get(one.kind, 'others')} {number(other)})"
    many = len({it.copy.copy for it in rows})
    if len(who) < many:  # the others of the finding are not accused
        few = len(who) <= _MOST_NAMED
        text = f"{formatting.format_copies(who) if few else f'{len(who)} of {many} copies'}: {text}"
    return text


def _shared(one: Finding, rows: _Rows) -> Evidence | None:
    """Return what the benchmarks of a slow part have in common, and no other of the run has.

    All of k of n benchmarks lie above all others by chance in one of (n over k) cases.
    """
    names = {name for name, _, _ in rows}
    if one.kind not in PLACED or one.fast or math.comb(len(names), len(one.benchmarks)) < _WAYS:
        return None
    for measure in _SHARED:
        values: defaultdict[str, list[float]] = defaultdict(list)
        for (name, _, _), copies in rows.items():
            values[name] += chain(*_known(measure.name, copies).values())
        typical = {name: median(known) for name, known in values.items() if known}
        own = [typical.pop(name) for name in one.benchmarks if name in typical]
        if len(own) + len(typical) < len(names) or min(own) < measure.ratio * max(typical.values()):
            continue
        (least, most), number = (min(own), max(typical.values())), _UNITS[measure.unit]
        text = f"{measure.words.format(number(least))} or more"
        text += f" (other benchmarks at most {number(most)})"
        return Evidence(
            name=measure.name, text=text, weight=LEAST_MEASURED_WEIGHT, value=least, others=most
        )
    return None
