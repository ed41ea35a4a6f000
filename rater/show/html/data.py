"""What the pictures of a page are drawn from: dots, bars and the machine, as JSON values; pure.

Many values of one kind are lists side by side (`copy`, `cpu`, `s`, ...): 12,441 copy runs
are less than a megabyte so. Times are seconds, rounded to seven digits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rater.analysis.counters.cpu_use import RunCounters
from rater.analysis.divots.data import words
from rater.analysis.divots.data.finding import Analysis
from rater.analysis.results.copies import Cell, CopyPoint
from rater.analysis.results.copy_outcome import FailedCopy, is_good
from rater.analysis.results.model import Summary
from rater.record.status import CopyStatus
from rater.record.stored import StoredRun
from rater.show.charts.labels import label_text, outside_text, percent_text, time_text
from rater.show.charts.picture import Dot, Label, Panel, Picture
from rater.show.console.format import plain
from rater.show.html.timeline import RunKey, machine, seconds, timeline
from rater.text.cpuset import format_list
from rater.text.words import copies_text

_TICK_APART = 0.14  # of a panel's height: nearer numbers would touch
_MOST_LETTERS = 20  # of a list of copies in a panel
_PLAIN, _SLOW, _EXPLAINED = 0, 1, 2  # a dot's kind


@dataclass(frozen=True, slots=True)
class Told:
    """A run with all that a page says of it."""

    run: StoredRun
    summary: Summary
    cells: tuple[Cell, ...]
    picture: Picture
    divots: Analysis | None  # None: there was no search
    readings: RunCounters
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
    kinds = [_kinds(panel) for panel in picture.panels]
    return {
        "run": told.run.head.run,
        "axis": picture.axis,
        "names": list(picture.names),
        "groups": [[group.name, group.first, group.size] for group in picture.groups],
        "iterations": list(picture.iterations),
        "repeated": picture.repeated,
        "panels": [
            _panel(panel, more, range_s, of_panel, lost, repeated=picture.repeated)
            for panel, of_panel in zip(picture.panels, kinds, strict=True)
        ],
        "timeline": timeline(
            told.summary,
            run,
            {
                (panel.benchmark, panel.tune, dot.iteration, dot.copy): kind
                for panel, of_panel in zip(picture.panels, kinds, strict=True)
                for dot, kind in of_panel.items()
            },
        ),
        "machine": machine(run),
    }


class _More:
    """What is known of a copy's run beside its time: when it began, how local its memory was."""

    def __init__(self, told: Told, run: StoredRun) -> None:
        self.points: dict[RunKey, CopyPoint] = {
            (cell.benchmark, cell.tune, cell.iteration, point.copy): point
            for cell in told.cells
            for point in cell.points
        }
        self._starts: dict[RunKey, int] = {}
        for row in run.copies:
            if row.start_ns is not None and is_good(row):
                self._starts.setdefault(
                    (row.benchmark, row.tune, row.iteration, row.copy), row.start_ns
                )
        self._failed: dict[RunKey, FailedCopy] = {
            (cell.benchmark, cell.tune, cell.iteration, one.copy): one
            for cell in told.cells
            for one in reversed(cell.failed)
        }
        shares: defaultdict[tuple[str, int, int], list[float]] = defaultdict(list)
        for proof in told.summary.proof.copies:
            if proof.local_share is not None:
                key = (proof.benchmark, proof.iteration, proof.copy)
                shares[key].append(proof.local_share)
        self._local = {key: sum(of) / len(of) for key, of in shares.items()}

    def start_s(self, key: RunKey) -> float | None:
        start_ns = self._starts.get(key)
        return None if start_ns is None else seconds(start_ns / 1e9)

    def failure(self, panel: Panel, place: int, copy: int, iteration: int) -> list[Any]:
        """Return a failed copy's place, copy, iteration, CPU, lgroup, seconds, and what it did."""
        one = self._failed[panel.benchmark, panel.tune, iteration, copy]
        where = [one.cpu, one.node, seconds(one.elapsed_s)]
        return [place, copy, iteration, *where, plain(one.what)]

    def interrupted(self, panel: Panel, copy: int, iteration: int) -> bool:
        """Tell whether rater stopped this copy, which is no fault of its."""
        one = self._failed[panel.benchmark, panel.tune, iteration, copy]
        return one.status is CopyStatus.INTERRUPTED

    def local(self, benchmark: str, dot: Dot) -> float | None:
        share = self._local.get((benchmark, dot.iteration, dot.copy))
        return None if share is None else round(share, 4)


def _panel(
    panel: Panel,
    more: _More,
    range_s: Mapping[tuple[str, str | None], tuple[float, float]],
    kinds: Mapping[Dot, int],
    lost: Mapping[tuple[str, str | None], float],
    *,
    repeated: bool,
) -> dict[str, Any]:
    median_s = panel.median_s or 1.0
    low_s, high_s = range_s.get(
        (panel.benchmark, panel.tune), (panel.low * median_s, panel.high * median_s)
    )
    keys: list[RunKey] = [
        (panel.benchmark, panel.tune, dot.iteration, dot.copy) for dot in panel.dots
    ]
    found = [more.points.get(key) for key in keys]
    dots = panel.dots
    return {
        "title": panel.title,
        "benchmark": plain(panel.benchmark),
        "tune": panel.tune,
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
        "failed": [
            more.failure(panel, place, copy, iteration) for place, copy, iteration in panel.failed
        ],
        "failedText": _failed_text(panel, more),
        "dots": {
            "place": [dot.place for dot in dots],
            "copy": [dot.copy for dot in dots],
            "cpu": [dot.cpu for dot in dots],
            "core": [None if point is None else point.core for point in found],
            "node": [None if point is None else point.node for point in found],
            "it": [dot.iteration for dot in dots],
            "s": [seconds(dot.elapsed_s) for dot in dots],
            "kind": [kinds.get(dot, _PLAIN) for dot in dots],
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


def _failed_text(panel: Panel, more: _More) -> str | None:
    """Say which copies failed, and which rater stopped; None for none."""
    told = []
    for interrupted, how in ((False, "failed"), (True, "interrupted")):
        copies = sorted(
            {
                copy
                for _, copy, iteration in panel.failed
                if more.interrupted(panel, copy, iteration) is interrupted
            }
        )
        long = len(format_list(copies)) > _MOST_LETTERS
        which = copies_text(len(copies)) if long else words.copies(copies)
        told += [f"{which} {how}"] if copies else []
    return "; ".join(told) or None


def _kinds(panel: Panel) -> dict[Dot, int]:
    """Return the dots that have names: parts of the picture, and iterations that stand out."""
    shown = {dot.iteration for dot in panel.dots}
    whole = [
        (label, panel.covered(label))
        for label in panel.overall()
        if label.iterations and not shown.issubset(label.iterations)
    ]
    return {
        dot: _EXPLAINED if label.explained else _SLOW
        for label, dots in reversed([*panel.parts(), *whole])
        for dot in dots
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
        "its": [] if dots else sorted(label.iterations),  # of all copies: iterations alone
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
