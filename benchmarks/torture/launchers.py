"""SIGTERM, SIGINT and kill -9 as the launcher of a run begins, and as it ends.

Sweeps change settings of a tree of plain files: after a signal they are as they were, and after
kill -9 as soon as rater is run again. rater ends by itself; nobody kills it but this campaign.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.torture.attempt import attempts, run, wrong_with
from benchmarks.torture.table import Row, row_of, scaled_number
from rater.run.launcher.launcher import NAME
from tests.support.settings_tree import make_tree, values

_RUN = ("run", "--iterations", "2", "--copies", "2", "--quiet", "--grace", "1", "--", "true")
_SWEEP = ("sweep", "--axis", "thp=never,always", "--rounds", "2", "--copies", "2", "--quiet")
_WORDS = {"run": _RUN, "sweep": (*_SWEEP, "--grace", "1", "--", "sleep", "0.05")}
_LAUNCHERS = {"run": 1, "sweep": 3}  # the signal comes with one of the first so many
_LONGEST_DELAY_S = 0.02  # from the first sight of a launcher, or from its end
_PATIENCE_S = 15.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
_NEXT = ("run", "--copies", "1", "--quiet", "--proof", "off", "--", "true")


@dataclass(frozen=True)
class _Instant:
    """When a signal is sent: so long after a launcher was seen first, or seen no more."""

    command: str
    sent: signal.Signals
    launcher: int  # from 1
    at_end: bool
    delay_s: float


def campaign(bench: Bench, share: float = 1.0, seed: int = 1) -> list[Row]:
    """Send each signal to 20 runs and 40 sweeps."""
    return [
        row_of(
            f"{sent.name} as launchers of a {command} begin or end",
            attempts(
                bench,
                lambda folder, instant: _signalled(folder, bench.environment, instant),
                _instants(command, sent, scaled_number(share, number), random.Random(seed)),
            ),
        )
        for command, number in (("run", 20), ("sweep", 40))
        for sent in _SIGNALS
    ]


def _instants(
    command: str, sent: signal.Signals, number: int, chance: random.Random
) -> list[_Instant]:
    return [
        _Instant(
            command,
            sent,
            launcher=chance.randint(1, _LAUNCHERS[command]),
            at_end=chance.random() < 1 / 3,
            delay_s=chance.choice((0.0, chance.uniform(0, _LONGEST_DELAY_S))),
        )
        for _ in range(number)
    ]


def _signalled(folder: Path, environment: Mapping[str, str], instant: _Instant) -> str | None:
    tree = make_tree(folder / "machine")
    before = values(tree)
    places = {**environment, "RATER_SYSROOT": str(tree)}

    def send(process: subprocess.Popen[bytes]) -> None:
        if _await_launcher(process, instant):
            time.sleep(instant.delay_s)
            process.send_signal(instant.sent)

    ended = run(folder, places, _WORDS[instant.command], during=send)
    if instant.sent == signal.SIGKILL:  # the next start puts settings back
        again = run(folder, places, _NEXT, database="next.db")
        if again.status:
            return f"{instant}: the next run: exit status {again.status}: {again.said}"
    # Python itself takes the signal once rater is done.
    wrong = wrong_with(ended, folder, (0, -instant.sent, 128 + instant.sent))
    now = values(tree)
    changed = [f"{file} is {now.get(file)!r}" for file in before if now.get(file) != before[file]]
    return f"{instant}: {wrong or changed[0]}" if wrong or changed else None


def _await_launcher(process: subprocess.Popen[bytes], instant: _Instant) -> bool:
    """Wait until the launcher begins, or ends; return False where rater ends before."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    launchers: list[str] = []
    deadline_s = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline_s:
        living = [child for child in _words_of(children) if _is_launcher(child)]
        launchers += [child for child in living if child not in launchers]
        if len(launchers) >= instant.launcher:
            has_ended = launchers[instant.launcher - 1] not in living
            if has_ended or not instant.at_end:
                return True
    return False


def _words_of(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _is_launcher(pid: str) -> bool:
    return _words_of(Path("/proc", pid, "comm")) == [NAME]
