"""A fleet as a document and tables over it: each node, how far it came, and why no further."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rater.fleet.backends import compress
from rater.fleet.plan import AttemptState, NodeAttempt, StoredFleet, copies_told
from rater.show.document import TEXT, Field, Line, Part, Row, ViewTable
from rater.text.values import JsonFields, count, group_by_key, to_json

_MOST_ROWS = 40  # of a terminal: nodes that came to nothing stand before others
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
        "fleet=number asked.started_at asked.backend asked.what asked.confirms",
        {"nodes": lambda it: len(it.attempts)},
        "complete status",
    )
}


def fleet_document(fleet: StoredFleet, silent: str | None) -> dict[str, Any]:
    """Return a fleet and each of its nodes; `silent`: why the scheduler gave no answer."""
    counted = Counter(it.state.value if it else _NOT_TRIED for it in fleet.deciding.values())
    document: dict[str, Any] = to_json(
        {
            "rater": 1,
            "fleet": fleet.number,
            **JsonFields("uuid started_at backend folder what confirms").of(fleet.asked),
            "status": fleet.status,
            "scheduler": silent,
            "counts": {it: counted[it] for it in (*AttemptState, _NOT_TRIED) if counted[it]},
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


def _why(it: NodeAttempt, attempts: Sequence[NodeAttempt]) -> str | None:
    """The reason, without the copies, which have a column; or why the attempt before ended."""
    if it.reason is not None:
        return _without_copies(it)
    before = [one for one in attempts if one.attempt < it.attempt][-1:]
    told = (f"attempt {one.attempt} {one.state.text}: {_without_copies(one)}" for one in before)
    return next(told, None)


def _without_copies(it: NodeAttempt) -> str | None:
    told = copies_told(it.verdict) if it.verdict else None
    return (it.reason or "").removesuffix(told or "").removesuffix("; ") or None


def fleet_parts(document: Row, *, every: bool = False) -> Iterator[Part]:
    """Yield the head, then a line for each node; of many, those that are complete as a number."""
    nodes = sorted(document["nodes"], key=lambda it: _ORDER.index(it["state"]))
    told = ", ".join(f"{many} {_text(state)}" for state, many in document["counts"].items())
    many = count(len(nodes), "node")
    yield f"Fleet {document['fleet']}: {document['what']}, {many}: {told}"
    if (silent := document["scheduler"]) is not None:
        yield f"The scheduler gave no answer, so nothing is concluded: {silent}"
    shown = nodes
    if not every and len(nodes) > _MOST_ROWS:
        shown = [it for it in nodes if it["state"] != AttemptState.COMPLETE][:_MOST_ROWS]
    fields = (
        Field("node", "node", TEXT),
        Field("state", lambda it: _text(it["state"]), TEXT),
        Field("try", "attempt"),
        Field("job", _job, optional=2),
        Field("copies", _copies, optional=1),
        Field("why", "why", wrap=True),
    )
    yield ViewTable("", shown, fields, style=lambda it: _STYLES.get(it["state"], "yellow"))
    left = group_by_key((it["state"], it["node"]) for it in nodes if it not in shown)
    for state, names in left.items():
        yield f"{count(len(names), 'more node')} {_text(state)}: {compress(names)}"


def _text(state: str) -> str:
    return state if state == _NOT_TRIED else AttemptState(state).text


def _deciding(node: Row) -> Row | None:
    return next((it for it in node["attempts"] if it["attempt"] == node["attempt"]), None)


def _job(node: Row) -> str | None:
    job = (_deciding(node) or {}).get("job")
    return job if job and job.isdecimal() else None  # of `local`: a name as long as a line


def _copies(node: Row) -> str | None:
    one = _deciding(node)
    if one is None or one["copies_done"] is None:
        return None
    planned = one["copies_planned"]
    return f"{one['copies_done']}" + ("" if planned is None else f"/{planned}")


def listed_document(fleets: Sequence[StoredFleet]) -> list[dict[str, Any]]:
    """Return all fleets."""
    return [to_json(it, _LISTED) for it in fleets]


def listed_parts(fleets: Sequence[Row]) -> Iterator[Part]:
    """Yield a line for each fleet."""
    if not fleets:
        yield Line("no fleets stored yet; `rater fleet run --nodes NODES` makes one")
    fields = (
        Field("fleet", "fleet"),
        Field("started (UTC)", lambda it: it["started_at"][:16].replace("T", " "), TEXT),
        Field("on", "backend", TEXT, optional=1),
        Field("what", "what", TEXT, flexible=True),
        Field("complete", lambda it: f"{it['complete']}/{it['nodes']}"),
        Field("status", "status", TEXT),
    )
    yield ViewTable("", fleets, fields)
