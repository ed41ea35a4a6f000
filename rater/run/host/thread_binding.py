"""Threads: their CPUs and memory policy, and their turn when every CPU is busy."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rater.errors import InputError, RunError
from rater.plan.placement.memory_policy import MemorySupport
from rater.record.run import MemoryPolicy, Placement
from rater.run.host.discover import own_environment
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


# -- CPU affinity and memory policy of one thread, set before a copy is spawned and undone after ---
#
# Both belong to a thread and are inherited through fork and exec, so a copy's
# first page already lies where it should, with no `taskset` or `numactl` between.
#
# hwloc sets memory policies. What it set is read, and what was there before is put
# back, by the system calls themselves: hwloc's own reading calls MPOL_PREFERRED_MANY
# a binding and takes no policy for first touch, and it cannot set again what it
# cannot name (a policy with flags that `numactl` gave to rater).

# <linux/mempolicy.h>
_MODES = {
    MemoryPolicy.PREFERRED: (5, 1),  # MPOL_PREFERRED_MANY; hwloc falls back to MPOL_PREFERRED
    MemoryPolicy.BIND: (2,),
    MemoryPolicy.INTERLEAVE: (3,),
    MemoryPolicy.LOCAL: (4, 1),  # before Linux 5.14 read back as MPOL_PREFERRED of no node
    MemoryPolicy.WEIGHTED: (6,),
}
_MANY = 5
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


class _KernelPolicy(NamedTuple):
    """A memory policy as the kernel has it."""

    mode: int  # with its flags
    nodes: int  # mask


class ThreadBinding:
    """Binds the calling thread like one copy after another; use as a context manager.

    Only what changes between two copies is set again. Raises `RunError` when the
    kernel gave less than was asked (a cpuset narrowed the mask).
    """

    def __init__(self) -> None:
        self._affinity: frozenset[int] = frozenset()
        self._bound: tuple[int, ...] | None = None
        self._memory: tuple[MemoryPolicy, tuple[int, ...]] = (MemoryPolicy.NONE, ())
        self._inherited: _KernelPolicy | None = (
            None  # the thread's own policy, once there is another
        )

    def __enter__(self) -> ThreadBinding:
        self._affinity = frozenset(os.sched_getaffinity(0))
        return self

    def apply(self, placement: Placement) -> None:
        """Bind this thread as the copy is to be bound."""
        if placement.cpus != self._bound:
            self._set_cpus(placement.cpus)
            self._bound = placement.cpus
        wanted = (placement.memory_policy, placement.memory_nodes)
        if wanted != self._memory:
            self._set_memory(placement.memory_policy, placement.memory_nodes)
            self._memory = wanted

    def __exit__(self, *_: object) -> None:
        # Worker threads are used again: what comes next must find them as they were.
        if self._bound is not None:
            os.sched_setaffinity(0, self._affinity)
        self._restore_memory()

    def _set_cpus(self, cpus: tuple[int, ...] | None) -> None:
        wanted = self._affinity if cpus is None else frozenset(cpus)
        try:
            os.sched_setaffinity(0, wanted)
        except OSError as error:
            raise InputError(
                f"CPUs {format_list(sorted(wanted))}: the kernel does not let rater use them "
                f"({error.strerror}); see `rater run --dry-run` and the cpuset of this shell"
            ) from error
        got = os.sched_getaffinity(0)
        if got != wanted:
            raise RunError(
                f"asked for CPUs {format_list(sorted(wanted))}, the kernel gave "
                f"{format_list(sorted(got))}: a cpuset (Slurm, a container) narrows the mask; "
                "run with --layout none, or inside a cpuset that has these CPUs"
            )

    def _set_memory(self, policy: MemoryPolicy, nodes: tuple[int, ...]) -> None:
        if policy is MemoryPolicy.NONE:
            self._restore_memory()
            return
        try:
            if self._inherited is None:
                self._inherited = _read_policy()
            _set_policy(policy, nodes)
            got = _read_policy()
        except _REFUSED as error:
            on = f" on nodes {format_list(nodes)}" if nodes else ""
            raise RunError(
                f"the kernel refused memory policy {policy}{on} "
                f"({error}); run with --mem none to leave memory to the kernel"
            ) from error
        wrong = _difference(policy, nodes, got)
        if wrong:
            raise RunError(
                f"asked for memory policy {policy} {format_list(nodes)}, {wrong}: a cpuset "
                "(Slurm, a container) narrows the nodes; run with --mem local, or inside a "
                "cpuset that has these nodes"
            )

    def _restore_memory(self) -> None:
        if self._inherited is None:
            return
        try:
            _write_policy(self._inherited)
        except OSError as error:
            raise RunError(
                f"the kernel did not take back the memory policy that rater was started with "
                f"({error}); run with --mem none"
            ) from error
        self._inherited = None


def memory_support() -> MemorySupport:
    """Return which memory policies the kernel lets threads of this process set, by trying them.

    Tried once in a process, on a thread of its own: its policy ends with it.
    """
    return _tried_once()


@cache
def _tried_once() -> MemorySupport:
    found: list[MemorySupport] = []
    thread = threading.Thread(target=lambda: found.append(_try_policies()), name="memory policies")
    thread.start()
    thread.join()
    return found[0]


def _try_policies() -> MemorySupport:
    try:
        before = _read_policy()
        allowed = numbers_of(_read_policy(_MEMS_ALLOWED).nodes)
    except _REFUSED as error:
        return MemorySupport(frozenset(), preferred_many=False, reason=str(error))
    policies = set()
    many = False
    reason = ""
    for policy, modes in _MODES.items():
        nodes = () if policy is MemoryPolicy.LOCAL else allowed
        try:
            _set_policy(policy, nodes)
            got = _read_policy()
        except _REFUSED as error:
            reason = reason or str(error)
            continue
        if got.mode & ~_FLAGS in modes:
            policies.add(policy)
            many = many or got.mode & ~_FLAGS == _MANY
    _write_policy(before)
    return MemorySupport(frozenset(policies), many, reason)


def _difference(policy: MemoryPolicy, nodes: tuple[int, ...], got: _KernelPolicy) -> str | None:
    mode = got.mode & ~_FLAGS
    if mode not in _MODES[policy]:
        return f"the kernel has policy number {mode}"
    if got.nodes != mask_of(nodes):
        return f"the kernel gave nodes {format_list(numbers_of(got.nodes)) or 'none'}"
    return None


def _set_policy(policy: MemoryPolicy, nodes: tuple[int, ...]) -> None:
    """Set the calling thread's policy; raises one of `_REFUSED`."""
    from pyhwloc.bitmap import Bitmap  # noqa: PLC0415 - heavy, only where a policy is set
    from pyhwloc.topology import MemBindFlags, MemBindPolicy  # noqa: PLC0415 - as above

    hwloc = _this_system()
    # BYNODESET is not optional: without it hwloc binds to other nodes, silently.
    flags = [MemBindFlags.THREAD, MemBindFlags.BYNODESET]
    if policy is MemoryPolicy.LOCAL:
        hwloc.set_membind(hwloc.get_root_obj().nodeset, MemBindPolicy.FIRSTTOUCH, flags)
        return
    ways = {
        MemoryPolicy.BIND: MemBindPolicy.BIND,
        MemoryPolicy.PREFERRED: MemBindPolicy.BIND,  # that is not strict
        MemoryPolicy.INTERLEAVE: MemBindPolicy.INTERLEAVE,
        MemoryPolicy.WEIGHTED: MemBindPolicy.WEIGHTED_INTERLEAVE,
    }
    if policy is not MemoryPolicy.PREFERRED:
        flags.append(MemBindFlags.STRICT)
    hwloc.set_membind(Bitmap.from_sched_set(set(nodes)), ways[policy], flags)


