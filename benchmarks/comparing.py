"""How honest and how keen `rater compare` is: simulated runs of known difference and noise.

`python -m benchmarks.comparing [--times N] [--seed N]` prints, for each kind of noise, how often
two equal points are called better or worse (5 % at most is promised), how often 2 % is
found with ten rounds, how often the true ratio lies in the interval, how often a sweep
that stops when it is decided is wrong, and how many rounds `same within 1 %` takes.

The intervals are those of `rater.analysis.stats.intervals`, computed here for all simulated
series at once; the first of each kind are checked against the functions themselves.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rater.analysis.stats.estimate import paired_estimate, t_quantile, unpaired_estimate
from rater.analysis.stats.intervals import (
    CONFIDENCE,
    MOST_ROUNDS,
    Decision,
    confidence_per_look,
    ratio_interval,
)

type Values = NDArray[np.float64]
type Noise = Callable[[np.random.Generator, tuple[int, ...]], Values]

NOISE = 0.01  # standard deviation of a run's logarithm
MARGIN = 0.01
_CHECKED = 20


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """Noise of many small causes."""
    return rng.normal(0, NOISE, shape)


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """Now and then a value far off: Student's t with three degrees, of the same deviation."""
    return rng.standard_t(3, shape) * NOISE / math.sqrt(3)


