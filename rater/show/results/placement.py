"""Where copies ran and their memory lay: verdicts in sentences, memory as a table, all as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rater.analysis.placement.proof import BenchmarkProof, CopyProof, RunProof
from rater.analysis.placement.verdict import CopySamples, PlacementVerdict
from rater.show.console.format import decimals, duration, number, place
from rater.show.console.printer import Printer
from rater.show.console.table import Column, Columns
from rater.text.cpuset import format_list
from rater.text.to_json import Members, to_json
from rater.text.words import copies_text, count, percent

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
        places = decimals(averages + highest)
        sizes = sorted({size for row in rows for size, _ in row.page_shares})

        def pages(size: int) -> Column:
            shares = [dict(row.page_shares) for row in rows]
            cells = [percent(share.get(size, 0.0) if share else None, 0) for share in shares]
            return Column((_page(size), "pages %"), cells, optional=2)

        printer.table(
            [
                of.left("benchmark", lambda row: row.benchmark, flexible=True),
                of.right("seen|copies", lambda row: f"{row.sampled}/{row.copies}"),
                Column("resident|MB", [number(value, places) for value in averages]),
                Column("most|MB", [number(value, places) for value in highest]),
                *(pages(size) for size in sizes),
                of.percent("local|%", lambda row: row.local_share),
                of.percent("least|%", lambda row: row.least_local_share),
                of.right("moves|/copy", lambda row: number(row.migrations), optional=1),
            ]
        )
        printer.prose(
            "pages % and local %: of anonymous memory; local: on the lgroups planned, or at home; "
            "least: of one copy; moves: to another CPU"
        )
    swapped = max((one.seen.swap_bytes or 0 for one in proof.copies), default=0)
    if swapped:
        printer.prose(f"swapped out: up to {number(swapped / 1e6)} MB of a copy", "yellow")
    if proof.observed is not None:
        seen = proof.observed
        every = f", each copy every {duration(seen.interval_s)}" if seen.interval_s else ""
        printer.prose(
            f"{count(seen.samples, 'sample')} of running copies{every}: "
            f"{percent(seen.share, 2)} % of one CPU, {duration(seen.longest_read_s)} at most",
        )
        for text in seen.unknown:
            printer.prose(text, "yellow")


_TABLE = {
    BenchmarkProof: Members("* page_shares{}"),
    CopySamples: Members("* node_bytes{} page_bytes{}"),
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
        _TABLE,
    )
    return document


def _runs(proofs: Sequence[CopyProof]) -> str:
    """Return `8 copies`, or `24 copy runs` where copies ran several times."""
    several = len({one.copy for one in proofs}) < len(proofs)
    return count(len(proofs), "copy run") if several else copies_text(len(proofs))


def _name(proof: CopyProof) -> str:
    where = place(proof.cpu, proof.node)
    placed = f" ({', '.join(where)})" if where else ""
    return f"copy {proof.copy} of {proof.benchmark}, iteration {proof.iteration}{placed}"


def _page(size: int) -> str:
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def _mb(size: float | None) -> float | None:
    return None if size is None else size / 1e6
