"""The runs of a sweep, one after the other: settings, rests, signals, time left, the end."""

from __future__ import annotations

import argparse
import re
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.compare.conditions import Conditions, condition_differences, stored_conditions
from rater.analysis.results.disturbed import is_taken
from rater.errors import InputError, RaterError, RunError
from rater.files import Trusted
from rater.plan.sweep import RETRIES, SweepMeasure, SweepSlot
from rater.process import STOP_SIGNALS, StoppedBySignal, handled, print_error
from rater.record.run import RunStatus, escape_undecodable
from rater.record.stored import RATIO, is_good
from rater.settings.tuner import SettingChangedError
from rater.show.format import format_duration, format_number
from rater.show.plans.plan import changes_text
from rater.show.results.listing import DISTURBED
from rater.text.values import count, truncate_list
from rater.workflow.doctor import RunSettings
from rater.workflow.run.head import ActiveRun, RunLauncher, RunStart
from rater.workflow.run.resolve import expected_total_s
from rater.workflow.run.session import stderr_excerpt
from rater.workflow.sweep.request import ResolvedPoint, resolved_with

if TYPE_CHECKING:
    from types import FrameType

    from rater.plan.request import Request
    from rater.plan.schedule import Plan
    from rater.record.stored import StoredRun
    from rater.run.host.idle import IdleWatch
    from rater.settings.tuner import SettingsSession
    from rater.store.store import Store
    from rater.store.sweeps import StoredSweep
    from rater.workflow.run.resolve import RunPlan


# -- One run of a sweep: stored together with what it is a run of ----------------------------------

# What must be the same in all runs of a sweep, whatever its axes are.
_OF_ALL = ("kernel.release", "kernel.version", "kernel.cmdline", "libc")


class ConditionsChangedError(InputError):
    """What a resumed sweep would compare is not the same any more."""


class SlotAttempt(RunLauncher):
    """A run for one slot of a sweep: stored together with that, with its tags."""

    def __init__(
        self, sweep: int, slot: SweepSlot, point: ResolvedPoint, comparable: tuple[int, bool] | None
    ) -> None:
        """`comparable`: a run that it will be compared with, and whether that is of its point."""
        super().__init__()
        self._sweep = sweep
        self._slot = slot
        self._point = point
        self._comparable = comparable

    def enter(
        self, store: Store, plan: Plan, start: RunStart, say: Callable[[str], None]
    ) -> ActiveRun:
        """Store that it begins, and of what it is a run; raises `ConditionsChangedError`."""
        from rater.store.sweeps import create_slot_run

        if self._comparable is not None:
            self._refuse_changed(store, start.conditions, *self._comparable)
        # Not among what was asked for: `rater rerun` makes no part of the sweep.
        own = (("sweep", str(self._sweep)), ("block", str(self._slot.block)))
        axes = tuple(
            (escape_undecodable(axis), escape_undecodable(value))
            for axis, value in self._point.values
        )
        self.number = create_slot_run(
            store,
            self._sweep,
            self._slot,
            replace(start.run, tags=(*start.run.tags, *own, *axes)),
            start.conditions.host,
            settings=start.conditions.settings,
            pus=start.conditions.pus,
            phases=len(plan.phases),
        )
        return ActiveRun(self.number, plan.phases)

    def _refuse_changed(
        self, store: Store, present: Conditions, run: int, is_of_point: bool
    ) -> None:
        before = stored_conditions(store.load_asked(run).value)
        if not is_of_point:
            before, present = _of_all(before), _of_all(present)
        found = [it for it in condition_differences(before, present) if it.significant]
        if found:
            raise ConditionsChangedError(
                f"sweep {self._sweep} cannot go on, its runs could not be compared; since "
                f"run {run}, this changed:{changes_text(found)}\nwith --force it goes on"
            )


def _of_all(it: Conditions) -> Conditions:
    kept = tuple((name, value) for name, value in it.settings if name in _OF_ALL)
    return replace(it, settings=kept, pus=(), placements=(), benchmarks=None)


