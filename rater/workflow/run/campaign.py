"""Runs made one after the other on a machine that is held: the one engine for them.

`Campaign` is a template. Its `execute` takes the machine's lock, opens the database, makes the runs
of all slots and puts the machine's settings back. A kind of campaign overrides methods for what is
particular to it. `rater run`, `rerun` and `--resume` are campaigns of one run (`OneRun`). Sweeps,
`divots --confirm` and the self-test are of many.

For each slot the order is: rest, `attempt`, `set_up`, the run itself, `check_run`, `examine` and
`disturbance`. A disturbed run goes to `discard` and is made again; any other goes to `judge`. Then
`check_stop` may end the campaign.
"""

from __future__ import annotations

import os
import signal
import time
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
from rater.system.process import (
    STOP_SIGNALS,
    StoppedBySignal,
    handle_stop_signals,
    print_error,
    raise_stopped,
)
from rater.text.values import signal_name
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
# After so many runs in a row that stayed disturbed through all their retries no run is made again:
# the disturbance does not pass, and retries would only multiply the time.
_MOST_DISTURBED_IN_A_ROW = 3


class CampaignPoint(Struct, frozen=True):
    """The runs of one kind: their request and their plan."""

    label: str
    request: Request
    plan: RunPlan | None  # made before each run instead, if settings change which CPUs there are
    settings: dict[str, str] = {}  # of the machine, set before each of these runs


class ConditionsChangedError(InputError):
    """The machine, a program or a suite changed, so that runs could not be compared."""


class CampaignEnded(Struct, frozen=True):
    """How a campaign ended."""

    status: RunStatus
    reason: str | None
    exit_status: int
    is_over: bool = False  # `--resume` would make no run that is worth making

    @property
    def goes_on(self) -> bool:
        """Whether `--resume` has runs to make."""
        return bool(self.exit_status) and not self.is_over

    @staticmethod
    def stopped(status: int) -> CampaignEnded:
        """Return the end by a signal; `status` is 128 + the number of the signal."""
        name = signal_name(status - 128)
        return CampaignEnded(RunStatus.INTERRUPTED, f"stopped by {name}", status)


