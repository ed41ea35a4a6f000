"""The search: candidates enter one by one while they pay, and all sizes are estimated again.

ln time(b, i, s) = median of the cell + layout + effects + noise. Each round computes the evidence
of all candidates on the residuals of the model so far (forward selection). A candidate pays if
its evidence exceeds the Bonferroni price, ln(number of all differences looked at / ALPHA). The one
that gains most likelihood enters, and so do those in cells that no candidate before it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.divots.model.comparison import ComparisonScope, PartComparison
from rater.analysis.divots.model.effects import DivotEffect, EffectKind, EffectScope
from rater.analysis.divots.model.exchange import SlotSets, exchange
from rater.analysis.divots.model.families import Family, list_families, order_of_start
from rater.analysis.divots.model.finding import Thresholds
from rater.analysis.divots.model.layout import fit_layout
from rater.analysis.divots.model.noise import CellNoise, estimate_noise
from rater.analysis.divots.model.nulls import ABOUT_NORMAL, huber_mean
from rater.analysis.divots.model.part_changes import find_part_changes
from rater.analysis.divots.model.part_effects import find_part_effects, is_borne_by_copies
from rater.analysis.divots.model.patterns import (
    StartOrder,
    find_modes,
    find_several,
    find_slopes,
)
from rater.analysis.divots.model.places import FamilyLevels
from rater.analysis.divots.model.sizes import Fit, cell_medians, is_reported, refit
from rater.analysis.divots.model.spreads import (
    find_turns,
    find_unsettled,
    unsteady_effects,
    variance_ratios,
)
from rater.analysis.divots.model.table import Table, clock_steps
from rater.analysis.divots.model.tails import SidedTail
from rater.analysis.divots.model.times import TimeSeries, search_times
from rater.analysis.stats.robust import Bools, Floats, Ints

_MOST_ROUNDS: Final = 40  # of candidates that enter, against endless search
_FEW_TIMES: Final = 3  # a run of so many times or fewer has no noise to compare with
# Searches that share ALPHA: each family in four scopes, and the four of `patterns`.
_SCOPES: Final = len(ComparisonScope)
_PATTERN_SEARCHES: Final = 4


class NamedPart(Struct, frozen=True):
    """A part of the machine by its family and number."""

    kind: EffectKind
    number: int


class SearchResult(Struct, frozen=True, eq=False, kw_only=True):
    """The effects found in a run, with the values that words and promises are made from."""

    table: Table
    effects: list[DivotEffect]
    predicted: list[DivotEffect]  # by the layout
    residuals: Floats  # (B, I, S) ln, about the cells' medians
    comparisons: list[PartComparison]  # of the last round
    over_time: TimeSeries
    named_parts: dict[bytes, NamedPart]  # by the mask (S,) of their slots


class _Round(Struct, frozen=True, eq=False, kw_only=True):
    """The candidates in one set of residuals, and the noise and comparisons that judged them."""

    candidates: list[DivotEffect]
    noise: CellNoise
    comparisons: list[PartComparison]


class _Searcher(Struct, frozen=True, eq=False, kw_only=True):
    """The search for candidates in residuals of one run."""

    table: Table
    families: list[Family]
    sets: SlotSets
    order: StartOrder
    clock_step: Floats  # (B,) ln
    named_parts: dict[bytes, NamedPart]

    def run(self, residuals: Floats, noise: CellNoise, slot_levels: Floats) -> _Round:
        """Return all candidates that pay in residuals (B, I, S), with the means of slots (B, S)."""
        searches = _SCOPES * len(self.families) + _PATTERN_SEARCHES
        candidates: list[DivotEffect] = []
        comparisons: list[PartComparison] = []
        copy_tails: dict[ComparisonScope, SidedTail | None] = {}
        # Single copies come first (last in the list), because small parts need their tails.
        for family in reversed(self.families):
            levels = FamilyLevels(
                residuals=residuals,
                slot_levels=slot_levels,
                family=family,
                noise=noise,
                searches=searches,
            )
            by_scope: list[PartComparison] = []
            for comparison in levels.compare(copy_tails):
                by_scope.append(comparison)
                candidates += find_part_effects(levels, comparison, by_scope[0])
                if family.kind is EffectKind.COPY:
                    copy_tails[comparison.scope] = comparison.tail
                    candidates += find_several(comparison, noise, searches, residuals.shape[1])
            comparisons += by_scope
            candidates += find_part_changes(levels, residuals, len(self.families))
            candidates += find_turns(levels, searches)
        if not self.table.fixed and residuals.shape[1] > 1:
            by_scope, moving = self._search_moving_copies(residuals, searches)
            comparisons += by_scope
            candidates += moving
        candidates += find_slopes(residuals, slot_levels, self.order, noise, searches)
        candidates += find_modes(residuals, slot_levels, noise, searches)
        candidates += _without_explained(find_unsettled(residuals, noise, searches), candidates)
        named = [self._name_part(candidate) for candidate in candidates]
        kept = [
            candidate
            for candidate in _without_fast_sides(named)
            if is_borne_by_copies(candidate, residuals, noise)
        ]
        return _Round(candidates=kept, noise=noise, comparisons=comparisons)

    def enter(self, fit: Fit, entering: Sequence[DivotEffect], *, exchanges: bool = True) -> Fit:
        """Return the fit with further effects, and with the sets that then tell it best."""
        remaining = fit.remaining.copy()
        for effect in entering:
            effect.add_to(remaining, -1.0)
        fitted = refit([*fit.effects, *entering], remaining)
        if not exchanges:
            return fitted
        residuals = fitted.remaining - cell_medians(fitted.remaining)
        return exchange(fitted, self.sets, estimate_noise(residuals, self.clock_step)[0])

    def _search_moving_copies(
        self, residuals: Floats, searches: int
    ) -> tuple[list[PartComparison], list[DivotEffect]]:
        """Compare copies wherever they ran, where each has other slots in each iteration."""
        numbers, by_copy = values_by_copy(self.table, residuals)
        noise, levels_of_copies = estimate_noise(by_copy, self.clock_step)
        levels = FamilyLevels(
            residuals=by_copy,
            slot_levels=levels_of_copies,
            family=Family(EffectKind.MOVING, np.arange(len(numbers)), tuple(numbers.tolist())),
            noise=noise,
            searches=searches,
        )
        comparisons = list(levels.compare({}))
        lasting = (ComparisonScope.BENCHMARK, ComparisonScope.ALL_BENCHMARKS)
        # In one cell a copy is its slot, which is a family.
        effects = [
            replace(effect, slot_weights=(self.table.copy == effect.part).astype(float))
            for comparison in comparisons
            if comparison.scope in lasting
            for effect in find_part_effects(levels, comparison, comparisons[0])
        ]
        return comparisons, effects

    def _name_part(self, candidate: DivotEffect) -> DivotEffect:
        """Return the effect of a part, if a set of copies happens to be one."""
        is_set = candidate.kind in (EffectKind.MODES, EffectKind.COPIES)
        if not is_set or not candidate.has_fixed_slots:
            return candidate
        part = self.named_parts.get((candidate.slot_weights > 0).tobytes())
        return replace(candidate, kind=part.kind, part=part.number) if part else candidate


def search(table: Table, thresholds: Thresholds) -> SearchResult:
    """Find the parts, copies and iterations that are slow, or fast, in a run."""
    layout, predicted = fit_layout(table)
    searcher = _make_searcher(table)
    start = np.where(_where_most_slots_ran(table), table.log_s - layout[:, None], np.nan)
    model = _fit_model(searcher, start, np.ones(table.shape[2]))
    ratios = variance_ratios(model.residuals, model.noise)
    if (ratios > 1).any():
        model = _fit_model(searcher, start, ratios)
    over_time = _series_over_time(model, searcher.clock_step)
    effects = [
        *model.fit.effects,
        *unsteady_effects(model.residuals, ratios),
        *search_times(over_time, table.shape[2]),
    ]
    return SearchResult(
        table=table,
        effects=[effect for effect in effects if is_reported(effect, thresholds)],
        predicted=predicted,
        residuals=model.residuals,
        comparisons=model.comparisons,
        over_time=over_time,
        named_parts=searcher.named_parts,
    )


class _Model(Struct, frozen=True, eq=False, kw_only=True):
    """The effects that entered, and the residuals without them."""

    fit: Fit
    residuals: Floats  # (B, I, S) about the cells' medians
    noise: CellNoise  # of the residuals
    comparisons: list[PartComparison]  # of the last round
    is_searched: bool  # False: of so few times that there is nothing to compare


def _fit_model(searcher: _Searcher, start: Floats, ratios: Floats) -> _Model:
    """Return the effects in ln times (B, I, S), with unsteady slots of these variances (S,)."""
    fit, comparisons = Fit([], start), list[PartComparison]()
    seen = {frozenset[tuple[bytes, ...]]()}  # sets of effects, against going in circles
    # One slot, or a few times, have nothing to be compared with.
    is_searched = start.shape[2] > 1 and start.size > _FEW_TIMES
    for _ in range(_MOST_ROUNDS if is_searched else 0):
        residuals = fit.remaining - cell_medians(fit.remaining)
        noise, slot_levels = estimate_noise(residuals, searcher.clock_step)
        latest = searcher.run(residuals, replace(noise, slot_ratios=ratios), slot_levels)
        comparisons = latest.comparisons
        in_model = {effect.key for effect in fit.effects}
        offered = [candidate for candidate in latest.candidates if candidate.key not in in_model]
        entering = _choose_entering(offered, start.shape[:2])
        if not entering:
            break
        exchanged = searcher.enter(fit, entering)
        keys = frozenset(effect.key for effect in exchanged.effects)
        fit = searcher.enter(fit, entering, exchanges=False) if keys in seen else exchanged
        seen.add(frozenset(effect.key for effect in fit.effects))
    residuals = fit.remaining - cell_medians(fit.remaining)
    return _Model(
        fit=fit,
        residuals=residuals,
        noise=estimate_noise(residuals, searcher.clock_step)[0],
        comparisons=comparisons,
        is_searched=is_searched,
    )


def _make_searcher(table: Table) -> _Searcher:
    families = list_families(table)
    named_parts = {
        mask.tobytes(): NamedPart(family.kind, number)
        for family in reversed(families)  # so that the first family's name stays
        if family.kind is not EffectKind.COPY
        for mask, number in zip(family.masks, family.names, strict=True)
    }
    return _Searcher(
        table=table,
        families=families,
        sets=SlotSets(families, table.cpu),
        order=StartOrder(order_of_start(table) - 0.5, _places_of_several(families)),
        clock_step=clock_steps(table),
        named_parts=named_parts,
    )


def _places_of_several(families: Sequence[Family]) -> list[Bools]:
    """Return the slots (P, S) of nodes, packages and LLCs that have several, but not all."""
    places = (EffectKind.NODE, EffectKind.PACKAGE, EffectKind.LLC)
    masks = [family.masks for family in families if family.kind in places]
    several = [mask[(mask.sum(axis=1) > 1) & (mask.sum(axis=1) < mask.shape[1])] for mask in masks]
    return [mask for mask in several if len(mask)]


def _where_most_slots_ran(table: Table) -> Bools:
    """Tell of each cell (B, I, 1) whether more than half of all slots have a time in it."""
    ran = ~np.isnan(table.log_s)
    most: Bools = 2 * ran.sum(axis=2, keepdims=True) > ran.any(axis=(0, 1)).sum()
    return most


def _series_over_time(model: _Model, clock_step: Floats) -> TimeSeries:
    """Return the means of the cells (B, I), with their variance by the noise of the copies."""
    remaining = model.fit.remaining
    benchmarks, _, slots = remaining.shape
    if not model.is_searched:
        return TimeSeries(
            middles=cell_medians(remaining)[..., 0],
            variance=np.zeros(benchmarks),
            df=np.full(benchmarks, ABOUT_NORMAL),
            clock_step=clock_step,
        )
    value = model.noise.value
    return TimeSeries(
        middles=huber_mean(remaining, np.sqrt(value.variance)[:, None]),
        variance=value.variance / slots,
        df=value.df,
        clock_step=clock_step,
    )


def values_by_copy(table: Table, values: Floats) -> tuple[Ints, Floats]:
    """Return copies' numbers (C,) ascending, and values (B, I, S) by copy: (B, I, C)."""
    numbers = np.unique(table.copy[table.copy >= 0])
    by_copy = np.full((*table.shape[:2], len(numbers)), np.nan)
    cells = np.argwhere((table.copy >= 0) & ~np.isnan(values))
    column = np.searchsorted(numbers, table.copy[tuple(cells.T)])
    by_copy[cells[:, 0], cells[:, 1], column] = values[tuple(cells.T)]
    return numbers, by_copy


