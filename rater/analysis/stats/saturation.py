"""Whether a law describes a curve: lack of fit, and the curve that saturates; pure.

A shared limit (bandwidth, a lock) gives X(n) = min(lambda n, C): as many times the rate of one copy
as there are copies, until the limit C, and C from there on (the bound of operational analysis, P.
J. Denning and J. P. Buzen, ACM Computing Surveys 10, 1978). The Universal Scalability Law bends
everywhere; fitted to such a curve it has a peak that is not there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from rater.analysis.stats.curves import NoLaw, Usl
from rater.analysis.stats.estimate import f_exceeded
from rater.analysis.stats.intervals import Noise
from rater.text.values import percent

_LACK_ALPHA: Final = 0.01  # probability that a law that holds is refused
# A law that misses by less is a good summary, however small the noise; of the mean of squares.
_MATERIAL_MISFIT: Final = 0.02
_NEAR: Final = 0.1  # ln: noise may put the meeting point so much before the last linear one
_LEAST_ON_A_SIDE: Final = 2  # points: a line through one, or a level of one, fits always
# Difference of the criterion of Akaike from which the other model has essentially no support
# (K. P. Burnham and D. R. Anderson, Model Selection and Multimodel Inference, 2002, 2.6).
_NO_SUPPORT: Final = 10.0
_COEFFICIENTS_OF_LAW, _COEFFICIENTS_OF_LIMIT = 3, 2


class Saturation(Struct, frozen=True, kw_only=True):
    """A curve that is linear up to a limit: X(n) = min(rate n, limit)."""

    rate: float  # lambda: of one copy, in the unit of the rates
    limit: float  # C
    residuals: tuple[float, ...]  # ln of measured over fitted, by number of copies

    @property
    def copies(self) -> float:
        """The number of copies at which the line meets the limit."""
        return self.limit / self.rate

    @property
    def squares(self) -> float:
        """Sum of the squares of the residuals."""
        return math.fsum(residual**2 for residual in self.residuals)

    @property
    def rms(self) -> float:
        """Root mean square of the residuals."""
        return math.sqrt(self.squares / len(self.residuals))


def fit_saturation(copies: Sequence[int], rates: Sequence[float]) -> Saturation | None:
    """Return the saturating curve of least squares on ln X; None: no part of it is linear, or flat.

    For a limit between two numbers of copies, ln lambda is the mean of ln(X / n) before and ln C
    the mean of ln X behind; of all such fits that hang together the least is taken.
    """
    logs = [math.log(rate) for rate in rates]
    fits = []
    for first_flat in range(_LEAST_ON_A_SIDE, len(copies) - _LEAST_ON_A_SIDE + 1):
        line = [log - math.log(n) for log, n in zip(logs, copies, strict=True)][:first_flat]
        level = logs[first_flat:]
        ln_rate, ln_limit = math.fsum(line) / len(line), math.fsum(level) / len(level)
        # The line meets the level between the last linear point and the first flat one, or so near
        # to that one that it counts as both.
        meets_at = ln_limit - ln_rate
        earliest = math.log(copies[first_flat - 1]) - _NEAR
        if not earliest <= meets_at <= math.log(copies[first_flat]):
            continue
        residuals = (
            *(value - ln_rate for value in line),
            *(value - ln_limit for value in level),
        )
        fits.append(
            Saturation(rate=math.exp(ln_rate), limit=math.exp(ln_limit), residuals=residuals)
        )
    return min(fits, key=lambda fit: fit.squares, default=None)


def lack_of_fit(squares: float, degrees: int, error: float, noise: Noise) -> float | None:
    """Return how often residuals so large come about though the model holds; None: not known.

    F = (squares / degrees) / error^2, the mean square of the lack of fit over that of the pure
    error of the replicates (N. R. Draper and H. Smith, Applied Regression Analysis, 1998, 2.1).
    `squares` are those of the means about the model, `error` is the standard error of a mean.
    """
    if noise.degrees is None or degrees < 1:
        return None  # no replicates, no pure error
    if error <= 0:
        return 0.0 if squares > 0 else 1.0
    return f_exceeded(squares / degrees / error**2, degrees, noise.degrees)


def choose_model(
    law: Usl | NoLaw,
    copies: Sequence[int],
    rates: Sequence[float],
    runs: Sequence[int],
    noise: Noise,
) -> tuple[Usl | NoLaw, Saturation | None]:
    """Return the law, or why it does not describe the curve, and the saturating curve if that does.

    `copies`, `rates` and `runs` are those that the law was fitted to. Without replicates there is
    no test of either; one gives way where the other has essentially all support (Akaike).
    """
    if isinstance(law, NoLaw):
        return law, None
    error = math.sqrt(math.fsum(noise.of_mean(count) ** 2 for count in runs) / len(runs))
    saturation = fit_saturation(copies, rates)
    of_law = math.fsum(math.log1p(residual) ** 2 for residual in law.residuals)
    misses = _misses(of_law, len(copies) - _COEFFICIENTS_OF_LAW, error, noise, len(copies))
    if saturation is not None:
        degrees = len(copies) - _COEFFICIENTS_OF_LIMIT
        holds = not _misses(saturation.squares, degrees, error, noise, len(copies))
        advantage = _criterion(of_law, _COEFFICIENTS_OF_LAW, len(copies)) - _criterion(
            saturation.squares, _COEFFICIENTS_OF_LIMIT, len(copies)
        )
        if holds and (advantage > _NO_SUPPORT or (misses and advantage > 0)):
            reason = (
                f"the curve saturates at {saturation.copies:.0f} copies: linear up to there, then "
                f"flat (misfit {percent(saturation.rms)} %, that of the law {percent(law.rms)} %)"
            )
            return NoLaw(reason), saturation
    if misses:
        return NoLaw(
            f"it does not describe the curve: it misses by {percent(law.rms)} %, and the noise of "
            f"a point is {percent(error)} %"
        ), None
    return law, None


def _misses(squares: float, degrees: int, error: float, noise: Noise, points: int) -> bool:
    """Tell whether a model misses a curve beyond noise, and by what matters."""
    chance = lack_of_fit(squares, degrees, error, noise)
    is_material = math.sqrt(squares / points) > _MATERIAL_MISFIT
    return chance is not None and chance < _LACK_ALPHA and is_material


def _criterion(squares: float, coefficients: int, points: int) -> float:
    """Return the criterion of Akaike for least squares: k ln(squares / k) + 2 p."""
    return points * math.log(max(squares, 1e-12) / points) + 2 * coefficients
