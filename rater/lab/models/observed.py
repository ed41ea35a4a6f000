"""What a model is fitted to: of every layout of a sweep an x and a y, by benchmark; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from rater.analysis.results.copies import Point, PointRun
from rater.analysis.results.counters import BenchmarkCounts, run_counts
from rater.analysis.results.rates import Key, RunRates, run_rates, same_keys
from rater.analysis.stats.intervals import Noise, noise_within_rounds, run_to_run_noise
from rater.lab.models.quantities import (
    HITS,
    MISSES,
    OF_TIME,
    PAGES,
    WALKS,
    NumericAxis,
    PredictorKind,
    Quantity,
    counted_features,
    effort_of,
    huge_share,
    model_axis,
)
from rater.system.errors import InputError
from rater.text.values import group_by_key, truncate_list

#
# y is the median over a layout's runs, after what all layouts have in common in a round is taken
# off (where every layout has a run in every round). x from counters is the median over the runs
# too.

type Predicted = Callable[[str, str], float | None]  # benchmark, text of --pages -> misses


class ModelRequest(Struct, frozen=True):
    """What is asked for."""

    predicting: Quantity = OF_TIME
    explaining: PredictorKind | None = None  # None: the first that there is
    axis: str | None = None


class LayoutValue(Struct, frozen=True, kw_only=True):
    """One layout: a point of the sweep."""

    label: str
    x: float
    y: float
    values: tuple[float, ...]  # y of its runs
    runs: tuple[int, ...]
    features: tuple[tuple[str, float], ...]  # walks, misses, hits of a copy, where counted


class ModelData(Struct, frozen=True):
    """All layouts of one benchmark under the same other conditions."""

    benchmark: str
    tune: str | None
    held: str  # the values of the other axes: "copies=2"; "" where there are none
    x: Quantity
    y: Quantity
    layouts: tuple[LayoutValue, ...]  # ascending x
    noise: Noise  # of one run's y
    lacking: tuple[str, ...]  # what is left out, and why

    @property
    def name(self) -> str:
        """Its name, in tables and pictures."""
        return " ".join(part for part in (self.benchmark, self.tune, self.held) if part)

    @property
    def layout_noise(self) -> float:
        """Standard error of a layout's y from run to run, as a share of y."""
        return self.noise.of_median(min(len(layout.runs) for layout in self.layouts))


class _LayoutRun(Struct, frozen=True):
    """A run of a layout: its rates, and what was counted, by benchmark."""

    run: PointRun
    rates: RunRates
    counts: Sequence[BenchmarkCounts]

    def counted(self, key: Key) -> BenchmarkCounts | None:
        """Return the counts of a benchmark, those with the kernel's part first."""
        name, tune = key
        every = [
            count
            for count in self.counts
            if count.benchmark == name and tune in (None, count.tune) and count.rates is not None
        ]
        return min(every, key=lambda it: (it.user_only, -len(counted_features(it))), default=None)


def observe(
    points: Sequence[Point],
    wanted: ModelRequest,
    predicted: Predicted | None = None,
) -> tuple[ModelData, ...]:
    """Return x and y of all layouts, for each benchmark and set of other conditions.

    `predicted`: the misses of a copy that a stored trace predicts. Raises `InputError` where no
    x or no y is known.
    """
    every_run = [one.run for point in points for one in point.runs]
    needed = wanted.explaining is PredictorKind.AXIS or (
        wanted.explaining in (None, PredictorKind.HUGE)
        and not any(run.counted or any(copy.pages for copy in run.copies) for run in every_run)
    )
    axis = model_axis(points, wanted.axis, needed=needed)
    observing = _Observing(
        members={point.label: _members(point) for point in points},
        axis=axis,
        wanted=wanted,
        predicted=predicted,
        reasons=[],
    )
    every = [it for of in observing.members.values() for it in of]
    keys = dict.fromkeys(key for it in every for key in it.rates.rates)
    if not keys:
        told = dict.fromkeys(text for it in every for text in it.rates.left_out)
        raise InputError(f"no benchmark has a valid result: {truncate_list(list(told), 3)}")
    found = [
        one
        for held, of_held in _by_held(points, axis.name if axis else PAGES).items()
        for key in keys
        if (one := observing.of(key, held, of_held)) is not None
    ]
    if not found:
        raise InputError("no model: " + truncate_list(list(dict.fromkeys(observing.reasons)), 3))
    return tuple(found)


def _members(point: Point) -> tuple[_LayoutRun, ...]:
    rates = same_keys([run_rates(one.run, one.block) for one in point.runs])
    runs = zip(point.runs, rates, strict=True)
    return tuple(_LayoutRun(one, of, run_counts(one.run).benchmarks) for one, of in runs)


def _by_held(points: Sequence[Point], axis: str) -> dict[str, list[Point]]:
    known = any(name == axis for point in points for name, _ in point.values)
    return group_by_key(
        (
            " ".join(f"{name}={value}" for name, value in point.values if known and name != axis),
            point,
        )
        for point in points
    )


