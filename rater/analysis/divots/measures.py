"""Numbers that were recorded beside a copy's time, and which difference of each matters; pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from rater.analysis.results.account import TimeAccount, time_accounts
from rater.analysis.results.counters import metrics_of, rates_of, tables_of
from rater.analysis.results.cpu_use import CpuUse, run_counters
from rater.analysis.results.foreign_processes import foreign_by_cpu, process_name
from rater.analysis.results.placement import CopyProof, PlacementVerdict, prove_run
from rater.analysis.results.waiting import WaitSplit, split_waits
from rater.plan.counter_tables import CounterTable
from rater.record.events import CopyEnded, ForeignProcess
from rater.record.stored import StoredRun, is_good

# -- What of a copy's run may tell why it was slow, and what difference of it matters --------------

_BASE_PAGE = 65536  # bytes; larger ones are huge pages (4, 16 or 64 KiB are not)
_MIB = 1 << 20
_MISSES = "misses of the last cache in 1000 instructions"
UNITS: Mapping[str, Callable[[float], str]] = {
    "share": lambda value: f"{value * 100:.{0 if value >= 0.0995 or value < 0.0005 else 1}f} %",
    "change": lambda value: f"{math.expm1(value) * 100:.{0 if value >= 0.0995 else 1}f} %",
    "count": lambda value: f"{value:.0f}",
    "rate": lambda value: f"{value:.3g}",
    "ratio": lambda value: f"{value:.2f}",
    "MHz": lambda value: f"{value / 1000:.2f} GHz",
    "GHz": lambda value: f"{value:.2f} GHz",
    "MiB": lambda value: f"{value / _MIB:.0f} MiB",
    "work": lambda value: f"{value / 1e9:.4g} x 10^9",
}


class Measure(Struct, frozen=True, kw_only=True):
    """A number of a copy's run, and which difference of it matters."""

    name: str
    words: str  # around the number, where it is told
    least: float  # smallest difference that matters in practice, in the unit
    unit: str = "share"  # a key of `UNITS`
    slower: int = 1  # 1: a copy with more of it is slower; -1: with less; 0: with either
    first: float = 1  # factor of its weight: numbers that say more about the cause stand first
    ratio: float = 1  # the larger number must be at least so many times the smaller one
    relative: bool = False  # `least` is a share of the larger number
    of_logs: bool = False  # the numbers are logarithms, and the words say their difference


