"""Everything a suite file may promise, done by `rater run`: real processes, real database."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.calls import rater, rows


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


def suite(here: Path, text: str, head: str = "") -> str:
    path = here / "own.toml"
    path.write_text(f'[suite]\nformat = 1\nname = "own"\n{head}\n{text}')
    return str(path)


def script(here: Path, name: str, text: str) -> None:
    path = here / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


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


def test_a_whole_suite_is_set_up_run_judged_and_stored(here: Path) -> None:
    script(here, "prepare.sh", 'echo "$RATER_COPIES $1 $A" >> log; seq 3 > made; pwd > where')
    script(here, "fresh.sh", 'echo "$RATER_COPY $RATER_COPIES $RATER_THREADS" > fresh; cat fresh')
    (here / "conf.ini").write_text("speed = 1\n")
    path = suite(
        here,
        ALL.replace("SHA", hashlib.sha256(b"1\n2\n3\n").hexdigest()),
        'setup = ["./prepare.sh", "arg"]\nenvironment = { A = "suite", B = "suite", C = "suite" }',
    )
    words = ("run", path, "--size", "test", "--copies", "2", "--keep", "--env", "D=user")
    done = rater(*words)
    assert done.returncode == 0, done.stderr
    assert rows("SELECT copy, status, validity FROM copy ORDER BY copy") == [
        (0, "ok", "valid"),
        (1, "ok", "valid"),
    ]
    assert rows("SELECT name, unit, better, combine FROM metric ORDER BY position") == [
        ("speed", "GB/s", "higher", "sum"),
        ("time", "", None, "mean"),
    ]
    assert rows("SELECT name, value FROM copy_metric ORDER BY name") == [
        ("speed", 4.0),
        ("speed", 4.0),
        ("time", 2.0),
        ("time", 2.0),
    ]
    run_dirs = [Path(found) for (found,) in rows("SELECT run_dir FROM copy ORDER BY copy")]
    for copy, run_dir in enumerate(run_dirs):
        said = f"suite benchmark size user\n{here}\n{copy} 2 1\n"
        assert (run_dir / "stdout").read_text() == said
        assert not (run_dir / "setup.out").exists()
        assert (run_dir / "sub/conf.ini").read_text() == "speed = 1\nspeed = 8\n"
    ((folder,),) = [list((Path(os.environ["RATER_CACHE"]) / "setup").iterdir())]
    assert (folder / "where").read_text() == f"{folder}\n"
    assert (run_dirs[0] / "made.txt").samefile(run_dirs[1] / "made.txt")
    assert not (run_dirs[0] / "made.txt").samefile(folder / "made")
    ((command, inputs),) = rows("SELECT command, inputs_sha256 FROM benchmark")
    assert command.endswith("-u <made.txt >out/copied && " + command.split(" && ", 1)[1])
    assert command.count(" && ") == 2
    # The set-up runs once a run, in the same folder; what it makes is hashed every time.
    script(here, "prepare.sh", 'echo "$RATER_COPIES $1 $A" >> log; seq 4 > made')
    done = rater(*words)
    assert done.returncode == 1
    assert (folder / "log").read_text() == "2 arg suite\n" * 2
    ((detail,),) = rows("SELECT DISTINCT validity_detail FROM copy WHERE run_id = 2")
    assert detail == "out/copied line 4: got 4, expected the end of the file"
    assert rows("SELECT inputs_sha256 FROM benchmark WHERE run_id = 2") != [(inputs,)]


def test_a_failing_command_is_named_and_the_copy_ends_as_it_did(here: Path) -> None:
    path = suite(
        here,
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
    found = rows("SELECT benchmark, copy, exit_code, signal, note FROM copy ORDER BY 1, 2")
    crash = "command 1 of 2 (/usr/bin/sh -c 'kill -SEGV $$'): signal 11"
    shell = rows("SELECT command FROM benchmark WHERE name = 'crash'")[0][0].split(" ")[0]
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


def test_a_missing_or_wrong_metric_is_a_wrong_output(here: Path) -> None:
    path = suite(
        here,
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
    assert rows("SELECT status, validity_detail FROM copy ORDER BY benchmark") == [
        ("wrong-output", "metric speed: stdout has 'inf' there, expected a finite number"),
        ("wrong-output", "metric speed: no line of stdout matches speed (\\d+)"),
    ]


def test_a_failing_set_up_of_the_suite_is_told_with_its_last_lines(here: Path) -> None:
    script(here, "prepare.sh", "seq 100; echo no disk >&2; exit 3")
    path = suite(
        here, '[benchmarks.p]\ncommand = ["true"]\nsizes.test = {}\n', 'setup = ["./prepare.sh"]'
    )
    done = rater("run", path, "--size", "test")
    assert done.returncode == 2
    said = done.stderr.splitlines()
    assert said[0].endswith(f"set-up of suite own ended with status 3: {here}/prepare.sh")
    assert said[-2] == "no disk"
    assert said[-1].startswith("(it ran in ")
    assert len(said) == 22
    assert rows("SELECT count(*) FROM run") == [(0,)]


def test_a_failing_set_up_of_a_copy_fails_the_run_and_keeps_what_it_said(here: Path) -> None:
    script(here, "fresh.sh", "echo copy $RATER_COPY; test $RATER_COPY = 0 || exit 4")
    path = suite(
        here,
        '[benchmarks.p]\ncommand = ["true"]\nsetup = ["./fresh.sh"]\nsizes.test = {}\n',
    )
    done = rater("run", path, "--size", "test", "--copies", "2")
    assert done.returncode == 1
    assert f"set-up of copy 1 of p ended with status 4: {here}/fresh.sh\ncopy 1\n" in done.stderr
    (work,) = (Path(os.environ["RATER_CACHE"]) / "work").iterdir()
    assert [path.name for path in work.rglob("*")] == ["p.i1.c0001", "setup.out"]
    assert rows("SELECT count(*) FROM copy") == [(0,)]


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


def test_what_is_missing_or_does_not_fit_is_left_out_with_the_reason(here: Path) -> None:
    path = suite(here, LEAVING, 'leave_out = ["missing", "unfit"]')
    done = rater("run", path, "--size", "test", "--copies", "2")
    assert done.returncode == 0, done.stderr
    assert rows("SELECT name FROM benchmark ORDER BY position") == [("here",), ("replaced",)]
    notes = [text for (text,) in rows("SELECT text FROM note")]
    missing = "left out: gone: 'no-such-program' is not in PATH; install it, or give its path"
    assert missing in notes
    large = next(text for text in notes if "large" in text)
    assert large.startswith("left out: large: 1000000.0 GB needed, ")
    assert f"warning: {missing}" in done.stderr
    dry = json.loads(rater("run", "--dry-run", "--json", path, "--size", "test").stdout)
    assert missing in dry["warnings"]
    assert dry["benchmarks"] == ["here", "replaced"]


def test_what_is_named_by_the_user_is_not_left_out_for_a_missing_program(here: Path) -> None:
    path = suite(here, LEAVING, 'leave_out = ["missing", "unfit"]')
    done = rater("run", f"{path}/gone,here", "--size", "test")
    assert done.returncode == 2
    assert "benchmark gone: 'no-such-program' is not in PATH" in done.stderr
    done = rater("run", f"{path}/large", "--size", "test")
    assert done.returncode == 2
    assert "nothing is left to run\nleft out: large: 1000000.0 GB needed" in done.stderr
    strict = suite(here, LEAVING)
    done = rater("run", strict, "--size", "test")
    assert done.returncode == 2
    assert "left out" not in done.stderr


def test_a_plain_command_knows_how_many_copies_run() -> None:
    done = rater("run", "--copies", "2", "--keep", "--run-dirs", "--", "env")
    assert done.returncode == 0
    for (run_dir,) in rows("SELECT run_dir FROM copy"):
        lines = (Path(run_dir) / "stdout").read_text().splitlines()
        assert {"RATER_COPIES=2", "RATER_THREADS=1"} <= set(lines)
        assert not any(line.startswith("RATER_SUITE_DIR") for line in lines)


def test_copies_of_several_threads_get_as_many_neighbours(here: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one CPU only")
    path = suite(
        here,
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
    assert rows("SELECT copies FROM run") == [(len(cpus) // 2,)]
    assert rows("SELECT threads FROM benchmark ORDER BY position") == [(2,), (1,)]
    ((run_dir,),) = rows("SELECT run_dir FROM copy WHERE copy = 0 AND benchmark = 'two'")
    assert (Path(run_dir) / "stdout").read_text().startswith("2 ")
    assert "benchmarks have 1 to 2 threads a copy: every copy gets 2 CPUs" in done.stderr


def test_a_trial_does_what_a_run_does_and_shows_the_metrics(here: Path) -> None:
    script(here, "prepare.sh", "seq 3 > made")
    script(here, "fresh.sh", 'echo "$RATER_COPY $RATER_COPIES $RATER_THREADS" > fresh; cat fresh')
    (here / "conf.ini").write_text("speed = 1\n")
    sha256 = hashlib.sha256(b"1\n2\n3\n").hexdigest()
    head = 'setup = ["./prepare.sh"]\nenvironment = { A = "suite" }'
    path = suite(here, ALL.replace("SHA", sha256).replace(" user", ""), head)
    done = rater("suites", "check", path, "--run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "note: speed: 4 GB/s\n" in done.stdout
    assert "note: time: 2\n" in done.stdout
    script(here, "prepare.sh", "echo broken; exit 9")
    done = rater("suites", "check", path, "--run")
    assert done.returncode == 1
    assert "set-up of suite own ended with status 9" in done.stdout


def test_a_check_leaves_no_process_of_its_set_up(here: Path) -> None:
    script(here, "prepare.sh", f"setsid sleep 60 & echo $! > {here}/pid")
    head = 'setup = ["./prepare.sh"]'
    path = suite(here, '[benchmarks.p]\ncommand = ["true"]\nsizes.test = {}\n', head)
    done = rater("suites", "check", path, "--run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not Path("/proc", (here / "pid").read_text().strip()).exists()


def test_what_the_cache_can_not_take_is_refused_before_it_is_copied(here: Path) -> None:
    with (here / "big").open("wb") as big:
        big.truncate(shutil.disk_usage(here).free * 2 // 3)  # a hole, no room is taken
    listed = '{ name = "big", path = "big", copy = true }'
    text = f'[benchmarks.p]\ncommand = ["true"]\nsizes.test = {{ inputs = [{listed}] }}\n'
    done = rater("run", suite(here, text), "--size", "test", "--copies", "1")
    assert done.returncode == 2
    assert "MB by inputs in the cache" in done.stderr
    assert not (Path(os.environ["RATER_CACHE"]) / "inputs").exists()


def test_set_ups_inside_a_window_are_a_warning_of_the_run(here: Path) -> None:
    script(here, "fresh.sh", "true")
    text = '[benchmarks.p]\ncommand = ["true"]\nsetup = ["./fresh.sh"]\nsizes.test = {}\n'
    path = suite(here, text)
    done = rater(
        "run", path, "--size", "test", "--dry-run", "--json", "--mode", "steady", "--window", "60"
    )
    (warning,) = [said for said in json.loads(done.stdout)["warnings"] if "steady" in said]
    assert warning == (
        "steady: p has a set-up for each run: made between runs, inside the window, "
        "which lowers the rate"
    )
