"""What of the machine the copies of a run were given: cores, CPUs, lgroups; pure.

By the plan, not by the number of copies alone: eight copies can have eight cores, or both
threads of four.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rater.record.stored import StoredRun
from rater.text.cpuset import format_list
from rater.text.words import count


class Share(StrEnum):
    """What of the machine a copy had for itself."""

    CORES = "own core"  # no core has two copies
    THREADS = "own CPU"  # some core has two copies, each on a thread of its own
    CPUS = "shared CPU"  # some CPU has two copies
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class CpusUsed:
    """Where the copies of a run were placed; None: not known."""

    copies: int
    share: Share
    cores: tuple[int, ...] | None  # in use, ascending
    per_core: tuple[int, int] | None  # copies on the core with the least of them, with the most
    threads: int | None  # CPUs of each used core; None as well where they differ
    lgroups: tuple[int, ...] | None  # copies on each lgroup in use, descending
    used_cpus: int | None  # that were given to copies
    cpus: int | None  # usable ones of the machine
    machine_cores: int | None  # that these belong to
    on: tuple[int, ...] | None = None  # the CPUs that were given to copies, ascending
    memory: str | None = None  # "local", "bind 0-1": policy, and nodes where any are named

    @property
    def even(self) -> int | None:
        """Copies on each used core, None where they differ or are not known."""
        if self.per_core is None or self.per_core[0] != self.per_core[1]:
            return None
        return self.per_core[0]

    @property
    def shape(self) -> tuple[object, ...]:
        """What must be the same for rates of so many copies to be rates of the same.

        Which of equal cores they were given is not in it.
        """
        cores = None if self.cores is None else len(self.cores)
        return (self.share, cores, self.per_core, self.used_cpus, self.lgroups)

    def __str__(self) -> str:
        """Say where they were: `8 on 4 cores (8 CPUs), 6+2 by lgroup`."""
        if self.cores is None:
            return f"{self.copies} on cores not known"
        text = f"{self.copies} on {count(len(self.cores), 'core')}"
        if self.used_cpus not in (None, len(self.cores)):
            text += f" ({count(self.used_cpus or 0, 'CPU')})"
        if self.even is None and self.per_core is not None:
            text += f", {self.per_core[0]}-{self.per_core[1]} each"
        if self.lgroups is not None and len(self.lgroups) > 1:
            text += f", {'+'.join(map(str, self.lgroups))} by lgroup"
        return text


def cpus_used(run: StoredRun) -> CpusUsed:
    """Return where the copies of a run were placed: by its plan, else by what its rows tell."""
    head = run.head
    if run.placements:
        rows = [(placed.cpu, placed.core, placed.node) for placed in run.placements]
    else:
        first = {copy.copy: copy for copy in reversed(run.copies)}
        rows = [(copy.cpu, copy.core, copy.node) for copy in first.values()]
    on_cpu = _counted(cpu for cpu, _, _ in rows)
    on_core = _counted(core for _, core, _ in rows)
    on_node = _counted(node for _, _, node in rows)
    cpus = len(run.pus) or None
    of_core = Counter(pu.core for pu in run.pus if pu.core is not None)
    threads = {of_core[core] for core in on_core or () if core in of_core}
    return CpusUsed(
        copies=head.copies,
        share=_share(head.copies, on_cpu, on_core, cpus),
        cores=tuple(sorted(on_core)) if on_core else None,
        per_core=(min(on_core.values()), max(on_core.values())) if on_core else None,
        threads=threads.pop() if len(threads) == 1 else None,
        lgroups=tuple(sorted(on_node.values(), reverse=True)) if on_node else None,
        used_cpus=len(on_cpu) if on_cpu else None,
        cpus=cpus,
        machine_cores=len(of_core) or None,
        on=tuple(sorted(on_cpu)) if on_cpu else None,
        memory=_memory(run),
    )


def _memory(run: StoredRun) -> str | None:
    """Return policy and nodes of the copies' memory; of rows, the nodes that they tell."""
    nodes = format_list({node for placed in run.placements for node in placed.memory_nodes})
    policies = dict.fromkeys(placed.memory_policy for placed in run.placements)
    if not run.placements:
        nodes = format_list({node for copy in run.copies for node in copy.mem_nodes})
    return " ".join(word for word in (" and ".join(policies), nodes) if word) or None


def _counted(numbers: Iterable[int | None]) -> Counter[int] | None:
    """Return how often each number is there, None where one is not known."""
    found: Counter[int] = Counter()
    for number in numbers:
        if number is None:
            return None
        found[number] += 1
    return found or None


def _share(
    copies: int, on_cpu: Counter[int] | None, on_core: Counter[int] | None, cpus: int | None
) -> Share:
    if cpus is not None and copies > cpus:  # bound or not
        return Share.CPUS
    if on_cpu is None or on_core is None:
        return Share.UNKNOWN
    if max(on_cpu.values()) > 1:
        return Share.CPUS
    return Share.THREADS if max(on_core.values()) > 1 else Share.CORES


def fair_copies(places: Sequence[CpusUsed]) -> int:
    """Return up to how many copies one curve is of one kind: each has a core to itself.

    Where there are no two such points, each a CPU; where not that, the smallest number.
    `places` by copies, ascending, never empty.
    """
    own = [one.copies for one in places if one.share is Share.CORES]
    if len(own) > 1:
        return own[-1]
    return max(
        (one.copies for one in places if one.share is not Share.CPUS), default=places[0].copies
    )
