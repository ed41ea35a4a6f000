"""Other processes that used the CPUs while the copies of a phase ran: who, how much, and where."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from pathlib import Path

import trio
from msgspec import Struct, field

from rater.record.events import ForeignProcess
from rater.run.host.foreign_load import TICKS_PER_S, process_cpu_ns
from rater.run.host.procfs import Stat, parse_stat, read_piece
from rater.text.values import printable

# -- When processes are looked at ------------------------------------------------------------------
#
# A look asks the kernel for the CPU time of each process, 3 us each: 3 ms for a thousand. Files are
# read of those alone that used much. Phases of short copies have no look at all, and longer ones so
# few that these stay below a share of one CPU.

_FIRST_S = 1.0  # from the release of a phase's copies to its first look
_EVERY_S = 2.0  # between two looks, at least
_SHARE = 0.005  # of one CPU, over all phases of a run
_PROCESS_NS = 4_000  # of a look, before one was measured: listing it and asking for its CPU time
_TURN_NS = 500_000  # waking the event loop and handing over to a thread, as for a look at copies

# -- What is kept of them --------------------------------------------------------------------------

_LEAST_SHARE = 0.02  # of one CPU: what of a CPU's foreign load is told (analysis/results/cpu_use)
_CANDIDATE_SHARE = 0.01  # half of that: from here on it is read where a process runs
_LEAST_OBSERVED_NS = 250_000_000  # between the first and the last look; in less it is chance
_MOST_ROWS = 8  # of a phase
_MOST_THREADS = 128  # of one process: a file of 20 us each
_LONGEST_NAME = 15  # bytes, TASK_COMM_LEN of the kernel without its end
_DEEPEST = 64  # generations of processes between one and its ancestor
HIDDEN = (
    "/proc does not show all processes (hidepid): which of them used the copies' CPUs may be "
    "not known"
)


class ForeignReader:
    """Reads processes that are none of a run's; keeps to a share of one CPU over its phases.

    `roots`: processes of rater whose descendants are the run's own.
    """

    def __init__(
        self,
        roots: Collection[int],
        *,
        proc: Path = Path("/proc"),
        cpu_ns_of: Callable[[int], int | None] = process_cpu_ns,
    ) -> None:
        self.proc = proc
        self.roots = frozenset(roots)
        self.cpu_ns_of = cpu_ns_of
        self.spent_ns = 0
        self.elapsed_ns = 0  # of phases, as far as they were watched
        self.look_ns: int | None = None  # CPU time of the last look
        self.unknown: dict[str, None] = {}  # a set that keeps the order

    def list_pids(self) -> list[int]:
        """Return all processes that can be seen; empty where /proc is of other processes."""
        try:
            # That of another namespace has other numbers than the kernel takes from us.
            if (self.proc / "self").readlink().name != str(os.getpid()):
                return []
            names = os.listdir(self.proc)  # noqa: PTH208 - the quicker one
        except OSError:
            return []
        pids = [int(name) for name in names if name.isdecimal()]
        if 1 not in pids:
            self.unknown[HIDDEN] = None
        return pids

    def read_stat(self, process: str) -> Stat | None:
        """Return the state of `PID` or `PID/task/TID`; None: the process has ended or is hidden."""
        try:
            return parse_stat(read_piece(f"{self.proc}/{process}/stat"))
        except PermissionError:
            self.unknown[HIDDEN] = None
        except OSError:
            pass
        return None

    def is_foreign(self, stat: Stat, own_pids: Collection[int]) -> bool:
        """Tell whether a process is no descendant of rater or of `own_pids`."""
        parent: int = stat.parent
        for _ in range(_DEEPEST):
            if parent in self.roots or parent in own_pids:
                return False
            ancestor = self.read_stat(str(parent)) if parent > 1 else None
            if ancestor is None:
                return True
            parent = ancestor.parent
        return True

    def affords_look(self) -> bool:
        """Tell whether the budget has room for a look now, and for that at the phase's end."""
        if self.look_ns is None:
            self.look_ns = _PROCESS_NS * self._count_tasks()
        cost_ns = 2 * (self.look_ns + _TURN_NS)
        return self.spent_ns + cost_ns <= _SHARE * self.elapsed_ns

    def _count_tasks(self) -> int:
        """Return the number of processes and threads (proc_loadavg(5)); a thousand: not known."""
        try:
            return int(read_piece(f"{self.proc}/loadavg").split()[3].partition(b"/")[2])
        except (OSError, ValueError, IndexError):
            return 1000


class _Process(Struct, eq=False, kw_only=True):
    """A process that is none of the run's, since the phase's first look."""

    pid: int
    name: str
    started: int  # with the pid it tells a process from a later one
    first_ns: int  # CPU time that it had used before the first look
    used_ns: int = 0  # since then, by its last look
    placed_ns: int = 0  # of that, as much as is in `ns_by_cpu`
    ns_by_cpu: Counter[int] = field(default_factory=Counter)
    ticks_by_thread: dict[int, int] | None = None  # by its last look; None: never read
    weights: Mapping[int, int] = field(default_factory=dict)  # by CPU, of time not placed yet

    def place_time(self) -> None:
        """Give its time that has no CPU yet to CPUs, as its weights are."""
        total = sum(self.weights.values())
        rest_ns = self.used_ns - self.placed_ns
        if total:
            for cpu, weight in self.weights.items():
                self.ns_by_cpu[cpu] += rest_ns * weight // total
            self.placed_ns = self.used_ns


