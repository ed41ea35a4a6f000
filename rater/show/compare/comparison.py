"""A comparison of points: its document, and its tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import log
from typing import TYPE_CHECKING

from msgspec import Struct

from rater.analysis.compare.differences import DoctorDifference, PointDifference
from rater.analysis.compare.model import Comparison, CpuTimeValues, Effect, EffectRow, Side
from rater.analysis.results.copies import PointRun
from rater.analysis.results.measure import MetricMeasure
from rater.analysis.results.rates import MEAN
from rater.analysis.stats.estimate import SlowRuns
from rater.analysis.stats.intervals import Decision, RatioInterval
from rater.record.stored import CPU_RATIO, PER_CPU_HOUR
from rater.show.compare.basis import basis_parts, confidence_percent
from rater.show.compare.differences import TROUBLES, difference_parts, trouble_parts
from rater.show.compare.effects import (
    effect_name,
    factor_text,
    in_brackets,
    interval_text,
    rate_heading,
    verdict_of,
)
from rater.show.compare.metrics import measure_text, metric_table
from rater.show.screen.console import Heading
from rater.show.screen.document import NUMBER, TEXT, Field, Form, Line, Part, ViewTable, decimals
from rater.show.screen.format import LONGEST_HEADING, column_letters, format_together
from rater.text.values import (
    JsonFields,
    count,
    group_by_key,
    objects,
    percent,
    runs_text,
    to_json,
    truncate_list,
)

if TYPE_CHECKING:
    from rater.show.documents.compare import ComparisonDocument

# -- The JSON document of `rater compare --json` ---------------------------------------------------


_MEASURE = JsonFields("name unit better")


def _metric_rows(comparison: Comparison) -> list[dict[str, object]]:
    return [
        {
            "measure": _MEASURE.read(metric.measure),
            "rows": [_row(row, comparison) for row in metric.rows],
        }
        for metric in comparison.metrics
    ]


TABLE = {
    Comparison: JsonFields(
        "by margin confidence looks comparisons=compared by_chance",
        {
            "points": lambda compared: [
                {
                    "label": side.label,
                    "baseline": side is compared.sides[0],
                    "values": [dict(point.values) for point in side.points],
                    "runs": side.runs,
                }
                for side in compared.sides
            ]
        },
        "differences copies mixed_copies mixed_kinds",
        {"kinds": lambda comparison: objects("rates runs", comparison.kinds)},
        "left_out",
        {"lost": lambda comparison: objects("benchmark point", comparison.lost)},
        "disturbed=troubles doctor page_sizes=pages",
        "measure",
        {
            "metrics": _metric_rows,
            "benchmarks": lambda it: [_row(row, it) for row in it.benchmarks],
            "suite": lambda it: {row.name: _row(row, it) for row in it.suites},
        },
    ),
    MetricMeasure: _MEASURE,
    PointRun: JsonFields("run.head.run run.head.uuid block"),
    PointDifference: JsonFields(
        "what weighs=significant differs_within=inside",
        {"values": lambda one: objects("value runs", one.values)},
    ),
    DoctorDifference: JsonFields(
        "check why", {"values": lambda one: objects("verdict seen runs", one.values)}
    ),
    **TROUBLES,
    Effect: JsonFields(
        "baseline value by_cpu_time=by_cpu speedup p_holm holds improvement reduction"
        " median_copy_speedup=median_copy slowest_over_median joules_per_copy reason"
    ),
    CpuTimeValues: JsonFields("baseline value unit"),
    RatioInterval: JsonFields(
        "ratio",
        {"interval": lambda told: None if told.low is None else [told.low, told.high]},
        "verdict words=verdict_text within_margin=within more_rounds=more p recorded_step=blur"
        " degrees_of_freedom=degrees basis values=count doubts refused slow_runs=slow"
        " by_cpu_time=by_cpu",
    ),
    SlowRuns: JsonFields("count of slower of_baseline"),
}


def comparison_document(comparison: Comparison) -> ComparisonDocument:
    """Return all of it: shares and factors as numbers, verdicts in the words of the table."""
    document: ComparisonDocument = to_json(comparison, TABLE)
    return document


def _row(row: EffectRow, comparison: Comparison) -> dict[str, object]:
    cells = zip(comparison.sides[1:], row.cells, strict=True)
    return {
        "name" if row.over else "benchmark": row.name,
        "tune": row.tune,
        "category": row.category,
        "unit": row.unit,
        **({"over": row.over} if row.over else {}),
        "baseline": row.cells[0].baseline,
        "points": [{"label": side.label} | TABLE[Effect].read(cell) for side, cell in cells],
    }


# -- The tables: every difference that is no axis first, then benchmarks and suite -----------------

_MARKS = {
    Decision.BETTER: "+",
    Decision.WORSE: "-",
    Decision.SAME: "=",
    Decision.RARELY: "~",
}  # all others: "?"
_STYLES = {Decision.BETTER: "green", Decision.WORSE: "red", Decision.RARELY: "yellow"}
_CHANGES = frozenset({Decision.BETTER, Decision.WORSE, Decision.RARELY})
_MOST_BRIEF = 7  # benchmarks
_MOST_WORDY = 4  # verdicts with their reason in the table
_MOST_REASONS = 6  # why there is nothing to compare

type _Cell = tuple[EffectRow, Side, Effect]


def comparison_parts(
    comparison: Comparison, *, detailed: bool = True, with_elapsed: bool = False
) -> Iterator[Part]:
    """Yield who is compared, the table, what differs beside the axes and what it stands on.

    Not `detailed`: what weighs most alone, below the table of a sweep, which has named the points.
    `with_elapsed`: also the values by elapsed time of what is judged by CPU time.
    """
    sides = comparison.sides
    if comparison.is_empty:
        yield from _nothing_to_compare(comparison)
        return
    if any(
        difference.is_machine for difference in comparison.differences if difference.significant
    ):
        yield Line("These runs were made on DIFFERENT MACHINES.", "bold red")
    # What has nothing to show stands above the table.
    every = (*comparison.benchmarks, *comparison.suite_rows)
    rows = [row for row in every if any(cell.speedup for cell in row.cells)]
    shown = rows if detailed else _top_changes(rows, _MOST_BRIEF)
    is_matrix = len(sides) > 2 and len(rows) > 1
    letters = is_matrix and max(len(side.label) for side in sides) > LONGEST_HEADING
    names = [
        f"{column_letters(place)}  {side.label}" if letters else side.label
        for place, side in enumerate(sides)
    ]
    if detailed or letters:
        by = f" by {comparison.by}, the other axes held" if comparison.by else ""
        yield Line(f"Compared{by}:", "bold")
        yield from map(_side_text, sides, (f"{names[0]} (baseline)", *names[1:]))
    if comparison.mixed_kinds:
        kinds = "; ".join(f"{runs_text(runs)}: {kind}" for kind, runs in comparison.kinds)
        yield Line(
            f"The points report different metrics ({kinds}); their difference is not only speed.",
            "bold yellow",
        )
    if comparison.mixed_copies and detailed:
        copies = truncate_list([str(many) for many in comparison.copies], 8)
        yield f"Numbers of copies differ ({copies}): throughput (copies an hour) is compared."
    yield from (Line(text, "yellow") for text in (*comparison.pages, *comparison.left_out))
    yield measure_text(comparison)
    short = not detailed or sum(len(row.cells) for row in shown) > _MOST_WORDY
    effects = _effects(shown, comparison, short=short)
    yield _matrix(shown, comparison, letters, effects) if is_matrix else effects
    if len(shown) < len(rows):
        yield f"and {count(len(rows) - len(shown), 'benchmark')} that changed less"
    if short or is_matrix:
        yield from _verdict_reasons(shown, comparison, is_matrix=is_matrix)
    if with_elapsed:
        yield _elapsed_values(comparison)
    yield metric_table(comparison)
    if detailed:
        yield _inside(comparison)
    yield from difference_parts(comparison, detailed=detailed)
    yield from trouble_parts(comparison.troubles, most=0 if detailed else 2)
    yield from basis_parts(comparison, is_matrix=is_matrix, detailed=detailed)


def _nothing_to_compare(comparison: Comparison) -> Iterator[Part]:
    sides = comparison.sides
    where = "both points" if len(sides) == 2 else "the baseline and another point"
    yield Line(f"No benchmark has a valid result in {where}: nothing to compare.", "bold")
    yield from (f"  {text}" for text in comparison.left_out[:_MOST_REASONS])
    shows = (f"`rater show {side.runs[0].run.head.run}`" for side in sides[:2] if side.runs)
    yield f"What they ran: {', '.join(shows)}"


def _side_text(side: Side, name: str) -> str:
    blocks = {one.block for one in side.runs} - {None}
    in_blocks = f" in {count(len(blocks), 'block')}" if blocks else ""
    runs = runs_text([one.run.head.run for one in side.runs])
    members = "" if side.label == runs else f": {runs}"
    return f"  {name}{members}{in_blocks}"


class _EffectHead(Struct, frozen=True, kw_only=True):
    """What stands before the speedups in a table of effects."""

    title: str
    first_fields: list[Field]
    heading: Heading  # of the column with the values of a point


def _effects(rows: Sequence[EffectRow], comparison: Comparison, *, short: bool) -> ViewTable:
    """Return a line for each benchmark and point; `short`: verdicts without their reasons."""
    sides = comparison.sides
    cells = [
        (row, side, cell) for row in rows for side, cell in zip(sides[1:], row.cells, strict=True)
    ]
    baselines = [cell.judged_baseline for _, _, cell in cells]
    values = [cell.judged_value for _, _, cell in cells]
    compared = comparison.compared > 1
    has_points = len(sides) > 2 and len(rows) == 1
    head = (
        _head_of_points(rows[0], sides[0])
        if has_points
        else _head_of_benchmarks(cells, sides, Form(partial(_alike, values)))
    )
    columns = (
        *head.first_fields,
        Field(
            heading=head.heading,
            value=lambda it: it[2].judged_value,
            form=Form(partial(_alike, baselines)),
            optional=3,
        ),
        Field(
            heading="speed-|up" if comparison.measure is None else "ratio|> 1 better",
            value=lambda it: factor_text(it[2].speedup),
        ),
        Field(
            heading=f"{confidence_percent(comparison)} %|interval",
            value=lambda it: interval_text(it[2].speedup),
        ),
        Field(
            heading="slowest|copy %",
            value=lambda it: in_brackets(it[2].slowest_over_median),
            optional=1,
        ),
        Field(heading="J/copy|%", value=lambda it: in_brackets(it[2].joules_per_copy)),
        Field(
            heading="verdict",
            value=lambda it: verdict_of(it[2], compared=compared, short=short),
            wrap=True,
            whole_value=lambda it: verdict_of(it[2], compared=compared, short=False),
        ),
    )

    def style(row_cell: _Cell) -> str:
        return _STYLES.get(row_cell[2].speedup.verdict, "") if row_cell[2].speedup else ""

    return ViewTable(title=head.title, rows=cells, fields=columns, style=style)


def _head_of_points(row: EffectRow, baseline: Side) -> _EffectHead:
    """Return the head for one benchmark: the title names it and the baseline's value once.

    Where CPU time judges a part of the points, the baseline has a value in each unit.
    """
    units = {row.unit_of(cell): cell.judged_baseline for cell in row.cells}
    texts = _alike([cell.judged_value for cell in row.cells], [*units.values()])
    has = " and ".join(f"{text} {unit}" for unit, text in zip(units, texts, strict=True))
    point = Field(heading="point", value=lambda it: it[1].label, form=TEXT, flexible=True)
    unit = Field(heading="unit", value=_unit_of_cell, form=TEXT)
    return _EffectHead(
        title=f"{effect_name(row)}: {baseline.label} has {has} ({MEAN})",
        first_fields=[point, *([unit] if len(units) > 1 else [])],
        heading=rate_heading(next(iter(units))) if len(units) == 1 else MEAN,
    )


def _head_of_benchmarks(
    cells: Sequence[_Cell], sides: Sequence[Side], baseline_form: Form
) -> _EffectHead:
    """Return the head for two sides: benchmark, unit where units differ, the baseline's value."""
    units = {_unit_of_cell(cell) for cell in cells}
    is_judged_alike = not units & {CPU_RATIO, PER_CPU_HOUR} or len(units) == 1
    unit = f"({units.pop()})" if len(units) == 1 else ""
    axes = {side.label.rpartition("=")[0] for side in sides}
    one_axis = len(axes) == 1 and "" not in axes
    labels = [side.label.rpartition("=")[2] if one_axis else side.label for side in sides]
    if max(map(len, labels)) > LONGEST_HEADING // 2:
        labels = ["baseline", "point"]
    benchmark = Field(
        heading=("benchmark", unit),
        value=lambda it: effect_name(it[0]),
        form=TEXT,
        flexible=True,
    )
    # A unit that names the measure of the verdict stays as long as the values do.
    unit_field = Field(
        heading="unit", value=_unit_of_cell, form=TEXT, optional=4 if is_judged_alike else 2
    )
    point = Field(heading="point", value=lambda it: it[1].label, form=TEXT)
    baseline = Field(
        heading=(labels[0], MEAN),
        value=lambda it: it[2].judged_baseline,
        form=baseline_form,
        optional=3,
    )
    return _EffectHead(
        title="",
        first_fields=[
            benchmark,
            *([point] if len(sides) > 2 else []),
            *([] if unit else [unit_field]),
            baseline,
        ],
        heading=(labels[1] if len(sides) == 2 else "point", MEAN),
    )


