"""What the layout predicts is explained, what it cannot predict is not."""

import numpy as np
import pytest

from rater.analysis.divots.findings import analyse
from rater.analysis.divots.model.finding import Finding, Thresholds
from rater.analysis.divots.model.table import Row
from tests.support.divot_runs import Times, names, quiet

type Places = list[tuple[int, int, int]]  # CPU, core, lgroup of each copy


def found(times: Times, places: Places, core_pus: dict[int, int] | None = None) -> list[Finding]:
    rows: list[Row] = [
        (
            b,
            i,
            c,
            0,
            *places[c][:2],
            None,
            places[c][2],
            None,
            None,
            None,
            float(times[b, i, c]) * 1e9,
        )
        + (None, True)
        for b, i, c in np.ndindex(*times.shape)
    ]
    pus = tuple((core_pus or {}).items())
    return list(analyse([rows], names(len(times)), Thresholds(), core_pus=pus).findings)


def test_two_copies_on_one_core_are_explained() -> None:
    places = [(cpu, cpu % 16, cpu % 16 // 8) for cpu in range(20)]  # cores 0-3 have two
    times = quiet(5, 2, 20)
    times[:, :, [0, 1, 2, 3, 16, 17, 18, 19]] *= 1.4
    (one,) = found(times, places)
    assert one.explained
    assert one.expectation == "2 copies on one core where most cores have 1"
    assert one.copies == (0, 1, 2, 3, 16, 17, 18, 19)
    assert one.slowdown == pytest.approx(1.4, abs=0.02)


def test_two_copies_on_one_cpu_are_explained() -> None:
    places = [(cpu % 12, cpu % 12, cpu % 12 // 6) for cpu in range(16)]
    times = quiet(5, 1, 16)
    times[:, :, [0, 1, 2, 3, 12, 13, 14, 15]] *= 1.97
    assert [(one.explained, one.kind) for one in found(times, places)] == [(True, "layout")]


def test_sharing_explains_no_more_than_it_can_cost() -> None:
    places = [(cpu, cpu % 16, cpu % 16 // 8) for cpu in range(20)]
    times = quiet(5, 2, 20, noise=0.002)
    times[:, :, [0, 1, 2, 3, 16, 17, 18, 19]] *= 2.6
    told = found(times, places)
    # Sharing costs a factor of two at most: 1.3 is left.
    (left,) = [one for one in told if not one.explained]
    assert left.copies == (0, 1, 2, 3, 16, 17, 18, 19)
    assert left.slowdown == pytest.approx(1.3, abs=0.03)


def test_fuller_lgroups_are_explained() -> None:
    sizes = [16, 16, 8, 8, 8, 8]
    nodes = [node for node, size in enumerate(sizes) for _ in range(size)]
    places = [(cpu, cpu, node) for cpu, node in enumerate(nodes)]
    times = quiet(5, 2, len(nodes))
    times[:, :, :32] *= 1.2
    told = found(times, places)
    assert told and all(one.explained for one in told)
    assert {node for one in told for node in one.nodes} == {0, 1}


def test_an_lgroup_with_fewer_copies_that_is_slower_is_a_divot() -> None:
    nodes = [0] * 8 + [1] * 8 + [2] * 8 + [3] * 4
    places = [(cpu, cpu, node) for cpu, node in enumerate(nodes)]
    times = quiet(6, 3, 28)
    times[:4, :, 24:] *= 1.06
    told = [one for one in found(times, places) if not one.explained]
    assert [(one.place, one.slowdown > 1) for one in told] == [("lgroup 3", True)]


def test_a_lighter_lgroup_that_is_faster_is_no_divot() -> None:
    nodes = [node for node in range(8) for _ in range(8)] + [8] * 4
    places = [(cpu, cpu, node) for cpu, node in enumerate(nodes)]
    times = quiet(6, 3, len(nodes))
    times[:, :, 64:] *= 0.7
    assert [one for one in found(times, places) if not one.explained] == []


def test_another_kind_of_core_is_explained() -> None:
    places = [(cpu, cpu, 0) for cpu in range(16)]
    times = quiet(6, 3, 16)
    times[:, :, 10:] *= 1.7
    pus = {cpu: 2 if cpu < 10 else 1 for cpu in range(16)}
    (one,) = found(times, places, pus)
    assert (one.explained, one.expectation) == (True, "another kind of core")
    assert one.copies == tuple(range(10, 16))


def test_without_kinds_of_cores_slow_ones_are_divots() -> None:
    places = [(cpu, cpu, 0) for cpu in range(16)]
    times = quiet(6, 3, 16)
    times[:, :, 10:] *= 1.7
    assert any(not one.explained for one in found(times, places))
