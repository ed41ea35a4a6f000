"""The index of fleets read: runs, times of hosts, histories, and archived runs as a store."""

from __future__ import annotations

import json
import shlex
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rater.errors import InputError
from rater.fleet.archive import copy_archived
from rater.fleet.merge import merge_database
from rater.fleet.merge_source import scratch_folder
from rater.fleet.record import (
    FleetReference,
    HostTimes,
    IndexedRun,
    fleet_word,
    latest,
)
from rater.fleet.shared_folder import SharedFolder
from rater.record.run import is_fleet_word
from rater.store.rows import read_rows
from rater.store.store import Store, open_store
from rater.text.values import count, truncate_list

_COLUMNS = ", ".join(IndexedRun.__dataclass_fields__)


def fleet_number(connection: sqlite3.Connection, word: FleetReference) -> int:
    """Return the number of the fleet that a word means; raises `InputError` where it has no runs.

    Fleets that confirm another one are no `fleet:last`.
    """
    known: dict[int, int | None] = dict(
        connection.execute(
            "SELECT id, confirms FROM fleet UNION "
            "SELECT fleet, NULL FROM fleet_run WHERE fleet NOT IN (SELECT id FROM fleet) ORDER BY 1"
        )
    )
    asked = [number for number in known if word.fleet in (None, number)]
    own = asked if word.fleet else [it for it in asked if known[it] is None]
    if not own:
        there = truncate_list([*map(str, known)], 8)
        what = f"fleet:{word.fleet}: there is no such fleet; there are fleets {there}"
        none = "no fleets stored yet; `rater fleet run --nodes NODES` makes one"
        raise InputError(what if known else none)
    number = own[-1]
    if not connection.execute("SELECT 1 FROM fleet_run WHERE fleet = ?", (number,)).fetchone():
        raise _nothing_collected(connection, number, None)
    return number


def _nothing_collected(connection: sqlite3.Connection, fleet: int, host: str | None) -> InputError:
    """Return what to say of a fleet, or a host of it, of which no run is collected."""
    what = f"fleet:{fleet}" + ("" if host is None else f"/{host}")
    row = connection.execute("SELECT folder FROM fleet WHERE id = ?", (fleet,)).fetchone()
    published = SharedFolder(Path(row[0])).published_nodes() if row else set()
    if host is not None:
        published &= {host}
    if published:
        told = "its run is" if host else f"runs of {count(len(published), 'node')} are"
        way = f"`rater fleet collect {fleet}` takes {'it' if host else 'them'} in"
        return InputError(f"{what}: {told} published and not collected yet; {way}")
    return InputError(
        f"{what}: {'this host has published no run' if host else 'no node has published a run'}; "
        f"`rater fleet status {fleet}` says why"
    )


def indexed_runs(
    connection: sqlite3.Connection, fleet: int, host: str | None = None
) -> tuple[IndexedRun, ...]:
    """Return the runs of a fleet, of all attempts, by host."""
    where = "WHERE fleet = :fleet" + (" AND host = :host" if host is not None else "")
    query = f"SELECT {_COLUMNS} FROM fleet_run {where} ORDER BY host, attempt, run"
    return tuple(read_rows(connection, IndexedRun, query, fleet=fleet, host=host))


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
    runs = indexed_runs(connection, fleet, word.host)
    if word.attempt is not None:
        runs = tuple(run for run in runs if run.attempt == word.attempt)
    if not runs and word.attempt is None:
        raise _nothing_collected(connection, fleet, word.host)
    if not runs:
        raise InputError(
            f"{text}: no run of this attempt is collected; `rater fleet status {fleet}` says why"
        )
    return latest(runs)[word.host][-1]


@contextmanager
def opened_run(connection: sqlite3.Connection, run: IndexedRun) -> Iterator[Store]:
    """Open a copy of the archived database that an indexed run is in, brought up to date."""
    with (
        scratch_folder() as scratch,
        open_store(copy_archived(connection, run.sha256, scratch)) as store,
    ):
        store.is_copy = True
        yield store


