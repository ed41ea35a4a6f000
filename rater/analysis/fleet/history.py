"""What a history tells: steps, with their dates and what changed then; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rater.analysis.fleet.steps import FEWEST_POINTS, LevelStep, steps_in
from rater.record.fleet import HistoryPoint
from rater.settings.known import volatile

WHOLE = 0.015  # smallest steps that are told, ln: in all benchmarks,
ONE = 0.03  # in one
_ALPHA = 0.005  # false steps of a host, or of a benchmark, without any
_OTHERS = 3  # hosts whose median is usual: in fewer (two that were confirmed) nobody can tell
_SAME = 0.6  # of a step: one in a benchmark at the same time that is no more is the same step
_UNINTERESTING = ("env.PATH",)


@dataclass(frozen=True, slots=True)
class FactChange:
    """What was one thing before a step and another after it."""

    name: str
    before: str | None
    after: str | None
    others_too: bool  # most other hosts had the new value as well


@dataclass(frozen=True, slots=True)
class ToldStep:
    """A step of a host's or a benchmark's times."""

    benchmark: str | None  # None: all of them
    fleet: int  # the first one after it
    started_at: str | None  # of that one, and of the last one before
    last_before: str | None
    ratio: float  # time after over time before
    level: float  # time after over what is usual (of a benchmark: over its first level)
    fleets_since: int  # with it
    by_chance: float
    changes: tuple[FactChange, ...]
    host: str | None = None


@dataclass(frozen=True, slots=True)
class FleetCourse:
    """Times over what is usual, fleet by fleet."""

    name: str  # a benchmark, or "" for all
    fleets: tuple[int, ...]
    dates: tuple[str | None, ...]
    ratios: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class History:
    """All that is told of a name."""

    name: str
    points: int
    steps: tuple[ToldStep, ...]  # in the order of time
    series: tuple[FleetCourse, ...]  # the first one of all benchmarks
    alone: int  # fleets in which fewer than three others were like it

    @property
    def too_short(self) -> bool:
        """Too few fleets to show a step."""
        return self.points < FEWEST_POINTS


def host_history(host: str, points: Sequence[HistoryPoint]) -> History:
    """Hold a host against the others of its kind, fleet by fleet; points in their order."""
    held = [it for it in points if it.usual_s and it.hosts >= _OTHERS]
    logs = {
        name: [
            (it, math.log(it.seconds[name] / it.usual_s[name])) for it in held if name in it.usual_s
        ]
        for name in sorted({name for it in held for name in it.usual_s})
    }
    whole = [
        (it, median(math.log(it.seconds[name] / it.usual_s[name]) for name in it.usual_s))
        for it in held
    ]
    told = _told(None, whole, WHOLE, _ALPHA, host)
    for name, values in logs.items():
        for one in _told(name, values, ONE, _ALPHA / len(logs), host):
            same = [it for it in told if it.benchmark is None and _is_same(one, it)]
            if not same:
                told.append(one)
    told.sort(key=lambda it: (it.fleet, it.benchmark or ""))
    series = [_series("", whole), *(_series(name, values) for name, values in logs.items())]
    return History(host, len(held), tuple(told), tuple(series), len(points) - len(held))


def benchmark_history(
    benchmark: str,
    points: Sequence[HistoryPoint],
    hosts: Mapping[str, Sequence[HistoryPoint]],
) -> History:
    """Hold what is usual against what was, and each host against what is usual."""
    usual = [(it, math.log(it.seconds[benchmark])) for it in points if benchmark in it.seconds]
    first = usual[0][1] if usual else 0.0
    apart = [(it, value - first) for it, value in usual]
    told = _told(benchmark, apart, WHOLE, _ALPHA, None)
    for host, own in hosts.items():
        values = [
            (it, math.log(it.seconds[benchmark] / it.usual_s[benchmark]))
            for it in own
            if it.hosts >= _OTHERS and benchmark in it.seconds
        ]
        told += _told(benchmark, values, ONE, _ALPHA / max(len(hosts), 1), host)
    told.sort(key=lambda it: (it.host is not None, it.fleet, it.host or ""))
    return History(benchmark, len(usual), tuple(told), (_series(benchmark, apart),), 0)


def _told(
    benchmark: str | None,
    values: Sequence[tuple[HistoryPoint, float]],
    least: float,
    alpha: float,
    host: str | None,
) -> list[ToldStep]:
    if len(values) < FEWEST_POINTS:
        return []
    points = [point for point, _ in values]
    found = steps_in([value for _, value in values], least, alpha)
    edges = [*(it.first for it in found), len(points)]
    return [
        _step(benchmark, points, step, edges[place + 1] - step.first, host)
        for place, step in enumerate(found)
    ]


def _step(
    benchmark: str | None,
    points: Sequence[HistoryPoint],
    step: LevelStep,
    since: int,
    host: str | None,
) -> ToldStep:
    before, after = points[step.first - 1], points[step.first]
    return ToldStep(
        benchmark,
        after.fleet,
        after.started_at,
        before.started_at,
        math.exp(step.size),
        math.exp(step.after),
        since,
        step.by_chance,
        changes(before, after),
        host,
    )


def changes(before: HistoryPoint, after: HistoryPoint) -> tuple[FactChange, ...]:
    """Return what was otherwise before; first what the other hosts have not changed as well."""
    found = [
        FactChange(name, old, new, after.usual_facts.get(name) == new and bool(after.usual_facts))
        for name in sorted(before.facts.keys() | after.facts.keys())
        if (old := before.facts.get(name)) != (new := after.facts.get(name))
        and not volatile(name)
        and name not in _UNINTERESTING
        # The kernel's release is told as the kernel.
        and name not in ("kernel.release", "kernel.version")
    ]
    return tuple(sorted(found, key=lambda it: it.others_too))


def _is_same(one: ToldStep, whole: ToldStep) -> bool:
    """Tell whether a benchmark's step is that of the whole host, of about the same size."""
    size, of = math.log(one.ratio), math.log(whole.ratio)
    return abs(one.fleet - whole.fleet) <= 1 and size * of > 0 and abs(size - of) < _SAME * abs(of)


def _series(name: str, values: Sequence[tuple[HistoryPoint, float]]) -> FleetCourse:
    return FleetCourse(
        name,
        tuple(point.fleet for point, _ in values),
        tuple(point.started_at for point, _ in values),
        tuple(math.exp(value) for _, value in values),
    )
