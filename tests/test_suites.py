"""The suites `memory`, `matrix`, `pages` and `system` on tiny cases, and their files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from rater.plan.metric import Metric
from rater.plan.suite import Benchmark, Size, Suite
from rater.plan.suite_find import load_suite
from rater.run.programs.compile import build, compile_program
from rater.system.paths import data_folder
from tests.support.calls import Rater

MEMORY = load_suite("memory")
SIZES = ["test", "train", "ref"]


def named(name: str) -> Benchmark:
    return next(benchmark for benchmark in MEMORY.benchmarks if benchmark.name == name)


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
        variables = {key: value for key, value in os.environ.items() if key != "RATER_COPIES"}
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
    assert [benchmark.name for benchmark in MEMORY.benchmarks] == [
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
    lu = named("lu")
    minis = next(benchmark for benchmark in load_suite("mini").benchmarks if benchmark.name == "lu")
    assert (lu.sources, lu.flags, lu.libraries) == (
        minis.sources,
        minis.flags,
        minis.libraries,
    )
    assert lu.sources == (data_folder("suites") / "mini" / "lu.c",)
    for name in SIZES:
        assert lu.sizes[name].commands == minis.sizes[name].commands
        assert lu.sizes[name].expected == minis.sizes[name].expected


PAGES, MEMORY_SUITE, MINI = load_suite("pages"), load_suite("memory"), load_suite("mini")
CHASE = "chase"
SHARED = [("memory", name) for name in ("gups-2g", "gups-8g", "gups-32g", "lu")]
SHARED += [("memory", f"stream-{kernel}") for kernel in ("copy", "scale", "add", "triad")]
SHARED += [("memory", CHASE), ("mini", "sparse"), ("mini", "sort")]


def benchmark_named(suite: Suite, name: str) -> Benchmark:
    return next(benchmark for benchmark in suite.benchmarks if benchmark.name == name)


@pytest.mark.parametrize(("suite", "name"), SHARED)
def test_sizes_train_and_ref_are_those_of_the_suite_that_has_the_program(
    suite: str, name: str
) -> None:
    theirs = benchmark_named(
        {"memory": MEMORY_SUITE, "mini": MINI}[suite], "latency" if name == CHASE else name
    )
    ours = benchmark_named(PAGES, name)
    assert ours.sources == theirs.sources
    for size in ("train", "ref"):
        here, there = (replace(it.sizes[size], reference_s=1.0) for it in (ours, theirs))
        assert here == there


def test_tables_of_test_are_beyond_the_reach_of_a_tlb_with_small_pages() -> None:
    mib = [
        int(benchmark_named(PAGES, name).sizes["test"].commands[0].args[0])
        for name in ("gups-2g", "gups-8g", "gups-32g")
    ]
    assert mib == [64, 128, 512]  # 2048 entries of 4 kB reach 8 MiB


def test_without_java_its_benchmarks_are_left_out_with_the_reason(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in ("cc", "gcc", "sh", "as", "ld", "collect2"):
        found = shutil.which(program)
        if found:
            (tmp_path / program).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    status, out, err = rater("run", "pages", "--size", "test", "--copies", 1, "--dry-run")
    assert status == 0
    assert re.search(r"java.*java", out + err)
    assert "left out" in out + err


SYSTEM = load_suite("system")
HERE = data_folder("suites") / "system"
NAMED = {benchmark.name: benchmark for benchmark in SYSTEM.benchmarks}
PACKERS = ["xz", "bzip2", "gzip", "zstd", "lz4"]

# id, day, customer, city, product, quantity, cents, note
ORDERS = """\
5,2026-01-09,17,tul,shou,2,150,so kouth shal
3,2026-12-30,4,bro,mis,12,100,kouth sha mor
8,2026-01-02,17,tul,mis,1,400,mor mor kis
"""


class Generators:
    """The suite's generators, each compiled once for all tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, *args: object) -> Path:
        program = compile_program(
            "generator", [HERE / f"gen_{name}.c"], ["-O2"], ["-lm"], self._folder / "cache"
        )
        path = self._folder / f"{name} {args}"
        path.unlink(missing_ok=True)
        subprocess.run([program.executable, *map(str, args), path], check=True)
        return path


