"""The part of a page that tells what page layouts came to: gains, memory, models."""

from __future__ import annotations

from collections.abc import Iterator

from rater.analysis.models.lab import PageLab
from rater.analysis.models.models import SweepModel
from rater.show.charts.markup import Html, element
from rater.show.compare.memory import print_memory_rows
from rater.show.html.html import PagePrinter
from rater.show.models.lab import (
    NO_MEMORY,
    has_memory,
    layouts_of,
    print_gains,
    print_layouts,
    print_overview,
    print_rankings,
)
from rater.show.models.sentences import HOW
from rater.show.models.table import print_model
from rater.show.pages.table import print_check

_PICTURES = (
    "Dots are layouts, from their lowest to their highest run; the thick line is the model that is "
    "warranted, with its 95 % band, dashed ones are not."
)


def lab_gains(lab: PageLab) -> Html:
    """Return what large pages bring, above the comparison with all its doubts."""
    printer = PagePrinter()
    print_gains(lab, printer)
    print_layouts(lab, printer)
    return printer.take()


def lab_sections(lab: PageLab) -> Iterator[Html]:
    """Yield memory and models."""
    printer = PagePrinter()
    if has_memory(lab):
        print_memory_rows(lab.memory, layouts_of(lab), printer)
    else:
        printer.line(NO_MEMORY)
    yield element("section", element("h2", "Memory"), printer.take(), class_="tables")
    print_overview(lab.models, lab.no_models, printer)
    if lab.energy:
        printer.line("The same of energy:", "bold")
        print_overview(lab.energy, None, printer)
    overview = printer.take()
    yield element(
        "section",
        element("h2", "Models"),
        overview,
        element("p", _PICTURES, class_="how"),
        element("div", id="models", class_="scaling"),
        *(_details(model) for model in (*lab.models, *lab.energy)),
        element("p", HOW, class_="how"),
        class_="tables",
    )
    print_rankings(lab, printer)
    for it in lab.checks:
        if it.check is not None:
            printer.line(it.benchmark, "bold")
            print_check(it.check, printer)
    yield element("section", element("h2", "Which data"), printer.take(), class_="tables")


def _details(model: SweepModel) -> Html:
    printer = PagePrinter()
    print_model(model, printer)
    name = f"{model.observed.name}: {model.observed.y.name}"
    return element("details", element("summary", name), printer.take())
