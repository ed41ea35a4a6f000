"""What tests of the store write and read: hosts, CPUs, runs that others began."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from msgspec.structs import replace

from rater.files import folder
from rater.process import ProcessId
from rater.record.run import Host, MachinePU, Run
from rater.store.store import Store
from tests.support.example_events import run_of

HOST = Host("f", "node7", "m", "CPU 9000", "0x1", "Maker", 64, 4, 2, 1, 1, "x86_64", "Box")


PUS = (MachinePU(0, 0, 0, 0, 0), MachinePU(1, 0, 0, 0, 0), MachinePU(2, None, None, None, None))


GONE = ProcessId(pid=1, pid_start=-1, boot_id="of another boot")


def begin(store: Store, run: Run | None = None, owner: ProcessId | None = None) -> int:
    return store.create_run(run or run_of(2), HOST, [("governor", "performance")], PUS, owner)


def with_uuid(uuid: str) -> Run:
    return replace(run_of(2), uuid=uuid)


def rows(store: Store, query: str, **values: object) -> list[tuple[object, ...]]:
    """What another program reads from the same file at the same time."""
    with closing(sqlite3.connect(store.path)) as connection:
        return connection.execute(query, values).fetchall()


def query_file(store: Store, name: str) -> list[tuple[object, ...]]:
    """The answer to a query of the folder `db`, over all runs."""
    return rows(store, (folder("db") / "queries" / f"{name}.sql").read_text(), run=None)
