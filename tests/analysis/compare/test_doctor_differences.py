"""Where the doctor would not have said the same of two machines, a comparison says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from rater.analysis.compare.differences import (
    DoctorDifference,
    doctor_differences,
    point_differences,
)
from rater.analysis.doctor_checks import DoctorVerdict
from rater.analysis.results.copies import Point, PointRun
from tests.support.calls import Rater
from tests.support.example_runs import copy_row, stored
from tests.support.made_runs import make


def point(number: int, settings: dict[str, str], **values: str) -> Point:
    run = replace(stored([copy_row(0, 10.0)], run=number), settings=tuple(settings.items()))
    return Point(f"run {number}", tuple(values.items()), (PointRun(run, None),))


def told(*points: Point) -> dict[str, DoctorDifference]:
    return {one.check: one for one in doctor_differences(points, point_differences(points))}


QUIET = {"cpu.governor": "performance", "cpu.driver": "acpi-cpufreq", "ksm.run": "0"}


def test_a_verdict_that_differs_is_told_with_what_was_seen_in_which_runs() -> None:
    one = told(point(1, QUIET), point(2, QUIET | {"cpu.governor": "ondemand"}))
    assert list(one) == ["governor"]
    assert one["governor"].values == (
        (DoctorVerdict.GOOD, "performance, driver acpi-cpufreq", (1,)),
        (
            DoctorVerdict.BAD,
            "ondemand, driver acpi-cpufreq: the frequency follows the load",
            (2,),
        ),
    )


def test_values_of_one_verdict_and_of_an_axis_are_not_told() -> None:
    assert told(point(1, QUIET), point(2, QUIET | {"cpu.driver": "intel_pstate"})) == {}
    slow = QUIET | {"cpu.governor": "ondemand"}
    axes = ({"governor": "performance"}, {"governor": "ondemand"})
    assert told(point(1, QUIET, **axes[0]), point(2, slow, **axes[1])) == {}


def test_memory_in_pieces_is_told_though_it_is_a_reading() -> None:
    whole = {"memory.node0.free_bytes": "1000", "memory.node0.free_huge_order_bytes": "900"}
    broken = whole | {"memory.node0.free_huge_order_bytes": "50"}
    assert list(told(point(1, whole), point(2, broken))) == ["fragmentation"]


def test_a_run_of_which_nothing_is_known_is_no_difference() -> None:
    assert told(point(1, {"ksm.run": "1"}), point(2, {})) == {}


def test_compare_shows_what_the_doctor_would_have_said(rater: Rater, database: Path) -> None:
    make(database, [(10.0, 10.0)], settings={"ksm.run": "0"})
    make(database, [(10.0, 10.0)], settings={"ksm.run": "1"})
    _, out, _ = rater("compare", 1, 2)
    assert "KSM: good, off (run 1); bad, on: copies are equal" in " ".join(out.split())
    document = json.loads(rater("compare", "--json", 1, 2)[1])
    assert [(one["check"], one["values"][1]["runs"]) for one in document["doctor"]] == [
        ("KSM", [2])
    ]
    assert "KSM             BAD: on" in rater("doctor", "--run-of", 2, "KSM")[1]
