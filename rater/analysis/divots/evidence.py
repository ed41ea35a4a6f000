"""What differs between the copies of a finding and the others, and may tell why; pure.

A finding says where and how much; numbers stored beside the times may say why. Every number is
compared between the finding's copies and the others of the same benchmark and iteration (for a
finding of whole iterations: each copy with itself in the other ones). A number is evidence only
where it is known of most copies of both sides, where the medians differ by what matters in
practice and by more than the others differ among themselves, in most of the cells, and in the
direction that slows. Copies of the finding that do not show it are not accused of it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from statistics import median

from msgspec import Struct, field
from msgspec.structs import replace

from rater.analysis.divots.measures import (
    CPU_TIME,
    MEASURES,
    OF_MORE_CPU_TIME,
    SHARED,
    UNITS,
    WAITED,
    WAITED_FOR_OTHERS,
    CellKey,
    Measure,
    Row,
    Rows,
    rows_of,
)
from rater.analysis.divots.model.finding import (
    LEAST_MEASURED_WEIGHT,
    MOST_MEASURED_WEIGHT,
    PLACED,
    Evidence,
    EvidenceKind,
    Finding,
    Kind,
)
from rater.analysis.divots.time_causes import attribute, shares_evidence, time_shares
from rater.analysis.stats.robust import MAD_TO_SD
from rater.record.events import CopyEnded
from rater.record.stored import StoredRun
from rater.text.cpuset import copy_numbers_text
from rater.text.values import group_by_key


class _Sides(Struct, frozen=True):
    """Rows that are compared: those of the finding, and others of the same work."""

    members: list[Row] = field(default_factory=list)
    others: list[Row] = field(default_factory=list)


# -- Whom to compare -------------------------------------------------------------------------------

# Of whole iterations, by what the copies are compared with.
_OVER_TIME = {
    Kind.SLOW_ITERATION: "other iterations",
    Kind.STARTUP: "other iterations",
    Kind.STEP: "other iterations",
    Kind.WARM_UP: "other iterations",
    Kind.DRIFT: "before",
}
_HALVES = (Kind.BIMODAL, Kind.GRADIENT)  # the slow half against the fast one
_NOT_COMPARED = (Kind.WANDERING, Kind.RECURRING, Kind.LAYOUT)


def _sides(finding: Finding, rows: Rows) -> Iterable[_Sides]:
    """Return the finding's copies and those to compare with, cell by cell.

    Of whole iterations each copy's runs of a benchmark in the slow ones, and in its other ones.
    """
    cells = dict.fromkeys((cell.benchmark, cell.tune, cell.iteration) for cell in finding.cells)
    if finding.kind in _HALVES:
        return [_cut_in_halves(rows.get(cell, ())) for cell in cells]
    if finding.kind in _OVER_TIME:
        return _sides_over_time(finding, rows, cells.keys())
    singles = {
        (single.benchmark, single.tune, single.iteration, single.copy) for single in finding.singles
    }
    copies, cpus = frozenset(finding.copies), frozenset(finding.cpus)

    def is_member(cell: CellKey, copy: CopyEnded) -> bool:
        if singles:
            return (*cell, copy.copy) in singles
        # With rotating binding a copy is one of the finding's only where it ran on its CPUs.
        return copy.copy in copies and (not cpus or copy.cpu is None or copy.cpu in cpus)

    sides = []
    for cell in cells:
        compared = _Sides()
        for row in rows.get(cell, ()):
            (compared.members if is_member(cell, row.copy) else compared.others).append(row)
        sides.append(compared)
    return sides


def _sides_over_time(finding: Finding, rows: Rows, cells: Collection[CellKey]) -> Iterable[_Sides]:
    """Return each copy's runs of a benchmark in a finding's iterations, and in its other ones.

    Of a drift, those of its last and of its first iteration.
    """
    benchmarks = {cell[:2] for cell in cells}
    iterations = {iteration for *_, iteration in cells}
    sides: defaultdict[object, _Sides] = defaultdict(_Sides)
    for cell, in_cell in rows.items():
        benchmark, iteration = cell[:2], cell[2]
        is_member = cell in cells
        if finding.kind is Kind.DRIFT:
            if iteration not in (min(iterations), max(iterations)):
                continue
            is_member = iteration == max(iterations)
        for row in in_cell if benchmark in benchmarks else ():
            compared = sides[benchmark, row.copy.copy]
            (compared.members if is_member else compared.others).append(row)
    return sides.values()


def _cut_in_halves(rows: Sequence[Row]) -> _Sides:
    """Return the slow and the fast rows of a cell, cut where both vary least inside.

    Of n values in order, cut after the k-th, the squares between the two parts are
    before^2 / k + (total - before)^2 / (n - k) with `before` the sum of the first k: where these
    are largest the squares inside are least (W. D. Fisher, JASA 53, 1958).
    """
    ordered = sorted(rows, key=lambda row: row.copy.elapsed_ns)
    times = [math.log(row.copy.elapsed_ns) for row in ordered]
    n, total, before = len(times), sum(times), 0.0
    best, cut = -math.inf, 0
    for k, value in enumerate(times[:-1], 1):
        before += value
        between = before**2 / k + (total - before) ** 2 / (n - k)
        best, cut = max((best, cut), (between, k))
    return _Sides(members=ordered[cut:], others=ordered[:cut])


# -- What to compare -------------------------------------------------------------------------------

_NEXT_TO_NOTHING = 0.005  # the others' share, if no larger, is not told
# What has to be read of a copy before nothing recorded explains its time.
_PARTS_OF_TIME = {CPU_TIME, "slept"}
_SPREADS = 3.0  # standard deviations of the others among themselves; less is their own noise
_HALF = 0.5  # of the typical difference: a cell, or a copy, with as much shows it
_MOST = 2 / 3  # of copies, that a number must be known of; of cells, that must show it
_MOST_NAMED = 8  # copies; of more their number is told
_WAYS = 20  # equally likely ones, of which one comes by chance in 5 %


def add_evidence(findings: Sequence[Finding], run: StoredRun) -> tuple[Finding, ...]:
    """Return the findings, each with what differs between its copies and the others.

    Findings that the layout explains are not changed. Torn attempts, failed copies and
    iterations that do not count are left out. Nothing is added where the run has
    nothing beyond times.
    """
    rows = rows_of(run) if any(not finding.explained for finding in findings) else {}
    return tuple(
        finding
        if finding.explained or finding.kind in _NOT_COMPARED
        else attribute(_with_evidence(finding, rows), run)
        for finding in findings
    )


def _with_evidence(finding: Finding, rows: Rows) -> Finding:
    cells = [sides for sides in _sides(finding, rows) if sides.members and sides.others]
    candidates = [
        _compare(measure, cells, finding)
        for measure in MEASURES
        # Of a measure without a number, words cannot say that fast copies lack it.
        if cells and ("{}" in measure.words or not finding.fast)
    ]
    candidates.append(_shared_by_benchmarks(finding, rows))
    measured = [evidence for evidence in candidates if evidence]
    if any(evidence.name in OF_MORE_CPU_TIME for evidence in measured):
        measured = [evidence for evidence in measured if evidence.name != CPU_TIME]
    measured.sort(key=lambda evidence: -evidence.weight)
    # Of CPU time, elapsed time and its parts say nothing.
    both = [(sides.members, sides.others) for sides in cells]
    shares = None if finding.by_cpu or finding.fast else time_shares(both)
    in_words = shares and shares_evidence(shares)
    recorded = {name for sides in cells for row in sides.members for name in row.numbers}
    if not measured and not in_words and recorded >= _PARTS_OF_TIME:
        measured.append(EvidenceKind.UNEXPLAINED.evidence("nothing recorded explains it"))
    of_times = [evidence for evidence in finding.evidence if evidence.others is None]
    told = (*of_times, *measured, *([in_words] if in_words else []))
    return replace(finding, evidence=told, time_shares=shares)


def _by_copy(name: str, rows: Sequence[Row]) -> dict[int, list[float]]:
    """Return a number of the rows by copy; empty where too few rows have it."""
    values = [(row.copy.copy, row.numbers[name]) for row in rows if name in row.numbers]
    return group_by_key(values) if len(values) >= _MOST * len(rows) else {}


class _Contrast(Struct, frozen=True, kw_only=True):
    """A number of a finding's copies beside that of the others, in the cells that have it of both.

    Medians of each cell; `deviations` are those of each of the others from their median.
    """

    members: list[float]
    others: list[float]
    deviations: list[float]
    excess: Mapping[int, list[float]]  # by copy of the finding: its value less the others' median

    @property
    def differences(self) -> list[float]:
        """Of the medians, cell by cell."""
        return [member - other for member, other in zip(self.members, self.others, strict=True)]

    def copies_that_show(self, difference: float) -> list[int]:
        """Return the finding's copies that have at least half of a difference."""
        return sorted(
            copy for copy, values in self.excess.items() if median(values) / difference >= _HALF
        )


