"""What carries a fleet's jobs to their nodes: Slurm, or processes of this machine."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import batched, groupby, product
from math import prod
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from rater.fleet import local_job
from rater.fleet.plan import FILES, JobPhase, JobSeen
from rater.fleet.shared_folder import read_ours
from rater.system.errors import InputError, RunError
from rater.system.files import Trusted, open_file
from rater.system.process import ProcessId, boot_id, is_alive

# -- Names of many nodes in one word, as Slurm writes them: `n[001-128,200],login1` ----------------

MOST_NODES = 20_000
_TOO_MANY = f"more than {MOST_NODES} nodes"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_BRACKETS = re.compile(r"(?:[^\[\]]|\[[^\[\]]*\])*")
_TERM = re.compile(r"((?:[^\[\],]|\[[^\[\]]*\])*)(,?)")  # to a comma outside of brackets
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_NUMBERED = re.compile(r"(.*?)(\d{1,9})")


def expand(text: str) -> tuple[str, ...]:
    """Return the names that a text stands for, in its order, each once.

    `n[1-3,7]` is n1, n2, n3, n7; `n[08-10]` keeps the zeros; several brackets multiply.
    Raises `InputError` for what is none, and for more than `MOST_NODES`.
    """
    if not _BRACKETS.fullmatch(text):
        raise _bad(text, "brackets do not match")
    names: dict[str, None] = {}
    for term, more in _TERM.findall(text):
        if not term.strip():
            raise _bad(text, "a name is missing")
        parts = [
            [part[2]] if part[1] is None else list(_numbers(part[1], text))
            for part in _PART.finditer(term.strip())
        ]
        if prod(map(len, parts)) > MOST_NODES:
            raise _bad(text, _TOO_MANY)
        for name in map("".join, product(*parts)):
            if not _NAME.fullmatch(name):
                raise _bad(text, f"{name!r} is no name of a node")
            names[name] = None
        if len(names) > MOST_NODES:
            raise _bad(text, _TOO_MANY)
        if not more:
            break
    return tuple(names)


def compress(names: Iterable[str]) -> str:
    """Return the shortest text of this kind for names: those that end in a number, in brackets."""
    terms = []
    for (prefix, width), of_prefix in groupby(_split(names), key=lambda it: it[:2]):
        if width is None:
            terms += [prefix for _ in of_prefix]
            continue
        numbers = sorted({number for _, _, number in of_prefix})
        ranges = []
        for _, run in groupby(enumerate(numbers), key=lambda it: it[1] - it[0]):
            first, *_, last = [number for _, number in run] * 2
            ranges.append(f"{first:0{width}}" + (f"-{last:0{width}}" if last > first else ""))
        terms.append(prefix + (ranges[0] if len(numbers) == 1 else f"[{','.join(ranges)}]"))
    return ",".join(terms)


def _split(names: Iterable[str]) -> list[tuple[str, int | None, int]]:
    """Return prefix, digits that numbers are padded to (0: none) and number; None: no number."""
    parts: list[tuple[str, int | None, int]] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            parts.append((name, None, 0))
        else:
            padded = len(match[2]) if match[2].startswith("0") else 0
            parts.append((match[1], padded, int(match[2])))
    # n098, n099, n100: the last one has the width of the first ones, though it begins with no 0.
    widths = {(prefix, width) for prefix, width, _ in parts if width}
    even = [
        (
            prefix,
            len(str(number)) if width == 0 and (prefix, len(str(number))) in widths else width,
            number,
        )
        for prefix, width, number in parts
    ]
    return sorted(even, key=lambda it: (it[0], -1 if it[1] is None else it[1], it[2]))


def _numbers(ranges: str, text: str) -> Iterator[str]:
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise _bad(text, f"[{ranges}]: {part!r} is neither a number nor FIRST-LAST")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise _bad(text, f"[{ranges}]: {part} runs backwards")
        if int(last) - int(first) >= MOST_NODES:
            raise _bad(text, _TOO_MANY)
        width = len(first) if first.startswith("0") or len(first) == len(last) else 0
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{width}}"


def _bad(text: str, problem: str) -> InputError:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return InputError(f"--nodes {shown!r}: {problem}; expected names such as 'n[001-128]' or n1,n2")


# -- What carries jobs, and what rater asks of it --------------------------------------------------
#
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

    def nodes(self, names: Sequence[str]) -> tuple[FleetNode, ...]:
        """Return those of the names that the scheduler has, in this order."""

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


# -- Jobs as processes of this machine: to try a fleet out, and to hold the four calls honest ------
#
# A "node" is a name. All of them are this machine, whose agents wait for each other. The folder
# of a job has its process, and how it ended.


class LocalBackend:
    """The four calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "jobs"

    def nodes(self, names: Sequence[str]) -> tuple[FleetNode, ...]:
        """Return all of them: a name is a node."""
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
        words = [sys.executable, "-I", "-S", "-B", local_job.__file__, str(folder), limit_s]
        with os.fdopen(open_file(order.log, os.O_WRONLY | os.O_APPEND), "ab") as log:
            subprocess.run(
                [*words, str(order.notice_s), *command],
                cwd=order.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )
        return name

    def poll(self, jobs: Mapping[str, str | None]) -> Mapping[str, JobSeen]:
        """Look at the folders of jobs."""
        seen_jobs: dict[str, JobSeen] = {}
        for name, job in jobs.items():
            same = [job] if job is not None else [it.name for it in self._folder.glob(f"{name}.*")]
            for job_folder in same:
                seen = self._seen(job_folder)
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
        with suppress(OSError):
            said = read_ours(self._folder / job / "end").decode(errors="replace")
            word, _, reason = said.partition(" ")
            return JobSeen(job, JobPhase.ENDED, word, reason.strip() or None)
        if runs:
            return JobSeen(job, JobPhase.RUNNING, "RUNNING")
        return JobSeen(job, JobPhase.ENDED, "NODE_FAIL")  # killed with who looked at its end


