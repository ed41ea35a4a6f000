"""What a run's benchmarks complete in a time, whatever its mode: for comparisons and curves; pure.

A comparison is strict: what is not complete leaves its benchmark out. A curve takes what
`rater show` gives as a result, even where something is missing beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.results.account import accounts_of, cpus_of_copies
from rater.analysis.results.cpu_use import CpuUse, run_counters
from rater.analysis.results.placement import RunProof
from rater.analysis.results.rotated import RotatedBenchmark
from rater.analysis.results.score import BenchmarkScore, Summary, summarise
from rater.analysis.results.steady import SteadyMix, SteadyRate
from rater.analysis.stats.estimate import geometric_mean
from rater.record.run import RunStatus
from rater.record.stored import PER_HOUR, RATIO, RunHead, StoredRun
from rater.text.values import copies_text, group_by_key, percent, truncate_list

type Key = tuple[str, str | None]  # benchmark and tune; tune None where all have the same

HOUR_S = 3600.0
_COARSEST_STEP_NS = 10**9  # whole seconds: that all times of a run end in a nought is chance
# Rates do not depend on where copies were seen; to judge that costs more than all the rest.
_NOT_PROVED = RunProof()


class BenchmarkRate(Struct, frozen=True):
    """One benchmark in one run."""

    benchmark: str
    tune: str | None
    category: str | None
    reference_s: float | None
    per_hour: float | None  # copies, the result of `rater show`; rotated: of their mean speed
    # What follows is of the iteration (window, ring) that stands for it, as the result is.
    run_s: float | None = None  # median time of a copy
    # Slowest copy over median copy (of several copies): 1.12 is 12 % slower; None: one copy, or
    # no such thing in this mode.
    slowest_over_median: float | None = None
    bracket_s: float | None = None  # homogeneous order
    joules_per_copy: float | None = None  # None: not known, or not a copy's of one benchmark
    copies: int | None = None  # that the result is of, where that is not all of the run's
    reason: str | None = None  # what is missing, in words; may stand beside a result
    # As `per_hour`, by CPU time instead of time; None: that cannot stand for it, and why.
    cpu_per_hour: float | None = None
    not_by_cpu: str | None = None
    others_took: float | None = None  # share of the time that its copies waited for others

    @property
    def ratio(self) -> float | None:
        """The result against the reference machine: copies x reference / time."""
        if self.per_hour is None or not self.reference_s:
            return None
        return self.per_hour * self.reference_s / HOUR_S


BRACKETS = "brackets"  # a kind of rates
MEAN = "geomean"  # what stands over the rate of a point, in every view


def mean_rate(rates: Sequence[float | None]) -> float | None:
    """Return the one rate of a point: the geometric mean over its runs; None where one has none.

    A run's own is its result (`rater show`: of iterations the median, of two the slower one).
    """
    return geometric_mean([rate or 0.0 for rate in rates])


def benchmark_rates(summary: Summary) -> tuple[BenchmarkRate, ...]:
    """Return the rates of a run's benchmarks, also of those that have no result."""
    head = summary.head
    if summary.rotated is not None:
        in_ratios = summary.rotated.unit == RATIO
        return tuple(_of_ring(one, head.tune, in_ratios) for one in summary.rotated.benchmarks)
    if summary.mix is not None:
        chosen = summary.mix.selected
        found = chosen.benchmarks if chosen else ()
        return tuple(_of_windows(one, head.tune, summary.mix) for one in found)
    return tuple(_of_brackets(one, head) for one in summary.benchmarks)


def _of_brackets(score: BenchmarkScore, head: RunHead) -> BenchmarkRate:
    chosen = next((it for it in score.iterations if it.selected), None)
    # A result file need not have times of all copies, nor say how many there were.
    untold = [
        it.copies for it in score.iterations if it.reported is None or it.reported.copies is None
    ]
    fewest = min(untold, default=head.copies) if head.source == "import" else head.copies
    reason = score.reason
    if reason is None and fewest < head.copies:
        reason = f"times of {fewest} of {head.copies} copies only"
    identity = (score.benchmark, score.tune, score.category, score.reference_s)
    if chosen is None:
        return BenchmarkRate(*identity, None, reason=reason or "no counted iteration")
    median_s, slowest = chosen.median_copy_s, chosen.slowest
    return BenchmarkRate(
        *(*identity, score.per_hour, median_s),
        slowest.elapsed_s / median_s if slowest and median_s and chosen.good > 1 else None,
        chosen.bracket_s,
        chosen.joules_per_copy,
        chosen.copies if chosen.copies != head.copies else None,
        reason,
    )


