"""One run from the lock to the last line on the screen."""

from __future__ import annotations

import argparse
import gc
import getpass
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from rater.analysis.placement.proof import RunProof
from rater.errors import InputError
from rater.plan.pages.layout import Category
from rater.plan.request.sampling import parse_cadence
from rater.plan.schedule.phases import Phase
from rater.record.events import Event, Noted, RunEnded
from rater.record.run import BenchmarkUsed, Run
from rater.record.status import RunStatus
from rater.record.stored import StoredRun
from rater.run.copies.guard import Guard, guard
from rater.run.copies.limits import refuse_copies
from rater.run.copies.reserve import living_on
from rater.run.copies.watch import MARKER
from rater.run.counters.counting import CounterSet
from rater.run.host.idle import IdleWatch
from rater.run.host.lock import default_lock_path, lost_lock, machine_lock
from rater.run.supervise.job import Job
from rater.run.supervise.supervisor import Outcome, Supervisor
from rater.run.workplace.run_dirs import RunFolders
from rater.settings.paths import default_journal_path, sysroot
from rater.settings.tuner import Tuner
from rater.stop_signals import HeldSignals, held
from rater.store.connection import StoreError, default_path
from rater.store.store import Store, open_store
from rater.streams import say
from rater.trusted_files import replace_file
from rater.workflow.counters import ready_counters
from rater.workflow.doctor.mend import tuned_settings_of
from rater.workflow.own_settings import RunSettings
from rater.workflow.page_sizes.layout import refuse_layout
from rater.workflow.page_sizes.ready import PageCopies, PagesReady, ready_pages
from rater.workflow.restore_settings import put_back
from rater.workflow.results.placements import judge_placements
from rater.workflow.results.scores import store_score
from rater.workflow.run.attempt import Attempt, Entered, Start
from rater.workflow.run.head import now_utc, start_of
from rater.workflow.run.last_words import last_words
from rater.workflow.run.memory_tuning import refuse_pages, untouched
from rater.workflow.run.preflight import Surroundings, secrets_for_others
from rater.workflow.run.prepare import Ready, make_ready, remove_if_empty
from rater.workflow.run.resolve import Resolved, most_bytes
from rater.workflow.run.sinks import Recorder, Screen, Sink
from rater.workflow.run.speccmds_out import write_outs

if TYPE_CHECKING:
    from rater.show.live.live import View

_COLLECT_AFTER_OBJECTS = 50_000


