"""Findings as the divots document of `rater divots --json`; pure."""

from __future__ import annotations

from collections.abc import Sequence

from rater.analysis.divots.confirm import next_command
from rater.analysis.divots.data.finding import Analysis, Finding, Kind, Single
from rater.analysis.divots.recurring import Between
from rater.record.stored import RunHead

_MOST_MEASURED = 3


def evidence_line(one: Finding) -> str:
    """Return a finding in one line: place, size, how many, cost, then what differs most.

    Of what was measured beside the times only the three that differ most are told.
    """
    parts = [one.place + ": " + one.summary if _says_place(one) else one.summary]
    if one.expectation:
        parts.append(one.expectation)
    told = sorted(one.evidence, key=lambda it: -it.weight)
    measured = [it for it in told if it.others is not None][:_MOST_MEASURED]
    parts += [it.text for it in told if it.others is None or it in measured]
    return "; ".join(parts)


_WITHOUT_PLACE = (
    Kind.SLOW_ITERATION,
    Kind.DRIFT,
    Kind.STARTUP,
    Kind.BIMODAL,
    Kind.WANDERING,
)


def _says_place(one: Finding) -> bool:
    return one.kind not in _WITHOUT_PLACE


def divot_rows(findings: Sequence[Finding], head: RunHead | None = None) -> list[dict[str, object]]:
    """Return the elements of `divots`; copies that are judged singly have one each.

    `finding` numbers what is no element of its own (and not explained) from 1; with
    the run's head `next` is the command that would confirm it.
    """
    rows = []
    number = 0
    for one in findings:
        number += not one.explained
        row = _row(one) | {
            "finding": None if one.explained else number,
            "next": None if head is None else next_command(number, one, head),
        }
        if not one.singles:
            rows.append(row)
            continue
        rows += [row | _single(it, one) for it in one.singles]
    return rows


def _single(it: Single, one: Finding) -> dict[str, object]:
    return {
        "benchmark": it.benchmark,
        "benchmarks": [it.benchmark],
        "tune": it.tune,
        "iteration": it.iteration,
        "iterations": [it.iteration],
        "copy": it.copy,
        "copies": [it.copy],
        "cpu": it.cpu,
        "cpus": [] if it.cpu is None else [it.cpu],
        "node": it.node,
        "nodes": [] if it.node is None else [it.node],
        "slowdown": round(it.slowdown, 5),
        "together_with": list(one.copies),
    }


def _row(one: Finding) -> dict[str, object]:
    return {
        "kind": f"explained-{one.kind}" if one.explained else str(one.kind),
        "benchmark": one.benchmark,
        "benchmarks": list(one.benchmarks),
        "tune": one.tune,
        "iteration": one.iteration,
        "iterations": list(one.iterations),
        "copy": one.copies[0] if len(one.copies) == 1 else None,
        "cpu": one.cpus[0] if len(one.cpus) == 1 else None,
        "core": one.core,
        "node": one.node,
        "nodes": list(one.nodes),
        "package": one.package,
        "place": one.place,
        "copies": list(one.copies),
        "cpus": list(one.cpus),
        "slowdown": round(one.slowdown, 5),
        "score_lost": None if one.score_lost is None else round(one.score_lost, 5),
        "time_lost": None if one.time_lost is None else round(one.time_lost, 5),
        "explained": one.explained,
        "expectation": one.expectation,
        "evidence": evidence_line(one),
        "measured": [
            {
                "name": it.name,
                "value": it.value,
                "others": it.others,
                "text": it.text,
            }
            for it in sorted(one.evidence, key=lambda it: -it.weight)
            if it.others is not None
        ],
    }


def document(
    runs: Sequence[tuple[RunHead, Analysis]], between: Sequence[Between]
) -> dict[str, object]:
    """Return the divots document: of one run, or of several with what they have in common."""
    documents = [
        {
            "run": head.run,
            "divots": divot_rows(analysis.findings, head),
            "visible": {name: round(size, 5) for name, size in analysis.visible.items()},
            "failed_left_out": analysis.failed,
        }
        for head, analysis in runs
    ]
    if len(documents) == 1:
        return documents[0]
    return {
        "runs": documents,
        "between": [
            {
                "kind": str(one.kind),
                "of": str(one.of),
                "benchmarks": list(one.benchmarks),
                "places": [{"run": run, "place": place} for run, place in one.places],
                "nodes": list(one.nodes),
                "cpus": list(one.cpus),
                "slowdown": round(one.slowdown, 5),
                "evidence": one.summary,
            }
            for one in between
        ],
    }
