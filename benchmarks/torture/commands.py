"""The commands that are stopped at any moment: what each finds, and what must never be half."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

from benchmarks.torture.attempt import DATABASE, run
from tests.support.observations import observed
from tests.support.settings_tree import make_tree

# Each leaves a grandchild and a child in a session of its own, and says when it is done.
STRAYS = 'sleep 300 & setsid sleep 300 & sleep 0.$((RATER_COPY % 2 + 1)); echo . >> "$DONE"'
MACHINE = "machine"  # its settings: plain files, not those of this machine
_COPIES = ("--copies", "4", "--iterations", "2", "--quiet", "--", "sh", "-c", STRAYS)
_AXES = ("--axis", "thp=never,always", "--rounds", "1")
_OF_SWEEP = ("--copies", "1", "--quiet", "--", "sh", "-c", "setsid sleep 300 & sleep 0.1")
_PAGE, _DOCUMENT = "page.html", "times.json"
_ROWS = 20_000  # of each run that is imported or removed: writing it takes as long as the rest


def _nothing(folder: Path, environment: Mapping[str, str]) -> None:
    """Need nothing but a machine."""


def _looks_at_nothing(_: Path) -> object:
    return None


@dataclass(frozen=True, slots=True)
class Command:
    """A command of rater's, and what of its doing is done whole or not at all."""

    name: str
    of_hundred: int  # attempts, of a hundred at all commands: more where one is soon over
    words: tuple[str, ...]
    ready: Callable[[Path, Mapping[str, str]], None] = _nothing  # makes what it needs in a folder
    look: Callable[[Path], object] = _looks_at_nothing  # at what is as before or as after it
    resumes: bool = False  # what is left of it can be taken up by `run --resume last`

    def template(self, folder: Path, environment: Mapping[str, str]) -> Path:
        """Make the folder that each attempt gets a copy of."""
        (folder / "here").mkdir(parents=True)
        make_tree(folder / MACHINE)
        self.ready(folder, on_machine(environment, folder))
        return folder


def another(template: Path, folder: Path) -> None:
    """Copy a template; its last run is another one: what is left of a run is killed by its name."""
    shutil.copytree(template, folder, dirs_exist_ok=True)
    if count_rows(folder) != (0, 0):
        with closing(sqlite3.connect(folder / DATABASE, autocommit=True)) as db:
            db.execute(
                "UPDATE run SET uuid = ? WHERE id = (SELECT max(id) FROM run)", (str(uuid4()),)
            )


def on_machine(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment in which a folder's settings are the machine's."""
    return {**environment, "RATER_SYSROOT": str(folder / MACHINE)}


def count_rows(folder: Path) -> tuple[int, int]:
    """Count runs, and copies that ended well."""
    database = folder / DATABASE
    if not database.exists():
        return 0, 0
    with closing(sqlite3.connect(database)) as db:
        # Stopped while it made the database, rater may not have come to the tables.
        if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'copy'").fetchone():
            return 0, 0
        [runs] = db.execute("SELECT count(*) FROM run").fetchone()
        [copies] = db.execute("SELECT count(*) FROM copy WHERE status = 'ok'").fetchone()
        return runs, copies


def _page(folder: Path) -> object:
    """Tell whether there is a page: whole, or no file at all."""
    path = folder / "here" / _PAGE
    return path.read_text().rstrip().endswith("</html>") if path.exists() else None


def _document(folder: Path, _: Mapping[str, str], name: str = _DOCUMENT, rows: int = _ROWS) -> None:
    times = [
        {"benchmark": f"b{number % 10}", "iteration": number // 10 % 10 + 1, "copy": number // 100}
        for number in range(rows)
    ]
    document = observed(*times, uuid=name, copies=rows // 100)
    (folder / "here" / name).write_text(json.dumps(document))


def _imported(folder: Path, environment: Mapping[str, str], rows: int = _ROWS) -> None:
    names = ["1.json", "2.json"]
    for name in names:
        _document(folder, environment, name, rows)
    ended = run(folder, environment, ["import", *names])
    assert ended.status == 0, ended.said
    for name in names:
        (folder / "here" / name).unlink()


def _interrupted(folder: Path, environment: Mapping[str, str]) -> None:
    """Leave a run of which some copies have ended."""

    def kill(process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None and count_rows(folder)[1] < 3:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)

    run(folder, environment, ["run", *_COPIES], during=kill)
    (folder / "done").unlink(missing_ok=True)
    shutil.rmtree(folder / "cache")


COMMANDS = (
    Command("run", 24, ("run", *_COPIES), resumes=True),
    Command("resume", 16, ("run", "--resume", "last", "--quiet"), _interrupted, resumes=True),
    Command("sweep", 10, ("sweep", *_AXES, *_OF_SWEEP)),
    Command("import", 20, ("import", _DOCUMENT), _document, count_rows),
    Command("rm", 20, ("rm", "last", "last~1"), _imported, count_rows),
    Command("report", 10, ("report", "last", "-o", _PAGE), partial(_imported, rows=200), _page),
    # `merge` is one line more here, as soon as there is that command.
)
