"""Runs that make a curve of scaling, and what is read from two points of it; pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from rater.analysis.compare.differences import COPY_OPTIONS, option_value
from rater.analysis.results.copies import CpusUsed, Point, Share, cpus_used
from rater.analysis.results.rates import TuneRates, mean_rate, tune_rates
from rater.analysis.results.result import Result, stored_request
from rater.analysis.stats.intervals import Noise, run_to_run_noise
from rater.record.stored import StoredRun

# -- Runs by what they were made under: those alike in all but their copies make a curve -----------

# Axes and tags that do not make a curve of their own: what a curve is along, and rounds.
_NO_CONDITION = ("copies", "block", "sweep")
_PLACED = "placed"  # the condition that tells runs of the same copies apart by where these were


type Conditions = tuple[tuple[str, str], ...]


class Sample(Struct, frozen=True, kw_only=True):
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
                    (run.head.run, rates.tune),
                    Sample(run=run, block=one.block, key=key, places=cpus_used(run), rates=rates),
                )
    return tuple(found.values())


def _conditions(run: StoredRun, tune: str | None) -> dict[str, str]:
    head = run.head
    asked = stored_request(head) or {}  # of an older rater's and of imported ones: the defaults
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


# -- What is read from two points of a machine, not from a curve: the second thread of a core, and -
#
# rotated order against homogeneous; pure.
#
# **SMT yield**: X(every thread of these cores has a copy) / X(each of the same cores has one) - 1.
# Which cores those are the placements say, so that 16 copies on 16 cores are never taken for 16 on
# the threads of 8. Half of the cores of a machine will do; of several sets the largest is shown.
#
# **Rotated against homogeneous** at the same copies. Comparable are: the time of a copy's run
# (median), which shows what other benchmarks beside it do to it; and the work of a whole pass
# (reference seconds per second: homogeneous, copies x the sum of reference times / the sum of
# brackets; rotated, to the last finish), which has all waiting in it, for the slowest copy at each
# barrier there, at the end here. The suite's scores are shown beside each other, but rotated order
# has no brackets: its score is of the copies' own times, without any waiting.

type _Conditions = tuple[tuple[str, str], ...]
type _Cores = tuple[_Conditions, tuple[int, ...]]

_PLACEMENT = ("layout", "bind", "smt")
_ALPHA = 0.025


class Change(Struct, frozen=True, kw_only=True):
    """What became of one benchmark, or of all (`None`: the geometric mean)."""

    benchmark: str | None
    before: float
    after: float
    beyond_noise: bool  # by more than the noise of runs, one time in twenty by chance
    noise: Noise

    @property
    def share(self) -> float:
        """0.25: a quarter more."""
        return self.after / self.before - 1


class SmtYield(Struct, frozen=True, kw_only=True):
    """What further threads of the same cores add to throughput."""

    conditions: tuple[tuple[str, str], ...]
    cores: int
    threads: int  # copies a core
    of_machine: bool  # all its cores
    one_a_core: tuple[int, ...]  # runs
    all_threads: tuple[int, ...]
    changes: tuple[Change, ...]  # rates; the geometric mean first


class OrderComparison(Struct, frozen=True, kw_only=True):
    """Rotated order against homogeneous at the same copies."""

    conditions: tuple[tuple[str, str], ...]
    copies: int
    homogeneous: tuple[int, ...]  # runs
    rotated: tuple[int, ...]
    times: tuple[Change, ...]  # of a copy's run, seconds (median copies); the geometric mean first
    work: Change | None  # of a whole pass, reference seconds per second
    scores: Change | None  # suite ratio and rotated score: not of the same kind


def smt_yields(samples: Sequence[Sample]) -> tuple[SmtYield, ...]:
    """Return the yield of the largest set of cores under each set of conditions."""
    ones: dict[_Cores, list[Sample]] = {}
    fulls: dict[_Cores, list[Sample]] = {}
    for one in samples:
        if one.places.cores is None or one.places.even is None:
            continue
        conditions = tuple(item for item in one.key if item[0] not in _PLACEMENT)
        if one.places.share is Share.CORES:
            ones.setdefault((conditions, one.places.cores), []).append(one)
        elif one.places.share is Share.THREADS and one.places.threads in (None, one.places.even):
            fulls.setdefault((conditions, one.places.cores), []).append(one)
    found: dict[_Conditions, SmtYield] = {}
    for (conditions, cores), single in ones.items():
        full = fulls.get((conditions, cores))
        if full is None:
            continue
        known = found.get(conditions)
        if known is not None and known.cores >= len(cores):
            continue
        changes = _changes(single, full, lambda rated: rated.per_hour)
        if changes:
            found[conditions] = SmtYield(
                conditions=conditions,
                cores=len(cores),
                threads=full[0].places.even or 0,
                of_machine=len(cores) == single[0].places.machine_cores,
                one_a_core=_runs(single),
                all_threads=_runs(full),
                changes=changes,
            )
    return tuple(found.values())


def orders(samples: Sequence[Sample]) -> tuple[OrderComparison, ...]:
    """Return rotated against homogeneous wherever runs of both have the same copies, two or more.

    The same: placed alike as well. A single copy has nothing beside it.
    """
    of_mode: dict[tuple[_Conditions, int, object], dict[str, list[Sample]]] = {}
    for one in samples:
        key = dict(one.key)
        mode = key.pop("mode", "")
        if mode in ("heterogeneous", "rotated"):
            mode = "rotated"
            key.pop("increment", None)
            key.pop("order", None)
        group = (tuple(key.items()), one.places.copies, one.places.shape)
        by_mode = of_mode.setdefault(group, {})
        by_mode.setdefault(mode, []).append(one)
    return tuple(
        _orders(conditions, copies, modes["homogeneous"], modes["rotated"])
        for (conditions, copies, _), modes in sorted(of_mode.items(), key=lambda item: item[0][1])
        if copies > 1 and "homogeneous" in modes and "rotated" in modes
    )


def _orders(
    conditions: _Conditions,
    copies: int,
    homogeneous: Sequence[Sample],
    rotated: Sequence[Sample],
) -> OrderComparison:
    over = list(rotated[0].rates.rates)
    same = all(set(one.rates.rates) == set(over) for one in (*homogeneous, *rotated))
    work = scores = None
    if same:
        work = _change(
            None, [_work(one) for one in homogeneous], [one.rates.work_rate for one in rotated]
        )
        ratios = [one.rates.over(over, by_ratio=True) for one in homogeneous]
        scores = _change(None, ratios, [one.rates.score for one in rotated])
    return OrderComparison(
        conditions=conditions,
        copies=copies,
        homogeneous=_runs(homogeneous),
        rotated=_runs(rotated),
        times=_changes(homogeneous, rotated, lambda rated: rated.median_copy_s),
        work=work,
        scores=scores,
    )


def _work(one: Sample) -> float | None:
    """Return the reference seconds per second of a pass in homogeneous order."""
    rates, whole = one.rates.rates.values(), one.rates.rates.keys() == {*one.run.head.benchmarks}
    references_s = [rated.reference_s for rated in rates if rated.reference_s]
    brackets_s = [rated.bracket_s for rated in rates if rated.bracket_s]
    if not whole or not rates or not len(references_s) == len(brackets_s) == len(rates):
        return None
    return one.places.copies * math.fsum(references_s) / math.fsum(brackets_s)


def _changes(
    before: Sequence[Sample],
    after: Sequence[Sample],
    value_of: Callable[[Result], float | None],
) -> tuple[Change, ...]:
    """Return the change of each benchmark that is on both sides, that of all of them first."""
    there = {name for one in after for name in one.rates.rates}
    names = [
        name
        for name in dict.fromkeys(n for one in before for n in one.rates.rates)
        if name in there
    ]
    found = []
    for name in names:
        sides = [
            [value_of(one.rates.rates[name]) for one in side if name in one.rates.rates]
            for side in (before, after)
        ]
        found.append(_change(name, *sides))
    changes = [one for one in found if one is not None]
    if len(changes) > 1:
        compared = [change.benchmark or "" for change in changes]
        means = [
            [
                mean_rate([value_of(one.rates.rates[name]) for name in compared])
                for one in side
                if all(name in one.rates.rates for name in compared)
            ]
            for side in (before, after)
        ]
        mean = _change(None, *means)
        changes = [*([mean] if mean else []), *changes]
    return tuple(changes)


def _change(
    benchmark: str | None, before: Sequence[float | None], after: Sequence[float | None]
) -> Change | None:
    sides = [[value for value in side if value] for side in (before, after)]
    if not all(sides):
        return None
    noise = run_to_run_noise(sides)
    here, there = (mean_rate(side) or 0.0 for side in sides)
    error = math.hypot(*(noise.of_mean(len(side)) for side in sides))
    return Change(
        benchmark=benchmark,
        before=here,
        after=there,
        beyond_noise=abs(math.log(there / here)) > error * noise.quantile(_ALPHA),
        noise=noise,
    )


def _runs(side: Sequence[Sample]) -> tuple[int, ...]:
    return tuple(one.run.head.run for one in side)