# A cause stands before its consequence: why a copy had no CPU before how long, misses and walks
# before cycles. Numbers that the copy counted itself stand before those sampled on its CPU.
MEASURES = (
    Measure(name="remote", words="memory {} remote", least=0.05),
    Measure(name="placement", words="not placed as planned", least=0.5),
    Measure(name="foreign", words="other processes took {} of the CPU", least=0.02),
    Measure(name="steal", words="the hypervisor took {} of the CPU", least=0.01),
    Measure(
        name="waited-own",
        words="waited {} of the time for a CPU, which other copies had",
        least=0.02,
        first=0.9,
    ),
    Measure(
        name="waited-others",
        words="waited {} of the time for a CPU, which other processes had",
        least=0.02,
        first=0.9,
    ),
    Measure(name="waited", words="waited {} of the time for a CPU", least=0.02, first=0.9),
    Measure(name="quota", words="kept from running {} of the time by a CPU quota", least=0.02),
    Measure(name="stopped", words="was stopped {} of the time", least=0.02),
    Measure(
        name="frequency",
        words="CPU at {}",
        least=0.02,
        unit="MHz",
        slower=-1,
        first=1.5,
        relative=True,
    ),
    Measure(name="throttled", words="throttled {} times", least=1, unit="count", ratio=2),
    Measure(name="interrupts", words="interrupts took {} of the CPU", least=0.01),
    Measure(name="slept", words="slept {} of the time", least=0.02, first=0.85),
    Measure(
        name="cpu-time",
        words="used {} more CPU time: it did more work, or computed more slowly",
        least=0.02,
        unit="change",
        first=1.5,
        of_logs=True,
    ),
    Measure(name="on-cpu", words="was on a CPU {} of the time", least=0.02, slower=-1, first=0.8),
    Measure(
        name="huge-pages", words="{} of the memory in huge pages", least=0.1, slower=0, first=0.9
    ),
    Measure(name="iowait", words="the CPU waited for input or output {} of the time", least=0.02),
    Measure(
        name="major-faults",
        words="{} major page faults",
        least=10,
        unit="count",
        first=0.5,
        ratio=2,
    ),
    Measure(name="swapped", words="{} swapped out", least=_MIB, unit="MiB", ratio=2),
    Measure(
        name="migrations",
        words="moved {} times between CPUs",
        least=5,
        unit="count",
        first=0.2,
        ratio=2,
    ),
    Measure(
        name="pages-moved",
        words="the kernel moved {} of its pages between nodes",
        least=256,
        unit="count",
        slower=1,
        first=0.2,
        ratio=2,
    ),
    Measure(
        name="taken-off",
        words="taken off the CPU {} times a second",
        least=5,
        unit="count",
        first=0.2,
        ratio=3,
    ),
    Measure(
        name="interrupt-rate",
        words="{} interrupts a second",
        least=1000,
        unit="count",
        first=0.1,
        ratio=3,
    ),
    Measure(
        name="counted-remote", words="{} of its loads from DRAM were remote", least=0.05, first=1.2
    ),
    Measure(
        name="counted-frequency",
        words="ran at {}",
        least=0.02,
        unit="GHz",
        slower=-1,
        first=2,
        relative=True,
    ),
    Measure(name="cache-misses", words=f"{{}} {_MISSES}", least=0.1, unit="rate", relative=True),
    Measure(
        name="page-walks",
        words="{} cycles of page walks an instruction",
        least=0.05,
        unit="ratio",
        ratio=1.2,
    ),
    Measure(
        name="tlb-misses",
        words="{} TLB misses in 1000 instructions",
        least=0.2,
        unit="rate",
        relative=True,
    ),
    Measure(
        name="instructions",
        words="did other work: {} instructions",
        least=0.02,
        unit="work",
        slower=1,
        first=1.5,
        relative=True,
    ),
    Measure(
        name="cpi",
        words="{} cycles an instruction",
        least=0.03,
        unit="ratio",
        slower=1,
        first=0.7,
        relative=True,
    ),
)
CPU_TIME, WAITED_FOR_OTHERS = "cpu-time", "waited-others"
WAITED = ("waited", "waited-own", WAITED_FOR_OTHERS)
# Why a copy needed more CPU time: where one of them differs, that it did is the consequence.
OF_MORE_CPU_TIME = frozenset(
    measure.name
    for measure in MEASURES
    if measure.name
    not in (*WAITED, CPU_TIME, "foreign", "quota", "stopped", "slept", "on-cpu", "iowait")
)
# Properties of benchmarks, by which those that suffer may differ from the others.
SHARED = (
    Measure(
        name="benchmarks-misses", words=f"these have {{}} {_MISSES}", least=0, unit="rate", ratio=2
    ),
    Measure(
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

type CellKey = tuple[str, str | None, int]  # benchmark, tune, iteration


class Row(Struct, frozen=True):
    """One copy's run with the numbers that are known of it; one that is not known is missing."""

    copy: CopyEnded
    numbers: Mapping[str, float]
    astray: str  # in which way it was not placed as planned, in words
    busiest: str = ""  # the other process that used most of its CPU, in words; "": none is known


type Rows = Mapping[CellKey, Sequence[Row]]


def rows_of(run: StoredRun) -> Rows:
    """Return the good copies' runs that count, with what was seen of each and of its CPU."""
    run = run.without_torn()
    proofs = {(proof.phase, proof.copy, proof.step): proof for proof in prove_run(run).copies}
    uses = {(use.phase, use.cpu): use for use in run_counters(run).cpus}
    tables, accounts = tables_of(run), time_accounts(run)
    splits, foreign = split_waits(run, [*uses.values()]), foreign_by_cpu(run)
    rows: defaultdict[CellKey, list[Row]] = defaultdict(list)
    for copy in run.copies:
        if not (copy.counted and is_good(copy) and copy.elapsed_ns > 0):
            continue
        key = (copy.phase, copy.copy, copy.step)
        proof = proofs.get(key)
        values = _times_of_copy(copy, accounts[key], splits[key]) | _counts_of_copy(copy, tables)
        if copy.cpu is not None and (use := uses.get((copy.phase, copy.cpu))):
            values |= _use_of_cpu(use)
        if proof:
            values |= _placement_seen(copy, proof)
        numbers = {name: float(value) for name, value in values.items() if value is not None}
        row = Row(
            copy=copy,
            numbers=numbers,
            astray=proof.reasons[0] if proof and proof.reasons else "",
            busiest=_busiest_process(foreign, copy),
        )
        rows[copy.benchmark, copy.tune or run.head.tune, copy.iteration].append(row)
    return rows


def _busiest_process(
    foreign: Mapping[tuple[int, int], Sequence[ForeignProcess]], copy: CopyEnded
) -> str:
    """Return which other process used most of a copy's CPU, in words, or an empty text."""
    processes = foreign.get((copy.phase, copy.cpu), ()) if copy.cpu is not None else ()
    return process_name(processes[0]) if processes else ""


type _Values = dict[str, float | None]  # by name of a measure; None: not known


def _times_of_copy(copy: CopyEnded, account: TimeAccount, split: WaitSplit) -> _Values:
    """Return shares of a copy's time, its interruptions a second, its faults and its memory."""
    by_time = {
        "on-cpu": account.ran_s,
        "waited": account.waited_s if split.for_own_s is None else None,
        "waited-own": split.for_own_s,
        "waited-others": split.for_others_s,
        "slept": account.slept_s,
        "quota": account.throttled_s,
        "stopped": account.stopped_s,
        "taken-off": copy.involuntary_switches,
    }
    shares = {
        name: None if value is None else value / copy.elapsed_s for name, value in by_time.items()
    }
    return {
        **shares,
        "cpu-time": math.log(copy.cpu_ns) if copy.cpu_ns else None,
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


def seconds_of(row: Row, names: Sequence[str]) -> float | None:
    """Return the seconds that some parts of a copy's time took together; None: none is known."""
    shares = [row.numbers[name] for name in names if name in row.numbers]
    return sum(shares) * row.copy.elapsed_s if shares else None
