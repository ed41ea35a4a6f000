"""Steps told in simulated histories of a host: false ones in quiet series, recall of planted ones.

    python -m benchmarks.history_steps [--series 2000]

A series is a point a week: white noise (normal, Student's t of 4 degrees) or noise that remembers
(AR(1) of .3 and .6), of 1 % each. Intervals are 95 % (Wilson).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks.slow_hosts import wilson
from rater.fleet.history import find_steps

type Noise = Callable[[np.random.Generator, int], npt.NDArray[np.float64]]

SD, LEAST = 0.01, 0.015
WEEKS = (8, 13, 26, 52)
STEPS = (0.02, 0.03, 0.05)


def remembering(share: float) -> Noise:
    """AR(1) noise of the same spread."""

    def noise(random: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        values = random.standard_normal(count)
        for place in range(1, count):
            own = (1 - share**2) ** 0.5 * values[place]
            values[place] = share * values[place - 1] + own
        return values

    return noise


NOISES: dict[str, Noise] = {
    "normal": lambda random, count: random.standard_normal(count),
    "t of 4": lambda random, count: random.standard_t(4, count) / 2**0.5,
    "AR(1) .3": remembering(0.3),
    "AR(1) .6": remembering(0.6),
}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=2000)
    args = parser.parse_args()
    many = args.series
    print(f"series of {SD:.0%} noise with a step told though there is none")
    for name, noise in NOISES.items():
        told = []
        for weeks in WEEKS:
            random = np.random.default_rng(1)
            hits = sum(bool(find_steps(SD * noise(random, weeks), LEAST)) for _ in range(many))
            low, high = wilson(hits, many)
            told.append(f"{weeks} weeks {hits / many:.4f} ({low:.4f}-{high:.4f})")
        print(f"{name:10}: {'; '.join(told)}", flush=True)
    print("a step at half of the series told within one week of it (t of 4)")
    for size in STEPS:
        told = []
        for weeks in WEEKS:
            random = np.random.default_rng(2)
            hits = 0
            for _ in range(many):
                values = SD * NOISES["t of 4"](random, weeks)
                values[weeks // 2 :] += size
                hits += any(abs(it.first - weeks // 2) <= 1 for it in find_steps(values, LEAST))
            low, high = wilson(hits, many)
            told.append(f"{weeks} weeks {hits / many:.2f} ({low:.2f}-{high:.2f})")
        print(f"{size:+.0%}: {'; '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
