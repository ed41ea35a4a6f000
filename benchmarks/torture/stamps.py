"""Stops of the launcher, of rater and of both: no time that counts differs from what copies saw.

A copy stamps its own begin and end. Its recorded time may be longer by what Python takes to
begin; beyond that it has to be said to be late, by a bound that reaches back to the true end.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

import psutil

from benchmarks.bench import Bench
from benchmarks.torture.attempt import DATABASE, attempts, run
from benchmarks.torture.table import Row, row_of, scaled_number
from rater.run.launcher.launcher import NAME

_STOPS_S = (0.2, 0.5, 0.9, 3.0)
_STOPPED = {
    "the launcher": ("launcher",),
    "rater": ("rater",),
    "rater and launcher": ("rater", "launcher"),
}
_COPY = """
import os, time
begin_ns = time.monotonic_ns()
time.sleep(0.4)
took_ns = time.monotonic_ns() - begin_ns
open(os.environ["STAMPS"] + os.environ["RATER_COPY"], "w").write(str(took_ns))
"""
_BEGIN_S = 0.15  # a stop begins so long after the copies
_STARTUP_S = 0.15  # what Python takes to begin and end, on a machine that is busy
_PATIENCE_S = 20.0


def campaign(bench: Bench, share: float = 1.0, seed: int = 1) -> list[Row]:
    """Stop each of the three, in turn for .2 to 3 s, in twelve runs."""
    del seed

    def attempt(folder: Path, case: tuple[str, float]) -> str | None:
        name, stop_s = case
        return _wrong_times(folder, bench.environment, _STOPPED[name], stop_s)

    return [
        row_of(
            f"recorded and true times, {name} stopped",
            attempts(
                bench,
                attempt,
                [(name, stop_s) for stop_s in _STOPS_S * scaled_number(share, 3)],
            ),
        )
        for name in _STOPPED
    ]


def _wrong_times(
    folder: Path, environment: Mapping[str, str], stopped: tuple[str, ...], stop_s: float
) -> str | None:
    def stop(process: subprocess.Popen[bytes]) -> None:
        launcher = _await_copies(process)
        pids = {"rater": process.pid, "launcher": launcher}
        time.sleep(_BEGIN_S)
        for name in stopped:
            _send(pids[name], signal.SIGSTOP)
        time.sleep(stop_s)
        for pid in pids.values():
            _send(pid, signal.SIGCONT)

    words = ("run", "--quiet", "--proof", "off", "--energy", "off", "--copies", "2", "--")
    copy = (sys.executable, "-I", "-S", "-c", _COPY)
    stamps = folder / "stamp."
    ended = run(folder, {**environment, "STAMPS": str(stamps)}, (*words, *copy), during=stop)
    if ended.status not in (0, 1) or "Traceback" in ended.said:
        return f"exit status {ended.status}: {ended.said[-200:]}"
    with closing(sqlite3.connect(folder / DATABASE)) as db:
        rows = db.execute("SELECT copy, status, elapsed_ns, late_ns FROM copy").fetchall()
    if len(rows) != 2:
        return f"{len(rows)} copies are stored: {ended.said[-200:]}"
    for number, status, elapsed_ns, late_ns in rows:
        true_ns = int(Path(f"{stamps}{number}").read_text())
        earliest_ns = elapsed_ns - (late_ns or 0)
        if earliest_ns > true_ns + _STARTUP_S * 1e9 or (status == "ok") != (late_ns is None):
            late = "in time" if late_ns is None else f"{late_ns / 1e9:.3f} s late at most"
            return f"{elapsed_ns / 1e9:.3f} s, {late}, for {true_ns / 1e9:.3f} s ({status})"
    return None


def _await_copies(process: subprocess.Popen[bytes]) -> int | None:
    """Wait until both copies run; return the launcher's process, None where there is none."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline_s:
        with suppress(psutil.Error):
            for child in psutil.Process(process.pid).children():
                copies = child.children() if child.name() == NAME[:15] else []
                if sum(copy.name().startswith("python") for copy in copies) == 2:
                    return child.pid
        time.sleep(0.005)
    return None


def _send(pid: int | None, number: signal.Signals) -> None:
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
