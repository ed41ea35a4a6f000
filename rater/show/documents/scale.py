"""Document of `rater scale --json`."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rater.analysis.results.copies import Share
from rater.analysis.stats.curves import LawScale
from rater.show.documents.common import Benchmark, Category, RunNumber
from rater.show.documents.compare import DisturbedRunJson
from rater.show.documents.plan import ConditionJson

type Runs = Annotated[list[int], "Numbers of the runs."]
type CurveConditions = Annotated[dict[str, str], "What all these runs have in common, by name."]


class CpusUsedJson(TypedDict):
    """Where the copies of a point were placed; null: not known."""

    copies: Annotated[int, "Number of copies."]
    each_has: Annotated[Share, "What of the machine a copy had for itself."]
    cores: Annotated[int | None, "Cores in use."]
    copies_per_core: Annotated[list[int] | None, "On the core with the fewest, and the most."]
    threads_per_core: Annotated[int | None, "CPUs of each used core; null too: they differ."]
    copies_per_lgroup: Annotated[list[int] | None, "On each NUMA node in use, descending."]
    cpus: Annotated[int | None, "CPUs that were given to copies."]
    machine_cpus: Annotated[int | None, "Usable CPUs of the machine."]
    machine_cores: Annotated[int | None, "Cores that these belong to."]


class RunRateJson(TypedDict):
    """The rate of one run."""

    run: Annotated[int, "Number of the run."]
    rate: Annotated[float, "Its rate, in the unit of the series."]


class ScalePointJson(TypedDict):
    """One number of copies on a curve."""

    copies: Annotated[int, "Number of copies."]
    rate: Annotated[float, "Mean rate of the runs, in the unit of the series."]
    runs: Annotated[list[RunRateJson], "Runs with their rates."]
    speedup: Annotated[float, "Rate over that of the fewest copies."]
    efficiency: Annotated[float, "Rate a copy over that of the fewest copies."]
    gain_per_copy: Annotated[
        float | None, "Rate per copy added since the last point, over the first's; null: first."
    ]
    of_linear_per_lgroup: Annotated[
        float | None, "Rate over the sum of what its NUMA nodes give alone; null: not known."
    ]
    joules_per_copy: Annotated[float | None, "Energy of a copy; null: not measured."]


class CurveNoiseJson(TypedDict):
    """How much the rates of equal runs differ."""

    sd: Annotated[float, "Standard deviation of the logarithm of a run's rate."]
    degrees_of_freedom: Annotated[int | None, "Degrees of freedom; null: assumed."]
    assumed: Annotated[bool, "true: too few runs were repeated to know it."]
    within_rounds: Annotated[bool, "true: what a round's runs have in common is not in it."]


class CoefficientJson(TypedDict):
    """A coefficient of the law."""

    value: Annotated[float, "Fitted value."]
    standard_error: Annotated[float | None, "null: at or near its bound 0; the interval tells."]
    held_at_0: Annotated[bool, "true: it is held at its bound 0."]
    interval_95: Annotated[list[float | None], "Low and high end of 95 %; null: no bound."]


class ResidualJson(TypedDict):
    """How far a measured rate is from the law."""

    copies: Annotated[int, "Number of copies."]
    share: Annotated[float, "Measured over fitted rate, less one."]


# `lambda` cannot be the name of a field in the class form of a TypedDict.
LambdaJson = TypedDict(
    "LambdaJson",
    {"lambda": Annotated[CoefficientJson, "Rate of one copy, in the unit of the series."]},
)


class UslJson(LambdaJson):
    """The Universal Scalability Law fitted to a curve."""

    fitted_to: Annotated[LawScale, "Quantity whose squared residuals are least."]
    sigma: Annotated[CoefficientJson, "Contention."]
    kappa: Annotated[CoefficientJson, "Crosstalk between each two copies."]
    degrees_of_freedom: Annotated[int, "Numbers of copies less fitted coefficients."]
    residuals: Annotated[list[ResidualJson], "By number of copies."]
    rms_share: Annotated[float, "Root mean square of the residuals."]
    largest_share: Annotated[float, "Residual that is farthest from 0."]
    describes_the_curve: Annotated[bool, "false: the residuals are too large."]
    peak_copies: Annotated[float | None, "Copies with the highest rate; null: none is known."]
    peak_interval_95: Annotated[list[float] | None, "Interval of the peak; null: no peak."]
    peak_is_extrapolated: Annotated[bool, "true: beyond the largest number of copies."]
    no_peak_before_copies: Annotated[float | None, "If there is a peak it is beyond; null: open."]
    limit_rate: Annotated[float | None, "Rate that is never reached; null: there is a peak."]


class NoLawJson(TypedDict):
    """Why the law is not fitted."""

    refused: Annotated[str, "The reason, in words."]


class SaturationJson(TypedDict):
    """A curve that is linear up to a limit, and flat from there on."""

    copies: Annotated[float, "Number of copies at which the line meets the limit."]
    rate_per_copy: Annotated[float, "Rate of one copy, in the unit of the series."]
    limit_rate: Annotated[float, "Rate that is not exceeded."]
    rms_share: Annotated[float, "Root mean square of the residuals."]


class UnjudgedPointJson(TypedDict):
    """A number of copies that nothing can be concluded from."""

    copies: Annotated[int, "Number of copies."]
    reason: Annotated[str, "Why, in words."]


class DipJson(TypedDict):
    """A number of copies that is slower than fewer and more of them."""

    copies: Annotated[int, "Number of copies."]
    fewer_copies: Annotated[int, "The point before that is better."]
    more_copies: Annotated[int, "The best later point, where a copy has no more room."]
    of_all_copies: Annotated[bool, "true: by the rate of all copies; false: by that of a copy."]


class SeriesJson(TypedDict):
    """What the curves of benchmarks and suites have."""

    category: Category
    unit: Annotated[str, "Unit of the rates: ratio or copies/hour, or by CPU time."]
    points: Annotated[list[ScalePointJson], "Points by number of copies."]
    noise: Annotated[CurveNoiseJson, "Noise of the runs."]
    knee_copies: Annotated[int | None, "Beyond it a copy adds less than half of the first's rate."]
    knee_within_noise_copies: Annotated[int | None, "Where a knee would be, but for noise."]
    plateau_from_copies: Annotated[int | None, "Beyond it a gain is excluded."]
    plateau_within_noise_copies: Annotated[
        int | None, "No gain was seen beyond it, but noise could hide one."
    ]
    highest_at_copies: Annotated[int, "Where the rate is highest."]
    falls_at_copies: Annotated[int | None, "First beyond the highest that is lower beyond noise."]
    no_knee_because: Annotated[str | None, "Why the knee is not known; null: it was looked for."]
    dips: Annotated[list[DipJson], "Points slower than their neighbours; the law leaves them out."]
    usl: Annotated[UslJson | NoLawJson, "The law, or why it is not fitted."]
    saturation: Annotated[SaturationJson | None, "What describes the curve in place of the law."]
    by_cpu_time: Annotated[bool, "true: rates are by CPU time, as others disturbed a point."]
    cannot_tell: Annotated[list[UnjudgedPointJson], "Points that nothing is concluded from."]


class SuiteSeriesJson(SeriesJson):
    """The curve of a geometric mean."""

    suite: Annotated[str, "all, int or fp."]
    over: Annotated[list[str], "Benchmarks that it is over."]


class BenchmarkSeriesJson(SeriesJson):
    """The curve of a benchmark."""

    benchmark: Benchmark


class CurveDifferenceJson(ConditionJson):
    """Something that is not alike in all runs of a curve."""

    runs: Annotated[list[int], "Runs that differ in it from the first."]


class FallWithinRunJson(TypedDict):
    """A benchmark of a run whose later iterations are slower than its first ones."""

    run: RunNumber
    copies: Annotated[int, "Number of copies of the run."]
    benchmark: Annotated[str, "Name of the benchmark."]
    iteration: Annotated[int, "The first slow iteration."]
    last_iteration: Annotated[int, "The last iteration."]
    rate_lost_share: Annotated[float, "How much lower the rate is from there on, 0 to 1."]


class CurveJson(TypedDict):
    """Runs that differ in their copies only."""

    name: Annotated[str, "What tells it from other curves; empty: it is the only one."]
    conditions: CurveConditions
    copies: Annotated[list[int], "Numbers of copies, ascending."]
    runs: Runs
    compared_at_copies: Annotated[int, "Up to so many copies each has the same of the machine."]
    limits: Annotated[list[str], "What all come to together, in words."]
    placements: Annotated[list[CpusUsedJson], "Where the copies were, by number of copies."]
    suites: Annotated[list[SuiteSeriesJson], "Geometric means."]
    benchmarks: Annotated[list[BenchmarkSeriesJson], "By benchmark."]
    differences: Annotated[list[CurveDifferenceJson], "What differs beside the copies."]
    lacking: Annotated[list[str], "What has no result, or does not count, in words."]
    disturbed: Annotated[list[DisturbedRunJson], "Runs that were disturbed."]
    falls_within_runs: Annotated[
        list[FallWithinRunJson], "Runs whose later iterations are much slower than the first."
    ]


class ExcludedRunsJson(TypedDict):
    """Runs on no curve."""

    runs: Runs
    name: Annotated[str, "What tells them from the others."]
    copies: Annotated[list[int], "Their numbers of copies, ascending."]
    reason: Annotated[str, "Why they are on no curve, in words."]


class ChangeJson(TypedDict):
    """What became of a quantity of one benchmark, or of all."""

    benchmark: Annotated[str | None, "Name of the benchmark; null: the geometric mean."]
    before: Annotated[float, "Value before."]
    after: Annotated[float, "Value after."]
    change: Annotated[float, "After over before, less one."]
    beyond_noise: Annotated[bool, "true: more than the noise of runs."]
    noise_assumed: Annotated[bool, "true: too few runs were repeated to know the noise."]


class SmtYieldJson(TypedDict):
    """What further threads of the same cores add."""

    conditions: CurveConditions
    cores: Annotated[int, "Number of cores."]
    copies_per_core: Annotated[int, "Copies on each with all threads."]
    whole_machine: Annotated[bool, "true: these are all its cores."]
    runs_one_a_core: Annotated[list[int], "Runs with one copy a core."]
    runs_all_threads: Annotated[list[int], "Runs with a copy on every thread."]
    copies_per_hour: Annotated[list[ChangeJson], "Rates; the geometric mean first."]


class OrderComparisonJson(TypedDict):
    """Rotated order beside homogeneous order at the same copies."""

    conditions: CurveConditions
    copies: Annotated[int, "Number of copies."]
    runs_homogeneous: Annotated[list[int], "Runs in homogeneous order."]
    runs_rotated: Annotated[list[int], "Runs in rotated order."]
    copy_s: Annotated[list[ChangeJson], "Times of median copies; the geometric mean first."]
    work_per_s: Annotated[ChangeJson | None, "Reference seconds per second of a whole pass."]
    scores: Annotated[ChangeJson | None, "Ratio of the suite, and rotated score."]


class ScaleDocument(TypedDict):
    """Throughput against copies."""

    curves: Annotated[list[CurveJson], "Curves."]
    on_no_curve: Annotated[list[ExcludedRunsJson], "Runs on no curve."]
    points_without_runs: Annotated[list[str], "Points that have no runs."]
    smt: Annotated[list[SmtYieldJson], "What further threads of cores add."]
    rotated_against_homogeneous: Annotated[list[OrderComparisonJson], "Orders compared."]
