"""A database with one cell of another kind: every command shows it, or names the damage.

Every column of every table by every kind of value, in copies of a database without STRICT, CHECK
and NOT NULL, as anybody can write one. Wrong is an exception, a signal, and what takes too long.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import traceback
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.torture.table import Row, scaled_number
from rater.commands.cli import main
from tests.support.wings import ABSENT

VALUES: dict[str, Any] = {
    "text": "evil",
    "empty": "",
    "document": '{"a": [1]}',
    "blob": b"\xff\x00\xfe",
    "large": 2**63 - 1,
    "negative": -1,
    "least": -(2**63),
    "nought": 0,
    "real": 1.5,
    "infinite": 1e999,
    "null": None,
}
COMMANDS = (
    "list",
    "list --json",
    "show 1",
    "show 1 --json --copies --cpus --counters",
    "show 3",
    "divots 1 --json",
    "divots 1 2",
    "compare 1 2",
    "compare sweep:1 --json",
    "scale sweep:1",
    "sweep --list",
    "sweep --show 1",
    "export 1 --format json",
    "export 1 --format csv",
    "export 3",
    "report 1 2 -o page.html",
    "plot 1",
    "rerun 1 --dry-run",
    "run --resume 1 --dry-run",
    "sweep --resume 1 --dry-run",
    "divots --confirm 1 --dry-run",
    "history",
    "fleet list",
    "fleet status 1",
    "pages --list",
    "rm 1",
)
_LONGEST_S = 20
_CELLS = 60  # of some 5,500: each takes every command
_MOST_BYTES = 4 << 30
_LOOSE = re.compile(r"\bSTRICT\b,?|\bNOT NULL\b|CHECK \((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_EMPTY = re.compile(r",(?=[\s,]*\))|(?<=\))\s*,(?=\s*WITHOUT)|(?<=,)\s*,")

type Cell = tuple[str, str, str]  # table, column, name of the value


def make_database(path: Path, environment: Mapping[str, str]) -> Path:
    """Make a database with a run, one with a sweep around it and rows in all tables."""
    with _environment({**environment, "RATER_DB": str(path)}):
        words = ["--quiet", "--proof", "off", "--iterations", "2", "--", "true"]
        for command in (
            ["run", "--copies", "2"],
            ["sweep", "--rounds", "2", "--axis", "copies=1,2"],
        ):
            if main([*command, *words]):
                raise RuntimeError(f"{command} failed")
    if "fleet" not in ABSENT:  # which knows what hangs on what
        from tests.support.full_database import full_database  # noqa: PLC0415 - as above

        full_database(path, "0001")
    with closing(sqlite3.connect(path, autocommit=True)) as connection:
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, False)
        connection.execute("PRAGMA writable_schema = ON")
        tables = connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%STRICT%'"
        ).fetchall()
        for name, sql in tables:
            loose = _EMPTY.sub("", _LOOSE.sub("", re.sub("--.*", "", sql)))
            connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (loose, name))
        connection.execute("PRAGMA journal_mode = DELETE")
    with closing(sqlite3.connect(path, autocommit=True)) as connection:
        for table, column, _ in cells(path):
            if column.endswith("_at"):
                connection.execute(f"UPDATE {table} SET {column} = '2026-11-26T05:00:00Z'")
    return path


def cells(path: Path) -> list[Cell]:
    """Return every column with every value."""
    with closing(sqlite3.connect(path)) as connection:
        columns = connection.execute(
            "SELECT of.name, it.name FROM sqlite_schema AS of, pragma_table_info(of.name) AS it "
            "WHERE of.type = 'table' AND of.name NOT LIKE 'sqlite%'"
        ).fetchall()
    return [(table, column, value) for table, column in columns for value in VALUES]


def wrong_with(cell: Cell, database: Path, folder: Path) -> list[str]:
    """Put the value into the column, call every command; return what is wrong."""
    folder.mkdir(parents=True)
    path = folder / "rater.db"
    shutil.copy(database, path)
    table, column, value = cell
    change = f"UPDATE OR IGNORE {table} SET {column} = ?"
    with (
        closing(sqlite3.connect(path, autocommit=True)) as connection,
        suppress(sqlite3.IntegrityError),  # a key that SQLite itself holds to its kind
    ):
        connection.execute(change, (VALUES[value],))
    os.chdir(folder)
    problems = []
    with _environment({"RATER_DB": str(path)}):
        for command in COMMANDS:
            said = io.StringIO()
            signal.alarm(_LONGEST_S)
            try:
                with redirect_stdout(io.StringIO()), redirect_stderr(said):
                    status = main(command.split())
            except SystemExit as error:
                status = int(error.code or 0)
            except BaseException as error:
                at = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(at.filename).name}:{at.lineno}"
                problems.append(
                    f"{'.'.join(cell)}: {command}: {type(error).__name__} {error} {place}"
                )
                continue
            finally:
                signal.alarm(0)
            if status not in (0, 1, 2, 3):
                problems.append(f"{'.'.join(cell)}: {command}: exit status {status}")
    shutil.rmtree(folder)
    return problems


def campaign(bench: Bench, share: float = 1.0) -> Iterator[Row]:
    """Try a share of all cells, the same ones for the same share."""
    database = make_database(bench.folder / "cells.db", bench.environment)
    every = cells(database)
    some = random.Random(1).sample(every, scaled_number(share, _CELLS))
    folders = [bench.folder / f"cell-{number}" for number in range(len(some))]
    tasks = zip(some, [database] * len(some), folders, strict=True)
    with multiprocessing.Pool(initializer=partial(_begin, bench.environment)) as pool:
        wrong = [it for found in pool.starmap(wrong_with, tasks, chunksize=8) for it in found]
    for text in wrong:
        print(f"  {text}")
    yield Row("cells of another kind", len(some) * len(COMMANDS), len(wrong), "; ".join(wrong[:1]))


def _begin(environment: Mapping[str, str]) -> None:
    os.environ |= environment
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))

    def late(*_: object) -> None:
        raise TimeoutError(f"after {_LONGEST_S} s")

    signal.signal(signal.SIGALRM, late)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
