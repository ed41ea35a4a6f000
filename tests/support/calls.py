"""How tests call rater, and what they find in its database afterwards.

In the process of the test: the fixture `rater` of conftest.py, a `Rater`. As a process of its own:
`rater` of this module.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

# The words after `rater`; returns status, standard output and standard error.
type Rater = Callable[..., tuple[int, str, str]]

RATER = [sys.executable, "-m", "rater"]


def rater(*words: str, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `rater ...` as a process of its own, with `more` in its environment."""
    return subprocess.run(
        [*RATER, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=os.environ | more,
    )


def rows(sql: str) -> list[tuple[Any, ...]]:
    """Ask the database that RATER_DB names (see conftest.py)."""
    with closing(sqlite3.connect(os.environ["RATER_DB"])) as db:
        return db.execute(sql).fetchall()
