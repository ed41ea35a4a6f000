"""A fleet as a table and as JSON: each node, how far it came, and why no further."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rater.fleet.plan import AttemptState, NodeAttempt, compress, copies_told
from rater.fleet.store import StoredFleet
from rater.show.console import Columns, Printer
from rater.text.values import JsonFields, count, group_by_key, to_json

_MOST_ROWS = 40  # of a terminal: nodes that came to nothing stand before others
_MOST_WHY = 44  # characters; a longer reason stands whole below the table
_NOT_TRIED = "not submitted"
_STYLES = {
    AttemptState.COMPLETE: "green",
    **dict.fromkeys((AttemptState.PENDING, AttemptState.SUBMITTED, AttemptState.INTENT), "dim"),
    AttemptState.RUNNING: "",
}
# Nodes that want somebody's attention come first.
_ORDER = (
    *(AttemptState.LOST, AttemptState.REFUSED, AttemptState.FAILED, AttemptState.NEVER),
    *(AttemptState.TIMEOUT, AttemptState.PARTIAL, AttemptState.CANCELLED, AttemptState.WAITING),
    *(AttemptState.RUNNING, AttemptState.PENDING, AttemptState.SUBMITTED, AttemptState.INTENT),
    *(None, AttemptState.COMPLETE),
)


class _Row(NamedTuple):
    node: str
    stands: NodeAttempt | None  # None: not tried yet
    attempts: Sequence[NodeAttempt]

    @property
    def state(self) -> AttemptState | None:
        return self.stands.state if self.stands else None

    @property
    def text(self) -> str:
        return self.state.text if self.state else _NOT_TRIED

    @property
    def copies(self) -> str | None:
        verdict = self.stands and self.stands.verdict
        if not verdict or verdict.copies_done is None:
            return None
        planned = verdict.copies_planned
        return f"{verdict.copies_done}" + ("" if planned is None else f"/{planned}")

    @property
    def job(self) -> str | None:
        job = self.stands.job if self.stands else None
        return job if job and job.isdecimal() else None  # of `local`: a name as long as a line

    @property
    def why(self) -> str | None:
        """The reason, without what the column of copies has, or why the attempt before ended."""
        it = self.stands
        if it is None or it.reason is not None:
            return _bare(it) if it else None
        before = [one for one in self.attempts if one.attempt < it.attempt][-1:]
        return next((f"attempt {o.attempt} {o.state.text}: {_bare(o)}" for o in before), None)

    @property
    def short(self) -> str | None:
        """The reason, of a long one its beginning."""
        whole = self.why
        return whole if whole is None or len(whole) <= _MOST_WHY else whole.partition("; ")[0]


def _bare(it: NodeAttempt) -> str | None:
    told = copies_told(it.verdict) if it.verdict else None
    return (it.reason or "").removesuffix(told or "").removesuffix("; ") or None


def _rows(fleet: StoredFleet) -> list[_Row]:
    return [_Row(it, stands, fleet.attempts[it]) for it, stands in fleet.deciding.items()]


def print_fleet(
    fleet: StoredFleet, silent: str | None, printer: Printer, *, every: bool = False
) -> None:
    """Print the head, then a line for each node; of many, those that are complete as a number.

    `silent`: why the scheduler gave no answer.
    """
    rows = sorted(_rows(fleet), key=lambda it: _ORDER.index(it.state))
    counted = Counter(it.text for it in rows)
    words = [it.text for it in AttemptState] + [_NOT_TRIED]
    told = ", ".join(f"{counted[word]} {word}" for word in words if counted[word])
    printer.prose(
        f"Fleet {fleet.number}: {fleet.asked.what}, {count(len(fleet.nodes), 'node')}: {told}"
    )
    if silent is not None:
        printer.prose(f"the scheduler gave no answer, nothing is concluded: {silent}")
    shown = rows
    if not every and len(rows) > _MOST_ROWS:
        shown = [it for it in rows if it.state is not AttemptState.COMPLETE][:_MOST_ROWS]
    if shown:
        of = Columns(shown)
        styles = [_STYLES.get(it.state, "yellow") if it.state else "dim" for it in shown]
        printer.table(
            [
                of.left("node", lambda it: it.node),
                of.left("state", lambda it: it.text),
                of.right("try", lambda it: it.stands and it.stands.attempt),
                of.right("job", lambda it: it.job, optional=2),
                of.right("copies", lambda it: it.copies, optional=1),
                of.left("why", lambda it: it.short, flexible=True),
            ],
            styles,
        )
    long = group_by_key((it.why, it.node) for it in shown if len(it.why or "") > _MOST_WHY)
    for why, nodes in long.items():
        printer.prose(f"{compress(nodes)}: {why}")
    left = [it for it in rows if it not in shown]
    for word, number in Counter(it.text for it in left).items():
        names = compress(it.node for it in left if it.text == word)
        printer.prose(f"{count(number, 'more node')} {word}: {names}")


def print_fleets(fleets: Sequence[StoredFleet], printer: Printer) -> None:
    """Print a line for each fleet."""
    if not fleets:
        printer.prose("no fleets stored yet; `rater fleet run --nodes NODES` makes one")
        return
    of = Columns(fleets)
    printer.table(
        [
            of.right("fleet", lambda it: it.number),
            of.left("started (UTC)", lambda it: it.asked.started_at[:16].replace("T", " ")),
            of.left("on", lambda it: it.asked.backend, optional=1),
            of.left("what", lambda it: it.asked.what, flexible=True),
            of.right("complete", lambda it: f"{it.complete}/{len(it.nodes)}"),
            of.left("status", lambda it: it.status),
        ]
    )


_ASKED = JsonFields("uuid started_at backend folder what confirms")
_TABLE = {
    _Row: JsonFields(
        {"node": lambda it: it.node, "state": lambda it: it.state or _NOT_TRIED},
        "stands.reason run=stands.verdict.run attempts",
    ),
    NodeAttempt: JsonFields(
        "attempt state reason job verdict.copies_done verdict.copies_planned verdict.database",
        {
            "collected": lambda it: it.collected is not None,
            "notes": lambda it: it.verdict.notes if it.verdict else [],
            "host": lambda it: it.verdict.host if it.verdict else {},
        },
    ),
}


def fleet_document(fleet: StoredFleet, silent: str | None) -> dict[str, object]:
    """Return a fleet for JSON."""
    rows = _rows(fleet)
    counted = Counter(it.state.value if it.state else _NOT_TRIED for it in rows)
    document: dict[str, object] = to_json(
        {
            "rater": 1,
            "fleet": fleet.number,
            **_ASKED.of(fleet.asked),
            "status": fleet.status,
            "scheduler": silent,
            "counts": {it: counted[it] for it in (*AttemptState, _NOT_TRIED) if counted[it]},
            "nodes": rows,
        },
        _TABLE,
    )
    return document


def listed_document(fleets: Sequence[StoredFleet]) -> list[dict[str, object]]:
    """Return all fleets for JSON."""
    table = {
        StoredFleet: JsonFields(
            "fleet=number asked.started_at asked.backend asked.what asked.confirms",
            {"nodes": lambda it: len(it.nodes)},
            "complete status",
        )
    }
    return [to_json(it, table) for it in fleets]
