"""Causes of the model as findings with names and costs; times in, divots out; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import Final

import numpy as np
from msgspec.structs import replace

from rater.analysis.divots.model import formatting
from rater.analysis.divots.model.causes import Cause, draw_effects, find_causes
from rater.analysis.divots.model.comparison import ComparisonScope, PartComparison
from rater.analysis.divots.model.effects import DivotEffect, EffectKind
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
from rater.analysis.divots.model.nulls import least_sufficient
from rater.analysis.divots.model.search import SearchResult, search
from rater.analysis.divots.model.startups import FIRST_READ_S, find_startups
from rater.analysis.divots.model.table import SEVERAL, Machine, Row, Table, build_table
from rater.analysis.divots.model.times import visible_iteration
from rater.analysis.divots.words import (
    cost_of,
    expectation_of,
    only_one,
    place_of,
    summary_of,
)
from rater.analysis.stats.robust import Bools, Floats, Ints, mean, median, median_without_gaps
from rater.text.cpuset import copy_numbers_text

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
    log_s, start_s = table.log_s, np.nan_to_num(table.start_s)
    actual_s = _cell_times(table, log_s, start_s)
    for cause in causes:
        without_s = _cell_times(table, *_without(log_s, start_s, cause))
        cause.lost = _lost(table, actual_s, without_s)
        rates_lost = 1 - _standing_times(without_s) / _standing_times(actual_s)
        cause.rate_lost = float(np.nanmax(rates_lost[cause.benchmarks], initial=0.0))
        cause.cells_lost = {
            cell: max(0.0, 1 - without_s[cell] / actual_s[cell]) for cell in cause.cells
        }
    lost_before = 0.0
    for cause in sorted(causes, key=lambda cause: -cause.lost):
        log_s, start_s = _without(log_s, start_s, cause)
        lost = max(lost_before, _lost(table, actual_s, _cell_times(table, log_s, start_s)))
        cause.share_lost, lost_before = lost - lost_before, lost


def noise_cost(table: Table, rest: Floats, promised: dict[str, float]) -> float | None:
    """Return the share of the score, 0 to 1, that noise alone costs.

    `rest` (B, I, S): ln of the times with all that is explained taken away. Of each benchmark the
    iteration that stands counts. None if copies do not wait for each other, or if `promised` has a
    place that would have been named all the same.
    """
    if not table.barrier or promised.keys() - {"iteration"}:
        return None
    measured = rest[~np.isnan(rest).all(axis=(1, 2))]
    if not len(measured):
        return None
    slowest = np.max(np.where(np.isnan(measured), -np.inf, measured), axis=2)
    over_median = np.where(np.isfinite(slowest), slowest - median(measured), np.nan)
    return max(0.0, 1 - math.exp(-float(np.mean(_standing_times(over_median)))))


def _without(log_s: Floats, start_s: Floats, cause: Cause) -> tuple[Floats, Floats]:
    """Return ln times and starts (B, I, S) with what a cause slows taken away.

    Copies that a cause makes faster stay as fast.
    """
    if cause.facts.get("mode") == "late-start":
        starts_s = np.where(np.isnan(log_s), np.inf, start_s)
        is_late = cause.covered.any(axis=2)[:, :, None]
        return log_s, np.where(is_late, np.min(starts_s, axis=2, keepdims=True), start_s)
    # Iterations that get faster were not slowed down before.
    falls = cause.kind is Kind.DRIFT and float(cause.facts["rise"]) < 0
    return log_s if falls else log_s - np.maximum(cause.effect, 0.0), start_s


_LEAST_TIME_S: Final = 1e-9  # no bracket is empty: rates divide by it


def _cell_times(table: Table, log_s: Floats, start_s: Floats) -> Floats:
    """Return (B, I) seconds of each cell: its bracket, without a barrier its copies' time."""
    elapsed_s = np.exp(log_s)
    if not table.barrier:
        return np.where(np.isnan(elapsed_s).all(axis=2), np.nan, np.nansum(elapsed_s, axis=2))
    has_run = ~np.isnan(elapsed_s)
    last_s = np.max(np.where(has_run, start_s + np.nan_to_num(elapsed_s), -np.inf), axis=2)
    first_s = np.min(np.where(has_run, start_s, np.inf), axis=2)
    return np.where(has_run.any(axis=2), np.maximum(last_s - first_s, _LEAST_TIME_S), np.nan)


