"""Threads: their CPUs and memory policy, and their turn when every CPU is busy."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rater.plan.placement.memory_policy import MemorySupport
from rater.record.run import MemoryPolicy, Placement
from rater.system.errors import InputError, RaterError, RunError
from rater.text.cpuset import format_list, mask_of, numbers_of

# -- Let the supervisor's own threads run when a copy ends, even when every CPU is busy ------------
#
# With more runnable copies than CPUs an ordinary thread wakes tens of milliseconds
# late, and every finish would be stamped late by as much. As the supervisor sleeps
# nearly always, real-time priority costs the copies nothing; what it starts gets
# ordinary priority back (SCHED_RESET_ON_FORK).


@contextmanager
def realtime_priority() -> Iterator[bool]:
    """Run the calling thread at real-time priority if that is allowed; yield whether it is.

    Left alone when the user chose a policy or niceness: copies are to inherit that.
    """
    if os.sched_getscheduler(0) != os.SCHED_OTHER or os.getpriority(os.PRIO_PROCESS, 0) != 0:
        yield False
        return
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@contextmanager
def on_cpu(cpu: int | None) -> Iterator[None]:
    """Run the calling thread on one CPU if that is allowed, and let it go again."""
    cpus_before: set[int] = set()
    if cpu is not None:
        with suppress(OSError):  # not one of ours
            allowed_cpus = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {cpu})
            cpus_before = allowed_cpus
    try:
        yield
    finally:
        with suppress(OSError):  # its CPUs went offline meanwhile: the kernel has seen to it
            if cpus_before:
                os.sched_setaffinity(0, cpus_before)


# -- CPU affinity and memory policy of one thread, and so of what it starts ------------------------
#
# Both belong to a thread and are inherited through fork and exec, so the first page of a set-up
# or an input lies where it should, with no `taskset` or `numactl` between.

MODES = {  # as set_mempolicy(2) has them
    MemoryPolicy.NONE: -1,
    MemoryPolicy.BIND: 2,
    MemoryPolicy.INTERLEAVE: 3,
    MemoryPolicy.LOCAL: 4,
    MemoryPolicy.PREFERRED: 5,  # MPOL_PREFERRED_MANY, or MPOL_PREFERRED where there is none
    MemoryPolicy.WEIGHTED: 6,
}
_PREFERRED, _LOCAL, _MANY = 1, 4, 5  # before Linux 5.14 _LOCAL is read back as _PREFERRED
_FLAGS = 0b111 << 13  # NUMA_BALANCING, RELATIVE_NODES, STATIC_NODES, or-ed to the mode
_MEMS_ALLOWED = 4  # MPOL_F_MEMS_ALLOWED: ask for the nodes of the cpuset instead
_NODES = 4096  # bits of a node mask here; kernels are built for 1024 at most
# get_mempolicy and set_mempolicy, which libc does not have: <asm/unistd.h> of the architecture.
_GENERIC = (236, 237)
_CALLS = {
    "x86_64": (239, 238),
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
    "loongarch64": _GENERIC,
    "ppc64le": (260, 261),
    "s390x": (269, 270),
}
_REFUSED = (OSError, NotImplementedError)
_CPUSET = "a cpuset (Slurm, a container) narrows the"


class KernelPolicy(NamedTuple):
    """A memory policy as the kernel has it."""

    mode: int  # with its flags
    nodes: int  # mask


@contextmanager
def bound_as(placement: Placement) -> Iterator[None]:
    """Bind the calling thread as a copy is bound.

    Raises `InputError` or `RunError` where the kernel refuses that, or gives less.
    """
    cpus_before, policy_before = os.sched_getaffinity(0), None
    policy, nodes = placement.memory_policy, placement.memory_nodes
    try:
        if placement.cpus is not None:
            try:
                os.sched_setaffinity(0, placement.cpus)
            except OSError as error:
                raise cannot_bind_cpus(placement, os.strerror(error.errno or 0)) from error
            if os.sched_getaffinity(0) != {*placement.cpus}:
                raise cannot_bind_cpus(placement, os.sched_getaffinity(0))
        if policy is not MemoryPolicy.NONE:
            try:
                policy_before = read_policy()
                kernel_policy = _set_policy(policy, nodes)
            except _REFUSED as error:
                raise cannot_bind_memory(placement, str(error)) from error
            if not _is_policy(policy, kernel_policy.mode) or kernel_policy.nodes != mask_of(nodes):
                raise cannot_bind_memory(placement, kernel_policy)
        yield
    finally:  # worker threads are used again: what comes next must find them as they were
        if placement.cpus is not None:
            os.sched_setaffinity(0, cpus_before)
        if policy_before is not None:
            write_policy(policy_before)


def cannot_bind_cpus(
    placement: Placement, reason: str | Collection[int], process_prefix: str = ""
) -> RaterError:
    """Return the error of CPUs that the kernel refused, in its words, or of which it gave some."""
    wanted = format_list(sorted(placement.cpus or ()))
    if isinstance(reason, str):
        return InputError(
            f"{process_prefix}CPUs {wanted}: the kernel does not let rater use them ({reason}); "
            "see `rater run --dry-run` and the cpuset of this shell"
        )
    return RunError(
        f"{process_prefix}asked for CPUs {wanted}, the kernel gave {format_list(sorted(reason))}: "
        f"{_CPUSET} mask; run with --layout none, or inside a cpuset that has these CPUs"
    )


def cannot_bind_memory(
    placement: Placement, reason: str | KernelPolicy, process_prefix: str = ""
) -> RaterError:
    """Return the error of a memory policy that the kernel refused, in its words, or changed."""
    policy, nodes = placement.memory_policy, format_list(placement.memory_nodes)
    if isinstance(reason, str):
        nodes_text = f" on nodes {nodes}" if nodes else ""
        return RunError(
            f"{process_prefix}the kernel refused memory policy {policy}{nodes_text} ({reason}); "
            "run with --mem none to leave memory to the kernel"
        )
    return RunError(
        f"{process_prefix}asked for memory policy {policy} {nodes}, the kernel has policy number "
        f"{reason.mode & ~_FLAGS} on nodes {format_list(numbers_of(reason.nodes)) or 'none'}: "
        f"{_CPUSET} nodes; run with --mem local, or inside a cpuset that has these nodes"
    )


@cache
def memory_support() -> MemorySupport:
    """Return which memory policies the kernel lets threads of this process set, by trying them.

    On a thread of its own: its policy ends with it.
    """
    supports: list[MemorySupport] = []
    thread = threading.Thread(
        target=lambda: supports.append(_try_policies()), name="memory policies"
    )
    thread.start()
    thread.join()
    return supports[0]


def _try_policies() -> MemorySupport:
    try:
        allowed = numbers_of(read_policy(_MEMS_ALLOWED).nodes)
    except _REFUSED as error:
        return MemorySupport(frozenset(), preferred_many=False, reason=str(error))
    mode_by_policy, reasons = {}, [""]
    for policy in MODES.keys() - {MemoryPolicy.NONE}:
        try:
            kernel_policy = _set_policy(policy, () if policy is MemoryPolicy.LOCAL else allowed)
        except _REFUSED as error:
            reasons.append(str(error))
            continue
        if _is_policy(policy, kernel_policy.mode):
            mode_by_policy[policy] = kernel_policy.mode & ~_FLAGS
    return MemorySupport(frozenset(mode_by_policy), _MANY in mode_by_policy.values(), max(reasons))


def _is_policy(policy: MemoryPolicy, mode: int) -> bool:
    mode &= ~_FLAGS
    return mode == MODES[policy] or (mode == _PREFERRED and MODES[policy] in (_LOCAL, _MANY))


def _set_policy(policy: MemoryPolicy, nodes: tuple[int, ...]) -> KernelPolicy:
    """Set the calling thread's policy; return what the kernel took. Raises one of `_REFUSED`."""
    mode, mask = MODES[policy], mask_of(nodes)
    try:
        write_policy(KernelPolicy(mode, mask))
    except OSError as error:
        if mode != _MANY or error.errno != errno.EINVAL:
            raise
        write_policy(KernelPolicy(_PREFERRED, mask))
    return read_policy()


