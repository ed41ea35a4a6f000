"""What a sweep needs before its first run: every point resolved, every program built."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from rater.errors import InputError
from rater.plan.sweep.grid import NONE_SHOWN, Axis, AxisKind, Values, label_of
from rater.text.secrets import Redactor
from rater.text.words import count

if TYPE_CHECKING:
    from rater.plan.request.request import Request
    from rater.plan.topology.model import Topology
    from rater.workflow.run.resolve import Resolved
    from rater.workflow.sweep.request import PointAsked

_MOST_LABELS = 4


@dataclass(frozen=True, slots=True)
class PointReady:
    """A point that was looked at."""

    point: int  # number in the grid
    values: Values
    shown: Values  # the same without secrets
    settings: dict[str, str]  # of the machine, by name of the axis
    request: Request | None  # None: it cannot be asked for
    resolved: Resolved | None  # as it would be now; None: it cannot be
    refusals: tuple[str, ...]  # why it cannot run here

    @property
    def label(self) -> str:
        """The point in words."""
        return label_of(self.shown)


def resolve_points(
    points: Mapping[int, PointAsked],
    kinds: Mapping[str, AxisKind],
    topology: Topology,
    cache: Path,
) -> tuple[PointReady, ...]:
    """Resolve all points, by number, on this machine as it is; nothing is made, set or stored."""
    changing, redactor = _changing_cpus(kinds), Redactor()
    return tuple(
        replace(
            _resolve_point(
                number, point, point.settings(kinds), topology, cache, unsure=bool(changing)
            ),
            shown=redactor.pairs(point.values),
        )
        for number, point in points.items()
    )


def _resolve_point(
    number: int,
    point: PointAsked,
    settings: dict[str, str],
    topology: Topology,
    cache: Path,
    *,
    unsure: bool,
) -> PointReady:
    request = point.request
    if isinstance(request, str):
        return PointReady(number, point.values, (), settings, None, None, (request,))
    resolved, refusals = resolved_with(request, settings, topology, cache)
    if unsure:  # other CPUs will be there: told when it is its turn
        refusals = ()
    return PointReady(number, point.values, (), settings, request, resolved, refusals)


def resolved_with(
    request: Request, settings: Mapping[str, str], topology: Topology, cache: Path
) -> tuple[Resolved | None, tuple[str, ...]]:
    """Return what a request means here, and all it would be refused for.

    `settings` are those that will be set before.
    """
    from rater.settings.catalog import find
    from rater.settings.paths import sysroot
    from rater.workflow.run.preflight import checked
    from rater.workflow.run.resolve import resolve

    try:
        resolved = resolve(request, topology)
    except InputError as error:
        return None, (str(error),)
    planned = {find(name, sysroot()).name: value for name, value in settings.items()}
    _, _, refusals = checked(resolved, cache / "work", planned)
    return resolved, (*resolved.refusals, *refusals, *_out_of_reach(resolved))


def _out_of_reach(resolved: Resolved) -> list[str]:
    """Say what would be found out only when copies are begun."""
    from rater.run.programs.compile import find_command
    from rater.workflow.run.memory_tuning import untouched_programs

    found: list[str] = []
    if resolved.request.command:
        try:
            untouched_programs(resolved.tuning, {find_command(resolved.request.command[0])})
        except InputError as error:  # one that is not there is told elsewhere
            found.append(str(error))
    return found


def refused_together(points: Sequence[PointReady]) -> str | None:
    """Say which points cannot run and why, each reason once; None: all can."""
    by_reason: dict[str, list[str]] = {}
    for point in points:
        if point.refusals:
            by_reason.setdefault("; ".join(point.refusals), []).append(point.label)
    if not by_reason:
        return None
    lines = []
    for reason, labels in by_reason.items():
        more = f" and {len(labels) - _MOST_LABELS} more" if len(labels) > _MOST_LABELS else ""
        lines.append(f"  {', '.join(labels[:_MOST_LABELS])}{more}: {reason}")
    refused = sum(bool(point.refusals) for point in points)
    head = f"{refused} of {count(len(points), 'point')} cannot run here:"
    return "\n".join([head, *lines])


def build_all(
    points: Sequence[PointReady], mark: str, cache: Path, report: Callable[[str], None]
) -> dict[int, str]:
    """Set up and build what points run, so that nothing is built between their runs.

    Once for each that differs in what it builds. `mark` tells the processes that this
    starts from all others. Returns which points cannot run with what was built, and why.
    Raises `InputError` where building does not succeed.
    """
    from rater.run.copies.guard import guard
    from rater.run.copies.watch import MARKER
    from rater.workflow.run.memory_tuning import untouched_programs
    from rater.workflow.run.prepare import make_ready

    kinds: dict[object, Resolved] = {}
    for point in points:
        if point.resolved is not None and point.request is not None:
            kinds.setdefault(_built(point), point.resolved)
    if len(kinds) > 1:
        report(f"building for {len(kinds)} different tunes or sizes before the first run")
    refused: dict[int, str] = {}
    for number, (kind, resolved) in enumerate(kinds.items()):
        with ExitStack() as stack:
            os.environ[MARKER] = mark
            stack.callback(os.environ.pop, MARKER, None)
            stack.enter_context(guard(mark, resolved.plan.copies))
            work = cache / "work" / f"{mark}-{number}"
            ready = make_ready(resolved, cache, work, stack.callback, report)
            programs = ready.files
        for point in points:
            if point.resolved is not None and _built(point) == kind:
                try:
                    untouched_programs(point.resolved.tuning, programs)
                except InputError as error:
                    refused[point.point] = str(error)
    return refused


def _built(point: PointReady) -> object:
    """Return what a point builds, to tell those apart that differ in it."""
    request = point.request
    return request and (request.suites, request.command, request.size, request.tune)


def same_values(
    axes: Sequence[Axis], kinds: Mapping[str, AxisKind], points: Sequence[PointReady]
) -> list[str]:
    """Say which values of an option come to the same run, whatever the other axes say."""
    if _changing_cpus(kinds):
        return []
    by_values = {point.values: _meaning(point) for point in points}
    found = []
    for place, axis in enumerate(axes):
        if kinds[axis.name] is not AxisKind.OPTION:
            continue
        of_value: dict[str, list[object]] = {}
        for values, meaning in by_values.items():  # the other axes in the same order for each
            of_value.setdefault(values[place][1], []).append(meaning)
        for one, other in combinations(axis.values, 2):
            if of_value[one] == of_value[other] and None not in of_value[one]:
                shown = f"{one or NONE_SHOWN} and {other or NONE_SHOWN}"
                found.append(f"axis {axis.name}: {shown} are the same here: leave one out")
    return found


def _meaning(point: PointReady) -> object:
    """Return what a point runs, however it was asked for; None: it cannot run."""
    if point.resolved is None or point.request is None:
        return None
    resolved = point.resolved
    request = replace(point.request, copies=None)
    return (request, resolved.plan, resolved.placements, resolved.tuning, point.settings)


def _changing_cpus(kinds: Mapping[str, AxisKind]) -> list[str]:
    from rater.settings.catalog import find
    from rater.settings.paths import sysroot

    return [
        name
        for name, kind in kinds.items()
        if kind is AxisKind.SETTING and find(name, sysroot()).changes_cpus
    ]