def _standing_times(seconds: Floats) -> Floats:
    """Return (B,) the time that stands: of three iterations the median, of two the slower."""
    ordered = np.sort(seconds, axis=1)
    count = np.sum(~np.isnan(seconds), axis=1)
    middle = np.minimum(count // 2, ordered.shape[1] - 1)
    standing: Floats = ordered[np.arange(len(ordered)), middle]
    return standing


def _lost(table: Table, actual_s: Floats, without_s: Floats) -> float:
    """Return the share of the score, or of all copies' time, lost between (B, I) times."""
    if not table.barrier:
        return max(0.0, 1 - float(np.nansum(without_s) / np.nansum(actual_s)))
    ratio = np.log(_standing_times(without_s) / _standing_times(actual_s))
    return max(0.0, 1 - float(np.exp(mean(ratio))))


# -- Causes of the model as findings with names, costs and evidence --------------------------------

_HASTY, _LEAST_OTHERS = 0.5, 2  # of any other's time, of so many others
_SLACK = 0.01  # ln: the gain of an emptier lgroup beyond its share of the load
_MOSTLY = 0.7  # of a cause's cells: it is the same as the start-up that has as many of them


def build_findings(search_result: SearchResult) -> list[Finding]:
    """Return the findings, the most costly first, explained ones last."""
    table = search_result.table
    causes = [*find_causes(search_result), *find_startups(table)]
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
        or not any(_is_mostly_in(cause, wait) for wait in waits)
    ]
    for cause in causes:
        _set_sizes(cause, search_result.residuals)
    set_costs(table, causes)
    _add_sizes_of_wholes(causes)
    findings = [_finding(table, cause) for cause in causes]
    findings.sort(key=lambda finding: (finding.explained, *_rank(finding)))
    predicted = [_cause_of_layout(table, effect) for effect in search_result.predicted]
    return [*findings, *(_finding(table, cause) for cause in predicted)]


def _is_mostly_in(cause: Cause, start_up: Cause) -> bool:
    cells = cause.covered.any(axis=2)
    return bool((cells & start_up.covered.any(axis=2)).sum() >= _MOSTLY * cells.sum())


def _set_sizes(cause: Cause, rest: Floats) -> None:
    """Give a part its size in each cell; the model has one size a benchmark.

    It is the median of its copies above that of the others there, with the effects of all other
    causes taken away: a range over the iterations is of times that were measured.
    """
    if cause.kind in PLACED and "moves" not in cause.facts and len(cause.iterations) > 1:
        inside = median(np.where(cause.covered, rest, np.nan))
        outside = median(np.where(cause.covered, np.nan, rest))
        more = np.nan_to_num(inside - outside)[..., None]
        cause.effect = np.where(cause.covered, cause.effect + more, 0.0)


def _add_sizes_of_wholes(causes: Sequence[Cause]) -> None:
    """Give a slow copy inside a slow part its size against the copies that are not slow at all.

    Its cost stays what it costs beside the part.
    """
    own_effects = [cause.effect for cause in causes]
    for cause in causes:
        for whole, effect in zip(causes, own_effects, strict=True):
            if _is_inside(cause, whole):
                cause.effect = np.where(cause.covered, cause.effect + effect, 0.0)


def _is_inside(cause: Cause, whole: Cause) -> bool:
    """Tell whether a slow place is in a larger slow place, in all of its cells."""
    if cause.kind not in PLACED or whole.kind not in PLACED or "moves" in cause.facts:
        return False
    smaller = bool((cause.slots <= whole.slots).all() and (cause.slots != whole.slots).any())
    return smaller and not (cause.covered & ~whole.covered).any() and cause.size > 0 < whole.size


