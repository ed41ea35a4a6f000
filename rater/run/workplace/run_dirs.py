"""Run directories: made before a phase, with environment and set-up, judged and removed after."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from rater.plan.command_words import fill_all
from rater.plan.metric import Metric
from rater.plan.options import CopyNumbers
from rater.plan.schedule import Phase, Step
from rater.plan.suite import Expected
from rater.record.run import Placement, Validity
from rater.run.host.thread_binding import bound_as
from rater.run.launcher.copies import CopySpec
from rater.run.launcher.guard import MARKER
from rater.run.launcher.table import inherited_environment
from rater.run.programs.child_process import NO_LIMITS, Limits
from rater.run.programs.inputs import (
    InputWatch,
    ProgramWatch,
    ReadyInput,
    cannot_be_made,
    flush_file_system,
    make_run_dir,
    remove_run_dir,
    run_dir_name,
)
from rater.run.programs.script import SetupStopped, count_reported_commands, set_up_copy
from rater.run.programs.tuning import UNTUNED, CopyTuning
from rater.run.workplace.checker import Checker
from rater.run.workplace.compare_output import CheckRequest, CheckResult, CheckRules
from rater.system.errors import RaterError
from rater.text.cpuset import format_list
from rater.wings import Hook

# -- One benchmark, ready to be started by every copy ----------------------------------------------


OVERWRITTEN = CheckResult(
    Validity.NOT_CHECKED,
    "not validated: the copy's next run wrote into the same run directory before it was compared",
)


class KitOutputs(Protocol):
    """Outputs of a kit, which a wing compares with the kit's own tool once a phase is over.

    A comparison is the wing's own value; copies may use a directory several times.
    """

    def begin_phase(self) -> None:
        """Forget the phase before."""

    def expect(self, comparison: Any, placement: Placement, spec: CopySpec) -> None:
        """Add an output that is compared once the phase is over."""

    def judge(
        self, specs: Sequence[CopySpec], workers: int, stop: Callable[[], bool]
    ) -> list[CheckResult]:
        """Compare; `OVERWRITTEN` where a later run of the copy wrote."""


class KitOutputsFactory(Protocol):
    """A module of a wing that makes `KitOutputs` for a run."""

    def kit_outputs(self) -> KitOutputs:
        """Return the outputs of a run, none so far."""


_KIT_OUTPUTS = Hook[KitOutputsFactory]("kit outputs")


class KitCopy(Struct, frozen=True):
    """The run directory of one copy of a kit's benchmark, which the kit made before."""

    argv: tuple[str, ...]
    directory: str
    comparison: Any = None  # a value of the wing; None when its output is not compared


