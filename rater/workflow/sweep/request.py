"""What the user asked to sweep, and what it needs before its first run."""

from __future__ import annotations

import hashlib
import secrets
import shlex
import sys
import uuid as uuids
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rater import __version__
from rater.plan.command_words import (
    COPY_PLACEHOLDERS,
    fill_all,
    placeholders_in,
    programs_of,
)
from rater.plan.options import Trait
from rater.plan.request import BY_NAME, COMMAND, Request, request_to_json
from rater.plan.sweep import (
    ENVIRONMENT,
    MOST_ROUNDS,
    NONE_SHOWN,
    Axis,
    AxisKind,
    BlockOrder,
    SlotRun,
    StoredSweep,
    SweepFile,
    SweepMeasure,
    SweepPoint,
    SweepSpec,
    Values,
    check_axes,
    grid,
    is_sweep_text,
    kinds_of,
    order_slots,
    parse_axis,
    parse_sweep,
    point_label,
)
from rater.plan.topology import Topology
from rater.record.run import RunStatus
from rater.run.launcher.guard import guard
from rater.run.programs.compile import cache_root, find_command
from rater.settings.tuner import find_setting
from rater.system.errors import InputError
from rater.system.paths import sysroot
from rater.text.documents import read_text, toml_document
from rater.text.secrets import Redactor
from rater.text.values import count, parse_percent
from rater.workflow.arguments import START_OPTIONS, RunArguments
from rater.workflow.run.head import directory_here, utc_timestamp
from rater.workflow.run.prepare import checked, make_ready
from rater.workflow.run.resolve import RunPlan, resolve
from rater.workflow.run.workload import name_of, untouched_programs

DEFAULT_ROUNDS = 6  # fewer are too few to see whether they are independent
OWN_TAGS = ("sweep", "block")  # what a sweep's runs are tagged with, beside their axes
_WITH_FILE = ("tag", *START_OPTIONS)  # options that may stand beside a sweep's file
_MOST_SEED = 2**31
_SWITCHED = ("on", "off", "forceoff")


class GridPoint(Struct, frozen=True, kw_only=True):
    """One combination of values, and its plan on this machine."""

    point: int  # number in the grid
    values: Values
    settings: dict[str, str]  # of the machine, by name of the axis
    request: Request | None  # None if the values make no request; `refusals` has the reasons
    refusals: tuple[str, ...] = ()  # why it cannot run here
    plan: RunPlan | None = None  # None before the point is resolved, and where that fails
    shown: Values = ()  # the values without secrets

    @classmethod
    def from_request(
        cls, point: int, values: Values, request: Request | str, kinds: Mapping[str, AxisKind]
    ) -> GridPoint:
        """Return a point that is not resolved; `request` may be the reason why there is none."""
        settings = {name: value for name, value in values if kinds[name] is AxisKind.SETTING}
        refusals = (request,) if isinstance(request, str) else ()
        return cls(
            point=point,
            values=values,
            settings=settings,
            request=None if isinstance(request, str) else request,
            refusals=refusals,
        )

    @property
    def label(self) -> str:
        """The point in words."""
        return point_label(self.shown)


class SweepRequest(Struct, frozen=True, kw_only=True):
    """A sweep as it was asked for, nothing looked up yet."""

    axes: tuple[Axis, ...]
    kinds: dict[str, AxisKind]  # by axis
    points: tuple[GridPoint, ...]
    spec: SweepSpec
    skip_refused: bool


class SweepOptions(Struct, frozen=True, kw_only=True):
    """What was typed of a sweep itself."""

    axis: tuple[str, ...] = ()  # NAME=V1,V2,...
    rounds: int | None = None
    block_order: str | None = None
    seed: int | None = None
    until: str | None = None
    retries: int | None = None
    skip_refused: bool = False
    stop_on_failure: bool = False

    def option_words(self, without: Collection[str] = ()) -> list[str]:
        """Return what was given in the words of a user, except the options `without`."""
        fields = [
            field
            for field in self.__struct_fields__
            if getattr(self, field) not in (None, False, ())
        ]
        fields = [field for field in fields if field not in without]
        return [f"--{name.replace('_', '-')}" for name in fields]


