"""The gate of a comparison: what is worse, what is excluded, what could not be seen; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rater.analysis.compare.model import Comparison
from rater.analysis.results.gates import EXCLUDED, GateAnswer, GateVerdict, more_text
from rater.analysis.stats.intervals import RatioInterval
from rater.text.values import percent

_MOST_ROUNDS = 1000  # more of them are no way out


def judge_comparison(comparison: Comparison, least: float) -> Iterator[GateVerdict]:
    """Yield of each benchmark and suite whether it is worse by a share `least`.

    It is found where it is worse with all comparisons considered (Holm). It is excluded where its
    interval ends above. Without a limit (0), by more than `comparison.margin` has to be excluded.
    """
    for row, side, cell in comparison.verdicts():
        if cell.speedup is not None:
            name = f"{row.name} ({side.label})"
            is_worse = cell.holds and cell.speedup.ratio < 1 - least
            if is_worse:
                yield GateVerdict(answer=GateAnswer.FOUND, reason=name)
            else:
                yield _judge(name, cell.speedup, least or comparison.margin)


def _judge(name: str, speedup: RatioInterval, limit: float) -> GateVerdict:
    """Return whether a speedup that is not worse excludes that it is worse by a share `limit`."""
    if speedup.refused:
        return GateVerdict(answer=GateAnswer.OPEN, reason=f"{name}: {speedup.refused}")
    if speedup.low is None:
        return GateVerdict(answer=GateAnswer.OPEN, reason=f"{name}: one run of a side")
    if speedup.low > 1 - limit:
        return EXCLUDED
    seen = f"{percent(1 - speedup.low)} % worse is possible, {percent(limit)} % was asked"
    way_out = more_text(speedup.count, _rounds_needed(speedup, limit), "round")
    return GateVerdict(
        answer=GateAnswer.OPEN, reason=f"{name}: {seen}{f': {way_out}' if way_out else ''}"
    )


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
