"""A number that programs report, as the measure of comparisons and curves; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.results.copies import in_window
from rater.analysis.results.metrics import MetricResult, metric_results
from rater.analysis.results.rates import RunRates, TuneRates
from rater.analysis.results.result import MeasuredValue, Result
from rater.record.events import CopyEnded
from rater.record.run import INSTRUCTIONS, MetricUsed
from rater.record.stored import StoredRun, is_good
from rater.system.errors import InputError
from rater.text.documents import did_you_mean
from rater.text.values import group_by_key, percent

# What is compared is a *merit*, which rises as things get better: the value where higher is
# better, its inverse where lower is. So a ratio above 1 is better, of a bandwidth as of a latency,
# and verdicts, gates and charts need not know of what. Beside it stand the values themselves.


_STEADY_COUNTS = 0.005  # share by which counts of equal runs differ: less is the start of a process
_LARGEST = 1e30  # of a copy's value: beyond, differences and ratios leave what a double holds
_NO_TIME = "it is of what copies report"  # why CPU time cannot stand for it


class Better(StrEnum):
    """Which direction of a number is better."""

    HIGHER = "higher"
    LOWER = "lower"


class MetricMeasure(Struct, frozen=True, kw_only=True):
    """A metric that judges in place of the time that copies take."""

    name: str
    unit: str
    better: Better
    # Whether work of others changes it, as it changes all that is taken from a clock. It does not
    # change a count of instructions.
    is_disturbable: bool = True

    @property
    def title(self) -> str:
        """Its name with the unit, as in `bandwidth (MB/s)`."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def merit(self, value: float) -> float | None:
        """Return what rises as a value gets better; None: of a value that is not above 0."""
        if value <= 0:
            return None
        return value if self.better is Better.HIGHER else 1 / value


def measures_of(runs: Iterable[StoredRun]) -> tuple[MetricMeasure, ...]:
    """Return the metrics that runs report and that are better in one direction, each name once."""
    return _measures_among(_metrics_of(runs))


def _metrics_of(runs: Iterable[StoredRun], benchmark: str | None = None) -> list[MetricUsed]:
    return [
        metric
        for run in runs
        for used in run.benchmarks
        if benchmark in (None, used.name)
        for metric in used.metrics
    ]


def _measures_among(metrics: Iterable[MetricUsed]) -> tuple[MetricMeasure, ...]:
    """Return those metrics that are better in one direction, each name once.

    A name that stands for different units or directions is none: its values are not comparable.
    """
    kinds_by_name: dict[str, set[tuple[str, str | None, str]]] = {}
    for metric in metrics:
        kinds_by_name.setdefault(metric.name, set()).add(
            (metric.unit, metric.better, metric.combine)
        )
    return tuple(
        MetricMeasure(
            name=name,
            unit=unit,
            better=Better(better),
            is_disturbable=name != INSTRUCTIONS or not unit,
        )
        for name, kinds in kinds_by_name.items()
        if len(kinds) == 1
        for unit, better, _ in kinds
        if better is not None
    )


def find_measure(name: str, runs: Iterable[StoredRun]) -> MetricMeasure:
    """Return the metric of a name as a measure; raises `InputError` where it cannot be one."""
    return find_measure_among(name, _metrics_of(runs))


def find_measure_among(name: str, metrics: Sequence[MetricUsed]) -> MetricMeasure:
    """Return the one of these metrics that has a name; raises `InputError` if it is no measure."""
    measures = {measure.name: measure for measure in _measures_among(metrics)}
    if name in measures:
        return measures[name]
    reported = {metric.name for metric in metrics}
    sources = {metric.unit for metric in metrics if metric.name == name == INSTRUCTIONS}
    if len(sources) > 1:
        raise InputError(
            f"--by {name}: counted by {' and by '.join(sorted(sources))}, which do not count "
            "alike; compare runs of one source and version"
        )
    if name in reported:
        raise InputError(
            f"--by {name}: it is not declared alike in all runs whether higher or lower is better; "
            f"give unit and direction when you run it, as in --metric '{name} MB/s higher: PATTERN'"
        )
    hint = f"; {did_you_mean(name, sorted(measures))}" if measures else ""
    raise InputError(f"--by {name}: neither an axis of all points nor a metric of these runs{hint}")


def with_measure(rates: RunRates, run: StoredRun, measure: MetricMeasure) -> RunRates:
    """Return what a run says of a measure; a benchmark that does not report it is left out."""
    measured, lacking = _measured_results(rates.rates, run, measure)
    left_out = (*rates.left_out, *lacking)
    return replace(rates, rates=measured, left_out=left_out, score=None, work_rate=None)


def tune_with_measure(rates: TuneRates, run: StoredRun, measure: MetricMeasure) -> TuneRates:
    """Return the results of a tune with the values of a measure, as `with_measure` does."""
    measured, lacking = _measured_results(rates.rates, run, measure)
    left_out = (*rates.lacking, *lacking)
    return replace(rates, rates=measured, lacking=left_out, score=None, work_rate=None)


