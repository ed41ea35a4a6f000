"""The index of fleets read: runs, times of hosts, histories, and archived runs as a store."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from rater.errors import InputError
from rater.fleet.archive import copy_archived
from rater.fleet.merge import merge_database
from rater.fleet.merge_source import scratch_folder
from rater.fleet.record import (
    FleetReference,
    HistoryPoint,
    HostTimes,
    IndexedRun,
    fleet_word,
    latest,
)
from rater.record.run import is_fleet_word
from rater.store.rows import read_rows
from rater.store.store import Store, open_store
from rater.text.values import truncate_list

_COLUMNS = ", ".join(IndexedRun.__dataclass_fields__)


def fleet_number(connection: sqlite3.Connection, word: FleetReference) -> int:
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
            f"{truncate_list([str(it) for it in known], 8)}"
        )
    return word.fleet


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
    if not runs:
        raise InputError(
            f"{text}: this host has published no run"
            + ("" if word.attempt is None else " in this attempt")
            + f"; `rater fleet status {fleet}` says why"
        )
    return latest(runs)[word.host][-1]


@contextmanager
def opened_run(connection: sqlite3.Connection, run: IndexedRun) -> Iterator[Store]:
    """Open a copy of the archived database that an indexed run is in, brought up to date."""
    with (
        scratch_folder() as scratch,
        open_store(copy_archived(connection, run.sha256, scratch)) as store,
    ):
        yield store


def _times(text: str | None) -> tuple[float, ...]:
    return () if text is None else tuple(json.loads(text))


# -- Archived runs of fleets as a store of their own: `fleet:3/n017` wherever runs are only read ---


class ArchivedStore(Store):
    """Copies of archived runs in a database that goes when it is closed; their words find them."""

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
                "of this database; `rater fleet merge` brings a host's published database in"
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


# -- Histories out of the index: one host against its fleets, or one benchmark over all of them ----

_MOST_OTHERS = 200  # hosts of a fleet whose median is usual: a tenth of one host's spread away
_MOST_FACTS = 20  # hosts whose settings say what is usual
_SAME_MEMORY = 0.02
_KIND = ("cpu_model", "memory_bytes", "cpus", "copies", "suite", "size", "tune", "mode")
_FACTS = ("kernel", "microcode", "machine_id_hash", *_KIND[:4])
# Of a host the last complete attempt, else the last: SQLite takes the row of the greatest.
_CHOSEN = (
    "SELECT host, attempt, run, started_at, setting, max((status = 'complete') * 1000000000000 "
    "+ attempt * 100000 + run) AS best, kernel, microcode, machine_id_hash, "
    f"{', '.join(_KIND)} FROM fleet_run WHERE fleet = ? GROUP BY host"
)

type _Row = dict[str, str | int | None]


def known_names(connection: sqlite3.Connection) -> tuple[list[str], list[str]]:
    """Return the hosts and the benchmarks that the index knows."""
    hosts = connection.execute("SELECT DISTINCT host FROM fleet_run ORDER BY 1")
    names = [host for (host,) in hosts]
    found: list[str] = []
    for (fleet,) in connection.execute("SELECT DISTINCT fleet FROM fleet_run ORDER BY 1"):
        found += _benchmarks(connection, fleet)
    return names, sorted(set(found))


def history_of_host(connection: sqlite3.Connection, host: str) -> tuple[HistoryPoint, ...]:
    """Return a host in each fleet that has it, with what is usual there."""
    fleets = connection.execute(
        "SELECT DISTINCT fleet FROM fleet_run WHERE host = ? ORDER BY fleet", (host,)
    )
    points = []
    for (fleet,) in fleets.fetchall():
        rows = _chosen(connection, fleet)
        own = next(row for row in rows if row["host"] == host)
        kind = _kind(own)
        memory = own["memory_bytes"]
        alike = (it for it in rows if _kind(it) == kind and _same_memory(it, memory))
        others = _sample([it for it in alike if it is not own])
        seconds = _seconds(connection, fleet, [own]).get(host, {})
        usual = _usual(_seconds(connection, fleet, others))
        points.append(
            HistoryPoint(
                fleet=fleet,
                started_at=_text(own["started_at"]),
                seconds=seconds,
                usual_s={name: usual[name] for name in seconds if name in usual},
                hosts=len(others),
                facts=_facts(connection, [own]),
                usual_facts=_facts(connection, others[:_MOST_FACTS]),
            )
        )
    return tuple(points)


def history_of_benchmark(
    connection: sqlite3.Connection, benchmark: str
) -> tuple[tuple[HistoryPoint, ...], dict[str, tuple[HistoryPoint, ...]]]:
    """Return a benchmark's usual time in each fleet, and each host's beside it.

    Of each fleet the hosts of the most common kind; the usual one stands as `seconds`.
    """
    points: list[HistoryPoint] = []
    of_hosts: dict[str, list[HistoryPoint]] = {}
    for (fleet,) in connection.execute("SELECT DISTINCT fleet FROM fleet_run ORDER BY fleet"):
        rows = _chosen(connection, fleet)
        (kind, _), *_rest = Counter(map(_kind, rows)).most_common(1)
        of_kind = [row for row in rows if _kind(row) == kind]
        memory = sorted(int(row["memory_bytes"] or 0) for row in of_kind)[len(of_kind) // 2]
        alike = [row for row in of_kind if _same_memory(row, memory)]
        times = _seconds(connection, fleet, alike, benchmark)
        if not times:
            continue
        usual = _usual(times)
        facts = _facts(connection, alike[:_MOST_FACTS])
        dates = sorted(date for row in alike if (date := _text(row["started_at"])))
        date = dates[len(dates) // 2] if dates else None
        points.append(HistoryPoint(fleet, date, usual, {}, len(times), facts, {}))
        for row in alike:
            host = str(row["host"])
            if host in times:
                own = {name: str(row[name]) for name in _FACTS if row[name] is not None}
                of_hosts.setdefault(host, []).append(
                    HistoryPoint(
                        *(fleet, _text(row["started_at"]), times[host], usual),
                        *(len(times) - 1, own, facts),
                    )
                )
    return tuple(points), {host: tuple(own) for host, own in of_hosts.items()}


def _chosen(connection: sqlite3.Connection, fleet: int) -> list[_Row]:
    rows = connection.execute(_CHOSEN, (fleet,))
    columns = [column[0] for column in rows.description]
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _kind(row: _Row) -> tuple[str | int | None, ...]:
    """Return what hosts have in common to be compared, but for memory."""
    return tuple(row[name] for name in _KIND if name != "memory_bytes")


def _same_memory(row: _Row, memory: str | int | None) -> bool:
    """Tell whether a host has as much memory, but for what its kernel keeps."""
    low, high = sorted((float(row["memory_bytes"] or 0), float(memory or 0)))
    return high <= low * (1 + _SAME_MEMORY)


def _sample(rows: Sequence[_Row]) -> list[_Row]:
    """Return so many of the rows, evenly spaced."""
    step = max(1, -(-len(rows) // _MOST_OTHERS))
    return list(rows[::step])


def _seconds(
    connection: sqlite3.Connection, fleet: int, rows: Sequence[_Row], benchmark: str | None = None
) -> dict[str, dict[str, float]]:
    """Return the median iteration of each host in each benchmark."""
    chosen = {str(row["host"]): (row["attempt"], row["run"]) for row in rows}
    names = [benchmark] if benchmark else _benchmarks(connection, fleet)
    found: dict[str, dict[str, float]] = {}
    for name in names:
        if len(chosen) > _MOST_OTHERS:  # one walk through the benchmark
            where: Sequence[Sequence[str]] = [[]]
        else:
            where = [[host] for host in chosen]
        for host in where:
            for node, attempt, run, bracket_s, copy_s in connection.execute(
                "SELECT host, attempt, run, bracket_s, copy_s FROM result "
                "WHERE fleet = ? AND benchmark = ?" + " AND host = ?" * len(host),
                (fleet, name, *host),
            ):
                if chosen.get(node) == (attempt, run):
                    found.setdefault(node, {})[name] = median(json.loads(bracket_s or copy_s))
    return found


def _benchmarks(connection: sqlite3.Connection, fleet: int) -> list[str]:
    found: list[str] = []
    # One step of the index a benchmark, however many hosts there are.
    while row := connection.execute(
        "SELECT benchmark FROM result WHERE fleet = ? AND benchmark > ? ORDER BY benchmark LIMIT 1",
        (fleet, found[-1] if found else ""),
    ).fetchone():
        found.append(row[0])
    return found


def _usual(times: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    by_name: dict[str, list[float]] = {}
    for own in times.values():
        for name, seconds in own.items():
            by_name.setdefault(name, []).append(seconds)
    return {name: median(values) for name, values in by_name.items()}


def _facts(connection: sqlite3.Connection, rows: Sequence[_Row]) -> dict[str, str]:
    """Return what most of some hosts are and how they are set."""
    counted: dict[str, Counter[str]] = {}
    for row in rows:
        (text,) = connection.execute(
            "SELECT settings FROM fleet_setting WHERE id = ?", (row["setting"],)
        ).fetchone()
        own = json.loads(text) | {name: str(row[name]) for name in _FACTS if row[name] is not None}
        for name, value in own.items():
            counted.setdefault(name, Counter())[value] += 1
    most = {name: values.most_common(1)[0] for name, values in counted.items()}
    return {name: value for name, (value, many) in most.items() if 2 * many > len(rows)}


def _text(value: str | int | None) -> str | None:
    return None if value is None else str(value)


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
