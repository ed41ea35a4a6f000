"""What a picture of the copies' times consists of, before it is drawn anywhere; pure.

The picture is that of the SPECrate2006 paper's Figures 1-3: a copy is a place on the
horizontal axis, by NUMA node, and its time a dot above it. `panels` draws it into a file,
`terminal` with the signs of a terminal, and a page of `rater report` in a browser.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from rater.analysis.results.copies import Cell, CopyPoint
from rater.record.events import CopyEnded
from rater.record.stored import RunHead
from rater.show.screen.format import sanitize
from rater.text.values import JsonFields, copies_text, group_by_key, objects, to_json

_FAR = 3.0  # times the median, or a third of it: what a few such copies need no axis for
_FEW = 0.2  # of all dots; more than these are no stray copies, and the axis goes out to them
_MOST_STARTS = 8  # of NUMA nodes; of more there is no room for the number of the last copy
_PAD = 0.04  # of the span of the times, above and below
_LEAST_SPAN = 0.02  # of the median: copies that differ by less stand level, as they are
_SHADES = 4  # of grey
_WHOLE = 0.6  # a label that covers more of the copies is about all of them


class Label(Struct, frozen=True, kw_only=True):
    """What a slow (or fast) part of the picture is."""

    copies: tuple[int, ...]  # ascending; empty: all
    text: str  # short: "NUMA node 1: +25 %"
    iterations: tuple[int, ...] = ()  # empty: all
    benchmark: str | None = None  # None: all
    tune: str | None = None  # None: all
    cpus: tuple[int, ...] = ()  # where copies move about: the CPUs that it is about
    explained: bool = False  # predicted by the layout: no divot
    fast: bool = False  # its name stands below it


class NodeSpan(Struct, frozen=True):
    """Places side by side that belong to one NUMA node."""

    node: int | None  # None: these copies are not bound
    first: int  # its first place
    size: int

    @property
    def name(self) -> str:
        """Return its number, or `-`."""
        return "-" if self.node is None else str(self.node)


class Dot(CopyPoint, frozen=True, kw_only=True):
    """One copy in one iteration."""

    place: int  # on the horizontal axis
    iteration: int


class Panel(Struct, frozen=True, kw_only=True):
    """One benchmark: its dots, and the part of the axis that tells their story.

    Dots outside `low_s` to `high_s` are drawn at the edge, with their time next to them.
    """

    benchmark: str
    tune: str | None
    title: str  # with the tune where the run has several
    median_s: float | None  # of the dots; None: no copy ran well
    dots: tuple[Dot, ...]
    failed: tuple[tuple[int, CopyEnded], ...]  # with their places; once in an iteration
    low_s: float
    high_s: float
    labels: tuple[Label, ...]
    by_cpu: bool = False  # the places are CPUs
    series: tuple[str, ...] = ()  # names of what its iterations stand for, where they are none

    def extent_s(self) -> tuple[float, float] | None:
        """Return the least and the largest time that is drawn on the axis."""
        inside = [dot for dot in self.dots if self.low_s <= dot.elapsed_s <= self.high_s]
        if not inside:
            return None
        return (
            min(max(dot.fastest_s, self.low_s) for dot in inside),
            max(min(dot.slowest_s, self.high_s) for dot in inside),
        )

    def outside(self, *, above: bool) -> tuple[Dot, ...]:
        """Return those beyond one of its ends: the farthest of each copy, the farthest first."""
        sign = 1 if above else -1
        edge = sign * (self.high_s if above else self.low_s)
        beyond = [dot for dot in self.dots if sign * dot.elapsed_s > edge]
        beyond.sort(key=lambda dot: (-sign * dot.elapsed_s, dot.copy))
        return tuple({dot.copy: dot for dot in reversed(beyond)}.values())[::-1]

    def covered(self, label: Label) -> tuple[Dot, ...]:
        """Return the dots that a label is about."""
        return tuple(
            dot
            for dot in self.dots
            if (not label.iterations or dot.iteration in label.iterations)
            and (
                dot.cpu in label.cpus
                if self.by_cpu and label.cpus
                else dot.copy in label.copies or not label.copies
            )
        )

    def parts(self) -> tuple[tuple[Label, tuple[Dot, ...]], ...]:
        """Return the labels of single parts of the picture, each with its dots; divots first."""
        labelled = [(label, dots) for label, dots in self._labelled() if not self._is_whole(dots)]
        return tuple(sorted(labelled, key=lambda part: part[0].explained))

    def overall(self) -> tuple[Label, ...]:
        """Return the labels that are about the copies at large, not about a part of them."""
        return tuple(label for label, dots in self._labelled() if self._is_whole(dots))

    def _labelled(self) -> Iterator[tuple[Label, tuple[Dot, ...]]]:
        for label in self.labels:
            dots = self.covered(label)
            if dots:
                yield label, dots

    def _is_whole(self, dots: Sequence[Dot]) -> bool:
        places = {dot.place for dot in self.dots}
        return len({dot.place for dot in dots}) > _WHOLE * len(places) and len(places) > 1


class Picture(Struct, frozen=True, kw_only=True):
    """Panels over one horizontal axis of copies, or of CPUs where copies move between them."""

    title: str
    axis: str  # "copy" or "CPU"
    names: tuple[int, ...]  # what stands at each place
    groups: tuple[NodeSpan, ...]  # empty: nothing is known of NUMA nodes
    iterations: tuple[int, ...]  # that are shown, ascending
    repeated: bool  # dots are the median runs of copies that ran several times
    panels: tuple[Panel, ...]
    series: tuple[str, ...] = ()  # names of what iterations 1, 2 stand for, where they are none

    @property
    def ascending(self) -> bool:
        """Whether the places are in the order of their names."""
        return all(name < following for name, following in pairwise(self.names))

    def shade(self, iteration: int) -> int:
        """Return which grey the dots of an iteration have: 0 stands out most, the latest's."""
        later = len(self.iterations) - 1 - self.iterations.index(iteration)
        later *= 1 + bool(self.series)  # two runs are told apart at a glance
        return min(_SHADES - 1, later)

    def marks(self) -> tuple[int, ...]:
        """Return the places whose names say enough: where NUMA nodes begin, and the last one."""
        last = len(self.names) - 1
        if not self.ascending or not self.groups:
            return tuple(range(len(self.names)))
        starts = tuple(group.first for group in self.groups)
        return starts if last in starts or len(starts) > _MOST_STARTS else (*starts, last)


