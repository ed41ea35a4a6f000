"""What a picture of the copies' times consists of, before it is drawn anywhere; pure.

The picture is that of the SPECrate2006 paper's Figures 1-3: a copy is a place on the
horizontal axis, by NUMA node, and its time, or another measure, a dot above it. `panels` draws it
into a file, `terminal` with the signs of a terminal, and a page of `rater report` in a browser.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from rater.analysis.results.copies import CopyPoint
from rater.record.events import CopyEnded
from rater.record.stored import RunHead
from rater.show.charts.measured import TIME, DrawnMeasure, MeasuredCell, MeasuredPoint
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


class Dot(MeasuredPoint, frozen=True, kw_only=True):
    """One copy in one iteration."""

    place: int  # on the horizontal axis
    iteration: int


class NotMeasured(Struct, frozen=True):
    """A copy that ran well and has no value of what is drawn."""

    place: int | None
    copy: int
    iteration: int


class Panel(Struct, frozen=True, kw_only=True):
    """One benchmark: its dots, and the part of the axis that tells their story.

    Dots outside `low` to `high` are drawn at the edge, with their value next to them.
    """

    benchmark: str
    tune: str | None
    title: str  # with the tune where the run has several
    measure: DrawnMeasure
    median: float | None  # of the dots; None: there is none
    dots: tuple[Dot, ...]
    failed: tuple[tuple[int, CopyEnded], ...]  # with their places; once in an iteration
    not_known: tuple[NotMeasured, ...]
    low: float
    high: float
    labels: tuple[Label, ...]
    by_cpu: bool = False  # the places are CPUs
    series: tuple[str, ...] = ()  # names of what its iterations stand for, where they are none

    def extent(self) -> tuple[float, float] | None:
        """Return the least and the largest value that is drawn on the axis."""
        inside = [dot for dot in self.dots if self.low <= dot.value <= self.high]
        if not inside:
            return None
        return (
            min(max(dot.lowest, self.low) for dot in inside),
            max(min(dot.highest, self.high) for dot in inside),
        )

    def outside(self, *, above: bool) -> tuple[Dot, ...]:
        """Return those beyond one of its ends: the farthest of each copy, the farthest first."""
        sign = 1 if above else -1
        edge = sign * (self.high if above else self.low)
        beyond = [dot for dot in self.dots if sign * dot.value > edge]
        beyond.sort(key=lambda dot: (-sign * dot.value, dot.copy))
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
    measure: DrawnMeasure
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
    cells: Sequence[MeasuredCell],
    labels: Iterable[Label] = (),
    *,
    measure: DrawnMeasure = TIME,
    benchmark: str | None = None,
    iteration: int | None = None,
    ranges: bool = True,
) -> Picture:
    """Return the picture of a run's cells, or of one benchmark or iteration of them.

    Discarded iterations are left out where others are there, unless one is asked for.
    `ranges`: with room on the axis for all runs of copies that ran several times. `measure`: what
    the cells have; `labels` are of times.
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
    frame = _Frame(
        measure=measure,
        labels=_named_for(measure, labels),
        axis=axis,
        places={name: place for place, name in enumerate(names)},
    )
    return Picture(
        title=sanitize(_title(head, measure)),
        measure=measure,
        axis=axis,
        names=tuple(names),
        groups=_groups([homes[name] for name in names]) if nodes_are_known else (),
        iterations=tuple(sorted({cell.iteration for cell in chosen})),
        repeated=any(cell.repeated for cell in chosen),
        panels=_panels(chosen, frame),
    )


