"""Sweeps in the database: what was planned, and which run was made for what."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rater.errors import InputError
from rater.plan.sweep.grid import AxisKind, BlockOrder, Slot, Values
from rater.process_id import ProcessId, is_alive, this_process
from rater.record.run import Host, MachinePU, Run, storable
from rater.record.status import RunStatus
from rater.store.insert import insert_run
from rater.store.read import named
from rater.store.remove import remove_runs
from rater.store.store import Store

PREFIX = "sweep:"  # what SWEEP begins with where a RUN may stand
_LAST = re.compile(r"last(?:~([0-9]{1,9}))?", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
_LEAST_OF_A_UUID = 4
_HEAD = (
    "uuid started_at rounds block_order seed until stop_on_failure suite command_line "
    "rater_version directory file file_sha256 file_text"
)
_REPLACED = "replaced-by"  # tag of a run that did not get to its end: the run in its place
_NOT_COUNTED = "not-counted"  # tag of a run that was not made as its point says: why


@dataclass(frozen=True, slots=True)
class SweepAsked:
    """What was asked for: the head of a sweep, as it is stored before the first run."""

    uuid: str
    started_at: str  # UTC, ISO 8601 with "Z"
    rounds: int
    order: BlockOrder
    seed: int
    until: float | None  # 0.01: 1 %
    stop_on_failure: bool
    suite: str | None  # None: a plain command
    command_line: str
    rater_version: str
    directory: str
    file: str | None = None  # the TOML file it was read from
    file_sha256: str | None = None
    file_text: str | None = None


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One combination of values."""

    point: int  # from 0, the baseline
    label: str
    values: Values
    request: str  # JSON, as `request_to_json` has it; without settings of the machine
    left_out: str | None  # why it cannot run


@dataclass(frozen=True, slots=True)
class SlotRun:
    """One run that a sweep planned, and what there is of it."""

    slot: Slot
    run: int | None  # None: not begun
    status: RunStatus | None  # as stored: a killed rater's run is still "running"
    done: bool  # all of it was measured, well or not
    elapsed_s: float | None  # first release to last finish

    @property
    def failed(self) -> bool:
        """Tell whether it is done and a copy of it failed."""
        return self.done and self.status is RunStatus.FAILED


@dataclass(frozen=True, slots=True)
class StoredSweep:
    """A sweep read back."""

    number: int
    asked: SweepAsked
    status: RunStatus  # `KILLED` where its rater is gone
    reason: str | None
    ended_at: str | None
    resumed: int
    extended: int  # how often rounds were added
    axes: tuple[tuple[str, AxisKind], ...]
    points: tuple[SweepPoint, ...]
    slots: tuple[SlotRun, ...]  # in the order in which they are run

    @property
    def missing(self) -> tuple[Slot, ...]:
        """What is still to be run."""
        return tuple(it.slot for it in self.slots if not it.done)


def new_sweep(
    store: Store,
    asked: SweepAsked,
    axes: Sequence[tuple[str, AxisKind]],
    points: Sequence[SweepPoint],
    slots: Iterable[Slot],
) -> int:
    """Store a sweep that begins now, made by this process; return its number."""
    with store.writing("beginning a sweep") as connection:
        owner = this_process()
        row = (
            *(asked.uuid, asked.started_at, asked.rounds, asked.order, asked.seed, asked.until),
            *(asked.stop_on_failure, asked.suite, storable(asked.command_line)),
            *(asked.rater_version, storable(asked.directory)),
            *(None if asked.file is None else storable(asked.file), asked.file_sha256),
            *(asked.file_text, RunStatus.RUNNING, owner.pid, owner.pid_start, owner.boot_id),
        )
        columns = f"{_HEAD} status pid pid_start boot_id".split()
        cursor = connection.execute(
            f"INSERT INTO sweep ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
            row,
        )
        number = cursor.lastrowid or 0
        connection.executemany(
            "INSERT INTO sweep_axis (sweep_id, position, name, kind) VALUES (?, ?, ?, ?)",
            ((number, place, name, kind) for place, (name, kind) in enumerate(axes)),
        )
        connection.executemany(
            "INSERT INTO sweep_point (sweep_id, point, label, request, left_out) "
            "VALUES (?, ?, ?, ?, ?)",
            ((number, it.point, storable(it.label), it.request, it.left_out) for it in points),
        )
        connection.executemany(
            "INSERT INTO sweep_value (sweep_id, point, axis, value) VALUES (?, ?, ?, ?)",
            (
                (number, it.point, axis, storable(value))
                for it in points
                for axis, value in it.values
            ),
        )
        _add_slots(connection, number, slots)
    return number


