"""What the user asked to sweep, and what it needs before its first run."""

from __future__ import annotations

import argparse
import copy
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rater.errors import InputError
from rater.plan.options import Trait
from rater.plan.request import BY_NAME, COMMAND, OPTIONS, Request
from rater.plan.sweep import (
    ENVIRONMENT,
    MOST_ROUNDS,
    NONE_SHOWN,
    Axis,
    AxisKind,
    BlockOrder,
    SweepFile,
    SweepMeasure,
    Values,
    check_axes,
    grid,
    is_sweep_text,
    kinds_of,
    parse_axis,
    parse_sweep,
    point_label,
)
from rater.text.documents import read_text, toml_document
from rater.text.secrets import Redactor
from rater.text.values import count, parse_percent
from rater.workflow.arguments import parse_request
from rater.workflow.run.workload import name_of

if TYPE_CHECKING:
    from rater.plan.topology import Topology
    from rater.workflow.run.resolve import RunPlan


DEFAULT_ROUNDS = 6  # fewer are too few to see whether they are independent
OWN_TAGS = ("sweep", "block")  # what a sweep's runs are tagged with, beside their axes
_WITH_FILE = ("tag", "force", "share", "wait")  # options that may stand beside a sweep's file
_MOST_SEED = 2**31
_SWITCHED = ("on", "off", "forceoff")


class PointRequest(Struct, frozen=True):
    """One combination of values, and what it asks for."""

    values: Values
    request: Request | str  # or why there is none, in words

    def settings(self, kinds: Mapping[str, AxisKind]) -> dict[str, str]:
        """Return the settings of the machine that it wants."""
        return {name: value for name, value in self.values if kinds[name] is AxisKind.SETTING}


class SweepRequest(Struct, frozen=True):
    """A sweep as it was asked for, nothing looked up yet."""

    axes: tuple[Axis, ...]
    kinds: dict[str, AxisKind]  # by axis
    points: tuple[PointRequest, ...]
    rounds: int
    order: BlockOrder
    seed: int
    until: float | None  # 0.01: 1 %
    until_of: SweepMeasure
    skip_refused: bool
    stop_on_failure: bool
    file: Path | None  # the TOML file it was read from
    file_text: str | None


def asked_from(args: argparse.Namespace, settings: Sequence[str]) -> SweepRequest:
    """Return what a command line asks for; `settings` are those that this machine has.

    Raises `InputError`.
    """
    args = copy.copy(args)
    if args.order in tuple(BlockOrder):  # else it is that of steady mode
        args.block_order, args.order = args.block_order or args.order, None
    args, file = _with_file(args)
    axes = file.axes if file else tuple(parse_axis(text) for text in args.axis)
    check_axes(axes)
    kinds = kinds_of(
        axes, [it.name for it in BY_NAME.values() if Trait.SWEPT in it.traits], settings
    )
    _check_once(args, axes, kinds)
    if COMMAND.name in kinds and args.name is None:
        args.name = _common_name(axes)
    rounds = _first(args.rounds, file and file.rounds, DEFAULT_ROUNDS)
    if not 1 <= rounds <= MOST_ROUNDS:
        raise InputError(f"--rounds {rounds}: expected 1 to {MOST_ROUNDS}")
    until = _first(args.until, file and file.until, None)
    if until is not None and rounds < 3:
        raise InputError(f"--until looks after every round from the third on, not at {rounds}")
    seed = _first(args.seed, file and file.seed, None)
    margin, measure = (None, SweepMeasure.TIME) if until is None else _until(until)
    return SweepRequest(
        axes=axes,
        kinds=kinds,
        points=tuple(PointRequest(values, _request(args, values, kinds)) for values in grid(axes)),
        rounds=rounds,
        order=BlockOrder(_first(args.block_order, file and file.order, BlockOrder.SHUFFLED)),
        seed=secrets.randbelow(_MOST_SEED) if seed is None else seed,
        until=margin,
        until_of=measure,
        skip_refused=args.skip_refused or (file is not None and file.skip_refused),
        stop_on_failure=args.stop_on_failure or (file is not None and file.stop_on_failure),
        file=Path(args.sweep_file) if file else None,
        file_text=args.sweep_text if file else None,
    )


