"""PBS Pro and OpenPBS by their own commands: pbsnodes, qsub, qstat, qselect, qsig, qdel.

Written after the manual (OpenPBS 23.06), not seen on a site.
"""

from __future__ import annotations

import getpass
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from rater.fleet.backends.scheduler import (
    FleetNode,
    JobRejectedError,
    JobSpec,
    SchedulerUnavailableError,
    environment_without,
    require_commands,
    run_command,
)
from rater.fleet.plan import JobPhase, JobSeen
from rater.system.files import Trusted

_OWN: Final = re.compile(r"PBS_(?!CONF_FILE$|DEFAULT$|EXEC$)\w+")  # that this is a job itself
_LATER: Final = re.compile(
    r"cannot connect|connection refused|timed? ?out|server shutting down|busy|temporar|"
    r"would exceed|maximum number of jobs|job limit",
    re.IGNORECASE,
)
_RUNNING: Final = "RBESU"  # letters of states: running, begun, ending, suspended
_ENDED: Final = "FXM"  # finished, expired, moved to another server
_SIGNALS_FROM: Final = 256  # exit status of a job that signal n ended: 256 + n
_WALLTIME: Final = -29  # exit status of a job that PBS ended at its limit
_NOT_FREE: Final = re.compile("offline|down|unknown|unresolvable|stale")


class PbsBackend:
    """The four calls; the id of a job is its number, without the server's name."""

    def __init__(self) -> None:
        require_commands("pbsnodes", "qsub", "qstat", "qselect", "qsig", "qdel")

    def nodes(self, names: Sequence[str], partition: str | None = None) -> tuple[FleetNode, ...]:
        """Return those that PBS has; of a queue those that it alone may use."""
        vnodes = self._read("nodes", "pbsnodes", "-a", "-F", "json")
        known = {
            name: _node(name, vnode)
            for name, vnode in vnodes.items()
            if partition is None or vnode.get("queue") == partition
        }
        return tuple(known[name] for name in names or known if name in known)

    def submit(self, job: Trusted[JobSpec]) -> str:
        """Call qsub with the script on standard input."""
        said = self._run(*qsub_words(job.value), input_text=script(job.value)).strip()
        if not (number := re.match(r"\d+", said)):
            raise SchedulerUnavailableError(f"qsub said {said[:200]!r} in place of a job's number")
        return number[0]

    def poll(self, jobs: Mapping[str, str | None]) -> Mapping[str, JobSeen]:
        """Ask qstat for all jobs at once, finished ones too; qselect for those without a number."""
        numbers = {
            name: self._selected("-N", name) if job is None else {job} for name, job in jobs.items()
        }
        facts = self._facts_of([number for of_name in numbers.values() for number in of_name])
        seen_jobs: dict[str, JobSeen] = {}
        for name, of_name in numbers.items():
            for number in sorted(of_name & facts.keys()):
                seen = seen_job(number, facts[number])
                if name not in seen_jobs or seen_jobs[name].phase is JobPhase.ENDED:
                    seen_jobs[name] = seen
        return seen_jobs

    def cancel(self, ids: Sequence[str], *, gently: bool) -> None:
        """Tell running jobs; take those that wait out of the queue."""
        facts = self._facts_of(ids)
        for job in ids:
            runs = job in facts and facts[job].get("job_state") in _RUNNING
            words = ("qsig", "-s", "SIGUSR1") if gently and runs else ("qdel",)
            with suppress(JobRejectedError):  # of a job that has ended
                self._run(*words, job)

    def _facts_of(self, numbers: Sequence[str]) -> dict[str, Any]:
        """Return what qstat has of jobs by their numbers; it fails where it does not know one."""
        known = [number for number in self._selected() if number in numbers]
        facts = self._read("Jobs", "qstat", "-x", "-f", "-F", "json", *known) if known else {}
        return {job.partition(".")[0]: of_job for job, of_job in facts.items()}

    def _selected(self, *words: str) -> set[str]:
        """Return the numbers of this user's jobs, finished ones too."""
        said = self._run("qselect", "-x", "-u", getpass.getuser(), *words)
        return {line.partition(".")[0] for line in said.split()}

    def _read(self, key: str, *words: str) -> dict[str, Any]:
        """Return an object of the JSON that a command prints."""
        try:
            document = json.loads(self._run(*words) or "{}")
        except ValueError as error:
            raise SchedulerUnavailableError(f"{words[0]}: not JSON: {error}") from error
        named = document.get(key, {}) if isinstance(document, dict) else None
        if not isinstance(named, dict) or not all(isinstance(it, dict) for it in named.values()):
            raise SchedulerUnavailableError(f"{words[0]}: its JSON has no objects in {key!r}")
        return named

    def _run(self, *words: str, input_text: str = "") -> str:
        environment = environment_without(_OWN)
        return run_command(words, later=_LATER, environment=environment, input_text=input_text)


def qsub_words(order: JobSpec) -> tuple[str, ...]:
    """Return the command line that submits a job: one whole node, never started twice by PBS."""
    limit = () if order.minutes is None else ("-l", f"walltime={order.minutes * 60}")
    return (
        *("qsub", "-N", order.name, "-l", f"select=1:host={order.node}", "-l", "place=excl"),
        *(*limit, "-r", "n", "-j", "oe", "-o", str(order.log), "-S", "/bin/sh"),
        *order.arguments,
    )


def script(order: JobSpec) -> str:
    """Return the batch script, which becomes the command; it is signalled before its limit."""
    command = shlex.join(order.command).replace("{job}", "'\"${PBS_JOBID%%.*}\"'")
    notice = ""
    if order.minutes is not None:
        after_s = max(1, order.minutes * 60 - order.notice_s)
        notice = f"(sleep {after_s} && kill -USR1 $$) </dev/null >/dev/null 2>&1 &\n"
    return f"cd {shlex.quote(str(order.directory))} || exit 1\n{notice}exec {command}\n"


def _node(name: str, vnode: Mapping[str, Any]) -> FleetNode:
    state = str(vnode.get("state", "unknown"))
    reason = str(vnode.get("comment") or state) if _NOT_FREE.search(state) else None
    return FleetNode(name, state, state == "free", reason)


def seen_job(number: str, facts: Mapping[str, Any]) -> JobSeen:
    """Return a job as `qstat -x -f -F json` has it."""
    letter, comment = str(facts.get("job_state", "")), facts.get("comment")
    if letter not in _ENDED:
        phase = JobPhase.RUNNING if letter in _RUNNING else JobPhase.PENDING
        why = str(comment) if comment and phase is JobPhase.PENDING else None
        return JobSeen(number, phase, letter, why)
    status = facts.get("Exit_status")
    if status is None:  # it never ran
        return JobSeen(number, JobPhase.ENDED, "CANCELLED", comment and str(comment))
    if status == _WALLTIME:
        return JobSeen(number, JobPhase.ENDED, "TIMEOUT")
    by_signal = status >= _SIGNALS_FROM
    ending = f"signal {status - _SIGNALS_FROM}" if by_signal else f"exit status {status}"
    return JobSeen(number, JobPhase.ENDED, "FAILED" if status else "COMPLETED", ending)
