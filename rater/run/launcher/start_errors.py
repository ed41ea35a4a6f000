"""Why a process could not begin: in words, with the way out."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path

from rater.record.run import Placement
from rater.run.host.admission import limiting_groups
from rater.run.host.procfs import read_number
from rater.run.host.thread_binding import KernelPolicy, cannot_bind_cpus, cannot_bind_memory
from rater.run.launcher.copies import Child
from rater.run.launcher.table import Record, StartStep
from rater.system.errors import RaterError, RunError
from rater.text.cpuset import numbers_of
from rater.text.secrets import command_text


def start_error(child: Child, place: Placement, record: Record) -> RaterError:
    """Return why a process did not come as far as its program, by a record of a broken start.

    `StartStep.EXECUTE` is no such error: the copy was released by then and fails alone, by
    `cannot_execute`, while the others run on.
    """
    spec, step = child.spec, StartStep(record.status)
    prefix, reason = f"{child.label}: ", os.strerror(record.error)
    mask_given = int.from_bytes(record.text, "little")
    match step:
        case StartStep.CPUS | StartStep.CPUS_GIVEN:
            refused = reason if step is StartStep.CPUS else numbers_of(mask_given)
            return cannot_bind_cpus(place, refused, prefix)
        case StartStep.MEMORY:
            return cannot_bind_memory(place, reason, prefix)
        case StartStep.MEMORY_GIVEN:
            return cannot_bind_memory(place, KernelPolicy(record.error, mask_given), prefix)
        case StartStep.FORKED:
            return cannot_fork(child.label, record.error, spec.argv)
    paths = {
        StartStep.OUTPUT: spec.stdout,
        StartStep.ERROR: spec.stderr,
        StartStep.DIRECTORY: spec.directory,
    }
    if step in _SETUP_ADVICE:
        what, advice = _SETUP_ADVICE[step]
        return RunError(f"{prefix}the kernel refused it {what} ({reason}): {advice}")
    return cannot_open(child.label, step.name.lower(), record.error, paths.get(step, ""))


_FILTER = "a filter of system calls, as containers have, may forbid that: run rater outside of it"
# What a process asks of the kernel for itself: no file has to do with it.
_SETUP_ADVICE = {
    StartStep.GROUP: ("a process group and open files of its own", _FILTER),
    StartStep.PRIORITY: (
        "the priority that rater was started with",
        "start rater without `nice` and `chrt`, or with a priority that this user may set",
    ),
    StartStep.PAGES: (
        "its setting of transparent huge pages",
        f"leave out --hugepages, or {_FILTER}",
    ),
    StartStep.LIMITS: (
        "the limits that rater was started with",
        f"see `ulimit -Hn` and `ulimit -Hx`; {_FILTER}",
    ),
}


# By errno of execve(2).
_EXEC_ADVICE = {
    errno.ENOENT: "the program, or what its first line names to run it, is not there",
    errno.EACCES: "it may not be executed: `chmod +x`, or its file system is mounted noexec",
    errno.E2BIG: "arguments and variables are longer than the kernel takes: see `getconf ARG_MAX`",
    errno.ENOEXEC: "it is no program for this machine (`file` tells for which it is)",
    errno.ETXTBSY: "somebody writes to it: run it once that is done",
    errno.ENOMEM: "no memory is left",
}


def cannot_execute(error_number: int, argv: Sequence[str]) -> str:
    """Return why the program of a released copy could not be executed, with the way out."""
    advice = _EXEC_ADVICE.get(error_number, "see its file and the limits of this shell")
    reason = os.strerror(error_number)
    return f"could not be executed: {reason} ({command_text(argv)[:120]}): {advice}"


def cannot_fork(label: str, error_number: int, argv: Sequence[str]) -> RaterError:
    """Return the error of a process that the kernel did not make."""
    lack = _full_machine() if error_number == errno.EAGAIN else "no memory is left for it"
    reason = os.strerror(error_number)
    return RunError(f"{label} could not be started: {reason} ({command_text(argv)[:120]}): {lack}")


def find_process_lack(error: BaseException) -> RunError | None:
    """Return what is said where the kernel has no room for a process or thread of rater's own.

    None: the error is another one, or not that alone.
    """
    if isinstance(error, BaseExceptionGroup):
        lacks = [find_process_lack(member) for member in error.exceptions]
        return None if None in lacks else lacks[0]
    # Python has no class of its own for it.
    is_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    if not is_thread and not isinstance(error, BlockingIOError):
        return None
    what = "thread" if is_thread else "process"
    return RunError(f"rater could not start a {what} of its own: {_full_machine()}")


def _full_machine() -> str:
    return f"as many processes and threads run as may: {', '.join(_process_limits())}"


def _process_limits() -> Iterator[str]:
    soft_limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if soft_limit != resource.RLIM_INFINITY:
        yield f"`ulimit -u` is {soft_limit}"
    for folder, _, name in limiting_groups(Path("/"), "pids"):
        if (cgroup_limit := read_number(folder / "pids.max")) is not None:
            yield f"pids.max of cgroup {name} is {cgroup_limit}"
    yield f"kernel.pid_max is {read_number(Path('/proc/sys/kernel/pid_max'))}"


def cannot_open(label: str, step: str, error_number: int, path: str) -> RaterError:
    """Return the error of a process whose directory or files could not be opened."""
    return RunError(
        f"{label} could not be started: {step} {path}: {os.strerror(error_number)}; make room on "
        "its disk, or see who may write there"
    )
