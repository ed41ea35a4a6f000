"""One run from the lock to the last line on the screen, and where its events go."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import trio
from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.results.placement import RunProof
from rater.plan.options import parse_cadence
from rater.plan.request import copy_numbers_of
from rater.plan.schedule import Phase
from rater.record.events import CopyEnded, Event, Noted, RunEnded
from rater.record.run import RunStatus
from rater.record.stored import StoredRun, is_good
from rater.run.host.admission import lost_lock_warning
from rater.run.host.foreign_load import ForeignLoadSampler
from rater.run.host.idle import IdleWatch
from rater.run.host.thread_binding import living_on
from rater.run.launcher.copies import CopySpec
from rater.run.launcher.guard import Guard, guard
from rater.run.launcher.start_errors import find_process_lack
from rater.run.observe.perf import CounterPlan
from rater.run.programs.compile import cache_root
from rater.run.programs.tuning import CopyTuning
from rater.run.supervise.job import Job, PageSetup
from rater.run.supervise.supervisor import Outcome, Supervisor
from rater.run.workplace.printed import shown_output, stderr_ends
from rater.run.workplace.run_dirs import Program, RunFolders
from rater.store.connection import StoreDamagedError, StoreError
from rater.store.store import Store
from rater.system.files import Trusted, replace_file
from rater.system.paths import sysroot, user_folder
from rater.system.process import DeferredSignals, hold_stop_signals, print_error
from rater.text.values import parse_percent, to_dict
from rater.wings import Hook
from rater.workflow.counters import idle_power_of, ready_counters
from rater.workflow.doctor import RunSettings
from rater.workflow.results.kept import store_disturbance, store_placement_verdicts, store_score
from rater.workflow.run.head import ActiveRun, RunLauncher, start_of
from rater.workflow.run.kept_run import KeptRun
from rater.workflow.run.narrow import NarrowWatch
from rater.workflow.run.prepare import (
    HostLoad,
    PreparedRun,
    database_warnings,
    make_ready,
    remove_if_empty,
)
from rater.workflow.run.refusals import refuse_run
from rater.workflow.run.resolve import RunPlan, most_bytes
from rater.workflow.run.sinks import Recorder, Screen, Sink
from rater.workflow.run.workload import unreached_warnings

if TYPE_CHECKING:
    from rater.show.live.lines import View


# -- Page sizes of copies, which a wing makes ready ------------------------------------------------


class PreparedPages(Struct, frozen=True, kw_only=True):
    """Everything that copies need for their page sizes."""

    setup: PageSetup  # where reports of pages come while copies run
    programs: dict[str, Program]  # by benchmark, with the layout in their environment
    tuning: CopyTuning  # with the library that is preloaded
    warnings: tuple[str, ...]  # why copies cannot have all of the layout
    settings: tuple[tuple[str, str], ...]  # names and values that are stored with the run


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
        """Make the page sizes of copies ready, if some are chosen."""


_PAGE_SETUP = Hook[PagePreparation]("page setup")


# -- What a failed program wrote to its standard error ---------------------------------------------


def stderr_excerpt(run: StoredRun) -> str:
    """Return the first and last lines of a failed copy's standard error, "" where it has none."""
    failed = [copy for copy in run.copies if copy.run_dir and not is_good(copy)]
    lines = stderr_ends(failed[0].run_dir or "") if failed else []
    excerpt = ["its standard error:", *(f"  {line}" for line in lines)] if lines else []
    if failed and failed[0].cpu is not None and any("libnuma" in line for line in lines):
        excerpt.append(
            "rater binds copies, and numactl refuses CPUs and nodes beyond that: `--bind none "
            "--mem none` leaves both to the command"
        )
    return "\n".join(excerpt)


# -- One run from the lock to the last line on the screen ------------------------------------------

# New objects between two collections of garbage while copies run; Python's own default is 700. Each
# collection delays the next time stamp.
_COLLECT_AFTER_OBJECTS = 50_000


