"""Predicted against measured benefits of mappings: the error in per cent of the most; pure.

As IBM's CPO gives it: 100 x |predicted benefit - measured benefit|, each a share of the largest
benefit of its kind.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rater.analysis.pages.ranking import RankedMapping, different_mappings
from rater.record.pages import PageTrace

_DRAWS = 1000
_SEED = 20
_SURE = 3.0  # standard errors that the largest benefit has to be above nothing


@dataclass(frozen=True, slots=True)
class CheckedMapping:
    """One mapping, as predicted and as it ran."""

    name: str
    times_s: tuple[float, ...]
    median_s: float
    predicted: float  # benefit as a share of the largest
    measured: float
    noise: float  # standard error of `measured`, by bootstrap over rounds

    @property
    def error(self) -> float:
        """Prediction less measurement, as a share of the maximum benefit."""
        return self.predicted - self.measured


@dataclass(frozen=True, slots=True)
class BenefitCheck:
    """All mappings that ran."""

    mappings: tuple[CheckedMapping, ...]
    predicted_s: float  # that the best one saves
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
    """Hold predicted savings of mappings, the base first, against times of runs by round.

    A mapping saves the median over rounds of (base - it) in the same round, which slow drift of
    the machine hits alike; its noise is the spread of that share over bootstrap samples of rounds.
    """
    rounds = min(len(it) for it in times_s)
    times = np.array([list(it[:rounds]) for it in times_s])
    differences = times[0] - times
    saved = np.median(differences, axis=1)
    most, best = float(saved.max()), int(saved.argmax())
    random = np.random.default_rng(_SEED)
    drawn = random.integers(0, rounds, (_DRAWS, rounds))
    again = np.median(differences[:, drawn], axis=2)  # mappings x draws
    noise_s = float(np.std(again[best])) if best else float(np.std(again[1:], axis=1).mean())
    spread = np.std(again / most, axis=1) if most > 0 else np.zeros(len(times))
    largest = max(*saved_ns, 0.0)
    return BenefitCheck(
        tuple(
            CheckedMapping(
                name,
                tuple(map(float, own)),
                float(np.median(own)),
                predicted / largest if largest > 0 else 0.0,
                float(less / most) if most > 0 else 0.0,
                float(noise),
            )
            for name, predicted, own, less, noise in zip(
                names, saved_ns, times, saved, spread, strict=True
            )
        ),
        largest * 1e-9,
        most,
        noise_s,
        most > _SURE * noise_s,
    )


def mappings_to_check(
    trace: PageTrace, ranked: Sequence[RankedMapping], saved_ns: Sequence[float], *, every: bool
) -> list[int]:
    """Return places of the mappings to run, that in base pages first.

    `every` one that differs, or the predicted best and worst and the largest pages for all.
    """
    different = different_mappings(trace, ranked)
    if every:
        return different
    in_order = sorted(different, key=lambda place: saved_ns[place])
    most = max(different, key=lambda place: ranked[place].large_bytes)
    return sorted({0, in_order[0], in_order[-1], most})
