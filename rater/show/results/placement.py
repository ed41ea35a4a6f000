"""Where copies ran and their memory lay, and what benchmarks report of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rater.analysis.results.metrics import MetricResult
from rater.analysis.results.placement import (
    BenchmarkProof,
    CopyProof,
    CopySamples,
    PlacementVerdict,
    RunProof,
)
from rater.show.console import Column, Columns, Printer
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
from rater.text.values import JsonFields, copies_text, count, percent, to_json

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
