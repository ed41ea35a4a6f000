"""What differs between compared runs and is no axis, and what disturbed them: tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rater.analysis.compare.differences import DisturbedRun, DoctorDifference, PointDifference
from rater.analysis.compare.model import Comparison
from rater.analysis.results.cpu_use import MachineDisturbance
from rater.analysis.results.foreign_processes import process_text
from rater.show.results.cpu_use import DISTURBANCES
from rater.show.screen.document import TEXT, Field, Part, ViewTable
from rater.show.screen.format import crop
from rater.text.cpuset import copy_numbers_text
from rater.text.values import JsonFields, percent, runs_text, truncate_list

TROUBLES = {
    DisturbedRun: JsonFields(
        "run too_disturbed others_cost matters=notable placement_not_met=not_met warnings"
        " share=shared"
    ),
    MachineDisturbance: JsonFields("matter share times cpu cpus benchmark process"),
}
_LONGEST_VALUE = 80
_MOST_DIFFERENCES = 20
_MOST_RUNS = 5  # of one kind of disturbance
_MOST_SHARES = 3
_LONGEST_WARNING = 60


def _warnings(title: str, rows: Sequence[tuple[str, str]], most: int = 0) -> ViewTable:
    columns = (
        Field(heading="", value=lambda row: f"  {row[0]}", form=TEXT),
        Field(heading="", value=lambda row: row[1], wrap=True),
    )
    return ViewTable(title=title, rows=rows, fields=columns, style=lambda _: "yellow", most=most)


def difference_parts(comparison: Comparison, *, detailed: bool) -> Iterator[Part]:
    """Yield what weighs, then notes, then what is not known of imported runs."""
    weighs = [difference for difference in comparison.differences if difference.significant]
    axes = dict.fromkeys(
        axis for side in comparison.sides for point in side.points for axis, _ in point.values
    )
    beside = f" beside {truncate_list(list(axes))}" if axes else ""
    most = _MOST_DIFFERENCES if detailed else 3
    yield _warnings(f"The runs differ{beside} in:", _texts(weighs, comparison), most)
    if not detailed:
        return
    differences = [
        difference
        for difference in comparison.differences
        if not difference.unknown and not difference.significant
    ]
    yield _warnings("Worth a note:", _texts(differences, comparison), most)
    unknown = [difference.what for difference in comparison.differences if difference.unknown]
    if unknown:
        yield f"Not known of every run (imported): {truncate_list(unknown, 8)}"
    doctor = [(f"{one.check}:", _doctor_text(one, comparison)) for one in comparison.doctor]
    yield _warnings("`rater doctor` would have said:", doctor, most)


def _texts(several: Sequence[PointDifference], comparison: Comparison) -> list[tuple[str, str]]:
    """Return what differs and how; what is of several benchmarks and differs alike has one row."""
    groups: dict[tuple[object, ...], list[PointDifference]] = {}
    for difference in several:
        kind, of, _ = difference.what.partition(" of ")
        groups.setdefault(
            (kind if of else difference.what, difference.values, difference.inside), []
        ).append(difference)
    return [_difference_row(members, comparison) for members in groups.values()]


def _difference_row(members: Sequence[PointDifference], comparison: Comparison) -> tuple[str, str]:
    first = members[0]
    kind, of, _ = first.what.partition(" of ")
    names = (
        f"{kind} of {truncate_list([member.what.removeprefix(kind + of) for member in members])}"
    )
    parts = [
        f"{crop(value, _LONGEST_VALUE, ascii_only=True) if value else 'none'} "
        f"({_who(numbers, comparison)})"
        for value, numbers in first.values
    ]
    inside = f"; differs within {truncate_list(first.inside)}" if first.inside else ""
    return f"{names if of else first.what}:", truncate_list(parts, 6) + inside


def _doctor_text(difference: DoctorDifference, comparison: Comparison) -> str:
    parts = [
        f"{verdict.value}, {crop(seen, _LONGEST_VALUE, ascii_only=True)} "
        f"({_who(numbers, comparison)})"
        for verdict, seen, numbers in difference.values
    ]
    return f"{'; '.join(parts)}: {difference.why}"


def _who(numbers: Sequence[int], comparison: Comparison) -> str:
    """Name runs by the sides or points they are all of, where they are that exactly."""
    left = set(numbers)
    names = []
    for side in comparison.sides:
        own_runs = {point_run.run.head.run for point_run in side.runs}
        if own_runs <= left and side.points[0].values:
            names.append(side.label)
            left -= own_runs
    if left:
        names.append(runs_text(sorted(left)))
    return truncate_list(names, 3)


def trouble_parts(troubles: Sequence[DisturbedRun], most: int = 0) -> Iterator[Part]:
    """Yield a line for each kind of disturbance, the worst runs first."""
    title = "Disturbed runs (`rater show RUN` has the rest):"
    yield _warnings(title, list(_disturbances(troubles)), most)


def _disturbances(troubles: Sequence[DisturbedRun]) -> Iterator[tuple[str, str]]:
    unjudged = sorted(trouble.run for trouble in troubles if trouble.too_disturbed)
    if unjudged:
        yield "too disturbed to judge:", runs_text(unjudged, _MOST_RUNS)
    for matter, words in DISTURBANCES.items():
        disturbances = [
            (trouble.run, disturbance)
            for trouble in troubles
            for disturbance in trouble.notable
            if disturbance.matter is matter
        ]
        disturbances.sort(key=lambda pair: -(pair[1].share or pair[1].times or 0))
        if disturbances:
            texts = [_disturbance_text(run, disturbance) for run, disturbance in disturbances]
            yield f"{words}:", truncate_list(texts, _MOST_SHARES)
    moved = [trouble for trouble in troubles if trouble.not_met]
    if moved:
        copies = [
            f"run {disturbed_run.run} ({copy_numbers_text(disturbed_run.not_met)})"
            for disturbed_run in moved
        ]
        yield "copies not placed as planned:", truncate_list(copies, _MOST_RUNS)
    shared = [trouble.run for trouble in troubles if trouble.shared]
    if shared:
        yield "made with --share, beside other runs:", runs_text(shared, _MOST_RUNS)
    warned: dict[str, dict[int, None]] = {}
    for disturbed_run in troubles:
        for text in disturbed_run.warnings:
            warned.setdefault(text.partition(": ")[0], {})[disturbed_run.run] = None
    for text, runs in warned.items():
        text_shown = crop(text, _LONGEST_WARNING, ascii_only=True)
        yield f"{text_shown}:", runs_text(sorted(runs), _MOST_RUNS)


def _disturbance_text(run: int, disturbance: MachineDisturbance) -> str:
    if disturbance.share is None:
        return f"run {run} ({disturbance.times} times)"
    cpu = "" if disturbance.cpu is None else f" of CPU {disturbance.cpu}"
    process = disturbance.process
    who = "" if process is None else f"; {process_text(process)}"
    return f"{percent(disturbance.share)} %{cpu} (run {run}{who})"
