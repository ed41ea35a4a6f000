"""What a self-test plants, what counts as naming it, and the speed of CPUs by themselves."""

from __future__ import annotations

import io
import random

import pytest
from msgspec.structs import replace

from rater.analysis.divots.model.finding import CopyEffect, Finding, Kind
from rater.analysis.divots.selftest import (
    Deviation,
    Judgement,
    PromiseTrials,
    Verdict,
    floor_of,
    judge,
    largest_speed_change,
    names,
    plant_size,
    speeds_of,
    spread_of,
    tally,
)
from rater.plan.selftest import (
    CLEAN,
    Injection,
    PlantKind,
    plan_injections,
    plan_pair,
    promised_injections,
    usual_copies,
)
from rater.record.run import MemoryPolicy, Placement
from rater.run.host.foreign_load import BusyProcess, ForeignLoad
from rater.show.results.selftest import (
    SelfTest,
    refusal,
    selftest_document,
    selftest_parts,
    speed_words,
    summary,
)
from rater.show.screen.console import Printer, TextScreen
from rater.show.screen.document import print_parts
from rater.workflow.run.selftest import made_rows, others_words, times_of_rows
from tests.support.example_findings import finding_of

FOUND = finding_of(
    Kind.SLOW_CPU,
    "CPU 1",
    (1,),
    benchmarks=(),
    tune=None,
    nodes=(0,),
    core=1,
    slowdown=1.25,
    score_lost=0.2,
    summary="+25.0 % in 3 of 3 benchmarks",
)
CPU = Injection(kind=PlantKind.SLOW_CPU, place="CPU 1", copies=(1,), cpus=(1,), aimed=1.25)
LGROUP = Injection(
    kind=PlantKind.SLOW_LGROUP, place="node 1", copies=(3, 4, 5), cpus=(3, 4, 5), node=1, aimed=1.25
)
COPY = Injection(
    kind=PlantKind.OUTLIER_COPY, place="copy 2", copies=(2,), benchmark="vm", iteration=3, aimed=1.4
)
ITERATION = Injection(kind=PlantKind.SLOW_ITERATION, place="iteration 2", iteration=2, aimed=1.25)


def placements(lgroups: int, cpus_each: int, copies_each: int = 1) -> list[Placement]:
    """Copies dealt over the CPUs of lgroups, CPU after CPU, `copies_each` on every CPU."""
    cpus = lgroups * cpus_each
    return [
        Placement(
            copy=copy,
            cpus=(copy % cpus,),
            cpu=copy % cpus,
            core=copy % cpus,
            llc=0,
            node=copy % cpus // cpus_each,
            package=0,
            memory_policy=LOCAL,
            memory_nodes=(),
        )
        for copy in range(cpus * copies_each)
    ]


LOCAL = MemoryPolicy.LOCAL


def verdict(injection: Injection, *found: Finding, effect: float | None = 1.25) -> Verdict:
    return judge(injection, effect, found, 0.03, 3).verdict


# -- what is planted ------------------------------------------------------------------------------


def test_two_lgroups_get_one_plant_of_every_kind() -> None:
    plants, missing = plan_injections(placements(2, 4), 3, random.Random(1))
    assert [injection.kind for injection in plants] == [
        "slow-lgroup",
        "slow-cpu",
        "slow-iteration",
    ]
    assert missing == ()


def test_a_machine_of_one_lgroup_gets_no_slow_lgroup_and_is_told_why() -> None:
    plants, missing = plan_injections(placements(1, 2, 4), 3, random.Random(1))
    assert [injection.kind for injection in plants] == [
        "slow-cpu",
        "slow-iteration",
    ]
    assert [(it.kind, "one NUMA node" in it.why) for it in missing] == [("slow-lgroup", True)]


@pytest.mark.parametrize(
    ("shape", "left_out", "why"),
    [
        ((4, 2), ["slow-lgroup"], "more --copies"),
        ((1, 1, 8), ["slow-lgroup", "slow-cpu"], "copies run on one CPU"),
        ((1, 2), ["slow-lgroup", "slow-cpu"], "two CPUs need 8 copies"),
    ],
)
def test_what_is_too_small_to_be_judged_is_left_out(
    shape: tuple[int, ...], left_out: list[str], why: str
) -> None:
    _, missing = plan_injections(placements(*shape), 3, random.Random(1))
    assert [it.kind for it in missing] == left_out
    assert why in missing[-1].why


