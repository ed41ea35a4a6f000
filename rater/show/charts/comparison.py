"""Speedups, and cycles per instruction, as charts for a page, a file and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rater.analysis.compare.model import Comparison, Effect, EffectRow
from rater.analysis.results.counters import OTHER, BenchmarkCounts
from rater.analysis.stats.intervals import Decision
from rater.show.charts.vega import SUITES, WIDTH, Chart, PlacedChart, sheet_svg
from rater.show.format import format_number, sanitize

_KINDS = {Decision.BETTER: "better", Decision.WORSE: "worse", Decision.SAME: "same"}
_COMPARISON_COLOURS = {Decision.BETTER: "var(--good)", Decision.WORSE: "var(--slow-text)"}
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
    return sheet_svg(title, [PlacedChart("comparison", chart, WIDTH, rows * (14 * sides + 4))])


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
        _line(row, cell, at, place, comparison)
        for at, row in enumerate(shown)
        for place, cell in enumerate(row.cells)
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
        {"row": row, "side": at, "lead": at == 0, "text": _title(sanitize(_name(one)), at, sides)}
        for row, one in enumerate(shown)
        for at in range(len(sides))
    ]
    return {
        "baseline": sanitize(comparison.sides[0].label),
        "signals": {
            "longest": max(len(title["text"]) for title in titles),
            "low": min(ends) - pad,
            "high": max(ends) + pad,
            "rows": len(shown),
            "sides": len(sides),
        },
        "data": {"titles": titles, "lines": lines},
    }


def _title(name: str, at: int, sides: Sequence[str]) -> str:
    if len(sides) == 1:
        return name
    return sides[at] if at else f"{name}: {sides[at]}"


def _name(row: EffectRow) -> str:
    if row.over:
        return SUITES.get(row.name, row.name)
    return f"{row.name} {row.tune}" if row.tune else row.name


def _ratio(row: EffectRow) -> float | None:
    return next((cell.speedup.ratio for cell in row.cells if cell.speedup), None)


def _line(
    row: EffectRow, cell: Effect, at: int, place: int, comparison: Comparison
) -> dict[str, Any]:
    speedup = cell.speedup
    assert speedup is not None
    side = sanitize(comparison.sides[place + 1].label)
    interval = (
        "no interval"
        if speedup.low is None or speedup.high is None
        else f"{comparison.confidence * 100:.3g} % interval {speedup.low:.3f} to {speedup.high:.3f}"
    )
    values = f"{format_number(cell.baseline)} to {format_number(cell.value)} {row.unit}"
    return {
        "row": at,
        "side": place,
        "ratio": round(speedup.ratio, 6),
        "low": round(speedup.low if speedup.low is not None else speedup.ratio, 6),
        "high": round(speedup.high if speedup.high is not None else speedup.ratio, 6),
        "kind": _KINDS.get(speedup.verdict, "unknown"),
        "colour": _COMPARISON_COLOURS.get(speedup.verdict, "var(--faint)"),
        "text": f"{speedup.ratio:.3f} {_SIGNS[speedup.verdict] * (2 if cell.holds else 1)}",
        "card": [f"{sanitize(_name(row))}, {side}", speedup.words, interval, values],
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
_LETTER = 6.2  # width of one in the legend
_LEAST_WIDTH = 10  # signs of a bar in the terminal

type CountedPoint = tuple[str, Sequence[BenchmarkCounts]]  # its label, and what was counted


def cpi_chart(points: Sequence[CountedPoint]) -> dict[str, Any] | None:
    """Return bars of benchmarks with a CPI stack (of several points: the first's); None: none."""
    stacks: dict[str, dict[int, BenchmarkCounts]] = {}
    for place, (_, counted) in enumerate(points):
        for it in counted:
            if it.stack is not None and it.rates is not None and it.rates.cpi:
                name = sanitize(f"{it.benchmark} {it.tune}" if it.tune else it.benchmark)
                if it.user_only:  # not to be compared with counts of both
                    name = f"{name} (user mode)"
                stacks.setdefault(name, {}).setdefault(place, it)
    if len(points) > 1:  # what the first has not counted is no share of its CPI
        stacks = {name: of for name, of in stacks.items() if 0 in of}
    names = list(
        dict.fromkeys(
            part.name
            for of in stacks.values()
            for it in of.values()
            for part in (it.stack.parts if it.stack else ())
        )
    )
    if not names:
        return None
    names.sort(key=lambda name: name == OTHER)
    colours = {
        name: _OTHER_COLOUR if name == OTHER else _CPI_COLOURS[n % len(_CPI_COLOURS)]
        for n, name in enumerate(names)
    }
    data: dict[str, list[dict[str, Any]]] = {"titles": [], "bars": [], "totals": []}
    row = 0
    for name, of in stacks.items():
        base = next(iter(of.values()))
        first = base.rates.cpi if base.rates and len(points) > 1 else None
        for lead, (place, it) in enumerate(of.items()):
            label = sanitize(points[place][0])
            title = name if len(points) == 1 else f"{name}: {label}" if not lead else label
            data["titles"].append({"row": row, "text": title, "lead": not lead})
            _add(data, row, it, first, colours)
            row += 1
    return {
        "signals": {
            "rows": row,
            "high": max(bar["to"] for bar in data["bars"]),
            "longest": max(len(title["text"]) for title in data["titles"]),
        },
        "data": data | {"legend": _legend(colours)},
        "unit": "% of the first point's CPI" if len(points) > 1 else "cycles per instruction",
    }


def _add(
    data: Mapping[str, list[dict[str, Any]]],
    row: int,
    it: BenchmarkCounts,
    first: float | None,
    colours: Mapping[str, str],
) -> None:
    assert it.stack is not None
    assert it.rates is not None
    scale = 100 / first if first else 1.0
    at = 0.0
    for part in it.stack.parts:
        to = at + part.cycles * scale
        if part.cycles:
            words = part.name.replace("_", " ")
            data["bars"].append(
                {
                    "row": row,
                    "from": round(at, 6),
                    "to": round(to, 6),
                    "part": part.name,
                    "colour": colours[part.name],
                    "card": [words, f"{part.cycles:.3f} cycles per instruction"],
                }
            )
        at = to
    text = f"{at:.0f} %" if first else f"{it.rates.cpi:.2f}"
    data["totals"].append({"row": row, "at": round(at, 6), "text": text})


def _legend(colours: Mapping[str, str]) -> list[dict[str, Any]]:
    found, x = [], 0.0
    for name, colour in colours.items():
        words = name.replace("_", " ")
        found.append({"x": round(x, 1), "text": words, "colour": colour})
        x += 22 + _LETTER * len(words)
    return found


def cpi_svg(chart: Chart, title: str) -> str:
    """Return the chart of `cpi_chart` as an SVG."""
    height = chart["signals"]["rows"] * _LINE
    return sheet_svg(f"{title}, {chart['unit']}", [PlacedChart("cpi", chart, WIDTH, height)])


def cpi_lines(chart: Chart, width: int) -> list[str]:
    """Return the chart for a terminal: a letter for each part."""
    letters = _letters([one["text"] for one in chart["data"]["legend"]])
    parts = [name.replace(" ", "_") for name in letters]
    signs = dict(zip(parts, letters.values(), strict=True))
    titles, totals = chart["data"]["titles"], chart["data"]["totals"]
    margin = min(max(len(one["text"]) for one in titles), width // 3)
    room = max(_LEAST_WIDTH, width - margin - 10)
    high = chart["signals"]["high"] or 1.0
    lines = [chart["unit"] + ": " + ", ".join(f"{sign} {name}" for name, sign in letters.items())]
    for title, total in zip(titles, totals, strict=True):
        bar = ""
        for one in chart["data"]["bars"]:
            if one["row"] == title["row"]:
                bar += signs[one["part"]] * (round(one["to"] / high * room) - len(bar))
        lines.append(f"{title['text'][:margin]:<{margin}} {bar} {total['text']}")
    return lines


def _letters(names: Sequence[str]) -> dict[str, str]:
    """Return a sign for each part that no other has: a letter of its name, else a digit."""
    found: dict[str, str] = {}
    for name in names:
        free = [it for it in f"{name[-1]}{name}" if it.isalnum() and it not in found.values()]
        if name[-1:].isdigit():  # l1, l2
            found[name] = free[0]
        else:
            found[name] = next((it for it in name if it in free), free[0] if free else "*")
    return found
