"""Numbers that programs report, in comparisons: their table, and their document."""

from __future__ import annotations

from collections.abc import Sequence

from rater.analysis.compare.model import Comparison
from rater.analysis.results.rates import MEAN
from rater.show.compare.basis import confidence_percent
from rater.show.compare.effects import effect_name, factor_text, interval_text, verdict_of
from rater.show.screen.document import TEXT, Field, Form, ViewTable
from rater.show.screen.format import format_together
from rater.text.values import group_by_key


def measure_text(comparison: Comparison) -> str | None:
    """Say which metric is compared; None: the times of copies are."""
    measure = comparison.measure
    if measure is None:
        return None
    return f"By {measure.title}, as copies report it: {measure.better} is better."


def metric_table(comparison: Comparison) -> ViewTable:
    """Return what programs report beside their times: a line for each metric and point."""
    rows = [
        (metric.measure, row, side, cell)
        for metric in comparison.metrics
        for row in metric.rows
        for side, cell in zip(comparison.sides[1:], row.cells, strict=True)
    ]

    def alike(values: Sequence[float | None]) -> list[str]:
        """Write the values of each metric alike: those of others may be a million times theirs."""
        places = group_by_key((row[0].title, place) for place, row in enumerate(rows))
        texts = [""] * len(values)
        for of_metric in places.values():
            written = format_together([values[place] for place in of_metric])
            for place, text in zip(of_metric, written, strict=True):
                texts[place] = text
        return texts

    columns = (
        Field(heading="benchmark", value=lambda it: effect_name(it[1]), form=TEXT, flexible=True),
        Field(heading="metric", value=lambda it: it[0].title, form=TEXT, flexible=True),
        Field(heading="better", value=lambda it: str(it[0].better), form=TEXT, optional=2),
        *(
            [Field(heading="point", value=lambda it: it[2].label, form=TEXT, flexible=True)]
            if len(comparison.sides) > 2
            else []
        ),
        Field(heading=f"baseline|{MEAN}", value=lambda it: it[3].baseline, form=Form(alike)),
        Field(heading=f"point|{MEAN}", value=lambda it: it[3].value, form=Form(alike)),
        Field(heading="ratio|> 1 better", value=lambda it: factor_text(it[3].speedup)),
        Field(
            heading=f"{confidence_percent(comparison)} %|interval",
            value=lambda it: interval_text(it[3].speedup),
            optional=1,
        ),
        Field(
            heading="verdict",
            value=lambda it: verdict_of(it[3], compared=False, short=True),
            form=TEXT,
        ),
    )
    return ViewTable(
        title="What copies report, each metric by itself (--by METRIC makes it the measure):",
        rows=rows,
        fields=columns,
    )
