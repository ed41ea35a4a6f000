"""What `rater merge` takes, and whether it may be killed: `python -m benchmarks.merging`.

Makes databases of one run each (14 benchmarks x 3 iterations x 128 copies, two samples a copy,
readings of 128 CPUs), merges them, merges them again, kills merges at random moments until they are
through, merges from two processes at once and in another order: all have to come to the same
content digest. `--small`: runs of 4 copies, to see whether many files stay linear.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rater.store.store import open_store
from tests.support.digests import content_digest

_CALL = [sys.executable, "-m", "rater", "merge"]
_BENCHMARKS, _ITERATIONS, _COPIES = 14, 3, 128
_NUMBERS = (
    "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :last), "
    "p (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM p WHERE i < :phases - 1) "
)


def template(path: Path, copies: int) -> None:
    """Make a database with one run, as large as those of a real suite."""
    open_store(path).close()
    phases = _BENCHMARKS * _ITERATIONS
    values = {"last": copies - 1, "phases": phases, "names": _BENCHMARKS}
    with closing(sqlite3.connect(path, autocommit=True)) as db:
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("BEGIN")
        db.execute(
            "INSERT INTO host (id, fingerprint, hostname, machine_id_hash, cpu_model, pus, cores, "
            "nodes, packages) VALUES (1, 'f', 'n', 'm', 'CPU 9000', 256, 128, 8, 2)"
        )
        db.execute(
            "INSERT INTO run (id, uuid, host_id, source, status, started_at, mode, run_order, "
            "copies, iterations, discard, stagger_ms, increment, suite, command_line) VALUES "
            "(1, 'u', 1, 'run', 'complete', '2026-11-20T12:00:00Z', 'homogeneous', 'homogeneous', "
            ":copies, 3, 0, 0, 1, 'cpu', 'rater run cpu')",
            {"copies": copies},
        )
        for table in ("setting", "environment"):
            db.executemany(
                f"INSERT INTO {table} VALUES (1, ?, ?)",
                [(f"{table}.{n}", f"value {n}") for n in range(60)],
            )
        db.executemany(
            "INSERT INTO benchmark (run_id, name, position, command, reference_s) "
            "VALUES (1, ?, ?, 'program', 10)",
            [(f"benchmark{n}", n) for n in range(_BENCHMARKS)],
        )
        for statement in _ROWS:
            db.execute(_with_numbers(statement), values)
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = DELETE")


def _with_numbers(statement: str) -> str:
    head, _, tail = statement.partition("SELECT")
    return f"{head}{_NUMBERS}SELECT{tail}"


_ROWS = (
    "INSERT INTO pu SELECT 1, i, i, i / 8, i / 16, i / 64 FROM n",
    "INSERT INTO placement SELECT 1, i, i, i, i, i / 8, i / 16, i / 64, 'local', '' FROM n",
    "INSERT INTO bracket (run_id, phase, benchmark, iteration, counted, start_ns, finish_ns, "
    "last_start_ns, first_finish_ns, complete) SELECT 1, i, 'benchmark' || (i % :names), "
    "1 + i / :names, 1, i * 1000, i * 1000 + 900, i * 1000, i * 1000 + 700, 1 FROM p",
    "INSERT INTO copy (run_id, phase, copy, step, benchmark, iteration, counted, cpu, core, llc, "
    "node, package, start_ns, finish_ns, elapsed_ns, status, exit_code, validity, cpu_ns, user_ns, "
    "system_ns, gate_cpu_ns, max_rss_bytes, minor_faults, major_faults, voluntary_switches, "
    "involuntary_switches, pid, gate_cpus, gate_mems, last_cpu, placement) "
    "SELECT 1, p.i, n.i, 0, 'benchmark' || (p.i % :names), 1 + p.i / :names, 1, n.i, n.i, n.i / 8, "
    "n.i / 16, n.i / 64, 1000000000000 + p.i, 1005000000000 + n.i * 1234567 + p.i, "
    "5000000000 + n.i * 1234567, 'ok', 0, 'valid', 4900000000 + n.i * 7654321, 4800000000, "
    "100000000, 2000000, 123456789 + n.i, 4567, 0, 12, 345, 10000 + n.i, n.i, n.i / 16, n.i, 'met' "
    "FROM p CROSS JOIN n",
    "INSERT INTO sample (run_id, phase, copy, step, age_ns, looks, processes, unread, cpus, "
    "allowed, migrations, pages_migrated, node_bytes, policy, page_bytes, rss_bytes, peak_bytes, "
    "swap_bytes, read_ns) SELECT 1, p.i, n.i, 0, age.i * 1000000000, 1, 1, 0, n.i, n.i, 0, 0, "
    "'{\"' || (n.i / 16) || '\": 123456789}', 'default', '{\"4096\": 123456789}', 123456789, "
    "123456789, 0, 234567 FROM p CROSS JOIN n CROSS JOIN (SELECT 1 AS i UNION SELECT 2) AS age",
    "INSERT INTO cpu_reading (run_id, phase, cpu, user_ns, system_ns, iowait_ns, irq_ns, steal_ns, "
    "idle_ns, mean_khz, interrupts, filler_ns) SELECT 1, p.i, n.i, 4900000000, 10000000, 0, 0, 0, "
    "90000000, 3100000 + n.i, 1234, 0 FROM p CROSS JOIN n",
)


def sources(folder: Path, files: int, copies: int) -> list[Path]:
    """Make that many databases, each with a run and a host of its own."""
    first = folder / "template.db"
    template(first, copies)
    paths = []
    for number in range(files):
        path = folder / f"n{number:04}.db"
        shutil.copy(first, path)
        with closing(sqlite3.connect(path, autocommit=True)) as db:
            db.execute("PRAGMA synchronous = OFF")
            db.execute("UPDATE run SET uuid = ?", (f"uuid-{number:06}",))
            db.execute("UPDATE host SET hostname = ?", (f"n{number:04}",))
        paths.append(path)
    first.unlink()
    return paths


def merged(target: Path, paths: Sequence[Path]) -> tuple[float, float]:
    """Merge; return the time by the clock on the wall, and CPU time."""
    before = os.times()
    began = time.monotonic()
    subprocess.run([*_CALL, str(target), *map(str, paths)], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    cpu_s = after.children_user + after.children_system
    return time.monotonic() - began, cpu_s - before.children_user - before.children_system


def killed(target: Path, paths: Sequence[Path], kills: int, longest_s: float) -> int:
    """Merge, killed again and again at random moments, then to the end; return the kills."""
    dice, done = random.Random(1), 0
    while done < kills:
        process = subprocess.Popen(
            [*_CALL, str(target), *map(str, paths)], stdout=subprocess.DEVNULL
        )
        try:
            process.wait(dice.uniform(0.1, longest_s))
            # Through: begin anew, so that there is something to kill.
            for end in ("", "-wal", "-shm"):
                Path(f"{target}{end}").unlink(missing_ok=True)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            done += 1
    merged(target, paths)
    return done


def at_once(target: Path, paths: Sequence[Path]) -> None:
    """Merge from two processes, the second one backwards."""
    both = [
        subprocess.Popen([*_CALL, str(target), *map(str, some)], stdout=subprocess.DEVNULL)
        for some in (paths, paths[::-1])
    ]
    if any([process.wait() for process in both]):
        raise SystemExit("one of two merges at once failed")


def content(path: Path) -> str:
    """Return the content digest of a database."""
    with closing(sqlite3.connect(path)) as db:
        return content_digest(db)


def main() -> None:
    """Print the figures; exits 1 where contents differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rater-merging-") as name:
        folder = Path(name)
        paths = sources(folder, args.files, 4 if args.small else _COPIES)
        size_mb = sum(path.stat().st_size for path in paths) / 1e6
        print(f"{args.files} databases, {size_mb:.0f} MB", flush=True)
        one = folder / "one.db"
        quarter = args.files // 4
        spans = [paths[at : at + quarter] for at in range(0, quarter * 4, quarter)]
        for place, span in enumerate(spans, 1):
            wall_s, cpu_s = merged(one, span)
            print(f"  quarter {place}: {wall_s:.2f} s, CPU {cpu_s:.2f} s", flush=True)
        merged(one, paths)
        print(f"  into {one.stat().st_size / 1e6:.0f} MB", flush=True)
        wall_s, cpu_s = merged(one, paths)
        print(f"  once more: {wall_s:.2f} s, CPU {cpu_s:.2f} s", flush=True)
        began = time.monotonic()
        wanted = content(one)
        print(f"  content digest in {time.monotonic() - began:.1f} s: {wanted[:16]}", flush=True)
        some = paths if args.small else paths[:40]  # each kill merges a few of them
        few = folder / "few.db"
        merged(few, some[::-1])
        expected = content(few)
        failed = False
        if args.kills:
            dice_s = 1.5
            times = killed(folder / "killed.db", some, args.kills, dice_s)
            same = content(folder / "killed.db") == expected
            print(f"  killed {times} times within {dice_s} s: same content {same}", flush=True)
            failed |= not same
        at_once(folder / "two.db", some)
        same = content(folder / "two.db") == expected
        print(f"  two at once, one backwards: same content {same}", flush=True)
        failed |= not same
        merged(folder / "again.db", [one, few])
        same = content(folder / "again.db") == wanted
        print(f"  merged into another one: same content {same}")
        failed |= not same
    sys.exit(failed)


if __name__ == "__main__":
    main()
