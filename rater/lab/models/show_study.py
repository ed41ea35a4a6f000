"""What a sweep over page layouts comes to, on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from rater.analysis.compare.model import Effect
from rater.analysis.results.copies import MemoryCell
from rater.lab.models.model import LabRow, PageLab, RankingCheck, SweepModel, TermState
from rater.lab.models.show import HOW, TABLE, model_charts, print_model
from rater.lab.trace.show import milliseconds, print_check
from rater.lab.trace.tlb import mapping_name
from rater.show.charts.vega import Html, element
from rater.show.compare.comparison import (
    comparison_document,
    cpi_document,
    cpi_parts,
    memory_document,
    memory_parts,
)
from rater.show.compare.differences import trouble_parts
from rater.show.console import Column, Columns, Printer, names_with_tunes
from rater.show.document import TEXT, Field, ViewTable, print_parts
from rater.show.format import format_number
from rater.show.html.page import PagePart
from rater.show.html.shell import HtmlPrinter
from rater.text.values import JsonFields, count, percent, signed_percent, to_json

_MB = 1e6
_SUITE = "geometric mean"
NO_MEMORY = "The memory of these copies was not observed."


def layouts_of(lab: PageLab) -> list[str]:
    """Return the texts of its layouts, the baseline first."""
    return [_value(point.label) for point in lab.points]


def has_memory(lab: PageLab) -> bool:
    """Tell whether the memory of any copy is known."""
    cells = [cell for row in lab.memory for cell in row.cells if cell is not None]
    return any(cell.max_bytes is not None or cell.average_bytes is not None for cell in cells)


def print_lab(lab: PageLab, printer: Printer) -> None:
    """Print the summary: speedups over base pages, memory, CPI, models."""
    runs = sum(len(point.runs) for point in lab.points)
    printer.prose(
        f"Page sizes, sweep {lab.sweep}: {count(len(lab.points), 'layout')}, {count(runs, 'run')}",
        "bold",
    )
    printer.some(lab.missing, "yellow")
    print_parts(trouble_parts(lab.comparison.troubles), printer)
    printer.line()
    print_gains(lab, printer)
    printer.line()
    print_layouts(lab, printer)
    printer.line()
    print_lab_memory(lab, printer)
    counted = [it for it in lab.cpi if it.cycles[lab.largest] is not None]
    print_parts(cpi_parts(counted, lab.comparison.sides), printer)
    printer.line()
    print_overview(lab.models, lab.no_models, printer)
    if lab.energy:
        printer.line()
        printer.prose("The same of energy:", "bold")
        print_overview(lab.energy, None, printer)
    printer.line()
    print_rankings(lab, printer)


def print_rankings(lab: PageLab, printer: Printer) -> None:
    """Print which data deserves large pages by the traces, and how far off they were."""
    if not lab.checks:
        printer.prose(
            "No ranking: `rater lab trace SUITE/BENCHMARK --size SIZE` traces a benchmark, and "
            "what it predicts of each layout is then held against these runs.",
            "dim",
        )
        return
    printer.prose("Which data deserves large pages, by traces, against these runs:")
    of = Columns(lab.checks)
    printer.table(
        [
            of.left("benchmark", lambda it: it.benchmark, flexible=True),
            of.right("trace", lambda it: it.trace),
            of.left("best in large pages", lambda it: mapping_name(it.best.mapping.sizes)),
            of.right("large|pages", lambda it: it.best.large_pages),
            of.right("saves|ms", lambda it: milliseconds(it.saved_ns)),
            of.right(("error of", "mean %"), lambda it: _error(it, largest=False)),
            of.right(("benefit", "max %"), lambda it: _error(it, largest=True)),
        ]
    )
    printer.prose(
        "error of benefit: predicted less measured benefit of each layout, in per cent of the "
        "largest benefit (IBM CPO's measure); noise: the largest one does not stand out of it.",
        "dim",
    )


def print_gains(lab: PageLab, printer: Printer) -> None:
    """Print what the most large pages bring to each benchmark."""
    base, most = lab.comparison.sides[0].label, lab.comparison.sides[lab.largest].label
    printer.prose(f"{_value(most)} in large pages over {_value(base)}:")
    of = Columns(lab.rows)
    printer.table(
        [
            of.left("benchmark", _name, flexible=True),
            of.right("speed-|up", lambda one: _factor(one.largest)),
            of.right("95 %|interval", lambda one: _interval(one.largest)),
            of.left("verdict", lambda one: _verdict(one.largest), flexible=True),
            of.change("improve-|ment %", lambda one: one.largest.improvement),
            of.change("reduc-|tion %", lambda one: one.largest.reduction, optional=1),
            of.left("fastest", _fastest, optional=2),
        ],
        ["bold" if one.row.over else "" for one in lab.rows],
    )
    printer.prose(
        "improvement: (T base - T) / T; reduction: (T base - T) / T base; intervals and verdicts "
        f"as in `rater compare sweep:{lab.sweep}`.",
        "dim",
    )


def print_layouts(lab: PageLab, printer: Printer) -> None:
    """Print the speedup of every layout, as many beside each other as there is room for."""
    names = Field("speedup", _name, TEXT, flexible=True)
    layouts = [
        Field(_value(side.label), partial(_factor_at, at))
        for at, side in enumerate(lab.comparison.sides[1:])
    ]
    print_parts([ViewTable("", lab.rows, [names, *layouts], repeated=1)], printer)


def print_lab_memory(lab: PageLab, printer: Printer) -> None:
    """Print average and maximum memory of a copy, in base and in the most large pages."""
    if not has_memory(lab):
        printer.prose(NO_MEMORY, "dim")
        return
    pairs = [(row.cells[0], row.cells[lab.largest]) for row in lab.memory]
    of = Columns(pairs)
    base, most = (_value(lab.comparison.sides[at].label) for at in (0, lab.largest))
    printer.table(
        [
            Column("MB a copy", names_with_tunes(lab.memory), right=False, flexible=True),
            of.numbers((base, "average"), lambda it: _megabytes(it[0], "average_bytes")),
            of.numbers(("", "most"), lambda it: _megabytes(it[0], "max_bytes")),
            of.numbers((most, "average"), lambda it: _megabytes(it[1], "average_bytes")),
            of.numbers(("", "most"), lambda it: _megabytes(it[1], "max_bytes")),
            of.change("more|%", lambda it: _more(*it)),
        ]
    )
    printer.prose(
        "Average of looks once a second: copies of less than a second have a maximum only. All "
        f"layouts: `rater compare sweep:{lab.sweep} --memory`.",
        "dim",
    )


def print_overview(models: Sequence[SweepModel], no_models: str | None, printer: Printer) -> None:
    """Print a line for each benchmark's model."""
    if not models:
        printer.prose(f"No model: {no_models}", "yellow")
        return
    of_x = dict.fromkeys(f"{it.observed.x.name}, {it.observed.x.source}" for it in models)
    printer.prose(f"Models of {models[0].observed.y.name}; x: {'; '.join(of_x)}.")
    of = Columns(models)
    printer.table(
        [
            of.left("benchmark", lambda it: it.observed.name, flexible=True),
            of.left("warranted", _warranted),
            of.right("end to|end %", _effect),
            of.right("adjusted|R2", _r2),
            of.right(("left out", "mean %"), lambda it: _left_out(it, largest=False)),
            of.right(("", "max %"), lambda it: _left_out(it, largest=True)),
            of.right("two|points %", _two_points),
            of.right("layouts|more", _more_layouts),
        ]
    )
    printer.prose(
        "left out: errors for layouts that were not fitted; two points: the largest error of the "
        "line through the smallest and the largest x; layouts more: that would tell whether it "
        "bends, or changes at all.",
        "dim",
    )


