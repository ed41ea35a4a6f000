"""A sweep from its first look at the machine to its end: new ones, and those that go on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
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
    Output,
    RunArguments,
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
    planned_sweep,
    refused_together,
    resolve_points,
    same_values,
    sweep_request_from,
)
from rater.workflow.sweep.runner import SweepCampaign
from rater.workflow.sweep.tied import tied_lines, tied_obstacles, with_tied_settings
from rater.workflow.sweep.view import dry_view, show_sweep, view_of

if TYPE_CHECKING:
    from rater.show.documents.sweep import SweepResumeDocument

# The way out of points that cannot run. A command that lacks this option has an empty one.
_REFUSED = 2  # exit status: no run would be made
SKIP_HINT = "\n--skip-refused leaves them out"

type Shown = Callable[[Output, Store, int], None]  # what a sweep came to, at its end


def _refuse_without_energy() -> None:
    """Raise `InputError` where joules cannot be had, with the reason."""
    energy = EnergyReader(sysroot())
    energy.close()
    if energy.source is None:
        reasons = energy.take_notes() or ["this machine counts no energy (powercap, perf, hwmon)"]
        raise InputError(f"--until energy: {reasons[0]}")


def run_sweep(
    run_arguments: RunArguments,
    options: SweepOptions,
    output: Output,
    show_result: Shown = show_sweep,
    skip_hint: str = SKIP_HINT,
) -> int:
    """Look at all points, then make the runs; return the exit status."""
    check_current_directory()
    settings = available_settings(sysroot())
    names = [setting.name for setting in settings] + [
        setting.also for setting in settings if setting.also
    ]
    sweep_request = sweep_request_from(run_arguments, options, names)
    kinds = sweep_request.kinds
    tied_points = with_tied_settings(sweep_request.points, kinds)
    points = resolve_points(tied_points, kinds, machine.discover_topology())
    refused = refused_together(points)
    same_problems = _same_problems(sweep_request, points)
    if output.dry_run:
        return _dry_run(output, sweep_request, points, same_problems)
    if same_problems:
        raise InputError("\n".join(same_problems))
    if refused is not None:
        if not sweep_request.skip_refused or all(point.refusals for point in points):
            raise InputError(refused + ("" if sweep_request.skip_refused else skip_hint))
        if not output.quiet:
            print_error(f"left out, {refused}")
    usable = {point.point: point for point in points if not point.refusals}

    def begin(store: Store, refused_later: Mapping[int, str]) -> int:
        looked_at = [
            replace(point, refusals=(refused_later[point.point],))
            if point.point in refused_later
            else point
            for point in points
        ]
        planned = planned_sweep(sweep_request, looked_at)
        slots = [slot.slot for slot in planned.slots]
        return new_sweep(store, planned.asked, planned.axes, planned.points, slots)

    if sweep_request.spec.until_of is SweepMeasure.ENERGY:
        _refuse_without_energy()
    return execute_sweep(
        output,
        sweep_request.kinds,
        Trusted(usable),
        begin,
        suite_words=" ".join(run_arguments.suites),
        retries=options.retries,
        until=sweep_request.spec.until,
        may_leave_out=sweep_request.skip_refused,
        skip_hint=skip_hint,
        show_result=show_result,
    )


def _same_problems(sweep_request: SweepRequest, points: Sequence[GridPoint]) -> list[str]:
    """Return axes that are one setting by two names, and values that mean the same (1 and on).

    Values that a setting never takes are problems as well.
    """
    problems = []
    settings = [
        axis for axis in sweep_request.axes if sweep_request.kinds[axis.name] is AxisKind.SETTING
    ]
    try:
        refuse_together({axis.name: find_setting(axis.name, sysroot()) for axis in settings})
        for axis in settings:
            setting = find_setting(axis.name, sysroot())
            typed_by_meaning: dict[str, str] = {}
            for value in axis.values:
                other = typed_by_meaning.setdefault(setting.accept(value), value)
                if other != value:
                    problems.append(f"axis {axis.name}: {other} and {value} are the same")
    except InputError as error:
        problems.append(str(error))
    return problems + same_values(sweep_request.axes, sweep_request.kinds, points)


def _dry_run(
    output: Output,
    sweep_request: SweepRequest,
    points: Sequence[GridPoint],
    same_problems: Sequence[str],
) -> int:
    view = dry_view(sweep_request, points)
    obstacles = (*view.obstacles, *same_problems, *tied_obstacles(points, sweep_request.kinds))
    view = replace(
        view,
        obstacles=tuple(dict.fromkeys(obstacles)),
        tied=tuple(tied_lines(points, sweep_request.kinds)),
    )
    print_view(output, dry_document(view), lambda _: dry_parts(view))
    return 0 if view.running and not view.obstacles else _REFUSED


def execute_sweep(
    output: Output,
    kinds: Mapping[str, AxisKind],
    trusted_points: Trusted[dict[int, GridPoint]],
    enter: Callable[[Store, Mapping[int, str]], int],
    *,
    suite_words: str = "",
    retries: int | None,
    undo: Callable[[Store], None] | None = None,
    until: float | None,
    may_leave_out: bool = False,
    skip_hint: str = "",
    compare_before: bool = False,
    show_result: Shown = show_sweep,
) -> int:
    """Make the runs of a sweep, and show its results; return the exit status.

    `enter` stores that the sweep begins. Its second argument has reasons, by point, of points that
    were built and cannot run. `undo` takes `enter` back where the sweep is refused before a run.
    """
    tied = tied_lines([*trusted_points.value.values()], kinds)
    if tied and not output.quiet:
        print_error("; ".join([*tied, "all is restored at the end"]))
    sweep = SweepCampaign(
        what=f"rater sweep {suite_words}".strip(),
        output=output,
        points=Trusted(
            {
                number: CampaignPoint(point.label, point.request, point.plan, point.settings)
                for number, point in trusted_points.value.items()
                if point.request is not None
            }
        ),
        quiet=output.quiet,
        screen=not output.quiet and sys.stderr.isatty(),
        grid=trusted_points.value,
        kinds=kinds,
        enter=enter,
        undo=undo,
        may_leave_out=may_leave_out,
        skip_hint=skip_hint,
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
            show_result(output, store, number)
    return ended.exit_status


# -- A stored sweep that goes on: exactly what is missing of it, or more rounds --------------------


def resume_sweep(
    output: Output,
    run_arguments: RunArguments,
    options: SweepOptions,
    start_options: StartOptions,
    sweep_word: str,
) -> int:
    """Make what is missing of a stored sweep; return the exit status."""
    if needless := [
        *run_arguments.option_words(without=START_OPTIONS),
        *options.option_words(without=("rounds", "retries")),
    ]:
        raise InputError(
            f"--resume {sweep_word}: remove {' '.join(needless)}: a resumed sweep keeps its options"
        )
    with open_existing_store(output) as store:
        stored = load_asked_sweep(store, find_sweep(store, sweep_word))
    sweep = stored.value
    requests = [point.request for point in sweep.points]
    sourced_sweep = judged(stored, f"sweep {sweep.number}", requests, force=start_options.force)
    spec = sweep.asked
    resumption = _resumption(sweep, options.rounds)
    if not resumption.is_needed:
        return _nothing_left(output, sweep)
    chdir_to(
        sourced_sweep.with_value(spec.directory), f"sweep {sweep.number}", dry_run=output.dry_run
    )
    kinds = dict(sweep.axes)
    points = _points_again(sweep, kinds, start_options)
    if output.dry_run:
        return _show_missing(output, sweep, sourced_sweep.with_value(points))
    rounds = resumption.rounds
    more = order_slots(sorted(points), rounds, spec.block_order, spec.seed, first=spec.rounds + 1)

    def begin(store: Store, _: Mapping[int, str]) -> int:
        claim_sweep(store, sweep.number, resumed=sweep.resumed, rounds=rounds, slots=more)
        return sweep.number

    return execute_sweep(
        output,
        kinds,
        sourced_sweep.with_value(points).trusted(),
        begin,
        retries=options.retries,
        undo=lambda store: undo_resume(store, sweep),
        until=None if resumption.continues_decided_sweep else spec.until,
        compare_before=not start_options.force,
    )


class _Resumption(Struct, frozen=True, kw_only=True):
    """The work of a resumed sweep."""

    rounds: int  # of the whole sweep
    is_needed: bool
    continues_decided_sweep: bool  # `--until` was decided, and more rounds are requested


def _resumption(sweep: StoredSweep, rounds: int | None) -> _Resumption:
    """Return the work that a sweep lacks; `rounds` as typed. Raises `InputError`."""
    before = sweep.asked.rounds
    if sweep.status is RunStatus.RUNNING:
        raise InputError(f"sweep {sweep.number} is still running; end it first, or wait for it")
    if rounds is not None and rounds < before:
        raise InputError(f"--rounds {rounds}: sweep {sweep.number} has {before}; more can be added")
    # A sweep whose `--until` was decided lacks the blocks behind its last one on purpose. Other
    # runs that are missing were removed, and are made again.
    was_decided = sweep.status is RunStatus.COMPLETE and sweep.reason is not None
    last_done_block = max((slot.slot.block for slot in sweep.slots if slot.done), default=0)
    is_lacking = any(not was_decided or slot.block <= last_done_block for slot in sweep.missing)
    needs_more = rounds is not None and (rounds > before or (was_decided and bool(sweep.missing)))
    # A sweep that was stopped behind its last run has to end, and to put its settings back.
    was_stopped = sweep.status in {RunStatus.INTERRUPTED, RunStatus.KILLED}
    return _Resumption(
        rounds=before if rounds is None else rounds,
        is_needed=needs_more or is_lacking or was_stopped,
        continues_decided_sweep=was_decided and needs_more,
    )


def _points_again(
    sweep: StoredSweep, kinds: Mapping[str, AxisKind], start_options: StartOptions
) -> dict[int, GridPoint]:
    asked_points = []
    for point in sweep.points:
        if point.left_out is None:
            request = request_from_json(point.request, f"sweep {sweep.number}, {point.label}")
            asked_points.append(
                GridPoint.from_request(point.point, point.values, start_options.on(request), kinds)
            )
    tied_points = with_tied_settings(asked_points, kinds)
    resolved_points = resolve_points(tied_points, kinds, machine.discover_topology())
    refused = refused_together(resolved_points)
    if refused is not None:
        raise InputError(f"sweep {sweep.number} cannot go on: {refused}")
    return {point.point: point for point in resolved_points}


def _nothing_left(output: Output, sweep: StoredSweep) -> int:
    if not output.quiet:
        reason = (
            f" ({sweep.reason}; --rounds {sweep.asked.rounds} goes on)" if sweep.missing else ""
        )
        print_error(f"sweep {sweep.number}: nothing is missing{reason}")
    if output.json or not output.quiet:
        with open_existing_store(output) as store:
            show_sweep(output, store, sweep.number)
    return 1 if any(slot.failed for slot in sweep.slots) else 0


def _show_missing(output: Output, sweep: StoredSweep, points: Sourced[dict[int, GridPoint]]) -> int:
    view = view_of(sweep)
    runs = [executed_commands(point.plan) for point in points.value.values() if point.plan]
    refused = () if points.doubt is None else (points.doubt,)
    executes = [
        executed for position, executed in enumerate(runs) if executed not in runs[:position]
    ]
    document: SweepResumeDocument = {
        **sweep_document(view),
        "dry_run": True,
        "executes": runs,
        "refused": list(refused),
    }

    def parts(_: object) -> Iterator[Part]:
        yield from missing_parts(view)
        yield from map(executed_facts, executes)
        yield from (f"REFUSED  `--resume` would refuse this: {text}" for text in refused)

    print_view(output, document, parts)
    return 0
