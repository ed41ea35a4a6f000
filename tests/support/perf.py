"""A kernel that counts as a test says, for what this machine has not."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rater.run.observe.perf import GroupReading, PerfEvent, PerfKernel

INHERIT, USER_ONLY = 1 << 1, 1 << 5  # bits of perf_event_attr, linux/perf_event.h


@dataclass
class MadeKernel(PerfKernel):
    """Refuses events, and counts 1000 of each that it takes."""

    refuse: Callable[[PerfEvent, int], int] = lambda event, flags: 0  # errno, 0: taken
    room: int = 100  # events in a group: one more is EINVAL
    running: float = 1.0  # share of the time that it counts
    opened: dict[int, list[int]] = field(default_factory=dict)  # by leader
    calls: list[tuple[int, int, int]] = field(default_factory=list)  # config, flags, pid
    _next: int = 100

    def open(self, event: PerfEvent, flags: int, pid: int, group: int) -> int:
        wrong = self.refuse(event, flags)
        members = self.opened.get(group, [])
        if wrong or len(members) >= self.room:
            number = wrong or 22
            raise OSError(number, os.strerror(number))
        self.calls.append((event.config, flags, pid))
        self._next += 1
        self.opened.setdefault(group if group >= 0 else self._next, []).append(self._next)
        return self._next

    def enable(self, group: Sequence[int]) -> None:
        assert group[0] in self.opened

    def read(self, group: Sequence[int]) -> GroupReading:
        assert self.opened[group[0]] == list(group)
        return GroupReading((1000,) * len(group), 100, round(100 * self.running))

    def close(self, group: Sequence[int]) -> None:
        if group:
            assert self.opened.pop(group[0]) == list(group)
