"""Signals that come while a sweep is between two runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal came between two runs."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn signals that end rater into `Stopped`, so that settings are put back.

    While copies run the supervisor has them; what was ignored stays ignored (nohup).
    """

    def stop(signum: int, _: FrameType | None) -> None:
        raise Stopped(signum)

    wanted = [it for it in SIGNALS if signal.getsignal(it) is not signal.SIG_IGN]
    before = {it: signal.signal(it, stop) for it in wanted}
    try:
        yield
    finally:
        for it, handler in before.items():
            signal.signal(it, handler)
