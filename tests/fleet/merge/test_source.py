"""Databases that cannot be merged are named with what is wrong, and nothing is changed."""

import os
import re
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rater.files import folder
from rater.fleet.merge import merge_database
from rater.fleet.merge_source import SourceRefusedError, copy_source, scratch_folder
from rater.store.connection import is_database
from rater.store.rows import migrate, migrations
from rater.store.store import Store, open_store
from tests.support.full_database import full_database
from tests.support.made_runs import make_run

type Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return full_database(tmp_path_factory.mktemp("sound") / "a.db", "aa")


def done(*statements: str) -> Change:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path, autocommit=True)) as connection:
            for it in statements:
                connection.execute(it)

    return change


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


def overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * 8192)


def interrupted(path: Path) -> None:
    path.with_name(f"{path.name}-journal").write_bytes(b"x")


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


NO_PARENT = (
    "PRAGMA foreign_keys = OFF",
    "INSERT INTO tag (run_id, name, value) VALUES (77, 'a', 'b')",
)
LOST_VIEWS = [f"DROP VIEW {it.stem}" for it in sorted((folder("db") / "views").glob("*.sql"))]
AS_A_VIEW = (*LOST_VIEWS, "DROP TABLE observed", "CREATE VIEW observed AS SELECT * FROM host")
WITHOUT_CHECKS = (
    *LOST_VIEWS,
    "PRAGMA writable_schema = ON",
    "UPDATE sqlite_schema SET sql = replace(sql, 'CHECK (copies > 0)', '') WHERE name = 'run'",
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cut, "cut or grown: it has [0-9]+ bytes"),
        (overwritten, "damaged"),
        (lambda path: path.write_text("hello"), "not a SQLite database"),
        (lambda path: path.write_bytes(b""), "an empty file"),
        (lambda path: path.unlink(), "cannot be read \\(No such file"),
        (piped, "not a regular file"),
        (interrupted, "a transaction of another program was interrupted"),
        (done("PRAGMA user_version = 99"), "made by a newer rater \\(schema 99"),
        (done("PRAGMA user_version = 3"), "made by an early rater \\(schema 3"),
        (done("PRAGMA application_id = 7"), "database of another program"),
        (done(*NO_PARENT), "a row of tag belongs to no row of run"),
        (done(*AS_A_VIEW), "without observed"),
        (done(*LOST_VIEWS, "ALTER TABLE copy DROP COLUMN pid"), "without copy.pid"),
    ],
)
def test_what_cannot_be_merged_is_named_and_changes_nothing(
    tmp_path: Path, store: Store, sound: Path, change: Change, words: str
) -> None:
    path = tmp_path / "other.db"
    shutil.copy(sound, path)
    change(path)
    pattern = f"^{re.escape(str(path))}: .*{words}"
    with pytest.raises(SourceRefusedError, match=pattern):
        merge_database(store, path)
    with store.reading() as connection:
        assert connection.execute("SELECT count(*) FROM run").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM merged_file").fetchone() == (0,)


def test_rows_that_our_tables_do_not_take_are_named(
    tmp_path: Path, store: Store, sound: Path
) -> None:
    path = tmp_path / "other.db"
    shutil.copy(sound, path)
    done(*WITHOUT_CHECKS)(path)
    done("UPDATE run SET copies = 0")(path)
    with pytest.raises(SourceRefusedError, match=r"rows are not as rater makes them .*copies > 0"):
        merge_database(store, path)
    assert merge_database(store, sound).added == (1,)


def test_sql_in_a_database_is_not_run_and_tables_of_others_are_named(
    tmp_path: Path, store: Store, sound: Path
) -> None:
    path = tmp_path / "other.db"
    shutil.copy(sound, path)
    done(
        "CREATE TABLE mine (a)",
        "CREATE TRIGGER t AFTER INSERT ON host BEGIN DELETE FROM run; END",
        "CREATE TRIGGER u AFTER UPDATE ON run BEGIN DELETE FROM run; END",
    )(path)
    result = merge_database(store, path)
    assert (result.added, result.left_out) == ((1,), ("mine",))


