"""kill -9 of real sweeps at random moments: settings are back, nothing is lost, nothing runs twice.

Settings are those of a tree of plain files, not of this machine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.torture.attempt import Rig, two_at_a_time
from benchmarks.torture.table import Row, of, row_of
from tests.support.settings_tree import make_tree, values

ROUNDS = 2
AXES = ("env:WORD=,a", "thp=never,always", "swappiness=1,60")
# Every copy leaves what it found: its variable, and the settings as files have them. (The first
# line: what is written over a longer text leaves the rest of it there.)
COPY = """
read thp < "$THP"; read swap < "$SWAP"
echo "${WORD-unset},$thp,$swap" > "$SEEN/$RATER_RUN"
sleep 0.15
"""
_THP, _SWAP = "sys/kernel/mm/transparent_hugepage/enabled", "proc/sys/vm/swappiness"
_LONGEST_S = 4.0  # about what a sweep takes, from the start of its process
_PROGRESS = "SELECT sweep_id, block, point, run_id, done FROM sweep_progress"
_AGAIN = 0.5  # share of resumes that are killed too


@dataclass
class Told:
    """What one sweep went through."""

    kills: int = 0
    changed: int = 0  # kills that left settings changed
    replaced: int = 0  # runs that did not get to their end
    kept: int = 0  # runs that were done when it was killed
    forced: bool = False  # resumed though this machine's own settings had changed
    wrong: list[str] = field(default_factory=list)


def campaign(bench: Bench, share: float = 1.0, seed: int = 1) -> list[Row]:
    """Kill 12 sweeps and resume them, some killed again; count what is not as it should be."""

    def one(folder: Path, number: int) -> Told:
        return one_sweep(folder, dict(bench.environment), random.Random(f"{seed}:{number}"))

    told = two_at_a_time(bench, one, range(of(share, 12)))
    for number, it in enumerate(told, 1):
        for wrong in it.wrong:
            print(f"sweep {number}: {wrong}", flush=True)
    print(
        f"{len(told)} sweeps of 3 axes, {sum(it.kills for it in told)} kills -9: "
        f"{sum(it.changed for it in told)} left settings changed, all put back by the next start; "
        f"{sum(it.kept for it in told)} runs done before a kill and kept, "
        f"{sum(it.replaced for it in told)} torn ones made again, "
        f"{sum(it.forced for it in told)} resumed with --force"
    )
    return [
        row_of("kill -9 of a sweep, resumed exactly", [next(iter(it.wrong), None) for it in told])
    ]


def one_sweep(
    folder: Path,
    environment: dict[str, str],
    moments: random.Random,
    axes: tuple[str, ...] = AXES,
    longest_s: float = _LONGEST_S,
) -> Told:
    """Kill a sweep, resume it until it ends, killed too at times, and look at all it left."""
    rig = _Rig(folder, environment)
    told = Told()
    first = ["sweep", "--retries=0", "--rounds", str(ROUNDS), *(f"--axis={axis}" for axis in axes)]
    first += ["--copies", "1", "--quiet", "--", "sh", "-c", COPY]
    resume = ["sweep", "--resume", "last", "--retries=0", "--quiet"]
    other = ["run", "--tag", "other=1", "--quiet", "--copies", "1", "--proof", "off", "--", "true"]
    changed = "this changed"  # somebody set this machine's own THP meanwhile
    words = first
    while not rig.killed(words, moments.uniform(0.3, longest_s), allowed=changed):
        rig.forget()  # it had ended before
    while True:
        told.kills += 1
        before = rig.done()
        told.kept += len(before)
        told.changed += values(rig.root) != rig.values
        words = resume if rig.rows("SELECT 1 FROM sweep") else first  # killed before there was one
        if moments.random() < 1 / 3:  # any run puts settings back, not only the sweep
            told.wrong += rig.ended(other)
            told.wrong += rig.left_behind()
        after_s = moments.uniform(0.3, longest_s)
        if moments.random() >= _AGAIN or not rig.killed(words, after_s, allowed=changed):
            break
        told.wrong += [f"run {run} was done and is not" for run in before - rig.done()]
    wrong = rig.ended(words)
    if wrong and changed in wrong[0]:
        print(wrong[0], flush=True)
        told.forced, wrong = True, rig.ended([*resume, "--force"])
    told.wrong += wrong
    told.wrong += [f"run {run} was done and is not" for run in before - rig.done()]
    told.wrong += rig.left_behind() + rig.problems(axes)
    told.replaced = len(rig.rows("SELECT 1 FROM sweep_run WHERE replaced"))
    return told


class _Rig(Rig):
    """A machine of plain files beside it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.root = make_tree(folder / "machine")
        self.values = values(self.root)
        self.journal = folder / "settings.json"
        self.seen = folder / "seen"
        self.seen.mkdir()
        files = {"RATER_SYSROOT": "", "THP": _THP, "SWAP": _SWAP}
        places = {name: str(self.root / file) for name, file in files.items()}
        super().__init__(folder, environment | places | {"SEEN": str(self.seen)})

    def done(self) -> set[int]:
        return {run for _, _, _, run, done in self.rows(_PROGRESS) if done}

    def left_behind(self) -> list[str]:
        """Return what of the settings is not as it was."""
        now = values(self.root)
        wrong = [
            f"{file} was {old!r}, is {now.get(file)!r}"
            for file, old in self.values.items()
            if now.get(file) != old
        ]
        return wrong + ([f"{self.journal} is still there"] if self.journal.exists() else [])

    def problems(self, axes: tuple[str, ...]) -> list[str]:
        """Return what is wrong with a sweep that should be complete."""
        wrong = []
        points = 2 ** len(axes)
        rows = self.rows(_PROGRESS)
        if len(rows) != points * ROUNDS or not all(done for *_, done in rows):
            wrong.append(f"{sum(done for *_, done in rows)} of {len(rows)} runs are done")
        if self.rows("SELECT status FROM sweep") != [("complete",)]:
            wrong.append(f"status {self.rows('SELECT status, reason FROM sweep')}")
        counted = self.rows(
            "SELECT block, point, count(*) FROM sweep_run JOIN run ON run.id = run_id "
            "WHERE run.status = 'complete' GROUP BY block, point HAVING count(*) > 1"
        )
        wrong += [f"block {block}, point {point} ran {n} times" for block, point, n in counted]
        for run, uuid in self.rows(
            "SELECT run.id, run.uuid FROM run JOIN sweep_run ON run_id = run.id WHERE NOT replaced"
        ):
            tags = dict(self.rows(f"SELECT name, value FROM tag WHERE run_id = {run}"))
            word, thp, swap = (self.seen / uuid).read_text().strip().split(",")
            for axis, found in (("env:WORD", word), ("thp", thp), ("swappiness", swap)):
                wanted = tags.get(axis, found) or "unset"
                if found != wanted:
                    wrong.append(f"run {run} has {axis}={wanted} and found {found}")
        return wrong