class MadeRun(Struct, frozen=True, kw_only=True):
    """A run that was made."""

    number: int
    status: int  # as a program's: 128 and the number of the signal that ended it
    reason: str | None  # why it failed
    run: StoredRun | None  # None: the database lacks some of its events
    proved: RunProof | None = None
    others_cost: float | None = None  # share of the score that work of others on the CPUs cost


class ReadyRun(Struct, frozen=True, kw_only=True):
    """All that a run needs before it is entered in the store."""

    prepared: PreparedRun
    start: StoredRun  # its first row
    pages: PreparedPages | None  # None: page sizes are not chosen
    counters: CounterPlan | None  # None: nothing is counted

    @property
    def tuning(self) -> CopyTuning:
        """What copies find of memory: `--alloc`, `--hugepages` and `--pages` together."""
        tuning = self.prepared.resolved.tuning
        return tuning if self.pages is None else tuning.merged(self.pages.tuning)


@dataclass(kw_only=True)
class Session:
    """One run on a machine that is held, from its set-up to its last row."""

    asked: Trusted[RunPlan]
    store: Store
    attempt: RunLauncher
    settings: RunSettings
    say: Callable[[str], None]  # to the user, on standard error
    left: tuple[str, ...] = ()  # warnings of settings that a dead rater left changed
    load: ForeignLoadSampler | None = None  # begun as the run before ended
    screen: bool = False
    # Other listeners to the run's events, made once its guard can start processes for them.
    listeners: Callable[[Guard], Sequence[Sink]] = lambda _: ()

    @property
    def resolved(self) -> RunPlan:
        """The plan of the run."""
        return self.asked.value

    def run(self) -> MadeRun:
        """Prepare the run and make it. Raises `RaterError` where it does not begin."""
        refuse_run(self.resolved)
        surroundings = HostLoad(self.resolved, self.load)
        for warning in self.resolved.warnings:
            self.say(f"warning: {warning}")
        with ExitStack() as stack:
            # From here on nothing that is started, compilers included, outlives this process.
            keeper = stack.enter_context(guard(self.attempt.mark, self.resolved.plan.copies))
            ready = self._prepare(stack, surroundings)
            # The run has a row from here on: a signal ends the run and does not break it off.
            with hold_stop_signals() as signals:
                made_run = self._make(keeper, ready, signals)
        return made_run if signals.first is None else replace(made_run, status=128 + signals.first)

    def _prepare(self, stack: ExitStack, surroundings: HostLoad) -> ReadyRun:
        """Build and make what copies need; `stack` removes what is of this run alone.

        Warnings are printed, and stored with the head of the run.
        """
        resolved, cache = self.resolved, cache_root()
        work = cache / "work" / self.attempt.folder
        if work.parent != cache / "work":
            stack.callback(remove_if_empty, work.parent)
        prepared = make_ready(resolved, work, stack.callback, self.say)
        unreached = unreached_warnings(
            resolved.request,
            resolved.tuning,
            prepared.files,
            needed_bytes=most_bytes(resolved) * resolved.plan.copies,
        )
        start = start_of(self.attempt.uuid, prepared)
        stack.callback(shutil.rmtree, prepared.work / "pages", ignore_errors=True)
        pages = self._prepare_pages(prepared, start, cache)
        if pages is not None:
            prepared = replace(prepared, programs=pages.programs)
            settings = dict(start.settings) | dict(pages.settings)
            start = replace(start, settings=tuple(settings.items()))
        idle_power, no_idle_power = idle_power_of(resolved.request, self.say)
        start = replace(start, settings=(*start.settings, *idle_power))
        of_database = database_warnings(self.store.path, resolved.request)
        counters, uncounted = ready_counters(resolved.counters, resolved.plan.discard)
        warnings = (
            *self.left,
            *unreached,
            *(pages.warnings if pages else ()),
            *of_database,
            *uncounted,
            *no_idle_power,
            *surroundings.warnings(),
        )
        for warning in warnings:
            self.say(f"warning: {warning}")
        return ReadyRun(
            prepared=prepared,
            start=replace(start, warnings=start.warnings + warnings),
            pages=pages,
            counters=counters,
        )

    def _prepare_pages(
        self, prepared: PreparedRun, start: StoredRun, cache: Path
    ) -> PreparedPages | None:
        if not self.resolved.request.has_pages:
            return None
        return _PAGE_SETUP().pages_of_run(
            prepared, start, self.store, cache, say_text=self.say, fill=self.settings.set
        )

    def _make(self, keeper: Guard, ready: ReadyRun, signals: DeferredSignals) -> MadeRun:
        """Enter the run in the store, make it, and store its score and verdicts."""
        store = self.store
        entered = self.attempt.enter(store, self.resolved.plan, ready.start, self.say)
        with closing(KeptRun(store, entered.number, ready.start)) as kept:
            try:
                with living_on(self.resolved.reserved, [keeper.launcher.pid]):
                    outcome, recorder = self._supervise(keeper, entered, ready, signals, kept)
            except Exception as error:
                lack = find_process_lack(error)
                with suppress(StoreError):
                    reason = str(lack or error) or type(error).__name__
                    kept.append(RunEnded(RunStatus.FAILED, reason))
                if lack is not None:
                    raise lack from error
                raise
            if recorder.unsaved:
                self._rescue(kept, ready.start.head.uuid, recorder)
                return MadeRun(number=entered.number, status=1, reason=recorder.problem, run=None)
            run = kept.load()
            proved = store_placement_verdicts(kept.store, run)
            store_score(kept.store, run)
            cost = store_disturbance(kept.store, run)
            if kept.damage is not None:
                raise StoreDamagedError(kept.damage)
        status = 128 + outcome.signal if outcome.signal is not None else 1
        return MadeRun(
            number=entered.number,
            status=0 if outcome.status is RunStatus.COMPLETE else status,
            reason=outcome.reason,
            run=run,
            proved=proved,
            others_cost=cost,
        )

    def _supervise(
        self,
        keeper: Guard,
        entered: ActiveRun,
        ready: ReadyRun,
        signals: DeferredSignals,
        kept: KeptRun,
    ) -> tuple[Outcome, Recorder]:
        """Let copies run and events flow; return how it ended, and the recorder of the events."""
        store = self.store
        screen = None
        if self.screen:
            screen = Screen(_view_of(self.resolved, ready.start, entered.phases), entered.phases)
        job = self._job(entered, ready, screen)
        # What was imported and planned stays to the end: nothing for the collector to walk through
        # while copies are timed.
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER_OBJECTS)

        def fail(reason: str) -> None:
            supervisor.fail(reason)

        def append(*events: Event) -> None:
            lost_before = store.lost
            kept.append(*events)
            if screen and store.lost != lost_before:
                screen.put(Noted(f"{store.lost}"))

        recorder = Recorder(append, fail)
        if (until := job.until) is not None:
            for bracket in kept.load().brackets:  # of a run that is taken up again
                until.put(bracket)
        sinks: tuple[Sink, ...] = (recorder, *((screen,) if screen else ()))
        sinks += tuple(self.listeners(keeper))

        def emit(event: Event) -> None:
            if until is not None:
                until.put(event)
            for sink in sinks:
                sink.put(event)

        supervisor = Supervisor(job, keeper, emit, signals)
        with ExitStack() as started:
            for sink in sinks:
                sink.start()
                started.callback(sink.close)
            outcome = trio.run(supervisor.run)
            if until is not None:
                emit(Noted(until.remark()))
            lost_lock = lost_lock_warning()
            if lost_lock is not None:
                emit(Noted(lost_lock))
        return outcome, recorder

    def _job(self, entered: ActiveRun, ready: ReadyRun, screen: Screen | None) -> Job:
        """Return what the supervisor is to do."""
        resolved, request = self.resolved, self.resolved.request
        prepared, pages = ready.prepared, ready.pages
        folders = RunFolders(
            work=prepared.work,
            uuid=self.attempt.mark,
            programs=prepared.programs,
            placements=resolved.placements,
            added=request.environment,
            keep=request.keep,
            tuning=ready.tuning,
            files=prepared.files,
            copy_numbers=copy_numbers_of(request),
        )
        return Job(
            plan=replace(resolved.plan, phases=entered.phases),
            placements=resolved.placements,
            workplace=folders,
            work=prepared.work,
            timeout_s=request.timeout_s,
            grace_s=request.grace_s,
            prepare=request.prepare,
            conclude=request.conclude,
            until=_narrow_watch(resolved),
            cooldown_s=request.cooldown_s,
            until_idle=_idle_watch(resolved),
            prepare_environment=dict(os.environ) | dict(request.environment),
            output_limit_bytes=request.output_limit_bytes,
            show_output=_output_printer(resolved),
            check_limit_s=request.check_limit_s,
            expected_s=resolved.expected_s,
            elapsed_before_ns=entered.elapsed_before_ns,
            runs_before=entered.runs_before,
            failed_before=entered.failed_before,
            suspend=screen.pause if screen else lambda: None,
            resume=screen.resume if screen else lambda: None,
            proof=parse_cadence(request.proof),
            energy=None if request.energy == "off" else sysroot(),
            series=None if request.series == "off" else sysroot(),
            own_cpus=bool(resolved.reserved),
            counters=ready.counters,
            pages=pages.setup if pages else None,
        )

    def _rescue(self, kept: KeptRun, uuid: str, recorder: Recorder) -> None:
        """Write events that no database has into a file; raises nothing."""
        in_damaged = kept.events() if kept.damage is not None else ()
        lines = [
            json.dumps({"run": uuid, "event": type(event).__name__, **to_dict(event)})
            for event in (*in_damaged, *recorder.unsaved)
        ]
        print_error(f"run {kept.number}: {recorder.problem}")
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


