"""The gate of a comparison: what is worse, what is excluded, what could not be seen; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rater.analysis.compare.model import Comparison, Effect, EffectRow, Side
from rater.analysis.results.gates import (
    EXCLUDED,
    GateAnswer,
    GateCase,
    GateVerdict,
    more_text,
)
from rater.analysis.stats.intervals import Decision, RatioInterval
from rater.text.values import percent

_MOST_ROUNDS = 1000  # more of them are no way out


def judge_comparison(comparison: Comparison, least: float) -> Iterator[GateVerdict]:
    """Yield of each benchmark and suite whether it is worse by a share `least`.

    It is found where it is worse with all comparisons considered (Holm). It is excluded where its
    interval ends above. Without a limit (0), by more than `comparison.margin` has to be excluded.
    """
    for row, side, cell in comparison.verdicts():
        if cell.speedup is not None:
            yield judge_cell(row, side, cell, least, comparison.margin)


def judge_cell(
    row: EffectRow, side: Side, cell: Effect, least: float, margin: float
) -> GateVerdict:
    """Return whether a benchmark or suite of a side is worse; it has a speedup."""
    assert cell.speedup is not None
    name = f"{row.name} ({side.label})"
    if cell.holds and cell.speedup.ratio < 1 - least:
        return GateVerdict(answer=GateAnswer.FOUND, reason=name)
    return _judge(name, cell.speedup, least or margin)


def comparison_cases(comparison: Comparison, gate: str, least: float) -> Iterator[GateCase]:
    """Yield a case for each benchmark and suite of each side, and for each that a side lost."""
    for row, side, cell in comparison.verdicts():
        speedup = cell.speedup
        if speedup is None:
            continue
        verdict = judge_cell(row, side, cell, least, comparison.margin)
        numbers = {
            "speedup": speedup.ratio,
            "speedup_low": speedup.low,
            "speedup_high": speedup.high,
        }
        reason = verdict.reason.removeprefix(f"{row.name} ({side.label})").removeprefix(": ")
        yield GateCase(
            gate=gate,
            name=f"{row.name} {row.tune}" if row.tune else row.name,
            place=side.label,
            answer=verdict.answer,
            reason=reason or _worse_text(speedup),
            values=tuple((name, value) for name, value in numbers.items() if value is not None),
        )
    for benchmark, label in comparison.lost:
        reason = "no valid result, where the baseline has one"
        yield GateCase(
            gate=gate, name=benchmark, place=label, answer=GateAnswer.FOUND, reason=reason
        )


def _worse_text(speedup: RatioInterval) -> str:
    """Return the size of a change with its interval."""
    interval = "" if speedup.low is None else f" ({speedup.low:.3f} to {speedup.high:.3f})"
    return f"speedup {speedup.ratio:.3f}{interval}"


def _judge(name: str, speedup: RatioInterval, limit: float) -> GateVerdict:
    """Return whether a speedup that is not worse excludes that it is worse by a share `limit`."""
    if speedup.refused:
        return GateVerdict(answer=GateAnswer.OPEN, reason=f"{name}: {speedup.refused}")
    if speedup.low is None:
        return GateVerdict(answer=GateAnswer.OPEN, reason=f"{name}: one run of a side")
    if speedup.low > 1 - limit:
        if _is_by_luck(speedup, limit):
            doubts = "; ".join(speedup.doubts)
            return GateVerdict(answer=GateAnswer.OPEN, reason=f"{name}: inconclusive: {doubts}")
        return EXCLUDED
    seen = f"{percent(1 - speedup.low)} % worse is possible, {percent(limit)} % was asked"
    way_out = more_text(speedup.count, _rounds_needed(speedup, limit), "round")
    return GateVerdict(
        answer=GateAnswer.OPEN, reason=f"{name}: {seen}{f': {way_out}' if way_out else ''}"
    )


def _is_by_luck(speedup: RatioInterval, limit: float) -> bool:
    """Tell whether a share is excluded by a better value alone, in rounds that are not independent.

    The interval is wider than the limit: had both sides measured the same, it would exclude
    nothing. In rounds that depend on each other such a value is chance.
    """
    if speedup.verdict is not Decision.UNKNOWN or not speedup.doubts or speedup.low is None:
        return False
    return math.log(speedup.ratio / speedup.low) > -math.log(1 - limit)


def _rounds_needed(speedup: RatioInterval, limit: float) -> int | None:
    """Return how many rounds exclude a share, if ratio and noise stay; None: too many, or none do.

    The interval reaches h below the ratio in logarithms, and may reach d: n (h / d)^2 rounds.
    """
    assert speedup.low is not None
    room = math.log(speedup.ratio) - math.log(1 - limit)
    if room <= 0:
        return None
    reach = math.log(speedup.ratio) - math.log(speedup.low)
    needed = math.ceil(speedup.count * (reach / room) ** 2)
    return needed if speedup.count < needed <= _MOST_ROUNDS else None
