"""Times of runs that nobody made: a machine's shape, small noise, and what is planted; pure."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from rater.plan.placement.place import Placement
from rater.plan.selftest import SLOW, Disturbance, Fault, Injection
from rater.record.stored import TimeRow

NOISE = 0.005  # standard deviation of the log of a time: a quiet machine
_UNDISTURBED_S = 10.0

type Times = Mapping[tuple[str, int, int], float]  # benchmark, iteration, copy: seconds


def made_times(
    injection: Injection,
    placements: Sequence[Placement],
    benchmarks: Sequence[str],
    iterations: int,
    choice: random.Random,
) -> dict[tuple[str, int, int], float]:
    """Return times as they would be with the injection, were it to do just what it aims at."""
    return {
        (name, k, it.copy): _UNDISTURBED_S
        * math.exp(choice.gauss(0, NOISE))
        * _slowdown(injection, name, k, it)
        for name in benchmarks
        for k in range(1, iterations + 1)
        for it in placements
    }


def _slowdown(injection: Injection, benchmark: str, iteration: int, placement: Placement) -> float:
    if injection.kind is Fault.OUTLIER_COPY:  # what competes beside it gives the others their share
        where = (injection.benchmark, injection.iteration, injection.copies)
        here = (benchmark, iteration, (placement.copy,))
        return (injection.aimed or 1.0) if here == where else 1.0
    if placement.copy in dict(injection.remote):
        return SLOW
    disturbance = injection.cells.get((benchmark, iteration), Disturbance())
    return 1 / (1 - dict(disturbance.competing).get(placement.cpu or 0, 0.0))


def rows_of(
    times: Times,
    injection: Injection,
    placements: Sequence[Placement],
    benchmarks: Sequence[str],
) -> list[TimeRow]:
    """Return the times as rows for the search of divots, copies where they are placed."""
    by_copy, away = {it.copy: it for it in placements}, dict(injection.remote)
    number = {name: place for place, name in enumerate(benchmarks)}
    return [
        TimeRow(
            *(number[name], iteration, copy, 0),
            *(it.cpu, it.core, it.llc, it.node, it.package, away.get(copy, it.node)),
            *(0, round(time_s * 1e9), None, 1),
        )
        for (name, iteration, copy), time_s in times.items()
        for it in [by_copy[copy]]
    ]
