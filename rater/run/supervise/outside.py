"""Signals that copies died of and rater had not sent: the same one may be on its way to rater.

A scheduler that ends a job signals all of its processes at once (Slurm: SIGTERM, SIGKILL after
KillWait). Copies may be dead, and their phase closed, before rater hears of it: what they did until
then is no measurement, and a resumed run has to do it again.
"""

from __future__ import annotations

import time
from signal import SIGKILL

from rater.record.status import is_from_outside
from rater.stop_signals import STOP_SIGNALS

_BEFORE_NS = 2_000_000_000  # so long before rater's own stop a death belongs to it
_WAIT_NS = 500_000_000  # so long a run that is over waits for a signal that its copies had
_SHELL = 128  # a shell exits with this and the signal that ended its program


class OutsideSignals:
    """Deaths of copies by signals from outside, of the last moments; on the trio thread."""

    def __init__(self) -> None:
        self._phases: dict[int, int] = {}  # when last, by phase
        self._gate: tuple[int, str] | None = None  # when, and why the run ended for it
        self._stopping_ns: int | None = None  # when last by a signal that stops rater too

    def died(self, phase: int, signal: int | None, exit_code: int | None) -> None:
        """Note how a copy failed that rater had not asked to end."""
        number = signal
        if exit_code is not None and exit_code - _SHELL in (*STOP_SIGNALS, SIGKILL):
            number = exit_code - _SHELL
        if number is not None and is_from_outside(number):
            self._note(number)
            self._phases[phase] = time.monotonic_ns()

    def died_at_gate(self, signal: int | None, reason: str) -> None:
        """Note that a copy died before it was released, and the reason the run ends with."""
        if signal is not None and is_from_outside(signal):
            self._note(signal)
            self._gate = (time.monotonic_ns(), reason)

    def torn(self) -> tuple[int, ...]:
        """Return the phases that a signal which rater gets now had reached before."""
        now_ns = time.monotonic_ns()
        return tuple(
            phase for phase, at_ns in sorted(self._phases.items()) if now_ns - at_ns <= _BEFORE_NS
        )

    def explains(self, reason: str | None) -> bool:
        """Tell whether a run that ended for `reason` ended for the signal that rater gets now."""
        if self._gate is None or self._gate[1] != reason:
            return False
        return time.monotonic_ns() - self._gate[0] <= _BEFORE_NS

    def wait_s(self) -> float:
        """Return how long a run that is over should wait for a signal to itself; mostly 0."""
        if self._stopping_ns is None:
            return 0.0
        return max(0, self._stopping_ns + _WAIT_NS - time.monotonic_ns()) / 1e9

    def _note(self, number: int) -> None:
        if number in STOP_SIGNALS:
            self._stopping_ns = time.monotonic_ns()
