"""A benchmark over the runs of a host: its steps, their dates, and what changed then; pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from statistics import fmean

from msgspec import Struct

from rater.analysis.compare.differences import run_differences, work_of
from rater.analysis.compare.model import in_order
from rater.analysis.results.copies import PointRun
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.disturbed import (
    foreign_load_cost,
    is_too_disturbed,
    mostly_disturbed,
)
from rater.analysis.results.measure import (
    Better,
    MetricMeasure,
    find_measure,
    measures_of,
    with_measure,
)
from rater.analysis.results.rates import (
    Key,
    RunRates,
    run_rates,
    same_keys,
    with_cpu_times,
)
from rater.analysis.results.result import Result
from rater.analysis.stats.steps import (
    FEWEST_POINTS,
    QUIETEST_TIMES,
    LevelStep,
    find_steps,
)
from rater.record.stored import (
    CPU_RATIO,
    PER_CPU_HOUR,
    PER_HOUR,
    RATIO,
    RunHead,
    StoredRun,
)
from rater.system.errors import InputError
from rater.text.values import group_by_key

# Points are compared by their merit, which rises as things get better (`analysis.results.measure`):
# the rate of copies, the rate by CPU time, or a metric. A step is the ratio of two levels of merit,
# above 1: better, as the speedup of a comparison is.

LEAST_TIMES = 0.01  # smallest step that is told, as `same` in comparisons
LEAST_COUNTS = 0.001  # of a count, which work of others does not change
_QUIETEST_COUNTS = 0.00001  # ln: a count of 100,000 instructions that moves by one
_ABOUT = 2  # points by which noise may hide where a step is
_FEWEST_SESSIONS = 3  # on each side of a step: fewer may differ by themselves


class Group(StrEnum):
    """What makes runs one point."""

    RUN = "run"
    SESSION = "session"  # an hour in which none was made parts two
    DAY = "day"  # of their start, UTC
    TAG = "tag"  # the value of one


class Grouping(Struct, frozen=True, kw_only=True):
    """How runs become points; the group None: sessions, where they are enough, else runs."""

    group: Group | None = None
    tag: str = ""  # of `Group.TAG`, its name


class HistoryMeasure(Struct, frozen=True, kw_only=True):
    """What a history is of."""

    metric: MetricMeasure | None = None  # None: time, or CPU time
    by_cpu: bool = False
    unasked: bool = False  # by CPU time, because others disturbed most runs
    unit: str

    @property
    def is_disturbable(self) -> bool:
        """Whether work of others changes it."""
        return not self.by_cpu and (self.metric is None or self.metric.is_disturbable)

    @property
    def is_count(self) -> bool:
        """Whether it is a count that work of others does not change."""
        return self.metric is not None and not self.metric.is_disturbable

    def value(self, merit: float) -> float:
        """Return the value in `unit` that a merit stands for."""
        is_lower_better = self.metric is not None and self.metric.better is Better.LOWER
        return 1 / merit if is_lower_better else merit


class CoursePoint(Struct, frozen=True, kw_only=True):
    """The runs that are one point, the earliest first."""

    label: str  # the day, the value of the tag, the numbers of runs
    runs: tuple[int, ...]
    started_at: str | None  # of the first one
    merit: float  # geometric mean over the runs


class StepChange(Struct, frozen=True, kw_only=True):
    """What was one thing before a step and another after it."""

    what: str  # "setting kernel.release", "program of lu"
    before: str | None  # None: there was none
    after: str | None
    elsewhere: bool  # it changed at other times too, without a step
    significant: bool  # False: worth a note, as in comparisons


class HistoryStep(Struct, frozen=True, kw_only=True):
    """A change of the level of a benchmark."""

    place: int  # of the first point after it
    earliest: int  # what else may be that point, as noise hides where the step is
    latest: int
    ratio: float  # merit after over merit before; above 1: better
    before: float  # levels, as merits
    after: float
    points_since: int  # until the next step
    by_chance: float
    changes: tuple[StepChange, ...]
    between_sessions: bool  # of fewer than three on a side: sessions may differ by themselves


class ExcludedRun(Struct, frozen=True):
    """A run that is no part of a history, and why."""

    run: int
    reason: str


class RunHistory(Struct, frozen=True, kw_only=True):
    """All that is told of a benchmark in one kind of run."""

    head: RunHead  # of the last run
    benchmark: str
    tune: str | None
    measure: HistoryMeasure
    group: Group
    tag: str
    points: tuple[CoursePoint, ...]
    steps: tuple[HistoryStep, ...]
    excluded: tuple[ExcludedRun, ...]

    @property
    def is_long_enough(self) -> bool:
        """Whether a step could show."""
        return len(self.points) >= FEWEST_POINTS


def run_histories(
    benchmark: str,
    runs: Sequence[StoredRun],
    *,
    grouping: Grouping,
    by_cpu: bool = False,
    by_metric: str | None = None,
    least: float | None = None,
) -> tuple[RunHistory, ...]:
    """Return the histories of a benchmark, one for each kind of run, the last one run first.

    Those too short for steps stand behind the others. `runs` are those that have it; runs of one
    kind were asked to do the same work. `least`: the smallest step that is told, as a share; None:
    1 %, of a count 0.1 %. Raises `InputError` where no run has the metric.
    """
    if by_metric is not None and not any(_has_metric(run, benchmark, by_metric) for run in runs):
        reported = ", ".join(measure.name for measure in measures_of(runs)) or "none"
        raise InputError(
            f"--by {by_metric}: expected day, commit, tag:K, session, run, cpu, or a metric of "
            f"{benchmark} with a direction: {reported}"
        )
    kinds = group_by_key(
        ((work_of(run, whole=grouping.group is not Group.TAG), _units(run, by_metric)), run)
        for run in sorted(runs, key=_when)
    )
    histories = [
        history
        for same_work in kinds.values()
        if by_metric is None or any(_has_metric(run, benchmark, by_metric) for run in same_work)
        for history in _of_kind(
            benchmark, same_work, grouping, by_cpu=by_cpu, by_metric=by_metric, least=least
        )
    ]
    histories.sort(key=lambda history: _place(history.head), reverse=True)
    return tuple(sorted(histories, key=lambda history: not history.is_long_enough))


def _when(run: StoredRun) -> tuple[str, int]:
    return _place(run.head)


def _place(head: RunHead) -> tuple[str, int]:
    return head.started_at or "", head.run


def _units(run: StoredRun, by_metric: str | None) -> tuple[tuple[str, str | None, str], ...]:
    """Return how a run reports a metric: a count has its source as unit, and none are mixed."""
    return tuple(
        dict.fromkeys(
            (metric.unit, metric.better, metric.combine)
            for used in run.benchmarks
            for metric in used.metrics
            if metric.name == by_metric
        )
    )


def _has_metric(run: StoredRun, benchmark: str, by_metric: str) -> bool:
    return any(
        metric.name == by_metric
        for used in run.benchmarks
        if used.name == benchmark
        for metric in used.metrics
    )


class _RatedRun(Struct, frozen=True):
    run: StoredRun
    rates: RunRates
    taken: bool  # others took too much of it


def _of_kind(
    benchmark: str,
    runs: Sequence[StoredRun],
    grouping: Grouping,
    *,
    by_cpu: bool,
    by_metric: str | None,
    least: float | None,
) -> Iterator[RunHistory]:
    metric = None if by_metric is None else find_measure(by_metric, runs)
    rates = same_keys([run_rates(run, None) for run in runs])
    rated = [
        _RatedRun(run, of_run, is_too_disturbed(foreign_load_cost(run, run_counters(run))))
        for run, of_run in zip(runs, rates, strict=True)
    ]
    keys = dict.fromkeys(
        key for rated_run in rated for key in rated_run.rates.rates if key[0] == benchmark
    )
    for key in keys or {(benchmark, None): None}:
        yield _of_key(key, rated, grouping, _measure(key, rated, metric, by_cpu=by_cpu), least)


def _measure(
    key: Key, rated: Sequence[_RatedRun], metric: MetricMeasure | None, *, by_cpu: bool
) -> HistoryMeasure:
    """Return what a history is of: where others disturbed most runs unasked CPU time."""
    if metric is not None:
        return HistoryMeasure(metric=metric, unit=metric.unit)
    disturbed = mostly_disturbed([rated_run.taken for rated_run in rated])
    unasked = not by_cpu and disturbed is not None and _most_have_cpu_time(key, rated)
    references = {
        rated_run.rates.rates[key].reference_s
        for rated_run in rated
        if key in rated_run.rates.rates
    }
    by_ratio = len(references) == 1 and None not in references
    if by_cpu or unasked:
        unit = CPU_RATIO if by_ratio else PER_CPU_HOUR
        return HistoryMeasure(by_cpu=True, unasked=unasked, unit=unit)
    return HistoryMeasure(unit=RATIO if by_ratio else PER_HOUR)


def _most_have_cpu_time(key: Key, rated: Sequence[_RatedRun]) -> bool:
    by_cpu = [with_cpu_times(rated_run.rates, rated_run.run).rates.get(key) for rated_run in rated]
    have = [result for result in by_cpu if result is not None and result.cpu_per_s]
    return 2 * len(have) > len(rated)


def _merit(result: Result, measure: HistoryMeasure) -> float | None:
    if measure.metric is not None:
        return None if result.measured is None else result.measured.merit
    values: dict[str, float | None] = {
        RATIO: result.ratio,
        PER_HOUR: result.per_hour,
        CPU_RATIO: result.cpu_ratio,
        PER_CPU_HOUR: result.per_cpu_hour,
    }
    return values[measure.unit]


def _of_key(
    key: Key,
    rated: Sequence[_RatedRun],
    grouping: Grouping,
    measure: HistoryMeasure,
    least: float | None,
) -> RunHistory:
    name_group, group = _grouped_by(rated, grouping)
    members: dict[str, list[tuple[StoredRun, float]]] = {}
    excluded = []
    for rated_run in rated:
        number, label = rated_run.run.head.run, name_group(rated_run.run)
        merit, reason = _judged(key, rated_run, measure)
        if label is None:
            missing = f"no tag {grouping.tag}" if group is Group.TAG else "its start is not known"
            excluded.append(ExcludedRun(number, missing))
        elif merit is None:
            excluded.append(ExcludedRun(number, reason))
        else:
            members.setdefault(label, []).append((rated_run.run, merit))
    points = tuple(_point(label, group, some) for label, some in members.items())
    by_point = [[run for run, _ in some] for some in members.values()]
    smallest = least or (LEAST_COUNTS if measure.is_count else LEAST_TIMES)
    steps = find_steps(
        [math.log(point.merit) for point in points],
        math.log1p(smallest),
        quietest=_QUIETEST_COUNTS if measure.is_count else QUIETEST_TIMES,
    )
    return RunHistory(
        head=rated[-1].run.head,
        benchmark=key[0],
        tune=key[1],
        measure=measure,
        group=group,
        tag=grouping.tag,
        points=points,
        steps=_dated(steps, by_point, key[0], _sessions(rated) if group is Group.RUN else {}),
        excluded=tuple(excluded),
    )


def _judged(key: Key, rated_run: _RatedRun, measure: HistoryMeasure) -> tuple[float | None, str]:
    """Return the merit of a run; None: why it has none, or may not be judged."""
    rates = rated_run.rates
    if key not in rates.rates:
        own = [text for text in rates.left_out if text.startswith(f"{key[0]}: ")]
        reasons = [*own, *rates.left_out, "no result"]
        return None, reasons[0].removeprefix(f"{key[0]}: ")
    if measure.metric is not None:
        rates = with_measure(rates, rated_run.run, measure.metric)
        if key not in rates.rates:
            return None, rates.left_out[-1].removeprefix(f"{key[0]}: ")
    if measure.by_cpu:
        rates = with_cpu_times(rates, rated_run.run)
        if not rates.rates[key].cpu_per_s:
            return None, f"not by CPU time: {rates.rates[key].not_by_cpu}"
    if measure.is_disturbable and rated_run.taken:
        return None, "too disturbed by other processes"
    merit = _merit(rates.rates[key], measure)
    return (merit, "") if merit and math.isfinite(merit) else (None, "no result above 0")


# -- Points ----------------------------------------------------------------------------------------


def _grouped_by(
    rated: Sequence[_RatedRun], grouping: Grouping
) -> tuple[Callable[[StoredRun], str | None], Group]:
    """Return what names the point of a run, and what makes a point.

    A run without a point has the name None.
    """
    sessions = _sessions(rated)
    many = len(set(sessions.values()))
    group = grouping.group or (Group.SESSION if FEWEST_POINTS <= many < len(rated) else Group.RUN)

    def label(run: StoredRun) -> str | None:
        head = run.head
        if group is Group.TAG:
            return dict(head.tags).get(grouping.tag)
        if group is Group.DAY:
            return None if head.started_at is None else head.started_at[:10]
        return str(sessions.get(head.run) if group is Group.SESSION else head.run)

    return label, group


def _sessions(rated: Sequence[_RatedRun]) -> dict[int, int]:
    """Return the session of each run by number; empty where a start is not known."""
    if any(rated_run.run.head.started_at is None for rated_run in rated):
        return {}
    rates = {rated_run.run.head.run: rated_run.rates for rated_run in rated}
    placed = in_order(rates, [PointRun(rated_run.run, None) for rated_run in rated])
    return {number: of_run.session for number, of_run in placed.items()}


def _point(label: str, group: Group, members: Sequence[tuple[StoredRun, float]]) -> CoursePoint:
    numbers = tuple(run.head.run for run, _ in members)
    first, last = numbers[0], numbers[-1]
    of_runs = str(first) if len(numbers) == 1 else f"{first} to {last}"
    return CoursePoint(
        label=of_runs if group in (Group.RUN, Group.SESSION) else label,
        runs=numbers,
        started_at=members[0][0].head.started_at,
        merit=math.exp(fmean(math.log(merit) for _, merit in members)),
    )


# -- Steps -----------------------------------------------------------------------------------------


def _dated(
    steps: Sequence[LevelStep],
    runs: Sequence[Sequence[StoredRun]],
    benchmark: str,
    sessions: dict[int, int],
) -> tuple[HistoryStep, ...]:
    """Return steps with what changed then; `runs` are those of each point."""
    edges = [0, *(step.first for step in steps), len(runs)]
    dated = []
    for step, begin, end in zip(steps, edges, edges[2:], strict=False):
        dated.append(
            HistoryStep(
                place=step.first,
                earliest=step.earliest,
                latest=step.latest,
                ratio=math.exp(step.size),
                before=math.exp(step.before),
                after=math.exp(step.after),
                points_since=end - step.first,
                by_chance=step.by_chance,
                changes=_changes(runs, range(begin, end), step, benchmark),
                between_sessions=_is_between_sessions(runs[begin:end], begin, step, sessions),
            )
        )
    return tuple(dated)


def _is_between_sessions(
    runs: Sequence[Sequence[StoredRun]], begin: int, step: LevelStep, sessions: dict[int, int]
) -> bool:
    """Tell whether a session begins about there, with few sessions before or after the step.

    `runs` are those of the points of the two levels, from the place `begin` on, one a point.
    """
    if not sessions:
        return False
    order = [sessions[run.head.run] for of_point in runs for run in of_point]
    place = step.first - begin
    few = min(len(set(order[:place])), len(set(order[place:]))) < _FEWEST_SESSIONS
    last_before = max(0, step.earliest - begin - 1 - _ABOUT)
    about = order[last_before : step.latest - begin + 1 + _ABOUT]
    return few and about[0] != about[-1]


def _changes(
    runs: Sequence[Sequence[StoredRun]], levels: range, step: LevelStep, benchmark: str
) -> tuple[StepChange, ...]:
    """Return what differs between the last run before a step and the first one after it.

    First what changed nowhere else in the two levels. `runs` are those of all points, `levels` the
    places of the points of the two.
    """
    elsewhere = {
        difference.what
        for earlier, later in pairwise(levels)
        if not step.earliest <= later <= step.latest
        for difference in run_differences(runs[earlier][-1], runs[later][0], benchmark)
    }
    last_before, first_after = runs[step.earliest - 1][-1], runs[step.latest][0]
    changes = [
        StepChange(
            what=difference.what,
            before=difference.before,
            after=difference.now,
            elsewhere=difference.what in elsewhere,
            significant=difference.significant,
        )
        for difference in run_differences(last_before, first_after, benchmark)
    ]
    return tuple(sorted(changes, key=lambda change: (change.elsewhere, not change.significant)))
