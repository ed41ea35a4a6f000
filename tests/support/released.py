"""Steps of the database as they were released, by digest: `make freeze` adds those that are new.

What all steps come to is written beside them: `db/newest.sql` makes a fresh database at once,
`db/columns.txt` has its columns.

A step that databases have had must never change: they would not get the change. The statements
count, not comments and layout. Views are made anew whenever the version changes, so a view that
changes wants a step too, if an empty one.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from rater.store.rows import (
    COLUMNS_FILE,
    NEWEST_FILE,
    columns_text,
    migrations,
    read_pragma,
    schema_version,
)
from rater.system.paths import data_folder

_LIST = "released.txt"


def digests(db: Path) -> dict[str, str]:
    """Return the digest of every step by its name, and of all views under the newest version."""
    steps = migrations(db)
    found = {file.relative_to(db).as_posix(): _digest(file) for file in steps.values()}
    views = sorted((db / "views").glob("*.sql"))
    return found | {f"views of {max(steps)}": _digest(*views)}


def released(db: Path) -> dict[str, str]:
    """Return the digests that were released, by the same names."""
    lines = (db / _LIST).read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def changed(now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    """Return what was released and is not so any more; views of earlier versions may be gone."""
    lost = [name for name in then if name not in now and not name.startswith("views of ")]
    return lost + [name for name in now if name in then and now[name] != then[name]]


def freeze(db: Path) -> list[str]:
    """Add what is new to the list; return what is in the way, with nothing added then."""
    now, then = digests(db), released(db)
    wrong = changed(now, then)
    if not wrong:
        lines = (f"{digest}  {name}\n" for name, digest in (then | now).items())
        (db / _LIST).write_text("".join(lines), encoding="utf-8")
        (db / NEWEST_FILE).write_text(newest_text_by_steps(db), encoding="utf-8")
        (db / COLUMNS_FILE).write_text(columns_text(db), encoding="utf-8")
    return wrong


def newest_text_by_steps(db: Path) -> str:
    """Return the statements that make the newest tables and indexes: views are made from files.

    They are those of a database in memory that had every step.
    """
    with closing(sqlite3.connect(":memory:", autocommit=True)) as stepwise:
        for file in migrations(db).values():
            stepwise.executescript(file.read_text(encoding="utf-8"))
        objects = stepwise.execute(
            "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND type != 'view' "
            "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
        )
        parts = [
            f"-- {schema_version(db)}\n-- Of schema.sql and migrations/, by `make freeze`.",
            f"PRAGMA application_id = {read_pragma(stepwise, 'application_id')};",
            *(f"{sql};" for (sql,) in objects),
        ]
    return "\n\n".join(parts) + "\n"


def copy_of(db: Path, to: Path, version: int) -> None:
    """Copy a folder of steps as it was at a version."""
    shutil.copytree(db, to)
    for step, file in migrations(to).items():
        if step > version:
            file.unlink()


def _digest(*files: Path) -> str:
    text = "\n".join(re.sub(r"--[^\n]*", " ", file.read_text(encoding="utf-8")) for file in files)
    bare = re.sub(r"\s*([(),;])\s*", r"\1", " ".join(text.split()))
    return hashlib.sha256(bare.encode()).hexdigest()[:16]


if __name__ == "__main__":
    in_the_way = freeze(data_folder("db"))
    if in_the_way:
        sys.exit(
            f"released, and changed since: {', '.join(in_the_way)}. Put back what was released, "
            "and add a step db/migrations/NNNN_WHAT.sql (an empty one for a view)"
        )
