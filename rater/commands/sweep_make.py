"""A sweep from its first look at the machine to its end: new ones, and those that go on."""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import signal
import sys
import uuid as uuids
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from rater import __version__
from rater.commands.common import existing_store, print_json
from rater.commands.head import directory_here, now_utc
from rater.commands.leftovers import put_back
from rater.commands.request import request_to_json
from rater.commands.sweep_asked import Asked, asked_from
from rater.commands.sweep_ready import PointReady, build_all, look_at, refused_together
from rater.commands.sweep_run import Ended, Runner
from rater.commands.sweep_signals import Stopped, stoppable
from rater.commands.sweep_view import dry_view, show_sweep
from rater.errors import InputError, RaterError
from rater.plan.sweep import ENVIRONMENT, AxisKind, Values, slots_of
from rater.record import RunStatus
from rater.run import machine
from rater.run.build import cache_root
from rater.run.lock import default_lock_path, machine_lock
from rater.show.sweep import (
    dry_document,
    print_dry,
)
from rater.store.database import StoreError, default_path
from rater.store.store import Store, open_store
from rater.store.sweeps import (
    SweepAsked,
    SweepPoint,
    end_sweep,
    load_sweep,
    new_sweep,
)
from rater.tune.knobs import find, knobs
from rater.tune.paths import default_journal_path, sysroot
from rater.tune.tuner import Tuner


def new(args: argparse.Namespace) -> int:
    """Look at all points, then make the runs; return the exit status."""
    _refuse_no_directory()
    here = knobs(sysroot())
    names = [knob.name for knob in here] + [knob.also for knob in here if knob.also]
    asked = asked_from(args, names)
    cache = cache_root()
    points = look_at(dict(enumerate(asked.points)), asked.kinds, machine.discover(), cache)
    refused = refused_together(points)
    if args.dry_run:
        return _dry_run(args, asked, points)
    _refuse_same(asked)
    if refused is not None:
        if not asked.skip_refused or all(point.refusals for point in points):
            way = "" if asked.skip_refused else "\n--skip-refused leaves them out"
            raise InputError(refused + way)
        if not args.quiet:
            print(f"rater: left out, {refused}", file=sys.stderr)
    usable = {point.point: point for point in points if not point.refusals}

    def begin(store: Store) -> int:
        return _store(store, args, asked, points)

    return conduct(args, asked.kinds, usable, cache, begin, until=asked.until)


def _refuse_same(asked: Asked) -> None:
    """Refuse values of a setting that no machine takes, or that mean the same (1 and on)."""
    for axis in asked.axes:
        if asked.kinds[axis.name] is AxisKind.SETTING:
            knob = find(axis.name, sysroot())
            meant: dict[str, str] = {}
            for value in axis.values:
                other = meant.setdefault(knob.accept(value), value)
                if other != value:
                    raise InputError(f"axis {axis.name}: {other} and {value} are the same")


def _store(
    store: Store, args: argparse.Namespace, asked: Asked, points: Sequence[PointReady]
) -> int:
    """Store a sweep that begins now; return its number."""
    usable = [point for point in points if not point.refusals]
    text = asked.file_text
    return new_sweep(
        store,
        SweepAsked(
            uuid=str(uuids.uuid4()),
            started_at=now_utc(),
            rounds=asked.rounds,
            order=asked.order,
            seed=asked.seed,
            until=asked.until,
            stop_on_failure=asked.stop_on_failure,
            suite=next((p.resolved.suite for p in usable if p.resolved), None),
            command_line=shlex.join(["rater", *sys.argv[1:]]),
            rater_version=__version__,
            directory=directory_here(),
            file=None if asked.file is None else str(asked.file),
            file_sha256=None if text is None else hashlib.sha256(text.encode()).hexdigest(),
            file_text=text,
        ),
        [(axis.name, asked.kinds[axis.name]) for axis in asked.axes],
        [
            SweepPoint(
                point.point,
                point.label,
                point.values,
                "{}" if point.request is None else request_to_json(point.request),
                "; ".join(point.refusals) or None,
            )
            for point in points
        ],
        slots_of([it.point for it in usable], asked.rounds, asked.order, asked.seed),
    )


