"""What page sizes the copies of a phase had: looked at while they run, put together after it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import trio

from rater.plan.pages.words import PageOrder
from rater.record.page_sizes import PagesHad
from rater.run.copies.launch import Child
from rater.run.page_sizes.look import look_at
from rater.run.page_sizes.report import ProcessSeen, last_of_each, page_regions, read_reports

_EVERY_S = 0.25
_FIRST_NS = 500_000_000  # age of a copy at its first look; the next is at twice the age


@dataclass(frozen=True, slots=True)
class PageSetup:
    """What a run's copies are to have, and where they report."""

    orders: Mapping[str, PageOrder]  # by benchmark
    huge_bytes: int
    reports: Path  # a folder of this run, with a file for each copy


@dataclass(frozen=True, slots=True)
class _Ran:
    copy: int
    step: int
    benchmark: str
    begin_ns: int  # of CLOCK_MONOTONIC
    end_ns: int
    group: int


class PageProof:
    """The copies of one phase; on the trio thread. `spent_ns`: CPU time of all looks."""

    def __init__(self, setup: PageSetup, phase: int) -> None:
        self._setup = setup
        self._phase = phase
        self._ran: list[_Ran] = []
        self._looked: dict[tuple[int, int], list[ProcessSeen]] = {}  # by copy and step
        self._next_ns: dict[int, int] = {}  # by pid: age at its next look
        self.spent_ns = 0

    async def watch(self, alive: Mapping[int, Child]) -> None:
        """Look at copies until cancelled, each ever more seldom, in a thread."""
        while True:
            await trio.sleep(_EVERY_S)
            now_ns = time.monotonic_ns()
            due = [
                it
                for it in alive.values()
                if it.start_ns is not None
                and not it.filler
                and now_ns - it.start_ns >= self._next_ns.get(it.pid, _FIRST_NS)
            ]
            if not due:
                continue
            for child in due:
                self._next_ns[child.pid] = 2 * (now_ns - (child.start_ns or now_ns))
            wanted = [(it.copy, it.pid, it.step.benchmark) for it in due]
            looks, spent_ns = await trio.to_thread.run_sync(
                partial(self._look, wanted), abandon_on_cancel=True
            )
            self.spent_ns += spent_ns
            for child, seen in zip(due, looks, strict=True):
                if seen:
                    self._looked[child.copy, child.position] = seen

    def _look(self, wanted: list[tuple[int, int, str]]) -> tuple[list[list[ProcessSeen]], int]:
        begin_ns = time.thread_time_ns()
        found = []
        for copy, pid, benchmark in wanted:
            order = self._setup.orders[benchmark]
            seen = []
            for process in last_of_each(read_reports(self._setup.reports / str(copy))):
                # A report says which process it is of: only those of this copy are looked at.
                if process.group == pid and _group(process.pid) == pid:
                    now = look_at(process, order, self._setup.huge_bytes)
                    if now is not None:
                        seen.append(now)
            found.append(seen)
        return found, time.thread_time_ns() - begin_ns

    def ended(self, child: Child, now_ns: int) -> None:
        """Take note of a copy that ended and counts."""
        if child.start_ns is not None:
            self._ran.append(
                _Ran(
                    child.copy,
                    child.position,
                    child.step.benchmark,
                    child.start_ns,
                    now_ns,
                    child.pid,
                )
            )

    def close(self) -> Iterator[PagesHad]:
        """Yield what each copy had; nothing is timed any more."""
        by_copy: dict[int, list[_Ran]] = {}
        for one in self._ran:
            by_copy.setdefault(one.copy, []).append(one)
        for copy, runs in sorted(by_copy.items()):
            path = self._setup.reports / str(copy)
            reports = last_of_each(read_reports(path))
            with suppress(OSError):
                path.unlink()
            for ran in runs:
                those = [it for it in reports if ran.begin_ns <= it.began_ns <= ran.end_ns]
                regions = page_regions(
                    _most(those, self._looked.get((copy, ran.step), [])),
                    self._setup.orders[ran.benchmark],
                    self._setup.huge_bytes,
                )
                yield PagesHad(self._phase, copy, ran.step, regions)


def _most(reports: list[ProcessSeen], looked: list[ProcessSeen]) -> list[ProcessSeen]:
    """Return each process as it was when it had most: at its last report or at the last look."""
    found = {(it.pid, it.began_ns): it for it in reports}
    for look in looked:
        key = (look.pid, look.began_ns)
        before = found.get(key)
        if before is not None and look.there > before.there:
            found[key] = replace(look, forks=before.forks, troubles=before.troubles)
    return list(found.values())


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None
