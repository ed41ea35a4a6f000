"""hwloc's synthetic descriptions: what hwloc would overlook is spelled out or refused."""

from __future__ import annotations

import pytest

from rater.errors import InputError
from rater.plan.topology import without_types
from rater.run.host.discover import parse_synthetic


@pytest.mark.parametrize(
    ("described", "loops"),
    [
        ("pack:2 core:3 pu:2(indexes=core:pack:pu)", "2*3:6*2:1*2"),
        ("pack:2 core:3 pu:2(indexes=pu:pack:core)", "1*2:6*2:2*3"),
        ("pack:2 core:3 pu:2(indexes=core:pack)", "2*3:6*2"),
        ("socket:2 core:3 pu:2(indexes=core:package:pu)", "2*3:6*2:1*2"),
        ("pack:2 core:3 2(indexes=core:pack:pu)", "2*3:6*2:1*2"),
        ("pack:2 3 pu:2(indexes=pack:pu)", "6*2:1*6"),
        ("pack:2 numa:1 core:3 pu:2(indexes=core:numa:pack:pu)", "2*3:6*1:6*2:1*2"),
        ("pack:2 L3:2 core:3 pu:1(indexes=L3:pack:pu)", "3*2:6*2:1*3"),
    ],
)
def test_an_order_by_types_becomes_loops_of_steps_and_counts(described: str, loops: str) -> None:
    before, _ = described.split("indexes=")
    assert without_types(described) == f"{before}indexes={loops})"


@pytest.mark.parametrize(
    "described",
    [
        "pack:2 [numa(memory=1GB indexes=1,0)] core:2 pu:2",
        "pack:2(indexes=1,0) l3:1(size=32MB) core:2 pu:1(indexes=3,1,2,0)",
        "core:6 pu:2(indexes=2*6:1*2)",
        "core:6 pu:2(indexes=2*6)",
    ],
)
def test_all_else_stays_as_it_is(described: str) -> None:
    assert without_types(described) == described


@pytest.mark.parametrize(
    ("order", "numbers"),
    [
        ("core:pack:pu", [0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]),
        ("pu:pack:core", [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]),
        ("pack:pu", [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]),
    ],
)
def test_the_machine_has_the_order_that_was_described(order: str, numbers: list[int]) -> None:
    machine = parse_synthetic(f"pack:2 core:3 pu:2(indexes={order})")
    assert [pu.os for pu in machine.pus] == numbers


@pytest.mark.parametrize(
    ("indexes", "said"),
    [
        ("core:core:pu", "'core' is no level at or above this one, or is named twice"),
        ("core:die:pu", "'die' is no level"),
        ("x", "'x' is no level"),
        ("", "'' is no level"),
        ("0,1", "has 2 different numbers for 12 parts of its level, expected 12"),
        ("0,1,2,3,4,5,6,7,8,9,10,10", "has 11 different numbers for 12"),
        ("2*2:1*2", "makes 4 numbers for 12 parts of its level"),
        ("2*6:x*2", "expected loops step*count"),
        ("0*6:1*2", "expected loops step*count"),
    ],
)
def test_an_order_that_hwloc_would_overlook_is_refused(indexes: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_synthetic(f"pack:2 core:3 pu:2(indexes={indexes})")
    assert said in str(caught.value)
