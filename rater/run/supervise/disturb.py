"""Slow copies down on purpose while a run goes on, with real processes.

An `Injector` hears the run's events and, on a thread of its own, disturbs what it was told
to: processes bound to a CPU compete for a share of its time (their own CPU clocks are read,
so that they take neither more nor less).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from rater.plan.selftest import Injection
from rater.record.events import Event, PhaseEnded, PhaseStarted
from rater.record.run import Placement
from rater.run.host.foreign_load import process_cpu_s
from rater.run.host.thread_binding import realtime_priority
from rater.run.launcher.guard import MARKER, Guard
from rater.run.launcher.limits import pipe_above_gate_descriptors
from rater.run.supervise import competitor

_TICK_S = 0.01
_WANTED_MS = 15  # a little more than a tick, so that a late one leaves no gap
_CLOSE_PATIENCE_S = 5.0


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


class _Phase(Struct):
    """The benchmark that runs, and what is to be taken from it."""

    benchmark: str
    iteration: int
    competing: Sequence[tuple[int, float]]  # CPU, share of its time
    begin_s: float
    competitors_s: Mapping[int, float]  # CPU time they had used then


class Injector(threading.Thread):
    """Disturbs a run as told, benchmark by benchmark; a sink of the run's events.

    `taken_s` has, after `close`, the CPU time that its processes took, by benchmark, iteration
    and CPU. They are entered into the guard and die with rater.
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
        self.taken_s: dict[tuple[str, int, int], float] = {}

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
        if isinstance(event, PhaseStarted | PhaseEnded):
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
            self._competitors_s(),
        )

    def _end_phase(self) -> None:
        phase = self._phase
        assert phase is not None
        self._phase = None
        for cpu, used_s in self._competitors_s().items():
            taken_s = used_s - phase.competitors_s.get(cpu, 0.0)
            self.taken_s[phase.benchmark, phase.iteration, cpu] = taken_s

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
