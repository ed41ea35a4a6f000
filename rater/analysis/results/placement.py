"""Whether copies ran, and their memory lay, where the plan said; pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from rater.plan.placement.summary import gate_mismatches
from rater.record.events import CopyEnded, GateFacts, Observed, Sampled
from rater.record.run import Placement
from rater.record.stored import PlacementJudgement, StoredRun
from rater.text.cpuset import format_list
from rater.text.values import group_by_key

# -- One copy: what was seen of it against its plan ------------------------------------------------
#
# The plan of a copy is its `Placement`; the evidence is what its gate was allowed
# (`GateFacts`) and what was seen of it while it ran (`Sampled`). Only anonymous
# memory and huge pages are judged: the pages of libraries and files lie where
# somebody read them first, whoever maps them now.

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


class CopySamples(Struct, frozen=True, kw_only=True):
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
        """Return which part of that memory lay on these nodes; None: no memory was seen."""
        total = self.private_bytes
        if not total or self.node_bytes is None:
            return None
        chosen = frozenset(nodes)
        return sum(size for node, size in self.node_bytes if node in chosen) / total


def merged_samples(samples: Iterable[Sampled]) -> CopySamples:
    """Return the samples of one copy as one."""
    by_age = sorted(samples, key=lambda sample: sample.age_ns)
    resident = [
        (sample.rss_bytes, sample.looks) for sample in by_age if sample.rss_bytes is not None
    ]
    masks = (sample.allowed for sample in by_age if sample.allowed is not None)
    return CopySamples(
        samples=sum(sample.looks for sample in by_age),
        last_age_s=by_age[-1].age_ns / 1e9 if by_age else None,
        cpus=tuple(sorted({cpu for sample in by_age for cpu in sample.cpus})),
        allowed=tuple(dict.fromkeys(masks)),
        migrations=max(_values_seen(by_age, lambda sample: sample.migrations), default=None),
        pages_migrated=max(
            _values_seen(by_age, lambda sample: sample.pages_migrated), default=None
        ),
        rss_average_bytes=(
            sum(size * looks for size, looks in resident) / sum(looks for _, looks in resident)
            if resident
            else None
        ),
        rss_max_bytes=max(
            [size for size, _ in resident] + _values_seen(by_age, lambda sample: sample.peak_bytes),
            default=None,
        ),
        swap_bytes=max(_values_seen(by_age, lambda sample: sample.swap_bytes), default=None),
        node_bytes=_average([(sample.node_bytes, sample.looks) for sample in by_age]),
        page_bytes=_average([(sample.page_bytes, sample.looks) for sample in by_age]),
        policy=by_age[-1].policy if by_age else None,
        unread=max((sample.unread for sample in by_age), default=0),
        worst=tuple(
            (sample.age_ns / 1e9, table)
            for sample in by_age
            if (table := sample.astray_bytes or sample.node_bytes)
        ),
    )


def judge_copy(
    plan: Placement,
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
            warnings.append("on which NUMA nodes its memory lay could not be read")
        elif elapsed_s < SAMPLED_FROM_S:
            warnings.append(f"finished within {SAMPLED_FROM_S:g} s, before its memory was sampled")
        else:
            warnings.append("its memory was not looked at")
    elif nodes is not None and not nowhere_else:
        warnings += _doubts(seen, elapsed_s, held_bytes)
    return (PlacementVerdict.NOT_KNOWN, tuple(warnings)) if warnings else (PlacementVerdict.MET, ())


def planned_nodes(plan: Placement, homes: Mapping[int, int | None]) -> tuple[int, ...] | None:
    """Return the nodes that a copy's memory was to come from; None: no plan for its memory.

    `local` is the home of every CPU the copy may run on: none is planned for a
    copy that is not bound, or may run on CPUs without memory of their own.
    """
    if plan.memory_policy == "none":
        return None
    if plan.memory_nodes:
        return plan.memory_nodes
    if plan.memory_policy != "local" or plan.cpus is None:
        return None
    homes_of_copy = {homes.get(cpu) for cpu in plan.cpus}
    nodes = sorted(node for node in homes_of_copy if node is not None)
    return tuple(nodes) if nodes and None not in homes_of_copy else None


def evenness(plan: Placement, seen: CopySamples) -> float | None:
    """Return how even interleaved memory lies: 1 is even, 0 that a planned node got nothing."""
    if plan.memory_policy != "interleave" or len(plan.memory_nodes) < 2:
        return None
    share = seen.share_on(plan.memory_nodes)
    if not share:
        return None
    least = min(seen.share_on((node,)) or 0.0 for node in plan.memory_nodes)
    return least * len(plan.memory_nodes) / share


def _cpu_complaints(
    plan: Placement, gate: GateFacts | None, seen: CopySamples, last_cpu: int | None
) -> list[str]:
    if plan.cpus is None:
        return []
    planned = format_list(plan.cpus)
    complaints = [
        f"its CPU mask became {format_list(mask)} while it ran, planned {planned} (of a program "
        "that binds itself: `--bind none`)"
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


def _bytes_away(by_node: Mapping[int, float], nodes: Sequence[int]) -> float:
    """Return the bytes that lay on other nodes, 0 as long as these are too few to matter."""
    remote = sum(size for node, size in by_node.items() if node not in nodes)
    few = remote <= max(MOST_REMOTE_BYTES, (1 - LEAST_LOCAL) * sum(by_node.values()))
    return 0.0 if few else remote


def _doubts(seen: CopySamples, elapsed_s: float, held_bytes: int | None) -> list[str]:
    """Doubt what was seen of a copy that took most of its memory later, or may have."""
    last_s, most = seen.last_age_s or 0.0, seen.rss_max_bytes or 0
    if held_bytes is not None and most < LEAST_SEEN * held_bytes:
        return ["most of its memory came after the last look at it"]
    small = (seen.private_bytes or 0.0) < MOST_REMOTE_BYTES
    if held_bytes is None and small and last_s < LEAST_SEEN * elapsed_s:
        return ["had next to no memory at the last look, before half of its time was over"]
    return []


def _memory_complaints(
    plan: Placement, seen: CopySamples, nodes: tuple[int, ...] | None
) -> Iterator[str]:
    """Yield in words how memory lay other than planned; `nodes` are the planned ones."""
    total_bytes = seen.private_bytes
    if not nodes or not total_bytes or seen.node_bytes is None:
        return
    by_node = dict(seen.node_bytes)
    yield from _away_complaints(seen, by_node, nodes)
    if total_bytes <= MOST_REMOTE_BYTES * len(nodes):  # too little to be spread evenly
        return
    bare = [node for node in nodes if not by_node.get(node)]
    if plan.memory_policy == "weighted" and bare:
        yield f"weighted over nodes {format_list(nodes)}: {format_list(bare)} has none of it"
    even = evenness(plan, seen)
    if even is not None and even < LEAST_EVEN:
        yield from _uneven_complaints(seen, by_node, nodes)


def _away_complaints(
    seen: CopySamples, by_node: Mapping[int, float], nodes: Sequence[int]
) -> Iterator[str]:
    """Yield that memory lay on other nodes than planned, from the look with most of it there."""
    looks: list[tuple[float | None, Mapping[int, float]]] = [(None, by_node)]
    looks += [(at_s, dict(table)) for at_s, table in seen.worst]
    away = [
        (remote_bytes, at_s, table)
        for at_s, table in looks
        if (remote_bytes := _bytes_away(table, nodes))
    ]
    if not away:
        return
    remote_bytes, at_s, table = max(away, key=lambda look: look[0])
    held_bytes = sum(table.values())
    where = format_list(node for node, size in table.items() if size and node not in nodes)
    policy = f"; the kernel names its policy {seen.policy}" if seen.policy else ""
    when = f" {at_s:.1f} s into its run" if at_s is not None and seen.samples > 1 else ""
    yield (
        f"{100 * remote_bytes / held_bytes:.0f} % of its {_mb(held_bytes)} was on node "
        f"{where}{when}; planned: node {format_list(nodes)}{policy}"
    )


def _uneven_complaints(
    seen: CopySamples, by_node: Mapping[int, float], nodes: Sequence[int]
) -> Iterator[str]:
    """Yield which node has least of interleaved memory, where that is more than a page or two."""
    planned_bytes = [by_node.get(node, 0.0) for node in nodes]
    equal_part = sum(planned_bytes) / len(nodes)
    least = min(nodes, key=lambda node: by_node.get(node, 0.0))
    page_sizes = [size for size, count in seen.page_bytes or () if count]
    largest_page = max(page_sizes, default=_PAGE_BYTES_UNKNOWN)
    if equal_part - min(planned_bytes) > _PAGES_OFF * largest_page:
        yield (
            f"interleaved unevenly: node {least} has {_mb(min(planned_bytes))} of it, "
            f"an equal part is {_mb(equal_part)}"
        )


def _values_seen[V](samples: Sequence[Sampled], value: Callable[[Sampled], V | None]) -> list[V]:
    return [result for result in map(value, samples) if result is not None]


def _average(
    tables: Sequence[tuple[tuple[tuple[int, int], ...] | None, int]],
) -> tuple[tuple[int, float], ...] | None:
    known_tables = [(table, looks) for table, looks in tables if table is not None]
    if not known_tables:
        return None
    total: dict[int, int] = {}
    for table, looks in known_tables:
        for key, value in table:
            total[key] = total.get(key, 0) + value * looks
    whole = sum(looks for _, looks in known_tables)
    return tuple((key, value / whole) for key, value in sorted(total.items()))


def _mb(size: float) -> str:
    return f"{size / 1e6:.0f} MB" if size >= 1e7 else f"{size / 1e6:.1f} MB"


# -- Whether copies ran, and their memory lay, where the plan said: by copy and by benchmark -------

_UNSEEN = merged_samples(())


class CopyProof(Struct, frozen=True, kw_only=True):
    """Evidence and verdict for one copy's run of one benchmark."""

    phase: int
    benchmark: str
    iteration: int
    copy: int
    step: int
    counted: bool  # False: of a discarded iteration
    planned: bool  # False: it may run, and have its memory, anywhere
    cpu: int | None  # planned
    node: int | None  # planned
    verdict: PlacementVerdict
    reasons: tuple[str, ...]  # in words, why the verdict is not `MET`
    gate: GateFacts | None = None
    seen: CopySamples = _UNSEEN
    unseen_s: float | None = None  # from its last sample to its end
    # Of its memory on planned nodes; none planned: on its home node.
    local_share: float | None = None
    evenness: float | None = None  # interleaved: least share of a planned node x their number


