"""Jobs as processes of this machine: to try a fleet out, and to hold the four calls honest."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from rater.fleet.backends import local_job
from rater.fleet.backends.scheduler import FleetNode, JobRejectedError, JobSpec
from rater.fleet.plan import JobPhase, JobSeen
from rater.fleet.shared_folder import read_ours
from rater.system.errors import InputError
from rater.system.files import Trusted, open_file
from rater.system.process import ProcessId, boot_id, is_alive

# A "node" is a name. All of them are this machine, whose agents wait for each other. The folder
# of a job has its process, and how it ended.


# Starts a job, and looks at its end: with the same interpreter, and nothing of rater.
PROGRAM: Final = (sys.executable, "-I", "-S", "-B", local_job.__file__)


class LocalBackend:
    """The four calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "jobs"

    def nodes(self, names: Sequence[str], partition: str | None = None) -> tuple[FleetNode, ...]:
        """Return all of them: a name is a node."""
        if not names or partition is not None:
            raise InputError("this backend has no list of nodes: name them with --nodes")
        return tuple(FleetNode(name, "idle", True) for name in names)

    def submit(self, job: Trusted[JobSpec]) -> str:
        """Start a process that starts the job's, in a session of its own, and looks at its end."""
        order = job.value
        if order.arguments:
            raise JobRejectedError(f"{order.arguments[0]}: this backend takes no options of a site")
        name = f"{order.name}.j{secrets.token_hex(3)}"
        folder = self._folder / name
        folder.mkdir(parents=True, mode=0o700)
        command = [word.replace("{job}", name) for word in order.command]
        limit_s = "-" if order.minutes is None else str(order.minutes * 60)
        self._start(order, folder, [str(folder), limit_s, str(order.notice_s), *command])
        return name

    def poll(self, jobs: Mapping[str, str | None]) -> Mapping[str, JobSeen]:
        """Look at the folders of jobs."""
        seen_jobs: dict[str, JobSeen] = {}
        folders = {
            name: [job] if job is not None else [it.name for it in self._folder.glob(f"{name}.*")]
            for name, job in jobs.items()
        }
        seen_folders = self._states_of([job for same in folders.values() for job in same])
        for name, same in folders.items():
            for job in same:
                seen = seen_folders.get(job)
                if seen and (name not in seen_jobs or seen_jobs[name].phase is JobPhase.ENDED):
                    seen_jobs[name] = seen
        return seen_jobs

    def cancel(self, ids: Sequence[str], *, gently: bool) -> None:
        """Signal the job's process."""
        for job in ids:
            for process in self._processes(job)[:1]:
                if is_alive(process):
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGUSR1 if gently else signal.SIGTERM)

    def _start(self, order: JobSpec, folder: Path, words: Sequence[str]) -> None:
        """Start `local_job.py` with these words; it returns when the job runs."""
        with os.fdopen(open_file(order.log, os.O_WRONLY | os.O_APPEND), "ab") as log:
            subprocess.run(
                [*PROGRAM, *words],
                cwd=order.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )

    def _states_of(self, jobs: Sequence[str]) -> dict[str, JobSeen]:
        """Return the states of jobs by the names of their folders."""
        seen = {job: self._seen(job) for job in jobs}
        return {job: state for job, state in seen.items() if state is not None}

    def _processes(self, job: str) -> list[ProcessId]:
        """Return the job's process, then the one that looks at its end; none before it began."""
        try:
            lines = read_ours(self._folder / job / "process").decode().splitlines()
            numbers = [map(int, line.split()) for line in lines]
            return [ProcessId(pid, start, boot_id()) for pid, start in numbers]
        except (OSError, ValueError):
            return []

    def _seen(self, job: str) -> JobSeen | None:
        processes = self._processes(job)
        if not processes:
            return None  # its submitter was killed before it had begun
        # Asked before its end is read: who looks at it writes that, and is gone only then.
        runs = any(map(is_alive, processes))
        if ended := self.ended(job):
            return ended
        if runs:
            return JobSeen(job, JobPhase.RUNNING, "RUNNING")
        return JobSeen(job, JobPhase.ENDED, "NODE_FAIL")  # killed with who looked at its end

    def ended(self, job: str) -> JobSeen | None:
        """Return how a job ended; None: nobody has written that down."""
        with suppress(OSError):
            said = read_ours(self._folder / job / "end").decode(errors="replace")
            word, _, reason = said.partition(" ")
            return JobSeen(job, JobPhase.ENDED, word, reason.strip() or None)
        return None
