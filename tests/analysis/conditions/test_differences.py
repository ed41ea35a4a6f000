"""What differs between compared runs and is no axis: told first, axes and what follows left out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rater.analysis.compare.differences import PointDifference, point_differences
from rater.analysis.results.copies import Point, PointRun
from rater.record.run import BenchmarkUsed, PlacedCopy
from rater.record.stored import StoredRun
from tests.support.example_runs import copy_row, stored


def run(number: int, settings: dict[str, str] | None = None, **head: Any) -> StoredRun:
    it = stored([copy_row(0, 10.0), copy_row(1, 10.0)], run=number, uuid=f"u-{number}", **head)
    return replace(it, settings=tuple(sorted((settings or {}).items())))


def point(label: str, *runs: StoredRun, **values: str) -> Point:
    return Point(label, tuple(values.items()), tuple(PointRun(it, None) for it in runs))


def found(*points: Point) -> dict[str, PointDifference]:
    return {one.what: one for one in point_differences(points)}


def test_nothing_differs_between_equal_runs_and_readings_are_not_told() -> None:
    assert found(point("x", run(1)), point("y", run(2))) == {}
    first, second = {"load.1min": "0.1", "memory.free": "1"}, {"load.1min": "2", "memory.free": "2"}
    assert found(point("x", run(1, first)), point("y", run(2, second))) == {}


def test_a_setting_that_is_no_axis_is_told_with_the_runs_that_have_each_value() -> None:
    one = found(
        point("x", run(1, {"kernel.release": "6.1"})), point("y", run(2, {"kernel.release": "6.2"}))
    )
    assert one["setting kernel.release"] == PointDifference(
        "setting kernel.release", (("6.1", (1,)), ("6.2", (2,))), (), significant=True
    )


def test_a_run_within_a_point_that_is_unlike_the_others_is_told() -> None:
    kernels = [{"kernel.release": release} for release in ("6.1", "6.1", "6.2")]
    runs = [run(number, kernel) for number, kernel in enumerate(kernels, 1)]
    new = run(4, {"kernel.release": "6.1"})
    one = found(point("x", *runs), point("y", new))["setting kernel.release"]
    assert one.inside == ("x",)
    assert one.values == (("6.1", (1, 2, 4)), ("6.2", (3,)))


def test_an_axis_is_not_told_under_the_name_it_is_recorded_by() -> None:
    points = [
        point("a", run(1, {"thp.enabled": "never", "vm.swappiness": "10"}), thp="never"),
        point("b", run(2, {"thp.enabled": "always", "vm.swappiness": "60"}), thp="always"),
    ]
    assert list(found(*points)) == ["setting vm.swappiness"]
    # By its value, whatever the axis is called.
    renamed = [replace(it, values=(("pages", it.values[0][1]),)) for it in points]
    assert list(found(*renamed)) == ["setting vm.swappiness"]


@pytest.mark.parametrize(
    ("axis", "setting", "explained"),
    [
        ("thp", "thp.enabled", True),
        ("thp", "vm.min_free_kbytes", True),
        ("thp", "thp.defrag", False),
        ("thp.defrag", "thp.defrag", True),
        ("thp.2048kB", "thp.2048kB.enabled", True),
        ("thp.shmem", "thp.shmem_enabled", True),
        ("governor", "cpu.governor", True),
        ("boost", "cpu.no_turbo", True),
        ("aslr", "kernel.randomize_va_space", True),
        ("hugepages.2048kB", "hugepages.node1.2048kB.total", True),
        ("hugepages.2048kB.node0", "hugepages.node0.2048kB.total", True),
        ("hugepages.2048kB", "hugepages.node1.1048576kB.total", False),
        ("hugepages", "copies.hugepages", True),
        ("alloc", "copies.alloc", True),
        ("swappiness", "kernel.numa_balancing", False),
    ],
)
def test_axes_are_known_by_the_names_that_runs_record(
    axis: str, setting: str, explained: bool
) -> None:
    points = [
        point(value, run(number, {setting: f"recorded {value}"}), **{axis: value})
        for number, value in enumerate(("0", "1"), 1)
    ]
    assert (found(*points) == {}) is explained


def test_an_axis_whose_setting_was_not_what_it_says_is_told() -> None:
    points = [
        point("a", run(1, {"thp.enabled": "never"}), thp="never"),
        point("b", run(2, {"thp.enabled": "always"}), run(3, {"thp.enabled": "never"}), thp="on"),
    ]
    assert found(*points)["setting thp.enabled"].inside == ("b",)


def test_an_environment_variable_as_an_axis_is_not_told_and_an_unset_one_neither() -> None:
    first, second = replace(run(1), environment=(("OMP_NUM_THREADS", "2"),)), run(2)
    axis = "env:OMP_NUM_THREADS"
    assert found(point("a", first, **{axis: "2"}), point("b", second, **{axis: ""})) == {}
    assert list(found(point("a", first), point("b", second))) == ["--env OMP_NUM_THREADS"]


def test_another_machine_stands_first() -> None:
    other = run(2, {"kernel.release": "6.2"})
    other = replace(other, host=replace(other.host, hostname="elsewhere", microcode="0x2"))
    told = point_differences([point("x", run(1, {"kernel.release": "6.1"})), point("y", other)])
    assert [one.what for one in told] == ["host name", "microcode", "setting kernel.release"]
    assert told[0].is_machine


def test_other_programs_and_compilers_are_told() -> None:
    def built(number: int, compiler: str, sha256: str) -> StoredRun:
        it = run(number)
        used = BenchmarkUsed("a", None, "a", 10.0, sha256, compiler, "-O2")
        return replace(it, benchmarks=(used,))

    one, two = built(1, "gcc 12", "aa" * 32), built(2, "gcc 13", "bb" * 32)
    assert set(found(point("x", one), point("y", two))) == {"program of a", "compiler of a"}
    assert found(point("x", one, tune="base"), point("y", two, tune="peak")) == {}


def test_places_are_one_line_and_follow_from_a_layout_that_differs() -> None:
    def placed(number: int, cpus: tuple[int, int], **head: Any) -> StoredRun:
        it = run(number, **head)
        places = [PlacedCopy(c, (n,), n, n, 0, 0, 0, "local", ()) for c, n in enumerate(cpus)]
        return replace(it, placements=tuple(places))

    moved = found(point("x", placed(1, (0, 1))), point("y", placed(2, (2, 3))))
    assert list(moved) == ["places of the copies"]
    assert moved["places of the copies"].values[0] == ("as in run 1", (1,))
    layout = found(point("x", placed(1, (0, 1))), point("y", placed(2, (2, 3), layout="spread")))
    assert list(layout) == ["layout"]
    axis = found(
        point("x", placed(1, (0, 1)), layout="balanced"),
        point("y", placed(2, (2, 3), layout="spread"), layout="spread"),
    )
    assert axis == {}


def test_what_a_result_file_does_not_tell_is_no_difference() -> None:
    own, other = run(1, {"kernel.release": "6.1"}), run(2, source="import")
    told = found(point("x", own), point("y", other))
    assert (told["setting kernel.release"].unknown, told["origin"].unknown) == (True, False)
    assert not told["setting kernel.release"].significant
    # Two own runs of which one has it not: that is one.
    told = found(point("x", own), point("y", run(2)))
    assert not told["setting kernel.release"].unknown


def test_other_benchmarks_are_told_by_the_comparison_another_order_of_them_here() -> None:
    def ring(number: int, *names: str) -> StoredRun:
        it = run(number)
        used = tuple(BenchmarkUsed(n, None, n, 10.0, None, None, None) for n in names)
        return replace(it, benchmarks=used)

    assert found(point("x", ring(1, "a", "b")), point("y", ring(2, "a"))) == {}
    told = found(point("x", ring(1, "a", "b")), point("y", ring(2, "b", "a")))
    assert told["benchmarks"].values == (("a, b", (1,)), ("b, a", (2,)))


def test_options_and_heads_that_differ_are_told_and_lesser_ones_as_notes() -> None:
    asked = [{"bind": "core", "alloc": "system", "proof": "auto"}, {"bind": None, "proof": "off"}]
    runs = [run(i, request=json.dumps(it), iterations=i) for i, it in enumerate(asked, 1)]
    told = found(point("x", runs[0]), point("y", runs[1]))
    assert {what: one.significant for what, one in told.items()} == {
        "--bind": True,
        "iterations": False,
        "--proof": False,
    }
    assert told["--bind"].values == (("core", (1,)), (None, (2,)))


def test_another_mode_is_told() -> None:
    told = found(point("x", run(1)), point("y", run(2, mode="staggered", stagger_ms=5.0)))
    assert set(told) == {"mode", "ms between starts"}
    values = [point("x", run(1), mode="homogeneous"), point("y", run(2, mode="steady"), mode="s")]
    assert found(*values) == {}


def test_places_of_result_files_are_read_from_their_copies_and_only_what_differs_is_named() -> None:
    def imported(number: int, cpus: tuple[int, ...], **changes: Any) -> Point:
        rows = [copy_row(copy, 10.0, cpu=cpu, **changes) for copy, cpu in enumerate(cpus)]
        it = stored(rows, run=number, uuid=f"u-{number}", source="import")
        return point(f"p{number}", it)

    assert found(imported(1, (0, 1)), imported(2, (0, 1))) == {}
    moved = found(imported(1, (0, 1, 2)), imported(2, (0, 8, 9)))["places of the copies"]
    assert moved.values[1] == ("2 copies elsewhere, copy 1 on CPUs 8, not CPUs 1", (2,))
    core = found(imported(1, (0, 1), core=3), imported(2, (0, 1), core=4))["places of the copies"]
    assert core.values[1] == ("2 copies elsewhere, copy 0 on core 4, not core 3", (2,))
    bound = replace(run(1), placements=(PlacedCopy(0, (0,), 0, 0, 0, 0, 0, "local", ()),))
    free = replace(run(2), placements=(PlacedCopy(0, None, *(None,) * 5, "local", ()),))
    moved = found(point("x", bound), point("y", free))["places of the copies"]
    assert moved.values[1] == ("copy 0 on any CPU (not bound), not CPUs 0", (2,))


def test_an_option_that_an_older_run_does_not_know_was_at_its_default() -> None:
    def asked(number: int, **options: object) -> StoredRun:
        return run(number, request=json.dumps({"copies": "2"} | options))

    older, plain = asked(1), asked(2, hugepages=None, alloc="system", reserve=None, run_dirs=False)
    assert found(point("x", older), point("y", plain)) == {}
    paged = asked(3, hugepages="thp", reserve=1)
    told = found(point("x", older), point("y", paged))
    assert told["--hugepages"].values == ((None, (1,)), ("thp", (3,)))
    assert told["--reserve"].values == ((None, (1,)), ("1", (3,)))


def test_another_model_is_another_machine_where_a_host_name_is_not_known() -> None:
    def on(number: int, model: str, name: str | None) -> Point:
        it = run(number, source="import")
        return point(
            f"p{number}", replace(it, host=replace(it.host, cpu_model=model, hostname=name))
        )

    told = found(on(1, "Xeon", "h"), on(2, "Core i5", None))
    assert told["host name"].unknown
    assert not told["host name"].is_machine
    assert told["CPU model"].is_machine
