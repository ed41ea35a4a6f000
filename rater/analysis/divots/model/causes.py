"""Causes of what was slow: which kind each group of effects is, where and in which cells; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from rater.analysis.divots.model.effects import (
    NO_PART,
    DivotEffect,
    EffectKind,
    EffectScope,
)
from rater.analysis.divots.model.finding import Kind
from rater.analysis.divots.model.joining import (
    RANDOM_CELLS,
    EffectGroup,
    cells_of,
    is_exception,
    join_effects,
    node_of,
    slots_of,
    unite_without_place,
)
from rater.analysis.divots.model.search import SearchResult
from rater.analysis.divots.model.table import UNKNOWN, Table
from rater.analysis.stats.robust import (
    Bools,
    Floats,
    mean,
    median,
    median_without_gaps,
    overall_median,
    quantiles,
)

_FEW: Final = 0.2  # of the copies: fewer are single ones, more are a sort
_WHOLE_NODE: Final = 0.85  # share of a node's copies from which it is slow, or not, as a whole
_FAST_QUANTILE: Final = 0.1  # of a cell's times, which outliers do not move

# What the copies of a cause share: a family of parts, or one of these.
type Level = EffectKind | Literal["", "set", "turns", "random"]
type Facts = dict[str, float | str]  # numbers behind a finding, by name


class CopyRuns(Struct, eq=False, kw_only=True):
    """Copy runs that are slow or fast, with array indices instead of names."""

    covered: Bools  # (B, I, S)
    effect: Floats  # (B, I, S) ln slowdown, 0 elsewhere
    everywhere: bool = False  # all benchmarks by one difference

    @property
    def benchmarks(self) -> list[int]:
        """Indices of the benchmarks that it covers, ascending."""
        return [int(benchmark) for benchmark in np.flatnonzero(self.covered.any(axis=(1, 2)))]

    @property
    def iterations(self) -> list[int]:
        """Indices of the iterations that it covers, ascending."""
        return [int(iteration) for iteration in np.flatnonzero(self.covered.any(axis=(0, 2)))]

    @property
    def slots(self) -> Bools:
        """Slots (S,) that it covers anywhere."""
        slots: Bools = self.covered.any(axis=(0, 1))
        return slots

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Benchmark and iteration of each cell that it covers."""
        covered = np.argwhere(self.covered.any(axis=2)).tolist()
        return [(benchmark, iteration) for benchmark, iteration in covered]

    @property
    def size(self) -> float:
        """Typical ln slowdown: the median of its benchmarks, of each the median copy run."""
        each = [
            median_without_gaps(self.effect[benchmark][self.covered[benchmark]])
            for benchmark in self.benchmarks
        ]
        return float(median_without_gaps(np.array(each)))


class Cause(CopyRuns, eq=False, kw_only=True):
    """The copy runs of one cause, with its kind, place and cost."""

    kind: Kind
    level: Level = ""
    groups: tuple[int, ...] = ()  # numbers of the parts of that level
    facts: Facts = field(default_factory=dict)
    # Its cost, as shares: of the score (without a barrier, of all copies' time), of the same
    # beyond costlier causes, of the benchmark that loses most, and of each cell.
    lost: float = 0.0
    share_lost: float | None = None
    rate_lost: float = 0.0
    cells_lost: dict[tuple[int, int], float] = field(default_factory=dict)


class _Description(Struct, frozen=True, kw_only=True):
    """The kind and the place of a cause."""

    kind: Kind
    level: Level = ""
    groups: tuple[int, ...] = ()
    facts: Facts = field(default_factory=dict)


def find_causes(result: SearchResult) -> list[Cause]:
    """Return one cause for each group of effects, in no order.

    A copy or iteration that kept its speed in a slow part is no cause but an exception to that.
    """
    groups = join_effects(result.effects)
    exceptions: dict[int, list[EffectGroup]] = {}
    wholes = []
    for group in groups:
        rule_numbers = [
            number
            for number, other in enumerate(groups)
            if other is not group and is_exception(group, other)
        ]
        if rule_numbers:
            exceptions.setdefault(id(groups[rule_numbers[0]]), []).append(group)
        else:
            wholes.append(group)
    causes = []
    for group in unite_without_place(result.table, wholes):
        cause = _make_cause(result, group)
        for exception in exceptions.get(id(group), ()):
            kept_speed = cells_of(exception)[:, :, None] & slots_of(exception)
            covered = cause.covered & ~kept_speed
            cause = replace(
                cause,
                covered=covered,
                effect=np.where(covered, cause.effect, 0.0),
                facts={**cause.facts, "kept": 1.0},
            )
        causes.append(cause)
    return causes


