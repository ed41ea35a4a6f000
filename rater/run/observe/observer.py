"""Look at copies while they run, often enough to prove their placement, seldom enough not to hurt.

The kernel walks page tables for a look: 10 us for a megabyte in 4 KB pages, twice
that where transparent huge pages are looked for too. So each look's CPU time is
measured, and the next is made when all of them together stay below their share of
one CPU. Every copy that lives for half a second is looked at once, whatever it
costs.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import trio

from rater.plan.request.sampling import Cadence
from rater.record.events import Observed, Sampled
from rater.run.host.proc_dir import open_process
from rater.run.observe.probe import Looker, NoSample, Watched
from rater.run.observe.probe_thread import Look, Reading, Wanted

FIRST_S = 0.2  # from a copy's release to the first look at it
# Where copies share CPUs a look takes time from others of them, and those that end within half a
# second need none: they are looked at as late as lets all be seen within that time.
_CROWDED_FIRST_S = 0.45
_LOOK_NS = 500_000  # CPU time of a look at a small copy whose caches are cold
_AGAIN_NS = 50_000_000  # after a look that gave nothing
_AGAIN_AT_MOST_NS = 1_000_000_000
_LEAST_AUTO_S = 1.0  # memory that moves faster than this is not told from memory that moves
_SHARE = 0.008  # of one CPU; the promise is 0.01
_GROWTH = 2  # a copy may have grown so much since its last look, and its cost with it
# Waking the event loop and handing over to the reading thread can not be told from other work of
# the process: 0.25 and 0.3 ms where the copies keep every cache cold.
_TURN_NS = 500_000
_MOST_IN_BATCH = 16  # copies read in one turn of the reading thread
_BATCH_CPU_NS = 5_000_000  # a turn ends when this was probably used
_TOGETHER = 0.1  # of the interval: looks due so close are one turn


@dataclass(slots=True)
class _State:
    """What is known of a copy that runs."""

    watched: Watched
    due_ns: int  # of its first look
    last_ns: int | None = None
    cost_ns: int = 0  # CPU time of its last look
    past_gate: bool = False
    failures: int = 0  # looks that gave nothing

    def put_off(self, now_ns: int) -> None:
        """Try again soon, and less soon each time."""
        self.due_ns = now_ns + min(_AGAIN_NS << self.failures, _AGAIN_AT_MOST_NS)
        self.failures = min(self.failures + 1, 10)
        if self.last_ns is not None:
            self.last_ns = now_ns


class Observer:
    """Looks at the copies of a run, phase by phase; all methods on the trio thread.

    `spread`: see `look.Looker`; False when rater has CPUs of its own.
    """

    def __init__(self, cadence: Cadence, *, spread: bool = True) -> None:
        self._cadence = cadence
        self._spread = spread
        self._looker = Looker(spread)
        self._states: dict[tuple[int, int, int], _State] = {}
        self._sleep: trio.CancelScope | None = None
        self._begin_ns: int | None = None
        self._elapsed_ns = 0  # of phases that are over
        self._spent_ns = 0  # CPU time
        self._settled_ns = 0  # the same as the next look is planned by
        self._looked_ns = 0  # CPU time of looks alone
        self._cpus = os.cpu_count() or 1
        self._samples = 0
        self._gaps_ns = 0
        self._gaps = 0
        self._longest_ns = 0

    async def run(
        self,
        alive: Callable[[], Iterable[Watched]],
        orphans: Callable[[], Mapping[int, Sequence[int]]],
        emit: Callable[[Sampled], None],
    ) -> None:
        """Look at copies until cancelled.

        `alive` returns the copies that are released and not reaped: asked on this
        thread at every turn, it is what ties a sample to its copy; `orphans` the
        processes of copies that are our children by now, by copy. `emit` gets the
        samples, on this thread too, at times a moment after their copy's end.
        """
        self._begin_ns = time.monotonic_ns()
        reading = Reading(self._looker.look, prompt=self._spread)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(reading.run)
                try:
                    await self._go_round(reading, alive, orphans, emit)
                finally:
                    reading.close()
        finally:
            self._elapsed_ns += time.monotonic_ns() - self._begin_ns
            self._begin_ns = None
            self._sleep = None
            self._states.clear()

    async def _go_round(
        self,
        reading: Reading,
        alive: Callable[[], Iterable[Watched]],
        orphans: Callable[[], Mapping[int, Sequence[int]]],
        emit: Callable[[Sampled], None],
    ) -> None:
        while True:
            begin = time.thread_time_ns()
            now = time.monotonic_ns()
            batch, next_ns = self._turn(alive(), now)
            opened = self._open(batch, now)
            left = orphans() if opened else {}
            self._spent_ns += time.thread_time_ns() - begin
            if opened:
                self._spent_ns += _TURN_NS
                looks = await self._read(reading, opened, left)
                begin = time.thread_time_ns()
                for (state, _), look in zip(opened, looks, strict=False):
                    self._take(state, look, emit)
                self._spent_ns += time.thread_time_ns() - begin
                # Only now: a plan that each waking for it puts off is never carried out.
                self._settled_ns = self._spent_ns
                await trio.lowlevel.checkpoint()
            elif not batch:
                await self._wait_until(next_ns, now)

    def wake(self) -> None:
        """Say that a copy was released: it will be looked at in time."""
        if self._sleep is not None:
            soon = trio.current_time() + FIRST_S
            self._sleep.deadline = min(self._sleep.deadline, soon)

    def report(self) -> Observed:
        """Return what it came to so far."""
        elapsed_ns = self._elapsed()
        return Observed(
            cadence=str(self._cadence),
            samples=self._samples,
            interval_s=self._gaps_ns / self._gaps / 1e9 if self._gaps else None,
            cpu_s=self._spent_ns / 1e9,
            share=self._spent_ns / elapsed_ns if elapsed_ns else 0.0,
            longest_read_s=self._longest_ns / 1e9,
            unknown=tuple(self._looker.unknown),
        )

    # -- whose turn it is -------------------------------------------------------------------------

    def _turn(self, alive: Iterable[Watched], now_ns: int) -> tuple[list[_State], int | None]:
        """Return whom to look at now; when there is nobody, also when to ask again."""
        states = {}
        alive = list(alive)
        first_ns = self._first_ns(len(alive))
        for watched in alive:
            key = (watched.phase, watched.copy, watched.step)
            states[key] = self._states.get(key) or _State(watched, watched.start_ns + first_ns)
        self._states = states
        fresh = [
            state
            for state in states.values()
            if state.last_ns is None and not state.watched.repeats
        ]
        due = sorted((s for s in fresh if s.due_ns <= now_ns), key=lambda s: s.due_ns)
        if due:
            return due[:_MOST_IN_BATCH], None
        batch, again_ns = self._again(states.values())
        if again_ns is not None and again_ns <= now_ns:
            return batch, None
        times = [state.due_ns for state in fresh]
        times += [again_ns] if again_ns is not None else []
        return [], min(times, default=None)

    def _first_ns(self, copies: int) -> int:
        """Return the age at which a copy is first looked at, by how many run."""
        least_ns = round(FIRST_S * 1e9)
        if copies <= self._cpus:
            return least_ns
        each_ns = max(_LOOK_NS, self._looked_ns // max(1, self._samples))
        return max(least_ns, round(_CROWDED_FIRST_S * 1e9) - copies * each_ns)

    def _again(self, states: Iterable[_State]) -> tuple[list[_State], int | None]:
        """Return who is next to be looked at once more, and when: the longest ago first."""
        if self._cadence.once:
            return [], None
        interval_ns = round((self._cadence.every_s or _LEAST_AUTO_S) * 1e9)
        seen = sorted(
            (
                # The next run of a copy that was seen is as good as one more look at it.
                (state.due_ns - interval_ns if state.last_ns is None else state.last_ns, state)
                for state in states
                if state.last_ns is not None or state.watched.repeats
            ),
            key=lambda pair: pair[0],
        )
        if not seen:
            return [], None
        latest_ns = seen[0][0] + round(interval_ns * _TOGETHER)
        batch: list[_State] = []
        cost_ns, last_ns = 0, seen[0][0]
        for at_ns, state in seen[:_MOST_IN_BATCH]:
            if batch and (at_ns > latest_ns or cost_ns + state.cost_ns > _BATCH_CPU_NS):
                break
            batch.append(state)
            cost_ns, last_ns = cost_ns + state.cost_ns, at_ns
        due_ns = last_ns + interval_ns
        if self._cadence.every_s is None:
            due_ns = max(due_ns, self._affordable_ns(cost_ns))
        return batch, due_ns

    def _affordable_ns(self, cost_ns: int) -> int:
        """Return when so much more CPU time keeps all of it within its share."""
        assert self._begin_ns is not None
        needed_ns = round((self._settled_ns + _TURN_NS + _GROWTH * cost_ns) / _SHARE)
        return self._begin_ns + needed_ns - self._elapsed_ns

    def _elapsed(self) -> int:
        current = time.monotonic_ns() - self._begin_ns if self._begin_ns is not None else 0
        return self._elapsed_ns + current

    async def _wait_until(self, next_ns: int | None, now_ns: int) -> None:
        ahead_s = math.inf if next_ns is None else (next_ns - now_ns) / 1e9
        with trio.CancelScope(deadline=trio.current_time() + ahead_s) as self._sleep:
            await trio.sleep_forever()
        self._sleep = None

    # -- looking ----------------------------------------------------------------------------------

    def _open(self, batch: list[_State], now_ns: int) -> list[tuple[_State, int]]:
        opened = []
        for state in batch:
            try:
                opened.append((state, open_process(state.watched.pid)))
            except OSError:  # hidden from us, or no descriptor left: copies come first
                state.put_off(now_ns)
        return opened

    @staticmethod
    async def _read(
        reading: Reading, opened: list[tuple[_State, int]], left: Mapping[int, Sequence[int]]
    ) -> list[Look]:
        try:
            return await reading.read(
                [
                    Wanted(
                        state.watched,
                        directory,
                        state.past_gate,
                        tuple(left.get(state.watched.copy, ())),
                    )
                    for state, directory in opened
                ]
            )
        finally:
            for _, directory in opened:
                os.close(directory)

    def _take(self, state: _State, look: Look, emit: Callable[[Sampled], None]) -> None:
        self._spent_ns += look.cpu_ns
        if isinstance(look.result, NoSample):
            # One that has ended is not alive any more when we ask again, or is about to be reaped.
            state.put_off(look.at_ns)
            return
        if state.last_ns is not None:
            self._gaps += 1
            self._gaps_ns += look.at_ns - state.last_ns
        state.past_gate = True
        state.last_ns, state.cost_ns = look.at_ns, look.cpu_ns
        self._samples += 1
        self._looked_ns += look.cpu_ns
        self._longest_ns = max(self._longest_ns, look.result.read_ns)
        emit(look.result)
