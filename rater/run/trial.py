"""Try one benchmark: build it, run one copy alone, compare its output."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rater.errors import RaterError
from rater.plan.suite import Benchmark, Size
from rater.run.build import build, cache_errors
from rater.run.child import AloneEnded, run_alone
from rater.run.output import check_output
from rater.run.prepare import ReadyInput, make_run_dir, ready_inputs, run_dir_name

_MORE_MEMORY = 1.1  # than stated is worth a word


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial of one benchmark showed; `error` is None when all is well."""

    benchmark: str
    error: str | None
    executable: str | None = None
    size: str | None = None  # None: it was built, not run
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


def try_build(benchmark: Benchmark, tune: str, cache: Path) -> Trial:
    """Build a benchmark, or find its command."""
    try:
        built = build(benchmark, tune, cache)
    except RaterError as error:
        return Trial(benchmark.name, str(error))
    return Trial(benchmark.name, None, str(built.executable))


@contextmanager
def trial_folder(cache: Path) -> Iterator[Path]:
    """Make the folder for the run directories of some trials; it stays when one of them does.

    Its name is new every time: what an earlier process left is never in the way.
    """
    with cache_errors(cache):
        (cache / "work").mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="check-", dir=cache / "work"))
    try:
        yield work
    finally:
        with suppress(OSError):  # not empty: a trial failed
            work.rmdir()


def try_run(
    benchmark: Benchmark,
    tune: str,
    size_name: str | None,
    *,
    cache: Path,
    work: Path,
    timeout_s: float,
) -> Trial:
    """Build and run one copy alone, not bound, and compare its output.

    Its run directory below `work` is removed when all is well and kept otherwise.
    """
    trial = Trial(benchmark.name, None)
    size = pick_size(benchmark, size_name)
    if size is None:
        known = ", ".join(benchmark.sizes)
        return replace(trial, error=f"has no size {size_name}; there are: {known}")
    try:
        built = build(benchmark, tune, cache)
        trial = replace(trial, executable=str(built.executable), size=size.name)
        inputs = ready_inputs(benchmark, size, cache)
        return _run(trial, size, built.argv(size), inputs, work=work, timeout_s=timeout_s)
    except RaterError as error:
        return replace(trial, error=str(error))


def _run(
    trial: Trial,
    size: Size,
    argv: tuple[str, ...],
    inputs: Sequence[ReadyInput],
    *,
    work: Path,
    timeout_s: float,
) -> Trial:
    run_dir = make_run_dir(work, run_dir_name(trial.benchmark, 1, 0), inputs)
    environment = os.environ | {
        "RATER_COPY": "0",
        "RATER_CPUS": "",
        "RATER_NODE": "",
        "RATER_RUN_DIR": str(run_dir.path),
    }
    try:
        ended = run_alone(argv, run_dir.path, environment, timeout_s)
    except OSError as error:
        run_dir.remove()
        return replace(trial, error=f"cannot be started: {error.strerror}")
    except BaseException:  # interrupted: nothing was found out that its files could explain
        run_dir.remove()
        raise
    wrong = _failure(ended, timeout_s)
    if wrong is None:
        difference = check_output(run_dir.path, run_dir.stdout, size.expected)
        wrong = None if difference is None else str(difference)
    remarks = [*run_dir.notices]
    remarks += [
        f"writes into its input {i.name}, which all copies share" for i in inputs if i.damaged()
    ]
    if not size.expected:
        remarks.append("no expected output: any answer passes")
    stated, used = size.memory_bytes, ended.max_rss_bytes
    if stated is not None and used is not None and used > stated * _MORE_MEMORY:
        remarks.append(f"used {used / 1e6:.0f} MB, the suite states memory_mb = {stated / 1e6:g}")
    if wrong is None:
        trouble = run_dir.remove()
        remarks += [trouble] if trouble else []
    return replace(
        trial,
        error=wrong,
        elapsed_s=ended.elapsed_s,
        max_rss_bytes=used,
        checked=bool(size.expected),
        run_dir=None if wrong is None else str(run_dir.path),
        remarks=tuple(remarks),
    )


def _failure(ended: AloneEnded, timeout_s: float) -> str | None:
    if ended.timed_out:
        return f"was not done after {timeout_s:g} s (--timeout)"
    if ended.signal is not None:
        return f"was killed by {_signal_name(ended.signal)}"
    return f"ended with exit code {ended.exit_code}" if ended.exit_code else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"