@pytest.fixture(scope="module")
def generators(tmp_path_factory: pytest.TempPathFactory) -> Generators:
    return Generators(tmp_path_factory.mktemp("generators"))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def need(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


def said_by(command: list[str], cwd: Path, stdin: str = "") -> str:
    """Return what a program says in the suite's environment; it must succeed in silence."""
    need(command[0])
    ended = subprocess.run(
        command,
        cwd=cwd,
        input=stdin,
        env=os.environ | dict(SYSTEM.environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def words_of(benchmark: Benchmark, size: Size) -> list[str]:
    """All command lines of one size as words, those inside `sh -c` too."""
    words: list[str] = []
    for command in size.commands:
        words += [*(command.program or benchmark.command), *command.args]
    return [part for word in words for part in word.split()]


def test_the_suite_leaves_out_what_is_missing_and_has_all_that_was_promised() -> None:
    assert SYSTEM.leave_out == ("missing",)
    assert dict(SYSTEM.environment)["LC_ALL"] == "C"
    promised = {*PACKERS, "gcc", "python3", "perl", "sqlite3", "openssl", "sort", "awk", "ffmpeg"}
    assert promised < set(NAMED)
    for benchmark in SYSTEM.benchmarks:
        assert list(benchmark.sizes) == ["test", "train", "ref"]
        for size in benchmark.sizes.values():
            assert size.expected
            assert size.reference_s is not None
            assert size.memory_bytes is not None


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("xz", ["-T1"]),
        ("zstd", ["--single-thread"]),
        ("sort", ["--parallel=1", "-T", "."]),
        ("ffmpeg", ["-threads", "1", "-filter_threads"]),
        ("git", ["--threads=1"]),
        ("node", ["--single-threaded"]),
        ("java", ["-XX:+UseSerialGC", "-XX:ActiveProcessorCount=1"]),
    ],
)
def test_a_program_that_has_threads_is_told_to_use_one(name: str, flags: list[str]) -> None:
    for size in NAMED[name].sizes.values():
        words = words_of(NAMED[name], size)
        assert [flag for flag in flags if flag not in words] == []


@pytest.mark.parametrize("benchmark", SYSTEM.benchmarks, ids=lambda b: b.name)
def test_every_size_runs_the_program_itself_so_that_a_missing_one_is_seen(
    benchmark: Benchmark,
) -> None:
    assert not benchmark.command[0].startswith(("sh", "env"))
    for size in benchmark.sizes.values():
        assert size.commands[0].program == ()  # the benchmark's own


def test_lz4_is_told_by_its_environment_because_older_versions_know_no_flag() -> None:
    assert dict(NAMED["lz4"].environment) == {"LZ4_NBWORKERS": "1"}


@pytest.mark.parametrize(
    ("name", "args", "digest"),
    [
        (
            "text",
            ("prose", 300000),
            "e8f7f18b6d6691cc923ac4dfc42266d17973ecea7ca5ee204b85eab37691213f",
        ),
        (
            "text",
            ("log", 300000),
            "e8a7754d0a1ce69bea9221ce2e60747cf15605403363943e94e9ec9e5b02848c",
        ),
        (
            "records",
            ("csv", 3000),
            "c50444acc2fa9cbfd325dff9c50848094cc223a03c84e3731f0b0cc6a5fb61e8",
        ),
        (
            "records",
            ("json", 3000),
            "274451f29c0a58e8256f6b6cdf02ac3b7c8b51618704a75fb89bc9fb82c97821",
        ),
        ("source", (0, 2, 30), "37b970923c2d848d390f383183d38b1d92a7d8257bf52df0073c57b2b306c521"),
        (
            "history",
            (30, 20, 100),
            "fb636d264ccbdd6ff110c50d553619c9f45efd1a46bc1a976d9fd059e7ee5e07",
        ),
        (
            "frames",
            (160, 90, 5),
            "703a2b79b1a108fd34b58249b9d9d2b9a6cb7b8877da4734340ae91640d9b844",
        ),
    ],
)
def test_a_generator_writes_the_same_bytes_everywhere(
    generators: Generators, name: str, args: tuple[object, ...], digest: str
) -> None:
    first = generators.write(name, *args).read_bytes()
    assert sha256(first) == digest
    assert generators.write(name, *args).read_bytes() == first


@pytest.mark.parametrize("name", PACKERS)
def test_what_comes_back_is_held_to_what_the_generator_wrote(
    generators: Generators, name: str
) -> None:
    size = NAMED[name].sizes["test"]
    made = size.inputs[0].generator
    assert made is not None
    written = generators.write("text", *made.args[:2]).read_bytes()
    (back,) = size.expected
    assert (back.file, back.sha256) == ("back", sha256(written))


@pytest.mark.parametrize("name", PACKERS)
def test_a_packer_takes_and_gives_the_text(
    generators: Generators, tmp_path: Path, name: str
) -> None:
    text = generators.write("text", "prose", 50000).read_bytes()
    pack, unpack = NAMED[name].sizes["test"].commands
    need(name)
    packed = subprocess.run([name, *pack.args], input=text, capture_output=True, check=True).stdout
    assert len(packed) < len(text) / 2
    back = subprocess.run([name, *unpack.args], input=packed, capture_output=True, check=True)
    assert back.stdout == text


def test_prose_is_sentences_of_at_least_the_wanted_length(generators: Generators) -> None:
    text = generators.write("text", "prose", 2000).read_text()
    assert 2000 <= len(text) < 3500
    assert re.fullmatch(r"(([A-Z][a-z]*(,? [a-z]+)+\. ?)+\n\n)+", text)


def test_every_line_of_the_log_is_of_a_known_kind(generators: Generators) -> None:
    lines = generators.write("text", "log", 20000).read_text().splitlines()
    head = r"2026-03-\d\dT\d\d:\d\d:\d\d\.\d{3} web-\d\d "
    kinds = [
        r'access\[\d+\]: [\d.]+ "[A-Z]+ /[a-z]+/[a-z]+\?[a-z]+=\d+ HTTP/1\.1" \d+ \d+ \d+ms',
        r"worker\[812\]: job \d+ [a-z]+-[a-z]+ finished in \d+ ms",
        r"database\[77\]: slow query \(\d+ ms\): select [a-z, ]+ from [a-z]+ where [a-z]+ = \d+",
        r"auth\[301\]: session opened for user [a-z]+ from [\d.]+",
    ]
    for kind in kinds:
        assert any(re.fullmatch(head + kind, line) for line in lines)
    assert all(re.fullmatch(f"{head}({'|'.join(kinds)})", line) for line in lines)


def test_json_orders_are_those_of_the_csv(generators: Generators) -> None:
    rows = generators.write("records", "csv", 50).read_text().splitlines()
    objects = generators.write("records", "json", 50).read_text().splitlines()
    flat = []
    for line in objects:
        o = json.loads(line)
        who, what = o["customer"], o["ordered"]
        flat.append(
            f"{o['id']},{o['day']},{who['number']},{who['city']},{what['product']},"
            f"{what['quantity']},{what['cents']},{o['note']}"
        )
    assert flat == rows
    assert len({row.split(",")[0] for row in rows}) == 50


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_generated_source_prints_the_same_whoever_compiles_it(
    generators: Generators, tmp_path: Path, compiler: str
) -> None:
    for part in (0, 1):
        shutil.copy(generators.write("source", part, 2, 3), tmp_path / f"part{part}.c")
    for level in ("-O0", "-O2"):
        said_by([compiler, level, "-w", "-o", level, "part0.c", "part1.c"], tmp_path)
        assert said_by(["env", f"./{level}"], tmp_path) == "part 0 0db4c872\npart 1 0bf7f5c8\n"


def test_a_generated_history_has_the_commits_it_should(
    generators: Generators, tmp_path: Path
) -> None:
    size = NAMED["git"].sizes["test"]
    stream = generators.write("history", 5, 3, 10).read_text()
    need("git")
    for command in size.commands[:2]:
        said_by(["git", *command.args], tmp_path, stream)
    said = [said_by(["git", *command.args], tmp_path) for command in size.commands[-2:]]
    assert said == ["5\n", "99e063e2de1757f8465e26ba1bcd0028f488962f\n"]


def test_generated_frames_are_planes_of_moving_pictures(generators: Generators) -> None:
    frames = generators.write("frames", 32, 16, 2).read_bytes()
    assert len(frames) == 2 * (32 * 16 + 2 * 16 * 8)
    assert frames[: 32 * 16] != frames[32 * 24 : 32 * 24 + 32 * 16]


def test_awk_adds_up_orders(tmp_path: Path) -> None:
    (tmp_path / "orders").write_text(ORDERS)
    command = ["awk", "-f", str(HERE / "orders.awk"), "-v", "rounds=1", "orders"]
    assert said_by(command, tmp_path) == (
        "orders 3 cents 1900\n"  # 300 + 1200 + 400
        "cities 2 cells 2 units 15\n"
        "january 700 december 1200\n"
        "best 8 words once 4 letters 31 matched 1 rest 35\n"
    )
    twice = said_by([*command[:-2], "rounds=2", "orders"], tmp_path).splitlines()
    assert (twice[0], twice[3]) == (
        "orders 6 cents 3800",
        "best 8 words once 0 letters 62 matched 2 rest 70",
    )


def test_perl_counts_what_a_log_says(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        '2026-03-01T00:00:00.000 web-01 access[1]: 10.0.0.1 "GET /a/b?c=1 HTTP/1.1" 200 10 900ms\n'
        '2026-03-01T00:00:01.000 web-02 access[1]: 10.0.0.1 "GET /a/b?c=1 HTTP/1.1" 404 10 5ms\n'
        "2026-03-01T00:00:02.000 web-01 worker[812]: job 8 a-b finished in 30 ms\n"
        "2026-03-01T00:00:03.000 web-01 auth[301]: session opened for user a from 10.0.0.1\n"
        "2026-03-01T00:00:04.000 web-01 database[77]: "
        "slow query (600 ms): select a, b from c where d = 71\n"
    )
    assert said_by(["perl", str(HERE / "log.pl"), "2", "log"], tmp_path) == (
        "rounds 2\n"
        "lines 5 access 2 bytes 10 slow 1\n"
        "paths 1 busiest B/A 905\n"
        "jobs 1 ms 31 users 1 addresses 1\n"  # 30 + 8 % 7
        "queries 1 longest c.d\n"
    )


def test_sed_rearranges_a_line_and_remembers_the_last_slow_query(tmp_path: Path) -> None:
    log = (
        "2026-03-04T01:02:03.456 web-07 database[77]: "
        "slow query (600 ms): select a, b from c where d = 7\n"
        "2026-03-04T01:02:04.376 web-07 auth[301]: session opened for user a from 10.1.2.3\n"
    )
    command = ["sed", "-n", "-E", "-f", str(HERE / "log.sed")]
    assert said_by(command, tmp_path, log) == ""
    # printed are lines with an odd digit and 77
    assert said_by(command, tmp_path, log.replace("376", "377")) == (
        "04.03.2026 01:02:04,377 auth@7 (301) session opened for user a from 3.2.1.in-addr"
        " | 04.03.2026 01:02:03,456 database@7 (77) "
        "slow query (600 ms): select b, a from c where d = 7\n"
    )


def test_jq_prints_the_orders_it_selects(tmp_path: Path) -> None:
    order = {
        "id": 5,
        "day": "2026-01-09",
        "customer": {"number": 17, "city": "tul"},
        "ordered": {"product": "shou", "quantity": 20, "cents": 101},
        "note": "sha kouth bal",
    }
    lines = "".join(json.dumps(order | {"id": number}) + "\n" for number in range(97))
    # 20 x 101 = 2020 cents, 202 of them taken off; 11 letters; 14 + 1818 + 11 = 19 x 97
    assert said_by(["jq", "-c", "-f", str(HERE / "orders.jq")], tmp_path, lines) == (
        '{"id":14,"month":1,"where":"TUL","sold":"20 shou","cents":1818,"words":["kouth"],'
        '"letters":11}\n'
    )


def test_sqlite_answers_from_imported_orders(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text(ORDERS)
    command = [*NAMED["sqlite3"].command, "orders.db"]
    assert said_by(command, tmp_path, (HERE / "orders.sql").read_text()) == (
        "off\n"
        "3|15|1900\n"
        "bro|2026-12|1200\n"
        "tul|2026-01|700\n"
        "0|\n"  # tul has 2 orders, but none of them a note like that
        "750\n"  # in their products: shou 150; mis 400, then 100 x 2
        "0\n"
        "2|550|2|so kouth shal\n"  # order 3 deleted
    )


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("p(20)", "14159265358979323846"),  # of pi
        ("l(7)", "0"),  # 127 is prime
        ("l(11)", "1736"),  # 2047 = 23 x 89 is not
        ("f(10)", "55"),
    ],
)
def test_bc_knows_numbers(tmp_path: Path, question: str, answer: str) -> None:
    command = ["bc", "-q", str(HERE / "numbers.bc")]
    assert said_by(command, tmp_path, f"{question}\n") == f"{answer}\n"


