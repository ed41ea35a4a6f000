"""Running copies looked at: where they run, and their resident memory."""

from __future__ import annotations

import math
import os
import queue
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import islice
from typing import NamedTuple

import trio
from msgspec import Struct, field

from rater.plan.options import Cadence
from rater.record.events import Observed, ResidentMemory, Sampled
from rater.run.copies.launch import Child
from rater.run.host.procfs import (
    SchedTimes,
    open_process,
    parse_resident,
    read_piece,
    sched_times,
)
from rater.run.host.thread_binding import realtime_priority
from rater.run.observe.probe import NoSample, Probe, RunningCopy

# -- How much memory copies have, looked at once a second: enough for its mean over time -----------
#
# A sample of `Probe` walks page tables, which takes 10 us a megabyte; the counters that the
# kernel keeps of a process are there at once. So every copy has a look every second, however
# many there are, and whatever its size: about 25 us of CPU time each. Copies of less than
# 0.9 s are left alone. How long its first thread waited for a CPU is told at its end, exactly;
# the other threads and processes are gone by then, so their last look stands for them.
#
# Appendix A of the page-size paper (J. Korn and others) gives mean and maximum of such looks.

EVERY_S = 1.0
_LEAST_AGE_NS = 900_000_000  # of a copy: a mean over less says nothing, and many are short
_MOST_PROCESSES = 16  # of one copy
_MOST_THREADS = 128  # of one process: 5 us each


class _Looks(Struct):
    """Of one copy's run."""

    total_bytes: int = 0
    most_bytes: int = 0
    number: int = 0
    stopped: int = 0
    threads: dict[int, SchedTimes] = field(default_factory=dict)  # but the first, as last seen


class _Look(NamedTuple):
    """At one copy; `size` 0: nothing was seen of it."""

    size: int
    stopped: bool
    threads: dict[int, SchedTimes]


class ResidentLooks:
    """Looks at the copies of one phase; on the trio thread. `spent_ns`: CPU time of all looks."""

    def __init__(self) -> None:
        self._found: dict[int, _Looks] = {}  # by pid, of those that are not reaped
        self.spent_ns = 0

    async def watch(self, alive: Mapping[int, Child]) -> None:
        """Look once a second until cancelled, in a thread: a copy's end is not to wait for it."""
        due_s = trio.current_time() + EVERY_S
        while True:
            await trio.sleep_until(due_s)
            due_s = max(due_s + EVERY_S, trio.current_time())
            latest_ns = time.monotonic_ns() - _LEAST_AGE_NS
            looked = [
                it
                for it in alive.values()
                if it.start_ns is not None and it.start_ns <= latest_ns and not it.filler
            ]
            if not looked:
                continue
            begin = partial(_looks, [it.pid for it in looked])
            seen, spent_ns = await trio.to_thread.run_sync(begin, abandon_on_cancel=True)
            self.spent_ns += spent_ns
            # What has ended meanwhile is left out: its number may be another's by now.
            living = set(map(id, alive.values()))
            for child, look in zip(looked, seen, strict=True):
                if look.size and id(child) in living:
                    looks = self._found.setdefault(child.pid, _Looks())
                    looks.total_bytes += look.size
                    looks.most_bytes = max(looks.most_bytes, look.size)
                    looks.number += 1
                    looks.stopped += look.stopped
                    looks.threads |= look.threads

    def ended(self, child: Child) -> ResidentMemory | None:
        """Return what was seen of a copy that has ended; None: it was not looked at."""
        looks = self._found.pop(child.pid, None)
        if looks is None:
            return None
        child.other_threads = [*looks.threads.values()]
        return ResidentMemory(
            round(looks.total_bytes / looks.number),
            looks.most_bytes,
            looks.number,
            round(looks.stopped * EVERY_S * 1e9),
        )


def _looks(pids: Sequence[int]) -> tuple[list[_Look], int]:
    begin_ns = time.thread_time_ns()
    return [_of_tree(pid) for pid in pids], time.thread_time_ns() - begin_ns