def picture_of_places(
    title: str,
    cells: Sequence[MeasuredCell],
    labels: Iterable[Label],
    *,
    measure: DrawnMeasure,
    axis: str,
    series: tuple[str, ...],
) -> Picture:
    """Return the picture of cells over CPUs or copies, whose iterations 1, 2 are `series`."""
    homes: dict[int, int | None] = {}
    for cell in cells:
        all_rows: tuple[CopyPoint | MeasuredPoint | CopyEnded, ...]
        all_rows = (*cell.points, *cell.not_known, *cell.failed)
        for copy_row in all_rows:
            name = copy_row.cpu if axis == "CPU" else copy_row.copy
            if name is not None:
                # A copy that the two runs had on different nodes has none that is true of both.
                is_same = homes.setdefault(name, copy_row.node) == copy_row.node
                homes[name] = copy_row.node if is_same else None
    names = sorted(homes, key=lambda name: (*unknown_last(homes[name]), name))
    nodes_are_known = any(node is not None for node in homes.values())
    frame = _Frame(
        measure=measure,
        labels=_named_for(measure, labels),
        axis=axis,
        places={name: place for place, name in enumerate(names)},
    )
    return Picture(
        title=title,
        measure=measure,
        axis=axis,
        names=tuple(names),
        groups=_groups([homes[name] for name in names]) if nodes_are_known else (),
        iterations=tuple(range(1, len(series) + 1)),
        repeated=False,
        panels=tuple(replace(panel, series=series) for panel in _panels(cells, frame)),
        series=series,
    )


def picture_document(picture: Picture, head: RunHead, file: str | None) -> dict[str, Any]:
    """Return the JSON document of `rater show plot --json`; `file` is where it was drawn, if so."""
    measure = picture.measure
    document: dict[str, Any] = {
        "run": head.run,
        "file": file,
        "measure": None if measure.is_time else measure,
        "axis": picture.axis,
        "places": picture.names,
        "lgroups": picture.groups,
        "benchmarks": picture.panels,
    }
    table = _TIMES if measure.is_time else _VALUES
    return {key: to_json(value, table) for key, value in document.items()}


_PANEL = (
    {
        "failed": lambda panel: objects(
            "copy iteration", ((one.copy, one.iteration) for _, one in panel.failed)
        ),
        "not_known": lambda panel: objects(
            "copy iteration", ((lacking.copy, lacking.iteration) for lacking in panel.not_known)
        ),
    },
    "labels",
)
_TIMES = {
    Panel: JsonFields(
        "benchmark tune median_s=median",
        {"axis_s": lambda panel: (panel.low, panel.high) if panel.median else None},
        "dots",
        *_PANEL,
    ),
    Dot: JsonFields("copy cpu iteration elapsed_s=value fastest_s=lowest slowest_s=highest"),
}
_VALUES = {
    DrawnMeasure: JsonFields("name unit better"),
    Panel: JsonFields(
        "benchmark tune median",
        {"axis_ends": lambda panel: (panel.low, panel.high) if panel.dots else None},
        "dots",
        *_PANEL,
    ),
    Dot: JsonFields("copy cpu iteration value lowest highest"),
}


def _median_runs(cell: MeasuredCell) -> MeasuredCell:
    points = (replace(point, lowest=point.value, highest=point.value) for point in cell.points)
    return replace(cell, points=tuple(points))


class _Frame(Struct, frozen=True, kw_only=True):
    """What all panels of a picture share."""

    measure: DrawnMeasure
    labels: tuple[Label, ...]
    axis: str  # "copy" or "CPU"
    places: Mapping[int, int]  # by the names along the axis

    def place(self, copy_row: CopyPoint | MeasuredPoint | CopyEnded) -> int | None:
        """Return where a copy stands; None: its CPU is not known."""
        number = copy_row.copy if self.axis == "copy" else copy_row.cpu
        return None if number is None else self.places.get(number)


def _named_for(measure: DrawnMeasure, labels: Iterable[Label]) -> tuple[Label, ...]:
    """Return the names of slow parts; beside another measure they say that they are of times."""
    if measure.is_time:
        return tuple(labels)
    return tuple(replace(label, text=f"{label.text} (time)") for label in labels)


def _panels(cells: Sequence[MeasuredCell], frame: _Frame) -> tuple[Panel, ...]:
    """Return a panel for each benchmark, and for each tune of it where there are several."""
    several = len({cell.tune for cell in cells}) > 1
    return tuple(
        _panel(f"{name} {tune}" if several and tune else name, members, frame)
        for (name, tune), members in group_by_key((cell.key, cell) for cell in cells).items()
    )