# -- How long the runs of a sweep take, and those that are left ------------------------------------


class SweepEta:
    """What runs of each point took, and what others of them will."""

    def __init__(self, points: Mapping[int, ResolvedPoint]) -> None:
        self._expected = {
            number: one_s
            for number, point in points.items()
            if point.resolved is not None and (one_s := expected_total_s(point.resolved))
        }
        self._seconds: dict[int, list[float]] = {}  # by point, as stored
        self._besides_s: list[float] = []  # of runs made here: what took longer

    def add(self, point: int, elapsed_s: float | None, took_s: float | None = None) -> None:
        """Take a run's stored time, and how long it took with all that is no part of it."""
        if elapsed_s is not None:
            self._seconds.setdefault(point, []).append(elapsed_s)
            if took_s is not None:
                self._besides_s.append(max(0.0, took_s - elapsed_s))

    def left_s(self, ahead: Sequence[SweepSlot]) -> float | None:
        """Estimate the runs ahead: the median of the same point, else what is expected of it.

        What is expected is corrected by how others took longer or less; where nothing is
        expected, the median of all points. None where nothing is known. A stored run tells
        the time from its first release to its last finish: what is beside that (set-up, a
        rest, sampling the machine) is known of those made here.
        """
        known = {point: statistics.median(times) for point, times in self._seconds.items()}
        expected = self._expected
        factors = [known[point] / expected[point] for point in known.keys() & expected.keys()]
        factor = statistics.median(factors) if factors else 1.0
        usual = statistics.median(known.values()) if known else None
        corrected = {point: one_s * factor for point, one_s in expected.items()}
        times = [known.get(it.point, corrected.get(it.point, usual)) for it in ahead]
        beside_s = statistics.median(self._besides_s) if self._besides_s else 0.0
        total_s = 0.0
        for time_s in times:
            if time_s is None:
                return None
            total_s += time_s + beside_s
        return total_s


# -- Between two runs of a sweep: rests, and signals that come then --------------------------------


class StopOnFirstSignal(Struct):
    """Takes one signal: those that come while what it began is ended do not count."""

    received: int | None = None
    _is_closed: bool = False

    def close(self) -> None:
        """Take none from here on: what follows must not be broken off."""
        self._is_closed = True

    def stop(self, signum: int, _: FrameType | None) -> None:
        """Raise `StoppedBySignal` for the first signal."""
        if not self._is_closed:
            self._is_closed = True
            self.received = signum
            raise StoppedBySignal(signum)


@contextmanager
def stoppable() -> Iterator[StopOnFirstSignal]:
    """Turn the first signal that ends rater into `StoppedBySignal`, so that settings are put back.

    While copies run the supervisor has them.
    """
    first = StopOnFirstSignal()
    with handled(first.stop):
        try:
            yield first
        finally:
            first.close()


def rest_before(
    request: Request | None, watch: IdleWatch | None, report: Callable[[str], None]
) -> int:
    """Rest before a run as between the phases of one; return 0, or 128 and a signal."""
    if request is None or (request.cooldown_s <= 0 and watch is None):
        return 0
    import trio

    from rater.run.host.idle import cool_down

    async def resting() -> int:
        status = 0
        wanted = [it for it in STOP_SIGNALS if signal.getsignal(it) is not signal.SIG_IGN]
        with trio.open_signal_receiver(*wanted) as arrivals:
            async with trio.open_nursery() as nursery:

                async def listen() -> None:
                    nonlocal status
                    async for signum in arrivals:
                        status = 128 + signum
                        nursery.cancel_scope.cancel()

                nursery.start_soon(listen)
                if note := await cool_down(request.cooldown_s, watch):
                    report(note)
                nursery.cancel_scope.cancel()
        return status

    return trio.run(resting)


# -- The runs of a sweep, one after the other: settings, rests, progress, the end ------------------

