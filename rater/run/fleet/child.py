"""The agent's one child: `rater run`, waited for without waking up, told of the agent's signals."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from rater.run.programs.child_process import last_will

_ENDING = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class EndingSignals:
    """Signals that end the agent: held, so that it publishes what there is."""

    def __init__(self) -> None:
        self.first: str | None = None  # USR1, TERM
        self._ready, self._told = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def take(self, number: int, _: FrameType | None) -> None:
        """Keep a signal: a handler."""
        if self.first is None:
            self.first = signal.Signals(number).name.removeprefix("SIG")
        with suppress(BlockingIOError):
            os.write(self._told, b"x")

    def wait(self, descriptor: int | None, seconds: float | None = None) -> bool:
        """Sleep until a signal comes, a descriptor can be read, or the time is over.

        Returns whether the descriptor can be read.
        """
        wanted = [self._ready] + ([] if descriptor is None else [descriptor])
        ready, _, _ = select.select(wanted, [], [], seconds)
        if self._ready in ready:
            with suppress(BlockingIOError):
                os.read(self._ready, 1024)
        return descriptor in ready


@contextmanager
def ending_signals() -> Iterator[EndingSignals]:
    """Hold SIGUSR1, SIGTERM, SIGINT and SIGHUP."""
    signals = EndingSignals()
    before = {it: signal.signal(it, signals.take) for it in _ENDING}
    try:
        yield signals
    finally:
        for it, old in before.items():
            signal.signal(it, old)


def run_child(
    words: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    signals: EndingSignals,
    said: Path,
) -> int:
    """Run a command to its end and return its exit status (negative: a signal).

    It gets SIGTERM when one of the signals comes, and dies with this process. What it prints on
    standard error goes to the file `said`.
    """
    with said.open("wb") as file:
        child = subprocess.Popen(
            words,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stderr=file,
            preexec_fn=last_will(),  # noqa: PLW1509 - None where there are threads
        )
    pidfd = os.pidfd_open(child.pid)
    try:
        told = False
        while True:
            if signals.first is not None and not told:
                child.terminate()
                told = True
            if signals.wait(pidfd):
                return child.wait()
    finally:
        os.close(pidfd)
