"""Findings as the divots document of `rater divots --json`; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rater.analysis.conditions.disturbed import disturbed_members
from rater.analysis.divots.confirm import next_command
from rater.analysis.divots.data.between import Between, Look
from rater.analysis.divots.data.finding import Analysis, Evidence, Finding, Kind, Single
from rater.record.stored import RunHead
from rater.text.to_json import Members, objects, to_json

_MOST_MEASURED = 3
_WITHOUT_PLACE = (
    Kind.SLOW_ITERATION,
    Kind.DRIFT,
    Kind.STARTUP,
    Kind.BIMODAL,
    Kind.WANDERING,
)


def evidence_line(one: Finding) -> str:
    """Return a finding in one line: place, benchmarks, size, how many, cost, cause.

    Of what was measured beside the times only the three that differ most are told.
    """
    parts = [one.summary if one.kind in _WITHOUT_PLACE else f"{one.place}: {one.summary}"]
    if one.expectation:
        parts.append(one.expectation)
    ordered = _by_weight(one)
    measured = [it for it in ordered if it.others is not None][:_MOST_MEASURED]
    parts += [it.text for it in ordered if it.others is None or it in measured]
    # Where memory is, how a start went and what the layout expects are causes themselves.
    known = one.explained or one.kind is Kind.STARTUP or "memory on" in one.place
    if not known and all(it.name == "cost" for it in one.evidence):
        parts.append("cause not recorded")
    return "; ".join(parts)


def _by_weight(one: Finding) -> list[Evidence]:
    return sorted(one.evidence, key=lambda it: -it.weight)


def _covered(one: Finding, what: str) -> list[Any]:
    """Return all benchmarks, or iterations, that a finding is about; none of what is explained."""
    return list(dict.fromkeys(sorted(getattr(cell, what) for cell in one.cells)))


def _only(values: Sequence[int]) -> int | None:
    return values[0] if len(values) == 1 else None


TABLE = {
    Finding: Members(
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
    Evidence: Members("name value others text"),
    Single: Members(
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
    Between: Members(
        "kind of benchmarks",
        {"places": lambda one: objects("run place", ((it.run, it.place) for it in one.places))},
        "runs=looks copies nodes cpus slowdown:5 evidence=summary",
    ),
    Look: Members("run there place benchmarks slowdown:5"),
}


def divot_rows(findings: Sequence[Finding], head: RunHead | None = None) -> list[dict[str, Any]]:
    """Return the elements of `divots`; copies that are judged singly have one each.

    `finding` numbers what is no element of its own (and not explained) from 1; with
    the run's head `next` is the command that would confirm it.
    """
    rows = []
    number = 0
    for one in findings:
        number += not one.explained
        row = to_json(one, TABLE) | {
            "finding": None if one.explained else number,
            "next": None if head is None else next_command(number, one, head),
        }
        singles = [row | to_json(it, TABLE) for it in one.singles]
        rows += [single | {"together_with": [*one.copies]} for single in singles] or [row]
    return rows


def divots_document(
    runs: Sequence[tuple[RunHead, Analysis]], between: Sequence[Between]
) -> dict[str, object]:
    """Return the divots document: of one run, or of several with what they have in common."""
    documents: list[dict[str, object]] = [
        {
            "run": head.run,
            "divots": divot_rows(analysis.findings, head),
            "visible": {name: round(size, 5) for name, size in analysis.visible.items()},
            "failed_left_out": analysis.failed,
            "lost": round(analysis.lost, 5),
            **disturbed_members(analysis),
        }
        for head, analysis in runs
    ]
    if len(documents) == 1:
        return documents[0]
    return {"runs": documents, "between": to_json(between, TABLE)}
