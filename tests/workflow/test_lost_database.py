"""The database removed, replaced or cut short in mid-run: nothing is lost, and it is said."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rater.record.run import RunStatus
from rater.store.connection import StoreError
from rater.store.store import Store, open_store
from tests.support.calls import Rater
from tests.support.example_events import ended, phase
from tests.support.stored_runs import begin, with_uuid

RUN = ("run", "--copies", 2, "--iterations", 2, "--quiet", "--", "sh", "-c")


@pytest.mark.parametrize(
    ("order", "became"),
    [
        ("rm -f $RATER_DB*", "was removed or moved"),
        ("rm -f $RATER_DB", "was removed or moved"),
        ("rm -f $RATER_DB-wal", "lost its write-ahead log"),
        ("mkdir old && mv $RATER_DB* old && : > $RATER_DB", "was replaced"),
        ("cp $RATER_DB x && mv x $RATER_DB", "was replaced"),
        ("mv db elsewhere", "was removed or moved"),
        ("mkdir x && truncate -s 8192 $RATER_DB", "was cut short, from .* bytes to 8192"),
    ],
)
def test_a_run_whose_database_is_lost_goes_on_in_a_copy_and_exits_1(
    order: str, became: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rater: Rater
) -> None:
    place = tmp_path / "db"
    place.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RATER_DB", str(place / "rater.db"))
    assert rater("run", "--quiet", "--", "true")[0] == 0
    status, out, said = rater(*RUN, f"{order}; true")
    assert (status, out) == (1, "")
    (rescued,) = tmp_path.rglob("rater-rescued-1.db")
    assert f"the database {became.split(',', maxsplit=1)[0]}" in said
    assert f"is in {rescued}: `rater --db {rescued} list` shows it" in said
    with open_store(rescued) as store:
        run = store.load(2)
        assert [head.run for head in store.runs()] == [1, 2]
        assert (run.head.status, run.head.reason, len(run.copies)) == (RunStatus.COMPLETE, None, 4)
        assert any(became.split(",", maxsplit=1)[0] in note for note in run.notes)
        assert rescued.stat().st_mode & 0o777 == 0o600
        if "cut short" in became:
            assert "which is not all" in said
        else:
            assert len(store.load(1).copies) == 2
    if "puts it back" in said:
        words = said.partition("shows it; `")[2].partition("`")[0]
        place.mkdir(exist_ok=True)
        subprocess.run(["sh", "-c", words], check=True)
        assert rater("show", 2)[0] == 0


def test_a_database_that_is_written_over_is_noticed_though_it_is_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Path, rater: Rater
) -> None:
    monkeypatch.chdir(tmp_path)
    assert rater("run", "--copies", 2, "--iterations", 2, "--quiet", "--", "true")[0] == 0
    shutil.copy(database, "backup")
    assert Path("backup").stat().st_size == database.stat().st_size
    before = database.stat().st_ino
    status, _, said = rater(*RUN, "dd if=backup of=$RATER_DB conv=notrunc status=none")
    assert (status, database.stat().st_ino) == (1, before)
    assert f"{database}: the database was written over by another program" in said
    (rescued,) = tmp_path.rglob("*-rescued-1.db")
    (records,) = tmp_path.glob("rater-*.jsonl")
    assert '"event": "CopyEnded"' in records.read_text()
    with open_store(rescued) as store:
        assert store.load(1).head.status is RunStatus.COMPLETE
    words = said.partition("both, is in ")[2].partition("`")[2].partition("`")[0]
    subprocess.run(["sh", "-c", words], check=True)
    assert database.read_bytes() == Path("backup").read_bytes()
    assert rater("show", 1)[0] == 0


def test_what_other_processes_fold_in_is_no_loss(tmp_path: Path) -> None:
    path = tmp_path / "rater.db"
    with open_store(path) as store, closing(sqlite3.connect(path)) as other:
        begin(store)
        for copy in range(40):
            store.append(1, *([phase(0)] if copy == 0 else []), ended(copy, 1))
            how = ("PASSIVE", "FULL", "RESTART", "TRUNCATE")[copy % 4]
            assert other.execute(f"PRAGMA wal_checkpoint({how})").fetchone()[0] == 0
            other.execute("CREATE TABLE IF NOT EXISTS theirs (a)")
            other.execute("INSERT INTO theirs VALUES (1)")
            other.commit()
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_whose_lock_file_is_removed_has_a_note_of_it_and_exits_1(rater: Rater) -> None:
    status, out, said = rater("run", "--copies", 1, "--", "sh", "-c", "rm $RATER_LOCK")
    assert (status, " ".join(out.split()).count("was removed or replaced during the run")) == (1, 1)
    assert "was removed or replaced" in said
    words = ("--axis", "copies=1,2", "--", "sh", "-c", "rm -f $RATER_LOCK")
    status, _, said = rater("sweep", *words)
    assert (status, said.count("was removed or replaced")) == (1, 1)


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[Store]:
    """A store of one run, whose file and folder are gone."""
    place = tmp_path / "db"
    store = open_store(place / "rater.db")
    begin(store)
    shutil.rmtree(place)
    yield store
    with pytest.raises(StoreError):
        store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that has room for 40 kB."""
    place = tmp_path / "small"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=40k", "rater-test", str(place)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("needs root that may mount: a disk that is full has to be tried")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_where_there_is_no_room_beside_it_the_next_place_takes_the_copy(
    lost: Store, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    monkeypatch.setenv("HOME", str(tmp_path))
    begin(lost, with_uuid("v"))
    assert lost.path == tmp_path / "rater-rescued-1.db"
    assert [head.run for head in lost.runs()] == [1, 2]
    assert list(small_disk.iterdir()) == []


def test_where_no_place_takes_a_copy_each_is_named_and_nothing_is_written_into_the_void(
    lost: Store, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    monkeypatch.setenv("HOME", "/proc/none")
    with pytest.raises(StoreError, match=f"no place took a copy: .*{small_disk}: .*full.*; /proc"):
        begin(lost, with_uuid("v"))
    assert [head.run for head in lost.runs()] == [1]


def test_a_vacuum_of_another_program_is_no_loss(tmp_path: Path) -> None:
    path = tmp_path / "rater.db"
    with open_store(path) as store:
        begin(store)
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE large AS SELECT zeroblob(100000)")
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            store.append(1, phase(0), ended(0, 1))
            bytes_before = path.stat().st_size
            other.execute("DROP TABLE large")
            other.execute("VACUUM")
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        store.append(1, ended(1, 1))
        assert path.stat().st_size < bytes_before
    assert list(tmp_path.iterdir()) == [path]
