"""Throughput against the number of copies: speedup, knee, law, and what is left out; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.compare.differences import DisturbedRun, disturbed_runs, taken_runs
from rater.analysis.compare.falls import FallWithinRun, falls_within
from rater.analysis.compare.scaling_samples import (
    RunDifferences,
    Sample,
    by_conditions,
    curve_names,
    judged_samples,
    left_out,
    run_differences,
    samples_of,
)
from rater.analysis.results.copies import (
    CpusUsed,
    Point,
    Share,
    fair_copies,
    without_repeats,
)
from rater.analysis.results.disturbed import mostly_disturbed
from rater.analysis.results.measure import MetricMeasure, unit_of_throughput
from rater.analysis.results.rates import mean_rate
from rater.analysis.stats.curves import CurveShape, LawScale, NoLaw, Usl, curve_shape, fit_usl
from rater.analysis.stats.dips import Dip, DipComparison, find_dips
from rater.analysis.stats.intervals import Noise, noise_within_rounds, run_to_run_noise
from rater.analysis.stats.saturation import Saturation, choose_model
from rater.record.stored import CPU_RATIO, PER_CPU_HOUR, PER_HOUR, RATIO
from rater.text.cpuset import format_list
from rater.text.values import copies_text, truncate_list

# -- Throughput against the number of copies: speedup, efficiency, knee, plateau, law --------------
#
# A curve is of runs that differ in their copies only: every other value of a sweep, and every
# condition of a run that changes what its copies do (host, suite, size, tune, mode, layout, memory
# ...), makes a curve of its own. What else is not as it was is told.
#
# Efficiency is X(n) / (n X(1)); without a run of one copy the smallest number stands for it.
#
# *Against linear per lgroup* compares with what the machine's parts give alone: the copies on each
# lgroup in use are looked up among the points that used a single lgroup, and their rates added:
# linear(n) = sum over lgroups of X(copies there, on one lgroup). 48 copies that fill two lgroups of
# 24 are compared with twice the 24 on one; 16 that are spread over two, with twice the 8 on one. It
# takes the fight for a lgroup's own memory and cache out and leaves what lgroups cost each other.
# Where such a point was not measured it is not known.

SUITES = ("all", "int", "fp")
NO_NOISE = Noise(0.0, None)
NO_SHAPE = CurveShape(
    knee=None,
    plateau=None,
    peak=0,
    falls_at=None,
    reason="none of its points can be judged",
)
_APART = {  # why a point is not among those that a law is fitted to
    Share.CORES: "copies have a core each",
    Share.THREADS: "copies share cores",
    Share.CPUS: "copies share CPUs",
    Share.UNKNOWN: "it is not known what copies share",
}


class ScalePoint(Struct, frozen=True, kw_only=True):
    """One number of copies on the curve of a benchmark or suite."""

    copies: int
    runs: tuple[int, ...]
    rates: tuple[float, ...]  # of the runs
    rate: float  # their mean (`rates.mean_rate`)
    speedup: float  # against the smallest number of copies
    efficiency: float  # rate a copy against that of the smallest number
    gain: float | None  # rate a copy added since the last point, as a share of the first's
    per_lgroup: float | None  # rate against linear per lgroup; None: one lgroup, or not known
    # Mean over runs of the energy of a copy (of a suite: of each benchmark, added up).
    joules_per_copy: float | None = None
    unjudged: str | None = None  # why nothing can be concluded from it, in words


class Series(Struct, frozen=True, kw_only=True):
    """The curve of one benchmark, or of a geometric mean over several."""

    name: str
    is_suite: bool
    category: str | None
    unit: str  # "ratio" or "copies/hour", or the same by CPU time
    over: tuple[str, ...]  # a suite's benchmarks: those with a result at every number of copies
    points: tuple[ScalePoint, ...]  # by copies
    noise: Noise
    shape: CurveShape
    law: Usl | NoLaw
    dips: tuple[Dip, ...] = ()  # points slower than their neighbours: the law is without them
    saturation: Saturation | None = None  # what describes the curve in place of the law
    by_cpu: float | None = None  # share that others took of copies' time; None: by elapsed time
    unjudged: tuple[tuple[int, str], ...] = ()  # numbers of copies left out of it, and why

    @property
    def judged(self) -> tuple[ScalePoint, ...]:
        """The points that conclusions rest on."""
        return tuple(point for point in self.points if point.unjudged is None)

    def point_of(self, copies: int) -> ScalePoint | None:
        """Return the point of so many copies."""
        return next((point for point in self.points if point.copies == copies), None)


class Curve(Struct, frozen=True, kw_only=True):
    """Runs that differ in their copies only."""

    name: str  # what tells it from the other curves: "thp=always"; "" for a single one
    conditions: tuple[tuple[str, str], ...]  # all of them, by name
    copies: tuple[int, ...]  # ascending
    runs: tuple[int, ...]
    places: tuple[CpusUsed, ...]  # by copies
    series: tuple[Series, ...]  # suites first, then benchmarks
    differences: RunDifferences  # significant first
    lacking: tuple[str, ...]  # what has no result, or does not count, in words
    troubles: tuple[DisturbedRun, ...]
    falls: tuple[FallWithinRun, ...]  # within its runs, by copies

    @property
    def suites(self) -> tuple[Series, ...]:
        """Its geometric means: all, int, fp."""
        return tuple(one for one in self.series if one.is_suite)

    @property
    def benchmarks(self) -> tuple[Series, ...]:
        """Its benchmarks."""
        return tuple(one for one in self.series if not one.is_suite)

    @property
    def fair(self) -> int:
        """Up to how many copies it is of one kind (`fair_copies`): what speedups are told at."""
        return fair_copies(self.places)

    def place(self, copies: int) -> CpusUsed:
        """Return where so many copies were placed."""
        return self.places[self.copies.index(copies)]


class ExcludedRuns(Struct, frozen=True):
    """Runs on no curve."""

    runs: tuple[int, ...]
    name: str  # what tells them from the others: "layout=compact"
    copies: tuple[int, ...]  # ascending, each once
    reason: str  # in words

    def __str__(self) -> str:
        """Say so."""
        what = f" ({self.name})" if self.name else ""
        return (
            f"run{'' if len(self.runs) == 1 else 's'} {format_list(self.runs)}{what}: {self.reason}"
        )


class Scaling(Struct, frozen=True):
    """All that runs with different numbers of copies say."""

    curves: tuple[Curve, ...]
    alone: tuple[ExcludedRuns, ...]
    samples: tuple[Sample, ...]


def scaling_curves(
    points: Sequence[Point], law_on: LawScale = LawScale.LOG, measure: MetricMeasure | None = None
) -> Scaling:
    """Return the curves of the points' runs; one that stands in several points counts once.

    `law_on`: what the squares of the law's fit are of; `measure`: the metric that curves are of.
    """
    samples = samples_of(without_repeats(points)[0])
    groups = by_conditions(samples)
    names = curve_names(tuple(groups))
    curves, alone = [], []
    for key, members in groups.items():
        counts = tuple(sorted({member.places.copies for member in members}))
        curve = _curve(names[key], key, members, law_on, measure)
        if any(len(one.points) > 1 for one in curve.series):
            curves.append(curve)
            continue
        reason = "no benchmark has a result"
        if len(counts) > 1 and curve.series:
            reason = "no benchmark has results with two numbers of copies"
        elif curve.series:
            whom = "it" if len(members) == 1 else "them"
            reason = f"nothing else like {whom} has another number of copies than {counts[0]}"
        alone.append(
            ExcludedRuns(
                tuple(member.run.head.run for member in members), names[key], counts, reason
            )
        )
    return Scaling(tuple(curves), tuple(alone), samples)


def _curve(
    name: str,
    key: tuple[tuple[str, str], ...],
    members: Sequence[Sample],
    law_on: LawScale,
    measure: MetricMeasure | None,
) -> Curve:
    by_copies: dict[int, list[Sample]] = {}
    # The others stand in `Curve.lacking`.
    troubles = disturbed_runs({member.run.head.run: member.run for member in members}.values())
    members = judged_samples(members, taken_runs(troubles), measure)
    with_rates = [member for member in members if member.rates.rates]
    for sample in sorted(
        with_rates, key=lambda sample: (sample.places.copies, sample.run.head.run)
    ):
        by_copies.setdefault(sample.places.copies, []).append(sample)
    names = list(dict.fromkeys(name for member in members for name in member.rates.rates))
    categories = {
        name: rated.category for member in members for name, rated in member.rates.rates.items()
    }
    references = [
        {member.rates.rates[name].reference_s for member in members if name in member.rates.rates}
        for name in names
    ]
    quantity = _Quantity(
        by_ratio=all(len(seconds) == 1 and all(seconds) for seconds in references),
        metric_unit=None if measure is None else unit_of_throughput(measure),
    )
    everywhere = [
        name
        for name in names
        if all(
            any(name in sample.rates.rates for sample in samples) for samples in by_copies.values()
        )
    ]
    kinds = _kinds(names, everywhere, categories)
    series_list = [
        series
        for kind in kinds
        if (series := _series(kind, by_copies, quantity, law_on)) is not None
    ]
    return Curve(
        name=name,
        conditions=key,
        copies=tuple(by_copies),
        runs=tuple(sample.run.head.run for samples in by_copies.values() for sample in samples),
        places=tuple(samples[0].places for samples in by_copies.values()),
        series=tuple(series_list),
        differences=run_differences(by_copies),
        lacking=(
            *(
                f"run {member.run.head.run} ({copies_text(member.run.head.copies)}): {reason}"
                for member in members
                for reason in member.rates.lacking
            ),
            *left_out(names, everywhere, by_copies),
        ),
        troubles=troubles,
        falls=_falls(by_copies, series_list) if measure is None else (),
    )


def _falls(
    by_copies: Mapping[int, Sequence[Sample]], series_list: Sequence[Series]
) -> tuple[FallWithinRun, ...]:
    """Return the falls within all runs of a curve, each run once."""
    noise = {series.name: series.noise for series in series_list}
    return tuple(
        fall
        for samples in by_copies.values()
        for run in {sample.run.head.run: sample.run for sample in samples}.values()
        for fall in falls_within(run, noise)
    )


def _kinds(
    names: Sequence[str], everywhere: Sequence[str], categories: Mapping[str, str | None]
) -> list[_Kind]:
    """Return the series of a curve: suites over what has a result everywhere, then benchmarks."""
    suites = [
        _Kind(kind, True, None if kind == "all" else kind, tuple(over))
        for kind in SUITES
        if (over := [name for name in everywhere if kind in ("all", categories[name])])
        and len(over) > 1
        and (kind == "all" or len(over) < len(everywhere))
    ]
    return [*suites, *(_Kind(name, False, categories[name], (name,)) for name in names)]


class _Kind(Struct, frozen=True):
    name: str
    is_suite: bool
    category: str | None
    over: tuple[str, ...]


class _PointRates(Struct, frozen=True, kw_only=True):
    """The rates of runs with one number of copies."""

    places: CpusUsed
    runs: tuple[int, ...]
    rates: tuple[float, ...]
    by_round: dict[int, float]  # empty: not each run was made in a round of its own
    joules: float | None
    unjudged: str | None = None  # why nothing can be concluded from it, in words

    @property
    def mean(self) -> float:
        return mean_rate(self.rates) or 0.0


class _Quantity(Struct, frozen=True, kw_only=True):
    """What the rates of a series are."""

    by_ratio: bool
    by_cpu: bool = False
    metric_unit: str | None = None  # where copies report it

    @property
    def unit(self) -> str:
        if self.metric_unit is not None:
            return self.metric_unit
        if self.by_cpu:
            return CPU_RATIO if self.by_ratio else PER_CPU_HOUR
        return RATIO if self.by_ratio else PER_HOUR


def _point_rates(
    kind: _Kind, samples: Sequence[Sample], quantity: _Quantity, unjudged: str | None
) -> _PointRates | None:
    """Return the rates of a benchmark or suite; None: no run has one."""
    rates = [
        (
            sample,
            sample.rates.over(kind.over, by_ratio=quantity.by_ratio, by_cpu=quantity.by_cpu),
        )
        for sample in samples
    ]
    rated = [(sample.run.head.run, rate) for sample, rate in rates if rate is not None]
    if not rated:
        return None
    joules = [sample.rates.joules_over(kind.over) for sample in samples]
    is_one_a_round = len({sample.block for sample in samples}) == len(samples)
    return _PointRates(
        places=samples[0].places,
        runs=tuple(run for run, _ in rated),
        rates=tuple(rate for _, rate in rated),
        by_round={
            sample.block: rate
            for sample, rate in rates
            if is_one_a_round and sample.block is not None and rate
        },
        joules=mean_rate([value for value in joules if value is not None]),
        unjudged=unjudged,
    )


def _why_not_by_cpu(kind: _Kind, samples: Sequence[Sample]) -> str | None:
    """Return why CPU time may not judge a benchmark or suite at a point, or None."""
    results = [
        sample.rates.rates[name]
        for sample in samples
        for name in kind.over
        if name in sample.rates.rates
    ]
    reasons = (result.not_by_cpu for result in results if not result.cpu_per_s)
    return next((reason or "no CPU time is known" for reason in reasons), None)


def _series(
    kind: _Kind, by_copies: dict[int, list[Sample]], quantity: _Quantity, law_on: LawScale
) -> Series | None:
    """Return the curve of a benchmark or suite; None: no point has a rate of it.

    Where others disturbed a point, CPU time judges all points that it may judge, and nothing is
    concluded from the others.
    """
    disturbed = {
        copies: why
        for copies, samples in by_copies.items()
        if (why := mostly_disturbed([sample.is_disturbed for sample in samples]))
    }
    lacking = {
        copies: why
        for copies, samples in (by_copies if disturbed else {}).items()
        if (why := _why_not_by_cpu(kind, samples))
    }
    by_cpu = bool(disturbed) and len(by_copies) - len(lacking) > 1
    quantity = replace(quantity, by_cpu=by_cpu)
    unjudged = {
        copies: f"{why}; not by CPU time: {lacking[copies]}" if copies in lacking else why
        for copies, why in disturbed.items()
        if copies in lacking or not by_cpu
    }
    left_out = {
        copies: unjudged.get(copies, f"not by CPU time: {why}")
        for copies, why in (lacking if by_cpu else {}).items()
    }
    candidates = [
        _point_rates(kind, samples, quantity, unjudged.get(copies))
        for copies, samples in by_copies.items()
        if copies not in left_out
    ]
    measured = [point for point in candidates if point is not None]
    if not measured:
        return None
    kept = [samples for copies, samples in by_copies.items() if copies not in left_out]
    return _judged_series(
        Series(
            name=kind.name,
            is_suite=kind.is_suite,
            category=kind.category,
            unit=quantity.unit,
            over=kind.over if kind.is_suite else (),
            points=_scale_points(measured),
            noise=NO_NOISE,
            shape=NO_SHAPE,
            law=NoLaw("nothing can be concluded from its points"),
            by_cpu=_others_took(kind, kept) if by_cpu else None,
            unjudged=tuple(left_out.items()),
        ),
        [point for point in measured if point.unjudged is None],
        law_on,
    )


def _others_took(kind: _Kind, points: Sequence[Sequence[Sample]]) -> float:
    """Return the largest share of the copies' time that others took, 0 to 1."""
    results = [
        sample.rates.rates[name]
        for samples in points
        for sample in samples
        for name in kind.over
        if name in sample.rates.rates
    ]
    return max((result.others_took or 0.0 for result in results), default=0.0)