def _contrast(name: str, cells: Sequence[_Sides]) -> _Contrast:
    """Return a number of both sides, of the cells in which it is known of most copies of both."""
    members, others, deviations = [], [], []
    excess: defaultdict[int, list[float]] = defaultdict(list)
    for sides in cells:
        of_members, of_others = _by_copy(name, sides.members), _by_copy(name, sides.others)
        if not of_members or not of_others:
            continue
        other_values = [*chain(*of_others.values())]
        usual = median(other_values)
        members.append(median(chain(*of_members.values())))
        others.append(usual)
        deviations += [abs(value - usual) for value in other_values]
        for copy, values in of_members.items():
            excess[copy] += [value - usual for value in values]
    return _Contrast(members=members, others=others, deviations=deviations, excess=excess)


def _compare(measure: Measure, cells: Sequence[_Sides], finding: Finding) -> Evidence | None:
    """Return a measure that differs notably; None if it differs little or too few cells have it."""
    contrast = _contrast(measure.name, cells)
    if len(contrast.members) < max(1.0, _MOST * len(cells)):
        return None
    differences = contrast.differences
    difference, value = median(differences), median(contrast.members)
    other = median(contrast.others)
    low, high = sorted((value, other))
    least = measure.least * high if measure.relative else measure.least
    noise = MAD_TO_SD * median(contrast.deviations)
    if not difference or abs(difference) < max(least, _SPREADS * noise):
        return None
    cells_that_show = sum(cell / difference >= _HALF for cell in differences)
    helps = difference * measure.slower * (-1 if finding.fast else 1) < 0
    if helps or high < measure.ratio * low or cells_that_show < _MOST * len(differences):
        return None
    is_ratio = not measure.of_logs and (measure.relative or high > 1)
    distance = 1 - low / high if is_ratio else abs(difference)
    if measure.of_logs:
        value, other = difference, 0.0
    weight_range = MOST_MEASURED_WEIGHT - LEAST_MEASURED_WEIGHT
    return Evidence(
        name=measure.name,
        text=_describe_measure(
            measure,
            value=value,
            other=other,
            members=[row for sides in cells for row in sides.members],
            compared_with=_OVER_TIME.get(finding.kind, "others"),
            shown_by=contrast.copies_that_show(difference),
        ),
        weight=LEAST_MEASURED_WEIGHT + weight_range * min(1.0, distance * measure.first),
        value=value,
        others=other,
    )


