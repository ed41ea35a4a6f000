"""One run from the lock to the last line on the screen, and where its events go."""

from __future__ import annotations

import gc
import json
import os
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import trio
from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.results.placement import RunProof
from rater.plan.options import parse_cadence
from rater.plan.schedule import Phase
from rater.record.events import (
    CopyCounted,
    CopyStarted,
    CpuReadings,
    Event,
    MachineReadings,
    Noted,
    Observed,
    PagesHad,
    PhaseCounted,
    Resting,
    RunEnded,
    Sampled,
)
from rater.record.run import RunStatus
from rater.record.stored import StoredRun, is_good
from rater.run.host.admission import lost_lock_warning
from rater.run.host.foreign_load import ForeignLoadSampler
from rater.run.host.idle import IdleWatch
from rater.run.host.thread_binding import living_on, realtime_priority
from rater.run.launcher.guard import Guard, guard
from rater.run.launcher.limits import refuse_copies
from rater.run.observe.perf import CounterPlan
from rater.run.programs.compile import cache_root
from rater.run.programs.tuning import CopyTuning
from rater.run.supervise.job import Job, PageSetup
from rater.run.supervise.supervisor import Outcome, Supervisor
from rater.run.workplace.run_dirs import Program, RunFolders, stderr_ends
from rater.store.connection import StoreError
from rater.store.store import Store
from rater.system.errors import InputError
from rater.system.files import Trusted, replace_file
from rater.system.paths import sysroot, user_folder
from rater.system.process import DeferredSignals, hold_stop_signals, print_error
from rater.text.values import to_dict
from rater.wings import Hook
from rater.workflow.doctor import RunSettings
from rater.workflow.machine import ready_counters
from rater.workflow.results.divots import store_disturbance, store_placement_verdicts
from rater.workflow.results.listing import store_score
from rater.workflow.run.head import ActiveRun, RunLauncher, start_of
from rater.workflow.run.prepare import (
    HostLoad,
    PreparedRun,
    database_warnings,
    make_ready,
    remove_if_empty,
)
from rater.workflow.run.resolve import RunPlan, most_bytes
from rater.workflow.run.workload import refuse_pages, unreached_warnings

if TYPE_CHECKING:
    from rater.show.live.lines import View


# -- Page sizes of copies, which a wing makes ready ------------------------------------------------


class PreparedPages(Struct, frozen=True, kw_only=True):
    """Everything that copies need for their page sizes."""

    setup: PageSetup  # what is looked for while copies run
    programs: dict[str, Program]  # by benchmark, with the layout in their environment
    tuning: CopyTuning  # what is preloaded
    warnings: tuple[str, ...]  # why not all can be had
    settings: tuple[tuple[str, str], ...]  # what is kept with the run


class PagePreparation(Protocol):
    """What a wing does for page sizes."""

    def pages_of_run(
        self,
        ready: PreparedRun,
        start: StoredRun,
        store: Store,
        cache: Path,
        *,
        say_text: Callable[[str], None],
        fill: Callable[[Mapping[str, str]], None],
    ) -> PreparedPages | None:
        """Make the page sizes of copies ready; None where they are not chosen."""


_PAGE_SETUP = Hook[PagePreparation]("page setup")


# -- What a program that failed said of it itself --------------------------------------------------


def stderr_excerpt(run: StoredRun) -> str:
    """Return the first and last lines of a failed copy's standard error, "" where it has none."""
    failed = [copy for copy in run.copies if copy.run_dir and not is_good(copy)]
    lines = stderr_ends(failed[0].run_dir or "") if failed else []
    said = ["its standard error:", *(f"  {line}" for line in lines)] if lines else []
    if failed and failed[0].cpu is not None and any("libnuma" in line for line in lines):
        said.append(
            "rater binds copies, and numactl refuses CPUs and nodes beyond that: `--bind none "
            "--mem none` leaves both to the command"
        )
    return "\n".join(said)


# -- Where a run's events go: into the database and onto the screen, each on a thread of its own ---
#
# The supervisor only appends to a queue: a disk that stalls or a slow terminal
# must not delay the time stamp of the next copy that ends.

_AFTERWARDS = (CpuReadings, MachineReadings, CopyCounted, PhaseCounted, PagesHad)
_CAN_WAIT = (CopyStarted, Sampled, *_AFTERWARDS)
_NOT_SHOWN = (Sampled, Observed, *_AFTERWARDS)
_CLOSE_PATIENCE_S = 60.0
_GATHER_S = 0.05  # what ended this long before a kill -9 may not be in the database yet
_DRAW_GAP_S = 0.25  # at most four times a second


