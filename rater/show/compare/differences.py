"""What differs between compared runs and is no axis, as lines."""

from __future__ import annotations

from collections.abc import Sequence

from rater.analysis.compare.model import Comparison
from rater.analysis.conditions.differences import PointDifference
from rater.analysis.doctor.differences import DoctorDifference
from rater.show.console.format import crop
from rater.show.console.printer import Printer
from rater.text.words import runs_text, some

_LONGEST_VALUE = 80
_MOST_DIFFERENCES = 20
_MOST_BRIEF = 3


def print_differences(comparison: Comparison, printer: Printer, *, brief: bool = False) -> None:
    """Print what weighs, a line each, then notes, then what is not known of imported runs.

    `brief`: what weighs alone, most of it in a line.
    """
    weighs = _texts([one for one in comparison.differences if one.significant], comparison)
    known = [one for one in comparison.differences if not one.unknown]
    lesser = _texts([one for one in known if not one.significant], comparison)
    unknown = [one.what for one in comparison.differences if one.unknown]
    if any(one.is_machine for one in comparison.differences if one.significant):
        printer.prose("These runs were made on DIFFERENT MACHINES.", "bold red")
    if weighs:
        axes = dict.fromkeys(a for s in comparison.sides for p in s.points for a, _ in p.values)
        beside = f" beside {some(list(axes))}" if axes else ""
        printer.prose(f"The runs differ{beside} in:", "bold yellow")
        printer.some(
            weighs, "yellow", most=_MOST_BRIEF if brief else _MOST_DIFFERENCES, indent="  "
        )
    if brief:
        return
    if lesser:
        printer.prose(f"Worth a note: {'; '.join(lesser)}")
    if unknown:
        printer.prose(f"Not known of every run (imported): {some(unknown, 8)}")
    if comparison.doctor:
        printer.prose("The doctor would have said:", "bold yellow")
        told = [_doctor_text(one, comparison) for one in comparison.doctor]
        printer.some(told, "yellow", most=_MOST_DIFFERENCES, indent="  ")
    if comparison.differences or comparison.doctor:
        printer.line()


def _texts(several: Sequence[PointDifference], comparison: Comparison) -> list[str]:
    """Return a line each; what is of several benchmarks and differs alike has one."""
    groups: dict[tuple[object, ...], list[PointDifference]] = {}
    for one in several:
        kind, of, _ = one.what.partition(" of ")
        groups.setdefault((kind if of else one.what, one.values, one.inside), []).append(one)
    return [_text(members, comparison) for members in groups.values()]


def _text(members: Sequence[PointDifference], comparison: Comparison) -> str:
    one = members[0]
    kind, of, _ = one.what.partition(" of ")
    what = f"{kind} of {some([it.what.removeprefix(kind + of) for it in members])}"
    parts = [
        f"{crop(value, _LONGEST_VALUE, ascii_only=True) if value else 'none'} "
        f"({_who(numbers, comparison)})"
        for value, numbers in one.values
    ]
    inside = f"; differs within {some(one.inside)}" if one.inside else ""
    return f"{what if of else one.what}: {some(parts, 6)}{inside}"


def _doctor_text(one: DoctorDifference, comparison: Comparison) -> str:
    parts = [
        f"{verdict.value}, {crop(seen, _LONGEST_VALUE, ascii_only=True)} "
        f"({_who(numbers, comparison)})"
        for verdict, seen, numbers in one.values
    ]
    return f"{one.check}: {'; '.join(parts)}: {one.why}"


def _who(numbers: Sequence[int], comparison: Comparison) -> str:
    """Name runs by the sides or points they are all of, where they are that exactly."""
    left = set(numbers)
    names = []
    for side in comparison.sides:
        own = {one.run.head.run for one in side.runs}
        if own <= left and side.points[0].values:
            names.append(side.label)
            left -= own
    if left:
        names.append(runs_text(sorted(left)))
    return some(names, 3)
