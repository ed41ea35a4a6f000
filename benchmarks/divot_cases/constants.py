"""`python -m benchmarks.divot_cases.constants [--cases N]`: the sources of the constants.

Some are computed again here by simulation. Those that were chosen are halved and doubled: how
many planted causes are found, and how many runs have a wrong finding, on the shapes of
`benchmarks.divot_cases.shapes`. docs/develop/detector-terms.md has the figures.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import numpy as np

from benchmarks.divot_cases import shapes
from rater.analysis.divots.model import (
    comparison,
    nulls,
    part_effects,
    patterns,
    places,
    series,
    sizes,
    spreads,
    tails,
    times,
)
from rater.analysis.divots.model.nulls import SpreadPrior, huber_mean
from rater.analysis.stats.robust import Floats

_SEED = "constants"
_REPEATS = 20_000
_MOST_COPY_RUNS = 2000  # of a case, for speed


def print_huber_loss(random: np.random.Generator) -> None:
    """Print the variance of a Huber mean of n normal values over that of their mean."""
    ratios = []
    for count in (3, 4, 6, 8, 16, 64):
        values = random.standard_normal((_REPEATS, count))
        ratios.append(f"n {count}: {count * float(np.var(huber_mean(values, 1.0))):.3f}")
    print("places._HUBER_LOSS 1.1:", ", ".join(ratios))


def print_width_information(random: np.random.Generator) -> None:
    """Print 1 / (n * variance of the ln width of a cell of n normal copies)."""
    information = []
    for count in (8, 16, 32, 128):
        values = random.standard_normal((_REPEATS // 4, count))
        distance = np.abs(values - np.median(values, axis=1, keepdims=True))
        width = np.log(np.quantile(distance, 0.6827, axis=1))
        information.append(f"n {count}: {1 / (count * float(np.var(width))):.2f}")
    print("spreads._WIDTH_INFORMATION 1.2:", ", ".join(information))


def print_grid_error() -> None:
    """Print the largest change of evidence by ten times as many points of the prior's grid."""
    difference = np.linspace(0.002, 0.1, 50)
    variance = np.full(50, 1e-6)
    coarse = SpreadPrior(0.002, 1.5).evidence(difference, variance, 20.0)
    with changed(nulls, "_GRID_POINTS", 140):
        fine = SpreadPrior(0.002, 1.5).evidence(difference, variance, 20.0)
    error = float(np.max(np.abs(coarse - fine) / np.maximum(fine, 1.0)))
    print(f"nulls._GRID_POINTS 14: evidence differs from 140 points by at most {100 * error:.1f} %")


def print_subset_price(random: np.random.Generator) -> None:
    """Print how often the best m of B benchmarks exceed a net evidence of x nats by chance.

    Each benchmark has a normal deviate; those of one sign beyond 2 sd add up their evidence. The
    nominal rate is exp(-x).
    """
    for count in (2, 5, 14):
        deviates = random.standard_normal((10 * _REPEATS, count))
        evidence = nulls.evidence_of_t(deviates, nulls.ABOUT_NORMAL)
        best = np.full(len(deviates), -1.0)
        for sign in (1, -1):
            ordered = -np.sort(-np.where(deviates * sign > 2, evidence, 0.0), axis=1)
            clear = np.cumprod(ordered > 0, axis=1) > 0
            price = part_effects._price_of_subsets(count)
            net = np.where(clear, np.cumsum(ordered, axis=1) - price, -1.0)
            best = np.maximum(best, net.max(axis=1))
        for nats in (3.0, 6.0):
            rate, nominal = float((best > nats).mean()), math.exp(-nats)
            print(f"part_effects: best of {count}: {rate:.4f} beyond {nats:g} nats, {nominal:.4f}")


