"""Divots of several runs: what comes back in the same place, what moves about; pure.

A finding of one run is looked for in each other one: how much the same part differs there, by
that run's own times, with its interval. It recurs only where it is there by its own size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import numpy as np
from msgspec import Struct, field

from rater.analysis.divots.model.finding import (
    PLACED,
    CopyEffect,
    FaultMeasurement,
    Finding,
    Kind,
    Presence,
    RecurringDivot,
)
from rater.analysis.divots.model.layout import fit_layout
from rater.analysis.divots.model.noise import CellNoise, estimate_noise
from rater.analysis.divots.model.nulls import huber_mean
from rater.analysis.divots.model.places import PARTS
from rater.analysis.divots.model.search import values_by_copy
from rater.analysis.divots.model.table import UNKNOWN, Table, clock_steps
from rater.analysis.stats.estimate import t_quantile
from rater.analysis.stats.robust import Bools, Floats, subtract_median

_OFTEN = 2 / 3  # of the runs that can tell: in so many a fault recurs
_CONFIDENCE = 0.95
_SAME_PART = 0.5  # share of two findings' copies that both have: they are one part
_SHOWS = 0.35  # of a fault's size: a run that shows more of it has the fault
_TWICE = 2.0  # ratio of two sizes, or counts of copies, at most: may be one fault that moved
_HAS_SIZE = (*PLACED, Kind.SLOW_ITERATION, Kind.BIMODAL)  # their cells say what each copy lost
# Kinds that may be one fault; every other kind is a sort by itself.
_SORTS = {Kind.SLOW_CPU: "copies", Kind.OUTLIER_COPY: "copies"}


class SearchedRun(Struct, frozen=True, eq=False):
    """A run with its findings and the times that they are of."""

    run: int
    findings: tuple[Finding, ...]
    table: Table


class _Run(Struct, frozen=True, eq=False, kw_only=True):
    """A run's times without what the layout explains, and its findings as arrays."""

    run: int
    table: Table
    values: Floats  # (B, I, S) ln
    effects: tuple[tuple[Finding, Floats], ...]  # (B, I, S) of each
    noise: CellNoise


class _Fault(Struct):
    """Findings of several runs that are one part in the same benchmarks, at most one a run."""

    members: list[tuple[_Run, Finding]]
    looks: list[FaultMeasurement] = field(default_factory=list)

    @property
    def largest(self) -> tuple[_Run, Finding]:
        return max(self.members, key=lambda it: abs(math.log(it[1].slowdown)))

    @property
    def benchmarks(self) -> set[_Key]:
        """Benchmarks that all findings of the fault are about."""
        return set.intersection(*(_keys(finding) for _, finding in self.members))

    @property
    def runs(self) -> set[int]:
        """Numbers of the runs that have the fault."""
        return {look.run for look in self.looks if look.there is Presence.YES}


type _Key = tuple[str, str | None]  # a benchmark and its tune


def between_runs(runs: Sequence[SearchedRun]) -> tuple[RecurringDivot, ...]:
    """Return what recurs, what wanders, and what only one of several runs has.

    A fault recurs when two thirds of the runs that can tell (two at least) have it by their own
    times; the same kind and size at another place, or there in other benchmarks, wanders.
    """
    if len(runs) < 2:
        return ()
    prepared = [_prepared(run) for run in runs]
    groups: dict[Kind, list[list[_Fault]]] = {Kind.RECURRING: [], Kind.WANDERING: [], Kind.ONCE: []}
    loose: list[list[_Fault]] = []
    for fault in _faults(prepared):
        fault.looks = [_measure_fault(fault, run) for run in prepared]
        unknown = (Presence.OPEN, Presence.NOT_RUN)
        telling = sum(look.there not in unknown for look in fault.looks)
        if len(fault.runs) >= max(2, _OFTEN * telling):
            groups[Kind.RECURRING].append([fault])
            continue
        candidates = (group for group in loose if all(_moved(fault, member) for member in group))
        if (wandering := next(candidates, None)) is not None:
            wandering.append(fault)
        else:
            loose.append([fault])
    for group in loose:
        groups[Kind.WANDERING if len(group) > 1 else Kind.ONCE].append(group)
    divots: list[RecurringDivot] = []
    for kind, of_kind in groups.items():
        of_this_kind = [_recurring_divot(kind, group) for group in of_kind]
        of_this_kind.sort(key=lambda divot: (-abs(math.log(divot.slowdown)), divot.places[0].place))
        divots += of_this_kind
    return tuple(divots)


