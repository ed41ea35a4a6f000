"""How often `rater compare` is wrong where runs are not independent, before and after it looks.

`python -m benchmarks.situations [--times N] [--seed N]`: for each named situation two points of
equal mean (or, where a rare mode is lost, not), through the estimates that rater makes of runs in
their order (`rater.analysis.stats.independence`), beside those that take runs as independent.

- apart: equal points called better or worse; *plain*, of these those without a word of doubt
- same: called the same; where they are not, that is wrong, unless the share of slow runs that
  is told as possible beside it covers the truth (*told*)
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rater.analysis.stats.estimate import paired_estimate, unpaired_estimate
from rater.analysis.stats.independence import (
    MeasuredLog,
    estimate_from_rounds,
    estimate_from_runs,
    serial_evidence,
)
from rater.analysis.stats.intervals import Decision, RatioInterval, ratio_interval

type Values = NDArray[np.float64]
type Draw = Callable[[np.random.Generator], tuple[list[MeasuredLog], list[MeasuredLog]]]

MARGIN = 0.01
_NOISE = 0.01
_APART = (Decision.BETTER, Decision.WORSE)


@dataclass(frozen=True, slots=True)
class Situation:
    """Two points and how they were measured."""

    name: str
    draw: Draw
    in_rounds: bool = True
    apart: bool = False  # whether they differ, so that apart is right and same is wrong
    slow_share: float = 0.0  # of the second point's runs, truly
    benchmarks: int = 1  # in the same rounds; the first of them is counted


@dataclass(frozen=True, slots=True)
class Figures:
    """Shares of all series."""

    apart_before: float
    apart: float
    plain: float
    same_before: float
    same: float
    told: float  # of what is called the same: those whose words are true
    rarely: float


def in_turn(first: Values, second: Values) -> tuple[list[MeasuredLog], list[MeasuredLog]]:
    """Return runs that were made in rounds; which point is first changes."""
    lead = [number % 2 for number in range(len(first))]
    return (
        [MeasuredLog(float(v), 2 * number + lead[number]) for number, v in enumerate(first)],
        [MeasuredLog(float(v), 2 * number + 1 - lead[number]) for number, v in enumerate(second)],
    )


def one_by_one(first: Values, second: Values) -> tuple[list[MeasuredLog], list[MeasuredLog]]:
    """Return runs of which the first point's were all made before the second's."""
    return (
        [MeasuredLog(float(v), number) for number, v in enumerate(first)],
        [MeasuredLog(float(v), len(first) + number) for number, v in enumerate(second)],
    )


def independent(rounds: int, effect: float = 0.0, tails: float | None = None) -> Draw:
    """Runs that differ by 1 % by chance alone; `tails`: degrees of Student's t."""

    def draw(rng: np.random.Generator) -> tuple[list[MeasuredLog], list[MeasuredLog]]:
        if tails is None:
            values = rng.normal(0, _NOISE, (2, rounds))
        else:
            values = rng.standard_t(tails, (2, rounds)) * _NOISE / math.sqrt(tails / (tails - 2))
        return in_turn(values[0] + math.log1p(effect), values[1])

    return draw


def loose(runs: int, effect: float = 0.0, *, alternating: bool = False) -> Draw:
    """The same without rounds."""

    def draw(rng: np.random.Generator) -> tuple[list[MeasuredLog], list[MeasuredLog]]:
        values = rng.normal(0, _NOISE, (2, runs))
        order = in_turn if alternating else one_by_one
        return order(values[0] + math.log1p(effect), values[1])

    return draw


def sticky(rounds: int, correlation: float = 0.9) -> Draw:
    """A state of each point that goes from round to round (1 %), beside 0.3 % of a run's own."""

    def draw(rng: np.random.Generator) -> tuple[list[MeasuredLog], list[MeasuredLog]]:
        state = np.empty((2, rounds))
        state[:, 0] = rng.normal(0, _NOISE, 2)
        for round_number in range(1, rounds):
            fresh = rng.normal(0, _NOISE * math.sqrt(1 - correlation**2), 2)
            state[:, round_number] = correlation * state[:, round_number - 1] + fresh
        values = state + rng.normal(0, 0.003, (2, rounds))
        return in_turn(values[0], values[1])

    return draw


