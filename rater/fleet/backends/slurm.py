"""Slurm by its own commands: sbatch, squeue, scontrol, sacct, sinfo, scancel."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import batched

from rater.fleet.backends.node_names import compress
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

# One exclusive job a node whose script `exec`s the agent: there is no srun, so that nothing narrows
# the CPUs, and SIGTERM reaches the agent itself. Nothing of the submitting shell reaches the node
# (`--export=NONE`, `--propagate=NONE`). Checked with Slurm 22.05.

_IDS_AT_ONCE = 500  # of one command line
_MOST_ONE_BY_ONE = 8  # jobs that scontrol is asked for in one look
# They change what the commands do, or say that this is a job itself.
_OWN = re.compile(r"(SBATCH|SQUEUE|SCANCEL|SINFO|SCONTROL|SACCT|SALLOC)_\w+|SLURM_(?!CONF$)\w+")
_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
}
# A job in one of these states still holds its node.
_RUNNING = {"RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "SUSPENDED", "STOPPED"}
# What may be different a minute later; everything else that sbatch says is final.
_LATER = re.compile(
    r"unable to contact|socket timed out|timed out|connection refused|zero bytes were transmitted|"
    r"temporarily (disabled|unable|unavailable)|resource temporarily|limit.*submi|"
    r"QOSMaxSubmit|AssocMaxSubmit|MaxSubmitJobs|too many|maximum number of jobs|"
    r"communication (failure|connection)|transport endpoint|slurm backup controller",
    re.IGNORECASE,
)
_SQUEUE = "%i|%j|%T|%r"
_NO_REASON = ("", "None", "(null)")


class SlurmBackend:
    """The four calls."""

    def __init__(self) -> None:
        require_commands("sbatch", "squeue", "scancel", "sinfo")

    def nodes(self, names: Sequence[str], partition: str | None = None) -> tuple[FleetNode, ...]:
        """Return those that Slurm has, of a partition where one is named."""
        words = ["sinfo", "-h", "-N", "-o", "%N|%T|%u|%H|%E"]
        words += ["-n", compress(names)] if names else []
        words += ["-p", partition] if partition is not None else []
        said = self._run(*words)
        lines_by_node = {
            line.split("|", 1)[0]: line for line in said.splitlines() if line.count("|") > 3
        }
        wanted = names or [*lines_by_node]
        return tuple(_node(lines_by_node[name]) for name in wanted if name in lines_by_node)

    def submit(self, job: Trusted[JobSpec]) -> str:
        """Call sbatch with the script on standard input: it keeps a copy of its own."""
        said = self._run(*sbatch_words(job.value), input_text=script(job.value))
        number = said.strip().split(";")[0]
        if not re.fullmatch(r"\d+", number):
            raise SchedulerUnavailableError(
                f"sbatch said {said.strip()[:200]!r} in place of a job's number"
            )
        return number

    def poll(self, jobs: Mapping[str, str | None]) -> Mapping[str, JobSeen]:
        """Ask squeue for all jobs of this user at once, then sacct for all that have ended."""
        if not jobs:
            return {}
        said = self._run("squeue", "-h", "-t", "all", "-u", str(os.geteuid()), "-o", _SQUEUE)
        seen_jobs = jobs_of_squeue(said, jobs)
        gone = {
            name: job
            for name, job in jobs.items()
            if job is not None
            and (name not in seen_jobs or seen_jobs[name].phase is JobPhase.ENDED)
        }
        ended = self._ended([*gone.values()], {job.job for job in seen_jobs.values()})
        return seen_jobs | {name: ended[job] for name, job in gone.items() if job in ended}

    def cancel(self, ids: Sequence[str], *, gently: bool) -> None:
        """Take waiting jobs out of the queue, and tell running ones."""
        running = ("--batch", "--signal=USR1", "--state=RUNNING") if gently else ()
        for some in batched(ids, _IDS_AT_ONCE):
            for words in (("--state=PENDING",), running):
                with suppress(JobRejectedError):  # of jobs that have ended
                    self._run("scancel", "--quiet", *words, *some)

    def _ended(self, jobs: Sequence[str], in_squeue: Collection[str]) -> dict[str, JobSeen]:
        """Return how jobs ended, as far as anything knows.

        sacct says it of all at once. Without accounting scontrol knows as long as squeue does
        (MinJobAge), and tells of one job at a time: of few it is asked.
        """
        ended: dict[str, JobSeen] = {}
        for some in batched(jobs, _IDS_AT_ONCE):
            with suppress(JobRejectedError):  # no accounting here
                words = ("-n", "-P", "-X", "-j", ",".join(some), "-o", "JobID,State,ExitCode")
                ended |= jobs_of_sacct(self._run("sacct", *words))
        left = [job for job in jobs if job not in ended and job in in_squeue]
        for job in left[:_MOST_ONE_BY_ONE]:
            with suppress(JobRejectedError):  # "Invalid job id specified": forgotten since
                if seen := job_of_scontrol(self._run("scontrol", "show", "job", "-o", job)):
                    ended[job] = seen
        return ended

    def _run(self, *words: str, input_text: str = "") -> str:
        """Call a command of Slurm's. Raises `SchedulerUnavailableError`, `JobRejectedError`."""
        environment = environment_without(_OWN)
        return run_command(words, later=_LATER, environment=environment, input_text=input_text)


