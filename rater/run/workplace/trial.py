"""Try one benchmark: build it, run one copy alone, compare its output."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.schedule import Step
from rater.plan.suite import Benchmark, Size, Suite
from rater.record.run import Placement
from rater.run.launcher.copies import CopySpec
from rater.run.launcher.guard import MARKER, kill_marked
from rater.run.programs.child_process import ChildEnded, Limits, excess_text, run_alone
from rater.run.programs.compile import build, cache_errors
from rater.run.programs.inputs import SetupFiles, ready_inputs
from rater.run.programs.script import (
    benchmark_environment,
    command_lines,
    failed_command,
    folders_of,
    made_files,
    set_up_suite,
    setup_argv,
    to_argv,
)
from rater.run.workplace.checker import Checker
from rater.run.workplace.run_dirs import Program, RunFolders
from rater.system.errors import RaterError
from rater.text.values import signal_name

_MORE_MEMORY = 1.1  # times the stated memory; a remark says that a copy used more
_UNBOUND = Placement.unbound(copy=0)


class SuiteTrial(Struct, frozen=True, kw_only=True):
    """The result of a trial of one benchmark; `error` is None when all is well."""

    benchmark: str
    error: str | None
    executable: str | None = None
    size: str | None = None  # None when the benchmark was built, but not run
    elapsed_s: float | None = None
    max_rss_bytes: int | None = None  # None when not run, or too small to tell
    checked: bool = False  # its output was compared
    run_dir: str | None = None  # kept when it failed
    remarks: tuple[str, ...] = ()


def pick_size(benchmark: Benchmark, name: str | None) -> Size | None:
    """Return the size called `name`; without a name `test`, else the first."""
    if name is None:
        first = next(iter(benchmark.sizes.values()))
        return benchmark.sizes.get("test", first)
    return benchmark.sizes.get(name)


def try_build(benchmark: Benchmark, tune: str, cache: Path) -> SuiteTrial:
    """Build a benchmark, or find its command."""
    try:
        built = build(benchmark, tune, cache)
    except RaterError as error:
        return SuiteTrial(benchmark=benchmark.name, error=str(error))
    return SuiteTrial(benchmark=benchmark.name, error=None, executable=str(built.executable))


@contextmanager
def trial_folder(cache: Path) -> Iterator[Path]:
    """Make the folder for the run directories of some trials; it stays when one of them does.

    Its name is new every time: a folder of an earlier process is never in the way.
    """
    with cache_errors(cache):
        (cache / "work").mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="check-", dir=cache / "work"))
    try:
        yield work
    finally:
        with suppress(OSError):  # not empty: a trial failed
            work.rmdir()


def try_setup(
    suite: Suite, size_name: str | None, cache: Path, limits: Limits
) -> SetupFiles | None:
    """Run the set-up of a suite, if it has one; return its files, for `try_run`.

    Raises `InputError` when it fails.
    """
    environment = {**os.environ, **dict(suite.environment), "RATER_COPIES": "1"}
    sizes = (pick_size(benchmark, size_name) for benchmark in suite.benchmarks)
    wanted_files = made_files(size for size in sizes if size is not None)
    return set_up_suite(suite, cache, environment, wanted_files, limits)


def try_run(
    benchmark: Benchmark,
    tune: str,
    size_name: str | None,
    *,
    cache: Path,
    work: Path,
    limits: Limits,
    suite: Suite | None = None,
    setup_files: SetupFiles | None = None,
) -> SuiteTrial:
    """Build and run one copy alone, not bound, and compare its output.

    Its run directory below `work` is removed when all is well and kept otherwise.
    `left` is what the set-up of `suite` made (`try_setup`), None when it failed or there
    is none. `limits` are those of the copy, and of its set-up.
    """
    trial = SuiteTrial(benchmark=benchmark.name, error=None)
    size = pick_size(benchmark, size_name)
    if size is None:
        size_names = ", ".join(benchmark.sizes)
        return replace(trial, error=f"has no size {size_name}; there are: {size_names}")
    if setup_files is None and made_files((size,)):
        return replace(trial, error="needs what the set-up of its suite makes")
    try:
        built = build(benchmark, tune, cache, size)
        trial = replace(trial, executable=str(built.executable), size=size.name)
        commands = command_lines(benchmark, size, built)
        program = Program(
            name=benchmark.name,
            argv=to_argv(commands, accepted=benchmark.accept_exit),
            inputs=ready_inputs(benchmark, size, cache, setup_files),
            expected=size.expected,
            directory=None,
            metrics=benchmark.metrics,
            environment=benchmark_environment(suite, benchmark, size, cache),
            threads=benchmark.threads,
            setup=setup_argv(benchmark),
            setup_limits=limits,
            folders=folders_of(commands),
            accepted=benchmark.accept_exit,
        )
    except RaterError as error:
        return replace(trial, error=str(error))
    identity = str(uuid4())
    folders = RunFolders(
        work=work,
        uuid=identity,
        programs={program.name: program},
        placements=(_UNBOUND,),
        added=(),
        keep=False,
    )
    try:
        return _run(trial, benchmark, size, folders, limits)
    finally:
        kill_marked(f"{MARKER}={identity}".encode().__eq__)


def _run(
    trial: SuiteTrial, benchmark: Benchmark, size: Size, folders: RunFolders, limits: Limits
) -> SuiteTrial:
    step = Step(benchmark.name, 1)
    try:
        spec = folders.spec(0, 0, step)
    except RaterError as error:
        return replace(trial, error=str(error))
    try:
        ended = run_alone(spec.argv, Path(spec.directory), spec.environment, limits)
    except OSError as error:
        folders.clear(spec)
        return replace(trial, error=f"cannot be started: {error.strerror}")
    except BaseException:  # interrupted: nothing was found out that its files could explain
        folders.clear(spec)
        raise
    problem = _failure(ended, spec, limits)
    metrics: tuple[tuple[str, float], ...] = ()
    if problem is None:
        try:
            with Checker() as checker:
                [result] = folders.judge([(step, spec)], checker)
        except BaseException:  # interrupted, as above
            folders.clear(spec)
            raise
        problem, metrics = result.detail, result.metrics
    units = {metric.name: metric.unit for metric in benchmark.metrics}
    remarks = [f"{name}: {value:.6g} {units[name]}".rstrip() for name, value in metrics]
    if not size.expected:
        remarks.append("no expected output: any answer passes")
    stated_bytes, used_bytes = size.total_memory_bytes or size.memory_bytes, ended.max_rss_bytes
    if (
        stated_bytes is not None
        and used_bytes is not None
        and used_bytes > stated_bytes * _MORE_MEMORY
    ):
        suite_key = "memory_mb" if size.total_memory_bytes is None else "memory_total_mb"
        remarks.append(
            f"used {used_bytes / 1e6:.0f} MB, the suite states {suite_key} = {stated_bytes / 1e6:g}"
        )
    if problem is None:
        folders.clear(spec)
    return replace(
        trial,
        error=problem,
        elapsed_s=ended.elapsed_s,
        max_rss_bytes=used_bytes,
        checked=bool(size.expected),
        run_dir=None if problem is None else spec.directory,
        remarks=(*remarks, *folders.take_notices()),
    )


def _failure(ended: ChildEnded, spec: CopySpec, limits: Limits) -> str | None:
    if ended.excess is not None:
        return excess_text(ended.excess, limits)
    if ended.exit_code in (0, *spec.accepted):
        return None
    failure = failed_command(spec.argv, spec.stderr, ended.exit_code, ended.signal)
    if failure is not None:
        return failure
    if ended.signal is not None:
        return f"was killed by {signal_name(ended.signal)}"
    return f"ended with exit code {ended.exit_code}"
