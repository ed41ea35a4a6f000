"""`python -m benchmarks.divot_cases.promises`: whether what a run says it can see is found.

`rater divots` promises of each run the slowdown that is found four times in five. Many runs of one
shape and noise are made; each promises, and in fresh runs like it plants of just that size are
looked for: an lgroup in all benchmarks, one in one benchmark, a copy in one cell.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from benchmarks.divot_cases.machines import Chance, build
from benchmarks.divot_cases.noise import Noise
from benchmarks.divot_cases.plants import Mask, Values
from benchmarks.divot_cases.report import wilson
from benchmarks.divot_cases.scoring import COVERED, INSIDE
from rater.analysis.divots.findings import build_findings
from rater.analysis.divots.model.detect import detect
from rater.analysis.divots.model.finding import Finding, Thresholds
from rater.analysis.divots.model.table import Table, build_table
from rater.analysis.divots.sensitivity import visible

# lgroups, copies on each, benchmarks, iterations
SHAPES = (
    "4x2x10x3 4x2x10x1 2x8x6x2 2x4x12x3 4x8x12x3 4x8x14x1 8x16x10x3 4x32x6x3 4x32x6x1 2x143x6x3"
)
_SHAPED = "lgroups x copies of each x benchmarks x iterations"
NOISES = "normal t5 t3 gamma lognormal"
QUIETEST, LOUDEST = 0.003, 0.02  # standard deviations of ln time
PROMISES = ("group", "group-benchmark", "copy")
_THRESHOLDS = Thresholds()


@dataclass(frozen=True)
class Promised:
    """Runs of one shape and noise: fresh ones differ in their noise only."""

    like: Table
    noise: Noise

    def run(self, rng: Chance, deviation: float) -> Values:
        """Return ln times of a healthy run, (B, I, S)."""
        return deviation * self.noise.draw(rng, self.like.shape)

    def promises(self, log_s: Values) -> dict[str, float]:
        return visible(detect(replace(self.like, log_s=log_s), _THRESHOLDS), _THRESHOLDS)

    def place(self, rng: Chance, what: str) -> Mask:
        """Return the cells (B, I, S) of a plant somewhere."""
        b, i, s = self.like.shape
        cells = np.zeros((b, i, s), dtype=bool)
        at, copy = int(rng.integers(b)), int(rng.integers(s))
        if what == "copy":
            cells[at, int(rng.integers(i)), copy] = True
        else:
            lgroup = self.like.node == self.like.node[copy]
            cells[slice(None) if what == "group" else at] = lgroup
        return cells

    def finds(self, log_s: Values, planted: Mask) -> bool:
        """Tell whether findings of planted cells, mostly, name most of the copies."""
        told = np.zeros_like(planted)
        for one in build_findings(detect(replace(self.like, log_s=log_s), _THRESHOLDS)):
            cells = self._slow(one)
            if (cells & planted).sum() >= max(1, INSIDE * cells.sum()):
                told |= cells
        copies, slow = told.any(axis=(0, 1)), planted.any(axis=(0, 1))
        return bool((copies & slow).sum() >= COVERED * slow.sum())

    def _slow(self, found: Finding) -> Mask:
        """Return the cells that a finding says are slow; of two halves either is the usual one."""
        cells = np.zeros(self.like.shape, dtype=bool)
        numbers = {name: b for b, (name, _) in enumerate(self.like.benchmarks)}
        copies = np.isin(self.like.copy[0, 0], found.copies)
        if found.explained or (found.fast and 2 * copies.sum() != len(copies)):
            return cells
        for cell in found.cells:
            cells[numbers[cell.benchmark], cell.iteration - 1] = copies ^ found.fast
        return cells


def promised_of(shape: str, noise: str) -> Promised:
    lgroups, each, benchmarks, iterations = map(int, shape.split("x"))
    at = build([each] * lgroups, 1, 1, 1, adjacent=True)
    rows = [
        (b, i + 1, c, 0, at.cpu[c], at.core[c], None, at.node[c], None, at.node[c], 0.0, 1.0, 0, 1)
        for b, i, c in product(range(benchmarks), range(iterations), range(lgroups * each))
    ]
    table = build_table([rows], [(f"b{b:02}", None) for b in range(benchmarks)])
    assert table is not None
    return Promised(table, Noise(noise))


def answers(shape: str, noise: str, runs: int, plants: int) -> Iterator[tuple[str, float, bool]]:
    """Yield each promise with its size and whether a plant of that size is found."""
    promised, rng = promised_of(shape, noise), np.random.default_rng([*map(ord, shape + noise)])
    for deviation in np.geomspace(QUIETEST, LOUDEST, runs):
        sizes = promised.promises(promised.run(rng, deviation))
        for what in filter(sizes.__contains__, PROMISES):
            for _ in range(plants):
                planted = promised.place(rng, what)
                log_s = promised.run(rng, deviation) + math.log1p(sizes[what]) * planted
                yield what, sizes[what], promised.finds(log_s, planted)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.divot_cases.promises")
    parser.add_argument("--runs", type=int, default=30, help="of each shape and noise")
    parser.add_argument("--plants", type=int, default=3, help="for each promise of a run")
    parser.add_argument("--shapes", default=SHAPES, help=_SHAPED)
    parser.add_argument("--noises", default=NOISES, help=f"({NOISES})")
    args = parser.parse_args()
    print(f"{'':12} {'':9}", *(f"{what:>29}" for what in PROMISES), sep="  ")
    whole: dict[str, list[tuple[float, bool]]] = {what: [] for what in PROMISES}
    for shape, noise in product(args.shapes.split(), args.noises.split()):
        told: dict[str, list[tuple[float, bool]]] = {what: [] for what in PROMISES}
        for what, size, found in answers(shape, noise, args.runs, args.plants):
            told[what].append((size, found))
            whole[what].append((0.0, found))
        cells = [_cell(told[what]) for what in PROMISES]
        print(f"{shape:12} {noise:9}", *cells, sep="  ", flush=True)
    cells = [_cell(whole[what]) for what in PROMISES]
    print(f"{'together':12} {'':9}", *cells, sep="  ")
    return 0


def _cell(told: list[tuple[float, bool]]) -> str:
    """Return the share found with its interval, and the middle of the sizes (0: of no one run)."""
    if not told:
        return f"{'none promised':>29}"
    found, size = sum(it for _, it in told), float(np.median([size for size, _ in told]))
    low, high = wilson(found, len(told))
    share = f"{100 * found / len(told):.0f} % ({100 * low:.0f} to {100 * high:.0f})"
    return f"{share:>17} {f'at {100 * size:.2f} %' if size else '':>11}"


if __name__ == "__main__":
    sys.exit(main())