def evenly(marks: Sequence[tuple[float, str]], letter: float) -> Sequence[tuple[float, str]]:
    """Return every nth of the texts around their middles, so that none touches the next.

    `letter`: width of one, in the unit of the middles.
    """
    step = 1
    while any(
        right_mark[0] - left_mark[0] < ((len(left_mark[1]) + len(right_mark[1])) / 2 + 1) * letter
        for left_mark, right_mark in pairwise(marks[::step])
    ):
        step += 1
    return marks[::step]


def picture_of(
    head: RunHead,
    cells: Sequence[Cell],
    labels: Iterable[Label] = (),
    *,
    benchmark: str | None = None,
    iteration: int | None = None,
    ranges: bool = True,
) -> Picture:
    """Return the picture of a run's cells, or of one benchmark or iteration of them.

    Discarded iterations are left out where others are there, unless one is asked for.
    `ranges`: with room on the axis for all runs of copies that ran several times.
    """
    if not ranges:
        cells = [_median_runs(cell) for cell in cells]
    chosen = [cell for cell in cells if benchmark in (None, cell.benchmark)]
    if iteration is not None:
        chosen = [cell for cell in chosen if cell.iteration == iteration]
    elif any(cell.counted for cell in chosen):
        chosen = [cell for cell in chosen if cell.counted]
    axis, homes = _homes(head, cells)
    nodes_are_known = any(node is not None for node in homes.values())
    names = sorted(homes, key=lambda name: (*unknown_last(homes[name]), name))
    places = {name: place for place, name in enumerate(names)}
    several = len({cell.tune for cell in chosen}) > 1
    all_labels = tuple(labels)
    return Picture(
        title=sanitize(_title(head)),
        axis=axis,
        names=tuple(names),
        groups=_groups([homes[name] for name in names]) if nodes_are_known else (),
        iterations=tuple(sorted({cell.iteration for cell in chosen})),
        repeated=any(point.runs > 1 for cell in chosen for point in cell.points),
        panels=tuple(
            _panel(
                f"{name} {tune}" if several and tune else name, members, all_labels, axis, places
            )
            for (name, tune), members in group_by_key((cell.key, cell) for cell in chosen).items()
        ),
    )


