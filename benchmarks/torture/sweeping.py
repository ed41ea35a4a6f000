"""Sweeps ended at random moments by kill -9, SIGTERM and SIGINT, and resumed: nothing is lost.

Each equals one that was left alone, row by row; settings are back, and nothing runs twice.

Settings are those of a tree of plain files, not of this machine.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.torture.attempt import Rig, two_at_a_time
from benchmarks.torture.table import Row, row_of, scaled_number
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


_SEED = "7"  # of the orders of points: that of a sweep that is left alone is the same
_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT)
# What a sweep is: two of the same words differ in nothing here.
_SAME = {
    "sweep": "SELECT rounds, block_order, seed, suite, directory, status, reason FROM sweep",
    "axes": "SELECT position, name, kind FROM sweep_axis ORDER BY position",
    "points": "SELECT point, label, request, left_out FROM sweep_point ORDER BY point",
    "values": "SELECT point, axis, value FROM sweep_value ORDER BY point, axis",
    "order": "SELECT block, position, point FROM sweep_slot ORDER BY block, position",
}
_RUNS = """
SELECT block, point, run.id, run.status, run.reason, run.copies, run.iterations, run.layout,
    run.memory, run.request
FROM sweep_run JOIN run ON run.id = run_id WHERE NOT replaced ORDER BY block, point
"""
_OF_RUN = {
    "tags": "SELECT name, value FROM tag WHERE run_id = {run} ORDER BY name, value",
    "copies": "SELECT phase, copy, step, benchmark, iteration, counted, status, exit_code, cpu, "
    "node FROM copy WHERE run_id = {run} ORDER BY phase, copy, step",
    "brackets": "SELECT phase, benchmark, iteration, counted, complete, torn FROM bracket "
    "WHERE run_id = {run} ORDER BY phase",
    "settings": "SELECT name, value FROM setting WHERE run_id = {run} AND name IN ('thp', "
    "'swappiness') ORDER BY name",
}


@dataclass
class Told:
    """What one sweep went through."""

    ends: Counter[str] = field(default_factory=Counter)  # by signal
    changed: int = 0  # kills that left settings changed
    replaced: int = 0  # runs that did not get to their end
    kept: int = 0  # runs that were done when it was killed
    forced: bool = False  # resumed though this machine's own settings had changed
    compared: int = 0  # rows, with those of the sweep that was left alone
    wrong: list[str] = field(default_factory=list)


def campaign(bench: Bench, share: float = 1.0, seed: int = 1) -> list[Row]:
    """End 20 sweeps and resume them, some ended again; count what is not as it should be."""
    folder = bench.folder / "alone"
    folder.mkdir()
    rig = _Rig(folder, dict(bench.environment))
    began_s = time.monotonic()
    if wrong := rig.ended(_sweep_words(AXES)):
        raise RuntimeError(wrong[0])
    alone, took_s = rig.snapshot(), time.monotonic() - began_s

    def sweep_once(folder: Path, number: int) -> Told:
        moments = random.Random(f"{seed}:{number}")
        by = _SIGNALS[number % len(_SIGNALS)]
        return one_sweep(
            folder, dict(bench.environment), moments, longest_s=took_s, by=by, alone=alone
        )

    results = two_at_a_time(bench, sweep_once, range(scaled_number(share, 20)))
    for number, result in enumerate(results, 1):
        for wrong_ in result.wrong:
            print(f"sweep {number}: {wrong_}", flush=True)
    ends = sum((result.ends for result in results), Counter[str]())
    print(
        f"{len(results)} sweeps of 3 axes, ended by "
        f"{', '.join(f'{name} {number} times' for name, number in sorted(ends.items()))}: "
        f"{sum(result.changed for result in results)} ends left settings changed, "
        f"all put back by the next start; "
        f"{sum(result.kept for result in results)} runs done before an end and kept, "
        f"{sum(result.replaced for result in results)} torn ones made again, "
        f"{sum(result.forced for result in results)} resumed with --force; "
        f"{sum(result.compared for result in results)} "
        "rows compared with those of a sweep that was left alone"
    )
    return [
        row_of(
            "sweep ended, resumed, equal", [next(iter(result.wrong), None) for result in results]
        )
    ]


def _sweep_words(axes: tuple[str, ...]) -> list[str]:
    words = ["sweep", "--retries=0", "--rounds", str(ROUNDS), *(f"--axis={axis}" for axis in axes)]
    return [*words, "--seed", _SEED, "--copies", "2", "--quiet", "--", "sh", "-c", COPY]


def one_sweep(
    folder: Path,
    environment: dict[str, str],
    moments: random.Random,
    axes: tuple[str, ...] = AXES,
    longest_s: float = _LONGEST_S,
    *,
    by: int = signal.SIGKILL,
    alone: dict[str, list[Any]] | None = None,
) -> Told:
    """End a sweep, resume it until it ends, ended too at times, and look at all it left."""
    rig = _Rig(folder, environment)
    result = Told()
    first = _sweep_words(axes)
    resume = ["sweep", "--resume", "last", "--retries=0", "--quiet"]
    other = ["run", "--tag", "other=1", "--quiet", "--copies", "1", "--proof", "off", "--", "true"]
    changed = "this changed"  # somebody set this machine's own THP meanwhile
    words = first
    while not rig.killed(words, moments.uniform(0.3, longest_s), allowed=changed, by=by):
        rig.forget()  # it had ended before
    while True:
        result.ends[signal.Signals(by).name] += 1
        before = rig.done()
        result.kept += len(before)
        result.changed += values(rig.root) != rig.values
        if by != signal.SIGKILL:  # else the next start puts settings back
            result.wrong += rig.left_behind()
        # The command may have ended before the sweep was stored.
        words = resume if rig.query_rows("SELECT 1 FROM sweep") else first
        if moments.random() < 1 / 3:  # any run puts settings back, not only the sweep
            result.wrong += rig.ended(other)
            result.wrong += rig.left_behind()
        after_s = moments.uniform(0.3, longest_s)
        again = moments.random() < _AGAIN
        if not again or not rig.killed(words, after_s, allowed=changed, by=by):
            break
        result.wrong += [f"run {run} was done and is not" for run in before - rig.done()]
    wrong = rig.ended(words)
    if wrong and changed in wrong[0]:
        print(wrong[0], flush=True)
        result.forced, wrong = True, rig.ended([*resume, "--force"])
    result.wrong += wrong
    result.wrong += [f"run {run} was done and is not" for run in before - rig.done()]
    result.wrong += rig.left_behind() + rig.problems(axes)
    if alone is not None:
        now = rig.snapshot()
        result.compared = sum(map(len, now.values()))
        result.wrong += [
            f"{what}: {sorted(set(now.get(what, ())) ^ set(rows), key=str)[:3]} differ from those "
            "of a sweep that was left alone"
            for what, rows in alone.items()
            if now.get(what) != rows
        ]
        result.wrong += [f"{what}: there is more" for what in now.keys() - alone.keys()]
    result.replaced = len(rig.query_rows("SELECT 1 FROM sweep_run WHERE replaced"))
    return result


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
        return {run for _, _, _, run, done in self.query_rows(_PROGRESS) if done}

    def snapshot(self) -> dict[str, list[Any]]:
        """Return the rows of the sweep and of each run that counts, but numbers and times."""
        rows_by_name: dict[str, list[Any]] = {
            name: [
                tuple(str(value).replace(str(self.folder), "") for value in row)
                for row in self.query_rows(sql)
            ]
            for name, sql in _SAME.items()
        }
        for block, point, run, *head in self.query_rows(_RUNS):
            where = f"block {block}, point {point}"
            rows_by_name[where] = [*rows_by_name.get(where, []), tuple(head)]
            for name, sql in _OF_RUN.items():
                rows = self.query_rows(sql.format(run=run))
                rows_by_name[f"{where}: {name}"] = [
                    *rows_by_name.get(f"{where}: {name}", []),
                    *rows,
                ]
        return rows_by_name

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
        rows = self.query_rows(_PROGRESS)
        if len(rows) != points * ROUNDS or not all(done for *_, done in rows):
            wrong.append(f"{sum(done for *_, done in rows)} of {len(rows)} runs are done")
        if self.query_rows("SELECT status FROM sweep") != [("complete",)]:
            wrong.append(f"status {self.query_rows('SELECT status, reason FROM sweep')}")
        counted = self.query_rows(
            "SELECT block, point, count(*) FROM sweep_run JOIN run ON run.id = run_id "
            "WHERE run.status = 'complete' GROUP BY block, point HAVING count(*) > 1"
        )
        wrong += [
            f"block {block}, point {point} ran {number} times" for block, point, number in counted
        ]
        for run, uuid in self.query_rows(
            "SELECT run.id, run.uuid FROM run JOIN sweep_run ON run_id = run.id WHERE NOT replaced"
        ):
            tags = dict(self.query_rows(f"SELECT name, value FROM tag WHERE run_id = {run}"))
            word, thp, swap = (self.seen / uuid).read_text().strip().split(",")
            for axis, found in (("env:WORD", word), ("thp", thp), ("swappiness", swap)):
                wanted = tags.get(axis, found) or "unset"
                if found != wanted:
                    wrong.append(f"run {run} has {axis}={wanted} and found {found}")
        return wrong