def draw_effects(table: Table, group: EffectGroup) -> CopyRuns:
    """Return the copy runs that effects cover, with the ln slowdown of each."""
    ran = ~np.isnan(table.log_s)
    slowdown, covered = np.zeros(table.shape), np.zeros(table.shape, dtype=bool)
    for effect in group:
        rows = np.flatnonzero(effect.benchmarks)
        slot_weights, times = effect.slot_weights, effect.iteration_weights
        is_gradient, is_trend = (
            effect.kind is EffectKind.GRADIENT,
            effect.scope is EffectScope.TREND,
        )
        # Slopes are measured from their fast end: all are slowed by what it shows to be possible.
        side = 0.5 if effect.typical > 0 else -0.5
        in_iterations = (times != 0) | is_trend
        slot_weights = slot_weights + side if is_gradient else slot_weights
        times = times + side if is_trend else times
        weights = slot_weights[rows] if slot_weights.ndim == 3 else slot_weights
        slowdown[rows] += effect.size[rows][:, None, None] * times[None, :, None] * weights
        all_slots = is_gradient or effect.kind is EffectKind.ITERATIONS
        covered[rows] |= in_iterations[None, :, None] & ((weights != 0) | all_slots)
    covered &= ran
    everywhere = any(
        effect.scope is EffectScope.ALL and (effect.iteration_weights != 0).all()
        for effect in group
    )
    return CopyRuns(covered=covered, effect=np.where(covered, slowdown, 0.0), everywhere=everywhere)


def _make_cause(result: SearchResult, group: EffectGroup) -> Cause:
    table, runs = result.table, draw_effects(result.table, group)
    if max(group, key=lambda effect: effect.likelihood_gain).kind is EffectKind.UNSETTLED:
        return _make_convoy(table, runs)
    description = _describe(result, runs, group)
    return Cause(
        covered=runs.covered,
        effect=runs.effect,
        everywhere=runs.everywhere,
        kind=description.kind,
        level=description.level,
        groups=description.groups,
        facts=description.facts,
    )


def _make_convoy(table: Table, runs: CopyRuns) -> Cause:
    """Return the cause of cells whose copies came through the start one after another.

    A copy's effect is its time over that of its place in the other iterations, which is taken as
    low as the fastest copies of the cell where those were faster. The size is that of the medians.
    """
    cells, log_s = runs.covered.any(axis=2), table.log_s
    covered = cells[:, :, None] & ~np.isnan(log_s)
    settled = np.where(cells[:, :, None], np.nan, log_s)
    usual = np.broadcast_to(median(np.moveaxis(settled, 1, 2))[:, None, :], log_s.shape)
    fastest = quantiles(log_s, _FAST_QUANTILE)[0][:, :, None]
    usual = np.where(np.isnan(usual), fastest, usual)
    usual = usual - np.maximum(0.0, median(usual)[:, :, None] - fastest)
    middle, usual_middle = median(log_s)[cells], median(usual)[cells]
    last = np.nanmax(log_s[cells], axis=1)
    return Cause(
        covered=covered,
        effect=np.where(covered, np.maximum(0.0, log_s - usual), 0.0),
        everywhere=runs.everywhere,
        kind=Kind.STARTUP,
        facts={
            "mode": "convoy",
            "rise": float(np.median(middle - usual_middle)),
            "seconds": float(np.median(np.exp(middle) - np.exp(usual_middle))),
            "last_s": float(np.median(np.exp(last) - np.exp(usual_middle))),
        },
    )


# -- The kind and the place of a cause -------------------------------------------------------------


