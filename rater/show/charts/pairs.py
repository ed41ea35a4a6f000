"""Two runs in one picture: each copy before and after, by its CPU or its number; pure.

The picture of Figure 3 of the SPECrate2006 paper: copies of the first run grey, those of the second
one black, over one axis of places. Beside it what changed: benchmark by benchmark, node by node.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.stats.robust import MAD_TO_SD
from rater.record.stored import RunHead
from rater.show.charts.measured import (
    TIME,
    DrawnMeasure,
    MeasuredCell,
    MeasuredPoint,
    number_text,
)
from rater.show.charts.panels import (
    dot_kinds,
    drawn_number,
    group_values,
    panel_values,
    with_iterations,
)
from rater.show.charts.picture import Label, Picture, picture_of_places
from rater.show.charts.vega import Chart, PlacedChart, sheet_svg
from rater.show.screen.document import CHANGE, TEXT, Field, Part, ViewTable
from rater.show.screen.format import format_number, sanitize
from rater.system.errors import InputError
from rater.text.cpuset import copy_numbers_text, cpus_text
from rater.text.values import copies_text, group_by_key, signed_percent, to_json

_BEFORE, _AFTER = 1, 2  # the iterations that the two runs stand for in the picture
_ALIKE = 0.5  # of the smaller set of CPUs, from which runs are aligned by CPU
_LEAST_CHANGE = 0.01  # of a node against all of them
_SURE = 3.0  # standard deviations of the nodes among themselves
_LEAST_NODES = 3
_PANEL_WIDTH, _PANEL_HEIGHT = 260.0, 180.0
_COLUMNS, _MANY_PANELS = (3, 6), 12  # a sheet of 58 benchmarks stays about as high as wide

type _Key = tuple[str, str | None]  # benchmark and tune


class PairedRun(Struct, frozen=True, kw_only=True):
    """One of the two runs: its copies, and the names of its slow parts."""

    head: RunHead
    cells: Sequence[MeasuredCell]
    labels: Sequence[Label]

    @property
    def name(self) -> str:
        """Its name in the picture."""
        return f"run {self.head.run}"


class PlaceValues(Struct, frozen=True, kw_only=True):
    """One place in both runs: the medians of its copies over the iterations that count."""

    name: int  # of the CPU or the copy
    node: int | None  # None: not known, or not the same in both runs
    before: float
    after: float

    @property
    def change(self) -> float:
        """By what share its value became larger: its time, slower."""
        return self.after / self.before - 1


class NodeChange(Struct, frozen=True):
    """How the copies of one NUMA node changed."""

    node: int
    change: float  # median over its places, a share
    stands_out: bool  # beyond what the nodes differ in among themselves


class BenchmarkPair(Struct, frozen=True, kw_only=True):
    """One benchmark in both runs."""

    benchmark: str
    tune: str | None
    places: tuple[PlaceValues, ...]

    @property
    def key(self) -> _Key:
        """Its name and its tune."""
        return self.benchmark, self.tune

    @property
    def name(self) -> str:
        """Its name with its tune, as one."""
        return _key_name(self.key)

    @property
    def has_order(self) -> bool:
        """Whether its copies have an order: one alone has none."""
        return len(self.places) > 1

    @property
    def median_change(self) -> float:
        """Change of the median copy."""
        return self._change(statistics.median)

    def end_change(self, *, highest: bool) -> float:
        """Return the change of the copy at one end; a rate waits for the highest time."""
        return self._change(max if highest else min)

    def _change(self, summary: Any) -> float:
        before = summary([place.before for place in self.places])
        return float(summary([place.after for place in self.places]) / before - 1)

    def nodes(self) -> tuple[NodeChange, ...]:
        """Return what became of each NUMA node; () where one alone is known."""
        by_node = group_by_key(
            (place.node, math.log(place.after) - math.log(place.before))
            for place in self.places
            if place.node is not None
        )
        if len(by_node) < 2:
            return ()
        logs = {node: statistics.median(values) for node, values in sorted(by_node.items())}
        middle = statistics.median(logs.values())
        spread = MAD_TO_SD * statistics.median(abs(value - middle) for value in logs.values())
        least = max(math.log1p(_LEAST_CHANGE), _SURE * spread)
        return tuple(
            NodeChange(
                node,
                math.expm1(value),
                len(logs) >= _LEAST_NODES and abs(value - middle) > least,
            )
            for node, value in logs.items()
        )


class RunPair(Struct, frozen=True, kw_only=True):
    """Two runs over one axis of places."""

    runs: tuple[int, int]
    measure: DrawnMeasure
    axis: str  # "CPU" or "copy"
    picture: Picture
    benchmarks: tuple[BenchmarkPair, ...]  # those of both runs, the largest change first
    left_out: tuple[str, ...]  # benchmarks that one of them has alone
    unmatched: tuple[str, ...]  # benchmarks of both without a place that both have a value of
    alone: tuple[tuple[int, ...], tuple[int, ...]]  # places that one of them has a value of alone


def pair_runs(
    before: PairedRun,
    after: PairedRun,
    benchmark: str | None = None,
    measure: DrawnMeasure = TIME,
) -> RunPair:
    """Return two runs over one axis: CPUs where both have them, else as many copies by number.

    `benchmark` is the one to show, None for all; `measure` what their cells have. Raises
    `InputError` for runs that have neither in common, and for those without a common benchmark.
    """
    axis = _axis(before, after)
    sides = [_medians(run, axis) for run in (before, after)]
    keys = [key for key in sides[0] if key in sides[1] and benchmark in (None, key[0])]
    if not keys:
        lacking = (
            "no benchmark in common"
            if benchmark is None
            else f"not both {benchmark}, or not in the same tune"
        )
        raise InputError(f"{before.name} and {after.name} have {lacking}")
    pairs = [
        BenchmarkPair(
            benchmark=key[0],
            tune=key[1],
            places=tuple(_places(sides[0][key], sides[1][key])),
        )
        for key in keys
    ]
    shown = sorted(
        (pair for pair in pairs if pair.places), key=lambda pair: -_largest_change(pair, measure)
    )
    if not shown:
        names = f"{before.name} and {after.name}"
        known = "" if measure.is_time else f" with {measure.name} above 0"
        raise InputError(f"{names} have no {axis} in common whose copies ended well{known}")
    first, second = ({name for pair in shown for name in side[pair.key]} for side in sides)
    return RunPair(
        runs=(before.head.run, after.head.run),
        measure=measure,
        axis=axis,
        picture=_picture(before, after, [pair.key for pair in shown], axis, measure),
        benchmarks=tuple(shown),
        left_out=() if benchmark else _key_names(sides[0].keys() ^ sides[1].keys()),
        unmatched=_key_names(pair.key for pair in pairs if not pair.places),
        alone=(tuple(sorted(first - second)), tuple(sorted(second - first))),
    )


def _key_name(key: _Key) -> str:
    benchmark, tune = key
    return f"{benchmark} {tune}" if tune else benchmark


def _key_names(keys: Iterable[_Key]) -> tuple[str, ...]:
    return tuple(sorted(map(_key_name, keys)))


def _largest_change(pair: BenchmarkPair, measure: DrawnMeasure) -> float:
    worst_change = pair.end_change(highest=measure.highest_is_worst)
    return max(abs(pair.median_change), abs(worst_change))


def _axis(before: PairedRun, after: PairedRun) -> str:
    cpus = [_bound_cpus(run) for run in (before, after)]
    if all(cpus) and len(cpus[0] & cpus[1]) >= _ALIKE * min(map(len, cpus)):
        return "CPU"
    if before.head.copies == after.head.copies:
        return "copy"
    raise InputError(
        f"{before.name} and {after.name} cannot be laid over each other: they have neither the "
        f"same CPUs nor the same number of copies ({before.head.copies} and {after.head.copies})"
    )


def _bound_cpus(run: PairedRun) -> set[int]:
    """Return the CPUs of a run's copies; empty where one has none, or several share one."""
    bound: set[int] = set()
    for cell in run.cells:
        cpu_by_copy = {failed.copy: failed.cpu for failed in cell.failed}
        cpu_by_copy |= {point.copy: point.cpu for point in cell.not_known}
        cpu_by_copy |= {point.copy: point.cpu for point in cell.points}
        cpus = [*cpu_by_copy.values()]
        if None in cpus or len(set(cpus)) < len(cpus):
            return set()
        bound.update(cpu for cpu in cpus if cpu is not None)
    return bound


