"""Which other processes used the CPUs of a phase, as far as they were seen; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rater.record.events import ForeignProcess
from rater.record.stored import StoredRun
from rater.text.values import group_by_key, percent, printable


def foreign_by_cpu(run: StoredRun) -> dict[tuple[int, int], tuple[ForeignProcess, ...]]:
    """Return the processes that were none of the run's by phase and CPU, the busiest first.

    A phase and CPU without an entry had none that used 2 % of it, or none is known: a phase of
    less than a second and a half, `--proof off`, an older rater, an imported run.
    """
    processes = sorted(run.without_torn().foreign_processes, key=_by_share)
    rows = group_by_key(((process.phase, process.cpu), process) for process in processes)
    return {key: tuple(of_cpu) for key, of_cpu in rows.items()}


def worst_process(
    processes: Iterable[ForeignProcess], phase: int, cpus: Collection[int]
) -> ForeignProcess | None:
    """Return the process that used most of one of these CPUs in a phase; None: none is known."""
    there = (process for process in processes if process.phase == phase and process.cpu in cpus)
    return min(there, key=_by_share, default=None)


def process_name(process: ForeignProcess) -> str:
    """Return in words which process it is: `burn (PID 123)`."""
    # A database can be somebody else's: its names are as hostile as those of the kernel.
    return f"{printable(process.name, _LONGEST_NAME)} (PID {process.pid})"


def process_text(process: ForeignProcess) -> str:
    """Return in words what a process took: `burn (PID 123) took 47 % of CPU 1`."""
    return f"{process_name(process)} took {percent(process.share, 0)} % of CPU {process.cpu}"


_LONGEST_NAME = 15  # characters: what `ForeignProcess` says of it


def _by_share(process: ForeignProcess) -> tuple[float, int, int, int]:
    return -process.share, process.phase, process.cpu, process.pid
