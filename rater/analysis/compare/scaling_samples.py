"""Runs that make a curve of scaling, and what is read from two points of it; pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.compare.conditions import (
    ConditionDifference,
    Facts,
    compare_facts,
    condition_differences,
    stored_conditions,
)
from rater.analysis.compare.differences import COPY_OPTIONS, option_value
from rater.analysis.results.copies import CpusUsed, Point, Share, cpus_used
from rater.analysis.results.measure import MetricMeasure, tune_with_measure
from rater.analysis.results.rates import TuneRates, mean_rate, tune_rates
from rater.analysis.results.result import Result, stored_request
from rater.analysis.stats.intervals import Noise, run_to_run_noise
from rater.record.stored import StoredRun
from rater.text.cpuset import format_list
from rater.text.values import copies_text, group_by_key

# -- Runs by their conditions: runs alike in all but their copies make a curve ---------------------

# Axes and tags that do not make a curve of their own: what a curve is along, and rounds.
_NO_CONDITION = ("copies", "block", "sweep")
_PLACED = "placed"  # the condition that tells runs of the same copies apart by where these were


type Conditions = tuple[tuple[str, str], ...]


class Sample(Struct, frozen=True, kw_only=True):
    """One run under one tune: its conditions and its rates."""

    run: StoredRun
    block: int | None  # the round it was made in
    key: Conditions  # those but the copies, by name
    places: CpusUsed
    rates: TuneRates
    is_disturbed: bool = False  # others took too much of it for a conclusion from elapsed times


def judged_samples(
    samples: Sequence[Sample], disturbed: Collection[int], measure: MetricMeasure | None
) -> list[Sample]:
    """Return the samples with what judges them; `disturbed`: runs of which others took too much.

    With a measure it judges; else, where disturbed runs are among them, CPU time does.
    """
    if measure is not None:
        return [
            replace(
                sample,
                rates=tune_with_measure(sample.rates, sample.run, measure),
                is_disturbed=measure.is_disturbable and sample.run.head.run in disturbed,
            )
            for sample in samples
        ]
    if not disturbed:
        return list(samples)
    by_tune = {
        (sample.run.head.run, rates.tune): rates
        for sample in samples
        for rates in tune_rates(sample.run, by_cpu=True)
    }
    return [
        replace(
            sample,
            rates=by_tune[sample.run.head.run, sample.rates.tune],
            is_disturbed=sample.run.head.run in disturbed,
        )
        for sample in samples
    ]


def samples_of(points: Sequence[Point]) -> tuple[Sample, ...]:
    """Return the runs of the points, a run with two tunes twice; one in several points once."""
    named = [{name for name, _ in point.values} for point in points]
    shared = set.intersection(*named) if named else set()
    samples: dict[tuple[int, str | None], Sample] = {}
    for point in points:
        # `tag:set=a` beside plain runs is a way to name runs, no condition that the others lack.
        axes = {
            name: value
            for name, value in point.values
            if name in shared and name not in _NO_CONDITION
        }
        for point_run in point.runs:
            run = point_run.run
            for rates in tune_rates(run):
                values = {**_conditions(run, rates.tune), **axes}
                key = tuple((name, value) for name, value in values.items() if value)
                samples.setdefault(
                    (run.head.run, rates.tune),
                    Sample(
                        run=run, block=point_run.block, key=key, places=cpus_used(run), rates=rates
                    ),
                )
    return tuple(samples.values())


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
    for sample in samples:
        by_conditions.setdefault(sample.key, []).append(sample)
    groups: dict[Conditions, tuple[Sample, ...]] = {}
    for key, members in by_conditions.items():
        parts = _parted(members)
        if len(parts) == 1:
            groups[key] = parts[0]
            continue
        contested = _contested(members)
        single = tuple(sample for sample in parts[0] if sample.places.copies == 1)
        for part in parts:
            first = min(
                (sample.places for sample in part if sample.places.copies in contested),
                key=lambda it: it.copies,
            )
            counts = {sample.places.copies for sample in part}
            # A single copy is placed alike whatever the others are.
            shared = single if len(counts) > 1 and 1 not in counts else ()
            groups[*key, (_PLACED, str(first))] = shared + part
    return groups


def _contested(samples: Iterable[Sample]) -> set[int]:
    """Return the numbers of copies that were placed in more ways than one."""
    shapes: dict[int, set[object]] = {}
    for sample in samples:
        shapes.setdefault(sample.places.copies, set()).add(sample.places.shape)
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
        pool = (
            left
            if not parts
            else [sample for sample in left if sample.places.even == left[0].places.even]
        )
        contested = _contested(pool)
        usual = Counter(
            sample.places.even
            for sample in pool
            if sample.places.copies not in contested and sample.places.copies > 1
        )
        runs = Counter((sample.places.copies, sample.places.shape) for sample in pool)
        ranked = [
            (usual[cpus.even], runs[cpus.copies, cpus.shape], len(cpus.cores or ()), -place)
            for place, cpus in enumerate(sample.places for sample in pool)
        ]
        chosen: dict[int, CpusUsed] = {}
        for *_, place in sorted(ranked, reverse=True):
            chosen.setdefault(pool[-place].places.copies, pool[-place].places)
        part = [
            sample for sample in pool if sample.places.shape == chosen[sample.places.copies].shape
        ]
        parts.append(tuple(part))
        taken = set(map(id, part))
        left = [sample for sample in left if id(sample) not in taken]
    return parts


def curve_names(keys: Sequence[Conditions]) -> dict[Conditions, str]:
    """Return for each set of conditions what tells it from the others."""
    values = [dict(key) for key in keys]
    fields = list(dict.fromkeys(name for conditions in values for name in conditions))
    differing = [
        name for name in fields if len({conditions.get(name) for conditions in values}) > 1
    ]
    if any(name.startswith("env:") for name in differing):
        differing = [name for name in differing if name != "env"]
    return {
        key: ", ".join(f"{name}={conditions.get(name, 'none')}" for name in differing)
        for key, conditions in zip(keys, values, strict=True)
    }


# -- What runs of a curve do not have in common, and what has no result ----------------------------

_PLACE = "place of copy "  # a difference that other numbers of copies bring with them


# What differs from the first run, and the runs in which it is so.
type RunDifferences = tuple[tuple[ConditionDifference, tuple[int, ...]], ...]


def run_differences(by_copies: dict[int, list[Sample]]) -> RunDifferences:
    """Return in what runs differ from the first of them beside their copies, significant first.

    In where these were, from the first with as many copies.
    """
    members = [sample for of_it in by_copies.values() for sample in of_it]
    differences = [
        (fact, sample.run.head.run)
        for first, *others in by_copies.values()
        for sample in others
        for fact in compare_facts(_places(first), _places(sample))
    ]
    differences += [
        (difference, sample.run.head.run)
        for sample in members[1:]
        for difference in condition_differences(
            stored_conditions(members[0].run), stored_conditions(sample.run)
        )
        if not difference.what.startswith(_PLACE)
    ]
    runs = ((one, tuple(of_it)) for one, of_it in group_by_key(differences).items())
    return tuple(sorted(runs, key=lambda it: not it[0].significant))


def _places(sample: Sample) -> Facts:
    places, whose = sample.places, f"of {copies_text(sample.places.copies)}"
    cpus = None if places.on is None else format_list(places.on)
    return {f"CPUs {whose}": cpus, f"memory {whose}": places.memory}


def left_out(
    names: Sequence[str], everywhere: Sequence[str], by_copies: dict[int, list[Sample]]
) -> list[str]:
    """Name the benchmarks that are in no geometric mean, with the numbers of copies they lack."""
    lines = []
    for name in names:
        if name not in everywhere:
            without = [
                str(copies)
                for copies, of_it in by_copies.items()
                if not any(name in one.rates.rates for one in of_it)
            ]
            lines.append(
                f"{name} is not in the geometric means: no result with {', '.join(without)} "
                f"{'copy' if without == ['1'] else 'copies'}"
            )
    return lines


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
    one_a_core: dict[_Cores, list[Sample]] = {}
    all_threads: dict[_Cores, list[Sample]] = {}
    for sample in samples:
        if sample.places.cores is None or sample.places.even is None:
            continue
        conditions = tuple(item for item in sample.key if item[0] not in _PLACEMENT)
        if sample.places.share is Share.CORES:
            one_a_core.setdefault((conditions, sample.places.cores), []).append(sample)
        elif sample.places.share is Share.THREADS and sample.places.threads in (
            None,
            sample.places.even,
        ):
            all_threads.setdefault((conditions, sample.places.cores), []).append(sample)
    yields: dict[_Conditions, SmtYield] = {}
    for (conditions, cores), single in one_a_core.items():
        full = all_threads.get((conditions, cores))
        if full is None:
            continue
        known = yields.get(conditions)
        if known is not None and known.cores >= len(cores):
            continue
        changes = _changes(single, full, lambda rated: rated.per_hour)
        if changes:
            yields[conditions] = SmtYield(
                conditions=conditions,
                cores=len(cores),
                threads=full[0].places.even or 0,
                of_machine=len(cores) == single[0].places.machine_cores,
                one_a_core=_runs(single),
                all_threads=_runs(full),
                changes=changes,
            )
    return tuple(yields.values())


def orders(samples: Sequence[Sample]) -> tuple[OrderComparison, ...]:
    """Return rotated against homogeneous wherever runs of both have the same copies, two or more.

    The same: placed alike as well. A single copy has nothing beside it.
    """
    of_mode: dict[tuple[_Conditions, int, object], dict[str, list[Sample]]] = {}
    for sample in samples:
        key = dict(sample.key)
        mode = key.pop("mode", "")
        if mode in ("heterogeneous", "rotated"):
            mode = "rotated"
            key.pop("increment", None)
            key.pop("order", None)
        group = (tuple(key.items()), sample.places.copies, sample.places.shape)
        by_mode = of_mode.setdefault(group, {})
        by_mode.setdefault(mode, []).append(sample)
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
    same = all(set(sample.rates.rates) == set(over) for sample in (*homogeneous, *rotated))
    work = scores = None
    if same:
        work = _change(
            None,
            [_work(sample) for sample in homogeneous],
            [sample.rates.work_rate for sample in rotated],
        )
        ratios = [sample.rates.over(over, by_ratio=True) for sample in homogeneous]
        scores = _change(None, ratios, [sample.rates.score for sample in rotated])
    return OrderComparison(
        conditions=conditions,
        copies=copies,
        homogeneous=_runs(homogeneous),
        rotated=_runs(rotated),
        times=_changes(homogeneous, rotated, lambda rated: rated.median_copy_s),
        work=work,
        scores=scores,
    )


def _work(sample: Sample) -> float | None:
    """Return the reference seconds per second of a pass in homogeneous order."""
    rates, whole = (
        sample.rates.rates.values(),
        sample.rates.rates.keys() == {*sample.run.head.benchmarks},
    )
    references_s = [rated.reference_s for rated in rates if rated.reference_s]
    brackets_s = [rated.bracket_s for rated in rates if rated.bracket_s]
    if not whole or not rates or not len(references_s) == len(brackets_s) == len(rates):
        return None
    return sample.places.copies * math.fsum(references_s) / math.fsum(brackets_s)


def _changes(
    before: Sequence[Sample],
    after: Sequence[Sample],
    value_of: Callable[[Result], float | None],
) -> tuple[Change, ...]:
    """Return the change of each benchmark that is on both sides, that of all of them first."""
    there = {name for sample in after for name in sample.rates.rates}
    names = [
        name
        for name in dict.fromkeys(name for sample in before for name in sample.rates.rates)
        if name in there
    ]
    candidates = []
    for name in names:
        sides = [
            [value_of(sample.rates.rates[name]) for sample in side if name in sample.rates.rates]
            for side in (before, after)
        ]
        candidates.append(_change(name, *sides))
    changes = [change for change in candidates if change is not None]
    if len(changes) > 1:
        compared = [change.benchmark or "" for change in changes]
        means = [
            [
                mean_rate([value_of(sample.rates.rates[name]) for name in compared])
                for sample in side
                if all(name in sample.rates.rates for name in compared)
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
    mean_before, mean_after = (mean_rate(side) or 0.0 for side in sides)
    error = math.hypot(*(noise.of_mean(len(side)) for side in sides))
    return Change(
        benchmark=benchmark,
        before=mean_before,
        after=mean_after,
        beyond_noise=abs(math.log(mean_after / mean_before)) > error * noise.quantile(_ALPHA),
        noise=noise,
    )


def _runs(side: Sequence[Sample]) -> tuple[int, ...]:
    return tuple(sample.run.head.run for sample in side)
