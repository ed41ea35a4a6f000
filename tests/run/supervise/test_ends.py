"""Copies are spawned, their commands and ends are stamped, and limits too small are told before."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rater.record.events import WorkloadTime
from rater.run.programs.script import (
    REPORT_FD,
    CommandLine,
    argv_of_texts,
    count_reported_commands,
    failed_command,
    to_argv,
)
from rater.run.supervise.ends import CommandReport, CommandReports, workload_times
from tests.support.calls import rater
from tests.support.shells import SHELLS


def sh(script: str) -> CommandLine:
    return CommandLine(words=("/bin/sh", "-c", script))


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    return SHELLS[request.param]


def reports_of(
    shell: list[str], argv: tuple[str, ...], folder: Path
) -> tuple[int, list[CommandReport]]:
    """Run a script; return its exit status (negative: the signal) and what it reports."""
    program = shutil.which(shell[0])
    if program is None:
        pytest.skip(f"no {shell[0]} here")
    reports = CommandReports()
    read_end, write_end = os.pipe()
    directory = Path.cwd()
    os.chdir(folder)
    try:
        pid = os.posix_spawn(
            program,
            [program, *shell[1:], *argv[1:]],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 1, "stdout", os.O_WRONLY | os.O_CREAT, 0o600),
                (os.POSIX_SPAWN_OPEN, 2, "stderr", os.O_WRONLY | os.O_CREAT, 0o600),
                (os.POSIX_SPAWN_DUP2, write_end, REPORT_FD),
            ],
        )
        _, status = os.waitpid(pid, 0)
        os.close(write_end)
        reports.expect(pid, 9)
        reports.read(os.read(read_end, 4096), 7)
        return os.waitstatus_to_exitcode(status), reports.take(pid)
    finally:
        os.chdir(directory)
        os.close(read_end)


def test_ends_of_all_commands_but_the_last_are_reported(shell: list[str], tmp_path: Path) -> None:
    argv = to_argv([sh("true"), sh("ls /proc/self/fd"), sh("ls /proc/self/fd")], reports=True)
    status, reports = reports_of(shell, argv, tmp_path)
    assert (status, reports) == (0, [("e", 1, 0, 7), ("e", 2, 0, 7)])
    assert count_reported_commands(argv) == 3
    # No command finds the pipe open.
    assert "9" not in (tmp_path / "stdout").read_text().split()


def test_the_command_that_fails_is_reported_and_no_other_begins(
    shell: list[str], tmp_path: Path
) -> None:
    argv = to_argv([sh("true"), sh("kill -SEGV $$"), sh("true")], reports=True)
    status, reports = reports_of(shell, argv, tmp_path)
    assert status == -signal.SIGSEGV
    assert reports == [("e", 1, 0, 7), ("e", 2, 128 + signal.SIGSEGV, 7)]


def test_texts_report_their_process_too_and_find_nothing_of_it(
    shell: list[str], tmp_path: Path
) -> None:
    lines = [
        CommandLine(
            words=("x",), stdin=None, stdout="o 1", stderr="e", appends=True, closes_stdin=True
        ),
        CommandLine(
            words=("x",), stdin=None, stdout="o2", stderr="e", appends=True, closes_stdin=True
        ),
    ]
    (tmp_path / "e").write_text("old\n")
    (tmp_path / "o2").write_text("old\n")
    texts = ['echo "$$ $# $0"; ls /proc/$$/fd >fds; echo 1 >&2', "exec sh -c 'echo $$; exit 3'"]
    argv = argv_of_texts(texts, lines, [["o 1", "e"], ["o2", "e"]])
    status, reports = reports_of(shell, argv, tmp_path)
    assert status == 3
    pids = [int((tmp_path / name).read_text().split()[0]) for name in ("o 1", "o2")]
    assert reports == [("s", 1, pids[0], 7), ("e", 1, 0, 7), ("s", 2, pids[1], 7)]
    assert (tmp_path / "o 1").read_text() == f"{pids[0]} 0 /bin/sh\n"
    assert {"0", "9"}.isdisjoint((tmp_path / "fds").read_text().split())
    assert (tmp_path / "e").read_text() == "1\n"


def test_a_text_that_is_no_command_fails_as_a_shell_fails_it(
    shell: list[str], tmp_path: Path
) -> None:
    argv = argv_of_texts(["echo 'no end", "true"], [sh("x"), sh("x")], [[], []])
    status, reports = reports_of(shell, argv, tmp_path)
    assert status in (1, 2)
    assert reports[-1] == ("e", 1, status, 7)


def test_an_output_that_can_not_be_opened_fails_its_own_command_and_is_named(
    shell: list[str], tmp_path: Path
) -> None:
    lines = [
        CommandLine(words=("x",), stdin=None, stdout="o"),
        CommandLine(words=("y",), stdin=None, stdout="no/o2"),
        CommandLine(words=("z",), stdin=None, stdout="o3"),
    ]
    argv = argv_of_texts(["true"] * 3, lines, [["o"], ["no/o2"], ["o3"]])
    status, reports = reports_of(shell, argv, tmp_path)
    assert [(report.kind, report.workload) for report in reports] == [("s", 1), ("e", 1), ("e", 2)]
    failed = failed_command(argv, str(tmp_path / "stderr"), status, None)
    assert failed is not None
    assert failed.startswith(f"command 2 of 3 (y >no/o2): exit code {status}: ")
    assert "no/o2" in failed.partition("exit code")[2]


def test_a_script_that_nobody_listens_to_reports_nothing(tmp_path: Path) -> None:
    argv = to_argv([sh("true"), sh("true")])
    assert count_reported_commands(argv) == 0
    assert reports_of(["dash"], argv, tmp_path) == (0, [])
    assert count_reported_commands(to_argv([sh("true")], reports=True)) == 0
    assert count_reported_commands(("/bin/true",)) == 0


def test_lines_that_come_in_pieces_or_are_no_lines_do_no_harm() -> None:
    reports = CommandReports()
    for pid in (5, 6):
        reports.expect(pid, 2)
    for piece in (b"5 e 1 0\n5 e", b" 2 3\nnonsense\n5 \xff 1 1\n6 s 1 9\n"):
        reports.read(piece, 1)
    assert reports.take(5) == [("e", 1, 0, 1), ("e", 2, 3, 1)]
    assert reports.take(5) == []
    assert reports.take(6) == [("s", 1, 9, 1)]


@pytest.mark.parametrize("line", [b"5 e 1 0\n", b"7 e 1 0\n", b"x" * 300, b"\n"])
def test_a_flood_is_noticed_and_neither_kept_nor_followed(line: bytes) -> None:
    reports = CommandReports()
    reports.expect(5, 2)
    read = 0
    while read < 4 << 20:
        block = line * (4096 // len(line))
        read += len(block)
        reports.read(block, 1)
        assert read > 1 << 20 or not reports.flooded
    assert reports.flooded
    assert len(reports.take(5)) <= 4  # two of each command
    assert reports.take(7) == []


def test_times_of_workloads_fill_the_copys_own() -> None:
    lines = [("s", 1, 90, 12), ("e", 1, 0, 40), ("s", 2, 91, 41), ("e", 2, 0, 70)]
    reports = [CommandReport(*line) for line in lines]
    assert workload_times(reports, 3, (10, 100), 0, None) == (
        WorkloadTime(
            workload=1, start_ns=10, finish_ns=40, elapsed_ns=30, exit_code=0, signal=None, pid=90
        ),
        WorkloadTime(
            workload=2, start_ns=40, finish_ns=70, elapsed_ns=30, exit_code=0, signal=None, pid=91
        ),
        WorkloadTime(
            workload=3, start_ns=70, finish_ns=100, elapsed_ns=30, exit_code=0, signal=None
        ),
    )
    # The second failed: the third never began. Killed in the first: it ended as the copy did.
    failed = [CommandReport("e", 1, 0, 40), CommandReport("e", 2, 3, 70)]
    assert [time.exit_code for time in workload_times(failed, 3, (10, 100), 3, None)] == [0, 3]
    assert workload_times([], 3, (10, 100), None, 9) == (
        WorkloadTime(
            workload=1, start_ns=10, finish_ns=100, elapsed_ns=90, exit_code=None, signal=9
        ),
    )
    # A command that fails ends its copy.
    assert [time.elapsed_ns for time in workload_times(failed, 3, (10, 100), 3, None)] == [30, 60]
    # A line that was seen after the copy's end does not lie beyond it.
    late = workload_times([CommandReport("e", 1, 139, 101)], 2, (10, 100), None, 11)
    assert late == (
        WorkloadTime(
            workload=1, start_ns=10, finish_ns=100, elapsed_ns=90, exit_code=None, signal=11
        ),
    )


SUITE = """
[suite]
format = 1
[benchmarks.two]
command = ["true"]
[benchmarks.two.sizes.train]
commands = [
  { command = ["sh", "-c", "echo a"] },
  { command = ["sh", "-c", "echo b; exit $RATER_COPY"], stdout = "b" },
]
[benchmarks.one]
command = ["true"]
sizes.train = {}
"""


def test_a_run_whose_copy_floods_that_pipe_is_stopped_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "flood.py").write_text(
        "import os\n"
        "folder = f'/proc/{os.getppid()}/fd/'\n"
        "pipes = [it for it in os.listdir(folder) if 'pipe:' in os.readlink(folder + it)]\n"
        "with open(folder + pipes[0], 'wb') as told:\n"
        "    while True: told.write(b'5 s 1 1\\n' * 500)\n"
    )
    file = tmp_path / "s.toml"
    file.write_text(SUITE.replace("echo a", f"exec {sys.executable} {tmp_path}/flood.py"))
    done = rater("run", file, "--copies", "2", "--quiet")
    assert done.returncode == 1
    assert "floods the pipe by which scripts report" in done.stderr + done.stdout


def test_benchmarks_of_suites_have_workload_times_where_they_run_several_commands(
    tmp_path: Path,
) -> None:
    file = tmp_path / "s.toml"
    file.write_text(SUITE)
    done = rater("run", file, "--copies", "2", "--quiet")
    assert done.returncode == 1, done.stderr
    with closing(sqlite3.connect(os.environ["RATER_DB"])) as db:
        assert db.execute(
            "SELECT copy.benchmark, copy.copy, workload, workload.exit_code, workload.pid "
            "FROM workload JOIN copy USING (run_id, phase, copy, step)"
        ).fetchall() == [
            ("two", 0, 1, 0, None),
            ("two", 0, 2, 0, None),
            ("two", 1, 1, 0, None),
            ("two", 1, 2, 1, None),
        ]


TASKS = """
import os, resource
from rater.run.launcher.limits import refuse_small_limits
resource.setrlimit(resource.RLIMIT_NPROC, (4, 4))
os.setuid(54321)
refuse_small_limits()
"""


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [
        ("NOFILE", 12, "12 files may be open (`ulimit -n`), rater itself needs 32"),
        ("NOFILE", 64, "2 copies need "),
        ("AS", 60_000 << 10, "no 128 MB of memory are to be had (`ulimit -v`, `ulimit -d`)"),
        ("FSIZE", 65536, "a file may have 65536 bytes (`ulimit -f`), the database needs 16 MB"),
        ("FSIZE", 0, None),  # its words are a file too
    ],
)
def test_a_run_under_too_small_a_limit_is_refused_with_nothing_stored(
    tmp_path: Path, database: Path, limit: str, value: int, said: str | None
) -> None:
    number = getattr(resource, f"RLIMIT_{limit}")
    errors = tmp_path / "errors"
    with errors.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", "rater", "run", "--copies", "2", "--", "true"],
            stderr=file,
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(number, (value, value)),
            check=False,
        )
    assert done.returncode == 2, errors.read_text()
    if said is not None:
        assert f"rater: limits are too small: {said}" in errors.read_text()
    assert not database.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user can be tried by root only")
def test_another_user_who_may_have_no_more_processes_is_told_how_many_there_are() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TASKS], capture_output=True, text=True, check=False
    )
    assert (
        "limits are too small: this user may have 4 processes and threads (`ulimit -u`) and has "
        "1; 7 more are needed" in done.stderr
    )
