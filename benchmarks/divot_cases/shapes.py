"""`python -m benchmarks.divot_cases.shapes --seed S --cases N`: ordinary shapes against an oracle.

Runs of random shapes, three in ten clean, the others with one cause. An oracle that knows place and
weights, and takes noise for normal, says how small a cause can be found: a hundredth of clean runs
alarm, four in five causes are found. They are planted at 0.7 to 10 times that size, never below
the thresholds.
"""

from __future__ import annotations

import argparse
import math
import zlib
from collections import defaultdict
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from rater.analysis.divots.findings import build_findings
from rater.analysis.divots.model.finding import Finding, Kind, Thresholds
from rater.analysis.divots.model.search import search
from rater.analysis.divots.model.table import Table
from rater.analysis.stats.robust import Bools, Floats, Ints

COPIES = (1, 2, 3, 4, 7, 8, 16, 31, 64, 128)
NODES, ITERATIONS, BENCHMARKS = (1, 2, 4, 8), (1, 2, 3, 5, 10, 60, 200), (1, 2, 5, 14)
NOISES, SIGMAS, SHIFTS = ("normal", "t4", "skewed"), (0.001, 0.005, 0.015, 0.05), (0.0, 0.01, 0.03)
MULTIPLES = (0.7, 1.0, 1.5, 2.0, 4.0, 10.0)
MOST, FLOORS = 12_000, {"node": 0.015, "step": 0.03}  # copy runs of a case; sizes
_OF_TIME = (Kind.SLOW_ITERATION, Kind.STEP, Kind.WARM_UP, Kind.DRIFT)
_Z = NormalDist().inv_cdf


@dataclass(frozen=True)
class Made:
    """A made run: its times, and what was planted in which of them."""

    log_s: Floats  # (B, I, C)
    node: np.ndarray
    kind: str  # what was planted; "clean"
    multiple: float  # of the oracle's size
    planted: Bools  # (B, I, C)


