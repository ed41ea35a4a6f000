"""Fleets in the database: what was planned, and what became of each attempt at each node."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rater.fleet.plan import (
    AttemptState,
    FleetRequest,
    NodeAttempt,
    StoredFleet,
    verdict_from_json,
)
from rater.record.run import escape_undecodable
from rater.record.stored import RunHead
from rater.store.open_database import OpenDatabase
from rater.store.read import find_numbered
from rater.store.rows import Database, Value
from rater.store.store import Store
from rater.system.errors import InputError
from rater.system.process import ProcessId, is_alive, this_process
from rater.text.values import group_by_key, to_dict

# -- What a node's own database holds of the run that a fleet asked it for -------------------------

# What counts: phases whose every copy ran to its end, in no attempt that is measured again.
_DONE = (
    "SELECT count(*) FROM copy JOIN bracket USING (run_id, phase) WHERE run_id = ? "
    "AND bracket.complete AND NOT bracket.torn AND copy.status <> 'interrupted'"
)
_PLANNED = (
    "SELECT copies * iterations * (SELECT count(*) FROM benchmark WHERE run_id = run.id) "
    "FROM run WHERE id = ? AND window_s IS NULL"
)


class NodeRun(NamedTuple):
    """The run, and how far it came."""

    head: RunHead  # `KILLED` where its rater is gone
    copies_done: int
    copies_planned: int | None  # None: not known beforehand (steady)


def node_run(store: Store) -> NodeRun | None:
    """Return the last run of a database, or None if it has no run."""
    for head in store.runs()[-1:]:
        with store.reading() as connection:
            (done,) = connection.execute(_DONE, (head.run,)).fetchone()
            (planned,) = connection.execute(_PLANNED, (head.run,)).fetchone() or (None,)
        return NodeRun(head, done, planned)
    return None


# -- Fleets in the database: what was planned, and what became of each attempt at each node --------

PREFIX = "fleet:"  # what FLEET begins with where a RUN may stand
_KEPT = (
    *("state", "reason", "job", "ending", "ending_s", "started_s", "pending_s", "gone_s"),
    *("ended_s", "collected"),
)
_SET = ", ".join(f"{name} = :{name}" for name in (*_KEPT, "verdict"))
_OF = "fleet_id = :fleet AND node = :node AND attempt = :attempt"
_CHANGE = f"UPDATE fleet_attempt SET {_SET}, version = version + 1 WHERE {_OF} AND version = :seen"


def new_fleet(store: OpenDatabase, request: FleetRequest, nodes: Sequence[str]) -> int:
    """Store a fleet that begins now, made by this process; return its number."""
    with store.writing("beginning a fleet") as connection:
        number = insert_fleet(connection, request)
        for place, node in enumerate(nodes):
            connection.insert("fleet_node", fleet_id=number, position=place, node=node)
    return number


def insert_fleet(connection: Database, request: FleetRequest, begun: int = 0) -> int:
    """Add the head of a fleet that this process makes; `begun`: 1 where it comes to its end now."""
    texts: dict[str, Any] = {
        "directory": escape_undecodable(request.directory),
        "command_line": escape_undecodable(request.command_line),
    }
    owner: dict[str, Any] = this_process()._asdict()
    return connection.insert("fleet", request, **texts, **owner, begun=begun)


def insert_ended(connection: Database, number: int, attempts: Iterable[NodeAttempt]) -> None:
    """Add attempts that nothing is awaited of, and their nodes where they are not there."""
    for attempt in attempts:
        query = "SELECT count(*), coalesce(sum(node = ?), 0) FROM fleet_node WHERE fleet_id = ?"
        nodes, is_there = connection.execute(query, (attempt.node, number)).fetchone()
        if not is_there:
            connection.insert("fleet_node", fleet_id=number, position=nodes, node=attempt.node)
        connection.execute(f"DELETE FROM fleet_attempt WHERE {_OF}", _key(number, attempt))
        connection.insert("fleet_attempt", attempt, fleet_id=number, verdict=None)


def unfinished_like(store: OpenDatabase, request: FleetRequest, nodes: Sequence[str]) -> int | None:
    """Return the fleet that was asked for so by a command that was killed before its end."""
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT id FROM fleet WHERE begun = 0 AND cancelled_at IS NULL ORDER BY id DESC"
        ).fetchall()
    for (number,) in rows:
        fleet = load_fleet(store, number)
        same = all(
            getattr(fleet.asked, name) == getattr(request, name)
            for name in (*("backend", "words", "command", "directory", "rater_version"), "scratch")
        )
        if same and [*fleet.attempts] == [*nodes] and not is_alive(fleet.owner):
            return int(number)
    return None


def set_fleet(store: OpenDatabase, number: int, **values: Value) -> None:
    """Store columns of a fleet's head, such as its owner, or that it is cancelled."""
    names = ", ".join(f"{name} = :{name}" for name in values)
    with store.writing("changing a fleet") as connection:
        connection.execute(f"UPDATE fleet SET {names} WHERE id = :id", {"id": number, **values})