def _dry_run(args: argparse.Namespace, asked: Asked, points: Sequence[PointReady]) -> int:
    """Show what would be swept, in which order, and what is in the way."""
    view = dry_view(asked, points)
    if args.json:
        print_json(dry_document(view))
    else:
        from rich.console import Console

        from rater.show.printer import Printer

        print_dry(view, Printer(Console()))
    return 0


def conduct(
    args: argparse.Namespace,
    kinds: Mapping[str, AxisKind],
    points: Mapping[int, PointReady],
    cache: Path,
    begin: Callable[[Store], int],
    *,
    until: float | None,
    compare_before: bool = False,
) -> int:
    """Make the runs under the machine's lock, with its settings put back at the end."""
    what = f"rater sweep {' '.join(args.suites)}".strip()
    holder = f"{what}, process {os.getpid()}, since {now_utc()}"
    share = any(point.request.share for point in points.values() if point.request)
    ended: Ended | None = None
    number: int | None = None
    try:
        with ExitStack() as stack:
            stack.enter_context(stoppable())
            stack.enter_context(machine_lock(default_lock_path(), holder, share=share))
            for warning in put_back():
                print(f"rater: warning: {warning}", file=sys.stderr)
            store = stack.enter_context(open_store(default_path(args.db)))
            tuner = stack.enter_context(Tuner(sysroot(), default_journal_path(), what))
            wanted = _wanted(kinds, [point.values for point in points.values()])
            if wanted:
                tuner.refuse_unless_settable(wanted)
            _without_swept_variables(stack, kinds)
            mark = str(uuids.uuid4())
            build_all(list(points.values()), mark, cache, lambda text: _say(args, text))
            number = begin(store)
            sweep = load_sweep(store, number)
            _say(args, f"sweep {number}: {len(sweep.missing)} runs to make")
            runner = Runner(
                args=args,
                store=store,
                sweep=sweep,
                points=points,
                tuner=tuner,
                changes_cpus=any(find(name, sysroot()).changes_cpus for name in wanted),
                cache=cache,
                compare_before=compare_before,
                until=until,
            )
            try:
                ended = runner.run()
            except Stopped as stopped:
                ended = _stopped(stopped.number)
            except RaterError as error:
                with suppress(StoreError):  # it may be what failed
                    end_sweep(store, number, RunStatus.FAILED, str(error), now_utc())
                raise
            end_sweep(store, number, ended.status, ended.reason, now_utc())
    except Stopped as stopped:  # before the first run, or while it was ended
        ended = ended or _stopped(stopped.number)
    if number is None:
        return ended.exit_status if ended else 1
    assert ended is not None
    if ended.status is RunStatus.INTERRUPTED or ended.reason:
        way = f"; `rater sweep --resume {number}` goes on" if ended.exit_status else ""
        print(f"rater: sweep {number}: {ended.reason}{way}", file=sys.stderr)
    if args.json or not args.quiet:
        with existing_store(args) as store:
            show_sweep(args, store, number)
    return ended.exit_status


def _stopped(signum: int) -> Ended:
    name = signal.Signals(signum).name
    return Ended(RunStatus.INTERRUPTED, f"stopped by {name}", 128 + signum)


def _wanted(kinds: Mapping[str, AxisKind], points: Sequence[Values]) -> dict[str, list[str]]:
    """Return all values that settings of the machine are to have."""
    wanted: dict[str, list[str]] = {}
    for values in points:
        for name, value in values:
            if kinds[name] is AxisKind.SETTING:
                wanted.setdefault(name, [])
                wanted[name] += [value] if value not in wanted[name] else []
    return wanted


def _without_swept_variables(stack: ExitStack, kinds: Mapping[str, AxisKind]) -> None:
    """Take the variables that are axes out of our environment, which copies inherit."""

    def put(name: str, value: str) -> None:
        os.environ[name] = value

    for name, kind in kinds.items():
        variable = name.removeprefix(ENVIRONMENT)
        if kind is AxisKind.ENVIRONMENT and variable in os.environ:
            stack.callback(put, variable, os.environ.pop(variable))


def _refuse_no_directory() -> None:
    try:
        Path.cwd()
    except OSError as error:
        raise InputError(
            f"the current directory cannot be entered ({error.strerror}); cd to one that is there"
        ) from error


def _say(args: argparse.Namespace, text: str) -> None:
    if not args.quiet:
        print(f"rater: {text}", file=sys.stderr)
