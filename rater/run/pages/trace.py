"""A program under the tracer, and the analyser that reads what it refers to meanwhile."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rater.errors import InputError, RunError
from rater.plan.pages.words import VARIABLE, PageOrder
from rater.run.copies.launch import CopySpec
from rater.run.page_sizes.machine import reserves
from rater.run.pages.tools import TOOL, TraceTools
from rater.run.programs.child_process import (
    Excess,
    Limits,
    both_ends,
    kill_group,
    last_will,
    wait_within,
)
from rater.settings.paths import sysroot

_PIPE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TraceAnalysis:
    """What the analyser is asked for."""

    arrays: tuple[str, ...]  # of the TLB, as it takes them
    mappings: tuple[str, ...]
    rate: float = 1.0
    threads: int = 1

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command line behind the analyser's name."""
        words = [word for it in self.arrays for word in ("-t", it)]
        words += [word for it in self.mappings for word in ("-m", it)]
        return (*words, "-s", repr(self.rate), "-j", str(self.threads))


@dataclass(frozen=True, slots=True)
class Traced:
    """What one traced run gave."""

    document: dict[str, Any]  # of the analyser
    elapsed_s: float
    status: int  # exit code, or less than 0 the signal that ended it


def tracer_words(tools: TraceTools, descriptor: int, *, told: bool) -> tuple[str, ...]:
    """Return what stands in front of each traced command; `told`: it says what its ranges are."""
    return (
        str(tools.valgrind.program),
        "-q",
        f"--tool={TOOL}",
        "--trace-children=yes",
        f"--page-fd={descriptor}",
        f"--page-inode={os.fstat(descriptor).st_ino}",
        f"--told-ranges={'yes' if told else 'no'}",
    )


def run_traced(
    tools: TraceTools,
    running: Callable[[tuple[str, ...], Callable[[CopySpec], Traced]], Traced],
    analysis: TraceAnalysis,
    limits: Limits,
    library: Path | None,
) -> Traced:
    """Trace one run to its end, with the library of page sizes where it can be preloaded.

    `running` is given what stands in front of each command, and what to do in the run directory
    that it makes. Raises `InputError` where it cannot be started,
    `RunError` where it takes more than `limits`, or nothing could be made of its references.
    """
    reading, writing = os.pipe()
    with suppress(OSError):
        _widen(writing)
    ends = {reading, writing}

    def traced(spec: CopySpec) -> Traced:
        with tools.library_folder() as libraries:
            environment = {**spec.environment, b"VALGRIND_LIB": os.fsencode(libraries)}
            environment.pop(b"VALGRIND_OPTS", None)
            if library is not None:
                environment |= _preloaded(library, spec.environment)
            with subprocess.Popen(
                [str(tools.analyser), *analysis.arguments],
                stdin=reading,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
                preexec_fn=last_will(),  # noqa: PLW1509 (only where there are no other threads)
            ) as analyser:
                try:
                    _close(ends, reading)
                    ended = run_to_end(spec, environment, limits, (writing,))
                    _close(ends, writing)  # the last writer: the analyser has read all
                    output, problem = analyser.communicate()
                finally:
                    kill_group(analyser.pid)
        if analyser.returncode != 0:
            text = problem.decode(errors="replace").strip() or ended_text(analyser.returncode)
            raise RunError(f"the analyser of page references failed: {text}")
        return Traced(json.loads(output), *ended)

    try:
        return running(tracer_words(tools, writing, told=library is not None), traced)
    finally:
        for end in tuple(ends):
            _close(ends, end)


def _close(ends: set[int], end: int) -> None:
    ends.discard(end)
    os.close(end)


def _widen(descriptor: int) -> None:
    """Give a pipe more room: fewer switches between writer and reader. Raises `OSError`."""
    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _preloaded(library: Path, of: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the variables that let a program lay out its data as `rater run --pages` does.

    All in base pages, and it tells the tracer what is where.
    """
    heap, mmap = reserves(None, {}, sysroot())
    order = PageOrder((), heap, mmap, split=True, pooled=False, strict=False)
    before = of.get(b"LD_PRELOAD", b"")
    return {
        b"LD_PRELOAD": b":".join([os.fsencode(library), *([before] if before else [])]),
        VARIABLE.encode(): order.words(None).encode(),
    }


def ended_text(status: int) -> str:
    """Say how a process ended, by its status as `run_to_end` returns it."""
    return f"was killed by signal {-status}" if status < 0 else f"ended with exit code {status}"


def run_to_end(
    spec: CopySpec,
    environment: Mapping[bytes, bytes],
    limits: Limits,
    descriptors: Sequence[int] = (),
) -> tuple[float, int]:
    """Return how long it took, in s, and its status: an exit code, or less than 0 a signal.

    `descriptors` are those it inherits. Raises `InputError` where it cannot be started, `RunError`
    where it takes more than `limits` or the tracer cannot run it.
    """
    with Path(spec.stdout).open("wb") as stdout, Path(spec.stderr).open("w+b") as stderr:
        start = time.monotonic()
        try:
            process = subprocess.Popen(
                spec.argv,
                cwd=spec.directory,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=descriptors,
                process_group=0,
                preexec_fn=last_will(),  # noqa: PLW1509 (only where there are no other threads)
            )
        except OSError as error:
            raise InputError(f"{spec.argv[0]} cannot be started: {error.strerror}") from None
        try:
            outputs = (stdout.fileno(), stderr.fileno())
            excess = wait_within(process.pid, limits, outputs)
            elapsed_s = time.monotonic() - start
            kill_group(process.pid)
            status = process.wait()
        finally:
            kill_group(process.pid)
            process.wait()
        text = both_ends(stderr.fileno())
    if excess is Excess.TIME:
        raise RunError(
            f"{spec.argv[0]} was not done after {limits.time_s:g} s: a smaller input, or more "
            "time with --timeout"
        )
    if excess is Excess.OUTPUT:
        raise RunError(f"{spec.argv[0]} wrote more than 1 GB of output")
    if status and "valgrind: " in text:
        at = text.index("valgrind: ")
        raise RunError(f"the tracer could not run {spec.argv[-1]}: {text[at : at + 300]}")
    return elapsed_s, status
