"""Set-up commands of suites and benchmarks: run before copies are timed, never with them."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from rater.errors import InputError, RunError
from rater.plan.suite import Benchmark, Size, Suite
from rater.run.build import cache_errors, find_command, key_of
from rater.run.child import both_ends, kill_group, last_will, run_tool
from rater.run.prepare import locked

OUTPUT = "setup.out"  # of a copy's set-up, in its run directory
_LINES = 20  # shown of what a failed set-up said
_LOOK_MS = 100  # how often a set-up that runs is asked whether it is still wanted


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


def set_up_suite(suite: Suite, cache: Path, environment: Mapping[str, str]) -> Path | None:
    """Run the set-up of a suite in its folder and return that; None without a set-up.

    Another rater that does the same is waited for. Raises `InputError` with the last
    lines of what it said when it fails.
    """
    if not suite.setup:
        return None
    where = f"set-up of suite {suite.name}"
    program = str(find_command(suite.setup[0], where))
    folder = setup_folder(suite, cache)
    with cache_errors(cache):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        try:
            ended = run_tool(
                [program, *suite.setup[1:]], folder, {**environment, **_variables(suite, cache)}
            )
        except OSError as error:
            raise InputError(f"{where}: {program} cannot be started: {error.strerror}") from None
    if ended.status:
        raise InputError(
            f"{where} {_ended(ended.status)}: {shlex.join(suite.setup)}{_last_lines(ended.said)}\n"
            f"(it ran in {folder})"
        )
    return folder


class SetupStopped(Exception):  # noqa: N818 - no error: somebody does not want it any more
    """A set-up was stopped before it had ended."""


def set_up_copy(
    argv: tuple[str, ...],
    run_dir: Path,
    environment: Mapping[bytes, bytes],
    who: str,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Run the set-up of one copy (`who`) in its run directory.

    It inherits the binding of the calling thread; what it leaves running goes on while
    the copy runs. What it says is kept, in `OUTPUT`, only when it fails. `stop` is asked
    a few times a second.
    Raises `RunError` when it fails, `SetupStopped` when it was stopped.
    """
    path = run_dir / OUTPUT
    shown = shlex.join(argv)
    with path.open("w+b") as output:
        try:
            process = subprocess.Popen(
                argv,
                cwd=run_dir,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=last_will(),  # noqa: PLW1509 (only where there are no other threads)
            )
        except OSError as error:
            raise RunError(
                f"set-up of {who} cannot be started: {error.strerror} ({shown})"
            ) from None
        try:
            _wait(process, stop)
        except BaseException:
            kill_group(process.pid)
            process.wait()
            raise
        said = both_ends(output.fileno()) if process.returncode else ""
    if process.returncode:
        kill_group(process.pid)
        raise RunError(
            f"set-up of {who} {_ended(process.returncode)}: {shown}{_last_lines(said)}\n"
            f"(its files are in {run_dir})"
        )
    with suppress(OSError):
        path.unlink()


def _wait(process: subprocess.Popen[bytes], stop: Callable[[], bool]) -> None:
    handle = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        while not poll.poll(_LOOK_MS):
            if stop():
                raise SetupStopped
    finally:
        os.close(handle)
    process.wait()


def _variables(suite: Suite, cache: Path) -> dict[str, str]:
    found = {"RATER_SUITE_DIR": str(suite.path.parent)}
    if suite.setup:
        found["RATER_SETUP_DIR"] = str(setup_folder(suite, cache))
    return found


def _ended(status: int) -> str:
    return f"ended with status {status}" if status > 0 else f"was killed by signal {-status}"


def _last_lines(said: str) -> str:
    lines = said.splitlines()[-_LINES:]
    return "".join(f"\n{line}" for line in lines)
