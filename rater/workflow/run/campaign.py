"""Runs in a plan, made one after the other on a machine that is held: the one engine for them.

`rater run`, `rerun` and `--resume`, sweeps, `divots --confirm` and the self-test are its kinds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from rater.plan.request import Request
from rater.plan.sweep import SweepSlot
from rater.record.run import RunStatus
from rater.run.host.admission import default_lock_path, machine_lock
from rater.run.host.foreign_load import ForeignLoadSampler
from rater.settings.tuner import SettingChangedError, SettingsSession
from rater.store.connection import StoreError, default_path
from rater.store.store import Store, open_store
from rater.system.errors import InputError, RaterError
from rater.system.files import Trusted, user_name
from rater.system.paths import default_journal_path, sysroot
from rater.system.process import STOP_SIGNALS, StoppedBySignal, handle_stop_signals, print_error
from rater.workflow.arguments import Output
from rater.workflow.doctor import RunSettings, restore_leftover_settings, tuned_settings_of
from rater.workflow.run.head import RunLauncher, utc_timestamp
from rater.workflow.run.resolve import RunPlan
from rater.workflow.run.session import MadeRun, Session
from rater.workflow.run.sinks import Sink

if TYPE_CHECKING:
    from types import FrameType

    from rater.run.host.idle import IdleWatch
    from rater.run.launcher.guard import Guard

ONE_SLOT = (SweepSlot(1, 1, 0),)
_MOST_IN_VAIN = 3  # runs that stayed disturbed: to make others again is no help either


class CampaignPoint(Struct, frozen=True):
    """What runs of one kind are made of."""

    label: str
    request: Request
    plan: RunPlan | None  # None: settings change what the machine is
    settings: dict[str, str] = {}  # of the machine, set before each of its runs


class ConditionsChangedError(InputError):
    """What would be compared is not the same any more."""


class CampaignEnded(Struct, frozen=True):
    """How the runs came to their end."""

    status: RunStatus
    reason: str | None
    exit_status: int
    is_over: bool = False  # no run is missing that is worth making

    @property
    def goes_on(self) -> bool:
        """Whether there is something to go on with, by `--resume`."""
        return bool(self.exit_status) and not self.is_over

    @staticmethod
    def stopped(status: int) -> CampaignEnded:
        """Return that a signal ended it; `status`: 128 and its number."""
        name = signal.Signals(status - 128).name
        return CampaignEnded(RunStatus.INTERRUPTED, f"stopped by {name}", status)


@dataclass(kw_only=True)
class Campaign:
    """Makes the runs of its slots in their order; a kind of it says what becomes of each."""

    what: str  # for who finds the machine taken, or its settings changed
    output: Output
    points: Trusted[Mapping[int, CampaignPoint]]
    slots: Sequence[SweepSlot] = ONE_SLOT
    quiet: bool = False
    screen: bool = False  # show each run as it goes
    retries: int = 0  # of a run that others disturbed
    tuner: SettingsSession = field(init=False)
    store: Store = field(init=False)
    _left: tuple[str, ...] = ()  # what a dead rater left of the settings
    _load: ForeignLoadSampler | None = None  # begun as the last run ended
    _in_vain: int = 0  # runs, one after the other, that stayed disturbed

    # -- what its kinds say ------------------------------------------------------------------------

    def begin(self, stack: ExitStack) -> None:
        """Do what comes before the first run, with the machine held; `stack` is left at the end."""

    def attempt(self, slot: SweepSlot, tries: int) -> RunLauncher:
        """Return how the run of a slot is stored; `tries`: runs that were made for it before."""
        del slot, tries
        return RunLauncher()

    def listeners(self, slot: SweepSlot, keeper: Guard) -> Sequence[Sink]:
        """Return what else hears its events."""
        del slot, keeper
        return ()

    def set_up(self, point: CampaignPoint, own: RunSettings) -> None:
        """Set what a run wants of the machine; `own` is put back behind it."""
        own.set(tuned_settings_of(point.request))

    def check_run(self, made: MadeRun) -> None:
        """Raise where a run was not made as its point says."""

    def plan_of(self, slot: SweepSlot) -> RunPlan:
        """Return what is to run, with the settings of its point in force."""
        plan = self.points.value[slot.point].plan
        assert plan is not None
        return plan

    def disturbance(self, slot: SweepSlot, made: MadeRun) -> str | None:
        """Return what others did to a run, where that was too much."""
        del slot, made
        return None

    def repeats(self, tries: int) -> bool:
        """Tell whether a disturbed run is made again."""
        return tries < self.retries and self._in_vain < _MOST_IN_VAIN

    def discard(self, slot: SweepSlot, made: MadeRun, why: str) -> None:
        """Drop a disturbed run, which is made again."""

    def judge(self, slot: SweepSlot, made: MadeRun, ahead: Sequence[SweepSlot]) -> None:
        """Say what came of a run that counts."""
        raise NotImplementedError

    def not_made(self, slot: SweepSlot, error: RaterError) -> None:
        """Hear why a run could not be made."""
        del slot
        raise error

    def check_stop(self, slot: SweepSlot, ahead: Sequence[SweepSlot]) -> CampaignEnded | None:
        """Return how it ends behind this slot; None: it goes on."""

    def conclude(self) -> CampaignEnded:
        """Return how it ended with all runs made."""
        return CampaignEnded(RunStatus.COMPLETE, None, 0)

    def close(self, ended: CampaignEnded) -> None:
        """Keep how it ended, before the machine is let go."""

    def fail(self, error: RaterError) -> RaterError:
        """Keep that it failed; return what to raise."""
        return error

    def say(self, text: str, point: CampaignPoint | None = None) -> None:
        """Tell the user something, on standard error; `point`: of its run."""
        del point
        if not self.quiet:
            print_error(text)

    # -- the engine --------------------------------------------------------------------------------

    def execute(self) -> CampaignEnded:
        """Make the runs under the machine's lock, and put its settings back however that ends."""
        requests = [point.request for point in self.points.value.values()]
        holder = (
            f"{self.what}, process {os.getpid()}, user {user_name(os.getuid())}, "
            f"since {utc_timestamp()}"
        )
        ended: CampaignEnded | None = None
        first: StopOnFirstSignal | None = None
        try:
            with stoppable() as first, ExitStack() as stack, closing(first):
                # Left once the first is closed: a signal must not break off putting back.
                lock = machine_lock(
                    default_lock_path(),
                    holder,
                    share=any(request.share for request in requests),
                    wait_s=max((request.wait_s or 0.0 for request in requests), default=0.0),
                    report=self.say,
                )
                stack.enter_context(lock)
                self._left = restore_leftover_settings()
                tuner = SettingsSession(sysroot(), default_journal_path(), self.what)
                self.tuner = stack.enter_context(tuner)
                self.store = stack.enter_context(open_store(default_path(self.output.db)))
                self.begin(stack)
                try:
                    ended = self.make_all()
                except StoppedBySignal as stopped:
                    ended = CampaignEnded.stopped(stopped.exit_status)
                except RaterError as error:
                    raise self.fail(error) from error
                self.close(ended)
        except StoppedBySignal as stopped:  # before the first run, or while it was ended
            ended = ended or CampaignEnded.stopped(stopped.exit_status)
        except Exception as error:
            # Raised in the midst of a library, a signal may come out as the library's own error;
            # that settings could not be put back is rater's.
            if isinstance(error, RaterError) or first is None or first.received is None:
                raise
            ended = ended or CampaignEnded.stopped(128 + first.received)
        return ended

    def make_all(self) -> CampaignEnded:
        """Make the runs of all slots, or fewer where they are not needed; return how it ended."""
        watch: IdleWatch | None = None
        for place, slot in enumerate(self.slots):
            point, ahead = self.points.value[slot.point], self.slots[place + 1 :]
            if place == 0 and ahead:
                watch = _watch(point.request, self.say)
            tries, again = 0, True
            while again:
                status = 0
                if place or tries:
                    status = rest_before(point.request, watch, self.say)
                if status == 0:
                    status, again = self._make(slot, ahead, tries)
                if status > 128:
                    return CampaignEnded.stopped(status)
                tries += 1
            ended = self.check_stop(slot, ahead)
            if ended is not None:
                return ended
        return self.conclude()

    def _make(self, slot: SweepSlot, ahead: Sequence[SweepSlot], tries: int) -> tuple[int, bool]:
        """Make one run; return its status, and whether it is made again, as others disturbed it."""
        try:
            made = self._run(slot, tries)
        except (StoreError, ConditionsChangedError, SettingChangedError):
            raise
        except RaterError as error:
            self.not_made(slot, error)
            return 0, False
        why = self.disturbance(slot, made) if made.status <= 128 else None
        if why and self.repeats(tries):
            self.discard(slot, made, why)
            return made.status, True
        self._in_vain = self._in_vain + 1 if why else 0
        if self.retries and self._in_vain == _MOST_IN_VAIN and not self.repeats(0):
            self.say("runs stay disturbed: no more of them are made again")
        self.judge(slot, made, ahead)
        return made.status, False

    def _run(self, slot: SweepSlot, tries: int) -> MadeRun:
        """Make one run, with what it sets of the machine put back behind it."""
        point = self.points.value[slot.point]

        def report(text: str) -> None:
            self.say(text, point)

        attempt = self.attempt(slot, tries)
        with RunSettings(self.tuner, report) as own:
            self.set_up(point, own)
            session = Session(
                asked=Trusted(self.plan_of(slot)),  # as this took its points
                store=self.store,
                attempt=attempt,
                settings=own,
                say=report,
                left=self._left,
                load=self._load,
                screen=self.screen,
                listeners=partial(self.listeners, slot),
            )
            made = session.run()
            self._load = ForeignLoadSampler()
            self.check_run(made)
        return made


# -- Between two runs: rests, and signals that come then -------------------------------------------


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
    with handle_stop_signals(first.stop):
        yield first


def rest_before(request: Request, watch: IdleWatch | None, report: Callable[[str], None]) -> int:
    """Rest before a run as between the phases of one; return 0, or 128 and a signal."""
    if request.cooldown_s <= 0 and watch is None:
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


def _watch(request: Request, report: Callable[[str], None]) -> IdleWatch | None:
    if request.until_idle_s is None:
        return None
    import trio

    from rater.run.host.idle import IdleWatch

    watch = IdleWatch(os.sched_getaffinity(0), max_s=request.until_idle_s)
    for remark in trio.run(watch.take_baseline):
        report(remark)
    return watch