def intend(
    store: OpenDatabase, number: int, node: str, attempt: int, now_s: float
) -> NodeAttempt | None:
    """Write down that an attempt is submitted next; None: somebody else just did."""
    attempt_made = NodeAttempt(
        node=node,
        attempt=attempt,
        state=AttemptState.INTENT,
        intended_s=now_s,
        **this_process()._asdict(),
    )
    with store.writing("planning a job") as connection:
        (is_there,) = connection.execute(
            "SELECT count(*) FROM fleet_attempt JOIN fleet ON fleet.id = fleet_id WHERE "
            "fleet_id = :fleet AND node = :node AND (attempt >= :attempt OR state IN "
            "('intent', 'submitted', 'pending', 'running', 'waiting', 'complete'))",
            {"fleet": number, "node": node, "attempt": attempt},
        ).fetchone()
        (ended,) = connection.execute(
            "SELECT cancelled_at IS NOT NULL FROM fleet WHERE id = ?", (number,)
        ).fetchone()
        if is_there or ended:
            return None
        connection.insert("fleet_attempt", attempt_made, fleet_id=number, verdict=None)
        _note(connection, number, attempt_made, now_s)
    return attempt_made


def claim_submission(store: OpenDatabase, number: int, attempt: NodeAttempt) -> bool:
    """Make an intent whose submitter is gone this process's own; False: somebody else just did."""
    with store.writing("taking up a job") as connection:
        changed = connection.execute(
            "UPDATE fleet_attempt SET pid = :pid, pid_start = :pid_start, boot_id = :boot_id "
            f"WHERE {_OF} AND version = :seen AND state = 'intent' AND pid = :old_pid",
            {**_key(number, attempt), **this_process()._asdict(), "old_pid": attempt.pid},
        ).rowcount
    return changed == 1


def change(
    store: OpenDatabase,
    number: int,
    changes: Iterable[tuple[NodeAttempt, NodeAttempt]],
    now_s: float,
) -> list[NodeAttempt]:
    """Store what became of attempts; those that somebody else changed meanwhile are left.

    Returns what was stored.
    """
    stored = []
    wanted = [(before, now) for before, now in changes if before != now]
    if not wanted:
        return []
    with store.writing("storing what became of jobs") as connection:
        for before, now in wanted:
            values: dict[str, Value] = {name: getattr(now, name) for name in _KEPT}
            values["verdict"] = None if now.verdict is None else json.dumps(to_dict(now.verdict))
            done = connection.execute(_CHANGE, {**values, **_key(number, before)}).rowcount
            if done != 1:
                continue
            stored.append(now)
            if (before.state, before.reason) != (now.state, now.reason):
                _note(connection, number, now, now_s)
    return stored


def load_fleet(store: OpenDatabase, number: int) -> StoredFleet:
    """Return a fleet with all attempts; raises `InputError` when there is none."""
    with store.reading() as connection:
        heads = connection.execute(
            "SELECT begun, cancelled_at, pid, pid_start, boot_id FROM fleet WHERE id = ?", (number,)
        ).fetchall()
        if not heads:
            raise InputError(f"there is no fleet {number}; `rater fleet list` shows what there is")
        begun, cancelled_at, *owner = heads[0]
        (asked,) = connection.read_table(FleetRequest, "fleet", id=number)
        nodes = tuple(
            node
            for (node,) in connection.execute(
                "SELECT node FROM fleet_node WHERE fleet_id = ? ORDER BY position", (number,)
            )
        )
        stored_attempts = connection.read_table(
            NodeAttempt,
            "fleet_attempt",
            order="node, attempt",
            finish=_with_verdict,
            fleet_id=number,
        )
    tried = group_by_key((it.node, it) for it in stored_attempts)
    attempts = {node: tuple(tried.get(node, ())) for node in nodes}
    return StoredFleet(
        number=number,
        asked=asked,
        begun=bool(begun),
        cancelled_at=cancelled_at,
        owner=ProcessId(*owner),
        attempts=attempts,
    )


def fleets(store: OpenDatabase) -> tuple[StoredFleet, ...]:
    """Return all fleets in the order they were begun."""
    with store.reading() as connection:
        rows = connection.execute("SELECT id FROM fleet ORDER BY id").fetchall()
    return tuple(load_fleet(store, number) for (number,) in rows)


def find_fleet(store: OpenDatabase, spec: str) -> int:
    """Return the number of the fleet that FLEET means: a number, `last`, the start of a uuid.

    With or without `fleet:` before it; those that confirm another one are no `last`. Raises
    `InputError` when it means none, or several.
    """
    word = spec.removeprefix(PREFIX)
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT id, uuid FROM fleet WHERE confirms IS NULL OR ? ORDER BY id DESC",
            (not word.startswith("last"),),
        ).fetchall()
    makes, lists = "rater fleet run --nodes NODES", "rater fleet list"
    return find_numbered(store.path, spec, rows, kind="fleet", makes=makes, lists=lists)


def _with_verdict(values: dict[str, Any]) -> None:
    try:
        values["verdict"] = values["verdict"] and verdict_from_json(values["verdict"])
    except ValueError as error:
        message = f"the stored verdict of node {values['node']} is damaged: {error}"
        raise InputError(message) from None


def _key(number: int, attempt: NodeAttempt) -> dict[str, Value]:
    return {
        "fleet": number,
        "node": attempt.node,
        "attempt": attempt.attempt,
        "seen": attempt.version,
    }


def _note(connection: Database, number: int, attempt: NodeAttempt, now_s: float) -> None:
    connection.insert("fleet_change", attempt, fleet_id=number, at_s=now_s)