def _with_file(args: argparse.Namespace) -> tuple[argparse.Namespace, SweepFile | None]:
    if len(args.suites) != 1 or not args.suites[0].endswith(".toml") or args.axis:
        return args, None
    path = Path(args.suites[0])
    try:
        text = read_text(path, "the file of a sweep")
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file; `rater sweep --example` prints one to begin with"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error
    if not is_sweep_text(text):
        toml_document(text, path)  # raises what makes it no TOML
        raise InputError(
            f"{path}: it has no table [axes]; a sweep of a suite needs at least one axis: --axis "
            "NAME=V1,V2,... as in --axis copies=1,2,4"
        )
    args.suites = []
    given = [it.typed for it in OPTIONS if it.name not in _WITH_FILE and it.given(args)]
    given += ["-- COMMAND"] if args.command is not None else []
    if given:
        raise InputError(f"{path}: what runs stands in [run] there: leave out {' '.join(given)}")
    file = parse_sweep(text, path)
    args.suites, args.command = list(file.suites), list(file.command) or None
    for name, value in file.options:
        option = BY_NAME[name]
        if isinstance(value, tuple):
            setattr(args, option.dest, [*getattr(args, option.dest), *value])
        else:
            where = f"{path}: [run] {name}"
            found = value if isinstance(value, bool) else option.parse(value, where)
            setattr(args, option.dest, found)
    args.sweep_file, args.sweep_text = str(path), text
    return args, file


def _check_once(
    args: argparse.Namespace,
    axes: Sequence[Axis],
    kinds: Mapping[str, AxisKind],
) -> None:
    """What is an axis is not given for all points as well."""
    fixed = {text.partition("=")[0].strip() for text in args.env}
    tagged = {text.partition("=")[0].strip() for text in args.tag}
    for axis in axes:
        kind = kinds[axis.name]
        if axis.name == COMMAND.name and args.command is not None:
            raise InputError("command is an axis of this sweep: leave what follows `--` out")
        if kind is AxisKind.OPTION and BY_NAME[axis.name].given(args):
            raise InputError(f"--{axis.name} is an axis of this sweep: leave the option out")
        if kind is AxisKind.ENVIRONMENT and axis.name.removeprefix(ENVIRONMENT) in fixed:
            raise InputError(f"{axis.name} is an axis of this sweep: leave --env for it out")
    for name in (*OWN_TAGS, *(axis.name for axis in axes)):
        if name in tagged:
            raise InputError(f"--tag {name}: a sweep tags its runs with it: take another name")


def _common_name(axes: Sequence[Axis]) -> str | None:
    """Return what the commands of an axis are called together, as they are compared; None: alike.

    Commands of several programs are `command`, of one program what that is called.
    """
    values = next(it.values for it in axes if it.name == COMMAND.name)
    names = {name_of("".join(_command(text)[:1])) for text in values}
    return "command" if len(names) > 1 else None


def _command(text: str) -> list[str]:
    return list(COMMAND.kind.check(f"axis {COMMAND.name}", text))


def _request(
    args: argparse.Namespace,
    values: Values,
    kinds: Mapping[str, AxisKind],
) -> Request | str:
    of_point = copy.copy(args)
    of_point.env = list(args.env)
    try:
        for name, value in values:
            if kinds[name] is AxisKind.ENVIRONMENT and value:
                of_point.env.append(f"{name.removeprefix(ENVIRONMENT)}={value}")
            elif kinds[name] is AxisKind.OPTION:
                option = BY_NAME[name]
                if option is COMMAND:
                    of_point.command = _command(value)
                    continue
                _hint_at_setting(name, value)
                found = option.parse(value, option.typed) if value else option.absent
                setattr(of_point, option.dest, found)
        return parse_request(of_point)
    except InputError as error:
        return str(error)


def _hint_at_setting(name: str, value: str) -> None:
    if name == "smt" and value in _SWITCHED:
        raise InputError(
            f"--smt {value!r}: expected a number, the threads of a core that copies use; the "
            f"machine's own switch is the setting smt.control: --axis smt.control=on,off"
        )


def _until(text: str) -> tuple[float, SweepMeasure]:
    word, colon, rest = text.strip().partition(":")
    measure = word if colon else SweepMeasure.TIME
    margin = rest if colon else word
    share = parse_percent(margin) if margin.endswith("%") else None
    if share is None or not 0 < share < 1 or measure not in tuple(SweepMeasure):
        raise InputError(
            f"--until {text!r}: expected per cent, as in --until 1%, or --until energy:1%"
        )
    return share, SweepMeasure(measure)


def _first[T](*values: T) -> T:
    return next((value for value in values if value is not None), values[-1])


# -- What a sweep needs before its first run: every point resolved, every program built ------------

_MOST_LABELS = 4


class ResolvedPoint(Struct, frozen=True):
    """A point that was looked at."""

    point: int  # number in the grid
    values: Values
    shown: Values  # the same without secrets
    settings: dict[str, str]  # of the machine, by name of the axis
    request: Request | None  # None: it cannot be asked for
    resolved: RunPlan | None  # as it would be now; None: it cannot be
    refusals: tuple[str, ...]  # why it cannot run here

    @property
    def label(self) -> str:
        """The point in words."""
        return point_label(self.shown)


