"""The states of one run of a copy as a process, and the one function of legal moves; pure.

```
MADE -> FORKING -> AT_GATE -> RUNNING -> ASKED -> KILLED -> KILLED_ALONE -> GIVEN_UP
```

ENDED can follow every state in which the process may exist. A run that follows another one goes
from FORKING to RUNNING when nothing has to be done at its gate, as the launcher then does not say
that it is ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from rater.run.launcher.table import Record, RecordKind
from rater.system.errors import RunError


class ChildState(StrEnum):
    """Where one run of a copy stands. The values are words for people."""

    MADE = "made"  # the launcher has not heard of this run
    FORKING = "being forked"  # the launcher has its table
    AT_GATE = "at its gate"
    RUNNING = "running"
    ASKED = "asked to end"  # SIGTERM was sent
    KILLED = "killed"  # SIGKILL was sent while its program ran
    KILLED_AT_GATE = "killed at its gate"  # SIGKILL was sent before its program had begun
    FREED = "freed"  # its descendants were killed, as one of them may have traced it
    KILLED_ALONE = "killed alone"  # SIGKILL was sent, and its descendants were killed
    # Nothing follows these three.
    ENDED = "ended"
    NOT_FORKED = "not forked"
    GIVEN_UP = "given up"  # the process could not be killed, and is not waited for


class Move(StrEnum):
    """What takes a run to its next state: a record of the launcher, or an act of rater."""

    # Records
    READY = "ready"
    START = "started"
    END = "ended"
    FORK_FAILED = "not forked"
    # Acts of rater
    SEND = "sent to the launcher"
    ASK = "asked to end"
    KILL = "killed"
    FREE = "freed of its descendants"
    GIVE_UP = "given up"


class IllegalMoveError(RunError):
    """A record or an act does not fit the state of a copy: rater and its launcher disagree."""


_ENDS: Final = {Move.END: ChildState.ENDED, Move.GIVE_UP: ChildState.GIVEN_UP}

_NEXT_STATES: Final[Mapping[ChildState, Mapping[Move, ChildState]]] = {
    ChildState.MADE: {Move.SEND: ChildState.FORKING},
    ChildState.FORKING: {
        Move.READY: ChildState.AT_GATE,
        Move.START: ChildState.RUNNING,
        Move.FORK_FAILED: ChildState.NOT_FORKED,
        Move.KILL: ChildState.KILLED_AT_GATE,
        **_ENDS,
    },
    ChildState.AT_GATE: {
        Move.START: ChildState.RUNNING,
        Move.KILL: ChildState.KILLED_AT_GATE,
        **_ENDS,
    },
    # Records that were under way when rater killed the process still arrive.
    ChildState.KILLED_AT_GATE: {
        Move.READY: ChildState.KILLED_AT_GATE,
        Move.START: ChildState.KILLED,
        Move.FORK_FAILED: ChildState.NOT_FORKED,
        Move.KILL: ChildState.KILLED_AT_GATE,
        **_ENDS,
    },
    ChildState.RUNNING: {
        Move.ASK: ChildState.ASKED,
        Move.KILL: ChildState.KILLED,
        Move.FREE: ChildState.FREED,
        **_ENDS,
    },
    ChildState.ASKED: {
        Move.ASK: ChildState.ASKED,
        Move.KILL: ChildState.KILLED,
        Move.FREE: ChildState.FREED,
        **_ENDS,
    },
    ChildState.KILLED: {
        Move.ASK: ChildState.KILLED,
        Move.KILL: ChildState.KILLED,
        Move.FREE: ChildState.KILLED_ALONE,
        **_ENDS,
    },
    # Descendants are killed once: without an end to that, a copy that forks for ever is never
    # given up.
    ChildState.FREED: {
        Move.ASK: ChildState.FREED,
        Move.KILL: ChildState.KILLED_ALONE,
        **_ENDS,
    },
    ChildState.KILLED_ALONE: {
        Move.ASK: ChildState.KILLED_ALONE,
        Move.KILL: ChildState.KILLED_ALONE,
        **_ENDS,
    },
    ChildState.ENDED: {},
    ChildState.NOT_FORKED: {},
    ChildState.GIVEN_UP: {},
}


def next_state(state: ChildState, move: Move) -> ChildState:
    """Return the state that a move leads to; raises `IllegalMoveError`.

    In a run, `PhaseRun` takes that error as the death of the launcher: it ends all copies, keeps
    what ended before, and the run fails with the reason. Tests see the error or that reason.
    """
    following = _NEXT_STATES[state].get(move)
    if following is None:
        raise IllegalMoveError(
            f"what is {state} cannot be {move}: rater and its launcher disagree, so no time of "
            "this phase is to be relied on; please report it, and run again"
        )
    return following


def can_move(state: ChildState, move: Move) -> bool:
    """Tell whether a move is legal in a state."""
    return move in _NEXT_STATES[state]


def move_of(record: Record) -> Move | None:
    """Return the move that a record of one process stands for; None: its state does not change.

    A process that is BROKEN exists where the record has its number, and ENDED follows.
    """
    match record.kind:
        case RecordKind.READY:
            return Move.READY
        case RecordKind.STARTED:
            return Move.START
        case RecordKind.ENDED:
            return Move.END
        case RecordKind.BROKEN if not record.pid:
            return Move.FORK_FAILED
    return None
