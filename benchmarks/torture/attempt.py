"""One run of rater that something is done to, and what may be wrong with how it ended."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from benchmarks.bench import Bench

DATABASE = "fault.db"
_PATIENCE_S = 60.0
_GONE_S = 5.0  # everything a run started has to be dead so long after it ended
_numbers = count()
# Each says in a file that it is done: it is to be found in a database then.
COPY = 'sleep 0.0$((RATER_COPY + 1)); echo "$RATER_COPY" >> "$DONE"'


@dataclass(frozen=True, slots=True)
class Ended:
    """How rater ended."""

    status: int | None  # None: not within its time
    said: str
    left: int  # processes


def _places(folder: Path, database: str) -> dict[str, str]:
    files = {"DB": database, "CACHE": "cache", "LOCK": "lock", "JOURNAL": "settings.json"}
    return {f"RATER_{name}": str(folder / file) for name, file in files.items()}


def run(
    folder: Path,
    environment: Mapping[str, str],
    words: Sequence[str],
    *,
    prefix: Sequence[str] = (),
    during: Callable[[subprocess.Popen[bytes]], None] = lambda _: None,
    database: str = DATABASE,
    patience_s: float = _PATIENCE_S,
    gone_s: float = _GONE_S,
) -> Ended:
    """Run `PREFIX rater WORDS` with all its files in `folder`, and do something meanwhile."""
    name, value = "RATER_TORTURED", f"{os.getpid()}.{next(_numbers)}"
    places = _places(folder, database) | {"DONE": str(folder / "done"), name: value}
    said, work_folder = folder / "said", folder / "here"
    work_folder.mkdir(exist_ok=True)
    with said.open("wb") as file:
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "rater", *words],
            env={**environment, **places},
            cwd=work_folder,  # a copy may remove it
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
    deadline = time.monotonic() + gone_s
    while (left := marked(f"{name}={value}")) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in left:
        with suppress(ProcessLookupError):  # it ended just now
            os.kill(pid, signal.SIGKILL)
    return Ended(status, said.read_text(errors="replace"), len(left))


@dataclass
class Rig:
    """Rater as a process that is killed, its files in a folder, and its database."""

    folder: Path
    environment: Mapping[str, str]

    @property
    def database(self) -> Path:
        return self.folder / DATABASE

    def started(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "rater", *words],
            cwd=self.folder,
            env={**self.environment, **_places(self.folder, DATABASE)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def killed(
        self,
        words: Sequence[str],
        after_s: float,
        *,
        once_begun: bool = False,
        allowed: str = "\0",
        by: int = signal.SIGKILL,
    ) -> bool:
        """Start rater and end it by a signal; False when it had ended before.

        `once_begun`: so long after there is a run; `allowed`: with what it may have failed.
        """
        process = self.started(words)
        while once_begun and process.poll() is None and not self.query_rows("SELECT 1 FROM run"):
            time.sleep(0.01)
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(by)
        said = process.communicate()[1].decode()
        signalled = process.returncode in (-by, 128 + by)
        if process.returncode and not signalled and allowed not in said:
            raise RuntimeError(f"rater {' '.join(words)} ended with {process.returncode}: {said}")
        return signalled

    def ended(self, words: Sequence[str]) -> list[str]:
        """Run rater to its end; return what is wrong with that."""
        process = self.started(words)
        said = process.communicate()[1].decode()
        status = process.returncode
        return [f"rater {' '.join(words[:2])}: exit status {status}: {said}"] if status else []

    def forget(self) -> None:
        for file in self.folder.glob(f"{DATABASE}*"):
            file.unlink()

    def query_rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask the database; what was killed while it made it may not have come to the tables."""
        if not self.database.exists():
            return []
        deadline_s = time.monotonic() + 10
        while True:
            try:
                with closing(sqlite3.connect(self.database)) as db:
                    return db.execute(sql).fetchall()
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):
                    return []
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.01)


