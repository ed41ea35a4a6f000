"""The run directories of a run: made before a phase, judged and removed after it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rater.errors import RaterError
from rater.plan.cpuset import format_list
from rater.plan.place import Placement
from rater.plan.schedule import Phase, Step
from rater.plan.suite import Expected, Metric
from rater.record import Validity
from rater.run.binding import ThreadBinding
from rater.run.child import NO_LIMITS, Limits
from rater.run.guard import MARKER
from rater.run.job import Judged
from rater.run.judge_process import Checker, Finding, Paper, Rules
from rater.run.launch import CopySpec
from rater.run.prepare import (
    ReadyInput,
    RunDir,
    cannot_be_made,
    flush_file_system,
    make_run_dir,
    remove_run_dir,
    run_dir_name,
)
from rater.run.setup import SetupStopped, set_up_copy


@dataclass(frozen=True, slots=True)
class Program:
    """One benchmark, ready to be started."""

    name: str
    argv: tuple[str, ...]  # the wrap prefix included
    inputs: tuple[ReadyInput, ...]
    expected: tuple[Expected, ...]
    directory: str | None  # where all copies work; None: each in a run directory of its own
    metrics: tuple[Metric, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()  # of suite, benchmark and size
    threads: int = 1
    setup: tuple[str, ...] = ()  # command line, before each run of a copy
    setup_limits: Limits = NO_LIMITS  # of each run of it
    folders: tuple[str, ...] = ()  # of the run directory, into which its commands write


class RunFolders:
    """Makes, judges and clears the run directories below one folder of this run."""

    def __init__(
        self,
        work: Path,
        uuid: str,
        programs: Mapping[str, Program],
        placements: Sequence[Placement],
        added: Sequence[tuple[str, str]],
        *,
        keep: bool,
    ) -> None:
        self._work = work
        self._programs = programs
        self.keeps = keep
        self._notices: list[str] = []
        self._noticed: set[str] = set()
        self._placements = placements
        self._is_written = False  # a run directory that the disk may not have yet
        self._added = {name.encode(): os.fsencode(value) for name, value in added}
        self._added[MARKER.encode()] = uuid.encode()
        self._added[b"RATER_COPIES"] = b"%d" % len(placements)
        # Of copies that work where we are.
        self._added[b"RATER_RUN_DIR"] = os.fsencode(os.getcwd())
        self._environments: dict[object, list[dict[bytes, bytes]]] = {}

    def specs(
        self, phase: Phase, stop: Callable[[], bool] = lambda: False
    ) -> dict[tuple[int, int], CopySpec]:
        """Make a run directory for every step of every copy of the phase, and set it up.

        `stop` is asked while set-ups run; what is returned then can not be started.
        """
        made: dict[tuple[int, int], CopySpec] = {}
        setups = []
        for queue in phase.queues:
            # With a window queues have no end: what comes after the first run is made in its time.
            steps = queue.steps[:1] if phase.window is not None else queue.steps
            for position, step in enumerate(steps):
                try:
                    spec = self._spec(queue.copy, position, step)
                except RaterError:
                    for earlier in made.values():
                        self._remove(earlier)
                    raise
                made[queue.copy, position] = spec
                if self._programs[step.benchmark].setup:
                    setups.append((queue.copy, step, spec))
        if setups:
            self._set_up_all(setups, stop, list(made.values()))
        if (self._is_written or setups) and not stop():
            self._is_written = False
            trouble = flush_file_system(self._work)
            if trouble:
                self._notice(
                    f"run directories could not be flushed ({trouble}): writing them back to "
                    "disk may have disturbed copies"
                )
        return made

    def spec(
        self, copy: int, position: int, step: Step, stop: Callable[[], bool] = lambda: False
    ) -> CopySpec:
        """Make what a later run of a copy needs, of a phase with a window."""
        spec = self._spec(copy, position, step)
        if self._programs[step.benchmark].setup:
            try:
                self._set_up(copy, step, spec, stop)
            except SetupStopped:
                self._remove(spec)
            except KeyboardInterrupt:  # of a trial, in the main thread
                self._remove(spec)
                raise
        return spec

    def expects(self, benchmark: str) -> bool:
        """Tell whether a benchmark's copies are judged: output or shared inputs to look at."""
        program = self._programs[benchmark]
        shared = any(not made.private for made in program.inputs)
        return bool(program.expected or program.metrics or shared)

    def judge(self, copies: Sequence[tuple[Step, CopySpec]], checker: Checker) -> list[Judged]:
        """Compare outputs with what is expected, and see that shared inputs are whole."""
        programs = [self._programs[step.benchmark] for step, _ in copies]
        damages = [self._damage(program) for program in programs]
        papers = [
            Paper(
                Rules(program.expected, program.metrics), spec.directory, spec.stdout, spec.stderr
            )
            for program, damage, (_, spec) in zip(programs, damages, copies, strict=True)
            if damage is None
        ]
        findings = iter(checker.check(papers))
        judged = []
        for program, damage in zip(programs, damages, strict=True):
            finding = next(findings) if damage is None else Finding(damage)
            if finding is None:
                judged.append(Judged(Validity.UNCHECKED))
            elif finding.detail is not None:
                judged.append(Judged(Validity.INVALID, finding.detail))
            else:
                good = Validity.VALID if program.expected else Validity.NOT_CHECKED
                judged.append(Judged(good, None, finding.metrics))
        return judged

    def _damage(self, program: Program) -> str | None:
        for shared in program.inputs:
            if shared.damaged():
                self._notice(
                    f"a copy of {program.name} wrote into its input {shared.name}, which all "
                    "copies share: the results since then are not trustworthy"
                )
                return f"input {shared.name} was changed while copies ran"
        return None

    def clear(self, spec: CopySpec) -> None:
        """Remove a copy's output and run directory, unless all are to be kept."""
        if not self.keeps:
            self._remove(spec)

    def _remove(self, spec: CopySpec) -> None:
        for name in (spec.stdout, spec.stderr):
            with suppress(OSError):
                os.unlink(name)
        if not spec.output.endswith("/"):
            return
        try:
            os.rmdir(spec.files)
        except OSError:  # the copy or its inputs left files: the thorough way
            trouble = remove_run_dir(Path(spec.files))
            if trouble:
                self._notice(trouble)

    def take_notices(self) -> list[str]:
        """Return what has come up since the last call, each thing once a run."""
        taken, self._notices = self._notices, []
        return taken

    def _notice(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._notices.append(text)

    def _spec(self, copy: int, position: int, step: Step) -> CopySpec:
        program = self._programs[step.benchmark]
        name = run_dir_name(step.benchmark, step.iteration, copy, position)
        environment = self._environment(program, copy)
        if program.directory is not None:
            # No directory for output alone: making one can cost more than all the rest.
            return CopySpec(program.argv, environment, program.directory, f"{self._work}/{name}.")
        if program.inputs:
            made = self._run_dir(program, copy, name)
            for notice in made.notices:
                self._notice(notice)
            self._is_written |= made.is_written
            path = str(made.path)
        else:
            path = f"{self._work}/{name}"
        try:
            if not program.inputs:
                os.mkdir(path)
            for folder in program.folders:
                os.makedirs(f"{path}/{folder}", exist_ok=True)
        except OSError as error:
            raise cannot_be_made(Path(path), error) from error
        environment = environment | {b"RATER_RUN_DIR": os.fsencode(path)}
        return CopySpec(program.argv, environment, path, f"{path}/")

    def _run_dir(self, program: Program, copy: int, name: str) -> RunDir:
        """Make a run directory; inputs of the copy's own are written where it will read them.

        Page cache lies on the lgroup of who writes it: one thread that writes those of all
        copies would fill one lgroup with them.
        """
        if not any(made.private for made in program.inputs):
            return make_run_dir(self._work, name, program.inputs)
        with ThreadBinding() as binding:
            binding.apply(self._placements[copy])
            return make_run_dir(self._work, name, program.inputs)

    def _environment(self, program: Program, copy: int) -> dict[bytes, bytes]:
        """Return what a copy of a program finds, but for its run directory; made once."""
        key = (program.environment, program.threads)
        made = self._environments.get(key)
        if made is None:
            # A variable without a name can not be handed on by posix_spawn.
            base = {name: value for name, value in os.environb.items() if name}
            base.update((n.encode(), os.fsencode(value)) for n, value in program.environment)
            base |= self._added
            base[b"RATER_THREADS"] = b"%d" % program.threads
            made = [base | _whereabouts(placement) for placement in self._placements]
            self._environments[key] = made
        return made[copy]

    # -- set-ups --------------------------------------------------------------------------------

    def _set_up_all(
        self,
        setups: Sequence[tuple[int, Step, CopySpec]],
        stop: Callable[[], bool],
        made: Sequence[CopySpec],
    ) -> None:
        """Set up several copies at a time; remove what was made when one fails or all stop."""
        failed = threading.Event()

        def unwanted() -> bool:
            return failed.is_set() or stop()

        def one(setup: tuple[int, Step, CopySpec]) -> RaterError | None:
            if unwanted():
                return None
            try:
                self._set_up(*setup, unwanted)
            except SetupStopped:
                return None
            except RaterError as error:
                failed.set()
                return error
            return None

        cpus = {cpu for placement in self._placements for cpu in placement.cpus or ()}
        workers = len(cpus) or len(os.sched_getaffinity(0))
        with ThreadPoolExecutor(min(workers, len(setups))) as pool:
            errors = list(pool.map(one, setups))
        if failed.is_set() or stop():
            kept = {setup[2].files for setup, error in zip(setups, errors, strict=True) if error}
            for spec in made:
                if spec.files not in kept:
                    self._remove(spec)
        for error in errors:
            if error is not None:
                raise error

    def _set_up(self, copy: int, step: Step, spec: CopySpec, stop: Callable[[], bool]) -> None:
        program = self._programs[step.benchmark]
        who = f"copy {copy} of {program.name}"
        with ThreadBinding() as binding:
            binding.apply(self._placements[copy])
            set_up_copy(
                program.setup,
                Path(spec.directory),
                spec.environment,
                who,
                stop=stop,
                limits=program.setup_limits,
            )


def _whereabouts(placement: Placement) -> dict[bytes, bytes]:
    return {
        b"RATER_COPY": b"%d" % placement.copy,
        b"RATER_CPUS": format_list(placement.cpus or ()).encode(),
        b"RATER_NODE": b"" if placement.node is None else b"%d" % placement.node,
    }
