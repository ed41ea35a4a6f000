"""Sweeps in the database: what was planned, and which run was made for what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from rater.plan.sweep import (
    AxisKind,
    SlotRun,
    StoredSweep,
    SweepPoint,
    SweepSlot,
    SweepSpec,
    point_label,
)
from rater.record.run import RunStatus, escape_undecodable
from rater.record.stored import StoredRun
from rater.store.insert import insert_run
from rater.store.queries import named_query
from rater.store.read import find_numbered, refuse_running
from rater.store.rows import Database
from rater.store.store import Store, note_removal, remove_runs
from rater.system.errors import InputError
from rater.system.files import Sourced
from rater.system.process import ProcessId, is_alive, this_process
from rater.text.secrets import Redactor

PREFIX = "sweep:"  # what SWEEP begins with where a RUN may stand
_HEAD = (
    "SELECT id AS number, status, reason, ended_at, resumed, extended, pid, pid_start, boot_id "
    "FROM sweep WHERE id = :sweep"
)
_REPLACED = "replaced-by"  # tag of a run that did not get to its end: the run in its place
NOT_COUNTED = "not-counted"  # tag of a run that was not made as its point says: why


def new_sweep(
    store: Store,
    spec: SweepSpec,
    axes: Sequence[tuple[str, AxisKind]],
    points: Sequence[SweepPoint],
    slots: Iterable[SweepSlot],
) -> int:
    """Store a sweep that begins now, made by this process; return its number."""
    texts: dict[str, Any] = {
        "command_line": escape_undecodable(spec.command_line),
        "directory": escape_undecodable(spec.directory),
        "file": None if spec.file is None else escape_undecodable(spec.file),
    }
    made_by: dict[str, Any] = this_process()._asdict()
    with store.writing("beginning a sweep") as database:
        status = RunStatus.RUNNING
        number = database.insert("sweep", spec, status=status, **made_by, **texts)
        sweep_key: dict[str, Any] = {"sweep_id": number}
        for place, (name, kind) in enumerate(axes):
            database.insert("sweep_axis", **sweep_key, position=place, name=name, kind=kind)
        for point in points:
            database.insert(
                "sweep_point", point, **sweep_key, label=escape_undecodable(point.label)
            )
            for axis, value in point.values:
                text = escape_undecodable(value)
                database.insert(
                    "sweep_value", **sweep_key, point=point.point, axis=axis, value=text
                )
        database.insert_all("sweep_slot", slots, sweep_id=number)
    return number


def claim_sweep(
    store: Store, number: int, *, resumed: int, rounds: int, slots: Iterable[SweepSlot]
) -> None:
    """Make a stored sweep this process's own: it goes on, with more blocks where asked for.

    `resumed` is how often it had been taken up when the caller looked at it. Raises
    `InputError` when another rater has it, or has had it since then.
    """
    with store.writing("taking up a sweep") as database:
        row = database.execute("SELECT resumed FROM sweep WHERE id = ?", (number,)).fetchone()
        if row is None:
            raise InputError(f"there is no sweep {number} any more")
        refuse_running(database, "sweep", number)
        if row != (resumed,):
            raise InputError(f"sweep {number} was taken up by another rater meanwhile; try again")
        database.execute(
            "UPDATE sweep SET status = :status, reason = NULL, ended_at = NULL, "
            "resumed = resumed + 1, extended = extended + (rounds < :rounds), rounds = :rounds, "
            "pid = :pid, pid_start = :pid_start, boot_id = :boot_id WHERE id = :number",
            {"number": number, "status": RunStatus.RUNNING, "rounds": rounds}
            | this_process()._asdict(),
        )
        database.insert_all("sweep_slot", slots, sweep_id=number)


def undo_resume(store: Store, before: StoredSweep) -> None:
    """Leave a sweep that was taken up as it was before: nothing was made of it."""
    status = RunStatus.INTERRUPTED if before.status is RunStatus.KILLED else before.status
    with store.writing("giving back a sweep") as database:
        database.execute(
            "DELETE FROM sweep_slot WHERE sweep_id = ? AND block > ?",
            (before.number, before.asked.rounds),
        )
        database.execute(
            "UPDATE sweep SET status = ?, reason = ?, ended_at = ?, rounds = ?, extended = ? "
            "WHERE id = ?",
            (status, before.reason, before.ended_at, before.asked.rounds, before.extended)
            + (before.number,),
        )


def count_looks(store: Store, runs: Iterable[int]) -> int:
    """Return how often the results of the sweeps that made these runs were looked at, at most.

    Those with `--until` look after every block from the third on; blocks that were added
    later were asked for because of what the earlier ones said. 1 for all other runs.
    """
    with store.reading() as database:
        rows = [
            database.execute(
                "SELECT CASE WHEN until IS NULL THEN 1 + extended ELSE rounds - 2 END "
                "FROM sweep_run JOIN sweep ON sweep.id = sweep_id WHERE run_id = ?",
                (run,),
            ).fetchone()
            for run in runs
        ]
    return max([1, *(int(row[0]) for row in rows if row)])


def create_slot_run(
    store: Store,
    number: int,
    slot: SweepSlot,
    run: StoredRun,
    phases: int,
) -> int:
    """Store the head of a run and its slot of the sweep in one transaction; return its number.

    A run made for the same slot before, which did not get to its end, is kept, tagged
    and counts no more. Raises `InputError` where one is done.
    """
    place = (number, slot.block, slot.point)
    same_slot = "sweep_id = ? AND block = ? AND point = ? AND replaced = 0"
    with store.writing("beginning a run") as database:
        done = database.execute(
            "SELECT run_id FROM sweep_progress "
            "WHERE sweep_id = ? AND block = ? AND point = ? AND done",
            place,
        ).fetchone()
        if done:
            raise InputError(
                f"run {done[0]} was made meanwhile for this point of sweep {number}; "
                f"`rater sweep --resume {number}` goes on"
            )
        before = database.execute(
            f"SELECT run_id FROM sweep_run WHERE {same_slot}", place
        ).fetchone()
        run_id = insert_run(database, run, owner=this_process())
        if before:
            database.execute(f"UPDATE sweep_run SET replaced = 1 WHERE {same_slot}", place)
            _tag(database, before[0], _REPLACED, str(run_id))
        slot_key: dict[str, Any] = {"sweep_id": number, "block": slot.block, "point": slot.point}
        database.insert("sweep_run", run_id=run_id, phases=phases, **slot_key)
    return run_id


def discard_run(store: Store, run: int, why: str) -> None:
    """Keep a run that was not made as its point says, and count it no more: it is made again.

    Its tags do not say any longer which point and block it was of: that is not so.
    """
    with store.writing("marking a run") as database:
        database.execute(
            "DELETE FROM tag WHERE run_id = ? AND (name = 'block' OR name IN (SELECT name FROM "
            "sweep_axis JOIN sweep_run USING (sweep_id) WHERE sweep_run.run_id = tag.run_id))",
            (run,),
        )
        database.execute("UPDATE sweep_run SET replaced = 1 WHERE run_id = ?", (run,))
        _tag(database, run, NOT_COUNTED, escape_undecodable(why))


def end_sweep(
    store: Store, number: int, status: RunStatus, reason: str | None, ended_at: str
) -> None:
    """Store how a sweep ended."""
    with store.writing("ending a sweep") as database:
        database.execute(
            "UPDATE sweep SET status = ?, reason = ?, ended_at = ? WHERE id = ?",
            (status, reason, ended_at, number),
        )


def load_sweep(store: Store, number: int) -> StoredSweep:
    """Return a sweep with all it planned, to be shown: without secrets. `InputError`: none."""
    return _redacted(load_asked_sweep(store, number).value)


def load_asked_sweep(store: Store, number: int) -> Sourced[StoredSweep]:
    """Return the same with its secrets, to make its runs where nobody else can have asked."""
    with store.reading() as database:
        sweeps = _load(database, [number])
    if not sweeps:
        raise InputError(f"there is no sweep {number}; `rater sweep --list` shows what there is")
    return store.sourced(sweeps[0])


def sweeps(store: Store) -> tuple[StoredSweep, ...]:
    """Return all sweeps in the order they were begun."""
    with store.reading() as database:
        numbers = [row[0] for row in database.execute("SELECT id FROM sweep ORDER BY id")]
        return tuple(map(_redacted, _load(database, numbers)))


def find_sweep(store: Store, spec: str) -> int:
    """Return the number of the sweep that SWEEP means.

    SWEEP is a number, `last`, `last~1` or the start of a uuid, with or without `sweep:`
    before it. Raises `InputError` when it means none, or several.
    """
    with store.reading() as database:
        stored = database.execute("SELECT id, uuid FROM sweep ORDER BY id DESC").fetchall()
    words = {"kind": "sweep", "makes": "rater sweep", "lists": "rater sweep --list"}
    return find_numbered(store.path, spec, stored, **words)


def _tag(database: Database, run: int, name: str, value: str) -> None:
    database.insert("tag", replace=True, run_id=run, name=name, value=value)


def _redacted(sweep: StoredSweep) -> StoredSweep:
    redactor = Redactor()
    shown = [replace(point, values=redactor.redact_pairs(point.values)) for point in sweep.points]
    return replace(
        sweep, points=tuple(replace(point, label=point_label(point.values)) for point in shown)
    )


def _load(database: Database, numbers: Sequence[int]) -> list[StoredSweep]:
    return [sweep for number in numbers for sweep in _loaded(database, number)]


def _loaded(database: Database, number: int) -> list[StoredSweep]:
    query = "SELECT name, kind FROM sweep_axis WHERE sweep_id = :sweep ORDER BY position"
    axes = database.read_values(query, str, AxisKind, sweep=number)
    values: defaultdict[int, dict[str, str]] = defaultdict(dict)
    query = "SELECT point, axis, value FROM sweep_value WHERE sweep_id = :sweep"
    for place, axis, value in database.read_values(query, int, str, str, sweep=number):
        values[place][axis] = value

    def point(row: dict[str, Any]) -> None:
        row["values"] = tuple((axis, values[row["point"]].get(axis, "")) for axis, _ in axes)

    def slot(row: dict[str, Any]) -> None:
        row["slot"] = SweepSlot(row.pop("block"), row.pop("position"), row.pop("point"))
        row["run"] = row.pop("run_id")
        del row["label"]

    def sweep(row: dict[str, Any]) -> None:
        owner = ProcessId(row.pop("pid"), row.pop("pid_start"), row.pop("boot_id"))
        if row["status"] is RunStatus.RUNNING and not is_alive(owner):
            row["status"] = RunStatus.KILLED
        (row["asked"],) = database.read_table(SweepSpec, "sweep", id=number)
        if (until := row["asked"].until) is not None and until <= 0:
            raise InputError(f"sweep {number} is damaged: until {until}; `rater rm` it")
        row["axes"] = tuple(axes)
        row["points"] = database.read_table(
            SweepPoint, "sweep_point", order="point", finish=point, sweep_id=number
        )
        row["slots"] = tuple(
            database.read(SlotRun, named_query("sweep_runs"), finish=slot, sweep=number)
        )

    return database.read(StoredSweep, _HEAD, finish=sweep, sweep=number)


def remove_sweeps(store: Store, sweeps: Sequence[int], runs: Iterable[int]) -> dict[int, str]:
    """Remove sweeps with every run made for them, and these runs too, all or none.

    Returns the uuids of the runs that are gone by number: those named first, then the sweeps' own.
    Raises `InputError` while a sweep, or a run, still runs.
    """
    with store.writing("removing a sweep") as database:
        removed = dict.fromkeys(runs)
        for sweep in sweeps:
            refuse_running(database, "sweep", sweep)
            removed |= dict.fromkeys(
                run
                for (run,) in database.execute(
                    "SELECT run_id FROM sweep_run WHERE sweep_id = ? ORDER BY run_id", (sweep,)
                )
            )
        uuids = {
            run: uuid
            for run in removed
            for (uuid,) in database.execute("SELECT uuid FROM run WHERE id = ?", (run,))
        }
        remove_runs(database, removed)
        for sweep in sweeps:
            note_removal(database, "sweep", sweep)
        database.executemany("DELETE FROM sweep WHERE id = ?", ((sweep,) for sweep in sweeps))
    return uuids