@dataclass(kw_only=True)
class Campaign[ExaminedRun]:
    """Makes the runs of its slots in their order.

    `ExaminedRun` is the value that a kind of campaign makes of a run: `examine` returns it,
    `disturbance` and `judge` read it.
    """

    what: str  # its command, told to a user who finds the machine taken or its settings changed
    output: Output
    points: Trusted[Mapping[int, CampaignPoint]]
    slots: Sequence[SweepSlot] = ONE_SLOT
    quiet: bool = False
    screen: bool = False  # whether each run is shown as it goes
    retries: int = 0  # of a run that others disturbed
    tuner: SettingsSession = field(init=False)
    store: Store = field(init=False)
    _left: tuple[str, ...] = ()  # warnings of settings that a dead rater left changed
    _load: ForeignLoadSampler | None = None  # begun as the last run ended
    _disturbed_in_a_row: int = 0  # runs that stayed disturbed through all their retries

    # -- the parts that a kind of campaign overrides -----------------------------------------------

    def begin(self, stack: ExitStack) -> None:
        """Do all that comes before the first run, with the machine held; `stack` ends behind it."""

    def attempt(self, slot: SweepSlot, tries: int) -> RunLauncher:
        """Return how the run of a slot is stored; `tries`: runs that were made for it before."""
        del slot, tries
        return RunLauncher()

    def listeners(self, slot: SweepSlot, keeper: Guard) -> Sequence[Sink]:
        """Return further listeners to the events of the run."""
        del slot, keeper
        return ()

    def set_up(self, point: CampaignPoint, run_settings: RunSettings) -> None:
        """Set what a run wants of the machine; `run_settings` are put back behind the run."""
        run_settings.set(tuned_settings_of(point.request))

    def check_run(self, made_run: MadeRun) -> None:
        """Raise where a run was not made as its point says."""

    def plan_of(self, slot: SweepSlot) -> RunPlan:
        """Return the plan of a run, with the settings of its point in force."""
        plan = self.points.value[slot.point].plan
        assert plan is not None
        return plan

    def examine(self, slot: SweepSlot, made_run: MadeRun, took_s: float) -> ExaminedRun:
        """Load and analyse a run that no signal ended; `took_s`: with its set-up."""
        raise NotImplementedError

    def disturbance(self, examined: ExaminedRun) -> str | None:
        """Return why a run counts as disturbed by other work, if it does."""
        del examined
        return None

    def repeats(self, tries: int, examined: ExaminedRun) -> bool:
        """Tell whether a disturbed run is made again."""
        del examined
        return tries < self.retries and not self._retries_are_vain

    def discard(self, slot: SweepSlot, made_run: MadeRun, reason: str) -> None:
        """Drop a disturbed run, which is made again."""

    def judge(self, slot: SweepSlot, examined: ExaminedRun, ahead: Sequence[SweepSlot]) -> None:
        """Say what came of a run that counts."""
        raise NotImplementedError

    def stopped(self, slot: SweepSlot, made_run: MadeRun) -> None:
        """Hear of a run that a signal ended; no other is made."""

    def not_made(self, slot: SweepSlot, error: RaterError) -> None:
        """Hear why a run could not be made."""
        del slot
        raise error

    def check_stop(self, slot: SweepSlot, ahead: Sequence[SweepSlot]) -> CampaignEnded | None:
        """Return the end of the campaign behind this slot, if it ends there."""

    def conclude(self) -> CampaignEnded:
        """Return the end of the campaign with all runs made."""
        return CampaignEnded(RunStatus.COMPLETE, None, 0)

    def close(self, ended: CampaignEnded) -> None:
        """Store how the campaign ended, before the machine is let go."""

    def fail(self, error: RaterError) -> RaterError:
        """Store that the campaign failed; return what to raise."""
        return error

    def say(self, text: str, point: CampaignPoint | None = None) -> None:
        """Tell the user something on standard error; `point`: of whose run the text is."""
        del point
        if not self.quiet:
            print_error(text)

    # -- the engine --------------------------------------------------------------------------------

    def execute(self) -> CampaignEnded:
        """Make the runs under the machine's lock; its settings are put back in any case."""
        requests = [point.request for point in self.points.value.values()]
        holder = (
            f"{self.what}, process {os.getpid()}, user {user_name(os.getuid())}, "
            f"since {utc_timestamp()}"
        )
        ended: CampaignEnded | None = None
        first_signal: StopOnFirstSignal | None = None
        try:
            with stoppable() as first_signal, ExitStack() as stack, closing(first_signal):
                # `stack` is left once `first_signal` is closed: a signal must not break off
                # putting the settings back.
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
            # A signal that is raised in the midst of a library may come out as the library's own
            # error. A `RaterError` says that settings could not be put back.
            received = first_signal.received if first_signal else None
            if isinstance(error, RaterError) or received is None:
                raise
            ended = ended or CampaignEnded.stopped(128 + received)
        return ended

    def make_all(self) -> CampaignEnded:
        """Make the runs of all slots, or fewer where `check_stop` ends it; return how it ended."""
        watch: IdleWatch | None = None
        for position, slot in enumerate(self.slots):
            point, ahead = self.points.value[slot.point], self.slots[position + 1 :]
            if position == 0 and ahead:
                watch = _idle_watch(point.request, self.say)
            tries, is_again = 0, True
            while is_again:
                status = 0
                if position or tries:
                    status = rest_before(point.request, watch, self.say)
                if status == 0:
                    status, is_again = self._make(slot, ahead, tries)
                if status > 128:
                    return CampaignEnded.stopped(status)
                tries += 1
            ended = self.check_stop(slot, ahead)
            if ended is not None:
                return ended
        return self.conclude()

    @property
    def _retries_are_vain(self) -> bool:
        return self._disturbed_in_a_row >= _MOST_DISTURBED_IN_A_ROW

    def _make(self, slot: SweepSlot, ahead: Sequence[SweepSlot], tries: int) -> tuple[int, bool]:
        """Make one run; return its status, and whether it is made again, as others disturbed it."""
        began_s = time.monotonic()
        try:
            made_run = self._run(slot, tries)
        except (StoreError, ConditionsChangedError, SettingChangedError):
            raise
        except RaterError as error:
            self.not_made(slot, error)
            return 0, False
        if made_run.status > 128:
            self.stopped(slot, made_run)
            return made_run.status, False
        examined = self.examine(slot, made_run, time.monotonic() - began_s)
        disturbance = self.disturbance(examined)
        if disturbance and self.repeats(tries, examined):
            self.discard(slot, made_run, disturbance)
            return made_run.status, True
        self._disturbed_in_a_row = self._disturbed_in_a_row + 1 if disturbance else 0
        is_told_now = self._disturbed_in_a_row == _MOST_DISTURBED_IN_A_ROW
        if self.retries and is_told_now and not self.repeats(0, examined):
            self.say("runs stay disturbed: no more of them are made again")
        self.judge(slot, examined, ahead)
        return made_run.status, False

    def _run(self, slot: SweepSlot, tries: int) -> MadeRun:
        """Make one run, and put back what it sets of the machine."""
        point = self.points.value[slot.point]

        def report(text: str) -> None:
            self.say(text, point)

        attempt = self.attempt(slot, tries)
        with RunSettings(self.tuner, report) as run_settings:
            self.set_up(point, run_settings)
            session = Session(
                asked=Trusted(self.plan_of(slot)),  # the campaign took trusted points
                store=self.store,
                attempt=attempt,
                settings=run_settings,
                say=report,
                left=self._left,
                load=self._load,
                screen=self.screen,
                listeners=partial(self.listeners, slot),
            )
            made_run = session.run()
            self._load = ForeignLoadSampler()
            self.check_run(made_run)
        return made_run


