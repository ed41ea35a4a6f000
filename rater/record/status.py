"""How copies and runs end."""

from __future__ import annotations

from enum import StrEnum
from signal import Signals

# What a program brings upon itself, or a limit that was set for it.
_OF_ITS_OWN = {
    *(Signals.SIGSEGV, Signals.SIGBUS, Signals.SIGFPE, Signals.SIGILL, Signals.SIGABRT),
    *(Signals.SIGSYS, Signals.SIGTRAP, Signals.SIGPIPE, Signals.SIGXCPU, Signals.SIGXFSZ),
}


def is_from_outside(signal: int) -> bool:
    """Tell whether a signal that ended a program comes from others, rather than from itself."""
    return signal not in _OF_ITS_OWN


class CopyStatus(StrEnum):
    """How a copy ended."""

    OK = "ok"
    FAILED = "failed"  # exit code not 0, killed by a signal, or more output than allowed
    TIMEOUT = "timeout"
    WRONG_OUTPUT = "wrong-output"
    INTERRUPTED = "interrupted"


class Validity(StrEnum):
    """What is known of a copy's output."""

    UNCHECKED = "unchecked"  # nobody looked yet: the copy has just ended, or rater died first
    NOT_CHECKED = "no-expectation"  # there is nothing to compare with (a plain command)
    VALID = "valid"
    INVALID = "invalid"


class RunStatus(StrEnum):
    """State of a whole run; `RUNNING` in the database of a dead rater means it was killed."""

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    KILLED = "killed"  # never stored: what reading says of `RUNNING` whose rater is gone

    @property
    def reported(self) -> str:
        """The word of the JSON documents: a killed rater has interrupted its run."""
        return (RunStatus.INTERRUPTED if self is RunStatus.KILLED else self).value
