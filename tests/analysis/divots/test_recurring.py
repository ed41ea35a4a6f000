"""What several runs have in common is judged by the size that each of them has."""

from collections.abc import Sequence

import numpy as np
import pytest

from rater.analysis.divots.model.finding import Presence, RecurringDivot
from rater.analysis.divots.recurring import between_runs
from tests.support.divot_runs import Machine, quiet, run_times

FOUR = Machine(4, 8)

type Slow = tuple[slice | list[int], slice | list[int], slice | list[int], float]

ALL = slice(None)
LGROUP_1 = (ALL, ALL, slice(8, 16), 1.2)
LGROUP_3 = (ALL, ALL, slice(24, 32), 1.2)
HALF = (ALL, ALL, slice(8, 16), 1.1)
TENTH = (ALL, ALL, slice(8, 16), 1.02)
ONE_CPU = ([2], ALL, [5], 1.2)
OTHER_CPU = ([2], ALL, [22], 1.2)
CPU_IN_B4 = ([4], ALL, [5], 1.2)
IN_TWO = ([0, 1], ALL, slice(8, 16), 1.2)
IN_THREE = ([0, 1, 4], ALL, slice(8, 16), 1.2)
IN_OTHERS = ([3, 4], ALL, slice(8, 16), 1.2)
IN_ITERATION_1 = (ALL, [0], [5], 1.2)
IN_ITERATION_2 = (ALL, [1], [5], 1.2)
LGROUP_0 = (ALL, ALL, slice(8), 1.2)
UPPER = (ALL, ALL, slice(48, 64), 1.2)
LGROUP_2_OF_4 = (ALL, ALL, slice(8, 12), 1.2)
EVEN = Machine(4, 16, cpu=lambda copy, iteration: 2 * copy)
TWO_COPIES = ([3], [0], [4, 17], 1.3)
OTHER_TWO = ([3], [1], [9, 30], 1.3)


def between(
    *slow: Slow | None, machines: Sequence[Machine] = (), noises: Sequence[float] = ()
) -> tuple[RecurringDivot, ...]:
    runs = []
    for number, one in enumerate(slow, 1):
        machine = machines[number - 1] if machines else FOUR
        noise = noises[number - 1] if noises else 0.003
        times = quiet(6, 3, machine.copies, seed=number, noise=noise)
        if one is not None:
            benchmarks, iterations, copies, size = one
            mask = np.zeros(times.shape, dtype=bool)
            mask[benchmarks] = True
            for axis, chosen in ((1, iterations), (2, copies)):
                keep = np.zeros(times.shape[axis], dtype=bool)
                keep[chosen] = True
                mask &= np.expand_dims(keep, tuple({0, 1, 2} - {axis}))
            times[mask] *= size
        runs.append(run_times(number, times, machine))
    return between_runs(runs)


def said(one: RecurringDivot) -> str:
    """`recurring lgroup 1 in b0,b1: +20 +10` with a size for each run that has it."""
    each = [
        f"{((it.slowdown or 1) - 1) * 100:+.0f}" if it.there is Presence.YES else str(it.there)
        for it in one.looks
    ]
    places = list(dict.fromkeys(it.place for it in one.places))
    where = ",".join(one.benchmarks) or "all"
    return f"{one.kind} {', '.join(places)} in {where}: {' '.join(each)}"


@pytest.mark.parametrize(
    ("slow", "told"),
    [
        # In both at the same place; in one only, whichever is named first; in none.
        ((LGROUP_1, LGROUP_1), ["recurring lgroup 1 in all: +20 +20"]),
        ((LGROUP_1, None), ["once lgroup 1 in all: +20 no"]),
        ((None, LGROUP_1), ["once lgroup 1 in all: no +20"]),
        ((None, None), []),
        # Moved, or two faults that have nothing in common.
        ((LGROUP_1, LGROUP_3), ["wandering lgroup 1, lgroup 3 in all: +20 +20"]),
        ((ONE_CPU, OTHER_CPU), ["wandering CPU 5, CPU 22 in b2: +20 +20"]),
        ((TWO_COPIES, OTHER_TWO), ["wandering CPUs 4,17, CPUs 9,30 in b3: +30 +30"]),
        ((LGROUP_1, OTHER_CPU), ["once CPU 22 in b2: no +20", "once lgroup 1 in all: +20 no"]),
        # Half the size is the same fault, a tenth of it is told as what it is.
        ((LGROUP_1, HALF), ["recurring lgroup 1 in all: +20 +10"]),
        ((LGROUP_1, TENTH), ["recurring lgroup 1 in all: +20 +2"]),
        # Other benchmarks.
        ((IN_TWO, IN_THREE), ["recurring lgroup 1 in b0,b1: +20 +20"]),
        ((IN_TWO, IN_OTHERS), ["wandering lgroup 1 in b0,b1,b3,b4: +20 +20"]),
        ((ONE_CPU, CPU_IN_B4), ["wandering CPU 5 in b2,b4: +20 +20"]),
        # One iteration of a run is another's in the next.
        ((IN_ITERATION_2, IN_ITERATION_1), ["recurring CPU 5 in all: +20 +20"]),
        ((IN_ITERATION_2, None), ["once CPU 5 in all: +20 no"]),
        # Three runs of which one differs, or two; five with the place that two of them share.
        ((LGROUP_1, None, LGROUP_1), ["recurring lgroup 1 in all: +20 no +20"]),
        ((None, LGROUP_1, None), ["once lgroup 1 in all: no +20 no"]),
        (
            (LGROUP_1, LGROUP_1, LGROUP_3, None, LGROUP_0),
            ["wandering lgroup 1, lgroup 3, lgroup 0 in all: +20 +20 +20 no +20"],
        ),
    ],
)
def test_a_fault_recurs_only_where_it_is(slow: tuple[Slow | None, ...], told: list[str]) -> None:
    assert sorted(map(said, between(*slow))) == told