# -- one run --------------------------------------------------------------------------------------


def _prepared(searched: SearchedRun) -> _Run:
    table = searched.table
    values = subtract_median(table.log_s - fit_layout(table)[0][:, None])
    effects = tuple(
        (finding, _effect(table, finding))
        for finding in searched.findings
        if finding.kind in _HAS_SIZE and not finding.explained
    )
    rest = values - sum((effect for _, effect in effects), np.zeros(table.shape))
    noise, _ = estimate_noise(subtract_median(rest), clock_steps(table))
    return _Run(run=searched.run, table=table, values=values, effects=effects, noise=noise)


def _effect(table: Table, finding: Finding) -> Floats:
    """Return (B, I, S) the ln slowdown of a stored finding's copies, 0 elsewhere."""
    effect = np.zeros(table.shape)
    on_cpus = (
        np.isin(table.cpu, finding.cpus) if finding.cpus else np.ones(table.shape[2], dtype=bool)
    )
    for part in finding.singles or finding.cells:
        cell = (
            table.benchmarks.index((part.benchmark, part.tune)),
            table.iterations.index(part.iteration),
        )
        if isinstance(part, CopyEffect):
            is_member = table.copy[cell] == part.copy
        else:
            is_member = np.isin(table.copy[cell], finding.copies) & on_cpus
        effect[*cell, is_member] = math.log(part.slowdown)
    return effect


def _slots(finding: Finding, origin: _Run, target: _Run) -> Bools | None:
    """Return the slots (S,) of `target` that a finding of `origin` is about; None if it has none.

    Of a finding that moves with its copies: which copies (C,) of `target`, in order of number.
    """
    table, origin_table = target.table, origin.table
    if _moves(finding):
        slots = np.isin(np.unique(table.copy[table.copy >= 0]), finding.copies)
    elif finding.kind is Kind.SLOW_LGROUP:
        slots = np.isin(table.node, finding.nodes)
    elif finding.cpus:
        slots = np.isin(table.cpu, finding.cpus)
        if (
            np.isin(origin_table.cpu, finding.cpus).sum() > len(finding.copies)
            and origin_table.fixed
        ):
            # Other copies share those CPUs: the finding is about its own copies alone.
            slots &= np.isin(table.copy, finding.copies).any(axis=(0, 1))
        if len(np.unique(table.cpu[slots])) < _SAME_PART * len(finding.cpus):
            return None
    elif origin_table.copies == table.copies and (table.cpu == UNKNOWN).all():
        slots = np.isin(table.copy, finding.copies).any(axis=(0, 1))
    else:
        return None
    return slots if 0 < slots.sum() < len(slots) else None


def _keys(finding: Finding) -> set[_Key]:
    return {(cell.benchmark, cell.tune) for cell in finding.cells}


def _sort_of_fault(finding: Finding) -> tuple[bool, str]:
    """Return what findings of one fault have in common: slow or fast, of what."""
    return finding.fast, _SORTS.get(finding.kind, finding.kind)


def _moves(finding: Finding) -> bool:
    """Tell whether a finding is of a copy wherever it ran, which is no slot."""
    return "moves" in dict(finding.details)


def _share(members: Bools, others: Bools) -> float:
    return int((members & others).sum()) / max(1, int((members | others).sum()))


