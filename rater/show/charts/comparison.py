"""Speedups, cycles per instruction and throughput against copies as charts; pure but for drawing.

Throughput: dots are the geometric means of runs that all numbers are of, with a line from the
lowest run to the highest; the dashed line is linear from the first point, the curve the Universal
Scalability Law where it fits. Places are in the units of the drawing: logarithms where numbers of
copies reach far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, cycle, pairwise
from typing import Any

from msgspec import Struct

from rater.analysis.compare.model import Comparison, Effect, EffectRow
from rater.analysis.compare.scaling import Curve, ScalePoint, Series
from rater.analysis.results.copies import Share
from rater.analysis.results.counters import BenchmarkCounts, CpiStack
from rater.analysis.stats.curves import Usl
from rater.analysis.stats.intervals import Decision
from rater.plan.counter_tables import OTHER
from rater.show.charts.vega import SUITES, WIDTH, Chart, PlacedChart, placed_text, sheet_svg
from rater.show.screen.format import format_number, sanitize
from rater.text.values import copies_text, objects

_KINDS = {Decision.BETTER: "better", Decision.WORSE: "worse", Decision.SAME: "same"}
_SIGNS = {
    Decision.BETTER: "+",
    Decision.WORSE: "\u2212",
    Decision.SAME: "=",
    Decision.RARELY: "~",
    Decision.UNKNOWN: "?",
    Decision.CANNOT_TELL: "?",
}
_MOST_LINES = 120  # of the comparison; of more than these only suites are drawn
_FAR = 1.5  # times the largest ratio, or less than the smallest: no interval is drawn beyond
_PAD = 0.05  # of the range of the ratios, at both ends


def comparison_svg(chart: Chart) -> str:
    """Return the chart of `comparison_chart` as an SVG."""
    rows, sides = chart["signals"]["rows"], chart["signals"]["sides"]
    title = (
        f"speedup over {chart['baseline']}, with its interval "
        "(+ better, \u2212 worse, = same, ~ rarely slow, ? inconclusive)"
    )
    return sheet_svg(
        title,
        [PlacedChart(kind="comparison", chart=chart, width=WIDTH, height=rows * (14 * sides + 4))],
    )


def comparison_chart(comparison: Comparison) -> dict[str, Any] | None:
    """Return speedups with their intervals, benchmarks that got slowest first; None: there is none.

    Of several sides each has a line in every benchmark.
    """
    suites = comparison.suites[:1]
    rows = [row for row in comparison.benchmarks if _ratio(row) is not None]
    rows.sort(key=lambda row: _ratio(row) or 1.0)
    sides = [sanitize(side.label) for side in comparison.sides[1:]]
    if len(rows) * len(sides) > _MOST_LINES and suites:
        rows = []
    shown = [row for row in (*suites, *rows) if _ratio(row) is not None]
    lines = [
        _line(row, cell, place_of_row, place_of_side, comparison)
        for place_of_row, row in enumerate(shown)
        for place_of_side, cell in enumerate(row.cells)
        if cell.speedup is not None
    ]
    if not lines:
        return None
    ratios = [1.0, *(line["ratio"] for line in lines)]
    low, high = min(ratios) / _FAR, max(ratios) * _FAR  # wide intervals go out of the picture
    ends = [
        *ratios,
        *(min(high, max(low, line[end])) for line in lines for end in ("low", "high")),
    ]
    pad = _PAD * max(0.02, max(ends) - min(ends))
    titles: list[dict[str, Any]] = [
        {
            "row": row_number,
            "side": side_number,
            "lead": side_number == 0,
            "text": _title(sanitize(_name(effect_row)), side_number, sides),
        }
        for row_number, effect_row in enumerate(shown)
        for side_number in range(len(sides))
    ]
    return {
        "baseline": sanitize(comparison.sides[0].label),
        "signals": {
            "low": min(ends) - pad,
            "high": max(ends) + pad,
            "rows": len(shown),
            "sides": len(sides),
        },
        "data": {"titles": titles, "lines": lines},
    }


def _title(name: str, side_number: int, sides: Sequence[str]) -> str:
    if len(sides) == 1:
        return name
    return sides[side_number] if side_number else f"{name}: {sides[side_number]}"


def _name(row: EffectRow) -> str:
    if row.over:
        return SUITES.get(row.name, row.name)
    return f"{row.name} {row.tune}" if row.tune else row.name


def _ratio(row: EffectRow) -> float | None:
    return next((cell.speedup.ratio for cell in row.cells if cell.speedup), None)


def _line(
    row: EffectRow, cell: Effect, row_number: int, side_number: int, comparison: Comparison
) -> dict[str, Any]:
    speedup = cell.speedup
    assert speedup is not None
    side = sanitize(comparison.sides[side_number + 1].label)
    interval = (
        "no interval"
        if speedup.low is None or speedup.high is None
        else f"{comparison.confidence * 100:.3g} % interval {speedup.low:.3f} to {speedup.high:.3f}"
    )
    measure = " CPU time" if speedup.by_cpu else ""
    signs = _SIGNS[speedup.verdict] * (2 if cell.holds else 1)
    ends = (format_number(cell.judged_baseline), format_number(cell.judged_value))
    values = f"{ends[0]} to {ends[1]} {row.unit_of(cell)}"
    return {
        "row": row_number,
        "side": side_number,
        "ratio": round(speedup.ratio, 6),
        "low": round(speedup.low if speedup.low is not None else speedup.ratio, 6),
        "high": round(speedup.high if speedup.high is not None else speedup.ratio, 6),
        "kind": _KINDS.get(speedup.verdict, "unknown"),
        "text": f"{speedup.ratio:.3f} {signs}{measure}",
        "card": [f"{sanitize(_name(row))}, {side}", speedup.verdict_text, interval, values],
    }


# -- Cycles per instruction as stacked bars, for a page, a file and the terminal -------------------
#
# Of several points the bars of a benchmark stand below each other, in per cent of the CPI that the
# first point has (as Korn and Chang draw page sizes).

# By part, told apart by those who do not see red and green (Okabe and Ito), and in the terminal.
_CPI_COLOURS = (
    *("#9aa0a6", "#e69f00", "#cc79a7", "#009e73", "#56b4e9", "#0072b2", "#1b4f72", "#d55e00"),
    *("#7f3b08", "#542788", "#b8e186"),
)
_OTHER_COLOUR = "#e6e6e3"
_LINE = 16.0  # of a bar, as in cpi.vega.json
_LEAST_WIDTH = 10  # signs of a bar in the terminal

type CountedPoint = tuple[str, Sequence[BenchmarkCounts]]  # its label, and what was counted


class StackedRow(Struct, frozen=True):
    """A bar of parts, one after the other."""

    title: str
    lead: bool  # the first of those that belong together
    parts: Sequence[tuple[str, float, Sequence[str]]]  # name, size, its card
    total: str


def stacked_chart(rows: Sequence[StackedRow], colours: Mapping[str, str]) -> dict[str, Any]:
    """Return what cpi.vega.json draws; `colours` are those of the parts, in their order."""
    bars: list[dict[str, Any]] = []
    for row_number, stacked_row in enumerate(rows):
        ends = [0.0, *accumulate(size for _, size, _ in stacked_row.parts)]
        for (name, size, card), (begin, end) in zip(stacked_row.parts, pairwise(ends), strict=True):
            if size > 0:
                bar = {
                    "row": row_number,
                    "from": round(begin, 6),
                    "to": round(end, 6),
                    "part": name,
                }
                bars.append({**bar, "card": card, "colour": colours[name]})
    sizes = [round(sum(size for _, size, _ in stacked_row.parts), 6) for stacked_row in rows]
    titles = (
        (row_number, stacked_row.title, stacked_row.lead)
        for row_number, stacked_row in enumerate(rows)
    )
    totals = (
        (row_number, sizes[row_number], stacked_row.total)
        for row_number, stacked_row in enumerate(rows)
    )
    return {
        "signals": {"rows": len(rows), "high": max(sizes) or 1.0},
        "data": {
            "titles": objects("row text lead", titles),
            "bars": bars,
            "totals": objects("row at text", totals),
            "legend": objects(
                "text colour",
                ((_part_words(part_name), colour) for part_name, colour in colours.items()),
            ),
        },
    }


def cpi_chart(points: Sequence[CountedPoint]) -> dict[str, Any] | None:
    """Return bars of benchmarks with a CPI stack (of several points: the first's); None: none."""
    several = len(points) > 1
    stacks = _stacks_by_benchmark(points)
    if not stacks:
        return None
    colours = _part_colours(
        stack for stacks_by_point in stacks.values() for stack, _ in stacks_by_point.values()
    )
    rows = []
    for name, stacks_by_point in stacks.items():
        scale = 100 / stacks_by_point[min(stacks_by_point)][1] if several else 1.0
        for place, (stack, cpi) in stacks_by_point.items():
            lead, label = place == min(stacks_by_point), sanitize(points[place][0])
            bars = [
                (
                    part.name,
                    part.cycles * scale,
                    [_part_words(part.name), f"{part.cycles:.3f} cycles per instruction"],
                )
                for part in stack.parts
            ]
            total = f"{sum(size for _, size, _ in bars):.0f} %" if several else f"{cpi:.2f}"
            title = (f"{name}: {label}" if lead else label) if several else name
            rows.append(StackedRow(title, lead, bars, total))
    return stacked_chart(rows, colours) | {
        "unit": "% of the first point's CPI" if several else "cycles per instruction"
    }


def _part_colours(stacks: Iterable[CpiStack]) -> dict[str, str]:
    """Return a colour for each part of the stacks, of the rest of the cycles the last."""
    parts = [part for stack in stacks for part in stack.parts]
    names = sorted(dict.fromkeys(part.name for part in parts), key=lambda name: name == OTHER)
    colours = dict(zip(names, cycle(_CPI_COLOURS), strict=False))
    return colours | ({OTHER: _OTHER_COLOUR} if OTHER in colours else {})


def _stacks_by_benchmark(
    points: Sequence[CountedPoint],
) -> dict[str, dict[int, tuple[CpiStack, float]]]:
    """Return by benchmark and place of the point: its CPI stack, and its CPI."""
    stacks: dict[str, dict[int, tuple[CpiStack, float]]] = {}
    for place, (_, counted) in enumerate(points):
        for counts in counted:
            if counts.stack is not None and counts.rates is not None and counts.rates.cpi:
                name = sanitize(
                    f"{counts.benchmark} {counts.tune}" if counts.tune else counts.benchmark
                )
                if counts.user_only:  # not to be compared with counts of both
                    name = f"{name} (user mode)"
                stacks.setdefault(name, {}).setdefault(place, (counts.stack, counts.rates.cpi))
    if len(points) > 1:  # what the first has not counted is no share of its CPI
        stacks = {
            name: stacks_by_point
            for name, stacks_by_point in stacks.items()
            if 0 in stacks_by_point
        }
    return stacks


def _part_words(part: str) -> str:
    return part.replace("_", " ")


def cpi_svg(chart: Chart, title: str) -> str:
    """Return the chart of `cpi_chart` as an SVG."""
    height = chart["signals"]["rows"] * _LINE
    return sheet_svg(
        f"{title}, {chart['unit']}",
        [PlacedChart(kind="cpi", chart=chart, width=WIDTH, height=height)],
    )


def cpi_lines(chart: Chart, width: int) -> list[str]:
    """Return the chart for a terminal: a letter for each part."""
    letters = _letters([entry["text"] for entry in chart["data"]["legend"]])
    parts = [name.replace(" ", "_") for name in letters]
    signs = dict(zip(parts, letters.values(), strict=True))
    titles, totals = chart["data"]["titles"], chart["data"]["totals"]
    margin = min(max(len(entry["text"]) for entry in titles), width // 3)
    room = max(_LEAST_WIDTH, width - margin - 10)
    high = chart["signals"]["high"] or 1.0
    lines = [chart["unit"] + ": " + ", ".join(f"{sign} {name}" for name, sign in letters.items())]
    for title, total in zip(titles, totals, strict=True):
        bar = ""
        for entry in chart["data"]["bars"]:
            if entry["row"] == title["row"]:
                bar += signs[entry["part"]] * (round(entry["to"] / high * room) - len(bar))
        lines.append(f"{title['text'][:margin]:<{margin}} {bar} {total['text']}")
    return lines


def _letters(names: Sequence[str]) -> dict[str, str]:
    """Return a sign for each part that no other has: of its name, the digit of one like l1."""
    letters: dict[str, str] = {}
    for name in names:
        signs = name[::-1] if name[-1:].isdigit() else name
        free = (sign for sign in signs if sign.isalnum() and sign not in letters.values())
        letters[name] = next(free, "*")
    return letters


# -- Throughput against copies ---------------------------------------------------------------------

_LOG_RANGE = 16  # from this range of copies on both axes are logarithmic
_STEPS = 60  # of a drawn law
_MOST_SHADES = 3


def curves_svg(curves: Sequence[Curve]) -> str:
    """Return the throughput of all curves as an SVG, a panel for each benchmark."""
    charts = throughput_charts(curves)
    columns = 1 if len(charts) == 1 else 2 if len(charts) <= 4 else 3 if len(charts) <= 12 else 4
    width, height = (560.0, 320.0) if columns == 1 else (200.0, 150.0)
    wide = {"room": 150.0} if any(curve.name for curve in curves) else {}
    figures = [
        PlacedChart(
            kind="scaling",
            chart=chart
            | {"signals": chart["signals"] | wide | {"title": chart["title"], "xname": "copies"}},
            width=width,
            height=height,
            above=30,
            right=wide.get("room", 0.0),
        )
        for chart in charts
    ]
    conditions = dict(curves[0].conditions)
    notes = [
        "dots: geometric means of runs; dashed: linear; curve: Universal Scalability Law",
        *(["shade: copies share cores, darker: CPUs"] if charts[0]["data"]["shared"] else []),
    ]
    return sheet_svg(
        f"throughput against copies, {conditions.get('suite', '')} on {conditions.get('host', '')}",
        figures,
        columns=columns,
        notes=[
            placed_text(60, 33 + 13 * number, note, "faint") for number, note in enumerate(notes)
        ],
    )


def scaling_charts(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Return a panel of speedups for each curve, then one of throughput for each benchmark."""
    return [*(_speedups(curve) for curve in curves), *throughput_charts(curves)]


def throughput_charts(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Return a panel of throughput for each benchmark, all curves in it."""
    names = dict.fromkeys(series.name for curve in curves for series in curve.series)
    return [_throughput(name, curves) for name in names]


def _axes(copies: Sequence[int]) -> Callable[[float], float]:
    far = max(copies) >= _LOG_RANGE * min(copies)
    return (lambda value: math.log2(max(value, 1e-9))) if far else float


def _speedups(curve: Curve) -> dict[str, Any]:
    """All benchmarks of a curve: against the smallest number of copies, with the linear line."""
    scale = _axes(curve.copies)
    first, last = curve.copies[0], curve.copies[-1]
    by_end = sorted(curve.series, key=lambda series: series.points[-1].speedup)
    named = [by_end[0], *curve.suites[:1], by_end[-1]]
    most = by_end[-1].points[-1].speedup
    shade = {id(series): _shade(0 if series.is_suite else 2) for series in curve.series}
    return _chart(
        sanitize(f"speedup over {copies_text(first)} {curve.name}".strip()),
        scale=scale,
        curve=curve,
        copies=curve.copies,
        courses=[
            (
                shade[id(series)],
                [(scale(point.copies), scale(point.speedup)) for point in series.points],
            )
            for series in curve.series
        ],
        dots=[
            _dot(series, point, scale, shade[id(series)], value=point.speedup)
            for series in curve.series
            for point in series.points
        ],
        linear=((first, 1.0), (last, last / first)),
        ends=((most, f"{most:.3g} x"),),
        names=[
            (series.points[-1].speedup, sanitize(_series_name(series)), "", _shade(0))
            for series in named
        ],
        least=1.0,
    )


def _throughput(name: str, curves: Sequence[Curve]) -> dict[str, Any]:
    shaded_series = [
        (_shade(place), curve, series)
        for place, curve in enumerate(curves)
        for series in curve.series
        if series.name == name
    ]
    copies = sorted({copies for _, curve, _ in shaded_series for copies in curve.copies})
    scale = _axes(copies)
    _, curve, main = shaded_series[0]
    first, last = main.points[0], main.points[-1]
    best = max(main.points, key=lambda point: point.rate)
    return _chart(
        sanitize(f"{_series_name(main)}, {main.unit}"),
        scale=scale,
        curve=curve,
        copies=copies,
        courses=[(shade, _course(series, scale)) for shade, _, series in shaded_series],
        dots=[
            _dot(series, point, scale, shade, value=point.rate, of_runs=point.rates)
            for shade, _, series in shaded_series
            for point in series.points
        ],
        linear=(
            (first.copies, first.rate),
            (last.copies, first.rate / first.copies * last.copies),
        ),
        ends=[(rate, format_number(rate)) for rate in dict.fromkeys((first.rate, best.rate))],
        names=[
            (end.rate, sanitize(curve.name) or speedup, speedup if curve.name else "", shade)
            for shade, curve, series in shaded_series
            for end in series.points[-1:]
            for speedup in [f"{end.speedup:.2f} x"]
        ],
        least=min(
            rate for *_, series in shaded_series for point in series.points for rate in point.rates
        ),
        knees=[
            {"x": scale(knee.copies), "y": scale(knee.rate), "text": f"knee {knee.copies}"}
            for *_, series in shaded_series
            if series.shape.knee is not None
            and (knee := series.point_of(series.shape.knee)) is not None
        ],
    )


def _chart(
    title: str,
    *,
    scale: Callable[[float], float],
    curve: Curve,
    copies: Sequence[int],
    courses: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    dots: Sequence[dict[str, Any]],
    linear: Sequence[tuple[float, float]],
    ends: Sequence[tuple[float, str]],
    names: Sequence[tuple[float, str, str, str]],
    least: float,
    knees: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return what scaling.vega.json draws; `curve` tells what its copies share.

    `scale` makes numbers of copies and rates places of the drawing; a point of a course is already
    a pair of places (x, y).
    `ends`: values with texts at the left; `names`: value, text, more text for a file, and colour,
    at the right. Of texts that would touch the last ones stay.
    """
    first, last = scale(copies[0]), scale(copies[-1])
    highest = max(dot["high"] for dot in dots)
    bottom = scale(least) if scale(4.0) == 2.0 else 0.0
    top = highest + 0.12 * (highest - bottom or 1)
    ticks = [
        {"x": scale(copy_count), "text": str(copy_count)}
        for copy_count in (copies[-1], copies[0], curve.fair, *copies)
        if copy_count in copies
    ]
    room = 0.08 * (top - bottom)
    return {
        "title": title,
        "signals": {"bottom": bottom, "top": top, "first": first, "last": last},
        "data": {
            "points": [
                {"line": line_number, "x": x, "y": y, "colour": shade}
                for line_number, (shade, course) in enumerate(courses)
                for x, y in course
            ],
            "dots": list(dots),
            "linear": [{"x": scale(copy_count), "y": scale(rate)} for copy_count, rate in linear],
            "knees": list(knees),
            "names": _with_room(
                [
                    {"y": scale(value), "text": text, "more": more, "colour": shade}
                    for value, text, more, shade in reversed(names)
                ],
                "y",
                room,
            ),
            "ends": _with_room(
                [{"y": scale(value), "text": text} for value, text in reversed(ends)],
                "y",
                room,
            ),
            "copies": _with_room(ticks, "x", 0.09 * (last - first)),
            "shared": _shared(curve, scale, last),
        },
    }


def _with_room(texts: Sequence[dict[str, Any]], axis: str, room: float) -> list[dict[str, Any]]:
    """Return the texts that have room for themselves; the first ones come first."""
    kept: list[dict[str, Any]] = []
    for text in texts:
        if all(abs(text[axis] - kept_text[axis]) >= room for kept_text in kept):
            kept.append(text)
    return kept


def _shared(curve: Curve, scale: Callable[[float], float], last: float) -> list[dict[str, Any]]:
    """Return from where on copies share cores, and CPUs: that is no scaling."""
    spans: list[dict[str, Any]] = []
    shares = [place.share for place in curve.places]
    for share, colour in ((Share.CPUS, "var(--even)"), (Share.THREADS, "var(--soft)")):
        if share in shares and (place := shares.index(share)):
            before, first = (
                scale(curve_place.copies) for curve_place in curve.places[place - 1 : place + 1]
            )
            end = spans[-1]["from"] if spans else last
            spans.append({"from": (before + first) / 2, "to": end, "colour": colour})
    return spans


def _shade(place: int) -> str:
    return f"var(--dot{min(place, _MOST_SHADES)})"


def _series_name(series: Series) -> str:
    return SUITES.get(series.name, series.name) if series.is_suite else series.name


def _course(series: Series, scale: Callable[[float], float]) -> list[tuple[float, float]]:
    """Return the law where it fits, else the measured points one after the other."""
    law = series.law
    if not isinstance(law, Usl) or law.bad:
        return [(scale(point.copies), scale(point.rate)) for point in series.points]
    low, high = law.copies[0], law.copies[-1]
    copies = [low * (high / low) ** (step / _STEPS) for step in range(_STEPS + 1)]
    return [(scale(copy_count), scale(law.fitted_rate(copy_count))) for copy_count in copies]


def _dot(
    series: Series,
    point: ScalePoint,
    scale: Callable[[float], float],
    colour: str,
    *,
    value: float,
    of_runs: Sequence[float] = (),
) -> dict[str, Any]:
    runs = f"run{'' if len(point.runs) == 1 else 's'} {', '.join(map(str, point.runs))}"
    return {
        "x": scale(point.copies),
        "y": scale(value),
        "low": scale(min(of_runs, default=value)),
        "high": scale(max(of_runs, default=value)),
        "colour": colour,
        "card": [
            sanitize(f"{_series_name(series)}, {copies_text(point.copies)}"),
            f"{format_number(point.rate)} {series.unit}",
            f"speedup {point.speedup:.3g}, efficiency {point.efficiency * 100:.3g} %",
            runs,
        ],
    }
