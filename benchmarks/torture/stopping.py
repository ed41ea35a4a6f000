"""kill -9, SIGINT, SIGTERM, SIGHUP of every command at every instant, one signal or many."""

from __future__ import annotations

import random
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.torture.attempt import DATABASE, Ended, attempts, run
from benchmarks.torture.commands import COMMANDS, MACHINE, Command, another, count_rows, on_machine
from benchmarks.torture.table import Row, row_of, scaled_number
from rater.record.run import RunStatus
from rater.store.store import open_store
from tests.support.settings_tree import values

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STORM = 12
_STORM_GAP_S = 0.02  # at most, between two signals of a storm
_PATIENCE_S = 30.0
_GONE_S = 2.0  # rater's word: nothing that it started lives for longer
_TURNS = 20
_NOTICED_S = 0.1  # a copy that ended this long before a signal must be in the database
_EARLIER = 0.8  # a command that had ended before is tried again, the first signal so much sooner
_NEXT = ("run", "--copies", "1", "--quiet", "--proof", "off", "--", "true")
_RESUME = ("run", "--resume", "last", "--quiet")


@dataclass(frozen=True, slots=True)
class Stopped:
    """A command as it was found: what it starts from, and how it ends when nobody stops it."""

    command: Command
    environment: Mapping[str, str]
    template: Path
    takes_s: float
    before: object
    after: object

    @staticmethod
    def prepare(command: Command, folder: Path, environment: Mapping[str, str]) -> Stopped:
        """Make the command's folder, and let it end once."""
        template = command.template(folder / "template", environment)
        whole = shutil.copytree(template, folder / "whole")
        begin_s = time.monotonic()
        ended = run(whole, on_machine(environment, whole), command.words)
        takes_s = time.monotonic() - begin_s
        assert ended.status == 0, ended.said
        return Stopped(
            command, environment, template, takes_s, command.look(template), command.look(whole)
        )

    def wrong(self, folder: Path, sent: Sequence[tuple[float, signal.Signals]]) -> str | None:
        """Send each signal so many seconds after the one before it; return the first mistake.

        Right is: the command is done whole or not at all; finished copies are stored; nothing
        runs on, and no run is said to; a status that is a signal's, or its own; no traceback;
        and the next run works and finds all settings as they were.
        """
        another(self.template, folder)
        environment = on_machine(self.environment, folder)
        settings = values(folder / MACHINE)
        stored = count_rows(folder)[1]
        finished, in_time = 0, False

        def send(process: subprocess.Popen[bytes]) -> None:
            nonlocal finished, in_time
            for number, (after_s, signal_sent) in enumerate(sent):
                if number == 0:
                    time.sleep(max(0.0, after_s - _NOTICED_S))
                    finished = _lines(folder / "done")
                    # In turns: a machine that stood still meanwhile gave rater no time to notice.
                    for _ in range(_TURNS):
                        time.sleep(min(after_s, _NOTICED_S) / _TURNS)
                    in_time = process.poll() is None
                else:
                    time.sleep(after_s)
                process.send_signal(signal_sent)

        ended = run(
            folder,
            environment,
            self.command.words,
            during=send,
            patience_s=_PATIENCE_S,
            gone_s=_GONE_S,
        )
        if not in_time:
            shutil.rmtree(folder)
            (first_s, first), *others = sent
            return self.wrong(folder, [(_EARLIER * first_s, first), *others])
        wrong = _ended_wrong(ended, {signal_sent for _, signal_sent in sent})
        lost = finished - (count_rows(folder)[1] - stored)
        wrong += [f"{lost} of {finished} finished copies are lost"] if finished and lost > 0 else []
        found = self.command.look(folder)
        if found not in (self.before, self.after):
            wrong.append(f"half done: {found}, was {self.before}, {self.after} when done")
        if ended.status == 0 and found != self.after:
            wrong.append(f"exit status 0, {found} instead of {self.after}")
        wrong += _stored_wrong(folder, ended.status, self.template)
        wrong += self._next_wrong(folder, environment)
        if values(folder / MACHINE) != settings or (folder / "settings.json").exists():
            wrong.append("settings are not put back")
        wrong += [f"left behind: {path}" for path in _left(folder)]
        return f"at {sent[0][0]:.3f} s: {', '.join(wrong)}" if wrong else None

    def _next_wrong(self, folder: Path, environment: Mapping[str, str]) -> list[str]:
        """Resume what was stopped, or run something else: say what is wrong with that."""
        last = _states(folder)[-1:]
        resumable = self.command.resumes and last and last != [RunStatus.COMPLETE]
        ended = run(folder, environment, _RESUME if resumable else _NEXT)
        states = _states(folder)
        if ended.status or not states or states[-1] is not RunStatus.COMPLETE:
            return [f"the next run: exit status {ended.status}, {states[-1:]}: {ended.said}"]
        return []


