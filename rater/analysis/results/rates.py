"""Which results of a run comparisons, curves and models stand on: one policy for all; pure.

What is not complete leaves its benchmark out, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.results.cpu_time import CpuTimeRule
from rater.analysis.results.placement import RunProof
from rater.analysis.results.result import BenchmarkScore, Missing, Result, benchmarks_left_out
from rater.analysis.results.score import Overall, run_results, summarise
from rater.analysis.results.steady import is_steady
from rater.analysis.stats.estimate import geometric_mean
from rater.record.run import RunStatus
from rater.record.stored import RunHead, StoredRun
from rater.text.values import group_by_key

type Key = tuple[str, str | None]  # benchmark and tune; without a tune when all have the same

_COARSEST_STEP_NS = 10**9  # whole seconds: that all times of a run end in a nought is chance
_STEP_BY_CHANCE = 0.05  # probability that times look rounded though they are not
# Rates do not depend on where copies were seen; to judge that costs more than all the rest.
_NOT_PROVED = RunProof()


BRACKETS = "brackets"  # a kind of rates
MEAN = "geomean"  # what stands over the rate of a point, in every view


def mean_rate(rates: Sequence[float | None]) -> float | None:
    """Return the one rate of a point, the geometric mean over its runs; None: a run has no rate.

    A run's own is its result (`rater show`: of iterations the median, of two the slower one).
    """
    return geometric_mean([rate or 0.0 for rate in rates])


def _why_left_out(score: BenchmarkScore, head: RunHead) -> str | None:
    """Return why a benchmark is left out of comparisons and curves, if it is."""
    if score.reason is not None:
        return score.reason
    # A result file need not have times of all copies, nor say how many there were.
    counts_of_times = [
        iteration.copies
        for iteration in score.iterations
        if iteration.reported is None or iteration.reported.copies is None
    ]
    fewest = min(counts_of_times, default=head.copies)
    if head.source == "import" and head.order != "rotated" and fewest < head.copies:
        return Missing.SOME_TIMES.describe(done=fewest, of=head.copies)
    if score.chosen:
        return None
    counted = any(iteration.counted for iteration in score.iterations)
    return Missing.NO_RESULT if counted else Missing.NOT_COUNTED


# -- for comparisons ---------------------------------------------------------------------------


class RunRates(Struct, frozen=True, kw_only=True):
    """All benchmarks of a run that have a valid result."""

    run: int
    block: int | None
    copies: int
    rates: dict[Key, Result]
    score: float | None  # of rotated order: the mean of the copies' geometric means
    work_rate: float | None  # the same: reference seconds per second, to the very end
    kind: str  # what its rates are: "brackets", "copies' own times", "completions in a window"
    left_out: tuple[str, ...]  # what does not count, and why, in words
    step_s: float  # that all its times are multiples of
    times: int = 0  # different ones that show the step; of few a coarse step may be chance
    repeated: frozenset[Key] = frozenset()  # of rates: those of another tune's measurement again
    place: int | None = None  # among compared runs, in the order they were made in; None: not known
    session: int = 0  # of those, parted by an hour in which none was made
    taken: bool = False  # others took too much of it for a comparison

    def step(self, key: Key) -> float:
        """Return how coarse a benchmark's time, or measure, is recorded, as a logarithm."""
        rate = self.rates[key]
        if rate.measured is not None:
            return math.log1p(rate.measured.step / abs(rate.measured.value or math.inf))
        time_s = rate.bracket_s or rate.median_copy_s or 1 / (rate.per_s or math.inf)
        return math.log1p(self.step_s / time_s)


def run_rates(run: StoredRun, block: int | None) -> RunRates:
    """Return what a run says; failed copies and what did not finish leave their benchmark out."""
    results = run_results(run.without_torn())
    head, mix = run.head, results.mix
    scores = () if mix and mix.reason else results.scores
    rates = {
        (score.benchmark, score.tune): score.chosen
        for score in scores
        if score.chosen and _why_left_out(score, head) is None
    }
    left_out = [
        f"{score.benchmark}: {why}" for score in scores if (why := _why_left_out(score, head))
    ]
    if mix and mix.reason:
        left_out = [f"the windows: {mix.reason}"]
    if head.status is not RunStatus.COMPLETE:
        reason = f" ({head.reason})" if head.reason else ""
        kept = "what it finished counts" if rates else "nothing of it counts"
        left_out.insert(0, f"{head.status.reported}{reason}, {kept}")
    left_out += [f"{name}: left out: {why}" for name, why in benchmarks_left_out(run.warnings)]
    ring = results.rotated
    kind = "copies' own times" if ring is not None else BRACKETS
    return RunRates(
        run=head.run,
        block=block,
        copies=head.copies,
        rates=rates,
        score=ring.score if ring else None,
        work_rate=ring.work_rate if ring else None,
        kind="completions in a window" if is_steady(head) else kind,
        left_out=tuple(left_out),
        step_s=_clock_step_s(run),
        times=len({copy.elapsed_ns for copy in run.copies}),
        repeated=_repeated(run),
    )


def _repeated(run: StoredRun) -> frozenset[Key]:
    """Return what counts as another tune of a benchmark as well (base as peak), that one first."""
    if len({copy.tune for copy in run.copies}) < 2:
        return frozenset()
    times = group_by_key(
        ((copy.benchmark, copy.tune), (copy.iteration, copy.copy, copy.elapsed_ns))
        for copy in run.copies
    )
    first: dict[tuple[str, tuple[tuple[int, int, int], ...]], Key] = {}
    first_keys = (
        (key, first.setdefault((key[0], tuple(measured_times)), key))
        for key, measured_times in times.items()
    )
    return frozenset(key for key, measured in first_keys if key != measured)


