"""What copies, signals and a starved rater can do to a supervisor, with real processes."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from rater.plan.options import Cadence
from rater.plan.schedule import Order, Step, make_plan
from rater.record.events import (
    CopyEnded,
    CopyStarted,
    Event,
    PhaseEnded,
    PhaseStarted,
    PhaseTorn,
    Resting,
)
from rater.record.run import CopyStatus, Placement, RunStatus, Validity
from rater.run.host.idle import IdleWatch
from rater.run.host.inherited import pipes_are_ignored
from rater.run.launcher.copies import Child, CopySpec
from rater.run.launcher.guard import child_pids
from rater.run.launcher.launcher import NAME
from rater.run.launcher.start_errors import (
    cannot_execute,
    cannot_fork,
    find_process_lack,
    start_error,
)
from rater.run.launcher.table import RECORD, Record, RecordKind, StartStep
from rater.run.supervise import phase
from rater.run.supervise.ends import lateness_ns
from rater.run.supervise.supervisor import Supervisor
from rater.text.secrets import command_text
from tests.support.calls import RATER, query_rows
from tests.support.processes import state_of
from tests.support.rig import Rig, Seen, wait_for


def alive(pid: int) -> bool:
    return state_of(pid) not in (None, "Z")


def output(folder: Path, script: str, copy: int = 0, **options: Any) -> str:
    """What a copy of a script prints, of two."""
    rig = Rig(folder, keep=True, **options)
    rig.run({"say": script}, copies=2)
    return (rig.work / f"say.i1.c{copy:04}" / "stdout").read_text()


def after_copy_0(*signals: int) -> Callable[[Event, Supervisor], None]:
    """Send us signals when copy 0 has ended."""

    def send(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, CopyEnded) and event.copy == 0:
            for number in signals:
                os.kill(os.getpid(), number)

    return send


def test_copies_that_end_well_begin_at_one_instant_the_origin_and_make_a_complete_run(
    tmp_path: Path,
) -> None:
    seen = Rig(tmp_path).run({"quick": "exit 0"}, copies=4)
    assert seen.outcome.status is RunStatus.COMPLETE
    assert sorted((event.copy, event.status) for event in seen.ended) == [
        (number, CopyStatus.OK) for number in range(4)
    ]
    assert [event.start_ns for event in seen.started] == [0, 0, 0, 0]
    bracket = seen.brackets[0]
    assert bracket.start_ns == 0
    assert bracket.finish_ns == max(event.finish_ns for event in seen.ended)
    assert bracket.first_finish_ns == min(event.finish_ns for event in seen.ended)


def at_gates(supervisor: Supervisor) -> list[int]:
    """Processes that are forks of the launcher."""
    every = child_pids(supervisor._state.guard.launcher.pid)
    return [it for it in every if NAME in Path(f"/proc/{it}/cmdline").read_text()]


class TaskNames(trio.abc.Instrument):
    """The tasks that were started, by the names of their functions."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.names.append(task.name.rpartition(".")[2])


def test_a_phase_of_a_short_copy_starts_one_task_and_a_longer_one_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tasks_after_the_first_phase(folder: Path, first_s: float) -> list[str]:
        monkeypatch.setattr(phase, "FIRST_S", first_s)
        tasks = TaskNames()

        def listen(event: Event, _: Supervisor) -> None:
            if isinstance(event, PhaseEnded) and event.iteration == 1:
                trio.lowlevel.add_instrument(tasks)

        rig = Rig(folder, proof=Cadence(), on_event=listen)
        folder.mkdir()
        plan = make_plan(["p"], 1, iterations=4)
        assert len(rig.run({"p": "sleep .05"}, 1, plan).ended) == 4
        return sorted(tasks.names)

    assert tasks_after_the_first_phase(tmp_path / "short", 60.0) == ["_take_records"] * 3
    watched = tasks_after_the_first_phase(tmp_path / "long", 0.0)
    assert watched.count("watch_disk") == watched.count("free_traced") == 3
    assert watched.count("watch") == 6  # counters and other processes
    assert watched.count("run") == 3  # the observer


