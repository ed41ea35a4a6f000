"""Between two runs of a sweep: rests, and signals that come then."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rater.stop_signals import STOP_SIGNALS, Stopped, handled

if TYPE_CHECKING:
    from types import FrameType

    from rater.plan.request.request import Request
    from rater.run.host.idle import IdleWatch


@dataclass
class FirstSignal:
    """Takes one signal: those that come while what it began is ended do not count."""

    received: int | None = None
    _is_closed: bool = False

    def close(self) -> None:
        """Take none from here on: what follows must not be broken off."""
        self._is_closed = True

    def stop(self, signum: int, _: FrameType | None) -> None:
        """Raise `Stopped` for the first signal."""
        if not self._is_closed:
            self._is_closed = True
            self.received = signum
            raise Stopped(signum)


@contextmanager
def stoppable() -> Iterator[FirstSignal]:
    """Turn the first signal that ends rater into `Stopped`, so that settings are put back.

    While copies run the supervisor has them.
    """
    first = FirstSignal()
    with handled(first.stop):
        try:
            yield first
        finally:
            first.close()


def rest_before(
    request: Request | None, watch: IdleWatch | None, report: Callable[[str], None]
) -> int:
    """Rest before a run as between the phases of one; return 0, or 128 and a signal."""
    if request is None or (request.cooldown_s <= 0 and watch is None):
        return 0
    import trio

    from rater.run.host.idle import rest, waited_note

    async def resting() -> int:
        status = 0
        wanted = [it for it in STOP_SIGNALS if signal.getsignal(it) is not signal.SIG_IGN]
        with trio.open_signal_receiver(*wanted) as arrivals:
            async with trio.open_nursery() as nursery:

                async def listen() -> None:
                    nonlocal status
                    async for signum in arrivals:
                        status = 128 + signum
                        nursery.cancel_scope.cancel()

                nursery.start_soon(listen)
                note = waited_note(await rest(request.cooldown_s, watch))
                if note:
                    report(note)
                nursery.cancel_scope.cancel()
        return status

    return trio.run(resting)
