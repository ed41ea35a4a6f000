"""When something slowed a finding's copies: periods of their phases as evidence; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import fmean

from msgspec.structs import replace

from rater.analysis.divots.model.finding import Evidence, EvidenceKind, Finding
from rater.analysis.results.periods import (
    Period,
    PeriodKind,
    cpu_values,
    period_text,
    phase_periods,
)
from rater.analysis.results.series import PhaseTimes, phase_times
from rater.record.stored import StoredRun
from rater.system.errors import InputError
from rater.text.cpuset import nodes_text
from rater.text.values import group_by_key

_MOVED = {"read": "read", "written": "wrote", "total": "moved"}
_LEAST_TRAFFIC = 1e9  # bytes a second: where others move less, memory is no matter
_LESS_TRAFFIC = 1.15  # times as much as a finding's nodes that others move
_OF_ALL = (PeriodKind.QUOTA, PeriodKind.MEMORY, PeriodKind.CPU)  # whichever copies had it
_HALF = 0.5  # of what the finding's CPUs lost: others that lost as much had the same


def add_periods(findings: Sequence[Finding], run: StoredRun) -> tuple[Finding, ...]:
    """Return the findings, each with the costliest period that its copies had and others had not.

    Those that the layout explains, fast ones and those of runs without series are not changed.
    """
    if not run.series:
        return tuple(findings)
    try:
        phases = phase_times(run)
    except InputError:  # damaged: what reads the series itself says so
        return tuple(findings)
    periods = {phase.phase: phase_periods(phase) for phase in phases}
    return tuple(
        finding
        if finding.explained or finding.fast
        else _with_traffic(_with_period(finding, phases, periods), phases)
        for finding in findings
    )


def _with_traffic(finding: Finding, phases: Sequence[PhaseTimes]) -> Finding:
    """Return a finding of nodes with how much their memory moved, if others' moved more."""
    of_finding = [phase for phase in phases if _is_of(finding, phase)]
    differences = [
        (other / member, kind, member, other)
        for kind in _MOVED
        if (rates := _node_rates(kind, of_finding, frozenset(finding.nodes))) is not None
        for member, other in [rates]
        if other >= _LEAST_TRAFFIC and member > 0 and other / member >= _LESS_TRAFFIC
    ]
    if not differences:
        return finding
    _, kind, member, other = max(differences)
    rates_text = f"{_MOVED[kind]} {member / 1e9:.3g} GB/s, others {other / 1e9:.3g}, while slow"
    text = f"{nodes_text(finding.nodes)} {rates_text}"
    evidence = EvidenceKind.TRAFFIC.evidence(text)
    return replace(finding, evidence=_in_order([*finding.evidence, evidence]))


def _node_rates(
    kind: str, phases: Sequence[PhaseTimes], nodes: Collection[int]
) -> tuple[float, float] | None:
    """Return bytes a second of a finding's nodes and of the other ones, means of each side."""
    sides: dict[bool, list[float]] = {True: [], False: []}
    for phase in phases:
        for node, values in phase.traffic.get(kind, {}).items():
            sides[node in nodes] += [value for value in values if value is not None]
    return (fmean(sides[True]), fmean(sides[False])) if all(sides.values()) else None


def _with_period(
    finding: Finding, phases: Sequence[PhaseTimes], periods: Mapping[int, Sequence[Period]]
) -> Finding:
    fitting = [
        period
        for phase in phases
        if _is_of(finding, phase)
        for period in _periods_of(finding, phase, periods[phase.phase])
    ]
    if not fitting:
        return finding
    period = max(fitting, key=lambda candidate: candidate.cost_s)
    of_phases = len({other.phase for other in fitting if other.kind is period.kind})
    text = period_text(period, is_named=len(finding.cells) > 1)
    if of_phases > 1:
        text += f"; so in {of_phases} brackets"
    evidence = EvidenceKind.PERIOD.evidence(text, during=(period.begin_s, period.end_s))
    # That nothing recorded explains it is no longer true.
    unexplained = EvidenceKind.UNEXPLAINED.label
    others = [told for told in finding.evidence if told.name != unexplained]
    return replace(finding, evidence=_in_order([*others, evidence]))


def _in_order(evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Return evidence with the period before what was compared: it says when, they how much."""
    of_series = (EvidenceKind.PERIOD.label, EvidenceKind.TRAFFIC.label)
    by_kind = group_by_key((it.name in of_series, it) for it in evidence)
    of_times = [it for it in by_kind.get(False, ()) if it.others is None]
    measured = [it for it in by_kind.get(False, ()) if it.others is not None]
    return (*of_times, *by_kind.get(True, ()), *measured)


def _is_of(finding: Finding, phase: PhaseTimes) -> bool:
    """Tell whether a finding has a cell in a phase."""
    return any(
        phase.benchmark in (None, cell.benchmark) and phase.iteration in (None, cell.iteration)
        for cell in finding.cells
    )


def _periods_of(finding: Finding, phase: PhaseTimes, periods: Sequence[Period]) -> Iterator[Period]:
    """Yield the periods of a phase that a finding's copies had, and the others had not."""
    copies = frozenset(finding.copies)
    cpus = frozenset(finding.cpus) or {
        cpu for group in phase.cpus if copies.intersection(group.copies) for cpu in group.cpus
    }
    for period in periods:
        if period.kind in _OF_ALL:
            if not copies or len(copies) == len(phase.copy_cpu):
                yield period
        elif period.kind in (PeriodKind.STARTUP, PeriodKind.DISK):
            if not copies or copies.intersection(period.copies):
                yield period
        elif not cpus:
            yield period
        elif cpus.intersection(period.cpus) and _others_had_less(phase, period, cpus):
            yield replace(period, cpus=tuple(sorted(cpus.intersection(period.cpus))))


def _others_had_less(phase: PhaseTimes, period: Period, cpus: Collection[int]) -> bool:
    """Tell whether the CPUs of other copies lost less than half as much in a period."""
    shares = []
    for group in phase.cpus:
        if not group.copies or any(cpu in cpus for cpu in group.cpus):
            continue
        values = cpu_values(period.kind, group)
        inside = [
            value
            for value, early, late in zip(values, phase.seconds, phase.seconds[1:], strict=False)
            if value is not None and early < period.end_s and late > period.begin_s
        ]
        shares += [fmean(inside)] if inside else []
    return not shares or fmean(shares) < _HALF * period.level
