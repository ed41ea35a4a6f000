"""Words of a run's head, for its own page and for lists; imports little, as lists start often."""

from __future__ import annotations

from rater.record.status import RunStatus
from rater.record.stored import RunHead

STATUS_STYLE = {
    RunStatus.FAILED: "bold red",
    RunStatus.INTERRUPTED: "bold yellow",
    RunStatus.KILLED: "bold yellow",
}


def started_text(head: RunHead) -> str:
    """Return when a run began, to the minute."""
    return "-" if head.started_at is None else head.started_at[:16].replace("T", " ")


def details_text(head: RunHead) -> str:
    """Return ` (test, base)`: size and tune, as far as there are any."""
    details = ", ".join(detail for detail in (head.size, head.tune) if detail)
    return f" ({details})" if details else ""
