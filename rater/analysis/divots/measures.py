"""What of a copy's run may tell why it was slow, and what difference of it matters; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rater.analysis.counters.cpu_use import CpuUse
from rater.analysis.counters.rates import metrics_of, rates_of
from rater.analysis.placement.proof import CopyProof
from rater.plan.counters.table import CounterTable
from rater.record.stored import StoredCopy

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
