"""What carries a fleet's jobs to their nodes: four calls, and nothing else.

Another scheduler, or ssh, is one more file beside `slurm.py` with a class of these four calls, and
a line in `BACKENDS` of `rater/run/fleet/backends.py`. What rater asks of it:

- a job is known by its *name*, which is the same however often it is submitted, and by the *id*
  that `submit` returned. After a submitter was killed there is only the name;
- a job may be submitted twice with one name: the agent on the node sees to it that one of them
  runs (`claim` in `shared_folder.py`);
- to end a job gently is SIGUSR1 to its first process, which is the agent;
- nothing is ever concluded from a call that raises `SilentError`. It is made again later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rater.errors import RunError
from rater.plan.fleet.attempt import JobSeen


class SilentError(RunError):
    """The scheduler gave no answer, or said that it cannot give one now: ask again later."""


class NotTakenError(RunError):
    """The scheduler answered that it does not take such a job; the message is its own."""


@dataclass(frozen=True, slots=True)
class FleetNode:
    """A node as the scheduler has it."""

    name: str
    word: str  # the scheduler's: idle, drained*, allocated
    is_idle: bool


@dataclass(frozen=True, slots=True)
class JobOrder:
    """A job: one command, alone on one node."""

    name: str
    node: str
    command: tuple[str, ...]  # absolute; `{job}` in a word becomes the id of the job
    directory: Path  # where it starts
    log: Path  # what it prints is appended there
    minutes: int | None  # time limit; None: the scheduler's own
    arguments: tuple[str, ...] = ()  # of the site, as `--slurm-arg` has them

    @property
    def notice_s(self) -> int:
        """How long before the time limit the job is told (SIGUSR1): time to publish what is."""
        return 120 if self.minutes is None else max(15, min(120, self.minutes * 60 // 4))


class Backend(Protocol):
    """The four calls."""

    def nodes(self, names: Sequence[str]) -> tuple[FleetNode, ...]:
        """Return those of the names that the scheduler has, in this order. Raises `SilentError`."""
        ...

    def submit(self, order: JobOrder) -> str:
        """Submit a job and return its id.

        Raises `NotTakenError` where it can not be submitted as it is, `SilentError` where it is
        not known whether it was.
        """
        ...

    def poll(self, jobs: Mapping[str, str | None]) -> Mapping[str, JobSeen]:
        """Return what is known of jobs, by name; `jobs` has their ids, None where not known.

        A job that the scheduler does not know is left out. Raises `SilentError`.
        """
        ...

    def cancel(self, ids: Sequence[str], *, gently: bool) -> None:
        """End jobs: those that wait at once; those that run by SIGUSR1 when `gently`.

        A job that has ended is no error. Raises `SilentError`.
        """
        ...
