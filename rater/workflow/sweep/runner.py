"""The runs of a sweep, one after the other: settings, rests, signals, time left, the end."""

from __future__ import annotations

import os
import re
import statistics
import uuid as uuids
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.compare.conditions import Conditions, condition_differences, stored_conditions
from rater.analysis.divots.model.finding import Analysis
from rater.analysis.results.disturbed import is_too_disturbed
from rater.plan.request import Request
from rater.plan.schedule import Plan
from rater.plan.sweep import (
    ENVIRONMENT,
    AxisKind,
    SlotRun,
    StoredSweep,
    SweepMeasure,
    SweepSlot,
    Values,
)
from rater.record.run import RunStatus, escape_undecodable
from rater.record.stored import RATIO, StoredRun, is_good
from rater.run.host import discover as machine
from rater.settings.tuner import SettingChangedError, find_setting
from rater.show.plans.plan import changes_text
from rater.show.results.listing import DISTURBED
from rater.show.screen.format import format_duration, format_number
from rater.store.connection import StoreError
from rater.store.store import Store
from rater.store.sweeps import (
    create_slot_run,
    discard_run,
    end_sweep,
    load_sweep,
)
from rater.system.errors import InputError, RaterError, RunError
from rater.system.files import Trusted
from rater.system.paths import sysroot
from rater.system.process import print_error
from rater.text.values import count, group_by_key, truncate_list
from rater.workflow.doctor import RunSettings, tuned_settings_of
from rater.workflow.run.campaign import (
    Campaign,
    CampaignEnded,
    CampaignPoint,
    ConditionsChangedError,
)
from rater.workflow.run.head import ActiveRun, RunLauncher, utc_timestamp
from rater.workflow.run.resolve import RunPlan, expected_total_s
from rater.workflow.run.session import MadeRun, stderr_excerpt
from rater.workflow.sweep.request import (
    GridPoint,
    build_all,
    refused_together,
    resolved_with,
)

# -- One run of a sweep: stored together with its slot ---------------------------------------------

# What must be the same in all runs of a sweep, whatever its axes are.
_OF_ALL = ("kernel.release", "kernel.version", "kernel.cmdline", "libc")


class SlotAttempt(RunLauncher):
    """A run for one slot of a sweep: stored together with that, with its tags."""

    def __init__(
        self, sweep: int, slot: SweepSlot, values: Values, comparable: tuple[int, bool] | None
    ) -> None:
        """`comparable`: a run that it will be compared with, and whether that is of its point."""
        super().__init__()
        self._sweep = sweep
        self._slot = slot
        self._values = values
        self._comparable = comparable

    def enter(
        self, store: Store, plan: Plan, start: StoredRun, say: Callable[[str], None]
    ) -> ActiveRun:
        """Store that the run of the slot begins; raises `ConditionsChangedError`."""
        if self._comparable is not None:
            self._refuse_changed(store, stored_conditions(start), *self._comparable)
        # Not tags of the request: `rater rerun` makes no part of the sweep.
        slot_tags = (("sweep", str(self._sweep)), ("block", str(self._slot.block)))
        axis_tags = tuple(
            (escape_undecodable(axis), escape_undecodable(value)) for axis, value in self._values
        )
        self.number = create_slot_run(
            store,
            self._sweep,
            self._slot,
            replace(
                start, head=replace(start.head, tags=(*start.head.tags, *slot_tags, *axis_tags))
            ),
            len(plan.phases),
        )
        return ActiveRun(number=self.number, phases=plan.phases)

    def _refuse_changed(
        self, store: Store, present: Conditions, run: int, is_of_point: bool
    ) -> None:
        before = stored_conditions(store.load_asked(run).value)
        if not is_of_point:
            before, present = _common_conditions(before), _common_conditions(present)
        differences = [
            difference
            for difference in condition_differences(before, present)
            if difference.significant
        ]
        if differences:
            raise ConditionsChangedError(
                f"sweep {self._sweep} cannot go on, its runs could not be compared; since "
                f"run {run}, this changed:{changes_text(differences)}\nwith --force it goes on"
            )


def _common_conditions(conditions: Conditions) -> Conditions:
    kept = tuple((name, value) for name, value in conditions.settings if name in _OF_ALL)
    return replace(conditions, settings=kept, pus=(), placements=(), benchmarks=None)


