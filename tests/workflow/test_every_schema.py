"""A database of every released schema is brought up to date, and runs are shown, resumed, added.

The old one is made from the frozen steps up to its own, and gets rows of today's rater in the
columns it has: no version that is added needs a line here.
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rater.files import folder
from rater.store.rows import migrate, migrations, number_of
from rater.store.store import open_store
from tests.support.calls import Rater

VERSIONS = list(migrations(folder("db")))
# Each goes on by the same steps as the one before it: all that runs can be asked is asked of these.
WHOLE = {VERSIONS[0], *VERSIONS[4::4], *VERSIONS[-2:]}
TABLES = "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main' ORDER BY name"
PARTS = ("table_xinfo", "foreign_key_list", "index_list")  # columns, what they refer to, indexes
INDEX = (
    "SELECT of.name, it.* FROM sqlite_schema AS of, pragma_index_xinfo(of.name) AS it "
    "WHERE of.type = 'index' ORDER BY of.name, it.seqno"
)


def names(connection: sqlite3.Connection, sql: str) -> list[str]:
    return [name for (name,) in connection.execute(sql)]


def structure(connection: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Every table, column by column, and every index and view."""
    found = {
        f"{part} {table}": connection.execute(f"PRAGMA {part}({table})").fetchall()
        for table in names(connection, TABLES)
        for part in PARTS
    }
    views = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'view'")
    return found | {"indexes": connection.execute(INDEX).fetchall(), "views": sorted(views)}


def older(version: int, made: Path, path: Path, place: Path) -> None:
    """A database of that version at `path`, with the rows of `made` that it has columns for."""
    shutil.copytree(folder("db"), place)
    for step, file in migrations(place).items():
        if step > version:
            file.unlink()
    with closing(sqlite3.connect(path, autocommit=True)) as old:
        migrate(old, path, place)
        assert number_of(old, "user_version") == version
        old.execute("ATTACH ? AS new", (str(made),))
        for table in names(old, TABLES):
            if not table.startswith("sqlite_"):
                columns = ", ".join(
                    names(
                        old,
                        f"SELECT name FROM pragma_table_info('{table}') WHERE name IN "
                        f"(SELECT name FROM pragma_table_info('{table}', 'new'))",
                    )
                )
                old.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM new.{table}")


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_runs_of_an_older_schema_are_shown_resumed_and_added_to(
    version: int, rater: Rater, database: Path, tmp_path: Path
) -> None:
    asked = ("--copies", 2, "--iterations", 2, "--env", "A=1", "--tag", "of=before", "--quiet")
    assert rater("run", *asked, "--", "true") == (0, "", "")
    old = tmp_path / "old.db"
    older(version, database, old, tmp_path / "db")
    with closing(sqlite3.connect(old, autocommit=True)) as connection:  # killed in its last phase
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("DELETE FROM bracket WHERE phase = 1")
        connection.execute("UPDATE run SET status = 'interrupted'")

    def at(*words: object) -> str:
        status, out, said = rater("--db", old, *words)
        assert (status, said) == (0, ""), words
        return out

    assert "interrupted" in at("list")
    with closing(sqlite3.connect(":memory:", autocommit=True)) as fresh, open_store(old) as store:
        migrate(fresh, Path(":memory:"))
        with store.reading() as connection:
            assert structure(connection) == structure(fresh)
    at("run", "--resume", 1, "--quiet")
    if version not in WHOLE:
        at("show", 1, "--copies")
        at("divots", 1)
        return
    at("rerun", 1, "--quiet")
    for run in (1, 2):
        assert ("resumed" in at("show", run, "--copies")) == (run == 1)
        at("divots", run)
        at("export", run)
        at("report", run, "-o", tmp_path / "page.html")
    at("compare", 1, 2)
    at("sweep", "--rounds", 2, "--axis", "copies=1,2", "--quiet", "--", "true")
    assert "sweep 1" in at("sweep", "--show", 1)
    with closing(sqlite3.connect(old)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        ended = "SELECT status, resumed, count(*) FROM run GROUP BY 1, 2 ORDER BY 2"
        assert connection.execute(ended).fetchall() == [("complete", 0, 5), ("complete", 1, 1)]
