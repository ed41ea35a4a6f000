"""Ends of copies: stamped as they come, handled one by one."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from rater.plan.schedule import make_plan
from rater.run.copies.exit_watcher import ExitWatcher
from rater.run.copies.launch import Child, CopySpec

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