def take_up(store: Store, number: int, *, resumed: int, rounds: int, slots: Iterable[Slot]) -> None:
    """Make a stored sweep this process's own: it goes on, with more blocks where asked for.

    `resumed` is how often it had been taken up when the caller looked at it. Raises
    `InputError` when another rater has it, or has had it since then.
    """
    with store.writing("taking up a sweep") as connection:
        row = connection.execute(
            "SELECT status, resumed, pid, pid_start, boot_id FROM sweep WHERE id = ?", (number,)
        ).fetchone()
        if row is None:
            raise InputError(f"there is no sweep {number} any more")
        if row[0] == RunStatus.RUNNING and is_alive(ProcessId(*row[2:])):
            raise InputError(f"sweep {number} is still running (rater's process {row[2]})")
        if row[1] != resumed:
            raise InputError(f"sweep {number} was taken up by another rater meanwhile; try again")
        owner = this_process()
        connection.execute(
            "UPDATE sweep SET status = ?, reason = NULL, ended_at = NULL, resumed = resumed + 1, "
            "extended = extended + (rounds < ?), rounds = ?, pid = ?, pid_start = ?, boot_id = ? "
            "WHERE id = ?",
            (RunStatus.RUNNING, rounds, rounds)
            + (owner.pid, owner.pid_start, owner.boot_id, number),
        )
        _add_slots(connection, number, slots)


def give_back(store: Store, before: StoredSweep) -> None:
    """Leave a sweep that was taken up as it was before: nothing was made of it."""
    status = RunStatus.INTERRUPTED if before.status is RunStatus.KILLED else before.status
    with store.writing("giving back a sweep") as connection:
        connection.execute(
            "DELETE FROM sweep_slot WHERE sweep_id = ? AND block > ?",
            (before.number, before.asked.rounds),
        )
        connection.execute(
            "UPDATE sweep SET status = ?, reason = ?, ended_at = ?, rounds = ?, extended = ? "
            "WHERE id = ?",
            (status, before.reason, before.ended_at, before.asked.rounds, before.extended)
            + (before.number,),
        )


def looks_at(store: Store, runs: Iterable[int]) -> int:
    """Return how often the results of the sweeps that made these runs were looked at, at most.

    Those with `--until` look after every block from the third on; blocks that were added
    later were asked for because of what the earlier ones said. 1 for all other runs.
    """
    with store.reading() as connection:
        found = [
            connection.execute(
                "SELECT CASE WHEN until IS NULL THEN 1 + extended ELSE rounds - 2 END "
                "FROM sweep_run JOIN sweep ON sweep.id = sweep_id WHERE run_id = ?",
                (run,),
            ).fetchone()
            for run in runs
        ]
    return max([1, *(int(row[0]) for row in found if row)])


