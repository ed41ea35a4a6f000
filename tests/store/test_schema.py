"""The schema: released steps stay as they are, and bring any older database up to date."""

import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rater.errors import InputError
from rater.files import folder
from rater.store.rows import migrate, migrations, number_of
from rater.store.store import Store, open_store
from tests.support.datasette import NAME, text
from tests.support.released import changed, digests, freeze, released
from tests.support.stored_runs import begin

PARAMETER = re.compile(r":([a-z_]+)")


def schema(connection: sqlite3.Connection) -> dict[str, str]:
    """The objects of a database without comments and layout, which may differ."""
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    bare = ((name, re.sub(r"--[^\n]*", " ", text)) for name, text in sorted(rows))
    return {name: re.sub(r"\s*([(),])\s*", r"\1", " ".join(text.split())) for name, text in bare}


@pytest.fixture
def empty() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", autocommit=True)) as connection:
        yield connection


def test_datasette_has_every_table_view_and_query_with_its_comment(store: Store) -> None:
    db = folder("db")
    told = json.loads((db / NAME).read_text())["databases"]["rater"]
    assert (db / NAME).read_text() == text(db), "make freeze writes it anew"
    sql = (
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%'"
    )
    with closing(sqlite3.connect(store.path)) as connection:
        assert {name for (name,) in connection.execute(sql)} <= told["tables"].keys()
        for query in told["queries"].values():
            connection.execute(query["sql"], dict.fromkeys(PARAMETER.findall(query["sql"]), ""))
    assert told["tables"]["run"]["description"].startswith("One call of `rater run`")
    assert told["tables"]["host"]["columns"]["architecture"] == "as `uname -m`"


# -- what was released -------------------------------------------------------------------------


def test_every_step_and_the_views_of_its_version_are_as_they_were_released() -> None:
    now, then = digests(folder("db")), released(folder("db"))
    assert changed(now, then) == []
    assert [name for name in now if name not in then] == [], "`make freeze` adds them"


def test_a_released_step_or_view_that_is_edited_is_named_and_not_frozen(later: Path) -> None:
    base, view = later / "schema.sql", later / "views/run_summary.sql"
    step = next(later.glob("migrations/*_mood.sql"))
    assert freeze(later) == []
    step.write_text(f"-- why\n{step.read_text()}\n")  # no other statement
    assert freeze(later) == []
    kept = released(later)
    base.write_text(base.read_text().replace("hostname        TEXT", "hostname        BLOB"))
    view.write_text("CREATE VIEW run_summary AS SELECT 1;")
    wrong = ["schema.sql", f"views of {max(migrations(later))}"]
    assert freeze(later) == wrong
    assert released(later) == kept
    step.unlink()
    assert f"migrations/{step.name}" in changed(digests(later), kept)


@pytest.mark.parametrize("lost", ["bracket.torn", "copy.last_cpu"])
def test_a_database_that_lacks_columns_of_its_schema_is_refused_before_a_run_begins(
    store: Store, lost: str
) -> None:
    before = begin(store)
    table, column = lost.split(".")
    with store.writing("a rater between releases") as connection:
        connection.execute("PRAGMA writable_schema = ON")
        for view in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'view'"):
            connection.execute(f"DROP VIEW {view[0]}")
        connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    with pytest.raises(InputError, match=rf"{store.path}: .*without {lost};.*--db"):
        begin(store)
    assert [head.run for head in store.runs()] == [before]


# -- steps ---------------------------------------------------------------------------------------


def test_every_table_is_strict(empty: sqlite3.Connection) -> None:
    migrate(empty, Path(":memory:"))
    tables = empty.execute(
        "SELECT name, strict FROM pragma_table_list "
        "WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    ).fetchall()
    assert {name for name, strict in tables if not strict} == set()
    assert {"host", "run", "setting", "bracket", "copy", "benchmark", "placement", "pu"} <= {
        name for name, _ in tables
    }


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """The files of a later rater: one more column, and a view that shows it."""
    db = tmp_path / "later"
    shutil.copytree(folder("db"), db)
    step = max(migrations(db)) + 1
    (db / "migrations").mkdir(exist_ok=True)
    (db / f"migrations/{step:04}_mood.sql").write_text("ALTER TABLE run ADD COLUMN mood TEXT;")
    view = db / "views" / "run_summary.sql"
    view.write_text(view.read_text().replace("run.uuid,", "run.uuid, run.mood,"))
    return db


def test_a_later_rater_applies_what_is_new_and_makes_the_views_anew(
    tmp_path: Path, later: Path
) -> None:
    path = tmp_path / "rater.db"
    with open_store(path) as store:
        begin(store)
    with closing(sqlite3.connect(path, autocommit=True)) as connection:
        connection.execute("CREATE VIEW mine AS SELECT uuid FROM run_summary")
        migrate(connection, path, later)
        assert connection.execute("SELECT uuid, mood FROM run_summary").fetchall() == [("u", None)]
        assert connection.execute("SELECT * FROM mine").fetchall() == [("u",)]
        assert number_of(connection, "user_version") == max(migrations(later))
        after = schema(connection)
        migrate(connection, path, later)
        with closing(sqlite3.connect(":memory:", autocommit=True)) as fresh:
            migrate(fresh, path, later)
            assert schema(connection) == after == schema(fresh) | {"mine": after["mine"]}


@pytest.mark.parametrize("fresh", [True, False])
def test_a_step_that_fails_leaves_the_database_as_it_was(
    empty: sqlite3.Connection, later: Path, fresh: bool
) -> None:
    if not fresh:
        migrate(empty, Path("some.db"))
    before = schema(empty), empty.execute("PRAGMA user_version").fetchone()
    step = max(later.glob("migrations/*.sql"))
    step.write_text("CREATE TABLE new (x); CREATE TABLE run (x);")
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        migrate(empty, Path("some.db"), later)
    assert (schema(empty), empty.execute("PRAGMA user_version").fetchone()) == before


def test_a_gap_in_the_numbers_of_steps_is_an_error(later: Path) -> None:
    step = max(later.glob("migrations/*.sql"))
    step.rename(step.with_name("0099_mood.sql"))
    with pytest.raises(RuntimeError, match="not numbered"):
        migrations(later)