def test_a_slow_lgroup_is_disturbed_on_its_own_cpus_in_every_cell() -> None:
    plants, _ = plan_injections(placements(2, 4), 3, random.Random(1))
    injection = plants[0]
    node = injection.node or 0
    assert injection.copies == injection.cpus == tuple(range(4 * node, 4 * node + 4))
    assert dict(injection.competing("b", 3)) == pytest.approx(dict.fromkeys(injection.cpus, 0.2))
    assert injection.how.startswith("competing processes take 20% of CPUs ")


def test_a_slow_iteration_is_disturbed_on_all_cpus_in_that_one_only() -> None:
    plants, _ = plan_injections(placements(1, 4), 3, random.Random(1))
    odd = plants[-1]
    [disturbed] = [iteration for iteration in (1, 2, 3) if odd.competing("a", iteration)]
    assert disturbed == odd.iteration
    assert [cpu for cpu, _ in odd.competing("a", disturbed)] == [0, 1, 2, 3]


def test_the_seed_decides_what_is_planted() -> None:
    first, again = (plan_injections(placements(2, 8), 5, random.Random(7))[0] for _ in range(2))
    assert first == again
    different = [
        plan_injections(placements(2, 8), 5, random.Random(number))[0] for number in range(20)
    ]
    assert len({plants[1].place for plants in different}) > 4


@pytest.mark.parametrize(
    ("pus", "lgroups", "copies"), [(1, 1, 8), (2, 1, 8), (4, 1, 4), (96, 4, 16), (24, 1, 8)]
)
def test_few_copies_are_enough(pus: int, lgroups: int, copies: int) -> None:
    assert usual_copies(pus, lgroups) == copies


# -- what counts as naming it ---------------------------------------------------------------------


GROUP = replace(FOUND, kind=Kind.SLOW_GROUP, copies=(1, 3, 5), nodes=())
IN_LGROUP = replace(FOUND, kind=Kind.SLOW_LGROUP, nodes=(1,), copies=(3, 4, 5), cpus=(3, 4, 5))
SINGLE = replace(
    FOUND,
    kind=Kind.OUTLIER_COPY,
    benchmarks=("vm",),
    iterations=(3,),
    copies=(2,),
    singles=(
        CopyEffect(benchmark="vm", tune=None, iteration=3, copy=2, cpu=2, node=0, slowdown=1.4),
    ),
)
SLOW = replace(FOUND, kind=Kind.SLOW_ITERATION, iterations=(1,), copies=(0, 1, 2))
STARTUP = replace(SLOW, kind=Kind.STARTUP)
FIRST = replace(ITERATION, iteration=1)


@pytest.mark.parametrize(
    ("injection", "findings"),
    [
        (CPU, [FOUND]),
        (CPU, [replace(FOUND, iterations=(1, 2, 3))]),
        (replace(CPU, copies=(1, 3, 5)), [GROUP]),
        (LGROUP, [IN_LGROUP]),
        (LGROUP, [replace(IN_LGROUP, kind=Kind.SLOW_GROUP, nodes=())]),
        (COPY, [SINGLE]),
        (ITERATION, [replace(SLOW, iterations=(2,))]),
        (FIRST, [SLOW, STARTUP]),
        (FIRST, [STARTUP]),  # its copies had to wait
        (FIRST, [replace(SLOW, kind=Kind.WARM_UP, explained=True)]),
        (replace(ITERATION, iteration=3), [replace(SLOW, kind=Kind.STEP, iterations=(3,))]),
        (CLEAN, [replace(FOUND, explained=True)]),
        # Smaller than the machine's own noise:
        (CPU, [FOUND, replace(FOUND, cpus=(2,), copies=(2,), slowdown=1.02)]),
        (CLEAN, [replace(FOUND, slowdown=1.02)]),
    ],
)
def test_what_was_injected_is_right_at_its_place(
    injection: Injection, findings: list[Finding]
) -> None:
    assert verdict(injection, *findings) is Verdict.RIGHT