class Sink(Protocol):
    """Where events go: `put` is called by the supervisor and must return at once."""

    def start(self) -> None:
        """Begin, before the first event."""
        ...

    def put(self, event: Event) -> None:
        """Take an event."""
        ...

    def close(self) -> None:
        """Finish with what was taken, after the last event."""
        ...


class Recorder(threading.Thread):
    """Appends events to the store, in order; what could not be stored is kept for another try.

    `append` takes events that belong in one transaction: those that came while it
    was busy with the ones before.
    """

    def __init__(self, append: Callable[..., None], trouble: Callable[[str], None]) -> None:
        super().__init__(name="recorder", daemon=True)
        self._append = append
        self._trouble = trouble
        self._events: deque[Event] = deque()
        self._wake = threading.Event()
        self._over = False
        self.unsaved: list[Event] = []
        self.problem: str | None = None

    def put(self, event: Event) -> None:
        """Take an event; returns at once."""
        self._events.append(event)
        # Its end brings a copy's start along; samples and readings go with what comes next.
        if not (isinstance(event, _CAN_WAIT) or self._wake.is_set()):
            self._wake.set()

    def run(self) -> None:
        """Store what comes until `close`; after a failure only collect."""
        with realtime_priority():
            while True:
                self._wake.wait()
                # Copies end in bursts: those of the next moment share a transaction.
                time.sleep(_GATHER_S)
                self._wake.clear()
                over = self._over
                self._store([self._events.popleft() for _ in range(len(self._events))])
                if over:
                    return

    def _store(self, events: list[Event]) -> None:
        if self.unsaved or not events:
            self.unsaved += events
            return
        try:
            self._append(*events)
        except Exception as error:  # whatever it is: what was measured must not be lost
            self.problem = str(error) or type(error).__name__
            self.unsaved += events
            self._trouble(self.problem)

    def close(self) -> None:
        """Wait until everything is stored, and try once more what could not be."""
        self._over = True
        self._wake.set()
        self.join()  # however long a disk takes: the database is closed next, which it must not use
        while self.unsaved:
            try:
                self._append(self.unsaved[0])
            except Exception as error:  # as above
                self.problem = str(error) or type(error).__name__
                return
            del self.unsaved[0]


class Screen(threading.Thread):
    """Feeds a `View` on a thread of its own.

    The view counts phases from 0, whatever numbers those ahead have in the run.
    """

    def __init__(self, view: View, phases: Sequence[Phase] = ()) -> None:
        super().__init__(name="screen", daemon=True)
        self._view = view
        self._positions = {it.number: position for position, it in enumerate(phases)}
        self._renumbers = any(number != place for number, place in self._positions.items())
        self._events: deque[Event] = deque()
        self._wake = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()

    def put(self, event: Event) -> None:
        """Take an event; returns at once. What is seen of copies and CPUs is for later."""
        if not isinstance(event, _NOT_SHOWN):
            self._events.append(event)
            self._wake.set()

    def run(self) -> None:
        """Draw when something changed, four times a second at most, and when the view wants to."""
        wait_s = 0.0
        while not self._over.is_set():
            self._wake.wait(wait_s)
            self._wake.clear()
            with self._lock:
                self._drain()
                wait_s = self._view.tick(time.monotonic_ns())
            self._over.wait(_DRAW_GAP_S)

    def pause(self) -> None:
        """Stop drawing, for Ctrl-Z."""
        self._lock.acquire()
        self._view.pause()

    def resume(self) -> None:
        """Go on drawing."""
        self._view.resume()
        self._lock.release()

    def close(self) -> None:
        """Draw what is left and leave the terminal clean."""
        self._over.set()
        self._wake.set()
        self.join(_CLOSE_PATIENCE_S)
        self._drain()
        self._view.stop()

    def _drain(self) -> None:
        while self._events:
            event = self._events.popleft()
            if self._renumbers and not isinstance(event, Noted | Resting | Observed | RunEnded):
                event = replace(event, phase=self._positions[event.phase])
            self._view.event(event)


# -- One run from the lock to the last line on the screen ------------------------------------------

_COLLECT_AFTER_OBJECTS = 50_000


class MadeRun(Struct, frozen=True, kw_only=True):
    """A run that was made."""

    number: int
    status: int  # as a program's: 128 and the number of the signal that ended it
    reason: str | None  # why it failed
    run: StoredRun | None  # as the database has it; None: not all of it is there
    proved: RunProof | None = None
    others_cost: float | None = None  # what work of others on the copies' CPUs cost