def read_policy(flags: int = 0) -> KernelPolicy:
    """Return the calling thread's policy, or with `_MEMS_ALLOWED` its nodes."""
    import ctypes  # noqa: PLC0415 - heavy, only where a policy is set

    mode = ctypes.c_int()
    node_mask = (ctypes.c_uint8 * (_NODES // 8))()
    mode_pointer = None if flags & _MEMS_ALLOWED else ctypes.byref(mode)
    # The kernel takes one bit fewer than it is told.
    _system_call(
        0, mode_pointer, node_mask, ctypes.c_ulong(_NODES + 1), None, ctypes.c_ulong(flags)
    )
    return KernelPolicy(mode.value, int.from_bytes(bytes(node_mask), "little"))


def write_policy(policy: KernelPolicy) -> None:
    """Set the calling thread's policy; a default or local one wants no nodes."""
    import ctypes  # noqa: PLC0415 - heavy, only where a policy is set

    nodes = policy.nodes.to_bytes(_NODES // 8, "little") if policy.nodes else None
    bits = ctypes.c_ulong(_NODES + 1 if policy.nodes else 0)
    _system_call(1, ctypes.c_int(policy.mode), nodes, bits)


def _system_call(call_index: int, *values: Any) -> None:
    import ctypes  # noqa: PLC0415 - heavy, only where a policy is set

    calls = _CALLS.get(os.uname().machine)
    if calls is None:
        raise NotImplementedError(
            f"rater does not know the system calls of {os.uname().machine} for memory policies"
        )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(calls[call_index]), *values) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# -- The supervisor on the cores kept for it: all its threads, and the launcher, away from copies --

_TASKS = Path("/proc/self/task")


@contextmanager
def living_on(cpus: Iterable[int], others: Iterable[int] = ()) -> Iterator[None]:
    """Keep this process, threads that begin later included, and the processes `others` on `cpus`.

    `cpus` are OS numbers; none: nothing changes. Enter it when all that may use the whole
    machine (compilers, set-ups) is done and before copies are spawned: each of these
    is bound by its spawning thread, so it does not inherit this. Left, every thread has the
    CPUs that the calling one had before; `others` stay where they are.
    Raises `InputError` when the kernel does not allow it.
    """
    wanted_cpus = frozenset(cpus)
    if not wanted_cpus:
        yield
        return
    cpus_before = os.sched_getaffinity(0)
    try:
        _bind_threads(wanted_cpus)
        for pid in others:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(pid, wanted_cpus)
    except OSError as error:
        _bind_threads(cpus_before)
        raise InputError(
            "--reserve: the kernel does not let rater run on CPUs "
            f"{format_list(sorted(wanted_cpus))} ({error.strerror}); see the cpuset of this shell, "
            "or leave --reserve out"
        ) from error
    try:
        yield
    finally:
        with suppress(OSError):  # CPUs went offline meanwhile: the kernel has seen to it
            _bind_threads(cpus_before)


def _bind_threads(cpus: Iterable[int]) -> None:
    for task in _TASKS.iterdir():
        with suppress(ProcessLookupError):  # it ended
            os.sched_setaffinity(int(task.name), cpus)
