"""Document of `rater history --json`."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from rater.analysis.results.measure import Better
from rater.show.documents.common import Benchmark, RunNumber, Tune

type Start = Annotated[str | None, "Start of its first run, UTC; null: not known."]
type Value = Annotated[float, "In the unit of the history."]


class HistoryPointJson(TypedDict):
    """Runs that are one point."""

    label: Annotated[str, "Numbers of its runs, a day, or the value of the tag."]
    runs: Annotated[list[int], "Numbers of its runs, the earliest first."]
    started_at: Start
    value: Annotated[float, "Geometric mean of its runs, in the unit of the history."]
    over_first: Annotated[float, "Speedup over the first point; above 1: better."]


class StepChangeJson(TypedDict):
    """What differs between the last run before a step and the first one after it."""

    what: Annotated[str, "What changed, in words."]
    before: Annotated[str | None, "What it was; null: it was not there."]
    after: Annotated[str | None, "What it is; null: it is not there."]
    elsewhere: Annotated[bool, "true: it changed at other times too, without a step."]
    weighs: Annotated[bool, "true: it may explain a difference; false: worth a note."]


class HistoryStepJson(TypedDict):
    """A change of the level."""

    point: Annotated[str, "Label of the first point after it."]
    first_run: RunNumber
    started_at: Start
    last_before: Annotated[str | None, "Start of the last point before it; null: not known."]
    last_run_before: Annotated[int, "Number of the last run before it."]
    earliest_run: Annotated[int, "First run that may as well be the first one after it."]
    latest_run: Annotated[int, "Last one that may; `changes` are between all of these."]
    before: Value
    after: Value
    speedup: Annotated[float, "After over before; above 1: better."]
    verdict: Annotated[Literal["better", "worse"], "Which way it goes."]
    points_since: Annotated[int, "Points until the next step, with its first one."]
    by_chance: Annotated[float, "How often a series without steps shows so great a one."]
    between_sessions: Annotated[
        bool, "true: it may be that sessions differ by themselves; there are too few to know."
    ]
    changes: Annotated[list[StepChangeJson], "What changed then; empty: nothing recorded."]


class ExcludedRunJson(TypedDict):
    """A run that is no part of a history."""

    run: RunNumber
    reason: Annotated[str, "Why not, in words."]


class RunHistoryJson(TypedDict):
    """A benchmark in one kind of run."""

    benchmark: Benchmark
    tune: Tune
    what: Annotated[str, "What ran, and how, in words."]
    by: Annotated[str, "What makes runs a point: run, session, day, or tag:NAME."]
    measure: Annotated[str, "time, cpu, or the name of a metric."]
    better: Annotated[Better, "Which direction of the values is better."]
    unit: Annotated[str, "Unit of the values."]
    by_cpu_unasked: Annotated[bool, "true: by CPU time, as others disturbed most runs."]
    points: Annotated[list[HistoryPointJson], "Points in the order of time."]
    steps: Annotated[list[HistoryStepJson], "Changes of the level in the order of time."]
    excluded: Annotated[list[ExcludedRunJson], "Runs that are left out."]


class HistoryDocument(TypedDict):
    """A benchmark over the runs of a host."""

    benchmark: Annotated[str, "Name that was asked for."]
    host: Annotated[str | None, "Host of the runs; null: not known."]
    other_hosts: Annotated[list[str], "Hosts that have runs of it as well."]
    runs_left_out: Annotated[int, "Runs before those that `--limit` takes."]
    histories: Annotated[list[RunHistoryJson], "One for each kind of run, the last run first."]
