"""What the pictures of a page are drawn from: dots, bars and the machine, as JSON values; pure.

Many values of one kind are lists side by side (`copy`, `cpu`, `s`, ...): 12,441 copy runs
are less than a megabyte so. Times are seconds, rounded to seven digits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rater.analysis.copies import Cell, CopyPoint
from rater.analysis.finding import Analysis
from rater.analysis.outcome import is_good
from rater.analysis.readings import RunReadings
from rater.analysis.score import Summary
from rater.record import StoredRun
from rater.show.format import plain
from rater.show.page_timeline import machine, seconds, timeline
from rater.show.plot import Dot, Label, Panel, Picture
from rater.show.plot_words import (
    failed_text,
    label_text,
    outside_text,
    percent_text,
    time_text,
)

type _Run = tuple[str, str | None, int, int]  # benchmark, tune, iteration, copy

_TICK_APART = 0.14  # of a panel's height: nearer numbers would touch
_PLAIN, _SLOW, _EXPLAINED = 0, 1, 2  # a dot's kind


@dataclass(frozen=True, slots=True)
class Told:
    """A run with all that a page says of it."""

    run: StoredRun
    summary: Summary
    cells: tuple[Cell, ...]
    picture: Picture
    divots: Analysis | None  # None: there was no search
    readings: RunReadings
    beside: Summary | None = None  # what a steady run stands beside


def run_data(
    told: Told, range_s: Mapping[tuple[str, str | None], tuple[float, float]]
) -> dict[str, Any]:
    """Return what the pictures of one run are drawn from.

    `range_s`: the ends of each benchmark's axis in seconds, where it is that of several runs.
    """
    picture, run = told.picture, told.run.without_torn()
    lost = _lost(told.summary)
    more = _More(told, run)
    return {
        "run": told.run.head.run,
        "axis": picture.axis,
        "names": list(picture.names),
        "groups": [[group.name, group.first, group.size] for group in picture.groups],
        "iterations": list(picture.iterations),
        "repeated": picture.repeated,
        "panels": [
            _panel(panel, picture.repeated, more, lost, range_s) for panel in picture.panels
        ],
        "timeline": timeline(told.summary, run),
        "machine": machine(run),
    }


class _More:
    """What is known of a copy's run beside its time: when it began, how local its memory was."""

    def __init__(self, told: Told, run: StoredRun) -> None:
        self.points: dict[_Run, CopyPoint] = {
            (cell.benchmark, cell.tune, cell.iteration, point.copy): point
            for cell in told.cells
            for point in cell.points
        }
        self._starts: dict[_Run, int] = {}
        for row in run.copies:
            if row.start_ns is not None and is_good(row):
                self._starts.setdefault(
                    (row.benchmark, row.tune, row.iteration, row.copy), row.start_ns
                )
        shares: defaultdict[tuple[str, int, int], list[float]] = defaultdict(list)
        for proof in told.summary.proof.copies:
            if proof.local_share is not None:
                key = (proof.benchmark, proof.iteration, proof.copy)
                shares[key].append(proof.local_share)
        self._local = {key: sum(of) / len(of) for key, of in shares.items()}

    def start_s(self, key: _Run) -> float | None:
        start_ns = self._starts.get(key)
        return None if start_ns is None else seconds(start_ns / 1e9)

    def local(self, benchmark: str, dot: Dot) -> float | None:
        share = self._local.get((benchmark, dot.iteration, dot.copy))
        return None if share is None else round(share, 4)


def _panel(
    panel: Panel,
    repeated: bool,
    more: _More,
    lost: Mapping[tuple[str, str | None], float],
    range_s: Mapping[tuple[str, str | None], tuple[float, float]],
) -> dict[str, Any]:
    median_s = panel.median_s or 1.0
    low_s, high_s = range_s.get(
        (panel.benchmark, panel.tune), (panel.low * median_s, panel.high * median_s)
    )
    named = {dot: label.explained for label, dots in reversed(panel.parts()) for dot in dots}
    keys: list[_Run] = [
        (panel.benchmark, panel.tune, dot.iteration, dot.copy) for dot in panel.dots
    ]
    found = [more.points.get(key) for key in keys]
    dots = panel.dots
    return {
        "title": panel.title,
        "benchmark": plain(panel.benchmark),
        "median": seconds(panel.median_s) if panel.median_s else None,
        "low": seconds(low_s),
        "high": seconds(high_s),
        "lost": lost.get((panel.benchmark, panel.tune)),
        "ticks": _ticks(panel, low_s, high_s),
        "labels": [_label(label, dots_of, panel) for label, dots_of in _labelled(panel)],
        "outside": [
            outside_text(beyond)
            for above in (True, False)
            if (beyond := panel.outside(above=above))
        ],
        "failed": [[place, copy, iteration] for place, copy, iteration in panel.failed],
        "failedText": failed_text(panel),
        "dots": {
            "place": [dot.place for dot in dots],
            "copy": [dot.copy for dot in dots],
            "cpu": [dot.cpu for dot in dots],
            "core": [None if point is None else point.core for point in found],
            "node": [None if point is None else point.node for point in found],
            "it": [dot.iteration for dot in dots],
            "s": [seconds(dot.elapsed_s) for dot in dots],
            "kind": [
                _PLAIN if (e := named.get(d)) is None else _EXPLAINED if e else _SLOW for d in dots
            ],
            "start": [more.start_s(key) for key in keys],
            "local": [more.local(panel.benchmark, dot) for dot in dots],
            **(
                {
                    "fastest": [seconds(dot.fastest * median_s) for dot in dots],
                    "slowest": [seconds(dot.slowest * median_s) for dot in dots],
                }
                if repeated
                else {}
            ),
        },
    }


def _labelled(panel: Panel) -> Iterable[tuple[Label, tuple[Dot, ...]]]:
    """Return what is named in a panel: of all its copies first, then of parts of them."""
    for label in panel.overall():
        yield label, ()
    yield from panel.parts()


def _label(label: Label, dots: Sequence[Dot], panel: Panel) -> dict[str, Any]:
    return {
        "text": plain(label_text(label, panel)),
        "explained": label.explained,
        "copies": sorted({dot.copy for dot in dots}),
    }


def _ticks(panel: Panel, low_s: float, high_s: float) -> list[list[float | str]]:
    """Return the ends of the dots and their median: seconds, their text, and per cent.

    The axis begins and ends with what was measured; no round numbers that were not.
    """
    extent = panel.extent()
    if panel.median_s is None or extent is None:
        return []
    least = _TICK_APART * (high_s - low_s) / panel.median_s
    shown = [1.0] if extent[0] <= 1 <= extent[1] else []
    for value in reversed(extent):
        if all(abs(value - other) >= least for other in shown):
            shown.append(value)
    return [
        [
            seconds(value * panel.median_s),
            time_text(value * panel.median_s),
            "median" if value == 1.0 else percent_text(value),
        ]
        for value in shown
    ]


def _lost(summary: Summary) -> dict[tuple[str, str | None], float]:
    """Return the most that slow copies cost each benchmark in a counted iteration."""
    found: dict[tuple[str, str | None], float] = {}
    for benchmark in summary.benchmarks:
        shares = [it.score_lost for it in benchmark.iterations if it.counted and it.score_lost]
        if shares:
            found[benchmark.benchmark, benchmark.tune] = round(max(shares), 5)
    return found
