"""Models of layouts on a terminal and a page: what is warranted, fits, two-point lines."""

from __future__ import annotations

from collections.abc import Sequence

from rater.analysis.models.models import SweepModel
from rater.analysis.models.polynomial import PolynomialFit
from rater.analysis.models.sparse import SparseFit
from rater.analysis.models.two_points import TwoPointModel, shown_pairs
from rater.show.console.printer import Printer
from rater.show.console.table import Columns
from rater.show.models.sentences import (
    HOW,
    choice_texts,
    formula,
    head_text,
    noise_text,
    quantities_text,
)
from rater.text.words import percent, signed_percent, some


def print_models(
    models: Sequence[SweepModel],
    printer: Printer,
    drawings: Sequence[Sequence[str]] = (),
    told: Sequence[str] = (),
) -> None:
    """Print every model; `drawings`: its picture in lines; `told`: points without runs."""
    printer.some(told, "yellow")
    for place, model in enumerate(models):
        if place or told:
            printer.line()
        print_model(model, printer, drawings[place] if drawings else ())
    printer.line()
    printer.prose(HOW, "dim")


def print_model(model: SweepModel, printer: Printer, drawing: Sequence[str] = ()) -> None:
    """Print one model; `drawing`: its picture in lines."""
    printer.prose(head_text(model), "bold")
    printer.prose(quantities_text(model))
    printer.some(model.observed.lacking, "yellow")
    for place, text in enumerate(choice_texts(model)):
        printer.prose(text, "" if place else "bold")
    printer.prose(noise_text(model), "dim")
    if not model.fits:
        return
    if drawing:
        printer.line()
        for line in drawing:
            printer.line(line)
    printer.line()
    _print_fits(model, printer)
    if model.pairs:
        printer.line()
        _print_pairs(model, printer)


def _print_fits(model: SweepModel, printer: Printer) -> None:
    fits: list[PolynomialFit | SparseFit] = [fit for fit in model.fits if fit.degree]
    if model.sparse is not None:
        fits.append(model.sparse)
    chosen = model.choice.chosen if model.choice else None
    of: Columns[PolynomialFit | SparseFit] = Columns(fits)
    printer.table(
        [
            of.left("model", lambda fit: f"{fit.name} *" if fit.name == chosen else fit.name),
            of.right("R2", lambda fit: _places(fit.quality.r2)),
            of.right("adjusted|R2", lambda fit: _places(fit.quality.adjusted_r2)),
            of.right("AICc", lambda fit: _places(fit.quality.aicc, 1)),
            of.percent("left out|mean %", lambda fit: fit.quality.mean_error),
            of.percent("left out|max %", lambda fit: fit.quality.maximum_error),
            of.left("y =", formula, flexible=True),
        ],
        ["bold" if fit.name == chosen else "" for fit in fits],
    )
    if model.no_sparse is not None:
        printer.prose(f"No sparse polynomial: {model.no_sparse}.", "dim")


def _print_pairs(model: SweepModel, printer: Printer) -> None:
    """Print OPERA's Table 1: lines through two layouts against all others."""
    layouts = model.observed.layouts
    shown = shown_pairs(model.pairs, model.x)
    of = Columns(shown)
    worst = max(model.pairs, key=lambda one: one.maximum_error)
    printer.prose(
        f"Lines through two layouts, and how wrong they are about the others ({len(model.pairs)} "
        f"pairs; the worst is {percent(worst.maximum_error)} % off):"
    )

    def beyond(one: TwoPointModel) -> str:
        at = max(
            (i for i, error in enumerate(one.errors) if error is not None),
            key=lambda i: abs(one.errors[i] or 0.0),
        )
        words = " (outside)" if one.outside[at] else ""
        return f"{signed_percent(one.errors[at])} at {_short(layouts[at].label)}{words}"

    printer.table(
        [
            of.left(
                "fitted on",
                lambda one: (
                    f"{_short(layouts[one.first].label)}, {_short(layouts[one.second].label)}"
                ),
                flexible=True,
            ),
            of.percent("mean|%", lambda one: one.mean_error),
            of.percent("max|%", lambda one: one.maximum_error),
            of.left("worst, %", beyond),
        ]
    )


def _short(label: str) -> str:
    """Return a label without the name of the axis, where it has one."""
    parts = label.split()
    return parts[0].partition("=")[2] or label if len(parts) == 1 else label


def _places(value: float | None, places: int = 3) -> str:
    return "-" if value is None else f"{value:.{places}f}"


def names_of(models: Sequence[SweepModel]) -> str:
    """Return the names of what is modelled."""
    return some([one.observed.name for one in models])
