"""Slow hosts in simulated fleets: false hosts per clean fleet and recall, this rule and others.

    python -m benchmarks.slow_hosts [--fleets 200] [--hosts 4,8,64,1000]

A fleet: 14 benchmarks of 3 iterations; noise of an iteration is Student's t of 4 degrees, scaled to
a benchmark's own coefficient of variation (.3 % to 1.5 %); hosts are naturally .3 % apart, half of
it the host's in all benchmarks, half in each. Intervals are 95 %: Poisson for false hosts (exact),
Wilson for shares.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from rater.fleet.model import compare_hosts

type Floats = npt.NDArray[np.float64]
type Rule = Callable[[Floats], set[int]]

BENCHMARKS, ITERATIONS, SPREAD = 14, 3, 0.003
CASES = {  # what is planted on one host: benchmarks, ln slowdown
    "+1.5 % everywhere": (slice(None), 0.015),
    "+2 % everywhere": (slice(None), 0.02),
    "+3 % everywhere": (slice(None), 0.03),
    "+5 % everywhere": (slice(None), 0.05),
    "+5 % in 4 of 14": (slice(0, 4), 0.05),
    "+5 % in one": (slice(0, 1), 0.05),
    "+10 % in one": (slice(0, 1), 0.10),
}


def fleet(hosts: int, random: np.random.Generator, spread: float = SPREAD) -> Floats:
    """ln times of a clean fleet, (hosts, benchmarks, iterations)."""
    cv = np.exp(random.uniform(math.log(0.003), math.log(0.015), BENCHMARKS))
    noise = random.standard_t(4, (hosts, BENCHMARKS, ITERATIONS)) / math.sqrt(2)
    host = spread / math.sqrt(2) * random.standard_normal((hosts, 1, 1))
    each = spread / math.sqrt(2) * random.standard_normal((hosts, BENCHMARKS, 1))
    usual = random.normal(4, 1, (1, BENCHMARKS, 1))
    return usual + host + each + cv[None, :, None] * noise


def ours(logs: Floats) -> set[int]:
    """The rule of `rater divots fleet:N`."""
    return {it.host for it in compare_hosts(logs).slow}


def z3(logs: Floats) -> set[int]:
    """Mean over iterations more than 3 standard deviations above the hosts' mean."""
    means = logs.mean(axis=2)
    z = (means - means.mean(axis=0)) / means.std(axis=0, ddof=1)
    return set(np.flatnonzero((z > 3).any(axis=1)))


def mad(logs: Floats) -> set[int]:
    """Modified z of 3.5: the median and 1.4826 MAD for mean and deviation."""
    means = logs.mean(axis=2)
    apart = means - np.median(means, axis=0)
    z = 0.6745 * apart / np.median(np.abs(apart), axis=0)
    return set(np.flatnonzero((z > 3.5).any(axis=1)))


def tukey(logs: Floats) -> set[int]:
    """Above the upper quartile by more than 1.5 times the quartiles' distance."""
    means = logs.mean(axis=2)
    low, high = np.quantile(means, [0.25, 0.75], axis=0)
    return set(np.flatnonzero((means > high + 1.5 * (high - low)).any(axis=1)))


RULES: dict[str, Rule] = {"z > 3": z3, "MAD 3.5": mad, "Tukey 1.5": tukey, "rater": ours}


def poisson_interval(events: int, exposure: float) -> tuple[float, float]:
    """95 % interval of a rate, exact (Garwood), by bisection on the Poisson distribution."""

    def at_most(mean: float, count: int) -> float:
        term = total = math.exp(-mean)
        for k in range(1, count + 1):
            term *= mean / k
            total += term
        return total

    def solve(wrong: Callable[[float], bool]) -> float:
        low, high = 0.0, 10.0 + 3 * events
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if wrong(middle) else (low, middle)
        return low / exposure

    if events > 400:  # exp underflows; the normal does
        half = 1.96 * math.sqrt(events)
        return (events - half) / exposure, (events + half) / exposure
    lower = solve(lambda mean: 1 - at_most(mean, events - 1) < 0.025) if events else 0.0
    return lower, solve(lambda mean: at_most(mean, events) > 0.025)


def wilson(hits: int, of: int) -> tuple[float, float]:
    """95 % interval of a share."""
    z, p = 1.96, hits / of
    centre = (p + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return max(0.0, centre - half), min(1.0, centre + half)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=200)
    parser.add_argument("--hosts", default="4,8,64,1000")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spread", type=float, default=SPREAD)
    parser.add_argument("--recall-only", action="store_true")
    parser.add_argument("--clean-only", action="store_true")
    args = parser.parse_args()
    sizes = [int(word) for word in args.hosts.split(",")]
    began = time.process_time()
    if not args.recall_only:
        print("false hosts per clean fleet (95 %)")
        for size in sizes:
            random = np.random.default_rng(args.seed)
            fleets = max(args.fleets if size < 500 else args.fleets // 10, 1)
            made = [fleet(size, random, args.spread) for _ in range(fleets)]
            cells = []
            for name, rule in RULES.items():
                events = sum(len(rule(logs)) for logs in made)
                low, high = poisson_interval(events, fleets)
                cells.append(f"{name} {events / fleets:.3f} ({low:.3f}-{high:.3f})")
            print(f"{size:5} hosts x {fleets}: {'; '.join(cells)}", flush=True)
    if args.clean_only:
        return
    print("recall of one slow host (95 %), false ones beside it")
    for size in sizes:
        fleets = max(args.fleets if size < 500 else args.fleets // 10, 1)
        for name, (where, effect) in CASES.items():
            random = np.random.default_rng(args.seed + 1)
            hits = dict.fromkeys(RULES, 0)
            others = 0
            for _ in range(fleets):
                logs = fleet(size, random, args.spread)
                logs[0, where] += effect
                for kind, of in RULES.items():
                    found = of(logs)
                    hits[kind] += 0 in found
                    others += len(found - {0}) if kind == "rater" else 0
            told = [
                f"{rule} {n / fleets:.2f} ({wilson(n, fleets)[0]:.2f}-{wilson(n, fleets)[1]:.2f})"
                for rule, n in hits.items()
            ]
            print(
                f"{size:5} {name:18}: {'; '.join(told)}; others {others / fleets:.3f}", flush=True
            )
    print(f"{time.process_time() - began:.0f} s of CPU")


if __name__ == "__main__":
    main()