type _PlacePoints = dict[int, MeasuredPoint]  # by the name of the place


def _medians(run: PairedRun, axis: str) -> dict[_Key, _PlacePoints]:
    """Return by benchmark and place a point with the median value of iterations that count.

    Values that are not above 0 are left out: no other is a share of them.
    """
    medians = {}
    for key, cells in group_by_key((cell.key, cell) for cell in _counted(run)).items():
        by_place = group_by_key(
            (point.cpu if axis == "CPU" else point.copy, point)
            for cell in cells
            for point in cell.points
            if point.value > 0
        )
        medians[key] = {
            name: _with_value(points[-1], statistics.median(point.value for point in points))
            for name, points in by_place.items()
            if name is not None
        }
    return medians


def _counted(run: PairedRun) -> Sequence[MeasuredCell]:
    """Return the cells of the iterations that count; all where none does."""
    return [cell for cell in run.cells if cell.counted] or run.cells


def _with_value(point: MeasuredPoint, value: float) -> MeasuredPoint:
    return replace(point, value=value, lowest=value, highest=value)


def _places(before: _PlacePoints, after: _PlacePoints) -> Iterator[PlaceValues]:
    for name in sorted(before.keys() & after.keys()):
        first, second = before[name], after[name]
        yield PlaceValues(
            name=name,
            node=second.node if second.node == first.node else None,
            before=first.value,
            after=second.value,
        )


