"""In what the doctor's findings differ between runs that are compared; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rater.analysis.conditions.differences import PointDifference
from rater.analysis.doctor.examine import CHECKS, facts_of_run
from rater.analysis.doctor.model import DoctorFinding, DoctorVerdict
from rater.analysis.results.points import Point
from rater.groups import grouped
from rater.settings.known import volatile

_SETTING = "setting "


@dataclass(frozen=True, slots=True)
class DoctorDifference:
    """One check that does not say the same of all runs."""

    check: str
    why: str  # it matters
    values: tuple[tuple[DoctorVerdict, str, tuple[int, ...]], ...]  # what was seen, in which runs


def doctor_differences(
    points: Sequence[Point], differences: Sequence[PointDifference]
) -> tuple[DoctorDifference, ...]:
    """Return the checks whose verdicts differ between runs of several points.

    `differences` are those of the comparison: what is an axis, or follows from one, is not among
    them and is not told here either. Runs of which a check cannot tell anything are left out.
    """
    runs = {one.run.head.run: one.run for point in points for one in point.runs}
    facts = {number: facts_of_run(run) for number, run in runs.items()}
    names = {one.what.removeprefix(_SETTING) for one in differences}
    recorded = {name for it in facts.values() for name in it.values}
    found = []
    for check in CHECKS:
        own = {name for name in recorded if check.goes_by(name)}
        if not any(name in names or volatile(name) for name in own):
            continue
        said = {number: check.finding(it) for number, it in facts.items()}
        told = {n: it for n, it in said.items() if it.verdict is not DoctorVerdict.UNKNOWN}
        if not _between(points, told):
            continue
        groups = grouped(((it.verdict, it.seen), number) for number, it in told.items())
        values = tuple((verdict, seen, tuple(of)) for (verdict, seen), of in groups.items())
        found.append(DoctorDifference(check.name, check.why, values))
    return tuple(found)


def _between(points: Sequence[Point], told: dict[int, DoctorFinding]) -> bool:
    """Tell whether points, not only runs within one, differ in their verdicts."""
    sets = [{told[n].verdict for n in point.numbers if n in told} for point in points]
    return len({frozenset(one) for one in sets if one}) > 1
