"""What tests of the store write and read: hosts, CPUs, runs that others began."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from msgspec.structs import replace

from rater.record.events import Event
from rater.record.run import MachinePU, Placement
from rater.record.stored import StoredRun
from rater.store.store import Store
from rater.system.paths import data_folder
from rater.system.process import ProcessId
from tests.support.example_events import placed, run_of, with_head

PUS = (
    MachinePU(cpu=0, core=0, llc=0, node=0, package=0),
    MachinePU(cpu=1, core=0, llc=0, node=0, package=0),
    MachinePU(cpu=2, core=None, llc=None, node=None, package=None),
)


GONE = ProcessId(pid=1, pid_start=-1, boot_id="of another boot")


def begin(store: Store, run: StoredRun | None = None, owner: ProcessId | None = None) -> int:
    made = replace(run or run_of(2), settings=(("governor", "performance"),), pus=PUS)
    return store.create_run(made, owner)


def append(store: Store, number: int, *events: Event) -> None:
    """Store events, those of copies with where the run has them."""
    with store.reading() as database:
        rows = database.read_table(Placement, "placement", run_id=number)
        ((discard,),) = database.read_values(
            "SELECT discard FROM run WHERE id = :id", int, id=number
        )
    placements = {row.copy: row for row in rows}
    store.append(number, *(placed(event, placements, discard) for event in events))


def with_uuid(uuid: str) -> StoredRun:
    return with_head(run_of(2), uuid=uuid)


def query_rows(store: Store, query: str, **values: object) -> list[tuple[object, ...]]:
    """What another program reads from the same file at the same time."""
    with closing(sqlite3.connect(store.path)) as connection:
        return connection.execute(query, values).fetchall()


def query_file(store: Store, name: str) -> list[tuple[object, ...]]:
    """The answer to a query of the folder `db`, over all runs."""
    return query_rows(store, (data_folder("db") / "queries" / f"{name}.sql").read_text(), run=None)
