"""Slow copies down on purpose while a run goes on, with real processes.

An `Injector` hears the run's events and, on a thread of its own, disturbs what it was told
to: processes bound to a CPU compete for a share of its time (their own CPU clocks are read,
so that they take neither more nor less). It also sees what others than the run did to its
CPUs meanwhile.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rater.plan.placement.place import Placement
from rater.plan.selftest import Injection
from rater.record.events import CopyEnded, Event, PhaseEnded, PhaseStarted
from rater.run.copies import competitor
from rater.run.copies.guard import MARKER, Guard
from rater.run.copies.limits import pipe_above_gate_descriptors
from rater.run.host.foreign_load import TICKS_PER_S, cpu_ticks, process_cpu_s
from rater.run.host.thread_binding import realtime_priority

_TICK_S = 0.01
_WANTED_MS = 15  # a little more than a tick, so that a late one leaves no gap
_CLOSE_PATIENCE_S = 5.0
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class DisturbanceRecord:
    """What happened to the run's CPUs while one benchmark ran once, as shares of the time."""

    benchmark: str
    iteration: int
    elapsed_s: float
    taken: tuple[tuple[int, float], ...]  # by competing processes, CPU by CPU
    others: tuple[tuple[int, float], ...]  # CPU time of neither run nor competitors, CPU by CPU
    # CPU time that the copies of each CPU needed, and others took there, in seconds.
    costs: tuple[tuple[int, float], ...] = ()


class _Competitor:
    """One process that competes for a CPU when told to."""

    def __init__(self, cpu: int, keeper: Guard) -> None:
        self._keeper = keeper
        read_end, self._to = pipe_above_gate_descriptors()
        try:
            self._pid = keeper.helpers.spawn(
                [sys.executable, "-I", "-S", "-B", competitor.__file__, str(cpu)],
                # The marker lets the launcher find it, should the pipe not do.
                {"PATH": os.defpath, MARKER: os.environ.get(MARKER, "")},
                {0: read_end},
            )
        except BaseException:
            os.close(self._to)
            raise
        finally:
            os.close(read_end)
        os.set_blocking(self._to, False)

    def want(self, milliseconds: int) -> None:
        """Let it compete for so long from now."""
        # Full or broken: it has not had a turn for long, or is gone; `cpu_s` will tell.
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(self._to, bytes([milliseconds]))

    def cpu_s(self) -> float:
        """Return the CPU time it has used."""
        return process_cpu_s(self._pid)

    def end(self) -> None:
        """Kill and reap it."""
        os.close(self._to)
        self._keeper.helpers.end(self._pid)


@dataclass
class _Phase:
    """What is known of the benchmark that runs."""

    benchmark: str
    iteration: int
    competing: Sequence[tuple[int, float]]  # CPU, share of its time that is to be taken
    begin_s: float
    busy_s: Mapping[int, float]  # of each CPU, ever
    competitors_s: Mapping[int, float]
    copies_s: dict[int, float] = field(default_factory=lambda: defaultdict(float))  # by CPU