class PhaseProcesses:
    """Other processes during one phase: `watch` while copies run, `end`, then `busiest`."""

    def __init__(self, reader: ForeignReader, phase: int) -> None:
        self._reader = reader
        self._phase = phase
        self._first_ns: dict[int, int] = {}  # CPU time at the first look, by pid
        self._begin_ns: int | None = None  # of the first look, of CLOCK_MONOTONIC
        self._begin_ticks = 0  # the same, since boot
        self._last_ns = 0  # of the last look
        self._own_pids: set[int] = set()
        self._processes: dict[tuple[int, int], _Process] = {}  # by pid and start
        self.spent_ns = 0

    async def watch(
        self, copy_pids: Callable[[], Collection[int]], begin_ns: int | None = None
    ) -> None:
        """Look at processes until cancelled, in a thread: a copy's end is not to wait for it.

        `copy_pids` returns the processes of the run's copies, which were released at `begin_ns`
        of CLOCK_MONOTONIC; None: now.
        """
        reader = self._reader
        entered_ns, before_ns = time.monotonic_ns(), reader.elapsed_ns
        begin_ns = entered_ns if begin_ns is None else begin_ns
        wait_s = max(0.0, _FIRST_S - (entered_ns - begin_ns) / 1e9)
        try:
            while True:
                await trio.sleep(wait_s)
                reader.elapsed_ns = before_ns + time.monotonic_ns() - begin_ns
                wait_s = _FIRST_S
                if not reader.affords_look():
                    continue
                self._own_pids |= {*copy_pids()}
                with trio.CancelScope(shield=True):  # it is a matter of milliseconds
                    await trio.to_thread.run_sync(self.take_look)
                self._spend(_TURN_NS)
                wait_s = _EVERY_S
        finally:
            reader.elapsed_ns = before_ns + time.monotonic_ns() - begin_ns

    def end(self, copy_pids: Collection[int]) -> None:
        """Look for the last time, if there was a first look: no copy is timed any more."""
        if self._begin_ns is not None:
            self._own_pids |= {*copy_pids}
            self.take_look()

    def take_look(self) -> None:
        """Take the CPU time of each process; the first look is what others are compared with."""
        reader, cost_ns = self._reader, time.thread_time_ns()
        now_ns, is_first = time.monotonic_ns(), self._begin_ns is None
        if is_first:
            self._begin_ns = now_ns
            self._begin_ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)
        observed_ns = now_ns - (self._begin_ns or 0)
        for pid in reader.list_pids():
            if pid in reader.roots or pid in self._own_pids:
                continue
            cpu_ns = reader.cpu_ns_of(pid)
            if cpu_ns is None:
                continue
            if is_first:
                self._first_ns[pid] = cpu_ns
                continue
            first_ns = self._first_ns.get(pid, 0)
            # With less than before it is another process of that number.
            used_ns = cpu_ns - first_ns if cpu_ns >= first_ns else cpu_ns
            if used_ns >= max(_CANDIDATE_SHARE * observed_ns, 1):
                self._take_busy(pid, cpu_ns)
        self._last_ns = now_ns
        reader.look_ns = time.thread_time_ns() - cost_ns
        self._spend(reader.look_ns)

    def busiest(self) -> tuple[ForeignProcess, ...]:
        """Return the few that used most, the first of them most; empty without two looks."""
        observed_ns = self._last_ns - (self._begin_ns or 0)
        if self._begin_ns is None or observed_ns < _LEAST_OBSERVED_NS:
            return ()
        rows = []
        for process in self._processes.values():
            process.place_time()
            rows += [
                ForeignProcess(
                    phase=self._phase,
                    cpu=cpu,
                    pid=process.pid,
                    name=process.name,
                    cpu_ns=cpu_ns,
                    observed_ns=observed_ns,
                )
                for cpu, cpu_ns in process.ns_by_cpu.items()
                if cpu_ns >= _LEAST_SHARE * observed_ns
            ]
        rows.sort(key=lambda row: (-row.cpu_ns, row.cpu, row.pid))
        return tuple(rows[:_MOST_ROWS])

    def _spend(self, cost_ns: int) -> None:
        self.spent_ns += cost_ns
        self._reader.spent_ns += cost_ns

    def _take_busy(self, pid: int, cpu_ns: int) -> None:
        """Add a process that used much, by its name and its CPU, unless it is the run's."""
        stat = self._reader.read_stat(str(pid))
        if stat is None or stat.dead:
            return
        process = self._processes.get((pid, stat.started))
        if process is None:
            if not self._reader.is_foreign(stat, self._own_pids):
                self._own_pids.add(pid)
                return
            is_new = stat.started > self._begin_ticks or cpu_ns < self._first_ns.get(pid, 0)
            process = self._processes[pid, stat.started] = _Process(
                pid=pid,
                name=printable(stat.name, _LONGEST_NAME),
                started=stat.started,
                first_ns=0 if is_new else self._first_ns.get(pid, 0),
            )
        process.used_ns = max(cpu_ns - process.first_ns, process.used_ns)
        if stat.threads == 1:
            process.weights = {stat.cpu: 1}
            process.place_time()
        else:
            self._place_threads(process)

    def _place_threads(self, process: _Process) -> None:
        """Place the time of a process of several threads by what each used since the last look.

        Until two looks read them, the time of their whole lives stands for that.
        """
        before = process.ticks_by_thread
        now: dict[int, int] = {}
        weights: Counter[int] = Counter()
        folder = f"{process.pid}/task"
        try:
            names = os.listdir(self._reader.proc / folder)  # noqa: PTH208 - the quicker one
        except OSError:
            return
        for name in islice(names, _MOST_THREADS):
            thread = self._reader.read_stat(f"{folder}/{name}")
            if thread is not None:
                now[int(name)] = thread.own
                weights[thread.cpu] += max(0, thread.own - (before or {}).get(int(name), 0))
        process.ticks_by_thread = now
        if not any(weights.values()):
            return
        process.weights = weights
        if before is not None:
            process.place_time()