def _times(text: str | None) -> tuple[float, ...]:
    return () if text is None else tuple(json.loads(text))


# -- Archived runs of fleets as a store of their own: `fleet:3/n017` wherever runs are only read ---


class ArchivedStore(Store):
    """Copies of archived runs in a database that goes when it is closed; their words find them."""

    is_copy = True

    def __init__(self, store: Store, words: Sequence[str]) -> None:
        """Copy what `words` mean; `store` has the index, and is not needed afterwards.

        Raises `InputError` for words that mean nothing, `RunError` for a damaged archive.
        """
        self._scratch = Path(tempfile.mkdtemp(prefix="rater-archived-"))
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, self._scratch)
            super().__init__(self._scratch / "archived.db")
            undo.callback(super().close)
            self.numbers: dict[str, int] = {}
            for word in dict.fromkeys(words):
                self._add(store, word)
            undo.pop_all()

    def _add(self, store: Store, word: str) -> None:
        with store.reading() as connection:
            run = find_archived(connection, word)
            file = copy_archived(connection, run.sha256, self._scratch)
        merge_database(self, file)
        file.unlink()
        self.numbers[word] = super().find(run.uuid)

    def find(self, spec: str) -> int:
        """Return the number of a word that was copied."""
        return self._number(spec)

    def find_all(self, spec: str) -> tuple[int, ...]:
        """Return the same as the only one."""
        return (self._number(spec),)

    def _number(self, spec: str) -> int:
        if spec not in self.numbers:
            raise InputError(
                f"{spec}: runs of a fleet's archive are compared with each other, not with those "
                "of this database; `rater import FILE` brings a host's published database in"
            )
        return self.numbers[spec]

    def close(self) -> None:
        """Close the database and remove it."""
        try:
            super().close()
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)


def fleet_words(words: Sequence[str | None]) -> list[str]:
    """Return those words, and parts of lists `A,B`, that name archived runs."""
    parts = [part.strip() for word in words if word for part in word.split(",")]
    return [part for part in parts if is_fleet_word(part)]


# -- What histories go by --------------------------------------------------------------------------


def fleets_with(connection: sqlite3.Connection, host: str | None = None) -> list[int]:
    """Return the fleets that have runs (of a host).

    Without those that confirm another one: their hosts were chosen because they are slow.
    """
    rows = connection.execute(
        "SELECT DISTINCT fleet FROM fleet_run LEFT JOIN fleet ON id = fleet "
        "WHERE confirms IS NULL AND (:host IS NULL OR host = :host) ORDER BY 1",
        {"host": host},
    )
    return [number for (number,) in rows]


def command_of(connection: sqlite3.Connection, fleet: int) -> str | None:
    """Return the command line that the nodes of a fleet ran, None for suites."""
    row = connection.execute("SELECT command FROM fleet WHERE id = ?", (fleet,)).fetchone()
    return shlex.join(json.loads(row[0])) if row and row[0] else None


def known_names(connection: sqlite3.Connection) -> tuple[list[str], list[str]]:
    """Return the hosts and the benchmarks that the index knows."""
    hosts = connection.execute("SELECT DISTINCT host FROM fleet_run ORDER BY 1")
    names = connection.execute("SELECT DISTINCT benchmark FROM result ORDER BY 1")
    return [host for (host,) in hosts], [name for (name,) in names]


def unknown_name(name: str, hosts: Sequence[str], benchmarks: Sequence[str]) -> InputError:
    """Return what to say of a name that is neither a host nor a benchmark."""
    return InputError(
        f"{name}: neither a host nor a benchmark of a fleet; benchmarks: "
        f"{truncate_list(benchmarks, 20)}; "
        f"hosts: {truncate_list(hosts, 8)}"
    )


def copy_runs(store: Store, words: Sequence[str]) -> tuple[Store, dict[str, int]]:
    """Return a store of copies of what `words` mean, and their numbers there."""
    archived = ArchivedStore(store, words)
    return archived, archived.numbers