def test_a_database_is_not_merged_into_itself(tmp_path: Path, store: Store) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(store.path)
    for path in (store.path, link):
        with pytest.raises(SourceRefusedError, match=r"into itself"):
            merge_database(store, path)


@pytest.mark.parametrize("version", [9, max(migrations(folder("db"))) - 1])
def test_an_older_schema_is_brought_up_to_date_on_the_copy(
    tmp_path: Path, store: Store, version: int
) -> None:
    place, path = tmp_path / "db", tmp_path / "old.db"
    shutil.copytree(folder("db"), place)
    for step, file in migrations(place).items():
        if step > version:
            file.unlink()
    with closing(sqlite3.connect(path, autocommit=True)) as old:
        migrate(old, path, place)
        old.execute("INSERT INTO host (id, fingerprint) VALUES (5, 'f')")
        old.execute(
            "INSERT INTO run (id, uuid, host_id, source, status, mode, run_order, copies, "
            "iterations, discard, stagger_ms, increment) "
            "VALUES (3, 'u', 5, 'run', 'complete', 'homogeneous', 'homogeneous', 1, 1, 0, 0, 1)"
        )
    before = path.read_bytes()
    result = merge_database(store, path)
    assert (result.schema, result.added) == (version, (1,))
    assert path.read_bytes() == before
    assert [it.uuid for it in store.runs()] == ["u"]


def test_a_file_that_is_written_all_the_time_is_named(
    tmp_path: Path, sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.fleet.merge_source._PAUSE_S", 0.0)
    path, log = tmp_path / "a.db", tmp_path / "a.db-wal"
    shutil.copy(sound, path)
    log.write_bytes(b"0")
    wrote = threading.Event()

    def pieces(number: int) -> Iterator[bytes]:  # each time it is read something is new in it
        with log.open("ab") as file:
            file.write(b"1")
        wrote.set()
        yield os.pread(number, 1 << 20, 0)

    monkeypatch.setattr("rater.fleet.merge_source._pieces", pieces)
    with pytest.raises(SourceRefusedError, match=r"written all the time"):
        copy_source(path, tmp_path)
    assert wrote.is_set()


def test_links_and_logs_of_strangers_are_not_followed(
    tmp_path: Path, sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(sound)
    with scratch_folder() as scratch:
        assert copy_source(link, scratch)[0].read_bytes() == sound.read_bytes()
        monkeypatch.setattr("rater.files.is_trusted", lambda _: False)
        with pytest.raises(SourceRefusedError, match=r"symbolic link of user"):
            copy_source(link, scratch)
    log = tmp_path / "a.db-wal"
    shutil.copy(sound, tmp_path / "a.db")
    log.symlink_to(sound)
    with pytest.raises(SourceRefusedError, match=r"a\.db-wal: cannot be read"):
        copy_source(tmp_path / "a.db", tmp_path)


def test_copies_that_a_killed_rater_left_are_removed_and_those_in_use_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / "rater-merge-of-one-killed"
    left.mkdir()
    os.utime(left, (0, 0))
    new = tmp_path / "rater-merge-not-locked-yet"
    new.mkdir()
    with scratch_folder() as first, scratch_folder() as second:
        assert (left.exists(), first.exists(), second.exists()) == (False, True, True)
    assert [*tmp_path.glob("rater-merge-*")] == [new]


def test_what_is_a_database_shows_in_its_first_bytes(tmp_path: Path, sound: Path) -> None:
    (tmp_path / "text").write_text("{}")
    assert [is_database(it) for it in (sound, tmp_path / "text", tmp_path, tmp_path / "no")] == [
        *(True, False, False, False),
    ]


def test_a_source_without_a_right_to_write_beside_it_is_read(tmp_path: Path) -> None:
    place = tmp_path / "readonly"
    place.mkdir()
    make_run(place / "a.db")
    (place / "a.db").chmod(0o400)
    place.chmod(0o500)
    try:
        with open_store(tmp_path / "all.db") as store:
            assert merge_database(store, place / "a.db").added == (1,)
    finally:
        place.chmod(0o700)