def _unit_of_cell(row_cell: _Cell) -> str:
    row, _, cell = row_cell
    return row.unit_of(cell)


def _alike(neighbours: Sequence[float | None], values: Sequence[float | None]) -> list[str]:
    """Write values with the decimals that they and those beside them need together."""
    return format_together([*values, *neighbours])[: len(values)]


def _matrix(
    rows: Sequence[EffectRow], comparison: Comparison, letters: bool, effects: ViewTable
) -> ViewTable:
    """Return a line for each benchmark with the speedup of each point, as many as have room.

    `effects`: the same with a line for each point and verdicts in full, which CSV has.
    """

    def field(place: int) -> Field:
        label = column_letters(place) if letters else comparison.sides[place].label
        if place == 0:
            return Field(heading=(label, "speedup"), value=lambda _: "1.000", form=TEXT)
        return Field(
            heading=(label, "speedup"), value=lambda row: _marked(row.cells[place - 1]), form=TEXT
        )

    units = {row.unit_of(cell) for row in rows for cell in row.cells}
    unit = f"({units.pop()})" if len(units) == 1 else ""
    columns = (
        Field(heading=("benchmark", unit), value=effect_name, form=TEXT, flexible=True),
        Field(
            heading=("baseline", MEAN),
            value=_matrix_baseline,
            form=NUMBER,
            optional=1,
        ),
        *map(field, range(len(comparison.sides))),
    )
    return ViewTable(title="", rows=rows, fields=columns, repeated=3, csv=effects)


