"""The JSON document of `rater run --json` and `rater show --json`; pure.

The keys of design.md's contract are `run`, `uuid`, `status`, `mode`, `copies`,
`benchmarks` (one entry per benchmark and iteration) and `suite`; others stand
beside them: `steady` in the entries of a run in steady mode, `mix` for its
windows in rotated order, `metrics`, and `comparison` where another run stands
beside a steady one. Where a value is not known or not given it is null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rater.analysis.compare.barrier import BarrierComparison
from rater.analysis.results.metrics import MetricResult
from rater.analysis.results.model import BenchmarkScore, IterationScore, SuiteScore, Summary
from rater.analysis.results.rotated import RotatedBenchmark, RotatedScore
from rater.analysis.results.steadiness import Steadiness
from rater.analysis.results.steady import SteadyMix, SteadyPhase, SteadyRate
from rater.record.stored import Reported, RunHead
from rater.show.results.energy import energy_document
from rater.text.to_json import Members, objects, to_json


@dataclass(frozen=True, slots=True)
class _Iteration:
    """An iteration with what its entry says of its benchmark and copies."""

    it: IterationScore
    of: BenchmarkScore
    placement_not_met: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Mixed:
    """A benchmark inside a window of several."""

    phase: SteadyPhase
    steady: SteadyRate

    @property
    def rate(self) -> SteadyRate | None:
        return self.steady if self.phase.reason is None else None


@dataclass(frozen=True, slots=True)
class _Window:
    """A window of several benchmarks."""

    phase: SteadyPhase
    selected: bool

    @property
    def valid(self) -> SteadyPhase | None:
        return self.phase if self.phase.reason is None else None


_WINDOW = Members(
    "warmup_s window_s halves longest_warmup_run_s needed_warmup_s unit copies rates slowest"
    " occupied gap_s lgroups reason"
)
_RATE = Members("completions whole_runs=whole copies_per_hour=per_hour median_run_s")


def _of_file(one: _Iteration) -> dict[str, object]:
    """Return what an imported result file says itself, beside what its times come to."""
    return {"file_says": one.it.reported} if one.it.reported else {}


def _of_window(one: _Iteration) -> dict[str, object]:
    steady = one.it.steady
    return {"steady": _RATE.of(steady.benchmarks[0]) | _WINDOW.of(steady)} if steady else {}


TABLE = {
    RunHead: Members(
        "run uuid status=status.reported reason mode copies started_at elapsed_s host=hostname"
        " source suite_name=suite size tune iterations discard stagger_ms increment layout memory"
        " tags{}"
    ),
    BenchmarkScore: Members(
        "benchmark tune category reference_s ratio copies_per_hour=per_hour",
        {"iterations": lambda benchmark: len(benchmark.iterations)},
        "reason",
    ),
    _Iteration: Members(
        {"*": _of_window},
        "it.benchmark it.tune of.category it.iteration it.counted it.selected it.copies"
        " good_copies=it.good failed_copies=it.failed it.bracket_s it.bracket_from_slowest"
        " it.overlap_s of.reference_s it.ratio copies_per_hour=it.per_hour it.score_lost"
        " it.median_copy_s it.slowest placement_not_met",
        {"*": _of_file},
        "it.reason",
    ),
    Reported: Members(
        "reported_s ratio selected valid",
        {"errors": lambda one: one.errors.splitlines() if one.errors else []},
    ),
    RotatedBenchmark: Members(
        "benchmark category",
        {"iteration": lambda _: None, "bracket_s": lambda _: None},
        "reference_s",
        {"ratio": lambda _: None, "score_lost": lambda _: None},
        "median_copy_s=times_s.median slowest times_s rates queued_copies=queued reason",
    ),
    _Mixed: Members(
        "steady.benchmark steady.category phase.iteration phase.counted",
        {"bracket_s": lambda _: None},
        "steady.reference_s rate.ratio copies_per_hour=rate.per_hour",
        {"score_lost": lambda _: None},
        "median_copy_s=steady.median_run_s",
        {"slowest": lambda _: None},
        "steady phase.reason",
    ),
    SteadyRate: _RATE,
    _Window: Members(
        "phase.iteration phase.counted selected valid.ratio copies_per_hour=valid.per_hour",
        {"*": lambda one: _WINDOW.of(one.phase)},
    ),
    Steadiness: Members(
        "verdict difference interval_95=interval fewest_whole_runs=fewest needed_window_s=needed_s"
    ),
    MetricResult: Members("* worst"),
    SteadyMix: Members(
        "ratio=selected.ratio",
        {"windows": lambda mix: [_Window(it, it is mix.selected) for it in mix.phases]},
        "reason",
    ),
    RotatedScore: Members(
        "proposed_in score cv unit rounds reason copies tail gaps work_rate runs_per_hour"
    ),
    SuiteScore: Members("tune kind ratio reason"),
}


def summary_document(summary: Summary, beside: BarrierComparison | None = None) -> dict[str, Any]:
    """Return the summary as JSON values; seconds are floats, iterations count from 1."""
    head, mix = summary.head, summary.mix
    document = TABLE[RunHead].of(head) | {
        "benchmarks": _benchmarks(summary),
        "results": summary.benchmarks,
        "suite": _suite(summary.suites)
        | {"left_out": objects("benchmark reason", summary.left_out)},
        "metrics": summary.metrics,
        "failed": summary.failed,
        "remarks": summary.remarks,
    }
    if summary.rotated:
        document["rotated"] = summary.rotated
    if summary.steady:
        document |= {"warmup_s": head.warmup_s, "window_s": head.window_s}
    if mix:
        document["mix"] = mix
    document |= energy_document(summary)
    if beside:
        document["comparison"] = beside
    values: dict[str, Any] = to_json(document, TABLE)
    return values


def _benchmarks(summary: Summary) -> list[object]:
    if summary.rotated:
        return [*summary.rotated.benchmarks]
    if summary.mix:
        return [_Mixed(phase, rate) for phase in summary.mix.phases for rate in phase.benchmarks]
    not_met = summary.proof.not_met()
    return [
        _Iteration(it, benchmark, not_met.get((it.benchmark, it.iteration), ()))
        for benchmark in summary.benchmarks
        for it in benchmark.iterations
    ]


def _suite(suites: tuple[SuiteScore, ...]) -> dict[str, object]:
    """Return the scores of the first tune; the others under `tunes` beside it."""
    first = {score.kind: score for score in suites if score.tune == suites[0].tune}
    values: dict[str, object] = {
        "ratio": first["all"].ratio if first else None,
        "int": first["int"].ratio if first else None,
        "fp": first["fp"].ratio if first else None,
        "over": first["all"].over if first else (),
        "reason": first["all"].reason if first else None,
    }
    if len(first) < len(suites):
        values["tunes"] = suites
    return values