def _describe(result: SearchResult, runs: CopyRuns, group: EffectGroup) -> _Description:
    table = result.table
    first = max(group, key=lambda effect: effect.likelihood_gain)
    if first.kind is EffectKind.ITERATIONS:
        kind = _kind_over_time(first)
        return _Description(kind=kind, facts={"rise": first.typical} if kind is Kind.DRIFT else {})
    if first.kind is EffectKind.GRADIENT:
        return _describe_gradient(table, first)
    if first.kind is EffectKind.UNSTEADY:
        return _describe_unsteady(result, first)
    if first.kind is EffectKind.MOVING:
        return _Description(kind=Kind.OUTLIER_COPY, level=EffectKind.COPY, facts={"moves": 1.0})
    single = first.kind in (EffectKind.COPY, EffectKind.COPIES)
    scattered = single and _are_scattered(group)
    nodes_in_turn = node_of(table, group[:1]) != UNKNOWN and _are_in_turn(group)
    if scattered or not first.has_fixed_slots or nodes_in_turn:
        return _describe_changing(table, runs, scattered=scattered)
    return _describe_part(result, runs, group)


def _kind_over_time(effect: DivotEffect) -> Kind:
    if effect.scope is EffectScope.TREND:
        return Kind.DRIFT
    if effect.scope is EffectScope.CELL:
        return Kind.SLOW_ITERATION
    early = np.flatnonzero(effect.iteration_weights)
    in_first_half = early[0] == 0 and len(early) <= len(effect.iteration_weights) / 2
    return Kind.WARM_UP if in_first_half else Kind.STEP


def _describe_gradient(table: Table, effect: DivotEffect) -> _Description:
    """Describe a slope: a ramp if copies are known to have started one after another."""
    is_known = not np.isnan(table.start_s).all() and np.ptp(np.nan_to_num(table.start_s)) > 0
    if is_known and effect.typical > 0 and table.barrier:
        first_s = float(np.exp(overall_median(table.log_s[effect.benchmarks])))
        seconds = first_s * float(np.expm1(effect.typical))
        facts: Facts = {"rise": effect.typical, "mode": "ramp", "seconds": seconds}
        return _Description(kind=Kind.STARTUP, facts=facts)
    return _Description(kind=Kind.GRADIENT, facts={"rise": effect.typical})


def _describe_unsteady(result: SearchResult, effect: DivotEffect) -> _Description:
    """Describe copies that vary more than others, and how many times as much.

    The effect has a share 1 - 1 / r of what the residuals have about the level of each copy, where
    the copies vary r times as much (`spreads.unsteady_effects`).
    """
    about_level = result.residuals - mean(result.residuals, axis=1)[:, None]
    beyond = np.abs(effect.slot_weights).sum()
    all_of_them = np.nansum(np.abs(about_level[..., effect.slot_weights.any(axis=(0, 1))]))
    ratio = 1 / (1 - float(beyond / all_of_them))
    return _Description(kind=Kind.UNSTEADY, level="set", facts={"ratio": ratio})


def _describe_changing(table: Table, runs: CopyRuns, *, scattered: bool) -> _Description:
    """Describe other copies each time: nodes in turn, one by chance, or a sort of copies."""
    ran = ~np.isnan(table.log_s) & runs.covered.any(axis=2)[..., None]
    if not scattered and (turns := _list_turns(table, runs)):
        return _Description(kind=Kind.WANDERING, level="turns", facts={"turns": turns})
    if scattered or np.median(runs.covered.sum(axis=2)[ran.any(axis=2)]) <= 1:
        return _Description(kind=Kind.NO_PLACE, level="random")
    share = float(runs.covered.sum()) / max(1, int(ran.sum()))
    return _Description(kind=Kind.BIMODAL, level=EffectKind.MODES, facts={"share": share})


def _are_in_turn(group: EffectGroup) -> bool:
    """Tell whether other copies are slow in other iterations, in cells alone."""
    slots = {effect.slot_weights.tobytes() for effect in group}
    times = {effect.iteration_weights.tobytes() for effect in group}
    in_cells = all(effect.scope is EffectScope.CELL for effect in group)
    return in_cells and len(slots) > 1 < len(times)


