"""`python -m benchmarks.divot_cases.pairs --pairs 200 --seed S`: faults that two runs share.

Two runs of one machine, each with noise of its own: a fault in both, in one, in both but moved,
or in none. `rater divots A B --json` names faults that recur, that wander and that one run has.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.divot_cases.cases import Case, run_in, stage_of, world_of
from benchmarks.divot_cases.machines import draw
from benchmarks.divot_cases.plants import KINDS, Plant
from benchmarks.divot_cases.report import wilson
from rater.commands import cli
from rater.store.store import open_store

TRUTHS = {"both": "recurring", "one": "once", "moved": "wandering", "none": ""}
_KINDS = ("lgroup", "cpu", "core", "llc", "one copy", "several copies")
_MOST_COPIES = 128
_BATCH = 25
_COVERED = 0.7  # of the copies that are told or planted are both


def pair(seed: int, number: int) -> tuple[str, Case, Case]:
    """Return pair `number` of a seed and its truth; what is planted is large enough to see."""
    truth = list(TRUTHS)[number % len(TRUTHS)]
    rng = np.random.default_rng([seed, number, 2])
    while True:
        stage = stage_of(rng, draw(rng, _MOST_COPIES))
        if not stage.shape.known:
            continue
        stage = replace(stage, rotated=False)
        world, kind = world_of(stage), str(rng.choice(_KINDS))
        first = KINDS[kind](stage)
        if first is None or first.half:
            continue
        second: Plant | None = first
        if truth == "moved":
            second = _moved(stage.rng, first, kind, stage.shape.copies)
        if second is None:
            continue
        plants = ((), ()) if truth == "none" else ((first,), (second,) if truth != "one" else ())
        one, two = (
            run_in(world, stage, of, f"pair-{seed}-{number}-{index}")
            for index, of in enumerate(plants)
        )
        if all(case.demanded(plant) for case in (one, two) for plant in case.plants):
            return (truth, one, two) if number % 8 < 4 else (truth, two, one)


def _moved(rng: np.random.Generator, plant: Plant, kind: str, at: Any) -> Plant | None:
    """Return the plant on another part of the same sort, of as many copies."""
    members = plant.mask.any(axis=(0, 1))
    if "cop" in kind:
        free = np.flatnonzero(~members)
        others = [rng.choice(free, int(members.sum()), replace=False)]
    else:
        numbers = getattr(at, "node" if kind == "lgroup" else kind)
        parts = [np.flatnonzero(numbers == number) for number in np.unique(numbers[~members])]
        others = [part for part in parts if len(part) == members.sum()]
    if not others:
        return None
    delta = np.zeros_like(plant.delta)
    delta[:, :, others[int(rng.integers(len(others)))]] = plant.delta[:, :, members]
    return replace(plant, delta=delta, about=f"{plant.about}, moved")


def documents(pairs: Sequence[tuple[str, Case, Case]], scratch: Path) -> Iterator[dict[str, Any]]:
    """Yield what `rater divots A B --json` says of each pair."""
    database = scratch / "pairs.db"
    with open_store(database) as store:
        numbers = [[store.add(it.stored())[0] for it in both] for _, *both in pairs]
    for runs in numbers:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status = cli.main(["divots", *map(str, runs), "--json", "--db", str(database)])
        if status:
            raise SystemExit(f"rater divots {runs}: exit status {status}")
        yield json.loads(printed.getvalue())


def said_of(document: dict[str, Any], cases: Sequence[Case]) -> tuple[set[str], list[str]]:
    """Return what is said of the plant, and what is said of innocent copies."""
    planted = [plant.mask.any(axis=(0, 1)) for case in cases for plant in case.plants]
    guilty = np.any(planted, axis=0) if planted else np.zeros(cases[0].shape.size, bool)
    of_plant, others = set(), []
    for one in document["between"]:
        told = np.isin(np.arange(len(guilty)), one["copies"])
        if any((told & it).sum() >= _COVERED * (told | it).sum() for it in (*planted, guilty)):
            of_plant.add(one["kind"])
        elif not guilty[told].any() or guilty[told].mean() < _COVERED:
            others.append(f"{one['kind']}: {one['evidence']}")
    return of_plant, others


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.divot_cases.pairs")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="print every pair that is not right")
    args = parser.parse_args()
    table: Counter[tuple[str, str]] = Counter()
    alarms: Counter[str] = Counter()
    for begin in range(0, args.pairs, _BATCH):
        made = [pair(args.seed, number) for number in range(begin, min(begin + _BATCH, args.pairs))]
        with TemporaryDirectory(prefix="divot-pairs-") as scratch:
            for index, (it, document) in enumerate(
                zip(made, documents(made, Path(scratch)), strict=True)
            ):
                truth, *cases = it
                of_plant, others = said_of(document, cases)
                answer = "+".join(sorted(of_plant)) or "nothing"
                table[truth, answer] += 1
                alarms.update(other.partition(":")[0] for other in others)
                if args.all and (answer != (TRUTHS[truth] or "nothing") or others):
                    about = "; ".join(
                        f"{plant.kind} {plant.about} {plant.scope} {plant.size:+.3f}"
                        for case in cases
                        for plant in case.plants
                    )
                    print(f"pair {begin + index} {truth} ({about}): {answer}; beside: {others}")
                    print(
                        *(f"    {b['kind']}: {b['evidence']}" for b in document["between"]),
                        sep="\n",
                    )
    answers = sorted({answer for _, answer in table})
    print(f"{'truth':8}", *(f"{answer:>20}" for answer in answers))
    for truth in TRUTHS:
        print(f"{truth:8}", *(f"{table[truth, answer]:20}" for answer in answers))
    right = sum(table[truth, answer or "nothing"] for truth, answer in TRUTHS.items())
    low, high = wilson(right, args.pairs)
    print(f"right: {right} of {args.pairs} ({100 * low:.0f} to {100 * high:.0f} %)")
    print(f"said of innocent copies: {dict(alarms)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
