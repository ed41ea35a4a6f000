"""Noise of several kinds, each with mean 0 and standard deviation 1, and its upper tail."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

type Values = NDArray[np.float64]
type Chance = np.random.Generator

KINDS = {
    "normal": 0.25,
    "t5": 0.12,
    "t3": 0.13,
    "lognormal": 0.12,
    "gamma": 0.12,
    "spikes": 0.13,
    "ar1": 0.13,
}
_SIGMA = 0.5  # of the lognormal
_SHAPE = 3  # of the gamma
MOST_SPIKES, SPIKE = 0.01, 4.0  # share of copy runs; mean size in deviations
RHO = 0.7  # of the AR(1) between iterations


def _normal_tail(x: float) -> float:
    return 0.5 * math.erfc(x / math.sqrt(2))


def t_tail(t: float, degrees: int) -> float:
    """Return P(T > t) of Student's t, from its density: exact for large t and for many degrees."""
    if t <= 0:
        return 0.5
    half = (degrees + 1) / 2
    density = math.lgamma(half) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2
    density -= half * math.log1p(t * t / degrees)
    return min(0.5, math.exp(density) * (t * t + degrees) / (degrees * t))


@dataclass(frozen=True)
class Noise:
    """A kind of noise."""

    kind: str

    def draw(self, rng: Chance, shape: tuple[int, int, int]) -> Values:
        """Return noise by benchmark, iteration and copy; in `ar1` iterations hang together."""
        if self.kind in ("t3", "t5"):
            degrees = int(self.kind[1])
            return rng.standard_t(degrees, shape) / math.sqrt(degrees / (degrees - 2))
        if self.kind == "lognormal":
            raw = rng.lognormal(0, _SIGMA, shape) - math.exp(_SIGMA**2 / 2)
            return raw / math.sqrt((math.exp(_SIGMA**2) - 1) * math.exp(_SIGMA**2))
        if self.kind == "gamma":
            return (rng.gamma(_SHAPE, 1, shape) - _SHAPE) / math.sqrt(_SHAPE)
        steps: Values = rng.normal(0, 1, shape)
        if self.kind == "ar1":
            for i in range(1, shape[1]):
                steps[:, i] = RHO * steps[:, i - 1] + math.sqrt(1 - RHO**2) * steps[:, i]
        return steps

    def tail(self, x: float, n: int) -> float:
        """Return P(mean of `n` iterations > x), in deviations; by one large value or by all."""
        many = _normal_tail(x * math.sqrt(self.worth(n)))
        at = n * x
        if self.kind in ("t3", "t5"):
            degrees = int(self.kind[1])
            return many + n * t_tail(at * math.sqrt(degrees / (degrees - 2)), degrees)
        if self.kind == "lognormal":
            scale = math.sqrt((math.exp(_SIGMA**2) - 1) * math.exp(_SIGMA**2))
            return many + n * _normal_tail(math.log(at * scale + math.exp(_SIGMA**2 / 2)) / _SIGMA)
        if self.kind == "gamma":
            y = at * math.sqrt(_SHAPE) + _SHAPE
            return many + n * math.exp(-y) * sum(y**k / math.factorial(k) for k in range(_SHAPE))
        if self.kind == "spikes":
            return many + n * MOST_SPIKES * math.exp(-at / SPIKE)
        return many

    def worth(self, n: int) -> float:
        """Return how many independent iterations `n` of them are worth."""
        return n / (1 + (n - 1) * RHO) if self.kind == "ar1" else n
