"""Phases in their order, rotated plans and what is said of them, and sweeps as values."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rater.plan.placement.layout import CpuOrder, Layout, load_layout, override_layout
from rater.plan.placement.offer import offer_cpus
from rater.plan.placement.place import plan_placements
from rater.plan.schedule import (
    Order,
    Plan,
    make_plan,
    order_table,
    remedies_for,
    resolve_mode,
    ring_steps,
    rotation_warnings,
)
from rater.plan.sweep import (
    EXAMPLE,
    Axis,
    AxisKind,
    BlockOrder,
    SweepSlot,
    check_axes,
    grid,
    is_sweep_text,
    kinds_of,
    order_slots,
    parse_axis,
    parse_sweep,
    point_label,
)
from rater.plan.topology import Topology
from rater.record.run import MemoryPolicy
from rater.run.host.discover import parse_synthetic
from rater.system.errors import InputError
from rater.text.documents import MistakesError
from tests.support.machines import generated, real
from tests.support.places import needs_machines


def rotated(benchmarks: str, copies: int, iterations: int = 1, increment: int = 1) -> Plan:
    return make_plan(
        benchmarks.split(),
        copies,
        mode="rotated",
        order=Order.ROTATED,
        iterations=iterations,
        increment=increment,
    )


def names(plan: Plan, copy: int) -> str:
    return " ".join(step.benchmark for step in plan.phases[0].queues[copy].steps)


def test_copy_n_starts_at_benchmark_n_and_steps_through_the_ring() -> None:
    # The published example of SPEC CPU 2026's order: four benchmarks, four copies.
    plan = rotated("714 727 734 750", copies=4)
    assert [names(plan, copy) for copy in range(4)] == [
        "714 727 734 750",
        "727 734 750 714",
        "734 750 714 727",
        "750 714 727 734",
    ]
    beyond = rotated("a b c", copies=7)  # copies beyond the ring repeat its queues
    assert names(beyond, 4) == names(beyond, 1) == "b c a"
    assert (ring_steps(1, 5, 2), ring_steps(3, 5, 0)) == ((1, 3, 0, 2, 4), (3,))  # increments


def test_rounds_repeat_the_queue_without_a_barrier() -> None:
    plan = rotated("a b c", copies=2, iterations=2)
    assert len(plan.phases) == 1
    assert names(plan, 1) == "b c a b c a"
    assert [step.iteration for step in plan.phases[0].queues[1].steps] == [1, 1, 1, 2, 2, 2]


def test_homogeneous_runs_every_benchmark_once_before_the_second_iteration() -> None:
    plan = make_plan(["a", "b"], 2, iterations=2, discard=1)
    assert [
        (phase.number, phase.benchmark, phase.iteration, phase.counted) for phase in plan.phases
    ] == [
        (0, "a", 1, False),
        (1, "b", 1, False),
        (2, "a", 2, True),
        (3, "b", 2, True),
    ]


def test_stagger_is_in_milliseconds_between_consecutive_copies() -> None:
    plan = make_plan(["a"], 128, mode="staggered", stagger_ms=6000)
    queues = plan.phases[0].queues
    assert (queues[1].offset_ns, queues[127].offset_ns) == (6_000_000_000, 762_000_000_000)


@pytest.mark.parametrize(
    ("mode", "stagger", "expected"),
    [
        (None, None, ("homogeneous", Order.HOMOGENEOUS, 0.0)),
        (None, 20.0, ("staggered", Order.HOMOGENEOUS, 20.0)),
        ("staggered", 20.0, ("staggered", Order.HOMOGENEOUS, 20.0)),
        ("heterogeneous", None, ("rotated", Order.ROTATED, 0.0)),
        ("rotated", 5.0, ("rotated", Order.ROTATED, 5.0)),
    ],
)
def test_modes_are_shorthand_for_an_order_and_a_stagger(
    mode: str | None, stagger: float | None, expected: tuple[str, Order, float]
) -> None:
    assert resolve_mode(mode, stagger) == expected


@pytest.mark.parametrize(
    ("mode", "stagger", "said"),
    [
        ("staggered", None, "needs --stagger"),
        ("homogeneous", 5.0, "leave out --stagger"),
        (None, -1.0, "0 or more"),
        (None, float("nan"), "0 or more"),
        ("sideways", None, "expected homogeneous"),
        (None, 1e300, "at most"),
        ("staggered", 86_400_001.0, "at most"),  # a day
    ],
)
def test_modes_that_make_no_sense_are_refused(
    mode: str | None, stagger: float | None, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        resolve_mode(mode, stagger)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"iterations": 0}, "--iterations 0"),
        ({"iterations": 2, "discard": 2}, "at least one"),
        ({"discard": -1}, "--discard -1"),
        ({"increment": -1}, "--increment -1"),
        ({"iterations": 100_000_000_000}, "take fewer --iterations"),
    ],
)
def test_counts_that_make_no_run_are_refused(wrong: dict[str, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        make_plan(["a"], 2, **wrong)  # type: ignore[arg-type]  # the table mixes the keywords


def test_the_order_table_names_equal_queues_once() -> None:
    assert order_table(rotated("a b", copies=5)) == [
        ((0, 2, 4), ("a", "b")),
        ((1, 3), ("b", "a")),
    ]
    assert order_table(make_plan(["a", "b"], 3)) == [((0, 1, 2), ("a", "b"))]


def test_an_order_without_a_mode_is_told_the_mode_that_has_it() -> None:
    said = "^--order rotated goes with --mode steady; for a rotated run use --mode rotated$"
    for stagger_ms in (None, 5.0):
        with pytest.raises(InputError, match=said):
            resolve_mode(None, stagger_ms, "rotated")
    with pytest.raises(InputError, match="--mode staggered says the order itself"):
        resolve_mode("staggered", 5.0, "rotated")


FOUR = "pack:1 numa:4 l3:1 core:6 pu:2"


def ring_plan(ring: int, copies: int, increment: int = 1) -> Plan:
    names = [f"b{number}" for number in range(ring)]
    return make_plan(names, copies, mode="rotated", order=Order.ROTATED, increment=increment)


def warned(
    machine: str | Topology, layout: str | Layout, copies: int, ring: int, increment: int = 1
) -> tuple[str, ...]:
    topology = parse_synthetic(machine) if isinstance(machine, str) else machine
    wanted = load_layout(layout) if isinstance(layout, str) else layout
    placements = plan_placements(topology, wanted, copies, MemoryPolicy.LOCAL).placements
    plan = ring_plan(ring, copies, increment)
    remedies = remedies_for(plan, placements, offer_cpus(topology, wanted), 1)
    return rotation_warnings(plan, placements, topology, remedies)


def test_lgroups_that_run_one_benchmark_at_a_time_are_named_with_a_layout_that_mixes() -> None:
    # Copies 0, 4, 8, ... are all on lgroup 0.
    assert warned(FOUR, "scatter", 24, 4) == (
        "rotated: each of 4 NUMA nodes runs only one of the 4 benchmarks at a time, the same "
        "in step "
        "on all of its 6 copies; --layout balanced mixes them",
    )
    assert warned(FOUR, "balanced", 24, 4) == ()


def test_pure_lgroups_with_different_benchmarks_are_not_said_to_run_the_same() -> None:
    # Lgroups 0 and 2 run b0 only, 1 and 3 b1 only.
    [said] = warned("pack:1 numa:4 l3:1 core:6 pu:1", "scatter", 24, 2)
    assert said.startswith("rotated: each of 4 NUMA nodes runs only one of the 2 benchmarks")
    assert "same mix" not in said


def test_caches_that_run_one_benchmark_at_a_time_are_named_where_lgroups_are_mixed() -> None:
    [said] = warned("pack:1 l3:4 core:6 pu:1", "scatter", 24, 4)
    assert said.startswith("rotated: each of 4 LLCs runs only one of the 4 benchmarks at a time")


def test_a_stride_that_shares_a_factor_with_the_ring_halves_the_mix() -> None:
    # Lgroup 0 has copies 0, 4, 8, ...: starts 0, 4, 2 of 6.
    assert warned(FOUR, "scatter", 24, 6) == (
        "rotated: each of 4 NUMA nodes runs no more than 3 of the 6 benchmarks at a time, in "
        "step on "
        "its 6 copies; --layout balanced mixes them",
    )


def test_siblings_of_a_core_that_run_in_step_are_named() -> None:
    # Siblings are 12 copies apart: a multiple of 2, 3 and 4.
    for ring in (2, 3, 4):
        assert warned("pack:1 core:12 pu:2", "cores", 24, ring) == (
            "rotated: on 12 of 12 cores copies run the same benchmark in step (their numbers "
            f"differ by multiples of the ring length {ring}); --layout balanced mixes them",
        )
    assert warned("pack:1 core:12 pu:2", "cores", 24, 5) == ()


def test_where_no_layout_mixes_a_ring_that_does_is_named() -> None:
    # Copies 0 and 16 are both on PU 0; 16 is a multiple of 4, not of 3.
    [said] = warned("pack:2 core:4 pu:2", "balanced", 32, 4)
    assert said.endswith("; a ring of 3 benchmarks mixes them")
    # The order of a list is the user's own.
    [said] = warned("nodes=4x4", "list:0,4,8,12,1,5,9,13,2,6,10,14,3,7,11,15", 16, 4)
    assert said.endswith("at a time, the same in step on all of its 4 copies; a ring of 3 "
                         "benchmarks mixes them")  # fmt: skip


def test_advice_that_does_not_work_is_left_out() -> None:
    # Two copies on each PU, 60 apart: a multiple of 2, 3, 4, 5 and 6.
    text = "list:" + ",".join(str(cpu) for cpu in range(60))
    machine = parse_synthetic("pack:1 core:60 pu:1")
    placements = plan_placements(machine, load_layout(text), 120, MemoryPolicy.LOCAL).placements
    plan = ring_plan(4, 120)
    remedies = remedies_for(plan, placements, offer_cpus(machine, load_layout(text)), 1)
    [said] = rotation_warnings(plan, placements, machine, remedies)
    assert said.endswith("(their numbers differ by multiples of the ring length 4)")


def test_a_layout_of_one_s_own_is_told_what_to_write() -> None:
    own = Layout(
        name="./own.toml", description="", order=CpuOrder.SCATTER, bind=load_layout("scatter").bind
    )
    [said] = warned(FOUR, own, 24, 4)
    assert said.endswith('; order = "balanced" in the layout mixes them')


def test_lgroups_that_run_the_same_mix_in_step_are_named_without_advice() -> None:
    assert warned("nodes=2x14", "balanced", 28, 14) == (
        "rotated: both NUMA nodes run the same mix of benchmarks in step (14 copies each, a "
        "multiple "
        "of the ring length 14), never another one",
    )
    assert warned("pack:2 numa:1 l3:2 core:3 pu:1", "balanced", 12, 3) == (
        "rotated: all 4 LLCs and both NUMA nodes run the same mix of benchmarks in step (3 and 6 "
        "copies each, a multiple of the ring length 3), never another one",
    )


def test_copies_that_may_run_anywhere_meet_nobody_in_particular() -> None:
    wide = override_layout(load_layout("scatter"), bind="package")
    assert warned("pack:1 numa:4 core:6 pu:2", wide, 24, 4) == ()
    assert warned(FOUR, "none", 24, 4) == ()


def test_an_increment_that_skips_benchmarks_is_named() -> None:
    [said] = warned("nodes=1x1", "balanced", 1, 4, increment=2)
    assert said == (
        "--increment 2 shares a factor with the ring of 4 benchmarks: each copy runs only 2 of "
        "them, several times a round"
    )


@needs_machines
@pytest.mark.parametrize(
    ("name", "layout", "copies", "ring", "each"),
    [("epyc9555", "scatter", 120, 8, "8 NUMA nodes"), ("xeon-snc2", "os", 56, 4, "4 NUMA nodes")],
)
def test_aliasing_on_real_machines_is_named(
    name: str, layout: str, copies: int, ring: int, each: str
) -> None:
    [said] = warned(real(name), layout, copies, ring)
    assert said.startswith(f"rotated: each of {each} runs only one of the {ring} benchmarks")
    assert said.endswith("; --layout balanced mixes them")


def test_no_lgroup_of_one_benchmark_goes_unnamed_on_any_machine() -> None:
    named = 0
    for seed, topology in enumerate(generated()[:120]):
        layout = load_layout(("scatter", "os", "cores", "fill", "balanced")[seed % 5])
        copies, ring = len(topology.pus), 2 + seed % 7
        placements = plan_placements(topology, layout, copies, MemoryPolicy.LOCAL).placements
        starts: dict[int, Counter[int]] = {}
        for placement in placements:
            if placement.node is not None:
                starts.setdefault(placement.node, Counter())[placement.copy % ring] += 1
        pure = any(len(start) == 1 and start.total() > 1 for start in starts.values())
        said = rotation_warnings(ring_plan(ring, copies), placements, topology)
        if pure:
            named += 1
            assert any("in step" in text and "NUMA node" in text for text in said), topology.source
        if said and "all" in said[0] and "same mix" in said[0]:
            assert not pure, topology.source
    assert named > 5


FILE = Path("own.toml")


# -- axes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("copies=1,2,4", Axis("copies", ("1", "2", "4"))),
        (" copies = 1, 2 ", Axis("copies", ("1", "2"))),
        ("thp=never", Axis("thp", ("never",))),
        ("env:G=a.b=0,a.b=1", Axis("env:G", ("a.b=0", "a.b=1"))),
        ("env:G=, x ", Axis("env:G", ("", " x "))),
        (r"layout=list:0\,1,list:2\,3", Axis("layout", ("list:0,1", "list:2,3"))),
        ("wrap=,nice", Axis("wrap", ("", "nice"))),
    ],
)
def test_an_axis_is_a_name_and_its_values(text: str, axis: Axis) -> None:
    assert parse_axis(text) == axis


@pytest.mark.parametrize("text", ["copies", "=1,2", "copies=", " =1"])
def test_what_is_no_axis_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match=r"expected (NAME=)?V1,V2"):
        parse_axis(text)


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ([], "at least one axis"),
        ([Axis("copies", ("1", "2", "1"))], "copies: the value 1 stands there twice"),
        ([Axis("env:X", ("", ""))], r"the value \(none\) stands there twice"),
        ([Axis("thp", ("never",)), Axis("thp", ("always",))], "axis thp stands there twice"),
        ([Axis(name, tuple("0123456789")) for name in "abcde"], "100000 points"),
    ],
)
def test_axes_that_make_no_grid_are_refused(axes: list[Axis], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_axes(axes)


def test_a_name_is_an_option_a_variable_or_a_setting_and_options_come_first() -> None:
    axes = [Axis("copies", ("1",)), Axis("env:X", ("1",)), Axis("thp", ("never",))]
    assert kinds_of(axes, ["copies"], ["copies", "thp"]) == {
        "copies": AxisKind.OPTION,
        "env:X": AxisKind.ENVIRONMENT,
        "thp": AxisKind.SETTING,
    }


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        (Axis("copys", ("1",)), "did you mean copies"),
        (Axis("governer", ("1",)), "did you mean governor"),
        (Axis("xyz", ("1",)), "`rater settings` lists the settings, `rater run --help`"),
        (Axis("env:1X", ("1",)), "no name of an environment variable"),
        (Axis("env:RATER_COPY", ("7", "8")), "rater itself gives RATER_COPY to each copy"),
        (Axis("governor", ("", "powersave")), "governor: an empty value"),
    ],
)
def test_an_unknown_name_is_told_with_those_near_it(axis: Axis, said: str) -> None:
    with pytest.raises(InputError, match=said):
        kinds_of([axis], ["copies"], ["governor"])


# -- points and orders ----------------------------------------------------------------------------


def test_the_grid_has_the_last_axis_change_fastest_and_the_first_values_first() -> None:
    points = grid([Axis("copies", ("1", "4")), Axis("env:X", ("", "a"))])
    assert [point_label(point) for point in points] == [
        "copies=1 env:X=(none)",
        "copies=1 env:X=a",
        "copies=4 env:X=(none)",
        "copies=4 env:X=a",
    ]


def orders(order: BlockOrder, rounds: int = 3, seed: int = 7) -> list[list[int]]:
    slots = order_slots([0, 1, 2, 3], rounds, order, seed)
    return [[slot.point for slot in slots if slot.block == block] for block in range(1, rounds + 1)]


def test_given_order_is_the_same_in_every_block_and_abba_goes_backwards_in_every_second() -> None:
    assert orders(BlockOrder.GIVEN) == [[0, 1, 2, 3]] * 3
    assert orders(BlockOrder.ABBA) == [[0, 1, 2, 3], [3, 2, 1, 0], [0, 1, 2, 3]]


def test_shuffled_blocks_are_permutations_of_one_seed() -> None:
    blocks = orders(BlockOrder.SHUFFLED, rounds=20)
    assert all(sorted(block) == [0, 1, 2, 3] for block in blocks)
    assert len({tuple(block) for block in blocks}) > 10
    assert blocks == orders(BlockOrder.SHUFFLED, rounds=20)
    assert blocks != orders(BlockOrder.SHUFFLED, rounds=20, seed=8)


def test_slots_count_from_1_and_blocks_that_are_added_are_those_of_a_longer_sweep() -> None:
    assert order_slots([0, 2], 1, BlockOrder.GIVEN, 0) == (SweepSlot(1, 1, 0), SweepSlot(1, 2, 2))
    whole = order_slots([0, 2, 3], 5, BlockOrder.SHUFFLED, 7)
    begun = order_slots([0, 2, 3], 2, BlockOrder.SHUFFLED, 7)
    assert (*begun, *order_slots([0, 2, 3], 5, BlockOrder.SHUFFLED, 7, first=3)) == whole


# -- the file -------------------------------------------------------------------------------------


def test_a_file_says_all_that_a_command_line_can() -> None:
    file = parse_sweep(
        '[sweep]\nsuites = ["mini"]\nrounds = 4\norder = "abba"\nseed = 0\nuntil = "1%"\n'
        'skip_refused = true\n[axes]\ncopies = [1, 2]\n"env:X" = ["", "a,b"]\nstagger = [0.5]\n'
        '[run]\nsize = "test"\nkeep = true\nenv = ["A=1"]\n',
        FILE,
    )
    assert (file.suites, file.command, file.rounds, file.seed) == (("mini",), (), 4, 0)
    assert (file.order, file.until) == (BlockOrder.ABBA, "1%")
    assert (file.skip_refused, file.stop_on_failure) == (True, False)
    assert file.axes == (
        Axis("copies", ("1", "2")),
        Axis("env:X", ("", "a,b")),
        Axis("stagger", ("0.5",)),
    )
    assert file.options == (("size", "test"), ("env", ("A=1",)), ("keep", True))


def test_what_a_file_does_not_say_is_none() -> None:
    file = parse_sweep("[axes]\ncopies = [1]\n", FILE)
    assert (file.rounds, file.order, file.seed, file.until) == (None,) * 4
    assert file.options == ()


def test_the_example_is_a_file_without_mistakes() -> None:
    file = parse_sweep(EXAMPLE, FILE)
    assert [axis.name for axis in file.axes] == ["copies", "thp", "env:MALLOC_ARENA_MAX"]
    assert is_sweep_text(EXAMPLE)
    assert not is_sweep_text("[suite]\nformat = 1\n# [sweep]\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[axes]\ncopies = 1\n", "own.toml:2: axes.copies: expected a list of strings or numbers"),
        ("[axes]\ncopies = []\n", "own.toml:2: axes.copies: expected at least one value"),
        ("[axes]\ncopies = [true]\n", r"own.toml:2: axes.copies\[0\]: expected a string or a num"),
        ("[sweep]\nrounds = 1\n", "axes: missing; expected a table"),
        ("[axes]\nc = [1]\n[sweep]\nround = 1\n", "own.toml:4: sweep.round: .*mean rounds"),
        ("[axes]\nc = [1]\n[sweep]\nrounds = 0\n", "own.toml:4: sweep.rounds: expected a whole"),
        ("[axes]\nc = [1]\n[run]\nsise = 'x'\n", "own.toml:4: run.sise: unknown key; .*size"),
        ("[axes]\nc = [1]\n[run]\nkeep = 1\n", "own.toml:4: run.keep: expected true or false"),
        ("[axes]\nc = [1]\n[sweep]\nsuites = ['a']\ncommand = ['b']\n", "own.toml:5: .*both"),
        ("[axes\n", "own.toml:1: not valid TOML"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(MistakesError, match=said):
        parse_sweep(text, FILE)