class _Observing(Struct, frozen=True, kw_only=True):
    """All runs of all layouts, and what is asked of them."""

    members: Mapping[str, Sequence[_LayoutRun]]  # by the label of the layout
    axis: NumericAxis | None
    wanted: ModelRequest
    predicted: Predicted | None
    reasons: list[str]  # why benchmarks have no model; grows

    def of(self, key: Key, held: str, points: Sequence[Point]) -> ModelData | None:
        """Return the layouts of one benchmark; None: nothing is known, see `reasons`."""
        y_of = self.wanted.predicting
        runs = {point.label: self._efforts(key, point) for point in points}
        known = [point for point in points if runs[point.label]]
        lacking = [f"{p.label}: no {y_of.name}" for p in points if not runs[p.label]]
        if not known:
            self.reasons.append(f"{key[0]}: no {y_of.name} is known")
            return None
        features = {
            point.label: _medians(
                counted_features(counts)
                for it, _ in runs[point.label]
                if (counts := it.counted(key)) is not None
            )
            for point in known
        }
        wanted = self.wanted.explaining
        kinds = _AXES if wanted is PredictorKind.AXIS else (wanted,)
        sources = [  # where none is asked for, only what all layouts have
            found
            for found in self._sources(key, known, features)
            if (found[0].kind in kinds if wanted else len(found[1]) == len(known)) and found[1]
        ]
        chosen = max(sources, key=lambda found: len(found[1]), default=None)  # of equals the first
        if chosen is None:
            why = _MISSING_X.get(wanted, "no axis of numbers, and no page walks were counted")
            self.reasons.append(f"{key[0]}: {why}")
            return None
        quantity, x_of = chosen
        lacking += [f"{p.label}: no {quantity.name}" for p in known if p.label not in x_of]
        labels = [point.label for point in known if point.label in x_of]
        noise, y_at = _adjusted({label: _by_block(runs[label]) for label in labels})
        layouts = [
            LayoutValue(
                label=label,
                x=x_of[label],
                y=y_at[label],
                values=tuple(y for _, y in runs[label]),
                runs=tuple(it.rates.run for it, _ in runs[label]),
                features=tuple(features[label].items()),
            )
            for label in labels
        ]
        layouts.sort(key=lambda one: one.x)
        return ModelData(*key, held, quantity, y_of, tuple(layouts), noise, tuple(lacking))

    def _efforts(self, key: Key, point: Point) -> list[tuple[_LayoutRun, float]]:
        found = []
        for it in self.members[point.label]:
            rate = it.rates.rates.get(key)
            if rate is not None:
                y = effort_of(self.wanted.predicting, it.run.run, key, rate, it.counted(key))
                if y:
                    found.append((it, y))
        return found

    def _sources(
        self, key: Key, points: Sequence[Point], features: Mapping[str, Mapping[str, float]]
    ) -> Iterator[tuple[Quantity, dict[str, float]]]:
        """Yield what can stand as x, the best first: counted, predicted, the value of the axis."""
        for name, text in ((WALKS, "page-walk cycles of a copy"), (MISSES, "TLB misses of a copy")):
            counted = {label: of[name] for label, of in features.items() if name in of}
            yield Quantity(name, text, "", "counted by the hardware"), counted
        if self.axis is None or self.axis.name == PAGES:
            yield from self._of_pages(key, points)
        if self.axis is None:
            return
        values = {point.label: dict(point.values)[self.axis.name] for point in points}
        yield (
            self.axis.quantity,
            {label: self.axis.values[text] for label, text in values.items()},
        )

    def _of_pages(
        self, key: Key, points: Sequence[Point]
    ) -> Iterator[tuple[Quantity, dict[str, float]]]:
        values = {point.label: dict(point.values).get(PAGES) for point in points}
        if self.predicted is not None:
            found = {
                label: self.predicted(key[0], text)
                for label, text in values.items()
                if text is not None
            }
            yield (
                Quantity(MISSES, "TLB misses of a copy", "", "predicted from a stored trace"),
                {label: misses for label, misses in found.items() if misses is not None},
            )
        had = {
            point.label: [
                share
                for it in self.members[point.label]
                if (share := huge_share(it.run.run, key)) is not None
            ]
            for point in points
        }
        yield (
            Quantity(
                PredictorKind.HUGE, "large pages", "%", "the share that copies had, as proved"
            ),
            {label: statistics.median(shares) for label, shares in had.items() if shares},
        )


_AXES = (PredictorKind.HUGE, PredictorKind.AXIS)
_MISSING_X: dict[PredictorKind | None, str] = {
    PredictorKind.WALKS: "no page-walk cycles were counted; `rater doctor counters` says what "
    "works here, `--counters` counts it",
    PredictorKind.MISSES: "no TLB misses were counted (`--counters`), and no stored trace "
    "predicts them (`rater lab trace SUITE/BENCHMARK`)",
    PredictorKind.HUGE: "--x huge needs the axis pages; --x axis takes any axis of numbers",
}


def _medians(every: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found = list(every)
    names = {name for one in found for name in one}
    return {
        name: statistics.median(one[name] for one in found if name in one)
        for name in (WALKS, MISSES, HITS)
        if name in names
    }


def _by_block(runs: Sequence[tuple[_LayoutRun, float]]) -> dict[int, float]:
    return {
        -1 - place if it.run.block is None else it.run.block: y
        for place, (it, y) in enumerate(runs)
    }


def _adjusted(ys: Mapping[str, Mapping[int, float]]) -> tuple[Noise, dict[str, float]]:
    groups = list(ys.values())
    rounds = noise_within_rounds(groups) if all(min(of) >= 0 for of in groups) else None
    common: dict[int, float] = {}
    if rounds is not None:
        of_round = {
            block: statistics.median(math.log(of[block]) for of in groups) for block in groups[0]
        }
        middle = statistics.median(of_round.values())
        common = {block: value - middle for block, value in of_round.items()}
    noise = rounds or run_to_run_noise([list(of.values()) for of in groups])
    return noise, {
        label: math.exp(
            statistics.median(math.log(y) - common.get(block, 0.0) for block, y in of.items())
        )
        for label, of in ys.items()
    }
