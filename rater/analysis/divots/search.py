"""A run's times in, its divots out; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rater.analysis.divots.cost import noise_cost
from rater.analysis.divots.data.finding import Analysis, Thresholds
from rater.analysis.divots.data.table import Machine, Row, build_table
from rater.analysis.divots.findings import findings_of
from rater.analysis.divots.model.detect import detect
from rater.analysis.divots.sensitivity import visible

__all__ = ["Analysis", "analyse"]


def analyse(
    chunks: Iterable[Sequence[Row]],
    benchmarks: Sequence[tuple[str, str | None]],
    thresholds: Thresholds,
    *,
    core_pus: Sequence[tuple[int, int]] = (),
    barrier: bool = True,
    staggered: bool = False,
) -> Analysis:
    """Return the divots of a run given as rows (`Row`).

    `benchmarks` are those that the rows number, with their tunes; `barrier`: all
    copies run one benchmark at a time; `staggered`: started one after the other on
    purpose. A run without a copy that ended well has no findings and shows nothing.
    """
    machine, parts = Machine(tuple(core_pus)), tuple(chunks)
    table = build_table(parts, benchmarks, machine=machine, barrier=barrier, staggered=staggered)
    if table is None:
        return Analysis((), {}, sum(len(part) for part in parts))
    found = detect(table, thresholds)
    return Analysis(
        tuple(findings_of(found)),
        visible(found, thresholds),
        table.failed,
        noise_cost=noise_cost(found.table, found.rest) if found.noise.known else None,
    )
