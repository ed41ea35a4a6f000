"""Opening: a database is made, brought up to date, or refused with the way out and left alone."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from rater.errors import InputError
from rater.files import folder
from rater.store.connection import StoreError, connect, default_path
from rater.store.rows import migrations
from rater.store.store import open_store
from tests.support.stored_runs import begin

_NOBODY = 65534


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        number: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return number


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


def test_sql_that_somebody_put_into_a_database_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "rater.db"
    connect(path).close()
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
