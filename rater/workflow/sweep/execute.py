"""A sweep from its first look at the machine to its end: new ones, and those that go on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from rater.plan.request import request_from_json
from rater.plan.sweep import RETRIES, AxisKind, StoredSweep, SweepMeasure, order_slots
from rater.record.run import RunStatus
from rater.run.host import discover as machine
from rater.run.observe.energy import EnergyReader
from rater.settings.tuner import (
    available_settings,
    find_setting,
    refuse_together,
)
from rater.show.compare.sweep import dry_document, dry_parts, missing_parts, sweep_document
from rater.show.plans.plan import executed_facts
from rater.show.screen.document import Part
from rater.store.store import Store
from rater.store.sweeps import (
    claim_sweep,
    find_sweep,
    load_asked_sweep,
    new_sweep,
    undo_resume,
)
from rater.system.errors import InputError
from rater.system.files import Sourced, Trusted
from rater.system.paths import sysroot
from rater.system.process import print_error
from rater.workflow.arguments import (
    START_OPTIONS,
    Asked,
    Output,
    StartOptions,
    check_current_directory,
    open_existing_store,
    print_view,
)
from rater.workflow.run.campaign import CampaignPoint
from rater.workflow.run.repeat import chdir_to, executed_commands, judged
from rater.workflow.sweep.request import (
    GridPoint,
    SweepOptions,
    SweepRequest,
    asked_from,
    planned_sweep,
    refused_together,
    resolve_points,
    same_values,
)
from rater.workflow.sweep.runner import SweepCampaign
from rater.workflow.sweep.view import dry_view, show_sweep, view_of

type Shown = Callable[[Output, Store, int], None]  # what a sweep came to, at its end


def run_sweep(typed: Asked, own: SweepOptions, output: Output, shown: Shown = show_sweep) -> int:
    """Look at all points, then make the runs; return the exit status."""
    check_current_directory()
    here = available_settings(sysroot())
    names = [setting.name for setting in here] + [setting.also for setting in here if setting.also]
    asked = asked_from(typed, own, names)
    points = resolve_points(asked.points, asked.kinds, machine.discover_topology())
    refused = refused_together(points)
    same = _same_problems(asked, points)
    if output.dry_run:
        return _dry_run(output, asked, points, same)
    if same:
        raise InputError("\n".join(same))
    if refused is not None:
        if not asked.skip_refused or all(point.refusals for point in points):
            way = "" if asked.skip_refused else "\n--skip-refused leaves them out"
            raise InputError(refused + way)
        if not output.quiet:
            print_error(f"left out, {refused}")
    usable = {point.point: point for point in points if not point.refusals}

    def begin(store: Store, later: Mapping[int, str]) -> int:
        known = [
            replace(point, refusals=(later[point.point],)) if point.point in later else point
            for point in points
        ]
        made = planned_sweep(asked, known)
        slots = [slot.slot for slot in made.slots]
        return new_sweep(store, made.asked, made.axes, made.points, slots)

    if asked.spec.until_of is SweepMeasure.ENERGY:
        energy = EnergyReader(sysroot())
        if energy.source is None:
            why = energy.take_notes() or ["this machine counts no energy (powercap, perf, hwmon)"]
            raise InputError(f"--until energy: {why[0]}")
    return execute_sweep(
        *(output, asked.kinds, Trusted(usable), begin),
        of=" ".join(typed.suites),
        retries=own.retries,
        until=asked.spec.until,
        may_leave_out=asked.skip_refused,
        shown=shown,
    )


def _same_problems(asked: SweepRequest, points: Sequence[GridPoint]) -> list[str]:
    """Return what is there twice: settings by two names, values that mean the same (1 and on).

    And values of settings that no machine takes.
    """
    problems = []
    settings = [axis for axis in asked.axes if asked.kinds[axis.name] is AxisKind.SETTING]
    try:
        refuse_together({axis.name: find_setting(axis.name, sysroot()) for axis in settings})
        for axis in settings:
            setting = find_setting(axis.name, sysroot())
            meant: dict[str, str] = {}
            for value in axis.values:
                other = meant.setdefault(setting.accept(value), value)
                if other != value:
                    problems.append(f"axis {axis.name}: {other} and {value} are the same")
    except InputError as error:
        problems.append(str(error))
    return problems + same_values(asked.axes, asked.kinds, points)


def _dry_run(
    output: Output,
    asked: SweepRequest,
    points: Sequence[GridPoint],
    same: Sequence[str],
) -> int:
    view = dry_view(asked, points)
    view = replace(view, obstacles=tuple(dict.fromkeys((*view.obstacles, *same))))
    print_view(output, dry_document(view), lambda _: dry_parts(view))
    return 0


def execute_sweep(
    output: Output,
    kinds: Mapping[str, AxisKind],
    asked: Trusted[dict[int, GridPoint]],
    enter: Callable[[Store, Mapping[int, str]], int],
    *,
    of: str = "",
    retries: int | None,
    undo: Callable[[Store], None] | None = None,
    until: float | None,
    may_leave_out: bool = False,
    compare_before: bool = False,
    shown: Shown = show_sweep,
) -> int:
    """Make the runs, and show what they came to.

    `enter` stores that it begins; it is told which points turned out not to be able to run.
    `undo` takes that back where it is refused before anything was made.
    """
    sweep = SweepCampaign(
        what=f"rater sweep {of}".strip(),
        output=output,
        points=Trusted(
            {
                number: CampaignPoint(it.label, it.request, it.plan, it.settings)
                for number, it in asked.value.items()
                if it.request is not None
            }
        ),
        quiet=output.quiet,
        screen=not output.quiet and sys.stderr.isatty(),
        grid=asked.value,
        kinds=kinds,
        enter=enter,
        undo=undo,
        may_leave_out=may_leave_out,
        compare_before=compare_before,
        until=until,
        retries=RETRIES if retries is None else retries,
    )
    ended = sweep.execute()
    number = sweep.number
    if number is None:
        return ended.exit_status
    if ended.status is RunStatus.INTERRUPTED or ended.reason:
        way = f"; `rater sweep --resume {number}` goes on" if ended.goes_on else ""
        print_error(f"sweep {number}: {ended.reason}{way}")
    if output.json or not output.quiet:
        with open_existing_store(output) as store:
            shown(output, store, number)
    return ended.exit_status


# -- A stored sweep that goes on: exactly what is missing of it, or more rounds --------------------


def resume_sweep(
    output: Output, asked: Asked, own: SweepOptions, start: StartOptions, resume: str
) -> int:
    """Make what is missing of a stored sweep; return the exit status."""
    if given := [*asked.words(but=START_OPTIONS), *own.words(but=("rounds", "retries"))]:
        raise InputError(
            f"--resume {resume}: remove {' '.join(given)}: a resumed sweep keeps its options"
        )
    with open_existing_store(output) as store:
        stored = load_asked_sweep(store, find_sweep(store, resume))
    sweep = stored.value
    requests = [point.request for point in sweep.points]
    again = judged(stored, f"sweep {sweep.number}", requests, force=start.force)
    before = sweep.asked
    if sweep.status is RunStatus.RUNNING:
        raise InputError(f"sweep {sweep.number} is still running; end it first, or wait for it")
    rounds = before.rounds if own.rounds is None else own.rounds
    if rounds < before.rounds:
        raise InputError(
            f"--rounds {rounds}: sweep {sweep.number} has {before.rounds}; more can be added"
        )
    # A sweep whose `--until` was decided lacks the blocks behind that; what else is not there
    # was removed, and is made again.
    was_decided = sweep.status is RunStatus.COMPLETE and sweep.reason is not None
    last = max((slot.slot.block for slot in sweep.slots if slot.done), default=0)
    lacking = [slot for slot in sweep.missing if not was_decided or slot.block <= last]
    is_asked_for_more = own.rounds is not None and (
        rounds > before.rounds or (was_decided and bool(sweep.missing))
    )
    # One that was stopped behind its last run still has to end, and its settings to be put back.
    was_stopped = sweep.status in {RunStatus.INTERRUPTED, RunStatus.KILLED}
    if not (is_asked_for_more or lacking or was_stopped):
        return _nothing_left(output, sweep)
    chdir_to(again.with_value(before.directory), f"sweep {sweep.number}", dry_run=output.dry_run)
    kinds = dict(sweep.axes)
    points = _points_again(sweep, kinds, start)
    if output.dry_run:
        return _show_missing(output, sweep, again.with_value(points))
    more = order_slots(
        sorted(points), rounds, before.block_order, before.seed, first=before.rounds + 1
    )

    def begin(store: Store, _: Mapping[int, str]) -> int:
        claim_sweep(store, sweep.number, resumed=sweep.resumed, rounds=rounds, slots=more)
        return sweep.number

    return execute_sweep(
        output,
        kinds,
        again.with_value(points).trusted(),
        begin,
        retries=own.retries,
        undo=lambda store: undo_resume(store, sweep),
        until=None if was_decided and is_asked_for_more else before.until,
        compare_before=not start.force,
    )


def _points_again(
    sweep: StoredSweep, kinds: Mapping[str, AxisKind], start: StartOptions
) -> dict[int, GridPoint]:
    asked = []
    for point in sweep.points:
        if point.left_out is None:
            request = request_from_json(point.request, f"sweep {sweep.number}, {point.label}")
            asked.append(GridPoint.of(point.point, point.values, start.on(request), kinds))
    found = resolve_points(asked, kinds, machine.discover_topology())
    refused = refused_together(found)
    if refused is not None:
        raise InputError(f"sweep {sweep.number} cannot go on: {refused}")
    return {point.point: point for point in found}


def _nothing_left(output: Output, sweep: StoredSweep) -> int:
    if not output.quiet:
        why = f" ({sweep.reason}; --rounds {sweep.asked.rounds} goes on)" if sweep.missing else ""
        print_error(f"sweep {sweep.number}: nothing is missing{why}")
    if output.json or not output.quiet:
        with open_existing_store(output) as store:
            show_sweep(output, store, sweep.number)
    return 1 if any(slot.failed for slot in sweep.slots) else 0


def _show_missing(output: Output, sweep: StoredSweep, points: Sourced[dict[int, GridPoint]]) -> int:
    view = view_of(sweep)
    runs = [executed_commands(point.plan) for point in points.value.values() if point.plan]
    refused = () if points.doubt is None else (points.doubt,)
    executes = [it for place, it in enumerate(runs) if it not in runs[:place]]
    document = {"dry_run": True, "executes": runs, "refused": refused}

    def parts(_: object) -> Iterator[Part]:
        yield from missing_parts(view)
        yield from map(executed_facts, executes)
        yield from (f"REFUSED  `--resume` would refuse this: {text}" for text in refused)

    print_view(output, sweep_document(view) | document, parts)
    return 0
