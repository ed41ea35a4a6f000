"""Copies of a run: beside each other, where they ran, every run, what they report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rater.analysis.results.copies import CellTimes, RatioPair, TimeStatistics, slowest_points
from rater.analysis.results.metrics import MetricResult
from rater.analysis.results.placement import (
    BenchmarkProof,
    CopyProof,
    CopySamples,
    PlacementVerdict,
    RunProof,
)
from rater.record.events import WorkloadTime
from rater.record.run import CopyStatus, Validity
from rater.record.stored import RunHead, StoredCopy, StoredRun
from rater.show.console import Column, Columns, Printer, names_with_tunes, seconds_columns
from rater.show.format import (
    crop,
    format_duration,
    format_number,
    format_together,
    needed_decimals,
    or_dash,
    place_texts,
)
from rater.text.cpuset import format_list
from rater.text.values import Json, JsonFields, copies_text, count, percent, to_json

# -- Where copies ran and their memory lay: verdicts in sentences, memory as a table, all as JSON --

_MOST_COPIES = 10  # named one by one


def as_planned(proof: RunProof) -> bool:
    """Tell whether every copy is known to have been where it was planned."""
    return not proof.of(PlacementVerdict.NOT_MET) and not proof.not_known()


def print_placement(proof: RunProof, printer: Printer, *, every: bool = False) -> None:
    """Say which copies met their plan.

    Nothing is said of a run without placed copies. What was not met comes first,
    copy by copy (all of them with `every`); what is not known is put together by
    its reason.
    """
    if every and not proof.copies:
        printer.prose("placement was not looked at (--proof off, or a run of another tool)")
    if not any(one.planned for one in proof.copies):
        return
    if as_planned(proof):
        printer.prose(f"placement as planned: {_runs(proof.copies)}")
        return
    broken, unknown = proof.of(PlacementVerdict.NOT_MET), proof.not_known()
    doubtful = sum(len(group) for group in unknown.values())
    met = len(proof.copies) - len(broken) - doubtful
    parts = [f"met {met}"]
    parts += [f"not met {len(broken)}"] if broken else []
    parts += [f"not known {doubtful}"] if doubtful else []
    text = f"placement of {_runs(proof.copies)}: {', '.join(parts)}"
    if any(one.counted for one in broken):
        text += "; the results above include what was not met"
    printer.prose(text, "bold red" if broken else "")
    named = broken if every else broken[:_MOST_COPIES]
    for one in named:
        printer.prose(f"not met: {_name(one)}: {'; '.join(one.reasons)}", "red")
    if len(broken) > len(named):
        printer.prose(f"and {len(broken) - len(named)} more not met; --proof names them all", "red")
    for reasons, group in unknown.items():
        numbers = format_list({one.copy for one in group})
        printer.prose(f"not known: {_runs(group)} ({numbers}): {'; '.join(reasons)}", "yellow")


def print_memory(proof: RunProof, printer: Printer) -> None:
    """Print the memory per benchmark and what looking cost; nothing where nobody looked."""
    rows = [benchmark for benchmark in proof.benchmarks if benchmark.sampled]
    if rows:
        of = Columns(rows)
        averages = [_mb(row.rss_average_bytes) for row in rows]
        highest = [_mb(row.rss_max_bytes) for row in rows]
        places = needed_decimals(averages + highest)
        sizes = sorted({size for row in rows for size, _ in row.page_shares})

        def pages(size: int) -> Column:
            shares = [dict(row.page_shares) for row in rows]
            cells = [percent(share.get(size, 0.0) if share else None, 0) for share in shares]
            return Column((_page(size), "pages %"), cells, optional=2)

        printer.table(
            [
                of.left("benchmark", lambda row: row.benchmark, flexible=True),
                of.right("seen|copies", lambda row: f"{row.sampled}/{row.copies}"),
                Column("resident|MB", [format_number(value, places) for value in averages]),
                Column("most|MB", [format_number(value, places) for value in highest]),
                *(pages(size) for size in sizes),
                of.percent("local|%", lambda row: row.local_share),
                of.percent("least|%", lambda row: row.least_local_share),
                of.right("moves|/copy", lambda row: format_number(row.migrations), optional=1),
            ]
        )
        printer.prose(
            "pages % and local %: of anonymous memory; local: on the lgroups planned, or at home; "
            "least: of one copy; moves: to another CPU"
        )
    swapped = max((one.seen.swap_bytes or 0 for one in proof.copies), default=0)
    if swapped:
        printer.prose(f"swapped out: up to {format_number(swapped / 1e6)} MB of a copy", "yellow")
    if proof.observed is not None:
        seen = proof.observed
        every = f", each copy every {format_duration(seen.interval_s)}" if seen.interval_s else ""
        printer.prose(
            f"{count(seen.samples, 'sample')} of running copies{every}: "
            f"{percent(seen.share, 2)} % of one CPU, {format_duration(seen.longest_read_s)} at "
            "most",
        )
        for text in seen.unknown:
            printer.prose(text, "yellow")


_PLACEMENT_TABLE = {
    BenchmarkProof: JsonFields("* page_shares{}"),
    CopySamples: JsonFields("* node_bytes{} page_bytes{}"),
}


def proof_document(proof: RunProof, *, every: bool = True) -> dict[str, Any]:
    """Return the JSON document: per benchmark and per copy run, sizes in bytes.

    Copy runs are all of them with `every`, else those whose plan was not met.
    """
    broken = proof.of(PlacementVerdict.NOT_MET)
    unknown = proof.not_known()
    document: dict[str, Any] = to_json(
        {
            "looked_at": bool(proof.copies),
            "met": len(proof.of(PlacementVerdict.MET)),
            "not_met": len(broken),
            "not_known": sum(len(group) for group in unknown.values()),
            "not_known_because": [
                {"reasons": reasons, "copies": {one.copy for one in group}}
                for reasons, group in unknown.items()
            ],
            "observed": proof.observed,
            "benchmarks": proof.benchmarks,
            "copies_listed": "all" if every else "not met",
            "copies": proof.copies if every else broken,
        },
        _PLACEMENT_TABLE,
    )
    return document


def _runs(proofs: Sequence[CopyProof]) -> str:
    """Return `8 copies`, or `24 copy runs` where copies ran several times."""
    several = len({one.copy for one in proofs}) < len(proofs)
    return count(len(proofs), "copy run") if several else copies_text(len(proofs))


def _name(proof: CopyProof) -> str:
    where = place_texts(proof.cpu, proof.node)
    placed = f" ({', '.join(where)})" if where else ""
    return f"copy {proof.copy} of {proof.benchmark}, iteration {proof.iteration}{placed}"


def _page(size: int) -> str:
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def _mb(size: float | None) -> float | None:
    return None if size is None else size / 1e6


# -- `rater show --copies`: how the copies of each benchmark lie beside each other -----------------

_LEAST_WORST = 10  # slowest copies that are listed whatever is dropped
_MOST_WORST = 40
_PLACES = 4  # decimals of normalised times, as in the paper


@dataclass(frozen=True, slots=True)
class CopiesView:
    """What `--copies` shows of a run."""

    head: RunHead
    baseline: RunHead  # whose medians are 1; the run's own head where none was named
    baseline_iteration: int | None  # None: over all its counted iterations
    drop: int
    times: tuple[CellTimes, ...]
    pairs: tuple[RatioPair, ...]  # empty without a baseline

    @property
    def worst_shown(self) -> int:
        """How many of the slowest copies are listed."""
        return min(max(_LEAST_WORST, self.drop), _MOST_WORST)


def print_copies(view: CopiesView, printer: Printer) -> None:
    """Print the ratios beside the baseline's, the copies' statistics, and the slowest copies."""
    if view.pairs:
        printer.line()
        _print_pairs(view, printer)
    printer.line()
    printer.prose(f"times of the copies over {_yardstick(view)}:", "bold")
    if not view.times:
        printer.line("no copy has ended")
        return
    printer.table(_shape_columns(view), ["" if t.cell.counted else "dim" for t in view.times])
    printer.prose("s.d.: of the sample (n - 1)" + (_dropped_words(view) if view.drop else ""))
    missing = list(dict.fromkeys(t.cell.benchmark for t in view.times if t.yardstick_s is None))
    if missing:
        alone = view.baseline_iteration is not None
        where = f"iteration {view.baseline_iteration} of " if alone else ""
        printer.prose(f"not in {where}run {view.baseline.run}: {', '.join(missing)}", "yellow")
    _print_worst(view, printer)


_COPIES_TABLE = {
    CellTimes: JsonFields(
        "cell.benchmark cell.tune cell.iteration cell.counted baseline_median_s=yardstick_s"
        " all=every kept",
        {
            "dropped": lambda one: [
                to_json(point) | {"normalised": one.normalised(point)} for point in one.dropped
            ],
            "failed_copies": lambda one: len({failed.copy for failed in one.cell.failed}),
        },
    ),
    RatioPair: JsonFields("* change"),
}
_PLACE = JsonFields("cell.benchmark cell.tune cell.iteration")


def copies_document(view: CopiesView) -> dict[str, Json]:
    """Return what `--copies` adds to the JSON of `rater show`: the key `copy_times`."""
    times = {
        "baseline": view.baseline.run,
        "baseline_iteration": view.baseline_iteration,
        "drop": view.drop,
        "cells": view.times,
        "slowest": [
            _PLACE.of(one) | to_json(point) | {"normalised": normalised}
            for one, point, normalised in slowest_points(view.times, view.worst_shown)
        ],
        "ratios": view.pairs,
    }
    return {"copy_times": to_json(times, _COPIES_TABLE)}


def _yardstick(view: CopiesView) -> str:
    own = view.baseline.run == view.head.run
    whose = "of this run" if own else f"of run {view.baseline.run}"
    if view.baseline_iteration is not None:
        whose = f"of iteration {view.baseline_iteration} {whose}"
    return f"the median copy {whose} (benchmark by benchmark)"


def _dropped_words(view: CopiesView) -> str:
    which = "slowest copy" if view.drop == 1 else f"{view.drop} slowest copies"
    return f"; last columns: without the {which}"


def _print_pairs(view: CopiesView, printer: Printer) -> None:
    pairs = view.pairs
    several = len({pair.tune for pair in pairs if pair.tune}) > 1
    names = [f"{p.name} {p.tune}" if several and p.tune else p.name for p in pairs]
    values = [value for pair in pairs for value in (pair.baseline, pair.value)]
    places = needed_decimals(values, significant=4)
    same = len({pair.unit for pair in pairs}) == 1
    unit = {"ratio": "ratio", "copies/hour": "copies/h"}[pairs[0].unit] if same else ""
    of = Columns(pairs)
    printer.table(
        [
            Column("benchmark", names, right=False, flexible=True),
            *([] if same else [of.left("unit", lambda pair: pair.unit)]),
            of.numbers((f"run {view.baseline.run}", unit), lambda pair: pair.baseline, places),
            of.numbers((f"run {view.head.run}", unit), lambda pair: pair.value, places),
            of.change("change|%", lambda pair: pair.change),
        ],
        ["bold" if pair.name.startswith("suite") else "" for pair in pairs],
    )
    if view.head.copies != view.baseline.copies:
        printer.prose(
            f"note: run {view.baseline.run} has {view.baseline.copies} copies, "
            f"run {view.head.run} has {view.head.copies}",
            "yellow",
        )


def _shape_columns(view: CopiesView) -> list[Column]:
    times = view.times
    labels = names_with_tunes([one.cell for one in times])
    first = [i == 0 or label != labels[i - 1] for i, label in enumerate(labels)]
    (medians_s,) = seconds_columns([one.yardstick_s for one in times])

    def once(cells: Sequence[str]) -> list[str]:
        return [text if new else "" for text, new in zip(cells, first, strict=True)]

    of = Columns(times)
    columns = [
        Column("benchmark", once(labels), right=False, flexible=True),
        of.right("iter", _iteration),
        of.right("copies", lambda one: len(one.cell.points), optional=2),
        Column("1 =|s", once(medians_s), optional=1),
        *_shape_parts([one.every for one in times], "all"),
    ]
    if view.drop:
        columns += _shape_parts([one.kept for one in times], f"-{view.drop}")
    return columns


def _shape_parts(shapes: Sequence[TimeStatistics | None], label: str) -> list[Column]:
    of = Columns(shapes)
    return [
        of.numbers(f"{label}|median", lambda shape: shape.median, _PLACES),
        of.numbers(f"{label}|mean", lambda shape: shape.mean, _PLACES),
        of.numbers(f"{label}|s.d.", lambda shape: shape.sd, _PLACES),
        of.numbers(f"{label}|max", lambda shape: shape.maximum, _PLACES),
    ]


def _iteration(one: CellTimes) -> str:
    return str(one.cell.iteration) if one.cell.counted else f"({one.cell.iteration})"


def _print_worst(view: CopiesView, printer: Printer) -> None:
    worst = slowest_points(view.times, view.worst_shown)
    if not worst:
        return
    printer.line()
    printer.prose(f"the slowest of {sum(len(t.cell.points) for t in view.times)}:", "bold")
    (seconds,) = seconds_columns([point.elapsed_s for _, point, _ in worst])
    named = dict(zip(view.times, names_with_tunes([one.cell for one in view.times]), strict=True))
    of, points = Columns(worst), Columns([point for _, point, _ in worst])
    joules = [points.numbers("J|estimate", lambda point: point.joules_estimate, optional=1)]
    printer.table(
        [
            of.left("benchmark", lambda row: named[row[0]], flexible=True),
            of.right("iter", lambda row: _iteration(row[0])),
            points.right("copy", lambda point: point.copy),
            points.right("CPU", lambda point: point.cpu),
            points.right("core", lambda point: point.core),
            points.right("lgroup", lambda point: point.node),
            Column("time|s", seconds),
            of.numbers("over the|median", lambda row: row[2], _PLACES),
            *(joules if any(point.joules_estimate for _, point, _ in worst) else ()),
        ]
    )


# -- Every copy run of a run, with the times of its workloads where it had several -----------------

_CHECKED = {
    Validity.VALID: "valid",
    Validity.INVALID: "wrong",
    Validity.NOT_CHECKED: "not validated",
    Validity.UNCHECKED: "not looked at",
}


def print_copy_runs(run: StoredRun, printer: Printer) -> None:
    """Print a line for every copy run; torn attempts left out."""
    copies = run.without_torn().copies
    if not copies:
        return
    [times] = seconds_columns([it.elapsed_s for it in copies])
    of = Columns(copies)
    printer.line()
    printer.table(
        [
            of.left("benchmark", lambda it: it.benchmark, flexible=True),
            of.right("iter", lambda it: it.iteration),
            of.right("copy", lambda it: it.copy),
            of.right("CPU", lambda it: it.cpu),
            of.right("lgroup", lambda it: it.node, optional=90),
            of.numbers("start|s", lambda it: _seconds(it.start_ns), 3, optional=99),
            Column("time|s", times),
            *_workload_columns(copies),
            of.left("ended", _ended),
            of.left("output", _output, optional=98),
        ],
        ["" if it.status is CopyStatus.OK else "red" for it in copies],
    )
    if any(len(it.workloads) > 1 for it in copies):
        printer.prose("w1, w2, ...: the copy's workloads, one after the other; !: it failed")


_COPY_RUNS_TABLE = {
    StoredCopy: JsonFields(
        "benchmark iteration copy step cpu node",
        {"start_s": lambda copy: _seconds(copy.start_ns)},
        "elapsed_s status validity validity_detail workloads",
    ),
    WorkloadTime: JsonFields(
        "workload",
        {
            "start_s": lambda it: _seconds(it.start_ns),
            "elapsed_s": lambda it: it.elapsed_ns / 1e9,
        },
        "exit_code signal pid",
    ),
}


def copy_runs_document(run: StoredRun) -> list[Json]:
    """Return the same as JSON values; seconds are floats."""
    document: list[Json] = to_json(run.without_torn().copies, _COPY_RUNS_TABLE)
    return document


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def _workload_columns(copies: tuple[StoredCopy, ...]) -> list[Column]:
    most = max(len(it.workloads) for it in copies)
    if most < 2:
        return []
    columns = []
    for this_place in range(most):
        cells = [
            it.workloads[this_place] if this_place < len(it.workloads) else None for it in copies
        ]
        [times] = seconds_columns([None if it is None else it.elapsed_ns / 1e9 for it in cells])
        marked = [
            f"{time}!" if _failed(it) else time for time, it in zip(times, cells, strict=True)
        ]
        columns.append(Column((f"w{this_place + 1}", "s"), marked, optional=1 + this_place))
    return columns


def _failed(it: WorkloadTime | None) -> bool:
    return it is not None and (it.signal is not None or bool(it.exit_code))


def _ended(copy: StoredCopy) -> str:
    if copy.status is not CopyStatus.FAILED:
        return copy.status.value
    return f"signal {copy.signal}" if copy.signal is not None else f"exit code {copy.exit_code}"


def _output(copy: StoredCopy) -> str:
    bad = copy.status not in (CopyStatus.OK, CopyStatus.WRONG_OUTPUT)
    return "-" if bad and copy.validity is Validity.UNCHECKED else _CHECKED[copy.validity]


# -- What benchmarks report of themselves, as a table ----------------------------------------------

_LGROUPS_SHOWN = 16
_UNIT = 16  # cells that a unit has at most


def print_metrics(metrics: Sequence[MetricResult], printer: Printer) -> None:
    """Print all metrics of a run, and what each lgroup has where there are several."""
    names = [
        metric.benchmark if not place or metrics[place - 1].benchmark != metric.benchmark else ""
        for place, metric in enumerate(metrics)
    ]
    of = Columns(metrics)
    one = all(metric.copies <= 1 for metric in metrics)
    value, lowest, median, highest = zip(*(_values(metric) for metric in metrics), strict=True)
    spread = [
        Column("lowest|copy", lowest, optional=1),
        Column("median|copy", median, optional=2),
        Column("highest|copy", highest, optional=1),
        of.place(lambda m: m.worst, "worst copy"),
    ]
    printer.table(
        [
            Column("benchmark", names, right=False, flexible=True),
            of.left("metric", lambda m: m.name, flexible=True),
            Column("value", value),
            of.left("unit", lambda m: _unit(m, printer), flexible=True),
            *([] if one else [of.left("over|copies", lambda m: m.combine)]),
            of.left("better", lambda m: m.better or None, optional=3),
            *([] if one else spread),
        ]
    )
    printer.some(
        (f"{m.benchmark}, {m.name}: no value: {m.reason}" for m in metrics if m.reason), "yellow"
    )
    _print_lgroups(metrics, printer)


def _values(metric: MetricResult) -> list[str]:
    """Return value, lowest, median, highest, written alike."""
    of_copies = [
        metric.minimum.value if metric.minimum else None,
        metric.median,
        metric.maximum.value if metric.maximum else None,
    ]
    return format_together([metric.value, *of_copies])


def _print_lgroups(metrics: Sequence[MetricResult], printer: Printer) -> None:
    nodes = list(dict.fromkeys(group.node for metric in metrics for group in metric.lgroups))
    if len(nodes) < 2:
        return
    printer.line()
    if len(nodes) <= _LGROUPS_SHOWN:
        _print_lgroup_table(metrics, nodes, printer)
        return
    for metric in metrics:
        known = [(group.value, group) for group in metric.lgroups if group.value is not None]
        if not known:
            continue
        (low, at_low), *_ = by_value = sorted(known, key=lambda item: item[0])
        high, at_high = by_value[-1]
        least, most = format_together([low, high])
        printer.prose(
            f"{metric.benchmark}, {metric.name}: {metric.combine} over the copies of an lgroup: "
            f"{least} (lgroup {or_dash(at_low.node)}) to {most} (lgroup {or_dash(at_high.node)}) "
            f"{_unit(metric, printer)}"
        )


def _print_lgroup_table(
    metrics: Sequence[MetricResult], nodes: Sequence[int | None], printer: Printer
) -> None:
    """A column per lgroup, in several tables where one is too wide."""
    values = [{group.node: group.value for group in metric.lgroups} for metric in metrics]
    rows = [format_together([of.get(node) for node in nodes]) for of in values]
    columns = [
        Column((or_dash(node), ""), cells)
        for node, cells in zip(nodes, zip(*rows, strict=True), strict=True)
    ]
    label = Column(
        "copies of lgroup",
        [f"{metric.benchmark} {metric.name}, {_unit(metric, printer)}" for metric in metrics],
        right=False,
        flexible=True,
    )
    room = printer.width - min(label.width, 24)
    shown: list[Column] = []
    for column in columns:
        if shown and sum(one.width + 2 for one in (*shown, column)) > room:
            printer.table([label, *shown])
            shown = []
        shown.append(column)
    printer.table([label, *shown])


def _unit(metric: MetricResult, printer: Printer) -> str:
    return crop(metric.unit, _UNIT, ascii_only=printer.ascii_only)