def _read_policy(flags: int = 0) -> _KernelPolicy:
    """Return the calling thread's policy, or with `_MEMS_ALLOWED` its nodes; raises `OSError`."""
    import ctypes  # noqa: PLC0415 - heavy, only where a policy is set

    mode = ctypes.c_int()
    mask = (ctypes.c_uint8 * (_NODES // 8))()
    where = None if flags & _MEMS_ALLOWED else ctypes.byref(mode)
    # The kernel takes one bit fewer than it is told.
    _system_call(0, where, mask, ctypes.c_ulong(_NODES + 1), None, ctypes.c_ulong(flags))
    return _KernelPolicy(mode.value, int.from_bytes(bytes(mask), "little"))


def _write_policy(policy: _KernelPolicy) -> None:
    """Set the calling thread's policy to what `_read_policy` returned; raises `OSError`."""
    import ctypes  # noqa: PLC0415 - heavy, only where a policy is set

    mask = (ctypes.c_uint8 * (_NODES // 8)).from_buffer_copy(
        policy.nodes.to_bytes(_NODES // 8, "little")
    )
    # A default or local policy wants no nodes.
    nodes = (mask, ctypes.c_ulong(_NODES + 1)) if policy.nodes else (None, ctypes.c_ulong(0))
    _system_call(1, ctypes.c_int(policy.mode), *nodes)


def _system_call(which: int, *values: Any) -> None:
    import ctypes  # noqa: PLC0415 - heavy, only where a policy is set

    calls = _CALLS.get(os.uname().machine)
    if calls is None:
        raise NotImplementedError(
            f"rater does not know the system calls of {os.uname().machine} for memory policies"
        )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(calls[which]), *values) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


# What hwloc and the system calls raise: EINVAL is a ValueError, ENOSYS and HwLocError are
# RuntimeErrors.
_REFUSED = (OSError, ValueError, RuntimeError)


@cache
def _this_system() -> Any:
    with own_environment():
        import pyhwloc  # noqa: PLC0415 - heavy, only where a memory policy is set

        topology = pyhwloc.from_this_system(load=True)
    # Left to the interpreter's end, its destructor runs when its library is gone.
    atexit.register(topology.destroy)
    return topology


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
    wanted = frozenset(cpus)
    if not wanted:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        _bind_threads(wanted)
        for pid in others:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(pid, wanted)
    except OSError as error:
        _bind_threads(before)
        raise InputError(
            f"--reserve: the kernel does not let rater run on CPUs {format_list(sorted(wanted))} "
            f"({error.strerror}); see the cpuset of this shell, or leave --reserve out"
        ) from error
    try:
        yield
    finally:
        with suppress(OSError):  # CPUs went offline meanwhile: the kernel has seen to it
            _bind_threads(before)


def _bind_threads(cpus: Iterable[int]) -> None:
    for task in _TASKS.iterdir():
        with suppress(ProcessLookupError):  # it ended
            os.sched_setaffinity(int(task.name), cpus)
