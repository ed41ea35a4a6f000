"""Verdicts on placement from literal evidence, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from rater.analysis.results.placement import (
    PlacementVerdict,
    RunProof,
    evenness,
    judge_copy,
    merged_samples,
    planned_nodes,
    prove_run,
)
from rater.record.events import GateFacts, Observed, Sampled
from rater.record.run import MachinePU, MemoryPolicy, Placement
from rater.record.stored import StoredRun
from rater.show.results.placement import memory_parts, placement_facts, proof_document
from rater.show.screen.document import facts
from tests.support.example_runs import copy_row, stored
from tests.support.placement_samples import MB, PAGE, sample
from tests.support.printed import text_of

HOMES = {0: 0, 1: 0, 2: 1, 3: 1, 4: None}


def plan(cpus: tuple[int, ...] | None = (2,), **changes: Any) -> Placement:
    """Copy 2 on CPU 2 of node 1, memory local."""
    placed = Placement(
        copy=2,
        cpus=cpus,
        cpu=cpus[0] if cpus else None,
        core=2,
        llc=0,
        node=HOMES[cpus[0]] if cpus else None,
        package=0,
        memory_policy=MemoryPolicy.LOCAL,
        memory_nodes=(),
    )
    return replace(placed, **changes)


GATE = GateFacts(cpus=(2,), mems=(0, 1))


def verdict(
    placed: Placement,
    *samples: Sampled,
    gate: GateFacts | None = GATE,
    elapsed_s: float = 10.0,
    last_cpu: int | None = 2,
) -> tuple[PlacementVerdict, tuple[str, ...]]:
    return judge_copy(placed, gate, merged_samples(samples), HOMES, elapsed_s, last_cpu=last_cpu)


SPREAD = plan(memory_policy="interleave", memory_nodes=(0, 1))
FOUR = plan(memory_policy="interleave", memory_nodes=(0, 1, 2, 3))
WEIGHTED = plan(memory_policy="weighted", memory_nodes=(0, 1))
REMOTE = plan(memory_policy="bind", memory_nodes=(0,))
HERE = GateFacts((2,), (1,))  # its memory can lie on its own lgroup only
ANY = GateFacts((2,), (0, 1, 2, 3))
HUGE = 1 << 30


def met(placed: Placement, *samples: Sampled, **more: Any) -> bool:
    return verdict(placed, *samples, **more) == (PlacementVerdict.MET, ())


def not_met(placed: Placement, *samples: Sampled, **more: Any) -> str:
    found, whys = verdict(placed, *samples, **more)
    assert found is PlacementVerdict.NOT_MET
    return "; ".join(whys)


def not_known(*samples: Sampled, **more: Any) -> str:
    found, whys = verdict(plan(), *samples, **more)
    assert found is PlacementVerdict.NOT_KNOWN
    return "; ".join(whys)


def test_local_memory_is_at_home_but_for_start_up_data() -> None:
    assert met(plan(), sample({1: 900 * MB, 0: 20 * MB}))
    assert not_met(plan(), sample({1: 450 * MB, 0: 450 * MB})) == (
        "50 % of its 900 MB was on node 0; planned: node 1; the kernel names its policy local"
    )
    # However large its share; then the share counts.
    assert met(plan(), sample({1: MB, 0: MB}))
    assert not_met(plan(), sample({0: 2 * MB}))
    assert met(plan(), sample({1: 95 * MB, 0: 5 * MB}))
    assert not_met(plan(), sample({1: 94 * MB, 0: 6 * MB}))


def test_one_look_with_memory_away_is_enough() -> None:
    looks = [sample({1: 900 * MB}, age_ns=number * 10**9, looks=2) for number in range(9)]
    astray = sample({1: 900 * MB}, age_ns=9 * 10**9, looks=2, astray_bytes=((0, 48 * MB), (1, MB)))
    assert met(plan(), *looks)
    assert not_met(plan(), *looks, astray) == (
        "98 % of its 49 MB was on node 0 9.0 s into its run; planned: node 1; the kernel names its "
        "policy local"
    )


def test_memory_on_chosen_nodes_is_judged_by_those() -> None:
    assert met(REMOTE, sample({0: 900 * MB}))
    assert not_met(REMOTE, sample({1: 900 * MB}))
    far = plan(memory_policy="preferred", memory_nodes=(2, 3))
    assert met(far, sample({2: 1 * MB, 3: 900 * MB}), gate=None)
    # Weights are not unevenness, but memory must lie on every node of them.
    assert met(WEIGHTED, sample({0: 300 * MB, 1: 100 * MB}))
    assert met(WEIGHTED, sample({0: 30 * MB, 1: 3 * MB}))
    assert not_met(WEIGHTED, sample({0: 30 * MB})) == "weighted over nodes 0-1: 1 has none of it"
    assert evenness(WEIGHTED, merged_samples([sample({0: MB})])) is None


def test_interleaved_memory_is_even_or_it_is_not_the_plan() -> None:
    even = sample({node: 100 * MB for node in range(4)})
    assert met(FOUR, even, gate=ANY)
    assert evenness(FOUR, merged_samples([even])) == 1.0
    full = sample({0: 130 * MB, 1: 130 * MB, 2: 10 * MB, 3: 130 * MB})
    assert not_met(FOUR, full, gate=ANY) == (
        "interleaved unevenly: node 2 has 10 MB of it, an equal part is 100 MB"
    )
    assert not_met(FOUR, sample({0: 400 * MB}), gate=ANY)
    # Neither a few pages nor a few huge ones can be even.
    assert met(SPREAD, sample({0: MB, 1: PAGE}), elapsed_s=0.3)
    assert not_met(SPREAD, sample({0: 4 * MB, 1: PAGE}))
    assert met(SPREAD, sample({0: 3 * HUGE, 1: HUGE}, page_bytes=((HUGE, 4 * HUGE),)))
    assert not_met(SPREAD, sample({0: 30 * HUGE, 1: 10 * HUGE}, page_bytes=((HUGE, 40 * HUGE),)))


def test_a_copy_runs_where_it_was_planned() -> None:
    other = sample({1: MB}, cpus=(3,), allowed=(2, 3))
    assert not_met(plan(), sample({1: MB}), other) == (
        "its CPU mask became 2-3 while it ran, planned 2 (of a program that binds itself: "
        "`--bind none`); ran on CPU 3, planned 2"
    )
    ended_at_3 = not_met(plan(), gate=HERE, elapsed_s=0.1, last_cpu=3)
    assert ended_at_3 == "ran on CPU 3, planned 2"
    assert not_met(plan(), sample({1: 400 * MB}, migrations=3)) == (
        "moved between CPUs 3 times, planned 2 only"
    )
    assert met(plan((2, 3)), sample({1: 400 * MB}, allowed=(2, 3), migrations=3), gate=None)


def test_a_mask_that_a_cpuset_narrowed_is_not_the_plan_but_a_copy_may_narrow_its_own() -> None:
    narrowed = not_met(plan((2, 3)), sample({1: 100 * MB}), gate=GATE)
    assert narrowed.startswith("may use CPUs 2 only of the planned 2-3")
    elsewhere = not_met(plan(), sample({1: MB}), gate=GateFacts((2,), (0,)))
    assert "may not take memory of node 1" in elsewhere
    assert met(plan((2, 3)), sample({1: 2 * MB}), gate=GateFacts((2, 3), (0, 1)))
    # It counts more than what is not known.
    assert not_met(plan(), gate=GateFacts((3,), (0, 1)))


def test_of_what_was_not_looked_at_nothing_is_known() -> None:
    assert not_known(gate=None) == (
        "which CPUs it might use was not seen; its memory was not looked at"
    )
    early = "before its memory was sampled"
    assert not_known(elapsed_s=0.3) == f"finished within 2 s, {early}"
    assert not_known(sample(None)) == "on which NUMA nodes its memory lay could not be read"
    last_cpu = not_known(gate=HERE, elapsed_s=0.1, last_cpu=None)
    assert last_cpu == "on which CPUs it ran was not seen"
    assert not_known(sample({1: 900 * MB}, unread=3)) == (
        "some of its processes, their threads or memory were not looked at"
    )
    assert not_known(sample({1: MB // 10}), elapsed_s=0.9) == (
        "had next to no memory at the last look, before half of its time was over"
    )
    assert met(plan(), sample({1: MB // 10}), elapsed_s=0.4)
    # Memory that can lie nowhere else needs no look, and nothing planned cannot be broken.
    assert met(plan(), gate=HERE, elapsed_s=0.1)
    assert met(plan(None, memory_policy="none"), sample({0: 900 * MB}), gate=None)


def test_a_copy_that_took_most_of_its_memory_after_the_last_look_is_not_known() -> None:
    def held(gate: GateFacts, size_bytes: int) -> tuple[PlacementVerdict, tuple[str, ...]]:
        early = merged_samples([sample({1: 3 * MB})])
        return judge_copy(plan(), gate, early, HOMES, 10.0, held_bytes=size_bytes)

    why = "most of its memory came after the last look at it"
    assert held(GATE, 900 * MB) == (PlacementVerdict.NOT_KNOWN, (why,))
    assert held(GATE, 9 * MB) == held(HERE, 900 * MB) == (PlacementVerdict.MET, ())


def test_local_memory_is_that_of_every_cpu_the_copy_may_use() -> None:
    assert planned_nodes(plan((2, 3)), HOMES) == (1,)
    assert planned_nodes(plan((1, 2)), HOMES) == (0, 1)
    assert planned_nodes(plan((2, 4)), HOMES) is None  # CPU 4 has no memory of its own
    assert planned_nodes(plan(None), HOMES) is None
    assert planned_nodes(plan(None, memory_policy="none"), HOMES) is None
    assert planned_nodes(plan(memory_nodes=(1,)), HOMES) == (1,)


def test_samples_of_a_copy_become_averages_and_extremes() -> None:
    seen = merged_samples(
        [
            sample({1: 300 * MB}, age_ns=1_200_000_000, migrations=3, cpus=(3,), swap_bytes=5),
            sample({1: 100 * MB, 0: 20 * MB}, migrations=1),
            sample(None, age_ns=700_000_000, rss_bytes=None, peak_bytes=None, policy=None),
        ]
    )
    assert (seen.samples, seen.last_age_s) == (3, 1.2)
    assert seen.cpus == (2, 3)
    assert (seen.migrations, seen.swap_bytes, seen.policy) == (3, 5, "local")
    assert dict(seen.node_bytes or ()) == {0: 10 * MB, 1: 200 * MB}
    assert dict(seen.page_bytes or ()) == {PAGE: 210 * MB}
    assert seen.rss_average_bytes == 211 * MB  # 301 and 121
    assert seen.rss_max_bytes == 302 * MB
    assert seen.share_on((1,)) == 200 / 210
    assert merged_samples([]).share_on((1,)) is None


# -- a run ----------------------------------------------------------------------------------------


def run_of(placements: Sequence[Placement], seconds: Sequence[float]) -> StoredRun:
    return replace(
        stored([copy_row(number, time_s) for number, time_s in enumerate(seconds)]),
        placements=tuple(placements),
        pus=tuple(
            MachinePU(cpu=cpu, core=cpu, llc=0, node=node, package=0) for cpu, node in HOMES.items()
        ),
    )


def four_copies() -> RunProof:
    """Copy 0 as planned, 1 with remote memory, 2 and 3 too short to be looked at."""
    placements = [plan((number,), copy=number) for number in range(4)]
    gates = {(0, number, 0): GateFacts((number,), (0, 1)) for number in range(4)}
    samples = [
        sample({0: 400 * MB}, copy=0, cpus=(0,), allowed=(0,), page_bytes=((PAGE, 400 * MB),)),
        sample(
            {0: 100 * MB, 1: 300 * MB},
            copy=1,
            cpus=(1,),
            allowed=(1,),
            page_bytes=((PAGE, 100 * MB), (2 << 20, 300 * MB)),
            migrations=0,
        ),
    ]
    observed = Observed(
        cadence="auto",
        samples=2,
        interval_s=None,
        cpu_s=0.001,
        share=0.0005,
        longest_read_s=0.0012,
        unknown=("no such file here",),
    )
    run = run_of(placements, [2.0, 3.0, 0.1, 0.2])
    copies = tuple(
        replace(copy, gate=gates[copy.phase, copy.copy, copy.step], last_cpu=copy.copy)
        for copy in run.copies
    )
    return prove_run(replace(run, copies=copies, samples=tuple(samples), observed=observed))


def test_a_run_has_a_verdict_for_each_copy_and_sums_for_each_benchmark() -> None:
    proof = four_copies()
    assert [copy.verdict for copy in proof.copies] == [
        PlacementVerdict.MET,
        PlacementVerdict.NOT_MET,
        PlacementVerdict.NOT_KNOWN,
        PlacementVerdict.NOT_KNOWN,
    ]
    assert [copy.local_share for copy in proof.copies] == [1.0, 0.25, None, None]
    assert proof.copies[1].unseen_s == 2.8
    [benchmark] = proof.benchmarks
    assert (benchmark.copies, benchmark.sampled) == (4, 2)
    assert benchmark.rss_average_bytes == 401 * MB
    assert benchmark.rss_max_bytes == 402 * MB
    assert benchmark.page_shares == ((PAGE, 5 / 8), (2 << 20, 3 / 8))
    assert (benchmark.local_share, benchmark.least_local_share) == (0.625, 0.25)
    assert benchmark.migrations == 0.0


def test_a_run_without_any_evidence_has_no_proofs() -> None:
    assert prove_run(run_of([plan()], [1.0, 1.0, 1.0])).copies == ()


def shown(proof: RunProof, width: int = 100) -> str:
    return text_of([facts(placement_facts(proof)), *memory_parts(proof)], width)


def test_what_was_not_met_is_named_and_what_is_not_known_is_put_together() -> None:
    lines = shown(four_copies(), width=200).splitlines()
    assert lines == [
        "placement       of 4 copies: 1 as planned, 1 not as planned, 2 unknown; the results "
        "include the misplaced copies",
        "not as planned  copy 1 of a, iteration 1 (CPU 1, node 0): 75 % of its 400 MB was on "
        "node 1; planned: node 0; the kernel names its policy local",
        "unknown         2 copies (copies 2-3): finished within 2 s, before its memory was sampled",
        "",
        "benchmark    seen  resident  most     4 KB     2 MB  local  least  moves",
        "           copies        MB    MB  pages %  pages %      %      %  /copy",
        "a             2/4       401   402       62       38   62.5   25.0    0.0",
        "pages %, local %: share of anonymous memory. local: on the planned or home node. "
        "least: worst copy. moves: CPU migrations.",
        "",
        "2 samples of running copies: 0.05 % of one CPU, 1.2 ms at most",
        "no such file here",
    ]


def test_a_run_as_planned_says_so_in_a_line() -> None:
    proof = four_copies()
    good = RunProof(proof.copies[:1], (), None)
    assert shown(good) == "placement  as planned: 1 copy\n"
    assert shown(RunProof((), (), None)) == ""


def test_only_the_first_of_many_broken_copies_are_named() -> None:
    broken = four_copies().copies[1]
    many = RunProof(tuple(replace(broken, copy=copy) for copy in range(30)), (), None)
    text = shown(many)
    assert text.count("copy 1") >= 0 and text.count(" of a, iteration 1") == 10
    assert "and 20 more (--proof names them all)" in text


def test_the_document_has_every_copy_and_is_json() -> None:
    document = json.loads(json.dumps(proof_document(four_copies())))
    assert (document["met"], document["not_met"], document["not_known"]) == (1, 1, 2)
    one = document["copies"][1]
    assert one["verdict"] == "not met"
    assert one["seen"]["node_bytes"] == {"0": 100e6, "1": 300e6}
    assert one["gate"] == {"cpus": [1], "mems": [0, 1]}
    assert document["benchmarks"][0]["page_shares"] == {"4096": 0.625, "2097152": 0.375}
    assert document["observed"]["share"] == 0.0005