def _rank(finding: Finding) -> tuple[float, float, str, str]:
    size = abs(math.log(finding.slowdown))
    return (-round(finding.cost, 6), -size, finding.kind, finding.place)


def _finding(table: Table, cause: Cause) -> Finding:
    kind, slots = cause.kind, cause.slots
    is_layout = kind is Kind.LAYOUT
    is_placed = kind in PLACED and "moves" not in cause.facts
    cpus, copies = _known(table.cpu[slots]), _known(table.copy[cause.covered])
    nodes = cause.groups if cause.level == "node" else _known(table.node[slots])
    size = float(cause.facts.get("rise", cause.size))
    layout_size, layout_words = 0.0, ""
    if kind in PLACED:
        layout_size, layout_words = could_make(table, slots, fast=size < 0)
    is_boost = size < 0 and layout_size < 0 and size >= layout_size - _SLACK
    evidence = [] if is_boost or is_layout else _evidence(table, cause)
    if layout_words and not is_boost and layout_size * size > 0:
        share = formatting.format_slowdown(math.exp(layout_size))
        text = f"up to {share} could come from {layout_words}"
        evidence.append(EvidenceKind.LAYOUT.evidence(text))
    divot = Finding(
        kind=kind,
        place=place_of(table, cause, cpus, copies),
        benchmarks=_benchmarks_named(table, cause),
        tune=_only_tune(table, cause),
        iterations=_iterations_named(table, cause),
        copies=copies,
        cpus=cpus if is_placed or kind in (Kind.BIMODAL, Kind.LAYOUT, Kind.UNSTEADY) else (),
        nodes=nodes if is_placed or cause.level == "load" else (),
        package=_package(table, cause) if is_placed or cause.level == "package" else None,
        core=only_one(table.core[slots])
        if is_placed and cause.level not in ("node", "package")
        else None,
        slowdown=math.exp(size),
        score_lost=cause.lost if table.barrier else None,
        time_lost=None if table.barrier else cause.lost,
        share_lost=cause.share_lost,
        explained=is_boost,
        expectation=f"no more than {layout_words} explain" if is_boost else None,
        summary=summary_of(table, cause),
        evidence=tuple(evidence),
        cells=() if is_layout else _cell_effects(table, cause),
        details=tuple(sorted(cause.facts.items())),
        singles=_singles(table, cause) if kind in (Kind.OUTLIER_COPY, Kind.NO_PLACE) else (),
    )
    return _explained_by_layout(divot, cause) if is_layout else divot


def _explained_by_layout(finding: Finding, cause: Cause) -> Finding:
    """Return a finding as one that the layout predicts: of all iterations, of no time lost."""
    return replace(
        finding,
        tune=None,
        iterations=(),
        time_lost=None,
        explained=True,
        expectation=str(cause.facts["expectation"]),
        details=(),
    )


def _known(numbers: Ints) -> tuple[int, ...]:
    """Return numbers, ascending and each once, without the unknown (negative) one."""
    distinct = np.unique(numbers)
    return tuple(distinct[distinct >= 0].tolist())


def _benchmarks_named(table: Table, cause: Cause) -> tuple[str, ...]:
    """Return the names of a cause's benchmarks; empty for all of the run."""
    benchmarks, of_run = cause.benchmarks, len(table.benchmarks)
    if len(benchmarks) == of_run and (cause.everywhere or of_run > 1):
        return ()
    return tuple(table.benchmarks[benchmark][0] for benchmark in benchmarks)


def _only_tune(table: Table, cause: Cause) -> str | None:
    tunes = {table.benchmarks[benchmark][1] for benchmark in cause.benchmarks}
    return tunes.pop() if len(tunes) == 1 else None


def _iterations_named(table: Table, cause: Cause) -> tuple[int, ...]:
    """Return the numbers of a cause's iterations; empty for all of several."""
    of_run = len(table.iterations)
    if len(cause.iterations) == of_run > 1 and cause.kind is not Kind.SLOW_ITERATION:
        return ()
    return tuple(table.iterations[iteration] for iteration in cause.iterations)


