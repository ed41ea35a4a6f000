"""Other processes beside copies: made trees of /proc, and real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from rater.record.events import ForeignProcess
from rater.run.observe.foreign_processes import HIDDEN, ForeignReader, PhaseProcesses
from rater.store.store import Store
from tests.support.calls import Rater

S = 10**9
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
BURN = "while True: pass"
BURNS = [sys.executable, "-I", "-S", "-c", BURN]


class MadeProc:
    """A tree of /proc with processes of our making, and the clock that the looks go by."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.cpu_s: dict[int, float] = {}
        self.now_s = 1000.0
        (folder / "self").symlink_to(str(os.getpid()))
        self.add(1, name="init")
        self.add(os.getpid(), parent=1, name="rater")
        monkeypatch.setattr(time, "monotonic_ns", lambda: round(self.now_s * S))

    def add(
        self,
        pid: int,
        *,
        parent: int = 1,
        name: str = "burn",
        cpu: int = 0,
        cpu_s: float = 0.0,
        threads: tuple[tuple[int, float], ...] = (),
        started: int = 5,
    ) -> None:
        """Add a process, or change it; `threads`: CPU and CPU time of each, if several."""
        self.cpu_s[pid] = cpu_s
        tasks = {str(pid): (cpu, cpu_s)}
        tasks |= {f"{pid}/task/{pid + number}": thread for number, thread in enumerate(threads)}
        for place, (task_cpu, task_s) in tasks.items():
            fields = ["0"] * 52
            fields[1], fields[2], fields[3] = f"({name})", "R", str(parent)
            fields[13], fields[19] = str(round(task_s * TICKS_PER_S)), str(max(1, len(threads)))
            fields[21], fields[38] = str(started), str(task_cpu)
            (self.folder / place).mkdir(parents=True, exist_ok=True)
            (self.folder / place / "stat").write_text(" ".join(fields))

    def end(self, pid: int) -> None:
        """Let a process be gone."""
        (self.folder / str(pid) / "stat").unlink()
        (self.folder / str(pid)).rmdir()
        del self.cpu_s[pid]

    def phase(self) -> PhaseProcesses:
        return PhaseProcesses(self.reader(), 3)

    def reader(self) -> ForeignReader:
        def cpu_ns_of(pid: int) -> int | None:
            cpu_s = self.cpu_s.get(pid)
            return None if cpu_s is None else round(cpu_s * S)

        return ForeignReader((os.getpid(),), proc=self.folder, cpu_ns_of=cpu_ns_of)


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeProc:
    return MadeProc(tmp_path, monkeypatch)


def row(cpu: int, pid: int, cpu_s: float, name: str = "burn", of_s: float = 10.0) -> ForeignProcess:
    return ForeignProcess(
        phase=3, cpu=cpu, pid=pid, name=name, cpu_ns=round(cpu_s * S), observed_ns=round(of_s * S)
    )


def test_what_a_process_used_since_the_first_look_is_told_with_its_cpu(proc: MadeProc) -> None:
    proc.add(50, cpu=1, cpu_s=100.0)
    processes = proc.phase()
    processes.take_look()
    assert processes.busiest() == ()  # one look tells nothing
    proc.now_s += 10
    proc.add(50, cpu=1, cpu_s=104.7)
    processes.end(())
    assert processes.busiest() == (row(1, 50, 4.7),)
    assert processes.busiest()[0].share == 0.47


def test_copies_their_children_rater_and_the_idle_are_not_told(proc: MadeProc) -> None:
    copy, child, orphan, other = 60, 61, 62, 63
    proc.add(copy, parent=os.getpid())
    proc.add(child, parent=copy)
    proc.add(orphan, parent=os.getpid())
    proc.add(other, parent=1)
    processes = proc.phase()
    processes.take_look()
    proc.now_s += 10
    for pid, parent in ((copy, os.getpid()), (child, copy), (orphan, os.getpid())):
        proc.add(pid, parent=parent, cpu_s=9.0)
    proc.add(os.getpid(), cpu_s=9.0)
    proc.add(other, cpu_s=0.19)  # of 10 s: less than 2 %
    processes.end(())
    assert processes.busiest() == ()
    proc.add(other, cpu_s=0.2)
    processes.take_look()
    assert processes.busiest() == (row(0, other, 0.2),)


