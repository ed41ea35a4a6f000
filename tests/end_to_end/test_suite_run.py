"""Everything a suite file may promise, layouts and the preflight, done by `rater run`."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rater.plan.schedule import Step
from rater.plan.suite import Benchmark, InputFile, Size
from rater.record.run import MemoryPolicy, Placement
from rater.run.host.thread_binding import living_on
from rater.run.programs import inputs as prepare
from rater.run.programs.inputs import ReadyInput, ready_inputs
from rater.run.workplace import run_dirs as workplace
from rater.run.workplace.run_dirs import Program, RunFolders
from tests.support.calls import RATER, query_rows, rater
from tests.support.page_cache import cached_bytes, is_droppable

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def suite_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


def suite(folder: Path, text: str, head: str = "") -> str:
    path = folder / "own.toml"
    path.write_text(f'[suite]\nformat = 1\nname = "own"\n{head}\n{text}')
    return str(path)


def script(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_script_goes_on_after_an_exit_code_that_the_suite_accepts(suite_folder: Path) -> None:
    text = """
[benchmarks.search]
command = ["true"]
accept_exit = [1]
sizes.test.commands = [{ command = ["false"] }, { command = ["sh", "-c", "exit 1"] }]
"""
    done = rater("run", suite(suite_folder, text), "--size", "test", "--copies", "1", "--quiet")
    assert done.returncode == 0, done.stderr
    assert query_rows("SELECT status, exit_code FROM copy") == [("ok", 1)]
    assert query_rows("SELECT exit_code FROM workload ORDER BY workload") == [(1,), (1,)]
    assert rater("suites", "check", suite(suite_folder, text), "--run").returncode == 0
    done = rater(
        "run", suite(suite_folder, text.replace("[1]", "[2]")), "--size", "test", "--copies", "1"
    )
    assert done.returncode == 1
    assert "/false): exit code 1" in " ".join(done.stdout.split())


ALL = """
[benchmarks.all]
command = ["cat"]
setup = ["./fresh.sh"]
environment = { B = "benchmark", C = "benchmark" }
[benchmarks.all.metrics.speed]
pattern = '^speed = (\\d+)'
unit = "GB/s"
better = "higher"
combine = "sum"
file = "sub/conf.ini"
scale = 0.5
[benchmarks.all.metrics.time]
pattern = '^time: ([0-9.]+)$'
file = "stderr"
[benchmarks.all.sizes.test]
environment = { C = "size" }
commands = [
  { args = ["-u"], stdin = "made.txt", stdout = "out/copied" },
  { command = ["sh", "-c", "echo speed = 8 >> sub/conf.ini; echo time: 2 >&2; cat"] },
  { command = ["sh", "-c"], args = ["echo $A $B $C $D $E; echo $RATER_SUITE_DIR; cat fresh"] },
]
inputs = [
  { name = "made.txt", made = "made" },
  { name = "sub/conf.ini", path = "conf.ini", copy = true },
]
expected = [
  { text = "suite benchmark size user\\n", ignore = "^/|^[0-9]" },
  { file = "out/copied", text = "1\\n2\\n3\\n" },
  { file = "made.txt", sha256 = "SHA" },
]
"""


def test_a_whole_suite_is_set_up_run_judged_and_stored(suite_folder: Path) -> None:
    script(
        suite_folder, "prepare.sh", 'echo "$RATER_COPIES $1 $A" >> log; seq 3 > made; pwd > where'
    )
    script(
        suite_folder,
        "fresh.sh",
        'echo "$RATER_COPY $RATER_COPIES $RATER_THREADS" > fresh; cat fresh',
    )
    (suite_folder / "conf.ini").write_text("speed = 1\n")
    path = suite(
        suite_folder,
        ALL.replace("SHA", hashlib.sha256(b"1\n2\n3\n").hexdigest()),
        'setup = ["./prepare.sh", "arg"]\nenvironment = { A = "suite", B = "suite", C = "suite" }',
    )
    words = ("run", path, "--size", "test", "--copies", "2", "--keep", "--env", "D=user")
    done = rater(*words)
    assert done.returncode == 0, done.stderr
    assert query_rows("SELECT copy, status, validity FROM copy ORDER BY copy") == [
        (0, "ok", "valid"),
        (1, "ok", "valid"),
    ]
    assert query_rows("SELECT name, unit, better, combine FROM metric ORDER BY position") == [
        ("speed", "GB/s", "higher", "sum"),
        ("time", "", None, "mean"),
    ]
    assert query_rows("SELECT name, value FROM copy_metric ORDER BY name") == [
        ("speed", 4.0),
        ("speed", 4.0),
        ("time", 2.0),
        ("time", 2.0),
    ]
    run_dirs = [Path(found) for (found,) in query_rows("SELECT run_dir FROM copy ORDER BY copy")]
    for copy, run_dir in enumerate(run_dirs):
        said = f"suite benchmark size user\n{suite_folder}\n{copy} 2 1\n"
        assert (run_dir / "stdout").read_text() == said
        assert not (run_dir / "setup.out").exists()
        assert (run_dir / "sub/conf.ini").read_text() == "speed = 1\nspeed = 8\n"
    ((folder,),) = [list((Path(os.environ["RATER_CACHE"]) / "setup").iterdir())]
    assert (folder / "where").read_text() == f"{folder}\n"
    assert (run_dirs[0] / "made.txt").samefile(run_dirs[1] / "made.txt")
    assert not (run_dirs[0] / "made.txt").samefile(folder / "made")
    ((command, inputs),) = query_rows("SELECT command, inputs_sha256 FROM benchmark")
    assert command.endswith("-u <made.txt >out/copied && " + command.split(" && ", 1)[1])
    assert command.count(" && ") == 2
    # The set-up runs once a run, in the same folder; what it makes is hashed every time.
    script(suite_folder, "prepare.sh", 'echo "$RATER_COPIES $1 $A" >> log; seq 4 > made')
    done = rater(*words)
    assert done.returncode == 1
    assert (folder / "log").read_text() == "2 arg suite\n" * 2
    ((detail,),) = query_rows("SELECT DISTINCT validity_detail FROM copy WHERE run_id = 2")
    assert detail == "out/copied line 4: got 4, expected the end of the file"
    assert query_rows("SELECT inputs_sha256 FROM benchmark WHERE run_id = 2") != [(inputs,)]


def test_a_failing_command_is_named_and_the_copy_ends_as_it_did(suite_folder: Path) -> None:
    path = suite(
        suite_folder,
        """
        [benchmarks.code]
        command = ["sh", "-c"]
        [benchmarks.code.sizes.test]
        commands = [
          { args = ["exit 0"] },
          { args = ["exit $((RATER_COPY * 5))"] },
          { args = [":"] },
        ]
        [benchmarks.crash]
        command = ["sh", "-c"]
        [benchmarks.crash.sizes.test]
        commands = [{ args = ["kill -SEGV $$"] }, { args = [":"] }]
        """,
    )
    done = rater("run", path, "--size", "test", "--copies", "2")
    assert done.returncode == 1
    found = query_rows("SELECT benchmark, copy, exit_code, signal, note FROM copy ORDER BY 1, 2")
    crash = "command 1 of 2 (/usr/bin/sh -c 'kill -SEGV $$'): signal 11"
    shell = query_rows("SELECT command FROM benchmark WHERE name = 'crash'")[0][0].split(" ")[0]
    assert found == [
        ("code", 0, 0, None, None),
        (
            "code",
            1,
            5,
            None,
            f"command 2 of 3 ({shell} -c 'exit $((RATER_COPY * 5))'): exit code 5",
        ),
        ("crash", 0, None, 11, crash.replace("/usr/bin/sh", shell)),
        ("crash", 1, None, 11, crash.replace("/usr/bin/sh", shell)),
    ]


def test_a_missing_or_wrong_metric_is_a_wrong_output(suite_folder: Path) -> None:
    path = suite(
        suite_folder,
        """
        [benchmarks.m]
        command = ["echo", "speed", "inf"]
        metrics.speed = { pattern = "speed (.*)" }
        sizes.test = {}
        [benchmarks.n]
        command = ["echo"]
        metrics.speed = { pattern = 'speed (\\d+)' }
        sizes.test = {}
        """,
    )
    done = rater("run", path, "--size", "test", "--copies", "1")
    assert done.returncode == 1
    assert query_rows("SELECT status, validity_detail FROM copy ORDER BY benchmark") == [
        ("wrong-output", "metric speed: stdout has 'inf' there, expected a finite number"),
        ("wrong-output", "metric speed: no line of stdout matches speed (\\d+); it is empty"),
    ]


def test_a_failing_set_up_of_the_suite_is_told_with_its_last_lines(suite_folder: Path) -> None:
    script(suite_folder, "prepare.sh", "seq 100; echo no disk >&2; exit 3")
    path = suite(
        suite_folder,
        '[benchmarks.p]\ncommand = ["true"]\nsizes.test = {}\n',
        'setup = ["./prepare.sh"]',
    )
    done = rater("run", path, "--size", "test")
    assert done.returncode == 2
    said = done.stderr.splitlines()
    assert said[0].endswith(f"set-up of suite own ended with status 3: {suite_folder}/prepare.sh")
    assert said[-2] == "no disk"
    assert said[-1].startswith("(it ran in ")
    assert len(said) == 22
    assert query_rows("SELECT count(*) FROM run") == [(0,)]


def test_a_failing_set_up_of_a_copy_fails_the_run_and_keeps_what_it_said(
    suite_folder: Path,
) -> None:
    script(suite_folder, "fresh.sh", "echo copy $RATER_COPY; test $RATER_COPY = 0 || exit 4")
    path = suite(
        suite_folder,
        '[benchmarks.p]\ncommand = ["true"]\nsetup = ["./fresh.sh"]\nsizes.test = {}\n',
    )
    done = rater("run", path, "--size", "test", "--copies", "2")
    assert done.returncode == 1
    assert (
        f"set-up of copy 1 of p ended with status 4: {suite_folder}/fresh.sh\ncopy 1\n"
        in done.stderr
    )
    (work,) = (Path(os.environ["RATER_CACHE"]) / "work").iterdir()
    assert [path.name for path in work.rglob("*")] == ["p.i1.c0001", "setup.out"]
    assert query_rows("SELECT count(*) FROM copy") == [(0,)]


LEAVING = """
[benchmarks.here]
command = ["true"]
sizes.test = { memory_mb = 1 }
[benchmarks.gone]
command = ["no-such-program"]
sizes.test = { memory_mb = 1 }
[benchmarks.replaced]
command = ["no-such-program"]
sizes.test = { command = ["true"] }
[benchmarks.large]
command = ["true"]
sizes.test = { memory_total_mb = 1000000000 }
"""


def test_what_is_missing_or_does_not_fit_is_left_out_with_the_reason(suite_folder: Path) -> None:
    path = suite(suite_folder, LEAVING, 'leave_out = ["missing", "unfit"]')
    done = rater("run", path, "--size", "test", "--copies", "2")
    assert done.returncode == 0, done.stderr
    assert query_rows("SELECT name FROM benchmark ORDER BY position") == [("here",), ("replaced",)]
    notes = [text for (text,) in query_rows("SELECT text FROM note")]
    missing = "left out: gone: 'no-such-program' is not in PATH; install it, or give its path"
    assert missing in notes
    large = next(text for text in notes if "large" in text)
    assert large.startswith("left out: large: 1000000.0 GB needed, ")
    assert f"warning: {missing}" in done.stderr
    dry = json.loads(rater("run", "--dry-run", "--json", path, "--size", "test").stdout)
    assert missing in dry["warnings"]
    assert dry["benchmarks"] == ["here", "replaced"]


def test_what_is_named_by_the_user_is_not_left_out_for_a_missing_program(
    suite_folder: Path,
) -> None:
    path = suite(suite_folder, LEAVING, 'leave_out = ["missing", "unfit"]')
    done = rater("run", f"{path}/gone,here", "--size", "test")
    assert done.returncode == 2
    assert "benchmark gone: 'no-such-program' is not in PATH" in done.stderr
    done = rater("run", f"{path}/large", "--size", "test")
    assert done.returncode == 2
    assert "nothing is left to run\nleft out: large: 1000000.0 GB needed" in done.stderr
    strict = suite(suite_folder, LEAVING)
    done = rater("run", strict, "--size", "test")
    assert done.returncode == 2
    assert "left out" not in done.stderr


def test_a_plain_command_knows_how_many_copies_run() -> None:
    done = rater("run", "--copies", "2", "--keep", "--run-dirs", "--", "env")
    assert done.returncode == 0
    for (run_dir,) in query_rows("SELECT run_dir FROM copy"):
        lines = (Path(run_dir) / "stdout").read_text().splitlines()
        assert {"RATER_COPIES=2", "RATER_THREADS=1"} <= set(lines)
        assert not any(line.startswith("RATER_SUITE_DIR") for line in lines)


def test_copies_of_several_threads_get_as_many_neighbours(suite_folder: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one CPU only")
    path = suite(
        suite_folder,
        """
        [benchmarks.two]
        command = ["sh", "-c", "echo $RATER_THREADS $RATER_CPUS"]
        threads = 2
        sizes.test = {}
        [benchmarks.one]
        command = ["true"]
        sizes.test = {}
        """,
    )
    done = rater("run", path, "--size", "test", "--keep")
    assert done.returncode == 0, done.stderr
    assert query_rows("SELECT copies FROM run") == [(len(cpus) // 2,)]
    assert query_rows("SELECT threads FROM benchmark ORDER BY position") == [(2,), (1,)]
    ((run_dir,),) = query_rows("SELECT run_dir FROM copy WHERE copy = 0 AND benchmark = 'two'")
    assert (Path(run_dir) / "stdout").read_text().startswith("2 ")
    assert "benchmarks have 1 to 2 threads a copy: every copy gets 2 CPUs" in done.stderr


def test_a_trial_does_what_a_run_does_and_shows_the_metrics(suite_folder: Path) -> None:
    script(suite_folder, "prepare.sh", "seq 3 > made")
    script(
        suite_folder,
        "fresh.sh",
        'echo "$RATER_COPY $RATER_COPIES $RATER_THREADS" > fresh; cat fresh',
    )
    (suite_folder / "conf.ini").write_text("speed = 1\n")
    sha256 = hashlib.sha256(b"1\n2\n3\n").hexdigest()
    head = 'setup = ["./prepare.sh"]\nenvironment = { A = "suite" }'
    path = suite(suite_folder, ALL.replace("SHA", sha256).replace(" user", ""), head)
    done = rater("suites", "check", path, "--run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "note: speed: 4 GB/s\n" in done.stdout
    assert "note: time: 2\n" in done.stdout
    script(suite_folder, "prepare.sh", "echo broken; exit 9")
    done = rater("suites", "check", path, "--run")
    assert done.returncode == 1
    assert "set-up of suite own ended with status 9" in done.stdout


def test_a_check_leaves_no_process_of_its_set_up(suite_folder: Path) -> None:
    script(suite_folder, "prepare.sh", f"setsid sleep 60 & echo $! > {suite_folder}/pid")
    head = 'setup = ["./prepare.sh"]'
    path = suite(suite_folder, '[benchmarks.p]\ncommand = ["true"]\nsizes.test = {}\n', head)
    done = rater("suites", "check", path, "--run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not Path("/proc", (suite_folder / "pid").read_text().strip()).exists()


def test_what_the_cache_can_not_take_is_refused_before_it_is_copied(suite_folder: Path) -> None:
    with (suite_folder / "big").open("wb") as big:
        big.truncate(shutil.disk_usage(suite_folder).free * 2 // 3)  # a hole, no room is taken
    listed = '{ name = "big", path = "big", copy = true }'
    text = f'[benchmarks.p]\ncommand = ["true"]\nsizes.test = {{ inputs = [{listed}] }}\n'
    done = rater("run", suite(suite_folder, text), "--size", "test", "--copies", "1")
    assert done.returncode == 2
    assert "MB by inputs in the cache" in done.stderr
    assert not (Path(os.environ["RATER_CACHE"]) / "inputs").exists()


def test_set_ups_inside_a_window_are_a_warning_of_the_run(suite_folder: Path) -> None:
    script(suite_folder, "fresh.sh", "true")
    text = '[benchmarks.p]\ncommand = ["true"]\nsetup = ["./fresh.sh"]\nsizes.test = {}\n'
    path = suite(suite_folder, text)
    done = rater(
        "run", path, "--size", "test", "--dry-run", "--json", "--mode", "steady", "--window", "60"
    )
    (warning,) = [said for said in json.loads(done.stdout)["warnings"] if "steady" in said]
    assert warning == (
        "steady: p has a set-up for each run: made between runs, inside the window, "
        "which lowers the rate"
    )


CPUS = sorted(os.sched_getaffinity(0))
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
WHO = (
    "rater=$(cut -d' ' -f4 /proc/$PPID/stat); cat /proc/$rater/task/*/status /proc/$PPID/status "
    "/proc/$$/status"
)
BIG = """
[suite]
format = 1
name = "big"
[benchmarks.big]
command = ["true"]
[benchmarks.big.sizes.train]
memory_mb = 900000000
"""


def said_by_copy(field: str) -> list[str]:
    [output] = Path(os.environ["RATER_CACHE"]).rglob("*.stdout")
    lines = output.read_text().splitlines()
    return [line.partition(":")[2].strip() for line in lines if line.startswith(f"{field}:")]


@two_cpus
def test_rater_and_its_launcher_live_on_the_reserved_core_and_the_copy_does_not() -> None:
    words = ("run", "--quiet", "--reserve", "1", "--copies", "1", "--keep", "--", "sh", "-c", WHO)
    subprocess.run([*RATER, *words], check=True)
    pids, masks = said_by_copy("Pid"), said_by_copy("Cpus_allowed_list")
    reserved = query_rows("SELECT value FROM setting WHERE name = 'rater.reserved_cpus'")[0][0]
    [cpu] = query_rows("SELECT cpu FROM copy")[0]
    assert reserved == str(CPUS[0])
    assert masks.count(str(cpu)) == 1 and cpu != CPUS[0]
    others = [mask for mask in masks if mask != str(cpu)]
    assert len(others) == len(pids) - 1 >= 2  # our threads and the launcher
    assert set(others) == {reserved}


@two_cpus
def test_what_was_changed_of_a_layout_is_told_with_the_run() -> None:
    done = rater(
        *("run", "--quiet", "--layout", "cores", "--bind", "package", "--smt", "1"),
        *("--copies", "2", "--keep", "--", "grep", "Cpus_allowed_list", "/proc/self/status"),
    )
    assert done.returncode == 0, done.stderr
    assert "layout cores, bind package, smt 1, memory local" in rater("show", "last").stdout
    request = json.loads(query_rows("SELECT request FROM run")[0][0])
    assert (request["bind"], request["smt"], request["reserve"]) == ("package", 1, None)
    assert rater("rerun", "last", "--quiet").returncode == 0
    assert [layout for (layout,) in query_rows("SELECT layout FROM run")] == [
        "cores, bind package, smt 1"
    ] * 2


def test_too_many_copies_for_a_layout_are_refused_before_anything_begins() -> None:
    done = rater("run", "--layout", f"list:{CPUS[0]}", "--copies", "2", "--no-oversubscribe",
                 "--", "true")  # fmt: skip
    assert done.returncode == 2
    assert "use --copies 1 or leave the option out" in done.stderr
    assert not Path(os.environ["RATER_DB"]).exists()


def test_a_reservation_is_over_when_it_is_left() -> None:
    before = os.sched_getaffinity(0)
    with living_on([CPUS[0]]):
        assert os.sched_getaffinity(0) == {CPUS[0]}
    assert os.sched_getaffinity(0) == before
    with living_on([]):
        assert os.sched_getaffinity(0) == before


# -- preflight -----------------------------------------------------------------------------------


@pytest.fixture
def big(tmp_path: Path) -> str:
    path = tmp_path / "big.toml"
    path.write_text(BIG)
    return str(path)


def test_a_full_lgroup_is_a_warning_that_is_kept_once(big: str) -> None:
    done = rater("run", big, "--copies", "1", "--force")
    assert done.returncode == 0
    assert done.stderr.count("too little memory in node 0") == 1
    notes = [text for (text,) in query_rows("SELECT text FROM note") if "too little memory" in text]
    assert len(notes) == 1


def test_a_strict_preflight_refuses_and_stores_nothing(big: str) -> None:
    done = rater("run", big, "--copies", "1", "--force", "--preflight", "strict")
    assert done.returncode == 2
    assert "too little memory in node 0" in done.stderr
    assert done.stderr.endswith("--preflight strict refuses the run for that\n")
    assert query_rows("SELECT count(*) FROM run") == [(0,)]
    words = ("--force", "--preflight", "strict", "--dry-run", "--json")
    dry = rater("run", big, "--copies", "1", *words)
    assert dry.returncode == 0
    [refusal] = json.loads(dry.stdout)["refused"]
    assert refusal.startswith("--preflight strict: too little memory in node 0")


def test_a_strict_preflight_of_what_states_no_memory_says_that_it_knows_nothing() -> None:
    words = ("--copies", "1", "--preflight", "strict", "--", "true")
    done = rater("run", *words)
    assert done.returncode == 0
    warning = "memory need not stated: memory not checked; `memory_mb` in a benchmark's size"
    assert f"warning: {warning}" in done.stderr
    assert (
        len(query_rows(f"SELECT text FROM note WHERE text LIKE '{warning.replace("'", "''")}%'"))
        == 1
    )
    dry = json.loads(rater("run", "--dry-run", "--json", *words).stdout)
    assert [text for text in dry["warnings"] if text.startswith(warning)]
    assert dry["refused"] == []
    assert warning not in rater("run", "--copies", "1", "--", "true").stderr


def test_without_a_preflight_there_is_no_warning(big: str) -> None:
    done = rater("run", big, "--copies", "1", "--force", "--preflight", "off")
    assert done.returncode == 0
    assert "too little memory" not in done.stderr


# -- what the set-up leaves in the page cache ----------------------------------------------------


def test_the_original_of_an_input_is_dropped_from_the_page_cache_and_the_copy_is_not(
    tmp_path: Path,
) -> None:
    source = tmp_path / "data"
    source.write_bytes(b"x" * (1 << 20))
    if not is_droppable(tmp_path):
        pytest.skip("the file system of temporary files is in memory")
    size = Size(
        name="t",
        commands=(),
        environment=(),
        reference_s=None,
        memory_bytes=None,
        total_memory_bytes=None,
        disk_bytes=0,
        inputs=(InputFile(name="data", path=source, generator=None),),
        expected=(),
    )
    benchmark = Benchmark(
        name="b",
        category=None,
        description="",
        sources=(),
        libraries=(),
        flags={},
        command=("true",),
        sizes={"t": size},
    )
    [made] = ready_inputs(benchmark, size, tmp_path / "cache")
    assert cached_bytes(source) == 0
    assert cached_bytes(made.path) == 1 << 20


def test_inputs_of_a_copy_of_its_own_are_written_from_its_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"x")
    seen: list[set[int]] = []
    make = prepare.make_run_dir

    def watched(*words: Any) -> Any:
        seen.append(os.sched_getaffinity(0))
        return make(*words)

    monkeypatch.setattr(workplace, "make_run_dir", watched)
    placed = [
        Placement(
            copy=copy,
            cpus=(cpu,),
            cpu=cpu,
            core=0,
            llc=None,
            node=0,
            package=0,
            memory_policy=MemoryPolicy.NONE,
            memory_nodes=(),
        )
        for copy, cpu in enumerate(CPUS[:2])
    ]
    found = data.stat()
    for private in (True, False):
        inputs = (
            ReadyInput(
                name="in", path=data, size_bytes=1, mtime_ns=found.st_mtime_ns, private=private
            ),
        )
        program = Program(name="b", argv=("true",), inputs=inputs, expected=(), directory=None)
        folders = RunFolders(tmp_path / f"{private}", "u", {"b": program}, placed, (), keep=False)
        for copy in range(len(placed)):
            folders.spec(copy, 0, Step("b", 1))
    assert seen == [{cpu} for cpu in CPUS[:2]] + [set(CPUS)] * len(placed)