def _of_tree(root: int) -> _Look:
    """Look at a copy and its children: what they share counts once, as the largest has it.

    Children are those of the first threads.
    """
    private = shared = 0
    stopped = False
    times: dict[int, SchedTimes] = {}
    tree = [root]
    for pid in tree:  # which grows
        with suppress(OSError):  # it has ended, or this kernel does not tell children
            found = parse_resident(read_piece(f"/proc/{pid}/status"))
            private += found.private_bytes
            shared = max(shared, found.shared_bytes)
            stopped |= found.stopped and pid == root
            several = found.threads > 1
            tasks = os.listdir(f"/proc/{pid}/task") if several else [str(pid)]  # noqa: PTH208
            for task in islice(tasks, _MOST_THREADS):
                own = None if task == str(root) else sched_times(f"/proc/{pid}/task/{task}")
                times |= {} if own is None else {int(task): own}
            children = read_piece(f"/proc/{pid}/task/{pid}/children").split()
            tree += map(int, children[: _MOST_PROCESSES - len(tree)])
    return _Look(private + shared, stopped, times)


# -- Sample copies while they run, often enough to prove their placement, seldom enough not to hurt
#
# The kernel walks page tables for a sample: 10 us for a megabyte in 4 KB pages, twice
# that where transparent huge pages are counted too. So each sample's CPU time
# is measured, and the next is made when all of them together stay below their share of
# one CPU. Every copy that lives for half a second is sampled once, whatever it
# costs.

FIRST_S = 0.2  # from a copy's release to its first sample
# Where copies share CPUs a sample takes time from others of them, and those that end within half a
# second need none: they are sampled as late as lets all be seen within that time.
_CROWDED_FIRST_S = 0.45
# With as often as costs little: copies that live for so long are all sampled; for the others there
# is a budget, besides the share of one CPU: so much at once, and so much for each copy.
_SURE_NS = 2_000_000_000
_CROWDED_SURE_NS = 10_000_000_000  # where they share CPUs: it takes seconds until all have begun
_AT_ONCE_NS = 4_000_000
_EACH_NS = 25_000
_GOLDEN = (math.sqrt(5) - 1) / 2
_SAMPLE_NS = 250_000  # CPU time of a sample of a small copy whose caches are cold
_AGAIN_NS = 50_000_000  # after a sample that gave nothing
_AGAIN_AT_MOST_NS = 1_000_000_000
_LEAST_AUTO_S = 1.0  # memory that moves faster is only seen to move
_SHARE = 0.008  # of one CPU; the promise is 0.01
_GROWTH = 2  # a copy may have grown so much since its last sample, and its cost with it
# Waking the event loop and handing over to the sampling thread can not be separated from other
# work of the process: 0.25 and 0.3 ms where the copies keep every cache cold.
_TURN_NS = 500_000
_MOST_IN_BATCH = 32  # copies sampled in one turn of the sampling thread
_BATCH_CPU_NS = 5_000_000  # a turn ends when this was probably used
_TOGETHER = 0.1  # of the interval: samples due so close are one turn


_AUTO = Cadence()


class _State(Struct, eq=False):
    """What is known of a copy that runs; the thread that samples it has it for that time."""

    copy: RunningCopy
    due_ns: int = 0  # of its next sample
    last_ns: int | None = None
    cost_ns: int = 0  # CPU time of its last sample
    past_gate: bool = False
    failures: int = 0  # samples that gave nothing
    directory: int = -1  # an open descriptor of its /proc/PID
    orphans: tuple[int, ...] = ()  # processes of it that are our children
    result: Sampled | NoSample = NoSample.ENDED
    read_ns: int = 0  # of CLOCK_MONOTONIC, when it was sampled


type _Orphans = Callable[[], Mapping[int, Sequence[int]]]
type _Line = OrderedDict[int, _State]  # by pid, who is due first in front