def print_borne_shares(random: np.random.Generator) -> None:
    """Print the 1 % quantile of the share of 8 shifted copies that show it, over the expected."""
    count, others = 8, 56
    for ratio in (2.0, 4.0, 8.0):  # the shift in sd
        inside = random.standard_normal((_REPEATS, count)) + ratio > ratio / 2
        outside = random.standard_normal((_REPEATS, others)) > ratio / 2
        expected = 1 - 2 * float(np.exp(nulls.ln_normal_tail(np.array([ratio / 2])))[0])
        share = (inside.mean(axis=1) - outside.mean(axis=1)) / expected
        print(
            f"part_effects._BORNE 0.7: shift of {ratio:g} sd: 1 % of parts of 8 show less than "
            f"{float(np.quantile(share, 0.01)):.2f}; of a fault of 3 of them {3 / 8 / expected:.2f}"
        )


# -- Chosen constants: half and twice as much ------------------------------------------------------


def _scaled(prior: SpreadPrior, times_as_large: float) -> SpreadPrior:
    """Return a prior with another typical sd, the weights' width kept (factor 1.6)."""
    return SpreadPrior(prior.typical * times_as_large, 1.6)


def alternatives() -> Iterator[tuple[ModuleType, str, object, str]]:
    """Yield module, name, another value and its description."""
    scalars = [
        (comparison, "FAST_PRICE"),
        (comparison, "_PRIOR_DF"),
        (comparison, "_OTHER_ROWS_SHARE"),
        (places, "_AGREEMENT_DF"),
        (places, "_MOST_REPEAT_DF"),
        (part_effects, "_TIMED_NATS"),
        (patterns, "_LACK_OF_FIT_WEIGHT"),
        (series, "_TAKEN_DF"),
        (series, "_MOST_PRIOR_DF"),
        (tails, "_SIDED_FROM"),
        (tails, "_OWN_TAIL_WEIGHT"),
        (tails, "_OUTLYING_GAP"),
        (times, "_PRIOR_DF"),
        (times, "_SHOWS"),
    ]
    for module, name in scalars:
        for factor in (0.5, 2.0):
            yield module, name, getattr(module, name) * factor, f"x {factor:g}"
    for module, name in (
        (places, "PARTS"),
        (places, "PARTS_IN_CELL"),
        (places, "COPIES"),
        (places, "COPIES_IN_CELL"),
        (patterns, "SLOPE"),
        (spreads, "WIDTH"),
        (times, "COMMON"),
        (times, "OF_ONE"),
    ):
        for factor in (0.5, 2.0):
            yield module, name, _scaled(getattr(module, name), factor), f"x {factor:g}"
    yield tails, "_LN_PRIOR", np.log(np.full(10, 0.1)), "equal weights"
    yield series, "_LN_PRIOR", np.log(np.full(6, 1 / 6)), "equal weights"
    yield sizes, "_PASSES", 3, "3 passes"
    yield patterns, "_SLOPE_PASSES", 3, "3 passes"


@contextmanager
def changed(module: ModuleType, name: str, value: object) -> Iterator[None]:
    """Have another value of a constant for a while."""
    usual = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, usual)


def judge(cases: list[shapes.Made]) -> Floats:
    """Return how many planted causes are found, and how many runs have a wrong finding."""
    verdicts = [shapes.verdict(case) for case in cases]
    return np.array([sum(hit for hit, _, _ in verdicts), sum(wrong for _, wrong, _ in verdicts)])


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100)
    arguments = parser.parse_args()
    random = np.random.default_rng(1)
    print_huber_loss(random)
    print_width_information(random)
    print_grid_error()
    print_subset_price(random)
    print_borne_shares(random)
    cases: list[shapes.Made] = []
    number = 0
    while len(cases) < arguments.cases:
        case = shapes.make(_SEED, number)
        cases += [case] if case.log_s.size <= _MOST_COPY_RUNS else []
        number += 1
    planted = sum(case.kind != "clean" for case in cases)
    right, wrong = judge(cases).tolist()
    print(
        f"{planted} of {len(cases)} runs have a cause: {right} found; {wrong} have a wrong finding"
    )
    for module, name, value, about in alternatives():
        with changed(module, name, value):
            right, wrong = judge(cases).tolist()
        place = module.__name__.rpartition(".")[2]
        print(f"{place}.{name} {about}: {right} found; {wrong} wrong", flush=True)


if __name__ == "__main__":
    main()