def _judged_series(series: Series, judged: Sequence[_PointRates], law_on: LawScale) -> Series:
    """Return a series with what its judged points say: noise, shape and law."""
    if not judged:
        return series
    places = [point.places for point in judged]
    copies, means = [place.copies for place in places], [point.mean for point in judged]
    runs = [len(point.rates) for point in judged]
    noise = noise_within_rounds([point.by_round for point in judged]) or run_to_run_noise(
        [point.rates for point in judged]
    )
    fair = copies.index(fair_copies(places)) + 1
    comparison = DipComparison(
        has_no_more_room=lambda point, other: places[other].has_no_more_room(places[point]),
        has_same_parts=lambda point, other: places[other].nodes_used == places[point].nodes_used,
    )
    dips = find_dips(copies, means, runs, noise, comparison)
    dipped = {dip.copies for dip in dips}
    sound = [index for index, number in enumerate(copies) if number not in dipped]
    law, saturation = _law(
        [places[index] for index in sound],
        [means[index] for index in sound],
        [runs[index] for index in sound],
        noise,
        law_on,
    )
    return replace(
        series,
        noise=noise,
        shape=curve_shape(copies, means, runs, noise, fair),
        law=law,
        dips=dips,
        saturation=saturation,
    )


def _scale_points(measured: Sequence[_PointRates]) -> tuple[ScalePoint, ...]:
    """Return the points of a curve, each against the first and against the one before."""
    on_one_node = {
        point.places.copies: point.mean
        for point in measured
        if point.places.lgroups is not None and len(point.places.lgroups) == 1
    }
    first = measured[0].mean
    first_a_copy = first / measured[0].places.copies
    points = []
    for before, point in zip([None, *measured[:-1]], measured, strict=True):
        rate, copies = point.mean, point.places.copies
        gain = None
        if before is not None:
            gain = (rate - before.mean) / (copies - before.places.copies) / first_a_copy
        lgroups, linear = point.places.lgroups, None
        if lgroups and len(lgroups) > 1 and on_one_node.keys() >= {*lgroups}:
            linear = sum(on_one_node[copies_there] for copies_there in lgroups)
        points.append(
            ScalePoint(
                copies=copies,
                runs=point.runs,
                rates=point.rates,
                rate=rate,
                speedup=rate / first,
                efficiency=rate / copies / first_a_copy,
                gain=gain,
                per_lgroup=rate / linear if linear else None,
                joules_per_copy=point.joules,
                unjudged=point.unjudged,
            )
        )
    return tuple(points)


