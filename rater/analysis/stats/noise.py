"""How much a rate varies from run to run, on the log scale; pure, standard library only."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rater.analysis.stats.student_t import quantile

ASSUMED_SD = 0.05  # of the log of a rate, where too few runs were repeated to know it
_LEAST_DEGREES = 3


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviation of the log of one run's rate: 0.02 is 2 %."""

    sd: float
    degrees: int | None  # of freedom; None: assumed, too few runs were repeated
    in_rounds: bool = False  # what all runs of a round have in common is not in it

    def of_median(self, runs: int) -> float:
        """Return the standard error of the log of the median over so many runs.

        Of three and more normal values the median's is sqrt(pi / 2 runs) of the single one's
        (asymptotic; a little too much for few), of one and two it is that of the mean.
        """
        return self.sd * math.sqrt((math.pi / 2 if runs > 2 else 1.0) / runs)

    def quantile(self, alpha: float) -> float:
        """Return how many standard errors noise exceeds with probability `alpha`, on one side."""
        if self.degrees is None:
            return statistics.NormalDist().inv_cdf(1 - alpha)
        return quantile(1 - 2 * alpha, self.degrees)


def noise_of(rates: Sequence[Sequence[float]]) -> Noise:
    """Return the noise of runs; `rates`: those of repeated runs of the same, group by group.

    Pooled over the groups. Below three degrees of freedom (runs less groups) it is no estimate:
    5 % is assumed, or what was seen where that is more.
    """
    squares, degrees = 0.0, 0
    for group in rates:
        logs = [math.log(rate) for rate in group]
        mean = statistics.fmean(logs)
        squares += sum((value - mean) ** 2 for value in logs)
        degrees += len(logs) - 1
    sd = math.sqrt(squares / degrees) if degrees > 0 else 0.0
    if degrees < _LEAST_DEGREES:
        return Noise(max(ASSUMED_SD, sd), None)
    return Noise(sd, degrees)


def noise_in_rounds(rates: Sequence[Mapping[int, float]]) -> Noise | None:
    """Return the noise of runs beside what their rounds have in common; `rates` by round.

    Where each group has one run in each of the same rounds, what drifts between rounds is in all
    medians alike and tells no two of them apart: what counts is the residual of log rate = group +
    round, with (groups - 1) (rounds - 1) degrees of freedom (the two-way layout without
    interaction of any textbook on experiments). None: not so, or below three degrees.
    """
    rounds = rates[0].keys() if rates else set()
    degrees = (len(rates) - 1) * (len(rounds) - 1)
    if degrees < _LEAST_DEGREES or any(group.keys() != rounds for group in rates):
        return None
    logs = [{block: math.log(rate) for block, rate in group.items()} for group in rates]
    of_round = {block: statistics.fmean(group[block] for group in logs) for block in rounds}
    overall = statistics.fmean(of_round.values())
    squares = 0.0
    for group in logs:
        mean = statistics.fmean(group.values())
        squares += sum(
            (value - mean - of_round[block] + overall) ** 2 for block, value in group.items()
        )
    return Noise(math.sqrt(squares / degrees), degrees, in_rounds=True)
