"""Set-up commands of copies, before each run: where the copy will run, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rater.errors import RaterError
from rater.plan.placement.place import Placement
from rater.run.copies.launch import CopySpec
from rater.run.host.thread_binding import ThreadBinding
from rater.run.programs.setup import SetupStopped, set_up_copy
from rater.run.workplace.program import Program


@dataclass(frozen=True, slots=True)
class SetupsDone:
    """How the set-ups of a phase ended."""

    error: RaterError | None  # the first one; the others were ended for it
    kept: frozenset[str]  # places of the files of those that failed


def set_up_all(
    setups: Sequence[tuple[Placement, Program, CopySpec]], workers: int, stop: Callable[[], bool]
) -> SetupsDone:
    """Set up copies, `workers` at a time, until one fails or `stop` is true."""
    failed = threading.Event()

    def unwanted() -> bool:
        return failed.is_set() or stop()

    def one(setup: tuple[Placement, Program, CopySpec]) -> RaterError | None:
        if unwanted():
            return None
        try:
            set_up(*setup, unwanted)
        except SetupStopped:
            return None
        except RaterError as error:
            failed.set()
            return error
        return None

    with ThreadPoolExecutor(min(workers, len(setups))) as pool:
        errors = list(pool.map(one, setups))
    kept = {spec.files for (_, _, spec), error in zip(setups, errors, strict=True) if error}
    return SetupsDone(next((it for it in errors if it is not None), None), frozenset(kept))


def set_up(
    placement: Placement, program: Program, spec: CopySpec, stop: Callable[[], bool]
) -> None:
    """Run the set-up command of one copy, bound as it will be; raises `SetupStopped`."""
    with ThreadBinding() as binding:
        binding.apply(placement)
        set_up_copy(
            program.setup,
            Path(spec.directory),
            spec.environment,
            f"copy {placement.copy} of {program.name}",
            stop=stop,
            limits=program.setup_limits,
        )
