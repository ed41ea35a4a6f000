"""What is read from two points of a machine, not from a curve: the second thread of a core, and
rotated order against homogeneous; pure.

**SMT yield**: X(every thread of these cores has a copy) / X(each of the same cores has one) - 1.
Which cores those are the placements say, so that 16 copies on 16 cores are never taken for 16 on
the threads of 8. Half of the cores of a machine will do; of several sets the largest is shown.

**Rotated against homogeneous** at the same copies. Comparable are: the time of a copy's run
(median), which shows what other benchmarks beside it do to it; and the work of a whole pass
(reference seconds per second: homogeneous, copies x the sum of reference times / the sum of
brackets; rotated, to the last finish), which has all waiting in it, for the slowest copy at each
barrier there, at the end here. The suite's scores are shown beside each other, but rotated order
has no brackets: its score is of the copies' own times, without any waiting.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rater.analysis.results.cpus_used import Share
from rater.analysis.results.rates import BenchmarkRate
from rater.analysis.scaling.samples import Sample
from rater.analysis.stats.descriptive import geometric_mean
from rater.analysis.stats.noise import Noise, noise_of

type _Conditions = tuple[tuple[str, str], ...]
type _Cores = tuple[_Conditions, tuple[int, ...]]

_PLACEMENT = ("layout", "bind", "smt")
_ALPHA = 0.025


@dataclass(frozen=True, slots=True)
class Change:
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


@dataclass(frozen=True, slots=True)
class SmtYield:
    """What further threads of the same cores add to throughput."""

    conditions: tuple[tuple[str, str], ...]
    cores: int
    threads: int  # copies a core
    of_machine: bool  # all its cores
    one_a_core: tuple[int, ...]  # runs
    all_threads: tuple[int, ...]
    changes: tuple[Change, ...]  # rates; the geometric mean first


@dataclass(frozen=True, slots=True)
class Orders:
    """Rotated order against homogeneous at the same copies."""

    conditions: tuple[tuple[str, str], ...]
    copies: int
    homogeneous: tuple[int, ...]  # runs
    rotated: tuple[int, ...]
    times: tuple[Change, ...]  # of a copy's run, seconds (medians); the geometric mean first
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


def orders(samples: Sequence[Sample]) -> tuple[Orders, ...]:
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
) -> Orders:
    over = list(rotated[0].rates.rates)
    same = all(set(one.rates.rates) == set(over) for one in (*homogeneous, *rotated))
    work = scores = None
    if same:
        work = _change(
            None, [_work(one) for one in homogeneous], [one.rates.work_rate for one in rotated]
        )
        ratios = [one.rates.over(over, by_ratio=True) for one in homogeneous]
        scores = _change(None, ratios, [one.rates.score for one in rotated])
    return Orders(
        conditions=conditions,
        copies=copies,
        homogeneous=_runs(homogeneous),
        rotated=_runs(rotated),
        times=_changes(homogeneous, rotated, lambda rated: rated.run_s),
        work=work,
        scores=scores,
    )


def _work(one: Sample) -> float | None:
    """Return the reference seconds per second of a pass in homogeneous order."""
    rates = one.rates.rates.values()
    references_s = [rated.reference_s for rated in rates if rated.reference_s]
    brackets_s = [rated.bracket_s for rated in rates if rated.bracket_s]
    if one.rates.lacking or not rates or not len(references_s) == len(brackets_s) == len(rates):
        return None
    return one.places.copies * math.fsum(references_s) / math.fsum(brackets_s)


def _changes(
    before: Sequence[Sample],
    after: Sequence[Sample],
    value_of: Callable[[BenchmarkRate], float | None],
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
        compared = [one.benchmark or "" for one in changes]
        means = [
            [
                geometric_mean([value_of(one.rates.rates[name]) or 0.0 for name in compared])
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
    noise = noise_of(sides)
    here, there = (statistics.median(side) for side in sides)
    error = math.hypot(*(noise.of_median(len(side)) for side in sides))
    return Change(
        benchmark=benchmark,
        before=here,
        after=there,
        beyond_noise=abs(math.log(there / here)) > error * noise.quantile(_ALPHA),
        noise=noise,
    )


def _runs(side: Sequence[Sample]) -> tuple[int, ...]:
    return tuple(one.run.head.run for one in side)
