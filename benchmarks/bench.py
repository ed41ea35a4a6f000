"""Run rater and its rivals on the same copies, in turn; read what the copies stamped themselves."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rater

HERE = Path(__file__).resolve().parent
median = statistics.median


@dataclass(frozen=True, slots=True)
class Ran:
    """One start of many copies."""

    skew_ms: float  # first instruction of the last copy minus that of the first
    span_ms: float  # last stamp minus first stamp
    elapsed_ms: float  # as the runner measured it (rater: bracket)


@dataclass(frozen=True, slots=True)
class Called:
    """One call of a program: it, and its children that it waited for."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    out: str


class Bench:
    """A scratch folder with the programs built, and rater set up to leave no trace."""

    def __init__(self, folder: Path) -> None:
        # An installed rater is compiled; a copy of the source would be compiled by each call.
        compileall.compile_dir(Path(rater.__file__).parent, quiet=2)
        self.folder = folder
        self.stamp = self._compile("stamp")
        self.spawnloop = self._compile("spawnloop")
        self.respawnloop = self._compile("respawnloop")
        self.environment = os.environ | {
            "RATER_DB": str(folder / "rater.db"),
            "RATER_LOCK": str(folder / "rater.lock"),
            "RATER_CACHE": str(folder / "cache"),
            "RATER_JOURNAL": str(folder / "settings.json"),
            "RATER_CONFIG": "",
        }

    def _compile(self, name: str) -> str:
        program = self.folder / name
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run([*compiler, "-O2", "-o", program, HERE / f"{name}.c"], check=True)
        return str(program)

    def call(self, command: Sequence[str], **more: str) -> Called:
        """Call a program once. Raises `SystemExit` where it fails."""
        out = self.folder / "out"
        began = time.monotonic()
        with out.open("w") as stdout:
            process = subprocess.Popen(
                command, env=self.environment | more, stdout=stdout, stderr=subprocess.PIPE
            )
            assert process.stderr is not None
            error = process.stderr.read().decode(errors="replace")
            _, status, used = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{error}")
        cpu_s = used.ru_utime + used.ru_stime
        return Called(wall_s, cpu_s, used.ru_maxrss * 1024, out.read_text())

    def rater(self, *words: str, **more: str) -> Called:
        """Call rater, as a user does."""
        return self.call([sys.executable, "-m", "rater", *words], **more)

    def supervise(self, *words: str, **more: str) -> dict[str, Any]:
        """Run `rater run` in-process; return its JSON with `usage`: what it used."""
        done = subprocess.run(
            [sys.executable, "-c", CALL, "run", *words],
            env=self.environment | more,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"rater run {' '.join(words)} failed:\n{done.stderr}")
        document: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
        return document | {"usage": json.loads(done.stderr.splitlines()[-1])}

    def query(self, sql: str) -> list[Any]:
        """The first column of what the database answers."""
        with sqlite3.connect(self.environment["RATER_DB"]) as db:
            return [row[0] for row in db.execute(sql)]

    def by_rater(self, copies: int, argument: str, *options: str) -> Ran:
        """Start copies of `stamp` with rater."""

        def start(stamps: str) -> float:
            words = ("--copies", str(copies), *options, "--json", "--", self.stamp, argument)
            bracket_s: float = self.supervise(*words, STAMPS=stamps)["benchmarks"][0]["bracket_s"]
            return bracket_s * 1e3

        return self._stamped(start)

    def by_loop(self, copies: int, argument: str) -> Ran:
        """Start copies of `stamp` with the C loop."""
        command = (self.spawnloop, str(copies), self.stamp, argument)
        return self._stamped(lambda stamps: int(self.call(command, STAMPS=stamps).out) / 1e6)

    def by_shell(self, command: str) -> Ran:
        """Start copies of `stamp` with a shell command (xargs, parallel)."""
        words = ("sh", "-c", command)
        return self._stamped(lambda stamps: self.call(words, STAMPS=stamps).wall_s * 1e3)

    def _stamped(self, start: Callable[[str], float]) -> Ran:
        """Call `start` (returns elapsed ms) and read the stamps its copies left."""
        stamps = self.folder / "stamps"
        stamps.unlink(missing_ok=True)
        elapsed_ms = start(str(stamps))
        rows = [tuple(map(int, line.split())) for line in stamps.read_text().splitlines()]
        starts, ends = zip(*rows, strict=True)
        return Ran(
            skew_ms=(max(starts) - min(starts)) / 1e6,
            span_ms=(max(ends) - min(starts)) / 1e6,
            elapsed_ms=elapsed_ms,
        )


# Runs the command line in-process and says on stderr what the supervisor itself used.
CALL = """
import json, resource, sys
from rater.commands.cli import main
from rater.run.host.foreign_load import process_cpu_s
from rater.run.launcher.launcher import Launcher
close, launcher_s = Launcher.close, 0.0
def closing(self, *, hunt):
    global launcher_s
    launcher_s += process_cpu_s(self.pid)
    close(self, hunt=hunt)
Launcher.close = closing
status = main(sys.argv[1:])
own = resource.getrusage(resource.RUSAGE_SELF)
cpu_s = own.ru_utime + own.ru_stime + launcher_s
print(json.dumps({"cpu_s": cpu_s, "peak_bytes": own.ru_maxrss * 1024}),
      file=sys.stderr)
sys.exit(status)
"""


@contextmanager
def bench() -> Iterator[Bench]:
    """A `Bench` in a folder that goes when it is done."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="rater-bench-") as folder:
        yield Bench(Path(folder))


def in_turn[T](contestants: dict[str, Callable[[], T]], runs: int) -> dict[str, list[T]]:
    """Run all contestants one after the other, `runs` times, so that drift hits all alike."""
    results: dict[str, list[T]] = {name: [] for name in contestants}
    for _ in range(runs):
        for name, contestant in contestants.items():
            results[name].append(contestant())
    return results


def installed(program: str) -> bool:
    """Tell whether a rival is there."""
    return shutil.which(program) is not None