def resolve_points(
    points: Mapping[int, PointRequest],
    kinds: Mapping[str, AxisKind],
    topology: Topology,
    cache: Path,
) -> tuple[ResolvedPoint, ...]:
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
    point: PointRequest,
    settings: dict[str, str],
    topology: Topology,
    cache: Path,
    *,
    unsure: bool,
) -> ResolvedPoint:
    request = point.request
    if isinstance(request, str):
        return ResolvedPoint(number, point.values, (), settings, None, None, (request,))
    resolved, refusals = resolved_with(request, settings, topology, cache)
    if unsure:  # other CPUs will be there: told when it is its turn
        refusals = ()
    return ResolvedPoint(number, point.values, (), settings, request, resolved, refusals)


def resolved_with(
    request: Request, settings: Mapping[str, str], topology: Topology, cache: Path
) -> tuple[RunPlan | None, tuple[str, ...]]:
    """Return what a request means here, and all it would be refused for.

    `settings` are those that will be set before.
    """
    from rater.files import sysroot
    from rater.settings.tuner import find_setting
    from rater.workflow.run.prepare import checked
    from rater.workflow.run.resolve import resolve

    try:
        resolved = resolve(request, topology)
    except InputError as error:
        return None, (str(error),)
    planned = {find_setting(name, sysroot()).name: value for name, value in settings.items()}
    _, _, refusals = checked(resolved, cache / "work", planned)
    return resolved, (*resolved.refusals, *refusals, *_out_of_reach(resolved))


def _out_of_reach(resolved: RunPlan) -> list[str]:
    """Say what would be found out only when copies are begun."""
    from rater.run.programs.compile import find_command
    from rater.workflow.run.workload import untouched_programs

    found: list[str] = []
    if resolved.request.command:
        try:
            untouched_programs(resolved.tuning, {find_command(resolved.request.command[0])})
        except InputError as error:  # one that is not there is told elsewhere
            found.append(str(error))
    return found


def refused_together(
    points: Sequence[ResolvedPoint], refused: Mapping[int, str] | None = None
) -> str | None:
    """Say which points cannot run and why, each reason once; None: all can.

    `refused`: why by number, where it is not what they were refused for when they were looked at.
    """
    by_reason: dict[str, list[str]] = {}
    for point in points:
        refusals = "; ".join(point.refusals) if refused is None else refused.get(point.point)
        if refusals:
            by_reason.setdefault(refusals, []).append(point.label)
    if not by_reason:
        return None
    lines = []
    for reason, labels in by_reason.items():
        more = f" and {len(labels) - _MOST_LABELS} more" if len(labels) > _MOST_LABELS else ""
        lines.append(f"  {', '.join(labels[:_MOST_LABELS])}{more}: {reason}")
    head = f"{sum(map(len, by_reason.values()))} of {count(len(points), 'point')} cannot run here:"
    return "\n".join([head, *lines])


def build_all(
    points: Sequence[ResolvedPoint], mark: str, cache: Path, report: Callable[[str], None]
) -> dict[int, str]:
    """Set up and build what points run, so that nothing is built between their runs.

    Once for each that differs in what it builds. `mark` tells the processes that this
    starts from all others. Returns which points cannot run with what was built, and why.
    Raises `InputError` where building does not succeed.
    """
    from rater.run.copies.guard import MARKER, guard
    from rater.workflow.run.prepare import make_ready
    from rater.workflow.run.workload import untouched_programs

    kinds: dict[object, RunPlan] = {}
    for point in points:
        if point.resolved is not None and point.request is not None:
            kinds.setdefault(_built(point), point.resolved)
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


def _built(point: ResolvedPoint) -> object:
    request = point.request
    return request and (request.suites, request.command, request.size, request.tune)


def same_values(
    axes: Sequence[Axis], kinds: Mapping[str, AxisKind], points: Sequence[ResolvedPoint]
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


def _meaning(point: ResolvedPoint) -> object:
    if point.resolved is None or point.request is None:
        return None
    resolved = point.resolved
    request = replace(point.request, copies=None)
    return (request, resolved.plan, resolved.placements, resolved.tuning, point.settings)


def _changing_cpus(kinds: Mapping[str, AxisKind]) -> list[str]:
    from rater.files import sysroot
    from rater.settings.tuner import find_setting

    return [
        name
        for name, kind in kinds.items()
        if kind is AxisKind.SETTING and find_setting(name, sysroot()).changes_cpus
    ]
