"""Runs by what they were made under: those alike in all but their copies make a curve; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rater.analysis.conditions.differences import COPY_OPTIONS, option_value
from rater.analysis.results.cpus_used import CpusUsed, cpus_used
from rater.analysis.results.points import Point
from rater.analysis.results.rates import TuneRates, tune_rates
from rater.analysis.results.request import request_of
from rater.record.stored import StoredRun

# Axes and tags that do not make a curve of their own: what a curve is along, and rounds.
_NO_CONDITION = ("copies", "block", "sweep")
_PLACED = "placed"  # the condition that tells runs of the same copies apart by where these were


type Conditions = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One run under one tune: what it was made under, and its rates."""

    run: StoredRun
    block: int | None  # the round it was made in
    key: Conditions  # those but the copies, by name
    places: CpusUsed
    rates: TuneRates


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
            for rates in tune_rates(run):
                values = {**_conditions(run, rates.tune), **axes}
                key = tuple((name, value) for name, value in values.items() if value)
                found.setdefault(
                    (run.head.run, rates.tune), Sample(run, one.block, key, cpus_used(run), rates)
                )
    return tuple(found.values())


def _conditions(run: StoredRun, tune: str | None) -> dict[str, str]:
    head = run.head
    asked = request_of(head) or {}  # of an older rater's and of imported ones: the defaults
    values: dict[str, object] = {
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
        **{one.field: option_value(asked, one) for one in COPY_OPTIONS},
    }
    return {
        name: str(value)
        for name, value in values.items()
        if value is not None and value is not False and value != ""
    }


def by_conditions(samples: Iterable[Sample]) -> dict[Conditions, tuple[Sample, ...]]:
    """Return the samples that can make a curve together, by their conditions.

    Runs of the same number of copies that were placed otherwise (8 on 8 cores, 8 on the threads of
    4) are none of the same: a further condition, `placed`, tells them apart then.
    """
    by_conditions: dict[Conditions, list[Sample]] = {}
    for one in samples:
        by_conditions.setdefault(one.key, []).append(one)
    found: dict[Conditions, tuple[Sample, ...]] = {}
    for key, members in by_conditions.items():
        parts = _parted(members)
        if len(parts) == 1:
            found[key] = parts[0]
            continue
        contested = _contested(members)
        single = tuple(one for one in parts[0] if one.places.copies == 1)
        for part in parts:
            first = min(
                (one.places for one in part if one.places.copies in contested),
                key=lambda it: it.copies,
            )
            counts = {one.places.copies for one in part}
            # A single copy is placed alike whatever the others are.
            shared = single if len(counts) > 1 and 1 not in counts else ()
            found[*key, (_PLACED, str(first))] = shared + part
    return found


def _contested(samples: Iterable[Sample]) -> set[int]:
    """Return the numbers of copies that were placed in more ways than one."""
    shapes: dict[int, set[object]] = {}
    for one in samples:
        shapes.setdefault(one.places.copies, set()).add(one.places.shape)
    return {copies for copies, found in shapes.items() if len(found) > 1}


def _parted(samples: Sequence[Sample]) -> list[tuple[Sample, ...]]:
    """Return the samples in parts, in each of which every number of copies has one shape.

    The first has the shape that goes with the numbers of which there is only one (as many copies
    a core), then the one of most runs, then that of most cores; the others follow in the same way
    from what is left, by their copies a core.
    """
    left: list[Sample] = list(samples)
    parts: list[tuple[Sample, ...]] = []
    while left:
        pool = left if not parts else [o for o in left if o.places.even == left[0].places.even]
        contested = _contested(pool)
        usual = Counter(
            one.places.even
            for one in pool
            if one.places.copies not in contested and one.places.copies > 1
        )
        runs = Counter((one.places.copies, one.places.shape) for one in pool)
        ranked = [
            (usual[it.even], runs[it.copies, it.shape], len(it.cores or ()), -place)
            for place, it in enumerate(one.places for one in pool)
        ]
        chosen: dict[int, CpusUsed] = {}
        for *_, place in sorted(ranked, reverse=True):
            chosen.setdefault(pool[-place].places.copies, pool[-place].places)
        part = [one for one in pool if one.places.shape == chosen[one.places.copies].shape]
        parts.append(tuple(part))
        taken = set(map(id, part))
        left = [one for one in left if id(one) not in taken]
    return parts


def curve_names(keys: Sequence[Conditions]) -> dict[Conditions, str]:
    """Return for each set of conditions what tells it from the others."""
    values = [dict(key) for key in keys]
    fields = list(dict.fromkeys(name for one in values for name in one))
    differing = [name for name in fields if len({one.get(name) for one in values}) > 1]
    if any(name.startswith("env:") for name in differing):
        differing = [name for name in differing if name != "env"]
    return {
        key: ", ".join(f"{name}={one.get(name, 'none')}" for name in differing)
        for key, one in zip(keys, values, strict=True)
    }
