"""The history of a benchmark as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rater.analysis.compare.history import Group, RunHistory
from rater.show.charts.vega import PlacedChart, placed_text, sheet_svg
from rater.show.results.run import run_words
from rater.show.screen.format import format_number, sanitize
from rater.text.values import signed_percent

_WIDTH, _HEIGHT, _ROOM = 560.0, 200.0, 90.0  # pixels; the room is right of a panel
_MOST_TICKS = 6


def history_svg(name: str, host: str | None, histories: Sequence[RunHistory]) -> str:
    """Return the points of each history with its levels as an SVG, a panel for each."""
    figures = [
        PlacedChart(
            kind="scaling",
            chart=history_chart(history),
            width=_WIDTH,
            height=_HEIGHT,
            above=30,
            right=_ROOM,
        )
        for history in histories
    ]
    note = "dots: points; lines: levels, with a ring where one begins"
    return sheet_svg(
        f"history of {sanitize(name)} on {sanitize(host or 'a host that is not known')}",
        figures,
        notes=[placed_text(50, 33, note, "faint")],
    )


def history_chart(history: RunHistory, most_ticks: int = _MOST_TICKS) -> dict[str, Any]:
    """Return what scaling.vega.json draws: points one after the other in place of copies."""
    values = [history.measure.value(point.merit) for point in history.points]
    low, high = min(values), max(values)
    pad = 0.15 * (high - low) or 0.01 * abs(high) or 1.0
    last = len(values) - 1
    tick = max(1, -(-len(values) // most_ticks))
    title = f"{history.benchmark}, {history.measure.unit}, {', '.join(run_words(history.head))}"
    first_text, last_text = (format_number(values[place]) for place in (0, -1))
    return {
        "signals": {
            "bottom": low - pad,
            "top": high + pad,
            "first": 0,
            "last": last or 1,
            "room": _ROOM,
            "title": sanitize(title),
            "xname": "",
        },
        "data": {
            "points": _levels(history, len(values)),
            "dots": [
                {"x": place, "y": value, "low": value, "high": value, "colour": "var(--dot1)"}
                for place, value in enumerate(values)
            ],
            "linear": [],
            "knees": [
                {
                    "x": step.place,
                    "y": history.measure.value(step.after),
                    "text": f"{signed_percent(step.ratio - 1)} %",
                }
                for step in history.steps
            ],
            "names": [{"y": values[-1], "text": last_text, "more": "", "colour": "var(--ink)"}],
            "ends": [{"y": values[0], "text": first_text}],
            "copies": [
                {"x": place, "text": sanitize(_tick(history, place))}
                for place in range(0, len(values), tick)
            ],
            "shared": [],
        },
    }


def _levels(history: RunHistory, count: int) -> list[dict[str, Any]]:
    """Return a line for each level between steps; without a step there is none."""
    steps = history.steps
    merits = [*(step.before for step in steps[:1]), *(step.after for step in steps)]
    edges = [0, *(step.place for step in steps), count]
    return [
        {"line": number, "x": place, "y": history.measure.value(merit), "colour": "var(--dot0)"}
        for number, merit in enumerate(merits)
        for place in (edges[number], edges[number + 1] - 1)
    ]


def _tick(history: RunHistory, place: int) -> str:
    point = history.points[place]
    if history.group is Group.TAG:
        return point.label[:10]
    if point.started_at is None:
        return point.label
    days = {(other.started_at or "")[:10] for other in history.points}
    return point.started_at[:10] if len(days) > 1 else point.started_at[11:16]
