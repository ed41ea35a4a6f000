"""Files, links, folders and databases that another user exchanges while root's rater uses them.

A process of that user swaps all names in a folder of its own, as fast as it goes, between files of
root's, files of its own with commands in them, links, pipes, devices and folders. Root calls every
command on them. Wrong is: a command of the other user ran as root, a file of root's has changed or
a new one lies beside it, a traceback, and what does not end.
"""

from __future__ import annotations

import hashlib
import os
import random
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.torture.table import Row

OTHER = 65534
SECONDS = 60.0  # of the full length; EXCHANGES_S names another
_PATIENCE_S = 60.0
_KINDS = ("PIPE", "DIR")


def _swap(ours: Path) -> None:
    """Swap for ever, in the current folder."""
    secret, new = f"{ours}/secret", f"{ours}/new"
    names = {
        "it.db": [f"{ours}/ours.db", "evil.db", "stopped.db", "fleet.db", *_KINDS, "/dev/zero"],
        "rater.toml": [f"{ours}/ours.toml", "evil.toml", *_KINDS, "/dev/zero"],
        "settings.json": [secret, new, *_KINDS],
        "page.html": [secret, new, "PIPE"],
        "it.db-wal": [secret, new, "GONE", "PIPE"],
        "it.db-shm": [secret, new, "GONE"],
        "sub": [f"{ours}", "DIR", "/root", "GONE"],
        "lock": [secret, new, "PIPE", "GONE"],
    }
    for fleet in Path("fleets").iterdir():
        names[f"{fleet}/log"] = [f"{ours}", "DIR", "GONE"]
        names[f"{fleet}/in"] = [f"{ours}", "DIR"]
        names[f"{fleet}/spec.json"] = [secret, "evil.toml", "PIPE"]
    for number in count():
        name = random.choice([*names])
        with suppress(OSError):
            _put(Path(name), random.choice(names[name]), Path(f"new.{number}"))
        time.sleep(random.random() * 0.003)