class Program(Struct, frozen=True, kw_only=True):
    """One benchmark, ready to be started."""

    name: str
    argv: tuple[str, ...]  # the wrap prefix included; () where copies have their own
    inputs: tuple[ReadyInput, ...] = ()
    expected: tuple[Expected, ...] = ()
    directory: str | None = None  # where all copies work; None: each in a run directory of its own
    metrics: tuple[Metric, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()  # of suite, benchmark and size
    threads: int = 1
    setup: tuple[str, ...] = ()  # command line, before each run of a copy
    setup_limits: Limits = NO_LIMITS  # of each run of it
    folders: tuple[str, ...] = ()  # of the run directory, into which its commands write
    own: tuple[KitCopy, ...] = ()  # by copy, of a kit's benchmark
    accepted: tuple[int, ...] = ()  # exit codes that are no failure, beside 0
    has_placeholders: bool = False  # in `argv`: each run of a copy has its own arguments

    @property
    def takes_time(self) -> bool:
        """Tell whether directories are made, commands run or outputs checked for its copies."""
        return bool(self.directory is None or self.own or self.setup or self.rules)

    @property
    def rules(self) -> CheckRules:
        """Return the rules for its outputs."""
        return CheckRules(self.expected, self.metrics)

    @property
    def compares(self) -> bool:
        """Tell whether a kit's own tool compares outputs."""
        return bool(self.own) and self.own[0].comparison is not None

    @property
    def is_judged(self) -> bool:
        """Tell whether its copies are judged: by outputs, or shared inputs that must not change."""
        shares_inputs = any(not ready_input.private for ready_input in self.inputs)
        return bool(self.rules or shares_inputs or self.compares)


# -- The environment of every copy of a run --------------------------------------------------------


class CopyEnvironments:
    """Environments of copies: inherited variables, those `added` by the run, and a copy's own."""

    def __init__(
        self,
        uuid: str,
        placements: Sequence[Placement],
        added: Sequence[tuple[str, str]],
        copy_numbers: CopyNumbers | None = None,
    ) -> None:
        """`copy_numbers`: those of a larger run that copies stand for; None: their own."""
        self._placements = placements
        self._copy_numbers = copy_numbers
        self._added = {name.encode(): os.fsencode(value) for name, value in added}
        self._added[MARKER.encode()] = uuid.encode()
        copies = len(placements) if copy_numbers is None else copy_numbers.of
        self._added[b"RATER_COPIES"] = b"%d" % copies
        # Copies without a run directory of their own work in our current folder.
        self._added[b"RATER_RUN_DIR"] = os.fsencode(Path.cwd())
        self._made: dict[object, dict[bytes, bytes]] = {}

    def make(self, program: Program, copy: int) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        """Return the variables of all copies of a program, made once, and those of one copy."""
        key = (program.environment, program.threads)
        environment = self._made.get(key)
        if environment is None:
            environment = inherited_environment()
            environment.update(
                (os.fsencode(name), os.fsencode(value)) for name, value in program.environment
            )
            environment |= self._added
            environment[b"RATER_THREADS"] = b"%d" % program.threads
            self._made[key] = environment
        number = copy if self._copy_numbers is None else self._copy_numbers.numbers[copy]
        return environment, _whereabouts(self._placements[copy], number)


def _whereabouts(placement: Placement, number: int) -> dict[bytes, bytes]:
    return {
        b"RATER_COPY": b"%d" % number,
        b"RATER_CPUS": format_list(placement.cpus or ()).encode(),
        b"RATER_NODE": b"" if placement.node is None else b"%d" % placement.node,
    }


def _placeholder_values(placement: Placement, variables: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return what a run of a copy has in place of `{copy}`, `{cpus}`, ...; empty: not bound."""
    return {
        "copy": variables[b"RATER_COPY"].decode(),
        "cpu": "" if placement.cpu is None else str(placement.cpu),
        "cpus": variables[b"RATER_CPUS"].decode(),
        "node": variables[b"RATER_NODE"].decode(),
        "iteration": variables[b"RATER_ITERATION"].decode(),
    }


# -- Files of output that serve again --------------------------------------------------------------


class SpareOutputs:
    """Empty files of output, renamed for later runs; those of an own directory go with that.

    On ext4 without a journal it takes 15 us to rename one and 350 us to make one, with the folder
    locked.
    """

    def __init__(self) -> None:
        self._outputs: list[str] = []  # as `CopySpec.output` had them

    def take(self, spec: CopySpec) -> bool:
        """Empty the files of a run that is over; return whether they may serve again."""
        may_serve = not spec.output.endswith("/") and all(map(_empty, (spec.stdout, spec.stderr)))
        if may_serve:
            self._outputs.append(spec.output)
        return may_serve

    def give_to(self, output: str) -> None:
        """Give files the names of a run that is to be; where there are none it makes them."""
        if not self._outputs:
            return
        spare = self._outputs.pop()
        try:
            for name in _OUTPUT_NAMES:
                os.rename(f"{spare}{name}", f"{output}{name}")
        except OSError:
            _unlink_outputs(spare)

    def close(self) -> None:
        """Remove the files that could have served again."""
        while self._outputs:
            _unlink_outputs(self._outputs.pop())


_OUTPUT_NAMES = ("stdout", "stderr")


def _unlink_outputs(output: str) -> None:
    for name in _OUTPUT_NAMES:
        with suppress(OSError):
            os.unlink(f"{output}{name}")


def _empty(path: str) -> bool:
    """Empty a file of output; return whether it is a plain one that nobody keeps by a link.

    Closing it here clears what ext4 notes of a file that was truncated: otherwise it would write
    the next copy's output to the disk when that copy closes it.
    """
    try:
        status = os.lstat(path)
        may_serve = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if may_serve and status.st_size:
            os.close(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC))
    except OSError:
        return False
    return may_serve and bool(status.st_mode & stat.S_IWUSR)


# -- The run directories of a run: made before a phase, judged and removed after it ----------------


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
        files: Iterable[Path] = (),
        copy_numbers: CopyNumbers | None = None,
    ) -> None:
        """`files`: programs that copies execute, watched for being replaced between phases."""
        self._executed = ProgramWatch(files)
        self._tuning = tuning
        self._work = work
        self.programs = programs
        self.keeps = keep
        self._notices: list[str] = []
        self._noticed: set[str] = set()
        self._placements = placements
        self._is_written = False  # a run directory that the disk may not have yet
        self._environments = CopyEnvironments(uuid, placements, added, copy_numbers)
        has_kits = any(program.compares for program in programs.values())
        self._kit_outputs = _KIT_OUTPUTS().kit_outputs() if has_kits else None
        self._watch = InputWatch()
        self._shared = [
            ready_input
            for program in programs.values()
            for ready_input in program.inputs
            if not ready_input.private
        ]
        self._overlaps = False  # copies run while others' files are made, judged and removed
        self.spare_outputs = SpareOutputs()

    def takes_time(self, phase: Phase) -> bool:
        """Tell whether a phase has more to make or check than handing it to a thread would cost."""
        names = {step.benchmark for queue in phase.queues for step in queue.steps}
        return phase.window is not None or any(self.programs[name].takes_time for name in names)

    def specs(
        self, phase: Phase, stop: Callable[[], bool] = lambda: False
    ) -> dict[tuple[int, int], CopySpec]:
        """Make a run directory for every step of every copy of the phase, and set it up.

        `stop` is asked while set-ups run; what is returned then can not be started.
        """
        spec_by_place: dict[tuple[int, int], CopySpec] = {}
        setups = []
        for text in self._executed.replaced(phase.benchmark, phase.iteration):
            self._notice(text)
        if self._kit_outputs is not None:
            self._kit_outputs.begin_phase()
        self._overlaps = phase.window is not None
        for queue in phase.queues:
            # With a window queues have no end: later run directories are made while copies run.
            steps = queue.steps[:1] if phase.window is not None else queue.steps
            for position, step in enumerate(steps):
                try:
                    spec = self._spec(queue.copy, position, step)
                except RaterError:
                    for earlier in spec_by_place.values():
                        self._remove(earlier)
                    raise
                spec_by_place[queue.copy, position] = spec
                program = self.programs[step.benchmark]
                if program.compares and phase.window is None:
                    comparison = program.own[queue.copy].comparison
                    assert comparison is not None and self._kit_outputs is not None
                    self._kit_outputs.expect(comparison, self._placements[queue.copy], spec)
                if program.setup:
                    setups.append((self._placements[queue.copy], program, spec))
        if setups:
            self._set_up_all(setups, stop, list(spec_by_place.values()))
        if (self._is_written or setups) and not stop():
            self._is_written = False
            trouble = flush_file_system(self._work)
            if trouble:
                self._notice(
                    f"run directories could not be flushed ({trouble}): writing them back to "
                    "disk may have disturbed copies"
                )
        return spec_by_place

    def _set_up_all(
        self,
        setups: Sequence[tuple[Placement, Program, CopySpec]],
        stop: Callable[[], bool],
        specs: Sequence[CopySpec],
    ) -> None:
        error_by_files = set_up_all(setups, _workers(self._placements), stop)
        if error_by_files or stop():
            for spec in specs:
                if spec.files not in error_by_files:
                    self._remove(spec)
        if error_by_files:
            raise next(iter(error_by_files.values()))

    def spec(
        self, copy: int, position: int, step: Step, stop: Callable[[], bool] = lambda: False
    ) -> CopySpec:
        """Make the run directory of a later run of a copy, in a phase with a window."""
        spec = self._spec(copy, position, step)
        program = self.programs[step.benchmark]
        if program.setup:
            try:
                set_up(self._placements[copy], program, spec, stop)
            except SetupStopped:
                self._remove(spec)
            except KeyboardInterrupt:  # of a trial, in the main thread
                self._remove(spec)
                raise
        return spec

    def judge(self, copies: Sequence[tuple[Step, CopySpec]], checker: Checker) -> list[CheckResult]:
        """Compare outputs with the expected ones, and check that shared inputs did not change."""
        with_program = [(self.programs[step.benchmark], spec) for step, spec in copies]
        by_kit = [pair for pair in with_program if pair[0].compares]
        result_by_output = self._judge(
            [pair for pair in with_program if not pair[0].compares], checker
        )
        if by_kit:
            result_by_output |= self._judge_of_kits(by_kit, checker.gives_up)
        return [result_by_output[spec.output] for _, spec in copies]

    def _judge(
        self, copies: Sequence[tuple[Program, CopySpec]], checker: Checker
    ) -> dict[str, CheckResult]:
        result_by_output = {}
        request_by_output = {}
        for program, spec in copies:
            damage = self._damage(program)
            if damage is not None:
                result_by_output[spec.output] = CheckResult(Validity.INVALID, damage)
            else:
                request_by_output[spec.output] = CheckRequest(
                    program.rules, spec.directory, spec.stdout, spec.stderr
                )
        return result_by_output | dict(
            zip(request_by_output, checker.check(list(request_by_output.values())), strict=True)
        )

    def _judge_of_kits(
        self, copies: Sequence[tuple[Program, CopySpec]], stop: Callable[[], bool]
    ) -> dict[str, CheckResult]:
        specs = [spec for _, spec in copies]
        assert self._kit_outputs is not None
        results = self._kit_outputs.judge(specs, _workers(self._placements), stop)
        for (program, _), result in zip(copies, results, strict=True):
            if result.validity is Validity.NOT_CHECKED and result is not OVERWRITTEN:
                self._notice(f"outputs of {program.name} were {result.detail}")
        return dict(zip((spec.output for spec in specs), results, strict=True))

    def _damage(self, program: Program) -> str | None:
        for shared in program.inputs:
            if self._watch.damaged(shared, seldom=self._overlaps):
                self._notice(
                    f"a copy of {program.name} wrote into its input {shared.name}, which all "
                    "copies share: the results since then are not trustworthy"
                )
                return f"input {shared.name} was changed while copies ran"
        return None

    def clear(self, spec: CopySpec, *, all_of_it: bool = True, may_reuse: bool = False) -> None:
        """Remove a copy's output and run directory, or only output files that are empty.

        `may_reuse`: files of output may serve later runs; `spare_outputs` is closed in the end.
        """
        if not all_of_it and not self.keeps:
            _remove_empty(spec)
        elif not self.keeps and not (may_reuse and self.spare_outputs.take(spec)):
            self._remove(spec)

    def _remove(self, spec: CopySpec) -> None:
        _unlink_outputs(spec.output)
        if not spec.output.endswith("/"):
            return
        try:
            os.rmdir(spec.files)
        except OSError:  # the copy or its inputs left files: the thorough way
            with self._watch.linking(self._shared):
                trouble = remove_run_dir(Path(spec.files))
            if trouble:
                self._notice(trouble)

    def take_notices(self) -> list[str]:
        """Return the notices since the last call; each text comes once a run."""
        notices, self._notices = self._notices, []
        return notices

    def _notice(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._notices.append(text)

    def _spec(self, copy: int, position: int, step: Step) -> CopySpec:
        program, tuning = self.programs[step.benchmark], self._tuning
        folder_name = run_dir_name(step.benchmark, step.iteration, copy, position)
        shared_variables, own_variables = self._environments.make(program, copy)
        argv, directory = program.argv, program.directory
        own_variables[b"RATER_ITERATION"] = b"%d" % step.iteration
        if program.has_placeholders:
            argv = fill_all(argv, _placeholder_values(self._placements[copy], own_variables))
        # No directory for output alone: making one can cost more than all the rest.
        output = f"{self._work}/{folder_name}."
        if program.own:  # a kit's run directory
            argv, directory = program.own[copy].argv, program.own[copy].directory
        elif directory is None:
            directory = self._own_directory(program, copy, folder_name)
            output = f"{directory}/"
        if not output.endswith("/"):
            self.spare_outputs.give_to(output)
        if directory != program.directory:
            own_variables[b"RATER_RUN_DIR"] = os.fsencode(directory)
        if tuning is not UNTUNED:
            own_variables |= tuning.added({**shared_variables, **own_variables})
        return CopySpec(
            argv=argv,
            shared_variables=shared_variables,
            directory=directory,
            output=output,
            workloads=count_reported_commands(argv),
            own_variables=own_variables,
            accepted=program.accepted,
            transparent=tuning.transparent,
        )

    def _own_directory(self, program: Program, copy: int, name: str) -> str:
        """Make a run directory; private inputs are written on the CPUs of the copy.

        Page cache lies on the lgroup of the thread that writes it: one thread that writes the
        inputs of all copies would fill one lgroup with them.
        """
        path = f"{self._work}/{name}"
        if program.inputs:
            has_private = any(run_dir.private for run_dir in program.inputs)
            binding = bound_as(self._placements[copy]) if has_private else nullcontext()
            with self._watch.linking(program.inputs), binding:
                run_dir = make_run_dir(self._work, name, program.inputs)
            for notice in run_dir.notices:
                self._notice(notice)
            self._is_written |= run_dir.is_written
        _make_folders(path, program)
        return path


def _make_folders(path: str, program: Program) -> None:
    """Make the folders that a program writes into, and the run directory where it has no inputs."""
    try:
        if not program.inputs:
            os.mkdir(path)
        for folder in program.folders:
            os.makedirs(f"{path}/{folder}", exist_ok=True)
    except OSError as error:
        raise cannot_be_made(Path(path), error) from error


def _remove_empty(spec: CopySpec) -> None:
    for name in (spec.stdout, spec.stderr):
        with suppress(OSError):
            if not os.stat(name).st_size:
                os.unlink(name)


# -- Set-up commands of copies, before each run: where the copy will run, several at a time --------


def _workers(placements: Sequence[Placement]) -> int:
    cpus = {cpu for placement in placements for cpu in placement.cpus or ()}
    return len(cpus) or len(os.sched_getaffinity(0))


def set_up_all(
    setups: Sequence[tuple[Placement, Program, CopySpec]], workers: int, stop: Callable[[], bool]
) -> dict[str, RaterError]:
    """Set up copies, `workers` at a time, until one fails or `stop` is true.

    Return the errors by the folders of their copies, which are to stay; the first is in front.
    """
    error_by_files: dict[str, RaterError] = {}

    def set_up_one(setup: tuple[Placement, Program, CopySpec]) -> None:
        placement, program, spec = setup
        with suppress(SetupStopped):
            try:
                if not error_by_files and not stop():
                    set_up(placement, program, spec, lambda: bool(error_by_files) or stop())
            except RaterError as error:
                error_by_files[spec.files] = error

    with ThreadPoolExecutor(min(workers, len(setups))) as pool:
        list(pool.map(set_up_one, setups))
    return error_by_files


def set_up(
    placement: Placement, program: Program, spec: CopySpec, stop: Callable[[], bool]
) -> None:
    """Run the set-up command of one copy, bound as it will be; raises `SetupStopped`."""
    with bound_as(placement):
        set_up_copy(
            program.setup,
            Path(spec.directory),
            spec.environment,
            f"copy {placement.copy} of {program.name}",
            stop=stop,
            limits=program.setup_limits,
        )