def _picture(
    before: PairedRun, after: PairedRun, keys: Sequence[_Key], axis: str, measure: DrawnMeasure
) -> Picture:
    """Return the dots of both runs, as if they were two iterations of one."""
    cells: list[MeasuredCell] = []
    labels: list[Label] = []
    for run, iteration in ((before, _BEFORE), (after, _AFTER)):
        medians = _medians(run, axis)
        cells += [_cell_of_run(run, key, iteration, medians[key]) for key in keys]
        # Dots are medians over a run's iterations: what is of one of them says which.
        counted = {cell.iteration for cell in _counted(run)}
        labels += [
            replace(
                label,
                iterations=(iteration,),
                text=f"{run.name}: {with_iterations(label, counted)}",
            )
            for label in run.labels
        ]
    order = {key: place for place, key in enumerate(keys)}
    cells.sort(key=lambda cell: (order[cell.key], cell.iteration))
    return picture_of_places(
        sanitize(f"{measure.caption}, {_run_words(before.head, after.head)}"),
        cells,
        labels,
        measure=measure,
        axis=axis,
        series=(before.name, after.name),
    )


def _cell_of_run(run: PairedRun, key: _Key, iteration: int, points: _PlacePoints) -> MeasuredCell:
    """Return all iterations of a benchmark as one: medians, and what failed in any of them."""
    cells = [cell for cell in _counted(run) if cell.key == key]
    copies = {point.copy for point in points.values()}
    return MeasuredCell(
        benchmark=key[0],
        tune=key[1],
        iteration=iteration,
        counted=True,
        points=tuple(points.values()),
        not_known=tuple(
            point for cell in cells for point in cell.not_known if point.copy not in copies
        ),
        failed=tuple(
            replace(ended, iteration=iteration) for cell in cells for ended in cell.failed
        ),
    )


def _run_words(before: RunHead, after: RunHead) -> str:
    """Return two runs in words: their hosts and copies, once where they are the same."""
    hosts = [f" on {head.hostname}" if head.hostname else "" for head in (before, after)]
    first = "" if hosts[0] == hosts[1] else hosts[0]
    copies = copies_text(after.copies)
    if before.copies != after.copies:
        copies = f"{before.copies} and {copies}"
    return f"run {before.run}{first} and run {after.run}{hosts[1]}, {copies}"


# -- What changed, as a table and as JSON ----------------------------------------------------------


