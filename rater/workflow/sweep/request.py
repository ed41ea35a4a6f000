"""What the user asked to sweep: axes, and the `Request` of every point, from words or a file."""

from __future__ import annotations

import argparse
import copy
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rater.errors import InputError
from rater.plan.request.option import Trait
from rater.plan.request.request import BY_NAME, COMMAND, OPTIONS, Request
from rater.plan.sweep.file import SweepFile, is_sweep_text, parse_sweep
from rater.plan.sweep.grid import (
    ENVIRONMENT,
    MOST_ROUNDS,
    Axis,
    AxisKind,
    BlockOrder,
    Measure,
    Values,
    check_axes,
    grid,
    kinds_of,
    parse_axis,
)
from rater.text.document import toml_document
from rater.text.textfile import read_text
from rater.text.words import parse_percent
from rater.workflow.run.workload import name_of
from rater.workflow.run_arguments import request_from

DEFAULT_ROUNDS = 6  # fewer are too few to see whether they are independent
OWN_TAGS = ("sweep", "block")  # what a sweep's runs are tagged with, beside their axes
_WITH_FILE = ("tag", "force", "share", "wait")  # options that may stand beside a sweep's file
_MOST_SEED = 2**31
_SWITCHED = ("on", "off", "forceoff")


@dataclass(frozen=True, slots=True)
class PointAsked:
    """One combination of values, and what it asks for."""

    values: Values
    request: Request | str  # or why there is none, in words

    def settings(self, kinds: Mapping[str, AxisKind]) -> dict[str, str]:
        """Return the settings of the machine that it wants."""
        return {name: value for name, value in self.values if kinds[name] is AxisKind.SETTING}


@dataclass(frozen=True, slots=True)
class Asked:
    """A sweep as it was asked for, nothing looked up yet."""

    axes: tuple[Axis, ...]
    kinds: dict[str, AxisKind]  # by axis
    points: tuple[PointAsked, ...]
    rounds: int
    order: BlockOrder
    seed: int
    until: float | None  # 0.01: 1 %
    until_of: Measure
    skip_refused: bool
    stop_on_failure: bool
    file: Path | None  # the TOML file it was read from
    file_text: str | None


def asked_from(args: argparse.Namespace, settings: Sequence[str]) -> Asked:
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
    margin, measure = (None, Measure.TIME) if until is None else _until(until)
    return Asked(
        axes=axes,
        kinds=kinds,
        points=tuple(PointAsked(values, _request(args, values, kinds)) for values in grid(axes)),
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
    """Return the arguments with what a sweep's file says, where one is named."""
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
    """Return the words of a value of the axis `command`."""
    return list(COMMAND.kind.check(f"axis {COMMAND.name}", text))


def _request(
    args: argparse.Namespace,
    values: Values,
    kinds: Mapping[str, AxisKind],
) -> Request | str:
    """Return what a point asks for, or why it cannot be asked for."""
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
        return request_from(of_point)
    except InputError as error:
        return str(error)


def _hint_at_setting(name: str, value: str) -> None:
    """Say where the machine's own switch is, which has the name of an option."""
    if name == "smt" and value in _SWITCHED:
        raise InputError(
            f"--smt {value!r}: expected a number, the threads of a core that copies use; the "
            f"machine's own switch is the setting smt.control: --axis smt.control=on,off"
        )


def _until(text: str) -> tuple[float, Measure]:
    word, colon, rest = text.strip().partition(":")
    measure = word if colon else Measure.TIME
    margin = rest if colon else word
    share = parse_percent(margin) if margin.endswith("%") else None
    if share is None or not 0 < share < 1 or measure not in tuple(Measure):
        raise InputError(
            f"--until {text!r}: expected per cent, as in --until 1%, or --until energy:1%"
        )
    return share, Measure(measure)


def _first[T](*values: T) -> T:
    """Return the first that is something, else the last."""
    return next((value for value in values if value is not None), values[-1])