@pytest.mark.parametrize(
    ("injection", "findings"),
    [
        (CPU, []),
        (CPU, [replace(FOUND, cpus=(2,), copies=(2,))]),
        (CPU, [FOUND, replace(SLOW, iterations=(2,))]),  # one false finding
        (CPU, [replace(FOUND, iterations=(2,))]),
        (CPU, [replace(FOUND, slowdown=0.8)]),
        (CPU, [replace(FOUND, slowdown=1.05)]),
        (replace(CPU, copies=(1, 3, 5)), [replace(GROUP, copies=(1, 2, 3, 5))]),
        (LGROUP, [replace(IN_LGROUP, nodes=(0,), copies=(0, 1, 2))]),
        (
            COPY,
            [
                replace(
                    SINGLE,
                    singles=(
                        *SINGLE.singles,
                        CopyEffect(
                            benchmark="vm",
                            tune=None,
                            iteration=3,
                            copy=7,
                            cpu=7,
                            node=0,
                            slowdown=1.4,
                        ),
                    ),
                )
            ],
        ),
        (
            COPY,
            [
                replace(
                    SINGLE,
                    singles=(
                        CopyEffect(
                            benchmark="vm",
                            tune=None,
                            iteration=1,
                            copy=2,
                            cpu=2,
                            node=0,
                            slowdown=1.4,
                        ),
                    ),
                )
            ],
        ),
        (
            ITERATION,
            [replace(SLOW, iterations=(2,)), replace(STARTUP, iterations=(2,))],
        ),
        (ITERATION, [replace(SLOW, kind=Kind.WARM_UP, iterations=(2,), explained=True)]),
        (CLEAN, [FOUND]),
    ],
)
def test_anything_else_is_wrong(injection: Injection, findings: list[Finding]) -> None:
    assert verdict(injection, *findings) is Verdict.WRONG


def test_a_slow_cpu_told_as_some_of_its_copies_only_is_true_but_does_not_name_it() -> None:
    shared = replace(CPU, copies=(1, 3, 5))
    outlier = replace(FOUND, kind=Kind.OUTLIER_COPY, copies=(1, 3))
    result = judge(shared, 1.25, [outlier], 0.03, 3)
    assert (result.named, result.secondary, result.false) == ((), (outlier,), ())
    assert result.verdict is Verdict.WRONG
    assert verdict(shared, replace(FOUND, copies=(1, 3, 5)), outlier) is Verdict.RIGHT


def test_a_plant_without_effect_is_neither_named_nor_missed() -> None:
    assert verdict(CPU, effect=1.04) is Verdict.NO_EFFECT
    result = tally([judge(LGROUP, 1.2, [], 0.03, 3), judge(CPU, 1.04, [], 0.03, 3)])
    assert (result.planted, result.failed) == (1, 1)


def test_a_run_that_others_disturbed_is_not_judged_unless_it_is_right() -> None:
    assert judge(CPU, 1.25, [], 0.03, 3, others=0.4).verdict is Verdict.NOT_JUDGED
    assert judge(CPU, 1.25, [FOUND], 0.03, 3, others=0.4).verdict is Verdict.RIGHT
    assert judge(CPU, 1.25, [], 0.03, 3, unsteady=0.4).verdict is Verdict.NOT_JUDGED
    assert judge(CPU, 1.25, [FOUND], 0.03, 3, unsteady=-0.4).verdict is Verdict.RIGHT


def test_all_must_be_right_for_the_whole_to_be() -> None:
    right = judge(CPU, 1.25, [FOUND], 0.03, 3)
    false = judge(CLEAN, None, [FOUND], 0.03, 3)
    unjudged = judge(CPU, 1.25, [], 0.03, 3, others=0.4)
    assert tally([right]).right
    assert not tally([right, false]).right
    assert not tally([right, unjudged]).right
    assert summary(tally([right, false])) == "selftest: 1 of 1 planted divot named, 1 false"
    assert summary(tally([right, unjudged])).endswith("0 false, 1 not judged")


# -- plain comparisons ----------------------------------------------------------------------------


def times(slow: dict[tuple[str, int, int], float]) -> dict[tuple[str, int, int], float]:
    """Two benchmarks of 1 s and 2 s, three iterations, four copies, some of them slower."""
    usual = {"a": 1.0, "b": 2.0}
    cells = [
        (name, iteration, copy) for name in usual for iteration in (1, 2, 3) for copy in range(4)
    ]
    return {cell: usual[cell[0]] * slow.get(cell, 1.0) for cell in cells}


def test_the_spread_is_that_of_the_copy_farthest_from_its_benchmark() -> None:
    widest = spread_of(times({("b", 2, 3): 1.08, ("a", 1, 0): 0.95}))
    assert widest is not None
    assert (widest.benchmark, widest.iteration, widest.copy) == ("b", 2, 3)
    assert widest.size == pytest.approx(0.08)
    assert spread_of({}) is None