def refuse_plan(plan: RunPlan) -> None:
    """Raise `InputError` for a run that is known not to be possible as it is."""
    if plan.refusals:
        raise InputError("\n".join(plan.refusals))
    refuse_copies(plan.plan, plan.counted_events)


@dataclass(kw_only=True)
class Session:
    """One run on a machine that is held, from its set-up to its last row."""

    asked: Trusted[RunPlan]
    store: Store
    attempt: RunLauncher
    settings: RunSettings
    say: Callable[[str], None]  # to the user, on standard error
    left: tuple[str, ...] = ()  # warnings of what a dead rater left of the settings
    load: ForeignLoadSampler | None = None  # who else works here since it was made
    screen: bool = False
    # What else hears the run's events; made when its guard is there, for processes of its own.
    listeners: Callable[[Guard], Sequence[Sink]] = lambda _: ()
    resolved: RunPlan = field(init=False)
    _run: StoredRun = field(init=False)
    _counters: CounterPlan | None = None

    def run(self) -> MadeRun:
        """Prepare it and run it. Raises `RaterError` where it does not begin."""
        resolved, attempt, store = self.asked.value, self.attempt, self.store
        self.resolved = resolved
        refuse_plan(resolved)
        refuse_pages(resolved.request)
        surroundings = HostLoad(resolved, self.load)
        for warning in resolved.warnings:
            self.say(f"warning: {warning}")
        with ExitStack() as stack:
            # From here on nothing that is started, compilers included, outlives this process.
            keeper = stack.enter_context(guard(attempt.mark, resolved.plan.copies))
            cache = cache_root()
            work = cache / "work" / attempt.folder
            if work.parent != cache / "work":
                stack.callback(remove_if_empty, work.parent)
            ready = make_ready(resolved, work, stack.callback, self.say)
            needed_bytes = most_bytes(resolved) * resolved.plan.copies
            unreached = unreached_warnings(
                resolved.request, resolved.tuning, ready.files, needed_bytes
            )
            start = start_of(attempt.uuid, ready)
            stack.callback(shutil.rmtree, ready.work / "pages", ignore_errors=True)
            pages = None
            if resolved.request.has_pages:
                pages = _PAGE_SETUP().pages_of_run(
                    ready, start, store, cache, say_text=self.say, fill=self.settings.set
                )
            if pages is not None:
                ready = replace(ready, programs=pages.programs)
                settings = dict(start.settings) | dict(pages.settings)
                start = replace(start, settings=tuple(settings.items()))
            opened = database_warnings(store.path, resolved.request)
            self._counters, uncounted = ready_counters(resolved.counters, resolved.plan.discard)
            unpaged = pages.warnings if pages else ()
            warnings = (
                *(*self.left, *unreached, *unpaged, *opened, *uncounted),
                *surroundings.warnings(),
            )
            for warning in warnings:
                self.say(f"warning: {warning}")
            self._run = replace(start, warnings=start.warnings + warnings)
            with (
                hold_stop_signals() as signals
            ):  # from the run's row on nothing is broken off: it is ended
                made = self._entered(keeper, ready, self._run, signals, pages)
        return made if signals.first is None else replace(made, status=128 + signals.first)

    def _entered(
        self,
        keeper: Guard,
        ready: PreparedRun,
        start: StoredRun,
        signals: DeferredSignals,
        pages: PreparedPages | None,
    ) -> MadeRun:
        resolved, store = self.resolved, self.store
        entered = self.attempt.enter(store, resolved.plan, start, self.say)
        try:
            with living_on(resolved.reserved, [keeper.launcher.pid]):
                outcome, recorder = self._supervise(
                    keeper, entered, store, ready, signals, pages=pages
                )
        except Exception as error:
            with suppress(StoreError):
                reason = str(error) or type(error).__name__
                store.append(entered.number, RunEnded(RunStatus.FAILED, reason))
            raise
        if recorder.unsaved:
            self._rescue(entered.number, recorder)
            return MadeRun(number=entered.number, status=1, reason=recorder.problem, run=None)
        run = store.load(entered.number)
        proved = store_placement_verdicts(store, run)
        store_score(store, run)
        cost = store_disturbance(store, run)
        status = 128 + outcome.signal if outcome.signal is not None else 1
        status = 0 if outcome.status is RunStatus.COMPLETE else status
        return MadeRun(
            number=entered.number,
            status=status,
            reason=outcome.reason,
            run=run,
            proved=proved,
            others_cost=cost,
        )

    def _supervise(
        self,
        keeper: Guard,
        entered: ActiveRun,
        store: Store,
        ready: PreparedRun,
        signals: DeferredSignals,
        *,
        pages: PreparedPages | None,
    ) -> tuple[Outcome, Recorder]:
        resolved, request = self.resolved, self.resolved.request
        folders = RunFolders(
            ready.work,
            self.attempt.mark,
            ready.programs,
            resolved.placements,
            request.environment,
            keep=request.keep,
            tuning=pages.tuning if pages else resolved.tuning,
            files=ready.files,
        )
        phases = entered.phases
        screen = Screen(self._view(phases), phases) if self.screen else None
        job = Job(
            plan=replace(resolved.plan, phases=phases),
            placements=resolved.placements,
            workplace=folders,
            work=ready.work,
            timeout_s=request.timeout_s,
            grace_s=request.grace_s,
            prepare=request.prepare,
            cooldown_s=request.cooldown_s,
            until_idle=_idle_watch(resolved),
            prepare_environment=dict(os.environ) | dict(request.environment),
            output_limit_bytes=request.output_limit_bytes,
            check_limit_s=request.check_limit_s,
            expected_s=resolved.expected_s,
            elapsed_before_ns=entered.elapsed_before_ns,
            runs_before=entered.runs_before,
            failed_before=entered.failed_before,
            suspend=screen.pause if screen else lambda: None,
            resume=screen.resume if screen else lambda: None,
            proof=parse_cadence(request.proof),
            energy=None if request.energy == "off" else sysroot(),
            own_cpus=bool(resolved.reserved),
            counters=self._counters,
            pages=pages.setup if pages else None,
        )
        # What was imported and planned stays to the end: nothing for the collector to walk through
        # while copies are timed.
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER_OBJECTS)

        def fail(reason: str) -> None:
            supervisor.fail(reason)

        def append(*events: Event) -> None:
            before = store.lost
            store.append(entered.number, *events)
            if screen and store.lost != before:
                screen.put(Noted(f"{store.lost}"))

        recorder = Recorder(append, fail)
        sinks: tuple[Sink, ...] = (recorder, *((screen,) if screen else ()))
        sinks += tuple(self.listeners(keeper))

        def emit(event: Event) -> None:
            for sink in sinks:
                sink.put(event)

        supervisor = Supervisor(job, keeper, emit, signals)
        with ExitStack() as started:
            for sink in sinks:
                sink.start()
                started.callback(sink.close)
            outcome = trio.run(supervisor.run)
            lost = lost_lock_warning()
            if lost is not None:
                emit(Noted(lost))
        return outcome, recorder

    def _view(self, phases: Sequence[Phase]) -> View:
        from rater.show.live.live import make_view
        from rater.show.live.progress import PhaseAhead
        from rater.show.screen.console import terminal  # a quiet run needs no screen

        plan, expected = self.resolved.plan, self.resolved.expected_s
        stagger_s = plan.stagger_ns * (plan.copies - 1) / 1e9
        ahead = [
            PhaseAhead(
                phase.benchmark,
                expected[phase.benchmark] + stagger_s if phase.benchmark in expected else None,
            )
            for phase in phases
        ]
        # Progress is never part of what a pipe or --json reads.
        return make_view(terminal(stderr=True), self._run, ahead)

    def _rescue(self, number: int, recorder: Recorder) -> None:
        lines = [
            json.dumps(
                {"run": self._run.head.uuid, "event": type(event).__name__, **to_dict(event)}
            )
            for event in recorder.unsaved
        ]
        print_error(f"run {number}: {recorder.problem}")
        lost = f"{len(lines)} records are not in the database"
        data = "".join(f"{line}\n" for line in lines).encode()
        for folder in (Path(), Path(tempfile.gettempdir()), user_folder("DATA")):
            if folder is None:
                continue
            rescue = folder / f"rater-{self.attempt.mark}.jsonl"
            try:
                replace_file(rescue, data, mode=0o600)
            except OSError:
                continue
            print_error(f"{lost}; they are in {rescue.resolve()}, a JSON object a line")
            return
        print_error("\n".join([f"{lost}; here they are, a JSON object a line:", *lines]))


def _idle_watch(resolved: RunPlan) -> IdleWatch | None:
    if resolved.request.until_idle_s is None:
        return None
    cpus = {cpu for placement in resolved.placements for cpu in placement.cpus or ()}
    every = {pu.os for pu in resolved.topology.pus}
    return IdleWatch(cpus or every, max_s=resolved.request.until_idle_s)
