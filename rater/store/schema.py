"""Tables and views: made, brought up to date, compared with what they should be."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

from rater.errors import InputError
from rater.resources import folder
from rater.text.words import some

BASE = 9  # version of a database that `schema.sql` made

_LAST_BEFORE_BASE = "5b1e235"  # had the steps from 1 to 9
_COLUMNS = (
    "SELECT of.name, it.name FROM sqlite_schema AS of, pragma_table_info(of.name) AS it "
    "WHERE of.type = 'table'"
)


def migrations(db: Path) -> dict[int, Path]:
    """Return the files that make a database, each by the version (`PRAGMA user_version`) it makes.

    The first one makes a fresh database, the others (`migrations/0010_WHAT.sql`, ...) change it.
    """
    later = sorted((db / "migrations").glob("[0-9][0-9][0-9][0-9]_*.sql"))
    steps = dict(enumerate((db / "schema.sql", *later), BASE))
    if [int(file.name[:4]) for file in later] != list(steps)[1:]:
        raise RuntimeError(f"not numbered from {BASE + 1}: {[file.name for file in later]}")
    return steps


def migrate(connection: sqlite3.Connection, path: Path, db: Path | None = None) -> bool:
    """Make a fresh database, or apply the steps an older one has not had: all of it or nothing.

    Returns whether there was anything to do.
    The views are then made anew, each as its file in `views/` has it; a view that is changed
    wants a step, if an empty one. Two processes may do this at once: the second waits for the
    first and finds nothing left to do. `db` is the folder of all these files.
    """
    db = db or folder("db")
    steps = migrations(db)
    newest = max(steps)
    version = number_of(connection, "user_version")
    _check_version(version, newest, path)
    if version == newest:
        return False
    views = sorted((db / "views").glob("*.sql"))
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = number_of(connection, "user_version")
        if version < newest:
            for view in views:
                connection.execute(f"DROP VIEW IF EXISTS {view.stem}")
            for file in (*(file for step, file in steps.items() if step > version), *views):
                connection.executescript(file.read_text(encoding="utf-8"))
            connection.execute(f"PRAGMA user_version = {newest}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return True


def _check_version(version: int, newest: int, path: Path) -> None:
    if 0 < version < BASE:
        raise InputError(
            f"{path}: made by an early rater (schema {version}; this one reads {BASE} and later); "
            f"`rater list` of rater at commit {_LAST_BEFORE_BASE} brings it up to schema {BASE}, "
            "or use another database with --db"
        )
    if version > newest:
        raise InputError(
            f"{path}: made by a newer rater (schema {version}; this one knows {newest}); "
            "upgrade rater, or use another database with --db"
        )


def refuse_drifted(connection: sqlite3.Connection) -> None:
    """Raise `InputError` where a database lacks columns of the schema that it says it has.

    A step that was edited after it had been applied leaves such ones: raters between releases
    did that, until steps were frozen (`db/released.txt`). Said before a run begins: a row that
    cannot be stored is known only when its copy has run.
    """
    lacks = lacking(connection)
    if lacks:
        path = connection.execute("PRAGMA database_list").fetchone()[2]
        raise InputError(
            f"{path}: made by a rater between two releases: schema "
            f"{number_of(connection, 'user_version')} without {some(lacks)}; no run can be "
            "added. Name another database with --db; the `sqlite3` shell reads what is in this one"
        )


def lacking(connection: sqlite3.Connection) -> list[str]:
    """Return what columns of the newest schema a database lacks, as TABLE.COLUMN."""
    return [".".join(it) for it in sorted(_wanted().difference(connection.execute(_COLUMNS)))]


@cache
def _wanted() -> frozenset[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:", autocommit=True)) as fresh:
        migrate(fresh, Path(":memory:"))
        return frozenset(fresh.execute(_COLUMNS))


def number_of(connection: sqlite3.Connection, pragma: str) -> int:
    """Return the whole number that a pragma has."""
    value: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    return value