_MOST_IN_VAIN = 3  # runs that stayed disturbed: to make others again is no help either
_MOST_IN_A_ROW = 3  # runs that could not be made: then something does not mend by itself
_FIRST_TEST = 3  # blocks, before --until tests
_AGAIN = -1  # instead of an exit status
_BUSY = "busy before the start"
_NUMBER = re.compile(r"\d+(\.\d+)?")


class SweepEnded(Struct, frozen=True):
    """How the runs came to their end."""

    status: RunStatus
    reason: str | None
    exit_status: int
    is_over: bool = False  # no run is missing that is worth making

    @property
    def goes_on(self) -> bool:
        """Whether there is something to go on with, by `--resume`."""
        return bool(self.exit_status) and not self.is_over


@dataclass
class SweepRunner:
    """Makes what is missing of a sweep."""

    args: argparse.Namespace
    store: Store
    sweep: StoredSweep
    points: Mapping[int, ResolvedPoint]
    tuner: SettingsSession
    changes_cpus: bool  # so that every run looks at the topology anew
    cache: Path
    compare_before: bool  # refuse to go on where something changed
    until: float | None
    _slots: list[SweepSlot] = field(init=False)
    _times: SweepEta = field(init=False)
    _reported: set[str] = field(default_factory=set)
    _before: dict[int, int] = field(init=False)  # by point: a run that was done at the beginning
    made: int = 0  # runs that were begun
    _broken: list[int] = field(default_factory=list)  # runs of which no copy ended well
    _failed: int = 0
    _not_made: int = 0
    _in_a_row: int = 0
    _in_vain: int = 0

    def __post_init__(self) -> None:
        self._slots = [it for it in self.sweep.missing if it.point in self.points]
        self._before = {it.slot.point: it.run for it in self.sweep.slots if it.done and it.run}
        self._failed = sum(it.failed for it in self.sweep.slots)
        self._times = SweepEta(self.points)
        for it in self.sweep.slots:
            if it.done:
                self._times.add(it.slot.point, it.elapsed_s)

    def run(self) -> SweepEnded:
        """Make all runs that are missing, or fewer where they are not needed; say how it went."""
        watch: IdleWatch | None = None
        for place, slot in enumerate(self._slots):
            point, ahead = self.points[slot.point], self._slots[place + 1 :]
            status = 0
            if place == 0:
                watch = _watch(point, self.report)
            else:
                status = rest_before(point.request, watch, self.report)
            for retries in range(self._retries, -1, -1):
                status = status or self._run_slot(slot, point, ahead, retries)
                if status != _AGAIN:
                    break
                status = rest_before(point.request, watch, self.report)
            if status > 128:
                name = signal.Signals(status - 128).name
                return SweepEnded(RunStatus.INTERRUPTED, f"stopped by {name}", status)
            ended = self._check_stop(slot, point, ahead)
            if ended is not None:
                return ended
        total = count(len(self.sweep.slots), "run")
        if self._not_made:
            return SweepEnded(RunStatus.FAILED, f"{self._not_made} of {total} could not be made", 1)
        if self._failed:
            said = f"copies failed in {self._failed} of {total}"
            return SweepEnded(RunStatus.FAILED, said, 1, is_over=True)
        return SweepEnded(RunStatus.COMPLETE, None, 0)

    def _check_stop(
        self, slot: SweepSlot, point: ResolvedPoint, ahead: Sequence[SweepSlot]
    ) -> SweepEnded | None:
        asked = self.sweep.asked
        if asked.stop_on_failure and (self._failed or self._not_made):
            return SweepEnded(RunStatus.FAILED, f"stopped: {point.label} failed", 1)
        if ahead and ahead[0].block != slot.block and self._all_failed(slot.block):
            # Those of later blocks alone, which `--resume` would make, compare nothing.
            reason = "stopped: all copies of all runs of the first block failed"
            return SweepEnded(RunStatus.FAILED, reason, 1, is_over=True)
        if self._in_a_row >= _MOST_IN_A_ROW:
            reason = f"{self._in_a_row} runs one after the other could not be made"
            return SweepEnded(RunStatus.FAILED, reason, 1)
        is_last = bool(ahead) and ahead[0].block != slot.block
        if self.until is None or not is_last or slot.block < _FIRST_TEST or self._not_made:
            return None
        if (said := _decided(self.store, self.sweep, self.until)) is None:
            return None
        reason = f"decided after block {slot.block} of {asked.rounds}: {said}"
        return SweepEnded(RunStatus.COMPLETE, reason, 1 if self._failed else 0)

    def _all_failed(self, block: int) -> bool:
        of_block = [slot for slot in self._slots if slot.block == block]
        return block == self._slots[0].block and len(self._broken) == len(of_block)

    def report(self, text: str) -> None:
        """Tell the user something, on standard error."""
        if not self.args.quiet:
            print_error(text)

    # -- one run --------------------------------------------------------------------------------

    @property
    def _retries(self) -> int:
        asked: int | None = getattr(self.args, "retries", None)
        return (RETRIES if asked is None else asked) if self._in_vain < _MOST_IN_VAIN else 0

    def _run_slot(
        self, slot: SweepSlot, point: ResolvedPoint, ahead: Sequence[SweepSlot], retries: int
    ) -> int:
        """Make one run and tell what came of it; return the exit status of the run.

        `_AGAIN` for one that others disturbed, as long as there are `retries`: it does not count.
        """
        from rater.store.connection import StoreError
        from rater.workflow.run.session import Session

        began_s = time.monotonic()
        attempt = SlotAttempt(self.sweep.number, slot, point, self._comparable(slot.point))
        lines = self.args.quiet or not sys.stderr.isatty()
        quiet = argparse.Namespace(db=self.args.db, json=False, quiet=lines)
        try:
            report = partial(self._report_once, point.label)
            if point.settings:
                self._set(point)
            resolved = Trusted(self._resolved(point))  # as `execute_sweep` takes points
            with RunSettings(self.tuner, report) as own:
                session = Session(
                    *(quiet, resolved, self.cache, attempt), one_of_many=report, settings=own
                )
                status = session.run()
                self.made += 1
                self._refuse_taken(attempt.number)
        except (StoreError, ConditionsChangedError, SettingChangedError):
            raise
        except RaterError as error:
            self._not_made += 1
            self._in_a_row += 1
            where = _where(self.sweep, slot, point.label)
            print_error(f"{where}: not made: {error}")
            return 0
        if status > 128:
            return status
        took_s = time.monotonic() - began_s
        if self._report_run(slot, attempt.number, took_s, ahead, retries):
            return _AGAIN
        return status

    def _comparable(self, point: int) -> tuple[int, bool] | None:
        if not self.compare_before or not self._before:
            return None
        if point in self._before:
            return self._before[point], True
        return next(iter(self._before.values())), False

    def _set(self, point: ResolvedPoint) -> None:
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

    def _refuse_taken(self, run: int | None) -> None:
        from rater.store.sweeps import discard_run

        try:
            self.tuner.refuse_taken()
        except SettingChangedError as error:
            if run is None:
                raise
            discard_run(self.store, run, str(error))
            raise SettingChangedError(f"{error}: run {run} is kept and does not count") from error

    def _resolved(self, point: ResolvedPoint) -> RunPlan:
        from rater.run.host import discover as machine

        assert point.request is not None
        if not self.changes_cpus:
            assert point.resolved is not None
            return point.resolved
        resolved, refusals = resolved_with(
            point.request, {}, machine.discover_topology(), self.cache
        )
        if resolved is None or refusals:
            raise InputError("\n".join(refusals))
        return resolved

    # -- words ------------------------------------------------------------------------------------

    def _report_once(self, label: str, text: str) -> None:
        key = _BUSY if _BUSY in text else _NUMBER.sub("#", text)  # who is busy changes every time
        if key not in self._reported:
            self._reported.add(key)
            self.report(f"{label}: {text}")

    def _report_run(
        self,
        slot: SweepSlot,
        run: int | None,
        took_s: float,
        ahead: Sequence[SweepSlot],
        retries: int,
    ) -> bool:
        from rater.store.sweeps import discard_run, load_sweep
        from rater.workflow.results.divots import analysis_for_results

        assert run is not None
        (now,) = [it for it in load_sweep(self.store, self.sweep.number).slots if it.slot == slot]
        stored = self.store.load(run)
        where = _where(self.sweep, slot, self.points[slot.point].label)
        if not now.done:
            self._not_made += 1
            self._in_a_row += 1
            reason = stored.head.reason or stored.head.status.value
            print_error(f"{where}: run {run} not done: {reason}")
            return False
        self._in_a_row = 0
        found = analysis_for_results(self.store, stored)
        disturbed = found is not None and is_taken(found.others_cost)
        if found is not None and disturbed and retries:
            why = found.disturbed[0]
            discard_run(self.store, run, why)
            self.report(f"{where}: run {run} is made again: {why}")
            return True
        tried = bool(self._retries)
        self._in_vain = self._in_vain + 1 if disturbed else 0
        if tried and not self._retries:
            self.report("runs stay disturbed: no more of them are made again")
        self._times.add(slot.point, now.elapsed_s, took_s)
        self._failed += bool(now.failed)
        said = _result(stored, failed=bool(now.failed))
        said += f", {DISTURBED}" if found is not None and found.disturbed else ""
        left_s = self._times.left_s(ahead)
        left = "" if left_s is None or not ahead else f"; {format_duration(left_s)} left"
        if now.failed and self.args.quiet:
            print_error(f"{where}: {said}")
        self.report(f"{where}: {said} ({format_duration(took_s)}){left}")
        if now.failed:
            self._broken += [] if any(map(is_good, stored.copies)) else [run]
            why = stderr_excerpt(stored)
            if why and why not in self._reported:
                self._reported.add(why)
                print_error(why)
        return False