def _describe_measure(
    measure: Measure,
    *,
    value: float,
    other: float,
    members: Sequence[Row],
    compared_with: str,
    shown_by: Sequence[int],
) -> str:
    """Return a measure in words, both values of it, and which copies of the finding show it."""
    number = UNITS[measure.unit]
    text = measure.words.format(number(value))
    cpus = {row.copy.cpu if row.copy.last_cpu is None else row.copy.last_cpu for row in members}
    if measure.name in WAITED and len(cpus) == 1:
        text = text.replace("a CPU", f"CPU {cpus.pop()}")
    if measure.name == WAITED_FOR_OTHERS and (
        names := [row.busiest for row in members if row.busiest]
    ):
        text += f", mostly {Counter(names).most_common(1)[0][0]}"
    if measure.name == "placement":
        misplaced = next(row for row in members if row.numbers.get("placement"))
        text += f": copy {misplaced.copy.copy} {misplaced.astray}"
    elif other > (_NEXT_TO_NOTHING if measure.unit == "share" else 0) or not value:
        text += f" ({compared_with} {number(other)})"
    copies = len({row.copy.copy for row in members})
    if len(shown_by) < copies:  # copies of the finding that do not show it are not accused
        named = copy_numbers_text(shown_by)
        if len(shown_by) > _MOST_NAMED:
            named = f"{len(shown_by)} of {copies} copies"
        text = f"{named}: {text}"
    return text


def _shared_by_benchmarks(finding: Finding, rows: Rows) -> Evidence | None:
    """Return what the benchmarks of a slow part have in common, and no other of the run has.

    All of k of n benchmarks lie above all others by chance in one of (n over k) cases.
    """
    names = {name for name, _, _ in rows}
    ways = math.comb(len(names), len(finding.benchmarks))
    if finding.kind not in PLACED or finding.fast or ways < _WAYS:
        return None
    for measure in SHARED:
        values: defaultdict[str, list[float]] = defaultdict(list)
        for (name, _, _), in_cell in rows.items():
            values[name] += chain(*_by_copy(measure.name, in_cell).values())
        typical = {name: median(of_name) for name, of_name in values.items() if of_name}
        suffering = [typical.pop(name) for name in finding.benchmarks if name in typical]
        if len(suffering) + len(typical) < len(names):
            continue
        least, most = min(suffering), max(typical.values())
        if least < measure.ratio * most:
            continue
        number = UNITS[measure.unit]
        text = f"{measure.words.format(number(least))} or more"
        text += f" (other benchmarks at most {number(most)})"
        return Evidence(
            name=measure.name, text=text, weight=LEAST_MEASURED_WEIGHT, value=least, others=most
        )
    return None
