"""One run of rater that something is done to, and what may be wrong with how it ended."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.torture.kill9 import marked

_PATIENCE_S = 60.0
_GONE_S = 5.0  # everything a run started has to be dead so long after it ended
# Each says in a file that it is done: it is to be found in a database then.
COPY = 'sleep 0.0$((RATER_COPY + 1)); echo "$RATER_COPY" >> "$DONE"'


@dataclass(frozen=True, slots=True)
class Ended:
    """How rater ended."""

    status: int | None  # None: not within its time
    said: str
    left: int  # processes


def run(
    folder: Path,
    environment: Mapping[str, str],
    words: Sequence[str],
    *,
    prefix: Sequence[str] = (),
    during: Callable[[subprocess.Popen[bytes]], None] = lambda _: None,
    patience_s: float = _PATIENCE_S,
) -> Ended:
    """Run `PREFIX rater WORDS` with all its files in `folder`, and do something meanwhile."""
    name, value = "RATER_TORTURED", f"{os.getpid()}.{time.monotonic_ns()}"
    places = {
        "RATER_DB": str(folder / "fault.db"),
        "RATER_CACHE": str(folder / "cache"),
        "RATER_LOCK": str(folder / "lock"),
        "RATER_JOURNAL": str(folder / "settings.json"),
        "DONE": str(folder / "done"),
        name: value,
    }
    said, here = folder / "said", folder / "here"
    here.mkdir(exist_ok=True)
    with said.open("wb") as file:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "rater", *words],
            env={**places, **environment, name: value},
            cwd=here,  # a copy may remove it
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
        )
        try:
            during(process)
            status: int | None = process.wait(patience_s)
        except subprocess.TimeoutExpired:
            status = None
            process.kill()
            process.wait()
    deadline = time.monotonic() + _GONE_S
    while (left := marked(f"{name}={value}")) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return Ended(status, said.read_text(errors="replace"), len(left))


def wrong_with(
    ended: Ended, folder: Path, statuses: Sequence[int] = (0, 1, 2), copies: int | None = None
) -> str | None:
    """Return what is wrong; right is: an expected status, words where it failed, nothing lost.

    With status 0 the last run is complete and, where that is given, has so many good copies.
    """
    last = (ended.said.strip().splitlines() or [""])[-1]
    state, stored, damaged = _stored(folder)
    done = folder / "done"
    lost = len(done.read_text().split()) - stored if done.exists() else 0
    is_well = state == "complete" and (copies is None or stored >= copies)
    found = {
        "it did not end": ended.status is None,
        f"a traceback: {last}": "Traceback" in ended.said,
        f"{ended.left} processes were left": ended.left > 0,
        f"exit status {ended.status}: {last}": ended.status not in statuses,
        f"exit status {ended.status} without a word": ended.status in (1, 2) and not last,
        f"the database is damaged: {damaged}": damaged is not None,
        f"exit status 0, the run is {state}, {stored} good copies": ended.status == 0
        and not is_well,
        f"{lost} finished copies are stored nowhere: {last}": lost > 0,
    }
    return next((text for text, is_so in found.items() if is_so), None)


def _stored(folder: Path) -> tuple[str | None, int, str | None]:
    """Return the state of the last run, its good copies, and what is wrong with the database.

    What the database would not take is in a file of its own.
    """
    state, good, damaged = None, 0, None
    for file in folder.glob("*.db"):
        with closing(sqlite3.connect(file)) as db:
            check = db.execute("PRAGMA integrity_check").fetchone()[0]
            damaged = damaged if check == "ok" else check
            if db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'copy'").fetchone():
                good += db.execute("SELECT count(*) FROM copy WHERE status = 'ok'").fetchone()[0]
                last = db.execute("SELECT status FROM run ORDER BY id DESC").fetchone()
                state = last and last[0]
    for file in folder.rglob("rater-*.jsonl"):
        good += sum("CopyEnded" in line for line in file.read_text().splitlines())
    return state, good, damaged
