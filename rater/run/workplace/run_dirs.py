"""The run directories of a run: made before a phase, judged and removed after it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path

from rater.errors import RaterError
from rater.plan.placement.place import Placement
from rater.plan.schedule.phases import Phase, Step
from rater.plan.suite.model import Expected, Metric
from rater.record.status import Validity
from rater.run.check.checker import Checker
from rater.run.check.request import CheckRequest, CheckRules, Judged
from rater.run.check.specdiff import KitComparison, KitOutput, compare, states
from rater.run.copies.guard import MARKER
from rater.run.copies.launch import CopySpec
from rater.run.host.thread_binding import ThreadBinding
from rater.run.programs.child_process import NO_LIMITS, Limits
from rater.run.programs.inputs import (
    ReadyInput,
    RunDir,
    cannot_be_made,
    flush_file_system,
    make_run_dir,
    remove_run_dir,
    run_dir_name,
)
from rater.run.programs.memory_tuning import UNTUNED, CopyTuning
from rater.run.programs.script import workloads_in
from rater.run.programs.setup import SetupStopped, set_up_copy
from rater.text.cpuset import format_list


@dataclass(frozen=True, slots=True)
class Own:
    """What one copy has for itself of a kit's benchmark: a run directory that is there already."""

    argv: tuple[str, ...]
    directory: str
    comparison: KitComparison | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """One benchmark, ready to be started."""

    name: str
    argv: tuple[str, ...]  # the wrap prefix included; () where copies have their own
    inputs: tuple[ReadyInput, ...]
    expected: tuple[Expected, ...]
    directory: str | None  # where all copies work; None: each in a run directory of its own
    metrics: tuple[Metric, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()  # of suite, benchmark and size
    threads: int = 1
    setup: tuple[str, ...] = ()  # command line, before each run of a copy
    setup_limits: Limits = NO_LIMITS  # of each run of it
    folders: tuple[str, ...] = ()  # of the run directory, into which its commands write
    own: tuple[Own, ...] = ()  # by copy, of a kit's benchmark

    @property
    def compares(self) -> bool:
        """Tell whether a kit's own tool looks at outputs."""
        return bool(self.own) and self.own[0].comparison is not None


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
        tuning: CopyTuning = UNTUNED,
    ) -> None:
        self._tuning = tuning
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
        # Of kits' run directories, by directory: who writes there last in this phase, and compared
        # files as they were before it.
        self._last: dict[str, str] = {}
        self._before: dict[str, KitOutput] = {}
        self._made_s = 0.0  # when those of this phase were made, by the monotonic clock

    def specs(
        self, phase: Phase, stop: Callable[[], bool] = lambda: False
    ) -> dict[tuple[int, int], CopySpec]:
        """Make a run directory for every step of every copy of the phase, and set it up.

        `stop` is asked while set-ups run; what is returned then can not be started.
        """
        made: dict[tuple[int, int], CopySpec] = {}
        setups = []
        self._last.clear()
        self._before.clear()
        self._made_s = time.monotonic()
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
                if self._programs[step.benchmark].compares and phase.window is None:
                    self._expect(queue.copy, step, spec)
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
        return bool(program.expected or program.metrics or shared or program.compares)

    def uses_checker(self, benchmark: str) -> bool:
        """Tell whether `judge` will want the process that checks."""
        program = self._programs[benchmark]
        return bool(program.expected or program.metrics)

    def judge(self, copies: Sequence[tuple[Step, CopySpec]], checker: Checker) -> list[Judged]:
        """Compare outputs with what is expected, and see that shared inputs are whole."""
        kinds = [self._programs[step.benchmark].compares for step, _ in copies]
        if not any(kinds):
            return self._judge(copies, checker)
        by_kit = iter(self._judge_of_kits(list(compress(copies, kinds)), checker.gives_up))
        rest = [one for one, is_kit in zip(copies, kinds, strict=True) if not is_kit]
        others = iter(self._judge(rest, checker))
        return [next(by_kit) if is_kit else next(others) for is_kit in kinds]

    def _judge(self, copies: Sequence[tuple[Step, CopySpec]], checker: Checker) -> list[Judged]:
        programs = [self._programs[step.benchmark] for step, _ in copies]
        damages = [self._damage(program) for program in programs]
        requests = [
            CheckRequest(
                CheckRules(program.expected, program.metrics),
                *(spec.directory, spec.stdout, spec.stderr),
            )
            for program, damage, (_, spec) in zip(programs, damages, copies, strict=True)
            if damage is None
        ]
        checked = iter(checker.check(requests))
        return [
            next(checked) if damage is None else Judged(Validity.INVALID, damage)
            for damage in damages
        ]

    def _expect(self, copy: int, step: Step, spec: CopySpec) -> None:
        """Take note of what is compared once the phase is over."""
        comparison = self._programs[step.benchmark].own[copy].comparison
        assert comparison is not None
        self._last[spec.directory] = spec.output
        if spec.directory not in self._before:
            before = states(spec.directory, comparison.outputs)
            placement = self._placements[copy]
            self._before[spec.directory] = KitOutput(comparison, placement, spec.directory, before)

    def _judge_of_kits(
        self, copies: Sequence[tuple[Step, CopySpec]], stop: Callable[[], bool]
    ) -> list[Judged]:
        """Let the kit's own tool compare; where a later run of the copy wrote, nothing is left."""
        last = {
            spec.output: (self._before[spec.directory], f"{spec.output}compare")
            for _, spec in copies
            if self._last.get(spec.directory) == spec.output
        }
        cpus = {cpu for placement in self._placements for cpu in placement.cpus or ()}
        workers = len(cpus) or len(os.sched_getaffinity(0))
        found = compare(list(last.values()), workers, stop, time.monotonic() - self._made_s)
        judged = dict(zip(last, found, strict=True))
        for step, spec in copies:
            one = judged.get(spec.output)
            if one is not None and one.validity is Validity.NOT_CHECKED:
                self._notice(f"outputs of {step.benchmark} were {one.detail}")
        return [judged.get(spec.output, _OVERWRITTEN) for _, spec in copies]

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
        if program.own:
            return self._own_spec(program.own[copy], name, environment)
        if program.directory is not None:
            # No directory for output alone: making one can cost more than all the rest.
            output = f"{self._work}/{name}."
            return self._tuned(CopySpec(program.argv, environment, program.directory, output))
        workloads = workloads_in(program.argv)
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
        return self._tuned(CopySpec(program.argv, environment, path, f"{path}/", workloads))

    def _own_spec(self, own: Own, name: str, environment: dict[bytes, bytes]) -> CopySpec:
        """Return what a copy needs in a kit's run directory; only what it prints lies elsewhere."""
        environment = environment | {b"RATER_RUN_DIR": os.fsencode(own.directory)}
        output, workloads = f"{self._work}/{name}.", workloads_in(own.argv)
        return self._tuned(CopySpec(own.argv, environment, own.directory, output, workloads))

    def _tuned(self, spec: CopySpec) -> CopySpec:
        tuning = self._tuning
        if tuning is UNTUNED:
            return spec
        late = tuning.added(spec.environment)
        return replace(spec, late=late, transparent=tuning.transparent)

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
            base.update((os.fsencode(n), os.fsencode(value)) for n, value in program.environment)
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


_OVERWRITTEN = Judged(
    Validity.NOT_CHECKED,
    "not validated: the copy's next run wrote into the same run directory before it was compared",
)


def _whereabouts(placement: Placement) -> dict[bytes, bytes]:
    return {
        b"RATER_COPY": b"%d" % placement.copy,
        b"RATER_CPUS": format_list(placement.cpus or ()).encode(),
        b"RATER_NODE": b"" if placement.node is None else b"%d" % placement.node,
    }
