"""One panel of the copies' times as JSON values, the same for a page and a file; pure.

Many values of one kind are lists side by side (`copy`, `cpu`, `s`, ...): 12,441 copy runs
are less than a megabyte so. Times are seconds, rounded to seven digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rater.show.charts.labels import failed_text, label_text, outside_text, ticks
from rater.show.charts.picture import Dot, Label, Panel, Picture
from rater.show.console.format import plain
from rater.text.to_json import objects

_TICK_GAP = 0.14  # of a panel's height: nearer numbers would touch
SLOW, EXPLAINED = 1, 2  # kinds of dots; all others are 0
PLACE = ("copy", "cpu", "core", "node")


def seconds(value: float) -> float:
    """Return a time with the digits that a picture can show."""
    return float(f"{value:.7g}")


def value_lists(rows: Sequence[object], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return what rows have under these names, a list for each."""
    return {name: [getattr(row, name) for row in rows] for name in names}


def group_values(picture: Picture) -> list[list[str | int]]:
    """Return the lgroups of a picture: name, first place, places."""
    return [[group.name, group.first, group.size] for group in picture.groups]


def group_rows(groups: Sequence[Sequence[str | int]]) -> list[dict[str, object]]:
    """Return the same as what a specification draws."""
    return objects("name first size place", ((*group, at) for at, group in enumerate(groups)))


def panel_values(
    panel: Panel,
    kinds: Mapping[Dot, int],
    *,
    repeated: bool,
    ends_s: tuple[float, float] | None = None,
    tick_gap: float = _TICK_GAP,
) -> dict[str, Any]:
    """Return a panel's axis, numbers, names and dots.

    `kinds` are those of `dot_kinds`. `repeated`: copies ran several times. `ends_s`: of the axis,
    where they are not the panel's own; ticks are at least `tick_gap` of it from each other.
    """
    low_s, high_s = ends_s or (panel.low_s, panel.high_s)
    named = [(label, ()) for label in panel.overall()] + list(panel.parts())
    beyond = [panel.outside(above=above) for above in (True, False)]
    dots = value_lists(panel.dots, ("place", *PLACE)) | {
        "it": [dot.iteration for dot in panel.dots],
        "s": [seconds(dot.elapsed_s) for dot in panel.dots],
        "kind": [kinds.get(dot, 0) for dot in panel.dots],
    }
    if repeated:
        dots["fastest"] = [seconds(dot.fastest_s) for dot in panel.dots]
        dots["slowest"] = [seconds(dot.slowest_s) for dot in panel.dots]
    return {
        "title": panel.title,
        "median": seconds(panel.median_s) if panel.median_s else None,
        "low": seconds(low_s),
        "high": seconds(high_s),
        "ticks": [
            [seconds(value), text, share]
            for value, text, share in ticks(panel, tick_gap * (high_s - low_s))
        ],
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
        "dots": dots,
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
