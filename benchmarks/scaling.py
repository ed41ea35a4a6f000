"""How often `rater scale` names a knee, a plateau and a fall, and how its law covers the truth.

`python -m benchmarks.scaling` prints tables (some minutes); the tests have small ones of them.
Beside rater's rule stands Kneedle (Satopaa et al. 2011, offline, concave, sensitivity 1), which
was tried first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from rater.analysis.stats.curves import Usl, curve_shape, fit_usl
from rater.analysis.stats.intervals import run_to_run_noise

GRIDS = {
    "1 2 4": (1, 2, 4),
    "1 2 4 .. 32": (1, 2, 4, 8, 16, 32),
    "1 2 4 .. 128": (1, 2, 4, 8, 16, 32, 64, 128),
    "1 2 3 .. 16": tuple(range(1, 17)),
    "dense at the end": (1, 2, 4, 8, 16, 24, 32, 48, 60, 62, 64),
}


def law(sigma: float, kappa: float) -> Callable[[int], float]:
    return lambda n: n / (1 + sigma * (n - 1) + kappa * n * (n - 1))


def measured(
    copies: Sequence[int],
    truth: Callable[[int], float],
    sd: float,
    runs: int,
    rng: np.random.Generator,
) -> list[list[float]]:
    return [[truth(n) * math.exp(rng.normal(0, sd)) for _ in range(runs)] for n in copies]


def kneedle(copies: Sequence[int], rates: Sequence[float], sensitivity: float = 1.0) -> int | None:
    """Return the first knee: a top of the difference curve that falls below its threshold."""
    x = (np.array(copies) - copies[0]) / (copies[-1] - copies[0])
    low, high = min(rates), max(rates)
    difference = (np.array(rates) - low) / (high - low) - x
    step = sensitivity * float(np.mean(np.diff(x)))
    for i in range(1, len(x) - 1):
        if difference[i - 1] < difference[i] >= difference[i + 1]:
            for later in difference[i + 1 :]:
                if later > difference[i]:
                    break
                if later < difference[i] - step:
                    return copies[i]
    return None


def shapes(trials: int, rng: np.random.Generator) -> None:
    print(f"share of {trials} curves with ...        knee    plateau  fall    (Kneedle: knee)")
    truths: dict[str, Callable[[Sequence[int]], Callable[[int], float]]] = {
        "linear": lambda copies: float,
        "sigma 0.02": lambda copies: law(0.02, 0.0),
        "flat from half": lambda copies: lambda n: min(float(n), copies[-1] / 2),
        "sigma .02 kappa .0005": lambda copies: law(0.02, 0.0005),
    }
    for what, truth_of in truths.items():
        for grid, copies in GRIDS.items():
            for runs, sd in ((1, 0.02), (1, 0.05), (3, 0.02), (3, 0.05), (5, 0.05)):
                found = Counter[str]()
                knees, others = Counter[int | None](), Counter[int | None]()
                for _ in range(trials):
                    rates = measured(copies, truth_of(copies), sd, runs, rng)
                    medians = [float(np.median(one)) for one in rates]
                    shape = curve_shape(
                        copies, medians, [runs] * len(copies), run_to_run_noise(rates)
                    )
                    found["knee"] += shape.knee is not None
                    found["plateau"] += shape.plateau is not None
                    found["fall"] += shape.falls_at is not None
                    knees[shape.knee] += 1
                    others[kneedle(copies, medians)] += 1
                print(
                    f"{what:22} {grid:17} {runs} runs {sd:.0%}  {found['knee'] / trials:6.3f}  "
                    f"{found['plateau'] / trials:6.3f}  {found['fall'] / trials:6.3f}   "
                    f"{1 - others[None] / trials:6.3f}  at {knees.most_common(2)}, "
                    f"Kneedle {others.most_common(2)}"
                )


def laws(trials: int, rng: np.random.Generator) -> None:
    print(f"\nlaw: of {trials} curves how many are fitted, and intervals that hold the truth")
    for sigma, kappa in ((0.0, 0.0), (0.02, 0.0), (0.05, 0.001), (0.1, 0.002), (0.0, 0.002)):
        for grid in ("1 2 4 .. 32", "1 2 4 .. 128", "1 2 3 .. 16"):
            copies = GRIDS[grid]
            for runs, sd in ((1, 0.02), (1, 0.05), (3, 0.02)):
                fits, bad, peaks = 0, 0, 0
                held = Counter[str]()
                for _ in range(trials):
                    rates = measured(copies, law(sigma, kappa), sd, runs, rng)
                    medians = [float(np.median(one)) for one in rates]
                    fit = fit_usl(copies, medians, [runs] * len(copies), run_to_run_noise(rates))
                    if isinstance(fit, Usl):
                        fits += 1
                        bad += fit.bad
                        peaks += fit.peak is not None
                        free = fit.sigma.error is not None and fit.kappa.error is not None
                        held["free"] += free
                        for name, one, true in (
                            ("lambda", fit.rate, 1.0),
                            ("sigma", fit.sigma, sigma),
                            ("kappa", fit.kappa, kappa),
                        ):
                            held[name] += one.low <= true <= one.high
                several = max(1, fits)
                print(
                    f"sigma {sigma:4} kappa {kappa:5} {grid:13} {runs} runs {sd:.0%}: fitted "
                    f"{fits / trials:5.3f}, bad {bad / trials:5.3f}, peak {peaks / trials:5.3f}; "
                    f"free {held['free'] / trials:5.3f}; lambda {held['lambda'] / several:.3f} "
                    f"sigma {held['sigma'] / several:.3f} kappa {held['kappa'] / several:.3f}"
                )


if __name__ == "__main__":
    generator = np.random.default_rng(7)
    shapes(400, generator)
    laws(400, generator)
