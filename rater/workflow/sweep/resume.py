"""A stored sweep that goes on: exactly what is missing of it, or more rounds."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from rater.errors import InputError
from rater.plan.request.stored import request_from_json
from rater.plan.sweep.grid import AxisKind, slots_of
from rater.record.status import RunStatus
from rater.run.host import discover as machine
from rater.run.programs.compile import cache_root
from rater.show.compare.sweep import print_missing, sweep_document
from rater.show.plans.commands import EXECUTED, print_executed
from rater.store.store import Store
from rater.store.sweeps import StoredSweep, find_sweep, give_back, load_sweep, take_up
from rater.streams import say
from rater.workflow.common import existing_store, show
from rater.workflow.run.plan_view import executed
from rater.workflow.run.repeat import go_into, not_ours
from rater.workflow.run_arguments import BESIDE_RESUME, options_given, with_common
from rater.workflow.sweep.conduct import conduct
from rater.workflow.sweep.ready import PointReady, refused_together, resolve_points
from rater.workflow.sweep.request import PointAsked
from rater.workflow.sweep.view import show_sweep, view_of


def resume(args: argparse.Namespace) -> int:
    """Make what is missing of a stored sweep; return the exit status."""
    given = options_given(args, (*BESIDE_RESUME, "rounds"))
    if args.command is not None:
        given.append("-- COMMAND")
    if given:
        raise InputError(
            f"--resume {args.resume}: leave out {' '.join(given)}: what is left of a sweep is run "
            "as it was asked for"
        )
    with existing_store(args) as store:
        sweep = load_sweep(store, find_sweep(store, args.resume), secrets=True)
    asked = sweep.asked
    if sweep.status is RunStatus.RUNNING:
        raise InputError(f"sweep {sweep.number} is still running; end it first, or wait for it")
    rounds = asked.rounds if args.rounds is None else args.rounds
    if rounds < asked.rounds:
        raise InputError(
            f"--rounds {rounds}: sweep {sweep.number} has {asked.rounds}; more can be added"
        )
    # A sweep whose `--until` was decided lacks the blocks behind that; what else is not there
    # was removed, and is made again.
    was_decided = sweep.status is RunStatus.COMPLETE and sweep.reason is not None
    last = max((it.slot.block for it in sweep.slots if it.done), default=0)
    lacking = [slot for slot in sweep.missing if not was_decided or slot.block <= last]
    is_asked_for_more = args.rounds is not None and (
        rounds > asked.rounds or (was_decided and bool(sweep.missing))
    )
    if not is_asked_for_more and not lacking:
        return _nothing_left(args, sweep)
    go_into(args, asked.directory, f"sweep {sweep.number}")
    kinds = dict(sweep.axes)
    cache = cache_root()
    points = _points_again(args, sweep, kinds, cache)
    if args.dry_run:
        return _show_missing(args, sweep, points)
    more = slots_of(sorted(points), rounds, asked.block_order, asked.seed, first=asked.rounds + 1)

    def begin(store: Store, _: Mapping[int, str]) -> int:
        take_up(store, sweep.number, resumed=sweep.resumed, rounds=rounds, slots=more)
        return sweep.number

    return conduct(
        args,
        kinds,
        points,
        cache,
        begin,
        undo=lambda store: give_back(store, sweep),
        until=None if was_decided and is_asked_for_more else asked.until,
        compare_before=not args.force,
    )


def _points_again(
    args: argparse.Namespace, sweep: StoredSweep, kinds: Mapping[str, AxisKind], cache: Path
) -> dict[int, PointReady]:
    """Return the points of a stored sweep as they are here and now; all must be able to run."""
    asked = {}
    for point in sweep.points:
        if point.left_out is None:
            request = request_from_json(point.request, f"sweep {sweep.number}, {point.label}")
            asked[point.point] = PointAsked(point.values, with_common(request, args))
    found = resolve_points(asked, kinds, machine.discover(), cache)
    refused = refused_together(found)
    if refused is not None:
        raise InputError(f"sweep {sweep.number} cannot go on: {refused}")
    return {point.point: point for point in found}


def _nothing_left(args: argparse.Namespace, sweep: StoredSweep) -> int:
    if not args.quiet:
        why = f" ({sweep.reason}; --rounds {sweep.asked.rounds} goes on)" if sweep.missing else ""
        say(f"sweep {sweep.number}: nothing is missing{why}")
    if args.json or not args.quiet:
        with existing_store(args) as store:
            show_sweep(args, store, sweep.number)
    return 1 if any(it.failed for it in sweep.slots) else 0


def _show_missing(
    args: argparse.Namespace, sweep: StoredSweep, points: Mapping[int, PointReady]
) -> int:
    view = view_of(sweep)
    runs = [executed(point.resolved) for point in points.values() if point.resolved]
    refused = not_ours(args, f"sweep {sweep.number}")
    document = {"dry_run": True, "executes": [EXECUTED.of(it) for it in runs], "refused": refused}
    show(args, lambda: sweep_document(view) | document, partial(print_missing, view))
    if not args.json:
        for it in dict.fromkeys(runs):
            print_executed(it, sys.stdout)
        for text in refused:
            print(f"REFUSED  as it stands: {text}")
    return 0