def flipping(rounds: int, often: float = 0.15) -> Draw:
    """Each point is in one of two states 3 % apart, and changes it now and then."""

    def draw(rng: np.random.Generator) -> tuple[list[MeasuredLog], list[MeasuredLog]]:
        flips = rng.random((2, rounds)) < often
        flips[:, 0] = rng.random(2) < 0.5
        values = 0.03 * (np.cumsum(flips, axis=1) % 2) + rng.normal(0, 0.005, (2, rounds))
        return in_turn(values[0], values[1])

    return draw


def drifting(runs: int, drift: float) -> Draw:
    """All runs of one point, then all of the other, while the machine gets slower."""

    def draw(rng: np.random.Generator) -> tuple[list[MeasuredLog], list[MeasuredLog]]:
        slower = -drift * np.arange(2 * runs) / (2 * runs - 1)
        values = slower + rng.normal(0, _NOISE, 2 * runs)
        return one_by_one(values[:runs], values[runs:])

    return draw


def stepping(runs: int, step: float) -> Draw:
    """All runs of one point, then all of the other; the machine gets slower between any two."""

    def draw(rng: np.random.Generator) -> tuple[list[MeasuredLog], list[MeasuredLog]]:
        values = rng.normal(0, _NOISE, 2 * runs)
        values[rng.integers(1, 2 * runs) :] -= step
        return one_by_one(values[:runs], values[runs:])

    return draw