def _measured_results[K](
    results: Mapping[K, Result], run: StoredRun, measure: MetricMeasure
) -> tuple[dict[K, Result], list[str]]:
    """Return the results that report a measure, with its values, and why others do not."""
    by_benchmark = {
        result.benchmark: result for result in metric_results(run) if result.name == measure.name
    }
    measured: dict[K, Result] = {}
    lacking = []
    for key, rate in results.items():
        metric = by_benchmark.get(rate.benchmark)
        value = None if metric is None else _measured(metric, measure)
        if value is None:
            reason = "it is not reported" if metric is None or not metric.reason else metric.reason
            lacking.append(f"{rate.benchmark}: no {measure.name}: {reason}")
        else:
            measured[key] = replace(rate, measured=value, not_by_cpu=_NO_TIME)
    return measured, lacking


def _measured(result: MetricResult, measure: MetricMeasure) -> MeasuredValue | None:
    if result.value is None or not result.copies:
        return None
    of_copy = result.value / result.copies if result.combine == "sum" else result.value
    merit = measure.merit(of_copy)
    return MeasuredValue(
        value=result.value,
        merit=measure.merit(result.value),
        throughput=None if merit is None else merit * result.copies,
        step=0.0 if measure.is_disturbable else 1.0,  # counts are whole numbers
    )


def varying_counts(
    measure: MetricMeasure | None, runs_by_side: Mapping[str, Sequence[StoredRun]]
) -> Iterator[str]:
    """Yield a sentence for each benchmark whose counts differ between equal runs of a side.

    The spread of the counts is in the interval; the sentence says why it is there.
    """
    if measure is None or measure.is_disturbable:
        return
    largest: dict[str, float] = {}
    for runs in runs_by_side.values():
        counts = group_by_key(
            (copy.benchmark, value)
            for run in runs
            for copy in run.copies
            for name, value in copy.metrics
            if name == measure.name and copy.counted and value > 0
        )
        for benchmark, values in counts.items():
            spread = (max(values) - min(values)) / median(values)
            largest[benchmark] = max(spread, largest.get(benchmark, 0.0))
    for benchmark, spread in largest.items():
        if spread > _STEADY_COUNTS:
            yield (
                f"{benchmark}: {measure.name} of equal runs differ by {percent(spread)} % (hash "
                "seeds, a JIT or threads do that): judged with that spread"
            )


def unit_of_throughput(measure: MetricMeasure) -> str:
    """Return the unit of a curve: of all copies together, as many as there are."""
    if measure.better is Better.HIGHER:
        return measure.unit or measure.name
    return f"1/{measure.unit}" if measure.unit else f"1/{measure.name}"


# -- The value of each copy ------------------------------------------------------------------------

type CopyKey = tuple[str, str | None, int, int]  # benchmark, tune, iteration, copy
type ValueOfRun = Callable[[CopyEnded], float | None]


def value_reported(name: str) -> ValueOfRun:
    """Return what tells the value of a metric that a copy reported."""
    return lambda row: dict(row.metrics).get(name)


def copy_values(run: StoredRun, value_of: ValueOfRun) -> dict[CopyKey, tuple[float, ...]]:
    """Return the values of a run's copies: those of the runs of each that ended well and count.

    A copy without a value is not in it, nor one whose value is too large or too small to be drawn
    or divided.
    """
    run = run.without_torn()
    brackets = {bracket.phase: bracket for bracket in run.brackets}
    values = group_by_key(
        ((row.benchmark, row.tune, row.iteration, row.copy), value)
        for row in run.copies
        if is_good(row) and in_window(run, row, brackets)
        if (value := value_of(row)) is not None
        if not value or 1 / _LARGEST <= abs(value) <= _LARGEST
    )
    return {key: tuple(of_copy) for key, of_copy in values.items()}


def declared_metric(
    name: str, runs: Sequence[StoredRun], benchmark: str | None = None
) -> MetricUsed:
    """Return the metric of a name as runs declare it; raises `InputError` where they do not.

    It need not be better in one direction, as it must be to judge. `benchmark`: of this one alone.
    """
    metrics = _metrics_of(runs, benchmark)
    kinds = {metric for metric in metrics if metric.name == name}
    if len(kinds) == 1:
        return kinds.pop()
    numbers = " and ".join(f"run {run.head.run}" for run in runs)
    if kinds:
        units = ", ".join(sorted({metric.unit or "no unit" for metric in kinds}))
        raise InputError(
            f"--by {name}: it is declared with different units or directions ({units}) in "
            f"{numbers}; --benchmark names one of them"
        )
    names = sorted({metric.name for metric in metrics})
    has = f"its copies report {', '.join(names)}" if names else "its copies report no metric"
    raise InputError(f"--by {name}: no metric of {numbers}; expected cpu, or a metric ({has})")