def sweep_request_from(
    run_arguments: RunArguments, options: SweepOptions, settings: Sequence[str]
) -> SweepRequest:
    """Return what was typed for a sweep; `settings` are those that this machine has.

    Raises `InputError`.
    """
    order = options.block_order
    if run_arguments.options.get("order") in tuple(BlockOrder):  # else it is that of steady mode
        order = order or run_arguments.options["order"]
        run_arguments = run_arguments.with_option(BY_NAME["order"], None)
    path = _file_of(run_arguments, options)
    file, text = None, None
    if path is not None:
        run_arguments, file, text = _with_file(run_arguments, path)
        none_typed = [
            name for name in ("rounds", "seed", "until") if getattr(options, name) is None
        ]
        options = replace(
            options,
            **{name: getattr(file, name) for name in none_typed},
            skip_refused=options.skip_refused or file.skip_refused,
            stop_on_failure=options.stop_on_failure or file.stop_on_failure,
        )
        order = order or file.order
    axes = file.axes if file else tuple(parse_axis(text) for text in options.axis)
    check_axes(axes)
    kinds = kinds_of(
        axes,
        [option.name for option in BY_NAME.values() if Trait.SWEPT in option.traits],
        settings,
        _axes_in_command(run_arguments, axes),
    )
    _check_once(run_arguments, axes, kinds)
    if COMMAND.name in kinds and "name" not in run_arguments.options:
        run_arguments = run_arguments.with_option(BY_NAME["name"], _common_name(axes))
    rounds = DEFAULT_ROUNDS if options.rounds is None else options.rounds
    if not 1 <= rounds <= MOST_ROUNDS:
        raise InputError(f"--rounds {rounds}: expected 1 to {MOST_ROUNDS}")
    if options.until is not None and rounds < 3:
        raise InputError(f"--until looks after every round from the third on, not at {rounds}")
    block_order = BlockOrder(order or BlockOrder.SHUFFLED)
    spec = _spec_now(options, path, text, rounds=rounds, block_order=block_order)
    points = (
        GridPoint.from_request(number, values, _request(run_arguments, values, kinds), kinds)
        for number, values in enumerate(grid(axes))
    )
    return SweepRequest(
        axes=axes, kinds=kinds, points=tuple(points), spec=spec, skip_refused=options.skip_refused
    )


def _axes_in_command(run_arguments: RunArguments, axes: Sequence[Axis]) -> set[str]:
    """Return the axes that the command has in braces; raises `InputError` for a copy's own names.

    `{n}` is the value of axis n; `{copy}` is what each copy has.
    """
    names = {axis.name for axis in axes}
    for name in sorted(names.intersection(COPY_PLACEHOLDERS)):
        raise InputError(f"axis {name}: {{{name}}} is each copy's own value: take another name")
    commands = [axis.values for axis in axes if axis.name == COMMAND.name]
    words = [*(run_arguments.command or ()), *(word for values in commands for word in values)]
    return placeholders_in(words, names)


def _spec_now(
    options: SweepOptions,
    path: Path | None,
    text: str | None,
    *,
    rounds: int,
    block_order: BlockOrder,
) -> SweepSpec:
    """Return the head of a sweep that begins now; `path` and `text` are those of its file."""
    margin, measure = (
        (None, SweepMeasure.TIME) if options.until is None else _parse_until(options.until)
    )
    return SweepSpec(
        uuid=str(uuids.uuid4()),
        started_at=utc_timestamp(),
        rounds=rounds,
        block_order=block_order,
        seed=secrets.randbelow(_MOST_SEED) if options.seed is None else options.seed,
        until=margin,
        until_of=measure,
        stop_on_failure=options.stop_on_failure,
        suite=None,
        command_line=shlex.join(["rater", *sys.argv[1:]]),
        rater_version=__version__,
        directory=directory_here(),
        file=None if path is None else str(path),
        file_sha256=None if text is None else hashlib.sha256(text.encode()).hexdigest(),
        file_text=text,
    )


def _file_of(run_arguments: RunArguments, options: SweepOptions) -> Path | None:
    names = [suite for suite in run_arguments.suites if suite.endswith(".toml")]
    return (
        Path(names[0])
        if len(run_arguments.suites) == len(names) == 1 and not options.axis
        else None
    )


def _with_file(run_arguments: RunArguments, path: Path) -> tuple[RunArguments, SweepFile, str]:
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
    run_arguments = replace(run_arguments, suites=())
    if needless := run_arguments.option_words(without=_WITH_FILE):
        raise InputError(f"{path}: what runs stands in [run] there: leave out {' '.join(needless)}")
    file = parse_sweep(text, path)
    run_arguments = replace(run_arguments, suites=file.suites, command=file.command or None)
    for name, value in file.options:
        option = BY_NAME[name]
        if isinstance(value, tuple):
            run_arguments = run_arguments.with_option(
                option, [*run_arguments.options.get(name, ()), *value]
            )
        else:
            where = f"{path}: [run] {name}"
            parsed = value if isinstance(value, bool) else option.parse(value, where)
            run_arguments = run_arguments.with_option(option, parsed)
    return run_arguments, file, text