def make(seed: str, number: int) -> Made:
    """Return a case by its name."""
    random = np.random.default_rng([zlib.crc32(seed.encode()), number])
    while True:
        b, i, c, n = (int(random.choice(it)) for it in (BENCHMARKS, ITERATIONS, COPIES, NODES))
        if b * i * c <= MOST and n <= c:
            break
    sigma, shift = float(random.choice(SIGMAS)), float(random.choice(SHIFTS))
    noise, shape = str(random.choice(NOISES)), (b, i, c)
    z = random.standard_normal(shape)
    if noise == "t4":
        z = random.standard_t(4, shape) / math.sqrt(2)
    elif noise == "skewed":
        z = (np.exp(0.35 * z) - math.exp(0.35**2 / 2)) / math.sqrt(
            math.exp(0.35**2) * (math.exp(0.35**2) - 1)
        )
    log_s = np.log(random.uniform(2, 60, (b, 1, 1))) + sigma * z
    log_s = log_s + shift * random.standard_normal((b, i, 1))
    node = np.arange(c) * n // c
    x = np.zeros(shape, dtype=bool)
    if random.random() < 0.3:
        return Made(log_s, node, "clean", 0.0, x)
    possible = ["once"] * (c > 1 and b * i > 1) + ["copy"] * (c > 1 and b > 1 and i > 1)
    possible += (
        ["cpu"] * (c > n) + ["node"] * (n > 1) + ["iteration"] * (i > 2) + ["step"] * (i > 4)
    )
    if not possible:
        return Made(log_s, node, "clean", 0.0, x)
    kind = str(random.choice(possible))
    at = tuple(int(random.integers(size)) for size in shape)
    member = (slice(at[0], at[0] + 1), slice(at[1], at[1] + 1), slice(at[2], at[2] + 1))
    every = slice(None)
    cells = {
        "once": member,
        "copy": (member[0], every, member[2]),
        "cpu": (every, every, member[2]),
        "iteration": (every, member[1], every),
        "step": (every, slice(max(2, i // 3), None), every),
        "node": (every, every, node == node[at[2]]),
    }
    x[cells[kind]] = True
    size = oracle(x, kind, (sigma, shift), n) * float(multiple := random.choice(MULTIPLES))
    if not size < math.log(10):
        return Made(log_s, node, "clean", 0.0, np.zeros(shape, dtype=bool))
    return Made(log_s + size * x, node, kind, float(multiple), x)


def oracle(x: Bools, kind: str, noise: tuple[float, float], nodes: int) -> float:
    """Return the smallest size (ln) that is found in four of five, and never below a threshold."""
    (b, i, c), (sigma, shift) = x.shape, noise
    mean = x.mean(axis=2)
    info = float(((x - mean[..., None]) ** 2).sum()) / sigma**2
    centred = mean - mean.mean(axis=1, keepdims=True)
    info += float((centred**2).sum()) / (shift**2 + sigma**2 / c)
    if info <= 0:
        return math.inf
    places = {"node": nodes, "cpu": c, "copy": b * c, "once": b * i * c, "iteration": i, "step": i}
    error = info**-0.5
    freedom = (i - 2 if kind in ("iteration", "step") else (c - 1) * i) * b
    if freedom < 3:
        return math.inf
    z = _Z(1 - 0.01 / 6 / places[kind] / 2)
    t = math.sqrt(freedom * math.expm1(min(50.0, z * z / freedom)))  # about Student's t
    least = math.log1p(FLOORS.get(kind, 0.03)) + 0.84 * error
    return float(max((t + 0.84) * error, least))


def findings_of(case: Made) -> list[Finding]:
    """Return what the detector says of a case."""
    return findings_in_times(case.log_s, case.node, np.full(case.log_s.shape[2], -1))


def findings_in_times(log_s: Floats, node: Ints, package: Ints) -> list[Finding]:
    """Return what the detector says of ln times (B, I, S), without what the layout explains."""
    shape = log_s.shape
    unknown, cpu = np.full(shape[2], -1), np.arange(shape[2])
    nan = np.full(shape, np.nan)
    table = Table(
        benchmarks=tuple((f"b{number}", None) for number in range(shape[0])),
        iterations=tuple(range(1, shape[1] + 1)),
        log_s=log_s,
        copy=np.broadcast_to(cpu, shape).copy(),
        start_s=nan,
        idle=nan,
        cpu=cpu,
        core=cpu,
        llc=unknown,
        node=node,
        package=package,
        memory=unknown,
        core_width=np.ones(shape[2], dtype=np.int64),
        fixed=True,
        barrier=True,
        staggered=False,
        failed=0,
    )
    return [
        finding for finding in build_findings(search(table, Thresholds())) if not finding.explained
    ]


def named(finding: Finding, case: Made) -> Bools:
    """Return the copy runs (B, I, C) that a finding is about."""
    mask = np.zeros(case.log_s.shape, dtype=bool)
    for cell in finding.cells:
        at = cell.benchmark, cell.iteration
        own = [
            single.copy for single in finding.singles if (single.benchmark, single.iteration) == at
        ]
        copies = own or finding.copies
        mask[int(cell.benchmark[1:]), cell.iteration - 1, list(copies)] = True
    return mask


def verdict(case: Made) -> tuple[bool, bool, bool]:
    """Return whether what was planted is found, anything is named that was not, and a place."""
    hit = wrong = place = False
    for finding in findings_of(case):
        mask = named(finding, case)
        beside = np.zeros_like(mask)  # of two, or in a step, the others fast is the same
        beside[case.planted.any(axis=2)] = True
        target = beside & ~case.planted if finding.fast else case.planted
        good = bool(2 * (mask & target).sum() >= (mask | target).sum())
        hit |= good
        if not good and not (mask & case.planted).any():
            wrong, place = True, place or finding.kind not in _OF_TIME
    return hit, wrong, place


def main() -> None:
    """Judge cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default="open")
    parser.add_argument("--cases", type=int, default=300)
    asked = parser.parse_args()
    rates: defaultdict[tuple[str, float], list[tuple[bool, bool, bool]]] = defaultdict(list)
    for number in range(asked.cases):
        made = make(asked.seed, number)
        rates[made.kind, made.multiple].append(verdict(made))
    clean = rates.pop(("clean", 0.0), [])
    named_in, places = (sum(outcome[number] for outcome in clean) for number in (1, 2))
    print(f"clean: {len(clean)} runs, anything named in {named_in}, a place in {places}")
    print("planted    " + "".join(f"{f'x {m:g}':>10}" for m in MULTIPLES))
    for kind in sorted({kind for kind, _ in rates}):
        cells = [rates.get((kind, multiple), []) for multiple in MULTIPLES]
        print(
            f"{kind:11}"
            + "".join(f"{f'{sum(r[0] for r in cell)}/{len(cell)}':>10}" for cell in cells)
        )
    planted = [outcome for cell in rates.values() for outcome in cell]
    print(
        f"something else named in {sum(outcome[1] for outcome in planted)} "
        f"of {len(planted)} planted runs"
    )


if __name__ == "__main__":
    main()