def _elapsed_values(comparison: Comparison) -> ViewTable:
    """Return the values by elapsed time of what is judged by CPU time."""
    rows = [row_cell for row_cell in comparison.verdicts() if row_cell[2].by_cpu]

    def ratio(row_cell: _Cell) -> float | None:
        _, _, cell = row_cell
        return cell.value / cell.baseline if cell.value and cell.baseline else None

    columns = (
        Field(heading="benchmark", value=lambda it: effect_name(it[0]), form=TEXT, flexible=True),
        Field(heading="point", value=lambda it: it[1].label, form=TEXT, flexible=True),
        Field(heading="unit", value=lambda it: it[0].unit, form=TEXT),
        Field(heading=f"baseline|{MEAN}", value=lambda it: it[2].baseline, form=NUMBER),
        Field(heading=f"point|{MEAN}", value=lambda it: it[2].value, form=NUMBER),
        Field(heading="ratio", value=ratio, form=decimals(3)),
    )
    return ViewTable(
        title="By elapsed time, others' work included, so that no verdict stands on it:",
        rows=rows,
        fields=columns,
    )


def _matrix_baseline(row: EffectRow) -> float | None:
    """Return the baseline's value in the unit of the verdicts; None: they have several units."""
    values = {row.unit_of(cell): cell.judged_baseline for cell in row.cells}
    return next(iter(values.values())) if len(values) == 1 else None