def _check_once(
    run_arguments: RunArguments, axes: Sequence[Axis], kinds: Mapping[str, AxisKind]
) -> None:
    """What is an axis is not given for all points as well."""
    fixed = {text.partition("=")[0].strip() for text in run_arguments.options.get("env", ())}
    tagged = {text.partition("=")[0].strip() for text in run_arguments.options.get("tag", ())}
    for axis in axes:
        kind = kinds[axis.name]
        if axis.name == COMMAND.name and run_arguments.command is not None:
            raise InputError("command is an axis of this sweep: leave what follows `--` out")
        if kind is AxisKind.OPTION and axis.name in run_arguments.options:
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
    values = next(axis.values for axis in axes if axis.name == COMMAND.name)
    commands = [RunArguments().with_option(COMMAND, value).command or () for value in values]
    names = {name_of("".join(command[:1])) for command in commands}
    return "command" if len(names) > 1 else None


def _request(
    run_arguments: RunArguments, values: Values, kinds: Mapping[str, AxisKind]
) -> Request | str:
    environment = [*run_arguments.options.get("env", ())]
    try:
        for name, value in values:
            if kinds[name] is AxisKind.ENVIRONMENT and value:
                environment.append(f"{name.removeprefix(ENVIRONMENT)}={value}")
            elif kinds[name] is AxisKind.OPTION and name in BY_NAME:
                option = BY_NAME[name]
                _hint_at_setting(name, value)
                parsed: object = value
                if option is not COMMAND:
                    parsed = option.parse(value, option.typed) if value else None
                run_arguments = run_arguments.with_option(option, parsed)
        if run_arguments.command is not None:
            # Also where the axis is an option: `--threads {copies}` of a program.
            command = fill_all(run_arguments.command, dict(values))
            run_arguments = replace(run_arguments, command=command)
        return run_arguments.with_option(BY_NAME["env"], environment).request()
    except InputError as error:
        return str(error)


def _hint_at_setting(name: str, value: str) -> None:
    if name == "smt" and value in _SWITCHED:
        raise InputError(
            f"--smt {value!r}: expected a number, the threads of a core that copies use; the "
            f"machine's own switch is the setting smt.control: --axis smt.control=on,off"
        )


def _parse_until(text: str) -> tuple[float, SweepMeasure]:
    word, colon, rest = text.strip().partition(":")
    measure = word if colon else SweepMeasure.TIME
    margin = rest if colon else word
    share = parse_percent(margin) if margin.endswith("%") else None
    if share is None or not 0 < share < 1 or measure not in tuple(SweepMeasure):
        raise InputError(
            f"--until {text!r}: expected per cent, as in --until 1%, or --until energy:1%"
        )
    return share, SweepMeasure(measure)


# -- What a sweep needs before its first run: every point resolved, every program built ------------

_MOST_LABELS = 4


def resolve_points(
    points: Iterable[GridPoint], kinds: Mapping[str, AxisKind], topology: Topology
) -> tuple[GridPoint, ...]:
    """Resolve points on this machine, with its settings of now; nothing is made, set or stored."""
    changing, redactor = _changing_cpus(kinds), Redactor()
    resolved_points = []
    for point in points:
        shown = replace(point, shown=redactor.redact_pairs(point.values))
        if point.request is not None:
            plan, refusals = resolved_with(point.request, point.settings, topology)
            # Other CPUs will be there: told when it is its turn.
            shown = replace(shown, plan=plan, refusals=() if changing else refusals)
        resolved_points.append(shown)
    return tuple(resolved_points)


