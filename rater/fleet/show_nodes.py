"""A fleet's nodes, how far each came and why no further, and the list of all fleets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rater.fleet.backends.node_names import compress
from rater.fleet.plan import AttemptState, NodeAttempt, StoredFleet, copies_told
from rater.show.screen.document import TEXT, Field, Line, Part, Row, ViewTable
from rater.text.values import JsonFields, count, group_by_key, to_json

_MOST_NODES = 40  # of a terminal: nodes that came to nothing stand before others
_NOT_TRIED = "not submitted"
# Nodes that want somebody's attention come first.
_ORDER = (
    *(AttemptState.LOST, AttemptState.REFUSED, AttemptState.FAILED, AttemptState.NEVER),
    *(AttemptState.TIMEOUT, AttemptState.PARTIAL, AttemptState.CANCELLED, AttemptState.WAITING),
    *(AttemptState.RUNNING, AttemptState.PENDING, AttemptState.SUBMITTED, AttemptState.INTENT),
    *(_NOT_TRIED, AttemptState.COMPLETE),
)
_STYLES: dict[str, str] = {
    AttemptState.COMPLETE: "green",
    **dict.fromkeys((AttemptState.PENDING, AttemptState.SUBMITTED, AttemptState.INTENT), "dim"),
    _NOT_TRIED: "dim",
    AttemptState.RUNNING: "",
}
_ATTEMPT = {
    NodeAttempt: JsonFields(
        "attempt state reason job verdict.copies_done verdict.copies_planned verdict.database",
        {
            "collected": lambda it: it.collected is not None,
            "notes": lambda it: it.verdict.notes if it.verdict else [],
            "host": lambda it: it.verdict.host if it.verdict else {},
        },
    )
}
_LISTED = {
    StoredFleet: JsonFields(
        "fleet=number asked.started_at asked.backend what=asked.workload_text asked.confirms",
        {"nodes": lambda it: len(it.attempts)},
        "complete status",
    )
}


def nodes_document(fleet: StoredFleet, silent: str | None) -> dict[str, Any]:
    """Return a fleet and each of its nodes; `silent`: why the scheduler gave no answer."""
    counted = Counter(
        attempt.state.value if attempt else _NOT_TRIED for attempt in fleet.deciding.values()
    )
    document: dict[str, Any] = to_json(
        {
            "rater": 1,
            "fleet": fleet.number,
            **JsonFields("uuid started_at backend folder what=workload_text confirms").read(
                fleet.asked
            ),
            "status": fleet.status,
            "scheduler": silent,
            "counts": {
                attempt: counted[attempt]
                for attempt in (*AttemptState, _NOT_TRIED)
                if counted[attempt]
            },
            "nodes": [
                {
                    "node": node,
                    "state": stands.state if stands else _NOT_TRIED,
                    "reason": stands and stands.reason,
                    "run": stands and stands.verdict and stands.verdict.run,
                    "attempts": fleet.attempts[node],
                    "attempt": stands and stands.attempt,
                    "why": stands and _why(stands, fleet.attempts[node]),
                }
                for node, stands in fleet.deciding.items()
            ],
        },
        _ATTEMPT,
    )
    return document


def _why(node_attempt: NodeAttempt, attempts: Sequence[NodeAttempt]) -> str | None:
    """The reason, without the copies, which have a column; or why the attempt before ended."""
    if node_attempt.reason is not None:
        return _without_copies(node_attempt)
    before = [attempt for attempt in attempts if attempt.attempt < node_attempt.attempt][-1:]
    for last in before:
        reason = _without_copies(last)
        if last.state is not AttemptState.COMPLETE:
            return f"attempt {last.attempt} {last.state.shown}" + (f": {reason}" if reason else "")
    return None


def _without_copies(attempt: NodeAttempt) -> str | None:
    copies_text = copies_told(attempt.verdict) if attempt.verdict else None
    return (attempt.reason or "").removesuffix(copies_text or "").removesuffix("; ") or None


def nodes_parts(document: Row, *, every: bool = False) -> Iterator[Part]:
    """Yield the head, then a line for each node; of many, those that are complete as a number."""
    nodes = sorted(document["nodes"], key=lambda it: _ORDER.index(it["state"]))
    counts = ", ".join(f"{many} {_state_text(state)}" for state, many in document["counts"].items())
    many = count(len(nodes), "node")
    yield f"Fleet {document['fleet']}: {document['what']}, {many}: {counts}"
    if (silent := document["scheduler"]) is not None:
        yield f"The scheduler gave no answer, so nothing is concluded: {silent}"
    shown = nodes
    if not every and len(nodes) > _MOST_NODES:
        shown = [node for node in nodes if node["state"] != AttemptState.COMPLETE][:_MOST_NODES]
    fields = (
        Field(heading="node", value="node", form=TEXT),
        Field(heading="state", value=lambda it: _state_text(it["state"]), form=TEXT),
        Field(heading="try", value="attempt"),
        Field(heading="job", value=_job, optional=2),
        Field(heading="copies", value=_copies, optional=1),
        Field(heading="why", value="why", wrap=True),
    )
    yield ViewTable(
        title="", rows=shown, fields=fields, style=lambda it: _STYLES.get(it["state"], "yellow")
    )
    left = group_by_key((node["state"], node["node"]) for node in nodes if node not in shown)
    if len(document["counts"]) == 1:  # the first line says so of all
        return
    for state, names in left.items():
        yield f"{count(len(names), 'more node')} {_state_text(state)}: {compress(names)}"


def _state_text(state: str) -> str:
    return state if state == _NOT_TRIED else AttemptState(state).shown


def _deciding(node: Row) -> Row | None:
    return next((it for it in node["attempts"] if it["attempt"] == node["attempt"]), None)


def _job(node: Row) -> str | None:
    job = (_deciding(node) or {}).get("job")
    return job if job and job.isdecimal() else None  # of `local`: a name as long as a line


def _copies(node: Row) -> str | None:
    attempt = _deciding(node)
    if attempt is None or attempt["copies_done"] is None:
        return None
    planned = attempt["copies_planned"]
    return f"{attempt['copies_done']}" + ("" if planned is None else f"/{planned}")


def listed_document(fleets: Sequence[StoredFleet]) -> list[dict[str, Any]]:
    """Return all fleets."""
    return [to_json(fleet, _LISTED) for fleet in fleets]


def listed_parts(fleets: Sequence[Row]) -> Iterator[Part]:
    """Yield a line for each fleet."""
    if not fleets:
        yield Line("no fleets stored yet; `rater fleet run --nodes NODES` makes one")
    fields = (
        Field(heading="fleet", value="fleet"),
        Field(
            heading="started (UTC)",
            value=lambda it: it["started_at"][:16].replace("T", " "),
            form=TEXT,
        ),
        Field(heading="on", value="backend", form=TEXT, optional=1),
        Field(heading="what", value="what", form=TEXT, flexible=True),
        Field(heading="complete", value=lambda it: f"{it['complete']}/{it['nodes']}"),
        Field(heading="status", value="status", form=TEXT),
    )
    yield ViewTable(title="", rows=fleets, fields=fields)
