"""The speed of CPUs by themselves: when it was steady, and which findings it explains."""

from __future__ import annotations

import pytest

from rater.analysis.divots.model.finding import CopyEffect, Finding, Kind
from rater.analysis.divots.selftest import explained_by_speed, largest_speed_change, speeds_of

CPU_OF = {0: 0, 1: 1, 2: 0, 3: 1}
CALM = {(name, k, cpu): 1e-3 for name in "ab" for k in (1, 2, 3) for cpu in (0, 1)}


def finding(
    kind: Kind,
    slowdown: float,
    *,
    benchmarks: tuple[str, ...] = (),
    iterations: tuple[int, ...] = (),
    copies: tuple[int, ...] = (),
    singles: tuple[CopyEffect, ...] = (),
) -> Finding:
    return Finding(
        *(kind, "somewhere", benchmarks, None, iterations, copies, (), (), None, None),
        *(slowdown, 0.1, False, None, "in words", ()),
        singles=singles,
    )


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


def test_copies_of_a_cpu_that_was_slow_then_are_explained() -> None:
    costs = CALM | {("a", 2, 0): 1.5e-3}
    slow = finding(Kind.SLOW_GROUP, 1.3, benchmarks=("a",), iterations=(2,), copies=(0, 2))
    assert explained_by_speed(slow, costs, CPU_OF) == pytest.approx(1.5)
    assert explained_by_speed(slow, CALM, CPU_OF) is None


@pytest.mark.parametrize(
    "other",
    [
        finding(Kind.SLOW_GROUP, 1.3, benchmarks=("b",), iterations=(2,), copies=(0, 2)),
        finding(Kind.SLOW_GROUP, 1.3, benchmarks=("a",), iterations=(2,), copies=(1, 3)),
        finding(Kind.SLOW_GROUP, 1.3, benchmarks=("a",), iterations=(1,), copies=(0, 2)),
        finding(Kind.SLOW_GROUP, 0.8, benchmarks=("a",), iterations=(2,), copies=(0, 2)),
        finding(Kind.SLOW_GROUP, 2.5, benchmarks=("a",), iterations=(2,), copies=(0, 2)),
        finding(Kind.DRIFT, 1.3),
    ],
    ids=["benchmark", "copies", "iteration", "direction", "size", "kind"],
)
def test_another_place_time_direction_or_size_is_not_explained(other: Finding) -> None:
    assert explained_by_speed(other, CALM | {("a", 2, 0): 1.5e-3}, CPU_OF) is None


def test_an_iteration_is_compared_with_the_others() -> None:
    fast = CALM | {("a", 3, cpu): 0.7e-3 for cpu in (0, 1)}
    one = finding(Kind.SLOW_ITERATION, 0.85, benchmarks=("a",), iterations=(3,))
    assert explained_by_speed(one, fast, CPU_OF) == pytest.approx(0.7)


def test_drift_is_the_last_iteration_over_the_first() -> None:
    slower = {cell: cost_s * (1 + 0.1 * cell[1]) for cell, cost_s in CALM.items()}
    assert explained_by_speed(finding(Kind.DRIFT, 1.1), slower, CPU_OF) == pytest.approx(1.3 / 1.1)


def test_a_single_copy_is_not_explained_by_a_cpu_that_it_shares() -> None:
    def at(copy: int) -> Finding:
        single = CopyEffect("a", None, 2, copy, copy % 2, 0, 1.3)
        return finding(Kind.OUTLIER_COPY, 1.3, copies=(copy,), singles=(single,))

    costs = CALM | {("a", 2, 0): 1.5e-3}
    alone = {0: 0, 1: 1}
    assert explained_by_speed(at(0), costs, alone) == pytest.approx(1.5)
    assert explained_by_speed(at(1), costs, alone) is None
    assert explained_by_speed(at(0), costs, CPU_OF) is None  # copy 2 would have been as slow


def test_one_disturbed_iteration_makes_the_others_not_fast() -> None:
    costs = CALM | {("a", 1, cpu): 1.3e-3 for cpu in (0, 1)}
    fast = finding(Kind.SLOW_ITERATION, 0.88, benchmarks=("a",), iterations=(2,))
    assert explained_by_speed(fast, costs, CPU_OF) is None
    slow = finding(Kind.SLOW_ITERATION, 1.2, benchmarks=("a",), iterations=(1,))
    assert explained_by_speed(slow, costs, CPU_OF) == pytest.approx(1.3)


@pytest.mark.parametrize("kind", [Kind.SLOW_GROUP, Kind.BIMODAL, Kind.OUTLIER_COPY])
def test_some_copies_of_a_cpu_are_not_explained(kind: Kind) -> None:
    costs = CALM | {("a", k, 0): 1.3e-3 for k in (1, 2, 3)}
    for copies in ((0,), (0, 1), (0, 1, 2)):
        part = finding(kind, 1.2, benchmarks=("a",), copies=copies)
        assert explained_by_speed(part, costs, CPU_OF) is None
    assert explained_by_speed(finding(kind, 1.2, benchmarks=("a",), copies=(0, 2)), costs, CPU_OF)


def test_one_dear_cell_explains_nothing_else() -> None:
    costs = CALM | {("a", 1, 0): 2e-3}
    for other in (
        finding(Kind.SLOW_CPU, 1.1, copies=(0, 2)),
        finding(Kind.SLOW_CPU, 1.3, benchmarks=("a",), copies=(0, 2)),
        finding(Kind.DRIFT, 0.75),
    ):
        assert explained_by_speed(other, costs, CPU_OF) is None


def test_copies_that_used_no_cpu_time_have_no_speed() -> None:
    asleep = dict.fromkeys(CALM, 0.0)
    assert speeds_of(asleep) == {}
    assert largest_speed_change(asleep)[0] == 0
    assert explained_by_speed(finding(Kind.DRIFT, 1.1), asleep, CPU_OF) is None


def test_the_usual_variation_explains_nothing() -> None:
    costs = CALM | {("a", 2, 0): 1.015e-3}
    one = finding(Kind.SLOW_GROUP, 1.02, benchmarks=("a",), iterations=(2,), copies=(0, 2))
    assert explained_by_speed(one, costs, CPU_OF) is None
