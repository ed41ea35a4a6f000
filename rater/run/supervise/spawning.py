"""Copies spawned behind their gates, until all of them wait there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import trio

from rater.run.copies.launch import Child, Launcher, Wanted
from rater.run.copies.open_files import high_pipe
from rater.run.counters.counting import Counting
from rater.run.supervise.job import RunState


class Spawner:
    """Spawns copies of one phase; what it spawns waits to be released."""

    def __init__(
        self, state: RunState, launcher: Launcher, counting: Counting | None, go_file: Path
    ) -> None:
        self._state = state
        self._launcher = launcher
        self._counting = counting
        self._go_file = go_file
        self._readying = trio.CancelScope()

    async def behind_shared_gate(self, wanted: list[Wanted]) -> tuple[list[Child], int]:
        """Spawn copies that all wait for the end of one pipe; return its writing end too."""
        gate_read, gate_write = high_pipe()
        try:
            children = await self.spawn(lambda: wanted, gate_read)
        except BaseException:
            os.close(gate_write)
            raise
        finally:
            os.close(gate_read)
        return children, gate_write

    async def spawn(
        self, wanted: Callable[[], list[Wanted]], shared_gate: int | None = None
    ) -> list[Child]:
        """Spawn what `wanted` returns, asked in a worker thread; wait until all are ready.

        `shared_gate`: the reading end of a pipe; None: each waits behind one of its own.
        """

        def spawn() -> list[Child]:
            return self._launcher.spawn(
                wanted(), shared_gate, ready_write, self._go_file, self._state.stop_flag.is_set
            )

        ready_read, ready_write = high_pipe()
        try:
            try:
                children = await trio.to_thread.run_sync(spawn)
            finally:
                os.close(ready_write)
            with trio.CancelScope() as self._readying:
                # End of file: every gate has closed its end, ready or dead.
                await trio.lowlevel.wait_readable(ready_read)
        finally:
            os.close(ready_read)
        for child in children:
            child.read_gate_cpu()
        if self._state.gates is not None:
            self._state.gates.check(children)
        if self._counting is not None:
            await self._count(self._counting, children)
        return children

    async def _count(self, counting: Counting, children: list[Child]) -> None:
        """Open the counters of copies at their gates, beside what is stamped meanwhile."""
        with trio.CancelScope(shield=True):  # else nobody would have the copies
            settled = await trio.to_thread.run_sync(counting.open, children)
        for event in settled:
            self._state.emit(event)

    def cancel(self) -> None:
        """Wait no longer for gates to be ready: the run stops."""
        self._readying.cancel()
