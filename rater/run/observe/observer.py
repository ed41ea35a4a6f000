"""Running copies sampled: where they run, and where their memory lies."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from heapq import heappop, heappush

import trio
from msgspec import Struct

from rater.plan.options import Cadence
from rater.record.events import Observed, Sampled
from rater.run.host.procfs import open_process
from rater.run.host.thread_binding import realtime_priority
from rater.run.launcher.copies import Child
from rater.run.observe.probe import NoSample, Probe

# -- When copies are sampled: often enough to prove placement, seldom enough not to hurt -----------
#
# A sample walks page tables: 0.1 ms, and 10 us a megabyte in 4 KB pages. So every copy is sampled
# once, and after 1, 2, 3, 4.5, 6.8, 10 ... seconds where all samples together stay below their
# share of one CPU. At the same ages the launcher looks at the counters of resident memory
# (`native/looks.c`), and so late that two thirds of a copy are seen.

FIRST_S = 0.2  # from a copy's release to its sample
# Where copies share CPUs a sample takes time from others of them, and those that end within half a
# second need none: they are sampled as late as lets all be seen within that time.
_CROWDED_FIRST_S = 0.45
FIRST_LOOK_MS = 1000  # from a copy's begin to the launcher's first look
_LEAST_NS, _LONGEST_NS = 1_000_000_000, 8_000_000_000  # between two turns of a copy
# Copies that live for so long are all sampled; others as far as a budget goes: a share of one CPU,
# so much at once, and so much for each copy.
_SURE_NS = 2_000_000_000
_CROWDED_SURE_NS = 10_000_000_000  # where they share CPUs: it takes seconds until all have begun
_SHARE = 0.0015
_AT_ONCE_NS = 4_000_000
_EACH_NS = 25_000
_SAMPLE_NS = 250_000  # CPU time of a sample of a small copy whose caches are cold
_GROWTH = 2  # a copy may have grown so much since its last sample, and its cost with it
# Waking the event loop and handing over to a thread can not be separated from other work of the
# process: 0.25 and 0.3 ms where the copies keep every cache cold.
_TURN_NS = 500_000
_TOGETHER_NS = 50_000_000  # samples that are due so close are one turn
_MOST_IN_TURN = 64
_AGAIN_NS = 50_000_000  # after a sample that gave nothing, then twice that
_MOST_FAILURES = 4
_GOLDEN = (math.sqrt(5) - 1) / 2
_AUTO = Cadence()
_NEVER = 1 << 62

type _Orphans = Callable[[], Mapping[int, Sequence[int]]]


class _Watched(Struct, eq=False, kw_only=True):
    """A copy that runs, and what was seen of it; a thread that looks at it has it for that time."""

    child: Child
    start_ns: int  # its release
    owed: bool  # it is to be sampled once, as soon as that can be afforded
    sample_ns: int  # when it is to be sampled next, of CLOCK_MONOTONIC
    turn_ns: int  # the next of its ages at which it may be sampled; `_NEVER`: once is enough
    past_gate: bool = False
    failures: int = 0  # samples that gave nothing
    cost_ns: int = 0  # CPU time of its last sample
    sampled_ns: int | None = None  # when that was
    result: Sampled | NoSample = NoSample.ENDED  # of this turn
    read_ns: int = 0  # when this turn read it

    def next_turn_ns(self, now_ns: int) -> int:
        """Return when its first turn is that is to come."""
        while self.turn_ns <= now_ns:
            age_ns = self.turn_ns - self.start_ns
            self.turn_ns += min(max(age_ns // 2, _LEAST_NS), _LONGEST_NS)
        return self.turn_ns


class Observer:
    """Looks at the copies of a run, phase by phase; on the trio thread.

    `spread`, `adopter`: see `Probe`; not spread when rater has CPUs of its own.
    """

    def __init__(
        self, cadence: Cadence, *, spread: bool = True, adopter: int | None = None
    ) -> None:
        self._cadence = cadence
        self._every_ns = round(cadence.every_s * 1e9) if cadence.every_s else None
        self._probe = Probe(spread, adopter)
        # Reading is not to be preempted while the kernel holds a lock of a copy's memory for it.
        # Where rater lives on one CPU it would be the supervisor that waits.
        self._prompt = spread and len(os.sched_getaffinity(0)) > 1
        self._cpus = os.cpu_count() or 1
        self._watched: dict[int, _Watched] = {}  # by pid
        self._line: list[tuple[int, float, int, _Watched]] = []  # heap by when it is their turn
        self._number = 0
        self._woken = trio.Event()
        self._begin_ns: int | None = None
        self._elapsed_ns = 0  # of phases that are over
        self._spent_ns = 0  # CPU time of samples,
        self.looked_ns = 0  # and of looks and turns, which no budget holds back
        self._samples = 0
        self._owed = 0  # copies' first runs in each phase
        self._seen: Counter[int] = Counter()  # samples by copy
        self._gaps_ns = 0  # between two samples of a copy: their sum, and their number
        self._gaps = 0
        self._longest_ns = 0

    @property
    def first_look_ms(self) -> int:
        """How long after a copy's begin the launcher looks at it; 0: not at all."""
        return 0 if self._cadence.once else FIRST_LOOK_MS

    def started(self, child: Child) -> None:
        """Take note of a copy that was released: it will be looked at in time."""
        # The next run of a copy that was seen is as good as one more sample of it.
        is_owed, start_ns = not child.repeats, child.start_ns
        assert start_ns is not None
        self._owed += is_owed
        samples_once = self._cadence.once
        watched = _Watched(
            child=child,
            start_ns=start_ns,
            owed=is_owed,
            sample_ns=_NEVER if samples_once and not is_owed else start_ns + round(FIRST_S * 1e9),
            turn_ns=_NEVER if samples_once else start_ns + _LEAST_NS,
        )
        self._watched[child.pid] = watched
        self._line_up(watched)

    def ended(self, child: Child, look_cpu_ns: int = 0) -> None:
        """Forget a copy: another process may have its pid. Its looks have cost so much."""
        self.looked_ns += look_cpu_ns
        self._watched.pop(child.pid, None)
        if not self._watched:  # of short phases nobody takes what is in line
            self._line.clear()

    async def run(self, orphans: _Orphans, emit: Callable[[Sampled], None]) -> None:
        """Sample copies until cancelled.

        `orphans` returns the processes that copies left without a parent, by copy.
        `emit` gets the samples, at times a moment after their copy's end.
        """
        self._begin_ns = time.monotonic_ns()
        try:
            while True:
                now_ns = time.monotonic_ns()
                batch = self._take_turn(now_ns)
                if batch:
                    await self._sample_all(batch, orphans, emit)
                    continue
                self._woken = trio.Event()
                ahead_ns = self._line[0][0] - now_ns if self._line else _NEVER
                with trio.move_on_after(max(ahead_ns, _TOGETHER_NS) / 1e9):
                    await self._woken.wait()
        finally:
            self._elapsed_ns = self._so_far_ns(time.monotonic_ns())
            self._begin_ns = None
            self._watched.clear()
            self._line.clear()

    def report(self, unknown: Iterable[str] = ()) -> Observed:
        """Return how often copies were sampled so far, and what that cost; `unknown`: besides."""
        elapsed_ns = self._so_far_ns(time.monotonic_ns())
        spent_ns = self._spent_ns + self.looked_ns
        return Observed(
            cadence=str(self._cadence),
            samples=self._samples,
            interval_s=self._gaps_ns / self._gaps / 1e9 if self._gaps else None,
            cpu_s=spent_ns / 1e9,
            share=spent_ns / elapsed_ns if elapsed_ns else 0.0,
            longest_read_s=self._longest_ns / 1e9,
            unknown=(*self._probe.unknown, *unknown),
        )

    def _so_far_ns(self, now_ns: int) -> int:
        return self._elapsed_ns + (0 if self._begin_ns is None else now_ns - self._begin_ns)

    # -- whose turn it is -------------------------------------------------------------------------

    def _line_up(self, watched: _Watched) -> None:
        """Set its turn; of any number that are due together, those seen least come first.

        Then they are spread over CPUs and lgroups, as multiples of the golden ratio are, however
        many are taken, and so are the numbers of copies taken in their order.
        """
        if watched.sample_ns < _NEVER:
            self._number += 1
            rank = self._seen[watched.child.copy] + watched.child.copy * _GOLDEN % 1
            heappush(self._line, (watched.sample_ns, rank, self._number, watched))
            if self._line[0][3] is watched:
                self._woken.set()

    def _take_turn(self, now_ns: int) -> list[_Watched]:
        """Return the copies to sample now."""
        batch: list[_Watched] = []
        spent_ns = self._spent_ns
        while self._line and self._line[0][0] <= now_ns and len(batch) < _MOST_IN_TURN:
            watched = heappop(self._line)[3]
            if self._watched.get(watched.child.pid) is not watched:
                continue
            if watched.owed and now_ns < watched.start_ns + self._first_ns:
                watched.sample_ns = watched.start_ns + self._first_ns
                self._line_up(watched)
                continue
            mean_ns = self._spent_ns // self._samples if self._samples else _SAMPLE_NS
            cost_ns = watched.cost_ns or mean_ns
            if self._affords(watched, now_ns, spent_ns + cost_ns):
                spent_ns += cost_ns
                batch.append(watched)
            else:
                watched.sample_ns = self._later_ns(watched, now_ns)
                self._line_up(watched)
        return batch

    def _later_ns(self, watched: _Watched, now_ns: int) -> int:
        """Return when a sample is due again that could not be afforded."""
        turn_ns, sure_ns = watched.next_turn_ns(now_ns), watched.start_ns + self._sure_ns
        return min(turn_ns, sure_ns) if watched.owed and sure_ns > now_ns else turn_ns

    @property
    def _first_ns(self) -> int:
        late_s = _CROWDED_FIRST_S - len(self._watched) * _SAMPLE_NS / 1e9
        return round(max(FIRST_S, late_s if self._is_crowded else 0) * 1e9)

    @property
    def _sure_ns(self) -> int:
        return _CROWDED_SURE_NS if self._is_crowded else _SURE_NS

    @property
    def _is_crowded(self) -> bool:
        return len(self._watched) > self._cpus

    def _affords(self, watched: _Watched, now_ns: int, spent_ns: int) -> bool:
        """Tell whether the budget has room for a sample; `spent_ns`: with that and those before."""
        if self._cadence != _AUTO:
            return True
        granted_ns = _SHARE * self._so_far_ns(now_ns)
        if watched.owed:
            is_old = now_ns - watched.start_ns >= self._sure_ns
            return is_old or spent_ns <= granted_ns + _AT_ONCE_NS + _EACH_NS * self._owed
        return spent_ns + (_GROWTH - 1) * watched.cost_ns + _TURN_NS <= granted_ns

    # -- sampling ---------------------------------------------------------------------------------

    async def _sample_all(
        self, batch: list[_Watched], orphans: _Orphans, emit: Callable[[Sampled], None]
    ) -> None:
        begin_ns = time.thread_time_ns()
        orphans_by_copy = orphans()
        with trio.CancelScope(shield=True):  # what was sampled is not lost
            cost_ns = await trio.to_thread.run_sync(self._sample_in_thread, batch, orphans_by_copy)
        for watched in batch:
            self._finish_turn(watched, emit)
        self.looked_ns += cost_ns + time.thread_time_ns() - begin_ns + _TURN_NS
        await trio.lowlevel.checkpoint()

    def _sample_in_thread(
        self, batch: list[_Watched], orphans_by_copy: Mapping[int, Sequence[int]]
    ) -> int:
        """Sample each copy, in a thread; return the CPU time without that of samples."""
        begin_ns = time.thread_time_ns()
        sampled_ns = 0
        with realtime_priority() if self._prompt else nullcontext():
            for watched in batch:
                watched.read_ns = time.monotonic_ns()
                sample_ns = time.thread_time_ns()
                watched.result = self._sample(watched, orphans_by_copy.get(watched.child.copy, ()))
                watched.cost_ns = time.thread_time_ns() - sample_ns
                sampled_ns += watched.cost_ns
        return time.thread_time_ns() - begin_ns - sampled_ns

    def _sample(self, watched: _Watched, orphans: Sequence[int]) -> Sampled | NoSample:
        try:
            directory = open_process(watched.child.pid)
        except OSError:  # it has ended, is hidden from us, or no descriptor is left
            return NoSample.ENDED
        try:
            return self._probe.sample(watched.child, directory, watched.past_gate, tuple(orphans))
        finally:
            os.close(directory)

    def _finish_turn(self, watched: _Watched, emit: Callable[[Sampled], None]) -> None:
        """Add the result of this turn, and set when the copy's next turn is."""
        now_ns, result = watched.read_ns, watched.result
        self._spent_ns += watched.cost_ns
        if isinstance(result, NoSample):
            watched.sample_ns = now_ns + (_AGAIN_NS << watched.failures)
            watched.failures = min(watched.failures + 1, _MOST_FAILURES)
        else:
            if watched.sampled_ns is not None:
                self._gaps += 1
                self._gaps_ns += now_ns - watched.sampled_ns
            watched.owed, watched.past_gate, watched.sampled_ns = False, True, now_ns
            self._samples += 1
            self._seen[watched.child.copy] += 1
            self._longest_ns = max(self._longest_ns, result.read_ns)
            emit(result)
            watched.sample_ns = (
                watched.next_turn_ns(now_ns) if self._every_ns is None else now_ns + self._every_ns
            )
        if self._watched.get(watched.child.pid) is watched:
            self._line_up(watched)
