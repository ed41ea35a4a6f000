"""kill -9 of the supervisor at random moments: no orphans, no finished copy lost."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.torture.table import Row, of, row_of

# Each copy leaves a grandchild and a child in a session of its own, and says when it is done.
COPY = """
sleep 300 & setsid sleep 300 & sleep 0.$((RATER_COPY % 9 + 1)); echo $RATER_COPY >> "$DONE"
"""
_NOTICED_S = 0.1  # a copy that ended this long before the kill must be in the database
_DEADLINE_S = 2.0


def campaign(bench: Bench, share: float = 1.0, seed: int = 1) -> list[Row]:
    """Kill 50 runs at random moments and count orphans and lost copies."""
    moments = random.Random(seed)
    wrong: list[str | None] = []
    finished = 0
    longest_s = 0.0
    for _ in range(of(share, 50)):
        with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
            left, gone, ended, took_s = one_kill(
                Path(folder), dict(bench.environment), moments.uniform(0.15, 1.6)
            )
        bad = left or gone
        wrong.append(f"{left} orphans, {gone} of {ended} finished copies lost" if bad else None)
        finished += ended
        longest_s = max(longest_s, took_s)
    print(f"{finished} copies had finished; everything dead after at most {longest_s:.2f} s")
    return [row_of("kill -9 of a run, its strays", wrong)]


def one_kill(
    folder: Path, environment: dict[str, str], after_s: float, copies: int = 16
) -> tuple[int, int, int, float]:
    """Start a run, kill its supervisor; return (orphans, lost, finished, seconds until all dead).

    The run's processes are known by a variable in their environment, so this
    finds them wherever they went.
    """
    mark = f"RATER_KILL9={os.getpid()}.{time.monotonic_ns()}"
    done, database = folder / "done", folder / "kill9.db"
    name, _, value = mark.partition("=")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "rater",
            "run",
            "--copies",
            str(copies),
            "--iterations",
            "3",
            "--quiet",
            "--",
            "sh",
            "-c",
            COPY,
        ],
        env=environment
        | {name: value, "DONE": str(done), "RATER_DB": str(database)}
        | {"RATER_CACHE": str(folder / "cache"), "RATER_LOCK": str(folder / "lock")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(max(0.0, after_s - _NOTICED_S))
    ended = len(done.read_text().split()) if done.exists() else 0
    time.sleep(_NOTICED_S)
    process.send_signal(signal.SIGKILL)
    begin = time.monotonic()
    process.wait()
    left = marked(mark)
    while left and time.monotonic() - begin < _DEADLINE_S:
        time.sleep(0.01)
        left = marked(mark)
    took_s = time.monotonic() - begin
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    stored = 0
    if database.exists():
        with sqlite3.connect(database) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            # Killed while it made the database, it may not have come to the tables.
            if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'copy'").fetchone():
                stored = db.execute("SELECT count(*) FROM copy WHERE status = 'ok'").fetchone()[0]
        opened = subprocess.run(
            [sys.executable, "-m", "rater", "--db", str(database), "list"],
            stdout=subprocess.DEVNULL,
            check=False,
        )
        assert opened.returncode == 0
    return len(left), max(0, ended - stored), ended, took_s


def marked(mark: str) -> list[int]:
    """Return the living processes whose environment carries `mark`."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            carries = mark.encode() in (process / "environ").read_bytes().split(b"\0")
            alive = (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            continue
        if carries and alive:
            found.append(int(process.name))
    return found