def _of_ring(score: RotatedBenchmark, tune: str | None, in_ratios: bool) -> BenchmarkRate:
    rates, times = score.rates, score.times_s
    identity = (score.benchmark, tune, score.category, score.reference_s)
    if rates is None or times is None:
        return BenchmarkRate(*identity, None, reason=score.reason or "no result")
    per_hour = rates.mean / ((score.reference_s if in_ratios else None) or HOUR_S) * HOUR_S
    slowest = times.maximum / times.median if times.count > 1 else None
    return BenchmarkRate(*identity, per_hour, times.median, slowest)


def _of_windows(rate: SteadyRate, tune: str | None, mix: SteadyMix) -> BenchmarkRate:
    return BenchmarkRate(
        *(rate.benchmark, tune, rate.category, rate.reference_s, rate.per_hour, rate.median_run_s),
        reason=mix.reason or (None if rate.per_hour else "no result"),
    )


# -- for comparisons ---------------------------------------------------------------------------


class RunRates(Struct, frozen=True):
    """All benchmarks of a run that have a valid result."""

    run: int
    block: int | None
    copies: int
    rates: dict[Key, BenchmarkRate]
    score: float | None  # of rotated order: the mean of the copies' geometric means
    kind: str  # what its rates are: "brackets", "copies' own times", "completions in a window"
    left_out: tuple[str, ...]  # what does not count, and why, in words
    step_s: float  # that all its times are multiples of
    repeated: frozenset[Key] = frozenset()  # of rates: those of another tune's measurement again
    place: int | None = None  # among compared runs, in the order they were made in; None: not known
    session: int = 0  # of those, parted by an hour in which none was made
    taken: bool = False  # others took too much of it for a comparison

    def step(self, key: Key) -> float:
        """Return how coarse a benchmark's time is recorded, as a logarithm."""
        rate = self.rates[key]
        time_s = rate.bracket_s or rate.run_s or HOUR_S / (rate.per_hour or math.inf)
        return math.log1p(self.step_s / time_s)


def run_rates(run: StoredRun, block: int | None) -> RunRates:
    """Return what a run says; failed copies and what did not finish leave their benchmark out."""
    summary = summarise(run, _NOT_PROVED)
    head, mix = run.head, summary.mix
    every = () if mix and mix.reason else benchmark_rates(summary)
    found = {(one.benchmark, one.tune): one for one in every if one.reason is None}
    left_out = [f"{one.benchmark}: {one.reason}" for one in every if one.reason and not mix]
    if mix and mix.reason:
        left_out = [f"the windows: {mix.reason}"]
    if head.status is not RunStatus.COMPLETE:
        reason = f" ({head.reason})" if head.reason else ""
        kept = "what it finished counts" if found else "nothing of it counts"
        left_out.insert(0, f"{head.status.reported}{reason}, {kept}")
    left_out += [f"{name}: left out: {why}" for name, why in summary.left_out]
    kind = "copies' own times" if summary.rotated is not None else BRACKETS
    return RunRates(
        *(head.run, block, head.copies, found, summary.rotated.score if summary.rotated else None),
        "completions in a window" if summary.steady else kind,
        tuple(left_out),
        _clock_step_s(run),
        _repeated(run),
    )


def _repeated(run: StoredRun) -> frozenset[Key]:
    """Return what counts as another tune of a benchmark as well (base as peak), that one first."""
    times = group_by_key(
        ((it.benchmark, it.tune), (it.iteration, it.copy, it.elapsed_ns)) for it in run.copies
    )
    first: dict[tuple[str, tuple[tuple[int, int, int], ...]], Key] = {}
    every = ((key, first.setdefault((key[0], tuple(own)), key)) for key, own in times.items())
    return frozenset(key for key, measured in every if key != measured)


def _clock_step_s(run: StoredRun) -> float:
    """Return the step of recorded times: 1 ns of rater's own, more where files have few digits."""
    step_ns = 1 if run.head.source == "run" else _COARSEST_STEP_NS
    while step_ns > 1 and any(copy.elapsed_ns % step_ns for copy in run.copies):
        step_ns //= 10
    return step_ns * 1e-9


