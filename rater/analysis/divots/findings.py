"""What the model found as findings with names and costs; times in, divots out; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import Final

import numpy as np

from rater.analysis.divots.model import formatting
from rater.analysis.divots.model.causes import (
    FIRST_READ_S,
    Cause,
    causes_of,
    drawn,
    startups,
)
from rater.analysis.divots.model.effects import PartScope
from rater.analysis.divots.model.finding import (
    PLACED,
    Analysis,
    CellEffect,
    CopyEffect,
    Evidence,
    EvidenceKind,
    Finding,
    Kind,
    Thresholds,
)
from rater.analysis.divots.model.layout import could_make
from rater.analysis.divots.model.nulls import least_that
from rater.analysis.divots.model.search import Found, search
from rater.analysis.divots.model.table import SEVERAL, DivotEffect, Machine, Row, Table, build_table
from rater.analysis.divots.model.times import visible_iteration
from rater.analysis.divots.words import (
    cost_of,
    expectation_of,
    only_one,
    place_of,
    summary_of,
)
from rater.analysis.stats.robust import Bools, Floats, mean, median

# -- What findings cost: the score worked out again without them -----------------------------------
#
# The score is the geometric mean over the benchmarks, of each the iteration that stands by
# SPEC's rule: of three the median, of two the slower. Where copies do not wait for each
# other (rotated order, steady mode) there is no bracket: all copies' time stands for it.


def set_costs(table: Table, causes: Sequence[Cause]) -> None:
    """Set the cost of each cause.

    Each alone: 1 - score / (score with its effect taken away). The shares are those of
    taking them away one after the other, the most costly first: they add up to what all
    cost together.
    """
    log_s, start = table.log_s, np.nan_to_num(table.start_s)
    actual = _times(table, log_s, start)
    for one in causes:
        without = _times(table, *_without(log_s, start, one))
        one.lost = _lost(table, actual, without)
        rates = 1 - _results(without) / _results(actual)
        one.rate_lost = float(np.nanmax(rates[one.benchmarks], initial=0.0))
        one.cells_lost = {cell: max(0.0, 1 - without[cell] / actual[cell]) for cell in one.cells}
    lost = 0.0
    for one in sorted(causes, key=lambda it: -it.lost):
        log_s, start = _without(log_s, start, one)
        now = max(lost, _lost(table, actual, _times(table, log_s, start)))
        one.share_lost, lost = now - lost, now


def noise_cost(table: Table, rest: Floats, promised: dict[str, float]) -> float | None:
    """Return what noise alone costs, 0 to 1: what nothing explains of the times, ln (B, I, S).

    Of each benchmark the iteration that stands. None where copies do not wait for each other, and
    where a place would have been named all the same.
    """
    if not table.barrier or promised.keys() - {"iteration"}:
        return None
    known = rest[~np.isnan(rest).all(axis=(1, 2))]
    if not len(known):
        return None
    slowest = np.max(np.where(np.isnan(known), -np.inf, known), axis=2)
    over = np.where(np.isfinite(slowest), slowest - median(known), np.nan)
    return max(0.0, 1 - math.exp(-float(np.mean(_results(over)))))


def _without(log_s: Floats, start: Floats, cause: Cause) -> tuple[Floats, Floats]:
    """Return ln times and starts with a cause's effect taken away; what is faster stays so."""
    if cause.facts.get("mode") == "late-start":
        known = np.where(np.isnan(log_s), np.inf, start)
        late = cause.covered.any(axis=2)[:, :, None]
        return log_s, np.where(late, np.min(known, axis=2, keepdims=True), start)
    # What gets faster was not slowed down before.
    falls = cause.kind is Kind.DRIFT and float(cause.facts["rise"]) < 0
    return log_s if falls else log_s - np.maximum(cause.effect, 0.0), start


def _times(table: Table, log_s: Floats, start: Floats) -> Floats:
    """Return (B, I) seconds of each cell: its bracket, without a barrier its copies' time."""
    elapsed = np.exp(log_s)
    if not table.barrier:
        return np.where(np.isnan(elapsed).all(axis=2), np.nan, np.nansum(elapsed, axis=2))
    known = ~np.isnan(elapsed)
    last = np.max(np.where(known, start + np.nan_to_num(elapsed), -np.inf), axis=2)
    first = np.min(np.where(known, start, np.inf), axis=2)
    return np.where(known.any(axis=2), np.maximum(last - first, 1e-9), np.nan)


