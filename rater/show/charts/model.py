"""Models of layouts as charts, for a page, a file and the terminal; pure but for drawing them.

Dots are layouts (a line from the lowest to the highest run), curves the fits: the one that is
warranted is thick, its 95 % confidence band shaded; the others are dashed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rater.analysis.models.models import SweepModel
from rater.analysis.models.observed import LayoutValue
from rater.analysis.models.polynomial import PolynomialFit
from rater.analysis.stats.robust import Floats
from rater.show.charts.vega import PlacedChart, PlacedText, sheet_svg
from rater.show.console.format import decimals, number, plain

_STEPS = 60  # of a drawn curve
_COLOURS = ("var(--explained)", "var(--slow)", "var(--pick)", "var(--dot2)")  # by place of the fit
_TIGHT = 0.07  # of the height: nearer names would touch
_LEAST_WIDTH, _LINES = 30, 12  # in the terminal
_SIGNS = ".:'"  # of the fits there
_LAYOUT, _SEVERAL = "o", "8"


def models_svg(models: Sequence[SweepModel], title: str) -> str:
    """Return the models as an SVG, a panel for each benchmark."""
    charts = model_charts(models)
    columns = 1 if len(charts) == 1 else 2 if len(charts) <= 6 else 3
    width, height = (600.0, 340.0) if columns == 1 else (250.0, 170.0)
    figures = [
        PlacedChart(
            "model",
            chart,
            width,
            height,
            [PlacedText(0, -10, chart["title"], weight="bold")],
            above=30,
        )
        for chart in charts
    ]
    note = "dots: layouts, lowest to highest run; thick: warranted, with its 95 % band; dashed: not"
    return sheet_svg(title, figures, columns=columns, notes=[PlacedText(58, 33, note, "faint")])


def model_charts(models: Sequence[SweepModel]) -> list[dict[str, Any]]:
    """Return what model.vega.json draws, a panel for each benchmark that has a model."""
    return [_chart(model) for model in models if model.fits]


def axis_name(model: SweepModel) -> str:
    """Return x with its unit."""
    of = model.observed.x
    return f"{of.name}, {of.unit}" if of.unit else of.name


def effort_name(model: SweepModel) -> str:
    """Return y with its unit."""
    of = model.observed.y
    return f"{of.name}, {of.unit}" if of.unit else of.name


def _chart(model: SweepModel) -> dict[str, Any]:
    layouts = model.observed.layouts
    xs = np.linspace(layouts[0].x, layouts[-1].x, _STEPS + 1)
    curves = [(fit, fit.at(xs)) for fit in _drawn(model)]
    chosen = model.chosen
    band = chosen.band(xs) if chosen is not None else None
    ends = [value for one in layouts for value in (*one.values, one.y)]
    ends += [float(y) for _, values in curves for y in values]
    if chosen is not None and band is not None:
        middle = chosen.at(xs)
        ends += [float(np.min(middle - band)), float(np.max(middle + band))]
    low, high = min(ends), max(ends)
    pad = 0.06 * (high - low or abs(high) or 1.0)
    names: list[dict[str, Any]] = []
    for place, (fit, values) in enumerate(curves):
        y = float(values[-1])
        if all(abs(y - one["y"]) > _TIGHT * (high - low) for one in names):
            names.append({"y": y, "text": fit.name, "colour": _COLOURS[place]})
    return {
        "title": plain(f"{model.observed.name}, {effort_name(model)}"),
        "signals": {
            "bottom": low - pad,
            "top": high + pad,
            "first": layouts[0].x,
            "last": layouts[-1].x,
            "xname": plain(axis_name(model)),
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
                    "x": one.x,
                    "y": one.y,
                    "low": min(one.values),
                    "high": max(one.values),
                    "card": [
                        plain(one.label),
                        f"{plain(axis_name(model))}: {one.x:.6g}",
                        f"{plain(effort_name(model))}: {one.y:.6g}",
                        *(f"{fit.name}: {_error(fit, one):+.1f} %" for fit, _ in curves),
                    ],
                }
                for one in layouts
            ],
            "names": names,
        },
    }


def _error(fit: PolynomialFit, layout: LayoutValue) -> float:
    """Return how far a fit is off a layout, in per cent."""
    return 100 * (float(fit.at(np.array([layout.x]))[0]) / layout.y - 1)


def _drawn(model: SweepModel) -> list[PolynomialFit]:
    """Return the fits that are drawn, the warranted one first."""
    fits = [fit for fit in model.fits if fit.degree]
    return sorted(fits, key=lambda fit: (fit is not model.chosen, fit.degree))


def _band(xs: Floats, chosen: PolynomialFit | None, band: Floats | None) -> list[dict[str, float]]:
    if chosen is None or band is None:
        return []
    middle = chosen.at(xs)
    return [
        {"x": float(x), "low": float(y - half), "high": float(y + half)}
        for x, y, half in zip(xs, middle, band, strict=True)
    ]


def model_lines(model: SweepModel, width: int) -> list[str]:
    """Return a model for a terminal: `o` layouts, dots and colons the fits."""
    layouts = model.observed.layouts
    fits = _drawn(model)
    values = [one.y for one in layouts]
    for fit in fits:
        values += [float(y) for y in fit.at(model.x)]
    low, high = min(values), max(values)
    places = decimals([low, high])
    ends = [number(high, places), number(low, places)]
    margin = max(map(len, ends)) + 1
    room = max(_LEAST_WIDTH, width - margin - 1)
    first, last = layouts[0].x, layouts[-1].x
    grid = [[" "] * room for _ in range(_LINES)]

    def row(y: float) -> int:
        share = (high - y) / (high - low) if high > low else 0.5
        return min(_LINES - 1, max(0, round(share * (_LINES - 1))))

    columns = np.linspace(first, last, room)
    for fit, sign in reversed(list(zip(fits, _SIGNS, strict=False))):
        for column, y in enumerate(fit.at(columns)):
            if low <= y <= high:
                grid[row(float(y))][column] = sign
    for one in layouts:
        column = round((one.x - first) / (last - first) * (room - 1))
        cells = grid[row(one.y)]
        cells[column] = _SEVERAL if cells[column] in (_LAYOUT, _SEVERAL) else _LAYOUT
    marks = {0: ends[0], _LINES - 1: ends[1]}
    lines = [
        f"{marks.get(at, ''):>{margin - 1}} |{''.join(one).rstrip()}" for at, one in enumerate(grid)
    ]
    left, right = f"{first:.4g}", f"{last:.4g} {axis_name(model)}"
    lines.append(" " * margin + f"{left}{right:>{max(1, room + 1 - len(left))}}")
    key = ", ".join(f"{sign} {fit.name}" for fit, sign in zip(fits, _SIGNS, strict=False))
    return [f"{effort_name(model)}  ({_LAYOUT} layouts, {key})", *lines]