def same_keys(runs: Sequence[RunRates]) -> list[RunRates]:
    """Return the runs with tunes left out of the keys, where no run has several.

    Base in one run is compared with peak in another; a result file can hold both.
    """
    if any(len({tune for _, tune in run.rates}) > 1 for run in runs):
        return list(runs)
    return [
        replace(run, rates={(key[0], None): it for key, it in run.rates.items()}) for run in runs
    ]


# -- by CPU time -------------------------------------------------------------------------------
#
# Who is bound by CPU and has a core for itself needs the same CPU time whoever else runs there.
# What sleeps does not: what changed may be in its sleep. Nor do the threads of a core: what one
# gets depends on what the other does. Nor do several threads of a copy: they may wait by working.

_MOST_ASLEEP = 0.02  # of a copy's time
_IDLE = 0.05  # of its time, a thread beside a copy's is nearly so


def with_cpu_times(rates: RunRates, run: StoredRun) -> RunRates:
    """Return what a run says with its benchmarks' rates by CPU time, or why there are none."""
    run = run.without_torn()
    spent, counters = accounts_of(run), run_counters(run)
    shared = _beside_busy_threads(run, counters.cpus)
    whole = {bracket.phase for bracket in run.brackets if bracket.complete}
    counted = [it for it in run.copies if it.counted and it.phase in whole and it.elapsed_ns > 0]
    copies = group_by_key(((it.benchmark, it.tune), it) for it in counted)
    threads = {used.name for used in run.benchmarks if used.threads > 1}

    def measured(rate: BenchmarkRate) -> BenchmarkRate:
        own = copies.get((rate.benchmark, rate.tune), ())
        accounts = [spent[it.phase, it.copy, it.step] for it in own]
        waits = [it.waited_s / it.elapsed_s for it in accounts if it.waited_s is not None]
        idle = [((it.slept_s or 0) + (it.stopped_s or 0)) / it.elapsed_s for it in accounts]
        asleep = max(idle, default=0.0)
        reason = None
        if rates.kind != BRACKETS:
            reason = "not all of its copies start together"
        elif len(waits) < len(own) or not own:
            reason = "it is not known how long copies waited for a CPU"
        elif rate.benchmark in threads:
            reason = "its copies have several threads"
        elif asleep > _MOST_ASLEEP:
            reason = f"copies slept {percent(asleep, 0)} % of the time"
        elif any(it.phase in shared for it in own):
            reason = "a CPU was shared with another thread of its core"
        if reason is not None:
            return replace(rate, not_by_cpu=reason)
        longest = [
            max(it.cpu_ns or 0 for it in cell) / 1e9
            for cell in group_by_key((it.phase, it) for it in own).values()
        ]
        time_s = sorted(longest)[len(longest) // 2]  # of three the median, of two the slower
        return replace(
            rate,
            cpu_per_hour=(rate.copies or rates.copies) * HOUR_S / time_s if time_s else None,
            others_took=sum(waits) / len(waits),
        )

    return replace(rates, rates={key: measured(rate) for key, rate in rates.rates.items()})


def _beside_busy_threads(run: StoredRun, uses: Sequence[CpuUse]) -> set[int]:
    """Return the phases in which a copy may have shared its core with another thread."""
    where = cpus_of_copies(run)
    cores = group_by_key((pu.core, pu.cpu) for pu in run.pus)
    beside = {cpu: set(of) - {cpu} for of in cores.values() for cpu in of}
    busy = {(it.phase, it.cpu) for it in uses if it.busy > _IDLE}
    read = {it.phase for it in uses}
    return {
        phase
        for (phase, *_), cpus in where.items()
        for cpu in (beside if cpus is None else cpus)
        if beside.get(cpu) and (phase not in read or any((phase, it) in busy for it in beside[cpu]))
    }


# -- for curves --------------------------------------------------------------------------------


class TuneRates(Struct, frozen=True):
    """The results of one run under one tune."""

    tune: str | None
    rates: dict[str, BenchmarkRate]  # by benchmark, in the run's order; those with a result
    lacking: tuple[str, ...]  # what has no result and why, in words
    score: float | None = None  # rotated order: mean of the copies' geometric means
    work_rate: float | None = None  # rotated order: reference seconds per second, to the very end

    def over(self, benchmarks: Sequence[str], *, by_ratio: bool) -> float | None:
        """Return the geometric mean over some benchmarks, None where one has no rate.

        Rotated, over all of them: the score that `rater show` gives.
        """
        if self.score is not None and by_ratio and set(benchmarks) == set(self.rates):
            return self.score
        found = [self.rates.get(name) for name in benchmarks]
        values = [one and (one.ratio if by_ratio else one.per_hour) for one in found]
        return geometric_mean([value or 0.0 for value in values])

    def joules_over(self, benchmarks: Sequence[str]) -> float | None:
        """Return the energy of a copy of each of them, added up; None where one is not known."""
        found = [self.rates[name].joules_per_copy for name in benchmarks if name in self.rates]
        known = [joules for joules in found if joules is not None]
        return sum(known) if len(known) == len(benchmarks) else None


def tune_rates(run: StoredRun) -> tuple[TuneRates, ...]:
    """Return the results of a run, for each tune in it (an imported result can have two)."""
    summary = summarise(run, _NOT_PROVED)
    head, rotated = summary.head, summary.rotated
    every = benchmark_rates(summary)
    if head.order != "rotated":
        tunes = dict.fromkeys(one.tune for one in every)
        return tuple(_of_tune(head, tune, [o for o in every if o.tune == tune]) for tune in tunes)
    seen = len({copy.copy for copy in run.copies})
    if head.source == "import" and seen < head.copies:
        return (TuneRates(head.tune, {}, (_times_of(seen, head, head.benchmarks),)),)
    rates = {one.benchmark: one for one in every if one.per_hour}
    reasons = {one.benchmark: one.reason for one in every} if rotated else {}
    names = reasons or head.benchmarks
    lacking = [f"{n}: {reasons.get(n) or 'no result'}" for n in names if n not in rates]
    return (
        TuneRates(
            head.tune,
            rates,
            tuple(lacking),
            rotated.score if rotated and rotated.unit == RATIO else None,
            rotated.work_rate if rotated else None,
        ),
    )


def _of_tune(head: RunHead, tune: str | None, every: Sequence[BenchmarkRate]) -> TuneRates:
    lacking = [f"{one.benchmark}: {one.reason or 'no result'}" for one in every if not one.per_hour]
    others: dict[int, list[str]] = {}
    for one in every:
        if one.per_hour and one.copies is not None:  # an imported file has not all of them
            others.setdefault(one.copies, []).append(one.benchmark)
    lacking += [_times_of(copies, head, names) for copies, names in others.items()]
    rates = {one.benchmark: one for one in every if one.per_hour and one.copies is None}
    return TuneRates(tune, rates, tuple(lacking))


def _times_of(found: int, head: RunHead, names: Sequence[str]) -> str:
    of = f"{found} of {copies_text(head.copies)}"
    return f"{truncate_list(names)}: no result, times of {of} only"


# -- for sweeps --------------------------------------------------------------------------------


class Overall(Struct, frozen=True):
    """The one number of a run, larger is better."""

    value: float
    unit: str  # RATIO, or PER_HOUR where a reference time is missing


def overall(run: StoredRun) -> Overall | None:
    """Return the suite's ratio, else the geometric mean of the benchmarks' copies an hour.

    Of rotated order the mean of the copies' geometric means. None where a benchmark has no
    valid result: the number would be that of another selection.
    """
    summary = summarise(run, _NOT_PROVED)
    value, unit = None, RATIO
    if summary.rotated is not None:
        value, unit = summary.rotated.score, summary.rotated.unit
    elif summary.mix is not None:
        window = summary.mix.selected
        if window is not None:
            by_ratio = window.ratio is not None
            value, unit = (window.ratio, RATIO) if by_ratio else (window.per_hour, PER_HOUR)
    elif any(it.reference_s for it in summary.benchmarks):
        ratios = [suite.ratio for suite in summary.suites if suite.kind == "all"]
        value = next((ratio for ratio in ratios if ratio is not None), None)
    elif not any(it.reason or not it.per_hour for it in summary.benchmarks):
        value, unit = geometric_mean([it.per_hour or 0.0 for it in summary.benchmarks]), PER_HOUR
    return None if value is None else Overall(value, unit)