def _clock_step_s(run: StoredRun) -> float:
    """Return the step of recorded times: 1 ns of rater's own, more where files have few digits."""
    step_ns = 1 if run.head.source == "run" else _COARSEST_STEP_NS
    while step_ns > 1 and any(copy.elapsed_ns % step_ns for copy in run.copies):
        step_ns //= 10
    return step_ns * 1e-9


def with_shared_steps(runs: Sequence[RunRates]) -> list[RunRates]:
    """Return the runs, each with a step of its times that is no chance.

    A time of hundredths ends in two noughts one time in a hundred: k different times of one run all
    do by chance with 10^-k a digit. Where that is likely among so many runs, the finest step of all
    of them stands.
    """
    finest_s = min((run.step_s for run in runs), default=0.0)
    return [
        replace(run, step_s=finest_s) if len(runs) * 10.0**-run.times > _STEP_BY_CHANCE else run
        for run in runs
    ]


def same_keys(runs: Sequence[RunRates]) -> list[RunRates]:
    """Return the runs with tunes left out of the keys, where no run has several.

    Base in one run is compared with peak in another; a result file can hold both.
    """
    if any(len({tune for _, tune in run.rates}) > 1 for run in runs):
        return list(runs)
    return [
        replace(run, rates={(name, None): result for (name, _), result in run.rates.items()})
        for run in runs
    ]


# -- by CPU time -------------------------------------------------------------------------------


def with_cpu_times(rates: RunRates, run: StoredRun) -> RunRates:
    """Return what a run says with its benchmarks' rates by CPU time, or why there are none."""
    rule = CpuTimeRule(run)

    def by_cpu(rate: Result) -> Result:
        key = (rate.benchmark, rate.tune)
        times = rule.times(key)
        if times is None:
            return replace(rate, not_by_cpu=rule.why_not(key))
        return replace(
            rate,
            cpu_per_s=rate.copies / times.longest_s if times.longest_s else None,
            others_took=times.others_took,
        )

    return replace(rates, rates={key: by_cpu(rate) for key, rate in rates.rates.items()})


# -- for curves --------------------------------------------------------------------------------


class TuneRates(Struct, frozen=True, kw_only=True):
    """The results of one run under one tune."""

    tune: str | None
    rates: dict[str, Result]  # by benchmark, in the run's order; those with a result
    lacking: tuple[str, ...]  # what has no result and why, in words
    score: float | None = None  # rotated order: mean of the copies' geometric means
    work_rate: float | None = None  # rotated order: reference seconds per second, to the very end

    def over(
        self, benchmarks: Sequence[str], *, by_ratio: bool, by_cpu: bool = False
    ) -> float | None:
        """Return the geometric mean over some benchmarks; None: one of them has no rate.

        Rotated, over all of them: the score that `rater show` gives. `by_cpu`: by CPU time. Where
        a metric is the measure, what all copies report of it.
        """
        measured = [self.rates[name].measured for name in benchmarks if name in self.rates]
        if any(measured):
            throughputs = [value.throughput or 0.0 if value else 0.0 for value in measured]
            return geometric_mean(throughputs) if len(measured) == len(benchmarks) else None
        if by_cpu:
            judged = [self.rates.get(name) for name in benchmarks]
            values = [one and (one.cpu_ratio if by_ratio else one.per_cpu_hour) for one in judged]
            return geometric_mean([value or 0.0 for value in values])
        if self.score is not None and by_ratio and set(benchmarks) == set(self.rates):
            return self.score
        results = [self.rates.get(name) for name in benchmarks]
        values = [result and (result.ratio if by_ratio else result.per_hour) for result in results]
        return geometric_mean([value or 0.0 for value in values])

    def joules_over(self, benchmarks: Sequence[str]) -> float | None:
        """Return the energy of a copy of each benchmark, added up; None: one is not known."""
        joules_of_copies = [
            self.rates[name].joules_per_copy for name in benchmarks if name in self.rates
        ]
        known_joules = [joules for joules in joules_of_copies if joules is not None]
        return sum(known_joules) if len(known_joules) == len(benchmarks) else None


def tune_rates(run: StoredRun, *, by_cpu: bool = False) -> tuple[TuneRates, ...]:
    """Return the results of a run, for each tune in it (an imported result can have two).

    `by_cpu`: with their rates by CPU time, or why there are none.
    """
    rates, head = run_rates(run, None), run.head
    rates = with_cpu_times(rates, run) if by_cpu else rates
    whole, lacking = dict[Key, Result](), list(rates.left_out)
    for key, result in rates.rates.items():
        if head.order == "rotated" or result.copies == head.copies:
            whole[key] = result
        else:  # a file may say that so many ran
            reason = Missing.SOME_TIMES.describe(done=result.copies, of=head.copies)
            lacking.append(f"{result.benchmark}: {reason}")
    return tuple(
        TuneRates(
            tune=tune,
            rates={
                name: result for (name, rate_tune), result in whole.items() if rate_tune == tune
            },
            lacking=() if place else tuple(lacking),
            score=rates.score,
            work_rate=rates.work_rate,
        )
        for place, tune in enumerate(
            dict.fromkeys(rate_tune for _, rate_tune in whole) or {head.tune: None}
        )
    )


def overall(run: StoredRun) -> Overall | None:
    """Return the one number of a run."""
    return summarise(run, _NOT_PROVED).overall
