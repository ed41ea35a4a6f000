"""What lists, queries and views cost in a large database: `python -m benchmarks.listing`.

Makes a database of 100,000 runs (`--runs N`) on 1000 hosts: two benchmarks x two iterations x 8
copies, 30 settings, tags, a search for divots. Times `rater list` with each of its filters beside
`rater --version`, then every query of db/queries for one run, and every view for one run and for
all of them (stopped after a minute). `--keep FILE`: the database stays there, or is taken from
there.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from rater.files import folder
from rater.store.store import open_store

_RATER = [sys.executable, "-m", "rater"]
_LONGEST_S = 60.0
_ROWS = (
    "INSERT INTO host (id, fingerprint, hostname, machine_id_hash, cpu_model, memory_bytes, pus, "
    "cores, nodes, packages, architecture) SELECT i, 'f' || (i % 3), printf('n%04d', i), 'm' || i, "
    "'CPU 9000', 1 << 36, 8, 8, 2, 1, 'x86_64' FROM n WHERE i <= 1000",
    "INSERT INTO run (id, uuid, host_id, source, status, started_at, stored_at, mode, run_order, "
    "copies, iterations, discard, stagger_ms, increment, suite, size, tune, layout, memory, "
    "command_line, rater_version, pid, pid_start, boot_id, directory, request, suite_path) "
    "SELECT i, lower(hex(randomblob(16))), 1 + i % 1000, 'run', "
    "iif(i % 50, 'complete', 'failed'), strftime('%Y-%m-%dT%H:%M:%SZ', 1700000000 + i * 600, "
    "'unixepoch'), strftime('%Y-%m-%dT%H:%M:%SZ', 1700000000 + i * 600, 'unixepoch'), "
    "'homogeneous', 'homogeneous', 8, 2, 0, 0, 1, iif(i % 7, 'mini', 'cpu'), 'test', 'base', "
    "'balanced', 'local', 'rater run mini --copies 8 --iterations 2', '0.1.0', 1, 1, 'b', '/root', "
    '\'{"words": ["mini"], "copies": "8", "more": "\' || hex(zeroblob(300)) || \'"}\', '
    "'/root/suites/mini.toml' FROM n",
    "INSERT INTO setting SELECT run.i, 'kernel.setting.' || k.i, 'value ' || k.i "
    "FROM n AS run CROSS JOIN n AS k WHERE k.i <= 30",
    "INSERT INTO benchmark (run_id, name, position, category, command, reference_s) "
    "SELECT run.i, 'bench' || k.i, k.i - 1, 'int', '/usr/bin/program', 10 "
    "FROM n AS run CROSS JOIN n AS k WHERE k.i <= 2",
    "INSERT INTO tag SELECT i, 'trial', 'number' || (i % 100) FROM n",
    "INSERT INTO tag SELECT i, 'thp', iif(i % 2, 'always', 'never') FROM n",
    "INSERT INTO note (run_id, kind, text) SELECT i, 'warning', 'something odd' FROM n",
    "INSERT INTO pu SELECT run.i, k.i - 1, k.i - 1, 0, k.i / 5, 0 "
    "FROM n AS run CROSS JOIN n AS k WHERE k.i <= 8",
    "INSERT INTO placement SELECT run.i, k.i - 1, k.i - 1, k.i - 1, k.i - 1, 0, k.i / 5, 0, "
    "'local', '' FROM n AS run CROSS JOIN n AS k WHERE k.i <= 8",
    "INSERT INTO bracket (run_id, phase, benchmark, iteration, counted, start_ns, finish_ns, "
    "last_start_ns, first_finish_ns, complete) SELECT run.i, k.i - 1, "
    "'bench' || (1 + (k.i - 1) % 2), 1 + (k.i - 1) / 2, 1, k.i * 6000000000, "
    "k.i * 6000000000 + 5100000000, k.i * 6000000000, "
    "k.i * 6000000000 + 5000000000, 1 FROM n AS run CROSS JOIN n AS k WHERE k.i <= 4",
    "INSERT INTO copy (run_id, phase, copy, step, benchmark, iteration, counted, cpu, core, llc, "
    "node, package, start_ns, finish_ns, elapsed_ns, status, exit_code, validity, cpu_ns, user_ns, "
    "system_ns, gate_cpu_ns, max_rss_bytes, minor_faults, major_faults, voluntary_switches, "
    "involuntary_switches, pid, gate_cpus, gate_mems, last_cpu, placement) "
    "SELECT run.i, p.i - 1, c.i - 1, 0, 'bench' || (1 + (p.i - 1) % 2), 1 + (p.i - 1) / 2, 1, "
    "c.i - 1, c.i - 1, 0, c.i / 5, 0, p.i * 6000000000, "
    "p.i * 6000000000 + 5000000000 + c.i * 10000000, 5000000000 + c.i * 10000000, 'ok', 0, "
    "'valid', 4900000000, 4800000000, 100000000, 2000000, 12345678, 4567, 0, 12, 345, 1000 + c.i, "
    "c.i - 1, '0', c.i - 1, 'met' "
    "FROM n AS run CROSS JOIN n AS p CROSS JOIN n AS c WHERE p.i <= 4 AND c.i <= 8",
    "INSERT INTO divot_search (run_id, version, threshold_group, threshold_copy, copy_runs, "
    "visible, failed) SELECT i, 10, 0.015, 0.03, 32, '{}', 0 FROM n",
    "INSERT INTO divot (run_id, position, kind, explained, place, benchmarks, iterations, copies, "
    "cpus, nodes, slowdown, score_lost, evidence, finding) SELECT i, 0, 'slow-lgroup', 0, "
    "'lgroup 1', '[]', '', '4-7', '4-7', '1', 1.05, 0.04, 'lgroup 1: slow', '{}' "
    "FROM n WHERE i % 10 = 0",
)


def make(path: Path, runs: int) -> None:
    """Make the database."""
    open_store(path).close()
    with closing(sqlite3.connect(path, autocommit=True)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA journal_mode = MEMORY")
        db.execute("PRAGMA cache_size = -400000")
        db.execute("BEGIN")
        db.execute("CREATE TEMP TABLE n (i INTEGER PRIMARY KEY)")
        db.execute(
            "WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?) "
            "INSERT INTO n SELECT i FROM c",
            (runs,),
        )
        for statement in _ROWS:
            db.execute(statement)
        db.execute("COMMIT")
        db.execute("ANALYZE")


def commands(path: Path) -> None:
    """Time the commands, the median of five, and what stands above the start of python."""
    environment = os.environ | {"RATER_DB": str(path), "COLUMNS": "80", "LINES": "24"}

    def timed(*words: str) -> tuple[float, float]:
        wall_s, cpu_s = [], []
        for _ in range(5):
            before = os.times()
            began = time.monotonic()
            subprocess.run(
                [*_RATER, *words], env=environment, stdout=subprocess.DEVNULL, check=True
            )
            wall_s.append(time.monotonic() - began)
            after = os.times()
            used_s = after.children_user + after.children_system
            cpu_s.append(used_s - before.children_user - before.children_system)
        return sorted(wall_s)[2], sorted(cpu_s)[2]

    timed("list", "--limit", "20")  # scores are worked out once
    start_s, start_cpu_s = timed("--version")
    print(f"rater --version: {start_s:.2f} s, CPU {start_cpu_s:.2f} s; above that:")
    page = ("list", "--limit", "20")
    for words in (
        page,
        (*page, "--json"),
        (*page, "--tag", "trial=number7"),
        (*page, "--tag", "thp=always", "--host", "n0500"),
        (*page, "--host", "n05*"),
        (*page, "--suite", "cpu"),
        (*page, "--since", "7d"),
        (*page, "--since", "2023-12-01"),
        ("show", "last"),
        ("show", "77"),
    ):
        took_s, cpu_s = timed(*words)
        print(
            f"  rater {' '.join(words)}: {took_s - start_s:.2f} s, CPU {cpu_s - start_cpu_s:.2f} s",
            flush=True,
        )
    began = time.monotonic()
    subprocess.run(
        [*_RATER, "list", "--json"], env=environment, stdout=subprocess.DEVNULL, check=True
    )
    print(f"  rater list --json (all): {time.monotonic() - began - start_s:.2f} s")
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
    print(f"  largest resident memory of them: {peak_mb:.0f} MB")


def queries(path: Path) -> None:
    """Time each query for one run, and each view for one run and for all."""
    with closing(sqlite3.connect(path, autocommit=True)) as db:
        last = db.execute("SELECT max(id) FROM run").fetchone()[0]
        for file in sorted((folder("db") / "queries").glob("*.sql")):
            text = file.read_text()
            one = _seconds(db, text, {"run": last, "sweep": 1})
            print(f"  query {file.stem}: one run {_said(one)}", flush=True)
        for file in sorted((folder("db") / "views").glob("*.sql")):
            name = file.stem
            key = "sweep_id" if name == "sweep_progress" else "run_id"
            one = _seconds(db, f"SELECT * FROM {name} WHERE {key} = {last}", {})
            every = _seconds(db, f"SELECT count(*) FROM (SELECT * FROM {name})", {})
            some = _seconds(db, f"SELECT * FROM {name} WHERE {key} > {last - 200}", {})
            print(
                f"  view {name}: one run {_said(one)}, the last 200 {_said(some)}, "
                f"all {_said(every)}",
                flush=True,
            )


def _seconds(db: sqlite3.Connection, text: str, values: dict[str, int]) -> float | None:
    named = dict.fromkeys(re.findall(r":([a-z_]+)", text)) | values
    began = time.monotonic()
    stop: Callable[[], int] = lambda: int(time.monotonic() - began > _LONGEST_S)  # noqa: E731
    db.set_progress_handler(stop, 100_000)
    try:
        for _ in db.execute(text, named):
            pass
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        return None
    return time.monotonic() - began


def _said(seconds: float | None) -> str:
    return f"over {_LONGEST_S:.0f} s" if seconds is None else f"{seconds * 1e3:.1f} ms"


def main(words: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="rater-listing-") as name:
        path = args.keep or Path(name) / "large.db"
        if not path.exists():
            began = time.monotonic()
            make(path, args.runs)
            print(f"{args.runs} runs made in {time.monotonic() - began:.0f} s", flush=True)
        print(f"{path.stat().st_size / 1e6:.0f} MB")
        commands(path)
        queries(path)


if __name__ == "__main__":
    main()
