"""Read the index of fleets: runs, times of all hosts, histories; open an archived run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rater.errors import InputError
from rater.record.fleet import FleetWord, HostTimes, IndexedRun, fleet_word, latest
from rater.store.fleet import archive
from rater.store.rows import read
from rater.store.store import Store
from rater.text.words import some

_COLUMNS = ", ".join(IndexedRun.__dataclass_fields__)


def fleet_number(connection: sqlite3.Connection, word: FleetWord) -> int:
    """Return the number of the fleet that a word means; raises `InputError` where there is none."""
    known = [
        number
        for (number,) in connection.execute("SELECT DISTINCT fleet FROM fleet_run ORDER BY 1")
    ]
    if not known:
        raise InputError(
            "no host of a fleet has published a run yet; `rater fleet collect` takes them in"
        )
    if word.fleet is None:
        return int(known[-1])
    if word.fleet not in known:
        raise InputError(
            f"fleet:{word.fleet}: no host of it has published a run; there are fleets "
            f"{some([str(it) for it in known], 8)}"
        )
    return word.fleet


def runs_of(
    connection: sqlite3.Connection, fleet: int, host: str | None = None
) -> tuple[IndexedRun, ...]:
    """Return the runs of a fleet, of all attempts, by host."""
    where = "WHERE fleet = :fleet" + (" AND host = :host" if host is not None else "")
    query = f"SELECT {_COLUMNS} FROM fleet_run {where} ORDER BY host, attempt, run"
    return tuple(read(connection, IndexedRun, query, fleet=fleet, host=host))


def times_of(connection: sqlite3.Connection, fleet: int) -> tuple[HostTimes, ...]:
    """Return the times of all hosts of a fleet, of all attempts."""
    return tuple(
        HostTimes(host, attempt, run, benchmark, _times(bracket_s), _times(copy_s))
        for host, attempt, run, benchmark, bracket_s, copy_s in connection.execute(
            "SELECT host, attempt, run, benchmark, bracket_s, copy_s FROM result WHERE fleet = ? "
            "ORDER BY benchmark, host, attempt, run",
            (fleet,),
        )
    )


def settings_of(
    connection: sqlite3.Connection, numbers: Iterable[int]
) -> dict[int, dict[str, str]]:
    """Return settings of machines by their number."""
    wanted = set(numbers)
    return {
        number: json.loads(settings)
        for number, settings in connection.execute("SELECT id, settings FROM fleet_setting")
        if number in wanted
    }


def find_archived(connection: sqlite3.Connection, text: str) -> IndexedRun:
    """Return the archived run that `fleet:N/HOST` means: of several the last in its database.

    Raises `InputError` for a fleet without a host, and for one that is not there.
    """
    word = fleet_word(text)
    fleet = fleet_number(connection, word)
    if word.host is None:
        (hosts,) = connection.execute(
            "SELECT count(DISTINCT host) FROM fleet_run WHERE fleet = ?", (fleet,)
        ).fetchone()
        (first,) = connection.execute(
            "SELECT min(host) FROM fleet_run WHERE fleet = ?", (fleet,)
        ).fetchone()
        raise InputError(
            f"{text}: {hosts} hosts, and one run is wanted: name one, such as "
            f"fleet:{fleet}/{first}; `rater divots fleet:{fleet}` and "
            f"`rater report fleet:{fleet}` take all of them"
        )
    runs = runs_of(connection, fleet, word.host)
    if word.attempt is not None:
        runs = tuple(run for run in runs if run.attempt == word.attempt)
    if not runs:
        raise InputError(
            f"{text}: this host has published no run"
            + ("" if word.attempt is None else " in this attempt")
            + f"; `rater fleet status {fleet}` says why"
        )
    return latest(runs)[word.host][-1]


@contextmanager
def opened_run(connection: sqlite3.Connection, run: IndexedRun) -> Iterator[Store]:
    """Open the archived database that an indexed run is in."""
    with archive.opened(connection, run.sha256, run.bytes) as store:
        yield store


def _times(text: str | None) -> tuple[float, ...]:
    return () if text is None else tuple(json.loads(text))