# -- Which candidates enter ------------------------------------------------------------------------


def _without_explained(
    unsettled: Iterator[DivotEffect], candidates: Sequence[DivotEffect]
) -> list[DivotEffect]:
    """Return unsettled first iterations of benchmarks that no other candidate has there."""
    if not candidates:
        return list(unsettled)
    explained = np.any([candidate.cells[:, 0] for candidate in candidates], axis=0)
    return [effect for effect in unsettled if not (explained & effect.benchmarks).any()]


def _without_fast_sides(candidates: Sequence[DivotEffect]) -> list[DivotEffect]:
    """Return candidates without the fast side of a part and all others."""
    slow = {
        candidate.key
        for candidate in candidates
        if candidate.has_fixed_slots and candidate.typical > 0
    }

    def is_fast_side(candidate: DivotEffect) -> bool:
        if not candidate.has_fixed_slots or candidate.typical > 0:
            return False
        return ((1.0 - candidate.slot_weights).tobytes(), *candidate.key[1:]) in slow

    return [candidate for candidate in candidates if not is_fast_side(candidate)]


def _choose_entering(
    candidates: Sequence[DivotEffect], shape: tuple[int, int]
) -> list[DivotEffect]:
    """Return the candidate that gains most, and others whose cells (B, I) none before it has."""
    entering: list[DivotEffect] = []
    taken = np.zeros(shape, bool)
    for candidate in sorted(candidates, key=lambda candidate: -candidate.likelihood_gain):
        # An effect of more than one cell changes the levels of its benchmarks in all iterations.
        is_wide = candidate.scope is not EffectScope.CELL
        cells = np.outer(candidate.benchmarks, (candidate.iteration_weights != 0) | is_wide)
        if not (taken & cells).any():
            entering.append(candidate)
            taken |= cells
        if candidate.scope is EffectScope.ALL or taken.all():
            break
    return entering