class BenchmarkProof(Struct, frozen=True, kw_only=True):
    """What the copies of one benchmark got, over all iterations; None: not known."""

    benchmark: str
    copies: int  # copy runs
    sampled: int  # of them
    rss_average_bytes: float | None  # mean over copies
    rss_max_bytes: int | None
    page_shares: tuple[tuple[int, float], ...]  # page size in bytes, share of all copies' memory
    local_share: float | None  # mean over copies
    least_local_share: float | None
    migrations: float | None  # mean over copies


class RunProof(Struct, frozen=True):
    """All proofs of a run."""

    copies: tuple[CopyProof, ...] = ()
    benchmarks: tuple[BenchmarkProof, ...] = ()  # in the order they ran
    observed: Observed | None = None  # the cost of observing; None: off, or the run was killed

    def with_verdict(self, verdict: PlacementVerdict) -> tuple[CopyProof, ...]:
        """Return the copy runs with this verdict, in order."""
        return tuple(proof for proof in self.copies if proof.verdict is verdict)

    def not_met(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """Return the copies whose plan was not met by benchmark and iteration, where any are."""
        copies_by_cell = group_by_key(
            ((proof.benchmark, proof.iteration), proof.copy)
            for proof in self.with_verdict(PlacementVerdict.NOT_MET)
        )
        return {key: tuple(sorted(set(copies))) for key, copies in copies_by_cell.items()}

    def not_known(self) -> dict[tuple[str, ...], tuple[CopyProof, ...]]:
        """Return the copy runs of which it is not known by the reasons for that."""
        proofs_by_reasons = group_by_key(
            (proof.reasons, proof) for proof in self.with_verdict(PlacementVerdict.NOT_KNOWN)
        )
        return {reasons: tuple(proofs) for reasons, proofs in proofs_by_reasons.items()}


def prove_run(run: StoredRun) -> RunProof:
    """Return a proof for every copy of the run that was placed; torn attempts are left out.

    Without any evidence (`--proof off`) there are no proofs, of an imported run those
    that its document states.
    """
    run = run.without_torn()
    if run.head.source == "import":
        return _imported_proofs(run)
    samples = group_by_key(
        ((sample.phase, sample.copy, sample.step), sample) for sample in run.samples
    )
    if not samples and not any(copy.gate for copy in run.copies):
        return RunProof(observed=run.observed)
    placements = {placement.copy: placement for placement in run.placements}
    judge = _CopyJudge({pu.cpu: pu.node for pu in run.pus})
    proofs = [
        judge.prove(
            copy, placements[copy.copy], samples.get((copy.phase, copy.copy, copy.step), ())
        )
        for copy in run.copies
        if copy.copy in placements
    ]
    by_name = group_by_key((proof.benchmark, proof) for proof in proofs)
    benchmarks = tuple(_benchmark(name, members) for name, members in by_name.items())
    return RunProof(tuple(proofs), benchmarks, run.observed)


type _Verdict = tuple[PlacementVerdict, tuple[str, ...]]  # with the reasons


class _CopyJudge:
    """Judges copies one after another; `homes` has the NUMA node of each CPU by OS number."""

    def __init__(self, homes: Mapping[int, int | None]) -> None:
        self._homes = homes
        self._nodes: dict[int, tuple[int, ...] | None] = {}  # planned nodes by copy
        # Thousands of short runs without samples (steady mode) have few different verdicts.
        self._without_samples: dict[object, _Verdict] = {}

    def prove(self, copy: CopyEnded, plan: Placement, samples: Sequence[Sampled]) -> CopyProof:
        """Return evidence and verdict for one run of a copy."""
        if plan.copy not in self._nodes:
            self._nodes[plan.copy] = planned_nodes(plan, self._homes)
        nodes = self._nodes[plan.copy]
        seen = merged_samples(samples) if samples else _UNSEEN
        if samples:
            verdict, reasons = self._judge(copy, plan, seen, held_bytes=copy.max_rss_bytes)
        else:
            verdict, reasons = self._judge_unseen(copy, plan)
        local_nodes = nodes or (() if plan.node is None else (plan.node,))
        last_s = seen.last_age_s
        return _proof(
            copy,
            planned=plan.cpus is not None or nodes is not None,
            cpu=plan.cpu,
            node=plan.node,
            verdict=verdict,
            reasons=reasons,
            gate=copy.gate,
            seen=seen,
            unseen_s=None if last_s is None else max(0.0, copy.elapsed_s - last_s),
            local_share=seen.share_on(local_nodes) if local_nodes else None,
            evenness=evenness(plan, seen),
        )

    def _judge_unseen(self, copy: CopyEnded, plan: Placement) -> _Verdict:
        key = (copy.copy, copy.gate, copy.last_cpu, copy.elapsed_s < SAMPLED_FROM_S)
        if key not in self._without_samples:
            self._without_samples[key] = self._judge(copy, plan, _UNSEEN, held_bytes=None)
        return self._without_samples[key]

    def _judge(
        self, copy: CopyEnded, plan: Placement, seen: CopySamples, held_bytes: int | None
    ) -> _Verdict:
        return judge_copy(
            plan,
            copy.gate,
            seen,
            self._homes,
            copy.elapsed_s,
            held_bytes=held_bytes,
            last_cpu=copy.last_cpu,
        )


def _proof(copy: CopyEnded, **evidence: Any) -> CopyProof:
    return CopyProof(
        phase=copy.phase,
        benchmark=copy.benchmark,
        iteration=copy.iteration,
        copy=copy.copy,
        step=copy.step,
        counted=copy.counted,
        **evidence,
    )


def placement_judgements(proof: RunProof) -> Iterator[PlacementJudgement]:
    """Return the verdicts as they are stored with the copies."""
    for copy_proof in proof.copies:
        note = "; ".join(copy_proof.reasons) or None
        yield PlacementJudgement(
            phase=copy_proof.phase,
            copy=copy_proof.copy,
            step=copy_proof.step,
            placement=str(copy_proof.verdict),
            note=note,
        )


def _imported_proofs(run: StoredRun) -> RunProof:
    return RunProof(
        tuple(
            _proof(
                copy,
                planned=True,
                cpu=copy.cpu,
                node=copy.node,
                verdict=PlacementVerdict(copy.placement),
                reasons=() if copy.placement_note is None else (copy.placement_note,),
            )
            for copy in run.copies
            if copy.placement is not None
        )
    )


def _benchmark(name: str, proofs: Sequence[CopyProof]) -> BenchmarkProof:
    seen = [proof.seen for proof in proofs if proof.seen.samples]
    resident = [
        copy_samples.rss_average_bytes
        for copy_samples in seen
        if copy_samples.rss_average_bytes is not None
    ]
    highest = [
        copy_samples.rss_max_bytes
        for copy_samples in seen
        if copy_samples.rss_max_bytes is not None
    ]
    moves = [
        copy_samples.migrations for copy_samples in seen if copy_samples.migrations is not None
    ]
    local = [proof.local_share for proof in proofs if proof.local_share is not None]
    pages: dict[int, float] = {}
    for copy_samples in seen:
        for size, count in copy_samples.page_bytes or ():
            pages[size] = pages.get(size, 0.0) + count
    total = sum(pages.values())
    return BenchmarkProof(
        benchmark=name,
        copies=len(proofs),
        sampled=len(seen),
        rss_average_bytes=statistics.fmean(resident) if resident else None,
        rss_max_bytes=max(highest, default=None),
        page_shares=tuple((size, count / total) for size, count in sorted(pages.items()) if total),
        local_share=statistics.fmean(local) if local else None,
        least_local_share=min(local, default=None),
        migrations=statistics.fmean(moves) if moves else None,
    )
