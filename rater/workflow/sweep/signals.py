"""Signals that come while a sweep is between two runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal came between two runs."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass
class Ear:
    """Hears one signal: those that come while what it began is ended do not count."""

    heard: int | None = None
    _is_deaf: bool = False

    def close(self) -> None:
        """Hear nothing from here on: what follows must not be broken off."""
        self._is_deaf = True

    def stop(self, signum: int, _: FrameType | None) -> None:
        """Raise `Stopped` for the first signal."""
        if not self._is_deaf:
            self._is_deaf = True
            self.heard = signum
            raise Stopped(signum)


@contextmanager
def stoppable() -> Iterator[Ear]:
    """Turn the first signal that ends rater into `Stopped`, so that settings are put back.

    While copies run the supervisor has them; what was ignored stays ignored (nohup).
    """
    ear = Ear()
    wanted = [it for it in SIGNALS if signal.getsignal(it) is not signal.SIG_IGN]
    before = {it: signal.signal(it, ear.stop) for it in wanted}
    try:
        yield ear
    finally:
        ear.close()
        for it, handler in before.items():
            signal.signal(it, handler)
