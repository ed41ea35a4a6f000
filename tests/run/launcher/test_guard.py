"""What copies leave behind or lead away is killed or named, by rater and by its launcher."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from rater.record.events import CopyStarted, Event, Noted, PhaseStarted
from rater.record.run import CopyStatus, RunStatus
from rater.run.launcher.copies import Child
from rater.run.launcher.guard import PREPARED, Guard, Leftover, child_pids, guard, limit_mark
from rater.run.launcher.launcher import NAME, Launcher, launcher_program
from rater.run.launcher.table import RECORD, ProcessEntry, Record, RecordKind
from rater.run.supervise.supervisor import Supervisor
from tests.support.calls import RATER
from tests.support.places import CHECKOUT
from tests.support.rig import Rig, wait_for
from tests.support.settings_tree import make_tree, values


def test_a_process_killed_amid_its_exec_is_named_all_the_same() -> None:
    # posix_spawn returns when the child gives up our memory: it has no arguments yet.
    with guard("exec", 1, use_cgroup=False) as keeper:
        for _ in range(40):
            pid = os.posix_spawn("/bin/sleep", ["sleep", "300"], {"RATER_COPY": "7"})
            [left] = keeper.kill_leftovers()
            assert (left.pid, left.command, left.copy) == (pid, "sleep 300", "7")


def test_a_process_without_a_command_line_is_named_by_its_program() -> None:
    with guard("bare", 1, use_cgroup=False) as keeper:
        first = os.posix_spawn("/bin/sleep", [" ", "300"], {}, setsid=True)
        keeper.kill_strays(())
        read_end, write_end = os.pipe()
        second = os.posix_spawn(
            "/bin/cat", [" "], {}, file_actions=[(os.POSIX_SPAWN_DUP2, read_end, 0)], setsid=True
        )
        keeper.kill_strays(())
        assert keeper.kill_leftovers() == [
            Leftover(first, "300", PREPARED),  # no copy: its parent is not the launcher
            Leftover(second, "[cat]", PREPARED),
        ]
        os.close(read_end)
        os.close(write_end)


def test_orphans_are_known_by_their_group_or_by_the_copy_s_number_in_their_environment() -> None:
    with guard("orphans", 2, use_cgroup=False) as keeper:
        first, two = (
            os.posix_spawn("/bin/sleep", ["sleep", "300"], {}, setpgroup=0) for _ in range(2)
        )
        keeper.groups.add(first)
        keeper.groups.add(two)
        grouped = os.posix_spawn("/bin/sleep", ["sleep", "300"], {}, setpgroup=two)
        own = {"RATER_COPY": "0"}
        alone = os.posix_spawn("/bin/sleep", ["sleep", "300"], own, setsid=True)
        os.posix_spawn("/bin/sleep", ["sleep", "300"], {"RATER_COPY": "x"}, setsid=True)
        assert keeper.orphans({first: 0, two: 1}) == {0: [alone], 1: [grouped]}


def test_a_stray_that_takes_long_to_die_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with guard("slow", 1, use_cgroup=False) as keeper, monkeypatch.context() as patch:
        patch.setattr("rater.run.launcher.guard.reap_dead", lambda pids: None)
        patch.setattr(
            "rater.run.launcher.guard.describe_process", lambda pid: Leftover(pid, "big", None)
        )
        pid = os.posix_spawn("/bin/sleep", ["sleep", "300"], {}, setsid=True)
        keeper.kill_strays(())
        keeper.kill_strays(())
        patch.undo()
        assert [leftover.pid for leftover in keeper.kill_leftovers()] == [pid]
        assert keeper.kill_leftovers() == []


MARK = "6f1c8a52-made-for-this-test"
# Whoever started rater, what a set-up left in its group, and a launcher that finds rater dead.
STARTER = """
import os, resource, subprocess
soft, hard = resource.getrlimit(10)
resource.setrlimit(10, ({mark}, hard))
left = subprocess.Popen(["sleep", "100"])
resource.setrlimit(10, (soft, hard))
words = ["{name}", "{fd}", "1", "{mark}", str(soft), ""]
subprocess.Popen(words, executable="{program}", pass_fds=[{fd}])
os.close({fd})
print(flush=True)
print(left.wait(), flush=True)
input()
"""


def test_who_started_a_dead_rater_lives_on_though_what_is_killed_is_in_its_group() -> None:
    ours, theirs = socket.socketpair()
    values = {"mark": limit_mark(MARK), "name": NAME, "program": launcher_program()}
    with subprocess.Popen(
        [sys.executable, "-c", STARTER.format(fd=theirs.fileno(), **values)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        pass_fds=[theirs.fileno()],
        text=True,
    ) as starter:
        theirs.close()
        assert starter.stdout is not None
        starter.stdout.readline()
        ours.close()
        assert starter.communicate("\n", timeout=30)[0] == "-9\n"
        assert starter.returncode == 0


# A rater that carries the mark itself, whose launcher finds that its socket has ended.
MARKED_RATER = """
import resource, subprocess
soft, hard = resource.getrlimit(10)
resource.setrlimit(10, ({mark}, hard))
left = subprocess.Popen(["sleep", "100"])
words = ["{name}", "{fd}", "1", "{mark}", str(soft), ""]
launcher = subprocess.Popen(words, executable="{program}", pass_fds=[{fd}])
import os
os.close({fd})
print(left.wait(), flush=True)
launcher.wait()
"""


def _signalled(number: str, step: int, *words: str) -> list[Any]:
    """How attempts ended that a signal came to as a launcher began, in turn at later lines."""
    module = [sys.executable, "-m", "tests.support.instants", number, str(step)]
    done = subprocess.run(
        [*module, *words], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    ends: list[Any] = json.loads(done.stdout)
    assert ends, "no signal was sent"
    return ends


@pytest.mark.parametrize(("number", "status"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_at_any_line_of_a_begin_ends_rater_by_itself_and_the_launcher_with_it(
    number: str, status: int
) -> None:
    ends = _signalled(number, 1)
    assert len(ends) > 50
    assert [end for end in ends if end["status"] != status or end["left"]] == []


@pytest.mark.parametrize(("number", "status"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_as_the_launchers_of_a_sweep_begin_leaves_all_settings_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str, status: int
) -> None:
    tree = make_tree(tmp_path / "tree")
    before = values(tree)
    monkeypatch.setenv("RATER_SYSROOT", str(tree))
    words = ["sweep", "--axis", "thp=never,always", "--rounds", "1", "--copies", "1"]
    ends = _signalled(number, 97, *words, "--quiet", "--proof", "off", "--", "true")
    assert [end for end in ends if end["status"] != status or end["left"]] == []
    assert values(tree) == before


def test_a_launcher_that_rater_let_go_of_kills_all_but_rater() -> None:
    ours, theirs = socket.socketpair()
    values = {"mark": limit_mark(MARK), "name": NAME, "program": launcher_program()}
    with subprocess.Popen(
        [sys.executable, "-c", MARKED_RATER.format(fd=theirs.fileno(), **values)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[theirs.fileno()],
        text=True,
    ) as rater:
        theirs.close()
        ours.close()
        assert rater.communicate("\n", timeout=30)[0] == "-9\n"
        assert rater.returncode == 0


def test_a_launcher_that_is_stopped_while_it_is_ended_is_let_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launcher = Launcher(1, limit_mark(MARK), -1, None)
    launcher.greet()
    os.kill(launcher.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, launcher.pid, os.WSTOPPED | os.WNOWAIT)
    sent, kill = [], os.kill

    def after_the_first(pid: int, number: int) -> None:  # that one came before the stop
        sent.append((pid, number))
        if len(sent) > 1:
            kill(pid, number)

    monkeypatch.setattr(os, "kill", after_the_first)
    launcher.close(hunt=False)
    assert sent == [(launcher.pid, signal.SIGCONT)] * 2


PYTHON = f"exec {sys.executable} -S -c"
JOINS_US = "import os, signal, time; os.setpgid(0, os.getpgid(os.getppid())); "


@pytest.mark.parametrize(
    ("also", "number", "note"),
    [
        ("", signal.SIGTERM, "ran longer than 0.5 s"),
        (
            "signal.signal(15, signal.SIG_IGN); ",
            signal.SIGKILL,
            "ran longer than 0.5 s; ignored SIGTERM for 0.2 s, killed",
        ),
    ],
    ids=["", "ignoring SIGTERM"],
)
def test_a_copy_in_the_group_of_rater_is_held_to_its_time_limit(
    tmp_path: Path, also: str, number: int, note: str
) -> None:
    ready = tmp_path / "ready"
    rig = Rig(tmp_path, timeout_s=0.5, grace_s=0.2, on_event=wait_for(ready))
    script = f'{PYTHON} \'{JOINS_US}{also}open("{ready}", "w").close(); time.sleep(60)\''
    one = rig.run({"joins": script}, copies=1).by_copy(0)
    assert (one.status, one.signal, one.note) == (CopyStatus.TIMEOUT, number, note)


def test_a_copy_that_stopped_itself_is_held_to_its_time_limit(tmp_path: Path) -> None:
    one = Rig(tmp_path, timeout_s=0.3).run({"stops": "kill -STOP $$"}, copies=1).by_copy(0)
    assert (one.status, one.signal) == (CopyStatus.TIMEOUT, signal.SIGTERM)


def test_a_copy_of_another_user_is_named_and_the_run_ends_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []

    # To be refused for real takes a set-user-ID program that becomes root, run by somebody else.
    def refuse(self: Child, number: int) -> None:
        pids.append(self.pid)
        record = Record(*RECORD.unpack(bytes(RECORD.size)))
        refused.append(record._replace(kind=RecordKind.REFUSED, token=self.token, pid=self.pid))

    refused: list[Record] = []
    take = Launcher.receive_waiting

    def taken(self: Launcher) -> list[Record]:
        records, refused[:] = [*take(self), *refused], []
        return records

    async def receive(self: Launcher) -> list[Record]:
        while not (records := self.receive_waiting()):
            await trio.sleep(0.01)
        return records

    with monkeypatch.context() as patch:
        patch.setattr(Child, "send", refuse)
        patch.setattr(Launcher, "receive_waiting", taken)
        patch.setattr(Launcher, "receive", receive)
        seen = Rig(tmp_path, timeout_s=0.2, grace_s=0.1).run({"sudo": "sleep 60"}, copies=1)
    assert seen.outcome.status is RunStatus.FAILED
    assert f"process {pids[0]} still runs; end it with `sudo kill -9" in str(seen.outcome.reason)


def test_a_copy_that_does_not_die_is_named_with_what_it_does_and_the_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.run.supervise.stopping._DEATH_S", 0.2)
    deaf = Child.send

    def send(self: Child, number: int) -> None:
        if number != signal.SIGKILL:
            deaf(self, number)

    monkeypatch.setattr(Child, "send", send)
    rig = Rig(tmp_path, timeout_s=0.2, grace_s=0.1)
    seen = rig.run({"frozen": "trap '' TERM; sleep 60 & wait; wait"}, copies=1)
    assert seen.outcome.status is RunStatus.FAILED
    assert "copy 0 of frozen does not die of SIGKILL: process" in str(seen.outcome.reason)
    assert "state S" in str(seen.outcome.reason)


TRACES = """
import ctypes, os, sys, time
copy = int(sys.argv[1]) or os.getpid()
if sys.argv[1] != "0" or os.fork() == 0:
    os.setsid()
    if ctypes.CDLL(None).ptrace(0x4206, copy, 0, 0):  # PTRACE_SEIZE
        sys.exit("not permitted")
    open(sys.argv[2], "w").close()