def test_a_process_that_moves_has_its_time_where_it_ran(proc: MadeProc) -> None:
    proc.add(50)
    processes = proc.phase()
    processes.take_look()
    for cpu, cpu_s in ((0, 2.0), (1, 5.0)):
        proc.now_s += 5
        proc.add(50, cpu=cpu, cpu_s=cpu_s)
        processes.take_look()
    assert processes.busiest() == (row(1, 50, 3.0), row(0, 50, 2.0))


def test_one_that_ended_is_told_by_its_last_look_and_one_never_seen_is_not(proc: MadeProc) -> None:
    proc.add(50)
    proc.add(51)
    processes = proc.phase()
    processes.take_look()
    proc.end(51)
    proc.now_s += 5
    proc.add(50, cpu_s=4.0)
    processes.take_look()
    proc.end(50)
    proc.now_s += 5
    processes.end(())
    assert processes.busiest() == (row(0, 50, 4.0),)


def test_one_that_began_meanwhile_has_all_of_its_time_and_so_has_one_of_a_number_given_anew(
    proc: MadeProc,
) -> None:
    proc.add(51, cpu_s=3.0)
    processes = proc.phase()
    processes.take_look()
    proc.now_s += 10
    later = int((time.clock_gettime(time.CLOCK_BOOTTIME) + 5) * TICKS_PER_S)
    proc.add(50, name="new", cpu_s=4.0, started=later)
    proc.add(51, name="reused", cpu_s=2.0, started=later)
    processes.end(())
    assert processes.busiest() == (row(0, 50, 4.0, "new"), row(0, 51, 2.0, "reused"))


def test_busy_threads_of_a_process_are_told_by_their_cpus(proc: MadeProc) -> None:
    proc.add(50, cpu_s=100.0, threads=((0, 98.0), (1, 1.0), (2, 1.0)))
    processes = proc.phase()
    processes.take_look()
    # The first look at its threads knows whole lives alone: this time waits for the next one.
    for cpu_s, second_s, third_s in ((106.0, 3.0, 5.0), (112.0, 5.0, 9.0)):
        proc.now_s += 5
        proc.add(50, cpu_s=cpu_s, threads=((0, 98.0), (1, second_s), (2, third_s)))
        processes.take_look()
    assert processes.busiest() == (row(2, 50, 8.0), row(1, 50, 4.0))


def test_the_eight_that_used_most_are_kept(proc: MadeProc) -> None:
    pids = range(50, 62)
    for pid in pids:
        proc.add(pid)
    processes = proc.phase()
    processes.take_look()
    proc.now_s += 10
    for pid in pids:
        proc.add(pid, cpu_s=pid / 10)
    processes.end(())
    assert [process.pid for process in processes.busiest()] == [*range(61, 53, -1)]


def test_names_are_hostile_text(proc: MadeProc) -> None:
    proc.add(50)
    processes = proc.phase()
    processes.take_look()
    proc.now_s += 10
    proc.add(50, name="\x1b[2J) R \u202e1 bad", cpu_s=4.0)
    processes.end(())
    assert [process.name for process in processes.busiest()] == ["?[2J) R ?1 bad"]


def test_what_is_hidden_is_not_known(proc: MadeProc) -> None:
    proc.end(1)
    processes = PhaseProcesses(reader := proc.reader(), 0)
    processes.take_look()
    proc.now_s += 10
    processes.end(())
    assert processes.busiest() == ()
    assert [*reader.unknown] == [HIDDEN]


def test_processes_of_another_namespace_are_not_asked_for(proc: MadeProc) -> None:
    (proc.folder / "self").unlink()
    (proc.folder / "self").symlink_to("7")
    assert proc.reader().list_pids() == []


