"""What a model is fitted to: of every layout of a sweep an x and a y, by benchmark; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from rater.analysis.results.copies import Point, PointRun
from rater.analysis.results.counters import ESTIMATED_WALKS, BenchmarkCounts, run_counts
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

# y is the median over a layout's runs, after what all layouts have in common in a round is taken
# off (where every layout has a run in every round). x from counters is the median over the runs
# too.

type Predicted = Callable[[str, str], float | None]  # benchmark, text of --pages -> misses


class ModelRequest(Struct, frozen=True):
    """The quantities of a model: y, x and the axis of the sweep."""

    predicting: Quantity = OF_TIME
    explaining: PredictorKind | None = None  # None takes the first that is known
    axis: str | None = None


class LayoutValue(Struct, frozen=True, kw_only=True):
    """One layout: a point of the sweep."""

    label: str
    x: float
    y: float
    values: tuple[float, ...]  # y of its runs
    runs: tuple[int, ...]
    features: tuple[tuple[str, float], ...]  # walks, misses, hits of a copy, where counted


class ModelData(Struct, frozen=True, kw_only=True):
    """All layouts of one benchmark under the same other conditions."""

    benchmark: str
    tune: str | None
    held: str  # the values of the other axes: "copies=2"; "" where there are none
    x: Quantity
    y: Quantity
    layouts: tuple[LayoutValue, ...]  # ascending x
    noise: Noise  # of one run's y
    lacking: tuple[str, ...]  # layouts that are left out, and why

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
        candidates = [
            count
            for count in self.counts
            if count.benchmark == name and tune in (None, count.tune) and count.rates is not None
        ]
        return min(
            candidates,
            key=lambda counts: (counts.user_only, -len(counted_features(counts))),
            default=None,
        )


def observe(
    points: Sequence[Point],
    model_request: ModelRequest,
    predicted: Predicted | None = None,
) -> tuple[ModelData, ...]:
    """Return x and y of all layouts, for each benchmark and set of other conditions.

    `predicted`: the misses of a copy that a stored trace predicts. Raises `InputError` where no
    x or no y is known.
    """
    point_runs = [point_run.run for point in points for point_run in point.runs]
    needs_axis = model_request.explaining is PredictorKind.AXIS or (
        model_request.explaining in (None, PredictorKind.HUGE)
        and not any(run.counted or any(copy.pages for copy in run.copies) for run in point_runs)
    )
    axis = model_axis(points, model_request.axis, needed=needs_axis)
    observing = _Observing(
        members={point.label: _members(point) for point in points},
        axis=axis,
        wanted=model_request,
        predicted=predicted,
        reasons=[],
    )
    layout_runs = [run for members in observing.members.values() for run in members]
    keys = dict.fromkeys(key for run in layout_runs for key in run.rates.rates)
    if not keys:
        left_out = dict.fromkeys(text for run in layout_runs for text in run.rates.left_out)
        raise InputError(f"no benchmark has a valid result: {truncate_list(list(left_out), 3)}")
    models = [
        data
        for held, held_points in _by_held(points, axis.name if axis else PAGES).items()
        for key in keys
        if (data := observing.observe_benchmark(key, held, held_points)) is not None
    ]
    if not models:
        raise InputError("no model: " + truncate_list(list(dict.fromkeys(observing.reasons)), 3))
    return tuple(models)


def _members(point: Point) -> tuple[_LayoutRun, ...]:
    rates = same_keys([run_rates(point_run.run, point_run.block) for point_run in point.runs])
    return tuple(
        _LayoutRun(point_run, rates_of_run, run_counts(point_run.run).benchmarks)
        for point_run, rates_of_run in zip(point.runs, rates, strict=True)
    )


def _by_held(points: Sequence[Point], axis: str) -> dict[str, list[Point]]:
    known = any(name == axis for point in points for name, _ in point.values)
    return group_by_key(
        (
            " ".join(f"{name}={value}" for name, value in point.values if known and name != axis),
            point,
        )
        for point in points
    )


_WALK_CYCLES, _BY_HARDWARE = "page-walk cycles of a copy", "counted by the hardware"
_COUNTED = (
    (WALKS, Quantity(WALKS, _WALK_CYCLES, "", _BY_HARDWARE)),
    (MISSES, Quantity(MISSES, "TLB misses of a copy", "", _BY_HARDWARE)),
    # No better than the misses, which come first.
    (
        ESTIMATED_WALKS,
        Quantity(WALKS, _WALK_CYCLES, "", "estimated: misses x what one costs on this machine"),
    ),
)


class _Predictor(Struct, frozen=True):
    """A quantity that can stand as x, and its values."""

    quantity: Quantity
    values: Mapping[str, float]  # by the label of the layout, of those where it is known


class _Observing(Struct, frozen=True, kw_only=True):
    """All runs of all layouts, and the quantities of the models."""

    members: Mapping[str, Sequence[_LayoutRun]]  # by the label of the layout
    axis: NumericAxis | None
    wanted: ModelRequest
    predicted: Predicted | None
    reasons: list[str]  # why benchmarks have no model; grows

    def observe_benchmark(self, key: Key, held: str, points: Sequence[Point]) -> ModelData | None:
        """Return the layouts of one benchmark; None, and a text in `reasons`, without x or y."""
        effort = self.wanted.predicting
        runs = {point.label: self._efforts(key, point) for point in points}
        labels = [point.label for point in points if runs[point.label]]
        lacking = [f"{label}: no {effort.name}" for label, efforts in runs.items() if not efforts]
        if not labels:
            self.reasons.append(f"{key[0]}: no {effort.name} is known")
            return None
        features = {label: self._features(key, runs[label]) for label in labels}
        with_effort = [point for point in points if runs[point.label]]
        predictor = self._choose_predictor(key, with_effort, features)
        if predictor is None:
            return None
        quantity, x_values = predictor.quantity, predictor.values
        lacking += [f"{label}: no {quantity.name}" for label in labels if label not in x_values]
        labels = [label for label in labels if label in x_values]
        noise, y_values = _adjusted({label: _by_block(runs[label]) for label in labels})
        layouts = [
            LayoutValue(
                label=label,
                x=x_values[label],
                y=y_values[label],
                values=tuple(value for _, value in runs[label]),
                runs=tuple(run.rates.run for run, _ in runs[label]),
                features=tuple(features[label].items()),
            )
            for label in labels
        ]
        benchmark, tune = key
        return ModelData(
            benchmark=benchmark,
            tune=tune,
            held=held,
            x=quantity,
            y=effort,
            layouts=tuple(sorted(layouts, key=lambda layout: layout.x)),
            noise=noise,
            lacking=tuple(lacking),
        )

    def _efforts(self, key: Key, point: Point) -> list[tuple[_LayoutRun, float]]:
        """Return the runs of a layout that have y, each with it."""
        efforts = []
        for run in self.members[point.label]:
            rate = run.rates.rates.get(key)
            if rate is not None:
                counts = run.counted(key)
                value = effort_of(self.wanted.predicting, run.run.run, key, rate, counts)
                if value:
                    efforts.append((run, value))
        return efforts

    def _features(self, key: Key, efforts: Sequence[tuple[_LayoutRun, float]]) -> dict[str, float]:
        """Return walks, misses and hits of a layout, medians over its runs, where counted."""
        counts = (run.counted(key) for run, _ in efforts)
        return _medians(counted_features(each) for each in counts if each is not None)

    def _choose_predictor(
        self, key: Key, points: Sequence[Point], features: Mapping[str, Mapping[str, float]]
    ) -> _Predictor | None:
        """Return the predictor that most layouts have, of equals the first.

        Without a wish only predictors count that all layouts have. None, and a text in `reasons`,
        where no predictor is known.
        """
        wanted = self.wanted.explaining
        kinds = _AXES if wanted is PredictorKind.AXIS else (wanted,)
        predictors = [
            predictor
            for predictor in self._predictors(key, points, features)
            if predictor.values
            and (
                predictor.quantity.kind in kinds if wanted else len(predictor.values) == len(points)
            )
        ]
        if not predictors:
            reason = _MISSING_X.get(wanted, "no axis of numbers, and no page walks were counted")
            self.reasons.append(f"{key[0]}: {reason}")
            return None
        return max(predictors, key=lambda predictor: len(predictor.values))

    def _predictors(
        self, key: Key, points: Sequence[Point], features: Mapping[str, Mapping[str, float]]
    ) -> Iterator[_Predictor]:
        """Yield what can stand as x, the best first: counted, predicted, proved, the axis."""
        for feature, quantity in _COUNTED:
            yield _Predictor(
                quantity,
                {label: found[feature] for label, found in features.items() if feature in found},
            )
        if self.axis is None or self.axis.name == PAGES:
            yield from self._predicted_misses(key, points)
            yield self._proved_shares(key, points)
        if self.axis is not None:
            texts = {point.label: dict(point.values)[self.axis.name] for point in points}
            values = {label: self.axis.values[text] for label, text in texts.items()}
            yield _Predictor(self.axis.quantity, values)

    def _predicted_misses(self, key: Key, points: Sequence[Point]) -> Iterator[_Predictor]:
        """Yield the misses that a stored trace predicts, where there is one."""
        if self.predicted is None:
            return
        texts = {point.label: dict(point.values).get(PAGES) for point in points}
        misses = {
            label: self.predicted(key[0], text) for label, text in texts.items() if text is not None
        }
        yield _Predictor(
            Quantity(MISSES, "TLB misses of a copy", "", "predicted from a stored trace"),
            {label: value for label, value in misses.items() if value is not None},
        )

    def _proved_shares(self, key: Key, points: Sequence[Point]) -> _Predictor:
        """Return the per cent of memory that copies had in large pages, medians over runs."""
        shares = {
            point.label: [huge_share(run.run.run, key) for run in self.members[point.label]]
            for point in points
        }
        seen_shares = {
            label: [share for share in of_layout if share is not None]
            for label, of_layout in shares.items()
        }
        return _Predictor(
            Quantity(
                PredictorKind.HUGE, "large pages", "%", "the share that copies had, as proved"
            ),
            {
                label: statistics.median(of_layout)
                for label, of_layout in seen_shares.items()
                if of_layout
            },
        )


_AXES = (PredictorKind.HUGE, PredictorKind.AXIS)
_MISSING_X: dict[PredictorKind | None, str] = {
    PredictorKind.WALKS: "no page-walk cycles were counted; `rater doctor counters` says what "
    "works here, `--counters` counts it",
    PredictorKind.MISSES: "no TLB misses were counted (`--counters`), and no stored trace "
    "predicts them (`rater lab trace SUITE/BENCHMARK`)",
    PredictorKind.HUGE: "--x huge needs the axis pages; --x axis takes any axis of numbers",
}


def _medians(feature_sets: Iterable[Mapping[str, float]]) -> dict[str, float]:
    values = group_by_key((name, value) for each in feature_sets for name, value in each.items())
    names = (WALKS, MISSES, HITS, ESTIMATED_WALKS)
    return {name: statistics.median(values[name]) for name in names if name in values}


def _by_block(efforts: Sequence[tuple[_LayoutRun, float]]) -> dict[int, float]:
    """Return y by the round of its run; a run of no round has a number below 0 of its own."""
    return {
        -1 - place if run.run.block is None else run.run.block: value
        for place, (run, value) in enumerate(efforts)
    }


def _adjusted(
    values_by_label: Mapping[str, Mapping[int, float]],
) -> tuple[Noise, dict[str, float]]:
    """Return the noise of a run's y, and each layout's y without the effects of rounds.

    A round's effect is the median of ln y over layouts, less the median of all rounds. It is known
    where every layout has a run in every round.
    """
    layouts = list(values_by_label.values())
    in_rounds = all(min(by_round) >= 0 for by_round in layouts)
    noise_in_rounds = noise_within_rounds(layouts) if in_rounds else None
    round_effects: dict[int, float] = {}
    if noise_in_rounds is not None:
        round_logs = {
            block: statistics.median(math.log(by_round[block]) for by_round in layouts)
            for block in layouts[0]
        }
        middle = statistics.median(round_logs.values())
        round_effects = {block: value - middle for block, value in round_logs.items()}
    noise = noise_in_rounds or run_to_run_noise([list(by_round.values()) for by_round in layouts])
    return noise, {
        label: math.exp(
            statistics.median(
                math.log(value) - round_effects.get(block, 0.0) for block, value in by_round.items()
            )
        )
        for label, by_round in values_by_label.items()
    }
