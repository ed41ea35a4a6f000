"""The history of a benchmark: its document, and tables over it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rater.analysis.compare.history import Group, HistoryStep, RunHistory
from rater.analysis.stats.steps import FEWEST_POINTS
from rater.show.results.run import run_words
from rater.show.screen.document import (
    CHANGE,
    NUMBER,
    TEXT,
    Field,
    Line,
    Part,
    Row,
    ViewTable,
    decimals,
)
from rater.text.values import count, group_by_key, runs_text, truncate_list

if TYPE_CHECKING:
    from rater.show.documents.history import HistoryDocument

_MOST_POINTS = 20
_MOST_CHANGES = 6
_MOST_EXCLUDED = 4
_COMMIT_LETTERS = 12  # of a commit's hash in a table
_STRIP = 21  # columns of the terminal from the worst point to the best one
_NOTHING = "nothing that is recorded changed: no setting, kernel, microcode, program or memory"
_ELSEWHERE = "changed at other times too: "
_SESSIONS = (
    "* lies between two sessions (an hour without a run), of fewer than three on a side. Sessions "
    "may differ by themselves: make runs on more days."
)

# -- Its document ----------------------------------------------------------------------------------


def history_document(
    name: str,
    host: str | None,
    other_hosts: Sequence[str],
    histories: Sequence[RunHistory],
    earlier: int,
) -> HistoryDocument:
    """Return what `rater history --json` prints; `earlier` runs are not looked at."""
    return {
        "benchmark": name,
        "host": host,
        "other_hosts": [*other_hosts],
        "runs_left_out": earlier,
        "histories": [_history_row(history) for history in histories],
    }


def _history_row(history: RunHistory) -> Any:
    measure = history.measure
    value = measure.value
    first = history.points[0].merit if history.points else 1.0
    return {
        "benchmark": history.benchmark,
        "tune": history.tune,
        "what": ", ".join(run_words(history.head)),
        "by": f"tag:{history.tag}" if history.group is Group.TAG else history.group.value,
        "measure": "cpu" if measure.by_cpu else measure.metric.name if measure.metric else "time",
        "better": str(measure.metric.better) if measure.metric else "higher",
        "unit": measure.unit,
        "by_cpu_unasked": measure.unasked,
        "points": [
            {
                "label": point.label,
                "runs": [*point.runs],
                "started_at": point.started_at,
                "value": value(point.merit),
                "over_first": point.merit / first,
            }
            for point in history.points
        ],
        "steps": [_step_row(history, step) for step in history.steps],
        "excluded": [
            {"run": excluded.run, "reason": excluded.reason} for excluded in history.excluded
        ],
    }


def _step_row(history: RunHistory, step: HistoryStep) -> dict[str, Any]:
    point, last_before = history.points[step.place], history.points[step.place - 1]
    value = history.measure.value
    return {
        "point": point.label,
        "first_run": point.runs[0],
        "started_at": point.started_at,
        "last_before": last_before.started_at,
        "last_run_before": last_before.runs[-1],
        "earliest_run": history.points[step.earliest].runs[0],
        "latest_run": history.points[step.latest].runs[0],
        "before": value(step.before),
        "after": value(step.after),
        "speedup": step.ratio,
        "verdict": "better" if step.ratio > 1 else "worse",
        "points_since": step.points_since,
        "by_chance": step.by_chance,
        "between_sessions": step.between_sessions,
        "changes": [
            {
                "what": change.what,
                "before": change.before,
                "after": change.after,
                "elsewhere": change.elsewhere,
                "weighs": change.significant,
            }
            for change in step.changes
        ],
    }


# -- Its tables ------------------------------------------------------------------------------------

_POINTS = {
    Group.RUN.value: "a run",
    Group.SESSION.value: "a session (an hour without a run parts two)",
    Group.DAY.value: "a day",
}


def history_parts(document: HistoryDocument) -> Iterator[Part]:
    """Yield each history: its steps, then its course, the last point first."""
    host = document["host"] or "a host that is not known"
    for place, history in enumerate(document["histories"]):
        yield "" if place else None
        tune = f" {history['tune']}" if history["tune"] else ""
        yield Line(f"History of {history['benchmark']}{tune} on {host}: {history['what']}", "bold")
        yield from about_parts(history)
        yield _steps_table(history)
        yield sessions_note(history)
        yield from course_parts(history)
    yield from outside_parts(document)


def about_parts(history: Row) -> Iterator[Part]:
    """Yield what a history's points are, and whether it has steps."""
    yield from _about_points(history) if history["points"] else ()
    if len(history["points"]) < FEWEST_POINTS:
        many = count(len(history["points"]), "point")
        yield f"Too short for steps: {many}; at least {FEWEST_POINTS} are needed."
    elif not history["steps"]:
        yield Line("No steps.", "green")


def sessions_note(history: Row) -> str | None:
    """Say what a step between two sessions may be; None: there is none."""
    return _SESSIONS if any(step["between_sessions"] for step in history["steps"]) else None


def course_parts(history: Row) -> Iterator[Part]:
    """Yield the points of a history, and which runs are none."""
    yield _course_table(history)
    yield from _excluded(history)


def outside_parts(document: HistoryDocument) -> Iterator[Part]:
    """Yield which runs no history looks at."""
    if earlier := document["runs_left_out"]:
        yield f"{count(earlier, 'earlier run')} not looked at (--limit)."
    if others := document["other_hosts"]:
        yield f"Runs of other hosts: {truncate_list(others)} (--host NAME)."


