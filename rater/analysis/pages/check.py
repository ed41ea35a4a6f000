"""Predicted against measured benefits of mappings: the error in per cent of the most; pure.

As IBM's CPO gives it: 100 x |predicted benefit - measured benefit|, each a share of the largest
benefit of its kind.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_DRAWS = 400
_SEED = 20


@dataclass(frozen=True, slots=True)
class CheckedMapping:
    """One mapping, as predicted and as it ran."""

    name: str
    times_s: tuple[float, ...]
    median_s: float
    predicted: float  # benefit as a share of the largest
    measured: float
    noise: float  # standard error of `measured`, by bootstrap

    @property
    def error(self) -> float:
        """Prediction less measurement, as a share of the maximum benefit."""
        return self.predicted - self.measured


@dataclass(frozen=True, slots=True)
class BenefitCheck:
    """All mappings that ran."""

    mappings: tuple[CheckedMapping, ...]
    most_saved_s: float  # by the best one measured
    most_saved_noise_s: float  # standard error
    told: bool  # the benefit stands out of the noise

    @property
    def mean_error(self) -> float:
        """Mean of absolute errors over mappings but the base, as a share."""
        rest = self.mappings[1:]
        return statistics.fmean(abs(it.error) for it in rest) if rest else 0.0

    @property
    def max_error(self) -> float:
        """Largest absolute error, as a share."""
        return max((abs(it.error) for it in self.mappings[1:]), default=0.0)


def check_benefits(
    names: Sequence[str], saved_ns: Sequence[float], times_s: Sequence[Sequence[float]]
) -> BenefitCheck:
    """Hold predicted savings of mappings, the base first, against times of runs.

    The measured benefit of a mapping is (base - it) / (base - fastest), of medians; its noise the
    spread of that over bootstrap samples of the times.
    """
    medians = np.array([statistics.median(it) for it in times_s])
    most = float(medians[0] - medians.min())
    random = np.random.default_rng(_SEED)
    drawn = np.array(
        [np.median(random.choice(np.asarray(it), (_DRAWS, len(it))), axis=1) for it in times_s]
    )
    best = int(medians.argmin())
    noise_s = float(np.std(drawn[0] - drawn[best])) if best else float(np.std(drawn[0]))
    spread = np.std((drawn[0] - drawn) / most, axis=1) if most > 0 else np.zeros(len(medians))
    largest = max(*saved_ns, 0.0)
    return BenefitCheck(
        tuple(
            CheckedMapping(
                name,
                tuple(times),
                float(median),
                saved / largest if largest > 0 else 0.0,
                float((medians[0] - median) / most) if most > 0 else 0.0,
                float(noise),
            )
            for name, saved, times, median, noise in zip(
                names, saved_ns, times_s, medians, spread, strict=True
            )
        ),
        most,
        noise_s,
        most > 3 * noise_s,
    )
