"""Orders and phases, on literals."""

from __future__ import annotations

import pytest

from rater.errors import InputError
from rater.plan.schedule import Order, Plan, make_plan, order_table, resolve_mode, ring_steps


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
    assert [(p.number, p.benchmark, p.iteration, p.counted) for p in plan.phases] == [
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
