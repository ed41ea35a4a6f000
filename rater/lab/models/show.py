"""Models of layouts in sentences, tables and charts, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from rater.analysis.stats.robust import Floats
from rater.lab.models.fits import NAMES, PolynomialFit, Quality, TwoPointModel, shown_pairs
from rater.lab.models.model import (
    LEAST_VALUES,
    MARGIN,
    ModelChoice,
    SweepModel,
    TermState,
    TermVerdict,
)
from rater.lab.models.observed import LayoutValue
from rater.lab.models.quantities import Quantity
from rater.show.charts.vega import PlacedChart, placed_text, sheet_svg
from rater.show.screen.document import CHANGE, PERCENT, TEXT, Field, Line, Part, ViewTable
from rater.show.screen.format import format_number, sanitize
from rater.text.values import (
    JsonFields,
    count,
    objects,
    percent,
    signed_percent,
    to_json,
)

HOW = (
    "Warranted is what an F test at 5 % and AICc ask for and what differs from the simpler model "
    "by more than the noise of runs. More layouts: so many that the 95 % interval, which narrows "
    "with the root of their number (same spread, same scatter), excludes 0 at the size seen or "
    f"lies within {MARGIN * 100:g} %. Left out: each layout predicted by the model of all others."
)


def _noise_text(model: SweepModel) -> str:
    noise, of_layout = model.observed.noise, model.observed.layout_noise
    if noise.degrees is None:
        return (
            f"Too few runs were repeated to know how much they differ: {noise.sd * 100:.0f} % is "
            "assumed (`rater sweep --rounds 3 ...`)."
        )
    return (
        f"Runs of one layout differ by {noise.sd * 100:.2g} % (standard deviation), a layout's "
        f"value is known to {of_layout * 100:.2g} %."
    )


def choice_texts(model: SweepModel) -> Iterator[str]:
    """Say what is warranted and what is not, and what would tell."""
    choice = model.choice
    if choice is None:
        yield (
            f"No model: {count(len(set(model.x.tolist())), 'value')} of x, and through two of them "
            f"goes every line; {LEAST_VALUES} or more are needed."
        )
        return
    if choice.chosen is None:
        yield "Warranted: nothing. No model tells more than the mean of all layouts."
    else:
        fit = model.chosen
        yield f"Warranted: {choice.chosen}{f', y = {formula(fit)}' if fit else ''}."
    for term in choice.terms:
        effect = f"{signed_percent(term.effect)} %"
        yield f"{_TERMS.get(term.degree, NAMES[term.degree])}: {effect}, {_verdict(model, term)}."


def formula(fit: PolynomialFit) -> str:
    """Return a model as `y = 0.313 - 0.00126 x`."""
    first, *others = fit.coefficients
    text = f"{first:.4g}"
    for power, value in enumerate(others, 1):
        x = "x" if power == 1 else f"x^{power}"
        text += f" {'-' if value < 0 else '+'} {abs(value):.4g} {x}"
    return text


_TERMS = {1: "smallest to largest x", 2: "bend off the chord"}
_STATES = {
    TermState.THERE: "beyond chance and noise",
    TermState.SMALL: f"within {MARGIN * 100:g} %: does not matter",
    TermState.NOISE: "smaller than the noise of runs: not chosen",
}


def _verdict(model: SweepModel, term: TermVerdict) -> str:
    if term.state in _STATES:
        return _STATES[term.state]
    if term.low is None:
        return "undecided: no layout more than coefficients"
    if term.more_layouts is None:
        return "undecided; even 1000 more layouts would not decide"
    text = f"undecided; {count(term.more_layouts, 'more layout')} would decide"
    fit = next(fit for fit in model.fits if fit.degree == term.degree)
    scatter = fit.sigma / (abs(float(model.y.mean())) or 1.0)
    if not 0 < scatter <= 1.5 * term.noise:
        return text
    # What is left is noise of runs.
    rounds = min(len(layout.runs) for layout in model.observed.layouts)
    more = -(-rounds * term.more_layouts // len(model.observed.layouts))
    return f"{text}, or {count(more, 'more round')}"


def _terms_table(model: SweepModel) -> ViewTable:
    fields = (
        Field(
            heading=model.observed.y.name,
            value=lambda term: _TERMS.get(term.degree, NAMES[term.degree]),
            form=TEXT,
        ),
        Field(heading="effect|%", value=lambda term: term.effect, form=CHANGE),
        Field(heading=("95 % interval", "from"), value=lambda term: term.low, form=CHANGE),
        Field(heading="to|%", value=lambda term: term.high, form=CHANGE),
        Field(heading="verdict", value=lambda term: _verdict(model, term), wrap=True),
    )
    return ViewTable(title="", rows=model.choice.terms if model.choice else (), fields=fields)


# -- Models of layouts as values for JSON; shares are of one, times in seconds ---------------------

PAIR = JsonFields("mean_error maximum_error errors extrapolated=outside")
TABLE = {
    SweepModel: JsonFields(
        "benchmark=observed.benchmark tune=observed.tune held=observed.held? x_is=observed.x"
        " y_is=observed.y",
        {
            "noise": lambda model: {
                "sd_of_a_run": model.observed.noise.sd,
                "of_a_layout": model.observed.layout_noise,
                "degrees_of_freedom": model.observed.noise.degrees,
                "assumed": model.observed.noise.degrees is None,
                "within_rounds": model.observed.noise.in_rounds,
            }
        },
        "layouts=observed.layouts left_out=observed.lacking choice",
        {"words": lambda model: list(choice_texts(model))},
        "models=fits",
        {
            "two_point_models": lambda model: [
                {
                    "fitted_on": [
                        model.observed.layouts[place].label for place in (pair.first, pair.second)
                    ],
                    **PAIR.read(pair),
                }
                for pair in model.pairs
            ]
        },
    ),
    Quantity: JsonFields("kind name unit? source"),
    LayoutValue: JsonFields(
        "label x y",
        {"runs": lambda one: objects("run y", zip(one.runs, one.values, strict=True))},
        "counted=features{}",
    ),
    ModelChoice: JsonFields("warranted=chosen terms"),
    TermVerdict: JsonFields(
        "degree state effect",
        {"interval_95": lambda one: [one.low, one.high]},
        "p largest_difference noise more_layouts",
    ),
    PolynomialFit: JsonFields(
        {"model": lambda one: one.name},
        "degree coefficients degrees_of_freedom",
        {"residual_sd": lambda one: one.sigma if one.degrees_of_freedom else None},
        "quality",
    ),
    Quality: JsonFields(
        "parameters rss r2 adjusted_r2 aicc left_out_mean=mean_error left_out_maximum=maximum_error"
        " left_out"
    ),
}


class ModelSource(Struct, frozen=True):
    """The measurements that models are of."""

    sweep: int | None  # its number; None: a file
    name: str  # `sweep 3`, or the name of the file
    missing: tuple[str, ...] = ()  # points without runs
    disturbed: tuple[str, ...] = ()


def models_document(models: Sequence[SweepModel], source: ModelSource) -> object:
    """Return everything."""
    points = {"points_without_runs": source.missing, "disturbed": source.disturbed}
    file = {} if source.sweep is not None else {"csv": source.name}
    return to_json({"rater": 1, "sweep": source.sweep, **file, **points, "models": models}, TABLE)


# -- Models of layouts on a terminal and a page: what is warranted, fits, two-point lines ----------


def models_parts(models: Sequence[SweepModel], missing: Sequence[str] = ()) -> Iterator[Part]:
    """Yield every model; `told`: points without runs."""
    yield from (Line(text, "yellow") for text in missing)
    for place, model in enumerate(models):
        yield "" if place or missing else None
        yield from model_parts(model)
    yield ""
    yield Line(HOW, "dim")


def model_parts(model: SweepModel) -> Iterator[Part]:
    """Yield one model."""
    observed = model.observed
    runs = {run for layout in observed.layouts for run in layout.runs}
    many = f"{count(len(observed.layouts), 'layout')}, {count(len(runs), 'run')}"
    yield Line(f"{observed.name}: {many}", "bold")
    yield " ".join(
        f"{letter}: {quantity.name}{f' ({quantity.unit})' if quantity.unit else ''}, "
        f"{quantity.source}."
        for letter, quantity in (("x", observed.x), ("y", observed.y))
    )
    yield from (Line(text, "yellow") for text in observed.lacking)
    yield Line(next(choice_texts(model)), "bold")
    yield _terms_table(model)
    yield Line(_noise_text(model), "dim")
    if model.fits:
        yield _fits_table(model)
    if model.pairs:
        yield _pairs_table(model)


def _fits_table(model: SweepModel) -> ViewTable:
    fits = [fit for fit in model.fits if fit.degree]
    chosen = model.choice.chosen if model.choice else None
    fields = (
        Field(
            heading="model",
            value=lambda fit: f"{fit.name} *" if fit.name == chosen else fit.name,
            form=TEXT,
        ),
        Field(heading="R2", value=lambda fit: format_number(fit.quality.r2, 3)),
        Field(heading="adjusted|R2", value=lambda fit: format_number(fit.quality.adjusted_r2, 3)),
        Field(heading="AICc", value=lambda fit: format_number(fit.quality.aicc, 1)),
        Field(heading="left out|mean %", value=lambda fit: fit.quality.mean_error, form=PERCENT),
        Field(heading="left out|max %", value=lambda fit: fit.quality.maximum_error, form=PERCENT),
        Field(heading="y =", value=formula, form=TEXT, flexible=True),
    )
    return ViewTable(
        title="", rows=fits, fields=fields, style=lambda fit: "bold" if fit.name == chosen else ""
    )


def _pairs_table(model: SweepModel) -> ViewTable:
    labels = [_short(layout.label) for layout in model.observed.layouts]
    worst = max(model.pairs, key=lambda one: one.maximum_error)

    def beyond(pair: TwoPointModel) -> str:
        worst_place = max(
            (place for place, error in enumerate(pair.errors) if error is not None),
            key=lambda place: abs(pair.errors[place] or 0.0),
        )
        words = " (outside)" if pair.outside[worst_place] else ""
        return f"{signed_percent(pair.errors[worst_place])} at {labels[worst_place]}{words}"

    title = (
        f"Lines through two layouts, and their errors for the others ({len(model.pairs)} pairs; "
        f"the worst is {percent(worst.maximum_error)} % off):"
    )
    fields = (
        Field(
            heading="fitted on",
            value=lambda one: f"{labels[one.first]}, {labels[one.second]}",
            form=TEXT,
            flexible=True,
        ),
        Field(heading="mean|%", value=lambda one: one.mean_error, form=PERCENT),
        Field(heading="max|%", value=lambda one: one.maximum_error, form=PERCENT),
        Field(heading="worst, %", value=beyond, form=TEXT),
    )
    return ViewTable(title=title, rows=shown_pairs(model.pairs, model.x), fields=fields)


def _short(label: str) -> str:
    parts = label.split()
    return parts[0].partition("=")[2] or label if len(parts) == 1 else label


# -- Models of layouts as charts, for a page and a file; pure but for drawing them -----------------
#
# Dots are layouts (a line from the lowest to the highest run), curves the fits: the one that is
# warranted is thick, its 95 % confidence band shaded; the others are dashed.

_STEPS = 60  # of a drawn curve
_COLOURS = ("var(--explained)", "var(--slow)", "var(--pick)", "var(--dot2)")  # by place of the fit
_TIGHT = 0.07  # of the height: nearer names would touch


def models_svg(models: Sequence[SweepModel], title: str) -> str:
    """Return the models as an SVG, a panel for each benchmark."""
    charts = model_charts(models)
    columns = 1 if len(charts) == 1 else 2 if len(charts) <= 6 else 3
    width, height = (600.0, 340.0) if columns == 1 else (250.0, 170.0)
    figures = [
        PlacedChart(
            kind="model",
            chart=chart | {"signals": chart["signals"] | {"title": chart["title"]}},
            width=width,
            height=height,
            above=30,
        )
        for chart in charts
    ]
    note = "dots: layouts, lowest to highest run; thick: warranted, with its 95 % band; dashed: not"
    return sheet_svg(title, figures, columns=columns, notes=[placed_text(58, 33, note, "faint")])


def model_charts(models: Sequence[SweepModel]) -> list[dict[str, Any]]:
    """Return what model.vega.json draws, a panel for each benchmark that has a model."""
    return [_chart(model) for model in models if model.fits]


def _chart(model: SweepModel) -> dict[str, Any]:
    """Return the panel of a model: x is its predictor and y its target, in their own units."""
    layouts = model.observed.layouts
    xs = np.linspace(layouts[0].x, layouts[-1].x, _STEPS + 1)
    curves = [(fit, fit.predict(xs)) for fit in _drawn(model)]
    chosen = model.chosen
    band = chosen.band(xs) if chosen is not None else None
    ends = [value for layout in layouts for value in (*layout.values, layout.y)]
    ends += [float(y) for _, values in curves for y in values]
    if chosen is not None and band is not None:
        middle = chosen.predict(xs)
        ends += [float(np.min(middle - band)), float(np.max(middle + band))]
    low, high = min(ends), max(ends)
    pad = 0.06 * (high - low or abs(high) or 1.0)
    return {
        "title": sanitize(f"{model.observed.name}, {model.observed.y.title}"),
        "signals": {
            "bottom": low - pad,
            "top": high + pad,
            "first": layouts[0].x,
            "last": layouts[-1].x,
            "xname": sanitize(model.observed.x.title),
        },
        "data": {
            "points": [
                {"line": place, "x": float(x), "y": float(y), "colour": _COLOURS[place]}
                | ({"width": 2, "dash": [1, 0]} if fit is chosen else {"width": 1, "dash": [4, 3]})
                for place, (fit, values) in enumerate(curves)
                for x, y in zip(xs, values, strict=True)
            ],
            "band": _band(xs, chosen, band),
            "dots": [
                {
                    "x": layout.x,
                    "y": layout.y,
                    "low": min(layout.values),
                    "high": max(layout.values),
                    "card": [
                        sanitize(layout.label),
                        f"{sanitize(model.observed.x.title)}: {layout.x:.6g}",
                        f"{sanitize(model.observed.y.title)}: {layout.y:.6g}",
                        *(f"{fit.name}: {_error(fit, layout):+.1f} %" for fit, _ in curves),
                    ],
                }
                for layout in layouts
            ],
            "names": list(_curve_names(curves, _TIGHT * (high - low))),
        },
    }


def _curve_names(
    curves: Sequence[tuple[PolynomialFit, Floats]], apart: float
) -> Iterator[dict[str, Any]]:
    """Yield the name of each curve beside its end, moved down where another one is as near."""
    ends = [(float(values[-1]), place, fit.name) for place, (fit, values) in enumerate(curves)]
    written_at = math.inf
    for end, place, name in sorted(ends, reverse=True):
        written_at = min(end, written_at - apart)
        yield {"y": written_at, "text": name, "colour": _COLOURS[place]}


def _error(fit: PolynomialFit, layout: LayoutValue) -> float:
    return 100 * (float(fit.predict(np.array([layout.x]))[0]) / layout.y - 1)


def _drawn(model: SweepModel) -> list[PolynomialFit]:
    fits = [fit for fit in model.fits if fit.degree]
    return sorted(fits, key=lambda fit: (fit is not model.chosen, fit.degree))


def _band(xs: Floats, chosen: PolynomialFit | None, band: Floats | None) -> list[dict[str, float]]:
    """Return the confidence band around the chosen fit: lowest and highest y at each x."""
    if chosen is None or band is None:
        return []
    middle = chosen.predict(xs)
    return [
        {"x": float(x), "low": float(y - half), "high": float(y + half)}
        for x, y, half in zip(xs, middle, band, strict=True)
    ]
