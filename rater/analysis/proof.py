"""Whether copies ran, and their memory lay, where the plan said: by copy and by benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rater.analysis.verdict import Seen, Verdict, evenness, judge, look_back, planned_nodes
from rater.plan.evidence import GateFacts, Observed, Sampled
from rater.record import StoredRun

type Key = tuple[int, int, int]  # phase, copy, step


@dataclass(frozen=True, slots=True)
class CopyProof:
    """Evidence and verdict for one copy's run of one benchmark."""

    phase: int
    benchmark: str
    iteration: int
    copy: int
    step: int
    cpu: int | None  # planned
    node: int | None  # planned
    verdict: Verdict
    reasons: tuple[str, ...]  # in words, why the verdict is not `MET`
    gate: GateFacts | None
    seen: Seen
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

    copies: tuple[CopyProof, ...]
    benchmarks: tuple[BenchmarkProof, ...]  # in the order they ran
    observed: Observed | None  # what observing cost; None: it was off, or the run was killed

    def of(self, verdict: Verdict) -> tuple[CopyProof, ...]:
        """Return the copy runs with this verdict, in order."""
        return tuple(proof for proof in self.copies if proof.verdict is verdict)


def prove_run(
    run: StoredRun,
    gates: Mapping[Key, GateFacts],
    samples: Iterable[Sampled],
    observed: Observed | None = None,
) -> RunProof:
    """Return a proof for every copy of the run that was placed; torn attempts are left out.

    Without any evidence (an imported run, `--proof off`) there are no proofs.
    """
    by_key: dict[Key, list[Sampled]] = {}
    for sample in samples:
        by_key.setdefault((sample.phase, sample.copy, sample.step), []).append(sample)
    evident = bool(gates or by_key)
    placed = {placement.copy: placement for placement in run.placements if evident}
    homes = {pu.cpu: pu.node for pu in run.pus}
    proofs = []
    for copy in run.without_torn().copies:
        if copy.copy not in placed:
            continue
        key = (copy.phase, copy.copy, copy.step)
        plan, gate, seen = placed[copy.copy], gates.get(key), look_back(by_key.get(key, ()))
        verdict, reasons = judge(plan, gate, seen, homes, copy.elapsed_s)
        nodes = planned_nodes(plan, homes)
        home = (plan.node,) if plan.node is not None else None
        last_s = seen.last_age_s
        proofs.append(
            CopyProof(
                phase=copy.phase,
                benchmark=copy.benchmark,
                iteration=copy.iteration,
                copy=copy.copy,
                step=copy.step,
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
    return RunProof(tuple(proofs), tuple(by_name), observed)


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
