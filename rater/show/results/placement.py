"""Where copies ran and their memory lay, and what benchmarks report of themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rater.analysis.results.placement import (
    BenchmarkProof,
    CopyProof,
    CopySamples,
    PlacementVerdict,
    RunProof,
)
from rater.show.screen.document import (
    NUMBER,
    PERCENT,
    PLACE,
    TEXT,
    Fact,
    Field,
    Form,
    Line,
    Part,
    ViewTable,
    facts,
)
from rater.show.screen.format import (
    crop,
    format_duration,
    format_number,
    format_together,
    or_dash,
    place_texts,
)
from rater.text.cpuset import copy_numbers_text
from rater.text.values import copies_text, count, percent, to_json

if TYPE_CHECKING:
    from rater.show.documents.readings import (
        BenchmarkProofJson,
        CopyProofJson,
        PlacementProofJson,
        SamplesJson,
    )
    from rater.show.documents.run import MetricJson

_MOST_COPIES = 10  # named one by one


def as_planned(proof: RunProof) -> bool:
    """Tell whether every copy is known to have been where it was planned."""
    return not proof.with_verdict(PlacementVerdict.NOT_MET) and not proof.not_known()


def placement_facts(proof: RunProof, *, every: bool = False) -> Iterator[Fact]:
    """Yield which copies met their plan; nothing of a run without placed copies.

    What was not met comes first, copy by copy (all of them with `every`); what is not known is
    put together by its reason.
    """
    if every and not proof.copies:
        yield "placement", "not sampled (--proof off, or an imported run)"
    if not any(copy.planned for copy in proof.copies):
        return
    if as_planned(proof):
        yield "placement", f"as planned: {_runs(proof.copies)}"
        return
    broken, unknown = proof.with_verdict(PlacementVerdict.NOT_MET), proof.not_known()
    doubtful = sum(len(group) for group in unknown.values())
    met = len(proof.copies) - len(broken) - doubtful
    numbers = {"as planned": met, "not as planned": len(broken), "unknown": doubtful}
    text = ", ".join(f"{many} {words}" for words, many in numbers.items() if many)
    if any(proof_of_copy.counted for proof_of_copy in broken):
        text += "; the results include the misplaced copies"
    yield "placement", f"of {_runs(proof.copies)}: {text}", "bold red" if broken else ""
    named = broken if every else broken[:_MOST_COPIES]
    yield (
        "not as planned",
        [f"{_name(proof_of_copy)}: {'; '.join(proof_of_copy.reasons)}" for proof_of_copy in named],
        "red",
    )
    more = len(broken) - len(named)
    yield "", more and f"and {more} more (--proof names them all)", "red"
    for reasons, group in unknown.items():
        copies = copy_numbers_text(proof_of_copy.copy for proof_of_copy in group)
        yield "unknown", f"{_runs(group)} ({copies}): {'; '.join(reasons)}", "yellow"


def memory_parts(proof: RunProof) -> Iterator[Part]:
    """Yield the memory per benchmark and what sampling cost; nothing if nobody sampled."""
    rows = [benchmark for benchmark in proof.benchmarks if benchmark.sampled]
    sizes = sorted({size for row in rows for size, _ in row.page_shares})

    def share(row: BenchmarkProof, size: int) -> float | None:
        shares = dict(row.page_shares)
        return shares.get(size, 0.0) if shares else None

    whole = Form(lambda values: [percent(value, 0) for value in values])
    columns = (
        Field(heading="benchmark", value=lambda row: row.benchmark, form=TEXT, flexible=True),
        Field(heading="seen|copies", value=lambda row: f"{row.sampled}/{row.copies}"),
        Field(heading="resident|MB", value=lambda row: _mb(row.rss_average_bytes), form=NUMBER),
        Field(heading="most|MB", value=lambda row: _mb(row.rss_max_bytes), form=NUMBER),
        *(
            Field(
                heading=(_page(size), "pages %"),
                value=partial(share, size=size),
                form=whole,
                optional=2,
            )
            for size in sizes
        ),
        Field(heading="local|%", value=lambda row: row.local_share, form=PERCENT),
        Field(heading="least|%", value=lambda row: row.least_local_share, form=PERCENT),
        Field(heading="moves|/copy", value=lambda row: format_number(row.migrations), optional=1),
    )
    note = (
        "pages %, local %: share of anonymous memory. local: on the planned or home node. "
        "least: worst copy. moves: CPU migrations."
    )
    yield ViewTable(title="", rows=rows, fields=columns, note=note)
    swapped = max((copy.seen.swap_bytes or 0 for copy in proof.copies), default=0)
    if swapped:
        yield Line(f"swapped out: up to {format_number(swapped / 1e6)} MB of a copy", "yellow")
    if (seen := proof.observed) is not None:
        every = f", each copy every {format_duration(seen.interval_s)}" if seen.interval_s else ""
        yield (
            f"{count(seen.samples, 'sample')} of running copies{every}: "
            f"{percent(seen.share, 2)} % of one CPU, {format_duration(seen.longest_read_s)} at most"
        )
        yield from (Line(text, "yellow") for text in seen.unknown)


def proof_document(proof: RunProof, *, every: bool = True) -> PlacementProofJson:
    """Return the JSON document: per benchmark and per copy run, sizes in bytes.

    Copy runs are all of them with `every`, else those whose plan was not met.
    """
    broken = proof.with_verdict(PlacementVerdict.NOT_MET)
    unknown = proof.not_known()
    return {
        "looked_at": bool(proof.copies),
        "met": len(proof.with_verdict(PlacementVerdict.MET)),
        "not_met": len(broken),
        "not_known": sum(len(group) for group in unknown.values()),
        "not_known_because": [
            {"reasons": [*reasons], "copies": sorted({copy.copy for copy in group})}
            for reasons, group in unknown.items()
        ],
        "observed": to_json(proof.observed),
        "benchmarks": [_benchmark_json(benchmark) for benchmark in proof.benchmarks],
        "copies_listed": "all" if every else "not met",
        "copies": [_copy_json(copy) for copy in (proof.copies if every else broken)],
    }


def _benchmark_json(proof: BenchmarkProof) -> BenchmarkProofJson:
    fields: BenchmarkProofJson = to_json(proof)
    fields["page_shares"] = {str(size): share for size, share in proof.page_shares}
    return fields


def _copy_json(proof: CopyProof) -> CopyProofJson:
    return {
        "phase": proof.phase,
        "benchmark": proof.benchmark,
        "iteration": proof.iteration,
        "copy": proof.copy,
        "step": proof.step,
        "counted": proof.counted,
        "planned": proof.planned,
        "cpu": proof.cpu,
        "node": proof.node,
        "verdict": proof.verdict,
        "reasons": [*proof.reasons],
        "gate": to_json(proof.gate),
        "seen": _samples_json(proof.seen),
        "unseen_s": proof.unseen_s,
        "local_share": proof.local_share,
        "evenness": proof.evenness,
    }


def _samples_json(samples: CopySamples) -> SamplesJson:
    fields: SamplesJson = to_json(samples)
    fields["node_bytes"] = _by_name(samples.node_bytes)
    fields["page_bytes"] = _by_name(samples.page_bytes)
    return fields


def _by_name(sizes: Sequence[tuple[int, float]] | None) -> dict[str, float] | None:
    return None if sizes is None else {str(number): size for number, size in sizes}


def _runs(proofs: Sequence[CopyProof]) -> str:
    """Return `8 copies`, or `24 copy runs` where copies ran several times."""
    several = len({proof.copy for proof in proofs}) < len(proofs)
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

_UNIT = 16  # cells that a unit has at most


def metric_parts(metrics: Sequence[MetricJson]) -> Iterator[Part]:
    """Yield all metrics of a run, and what each NUMA node has where there are several."""

    def value(place: int, metric: MetricJson) -> str:
        """Return value, lowest, median or highest, all four written alike."""
        low, high = metric["minimum"], metric["maximum"]
        lowest, highest = (copy["value"] if copy else None for copy in (low, high))
        return format_together([metric["value"], lowest, metric["median"], highest])[place]

    single = all(metric["copies"] <= 1 for metric in metrics)
    spread = (
        Field(heading="lowest|copy", value=partial(value, 1), optional=1),
        Field(heading="median|copy", value=partial(value, 2), optional=2),
        Field(heading="highest|copy", value=partial(value, 3), optional=1),
        Field(heading="worst copy,|CPU, node", value="worst", form=PLACE),
    )
    columns = (
        Field(heading="benchmark", value="benchmark", form=TEXT, flexible=True),
        Field(heading="metric", value="name", form=TEXT, flexible=True),
        Field(heading="value", value=partial(value, 0)),
        Field(heading="unit", value=_unit, form=TEXT, flexible=True),
        *(() if single else (Field(heading="over|copies", value="combine", form=TEXT),)),
        Field(
            heading="better", value=lambda metric: metric["better"] or None, form=TEXT, optional=3
        ),
        *(() if single else spread),
    )
    yield ViewTable(title="", rows=metrics, fields=columns)
    yield facts(
        (f"{metric['benchmark']}, {metric['name']}", metric["reason"], "yellow")
        for metric in metrics
    )
    yield from _metric_node_parts(metrics)


def _metric_node_parts(metrics: Sequence[MetricJson]) -> Iterator[Part]:
    """Yield the value of each NUMA node, where there are several."""
    nodes = list(dict.fromkeys(group["node"] for metric in metrics for group in metric["lgroups"]))
    if len(nodes) < 2:
        return

    def value_of_node(place: int, metric: MetricJson) -> str:
        values = {group["node"]: group["value"] for group in metric["lgroups"]}
        return format_together([values.get(node) for node in nodes])[place]

    label = Field(
        heading="copies of node",
        value=lambda metric: f"{metric['benchmark']} {metric['name']}, {_unit(metric)}",
        form=TEXT,
        flexible=True,
    )
    by_node = [
        Field(heading=(or_dash(node), ""), value=partial(value_of_node, place))
        for place, node in enumerate(nodes)
    ]
    yield ViewTable(title="", rows=metrics, fields=(label, *by_node), repeated=1)


def _unit(metric: MetricJson) -> str:
    return crop(metric["unit"], _UNIT, ascii_only=True)
