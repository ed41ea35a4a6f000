"""What one run says that can be compared with another: rates, median copies, slow copies; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rater.analysis.placement.proof import RunProof
from rater.analysis.results.model import BenchmarkScore, IterationScore, Summary
from rater.analysis.results.rotated import RotatedScore
from rater.analysis.results.score import summarise
from rater.analysis.results.steady import SteadyMix
from rater.analysis.stats.descriptive import lower_median_index
from rater.record.status import RunStatus
from rater.record.stored import RunHead, StoredRun

type Key = tuple[str, str | None]  # benchmark and tune; tune None where all have the same

_HOUR_S = 3600.0
_NS = 1e-9
_COARSEST_STEP_NS = 10**9  # whole seconds: that all times of a run end in a nought is chance
# Where copies were seen does not matter here, and it takes long to work out.
_NO_PROOF = RunProof((), (), None)


@dataclass(frozen=True, slots=True)
class Sample:
    """One counted iteration of a benchmark (or window, or of rotated order all of a run)."""

    per_hour: float  # copies an hour: copies / bracket, the rate of the window, ...
    median_copy_s: float | None
    # Slowest copy over median copy (of several copies): 1.12 is 12 % slower; None: one copy, or
    # no such thing in this mode.
    slowest_over_median: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """A benchmark in one run."""

    category: str | None
    reference_s: float | None
    samples: tuple[Sample, ...]  # at least one
    step: float  # the least step of the run's recorded times, of this benchmark's shortest one

    @property
    def per_hour(self) -> float:
        """The result that `rater show` gives: of three iterations the median, of two the slower."""
        rates = [sample.per_hour for sample in self.samples]
        return rates[lower_median_index(rates)]


@dataclass(frozen=True, slots=True)
class RunMeasures:
    """All benchmarks of a run that have a valid result."""

    run: int
    block: int | None
    copies: int
    benchmarks: dict[Key, Measured]
    score: float | None  # of rotated order: the mean of the copies' geometric means
    kind: str  # what its rates are: "brackets", "copies' own times", "completions in a window"
    left_out: tuple[str, ...]  # what does not count, and why, in words


def measure(run: StoredRun, block: int | None) -> RunMeasures:
    """Return what a run says; failed copies and what did not finish leave their benchmark out."""
    summary = summarise(run, _NO_PROOF)
    if summary.rotated is not None:
        found, missing = _rotated(summary.rotated, run)
    elif summary.mix is not None:
        found, missing = _mixed(summary.mix, run)
    else:
        found, missing = _bracketed(summary, run)
    head = run.head
    left_out = [f"{name}: {reason}" for name, reason in missing]
    if head.status is not RunStatus.COMPLETE:
        reason = f" ({head.reason})" if head.reason else ""
        kept = "what it finished counts" if found else "nothing of it counts"
        left_out.insert(0, f"{head.status.reported}{reason}, {kept}")
    left_out += [f"{name}: left out: {why}" for name, why in summary.left_out]
    return RunMeasures(
        run=head.run,
        block=block,
        copies=head.copies,
        benchmarks=found,
        score=summary.rotated.score if summary.rotated else None,
        kind=_kind(summary),
        left_out=tuple(left_out),
    )


def same_keys(runs: Sequence[RunMeasures]) -> list[RunMeasures]:
    """Return the runs with tunes left out of the keys, where no run has several.

    Base in one run is compared with peak in another; a result file can hold both.
    """
    if any(len({tune for _, tune in run.benchmarks}) > 1 for run in runs):
        return list(runs)
    return [
        replace(run, benchmarks={(name, None): it for (name, _), it in run.benchmarks.items()})
        for run in runs
    ]


def log_of(measured: Measured, of: Callable[[Sample], float | None]) -> tuple[float, ...]:
    """Return the logarithm of one value of each iteration that has it."""
    values = [of(sample) for sample in measured.samples]
    return tuple(math.log(value) for value in values if value is not None and value > 0)


def of_run(measured: Measured, of: Callable[[Sample], float | None]) -> float | None:
    """Return a run's logarithm of one value, the median over iterations; None without any.

    Iterations of a run share its luck (where memory lies, which files are cached): they are
    one value. The median is the run's own result where iterations are three.
    """
    logs = log_of(measured, of)
    return statistics.median(logs) if logs else None


def _kind(summary: Summary) -> str:
    if summary.steady:
        return "completions in a window"
    return "copies' own times" if summary.rotated is not None else "brackets"


def _step(run: StoredRun, time_s: float) -> float:
    """Return the step that all times of the run are multiples of, as a share of one of them.

    As a logarithm. rater's own are read from a clock of nanoseconds; result files have fewer
    digits.
    """
    step_ns = 1 if run.head.source == "run" else _COARSEST_STEP_NS
    while step_ns > 1 and any(copy.elapsed_ns % step_ns for copy in run.copies):
        step_ns //= 10
    return math.log1p(step_ns * _NS / time_s)


def _bracketed(
    summary: Summary, run: StoredRun
) -> tuple[dict[Key, Measured], list[tuple[str, str]]]:
    found: dict[Key, Measured] = {}
    missing = []
    for benchmark in summary.benchmarks:
        samples = tuple(
            Sample(
                per_hour=it.per_hour,
                median_copy_s=it.median_copy_s,
                slowest_over_median=it.slowest.elapsed_s / it.median_copy_s
                if it.slowest and it.median_copy_s and it.good > 1
                else None,
            )
            for it in benchmark.iterations
            if it.counted and it.reason is None and it.per_hour
        )
        reason = benchmark.reason or _at_fault(benchmark) or _torso(benchmark, summary.head)
        if reason is None and samples:
            key = (benchmark.benchmark, benchmark.tune)
            # copies / rate is a bracket; the shortest one is the least well known
            copies = min(it.copies for it in benchmark.iterations if it.counted)
            shortest_s = copies * _HOUR_S / max(sample.per_hour for sample in samples)
            found[key] = Measured(
                benchmark.category, benchmark.reference_s, samples, _step(run, shortest_s)
            )
        else:
            missing.append((benchmark.benchmark, reason or "no counted iteration"))
    return found, missing


def _at_fault(benchmark: BenchmarkScore) -> str | None:
    return next((it.fault for it in benchmark.iterations if it.counted and it.fault), None)


def _torso(benchmark: BenchmarkScore, head: RunHead) -> str | None:
    """Return how many copies a result file has times of, where it says that there were more."""

    def times(it: IterationScore) -> int | None:
        told = it.reported.copies if it.reported else None
        return it.copies if head.source == "import" and told is None else None

    fewest = min((n for it in benchmark.iterations if (n := times(it)) is not None), default=None)
    if fewest is None or fewest >= head.copies:
        return None
    return f"times of {fewest} of {head.copies} copies only"


def _rotated(
    score: RotatedScore, run: StoredRun
) -> tuple[dict[Key, Measured], list[tuple[str, str]]]:
    found: dict[Key, Measured] = {}
    missing = []
    in_ratios = score.unit == "ratio"
    for benchmark in score.benchmarks:
        times = benchmark.times_s
        if benchmark.rates is None or times is None:
            missing.append((benchmark.benchmark, benchmark.reason or "no copy ran it well"))
            continue
        work_s = (benchmark.reference_s if in_ratios else None) or _HOUR_S
        sample = Sample(
            per_hour=benchmark.rates.mean / work_s * _HOUR_S,
            median_copy_s=times.median,
            slowest_over_median=times.maximum / times.median if times.count > 1 else None,
        )
        key = (benchmark.benchmark, run.head.tune)
        found[key] = Measured(
            benchmark.category, benchmark.reference_s, (sample,), _step(run, times.minimum)
        )
    return found, missing


def _mixed(mix: SteadyMix, run: StoredRun) -> tuple[dict[Key, Measured], list[tuple[str, str]]]:
    if mix.reason:
        return {}, [("the windows", mix.reason)]
    samples: dict[Key, list[Sample]] = {}
    measured: dict[Key, tuple[str | None, float | None]] = {}
    times_s: dict[Key, float] = {}
    for phase in mix.phases:
        for rate in phase.benchmarks:
            if phase.counted and phase.reason is None and rate.per_hour:
                key = (rate.benchmark, run.head.tune)
                measured[key] = (rate.category, rate.reference_s)
                times_s[key] = rate.median_run_s or _HOUR_S / rate.per_hour
                samples.setdefault(key, []).append(Sample(rate.per_hour, rate.median_run_s, None))
    return {
        key: Measured(*measured[key], tuple(of), _step(run, times_s[key]))
        for key, of in samples.items()
    }, []