# -- one fault in several runs --------------------------------------------------------------------


def _faults(runs: Sequence[_Run]) -> list[_Fault]:
    faults: list[_Fault] = []
    for run in runs:
        for finding, effect in run.effects:
            if finding.kind in PLACED:
                slots = (effect != 0).any(axis=(0, 1))
                matching = next(
                    (fault for fault in faults if _same(fault, run, finding, slots)), _Fault([])
                )
                if not matching.members:
                    faults.append(matching)
                matching.members.append((run, finding))
    return faults


def _same(fault: _Fault, run: _Run, finding: Finding, finding_slots: Bools) -> bool:
    """Tell whether a finding on `finding_slots` (S,) of a run is a fault of earlier runs."""
    origin, first = fault.members[0]
    if any(member is run for member, _ in fault.members) or not _keys(first) & _keys(finding):
        return False
    if _sort_of_fault(first) != _sort_of_fault(finding):
        return False
    if _moves(first) or _moves(finding):
        return _moves(first) and _moves(finding) and first.copies == finding.copies
    slots = _slots(first, origin, run)
    return slots is not None and _share(slots, finding_slots) >= _SAME_PART


def _measure_fault(fault: _Fault, run: _Run) -> FaultMeasurement:
    """Return how a fault shows in a run: by that run's own finding, else by its times."""
    for member_run, finding in fault.members:
        if member_run is run:
            return FaultMeasurement(
                run=run.run,
                there=Presence.YES,
                place=finding.place,
                benchmarks=finding.benchmarks,
                slowdown=finding.slowdown,
            )
    origin, largest = fault.largest
    measured = _measured(largest, origin, run, fault.benchmarks if largest.benchmarks else set())
    if measured is None:
        return FaultMeasurement(
            run=run.run,
            there=Presence.NOT_RUN,
            place=largest.place,
            benchmarks=largest.benchmarks,
            slowdown=None,
        )
    fault_size = math.log(largest.slowdown)
    return FaultMeasurement(
        run=run.run,
        there=_presence(measured, fault_size),
        place=largest.place,
        benchmarks=largest.benchmarks,
        slowdown=math.exp(measured.size),
    )


def _presence(measured: _PartSize, fault_size: float) -> Presence:
    """Return whether a part that differs by `measured` has a fault of `fault_size` (ln)."""
    toward_fault = measured.size * math.copysign(1, fault_size)
    if toward_fault <= measured.reach:
        is_possible = toward_fault + measured.reach >= abs(fault_size)
        return Presence.OPEN if is_possible else Presence.NO
    return Presence.YES if toward_fault >= _SHOWS * abs(fault_size) else Presence.SMALLER


class _PartSize(Struct, frozen=True):
    """The ln slowdown of a part in one run, and the half width of its interval."""

    size: float
    reach: float


