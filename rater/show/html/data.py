"""What the pictures of a page are drawn from: dots, bars and the machine, as JSON values; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rater.analysis.counters.cpu_use import RunCounters
from rater.analysis.divots.data.finding import Analysis
from rater.analysis.results.copies import Cell
from rater.analysis.results.copy_outcome import is_good
from rater.analysis.results.model import Summary
from rater.groups import grouped
from rater.record.stored import StoredRun
from rater.show.charts.machine import machine_rows, slowdowns
from rater.show.charts.panel import dot_kinds, group_values, panel_values, seconds
from rater.show.charts.picture import Dot, Picture
from rater.show.charts.timeline import RunKey, timeline
from rater.show.console.format import plain


@dataclass(frozen=True, slots=True)
class PageRun:
    """A run with all that a page says of it."""

    run: StoredRun
    summary: Summary
    cells: tuple[Cell, ...]
    picture: Picture
    divots: Analysis | None  # None: there was no search
    readings: RunCounters
    barrier: Summary | None = None  # what a steady run is compared with


def run_data(
    shown: PageRun, range_s: Mapping[tuple[str, str | None], tuple[float, float]]
) -> dict[str, Any]:
    """Return what the pictures of one run are drawn from.

    `range_s`: the ends of each benchmark's axis in seconds, where it is that of several runs.
    """
    picture, run = shown.picture, shown.run.without_torn()
    lost, local_shares, starts = _lost(shown.summary), _local_shares(shown.summary), _starts(run)
    kinds: dict[RunKey, int] = {}
    panels: list[dict[str, Any]] = []
    for panel in picture.panels:
        key = (panel.benchmark, panel.tune)
        of_dots = dot_kinds(panel)
        kinds |= {_run_key(*key, dot): kind for dot, kind in of_dots.items()}
        values = panel_values(panel, of_dots, repeated=picture.repeated, ends_s=range_s.get(key))
        values["dots"] |= {
            "start": [starts.get(_run_key(*key, dot)) for dot in panel.dots],
            "local": [
                local_shares.get((panel.benchmark, dot.iteration, dot.copy)) for dot in panel.dots
            ],
        }
        names = {"benchmark": plain(panel.benchmark), "tune": panel.tune, "lost": lost.get(key)}
        panels.append(values | names)
    return {
        "run": run.head.run,
        "axis": picture.axis,
        "names": list(picture.names),
        "groups": group_values(picture),
        "iterations": list(picture.iterations),
        "repeated": picture.repeated,
        "panels": panels,
        "timeline": timeline(shown.summary, run, kinds),
        "machine": machine_rows(run),
        "slowdowns": [slowdowns(panels), *(slowdowns([panel]) for panel in panels)],
    }


def _run_key(benchmark: str, tune: str | None, dot: Dot) -> RunKey:
    return benchmark, tune, dot.iteration, dot.copy


def _starts(run: StoredRun) -> dict[RunKey, float]:
    """Return when each copy's first good run began, in seconds of the run."""
    return {
        (row.benchmark, row.tune, row.iteration, row.copy): seconds(row.start_ns / 1e9)
        for row in reversed(run.copies)
        if row.start_ns is not None and is_good(row)
    }


def _local_shares(summary: Summary) -> dict[tuple[str, int, int], float]:
    """Return how local each copy's memory was, by benchmark, iteration and copy."""
    shares = grouped(
        ((proof.benchmark, proof.iteration, proof.copy), proof.local_share)
        for proof in summary.proof.copies
        if proof.local_share is not None
    )
    return {key: round(sum(of) / len(of), 4) for key, of in shares.items()}


def _lost(summary: Summary) -> dict[tuple[str, str | None], float]:
    """Return the most that slow copies cost each benchmark in a counted iteration."""
    found: dict[tuple[str, str | None], float] = {}
    for benchmark in summary.benchmarks:
        shares = [it.score_lost for it in benchmark.iterations if it.counted and it.score_lost]
        if shares:
            found[benchmark.benchmark, benchmark.tune] = round(max(shares), 5)
    return found