# -- How long the runs of a sweep take, and those that are left ------------------------------------


class SweepEta:
    """Times of the runs of each point, and an estimate of the runs ahead."""

    def __init__(self, plans: Mapping[int, RunPlan | None]) -> None:
        self._expected = {
            number: expected_s
            for number, plan in plans.items()
            if plan is not None and (expected_s := expected_total_s(plan))
        }
        self._seconds: dict[int, list[float]] = {}  # by point, as stored
        self._besides_s: list[float] = []  # of runs made here: set-up, rest and sampling

    def add(self, point: int, elapsed_s: float | None, took_s: float | None = None) -> None:
        """Take the stored time of a run, and `took_s`: its time with set-up, rest and sampling."""
        if elapsed_s is not None:
            self._seconds.setdefault(point, []).append(elapsed_s)
            if took_s is not None:
                self._besides_s.append(max(0.0, took_s - elapsed_s))

    def left_s(self, ahead: Sequence[SweepSlot]) -> float | None:
        """Estimate seconds of the runs ahead; None if nothing is known of one of them.

        The estimate of a run is the median of its point. A point without runs has its expected
        time, corrected by the median factor of measured over expected times; without an expected
        time, the median of all points. Stored times go from the first release to the last finish.
        Set-up, rest and sampling are added: their median over the runs that were made here.
        """
        known_s = {point: statistics.median(times) for point, times in self._seconds.items()}
        expected = self._expected
        factors = [known_s[point] / expected[point] for point in known_s.keys() & expected.keys()]
        factor = statistics.median(factors) if factors else 1.0
        usual_s = statistics.median(known_s.values()) if known_s else None
        corrected = {point: expected_s * factor for point, expected_s in expected.items()}
        times_ahead = [
            known_s.get(slot.point, corrected.get(slot.point, usual_s)) for slot in ahead
        ]
        beside_s = statistics.median(self._besides_s) if self._besides_s else 0.0
        total_s = 0.0
        for time_s in times_ahead:
            if time_s is None:
                return None
            total_s += time_s + beside_s
        return total_s


# -- The runs of a sweep, one after the other: settings, rests, progress, the end ------------------

_MOST_IN_A_ROW = 3  # runs that could not be made: then something does not mend by itself
_FIRST_TEST = 3  # blocks, before --until tests
_BUSY = "busy before the start"
_NUMBER = re.compile(r"\d+(\.\d+)?")


class ExaminedSlot(Struct, frozen=True, kw_only=True):
    """A run of a sweep that no signal ended."""

    number: int  # of the run
    slot_run: SlotRun
    stored: StoredRun
    analysis: Analysis | None  # None for a run that was not made to its end
    took_s: float  # with its set-up


@dataclass(kw_only=True)
class SweepTally:
    """What came of the runs so far."""

    made: int = 0  # runs that were begun
    failed: int = 0  # runs of which copies failed, those before `--resume` included
    not_made: int = 0  # runs that could not be made, or not to their end
    not_made_in_a_row: int = 0
    broken: list[int] = field(default_factory=list)  # numbers of runs of which no copy ended well

    def count_not_made(self) -> None:
        """Count a run that could not be made."""
        self.not_made += 1
        self.not_made_in_a_row += 1


def _done_runs(sweep: StoredSweep) -> dict[int, int]:
    """Return a run that is done for each point that has one."""
    return {slot.slot.point: slot.run for slot in sweep.slots if slot.done and slot.run}


def _hide_swept_variables(kinds: Mapping[str, AxisKind], stack: ExitStack) -> None:
    """Take the variables of a sweep's axes from the environment until `stack` is closed."""
    for name, kind in kinds.items():
        variable = name.removeprefix(ENVIRONMENT)
        if kind is AxisKind.ENVIRONMENT and variable in os.environ:
            stack.callback(os.environ.__setitem__, variable, os.environ.pop(variable))


def _tuned_settings(request: Request, kinds: Mapping[str, AxisKind]) -> dict[str, str]:
    """Return what --tuned sets in all runs of a sweep: its axes stand over it."""
    tuned = tuned_settings_of(request)
    for name, kind in kinds.items():
        if kind is AxisKind.SETTING:
            tuned.pop(find_setting(name, sysroot()).name, None)
    return tuned


