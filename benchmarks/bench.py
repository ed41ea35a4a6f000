"""Run rater and its rivals on the same copies; read what the copies stamped themselves."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RUNS = 7


@dataclass(frozen=True, slots=True)
class Ran:
    """One start of many copies."""

    skew_ms: float  # first instruction of the last copy minus that of the first
    span_ms: float  # last stamp minus first stamp
    elapsed_ms: float  # as the runner measured it (rater: bracket)
    cpu_s: float  # of the runner itself, copies not counted; 0 when not known


class Bench:
    """A scratch folder with the programs built, and rater set up to leave no trace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stamp = self._compile("stamp")
        self.spawnloop = self._compile("spawnloop")
        self.respawnloop = self._compile("respawnloop")
        self.environment = os.environ | {
            "RATER_DB": str(folder / "rater.db"),
            "RATER_LOCK": str(folder / "rater.lock"),
            "RATER_CACHE": str(folder / "cache"),
            "RATER_JOURNAL": str(folder / "settings.json"),
        }

    def _compile(self, name: str) -> str:
        program = self.folder / name
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run([*compiler, "-O2", "-o", program, HERE / f"{name}.c"], check=True)
        return str(program)

    def rater(self, *arguments: str, **more: str) -> dict[str, Any]:
        """Run `rater run`; return its --json document, if asked for, and its own `usage`."""
        done = subprocess.run(
            [sys.executable, "-c", _CALL, "run", *arguments],
            env=self.environment | more,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"rater {' '.join(arguments)} failed:\n{done.stderr}")
        document: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
        document["usage"] = json.loads(done.stderr.splitlines()[-1])
        return document

    def query(self, sql: str) -> list[str]:
        """The first column of what the database answers."""
        with sqlite3.connect(self.environment["RATER_DB"]) as db:
            return [row[0] for row in db.execute(sql)]

    def stamped(self, start: Callable[[dict[str, str]], tuple[float, float]]) -> Ran:
        """Call `start` (returns elapsed ms and CPU s) and read the stamps its copies left."""
        stamps = self.folder / "stamps"
        stamps.unlink(missing_ok=True)
        elapsed_ms, cpu_s = start({"STAMPS": str(stamps)})
        rows = [tuple(map(int, line.split())) for line in stamps.read_text().splitlines()]
        starts = [row[0] for row in rows]
        ends = [row[1] for row in rows]
        return Ran(
            skew_ms=(max(starts) - min(starts)) / 1e6,
            span_ms=(max(ends) - min(starts)) / 1e6,
            elapsed_ms=elapsed_ms,
            cpu_s=cpu_s,
        )

    def by_rater(self, copies: int, argument: str, *options: str) -> Ran:
        """Start copies of `stamp` with rater."""

        def start(more: dict[str, str]) -> tuple[float, float]:
            document = self.rater(
                "--copies", str(copies), *options, "--json", "--", self.stamp, argument, **more
            )
            return document["benchmarks"][0]["bracket_s"] * 1e3, document["usage"]["cpu_s"]

        return self.stamped(start)

    def by_loop(self, copies: int, argument: str) -> Ran:
        """Start copies of `stamp` with the C loop."""

        def start(more: dict[str, str]) -> tuple[float, float]:
            done = subprocess.run(
                [self.spawnloop, str(copies), self.stamp, argument],
                env=os.environ | more,
                stdout=subprocess.PIPE,
                check=True,
            )
            return int(done.stdout) / 1e6, 0.0

        return self.stamped(start)

    def by_shell(self, command: str) -> Ran:
        """Start copies of `stamp` with a shell command (xargs, parallel)."""

        def start(more: dict[str, str]) -> tuple[float, float]:
            begin = time.monotonic()
            subprocess.run(
                command, shell=True, env=os.environ | more, stdout=subprocess.DEVNULL, check=True
            )
            return (time.monotonic() - begin) * 1e3, 0.0

        return self.stamped(start)


# Runs the command line in-process and says on stderr what the supervisor itself used.
_CALL = """
import json, resource, sys
from rater.cli import main
status = main(sys.argv[1:])
own = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"cpu_s": own.ru_utime + own.ru_stime, "max_rss_bytes": own.ru_maxrss * 1024}),
      file=sys.stderr)
sys.exit(status)
"""


@contextmanager
def bench() -> Iterator[Bench]:
    """A `Bench` in a folder that goes when it is done."""
    with tempfile.TemporaryDirectory(prefix="rater-bench-") as folder:
        yield Bench(Path(folder))


def in_turn(contestants: dict[str, Callable[[], Ran]], runs: int = RUNS) -> dict[str, list[Ran]]:
    """Run all contestants one after the other, `runs` times, so that drift hits all alike."""
    results: dict[str, list[Ran]] = {name: [] for name in contestants}
    for _ in range(runs):
        for name, contestant in contestants.items():
            results[name].append(contestant())
    return results


def median(values: list[float]) -> float:
    """The median, for one line of a table."""
    return statistics.median(values)


def installed(program: str) -> bool:
    """Tell whether a rival is there."""
    return shutil.which(program) is not None