@dataclass
class Session:
    """One run from the lock to the last line on the screen."""

    args: argparse.Namespace
    resolved: Resolved
    cache: Path
    attempt: Attempt = field(default_factory=Attempt)
    # What else hears the run's events; made when its guard is there, for processes of its own.
    listeners: Callable[[Guard], Sequence[Sink]] = lambda _: ()
    # One of many: the caller holds the machine's lock and its settings for all of them, shows what
    # they came to and hears what else is to be said.
    one_of_many: Callable[[str], None] | None = None
    settings: RunSettings | None = None
    _run: Run = field(init=False)
    _counters: CounterSet | None = None

    def run(self) -> int:
        """Take the lock, prepare, run, show."""
        resolved, request = self.resolved, self.resolved.request
        if resolved.refusals:
            raise InputError("\n".join(resolved.refusals))
        holder = (
            f"rater run {self.attempt.uuid[:8]}, process {os.getpid()}, user {_user()}, "
            f"since {now_utc()}"
        )
        refuse_copies(resolved.plan, resolved.counted_events)
        with ExitStack() as stack:
            if self.one_of_many is None:
                lock = machine_lock(
                    default_lock_path(),
                    holder,
                    share=request.share,
                    wait_s=request.wait_s or 0.0,
                    report=self._say,
                )
                stack.enter_context(lock)
            left = put_back()  # settings of a dead sweep that could not be
            settings = self.settings or self._own_settings(stack)
            refuse_pages(request)
            refuse_layout(request)
            return self._locked(stack, left, Surroundings(resolved), settings)

    def _own_settings(self, stack: ExitStack) -> RunSettings:
        """Set what this run wants of the machine, until the stack is left."""
        what = f"rater run {self.attempt.uuid[:8]}"
        tuner = stack.enter_context(Tuner(sysroot(), default_journal_path(), what))
        settings = RunSettings(tuner, self._say)
        settings.set(tuned_settings_of(self.resolved.request))
        return settings

    def _locked(
        self,
        stack: ExitStack,
        left: tuple[str, ...],
        surroundings: Surroundings,
        settings: RunSettings,
    ) -> int:
        resolved, attempt = self.resolved, self.attempt
        for warning in resolved.warnings:
            self._say(f"warning: {warning}")
        store = stack.enter_context(open_store(default_path(self.args.db)))
        # From here on nothing that is started, compilers included, outlives this process.
        os.environ[MARKER] = attempt.mark
        stack.callback(os.environ.pop, MARKER, None)
        keeper = stack.enter_context(guard(attempt.mark, resolved.plan.copies))
        work = self.cache / "work" / attempt.folder
        if work.parent != self.cache / "work":
            stack.callback(remove_if_empty, work.parent)
        ready = make_ready(resolved, self.cache, work, stack.callback, self._say)
        needed_bytes = most_bytes(resolved) * resolved.plan.copies
        unreached = untouched(resolved.request, resolved.tuning, ready.files, needed_bytes)
        start = start_of(attempt.uuid, ready)
        stack.callback(shutil.rmtree, ready.work / "pages", ignore_errors=True)
        pages = _pages_of(ready, start, store, self.cache, say_text=self._say, fill=settings.set)
        if pages is not None:
            ready = replace(ready, programs=pages.programs)
            start = start.with_settings(pages.settings)
        opened = secrets_for_others(store.path, resolved.request)
        self._counters, uncounted = ready_counters(resolved.counters, resolved.plan.discard)
        unpaged = pages.warnings if pages else ()
        warnings = (*left, *unreached, *unpaged, *opened, *uncounted, *surroundings.warnings())
        for warning in warnings:
            self._say(f"warning: {warning}")
        self._run = replace(start.run, warnings=start.run.warnings + warnings)
        with held() as signals:  # from the run's row on nothing is broken off: it is ended
            entered = attempt.enter(store, resolved.plan, replace(start, run=self._run), self._say)
            try:
                with living_on(resolved.reserved, [keeper.watch.pid]):
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
                return 1
            run = store.load(entered.number)
            proved = judge_placements(store, run)
            store_score(store, run)
        status = self._finish(store, run, proved, outcome)
        return status if signals.first is None else 128 + signals.first

    def _say(self, text: str) -> None:
        if self.one_of_many is not None:
            self.one_of_many(text)
        elif not self.args.quiet:
            say(text)

    def _supervise(
        self,
        keeper: Guard,
        entered: Entered,
        store: Store,
        ready: Ready,
        signals: HeldSignals,
        *,
        pages: PagesReady | None,
    ) -> tuple[Outcome, Recorder]:
        """Run everything; the database and the screen get events on threads of their own."""
        resolved, request = self.resolved, self.resolved.request
        folders = RunFolders(
            ready.work,
            self.attempt.mark,
            ready.programs,
            resolved.placements,
            request.environment,
            keep=request.keep,
            tuning=pages.tuning if pages else resolved.tuning,
        )
        phases = entered.phases
        screen = None if self.args.quiet else Screen(self._view(phases), phases)
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
            lost = lost_lock()
            if lost is not None:
                emit(Noted(lost))
        return outcome, recorder

    def _view(self, phases: Sequence[Phase]) -> View:
        from rater.show.console.terminal import terminal  # a quiet run needs no screen
        from rater.show.live.forecast import PhaseAhead
        from rater.show.live.live import make_view

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

    def _finish(self, store: Store, run: StoredRun, proved: RunProof, outcome: Outcome) -> int:
        """Show the result and return the exit status."""
        if self.resolved.request.speccmds_out and outcome.began_ns is not None:
            write_outs(self.resolved, run, outcome.began_ns, self._say)
        if self.one_of_many is None and (self.args.json or not self.args.quiet):
            from rater.workflow.results.show_run import print_result

            print_result(self.args, store, run, proved=proved)
        if self.one_of_many is None and (said := last_words(run)):
            say(said)
        if outcome.signal is not None:
            return 128 + outcome.signal
        if outcome.status is RunStatus.COMPLETE:
            return 0
        unshown = self.args.quiet or (outcome.reason and not outcome.reason.endswith("failed"))
        if unshown and self.one_of_many is None:
            say(f"run {run.head.run} failed: {outcome.reason}")
        return 1

    def _rescue(self, number: int, recorder: Recorder) -> None:
        """The database could not take everything: what it lacks goes to a file, or to stderr."""
        lines = [
            json.dumps({"run": self._run.uuid, "event": type(event).__name__, **asdict(event)})
            for event in recorder.unsaved
        ]
        say(f"run {number}: {recorder.problem}")
        lost = f"{len(lines)} records are not in the database"
        data = "".join(f"{line}\n" for line in lines).encode()
        for folder in (Path(), Path(tempfile.gettempdir()), Path.home()):
            rescue = folder / f"rater-{self.attempt.mark}.jsonl"
            try:
                replace_file(rescue, data, mode=0o600)
            except OSError:
                continue
            say(f"{lost}; they are in {rescue.resolve()}, a JSON object a line")
            return
        say("\n".join([f"{lost}; here they are, a JSON object a line:", *lines]))


def _pages_of(
    ready: Ready,
    start: Start,
    store: Store,
    cache: Path,
    *,
    say_text: Callable[[str], None],
    fill: Callable[[Mapping[str, str]], None],
) -> PagesReady | None:
    """Make the page sizes of copies ready; None where they are not chosen."""
    resolved = ready.resolved
    if resolved.request.pages is None:
        return None
    names = [workload.benchmark.name for workload in resolved.workloads]
    files = (tuple(Path(line.words[0]) for line in lines) for lines in ready.lines)
    copies = PageCopies(
        ready.programs,
        dict(zip(names, files, strict=True)),
        start.run.benchmarks,
        resolved.placements,
    )

    def known(used: BenchmarkUsed, split: bool) -> dict[Category, int]:
        found = store.page_extents(used, split=split)
        return {Category(name): extent for name, extent in found.items()}

    return ready_pages(
        *(resolved.request, copies),
        cache=cache,
        work=ready.work,
        known=known,
        say=say_text,
        fill=fill,
    )


def _idle_watch(resolved: Resolved) -> IdleWatch | None:
    if resolved.request.until_idle_s is None:
        return None
    cpus = {cpu for placement in resolved.placements for cpu in placement.cpus or ()}
    every = {pu.os for pu in resolved.topology.pus}
    return IdleWatch(cpus or every, max_s=resolved.request.until_idle_s)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
