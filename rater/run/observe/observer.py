"""Running copies looked at: where they run, and the memory they have."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

import trio
from msgspec import Struct, field

from rater.plan.options import Cadence
from rater.record.events import Observed, ResidentMemory, Sampled
from rater.run.host.procfs import SchedTimes, open_process, parse_status, read_piece, sched_times
from rater.run.host.thread_binding import realtime_priority
from rater.run.launcher.copies import Child
from rater.run.observe.probe import NoSample, Probe

# -- When copies are looked at: often enough to prove placement, seldom enough not to hurt ---------
#
# A look at resident memory reads counters that are there at once: 25 us a copy. A sample walks
# page tables besides: 0.1 ms, and 10 us a megabyte in 4 KB pages. So every copy is sampled once,
# and looked at after 1, 2, 3, 4.5, 6.8, 10 ... seconds, and so late that two thirds of it are seen;
# such a look is a sample as well where all samples together stay below their share of one CPU.
# Threads but the first are gone when a copy ends: where there are some, each second has a look.

FIRST_S = 0.2  # from a copy's release to its sample
# Where copies share CPUs a sample takes time from others of them, and those that end within half a
# second need none: they are sampled as late as lets all be seen within that time.
_CROWDED_FIRST_S = 0.45
_LEAST_S, _LONGEST_S = 1.0, 8.0  # between two looks
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
_TOGETHER_NS = 50_000_000  # looks that are due so close are one turn
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
    look_ns: int  # when its resident memory is to be looked at next
    past_gate: bool = False
    failures: int = 0  # samples that gave nothing
    cost_ns: int = 0  # CPU time of its last sample
    sampled_ns: int | None = None  # when that was
    result: Sampled | NoSample | None = None  # None: it is not sampled
    look: Look | None = None  # None: it is not looked at
    read_ns: int = 0  # when it was
    looked_ns: int = 0  # time that its looks stand for, since its release,
    byte_ns: int = 0  # and the memory it had, over that time
    most_bytes: int = 0
    looks: int = 0
    stopped_ns: int = 0
    threads: dict[int, SchedTimes] = field(default_factory=dict)  # but the first, as last seen

    @property
    def due_ns(self) -> int:
        """When it is its turn."""
        return min(self.sample_ns, self.look_ns)

    def take_look(self, look: Look) -> None:
        """Add a look at its resident memory, which stands for the time since the one before."""
        since_ns = self.read_ns - self.start_ns - self.looked_ns
        self.looked_ns += since_ns
        self.byte_ns += look.size_bytes * since_ns
        self.most_bytes = max(self.most_bytes, look.size_bytes)
        self.looks += 1
        self.stopped_ns += since_ns if look.stopped else 0
        self.threads |= look.threads

    def memory(self) -> ResidentMemory | None:
        """Return what its looks come to; None: there was none."""
        if not self.looks:
            return None
        mean = round(self.byte_ns / self.looked_ns)
        return ResidentMemory(mean, self.most_bytes, self.looks, self.stopped_ns)


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
        self.looked_ns = 0  # and of looks, which no budget holds back
        self._samples = 0
        self._owed = 0  # copies' first runs in each phase
        self._seen: Counter[int] = Counter()  # samples by copy
        self._gaps_ns = 0  # between two samples of a copy: their sum, and their number
        self._gaps = 0
        self._longest_ns = 0

    def started(self, child: Child) -> None:
        """Take note of a copy that was released: it will be looked at in time."""
        # The next run of a copy that was seen is as good as one more sample of it.
        owed, start_ns = not child.repeats, child.start_ns
        assert start_ns is not None
        self._owed += owed
        once = self._cadence.once
        one = _Watched(
            child=child,
            start_ns=start_ns,
            owed=owed,
            sample_ns=_NEVER if once and not owed else start_ns + round(FIRST_S * 1e9),
            look_ns=_NEVER if once else start_ns + round(_LEAST_S * 1e9),
        )
        self._watched[child.pid] = one
        self._line_up(one)

    def ended(self, child: Child) -> None:
        """Give a copy what was seen of it; its number is not its own any more."""
        one = self._watched.pop(child.pid, None)
        if one is not None:
            child.other_threads = [*one.threads.values()]
            child.memory = one.memory()
        if not self._watched:  # of short phases nobody takes what is in line
            self._line.clear()

    async def run(self, orphans: _Orphans, emit: Callable[[Sampled], None]) -> None:
        """Look at copies until cancelled.

        `orphans` returns the processes that copies left without a parent, by copy.
        `emit` gets the samples, at times a moment after their copy's end.
        """
        self._begin_ns = time.monotonic_ns()
        try:
            while True:
                now_ns = time.monotonic_ns()
                batch = self._take_turn(now_ns)
                if batch:
                    await self._look(batch, orphans, emit)
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

    def report(self) -> Observed:
        """Return what it came to so far."""
        elapsed_ns = self._so_far_ns(time.monotonic_ns())
        spent_ns = self._spent_ns + self.looked_ns
        return Observed(
            cadence=str(self._cadence),
            samples=self._samples,
            interval_s=self._gaps_ns / self._gaps / 1e9 if self._gaps else None,
            cpu_s=spent_ns / 1e9,
            share=spent_ns / elapsed_ns if elapsed_ns else 0.0,
            longest_read_s=self._longest_ns / 1e9,
            unknown=tuple(self._probe.unknown),
        )

    def _so_far_ns(self, now_ns: int) -> int:
        return self._elapsed_ns + (0 if self._begin_ns is None else now_ns - self._begin_ns)

    # -- whose turn it is -------------------------------------------------------------------------

    def _line_up(self, one: _Watched) -> None:
        """Set its turn; of any number that are due together, those seen least come first.

        Then they are spread over CPUs and lgroups, as multiples of the golden ratio are, however
        many are taken, and so are the numbers of copies taken in their order.
        """
        if one.due_ns < _NEVER:
            self._number += 1
            rank = self._seen[one.child.copy] + one.child.copy * _GOLDEN % 1
            heappush(self._line, (one.due_ns, rank, self._number, one))
            if self._line[0][3] is one:
                self._woken.set()

    def _take_turn(self, now_ns: int) -> list[_Watched]:
        """Return whom to look at now; `result` says whom to sample."""
        batch: list[_Watched] = []
        spent_ns = self._spent_ns
        while self._line and self._line[0][0] <= now_ns and len(batch) < _MOST_IN_TURN:
            one = heappop(self._line)[3]
            if self._watched.get(one.child.pid) is not one:
                continue
            one.result = one.look = None
            if one.owed:
                one.sample_ns = max(one.sample_ns, one.start_ns + self._first_ns)
            if one.sample_ns <= now_ns:
                mean_ns = self._spent_ns // self._samples if self._samples else _SAMPLE_NS
                cost_ns = one.cost_ns or mean_ns
                if self._affords(one, now_ns, spent_ns + cost_ns):
                    one.result = NoSample.ENDED  # until it was sampled
                    spent_ns += cost_ns
                else:
                    one.sample_ns = self._later_ns(one, now_ns)
            if one.result is not None or one.look_ns <= now_ns:
                batch.append(one)
            else:
                self._line_up(one)
        return batch

    def _later_ns(self, one: _Watched, now_ns: int) -> int:
        """Return when a sample is due that could not be afforded: with a look."""
        if one.look_ns <= now_ns:
            return _NEVER  # until that look is over
        sure_ns = one.start_ns + self._sure_ns
        return min(one.look_ns, sure_ns) if one.owed and sure_ns > now_ns else one.look_ns

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

    def _affords(self, one: _Watched, now_ns: int, spent_ns: int) -> bool:
        """Tell whether the budget has room for a sample; `spent_ns`: with that and those before."""
        if self._cadence != _AUTO:
            return True
        granted_ns = _SHARE * self._so_far_ns(now_ns)
        if one.owed:
            old = now_ns - one.start_ns >= self._sure_ns
            return old or spent_ns <= granted_ns + _AT_ONCE_NS + _EACH_NS * self._owed
        return spent_ns + (_GROWTH - 1) * one.cost_ns + _TURN_NS <= granted_ns

    # -- looking ----------------------------------------------------------------------------------

    async def _look(
        self, batch: list[_Watched], orphans: _Orphans, emit: Callable[[Sampled], None]
    ) -> None:
        begin_ns = time.thread_time_ns()
        left = orphans() if any(one.result is not None for one in batch) else {}
        with trio.CancelScope(shield=True):  # what was sampled is not lost
            cost_ns = await trio.to_thread.run_sync(self._look_at_all, batch, left)
        for one in batch:
            self._go_on(one, emit)
        self.looked_ns += cost_ns + time.thread_time_ns() - begin_ns + _TURN_NS
        await trio.lowlevel.checkpoint()

    def _look_at_all(self, batch: list[_Watched], left: Mapping[int, Sequence[int]]) -> int:
        """Look at each, in a thread; return the CPU time of all that is no sample."""
        begin_ns = time.thread_time_ns()
        sampled_ns = 0
        with realtime_priority() if self._prompt else nullcontext():
            for one in batch:
                if one.look_ns <= time.monotonic_ns():
                    one.look = resident_of_tree(one.child.pid)
                one.read_ns = time.monotonic_ns()
                if one.result is not None:
                    sample_ns = time.thread_time_ns()
                    one.result = self._sample(one, left.get(one.child.copy, ()))
                    one.cost_ns = time.thread_time_ns() - sample_ns
                    sampled_ns += one.cost_ns
        return time.thread_time_ns() - begin_ns - sampled_ns

    def _sample(self, one: _Watched, orphans: Sequence[int]) -> Sampled | NoSample:
        try:
            directory = open_process(one.child.pid)
        except OSError:  # it has ended, is hidden from us, or no descriptor is left
            return NoSample.ENDED
        try:
            return self._probe.sample(one.child, directory, one.past_gate, tuple(orphans))
        finally:
            os.close(directory)

    def _go_on(self, one: _Watched, emit: Callable[[Sampled], None]) -> None:
        """Take what was seen, and set when it is its turn again."""
        now_ns, found, is_there = one.read_ns, one.result, self._watched.get(one.child.pid) is one
        if one.look is not None:
            if one.look.size_bytes and is_there:
                one.take_look(one.look)
            while one.look_ns <= now_ns:
                age_s = (one.look_ns - one.start_ns) / 1e9
                wait_s = _LEAST_S if one.threads else min(max(age_s / 2, _LEAST_S), _LONGEST_S)
                one.look_ns += round(wait_s * 1e9)
        if found is not None:
            self._spent_ns += one.cost_ns
        if isinstance(found, NoSample):
            one.sample_ns = now_ns + (_AGAIN_NS << one.failures)
            one.failures = min(one.failures + 1, _MOST_FAILURES)
        elif found is not None:
            if one.sampled_ns is not None:
                self._gaps += 1
                self._gaps_ns += now_ns - one.sampled_ns
            one.owed, one.past_gate, one.sampled_ns = False, True, now_ns
            self._samples += 1
            self._seen[one.child.copy] += 1
            self._longest_ns = max(self._longest_ns, found.read_ns)
            emit(found)
            one.sample_ns = one.look_ns if self._every_ns is None else now_ns + self._every_ns
        elif one.look is not None and self._every_ns is None:
            one.sample_ns = self._later_ns(one, now_ns)
        if is_there:
            self._line_up(one)


# -- Resident memory: the counters that the kernel keeps -------------------------------------------
#
# How long its first thread waited for a CPU is told at a copy's end, exactly; the other threads and
# processes are gone by then, so their last look stands for them. Appendix A of the page-size paper
# (J. Korn and others) gives mean and maximum of such looks.

_MOST_PROCESSES = 16  # of one copy
_MOST_THREADS = 128  # of one process: 5 us each


class Look(NamedTuple):
    """A look at a copy; `size_bytes` 0: nothing was seen of it."""

    size_bytes: int
    stopped: bool
    threads: dict[int, SchedTimes]  # all but the copy's first


def resident_of_tree(root: int) -> Look:
    """Look at a copy and its children: what they share counts once, as the largest has it.

    Children are those of the first threads.
    """
    private = shared = 0
    stopped = False
    times: dict[int, SchedTimes] = {}
    tree = [root]
    for pid in tree:  # which grows
        with suppress(OSError):  # it has ended, or this kernel does not tell children
            found = parse_status(read_piece(f"/proc/{pid}/status"))
            private += found.private_bytes
            shared = max(shared, found.shared_bytes)
            stopped |= pid == root and found.state.startswith(("T", "t"))
            several = found.threads > 1
            tasks = os.listdir(f"/proc/{pid}/task") if several else [str(pid)]  # noqa: PTH208
            for task in islice(tasks, _MOST_THREADS):
                own = None if task == str(root) else sched_times(f"/proc/{pid}/task/{task}")
                times |= {} if own is None else {int(task): own}
            children = read_piece(f"/proc/{pid}/task/{pid}/children").split()
            tree += map(int, children[: _MOST_PROCESSES - len(tree)])
    return Look(private + shared, stopped, times)