def test_copies_of_a_cpu_that_something_slowed_are_not_the_noise_of_the_others() -> None:
    slow = times({("b", 2, 3): 1.3, ("a", 1, 0): 0.96})
    cpu_of = {0: 0, 1: 0, 2: 1, 3: 1}
    steady = {
        (name, iteration, cpu): 1e-3 for name in "ab" for iteration in (1, 2, 3) for cpu in (0, 1)
    }
    widest = spread_of(slow, steady | {("b", 2, 1): 1.6e-3}, cpu_of)
    assert widest is not None
    assert widest.size == pytest.approx(0.04)
    ragged = {cell: (1 + cell[1]) * 1e-3 for cell in steady}  # of which hardly anything is left
    for costs in ({}, steady, ragged):
        widest = spread_of(slow, costs, cpu_of)
        assert widest is not None
        assert widest.size == pytest.approx(0.3)


def test_what_is_judged_grows_with_the_noise() -> None:
    assert floor_of(0.001) == 0.05
    assert floor_of(0.06) == pytest.approx(0.12)


def test_the_effect_is_taken_from_the_raw_times() -> None:
    slow = times({(name, iteration, 1): 1.3 for name in "ab" for iteration in (1, 2, 3)})
    assert plant_size(CPU, slow, times({})) == pytest.approx(1.3)
    all_slower = {cell: 1.1 * seconds for cell, seconds in slow.items()}
    assert plant_size(CPU, all_slower, times({})) == pytest.approx(1.3)


# -- shown ----------------------------------------------------------------------------------------


def shown(*judged: Judgement, width: int = 80) -> list[str]:
    file = io.StringIO()
    screen = TextScreen(file, width=width, is_terminal=False)
    print_parts(selftest_parts(example(*judged)), Printer(screen))
    return file.getvalue().splitlines()


def example(*judged: Judgement) -> SelfTest:
    _, missing = plan_injections(placements(1, 2, 4), 3, random.Random(1))
    return SelfTest(
        copies=8,
        cpus=(0, 1),
        lgroups=1,
        benchmarks=("moldyn", "vm", "rays"),
        iterations=3,
        seed=17,
        spread=0.012,
        floor=0.03,
        judged=judged,
        missing=missing,
        tally=tally(judged),
        again=1,
        command="rater doctor selftest --seed 17",
    )


def test_planted_and_found_stand_side_by_side() -> None:
    lines = shown(judge(CLEAN, None, [], 0.03, 3), judge(CPU, 1.26, [FOUND], 0.03, 3))
    assert max(map(len, lines)) <= 80
    [clean] = [line for line in lines if line.startswith("nothing")]
    [cpu] = [line for line in lines if line.startswith("slow-cpu")]
    assert clean.split() == ["nothing", "nothing", "right"]
    assert cpu.split() == ["slow-cpu", "CPU", "1", "+26", "%", "CPU", "1", "+25", "%", "right"]
    assert any("one NUMA node" in line for line in lines)
    assert lines[-1] == "selftest: 1 of 1 planted divot named, 0 false"


def test_what_was_wrong_is_told_in_full_with_what_to_do() -> None:
    text = "\n".join(shown(judge(CPU, 1.25, [replace(FOUND, cpus=(0,), copies=(0,))], 0.03, 3)))
    assert "Not named" in text
    assert "+25.0 % in 3 of 3 benchmarks" in text
    assert "rater doctor selftest --seed 17" in text


def test_a_machine_that_is_not_quiet_is_blamed_itself() -> None:
    by = replace(
        judge(CPU, 1.25, [], 0.03, 3, others=0.4),
        disturbed="others took 40% of CPU 1 (vm, iteration 2): cc1 (pid 7, user ann)",
    )
    text = " ".join(" ".join(shown(by)).split())
    assert "Others took 40% of CPU 1 (vm, iteration 2): cc1 (pid 7, user ann)." in text
    assert "--until-idle" in text
    unsteady = judge(CPU, 1.25, [], 0.03, 3, unsteady=0.4)
    lines = shown(replace(unsteady, disturbed=speed_words(0.4, 1)))
    text = " ".join(" ".join(lines).split())
    assert "The same work took 40% more CPU time on CPU 1 for a while." in text
    assert "other guests of the host" in text
    assert "1 run repeated: something else slowed the CPUs" in text


