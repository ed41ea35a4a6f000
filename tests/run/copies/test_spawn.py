"""Spawning a process while other threads go on."""

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rater
from rater.run.copies.spawn import spawn, spawn_alone

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
    files = Path(rater.__file__).parent.rglob("*.py")
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
