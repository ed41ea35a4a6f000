"""What the index of fleets costs: rows by the million, and what is asked of them.

    python -m benchmarks.fleet_index DB [--hosts 10000] [--fleets 10] [--benchmarks 14]

Rows are put there as `admit` makes them, without databases behind them; then CPU times, the best of
three, in a process that has the database open.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from rater.fleet.history import benchmark_history, host_history
from rater.fleet.hosts import compare_fleet, results_of
from rater.fleet.index import (
    history_of_benchmark,
    history_of_host,
    indexed_runs,
    settings_of,
    times_of,
)
from rater.store.connection import connect


def fill(connection: sqlite3.Connection, hosts: int, fleets: int, benchmarks: int) -> None:
    """Put in a run of every host in every fleet, three iterations of every benchmark."""
    random = np.random.default_rng(1)
    names = [f"{400 + place}.bench" for place in range(benchmarks)]
    settings = json.dumps({f"setting.{place}": "a value of it" for place in range(60)})
    connection.execute("BEGIN")
    connection.execute("INSERT INTO fleet_setting VALUES (1, 'x', ?)", (settings,))
    for fleet in range(1, fleets + 1):
        at = f"2026-{1 + fleet % 12:02}-{1 + fleet % 28:02}T12:00:00Z"
        connection.executemany(
            "INSERT INTO fleet_run VALUES (?, ?, 1, 1, ?, ?, 'id', 'complete', NULL, ?, 'mini', "
            "'ref', 'base', 'homogeneous', 128, 'AMD EPYC 7763', '0xa0011d5', 549755813888, "
            "'6.1.0', 128, 1, 5376, 0, ?, 2130000)",
            (
                (fleet, node, f"u{fleet}-{node}", node, at, f"{fleet:032x}{place:032x}")
                for place, node in enumerate(f"node{it:05}" for it in range(hosts))
            ),
        )
        for name in names:
            times = 100 * np.exp(0.005 * random.standard_normal((hosts, 3)))
            connection.executemany(
                "INSERT INTO result VALUES (?, ?, ?, 1, 1, ?, ?)",
                ((fleet, name, f"node{place:05}", *_texts(row)) for place, row in enumerate(times)),
            )
    connection.execute("COMMIT")


def _texts(row: np.ndarray) -> Iterator[str]:
    for factor in (1.0, 0.97):
        yield json.dumps([float(f"{factor * it:.7g}") for it in row])


def main() -> None:
    """Fill, then ask."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", type=Path)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--fleets", type=int, default=10)
    parser.add_argument("--benchmarks", type=int, default=14)
    args = parser.parse_args()
    with closing(connect(args.database)) as connection:
        if not connection.execute("SELECT count(*) FROM fleet_run").fetchone()[0]:
            began = time.perf_counter()
            fill(connection, args.hosts, args.fleets, args.benchmarks)
            print(f"filled in {time.perf_counter() - began:.0f} s", flush=True)
        (rows,) = connection.execute("SELECT count(*) FROM result").fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        size = args.database.stat().st_size
        print(f"{rows} rows, {size / 1e6:.0f} MB, {size / rows:.0f} bytes each", flush=True)
        fleet = connection.execute("SELECT max(fleet) FROM fleet_run").fetchone()[0]
        (host,) = connection.execute("SELECT max(host) FROM fleet_run").fetchone()
        (benchmark,) = connection.execute(
            "SELECT max(benchmark) FROM result WHERE fleet = ?", (fleet,)
        ).fetchone()
        asked: dict[str, Callable[[], object]] = {
            "the last 50 runs": lambda: connection.execute(
                "SELECT * FROM fleet_run ORDER BY started_at DESC LIMIT 50"
            ).fetchall(),
            "one host's run (fleet:N/HOST)": lambda: indexed_runs(connection, fleet, host),
            "a fleet's rows read": lambda: times_of(connection, fleet),
            "a fleet compared (rater divots)": lambda: _compared(connection, fleet),
            "history of a host": lambda: host_history(host, history_of_host(connection, host)),
            "history of a benchmark": lambda: benchmark_history(
                benchmark, *history_of_benchmark(connection, benchmark)
            ),
        }
        for name, ask in asked.items():
            times = []
            for _ in range(3):
                began = time.process_time()
                ask()
                times.append(time.process_time() - began)
            print(f"{name:32} {1000 * min(times):10.1f} ms", flush=True)


def _compared(connection: sqlite3.Connection, fleet: int) -> object:
    runs = indexed_runs(connection, fleet)
    settings = settings_of(connection, (run.setting for run in runs))
    return compare_fleet(results_of(runs, times_of(connection, fleet), settings))


if __name__ == "__main__":
    main()