class _SamplingThread:
    """Samples what it is given: the thread, and its face on the trio thread.

    A thread of trio's pool wakes as an ordinary one: with 64 busy copies a CPU that is up
    to 0.1 s late for every batch. This one takes real-time priority once, and is then not
    preempted either while the kernel holds a lock of a copy's memory for it.
    """

    def __init__(self, spread: bool) -> None:
        self.probe = Probe(spread)
        self._spread = spread
        self._batches: queue.SimpleQueue[list[_State] | None] = queue.SimpleQueue()
        self._sampled = trio.Event()

    async def run(self) -> None:
        """Be the thread, until `close`."""
        try:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._serve)
        finally:
            self._sampled.set()  # nobody waits for it, unless the thread broke

    def close(self) -> None:
        """Let the thread end."""
        self._batches.put(None)

    async def sample(self, opened: list[_State]) -> None:
        """Have each sampled in order; not to be cancelled, as the descriptors are in use."""
        self._sampled = trio.Event()
        self._batches.put(opened)
        try:
            with trio.CancelScope(shield=True):
                await self._sampled.wait()
        finally:
            for state in opened:
                os.close(state.directory)

    def _serve(self) -> None:
        # Where rater lives on one CPU it would be the supervisor that waits.
        prompt = self._spread and len(os.sched_getaffinity(0)) > 1
        with realtime_priority() if prompt else nullcontext():
            while (batch := self._batches.get()) is not None:
                for state in batch:
                    begin = time.thread_time_ns()
                    state.result = self.probe.sample(
                        state.copy, state.directory, state.past_gate, state.orphans
                    )
                    state.read_ns = time.monotonic_ns()
                    state.cost_ns = time.thread_time_ns() - begin
                trio.from_thread.run_sync(self._sampled.set)


