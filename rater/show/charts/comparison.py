"""Speedups with their intervals as a chart, for a page and a file; pure but for drawing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rater.analysis.compare.model import Comparison, Effect, EffectRow
from rater.analysis.stats.ratio_interval import Decision
from rater.show.charts.vega import SUITES, WIDTH, Chart, PlacedChart, sheet_svg
from rater.show.console.format import number, plain

_KINDS = {Decision.BETTER: "better", Decision.WORSE: "worse", Decision.SAME: "same"}
_COLOURS = {Decision.BETTER: "var(--good)", Decision.WORSE: "var(--slow-text)"}
_SIGNS = {
    Decision.BETTER: "+",
    Decision.WORSE: "\u2212",
    Decision.SAME: "=",
    Decision.RARELY: "~",
    Decision.UNKNOWN: "?",
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
    sides = [plain(side.label) for side in comparison.sides[1:]]
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
        {"row": row, "side": at, "lead": at == 0, "text": _title(plain(_name(one)), at, sides)}
        for row, one in enumerate(shown)
        for at in range(len(sides))
    ]
    return {
        "baseline": plain(comparison.sides[0].label),
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
    side = plain(comparison.sides[place + 1].label)
    interval = (
        "no interval"
        if speedup.low is None or speedup.high is None
        else f"{comparison.confidence * 100:.3g} % interval {speedup.low:.3f} to {speedup.high:.3f}"
    )
    values = f"{number(cell.baseline)} to {number(cell.value)} {row.unit}"
    return {
        "row": at,
        "side": place,
        "ratio": round(speedup.ratio, 6),
        "low": round(speedup.low if speedup.low is not None else speedup.ratio, 6),
        "high": round(speedup.high if speedup.high is not None else speedup.ratio, 6),
        "kind": _KINDS.get(speedup.verdict, "unknown"),
        "colour": _COLOURS.get(speedup.verdict, "var(--faint)"),
        "text": f"{speedup.ratio:.3f} {_SIGNS[speedup.verdict] * (2 if cell.holds else 1)}",
        "card": [f"{plain(_name(row))}, {side}", speedup.words, interval, values],
    }