def _about_points(history: Row) -> Iterator[str]:
    by, runs = history["by"], sum(len(point["runs"]) for point in history["points"])
    of_what = _POINTS.get(by, f"a value of the tag {by.removeprefix('tag:')}")
    points = len(history["points"])
    each = "" if by == Group.RUN.value else f" as {count(points, 'point')}, each {of_what}"
    yield f"{count(runs, 'run')}{each}. {_measure_sentence(history)}"


def _measure_sentence(history: Row) -> str:
    unit = history["unit"]
    if history["measure"] == "time":
        return f"Unit: {unit}."
    if history["measure"] == "cpu":
        why = ", as others disturbed most runs" if history["by_cpu_unasked"] else ""
        return f"Values are by CPU time{why}. Unit: {unit}."
    in_unit = f" ({unit})" if unit else ""
    return f"Values are {history['measure']}{in_unit}: {history['better']} is better."


def point_name(history: Row, point: Row) -> str:
    """Return what a point is called where it is alone: `2026-11-29 11:03 UTC`, or its tag."""
    begun = _date(point)
    date = "" if begun is None else f"{begun} UTC"
    if history["by"].startswith("tag:"):
        return ", ".join(filter(None, (point["label"], date)))
    return date or point["label"]


def step_name(step: Row) -> str:
    """Return where a step is: `2026-11-29 11:03 UTC, run 9 (8-10)`."""
    begun = _date(step)
    date = "" if begun is None else f"{begun} UTC, "
    return f"{date}run {_where(step)}"


def _date(row: Row) -> str | None:
    started_at: str | None = row["started_at"]
    return started_at and started_at[:16].replace("T", " ")


def _where(step: Row) -> str:
    """Return the first run after a step, with those that may as well be it: `9 (8-10)`."""
    earliest, latest = step["earliest_run"], step["latest_run"]
    return f"{step['first_run']}" + (f" ({earliest}-{latest})" if earliest != latest else "")


def _steps_table(history: Row) -> ViewTable:
    """Return when each step was, how large, and what changed then."""
    fields = (
        Field(heading="step at|(UTC)", value=_date, form=TEXT),
        Field(heading="run", value=_where),
        Field(heading="before", value="before", form=NUMBER, optional=1),
        Field(heading="after", value="after", form=NUMBER, optional=1),
        Field(heading="speedup|%", value=lambda it: it["speedup"] - 1, form=CHANGE),
        Field(
            heading="verdict",
            value=lambda it: it["verdict"] + "*" * it["between_sessions"],
            form=TEXT,
        ),
        Field(heading="points", value="points_since", optional=2),
        Field(heading="changed then", value=lambda it: changes_lines(it["changes"]), wrap=True),
    )
    return ViewTable(
        title="",
        rows=history["steps"],
        fields=fields,
        style=lambda it: "bold yellow" if it["verdict"] == "worse" else "bold",
    )


def changes_lines(changes: Sequence[Row]) -> list[str]:
    """Return what changed at a step; what changed at other times too stands below."""
    if not changes:
        return [_NOTHING]
    texts = group_by_key(
        (row["elsewhere"], change_text(row["what"], row["before"], row["after"])) for row in changes
    )
    at_step, elsewhere = texts.get(False, []), texts.get(True, [])
    lines = [truncate_list(at_step, _MOST_CHANGES)] if at_step else []
    more = [f"{_ELSEWHERE}{truncate_list(elsewhere, _MOST_CHANGES)}"] if elsewhere else []
    return [*lines, *more]


def change_text(fact: str, before: str | None, after: str | None) -> str:
    """Return what was one thing and is another."""
    return f"{fact.removeprefix('setting ')} {before or 'absent'} -> {after or 'absent'}"


def _course_table(history: Row) -> ViewTable:
    """Return the points, the last one first, with a strip from the worst to the best one."""
    points = history["points"]
    steps = {step["first_run"]: step["verdict"] for step in history["steps"]}
    merits = [point["over_first"] for point in points]
    low, high = min(merits, default=1.0), max(merits, default=1.0)

    def strip(point: Row) -> str:
        place = round((point["over_first"] - low) / (high - low or 1) * (_STRIP - 1))
        return f"{' ' * place}o"

    named = history["by"] not in (Group.RUN.value, Group.SESSION.value, Group.DAY.value)
    tag = history["by"].removeprefix("tag:")
    shown = (lambda it: it["label"][:_COMMIT_LETTERS]) if tag == "commit" else "label"
    label = Field(heading=tag, value=shown, form=TEXT, flexible=True, whole_value="label")
    fields = (
        *([label] if named else []),
        Field(heading="begun|(UTC)", value=_date, form=TEXT),
        Field(
            heading="runs" if history["by"] != Group.RUN.value else "run",
            value=lambda it: truncate_list([str(number) for number in it["runs"]], 3),
            form=TEXT,
        ),
        Field(heading="value", value="value", form=NUMBER),
        Field(heading="over first", value="over_first", form=decimals(3), optional=1),
        Field(heading="step", value=lambda it: steps.get(it["runs"][0]), form=TEXT),
    )
    drawn = Field(heading="worst to best point", value=strip, form=TEXT, optional=2)
    return ViewTable(
        title="",
        rows=points[::-1],
        fields=(*fields, drawn),
        most=_MOST_POINTS,
        csv=ViewTable(title="", rows=points[::-1], fields=fields),
    )


def _excluded(history: Row) -> Iterator[str]:
    by_reason = group_by_key((it["reason"], it["run"]) for it in history["excluded"])
    for place, (reason, runs) in enumerate(by_reason.items()):
        if place == _MOST_EXCLUDED:
            yield f"and {count(len(by_reason) - place, 'more reason')} (--json has all)"
            return
        yield f"Left out: {runs_text(runs)}: {reason}."
