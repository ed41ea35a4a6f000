"""The JSON documents of `rater show` and `rater divots`; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rater.analysis.divots.model.finding import (
    Analysis,
    CopyEffect,
    Evidence,
    FaultMeasurement,
    Finding,
    Kind,
    RecurringDivot,
)
from rater.analysis.results.disturbed import disturbed_members
from rater.analysis.results.metrics import MetricResult
from rater.analysis.results.result import (
    HOUR_S,
    BenchmarkScore,
    SteadyWindow,
    benchmarks_left_out,
    failure_text,
)
from rater.analysis.results.rotated import Ring
from rater.analysis.results.score import SuiteScore, Summary
from rater.analysis.results.steadiness import Steadiness
from rater.analysis.results.steady import Mix
from rater.record.events import CopyEnded, PublishedResult
from rater.record.run import CopyStatus
from rater.record.stored import RunHead
from rater.show.results.cpu_use import energy_document
from rater.system.process import typed_command
from rater.text.values import JsonFields, objects, to_json

if TYPE_CHECKING:
    from rater.analysis.compare.barrier import BarrierComparison

_MOST_MEASURED = 3
# Where memory is, how a start went, what the layout expects or that it is nobody's are causes.
_SAID = (Kind.STARTUP, Kind.NO_PLACE)


def evidence_line(one: Finding) -> str:
    """Return a finding in one line: place, benchmarks, size, how many, cost, cause.

    Of what was measured beside the times only the three that differ most are told.
    """
    parts = [f"{one.place}: {one.summary}" if one.has_place else one.summary]
    if one.expectation:
        parts.append(one.expectation)
    ordered = _by_weight(one)
    measured = [it for it in ordered if it.others is not None][:_MOST_MEASURED]
    parts += [it.text for it in ordered if it.others is None or it in measured]
    known = one.explained or one.kind in _SAID or "memory on" in one.place
    if not known and not any(evidence.of_cause for evidence in one.evidence):
        parts.append("cause not recorded")
    return "; ".join(parts)


def _by_weight(one: Finding) -> list[Evidence]:
    return sorted(one.evidence, key=lambda it: -it.weight)


def _covered(one: Finding, what: str) -> list[Any]:
    """Return all benchmarks, or iterations, that a finding is about; none of what is explained."""
    return list(dict.fromkeys(sorted(getattr(cell, what) for cell in one.cells)))


def _only(values: Sequence[int]) -> int | None:
    return values[0] if len(values) == 1 else None


DIVOTS_TABLE = {
    Finding: JsonFields(
        {"kind": lambda one: f"explained-{one.kind}" if one.explained else str(one.kind)},
        "benchmark",
        {"benchmarks": lambda one: _covered(one, "benchmark") or [*one.benchmarks]},
        "tune iteration",
        {"iterations": lambda one: _covered(one, "iteration") or [*one.iterations]},
        {"copy": lambda one: _only(one.copies), "cpu": lambda one: _only(one.cpus)},
        "core node nodes package place copies cpus slowdown:5 score_lost:5 time_lost:5 share_lost:5"
        " explained"
        " expectation",
        {
            "evidence": evidence_line,
            "measured": lambda one: [it for it in _by_weight(one) if it.others is not None],
        },
    ),
    Evidence: JsonFields("name value others text"),
    CopyEffect: JsonFields(
        "benchmark",
        {"benchmarks": lambda it: [it.benchmark]},
        "tune iteration",
        {"iterations": lambda it: [it.iteration]},
        "copy",
        {"copies": lambda it: [it.copy]},
        "cpu",
        {"cpus": lambda it: [] if it.cpu is None else [it.cpu]},
        "node",
        {"nodes": lambda it: [] if it.node is None else [it.node]},
        "slowdown:5",
    ),
    RecurringDivot: JsonFields(
        "kind of benchmarks",
        {
            "places": lambda one: objects(
                "run place", ((place.run, place.place) for place in one.places)
            )
        },
        "runs=looks copies nodes cpus slowdown:5 evidence=summary",
    ),
    FaultMeasurement: JsonFields("run there place benchmarks slowdown:5"),
}


def divot_rows(findings: Sequence[Finding], confirm: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the elements of `divots`; copies that are judged singly have one each.

    `finding` numbers what is no element of its own (and not explained) from 1; `next` is the
    command that would confirm it, of `confirm`.
    """
    rows = []
    commands = map(typed_command, confirm)
    number = 0
    for one in findings:
        number += not one.explained
        row = to_json(one, DIVOTS_TABLE) | {
            "finding": None if one.explained else number,
            "next": None if one.explained else next(commands, None),
        }
        singles = [row | to_json(single, DIVOTS_TABLE) for single in one.singles]
        rows += [single | {"together_with": [*one.copies]} for single in singles] or [row]
    return rows


def divots_document(
    runs: Sequence[tuple[RunHead, Analysis]], between: Sequence[RecurringDivot]
) -> dict[str, object]:
    """Return the divots document: of one run, or of several with what they have in common."""
    documents: list[dict[str, object]] = [
        {
            "run": head.run,
            "divots": divot_rows(analysis.findings, analysis.confirm),
            "visible": {name: round(size, 5) for name, size in analysis.visible.items()},
            "failed_left_out": analysis.failed,
            "lost": round(analysis.lost, 5),
            **disturbed_members(analysis),
        }
        for head, analysis in runs
    ]
    if len(documents) == 1:
        return documents[0]
    return {"runs": documents, "between": to_json(between, DIVOTS_TABLE)}