def test_every_copy_exists_and_waits_before_time_starts(tmp_path: Path) -> None:
    waiting: list[list[int]] = []

    def gather(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, PhaseStarted):
            waiting.append(at_gates(supervisor))

    Rig(tmp_path, on_event=gather).run({"quick": "exit 0"}, copies=5)
    assert len(waiting[0]) == 5


@pytest.mark.parametrize(
    ("end", "code", "number"), [("exit 3", 3, None), ("kill -SEGV $$", None, signal.SIGSEGV)]
)
def test_a_copy_that_fails_is_recorded_and_the_others_times_stand(
    tmp_path: Path, end: str, code: int | None, number: int | None
) -> None:
    seen = Rig(tmp_path).run({"mixed": f'test "$RATER_COPY" != 1 || {end}'}, copies=3)
    assert (seen.outcome.status, seen.outcome.reason) == (RunStatus.FAILED, "1 copy failed")
    one = seen.by_copy(1)
    assert (one.status, one.exit_code, one.signal) == (CopyStatus.FAILED, code, number)
    assert seen.by_copy(0).status is seen.by_copy(2).status is CopyStatus.OK
    assert seen.brackets[0].complete


def test_of_a_failed_copy_no_empty_output_is_kept(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.run({"mixed": 'test "$RATER_COPY" = 1 || echo why >&2; exit 3'}, copies=2)
    kept = [str(path.relative_to(rig.work)) for path in rig.work.rglob("*") if path.is_file()]
    assert kept == ["mixed.i1.c0000/stderr"]


def test_a_wrong_answer_is_a_failed_copy_and_its_files_are_kept(tmp_path: Path) -> None:
    rig = Rig(tmp_path, expected="42\n")
    seen = rig.run({"answer": "echo $((42 + RATER_COPY))"}, copies=2)
    assert {event.copy: event.validity for event in seen.checked} == {
        0: Validity.VALID,
        1: Validity.INVALID,
    }
    assert seen.outcome.status is RunStatus.FAILED
    assert [path.name for path in sorted(rig.work.iterdir())] == ["answer.i1.c0001"]
    assert (rig.work / "answer.i1.c0001" / "stdout").read_text() == "43\n"


def test_keep_keeps_the_run_directories_of_good_copies(tmp_path: Path) -> None:
    assert output(tmp_path, "echo out; echo err >&2") == "out\n"
    assert (tmp_path / "work" / "say.i1.c0000" / "stderr").read_text() == "err\n"


def test_each_copy_knows_who_and_where_it_is(tmp_path: Path) -> None:
    script = (
        'echo "$RATER_COPY|$RATER_CPUS|$RATER_NODE|$RATER_ITERATION|$RATER_RUN_DIR|$PWD|$EXTRA"'
    )
    run_dir = tmp_path / "work" / "say.i1.c0001"
    printed = output(tmp_path, script, 1, environment=[("EXTRA", "a b")])
    assert printed == f"1|||1|{run_dir}|{run_dir}|a b\n"


def test_standard_input_is_empty(tmp_path: Path) -> None:
    seen = Rig(tmp_path).run({"read": "read line && exit 9; exit 0"}, copies=1)
    assert seen.by_copy(0).exit_code == 0


def test_no_descriptor_of_the_gate_is_left_open_in_a_copy(tmp_path: Path) -> None:
    listed = output(tmp_path, "exec ls /proc/self/fd").split()
    # Whoever runs the tests may have left descriptors open for all programs alike.
    without = subprocess.run(
        ["ls", "/proc/self/fd"], close_fds=False, stdin=0, capture_output=True, check=True
    )
    assert listed == without.stdout.decode().split()


def test_a_copy_ignores_no_signal_that_python_alone_ignores(tmp_path: Path) -> None:
    ignored = int(output(tmp_path, "grep SigIgn /proc/self/status").split()[1], 16)
    assert ignored & 1 << (signal.SIGXFSZ - 1) == 0
    assert bool(ignored & 1 << (signal.SIGPIPE - 1)) == pipes_are_ignored()


def test_a_copy_has_ordinary_priority_though_the_supervisor_may_not(tmp_path: Path) -> None:
    fields = output(tmp_path, "exec cat /proc/self/stat").rpartition(")")[2].split()
    # Fields 19, 40 and 41 of /proc/PID/stat: nice, real-time priority, policy.
    assert (fields[16], fields[37], fields[38]) == (str(os.nice(0)), "0", "0")


def test_a_copy_that_runs_too_long_is_stopped_and_the_others_stand(tmp_path: Path) -> None:
    rig = Rig(tmp_path, timeout_s=0.8)
    seen = rig.run({"hang": 'test "$RATER_COPY" = 0 || exec sleep 60'}, copies=2)
    assert seen.by_copy(0).status is CopyStatus.OK
    late = seen.by_copy(1)
    assert (late.status, late.signal) == (CopyStatus.TIMEOUT, signal.SIGTERM)
    assert late.note == "ran longer than 0.8 s"
    assert 0.3e9 <= late.elapsed_ns < 5e9


def test_a_copy_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    deaf = tmp_path / "deaf"
    rig = Rig(tmp_path, timeout_s=0.2, grace_s=0.2, on_event=wait_for(deaf))
    script = f"trap '' TERM; touch {deaf}; sleep 60 & wait; sleep 60"
    seen = rig.run({"stubborn": script}, copies=1)
    one = seen.by_copy(0)
    assert (one.status, one.signal) == (CopyStatus.TIMEOUT, signal.SIGKILL)
    assert one.note is not None
    assert "ignored SIGTERM for 0.2 s" in one.note


def test_what_a_copy_leaves_in_its_group_dies_with_it(tmp_path: Path) -> None:
    seen = Rig(tmp_path).run({"fork": "sleep 300 & echo $! > $RATER_RUN_DIR/../child"}, copies=1)
    assert not alive(int((tmp_path / "work" / "child").read_text()))
    assert seen.by_copy(0).status is CopyStatus.OK
    assert "left processes behind" in (seen.by_copy(0).note or "")


@pytest.mark.parametrize("use_cgroup", [True, False])
def test_a_daemon_in_a_session_of_its_own_dies_before_the_next_phase(
    tmp_path: Path, use_cgroup: bool
) -> None:
    script = (
        "setsid sh -c 'echo $$ > ../child; exec sleep 300' & while [ ! -s ../child ]; do :; done"
    )
    seen = Rig(tmp_path, use_cgroup=use_cgroup).run({"daemon": script}, copies=1)
    assert not alive(int((tmp_path / "work" / "child").read_text()))
    assert "copy 0 of daemon left process" in seen.notes


def test_a_copy_that_prints_too_much_is_stopped(tmp_path: Path) -> None:
    rig = Rig(tmp_path, output_limit_bytes=20_000_000)
    seen = rig.run({"loud": 'test "$RATER_COPY" = 0 || exec yes'}, copies=2)
    loud = seen.by_copy(1)
    assert loud.status is CopyStatus.FAILED
    assert "of output, more than the limit of 20 MB" in (loud.note or "")
    assert (rig.work / "loud.i1.c0001" / "stdout").stat().st_size < 400_000_000
    assert seen.by_copy(0).status is CopyStatus.OK


def test_staggered_copies_start_one_after_the_other(tmp_path: Path) -> None:
    plan = make_plan(["quick"], 4, mode="staggered", stagger_ms=30)
    seen = Rig(tmp_path).run({"quick": "exit 0"}, copies=4, plan=plan)
    starts = [event.start_ns for event in sorted(seen.started, key=lambda e: e.copy)]
    assert starts[0] == 0
    assert starts == sorted(starts)
    assert all(
        event.start_ns >= event.planned_start_ns for event in seen.started if event.planned_start_ns
    )
    planned = [event.planned_start_ns for event in sorted(seen.ended, key=lambda e: e.copy)]
    offsets = [p - planned[0] for p in planned if p is not None and planned[0] is not None]
    assert offsets == [0, 30_000_000, 60_000_000, 90_000_000]
    assert seen.brackets[0].last_start_ns == starts[3]


def test_rotated_copies_go_through_the_ring_without_a_barrier(tmp_path: Path) -> None:
    plan = make_plan(["a", "b", "c"], 2, mode="rotated", order=Order.ROTATED, iterations=2)
    # Copy 1 does not end its first step before copy 0 has done all of its own.
    does = f"echo >> {tmp_path}/done"
    waits = f"while [ $(wc -l < {tmp_path}/done) -lt 6 ]; do sleep 0.01; done"
    script = f'if [ "$RATER_COPY" = 0 ]; then {does}; else touch {tmp_path}/done; {waits}; fi'
    seen = Rig(tmp_path).run(dict.fromkeys("abc", script), copies=2, plan=plan)
    ran = {
        copy: [
            event.benchmark
            for event in sorted(seen.ended, key=lambda e: e.step)
            if event.copy == copy
        ]
        for copy in (0, 1)
    }
    assert ran == {0: list("abcabc"), 1: list("bcabca")}
    assert len(seen.brackets) == 1
    assert seen.brackets[0].benchmark is None


def test_a_failed_step_of_a_queue_does_not_end_the_queue(tmp_path: Path) -> None:
    plan = make_plan(["a", "b"], 1, mode="rotated", order=Order.ROTATED)
    seen = Rig(tmp_path).run({"a": "exit 1", "b": "exit 0"}, copies=1, plan=plan)
    assert [event.status for event in seen.ended] == [CopyStatus.FAILED, CopyStatus.OK]


def test_cpu_time_is_the_copys_own(tmp_path: Path) -> None:
    burn = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done"
    seen = Rig(tmp_path).run({"burn": burn, "idle": "exec sleep 0.2"}, copies=1)
    burned, idle = (copy.user_ns + copy.system_ns - copy.gate_cpu_ns for copy in seen.ended)
    assert burned > 20e6
    assert all(0 < copy.gate_cpu_ns < 20e6 for copy in seen.ended)
    # On a virtual CPU whose host is busy each of them is charged with several times its own.
    assert idle < burned / 3


def test_peak_memory_is_the_copys_own_and_none_of_rater(tmp_path: Path) -> None:
    wanted = 24 << 20  # less than rater has itself
    assert wanted < resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    # No zeros: of pages that hold nothing else a kernel may think better, and they are gone.
    script = f"exec {sys.executable} -S -c \"b'1' * {wanted}\""
    seen = Rig(tmp_path).run({"big": script, "small": "exit 0"}, copies=1)
    big, small = seen.ended
    assert big.max_rss_bytes is not None
    assert wanted <= big.max_rss_bytes < wanted + (20 << 20)
    assert small.max_rss_bytes is None or small.max_rss_bytes < 8 << 20


def test_conclude_runs_after_each_phase_once_its_copies_have_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    rig = Rig(tmp_path, prepare=f"echo before >> {log}", conclude=f"echo after >> {log}")
    rig.run({"a": f"echo a >> {log}", "b": f"echo b >> {log}"}, copies=1)
    assert log.read_text().split() == ["before", "a", "after", "before", "b", "after"]


def test_the_prepare_command_runs_before_each_phase(tmp_path: Path) -> None:
    rig = Rig(tmp_path, prepare=f"echo ready >> {tmp_path}/log")
    rig.run({"a": f"echo a >> {tmp_path}/log", "b": f"echo b >> {tmp_path}/log"}, copies=1)
    assert (tmp_path / "log").read_text().split() == ["ready", "a", "ready", "b"]


def test_what_the_prepare_command_started_is_not_told_as_left_by_a_copy(tmp_path: Path) -> None:
    later = "sh -c 'sleep 0.1; setsid sleep 63 &' &"  # begun while copies run
    rig = Rig(tmp_path, prepare=f"setsid sleep 60 & sleep 61 & env -i setsid sleep 62 & {later}")
    notes = rig.run({"a": "sleep 0.4"}, copies=1).notes
    assert notes.count("--prepare left process") == 4
    assert "copy" not in notes


def test_a_prepare_command_that_fails_fails_the_run_before_the_phase(tmp_path: Path) -> None:
    seen = Rig(tmp_path, prepare="exit 4").run({"a": "exit 0"}, copies=1)
    assert seen.outcome.status is RunStatus.FAILED
    assert "ended with status 4" in (seen.outcome.reason or "")
    assert seen.ended == []


def test_messages_about_commands_have_no_secrets(tmp_path: Path) -> None:
    seen = Rig(tmp_path, prepare="false --token=hunter2").run({"a": "exit 0"}, copies=1)
    argv = ("./a", "--password", "hunter2")
    said = (
        seen.outcome.reason or "",
        cannot_execute(errno.ENOENT, argv),
        str(cannot_fork("copy 0", errno.EAGAIN, argv)),
        command_text(argv),
    )
    assert [("hunter2" in it, "[redacted]" in it) for it in said] == [(False, True)] * 4


def test_a_signal_stops_the_copies_and_keeps_what_finished(tmp_path: Path) -> None:
    rig = Rig(tmp_path, on_event=after_copy_0(signal.SIGINT))
    seen = rig.run({"half": 'test "$RATER_COPY" = 0 || exec sleep 60', "never": "exit 0"}, copies=2)
    assert (seen.outcome.status, seen.outcome.signal) == (RunStatus.INTERRUPTED, signal.SIGINT)
    assert seen.by_copy(0).status is CopyStatus.OK
    assert seen.by_copy(1).status is CopyStatus.INTERRUPTED
    assert not seen.brackets[0].complete
    assert {event.benchmark for event in seen.ended} == {"half"}


def test_a_second_signal_kills_at_once(tmp_path: Path) -> None:
    begin = time.monotonic()
    script = (
        "case $RATER_COPY in 0) while [ ! -e ../deaf ]; do :; done;; "
        "*) trap '' TERM; touch ../deaf; sleep 60 & wait; sleep 60;; esac"
    )
    rig = Rig(tmp_path, on_event=after_copy_0(signal.SIGTERM, signal.SIGINT), grace_s=30)
    seen = rig.run({"stubborn": script}, copies=2)
    assert time.monotonic() - begin < 10
    assert seen.by_copy(1).signal == signal.SIGKILL


def test_copies_still_at_the_gate_never_start_after_a_signal(tmp_path: Path) -> None:
    plan = make_plan(["touch"], 3, mode="staggered", stagger_ms=60_000)
    rig = Rig(tmp_path, on_event=after_copy_0(signal.SIGHUP))
    seen = rig.run({"touch": f"touch {tmp_path}/ran.$RATER_COPY"}, copies=3, plan=plan)
    assert [path.name for path in tmp_path.glob("ran.*")] == ["ran.0"]
    assert [event.copy for event in seen.ended] == [0]
    assert seen.outcome.signal == signal.SIGHUP


def test_many_copies_take_few_open_files_and_have_the_limit_that_rater_was_given(
    tmp_path: Path,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (96, hard))
    try:
        plan = make_plan(["limit"], 64, mode="staggered", stagger_ms=1, iterations=2)
        rig = Rig(tmp_path, keep=True)
        seen = rig.run({"limit": "ulimit -Sn; sleep 0.3"}, copies=64, plan=plan)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 96
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert seen.outcome.status is RunStatus.COMPLETE
    assert (rig.work / "limit.i1.c0063" / "stdout").read_text() == "96\n"
    assert (rig.work / "limit.i2.c0063" / "stdout").read_text() == "96\n"


# -- between phases -------------------------------------------------------------------------------


def test_a_cooldown_lies_between_phases_and_not_before_the_first(tmp_path: Path) -> None:
    seen = Rig(tmp_path, cooldown_s=0.2).run({"a": "true", "b": "true"}, 1)
    first, second = seen.brackets
    assert first.start_ns == 0
    assert second.start_ns - first.finish_ns >= 200_000_000
    assert [event.text for event in seen.events_of(Resting)] == ["cooling down for 0.2 s"]


def test_a_stop_ends_a_cooldown_at_once(tmp_path: Path) -> None:
    def stop(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, Resting):
            supervisor.stop(signal.SIGINT, None)

    seen = Rig(tmp_path, cooldown_s=3600, on_event=stop).run({"a": "true", "b": "true"}, 1)
    assert seen.outcome.status is RunStatus.INTERRUPTED
    assert [bracket.benchmark for bracket in seen.brackets] == ["a"]


def test_a_machine_that_does_not_come_to_rest_is_waited_for_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.run.host.idle._BASELINE_S", 0.1)
    monkeypatch.setattr("rater.run.host.idle._POLL_S", 0.05)
    # Each copy warms the machine up by 20 degrees, which never go away.
    degrees = iter(range(40, 4000, 20))
    watch = IdleWatch({0}, max_s=0.1, temperatures=lambda: {"cpu": float(next(degrees))})
    seen = Rig(tmp_path, until_idle=watch).run({"a": "true", "b": "true"}, 1)
    assert seen.outcome.status is RunStatus.COMPLETE
    assert "--until-idle" in seen.notes
    assert "cpu" in seen.notes


MS = 1_000_000
WAITS = """
read up rest < /proc/uptime; echo $up >> begun.$RATER_COPY
while [ ! -e end.$RATER_COPY ]; do sleep 0.01; done
read up rest < /proc/uptime; echo $up >> ended.$RATER_COPY
"""


def uptime_s(path: Path) -> float:
    while not path.exists() or not path.read_text().endswith("\n"):
        time.sleep(0.01)
    return float(path.read_text())


def run_of_two(folder: Path) -> subprocess.Popen[str]:
    words = ["run", "--copies", "2", "--", "sh", "-c", WAITS]
    process = subprocess.Popen(
        ["nice", "-n", "5", *RATER, *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    for copy in (0, 1):
        uptime_s(folder / f"begun.{copy}")
    return process


def stop(*pids: int) -> None:
    """Stop processes; rater and launcher let each other go on, until both stand."""
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(0.005)
        if all(state_of(pid) == "T" for pid in pids):
            return
    raise AssertionError("they do not stand")


TIMES = "SELECT elapsed_ns / 1e9, late_ns / 1e9, status, note FROM copy ORDER BY copy"


def test_an_end_while_rater_was_stopped_has_its_time(tmp_path: Path) -> None:
    process = run_of_two(tmp_path)
    stop(process.pid)  # its launcher lets it go on within a second
    (tmp_path / "end.0").touch()
    took_s = uptime_s(tmp_path / "ended.0") - uptime_s(tmp_path / "begun.0")
    time.sleep(1.2)
    process.send_signal(signal.SIGCONT)
    (tmp_path / "end.1").touch()
    process.communicate(timeout=20)
    assert process.returncode == 0
    short, long = query_rows(TIMES)
    assert (short[1:], long[1:]) == ((None, "ok", None), (None, "ok", None))
    assert took_s - 0.02 < short[0] < took_s + 0.3


def test_an_end_while_the_launcher_was_stopped_has_no_time_and_one_behind_it_has(
    tmp_path: Path,
) -> None:
    process = run_of_two(tmp_path)
    [launcher] = [
        child
        for child in child_pids(process.pid)
        if NAME in Path(f"/proc/{child}/cmdline").read_text()
    ]
    begun = uptime_s(tmp_path / "begun.0")
    stop(process.pid, launcher)
    time.sleep(0.3)  # longer than a copy takes from its release to its first line
    (tmp_path / "end.0").touch()
    ended = uptime_s(tmp_path / "ended.0")
    time.sleep(1.2)
    process.send_signal(signal.SIGCONT)
    while not query_rows("SELECT 1 FROM copy"):
        time.sleep(0.01)
    (tmp_path / "end.1").touch()
    progress = process.communicate(timeout=20)[1]
    assert progress.endswith("; 1 copy failed, the last: copy 0 of sh: its time is not known\n")
    assert process.returncode == 1
    short, long = query_rows(TIMES)
    assert (long[1:], short[2]) == ((None, "ok", None), "failed")
    assert short[1] > 1
    took_s = ended - begun
    assert short[0] - short[1] - 0.02 < took_s < short[0] + 0.02  # the truth lies in between
    assert short[3].startswith("rater's launcher did not run when it ended: that was up to ")
    notes = [text for (text,) in query_rows("SELECT text FROM note WHERE kind = 'note'")]
    assert "rater's launcher was stopped from outside; it was let go on" in notes
    assert notes[-1].startswith("rater's launcher did not run for")
    assert notes[-1].endswith(f"started at nice {min(os.nice(0) + 5, 19)}: others go first")


def test_a_run_during_which_the_machine_was_suspended_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep_ns = iter([5_000 * MS, 5_900 * MS, 5_900 * MS, 17_900 * MS])
    monkeypatch.setattr("rater.run.supervise.records.suspended_ns", lambda: next(asleep_ns))
    notes = Rig(tmp_path).run({"a": "true", "b": "true"}, copies=1).notes
    assert notes.count("the machine was suspended") == 1
    assert "suspended for 12 s while copies ran: their times are without that" in notes


ENDED = Record(*RECORD.unpack(bytes(RECORD.size)))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (StartStep.GROUP, "a process group .* [(]Operation not permitted[)]: a filter of system"),
        (StartStep.PRIORITY, "the priority .* [(]Operation not permitted[)]: start rater without"),
        (StartStep.PAGES, "transparent huge pages .* not permitted[)]: leave out --hugepages"),
        (StartStep.LIMITS, "the limits .* not permitted[)]: see `ulimit -Hn`"),
        (StartStep.OUTPUT, "output out/stdout: Operation not permitted; make room on its disk"),
        (StartStep.ERROR, "error out/stderr: Operation not permitted; make room on its disk"),
        (StartStep.DIRECTORY, "directory /work: Operation not permitted; make room on its disk"),
    ],
)
def test_only_what_a_start_did_with_files_is_a_matter_of_the_disk(
    step: StartStep, said: str
) -> None:
    spec = CopySpec(argv=("./a",), shared_variables={}, directory="/work", output="out/")
    launcher: Any = None
    child = Child(launcher=launcher, copy=3, position=0, step=Step("gups", 1), spec=spec)
    record = ENDED._replace(kind=RecordKind.BROKEN, status=step, error=errno.EPERM)
    error = str(start_error(child, Placement.unbound(3), record))
    assert re.search(said, error)
    assert ("disk" in error) == (step in (StartStep.OUTPUT, StartStep.ERROR, StartStep.DIRECTORY))


def late_ms(seen_ago_ms: int, started_ago_ms: int, stalled_ms: int) -> int | None:
    """How late a copy is that the launcher says it had not looked for so long."""
    at_ns = 10**15
    times = (at_ns - started_ago_ms * MS, at_ns - seen_ago_ms * MS, stalled_ms * MS)
    start_ns, seen_ns, stalled_ns = times
    found = lateness_ns(
        ENDED._replace(at_ns=at_ns, start_ns=start_ns, seen_ns=seen_ns, stalled_ns=stalled_ns)
    )
    return None if found is None else found // MS


def test_only_what_matters_to_the_time_of_a_copy_makes_it_late() -> None:
    assert late_ms(seen_ago_ms=1300, started_ago_ms=2000, stalled_ms=1050) == 1300
    assert late_ms(seen_ago_ms=500, started_ago_ms=500, stalled_ms=1050) == 500
    assert late_ms(1300, started_ago_ms=400_000, stalled_ms=1050) is None  # a third of a per cent
    # Its CPU time says that it ended 12 ms before its stamp at most.
    assert late_ms(seen_ago_ms=12, started_ago_ms=2000, stalled_ms=1050) is None
    assert late_ms(seen_ago_ms=30, started_ago_ms=2000, stalled_ms=1050) == 30


def test_who_is_not_stopped_marks_nothing(tmp_path: Path) -> None:
    seen = Rig(tmp_path).run({"runs": "sleep 0.5"}, copies=4)
    assert [event.late_ns for event in seen.ended] == [None] * 4
    assert "rater's launcher" not in seen.notes


type OnEvent = Callable[[Event, Supervisor], None]


def told_when(kind: type[Event], phase: int = 0) -> OnEvent:
    """Stop rater, as who ends a job does, at the first event of this kind."""

    def send(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, kind) and getattr(event, "phase", None) == phase:
            os.kill(os.getpid(), signal.SIGTERM)

    return send


def torn(seen: Seen) -> list[int]:
    return [event.phase for event in seen.events_of(PhaseTorn)]


@pytest.mark.parametrize("death", ["kill -TERM $$", "kill -KILL $$", "exit 143"])
@pytest.mark.parametrize("iterations", [1, 2], ids=["last-phase", "one-follows"])
def test_a_phase_whose_copies_all_died_before_rater_heard_of_it_is_torn(
    tmp_path: Path, death: str, iterations: int
) -> None:
    plan = make_plan(["job"], 2, iterations=iterations)
    seen = Rig(tmp_path, on_event=told_when(PhaseEnded)).run({"job": death}, 2, plan)
    assert seen.brackets[0].complete
    assert torn(seen) == [0]
    assert seen.outcome.status is RunStatus.INTERRUPTED
    assert "phase 0 had died of a signal from outside" in seen.notes


def test_the_phase_before_the_one_that_runs_is_torn_too(tmp_path: Path) -> None:
    plan = make_plan(["job"], 1, iterations=2)
    script = 'case "$RATER_RUN_DIR" in *i1*) kill -TERM $$;; esac; exec sleep 10'
    seen = Rig(tmp_path, on_event=told_when(CopyStarted, 1)).run({"job": script}, 1, plan)
    assert 0 in torn(seen)
    assert [bracket.complete for bracket in seen.brackets] == [True, False]


@pytest.mark.parametrize("death", ["kill -SEGV $$", "exit 3", "kill -ABRT $$"])
def test_copies_that_crashed_were_measured(tmp_path: Path, death: str) -> None:
    seen = Rig(tmp_path, on_event=told_when(PhaseEnded)).run({"job": death}, 2)
    assert torn(seen) == []


def test_copies_that_somebody_killed_are_failed_ones_where_rater_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.run.supervise.job._WAIT_NS", 50_000_000)
    seen = Rig(tmp_path).run({"job": "kill -TERM $$"}, 2)
    assert (seen.outcome.status, seen.outcome.reason) == (RunStatus.FAILED, "2 copies failed")
    assert torn(seen) == []


def test_copies_that_died_long_before_rater_was_stopped_are_failed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.run.supervise.job._BELONGS_NS", -1)
    seen = Rig(tmp_path, on_event=told_when(PhaseEnded)).run({"job": "kill -TERM $$"}, 2)
    assert torn(seen) == []


def test_copies_that_died_at_their_gates_with_rater_make_an_interrupted_run(
    tmp_path: Path,
) -> None:
    def all_of_the_job(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, PhaseStarted):
            for pid in at_gates(supervisor):
                os.kill(pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGTERM)

    seen = Rig(tmp_path, on_event=all_of_the_job).run({"job": "exit 0"}, 2)
    assert (seen.outcome.status, seen.outcome.reason) == (
        RunStatus.INTERRUPTED,
        "stopped by SIGTERM",
    )


KILLS_WHO_FOLLOWS = """
while [ ! -e killed ]; do
    for one in $(cat /proc/$PPID/task/$PPID/children); do
        [ $one = $$ ] || { kill -9 $one; touch killed; }
    done
done
sleep 0.2
"""


def test_a_next_run_that_is_killed_at_its_gate_is_made_once_more(tmp_path: Path) -> None:
    plan = make_plan(["a", "b"], 1, mode="rotated", order=Order.ROTATED)
    seen = Rig(tmp_path).run({"a": KILLS_WHO_FOLLOWS, "b": "exit 0"}, 1, plan)
    assert [(event.benchmark, event.status) for event in seen.ended] == [
        ("a", CopyStatus.OK),
        ("b", CopyStatus.OK),
    ]
    assert seen.outcome.status is RunStatus.COMPLETE


def test_a_lack_of_threads_or_processes_is_told_from_every_other_error() -> None:
    thread, process = RuntimeError("can't start new thread"), BlockingIOError(errno.EAGAIN, "full")
    other = RuntimeError("another one")
    assert "could not start a thread of its own" in str(find_process_lack(thread))
    assert "could not start a process of its own" in str(find_process_lack(process))
    nested = ExceptionGroup("of a nursery", [ExceptionGroup("of another", [thread])])
    assert "a thread of its own" in str(find_process_lack(nested))
    assert find_process_lack(other) is None
    assert find_process_lack(ExceptionGroup("both", [thread, other])) is None