@pytest.mark.parametrize(
    ("slow", "second", "told"),
    [
        # Half as many copies on each lgroup: CPU 5 is there, of lgroup 1 now; and where only even
        # CPUs have copies it is not.
        ((ONE_CPU, ONE_CPU), Machine(4, 4), "recurring CPU 5 in b2: +20 +20"),
        ((LGROUP_1, None), Machine(4, 4), "once lgroup 1 in all: +20 no"),
        ((LGROUP_1, UPPER), Machine(4, 16), "wandering lgroup 1, lgroup 3 in all: +20 +20"),
        ((LGROUP_1, LGROUP_2_OF_4), Machine(8, 4), "wandering lgroup 1, lgroup 2 in all: +20 +20"),
        ((ONE_CPU, None), EVEN, "once CPU 5 in b2: +20 not run"),
        ((ONE_CPU, None), Machine(4, 8, places=False), "once CPU 5 in b2: +20 not run"),
    ],
)
def test_runs_of_other_numbers_of_copies_are_compared_by_the_place(
    slow: tuple[Slow | None, ...], second: Machine, told: str
) -> None:
    assert [said(it) for it in between(*slow, machines=(FOUR, second))] == [told]


def test_a_copy_that_is_slow_wherever_it_runs_recurs_by_its_number() -> None:
    turned = Machine(4, 8, cpu=lambda copy, iteration: (copy + 5 * iteration) % 32)
    both = between(ONE_CPU, ONE_CPU, machines=(turned, turned))
    assert [said(it) for it in both] == ["recurring copy 5, wherever it ran in b2: +20 +20"]
    (one,) = between(ONE_CPU, None, machines=(turned, turned))
    assert said(one) == "once copy 5, wherever it ran in b2: +20 no"


def test_a_run_too_noisy_to_tell_is_no_run_without_it() -> None:
    small = (ALL, ALL, slice(8, 16), 1.03)
    (one,) = between(small, None, noises=(0.002, 0.3))
    assert said(one) == "once lgroup 1 in all: +3 too noisy to tell"
    assert "; run 2 is too noisy to tell (" in one.summary
    (one,) = between(small, None, small, noises=(0.002, 0.3, 0.002))
    assert said(one) == "recurring lgroup 1 in all: +3 too noisy to tell +3"


def test_runs_are_told_with_the_size_of_each() -> None:
    (one,) = between(LGROUP_1, HALF)
    assert one.summary == (
        "lgroup 1: all benchmarks +10 to +20 % in 2 of 2 runs (run 1 +20.0 %, run 2 +10.0 %); "
        "in every run; probably hardware or set-up"
    )
    (one,) = between(LGROUP_1, None)
    assert one.summary == "lgroup 1: all benchmarks +20.0 % in run 1 only; not in run 2 (+0.0 %)"
    (one,) = between(ONE_CPU, OTHER_CPU)
    assert one.summary == (
        "b2 +20.1 % in 2 of 2 runs, each time elsewhere: CPU 5 +20.1 % (run 1), CPU 22 +20.1 % "
        "(run 2); it moves about, so pages, TLB or what else ran"
    )
    (one,) = between(IN_TWO, IN_OTHERS)
    assert one.summary == (
        "lgroup 1: in other benchmarks each time, b0, b1 +19.9 % (run 1), b3, b4 +20.0 % (run 2)"
    )
