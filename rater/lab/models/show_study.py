"""What a sweep over page layouts comes to, on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from rater.analysis.compare.model import Effect, EffectRow
from rater.analysis.results.copies import MemoryCell
from rater.lab.models.model import PageLab, RankingCheck, SweepModel, TermState
from rater.lab.models.show import HOW, TABLE, model_charts, model_parts
from rater.lab.trace.show_check import CHECK, MILLISECONDS, check_parts
from rater.lab.trace.tlb import mapping_name
from rater.show.charts.vega import Html, element
from rater.show.compare.comparison import (
    comparison_document,
)
from rater.show.compare.cycles import counted_document, counted_parts, cpi_document, cpi_parts
from rater.show.compare.differences import trouble_parts
from rater.show.compare.effects import effect_name, factor_text, interval_text
from rater.show.compare.memory import memory_document, memory_parts
from rater.show.html.page import PagePart
from rater.show.html.shell import html_parts
from rater.show.screen.document import (
    CHANGE,
    NUMBER,
    PERCENT,
    TEXT,
    Field,
    Form,
    Line,
    Part,
    ViewTable,
)
from rater.show.screen.format import format_number
from rater.text.values import JsonFields, count, percent, to_json

_MB = 1e6
NO_MEMORY = "The memory of these copies was not sampled."
R2 = Form(lambda values: [format_number(it, 3) for it in values])


def layouts_of(lab: PageLab) -> list[str]:
    """Return the texts of its layouts, the baseline first."""
    return [_value(point.label) for point in lab.points]


def has_memory(lab: PageLab) -> bool:
    """Tell whether the memory of any copy is known."""
    cells = [cell for row in lab.memory for cell in row.cells if cell is not None]
    return any(cell.max_bytes is not None or cell.average_bytes is not None for cell in cells)


def lab_parts(lab: PageLab) -> Iterator[Part]:
    """Yield the summary: speedups over base pages, memory, CPI, models, rankings."""
    runs = sum(len(point.runs) for point in lab.points)
    many = f"{count(len(lab.points), 'layout')}, {count(runs, 'run')}"
    yield Line(f"Page sizes, sweep {lab.sweep}: {many}", "bold")
    yield from (Line(text, "yellow") for text in lab.missing)
    yield from trouble_parts(lab.comparison.troubles)
    yield from gains_parts(lab)
    yield from _memory_parts(lab)
    sides = lab.comparison.sides
    of_largest = [
        replace(change, values=(change.values[0], change.values[lab.largest]))
        for change in lab.counted
    ]
    yield from counted_parts(of_largest, (sides[0], sides[lab.largest]))
    counted = [it for it in lab.cpi if it.cycles[lab.largest] is not None]
    yield from cpi_parts(counted, lab.comparison.sides)
    yield from overview_parts(lab)
    yield from rankings_parts(lab)


def rankings_parts(lab: PageLab) -> Iterator[Part]:
    """Yield which data deserves large pages by the traces, and how far off they were."""
    if not lab.checks:
        yield Line(
            "No ranking: `rater lab trace SUITE/BENCHMARK --size SIZE` traces a benchmark, and "
            "compares its prediction for each layout with these runs.",
            "dim",
        )
        return
    fields = (
        Field(heading="benchmark", value=lambda it: it.benchmark, form=TEXT, flexible=True),
        Field(heading="trace", value=lambda it: it.trace),
        Field(
            heading="best in large pages",
            value=lambda it: mapping_name(it.best.mapping.sizes),
            form=TEXT,
        ),
        Field(heading="large|pages", value=lambda it: it.best.large_pages),
        Field(heading="saves|ms", value=lambda it: it.saved_ns, form=MILLISECONDS),
        Field(heading="predicted|/measured", value=_ratio),
        Field(heading="by own|slope", value=_own_ratio, optional=1),
        Field(heading=("error of", "mean %"), value=lambda it: _error(it, "mean_error")),
        Field(heading=("benefit", "max %"), value=lambda it: _error(it, "max_error")),
    )
    title = "Which data deserves large pages, by traces, against these runs:"
    yield ViewTable(title=title, rows=lab.checks, fields=fields)
    yield Line(
        "error of benefit: predicted less measured benefit of each layout, in per cent of the "
        "largest benefit (IBM CPO's measure); noise: the largest one does not exceed the noise.",
        "dim",
    )


def gains_parts(lab: PageLab) -> Iterator[Part]:
    """Yield what the most large pages bring to each benchmark, then every layout's speedup."""
    sides = lab.comparison.sides
    names = [_value(side.label) for side in sides[1:]]

    def most(row: EffectRow) -> Effect:
        return row.cells[lab.largest - 1]

    def fastest(row: EffectRow) -> str | None:
        known = [(it.speedup.ratio, -at) for at, it in enumerate(row.cells) if it.speedup]
        at = -max(known)[1] if known else None
        return None if at is None else f"{names[at]} {factor_text(row.cells[at].speedup) or '-'}"

    fields = (
        Field(heading="benchmark", value=effect_name, form=TEXT, flexible=True),
        Field(heading="speed-|up", value=lambda row: factor_text(most(row).speedup)),
        Field(heading="95 %|interval", value=lambda row: interval_text(most(row).speedup)),
        Field(
            heading="verdict",
            value=lambda row: _verdict(most(row), lab.comparison.compared),
            form=TEXT,
            flexible=True,
        ),
        Field(heading="improve-|ment %", value=lambda row: most(row).improvement, form=CHANGE),
        Field(
            heading="reduc-|tion %", value=lambda row: most(row).reduction, form=CHANGE, optional=1
        ),
        Field(heading="fastest", value=fastest, form=TEXT, optional=2),
    )
    title = f"{_value(sides[lab.largest].label)} in large pages over {_value(sides[0].label)}:"
    yield ViewTable(
        title=title, rows=lab.rows, fields=fields, style=lambda row: "bold" if row.over else ""
    )
    yield Line(
        "improvement: (T base - T) / T; reduction: (T base - T) / T base; intervals and verdicts "
        f"as in `rater compare sweep:{lab.sweep}`; * holds with all {lab.comparison.compared} "
        "comparisons considered (Holm).",
        "dim",
    )
    layouts = [
        Field(heading=name, value=partial(lambda at, row: factor_text(row.cells[at].speedup), at))
        for at, name in enumerate(names)
    ]
    first = Field(heading="speedup", value=effect_name, form=TEXT, flexible=True)
    yield ViewTable(title="", rows=lab.rows, fields=[first, *layouts], repeated=1)


