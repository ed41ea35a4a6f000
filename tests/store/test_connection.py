"""Opening: a database is made, brought up to date, or refused with the way out and left alone."""

import hashlib
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

from rater.errors import InputError
from rater.resources import folder
from rater.store.connection import connect, default_path, migrate, migrations
from rater.store.store import open_store
from tests.support.stored_runs import begin

_NOBODY = 65534


# Every table and index of schema 9 as databases in use have it: a digest of its text.
SCHEMA_9 = """
benchmark e838afe2, bracket a9ed4e9b, copy 77339efb, copy_metric 434a7e6b, cpu_reading d894fa54,
divot c0306e5f, divot_search 76f9504e, environment 9f3a7627, host 8c381bf5,
host_fingerprint 7aa0d2f9, metric f5d43b79, note 4de6bf9b, note_run 096e143e, observed f574538c,
phase_reading ea957487, placement ba6d2cdd, pu f7e77121, run 043577f0, run_host 251a695a,
sample 1a90f0ea, setting 39d58b06, spec_file 4c198f11, spec_result a6f383d0,
sqlite_sequence 4cb1eaf1, sweep 435bfb01, sweep_axis 1585350f, sweep_point f9d05b40,
sweep_run dca54f85, sweep_run_once 26634b72, sweep_slot d52955a0, sweep_value 44fb05c2,
tag d8e0237d, tag_value 202d604e, workload a0599a54
"""
VIEWS = {9: "1af35413"}  # by version


def schema(connection: sqlite3.Connection) -> dict[str, str]:
    """The objects of a database without comments and layout, which may differ."""
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    bare = ((name, re.sub(r"--[^\n]*", " ", text)) for name, text in sorted(rows))
    return {name: re.sub(r"\s*([(),])\s*", r"\1", " ".join(text.split())) for name, text in bare}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@pytest.fixture
def empty() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", autocommit=True)) as connection:
        yield connection


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        number: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return number


# -- the schema ---------------------------------------------------------------------------------


def test_a_database_of_schema_9_made_before_is_what_a_fresh_one_is(tmp_path: Path) -> None:
    base = tmp_path / "db"
    shutil.copytree(folder("db"), base, ignore=shutil.ignore_patterns("migrations"))
    with closing(sqlite3.connect(":memory:", autocommit=True)) as fresh:
        migrate(fresh, Path("some.db"), base)
        made = {
            f"{name} {digest(text)}"
            for name, text in schema(fresh).items()
            if not text.startswith("CREATE VIEW")
        }
    assert made == {" ".join(it.split()) for it in SCHEMA_9.split(",")}


def test_a_view_that_is_changed_is_another_version(empty: sqlite3.Connection) -> None:
    migrate(empty, Path("some.db"))
    views = "".join(text for text in schema(empty).values() if text.startswith("CREATE VIEW"))
    assert VIEWS[max(migrations(folder("db")))] == digest(views)


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
        assert version(path) == max(migrations(later))
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
    (step,) = (later / "migrations").iterdir()
    step.write_text("CREATE TABLE new (x); CREATE TABLE run (x);")
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        migrate(empty, Path("some.db"), later)
    assert (schema(empty), empty.execute("PRAGMA user_version").fetchone()) == before


def test_a_gap_in_the_numbers_of_steps_is_an_error(later: Path) -> None:
    (step,) = (later / "migrations").iterdir()
    step.rename(step.with_name("0099_mood.sql"))
    with pytest.raises(RuntimeError, match="not numbered"):
        migrations(later)


# -- opening ------------------------------------------------------------------------------------


def test_a_database_is_made_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b?c#d%20" / "räter.db"
    with closing(connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)
    assert path.is_file()
    assert version(path) == max(migrations(folder("db")))
    with open_store(path) as store:
        assert store.runs() == ()
    empty = tmp_path / "touched.db"  # becomes one
    empty.touch()
    connect(empty).close()
    assert version(empty) == version(path)


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
    connect(path).close()
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
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path / "file" / "rater.db", "cannot make the folder of the database"),
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
        connect(path).close()
        path.chmod(file_mode)
        place.chmod(folder_mode)
        if os.geteuid() != 0:
            pytest.skip("needs root: another user than the owner has to be tried")
        code = (
            "import os, sys; from pathlib import Path\n"
            "from rater.errors import InputError; from rater.store.store import open_store\n"
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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RATER_DB", "from/environment.db")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_path("given.db") == Path("given.db")
    assert default_path(None) == Path("from/environment.db")
    monkeypatch.setenv("RATER_DB", "")
    assert default_path(None) == Path("/data/rater/rater.db")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_path(None) == Path("/home/me/.local/share/rater/rater.db")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_path(None) == Path("/home/me/.local/share/rater/rater.db")