def begin_run(
    store: Store,
    number: int,
    slot: Slot,
    run: Run,
    host: Host,
    *,
    settings: Iterable[tuple[str, str]],
    pus: Iterable[MachinePU],
    phases: int,
) -> int:
    """Store the head of a run and what it is of the sweep in one transaction; return its number.

    A run made for the same slot before, which did not get to its end, is kept, tagged
    and counts no more. Raises `InputError` where one is done.
    """
    place = (number, slot.block, slot.point)
    of_slot = "sweep_id = ? AND block = ? AND point = ? AND replaced = 0"
    with store.writing("beginning a run") as connection:
        done = connection.execute(
            "SELECT run_id FROM sweep_progress "
            "WHERE sweep_id = ? AND block = ? AND point = ? AND done",
            place,
        ).fetchone()
        if done:
            raise InputError(
                f"run {done[0]} was made meanwhile for this point of sweep {number}; "
                f"`rater sweep --resume {number}` goes on"
            )
        before = connection.execute(
            f"SELECT run_id FROM sweep_run WHERE {of_slot}", place
        ).fetchone()
        run_id = insert_run(connection, run, host, settings=settings, pus=pus, owner=this_process())
        if before:
            connection.execute(f"UPDATE sweep_run SET replaced = 1 WHERE {of_slot}", place)
            connection.execute(
                "INSERT OR REPLACE INTO tag (run_id, name, value) VALUES (?, ?, ?)",
                (before[0], _REPLACED, str(run_id)),
            )
        connection.execute(
            "INSERT INTO sweep_run (run_id, sweep_id, block, point, phases) VALUES (?, ?, ?, ?, ?)",
            (run_id, *place, phases),
        )
    return run_id


def discard_run(store: Store, run: int, why: str) -> None:
    """Keep a run that was not made as its point says, and count it no more: it is made again.

    Its tags do not say any longer which point and block it was of: that is not so.
    """
    with store.writing("marking a run") as connection:
        connection.execute(
            "DELETE FROM tag WHERE run_id = ? AND (name = 'block' OR name IN (SELECT name FROM "
            "sweep_axis JOIN sweep_run USING (sweep_id) WHERE sweep_run.run_id = tag.run_id))",
            (run,),
        )
        connection.execute("UPDATE sweep_run SET replaced = 1 WHERE run_id = ?", (run,))
        connection.execute(
            "INSERT OR REPLACE INTO tag (run_id, name, value) VALUES (?, ?, ?)",
            (run, _NOT_COUNTED, storable(why)),
        )


def end_sweep(
    store: Store, number: int, status: RunStatus, reason: str | None, ended_at: str
) -> None:
    """Store how a sweep ended."""
    with store.writing("ending a sweep") as connection:
        connection.execute(
            "UPDATE sweep SET status = ?, reason = ?, ended_at = ? WHERE id = ?",
            (status, reason, ended_at, number),
        )


def load_sweep(store: Store, number: int) -> StoredSweep:
    """Return a sweep with all it planned; raises `InputError` when there is none."""
    with store.reading() as connection:
        found = _load(connection, [number])
    if not found:
        raise InputError(f"there is no sweep {number}; `rater sweep --list` shows what there is")
    return found[0]


def sweeps(store: Store) -> tuple[StoredSweep, ...]:
    """Return all sweeps in the order they were begun."""
    with store.reading() as connection:
        numbers = [row[0] for row in connection.execute("SELECT id FROM sweep ORDER BY id")]
        return tuple(_load(connection, numbers))


def find_sweep(store: Store, spec: str) -> int:
    """Return the number of the sweep that SWEEP means.

    SWEEP is a number, `last`, `last~1` or the start of a uuid, with or without `sweep:`
    before it. Raises `InputError` when it means none, or several.
    """
    word = spec.removeprefix(PREFIX)
    with store.reading() as connection:
        known = connection.execute("SELECT id, uuid FROM sweep ORDER BY id DESC").fetchall()
    if not known:
        raise InputError(f"{store.path}: no sweeps stored yet; `rater sweep` makes one")
    last = _LAST.fullmatch(word)
    if last:
        back = int(last[1] or 0)
        if back < len(known):
            return int(known[back][0])
    elif _NUMBER.fullmatch(word) and any(number == int(word) for number, _ in known):
        return int(word)
    elif len(word) >= _LEAST_OF_A_UUID:
        meant = [number for number, uuid in known if uuid.startswith(word)]
        if len(meant) == 1:
            return int(meant[0])
    raise InputError(
        f"{spec!r}: no such sweep in {store.path}; SWEEP is a number up to {known[0][0]}, `last`, "
        "`last~1` or the start of a uuid, and `rater sweep --list` shows them"
    )