def _results(seconds: Floats) -> Floats:
    """Return (B,) the time that stands: of three iterations the median, of two the slower."""
    ordered = np.sort(seconds, axis=1)
    count = np.sum(~np.isnan(seconds), axis=1)
    found: Floats = ordered[np.arange(len(ordered)), np.minimum(count // 2, len(ordered[0]) - 1)]
    return found


def _lost(table: Table, actual: Floats, without: Floats) -> float:
    """Return the share of the score, or of all copies' time, that is won without something."""
    if not table.barrier:
        return max(0.0, 1 - float(np.nansum(without) / np.nansum(actual)))
    ratio = np.log(_results(without) / _results(actual))
    return max(0.0, 1 - float(np.exp(mean(ratio))))


# -- What the model found as findings with names, costs and evidence -------------------------------

_HASTY, _LEAST_OTHERS = 0.5, 2  # of any other's time, of so many others
_SLACK = 0.01  # ln: what an emptier lgroup gains beyond its share of the load


def build_findings(found: Found) -> list[Finding]:
    """Return the findings, the most costly first, explained ones last."""
    table = found.table
    causes = [*causes_of(found), *startups(table)]
    waits = [
        cause
        for cause in causes
        if cause.kind is Kind.STARTUP and cause.facts["mode"] != "late-start"
    ]
    causes = [  # a start-up explains a slow first iteration in the same cells
        cause
        for cause in causes
        if float(cause.facts.get("waited_s", FIRST_READ_S)) >= FIRST_READ_S
        if cause.kind not in (Kind.SLOW_ITERATION, Kind.WARM_UP)
        or not any(_mostly_in(cause, wait) for wait in waits)
    ]
    for one in causes:
        _set_sizes(one, found.rest)
    set_costs(table, causes)
    made = [_finding(table, cause) for cause in causes]
    made.sort(key=lambda one: (one.explained, *_rank(one)))
    return [*made, *(_finding(table, _of_layout(table, one)) for one in found.predicted)]


def _mostly_in(cause: Cause, start: Cause) -> bool:
    own = cause.covered.any(axis=2)
    return bool((own & start.covered.any(axis=2)).sum() >= 0.7 * own.sum())


def _set_sizes(cause: Cause, left: Floats) -> None:
    """Give a part its size in each cell; the model has one a benchmark.

    What the median of its copies lies above that of the others there, with all that is told of
    others taken away: a range over the iterations is of times that were.
    """
    if cause.kind in PLACED and "moves" not in cause.facts and len(cause.iterations) > 1:
        inside = median(np.where(cause.covered, left, np.nan))
        more = np.nan_to_num(inside - median(np.where(cause.covered, np.nan, left)))[..., None]
        cause.effect = np.where(cause.covered, cause.effect + more, 0.0)


def _rank(one: Finding) -> tuple[float, float, str, str]:
    return (-round(one.cost, 6), -abs(math.log(one.slowdown)), one.kind, one.place)


def _finding(table: Table, cause: Cause) -> Finding:
    b, i, _ = table.shape
    kind, benchmarks, slots = cause.kind, cause.benchmarks, cause.slots
    cpus, copies, nodes = (
        tuple(known[known >= 0].tolist())
        for known in map(
            np.unique, (table.cpu[slots], table.copy[cause.covered], table.node[slots])
        )
    )
    layout, placed = kind is Kind.LAYOUT, kind in PLACED and "moves" not in cause.facts
    size = float(cause.facts.get("rise", cause.size))
    most, words = could_make(table, slots, fast=size < 0) if kind in PLACED else (0.0, "")
    boost = size < 0 and most < 0 and size >= most - _SLACK
    evidence = [] if boost or layout else _evidence(table, cause)
    if words and not boost and most * size > 0:
        share = formatting.format_slowdown(math.exp(most))
        evidence.append(EvidenceKind.LAYOUT.evidence(f"up to {share} could come from {words}"))
    expectation = f"no more than {words} explain" if boost else None
    whole = len(benchmarks) == b and (cause.everywhere or b > 1)
    always = layout or (len(cause.iterations) == i > 1 and kind is not Kind.SLOW_ITERATION)
    tunes = {None} if layout else {table.benchmarks[benchmark][1] for benchmark in benchmarks}
    if cause.level == "node":
        nodes = cause.groups
    package, core = (only_one(at[slots]) if placed else None for at in (table.package, table.core))
    return Finding(
        kind=kind,
        place=place_of(table, cause, cpus, copies),
        benchmarks=()
        if whole
        else tuple(table.benchmarks[benchmark][0] for benchmark in benchmarks),
        tune=tunes.pop() if len(tunes) == 1 else None,
        iterations=()
        if always
        else tuple(table.iterations[iteration] for iteration in cause.iterations),
        copies=copies,
        cpus=cpus if placed or kind in (Kind.BIMODAL, Kind.LAYOUT) else (),
        nodes=nodes if placed or cause.level == "load" else (),
        package=cause.groups[0] if cause.level == "package" else package,
        core=None if cause.level in ("node", "package") else core,
        slowdown=math.exp(size),
        score_lost=cause.lost if table.barrier else None,
        time_lost=None if table.barrier or layout else cause.lost,
        share_lost=cause.share_lost,
        explained=boost or layout,
        expectation=str(cause.facts["expectation"]) if layout else expectation,
        summary=summary_of(table, cause),
        evidence=tuple(evidence),
        cells=() if layout else _cell_effects(table, cause),
        details=() if layout else tuple(sorted(cause.facts.items())),
        singles=_singles(table, cause) if kind in (Kind.OUTLIER_COPY, Kind.NO_PLACE) else (),
    )


def _cell_effects(table: Table, cause: Cause) -> tuple[CellEffect, ...]:
    return tuple(
        CellEffect(
            *table.benchmarks[b],
            table.iterations[i],
            math.exp(float(np.median(cause.effect[b, i][cause.covered[b, i]]))),
            cause.cells_lost[b, i],
        )
        for b, i in cause.cells
    )


def _singles(table: Table, cause: Cause) -> tuple[CopyEffect, ...]:
    return tuple(
        CopyEffect(
            *table.benchmarks[b],
            table.iterations[i],
            int(table.copy[b, i, s]),
            only_one(table.cpu[s : s + 1]),
            only_one(table.node[s : s + 1]),
            math.exp(float(cause.effect[b, i, s])),
        )
        for b, i, s in np.argwhere(cause.covered).tolist()
    )


def _evidence(table: Table, cause: Cause) -> list[Evidence]:
    """Return what the times say; stored proof and samples add their own values."""
    made = []
    if text := cost_of(table, cause):
        made.append(EvidenceKind.COST.evidence(text))
    if hasty := _hasty(table, cause):
        text = f"{formatting.format_copies(hasty)} took less than half of any other's time"
        made.append(EvidenceKind.OUTPUT.evidence(f"{text}: check its output"))
    slots = cause.slots
    node, memory = only_one(table.node[slots]), only_one(table.memory[slots])
    away = table.memory != table.node
    known = None not in (node, memory) and memory not in (node, SEVERAL)
    if cause.level == "node" and known and not away[~slots].all():
        made.append(EvidenceKind.MEMORY.evidence(f"its memory is on node {memory}"))
    return made


def _hasty(table: Table, cause: Cause) -> list[int]:
    """Return the fast copies that took less than half of the time of all others in their cell.

    No machine makes one of its copies twice as fast as each of the others: it did not do its work.
    """
    found: set[int] = set()
    for cell in cause.cells if cause.size < 0 else ():
        times, covered = np.exp(table.log_s[cell]), cause.covered[cell]
        others = times[~covered & ~np.isnan(times)]
        if len(others) >= _LEAST_OTHERS:
            found |= {*table.copy[cell][covered & (times < _HASTY * others.min())].tolist()}
    return sorted(found)


def _of_layout(table: Table, one: DivotEffect) -> Cause:
    """Return what the layout explains."""
    cause = drawn(table, [one])
    cause.kind, cause.level = Kind.LAYOUT, one.kind
    cause.facts["expectation"] = expectation_of(table, one)
    return cause


# -- What the run could show: what a part must differ by to be told, with the chance in it ---------

_FOUND: Final = 0.8  # of those that are so large
_MOST_TOLD: Final = 0.5  # ln(1.65): larger is no promise, nothing was told from the noise
_SAMPLED: Final = 48  # parts and rows that stand for all
_GROUPS: Final = ("node", "package", "llc", "memory")


def visible(found: Found) -> dict[str, float]:
    """Return the slowdowns found four times in five, as shares (0.006 is 0.6 %), by what is slow.

    `group`: the smallest lgroup (or what else divides the copies) in all benchmarks;
    `group-benchmark`: one in any one benchmark; `cpu`: a CPU in all of the run; `copy-benchmark`: a
    copy in all iterations of one benchmark; `copy`: one in any one cell; `iteration`: a slow
    iteration of all benchmarks. Missing where nothing could be told from the noise.
    """
    scopes = {(scope.family.kind, scope.name): scope for scope in found.scopes}
    kind = next((it for it in _GROUPS if (it, "one") in scopes), "")
    b, i, _ = found.table.shape
    wanted = {
        "group": scopes.get((kind, "all" if b > 1 else "one")),
        "group-benchmark": scopes.get((kind, "one")),
        "cpu": scopes.get(("copy", "all" if b > 1 else "one")),
        "copy-benchmark": scopes.get(("copy", "one")) if b > 1 and i > 1 else None,
        "copy": scopes.get(("copy", "cell" if i > 1 else "one")),
    }
    sizes = {name: _of(one) for name, one in wanted.items() if one is not None}
    iteration = visible_iteration(found.over_time, found.effects)
    if iteration is not None:
        sizes["iteration"] = iteration
    return {name: math.expm1(size) for name, size in sizes.items() if size <= _MOST_TOLD}


def _of(scope: PartScope) -> float:
    """Return the size (ln) with which most of the smallest parts are found."""
    smallest = np.flatnonzero(scope.family.sizes == scope.family.sizes.min())
    rows, parts = np.meshgrid(np.arange(len(scope.d)), smallest, indexing="ij")
    step = max(1, rows.size // _SAMPLED)
    at = (rows.ravel()[::step], parts.ravel()[::step])
    price = scope.price + (math.log(2) if scope.name == "one" and len(scope.d) > 1 else 0.0)
    low, most = np.zeros(len(at[0])), np.full(len(at[0]), 2 * _MOST_TOLD)
    told = least_that(lambda size: scope.evidence(size, at) > price, low, most)
    least, error = np.maximum(told, scope.floor), scope.error[at]

    def found(size: Floats) -> Bools:
        seen = np.mean([NormalDist().cdf(z) for z in ((size - least) / error).tolist()])
        return np.array([seen >= _FOUND])

    most = np.array([least.max() + 6 * error.max()])
    return float(least_that(found, np.array([least.min()]), most)[0])


# -- A run's times in, its divots out --------------------------------------------------------------


def analyse(
    chunks: Iterable[Sequence[Row]],
    benchmarks: Sequence[tuple[str, str | None]],
    thresholds: Thresholds,
    *,
    core_pus: Sequence[tuple[int, int]] = (),
    barrier: bool = True,
    staggered: bool = False,
) -> Analysis:
    """Return the divots of a run given as rows (`Row`).

    `benchmarks` are those that the rows number, with their tunes; `barrier`: all
    copies run one benchmark at a time; `staggered`: started one after the other on
    purpose. A run without a copy that ended well has no findings and shows nothing.
    """
    machine, parts = Machine(tuple(core_pus)), tuple(chunks)
    table = build_table(parts, benchmarks, machine=machine, barrier=barrier, staggered=staggered)
    if table is None:
        return Analysis(findings=(), visible={}, failed=sum(len(part) for part in parts))
    found = search(table, thresholds)
    promised = visible(found)
    alone = noise_cost(table, found.rest, promised) if found.scopes else None
    return Analysis(
        findings=tuple(build_findings(found)),
        visible=promised,
        failed=table.failed,
        noise_cost=alone,
    )
