"""How often `rater model` chooses what is not there, and how often it finds what is.

    python -m benchmarks.model_choice [TRIALS]

Sweeps of 5 to 54 layouts, 6 rounds each, runs with Gaussian noise and a 3 % slow run now and then;
layouts themselves scatter too (`lumps`: what a model of x cannot know). Of nothing, a line and
bends of several sizes, the share of sweeps in which each model was warranted, with a 95 % interval
(Wilson) of the wrong ones.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from rater.analysis.stats.intervals import noise_within_rounds
from rater.lab.fits import fit_polynomial
from rater.lab.models import choose_model

ROUNDS, RUN_NOISE = 6, 0.02
CASES = {  # slope and bend, as shares of y; what is right
    "nothing": (0.0, 0.0, None),
    "line 40 %": (-0.4, 0.0, "linear"),
    "line 3 %": (-0.03, 0.0, "linear"),
    "bend 2 %": (-0.4, 0.02, "quadratic"),
    "bend 5 %": (-0.4, 0.05, "quadratic"),
    "bend 20 %": (-0.4, 0.2, "quadratic"),
}


def chosen(
    random: np.random.Generator, layouts: int, slope: float, bend: float, lumps: float
) -> str | None:
    """Return what one made-up sweep warrants."""
    x = np.linspace(0, 1, layouts)
    true = 1 + slope * x + bend * (2 * x - 1) ** 2
    true *= 1 + lumps * random.standard_normal(layouts)
    runs = true * np.exp(RUN_NOISE * random.standard_normal((ROUNDS, layouts)))
    runs *= np.where(random.random(runs.shape) < 0.05, 1.03, 1.0)
    y = np.exp(np.median(np.log(runs), axis=0))
    noise = noise_within_rounds([dict(enumerate(one)) for one in runs.T.tolist()])
    assert noise is not None
    fits = [fit for degree in range(3) if (fit := fit_polynomial(x, y, degree)) is not None]
    return choose_model((x, y), fits, noise.of_median(ROUNDS)).chosen


def wilson(hits: int, trials: int) -> str:
    """Return the 95 % interval of a share in per cent."""
    z, share = 1.96, hits / trials
    middle = (share + z * z / 2 / trials) / (1 + z * z / trials)
    half = z * math.sqrt(share * (1 - share) / trials + (z / 2 / trials) ** 2)
    half /= 1 + z * z / trials
    return f"{100 * (middle - half):.1f}-{100 * (middle + half):.1f}"


def main(trials: int) -> None:
    """Print the table."""
    random = np.random.default_rng(17)
    print(f"{trials} sweeps each, {ROUNDS} rounds, runs vary by {RUN_NOISE * 100:g} %")
    print("case        lumps layouts  nothing   line   bend  wrong %")
    for name, (slope, bend, right) in CASES.items():
        for lumps in (0.0, 0.02):
            for layouts in (5, 9, 16, 54):
                found = [chosen(random, layouts, slope, bend, lumps) for _ in range(trials)]
                shares = [found.count(it) / trials for it in (None, "linear", "quadratic")]
                told = " ".join(f"{100 * share:6.1f}" for share in shares)
                wrong = wilson(sum(it != right for it in found), trials)
                print(f"{name:10} {lumps * 100:4.0f} % {layouts:7}  {told}  {wrong}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
