"""One copy: what was seen of it against its plan; pure.

The plan of a copy is its `PlacedCopy`; the evidence is what its gate was allowed
(`GateFacts`) and what was seen of it while it ran (`Sampled`). Only anonymous
memory and huge pages are judged: the pages of libraries and files lie where
somebody read them first, whoever maps them now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rater.plan.placement.gate_check import gate_mismatches
from rater.record.events import GateFacts, Sampled
from rater.record.run import PlacedCopy
from rater.text.cpuset import format_list

# A copy bound before its exec has not one page elsewhere while its node has free ones: 5 % leaves
# room for what a run-time library places on purpose, and 1 MiB elsewhere is no more than stacks
# and start-up data.
LEAST_LOCAL = 0.95
MOST_REMOTE_BYTES = 1 << 20
# Interleaving deals out page by page, so shares are even to a page or two; a node that got a fifth
# less than its part was full, or the copy had a policy of its own.
LEAST_EVEN = 0.8
_PAGES_OFF = 2
_PAGE_BYTES_UNKNOWN = 2 << 20
# What was seen tells of the whole copy when it had taken half of its memory by then, or, where its
# peak is not known, when half of its time was over.
LEAST_SEEN = 0.5
SAMPLED_FROM_S = 2.0  # copies that ran for this long are looked at (run/observe/observer.py)


class PlacementVerdict(StrEnum):
    """Whether the plan of a copy was met, as far as it was seen."""

    MET = "met"  # also where nothing was planned
    NOT_MET = "not met"
    NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class CopySamples:
    """The samples of one copy together; None, or empty: not known.

    Averages are over looks, shares of anonymous memory and huge pages.
    """

    samples: int  # looks at it
    last_age_s: float | None  # of the last sample, from the release
    cpus: tuple[int, ...]  # that threads were seen on
    allowed: tuple[tuple[int, ...], ...]  # different affinity masks, in the order seen
    migrations: int | None  # up to the last sample
    pages_migrated: int | None
    rss_average_bytes: float | None
    rss_max_bytes: int | None
    swap_bytes: int | None  # the most that was swapped out
    node_bytes: tuple[tuple[int, float], ...] | None  # anonymous and huge pages, average, by node
    page_bytes: tuple[tuple[int, float], ...] | None  # the same by page size
    policy: str | None  # memory policy as the kernel names it, in the last sample
    unread: int  # processes whose memory was not read, the most in one sample
    # Of each sample the look with most memory away from where it was planned, and when that was
    # (of several looks the last one's age), s.
    worst: tuple[tuple[float, tuple[tuple[int, int], ...]], ...] = ()

    @property
    def private_bytes(self) -> float | None:
        """Anonymous memory and huge pages, average."""
        return None if self.node_bytes is None else sum(size for _, size in self.node_bytes)

    def share_on(self, nodes: Iterable[int]) -> float | None:
        """Return which part of that memory lay on these nodes; None where there was none."""
        total = self.private_bytes
        if not total or self.node_bytes is None:
            return None
        wanted = frozenset(nodes)
        return sum(size for node, size in self.node_bytes if node in wanted) / total


def merged_samples(samples: Iterable[Sampled]) -> CopySamples:
    """Return the samples of one copy as one."""
    own = sorted(samples, key=lambda sample: sample.age_ns)
    resident = [(s.rss_bytes, s.looks) for s in own if s.rss_bytes is not None]
    masks = (sample.allowed for sample in own if sample.allowed is not None)
    return CopySamples(
        samples=sum(sample.looks for sample in own),
        last_age_s=own[-1].age_ns / 1e9 if own else None,
        cpus=tuple(sorted({cpu for sample in own for cpu in sample.cpus})),
        allowed=tuple(dict.fromkeys(masks)),
        migrations=max(_known(own, lambda sample: sample.migrations), default=None),
        pages_migrated=max(_known(own, lambda sample: sample.pages_migrated), default=None),
        rss_average_bytes=(
            sum(size * looks for size, looks in resident) / sum(looks for _, looks in resident)
            if resident
            else None
        ),
        rss_max_bytes=max(
            [size for size, _ in resident] + _known(own, lambda sample: sample.peak_bytes),
            default=None,
        ),
        swap_bytes=max(_known(own, lambda sample: sample.swap_bytes), default=None),
        node_bytes=_average([(sample.node_bytes, sample.looks) for sample in own]),
        page_bytes=_average([(sample.page_bytes, sample.looks) for sample in own]),
        policy=own[-1].policy if own else None,
        unread=max((sample.unread for sample in own), default=0),
        worst=tuple(
            (sample.age_ns / 1e9, table)
            for sample in own
            if (table := sample.astray_bytes or sample.node_bytes)
        ),
    )


def judge(
    plan: PlacedCopy,
    gate: GateFacts | None,
    seen: CopySamples,
    homes: Mapping[int, int | None],
    elapsed_s: float,
    *,
    held_bytes: int | None = None,
    last_cpu: int | None = None,
) -> tuple[PlacementVerdict, tuple[str, ...]]:
    """Return the verdict on one copy and, where it is not `MET`, the reasons.

    `homes`: the NUMA node of each CPU of the machine by OS number. `held_bytes`: the
    most that the copy held at once, as the kernel counted it; None: not known.
    `last_cpu`: where its first thread ended.
    """
    nodes = planned_nodes(plan, homes)
    complaints = list(gate_mismatches(gate, plan.cpus, nodes or ())) if gate else []
    complaints += _cpu_complaints(plan, gate, seen, last_cpu)
    complaints += _memory_complaints(plan, seen, nodes)
    if complaints:
        return PlacementVerdict.NOT_MET, tuple(complaints)
    warnings = []
    if plan.cpus is not None and not seen.allowed and (gate is None or gate.cpus is None):
        warnings.append("which CPUs it might use was not seen")
    elif plan.cpus is not None and not seen.cpus and last_cpu is None:
        warnings.append("on which CPUs it ran was not seen")
    if seen.unread and (plan.cpus is not None or nodes is not None):
        warnings.append("some of its processes, their threads or memory were not looked at")
    nowhere_else = nodes and gate and gate.mems and set(gate.mems) <= set(nodes)
    if nodes is not None and seen.node_bytes is None and not nowhere_else:
        if seen.samples:
            warnings.append("on which lgroups its memory lay could not be read")
        elif elapsed_s < SAMPLED_FROM_S:
            warnings.append(f"ended within {SAMPLED_FROM_S:g} s, before its memory was looked at")
        else:
            warnings.append("its memory was not looked at")
    elif nodes is not None and not nowhere_else:
        warnings += _little_seen(seen, elapsed_s, held_bytes)
    return (PlacementVerdict.NOT_KNOWN, tuple(warnings)) if warnings else (PlacementVerdict.MET, ())


def planned_nodes(plan: PlacedCopy, homes: Mapping[int, int | None]) -> tuple[int, ...] | None:
    """Return the nodes that a copy's memory was to come from, None where nothing was planned.

    `local` is the home of every CPU the copy may run on: none is planned for a
    copy that is not bound, or may run on CPUs without memory of their own.
    """
    if plan.memory_policy == "none":
        return None
    if plan.memory_nodes:
        return plan.memory_nodes
    if plan.memory_policy != "local" or plan.cpus is None:
        return None
    found = {homes.get(cpu) for cpu in plan.cpus}
    nodes = sorted(node for node in found if node is not None)
    return tuple(nodes) if nodes and None not in found else None


def evenness(plan: PlacedCopy, seen: CopySamples) -> float | None:
    """Return how even interleaved memory lies: 1 is even, 0 that a planned node got nothing."""
    if plan.memory_policy != "interleave" or len(plan.memory_nodes) < 2:
        return None
    share = seen.share_on(plan.memory_nodes)
    if not share:
        return None
    least = min(seen.share_on((node,)) or 0.0 for node in plan.memory_nodes)
    return least * len(plan.memory_nodes) / share


def _cpu_complaints(
    plan: PlacedCopy, gate: GateFacts | None, seen: CopySamples, last_cpu: int | None
) -> list[str]:
    if plan.cpus is None:
        return []
    planned = format_list(plan.cpus)
    complaints = [
        f"its CPU mask became {format_list(mask)} while it ran, planned {planned}"
        for mask in seen.allowed
        if not set(mask) <= set(plan.cpus) and (gate is None or mask != gate.cpus)
    ]
    ran = {*seen.cpus, *(() if last_cpu is None else (last_cpu,))}
    elsewhere = ran - set(plan.cpus)
    if elsewhere:
        complaints.append(f"ran on CPU {format_list(elsewhere)}, planned {planned}")
    elif len(plan.cpus) == 1 and seen.migrations:
        moves = "once" if seen.migrations == 1 else f"{seen.migrations} times"
        complaints.append(f"moved between CPUs {moves}, planned {planned} only")
    return complaints


def _away(by_node: Mapping[int, float], nodes: Sequence[int]) -> float:
    """Return the bytes that lay on other nodes, 0 as long as these are too few to matter."""
    remote = sum(size for node, size in by_node.items() if node not in nodes)
    few = remote <= max(MOST_REMOTE_BYTES, (1 - LEAST_LOCAL) * sum(by_node.values()))
    return 0.0 if few else remote


def _little_seen(seen: CopySamples, elapsed_s: float, held_bytes: int | None) -> list[str]:
    """Doubt what was seen of a copy that took most of its memory later, or may have."""
    last_s, most = seen.last_age_s or 0.0, seen.rss_max_bytes or 0
    if held_bytes is not None and most < LEAST_SEEN * held_bytes:
        return ["most of its memory came after the last look at it"]
    small = (seen.private_bytes or 0.0) < MOST_REMOTE_BYTES
    if held_bytes is None and small and last_s < LEAST_SEEN * elapsed_s:
        return ["had next to no memory at the last look, before half of its time was over"]
    return []


def _memory_complaints(
    plan: PlacedCopy, seen: CopySamples, nodes: tuple[int, ...] | None
) -> Iterable[str]:
    total = seen.private_bytes
    if not nodes or not total or seen.node_bytes is None:
        return
    by_node = dict(seen.node_bytes)
    looks: list[tuple[float | None, Mapping[int, float]]] = [(None, by_node)]
    looks += [(at_s, dict(table)) for at_s, table in seen.worst]
    away = [(_away(table, nodes), at_s, table) for at_s, table in looks if _away(table, nodes)]
    if away:
        remote, at_s, table = max(away, key=lambda look: look[0])
        held = sum(table.values())
        where = format_list(node for node, size in table.items() if size and node not in nodes)
        policy = f"; the kernel names its policy {seen.policy}" if seen.policy else ""
        when = f" {at_s:.1f} s into its run" if at_s is not None and seen.samples > 1 else ""
        yield (
            f"{100 * remote / held:.0f} % of its {_mb(held)} lay on lgroup {where}{when}, planned "
            f"{format_list(nodes)}{policy}"
        )
    remote = sum(size for node, size in by_node.items() if node not in nodes)
    if plan.memory_policy == "weighted" and total > MOST_REMOTE_BYTES * len(nodes):
        bare = [node for node in nodes if not by_node.get(node)]
        if bare:
            yield f"weighted over lgroups {format_list(nodes)}: {format_list(bare)} has none of it"
    even = evenness(plan, seen)
    enough = total > MOST_REMOTE_BYTES * len(nodes)
    if enough and even is not None and even < LEAST_EVEN:
        least = min(nodes, key=lambda node: by_node.get(node, 0.0))
        fair = (total - remote) / len(nodes)
        pages = [size for size, count in seen.page_bytes or () if count]
        if fair - by_node.get(least, 0.0) > _PAGES_OFF * max(pages, default=_PAGE_BYTES_UNKNOWN):
            yield (
                f"interleaved unevenly: lgroup {least} has {_mb(by_node.get(least, 0.0))} of it, "
                f"an equal part is {_mb(fair)}"
            )


def _known[V](samples: Sequence[Sampled], value: Callable[[Sampled], V | None]) -> list[V]:
    return [found for found in map(value, samples) if found is not None]


def _average(
    tables: Sequence[tuple[tuple[tuple[int, int], ...] | None, int]],
) -> tuple[tuple[int, float], ...] | None:
    known = [(table, looks) for table, looks in tables if table is not None]
    if not known:
        return None
    total: dict[int, int] = {}
    for table, looks in known:
        for key, value in table:
            total[key] = total.get(key, 0) + value * looks
    whole = sum(looks for _, looks in known)
    return tuple((key, value / whole) for key, value in sorted(total.items()))


def _mb(size: float) -> str:
    return f"{size / 1e6:.0f} MB" if size >= 1e7 else f"{size / 1e6:.1f} MB"