def picture_of_places(
    title: str,
    cells: Sequence[Cell],
    labels: Iterable[Label],
    *,
    axis: str,
    series: tuple[str, ...],
) -> Picture:
    """Return the picture of cells over CPUs or copies, whose iterations 1, 2 are `series`."""
    points = [point for cell in cells for point in cell.points]
    homes = {(point.cpu or 0) if axis == "CPU" else point.copy: point.node for point in points}
    names = sorted(homes, key=lambda name: (*unknown_last(homes[name]), name))
    places = {name: place for place, name in enumerate(names)}
    nodes_are_known = any(node is not None for node in homes.values())
    several = len({cell.tune for cell in cells}) > 1
    all_labels = tuple(labels)
    panels = [
        _panel(f"{name} {tune}" if several and tune else name, members, all_labels, axis, places)
        for (name, tune), members in group_by_key((cell.key, cell) for cell in cells).items()
    ]
    return Picture(
        title=title,
        axis=axis,
        names=tuple(names),
        groups=_groups([homes[name] for name in names]) if nodes_are_known else (),
        iterations=tuple(range(1, len(series) + 1)),
        repeated=False,
        panels=tuple(replace(panel, series=series) for panel in panels),
        series=series,
    )


def picture_document(picture: Picture, head: RunHead, file: str | None) -> dict[str, Any]:
    """Return the JSON document of `rater show plot --json`; `file` is where it was drawn, if so."""
    document: dict[str, Any] = {
        "run": head.run,
        "file": file,
        "axis": picture.axis,
        "places": picture.names,
        "lgroups": picture.groups,
        "benchmarks": picture.panels,
    }
    return {key: to_json(value, _TABLE) for key, value in document.items()}


_TABLE = {
    Panel: JsonFields(
        "benchmark tune median_s",
        {"axis_s": lambda panel: (panel.low_s, panel.high_s) if panel.median_s else None},
        "dots",
        {
            "failed": lambda panel: objects(
                "copy iteration", ((one.copy, one.iteration) for _, one in panel.failed)
            )
        },
        "labels",
    ),
    Dot: JsonFields("copy cpu iteration elapsed_s fastest_s slowest_s"),
}


def _median_runs(cell: Cell) -> Cell:
    cell_points = cell.points
    points = (
        replace(point, fastest_s=point.elapsed_s, slowest_s=point.elapsed_s)
        for point in cell_points
    )
    return replace(cell, points=tuple(points))


