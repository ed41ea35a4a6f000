"""A thread that starts the next runs of copies, one after another, as fast as they are asked for.

Of programs that run for milliseconds, started again and again, a thread of trio's pool for
each start (its priority set and put back, its CPUs too) was most of what the supervisor did.
"""

from __future__ import annotations

import queue
from collections.abc import Callable

import trio

from rater.errors import RaterError
from rater.run.copies.launch import Child, Launcher, Wanted
from rater.run.host.priority import urgent
from rater.run.host.thread_binding import ThreadBinding

# What came of a start: None where the kernel does not execute the program, or the run stops.
type StartResult = Child | RaterError | None


class Starter:
    """The thread; `started` gets what came of each start, in order, on the trio thread.

    `wanted` makes what is to be started, on the thread; None: the run stops.
    """

    def __init__(
        self,
        launcher: Launcher,
        wanted: Callable[[int, int], Wanted | None],
        started: Callable[[int, int, StartResult], None],
    ) -> None:
        self._launcher = launcher
        self._wanted = wanted
        self._started = started
        self._asked: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()

    def start(self, copy: int, position: int) -> None:
        """Have a copy's next run started; returns at once."""
        self._asked.put((copy, position))

    def close(self) -> None:
        """Let the thread end with what was asked for before."""
        self._asked.put(None)

    async def run(self) -> None:
        """Be the thread until `close`; what it started is handed over before this returns."""
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._serve, trio.lowlevel.current_trio_token())

    def _serve(self, token: trio.lowlevel.TrioToken) -> None:
        with urgent(), ThreadBinding() as binding:
            while (asked := self._asked.get()) is not None:
                result: StartResult
                try:
                    wanted = self._wanted(*asked)
                    result = None if wanted is None else self._launcher.start(wanted, binding)
                except RaterError as error:
                    result = error
                token.run_sync_soon(self._started, *asked, result)