def sessions(rounds: int, *, rounds_known: bool, deviation: float = 0.01) -> Draw:
    """Rounds of two sessions, in each of which each point has a luck of its own."""

    def draw(rng: np.random.Generator) -> tuple[list[MeasuredLog], list[MeasuredLog]]:
        luck = rng.normal(0, deviation, (2, 2))
        of_it = (np.arange(rounds) >= rounds // 2).astype(int)
        values = luck[:, of_it] + rng.normal(0, 0.005, (2, rounds))
        sides = in_turn(values[0], values[1])
        if not rounds_known:
            return sides
        a, b = (
            [MeasuredLog(v.log, v.place, int(s)) for v, s in zip(side, of_it, strict=True)]
            for side in sides
        )
        return a, b

    return draw


def session_each(runs: int, deviation: float = 0.01) -> Draw:
    """All runs of one point in one session, all of the other in the next."""

    def draw(rng: np.random.Generator) -> tuple[list[MeasuredLog], list[MeasuredLog]]:
        values = rng.normal(0, deviation, (2, 1)) + rng.normal(0, 0.005, (2, runs))
        here, there = one_by_one(values[0], values[1])
        return here, [MeasuredLog(one.log, one.place, 1) for one in there]

    return draw


def one_noisy(rng: np.random.Generator) -> tuple[list[MeasuredLog], list[MeasuredLog]]:
    """One run of 3 % noise against ten of 0.3 %."""
    return one_by_one(rng.normal(0, 0.003, 10), rng.normal(0, 0.03, 1))


def rare(rounds: int, often: float, slower: float, noise: float = 0.003) -> Draw:
    """The first point is in a slow mode now and then."""

    def draw(rng: np.random.Generator) -> tuple[list[MeasuredLog], list[MeasuredLog]]:
        values = rng.normal(0, noise, (2, rounds))
        values[0] -= math.log1p(slower) * (rng.random(rounds) < often)
        return in_turn(values[0], values[1])

    return draw


SITUATIONS = (
    *(Situation(f"independent, {number} rounds", independent(number)) for number in (3, 5, 10, 20)),
    Situation("independent, t of 3 degrees, 10 rounds", independent(10, tails=3)),
    *(
        Situation(
            f"+{by} %, independent, {number} rounds", independent(number, by / 100), apart=True
        )
        for by in (2, 5)
        for number in (3, 5, 10, 20)
    ),
    Situation("A B A B without blocks, 5 runs", loose(5, alternating=True), in_rounds=False),
    Situation("AAA then BBB, independent, 5 runs", loose(5), in_rounds=False),
    *(
        Situation(
            f"+{by} %, {'A B A B' if turn else 'AAA then BBB'}, 5 runs",
            loose(5, by / 100, alternating=turn),
            in_rounds=False,
            apart=True,
        )
        for turn in (True, False)
        for by in (2, 5)
    ),
    *(
        Situation(f"a state that sticks to a point, {number} rounds", sticky(number))
        for number in (5, 10, 20)
    ),
    *(
        Situation(f"a state of two that flips, {number} rounds", flipping(number))
        for number in (5, 10, 20)
    ),
    *(
        Situation(
            f"{name}, {number} rounds, 10 benchmarks", draw(number), apart=apart, benchmarks=10
        )
        for number in (5, 10, 20)
        for name, draw, apart in (
            ("independent", independent, False),
            ("+2 %, independent", partial(independent, effect=0.02), True),
            ("a state that sticks", sticky, False),
            ("a state that flips", flipping, False),
        )
    ),
    *(
        Situation(
            f"AAA then BBB, drift of {d} %, {number} runs",
            drifting(number, d / 100),
            in_rounds=False,
        )
        for number in (3, 5, 10)
        for d in (5, 10)
    ),
    *(
        Situation(
            f"AAA then BBB, a step of 3 %, {number} runs", stepping(number, 0.03), in_rounds=False
        )
        for number in (3, 5, 10)
    ),
    Situation("two sessions, known, 10 rounds", sessions(10, rounds_known=True)),
    Situation("two sessions, not known, 10 rounds", sessions(10, rounds_known=False)),
    Situation("a session for each point, 5 runs", session_each(5), in_rounds=False),
    Situation("one run of 3 % noise against ten of 0.3 %", one_noisy, in_rounds=False),
    *(
        Situation(
            f"1 run in 10 20 % slower, {number} rounds",
            rare(number, 0.1, 0.2),
            apart=True,
            slow_share=0.1,
        )
        for number in (6, 10, 20, 30)
    ),
)


def figures(situation: Situation, times: int, rng: np.random.Generator) -> Figures:
    """Return how often what is said of a situation; all are shares of `times` series."""
    counted = np.zeros(7)
    for _ in range(times):
        first, second = situation.draw(rng)
        evidence = None
        if situation.benchmarks > 1:
            others = [(first, second)]
            others += [situation.draw(rng) for _ in range(situation.benchmarks - 1)]
            evidence = serial_evidence(
                [[a.log - b.log for a, b in zip(*both, strict=True)] for both in others]
            )
        old, new = (
            before(first, second, in_rounds=situation.in_rounds),
            after(first, second, in_rounds=situation.in_rounds, evidence=evidence),
        )
        apart = new.verdict in _APART
        same = new.verdict is Decision.SAME
        possible = 1 - 0.05 ** (1 / new.count)
        counted += (
            old.verdict in _APART,
            apart,
            apart and new.verdict_text in {str(it) for it in _APART},
            old.verdict is Decision.SAME,
            same,
            same and possible >= situation.slow_share,
            new.verdict is Decision.RARELY,
        )
    return Figures(*(float(share) for share in counted / times))


def before(
    first: Sequence[MeasuredLog], second: Sequence[MeasuredLog], *, in_rounds: bool
) -> RatioInterval:
    """Return what is said of runs that are taken as independent."""
    if in_rounds:
        pairs = zip(first, second, strict=True)
        return ratio_interval(
            paired_estimate([one.log - other.log for one, other in pairs]), MARGIN
        )
    mine, theirs = ([one.log for one in side] for side in (first, second))
    return ratio_interval(unpaired_estimate(mine, theirs), MARGIN)


def after(
    first: Sequence[MeasuredLog],
    second: Sequence[MeasuredLog],
    *,
    in_rounds: bool,
    evidence: float | None = None,
) -> RatioInterval:
    """Return what rater says; `evidence`: of more benchmarks than this one."""
    if in_rounds:
        rounds = list(zip(first, second, strict=True))
        return ratio_interval(estimate_from_rounds(rounds, evidence=evidence), MARGIN)
    return ratio_interval(estimate_from_runs(first, second), MARGIN)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    print(f"{asked.times} series each; shares in %")
    print(f"{'':46} apart: before  after  plain   same: before  after   told  rarely")
    for situation in SITUATIONS:
        it = figures(situation, asked.times, rng)
        shares = (it.apart_before, it.apart, it.plain, it.same_before, it.same, it.told, it.rarely)
        texts = [f"{100 * share:6.1f}" for share in shares]
        right = " (differ)" if situation.apart else ""
        print(
            f"{situation.name + right:46}       {texts[0]} {texts[1]} {texts[2]}        "
            f"{texts[3]} {texts[4]} {texts[5]}  {texts[6]}",
            flush=True,
        )


if __name__ == "__main__":
    main()