def sbatch_words(order: JobSpec) -> tuple[str, ...]:
    """Return the command line that submits a job."""
    return (
        *("sbatch", "--parsable", f"--job-name={order.name}"),
        *("--nodes=1", f"--nodelist={order.node}", "--exclusive", "--mem=0"),
        *("--no-requeue", "--open-mode=append", "--export=NONE", "--propagate=NONE"),
        *(f"--signal=B:USR1@{order.notice_s}", f"--chdir={order.directory}"),
        f"--output={str(order.log).replace('%', '%%')}",
        *(() if order.minutes is None else (f"--time={order.minutes}",)),
        *order.arguments,  # the site's last: of two that contradict each other sbatch takes these
    )


def script(order: JobSpec) -> str:
    """Return the batch script: nothing but the command, in place of the shell."""
    quoted = shlex.join(order.command)
    job = "'\"$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}\"'"
    return f"#!/bin/sh\nexec {quoted.replace('{job}', job)}\n"


def _node(line: str) -> FleetNode:
    """Return a node from `sinfo -N -o '%N|%T|%u|%H|%E'`."""
    name, word, user, since, reason = line.strip().split("|", 4)
    why = None if reason in ("none", *_NO_REASON) else f"{reason} ({user}, {since})"
    return FleetNode(name, word, word == "idle", why)


def jobs_of_squeue(said: str, jobs: Mapping[str, str | None]) -> dict[str, JobSeen]:
    """Return what squeue says of these jobs; of two with one name the one asked for by its id."""
    seen_jobs: dict[str, JobSeen] = {}
    for line in said.splitlines():
        job, _, rest = line.strip().partition("|")
        name, _, rest = rest.partition("|")
        word, _, reason = rest.partition("|")
        if name not in jobs or jobs[name] not in (None, job):
            continue
        seen = _seen(job, word, reason)
        before = seen_jobs.get(name)
        if before is None or before.phase is JobPhase.ENDED:  # submitted twice: what still is
            seen_jobs[name] = seen
    return seen_jobs


def job_of_scontrol(said: str) -> JobSeen | None:
    """Return a job from `scontrol show job -o`."""
    values = dict(re.findall(r"(?:^|\s)(JobId|JobState|Reason|ExitCode)=(\S*)", said))
    if "JobId" not in values or "JobState" not in values:
        return None
    seen = _seen(values["JobId"], values["JobState"], values.get("Reason", ""))
    return _with_exit(seen, values.get("ExitCode", ""))


def jobs_of_sacct(said: str) -> dict[str, JobSeen]:
    """Return jobs from `sacct -n -P -X -o JobID,State,ExitCode`; of several lines the latest."""
    lines = [line.split("|") for line in said.splitlines() if line.count("|") == 2]
    return {
        job: _with_exit(_seen(job, state.split(" ")[0], ""), exit_code)
        for job, state, exit_code in lines
    }


def _seen(job: str, word: str, reason: str) -> JobSeen:
    why = None if reason in _NO_REASON else reason
    if word in _ENDED:
        return JobSeen(job, JobPhase.ENDED, word, why)
    phase = JobPhase.RUNNING if word in _RUNNING else JobPhase.PENDING
    return JobSeen(job, phase, word, why)


def _with_exit(seen: JobSeen, exit_code: str) -> JobSeen:
    """Add how an ended job's script ended: `9:0` an exit status, `0:15` a signal."""
    code, _, signal = exit_code.partition(":")
    ending = f"signal {signal}" if signal not in ("", "0") else f"exit status {code}"
    if seen.phase is not JobPhase.ENDED or seen.word in ("NODE_FAIL", "CANCELLED", "TIMEOUT"):
        return seen
    if signal == "53":  # of slurmd: its files could not be opened
        ending = "signal 53: is the fleet's folder there on the node?"
    return JobSeen(seen.job, seen.phase, seen.word, ending if code else seen.reason)
