"""SIGINT, SIGTERM and SIGHUP at every instant, one or many: a run ends in order or never began."""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.torture.kill9 import marked
from benchmarks.torture.table import Row, of, row_of

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SWEPT_S = 1.5  # from the start of the process to its end, on a quiet machine
_STORM = 12
_PATIENCE_S = 30.0
_COPIES = ("--copies", "4", "--iterations", "2")
# Each leaves a child in a session of its own.
_RUN = ("run", *_COPIES, "--", "sh", "-c", "setsid sleep 300 & sleep 0.2")
_SWEEP = ("sweep", "--axis", "copies=1,2", "--rounds", "2", "--", "sleep", "0.05")


def campaign(bench: Bench, share: float = 1.0, seed: int = 1) -> list[Row]:
    """Send 120 runs one signal each, in steps of 12.5 ms, 60 runs and 30 sweeps many of them."""
    chance = random.Random(seed)

    def attempt(
        words: Sequence[str], moment_s: float, sent: Sequence[signal.Signals]
    ) -> str | None:
        with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
            gaps_s = [moment_s] + [chance.uniform(0, 0.02) for _ in sent[1:]]
            return one(Path(folder), dict(bench.environment), words, zip(gaps_s, sent, strict=True))

    def over(number: int) -> Iterator[tuple[float, signal.Signals]]:
        for step in range(of(share, number)):
            yield _SWEPT_S * step / of(share, number), SIGNALS[step % 3]

    storm = chance.choices(SIGNALS, k=_STORM)
    return [
        row_of("one signal to a run", [attempt(_RUN, at, [it]) for at, it in over(120)]),
        row_of("many signals to a run", [attempt(_RUN, at, storm) for at, _ in over(60)]),
        row_of("one signal to a sweep", [attempt(_SWEEP, at, [it]) for at, it in over(60)]),
        row_of("many signals to a sweep", [attempt(_SWEEP, at, storm) for at, _ in over(30)]),
        row_of("one signal to `list`", [attempt(("list",), at / 5, [it]) for at, it in over(30)]),
    ]


def one(
    folder: Path,
    environment: dict[str, str],
    words: Sequence[str],
    sent: Iterator[tuple[float, signal.Signals]],
) -> str | None:
    """Send `rater WORDS` each signal so many seconds after what was before; return what is wrong.

    Right is: a run that was begun is interrupted or had ended; the exit status is that of a
    signal that was sent, or its own; no traceback; no process is left.
    """
    name, value = "RATER_SIGNALLED", f"{os.getpid()}.{time.monotonic_ns()}"
    database, said = folder / "signals.db", folder / "stderr"
    environment |= {name: value, "RATER_DB": str(database), "RATER_CACHE": str(folder / "cache")}
    with said.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "rater", *words],
            env=environment | {"RATER_LOCK": str(folder / "lock")},
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
        allowed, moments = {0}, []
        for after_s, number in sent:
            time.sleep(after_s)
            process.send_signal(number)
            moments.append(after_s)
            allowed |= {128 + number, -number}
        try:
            status = process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"did not end within {_PATIENCE_S:g} s of a signal at {moments[0]:.3f} s"
    wrong = []
    text = said.read_text(errors="replace")
    # Until its first line Python itself takes the signal, as it likes to.
    broke = re.search("Traceback|Fatal Python|Exception ignored", text)
    if broke and re.search(r"/rater/(__main__|cli)\.py", text):
        wrong.append(text.strip().splitlines()[-1])
    elif status not in allowed and not broke:
        wrong.append(f"exit status {status}")
    wrong += _stored_wrong(database, status)
    deadline = time.monotonic() + 2.5
    while (left := marked(f"{name}={value}")) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        wrong.append("a process was left")
    return f"at {moments[0]:.3f} s: {', '.join(wrong)}" if wrong else None


def _stored_wrong(database: Path, status: int) -> list[str]:
    """Return what the database says of runs and sweeps that is not so."""
    if not database.exists():
        return []
    wrong = []
    with closing(sqlite3.connect(database)) as db:
        if db.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            return ["the database is damaged"]
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
        for table in tables & {"run", "sweep"}:
            for (found,) in db.execute(f"SELECT status FROM {table}"):
                if found not in ("interrupted", "complete"):
                    wrong.append(f"the {table} is {found!r}")
                if found == "interrupted" and status == 0:
                    wrong.append(f"exit status 0 of an interrupted {table}")
    return wrong
