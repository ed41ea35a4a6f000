"""SIGINT, SIGTERM and SIGHUP: an exception as long as nothing is lost by one, else held.

A signal that was ignored when rater was started (nohup, a background job) stays ignored.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """A signal came that ends rater."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_status(self) -> int:
        """As a shell gives it for a program that a signal ended."""
        return 128 + self.number


@contextmanager
def handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Have the signals handled so; the main thread gets them, any other changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = [it for it in STOP_SIGNALS if signal.getsignal(it) is not signal.SIG_IGN]
    before = {it: signal.signal(it, handler) for it in wanted}
    try:
        yield
    finally:
        for it, old in before.items():
            signal.signal(it, old)


def raise_stopped(number: int, _: FrameType | None) -> None:
    """Raise `Stopped`: a handler."""
    raise Stopped(number)


class HeldSignals:
    """Signals that came while they are held."""

    def __init__(self) -> None:
        self.first: int | None = None
        self._new: deque[int] = deque()
        self._wake: Callable[[], None] = lambda: None

    def take(self, number: int, _: FrameType | None) -> None:
        """Keep a signal: a handler."""
        if self.first is None:
            self.first = number
        self._new.append(number)
        self._wake()

    @contextmanager
    def heard(
        self, hear: Callable[[int], None], call_soon: Callable[[Callable[[], None]], None]
    ) -> Iterator[None]:
        """Have `hear` called for each signal, those before included, where `call_soon` calls.

        `call_soon` must be safe in the midst of anything, as trio's `run_sync_soon` is.
        """

        def hand_over() -> None:
            while self._new:
                hear(self._new.popleft())

        self._wake = lambda: call_soon(hand_over)
        hand_over()
        try:
            yield
        finally:
            self._wake = lambda: None


@contextmanager
def held() -> Iterator[HeldSignals]:
    """Break nothing off: signals are only kept, for whoever asks or listens."""
    signals = HeldSignals()
    with handled(signals.take):
        yield signals