def pair_parts(pair: RunPair) -> Iterator[Part]:
    """Yield the benchmarks by their change, the largest first, and the node that changed most."""
    names = [f"run {number}" for number in pair.runs]

    def node(row: BenchmarkPair) -> str | None:
        out = [change for change in row.nodes() if change.stands_out]
        most = max(out, key=lambda change: abs(change.change), default=None)
        return f"node {most.node}: {signed_percent(most.change)} %" if most else None

    measure = pair.measure

    def median(row: BenchmarkPair, name: str) -> str:
        value = statistics.median(getattr(place, name) for place in row.places)
        return format_number(value) if measure.unit == "s" else number_text(value)

    def worst_change(row: BenchmarkPair) -> float:
        return row.end_change(highest=measure.highest_is_worst)

    unit = f"median {measure.unit}".strip()
    fields = (
        Field(heading="benchmark", value=lambda row: row.name, form=TEXT, flexible=True),
        Field(heading=(names[0], unit), value=lambda row: median(row, "before")),
        Field(heading=(names[1], unit), value=lambda row: median(row, "after")),
        Field(heading="median|copy %", value=lambda row: row.median_change, form=CHANGE),
        Field(heading=f"{measure.worst}|copy %", value=worst_change, form=CHANGE),
        Field(heading="changed otherwise", value=node, form=TEXT),
    )
    yield ViewTable(title="", rows=pair.benchmarks, fields=fields)
    if pair.left_out:
        yield f"in one of the runs alone: {', '.join(pair.left_out)}"
    if pair.unmatched:
        yield f"no {pair.axis} whose copies ended well in both: {', '.join(pair.unmatched)}"
    for number, places in zip(pair.runs, pair.alone, strict=True):
        if places:
            name = copy_numbers_text(places) if pair.axis == "copy" else cpus_text(places)
            yield f"drawn of run {number} alone: {name}"


def pair_document(pair: RunPair, file: str | None) -> dict[str, object]:
    """Return the JSON document of `rater show plot A B --json`."""
    measure = pair.measure
    unit = "_s" if measure.is_time else ""
    return {
        "runs": list(pair.runs),
        "file": file,
        "measure": None
        if measure.is_time
        else {"name": measure.name, "unit": measure.unit, "better": measure.better},
        "axis": pair.axis,
        "left_out": list(pair.left_out),
        "unmatched": list(pair.unmatched),
        "alone": [list(places) for places in pair.alone],
        "benchmarks": [
            {
                "benchmark": row.benchmark,
                "tune": row.tune,
                "median_change": row.median_change,
                f"{measure.worst}_change": row.end_change(highest=measure.highest_is_worst),
                "nodes": to_json(list(row.nodes())),
                "places": [
                    {
                        pair.axis.lower(): place.name,
                        "node": place.node,
                        f"before{unit}": place.before,
                        f"after{unit}": place.after,
                    }
                    for place in row.places
                ],
            }
            for row in pair.benchmarks
        ],
    }


def changed_places(rows: Sequence[BenchmarkPair]) -> dict[str, Any]:
    """Return how CPUs and NUMA nodes changed, as `slowdowns` has them: medians over benchmarks."""
    places = [place for row in rows for place in row.places]
    cpus = group_by_key((place.name, place.change) for place in places)
    nodes = group_by_key((place.node, place.change) for place in places if place.node is not None)
    cpu_medians, node_medians = (
        {name: round(1 + statistics.median(changes), 6) for name, changes in sorted(of.items())}
        for of in (cpus, nodes)
    )
    return {"cpus": cpu_medians, "nodes": node_medians, "failed": []}


# -- Every copy after over before, and all copies in the order of their times ----------------------