_TABLE = {
    RankingCheck: JsonFields(
        "benchmark trace",
        {"best": lambda it: mapping_name(it.best.mapping.sizes)},
        "best.large_pages saved_ns check",
    )
}


def lab_document(lab: PageLab) -> dict[str, object]:
    """Return everything for programs."""
    labels = layouts_of(lab)
    return {
        "rater": 1,
        "sweep": lab.sweep,
        "layouts": labels,
        "most_large_pages": labels[lab.largest],
        "comparison": comparison_document(lab.comparison),
        **memory_document(lab.memory, labels),
        "cpi": cpi_document(lab.cpi),
        "models": to_json(lab.models, TABLE),
        "energy_models": to_json(lab.energy, TABLE),
        "no_models_because": lab.no_models,
        "rankings": to_json(lab.checks, _TABLE),
        "points_without_runs": list(lab.missing),
    }


def _value(label: str) -> str:
    return label.partition("=")[2] or label


def _name(one: LabRow) -> str:
    row = one.row
    if row.over:
        return f"{_SUITE} ({len(row.over)})"
    return f"{row.name} {row.tune}" if row.tune else row.name


def _factor(cell: Effect) -> str:
    return format_number(cell.speedup.ratio if cell.speedup else None, 3)


def _factor_at(at: int, one: LabRow) -> str:
    return _factor(one.row.cells[at])


