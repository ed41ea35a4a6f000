"""`rater fleet run`: everything that can be checked here is, then the plan is stored, then sent."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import uuid as uuids
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rater import __version__
from rater.errors import InputError
from rater.plan.fleet.nodes import expand
from rater.plan.placement.layout import load_layout
from rater.plan.placement.layout_options import override
from rater.plan.placement.memory_policy import parse_memory
from rater.plan.placement.place import check_copies
from rater.plan.request.argument import Form
from rater.plan.request.option import was_given
from rater.plan.request.request import OPTIONS, Request
from rater.plan.schedule.phases import resolve_mode, resolve_window
from rater.run.fleet.backends import backend
from rater.run.fleet.shared_folder import SPEC_VERSION, SharedFolder, Spec
from rater.store.connection import default_path
from rater.store.fleet.fleets import (
    FleetAsked,
    load_fleet,
    mark_begun,
    new_fleet,
    take_over,
    unfinished_like,
)
from rater.store.store import Store, open_store
from rater.streams import say
from rater.text.words import count, some
from rater.workflow.common import refuse_no_directory
from rater.workflow.fleet.step import Steps
from rater.workflow.fleet.view import show_fleet, told, waited
from rater.workflow.run.head import now_utc
from rater.workflow.run.resolve import asked_for
from rater.workflow.run_arguments import request_from

_SETTLE_S = {"slurm": 60.0, "local": 1.0}
# Options of `rater run` that jobs do not get: their nodes are theirs alone, --wait is another one.
_NOT_PASSED = {"wait": None, "share": False, "speccmds_out": False}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A fleet that can be begun."""

    asked: FleetAsked
    nodes: tuple[str, ...]


def run(args: argparse.Namespace) -> int:
    """Begin a fleet, or go on with the one that a killed `rater fleet run` left."""
    wanted = _checked(args)
    with open_store(default_path(args.db)) as store:
        number = unfinished_like(store, wanted.asked, wanted.nodes)
        if number is not None:
            take_over(store, number)
            say(f"goes on with fleet {number}: the same command was killed before its end")
        else:
            _make_folder(wanted.asked)  # before the plan: what cannot be made leaves no fleet
            number = new_fleet(store, wanted.asked, wanted.nodes)
        fleet = load_fleet(store, number)
        _make_folder(fleet.asked)
        steps = Steps(store, number, told(len(fleet.nodes), quiet=args.quiet))
        if args.wait:
            return waited(args, steps)
        steps.act(steps.look())
        mark_begun(store, number)
        return _submitted(args, store, steps)


def begin_again(store: Store, number: int, nodes: tuple[str, ...]) -> int:
    """Plan what a fleet ran once more on some of its nodes, all at a time; return its number.

    Nothing is submitted yet: that is the first step's.
    """
    asked = load_fleet(store, number).asked
    uuid = str(uuids.uuid4())
    folder = Path(asked.folder).with_name(f"rater-{uuid}")
    command_line = shlex.join(["rater", *sys.argv[1:]])
    again = replace(
        asked,
        uuid=uuid,
        started_at=now_utc(),
        folder=str(folder),
        command_line=command_line,
        rater_version=__version__,
        parallel=None,
    )
    _make_folder(again)
    made = new_fleet(store, again, nodes)
    mark_begun(store, made)
    return made


def _submitted(args: argparse.Namespace, store: Store, steps: Steps) -> int:
    fleet = load_fleet(store, steps.number)
    if not args.quiet or args.json:
        show_fleet(args, fleet, steps.silent)
    left = len(fleet.nodes) - len(fleet.rows)
    if not args.quiet:
        if left:
            say(f"{count(left, 'node')} to come: `rater fleet wait {fleet.number}` submits them")
        elif any(of[-1].it.state != "refused" for of in fleet.rows.values()):
            say(
                f"submitted; `rater fleet wait {fleet.number}` waits, tries lost nodes again and "
                "collects"
            )
    refused = [of[-1].it for of in fleet.rows.values() if of[-1].it.state == "refused"]
    return 1 if refused else 0


