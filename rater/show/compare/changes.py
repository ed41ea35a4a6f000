"""What changed since a run was made, and what it lacks: as text and as values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rater.analysis.conditions.changes import Difference
from rater.analysis.results.remaining import PhaseOf, PhaseState, Remainder
from rater.record.stored import RunHead
from rater.show.console.format import aligned, count, plain
from rater.show.live.line_view import phase_name


def changes_text(found: Sequence[Difference]) -> str:
    """Return a line for each difference, indented, each behind a line end."""
    return "".join(f"\n  {plain(str(difference))}" for difference in found)


def changes_document(found: Sequence[Difference]) -> list[dict[str, object]]:
    """Return differences for JSON."""
    return [
        {"what": it.what, "before": it.before, "now": it.now, "weighs": it.weighs} for it in found
    ]


def print_remainder(head: RunHead, left: Remainder, out: TextIO) -> None:
    """Print which phases of a run are done, torn and missing."""
    ascii_only = not (out.encoding or "ascii").lower().startswith("utf")
    phases = left.phases
    done = sum(it.state is PhaseState.DONE for it in phases)
    print(
        f"run {head.run} ({head.uuid[:8]}), {head.status.value}: "
        f"{done} of {count(len(phases), 'phase')} done",
        file=out,
    )
    rows = [
        (
            str(it.phase.number if it.stored is None else it.stored),
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
                "phase": it.phase.number if it.stored is None else it.stored,
                "benchmark": it.phase.benchmark,
                "iteration": it.phase.iteration,
                "state": it.state.value,
                "runs_as": None if it.state is PhaseState.DONE else it.phase.number,
            }
            for it in left.phases
        ],
    }


def _state(it: PhaseOf) -> str:
    if it.state is PhaseState.TORN:
        return f"torn: runs again as phase {it.phase.number}"
    return it.state.value
