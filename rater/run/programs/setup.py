"""Set-up commands of suites and benchmarks: run before copies are timed, never with them."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from rater.errors import InputError, RunError
from rater.plan.suite.model import Benchmark, Size, Suite
from rater.run.programs.child_process import (
    NO_LIMITS,
    Excess,
    Limits,
    both_ends,
    cut,
    kill_group,
    last_will,
    wait_within,
    written_bytes,
)
from rater.run.programs.compile import cache_errors, find_command, key_of
from rater.run.programs.inputs import SetupFiles, flush_file_system, locked, take_files

OUTPUT = "setup.out"  # of a copy's set-up, in its run directory
_LINES = 20  # shown of what a failed set-up printed


def setup_folder(suite: Suite, cache: Path) -> Path:
    """Return the folder that a suite's set-up works in, kept from run to run."""
    return cache / "setup" / key_of(str(suite.path), *suite.setup)[:32]


def environment_of(
    suite: Suite | None, benchmark: Benchmark, size: Size, cache: Path
) -> tuple[tuple[str, str], ...]:
    """Return what copies of a benchmark find in their environment beside the user's own."""
    merged = dict(suite.environment) if suite is not None else {}
    merged |= dict(benchmark.environment) | dict(size.environment)
    if suite is not None:
        merged |= _variables(suite, cache)
    return tuple(merged.items())


def setup_argv(benchmark: Benchmark) -> tuple[str, ...]:
    """Return the command line of a benchmark's set-up, empty when it has none."""
    if not benchmark.setup:
        return ()
    program = find_command(benchmark.setup[0], f"set-up of benchmark {benchmark.name}")
    return (str(program), *benchmark.setup[1:])


def made_files(sizes: Iterable[Size]) -> tuple[str, ...]:
    """Return the files that a suite's set-up has to leave for some sizes."""
    inputs = (wanted for size in sizes for wanted in size.inputs)
    return tuple(wanted.made for wanted in inputs if wanted.made is not None)


def set_up_suite(
    suite: Suite,
    cache: Path,
    environment: Mapping[str, str],
    made: Iterable[str] = (),
    limits: Limits = NO_LIMITS,
) -> SetupFiles | None:
    """Run the set-up of a suite in its folder; return the files called `made` that it left.

    All that it left is on disk then, and nothing of its folder in the page cache.
    None without a set-up. Another rater that does the same is waited for, and waits
    until the files are copied. Raises `InputError` with the last lines of what it printed
    when it fails or takes more than `limits`.
    """
    if not suite.setup:
        return None
    where = f"set-up of suite {suite.name}"
    program = str(find_command(suite.setup[0], where))
    folder = setup_folder(suite, cache)
    with cache_errors(cache):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder), tempfile.TemporaryFile(dir=folder.parent) as output:
            merged = {**environment, **_variables(suite, cache)}
            encoded = {os.fsencode(name): os.fsencode(value) for name, value in merged.items()}
            argv = (program, *suite.setup[1:])
            try:
                wrong = _run(argv, folder, encoded, output, limits=limits)
            except OSError as error:
                raise InputError(
                    f"{where}: {program} cannot be started: {error.strerror}"
                ) from None
            if wrong is not None:
                text = _last_lines(both_ends(output.fileno()))
                raise InputError(
                    f"{where} {wrong}: {shlex.join(suite.setup)}{text}\n(it ran in {folder})"
                )
            # Writing back what it wrote must not fall into a measurement, nor can it be
            # dropped before; where this is refused there is nothing else to be done.
            flush_file_system(folder)
            return take_files(folder, made, cache)


class SetupStopped(Exception):  # noqa: N818 - no error: somebody does not want it any more
    """A set-up was stopped before it had ended."""


def set_up_copy(
    argv: tuple[str, ...],
    run_dir: Path,
    environment: Mapping[bytes, bytes],
    who: str,
    *,
    stop: Callable[[], bool] = lambda: False,
    limits: Limits = NO_LIMITS,
) -> None:
    """Run the set-up of one copy (`who`) in its run directory.

    It inherits the binding of the calling thread; what it leaves running goes on while
    the copy runs. What it says is kept, in `OUTPUT`, only when it fails. `stop` is asked
    a few times a second.
    Raises `RunError` when it fails or takes more than `limits`, `SetupStopped` when it
    was stopped.
    """
    path = run_dir / OUTPUT
    shown = shlex.join(argv)
    with path.open("w+b") as output:
        try:
            wrong = _run(argv, run_dir, environment, output, limits=limits, stop=stop)
        except OSError as error:
            raise RunError(
                f"set-up of {who} cannot be started: {error.strerror} ({shown})"
            ) from None
        text = both_ends(output.fileno()) if wrong is not None else ""
    if wrong is not None:
        raise RunError(
            f"set-up of {who} {wrong}: {shown}{_last_lines(text)}\n(its files are in {run_dir})"
        )
    with suppress(OSError):
        path.unlink()


def _run(
    argv: tuple[str, ...],
    folder: Path,
    environment: Mapping[bytes, bytes],
    output: IO[bytes],
    *,
    limits: Limits,
    stop: Callable[[], bool] = lambda: False,
) -> str | None:
    """Run a set-up in a process group of its own; return what went wrong, in words.

    The group of one that did not end well is killed. Raises `OSError` when it cannot
    be started, `SetupStopped` when it was stopped.
    """
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        process_group=0,
        preexec_fn=last_will(),  # noqa: PLW1509 (only where there are no other threads)
    )
    ended_well = False
    try:
        excess = wait_within(process.pid, limits, (output.fileno(),), stop)
        ended_well = excess is None and process.wait() == 0
    finally:
        if not ended_well:
            kill_group(process.pid)
            process.wait()
    if excess is Excess.STOPPED:
        raise SetupStopped
    if excess is Excess.TIME:
        return f"was not done after {limits.time_s:g} s (--timeout)"
    if excess is Excess.OUTPUT:
        written, limit = written_bytes((output.fileno(),)), limits.output_bytes or 0
        cut((output.fileno(),))
        return (
            f"wrote {written / 1e6:.0f} MB of output, more than {limit / 1e6:.0f} MB "
            "(--output-limit of rater run)"
        )
    return None if ended_well else _ended(process.returncode)


def _variables(suite: Suite, cache: Path) -> dict[str, str]:
    found = {"RATER_SUITE_DIR": str(suite.path.parent)}
    if suite.setup:
        found["RATER_SETUP_DIR"] = str(setup_folder(suite, cache))
    return found


def _ended(status: int) -> str:
    return f"ended with status {status}" if status > 0 else f"was killed by signal {-status}"


def _last_lines(text: str) -> str:
    lines = text.splitlines()[-_LINES:]
    return "".join(f"\n{line}" for line in lines)