def _checked(args: argparse.Namespace) -> _Wanted:
    """Check what was typed as far as this machine can tell. Raises `InputError`."""
    refuse_no_directory()
    if args.nodes is None:
        raise InputError("--nodes is missing: the nodes to run on, such as --nodes n[001-128]")
    nodes = expand(args.nodes)
    _check_numbers(args)
    request = request_from(argparse.Namespace(**vars(args) | _NOT_PASSED))
    _check_request(request)
    directory = Path.cwd()
    if request.command:
        _check_command(request.command[0])
    uuid = str(uuids.uuid4())
    folder = _home(args) / f"rater-{uuid}"
    found = {it.name for it in backend(args.backend, folder).nodes(nodes)}
    unknown = [name for name in nodes if name not in found]
    if unknown:
        raise InputError(
            f"--nodes: {some(unknown)}: not among the scheduler's nodes; `sinfo -N` lists them"
        )
    asked = FleetAsked(
        uuid=uuid,
        started_at=now_utc(),
        backend=args.backend,
        folder=str(folder),
        scratch=str(Path(args.scratch or "/var/tmp").absolute()),
        directory=str(directory),
        words=words_of(args),
        command=tuple(args.command) if args.command else None,
        command_line=shlex.join(["rater", *sys.argv[1:]]),
        rater_version=__version__,
        parallel=args.parallel,
        attempts=args.attempts,
        minutes=args.minutes,
        pending_limit_s=args.pending_limit,
        settle_s=_SETTLE_S[args.backend] if args.settle is None else args.settle,
        arguments=tuple(args.slurm_arg),
        allow_partial=args.allow_partial,
    )
    return _Wanted(asked, nodes)


def _check_numbers(args: argparse.Namespace) -> None:
    for name in ("parallel", "attempts", "minutes"):
        value = getattr(args, name)
        if value is not None and not 1 <= value <= 10**6:
            raise InputError(f"--{name} {value}: expected a whole number, 1 or more")
    for name in ("pending-limit", "settle"):
        value = getattr(args, name.replace("-", "_"))
        if value is not None and not 0 <= value < 1e9:
            raise InputError(f"--{name} {value:g}: expected seconds, 0 or more")


def _check_request(request: Request) -> None:
    """Check what does not hang on the machine: every node would refuse the same.

    Whether as many copies fit, and which CPUs there are, each node finds for itself.
    """
    asked_for(request)
    mode, _, stagger_ms = resolve_mode(request.mode, request.stagger_ms, request.order)
    resolve_window(mode, request.warmup_s, request.window_s, stagger_ms / 1e3)
    override(
        load_layout(request.layout),
        **{it: getattr(request, it) for it in ("bind", "smt", "kind", "reserve")},
    )
    if request.memory is not None:
        parse_memory(request.memory)
    if request.copies is not None:
        check_copies(request.copies)


def _check_command(word: str) -> None:
    import shutil

    if shutil.which(word) is None and not Path(word).exists():
        say(f"warning: {word} is not on this machine; each node looks for it by itself")


def words_of(args: argparse.Namespace) -> tuple[str, ...]:
    """Return what stands behind `rater run` on a node: suites, and options that were given."""
    words: list[str] = [*args.suites]
    for option in OPTIONS:
        value: Any = None if option.dest in _NOT_PASSED else getattr(args, option.dest)
        if not was_given(value):
            continue
        if option.kind.form is Form.FLAG:
            words.append(option.typed)
        elif option.kind.form in (Form.SEVERAL, Form.REPEATED):
            words += [f"{option.typed}={it}" for it in value]
        else:
            words.append(f"{option.typed}={value}")
    return tuple(words)


def _home(args: argparse.Namespace) -> Path:
    """Return where fleets have their folders: a place that all nodes see."""
    named = args.folder or os.environ.get("RATER_FLEETS")
    if named:
        return Path(named).absolute()
    return default_path(None).absolute().parent / "fleets"


def _make_folder(asked: FleetAsked) -> None:
    spec = Spec(
        rater=SPEC_VERSION,
        fleet=asked.uuid,
        version=asked.rater_version,
        words=asked.words,
        command=asked.command,
        directory=asked.directory,
        scratch=asked.scratch,
        allow_partial=asked.allow_partial,
        lock=os.environ.get("RATER_LOCK"),
    )
    SharedFolder(Path(asked.folder)).make(spec)
