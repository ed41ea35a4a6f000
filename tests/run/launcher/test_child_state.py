"""The states of a run of a copy: which moves are legal, in any order that records may come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rater.run.launcher.child_state import (
    ChildState,
    IllegalMoveError,
    Move,
    can_move,
    move_of,
    next_state,
)
from rater.run.launcher.table import RECORD, Record, RecordKind

FINAL = {ChildState.ENDED, ChildState.NOT_FORKED, ChildState.GIVEN_UP}
BEGUN = {
    ChildState.RUNNING,
    ChildState.ASKED,
    ChildState.KILLED,
    ChildState.FREED,
    ChildState.KILLED_ALONE,
}
KILLED = {ChildState.KILLED_AT_GATE, ChildState.KILLED, ChildState.KILLED_ALONE}


def taken(moves: list[Move]) -> tuple[list[Move], list[ChildState]]:
    """The moves that are legal one after the other, and the state before each and after the last.

    An illegal one raises, and is left out as `Child.move` leaves it out.
    """
    states, legal = [ChildState.MADE], []
    for move in moves:
        try:
            following = next_state(states[-1], move)
        except IllegalMoveError:
            assert not can_move(states[-1], move)
            continue
        assert can_move(states[-1], move)
        states.append(following)
        legal.append(move)
    return legal, states


@given(st.lists(st.sampled_from(Move), max_size=40))
def test_whatever_comes_in_whatever_order_a_run_goes_its_way_once(moves: list[Move]) -> None:
    legal, states = taken(moves)
    assert set(legal[:1]) <= {Move.SEND}
    for once in (Move.SEND, Move.START, Move.FREE):
        assert legal.count(once) <= 1
    assert sum(legal.count(end) for end in (Move.END, Move.FORK_FAILED, Move.GIVE_UP)) <= 1
    assert not FINAL & set(states[:-1])
    begun = [state in BEGUN for state in states if state not in FINAL]
    assert begun == sorted(begun)
    assert any(begun) == (Move.START in legal)
    if Move.ASK in legal or Move.FREE in legal:
        assert Move.START in legal[: min(map(legal.index, {Move.ASK, Move.FREE} & {*legal}))]
    if Move.KILL in legal:
        behind = states[legal.index(Move.KILL) + 1 :]
        assert {*behind} <= KILLED | FINAL


@given(st.lists(st.sampled_from(Move), max_size=40))
def test_from_every_state_a_run_can_end_unless_it_has(moves: list[Move]) -> None:
    state = taken([Move.SEND, *moves])[1][-1]
    if state not in FINAL:
        assert next_state(state, Move.END) is ChildState.ENDED
        assert next_state(state, Move.GIVE_UP) is ChildState.GIVEN_UP
        assert next_state(state, Move.KILL) in KILLED
    else:
        assert not any(can_move(state, move) for move in Move)


@pytest.mark.parametrize(
    ("state", "move"),
    [
        (ChildState.MADE, Move.START),
        (ChildState.AT_GATE, Move.READY),
        (ChildState.AT_GATE, Move.FORK_FAILED),
        (ChildState.AT_GATE, Move.ASK),  # SIGTERM is for programs
        (ChildState.RUNNING, Move.START),
        (ChildState.FREED, Move.FREE),
        (ChildState.KILLED_ALONE, Move.FREE),
        (ChildState.ENDED, Move.END),
        (ChildState.GIVEN_UP, Move.KILL),
    ],
)
def test_an_illegal_move_is_an_error_that_names_both(state: ChildState, move: Move) -> None:
    with pytest.raises(IllegalMoveError, match=f"what is {state} cannot be {move}"):
        next_state(state, move)


def test_what_a_record_means_for_its_process() -> None:
    record = Record(*RECORD.unpack(bytes(RECORD.size)))
    moves = {
        (kind, pid): move_of(record._replace(kind=kind, pid=pid))
        for kind in RecordKind
        for pid in (0, 7)
    }
    assert {key: move for key, move in moves.items() if move is not None} == {
        (RecordKind.READY, 0): Move.READY,
        (RecordKind.READY, 7): Move.READY,
        (RecordKind.STARTED, 0): Move.START,
        (RecordKind.STARTED, 7): Move.START,
        (RecordKind.ENDED, 0): Move.END,
        (RecordKind.ENDED, 7): Move.END,
        (RecordKind.BROKEN, 0): Move.FORK_FAILED,
    }
