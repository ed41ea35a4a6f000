"""What a run needs before it can begin: programs built, inputs made, memory and disk looked at."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rater.commands.request import Request
from rater.commands.resolve import Resolved, Workload, needs_of
from rater.errors import InputError
from rater.run.build import Built, build, find_command
from rater.run.prepare import ReadyInput, links_work, ready_inputs
from rater.run.workplace import Program


@dataclass(frozen=True, slots=True)
class Ready:
    """A resolved run with everything it needs of this machine's disks."""

    resolved: Resolved
    work: Path  # where its run directories go; exists
    built: tuple[Built, ...]  # by workload
    inputs: tuple[tuple[ReadyInput, ...], ...]  # by workload
    programs: dict[str, Program]  # by benchmark


def make_ready(resolved: Resolved, cache: Path, work: Path, later: Callable[..., object]) -> Ready:
    """Build and make what is missing; `later(function, argument)` is called when the run is over.

    Raises `InputError` for what can not be built, found or does not fit.
    """
    request = resolved.request
    built = tuple(build(w.benchmark, request.tune, cache) for w in resolved.workloads)
    inputs = tuple(ready_inputs(w.benchmark, w.size, cache) for w in resolved.workloads)
    try:
        work.mkdir(parents=True)
    except OSError as error:
        raise InputError(
            f"{work}: cannot be made ({error.strerror}); set RATER_CACHE to a folder of yours"
        ) from error
    later(_remove_if_empty, work)
    linked = all(links_work(some, work) for some in inputs)
    needs = needs_of(resolved, work, () if linked else inputs)
    if needs.problems and not request.force:
        raise InputError("\n".join(needs.problems))
    programs = {
        w.benchmark.name: _program(request, w, b, i)
        for w, b, i in zip(resolved.workloads, built, inputs, strict=True)
    }
    return Ready(resolved, work, built, inputs, programs)


def _program(
    request: Request, workload: Workload, built: Built, inputs: tuple[ReadyInput, ...]
) -> Program:
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


def _remove_if_empty(work: Path) -> None:
    with suppress(OSError):  # what failed copies left is kept
        work.rmdir()
