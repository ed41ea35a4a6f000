"""Jobs as processes of this machine: to try a fleet out, and to hold the four calls honest.

A "node" is a name. All of them are this machine, whose agents wait for each other. What is known of
a job lies in a folder: its process, and how it ended.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rater.plan.fleet.attempt import JobPhase, JobSeen
from rater.process_id import ProcessId, boot_id, is_alive
from rater.run.fleet import local_job
from rater.run.fleet.backend import FleetNode, JobOrder, NotTakenError


class Local:
    """The four calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "jobs"

    def nodes(self, names: Sequence[str]) -> tuple[FleetNode, ...]:
        """Return all of them: a name is a node."""
        return tuple(FleetNode(name, "idle", True) for name in names)

    def submit(self, order: JobOrder) -> str:
        """Start a process that starts the job's, in a session of its own, and looks at its end."""
        if order.arguments:
            raise NotTakenError(f"{order.arguments[0]}: this backend takes no options of a site")
        job = f"{order.name}.j{secrets.token_hex(3)}"
        folder = self._folder / job
        folder.mkdir(parents=True, mode=0o700)
        command = [word.replace("{job}", job) for word in order.command]
        limit_s = "-" if order.minutes is None else str(order.minutes * 60)
        words = [sys.executable, "-I", "-S", "-B", local_job.__file__, str(folder), limit_s]
        with order.log.open("ab") as log:
            subprocess.run(
                [*words, str(order.notice_s), *command],
                cwd=order.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )
        return job

    def poll(self, jobs: Mapping[str, str | None]) -> Mapping[str, JobSeen]:
        """Look at the folders of jobs."""
        found: dict[str, JobSeen] = {}
        for name, job in jobs.items():
            same = [job] if job is not None else [it.name for it in self._folder.glob(f"{name}.*")]
            for one in same:
                seen = self._seen(one)
                if seen and (name not in found or found[name].phase is JobPhase.ENDED):
                    found[name] = seen
        return found

    def cancel(self, ids: Sequence[str], *, gently: bool) -> None:
        """Signal the job's process."""
        for job in ids:
            for process in self._processes(job)[:1]:
                if is_alive(process):
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGUSR1 if gently else signal.SIGTERM)

    def _processes(self, job: str) -> list[ProcessId]:
        """Return the job's process, then the one that looks at its end; none before it began."""
        try:
            lines = (self._folder / job / "process").read_text().splitlines()
        except OSError:
            return []
        numbers = [map(int, line.split()) for line in lines]
        return [ProcessId(pid, start, boot_id()) for pid, start in numbers]

    def _seen(self, job: str) -> JobSeen | None:
        processes = self._processes(job)
        if not processes:
            return None  # its submitter was killed before it had begun
        # Asked before its end is read: who looks at it writes that, and is gone only then.
        runs = any(map(is_alive, processes))
        with suppress(OSError):
            word, _, reason = (self._folder / job / "end").read_text().partition(" ")
            return JobSeen(job, JobPhase.ENDED, word, reason.strip() or None)
        if runs:
            return JobSeen(job, JobPhase.RUNNING, "RUNNING")
        return JobSeen(job, JobPhase.ENDED, "NODE_FAIL")  # killed with who looked at its end
