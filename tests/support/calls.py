"""How tests call rater, and read its database afterwards.

In the process of the test: the fixture `rater` of conftest.py, a `Rater`, or `rater` of this
module, which needs no fixture. As a process of its own, to be stopped or bound: `RATER`.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import chdir, closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from rater.commands.cli import main

# The words after `rater`; returns status, standard output and standard error.
type Rater = Callable[..., tuple[int, str, str]]

RATER = [sys.executable, "-m", "rater"]


@dataclass(frozen=True)
class Done:
    """A call of rater that has ended."""

    returncode: int
    stdout: str
    stderr: str


def rater(*words: object, cwd: Path | None = None) -> Done:
    """Call rater as a user does, but in this process: starting another one takes longer."""
    with (
        chdir(cwd or Path.cwd()),
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as err,
    ):
        status = main([str(word) for word in words])
    return Done(status, out.getvalue(), err.getvalue())


def query_rows(sql: str) -> list[tuple[Any, ...]]:
    """Ask the database that RATER_DB names (see conftest.py)."""
    with closing(sqlite3.connect(os.environ["RATER_DB"])) as db:
        return db.execute(sql).fetchall()
