"""What disturbed runs that are compared, as far as it was recorded; pure.

A run beside other work, or one whose copies ran elsewhere than planned, may be slow for that
reason alone: whoever reads a verdict has to know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rater.analysis.conditions.disturbed import cost_of_others, reasons
from rater.analysis.counters.cpu_use import Notable, run_counters
from rater.analysis.placement.proof import prove_run
from rater.analysis.placement.verdict import PlacementVerdict
from rater.analysis.results.request import left_out, request_of
from rater.record.stored import StoredRun


@dataclass(frozen=True, slots=True)
class DisturbedRun:
    """One run that was disturbed."""

    run: int
    notable: tuple[Notable, ...]  # what the machine's readings say
    not_met: tuple[int, ...]  # copies that ran, or had memory, elsewhere than planned
    warnings: tuple[str, ...]  # given before the first phase
    shared: bool  # made with --share: another run may have been beside it
    too_disturbed: tuple[str, ...] = ()  # why no verdict can stand on it; empty: one can


def disturbed_runs(runs: Iterable[StoredRun]) -> tuple[DisturbedRun, ...]:
    """Return the runs that were disturbed; of imported ones hardly anything is known."""
    found = [_of(run.without_torn()) for run in runs]
    return tuple(
        one
        for one in found
        if one.too_disturbed or one.notable or one.not_met or one.warnings or one.shared
    )


def _of(run: StoredRun) -> DisturbedRun:
    warnings = run.warnings if run.head.source == "run" else ()  # else: of reading the file
    counters = run_counters(run)
    return DisturbedRun(
        run=run.head.run,
        # Not as it is stored: a run of a sweep may never have been searched.
        too_disturbed=reasons(cost_of_others(run, counters), run.head.noise_cost),
        notable=counters.notable,
        not_met=tuple(sorted(_not_met(run))),
        # What is left out of a suite, the comparison itself tells.
        warnings=tuple(it for it in warnings if not left_out((it,))),
        shared=(request_of(run.head) or {}).get("share") is True,
    )


def _not_met(run: StoredRun) -> set[int]:
    if any(copy.placement for copy in run.copies):  # judged when it was made: that is quick
        return {
            copy.copy for copy in run.copies if copy.placement == PlacementVerdict.NOT_MET.value
        }
    return {copy for copies in prove_run(run).not_met().values() for copy in copies}
