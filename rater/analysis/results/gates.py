"""The one rule of a gate (`--fail-on`): it passes where what it asks for is excluded; pure.

A gate of a run, of a fleet or of a comparison asks whether something is slower by a limit. It is
found, excluded, or neither: what was measured could not have shown it. Only the second passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from rater.analysis.results.disturbed import NOT_JUDGED
from rater.text.values import count, percent

FOUND_STATUS: Final = 1
_MOST_REPEATS: Final = 1000  # more of them are no way out


class GateAnswer(StrEnum):
    """What can be said of what a gate asks for."""

    FOUND = "found"
    EXCLUDED = "excluded"
    OPEN = "cannot be judged"


class GateVerdict(Struct, frozen=True, kw_only=True):
    """The answer of a gate for one thing that it asks about, with the reason in words."""

    answer: GateAnswer
    reason: str = ""  # where it is not excluded: a finding, or the noise that hides it


class GateCase(Struct, frozen=True, kw_only=True):
    """A gate's answer for one thing, with its names: a case of a report."""

    gate: str  # as it was typed: worse:2%
    name: str  # of a benchmark, or of a kind of divot
    place: str  # the point, or the run
    answer: GateAnswer
    reason: str = ""
    values: tuple[tuple[str, float], ...] = ()  # numbers that it stands on, by name


EXCLUDED: Final = GateVerdict(answer=GateAnswer.EXCLUDED)


def gate_status(verdicts: Iterable[GateVerdict]) -> int:
    """Return the exit status: 1 where something is found, 3 where something is open, else 0."""
    return status_of_answers(verdict.answer for verdict in verdicts)


def status_of_answers(answers: Iterable[GateAnswer]) -> int:
    """Return the same of bare answers."""
    different = set(answers)
    if GateAnswer.FOUND in different:
        return FOUND_STATUS
    return NOT_JUDGED if GateAnswer.OPEN in different else 0


def reasons_of(verdicts: Sequence[GateVerdict], answer: GateAnswer) -> list[str]:
    """Return the reasons of the verdicts with an answer, each once, in their order."""
    return list(dict.fromkeys(verdict.reason for verdict in verdicts if verdict.answer is answer))


def repeats_needed(repeats: int, visible: float, limit: float) -> int | None:
    """Return how many repeats (iterations, rounds, hosts) show `limit`; None: too many.

    So many were made, and showed effects from `visible` on. What a mean shows falls with the root
    of their number, so that n (visible / limit)^2 are needed.
    """
    needed = math.ceil(repeats * (visible / limit) ** 2) if limit > 0 else _MOST_REPEATS + 1
    return needed if repeats < needed <= _MOST_REPEATS else None


def hidden_text(place: str, *, limit: float, visible: float | None, way_out: str = "") -> str:
    """Return in words that a limit lies below what can be seen, both shares of a time."""
    seen = "noise hides all" if visible is None else f"{percent(visible)} % can be seen"
    more = f": {way_out}" if way_out else ""
    return f"{percent(limit)} % was asked of {place}, {seen}{more}"


def more_text(repeats: int, needed: int | None, noun: str) -> str:
    """Return how many more repeats would show it, in words; empty where none would."""
    if needed is None:
        return ""
    return f"about {count(needed - repeats, f'more {noun}')} would show it"
