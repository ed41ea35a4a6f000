"""The Nth write, truncation or flush of the database fails: EIO, ENOSPC, once or from then on.

A library in front of libc (`faults.c`) fails them: what SQLite's own test VFS does, for the SQLite
that Python has.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.torture.attempt import COPY, DATABASE, attempts, run, wrong_with
from benchmarks.torture.table import Row, row_of, scaled_number
from rater.store.store import open_store

_KINDS = ((errno.EIO, False), (errno.EIO, True), (errno.ENOSPC, False), (errno.ENOSPC, True))
_LAST = 120  # about as many calls as a small run has
COPIES = 4
RUN = ("run", "--copies", str(COPIES), "--iterations", "2", "--proof", "off", "--quiet")


def campaign(bench: Bench, share: float = 1.0) -> list[Row]:
    """Fail each call of 60, every second one of a run's, in four ways in turn."""
    library = compiled(bench.folder)
    number_of = scaled_number(share, 60)
    cases = [(1 + it * _LAST // number_of, *_KINDS[it % len(_KINDS)]) for it in range(number_of)]

    def attempt(folder: Path, case: tuple[int, int, bool]) -> str | None:
        at, number, ever = case
        found = run_with_failing_call(folder, bench.environment, library, at, number, ever=ever)
        return found and f"call {at}{' and on' if ever else ''}: {found}"

    return [
        row_of(
            f"{errno.errorcode[number]} of the database",
            attempts(bench, attempt, [case for case in cases if case[1] == number]),
        )
        for number in (errno.EIO, errno.ENOSPC)
    ]


def compiled(folder: Path) -> Path:
    """Build the library."""
    library = folder / "faults.so"
    source = Path(__file__).with_name("faults.c")
    compiler = os.environ.get("CC", "cc").split()
    command = [*compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def run_with_failing_call(
    folder: Path, environment: Mapping[str, str], library: Path, at: int, number: int, *, ever: bool
) -> str | None:
    """Run rater with the call numbered `at` failing; return what is wrong."""
    with open_store(folder / DATABASE):
        pass  # what makes a new one is many calls, all of them before a run
    fault = {"LD_PRELOAD": str(library), "FAULT_AT": str(at), "FAULT_ERRNO": str(number)}
    fault |= {"FAULT_EVER": "1"} if ever else {}
    ended = run(folder, {**environment, **fault}, [*RUN, "--", "sh", "-c", COPY])
    return wrong_with(ended, folder, copies=2 * COPIES)