def _put(path: Path, content: str, new: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rename(f"old.{new}")
    if content == "GONE":
        path.unlink()
        return
    if content == "PIPE":
        os.mkfifo(new)
    elif content == "DIR":
        new.mkdir()
    elif random.random() < 0.5 or content.startswith("/"):
        new.symlink_to(Path(content).absolute())
    else:
        shutil.copyfile(content, new)
    new.rename(path)


def campaign(bench: Bench, share: float = 1.0) -> Iterator[Row]:
    """Let root call commands for a share of the time while the other user swaps."""
    if os.geteuid() != 0:
        yield Row("another user swaps", 0, 0, "needs root")
        return
    seconds = float(os.environ.get("EXCHANGES_S") or SECONDS) * share
    with Path(tempfile.mkdtemp(prefix="rater-exchanges-")) as place:
        try:
            stage = Stage(place, bench.environment)
            tried, wrong = stage.play(seconds)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    yield Row("another user swaps", tried, len(wrong), "; ".join(dict.fromkeys(wrong)))


class Stage:
    """Root's folder, the other user's, and a folder that tells who ran what."""

    def __init__(self, place: Path, environment: Mapping[str, str]) -> None:
        self.theirs, self.ours, self.ran = place / "theirs", place / "ours", place / "ran"
        for folder in (place, self.theirs, self.ours, self.ran):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
        self.ran.chmod(0o1777)
        self._environment = {
            **environment,
            "RATER_CACHE": str(place / "cache"),
            "RATER_LOCK": str(place / "lock"),
            "RATER_JOURNAL": str(place / "settings.json"),
            "XDG_STATE_HOME": str(place / "state"),
            "XDG_CONFIG_HOME": str(place / "config"),
        }
        self._environment.pop("RATER_CONFIG", None)
        self._environment.pop("RATER_DB", None)
        self._make()
        self._precious = self._state()

    def _evil(self, name: str) -> str:
        return f"id -u > {self.ran}/{name}.$$"

    def _make(self) -> None:
        secret, new = self.ours / "secret", self.ours / "ours.toml"
        secret.write_text("only root may write this\n")
        new.write_text("[run]\niterations = 1\n")
        run = ["run", "--quiet", "--proof", "off", "--copies", "1", "--iterations", "2"]
        self._rater(self.ours, "--db", self.ours / "ours.db", *run, "--", "true")
        for name in ("evil", "stopped"):
            words = ["--prepare", self._evil(name), "--", "sh", "-c", self._evil(f"{name}-copy")]
            self._rater(self.theirs, "--db", self.theirs / f"{name}.db", *run, *words)
        with closing(sqlite3.connect(self.theirs / "stopped.db", autocommit=True)) as connection:
            for table in ("copy", "bracket"):
                connection.execute(f"DELETE FROM {table} WHERE iteration = 2")
            connection.execute("UPDATE run SET status = 'interrupted'")
        text = f"[run]\nprepare = {self._evil('defaults')!r}\nquiet = true\n"
        text += f"[rerun]\ndb = '{self.theirs}/evil.db'\nforce = true\n"
        (self.theirs / "evil.toml").write_text(text)
        fleet = [
            "fleet",
            "run",
            "--backend",
            "local",
            "--nodes",
            "n[1-9]",
            "--parallel",
            "1",
            "--settle",
            "0",
            "--quiet",
        ]
        places = ["--folder", str(self.theirs / "fleets"), "--scratch", str(self.theirs)]
        words = ["--db", str(self.theirs / "fleet.db"), *fleet, *places, "--copies", "1"]
        self._rater(self.theirs, *words, "--", "sh", "-c", self._evil("fleet"))
        time.sleep(2)
        for path in [self.theirs, *self.theirs.rglob("*")]:
            os.chown(path, OTHER, OTHER, follow_symlinks=False)
        for path in self.ran.iterdir():
            path.unlink()

    def _rater(self, folder: Path, *words: object) -> None:
        command = [sys.executable, "-m", "rater", *map(str, words)]
        environment = {**self._environment, "RATER_CONFIG": ""}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{shlex.join(command)}: {done.stderr}")

    def _state(self) -> dict[str, object]:
        """Return what root has: names, owners, modes, contents."""
        return {
            str(path): (
                path.lstat().st_uid,
                path.lstat().st_mode,
                hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            )
            for path in sorted(self.ours.rglob("*"))
        }

    def commands(self) -> list[list[str]]:
        """Return what root calls, in the other user's folder."""
        database = ["--db", str(self.theirs / "it.db")]
        run = ["run", "--copies", "1", "--quiet", "--proof", "off"]
        return [
            [*run, "--", "true"],
            [*database, *run, "--", "true"],
            [*database, "rerun", "last", "--quiet"],
            [*database, "run", "--resume", "last", "--quiet"],
            [*database, "sweep", "--resume", "last", "--quiet"],
            [*database, "divots", "--confirm", "last"],
            [*database, "show", "last"],
            [*database, "list"],
            [*database, "report", "last", "-o", str(self.theirs / "page.html")],
            [*database, "fleet", "wait", "1", "--quiet"],
            [*database, "fleet", "status", "1"],
            [*database, "fleet", "retry", "1", "--quiet"],
            [*database, "rm", "last"],
            ["--db", str(self.theirs / "sub" / "other.db"), *run, "--", "true"],
            ["merge", str(self.theirs.parent / "merged.db"), str(self.theirs / "it.db")],
            ["--db", str(self.theirs.parent / "merged.db"), "rerun", "last", "--quiet"],
            ["settings", "restore"],
            ["rerun", "last", "--quiet"],
        ]

    @contextmanager
    def _swapped(self) -> Iterator[None]:
        other = os.fork()
        if not other:
            os.chdir(self.theirs)
            os.setgroups([])
            os.setgid(OTHER)
            os.setuid(OTHER)
            _swap(self.ours)
        try:
            yield
        finally:
            os.kill(other, signal.SIGKILL)
            os.waitpid(other, 0)

    def play(self, seconds: float) -> tuple[int, list[str]]:
        """Call commands at random for so long; return how many, and what was wrong."""
        wrong: list[str] = []
        tried, until_s, choice = 0, time.monotonic() + seconds, random.Random(1)
        with self._swapped():
            while time.monotonic() < until_s:
                words = choice.choice(self.commands())
                environment = {**self._environment, "RATER_DB": str(self.theirs / "sub/rater.db")}
                for name, file in (("JOURNAL", "settings.json"), ("LOCK", "lock")):
                    if choice.random() < 0.3:
                        environment[f"RATER_{name}"] = str(self.theirs / file)
                wrong += [
                    f"{shlex.join(words[-4:])}: {it}" for it in self._call(words, environment)
                ]
                tried += 1
        return tried, wrong

    def _call(self, words: list[str], environment: Mapping[str, str]) -> list[str]:
        answers = []
        process = subprocess.Popen(
            [sys.executable, "-m", "rater", *words],
            cwd=self.theirs,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            said = process.communicate(timeout=_PATIENCE_S)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return ["did not end"]
        if "Traceback" in said:
            answers.append(f"a traceback: {said.splitlines()[-1]}")
        if process.returncode not in (0, 1, 2, 3):
            answers.append(f"exit status {process.returncode}")
        for mark in self.ran.iterdir():
            answers.append(
                f"ran {mark.name.split('.')[0]} of the other user's as {mark.read_text()!r}"
            )
            mark.unlink()
        state = self._state()
        changed = {path for path, _ in self._precious.items() ^ state.items()}
        if changed:
            answers.append(f"changed {', '.join(Path(it).name for it in sorted(changed))}")
            self._precious = state
        return answers
