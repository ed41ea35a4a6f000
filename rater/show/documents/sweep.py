"""Documents of `rater sweep --json`: of one, of one that is not made, and the list."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rater.plan.sweep import AxisKind, BlockOrder, SweepMeasure
from rater.record.run import RunStatus
from rater.show.documents.compare import ComparisonDocument
from rater.show.documents.plan import ExecutesJson


class AxisJson(TypedDict):
    """One tunable."""

    name: Annotated[str, "Name of the axis."]
    kind: Annotated[AxisKind, "What its values change."]
    values: Annotated[list[str], "Its values; empty: the option or variable is not set."]


class SweepHeadJson(TypedDict):
    """What was swept, and how far it came; of a dry run the first keys are null."""

    sweep: Annotated[int | None, "Number of the sweep in this database."]
    uuid: Annotated[str | None, "UUID of the sweep, the same in every database."]
    status: Annotated[RunStatus | None, "How it ended, or that it runs."]
    reason: Annotated[str | None, "Why it ended so, in words."]
    started_at: Annotated[str | None, "When it began, UTC."]
    what: Annotated[str, "Suites, or the command."]
    axes: Annotated[list[AxisJson], "Axes with their values."]
    rounds: Annotated[int, "Rounds that are planned."]
    order: Annotated[BlockOrder, "Order of the points in a round."]
    seed: Annotated[int, "Seed of the order."]
    until_percent: Annotated[float | None, "Change that rounds are made to decide; null: none."]
    until_of: Annotated[SweepMeasure | None, "What that change is of; null: there is none."]
    runs_planned: Annotated[int, "Runs that are planned."]
    runs_done: Annotated[int, "Runs that are done."]
    file: Annotated[str | None, "File that the sweep was read from; null: none."]
    file_sha256: Annotated[str | None, "SHA-256 of that file."]


class PointResultJson(TypedDict):
    """The one number of a run."""

    value: Annotated[float, "The number; larger is better."]
    unit: Annotated[str, "ratio or copies/hour."]


class SweepPointJson(TypedDict):
    """One combination of values, and its runs."""

    point: Annotated[int, "Number of the point, from 0."]
    label: Annotated[str, "Name of the point."]
    values: Annotated[dict[str, str], "Its value of each axis."]
    left_out: Annotated[str | None, "Why it cannot run, in words; null: it can."]
    runs: Annotated[list[int], "Numbers of its runs that are done."]
    runs_with_failed_copies: Annotated[int, "How many of them have a copy that failed."]
    results: Annotated[list[PointResultJson], "Results of those that have one."]
    geomean: Annotated[float | None, "Mean of the results; null: none, or of several units."]


class SlotRunJson(TypedDict):
    """One planned run."""

    block: Annotated[int, "Round, from 1."]
    position: Annotated[int, "Place in the round."]
    point: Annotated[int, "Number of its point."]
    run: Annotated[int | None, "Number of the run; null: it did not begin."]
    status: Annotated[RunStatus | None, "Status as it is stored; null: it did not begin."]
    done: Annotated[bool, "true: all of it was measured, well or not."]
    elapsed_s: Annotated[float | None, "First release to last finish; null: not known."]


class SweepDocument(SweepHeadJson):
    """A sweep with its points and runs."""

    points: Annotated[list[SweepPointJson], "Points; the baseline first."]
    runs: Annotated[list[SlotRunJson], "Planned runs in their order."]


class SweepResultDocument(SweepDocument):
    """A sweep with its points, its runs and their results."""

    comparison: Annotated[
        ComparisonDocument | None, "Points beside the first; null: fewer than two."
    ]


class SweepDryRunDocument(SweepDocument):
    """A sweep that is not made; its sweep, uuid, status and started_at are null."""

    dry_run: Annotated[bool, "true."]
    expected_s: Annotated[float | None, "How long all runs take; null: not known."]
    refused: Annotated[list[str], "Why points cannot run, in words; empty: all can."]


class SweepResumeDocument(SweepDocument):
    """A stored sweep, and what would be executed if it went on."""

    dry_run: Annotated[bool, "true."]
    executes: Annotated[list[ExecutesJson], "What each point would execute."]
    refused: Annotated[list[str], "Why it would be refused, in words; empty: it would not."]
