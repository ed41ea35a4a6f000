"""One panel of the copies' times as JSON values, which a page and a file draw alike; pure.

Many values of one kind are lists side by side (`copy`, `cpu`, `s`, ...): 12,441 copy runs
are less than a megabyte so. Times are seconds, rounded to seven digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rater.show.charts.labels import failed_text, label_text, outside_text, percent_text, time_text
from rater.show.charts.picture import Dot, Label, Panel
from rater.show.console.format import plain

_TICK_APART = 0.14  # of a panel's height: nearer numbers would touch
SLOW, EXPLAINED = 1, 2  # kinds of dots; all others are 0


def seconds(value: float) -> float:
    """Return a time with the digits that a picture can show."""
    return float(f"{value:.7g}")


def panel_values(
    panel: Panel,
    kinds: Mapping[Dot, int],
    *,
    repeated: bool,
    ends_s: tuple[float, float] | None = None,
    tick_apart: float = _TICK_APART,
) -> dict[str, Any]:
    """Return a panel's axis, numbers, names and dots.

    `kinds` are those of `dot_kinds`. `repeated`: copies ran several times. `ends_s`: of the axis,
    where they are not the panel's own; ticks are at least `tick_apart` of it from each other.
    """
    median_s = panel.median_s or 1.0
    low_s, high_s = ends_s or (panel.low * median_s, panel.high * median_s)
    dots = panel.dots
    columns: dict[str, list[Any]] = {
        "place": [dot.place for dot in dots],
        "copy": [dot.copy for dot in dots],
        "cpu": [dot.cpu for dot in dots],
        "core": [dot.core for dot in dots],
        "node": [dot.node for dot in dots],
        "it": [dot.iteration for dot in dots],
        "s": [seconds(dot.elapsed_s) for dot in dots],
        "kind": [kinds.get(dot, 0) for dot in dots],
    }
    if repeated:
        columns["fastest"] = [seconds(dot.fastest * median_s) for dot in dots]
        columns["slowest"] = [seconds(dot.slowest * median_s) for dot in dots]
    named = [(label, ()) for label in panel.overall()] + list(panel.parts())
    beyond = [panel.outside(above=above) for above in (True, False)]
    return {
        "title": panel.title,
        "median": seconds(panel.median_s) if panel.median_s else None,
        "low": seconds(low_s),
        "high": seconds(high_s),
        "ticks": _ticks(panel, tick_apart * (high_s - low_s)),
        "labels": [_label(label, of, panel) for label, of in named],
        "outside": [outside_text(far) for far in beyond if far],
        "failed": [
            [
                *(place, one.copy, one.iteration, one.cpu, one.node),
                *(seconds(one.elapsed_s), plain(one.what)),
            ]
            for place, one in panel.failed
        ],
        "failedText": failed_text(panel),
        "dots": columns,
    }


def dot_kinds(panel: Panel) -> dict[Dot, int]:
    """Return the dots that have names: parts of the picture, and iterations that stand out."""
    shown = {dot.iteration for dot in panel.dots}
    whole = [
        (label, panel.covered(label))
        for label in panel.overall()
        if label.iterations and not shown.issubset(label.iterations)
    ]
    return {
        dot: EXPLAINED if label.explained else SLOW
        for label, dots in reversed([*panel.parts(), *whole])
        for dot in dots
    }


def _label(label: Label, dots: Sequence[Dot], panel: Panel) -> dict[str, Any]:
    return {
        "text": plain(label_text(label, panel)),
        "explained": label.explained,
        "copies": sorted({dot.copy for dot in dots}),
        "its": [] if dots else sorted(label.iterations),  # of all copies: iterations alone
    }


def _ticks(panel: Panel, least_s: float) -> list[list[float | str]]:
    """Return the ends of the dots and their median: seconds, their text, and per cent.

    The axis begins and ends with what was measured; no round numbers that were not.
    """
    extent = panel.extent()
    if panel.median_s is None or extent is None:
        return []
    shown = [1.0] if extent[0] <= 1 <= extent[1] else []
    for value in reversed(extent):
        if all(abs(value - other) * panel.median_s >= least_s for other in shown):
            shown.append(value)
    return [
        [
            seconds(value * panel.median_s),
            time_text(value * panel.median_s),
            "median" if value == 1.0 else percent_text(value),
        ]
        for value in shown
    ]
