"""Pools are set for the pages that copies need, and what they lack all the same is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rater.errors import InputError
from rater.lab.pools import PoolNeed, fill_pools
from rater.settings.tuner import SettingsSession
from rater.workflow.doctor import RunSettings
from tests.support.doctor_tree import NODES, change, make_doctor_tree
from tests.support.settings_tree import values

HUGE = 2 << 20
NEEDS = [PoolNeed(0, HUGE, 10), PoolNeed(1, HUGE, 20)]


def pool(node: int, what: str = "nr") -> str:
    return f"{NODES}/node{node}/hugepages/hugepages-2048kB/{what}_hugepages"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = make_doctor_tree(tmp_path / "machine")
    change(root, {"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0"})
    monkeypatch.setenv("RATER_SYSROOT", str(root))
    return root


def taken(root: Path, wanted: Mapping[str, str], most: int = 1000) -> None:
    """As the kernel does: what is set is free at once, as far as there is memory in one piece."""
    for name, pages in wanted.items():
        node = int(name[-1])
        got = str(min(int(pages), most))
        change(root, {pool(node): got, pool(node, "free"): got})


def test_pools_are_set_to_what_each_lgroup_lacks(root: Path) -> None:
    taken(root, {"hugepages.2048kB.node0": "10"})
    asked: list[Mapping[str, str]] = []

    def fill(wanted: Mapping[str, str]) -> None:
        asked.append(wanted)
        taken(root, wanted)

    assert fill_pools(NEEDS, fill, root) == ((("hugepages.node1.2048kB.total", "20"),), [])
    assert asked == [{"hugepages.2048kB.node1": "20"}]
    assert fill_pools(NEEDS, fill, root) == ((), [])  # nothing to be done
    assert len(asked) == 1


def test_what_the_kernel_did_not_give_is_lacking(root: Path) -> None:
    now, lacking = fill_pools(NEEDS, lambda wanted: taken(root, wanted, most=15), root)
    assert dict(now)["hugepages.node1.2048kB.total"] == "15"
    assert lacking == [
        "the pool of 2M pages on lgroup 1 has 15 free, copies need 20; as root: echo 20 > "
        "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
    ]


def test_a_pool_that_cannot_be_set_or_that_there_is_no_memory_for_is_left(root: Path) -> None:
    def refuse(_: Mapping[str, str]) -> None:
        raise InputError("it cannot be set: needs root")

    _, (text,) = fill_pools(NEEDS, refuse, root)
    assert text.endswith("(it cannot be set: needs root)")
    too_many = [*NEEDS, PoolNeed(1, HUGE, 10**6)]
    before = values(root)
    now, (text,) = fill_pools(too_many, lambda wanted: taken(root, wanted), root)
    assert (now, values(root)) == ((), before)
    assert "at most)" in text


def test_what_one_run_of_a_sweep_set_for_itself_is_put_back_before_the_next(
    root: Path, tmp_path: Path
) -> None:
    before, said = values(root), list[str]()
    with SettingsSession(root, tmp_path / "journal.json", "a sweep") as tuner:
        tuner.set({"ksm": "1"})  # an axis
        with RunSettings(tuner, said.append) as settings:
            settings.set({"hugepages.2048kB.node1": "20"})
            settings.set({"hugepages.2048kB.node1": "30", "hugepages.2048kB.node0": "5"})
            assert (values(root)[pool(0)], values(root)[pool(1)]) == ("5", "30")
        assert (values(root)[pool(0)], values(root)[pool(1)]) == ("0", "0")
        assert values(root)["sys/kernel/mm/ksm/run"] == "1"
    assert values(root) == before
    assert said[0] == ("set for now, and put back at the end: hugepages.2048kB.node1=20 (was 0)")
