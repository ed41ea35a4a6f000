"""rater itself stopped or starved: ends that it could not see in time are no facts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from rater.run.copies.exit_watcher import ExitWatcher
from rater.run.copies.launch import Child, CopySpec
from tests.support.calls import RATER, rows
from tests.support.rig import Rig

MS = 1_000_000
NOW_NS = 10**15
WAITS = """
read up rest < /proc/uptime; echo $up >> begun.$RATER_COPY
while [ ! -e end.$RATER_COPY ]; do sleep 0.01; done
read up rest < /proc/uptime; echo $up >> ended.$RATER_COPY
"""


def uptime_s(path: Path) -> float:
    while not path.exists() or not path.read_text().endswith("\n"):
        time.sleep(0.01)
    return float(path.read_text())


def test_an_end_while_rater_was_stopped_has_no_time_and_one_behind_it_has(tmp_path: Path) -> None:
    words = ["run", "--copies", "2", "--", "sh", "-c", WAITS]
    process = subprocess.Popen(
        ["nice", "-n", "5", *RATER, *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    begun, _ = (uptime_s(tmp_path / f"begun.{copy}") for copy in (0, 1))
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    time.sleep(0.3)  # longer than a copy takes from its release to its first line
    (tmp_path / "end.0").touch()
    ended = uptime_s(tmp_path / "ended.0")
    time.sleep(1)
    process.send_signal(signal.SIGCONT)
    while not rows("SELECT 1 FROM copy"):
        time.sleep(0.01)
    (tmp_path / "end.1").touch()
    progress = process.communicate(timeout=20)[1]
    assert progress.endswith("; 1 copy failed, the last: copy 0 of sh: its time is not known\n")
    assert process.returncode == 1
    short, long = rows(
        "SELECT elapsed_ns / 1e9, late_ns / 1e9, status, note FROM copy ORDER BY copy"
    )
    assert (long[1:], short[2]) == ((None, "ok", None), "failed")
    assert short[1] > 1
    took_s = ended - begun
    assert short[0] - short[1] - 0.02 < took_s < short[0] + 0.02  # the truth lies in between
    assert short[3].startswith("rater itself did not run when it ended: that was up to ")
    [*_, (note,)] = rows("SELECT text FROM note WHERE kind = 'note'")
    assert note.startswith("rater itself did not run for")
    assert note.endswith(f"started at nice {min(os.nice(0) + 5, 19)}: others go first")


def test_a_run_during_which_the_machine_was_suspended_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep_ns = iter([5_000 * MS, 5_900 * MS, 5_900 * MS, 17_900 * MS])
    monkeypatch.setattr("rater.run.copies.exit_watcher.asleep_ns", lambda: next(asleep_ns))
    notes = Rig(tmp_path).run({"a": "true", "b": "true"}, copies=1).notes
    assert notes.count("the machine was suspended") == 1
    assert "suspended for 12 s while copies ran: their times are without that" in notes


def ends_of(script: str) -> tuple[ExitWatcher, Child]:
    ends = ExitWatcher(commands=False, at_once=True)
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", script], {}, setpgroup=0)
    spec = CopySpec((), {}, "", "")
    child = Child(0, 0, None, pid, os.pidfd_open(pid), spec, None)  # type: ignore[arg-type]
    ends.expect(child)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return ends, child


def taken(seen_ago_ms: int, started_ago_ms: int) -> int | None:
    """How late a copy is (ms) that was released and last looked for so long ago."""
    ends, child = ends_of("exit 0")
    child.start_ns = NOW_NS - started_ago_ms * MS
    ends._seen_ns = NOW_NS - seen_ago_ms * MS
    [(_, _)] = ends.take()
    os.waitpid(child.pid, 0)
    ends.close()
    return None if child.late_ns is None else child.late_ns // MS


def test_only_what_matters_to_the_time_of_a_copy_makes_it_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rater.run.copies.exit_watcher.time.monotonic_ns", lambda: NOW_NS)
    assert taken(seen_ago_ms=900, started_ago_ms=2000) is None  # a beat, and a busy machine
    assert taken(seen_ago_ms=1300, started_ago_ms=2000) == 1300
    assert taken(seen_ago_ms=1300, started_ago_ms=500) == 500  # no sooner than it began
    assert taken(seen_ago_ms=1300, started_ago_ms=400_000) is None  # a third of a per cent


def test_who_is_not_stopped_marks_nothing(tmp_path: Path) -> None:
    seen = Rig(tmp_path).run({"runs": "sleep 0.5"}, copies=4)
    assert [it.late_ns for it in seen.ended] == [None] * 4
    assert "rater itself" not in seen.notes