def _measured(finding: Finding, origin: _Run, target: _Run, keys: set[_Key]) -> _PartSize | None:
    """Return by how much a finding's part differs in another run, by that run's own times.

    Over the benchmarks `keys`, over all of that run if `keys` is empty. None: that run has no such
    benchmark, or no copies of the part that ended well.

    The size is the median over benchmarks of mean(inside the part) - mean(outside), each a Huber
    mean, over all iterations. A finding of some iterations is also sought in every single one: the
    largest size in its direction counts then. The level of the interval, 1 - `_CONFIDENCE`, is
    divided by twice the number of looks (Bonferroni).
    """
    noise = target.noise
    slots = _slots(finding, origin, target)
    rows = [row for row, key in enumerate(target.table.benchmarks) if not keys or key in keys]
    if slots is None or not rows:
        return None
    values = _values_of_part(finding, target, slots)[rows]
    sd = np.sqrt(noise.value.variance[rows])[:, None]
    differences = huber_mean(values[:, :, slots], sd) - huber_mean(values[:, :, ~slots], sd)
    fewer = float(min(slots.sum(), (~slots).sum()))  # copies of the smaller side
    looks = [huber_mean(differences, sd[:, 0])]  # over all iterations; each look (B,)
    variances = [noise.repeat.variance[rows] / noise.iterations_run[rows] / fewer]
    if len(finding.iterations) not in (0, len(origin.table.iterations)):
        looks += list(differences.T)
        variances += [noise.value.variance[rows] / fewer] * differences.shape[1]
    sizes = {
        look: float(np.nanmedian(by_benchmark))
        for look, by_benchmark in enumerate(looks)
        if np.isfinite(by_benchmark).any()
    }
    if not sizes:
        return None
    direction = 1 if finding.slowdown > 1 else -1
    best = max(sizes, key=lambda look: direction * sizes[look])
    # Parts of a healthy machine differ by `PARTS.typical` beside the noise of copies.
    error = math.sqrt(float(np.mean(variances[best])) / len(rows) + PARTS.typical**2)
    degrees = max(1.0, float(np.sum(noise.repeat.df[rows])))
    confidence = 1 - (1 - _CONFIDENCE) / 2 / len(looks)
    return _PartSize(sizes[best], t_quantile(confidence, degrees) * error)


def _values_of_part(finding: Finding, target: _Run, slots: Bools) -> Floats:
    """Return the times (B, I, S) of a run without its own findings of other parts.

    Of a finding that moves with its copies (B, I, C): by copy, and without all findings of the run.
    """
    moves = _moves(finding)
    of_other_parts = (
        effect
        for _, effect in target.effects
        if moves or _share((effect != 0).any(axis=(0, 1)), slots) < _SAME_PART
    )
    values = target.values - sum(of_other_parts, np.zeros(target.table.shape))
    return values_by_copy(target.table, values)[1] if moves else values


def _moved(fault: _Fault, other: _Fault) -> bool:
    """Tell whether two faults may be one that moved: other runs, another place, the same size."""
    (_, finding), (_, other_finding) = fault.largest, other.largest
    if fault.runs & other.runs or _sort_of_fault(finding) != _sort_of_fault(other_finding):
        return False
    sizes = sorted(abs(math.log(member.slowdown)) for member in (finding, other_finding))
    many = sorted(len(member.copies) for member in (finding, other_finding))
    if sizes[1] > _TWICE * sizes[0] or many[1] > _TWICE * many[0]:
        return False
    # Elsewhere in the same benchmarks, or there in others.
    return bool(_keys(finding) & _keys(other_finding)) != (finding.place == other_finding.place)


def _recurring_divot(kind: Kind, group: Sequence[_Fault]) -> RecurringDivot:
    """Return a group of faults as one divot, with one measurement of each run."""
    # A run's measurement is that of the first fault, but for a fault that the run has.
    looks = {look.run: look for fault in reversed(group) for look in fault.looks}
    looks |= {
        look.run: look for fault in group for look in fault.looks if look.there is Presence.YES
    }
    ordered = tuple(looks[look.run] for look in group[0].looks)
    findings = [finding for fault in group for _, finding in fault.members]
    named = [
        {name for name, _ in fault.benchmarks}
        for fault in group
        if any(finding.benchmarks for _, finding in fault.members)
    ]
    names = set.intersection(*named) or set.union(*named) if named else set()

    def every(field_name: str) -> tuple[int, ...]:
        numbers: set[int] = set()
        return tuple(sorted(numbers.union(*(getattr(finding, field_name) for finding in findings))))

    return RecurringDivot(
        kind=kind,
        of=group[0].largest[1].kind,
        benchmarks=tuple(sorted(names)),
        looks=ordered,
        slowdown=median(look.slowdown or 1.0 for look in ordered if look.there is Presence.YES),
        copies=every("copies"),
        nodes=every("nodes"),
        cpus=every("cpus"),
    )
