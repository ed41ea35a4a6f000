"""Reuse distances as a picture: a bar for every doubling of the distance, by category."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rater.record.pages import BASE_PAGE, CATEGORIES, PageReuse, PageTrace
from rater.show.charts.vega import PlacedChart, PlacedText, sheet_svg
from rater.show.console.format import plain
from rater.show.pages.texts import many, page_name

# Okabe and Ito: told apart by those who do not see red and green.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#b8e186", "#cc79a7", "#9aa0a6")
_SIGNS = ("h", "m", "s", "d", "k", "o")  # in the terminal, where there are no colours
_LINE = 16.0  # of a bar, as in cpi.vega.json
_LEAST_WIDTH = 10
_WIDTH = 320.0

type Bars = list[tuple[str, list[float]]]  # a title, shares of references by category


def octave_bars(reuse: PageReuse) -> Bars:
    """Return shares of all references by distance: 0, 1, 2-3, 4-7 and so on, then first touches."""
    octaves: Counter[tuple[int, int]] = Counter()
    for category, rows in enumerate(reuse.histogram):
        for distance, count in rows:
            octaves[distance.bit_length(), category] += count
    everything = octaves.total() + sum(reuse.pages)
    if not everything:
        return []
    last = max((octave for octave, _ in octaves), default=0)
    bars: Bars = [
        (_octave_name(n), [octaves[n, c] / everything for c in range(len(CATEGORIES))])
        for n in range(last + 1)
    ]
    return [*bars, ("first touch", [count / everything for count in reuse.pages])]


def _octave_name(n: int) -> str:
    if n < 2:
        return str(n)
    low, high = 1 << (n - 1), (1 << n) - 1
    return f"{_short(low)}-{_short(high)}"


def _short(value: int) -> str:
    return f"{value}" if value < 1 << 14 else f"{(value + 1) >> 10}k"


def reuse_lines(trace: PageTrace, page_bytes: int, width: int) -> list[str]:
    """Return one page size for a terminal: a letter for each category."""
    bars = octave_bars(trace.of_size(page_bytes))
    used = [i for i in range(len(CATEGORIES)) if trace.references[i]]
    legend = ", ".join(f"{_SIGNS[i]} {CATEGORIES[i]}" for i in used)
    lines = [f"reuse distance in {page_name(page_bytes)} pages, share of references: {legend}"]
    margin = max((len(title) for title, _ in bars), default=0)
    room = max(_LEAST_WIDTH, width - margin - 10)
    high = max((sum(shares) for _, shares in bars), default=0.0) or 1.0
    for title, shares in bars:
        bar, at = "", 0.0
        for category, share in enumerate(shares):
            at += share
            bar += _SIGNS[category] * (round(at / high * room) - len(bar))
        total = sum(shares)
        if total:
            lines.append(f"{title:>{margin}} {bar}{' ' if bar else ''}{_percent(total)}")
        else:
            lines.append(f"{title:>{margin}} -")
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.0005 else "< 0.05 %"


def reuse_svg(trace: PageTrace) -> str:
    """Return all page sizes as an SVG, a panel each."""
    all_bars = [(it.page_bytes, octave_bars(it)) for it in trace.reuse]
    longest = max(all_bars, key=lambda it: len(it[1]))[1]
    # Rows of all panels are alike, so that they are compared along a line.
    titles = [title for title, _ in longest]
    figures = []
    for page_bytes, bars in all_bars:
        known = dict(bars)
        rows = [(title, known.get(title, [0.0] * len(CATEGORIES))) for title in titles]
        figures.append(
            PlacedChart(
                "cpi",
                _chart(rows, trace),
                _WIDTH,
                len(rows) * _LINE,
                [PlacedText(0, -40, f"{page_name(page_bytes)} pages", weight="bold")],
                above=20,
            )
        )
    what = plain(f"{trace.name}: page reuse distances, % of {many(sum(trace.references))}")
    return sheet_svg(f"{what} references", figures, columns=2)


def _chart(rows: Sequence[tuple[str, list[float]]], trace: PageTrace) -> dict[str, Any]:
    used = [i for i in range(len(CATEGORIES)) if trace.references[i]]
    data: dict[str, list[dict[str, Any]]] = {"titles": [], "bars": [], "totals": []}
    for row, (title, shares) in enumerate(rows):
        data["titles"].append({"row": row, "text": title, "lead": True})
        at = 0.0
        for category in used:
            to = at + 100 * shares[category]
            if to > at:
                name = CATEGORIES[category]
                data["bars"].append(
                    {
                        "row": row,
                        "from": round(at, 6),
                        "to": round(to, 6),
                        "part": name,
                        "colour": _COLOURS[category],
                        "card": [name, f"{to - at:.3g} % of all references"],
                    }
                )
            at = to
        data["totals"].append(
            {"row": row, "at": round(at, 6), "text": _percent(at / 100) if at else ""}
        )
    legend, x = [], 0.0
    for category in used:
        legend.append({"x": x, "text": CATEGORIES[category], "colour": _COLOURS[category]})
        x += 22 + 6.2 * len(CATEGORIES[category])
    return {
        "signals": {
            "rows": len(rows),
            "high": max((bar["to"] for bar in data["bars"]), default=1.0),
            "longest": max(len(title) for title, _ in rows),
        },
        "data": data | {"legend": legend},
    }


def pictured_size(trace: PageTrace) -> int:
    """Return the page size that a terminal has room to picture."""
    return min((it.page_bytes for it in trace.reuse), default=BASE_PAGE)
