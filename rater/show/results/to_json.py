"""The JSON documents of `rater divots`, and a finding in one line; pure.

`rater.show.documents.divots` says what each key means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rater.analysis.compare.hardware import HardwareDifference
from rater.analysis.divots.model.finding import (
    Analysis,
    CopyEffect,
    CpuJudgement,
    Evidence,
    FaultMeasurement,
    Finding,
    Kind,
    RecurringDivot,
    TimeShares,
)
from rater.analysis.results.periods import period_text
from rater.record.stored import RunHead
from rater.show.results.disturbed import disturbed_json
from rater.system.process import typed_command

if TYPE_CHECKING:
    from rater.analysis.results.periods import Period
    from rater.show.documents.divots import (
        CpuJudgementJson,
        DivotJson,
        DivotsDocument,
        EvidenceJson,
        FaultJson,
        PeriodJson,
        RecurringJson,
        SeveralDivotsDocument,
        TimeSharesJson,
    )

_MOST_MEASURED = 3  # measurements in the line of a finding
# These kinds are causes themselves, so that their line asks for no other.
_CAUSES = (Kind.STARTUP, Kind.NO_PLACE)
_DIGITS = 5  # of shares and slowdowns; times are not known as well as that


def evidence_line(finding: Finding) -> str:
    """Return a finding in one line: place, benchmarks, size, how many, cost, cause.

    Of what was measured beside the times the line has the three values that differ most.
    """
    summary = f"{finding.summary}, by CPU time" if finding.by_cpu else finding.summary
    parts = [f"{finding.place}: {summary}" if finding.has_place else summary]
    if finding.expectation:
        parts.append(finding.expectation)
    ordered = _by_weight(finding)
    measured = [evidence for evidence in ordered if evidence.others is not None]
    shown = measured[:_MOST_MEASURED]
    parts += [evidence.text for evidence in ordered if evidence.others is None or evidence in shown]
    # Where memory lies is a cause as well.
    has_cause = finding.explained or finding.kind in _CAUSES or "memory on" in finding.place
    if not has_cause and not any(evidence.of_cause for evidence in finding.evidence):
        parts.append("cause not recorded")
    return "; ".join(parts)


def _by_weight(finding: Finding) -> list[Evidence]:
    return sorted(finding.evidence, key=lambda evidence: -evidence.weight)


# -- The divots of one run -------------------------------------------------------------------------


def divot_rows(findings: Sequence[Finding], confirm: Sequence[str] = ()) -> list[DivotJson]:
    """Return the elements of `divots`; copies that are judged singly have one each.

    `finding` numbers the findings that the layout does not explain, from 1; `next` is the command
    that would confirm it, of `confirm`.
    """
    rows: list[DivotJson] = []
    commands = map(typed_command, confirm)
    number = 0
    for finding in findings:
        number += not finding.explained
        row = _divot(finding)
        row["finding"] = None if finding.explained else number
        row["next"] = None if finding.explained else next(commands, None)
        if not finding.singles:
            rows.append(row)
        for effect in finding.singles:
            single = _of_copy(row, effect)
            single["together_with"] = [*finding.copies]
            rows.append(single)
    return rows


def _divot(finding: Finding) -> DivotJson:
    """Return a finding without its number; a finding of cells has only their benchmarks."""
    benchmarks = list(dict.fromkeys(sorted(cell.benchmark for cell in finding.cells)))
    iterations = list(dict.fromkeys(sorted(cell.iteration for cell in finding.cells)))
    return {
        "kind": f"explained-{finding.kind}" if finding.explained else str(finding.kind),
        "benchmark": finding.benchmark,
        "benchmarks": benchmarks or [*finding.benchmarks],
        "tune": finding.tune,
        "iteration": finding.iteration,
        "iterations": iterations or [*finding.iterations],
        "copy": _only(finding.copies),
        "cpu": _only(finding.cpus),
        "core": finding.core,
        "node": finding.node,
        "nodes": [*finding.nodes],
        "package": finding.package,
        "place": finding.place,
        "copies": [*finding.copies],
        "cpus": [*finding.cpus],
        "slowdown": round(finding.slowdown, _DIGITS),
        "longer_s": _rounded(finding.longer_s),
        "score_lost": _rounded(finding.score_lost),
        "time_lost": _rounded(finding.time_lost),
        "share_lost": _rounded(finding.share_lost),
        "explained": finding.explained,
        "expectation": finding.expectation,
        "evidence": evidence_line(finding),
        "measured": [
            _measured(evidence) for evidence in _by_weight(finding) if evidence.others is not None
        ],
        "by_cpu_time": finding.by_cpu,
        "time_shares": None if finding.time_shares is None else _time_shares(finding.time_shares),
        "finding": None,
        "next": None,
    }


def _time_shares(shares: TimeShares) -> TimeSharesJson:
    return {
        "cpu": round(shares.cpu, _DIGITS),
        "waited_own": _rounded(shares.waited_own),
        "waited_others": _rounded(shares.waited_others),
        "waited": _rounded(shares.waited),
        "slept": _rounded(shares.slept),
    }


def _of_copy(row: DivotJson, effect: CopyEffect) -> DivotJson:
    """Return the row of a finding as that of one of its copies."""
    return {
        **row,
        "benchmark": effect.benchmark,
        "benchmarks": [effect.benchmark],
        "tune": effect.tune,
        "iteration": effect.iteration,
        "iterations": [effect.iteration],
        "copy": effect.copy,
        "copies": [effect.copy],
        "cpu": effect.cpu,
        "cpus": [] if effect.cpu is None else [effect.cpu],
        "node": effect.node,
        "nodes": [] if effect.node is None else [effect.node],
        "slowdown": round(effect.slowdown, _DIGITS),
    }


def _measured(evidence: Evidence) -> EvidenceJson:
    return {
        "name": evidence.name,
        "value": evidence.value,
        "others": evidence.others,
        "text": evidence.text,
        "during_s": None if evidence.during is None else [*evidence.during],
    }


def _only(values: Sequence[int]) -> int | None:
    return values[0] if len(values) == 1 else None


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, _DIGITS)


def divots_document(
    runs: Sequence[tuple[RunHead, Analysis]],
    between: Sequence[RecurringDivot],
    hardware: Sequence[HardwareDifference] = (),
) -> DivotsDocument | SeveralDivotsDocument:
    """Return the divots document: of one run, or of several and the divots that recur in them."""
    documents = [_of_run(head, analysis) for head, analysis in runs]
    if len(documents) == 1:
        return documents[0]
    return {
        "runs": documents,
        "between": [_recurring(divot) for divot in between],
        "hardware": [
            {
                "what": difference.what,
                "values": [
                    {"value": value, "runs": [*numbers]} for value, numbers in difference.values
                ],
            }
            for difference in hardware
        ],
    }


def _of_run(head: RunHead, analysis: Analysis) -> DivotsDocument:
    return {
        "run": head.run,
        "divots": divot_rows(analysis.findings, analysis.confirm),
        "visible": {scope: round(size, _DIGITS) for scope, size in analysis.visible.items()},
        "failed_left_out": analysis.failed,
        "lost": round(analysis.lost, _DIGITS),
        **disturbed_json(analysis),
        "disturbed": [*analysis.disturbed],
        "by_cpu_time": None if analysis.by_cpu is None else _judgement(analysis.by_cpu),
        "not_by_cpu_time": analysis.not_by_cpu,
        "periods": [period_document(period) for period in analysis.periods],
    }


def period_document(period: Period) -> PeriodJson:
    """Return a place in time."""
    return {
        "kind": period.kind.value,
        "phase": period.phase,
        "benchmark": period.benchmark,
        "iteration": period.iteration,
        "iterations": [*period.iterations],
        "from_s": round(period.begin_s, 3),
        "to_s": round(period.end_s, 3),
        "level": round(period.level, _DIGITS),
        "cpus": [*period.cpus],
        "copies": [*period.copies],
        "read_bytes_per_s": period.read_rate,
        "written_bytes_per_s": period.written_rate,
        "waited_s": period.waited_s,
        "limit": period.limit,
        "text": period_text(period),
    }


def _judgement(judgement: CpuJudgement) -> CpuJudgementJson:
    return {
        "others_took": round(judgement.others_took, _DIGITS),
        "noise_cost": _rounded(judgement.noise_cost),
    }


# -- What several runs have in common --------------------------------------------------------------


def _recurring(divot: RecurringDivot) -> RecurringJson:
    return {
        "kind": divot.kind,
        "of": divot.of,
        "benchmarks": [*divot.benchmarks],
        "places": [{"run": place.run, "place": place.place} for place in divot.places],
        "runs": [_fault(measurement) for measurement in divot.looks],
        "copies": [*divot.copies],
        "nodes": [*divot.nodes],
        "cpus": [*divot.cpus],
        "slowdown": round(divot.slowdown, _DIGITS),
        "evidence": divot.summary,
    }


def _fault(measurement: FaultMeasurement) -> FaultJson:
    return {
        "run": measurement.run,
        "there": measurement.there,
        "place": measurement.place,
        "benchmarks": [*measurement.benchmarks],
        "slowdown": _rounded(measurement.slowdown),
    }