def _inside(comparison: Comparison) -> ViewTable:
    """Return where the slow copies changed: a rate alone does not tell it from all changing."""
    rows = [
        (row, side, cell)
        for row, side, cell in comparison.verdicts()
        if not row.over
        and (cell.slowest_over_median and cell.median_copy and cell.speedup)
        and cell.slowest_over_median.decided
        and cell.slowest_over_median.verdict is not Decision.SAME
        and not cell.slowest_over_median.within
    ]

    def median(row_cell: _Cell) -> str | None:
        interval = row_cell[2].median_copy
        if interval is None:
            return None
        change = (
            f"{percent(abs(interval.ratio - 1))} % {'faster' if interval.ratio > 1 else 'slower'}"
        )
        if interval.verdict is Decision.SAME:
            return interval.short
        return change if interval.decided else f"{change} (inconclusive)"

    columns = (
        Field(heading="benchmark", value=lambda it: effect_name(it[0]), form=TEXT, flexible=True),
        *(
            [Field(heading="point", value=lambda it: it[1].label, form=TEXT)]
            if len(comparison.sides) > 2
            else []
        ),
        Field(heading="median copy", value=median, form=TEXT),
        Field(
            heading="slowest over|median copy %",
            value=lambda it: in_brackets(it[2].slowest_over_median),
        ),
    )
    return ViewTable(
        title="The slowest copies changed otherwise than the median copy:",
        rows=rows,
        fields=columns,
    )