def _panel(title: str, cells: Sequence[MeasuredCell], frame: _Frame) -> Panel:
    name, tune = cells[0].key
    values = [point.value for cell in cells for point in cell.points]
    median = statistics.median(values) if values else None
    dots = tuple(
        Dot(**asdict(point), place=frame.place(point) or 0, iteration=cell.iteration)
        for cell in cells
        for point in cell.points
    )
    low, high = _limits(dots, 1.0 if median is None else median)
    shown = {cell.iteration for cell in cells}
    failed: dict[tuple[int | None, int, int], CopyEnded] = {}
    for cell in cells:
        for copy_ended in cell.failed:
            key = (frame.place(copy_ended), copy_ended.copy, cell.iteration)
            failed.setdefault(key, copy_ended)
    return Panel(
        benchmark=name,
        tune=tune,
        title=sanitize(title),
        measure=frame.measure,
        median=median,
        dots=dots,
        failed=tuple(
            (failed_place, copy_ended)
            for (failed_place, _, _), copy_ended in failed.items()
            if failed_place is not None
        ),
        not_known=tuple(
            NotMeasured(frame.place(point), point.copy, cell.iteration)
            for cell in cells
            for point in cell.not_known
        ),
        low=low,
        high=high,
        labels=tuple(
            label
            for label in frame.labels
            if label.benchmark in (None, name)
            and label.tune in (None, tune)
            and (not label.iterations or shown.intersection(label.iterations))
        ),
        by_cpu=frame.axis == "CPU",
    )


def _limits(dots: Sequence[Dot], median: float) -> tuple[float, float]:
    """Return the ends of the axis, which a few copies far away do not stretch."""
    least_span = _LEAST_SPAN * (abs(median) or 1.0)
    low, high = _span(dots, median) if dots else (median, median)
    lacking = least_span - (high - low)
    if lacking > 0:
        low, high = low - lacking / 2, high + lacking / 2
    pad = _PAD * (high - low) if dots else 0.0
    floor = 0.0 if all(dot.lowest >= 0 for dot in dots) else -math.inf
    return max(floor, low - pad), high + pad


def _span(dots: Sequence[Dot], median: float) -> tuple[float, float]:
    """Return the least and the largest value that the axis has room for.

    Of values that are not all above 0 none is so many times another: it has room for all.
    """
    if any(dot.lowest <= 0 for dot in dots):
        return min(dot.lowest for dot in dots), max(dot.highest for dot in dots)
    near = [dot for dot in dots if 1 / _FAR <= dot.value / median <= _FAR]
    if len(dots) - len(near) > max(1, _FEW * len(dots)):
        near = list(dots)
    # The range of a copy's runs may go out of the picture, its median may not.
    return (
        min(max(dot.lowest, dot.value / _FAR) for dot in near),
        max(min(dot.highest, dot.value * _FAR) for dot in near),
    )


def _homes(head: RunHead, cells: Iterable[MeasuredCell]) -> tuple[str, dict[int, int | None]]:
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
        ran_well: tuple[CopyPoint | MeasuredPoint, ...] = (*cell.points, *cell.not_known)
        all_rows: tuple[CopyPoint | MeasuredPoint | CopyEnded, ...] = (*ran_well, *cell.failed)
        for copy_row in all_rows:
            copies[copy_row.copy] = copy_row.node
            moved |= last_cpus.setdefault(copy_row.copy, copy_row.cpu) != copy_row.cpu
            unknown |= copy_row.cpu is None
            if copy_row.cpu is not None:
                cpus[copy_row.cpu] = copy_row.node
        for point in ran_well:
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


def _title(head: RunHead, measure: DrawnMeasure) -> str:
    host = f" on {head.hostname}" if head.hostname else ""
    mode = "" if head.mode == "homogeneous" else f", {head.mode}"
    return f"{measure.caption}, run {head.run}{host}{mode}, {copies_text(head.copies)}"
