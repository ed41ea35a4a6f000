"""Memory of copies through a whole run, against programs that allocate a known amount."""

from __future__ import annotations

import csv
import io
import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from rater.run.observe import observer
from tests.support.calls import Rater

MB = 1 << 20
# Touches so many MB, says so, and lives until all were looked at once.
PROGRAM = """
import os, pathlib, sys, time
x = bytearray(b'1') * (int(sys.argv[1]) << 20)
pathlib.Path("ready." + os.environ["RATER_COPY"]).touch()
while not os.path.exists("looked"):
    time.sleep(0.01)
"""


@pytest.fixture
def looks_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look of a run sees its two copies, when they are ready for it, and lets them end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(observer, "EVERY_S", 0.1)
    monkeypatch.setattr(observer, "_LEAST_AGE_NS", 0)
    look = observer._resident

    def once(pids: Sequence[int]) -> tuple[list[int], int]:
        if len(pids) < 2 or Path("looked").exists():
            return [0] * len(pids), 0
        while not (Path("ready.0").exists() and Path("ready.1").exists()):
            time.sleep(0.01)
        found = look(pids)
        Path("looked").touch()
        return found

    monkeypatch.setattr(observer, "_resident", once)


@pytest.mark.usefixtures("nobody_else", "looks_once")
def test_average_and_most_memory_are_what_programs_allocated(rater: Rater) -> None:
    """16 and 64 MB beside what Python has, the second in a child of a shell."""
    python = [sys.executable, "-c", PROGRAM]
    shell = ["sh", "-c", f"{shlex.join([*python, '64'])}; true"]
    for command in ([*python, "16"], shell):
        for file in ("ready.0", "ready.1", "looked"):
            Path(file).unlink(missing_ok=True)
        assert rater("run", "--quiet", "--copies", 2, "--", *command)[0] == 0
    document = json.loads(rater("compare", 1, 2, "--memory", "--json")[1])
    first, then = (row["points"][place] for place, row in enumerate(document["memory"]))
    assert (first["label"], then["label"]) == ("run 1", "run 2")
    for cell, allocated in ((first, 16), (then, 64)):
        assert cell["copy_runs"] == 2
        assert cell["looks"] >= 2
        assert allocated * MB < cell["average_bytes"] <= cell["max_bytes"] < (allocated + 20) * MB
    rows = list(csv.reader(io.StringIO(rater("compare", 1, 2, "--memory", "--csv")[1])))
    assert rows[0][2:4] == ["run 1 average (bytes)", "run 1 max (bytes)"]
    assert rows[1][2:] == [str(round(first["average_bytes"])), str(first["max_bytes"]), "", ""]
    table = rater("compare", 1, 2, "--memory")[1].splitlines()
    assert table[0].split() == ["MB", "a", "copy", "run", "1", "run", "2"]
    assert float(table[2].split()[1]) == pytest.approx(first["average_bytes"] / 1e6, abs=0.06)


def test_memory_is_no_comparison_and_csv_is_of_memory(rater: Rater) -> None:
    status, _, err = rater("compare", 1, 2, "--memory", "--by", "thp", "--fail-on", "worse")
    assert (status, err) == (2, "rater: --memory compares nothing: leave out --by, --fail-on\n")
    assert rater("compare", 1, 2, "--csv")[0] == 2
