"""Golden screens: what rater prints about made runs, whole, in `tests/golden/*.txt`.

`tests/golden/slow-node.txt` has what is typed about what `slow_node` of golden_runs.py (or
golden_shapes.py) makes:

    $ rater show 1                     a terminal of 80 columns and 24 lines
    $ COLUMNS=140 rater show 1         a terminal of 140 columns
    $ rater show 1 | cat               no terminal
    $ rater show 1 --json | keys       the keys of the document with the kinds of their values

What follows is the screen. Lines of standard error begin with `! `; the last line is the exit
status, if it is not 0. Each command meets the database as it was made. To add a screen, write its
line and call `make golden`, which writes all screens anew; read the difference before you commit.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from rater.commands.cli import main
from rater.system.process import remember_database, remember_runs
from rater.wings import WINGS
from rater.workflow import doctor
from tests.support import golden_runs, golden_shapes
from tests.support.places import CHECKOUT, own_places_in
from tests.support.wings import ABSENT

FOLDER = CHECKOUT / "tests" / "golden"
_WINGS = {"fleet": "fleet", "spec": "speccpu", "spec-stored": "speccpu", "studies": "lab"}
PROMPT = "$ "
# What a machine that only a tree of files describes cannot say of this process.
LIMITS = (
    ("process.nice", "0"),
    ("process.scheduler", "other"),
    ("limit.stack", "8388608"),
    ("limit.open_files", "1048576"),
)
_PID = re.compile(r"(?<=rater's process )\d+")
# Of the length of what stands for it, so that lines break where they would.
_PLACE, _SHOWN_PLACE = "/tmp/golden-", "/home/you/benchmarks"


@dataclass(frozen=True)
class Screen:
    """One command line about made runs, and what it printed."""

    made: str  # what makes the runs: the file's name
    typed: str
    text: str

    @property
    def name(self) -> str:
        """How pytest calls it."""
        return f"{self.made}: {self.typed}"

    @property
    def columns(self) -> int | None:
        """How wide the terminal is; None: there is none."""
        if " | " in self.typed:
            return None
        first = self.typed.split()[0]
        return int(first.removeprefix("COLUMNS=")) if first.startswith("COLUMNS=") else 80


def screens(path: Path) -> list[Screen]:
    """Return the screens of a file, in its order."""
    found: list[Screen] = []
    for part in f"\n{path.read_text()}".split(f"\n{PROMPT}")[1:]:
        typed, _, text = part.partition("\n")
        found.append(Screen(path.stem, typed.strip(), text.rstrip("\n")))
    return found


def every_screen() -> list[Screen]:
    """Return the screens of all files, but those of wings that are absent."""
    made = [path for path in sorted(FOLDER.glob("*.txt")) if _WINGS.get(path.stem) not in ABSENT]
    about = [WINGS[it].about for it in ABSENT]
    every = [screen for path in made for screen in screens(path)]
    return [screen for screen in every if not any(it in screen.text for it in about)]


class _Terminal(StringIO):
    """One of the streams of a screen; both write to the same lines."""

    def __init__(self, lines: list[str], mark: str, *, is_terminal: bool) -> None:
        super().__init__()
        self._lines, self._mark, self._is_terminal, self._rest = lines, mark, is_terminal, ""

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        *whole, self._rest = (self._rest + text).split("\n")
        self._lines += [f"{self._mark}{line}".rstrip() for line in whole]
        return len(text)

    def end(self) -> None:
        """Write what no line end followed."""
        if self._rest:
            self.write("\n")


class Stage:
    """Makes the runs of a file once, and shows each screen on a copy of them."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=_PLACE, dir="/tmp"))
        self._made: dict[str, Path] = {}

    def close(self) -> None:
        """Remove the folders that were made."""
        shutil.rmtree(self._folder)
        for folder in self._made.values():
            shutil.rmtree(folder)

    def shown(self, screen: Screen) -> str:
        """Return what the command prints now."""
        shutil.rmtree(self._folder)
        shutil.copytree(self._made_folder(screen.made), self._folder)
        with self._surroundings(screen) as (words, through):
            lines: list[str] = []
            out = _Terminal(lines, "", is_terminal=through is None)
            err = _Terminal(lines, "! ", is_terminal=through is None)
            with redirect_stdout(out), redirect_stderr(err):
                try:
                    status = main(words)
                except SystemExit as ended:  # of argparse
                    status = int(ended.code or 0)
            out.end()
            err.end()
        if through == "keys":
            lines = list(_keys(json.loads("\n".join(lines))))
        lines += [f"[exit {status}]"] if status else []
        text = "\n".join(lines).replace(str(self._folder), _SHOWN_PLACE).strip("\n")
        text = text.replace(str(CHECKOUT), "/usr/share/rater")
        return _PID.sub("4711", text)

    def _made_folder(self, folder_name: str) -> Path:
        if folder_name not in self._made:
            self._made[folder_name] = folder = Path(tempfile.mkdtemp(prefix=_PLACE, dir="/tmp"))
            program = folder / "bin" / "rater"
            program.parent.mkdir()
            program.touch(mode=0o755)
            name = folder_name.replace("-", "_")
            make = getattr(golden_runs, name, None) or getattr(golden_shapes, name)
            with chdir(folder):
                make(folder)
        return self._made[folder_name]

    @contextmanager
    def _surroundings(self, screen: Screen) -> Iterator[tuple[list[str], str | None]]:
        """Let rater meet nothing but the made runs; yield its words and the pipe."""
        words = shlex.split(screen.typed)
        through = words[-1] if words[-2:-1] == ["|"] else None
        words = words[words.index("rater") + 1 : -2 if through else None]
        with pytest.MonkeyPatch.context() as patch, chdir(self._folder):
            own_places_in(self._folder, patch)
            program = self._folder / "bin" / "rater"
            patch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
            patch.setattr(sys, "argv", [str(program)])
            for name, value in {
                "TERM": "dumb",
                "TZ": "UTC",
                "LC_ALL": "C.UTF-8",
            }.items():
                patch.setenv(name, value)
            for name, lines in (("COLUMNS", screen.columns), ("LINES", 24)):
                patch.setenv(name, str(lines)) if screen.columns else patch.delenv(name, False)
            quiet_load = {"others.busy_cpus": "0", "others.named": ""}
            patch.setattr(doctor, "_read_load", lambda: quiet_load)
            patch.setattr(doctor, "process_settings", lambda: LIMITS)
            machine = self._folder / "machine"
            if machine.exists():
                patch.setenv("RATER_SYSROOT", str(machine))
            remember_database(None)
            remember_runs({})
            yield words, through
            remember_database(None)


def _keys(value: Any, path: str = "") -> Iterator[str]:
    """Yield each key of a document once, with the kinds of its values."""
    kinds: dict[str, set[str]] = {}

    def note(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                note(inner, f"{path}.{key}" if path else key)
        elif isinstance(value, list) and value:
            for inner in value:
                note(inner, f"{path}[]")
        else:
            kinds.setdefault(path, set()).add("null" if value is None else type(value).__name__)

    note(value, path)
    for key, them in kinds.items():
        yield f"{key}: {' or '.join(sorted(them))}"


def write(names: Sequence[str]) -> None:
    """Write the screens of files anew, or of all."""
    stage = Stage()
    for path in sorted(FOLDER.glob("*.txt")):
        if names and path.stem not in names:
            continue
        parts = []
        for screen in screens(path):
            text = stage.shown(screen)
            if f"\n{PROMPT}" in f"\n{text}":
                raise SystemExit(f"{screen.name}: a line begins with {PROMPT!r}")
            parts.append(f"{PROMPT}{screen.typed}\n{text}\n")
        path.write_text("\n".join(parts))
    stage.close()


if __name__ == "__main__":
    write(sys.argv[1:])
