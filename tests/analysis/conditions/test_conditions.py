"""What differs between two runs' conditions, and what is the same although it looks otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rater.analysis.compare.conditions import ConditionDifference, Conditions, condition_differences
from rater.record.run import BenchmarkUsed, Host, MachinePU, MetricUsed, PlacedCopy

HOST = Host("f" * 64, "node7", "m", "CPU 9000", "0x1", "Maker", 100 * 10**9, 2, 2, 1, 1, "x86_64")
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
PLACED = tuple(PlacedCopy(c, (c,), c, c, 0, 0, 0, "local", ()) for c in range(20))
BEFORE = Conditions(
    host=HOST,
    settings=(("load.1min", "0.1"), ("thp.enabled", "madvise"), ("env.PATH", "/bin")),
    pus=(MachinePU(0, 0, 0, 0, 0), MachinePU(1, 1, 0, 0, 0)),
    placements=PLACED[:2],
    benchmarks=(BUILT,),
    suite_path="/suites/own.toml",
    suite_sha256="c" * 64,
    rater_version="0.1.0",
)


def said(now: Conditions, before: Conditions = BEFORE) -> list[str]:
    return [str(it) for it in condition_differences(before, now)]


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
    moved = (PLACED[0], PlacedCopy(1, None, None, None, None, None, None, "none", ()))
    now = replace(BEFORE, placements=moved, pus=BEFORE.pus[:1])
    assert said(now) == [
        "usable CPUs: was 0-1, is 0",
        "place of copy 1: was CPUs 1, core 1, LLC 0, lgroup 0, package 0, memory local, "
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
