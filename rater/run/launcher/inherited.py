"""What rater itself was given, which its copies get as it came; and why one could not begin."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from rater.errors import InputError, RaterError, RunError
from rater.record.run import MemoryPolicy, Placement
from rater.run.host.admission import limiting_groups
from rater.run.host.procfs import read_number
from rater.text.cpuset import format_list, numbers_of
from rater.text.secrets import command_text

# -- The environment: byte for byte, twice the same name and entries without one included ---------

# What Python sets in its own environment where there is no locale (PEP 538).
_COERCED = (b"LC_CTYPE", (b"C.UTF-8", b"C.utf8", b"UTF-8"))


@cache
def _given() -> tuple[tuple[bytes, bytes], ...]:
    """Return name and whole entry of all that this process was started with, in order."""
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        return ()
    entries = block.removesuffix(b"\0").split(b"\0") if block else []
    return tuple((entry.partition(b"=")[0] if b"=" in entry else b"", entry) for entry in entries)


def inherited_environment() -> dict[bytes, bytes]:
    """Return the variables of this process but those that Python itself has added."""
    found = {name: value for name, value in os.environb.items() if name}
    name, values = _COERCED
    if found.get(name) in values and all(name != given for given, _ in _given()):
        del found[name]
    return found


def variables(wanted: Mapping[bytes, bytes], but: Container[bytes]) -> Iterator[bytes]:
    """Yield NAME=VALUE of what is wanted `but` these; what is as it was given stays where it was.

    So do entries that are no variables, and later ones of the same name.
    """
    same: dict[bytes, bool] = {b"": True}
    for name, entry in _given():
        if name not in same:  # of two the first counts
            value = wanted.get(name)
            same[name] = value is not None and b"%b=%b" % (name, value) == entry
        if same[name] and name not in but:
            yield entry
    for name, value in wanted.items():
        if name not in but and not same.get(name):
            yield b"%b=%b" % (name, value)


# -- Memory policies as set_mempolicy(2) has them --------------------------------------------------

MODES = {
    MemoryPolicy.NONE: -1,
    MemoryPolicy.BIND: 2,
    MemoryPolicy.INTERLEAVE: 3,
    MemoryPolicy.LOCAL: 4,
    MemoryPolicy.PREFERRED: 5,  # MPOL_PREFERRED_MANY, or MPOL_PREFERRED where there is none
    MemoryPolicy.WEIGHTED: 6,
}


# -- Why a process could not begin: in words, with the way out -------------------------------------

_CPUSET = "a cpuset (Slurm, a container) narrows the"
_PROGRAMS = {
    errno.ENOENT: "the program, or what its first line names to run it, is not there",
    errno.EACCES: "it may not be executed: `chmod +x`, or its file system is mounted noexec",
    errno.E2BIG: "arguments and variables are longer than the kernel takes: see `getconf ARG_MAX`",
    errno.ENOEXEC: "it is no program for this machine (`file` tells for which it is)",
    errno.ETXTBSY: "somebody writes to it: run it once that is done",
    errno.ENOMEM: "no memory is left",
}


def cannot_execute(number: int, argv: Sequence[str]) -> str:
    """Return why a copy that was released could not be executed, with the way out."""
    why = _PROGRAMS.get(number, "see its file and the limits of this shell")
    return f"could not be executed: {os.strerror(number)} ({command_text(argv)[:120]}): {why}"


def cannot_fork(who: str, number: int, argv: Sequence[str]) -> RaterError:
    """Return the error of a process that does not exist."""
    short = "no memory is left for it"
    if number == errno.EAGAIN:
        short = f"as many processes and threads run as may: {', '.join(_most_processes())}"
    return RunError(
        f"{who} could not be started: {os.strerror(number)} ({command_text(argv)[:120]}): {short}"
    )


def _most_processes() -> Iterator[str]:
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if most != resource.RLIM_INFINITY:
        yield f"`ulimit -u` is {most}"
    for folder, _, name in limiting_groups(Path("/"), "pids"):
        if (most_here := read_number(folder / "pids.max")) is not None:
            yield f"pids.max of cgroup {name} is {most_here}"
    yield f"kernel.pid_max is {read_number(Path('/proc/sys/kernel/pid_max'))}"


def cannot_go(who: str, where: str, number: int, path: str) -> RaterError:
    """Return the error of a process whose directory or files could not be opened."""
    return RunError(
        f"{who} could not be started: {where} {path}: {os.strerror(number)}; make room on "
        "its disk, or see who may write there"
    )


def cannot_bind_cpus(who: str, placement: Placement, number: int, given: bytes) -> RaterError:
    """Return the error of CPUs that the kernel did not give, or not all of them (`number` 0)."""
    wanted = format_list(sorted(placement.cpus or ()))
    if number:
        return InputError(
            f"{who}: CPUs {wanted}: the kernel does not let rater use them "
            f"({os.strerror(number)}); see `rater run --dry-run` and the cpuset of this shell"
        )
    got = format_list(numbers_of(int.from_bytes(given, "little")))
    return RunError(
        f"{who}: asked for CPUs {wanted}, the kernel gave {got}: {_CPUSET} mask; "
        "run with --layout none, or inside a cpuset that has these CPUs"
    )


def cannot_bind_memory(
    who: str, placement: Placement, number: int, given: bytes, *, refused: bool
) -> RaterError:
    """Return the error of a memory policy; `number`: errno, or what the kernel has instead."""
    nodes = format_list(placement.memory_nodes)
    if refused:
        on = f" on nodes {nodes}" if nodes else ""
        return RunError(
            f"{who}: the kernel refused memory policy {placement.memory_policy}{on} "
            f"({os.strerror(number)}); run with --mem none to leave memory to the kernel"
        )
    got = format_list(numbers_of(int.from_bytes(given, "little"))) or "none"
    return RunError(
        f"{who}: asked for memory policy {placement.memory_policy} {nodes}, the kernel has policy "
        f"number {number} on nodes {got}: {_CPUSET} nodes; run with --mem local, or inside a "
        "cpuset that has these nodes"
    )