def _memory_parts(lab: PageLab) -> Iterator[Part]:
    """Yield average and maximum memory of a copy, in base and in the most large pages."""
    if not has_memory(lab):
        yield Line(NO_MEMORY, "dim")
        return
    pairs = [
        (f"{row.benchmark} {row.tune or ''}".strip(), row.cells[0], row.cells[lab.largest])
        for row in lab.memory
    ]
    base, most = (_value(lab.comparison.sides[at].label) for at in (0, lab.largest))

    def megabytes_in(place: int, name: str) -> Callable[[tuple[Any, ...]], float | None]:
        return lambda row: _megabytes(row[place], name)

    fields = (
        Field(heading="MB a copy", value=lambda row: row[0], form=TEXT, flexible=True),
        Field(heading=(base, "average"), value=megabytes_in(1, "average_bytes"), form=NUMBER),
        Field(heading=("", "most"), value=megabytes_in(1, "max_bytes"), form=NUMBER),
        Field(heading=(most, "average"), value=megabytes_in(2, "average_bytes"), form=NUMBER),
        Field(heading=("", "most"), value=megabytes_in(2, "max_bytes"), form=NUMBER),
        Field(heading="more|%", value=lambda row: _more(*row[1:]), form=CHANGE),
    )
    yield ViewTable(title="", rows=pairs, fields=fields)
    yield Line(
        "Average over time: copies of less than a second have a maximum only. All "
        f"layouts: `rater compare sweep:{lab.sweep} --memory`.",
        "dim",
    )


def overview_parts(lab: PageLab) -> Iterator[Part]:
    """Yield a line for each benchmark's model, then the same of energy."""
    if not lab.models:
        yield Line(f"No model: {lab.no_models}", "yellow")
    yield _overview(lab.models)
    if lab.models:
        yield Line(
            "left out: errors for layouts that were not fitted; two points: the largest error of "
            "the line through the smallest and the largest x; more layouts: needed to decide "
            "whether it bends, or changes at all.",
            "dim",
        )
    yield _overview(lab.energy)


