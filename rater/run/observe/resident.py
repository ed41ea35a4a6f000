"""How much memory copies have, looked at once a second: enough for its mean over time.

A sample of `Probe` walks page tables, which takes 10 us a megabyte; the counters that the
kernel keeps of a process are there at once. So every copy has a look every second, however
many there are, and whatever its size: about 25 us of CPU time each. Copies of less than
0.9 s are left alone.

Appendix A of the page-size paper (J. Korn and others) gives mean and maximum of such looks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import trio

from rater.record.events import ResidentMemory
from rater.run.copies.launch import Child
from rater.run.host.proc_dir import read_piece
from rater.run.host.proc_text import parse_resident

EVERY_S = 1.0
_LEAST_AGE_NS = 900_000_000  # of a copy: a mean over less says nothing, and many are short
_MOST_PROCESSES = 16  # of one copy


@dataclass(slots=True)
class _Looks:
    """Of one copy's run."""

    total_bytes: int = 0
    most_bytes: int = 0
    number: int = 0


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
            begin = partial(_resident, [it.pid for it in looked])
            sizes, spent_ns = await trio.to_thread.run_sync(begin, abandon_on_cancel=True)
            self.spent_ns += spent_ns
            # What has ended meanwhile is left out: its number may be another's by now.
            living = set(map(id, alive.values()))
            for child, size in zip(looked, sizes, strict=True):
                if size and id(child) in living:
                    looks = self._found.setdefault(child.pid, _Looks())
                    looks.total_bytes += size
                    looks.most_bytes = max(looks.most_bytes, size)
                    looks.number += 1

    def ended(self, pid: int) -> ResidentMemory | None:
        """Return what was seen of a copy that has ended; None: it was not looked at."""
        looks = self._found.pop(pid, None)
        if looks is None:
            return None
        return ResidentMemory(
            round(looks.total_bytes / looks.number), looks.most_bytes, looks.number
        )


def _resident(pids: Sequence[int]) -> tuple[list[int], int]:
    """Return the bytes of each copy, 0 where nothing is known, and the CPU time it took."""
    begin_ns = time.thread_time_ns()
    return [_of_tree(pid) for pid in pids], time.thread_time_ns() - begin_ns


def _of_tree(root: int) -> int:
    """Return what a copy and its children have: what they share counts once, as the largest has it.

    Children are those of the first threads.
    """
    private = shared = 0
    tree = [root]
    for pid in tree:  # which grows
        with suppress(OSError):  # it has ended, or this kernel does not tell children
            found = parse_resident(read_piece(f"/proc/{pid}/status"))
            private += found.private_bytes
            shared = max(shared, found.shared_bytes)
            children = read_piece(f"/proc/{pid}/task/{pid}/children").split()
            tree += map(int, children[: _MOST_PROCESSES - len(tree)])
    return private + shared