time.sleep(60)
"""


def test_a_copy_that_a_process_of_its_own_traces_ends_with_that_when_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.run.supervise.stopping._DEATH_S", 0.2)
    ready, program = tmp_path / "ready", tmp_path / "traces.py"
    program.write_text(TRACES)
    rig = Rig(tmp_path, timeout_s=0.5, grace_s=0.2, on_event=wait_for(ready))
    seen = rig.run({"traced": f"{PYTHON[:-3]} {program} 0 {ready}"}, copies=1)
    assert seen.by_copy(0).status is CopyStatus.TIMEOUT
    assert "copy 0 of traced left process" in seen.notes
    assert seen.outcome.reason == "1 copy failed"


def test_a_copy_that_ends_by_itself_while_a_process_of_its_own_traces_it_is_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.run.supervise.stopping._CHECK_S", 0.05)
    ready, program = tmp_path / "ready", tmp_path / "traces.py"
    ends = "while not os.path.exists(sys.argv[2]): time.sleep(0.01)\nif os.getpid() != copy: "
    program.write_text(TRACES.replace("time.sleep(60)", f"{ends}time.sleep(60)"))
    seen = Rig(tmp_path).run({"traced": f"{PYTHON[:-3]} {program} 0 {ready}"}, copies=1)
    ended = seen.by_copy(0)
    assert (ended.status, ended.exit_code) == (CopyStatus.FAILED, 0)
    assert "that it had started traced it: when it ended is not known" in str(ended.note)


def test_what_a_copy_had_started_is_killed_once_before_the_copy_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.run.supervise.stopping._DEATH_S", 0.1)
    monkeypatch.setattr("rater.run.supervise.stopping._LAST_DEATH_S", 0.1)
    monkeypatch.setattr(Child, "send", lambda self, number: None)
    freed: list[int] = []

    def always_finds_some(guard: Guard, pid: int, copy: int) -> bool:
        freed.append(copy)
        assert len(freed) == 1, "a copy that forks for ever would never be given up"
        return True

    monkeypatch.setattr(Guard, "kill_orphans", always_finds_some)
    begin_s = time.monotonic()
    seen = Rig(tmp_path, timeout_s=0.1, grace_s=0.1).run({"frozen": "sleep 60"}, copies=1)
    assert freed == [0]
    assert time.monotonic() - begin_s < 30
    assert "copy 0 of frozen does not die of SIGKILL" in str(seen.outcome.reason)


def test_a_dead_copy_that_a_stranger_traces_is_named_with_its_tracer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.run.supervise.stopping._DEATH_S", 3.0)
    ready, tracers = tmp_path / "ready", []

    def trace(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, CopyStarted):
            [copy] = child_pids(supervisor._state.guard.launcher.pid)
            argv = [sys.executable, "-S", "-c", TRACES, str(copy), str(ready)]
            tracers.append(os.posix_spawn(sys.executable, argv, {}))
            wait_for(ready)(event, supervisor)

    rig = Rig(tmp_path, timeout_s=0.2, grace_s=0.2, on_event=trace)
    assert rig.run({"traced": "exec sleep 60"}, copies=1).outcome.reason == (
        f"copy 0 of traced is dead, and process {tracers[0]}, which traces it, does not let go of "
        f"it: end that one (`kill -9 {tracers[0]}`)"
    )


def test_a_second_signal_ends_a_run_whose_copy_does_not_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.run.supervise.stopping._LAST_DEATH_S", 0.2)
    monkeypatch.setattr(Child, "send", lambda self, number: None)

    def twice(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, CopyStarted):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    seen = Rig(tmp_path, grace_s=3600, on_event=twice).run({"frozen": "sleep 60"}, copies=1)
    assert "does not die of SIGKILL" in str(seen.outcome.reason)


def test_a_launcher_that_is_stopped_before_copies_are_at_their_gates_is_let_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Launcher.start

    async def stopped(self: Launcher, entries: Sequence[ProcessEntry]) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        await start(self, entries)

    monkeypatch.setattr(Launcher, "start", stopped)
    seen = Rig(tmp_path).run({"runs": "true"}, copies=2)
    assert seen.outcome.status is RunStatus.COMPLETE
    assert seen.notes.count("it was let go on") == 1


def test_a_launcher_that_is_stopped_is_let_go_on_and_that_is_said(tmp_path: Path) -> None:
    over = tmp_path / "over"

    def strike(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, CopyStarted):
            os.kill(supervisor._state.guard.launcher.pid, signal.SIGSTOP)
        elif isinstance(event, Noted) and "launcher was stopped from outside" in event.text:
            over.touch()

    script = f"while [ ! -e {over} ]; do sleep 0.01; done"
    seen = Rig(tmp_path, on_event=strike).run({"runs": script}, copies=1)
    assert seen.notes.count("it was let go on") == 1


def test_a_rater_that_its_own_copy_stopped_is_let_go_on_and_that_is_said(tmp_path: Path) -> None:
    script = "kill -STOP $(ps -o ppid= -p $PPID) && sleep 0.1"
    seen = Rig(tmp_path).run({"stops": script}, copies=1)
    assert seen.by_copy(0).status is CopyStatus.OK
    assert seen.notes == "rater itself was stopped from outside and let go on"


HOLDS_THE_LAUNCHER = """
import ctypes, os, time
PTRACE_ATTACH = 16
ctypes.CDLL(None).ptrace(PTRACE_ATTACH, os.getppid(), 0, 0)
time.sleep(60)
"""


def test_a_copy_that_traces_the_launcher_is_named_and_killed_and_takes_no_time_along(
    tmp_path: Path,
) -> None:
    (tmp_path / "traces.py").write_text(HOLDS_THE_LAUNCHER)
    script = f'[ "$RATER_COPY" = 1 ] || exec {sys.executable} -S traces.py; sleep 0.05'
    seen = Rig(tmp_path, directory=str(tmp_path)).run({"traces": script}, copies=2)
    assert "traces.py) traced rater's launcher" in seen.notes
    assert "it is of this run, and was killed" in seen.notes
    assert seen.by_copy(0).signal == signal.SIGKILL
    assert seen.outcome.status is RunStatus.FAILED


@pytest.mark.parametrize("when", [PhaseStarted, CopyStarted])
def test_with_a_launcher_that_was_killed_all_copies_end_and_the_run_says_so(
    tmp_path: Path, when: type[Event]
) -> None:
    pids: list[int] = []

    def strike(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, when) and not pids:
            launcher = supervisor._state.guard.launcher.pid
            pids.extend(child_pids(launcher))
            os.kill(launcher, signal.SIGKILL)

    seen = Rig(tmp_path, on_event=strike).run({"runs": "sleep 60", "never": "true"}, copies=3)
    assert len(pids) == 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert seen.outcome.status is RunStatus.FAILED
    assert "rater's launcher (process" in str(seen.outcome.reason)
    assert "was killed by SIGKILL" in str(seen.outcome.reason)
    assert {event.benchmark for event in seen.started} <= {"runs"}


@pytest.mark.parametrize("cgroup", [True, False], ids=["cgroup", "no cgroup"])
def test_an_orphan_with_an_empty_environment_does_not_outlive_kill_9(
    tmp_path: Path, cgroup: bool
) -> None:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import rater.run.launcher.guard as g\ng.Cgroup.make = classmethod(lambda *a, **k: None)\n"
        if not cgroup
        else ""
    )
    script = "setsid env -i sh -c 'echo $$ > pid.new; mv pid.new pid; exec sleep 60' & sleep 60"
    process = subprocess.Popen(
        [*RATER, "run", "--quiet", "--copies", "1", "--", "sh", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(hook)},
    )
    while not (tmp_path / "pid").exists():
        time.sleep(0.01)
    pid = int((tmp_path / "pid").read_text())
    handle = os.pidfd_open(pid)
    process.kill()
    process.wait()

    assert _ends(handle)


def _ends(handle: int) -> bool:

    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(20_000))


def test_marks_are_limits_of_their_own() -> None:
    one, two = limit_mark("a"), limit_mark("b")
    assert one != two
    assert all(1 << 61 <= it < 1 << 62 for it in (one, two))


HOPS = """
import os
os.setsid()
with open("hops", "ab", 0) as hops:
    while True:
        hops.write(b".")
        if os.fork():
            os._exit(0)
"""


def test_what_forks_for_ever_in_a_session_of_its_own_is_ended_without_a_cgroup(
    tmp_path: Path,
) -> None:
    (tmp_path / "hop.py").write_text(HOPS)
    script = f"{sys.executable} -S hop.py & while [ ! -s hops ]; do sleep 0.01; done"
    rig = Rig(tmp_path, use_cgroup=False, directory=str(tmp_path))
    assert rig.run({"hops": script}, copies=1).outcome.status is RunStatus.COMPLETE
    hops = (tmp_path / "hops").stat().st_size
    time.sleep(0.2)  # hundreds of hops
    assert (tmp_path / "hops").stat().st_size == hops