class _CountedLooks(PhaseProcesses):
    """Looks that are noted with their time, at a cost of our choice."""

    def __init__(self, reader: ForeignReader, cost_ns: int) -> None:
        super().__init__(reader, 0)
        self.reader, self.cost_ns = reader, cost_ns
        self.at_s: list[float] = []

    def take_look(self) -> None:
        self.at_s.append(round(trio.from_thread.run_sync(trio.current_time), 1))
        self.reader.look_ns = self.cost_ns
        self._spend(self.cost_ns)


@pytest.mark.parametrize(
    ("cost_ms", "expected_s"),
    [
        (1, [1.0, 3.0, 5.0, 7.0, 9.0]),
        (25, [1.0, 16.0, 21.0]),  # 25.5 ms of a look, and of the one at the end: 5 s each
    ],
)
def test_looks_begin_after_a_second_and_stay_below_half_a_percent(
    monkeypatch: pytest.MonkeyPatch, cost_ms: int, expected_s: list[float]
) -> None:
    async def watch() -> tuple[ForeignReader, list[float], float]:
        begin_s = trio.current_time()
        monkeypatch.setattr(
            time, "monotonic_ns", lambda: round((trio.current_time() - begin_s) * S)
        )
        reader = ForeignReader((1,))
        reader.look_ns = 0
        looks = _CountedLooks(reader, cost_ms * 1_000_000)
        with trio.move_on_after(10 if cost_ms == 1 else 22):
            await looks.watch(tuple)
        return reader, [at_s - round(begin_s, 1) for at_s in looks.at_s], trio.current_time()

    clock = trio.testing.MockClock(autojump_threshold=0.15)  # a thread may be slow
    reader, at_s, _ = trio.run(watch, clock=clock)
    assert at_s == pytest.approx(expected_s)
    assert reader.elapsed_ns == pytest.approx((10 if cost_ms == 1 else 22) * S)


@contextmanager
def burning(cpu: int) -> Iterator[int]:
    """A busy loop on a CPU."""
    with subprocess.Popen(BURNS) as process:
        os.sched_setaffinity(process.pid, {cpu})
        try:
            yield process.pid
        finally:
            process.kill()


def test_a_busy_loop_beside_a_copy_is_named_and_what_the_copy_starts_is_not(
    store: Store, tmp_path: Path
) -> None:
    cpu = min(os.sched_getaffinity(0))
    copies = f"{sys.executable} -I -S -c '{BURN}' & echo $! > {tmp_path}/loop; sleep 3.2; kill $!"
    with burning(cpu) as pid:
        options = ("--quiet", "--copies", "1", "--preflight", "off", "--layout", f"list:{cpu}")
        # A process of its own: what this one has started would be rater's.
        command = [sys.executable, "-m", "rater", "run", *options, "--", "sh", "-c", copies]
        subprocess.run(command, check=True)
        used_s = time.clock_gettime_ns((~pid << 3) | 2) / 1e9
    [head] = store.runs()
    run = store.load(head.run)
    others = [process for process in run.foreign_processes if process.pid == pid]
    assert [(process.phase, process.cpu) for process in others] == [(0, cpu)]
    [process] = others
    assert process.name.startswith("python")
    # How much depends on who else works on this machine: the copy's own loop does.
    assert 0.02 <= process.share < 0.9 and process.cpu_ns / S < used_s
    own_pids = {os.getpid(), run.copies[0].pid, int((tmp_path / "loop").read_text())}
    assert not own_pids & {one.pid for one in run.foreign_processes}
    assert run.observed is not None and run.observed.cpu_s > 0


def test_phases_of_less_than_a_second_look_at_nobody(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_look(_: PhaseProcesses) -> None:
        raise AssertionError

    monkeypatch.setattr(PhaseProcesses, "take_look", take_look)
    options = ("--quiet", "--copies", "2", "--preflight", "off", "--iterations", "2")
    assert rater("run", *options, "--", "sleep", "0.3")[0] == 0


def test_a_process_that_is_killed_beside_a_look_is_left_out() -> None:
    reader = ForeignReader((os.getpid(),))
    processes = PhaseProcesses(reader, 0)
    with burning(min(os.sched_getaffinity(0))) as pid:
        processes.take_look()
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        processes.take_look()  # it is a zombie now: its CPU time is told, but not where it ran
    assert pid not in {process.pid for process in processes.busiest()}
