"""Verdicts on placement from literal evidence, and what is said of them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from rater.analysis.placement.proof import RunProof, prove_run
from rater.analysis.placement.verdict import (
    PlacementVerdict,
    evenness,
    judge,
    merged_samples,
    planned_nodes,
)
from rater.record.events import GateFacts, Observed, Sampled
from rater.record.run import MachinePU, PlacedCopy
from rater.record.stored import StoredRun
from rater.show.console.printer import Printer
from rater.show.results.placement import print_memory, print_placement, proof_document
from tests.support.example_runs import copy_row, stored
from tests.support.placement_samples import MB, PAGE, sample

HOMES = {0: 0, 1: 0, 2: 1, 3: 1, 4: None}


def plan(cpus: tuple[int, ...] | None = (2,), **changes: Any) -> PlacedCopy:
    """Copy 2 on CPU 2 of node 1, memory local."""
    placed = PlacedCopy(
        copy=2,
        cpus=cpus,
        cpu=cpus[0] if cpus else None,
        core=2,
        llc=0,
        node=HOMES[cpus[0]] if cpus else None,
        package=0,
        memory_policy="local",
        memory_nodes=(),
    )
    return replace(placed, **changes)


GATE = GateFacts(cpus=(2,), mems=(0, 1))


def verdict(
    placed: PlacedCopy,
    *samples: Sampled,
    gate: GateFacts | None = GATE,
    elapsed_s: float = 10.0,
    last_cpu: int | None = 2,
) -> tuple[PlacementVerdict, tuple[str, ...]]:
    return judge(placed, gate, merged_samples(samples), HOMES, elapsed_s, last_cpu=last_cpu)


def test_a_copy_that_took_most_of_its_memory_after_the_last_look_is_not_known() -> None:
    early = merged_samples([sample({1: 3 * MB})])
    assert judge(plan(), GATE, early, HOMES, 10.0, held_bytes=900 * MB) == (
        PlacementVerdict.NOT_KNOWN,
        ("most of its memory came after the last look at it",),
    )
    assert judge(plan(), GATE, early, HOMES, 10.0, held_bytes=9 * MB) == (PlacementVerdict.MET, ())
    only_here = GateFacts(cpus=(2,), mems=(1,))
    assert (
        judge(plan(), only_here, early, HOMES, 10.0, held_bytes=900 * MB)[0] is PlacementVerdict.MET
    )


def test_a_copy_seen_early_with_next_to_nothing_is_not_known() -> None:
    assert verdict(plan(), sample({1: MB // 10}), elapsed_s=0.9) == (
        PlacementVerdict.NOT_KNOWN,
        ("had next to no memory at the last look, before half of its time was over",),
    )
    assert verdict(plan(), sample({1: MB // 10}), elapsed_s=0.4) == (PlacementVerdict.MET, ())


def test_a_copy_that_ended_on_another_cpu_was_not_placed_as_planned() -> None:
    here = GateFacts(cpus=(2,), mems=(1,))
    assert verdict(plan(), gate=here, elapsed_s=0.1, last_cpu=3) == (
        PlacementVerdict.NOT_MET,
        ("ran on CPU 3, planned 2",),
    )
    assert verdict(plan(), gate=here, elapsed_s=0.1, last_cpu=None) == (
        PlacementVerdict.NOT_KNOWN,
        ("on which CPUs it ran was not seen",),
    )


def test_a_copy_that_may_use_one_cpu_and_moved_has_left_it() -> None:
    assert verdict(plan(), sample({1: 400 * MB}, migrations=3)) == (
        PlacementVerdict.NOT_MET,
        ("moved between CPUs 3 times, planned 2 only",),
    )
    assert verdict(
        plan((2, 3)), sample({1: 400 * MB}, allowed=(2, 3), migrations=3), gate=None
    ) == (
        PlacementVerdict.MET,
        (),
    )


def test_one_look_with_memory_away_is_enough() -> None:
    looks = [sample({1: 900 * MB}, age_ns=n * 10**9, looks=2) for n in range(9)]
    astray = sample({1: 900 * MB}, age_ns=9 * 10**9, looks=2, astray_bytes=((0, 48 * MB), (1, MB)))
    assert verdict(plan(), *looks)[0] is PlacementVerdict.MET
    assert verdict(plan(), *looks, astray) == (
        PlacementVerdict.NOT_MET,
        (
            "98 % of its 49 MB lay on lgroup 0 9.0 s into its run, planned 1; the kernel names its "
            "policy local",
        ),
    )


def test_of_what_was_not_looked_at_nothing_is_known() -> None:
    assert verdict(plan(), sample({1: 900 * MB}, unread=3)) == (
        PlacementVerdict.NOT_KNOWN,
        ("some of its processes, their threads or memory were not looked at",),
    )


def test_weighted_memory_must_lie_on_every_node_it_was_dealt_to() -> None:
    spread = plan(memory_policy="weighted", memory_nodes=(0, 1))
    assert verdict(spread, sample({0: 30 * MB, 1: 3 * MB}))[0] is PlacementVerdict.MET
    assert verdict(spread, sample({0: 30 * MB})) == (
        PlacementVerdict.NOT_MET,
        ("weighted over lgroups 0-1: 1 has none of it",),
    )


def test_a_few_pages_are_not_judged_by_how_evenly_they_lie() -> None:
    spread = plan(memory_policy="interleave", memory_nodes=(0, 1))
    assert verdict(spread, sample({0: MB, 1: PAGE}), elapsed_s=0.3) == (PlacementVerdict.MET, ())
    assert verdict(spread, sample({0: 4 * MB, 1: PAGE}))[0] is PlacementVerdict.NOT_MET


def test_a_copy_with_its_memory_at_home_met_its_plan() -> None:
    assert verdict(plan(), sample({1: 900 * MB, 0: 20 * MB})) == (PlacementVerdict.MET, ())


def test_memory_on_another_lgroup_is_not_the_plan() -> None:
    result, [why] = verdict(plan(), sample({1: 450 * MB, 0: 450 * MB}))
    assert result is PlacementVerdict.NOT_MET
    assert why == (
        "50 % of its 900 MB lay on lgroup 0, planned 1; the kernel names its policy local"
    )


def test_a_little_memory_elsewhere_is_start_up_data_however_large_its_share() -> None:
    assert verdict(plan(), sample({1: MB, 0: MB}))[0] is PlacementVerdict.MET
    assert verdict(plan(), sample({0: 2 * MB}))[0] is PlacementVerdict.NOT_MET
    just_within, just_beyond = {1: 95 * MB, 0: 5 * MB}, {1: 94 * MB, 0: 6 * MB}
    assert verdict(plan(), sample(just_within))[0] is PlacementVerdict.MET
    assert verdict(plan(), sample(just_beyond))[0] is PlacementVerdict.NOT_MET


def test_remote_memory_on_purpose_is_judged_by_the_planned_nodes() -> None:
    remote = plan(memory_policy="bind", memory_nodes=(0,))
    assert verdict(remote, sample({0: 900 * MB})) == (PlacementVerdict.MET, ())
    assert verdict(remote, sample({1: 900 * MB}))[0] is PlacementVerdict.NOT_MET
    far = plan(memory_policy="preferred", memory_nodes=(2, 3))
    assert verdict(far, sample({2: 1 * MB, 3: 900 * MB}), gate=None)[0] is PlacementVerdict.MET


def test_interleaved_memory_is_even_or_it_is_not_the_plan() -> None:
    spread = plan(memory_policy="interleave", memory_nodes=(0, 1, 2, 3))
    gate = GateFacts((2,), (0, 1, 2, 3))
    even = sample({node: 100 * MB for node in range(4)})
    assert verdict(spread, even, gate=gate) == (PlacementVerdict.MET, ())
    assert evenness(spread, merged_samples([even])) == 1.0
    full = sample({0: 130 * MB, 1: 130 * MB, 2: 10 * MB, 3: 130 * MB})
    result, [why] = verdict(spread, full, gate=gate)
    assert result is PlacementVerdict.NOT_MET
    assert why == "interleaved unevenly: lgroup 2 has 10 MB of it, an equal part is 100 MB"
    assert verdict(spread, sample({0: 400 * MB}), gate=gate)[0] is PlacementVerdict.NOT_MET


def test_few_huge_pages_can_not_be_even() -> None:
    huge = 1 << 30
    spread = plan(memory_policy="interleave", memory_nodes=(0, 1))
    seen = sample({0: 3 * huge, 1: huge}, page_bytes=((huge, 4 * huge),))
    assert verdict(spread, seen)[0] is PlacementVerdict.MET
    many = sample({0: 30 * huge, 1: 10 * huge}, page_bytes=((huge, 40 * huge),))
    assert verdict(spread, many)[0] is PlacementVerdict.NOT_MET


def test_weights_are_not_unevenness() -> None:
    weighted = plan(memory_policy="weighted", memory_nodes=(0, 1))
    assert verdict(weighted, sample({0: 300 * MB, 1: 100 * MB}))[0] is PlacementVerdict.MET
    assert evenness(weighted, merged_samples([sample({0: MB})])) is None


def test_a_mask_that_a_cpuset_narrowed_is_not_the_plan() -> None:
    wide = plan((2, 3))
    result, [why] = verdict(wide, sample({1: 100 * MB}), gate=GateFacts((2,), (0, 1)))
    assert result is PlacementVerdict.NOT_MET
    assert why.startswith("may use CPUs 2 only of the planned 2-3")
    result, [why] = verdict(plan(), sample({1: MB}), gate=GateFacts((2,), (0,)))
    assert result is PlacementVerdict.NOT_MET
    assert "may not take memory of lgroup 1" in why


def test_a_copy_that_ran_elsewhere_or_changed_its_mask_did_not_meet_its_plan() -> None:
    result, whys = verdict(plan(), sample({1: MB}), sample({1: MB}, cpus=(3,), allowed=(2, 3)))
    assert result is PlacementVerdict.NOT_MET
    assert whys == (
        "its CPU mask became 2-3 while it ran, planned 2",
        "ran on CPU 3, planned 2",
    )


def test_a_copy_that_narrows_its_own_mask_stays_within_the_plan() -> None:
    assert (
        verdict(plan((2, 3)), sample({1: 2 * MB}), gate=GateFacts((2, 3), (0, 1)))[0]
        is PlacementVerdict.MET
    )


def test_without_evidence_nothing_is_known() -> None:
    result, whys = verdict(plan(), gate=None)
    assert result is PlacementVerdict.NOT_KNOWN
    assert whys == ("which CPUs it might use was not seen", "its memory was not looked at")
    assert verdict(plan(), elapsed_s=0.3) == (
        PlacementVerdict.NOT_KNOWN,
        ("ended within 0.5 s, before its memory was looked at",),
    )
    assert verdict(plan(), sample(None)) == (
        PlacementVerdict.NOT_KNOWN,
        ("on which lgroups its memory lay could not be read",),
    )


def test_memory_that_can_lie_nowhere_else_needs_no_look() -> None:
    assert verdict(plan(), gate=GateFacts((2,), (1,)), elapsed_s=0.1) == (PlacementVerdict.MET, ())


def test_a_broken_plan_counts_more_than_what_is_not_known() -> None:
    assert verdict(plan(), gate=GateFacts((3,), (0, 1)))[0] is PlacementVerdict.NOT_MET


def test_where_nothing_was_planned_nothing_is_broken() -> None:
    free = plan(None, memory_policy="none")
    assert verdict(free, sample({0: 900 * MB}), gate=None) == (PlacementVerdict.MET, ())
    assert planned_nodes(free, HOMES) is None


def test_local_memory_is_that_of_every_cpu_the_copy_may_use() -> None:
    assert planned_nodes(plan((2, 3)), HOMES) == (1,)
    assert planned_nodes(plan((1, 2)), HOMES) == (0, 1)
    assert planned_nodes(plan((2, 4)), HOMES) is None  # CPU 4 has no memory of its own
    assert planned_nodes(plan(None), HOMES) is None
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


def run_of(placements: Sequence[PlacedCopy], seconds: Sequence[float]) -> StoredRun:
    return replace(
        stored([copy_row(number, s) for number, s in enumerate(seconds)]),
        placements=tuple(placements),
        pus=tuple(MachinePU(cpu, cpu, 0, node, 0) for cpu, node in HOMES.items()),
    )


def four_copies() -> RunProof:
    """Copy 0 as planned, 1 with remote memory, 2 and 3 too short to be looked at."""
    placements = [plan((number,), copy=number) for number in range(4)]
    gates = {(0, n, 0): GateFacts((n,), (0, 1)) for n in range(4)}
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
    observed = Observed("auto", 2, None, 0.001, 0.0005, 0.0012, ("no such file here",))
    run = run_of(placements, [2.0, 3.0, 0.1, 0.2])
    copies = tuple(
        replace(c, gate=gates[c.phase, c.copy, c.step], last_cpu=c.copy) for c in run.copies
    )
    return prove_run(replace(run, copies=copies, samples=tuple(samples), observed=observed))


def test_a_run_has_a_verdict_for_each_copy_and_sums_for_each_benchmark() -> None:
    proof = four_copies()
    assert [one.verdict for one in proof.copies] == [
        PlacementVerdict.MET,
        PlacementVerdict.NOT_MET,
        PlacementVerdict.NOT_KNOWN,
        PlacementVerdict.NOT_KNOWN,
    ]
    assert [one.local_share for one in proof.copies] == [1.0, 0.25, None, None]
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
    stream = io.StringIO()
    printer = Printer(Console(file=stream, width=width))
    print_placement(proof, printer)
    print_memory(proof, printer)
    return stream.getvalue()


def test_what_was_not_met_is_named_and_what_is_not_known_is_put_together() -> None:
    lines = shown(four_copies(), width=200).splitlines()
    assert lines == [
        "placement of 4 copies: met 1, not met 1, not known 2; the results above include what was "
        "not met",
        "not met: copy 1 of a, iteration 1 (CPU 1, lgroup 0): 75 % of its 400 MB lay on lgroup 1, "
        "planned 0; the kernel names its policy local",
        "not known: 2 copies (2-3): ended within 0.5 s, before its memory was looked at",
        "benchmark    seen  resident  most     4 KB     2 MB  local  least  moves",
        "           copies        MB    MB  pages %  pages %      %      %  /copy",
        "a             2/4       401   402       62       38   62.5   25.0    0.0",
        "pages % and local %: of anonymous memory; local: on the lgroups planned, or at home; "
        "least: of one copy; moves: to another CPU",
        "2 looks at copies while they ran: 0.05 % of one CPU, 1.2 ms at most",
        "no such file here",
    ]


def test_a_run_as_planned_says_so_in_a_line() -> None:
    proof = four_copies()
    good = RunProof(proof.copies[:1], (), None)
    assert shown(good) == "placement as planned: 1 copy\n"
    assert shown(RunProof((), (), None)) == ""


def test_only_the_first_of_many_broken_copies_are_named() -> None:
    broken = four_copies().copies[1]
    many = RunProof(tuple(replace(broken, copy=n) for n in range(30)), (), None)
    text = shown(many)
    assert text.count("not met: copy") == 10
    assert "and 20 more not met" in text


def test_the_document_has_every_copy_and_is_json() -> None:
    document = json.loads(json.dumps(proof_document(four_copies())))
    assert (document["met"], document["not_met"], document["not_known"]) == (1, 1, 2)
    one = document["copies"][1]
    assert one["verdict"] == "not met"
    assert one["seen"]["node_bytes"] == {"0": 100e6, "1": 300e6}
    assert one["gate"] == {"cpus": [1], "mems": [0, 1]}
    assert document["benchmarks"][0]["page_shares"] == {"4096": 0.625, "2097152": 0.375}
    assert document["observed"]["share"] == 0.0005