class Injector(threading.Thread):
    """Disturbs a run as told, benchmark by benchmark; a sink of the run's events.

    `seen` has, after `close`, what became of it. Its processes are entered into the guard
    and die with rater.
    """

    def __init__(
        self, injection: Injection, placements: Sequence[Placement], keeper: Guard
    ) -> None:
        super().__init__(name="injector", daemon=True)
        self._injection = injection
        self._cpu_of = {it.copy: it.cpu for it in placements if it.cpu is not None}
        self._keeper = keeper
        self._competitors: dict[int, list[_Competitor]] = defaultdict(list)
        self._wake = threading.Event()
        self._over = False
        self._events: list[Event] = []
        self._lock = threading.Lock()
        self._phase: _Phase | None = None
        self.seen: list[DisturbanceRecord] = []

    def start(self) -> None:
        """Start the competing processes, and the thread."""
        on_cpu = Counter(self._cpu_of.values())
        try:
            for cpu in self._injection.cpus:
                # One can take 1 / (copies + 1) at most: enough of them for any share up to a third.
                for _ in range(-(-on_cpu[cpu] // 2)):
                    self._competitors[cpu].append(_Competitor(cpu, self._keeper))
        except BaseException:
            self._end_competitors()
            raise
        super().start()

    def put(self, event: Event) -> None:
        """Take an event; returns at once."""
        if isinstance(event, PhaseStarted | PhaseEnded | CopyEnded):
            with self._lock:
                self._events.append(event)
            self._wake.set()

    def close(self) -> None:
        """Leave everything as it was; no process of ours is left."""
        self._over = True
        self._wake.set()
        self.join(_CLOSE_PATIENCE_S)
        self._end_competitors()

    def run(self) -> None:
        """Disturb what runs until `close`."""
        with realtime_priority():
            while not self._over:
                self._wake.wait(self._step())
                self._wake.clear()
                with self._lock:
                    events, self._events = self._events, []
                for event in events:
                    self._take_event(event)
            if self._phase is not None:
                self._end_phase()

    def _take_event(self, event: Event) -> None:
        if isinstance(event, PhaseStarted):
            self._begin_phase(event)
        elif self._phase is not None and isinstance(event, CopyEnded):
            cpu = self._cpu_of.get(event.copy)
            if cpu is not None:
                used_ns = event.user_ns + event.system_ns - event.gate_cpu_ns
                self._phase.copies_s[cpu] += used_ns / 1e9
        elif self._phase is not None and isinstance(event, PhaseEnded):
            self._end_phase()

    def _begin_phase(self, event: PhaseStarted) -> None:
        name, iteration = event.benchmark, event.iteration
        if name is None or iteration is None:
            return
        self._phase = _Phase(
            name,
            iteration,
            self._injection.competing(name, iteration),
            time.monotonic(),
            busy_by_cpu(PROC),
            self._competitors_s(),
        )

    def _end_phase(self) -> None:
        phase = self._phase
        assert phase is not None
        self._phase = None
        elapsed_s = time.monotonic() - phase.begin_s
        busy_s, competitors_s = busy_by_cpu(PROC), self._competitors_s()
        taken = {
            cpu: competitors_s[cpu] - phase.competitors_s.get(cpu, 0.0) for cpu in competitors_s
        }
        # Ticks of a moment may come to more than the moment, or to less than what is taken off.
        others = {
            cpu: min(max(0.0, busy_s[cpu] - phase.busy_s[cpu] - known_s), elapsed_s)
            for cpu in sorted(set(self._cpu_of.values()))
            if cpu in busy_s and cpu in phase.busy_s
            for known_s in (taken.get(cpu, 0.0) + phase.copies_s[cpu],)
        }
        self.seen.append(
            DisturbanceRecord(
                phase.benchmark,
                phase.iteration,
                elapsed_s,
                tuple((cpu, used_s / elapsed_s) for cpu, used_s in taken.items()),
                tuple((cpu, used_s / elapsed_s) for cpu, used_s in others.items()),
                tuple((cpu, phase.copies_s[cpu] + used_s) for cpu, used_s in others.items()),
            )
        )

    def _step(self) -> float | None:
        """Do what is to be done now; return when to come again, in seconds; None: when woken."""
        phase = self._phase
        if phase is None or not phase.competing:
            return None
        now_s = time.monotonic()
        for cpu, share in phase.competing:
            members = self._competitors[cpu]
            used_s = sum(it.cpu_s() for it in members) - phase.competitors_s[cpu]
            if used_s < share * (now_s - phase.begin_s):
                for member in members:
                    member.want(_WANTED_MS)
        return _TICK_S

    def _competitors_s(self) -> dict[int, float]:
        return {
            cpu: sum(it.cpu_s() for it in members) for cpu, members in self._competitors.items()
        }

    def _end_competitors(self) -> None:
        for members in self._competitors.values():
            while members:
                members.pop().end()


def busy_by_cpu(proc: Path) -> dict[int, float]:
    """Return the CPU time of everybody and everything by CPU, in seconds since boot.

    Time that the hypervisor gave to others is part of it. Empty where /proc/stat can not
    be read or understood.
    """
    try:
        ticks = cpu_ticks((proc / "stat").read_bytes())
    except (OSError, ValueError):
        return {}
    return {
        cpu: (user + nice + system + irq + softirq + steal) / TICKS_PER_S
        for cpu, (user, nice, system, _, _, irq, softirq, steal) in ticks.items()
    }