@dataclass(kw_only=True)
class SweepCampaign(Campaign[ExaminedSlot]):
    """Makes the missing runs of a sweep."""

    grid: Mapping[int, GridPoint]
    kinds: Mapping[str, AxisKind]  # of its axes
    # Stores that the sweep begins, and returns its number; its second argument says why points that
    # were built turned out not to be able to run.
    enter: Callable[[Store, Mapping[int, str]], int]
    undo: Callable[[Store], None] | None  # takes `enter` back where nothing was made
    may_leave_out: bool  # points that cannot run
    skip_hint: str  # what to do about them otherwise
    compare_before: bool  # refuse to go on where conditions changed
    until: float | None  # share within which every comparison has to be decided
    sweep: StoredSweep = field(init=False)
    number: int | None = None
    _eta: SweepEta = field(init=False)
    _reported: set[str] = field(default_factory=set)  # remarks that were said of a run
    _done_before: dict[int, int] = field(init=False)  # by point: a run that was done at the start
    _changes_cpus: bool = False  # whether settings do, so that each run looks at the topology anew
    _tally: SweepTally = field(default_factory=SweepTally)

    def begin(self, stack: ExitStack) -> None:
        """Try the settings, build all, and store that it begins."""
        points = self._with_settings()
        settings = [point.settings.items() for point in points.values()]
        values_by_setting = group_by_key(
            dict.fromkeys(item for setting in settings for item in setting)
        )
        if values_by_setting:
            self.tuner.refuse_unless_settable(values_by_setting)
        self._changes_cpus = any(
            find_setting(name, sysroot()).changes_cpus for name in values_by_setting
        )
        _hide_swept_variables(self.kinds, stack)
        grid_points = [*self.grid.values()]
        refused = build_all(grid_points, str(uuids.uuid4()), self.say)
        if refusals_text := refused_together(grid_points, refused):
            if not self.may_leave_out or len(refused) == len(grid_points):
                raise InputError(refusals_text + ("" if self.may_leave_out else self.skip_hint))
            self.say(f"left out, {refusals_text}")
        self.number = self.enter(self.store, refused)
        self.sweep = load_sweep(self.store, self.number)
        self.say(f"sweep {self.number}: {count(len(self.sweep.missing), 'run')} to make")
        self.points = Trusted(
            {number: point for number, point in points.items() if number not in refused}
        )
        self.slots = [slot for slot in self.sweep.missing if slot.point in self.points.value]
        self._done_before = _done_runs(self.sweep)
        self._tally.failed = sum(slot.failed for slot in self.sweep.slots)
        plans = {number: point.plan for number, point in self.points.value.items()}
        self._eta = SweepEta(plans)
        for slot_run in self.sweep.slots:
            if slot_run.done:
                self._eta.add(slot_run.slot.point, slot_run.elapsed_s)

    def _with_settings(self) -> dict[int, CampaignPoint]:
        points = self.points.value
        tuned = _tuned_settings(next(iter(points.values())).request, self.kinds)
        if tuned:
            changes = truncate_list([f"{name}={value}" for name, value in tuned.items()], 8)
            self.say(f"changed for the sweep, restored at its end: {changes}")
        return {
            number: replace(point, settings=tuned | point.settings)
            for number, point in points.items()
        }

    def attempt(self, slot: SweepSlot, _: int) -> RunLauncher:
        """Return a run that is stored together with its slot."""
        values = self.grid[slot.point].values
        return SlotAttempt(self.sweep.number, slot, values, self._comparable(slot.point))

    def set_up(self, point: CampaignPoint, _: RunSettings) -> None:
        """Set what the point says."""
        if not point.settings:
            return
        try:
            self.tuner.set(point.settings)
        except SettingChangedError:
            raise
        except RaterError as error:
            try:
                self.tuner.restore()  # all anew with the next point
            except RunError as trouble:
                raise RunError(f"{error}\n{trouble}") from error
            raise

    def plan_of(self, slot: SweepSlot) -> RunPlan:
        """Return the point's plan, of the CPUs that are there now."""
        if not self._changes_cpus:
            return super().plan_of(slot)
        request = self.points.value[slot.point].request
        resolved, refusals = resolved_with(request, {}, machine.discover_topology())
        if resolved is None or refusals:
            raise InputError("\n".join(refusals))
        return resolved

    def check_run(self, made_run: MadeRun) -> None:
        """Raise `SettingChangedError` where somebody changed a setting meanwhile."""
        self._tally.made += 1
        try:
            self.tuner.refuse_taken()
        except SettingChangedError as error:
            discard_run(self.store, made_run.number, str(error))
            reason = f"{error}: run {made_run.number} is kept and does not count"
            raise SettingChangedError(reason) from error

    def not_made(self, slot: SweepSlot, error: RaterError) -> None:
        """Count it: the others are made all the same."""
        self._tally.count_not_made()
        print_error(f"{self._where(slot)}: not made: {error}")

    def conclude(self) -> CampaignEnded:
        """Return how it ended."""
        total = count(len(self.sweep.slots), "run")
        if self._tally.not_made:
            reason = f"{self._tally.not_made} of {total} could not be made"
            return CampaignEnded(RunStatus.FAILED, reason, 1)
        if self._tally.failed:
            reason = f"copies failed in {self._tally.failed} of {total}"
            return CampaignEnded(RunStatus.FAILED, reason, 1, is_over=True)
        return CampaignEnded(RunStatus.COMPLETE, None, 0)

    def close(self, ended: CampaignEnded) -> None:
        """Store how it ended."""
        end_sweep(self.store, self.sweep.number, ended.status, ended.reason, utc_timestamp())

    def fail(self, error: RaterError) -> RaterError:
        """Store that it failed, or take back that it began; return what to raise."""
        number = self.sweep.number
        with suppress(StoreError):  # it may be what failed
            if isinstance(error, ConditionsChangedError) and not self._tally.made and self.undo:
                self.undo(self.store)
            else:
                end_sweep(self.store, number, RunStatus.FAILED, str(error), utc_timestamp())
        if not isinstance(error, SettingChangedError):
            return error
        way = f"`rater sweep --resume {number}` goes on once that is settled"
        return RunError(f"{error}\nsweep {number} ends here; {way}")

    def check_stop(self, slot: SweepSlot, ahead: Sequence[SweepSlot]) -> CampaignEnded | None:
        """Return the end of the sweep, if no more runs are needed or possible."""
        spec = self.sweep.asked
        if spec.stop_on_failure and (self._tally.failed or self._tally.not_made):
            label = self.points.value[slot.point].label
            return CampaignEnded(RunStatus.FAILED, f"stopped: {label} failed", 1)
        if ahead and ahead[0].block != slot.block and self._all_failed(slot.block):
            # Those of later blocks alone, which `--resume` would make, compare nothing.
            reason = "stopped: all copies of all runs of the first block failed"
            return CampaignEnded(RunStatus.FAILED, reason, 1, is_over=True)
        if self._tally.not_made_in_a_row >= _MOST_IN_A_ROW:
            reason = f"{self._tally.not_made_in_a_row} runs one after the other could not be made"
            return CampaignEnded(RunStatus.FAILED, reason, 1)
        is_last = bool(ahead) and ahead[0].block != slot.block
        if self.until is None or not is_last or slot.block < _FIRST_TEST or self._tally.not_made:
            return None
        if (decision := _describe_decision(self.store, self.sweep, self.until)) is None:
            return None
        reason = f"decided after block {slot.block} of {spec.rounds}: {decision}"
        return CampaignEnded(RunStatus.COMPLETE, reason, 1 if self._tally.failed else 0)

    def _all_failed(self, block: int) -> bool:
        of_block = [slot for slot in self.slots if slot.block == block]
        return block == self.slots[0].block and len(self._tally.broken) == len(of_block)

    def _comparable(self, point: int) -> tuple[int, bool] | None:
        if not self.compare_before or not self._done_before:
            return None
        if point in self._done_before:
            return self._done_before[point], True
        return next(iter(self._done_before.values())), False

    # -- words ------------------------------------------------------------------------------------

    def say(self, text: str, point: CampaignPoint | None = None) -> None:
        """Tell the user something; of a run, what no run before it told."""
        if point is not None:
            key = _BUSY if _BUSY in text else _NUMBER.sub("#", text)  # who is busy always changes
            if key in self._reported:
                return
            self._reported.add(key)
            text = f"{point.label}: {text}"
        super().say(text)

    def examine(self, slot: SweepSlot, made_run: MadeRun, took_s: float) -> ExaminedSlot:
        """Load a run, and search it for divots where it was made to its end."""
        from rater.workflow.results.divots import analysis_for_results

        stored = made_run.run or self.store.load(made_run.number)
        (slot_run,) = (
            slot_run
            for slot_run in load_sweep(self.store, self.sweep.number).slots
            if slot_run.slot == slot
        )
        return ExaminedSlot(
            number=made_run.number,
            slot_run=slot_run,
            stored=stored,
            analysis=analysis_for_results(self.store, stored) if slot_run.done else None,
            took_s=took_s,
        )

    def disturbance(self, examined: ExaminedSlot) -> str | None:
        """Return what others cost the copies of a run that is done, where that was too much."""
        analysis = examined.analysis
        if analysis is None or not is_too_disturbed(analysis.others_cost):
            return None
        return analysis.disturbed_times[0]

    def discard(self, slot: SweepSlot, made_run: MadeRun, reason: str) -> None:
        """Keep it, but not as a run of the sweep."""
        discard_run(self.store, made_run.number, reason)
        self.say(f"{self._where(slot)}: run {made_run.number} is made again: {reason}")

    def judge(self, slot: SweepSlot, examined: ExaminedSlot, ahead: Sequence[SweepSlot]) -> None:
        """Say what came of a run, and how long those ahead will take."""
        slot_run, stored, where = examined.slot_run, examined.stored, self._where(slot)
        if not slot_run.done:
            self._tally.count_not_made()
            reason = stored.head.reason or stored.head.status.value
            print_error(f"{where}: run {examined.number} not done: {reason}")
            return
        self._tally.not_made_in_a_row = 0
        self._eta.add(slot.point, slot_run.elapsed_s, examined.took_s)
        has_failed = bool(slot_run.failed)
        self._tally.failed += has_failed
        result = _describe_result(stored, failed=has_failed)
        if examined.analysis is not None and examined.analysis.disturbed_times:
            result += f", {DISTURBED}"
        left_s = self._eta.left_s(ahead)
        left = "" if left_s is None or not ahead else f"; {format_duration(left_s)} left"
        if has_failed and self.quiet:
            print_error(f"{where}: {result}")
        self.say(f"{where}: {result} ({format_duration(examined.took_s)}){left}")
        if has_failed:
            self._say_failure(examined)

    def _say_failure(self, examined: ExaminedSlot) -> None:
        """Print the standard error of a failed copy, once where several runs have the same."""
        if not any(map(is_good, examined.stored.copies)):
            self._tally.broken.append(examined.number)
        excerpt = stderr_excerpt(examined.stored)
        if excerpt and excerpt not in self._reported:
            self._reported.add(excerpt)
            print_error(excerpt)

    def _where(self, slot: SweepSlot) -> str:
        in_block = sum(slot_run.slot.block == slot.block for slot_run in self.sweep.slots)
        place = f"block {slot.block}/{self.sweep.asked.rounds}, point {slot.position}/{in_block}"
        return f"{place}: {self.points.value[slot.point].label}"


def _describe_decision(store: Store, sweep: StoredSweep, until: float) -> str | None:
    from rater.analysis.compare.compare import compare, is_decided
    from rater.workflow.results.points import load_points

    points = load_points(store, [f"sweep:{sweep.number}"])
    looks = max(1, sweep.asked.rounds - 2)
    energy = sweep.asked.until_of is SweepMeasure.ENERGY
    if len(points) < 2 or not is_decided(points, until, looks, energy=energy):
        return None
    comparison = compare(points, margin=until, looks=looks)
    subject = "the suite" if comparison.suites else "it"
    words = f"{subject} needs no more runs beside {comparison.sides[0].label}"
    undecided = [
        row.name
        for row in comparison.benchmarks
        if not (row.energy_decided if energy else row.decided)
    ]
    return (
        f"{words}; single benchmarks would: {truncate_list(undecided, 4)}" if undecided else words
    )


def _describe_result(stored: StoredRun, *, failed: bool) -> str:
    from rater.analysis.results.rates import overall

    result = overall(stored)
    words = "no result"
    if result is not None:
        words = format_number(result.value) + ("" if result.unit == RATIO else f" {result.unit}")
    return words + (f", FAILED: {stored.head.reason} (run {stored.head.run})" if failed else "")
