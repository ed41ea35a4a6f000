"""What a model is of: x and y with their units, and where their values are from; pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import exp

from rater.analysis.counters.counted import BenchmarkCounts
from rater.analysis.results.copy_outcome import is_good
from rater.analysis.results.rates import BenchmarkRate, Key
from rater.record.stored import StoredCopy, StoredRun

WALKS, MISSES, HITS = "walks", "misses", "hits"
_WALK_METRIC = "walk_cycles"
# Of each table the first that it has: misses of the last TLB that a page walk answers.
_MISS_EVENTS = (("stlb_miss",), ("walks_load", "walks_store"), ("dtlb_miss",), ("dtlb_walk",))
_HIT_EVENTS = (("stlb_hit",), ("stlb_hit_load", "stlb_hit_store"))


class Effort(StrEnum):
    """What a model predicts, of one copy."""

    TIME = "time"
    CPU = "cpu"
    USER = "user"  # of CPU time what the kernel did not take for it
    ENERGY = "energy"
    CYCLES = "cycles"
    METRIC = "metric"  # what the program reports of itself


class Explaining(StrEnum):
    """What a model predicts it from."""

    WALKS = WALKS
    MISSES = MISSES
    HUGE = "huge"
    AXIS = "axis"


@dataclass(frozen=True, slots=True)
class Quantity:
    """x or y of a model."""

    kind: str  # a word of --x or --y
    name: str  # "page-walk cycles of a copy"
    unit: str  # "" for a plain number
    source: str  # where the values are from, in words


EFFORTS = {
    Effort.TIME: Quantity("time", "time of a copy", "s", "median copy of a run"),
    Effort.CPU: Quantity("cpu", "CPU time of a copy", "s", "user and system, median copy of a run"),
    Effort.USER: Quantity(
        "user", "user time of a copy", "s", "without the kernel's part, median copy of a run"
    ),
    Effort.ENERGY: Quantity(
        "energy", "energy of a copy", "J", "the packages' energy by the copies' CPU time"
    ),
    Effort.CYCLES: Quantity("cycles", "cycles of a copy", "", "counted, mean of the copies"),
}


@dataclass(frozen=True, slots=True)
class Predicting:
    """What y is."""

    effort: Effort = Effort.TIME
    metric: str = ""  # the name of a metric

    @property
    def quantity(self) -> Quantity:
        """y in words."""
        if self.effort is not Effort.METRIC:
            return EFFORTS[self.effort]
        name = f"{self.metric} as a copy reports it"
        return Quantity(f"metric:{self.metric}", name, "", "median copy of a run")


OF_TIME = Predicting()


def effort_of(
    wanted: Predicting,
    run: StoredRun,
    key: Key,
    rate: BenchmarkRate,
    counts: BenchmarkCounts | None,
) -> float | None:
    """Return y of a benchmark in a run; None: not known."""
    effort = wanted.effort
    if effort in (Effort.CPU, Effort.USER):
        every_ns = [it.cpu_ns if effort is Effort.CPU else it.user_ns for it in _copies(run, key)]
        times = [ns / 1e9 for ns in every_ns if ns]
        return statistics.median(times) if times else None
    if effort is Effort.METRIC:
        said = [dict(copy.metrics) for copy in _copies(run, key)]
        values = [it[wanted.metric] for it in said if it.get(wanted.metric, 0) > 0]
        return statistics.median(values) if values else None
    if effort is Effort.CYCLES:
        rates = counts.rates if counts else None
        return rates.cpi * rates.instructions if rates else None
    log = rate.log(lambda one: one.median_copy_s if effort is Effort.TIME else one.joules_per_copy)
    return None if log is None else exp(log)


def _copies(run: StoredRun, key: Key) -> list[StoredCopy]:
    """Return the runs of a benchmark's copies that count and ended well."""
    return [
        copy
        for copy in run.copies
        if copy.benchmark == key[0]
        and key[1] in (None, copy.tune)
        and copy.counted
        and is_good(copy)
    ]


def huge_share(run: StoredRun, key: Key) -> float | None:
    """Return the per cent of its memory that a benchmark's median copy had in large pages.

    Of the data that --pages shapes, as it was proved; None: that was not seen.
    """
    found = []
    for copy in _copies(run, key):
        if copy.pages:
            resident = sum(region.resident_bytes for region in copy.pages)
            huge = [region.huge_bytes for region in copy.pages]
            if resident and None not in huge:
                stray = sum(region.stray_bytes for region in copy.pages)
                found.append(100 * (sum(it or 0 for it in huge) + stray) / resident)
    return statistics.median(found) if found else None


def counted_features(counts: BenchmarkCounts) -> dict[str, float]:
    """Return what the counters say of address translation in a copy's run: walks, misses, hits.

    Walks are cycles in which a page walk was active; those of them that the table has.
    """
    rates = counts.rates
    if rates is None:
        return {}
    metrics = dict(counts.metrics)
    found = {}
    if _WALK_METRIC in metrics:
        found[WALKS] = metrics[_WALK_METRIC] * rates.instructions
    for name, choices in ((MISSES, _MISS_EVENTS), (HITS, _HIT_EVENTS)):
        value = _first(rates.by_event, choices)
        if value is not None:
            found[name] = value * rates.instructions
    return found


def _first(by_event: Mapping[str, float], choices: tuple[tuple[str, ...], ...]) -> float | None:
    for events in choices:
        if by_event.keys() >= set(events):
            return sum(by_event[event] for event in events)
    return None