def _panel(
    title: str,
    cells: Sequence[Cell],
    labels: Sequence[Label],
    axis: str,
    places: Mapping[int, int],
) -> Panel:
    name, tune = cells[0].key
    times = [point.elapsed_s for cell in cells for point in cell.points]
    median_s = statistics.median(times) if times else None

    def place(copy_point: CopyPoint | CopyEnded) -> int | None:
        number = copy_point.copy if axis == "copy" else copy_point.cpu
        return None if number is None else places.get(number)

    dots = tuple(
        Dot(**asdict(point), place=place(point) or 0, iteration=cell.iteration)
        for cell in cells
        for point in cell.points
        if median_s
    )
    low_s, high_s = _limits(dots, median_s or 1.0)
    shown = {cell.iteration for cell in cells}
    failed: dict[tuple[int | None, int, int], CopyEnded] = {}
    for cell in cells:
        for copy_ended in cell.failed:
            failed.setdefault((place(copy_ended), copy_ended.copy, cell.iteration), copy_ended)
    return Panel(
        benchmark=name,
        tune=tune,
        title=sanitize(title),
        median_s=median_s,
        dots=dots,
        failed=tuple(
            (failed_place, copy_ended)
            for (failed_place, _, _), copy_ended in failed.items()
            if failed_place is not None
        ),
        low_s=low_s,
        high_s=high_s,
        labels=tuple(
            label
            for label in labels
            if label.benchmark in (None, name)
            and label.tune in (None, tune)
            and (not label.iterations or shown.intersection(label.iterations))
        ),
        by_cpu=axis == "CPU",
    )


def _limits(dots: Sequence[Dot], median_s: float) -> tuple[float, float]:
    """Return the ends of the axis in seconds, which a few copies far away do not stretch."""
    least_span = _LEAST_SPAN * median_s
    if not dots:
        return median_s - least_span / 2, median_s + least_span / 2
    near = [dot for dot in dots if 1 / _FAR <= dot.elapsed_s / median_s <= _FAR]
    if len(dots) - len(near) > max(1, _FEW * len(dots)):
        near = list(dots)
    # The range of a copy's runs may go out of the picture, its median may not.
    low = min(max(dot.fastest_s, dot.elapsed_s / _FAR) for dot in near)
    high = max(min(dot.slowest_s, dot.elapsed_s * _FAR) for dot in near)
    lacking = least_span - (high - low)
    if lacking > 0:
        low, high = low - lacking / 2, high + lacking / 2
    pad = _PAD * (high - low)
    return max(0.0, low - pad), high + pad


def _homes(head: RunHead, cells: Iterable[Cell]) -> tuple[str, dict[int, int | None]]:
    """Return what the places are, copies or CPUs, and the NUMA node of each, by its number.

    CPUs where copies were on other ones from one iteration to the next: what is slow about
    a CPU stays in one place then.
    """
    copies: dict[int, int | None] = dict.fromkeys(range(head.copies))
    cpus: dict[int, int | None] = {}
    last_cpus: dict[int, int | None] = {}
    moved = unknown = shared = False
    for cell in cells:
        cpus_of_cell: set[int | None] = set()
        all_rows: tuple[CopyPoint | CopyEnded, ...] = (*cell.points, *cell.failed)
        for copy_row in all_rows:
            copies[copy_row.copy] = copy_row.node
            moved |= last_cpus.setdefault(copy_row.copy, copy_row.cpu) != copy_row.cpu
            unknown |= copy_row.cpu is None
            if copy_row.cpu is not None:
                cpus[copy_row.cpu] = copy_row.node
        for point in cell.points:
            shared |= point.cpu in cpus_of_cell
            cpus_of_cell.add(point.cpu)
    if not moved:
        return "copy", copies
    if unknown or shared:
        return "copy", dict.fromkeys(copies)
    return "CPU", cpus


def unknown_last(number: int | None) -> tuple[bool, int]:
    """Return by what numbers are sorted, those that are not known last."""
    return number is None, number or 0


def _groups(nodes: Sequence[int | None]) -> tuple[NodeSpan, ...]:
    groups: list[NodeSpan] = []
    first = 0
    for node, members in groupby(nodes):
        size = len(list(members))
        groups.append(NodeSpan(node, first, size))
        first += size
    return tuple(groups)


def _title(head: RunHead) -> str:
    host = f" on {head.hostname}" if head.hostname else ""
    mode = "" if head.mode == "homogeneous" else f", {head.mode}"
    return f"time of each copy, run {head.run}{host}{mode}, {copies_text(head.copies)}"
