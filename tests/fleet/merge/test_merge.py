"""Databases of other machines become one: all of it, once, whatever the order."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rater.fleet import merge as module
from rater.fleet.merge import MergedFile, merge_database
from rater.fleet.merge_source import LOCAL, MergeTable, Role, merge_tables, newest_tables
from rater.plan.sweep import AxisKind, SweepSlot
from rater.process import this_process
from rater.record.events import OutputChecked, RunEnded
from rater.record.run import RunStatus, Validity
from rater.store.store import Store, open_store
from rater.store.sweeps import SweepPoint, create_slot_run, new_sweep
from tests.support.digests import content_digest
from tests.support.example_events import SWEEP_ASKED, ended, over, phase
from tests.support.full_database import full_database
from tests.support.made_runs import make_run
from tests.support.stored_runs import GONE, HOST, PUS, begin, with_uuid


def content(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return content_digest(connection)


def asked(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def merged(target: Path, *sources: Path, restore: bool = False) -> list[MergedFile]:
    with open_store(target) as store:
        return [merge_database(store, it, restore=restore) for it in sources]


# -- all of it -------------------------------------------------------------------------------------


def test_every_table_of_the_schema_is_covered_and_has_rows_in_these_tests(tmp_path: Path) -> None:
    path = full_database(tmp_path / "a.db", "aa")
    for table in newest_tables():
        assert asked(path, f"SELECT count(*) > 0 FROM {table.name}") == [(1,)], table.name
    every = {it.name for it in newest_tables()} | LOCAL
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
            merge_tables(connection)


def test_a_new_table_of_a_run_needs_no_word(store: Store) -> None:
    with store.writing("a new rater") as connection:
        connection.execute(
            "CREATE TABLE mood (run_id INTEGER REFERENCES run (id), n INTEGER, at INTEGER, "
            "PRIMARY KEY (run_id, n), FOREIGN KEY (run_id, at) REFERENCES bracket (run_id, phase))"
        )
        (mood,) = (it for it in merge_tables(connection) if it.name == "mood")
    assert (mood.role, mood.owner, mood.owner_column) == (Role.OWNED, "run", "run_id")
    assert mood.numbers == {"run_id": "run"}


def test_rows_of_every_table_come_along_in_any_order_and_once(tmp_path: Path) -> None:
    a = full_database(tmp_path / "a.db", "aa", "bb")
    b = full_database(tmp_path / "b.db", "cc")
    both = full_database(tmp_path / "both.db", "cc", "aa", "bb")
    ours = full_database(tmp_path / "ours.db", "bb")  # other numbers, and one of them known
    one, other, third = (tmp_path / f"{name}.db" for name in ("one", "other", "third"))
    first, second = merged(one, a, b)
    assert (first.added, second.added, first.sweeps) == ((1, 2), (3,), 2)
    merged(other, b, a, b)
    merged(third, one)
    again = merged(ours, one, a)
    assert [it.known for it in again] == [1, 2]
    merged(ours, b, one, a, other)
    assert len({content(it) for it in (both, one, other, third, ours)}) == 1
    assert content(a) != content(one)
    for path in (one, other, third, ours):
        assert asked(path, "PRAGMA foreign_key_check") == []


def test_the_same_file_once_more_is_not_even_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = full_database(tmp_path / "a.db", "aa")
    target = tmp_path / "all.db"
    merged(target, a)
    before = content(target)
    monkeypatch.delattr(module, "checked")
    copy = Path(shutil.copy(a, tmp_path / "again.db"))
    assert merged(target, a, copy) == [MergedFile(a, None), MergedFile(copy, None)]
    assert content(target) == before


def test_a_file_is_one_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, target = full_database(tmp_path / "a.db", "aa"), tmp_path / "all.db"
    full_database(target, "bb")
    before = content(target)

    insert = module._insert_owned
    last = [it for it in newest_tables() if it.role is Role.OWNED][-1]

    def stopped(table: MergeTable, every: tuple[MergeTable, ...]) -> str:
        if table == last:
            raise KeyboardInterrupt
        return insert(table, every)

    with monkeypatch.context() as patched:
        patched.setattr(module, "_insert_owned", stopped)
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
        store.append(1, ended(1, 4.0), over(0.0, 4.0), RunEnded(RunStatus.COMPLETE, None))
        store.append(1, OutputChecked(0, "gups", 1, 0, 0, Validity.VALID, None))
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
        store.append(1, ended(1, 4.0))
    shutil.copy(target, later)
    with open_store(later) as store:
        store.append(1, RunEnded(RunStatus.FAILED, "said somebody"))
    assert merged(target, later)[0].running == (1,)
    assert asked(target, "SELECT status FROM run") == [("running",)]


def test_a_run_that_was_removed_stays_removed_until_it_is_wanted_back(tmp_path: Path) -> None:
    a, target = full_database(tmp_path / "a.db", "aa", "bb"), tmp_path / "all.db"
    merged(target, a)
    with open_store(target) as store:
        store.remove(1)
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
        point = SweepPoint(0, "thp=never", (("thp", "never"),), "{}", None)
        slot = SweepSlot(1, 1, 0)
        made = replace(SWEEP_ASKED, uuid="s")
        number = new_sweep(store, made, [("thp", AxisKind.SETTING)], [point], [slot])
        for name in ("one", "two"):
            run = with_uuid(name)
            one = create_slot_run(store, number, slot, run, HOST, settings=(), pus=PUS, phases=1)
            store.append(one, RunEnded(RunStatus.INTERRUPTED, None))
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
        store.append(number, phase(), ended(0, 1.0))
        assert number == 2


# -- the source ------------------------------------------------------------------------------------


def listing(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {it.name: (it.stat().st_mtime_ns, it.read_bytes()) for it in folder.iterdir()}


def test_what_a_killed_rater_left_in_the_log_counts_and_the_source_is_untouched(
    tmp_path: Path,
) -> None:
    made, place = tmp_path / "made", tmp_path / "place"
    made.mkdir()
    place.mkdir()
    full_database(made / "a.db", "aa")
    with open_store(made / "a.db") as store:
        begin(store, with_uuid("late"))
        for name in ("a.db", "a.db-wal"):  # as they lie there when it is killed
            shutil.copy(made / name, place)
    before = listing(place)
    (result,) = merged(tmp_path / "all.db", place / "a.db")
    assert listing(place) == before
    assert result.added == (1, 2)
    assert content(tmp_path / "all.db") == content(made / "a.db")
