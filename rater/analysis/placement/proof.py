"""Whether copies ran, and their memory lay, where the plan said: by copy and by benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rater.analysis.placement.verdict import (
    SAMPLED_FROM_S,
    CopySamples,
    PlacementVerdict,
    evenness,
    judge,
    merged_samples,
    planned_nodes,
)
from rater.groups import grouped
from rater.record.events import GateFacts, Observed
from rater.record.stored import PlacementJudgement, StoredCopy, StoredRun

_UNSEEN = merged_samples(())


@dataclass(frozen=True, slots=True)
class CopyProof:
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


@dataclass(frozen=True, slots=True)
class BenchmarkProof:
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


@dataclass(frozen=True, slots=True)
class RunProof:
    """All proofs of a run."""

    copies: tuple[CopyProof, ...] = ()
    benchmarks: tuple[BenchmarkProof, ...] = ()  # in the order they ran
    observed: Observed | None = None  # what observing cost; None: it was off, or the run was killed

    def of(self, verdict: PlacementVerdict) -> tuple[CopyProof, ...]:
        """Return the copy runs with this verdict, in order."""
        return tuple(proof for proof in self.copies if proof.verdict is verdict)

    def not_met(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """Return the copies whose plan was not met by benchmark and iteration, where any are."""
        found = grouped(
            ((it.benchmark, it.iteration), it.copy) for it in self.of(PlacementVerdict.NOT_MET)
        )
        return {key: tuple(sorted(set(copies))) for key, copies in found.items()}

    def not_known(self) -> dict[tuple[str, ...], tuple[CopyProof, ...]]:
        """Return the copy runs of which it is not known by the reasons for that."""
        found = grouped((it.reasons, it) for it in self.of(PlacementVerdict.NOT_KNOWN))
        return {reasons: tuple(proofs) for reasons, proofs in found.items()}


def prove_run(run: StoredRun) -> RunProof:
    """Return a proof for every copy of the run that was placed; torn attempts are left out.

    Without any evidence (`--proof off`) there are no proofs, of an imported run those
    that its document states.
    """
    run = run.without_torn()
    if run.head.source == "import":
        return _stated(run)
    by_key = grouped(((it.phase, it.copy, it.step), it) for it in run.samples)
    evident = bool(by_key) or any(copy.gate for copy in run.copies)
    placed = {placement.copy: placement for placement in run.placements if evident}
    homes = {pu.cpu: pu.node for pu in run.pus}
    planned = {number: planned_nodes(plan, homes) for number, plan in placed.items()}
    # Thousands of short runs without samples (steady mode) have few different verdicts.
    unseen: dict[object, tuple[PlacementVerdict, tuple[str, ...]]] = {}
    proofs = []
    for copy in run.copies:
        if copy.copy not in placed:
            continue
        plan, nodes = placed[copy.copy], planned[copy.copy]
        samples = by_key.get((copy.phase, copy.copy, copy.step))
        seen = merged_samples(samples) if samples else _UNSEEN
        key = (copy.copy, copy.gate, copy.last_cpu, copy.elapsed_s < SAMPLED_FROM_S)
        verdict = None if samples else unseen.get(key)
        if verdict is None:
            held = copy.max_rss_bytes if samples else None
            verdict = judge(
                *(plan, copy.gate, seen, homes, copy.elapsed_s),
                held_bytes=held,
                last_cpu=copy.last_cpu,
            )
            if not samples:
                unseen[key] = verdict
        home = (plan.node,) if plan.node is not None else None
        last_s = seen.last_age_s
        proofs.append(
            _proof(
                copy,
                planned=plan.cpus is not None or nodes is not None,
                cpu=plan.cpu,
                node=plan.node,
                verdict=verdict[0],
                reasons=verdict[1],
                gate=copy.gate,
                seen=seen,
                unseen_s=None if last_s is None else max(0.0, copy.elapsed_s - last_s),
                local_share=seen.share_on(nodes or home or ()) if nodes or home else None,
                evenness=evenness(plan, seen),
            )
        )
    by_name = grouped((proof.benchmark, proof) for proof in proofs)
    benchmarks = tuple(_benchmark(name, of) for name, of in by_name.items())
    return RunProof(tuple(proofs), benchmarks, run.observed)


def _proof(copy: StoredCopy, **known: Any) -> CopyProof:
    return CopyProof(
        *(copy.phase, copy.benchmark, copy.iteration, copy.copy, copy.step, copy.counted), **known
    )


def judged(proof: RunProof) -> Iterator[PlacementJudgement]:
    """Return the verdicts as they are stored with the copies."""
    for one in proof.copies:
        note = "; ".join(one.reasons) or None
        yield PlacementJudgement(one.phase, one.copy, one.step, str(one.verdict), note)


def _stated(run: StoredRun) -> RunProof:
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
    resident = [s.rss_average_bytes for s in seen if s.rss_average_bytes is not None]
    highest = [s.rss_max_bytes for s in seen if s.rss_max_bytes is not None]
    moves = [s.migrations for s in seen if s.migrations is not None]
    local = [proof.local_share for proof in proofs if proof.local_share is not None]
    pages: dict[int, float] = {}
    for one in seen:
        for size, count in one.page_bytes or ():
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