def two_at_a_time[T, R](
    bench: Bench, make_attempt: Callable[[Path, T], R], cases: Iterable[T]
) -> list[R]:
    """Do each case in a folder of its own; return what comes of it, in their order."""

    def attempt(case: T) -> R:
        with tempfile.TemporaryDirectory(dir=bench.folder, ignore_cleanup_errors=True) as folder:
            return make_attempt(Path(folder), case)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(attempt, cases))


def attempts[T](
    bench: Bench, make_attempt: Callable[[Path, T], str | None], cases: Iterable[T]
) -> list[str | None]:
    """Make attempts, two at a time; return what each says is wrong, in their order."""

    def attempt(folder: Path, case: T) -> str | None:
        try:
            return make_attempt(folder, case)
        except Exception as error:
            traceback.print_exc()
            return f"the attempt broke: {error!r}"

    return two_at_a_time(bench, attempt, cases)


def until_copies(process: subprocess.Popen[bytes], name: str, patience_s: float = 60.0) -> None:
    """Wait until rater has a child of that name: a copy that is past its gate."""
    rater = psutil.Process(process.pid)
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and process.poll() is None:
        for child in rater.children(recursive=True):
            with suppress(psutil.Error):
                if child.name() == name:
                    return
        time.sleep(0.02)


def marked(mark: str) -> list[int]:
    """Return the living processes whose environment carries `mark`."""
    processes = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            carries = mark.encode() in (process / "environ").read_bytes().split(b"\0")
            alive = (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            continue
        if carries and alive:
            processes.append(int(process.name))
    return processes


def wrong_with(
    ended: Ended, folder: Path, statuses: Sequence[int] = (0, 1, 2), copies: int | None = None
) -> str | None:
    """Return what is wrong; right is: an expected status, words where it failed, nothing lost.

    With status 0 the last run is complete and, where that is given, has so many good copies.
    """
    last = (ended.said.strip().splitlines() or [""])[-1]
    state, stored, damaged = _stored(folder)
    done = folder / "done"
    finished = Counter(done.read_text().split() if done.exists() else ())
    lost = (finished - (stored["ok"] + stored["interrupted"])).total()
    good = stored["ok"].total()
    is_well = state == "complete" and (copies is None or good >= copies)
    is_wrong = {
        "it did not end": ended.status is None,
        f"a traceback: {last}": "Traceback" in ended.said,
        f"{ended.left} processes were left": ended.left > 0,
        f"exit status {ended.status}: {last}": ended.status not in statuses,
        f"exit status {ended.status} without a word": ended.status in (1, 2) and not last,
        f"the database is damaged: {damaged}": damaged is not None,
        f"exit status 0, the run is {state}, {good} good copies": ended.status == 0 and not is_well,
        f"{lost} finished copies are stored nowhere: {last}": lost > 0,
    }
    return next((text for text, is_so in is_wrong.items() if is_so), None)


def _stored(folder: Path) -> tuple[str | None, dict[str, Counter[str]], str | None]:
    """Return the state of the last run, the rows of copies, and what is wrong with the database.

    The rows are counted by status and by number of the copy, as copies write it in their file
    of what is done. A copy that came to its end while rater stopped the others is stored as
    interrupted. What the database would not take is in a file of its own.
    """
    state, damaged = None, None
    stored: dict[str, Counter[str]] = defaultdict(Counter)
    for file in folder.glob("*.db"):
        with closing(sqlite3.connect(file)) as db:
            check = db.execute("PRAGMA integrity_check").fetchone()[0]
            damaged = damaged if check == "ok" else check
            if db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'copy'").fetchone():
                for copy, status in db.execute("SELECT copy, status FROM copy"):
                    stored[status][str(copy)] += 1
                last = db.execute("SELECT status FROM run ORDER BY id DESC").fetchone()
                state = last and last[0]
    for file in folder.rglob("rater-*.jsonl"):
        for event in map(json.loads, file.read_text().splitlines()):
            if event["event"] == "CopyEnded":
                stored[event["status"]][str(event["copy"])] += 1
    return state, stored, damaged
