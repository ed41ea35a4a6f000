"""What benchmarks report of themselves, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rater.analysis.results.metrics import MetricResult
from rater.show.console.format import crop, figures, or_dash
from rater.show.console.printer import Printer
from rater.show.console.table import Column, Columns

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
    return figures([metric.value, *of_copies])


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
        least, most = figures([low, high])
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
    rows = [figures([of.get(node) for node in nodes]) for of in values]
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
