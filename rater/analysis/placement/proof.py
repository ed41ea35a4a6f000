"""Whether copies ran, and their memory lay, where the plan said: by copy and by benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rater.analysis.placement.verdict import (
    SAMPLED_FROM_S,
    CopySamples,
    PlacementVerdict,
    evenness,
    judge,
    merged_samples,
    planned_nodes,
)
from rater.record.events import GateFacts, Observed, Sampled
from rater.record.stored import PlacementJudgement, StoredRun

type Key = tuple[int, int, int]  # phase, copy, step
type _Alike = tuple[int, GateFacts | None, int | None, bool]

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
    gate: GateFacts | None
    seen: CopySamples
    unseen_s: float | None  # from its last sample to its end
    local_share: float | None  # of its memory on planned nodes; none planned: on its home node
    evenness: float | None  # interleaved: least share of a planned node x their number


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
        found: dict[tuple[str, int], set[int]] = {}
        for proof in self.of(PlacementVerdict.NOT_MET):
            found.setdefault((proof.benchmark, proof.iteration), set()).add(proof.copy)
        return {key: tuple(sorted(copies)) for key, copies in found.items()}

    def not_known(self) -> dict[tuple[str, ...], tuple[CopyProof, ...]]:
        """Return the copy runs of which it is not known by the reasons for that."""
        found: dict[tuple[str, ...], list[CopyProof]] = {}
        for proof in self.of(PlacementVerdict.NOT_KNOWN):
            found.setdefault(proof.reasons, []).append(proof)
        return {reasons: tuple(proofs) for reasons, proofs in found.items()}


def prove_run(run: StoredRun) -> RunProof:
    """Return a proof for every copy of the run that was placed; torn attempts are left out.

    Without any evidence (`--proof off`) there are no proofs, of an imported run those
    that its document states.
    """
    run = run.without_torn()
    if run.head.source == "import":
        return _stated(run)
    by_key: dict[Key, list[Sampled]] = {}
    for sample in run.samples:
        by_key.setdefault((sample.phase, sample.copy, sample.step), []).append(sample)
    evident = bool(by_key) or any(copy.gate for copy in run.copies)
    placed = {placement.copy: placement for placement in run.placements if evident}
    homes = {pu.cpu: pu.node for pu in run.pus}
    planned = {number: planned_nodes(plan, homes) for number, plan in placed.items()}
    # Thousands of short runs that were not looked at (steady mode) have few different verdicts.
    unseen: dict[_Alike, tuple[PlacementVerdict, tuple[str, ...]]] = {}
    proofs = []
    for copy in run.copies:
        if copy.copy not in placed:
            continue
        key = (copy.phase, copy.copy, copy.step)
        plan, gate = placed[copy.copy], copy.gate
        nodes = planned[copy.copy]
        if key in by_key:
            seen = merged_samples(by_key[key])
            verdict, reasons = judge(
                plan,
                gate,
                seen,
                homes,
                copy.elapsed_s,
                held_bytes=copy.max_rss_bytes,
                last_cpu=copy.last_cpu,
            )
        else:
            seen = _UNSEEN
            alike = (copy.copy, gate, copy.last_cpu, copy.elapsed_s < SAMPLED_FROM_S)
            if alike not in unseen:
                unseen[alike] = judge(
                    plan, gate, seen, homes, copy.elapsed_s, last_cpu=copy.last_cpu
                )
            verdict, reasons = unseen[alike]
        home = (plan.node,) if plan.node is not None else None
        last_s = seen.last_age_s
        proofs.append(
            CopyProof(
                phase=copy.phase,
                benchmark=copy.benchmark,
                iteration=copy.iteration,
                copy=copy.copy,
                step=copy.step,
                counted=copy.counted,
                planned=plan.cpus is not None or nodes is not None,
                cpu=plan.cpu,
                node=plan.node,
                verdict=verdict,
                reasons=reasons,
                gate=gate,
                seen=seen,
                unseen_s=None if last_s is None else max(0.0, copy.elapsed_s - last_s),
                local_share=seen.share_on(nodes or home or ()) if nodes or home else None,
                evenness=evenness(plan, seen),
            )
        )
    names = dict.fromkeys(proof.benchmark for proof in proofs)
    by_name = (_benchmark(name, [p for p in proofs if p.benchmark == name]) for name in names)
    return RunProof(tuple(proofs), tuple(by_name), run.observed)


def judged(proof: RunProof) -> Iterator[PlacementJudgement]:
    """Return the verdicts as they are stored with the copies."""
    for one in proof.copies:
        note = "; ".join(one.reasons) or None
        yield PlacementJudgement(one.phase, one.copy, one.step, str(one.verdict), note)


def _stated(run: StoredRun) -> RunProof:
    return RunProof(
        tuple(
            CopyProof(
                phase=copy.phase,
                benchmark=copy.benchmark,
                iteration=copy.iteration,
                copy=copy.copy,
                step=copy.step,
                counted=copy.counted,
                planned=True,
                cpu=copy.cpu,
                node=copy.node,
                verdict=PlacementVerdict(copy.placement),
                reasons=() if copy.placement_note is None else (copy.placement_note,),
                gate=None,
                seen=_UNSEEN,
                unseen_s=None,
                local_share=None,
                evenness=None,
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
