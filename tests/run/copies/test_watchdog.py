"""What the watchdog kills when a supervisor is dead, and what it leaves."""

import os
import signal
import subprocess
import sys

import pytest

from rater.run.copies import watchdog
from rater.run.copies.spawn import Watchdog, limit_mark

MARK = "6f1c8a52-made-for-this-test"
# Whoever started rater, and a copy that joined its group.
STARTER = """
import resource, subprocess, sys
soft, hard = resource.getrlimit({locks})
resource.setrlimit({locks}, ({mark}, hard))
copy = subprocess.Popen(["sleep", "100"])
resource.setrlimit({locks}, (soft, hard))
print(flush=True)
print(copy.wait(), flush=True)
input()
"""


def test_who_started_a_dead_supervisor_lives_on_though_a_copy_joined_its_group() -> None:
    mark = limit_mark(MARK)
    with subprocess.Popen(
        [sys.executable, "-c", STARTER.format(locks=watchdog.RLIMIT_LOCKS, mark=mark)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as starter:
        assert starter.stdout is not None
        starter.stdout.readline()
        slots = os.memfd_create("slots")
        dead_pipe, held_end = os.pipe()
        os.close(held_end)
        # Of another session, as no child of the supervisor's any more.
        argv = [str(dead_pipe), str(slots), f"RATER_RUN={MARK}", str(mark), str(starter.pid)]
        subprocess.run(
            [sys.executable, "-I", "-S", watchdog.__file__, *argv],
            pass_fds=(dead_pipe, slots),
            start_new_session=True,
            timeout=60,
            check=True,
        )
        os.close(dead_pipe)
        os.close(slots)
        assert starter.communicate("\n", timeout=30)[0] == "-9\n"
        assert starter.returncode == 0


def test_a_watchdog_that_is_stopped_while_it_is_dismissed_is_let_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watchdog(MARK, 1, None)
    os.kill(watch.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, watch.pid, os.WSTOPPED | os.WNOWAIT)
    sent, kill = [], os.kill

    def after_the_first(pid: int, number: int) -> None:  # that one came before the stop
        sent.append((pid, number))
        if len(sent) > 1:
            kill(pid, number)

    monkeypatch.setattr(os, "kill", after_the_first)
    watch.dismiss(hunt=False)
    assert sent == [(watch.pid, signal.SIGCONT)] * 2