def _are_scattered(group: EffectGroup) -> bool:
    """Tell whether other copies are slow in each cell."""
    cells = {effect.key[1:] for effect in group}
    different = len({effect.slot_weights.tobytes() for effect in group}) > 2
    in_cells = all(effect.scope is EffectScope.CELL for effect in group)
    return different and in_cells and len(cells) >= RANDOM_CELLS


def _list_turns(table: Table, runs: CopyRuns) -> str:
    """Return which nodes are slow when, if others are each time; else nothing.

    As `iteration:node:size`, the iterations by index.
    """
    turns, nodes = [], set()
    for benchmark, iteration in runs.cells:
        log_s, covered = table.log_s[benchmark, iteration], runs.covered[benchmark, iteration]
        ran = ~np.isnan(log_s)
        for node in np.unique(table.node[table.node != UNKNOWN]).tolist():
            on_node = ran & (table.node == node)
            share = float(covered[on_node].mean()) if on_node.any() else 0.0
            if 1 - _WHOLE_NODE < share < _WHOLE_NODE or (share > 0.5 and on_node.sum() < 3):
                return ""
            if share > 0.5:
                others = ran & (table.node != node)
                size = float(np.median(log_s[on_node]) - np.median(log_s[others]))
                turns.append(f"{iteration}:{node}:{size:.5f}")
                nodes.add(node)
    return " ".join(turns) if len(nodes) > 1 and len(runs.iterations) > 1 else ""


def _describe_part(result: SearchResult, runs: CopyRuns, group: EffectGroup) -> _Description:
    """Describe copies by the part that they are all of, or else by themselves."""
    table, slots = result.table, runs.slots
    level, numbers = _find_level(result, slots, group)
    count, all_slots = int(slots.sum()), table.shape[2]
    few = count <= max(2, _FEW * all_slots)
    facts: Facts = {}
    if level in (EffectKind.NODE, EffectKind.PACKAGE) and count > 1:
        kind = Kind.SLOW_LGROUP if runs.size > 0 else Kind.SLOW_GROUP
    elif level in (EffectKind.CORE, EffectKind.CPU):
        kind = _kind_of_cpus(table, runs)
    elif few and level in ("set", EffectKind.NODE, EffectKind.PACKAGE, EffectKind.LLC):
        in_several = len(runs.benchmarks) >= min(2, table.shape[0])
        often = len(runs.cells) >= 3 and in_several
        kind = _kind_of_cpus(table, runs) if often else Kind.OUTLIER_COPY
    elif level == "set" and len(runs.benchmarks) == 1:
        kind, facts = Kind.BIMODAL, {"share": count / all_slots}
        if len(runs.iterations) > 1:
            facts["same"] = 1.0
    else:
        kind = Kind.OUTLIER_COPY if level == "set" and all_slots <= 4 else Kind.SLOW_GROUP
    return _Description(kind=kind, level=level, groups=numbers, facts=facts)


def _kind_of_cpus(table: Table, runs: CopyRuns) -> Kind:
    """Return a slow CPU where the CPUs are known, and outlying copies otherwise."""
    is_known = bool((table.cpu[runs.slots] != UNKNOWN).all())
    return Kind.SLOW_CPU if is_known and runs.size > 0 else Kind.OUTLIER_COPY


def _find_level(
    result: SearchResult, slots: Bools, group: Sequence[DivotEffect]
) -> tuple[Level, tuple[int, ...]]:
    """Return the family that slots (S,) are parts of, with the numbers of the parts, or a set."""
    first = group[0]
    sets = (EffectKind.COPY, EffectKind.COPIES, EffectKind.MODES)
    if len({effect.kind for effect in group}) == 1 and first.kind not in sets:
        numbers = {effect.part for effect in group if effect.part != NO_PART}
        return first.kind, tuple(sorted(numbers))
    part = result.named_parts.get(slots.tobytes())
    if part is not None:
        return part.kind, (part.number,)
    nodes = np.unique(result.table.node[slots])
    whole_nodes = not np.isin(result.table.node[~slots], nodes).any()
    if slots.sum() > len(nodes) and whole_nodes:
        return EffectKind.NODE, tuple(int(node) for node in nodes)
    return "set", ()