def _overview(models: Sequence[SweepModel]) -> Part:
    if not models:
        return None
    of_x = dict.fromkeys(f"{model.observed.x.name}, {model.observed.x.source}" for model in models)
    fields = (
        Field(heading="benchmark", value=lambda it: it.observed.name, form=TEXT, flexible=True),
        Field(
            heading="warranted",
            value=lambda it: (it.choice.chosen or "nothing") if it.choice else "too few layouts",
            form=TEXT,
        ),
        Field(heading="end to|end %", value=_effect, form=CHANGE),
        Field(heading="adjusted|R2", value=lambda it: _quality(it, "adjusted_r2"), form=R2),
        Field(
            heading=("left out", "mean %"),
            value=lambda it: _quality(it, "mean_error"),
            form=PERCENT,
        ),
        Field(heading=("", "max %"), value=lambda it: _quality(it, "maximum_error"), form=PERCENT),
        Field(
            heading="two|points %",
            value=lambda it: it.pairs[0].maximum_error if it.pairs else None,
            form=PERCENT,
        ),
        Field(heading="more|layouts", value=_more_layouts),
    )
    title = f"Models of {models[0].observed.y.name}; x: {'; '.join(of_x)}."
    return ViewTable(title=title, rows=models, fields=fields)


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
        "counted": counted_document(lab.counted),
        "models": to_json(lab.models, TABLE),
        "energy_models": to_json(lab.energy, TABLE),
        "no_models_because": lab.no_models,
        "rankings": to_json(lab.checks, _TABLE | CHECK),
        "points_without_runs": list(lab.missing),
    }


def _value(label: str) -> str:
    return label.partition("=")[2] or label


def _verdict(cell: Effect, compared: int) -> str:
    if cell.speedup is None:
        return cell.reason or "-"
    return f"{cell.speedup.short}{' *' if cell.holds and compared > 1 else ''}"


def _megabytes(cell: MemoryCell | None, name: str) -> float | None:
    size = getattr(cell, name, None)
    return None if size is None else size / _MB


def _more(base: MemoryCell | None, most: MemoryCell | None) -> float | None:
    here, there = (_megabytes(it, "max_bytes") for it in (most, base))
    return None if not here or not there else here / there - 1


def _ratio(check: RankingCheck) -> str | None:
    """Return what was predicted of the best layout over what it saved."""
    ratio = check.check.best.ratio if check.check and check.check.told else None
    return None if ratio is None else f"{ratio:.2f}"


def _own_ratio(check: RankingCheck) -> str | None:
    """Return the same, by what each predicted second of the other layouts saved."""
    ratio = check.check.best.own_ratio if check.check and check.check.told else None
    return None if ratio is None else f"{ratio:.2f}"


def _error(check: RankingCheck, name: str) -> str | None:
    told = check.check
    if told is None:
        return None
    return percent(getattr(told, name)) if told.told else "noise"


def _effect(model: SweepModel) -> float | None:
    terms = model.choice.terms[:1] if model.choice else ()
    return terms[0].effect if terms else None


def _quality(model: SweepModel, name: str) -> float | None:
    fit = model.chosen
    value: float | None = getattr(fit.quality, name) if fit else None
    return value


def _more_layouts(model: SweepModel) -> str | None:
    terms = model.choice.terms if model.choice else ()
    unknown = [term for term in terms if term.state is TermState.UNKNOWN]
    if not unknown:
        return None
    wanted = [term.more_layouts for term in unknown if term.more_layouts is not None]
    return str(min(wanted)) if wanted else ">1000"


# -- The part of a page that tells what page layouts came to: gains, memory, models ----------------

_PICTURES = (
    "Dots are layouts, from their lowest to their highest run; the thick line is the model that is "
    "warranted, with its 95 % band, dashed ones are not."
)


def page_part(lab: PageLab) -> PagePart:
    """Return what large pages bring, above the comparison with all its doubts, and the rest."""
    charts = model_charts((*lab.models, *lab.energy))
    return PagePart(
        f"Page sizes, sweep {lab.sweep}",
        html_parts(gains_parts(lab)),
        tuple(_sections(lab)),
        charts,
    )


def _sections(lab: PageLab) -> Iterator[Html]:
    memory = memory_parts(lab.memory, layouts_of(lab)) if has_memory(lab) else [NO_MEMORY]
    yield element("section", element("h2", "Memory"), html_parts(memory), class_="tables")
    yield element(
        "section",
        element("h2", "Models"),
        html_parts(overview_parts(lab)),
        element("p", _PICTURES, class_="how"),
        element("div", id="models", class_="scaling"),
        *(
            element(
                "details",
                element("summary", f"{model.observed.name}: {model.observed.y.name}"),
                html_parts(model_parts(model)),
            )
            for model in (*lab.models, *lab.energy)
        ),
        element("p", HOW, class_="how"),
        class_="tables",
    )
    ranked = [*rankings_parts(lab)]
    for ranking in lab.checks:
        if ranking.check is not None:
            ranked += [Line(ranking.benchmark, "bold"), *check_parts(ranking.check)]
    yield element("section", element("h2", "Which data"), html_parts(ranked), class_="tables")