def pair_charts(pair: RunPair, most: int) -> dict[str, Any]:
    """Return what a page draws of two runs: a panel for each benchmark in each of three rooms.

    `most`: of how many benchmarks, those that changed most.
    """
    picture, rows = pair.picture, pair.benchmarks[:most]
    return {
        "runs": list(pair.runs),
        "axis": pair.axis,
        "places": len(picture.names),
        "groups": group_values(picture),
        "shades": [picture.shade(iteration) for iteration in picture.iterations],
        "panels": [
            panel_values(panel, dot_kinds(panel), repeated=False) for panel in picture.panels[:most]
        ],
        "scatter": [{**_scatter(row, pair), "title": sanitize(row.name)} for row in rows],
        "ranks": [
            {**_ranks(row, pair), "title": sanitize(row.name)} for row in rows if row.has_order
        ],
        "maps": [changed_places(pair.benchmarks), *(changed_places([row]) for row in rows)]
        if pair.axis == "CPU"
        else [],
    }


def scatter_svg(pair: RunPair) -> str:
    """Return a panel for each benchmark: a dot for each place, before across and after up."""
    measure = pair.measure
    of_what = "" if measure.is_time else f"{measure.quantity}{measure.direction}; "
    return _sheet(pair, f"{of_what}each copy, after over before", _scatter)


def ranks_svg(pair: RunPair) -> str:
    """Return a panel for each benchmark: copies in the order of their times, a curve for a run."""
    measure = pair.measure
    order = "times" if measure.is_time else f"{measure.quantity}{measure.direction}"
    return _sheet(pair, f"copies in the order of their {order}", _ranks)


def _sheet(pair: RunPair, title: str, chart_of: Any) -> str:
    names = " and ".join(f"run {number}" for number in pair.runs)
    figures = [
        PlacedChart(
            kind="model",
            chart=chart_of(row, pair),
            width=_PANEL_WIDTH,
            height=_PANEL_HEIGHT,
            above=46,  # the words of the axis above it, and its title
        )
        for row in pair.benchmarks
    ]
    columns = min(len(figures), _COLUMNS[len(figures) > _MANY_PANELS])
    return sheet_svg(f"{title}, {names}", figures, columns=columns)


def _ends(row: BenchmarkPair) -> tuple[float, float]:
    values = [value for place in row.places for value in (place.before, place.after)]
    low, high = min(values), max(values)
    pad = 0.05 * (high - low or high)
    return low - pad, high + pad


def _scatter(row: BenchmarkPair, pair: RunPair) -> Chart:
    low, high = _ends(row)
    line = {"line": 0, "colour": "var(--median)", "width": 1, "dash": [4, 3]}
    unit = sanitize(f", {pair.measure.unit}") if pair.measure.unit else ""
    return {
        "signals": {
            "title": sanitize(row.name),
            **{"bottom": low, "first": low, "top": high, "last": high},
            "xname": f"run {pair.runs[0]}{unit}; up: run {pair.runs[1]}{unit}",
        },
        "data": {
            "points": [{"x": end, "y": end} | line for end in (low, high)],
            "dots": [
                {"x": drawn_number(place.before), "name": place.name, "node": place.node}
                | dict.fromkeys(("y", "low", "high"), drawn_number(place.after))
                for place in row.places
            ],
        },
    }


def _ranks(row: BenchmarkPair, pair: RunPair) -> Chart:
    low, high = _ends(row)
    points: list[Mapping[str, Any]] = []
    names = []
    measure = pair.measure
    unit = sanitize(measure.unit or measure.name)
    colours = ("var(--dot3)", "var(--dot0)")
    for line, (attribute, colour) in enumerate(zip(("before", "after"), colours, strict=True)):
        values = sorted(getattr(place, attribute) for place in row.places)
        steps = max(1, len(values) - 1)
        style = {"line": line, "colour": colour, "width": 2, "dash": [1, 0]}
        points += [
            {"x": 100 * rank / steps, "y": drawn_number(value)} | style
            for rank, value in enumerate(values)
        ]
        names.append({"y": values[-1], "text": f"run {pair.runs[line]}", "colour": colour})
    if abs(names[0]["y"] - names[1]["y"]) < 0.07 * (high - low):
        names[0]["y"] = names[1]["y"] - 0.07 * (high - low)
    return {
        "signals": {
            "title": sanitize(row.name),
            **{"bottom": low, "top": high, "first": 0.0, "last": 100.0},
            "xname": f"per cent of the copies, the {measure.ends[0]} first; up: {unit}",
        },
        "data": {"points": points, "names": names, "dots": []},
    }
