"""A fleet as a table and as JSON: each node, how far it came, and why no further."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rater.fleet.plan import AttemptState, NodeAttempt, compress, copies_told
from rater.show.console import Columns, Printer
from rater.text.values import count

_MOST_ROWS = 40  # of a terminal: nodes that came to nothing stand before others
_STYLES = {
    AttemptState.COMPLETE: "green",
    **dict.fromkeys((AttemptState.PENDING, AttemptState.SUBMITTED, AttemptState.INTENT), "dim"),
    AttemptState.RUNNING: "",
}
# Nodes that want somebody's attention come first.
_ORDER = (
    *(AttemptState.LOST, AttemptState.REFUSED, AttemptState.FAILED, AttemptState.NEVER),
    *(AttemptState.TIMEOUT, AttemptState.PARTIAL, AttemptState.CANCELLED, AttemptState.RUNNING),
    *(AttemptState.PENDING, AttemptState.SUBMITTED, AttemptState.INTENT, None),
    AttemptState.COMPLETE,
)


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node of a fleet: the attempt that stands for it, and all there were."""

    node: str
    stands: NodeAttempt | None  # None: not tried yet
    attempts: tuple[NodeAttempt, ...]

    @property
    def word(self) -> str:
        """How far it came."""
        return "waiting" if self.stands is None else self.stands.state.value


@dataclass(frozen=True, slots=True)
class FleetView:
    """A fleet as it is shown."""

    number: int
    uuid: str
    started_at: str
    backend: str
    folder: str
    what: str  # suites or command
    status: str  # running, complete, incomplete, cancelled
    silent: str | None  # why the scheduler gave no answer
    nodes: tuple[NodeView, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes came how far."""
        found = Counter(it.word for it in self.nodes)
        order = [*(state.value for state in AttemptState), "waiting"]
        return {word: found[word] for word in order if found[word]}


@dataclass(frozen=True, slots=True)
class FleetListed:
    """A fleet in the list of all."""

    number: int
    started_at: str
    backend: str
    what: str
    nodes: int
    complete: int
    status: str


def what_text(words: Sequence[str], command: Sequence[str] | None) -> str:
    """Return what is measured: the suites, or the command."""
    if command:
        return shlex.join(command)
    return " ".join(word for word in words if not word.startswith("-")) or "mini"


def print_fleet(view: FleetView, printer: Printer, *, every: bool = False) -> None:
    """Print the head, then a line for each node; of many, those that are complete as a number."""
    told = ", ".join(f"{number} {word}" for word, number in view.counts.items())
    printer.prose(f"Fleet {view.number}: {view.what}, {count(len(view.nodes), 'node')}: {told}")
    if view.silent is not None:
        printer.prose(f"the scheduler gave no answer, nothing is concluded: {view.silent}")
    nodes = sorted(view.nodes, key=lambda it: _ORDER.index(it.stands.state if it.stands else None))
    shown = list(nodes)
    if not every and len(nodes) > _MOST_ROWS:
        shown = [it for it in nodes if it.word != "complete"][:_MOST_ROWS]
    if shown:
        of = Columns(shown)
        styles = [_STYLES.get(it.stands.state, "yellow") if it.stands else "dim" for it in shown]
        printer.table(
            [
                of.left("node", lambda it: it.node),
                of.left("state", lambda it: it.word),
                of.right("try", lambda it: it.stands.attempt if it.stands else None),
                of.right("job", _job, optional=2),
                of.right("copies", _copies, optional=1),
                of.left("why", _why, flexible=True),
            ],
            styles,
        )
    left = [it for it in nodes if it not in shown]
    by_word = Counter(it.word for it in left)
    for word, number in by_word.items():
        names = compress(it.node for it in left if it.word == word)
        printer.prose(f"{count(number, 'more node')} {word}: {names}")


def _job(view: NodeView) -> str | None:
    job = view.stands.job if view.stands else None
    return job if job is None or job.isdecimal() else None  # of `local`: a name as long as a line


def _copies(view: NodeView) -> str | None:
    verdict = view.stands.verdict if view.stands else None
    if verdict is None or verdict.copies_done is None:
        return None
    planned = verdict.copies_planned
    return f"{verdict.copies_done}" + ("" if planned is None else f"/{planned}")


def _why(view: NodeView) -> str | None:
    """Return the reason, without what the column of copies has, or why the attempt before ended."""
    it = view.stands
    if it is None:
        return None
    if it.reason is None:
        before = [one for one in view.attempts if one.attempt < it.attempt]
        return (
            f"attempt {before[-1].attempt} {before[-1].state}: {_bare(before[-1])}"
            if before
            else None
        )
    return _bare(it)


def _bare(it: NodeAttempt) -> str | None:
    told = copies_told(it.verdict) if it.verdict else None
    return (it.reason or "").removesuffix(told or "").removesuffix("; ") or None


def print_fleets(lines: Sequence[FleetListed], printer: Printer) -> None:
    """Print a line for each fleet."""
    if not lines:
        printer.prose("no fleets stored yet; `rater fleet run` makes one")
        return
    of = Columns(lines)
    printer.table(
        [
            of.right("fleet", lambda it: it.number),
            of.left("started (UTC)", lambda it: it.started_at[:16].replace("T", " ")),
            of.left("on", lambda it: it.backend, optional=1),
            of.left("what", lambda it: it.what, flexible=True),
            of.right("complete", lambda it: f"{it.complete}/{it.nodes}"),
            of.left("status", lambda it: it.status),
        ]
    )


def fleet_document(view: FleetView) -> dict[str, object]:
    """Return a fleet for JSON."""
    return {
        "rater": 1,
        "fleet": view.number,
        "uuid": view.uuid,
        "started_at": view.started_at,
        "backend": view.backend,
        "folder": view.folder,
        "what": view.what,
        "status": view.status,
        "scheduler": view.silent,
        "counts": view.counts,
        "nodes": [_node_document(it) for it in view.nodes],
    }


def _node_document(view: NodeView) -> dict[str, object]:
    stands = view.stands
    return {
        "node": view.node,
        "state": view.word,
        "reason": stands.reason if stands else None,
        "run": stands.verdict.run if stands and stands.verdict else None,
        "attempts": [_attempt_document(it) for it in view.attempts],
    }


def _attempt_document(it: NodeAttempt) -> dict[str, object]:
    verdict = it.verdict
    return {
        "attempt": it.attempt,
        "state": it.state.value,
        "reason": it.reason,
        "job": it.job,
        "copies_done": verdict.copies_done if verdict else None,
        "copies_planned": verdict.copies_planned if verdict else None,
        "database": verdict.database if verdict else None,
        "collected": it.collected is not None,
        "notes": list(verdict.notes) if verdict else [],
        "host": verdict.host if verdict else {},
    }


def listed_document(lines: Sequence[FleetListed]) -> list[dict[str, object]]:
    """Return all fleets for JSON."""
    return [
        {
            "fleet": it.number,
            "started_at": it.started_at,
            "backend": it.backend,
            "what": it.what,
            "nodes": it.nodes,
            "complete": it.complete,
            "status": it.status,
        }
        for it in lines
    ]