def lognormal(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """Slow runs that lie farther off than fast ones: -lognormal(0, 0.75), of that deviation."""
    sigma = 0.75
    deviation = math.sqrt((math.exp(sigma**2) - 1) * math.exp(sigma**2))
    return -(rng.lognormal(0, sigma, shape) - math.exp(sigma**2 / 2)) * NOISE / deviation


def outliers(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    """Half the noise, and in every tenth run up to 5 % on top."""
    return rng.normal(0, NOISE / 2, shape) - (rng.random(shape) < 0.1) * rng.uniform(0, 0.05, shape)


NOISES: dict[str, Noise] = {
    "normal": normal,
    "heavy tails (t, 3 df)": heavy,
    "lognormal": lognormal,
    "10 % outliers": outliers,
}


@cache
def _t(confidence: float, degrees: float) -> float:
    return t_quantile(confidence, degrees)


def paired_intervals(differences: Values, confidence: float = 0.95) -> tuple[Values, Values]:
    """Return means and half widths over the last axis."""
    rounds = differences.shape[-1]
    error = differences.std(axis=-1, ddof=1) / math.sqrt(rounds)
    return differences.mean(axis=-1), _t(confidence, rounds - 1) * error


def welch_intervals(first: Values, second: Values) -> tuple[Values, Values]:
    """Return differences of means over the last axis, and half widths."""
    size = first.shape[-1]
    variances = first.var(axis=-1, ddof=1) / size, second.var(axis=-1, ddof=1) / size
    whole = variances[0] + variances[1]
    degrees = whole**2 / ((variances[0] ** 2 + variances[1] ** 2) / (size - 1))
    # Between 1 and 2 (size - 1): a table of quantiles is exact enough.
    grid = np.linspace(size - 1, 2 * (size - 1), 200)
    table = np.array([_t(0.95, float(one)) for one in grid])
    return first.mean(axis=-1) - second.mean(axis=-1), np.interp(degrees, grid, table) * np.sqrt(
        whole
    )


def false_verdicts(noise: Noise, rounds: int, times: int, rng: np.random.Generator) -> float:
    """Return how often equal points in blocks are called better or worse."""
    mean, reach = paired_intervals(noise(rng, (times, rounds)) - noise(rng, (times, rounds)))
    return float(np.mean(np.abs(mean) > reach))


def share_with_sign(
    noise: Noise, effect: float, rounds: int, times: int, rng: np.random.Generator
) -> float:
    """Return how often an effect is told with its sign."""
    log = math.log1p(effect)
    differences = log + noise(rng, (times, rounds)) - noise(rng, (times, rounds))
    mean, reach = paired_intervals(differences)
    return float(np.mean((np.abs(mean) > reach) & (np.sign(mean) == np.sign(log))))


def covered(noise: Noise, rounds: int, times: int, rng: np.random.Generator) -> float:
    """Return how often the true ratio of 0.97 lies in the interval."""
    differences = math.log(0.97) + noise(rng, (times, rounds)) - noise(rng, (times, rounds))
    mean, reach = paired_intervals(differences)
    return float(np.mean(np.abs(mean - math.log(0.97)) <= reach))


def stopped_wrongly(
    noise: Noise, rounds: int, times: int, rng: np.random.Generator, looks: int | None = None
) -> tuple[float, float]:
    """Return how often a sweep that looks after each round from the third on ends wrong.

    Of two equal points; and how often it ends with `same`. `looks`: what the level is for.
    """
    confidence = confidence_per_look(rounds - 2 if looks is None else looks)
    differences = noise(rng, (times, rounds)) - noise(rng, (times, rounds))
    going = np.ones(times, dtype=bool)
    wrong = same = 0
    edge = math.log1p(MARGIN)
    for many in range(3, rounds + 1):
        mean, reach = paired_intervals(differences[:, :many], confidence)
        apart = going & (np.abs(mean) > reach)
        alike = going & ~apart & (np.abs(mean) + reach < edge)
        wrong += int(apart.sum())
        same += int(alike.sum())
        going &= ~(apart | alike)
    return wrong / times, same / times


def drifting(
    drift: float, rounds: int, times: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Return how often equal points are apart while the machine gets slower: in pairs, as runs.

    Which of the two is first in a round is drawn anew each time, as `rater sweep` does.
    """
    first = rng.random((times, rounds)) < 0.5
    at = np.arange(rounds)
    here = normal(rng, (times, rounds)) - drift * (at + np.where(first, 0.0, 0.5)) / rounds
    there = normal(rng, (times, rounds)) - drift * (at + np.where(first, 0.5, 0.0)) / rounds
    mean, reach = paired_intervals(here - there)
    other, width = welch_intervals(here, there)
    return float(np.mean(np.abs(mean) > reach)), float(np.mean(np.abs(other) > width))


def one_against(runs: int, times: int, rng: np.random.Generator) -> float:
    """Return how often one run is called apart from several equal ones."""
    here, there = normal(rng, (times,)), normal(rng, (times, runs))
    error = there.std(axis=-1, ddof=1) * math.sqrt(1 + 1 / runs)
    return float(np.mean(np.abs(here - there.mean(axis=-1)) > _t(0.95, runs - 1) * error))


def any_holds(
    benchmarks: int, points: int, rounds: int, times: int, rng: np.random.Generator
) -> float:
    """Return how often anything in a table of equal points is marked as holding up (Holm).

    Holm's first step is Bonferroni's: anything holds where the smallest p does. Points
    share their baseline, and benchmarks of a run half of its noise.
    """
    shape = (times, points + 1, benchmarks, rounds)
    runs = normal(rng, shape) + normal(rng, (times, points + 1, 1, rounds))
    differences = runs[:, 1:] - runs[:, :1]
    confidence = 1 - 0.05 / (benchmarks * points)
    mean, reach = paired_intervals(differences.reshape(times, -1, rounds), confidence)
    return float(np.mean((np.abs(mean) > reach).any(axis=1)))


def told_same(noise: float, rounds: int, times: int, rng: np.random.Generator) -> float:
    """Return how often equal points are called the same."""
    mean, reach = paired_intervals(rng.normal(0, noise * math.sqrt(2), (times, rounds)))
    return float(np.mean(np.abs(mean) + reach < math.log1p(MARGIN)))


def check_against_functions(rng: np.random.Generator) -> None:
    """Raise `AssertionError` where the formulas here are not those that rater uses."""
    first, second = normal(rng, (_CHECKED, 7)), normal(rng, (_CHECKED, 7))
    mean, reach = paired_intervals(first - second)
    other, width = welch_intervals(first, second)
    for case_number in range(_CHECKED):
        interval = ratio_interval(
            paired_estimate(list(first[case_number] - second[case_number])), MARGIN
        )
        assert math.isclose(
            interval.high or 0, math.exp(mean[case_number] + reach[case_number]), rel_tol=1e-9
        )
        assert (interval.verdict in (Decision.BETTER, Decision.WORSE)) == (
            abs(mean[case_number]) > reach[case_number]
        )
        interval = ratio_interval(
            unpaired_estimate(list(first[case_number]), list(second[case_number])), MARGIN
        )
        assert math.isclose(
            interval.high or 0, math.exp(other[case_number] + width[case_number]), rel_tol=1e-6
        )


def rounds_for_same(noise: float, margin: float, chance: float = 0.8) -> int | None:
    """Return how many rounds of pairs show that two equal things are the `same`.

    `noise`: standard deviation of one run (0.01: 1 %); `chance`: how often that many are
    enough. None: more than `MOST_ROUNDS`. By Student's t in both parts: rounds >=
    ((t(0.95) + t(chance)) x sqrt(2) x noise / log(1 + margin))^2, where half of the failures
    are on either side; the simulation below holds it.
    """
    edge = math.log1p(margin)

    def enough(rounds: int) -> bool:
        t = t_quantile(CONFIDENCE, rounds - 1) + t_quantile(chance, rounds - 1)
        return t * math.sqrt(2 / rounds) * noise <= edge

    return next((rounds for rounds in range(2, MOST_ROUNDS + 1) if enough(rounds)), None)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=7)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    check_against_functions(rng)
    times = asked.times
    print(f"{times} series each, {NOISE:.0%} noise of a run; shares in %")
    for name, noise in NOISES.items():
        print(name)
        for rounds in (2, 3, 5, 10, 20):
            line = [
                f"equal called apart {100 * false_verdicts(noise, rounds, times, rng):5.2f}",
                f"covered {100 * covered(noise, rounds, times, rng):5.2f}",
                f"+2 % found {100 * share_with_sign(noise, 0.02, rounds, times, rng):5.1f}",
                f"-2 % found {100 * share_with_sign(noise, -0.02, rounds, times, rng):5.1f}",
            ]
            print(f"  {rounds:3} rounds: {', '.join(line)}")
        wrong, same = stopped_wrongly(noise, 20, times, rng)
        naive, _ = stopped_wrongly(noise, 20, times, rng, looks=1)
        print(
            f"  looked at after each of rounds 3 to 20: apart {100 * wrong:.2f}, same "
            f"{100 * same:.1f} (without the stricter level apart {100 * naive:.1f})"
        )
    print("drift of 10 % from the first to the last round, two points in shuffled order")
    for rounds in (3, 5, 10):
        pairs, apart = drifting(0.1, rounds, times, rng)
        print(f"  {rounds:3} rounds: apart in pairs {100 * pairs:5.2f}, as runs {100 * apart:5.2f}")
    print("equal points without blocks (Welch), the second of three times the noise")
    for rounds in (2, 3, 5, 10):
        here, there = normal(rng, (times, rounds)), 3 * normal(rng, (times, rounds))
        mean, reach = welch_intervals(here, there)
        print(f"  {rounds:3} runs each: apart {100 * np.mean(np.abs(mean) > reach):5.2f}")
    print("one run against several (their noise taken for both)")
    for runs in (2, 3, 5, 10):
        print(f"  1 and {runs:2}: apart {100 * one_against(runs, times, rng):5.2f}")
    for benchmarks, points in ((1, 3), (14, 1), (29, 3)):
        share = any_holds(benchmarks, points, 5, max(1, times // 20), rng)
        print(f"tables of {benchmarks} x {points} equal: anything marked in {100 * share:.2f}")
    print("rounds until equal points are the same within 1 %, and how often that many do")
    for level in (0.002, 0.005, 0.01, 0.02):
        wanted = rounds_for_same(level, MARGIN)
        if wanted is not None:
            often = told_same(level, wanted, max(1, times // 10), rng)
            print(f"  noise {level:.1%}: {wanted:3} rounds, {100 * often:5.1f}")


if __name__ == "__main__":
    main()