# -- Between two runs: rests, and signals that come then -------------------------------------------


class StopOnFirstSignal(Struct):
    """Takes one signal; signals that come while rater ends because of it do not count."""

    received: int | None = None
    _is_closed: bool = False

    def close(self) -> None:
        """Take no signal from here on: what follows must not be broken off."""
        self._is_closed = True

    def stop(self, signum: int, frame: FrameType | None) -> None:
        """Raise `StoppedBySignal` for the first signal; amid an import, behind that."""
        if not self._is_closed:
            self._is_closed = True
            self.received = signum
            raise_stopped(signum, frame)


@contextmanager
def stoppable() -> Iterator[StopOnFirstSignal]:
    """Turn the first signal that ends rater into `StoppedBySignal`, so that settings are put back.

    While copies run the supervisor takes the signals.
    """
    first_signal = StopOnFirstSignal()
    with handle_stop_signals(first_signal.stop):
        yield first_signal


def rest_before(request: Request, watch: IdleWatch | None, report: Callable[[str], None]) -> int:
    """Rest as between the phases of a run; return 0, or 128 + the number of a signal."""
    if request.cooldown_s <= 0 and watch is None:
        return 0
    import trio

    from rater.run.host.idle import cool_down

    async def resting() -> int:
        status = 0
        wanted = [
            number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
        ]
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


def _idle_watch(request: Request, report: Callable[[str], None]) -> IdleWatch | None:
    if request.until_idle_s is None:
        return None
    import trio

    from rater.run.host.idle import IdleWatch

    watch = IdleWatch(os.sched_getaffinity(0), max_s=request.until_idle_s)
    for remark in trio.run(watch.take_baseline):
        report(remark)
    return watch