class Observer:
    """Samples the copies of a run, phase by phase; on the trio thread.

    `spread`: see `Probe`; False when rater has CPUs of its own.
    """

    def __init__(self, cadence: Cadence, *, spread: bool = True) -> None:
        self._cadence = cadence
        self.once = cadence.once
        self.looked_ns = 0  # CPU time of `ResidentLooks`, which no budget holds back
        self._interval_ns = round((cadence.every_s or _LEAST_AUTO_S) * 1e9)
        self._thread = _SamplingThread(spread)
        self._new: _Line = OrderedDict()  # released since the last turn
        self._owed: _Line = OrderedDict()  # to be sampled for the first time
        self._again: _Line = OrderedDict()  # for another time, as far as it can be afforded
        self._lines = (self._new, self._owed, self._again)
        self._sleep: trio.CancelScope | None = None
        self._begin_ns: int | None = None
        self._elapsed_ns = 0  # of phases that are over
        self._spent_ns = 0  # CPU time
        self._settled_ns = 0  # the same as the next sample is planned by
        self._cpus = os.cpu_count() or 1
        self._samples = 0
        self._released = 0  # copies' first runs in each phase
        self._seen: Counter[int] = Counter()  # samples by copy
        self._gaps_ns = 0
        self._gaps = 0
        self._longest_ns = 0

    def started(self, copy: RunningCopy) -> None:
        """Take note of a copy that was released: it will be sampled in time."""
        self._new[copy.pid] = _State(copy)
        if self._sleep is not None:
            soon = trio.current_time() + FIRST_S
            self._sleep.deadline = min(self._sleep.deadline, soon)

    def ended(self, pid: int) -> None:
        """Take note of a copy that is about to be reaped: its number is not its own any more."""
        for line in self._lines:
            line.pop(pid, None)

    async def run(self, orphans: _Orphans, emit: Callable[[Sampled], None]) -> None:
        """Sample copies until cancelled.

        `orphans` returns the processes of copies that are our children by now, by copy.
        `emit` gets the samples, at times a moment after their copy's end.
        """
        self._begin_ns = time.monotonic_ns()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._thread.run)
                try:
                    while True:
                        await self._go_round(orphans, emit)
                finally:
                    self._thread.close()
        finally:
            self._elapsed_ns += time.monotonic_ns() - self._begin_ns
            self._begin_ns = None
            self._sleep = None
            for line in self._lines:
                line.clear()

    async def _go_round(self, orphans: _Orphans, emit: Callable[[Sampled], None]) -> None:
        begin = time.thread_time_ns()
        now = time.monotonic_ns()
        batch, next_ns = self._turn(now)
        opened = self._open(batch, now, orphans)
        self._spent_ns += time.thread_time_ns() - begin
        if opened:
            self._spent_ns += _TURN_NS
            await self._thread.sample(opened)
            begin = time.thread_time_ns()
            for state in opened:
                self._take(state, emit)
            self._spent_ns += time.thread_time_ns() - begin
            # Only now: a plan that each waking for it puts off is never carried out.
            self._settled_ns = self._spent_ns
            await trio.lowlevel.checkpoint()
        elif not batch:
            await self._wait_until(next_ns, now)

    def report(self) -> Observed:
        """Return what it came to so far."""
        elapsed_ns = self._so_far_ns(time.monotonic_ns())
        return Observed(
            cadence=str(self._cadence),
            samples=self._samples,
            interval_s=self._gaps_ns / self._gaps / 1e9 if self._gaps else None,
            cpu_s=(self._spent_ns + self.looked_ns) / 1e9,
            share=(self._spent_ns + self.looked_ns) / elapsed_ns if elapsed_ns else 0.0,
            longest_read_s=self._longest_ns / 1e9,
            unknown=tuple(self._thread.probe.unknown),
        )

    def _so_far_ns(self, now_ns: int) -> int:
        return self._elapsed_ns + (0 if self._begin_ns is None else now_ns - self._begin_ns)

    # -- whose turn it is -------------------------------------------------------------------------

    def _turn(self, now_ns: int) -> tuple[list[_State], int | None]:
        """Return whom to sample now; when there is nobody, also when to ask again."""
        self._line_up()
        first = list(islice(self._owed.values(), _MOST_IN_BATCH))
        due = [state for state in first if state.due_ns <= now_ns]
        room, room_ns = self._room(now_ns)
        crowded = sum(map(len, self._lines)) > self._cpus
        sure_ns = _CROWDED_SURE_NS if crowded else _SURE_NS
        sure = [state for state in due if now_ns - state.copy.start_ns >= sure_ns]
        batch = due[:room] if room >= len(sure) else sure
        if batch:
            return batch, None
        batch, again_ns = self._affordable()
        if batch and again_ns <= now_ns:
            return batch, None
        times = [max(it.due_ns, min(room_ns, it.copy.start_ns + sure_ns)) for it in first] + (
            [again_ns] if batch else []
        )
        return [], min(times, default=None)

    def _room(self, now_ns: int) -> tuple[int, int]:
        """Return how many first samples the budget has room for, and when it has for one."""
        if self._cadence != _AUTO:
            return _MOST_IN_BATCH, now_ns
        granted_ns = (
            _AT_ONCE_NS + _EACH_NS * self._released + round(_SHARE * self._so_far_ns(now_ns))
        )
        mean_ns = self._spent_ns // self._samples if self._samples else _SAMPLE_NS
        left_ns = granted_ns - self._spent_ns
        return max(0, left_ns // mean_ns), now_ns + round((mean_ns - left_ns) / _SHARE)

    def _line_up(self) -> None:
        """Set when those that were released since the last turn are sampled."""
        copies = sum(map(len, self._lines))
        first_ns = round(FIRST_S * 1e9)
        if copies > self._cpus:
            first_ns = max(first_ns, round(_CROWDED_FIRST_S * 1e9) - copies * _SAMPLE_NS)
        for state in sorted(self._new.values(), key=self._fair_order):
            state.due_ns = state.copy.start_ns + first_ns
            # The next run of a copy that was seen is as good as one more sample of it.
            if not state.copy.repeats:
                self._owed[state.copy.pid] = state
                self._released += 1
            elif not self._cadence.once:
                self._again[state.copy.pid] = state
        self._new.clear()

    def _fair_order(self, state: _State) -> tuple[int, float]:
        """Rank those seen least first, and of these any number spread over CPUs and lgroups.

        Multiples of the golden ratio are spread evenly, however many are taken, and so are the
        numbers of copies taken in their order.
        """
        return self._seen[state.copy.copy], state.copy.copy * _GOLDEN % 1

    def _affordable(self) -> tuple[list[_State], int]:
        """Return who is next to be sampled once more, and when: the longest ago first."""
        batch: list[_State] = []
        cost_ns = latest_ns = 0
        for state in islice(self._again.values(), _MOST_IN_BATCH):
            if not batch:
                latest_ns = state.due_ns + round(self._interval_ns * _TOGETHER)
            elif state.due_ns > latest_ns or cost_ns + state.cost_ns > _BATCH_CPU_NS:
                break
            batch.append(state)
            cost_ns += state.cost_ns
        due_ns = batch[-1].due_ns if batch else 0
        if self._cadence.every_s is None and batch:
            assert self._begin_ns is not None
            # So much more CPU time is to keep all of it within its share.
            needed_ns = round((self._settled_ns + _TURN_NS + _GROWTH * cost_ns) / _SHARE)
            due_ns = max(due_ns, self._begin_ns + needed_ns - self._elapsed_ns)
        return batch, due_ns

    async def _wait_until(self, next_ns: int | None, now_ns: int) -> None:
        ahead_s = math.inf if next_ns is None else (next_ns - now_ns) / 1e9
        with trio.CancelScope(deadline=trio.current_time() + ahead_s) as self._sleep:
            await trio.sleep_forever()
        self._sleep = None

    # -- sampling ---------------------------------------------------------------------------------

    def _open(self, batch: list[_State], now_ns: int, orphans: _Orphans) -> list[_State]:
        opened = []
        left = orphans() if batch else {}
        for state in batch:
            try:
                state.directory = open_process(state.copy.pid)
                state.result = NoSample.ENDED  # until the thread says else
                state.orphans = tuple(left.get(state.copy.copy, ()))
                opened.append(state)
            except OSError:  # hidden from us, or no descriptor left: copies come first
                self._put_off(state, now_ns)
        return opened

    def _take(self, state: _State, emit: Callable[[Sampled], None]) -> None:
        self._spent_ns += state.cost_ns
        if isinstance(state.result, NoSample):
            self._put_off(state, state.read_ns)
            return
        if state.last_ns is not None:
            self._gaps += 1
            self._gaps_ns += state.read_ns - state.last_ns
        state.past_gate = True
        state.last_ns = state.read_ns
        state.due_ns = state.read_ns + self._interval_ns
        if self._take_out(state) is not None and not self._cadence.once:
            self._again[state.copy.pid] = state
        self._samples += 1
        self._seen[state.copy.copy] += 1
        self._longest_ns = max(self._longest_ns, state.result.read_ns)
        emit(state.result)

    def _put_off(self, state: _State, now_ns: int) -> None:
        """Try again soon, and less soon each time; one that has ended is about to be reaped."""
        state.due_ns = now_ns + min(_AGAIN_NS << state.failures, _AGAIN_AT_MOST_NS)
        state.failures = min(state.failures + 1, 10)
        line = self._take_out(state)
        if line is not None:
            line[state.copy.pid] = state

    def _take_out(self, state: _State) -> _Line | None:
        """Take a copy out of its line, and return that; None if it has ended meanwhile."""
        pid = state.copy.pid
        for line in (self._owed, self._again):
            if line.get(pid) is state:
                del line[pid]
                return line
        return None