def planned_sweep(sweep_request: SweepRequest, points: Sequence[GridPoint]) -> StoredSweep:
    """Return the sweep to be stored when it begins, without a number; `points` are resolved."""
    usable = [point for point in points if not point.refusals]
    suite = next((point.plan.suite for point in usable if point.plan), None)
    spec = replace(sweep_request.spec, started_at=utc_timestamp(), suite=suite)
    numbers = [point.point for point in usable]
    slots = order_slots(numbers, spec.rounds, spec.block_order, spec.seed)
    return StoredSweep(
        number=0,
        asked=spec,
        status=RunStatus.RUNNING,
        reason=None,
        ended_at=None,
        resumed=0,
        extended=0,
        axes=tuple(sweep_request.kinds.items()),
        points=tuple(
            SweepPoint(
                point=point.point,
                label=point.label,
                values=point.values,
                request="{}" if point.request is None else request_to_json(point.request),
                left_out="; ".join(point.refusals) or None,
            )
            for point in points
        ),
        slots=tuple(
            SlotRun(slot=slot, run=None, status=None, done=False, elapsed_s=None) for slot in slots
        ),
    )


def resolved_with(
    request: Request, settings: Mapping[str, str], topology: Topology
) -> tuple[RunPlan | None, tuple[str, ...]]:
    """Return what a request means here, and all it would be refused for.

    `settings` are those that will be set before.
    """

    try:
        resolved = resolve(request, topology)
    except InputError as error:
        return None, (str(error),)
    planned = {find_setting(name, sysroot()).name: value for name, value in settings.items()}
    _, _, refusals = checked(resolved, planned)
    return resolved, (*resolved.refusals, *refusals, *_out_of_reach(resolved))


def _out_of_reach(resolved: RunPlan) -> list[str]:
    """Say what would be found out only when copies are begun."""

    problems: list[str] = []
    if resolved.request.command:
        try:
            programs = programs_of(resolved.request.command)
            untouched_programs(resolved.tuning, {find_command(words[0]) for words in programs})
        except InputError as error:  # one that is not there is told elsewhere
            problems.append(str(error))
    return problems


def refused_together(
    points: Sequence[GridPoint], refused: Mapping[int, str] | None = None
) -> str | None:
    """Say which points cannot run and why, each reason once; None if all can run.

    `refused`: reasons by the number of a point, in place of those that the points have.
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
    points: Sequence[GridPoint], mark: str, report: Callable[[str], None]
) -> dict[int, str]:
    """Set up and build what points run, so that nothing is built between their runs.

    Once for each that differs in what it builds. `mark` tells the processes that this
    starts from all others. Returns which points cannot run with what was built, and why.
    Raises `InputError` where building does not succeed.
    """

    kinds: dict[object, RunPlan] = {}
    for point in points:
        if point.plan is not None and point.request is not None:
            kinds.setdefault(_build_key(point), point.plan)
    refused: dict[int, str] = {}
    for number, (kind, resolved) in enumerate(kinds.items()):
        with ExitStack() as stack:
            stack.enter_context(guard(mark, resolved.plan.copies))
            work = cache_root() / "work" / f"{mark}-{number}"
            ready = make_ready(resolved, work, stack.callback, report)
            programs = ready.files
        for point in points:
            if point.plan is not None and _build_key(point) == kind:
                try:
                    untouched_programs(point.plan.tuning, programs)
                except InputError as error:
                    refused[point.point] = str(error)
    return refused


def _build_key(point: GridPoint) -> object:
    request = point.request
    return request and (request.suites, request.command, request.size, request.tune)


def same_values(
    axes: Sequence[Axis], kinds: Mapping[str, AxisKind], points: Sequence[GridPoint]
) -> list[str]:
    """Say which values of an option come to the same run, whatever the other axes say."""
    if _changing_cpus(kinds):
        return []
    by_values = {point.values: _run_meaning(point) for point in points}
    problems = []
    for position, axis in enumerate(axes):
        if kinds[axis.name] is not AxisKind.OPTION:
            continue
        of_value: dict[str, list[object]] = {}
        for values, meaning in by_values.items():  # the other axes in the same order for each
            of_value.setdefault(values[position][1], []).append(meaning)
        for first, second in combinations(axis.values, 2):
            if of_value[first] == of_value[second] and None not in of_value[first]:
                shown = f"{first or NONE_SHOWN} and {second or NONE_SHOWN}"
                problems.append(f"axis {axis.name}: {shown} are the same here: leave one out")
    return problems


def _run_meaning(point: GridPoint) -> object:
    if point.plan is None or point.request is None:
        return None
    plan = point.plan
    request = replace(point.request, copies=None)
    return (request, plan.plan, plan.placements, plan.tuning, point.settings)


def _changing_cpus(kinds: Mapping[str, AxisKind]) -> list[str]:

    return [
        name
        for name, kind in kinds.items()
        if kind is AxisKind.SETTING and find_setting(name, sysroot()).changes_cpus
    ]
