"""Copies that misbehave, helpers that are stopped, CPUs that go: the run ends, and says how."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.bench import Bench
from benchmarks.torture.attempt import run, wrong_with
from benchmarks.torture.table import Row, of, row_of

WORDS = (
    "--quiet",
    "--proof",
    "off",
    "--copies",
    "3",
    "--timeout",
    "1",
    "--grace",
    "0.5",
    "--output-limit",
    "2M",
)
_USER = 54321  # who may have few processes; needs no entry in any file
# What a copy does, and the exit statuses of rater that are right (-9: it was killed by a copy).
COPIES = {
    "ignores SIGTERM": ("trap '' TERM; while :; do sleep 0.1; done", (1,)),
    "stops itself": ("kill -STOP $$", (1,)),
    "stops its group": ("kill -STOP 0", (1,)),
    "closes its descriptors": ("exec 0<&- 1>&- 2>&- 3>&- 9>&-; sleep 0.2", (0,)),
    "writes without end": ("yes", (1,)),
    "leaves a session behind": ("setsid sleep 300 & setsid setsid sleep 300 & exit 0", (0,)),
    "kills its parent": ("kill -9 $PPID; sleep 300", (-9,)),
    "interrupts its parent": ("kill -INT $PPID; sleep 300", (130, -2)),
    "kills its group": ("kill -9 0", (1,)),
    "removes its directory": ('rm -rf "$PWD"; sleep 0.1', (0, 1)),
    "fills its directory": ("i=0; while [ $i -lt 3000 ]; do : > f$i; i=$((i+1)); done", (0,)),
    "nests its directory": (
        "i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done",
        (0, 1),
    ),
    "exits by a signal": ("kill -SEGV $$", (1,)),
    "forks as another user": (
        f"exec setpriv --reuid {_USER} --regid {_USER} --clear-groups sh -c "
        "'ulimit -u 40; f() { f | f & }; f; sleep 300'",
        (1,),
    ),
}


def campaign(bench: Bench, share: float = 1.0) -> list[Row]:
    """Run each kind of bad copy twice, stop each helper, take CPUs away; as root a second user."""
    cases = list(COPIES.items())[: of(share, len(COPIES))] * of(share, 2)
    bad = []
    for name, (script, statuses) in cases:
        if _USER and "another user" in name and os.geteuid():
            continue
        with _folder(bench) as folder:
            words = ["run", *WORDS, "--", "sh", "-c", script]
            ended = run(Path(folder), dict(bench.environment) | own_places(folder), words)
            found = wrong_with(ended, Path(folder), statuses)
        bad.append(found and f"{name}: {found}")
    rows = [row_of("copies that misbehave", bad)]
    doings: dict[str, Callable[[subprocess.Popen[bytes]], None]] = {
        "the supervisor is stopped for a second": _stop_supervisor,
        "the watchdog or a helper is stopped": _stop_children,
        "the CPUs shrink to one": _shrink,
    }
    for what, during in doings.items():
        found_all = []
        for _ in range(of(share, 5)):
            with _folder(bench) as folder:
                words = ["run", "--quiet", "--copies", "4", "--iterations", "4", "--timeout", "20"]
                words += ["--", "sleep", "0.4"]
                ended = run(
                    Path(folder), dict(bench.environment) | own_places(folder), words, during=during
                )
                found_all.append(wrong_with(ended, Path(folder), (0, 1)))
        rows.append(row_of(what, found_all))
    rows.append(Row("a CPU is unplugged", 0, 0, "left out: it is everybody's on this machine"))
    return rows


def _folder(bench: Bench) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir=bench.folder, ignore_cleanup_errors=True)


def own_places(folder: str | Path) -> dict[str, str]:
    return {
        "RATER_DB": f"{folder}/fault.db",
        "RATER_CACHE": f"{folder}/cache",
        "RATER_LOCK": f"{folder}/lock",
        "RATER_JOURNAL": f"{folder}/settings.json",
    }


def _until_copies(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Wait until copies run; return what rater has started."""
    rater = psutil.Process(process.pid)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        children = rater.children()
        if any(_is_sleep(child) for child in children):
            return children
        time.sleep(0.02)
    return []


def _is_sleep(child: psutil.Process) -> bool:
    try:
        return child.name() == "sleep"
    except psutil.Error:
        return False


def _stop_supervisor(process: subprocess.Popen[bytes]) -> None:
    if _until_copies(process):
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        process.send_signal(signal.SIGCONT)


def _stop_children(process: subprocess.Popen[bytes]) -> None:
    for child in _until_copies(process):
        if not _is_sleep(child):
            os.kill(child.pid, signal.SIGSTOP)


def _shrink(process: subprocess.Popen[bytes]) -> None:
    _until_copies(process)
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {min(os.sched_getaffinity(0))})
