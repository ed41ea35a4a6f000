"""One run from the lock to the last line on the screen."""

from __future__ import annotations

import argparse
import gc
import getpass
import json
import os
import shlex
import sys
import tempfile
import uuid as uuids
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rater import __version__
from rater.commands.common import print_json
from rater.commands.resolve import Resolved, Workload, needs_of
from rater.errors import InputError
from rater.record import BenchmarkUsed, Event, MachinePU, PlacedCopy, Run, RunStatus, storable

if TYPE_CHECKING:
    from rater.commands.sinks import Recorder
    from rater.run.build import Built
    from rater.run.guard import Guard
    from rater.run.prepare import ReadyInput
    from rater.run.supervise import Outcome
    from rater.run.workplace import Program
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
        from rater.run.lock import default_lock_path, machine_lock

        resolved, request = self.resolved, self.resolved.request
        if resolved.refusals:
            raise InputError("\n".join(resolved.refusals))
        identity = str(uuids.uuid4())
        holder = f"rater run {identity[:8]}, process {os.getpid()}, user {_user()}, since {_now()}"
        with machine_lock(default_lock_path(), holder, share=request.share), ExitStack() as stack:
            return self._locked(identity, stack)

    def _locked(self, identity: str, stack: ExitStack) -> int:
        from rater.run.build import build
        from rater.run.facts import host_facts, settings_snapshot
        from rater.run.guard import MARKER, guard
        from rater.run.prepare import links_work, ready_inputs
        from rater.store.database import default_path
        from rater.store.store import open_store

        resolved, request = self.resolved, self.resolved.request
        for warning in resolved.warnings:
            self._say(f"warning: {warning}")
        store = stack.enter_context(open_store(default_path(self.args.db)))
        # From here on nothing that is started, compilers included, outlives this process.
        os.environ[MARKER] = identity
        stack.callback(os.environ.pop, MARKER, None)
        keeper = stack.enter_context(guard(identity, resolved.plan.copies))
        built = [build(w.benchmark, request.tune, self.cache) for w in resolved.workloads]
        inputs = [ready_inputs(w.benchmark, w.size, self.cache) for w in resolved.workloads]
        work = self.cache / "work" / identity
        try:
            work.mkdir(parents=True)
        except OSError as error:
            raise InputError(
                f"{work}: cannot be made ({error.strerror}); set RATER_CACHE to a folder of yours"
            ) from error
        stack.callback(_remove_if_empty, work)
        linked = all(links_work(some, work) for some in inputs)
        needs = needs_of(resolved, work, () if linked else inputs)
        if needs.problems and not request.force:
            raise InputError("\n".join(needs.problems))
        programs = {
            w.benchmark.name: self._program(w, b, i)
            for w, b, i in zip(resolved.workloads, built, inputs, strict=True)
        }
        self._run = self._head(identity, built)
        number = store.begin(
            self._run,
            host_facts(resolved.topology),
            (*settings_snapshot(), ("rater.supervisor_priority", _priority())),
            _machine_pus(resolved),
        )
        outcome, recorder = self._supervise(keeper, number, store, work, programs)
        return self._finish(store, number, outcome, recorder)

    def _program(self, workload: Workload, built: Built, inputs: tuple[ReadyInput, ...]) -> Program:
        from rater.run.build import find_command
        from rater.run.workplace import Program

        request = self.resolved.request
        wrap = request.wrap
        if wrap:
            wrap = (str(find_command(wrap[0], "--wrap")), *wrap[1:])
        elsewhere = bool(request.command) and not request.run_dirs
        return Program(
            name=workload.benchmark.name,
            argv=(*wrap, *built.argv(workload.size)),
            inputs=inputs,
            expected=workload.size.expected,
            directory=str(Path.cwd()) if elsewhere else None,
        )

    def _head(self, identity: str, built: Sequence[Built]) -> Run:
        resolved, request, plan = self.resolved, self.resolved.request, self.resolved.plan
        suite = resolved.suite
        return Run(
            uuid=identity,
            started_at=_now(),
            mode=plan.mode,
            order=str(plan.order),
            copies=plan.copies,
            iterations=plan.iterations,
            discard=plan.discard,
            stagger_ms=plan.stagger_ns / 1e6,
            increment=plan.increment,
            suite=suite,
            size=request.size if suite else None,
            tune=request.tune if suite else None,
            layout=storable(request.layout),
            memory=str(resolved.memory),
            timeout_s=request.timeout_s,
            wrap=storable(shlex.join(request.wrap)) or None,
            command_line=storable(shlex.join(["rater", *sys.argv[1:]])),
            rater_version=__version__,
            tags=_storable_pairs(request.tags),
            environment=_storable_pairs(request.environment),
            benchmarks=tuple(
                BenchmarkUsed(
                    name=workload.benchmark.name,
                    category=workload.benchmark.category,
                    command=storable(shlex.join(program.argv(workload.size))),
                    reference_s=workload.size.reference_s,
                    binary_sha256=program.sha256,
                    compiler=program.compiler,
                    flags=program.flags,
                )
                for workload, program in zip(resolved.workloads, built, strict=True)
            ),
            placements=tuple(
                PlacedCopy(
                    copy=p.copy,
                    cpus=p.cpus,
                    cpu=p.cpu,
                    core=p.core,
                    llc=p.llc,
                    node=p.node,
                    package=p.package,
                    memory_policy=str(p.policy),
                    memory_nodes=p.memory_nodes,
                )
                for p in resolved.placements
            ),
            warnings=resolved.warnings,
        )

    def _say(self, text: str) -> None:
        if not self.args.quiet:
            print(f"rater: {text}", file=sys.stderr)

    def _supervise(
        self, keeper: Guard, number: int, store: Store, work: Path, programs: dict[str, Program]
    ) -> tuple[Outcome, Recorder]:
        """Run everything; the database and the screen get events on threads of their own."""
        import trio

        from rater.commands.sinks import Recorder, Screen
        from rater.run.job import Job
        from rater.run.supervise import Supervisor
        from rater.run.workplace import RunFolders

        resolved, request = self.resolved, self.resolved.request
        folders = RunFolders(
            work,
            self._run.uuid,
            programs,
            resolved.placements,
            request.environment,
            keep=request.keep,
        )
        screen = Screen(self._view()) if self._shows_progress() else None
        job = Job(
            plan=resolved.plan,
            placements=resolved.placements,
            workplace=folders,
            work=work,
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


def _storable_pairs(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((storable(name), storable(value)) for name, value in pairs)


def _machine_pus(resolved: Resolved) -> list[MachinePU]:
    return [
        MachinePU(cpu=pu.os, core=pu.core, llc=pu.llc, node=pu.node, package=pu.package)
        for pu in resolved.topology.pus
    ]


def _priority() -> str:
    from rater.run.priority import urgent

    with urgent() as granted:
        return "real-time" if granted else "normal"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _remove_if_empty(work: Path) -> None:
    with suppress(OSError):  # what failed copies left is kept
        work.rmdir()
