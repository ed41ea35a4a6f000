"""Numbers that benchmarks report of themselves (GB/s, ns, GUPS), over copies and lgroups; pure.

A copy's value is what its run of the iteration reported; in rotated order the
mean over its counted runs, in steady mode the mean over its runs in the window,
one that crosses an edge weighted by its share inside. Over copies it is the sum
or the mean, as the suite says; over iterations the median one counts, of two
the worse (the lower where neither direction is better).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rater.analysis.results.copy_outcome import is_good, what_happened
from rater.analysis.results.steady import is_steady, share_inside
from rater.groups import grouped
from rater.record.run import BenchmarkUsed, MetricUsed
from rater.record.stored import StoredBracket, StoredCopy, StoredRun


@dataclass(frozen=True, slots=True)
class MetricCopy:
    """What one copy reported, and where it ran."""

    copy: int
    cpu: int | None
    node: int | None
    value: float


@dataclass(frozen=True, slots=True)
class MetricLgroup:
    """The copies of one lgroup."""

    node: int | None
    copies: int
    value: float | None  # sum or mean over them; None: the sum is no number any more
    minimum: float
    maximum: float


@dataclass(frozen=True, slots=True)
class MetricResult:
    """One metric of one benchmark."""

    benchmark: str
    name: str
    unit: str
    better: str | None  # "higher", "lower" or None
    combine: str  # over copies: "sum" or "mean"
    iteration: int | None  # that counts; None: over all runs (rotated order)
    iterations: int  # of which it is the median one
    value: float | None  # over all copies; None: some copy has none
    copies: int  # that reported it
    median: float | None
    minimum: MetricCopy | None
    maximum: MetricCopy | None
    lgroups: tuple[MetricLgroup, ...]  # by node; the copies whose node is not known last
    reason: str | None  # why there is no value, in words

    @property
    def worst(self) -> MetricCopy | None:
        """The copy that is furthest on the wrong side, None where neither side is."""
        return {"higher": self.minimum, "lower": self.maximum}.get(self.better or "")


def metric_results(run: StoredRun) -> tuple[MetricResult, ...]:
    """Return every declared metric of a run, whatever of it there is; torn attempts left out."""
    if not any(used.metrics for used in run.benchmarks):
        return ()
    brackets = {bracket.phase: bracket for bracket in run.brackets if not bracket.torn}
    steady = is_steady(run.head)
    # By benchmark, then iteration (None: all rounds together): the rows that count, with weights.
    groups: dict[str, dict[int | None, list[tuple[StoredCopy, float]]]] = {}
    for row in run.copies:
        bracket = brackets.get(row.phase)
        if bracket is None or not row.counted:
            continue
        weight = _weight(row, bracket) if steady else 1.0
        if weight > 0:
            iteration = bracket.iteration
            groups.setdefault(row.benchmark, {}).setdefault(iteration, []).append((row, weight))
    return tuple(
        _over_iterations(run, used, metric, groups.get(used.name, {}))
        for used in run.benchmarks
        for metric in used.metrics
    )


def _weight(row: StoredCopy, bracket: StoredBracket) -> float:
    if is_good(row):
        return share_inside(row, bracket)
    begin, end = bracket.window_start_ns, bracket.window_finish_ns
    if None in (begin, end, row.start_ns, row.finish_ns):
        return 0.0
    # A run that went wrong is no value, but it must not be overlooked either.
    return float((row.finish_ns or 0) > (begin or 0) and (row.start_ns or 0) < (end or 0))


def _over_iterations(
    run: StoredRun,
    used: BenchmarkUsed,
    metric: MetricUsed,
    groups: Mapping[int | None, Sequence[tuple[StoredCopy, float]]],
) -> MetricResult:
    results = [
        _result(run, used.name, metric, iteration, groups[iteration])
        for iteration in sorted(groups, key=lambda number: number or 0)
    ]
    whole = [result for result in results if result.value is not None]
    if not results:
        return _result(run, used.name, metric, None, ())
    if len(whole) < len(results):
        # As with the ratio: an iteration that went wrong leaves no result to pick.
        return next(result for result in results if result.value is None)
    ordered = sorted(whole, key=lambda result: result.value or 0.0)
    if metric.better == "lower":
        ordered.reverse()
    chosen = ordered[(len(ordered) - 1) // 2]
    return replace(chosen, iterations=len(whole))


def _result(
    run: StoredRun,
    benchmark: str,
    metric: MetricUsed,
    iteration: int | None,
    rows: Sequence[tuple[StoredCopy, float]],
) -> MetricResult:
    copies = _copies(metric.name, rows)
    values = [copy.value for copy in copies]
    reason = _why_no_value(run, metric.name, [row for row, _ in rows])
    value = _combined(metric, values)
    if reason is None and value is None:
        reason = "too large to add up"
    by_node = grouped((copy.node, copy.value) for copy in copies)
    return MetricResult(
        benchmark=benchmark,
        name=metric.name,
        unit=metric.unit,
        better=metric.better,
        combine=metric.combine,
        iteration=iteration,
        iterations=1 if rows else 0,
        value=None if reason else value,
        copies=len(copies),
        median=_median(values),
        minimum=min(copies, key=lambda copy: (copy.value, copy.copy), default=None),
        maximum=max(copies, key=lambda copy: (copy.value, -copy.copy), default=None),
        lgroups=tuple(
            MetricLgroup(node, len(of), _combined(metric, of), min(of), max(of))
            for node, of in sorted(
                by_node.items(), key=lambda item: (item[0] is None, item[0] or 0)
            )
        ),
        reason=reason,
    )


def _combined(metric: MetricUsed, values: Sequence[float]) -> float | None:
    if not values:
        return None
    combined = sum(values) if metric.combine == "sum" else _mean(values)
    return combined if math.isfinite(combined) else None


def _mean(values: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """Return the weighted mean, also of values whose sum is beyond what a float can hold."""
    shares = [1.0] * len(values) if weights is None else weights
    whole = sum(shares)
    added = sum(value * share for value, share in zip(values, shares, strict=True))
    if math.isfinite(added):
        return added / whole
    largest = max(map(abs, values))
    return largest * max(-1.0, min(1.0, _mean([value / largest for value in values], shares)))


def _median(values: Sequence[float]) -> float | None:
    if not values:
        return None
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else _mean(ordered[middle - 1 : middle + 1])


def _copies(name: str, rows: Sequence[tuple[StoredCopy, float]]) -> list[MetricCopy]:
    """Return the value of each copy: the weighted mean over its good runs that have one."""
    reports = grouped(
        (row.copy, (row, value, weight))
        for row, weight in rows
        if is_good(row)
        for reported, value in row.metrics
        if reported == name
    )
    return [
        MetricCopy(
            number, of[0][0].cpu, of[0][0].node, _mean([it[1] for it in of], [it[2] for it in of])
        )
        for number, of in sorted(reports.items())
    ]


def _why_no_value(run: StoredRun, name: str, rows: Sequence[StoredCopy]) -> str | None:
    if not rows:
        return "did not run"
    bad = next((row for row in rows if not is_good(row)), None)
    if bad is not None:
        return f"copy {bad.copy}: {what_happened(bad)}"
    without = {row.copy for row in rows if name not in dict(row.metrics)}
    ran = {row.copy for row in rows}
    everyone = run.head.order == "rotated" or run.head.source == "import"
    planned = len(ran) if everyone else run.head.copies
    lacking = len(without) + planned - len(ran)
    if lacking:
        return f"{lacking} of {planned} copies have none"
    return None