# -- Slurm by its own commands: sbatch, squeue, scontrol, sacct, sinfo, scancel --------------------
#
# One exclusive job a node whose script `exec`s the agent: there is no srun, so that nothing narrows
# the CPUs, and SIGTERM reaches the agent itself. Nothing of the submitting shell reaches the node
# (`--export=NONE`, `--propagate=NONE`). Checked with Slurm 22.05.

_LIMIT_S = 30.0  # of one command; `squeue` gives up by itself after MessageTimeout (10 s)
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
        missing = [it for it in ("sbatch", "squeue", "scancel", "sinfo") if not shutil.which(it)]
        if missing:
            raise InputError(
                f"{', '.join(missing)}: not on this machine: call rater where Slurm's commands are "
                "(a login node), or see docs/how-to/fleet.md for machines without a scheduler"
            )

    def nodes(self, names: Sequence[str]) -> tuple[FleetNode, ...]:
        """Return those that Slurm has."""
        said = self._run("sinfo", "-h", "-N", "-o", "%N|%T|%u|%H|%E", "-n", compress(names))
        lines_by_node = {
            line.split("|", 1)[0]: line for line in said.splitlines() if line.count("|") > 3
        }
        return tuple(_node(lines_by_node[name]) for name in names if name in lines_by_node)

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
        environment = {
            name: value for name, value in os.environ.items() if not _OWN.fullmatch(name)
        }
        try:
            done = subprocess.run(
                words,
                input=input_text,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LIMIT_S,
                env=environment | {"LC_ALL": "C"},
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SchedulerUnavailableError(
                f"{words[0]} gave no answer in {_LIMIT_S:g} s"
            ) from None
        except OSError as error:
            raise SchedulerUnavailableError(f"{words[0]}: {error.strerror}") from error
        if done.returncode == 0:
            return done.stdout
        said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        if _LATER.search(said):
            raise SchedulerUnavailableError(said)
        raise JobRejectedError(said.removeprefix(f"{words[0]}: ").removeprefix("error: "))


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


# -- The backends by name; what makes one is called with the fleet's folder ------------------------

BACKENDS: dict[str, Callable[[Path], Backend]] = {
    "slurm": lambda _: SlurmBackend(),
    "local": LocalBackend,
}
POLL_S = {"slurm": 10.0, "local": 0.1}  # between two looks of who waits


def backend(name: str, folder: Path) -> Backend:
    """Return a backend. Raises `InputError` where it can not be used here."""
    if name == FILES:
        raise InputError(
            "this fleet was made of databases (--from): rater does not know how to reach its hosts"
        )
    if name not in BACKENDS:  # of a fleet that a newer rater made
        raise InputError(f"backend {name}: this rater knows {', '.join(BACKENDS)}")
    return BACKENDS[name](folder)
