"""Runs by what they were made under: those alike in all but their copies make a curve; pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rater.analysis.places import Places, places_of
from rater.analysis.points import Point
from rater.analysis.throughput import RunRates, rates_of
from rater.record import StoredRun

# Axes and tags that do not make a curve of their own: what a curve is along, and rounds.
_NO_CONDITION = ("copies", "block", "sweep")
# Options of a run that change what its copies do, beside what its head says.
_ASKED = ("bind", "smt", "kind", "alloc", "hugepages")


@dataclass(frozen=True, slots=True)
class Sample:
    """One run under one tune: what it was made under, and its rates."""

    run: StoredRun
    block: int | None  # the round it was made in
    key: tuple[tuple[str, str], ...]  # conditions but the copies, by name
    places: Places
    rates: RunRates


def samples_of(points: Sequence[Point]) -> tuple[Sample, ...]:
    """Return the runs of the points, a run with two tunes twice; one in several points once."""
    named = [{name for name, _ in point.values} for point in points]
    shared = set.intersection(*named) if named else set()
    found: dict[tuple[int, str | None], Sample] = {}
    for point in points:
        # `tag:set=a` beside plain runs is a way to name runs, no condition that the others lack.
        axes = {n: value for n, value in point.values if n in shared and n not in _NO_CONDITION}
        for one in point.runs:
            run = one.run
            for rates in rates_of(run):
                told = {**_conditions(run, rates.tune), **axes}
                key = tuple((name, value) for name, value in told.items() if value)
                found.setdefault(
                    (run.head.run, rates.tune), Sample(run, one.block, key, places_of(run), rates)
                )
    return tuple(found.values())


def _conditions(run: StoredRun, tune: str | None) -> dict[str, str]:
    head = run.head
    asked = _asked(head.request)
    told: dict[str, object] = {
        "host": head.hostname or run.host.product or run.host.cpu_model,
        "suite": head.suite or " ".join(head.benchmarks),
        "size": head.size,
        "tune": tune,
        "mode": head.mode,
        "order": head.order if head.mode == "steady" else None,
        "stagger": f"{head.stagger_ms:g} ms" if head.stagger_ms else None,
        "increment": head.increment if head.increment != 1 else None,
        "layout": head.layout,
        "mem": head.memory,
        "wrap": head.wrap,
        "env": " ".join(f"{name}={value}" for name, value in run.environment),
        **{name: asked.get(name) for name in _ASKED},
    }
    return {name: str(value) for name, value in told.items() if value not in (None, "", [])}


def _asked(request: str | None) -> dict[str, object]:
    try:
        found = json.loads(request or "null")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def curve_names(samples: Iterable[Sample]) -> dict[tuple[tuple[str, str], ...], str]:
    """Return for each set of conditions what tells it from the others."""
    keys = list(dict.fromkeys(one.key for one in samples))
    told = [dict(key) for key in keys]
    fields = list(dict.fromkeys(name for one in told for name in one))
    differing = [name for name in fields if len({one.get(name) for one in told}) > 1]
    if any(name.startswith("env:") for name in differing):
        differing = [name for name in differing if name != "env"]
    return {
        key: ", ".join(f"{name}={one.get(name, 'none')}" for name in differing)
        for key, one in zip(keys, told, strict=True)
    }
