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

from rater.plan.cpuset import format_list
from rater.plan.evidence import gate_complaints
from rater.record import GateFacts, PlacedCopy, Sampled

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
LOOKED_AT_S = 0.5  # copies that ran for this long are looked at (run/observe.py)


class Verdict(StrEnum):
    """Whether the plan of a copy was met, as far as it was seen."""

    MET = "met"  # also where nothing was planned
    NOT_MET = "not met"
    NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Seen:
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


def look_back(samples: Iterable[Sampled]) -> Seen:
    """Return the samples of one copy as one."""
    own = sorted(samples, key=lambda sample: sample.age_ns)
    resident = [(s.rss_bytes, s.looks) for s in own if s.rss_bytes is not None]
    masks = (sample.allowed for sample in own if sample.allowed is not None)
    return Seen(
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
    )


def judge(
    plan: PlacedCopy,
    gate: GateFacts | None,
    seen: Seen,
    homes: Mapping[int, int | None],
    elapsed_s: float,
    *,
    held_bytes: int | None = None,
) -> tuple[Verdict, tuple[str, ...]]:
    """Return the verdict on one copy and, where it is not `MET`, the reasons.

    `homes`: the NUMA node of each CPU of the machine by OS number. `held_bytes`: the
    most that the copy held at once, as the kernel counted it; None: not known.
    """
    nodes = planned_nodes(plan, homes)
    complaints = list(gate_complaints(gate, plan.cpus, nodes or ())) if gate else []
    complaints += _cpu_complaints(plan, gate, seen)
    complaints += _memory_complaints(plan, seen, nodes)
    if complaints:
        return Verdict.NOT_MET, tuple(complaints)
    doubts = []
    if plan.cpus is not None and not seen.allowed and (gate is None or gate.cpus is None):
        doubts.append("which CPUs it might use was not seen")
    nowhere_else = nodes and gate and gate.mems and set(gate.mems) <= set(nodes)
    if nodes is not None and seen.node_bytes is None and not nowhere_else:
        if seen.samples:
            doubts.append("on which lgroups its memory lay could not be read")
        elif elapsed_s < LOOKED_AT_S:
            doubts.append(f"ended within {LOOKED_AT_S:g} s, before its memory was looked at")
        else:
            doubts.append("its memory was not looked at")
    elif nodes is not None and not nowhere_else:
        doubts += _little_seen(seen, elapsed_s, held_bytes)
    return (Verdict.NOT_KNOWN, tuple(doubts)) if doubts else (Verdict.MET, ())


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


def evenness(plan: PlacedCopy, seen: Seen) -> float | None:
    """Return how even interleaved memory lies: 1 is even, 0 that a planned node got nothing."""
    if plan.memory_policy != "interleave" or len(plan.memory_nodes) < 2:
        return None
    share = seen.share_on(plan.memory_nodes)
    if not share:
        return None
    least = min(seen.share_on((node,)) or 0.0 for node in plan.memory_nodes)
    return least * len(plan.memory_nodes) / share


def _cpu_complaints(plan: PlacedCopy, gate: GateFacts | None, seen: Seen) -> list[str]:
    if plan.cpus is None:
        return []
    planned = format_list(plan.cpus)
    complaints = [
        f"its CPU mask changed while it ran to {format_list(mask)}, planned {planned}"
        for mask in seen.allowed
        if not set(mask) <= set(plan.cpus) and (gate is None or mask != gate.cpus)
    ]
    elsewhere = set(seen.cpus) - set(plan.cpus)
    if elsewhere:
        complaints.append(f"ran on CPU {format_list(elsewhere)}, planned {planned}")
    return complaints


def _little_seen(seen: Seen, elapsed_s: float, held_bytes: int | None) -> list[str]:
    """Doubt what was seen of a copy that took most of its memory later, or may have."""
    last_s, most = seen.last_age_s or 0.0, seen.rss_max_bytes or 0
    when = f"when it was last looked at, {last_s:.1f} s into its {elapsed_s:.1f} s"
    if held_bytes is not None and most < LEAST_SEEN * held_bytes:
        return [f"held {_mb(most)} of its {_mb(held_bytes)} {when}"]
    small = (seen.private_bytes or 0.0) < MOST_REMOTE_BYTES
    if held_bytes is None and small and last_s < LEAST_SEEN * elapsed_s:
        return [f"held {_mb(seen.private_bytes or 0.0)} {when}"]
    return []


def _memory_complaints(
    plan: PlacedCopy, seen: Seen, nodes: tuple[int, ...] | None
) -> Iterable[str]:
    total = seen.private_bytes
    if not nodes or not total or seen.node_bytes is None:
        return
    by_node = dict(seen.node_bytes)
    remote = sum(size for node, size in by_node.items() if node not in nodes)
    if remote > MOST_REMOTE_BYTES and remote > (1 - LEAST_LOCAL) * total:
        where = format_list(node for node, size in by_node.items() if size and node not in nodes)
        policy = f"; the kernel names its policy {seen.policy}" if seen.policy else ""
        yield (
            f"{100 * remote / total:.0f} % of its {_mb(total)} lay on lgroup {where}, planned "
            f"{format_list(nodes)}{policy}"
        )
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
