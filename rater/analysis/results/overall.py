"""The one number of a run: its suite ratio, or what stands for it; pure."""

from __future__ import annotations

from dataclasses import dataclass

from rater.analysis.placement.proof import RunProof
from rater.analysis.results.model import Summary
from rater.analysis.results.score import summarise
from rater.analysis.results.steady import SteadyPhase
from rater.analysis.stats.descriptive import geometric_mean
from rater.record.stored import StoredRun

RATIO, PER_HOUR = "ratio", "copies/hour"
# Where copies were seen does not matter here, and it takes long to work out.
_NO_PROOF = RunProof((), (), None)


@dataclass(frozen=True, slots=True)
class Overall:
    """The number, larger is better."""

    value: float
    unit: str  # RATIO, or PER_HOUR where a reference time is missing


def overall(run: StoredRun) -> Overall | None:
    """Return the suite's ratio, else the geometric mean of the benchmarks' copies an hour.

    Of rotated order the mean of the copies' geometric means. None where a benchmark has no
    valid result: the number would be that of another selection.
    """
    summary = summarise(run, _NO_PROOF)
    value: float | None
    if summary.rotated is not None:
        value, unit = summary.rotated.score, summary.rotated.unit
    elif summary.mix is not None:
        value, unit = _of_window(summary.mix.selected)
    else:
        value, unit = _of_brackets(summary)
    return None if value is None else Overall(value, unit)


def _of_window(window: SteadyPhase | None) -> tuple[float | None, str]:
    if window is None or window.ratio is not None:
        return None if window is None else window.ratio, RATIO
    return window.per_hour, PER_HOUR


def _of_brackets(summary: Summary) -> tuple[float | None, str]:
    ratios = [suite.ratio for suite in summary.suites if suite.kind == "all"]
    if any(it.reference_s for it in summary.benchmarks):
        return next((ratio for ratio in ratios if ratio is not None), None), RATIO
    rates = [it.per_hour for it in summary.benchmarks if it.per_hour and not it.reason]
    whole = len(rates) == len(summary.benchmarks)
    return geometric_mean(rates) if whole else None, PER_HOUR
