"""One run from the lock to the last line on the screen."""

from __future__ import annotations

import argparse
import gc
import getpass
import json
import os
import sys
import tempfile
import uuid as uuids
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rater.commands.common import print_json
from rater.commands.resolve import Resolved
from rater.errors import InputError
from rater.record import Event, Run, RunStatus

if TYPE_CHECKING:
    from rater.commands.ready import Ready
    from rater.commands.sinks import Recorder
    from rater.run.guard import Guard
    from rater.run.supervise import Outcome
    from rater.show.live import View
    from rater.store.store import Store

_COLLECT_AFTER_OBJECTS = 50_000


@dataclass
class Session:
    """One run from the lock to the last line on the screen."""

    args: argparse.Namespace
    resolved: Resolved
    cache: Path
    _run: Run = field(init=False)

    def run(self) -> int:
        """Take the lock, prepare, run, show."""
        from rater.commands.head import now_utc
        from rater.run.lock import default_lock_path, machine_lock

        resolved, request = self.resolved, self.resolved.request
        if resolved.refusals:
            raise InputError("\n".join(resolved.refusals))
        identity = str(uuids.uuid4())
        holder = (
            f"rater run {identity[:8]}, process {os.getpid()}, user {_user()}, since {now_utc()}"
        )
        with machine_lock(default_lock_path(), holder, share=request.share), ExitStack() as stack:
            return self._locked(identity, stack)

    def _locked(self, identity: str, stack: ExitStack) -> int:
        from rater.commands.head import head_of, machine_pus
        from rater.commands.ready import make_ready
        from rater.run.facts import host_facts, settings_snapshot
        from rater.run.guard import MARKER, guard
        from rater.store.database import default_path
        from rater.store.store import open_store

        resolved = self.resolved
        for warning in resolved.warnings:
            self._say(f"warning: {warning}")
        store = stack.enter_context(open_store(default_path(self.args.db)))
        # From here on nothing that is started, compilers included, outlives this process.
        os.environ[MARKER] = identity
        stack.callback(os.environ.pop, MARKER, None)
        keeper = stack.enter_context(guard(identity, resolved.plan.copies))
        work = self.cache / "work" / identity
        ready = make_ready(resolved, self.cache, work, stack.callback)
        self._run = head_of(identity, ready)
        number = store.begin(
            self._run,
            host_facts(resolved.topology),
            (*settings_snapshot(), ("rater.supervisor_priority", _priority())),
            machine_pus(resolved),
        )
        outcome, recorder = self._supervise(keeper, number, store, ready)
        return self._finish(store, number, outcome, recorder)

    def _say(self, text: str) -> None:
        if not self.args.quiet:
            print(f"rater: {text}", file=sys.stderr)

    def _supervise(
        self, keeper: Guard, number: int, store: Store, ready: Ready
    ) -> tuple[Outcome, Recorder]:
        """Run everything; the database and the screen get events on threads of their own."""
        import trio

        from rater.commands.sinks import Recorder, Screen
        from rater.run.job import Job
        from rater.run.supervise import Supervisor
        from rater.run.workplace import RunFolders

        resolved, request = self.resolved, self.resolved.request
        folders = RunFolders(
            ready.work,
            self._run.uuid,
            ready.programs,
            resolved.placements,
            request.environment,
            keep=request.keep,
        )
        screen = Screen(self._view()) if self._shows_progress() else None
        job = Job(
            plan=resolved.plan,
            placements=resolved.placements,
            workplace=folders,
            work=ready.work,
            timeout_s=request.timeout_s,
            grace_s=request.grace_s,
            prepare=request.prepare,
            prepare_environment=dict(os.environ) | dict(request.environment),
            output_limit_bytes=request.output_limit_bytes,
            expected_s=resolved.expected_s,
            suspend=screen.pause if screen else lambda: None,
            resume=screen.resume if screen else lambda: None,
        )
        # What was imported and planned stays to the end: nothing for the collector to walk through
        # while copies are timed.
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER_OBJECTS)

        def fail(reason: str) -> None:
            supervisor.fail(reason)

        recorder = Recorder(partial(store.append, number), fail)
        sinks = (recorder, screen) if screen else (recorder,)

        def emit(event: Event) -> None:
            for sink in sinks:
                sink.put(event)

        supervisor = Supervisor(job, keeper, emit)
        for sink in sinks:
            sink.start()
        try:
            outcome = trio.run(supervisor.run)
        finally:
            for sink in reversed(sinks):
                sink.close()
        return outcome, recorder

    def _shows_progress(self) -> bool:
        return not self.args.quiet

    def _view(self) -> View:
        from rich.console import Console

        from rater.show.live import make_view
        from rater.show.progress import PhaseAhead

        plan, expected = self.resolved.plan, self.resolved.expected_s
        stagger_s = plan.stagger_ns * (plan.copies - 1) / 1e9
        ahead = [
            PhaseAhead(
                phase.benchmark,
                expected[phase.benchmark] + stagger_s if phase.benchmark in expected else None,
            )
            for phase in plan.phases
        ]
        # Progress is never part of what a pipe or --json reads.
        return make_view(Console(stderr=True), self._run, ahead)

    def _finish(self, store: Store, number: int, outcome: Outcome, recorder: Recorder) -> int:
        """Show the result and return the exit status."""
        from rater.analysis.document import to_json
        from rater.analysis.score import summarise
        from rater.run.supervise import EXIT_BY_SIGNAL

        if recorder.unsaved:
            self._rescue(number, recorder)
            return 1
        if self.args.json:
            print_json(to_json(summarise(store.load(number))))
        elif not self.args.quiet:
            from rich.console import Console

            from rater.show.terminal import print_summary

            print_summary(summarise(store.load(number)), Console())
        if outcome.signal is not None:
            return EXIT_BY_SIGNAL[outcome.signal]
        if outcome.status is RunStatus.COMPLETE:
            return 0
        if self.args.quiet or (outcome.reason and not outcome.reason.endswith("failed")):
            print(f"rater: run {number} failed: {outcome.reason}", file=sys.stderr)
        return 1

    def _rescue(self, number: int, recorder: Recorder) -> None:
        """The database could not take everything: what it lacks goes to a file, or to stderr."""
        from dataclasses import asdict

        lines = [
            json.dumps({"run": self._run.uuid, "event": type(event).__name__, **asdict(event)})
            for event in recorder.unsaved
        ]
        print(f"rater: run {number}: {recorder.problem}", file=sys.stderr)
        said = f"rater: {len(lines)} records are not in the database"
        for folder in (Path(), Path(tempfile.gettempdir()), Path.home()):
            rescue = folder / f"rater-{self._run.uuid}.jsonl"
            try:
                rescue.write_text("\n".join(lines) + "\n")
            except OSError:
                with suppress(OSError):
                    rescue.unlink()
                continue
            print(f"{said}; they are in {rescue.resolve()}, a JSON object a line", file=sys.stderr)
            return
        print(f"{said}; here they are, a JSON object a line:", *lines, sep="\n", file=sys.stderr)


def _priority() -> str:
    from rater.run.priority import urgent

    with urgent() as granted:
        return "real-time" if granted else "normal"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
