"""Databases of other machines become one: all of it, once, or refused with what is wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from rater.fleet import merge as module
from rater.fleet.foreign import (
    LOCAL,
    MergeTable,
    SourceRefusedError,
    copy_foreign,
    merge_tables,
    newest_tables,
)
from rater.fleet.merge import MergedFile, merge_database
from rater.plan.sweep import AxisKind, SweepPoint, SweepSlot
from rater.record.events import OutputChecked, RunEnded
from rater.record.run import RunStatus, Validity
from rater.store.connection import is_database
from rater.store.rows import migrate, migrations
from rater.store.store import Store, open_store
from rater.store.sweeps import create_slot_run, new_sweep, remove_sweeps
from rater.system.files import scratch_folder
from rater.system.paths import data_folder
from rater.system.process import this_process
from tests.support.calls import Rater, query_rows
from tests.support.digests import content_digest
from tests.support.example_events import SWEEP_ASKED, ended, over, phase
from tests.support.full_database import full_database
from tests.support.made_runs import make_run
from tests.support.observations import DOCUMENT
from tests.support.released import copy_of
from tests.support.stored_runs import GONE, append, begin, with_uuid


def content(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return content_digest(connection)


def asked(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def merged(target: Path, *sources: Path, restore: bool = False) -> list[MergedFile]:
    with open_store(target) as store:
        return [merge_database(store, source, restore=restore) for source in sources]


# -- all of it -------------------------------------------------------------------------------------


def test_every_table_of_the_schema_is_covered_and_has_rows_in_these_tests(tmp_path: Path) -> None:
    path = full_database(tmp_path / "a.db", "aa")
    for table in newest_tables():
        assert asked(path, f"SELECT count(*) > 0 FROM {table.name}") == [(1,)], table.name
    every = {table.name for table in newest_tables()} | LOCAL
    query = "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main'"
    assert every == {name for (name,) in asked(path, query)} - {"sqlite_schema", "sqlite_sequence"}


@pytest.mark.parametrize(
    "table",
    ["mood (id INTEGER PRIMARY KEY, run_id INTEGER)", "mood (host TEXT PRIMARY KEY, mood TEXT)"],
)
def test_a_new_table_that_belongs_to_no_run_or_sweep_is_an_error(table: str, store: Store) -> None:
    with store.writing("a new rater") as connection:
        connection.execute(f"CREATE TABLE {table}")
        with pytest.raises(RuntimeError, match=r"table mood: .*whose it is"):
            merge_tables(connection.connection)


def test_a_new_table_of_a_run_needs_no_word(store: Store) -> None:
    with store.writing("a new rater") as connection:
        connection.execute(
            "CREATE TABLE mood (run_id INTEGER REFERENCES run (id), n INTEGER, at INTEGER, "
            "PRIMARY KEY (run_id, n), FOREIGN KEY (run_id, at) REFERENCES bracket (run_id, phase))"
        )
        (mood,) = (table for table in merge_tables(connection.connection) if table.name == "mood")
    assert (mood.is_owned, mood.owner, mood.owner_column) == (True, "run", "run_id")
    assert mood.numbers == {"run_id": "run"}


def test_rows_of_every_table_come_along_in_any_order_and_once(tmp_path: Path) -> None:
    first_database = full_database(tmp_path / "a.db", "aa", "bb")
    second_database = full_database(tmp_path / "b.db", "cc")
    both_at_once = full_database(tmp_path / "both.db", "cc", "aa", "bb")
    ours = full_database(tmp_path / "ours.db", "bb")  # other numbers, and one of them known
    first_copy, other, third = (tmp_path / f"{name}.db" for name in ("one", "other", "third"))
    first, second = merged(first_copy, first_database, second_database)
    assert (first.added, second.added, first.sweeps) == ((1, 2), (3,), 2)
    merged(other, second_database, first_database, second_database)
    merged(third, first_copy)
    again = merged(ours, first_copy, first_database)
    assert [it.known for it in again] == [1, 2]
    merged(ours, second_database, first_copy, first_database, other)
    assert len({content(it) for it in (both_at_once, first_copy, other, third, ours)}) == 1
    assert content(first_database) != content(first_copy)
    for path in (first_copy, other, third, ours):
        assert asked(path, "PRAGMA foreign_key_check") == []


def test_the_same_file_once_more_is_not_even_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = full_database(tmp_path / "a.db", "aa")
    target = tmp_path / "all.db"
    merged(target, a)
    before = content(target)
    monkeypatch.delattr(module, "taken")
    copy = Path(shutil.copy(a, tmp_path / "again.db"))
    assert merged(target, a, copy) == [
        MergedFile(path=a, schema=None),
        MergedFile(path=copy, schema=None),
    ]
    assert content(target) == before


def test_a_file_is_one_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, target = full_database(tmp_path / "a.db", "aa"), tmp_path / "all.db"
    full_database(target, "bb")
    before = content(target)

    insert = module._Merge._insert_owned
    last = [table for table in newest_tables() if table.is_owned][-1]

    def stopped(self: module._Merge, table: MergeTable) -> str:
        if table == last:
            raise KeyboardInterrupt
        return insert(self, table)

    with monkeypatch.context() as patched:
        patched.setattr(module._Merge, "_insert_owned", stopped)
        with pytest.raises(KeyboardInterrupt):
            merged(target, a)
    assert content(target) == before
    assert merged(target, a)[0].added == (2,)


# -- runs that are known ---------------------------------------------------------------------------


def test_a_run_that_went_on_is_replaced_under_its_number_and_never_goes_back(
    tmp_path: Path,
) -> None:
    early, late, target = tmp_path / "early.db", tmp_path / "late.db", tmp_path / "all.db"
    make_run(early, finished=False, owner=GONE)
    shutil.copy(early, late)
    with open_store(late) as store:
        append(store, 1, ended(1, 4.0), over(0.0, 4.0), RunEnded(RunStatus.COMPLETE, None))
        append(
            store,
            1,
            OutputChecked(
                phase=0,
                benchmark="gups",
                iteration=1,
                copy=0,
                step=0,
                validity=Validity.VALID,
                detail=None,
            ),
        )
    full_database(target, "aa")
    assert merged(target, early)[0].added == (2,)
    assert merged(target, late)[0].replaced == (2,)
    query = "SELECT status, (SELECT count(*) FROM copy WHERE run_id = run.id) FROM run WHERE id = 2"
    assert asked(target, query) == [("complete", 2)]
    before = content(target)
    other = tmp_path / "other.db"
    full_database(other, "aa")
    assert merged(other, late, early)[1].known == 1
    assert content(other) == before


def test_a_run_that_runs_here_is_left_alone(tmp_path: Path) -> None:
    target, later = tmp_path / "all.db", tmp_path / "later.db"
    make_run(target, finished=False, owner=this_process())
    with open_store(target) as store:
        append(store, 1, ended(1, 4.0))
    shutil.copy(target, later)
    with open_store(later) as store:
        append(store, 1, RunEnded(RunStatus.FAILED, "said somebody"))
    assert merged(target, later)[0].running == (1,)
    assert asked(target, "SELECT status FROM run") == [("running",)]


def test_a_run_that_was_removed_stays_removed_until_it_is_wanted_back(tmp_path: Path) -> None:
    a, target = full_database(tmp_path / "a.db", "aa", "bb"), tmp_path / "all.db"
    merged(target, a)
    with open_store(target) as store:
        remove_sweeps(store, (), [1])
    with closing(sqlite3.connect(a, autocommit=True)) as connection:  # another file than before
        connection.execute("UPDATE host SET product = 'Box'")
    (again,) = merged(target, a)
    assert (again.added, again.removed, again.known) == ((), 1, 1)
    assert asked(target, "SELECT uuid FROM run") == [("run-bb",)]
    (back,) = merged(target, a, restore=True)
    assert back.added == (3,), "a number is never given twice"
    assert content(target) != content(a), "the host of the run that was there is as it was"
    assert asked(target, "SELECT count(*) FROM removed") == [(0,)]


def test_the_run_in_the_place_of_another_is_named_by_its_number_here(tmp_path: Path) -> None:
    a, target = tmp_path / "a.db", full_database(tmp_path / "all.db", "aa")
    with open_store(a) as store:
        point = SweepPoint(
            point=0, label="thp=never", values=(("thp", "never"),), request="{}", left_out=None
        )
        slot = SweepSlot(1, 1, 0)
        made = replace(SWEEP_ASKED, uuid="s")
        number = new_sweep(store, made, [("thp", AxisKind.SETTING)], [point], [slot])
        for name in ("one", "two"):
            run = with_uuid(name)
            one = create_slot_run(store, number, slot, run, 1)
            append(store, one, RunEnded(RunStatus.INTERRUPTED, None))
    replaced_by = "SELECT run_id, value FROM tag WHERE name = 'replaced-by'"
    assert asked(a, replaced_by) == [(1, "2")]
    merged(target, a)
    assert (2, "3") in asked(target, replaced_by)
    assert asked(target, "SELECT run_id, sweep_id, replaced FROM sweep_run WHERE run_id > 1") == [
        (2, 2, 1),
        (3, 2, 0),
    ]
    again = tmp_path / "again.db"
    merged(again, target)
    assert content(again) == content(target)


def test_two_files_with_the_same_host_share_its_row(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_run(tmp_path / f"{name}.db", uuid=name)
    merged(tmp_path / "all.db", tmp_path / "a.db", tmp_path / "b.db")
    assert asked(tmp_path / "all.db", "SELECT count(*) FROM host") == [(1,)]
    with open_store(tmp_path / "all.db") as store:
        assert [len(store.load(it).copies) for it in (1, 2)] == [2, 2]


def test_a_run_can_be_begun_after_merging(tmp_path: Path) -> None:
    make_run(tmp_path / "a.db", uuid="a")
    merged(tmp_path / "all.db", tmp_path / "a.db")
    with open_store(tmp_path / "all.db") as store:
        number = begin(store)
        append(store, number, phase(), ended(0, 1.0))
        assert number == 2


# -- the source ------------------------------------------------------------------------------------


def listing(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def test_what_a_killed_rater_left_in_the_log_counts_and_the_source_is_untouched(
    tmp_path: Path,
) -> None:
    source_folder, place = tmp_path / "made", tmp_path / "place"
    source_folder.mkdir()
    place.mkdir()
    full_database(source_folder / "a.db", "aa")
    with open_store(source_folder / "a.db") as store:
        begin(store, with_uuid("late"))
        for name in ("a.db", "a.db-wal"):  # as they lie there when it is killed
            shutil.copy(source_folder / name, place)
    before = listing(place)
    (result,) = merged(tmp_path / "all.db", place / "a.db")
    assert listing(place) == before
    assert result.added == (1, 2)
    assert content(tmp_path / "all.db") == content(source_folder / "a.db")


type Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return full_database(tmp_path_factory.mktemp("sound") / "a.db", "aa")


def done(*statements: str) -> Change:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path, autocommit=True)) as connection:
            for statement in statements:
                connection.execute(statement)

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
LOST_VIEWS = [f"DROP VIEW {it.stem}" for it in sorted((data_folder("db") / "views").glob("*.sql"))]
AS_A_VIEW = (*LOST_VIEWS, "DROP TABLE observed", "CREATE VIEW observed AS SELECT * FROM host")
WITHOUT_CHECKS = (
    *LOST_VIEWS,
    "PRAGMA writable_schema = ON",
    "UPDATE sqlite_schema SET sql = replace(sql, 'CHECK (copies > 0)', '') WHERE name = 'run'",
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cut, "damaged"),
        (overwritten, "damaged"),
        (lambda path: path.write_text("hello"), "not a SQLite database"),
        (lambda path: path.write_bytes(b""), "an empty file"),
        (lambda path: path.unlink(), "cannot be read \\(No such file"),
        (piped, "not a regular file but a pipe or a device"),
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


@pytest.mark.parametrize("version", [9, max(migrations(data_folder("db"))) - 1])
def test_an_older_schema_is_brought_up_to_date_on_the_copy(
    tmp_path: Path, store: Store, version: int
) -> None:
    place, path = tmp_path / "db", tmp_path / "old.db"
    copy_of(data_folder("db"), place, version)
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
    assert [run.uuid for run in store.runs()] == ["u"]


def test_a_file_that_is_written_all_the_time_is_named(
    tmp_path: Path, sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rater.fleet.foreign._PAUSE_S", 0.0)
    path, log = tmp_path / "a.db", tmp_path / "a.db-wal"
    shutil.copy(sound, path)
    log.write_bytes(b"0")
    wrote = threading.Event()

    def pieces(number: int) -> Iterator[bytes]:  # each time it is read something is new in it
        with log.open("ab") as file:
            file.write(b"1")
        wrote.set()
        yield os.pread(number, 1 << 20, 0)

    monkeypatch.setattr("rater.fleet.foreign._pieces", pieces)
    with pytest.raises(SourceRefusedError, match=r"written all the time"):
        copy_foreign(path, tmp_path)
    assert wrote.is_set()


def test_links_and_logs_of_strangers_are_not_followed(
    tmp_path: Path, sound: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(sound)
    with scratch_folder() as scratch:
        assert copy_foreign(link, scratch).path.read_bytes() == sound.read_bytes()
        monkeypatch.setattr("rater.system.files.is_trusted", lambda _: False)
        with pytest.raises(SourceRefusedError, match=r"symbolic link of user"):
            copy_foreign(link, scratch)
    log = tmp_path / "a.db-wal"
    shutil.copy(sound, tmp_path / "a.db")
    log.symlink_to(sound)
    with pytest.raises(SourceRefusedError, match=r"a\.db-wal: cannot be read"):
        copy_foreign(tmp_path / "a.db", tmp_path)


def test_copies_that_a_killed_rater_left_are_removed_and_those_in_use_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / "rater-scratch-of-one-killed"
    left.mkdir()
    os.utime(left, (0, 0))
    new = tmp_path / "rater-scratch-not-locked-yet"
    new.mkdir()
    with scratch_folder() as first, scratch_folder() as second:
        assert (left.exists(), first.exists(), second.exists()) == (False, True, True)
    assert [*tmp_path.glob("rater-scratch-*")] == [new]


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


@pytest.fixture
def nodes(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"n{number}.db" for number in (1, 2)]
    for path in paths:
        make_run(path, uuid=path.stem)
    return paths


def test_databases_are_merged_and_what_cannot_be_is_named(
    tmp_path: Path, database: Path, nodes: list[Path], rater: Rater
) -> None:
    bad = tmp_path / "bad.db"
    bad.write_text("nothing")
    status, out, err = rater("fleet", "merge", database, *nodes, bad)
    assert status == 2
    assert out.splitlines() == [
        f"{nodes[0]}: run 1 added",
        f"{nodes[1]}: run 2 added",
        f"{database}: 2 runs added, 1 file not merged, named above, of 3 files",
    ]
    assert err == f"rater: {bad}: not a SQLite database\n"
    assert query_rows("SELECT uuid FROM run ORDER BY id") == [("n1",), ("n2",)]
    status, out, _ = rater("fleet", "merge", database, *nodes)
    total = f"{database}: 0 runs added, 2 files merged before, of 2 files\n"
    assert (status, out) == (0, total)


def test_a_removed_run_stays_removed_until_it_is_asked_back(
    database: Path, nodes: list[Path], rater: Rater
) -> None:
    rater("fleet", "merge", database, *nodes)
    rater("rm", "2", "--yes")
    make_run(nodes[1], uuid="more")
    status, out, err = rater("fleet", "merge", database, nodes[1])
    assert (status, out) == (0, f"{nodes[1]}: run 3 added\n")
    assert "1 run or sweep that was removed here left out; --restore brings it back" in err
    status, out, _ = rater("fleet", "merge", database, nodes[1], "--restore", "--json")
    assert [file["added"] for file in json.loads(out)["files"]] == [[4]]


def test_import_takes_documents_and_databases_together(
    tmp_path: Path, nodes: list[Path], rater: Rater
) -> None:
    document = tmp_path / "times.json"
    document.write_text(json.dumps(DOCUMENT))
    status, out, _ = rater("import", nodes[0], document, nodes[1])
    assert (status, out.splitlines()) == (
        0,
        [
            f"{nodes[0]}: run 1 added",
            "run 2: 4 observations of made-by-hand imported",
            f"{nodes[1]}: run 3 added",
        ],
    )
    out = rater("import", nodes[0], "--json")[1]
    assert [file["merged_before"] for file in json.loads(out)["files"]] == [True]


def test_another_database_named_beside_the_target_is_refused(
    tmp_path: Path, nodes: list[Path], rater: Rater
) -> None:
    status, _, err = rater("--db", tmp_path / "x.db", "merge", tmp_path / "y.db", nodes[0])
    assert (status, "leave out --db" in err, (tmp_path / "y.db").exists()) == (2, True, False)