def test_python_finds_the_same_in_every_round(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Mis tul, mis tul.\nMis\n")
    command = [*NAMED["python3"].command[:-1], str(HERE / "mixed.py"), "2", "text"]
    said = said_by(command, tmp_path).splitlines()
    assert said[:2] == ["rounds 2", "queens 92 primes 1709600813"]
    assert said[3:] == [
        "words 2 mis 3 3 mis tul 2",
        "power 7341201395965538067965579786157028435900",
    ]


def test_node_groups_and_sorts_orders(tmp_path: Path) -> None:
    rows = []
    for row in ORDERS.splitlines():
        number, day, customer, city, product, quantity, cents, note = row.split(",")
        ordered = {"product": product, "quantity": int(quantity), "cents": int(cents)}
        who = {"number": int(customer), "city": city}
        rows.append(
            {"id": int(number), "day": day, "customer": who, "ordered": ordered} | {"note": note}
        )
    (tmp_path / "orders").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [*NAMED["node"].command[:-1], str(HERE / "orders.js"), "1", "orders"]
    said = said_by(command, tmp_path)
    assert said.startswith("rounds 1\norders 3 first 3 ")
    assert said.endswith("\nbest bro 1200 1 word mor 3\n")


# -- Suite `matrix`: each mode on a small working set, and turns one after another -----------------

MATRIX = load_suite("matrix")
WINDOW_S = 0.02


@pytest.fixture(scope="module")
def matrix_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(MATRIX.benchmarks[0], "base", tmp_path_factory.mktemp("cache")).executable


def measured(matrix_program: Path, mode: str, **environment: str) -> tuple[dict[str, float], float]:
    """Return what a mode prints, and how long it took."""
    began_s = time.monotonic()
    ended = subprocess.run(
        [matrix_program, mode, "256", "20"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    values = re.findall(r"^(\w+) ([0-9.]+) ", ended.stdout, re.MULTILINE)
    assert ended.stdout.endswith("measured\n")
    return {name: float(value) for name, value in values}, time.monotonic() - began_s


@pytest.mark.parametrize("benchmark", MATRIX.benchmarks, ids=lambda benchmark: benchmark.name)
def test_each_benchmark_prints_all_of_its_metrics(
    matrix_program: Path, benchmark: Benchmark
) -> None:
    mode = benchmark.sizes["test"].commands[0].args[0]
    values, _ = measured(matrix_program, mode)
    assert values.keys() == {metric.name for metric in benchmark.metrics}
    assert all(value > 0 or name == "huge" for name, value in values.items())


def test_copies_wait_until_all_are_ready_and_then_for_their_turns(matrix_program: Path) -> None:
    shared = {"RATER_RUN": f"test-{os.getpid()}", "RATER_COPIES": "2", "MATRIX_TURNS": "0,1"}
    with subprocess.Popen(
        [matrix_program, "bandwidth", "256", "20"],
        env=os.environ | shared | {"RATER_COPY": "1"},
        stdout=subprocess.PIPE,
    ) as second:
        began_s = time.monotonic()
        first, first_s = measured(matrix_program, "bandwidth", **shared, RATER_COPY="0")
        output, _ = second.communicate()
        took_s = time.monotonic() - began_s
    assert first["bandwidth"] > 0
    assert output.startswith(b"bandwidth ")
    assert took_s >= 1.1 * WINDOW_S + WINDOW_S  # whenever the second copy began
    assert first_s >= 2 * WINDOW_S  # it stays until the second is through, to be looked at


def test_fewer_turns_than_copies_are_refused(matrix_program: Path) -> None:
    ended = subprocess.run(
        [matrix_program, "latency", "256", "20"],
        env=os.environ | {"MATRIX_TURNS": "0", "RATER_COPY": "1", "RATER_COPIES": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "fewer turns than there are copies" in ended.stderr


def test_leaders_wait_for_each_load_and_the_others_read(matrix_program: Path) -> None:
    leader, _ = measured(matrix_program, "loaded", RATER_COPY="0", MATRIX_LEADERS="0,8")
    reader, _ = measured(matrix_program, "loaded", RATER_COPY="1", MATRIX_LEADERS="0,8")
    # Reading a sixteenth of the time, a line takes sixteen times as long as reading always.
    assert reader["line1"] > 4 * reader["line5"]
    assert leader.keys() == reader.keys()


def test_a_pause_in_a_window_does_not_change_what_is_told(matrix_program: Path) -> None:
    usual, _ = measured(matrix_program, "compute")
    with subprocess.Popen(
        [matrix_program, "compute", "256", "20"],
        env=os.environ | {"MATRIX_WINDOW_MS": "400"},
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        time.sleep(0.2)  # half of the window, and no harm where that is over
        program.send_signal(signal.SIGSTOP)
        time.sleep(1.0)  # 1.4 s for .4 s of work: the mean is below a third
        program.send_signal(signal.SIGCONT)
        output, _ = program.communicate()
    paused = float(output.split()[1])
    assert paused > usual["rate"] / 2


def test_what_is_no_number_is_refused(matrix_program: Path) -> None:
    ended = subprocess.run(
        [matrix_program, "latency", "256", "20"],
        env=os.environ | {"MATRIX_KIB": "many"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (
        1,
        "error: MATRIX_KIB is 'many', expected a whole number\n",
    )


FAKE_CLOCK = """
#include <time.h>
static inline int tick(clockid_t which, struct timespec *now)
{
    static long ticks;
    ticks += which == CLOCK_MONOTONIC;
    *now = (struct timespec){ticks / 10000, ticks % 10000 * 100000};
    return 0;
}
#define clock_gettime tick
"""


@pytest.mark.parametrize(
    ("source", "arguments", "figures"),
    [
        # A clock that goes on by 100 us whenever it is read. Of a step: 2,000 loads; 64 KiB.
        ("matrix", ("latency", "256", "20"), {"latency": 50.0, "bandwidth": 0.65536}),
        ("matrix", ("bandwidth", "256", "20"), {"bandwidth": 0.65536}),
        ("matrix", ("loaded", "256", "20"), {f"line{step}": 50.0 for step in range(1, 6)}),
        ("matrix", ("compute", "256", "20"), {"rate": 200.0}),
        ("latency", ("256", "1000"), {"latency": 100.0}),
        # 2 passes over 1,000 elements of 8 bytes in 2 and in 3 arrays, all in 100 us.
        ("stream", ("copy", "1000", "2"), {"bandwidth": 0.32}),
        ("stream", ("triad", "1000", "2"), {"bandwidth": 0.48}),
        ("gups", ("1", "100"), {"rate": 0.001}),
    ],
)
def test_bytes_and_loads_are_counted_to_the_digit(
    tmp_path: Path, source: str, arguments: tuple[str, ...], figures: dict[str, float]
) -> None:
    (tmp_path / "clock.h").write_text(FAKE_CLOCK)
    program = tmp_path / source
    text = data_folder("suites") / f"memory/{source}.c"
    command = ["cc", "-O1", "-include", str(tmp_path / "clock.h"), "-o", str(program), str(text)]
    subprocess.run(command, check=True)
    ended = subprocess.run([program, *arguments], capture_output=True, text=True, check=True)
    values = re.findall(r"^(\w+) ([0-9.]+) (?:ns|GB/s|GUPS|per us)$", ended.stdout, re.MULTILINE)
    assert {name: float(value) for name, value in values} == pytest.approx(figures, rel=1e-4)


DRIVER = """
#define main main_of_matrix
#include "memory/matrix.c"
#undef main

int main(void)
{
    static struct line lines[1000];
    static uint64_t words[2 * BLOCK_WORDS];
    make_cycle(lines, 1000);
    int length = 1;
    for (const struct line *at = lines[0].next; at != lines; at = at->next)
        length++;
    for (int i = 0; i < 2 * BLOCK_WORDS; i++)
        words[i] = i % LINE_WORDS == 0 ? i / LINE_WORDS : 1000000;
    struct work work = {.words = words, .count = 2 * BLOCK_WORDS / LINE_WORDS};
    const int64_t lines_read = read_block(&work) + read_block(&work);
    printf("%d %" PRId64 " %" PRIu64 " %" PRId64 "\\n", length, lines_read, work.sum, work.place);
    return 0;
}
"""


def test_a_chase_is_one_cycle_of_all_lines_and_reads_touch_each_line_once(tmp_path: Path) -> None:
    """The first word of a line is its number: the sum of 0 to 2,047 is 2,096,128."""
    (tmp_path / "driver.c").write_text(DRIVER)
    folder = data_folder("suites")
    program = str(tmp_path / "driver")
    subprocess.run(["cc", "-O1", f"-I{folder}", "-o", program, f"{program}.c"], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True)
    assert printed.stdout.split() == ["1000", "2048", "2096128", "0"]