def _package(table: Table, cause: Cause) -> int | None:
    return cause.groups[0] if cause.level == "package" else only_one(table.package[cause.slots])


def _cell_effects(table: Table, cause: Cause) -> tuple[CellEffect, ...]:
    effects = []
    for benchmark, iteration in cause.cells:
        name, tune = table.benchmarks[benchmark]
        covered = cause.covered[benchmark, iteration]
        size = float(median_without_gaps(cause.effect[benchmark, iteration][covered]))
        effects.append(
            CellEffect(
                benchmark=name,
                tune=tune,
                iteration=table.iterations[iteration],
                slowdown=math.exp(size),
                rate_lost=cause.cells_lost[benchmark, iteration],
            )
        )
    return tuple(effects)


def _singles(table: Table, cause: Cause) -> tuple[CopyEffect, ...]:
    effects = []
    for benchmark, iteration, slot in np.argwhere(cause.covered).tolist():
        name, tune = table.benchmarks[benchmark]
        effects.append(
            CopyEffect(
                benchmark=name,
                tune=tune,
                iteration=table.iterations[iteration],
                copy=int(table.copy[benchmark, iteration, slot]),
                cpu=only_one(table.cpu[slot : slot + 1]),
                node=only_one(table.node[slot : slot + 1]),
                slowdown=math.exp(float(cause.effect[benchmark, iteration, slot])),
            )
        )
    return tuple(effects)


def _evidence(table: Table, cause: Cause) -> list[Evidence]:
    """Return evidence from the times alone; stored proof and samples add theirs later."""
    evidence = []
    if text := cost_of(table, cause):
        evidence.append(EvidenceKind.COST.evidence(text))
    if hasty := _hasty_copies(table, cause):
        text = f"{copy_numbers_text(hasty)} took less than half of any other's time"
        evidence.append(EvidenceKind.OUTPUT.evidence(f"{text}: check its output"))
    slots = cause.slots
    node, memory = only_one(table.node[slots]), only_one(table.memory[slots])
    is_elsewhere = table.memory != table.node
    is_one_node = None not in (node, memory) and memory not in (node, SEVERAL)
    if cause.level == "node" and is_one_node and not is_elsewhere[~slots].all():
        evidence.append(EvidenceKind.MEMORY.evidence(f"its memory is on node {memory}"))
    return evidence


def _hasty_copies(table: Table, cause: Cause) -> list[int]:
    """Return the fast copies that took less than half of the time of all others in their cell.

    No machine makes one of its copies twice as fast as each of the others: it did not do its work.
    """
    copies: set[int] = set()
    for cell in cause.cells if cause.size < 0 else ():
        elapsed_s, covered = np.exp(table.log_s[cell]), cause.covered[cell]
        others_s = elapsed_s[~covered & ~np.isnan(elapsed_s)]
        if len(others_s) >= _LEAST_OTHERS:
            is_hasty = covered & (elapsed_s < _HASTY * others_s.min())
            copies |= {*table.copy[cell][is_hasty].tolist()}
    return sorted(copies)


def _cause_of_layout(table: Table, effect: DivotEffect) -> Cause:
    """Return an effect that the layout predicts as a cause."""
    runs = draw_effects(table, [effect])
    return Cause(
        kind=Kind.LAYOUT,
        level=effect.kind,
        covered=runs.covered,
        effect=runs.effect,
        everywhere=runs.everywhere,
        facts={"expectation": expectation_of(table, effect)},
    )


# -- What the run could show: how large a difference must be to be found ---------------------------

_POWER: Final = 0.8  # share of parts with the promised size that are found
_MOST_TOLD: Final = 0.5  # ln(1.65): a larger size is no promise, the noise would hide all
_SAMPLED: Final = 48  # parts and rows that stand for all
_SURE_SD: Final = 6.0  # standard deviations beyond the least size: all are found (1 - 1e-9)
_GROUPS: Final = (EffectKind.NODE, EffectKind.PACKAGE, EffectKind.LLC, EffectKind.MEMORY)