def _ended_wrong(ended: Ended, sent: set[signal.Signals]) -> list[str]:
    wrong = [f"{ended.left} processes were left"] if ended.left else []
    if ended.status is None:
        return [*wrong, f"did not end within {_PATIENCE_S:g} s"]
    # Until its first line Python itself takes the signal, as it likes to.
    broke = re.search("Traceback|Fatal Python|Exception ignored", ended.said)
    if broke and re.search(r"/rater/(__main__|cli)\.py", ended.said):
        wrong.append(ended.said.strip().splitlines()[-1])
    elif ended.status not in {0, *(-it for it in sent), *(128 + it for it in sent)} and not broke:
        wrong.append(f"exit status {ended.status}: {ended.said.strip()}")
    return wrong


def _stored_wrong(folder: Path, status: int | None, template: Path) -> list[str]:
    """Return what the database says that is not so; who was killed could not say it ended."""
    if not (folder / DATABASE).exists():
        return []
    wrong = []
    with closing(sqlite3.connect(folder / DATABASE)) as db:
        if db.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            return ["the database is damaged"]
    for table in ("run", "sweep"):
        before, after = _owned(template, table), _owned(folder, table)
        for state, pid in after:
            killed = state == "running" and (status == -signal.SIGKILL or (state, pid) in before)
            if state not in ("interrupted", "complete") and not killed:
                wrong.append(f"the {table} is {state!r}")
        if status == 0 and after and after[-1][0] == "interrupted":
            wrong.append(f"exit status 0 of an interrupted {table}")
    if RunStatus.RUNNING in _states(folder):
        wrong.append("a run is running that nobody runs")
    return wrong


def _owned(folder: Path, table: str) -> list[tuple[str, int]]:
    """Return the state of each run or sweep, and the process of rater's that made it."""
    if count_rows(folder) == (0, 0):
        return []
    with closing(sqlite3.connect(folder / DATABASE)) as db:
        return db.execute(f"SELECT status, pid FROM {table} ORDER BY id").fetchall()


def _states(folder: Path) -> list[RunStatus]:
    """Return how `rater list` shows the runs, oldest first."""
    database = folder / DATABASE
    if not database.exists():
        return []
    with open_store(database) as store:
        return [head.status for head in sorted(store.runs(), key=lambda head: head.run)]


def _lines(file: Path) -> int:
    return len(file.read_text().split()) if file.exists() else 0


def _left(folder: Path) -> list[str]:
    """Return files that are neither results nor those of a run that could be resumed."""
    work = folder / "cache" / "work"
    paths = {*folder.rglob(".rater-*"), *(path for path in work.rglob("*") if path.is_file())}
    if (folder / DATABASE).exists():
        with open_store(folder / DATABASE) as store:
            torn = [head for head in store.runs() if head.status is not RunStatus.COMPLETE]
        for head in torn:
            paths -= set((work / str(head.folder)).rglob("*"))
    return sorted(str(path.relative_to(folder)) for path in paths)


def kill9(bench: Bench, share: float = 1.0, seed: int = 1) -> list[Row]:
    """Kill commands 200 times, at moments all over the time that each takes."""
    return _campaign(bench, {"kill -9 of": 2 * share}, seed)


def signals(bench: Bench, share: float = 1.0, seed: int = 1) -> list[Row]:
    """Send commands 150 times one signal, and 50 times a dozen of them."""
    return _campaign(bench, {"one signal to": 1.5 * share, "many signals to": 0.5 * share}, seed)


def _campaign(bench: Bench, kinds: Mapping[str, float], seed: int) -> list[Row]:
    return [
        row
        for command in COMMANDS
        for row in _attempt_rows(
            bench,
            command,
            {kind: scaled_number(hundreds, command.of_hundred) for kind, hundreds in kinds.items()},
            random.Random(seed),
        )
    ]


def _attempt_rows(
    bench: Bench, command: Command, kinds: Mapping[str, int], chance: random.Random
) -> list[Row]:
    folder = bench.folder / f"{command.name}-{'-'.join(kinds)}"
    stopped = Stopped.prepare(command, folder, bench.environment)
    print(f"{command.name} takes {stopped.takes_s:.2f} s", flush=True)
    table_rows = []
    for kind, number in kinds.items():
        cases = []
        for step in range(number):
            at_s = stopped.takes_s * (step + chance.random()) / number
            sent = [signal.SIGKILL] if kind == "kill -9 of" else [_SIGNALS[step % 3]]
            if kind == "many signals to":
                sent = chance.choices(_SIGNALS, k=_STORM)
            gaps_s = [at_s] + [chance.uniform(0, _STORM_GAP_S) for _ in sent[1:]]
            cases.append(list(zip(gaps_s, sent, strict=True)))
        table_rows.append(row_of(f"{kind} `{command.name}`", attempts(bench, stopped.wrong, cases)))
    shutil.rmtree(folder)
    return table_rows
