"""Where copies ran and their memory lay, and what benchmarks report of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rater.analysis.results.metrics import MetricResult
from rater.analysis.results.placement import (
    BenchmarkProof,
    CopyProof,
    CopySamples,
    PlacementVerdict,
    RunProof,
)
from rater.show.console import Printer
from rater.show.document import PERCENT, TEXT, Field, Form, ViewTable, print_parts
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
        printer.prose("Placement was not sampled (--proof off, or an imported run).")
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
        text += "; the results above include these misplaced copies"
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
        sizes = sorted({size for row in rows for size, _ in row.page_shares})
        highest = [_mb(row.rss_max_bytes) for row in rows]
        places = needed_decimals([*highest, *(_mb(row.rss_average_bytes) for row in rows)])
        megabytes = Form(lambda values: [format_number(_mb(value), places) for value in values])

        def share(row: BenchmarkProof, size: int) -> float | None:
            shares = dict(row.page_shares)
            return shares.get(size, 0.0) if shares else None

        whole = Form(lambda values: [percent(value, 0) for value in values])
        columns = (
            Field("benchmark", lambda row: row.benchmark, TEXT, flexible=True),
            Field("seen|copies", lambda row: f"{row.sampled}/{row.copies}"),
            Field("resident|MB", lambda row: row.rss_average_bytes, megabytes),
            Field("most|MB", lambda row: row.rss_max_bytes, megabytes),
            *(
                Field((_page(size), "pages %"), partial(share, size=size), whole, optional=2)
                for size in sizes
            ),
            Field("local|%", lambda row: row.local_share, PERCENT),
            Field("least|%", lambda row: row.least_local_share, PERCENT),
            Field("moves|/copy", lambda row: format_number(row.migrations), optional=1),
        )
        print_parts([ViewTable("", rows, columns)], printer)
        printer.prose(
            "pages %, local %: share of anonymous memory. local: on the planned or home node. "
            "least: worst copy. moves: CPU migrations."
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
    one = all(metric.copies <= 1 for metric in metrics)
    firsts = {id(m) for m, last in zip(metrics, [None, *metrics], strict=False)
              if last is None or last.benchmark != m.benchmark}  # fmt: skip

    def worst(metric: MetricResult) -> str | None:
        at = metric.worst
        return None if at is None else ", ".join(map(or_dash, (at.copy, at.cpu, at.node)))

    spread = (
        Field("lowest|copy", lambda m: _values(m)[1], optional=1),
        Field("median|copy", lambda m: _values(m)[2], optional=2),
        Field("highest|copy", lambda m: _values(m)[3], optional=1),
        Field(("worst copy,", "CPU, node"), worst),
    )
    columns = (
        Field("benchmark", lambda m: m.benchmark if id(m) in firsts else "", TEXT, flexible=True),
        Field("metric", lambda m: m.name, TEXT, flexible=True),
        Field("value", lambda m: _values(m)[0]),
        Field("unit", lambda m: _unit(m, printer), TEXT, flexible=True),
        *(() if one else (Field("over|copies", lambda m: m.combine, TEXT),)),
        Field("better", lambda m: m.better or None, TEXT, optional=3),
        *(() if one else spread),
    )
    print_parts([ViewTable("", metrics, columns)], printer)
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
        print_parts([_node_table(metrics, nodes, printer)], printer)
        return
    for metric in metrics:
        known = [(group.value, group) for group in metric.lgroups if group.value is not None]
        if not known:
            continue
        (low, at_low), *_ = by_value = sorted(known, key=lambda item: item[0])
        high, at_high = by_value[-1]
        least, most = format_together([low, high])
        printer.prose(
            f"{metric.benchmark}, {metric.name}: {metric.combine} over the copies of a NUMA node: "
            f"{least} (node {or_dash(at_low.node)}) to {most} (node {or_dash(at_high.node)}) "
            f"{_unit(metric, printer)}"
        )


def _node_table(
    metrics: Sequence[MetricResult], nodes: Sequence[int | None], printer: Printer
) -> ViewTable:
    """Return a column per node, in several tables where one is too wide."""

    def value(metric: MetricResult, place: int) -> str:
        of = {group.node: group.value for group in metric.lgroups}
        return format_together([of.get(node) for node in nodes])[place]

    label = Field(
        "copies of node",
        lambda metric: f"{metric.benchmark} {metric.name}, {_unit(metric, printer)}",
        TEXT,
        flexible=True,
    )
    columns = [Field((or_dash(node), ""), partial(value, place=i)) for i, node in enumerate(nodes)]
    return ViewTable("", metrics, (label, *columns), repeated=1)


def _unit(metric: MetricResult, printer: Printer) -> str:
    return crop(metric.unit, _UNIT, ascii_only=printer.ascii_only)