def test_too_much_noise_is_a_refusal_with_its_size() -> None:
    said = refusal(Deviation(0.12, "vm", 2, 3), "others took 30% of a CPU", 0.06)
    assert "copies differ by 12% without anything planted" in said
    assert "(copy 3 of vm, iteration 2; 6% would do). others took 30% of a CPU; stop" in said
    assert "would do). stop" in refusal(Deviation(0.12, "vm", 2, 3), "", 0.06)


def test_the_document_has_truth_and_findings() -> None:
    document = selftest_document(example(judge(CPU, 1.26, [FOUND], 0.03, 3)))
    assert (document["right"], document["planted"], document["named"]) == (True, 1, 1)
    plants = document["plants"]
    assert isinstance(plants, list)
    assert plants[0]["verdict"] == "right"
    assert plants[0]["named"][0]["place"] == "CPU 1"


# -- made times -----------------------------------------------------------------------------------


def made_times(injection: Injection, seed: int) -> dict[tuple[str, int, int], float]:
    rows = made_rows([injection], placements(2, 4), ["a", "b"], 3, random.Random(seed))
    return dict(times_of_rows(rows, ["a", "b"]))


def test_made_times_are_slow_where_and_as_much_as_is_planted() -> None:
    plants, _ = plan_injections(placements(2, 4), 3, random.Random(1))
    clean = made_times(CLEAN, 2)
    assert len(clean) == 2 * 3 * 8
    assert max(clean.values()) / min(clean.values()) < 1.05
    for injection in plants:
        effect = plant_size(injection, made_times(injection, 3), clean)
        assert effect == pytest.approx(1.25, abs=0.015), injection.kind


@pytest.mark.parametrize(
    ("shape", "kinds"),
    [((2, 4), ["slow-lgroup", "slow-cpu"]), ((1, 8), ["slow-cpu", "slow-iteration"])],
)
def test_two_different_faults_are_planted_in_one_run(
    shape: tuple[int, int], kinds: list[str]
) -> None:
    plants, _ = plan_injections(placements(*shape), 3, random.Random(1))
    pair = plan_pair(plants, placements(*shape), random.Random(1))
    assert pair is not None
    assert [injection.kind for injection in pair] == kinds
    if kinds[0] == "slow-lgroup":
        assert not {*pair[0].copies} & {*pair[1].copies}


def test_one_cpu_has_no_room_for_two_faults() -> None:
    plants, _ = plan_injections(placements(1, 1, 8), 3, random.Random(1))
    assert plan_pair(plants, placements(1, 1, 8), random.Random(1)) is None


def test_each_of_two_faults_is_measured_and_named_without_the_other() -> None:
    shape = placements(2, 4)
    plants, _ = plan_injections(shape, 3, random.Random(1))
    group, cpu = plan_pair(plants, shape, random.Random(1)) or (CLEAN, CLEAN)
    clean = made_times(CLEAN, 2)
    rows = made_rows([group, cpu], shape, ["a", "b"], 3, random.Random(3))
    made = dict(times_of_rows(rows, ["a", "b"]))
    assert plant_size(group, made, clean, cpu) == pytest.approx(1.25, abs=0.015)
    assert plant_size(cpu, made, clean, group) == pytest.approx(1.5, abs=0.02)
    of_cpu = replace(FOUND, cpus=cpu.cpus, copies=cpu.copies, slowdown=1.5)
    beside = judge(group, 1.25, [of_cpu], 0.03, 3, second=cpu)
    assert (beside.named, beside.false, beside.verdict) == ((), (), Verdict.WRONG)
    assert judge(cpu, 1.5, [of_cpu], 0.03, 3, second=group).verdict is Verdict.RIGHT


