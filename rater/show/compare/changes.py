"""What changed since a run was made, and what it lacks: as text and as values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rater.analysis.conditions.conditions import ConditionDifference
from rater.analysis.results.remaining import PhaseOf, PhaseState, Remainder
from rater.record.stored import RunHead
from rater.show.console.format import aligned, plain
from rater.show.console.page import is_ascii
from rater.show.live.line_view import phase_name
from rater.text.to_json import Members
from rater.text.words import count


def changes_text(found: Sequence[ConditionDifference]) -> str:
    """Return a line for each difference, indented, each behind a line end."""
    return "".join(f"\n  {plain(str(difference))}" for difference in found)


DIFFERENCE = Members("what before now weighs=significant")


def changes_document(found: Sequence[ConditionDifference]) -> list[dict[str, object]]:
    """Return differences for JSON."""
    return [DIFFERENCE.of(it) for it in found]


def print_remainder(head: RunHead, left: Remainder, out: TextIO) -> None:
    """Print which phases of a run are done, torn and missing."""
    ascii_only = is_ascii(out.encoding)
    phases = left.phases
    done = sum(it.state is PhaseState.DONE for it in phases)
    print(
        f"run {head.run} ({head.uuid[:8]}), {head.status.value}: "
        f"{done} of {count(len(phases), 'phase')} done",
        file=out,
    )
    rows = [
        (
            str(_number(it)),
            phase_name(it.phase.benchmark, it.phase.iteration, it.phase.counted, ascii_only),
            _state(it),
        )
        for it in phases
    ]
    for line in aligned([("phase", "what", ""), *rows], (True, False, False)):
        print(f"  {line}", file=out)


def remainder_document(head: RunHead, left: Remainder) -> dict[str, object]:
    """Return the same for JSON."""
    return {
        "dry_run": True,
        "run": head.run,
        "uuid": head.uuid,
        "status": head.status.reported,
        "phases": [
            {
                "phase": _number(it),
                "benchmark": it.phase.benchmark,
                "iteration": it.phase.iteration,
                "state": it.state.value,
                "runs_as": None if it.state is PhaseState.DONE else it.phase.number,
            }
            for it in left.phases
        ],
    }


def _number(it: PhaseOf) -> int:
    return it.phase.number if it.stored is None else it.stored


def _state(it: PhaseOf) -> str:
    if it.state is PhaseState.TORN:
        return f"torn: runs again as phase {it.phase.number}"
    return it.state.value
