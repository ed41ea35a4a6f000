"""kill -9 of a process that sets knobs, at random moments: the next one finds all put back."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.torture.table import Row, row_of, scaled_number
from rater.settings.restore import find_leftovers, restore_leftovers
from tests.support.settings_tree import make_tree, values

# Sets and puts back as fast as it can, so that a random moment lies anywhere in it.
SWEEP = """
import sys
from pathlib import Path
from rater.settings.tuner import SettingsSession
root, journal = map(Path, sys.argv[1:])
print(flush=True)
while True:
    with SettingsSession(root, journal, "campaign") as tuner:
        tuner.refuse_unless_settable({"thp": ["never", "always"], "swappiness": ["1"]})
        for thp in ("never", "always"):
            tuner.set({"thp": thp, "governor": "powersave", "hugepages.2048kB": "40"})
            tuner.set({"thp": thp, "swappiness": "1", "energy_preference": "power"})
"""
_LONGEST_S = 0.05


def campaign(bench: Bench, share: float = 1.0, seed: int = 1) -> list[Row]:
    """Kill 100 processes at random moments; count settings that the next one does not restore.

    They are those of a tree of plain files, not of this machine.
    """
    moments = random.Random(seed)
    changed = 0
    wrong: list[str | None] = []
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        root, journal = make_tree(Path(folder) / "machine"), Path(folder) / "settings.json"
        before = values(root)
        for _ in range(scaled_number(share, 100)):
            kill_one(root, journal, bench, moments.uniform(0.0, _LONGEST_S))
            is_changed = values(root) != before
            changed += is_changed
            silent = is_changed and find_leftovers(root, journal) is None
            done = restore_leftovers(root, journal, lambda _: None)
            kept = not done or values(root) != before or journal.exists()
            wrong.append("changed, no journal" if silent else "not put back" if kept else None)
    print(f"{changed} kills found settings changed")
    return [row_of("kill -9 while settings are set", wrong)]


def kill_one(root: Path, journal: Path, bench: Bench, after_s: float) -> None:
    """Start a process that sets knobs, and kill it that long after it began to."""
    with subprocess.Popen(
        [sys.executable, "-c", SWEEP, str(root), str(journal)],
        env=dict(bench.environment),
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
