"""The record of one phase: ends of its copies, samples, counters, and the phase's own end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import trio

from rater.plan.schedule.phases import Phase
from rater.record.events import Event, Noted, PhaseEnded, PhaseStarted, WorkloadTime
from rater.record.status import CopyStatus
from rater.run.check.judge import EndedCopy
from rater.run.copies.copy_ended import ended_event
from rater.run.copies.launch import Child, Reaped
from rater.run.observe.counters import PhaseCounters
from rater.run.observe.observer import FIRST_S
from rater.run.observe.resident import ResidentLooks
from rater.run.observe.samples import Samples
from rater.run.page_sizes.proof import PageProof
from rater.run.supervise.job import RunState


class PhaseRecord:
    """Emits what becomes of one phase, and keeps what is to be judged; on the trio thread."""

    def __init__(self, state: RunState, phase: Phase) -> None:
        placements = state.job.placements
        self._state = state
        self._phase = phase
        self._ended: list[EndedCopy] = []
        self._finishes: dict[int, int] = {}  # last finish by copy
        self._interrupted = False
        self._samples = Samples(state.emit, placements)
        self._resident = ResidentLooks()
        pages = state.job.pages
        self._pages = PageProof(pages, phase.number) if pages is not None else None
        self._counters = (
            PhaseCounters(state.reader, phase.number, lambda copy: placements[copy].cpu)
            if state.reader is not None
            else None
        )

    def begin(self, head: PhaseStarted) -> None:
        """Emit the phase's begin, and read the counters; all copies wait at their gates."""
        self._state.emit(head)
        if self._counters is not None:
            self._counters.begin()

    def watch(self, nursery: trio.Nursery, alive: Mapping[int, Child]) -> None:
        """Start what observes copies and the machine until the last copy has ended."""
        if self._state.observer is not None:
            nursery.start_soon(self._observe, alive)
            if not self._state.observer.once:
                nursery.start_soon(self._resident.watch, alive)
            if self._pages is not None:
                nursery.start_soon(self._pages.watch, alive)
        if self._counters is not None:
            nursery.start_soon(self._counters.watch)
            if self._counters.reader.energy is not None:
                nursery.start_soon(self._counters.reader.energy.keep_up)

    async def _observe(self, alive: Mapping[int, Child]) -> None:
        """Sample copies, but leave a phase of short ones alone: not even a thread begins."""
        assert self._state.observer is not None
        await trio.sleep(FIRST_S)
        await self._state.observer.run(lambda: self._orphans(alive), self._samples.take)

    def _orphans(self, alive: Mapping[int, Child]) -> dict[int, list[int]]:
        """Return the processes that running copies left without a parent, by copy."""
        return self._state.guard.orphans({it.pid: it.copy for it in alive.values()})

    def ended(
        self,
        child: Child,
        reaped: Reaped,
        origin_ns: int,
        now_ns: int,
        workloads: tuple[WorkloadTime, ...],
    ) -> CopyStatus:
        """Emit the end of a released copy that counts; times are of CLOCK_MONOTONIC."""
        workplace = self._state.job.workplace
        event = ended_event(
            child,
            reaped,
            self._phase.number,
            origin_ns,
            now_ns,
            expects=workplace.expects(child.step.benchmark),
            keeps=workplace.keeps,
            workloads=workloads,
            memory=self._resident.ended(child.pid),
        )
        self._finishes[child.copy] = event.finish_ns
        if event.status is CopyStatus.INTERRUPTED:
            self._interrupted = True
        elif event.status is CopyStatus.FAILED and child.stopped_for is None:
            self._state.outside.died(event.phase, event.signal, event.exit_code)
        self._ended.append(EndedCopy(event, child.step, child.spec))
        self._samples.ended(child)
        if self._pages is not None:
            self._pages.ended(child, now_ns)
        self._state.emit(event)
        return event.status

    def uncounted(self, child: Child, reaped: Reaped | None = None) -> None:
        """Keep a run that does not count, for its files; `reaped`: it was a filler."""
        self._resident.ended(child.pid)
        if reaped is not None and self._counters is not None:
            cpu_s = reaped.usage.ru_utime + reaped.usage.ru_stime
            self._counters.filler_ended(child.copy, round(cpu_s * 1e9))
        self._ended.append(EndedCopy(None, child.step, child.spec))

    def end_counters(self, alive: Mapping[int, Child] | None = None) -> None:
        """Read the counters for the last time; `alive`: while these fillers still run."""
        if self._counters is None:
            return
        if alive is None:
            self._counters.end()
            return
        running = {child.pid: child.copy for child in alive.values()}
        orphans = {pid: copy for copy, pids in self._orphans(alive).items() for pid in pids}
        self._counters.end_with_fillers(running | orphans)

    def take_ended(self) -> list[EndedCopy]:
        """Return what has ended since the last call, to be judged."""
        taken, self._ended = self._ended, []
        return taken

    def close(
        self,
        starts: Mapping[int, int],
        window_ns: tuple[int, int] | None,
        counted: Iterable[Event],
    ) -> None:
        """Emit what was gathered, and the phase's end; nothing is timed any more.

        `starts`: first starts by copy; `window_ns`: the window in the run's time, None
        where it did not close or there is none; `counted`: what counters came to.
        """
        self._samples.close()
        if self._state.observer is not None:
            self._state.observer.looked_ns += self._resident.spent_ns
            if self._pages is not None:
                self._state.observer.looked_ns += self._pages.spent_ns
        if not starts or not self._finishes:
            return
        for one in counted:
            self._state.emit(one)
        if self._pages is not None:
            for had in self._pages.close():
                self._state.emit(had)
        if self._counters is not None:
            for event in self._counters.events():
                self._state.emit(event)
            for note in self._counters.reader.energy_notes():
                self._state.emit(Noted(note))
        complete = not self._interrupted and not self._state.stop_flag.is_set()
        self._state.emit(
            PhaseEnded(
                phase=self._phase.number,
                benchmark=self._phase.benchmark,
                iteration=self._phase.iteration,
                counted=self._phase.counted,
                start_ns=min(starts.values()),
                finish_ns=max(self._finishes.values()),
                last_start_ns=max(starts.values()),
                first_finish_ns=min(self._finishes.values()),
                complete=complete and (self._phase.window is None or window_ns is not None),
                window_start_ns=window_ns[0] if window_ns else None,
                window_finish_ns=window_ns[1] if window_ns else None,
            )
        )