def test_what_is_promised_is_planted_at_just_that_size_in_its_scope() -> None:
    visible = {"group": 0.01, "group-benchmark": 0.02, "copy": 0.1, "iteration": 0.05, "x": 1.0}
    visible["copy-benchmark"] = 0.04
    shape = [*placements(2, 4), *placements(2, 4)[:4]]  # node 1 has the fewest
    planted = promised_injections(visible, shape, ["a", "b"], 3, random.Random(1))
    assert {name: one.aimed for name, one in planted.items()} == {
        "group": 1.01,
        "group-benchmark": 1.02,
        "copy-benchmark": 1.04,
        "copy": 1.1,
        "iteration": 1.05,
    }
    assert (planted["copy-benchmark"].iteration, planted["group"].iteration) == (None, None)
    assert planted["group"].node == planted["group-benchmark"].node == 1
    assert planted["group"].benchmark is None
    assert planted["group-benchmark"].benchmark in ("a", "b")
    assert len(planted["copy"].copies) == 1
    assert planted["copy"].iteration in (1, 2, 3)
    one_node = promised_injections(visible, placements(1, 4), ["a"], 3, random.Random(1))
    assert set(one_node) == {"copy-benchmark", "copy", "iteration"}


def test_a_promise_is_found_where_its_place_is_named_whatever_the_size() -> None:
    in_one = replace(LGROUP, benchmark="vm", aimed=1.02)
    assert names(replace(IN_LGROUP, benchmarks=("vm",), slowdown=1.05), in_one, 3)
    assert not names(IN_LGROUP, in_one, 3)  # all benchmarks
    assert not names(replace(IN_LGROUP, benchmarks=("vm",), slowdown=0.9), in_one, 3)
    assert names(SINGLE, COPY, 3)
    assert not names(replace(SINGLE, singles=(), iterations=(1,)), COPY, 3)


@pytest.mark.parametrize(("times_found", "kept"), [(20, True), (12, True), (9, True), (8, False)])
def test_a_promise_is_broken_where_chance_does_not_explain_so_few(
    times_found: int, kept: bool
) -> None:
    one = PromiseTrials("group", replace(LGROUP, aimed=1.016), 20, times_found)
    assert one.kept is kept
    test = replace(example(judge(CPU, 1.26, [FOUND], 0.03, 3)), promised=(one,), made_noise=0.005)
    assert test.right is kept
    file = io.StringIO()
    print_parts(selftest_parts(test), Printer(TextScreen(file, width=80)))
    assert f"a node 1.6 % slower in all benchmarks; found in {times_found} of 20 runs" in " ".join(
        file.getvalue().split()
    )
    assert selftest_document(test)["promised"] == [
        {"scope": "group", "kind": "slow-lgroup", "size": 1.016, "trials": 20}
        | {"found": times_found, "kept": kept}
    ]


def test_who_took_a_cpu_is_named_with_it() -> None:
    others = {("vm", 1, 0): 0.05, ("vm", 1, 1): 0.4, ("rays", 2, 0): 0.1}
    busy = ForeignLoad(
        (BusyProcess(7, "cc1", 0.96, "ann"), BusyProcess(9, "cc1", 0.5, "ann")), 0.0, 0.0
    )
    assert others_words(("vm", 1, 1), others, busy) == (
        "others took 40% of CPU 1 (vm, iteration 1): cc1 (2 processes, user ann, 146 % of a CPU)"
    )
    nobody = others_words(("vm", 1, 1), others, ForeignLoad((), 0.0, 0.25))
    assert nobody.endswith("(vm, iteration 1): the hypervisor's other guests (25% of all CPUs)")
    unknown = others_words(None, {}, ForeignLoad((), 0.0, 0.0))
    assert unknown.endswith("no process that can be seen here")


CALM = {(name, iteration, cpu): 1e-3 for name in "ab" for iteration in (1, 2, 3) for cpu in (0, 1)}


def test_the_speed_of_a_cpu_is_told_from_what_is_usual_of_itself() -> None:
    costs = {cell: 1e-3 * (1 + cell[2] + (cell[0] == "b")) for cell in CALM}
    costs["a", 3, 1] = 2.8e-3
    speeds = speeds_of(costs)
    assert speeds["a", 3, 0] == 0
    assert speeds["a", 3, 1] == pytest.approx(0.4)
    change, cpu = largest_speed_change(costs)
    assert change == pytest.approx(0.4)
    assert cpu == max(costs, key=lambda it: costs[it])[2]
    change, cpu = largest_speed_change(CALM | {("a", 2, 0): 0.5e-3})
    assert change == pytest.approx(-0.5)
    assert cpu == 0
    assert largest_speed_change({}) == (0.0, None)


def test_copies_that_used_no_cpu_time_have_no_speed() -> None:
    asleep = dict.fromkeys(CALM, 0.0)
    assert speeds_of(asleep) == {}
    assert largest_speed_change(asleep)[0] == 0