def visible(search_result: SearchResult) -> dict[str, float]:
    """Return the slowdowns found four times in five, as shares (0.006 is 0.6 %), by their scope.

    `group`: the smallest lgroup (or other group that divides the copies) in all benchmarks;
    `group-benchmark`: one in any one benchmark; `cpu`: a CPU in all of the run; `copy-benchmark`: a
    copy in all iterations of one benchmark; `copy`: one in any one cell; `iteration`: a slow
    iteration of all benchmarks. A scope is missing if the noise would hide all.
    """
    comparisons = {
        (comparison.family.kind, comparison.scope): comparison
        for comparison in search_result.comparisons
    }
    benchmarks, iterations, _ = search_result.table.shape
    single = ComparisonScope.BENCHMARK
    everywhere = ComparisonScope.ALL_BENCHMARKS if benchmarks > 1 else single
    cell = ComparisonScope.CELL if iterations > 1 else single
    promised = {
        "cpu": (EffectKind.COPY, everywhere),
        "copy": (EffectKind.COPY, cell),
    }
    if benchmarks > 1 and iterations > 1:
        promised["copy-benchmark"] = (EffectKind.COPY, single)
    group = next((kind for kind in _GROUPS if (kind, single) in comparisons), None)
    if group is not None:
        promised |= {"group": (group, everywhere), "group-benchmark": (group, single)}
    order = ("group", "group-benchmark", "cpu", "copy-benchmark", "copy")
    sizes = {
        name: _visible_size(comparisons[promised[name]])
        for name in order
        if name in promised and promised[name] in comparisons
    }
    iteration_size = visible_iteration(search_result.over_time, search_result.effects)
    if iteration_size is not None:
        sizes["iteration"] = iteration_size
    return {name: math.expm1(size) for name, size in sizes.items() if size <= _MOST_TOLD}


def _visible_size(comparison: PartComparison) -> float:
    """Return the size (ln) with which four in five of the smallest parts are found.

    A part is found if its measured size exceeds the least size that pays. The measured size is
    normal about the true one: P(found) = Phi((size - least) / error), averaged over parts and rows.
    """
    smallest = np.flatnonzero(comparison.family.sizes == comparison.family.sizes.min())
    rows, parts = np.meshgrid(np.arange(len(comparison.difference)), smallest, indexing="ij")
    stride = max(1, rows.size // _SAMPLED)
    sampled = (rows.ravel()[::stride], parts.ravel()[::stride])
    by_benchmark = comparison.scope is ComparisonScope.BENCHMARK
    several = by_benchmark and len(comparison.difference) > 1
    price = comparison.price + (math.log(2) if several else 0.0)
    low, high = np.zeros(len(sampled[0])), np.full(len(sampled[0]), 2 * _MOST_TOLD)
    pays = least_sufficient(lambda size: comparison.evidence(size, sampled) > price, low, high)
    least, error = np.maximum(pays, comparison.floor), comparison.error[sampled]

    share_below = NormalDist().cdf

    def most_are_found(size: Floats) -> Bools:
        scores = ((size - least) / error).tolist()
        return np.array([np.mean([*map(share_below, scores)]) >= _POWER])

    high = np.array([least.max() + _SURE_SD * error.max()])
    return float(least_sufficient(most_are_found, np.array([least.min()]), high)[0])


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
    machine, chunk_list = Machine(tuple(core_pus)), tuple(chunks)
    table = build_table(
        chunk_list, benchmarks, machine=machine, barrier=barrier, staggered=staggered
    )
    if table is None:
        return Analysis(findings=(), visible={}, failed=sum(len(chunk) for chunk in chunk_list))
    search_result = search(table, thresholds)
    promised = visible(search_result)
    return Analysis(
        findings=tuple(build_findings(search_result)),
        visible=promised,
        failed=table.failed,
        noise_cost=noise_cost(table, search_result.residuals, promised)
        if search_result.comparisons
        else None,
    )
