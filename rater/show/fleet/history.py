"""The history of a host or a benchmark: steps in words, and a line of marks to look at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict

from rater.analysis.divots.data.words import per_cent
from rater.analysis.fleet.history import FactChange, FleetCourse, History, ToldStep
from rater.analysis.fleet.steps import FEWEST_POINTS
from rater.show.console.printer import Printer
from rater.text.words import count, some

_MARKS = "▁▂▃▄▅▆▇█"
_ASCII_MARKS = "_.-=+*%#"
_MOST_STEPS = 20
_MOST_CHANGES = 6
_LEAST_SPAN = 0.02  # ln, of a line of marks: noise of less is flat


def print_history(history: History, printer: Printer) -> None:
    """Print the steps and the course of it all."""
    what = "of a host against the others of its kind" if _is_of_host(history) else "of a benchmark"
    printer.line(f"{history.name}: history {what}, {count(history.points, 'fleet')}", "bold")
    if history.alone:
        printer.prose(f"{count(history.alone, 'more fleet')} had fewer than 3 others of its kind.")
    for series in history.series[:1]:
        _print_course(series, printer)
    if history.too_short:
        printer.prose(
            f"Cannot tell of steps: {count(history.points, 'fleet')}, expected {FEWEST_POINTS} "
            "or more."
        )
        return
    if not history.steps:
        printer.line("No steps.", "green")
    for step in history.steps[:_MOST_STEPS]:
        printer.prose(step_text(step), "bold" if step.ratio > 1 else "")
        for text in changes_lines(step.changes):
            printer.prose(f"  {text}")
    if len(history.steps) > _MOST_STEPS:
        printer.line(f"and {len(history.steps) - _MOST_STEPS} more (--json has them all)")


def step_text(step: ToldStep) -> str:
    """Return when a step was, how large, and where it left the level."""
    where = step.benchmark or "all benchmarks"
    who = f"{step.host}: " if step.host and step.benchmark else ""
    now = "the others" if step.host else "at first"
    level = per_cent(step.level)
    return (
        f"{_day(step.started_at)} (fleet {step.fleet}): {who}{where} {per_cent(step.ratio)}, "
        f"since then {level} against {now} over {count(step.fleets_since, 'fleet')}"
        f" (last before: {_day(step.last_before)})"
    )


def changes_lines(changes: Sequence[FactChange]) -> list[str]:
    """Return what changed at a step."""
    if not changes:
        return ["nothing that is recorded changed then: no setting, kernel, microcode or machine"]
    own = [_change(it) for it in changes if not it.others_too]
    too = [_change(it) for it in changes if it.others_too]
    lines = [f"changed then: {some(own, _MOST_CHANGES)}"] if own else []
    if too:
        lines.append(f"changed then, and on most others as well: {some(too, _MOST_CHANGES)}")
    return lines


def history_document(history: History) -> dict[str, object]:
    """Return all of it as JSON values."""
    return asdict(history)


def _is_of_host(history: History) -> bool:
    return history.series[0].name == "" if history.series else True


def _change(change: FactChange) -> str:
    names = {"machine_id_hash": "machine (another machine-id)", "cpu_model": "CPU"}
    name = names.get(change.name, change.name)
    if change.name == "machine_id_hash":
        return name
    return f"{name} {change.before or 'not there'} -> {change.after or 'not there'}"


def _day(date: str | None) -> str:
    return "date not known" if date is None else date[:10]


def _print_course(series: FleetCourse, printer: Printer) -> None:
    if not series.ratios:
        return
    logs = [math.log(it) for it in series.ratios][-max(20, printer.width - 30) :]
    low, high = min(logs), max(logs)
    span = max(high - low, _LEAST_SPAN)
    marks = _ASCII_MARKS if printer.ascii_only else _MARKS
    middle = (low + high) / 2
    line = "".join(
        marks[min(len(marks) - 1, max(0, int((it - middle + span / 2) / span * len(marks))))]
        for it in logs
    )
    ends = f"{per_cent(math.exp(low))} to {per_cent(math.exp(high))}"
    printer.line(f"{line}  {ends}")
    first, last = series.dates[-len(logs)], series.dates[-1]
    printer.line(f"{_day(first)} to {_day(last)}; higher is slower", "dim")
