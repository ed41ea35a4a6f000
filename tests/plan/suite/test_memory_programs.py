"""The programs of suite `memory` on tiny cases, and its file against them."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from rater.files import folder
from rater.plan.suite import Benchmark, Metric
from rater.plan.suite_find import load_suite
from rater.run.programs.compile import build

MEMORY = load_suite("memory")
SIZES = ["test", "train", "ref"]


def named(name: str) -> Benchmark:
    return next(b for b in MEMORY.benchmarks if b.name == name)


@dataclass(frozen=True)
class Ended:
    status: int
    stdout: str
    stderr: str


class Programs:
    """The suite's programs, each compiled once for all tests."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._built: dict[tuple[Path, ...], Path] = {}

    def run(self, name: str, *args: str, copies: int | None = None) -> Ended:
        benchmark = named(name)
        if benchmark.sources not in self._built:
            self._built[benchmark.sources] = build(benchmark, "base", self._cache).executable
        variables = {k: v for k, v in os.environ.items() if k != "RATER_COPIES"}
        if copies is not None:
            variables["RATER_COPIES"] = str(copies)
        ended = subprocess.run(
            [self._built[benchmark.sources], *args],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(tmp_path_factory.mktemp("cache"))


def value_of(metric: Metric, ended: Ended) -> float:
    found = re.findall(metric.pattern, getattr(ended, metric.file), re.MULTILINE)
    assert len(found) == 1, (metric.pattern, ended)
    return float(found[0]) * metric.scale


def compared_lines(name: str, ended: Ended) -> list[str]:
    ignore = named(name).sizes["test"].expected[0].ignore
    assert ignore is not None
    return [line for line in ended.stdout.splitlines() if not re.search(ignore, line)]


def test_the_suite_leaves_out_what_does_not_fit_and_has_all_that_was_promised() -> None:
    assert MEMORY.leave_out == ("unfit",)
    assert [b.name for b in MEMORY.benchmarks] == [
        *("stream-copy", "stream-scale", "stream-add", "stream-triad"),
        *("gups-2g", "gups-8g", "gups-32g", "latency", "latency-l2", "lu"),
    ]
    for benchmark in MEMORY.benchmarks:
        assert list(benchmark.sizes) == SIZES
        for size in benchmark.sizes.values():
            assert size.expected
            assert size.reference_s is not None


@pytest.mark.parametrize(
    ("name", "unit", "better", "combine"),
    [
        ("stream-triad", "GB/s", "higher", "sum"),
        ("gups-8g", "GUPS", "higher", "sum"),
        ("latency", "ns", "lower", "mean"),
        ("lu", "GFLOP/s", "higher", "sum"),
    ],
)
def test_rates_are_added_up_over_copies_and_latencies_averaged(
    name: str, unit: str, better: str, combine: str
) -> None:
    (metric,) = named(name).metrics
    assert (metric.unit, metric.better, metric.combine) == (unit, better, combine)


@pytest.mark.parametrize("kernel", ["copy", "scale", "add", "triad"])
def test_stream_checks_every_element_and_reports_its_bandwidth(
    programs: Programs, kernel: str
) -> None:
    name = f"stream-{kernel}"
    ended = programs.run(name, kernel, "1030", "3")
    assert compared_lines(name, ended) == [f"{kernel} 1030 elements 3 passes errors 0"]
    assert value_of(named(name).metrics[0], ended) > 0


def test_stream_says_which_kernels_there_are(programs: Programs) -> None:
    ended = programs.run("stream-copy", "sum", "10", "1")
    assert (ended.status, ended.stdout) == (1, "")
    assert "no kernel 'sum', expected copy, scale, add or triad" in ended.stderr


@pytest.mark.parametrize("benchmark", MEMORY.benchmarks[:4], ids=lambda b: b.name)
def test_stream_states_the_memory_of_its_arrays(benchmark: Benchmark) -> None:
    arrays = 3 if benchmark.name in ("stream-add", "stream-triad") else 2
    for size in benchmark.sizes.values():
        kernel, elements, _ = size.commands[0].args
        assert kernel == benchmark.name.removeprefix("stream-")
        need_bytes = arrays * 8 * int(elements)
        assert size.memory_bytes is not None
        assert need_bytes < size.memory_bytes < need_bytes + 30e6


@pytest.mark.parametrize(
    ("copies", "words"), [(None, 131072), (1, 131072), (2, 65536), (3, 43690), (7, 18724)]
)
def test_gups_shares_the_table_out_among_any_number_of_copies(
    programs: Programs, copies: int | None, words: int
) -> None:
    ended = programs.run("gups-2g", "1", "200000", copies=copies)  # 1 MiB: 131072 words
    assert f"\nwords {words}\n" in ended.stdout
    assert compared_lines("gups-2g", ended) == ["updates 200000 errors 0"]
    assert value_of(named("gups-2g").metrics[0], ended) > 0


def test_gups_refuses_a_number_of_copies_that_is_none(programs: Programs) -> None:
    ended = programs.run("gups-2g", "1", "10", copies=0)
    assert (ended.status, ended.stdout) == (1, "")
    assert "RATER_COPIES is '0', expected an integer from 1" in ended.stderr
    assert "not enough" in programs.run("gups-2g", "1", "10", copies=200_000).stderr


@pytest.mark.parametrize(("name", "gib"), [("gups-2g", 2), ("gups-8g", 8), ("gups-32g", 32)])
def test_gups_states_the_memory_of_all_copies_together(name: str, gib: int) -> None:
    for size_name, size in named(name).sizes.items():
        total_mib = int(size.commands[0].args[0])
        assert total_mib == (gib * 4 if size_name == "test" else gib * 1024)
        assert size.memory_bytes is None
        assert size.total_memory_bytes is not None
        over_bytes = size.total_memory_bytes - total_mib * 2**20
        assert 200e6 <= over_bytes <= 210e6  # 2 MB for each of 100 copies


@pytest.mark.parametrize(
    ("kibibytes", "loads", "line"),
    [
        ("1", "16", "lines 16 cycle 16 end 0"),  # all around
        ("1", "17000000", "lines 16 cycle 16 end 0"),  # 1062500 times around
        ("17", "272", "lines 272 cycle 272 end 0"),
        ("17", "273", "lines 272 cycle 272 end 133"),  # one further, by another program too
    ],
)
def test_latency_walks_one_cycle_through_all_lines(
    programs: Programs, kibibytes: str, loads: str, line: str
) -> None:
    ended = programs.run("latency", kibibytes, loads)
    assert compared_lines("latency", ended) == [line]
    assert value_of(named("latency").metrics[0], ended) > 0


def test_lu_reports_its_rate_beside_the_output_that_mini_expects(programs: Programs) -> None:
    ended = programs.run("lu", "128", "2")
    assert [line.split()[0] for line in ended.stdout.splitlines()] == ["systems", "log", "solution"]
    assert value_of(named("lu").metrics[0], ended) > 0


def test_lu_is_the_program_and_the_sizes_of_mini() -> None:
    mine = named("lu")
    minis = next(b for b in load_suite("mini").benchmarks if b.name == "lu")
    assert (mine.sources, mine.flags, mine.libraries) == (
        minis.sources,
        minis.flags,
        minis.libraries,
    )
    assert mine.sources == (folder("suites") / "mini" / "lu.c",)
    for name in SIZES:
        assert mine.sizes[name].commands == minis.sizes[name].commands
        assert mine.sizes[name].expected == minis.sizes[name].expected