def _interval(cell: Effect) -> str:
    told = cell.speedup
    if told is None or told.low is None or told.high is None:
        return "-"
    return f"{told.low:.3f}-{told.high:.3f}"


def _verdict(cell: Effect) -> str:
    return cell.speedup.short if cell.speedup else cell.reason or "-"


def _fastest(one: LabRow) -> str | None:
    return None if one.best is None else f"{_value(one.best[0])} {_factor(one.best[1])}"


def _megabytes(cell: MemoryCell | None, name: str) -> float | None:
    size = getattr(cell, name, None)
    return None if size is None else size / _MB


def _more(base: MemoryCell | None, most: MemoryCell | None) -> float | None:
    here, there = (_megabytes(it, "max_bytes") for it in (most, base))
    return None if not here or not there else here / there - 1


def _error(check: RankingCheck, *, largest: bool) -> str:
    told = check.check
    if told is None:
        return "-"
    if not told.told:
        return "noise"
    return percent(told.max_error if largest else told.mean_error)


def _warranted(model: SweepModel) -> str:
    return "-" if model.choice is None else model.choice.chosen or "nothing"


def _effect(model: SweepModel) -> str:
    terms = model.choice.terms[:1] if model.choice else ()
    return signed_percent(terms[0].effect) if terms else "-"


def _r2(model: SweepModel) -> str:
    fit = model.chosen
    return format_number(fit.quality.adjusted_r2 if fit else None, 3)


def _left_out(model: SweepModel, *, largest: bool) -> str:
    fit = model.chosen
    if fit is None:
        return "-"
    return percent(fit.quality.maximum_error if largest else fit.quality.mean_error)


def _two_points(model: SweepModel) -> str:
    return percent(model.pairs[0].maximum_error) if model.pairs else "-"


def _more_layouts(model: SweepModel) -> str:
    terms = model.choice.terms if model.choice else ()
    unknown = [term for term in terms if term.state is TermState.UNKNOWN]
    if not unknown:
        return "-"
    wanted = [term.more_layouts for term in unknown if term.more_layouts is not None]
    return str(min(wanted)) if wanted else ">1000"


# -- The part of a page that tells what page layouts came to: gains, memory, models ----------------

_PICTURES = (
    "Dots are layouts, from their lowest to their highest run; the thick line is the model that is "
    "warranted, with its 95 % band, dashed ones are not."
)


def page_part(lab: PageLab) -> PagePart:
    """Return what large pages bring, above the comparison with all its doubts, and the rest."""
    printer = HtmlPrinter()
    print_gains(lab, printer)
    print_layouts(lab, printer)
    charts = model_charts((*lab.models, *lab.energy))
    title = f"Page sizes, sweep {lab.sweep}"
    return PagePart(title, printer.take(), tuple(_sections(lab)), charts)


def _sections(lab: PageLab) -> Iterator[Html]:
    printer = HtmlPrinter()
    if has_memory(lab):
        print_parts(memory_parts(lab.memory, layouts_of(lab)), printer)
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
    printer = HtmlPrinter()
    print_model(model, printer)
    name = f"{model.observed.name}: {model.observed.y.name}"
    return element("details", element("summary", name), printer.take())
