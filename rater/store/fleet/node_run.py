"""What a node's own database holds of the run that a fleet asked it for."""

from __future__ import annotations

from dataclasses import dataclass

from rater.record.status import RunStatus
from rater.store.store import Store

# What counts: phases whose every copy ran to its end, in no attempt that is measured again.
_DONE = (
    "SELECT count(*) FROM copy JOIN bracket USING (run_id, phase) WHERE run_id = ? "
    "AND bracket.complete AND NOT bracket.torn AND copy.status <> 'interrupted'"
)
_PLANNED = (
    "SELECT copies * iterations * (SELECT count(*) FROM benchmark WHERE run_id = run.id) "
    "FROM run WHERE id = ? AND window_s IS NULL"
)


@dataclass(frozen=True, slots=True)
class NodeRun:
    """The run, and how far it came."""

    number: int
    uuid: str
    status: RunStatus  # `KILLED` where its rater is gone
    reason: str | None
    copies_done: int
    copies_planned: int | None  # None: not known beforehand (steady)


def node_run(store: Store) -> NodeRun | None:
    """Return the last run of a database, None where there is none."""
    heads = store.runs()
    if not heads:
        return None
    head = heads[-1]
    with store.reading() as connection:
        (done,) = connection.execute(_DONE, (head.run,)).fetchone()
        planned = connection.execute(_PLANNED, (head.run,)).fetchone()
    return NodeRun(
        head.run, head.uuid, head.status, head.reason, done, planned[0] if planned else None
    )
