"""Histories out of the index: one host against its fleets, or one benchmark over all of them."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from rater.errors import InputError
from rater.record.fleet import HistoryPoint
from rater.text.words import some

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
        last = ""
        # One step of the index a benchmark, however many hosts there are.
        while row := connection.execute(
            "SELECT benchmark FROM result WHERE fleet = ? AND benchmark > ? "
            "ORDER BY benchmark LIMIT 1",
            (fleet, last),
        ).fetchone():
            (last,) = row
            found.append(last)
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
        f"{name}: neither a host nor a benchmark of a fleet; benchmarks: {some(benchmarks, 20)}; "
        f"hosts: {some(hosts, 8)}"
    )