def _law(
    places: Sequence[CpusUsed],
    means: Sequence[float],
    runs: Sequence[int],
    noise: Noise,
    law_on: LawScale,
) -> tuple[Usl | NoLaw, Saturation | None]:
    """Fit the law to the points that are alike in what a copy has for itself.

    A second thread of a core is not a second core, and a CPU shared by two copies adds nothing:
    one law cannot hold over both. Of several such parts of the curve the one with the most points
    is taken, of equals that with the fewest copies a core.
    """
    groups: dict[tuple[Share, int | None], list[int]] = {}
    for index, place in enumerate(places):
        if place.share is Share.UNKNOWN:
            groups.setdefault((place.share, None), []).append(index)
        elif place.share is not Share.CPUS and place.even is not None:
            groups.setdefault((place.share, place.even), []).append(index)
    chosen = max(groups.values(), key=len, default=[])
    copies = [places[index].copies for index in chosen]
    rates, counts = [means[index] for index in chosen], [runs[index] for index in chosen]
    fitted, saturation = choose_model(
        fit_usl(copies, rates, counts, noise, law_on), copies, rates, counts, noise
    )
    left = [one for index, one in enumerate(places) if index not in chosen]
    if isinstance(fitted, NoLaw) and left:
        text = truncate_list([str(one.copies) for one in left], 3)
        does = "does" if len(left) == 1 else "do"
        reason = f"{fitted.reason} ({text} {does} not count: {_APART[left[0].share]} there)"
        return NoLaw(reason), saturation
    return fitted, saturation
