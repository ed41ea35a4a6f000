"""CPU affinity and memory policy of one thread, set before a copy is spawned and undone after.

Both belong to a thread and are inherited through fork and exec, so a copy's
first page already lies where it should, with no `taskset` or `numactl` between.
"""

from __future__ import annotations

import atexit
import os
from functools import cache
from typing import Any

from rater.errors import InputError, RunError
from rater.plan.cpuset import format_list
from rater.plan.place import MemoryPolicy, Placement
from rater.run.machine import own_environment


class ThreadBinding:
    """Binds the calling thread like one copy after another; use as a context manager.

    Only what changes between two copies is set again. Raises `RunError` when the
    kernel gave less than was asked (a cpuset narrowed the mask).
    """

    def __init__(self) -> None:
        self._affinity: frozenset[int] = frozenset()
        self._bound: tuple[int, ...] | None = None
        self._memory: tuple[MemoryPolicy, tuple[int, ...]] = (MemoryPolicy.NONE, ())

    def __enter__(self) -> ThreadBinding:
        self._affinity = frozenset(os.sched_getaffinity(0))
        return self

    def apply(self, placement: Placement) -> None:
        """Bind this thread as the copy is to be bound."""
        if placement.cpus != self._bound:
            self._set_cpus(placement.cpus)
            self._bound = placement.cpus
        wanted = (placement.policy, placement.memory_nodes)
        if wanted != self._memory:
            self._set_memory(placement.policy, placement.memory_nodes)
            self._memory = wanted

    def __exit__(self, *_: object) -> None:
        if self._bound is not None:
            os.sched_setaffinity(0, self._affinity)
        if self._memory[0] is not MemoryPolicy.NONE:
            self._set_memory(MemoryPolicy.NONE, ())

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
        from pyhwloc.bitmap import Bitmap  # noqa: PLC0415 - heavy, only where a policy is set
        from pyhwloc.topology import MemBindFlags, MemBindPolicy  # noqa: PLC0415

        hwloc = _this_system()
        flags = [MemBindFlags.THREAD, MemBindFlags.BYNODESET]
        everything = hwloc.get_root_obj().nodeset
        try:
            if policy is MemoryPolicy.BIND:
                # BYNODESET is not optional: without it hwloc binds to other nodes, silently.
                hwloc.set_membind(
                    Bitmap.from_sched_set(set(nodes)),
                    MemBindPolicy.BIND,
                    [*flags, MemBindFlags.STRICT],
                )
            elif policy is MemoryPolicy.LOCAL:
                hwloc.set_membind(everything, MemBindPolicy.FIRSTTOUCH, flags)
            else:
                hwloc.set_membind(everything, MemBindPolicy.DEFAULT, flags)
        except (OSError, ValueError, RuntimeError, NotImplementedError) as error:
            raise RunError(
                f"the kernel refused memory policy {policy} on nodes {format_list(nodes)} "
                f"({error}); run with --mem none to leave memory to the kernel"
            ) from error


@cache
def _this_system() -> Any:
    """Return hwloc's view of this machine, loaded once: binding calls only read it."""
    with own_environment():
        import pyhwloc  # noqa: PLC0415 - heavy, only where a memory policy is set

        topology = pyhwloc.from_this_system(load=True)
    # Left to the interpreter's end, its destructor runs when its library is gone.
    atexit.register(topology.destroy)
    return topology