def _top_changes(rows: Sequence[EffectRow], most: int) -> list[EffectRow]:
    """Return the suite's rows and, of many benchmarks, those that changed most, in their order."""
    by_change = sorted((row for row in rows if not row.over), key=_telling_change, reverse=True)
    kept = by_change[: max(1, most - sum(bool(row.over) for row in rows))]
    return [row for row in rows if row.over or row in kept]


def _telling_change(row: EffectRow) -> tuple[bool, float]:
    """Return what sorts rows by their largest change, those with a verdict of one first."""
    intervals = [cell.speedup for cell in row.cells if cell.speedup]
    changed = any(interval.verdict in _CHANGES for interval in intervals)
    return changed, max(
        (abs(log(interval.ratio)) for interval in intervals if interval.ratio > 0), default=0.0
    )


def _verdict_reasons(
    rows: Sequence[EffectRow], comparison: Comparison, *, is_matrix: bool
) -> Iterator[str]:
    """Yield what verdicts stand on, those alike in one sentence: every one that is shown.

    Beside a matrix, whose marks have a key, only those that its marks do not tell.
    """
    several = len(comparison.sides) > 2
    with_reasons = [
        (row, side, cell.speedup)
        for row in rows
        for side, cell in zip(comparison.sides[1:], row.cells, strict=True)
        if cell.speedup and cell.speedup.verdict_text != cell.speedup.short
    ]
    # The key of a matrix names its doubts: all there is to say where all doubts are alike.
    unlike = len({speedup.doubts for _, _, speedup in with_reasons if speedup.decided} - {()}) > 1
    names_by_words = group_by_key(
        (speedup.verdict_text, f"{effect_name(row)}, {side.label}" if several else effect_name(row))
        for row, side, speedup in with_reasons
        if not is_matrix or speedup.by_cpu or speedup.refused or (unlike and speedup.doubts)
    )
    yield from (f"{words}: {'; '.join(names)}" for words, names in names_by_words.items())


def _marked(cell: Effect) -> str | None:
    if cell.speedup is None:
        return None
    mark = _MARKS.get(cell.speedup.verdict, "?") * (2 if cell.holds else 1)
    doubted = cell.speedup.decided and cell.speedup.doubts
    measure = "c" if cell.speedup.by_cpu else ""
    return f"{factor_text(cell.speedup) or '-'}{f'({mark})' if doubted else mark}{measure}"
