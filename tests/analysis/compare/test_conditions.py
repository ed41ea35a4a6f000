"""What differs between compared runs and their machines, and what others' load or the CPI cost."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import astuple, replace

from rater.analysis.compare.conditions import ConditionDifference, Conditions, condition_differences
from rater.analysis.compare.differences import (
    DoctorDifference,
    PointDifference,
    doctor_differences,
    point_differences,
)
from rater.analysis.compare.model import TOTAL, Side, cpi_changes
from rater.analysis.doctor.findings import DoctorVerdict
from rater.analysis.results.account import TimeAccount, time_accounts
from rater.analysis.results.copies import Point, PointRun
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.disturbed import disturbance_reasons, foreign_load_cost
from rater.record.events import CopyEnded, CpuReading
from rater.record.run import (
    BenchmarkUsed,
    CopyStatus,
    Host,
    MachinePU,
    MemoryPolicy,
    MetricUsed,
    Placement,
)
from rater.record.stored import StoredRun
from rater.show.compare.cycles import cpi_document, cpi_parts
from rater.show.screen.document import print_parts
from tests.support.calls import Rater
from tests.support.counted_runs import STACK, counted_run
from tests.support.cpu_readings import computed, read_run
from tests.support.example_runs import S, copy_row, reading, stored
from tests.support.made_runs import make
from tests.support.printed import printed_by

HOST = Host(
    fingerprint="f" * 64,
    hostname="node7",
    machine_id_hash="m",
    cpu_model="CPU 9000",
    microcode="0x1",
    vendor="Maker",
    memory_bytes=100 * 10**9,
    pus=2,
    cores=2,
    nodes=1,
    packages=1,
    architecture="x86_64",
)
BUILT = BenchmarkUsed(
    name="lu",
    category="fp",
    command=f"/home/me/.cache/rater/build/{'0a' * 16}/lu 100",
    reference_s=2.0,
    binary_sha256="a" * 64,
    compiler="cc 14",
    flags="-O2",
    inputs_sha256="b" * 64,
)
PLACED = tuple(
    Placement(
        copy=copy,
        cpus=(copy,),
        cpu=copy,
        core=copy,
        llc=0,
        node=0,
        package=0,
        memory_policy=MemoryPolicy.LOCAL,
        memory_nodes=(),
    )
    for copy in range(20)
)
BEFORE = Conditions(
    host=HOST,
    settings=(("load.1min", "0.1"), ("thp.enabled", "madvise"), ("env.PATH", "/bin")),
    pus=(
        MachinePU(cpu=0, core=0, llc=0, node=0, package=0),
        MachinePU(cpu=1, core=1, llc=0, node=0, package=0),
    ),
    placements=PLACED[:2],
    benchmarks=(BUILT,),
    suite_path="/suites/own.toml",
    suite_sha256="c" * 64,
    rater_version="0.1.0",
)


def said(now: Conditions, before: Conditions = BEFORE) -> list[str]:
    return [str(difference) for difference in condition_differences(before, now)]


def with_host(**changes: Any) -> Conditions:
    return replace(BEFORE, host=replace(HOST, **changes))


def with_benchmark(**changes: Any) -> Conditions:
    return replace(BEFORE, benchmarks=(replace(BUILT, **changes),))


@pytest.mark.parametrize(
    "same",
    [
        {},
        {"host": replace(HOST, memory_bytes=100 * 10**9 - 5_000_000)},  # the kernel keeps some
        {"benchmarks": None},  # before building
        {"suite_path": "/elsewhere/own.toml"},
        {"benchmarks": (replace(BUILT, command=f"/tmp/cache/build/{'0b' * 16}/lu 100"),)},
    ],
)
def test_nothing_differs_from_what_is_the_same_elsewhere(same: dict[str, Any]) -> None:
    assert said(replace(BEFORE, **same)) == []


def test_firmware_and_dimms_differ_where_both_runs_know_them() -> None:
    old = replace(BEFORE, settings=(("firmware.date", "06/04/2023"), ("kernel.page_bytes", "4096")))
    new = (("firmware.date", "01/02/2024"), ("kernel.page_bytes", "65536"), ("dimms.found", "8 x"))
    assert said(replace(BEFORE, settings=new), old) == [
        "setting firmware.date: was 06/04/2023, is 01/02/2024",
        "setting kernel.page_bytes: was 4096, is 65536",
    ]


def test_settings_that_changed_came_or_went_differ_and_readings_do_not() -> None:
    settings = (("load.1min", "9.9"), ("thp.enabled", "always"), ("cpu.boost", "0"))
    assert said(replace(BEFORE, settings=settings)) == [
        "setting cpu.boost: was not there, is 0",
        "folders in PATH: was /bin, is not there",
        "setting thp.enabled: was madvise, is always",
    ]


def test_another_machine_is_told_by_its_names_and_by_what_it_is() -> None:
    other = with_host(fingerprint="0" * 64, hostname="node8", machine_id_hash="n", cores=1)
    assert said(other) == [
        "host name: was node7, is node8",
        "machine id: was m, is n",
        "cores: was 2, is 1",
    ]


def test_a_fingerprint_alone_means_that_cores_and_caches_hang_together_otherwise() -> None:
    assert said(with_host(fingerprint="0" * 64)) == [
        "structure of cores and caches: was sha256 ffffffffffff, is sha256 000000000000"
    ]


def test_another_size_of_memory_is_told() -> None:
    assert said(with_host(memory_bytes=68 * 10**9)) == [
        "installed memory: was 100.0 GB, is 68.0 GB"
    ]


def test_a_copy_that_would_run_elsewhere_differs() -> None:
    moved = (
        PLACED[0],
        Placement(
            copy=1,
            cpus=None,
            cpu=None,
            core=None,
            llc=None,
            node=None,
            package=None,
            memory_policy=MemoryPolicy.NONE,
            memory_nodes=(),
        ),
    )
    now = replace(BEFORE, placements=moved, pus=BEFORE.pus[:1])
    assert said(now) == [
        "usable CPUs: was 0-1, is 0",
        "place of copy 1: was CPUs 1, core 1, LLC 0, node 0, package 0, memory local, "
        "is not bound, memory none",
    ]


def test_many_moved_copies_are_not_all_listed() -> None:
    before = replace(BEFORE, placements=PLACED)
    now = replace(BEFORE, placements=tuple(replace(it, node=1) for it in PLACED))
    lines = said(now, before)
    assert len(lines) == 8
    assert lines[-1].startswith("place of copy 7 (and 12 more): was CPUs 7")


def test_programs_are_compared_by_content_wherever_the_cache_lies() -> None:
    assert said(with_benchmark(command=f"/tmp/cache/build/{'0b' * 16}/lu 200")) == [
        "command of lu: was lu 100, is lu 200"
    ]
    assert said(with_benchmark(binary_sha256="d" * 64, flags="-O3")) == [
        "program of lu: was sha256 aaaaaaaaaaaa, is sha256 dddddddddddd",
        "compiler flags of lu: was -O2, is -O3",
    ]


def test_inputs_reference_times_threads_and_metrics_of_a_benchmark_are_compared() -> None:
    metric = MetricUsed("rate", "GB/s", "higher", "sum")
    now = with_benchmark(inputs_sha256=None, reference_s=2.5, threads=4, metrics=(metric,))
    assert said(now) == [
        "input files of lu: was sha256 bbbbbbbbbbbb, is not there",
        "reference time of lu: was 2, is 2.5",
        "threads per copy of lu: was 1, is 4",
        "metrics of lu: was not there, is rate [GB/s], higher is better, sum",
    ]
    other = replace(BEFORE, benchmarks=(BUILT, replace(BUILT, name="gups")))
    assert said(other) == ["benchmarks: was lu, is lu, gups"]


def test_a_suite_file_differs_by_its_text_not_by_its_place() -> None:
    two = replace(
        BEFORE, suite_path="/a.toml\n/suites/own.toml", suite_sha256=f"{'e' * 64}\n{'d' * 64}"
    )
    assert said(two, replace(two, suite_sha256=f"{'e' * 64}\n{'c' * 64}")) == [
        "suite file /suites/own.toml: was sha256 cccccccccccc, is sha256 dddddddddddd"
    ]


def test_another_rater_is_told_but_is_no_reason_to_refuse() -> None:
    now = replace(BEFORE, rater_version="0.2.0", settings=BEFORE.settings[::2])
    assert condition_differences(BEFORE, now) == (
        ConditionDifference("setting thp.enabled", "madvise", None),
        ConditionDifference("rater", "0.1.0", "0.2.0", significant=False),
    )


def run(number: int, settings: dict[str, str] | None = None, **head: Any) -> StoredRun:
    it = stored([copy_row(0, 10.0), copy_row(1, 10.0)], run=number, uuid=f"u-{number}", **head)
    return replace(it, settings=tuple(sorted((settings or {}).items())))


def point(label: str, *runs: StoredRun, **values: str) -> Point:
    return Point(label, tuple(values.items()), tuple(PointRun(run, None) for run in runs))


def differences_of(*points: Point) -> dict[str, PointDifference]:
    return {difference.what: difference for difference in point_differences(points)}


def test_nothing_differs_between_equal_runs_and_readings_are_not_told() -> None:
    assert differences_of(point("x", run(1)), point("y", run(2))) == {}
    first, second = {"load.1min": "0.1", "memory.free": "1"}, {"load.1min": "2", "memory.free": "2"}
    assert differences_of(point("x", run(1, first)), point("y", run(2, second))) == {}


def test_a_setting_that_is_no_axis_is_told_with_the_runs_that_have_each_value() -> None:
    one = differences_of(
        point("x", run(1, {"kernel.release": "6.1"})), point("y", run(2, {"kernel.release": "6.2"}))
    )
    assert one["setting kernel.release"] == PointDifference(
        what="setting kernel.release",
        values=(("6.1", (1,)), ("6.2", (2,))),
        inside=(),
        significant=True,
    )


def test_a_run_within_a_point_that_is_unlike_the_others_is_told() -> None:
    kernels = [{"kernel.release": release} for release in ("6.1", "6.1", "6.2")]
    runs = [run(number, kernel) for number, kernel in enumerate(kernels, 1)]
    new = run(4, {"kernel.release": "6.1"})
    one = differences_of(point("x", *runs), point("y", new))["setting kernel.release"]
    assert one.inside == ("x",)
    assert one.values == (("6.1", (1, 2, 4)), ("6.2", (3,)))


def test_an_axis_is_not_told_under_the_name_it_is_recorded_by() -> None:
    points = [
        point("a", run(1, {"thp.enabled": "never", "vm.swappiness": "10"}), thp="never"),
        point("b", run(2, {"thp.enabled": "always", "vm.swappiness": "60"}), thp="always"),
    ]
    assert list(differences_of(*points)) == ["setting vm.swappiness"]
    # By its value, whatever the axis is called.
    renamed = [replace(point, values=(("pages", point.values[0][1]),)) for point in points]
    assert list(differences_of(*renamed)) == ["setting vm.swappiness"]


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
    assert (differences_of(*points) == {}) is explained


def test_an_axis_whose_setting_was_not_what_it_says_is_told() -> None:
    points = [
        point("a", run(1, {"thp.enabled": "never"}), thp="never"),
        point("b", run(2, {"thp.enabled": "always"}), run(3, {"thp.enabled": "never"}), thp="on"),
    ]
    assert differences_of(*points)["setting thp.enabled"].inside == ("b",)


def test_an_environment_variable_as_an_axis_is_not_told_and_an_unset_one_neither() -> None:
    first, second = replace(run(1), environment=(("OMP_NUM_THREADS", "2"),)), run(2)
    axis = "env:OMP_NUM_THREADS"
    assert differences_of(point("a", first, **{axis: "2"}), point("b", second, **{axis: ""})) == {}
    assert list(differences_of(point("a", first), point("b", second))) == ["--env OMP_NUM_THREADS"]


def test_another_machine_stands_first() -> None:
    other = run(2, {"kernel.release": "6.2"})
    other = replace(other, host=replace(other.host, hostname="elsewhere", microcode="0x2"))
    told = point_differences([point("x", run(1, {"kernel.release": "6.1"})), point("y", other)])
    assert [one.what for one in told] == ["host name", "microcode", "setting kernel.release"]
    assert told[0].is_machine


def test_other_programs_and_compilers_are_told() -> None:
    def built(number: int, compiler: str, sha256: str) -> StoredRun:
        built_run = run(number)
        used = BenchmarkUsed(
            name="a",
            category=None,
            command="a",
            reference_s=10.0,
            binary_sha256=sha256,
            compiler=compiler,
            flags="-O2",
        )
        return replace(built_run, benchmarks=(used,))

    one, two = built(1, "gcc 12", "aa" * 32), built(2, "gcc 13", "bb" * 32)
    assert set(differences_of(point("x", one), point("y", two))) == {
        "program of a",
        "compiler of a",
    }
    assert differences_of(point("x", one, tune="base"), point("y", two, tune="peak")) == {}


def test_places_are_one_line_and_follow_from_a_layout_that_differs() -> None:
    def placed(number: int, cpus: tuple[int, int], **head: Any) -> StoredRun:
        placed_run = run(number, **head)
        places = [
            Placement(
                copy=copy,
                cpus=(number,),
                cpu=number,
                core=number,
                llc=0,
                node=0,
                package=0,
                memory_policy=MemoryPolicy.LOCAL,
                memory_nodes=(),
            )
            for copy, number in enumerate(cpus)
        ]
        return replace(placed_run, placements=tuple(places))

    moved = differences_of(point("x", placed(1, (0, 1))), point("y", placed(2, (2, 3))))
    assert list(moved) == ["places of the copies"]
    assert moved["places of the copies"].values[0] == ("as in run 1", (1,))
    layout = differences_of(
        point("x", placed(1, (0, 1))), point("y", placed(2, (2, 3), layout="spread"))
    )
    assert list(layout) == ["layout"]
    axis = differences_of(
        point("x", placed(1, (0, 1)), layout="balanced"),
        point("y", placed(2, (2, 3), layout="spread"), layout="spread"),
    )
    assert axis == {}


def test_what_a_result_file_does_not_tell_is_no_difference() -> None:
    own, other = run(1, {"kernel.release": "6.1"}), run(2, source="import")
    told = differences_of(point("x", own), point("y", other))
    assert (told["setting kernel.release"].unknown, told["origin"].unknown) == (True, False)
    assert not told["setting kernel.release"].significant
    # Two own runs of which one has it not: that is one.
    told = differences_of(point("x", own), point("y", run(2)))
    assert not told["setting kernel.release"].unknown


def test_other_benchmarks_are_told_by_the_comparison_another_order_of_them_here() -> None:
    def ring(number: int, *names: str) -> StoredRun:
        ring_run = run(number)
        used = tuple(
            BenchmarkUsed(
                name=name,
                category=None,
                command=name,
                reference_s=10.0,
                binary_sha256=None,
                compiler=None,
                flags=None,
            )
            for name in names
        )
        return replace(ring_run, benchmarks=used)

    assert differences_of(point("x", ring(1, "a", "b")), point("y", ring(2, "a"))) == {}
    told = differences_of(point("x", ring(1, "a", "b")), point("y", ring(2, "b", "a")))
    assert told["benchmarks"].values == (("a, b", (1,)), ("b, a", (2,)))


def test_options_and_heads_that_differ_are_told_and_lesser_ones_as_notes() -> None:
    asked = [{"bind": "core", "alloc": "system", "proof": "auto"}, {"bind": None, "proof": "off"}]
    runs = [
        run(number, request=json.dumps(it), iterations=number) for number, it in enumerate(asked, 1)
    ]
    differences = differences_of(point("x", runs[0]), point("y", runs[1]))
    assert {what: one.significant for what, one in differences.items()} == {
        "--bind": True,
        "iterations": False,
        "--proof": False,
    }
    assert differences["--bind"].values == (("core", (1,)), (None, (2,)))


def test_another_mode_is_told() -> None:
    told = differences_of(point("x", run(1)), point("y", run(2, mode="staggered", stagger_ms=5.0)))
    assert set(told) == {"mode", "ms between starts"}
    values = [point("x", run(1), mode="homogeneous"), point("y", run(2, mode="steady"), mode="s")]
    assert differences_of(*values) == {}


def test_places_of_result_files_are_read_from_their_copies_and_only_what_differs_is_named() -> None:
    def imported(number: int, cpus: tuple[int, ...], **changes: Any) -> Point:
        rows = [copy_row(copy, 10.0, cpu=cpu, **changes) for copy, cpu in enumerate(cpus)]
        it = stored(rows, run=number, uuid=f"u-{number}", source="import")
        return point(f"p{number}", it)

    assert differences_of(imported(1, (0, 1)), imported(2, (0, 1))) == {}
    moved = differences_of(imported(1, (0, 1, 2)), imported(2, (0, 8, 9)))["places of the copies"]
    assert moved.values[1] == ("2 copies elsewhere, copy 1 on CPUs 8, not CPUs 1", (2,))
    core = differences_of(imported(1, (0, 1), core=3), imported(2, (0, 1), core=4))[
        "places of the copies"
    ]
    assert core.values[1] == ("2 copies elsewhere, copy 0 on core 4, not core 3", (2,))
    bound = replace(
        run(1),
        placements=(
            Placement(
                copy=0,
                cpus=(0,),
                cpu=0,
                core=0,
                llc=0,
                node=0,
                package=0,
                memory_policy=MemoryPolicy.LOCAL,
                memory_nodes=(),
            ),
        ),
    )
    free = replace(run(2), placements=(Placement.unbound(0, MemoryPolicy.LOCAL),))
    moved = differences_of(point("x", bound), point("y", free))["places of the copies"]
    assert moved.values[1] == ("copy 0 on any CPU (not bound), not CPUs 0", (2,))


def test_an_option_that_an_older_run_does_not_know_was_at_its_default() -> None:
    def asked(number: int, **options: object) -> StoredRun:
        return run(number, request=json.dumps({"copies": "2"} | options))

    older, plain = asked(1), asked(2, hugepages=None, alloc="system", reserve=None, run_dirs=False)
    assert differences_of(point("x", older), point("y", plain)) == {}
    paged = asked(3, hugepages="thp", reserve=1)
    told = differences_of(point("x", older), point("y", paged))
    assert told["--hugepages"].values == ((None, (1,)), ("thp", (3,)))
    assert told["--reserve"].values == ((None, (1,)), ("1", (3,)))


def test_another_model_or_product_is_another_machine_where_a_host_name_is_not_known() -> None:
    def on(number: int, **known: str | None) -> Point:
        it = run(number, source="import")
        return point(f"p{number}", replace(it, host=replace(it.host, **known)))

    told = differences_of(
        on(1, cpu_model="Xeon", hostname="h"), on(2, cpu_model="Core i5", hostname=None)
    )
    assert told["host name"].unknown
    assert not told["host name"].is_machine
    assert told["CPU model"].is_machine
    assert differences_of(on(1, product="Rack 930"), on(2, product="Blade 7"))["product"].is_machine
    assert not differences_of(on(1, product="Rack 930"), on(2))["product"].is_machine


def point_of_settings(number: int, settings: dict[str, str], **values: str) -> Point:
    run = replace(stored([copy_row(0, 10.0)], run=number), settings=tuple(settings.items()))
    return Point(f"run {number}", tuple(values.items()), (PointRun(run, None),))


def doctor_differences_of(*points: Point) -> dict[str, DoctorDifference]:
    return {
        difference.check: difference
        for difference in doctor_differences(points, point_differences(points))
    }


QUIET_SETTINGS = {"cpu.governor": "performance", "cpu.driver": "acpi-cpufreq", "ksm.run": "0"}


def test_a_verdict_that_differs_is_told_with_what_was_seen_in_which_runs() -> None:
    one = doctor_differences_of(
        point_of_settings(1, QUIET_SETTINGS),
        point_of_settings(2, QUIET_SETTINGS | {"cpu.governor": "ondemand"}),
    )
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
    assert (
        doctor_differences_of(
            point_of_settings(1, QUIET_SETTINGS),
            point_of_settings(2, QUIET_SETTINGS | {"cpu.driver": "intel_pstate"}),
        )
        == {}
    )
    slow = QUIET_SETTINGS | {"cpu.governor": "ondemand"}
    axes = ({"governor": "performance"}, {"governor": "ondemand"})
    assert (
        doctor_differences_of(
            point_of_settings(1, QUIET_SETTINGS, **axes[0]), point_of_settings(2, slow, **axes[1])
        )
        == {}
    )


def test_memory_in_pieces_is_told_though_it_is_a_reading() -> None:
    whole = {"memory.node0.free_bytes": "1000", "memory.node0.free_huge_order_bytes": "900"}
    broken = whole | {"memory.node0.free_huge_order_bytes": "50"}
    assert list(
        doctor_differences_of(point_of_settings(1, whole), point_of_settings(2, broken))
    ) == ["fragmentation"]


def test_a_run_of_which_nothing_is_known_is_no_difference() -> None:
    assert (
        doctor_differences_of(point_of_settings(1, {"ksm.run": "1"}), point_of_settings(2, {}))
        == {}
    )


def test_compare_shows_what_the_doctor_would_have_said(rater: Rater, database: Path) -> None:
    make(database, [(10.0, 10.0)], settings={"ksm.run": "0"})
    make(database, [(10.0, 10.0)], settings={"ksm.run": "1"})
    _, out, _ = rater("compare", 1, 2)
    assert "KSM: good, off (run 1); bad, on: it merges equal pages" in " ".join(out.split())
    document = json.loads(rater("compare", "--json", 1, 2)[1])
    assert [(one["check"], one["values"][1]["runs"]) for one in document["doctor"]] == [
        ("KSM", [2])
    ]
    assert "BAD  KSM  on" in rater("doctor", "--run-of", 2, "KSM")[1]


def cost(run: StoredRun) -> float | None:
    found = foreign_load_cost(run, run_counters(run))
    return None if found is None else round(found, 3)


QUIET = (reading(0, 9.9), reading(1, 9.9))


@pytest.mark.parametrize(
    ("copies", "rows", "lost"),
    [
        # Nobody else worked.
        ([computed(0, 9.9), computed(1, 9.9)], QUIET, 0.0),
        # Others had half of both CPUs: without them the copies take 5 s instead of 10.
        ([computed(0, 5.0), computed(1, 5.0)], (reading(0, 10.0), reading(1, 10.0)), 0.5),
        # Of one CPU: its copy ends last, at 10 s; without them both end at 6 s.
        (
            [computed(0, 5.0), replace(computed(1, 6.0), elapsed_ns=6 * S)],
            (reading(0, 10.0), reading(1, 6.0)),
            0.4,
        ),
        # The copy waited by itself, for input or a neighbour: it lost 1 s, what others worked.
        ([computed(0, 5.0)], (reading(0, 6.0),), 0.1),
        # It had its CPU all the time: others worked there when it was done.
        ([replace(computed(0, 4.0), elapsed_ns=4 * S)], (reading(0, 9.0),), 0.0),
        # A copy that sleeps wants no CPU: others worked there all the time, and took .1 s at most.
        ([computed(0, 0.1)], (reading(0, 10.0),), 0.01),
        # The hypervisor's other guests are others, too.
        ([computed(0, 7.0)], (reading(0, 7.0, steal_ns=3 * S),), 0.3),
        # Two copies share the CPU, each has half of it; others had a fifth.
        (
            [computed(0, 4.0, cpu=0), computed(1, 4.0, cpu=0)],
            (reading(0, 10.0),),
            0.2,
        ),
        # Not bound: of two CPUs 16 s were theirs and 4 s others'.
        (
            [computed(0, 8.0, cpu=None), computed(1, 8.0, cpu=None)],
            (reading(0, 10.0), reading(1, 10.0)),
            0.2,
        ),
        # Of three iterations the median stands: one that was disturbed costs nothing.
        (
            [
                computed(
                    0, 5.0 if iteration == 1 else 9.9, phase=iteration, iteration=iteration + 1
                )
                for iteration in range(3)
            ],
            (reading(0, 9.9),),
            0.0,
        ),
        # An iteration that does not count.
        ([computed(0, 5.0, counted=False)], (reading(0, 10.0),), None),
    ],
)
def test_what_others_cost_is_the_score_without_the_time_they_took(
    copies: list[CopyEnded], rows: tuple[CpuReading, ...], lost: float | None
) -> None:
    assert cost(read_run(copies, *rows)) == lost


def waiting(copy: int, cpu_s: float, delay_s: float, **changes: Any) -> CopyEnded:
    """A copy of 10 s that computed, and was runnable without a CPU, for so long."""
    known = {"run_delay_ns": round(delay_s * S), "run_delay_cpu_ns": round(cpu_s * S)}
    return computed(copy, cpu_s, **(known | changes))


@pytest.mark.parametrize(
    ("copies", "rows", "lost"),
    [
        # Not told: with one other, which got as much.
        ([computed(0, 2.0)], (reading(0, 10.0),), 0.2),
        # It waited for each of many others.
        ([waiting(0, 2.0, 8.0)], (reading(0, 10.0),), 0.8),
        # It slept: others took nothing of it, whatever they did.
        ([waiting(0, 2.0, 0.0)], (reading(0, 10.0),), 0.0),
        # It waited, and nobody worked there: rater's own doing, or none.
        ([waiting(0, 2.0, 8.0)], (reading(0, 2.0),), 0.0),
        # Its CPU was not read (a container numbers them in its own way), and it was alone there.
        ([waiting(0, 5.0, 5.0)], (), 0.5),
        # Two copies were there: they may have waited for each other.
        ([waiting(0, 5.0, 5.0, cpu=0), waiting(1, 5.0, 5.0, cpu=0)], (), None),
        # Of most of its CPU time it is not known whether it waited, and no CPU was read.
        ([waiting(0, 5.0, 1.0, run_delay_cpu_ns=S)], (), None),
        # It bound itself to CPU 0, as the other did: each had half, and others nothing.
        (
            [waiting(0, 5.0, 5.0), waiting(1, 5.0, 5.0, last_cpu=0)],
            (reading(0, 10.0), reading(1, 10.0)),
            0.0,
        ),
        # One failed there after 1 s: others had the CPU for most of the time that it lost.
        (
            [
                waiting(0, 1.0, 8.0),
                replace(computed(1, 0.1, cpu=0, status=CopyStatus.FAILED, signal=9), elapsed_ns=S),
            ],
            (reading(0, 10.0),),
            0.8,
        ),
    ],
)
def test_others_cost_no_more_than_a_copy_waited_where_it_was_seen(
    copies: list[CopyEnded], rows: tuple[CpuReading, ...], lost: float | None
) -> None:
    assert cost(read_run(copies, *rows)) == lost


def test_a_quota_is_no_other_work() -> None:
    """Used up in 8 of 10 periods; in these the cgroup had all that it may have."""
    quota = {"cfs_periods": 100, "cfs_throttled_periods": 80, "cfs_throttled_ns": 5 * S}
    run = read_run([waiting(0, 2.0, 8.0)], reading(0, 10.0), masks=None, **quota)
    assert cost(run) == 0.16
    (account,) = time_accounts(run).values()
    assert astuple(account) == pytest.approx((10.0, 2.0, 1.6, 6.4, None, 0.0, 1.0))
    kept_away = quota | {"cfs_throttled_ns": 8 * S}  # nobody else: all of it is told
    run = read_run([waiting(0, 2.0, 8.0)], reading(0, 10.0), masks=None, **kept_away)
    assert cost(run) == 0.0


def test_the_account_of_a_copy_comes_to_its_time() -> None:
    """Two threads: 6 s of CPU time, 4 s of waiting, 2 s stopped, and what is left."""
    run = read_run([waiting(0, 6.0, 4.0, stopped_ns=2 * S)], cfs_throttled_ns=0)
    run = replace(
        run, benchmarks=tuple(replace(benchmark, threads=2) for benchmark in run.benchmarks)
    )
    (account,) = time_accounts(run).values()
    assert account == TimeAccount(
        elapsed_s=10.0,
        ran_s=3.0,
        waited_s=2.0,
        throttled_s=0.0,
        stopped_s=2.0,
        slept_s=3.0,
        known=1.0,
    )


def test_what_was_seen_of_most_threads_stands_for_all() -> None:
    (account,) = time_accounts(read_run([waiting(0, 4.0, 3.0, run_delay_cpu_ns=3 * S)])).values()
    assert account == TimeAccount(
        elapsed_s=10.0,
        ran_s=4.0,
        waited_s=4.0,
        throttled_s=None,
        stopped_s=None,
        slept_s=2.0,
        known=0.75,
    )


def test_rater_itself_is_no_other() -> None:
    assert cost(read_run([computed(0, 9.0)], reading(0, 10.0), rater_cpu_ns=S)) == 0.0


def test_without_a_barrier_it_is_the_share_of_all_copies_time() -> None:
    run = read_run([computed(0, 5.0), computed(1, 10.0)], reading(0, 10.0), reading(1, 10.0))
    assert cost(replace(run, head=replace(run.head, order="rotated"))) == 0.25
    # Of a queue each run lost its part of what others worked: 1 s of 5 s.
    queue = [
        replace(computed(0, 2.0, step=iteration), elapsed_ns=5 * S, user_ns=2 * S)
        for iteration in range(2)
    ]
    run = read_run(queue, reading(0, 6.0))
    assert cost(replace(run, head=replace(run.head, order="rotated"))) == 0.2


def test_where_cpus_were_not_read_nothing_is_known() -> None:
    assert cost(stored([computed(0, 5.0)])) is None


@pytest.mark.parametrize(
    ("others", "noise", "reasons"),
    [
        (None, None, ()),
        (0.099, 0.19, ()),
        (0.44, 0.1, ("other processes on these CPUs lowered the score by an estimated 44 %",)),
        (None, 0.3, ("times vary so much that noise alone lowered the score by 30 %",)),
    ],
)
def test_a_run_is_too_disturbed_where_others_or_noise_cost_too_much(
    others: float | None, noise: float | None, reasons: tuple[str, ...]
) -> None:
    assert disturbance_reasons(others, noise) == reasons


def side(label: str, *runs: StoredRun) -> Side:
    return Side(label, (Point(label, (), tuple(PointRun(run, None) for run in runs)),))


def test_parts_change_by_a_share_of_the_baselines_cpi() -> None:
    sides = (side("4 KiB", counted_run()), side("2 MiB", counted_run(cycles=3000), stored([])))
    rows = {row.part: row for row in cpi_changes(sides)}
    assert list(rows) == [TOTAL, *STACK]
    assert rows[TOTAL].cycles == pytest.approx((2.0, 3.0))
    assert rows[TOTAL].changes == pytest.approx((0.5,))
    assert rows["dram"].changes == pytest.approx((0.0,))
    assert rows["other"].changes == pytest.approx((0.5,))
    shown = printed_by(partial(print_parts, cpi_parts(list(rows.values()), sides)))
    assert "CPI              2.000  3.000     +50.0" in shown, shown
    assert len(cpi_document(list(rows.values()))) == len(rows)


def test_what_one_side_alone_has_counted_is_no_change() -> None:
    assert cpi_changes((side("A", counted_run()), side("B", stored([])))) == ()
    assert cpi_changes((side("A", stored([])), side("B", counted_run()))) == ()


def test_counts_of_user_mode_alone_are_not_compared_with_those_of_both() -> None:
    both, user = counted_run(), counted_run(end=":u")
    assert cpi_changes((side("A", both), side("B", user))) == ()
    [total, *_] = cpi_changes((side("A", user, both), side("B", user)))
    assert total.cycles == (2.0, 2.0)
