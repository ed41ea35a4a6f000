"""What is seen of a copy while it waits and runs, and what the plan says against it; pure.

`GateFacts` and `Sampled` are what `run/observe.py` reads, the database holds and
`analysis/proof.py` judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rater.plan.cpuset import format_list


@dataclass(frozen=True, slots=True)
class GateFacts:
    """What the kernel allows a copy that waits at its gate; the benchmark inherits it."""

    cpus: tuple[int, ...] | None  # OS numbers, ascending; None: could not be read
    mems: tuple[int, ...] | None  # nodes its cpuset lets it take memory of


@dataclass(frozen=True, slots=True)
class Sampled:
    """One look at a running copy: its process and the processes below it."""

    phase: int
    copy: int
    step: int
    age_ns: int  # since the copy's release
    processes: int  # that were looked at
    unread: int  # processes whose memory was not: too many of them, or another user's
    cpus: tuple[int, ...]  # where its threads ran last, ascending, each once
    allowed: tuple[int, ...] | None  # affinity mask of the copy's first process by now
    # Of threads that still live: moves to another CPU, and pages the kernel's balancing moved.
    migrations: int | None
    pages_migrated: int | None
    # Anonymous memory and huge pages by NUMA node; file pages (libraries) are not among them.
    node_bytes: tuple[tuple[int, int], ...] | None
    policy: str | None  # memory policy of most of it in the kernel's words: "local", "bind:2"
    page_bytes: tuple[tuple[int, int], ...] | None  # the same memory: page size, bytes
    rss_bytes: int | None  # resident, huge pages included; shared pages count for each process
    peak_bytes: int | None  # highest since its exec, None for several processes
    swap_bytes: int | None  # swapped out
    read_ns: int  # how long the look took

    @property
    def private_bytes(self) -> int | None:
        """Anonymous memory and huge pages whose node is known."""
        return None if self.node_bytes is None else sum(size for _, size in self.node_bytes)


@dataclass(frozen=True, slots=True)
class Observed:
    """What observing the copies of a run came to."""

    cadence: str  # as asked for: "auto", "once", or seconds
    samples: int
    interval_s: float | None  # mean time between two looks at the same copy; None: none had two
    cpu_s: float  # CPU time all of it took
    share: float  # of one CPU, while copies ran
    longest_read_s: float
    unknown: tuple[str, ...]  # what could not be seen on this machine, each said once


def gate_complaints(
    facts: GateFacts, cpus: Sequence[int] | None, memory_nodes: Sequence[int]
) -> tuple[str, ...]:
    """Say in words where the kernel's limits for a copy differ from its plan.

    `cpus` is the planned mask (None: not bound), `memory_nodes` the nodes its
    memory is to come from (empty: none in particular).
    """
    complaints = []
    if cpus is not None and facts.cpus is not None and set(cpus) != set(facts.cpus):
        planned, seen = format_list(cpus), format_list(facts.cpus) or "none"
        if set(facts.cpus) < set(cpus):
            complaints.append(
                f"may use CPUs {seen} only of the planned {planned}: a cpuset (container, batch "
                "system) or an offline CPU narrows them"
            )
        else:
            complaints.append(f"bound to CPUs {seen}, planned {planned}")
    if facts.mems is not None:
        missing = set(memory_nodes) - set(facts.mems)
        if missing:
            complaints.append(
                f"may not take memory of lgroup {format_list(missing)} as planned: its cpuset "
                f"allows {format_list(facts.mems) or 'none'}"
            )
    return tuple(complaints)
