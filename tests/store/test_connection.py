"""Databases: made, brought up to date from any released schema, or refused and left alone."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rater.store.connection import StoreError, connect, default_path, store_error
from rater.store.rows import (
    COLUMNS_FILE,
    NEWEST_FILE,
    columns_text,
    frozen_text,
    migrate,
    migrations,
    read_pragma,
)
from rater.store.store import Store, open_store
from rater.system.errors import InputError
from rater.system.paths import data_folder
from tests.support.datasette import NAME, metadata_text
from tests.support.released import changed, digests, freeze, newest_text_by_steps, released
from tests.support.stored_runs import begin

_NOBODY = 65534


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        number: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return number


# -- opening ------------------------------------------------------------------------------------


def test_a_database_is_made_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b?c#d%20" / "räter.db"
    with closing(connect(path).connection) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)
    assert path.is_file()
    assert version(path) == max(migrations(data_folder("db")))
    with open_store(path) as store:
        assert store.runs() == ()
    empty = tmp_path / "touched.db"  # becomes one
    empty.touch()
    connect(empty).connection.close()
    assert version(empty) == version(path)


def test_sql_that_somebody_put_into_a_database_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "rater.db"
    connect(path).connection.close()
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute(
            "CREATE TRIGGER lie AFTER INSERT ON host BEGIN UPDATE host SET cpu_model = 'x'; END"
        )
        theirs.execute("DROP VIEW sweep_progress")
        theirs.execute("CREATE VIEW sweep_progress AS SELECT 1 AS done")
    with open_store(path) as store:
        begin(store)
        assert store.load(1).host.cpu_model != "x"
        with store.reading() as connection:
            assert connection.execute("SELECT * FROM sweep_progress").fetchall() == []
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("DROP TABLE tag")
        theirs.execute("CREATE VIEW tag AS SELECT id AS run_id, 'x' AS name, 'y' AS value FROM run")
    with open_store(path) as store:
        with pytest.raises(StoreError, match=r"view .tag. prohibited"):
            store.runs()
        with pytest.raises(InputError, match=r"without tag\.name"):
            begin(store)


def test_processes_that_make_the_same_database_at_once_all_get_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from rater.store.store import open_store\n"
        "print('ready', flush=True); sys.stdin.read()\n"
        "open_store(Path(sys.argv[1])).close()"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "new" / "rater.db")]
    openers = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for opener in openers:
        assert opener.stdout is not None
        assert opener.stdout.readline() == "ready\n"
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.close()
    for opener in openers:
        with opener:
            pass
    assert [opener.returncode for opener in openers] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"x", "not a SQLite database"),
        (b"benchmark,seconds\nstream,1.5\n" * 100, "not a SQLite database"),
        (b"SQLite format 3\x00" + b"\xff" * 4096, "another program"),
        (b"SQLite format 3\x00" + bytes(4096), "damaged, or not a database"),
    ],
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, content: bytes, says: str
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says) as caught:
        open_store(path)
    assert str(path) in str(caught.value)
    assert "--db" in str(caught.value)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "script",
    [
        "PRAGMA application_id = 5; CREATE TABLE run (id)",
        "CREATE TABLE run (id)",
        "PRAGMA user_version = 1",
        "PRAGMA application_id = 1918989426; CREATE TABLE run (id)",
    ],
)
def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path, script: str) -> None:
    path = tmp_path / "browser.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    before = path.read_bytes()
    with pytest.raises(InputError, match="another program"):
        open_store(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (99, r"newer rater \(schema 99.*upgrade"),
        (8, r"early rater \(schema 8;.*`rater list`.*5b1e235"),
    ],
)
def test_a_newer_or_an_early_database_is_refused_and_left_alone(
    tmp_path: Path, number: int, says: str
) -> None:
    path = tmp_path / "rater.db"
    connect(path).connection.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {number}")
    with pytest.raises(InputError, match=says):
        open_store(path)
    assert version(path) == number


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    for path, says in (
        (tmp_path, "a directory, not a database; name a file with --db"),
        (tmp_path / "pipe", "a pipe or a device, not a database"),
        (tmp_path / "file" / "rater.db", "cannot make the database"),
    ):
        with pytest.raises(InputError, match=says):
            open_store(path)


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "says"),
    [
        (0o755, 0o600, "cannot read the database"),
        (0o755, 0o644, "read-only for you"),
        (0o755, 0o666, "read-only for you"),
        (0o700, 0o644, "cannot open|cannot make|cannot read"),
    ],
)
def test_a_database_without_the_rights_to_write_it_is_refused(
    folder_mode: int, file_mode: int, says: str
) -> None:
    # Another user must reach it, and pytest's own folders are closed.
    place = Path(tempfile.mkdtemp(prefix="rater-test-"))
    try:
        path = place / "rater.db"
        connect(path).connection.close()
        path.chmod(file_mode)
        place.chmod(folder_mode)
        if os.geteuid() != 0:
            pytest.skip("needs root: another user than the owner has to be tried")
        code = (
            "import os, sys; from pathlib import Path\n"
            "from rater.system.errors import InputError; from rater.store.store import open_store\n"
            f"os.setgroups([]); os.setgid({_NOBODY}); os.setuid({_NOBODY})\n"
            "try: open_store(Path(sys.argv[1]))\n"
            "except InputError as error: print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
        )
        assert re.search(says, done.stdout), done.stdout
        assert "--db" in done.stdout
    finally:
        shutil.rmtree(place)


# -- where it is --------------------------------------------------------------------------------


def test_db_goes_before_the_environment_and_that_before_the_data_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RATER_DB", "from/environment.db")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path("given.db") == Path("given.db")
    assert default_path(None) == Path("from/environment.db")
    monkeypatch.setenv("RATER_DB", "")
    assert default_path(None) == Path("/data/rater/rater.db")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_path(None) == tmp_path / ".local/share/rater/rater.db"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_path(None) == tmp_path / ".local/share/rater/rater.db"


def test_a_second_store_in_one_process_does_not_give_up_the_locks_of_the_first(
    database: Path,
) -> None:
    open_store(database).close()
    with open_store(database) as first:
        first.runs()
        open_store(database).close()
        # Would take itself for the last user of the database, and remove its write-ahead log.
        subprocess.run(
            [sys.executable, "-m", "rater", "list"],
            check=True,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"RATER_DB": str(database)},
        )
        names = {path.name for path in database.parent.glob("rater.db*")}
        assert names == {"rater.db", "rater.db-wal", "rater.db-shm"}


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
    db = data_folder("db")
    described = json.loads((db / NAME).read_text())["databases"]["rater"]
    assert (db / NAME).read_text() == metadata_text(db), "make freeze writes it anew"
    sql = (
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%'"
    )
    with closing(sqlite3.connect(store.path)) as connection:
        assert {name for (name,) in connection.execute(sql)} <= described["tables"].keys()
        for query in described["queries"].values():
            connection.execute(query["sql"], dict.fromkeys(PARAMETER.findall(query["sql"]), ""))
    assert described["tables"]["run"]["description"].startswith("One call of `rater run`")
    assert described["tables"]["host"]["columns"]["architecture"] == "as `uname -m`"


# -- what was released -------------------------------------------------------------------------


def test_every_step_and_the_views_of_its_version_are_as_they_were_released() -> None:
    now, then = digests(data_folder("db")), released(data_folder("db"))
    assert changed(now, then) == []
    assert [name for name in now if name not in then] == [], "`make freeze` adds them"


def test_the_columns_that_are_kept_are_those_of_the_newest_schema() -> None:
    db = data_folder("db")
    kept = (db / COLUMNS_FILE).read_text(encoding="utf-8")
    assert kept == columns_text(db), "make freeze writes it anew"


def test_a_fresh_database_is_what_all_steps_come_to(
    empty: sqlite3.Connection, later: Path, tmp_path: Path
) -> None:
    db, stepwise = data_folder("db"), tmp_path / "stepwise"
    assert frozen_text(db, NEWEST_FILE) == newest_text_by_steps(db), "make freeze writes it anew"
    shutil.copytree(db, stepwise)
    (stepwise / NEWEST_FILE).write_text("-- schema 9\n")  # as before `make freeze`
    migrate(empty, Path(":memory:"), stepwise)
    with closing(sqlite3.connect(":memory:", autocommit=True)) as at_once:
        migrate(at_once, Path(":memory:"))
        assert schema(at_once) == schema(empty)
        assert read_pragma(at_once, "user_version") == max(migrations(db))
        assert read_pragma(at_once, "application_id") == read_pragma(empty, "application_id")
    assert frozen_text(later, NEWEST_FILE) is None


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
    shutil.copytree(data_folder("db"), db)
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
        assert read_pragma(connection, "user_version") == max(migrations(later))
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


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks_is_named_and_no_database_is_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def none(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorname = "SQLITE_BUSY"
    path = tmp_path / "rater.db"
    assert "another program held" in str(store_error(busy, path, "opening it"))
    monkeypatch.setattr("fcntl.lockf", none)
    assert "its file system has no locks" in str(store_error(busy, path, "opening it"))
    with pytest.raises(InputError, match="no locks, which a database needs; name one on a disk"):
        connect(path)
    assert [*tmp_path.iterdir()] == []


def test_a_package_without_its_folders_is_named_and_not_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.system.paths._PACKAGE", tmp_path / "package" / "rater")
    with pytest.raises(InputError, match=r"own folder 'db' is missing beside .*; install it again"):
        connect(tmp_path / "rater.db")


def test_a_database_that_vanishes_while_it_is_opened_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rater.db"
    connect(path).connection.close()

    def vanish(*_: object) -> None:
        path.unlink()
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    monkeypatch.setattr("rater.store.connection._check_beside", vanish)
    with pytest.raises(InputError) as caught:
        connect(path)
    assert str(caught.value) == (
        f"{path}: the database vanished while it was opened; name a file with --db or RATER_DB"
    )
