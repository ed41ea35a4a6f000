"""Slow copies down on purpose while a run goes on, with real processes.

An `Injector` hears the run's events and has processes that are bound to a CPU compete for a share
of its time.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress

from rater.plan.selftest import Injection
from rater.record.events import Event, PhaseEnded, PhaseStarted
from rater.record.run import Placement
from rater.run.host.foreign_load import process_cpu_s
from rater.run.launcher.guard import MARKER, Guard
from rater.run.launcher.limits import pipe_above_gate_descriptors
from rater.run.supervise import competitor


class _Competitor:
    """One process that competes for a CPU when told to; it is entered into the guard."""

    def __init__(self, cpu: int, keeper: Guard) -> None:
        self._keeper = keeper
        read_end, self._write_end = pipe_above_gate_descriptors()
        try:
            self.pid = keeper.helpers.spawn(
                [sys.executable, "-I", "-S", "-B", competitor.__file__, str(cpu)],
                # The marker lets the launcher find it, should the pipe not do.
                {"PATH": os.defpath, MARKER: os.environ.get(MARKER, "")},
                {0: read_end},
            )
        except BaseException:
            os.close(self._write_end)
            raise
        finally:
            os.close(read_end)

    def set_share(self, share: float) -> None:
        """Let it take so much of its CPU from now on."""
        with suppress(BrokenPipeError):  # it is gone: the CPU time that it took shows that
            os.write(self._write_end, f"{share}\n".encode())

    def end(self) -> None:
        """Kill and reap it."""
        os.close(self._write_end)
        self._keeper.helpers.end(self.pid)


class Injector:
    """Disturbs a run as its injection says, benchmark by benchmark; a sink of the run's events.

    `taken_s` has, after `close`, the CPU time that its processes took, by benchmark, iteration
    and CPU.
    """

    def __init__(
        self, injection: Injection, placements: Sequence[Placement], keeper: Guard
    ) -> None:
        self._injection = injection
        self._copies = Counter(placement.cpu for placement in placements)
        self._keeper = keeper
        self._competitors: dict[int, list[_Competitor]] = defaultdict(list)
        self._phase: tuple[str, int] | None = None  # benchmark and iteration that run
        self._before_s: dict[int, float] = {}  # CPU time of competitors when they began
        self.taken_s: dict[tuple[str, int, int], float] = {}

    def start(self) -> None:
        """Start the competing processes."""
        try:
            for cpu in self._injection.cpus:
                # One can take 1 / (copies + 1) at most: enough of them for any share up to a third.
                for _ in range(-(-self._copies[cpu] // 2)):
                    self._competitors[cpu].append(_Competitor(cpu, self._keeper))
        except BaseException:
            self.close()
            raise

    def put(self, event: Event) -> None:
        """Take an event; returns at once."""
        if isinstance(event, PhaseStarted) and event.benchmark and event.iteration is not None:
            self._phase = event.benchmark, event.iteration
            self._before_s = self._read_used_s()
            for cpu, share in self._injection.competing(*self._phase):
                self._set_share(cpu, share)
        elif isinstance(event, PhaseEnded):
            self._end_phase()

    def close(self) -> None:
        """Leave everything as it was; no process of ours is left."""
        self._end_phase()
        for members in self._competitors.values():
            while members:
                members.pop().end()

    def _end_phase(self) -> None:
        if self._phase is not None:
            for cpu, used_s in self._read_used_s().items():
                self._set_share(cpu, 0.0)
                self.taken_s[*self._phase, cpu] = used_s - self._before_s[cpu]
            self._phase = None

    def _set_share(self, cpu: int, share: float) -> None:
        for member in self._competitors[cpu]:
            member.set_share(share / len(self._competitors[cpu]))

    def _read_used_s(self) -> dict[int, float]:
        return {
            cpu: sum(process_cpu_s(member.pid) for member in members)
            for cpu, members in self._competitors.items()
        }
