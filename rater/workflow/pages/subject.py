"""What is traced: one benchmark of a suite, or a command, ready to be started."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from rater.errors import InputError, RunError
from rater.plan.placement.place import MemoryPolicy, Placement
from rater.plan.schedule.phases import Step
from rater.plan.suite.find import load_suite, select, split_selection
from rater.run.check.checker import Checker
from rater.run.copies.launch import CopySpec
from rater.run.pages.trace import ended_text, run_to_end
from rater.run.programs.child_process import Limits
from rater.run.programs.compile import build, find_command
from rater.run.programs.inputs import ready_inputs
from rater.run.programs.script import Line, argv_of, folders_of, lines_of
from rater.run.programs.setup import environment_of, setup_argv
from rater.run.workplace.program import Program
from rater.run.workplace.run_dirs import RunFolders
from rater.run.workplace.trial import pick_size, trial_folder, try_setup

_UNBOUND = Placement(0, None, None, None, None, None, None, MemoryPolicy.NONE, ())
_OUTPUT_LIMIT_BYTES = 1 << 30  # as `rater run` has it unless told otherwise


@dataclass(frozen=True, slots=True)
class Subject:
    """One program to trace."""

    name: str
    suite: str | None
    size: str | None
    command: tuple[str, ...]  # for people
    files: tuple[Path, ...]  # what its commands execute
    program: Callable[[tuple[str, ...]], Program]  # what stands in front of each command


def subject_of(args: argparse.Namespace, cache: Path, limits: Limits) -> Subject:
    """Build, find and set up what the command line means; raises `InputError`."""
    if args.command is not None and args.which is not None:
        raise InputError(
            f"both a benchmark ({args.which}) and a command behind `--`: one trace is of one"
        )
    if args.command is not None:
        return _of_command(args.command)
    if args.which is None:
        raise InputError(
            "what is to be traced? SUITE/BENCHMARK, as in `rater pages mini/gups`, or a command: "
            "`rater pages -- ./program`"
        )
    return _of_suite(args, cache, limits)


def _of_command(command: list[str]) -> Subject:
    if not command:
        raise InputError("nothing behind `--`; expected a command, as in `rater pages -- ./bench`")
    found = find_command(command[0])
    lines = (Line((str(found), *command[1:])),)
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in found.name)[:60]

    def program(wrap: tuple[str, ...]) -> Program:
        return Program(name, argv_of(lines, wrap), (), (), str(Path.cwd()))

    return Subject(name, None, None, tuple(command), (found,), program)


def _of_suite(args: argparse.Namespace, cache: Path, limits: Limits) -> Subject:
    suite = select(load_suite(split_selection(args.which)[0]), args.which)
    if len(suite.benchmarks) != 1:
        names = ", ".join(it.name for it in suite.benchmarks[:20])
        raise InputError(f"{args.which} is {len(suite.benchmarks)} benchmarks, trace one: {names}")
    [benchmark] = suite.benchmarks
    size = pick_size(benchmark, args.size)
    if size is None:
        known = ", ".join(benchmark.sizes)
        raise InputError(f"benchmark {benchmark.name} has no size {args.size}; there are: {known}")
    left = try_setup(suite, size.name, cache, limits)
    built = build(benchmark, args.tune, cache, size)
    lines = lines_of(benchmark, size, built)
    inputs = ready_inputs(benchmark, size, cache, left)
    environment = environment_of(suite, benchmark, size, cache)

    def program(wrap: tuple[str, ...]) -> Program:
        return Program(
            name=benchmark.name,
            argv=argv_of(lines, wrap),
            inputs=inputs,
            expected=size.expected,
            directory=None,
            metrics=(),
            environment=environment,
            threads=benchmark.threads,
            setup=setup_argv(benchmark),
            setup_limits=limits,
            folders=folders_of(lines),
        )

    words = tuple(word for line in lines for word in shlex.split(line.shell()))
    files = tuple(dict.fromkeys(Path(line.words[0]) for line in lines))
    return Subject(benchmark.name, suite.name, size.name, words, files, program)


class Stage:
    """Run directories for one subject, one run after the other."""

    def __init__(self, subject: Subject, work: Path) -> None:
        self._subject, self._work = subject, work
        self._mark = str(uuid4())
        self._runs = 0

    def run[T](
        self, wrap: tuple[str, ...], doing: Callable[[CopySpec], T], *, check: bool = True
    ) -> T:
        """Make a run directory, do it there, hold the output to what is expected, remove it."""
        self._runs += 1
        program = self._subject.program(wrap)
        folders = RunFolders(
            self._work, self._mark, {program.name: program}, (_UNBOUND,), (), keep=False
        )
        step = Step(program.name, self._runs)
        spec = folders.spec(0, 0, step)
        try:
            done = doing(spec)
            if check and program.expected:
                with Checker() as checker:
                    [judged] = folders.judge([(step, spec)], checker)
                if judged.detail is not None:
                    raise RunError(f"{program.name} gave a wrong answer: {judged.detail}")
        finally:
            folders.clear(spec)
        return done

    def native_s(self, limits: Limits) -> float:
        """Run it by itself; return its time in seconds. Raises `RunError` where it fails."""

        def run(spec: CopySpec) -> float:
            elapsed_s, status = run_to_end(spec, spec.environment, limits)
            if status != 0:
                raise RunError(f"{self._subject.name} {ended_text(status)}, run by itself")
            return elapsed_s

        return self.run((), run)


@contextmanager
def staged(subject: Subject, cache: Path) -> Iterator[Stage]:
    """Make the place for some runs of a subject."""
    with trial_folder(cache) as work:
        yield Stage(subject, work)


def limits_of(args: argparse.Namespace) -> Limits:
    """Return what one run may take."""
    return Limits(args.timeout, _OUTPUT_LIMIT_BYTES)
