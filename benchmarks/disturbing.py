"""What work of others does to the search for divots: the origin of the limit on what it may cost.

`python -m benchmarks.disturbing [--runs 20] [--seed 1]`: made healthy runs (noise .5 %) of copies
that take 0.5 to 30 s, on each of which others work with some chance, in bursts of 10 ms to 1 s
(means; exponential, as are the pauses). A line for each number of copies, chance, and share of a
CPU that they take: what they cost of the score, and what a single copy (of two: a CPU) must be
slower by to be found.
"""

from __future__ import annotations

import argparse
import math
import sys

import numpy as np

from benchmarks.divot_cases.noise import Chance, Values
from rater.analysis.divots.findings import analyse
from rater.analysis.divots.model.finding import Thresholds
from rater.record.stored import TimeRow

_SHAPES = ((2, 14, 1), (8, 6, 3), (32, 6, 3))  # copies, benchmarks, iterations
_ON_NODE, _NOISE = 8, 0.005


def _run(rng: Chance, dims: tuple[int, int, int], chance: float, share: float) -> Values:
    """Return seconds (benchmarks, iterations, copies) without others, and with them."""
    work_s = 10 ** rng.uniform(-0.3, 1.5) * np.exp(rng.normal(0, _NOISE, dims))
    burst_s = 10 ** rng.uniform(-2, 0)
    bursts = rng.poisson(work_s * share / (1 - share) / burst_s) * (rng.random(dims) < chance)
    lost_s = rng.gamma(np.maximum(bursts, 1), burst_s) * (bursts > 0)
    return np.stack([work_s, work_s + lost_s])


def _rows(elapsed_s: Values) -> list[TimeRow]:
    rows = []
    for (b, i, c), seconds in np.ndenumerate(elapsed_s):
        node = c // _ON_NODE
        rows.append(
            TimeRow(b, i + 1, c, 0, c, c, node, node, 0, node, 0, int(seconds * 1e9), None, 1)
        )
    return rows


def _score(elapsed_s: Values) -> float:
    slowest = np.sort(elapsed_s.max(axis=2), axis=1)
    return -float(np.log(slowest[:, slowest.shape[1] // 2]).mean())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.disturbing")
    parser.add_argument("--runs", type=int, default=20, help="of each line")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for copies, benchmarks, iterations in _SHAPES:
        for chance in (0.0, 0.3, 1.0):
            for share in (0.02, 0.05, 0.1, 0.2, 0.4) if chance else (0.1,):
                rng = np.random.default_rng([args.seed, copies, int(chance * 10), int(share * 100)])
                costs, seen = [], []
                for _ in range(args.runs):
                    alone, beside = _run(rng, (benchmarks, iterations, copies), chance, share)
                    names = [(f"b{b}", None) for b in range(benchmarks)]
                    visible = analyse([_rows(beside)], names, Thresholds()).visible
                    costs.append(1 - math.exp(_score(beside) - _score(alone)))
                    seen.append(visible.get("copy", visible.get("cpu", math.inf)))
                print(
                    f"{copies:2} copies, others beside {chance:.0%} of the copy runs, "
                    f"{share:.0%} of a CPU: cost {np.median(costs):.1%} of the score, "
                    f"to be found a copy must be slower by {np.median(seen):.1%}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