def _add_slots(connection: sqlite3.Connection, number: int, slots: Iterable[Slot]) -> None:
    connection.executemany(
        "INSERT INTO sweep_slot (sweep_id, block, position, point) VALUES (?, ?, ?, ?)",
        ((number, it.block, it.position, it.point) for it in slots),
    )


def _load(connection: sqlite3.Connection, numbers: Sequence[int]) -> list[StoredSweep]:
    found = []
    for number in numbers:
        key = (number,)
        row = connection.execute(
            f"SELECT {', '.join(_HEAD.split())}, status, reason, ended_at, resumed, extended, pid, "
            "pid_start, boot_id FROM sweep WHERE id = ?",
            key,
        ).fetchone()
        if row is None:
            continue
        *asked, status, reason, ended_at, resumed, extended, pid, pid_start, boot_id = row
        status = RunStatus(status)
        if status is RunStatus.RUNNING and not is_alive(ProcessId(pid, pid_start, boot_id)):
            status = RunStatus.KILLED
        asked[3], asked[6] = BlockOrder(asked[3]), bool(asked[6])
        axes = connection.execute(
            "SELECT name, kind FROM sweep_axis WHERE sweep_id = ? ORDER BY position", key
        ).fetchall()
        found.append(
            StoredSweep(
                number=number,
                asked=SweepAsked(*asked),
                status=status,
                reason=reason,
                ended_at=ended_at,
                resumed=resumed,
                extended=extended,
                axes=tuple((name, AxisKind(kind)) for name, kind in axes),
                points=_points(connection, number, [name for name, _ in axes]),
                slots=tuple(
                    SlotRun(
                        Slot(block, position, point),
                        run,
                        None if status is None else RunStatus(status),
                        bool(done),
                        elapsed_s,
                    )
                    for block, position, point, _, run, status, done, elapsed_s in (
                        connection.execute(named("sweep_runs"), {"sweep": number})
                    )
                ),
            )
        )
    return found


def _points(
    connection: sqlite3.Connection, number: int, axes: Sequence[str]
) -> tuple[SweepPoint, ...]:
    values: dict[int, dict[str, str]] = {}
    for point, axis, value in connection.execute(
        "SELECT point, axis, value FROM sweep_value WHERE sweep_id = ?", (number,)
    ):
        values.setdefault(point, {})[axis] = value
    rows = connection.execute(
        "SELECT point, label, request, left_out FROM sweep_point WHERE sweep_id = ? ORDER BY point",
        (number,),
    )
    return tuple(
        SweepPoint(
            point, label, tuple((axis, values[point][axis]) for axis in axes), request, left_out
        )
        for point, label, request, left_out in rows
    )


def remove_sweeps(store: Store, sweeps: Sequence[int], runs: Iterable[int]) -> tuple[int, ...]:
    """Remove sweeps with every run made for them, and these runs too, all or none.

    Returns the runs that are gone: those named first, then the sweeps' own by number. Raises
    `InputError` while a sweep, or a run, still runs.
    """
    with store.writing("removing a sweep") as connection:
        gone = dict.fromkeys(runs)
        for sweep in sweeps:
            row = connection.execute(
                "SELECT status, pid, pid_start, boot_id FROM sweep WHERE id = ?", (sweep,)
            ).fetchone()
            if row is not None and row[0] == RunStatus.RUNNING and is_alive(ProcessId(*row[1:])):
                raise InputError(
                    f"sweep {sweep} is still running (rater's process {row[1]}); end it first"
                )
            gone |= dict.fromkeys(
                run
                for (run,) in connection.execute(
                    "SELECT run_id FROM sweep_run WHERE sweep_id = ? ORDER BY run_id", (sweep,)
                )
            )
        remove_runs(connection, gone)
        connection.executemany("DELETE FROM sweep WHERE id = ?", ((sweep,) for sweep in sweeps))
    return tuple(gone)