# -- The JSON document of `rater run --json` and `rater show --json` -------------------------------
#
# The keys of design.md's contract are `run`, `uuid`, `status`, `mode`, `copies`,
# `benchmarks` (one entry per benchmark and iteration) and `suite`; others stand
# beside them: `steady` in the entries of a run in steady mode, `mix` for its
# windows in rotated order, `metrics`, and `comparison` where another run stands
# beside a steady one. Where a value is not known or not given it is null.


_WINDOW = JsonFields(
    "warmup_s window_s halves longest_warmup_run_s needed_warmup_s unit copies rates slowest"
    " occupied gap_s lgroups reason"
)
# What a benchmark's runs in it came to, result or not.
_IN_WINDOW = JsonFields(
    "completions whole_runs=whole",
    {"copies_per_hour": lambda it: it.completions / it.steady.window_s * HOUR_S},
    "median_run_s=median_copy_s",
)


def _null(*keys: str) -> dict[str, Callable[[object], None]]:
    """Return members that have no value in this mode."""
    return dict.fromkeys(keys, lambda _: None)


_ALONE = JsonFields(
    {
        "*": lambda it: (
            {"steady": _IN_WINDOW.read(it) | _WINDOW.read(it.steady)} if it.steady else {}
        )
    },
    "benchmark tune category iteration counted selected copies good_copies=good"
    " failed_copies=failed bracket_s bracket_from_slowest overlap_s reference_s ratio"
    " copies_per_hour=per_hour score_lost median_copy_s slowest",
    {"placement_not_met": lambda _: ()},  # what is not known of the result itself
    "account",
    {"*": lambda it: {"file_says": it.reported} if it.reported else {}},
    "reason",
)
_IN_RING = JsonFields(
    "benchmark category iteration",
    _null("bracket_s"),
    "reference_s",
    _null("ratio", "score_lost"),
    "median_copy_s slowest times_s rates queued_copies=copies reason",
)
_IN_MIX = JsonFields(
    "benchmark category iteration counted",
    _null("bracket_s"),
    "reference_s ratio copies_per_hour=per_hour",
    _null("score_lost"),
    "median_copy_s slowest",
    {"steady": _IN_WINDOW.read},
    "reason",
)
RUN_TABLE = {
    RunHead: JsonFields(
        "run uuid status=status.reported reason mode copies started_at elapsed_s host=hostname"
        " source suite_name=suite size tune iterations discard stagger_ms increment layout memory"
        " tags{}"
    ),
    BenchmarkScore: JsonFields(
        "benchmark tune category reference_s ratio copies_per_hour=per_hour",
        {"iterations": lambda benchmark: len(benchmark.iterations)},
        "reason",
    ),
    CopyEnded: JsonFields(
        "benchmark tune iteration copy cpu node elapsed_s",
        {"status": lambda it: CopyStatus.WRONG_OUTPUT if it.status is CopyStatus.OK else it.status},
        {"what": failure_text},
        "run_dir",
    ),
    PublishedResult: JsonFields(
        "reported_s ratio selected valid",
        {"errors": lambda one: one.errors.splitlines() if one.errors else []},
    ),
    Steadiness: JsonFields(
        "verdict difference interval_95=interval fewest_whole_runs=fewest needed_window_s=needed_s"
    ),
    MetricResult: JsonFields("* worst"),
    Mix: JsonFields(
        "ratio=selected.ratio",
        {
            "windows": lambda mix: [
                _window(window, window is mix.selected) for window in mix.windows
            ]
        },
        "reason",
    ),
    Ring: JsonFields(
        "proposed_in score cv unit rounds reason copies tail gaps work_rate runs_per_hour"
    ),
    SuiteScore: JsonFields("tune kind ratio reason"),
}


def summary_document(summary: Summary, beside: BarrierComparison | None = None) -> dict[str, Any]:
    """Return the summary as JSON values; seconds are floats, iterations count from 1."""
    head, mix = summary.head, summary.mix
    document = RUN_TABLE[RunHead].read(head) | {
        "benchmarks": _benchmarks(summary),
        "results": summary.benchmarks,
        "suite": _suite(summary.suites)
        | {"left_out": objects("benchmark reason", benchmarks_left_out(summary.run.warnings))},
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
    values: dict[str, Any] = to_json(document, RUN_TABLE)
    return values


def _window(it: SteadyWindow, selected: bool) -> dict[str, object]:
    """Return a window of several benchmarks."""
    valid = it.reason is None
    return {
        "iteration": it.iteration,
        "counted": it.counted,
        "selected": selected,
        "ratio": it.ratio if valid else None,
        "copies_per_hour": it.per_hour if valid else None,
        **_WINDOW.read(it),
    }


def _benchmarks(summary: Summary) -> list[object]:
    results = [iteration for score in summary.scores for iteration in score.iterations]
    if summary.rotated:
        return [_IN_RING.read(result) for result in results]
    if summary.mix:
        results.sort(key=lambda it: it.iteration or 0)
        return [_IN_MIX.read(result) for result in results]
    not_met = summary.proof.not_met()
    return [
        _ALONE.read(result)
        | {"placement_not_met": not_met.get((result.benchmark, result.iteration or 0), ())}
        for result in results
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
