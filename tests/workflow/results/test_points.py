"""Words for points: runs, tags with blocks, sweeps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rater.errors import InputError
from rater.plan.sweep import AxisKind, SweepSlot
from rater.record.events import OutputChecked, RunEnded
from rater.record.run import RunStatus, Validity
from rater.store.store import Store, open_store
from rater.store.sweeps import SweepPoint, create_slot_run, new_sweep
from rater.workflow.results.points import (
    check_distinct,
    count_interim_looks,
    load_points,
    missing_points,
)
from tests.support.calls import Rater
from tests.support.example_events import SWEEP_ASKED, ended, over, phase, run_of
from tests.support.made_runs import make
from tests.support.stored_runs import HOST, PUS


def test_a_word_is_a_point(database: Path) -> None:
    make(database, [(10.0, 10.0)] * 4)
    with open_store(database) as store:
        points = load_points(store, ["1", "last", "2,last~1,2"])
    assert [(point.label, point.numbers) for point in points] == [
        ("run 1", (1,)),
        ("run 4", (4,)),
        ("runs 2, 3", (2, 3)),
    ]
    assert all(one.block is None for point in points for one in point.runs)
    assert all(point.values == () for point in points)


def test_tags_give_values_and_blocks_where_all_runs_have_one(database: Path) -> None:
    make(database, [(10.0, 10.0)] * 2, {"env:X": "a,b=c"})
    make(database, [(10.0, 10.0)] * 2, {"env:X": "2"})
    with open_store(database) as store:
        first, second = load_points(store, ["tag:env:X=a,b=c", "tag:env:X=2"])
    assert (first.label, first.values) == ("env:X=a,b=c", (("env:X", "a,b=c"),))
    assert [one.block for one in first.runs] == [one.block for one in second.runs] == [0, 1]


def test_equal_block_numbers_of_two_sweeps_are_two_blocks(database: Path) -> None:
    make(database, [(10.0, 10.0)] * 2, {"x": "1", "sweep": "1"})
    make(database, [(10.0, 10.0)] * 2, {"x": "2", "sweep": "2"})
    with open_store(database) as store:
        first, second = load_points(store, ["tag:x=1", "tag:x=2"])
    assert not {one.block for one in first.runs} & {one.block for one in second.runs}


def test_a_run_of_a_tag_without_a_block_leaves_the_others_theirs(database: Path) -> None:
    make(database, [(10.0, 10.0)] * 2, {"x": "1"})
    with open_store(database) as store:
        store.create_run(replace(run_of(2), tags=(("x", "1"),)), HOST, (), PUS)
        (point,) = load_points(store, ["tag:x=1"])
        assert [one.block for one in point.runs] == [0, 1, None]
        points = load_points(store, ["1", "tag:x=1"])
        with pytest.raises(InputError, match=r"run 1 is in two points \(run 1; x=1\)"):
            check_distinct(points)


def sweep(store: Store, *, until: float | None = None) -> int:
    """Three points, two rounds; the last one left out, the second done in the first round only."""
    points = [
        SweepPoint(0, "thp=never", (("thp", "never"),), "{}", None),
        SweepPoint(1, "thp=always", (("thp", "always"),), "{}", None),
        SweepPoint(2, "thp=odd", (("thp", "odd"),), "{}", "this kernel has not got it"),
    ]
    slots = [SweepSlot(1, 1, 1), SweepSlot(1, 2, 0), SweepSlot(2, 1, 0), SweepSlot(2, 2, 1)]
    asked = replace(SWEEP_ASKED, uuid=f"s{until}", rounds=20, until=until)
    number = new_sweep(store, asked, [("thp", AxisKind.SETTING)], points, slots)
    for place, slot in enumerate(slots[:3]):
        made = replace(run_of(2), uuid=f"u{until}{place}")
        run = create_slot_run(store, number, slot, made, HOST, settings=(), pus=PUS, phases=1)
        store.append(run, phase(), ended(0, 3.0), ended(1, 3.0), over(0.0, 3.0))
        for copy in (0, 1):
            store.append(run, OutputChecked(0, "gups", 1, copy, 0, Validity.VALID, None))
        store.append(run, RunEnded(RunStatus.COMPLETE, None))
    return number


def test_a_sweep_is_all_its_points_with_their_blocks(database: Path) -> None:
    with open_store(database) as store:
        number = sweep(store)
        assert [number] == [1]
        for word in ("sweep:1", "sweep:last"):
            points = load_points(store, [word])
            assert [(point.label, point.numbers) for point in points] == [
                ("thp=never", (2, 3)),
                ("thp=always", (1,)),
            ]
        never, always = points
        assert never.values == (("thp", "never"),)
        assert [one.block for one in always.runs] == [one.block for one in never.runs][:1]
        assert missing_points(store, ["sweep:1"]) == (
            "sweep 1: thp=odd: this kernel has not got it",
        )
        assert (
            missing_points(store, ["1"]),
            count_interim_looks(store, load_points(store, ["1"])),
        ) == (
            (),
            1,
        )
        with pytest.raises(InputError, match="no such sweep"):
            load_points(store, ["sweep:7"])


def test_a_sweep_that_stopped_when_it_was_decided_had_many_looks(
    database: Path, rater: Rater
) -> None:
    with open_store(database) as store:
        number = sweep(store, until=0.01)
        assert count_interim_looks(store, load_points(store, [f"sweep:{number}"])) == 18
    status, out, _ = rater("compare", "sweep:1", "--json")
    document = json.loads(out)
    assert status == 0
    assert (document["looks"], document["confidence"]) == (18, pytest.approx(0.99246))
    assert document["points_without_runs"] == ["sweep 1: thp=odd: this kernel has not got it"]
    _, out, _ = rater("compare", "sweep:1")
    words = " ".join(out.split())
    assert "Results were looked at up to 18 times before there were enough runs" in words
    assert "99.25 %" in words
