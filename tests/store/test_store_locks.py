"""A database that one process opens twice stays whole beside other processes."""

import os
import subprocess
import sys
from pathlib import Path

from rater.store.store import open_store


def test_a_second_store_in_one_process_does_not_give_up_the_locks_of_the_first(
    database: Path,
) -> None:
    open_store(database).close()
    with open_store(database) as first:
        first.runs()
        open_store(database).close()
        # Would take itself for the last user of the database, and remove its write-ahead log.
        subprocess.run(
            [sys.executable, "-m", "rater", "list"],
            check=True,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"RATER_DB": str(database)},
        )
        names = {path.name for path in database.parent.glob("rater.db*")}
        assert names == {"rater.db", "rater.db-wal", "rater.db-shm"}
