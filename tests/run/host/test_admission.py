"""One run at a time, other processes at its start, and the wait for an idle machine."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from rater.run.host import foreign_load
from rater.run.host.admission import default_lock_path, lost_lock_warning, machine_lock
from rater.run.host.foreign_load import (
    BusyProcess,
    ForeignLoad,
    ForeignLoadSampler,
    foreign_load_warning,
    process_stats,
)
from rater.run.host.idle import IdleWatch, cool_down
from rater.system.errors import InputError, RunError


def test_the_second_run_is_refused_and_told_who_is_first(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        machine_lock(path, "run 7 of anna"),
        pytest.raises(InputError, match=r"run 7 of anna.*--share"),
        machine_lock(path, "run 8"),
    ):
        pass


def test_the_lock_is_free_again_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with machine_lock(path, "first"):
        pass
    with machine_lock(path, "second"):
        assert path.read_text() == "second\n"


def test_share_goes_on_beside_another_run(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with machine_lock(path, "first"), machine_lock(path, "second", share=True):
        assert path.read_text() == "first\n"


@pytest.mark.parametrize("put_there", [None, "another"])
def test_a_lock_file_that_is_removed_or_replaced_lets_no_second_run_begin_and_is_noticed(
    tmp_path: Path, put_there: str | None
) -> None:
    path = tmp_path / "lock"
    with (
        pytest.raises(RunError, match="was removed or replaced during the run"),
        machine_lock(path, "first"),
    ):
        assert lost_lock_warning() is None
        path.unlink()
        if put_there is not None:
            path.write_text(put_there)
        refused = rf"process {os.getpid()} of user .*, whose lock file was removed .*--share"
        with pytest.raises(InputError, match=refused), machine_lock(path, "second"):
            pass
        assert f"{path} was removed or replaced" in (lost_lock_warning() or "")
        with machine_lock(path, "beside", share=True):
            pass
    assert lost_lock_warning() is None
    with machine_lock(path, "third"):
        assert path.read_text() == "third\n"


def test_who_shares_the_machine_loses_nothing_with_the_lock_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with machine_lock(path, "first", share=True):
        path.unlink()
        assert lost_lock_warning() is None


def test_the_kernel_frees_the_lock_of_a_killed_rater(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import os, sys, subprocess\n"
        "from pathlib import Path\n"
        "from rater.run.host.admission import machine_lock\n"
        "with machine_lock(Path(sys.argv[1]), 'doomed'):\n"
        # A child that lives on must not hold the lock.
        "    child = subprocess.Popen(['sleep', '60'], close_fds=False)\n"
        "    print(child.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, path], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    child = int(process.stdout.readline())
    try:
        with pytest.raises(InputError, match="doomed"), machine_lock(path, "second"):
            pass
        process.kill()
        process.wait()
        with machine_lock(path, "third"):
            assert path.read_text() == "third\n"
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()
        process.stdin.close()


def test_a_lock_that_can_not_be_opened_says_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match=r"RATER_LOCK.*--share"),
        machine_lock(tmp_path / "file" / "lock", "first"),
    ):
        pass


def test_rater_lock_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATER_LOCK", "/somewhere/else")
    assert default_lock_path() == Path("/somewhere/else")


def test_who_waits_is_told_for_whom_once_and_goes_on_when_the_first_ends(tmp_path: Path) -> None:
    path, first, messages = tmp_path / "lock", ExitStack(), list[str]()
    first.enter_context(machine_lock(path, "rater run 1"))

    def end_the_first(text: str) -> None:
        messages.append(text)
        first.close()

    with machine_lock(path, "rater run 2", wait_s=60.0, report=end_the_first):
        assert path.read_text() == "rater run 2\n"
    assert messages == ["waiting up to 60 s for rater run 1"]


def test_who_waited_long_enough_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        machine_lock(path, "rater run 1"),
        pytest.raises(InputError, match="--wait waits for it"),
        machine_lock(path, "rater run 2", wait_s=0.01),
    ):
        pass


TICKS_PER_S = os.sysconf("SC_CLK_TCK")
KERNEL_THREAD = 0x00200000
OURS = 100


@dataclass
class Machine:
    """A /proc and /sys that change when somebody sleeps."""

    root: Path
    cpus: int = 2
    now_s: float = 1000.0
    busy_s: float = 0.0
    idle_s: float = 0.0
    steal_s: float = 0.0
    own_s: float = 0.0
    busy_cpus: float = 0.0  # kept busy while time passes
    celsius: dict[str, float] = field(default_factory=dict)
    khz: dict[int, int] = field(default_factory=dict)  # of a CPU that is given work
    slept: list[float] = field(default_factory=list)
    awake: list[int] = field(default_factory=list)
    cooling: float = 0.0  # degrees a second
    # pid: (parent, name, flags, user+system s, children's s, started)
    processes: dict[int, tuple[int, str, int, float, float, int]] = field(default_factory=dict)
    working: Mapping[int, float] = field(default_factory=dict)  # CPUs by pid

    @property
    def proc(self) -> Path:
        return self.root / "proc"

    @property
    def sys(self) -> Path:
        return self.root / "sys"

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds
        self.busy_s += seconds * self.busy_cpus
        self.idle_s += seconds * (self.cpus - self.busy_cpus)
        self.celsius = {name: c - seconds * self.cooling for name, c in self.celsius.items()}
        for pid, share in self.working.items():
            parent, name, flags, own_s, children_s, started = self.processes[pid]
            own_s += share * seconds
            self.processes[pid] = (parent, name, flags, own_s, children_s, started)
        self.write()

    async def trio_sleep(self, seconds: float) -> None:
        self.sleep(seconds)
        await trio.lowlevel.checkpoint()

    def write(self) -> None:
        self.proc.mkdir(parents=True, exist_ok=True)
        busy, idle, steal = (
            round(s * TICKS_PER_S) for s in (self.busy_s, self.idle_s, self.steal_s)
        )
        lines = [f"cpu  {busy} 0 0 {idle} 0 0 0 {steal} 0 0"]
        lines += [f"cpu{cpu} 0 0 0 0 0 0 0 0 0 0" for cpu in range(self.cpus)]
        (self.proc / "stat").write_text(
            "\n".join([*lines, "intr 5 1 2", "ctxt 7", "btime 1700000000"])
        )
        for pid, (parent, name, flags, own_s, children_s, started) in self.processes.items():
            folder = self.proc / str(pid)
            folder.mkdir(exist_ok=True)
            own, children = round(own_s * TICKS_PER_S), round(children_s * TICKS_PER_S)
            (folder / "stat").write_text(
                f"{pid} ({name}) R {parent} 1 1 0 -1 {flags} 1 2 3 4 {own} 0 {children} 0 "
                f"20 0 1 0 {started} 99 9{' 0' * 28}\n"
            )
            if not flags:
                (folder / "status").write_text(f"Name:\t{name}\nUid:\t0\t0\t0\t0\n")
            if not (folder / "cmdline").exists():
                (folder / "cmdline").touch()

    def give_frequencies(self, packages: Mapping[int, int]) -> None:
        """Tell of each CPU which package it is in; an idle one runs at 800 MHz."""
        for cpu, package in packages.items():
            folder = self.sys / f"devices/system/cpu/cpu{cpu}"
            (folder / "topology").mkdir(parents=True)
            (folder / "cpufreq").mkdir()
            (folder / "topology/physical_package_id").write_text(f"{package}\n")
            (folder / "cpufreq/scaling_cur_freq").write_text("800000\n")

    def keep_awake(self, cpu: int) -> None:
        self.awake.append(cpu)
        path = self.sys / f"devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"
        path.write_text(f"{self.khz[cpu]}\n")

    def busy_watch(self) -> ForeignLoadSampler:
        self.write()
        return ForeignLoadSampler(pid=OURS, clock=self.clock, sleep=self.sleep)

    def idle_watch(self, cpus: tuple[int, ...] = (0, 1), max_s: float = 300.0) -> IdleWatch:
        self.write()
        return IdleWatch(
            cpus,
            max_s=max_s,
            sys=self.sys,
            temperatures=lambda: dict(self.celsius),
            own_cpu_s=lambda: self.own_s,
            keep_awake=self.keep_awake,
            clock=self.clock,
            sleep=self.trio_sleep,
        )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(foreign_load, "PROC", tmp_path / "proc")
    return Machine(tmp_path)


# -- busy at the start --------------------------------------------------------------------------


def test_who_worked_is_named_and_who_rested_is_not(machine: Machine) -> None:
    machine.processes = {
        1: (0, "init", 0, 50.0, 900.0, 1),
        4711: (1, "chromium", 0, 10.0, 0.0, 500),
        55: (2, "kswapd0", KERNEL_THREAD, 0.0, 0.0, 3),
        60: (1, "slow", 0, 0.0, 0.0, 600),
    }
    machine.working = {4711: 0.8, 55: 1.6, 60: 0.08}
    watch = machine.busy_watch()
    machine.sleep(1.0)
    found = watch.busy()
    assert found.processes == (
        BusyProcess(55, "kswapd0", 1.6, None),
        BusyProcess(4711, "chromium", 0.8, "root"),
    )
    assert foreign_load_warning(found) == (
        "busy before the start: kernel thread kswapd0 (pid 55, 1.6 CPUs) and chromium (pid 4711, "
        "user root, 80 % of a CPU); this load shares the machine with the copies"
    )


def test_a_quiet_machine_gives_no_warning(machine: Machine) -> None:
    machine.processes = {1: (0, "init", 0, 50.0, 0.0, 1)}
    found = machine.busy_watch().busy()
    assert found.quiet
    assert foreign_load_warning(found) is None


def test_what_rater_and_its_children_do_is_not_held_against_others(machine: Machine) -> None:
    machine.processes = {
        OURS: (1, "rater", 0, 5.0, 0.0, 700),
        101: (OURS, "watchdog", 0, 0.0, 0.0, 701),
        102: (101, "cc1", 0, 0.0, 0.0, 702),
    }
    machine.working = {OURS: 0.5, 102: 1.0}
    machine.busy_cpus = 1.5
    watch = machine.busy_watch()
    machine.sleep(1.0)
    assert watch.busy().quiet


def test_children_that_rater_has_waited_for_are_its_own_work_too(machine: Machine) -> None:
    machine.processes = {OURS: (1, "rater", 0, 5.0, 0.0, 700)}
    watch = machine.busy_watch()
    machine.busy_cpus = 2.0
    machine.processes = {OURS: (1, "rater", 0, 5.0, 2.0, 700)}
    machine.sleep(1.0)
    assert watch.busy().unseen == 0


def test_work_of_processes_that_nobody_saw_is_told_as_a_sum(machine: Machine) -> None:
    machine.busy_cpus = 1.7
    watch = machine.busy_watch()
    machine.sleep(2.0)
    found = watch.busy()
    assert found.processes == ()
    assert found.unseen == pytest.approx(1.7)
    assert foreign_load_warning(found) == (
        "busy before the start: small, short-lived or hidden processes (1.7 CPUs together); "
        "this load shares the machine with the copies"
    )


def test_time_stolen_by_the_hypervisor_is_named_above_one_per_cent(machine: Machine) -> None:
    watch = machine.busy_watch()
    machine.steal_s += 0.12
    machine.idle_s -= 0.12
    machine.sleep(0.5)
    found = watch.busy()
    assert found.stolen == pytest.approx(0.12)
    assert foreign_load_warning(found) == (
        "busy before the start: the hypervisor gives 12 % of this machine's CPU time to others "
        "(steal)"
    )
    watch = machine.busy_watch()
    machine.steal_s += 0.01
    machine.sleep(1.0)
    assert watch.busy().stolen == 0


def test_a_pid_used_again_is_another_process(machine: Machine) -> None:
    machine.processes = {7: (1, "old", 0, 1000.0, 0.0, 10)}
    watch = machine.busy_watch()
    machine.processes = {7: (1, "new", 0, 0.5, 0.0, 2000)}
    machine.sleep(1.0)
    assert watch.busy().processes == (BusyProcess(7, "new", 0.5, "root"),)


def test_only_the_rest_of_the_quarter_second_is_waited_for(machine: Machine) -> None:
    watch = machine.busy_watch()
    machine.now_s += 0.2
    watch.busy()
    assert machine.slept == [pytest.approx(0.05)]
    machine.slept.clear()
    watch.busy()
    assert machine.slept == []


def test_a_first_look_from_before_a_long_build_is_taken_again(machine: Machine) -> None:
    machine.processes = {7: (1, "early", 0, 0.0, 0.0, 10)}
    machine.working = {7: 1.0}
    watch = machine.busy_watch()
    machine.sleep(30.0)
    machine.working = {}
    assert watch.busy().quiet
    assert machine.slept == [30.0, 0.25]


def test_many_of_one_name_are_told_together_and_the_rest_is_counted() -> None:
    same = [BusyProcess(pid, "stress", 1.0, "anna") for pid in range(10, 18)]
    others = [BusyProcess(pid, f"p{pid}", 0.2, "root") for pid in range(20, 27)]
    assert foreign_load_warning(ForeignLoad((*same, *others), 0.0, 0.0)) == (
        "busy before the start: stress (8 processes, user anna, 8.0 CPUs), "
        "p20 (pid 20, user root, 20 % of a CPU), p21 (pid 21, user root, 20 % of a CPU), "
        "p22 (pid 22, user root, 20 % of a CPU), p23 (pid 23, user root, 20 % of a CPU) and "
        "3 more processes; this load shares the machine with the copies"
    )


@pytest.mark.parametrize(
    ("name", "arguments", "shown"),
    [
        (
            "python3",
            ["/usr/bin/python3", "-u", "/home/a/train.py", "--key=secret"],
            "python3 train.py",
        ),
        ("python3.12", ["python3.12", "-m", "http.server", "8000"], "python3.12 http.server"),
        ("bash", ["bash", "-c", "curl -u me:secret"], "bash"),
        ("python3", ["python3", "-Ic", "import secret"], "python3"),
        ("gnome-terminal-", ["/usr/libexec/gnome-terminal-server", "x"], "gnome-terminal-server"),
        (
            "gnome-terminal-",
            ["/a/gnome-terminal-server --key=secret", "x"],
            "gnome-terminal-server",
        ),
        ("gnome-terminal-", ["something else"], "gnome-terminal-"),
        ("curl", ["curl", "-u", "me:secret"], "curl"),
        ("a) b (c", [""], "a) b (c"),
        ("bad\x1bname", [""], "bad?name"),
    ],
)
def test_a_command_shows_the_script_but_never_its_arguments(
    machine: Machine, name: str, arguments: list[str], shown: str
) -> None:
    machine.processes = {9: (1, name, 0, 0.0, 0.0, 5)}
    machine.working = {9: 1.0}
    watch = machine.busy_watch()
    (machine.proc / "9/cmdline").write_bytes("\0".join([*arguments, ""]).encode())
    [found] = watch.busy().processes
    assert found.command == shown


def test_a_process_of_this_machine_that_burns_cpu_is_found() -> None:
    burner = subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"])
    try:
        theirs, ours = ForeignLoadSampler(pid=0x7FFFFFFF), ForeignLoadSampler()
        found = {process.pid: process for process in theirs.busy(0.02).processes}
        assert burner.pid in found
        assert found[burner.pid].command == "sh"
        assert found[burner.pid].share > 0.02
        assert burner.pid not in {process.pid for process in ours.busy(0.02).processes}
    finally:
        burner.kill()
        burner.wait()


def test_a_proc_that_cannot_be_read_says_nothing(machine: Machine, tmp_path: Path) -> None:
    assert not machine.proc.exists()
    clock = itertools.count()
    watch = ForeignLoadSampler(pid=1, clock=lambda: next(clock), sleep=lambda s: None)
    assert watch.busy().quiet
    (tmp_path / "5").mkdir()
    (tmp_path / "5/stat").write_text("5 (torn")
    assert process_stats(tmp_path) == {}


# -- idle again between phases ------------------------------------------------------------------


def baseline_and_wait(
    watch: IdleWatch, change: object = None, messages: list[str] | None = None
) -> tuple[tuple[str, ...], str | None]:
    """Take the baseline, let a phase change the machine, wait."""

    async def main() -> tuple[tuple[str, ...], str | None]:
        remarks = await watch.take_baseline()
        if callable(change):
            change()
        return remarks, await watch.wait(None if messages is None else messages.append)

    return trio.run(main)


def test_a_hot_machine_is_waited_for_until_it_is_within_three_degrees(machine: Machine) -> None:
    machine.celsius = {"coretemp Package id 0": 50.0, "nvme": 40.0}
    machine.give_frequencies({0: 0, 1: 0})
    machine.khz = {0: 3_400_000}

    def phase() -> None:
        machine.celsius = {"coretemp Package id 0": 71.0, "nvme": 42.5}
        machine.cooling = 2.0

    told: list[str] = []
    remarks, waited = baseline_and_wait(machine.idle_watch(), phase, told)
    assert remarks == ()
    assert (waited, sum(machine.slept)) == (None, 1.0 + 9.0)  # (71 - 53) degrees at 2 a second
    assert told[0] == "coretemp Package id 0 is at 70 °C (50 before)"


def test_the_bound_ends_the_wait_and_says_what_is_not_back(machine: Machine) -> None:
    machine.celsius = {"k10temp Tctl": 55.0, **{f"core {number}": 50.0 for number in range(5)}}
    watch = machine.idle_watch(max_s=10.0)

    def phase() -> None:
        machine.celsius = {"k10temp Tctl": 71.0, **{f"core {number}": 60.0 for number in range(5)}}
        machine.busy_cpus = 1.5

    _, waited = baseline_and_wait(watch, phase)
    assert sum(machine.slept) == 1.0 + 10.0
    assert waited == (
        "--until-idle: went on after 10 s although others keep 1.5 CPUs busy (0.0 before the first "
        "phase), k10temp Tctl is at 71 °C (55 before), core 0 is at 60 °C (50 before), "
        "core 1 is at 60 °C (50 before), 3 more sensors are too warm"
    )


def test_a_throttled_package_is_seen_while_its_cpu_works(machine: Machine) -> None:
    machine.give_frequencies({0: 0, 1: 0, 2: 1, 3: 1})
    machine.khz = {0: 3_400_000, 2: 3_400_000}
    watch = machine.idle_watch(cpus=(3, 2, 1, 0), max_s=2.0)

    def phase() -> None:
        machine.khz = {0: 3_100_000, 2: 2_100_000}

    _, waited = baseline_and_wait(watch, phase)
    assert waited is not None
    assert waited.endswith("although CPU 2 runs at 2.10 GHz (3.40 before)")
    assert set(machine.awake) == {0, 2}


def test_one_busy_cpu_of_256_keeps_the_next_phase_waiting(machine: Machine) -> None:
    machine.cpus, machine.busy_cpus = 256, 0.2
    watch = machine.idle_watch(max_s=3.0)

    def phase() -> None:
        machine.busy_cpus = 1.2

    _, waited = baseline_and_wait(watch, phase)
    assert waited is not None
    assert waited.endswith("although others keep 1.2 CPUs busy (0.2 before the first phase)")


def test_our_own_work_does_not_keep_the_machine_busy(machine: Machine) -> None:
    watch = machine.idle_watch()

    def phase() -> None:
        machine.busy_cpus = 1.0
        sleep = machine.sleep

        def working(seconds: float) -> None:
            machine.own_s += seconds
            sleep(seconds)

        machine.sleep = working  # type: ignore[method-assign]  # rater works while time passes

    _, waited = baseline_and_wait(watch, phase)
    assert (waited, sum(machine.slept)) == (None, 1.0 + 0.5)


def test_a_baseline_that_is_not_idle_is_said(machine: Machine) -> None:
    machine.busy_cpus = 1.3
    machine.celsius = {"coretemp": 50.0}
    machine.give_frequencies({0: 0})
    machine.khz = {0: 3_000_000}
    remarks, waited = baseline_and_wait(machine.idle_watch())
    assert waited is None
    assert remarks == (
        "--until-idle: the machine was not idle before the first phase (others kept 1.3 CPUs busy):"
        " phases wait for that, not for less",
    )


def test_what_the_machine_does_not_show_is_said_once_and_left_out(machine: Machine) -> None:
    remarks, waited = baseline_and_wait(machine.idle_watch())
    assert remarks == (
        "--until-idle: this machine shows no temperatures and no CPU frequency: it goes by load "
        "alone",
    )
    assert (waited, sum(machine.slept)) == (None, 1.0 + 0.5)


def test_a_machine_that_shows_nothing_is_not_waited_for(machine: Machine) -> None:
    watch = machine.idle_watch()
    machine.write = lambda: None  # type: ignore[method-assign]  # nothing comes back
    (machine.proc / "stat").unlink()
    remarks, waited = baseline_and_wait(watch)
    assert waited is None
    assert remarks == (
        "--until-idle: this machine shows no load and no temperatures and no CPU frequency: it can "
        "not wait for anything",
    )


def test_cooling_down_comes_before_the_wait_and_both_can_be_cancelled(machine: Machine) -> None:
    watch = machine.idle_watch()

    async def both() -> str | None:
        await watch.take_baseline()
        return await cool_down(20.0, watch, sleep=machine.trio_sleep)

    assert trio.run(both) is None
    assert machine.slept == [1.0, 20.0, 0.5]

    async def stopped() -> bool:
        with trio.move_on_after(0.01) as scope:
            await cool_down(60.0, None)
        return scope.cancelled_caught

    assert trio.run(stopped)


def test_this_machine_can_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rater.run.host.idle._BASELINE_S", 0.1)

    async def main() -> float:
        watch = IdleWatch(os.sched_getaffinity(0), max_s=0.5)
        await watch.take_baseline()
        begin_s = trio.current_time()
        await watch.wait()
        return trio.current_time() - begin_s

    assert trio.run(main) >= 0.5


def test_a_lock_on_a_file_system_without_locks_names_that_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", none)
    with (
        pytest.raises(InputError, match=r"its file system has no locks .*; set RATER_LOCK to a"),
        machine_lock(tmp_path / "lock", "us"),
    ):
        pass
