"""Copies are spawned, their commands and ends are stamped, and limits too small are told before."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import rater as package
from rater.plan.schedule import make_plan
from rater.record.events import WorkloadTime
from rater.run.copies.exit_watcher import CommandReport, CommandReports, ExitWatcher, workload_times
from rater.run.copies.launch import Child, CopySpec
from rater.run.copies.spawn import spawn, spawn_alone
from rater.run.programs.script import (
    REPORT_FD,
    CommandLine,
    argv_of_texts,
    count_reported_commands,
    failed_command,
    to_argv,
)
from tests.support.calls import rater
from tests.support.shells import SHELLS

WRITE = os.O_WRONLY | os.O_CREAT


@pytest.mark.parametrize("start", [spawn, spawn_alone])
def test_arguments_variables_files_group_and_signals_are_as_asked(
    tmp_path: Path, start: Callable[..., int]
) -> None:
    script = (
        'echo "$1" "$A" $(cut -d" " -f5 /proc/$$/stat) $$; grep -E "Sig(Blk|Ign)" /proc/self/status'
    )
    actions = [
        (os.POSIX_SPAWN_OPEN, 1, str(tmp_path / "out"), WRITE, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        pid = start("/bin/sh", ("sh", "-c", script, "sh", "ü 1"), {b"A": b"b=c"}, actions)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    assert os.waitpid(pid, 0)[1] == 0
    words, mask, ignored = (tmp_path / "out").read_text().splitlines()
    assert words == f"ü 1 b=c {pid} {pid}"
    assert int(mask.split()[1], 16) == 0
    assert int(ignored.split()[1], 16) & 1 << (signal.SIGPIPE - 1) == 0


def test_a_session_of_its_own_and_nothing_but_this_holds_the_interpreter() -> None:
    pid = spawn("/bin/sleep", ("sleep", "100"), {}, [], session=True)
    assert os.getsid(pid) == pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    files = Path(package.__file__).parent.rglob("*.py")
    callers = {file.name for file in files if re.search(r"os\.posix_spawnp?\(", file.read_text())}
    assert callers == {"spawn.py"}


def test_a_program_that_is_not_there_is_an_error_as_of_python() -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        spawn("/nowhere", ("nowhere",), {}, [])
    with pytest.raises(FileNotFoundError):
        spawn("/bin/true", ("true",), {}, [(os.POSIX_SPAWN_OPEN, 1, "/nowhere/out", WRITE, 0o644)])
    with pytest.raises(ValueError, match="null byte"):
        spawn("/bin/true", ("true", "a\0b"), {}, [])


def test_other_threads_go_on_while_a_child_has_not_executed_yet(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    actions = [(os.POSIX_SPAWN_OPEN, 1, str(fifo), os.O_WRONLY, 0)]  # until somebody reads
    pids: list[int] = []
    thread = threading.Thread(
        target=lambda: pids.append(spawn("/bin/true", ("true",), {}, actions)), daemon=True
    )
    thread.start()
    deadline_s = time.monotonic() + 20
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    thread.join(deadline_s - time.monotonic())
    os.close(reader)
    assert os.waitpid(pids[0], 0)[1] == 0


def sh(script: str) -> CommandLine:
    return CommandLine(("/bin/sh", "-c", script))


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
    pipe = CommandReports()
    here = Path.cwd()
    os.chdir(folder)
    try:
        pid = os.posix_spawn(
            program,
            [program, *shell[1:], *argv[1:]],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 1, "stdout", os.O_WRONLY | os.O_CREAT, 0o600),
                (os.POSIX_SPAWN_OPEN, 2, "stderr", os.O_WRONLY | os.O_CREAT, 0o600),
                (os.POSIX_SPAWN_DUP2, pipe.write_end, REPORT_FD),
            ],
        )
        _, status = os.waitpid(pid, 0)
        pipe.expect(pid, 9)
        pipe.read(7)
        return os.waitstatus_to_exitcode(status), pipe.take(pid)
    finally:
        os.chdir(here)
        pipe.close()


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
        CommandLine(("x",), None, "o 1", "e", True, True),
        CommandLine(("x",), None, "o2", "e", True, True),
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
        CommandLine(("x",), None, "o"),
        CommandLine(("y",), None, "no/o2"),
        CommandLine(("z",), None, "o3"),
    ]
    argv = argv_of_texts(["true"] * 3, lines, [["o"], ["no/o2"], ["o3"]])
    status, reports = reports_of(shell, argv, tmp_path)
    assert [(it.kind, it.workload) for it in reports] == [("s", 1), ("e", 1), ("e", 2)]
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
    pipe = CommandReports()
    try:
        for pid in (5, 6):
            pipe.expect(pid, 2)
        for piece in (b"5 e 1 0\n5 e", b" 2 3\nnonsense\n5 \xff 1 1\n6 s 1 9\n"):
            os.write(pipe.write_end, piece)
            pipe.read(1)
        assert pipe.take(5) == [("e", 1, 0, 1), ("e", 2, 3, 1)]
        assert pipe.take(5) == []
        assert pipe.take(6) == [("s", 1, 9, 1)]
        pipe.read(2)  # returns at once
    finally:
        pipe.close()


@pytest.mark.parametrize("line", [b"5 e 1 0\n", b"7 e 1 0\n", b"x" * 300, b"\n"])
def test_a_flood_is_noticed_and_neither_kept_nor_followed(line: bytes) -> None:
    pipe = CommandReports()
    try:
        pipe.expect(5, 2)
        os.set_blocking(pipe.write_end, False)
        written = 0
        while written < 4 << 20:
            written += os.write(pipe.write_end, line * (4096 // len(line)))
            if written % (32 << 10) < 4096:
                assert written > 1 << 20 or not pipe.flooded
                pipe.read(1)
        assert pipe.flooded
        assert len(pipe.take(5)) <= 4  # two of each command
        assert pipe.take(7) == []
    finally:
        pipe.close()


def test_times_of_workloads_fill_the_copys_own() -> None:
    lines = [("s", 1, 90, 12), ("e", 1, 0, 40), ("s", 2, 91, 41), ("e", 2, 0, 70)]
    reports = [CommandReport(*line) for line in lines]
    assert workload_times(reports, 3, (10, 100), 0, None) == (
        WorkloadTime(1, 10, 40, 30, 0, None, 90),
        WorkloadTime(2, 40, 70, 30, 0, None, 91),
        WorkloadTime(3, 70, 100, 30, 0, None),
    )
    # The second failed: the third never began. Killed in the first: it ended as the copy did.
    failed = [CommandReport("e", 1, 0, 40), CommandReport("e", 2, 3, 70)]
    assert [it.exit_code for it in workload_times(failed, 3, (10, 100), 3, None)] == [0, 3]
    assert workload_times([], 3, (10, 100), None, 9) == (WorkloadTime(1, 10, 100, 90, None, 9),)
    # A command that fails ends its copy.
    assert [it.elapsed_ns for it in workload_times(failed, 3, (10, 100), 3, None)] == [30, 60]
    # A line that was seen after the copy's end does not lie beyond it.
    late = workload_times([CommandReport("e", 1, 139, 101)], 2, (10, 100), None, 11)
    assert late == (WorkloadTime(1, 10, 100, 90, None, 11),)


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


STEP = make_plan(["a"], 1).phases[0].queues[0].steps[0]

type Copies = list[tuple[subprocess.Popen[bytes], Child]]


@pytest.fixture
def copies() -> Iterator[Copies]:
    """Three processes that wait for the end of their input."""
    made = []
    for copy in range(3):
        process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        spec = CopySpec(("cat",), {}, "/", "/out.")
        pidfd = os.pidfd_open(process.pid)
        made.append((process, Child(copy, 0, STEP, process.pid, pidfd, spec, None)))
    yield made
    for process, child in made:
        with process:
            process.kill()
        os.close(child.pidfd)


def end(process: subprocess.Popen[bytes]) -> int:
    """End a process; return a time at which it has ended, and is not reaped."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    return time.monotonic_ns()


@pytest.mark.parametrize("at_once", [True, False])
def test_all_that_have_ended_are_stamped_before_the_first_is_handled(
    copies: Copies, at_once: bool
) -> None:
    ends = ExitWatcher(commands=False, at_once=at_once)
    for _, child in copies:
        ends.expect(child)
    for process, _ in copies[:2]:
        end(process)
    begin = time.monotonic_ns()
    found = ends.gather()
    next(found)
    handled = time.monotonic_ns()
    assert list(ends.alive.values()) == [copies[2][1]]
    _, stamped = next(found)
    assert begin <= stamped <= handled
    assert list(found) == []
    ends.close()


def test_what_ends_while_another_is_handled_is_stamped_next(copies: Copies) -> None:
    ends = ExitWatcher(commands=False, at_once=True)
    for _, child in copies:
        ends.expect(child)
    end(copies[0][0])
    found = ends.take()
    assert next(found)[0] is copies[0][1]
    ended = end(copies[2][0])
    later, stamped = next(found)
    assert later is copies[2][1]
    assert stamped >= ended
    assert list(found) == []
    assert list(ends.alive.values()) == [copies[1][1]]
    ends.close()


TASKS = """
import os, resource
from rater.run.copies.limits import refuse_small_limits
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
