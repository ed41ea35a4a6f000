"""Nodes by ssh: the jobs of the backend `local`, each started and looked at on its node.

All nodes see the fleet's folder, rater and its interpreter under the same paths, as with a
scheduler. Keys, users and ports are those of ssh's own configuration: `RATER_SSH` replaces the
command (`ssh -F FILE`). There is no queue, and nobody keeps others off a node.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from rater.fleet.backends.local import PROGRAM, LocalBackend
from rater.fleet.backends.node_names import NODE_NAME
from rater.fleet.backends.scheduler import (
    NO_PATTERN,
    FleetNode,
    JobRejectedError,
    JobSpec,
    SchedulerUnavailableError,
    require_commands,
    run_command,
)
from rater.fleet.plan import JobPhase, JobSeen
from rater.fleet.shared_folder import read_ours
from rater.system.errors import InputError

_OPTIONS: Final = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-T")
_AT_ONCE: Final = 16  # connections
_GIVE_UP_S: Final = 600.0  # a node that is not reached for so long has failed; it may publish late
_UNKNOWN_NAME: Final = "could not resolve hostname"


class SshBackend(LocalBackend):
    """The four calls."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._command = shlex.split(os.environ.get("RATER_SSH") or "ssh")
        if not self._command:
            raise InputError("RATER_SSH: expected a command such as `ssh -F FILE`")
        require_commands(self._command[0])

    def nodes(self, names: Sequence[str], partition: str | None = None) -> tuple[FleetNode, ...]:
        """Return those whose name is known; one that cannot be reached has the reason."""
        named = super().nodes(names, partition)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            nodes = pool.map(self._node, (node.name for node in named))
            return tuple(node for node in nodes if node is not None)

    def cancel(self, ids: Sequence[str], *, gently: bool) -> None:
        """Signal the job's process on its node; one that is not reached is asked later again."""
        word = "USR1" if gently else "TERM"
        for job in ids:
            with suppress(JobRejectedError, SchedulerUnavailableError, OSError):
                folder = self._folder / job
                self._on(self._node_of(job), *PROGRAM, "--signal", word, str(folder))

    def _start(self, order: JobSpec, folder: Path, words: Sequence[str]) -> None:
        (folder / "node").write_text(order.node)
        log = shlex.quote(str(order.log))
        start = shlex.join([*PROGRAM, *words])
        script = f"cd {shlex.quote(str(order.directory))} && exec {start} </dev/null >>{log} 2>&1"
        try:
            self._on(order.node, "/bin/sh", "-c", script)
        except SchedulerUnavailableError as error:  # of one node: others can be reached
            raise JobRejectedError(str(error)) from error

    def _states_of(self, jobs: Sequence[str]) -> dict[str, JobSeen]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            states = pool.map(self._seen, jobs)
            return {job: state for job, state in zip(jobs, states, strict=True) if state}

    def _seen(self, job: str) -> JobSeen | None:
        if ended := self.ended(job):
            return ended
        folder = self._folder / job
        if not (folder / "process").exists():
            return None  # its submitter was killed before it had begun
        since = folder / "unreached"
        try:
            said = self._on(self._node_of(job), *PROGRAM, "--alive", str(folder)).strip()
        except (JobRejectedError, SchedulerUnavailableError, OSError) as error:
            if not since.exists():
                since.write_text(f"{time.time():.0f}")
            if time.time() - float(read_ours(since)) < _GIVE_UP_S:
                return JobSeen(job, JobPhase.RUNNING, "UNREACHED", str(error))
            why = f"not reached for {_GIVE_UP_S / 60:.0f} minutes: {error}"
            return JobSeen(job, JobPhase.ENDED, "NODE_FAIL", why)
        since.unlink(missing_ok=True)
        if said == "alive":
            return JobSeen(job, JobPhase.RUNNING, "RUNNING")
        # Who looked at its end writes that before it goes; else it was killed, or the node booted.
        return self.ended(job) or JobSeen(job, JobPhase.ENDED, "NODE_FAIL")

    def _node(self, name: str) -> FleetNode | None:
        try:
            self._on(name, "true")
        except (JobRejectedError, SchedulerUnavailableError) as error:
            if _UNKNOWN_NAME in str(error).lower():
                return None
            return FleetNode(name, "down", is_idle=False, reason=str(error))
        return FleetNode(name, "idle", is_idle=True)

    def _node_of(self, job: str) -> str:
        """Return the node of a job; raises `OSError` where nobody wrote one down."""
        node = read_ours(self._folder / job / "node").decode(errors="replace")
        if not NODE_NAME.fullmatch(node):
            raise OSError(f"{node!r} is no name of a node")
        return node

    def _on(self, node: str, *words: str) -> str:
        """Run a command on a node and return what it prints."""
        ssh = (*self._command, *_OPTIONS, node, shlex.join(words))
        return run_command(ssh, later=NO_PATTERN, environment=os.environ)
