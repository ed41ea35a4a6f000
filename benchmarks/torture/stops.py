"""SIGSTOP of rater itself, of its launcher, of the process that checks: the run ends."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.bench import Bench
from benchmarks.torture.attempt import attempts, run, until_copies, wrong_with
from benchmarks.torture.table import Row, row_of, scaled_number

SUITE = """
[suite]
format = 1
[benchmarks.nap]
command = ["sh", "-c", "sleep 0.3; echo done"]
[benchmarks.nap.sizes.train]
reference_s = 1.0
memory_mb = 1
expected = "done\\n"
"""
# By a word of its command line; rater itself has none. It is let go on, nobody else could be.
HELPERS = {"rater": "", "the launcher": "rater-launcher", "the checker": "checker_main.py"}
_STOPPED_S = 1.0
_RUN = ("run", "own.toml", "--copies", "3", "--iterations", "2", "--check-limit", "1", "--quiet")
_LONGEST_S = 0.8  # about the time of the run


def campaign(bench: Bench, share: float = 1.0, seed: int = 1) -> list[Row]:
    """Stop each of the three in ten runs, at moments all over the run."""
    moments = random.Random(seed)
    times_s = [moments.uniform(0, _LONGEST_S) for _ in range(scaled_number(share, 10))]

    def attempt(folder: Path, case: tuple[str, float]) -> str | None:
        return run_with_stopped_helper(folder, bench.environment, *case)

    return [
        row_of(
            f"{name} is stopped",
            attempts(bench, attempt, [(name, after_s) for after_s in times_s]),
        )
        for name in HELPERS
    ]


def run_with_stopped_helper(
    folder: Path, environment: Mapping[str, str], name: str, after_s: float
) -> str | None:
    """Stop it so long after copies began; the run ends, and a check that hangs is told."""
    word = HELPERS[name]

    def stop(process: subprocess.Popen[bytes]) -> None:
        until_copies(process, "sleep")
        time.sleep(after_s)
        if not word:
            process.send_signal(signal.SIGSTOP)
            time.sleep(_STOPPED_S)
            process.send_signal(signal.SIGCONT)
            return
        with suppress(psutil.Error):  # it had ended before
            for child in psutil.Process(process.pid).children():
                if word in " ".join(child.cmdline()):
                    child.suspend()

    (folder / "here").mkdir()
    (folder / "here" / "own.toml").write_text(SUITE)
    return wrong_with(run(folder, environment, _RUN, during=stop), folder, (0, 1))
