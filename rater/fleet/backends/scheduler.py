"""What carries jobs to nodes, and what rater asks of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from rater.fleet.plan import JobSeen
from rater.system.errors import InputError, RunError
from rater.system.files import Trusted

# Another scheduler, or ssh, is one more class of these four calls and a line in `BACKENDS`. What
# rater asks of it:
#
# - a job is known by its *name*, which is the same however often it is submitted, and by the *id*
#   that `submit` returned. After a submitter was killed there is only the name;
# - a job may be submitted twice with one name: the agent on the node sees to it that one of them
#   runs (`claim` in `shared_folder.py`);
# - to end a job gently is SIGUSR1 to its first process, which is the agent;
# - nothing is ever concluded from a call that raises `SchedulerUnavailableError`.


class SchedulerUnavailableError(RunError):
    """The scheduler gave no answer, or said that it cannot give one now: ask again later."""


class JobRejectedError(RunError):
    """The scheduler answered that it does not take such a job; the message is its own."""


class FleetNode(Struct, frozen=True):
    """A node as the scheduler has it."""

    name: str
    word: str  # the scheduler's: idle, drained*, allocated
    is_idle: bool
    reason: str | None = None  # why it takes no jobs, who said so, and when


class JobSpec(Struct, frozen=True, kw_only=True):
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
    """The four calls; all may raise `SchedulerUnavailableError`: it is called again later."""

    def nodes(self, names: Sequence[str], partition: str | None = None) -> tuple[FleetNode, ...]:
        """Return those of the names that the scheduler has, in this order.

        Without names all that there are, of a partition or queue. Raises `InputError` where the
        backend has no such list.
        """

    def submit(self, job: Trusted[JobSpec]) -> str:
        """Submit a job and return its id. Raises `JobRejectedError`, after which no retry helps."""

    def poll(self, jobs: Mapping[str, str | None]) -> Mapping[str, JobSeen]:
        """Return the states of jobs by name; `jobs` has their ids, or None for an unknown id.

        A job that the scheduler does not know is left out.
        """

    def cancel(self, ids: Sequence[str], *, gently: bool) -> None:
        """End jobs: those that wait at once; those that run by SIGUSR1 when `gently`.

        A job that has ended is no error.
        """


# -- Commands of schedulers ------------------------------------------------------------------------

_LIMIT_S = 30.0  # of one command
NO_PATTERN: Final = re.compile(r"(?!)")  # nothing that a command says is different later


def run_command(
    words: Sequence[str],
    *,
    later: re.Pattern[str],
    environment: Mapping[str, str],
    input_text: str = "",
) -> str:
    """Call a command of a scheduler and return what it prints.

    Raises `SchedulerUnavailableError` where it cannot answer, or says so in words that `later`
    finds, else `JobRejectedError` with its own words.
    """
    try:
        done = subprocess.run(
            words,
            input=input_text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            env={**environment, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SchedulerUnavailableError(f"{words[0]} gave no answer in {_LIMIT_S:g} s") from None
    except OSError as error:
        raise SchedulerUnavailableError(f"{words[0]}: {error.strerror}") from error
    if done.returncode == 0:
        return done.stdout
    said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
    if later.search(said):
        raise SchedulerUnavailableError(said)
    raise JobRejectedError(said.removeprefix(f"{words[0]}: ").removeprefix("error: "))


def environment_without(names: re.Pattern[str]) -> dict[str, str]:
    """Return our variables but those of a scheduler that change what its commands do."""
    return {name: value for name, value in os.environ.items() if not names.fullmatch(name)}


def require_commands(*names: str) -> None:
    """Raise `InputError` for commands of a scheduler that are not on this machine."""
    if missing := [name for name in names if not shutil.which(name)]:
        raise InputError(
            f"{', '.join(missing)}: not on this machine: call rater where the scheduler's commands "
            "are (a login node), or see docs/how-to/fleet.md for machines without a scheduler"
        )