def _view_of(resolved: RunPlan, start: StoredRun, phases: Sequence[Phase]) -> View:
    """Return what shows the progress of a run."""
    from rater.show.live.progress import PhaseAhead
    from rater.show.live.view import make_view
    from rater.show.screen.console import screen  # a quiet run needs no screen

    plan, expected = resolved.plan, resolved.expected_s
    stagger_s = plan.stagger_ns * (plan.copies - 1) / 1e9
    ahead = [
        PhaseAhead(
            phase.benchmark,
            expected[phase.benchmark] + stagger_s if phase.benchmark in expected else None,
        )
        for phase in phases
    ]
    # Progress is never part of what a pipe or --json reads. What copies print would tear a live
    # view apart.
    is_plain = resolved.request.show_output
    return make_view(screen(stderr=True), start, ahead, is_plain=is_plain)


def _narrow_watch(resolved: RunPlan) -> NarrowWatch | None:
    share = parse_percent(resolved.request.until or "")
    return NarrowWatch(share, resolved.plan.benchmarks) if share else None


def _output_printer(resolved: RunPlan) -> Callable[[CopyEnded, CopySpec], None]:
    """Return what writes the output of copies on standard error, with `--show-output`."""
    if not resolved.request.show_output:
        return lambda event, spec: None
    are_several = resolved.plan.copies > 1

    def show(event: CopyEnded, spec: CopySpec) -> None:
        prefix = f"copy {event.copy}: " if are_several else ""
        text = shown_output(prefix, [spec.stdout, spec.stderr])
        with suppress(OSError):  # nobody reads it any more; the run goes on
            sys.stderr.write(text)
            sys.stderr.flush()

    return show


def _idle_watch(resolved: RunPlan) -> IdleWatch | None:
    if resolved.request.until_idle_s is None:
        return None
    # Copies that are not bound may use every CPU.
    cpus = {cpu for placement in resolved.placements for cpu in placement.cpus or ()}
    all_cpus = {pu.os for pu in resolved.topology.pus}
    return IdleWatch(cpus or all_cpus, max_s=resolved.request.until_idle_s)