def _watch(point: ResolvedPoint, report: Callable[[str], None]) -> IdleWatch | None:
    if point.request is None or point.request.until_idle_s is None:
        return None
    import os

    import trio

    from rater.run.host.idle import IdleWatch

    watch = IdleWatch(os.sched_getaffinity(0), max_s=point.request.until_idle_s)
    for remark in trio.run(watch.take_baseline):
        report(remark)
    return watch


def _decided(store: Store, sweep: StoredSweep, until: float) -> str | None:
    from rater.analysis.compare.compare import compare, is_decided
    from rater.workflow.results.points import load_points

    points = load_points(store, [f"sweep:{sweep.number}"])
    looks = max(1, sweep.asked.rounds - 2)
    energy = sweep.asked.until_of is SweepMeasure.ENERGY
    if len(points) < 2 or not is_decided(points, until, looks, energy=energy):
        return None
    found = compare(points, margin=until, looks=looks)
    whole = "the suite" if found.suites else "it"
    words = f"{whole} needs no more runs beside {found.sides[0].label}"
    unknown = [
        row.name for row in found.benchmarks if not (row.energy_decided if energy else row.decided)
    ]
    return f"{words}; single benchmarks would: {truncate_list(unknown, 4)}" if unknown else words


def _where(sweep: StoredSweep, slot: SweepSlot, label: str) -> str:
    in_block = sum(it.slot.block == slot.block for it in sweep.slots)
    return f"block {slot.block}/{sweep.asked.rounds}, point {slot.position}/{in_block}: {label}"


def _result(stored: StoredRun, *, failed: bool) -> str:
    from rater.analysis.results.rates import overall

    result = overall(stored)
    words = "no result"
    if result is not None:
        words = format_number(result.value) + ("" if result.unit == RATIO else f" {result.unit}")
    return words + (f", FAILED: {stored.head.reason} (run {stored.head.run})" if failed else "")
