"""The models of a sweep, which of them is warranted, and what a study comes to; pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.compare.compare import compare
from rater.analysis.compare.model import (
    Comparison,
    CountedChange,
    CpiChange,
    EffectRow,
    counted_changes,
    cpi_changes,
)
from rater.analysis.results.copies import MemoryRow, Point, memory_rows
from rater.analysis.stats.estimate import f_exceeded, t_quantile
from rater.analysis.stats.robust import Floats
from rater.lab.layout.layout import huge_share, parse_pages
from rater.lab.models.fits import (
    CONFIDENCE,
    PolynomialFit,
    TwoPointModel,
    fit_polynomial,
    two_point_models,
)
from rater.lab.models.observed import ModelData, ModelRequest, observe
from rater.lab.models.quantities import (
    OF_ENERGY,
    OF_TIME,
    OF_USER_TIME,
    PAGES,
    PredictorKind,
    Quantity,
    share_of,
)
from rater.lab.trace.costs import Loads, PageCosts, mean_walk_ns
from rater.lab.trace.ranking import (
    BenefitCheck,
    RankedMapping,
    by_saving,
    check_benefits,
    extents,
    predicted_misses,
    rank_mappings,
)
from rater.lab.trace.tlb import PageTrace
from rater.plan.tlb import PAGE_SIZES
from rater.system.errors import InputError

# -- What a sweep over page layouts comes to: all that the page of `rater lab pages` tells ---------


class PageLab(Struct, frozen=True, kw_only=True):
    """A sweep over page layouts, put together."""

    sweep: int
    points: tuple[Point, ...]  # all in base pages first
    comparison: Comparison
    largest: int  # which of the comparison's sides has the most large pages
    rows: tuple[EffectRow, ...]  # suite, its INT and FP parts, then benchmarks in their order
    memory: tuple[MemoryRow, ...]
    cpi: tuple[CpiChange, ...]
    counted: tuple[CountedChange, ...]
    models: tuple[SweepModel, ...]
    energy: tuple[SweepModel, ...]  # the same of joules; () where none were measured
    no_models: str | None  # why there are none, in words
    checks: tuple[RankingCheck, ...]  # of benchmarks that were traced (rater lab trace)
    missing: tuple[str, ...]  # points without runs


def page_lab(
    sweep: int,
    points: Sequence[Point],
    *,
    looks: int = 1,
    missing: Sequence[str] = (),
    predicting: Quantity = OF_TIME,
    traces: Mapping[str, BenchmarkTrace] | None = None,
) -> PageLab:
    """Put a sweep together.

    `looks`: as in `compare`; `predicting`: y of the models; `traces`: stored ones by benchmark.

    The baseline is the layout all in base pages, else the first. Raises `InputError` for a sweep
    that has no axis `pages`, or other axes beside it.
    """
    axes = {name for point in points for name, _ in point.values}
    if axes != {PAGES}:
        named = ", ".join(sorted(axes)) or "none"
        raise InputError(f"sweep {sweep} is none over page layouts alone (its axes: {named})")
    if len(points) < 2:
        raise InputError(f"sweep {sweep}: one layout has runs; two or more can be compared")
    ordered = sorted(points, key=lambda point: not parse_pages(_pages_text(point)).is_base)
    comparison = compare(ordered, looks=looks)
    shares = [_planned_share(point) for point in ordered]
    largest = max(range(1, len(shares)), key=lambda side: (shares[side], side))
    traces_by_name = traces or {}
    models, no_models = _models(ordered, predicting, traces_by_name)
    return PageLab(
        sweep=sweep,
        points=tuple(ordered),
        comparison=comparison,
        largest=largest,
        rows=(*comparison.suite_rows, *comparison.benchmarks),
        memory=memory_rows(ordered),
        cpi=cpi_changes(comparison.sides),
        counted=counted_changes(comparison.sides),
        models=models,
        energy=_models(ordered, OF_ENERGY, traces_by_name)[0],
        no_models=no_models,
        checks=_checks(ordered, predicting, traces_by_name),
        missing=tuple(missing),
    )


def _pages_text(point: Point) -> str:
    return dict(point.values)[PAGES]


def _planned_share(point: Point) -> float:
    share = share_of(_pages_text(point))
    return -1.0 if share is None else share


def _models(
    points: Sequence[Point], predicting: Quantity, traces: Mapping[str, BenchmarkTrace]
) -> tuple[tuple[SweepModel, ...], str | None]:
    try:
        return models_of(observe(points, ModelRequest(predicting), misses_of(traces))), None
    except InputError as error:
        return (), str(error)


def _checks(
    points: Sequence[Point], predicting: Quantity, traces: Mapping[str, BenchmarkTrace]
) -> tuple[RankingCheck, ...]:
    try:
        observed = observe(points, ModelRequest(predicting, PredictorKind.HUGE)) if traces else ()
    except InputError:
        return ()
    texts = {point.label: _pages_text(point) for point in points}
    order = list(texts.values())  # all in base pages first
    return tuple(
        ranking_check(
            data.benchmark,
            traces[data.benchmark],
            sorted(
                ((texts[layout.label], layout.values) for layout in data.layouts),
                key=lambda text_and_values: order.index(text_and_values[0]),
            ),
            has_faults=predicting != OF_USER_TIME,
        )
        for data in observed
        if data.benchmark in traces
    )


# -- What a stored trace predicts of page layouts, held against a sweep's own runs -----------------
#
# The benefit of a layout is what it saves over all in base pages, by the cost model of
# `lab.trace.ranking` (misses x cost + faults x cost); the error is IBM CPO's, in per cent of
# the largest benefit.

_HUGE = PAGE_SIZES[2]
_LOADS = Loads.BETWEEN


class BenchmarkTrace(Struct, frozen=True):
    """A stored trace of a benchmark, and what a miss costs on the machine it was made on."""

    number: int
    trace: PageTrace
    costs: PageCosts


class RankingCheck(Struct, frozen=True, kw_only=True):
    """Which data of a benchmark deserves large pages, and how its layouts bore the trace out."""

    benchmark: str
    trace: int  # its number
    best: RankedMapping  # of categories to page sizes
    saved_ns: float  # by the best one, as predicted
    check: BenefitCheck | None  # None: fewer than two layouts


def misses_of(traces: Mapping[str, BenchmarkTrace]) -> Callable[[str, str], float | None] | None:
    """Return a function of benchmark and --pages to page walks; None without a trace."""
    if not traces:
        return None

    def predicted(benchmark: str, text: str) -> float | None:
        trace = traces.get(benchmark)
        return None if trace is None else predicted_misses(trace.trace, text).walks

    return predicted


def ranking_check(
    benchmark: str,
    traced: BenchmarkTrace,
    layouts: Sequence[tuple[str, Sequence[float]]],
    *,
    has_faults: bool = True,
) -> RankingCheck:
    """Return the best mapping, and predictions against `layouts`: texts of --pages and times in s.

    The first of them is all in base pages. `has_faults`: the times have the kernel's part in them.
    """
    ranked = rank_mappings(traced.trace, traced.costs)
    best = by_saving(ranked, _LOADS)[0]
    saved = [_saved_ns(traced, ranked, text, has_faults=has_faults) for text, _ in layouts]
    check = None
    if len(layouts) > 1:
        check = check_benefits([text for text, _ in layouts], saved, [it for _, it in layouts])
    return RankingCheck(
        benchmark=benchmark,
        trace=traced.number,
        best=best,
        saved_ns=best.saved_ns(_LOADS),
        check=check,
    )


def _saved_ns(
    traced: BenchmarkTrace, ranked: Sequence[RankedMapping], text: str, *, has_faults: bool
) -> float:
    trace, costs = traced.trace, traced.costs
    base_misses, misses = (predicted_misses(trace, layout_text) for layout_text in ("0%", text))
    all_huge = next(
        (layout_text for layout_text in ranked if set(layout_text.mapping.sizes) == {_HUGE}), None
    )
    share = huge_share(parse_pages(text), extents(trace), _HUGE)
    faults_ns = share * all_huge.faults_saved_ns if all_huge and has_faults else 0.0
    walks_ns = (base_misses.walks - misses.walks) * mean_walk_ns(trace, costs, _LOADS)
    return (
        walks_ns + (base_misses.l1_misses - misses.l1_misses) * costs.l1_miss_ns(_LOADS) + faults_ns
    )


# -- Which model the layouts warrant, and how many more would tell ---------------------------------
#
# A model with one more term is taken where all of this holds:
#
# - the term's F test (extra sum of squares) is significant at 5 %,
# - AICc is smaller (where n - k - 1 is 3 or more: with less its correction outweighs all data),
# - the two models differ somewhere by more than the run-to-run noise of a layout's value.
#
# The first model is the constant: where no other is better by these rules, nothing is chosen.
#
# What was not taken is either too small to matter (the interval of the term lies within the margin)
# or cannot be told: then `more_layouts` says how many layouts more, spread in the same way and with
# the same scatter, make the interval so narrow that it excludes 0 at the size that is seen, or lies
# within the margin, whichever takes fewer. Standard errors shrink with the root of the number of
# layouts.

_ALPHA = 0.05
MARGIN = 0.01  # of the mean of y: a term that changes less does not matter
_MOST_LAYOUTS = 1000
_LEAST_ROOM = 3  # n - k - 1


class TermState(StrEnum):
    """The judgement of the highest term of a model, which the model below does not have."""

    THERE = "there"
    NOISE = "below the noise of runs"  # significant, but smaller than runs differ
    SMALL = "too small to matter"
    UNKNOWN = "cannot be told"


class TermVerdict(Struct, frozen=True, kw_only=True):
    """The last term of a polynomial, judged."""

    degree: int
    state: TermState
    # Of the mean of y: of a line the change from the smallest to the largest x, of a parabola how
    # far its middle lies from the chord of its ends.
    effect: float
    low: float | None = None  # ends of its 95 % interval; None: no degree of freedom
    high: float | None = None
    p: float | None = None  # of the F test; None: no degree of freedom
    largest_difference: float = 0.0  # between this model and the best one below it, of y
    noise: float = 0.0  # standard error of a layout's value from runs alone, of y
    more_layouts: int | None = None  # that would decide; None when decided, or more than 1000


class ModelChoice(Struct, frozen=True):
    """The model that is warranted."""

    chosen: str | None  # "linear", "quadratic", "cubic"; None: nothing
    terms: tuple[TermVerdict, ...]  # of degree 1, 2, ...


def choose_model(
    data: tuple[Floats, Floats],
    fits: Sequence[PolynomialFit],
    noise: float,
) -> ModelChoice:
    """Return which of the fits (constant first, by degree) is warranted.

    `data`: x and y of the layouts; `noise`: standard error of a layout's y from run to run, as a
    share of y.
    """
    x, y = data
    best, *others = fits
    verdicts = []
    for fit in others:
        difference = float(np.max(np.abs(fit.predict(x) - best.predict(x)))) / (
            abs(float(y.mean())) or 1.0
        )
        verdict = replace(_judge_term(best, fit, y), largest_difference=difference, noise=noise)
        if verdict.state is TermState.THERE and difference <= noise:
            verdict = replace(verdict, state=TermState.NOISE)
        verdicts.append(verdict)
        if verdict.state is TermState.THERE:
            best = fit
    return ModelChoice(best.name if best.degree else None, tuple(verdicts))


def _judge_term(best: PolynomialFit, fit: PolynomialFit, values: Floats) -> TermVerdict:
    mean = abs(float(values.mean())) or 1.0
    term, error = fit.highest_term()
    scale = (2 if fit.degree == 1 else 1) / mean
    effect = term * scale
    unknown = TermVerdict(degree=fit.degree, state=TermState.UNKNOWN, effect=effect)
    if fit.degrees_of_freedom < 1:
        return unknown
    half_width = t_quantile(CONFIDENCE, fit.degrees_of_freedom) * error * scale
    chance = _chance(best, fit)
    judged = replace(unknown, low=effect - half_width, high=effect + half_width, p=chance)
    if chance < _ALPHA and _aicc_agrees(fit, best, len(values)):
        return replace(judged, state=TermState.THERE)
    if abs(effect) + half_width <= MARGIN:
        return replace(judged, state=TermState.SMALL)
    more_layouts = _more_layouts(abs(effect), half_width, fit.degrees_of_freedom, len(values))
    return replace(judged, more_layouts=more_layouts)


def _chance(small: PolynomialFit, large: PolynomialFit) -> float:
    """Return how often noise alone would make the larger model so much better."""
    more = large.quality.parameters - small.quality.parameters
    gain = max(0.0, small.quality.rss - large.quality.rss) / more
    return f_exceeded(
        gain / (large.quality.rss / large.degrees_of_freedom), more, large.degrees_of_freedom
    )


def _aicc_agrees(fit: PolynomialFit, best: PolynomialFit, layouts: int) -> bool:
    fit_aicc, best_aicc = fit.quality.aicc, best.quality.aicc
    if fit_aicc is None or best_aicc is None or layouts - fit.quality.parameters - 2 < _LEAST_ROOM:
        return True  # its correction would be all there is to it
    return fit_aicc < best_aicc


def _more_layouts(effect: float, half: float, freedom: int, n: int) -> int | None:
    """Return how many more layouts than n decide: half widths shrink with the root of n."""
    goal = max(effect, MARGIN - effect)
    parameters = n - freedom
    error = half / t_quantile(CONFIDENCE, freedom)
    for this_count in range(n + 1, n + _MOST_LAYOUTS + 1):
        if (
            t_quantile(CONFIDENCE, this_count - parameters) * error * math.sqrt(n / this_count)
            <= goal
        ):
            return this_count - n
    return None


# -- The models of a sweep: fits, their errors, two-point lines and which is warranted -------------

LEAST_VALUES = 3  # of x: through two goes every line


class SweepModel(Struct, frozen=True):
    """One benchmark's models."""

    observed: ModelData
    fits: tuple[PolynomialFit, ...]  # constant, linear, quadratic, ...; () where there are too few
    pairs: tuple[TwoPointModel, ...]
    choice: ModelChoice | None  # None: too few layouts

    @property
    def x(self) -> Floats:
        """x of the layouts, ascending."""
        return np.array([layout.x for layout in self.observed.layouts])

    @property
    def y(self) -> Floats:
        """y of the layouts."""
        return np.array([layout.y for layout in self.observed.layouts])

    @property
    def chosen(self) -> PolynomialFit | None:
        """The polynomial that is warranted, None for none."""
        name = self.choice.chosen if self.choice else None
        return next((fit for fit in self.fits if fit.name == name), None)


def models_of(every: Sequence[ModelData], *, degree: int = 2) -> tuple[SweepModel, ...]:
    """Return the models of each benchmark; `degree`: of the highest polynomial (2 or 3)."""
    return tuple(_model(observed, degree) for observed in every)


def _model(observed: ModelData, degree: int) -> SweepModel:
    """Return the polynomials of x that describe y, and lines through two of the layouts."""
    x = np.array([layout.x for layout in observed.layouts])
    y = np.array([layout.y for layout in observed.layouts])
    if len(np.unique(x)) < LEAST_VALUES:
        return SweepModel(observed, (), (), None)
    fits = [fit for power in range(degree + 1) if (fit := fit_polynomial(x, y, power)) is not None]
    choice = choose_model((x, y), fits, observed.layout_noise)
    return SweepModel(observed, tuple(fits), two_point_models(x, y), choice)
